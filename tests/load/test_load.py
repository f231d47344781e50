from __future__ import annotations

import json
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import (
    InvalidInputError,
    LoadRefusedError,
    NotFoundError,
    ReadOnlyError,
)
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.load.formats.records import FileFormat, SourceFile
from omnigraph_lake.load.load import engine_for
from omnigraph_lake.load.report import Engine, LoadReport, Progress
from omnigraph_lake.runner.protocol import Stage
from omnigraph_lake.validation.constraints import WriteMode
from tests.stores import files_of, folder_of

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { name: String @key  nick: String? @unique  age: I32?  @range(age, 0..150) }
node City { title: String? }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City @card(0..1)
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


def person(name: str, **more: object) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **more}}


def knows(source: str, target: str, **more: object) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": more}


def lines(path: Path, *records: dict[str, Any] | str) -> str:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in records]
    path.write_text("".join(f"{text}\n" for text in texts))
    return str(path)


def names_in(graph: Graph) -> list[str]:
    return sorted(graph.scan("Person", columns=["name"]).read_all().column("name").to_pylist())


def everything_below(root: str) -> list[str]:
    return sorted(map(str, files_of(root)))


def quarantine_of(report: LoadReport) -> pa.Table:
    assert report.quarantine is not None
    return pq.read_table(report.quarantine)


def test_rows_are_in_the_order_of_the_input_however_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = [person(f"p{number}", age=number % 200) for number in range(400)]
    edges = [knows(f"p{number % 150}", f"p{number % 140}") for number in range(400)]
    source = lines(tmp_path / "a.jsonl", *people, "oops", *edges, person("p7"), *people[:3])
    states = []
    for split_bytes in (500, 10**9):
        monkeypatch.setattr(load_operation, "SPLIT_BYTES", split_bytes)
        monkeypatch.setattr(load_operation, "_LOCAL_SPLIT_BYTES", split_bytes)
        graph = og.init(str(tmp_path / f"graph{split_bytes}"), schema=SCHEMA)
        options = LoadOptions(max_rejected="90%")
        report = graph.load(source, on_error="quarantine", options=options)
        edge_rows = graph.scan("Knows").read_all()
        ids = edge_rows.column("id").to_pylist()
        assert ids == sorted(set(ids))
        states.append(
            (
                graph.scan("Person").read_all().to_pylist(),
                edge_rows.drop_columns("id").to_pylist(),
                quarantine_of(report).drop_columns("file").to_pylist(),
                report.read,
                report.written,
                report.quarantined,
            )
        )

    assert states[0] == states[1]
    assert states[0][3] == 805
    assert threading.active_count() < 10


@pytest.mark.parametrize("dialect", ["0.6", 7, {None: 1}])
def test_a_dialect_that_nobody_writes_is_refused(
    graph: Graph, tmp_path: Path, dialect: Any
) -> None:
    tmp_path.joinpath("a.jsonl").touch()

    with pytest.raises(InvalidInputError, match=r"expected '0\.7'"):
        graph.load(tmp_path / "a.jsonl", options=LoadOptions(dialect=dialect))


def test_files_of_several_types_become_one_commit(graph: Graph, tmp_path: Path) -> None:
    nodes = lines(tmp_path / "a.jsonl", person("ann"), person("bob", age=3))
    edges = lines(tmp_path / "b.jsonl", knows("ann", "bob", since="2020-01-01"))

    report = graph.load([edges, nodes], actor="loader")

    assert (report.read, report.written) == (3, {"Person": 2, "Knows": 1})
    assert (report.inserted, report.updated) == (
        {"Person": 2, "Knows": 1},
        dict.fromkeys(report.written, 0),
    )
    assert (report.quarantined, report.quarantine, report.rejected) == ({}, None, ())
    assert (report.engine, report.mode) == (Engine.LOCAL, WriteMode.APPEND)
    newest, first = graph.commits()
    assert (newest.commit_id, newest.actor) == (report.commit_id, "loader")
    assert newest.parent_id == first.commit_id
    assert graph.maintenance.check().ok


def test_a_directory_and_a_pattern_stand_for_their_files(graph: Graph, tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        lines(tmp_path / name / "p.jsonl", person(f"{name}1"))

    graph.load(tmp_path / "x")
    graph.load(str(tmp_path / "[y]" / "*.jsonl"))

    assert names_in(graph) == ["x1", "y1"]


def test_one_fault_fails_a_load_and_leaves_nothing_behind(graph: Graph, tmp_path: Path) -> None:
    before = everything_below(graph.root)
    source = lines(tmp_path / "p.jsonl", person("ann"), "", "oops", person("bob", age=-1))

    with pytest.raises(LoadRefusedError) as caught:
        graph.load(source)

    report = caught.value.report
    assert isinstance(report, LoadReport)
    assert (report.read, report.written) == (3, {"Person": 1})
    assert report.quarantined == {"malformed": 1, "out_of_range": 1}
    assert [(each.file, each.line, each.reason) for each in report.rejected] == [
        (source, 3, "malformed"),
        (source, 4, "out_of_range"),
    ]
    assert (report.commit_id, report.quarantine, caught.value.exit_code) == (None, None, 5)
    assert f"{source}:4: Person: age: found -1, expected 0 to 150" in str(caught.value)
    assert "nothing was written" in str(caught.value)
    assert '`--on-error quarantine` (`on_error="quarantine"` in Python)' in str(caught.value)
    assert everything_below(graph.root) == before


def test_a_refused_load_lists_the_first_twenty_faults_and_counts_all(
    graph: Graph, tmp_path: Path
) -> None:
    source = lines(tmp_path / "p.jsonl", *["oops"] * 30)

    with pytest.raises(LoadRefusedError, match="and 10 more") as caught:
        graph.load(source)

    assert isinstance(caught.value.report, LoadReport)
    assert [each.line for each in caught.value.report.rejected] == list(range(1, 21))


def test_quarantined_records_are_listed_with_place_reason_and_bytes(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_operation, "_LOCAL_SPLIT_BYTES", 64)
    first = lines(tmp_path / "a.jsonl", person("ann"), "", person("ann", age=2), person("bob"))
    second = lines(
        tmp_path / "b.jsonl", knows("ann", "bob"), knows("ann", "cyd"), '{"type": "Parson"}'
    )

    report = graph.load(
        [first, second], on_error="quarantine", options=LoadOptions(max_rejected="50%")
    )

    table = quarantine_of(report)
    assert table.schema.names == ["file", "line", "type", "reason", "message", "raw"]
    assert [str(kind) for kind in table.schema.types] == [
        "string",
        "int64",
        "string",
        "string",
        "string",
        "binary",
    ]
    found = [
        tuple(row[name] for name in ("file", "line", "type", "reason", "raw"))
        for row in table.to_pylist()
    ]
    a, b = Path(first).read_bytes().splitlines(), Path(second).read_bytes().splitlines()
    assert found == [
        (first, 3, "Person", "duplicate_id", a[2]),
        (second, 2, "Knows", "missing_endpoint", b[1]),
        (second, 3, "Parson", "unknown_type", b[2]),
    ]
    assert report.read == 6
    assert report.written == {"Person": 2, "Knows": 1}
    assert graph.maintenance.check().ok


def test_the_quarantine_can_be_put_elsewhere_and_spares_what_is_there(
    graph: Graph, tmp_path: Path
) -> None:
    place = tmp_path / "bad"
    place.mkdir()
    (place / "mine.txt").write_text("mine")
    source = lines(tmp_path / "p.jsonl", "oops", person("ann"))

    report = graph.load(
        source, on_error="quarantine", options=LoadOptions(max_rejected=1, quarantine=str(place))
    )
    with pytest.raises(LoadRefusedError):
        graph.load(
            source,
            on_error="quarantine",
            options=LoadOptions(max_rejected=0, quarantine=str(place)),
        )

    assert report.quarantine == str(place)
    assert len(pq.read_table(sorted(place.glob("*.parquet")))) == 1
    assert (place / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("max_bad", "accepted"),
    [(1, False), (2, True), ("2", True), ("19.9%", False), ("20%", True), (None, False)],
)
def test_the_ceiling_is_a_number_of_records_or_a_share_of_all(
    graph: Graph, tmp_path: Path, max_bad: int | str | None, accepted: bool
) -> None:
    good = [person(f"p{number}") for number in range(8)]
    source = lines(tmp_path / "p.jsonl", *good, "oops", "oops")

    if accepted:
        graph.load(source, on_error="quarantine", options=LoadOptions(max_rejected=max_bad))
    else:
        with pytest.raises(LoadRefusedError, match="more than the limit"):
            graph.load(source, on_error="quarantine", options=LoadOptions(max_rejected=max_bad))

    assert len(names_in(graph)) == (8 if accepted else 0)
    assert bool(list(folder_of(graph.root).rglob("*-00000.parquet"))) == accepted


def test_superseded_records_are_listed_but_are_no_fault(graph: Graph, tmp_path: Path) -> None:
    source = lines(tmp_path / "p.jsonl", person("ann", age=1), person("ann", age=2))

    report = graph.load(source, mode="merge")

    assert (report.written, report.quarantined) == ({"Person": 1}, {"superseded": 1})
    assert (report.faults, report.rejected) == (0, ())
    assert quarantine_of(report).column("line").to_pylist() == [1]
    assert graph.scan("Person", columns=["age"]).read_all().to_pylist() == [{"age": 2}]


def test_an_ordering_column_decides_which_record_stands(graph: Graph, tmp_path: Path) -> None:
    source = lines(
        tmp_path / "p.jsonl",
        person("ann", age=9, nick="first of the greatest"),
        person("ann", age=9, nick="last of the greatest"),
        person("ann", age=1),
        person("ann"),
    )

    report = graph.load(source, mode="merge", options=LoadOptions(order_by="age"))

    assert report.quarantined == {"superseded": 3}
    (row,) = graph.scan("Person", columns=["nick"]).read_all().to_pylist()
    assert row == {"nick": "last of the greatest"}


def test_merge_tells_new_rows_from_replaced_ones(graph: Graph, tmp_path: Path) -> None:
    graph.load(lines(tmp_path / "a.jsonl", person("ann"), person("bob")))

    report = graph.load(
        lines(tmp_path / "b.jsonl", person("bob", age=7), person("cyd")), mode="merge"
    )

    assert (report.inserted, report.updated) == ({"Person": 1}, {"Person": 1})
    assert names_in(graph) == ["ann", "bob", "cyd"]


def test_overwrite_replaces_the_types_of_the_input_and_no_others(
    graph: Graph, tmp_path: Path
) -> None:
    city = {"type": "City", "data": {"id": "c1", "title": "Ulm"}}
    graph.load(lines(tmp_path / "a.jsonl", person("ann"), city))

    graph.load(lines(tmp_path / "b.jsonl", person("bob")), mode="overwrite")

    assert names_in(graph) == ["bob"]
    assert graph.scan("City").read_all().num_rows == 1


def test_a_type_is_not_emptied_by_records_that_were_all_refused(
    graph: Graph, tmp_path: Path
) -> None:
    graph.load(lines(tmp_path / "a.jsonl", person("ann")))
    source = lines(tmp_path / "b.jsonl", person("bob", age=-1))

    report = graph.load(
        source, mode="overwrite", on_error="quarantine", options=LoadOptions(max_rejected=1)
    )

    assert (report.commit_id, report.written) == (None, {})
    assert quarantine_of(report).num_rows == 1
    assert names_in(graph) == ["ann"]


def test_an_empty_frame_empties_its_type_when_it_overwrites(graph: Graph, tmp_path: Path) -> None:
    graph.load(lines(tmp_path / "a.jsonl", person("ann")))

    report = graph.load({"Person": pa.table({"name": pa.array([], pa.string())})}, mode="overwrite")

    assert report.commit_id is not None
    assert names_in(graph) == []


def test_what_no_record_is_to_blame_for_fails_the_load_under_every_policy(
    graph: Graph, tmp_path: Path
) -> None:
    graph.load(
        lines(tmp_path / "a.jsonl", person("ann"), person("bob"), knows("ann", "bob", id="k1"))
    )
    source = lines(tmp_path / "b.jsonl", person("ann"))

    with pytest.raises(LoadRefusedError, match="make published rows invalid") as caught:
        graph.load(
            source,
            mode="overwrite",
            on_error="quarantine",
            options=LoadOptions(max_rejected="100%"),
        )

    assert isinstance(caught.value.report, LoadReport)
    assert caught.value.report.broken == (
        "edge Knows.dst, id 'k1': found 'bob', expected the id of a Person that exists "
        "[missing_endpoint]",
    )
    assert names_in(graph) == ["ann", "bob"]


def test_more_broken_rows_than_are_shown_may_break_several_rules(
    graph: Graph, tmp_path: Path
) -> None:
    people = [f"p{number}" for number in range(60)]
    graph.write({"Person": [{"id": name, "name": name} for name in people]})
    graph.write(
        {"Knows": [{"src": source, "dst": people[30 + n]} for n, source in enumerate(people[:30])]}
    )

    with pytest.raises(LoadRefusedError, match="make published rows invalid") as caught:
        graph.load(lines(tmp_path / "b.jsonl", person("ann")), mode="overwrite")

    assert isinstance(caught.value.report, LoadReport)
    assert len(caught.value.report.broken) == 20


def test_a_dry_run_tells_the_same_and_writes_nothing(graph: Graph, tmp_path: Path) -> None:
    source = lines(tmp_path / "p.jsonl", person("ann"), "oops")
    before = everything_below(graph.root)

    reading = og.open(graph.root, read_only=True)
    report = reading.load(
        source, on_error="quarantine", dry_run=True, options=LoadOptions(max_rejected=1)
    )
    with pytest.raises(LoadRefusedError) as refused:
        reading.load(source, dry_run=True)

    assert isinstance(refused.value.report, LoadReport)
    assert refused.value.report.dry_run
    assert (report.dry_run, report.commit_id, report.quarantine) == (True, None, None)
    assert (report.read, report.written) == (2, {"Person": 1})
    assert everything_below(graph.root) == before


def test_an_empty_input_makes_no_commit(graph: Graph, tmp_path: Path) -> None:
    report = graph.load(lines(tmp_path / "p.jsonl"))

    assert (report.read, report.written, report.commit_id) == (0, {}, None)
    assert len(graph.commits()) == 1


def test_the_same_operation_id_loads_once(graph: Graph, tmp_path: Path) -> None:
    operation_id = "01HZZZZZZZZZZZZZZZZZZZZZZZ"
    path = lines(tmp_path / "p.jsonl", person("ann"))
    first = graph.load(path, operation_id=operation_id)

    again = graph.load(path, operation_id=operation_id)

    assert (again.repeated, again.commit_id, again.read) == (True, first.commit_id, 0)
    assert names_in(graph) == ["ann"]


class Rival(Progress):
    """Lets another writer commit, and takes the input away, just before this load writes."""

    def __init__(self, graph: Graph, source: str) -> None:
        super().__init__()
        self._graph = graph
        self._source = Path(source)

    def begin(self, stage: Stage, *, pieces: int) -> None:
        super().begin(stage, pieces=pieces)
        if stage.name == "write rows" and self._source.exists():
            self._source.unlink()
            self._graph.write({"Person": [{"name": "bob"}, {"name": "rival"}]})


def test_a_lost_race_settles_the_rows_again_without_reading_the_input(
    graph: Graph, tmp_path: Path
) -> None:
    source = lines(tmp_path / "p.jsonl", person("ann"), person("bob"))
    rival = Rival(og.open(graph.root), source)

    with pytest.raises(LoadRefusedError) as caught:
        graph.load(source, options=LoadOptions(progress=rival))

    assert isinstance(caught.value.report, LoadReport)
    assert caught.value.report.quarantined == {"id_exists": 1}
    assert names_in(graph) == ["bob", "rival"]
    assert graph.maintenance.status().pending_sidecars == ()


def test_a_lost_race_that_harms_nobody_is_loaded_on_top(graph: Graph, tmp_path: Path) -> None:
    source = lines(tmp_path / "p.jsonl", person("ann"), knows("ann", "ann"))
    rival = Rival(og.open(graph.root), source)

    report = graph.load(source, options=LoadOptions(progress=rival))

    assert report.written == {"Person": 1, "Knows": 1}
    assert names_in(graph) == ["ann", "bob", "rival"]
    assert graph.maintenance.check().ok


def test_csv_and_parquet_take_a_type_and_a_mapping_of_columns(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("full,age\nann,3\nbob,\nann,4\ncyd,x\n")
    pq.write_table(pa.table({"full": ["dan", "ann"]}), tmp_path / "people.parquet")

    wish: dict[str, Any] = {
        "type": "Person",
        "columns": {"name": "full"},
        "on_error": "quarantine",
        "max_rejected": "50%",
    }
    from_csv = graph.load(tmp_path / "people.csv", **in_options(wish))
    from_parquet = graph.load(tmp_path / "people.parquet", **in_options(wish))

    assert names_in(graph) == ["ann", "bob", "dan"]
    rows = quarantine_of(from_csv).to_pylist()
    assert [(row["line"], row["reason"], json.loads(row["raw"])) for row in rows] == [
        (4, "duplicate_id", {"full": "ann", "age": "4"}),
        (5, "wrong_type", {"full": "cyd", "age": "x"}),
    ]
    (row,) = quarantine_of(from_parquet).to_pylist()
    assert (row["line"], row["reason"], json.loads(row["raw"])) == (2, "id_exists", {"full": "ann"})


def test_frames_are_loaded_by_type_and_refused_row_by_row(graph: Graph) -> None:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl

    people = pl.DataFrame({"name": ["ann", "bob", "ann"], "age": [1, 200, 3]})
    friends = pd.DataFrame({"src": ["ann", "ann"], "dst": ["ann", "bob"]})

    report = graph.load(
        {"Person": people, "Knows": friends},
        on_error="quarantine",
        options=LoadOptions(max_rejected="100%"),
    )

    assert report.written == {"Person": 1, "Knows": 1}
    rows = quarantine_of(report).to_pylist()
    found = [(row["file"], row["line"], row["reason"], json.loads(row["raw"])) for row in rows]
    assert found == [
        ("<Person>", 2, "out_of_range", {"name": "bob", "age": 200}),
        ("<Person>", 3, "duplicate_id", {"name": "ann", "age": 3}),
        ("<Knows>", 2, "missing_endpoint", {"src": "ann", "dst": "bob"}),
    ]


def test_records_get_ids_of_their_own_where_they_bring_none(graph: Graph, tmp_path: Path) -> None:
    city = {"type": "City", "data": {"title": "Ulm"}}
    graph.load(lines(tmp_path / "p.jsonl", *[city] * 100))

    ids = graph.scan("City", columns=["id"]).read_all().column("id").to_pylist()
    assert len(set(ids)) == 100


def in_options(wish: dict[str, Any]) -> dict[str, Any]:
    """The same wish with what belongs there in the options of a load."""
    names = {field.name for field in fields(LoadOptions)} & set(wish)
    others = {name: value for name, value in wish.items() if name not in names}
    return {**others, "options": LoadOptions(**{name: wish[name] for name in names})}


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"mode": "upsert"}, 'expected "append", "merge", "replace" or "overwrite"'),
        ({"on_error": "ignore"}, 'expected "fail" or "quarantine"'),
        ({"engine": "ray"}, 'expected "auto", "local" or "spark"'),
        ({"max_rejected": 3}, "any rejected record fails this load"),
        ({"on_error": "quarantine", "max_rejected": "half"}, "a number of records or a share"),
        ({"on_error": "quarantine", "max_rejected": -1}, "a number of records or a share"),
        ({"on_error": "quarantine", "max_rejected": "101%"}, "a number of records or a share"),
        ({"order_by": "age"}, "append keeps the first record of an id"),
        ({"mode": "merge", "order_by": "aged"}, "no type has the property 'aged'"),
        ({"operation_id": ""}, "expected a text of 1 to 1024 characters"),
        ({"columns": ["name"]}, "expected a mapping of names"),
        ({"type": 7}, "expected a text"),
        ({"branch": []}, "expected a text"),
        ({"type": "Person"}, "name their types and properties themselves"),
    ],
)
def test_wishes_that_make_no_sense_are_refused_before_anything_is_read(
    graph: Graph, tmp_path: Path, wish: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        graph.load(lines(tmp_path / "p.jsonl", person("ann")), **in_options(wish))

    assert names_in(graph) == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (7, "expected paths or frames by type"),
        ([{"name": "ann"}], "expected paths or frames by type"),
        ({"Person": [{"name": "ann"}]}, r"(?s)expected a frame, not a list.*`graph\.write`"),
        ({"Parson": pa.table({"name": ["ann"]})}, "no type 'Parson'"),
        ({"Person": pa.table({"nome": ["ann"]})}, "nome"),
    ],
)
def test_sources_that_cannot_be_understood_are_refused(
    graph: Graph, source: Any, complaint: str
) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        graph.load(source)


def test_frames_of_this_process_are_not_for_spark(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="takes files and Spark DataFrames"):
        graph.load({"Person": pa.table({"name": ["ann"]})}, options=LoadOptions(engine="spark"))


MIB = 1 << 20


@pytest.mark.parametrize(
    ("file", "engine"),
    [
        (SourceFile(path="x", format=FileFormat.JSONL, size=64 * MIB), Engine.LOCAL),
        (SourceFile(path="x", format=FileFormat.JSONL, size=64 * MIB + 1), Engine.SPARK),
        (SourceFile(path="x", format=FileFormat.CSV, size=64 * MIB), Engine.LOCAL),
        (SourceFile(path="x", format=FileFormat.PARQUET, size=16 * MIB), Engine.LOCAL),
        (SourceFile(path="x", format=FileFormat.PARQUET, size=16 * MIB + 1), Engine.SPARK),
        (SourceFile(path="x", format=FileFormat.JSONL, size=8 * MIB, gzipped=True), Engine.LOCAL),
        (SourceFile(path="x", format=FileFormat.CSV, size=9 * MIB, gzipped=True), Engine.SPARK),
    ],
)
def test_size_decides_where_a_load_runs_if_spark_is_at_hand(
    file: SourceFile, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as remote:
        remote.setenv("SPARK_REMOTE", "sc://localhost")
        assert engine_for(Engine.AUTO, [file], spark=None) is engine
    assert engine_for(Engine.AUTO, [file], spark=None) is Engine.LOCAL
    assert engine_for(Engine.AUTO, [file, file], spark=object()) is Engine.SPARK
    assert engine_for(Engine.LOCAL, [file], spark=object()) is Engine.LOCAL
    assert engine_for(Engine.SPARK, [file], spark=None) is Engine.SPARK


def test_a_typed_file_without_rows_empties_its_type_when_it_overwrites(
    graph: Graph, tmp_path: Path
) -> None:
    graph.load(lines(tmp_path / "a.jsonl", person("ann")))
    (tmp_path / "Person.csv").write_text("name,age\n")

    kept = graph.load(tmp_path / "Person.csv", mode="append")
    emptied = graph.load(tmp_path / "Person.csv", mode="overwrite")

    assert (kept.commit_id, emptied.read) == (None, 0)
    assert emptied.commit_id is not None
    assert names_in(graph) == []


def test_a_missing_file_is_not_found(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        graph.load("nowhere.jsonl")


def test_a_handle_for_reading_loads_nothing(graph: Graph, tmp_path: Path) -> None:
    reading = og.open(graph.root, read_only=True)

    with pytest.raises(ReadOnlyError):
        reading.load(lines(tmp_path / "p.jsonl", person("ann")))

    assert names_in(graph) == []


def test_a_report_is_json_with_the_keys_people_rely_on(graph: Graph, tmp_path: Path) -> None:
    report = graph.load(lines(tmp_path / "p.jsonl", person("ann")))

    assert set(json.loads(report.to_json())) >= {
        "read",
        "written",
        "inserted",
        "updated",
        "quarantined",
        "quarantine",
        "commit_id",
        "operation_id",
        "seconds",
        "engine",
        "mode",
        "dry_run",
        "stages",
    }
    assert json.loads(report.to_json())["mode"] == "append"
    assert "1 written to Person" in report.summary()
