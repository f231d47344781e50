from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph_lake.load.report import (
    QUARANTINE_SCHEMA,
    parts,
    put_part,
    quarantine_place,
    remove_parts,
)
from omnigraph_lake.storage.objects.location import parse_root

pytestmark = pytest.mark.unit

OPERATION = "01HZZZZZZZZZZZZZZZZZZZZZZZ"
ROW = {
    "file": "a.jsonl",
    "line": 1,
    "type": None,
    "reason": "malformed",
    "message": "found nothing",
    "raw": b"\xff\x00",
}
ROWS = pa.Table.from_pylist([ROW], schema=QUARANTINE_SCHEMA)


def test_parts_are_parquet_that_any_reader_opens_as_one_table(tmp_path: Path) -> None:
    place = quarantine_place(parse_root(tmp_path / "graph"), OPERATION, None)

    put_part(place, 0, ROWS)
    put_part(pickle.loads(pickle.dumps(place)), 7, ROWS)  # noqa: S301 - as tasks get it

    assert place.uri == f"{tmp_path}/graph/_quarantine/{OPERATION}"
    assert pq.read_table(place.uri).to_pylist() == [ROW, ROW]
    assert len(parts(place)) == 2


def test_a_part_written_again_replaces_the_former(tmp_path: Path) -> None:
    place = quarantine_place(parse_root(tmp_path / "graph"), OPERATION, None)
    put_part(place, 0, pa.concat_tables([ROWS, ROWS]))

    put_part(place, 0, ROWS)

    assert pq.read_table(place.uri).num_rows == 1


def test_removing_spares_other_loads_and_what_is_not_ours(tmp_path: Path) -> None:
    named = tmp_path / "bad"
    graph = parse_root(tmp_path / "graph")
    mine = quarantine_place(graph, OPERATION, str(named))
    other = quarantine_place(graph, "01HYYYYYYYYYYYYYYYYYYYYYYY", str(named))
    for number in range(3):
        put_part(mine, number, ROWS)
    put_part(other, 0, ROWS)
    (named / "deep").mkdir()
    (named / "deep" / f"{OPERATION}-00000.parquet").write_text("a copy")

    remove_parts(mine, kept=[1])

    assert parts(mine) == (f"{OPERATION}-00001.parquet",)
    assert len(parts(other)) == 1
    assert (named / "deep" / f"{OPERATION}-00000.parquet").exists()


def test_removing_where_nothing_was_written_is_fine(tmp_path: Path) -> None:
    place = quarantine_place(parse_root(tmp_path / "graph"), OPERATION, str(tmp_path / "bad"))

    remove_parts(place)

    assert parts(place) == ()
    assert not (tmp_path / "bad").exists()
