"""Files that tasks of a load write for later tasks: refused records, and origins of staged rows.

Invariant: one file per split and kind, replaced with the same content when the split is run again;
all of them are below the load's own folder, which is removed when the load ends.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import names
from omnigraph.storage.objects.store import StoredObjects

if TYPE_CHECKING:
    from omnigraph.storage.objects.location import Root


def put_refused(root: Root, operation_id: str, split: int, refused: pa.Table) -> None:
    content = io.BytesIO()
    pq.write_table(refused, content, compression="zstd")
    StoredObjects(root).replace(_path(operation_id, "refused", split), content.getvalue())


def refused_of(root: Root, operation_id: str, split: int) -> pa.Table | None:
    content = StoredObjects(root).read(_path(operation_id, "refused", split))
    return None if content is None else pq.read_table(io.BytesIO(content))


def put_places(root: Root, operation_id: str, split: int, places: Mapping[str, np.ndarray]) -> None:
    """Store, per table, the position of each staged row, as well-compressible differences."""
    steps = {
        key: np.diff(positions, prepend=np.uint32(0)).tobytes() for key, positions in places.items()
    }
    plain = msgspec.msgpack.encode(steps)
    content = len(plain).to_bytes(8, "little") + pa.compress(plain, codec="zstd", asbytes=True)
    StoredObjects(root).replace(_path(operation_id, "places", split), content)


def places_of(root: Root, operation_id: str, split: int) -> Mapping[str, np.ndarray]:
    content = StoredObjects(root).read(_path(operation_id, "places", split))
    assert content is not None, "a split that staged rows wrote their positions"
    size = int.from_bytes(content[:8], "little")
    steps = msgspec.msgpack.decode(pa.decompress(content[8:], size, codec="zstd", asbytes=True))
    return {
        key: np.cumsum(np.frombuffer(differences, np.uint32), dtype=np.uint32)
        for key, differences in steps.items()
    }


def remove_all(root: Root, operation_id: str) -> None:
    objects = StoredObjects(root)
    for path in objects.list(names.staging(operation_id)):
        objects.delete(path)


def _path(operation_id: str, kind: str, split: int) -> str:
    return f"{names.staging(operation_id)}/{kind}-{split:06}"
