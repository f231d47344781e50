"""Every runner merges alike: rows, row ids, counts, conflicts and broken rules."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.diff.table_diff import diff_table
from omnigraph_lake.errors import MergeConflictError
from omnigraph_lake.failpoints import Action, Armed, FailpointReached, arm, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.merge import stage
from omnigraph_lake.merge.conflicts import MergePolicy
from omnigraph_lake.merge.decide import TableToDecide, check_decided, decide_tables
from omnigraph_lake.merge.three_way import TableToMerge
from omnigraph_lake.runner import choose
from omnigraph_lake.runner.protocol import Runner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.schema.compile import compile_schema
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.staging import edits
from omnigraph_lake.ulids import new_ulid
from omnigraph_lake.validation.constraints import table_rules
from omnigraph_lake.validation.input.intake import declared_types
from omnigraph_lake.validation.lookups import SnapshotTables
from tests.behaviours.copies import made_once
from tests.behaviours.histories import content, put, row_ids
from tests.diff.buckets import set_rows_per_bucket
from tests.gate.selection import for_gate
from tests.runner.random_runner import RandomRunner
from tests.stores import folder_of

pytestmark = pytest.mark.behaviour

RUNNERS: dict[str, Callable[[], Runner]] = {
    "threads": lambda: ThreadRunner(parallel=4),
    **{
        f"random {seed}": partial(RandomRunner, seed)
        for seed in for_gate(range(4), lambda seed: seed == 0)
    },
}
BUCKETS = {"read in place": 500_000, "scattered": 40}
SCHEMA = """
node Doc {
    name: String @key
    nick: String? @unique
    size: I64?
    word: String?
    raw: Blob?
    at: Vector(2)?
    @range(size, 0..100)
}
edge Cites: Doc -> Doc @card(0..3) { page: I32? }
"""


@contextmanager
def merging_on(runner: Callable[[], Runner]) -> Iterator[None]:
    @contextmanager
    def chosen(root: object, spark: object, observer: object = None) -> Iterator[Runner]:
        del root, spark, observer
        yield runner()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "chosen_runner", chosen)
        yield


def document(number: int, salt: int) -> dict[str, Any]:
    return {
        "name": f"d{number:02}",
        "nick": f"n{number}",
        "size": salt,
        "word": "abc"[salt % 3],
        "raw": bytes([salt]) * (number * 5_000),
        "at": [float(salt), -0.0],
    }


def citation(number: int, source: int, target: int = 0) -> dict[str, Any]:
    return {"id": f"c{number:02}", "src": f"d{source:02}", "dst": f"d{target:02}", "page": 1}


@made_once
def forked_graph(root: str) -> None:
    """Two branches that change the same rows, without a broken rule."""
    graph = og.init(root, schema=SCHEMA)
    graph.write({"Doc": [document(number, 0) for number in range(30)]})
    graph.write({"Cites": [citation(number, number) for number in range(20)]})
    dev = graph.branches.create("dev")
    rng = random.Random(11)
    for branch, salts in ((graph, (1, 2)), (dev, (3, 4))):
        for salt in salts:
            put(branch, Doc=[document(number, salt) for number in rng.sample(range(12, 35), 9)])
        put(branch, Cites=[citation(n, n, salts[0]) for n in rng.sample(range(12, 24), 5)])
        branch.delete({"Doc": [f"d{rng.randrange(5, 12):02}"]})
    put(dev, Doc=[document(number, 5) for number in range(40, 50)])


@made_once
def broken_graph(root: str) -> None:
    """Two branches that break rules of every kind together, and each of them keeps all."""
    graph = og.init(root, schema=SCHEMA)
    graph.write({"Doc": [document(number, 0) for number in range(20)]})
    graph.write({"Cites": [citation(number, number) for number in range(10, 20)]})
    dev = graph.branches.create("dev")
    put(dev, Doc=[{"name": f"x{n}", "nick": f"twice{n}"} for n in range(9)])
    put(graph, Doc=[{"name": f"y{n}", "nick": f"twice{n}"} for n in range(9)])
    put(dev, Cites=[citation(40 + n, 0, n) for n in range(2)])
    put(graph, Cites=[citation(50 + n, 0, n) for n in range(2)])
    put(dev, Cites=[citation(60 + n, 3, 2) for n in range(3)])
    graph.delete({"Doc": ["d02"]})
    put(graph, Doc=[document(5, 1)])
    put(dev, Doc=[document(5, 2)])


def result_of(graph: Graph, **wishes: Any) -> dict[str, Any]:
    """Everything that a merge reports and leaves, without ids of commits."""
    before, known = content(graph), all_row_ids(graph)
    try:
        result = graph.merge("dev", **wishes)
    except MergeConflictError as error:
        assert content(graph) == before
        conflicts = error.conflicts.to_pylist()  # type: ignore[attr-defined]
        return {"message": str(error), "details": error.details, "conflicts": conflicts}
    assert graph.maintenance.check().ok
    return {
        "outcome": result.outcome,
        "tables": dict(result.tables),
        "resolved": result.resolved.to_pylist(),
        "rows": stored_rows(graph),
        "row ids": all_row_ids(graph) & known,
        "commit": graph.commits(limit=1)[0].tables,
    }


def all_row_ids(graph: Graph) -> set[tuple[str, str, int]]:
    return {
        (key, row, number)
        for key in graph.snapshot().tables
        for row, number in row_ids(graph, key).items()
    }


def stored_rows(graph: Graph) -> dict[str, list[dict[str, Any]]]:
    rows = {}
    for key, entry in graph.snapshot().tables.items():
        scanner = open_pinned(graph._objects.root, entry).scanner(blob_handling="all_binary")
        rows[key] = scanner.to_table().sort_by("id").to_pylist()
    return rows


@pytest.mark.parametrize("rows_per_bucket", BUCKETS.values(), ids=BUCKETS)
@pytest.mark.parametrize("resolve", for_gate(["newest", None], lambda choice: choice is not None))
def test_runners_merge_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_bucket: int, resolve: str | None
) -> None:
    expected = result_of(forked_graph(str(tmp_path / "expected")), resolve=resolve)
    assert ("conflicts" in expected) == (resolve is None)
    set_rows_per_bucket(monkeypatch, rows_per_bucket)

    for name, runner in RUNNERS.items():
        with merging_on(runner):
            assert result_of(forked_graph(str(tmp_path / name)), resolve=resolve) == expected


@pytest.mark.parametrize("rows_per_bucket", BUCKETS.values(), ids=BUCKETS)
def test_a_dry_run_reports_what_the_merge_does(
    graph_root: str, monkeypatch: pytest.MonkeyPatch, rows_per_bucket: int
) -> None:
    set_rows_per_bucket(monkeypatch, rows_per_bucket)
    graph = forked_graph(graph_root)

    preview = graph.merge("dev", dry_run=True, resolve="newest")
    result = graph.merge("dev", resolve="newest")

    assert preview.tables == result.tables
    assert preview.resolved.equals(result.resolved)
    assert len(result.resolved) > 0


@pytest.mark.parametrize("rows_per_bucket", BUCKETS.values(), ids=BUCKETS)
def test_runners_report_conflicts_and_broken_rules_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_bucket: int
) -> None:
    expected = result_of(broken_graph(str(tmp_path / "expected")))
    conflicts = expected["conflicts"]
    kinds = [conflict["kind"] for conflict in conflicts]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "divergent_update": 4,
        "not_unique": 9,
        "missing_endpoint": 3,
        "too_many_edges": 1,
    }
    message = "found 'd02', expected the id of a Doc that exists"
    assert message in [row["theirs"] for row in conflicts]
    set_rows_per_bucket(monkeypatch, rows_per_bucket)

    for name, runner in RUNNERS.items():
        with merging_on(runner):
            assert result_of(broken_graph(str(tmp_path / name))) == expected


@pytest.mark.parametrize(
    ("probe_ids_max", "share"), [(0, 0), (0, 100), (500, 0)], ids=["filter", "changes", "lookup"]
)
def test_rows_of_the_target_are_found_by_a_scan_in_parts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probe_ids_max: int, share: int
) -> None:
    expected = result_of(forked_graph(str(tmp_path / "expected")), resolve="ours")
    monkeypatch.setattr(stage, "ROWS_PER_SCAN", 5)
    monkeypatch.setattr(stage, "PROBE_IDS_MAX", probe_ids_max)
    monkeypatch.setattr(edits, "PROBE_IDS_MAX", probe_ids_max)
    monkeypatch.setattr(edits, "_LOCATED_SHARE", share)

    for name, runner in RUNNERS.items():
        with merging_on(runner):
            assert result_of(forked_graph(str(tmp_path / name)), resolve="ours") == expected


@pytest.mark.parametrize("rows_per_bucket", BUCKETS.values(), ids=BUCKETS)
@pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
def test_rules_of_rows_are_reported_in_the_order_of_rules_and_ids(
    graph_root: str,
    monkeypatch: pytest.MonkeyPatch,
    rows_per_bucket: int,
    runner: Callable[[], Runner],
) -> None:
    set_rows_per_bucket(monkeypatch, rows_per_bucket)
    graph = og.init(graph_root, schema="node P { name: String @key  x: I64?  y: I64? }")
    graph.write({"P": [{"name": f"p{number:03}"} for number in range(150)]})
    before = graph.snapshot().pinned
    put(graph, P=[{"name": f"p{n:03}", "x": n % 2, "y": n % 3} for n in range(150)])
    after = graph.snapshot().pinned
    # Rules that the source was not held to: no merge of two sides that keep theirs breaks any.
    catalog = compile_schema(
        "node P { name: String @key  x: I64?  y: I64?  @range(x, 0..0) @range(y, 0..1) }",
        filename="strict",
        identity_domain=new_ulid(),
    )
    rules, root = table_rules(catalog), graph._objects.root
    table = TableToDecide.plan(
        0,
        theirs=diff_table(root, before.tables["node:P"], after.tables["node:P"]),
        ours=None,
        merge=TableToMerge(
            table_key="node:P",
            schema=table_schema(declared_types(catalog)["node:P"]),
            policy=MergePolicy(source_is_newer=True),
        ),
        rules=rules["node:P"],
        written=False,
    )
    tasks = runner()

    with tasks.scratch(new_ulid()) as scratch:
        decided = decide_tables(tasks, scratch, [table])
        broken = check_decided(scratch, decided, rules, SnapshotTables(root=root, snapshot=before))

    odd = [(f"p{number:03}", "x") for number in range(1, 150, 2)]
    third = [(f"p{number:03}", "y") for number in range(2, 150, 3)]
    assert broken.total == len(odd) + len(third)
    rows = broken.conflicts.to_pylist()
    assert [(row["id"], row["column"]) for row in rows] == [*odd, *third][:100]


@pytest.mark.parametrize("rows_per_bucket", BUCKETS.values(), ids=BUCKETS)
def test_a_merge_that_fails_half_way_leaves_no_file(
    graph_root: str, monkeypatch: pytest.MonkeyPatch, rows_per_bucket: int
) -> None:
    set_rows_per_bucket(monkeypatch, rows_per_bucket)
    graph = forked_graph(graph_root)
    before, files = content(graph), data_files(graph)
    arm("merge.staged", Armed(action=Action.ERROR))
    try:
        with pytest.raises(FailpointReached):
            graph.merge("dev", resolve="ours")
    finally:
        disarm_all()

    assert content(graph) == before
    assert data_files(graph) == files
    assert graph.maintenance.recover().left_alone == ()


def data_files(graph: Graph) -> set[Path]:
    folders = (folder_of(graph.root, "nodes"), folder_of(graph.root, "edges"))
    return {file for folder in folders for file in folder.rglob("data/*") if file.is_file()}


def test_a_merge_into_a_branch_writes_there(tmp_path: Path) -> None:
    graph = forked_graph(str(tmp_path / "graph"))
    before = content(graph)
    dev = graph.checkout("dev")
    with merging_on(partial(RandomRunner, 5)):
        dev.merge("main", resolve="theirs")

    assert content(graph) == before
    assert set(content(dev)["Doc"]) >= {"d00", "d40"}
    assert dev.maintenance.check().ok
