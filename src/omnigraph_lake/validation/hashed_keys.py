"""Hashed keys of rows: how tasks send them to buckets, and how a bucket reads and compares them.

A row is identified by one number: for rows of the load the split in the upper half and the position
among the split's rows of its table in the lower; for pinned rows their Lance row address. Order
among rows is the order of their numbers, which is the order of the input.

A key that many rows of one task share may be sent once, as a group: the rows between two numbers
that have this key.

Invariants:

- Equal keys are in one bucket under one role, so a bucket has all rows of each of its keys.
- Groups of one key do not overlap: a task sends its rows in order.
- Where rows are grouped, a task sends few records of one key, however many rows have it. So the
  memory of a bucket follows the number of buckets, for any input.
- A key is identified by its hash; see `key_hash`. 96 bits, seeded per load, make a collision less
  likely than 1 in 10^9 in a load of 10^10 keys, for any input.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from omnigraph_lake.runner.key_hash import SEED_BYTES, hash_keys
from omnigraph_lake.runner.mailboxes import Mailboxes

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph_lake.runner.protocol import Task
    from omnigraph_lake.validation.key_sets import KeySet

SPLIT_BITS: Final = 32
# 16 bytes each: the JVM handles records of some hundred kB well, and larger ones badly.
_KEYS_PER_BLOB: Final = 8192
KEYS_PER_BUCKET: Final = 2_000_000
PARTITIONS_MAX: Final = 8192
"""More buckets than that share partitions, because every task sends to every partition."""
_HELD_BYTES: Final = 64 << 20
FREQUENT_LEAST: Final = 128
FREQUENT_SHARE: Final = 8192
"""A key is sent as a group if at least these rows, and one in so many of a task's, have it."""
_SECOND_BITS: Final = 32
# The bits of a hash that a word has no room for fit into another word.
_POSITION_BITS_MAX: Final = 64 - _SECOND_BITS
_NO_WORDS: Final = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashing:
    """How keys of one load are hashed, and into how many buckets.

    A task checks one partition: a bucket, or several of them one after the other.
    """

    seed: bytes = field(repr=False)
    buckets: int

    @classmethod
    def for_keys(cls, count: int) -> Hashing:
        """With buckets of a size that a task holds easily."""
        seed = secrets.token_bytes(SEED_BYTES)
        return cls(seed=seed, buckets=max(1, -(-count // KEYS_PER_BUCKET)))

    @property
    def partitions(self) -> int:
        return min(self.buckets, PARTITIONS_MAX)


class Keys(msgspec.Struct, frozen=True, array_like=True):
    """Some keys of one role in one bucket, as bytes of the arrays they are.

    Rows of one split, or of one fragment, share the upper half of their numbers: stored once.
    `groups` has three numbers per key if every key is that of a group, with a row of it in `rows`.
    """

    bucket: int
    role: int
    first: bytes
    second: bytes
    upper: int | None
    rows: bytes
    extras: tuple[bytes, ...] = ()
    groups: bytes = b""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Keys)


class _BucketOfKeys(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of `Keys`; the rest is not decoded."""

    bucket: int


_BUCKET_DECODER: Final = msgspec.msgpack.Decoder(_BucketOfKeys)


class KeyBuckets:
    """Collects the keys of one task by role, and returns them by partition.

    `groups` says by role which row of a group is sent for it; other roles are sent row by row.
    """

    def __init__(self, hashing: Hashing, groups: Mapping[int, Chosen] | None = None) -> None:
        self._hashing = hashing
        self._groups = groups or {}
        self._parts: dict[int, list[tuple[np.ndarray, ...]]] = {}
        self.count = 0
        """The number of keys that are held."""

    def add(
        self,
        role: int,
        columns: Iterable[pa.Array | pa.ChunkedArray],
        rows: np.ndarray,
        *,
        extras: tuple[np.ndarray, ...] = (),
        only: KeySet | None = None,
        unless: KeySet | None = None,
    ) -> None:
        """Add the keys of some rows; a null in a key exempts its row.

        With `only`, keys are added that are in this set, and with `unless`, those that are not.
        """
        hashes = hash_keys(tuple(columns), self._hashing.seed)
        arrays: tuple[np.ndarray, ...] = (hashes.first, hashes.second, rows, *extras)
        if hashes.present is not None:
            arrays = tuple(array[hashes.present] for array in arrays)
        if only is not None:
            is_member = only.has(arrays[0], arrays[1])
            arrays = tuple(array[is_member] for array in arrays)
        if unless is not None:
            is_other = ~unless.has(arrays[0], arrays[1])
            arrays = tuple(array[is_other] for array in arrays)
        if len(arrays[0]):
            self._parts.setdefault(role, []).append(arrays)
            self.count += len(arrays[0])

    def buckets(self) -> Iterator[tuple[int, bytes]]:
        """The keys by partition, encoded in pieces of a bounded size; clears this object."""
        for role, parts in self._parts.items():
            arrays = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
            groups: tuple[list[np.ndarray], np.ndarray] | None = None
            if role in self._groups:
                arrays, groups = _group_frequent(arrays, self._groups[role])
            upper, arrays[2] = _halve(arrays[2])
            yield from self._encode(role, arrays, upper)
            if groups is not None:
                yield from self._encode(role, groups[0], None, groups[1])
        self._parts.clear()
        self.count = 0

    def _encode(
        self,
        role: int,
        arrays: Sequence[np.ndarray],
        upper: int | None,
        groups: np.ndarray | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        hashing = self._hashing
        bucket = (arrays[0] % np.uint64(hashing.buckets)).astype(_small(hashing.buckets))
        order = np.argsort(bucket, kind="stable")
        bucket = bucket[order]
        cuts = [0, *(np.flatnonzero(bucket[1:] != bucket[:-1]) + 1).tolist(), len(order)]
        for begin, end in pairwise(cuts) if len(order) else ():
            number = int(bucket[begin])
            for start in range(begin, end, _KEYS_PER_BLOB):
                chosen = order[start : min(start + _KEYS_PER_BLOB, end)]
                first, second, rows, *extras = (array[chosen].tobytes() for array in arrays)
                keys = Keys(
                    number,
                    role,
                    first,
                    second,
                    upper,
                    rows,
                    tuple(extras),
                    b"" if groups is None else groups[:, chosen].tobytes(),
                )
                yield number % hashing.partitions, _ENCODER.encode(keys)


def _small(count: int) -> type[np.unsignedinteger]:
    """Numbers of 16 bits are sorted by radix."""
    return np.uint16 if count <= 1 << 16 else np.uint32


class Chosen(Enum):
    """The row that is sent for a group: the one that stays if the others are refused."""

    FIRST = auto()
    LAST = auto()
    """The last of those with the greatest rank, if ranks are sent."""


def _group_frequent(
    arrays: list[np.ndarray], chosen: Chosen
) -> tuple[list[np.ndarray], tuple[list[np.ndarray], np.ndarray] | None]:
    """The keys of few rows, and apart from them one key for every group of many."""
    bins = (arrays[0] >> np.uint64(48)).astype(np.intp)
    counts = np.bincount(bins, minlength=1 << 16)
    is_suspect = counts[bins] >= max(FREQUENT_LEAST, len(bins) // FREQUENT_SHARE)
    if not is_suspect.any():
        return arrays, None
    suspects = np.flatnonzero(is_suspect)
    suspects = suspects[np.lexsort((arrays[1][suspects], arrays[0][suspects]))]
    first, second, rows, *ranks = (array[suspects] for array in arrays)
    begins = np.ones(len(suspects), np.bool_)
    begins[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(suspects))
    is_frequent = lengths >= FREQUENT_LEAST
    if not is_frequent.any():
        return arrays, None
    ends = starts + lengths - 1
    if chosen is Chosen.FIRST:
        winners = starts
    elif not ranks:
        winners = ends
    else:
        has_value, value = ranks
        run = np.cumsum(begins) - 1
        # Stable: of equal ranks the last stays the last.
        winners = np.lexsort((value, has_value, run))[ends]
    groups = np.stack([rows[starts], rows[ends], lengths.astype(np.uint64)])
    is_single = np.ones(len(arrays[0]), np.bool_)
    is_single[suspects[np.repeat(is_frequent, lengths)]] = False
    sent = [array[winners[is_frequent]] for array in (first, second, rows, *ranks)]
    return [array[is_single] for array in arrays], (sent, groups[:, is_frequent])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroups:
    """For keys that stand for groups: their first and last rows, and how many rows they have."""

    first: np.ndarray
    last: np.ndarray
    counts: np.ndarray

    @classmethod
    def of_rows(cls, rows: np.ndarray) -> RowGroups:
        return cls(first=rows, last=rows, counts=np.ones(len(rows), np.uint64))

    @classmethod
    def join(cls, parts: Sequence[RowGroups]) -> RowGroups:
        return cls(
            first=np.concatenate([part.first for part in parts]),
            last=np.concatenate([part.last for part in parts]),
            counts=np.concatenate([part.counts for part in parts]),
        )

    def filter(self, chosen: np.ndarray) -> RowGroups:
        return RowGroups(
            first=self.first[chosen], last=self.last[chosen], counts=self.counts[chosen]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleKeys:
    """The keys of one role in one bucket, in the order of their rows."""

    first: np.ndarray
    second: np.ndarray
    rows: np.ndarray
    extras: tuple[np.ndarray, ...] = ()
    groups: RowGroups | None = None
    """None if every key is that of one row."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def counts(self) -> np.ndarray | None:
        return None if self.groups is None else self.groups.counts.astype(np.intp)

    def filter(self, chosen: np.ndarray) -> RoleKeys:
        return RoleKeys(
            first=self.first[chosen],
            second=self.second[chosen],
            rows=self.rows[chosen],
            extras=tuple(extra[chosen] for extra in self.extras),
            groups=None if self.groups is None else self.groups.filter(chosen),
        )


def read_buckets(
    messages: Iterator[bytes], hashing: Hashing, task: Task
) -> Iterator[Mapping[int, RoleKeys]]:
    """The keys of every bucket of a partition, by role, one bucket after the other."""
    if hashing.buckets == hashing.partitions:
        yield decode_keys(messages)
        return
    with Mailboxes(_HELD_BYTES) as mailboxes:
        mailboxes.put(
            ((_BUCKET_DECODER.decode(message).bucket, message) for message in messages), task
        )
        for bucket in mailboxes.partitions():
            yield decode_keys(mailboxes.take(bucket))


def decode_keys(blobs: Iterable[bytes]) -> Mapping[int, RoleKeys]:
    """The keys of one bucket, by role."""
    parts: dict[int, list[RoleKeys]] = {}
    for blob in blobs:
        keys = _DECODER.decode(blob)
        groups = np.frombuffer(keys.groups, np.uint64).reshape(3, -1) if keys.groups else None
        part = RoleKeys(
            first=np.frombuffer(keys.first, np.uint64),
            second=np.frombuffer(keys.second, np.uint32),
            rows=_whole(keys.upper, keys.rows),
            extras=tuple(np.frombuffer(extra, np.uint64) for extra in keys.extras),
            groups=None
            if groups is None
            else RowGroups(first=groups[0], last=groups[1], counts=groups[2]),
        )
        parts.setdefault(keys.role, []).append(part)
    return {role: _in_order(role_parts) for role, role_parts in parts.items()}


def _in_order(parts: list[RoleKeys]) -> RoleKeys:
    # Blobs arrive in any order, but each is in the order of its rows.
    parts.sort(key=lambda part: int(part.rows[0]))
    keys = RoleKeys(
        first=np.concatenate([part.first for part in parts]),
        second=np.concatenate([part.second for part in parts]),
        rows=np.concatenate([part.rows for part in parts]),
        extras=tuple(
            np.concatenate(extras) for extras in zip(*(part.extras for part in parts), strict=True)
        ),
        groups=RowGroups.join([part.groups or RowGroups.of_rows(part.rows) for part in parts])
        if any(part.groups for part in parts)
        else None,
    )
    if (keys.rows[1:] < keys.rows[:-1]).any():
        return keys.filter(np.argsort(keys.rows))
    return keys


def _halve(rows: np.ndarray) -> tuple[int | None, np.ndarray]:
    upper = rows >> np.uint64(SPLIT_BITS)
    if len(rows) and upper.min() == upper.max():
        return int(upper[0]), rows.astype(np.uint32)
    return None, rows


def _whole(upper: int | None, rows: bytes) -> np.ndarray:
    if upper is None:
        return np.frombuffer(rows, np.uint64)
    return np.frombuffer(rows, np.uint32).astype(np.uint64) | np.uint64(upper << SPLIT_BITS)


def incoming_rows(split: int, first: int, count: int) -> np.ndarray:
    """The numbers of consecutive rows of a split."""
    return np.arange(first, first + count, dtype=np.uint64) | np.uint64(split << SPLIT_BITS)


def split_and_position(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverse; for pinned rows, their fragment and offset."""
    return (rows >> np.uint64(SPLIT_BITS)).astype(np.int64), rows.astype(np.uint32)


def group_keys(parts: Sequence[RoleKeys]) -> tuple[int, list[np.ndarray]]:
    """Give equal keys of some roles one number: how many there are, and by role that of every key.

    Sorts 64-bit words, each of the upper bits of a hash and the position of its key among all. The
    bits that did not fit are compared where neighbours agree in the others.
    """
    count = sum(map(len, parts))
    assert count < 1 << _POSITION_BITS_MAX, f"{count:,} keys in one bucket"
    bits = np.uint64(count.bit_length())
    lower = (np.uint64(1) << bits) - np.uint64(1)
    words = np.concatenate([_NO_WORDS, *(part.first for part in parts)])
    rests = (words & lower) << np.uint64(_SECOND_BITS)
    rests |= np.concatenate([_NO_WORDS, *(part.second for part in parts)])
    words &= ~lower
    words |= np.arange(count, dtype=np.uint64)
    words.sort()
    positions = (words & lower).astype(np.intp)
    words >>= bits
    rests = rests[positions]
    differs = words[1:] != words[:-1]
    is_mixed = ~differs & (rests[1:] != rests[:-1])
    if is_mixed.any():
        _sort_mixed_runs(differs, is_mixed, rests, positions)
    is_first = np.ones(count, np.bool_)
    is_first[1:] = differs | (rests[1:] != rests[:-1])
    del words, rests  # the numbers need as much memory
    ordered_numbers = np.cumsum(is_first, dtype=np.intp)
    ordered_numbers -= 1
    numbers = np.empty(count, np.intp)
    numbers[positions] = ordered_numbers
    ends = np.cumsum([len(part) for part in parts])
    return int(np.count_nonzero(is_first)), np.split(numbers, ends[:-1])


def _sort_mixed_runs(
    differs: np.ndarray, is_mixed: np.ndarray, rests: np.ndarray, positions: np.ndarray
) -> None:
    """Order keys by their other bits, in runs of equal words where neighbours differ in these."""
    runs = np.concatenate([[0], np.cumsum(differs)])
    has_several = np.zeros(runs[-1] + 1, np.bool_)
    has_several[runs[1:][is_mixed]] = True
    chosen = np.flatnonzero(has_several[runs])
    order = chosen[np.lexsort((positions[chosen], rests[chosen], runs[chosen]))]
    rests[chosen], positions[chosen] = rests[order], positions[order]


def match_rows(incoming: RoleKeys, pinned: RoleKeys) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the incoming and of the pinned keys that are equal, in pairs.

    No two of the incoming keys are equal.
    """
    count, (incoming_numbers, pinned_numbers) = group_keys((incoming, pinned))
    owner = np.full(count, -1, np.intp)
    owner[incoming_numbers] = np.arange(len(incoming))
    owners = owner[pinned_numbers]
    matches = np.flatnonzero(owners >= 0)
    return owners[matches], matches


NO_KEYS: Final = RoleKeys(
    first=np.empty(0, np.uint64), second=np.empty(0, np.uint32), rows=np.empty(0, np.uint64)
)
