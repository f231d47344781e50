"""Distributes hashed keys of rows to buckets, and checks the keyed rules within one bucket.

A row is identified by one number: for rows of the load the split in the upper half and the position
among the split's rows of its table in the lower; for pinned rows their Lance row address. Order
among rows is the order of their numbers, which is the order of the input.

Invariants:

- Equal keys are in one bucket under one role, so a bucket has all rows of each of its keys.
- A key is identified by its hash. 96 bits of two hashes, seeded per load, make a collision less
  likely than 1 in 10^9 in a load of 10^10 rows, for any input. Hashes are used within one load and
  never stored.
- Checking is pure: a bucket's findings depend on its keys alone. Rows refused in another bucket
  were either not sent here, or make these findings provisional; see `keyed_passes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, assert_never

import msgspec
import numpy as np
import polars as pl

from omnigraph.names import ID_COLUMN, NODE_PREFIX, SOURCE_COLUMN
from omnigraph.validation import constraints
from omnigraph.validation.violations import Reason

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


def roles_of(rules: constraints.TypeRules, *, pinned: bool) -> tuple[Role, ...]:
    """Every key that the rules of a table read."""
    table_key = rules.table_key
    roles = [Role(kind=RoleKind.ID, table_key=table_key, columns=(ID_COLUMN,), pinned=pinned)]
    for rule in rules.keyed_rules:
        match rule:
            case constraints.UniqueTuple():
                roles.append(
                    Role(
                        kind=RoleKind.TUPLE,
                        table_key=table_key,
                        columns=rule.columns,
                        pinned=pinned,
                    )
                )
            case constraints.EndpointExists():
                roles.append(
                    Role(
                        kind=RoleKind.ENDPOINT,
                        table_key=table_key,
                        columns=(rule.column,),
                        pinned=pinned,
                        node_key=rule.node_key,
                    )
                )
            case constraints.EdgeCount():
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
            arrays = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
            bucket = (arrays[0] % np.uint64(self._hashing.buckets)).astype(np.uint16)
            order = np.argsort(bucket, kind="stable")
            ends = np.searchsorted(bucket[order], np.arange(self._hashing.buckets + 1))
            upper, arrays[2] = _halve(arrays[2])
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
        for number, extra in enumerate(keys.extras):
            columns[f"extra{number}"] = np.frombuffer(extra, np.uint64)
        parts.setdefault(keys.role, []).append(pl.DataFrame(columns))
    return {role: pl.concat(frames) for role, frames in parts.items()}


def _halve(rows: np.ndarray) -> tuple[int | None, np.ndarray]:
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


_KEY: Final = ["h1", "h2"]
_NOTHING: Final = pl.DataFrame(schema={"h1": pl.UInt64, "h2": pl.UInt32, "row": pl.UInt64})


class Stage(IntEnum):
    """Rules are applied in this order, each to the rows that the previous ones accepted."""

    NODE_IDS = 2
    NODE_TUPLES = 3
    ENDPOINTS = 4
    EDGE_IDS = 5
    EDGE_TUPLES = 6
    COUNTS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan:
    """The keys of one pass: roles by number, and the tables whose pinned rows are removed."""

    roles: tuple[Role, ...]
    mode: constraints.WriteMode
    counts: Mapping[str, constraints.EdgeCount]
    overwritten: frozenset[str]
    tracked: frozenset[str]
    """Tables whose replaced pinned rows are to be reported."""

    def number(self, role: Role) -> int:
        return self.roles.index(role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Incoming rows that violate a rule, or the number of pinned rows that would."""

    stage: Stage
    table_key: str
    reason: Reason
    columns: tuple[str, ...]
    rows: np.ndarray
    broken: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Addresses of the pinned rows that incoming rows replace."""

    table_key: str
    rows: np.ndarray


def check_bucket(frames: Mapping[int, pl.DataFrame], plan: KeyPlan) -> Iterator[Finding | Replaced]:
    """All violations among the keys of one bucket."""
    bucket = _Bucket(frames, plan)
    for role in plan.roles:
        if role.pinned:
            yield from bucket.retained_edges(role)
            continue
        match role.kind:
            case RoleKind.ID:
                yield from bucket.ids(role)
            case RoleKind.TUPLE:
                yield from bucket.tuples(role)
            case RoleKind.ENDPOINT:
                yield from bucket.endpoints(role)
            case _:
                assert_never(role.kind)
    for table_key, rule in plan.counts.items():
        yield from bucket.edge_counts(table_key, rule)


class _Bucket:
    def __init__(self, frames: Mapping[int, pl.DataFrame], plan: KeyPlan) -> None:
        self._frames = frames
        self._plan = plan
        self._missing: dict[str, pl.DataFrame] = {}

    def ids(self, role: Role) -> Iterator[Finding | Replaced]:
        incoming_keys = self._frame(role)
        stage = Stage.NODE_IDS if is_node(role.table_key) else Stage.EDGE_IDS
        losers, winners = self._contest(incoming_keys)
        if len(losers):
            reason = (
                Reason.SUPERSEDED
                if self._plan.mode is constraints.WriteMode.MERGE
                else Reason.DUPLICATE_ID
            )
            yield _finding(stage, role, reason, losers)
        if self._plan.mode is constraints.WriteMode.APPEND:
            taken = winners.join(self._pinned(role), on=_KEY, how="semi")
            if len(taken):
                yield _finding(stage, role, Reason.ID_EXISTS, taken)
        if role.table_key in self._plan.tracked:
            pinned = self._pinned(role).join(winners, on=_KEY, how="semi")
            if len(pinned):
                yield Replaced(table_key=role.table_key, rows=pinned["row"].to_numpy())

    def tuples(self, role: Role) -> Iterator[Finding]:
        incoming_keys = self._frame(role)
        if not len(incoming_keys):
            return
        pinned_clashes = incoming_keys.join(self._pinned(role), on=_KEY, how="semi")
        first = pl.col("row").min().over(_KEY)
        repeated = _shared(incoming_keys).filter(pl.col("row") > first)
        refused = pl.concat([pinned_clashes.select("row"), repeated.select("row")]).unique()
        if len(refused):
            stage = Stage.NODE_TUPLES if is_node(role.table_key) else Stage.EDGE_TUPLES
            yield _finding(stage, role, Reason.NOT_UNIQUE, refused)

    def endpoints(self, role: Role) -> Iterator[Finding]:
        missing = self._without_node(self._frame(role), role)
        if len(missing):
            self._missing[role.table_key] = pl.concat(
                [self._missing.get(role.table_key, _NOTHING), missing.select(_NOTHING.columns)]
            )
            yield _finding(Stage.ENDPOINTS, role, Reason.MISSING_ENDPOINT, missing)

    def retained_edges(self, role: Role) -> Iterator[Finding]:
        """Remaining pinned edges whose node is removed."""
        if role.kind is not RoleKind.ENDPOINT or role.node_key not in self._plan.overwritten:
            return
        if role.table_key in self._plan.overwritten:
            return
        dangling = self._without_node(self._frame(role), role)
        if len(dangling):
            yield _broken(Stage.ENDPOINTS, role, Reason.MISSING_ENDPOINT, len(dangling))

    def edge_counts(self, table_key: str, rule: constraints.EdgeCount) -> Iterator[Finding]:
        role = source_role(self._plan.roles, table_key, pinned=False)
        former = source_role(self._plan.roles, table_key, pinned=True)
        assert role is not None
        incoming = self._frame(role)
        if table_key in self._missing:
            incoming = incoming.join(self._missing[table_key], on="row", how="anti")
        staying, left = self._pinned_sources(former)
        touched = pl.concat([incoming.select(_KEY), self._existing(left, role).select(_KEY)])
        counted = (
            touched.unique()
            .join(staying.group_by(_KEY).agg(kept=pl.len()), on=_KEY, how="left")
            .join(incoming.group_by(_KEY).agg(added=pl.len()), on=_KEY, how="left")
            .with_columns(pl.col("kept").fill_null(0), pl.col("added").fill_null(0))
            .with_columns(edges=pl.col("kept") + pl.col("added"))
        )
        few = counted.filter(pl.col("edges") < rule.minimum)
        yield from _blame(role, Reason.TOO_FEW_EDGES, incoming.join(few, on=_KEY, how="semi"))
        yield from _unblamed(role, Reason.TOO_FEW_EDGES, few.filter(pl.col("added") == 0))
        if rule.maximum is not None:
            many = counted.filter(pl.col("edges") > rule.maximum)
            room = (pl.lit(rule.maximum) - pl.col("kept").cast(pl.Int64)).clip(0)
            beyond = incoming.join(many.select(*_KEY, room=room), on=_KEY, how="inner").filter(
                pl.col("row").rank("ordinal").over(_KEY) > pl.col("room")
            )
            yield from _blame(role, Reason.TOO_MANY_EDGES, beyond)
            yield from _unblamed(role, Reason.TOO_MANY_EDGES, many.filter(pl.col("added") == 0))

    def _contest(self, incoming_keys: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows whose id an earlier row has, and the other rows."""
        if incoming_keys.select(pl.col("h1").n_unique()).item() == len(incoming_keys):
            return incoming_keys.clear(), incoming_keys
        shared = _shared(incoming_keys)
        if self._plan.mode is not constraints.WriteMode.MERGE:
            wins = pl.col("row") == pl.col("row").min().over(_KEY)
        elif "extra0" in incoming_keys.columns:
            # The ids have an order of their own.
            ranks = ["extra0", "extra1", "row"]
            wins = pl.struct(ranks) == pl.struct(ranks).sort_by(ranks).last().over(_KEY)
        else:
            wins = pl.col("row") == pl.col("row").max().over(_KEY)
        losers = shared.filter(~wins)
        return losers, incoming_keys.join(losers, on="row", how="anti")

    def _pinned_sources(self, former: Role | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Sources of the remaining pinned edges, and of the removed ones."""
        if former is None:
            return _NOTHING, _NOTHING
        pinned = self._frame(former)
        if former.table_key in self._plan.overwritten:
            return _NOTHING, pinned.select(_NOTHING.columns)
        if "extra0" not in pinned.columns:
            return pinned, _NOTHING
        is_removed = pl.col("extra0") != 0
        kept_sources = pinned.filter(~is_removed).select(_NOTHING.columns)
        return kept_sources, pinned.filter(is_removed).select(_NOTHING.columns)

    def _without_node(self, references: pl.DataFrame, role: Role) -> pl.DataFrame:
        for nodes in self._nodes(role):
            if len(references):
                references = references.join(nodes, on=_KEY, how="anti")
        return references

    def _existing(self, references: pl.DataFrame, role: Role) -> pl.DataFrame:
        if not len(references):
            return references
        missing = self._without_node(references, role)
        return references.join(missing, on="row", how="anti")

    def _nodes(self, role: Role) -> Iterator[pl.DataFrame]:
        for other in self._plan.roles:
            is_removed = other.pinned and other.table_key in self._plan.overwritten
            if other.kind is RoleKind.ID and other.table_key == role.node_key and not is_removed:
                yield self._frame(other)

    def _pinned(self, role: Role) -> pl.DataFrame:
        """The pinned counterpart of a role, without removed rows."""
        if role.table_key in self._plan.overwritten:
            return _NOTHING
        for other in self._plan.roles:
            same = (other.kind, other.table_key, other.columns)
            if other.pinned and same == (role.kind, role.table_key, role.columns):
                frame = self._frame(other)
                if role.kind is RoleKind.TUPLE and "extra0" in frame.columns:
                    return frame.filter(pl.col("extra0") == 0)
                return frame
        return _NOTHING

    def _frame(self, role: Role) -> pl.DataFrame:
        return self._frames.get(self._plan.number(role), _NOTHING)


def _shared(keys: pl.DataFrame) -> pl.DataFrame:
    return keys.filter(pl.struct(_KEY).is_duplicated())


def is_node(table_key: str) -> bool:
    return table_key.startswith(NODE_PREFIX)


def _finding(stage: Stage, role: Role, reason: Reason, rows: pl.DataFrame) -> Finding:
    return Finding(
        stage=stage,
        table_key=role.table_key,
        reason=reason,
        columns=role.columns,
        rows=rows["row"].to_numpy(),
    )


def _broken(stage: Stage, role: Role, reason: Reason, count: int) -> Finding:
    return Finding(
        stage=stage,
        table_key=role.table_key,
        reason=reason,
        columns=role.columns,
        rows=np.empty(0, np.uint64),
        broken=count,
    )


def _blame(role: Role, reason: Reason, rows: pl.DataFrame) -> Iterator[Finding]:
    if len(rows):
        yield _finding(Stage.COUNTS, role, reason, rows)


def _unblamed(role: Role, reason: Reason, sources: pl.DataFrame) -> Iterator[Finding]:
    if len(sources):
        yield _broken(Stage.COUNTS, role, reason, len(sources))
