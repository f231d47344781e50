from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_lake.ids import FreshIds
from omnigraph_lake.load.formats.parse import parse_split
from omnigraph_lake.load.formats.records import ParsedRows, RefusedRecords, SplitEnd
from omnigraph_lake.load.formats.splits import HEAD_BYTES, LINE_BYTES_MAX, plan_splits
from omnigraph_lake.schema.arrow import edge_schema, node_schema
from omnigraph_lake.validation.input.intake import id_source
from tests.load.inputs import loaded, outcome, whole, written
from tests.schema.compiling import compiled
from tests.validation.graphs import counting_ids

pytestmark = pytest.mark.unit

CATALOG = compiled(
    """
    node Person { name: String @key  age: I32?  born: Date? }
    node Note { text: String }
    edge Knows: Person -> Person { since: Date? }
    """
)
LINES = b"".join(
    (
        b'{"type":"Person","data":{"name":"p%d","age":%d,"born":"2000-01-%02d"}}\n' % (n, n, n % 40)
        if n % 3
        else b'{"edge":"Knows","from":"p%d","to":"p%d"}\n\n' % (n, n + 1)
    )
    for n in range(900)
)


def test_rows_have_exactly_the_columns_of_their_type(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", LINES)

    parsed = list(parse_split(whole(file), CATALOG, new_ids=id_source(counting_ids())))

    schemas = {each.table_key: each.rows.schema for each in parsed if isinstance(each, ParsedRows)}
    assert schemas["node:Person"].equals(node_schema(CATALOG.nodes["Person"]), check_metadata=True)
    assert schemas["edge:Knows"].equals(edge_schema(CATALOG.edges["Knows"]), check_metadata=True)


@pytest.mark.parametrize(
    ("split_bytes", "block_bytes"), [(300, 64), (3000, 1000), (20_000, 5000), (40_000, 1 << 20)]
)
def test_splits_and_blocks_of_any_size_come_to_the_same(
    tmp_path: Path, split_bytes: int, block_bytes: int
) -> None:
    file = written(tmp_path / "a.jsonl", LINES)
    wanted = loaded(tmp_path / "b.jsonl", LINES, CATALOG)
    rows: dict[int, object] = {}
    reasons: dict[int, str] = {}
    lines = 0
    for split in plan_splits([file], split_bytes=split_bytes)[:20]:
        new_ids = id_source(counting_ids())
        found = outcome(parse_split(split, CATALOG, new_ids=new_ids, block_bytes=block_bytes))
        for each in found.rows.values():
            rows |= {lines + place: row | {"id": None} for place, row in each.items()}
        reasons |= {lines + place: reason for place, reason in found.reasons.items()}
        lines += found.lines

    everything = {
        place: row | {"id": None}
        for each in wanted.rows.values()
        for place, row in each.items()
        if place < lines
    }
    assert rows == everything
    assert reasons == {place: why for place, why in wanted.reasons.items() if place < lines}
    assert lines > 50


def test_what_is_held_at_once_follows_the_block_and_not_the_split(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", LINES)

    parsed = list(
        parse_split(whole(file), CATALOG, new_ids=id_source(counting_ids()), block_bytes=1000)
    )

    tables = [each.rows for each in parsed if isinstance(each, ParsedRows)]
    assert len(tables) > 50
    assert max(map(len, tables)) < 30


def test_a_packed_file_comes_to_the_same_as_a_plain_one(tmp_path: Path) -> None:
    plain = loaded(tmp_path / "a.jsonl", LINES, CATALOG)

    packed = loaded(tmp_path / "a.jsonl.gz", LINES, CATALOG)

    assert (packed.rows, packed.reasons) == (plain.rows, plain.reasons)


def test_a_line_beyond_the_limit_is_refused_with_its_beginning(tmp_path: Path) -> None:
    size = LINE_BYTES_MAX + 1
    content = b'{"type":"Note","data":{"text":"a"}}\n' + b"x" * size + b"\n\n"

    found = loaded(tmp_path / "a.jsonl.gz", content, CATALOG)

    assert found.refused[1]["reason"] == "malformed"
    assert found.refused[1]["message"] == (
        f"found a line of {size} bytes, expected at most {LINE_BYTES_MAX}"
    )
    assert found.refused[1]["raw"] == b"x" * HEAD_BYTES
    assert (found.lines, found.records) == (3, 2)


def test_rows_that_were_read_slowly_stand_in_their_places(tmp_path: Path) -> None:
    lines = [
        b'{"type":"Person","data":{"name":"p%d","born":"%s"}}'
        % (n, b"20000101" if n % 4 == 0 else b"2000-01-01")
        for n in range(50)
    ]

    found = loaded(tmp_path / "a.jsonl", b"\n".join(lines), CATALOG)

    rows = found.rows["node:Person"]
    assert list(rows) == list(range(50))
    assert {row["born"] for row in rows.values()} == {"2000-01-01"}
    assert [row["name"] for row in rows.values()] == [f"p{n}" for n in range(50)]


def test_refusals_of_a_block_come_in_input_order(tmp_path: Path) -> None:
    lines = [b"x", b'{"type":"Note"}', b'{"type":"Person","data":{"name":"a","age":"b"}}'] * 5
    file = written(tmp_path / "a.jsonl", b"\n".join([*lines, b""]))

    parsed = list(parse_split(whole(file), CATALOG, new_ids=id_source(counting_ids())))

    assert isinstance(parsed[0], RefusedRecords)
    assert parsed[0].table.column("place").to_pylist() == list(range(15))
    assert parsed[1:] == [SplitEnd(lines=15, records=15)]


def test_records_without_an_id_get_new_ones_and_keep_their_own(tmp_path: Path) -> None:
    lines = b"\n".join(
        [b'{"type":"Note","data":{"text":"x"}}'] * 3
        + [b'{"type":"Note","data":{"text":"x","id":"mine"}}']
    )
    file = written(tmp_path / "a.jsonl", lines)
    ids = FreshIds.of_task(at_milliseconds=1, lot=3)

    found = outcome(parse_split(whole(file), CATALOG, new_ids=ids))

    given = [row["id"] for row in found.rows["node:Note"].values()]
    assert len(set(given)) == 4
    assert given[3] == "mine"
    assert all(each.startswith(ids.prefix) for each in given[:3])


@pytest.mark.parametrize(("name", "key"), [("node:Note", "node:Note"), ("Note", "node:Note")])
def test_a_file_of_one_type_may_name_it_by_table_key(tmp_path: Path, name: str, key: str) -> None:
    found = loaded(tmp_path / "a.csv", b"text\nx\n", CATALOG, type_name=name)

    assert list(found.rows) == [key]
