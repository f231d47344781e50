"""Opens and creates Lance datasets below a root, and translates the errors of Lance.

Lance makes a new client, with new connections, for each handle. Handles here share one client per
bucket and process: Lance keeps its clients in a session, for as long as a handle uses them.

Invariants:

- A missing dataset or version is an answer (None); any other failure names the root.
- Handles of tables share the connections to the store and nothing that was read there. A version
  may be given up and its number taken by another one, so no answer is kept by its number.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never
from uuid import uuid4

import lance
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.errors import ConflictError
from omnigraph_lake.storage.lance.base_paths import below_root, names_former_root
from omnigraph_lake.storage.objects.containment import require_line_inside
from omnigraph_lake.storage.objects.failures import (
    Failure,
    answered,
    damaged,
    failure_of,
    is_damage,
    unavailable,
    was_silent,
)
from omnigraph_lake.storage.objects.location import Root, Scheme, stored_path
from omnigraph_lake.storage.objects.lru_cache import LruCache
from omnigraph_lake.storage.objects.processes import use_storage
from omnigraph_lake.storage.objects.s3_options import (
    RETRY_SECONDS,
    TIMEOUT,
    for_one_request,
    seconds,
)
from omnigraph_lake.storage.objects.store import Objects, StoredObjects, delete_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lance import LanceDataset
    from lance.dataset import Branch


_BUCKETS_KEPT: Final = 16
_MANIFEST_BYTES_KEPT: Final = 16 << 20

_KEPT: Final[LruCache[LanceDataset]] = LruCache(_BUCKETS_KEPT)
"""One handle per session, bucket and credentials, so that its client stays."""


class Caches(Enum):
    """What a handle remembers of what it has read."""

    NOTHING = "nothing"
    BY_TAG = "by tag"
    """What a version is, told apart by the tag that the store gave it, and files that have names of
    their own. Right for datasets whose rows are read as they are, without row ids and indexes."""
    OF_ITS_OWN = "of its own"
    """Everything, in a session of its own, with a client of its own. Right for a handle that is
    asked for rows again and again."""


def opened(
    root: Root, uri: str, version: int | None, *, caches: Caches = Caches.NOTHING
) -> LanceDataset:
    """A handle on a dataset below the root; on S3 through the client of its bucket."""
    handle, session = _as_stored(root, uri, version, caches)
    return below_root(root, handle, session=session)


def is_moved(root: Root, place: str, version: int) -> bool:
    """Whether a version names files at an address that the graph had before; not if it is gone."""
    try:
        handle, _ = _as_stored(root, root.child(place), version, Caches.NOTHING)
    except (ValueError, OSError) as error:
        if "not found" in str(error).lower():
            return False
        raise
    return names_former_root(root, handle)


def _as_stored(
    root: Root, uri: str, version: int | None, caches: Caches
) -> tuple[LanceDataset, Any]:
    """What Lance opens, and the session that it is in, if it shares one."""
    use_storage()
    options = for_one_request(root.storage_options) or None
    _require_answer(root)
    if caches is Caches.OF_ITS_OWN or root.scheme is Scheme.LOCAL:
        return lance.dataset(uri, version=version, storage_options=options), None
    session = _session(_bytes_kept(caches))
    handle = lance.dataset(uri, version=version, storage_options=options, session=session)
    _KEPT.keep((caches, root.bucket, tuple(sorted(root.storage_options.items()))), handle)
    return handle, session


def _require_answer(root: Root) -> None:
    """Ask a store that was silent just now one small question, instead of waiting in full again.

    Raises:
        StorageUnavailableError: it is silent still.
    """
    if not was_silent(root):
        return
    options = root.storage_options
    less = {TIMEOUT: f"{seconds(options[TIMEOUT]) / 2:.3f}s", RETRY_SECONDS: "1"}
    StoredObjects(replace(root, storage_options={**options, **less})).read(names.SCHEMA_STATE)
    answered(root)


@functools.cache
def _session(metadata_bytes: int) -> Any:
    return lance.Session(  # type: ignore[attr-defined]
        index_cache_size_bytes=0, metadata_cache_size_bytes=metadata_bytes
    )


def _bytes_kept(caches: Caches) -> int:
    match caches:
        case Caches.NOTHING:
            return 0
        case Caches.BY_TAG:
            return _MANIFEST_BYTES_KEPT
        case Caches.OF_ITS_OWN:
            raise AssertionError("it shares no session")
        case _:
            assert_never(caches)


_PANIC: Final = "PanicException"
_LISTINGS_MAX: Final = 20
_LOST_OR_UNKNOWN: Final = (
    "conflict",
    "is unknown",
    "not found",
    "concurrent",
    "fragment ids must be unique",  # a concurrent commit took the same numbers
)


class NewVersion(NamedTuple):
    """A version that was made just now."""

    version: int
    made_at: str


def open_dataset(
    root: Root,
    location: str,
    *,
    fork: str | None = None,
    version: int | None = None,
    caches: Caches = Caches.NOTHING,
) -> LanceDataset | None:
    """The dataset at a version (None = latest) of a Lance branch, or None if there is none."""
    with translated(root, f"open {location}"):
        try:
            dataset = opened(root, dataset_uri(root, location, fork), version, caches=caches)
        except (ValueError, OSError) as error:
            if is_not_found(error):
                return None
            raise
        _ = dataset.schema  # Lance decodes it when it is first read, and panics at unknown types
        return dataset


def cleans_by_itself(dataset: LanceDataset) -> bool:
    """Whether Lance deletes old versions of a table after commits, even if they are referenced."""
    return any(key.startswith(names.LANCE_AUTO_CLEANUP) for key in dataset.config())


def without_cleanup(dataset: LanceDataset) -> lance.LanceOperation.BaseOperation:
    """The operation that takes the settings away by which Lance deletes old versions by itself."""
    keys = [key for key in dataset.config() if key.startswith(names.LANCE_AUTO_CLEANUP)]
    return lance.LanceOperation.UpdateConfig(
        config_updates=lance.LanceOperation.UpdateMap(updates=dict.fromkeys(keys), replace=False)
    )


def create_dataset(
    root: Root, location: str, content: pa.Table | pa.RecordBatchReader, *, operation_id: str
) -> LanceDataset:
    """Create a dataset as exactly one version, with stable row ids and its creator's id."""
    with translated(root, f"create {location}"):
        try:
            return lance.write_dataset(
                content,
                dataset_uri(root, location, None),
                mode="create",
                enable_stable_row_ids=True,
                storage_options=for_one_request(root.storage_options) or None,
                transaction_properties={names.OPERATION_PROPERTY: operation_id},
            )
        except OSError as error:
            if "already exists" not in str(error):
                raise
            raise ConflictError(
                f"there is already a dataset at {root.child(location)}",
                next_step="Move it away, or choose another root.",
            ) from error


def create_in_memory(content: pa.Table) -> LanceDataset:
    """A dataset that no store has and that ends with its handle: what a first version is like."""
    return lance.write_dataset(
        content, f"memory://{uuid4()}", mode="create", enable_stable_row_ids=True
    )


def remove_unless_foreign(objects: Objects, location: str, *, operation_id: str) -> None:
    """Delete everything at a location, unless another operation made the dataset there."""
    dataset = open_dataset(objects.root, location)
    if dataset is not None and creator_of(dataset) != operation_id:
        return
    delete_all(objects, location)


def creator_of(dataset: LanceDataset) -> str | None:
    """The operation that made the dataset's current version."""
    transaction = dataset.read_transaction(dataset.version)
    if transaction is None:
        return None
    return (transaction.transaction_properties or {}).get(names.OPERATION_PROPERTY)


def dataset_uri(root: Root, location: str, fork: str | None) -> str:
    """The address of one line of a dataset, after a look at where its files are."""
    place = names.fork_location(location, fork) if fork else location
    require_line_inside(root, place)
    return root.child(place)


def lance_branches(dataset: LanceDataset) -> Mapping[str, Branch]:
    """Every Lance branch of a dataset by name.

    Lance finds the names first and reads each one after that; a branch deleted in between fails
    its whole listing, which is then made again.
    """
    for _ in range(_LISTINGS_MAX - 1):
        try:
            return _named_below(dataset, dataset.branches.list())
        except (ValueError, OSError) as error:
            if not is_not_found(error):
                raise
    return _named_below(dataset, dataset.branches.list())


def _named_below(dataset: LanceDataset, listed: Mapping[str, Branch]) -> Mapping[str, Branch]:
    """A branch is a folder of its name: one that would lie elsewhere is not touched."""
    for name in listed:
        stored_path(name, said_by=f"a branch of {dataset.uri}")
    return listed


def made_at(dataset: LanceDataset) -> str:
    """When the open version was written: identifies it among versions of the same number."""
    moment = dataset.get_version()["timestamp"]
    assert isinstance(moment, datetime)
    # Lance gives local time without saying so.
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def is_not_found(error: Exception) -> bool:
    return "not found" in str(error).lower() and failure_of(error) is not Failure.BUCKET


def is_lost_or_unknown(error: OSError) -> bool:
    """Whether a commit lost a race, or may have; HEAD is scratch space in both cases."""
    return any(sign in str(error).lower() for sign in _LOST_OR_UNKNOWN)


@contextmanager
def translated(root: Root, action: str) -> Iterator[None]:
    """Translate errors of Lance, which reports store failures and damage as the same types."""
    try:
        yield
    except (OSError, ValueError) as error:
        failed = damaged if is_damage(error) else unavailable
        raise failed(root, action, error) from error
    except BaseException as error:
        # What Lance cannot decode may make it panic, which Python sees as no ordinary exception.
        is_panic = type(error).__name__ == _PANIC
        if is_panic or (isinstance(error, RuntimeError) and is_damage(error)):
            raise damaged(root, action, error) from error
        raise
