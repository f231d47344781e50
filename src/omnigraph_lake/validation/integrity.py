"""Reads every published row of a graph, and checks the rules that involve more than one row.

Groups of fragments are the pieces of both. For the rules they send the hashed keys of their rows to
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
    EdgeCount,
    EndpointExists,
    TypeRules,
    UniqueTuple,
    WriteMode,
)
from omnigraph_lake.validation.hashed_keys import Hashing, KeyBuckets, read_buckets
from omnigraph_lake.validation.keyed_bucket import Finding, KeyPlan, check_bucket, roles_of
from omnigraph_lake.validation.keyed_passes import Verdict
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


def read_through(
    runner: Runner, root: Root, entries: Iterable[TableEntry]
) -> Mapping[str, int | OmnigraphError]:
    """Read every value; by table, how many rows there were, or why they cannot be read."""
    results: dict[str, int | OmnigraphError] = {}
    pieces: list[_Group] = []
    for entry in entries:
        try:
            pieces += _groups(root, entry, open_pinned(root, entry).schema.names)
            results[entry.table_key] = 0
        except OmnigraphError as error:
            results[entry.table_key] = error
    stage = Stage(verb=_VERB, name="read rows")
    answers = runner.map(stage, pieces, partial(_read_group, root), int)
    for piece, answer in zip(pieces, answers, strict=True):
        rows = results[piece.entry.table_key]
        if not isinstance(rows, OmnigraphError):
            results[piece.entry.table_key] = (
                answer if isinstance(answer, OmnigraphError) else rows + answer
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


def _read_group(root: Root, piece: _Group, task: Task) -> int:
    rows = 0
    for batch in scan_fragments(
        root, piece.entry, piece.fragments, columns=piece.columns, where=None
    ):
        task.advance(rows=batch.num_rows)
        rows += batch.num_rows
    return rows


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
