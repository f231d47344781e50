"""Hand over the pieces of a large job through one object in the staging area of the graph.

A task of Spark receives the closure of its whole job. With the pieces in it, what is sent grows
with the square of their number; from an object every task reads the few around its own.

Invariants:
- No storage option is written. Roots, which have them, stay in the closure.
- What a task unpickles is what the driver wrote: the closure has its digests. Otherwise a writer
  of the store could run code on executors.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import numpy as np

from omnigraph_lake.errors import DamagedGraphError, StorageUnavailableError
from omnigraph_lake.runner.shuffle import StoredScratch
from omnigraph_lake.storage.objects.location import Root
from omnigraph_lake.storage.objects.store import StoredObjects

Piece = TypeVar("Piece")

PIECES_SENT_MAX: Final = 256
"""Up to so many pieces are part of the closure."""
_PIECES_READ: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPieces(Generic[Piece]):
    """Pieces in an object, in parts of a few; picklable."""

    root: Root
    path: str
    roots: tuple[Root, ...]
    """Those that pieces refer to."""
    ends: np.ndarray = field(repr=False, compare=False)
    digests: tuple[bytes, ...] = field(repr=False, compare=False)

    def __getitem__(self, number: int) -> Piece:
        part = number // _PIECES_READ
        start = int(self.ends[part - 1]) if part else 0
        size = int(self.ends[part]) - start
        content = StoredObjects(self.root).read_range(self.path, start, size)
        if content is None:
            raise StorageUnavailableError(
                f"{self.path} of {self.root} was removed while its operation was running",
                next_step="Run the operation again, and do not clear the staging area meanwhile.",
            )
        if _digest(content) != self.digests[part]:
            raise DamagedGraphError(
                f"{self.path} of {self.root} is not what its operation wrote",
                next_step="Run the operation again, and find out what else writes to the store.",
            )
        pieces: list[Piece] = _Unpickler(io.BytesIO(content), self.roots).load()
        return pieces[number % _PIECES_READ]


def store_pieces(scratch: StoredScratch, pieces: Sequence[Piece]) -> StoredPieces[Piece]:
    """Write the pieces of a job; the scratch area removes them."""
    roots: list[Root] = []
    parts: list[bytes] = []
    for start in range(0, len(pieces), _PIECES_READ):
        content = io.BytesIO()
        _Pickler(content, roots).dump(list(pieces[start : start + _PIECES_READ]))
        parts.append(content.getvalue())
    path = scratch.put(f"pieces-{secrets.token_hex(8)}", b"".join(parts))
    return StoredPieces(
        root=scratch.root,
        path=path,
        roots=tuple(roots),
        ends=np.cumsum([len(part) for part in parts]),
        digests=tuple(map(_digest, parts)),
    )


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


class _Pickler(pickle.Pickler):
    def __init__(self, content: io.BytesIO, roots: list[Root]) -> None:
        super().__init__(content, protocol=pickle.HIGHEST_PROTOCOL)
        self._roots = roots

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Root):
            return None
        if obj not in self._roots:
            self._roots.append(obj)
        return self._roots.index(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: io.BytesIO, roots: Sequence[Root]) -> None:
        super().__init__(content)
        self._roots = roots

    def persistent_load(self, pid: int) -> Root:
        return self._roots[pid]
