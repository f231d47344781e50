"""Distributes hashed keys of rows to buckets, and checks the keyed rules within one bucket.

A row is identified by one number: for rows of the load the split in the upper half and the position
among the split's rows of its table in the lower; for pinned rows their Lance row address. Order
among rows is the order of their numbers, which is the order of the input.

Invariants:

- Equal keys are in one bucket under one role, so a bucket has all rows of each of its keys.
- A key is identified by its hash; see `key_hash`. 96 bits, seeded per load, make a collision less
  likely than 1 in 10^9 in a load of 10^10 keys, for any input.
- Checking is pure: a bucket's findings depend on its keys alone. Rows refused in another bucket
  were either not sent here, or make these findings provisional; see `keyed_passes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, assert_never

import msgspec
import numpy as np

from omnigraph.names import ID_COLUMN, NODE_PREFIX, SOURCE_COLUMN
from omnigraph.runner.key_hash import hash_keys
from omnigraph.validation import constraints
from omnigraph.validation.violations import Reason

if TYPE_CHECKING:
    import pyarrow as pa


SPLIT_BITS: Final = 32
# 16 bytes each: the JVM handles records of some hundred kB well, and larger ones badly.
_KEYS_PER_BLOB: Final = 8192
_SECOND_BITS: Final = 32
# The bits of a hash that a word has no room for fit into another word.
_POSITION_BITS_MAX: Final = 64 - _SECOND_BITS
_NO_WORDS: Final = np.empty(0, np.uint64)


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

    seed: bytes = field(repr=False)
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
        self.count = 0
        """The number of keys that are held."""

    def add(
        self,
        role: int,
        columns: Iterable[pa.Array | pa.ChunkedArray],
        rows: np.ndarray,
        *,
        extras: tuple[np.ndarray, ...] = (),
    ) -> None:
        """Add the keys of some rows; a null in a key exempts its row."""
        hashes = hash_keys(tuple(columns), self._hashing.seed)
        arrays: tuple[np.ndarray, ...] = (hashes.first, hashes.second, rows, *extras)
        if hashes.present is not None:
            arrays = tuple(array[hashes.present] for array in arrays)
        if len(arrays[0]):
            self._parts.setdefault(role, []).append(arrays)
            self.count += len(arrays[0])

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
        self.count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleKeys:
    """The keys of one role in one bucket, in the order of their rows."""

    first: np.ndarray
    second: np.ndarray
    rows: np.ndarray
    extras: tuple[np.ndarray, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def filter(self, chosen: np.ndarray) -> RoleKeys:
        return RoleKeys(
            first=self.first[chosen],
            second=self.second[chosen],
            rows=self.rows[chosen],
            extras=tuple(extra[chosen] for extra in self.extras),
        )


def decode_keys(blobs: Iterable[bytes]) -> Mapping[int, RoleKeys]:
    """The keys of one bucket, by role."""
    parts: dict[int, list[RoleKeys]] = {}
    for blob in blobs:
        keys = _DECODER.decode(blob)
        part = RoleKeys(
            first=np.frombuffer(keys.first, np.uint64),
            second=np.frombuffer(keys.second, np.uint32),
            rows=_whole(keys.upper, keys.rows),
            extras=tuple(np.frombuffer(extra, np.uint64) for extra in keys.extras),
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
    return np.frombuffer(rows, np.uint32) | np.uint64(upper << SPLIT_BITS)


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


_NO_KEYS: Final = RoleKeys(
    first=np.empty(0, np.uint64), second=np.empty(0, np.uint32), rows=np.empty(0, np.uint64)
)


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
class Finding:
    """Incoming rows that violate a rule, or pinned rows that would: one for each violation."""

    stage: Stage
    table_key: str
    reason: Reason
    columns: tuple[str, ...]
    rows: np.ndarray
    broken: np.ndarray = field(default_factory=lambda: _NO_KEYS.rows)


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
        yield from bucket.edge_counts(table_key, rule)


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

    def counts(self, numbers: np.ndarray) -> np.ndarray:
        return np.bincount(numbers, minlength=self.count)


class _Bucket:
    def __init__(self, keys: Mapping[int, RoleKeys], plan: KeyPlan) -> None:
        self._plan = plan
        self._keys = {role: keys.get(number, _NO_KEYS) for number, role in enumerate(plan.roles)}
        self._spaces: dict[tuple[RoleKind, str, tuple[str, ...]], _Space] = {}

    def ids(self, role: Role) -> Iterator[Finding | Replaced]:
        keys, space, numbers = self._look_up(role)
        stage = Stage.NODE_IDS if is_node(role.table_key) else Stage.EDGE_IDS
        wins = self._winners(keys, numbers, space)
        reason = Reason.SUPERSEDED if self._plan.supersedes else Reason.DUPLICATE_ID
        yield from _refuse(stage, role, reason, keys.rows[~wins])
        pinned_rows, pinned_numbers = self._pinned(role, space)
        if self._plan.mode is constraints.WriteMode.APPEND:
            is_taken = wins & space.has(pinned_numbers)[numbers]
            yield from _refuse(stage, role, Reason.ID_EXISTS, keys.rows[is_taken])
        if role.table_key in self._plan.tracked:
            replaced = pinned_rows[space.has(numbers)[pinned_numbers]]
            if len(replaced):
                yield Replaced(table_key=role.table_key, rows=replaced)

    def tuples(self, role: Role) -> Iterator[Finding]:
        keys, space, numbers = self._look_up(role)
        _, pinned_numbers = self._pinned(role, space)
        is_refused = space.has(pinned_numbers)[numbers] | ~is_first(numbers, space.count)
        stage = Stage.NODE_TUPLES if is_node(role.table_key) else Stage.EDGE_TUPLES
        yield from _refuse(stage, role, Reason.NOT_UNIQUE, keys.rows[is_refused])

    def endpoints(self, role: Role) -> Iterator[Finding]:
        keys, space, numbers = self._look_up(role)
        missing = keys.rows[~self._nodes(role, space)[numbers]]
        yield from _refuse(Stage.ENDPOINTS, role, Reason.MISSING_ENDPOINT, missing)

    def retained_edges(self, role: Role) -> Iterator[Finding]:
        """Remaining pinned edges whose node is removed."""
        if role.kind is not RoleKind.ENDPOINT or role.table_key in self._plan.overwritten:
            return
        if role.node_key not in self._plan.overwritten | self._plan.shrunk:
            return
        keys, space, numbers = self._look_up(role)
        is_dangling = ~self._nodes(role, space)[numbers] & ~self._is_gone(role)
        yield from _break(Stage.ENDPOINTS, role, Reason.MISSING_ENDPOINT, keys.rows[is_dangling])

    def edge_counts(self, table_key: str, rule: constraints.EdgeCount) -> Iterator[Finding]:
        """Sources with too few or too many edges, among those whose edges are changed.

        An edge whose source is missing does not count. If its target is, which another bucket may
        have found, the result of this pass is provisional.
        """
        role = source_role(self._plan.roles, table_key, pinned=False)
        assert role is not None
        keys, space, numbers = self._look_up(role)
        exists = self._nodes(role, space)
        rows, numbers = keys.rows[exists[numbers]], numbers[exists[numbers]]
        kept, removed = self._pinned_sources(table_key, space)
        added = space.counts(numbers)
        edges = kept + added
        is_touched = (added > 0) | ((removed > 0) & exists)
        is_few = is_touched & (edges < rule.minimum)
        yield from _refuse(Stage.COUNTS, role, Reason.TOO_FEW_EDGES, rows[is_few[numbers]])
        unchanged = added == 0
        first = self._first_pinned(table_key, space)
        yield from _break(Stage.COUNTS, role, Reason.TOO_FEW_EDGES, first[is_few & unchanged])
        if rule.maximum is not None:
            is_many = is_touched & (edges > rule.maximum)
            chosen = np.flatnonzero(is_many[numbers])
            room = np.maximum(rule.maximum - kept, 0)[numbers[chosen]]
            beyond = chosen[_ranks(numbers[chosen]) >= room]
            yield from _refuse(Stage.COUNTS, role, Reason.TOO_MANY_EDGES, rows[beyond])
            yield from _break(Stage.COUNTS, role, Reason.TOO_MANY_EDGES, first[is_many & unchanged])

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

    def _pinned_sources(self, table_key: str, space: _Space) -> tuple[np.ndarray, np.ndarray]:
        """By source, the number of pinned edges that remain, and of those that are removed."""
        role = source_role(self._plan.roles, table_key, pinned=True)
        if role is None:
            none = np.zeros(space.count, np.intp)
            return none, none
        numbers = space.numbers[role]
        if table_key in self._plan.overwritten:
            is_removed = np.ones(len(numbers), np.bool_)
        else:
            is_removed = self._is_gone(role)
        return space.counts(numbers[~is_removed]), space.counts(numbers[is_removed])

    def _first_pinned(self, table_key: str, space: _Space) -> np.ndarray:
        """By source, the address of its first pinned edge."""
        first = np.full(space.count, np.iinfo(np.uint64).max, np.uint64)
        role = source_role(self._plan.roles, table_key, pinned=True)
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
        return _NO_KEYS.rows, np.empty(0, np.intp)

    def _is_gone(self, role: Role, fate: int | None = None) -> np.ndarray:
        """Whether the row of a pinned key is removed, or has this fate."""
        keys = self._keys[role]
        if not role.pinned or not keys.extras:
            return np.zeros(len(keys), np.bool_)
        is_gone: np.ndarray = keys.extras[0] != 0 if fate is None else keys.extras[0] == fate
        return is_gone

    def _look_up(self, role: Role) -> tuple[RoleKeys, _Space, np.ndarray]:
        """The keys of a role, the keys that they are compared with, and their numbers there."""
        name = _space_of(role)
        if name not in self._spaces:
            roles = [other for other in self._plan.roles if _space_of(other) == name]
            count, numbers = group_keys([self._keys[other] for other in roles])
            self._spaces[name] = _Space(count=count, numbers=dict(zip(roles, numbers, strict=True)))
        space = self._spaces[name]
        return self._keys[role], space, space.numbers[role]


def _space_of(role: Role) -> tuple[RoleKind, str, tuple[str, ...]]:
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


def _ranks(numbers: np.ndarray) -> np.ndarray:
    """How many earlier keys are equal."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    ranks = np.empty(len(numbers), np.intp)
    ranks[order] = np.arange(len(numbers)) - np.searchsorted(ordered, ordered)
    return ranks


def is_node(table_key: str) -> bool:
    return table_key.startswith(NODE_PREFIX)


def _refuse(stage: Stage, role: Role, reason: Reason, rows: np.ndarray) -> Iterator[Finding]:
    if len(rows):
        yield Finding(
            stage=stage,
            table_key=role.table_key,
            reason=reason,
            columns=role.columns,
            rows=rows,
        )


def _break(stage: Stage, role: Role, reason: Reason, rows: np.ndarray) -> Iterator[Finding]:
    if len(rows):
        yield Finding(
            stage=stage,
            table_key=role.table_key,
            reason=reason,
            columns=role.columns,
            rows=_NO_KEYS.rows,
            broken=rows,
        )
