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

from omnigraph_lake.runner.key_hash import KeyHashes
from omnigraph_lake.runner.protocol import Hop, Runner, Sent, Stage, Task
from omnigraph_lake.runner.shuffle import Scratch
from omnigraph_lake.storage.objects.lru_cache import LruCache

Piece = TypeVar("Piece")

_KEY_BYTES: Final = 12
_PREFIX_BITS_MAX: Final = 22


class KeySet:
    """Hashed keys, for asking of many others whether they are among them."""

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        """The halves of the hashes, in the order of the first."""
        self._first, self._second = first, second
        bits = min(_PREFIX_BITS_MAX, max(10, len(first).bit_length() + 1))
        self._shift = np.uint64(64 - bits)
        # Where the keys of each prefix of a hash begin; most prefixes have one key or none.
        counts = np.bincount((first >> self._shift).astype(np.intp), minlength=1 << bits)
        self._starts = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=self._starts[1:])

    @classmethod
    def decode(cls, content: bytes) -> KeySet:
        return cls(*_halves(content))

    def has(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        prefixes = (first >> self._shift).astype(np.intp)
        places, ends = self._starts[prefixes], self._starts[prefixes + 1]
        is_member = np.zeros(len(first), np.bool_)
        pending = np.flatnonzero(places < ends)
        while len(pending):
            asked = places[pending]
            is_equal = self._first[asked] == first[pending]
            is_equal &= self._second[asked] == second[pending]
            is_member[pending[is_equal]] = True
            places[pending] += 1
            pending = pending[~is_equal & (asked + 1 < ends[pending])]
        return is_member


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKeySet:
    """A set of keys in a file, or in memory; picklable."""

    scratch: Scratch | None
    place: str | bytes = field(repr=False)

    def read(self) -> KeySet:
        if isinstance(self.place, bytes):
            return KeySet.decode(self.place)
        assert self.scratch is not None
        # A worker runs many tasks of one scan.
        keys = _READ.get(self.place)
        if keys is None:
            keys = KeySet.decode(self.scratch.read(self.place))
            _READ.keep(self.place, keys)
        return keys


_READ: Final[LruCache[KeySet]] = LruCache(2)


def collect_keys(
    runner: Runner,
    stage: Stage,
    pieces: Sequence[Piece],
    hashes: Callable[[Piece, Task], Iterator[tuple[int, KeyHashes]]],
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
    return [StoredKeySet(scratch=scratch, place=places.get(number, b"")) for number in range(sets)]


def _send(
    hashes: Callable[[Piece, Task], Iterator[tuple[int, KeyHashes]]], piece: Piece, task: Task
) -> Iterator[Sent]:
    for number, keys in hashes(piece, task):
        is_present = slice(None) if keys.present is None else keys.present
        yield number, _encode_distinct(keys.first[is_present], keys.second[is_present])


def _receive(scratch: Scratch | None, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
    task.advance()
    parts = [_halves(message) for message in messages]
    keys = _encode_distinct(
        np.concatenate([np.empty(0, np.uint64), *(first for first, _ in parts)]),
        np.concatenate([np.empty(0, np.uint32), *(second for _, second in parts)]),
    )
    if scratch is None:
        yield task.number, keys
    else:
        name = f"keys-{task.number}-{secrets.token_hex(8)}"
        yield task.number, scratch.put(name, keys).encode()


def _halves(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    count = len(content) // _KEY_BYTES
    second = np.frombuffer(content, np.uint32, count, offset=8 * count)
    return np.frombuffer(content, np.uint64, count), second


def _encode_distinct(first: np.ndarray, second: np.ndarray) -> bytes:
    order = np.argsort(first, kind="stable")
    first, second = first[order], second[order]
    is_new = np.ones(len(first), np.bool_)
    is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[is_new].tobytes() + second[is_new].tobytes()
