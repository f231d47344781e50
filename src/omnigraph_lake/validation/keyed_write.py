"""A write as the keyed rules see it: its rows, what it removes, and the published keys it concerns.

Rows come in pieces, in memory or staged. `KeyedWrite` derives from the rules which keys are
compared: all of the incoming rows, and of the pinned ones only those that a rule refers to.

Invariants:

- What is asked of the pinned tables follows from the rules and the tables of the write alone.
- `relies_on` names every table whose pinned rows the result depends on, empty ones included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph_lake.names import EDGE_PREFIX, SOURCE_COLUMN
from omnigraph_lake.validation.constraints import EdgeCount, TypeRules, WriteMode
from omnigraph_lake.validation.keyed_bucket import KeyPlan, Role, RoleKind, roles_of
from omnigraph_lake.validation.keyed_passes import Refusals
from omnigraph_lake.validation.lookups import PinnedTables


class IncomingPiece(Protocol):
    """Some rows of a write, by table and in the order of the input; picklable."""

    @property
    def number(self) -> int:
        """Pieces are numbered in the order of the input."""
        ...

    @property
    def rows(self) -> Mapping[str, int]:
        """The number of rows by table."""
        ...

    @property
    def given_ids(self) -> Mapping[str, int]:
        """By table, how many rows have an id from the input; others are new by construction."""
        ...

    @property
    def generated(self) -> str | None:
        """The beginning of every generated id of the piece."""
        ...

    def read(self, table_key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows of a table."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPiece:
    """Rows in memory; `new_ids` names tables whose ids were all made for them."""

    number: int = 0
    tables: Mapping[str, pa.Table] = field(repr=False)
    generated: str | None = None
    new_ids: frozenset[str] = frozenset()

    @property
    def rows(self) -> Mapping[str, int]:
        return {key: len(table) for key, table in self.tables.items()}

    @property
    def given_ids(self) -> Mapping[str, int]:
        return {key: count for key, count in self.rows.items() if key not in self.new_ids}

    def read(self, table_key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.tables[table_key].select(list(columns)).to_batches()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRows:
    """Pinned rows of one table that are deleted: their ids, and their addresses in order."""

    ids: pa.StringArray = field(repr=False)
    addresses: np.ndarray = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class KeyedWrite:
    """Rows, and the graph that they are written to.

    `overwritten` names the tables whose pinned rows are all removed; such a table may have no
    incoming rows. `order_by` decides which of several rows with one id is kept, in the tables
    that have it, `ordered`. `excluded` has rows that are invalid by themselves. `cascades` says
    that `deleted` has the edges of deleted nodes.
    """

    pinned: PinnedTables
    rules: Mapping[str, TypeRules]
    mode: WriteMode
    overwritten: frozenset[str] = frozenset()
    order_by: str | None = None
    ordered: frozenset[str] = frozenset()
    pieces: Sequence[IncomingPiece]
    excluded: Refusals = field(default_factory=Refusals)
    deleted: Mapping[str, DeletedRows] = field(default_factory=dict)
    cascades: bool = True
    refuses_repeats: bool = False

    def rows_of(self, table_key: str) -> int:
        return self._rows[table_key]

    @cached_property
    def _rows(self) -> Counter[str]:
        """The incoming rows by table; there may be very many pieces."""
        rows: Counter[str] = Counter()
        for piece in self.pieces:
            rows.update(piece.rows)
        return rows

    @cached_property
    def touched(self) -> frozenset[str]:
        """The tables that have incoming rows or lose all of theirs."""
        return self.overwritten | self._rows.keys() | self.deleted.keys()

    @cached_property
    def given_ids(self) -> frozenset[str]:
        """The tables with ids from the input."""
        return frozenset(
            key for piece in self.pieces for key, count in piece.given_ids.items() if count
        )

    def count_rule(self, table_key: str) -> EdgeCount | None:
        rules = self.rules[table_key].keyed_rules
        return next((rule for rule in rules if isinstance(rule, EdgeCount)), None)

    def keys(self) -> KeyPlan:
        """The roles of a pass: all incoming keys, and the pinned keys that a rule reads."""
        incoming = [role for rules in self.rules.values() for role in roles_of(rules, pinned=False)]
        return KeyPlan(
            roles=(*incoming, *self._pinned_roles()),
            mode=self.mode,
            counts={key: rule for key in self.rules if (rule := self.count_rule(key))},
            overwritten=self.overwritten,
            tracked=self._tracked,
            deleted=frozenset(self.deleted),
            shrunk=self._shrunk,
            refuses_repeats=self.refuses_repeats,
        )

    @property
    def _shrunk(self) -> frozenset[str]:
        return frozenset() if self.cascades else frozenset(self.deleted)

    @property
    def relies_on(self) -> frozenset[str]:
        """The tables whose pinned rows the result depends on, empty ones included."""
        with_rows = [key for key in self.rules if self.rows_of(key)]
        return self._referred(with_rows)

    def _referred(self, edge_keys: Iterable[str]) -> frozenset[str]:
        """The touched tables, the nodes of some edges, and edges that may lose their nodes."""
        asked_keys = {
            role.table_key
            for rules in self.rules.values()
            for role in roles_of(rules, pinned=True)
            if self._is_asked(role)
        }
        nodes = {
            role.node_key
            for key in edge_keys
            for role in roles_of(self.rules[key], pinned=False)
            if role.node_key is not None
        }
        edges = {key for key in asked_keys if key.startswith(EDGE_PREFIX)}
        loses_nodes = bool(self.overwritten or self._shrunk)
        return frozenset(self.touched | (nodes & asked_keys) | (edges if loses_nodes else set()))

    @cached_property
    def _tracked(self) -> frozenset[str]:
        """Tables whose replaced rows must be known, because a rule depends on them."""
        if not self.mode.upserts:
            return frozenset()
        return frozenset(
            key
            for key in self.touched
            if self.pinned.row_count(key)
            and (
                self.count_rule(key)
                or any(
                    # An edge of a node that is deleted may get another end.
                    role.kind is RoleKind.TUPLE or role.node_key in self._shrunk
                    for role in roles_of(self.rules[key], pinned=False)
                )
            )
        )

    def _pinned_roles(self) -> Iterable[Role]:
        referred = self._referred(self.touched)
        for key, rules in self.rules.items():
            if key in referred and self.pinned.row_count(key):
                for role in roles_of(rules, pinned=True):
                    if self._is_asked(role):
                        yield role

    def _is_asked(self, role: Role) -> bool:
        """Whether a rule compares incoming rows, or rows that lose others, with these keys."""
        is_overwritten = role.table_key in self.overwritten
        if role.kind is RoleKind.TUPLE and not self.rows_of(role.table_key):
            return False
        if role.kind is RoleKind.ENDPOINT:
            counted = (
                role.table_key in self.touched
                and self.count_rule(role.table_key) is not None
                and role.columns == (SOURCE_COLUMN,)
            )
            loses_nodes = role.node_key in self.overwritten | self._shrunk
            return counted or (not is_overwritten and loses_nodes)
        if role.kind is RoleKind.ID and not self._compares_ids(role.table_key):
            return False
        return not is_overwritten

    def _compares_ids(self, table_key: str) -> bool:
        """Whether anything depends on which ids a table has: its own rows, or edges to it."""
        if table_key in self._tracked:
            return True
        if self.mode is WriteMode.APPEND and table_key in self.given_ids:
            return True
        return table_key in self._nodes_compared

    @cached_property
    def _nodes_compared(self) -> frozenset[str]:
        """The node tables that touched edges refer to, or that lose rows edges refer to."""
        return frozenset(
            role.node_key
            for rules in self.rules.values()
            for role in roles_of(rules, pinned=False)
            if role.node_key is not None
            and (role.table_key in self.touched or role.node_key in self._shrunk)
        )
