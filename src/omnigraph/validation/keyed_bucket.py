"""Keyed rules within one bucket of hashed keys, which has all rows of each of its keys.

Invariant: pure. A bucket's findings depend on its keys alone; rows refused in another bucket were
either not sent here, or make these findings provisional; see `rounds`.

Order among rows is the order of their numbers, which is the order of the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, assert_never

import numpy as np
import polars as pl

from omnigraph.names import NODE_PREFIX
from omnigraph.validation.constraints import EdgeCount
from omnigraph.validation.keys import Role, RoleKind, source_role
from omnigraph.validation.modes import WriteMode
from omnigraph.validation.reasons import Reason

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
    mode: WriteMode
    counts: Mapping[str, EdgeCount]
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
        given = self._frame(role)
        stage = Stage.NODE_IDS if is_node(role.table_key) else Stage.EDGE_IDS
        losers, winners = self._contest(given)
        if len(losers):
            reason = (
                Reason.SUPERSEDED if self._plan.mode is WriteMode.MERGE else Reason.DUPLICATE_ID
            )
            yield _finding(stage, role, reason, losers)
        if self._plan.mode is WriteMode.APPEND:
            taken = winners.join(self._pinned(role), on=_KEY, how="semi")
            if len(taken):
                yield _finding(stage, role, Reason.ID_EXISTS, taken)
        if role.table_key in self._plan.tracked:
            pinned = self._pinned(role).join(winners, on=_KEY, how="semi")
            if len(pinned):
                yield Replaced(table_key=role.table_key, rows=pinned["row"].to_numpy())

    def tuples(self, role: Role) -> Iterator[Finding]:
        given = self._frame(role)
        if not len(given):
            return
        held = given.join(self._pinned(role), on=_KEY, how="semi")
        first = pl.col("row").min().over(_KEY)
        repeated = _shared(given).filter(pl.col("row") > first)
        refused = pl.concat([held.select("row"), repeated.select("row")]).unique()
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

    def edge_counts(self, table_key: str, rule: EdgeCount) -> Iterator[Finding]:
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
        yield from _blamed(role, Reason.TOO_FEW_EDGES, incoming.join(few, on=_KEY, how="semi"))
        yield from _unblamed(role, Reason.TOO_FEW_EDGES, few.filter(pl.col("added") == 0))
        if rule.maximum is not None:
            many = counted.filter(pl.col("edges") > rule.maximum)
            room = (pl.lit(rule.maximum) - pl.col("kept").cast(pl.Int64)).clip(0)
            beyond = incoming.join(many.select(*_KEY, room=room), on=_KEY, how="inner").filter(
                pl.col("row").rank("ordinal").over(_KEY) > pl.col("room")
            )
            yield from _blamed(role, Reason.TOO_MANY_EDGES, beyond)
            yield from _unblamed(role, Reason.TOO_MANY_EDGES, many.filter(pl.col("added") == 0))

    def _contest(self, given: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows whose id an earlier row has, and the other rows."""
        if given.select(pl.col("h1").n_unique()).item() == len(given):
            return given.clear(), given
        shared = _shared(given)
        if self._plan.mode is not WriteMode.MERGE:
            wins = pl.col("row") == pl.col("row").min().over(_KEY)
        elif "extra0" in given.columns:
            # The ids have an order of their own.
            ranks = ["extra0", "extra1", "row"]
            wins = pl.struct(ranks) == pl.struct(ranks).sort_by(ranks).last().over(_KEY)
        else:
            wins = pl.col("row") == pl.col("row").max().over(_KEY)
        losers = shared.filter(~wins)
        return losers, given.join(losers, on="row", how="anti")

    def _pinned_sources(self, former: Role | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Sources of the remaining pinned edges, and of the removed ones."""
        if former is None:
            return _NOTHING, _NOTHING
        pinned = self._frame(former)
        if former.table_key in self._plan.overwritten:
            return _NOTHING, pinned.select(_NOTHING.columns)
        if "extra0" not in pinned.columns:
            return pinned, _NOTHING
        gone = pl.col("extra0") != 0
        kept = pinned.filter(~gone).select(_NOTHING.columns)
        return kept, pinned.filter(gone).select(_NOTHING.columns)

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
            gone = other.pinned and other.table_key in self._plan.overwritten
            if other.kind is RoleKind.ID and other.table_key == role.node_key and not gone:
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


def _shared(given: pl.DataFrame) -> pl.DataFrame:
    return given.filter(pl.struct(_KEY).is_duplicated())


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


def _blamed(role: Role, reason: Reason, rows: pl.DataFrame) -> Iterator[Finding]:
    if len(rows):
        yield _finding(Stage.COUNTS, role, reason, rows)


def _unblamed(role: Role, reason: Reason, sources: pl.DataFrame) -> Iterator[Finding]:
    if len(sources):
        yield _broken(Stage.COUNTS, role, reason, len(sources))
