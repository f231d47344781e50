"""Keep hashes of the values of columns in files: distinct values, containment, repetitions.

Invariants:
- Memory is bounded by a block, or by one of `PARTS` ranges of the hashes of a column.
- Two different values have equal hashes with a probability of 2^-64: then a column that is a key is
  not recognised as one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake.runner.key_hash import SEED_BYTES, hash_keys

PARTS: Final = 64
"""Ranges of hashes, by their upper bits, that are sorted one after the other."""
BLOCK: Final = 1 << 18
"""Hashes that are read at once."""
_SAMPLE: Final = 64
_SAMPLE_ERROR: Final = 0.3
"""Five standard deviations of a share of 0.5 in a sample of 64."""
_SEED: Final = bytes(range(SEED_BYTES))
_NULL: Final = np.uint64(0)
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
_WIDTH: Final = 8
_BOUNDS: Final = np.arange(1, PARTS, dtype=np.uint64) << np.uint64(64 - 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedColumn:
    """The hashes of the values of a column, in the order of the records; 0 for null."""

    path: Path

    def append(self, texts: pa.StringArray | pa.DictionaryArray, *, before: int) -> None:
        """Add the values of a batch; `before` counts the records of earlier batches."""
        encoded = texts if pat.is_dictionary(texts.type) else None
        keys = hash_keys([texts if encoded is None else encoded.dictionary], _SEED)
        hashes = keys.first if keys.present is None else np.where(keys.present, keys.first, _NULL)
        if encoded is not None:
            places = encoded.indices.fill_null(len(hashes))
            hashes = np.append(hashes, _NULL)[places.to_numpy()]
        with self.path.open("ab") as file:
            file.write(bytes(max(0, _WIDTH * before - file.tell())))
            file.write(hashes.tobytes())

    def blocks(self, records: int) -> Iterator[np.ndarray]:
        """The hashes of all records; those that the file does not reach have no value."""
        for first in range(0, records, BLOCK):
            size = min(BLOCK, records - first)
            hashes = np.fromfile(self.path, np.uint64, count=size, offset=_WIDTH * first)
            yield np.pad(hashes, (0, size - len(hashes)))

    def count_equal(self, other: HashedColumn, records: int) -> int:
        """How many records have the same value in another column."""
        pairs = zip(self.blocks(records), other.blocks(records), strict=True)
        return sum(int(np.count_nonzero((one == two) & (one != _NULL))) for one, two in pairs)

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctHashes:
    """The distinct values of one or more columns: sorted hashes in a file, without that of null."""

    path: Path
    count: int

    def read(self) -> np.ndarray:
        """The hashes, mapped into memory."""
        return _map_file(self.path) if self.count else np.empty(0, np.uint64)

    def count_missing(self, others: DistinctHashes) -> int:
        """How many values the others do not have."""
        own, known = self.read(), others.read()
        blocks = (own[first : first + BLOCK] for first in range(0, self.count, BLOCK))
        return self.count - sum(_count_in(block, known) for block in blocks)

    def has(self, text: str) -> bool:
        """Whether a text is one of the values."""
        return bool(_count_in(hash_keys([pa.array([text])], _SEED).first, self.read()))

    def may_be_in(self, others: DistinctHashes, share: float) -> bool:
        """Whether so many of the values can be in others, by the least hashes: a random sample."""
        sample = self.read()[:_SAMPLE]
        return _count_in(sample, others.read()) >= (share - _SAMPLE_ERROR) * len(sample)


def count_rows(
    columns: Sequence[HashedColumn], records: int, keys: DistinctHashes
) -> tuple[int, int]:
    """How many records have values in all columns, and how many of these are none of some."""
    known = keys.read()
    rows = missing = 0
    for block in _mix([column.blocks(records) for column in columns]):
        present = block[block != _NULL]
        rows += len(present)
        missing += len(present) - _count_in(present, known)
    return rows, missing


@functools.lru_cache(maxsize=512)
def _map_file(path: Path) -> np.ndarray:
    """Opening a file costs more than a look at a few hashes, and references compare many pairs."""
    return np.memmap(path, np.uint64, mode="r").view(np.ndarray)


def unmap_files() -> None:
    """Let go of the files that were read: those that are removed keep their space until then."""
    _map_file.cache_clear()


def _count_in(values: np.ndarray, known: np.ndarray) -> int:
    """How many values are among sorted ones, without reading all of these."""
    if not len(known):
        return 0
    places = np.searchsorted(known, values)
    return int(np.count_nonzero(known[np.minimum(places, len(known) - 1)] == values))


def find_distinct(columns: Sequence[HashedColumn], records: int, path: Path) -> DistinctHashes:
    """Sort the hashes of columns together into a file."""
    blocks = _mix([column.blocks(records) for column in columns])
    if records <= BLOCK:
        parts: Iterable[np.ndarray] = _split(next(blocks, np.array([], np.uint64)))
        return _write(parts, path)
    scattered = [path.with_name(f"{path.name}-{number}") for number in range(PARTS)]
    with ExitStack() as stack:
        files = [stack.enter_context(file.open("wb")) for file in scattered]
        for block in blocks:
            for file, part in zip(files, _split(block), strict=True):
                file.write(part.tobytes())
    distinct = _write((np.unique(np.fromfile(file, np.uint64)) for file in scattered), path)
    for scattered_file in scattered:
        scattered_file.unlink()
    return distinct


def _mix(columns: Sequence[Iterator[np.ndarray]]) -> Iterator[np.ndarray]:
    """The hashes of several columns together; 0 where one of them is null."""
    if len(columns) == 1:
        yield from columns[0]
        return
    for blocks in zip(*columns, strict=True):
        combined = np.zeros(len(blocks[0]), np.uint64)
        is_null = np.zeros(len(blocks[0]), np.bool_)
        for number, block in enumerate(blocks):
            is_null |= block == _NULL
            combined = (combined ^ block) * _MIXER + np.uint64(number)
        combined[is_null] = _NULL
        yield combined


def _split(block: np.ndarray) -> list[np.ndarray]:
    """The distinct hashes of a block by range."""
    unique = np.unique(block[block != _NULL])
    return np.split(unique, np.searchsorted(unique, _BOUNDS))


def _write(parts: Iterable[np.ndarray], path: Path) -> DistinctHashes:
    count = 0
    with path.open("wb") as file:
        for part in parts:
            count += len(part)
            file.write(part.tobytes())
    return DistinctHashes(path=path, count=count)
