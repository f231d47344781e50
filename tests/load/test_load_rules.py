"""Rules of a load, against the oracle: many small cases, on runners that vary everything."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import LoadRefusedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.load import piece_tasks, pipeline
from omnigraph_lake.load.report import LoadReport
from omnigraph_lake.runner.protocol import Runner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.validation.pinned_access import Access
from tests.drawing import drawn
from tests.load.oracle import SCHEMA, TABLES, Case, Table, expect
from tests.load.random_loads import loads
from tests.runner.random_runner import RandomRunner
from tests.validation.exchanges import prefer, share_ids, small_exchange

pytestmark = pytest.mark.random

RUNNERS: dict[str, Callable[[Root, int], Runner]] = {
    "threads": lambda _, seed: ThreadRunner(parallel=1 + seed % 3, held_bytes=seed % 100),
    "random": lambda _, seed: RandomRunner(seed),
    "random, staged as fragments": lambda root, seed: RandomRunner(seed, root=root),
}


def line(table: str, row: dict[str, object]) -> str:
    data = dict(row)
    kind, _, name = table.partition(":")
    if kind == "node":
        if name == "A":
            data.pop("id")
        return json.dumps({"type": name, "data": data})
    source, target = data.pop("src"), data.pop("dst")
    return json.dumps({"edge": name, "from": source, "to": target, "data": data})


def contents(graph: Graph) -> dict[str, Table]:
    found: dict[str, Table] = {}
    for table in TABLES:
        rows = graph.scan(table)
        found[table] = {row["id"]: row for row in rows.read_all().to_pylist()}
    return found


def filled(graph: dict[str, Table]) -> dict[str, Table]:
    columns = {
        "node:A": ("id", "name", "tag", "at"),
        "node:B": ("id", "x", "y", "z"),
        "edge:R": ("id", "src", "dst", "w", "at"),
        "edge:S": ("id", "src", "dst"),
        "edge:T": ("id", "src", "dst"),
    }
    return {
        table: {
            name: {column: row.get(column) for column in columns[table]}
            for name, row in graph[table].items()
        }
        for table in TABLES
    }


def graph_with(root: str, published: dict[str, Table]) -> Graph:
    graph = og.init(root, schema=SCHEMA)
    rows = {table: list(held.values()) for table, held in published.items() if held}
    if rows:
        graph.write(rows)
    return graph


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", RUNNERS)
def test_every_record_has_the_fate_that_plain_reasoning_gives_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_exchange(monkeypatch)
    monkeypatch.setattr(pipeline, "_EDITED_ROWS_MAX", 3)
    monkeypatch.setattr(piece_tasks, "_ROWS_PER_WRITE", 2)

    @drawn(3)
    @given(case=loads(), seed=st.integers(0, 10_000))
    def agree(case: Case, seed: int) -> None:
        prefer(list(Access)[seed % len(Access)], monkeypatch)
        share_ids(shared=seed % 2 == 0, monkeypatch=monkeypatch)
        require_fates(case, monkeypatch, lambda root: RUNNERS[kind](root, seed))

    agree()


def require_fates(
    case: Case, monkeypatch: pytest.MonkeyPatch, make_runner: Callable[[Root], Runner]
) -> None:
    expected = expect(case)
    with tempfile.TemporaryDirectory() as folder:
        graph = graph_with(f"{folder}/graph", dict(case.published))
        runner = make_runner(parse_root(graph.root))
        monkeypatch.setattr(load_operation, "ThreadRunner", lambda _: runner)
        before = contents(graph)
        middle = len(case.records) // 2
        for number, part in enumerate((case.records[:middle], case.records[middle:])):
            text = "".join(f"{line(each.table, each.row)}\n" for each in part)
            Path(folder, f"{number}.jsonl").write_text(text)

        def load() -> LoadReport:
            return graph.load(
                [f"{folder}/0.jsonl", f"{folder}/1.jsonl"],
                mode=case.mode,
                on_error="quarantine",
                options=LoadOptions(order_by=case.order_by, max_rejected="100%", engine="local"),
            )

        if expected.broken:
            with pytest.raises(LoadRefusedError, match="left broken"):
                load()
            assert contents(graph) == before
            return
        report = load()

        assert report.quarantined == expected.quarantined()
        labels = {f"{kind}:{name}": name for kind, _, name in (t.partition(":") for t in TABLES)}
        written = {labels[table]: count for table, count in expected.written(case).items()}
        assert report.written == written
        assert contents(graph) == filled(expected.graph)
        assert graph.maintenance.check().ok, graph.maintenance.check().findings
        if report.quarantined:
            rows = pq.read_table(report.quarantine).to_pylist()
            found = {
                (middle if row["file"].endswith("1.jsonl") else 0) + row["line"] - 1: row["reason"]
                for row in rows
            }
            assert found == expected.refused
        assert not list(Path(folder, "graph", "_staging").rglob("*-0*"))
