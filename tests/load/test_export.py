from __future__ import annotations

import datetime as dt
import io
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import ConflictError, InvalidInputError, StorageUnavailableError
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import export as export_operation
from omnigraph_lake.storage.lance.tables import whole_rows
from tests.stores import root_at

pytestmark = pytest.mark.unit

SCHEMA = """
node Everything {
    key: String @key
    text: String?
    blob: Blob?
    bool: Bool?
    i32: I32?
    i64: I64?
    u32: U32?
    u64: U64?
    f32: F32?
    f64: F64?
    date: Date?
    moment: DateTime?
    choice: enum(x, y)?
    texts: [String]?
    flags: [Bool]?
    numbers: [I64]?
    wide: [U64]?
    floats: [F32]?
    dates: [Date]?
    moments: [DateTime]?
    vector: Vector(3)?
}
node Pair { a: I32  b: Date  @key(a, b) }
node Keyless { note: String? }
node Empty { note: String? }
edge Link: Everything -> Keyless { weight: F64?  when: DateTime?  data: Blob? }
edge Next: Pair -> Pair
"""
MOMENT = dt.datetime(2020, 2, 29, 23, 59, 59, 123456, tzinfo=dt.UTC)

FULL: dict[str, Any] = {
    "key": 'it\'s "é" \\ \u2028 \U0001f600',
    "text": "two\nlines\t\x7f",
    "blob": bytes(range(256)),
    "bool": False,
    "i32": -(2**31),
    "i64": -(2**63),
    "u32": 2**32 - 1,
    "u64": 2**64 - 1,
    "f32": 0.10000000149011612,
    "f64": 5e-324,
    "date": dt.date(1, 1, 1),
    "moment": MOMENT,
    "choice": "y",
    "texts": ["a", None, ""],
    "flags": [True, None],
    "numbers": [2**63 - 1, None, -(2**63)],
    "wide": [2**64 - 1],
    "floats": [1.5, None, -0.0],
    "dates": [dt.date(9999, 12, 31), None],
    "moments": [MOMENT, None],
    "vector": [1.0, -0.5, 3.4028234663852886e38],
}
LEAST: dict[str, Any] = {
    "key": "least",
    "text": "",
    "blob": b"",
    "f64": -0.0,
    "moment": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    "texts": [],
    "floats": [],
    "vector": None,
}


def filled(root: str) -> Graph:
    graph = og.init(root, schema=SCHEMA)
    days = [dt.date(2000, 1, 1 + n) for n in range(3)]
    pairs = [{"a": n, "b": day} for n, day in enumerate(days)]
    ids = [f'["{n}","{(day - dt.date(1970, 1, 1)).days}"]' for n, day in enumerate(days)]
    graph.write(
        {
            "Everything": [FULL, LEAST, {"key": "only"}],
            "Pair": pairs,
            "Keyless": [{"id": "k1", "note": "n"}, {"id": "k2"}, {"note": "its id is made"}],
            "Link": [
                {"id": "l1", "src": "only", "dst": "k1", "weight": 0.1, "when": MOMENT},
                {"src": FULL["key"], "dst": "k2", "data": b"\x00"},
            ],
            "Next": [{"src": ids[0], "dst": ids[1]}],
        }
    )
    return graph


def content(graph: Graph) -> dict[str, list[dict[str, Any]]]:
    """Every row with everything in it, in the order of ids."""
    snapshot = graph.snapshot()
    found = {}
    for key, entry in snapshot.tables.items():
        batches = whole_rows(graph._objects.root, entry, batch_rows=100)
        rows = [row for batch in batches for row in batch.to_pylist()]
        found[key] = sorted(rows, key=lambda row: str(row["id"]))
    return found


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_export_loads_back_as_the_same_graph(graph_root: str, tmp_path: Path, form: Any) -> None:
    graph = filled(graph_root)
    target = tmp_path / ("graph.jsonl" if form == "jsonl" else "files")

    report = graph.export(target, format=form)
    copy = og.init(root_at(tmp_path / "copy"), schema=SCHEMA)
    loaded = copy.load(target)

    assert report.rows == {
        "Everything": 3,
        "Pair": 3,
        "Keyless": 3,
        "Empty": 0,
        "Link": 2,
        "Next": 1,
    }
    assert loaded.read == sum(report.rows.values())
    assert loaded.quarantined == {}
    assert repr(content(copy)) == repr(content(graph))
    assert copy.maintenance.check().ok


def test_lines_are_the_records_that_a_load_reads(graph_root: str) -> None:
    graph = filled(graph_root)
    stream = io.BytesIO()

    report = graph.export(stream, type="Link")

    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first == {
        "edge": "Link",
        "from": "only",
        "to": "k1",
        "data": {"id": "l1", "weight": 0.1, "when": "2020-02-29T23:59:59.123456Z"},
    }
    assert second["data"]["data"] == "base64:AA=="
    assert (report.path, report.bytes) == ("-", len(stream.getvalue()))


def test_ids_are_kept_only_where_no_key_says_them(graph_root: str) -> None:
    graph = filled(graph_root)
    stream = io.BytesIO()

    graph.export(stream)

    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    with_id = {record.get("type") or record["edge"] for record in records if "id" in record["data"]}
    assert with_id == {"Keyless", "Link", "Next"}


def test_parquet_is_one_directory_per_type(graph_root: str, tmp_path: Path) -> None:
    filled(graph_root).export(tmp_path / "files", format="parquet")

    files = sorted(
        str(path.relative_to(tmp_path / "files"))
        for path in (tmp_path / "files").rglob("*.parquet")
    )
    assert files == [
        "edges/Link/part-00000.parquet",
        "edges/Next/part-00000.parquet",
        "nodes/Empty/part-00000.parquet",
        "nodes/Everything/part-00000.parquet",
        "nodes/Keyless/part-00000.parquet",
        "nodes/Pair/part-00000.parquet",
    ]


def test_many_rows_become_several_files_that_load_back(
    graph_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_operation, "_FILE_ROWS", 1000)
    monkeypatch.setattr(export_operation, "_GROUP_BYTES", 1000)
    monkeypatch.setattr(export_operation, "_BATCH_ROWS", 400)
    graph = og.init(graph_root, schema="node N { k: I64 @key }")
    graph.write({"N": pa.table({"k": range(2500)})})

    report = graph.export(tmp_path / "files", format="parquet")

    assert (report.files, report.rows) == (3, {"N": 2500})
    rows = pq.read_table(tmp_path / "files" / "nodes" / "N").column("k").to_pylist()
    assert sorted(rows) == list(range(2500))


def test_vectors_that_may_be_null_are_read_by_every_version_of_pyarrow(
    graph_root: str, tmp_path: Path
) -> None:
    graph = og.init(graph_root, schema="node N { k: I64 @key\n v: Vector(2)?\n w: Vector(2) }")
    dev = graph.branches.create("dev")
    dev.write({"N": [{"k": 1, "w": [0.0, 1.0]}]})

    dev.export(tmp_path / "files", format="parquet")
    (changes,) = graph.diff("main", "dev").to_parquet(tmp_path / "changes")

    exported = pq.read_schema(next(tmp_path.glob("files/nodes/N/*")))
    after = pq.read_schema(changes).field("after").type
    plain = pa.list_(pa.field("element", pa.float32()))
    assert (exported.field("v").type, exported.field("w").nullable) == (plain, False)
    assert (after.field("v").type, after.field("w").type) == (plain, plain)
    assert pq.read_table(changes).column("after")[0].as_py() == {
        "id": "1",
        "k": 1,
        "v": None,
        "w": [0.0, 1.0],
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("column", ["f64", "f32", "floats", "vector"])
def test_numbers_without_json_are_refused_by_name_and_leave_no_file(
    graph_root: str, tmp_path: Path, column: str, value: float
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    given = {"floats": [1.0, value], "vector": [1.0, value, 2.0]}.get(column, value)
    graph.write({"Everything": [{"key": "fine"}, {"key": "odd", column: given}]})

    with pytest.raises(InvalidInputError, match=f"Everything 'odd' .* as {column}") as caught:
        graph.export(tmp_path / "graph.jsonl")

    assert "--format parquet" in str(caught.value)
    assert list(tmp_path.glob("*.jsonl")) == []
    assert list(tmp_path.glob(".*partial")) == []
    graph.export(tmp_path / "files", format="parquet")
    copy = og.init(root_at(tmp_path / "copy"), schema=SCHEMA)
    copy.load(tmp_path / "files")
    assert repr(content(copy)) == repr(content(graph))


def test_a_directory_with_something_in_it_is_not_written_to(
    graph_root: str, tmp_path: Path
) -> None:
    graph = filled(graph_root)
    (tmp_path / "files").mkdir()
    graph.export(tmp_path / "files", format="parquet")

    with pytest.raises(ConflictError, match="not an empty directory"):
        graph.export(tmp_path / "files", format="parquet")


def test_an_export_to_a_file_replaces_it_when_it_is_complete(
    graph_root: str, tmp_path: Path
) -> None:
    graph = filled(graph_root)
    target = tmp_path / "graph.jsonl"
    target.write_text("old")

    graph.export(str(target), type="node:Keyless")

    assert len(target.read_text().splitlines()) == 3


def test_an_export_shows_one_snapshot(graph_root: str, tmp_path: Path) -> None:
    graph = filled(graph_root)

    report = graph.export(tmp_path / "graph.jsonl")

    head = graph.snapshot().head
    assert head is not None
    assert (report.root, report.commit_id) == (graph.root, head.commit_id)


@pytest.mark.parametrize(
    ("path", "wish", "complaint"),
    [
        ("s3://bucket/x", {}, "only local paths"),
        (7, {}, "expected a path or a binary stream"),
        (io.BytesIO(), {"format": "parquet"}, "directory of files"),
        (".", {}, "is a directory"),
        ("x.csv", {"format": "csv"}, 'expected "jsonl" or "parquet"'),
        ("x.jsonl", {"type": "Nothing"}, "no type 'Nothing'"),
    ],
)
def test_exports_that_cannot_be_are_refused(
    graph_root: str, path: Any, wish: dict[str, Any], complaint: str
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)

    with pytest.raises(InvalidInputError, match=complaint):
        graph.export(path, **wish)


def test_a_place_that_cannot_be_written_is_named(graph_root: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageUnavailableError, match=r"file/graph\.jsonl"):
        filled(graph_root).export(tmp_path / "file" / "graph.jsonl")
