"""Stores plain objects below the root: put-if-absent, read, list, delete, move aside.

Invariants:

- A claim is decided by the store in one conditional put; nothing here checks first and writes
  afterwards.
- No path leaves the root, and on a local disk no link on the way to it does.
- An object that is moved aside is at its old path, at its new path, or at both; never at neither.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, assert_never, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

from omnigraph_lake.errors import (
    InvalidInputError,
    StorageUnavailableError,
    UnsafeStoreError,
)
from omnigraph_lake.storage.objects.containment import require_inside, require_tree_inside
from omnigraph_lake.storage.objects.documents import digest_of_file
from omnigraph_lake.storage.objects.durability import sync
from omnigraph_lake.storage.objects.failures import Failure, failure_of, unavailable
from omnigraph_lake.storage.objects.location import Root, Scheme
from omnigraph_lake.storage.objects.lru_cache import LruCache
from omnigraph_lake.storage.objects.paths import is_disk_full
from omnigraph_lake.storage.objects.processes import note_change, use_storage
from omnigraph_lake.storage.objects.request_counts import RequestKind, count, count_listing
from omnigraph_lake.storage.objects.s3_options import (
    RETRIES,
    RETRY_SECONDS,
    TIMEOUT,
    for_one_request,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ClientConfig


_RETRIES: Final = 3
_CLIENTS_KEPT: Final = 16
ENTITY_TAG: Final = "etag:"
"""Marks a checksum that only the store it comes from can make."""
_READS_AT_ONCE: Final = 16
_PIECE_BYTES: Final = 5 << 20
"""The least that a store takes as a part of an object."""
_PIECES_AT_ONCE: Final = 4
_OF_THE_CLIENT: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        TIMEOUT,
        "user_agent",
    }
)


class Put(Enum):
    """How a put-if-absent ended."""

    CREATED = "created"
    EXISTED = "existed"


class Objects(Protocol):
    """What Omnigraph asks of an object store."""

    root: Root

    def put_if_absent(self, path: str, content: bytes) -> Put: ...
    def replace(self, path: str, content: bytes) -> None: ...
    def read(self, path: str) -> bytes | None: ...
    def list(self, prefix: str) -> tuple[str, ...]: ...
    def sizes(self, prefix: str) -> Mapping[str, int]: ...
    def folders(self, prefix: str) -> tuple[str, ...]: ...
    def delete(self, path: str) -> None: ...


class StoredObjects:
    """The objects of one root, on a local disk or in a bucket."""

    def __init__(self, root: Root, *, create: bool = False) -> None:
        self.root = root
        self._store = connect(root, create=create)

    def put_if_absent(self, path: str, content: bytes) -> Put:
        require_inside(self.root, path)
        with translated(self.root, f"create {path}"):
            count(RequestKind.PUT, sent=len(content))
            try:
                obstore.put(self._store, path, content, mode="create")
            except AlreadyExistsError:
                return Put.EXISTED
            note_change(self.root.uri, path)
            return Put.CREATED

    def replace(self, path: str, content: bytes) -> None:
        require_inside(self.root, path)
        with translated(self.root, f"write {path}"):
            count(RequestKind.PUT, sent=len(content))
            note_change(self.root.uri, path)
            obstore.put(self._store, path, content)

    def read(self, path: str) -> bytes | None:
        """The object's content, or None if there is no such object."""
        require_inside(self.root, path)
        with translated(self.root, f"read {path}"):
            try:
                content = self._content(path)
            except FileNotFoundError as error:
                count(RequestKind.GET)
                if failure_of(error) is Failure.BUCKET:
                    raise
                return None
            count(RequestKind.GET, received=len(content))
            return content

    def _content(self, path: str) -> bytes:
        if self.root.scheme is not Scheme.LOCAL:
            return bytes(obstore.get(self._store, path).bytes())
        # A file is read at a third of what the client needs for it; a folder is no object.
        try:
            return Path(self.root.child(path)).read_bytes()
        except IsADirectoryError as error:
            raise FileNotFoundError(path) from error

    def read_range(self, path: str, start: int, size: int) -> bytes | None:
        """A part of an object, or None if there is no such object."""
        require_inside(self.root, path)
        with translated(self.root, f"read {path}"):
            try:
                content = bytes(obstore.get_range(self._store, path, start=start, length=size))
            except FileNotFoundError as error:
                count(RequestKind.GET)
                if failure_of(error) is Failure.BUCKET:
                    raise
                return None
            count(RequestKind.GET, received=len(content))
            return content

    def list(self, prefix: str) -> tuple[str, ...]:
        """Every path below the prefix, sorted."""
        require_tree_inside(self.root, prefix.rstrip("/"))
        with translated(self.root, f"list {prefix or 'it'}"):
            paths = tuple(sorted(_paths(self._store, prefix)))
            count_listing(len(paths))
            return paths

    def is_empty(self) -> bool:
        """Whether there is nothing below the root, be it a link; no link is followed."""
        with translated(self.root, "list it"):
            if self.root.scheme is Scheme.LOCAL:
                return not any(
                    files or any(map(os.path.islink, (f"{place}/{name}" for name in folders)))
                    for place, folders, files in os.walk(self.root.uri)
                )
            count_listing(1)
            return not any(obstore.list(self._store, chunk_size=1))

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """The number of bytes of every object below the prefix, by path."""
        require_tree_inside(self.root, prefix.rstrip("/"))
        with translated(self.root, f"list {prefix or 'it'}"):
            pages = obstore.list(self._store, prefix)
            sizes = {entry["path"]: int(entry["size"]) for page in pages for entry in page}
            count_listing(len(sizes))
            return sizes

    def folders(self, prefix: str) -> tuple[str, ...]:
        """What has something below it right under the prefix, sorted."""
        if prefix:
            require_inside(self.root, prefix)
        with translated(self.root, f"list {prefix}"):
            folders = obstore.list_with_delimiter(self._store, prefix)["common_prefixes"]
            count_listing(len(folders))
            return tuple(sorted(folders))

    def delete(self, path: str) -> None:
        """Remove an object; one that is already gone is fine."""
        require_inside(self.root, path)
        with translated(self.root, f"delete {path}"):
            count(RequestKind.DELETE)
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                return

    def stream(self, path: str) -> Iterator[bytes]:
        """The object's content in pieces, so that no object is held whole.

        Raises:
            FileNotFoundError: there is no such object.
        """
        require_inside(self.root, path)
        with translated(self.root, f"read {path}", but=FileNotFoundError):
            try:
                pieces = obstore.get(self._store, path).stream(min_chunk_size=_PIECE_BYTES)
                for piece in pieces:
                    content = bytes(piece)
                    count(RequestKind.GET, received=len(content))
                    yield content
            except FileNotFoundError as error:
                if failure_of(error) is Failure.BUCKET:
                    raise unavailable(self.root, f"read {path}", error) from error
                raise

    def put_stream(self, path: str, pieces: Iterator[bytes]) -> None:
        """Write an object of any size; it is there whole or not at all."""
        require_inside(self.root, path)
        with translated(self.root, f"write {path}", but=FileNotFoundError):
            count(RequestKind.PUT)
            # Not closed if a piece fails: then nothing appears.
            writer = obstore.open_writer(
                self._store, path, buffer_size=_PIECE_BYTES, max_concurrency=_PIECES_AT_ONCE
            )
            for piece in pieces:
                writer.write(piece)
            writer.close()

    def checksum(self, path: str) -> tuple[int, str] | None:
        """The size of an object and a tag of its content; None if it is missing.

        On a local disk that is a digest, for which all of it is read. A store has a tag for it.
        """
        require_inside(self.root, path)
        with translated(self.root, f"read {path}"):
            if self.root.scheme is Scheme.LOCAL:
                return digest_of_file(Path(self.root.child(path)))
            count(RequestKind.HEAD)
            try:
                facts = obstore.head(self._store, path)
            except FileNotFoundError as error:
                if failure_of(error) is Failure.BUCKET:
                    raise
                return None
            return int(facts["size"]), f"{ENTITY_TAG}{facts['e_tag']}"


def stored_objects(root: Root) -> StoredObjects:
    """The objects of a root through a client that this process has already, if it has one."""
    key = (root.uri, tuple(sorted(root.storage_options.items())))
    objects = _CONNECTED.get(key)
    if objects is None:
        objects = StoredObjects(root)
        _CONNECTED.keep(key, objects)
    return objects


_CONNECTED: Final[LruCache[StoredObjects]] = LruCache(_CLIENTS_KEPT)


def read_all(objects: Objects, paths: Sequence[str]) -> Mapping[str, bytes | None]:
    """The contents of several objects; from a distant store all at the same time."""
    if objects.root.scheme is Scheme.LOCAL:
        return {path: objects.read(path) for path in paths}
    with ThreadPoolExecutor(_READS_AT_ONCE) as beside:
        return dict(zip(paths, beside.map(objects.read, paths), strict=True))


def delete_all(objects: Objects, prefix: str) -> None:
    """Delete every object below a prefix."""
    delete_paths(objects, objects.list(prefix))


def remove_empty_folder(root: Root, path: str) -> None:
    """Remove a folder if it is empty; only a local disk has any.

    A put into it makes the folder anew if that happens at the same time, but not the one above it.
    """
    if root.scheme is Scheme.LOCAL:
        with suppress(OSError):
            Path(root.child(path)).rmdir()


def delete_paths(objects: Objects, paths: Iterable[str]) -> None:
    """Delete some objects; in a distant store several at the same time."""
    if objects.root.scheme is Scheme.LOCAL:
        for path in paths:
            objects.delete(path)
        return
    with ThreadPoolExecutor(_READS_AT_ONCE) as beside:
        for _ in beside.map(objects.delete, paths):
            pass


def claim(objects: Objects, path: str, content: bytes) -> bytes:
    """Put-if-absent; returns what the object holds now, ours or the earlier claim's.

    Proves on the way that the store refuses a second claim. The proving put carries the bytes that
    are there already, so a store that ignores the condition is found out without damage.

    Raises:
        UnsafeStoreError: the store accepted a put onto an existing object.
    """
    existing = objects.read(path)
    if existing is None and objects.put_if_absent(path, content) is Put.CREATED:
        existing = content
    if existing is None:
        existing = objects.read(path)
    try:
        if existing is not None and objects.put_if_absent(path, existing) is Put.CREATED:
            raise UnsafeStoreError(objects.root.uri)
    except StorageUnavailableError as error:
        # A disk that takes nothing accepts no second claim, and is to be opened to free it.
        if not is_disk_full(error):
            raise
    return content if existing is None else existing


Store: TypeAlias = LocalStore | S3Store | AzureStore | GCSStore


def connect(root: Root, *, create: bool = False) -> Store:
    """A client of the store that a root is in."""
    with translated(root, "open the store"):
        match root.scheme:
            case Scheme.LOCAL:
                return LocalStore(root.uri, mkdir=create)
            case Scheme.S3:
                return _connect_to(S3Store, root)
            case Scheme.AZURE:
                return _connect_to(AzureStore, root)
            case Scheme.GOOGLE:
                return _connect_to(GCSStore, root)
            case _:
                assert_never(root.scheme)


def _connect_to(kind: type[S3Store | AzureStore | GCSStore], root: Root) -> Store:
    """Lance takes all options as one; here those of the client and of retries are apart."""
    request_options = for_one_request(root.storage_options)
    options = {name: value for name, value in request_options.items() if not _is_for_lance(name)}
    patience = timedelta(seconds=_number(options, RETRY_SECONDS))
    retries = _number(options, RETRIES) if RETRIES in options else _RETRIES
    for name in (RETRY_SECONDS, RETRIES):
        options.pop(name, None)
    client = {name: options.pop(name) for name in sorted(options) if name in _OF_THE_CLIENT}
    try:
        return kind.from_url(
            root.uri,
            config=cast("Any", options),  # every kind has names of its own
            client_options=cast("ClientConfig", client),
            retry_config={"max_retries": retries, "retry_timeout": patience},
        )
    except UnknownConfigurationKeyError as error:
        unknown = re.search(r"'([^']*)'", str(error))
        raise InvalidInputError(
            f"there is no storage option {unknown[1] if unknown else '?'!r}",
            next_step="See how a store is reached: options are named as in AWS_, AZURE_ or GOOGLE_ "
            "variables.",
        ) from error


def _number(options: Mapping[str, str], name: str) -> int:
    if not options[name].isdecimal():
        raise InvalidInputError(f"the storage option {name} is not a whole number")
    return int(options[name])


def _is_for_lance(name: str) -> bool:
    return name.startswith("lance_") or name == "download_retry_count"


def _paths(store: Store, prefix: str) -> Iterator[str]:
    for page in obstore.list(store, prefix):
        for entry in page:
            yield entry["path"]


@contextmanager
def translated(root: Root, action: str, *, but: type[OSError] | None = None) -> Iterator[None]:
    """Turn the store's own errors into ours, naming the root and what was tried."""
    use_storage()
    try:
        yield
    except (BaseError, OSError) as error:
        if but is not None and isinstance(error, but):
            raise
        raise unavailable(root, action, error) from error


def move_aside(objects: Objects, paths: Sequence[str], where: str) -> Iterator[str]:
    """Move objects below another path, where nothing is yet; tells each path that it moved.

    They are moved, in this order, as far as this is iterated, and all of it ends with a sync.
    """
    for path in paths:
        move_object(objects, path, f"{where}/{path}")
        yield path
    if paths:
        sync(objects.root)


def move_object(objects: Objects, path: str, target: str) -> None:
    """Move one object; nothing happens if it was moved before."""
    root = objects.root
    require_inside(root, path)
    require_inside(root, target)
    if root.scheme is Scheme.LOCAL:
        try:
            Path(root.child(target)).parent.mkdir(parents=True, exist_ok=True)
            Path(root.child(path)).rename(root.child(target))
        except FileNotFoundError:
            return  # moved before
        except OSError as error:
            raise unavailable(root, f"move {path} to {target}", error) from error
        return
    content = objects.read(path)
    if content is not None:
        objects.replace(target, content)
        objects.delete(path)
