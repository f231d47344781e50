"""A merge on Spark ends as one in this process does: rows, counts, conflicts, broken rules."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake import failpoints
from omnigraph_lake.errors import MergeConflictError, StorageUnavailableError, ValidationFailedError
from omnigraph_lake.failpoints import Action, Armed, arm
from omnigraph_lake.graph import Graph
from omnigraph_lake.merge import row_merge
from omnigraph_lake.merge.conflicts import ConflictKind
from omnigraph_lake.merge.plan import MergeOutcome
from omnigraph_lake.runner import spark as spark_runner
from omnigraph_lake.runner.shuffle import files_by_bucket
from omnigraph_lake.storage.lance.tables import open_pinned
from tests.behaviours.copies import made_once
from tests.behaviours.histories import content, knows, owns, person, put, row_ids, small_graph
from tests.behaviours.random_histories import SCHEMA
from tests.behaviours.test_merged_schemas_random import live
from tests.diff.buckets import set_rows_per_bucket
from tests.drawing import seeds
from tests.spark.twice import TwiceSession
from tests.stores import folder_of

pytestmark = pytest.mark.spark

KINDS = {each.value for each in ConflictKind}
IDS = {
    "A": [f"a{number}" for number in range(5)],
    "B": [f"b{number}" for number in range(4)],
    "R": [f"r{number}" for number in range(8)],
    "S": [f"s{number}" for number in range(4)],
}


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few rows fill many buckets."""
    set_rows_per_bucket(monkeypatch, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Everything a merge tells, without what no two runs share."""

    outcome: MergeOutcome | None
    counts: dict[str, tuple[int, int, int]]
    resolved: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    violations: list[dict[str, Any]]

    @property
    def broken(self) -> set[tuple[str, str]]:
        return {(row["type"], row["kind"]) for row in self.violations}


def merged(graph: Graph, source: str, spark: SparkSession | None, **wishes: Any) -> Told:
    before = (graph.snapshot(), content(graph))
    try:
        result = graph.merge(source, spark=spark, **wishes)
    except MergeConflictError as error:
        assert (graph.snapshot(), content(graph)) == before
        assert left_over(graph) == []
        rows = error.conflicts.to_pylist()  # type: ignore[attr-defined]
        return Told(
            outcome=None,
            counts={},
            resolved=[],
            conflicts=[row for row in rows if row["kind"] in KINDS],
            violations=[row for row in rows if row["kind"] not in KINDS],
        )
    assert left_over(graph) == []
    return Told(
        outcome=result.outcome,
        counts={
            key: (each.inserted, each.updated, each.deleted) for key, each in result.tables.items()
        },
        resolved=result.resolved.to_pylist(),
        conflicts=[],
        violations=[],
    )


def left_over(graph: Graph) -> list[Path]:
    return [each for each in folder_of(graph.root, "_staging").rglob("*") if each.is_file()]


def random_row(rng: random.Random, kind: str) -> dict[str, Any]:
    name = rng.choice(IDS[kind])
    number = rng.choice([None, 0, 1])
    match kind:
        case "A":
            tag = rng.choice([None, None, None, "u", "v", "w"])
            return {"name": name, "x": number, "y": rng.choice([None, "", "t"]), "tag": tag}
        case "B":
            return {"name": name, "x": number}
        case "R":
            ends = {"src": rng.choice(IDS["A"]), "dst": rng.choice(IDS["B"])}
            return {"id": name, **ends, "w": number}
        case _:
            return {"id": name, "src": rng.choice(IDS["A"]), "dst": rng.choice(IDS["A"])}


def write_something(rng: random.Random, graphs: list[Graph]) -> None:
    """The same random write or delete on every graph; one that breaks a rule is left out."""
    kind = rng.choice(["A", "A", "B", "R", "R", "S"])
    gone = {kind: [rng.choice(IDS[kind])]} if rng.random() < 0.3 else {}
    drawn = [random_row(rng, kind) for _ in range(rng.randrange(1, 4))]
    rows = list({each.get("id", each.get("name")): each for each in drawn}.values())
    for graph in graphs:
        with suppress(ValidationFailedError):
            if gone:
                graph.delete(gone)
            else:
                graph.write({kind: rows}, mode="merge")


def random_pair(rng: random.Random, root: str) -> list[Graph]:
    """Two graphs with one history: a first write, a branch, and random writes on both sides."""
    graphs = [og.init(f"{root}-{number}", schema=SCHEMA) for number in range(2)]
    first = {kind: [{"name": name} for name in IDS[kind]] for kind in ("A", "B")}
    edges = [{"id": f"r{n}", "src": f"a{n}", "dst": "b0"} for n in range(4)]
    for graph in graphs:
        graph.write({**first, "R": edges})
        graph.branches.create("dev")
    return graphs


@pytest.mark.timeout(1800)
@pytest.mark.nightly(
    "two merges on each engine for each random history; the gate has one merge on Spark of every "
    "kind below, and random histories in one process in tests/behaviours/test_merge_random.py"
)
@pytest.mark.parametrize("seed", seeds("merge-engines", 16))
def test_random_histories_merge_alike_on_both_engines(
    seed: str, graph_root: str, spark: SparkSession
) -> None:
    rng = random.Random(seed)
    here, there = random_pair(rng, graph_root)
    for source, target in (("dev", "main"), ("main", "dev")):
        for branch in ("main", "dev"):
            for _ in range(rng.randrange(1, 5)):
                write_something(rng, [graph.checkout(branch) for graph in (here, there)])
        wishes = {
            "resolve": rng.choice([None, None, "ours", "theirs", "newest"]),
            "column_level": rng.random() < 0.7,
        }

        in_process = merged(here.checkout(target), source, None, **wishes)
        on_spark = merged(there.checkout(target), source, spark, **wishes)

        assert on_spark == in_process
        for branch in ("main", "dev"):
            assert content(there.checkout(branch)) == content(here.checkout(branch))
            assert there.checkout(branch).maintenance.check().ok


@pytest.mark.timeout(1800)
@pytest.mark.nightly(
    "several merges of random schemas for each history; the gate has one below, and histories "
    "in one process in tests/behaviours/test_merged_schemas_random.py"
)
@pytest.mark.parametrize("seed", seeds("merged-schemas-spark", 8))
def test_random_histories_with_schema_changes_merge_on_spark(
    seed: str, graph_root: str, spark: SparkSession
) -> None:
    live(graph_root, seed, spark=spark)


@made_once
def plain_graph(root: str) -> None:
    """The people and the pet of the small graph, without rules: their checks are half the jobs."""
    schema = """
    node Person { name: String @key  age: I32?  city: String? }
    node Pet { name: String @key }
    """
    people = [person("ann", age=1), person("bob", age=2), person("cyd", age=3)]
    og.init(root, schema=schema).write({"Person": people, "Pet": [{"name": "rex"}]})


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return plain_graph(graph_root)


@pytest.fixture
def ruled_graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


def test_tasks_bring_rows_to_a_schema_that_both_sides_changed(
    graph: Graph, spark: SparkSession
) -> None:
    text = graph.schema.text
    dev = graph.branches.create("dev")
    graph.schema.apply(text.replace("age: I32?", "age: I64?"))
    graph.write({"Person": [person(f"new{number}", age=number) for number in range(20)]})
    filled = text.replace("city: String?", 'town: String @rename_from("city") @backfill("none")')
    dev.schema.apply(filled)
    dev.write({"Person": [{"name": "ann", "town": "Rome"}]}, mode="merge")

    told = graph.merge("dev", spark=spark)

    people = {row["name"]: row for row in graph.scan("Person").read_all().to_pylist()}
    assert told.outcome is MergeOutcome.MERGED
    assert (people["ann"]["age"], people["ann"]["town"]) == (1, "Rome")
    assert {row["town"] for name, row in people.items() if name != "ann"} == {"none"}
    assert len(people) == 23
    assert graph.maintenance.check().ok


def test_a_dry_run_has_the_counts_of_the_merge(graph: Graph, spark: SparkSession) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("ann", age=10), person("dan")])
    put(graph, Person=[person("eve")])
    files = table_files(graph)

    preview = graph.merge("dev", spark=spark, dry_run=True)

    assert table_files(graph) == files
    assert graph.merge("dev").tables == preview.tables


def test_replaced_rows_keep_their_row_ids_and_counts_are_of_the_target(
    graph: Graph, spark: SparkSession
) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person(f"p{n}", age=n) for n in range(20)])
    put(dev, Person=[person("ann", age=10)])
    dev.delete({"Person": ["bob"]})
    put(graph, Person=[person("ann", age=1, city="Ulm"), person("eve")])
    before = row_ids(graph, "node:Person")

    result = graph.merge("dev", spark=spark)

    counts = result.tables["node:Person"]
    assert (counts.inserted, counts.updated, counts.deleted) == (20, 1, 1)
    after = row_ids(graph, "node:Person")
    assert {name: after[name] for name in ("ann", "cyd", "eve")} == {
        name: before[name] for name in ("ann", "cyd", "eve")
    }
    assert content(graph)["Person"]["ann"] == {
        "id": "ann",
        "name": "ann",
        "age": 10,
        "city": "Ulm",
    }
    assert graph.maintenance.check().ok


Edit = Callable[[Graph, Graph], None]


def _lost_endpoint(main: Graph, dev: Graph) -> None:
    put(dev, Knows=[knows("cyd-ann", "cyd", "ann")])
    main.delete({"Person": ["cyd"]})


def _same_nick(main: Graph, dev: Graph) -> None:
    put(dev, Person=[person("dan", nick="d")])
    put(main, Person=[person("eve", nick="d")])


def _too_many_pets(main: Graph, dev: Graph) -> None:
    put(dev, Pet=[{"name": "kit"}], Owns=[owns("ann-kit", "ann", "kit")])
    put(main, Pet=[{"name": "tom"}], Owns=[owns("ann-tom", "ann", "tom")])


RULED = """
node P { name: String @key  nick: String? @unique }
edge E: P -> P @card(1..2)
"""


def edges(*pairs: str) -> list[dict[str, Any]]:
    """Edges by the names of their ends, of one letter each."""
    return [{"id": pair, "src": pair[0], "dst": pair[1]} for pair in pairs]


def test_broken_rules_of_every_kind_are_told_before_a_table_is_touched(
    graph_root: str, spark: SparkSession
) -> None:
    graph = og.init(graph_root, schema=RULED)
    graph.write({"P": [person(name) for name in "abcde"], "E": edges("aa", "ba", "ca", "da", "ea")})
    dev = graph.branches.create("dev")
    put(dev, P=[person("x", nick="n")], E=edges("xa", "be", "cb"))
    put(graph, P=[person("y", nick="n"), person("d", nick="d")], E=edges("ya", "cd"))
    graph.delete({"P": ["e"]})
    dev.delete({"P": ["d"]})
    files = table_files(graph)

    told = merged(graph, "dev", spark, resolve="ours")

    assert told == merged(graph, "dev", None, resolve="ours")
    assert "found 'e', expected the id of a P that exists" in [
        row["theirs"] for row in told.violations
    ]
    assert told.broken == {
        ("node:P", "not_unique"),
        ("edge:E", "missing_endpoint"),
        ("edge:E", "too_many_edges"),
        ("edge:E", "too_few_edges"),
    }
    assert table_files(graph) == files
    assert graph.maintenance.check().ok
    assert graph.maintenance.recover().left_alone == ()


def test_open_conflicts_are_told(graph: Graph, spark: SparkSession) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person(name, age=10, city="Ulm") for name in ("cyd", "bob", "ann")])
    put(graph, Person=[person(name, age=11, city="Rom") for name in ("bob", "ann", "cyd")])

    told = merged(graph, "dev", spark)

    assert told == merged(graph, "dev", None)
    assert [(row["id"], row["column"]) for row in told.conflicts] == [
        (name, column) for name in ("ann", "bob", "cyd") for column in ("age", "city")
    ]


@pytest.mark.nightly("one more merge; the gate has open conflicts, and rules that are broken")
def test_open_conflicts_and_broken_rules_are_told_together(
    ruled_graph: Graph, spark: SparkSession
) -> None:
    graph, dev = ruled_graph, ruled_graph.branches.create("dev")
    _same_nick(graph, dev)
    put(dev, Person=[person("ann", age=10)])
    put(graph, Person=[person("ann", age=11)])

    told = merged(graph, "dev", spark)

    assert told == merged(graph, "dev", None)
    assert [(row["id"], row["column"]) for row in told.conflicts] == [("ann", "age")]
    assert told.broken == {("node:Person", "not_unique")}


@pytest.mark.nightly("one merge for each rule; the gate breaks all of them in one merge")
@pytest.mark.parametrize(
    ("edit", "broken"),
    [
        (_lost_endpoint, {("edge:Knows", "missing_endpoint")}),
        (_same_nick, {("node:Person", "not_unique")}),
        (_too_many_pets, {("edge:Owns", "too_many_edges")}),
    ],
)
def test_a_broken_rule_fails_the_merge_before_a_table_is_touched(
    ruled_graph: Graph, spark: SparkSession, edit: Edit, broken: set[tuple[str, str]]
) -> None:
    graph, dev = ruled_graph, ruled_graph.branches.create("dev")
    edit(graph, dev)
    heads = table_files(graph)

    told = merged(graph, "dev", spark)

    assert told.broken == broken
    assert merged(graph, "dev", None).broken == broken
    assert table_files(graph) == heads
    assert graph.maintenance.check().ok
    assert graph.maintenance.recover().left_alone == ()


def table_files(graph: Graph) -> set[Path]:
    """Every file of every table, of all versions and forks."""
    folders = (folder_of(graph.root, "nodes"), folder_of(graph.root, "edges"))
    return {each for folder in folders for each in folder.rglob("*") if each.is_file()}


@pytest.mark.nightly("one merge for each direction; the gate breaks this rule beside all others")
@pytest.mark.parametrize(
    ("source", "target"), [("dev", "main"), ("main", "dev")], ids=["written", "pointed"]
)
def test_a_node_that_stays_without_the_edge_it_needs_fails_the_merge(
    graph_root: str, spark: SparkSession, source: str, target: str
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    edges = [{"id": f"r{n}", "src": f"a{n}", "dst": "b0"} for n in range(3)]
    graph.write({"A": [{"name": f"a{n}"} for n in range(3)], "B": [{"name": "b0"}], "R": edges})
    graph.branches.create("dev")
    graph.checkout(source).delete({"A": ["a1"]})
    put(graph.checkout(target), A=[{"name": "a1", "x": 1}])

    told = merged(graph.checkout(target), source, spark, resolve="ours")

    assert told.broken == {("edge:R", "too_few_edges")}
    assert told == merged(graph.checkout(target), source, None, resolve="ours")


def test_blobs_lists_and_vectors_arrive_as_they_were(graph_root: str, spark: SparkSession) -> None:
    graph = og.init(
        graph_root,
        schema="node Doc { name: String @key  raw: Blob?  words: [String]?  at: Vector(3)? }",
    )

    def doc(name: str, seed: int) -> dict[str, Any]:
        raw = b"" if seed == 3 else str(seed).encode() * (1 if seed % 2 else 100_000)
        return {"name": name, "raw": raw, "words": [None, "", str(seed)], "at": [seed, 0.5, -0.0]}

    graph.write({"Doc": [doc(f"d{n}", n) for n in range(10)]})
    dev = graph.branches.create("dev")
    dev.write({"Doc": [doc(f"d{n}", n + 100) for n in range(5, 15)]}, mode="merge")
    dev.delete({"Doc": ["d0"]})
    graph.write({"Doc": [doc("d1", 201), doc("d9", 202)]}, mode="merge")

    graph.merge("dev", spark=spark, resolve="ours")

    expected = {f"d{n}": doc(f"d{n}", n) for n in range(2, 5)}
    expected |= {f"d{n}": doc(f"d{n}", n + 100) for n in range(5, 15)}
    expected |= {"d1": doc("d1", 201), "d9": doc("d9", 202)}
    entry = graph.snapshot().tables["node:Doc"]
    stored = open_pinned(graph._objects.root, entry).scanner(blob_handling="all_binary")
    found = {row["id"]: row for row in stored.to_table().to_pylist()}
    assert found == {name: {"id": name, **row} for name, row in expected.items()}
    assert graph.maintenance.check().ok


@pytest.mark.nightly(
    "one more merge; the gate merges into main here and into branches in one process, where "
    "tests/behaviours/test_branches.py looks at forks"
)
def test_a_merge_into_a_branch_forks_only_what_it_writes(graph: Graph, spark: SparkSession) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    put(graph, Person=[person("eve", age=5)], Pet=[{"name": "kit"}])

    dev.merge("main", spark=spark)

    assert set(content(dev)["Person"]) == {"ann", "bob", "cyd", "dan", "eve"}
    assert set(content(dev)["Pet"]) == {"rex", "kit"}
    assert dev.snapshot().tables["node:Pet"].fork is None
    assert dev.maintenance.check().ok


def test_a_rival_that_wins_is_merged_with(graph: Graph, spark: SparkSession) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4), person("ann", age=10)])
    put(graph, Person=[person("eve", age=5)])
    rival = og.open(graph.root)
    wrote: list[str] = []
    decide = row_merge.RowMerge.merge

    def and_lose(self: row_merge.RowMerge, *given: Any) -> row_merge.MergedRows:
        rows = decide(self, *given)
        if not wrote:
            wrote.append(put(rival, Person=[person("ann", age=1, city="Ulm")]))
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_merge.RowMerge, "merge", and_lose)
        graph.merge("dev", spark=spark)

    assert content(graph)["Person"]["ann"]["city"] == "Ulm"
    assert content(graph)["Person"]["ann"]["age"] == 10
    assert left_over(graph) == []
    assert graph.maintenance.check().ok


def test_a_merge_that_fails_half_way_leaves_nothing(graph: Graph, spark: SparkSession) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4), person("ann", age=10)])
    put(graph, Person=[person("eve", age=5)])
    before, files = (graph.snapshot(), content(graph)), data_files_of(graph)
    arm("merge.staged", Armed(action=Action.ERROR))
    try:
        with pytest.raises(failpoints.FailpointReached):
            graph.merge("dev", spark=spark)
    finally:
        failpoints.disarm_all()

    assert (graph.snapshot(), content(graph)) == before
    assert left_over(graph) == []
    assert data_files_of(graph) == files
    assert graph.maintenance.recover().left_alone == ()


def data_files_of(graph: Graph) -> set[Path]:
    return {each for each in table_files(graph) if each.parent.name == "data"}


def test_a_file_that_vanishes_fails_the_merge_by_its_name(
    graph: Graph, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person(f"p{number}") for number in range(8)])
    put(graph, Person=[person("eve", age=5)])

    def and_lose_one(files: Any) -> Any:
        known = list(files)
        folder_of(graph.root, known[0].path).unlink()
        return files_by_bucket(known)

    monkeypatch.setattr("omnigraph_lake.merge.decide.files_by_bucket", and_lose_one)

    with pytest.raises(
        StorageUnavailableError, match="was removed while its operation was running"
    ):
        graph.merge("dev", spark=spark)

    assert left_over(graph) == []
    assert graph.maintenance.check().ok


def test_a_session_of_the_process_is_used_only_if_it_is_given(
    graph: Graph, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    put(graph, Person=[person("eve", age=5)])
    given: list[object] = []
    monkeypatch.setattr(spark_runner, "SparkRunner", lambda *args: given.append(args))

    graph.merge("dev")

    assert given == []
    assert set(content(graph)["Person"]) == {"ann", "bob", "cyd", "dan", "eve"}


def test_tasks_that_run_twice_change_nothing_about_the_result(
    graph: Graph, spark: SparkSession
) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person(f"p{n}", age=n) for n in range(8)])
    put(dev, Person=[person("ann", age=10)])
    dev.delete({"Person": ["bob"]})
    put(graph, Person=[person("eve", age=5)])

    result = graph.merge("dev", spark=cast("SparkSession", TwiceSession(spark)))

    counts = result.tables["node:Person"]
    assert (counts.inserted, counts.updated, counts.deleted) == (8, 1, 1)
    assert len(content(graph)["Person"]) == 3 + 8 - 1 + 1
    assert left_over(graph) == []
    assert graph.maintenance.check().ok


FAILING_ONCE = """
import os, sys
import omnigraph_lake as og
from omnigraph_lake.diff import bucketed
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while

root, marks = sys.argv[1:]
bucketed.ROWS_PER_BUCKET, bucketed.UNDIVIDED_BUCKETS = 20, 1


class Flaky:
    '''A session all of whose tasks do their work, fail once, and are run again.'''

    def __init__(self, inner, job=None):
        self.inner, self.job = inner, job

    def range(self, *given):
        Flaky.jobs = getattr(Flaky, "jobs", 0) + 1
        return Flaky(self.inner.range(*given), Flaky.jobs)

    def mapInArrow(self, task, schema):
        job = self.job

        def twice(batches):
            held = list(batches)
            made = list(task(iter(held)))
            for batch in held:
                for number in batch.column(0).to_pylist():
                    try:
                        os.close(os.open(f"{marks}/{job}-{number}", os.O_CREAT | os.O_EXCL))
                    except FileExistsError:
                        continue
                    raise RuntimeError("lost this task")
            yield from made

        return self.inner.mapInArrow(twice, schema)

    def __getattr__(self, name):
        return getattr(self.inner, name)


graph = og.open(root)
target = SparkTarget(master="local[2,8]", settings={"spark.sql.shuffle.partitions": "2"})
with spark_for_a_while(target=target) as spark:
    result = graph.merge("dev", spark=Flaky(spark))
counts = result.tables["node:Person"]
print(counts.inserted, counts.updated, counts.deleted)
"""


@pytest.mark.timeout(1800)
@pytest.mark.nightly(
    "starts a session that runs failed tasks again; in the gate every task of a merge runs twice"
)
def test_tasks_that_fail_once_change_nothing_about_the_result(graph: Graph, tmp_path: Path) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person(f"p{n}", age=n) for n in range(50)])
    put(dev, Person=[person("ann", age=10)])
    dev.delete({"Person": ["bob"]})
    put(graph, Person=[person("eve", age=5)])
    marks = tmp_path / "marks"
    marks.mkdir()

    ran = subprocess.run(
        [sys.executable, "-c", FAILING_ONCE, graph.root, str(marks)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )

    assert ran.stdout.split() == ["50", "1", "1"], ran.stderr[-3000:]
    assert len(list(marks.iterdir())) > 5
    assert len(content(graph)["Person"]) == 3 + 50 - 1 + 1
    assert left_over(graph) == []
    assert graph.maintenance.check().ok
