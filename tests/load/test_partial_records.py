"""What the records of a merge mention, read from every format."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph_lake.load.formats.frames import parse_batches
from omnigraph_lake.load.formats.parse import parse_split
from omnigraph_lake.load.formats.records import Parsed, ParsedRows, RefusedRecords
from omnigraph_lake.validation.constraints import rules_of
from omnigraph_lake.validation.input.intake import id_source
from omnigraph_lake.validation.input.mentions import Mentions
from tests.load.inputs import whole, written
from tests.schema.compiling import compiled
from tests.validation.graphs import counting_ids

pytestmark = pytest.mark.unit

CATALOG = compiled(
    """
    node Person { name: String @key  age: I32?  born: Date?  city: String  tags: [String]? }
    edge Knows: Person -> Person { since: Date?  note: String }
    """
)
PERSON = CATALOG.nodes["Person"]

Mentioned = dict[int, frozenset[str]]


def mentioned(parsed: Iterable[Parsed], table_key: str = "node:Person") -> Mentioned:
    """The columns that each row mentions, by its place."""
    by_place: Mentioned = {}
    for piece in parsed:
        if isinstance(piece, ParsedRows) and piece.table_key == table_key:
            mentions, count = piece.mentions or Mentions(), len(piece.rows)
            masks = {
                name: mentions.mask(name, count).to_pylist()
                for name in piece.rows.column_names
                if name != "id"
            }
            for row, place in enumerate(piece.places.to_pylist()):
                by_place[place] = frozenset(name for name, mask in masks.items() if mask[row])
                for name, mask in masks.items():
                    assert mask[row] or not piece.rows.column(name)[row].is_valid
    return by_place


def refused(parsed: Iterable[Parsed]) -> dict[int, tuple[str, str]]:
    return {
        row["place"]: (row["reason"], row["message"])
        for piece in parsed
        if isinstance(piece, RefusedRecords)
        for row in piece.table.to_pylist()
    }


def lines(path: Path, *records: dict[str, Any]) -> list[Parsed]:
    content = "".join(f"{json.dumps(record)}\n" for record in records).encode()
    return list(parsed_file(path, content))


def parsed_file(path: Path, content: bytes, type_name: str | None = None) -> Iterable[Parsed]:
    split = whole(written(path, content, type_name=type_name))
    new_ids = id_source(counting_ids())
    return parse_split(split, CATALOG, new_ids=new_ids, partial=True, block_bytes=2_000)


def person(**data: object) -> dict[str, Any]:
    return {"type": "Person", "data": data}


def test_json_lines_mention_their_members_whichever_way_they_are_read(tmp_path: Path) -> None:
    chance = random.Random(3)
    values: dict[str, list[object]] = {
        "age": [1, None, 2.0],
        "born": ["2020-01-02", None, "2020-W01-1"],
        "city": ["here"],
        "tags": [["a"], None, []],
    }
    records = []
    for number in range(600):
        names = [name for name in values if chance.random() < 0.7]
        chance.shuffle(names)
        data = {name: chance.choice(values[name]) for name in names}
        records.append(person(name=f"p{number}", **data))

    parsed = lines(tmp_path / "p.jsonl", *records)

    assert refused(parsed) == {}
    expected = {place: frozenset(record["data"]) for place, record in enumerate(records)}
    assert mentioned(parsed) == expected


def test_edges_mention_their_ends_beside_their_data(tmp_path: Path) -> None:
    ends = {"from": "a", "to": "b"}
    parsed = lines(
        tmp_path / "k.jsonl",
        {"edge": "Knows", "data": {"id": "e1", "since": None}},
        {"edge": "Knows", "from": "c", "data": {"id": "e2"}},
        {"edge": "Knows", **ends, "data": {"note": "new"}},
        {"edge": "Knows", **ends},
        {"edge": "knowS", "to": "c", "data": {"id": "e3"}},
        {"edge": "Knows", **ends, "data": {"id": "e4", "note": None}},
    )

    assert mentioned(parsed, "edge:Knows") == {
        0: {"since"},
        1: {"src"},
        # A record without an id is an insert, and so is all there is of it.
        2: {"src", "dst", "since", "note"},
        4: {"dst"},
    }
    missing = ("missing_required", "note: found nothing, expected a value")
    assert refused(parsed) == {3: missing, 5: missing}


def test_only_a_row_that_cannot_be_found_lacks_what_is_required(tmp_path: Path) -> None:
    parsed = lines(
        tmp_path / "p.jsonl",
        person(name="ann"),
        person(name="bob", city=None),
        person(age=3),
        person(id="cyd", age=3),
        person(id="dan", name="eve"),
        person(name=None, id="fay"),
    )

    assert mentioned(parsed) == {0: {"name"}, 3: {"age"}}
    assert {place: reason for place, (reason, _) in refused(parsed).items()} == {
        1: "missing_required",
        2: "missing_required",
        4: "bad_id",
        5: "missing_required",
    }


def test_a_file_or_frame_mentions_its_columns_in_every_row(tmp_path: Path) -> None:
    frame = pa.table({"name": ["a", "b"], "age": [1, None], "born": ["2020-01-02", "2020-W01-1"]})
    everywhere = {0: {"name", "age", "born"}, 1: {"name", "age", "born"}}
    text = b"name,age,born\na,1,2020-01-02\nb,,2020-W01-1\n"
    pq.write_table(frame, tmp_path / "p.parquet")
    parquet = parsed_file(
        tmp_path / "p.parquet", (tmp_path / "p.parquet").read_bytes(), type_name="Person"
    )
    batches = parse_batches(
        frame.to_batches(),
        PERSON,
        rules_of(PERSON),
        new_ids=id_source(counting_ids()),
        partial=True,
    )

    csv = parsed_file(tmp_path / "p.csv", text, type_name="Person")
    assert mentioned(csv) == {place + 1: names for place, names in everywhere.items()}
    assert mentioned(parquet) == everywhere
    assert mentioned(batches) == everywhere


def test_rows_of_other_modes_say_nothing_of_mentions(tmp_path: Path) -> None:
    split = whole(written(tmp_path / "p.jsonl", b'{"type":"Person","data":{"name":"a"}}\n'))

    parsed = list(parse_split(split, CATALOG, new_ids=id_source(counting_ids())))

    assert {reason for reason, _ in refused(parsed).values()} == {"missing_required"}
    assert not mentioned(parsed)
