"""Checks the rules of published rows that involve more than one row.

Invariant: each rule is one relational query over the pinned tables, streamed column by column; the
answer is a count and a few examples, never rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from omnigraph import names
from omnigraph.storage.lance.tables import scan
from omnigraph.validation.constraints import EdgeCount, EndpointExists, TypeRules, UniqueTuple
from omnigraph.validation.lookups import database
from omnigraph.validation.violations import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import duckdb

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot

_EXAMPLES_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that published rows break: how often, and the first of them."""

    table_key: str
    reason: Reason
    count: int
    examples: tuple[str, ...]


def broken_rules(
    root: Root, snapshot: Snapshot, rules: Mapping[str, TypeRules]
) -> Iterator[BrokenRule]:
    """Every broken keyed rule of every table in the snapshot."""
    for table_key in snapshot.tables:
        yield from _duplicates(root, snapshot, table_key, (names.ID_COLUMN,), Reason.DUPLICATE_ID)
        for rule in rules[table_key].keyed_rules if table_key in rules else ():
            match rule:
                case UniqueTuple():
                    yield from _duplicates(
                        root, snapshot, table_key, rule.columns, Reason.NOT_UNIQUE
                    )
                case EndpointExists():
                    yield from _dangling(root, snapshot, table_key, rule)
                case EdgeCount():
                    yield from _edge_counts(root, snapshot, table_key, rule)
                case _:
                    assert_never(rule)


def _duplicates(
    root: Root, snapshot: Snapshot, table_key: str, columns: Sequence[str], reason: Reason
) -> Iterator[BrokenRule]:
    listed = ", ".join(_quote(column) for column in columns)
    present = " AND ".join(f"{_quote(column)} IS NOT NULL" for column in columns)
    query = (
        f"SELECT concat_ws(', ', {listed}) AS example, count(*) AS n FROM this "  # noqa: S608
        f"WHERE {present} GROUP BY {listed} HAVING count(*) > 1"
    )
    with database() as opened:
        opened.register("this", scan(root, snapshot.tables[table_key], columns=list(columns)))
        yield from _broken(opened, query, table_key, reason)


def _dangling(
    root: Root, snapshot: Snapshot, table_key: str, rule: EndpointExists
) -> Iterator[BrokenRule]:
    query = (
        f"SELECT edge.id || ' -> ' || edge.{_quote(rule.column)} AS example "  # noqa: S608
        f"FROM edge ANTI JOIN node ON edge.{_quote(rule.column)} = node.id"
    )
    with database() as opened:
        opened.register(
            "edge", scan(root, snapshot.tables[table_key], columns=[names.ID_COLUMN, rule.column])
        )
        opened.register(
            "node", scan(root, snapshot.tables[rule.node_key], columns=[names.ID_COLUMN])
        )
        yield from _broken(opened, query, table_key, rule.reason)


def _edge_counts(
    root: Root, snapshot: Snapshot, table_key: str, rule: EdgeCount
) -> Iterator[BrokenRule]:
    bounds = []
    if rule.maximum is not None:
        bounds.append((f"count(*) > {rule.maximum}", Reason.TOO_MANY_EDGES))
    if rule.minimum > 1:
        bounds.append((f"count(*) < {rule.minimum}", Reason.TOO_FEW_EDGES))
    for broken, reason in bounds:
        query = f"SELECT src AS example FROM edge GROUP BY src HAVING {broken}"  # noqa: S608
        with database() as opened:
            edges = scan(root, snapshot.tables[table_key], columns=[names.SOURCE_COLUMN])
            opened.register("edge", edges)
            yield from _broken(opened, query, table_key, reason)


def _broken(
    opened: duckdb.DuckDBPyConnection, query: str, table_key: str, reason: Reason
) -> Iterator[BrokenRule]:
    summary = opened.execute(
        f"SELECT count(*), list(example)[:{_EXAMPLES_MAX}] FROM ({query})"  # noqa: S608
    ).fetchone()
    assert summary is not None
    count, examples = summary
    if count:
        yield BrokenRule(table_key=table_key, reason=reason, count=count, examples=tuple(examples))


def _quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
