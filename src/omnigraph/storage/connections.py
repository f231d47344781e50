"""One client per bucket and process: Lance makes a new one, with new connections, for each handle.

Invariant: what handles share is the way to the store and nothing that was read there. A version may
be given up and its number taken by another one, so no answer is kept by its number.

Lance keeps its clients in a session, for as long as a handle uses them.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import lance

from omnigraph.storage.location import Scheme

if TYPE_CHECKING:
    from collections.abc import Hashable

    from lance import LanceDataset

    from omnigraph.storage.location import Root

_BUCKETS_KEPT: Final = 16


class _KeptClients:
    """One handle per bucket and credentials, those used last, so that their clients stay."""

    def __init__(self) -> None:
        self._handles: OrderedDict[Hashable, LanceDataset] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, key: Hashable, handle: LanceDataset) -> None:
        with self._lock:
            self._handles.setdefault(key, handle)
            self._handles.move_to_end(key)
            while len(self._handles) > _BUCKETS_KEPT:
                self._handles.popitem(last=False)


_KEPT: Final = _KeptClients()


@functools.cache
def _session() -> Any:
    return lance.Session(  # type: ignore[attr-defined]
        index_cache_size_bytes=0, metadata_cache_size_bytes=0
    )


def opened(root: Root, uri: str, version: int | None, *, has_caches: bool = False) -> LanceDataset:
    """A handle on a dataset below the root; on S3 through the client of its bucket.

    One that is asked for rows again and again is better off with caches, and a client, of its own.
    """
    options = dict(root.storage_options) or None
    if has_caches or root.scheme is Scheme.LOCAL:
        return lance.dataset(uri, version=version, storage_options=options)
    handle = lance.dataset(uri, version=version, storage_options=options, session=_session())
    bucket = root.uri.removeprefix("s3://").split("/")[0]
    _KEPT.keep((bucket, tuple(sorted(root.storage_options.items()))), handle)
    return handle
