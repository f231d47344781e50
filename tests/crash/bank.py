"""A bank: every transfer is one commit over three tables, so any half of one shows in the books.

Invariant: a transfer row tells the balance it started from, so that the books can be replayed in
the order of commits and every row be checked, not only the sum.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.phases import Author, Finished, Prepared, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.sidecar import WriterKind
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.tables import open_pinned, scan
from omnigraph_lake.storage.manifest.state import ManifestState
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.snapshot import Snapshot, take_snapshot
from omnigraph_lake.storage.staging.changes import (
    StagedChange,
    restage_append,
    stage_append,
)
from omnigraph_lake.storage.staging.edits import stage_upserts

SCHEMA = """
node Account { name: String @key  balance: I64 }
node Audit { name: String @key  writer: I64 }
edge Transfer: Account -> Account { amount: I64  found: I64 }
"""
ACCOUNT, AUDIT, TRANSFER = "node:Account", "node:Audit", "edge:Transfer"
ACCOUNTS, OPENING_BALANCE = 12, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One operation: who pays whom how much."""

    operation_id: str
    source: str
    target: str
    amount: int
    writer: int


def found_bank(root: str) -> Graph:
    graph = og.init(root, schema=SCHEMA)
    rows = [{"name": f"a{n}", "balance": OPENING_BALANCE} for n in range(ACCOUNTS)]
    graph.write({"Account": rows})
    return graph


def any_transfer(chance: random.Random, writer: int) -> Transfer:
    source, target = chance.sample(range(ACCOUNTS), 2)
    return Transfer(
        operation_id=str(ULID()),
        source=f"a{source}",
        target=f"a{target}",
        amount=chance.randint(1, 50),
        writer=writer,
    )


def carry_out(graph: Graph, transfer: Transfer) -> Finished:
    """Commit a transfer, whose new balances are worked out again whenever a race is lost."""
    author = Author(
        operation_id=transfer.operation_id, actor=f"writer {transfer.writer}", branch=None
    )
    return commit_write(
        WriteRequest.of(graph._objects, SYSTEM_CLOCK, WriterKind.WRITE, author, schema_hash=None),
        Verb(prepare=_Preparation(graph, transfer).prepare),
    )


class _Preparation:
    """Stages one transfer; files of rows that depend on no balance are used again."""

    def __init__(self, graph: Graph, transfer: Transfer) -> None:
        self._root = graph._objects.root
        self._transfer = transfer
        self._audit: StagedChange | None = None

    def prepare(self, state: ManifestState) -> Prepared:
        transfer = self._transfer
        snapshot = take_snapshot(state.rows, branch=None, manifest_version=state.version)
        entry = snapshot.tables[ACCOUNT]
        balances = {
            row["id"]: row["balance"] for row in scan(self._root, entry).read_all().to_pylist()
        }
        changes = {transfer.source: -transfer.amount, transfer.target: transfer.amount}
        accounts = [
            {"id": name, "name": name, "balance": balances[name] + change}
            for name, change in changes.items()
        ]
        paid = {
            "id": transfer.operation_id,
            "src": transfer.source,
            "dst": transfer.target,
            "amount": transfer.amount,
            "found": balances[transfer.source],
        }
        return Prepared(
            changes=(
                stage_upserts(
                    StoredObjects(self._root), entry, self._rows(snapshot, ACCOUNT, accounts)
                ),
                stage_append(
                    self._root, snapshot.tables[TRANSFER], self._rows(snapshot, TRANSFER, [paid])
                ),
                self._audited(snapshot),
            ),
            read_set=frozenset(),
        )

    def _audited(self, snapshot: Snapshot) -> StagedChange:
        entry = snapshot.tables[AUDIT]
        if self._audit is None:
            name = self._transfer.operation_id
            row = {"id": name, "name": name, "writer": self._transfer.writer}
            self._audit = stage_append(self._root, entry, self._rows(snapshot, AUDIT, [row]))
        else:
            self._audit = restage_append(self._root, self._audit, entry)
        return self._audit

    def _rows(self, snapshot: Snapshot, key: str, rows: list[dict[str, Any]]) -> pa.Table:
        schema = open_pinned(self._root, snapshot.tables[key]).schema
        return pa.Table.from_pylist(rows, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """All rows of the bank in one snapshot."""

    balances: Mapping[str, int]
    transfers: Mapping[str, Mapping[str, Any]]
    mistakes: tuple[str, ...]


def read_books(graph: Graph, snapshot: Snapshot | None = None) -> Books:
    """Read one snapshot and prove that it holds whole transfers only."""
    taken = snapshot or graph.snapshot()
    rows = {
        key: scan(graph._objects.root, taken.tables[key]).read_all().to_pylist()
        for key in (ACCOUNT, AUDIT, TRANSFER)
    }
    mistakes = [
        f"{key} holds {name} {times} times"
        for key in rows
        for name, times in Counter(row["id"] for row in rows[key]).items()
        if times > 1
    ]
    expected = Counter({f"a{n}": OPENING_BALANCE for n in range(ACCOUNTS)})
    for row in rows[TRANSFER]:
        expected[row["src"]] -= row["amount"]
        expected[row["dst"]] += row["amount"]
    balances = {row["id"]: row["balance"] for row in rows[ACCOUNT]}
    if balances != dict(expected):
        mistakes.append(f"balances {balances}, but the transfers make {dict(expected)}")
    transfers = {row["id"]: row for row in rows[TRANSFER]}
    if set(transfers) != {row["id"] for row in rows[AUDIT]}:
        mistakes.append("transfers and audits differ")
    return Books(balances=balances, transfers=transfers, mistakes=tuple(mistakes))


def replay(graph: Graph, books: Books) -> tuple[str, ...]:
    """Go through the commits in order: each must have found the balance its forerunners left."""
    mistakes: list[str] = []
    balances = {f"a{n}": OPENING_BALANCE for n in range(ACCOUNTS)}
    seen: set[str] = set()
    for commit in reversed(graph.commits()):
        row = books.transfers.get(commit.operation_id)
        if row is None:
            if commit.actor.startswith("writer "):
                mistakes.append(f"operation {commit.operation_id} is committed without its rows")
            continue
        seen.add(commit.operation_id)
        if row["found"] != balances[row["src"]]:
            mistakes.append(f"{commit.operation_id} found {row['found']} in {row['src']}")
        balances[row["src"]] -= row["amount"]
        balances[row["dst"]] += row["amount"]
    if seen != set(books.transfers):
        mistakes.append(f"{len(set(books.transfers) - seen)} transfers belong to no commit")
    return tuple(mistakes)
