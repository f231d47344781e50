"""Hashes of keys and checks of buckets against plain Python, with narrow hashes and forced ties."""

from __future__ import annotations

import hashlib
import math
import operator
import random
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.runner.key_hash import hash_keys
from omnigraph_lake.validation.constraints import EdgeCount, WriteMode
from omnigraph_lake.validation.hashed_keys import RoleKeys, group_keys, match_rows
from omnigraph_lake.validation.keyed_bucket import (
    Finding,
    KeyPlan,
    Role,
    RoleKind,
    Stage,
    check_bucket,
)
from omnigraph_lake.validation.violations import Reason
from tests.drawing import drawn, seeds

pytestmark = pytest.mark.random

Key = tuple[int, int]
Column = tuple[pa.DataType, list[Any]]

TEXT_SIZES = (0, 1, 3, 4, 7, 8, 9, 26, 100, 4095, 4096, 4097, 5000)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=20)
    | st.builds(lambda size, end: "é" * (size // 2) + end, st.sampled_from(TEXT_SIZES), st.text()),
    pa.binary(): st.binary(max_size=40),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
}


@st.composite
def tuples(draw: st.DrawFn) -> list[Column]:
    rows = draw(st.integers(1, 30))
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    return [
        (kind, draw(st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows)))
        for kind in kinds
    ]


@drawn(40)
@given(columns=tuples(), seed=st.binary(min_size=1, max_size=32))
def test_hashes_are_those_of_plain_arithmetic(columns: list[Column], seed: bytes) -> None:
    hashes = hash_keys([pa.array(values, kind) for kind, values in columns], seed)

    for row, values in enumerate(zip(*(values for _, values in columns), strict=True)):
        is_present = hashes.present is None or bool(hashes.present[row])
        assert is_present is (None not in values)
        if is_present:
            key = (int(hashes.first[row]), int(hashes.second[row]))
            assert key == plain_hash(values, seed)


def plain_hash(values: tuple[Any, ...], seed: bytes) -> Key:
    sums = [0, 0, 0]
    for column, value in enumerate(values):
        words = [1, *plain_words(value, seed)]
        for stream, multipliers in enumerate(plain_multipliers(column, seed)):
            sums[stream] += sum(map(operator.mul, words, multipliers))
    one, two, three = (total % 2**64 >> 32 for total in sums)
    return one << 32 | two, three


@lru_cache(maxsize=4)
def plain_multipliers(column: int, seed: bytes) -> list[tuple[int, ...]]:
    source = hashlib.shake_256(struct.pack("<I", column) + seed).digest(3 * 1026 * 8)
    return [struct.unpack_from("<1026Q", source, stream * 1026 * 8) for stream in range(3)]


def plain_words(value: Any, seed: bytes) -> list[int]:
    if isinstance(value, str | bytes):
        content = value.encode() if isinstance(value, str) else value
        size = len(content)
        if size > 4096:
            content = hashlib.blake2b(content, key=seed).digest()
        padded = content + b"\0" * (-len(content) % 4)
        return [size, *struct.unpack(f"<{len(padded) // 4}I", padded)]
    if isinstance(value, float):
        canonical = math.nan if math.isnan(value) else value + 0.0
        return [0, *struct.unpack("<2I", struct.pack("<d", canonical))]
    number = int(value) % 2**64
    return [0, number % 2**32, number >> 32]


hashes_with_ties = st.builds(
    lambda upper, lower, second: (upper << 62 | lower, second),
    st.integers(0, 3),
    st.sampled_from([0, 1, 2, 8, 2**20, 2**21, 2**61]),
    st.integers(0, 2) | st.just(2**32 - 1),
)
"""Few different keys, which agree in all bits that a word of the sort has, or in most."""


def keys_of(hashes: list[Key], rows: list[int] | None = None) -> RoleKeys:
    numbers = range(len(hashes)) if rows is None else rows
    return RoleKeys(
        first=np.array([first for first, _ in hashes], np.uint64),
        second=np.array([second for _, second in hashes], np.uint32),
        rows=np.array(numbers, np.uint64),
    )


@drawn(80)
@given(parts=st.lists(st.lists(hashes_with_ties, max_size=60), min_size=1, max_size=4))
def test_keys_have_one_number_exactly_if_they_are_equal(parts: list[list[Key]]) -> None:
    count, numbers = group_keys([keys_of(part) for part in parts])

    pairs = [
        (key, number)
        for part, part_numbers in zip(parts, numbers, strict=True)
        for key, number in zip(part, part_numbers.tolist(), strict=True)
    ]
    assert len(set(pairs)) == len({key for key, _ in pairs}) == count
    assert {number for _, number in pairs} == set(range(count))


def test_many_keys_of_few_upper_bits_are_told_apart() -> None:
    chance = np.random.default_rng(3)
    first = chance.integers(0, 3, 30_000, np.uint64) << np.uint64(50)
    first |= chance.integers(0, 100, 30_000, np.uint64)
    second = chance.integers(0, 20, 30_000, np.uint32)

    count, (numbers,) = group_keys([RoleKeys(first=first, second=second, rows=first)])

    keys = list(zip(first.tolist(), second.tolist(), strict=True))
    assert count == len(set(keys)) == len(set(zip(keys, numbers.tolist(), strict=True)))


@drawn(40)
@given(
    incoming=st.lists(hashes_with_ties, max_size=30, unique=True),
    pinned=st.lists(hashes_with_ties, max_size=30),
)
def test_every_pinned_row_meets_the_incoming_row_of_its_key(
    incoming: list[Key], pinned: list[Key]
) -> None:
    incoming_matches, pinned_matches = match_rows(keys_of(incoming), keys_of(pinned))

    pairs = list(zip(incoming_matches.tolist(), pinned_matches.tolist(), strict=True))
    assert sorted(pairs) == sorted(
        (left, right)
        for left, key in enumerate(incoming)
        for right, other in enumerate(pinned)
        if key == other
    )


def role(kind: RoleKind, table: str, *columns: str, node: str | None = None) -> Role:
    return Role(kind=kind, table_key=table, columns=columns, pinned=False, node_key=node)


ROLES = (
    role(RoleKind.ID, "node:A", "id"),
    role(RoleKind.TUPLE, "node:A", "tag"),
    role(RoleKind.ID, "node:B", "id"),
    role(RoleKind.ID, "edge:R", "id"),
    role(RoleKind.ENDPOINT, "edge:R", "src", node="node:A"),
    role(RoleKind.ENDPOINT, "edge:R", "dst", node="node:B"),
    role(RoleKind.TUPLE, "edge:R", "src", "dst"),
    role(RoleKind.ID, "edge:S", "id"),
    role(RoleKind.ENDPOINT, "edge:S", "src", node="node:A"),
    role(RoleKind.ENDPOINT, "edge:S", "dst", node="node:A"),
)
PINNED_ROLES = tuple(
    Role(kind=r.kind, table_key=r.table_key, columns=r.columns, pinned=True, node_key=r.node_key)
    for r in ROLES
)
TABLES = ("node:A", "node:B", "edge:R", "edge:S")


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of one row."""

    key: Key
    row: int
    rank: tuple[int, int]
    is_replaced: bool


@dataclass(frozen=True, slots=True)
class Bucket:
    """A plan, and by role the keys of a bucket in the order of their rows."""

    plan: KeyPlan
    has_order: bool
    entries: Mapping[Role, list[Entry]] = field(repr=False)

    def arrays(self) -> dict[int, RoleKeys]:
        numbered = {}
        for number, one_role in enumerate(self.plan.roles):
            entries = self.entries[one_role]
            keys = keys_of([entry.key for entry in entries], [entry.row for entry in entries])
            if entries:
                extras = self._extras(one_role, entries)
                numbered[number] = RoleKeys(
                    first=keys.first, second=keys.second, rows=keys.rows, extras=extras
                )
        return numbered

    def _extras(self, one_role: Role, entries: list[Entry]) -> tuple[np.ndarray, ...]:
        if one_role.pinned and one_role.table_key in self.plan.tracked:
            return (np.array([entry.is_replaced for entry in entries], np.uint64),)
        if not one_role.pinned and one_role.kind is RoleKind.ID and self.has_order:
            ranks = zip(*(entry.rank for entry in entries), strict=True)
            return tuple(np.array(rank, np.uint64) for rank in ranks)
        return ()


def draw_bucket(chance: random.Random) -> Bucket:
    """Drawn without Hypothesis, which needs ten times as long and prefers empty buckets."""
    mode = chance.choice(list(WriteMode))
    some_tables = frozenset(table for table in TABLES if chance.random() < 0.5)
    nothing: frozenset[str] = frozenset()
    pool = [draw_hash(chance) for _ in range(chance.randint(1, 6))]
    roles = (*ROLES, *(one_role for one_role in PINNED_ROLES if chance.random() < 0.7))
    counts = {
        table: EdgeCount(
            source_keys=("node:A",),
            minimum=chance.randint(0, 2),
            maximum=chance.choice([None, 1, 2, 3]),
        )
        for table in TABLES[2:]
        if chance.random() < 0.7
    }
    return Bucket(
        KeyPlan(
            roles=roles,
            mode=mode,
            counts=counts,
            overwritten=some_tables if mode is WriteMode.OVERWRITE else nothing,
            tracked=some_tables if mode.upserts else nothing,
        ),
        chance.random() < 0.5,
        {one_role: draw_entries(chance, pool) for one_role in roles},
    )


def draw_hash(chance: random.Random) -> Key:
    first = chance.randint(0, 1) << 62 | chance.choice([0, 1, 8, 2**20, 2**61])
    return first, chance.choice([0, 1, 2**32 - 1])


def draw_entries(chance: random.Random, pool: list[Key]) -> list[Entry]:
    return [
        Entry(
            chance.choice(pool),
            10 * number + (number << 32),
            (chance.randint(0, 1), chance.randint(0, 2)),
            chance.random() < 0.4,
        )
        for number in range(chance.randint(0, 7))
    ]


Told = tuple[Stage, str, Reason, tuple[str, ...]]


@dataclass(slots=True)
class Expected:
    """The refused rows by what is told of them, numbers of broken rules, replaced rows."""

    rows: dict[Told, set[int]] = field(default_factory=lambda: defaultdict(set))
    broken: Counter[Told] = field(default_factory=Counter)
    replaced: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


@pytest.mark.parametrize("seed", seeds("buckets", 10))
def test_a_bucket_is_checked_as_plain_python_does(seed: str) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        bucket = draw_bucket(chance)

        assert outcome_of(bucket) == PlainBucket(bucket).check(), bucket.entries


def outcome_of(bucket: Bucket) -> Expected:
    actual = Expected()
    for outcome in check_bucket(bucket.arrays(), bucket.plan):
        if not isinstance(outcome, Finding):
            actual.replaced[outcome.table_key] |= set(outcome.rows.tolist())
            continue
        told = (outcome.stage, outcome.table_key, outcome.reason, outcome.columns)
        assert outcome.rows.tolist() == sorted(outcome.rows.tolist()), "in the order of the input"
        assert len(outcome.rows) or len(outcome.broken), "no finding is empty"
        if len(outcome.rows):
            actual.rows[told] = set(outcome.rows.tolist())
        else:
            actual.broken[told] += len(outcome.broken)
    return actual


class PlainBucket:
    """The slow, obvious version of the checks."""

    def __init__(self, bucket: Bucket) -> None:
        self.plan = bucket.plan
        self.entries = bucket.entries
        self.has_order = bucket.has_order
        self.expected = Expected()

    def check(self) -> Expected:
        for one_role in ROLES:
            is_node = one_role.table_key.startswith("node:")
            match one_role.kind:
                case RoleKind.ID:
                    self.ids(one_role, Stage.NODE_IDS if is_node else Stage.EDGE_IDS)
                case RoleKind.TUPLE:
                    self.tuples(one_role, Stage.NODE_TUPLES if is_node else Stage.EDGE_TUPLES)
                case RoleKind.ENDPOINT:
                    self.endpoints(one_role)
        for table, rule in self.plan.counts.items():
            self.counts(table, rule)
        return self.expected

    def ids(self, one_role: Role, stage: Stage) -> None:
        table = one_role.table_key
        merges = self.plan.mode.upserts
        by_key: dict[Key, list[Entry]] = defaultdict(list)
        for entry in self.entries[one_role]:
            by_key[entry.key].append(entry)
        taken = {entry.key for entry in self.kept(one_role)}
        for key, entries in by_key.items():
            winner = entries[0]
            if merges:
                winner = max(entries, key=lambda e: (e.rank if self.has_order else (), e.row))
            for entry in entries:
                if entry is not winner:
                    reason = Reason.SUPERSEDED if merges else Reason.DUPLICATE_ID
                    self.refuse(stage, one_role, reason, entry)
            if self.plan.mode is WriteMode.APPEND and key in taken:
                self.refuse(stage, one_role, Reason.ID_EXISTS, winner)
        if table in self.plan.tracked:
            for entry in self.kept(one_role):
                if entry.key in by_key:
                    self.expected.replaced[table].add(entry.row)

    def tuples(self, one_role: Role, stage: Stage) -> None:
        is_tracked = one_role.table_key in self.plan.tracked
        taken = {
            entry.key for entry in self.kept(one_role) if not (is_tracked and entry.is_replaced)
        }
        for entry in self.entries[one_role]:
            if entry.key in taken:
                self.refuse(stage, one_role, Reason.NOT_UNIQUE, entry)
            taken.add(entry.key)

    def endpoints(self, one_role: Role) -> None:
        nodes = self.nodes(one_role.node_key)
        for entry in self.entries[one_role]:
            if entry.key not in nodes:
                self.refuse(Stage.ENDPOINTS, one_role, Reason.MISSING_ENDPOINT, entry)
        if one_role.node_key in self.plan.overwritten:
            for entry in self.kept(one_role):
                if entry.key not in nodes:
                    self.breaks(Stage.ENDPOINTS, one_role, Reason.MISSING_ENDPOINT)

    def counts(self, table: str, rule: EdgeCount) -> None:
        source = next(r for r in ROLES if r.table_key == table and r.columns == ("src",))
        nodes = self.nodes("node:A")
        incoming = [entry for entry in self.entries[source] if entry.key in nodes]
        kept: Counter[Key] = Counter()
        touched = {entry.key for entry in incoming}
        for entry in self.entries.get(self.pinned(source), []):
            if table in self.plan.overwritten or (table in self.plan.tracked and entry.is_replaced):
                touched |= {entry.key} & nodes
            else:
                kept[entry.key] += 1
        for key in touched:
            own = [entry for entry in incoming if entry.key == key]
            edges = kept[key] + len(own)
            if edges < rule.minimum:
                self.blame(source, Reason.TOO_FEW_EDGES, own, own)
            if rule.maximum is not None and edges > rule.maximum:
                room = max(0, rule.maximum - kept[key])
                self.blame(source, Reason.TOO_MANY_EDGES, own, own[room:])

    def blame(self, source: Role, reason: Reason, own: list[Entry], refused: list[Entry]) -> None:
        if not own:
            self.breaks(Stage.COUNTS, source, reason)
        for entry in refused:
            self.refuse(Stage.COUNTS, source, reason, entry)

    def nodes(self, node_key: str | None) -> set[Key]:
        id_roles = [r for r in ROLES if r.kind is RoleKind.ID and r.table_key == node_key]
        return {
            entry.key
            for one_role in id_roles
            for entry in (*self.entries[one_role], *self.kept(one_role))
        }

    def kept(self, one_role: Role) -> Iterator[Entry]:
        if one_role.table_key not in self.plan.overwritten:
            yield from self.entries.get(self.pinned(one_role), [])

    def pinned(self, one_role: Role) -> Role:
        return PINNED_ROLES[ROLES.index(one_role)]

    def refuse(self, stage: Stage, one_role: Role, reason: Reason, entry: Entry) -> None:
        told = (stage, one_role.table_key, reason, one_role.columns)
        self.expected.rows[told].add(entry.row)

    def breaks(self, stage: Stage, one_role: Role, reason: Reason) -> None:
        self.expected.broken[stage, one_role.table_key, reason, one_role.columns] += 1
