"""Checks the keyed rules among the hashed keys of one bucket.

What is refused of a group of rows with one key is not listed here, but by the task that has the
rows.

Invariant: checking is pure. A bucket's findings depend on its keys alone. Rows refused in another
bucket were either not sent here, or make these findings provisional; see `keyed_passes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import partial
from typing import Final, TypeAlias, assert_never

import numpy as np
import pyarrow as pa

from omnigraph_lake.names import ID_COLUMN, NODE_PREFIX, SOURCE_COLUMN
from omnigraph_lake.validation import constraints
from omnigraph_lake.validation.hashed_keys import NO_KEYS, RoleKeys, group_keys
from omnigraph_lake.validation.violations import Reason


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
    rule: constraints.UniqueTuple | constraints.EndpointExists | None = None

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that the keys are made of."""
        return self.columns if self.rule is None else self.rule.read_columns

    @property
    def end_types(self) -> tuple[tuple[str, int | None], ...]:
        """Columns with the types of ends that are a part of the key, and what null means there."""
        match self.rule:
            case constraints.EndpointExists(types=constraints.EndTypes() as types):
                return ((types.column, types.implicit),)
            case constraints.UniqueTuple():
                return tuple((end.column, end.implicit) for end in self.rule.end_types)
            case _:
                return ()

    def keys(self, rows: pa.RecordBatch | pa.Table) -> list[pa.Array | pa.ChunkedArray]:
        """The keys of some rows, as columns; a null in a key exempts its row."""
        match self.rule:
            case constraints.EndpointExists():
                return [self.rule.endpoints(rows)]
            case constraints.UniqueTuple():
                types = [end.of(rows) for end in self.rule.end_types]
                return [*(rows.column(name) for name in self.columns), *types]
            case None:
                return [rows.column(name) for name in self.columns]
            case _:
                assert_never(self.rule)


Space: TypeAlias = tuple[RoleKind, str, tuple[str, ...]]
"""The name of what keys are compared with: the ids of a table, or a tuple of its columns."""


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
                        rule=rule if rule.end_types else None,
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
                        rule=None if rule.types is None else rule,
                    )
                )
            case constraints.EdgeCount():
                continue
    return tuple(roles)


def source_roles(roles: Iterable[Role], table_key: str, *, pinned: bool) -> Iterator[Role]:
    """The roles that hold the sources of an edge table, one for each of their types."""
    for role in roles:
        if (
            role.table_key == table_key
            and role.pinned is pinned
            and (role.kind is RoleKind.ENDPOINT and role.columns == (SOURCE_COLUMN,))
        ):
            yield role


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
    deleted: frozenset[str] = frozenset()
    """Tables that lose pinned rows by name."""
    shrunk: frozenset[str] = frozenset()
    """Node tables that lose rows and whose edges are not deleted with them."""
    refuses_repeats: bool = False
    """Whether an id that is repeated is a fault even if rows replace each other."""

    @property
    def supersedes(self) -> bool:
        """Whether a row replaces an earlier one with its id."""
        return self.mode.upserts and not self.refuses_repeats


REPLACED: Final = 1
DELETED: Final = 2
"""What becomes of a pinned row, sent as an extra of its keys; zero if it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedGroups:
    """Groups of rows with one key: refused are all except the first `kept`, and except `spared`."""

    first: np.ndarray
    last: np.ndarray
    kept: np.ndarray
    spared: np.ndarray

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def decode(cls, content: bytes) -> RefusedGroups:
        first, last, kept, spared = np.frombuffer(content, np.uint64).reshape(4, -1)
        return cls(first=first, last=last, kept=kept, spared=spared)

    @classmethod
    def join(cls, parts: Sequence[RefusedGroups]) -> RefusedGroups:
        return cls(
            first=np.concatenate([part.first for part in parts]),
            last=np.concatenate([part.last for part in parts]),
            kept=np.concatenate([part.kept for part in parts]),
            spared=np.concatenate([part.spared for part in parts]),
        )

    def encode(self) -> bytes:
        return np.stack([self.first, self.last, self.kept, self.spared]).tobytes()

    def filter(self, chosen: np.ndarray | slice) -> RefusedGroups:
        return RefusedGroups(
            first=self.first[chosen],
            last=self.last[chosen],
            kept=self.kept[chosen],
            spared=self.spared[chosen],
        )


_NO_ROW: Final = np.iinfo(np.uint64).max
NO_GROUPS: Final = RefusedGroups.decode(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Incoming rows that violate a rule, or pinned rows that would: one for each violation."""

    stage: Stage
    table_key: str
    reason: Reason
    columns: tuple[str, ...]
    rows: np.ndarray
    groups: RefusedGroups = NO_GROUPS
    """More rows, which are not listed yet."""
    broken: np.ndarray = field(default_factory=lambda: NO_KEYS.rows)
    more_broken: int = 0
    """How many pinned rows follow those."""
    end_types: tuple[tuple[str, int | None], ...] = ()
    """Columns that are a part of the key, with what null means there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Addresses of the pinned rows that incoming rows replace."""

    table_key: str
    rows: np.ndarray


def check_bucket(keys: Mapping[int, RoleKeys], plan: KeyPlan) -> Iterator[Finding | Replaced]:
    """All violations among the keys of one bucket."""
    bucket = _Bucket(keys, plan)
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
        for role in source_roles(plan.roles, table_key, pinned=False):
            yield from bucket.edge_counts(role, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """The keys of all roles that are compared with each other; equal ones have one number."""

    count: int
    numbers: Mapping[Role, np.ndarray]

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """Whether a key is among some, by its number."""
        is_there = np.zeros(self.count, np.bool_)
        is_there[numbers] = True
        return is_there

    def counts(self, numbers: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """How many rows each key has; a group counts for several."""
        counts = np.bincount(numbers, weights, minlength=self.count)
        return counts if weights is None else counts.astype(np.intp)


class _Bucket:
    def __init__(self, keys: Mapping[int, RoleKeys], plan: KeyPlan) -> None:
        self._plan = plan
        self._keys = {role: keys.get(number, NO_KEYS) for number, role in enumerate(plan.roles)}
        self._spaces: dict[Space, _Space] = {}

    def ids(self, role: Role) -> Iterator[Finding | Replaced]:
        keys, space, numbers = self._look_up(role)
        stage = Stage.NODE_IDS if is_node(role.table_key) else Stage.EDGE_IDS
        wins = self._winners(keys, numbers, space)
        reason = Reason.SUPERSEDED if self._plan.supersedes else Reason.DUPLICATE_ID
        yield from _refuse(stage, role, reason, keys, ~wins)
        yield from _refuse_others(stage, role, reason, keys, wins)
        pinned_rows, pinned_numbers = self._pinned(role, space)
        if self._plan.mode is constraints.WriteMode.APPEND:
            is_taken = wins & space.has(pinned_numbers)[numbers]
            yield from _finding(stage, role, Reason.ID_EXISTS, keys.rows[is_taken])
        if role.table_key in self._plan.tracked:
            replaced = pinned_rows[space.has(numbers)[pinned_numbers]]
            if len(replaced):
                yield Replaced(table_key=role.table_key, rows=replaced)

    def tuples(self, role: Role) -> Iterator[Finding]:
        keys, space, numbers = self._look_up(role)
        _, pinned_numbers = self._pinned(role, space)
        is_refused = space.has(pinned_numbers)[numbers] | ~is_first(numbers, space.count)
        stage = Stage.NODE_TUPLES if is_node(role.table_key) else Stage.EDGE_TUPLES
        yield from _refuse(stage, role, Reason.NOT_UNIQUE, keys, is_refused)
        yield from _refuse_others(stage, role, Reason.NOT_UNIQUE, keys, ~is_refused)

    def endpoints(self, role: Role) -> Iterator[Finding]:
        keys, space, numbers = self._look_up(role)
        is_missing = ~self._nodes(role, space)[numbers]
        yield from _refuse(Stage.ENDPOINTS, role, Reason.MISSING_ENDPOINT, keys, is_missing)

    def retained_edges(self, role: Role) -> Iterator[Finding]:
        """Remaining pinned edges whose node is removed."""
        if role.kind is not RoleKind.ENDPOINT or role.table_key in self._plan.overwritten:
            return
        if role.node_key not in self._plan.overwritten | self._plan.shrunk:
            return
        keys, space, numbers = self._look_up(role)
        is_dangling = ~self._nodes(role, space)[numbers] & ~self._is_gone(role)
        yield from _break(Stage.ENDPOINTS, role, Reason.MISSING_ENDPOINT, keys.rows[is_dangling])

    def edge_counts(self, role: Role, rule: constraints.EdgeCount) -> Iterator[Finding]:
        """Sources of one type with too few or too many edges, among those whose edges are changed.

        An edge whose source is missing does not count. If its target is, which another bucket may
        have found, the result of this pass is provisional.
        """
        keys, space, numbers = self._look_up(role)
        exists = self._nodes(role, space)
        keys, numbers = keys.filter(exists[numbers]), numbers[exists[numbers]]
        kept, removed = self._pinned_sources(role, space)
        added = space.counts(numbers, keys.counts)
        edges = kept + added
        is_touched = (added > 0) | ((removed > 0) & exists)
        is_few = is_touched & (edges < rule.minimum)
        yield from _refuse(Stage.COUNTS, role, Reason.TOO_FEW_EDGES, keys, is_few[numbers])
        unchanged = added == 0
        first = self._first_pinned(role, space)
        yield from _break(Stage.COUNTS, role, Reason.TOO_FEW_EDGES, first[is_few & unchanged])
        if rule.maximum is not None:
            is_many = is_touched & (edges > rule.maximum)
            room = np.maximum(rule.maximum - kept, 0)
            yield from self._beyond(role, keys, numbers, is_many, room)
            yield from _break(Stage.COUNTS, role, Reason.TOO_MANY_EDGES, first[is_many & unchanged])

    def _beyond(
        self,
        role: Role,
        keys: RoleKeys,
        numbers: np.ndarray,
        is_many: np.ndarray,
        room: np.ndarray,
    ) -> Iterator[Finding]:
        """The last edges of sources that have too many."""
        chosen = np.flatnonzero(is_many[numbers])
        keys, numbers = keys.filter(chosen), numbers[chosen]
        ones = np.ones(len(keys), np.intp)
        counts = ones if keys.counts is None else keys.counts
        left = room[numbers] - _ranks(numbers, counts)
        yield from _refuse(
            Stage.COUNTS,
            role,
            Reason.TOO_MANY_EDGES,
            keys,
            left < counts,
            kept=np.maximum(left, 0).astype(np.uint64),
        )

    def _winners(self, keys: RoleKeys, numbers: np.ndarray, space: _Space) -> np.ndarray:
        """Whether a row is the one that stands, of all rows with its id."""
        if not self._plan.supersedes:
            return is_first(numbers, space.count)
        positions = np.arange(len(numbers))
        last = np.empty(space.count, np.intp)
        last[numbers] = positions
        if keys.extras:
            # The ids have an order of their own.
            shared = np.flatnonzero(space.counts(numbers)[numbers] > 1)
            has_value, value = (extra[shared] for extra in keys.extras)
            ordered = shared[np.lexsort((value, has_value))]
            last[numbers[ordered]] = ordered
        wins: np.ndarray = last[numbers] == positions
        return wins

    def _pinned_sources(self, incoming: Role, space: _Space) -> tuple[np.ndarray, np.ndarray]:
        """By source, the number of pinned edges that remain, and of those that are removed."""
        role = self._source_role(incoming)
        if role is None:
            none = np.zeros(space.count, np.intp)
            return none, none
        numbers = space.numbers[role]
        if role.table_key in self._plan.overwritten:
            is_removed = np.ones(len(numbers), np.bool_)
        else:
            is_removed = self._is_gone(role)
        return space.counts(numbers[~is_removed]), space.counts(numbers[is_removed])

    def _source_role(self, incoming: Role) -> Role | None:
        roles = source_roles(self._plan.roles, incoming.table_key, pinned=True)
        return next((role for role in roles if role.node_key == incoming.node_key), None)

    def _first_pinned(self, incoming: Role, space: _Space) -> np.ndarray:
        """By source, the address of its first pinned edge."""
        first = np.full(space.count, np.iinfo(np.uint64).max, np.uint64)
        role = self._source_role(incoming)
        if role is not None:
            rows, numbers = self._keys[role].rows[::-1], space.numbers[role][::-1]
            first[numbers] = rows  # of several the last assignment stays
        return first

    def _nodes(self, role: Role, space: _Space) -> np.ndarray:
        """By key, whether it is the id of a node that remains or comes."""
        exists = np.zeros(space.count, np.bool_)
        for other, numbers in space.numbers.items():
            is_removed = other.pinned and other.table_key in self._plan.overwritten
            if other.kind is RoleKind.ID and other.table_key == role.node_key and not is_removed:
                exists[numbers[~self._is_gone(other, DELETED)]] = True
        return exists

    def _pinned(self, role: Role, space: _Space) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the pinned counterpart of a role, without removed ones, and their keys."""
        if role.table_key not in self._plan.overwritten:
            for other, numbers in space.numbers.items():
                same = (other.kind, other.table_key, other.columns)
                if other.pinned and same == (role.kind, role.table_key, role.columns):
                    rows = self._keys[other].rows
                    fate = None if role.kind is RoleKind.TUPLE else DELETED
                    is_kept = ~self._is_gone(other, fate)
                    return rows[is_kept], numbers[is_kept]
        return NO_KEYS.rows, np.empty(0, np.intp)

    def _is_gone(self, role: Role, fate: int | None = None) -> np.ndarray:
        """Whether the row of a pinned key is removed, or has this fate."""
        keys = self._keys[role]
        if not role.pinned or not keys.extras:
            return np.zeros(len(keys), np.bool_)
        is_gone: np.ndarray = keys.extras[0] != 0 if fate is None else keys.extras[0] == fate
        return is_gone

    def _look_up(self, role: Role) -> tuple[RoleKeys, _Space, np.ndarray]:
        """The keys of a role, the keys that they are compared with, and their numbers there."""
        name = space_of(role)
        if name not in self._spaces:
            roles = [other for other in self._plan.roles if space_of(other) == name]
            count, numbers = group_keys([self._keys[other] for other in roles])
            self._spaces[name] = _Space(count=count, numbers=dict(zip(roles, numbers, strict=True)))
        space = self._spaces[name]
        return self._keys[role], space, space.numbers[role]


def space_of(role: Role) -> Space:
    """Endpoints are compared with the ids of their nodes, all else with its like."""
    if role.kind is RoleKind.TUPLE:
        return RoleKind.TUPLE, role.table_key, role.columns
    return RoleKind.ID, role.node_key or role.table_key, (ID_COLUMN,)


def is_first(numbers: np.ndarray, count: int) -> np.ndarray:
    """Whether no earlier number is equal; they are below `count`."""
    positions = np.arange(len(numbers))
    first = np.empty(count, np.intp)
    first[numbers[::-1]] = positions[::-1]  # of several the last assignment stays
    firsts: np.ndarray = first[numbers] == positions
    return firsts


def _ranks(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How many rows have an equal key and are earlier."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    before = np.cumsum(counts[order]) - counts[order]
    ranks = np.empty(len(numbers), np.intp)
    ranks[order] = before - before[np.searchsorted(ordered, ordered)]
    return ranks


def is_node(table_key: str) -> bool:
    return table_key.startswith(NODE_PREFIX)


def _refuse(
    stage: Stage,
    role: Role,
    reason: Reason,
    keys: RoleKeys,
    is_refused: np.ndarray,
    *,
    kept: np.ndarray | None = None,
) -> Iterator[Finding]:
    """Refuse the rows of some keys; of groups all except the first `kept`."""
    finding = partial(_finding, stage, role, reason)
    if keys.groups is None:
        yield from finding(keys.rows[is_refused])
        return
    is_group = keys.groups.counts > 1
    yield from finding(keys.rows[is_refused & ~is_group])
    groups = RefusedGroups(
        first=keys.groups.first,
        last=keys.groups.last,
        kept=np.zeros(len(keys), np.uint64) if kept is None else kept,
        spared=np.full(len(keys), _NO_ROW, np.uint64),
    )
    yield from finding(NO_KEYS.rows, groups.filter(is_refused & is_group))


def _refuse_others(
    stage: Stage, role: Role, reason: Reason, keys: RoleKeys, is_kept: np.ndarray
) -> Iterator[Finding]:
    """Refuse the rows of groups except the one that was sent."""
    if keys.groups is not None:
        groups = RefusedGroups(
            first=keys.groups.first,
            last=keys.groups.last,
            kept=np.zeros(len(keys), np.uint64),
            spared=keys.rows,
        )
        is_group = keys.groups.counts > 1
        yield from _finding(stage, role, reason, NO_KEYS.rows, groups.filter(is_kept & is_group))


def _finding(
    stage: Stage,
    role: Role,
    reason: Reason,
    rows: np.ndarray,
    groups: RefusedGroups = NO_GROUPS,
) -> Iterator[Finding]:
    if len(rows) or len(groups):
        yield Finding(
            stage=stage,
            table_key=role.table_key,
            reason=reason,
            columns=role.columns,
            rows=rows,
            groups=groups,
            end_types=role.end_types,
        )


def _break(stage: Stage, role: Role, reason: Reason, rows: np.ndarray) -> Iterator[Finding]:
    if len(rows):
        yield Finding(
            stage=stage,
            table_key=role.table_key,
            reason=reason,
            columns=role.columns,
            rows=NO_KEYS.rows,
            broken=rows,
        )
