"""Decide how the pinned keys are read that a write is compared with.

| the write | pinned keys are read | and sent |
|---|---|---|
| few rows | by filters, which an index serves | those that match |
| a small share of the table | by scanning the key columns | those that match |
| anything else | by scanning the key columns | all |

For the second way the hashes of incoming keys are collected first: a scan leaves out every key that
is not among them, so that what is exchanged follows the write and not the table.

Invariants:
- A key may be left out only if no rule can depend on it: it equals no incoming key, and what rules
  say about it does not change because of removed rows.
- Counts alone decide, so that a write is read in the same way by every runner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN
from omnigraph_lake.runner.key_hash import KeyHashes, hash_keys
from omnigraph_lake.runner.protocol import Runner, Stage, Task
from omnigraph_lake.runner.shuffle import Scratch
from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.validation import lookups
from omnigraph_lake.validation.hashed_keys import Hashing
from omnigraph_lake.validation.key_sets import StoredKeySet, collect_keys
from omnigraph_lake.validation.keyed_bucket import (
    KeyPlan,
    Role,
    RoleKind,
    Space,
    roles_of,
    space_of,
)
from omnigraph_lake.validation.lookups import as_filter, can_probe

if TYPE_CHECKING:
    from omnigraph_lake.validation.keyed_write import IncomingPiece, KeyedWrite

ROWS_PER_PROBE: Final = 8
"""So many rows are scanned in the time in which one value is looked up."""
_COLLECTED_KEYS_MAX: Final = 4_000_000
FILTERED_ROWS_LEAST: Final = 1_000_000
"""A smaller table is exchanged sooner than keys are collected."""
FILTERED_SHARE: Final = 4
# No column can have this name.
_FORMER: Final = "former sources"


class Access(Enum):
    """How pinned keys are read."""

    PROBE = auto()
    FILTERED_SCAN = auto()
    SCAN = auto()


def choose_access(*, rows: int, keys: int, pinned: int) -> Access:
    """How the pinned keys of a table are read.

    Args:
        rows: of the whole write.
        keys: of the write that are compared with those of the table.
        pinned: the rows of the table.
    """
    if 0 < rows <= lookups.PROBE_VALUES_MAX and rows * ROWS_PER_PROBE <= pinned:
        return Access.PROBE
    is_share = pinned >= FILTERED_ROWS_LEAST and keys * FILTERED_SHARE <= pinned
    return Access.FILTERED_SCAN if is_share and keys <= _COLLECTED_KEYS_MAX else Access.SCAN


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedRead:
    """Keys of some roles of one table: those of a filter, those that match, or all."""

    table_key: str
    roles: tuple[int, ...]
    access: Access
    where: OneOf | None = None


def plan_reads(write: KeyedWrite, keys: KeyPlan) -> Iterator[PinnedRead]:
    """How the pinned keys of every role are read; roles whose keys no row asks for are not."""
    roles_by_table: dict[str, list[tuple[int, Role]]] = {}
    for number, role in enumerate(keys.roles):
        if role.pinned:
            roles_by_table.setdefault(role.table_key, []).append((number, role))
    if not roles_by_table:
        return
    probes = _Probes(write, keys.tracked)
    for table_key, roles in roles_by_table.items():
        scanned: dict[Access, list[int]] = {}
        for number, role in roles:
            access = _access(write, keys, role)
            where = probes.filter(role) if access is Access.PROBE else None
            if where is None:
                access = Access.SCAN if access is Access.PROBE else access
                scanned.setdefault(access, []).append(number)
            elif len(where.values):
                yield PinnedRead(table_key=table_key, roles=(number,), access=access, where=where)
        for access, numbers in scanned.items():
            yield PinnedRead(table_key=table_key, roles=tuple(numbers), access=access)


def _access(write: KeyedWrite, keys: KeyPlan, role: Role) -> Access:
    rows = sum(map(write.rows_of, write.rules))
    rows += sum(len(deleted.ids) for deleted in write.deleted.values())
    pinned = write.pinned.row_count(role.table_key)
    if role.kind is RoleKind.ENDPOINT and role.node_key and role.node_key in write.deleted:
        # Where only some nodes are read, edges of other nodes must not be: they would look broken.
        pinned = max(pinned, write.pinned.row_count(role.node_key))
    access = choose_access(rows=rows, keys=_keys_compared(write, keys, role), pinned=pinned)
    if access is Access.FILTERED_SCAN and not _may_filter(write, keys, role):
        return Access.SCAN
    return access


def _keys_compared(write: KeyedWrite, keys: KeyPlan, role: Role) -> int:
    """How many incoming keys are compared with those of a pinned role."""
    return sum(
        write.rows_of(other.table_key)
        for other in keys.roles
        if not other.pinned and space_of(other) == space_of(role)
    )


def _may_filter(write: KeyedWrite, keys: KeyPlan, role: Role) -> bool:
    """Whether only keys matter that equal an incoming one.

    An edge that goes away concerns its source, and a node that goes away its edges, whether or not
    an incoming row names them.
    """
    if write.deleted or write.overwritten:
        return False
    match role.kind:
        case RoleKind.TUPLE:
            return True
        case RoleKind.ENDPOINT:
            return role.table_key not in keys.tracked
        case RoleKind.ID:
            return not any(
                role.table_key in rule.source_keys and edge_key in keys.tracked
                for edge_key, rule in keys.counts.items()
            )


IncomingKeys: TypeAlias = Mapping[Space, StoredKeySet]
"""The hashes of all incoming keys of some spaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hashes:
    """Hashes the keys of incoming rows that are in some spaces."""

    spaces: tuple[Space, ...]
    roles: tuple[Role, ...]
    seed: bytes = field(repr=False)

    def of_piece(self, piece: IncomingPiece, task: Task) -> Iterator[tuple[int, KeyHashes]]:
        for role in self.roles:
            if not piece.rows.get(role.table_key):
                continue
            for batch in piece.read(role.table_key, role.read_columns):
                task.advance()
                hashes = hash_keys(role.keys(batch), self.seed)
                yield self.spaces.index(space_of(role)), hashes


def collect_incoming(
    runner: Runner,
    write: KeyedWrite,
    roles: Iterable[Role],
    hashing: Hashing,
    *,
    verb: str,
    scratch: Scratch | None,
) -> IncomingKeys:
    """Collect the keys that pinned keys of some roles are compared with."""
    spaces = tuple(dict.fromkeys(map(space_of, roles)))
    compared = tuple(
        role
        for rules in write.rules.values()
        for role in roles_of(rules, pinned=False)
        if space_of(role) in spaces
    )
    hashes = _Hashes(spaces=spaces, roles=compared, seed=hashing.seed)
    stage = Stage(verb=verb, name="collect keys")
    key_sets = collect_keys(
        runner, stage, write.pieces, hashes.of_piece, sets=len(spaces), scratch=scratch
    )
    return dict(zip(spaces, key_sets, strict=True))


class _Probes:
    """Filters for the pinned keys that incoming rows are compared with, if these are few."""

    def __init__(self, write: KeyedWrite, tracked: frozenset[str]) -> None:
        self._write = write
        self._tracked = tracked
        self._read: dict[tuple[str, str], pa.ChunkedArray] = {}

    def filter(self, role: Role) -> OneOf | None:
        """The filter for a role; without values if no row is asked for, None to scan the table."""
        write = self._write
        if role.kind is RoleKind.ENDPOINT:
            if role.node_key in write.overwritten or role.table_key in write.overwritten:
                return None  # edges that no incoming row names
            column = role.columns[0]
            values = [*self._ends(role.table_key, column), *self._deleted(role.node_key)]
        elif role.kind is RoleKind.ID:
            if any(self._abandons(role.table_key, edge_key) for edge_key in write.overwritten):
                return None
            column, values = ID_COLUMN, self._ids(role.table_key)
        else:
            probed = [name for name in role.columns if self._can_probe(role.table_key, name)]
            if not probed:
                return None
            column, values = probed[0], [self._values(role.table_key, probed[0])]
        return self._filter_of(column, values)

    def _abandons(self, node_key: str, edge_key: str) -> bool:
        """Whether nodes that no incoming row names may be left with too few edges."""
        rule = self._write.count_rule(edge_key)
        return rule is not None and node_key in rule.source_keys

    def _filter_of(self, column: str, values: Sequence[pa.ChunkedArray]) -> OneOf | None:
        chunks = [chunk for array in values for chunk in array.chunks]
        if not chunks:
            return OneOf(column=column, values=pa.array([], pa.string()))
        distinct = pc.unique(pa.chunked_array(chunks)).drop_null()
        return as_filter(OneOf(column=column, values=distinct))

    def _ids(self, table_key: str) -> list[pa.ChunkedArray]:
        """Ids of incoming rows, and of the nodes that incoming edges refer to."""
        ids = [self._values(table_key, ID_COLUMN), *self._deleted(table_key)]
        for rules in self._write.rules.values():
            for role in roles_of(rules, pinned=False):
                if role.kind is RoleKind.ENDPOINT and role.node_key == table_key:
                    ids += self._ends(role.table_key, role.columns[0])
        return ids

    def _deleted(self, table_key: str | None) -> list[pa.ChunkedArray]:
        rows = self._write.deleted.get(table_key or "")
        return [] if rows is None else [pa.chunked_array([rows.ids])]

    def _ends(self, table_key: str, column: str) -> list[pa.ChunkedArray]:
        """One end of incoming edges; the source also of the pinned edges that they replace."""
        if column == SOURCE_COLUMN:
            return self._sources(table_key)
        return [self._values(table_key, column)]

    def _sources(self, table_key: str) -> list[pa.ChunkedArray]:
        """Sources of incoming edges, and of the pinned ones that are removed."""
        sources = [self._values(table_key, SOURCE_COLUMN)]
        if table_key in self._tracked or table_key in self._write.deleted:
            sources.append(self._former_sources(table_key))
        return sources

    def _former_sources(self, table_key: str) -> pa.ChunkedArray:
        if (table_key, _FORMER) not in self._read:
            gone_ids = [self._values(table_key, ID_COLUMN), *self._deleted(table_key)]
            where = self._filter_of(ID_COLUMN, gone_ids)
            former = pa.chunked_array([], pa.string())
            if where is None or len(where.values):
                rows = self._write.pinned.scan(table_key, [SOURCE_COLUMN], where).read_all()
                former = rows.column(SOURCE_COLUMN)
            self._read[table_key, _FORMER] = former
        return self._read[table_key, _FORMER]

    def _can_probe(self, table_key: str, column: str) -> bool:
        values = self._values(table_key, column)
        return bool(values.num_chunks) and can_probe(values.type)

    def _values(self, table_key: str, column: str) -> pa.ChunkedArray:
        """The values of a column in all incoming rows of a table."""
        if (table_key, column) not in self._read:
            chunks = [
                batch.column(0)
                for piece in self._write.pieces
                if piece.rows.get(table_key)
                for batch in piece.read(table_key, [column])
            ]
            kind = chunks[0].type if chunks else pa.string()
            self._read[table_key, column] = pa.chunked_array(chunks, kind)
        return self._read[table_key, column]
