"""Loads on a real session: frames, races, formats, refusals, and what they leave behind."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake import failpoints
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import InvalidInputError, LoadRefusedError
from omnigraph_lake.failpoints import Action, Armed, arm
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import pipeline
from omnigraph_lake.storage.lance.tables import open_pinned
from tests.spark.twice import TwiceSession
from tests.stores import folder_of

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I32?  size: U64?  v: Vector(2)?  tags: [String]? }
node File { name: String @key  content: Blob? }
edge Knows: Person -> Person { since: Date?  weight: F64? }
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


def rows(graph: Graph, type_name: str = "Person") -> dict[str, dict[str, object]]:
    found = graph.scan(type_name).read_all().to_pylist()
    return {row["id"]: row for row in found}


def write_lines(path: Path, *records: object) -> str:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def staged_files(graph: Graph) -> list[Path]:
    return [each for each in folder_of(graph.root, "_staging").rglob("*") if each.is_file()]


def test_frames_are_loaded_with_all_types_and_their_bad_rows_set_aside(
    spark: SparkSession, graph: Graph
) -> None:
    people = spark.sql(
        "SELECT concat('p', id) AS name, CAST(id AS INT) AS age, "
        "CAST(18446744073709551615 AS DECIMAL(20,0)) AS size, "
        "array(CAST(id AS FLOAT), 0.5F) AS v, array('x') AS tags FROM range(100)"
    )
    knows = spark.sql(
        "SELECT concat('p', id) AS src, concat('p', id + 1) AS dst, DATE'2026-01-02' AS since "
        "FROM range(100)"
    )

    report = graph.load({"Person": people, "Knows": knows}, on_error="quarantine", spark=spark)

    assert report.written == {"Person": 100, "Knows": 99}
    assert report.quarantined == {"missing_endpoint": 1}
    checked = graph.maintenance.check(deep=True)
    assert checked.ok, checked.findings
    # An object store has checksums of its own, so none are recorded there.
    assert checked.files_unrecorded == 0 or graph.root.startswith("s3://")
    (refused,) = pq.read_table(report.quarantine).to_pylist()
    assert (refused["file"], refused["type"]) == ("<Knows>", "Knows")
    assert json.loads(refused["raw"])["dst"] == "p100"
    assert rows(graph)["p7"] == {
        "id": "p7",
        "name": "p7",
        "age": 7,
        "size": 2**64 - 1,
        "v": [7.0, 0.5],
        "tags": ["x"],
    }
    assert graph.maintenance.check().ok


@pytest.mark.nightly("one more load; the gate merges rows by tasks that run twice")
def test_a_merge_keeps_row_ids_and_replaces_rows_as_a_whole(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    graph.write({"Person": [{"name": f"p{each}", "age": each} for each in range(50)]})
    before = _row_ids(graph)
    file = write_lines(
        tmp_path / "a.jsonl", *(person(f"p{each}", size=each) for each in range(40, 60))
    )

    report = graph.load(file, mode="merge", spark=spark)

    assert (report.inserted, report.updated) == ({"Person": 10}, {"Person": 10})
    after = _row_ids(graph)
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == 60
    assert (rows(graph)["p45"]["age"], rows(graph)["p45"]["size"]) == (45, 45)
    assert rows(graph)["p3"]["age"] == 3
    assert graph.maintenance.check().ok


def test_tasks_that_run_twice_merge_every_row_once_and_keep_row_ids(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    graph.write({"Person": [{"name": f"p{number}", "age": number} for number in range(20)]})
    before = _row_ids(graph)
    lines = [person(f"p{number}", size=number) for number in range(10, 30)]
    file = write_lines(tmp_path / "a.jsonl", *lines, person("p10"))

    report = graph.load(
        file,
        mode="merge",
        on_error="quarantine",
        spark=cast("SparkSession", TwiceSession(spark)),
        options=LoadOptions(engine="spark"),
    )

    assert (report.inserted, report.updated) == ({"Person": 10}, {"Person": 10})
    assert report.quarantined == {"superseded": 1}
    assert len(rows(graph)) == graph.snapshot().tables["node:Person"].row_count == 30
    after = _row_ids(graph)
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == 30
    assert (rows(graph)["p15"]["age"], rows(graph)["p15"]["size"]) == (15, 15)
    assert rows(graph)["p3"]["age"] == 3
    assert staged_files(graph) == []
    assert graph.maintenance.check().ok


def _row_ids(graph: Graph) -> dict[str, int]:
    entry = graph.snapshot().tables["node:Person"]
    table = open_pinned(graph._objects.root, entry).to_table(columns=["id", "_rowid"])
    return dict(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_the_greatest_value_of_an_ordering_column_wins(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    file = write_lines(
        tmp_path / "a.jsonl",
        person("a", age=3, tags=["older"]),
        person("a", age=7, tags=["newest"]),
        person("a", age=5, tags=["between"]),
        person("a", tags=["never"]),
    )

    report = graph.load(
        file, mode="merge", spark=spark, options=LoadOptions(order_by="age", engine="spark")
    )

    assert report.quarantined == {"superseded": 3}
    assert rows(graph)["a"]["tags"] == ["newest"]


def test_superseded_records_reach_the_tasks_of_their_pieces_by_files(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    """More than a bucket sends to the driver; every piece has some, and one id has very many."""
    files = []
    for piece in range(3):
        lines = [person(f"p{number % 90}", age=1000 * piece + number) for number in range(500)]
        many = [person("often", age=1000 * piece + number) for number in range(300)]
        files.append(write_lines(tmp_path / f"{piece}.jsonl", *lines, *many))
    graph.load(
        write_lines(tmp_path / "first.jsonl", person("p7"), person("other")),
        options=LoadOptions(engine="local"),
    )

    report = graph.load(files, mode="replace", spark=spark, options=LoadOptions(engine="spark"))

    assert report.quarantined == {"superseded": 2400 - 91}
    assert (report.inserted, report.updated) == ({"Person": 90}, {"Person": 1})
    ages = {name: row["age"] for name, row in rows(graph).items()}
    last = {f"p{number % 90}": 2000 + number for number in range(500)}
    assert ages == last | {"often": 2299, "other": None}
    assert any(stage.name == "collect refused rows" for stage in report.stages)
    assert staged_files(graph) == []
    assert graph.maintenance.check().ok


def test_files_of_every_format_are_loaded_together(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    plain = write_lines(tmp_path / "a.jsonl", person("a"))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as packed:
        packed.write(json.dumps(person("b")) + "\n")
    (tmp_path / "Person.csv").write_text("name,age\nc,3\nd,old\n")
    parquet = tmp_path / "nodes" / "Person" / "part-0.parquet"
    parquet.parent.mkdir(parents=True)
    pq.write_table(pa.table({"name": ["e", "e"], "age": [1, 2]}), parquet)
    names = [plain, tmp_path / "b.jsonl.gz", tmp_path / "Person.csv", parquet]

    report = graph.load(
        [str(each) for each in names],
        on_error="quarantine",
        spark=spark,
        options=LoadOptions(engine="spark", max_rejected=2),
    )

    assert set(rows(graph)) == {"a", "b", "c", "e"}
    assert report.quarantined == {"wrong_type": 1, "duplicate_id": 1}
    listed = pq.read_table(report.quarantine).to_pylist()
    places = {(Path(each["file"]).name, each["line"], each["reason"]) for each in listed}
    assert places == {("Person.csv", 3, "wrong_type"), ("part-0.parquet", 2, "duplicate_id")}


def test_a_refused_load_leaves_nothing_behind(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.jsonl", person("a"), person("a"))
    before = {each for each in folder_of(graph.root).rglob("*") if each.is_file()}

    with pytest.raises(LoadRefusedError, match="duplicate_id") as refused:
        graph.load(file, spark=spark, options=LoadOptions(engine="spark"))

    assert refused.value.report.rejected[0].line == 2  # type: ignore[attr-defined]
    after = {each for each in folder_of(graph.root).rglob("*") if each.is_file()}
    assert {each.name for each in after - before if each.parent.name == "data"} == set()
    assert staged_files(graph) == []
    assert rows(graph) == {}
    assert graph.maintenance.check().ok


def test_a_dry_run_gives_the_account_and_writes_nothing(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.jsonl", person("a"), person("b"))

    report = graph.load(file, dry_run=True, spark=spark, options=LoadOptions(engine="spark"))

    assert (report.read, report.written, report.commit_id) == (2, {"Person": 2}, None)
    assert rows(graph) == {}
    assert staged_files(graph) == []
    assert graph.maintenance.recover().left_alone == ()


def test_a_load_that_loses_a_race_is_checked_again_on_the_new_state(
    spark: SparkSession, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_lines(tmp_path / "a.jsonl", *(person(f"p{each}") for each in range(20)))
    rival = og.open(graph.root)
    reached: list[str] = []

    def interfere(point: str) -> None:
        if point == "load.settled" and point not in reached:
            rival.write({"Person": [{"name": "p7", "age": 1}]})
        reached.append(point)

    monkeypatch.setattr(pipeline, "reach", interfere)

    report = graph.load(
        file, on_error="quarantine", spark=spark, options=LoadOptions(engine="spark")
    )

    assert reached.count("load.settled") == 2
    assert (report.written, report.quarantined) == ({"Person": 19}, {"id_exists": 1})
    assert rows(graph)["p7"]["age"] == 1
    assert len(rows(graph)) == 20
    assert graph.maintenance.check().ok


@pytest.mark.nightly("one more load; what was done already is seen before an engine is chosen")
def test_a_load_is_done_once_however_often_it_is_asked_for(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.jsonl", person("a"))
    operation = "01J9ZZZZZZ0000000000000000"

    first = graph.load(
        file, operation_id=operation, spark=spark, options=LoadOptions(engine="spark")
    )
    second = graph.load(
        file, operation_id=operation, spark=spark, options=LoadOptions(engine="spark")
    )

    assert (second.commit_id, second.repeated) == (first.commit_id, True)
    assert len(rows(graph)) == 1


def test_merging_into_rows_with_blobs_is_refused_by_name(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    file = write_lines(
        tmp_path / "a.jsonl", {"type": "File", "data": {"name": "f", "content": "base64:aGk="}}
    )
    graph.write({"File": [{"name": "f", "content": b"hi"}]})

    with pytest.raises(InvalidInputError, match="File has Blob properties"):
        graph.load(file, mode="merge", spark=spark, options=LoadOptions(engine="spark"))

    assert graph.load(file, mode="merge", options=LoadOptions(engine="local")).updated == {
        "File": 1
    }


def test_files_with_blobs_are_loaded(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    content = {"f": b"hi", "empty": b"", "none": None}
    records = [
        {"type": "File", "data": {"name": name, "content": base64_of(blob)}}
        for name, blob in content.items()
    ]

    graph.load(
        write_lines(tmp_path / "a.jsonl", *records),
        spark=spark,
        options=LoadOptions(engine="spark"),
    )

    entry = graph.snapshot().tables["node:File"]
    stored = open_pinned(graph._objects.root, entry).scanner(blob_handling="all_binary")
    assert {row["id"]: row["content"] for row in stored.to_table().to_pylist()} == content


def base64_of(blob: bytes | None) -> str | None:
    return None if blob is None else f"base64:{base64.b64encode(blob).decode()}"


def test_a_file_that_cannot_be_read_fails_the_load_by_its_name(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 1000)[:-9])

    with pytest.raises(InvalidInputError, match=r"a\.jsonl\.gz is not a complete gzip file"):
        graph.load(str(tmp_path / "a.jsonl.gz"), spark=spark, options=LoadOptions(engine="spark"))

    assert graph.maintenance.recover().left_alone == ()
    assert rows(graph) == {}


@pytest.mark.nightly(
    "tests/load/test_load_crash.py ends loads at this point in the gate, and tests/cluster "
    "kills the driver of one"
)
def test_rows_of_a_load_that_died_after_its_publish_are_kept(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.jsonl", *(person(f"p{each}") for each in range(20)))
    arm("publish.post_manifest", Armed(action=Action.ERROR))
    try:
        with pytest.raises(failpoints.FailpointReached):
            graph.load(file, spark=spark, options=LoadOptions(engine="spark"))
    finally:
        failpoints.disarm_all()

    graph.maintenance.recover(force=True)

    assert len(rows(graph)) == 20
    assert graph.maintenance.check().ok
