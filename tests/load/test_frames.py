from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats.frames import BATCH_ROWS_MAX, parse_batches
from omnigraph_lake.load.formats.parse import parse_split
from omnigraph_lake.load.formats.records import FileFormat, ParsedRows, SourceFile
from omnigraph_lake.load.formats.splits import plan_splits
from omnigraph_lake.schema.arrow import node_schema
from omnigraph_lake.schema.catalog import EdgeType, NodeType
from omnigraph_lake.validation.constraints import rules_of
from omnigraph_lake.validation.input.intake import id_source
from tests.load.inputs import Outcome, outcome
from tests.schema.compiling import compiled
from tests.validation.graphs import counting_ids

pytestmark = pytest.mark.unit

CATALOG = compiled(
    """
    node Person {
        name: String @key  age: I32?  born: Date?  seen: DateTime?  photo: Blob?  tags: [String]?
        big: U64?
        @range(age, 0..150)
    }
    node Bare { }
    edge Knows: Person -> Person { since: Date? }
    """
)
PERSON, KNOWS = CATALOG.nodes["Person"], CATALOG.edges["Knows"]


def parsed(
    *tables: pa.Table, declared: NodeType | EdgeType = PERSON, first_place: int = 0
) -> Outcome:
    batches = [batch for table in tables for batch in table.to_batches()]
    new_ids = id_source(counting_ids())
    return outcome(
        parse_batches(
            batches, declared, rules_of(declared), new_ids=new_ids, first_place=first_place
        )
    )


def test_rows_of_a_frame_come_as_rows_of_the_type() -> None:
    frame = pa.table({"age": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})

    (rows, _) = parse_batches(
        frame.to_batches(), PERSON, rules_of(PERSON), new_ids=id_source(counting_ids())
    )

    assert isinstance(rows, ParsedRows)
    assert rows.table_key == "node:Person"
    assert rows.rows.schema.equals(node_schema(PERSON), check_metadata=True)
    assert rows.rows.column("id").to_pylist() == ["a", "b"]


def test_places_count_through_all_batches_from_the_first_place() -> None:
    frames = [pa.table({"name": ["a", None]}), pa.table({"name": [None, "b", None]})]

    found = parsed(*frames, first_place=10)

    assert list(found.rows["node:Person"]) == [10, 13]
    assert list(found.refused) == [11, 12, 14]
    assert (found.lines, found.records) == (5, 5)


def test_a_refused_row_is_shown_as_it_came() -> None:
    frame = pa.table(
        {
            "name": pa.array([None], pa.string()),
            "born": pa.array([dt.date(2024, 2, 29)]),
            "seen": pa.array([dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC)]),
            "photo": pa.array([b"\x00\x01"]),
            "tags": pa.array([["é", None]]),
            "big": pa.array([Decimal(7)], pa.decimal128(20, 0)),
        }
    )

    found = parsed(frame)

    assert found.refused[0]["type"] == "Person"
    assert found.refused[0]["message"] == "name: found nothing, expected a value"
    assert json.loads(found.refused[0]["raw"]) == {
        "name": None,
        "born": "2024-02-29",
        "seen": "2024-02-29T10:00:00+00:00",
        "photo": "base64:AAE=",
        "tags": ["é", None],
        "big": "7",
    }


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array([float("nan")]), "nan"),
        (pa.array([2**62], pa.timestamp("s")), ""),
        (pa.array([1], pa.timestamp("ns", "UTC")), "00:00:00.000000001"),
        (pa.array([{"a": b"\x00"}]), "base64:AA=="),
        (pa.array([b"\xff"], pa.binary()).view(pa.string()), "base64:/w=="),
        (pa.array([[2**62]], pa.list_(pa.timestamp("s"))), "timestamp"),
    ],
    ids=["not a number", "far future", "nanoseconds", "struct", "no text", "nested"],
)
def test_a_row_can_be_shown_whatever_it_holds(column: pa.Array, shown: str) -> None:
    found = parsed(pa.table({"name": pa.nulls(1, pa.string()), "tags": column}))

    assert shown in str(json.loads(found.refused[0]["raw"])["tags"])


def test_every_one_of_many_bad_rows_has_its_own_message() -> None:
    frame = pa.table({"name": [str(n) for n in range(500)], "age": list(range(500))})

    found = parsed(frame)

    assert len(found.rows["node:Person"]) == 151
    assert found.messages() == [f"age: found {n}, expected 0 to 150" for n in range(151, 500)]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_bad_dates_among_good_ones_are_refused_alone(kind: pa.DataType) -> None:
    texts = ["2024-01-01", "20240131", "2024-02-30", "never", None]
    frame = pa.table({"name": list("abcde"), "born": pa.array(texts).cast(kind)})

    found = parsed(frame)

    born = {place: row["born"] for place, row in found.rows["node:Person"].items()}
    assert born == {0: "2024-01-01", 1: "2024-01-31", 4: None}
    assert found.messages() == [
        "born: found '2024-02-30', expected Date",
        "born: found 'never', expected Date",
    ]


def test_a_batch_without_rows_or_columns_is_nothing_special() -> None:
    assert parsed(pa.table({"name": pa.array([], pa.string())})).records == 0
    assert parsed().records == 0
    empty = pa.table({"id": pa.nulls(2, pa.string())})
    assert len(parsed(empty, declared=CATALOG.nodes["Bare"]).rows["node:Bare"]) == 2


def test_a_large_batch_is_read_in_pieces() -> None:
    count = BATCH_ROWS_MAX + 5
    frame = pa.table({"name": [str(n) for n in range(count)]})

    found = list(
        parse_batches(
            frame.to_batches(), PERSON, rules_of(PERSON), new_ids=id_source(counting_ids())
        )
    )

    sizes = [len(each.rows) for each in found if isinstance(each, ParsedRows)]
    assert sizes == [BATCH_ROWS_MAX, 5]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ["name", "agee"],
            "the frame of Person has a column for 'agee', which Person does not have",
        ),
        (["name", "src"], "'src', which Person does not have"),
        (["name", "name"], "has the column 'name' more than once"),
    ],
)
def test_a_column_that_belongs_to_nothing_refuses_the_whole_frame(
    names: list[str], said: str
) -> None:
    frame = pa.Table.from_arrays([pa.array(["a"])] * 2, names=names)

    with pytest.raises(InvalidInputError, match=said):
        parsed(frame)


def parquet(path: Path, table: pa.Table, **more: Any) -> SourceFile:
    pq.write_table(table, path, row_group_size=more.pop("row_group_size", 100))
    return SourceFile(path=str(path), format=FileFormat.PARQUET, size=path.stat().st_size, **more)


def outcomes(file: SourceFile, **more: Any) -> list[Outcome]:
    new_ids = id_source(counting_ids())
    return [
        outcome(parse_split(split, CATALOG, new_ids=new_ids, **more))
        for split in plan_splits([file], split_bytes=1)
    ]


def test_each_row_group_of_a_parquet_file_is_read_by_its_own_split(tmp_path: Path) -> None:
    table = pa.table({"name": [str(n) for n in range(7)], "age": [1, 1, 1, 1, 999, 1, 1]})
    file = parquet(tmp_path / "a.parquet", table, type_name="Person", row_group_size=3)

    found = outcomes(file, block_rows=2)

    assert [each.lines for each in found] == [3, 3, 1]
    assert [list(each.rows["node:Person"]) for each in found] == [[0, 1, 2], [0, 2], [0]]
    assert found[1].reasons == {1: "out_of_range"}


def test_columns_of_a_parquet_file_can_have_other_names(tmp_path: Path) -> None:
    table = pa.table({"who": ["a"], "whom": ["b"], "since": ["2024-01-01"]})
    file = parquet(
        tmp_path / "a.parquet", table, type_name="Knows", columns={"src": "who", "dst": "whom"}
    )

    (found,) = outcomes(file)

    assert found.rows["edge:Knows"][0] == {
        "id": "new1",
        "src": "a",
        "dst": "b",
        "since": "2024-01-01",
    }


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"nam": "who"}, "is mapped to 'nam', which Person does not have; did you mean `name`"),
        ({"name": "whoo"}, "has no column 'whoo' for name; did you mean `who`"),
        ({}, "has a column for 'who', which Person does not have"),
    ],
)
def test_a_mapping_that_does_not_fit_the_file_is_refused(
    tmp_path: Path, columns: dict[str, str], said: str
) -> None:
    file = parquet(
        tmp_path / "a.parquet", pa.table({"who": ["a"]}), type_name="Person", columns=columns
    )

    with pytest.raises(InvalidInputError, match=said) as caught:
        outcomes(file)
    assert "a.parquet" in str(caught.value)


def test_a_column_replaced_by_a_mapping_may_not_stand_beside_it(tmp_path: Path) -> None:
    table = pa.table({"name": ["a"], "full_name": ["b"]})
    file = parquet(tmp_path / "a.parquet", table, type_name="Person", columns={"name": "full_name"})

    with pytest.raises(InvalidInputError, match="has a column for 'name'"):
        outcomes(file)


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", pa.table({"name": ["a"] * 1000}), type_name="Person")
    splits = plan_splits([file])
    content = bytearray(Path(file.path).read_bytes())
    content[4:60] = b"\xff" * 56
    Path(file.path).write_bytes(bytes(content))

    with pytest.raises(InvalidInputError, match=r"a\.parquet cannot be read as Parquet"):
        outcome(parse_split(splits[0], CATALOG, new_ids=id_source(counting_ids())))


def test_columns_of_a_parquet_file_without_rows_are_looked_at_too(tmp_path: Path) -> None:
    table = pa.table({"nope": pa.array([], pa.string())})
    file = parquet(tmp_path / "a.parquet", table, type_name="Person")

    with pytest.raises(InvalidInputError, match="nope"):
        outcomes(file)
