"""Find and read input objects in a bucket that is no graph: by listing, and by ranges of bytes.

Names of inputs are other programs' names: a key may have any character. Nothing is written here.

Invariants:

- A file reads the object that was found: the store is asked for the same entity tag by every
  request, and an object that was replaced meanwhile is an error, never a mixture.
- Memory is bounded by two windows of a file that is read in order, and by one read of another.
- A file that is read in order up to `until` requests no byte behind it unless it is asked for.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import PreconditionError

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.storage.objects.failures import Failure, failure_of
from omnigraph_lake.storage.objects.lru_cache import LruCache
from omnigraph_lake.storage.objects.request_counts import RequestKind, count, count_listing
from omnigraph_lake.storage.objects.store import Store, connect, translated

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta

    from omnigraph_lake.storage.objects.location import Root

_CLIENTS_KEPT: Final = 16
_CLIENTS: Final[LruCache[Store]] = LruCache(_CLIENTS_KEPT)
_WINDOW_BYTES: Final = 4 << 20
_SMALL_WINDOW_BYTES: Final = 256 << 10
_FOLDER_MARK: Final = "_$folder$"
"""How Hadoop's older clients end the name of an object that stands for a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputObject:
    """An object as it was found; `tag` changes with its content."""

    path: str
    size: int
    tag: str | None


def find_object(bucket: Root, path: str) -> InputObject | None:
    """The object with exactly this key.

    Raises:
        StorageUnavailableError: the bucket cannot be read.
    """
    with translated(bucket, f"find {path}"):
        count(RequestKind.HEAD)
        try:
            return _object(obstore.head(_client(bucket), path))
        except FileNotFoundError as error:
            if failure_of(error) is Failure.BUCKET:
                raise
            return None


def list_objects(bucket: Root, folder: str) -> Iterator[InputObject]:
    """Every object below a folder, in no order; those that only stand for folders are omitted."""
    entries = 0
    with translated(bucket, f"list {folder or 'it'}"):
        for page in obstore.list(_client(bucket), folder or None):
            entries += len(page)
            for entry in page:
                listed = _object(entry)
                if listed.size or not _stands_for_a_folder(listed.path):
                    yield listed
    count_listing(entries)


def open_object(bucket: Root, wanted: InputObject, *, until: int | None = None) -> io.RawIOBase:
    """The bytes of an object.

    Args:
        bucket: Where it is.
        wanted: The object as it was found.
        until: It is read in order, and most likely not beyond this byte. Without it, reads may be
            anywhere.
    """
    return _ObjectFile(bucket, wanted, until=until)


class _ObjectFile(io.RawIOBase):
    """Reads ahead by one window while the last one is parsed, if the file is read in order."""

    def __init__(self, bucket: Root, wanted: InputObject, *, until: int | None) -> None:
        self._bucket, self._wanted, self._until = bucket, wanted, until
        self._position = self._start = 0
        self._window = memoryview(b"")
        self._ahead: tuple[int, Future[memoryview]] | None = None
        self._reader: ThreadPoolExecutor | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._wanted.size}
        self._position = max(0, origin[whence] + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._wanted.size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        pieces: list[memoryview] = []
        while wanted:
            start = self._move_window(wanted)
            piece = self._window[start : start + wanted]
            pieces.append(piece)
            self._position += len(piece)
            wanted -= len(piece)
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        content = self.read(len(target))
        target[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)
        self._window = memoryview(b"")
        super().close()

    def _move_window(self, wanted: int) -> int:
        """Have the position in the window; returns where in it."""
        offset = self._position - self._start
        if 0 <= offset < len(self._window):
            return offset
        if self._ahead is not None and self._ahead[0] == self._position:
            self._window = self._ahead[1].result()
        else:
            self._window = self._fetch(self._position, self._window_end(self._position, wanted))
        self._start, self._ahead = self._position, None
        self._read_ahead(self._start + len(self._window))
        return 0

    def _window_end(self, start: int, wanted: int) -> int:
        if self._until is None:
            return min(self._wanted.size, start + max(wanted, _SMALL_WINDOW_BYTES))
        if start < self._until:
            return min(self._until, start + _WINDOW_BYTES)
        return min(self._wanted.size, start + _SMALL_WINDOW_BYTES)

    def _read_ahead(self, start: int) -> None:
        if self._until is None or start >= self._until:
            return
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1)
        end = self._window_end(start, 0)
        self._ahead = start, self._reader.submit(self._fetch, start, end)

    def _fetch(self, start: int, end: int) -> memoryview:
        """Exactly these bytes of the object that was found.

        Raises:
            FileNotFoundError: it is gone.
            InvalidInputError: it was replaced.
        """
        path = self._wanted.path
        options: GetOptions = {"range": (start, end)}
        if self._wanted.tag is not None:
            options["if_match"] = self._wanted.tag
        with translated(self._bucket, f"read {path}", but=FileNotFoundError):
            try:
                content = memoryview(
                    obstore.get(_client(self._bucket), path, options=options).bytes()
                )
            except PreconditionError as error:
                raise self._change_error() from error
        count(RequestKind.GET, received=len(content))
        if len(content) != end - start:
            raise self._change_error()
        return content

    def _change_error(self) -> InvalidInputError:
        return InvalidInputError(
            f"{self._bucket}/{self._wanted.path} changed while it was loaded",
            next_step="Load files that are not being written to.",
        )


def _object(entry: ObjectMeta) -> InputObject:
    return InputObject(path=entry["path"], size=int(entry["size"]), tag=entry["e_tag"])


def _stands_for_a_folder(path: str) -> bool:
    name = path.rpartition("/")[2]
    return "." not in name or name.endswith(_FOLDER_MARK)


def _client(bucket: Root) -> Store:
    key = (bucket.uri, tuple(sorted(bucket.storage_options.items())))
    client = _CLIENTS.get(key)
    if client is None:
        client = connect(bucket)
        _CLIENTS.keep(key, client)
    return client
