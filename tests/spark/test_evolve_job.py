"""A cluster stages the same columns and finds the same rows as one process does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.errors import DamagedGraphError, InvalidInputError, NotFoundError
from omnigraph_lake.evolution import column_work, run_checks
from omnigraph_lake.evolution.plan.data_checks import CheckKind, TableIsEmpty
from omnigraph_lake.evolution.plan.planning import Evolution, evolve
from omnigraph_lake.evolution.run_checks import failed_checks
from omnigraph_lake.evolution.table_changes import TableChange, table_changes
from omnigraph_lake.runner.spark import SparkRunner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.objects.location import Root
from omnigraph_lake.storage.snapshot import TableEntry
from tests.evolution.plan.rows import Row, migrated
from tests.evolution.stored import as_stored_in, changed, changed_by, committed, rows_in, stored
from tests.evolution.violating import ASKING, CHECKED, random_rows
from tests.gate.selection import for_gate
from tests.schema.compiling import compiled

pytestmark = pytest.mark.spark

ACCEPTED = """
node A {
    name: String  age: I32?  size: F32?  mood: enum(sad, glad)?  tags: [String]?
    at: Vector(2)?  scan: Blob?  n: U32
}
edge E: A -> A { w: I32? }
"""
NEW = """
node B @rename_from("A") {
    title: String @rename_from("name")
    age: I64 @backfill(18)
    size: F64?
    mood: enum(blue, glad) @rename_value(sad=blue) @backfill(glad)
    at: Vector(2)?
    scan: Blob?
    n: I64
    also: [String]? @backfill(from=tags)
    seen: DateTime @backfill("2026-01-31T12:00:00+02:00")
    most: U64 @backfill(18446744073709551615)
    nothing: String?
}
edge E: B -> B { w: F64 @backfill(-1.5) }
"""


def people(count: int) -> list[Row]:
    return [
        {
            "name": f"n{n}",
            "age": None if n % 3 == 0 else n,
            "size": None if n % 4 == 0 else n / 8,
            "mood": [None, "sad", "glad"][n % 3],
            "tags": None if n % 2 else [f"t{n}", None],
            "at": None if n % 5 == 0 else [n, -n],
            "scan": None if n == 2 else b"x" * n,
            "n": n,
        }
        for n in range(count)
    ]


@pytest.fixture
def evolution() -> Evolution:
    return evolve(compiled(ACCEPTED), NEW)


def on_spark(spark: SparkSession, root: Root, entry: TableEntry, change: TableChange) -> TableEntry:
    return committed(root, changed_by(SparkRunner(spark, root), root, entry, change))


@pytest.mark.parametrize("rows_per_piece", for_gate([1, 1 << 18], lambda rows: rows == 1))
def test_columns_of_many_fragments_with_deletions_are_staged_as_in_one_process(
    spark: SparkSession,
    tmp_path: Path,
    evolution: Evolution,
    monkeypatch: pytest.MonkeyPatch,
    rows_per_piece: int,
) -> None:
    monkeypatch.setattr(column_work, "ROWS_PER_PIECE", rows_per_piece)
    given = {"node:A": people(23), "edge:E": [{"src": "r0001", "dst": "r0002", "w": None}] * 4}
    graphs = [
        stored(str(tmp_path / each), evolution.accepted, given, parts=5) for each in ("a", "b")
    ]
    (root, snapshot), (other_root, other) = graphs
    assert len(open_pinned(root, snapshot.tables["node:A"]).get_fragments()) == 5

    for change in table_changes(evolution):
        made = on_spark(spark, root, snapshot.tables[change.stored_key], change)
        in_process = changed(other_root, other.tables[change.stored_key], change)

        declared = evolution.target.tables()[change.new_key]
        steps = [s for s in evolution.plan.steps if s.subject.number == declared.number]
        expected = as_stored_in(migrated(given[change.stored_key], steps), declared)
        found = rows_in(root, made)
        assert [found[each] for each in sorted(found)] == expected
        assert found == rows_in(other_root, in_process)
        assert open_pinned(root, made).schema == open_pinned(other_root, in_process).schema
        assert made.row_count == in_process.row_count


def test_a_change_without_computed_values_writes_no_row(
    graph_root: str, spark: SparkSession
) -> None:
    evolution = evolve(compiled("node A { x: I32 y: I32 }"), "node A { x: I32? z: Date? }")
    root, snapshot = stored(graph_root, evolution.accepted, {"node:A": [{"x": 1, "y": 2}]})
    (change,) = table_changes(evolution)

    staged = changed_by(SparkRunner(spark, root), root, snapshot.tables["node:A"], change)

    assert staged.rows_updated == 0
    assert rows_in(root, committed(root, staged)) == {"r0000": {"x": 1, "z": None}}


def test_an_empty_table_is_staged_with_required_columns(
    graph_root: str, spark: SparkSession
) -> None:
    evolution = evolve(compiled("node A { x: I32 }"), "node A { x: I64 y: String }")
    root, snapshot = stored(graph_root, evolution.accepted, {})
    (change,) = table_changes(evolution)

    made = on_spark(spark, root, snapshot.tables["node:A"], change)

    assert open_pinned(root, made).schema.names == ["id", "x", "y"]


def test_two_attempts_of_one_task_leave_one_version_without_the_files_of_the_other(
    graph_root: str, spark: SparkSession, evolution: Evolution
) -> None:
    root, snapshot = stored(graph_root, evolution.accepted, {"node:A": people(7)})
    entry = snapshot.tables["node:A"]
    change = next(each for each in table_changes(evolution) if each.stored_key == "node:A")

    changed_by(SparkRunner(spark, root), root, entry, change)
    made = on_spark(spark, root, entry, change)

    assert len(rows_in(root, made)) == 7
    files = [
        file.path
        for fragment in open_pinned(root, made).get_fragments()
        for file in fragment.metadata.files
    ]
    assert len(files) == len(set(files)) == 2 * 2


def test_what_a_task_refuses_is_refused_in_the_same_words(
    graph_root: str, spark: SparkSession
) -> None:
    evolution = evolve(compiled("node A { x: I32 b: Blob? }"), "node A { x: I64 b: Blob }")
    root, snapshot = stored(graph_root, evolution.accepted, {"node:A": [{"x": 1, "b": b"x"}]})
    (change,) = table_changes(evolution)

    with pytest.raises(InvalidInputError, match="column b of node:A holds blobs") as on_executor:
        on_spark(spark, root, snapshot.tables["node:A"], change)
    with pytest.raises(InvalidInputError) as here:
        changed(root, snapshot.tables["node:A"], change)

    assert str(on_executor.value) == str(here.value)
    assert not set(spark.sparkContext.getJobTags())


@pytest.mark.nightly(
    "as what a task refuses in the gate; the rule itself is one of tests/evolution"
)
def test_a_required_copy_of_nothing_is_refused(graph_root: str, spark: SparkSession) -> None:
    evolution = evolve(
        compiled("node A { x: I32? }"), "node A { x: I32? y: I32 @backfill(from=x) }"
    )
    root, snapshot = stored(graph_root, evolution.accepted, {"node:A": [{"x": None}]})
    (change,) = table_changes(evolution)

    with pytest.raises(InvalidInputError, match="column y of node:A is required"):
        on_spark(spark, root, snapshot.tables["node:A"], change)


@pytest.mark.parametrize(
    ("seed", "count"), for_gate([(2, 7), (3, 0), (4, 120)], lambda case: case == (4, 120))
)
def test_random_rows_are_judged_as_in_one_process(
    spark: SparkSession,
    graph_root: str,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    count: int,
) -> None:
    monkeypatch.setattr(column_work, "ROWS_PER_PIECE", 1)
    monkeypatch.setattr(run_checks, "KEYS_PER_BUCKET", 500)
    evolution = evolve(compiled(CHECKED), ASKING)
    checks = evolution.plan.needs
    assert {each.kind for each in checks} == set(CheckKind)
    rows = random_rows(random.Random(seed), count)
    root, snapshot = stored(graph_root, evolution.accepted, rows, parts=3)

    found = failed_checks(SparkRunner(spark, root), root, snapshot, checks)

    assert found == failed_checks(ThreadRunner(), root, snapshot, checks)
    if count == 120:
        assert {each.check.kind for each in found} == set(CheckKind)
        assert all(len(each.examples) == min(10, each.rows) for each in found)


@pytest.mark.nightly("the gate judges rows that break every rule beside rows that keep them")
def test_rows_that_keep_every_rule_are_no_offenders(spark: SparkSession, graph_root: str) -> None:
    evolution = evolve(
        compiled("node A { x: U64? s: String? } edge E: A -> A"),
        'node A { x: U64 @unique s: String? @check(s, "a") @range(x, 1..) } '
        "edge E: A -> A @card(2..2)",
    )
    nodes = [{"x": 2**64 - 1 - n, "s": None if n else "a"} for n in range(5)]
    edges = [{"src": f"r000{n // 2}", "dst": "r0000"} for n in range(6)]
    root, snapshot = stored(graph_root, evolution.accepted, {"node:A": nodes, "edge:E": edges})
    assert len(evolution.plan.needs) == 5

    assert failed_checks(SparkRunner(spark, root), root, snapshot, evolution.plan.needs) == ()


def test_a_check_asked_twice_is_answered_once_and_an_unknown_table_is_named(
    spark: SparkSession, graph_root: str
) -> None:
    evolution = evolve(compiled("node A { x: I32 }"), "node A { x: I32 @unique }")
    root, snapshot = stored(graph_root, evolution.accepted, {"node:A": [{"x": 1}, {"x": 1}]})
    twice = (*evolution.plan.needs, *evolution.plan.needs)

    (found,) = failed_checks(SparkRunner(spark, root), root, snapshot, twice)

    assert (found.rows, found.examples) == (2, ("r0000", "r0001"))
    with pytest.raises(NotFoundError, match="'B'"):
        failed_checks(
            SparkRunner(spark, root), root, snapshot, [TableIsEmpty(table="node:B", column="x")]
        )


@pytest.mark.local_disk("takes a file away")
def test_a_lost_file_is_told_as_such(spark: SparkSession, tmp_path: Path) -> None:
    evolution = evolve(compiled("node A { x: I32? }"), "node A { x: I32 @unique }")
    root, snapshot = stored(str(tmp_path / "graph"), evolution.accepted, {"node:A": [{"x": 1}]})
    for each in tmp_path.rglob("data/*.lance"):
        each.unlink()

    for check in evolution.plan.needs:
        with pytest.raises(DamagedGraphError, match="could not read node:A"):
            failed_checks(SparkRunner(spark, root), root, snapshot, [check])
