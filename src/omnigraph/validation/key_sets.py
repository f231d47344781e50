"""Sets of hashed keys that every task of a job may ask: collected once, and read where needed.

Invariant: the driver holds the place of a set. The hashes themselves go from task to task through
a file, or through memory where there is no place for files.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import numpy as np

from omnigraph.runner.protocol import Hop, Runner, Sent, Stage, Task
from omnigraph.runner.shuffle import Scratch
from omnigraph.storage.objects.lru_cache import LruCache

Piece = TypeVar("Piece")


class KeySet:
    """Hashes of keys, for asking of many others whether they are among them."""

    def __init__(self, hashes: np.ndarray) -> None:
        self._hashes = hashes  # ascending
        bits = min(26, max(10, len(hashes).bit_length() + 3))
        self._shift = np.uint64(64 - bits)
        # Most keys of a table are not in the set; a small array tells, without a search.
        self._slots = np.zeros(1 << bits, np.bool_)
        self._slots[hashes >> self._shift] = True

    def has(self, hashes: np.ndarray) -> np.ndarray:
        is_member: np.ndarray = self._slots[hashes >> self._shift]
        candidates = np.flatnonzero(is_member)
        places = np.searchsorted(self._hashes, hashes[candidates])
        places[places == len(self._hashes)] = 0
        is_member[candidates] = self._hashes[places] == hashes[candidates]
        return is_member


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKeySet:
    """A set of keys in a file, or in memory; picklable."""

    scratch: Scratch | None
    place: str | bytes = field(repr=False)

    def read(self) -> KeySet:
        if isinstance(self.place, bytes):
            return KeySet(np.frombuffer(self.place, np.uint64))
        assert self.scratch is not None
        # A worker runs many tasks of one scan.
        keys = _READ.get(self.place)
        if keys is None:
            keys = KeySet(np.frombuffer(self.scratch.read(self.place), np.uint64))
            _READ.keep(self.place, keys)
        return keys


_READ: Final[LruCache[KeySet]] = LruCache(2)


def collect_keys(
    runner: Runner,
    stage: Stage,
    pieces: Sequence[Piece],
    hashes: Callable[[Piece, Task], Iterator[tuple[int, np.ndarray]]],
    *,
    sets: int,
    scratch: Scratch | None,
) -> list[StoredKeySet]:
    """The keys of all pieces, in some sets: `hashes` returns those of a piece with their set."""
    answers = runner.exchange(
        stage,
        pieces,
        partial(_send, hashes),
        Hop(partitions=sets, receive=partial(_receive, scratch)),
    )
    places = {
        number: content if scratch is None else content.decode() for number, content in answers
    }
    return [StoredKeySet(scratch=scratch, place=places[number]) for number in range(sets)]


def _send(
    hashes: Callable[[Piece, Task], Iterator[tuple[int, np.ndarray]]], piece: Piece, task: Task
) -> Iterator[Sent]:
    for number, firsts in hashes(piece, task):
        yield number, np.unique(firsts).tobytes()


def _receive(scratch: Scratch | None, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
    task.advance()
    parts = [np.frombuffer(message, np.uint64) for message in messages]
    hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *parts])).tobytes()
    if scratch is None:
        yield task.number, hashes
    else:
        name = f"keys-{task.number}-{secrets.token_hex(8)}"
        yield task.number, scratch.put(name, hashes).encode()
