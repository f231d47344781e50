"""Reads every published row of a graph, and checks the rules of its types.

Groups of fragments are the pieces. Rules of one row are checked where it is read. For those that
involve more than one row they send the hashed keys of their rows to
buckets, as the pieces of a load do: every published row is checked as if it were loaded into an
empty graph, in the order of row addresses.

Invariants:

- What is reported depends on the rows alone: not on the runner, the groups or the buckets.
- A task holds one bucket, or a fixed number of keys of its fragments, however many rows there are.
  A bucket has about two million keys, and more only if that many rows share one key.
- The driver receives counts, and the addresses of the few rows that are shown.
- A row that violates several rules is counted by each of them. An edge that another rule refuses
  counts as an edge of its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import msgspec
import numpy as np

from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.names import ID_COLUMN, ROW_ADDRESS, SOURCE_COLUMN
from omnigraph_lake.runner.protocol import Hop, Runner, Sent, Stage, Task
from omnigraph_lake.storage.lance.tables import (
    grouped,
    open_pinned,
    plan_scan,
    rows_at,
    scan_fragments,
)
from omnigraph_lake.validation.constraints import (
    CanonicalJson,
    EdgeCount,
    EndpointExists,
    TypeRules,
    UniqueTuple,
    WriteMode,
)
from omnigraph_lake.validation.hashed_keys import Hashing, KeyBuckets, read_buckets
from omnigraph_lake.validation.keyed_bucket import Finding, KeyPlan, check_bucket, roles_of
from omnigraph_lake.validation.keyed_passes import Verdict
from omnigraph_lake.validation.row_checks import check_rows
from omnigraph_lake.validation.violations import BadRows, Reason, Violation, unplaced

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry

EXAMPLES_MAX: Final = 5
"""Number of rows that are shown for every broken rule."""
_ROWS_PER_PIECE: Final = 1 << 20
_KEYS_HELD_LEAST: Final = 1 << 18
_KEYS_HELD_MOST: Final = 1 << 22
_KEYS_PER_MESSAGE: Final = 256
_VERB: Final = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Some fragments of a table, the work of one task, and the columns that it reads."""

    entry: TableEntry
    fragments: tuple[int, ...]
    columns: tuple[str, ...]


class _Broken(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a piece that break a row rule: their number, and the ids and words of the first."""

    reason: Reason
    columns: tuple[str, ...]
    count: int
    first: tuple[tuple[str, str], ...]

    def merge(self, other: _Broken) -> _Broken:
        first = (*self.first, *other.first)[:EXAMPLES_MAX]
        return msgspec.structs.replace(self, count=self.count + other.count, first=first)


class TableRead(msgspec.Struct, frozen=True, array_like=True):
    """How many rows a table or a piece of it has, and the row rules that they break."""

    rows: int = 0
    broken: tuple[_Broken, ...] = ()

    def merge(self, other: TableRead) -> TableRead:
        broken: dict[tuple[Reason, tuple[str, ...]], _Broken] = {}
        for part in (*self.broken, *other.broken):
            rule = (part.reason, part.columns)
            broken[rule] = broken[rule].merge(part) if rule in broken else part
        return TableRead(self.rows + other.rows, tuple(broken.values()))

    def bad_rows(self, table_key: str) -> Iterator[BadRows]:
        for broken in self.broken:
            shown = [
                Violation(
                    table_key=table_key,
                    reason=broken.reason,
                    columns=broken.columns,
                    row=None,
                    id=row_id,
                    message=message,
                )
                for row_id, message in broken.first
            ]
            yield unplaced(shown, count=broken.count)


def read_through(
    runner: Runner, root: Root, entries: Iterable[TableEntry], rules: Mapping[str, TypeRules]
) -> Mapping[str, TableRead | OmnigraphError]:
    """Read every value; by table, what its rows are like, or why they cannot be read."""
    results: dict[str, TableRead | OmnigraphError] = {}
    pieces: list[_Group] = []
    for entry in entries:
        try:
            pieces += _groups(root, entry, open_pinned(root, entry).schema.names)
            results[entry.table_key] = TableRead()
        except OmnigraphError as error:
            results[entry.table_key] = error
    stage = Stage(verb=_VERB, name="read rows")
    answers = runner.map(stage, pieces, partial(_read_group, root, rules), TableRead)
    for piece, answer in zip(pieces, answers, strict=True):
        read = results[piece.entry.table_key]
        if not isinstance(read, OmnigraphError):
            results[piece.entry.table_key] = (
                answer if isinstance(answer, OmnigraphError) else read.merge(answer)
            )
    return results


def broken_rules(
    runner: Runner, root: Root, snapshot: Snapshot, rules: Mapping[str, TypeRules]
) -> Iterator[BadRows]:
    """Every broken keyed rule of every table in the snapshot; each table has its rules."""
    tables = snapshot.tables
    plan = _key_plan([rules[table_key] for table_key in tables])
    violations = _exchange_keys(runner, root, list(tables.values()), plan)
    for table_key, entry in tables.items():
        for verdict in _verdicts(rules[table_key]):
            refused = violations.get((table_key, verdict))
            if refused is not None:
                shown = _quote(root, entry, rules[table_key], verdict, refused.first)
                yield unplaced(shown, count=refused.count)


def _groups(root: Root, entry: TableEntry, columns: Sequence[str]) -> list[_Group]:
    scan = plan_scan(root, entry, columns=columns, where=None)
    return [
        _Group(entry=entry, fragments=fragments, columns=tuple(columns))
        for fragments in grouped(scan.fragments, rows_max=_ROWS_PER_PIECE)
    ]


def _read_group(root: Root, rules: Mapping[str, TypeRules], piece: _Group, task: Task) -> TableRead:
    read = TableRead()
    checked = _row_rules(rules.get(piece.entry.table_key), piece)
    for batch in scan_fragments(
        root, piece.entry, piece.fragments, columns=piece.columns, where=None
    ):
        task.advance(rows=batch.num_rows)
        bad = check_rows(batch, checked)
        read = read.merge(TableRead(batch.num_rows, tuple(map(_brief, bad))))
    return read


def _row_rules(rules: TypeRules | None, piece: _Group) -> TypeRules:
    """Those of the columns that are stored; Json is parsed nowhere else, which costs the most."""
    chosen = [
        rule
        for rule in (() if rules is None else rules.row_rules)
        if rule.column in piece.columns and not isinstance(rule, CanonicalJson)
    ]
    return TypeRules(table_key=piece.entry.table_key, row_rules=tuple(chosen), keyed_rules=())


def _brief(bad: BadRows) -> _Broken:
    first = [(str(violation.id), violation.message) for violation in bad.kept[:EXAMPLES_MAX]]
    return _Broken(bad.reason, bad.columns, bad.count, tuple(first))


def _verdicts(rules: TypeRules) -> Iterator[Verdict]:
    """The ways to break the keyed rules of a table, in the order of the rules; ids come first."""
    yield Verdict(reason=Reason.DUPLICATE_ID, columns=(ID_COLUMN,))
    columns: set[str] = set()
    for rule in rules.keyed_rules:
        match rule:
            case UniqueTuple():
                yield Verdict(reason=rule.reason, columns=rule.columns)
            case EndpointExists():
                if rule.column not in columns:
                    yield Verdict(reason=rule.reason, columns=(rule.column,))
                columns.add(rule.column)
            case EdgeCount():
                yield Verdict(reason=Reason.TOO_MANY_EDGES, columns=(SOURCE_COLUMN,))
                yield Verdict(reason=Reason.TOO_FEW_EDGES, columns=(SOURCE_COLUMN,))
            case _:
                assert_never(rule)


class _Refused(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a table that violate a rule: their number, and the first of their addresses."""

    table_key: str
    reason: Reason
    columns: tuple[str, ...]
    count: int
    first: tuple[int, ...]

    def merge(self, other: _Refused) -> _Refused:
        first = sorted((*self.first, *other.first))[:EXAMPLES_MAX]
        return msgspec.structs.replace(self, count=self.count + other.count, first=tuple(first))


def _key_plan(rules: Sequence[TypeRules]) -> KeyPlan:
    return KeyPlan(
        roles=tuple(role for type_rules in rules for role in roles_of(type_rules, pinned=False)),
        mode=WriteMode.APPEND,
        counts={
            type_rules.table_key: rule
            for type_rules in rules
            for rule in type_rules.keyed_rules
            if isinstance(rule, EdgeCount)
        },
        overwritten=frozenset(),
        tracked=frozenset(),
    )


def _exchange_keys(
    runner: Runner, root: Root, entries: Sequence[TableEntry], plan: KeyPlan
) -> dict[tuple[str, Verdict], _Refused]:
    """All violations, by table and verdict."""
    pieces: list[_Group] = []
    keys = 0
    for entry in entries:
        roles = [role for role in plan.roles if role.table_key == entry.table_key]
        columns = dict.fromkeys(name for role in roles for name in role.read_columns)
        pieces += _groups(root, entry, list(columns))
        keys += entry.row_count * len(roles)
    hashing = Hashing.for_keys(keys)
    violations: dict[tuple[str, Verdict], _Refused] = {}
    for _, message in runner.exchange(
        Stage(verb=_VERB, name="compare keys"),
        pieces,
        partial(_send_keys, root, plan, hashing),
        Hop(partitions=hashing.partitions, receive=partial(_check_keys, plan, hashing)),
    ):
        refused = msgspec.msgpack.decode(message, type=_Refused)
        key = (refused.table_key, Verdict(reason=refused.reason, columns=refused.columns))
        violations[key] = violations[key].merge(refused) if key in violations else refused
    return violations


def _send_keys(
    root: Root, plan: KeyPlan, hashing: Hashing, piece: _Group, task: Task
) -> Iterator[Sent]:
    roles = [
        (number, role)
        for number, role in enumerate(plan.roles)
        if role.table_key == piece.entry.table_key
    ]
    # With many buckets more keys are held, so that the messages do not become too small.
    held_max = max(_KEYS_HELD_LEAST, min(_KEYS_PER_MESSAGE * hashing.buckets, _KEYS_HELD_MOST))
    buckets = KeyBuckets(hashing)
    for batch in scan_fragments(
        root, piece.entry, piece.fragments, columns=[*piece.columns, ROW_ADDRESS], where=None
    ):
        task.advance(rows=batch.num_rows)
        addresses = batch.column(ROW_ADDRESS).to_numpy()
        for number, role in roles:
            buckets.add(number, role.keys(batch), addresses)
        if buckets.count >= held_max:
            yield from buckets.buckets()
    yield from buckets.buckets()


def _check_keys(
    plan: KeyPlan, hashing: Hashing, messages: Iterator[bytes], task: Task
) -> Iterator[Sent]:
    for keys in read_buckets(messages, hashing, task):
        task.advance()
        for finding in check_bucket(keys, plan):
            assert isinstance(finding, Finding), "nothing replaces a row here"
            refused = _Refused(
                finding.table_key,
                finding.reason,
                finding.columns,
                len(finding.rows),
                tuple(finding.rows[:EXAMPLES_MAX].tolist()),
            )
            yield task.number, msgspec.msgpack.encode(refused)


def _quote(
    root: Root, entry: TableEntry, rules: TypeRules, verdict: Verdict, addresses: Sequence[int]
) -> list[Violation]:
    """The rows that are shown, with what the rule looks at in them."""
    columns = [ID_COLUMN, *verdict.columns_quoted(rules)]
    rows = rows_at(root, entry, np.array(addresses, np.uint64), columns=columns)
    quoted = [rows.column(name) for name in verdict.columns_quoted(rules)]
    return [
        Violation(
            table_key=entry.table_key,
            reason=verdict.reason,
            columns=verdict.columns,
            row=None,
            id=row_id,
            message=verdict.text(rules, values),
        )
        for row_id, values in zip(
            rows.column(ID_COLUMN).to_pylist(), zip(*quoted, strict=True), strict=True
        )
    ]
