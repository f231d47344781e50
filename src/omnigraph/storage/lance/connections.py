"""One client per bucket and process: Lance makes a new one, with new connections, for each handle.

Invariant: what handles of tables share is the way to the store and nothing that was read there. A
version may be given up and its number taken by another one, so no answer is kept by its number.

Lance keeps its clients in a session, for as long as a handle uses them.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, assert_never

import lance

from omnigraph import names
from omnigraph.storage.lance.base_paths import below_root, names_former_root
from omnigraph.storage.objects.failures import answered, was_silent
from omnigraph.storage.objects.location import Scheme
from omnigraph.storage.objects.lru_cache import UsedLast
from omnigraph.storage.objects.processes import use_storage
from omnigraph.storage.objects.s3_options import RETRY_SECONDS, TIMEOUT, for_one_request, seconds
from omnigraph.storage.objects.store import StoredObjects

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph.storage.objects.location import Root

_BUCKETS_KEPT: Final = 16
_MANIFEST_BYTES_KEPT: Final = 16 << 20

_KEPT: Final[UsedLast[LanceDataset]] = UsedLast(_BUCKETS_KEPT)
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
    bucket = root.uri.removeprefix("s3://").split("/")[0]
    _KEPT.keep((caches, bucket, tuple(sorted(root.storage_options.items()))), handle)
    return handle, session


def _require_answer(root: Root) -> None:
    """Ask a store that was silent just now one small question, instead of waiting in full again.

    Raises:
        StorageUnavailableError: it is silent still.
    """
    if not was_silent(root):
        return
    told = root.storage_options
    less = {TIMEOUT: f"{seconds(told[TIMEOUT]) / 2:.3f}s", RETRY_SECONDS: "1"}
    StoredObjects(replace(root, storage_options={**told, **less})).read(names.SCHEMA_STATE)
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
