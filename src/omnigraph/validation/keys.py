"""Keys of rows as 96-bit hashes, distributed to buckets, for the keyed rules.

Invariant: equal keys are in one bucket under one role, and a key is identified by its hash. 96 bits
of two hashes, seeded per load, make a collision less likely than 1 in 10^9 in a load of 10^10 rows,
for any input. Hashes are used within one load and never stored.

A row is named by one number: for rows of the load the split in the upper half and the position
among the split's rows of its table in the lower; for pinned rows their Lance row address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import polars as pl

from omnigraph.names import ID_COLUMN, SOURCE_COLUMN
from omnigraph.validation.constraints import EdgeCount, EndpointExists, TypeRules, UniqueTuple

if TYPE_CHECKING:
    import pyarrow as pa

SPLIT_BITS: Final = 32
# 16 bytes each: the JVM handles records of some hundred kB well, and larger ones badly.
_KEYS_PER_BLOB: Final = 8192


class RoleKind(StrEnum):
    """The role of a key in its table."""

    ID = "id"
    ENDPOINT = "endpoint"
    TUPLE = "tuple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One kind of key of one table, of incoming rows or of pinned ones.

    `node_key` is the table an endpoint refers to; an id refers to its own table.
    """

    kind: RoleKind
    table_key: str
    columns: tuple[str, ...]
    pinned: bool
    node_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashing:
    """How keys of one load are hashed, and into how many buckets."""

    seeds: tuple[int, int]
    buckets: int


class Keys(msgspec.Struct, frozen=True, array_like=True):
    """Some keys of one role in one bucket, as bytes of the arrays they are.

    Rows of one split, or of one fragment, share the upper half of their numbers: stored once.
    """

    role: int
    first: bytes
    second: bytes
    upper: int | None
    rows: bytes
    extras: tuple[bytes, ...] = ()


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Keys)


def roles_of(rules: TypeRules, *, pinned: bool) -> tuple[Role, ...]:
    """Every key that the rules of a table read."""
    table_key = rules.table_key
    roles = [Role(kind=RoleKind.ID, table_key=table_key, columns=(ID_COLUMN,), pinned=pinned)]
    for rule in rules.keyed_rules:
        match rule:
            case UniqueTuple():
                roles.append(
                    Role(
                        kind=RoleKind.TUPLE,
                        table_key=table_key,
                        columns=rule.columns,
                        pinned=pinned,
                    )
                )
            case EndpointExists():
                roles.append(
                    Role(
                        kind=RoleKind.ENDPOINT,
                        table_key=table_key,
                        columns=(rule.column,),
                        pinned=pinned,
                        node_key=rule.node_key,
                    )
                )
            case EdgeCount():
                continue
    return tuple(roles)


def source_role(roles: Iterable[Role], table_key: str, *, pinned: bool) -> Role | None:
    """The role that holds the sources of an edge table."""
    for role in roles:
        if (
            role.table_key == table_key
            and role.pinned is pinned
            and (role.kind is RoleKind.ENDPOINT and role.columns == (SOURCE_COLUMN,))
        ):
            return role
    return None


class KeyBuckets:
    """Collects the keys of one task by role, and returns them by bucket."""

    def __init__(self, hashing: Hashing) -> None:
        self._hashing = hashing
        self._parts: dict[int, list[tuple[np.ndarray, ...]]] = {}

    def add(
        self,
        role: int,
        columns: Iterable[pa.Array | pa.ChunkedArray],
        rows: np.ndarray,
        *,
        extras: tuple[np.ndarray, ...] = (),
    ) -> None:
        """Add the keys of some rows; a null in a key exempts its row."""
        frame = pl.DataFrame(
            {f"k{number}": _comparable(column) for number, column in enumerate(columns)}
        )
        first, second = (_hashes(frame, seed) for seed in self._hashing.seeds)
        arrays: tuple[np.ndarray, ...] = (first, second.astype(np.uint32), rows, *extras)
        if any(series.null_count() for series in frame.get_columns()):
            present = frame.select(pl.all_horizontal(pl.all().is_not_null())).to_series().to_numpy()
            arrays = tuple(array[present] for array in arrays)
        if len(arrays[0]):
            self._parts.setdefault(role, []).append(arrays)

    def buckets(self) -> Iterator[tuple[int, bytes]]:
        """The keys by bucket, encoded in pieces of a bounded size; clears this object."""
        for role, parts in self._parts.items():
            arrays = [np.concatenate(each) for each in zip(*parts, strict=True)]
            bucket = (arrays[0] % np.uint64(self._hashing.buckets)).astype(np.uint16)
            order = np.argsort(bucket, kind="stable")
            ends = np.searchsorted(bucket[order], np.arange(self._hashing.buckets + 1))
            upper, arrays[2] = _halved(arrays[2])
            for number in np.flatnonzero(np.diff(ends)).tolist():
                for start in range(ends[number], ends[number + 1], _KEYS_PER_BLOB):
                    chosen = order[start : min(start + _KEYS_PER_BLOB, ends[number + 1])]
                    first, second, rows, *extras = (array[chosen].tobytes() for array in arrays)
                    keys = Keys(role, first, second, upper, rows, tuple(extras))
                    yield number, _ENCODER.encode(keys)
        self._parts.clear()


def frames_of(blobs: Iterable[bytes]) -> Mapping[int, pl.DataFrame]:
    """The keys of one bucket, one frame per role: `h1`, `h2`, `row`, then `extra0` and so on."""
    parts: dict[int, list[pl.DataFrame]] = {}
    for blob in blobs:
        keys = _DECODER.decode(blob)
        columns = {
            "h1": np.frombuffer(keys.first, np.uint64),
            "h2": np.frombuffer(keys.second, np.uint32),
            "row": _whole(keys.upper, keys.rows),
        }
        for number, each in enumerate(keys.extras):
            columns[f"extra{number}"] = np.frombuffer(each, np.uint64)
        parts.setdefault(keys.role, []).append(pl.DataFrame(columns))
    return {role: pl.concat(frames) for role, frames in parts.items()}


def _halved(rows: np.ndarray) -> tuple[int | None, np.ndarray]:
    upper = rows >> np.uint64(SPLIT_BITS)
    if len(rows) and upper.min() == upper.max():
        return int(upper[0]), rows.astype(np.uint32)
    return None, rows


def _whole(upper: int | None, rows: bytes) -> np.ndarray:
    if upper is None:
        return np.frombuffer(rows, np.uint64)
    return np.frombuffer(rows, np.uint32) | np.uint64(upper << SPLIT_BITS)


def incoming_rows(split: int, first: int, count: int) -> np.ndarray:
    """The numbers of consecutive rows of a split."""
    return np.arange(first, first + count, dtype=np.uint64) | np.uint64(split << SPLIT_BITS)


def split_and_position(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverse; for pinned rows, their fragment and offset."""
    return (rows >> np.uint64(SPLIT_BITS)).astype(np.int64), rows.astype(np.uint32)


def _comparable(column: pa.Array | pa.ChunkedArray) -> pl.Series:
    """Both zeros are one value, and so is every NaN."""
    series = pl.Series(pl.from_arrow(column))
    if series.dtype.is_float():
        series = series.cast(pl.Float64) + 0.0
        series = series.fill_nan(float("nan"))
    return series


def _hashes(frame: pl.DataFrame, seed: int) -> np.ndarray:
    if frame.width == 1:
        return frame.to_series().hash(seed).to_numpy()
    return frame.hash_rows(seed).to_numpy()
