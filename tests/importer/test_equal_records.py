"""Records without a key: equal ones are rows of their own, and an import can be repeated."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.load import numbering, pipeline
from omnigraph_lake.storage.objects.location import parse_root
from tests.importer.shapes import write_csv, write_lines
from tests.runner.random_runner import RandomRunner

pytestmark = pytest.mark.unit

HEADER = "level,text,code\n"
LINES = ["1,a,5", "1,b,5", "2,a,5", "1,a,5", "1,a,5", "2,a,5", ",,7", '"","",7']


def write(folder: Path, lines: list[str], name: str = "logs.csv") -> str:
    return write_csv(folder / name, HEADER + "\n".join(lines) + "\n")


def rows(root: str, type_name: str) -> list[dict[str, Any]]:
    table = og.open(root, read_only=True).scan(type_name).read_all()
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))


def content(root: str, type_name: str = "Log") -> list[tuple[Any, ...]]:
    """The rows without their ids."""
    values = [
        tuple(row[name] for name in sorted(row) if name != "id") for row in rows(root, type_name)
    ]
    return sorted(values, key=str)


def test_equal_records_are_rows_of_their_own(tmp_path: Path) -> None:
    root = str(tmp_path / "g")

    report = og.import_data(root, write(tmp_path, LINES))

    assert report.load is not None
    assert report.load.written == {"Log": len(LINES)}
    assert sum(row["code"] for row in rows(root, "Log")) == 44
    ids = sorted(row["id"].partition("~")[2] for row in rows(root, "Log"))
    assert ids == ["", "", "", "", "", "1", "1", "2"]


ORDERS = [
    {"day": 1, "customer": {"name": "Ann", "town": "Ulm"}, "items": [{"n": 1}, {"n": 1}]},
    {"customer": {"town": "Ulm", "name": "Ann"}, "items": [{"n": 1}, {"n": 1}], "day": 1},
    {"day": 2, "items": [{"n": 1}]},
    {"day": 1, "customer": {"name": "Ann", "town": "Ulm"}, "items": [{"n": 1}, {"n": 1}]},
    {"day": 1, "customer": {"name": "Ann", "town": "Ulm"}, "items": [{"n": 1}]},
    {"day": 2, "items": [{"n": 1}], "customer": None},
]


def imported_in_pieces(
    root: str, path: str, way: str, monkeypatch: pytest.MonkeyPatch, split_bytes: int
) -> og.ImportReport:
    monkeypatch.setattr(numbering, "RECORDS_PER_BUCKET", 9)
    if way != "threads":
        stored = parse_root(root) if way == "fragments" else None
        runner = RandomRunner(split_bytes, root=stored)
        monkeypatch.setattr(load_operation, "ThreadRunner", lambda _: runner)
    monkeypatch.setattr(load_operation, "_split_bytes", lambda *_: split_bytes)
    return og.import_data(root, path)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("pieces", [1, 7, 16])
@pytest.mark.parametrize("way", ["threads", "tasks", "fragments"])
def test_numbers_are_those_of_the_input_however_it_is_cut(
    way: str, pieces: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    lines = write(tmp_path, [draw.choice(LINES) for _ in range(64)])
    orders = write_lines(tmp_path / "orders.jsonl", [draw.choice(ORDERS) for _ in range(40)])
    types = {"Log": lines, "Order": orders, "Item": orders, "HasItem": orders}
    for path in (lines, orders):
        og.import_data(str(tmp_path / f"expected-{Path(path).stem}"), path)

    for path in (lines, orders):
        size = Path(path).stat().st_size
        root = str(tmp_path / f"cut-{Path(path).stem}")
        imported_in_pieces(root, path, way, monkeypatch, -(-size // pieces))

    for type_name, path in types.items():
        stem = Path(path).stem
        cut, whole = (
            rows(str(tmp_path / f"{kind}-{stem}"), type_name) for kind in ("cut", "expected")
        )
        assert cut == whole
        assert len(cut) >= 40


def test_rows_of_a_numbered_record_go_along(tmp_path: Path) -> None:
    root = str(tmp_path / "g")

    og.import_data(root, write_lines(tmp_path / "orders.jsonl", ORDERS), on_error="fail")

    orders = {row["id"] for row in rows(root, "Order")}
    items = {row["id"] for row in rows(root, "Item")}
    edges = rows(root, "HasItem")
    assert (len(orders), len(items), len(edges)) == (6, 9, 9)
    assert {edge["src"] for edge in edges} == orders
    assert {edge["dst"] for edge in edges} == items
    assert all(edge["dst"].startswith(f"{edge['src']}/") for edge in edges)


def test_equal_edges_are_numbered_and_a_second_import_adds_none(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "calls.csv", "source,target,minutes\na,b,1\na,b,1\nb,a,2\na,b,1")
    root = str(tmp_path / "g")

    for _ in range(2):
        og.import_data(root, path)

    assert content(root, "Calls") == [("a", 2, "b"), *[("b", 1, "a")] * 3]


def again(root: str, path: str, **options: Any) -> tuple[dict[str, int], dict[str, int], bool]:
    """What an import has inserted and what was there already, and whether it was published."""
    load = og.import_data(root, path, **options).load
    assert load is not None
    return dict(load.inserted), dict(load.already_there), load.commit_id is not None


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    og.import_data(root, write(tmp_path, LINES))

    same = again(root, write(tmp_path, LINES))
    shuffled = again(root, write(tmp_path, LINES[::-1]))
    fewer = again(root, write(tmp_path, LINES[1:]))
    more = again(root, write(tmp_path, [*LINES, "1,a,5"]))
    corrected = again(root, write(tmp_path, ["9,b,5", *LINES]))

    assert same == shuffled == ({}, {"Log": 8}, False)
    assert fewer == ({}, {"Log": 7}, False)
    assert more == ({"Log": 1}, {"Log": 8}, True)
    assert corrected == ({"Log": 1}, {"Log": 8}, True)
    assert len(rows(root, "Log")) == 10


def test_corrected_values_of_published_rows_are_updates(tmp_path: Path) -> None:
    root, path = str(tmp_path / "g"), write(tmp_path, LINES)
    report = og.import_data(root, path)
    ids = {row["id"] for row in rows(root, "Log")}
    mapping = report.mapping.replace('text = "text"', 'text = { column = "text", null = "b" }')

    corrected = og.import_data(root, path, mapping=mapping)

    assert corrected.load is not None
    assert (corrected.load.updated, corrected.load.already_there) == ({"Log": 1}, {"Log": 7})
    assert {row["id"] for row in rows(root, "Log")} == ids


def test_keyed_rows_that_are_published_are_not_written_again(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    path = write_csv(tmp_path / "people.csv", "id,name,tags\n1,Ann,a;b\n2,Bob,\n3,Cyd,c;a\n")
    og.import_data(root, path)
    write_csv(
        tmp_path / "people.csv", "id,name,tags\n1,Ann,a;b\n2,Bob,x\n3,Cyd,c;a\n2,Bob,\n4,Dan,\n"
    )

    assert again(root, path) == ({"Person": 1}, {"Person": 3}, True)
    assert again(root, path) == ({}, {"Person": 4}, False)


def test_equal_records_can_be_new_rows(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    path = write_lines(tmp_path / "orders.jsonl", ORDERS)
    og.import_data(root, path)

    added = again(root, path, new_rows=True)

    assert added == ({"Order": 6, "Item": 9, "HasItem": 9}, {}, True)
    assert again(root, path) == ({}, {"Order": 6, "Item": 9, "HasItem": 9}, False)
    orders = [row["id"] for row in rows(root, "Order")]
    assert len(orders) == 12
    assert {edge["src"] for edge in rows(root, "HasItem")} == set(orders)


def test_new_edges_are_counted_behind_those_that_are_there(tmp_path: Path) -> None:
    text = "source,target,minutes\na,b,1\na,b,1\nb,a,2"
    path, root = write_csv(tmp_path / "calls.csv", text), str(tmp_path / "g")
    for _ in range(3):
        og.import_data(root, path, new_rows=True)

    assert sorted(row["id"].partition("~")[2][:1] for row in rows(root, "Calls")) == sorted(
        ["", "1", "2", "3", "4", "5", "", "1", "2"]
    )


def test_one_import_of_two_files_is_two_imports_of_new_rows(tmp_path: Path) -> None:
    files = [write(tmp_path, LINES[4:], "logs-1.csv"), write(tmp_path, LINES[:4], "logs-2.csv")]
    together, apart = str(tmp_path / "together"), str(tmp_path / "apart")
    og.import_data(together, str(tmp_path / "logs-*.csv"))
    og.import_data(apart, files[0])
    og.import_data(apart, files[1], new_rows=True)

    assert rows(apart, "Log") == rows(together, "Log")


def test_equal_records_that_are_all_rejected_are_numbered_for_nothing(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    og.import_data(root, write(tmp_path, LINES))
    bad = write(tmp_path, ["x,a,5", "x,a,5"])

    for new_rows in (False, True):
        report = og.import_data(
            root, bad, new_rows=new_rows, options=og.ImportOptions(max_rejected="100%")
        )

        assert [(cause.reason, cause.count) for cause in report.causes] == [("wrong_type", 2)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("new_rows", [False, True])
def test_numbers_are_right_after_a_lost_race(
    new_rows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, path = str(tmp_path / "g"), write(tmp_path, LINES[:6])
    og.import_data(root, write(tmp_path, LINES[:2], "logs-0.csv"))
    racing = [lambda: og.import_data(root, path, new_rows=new_rows)]

    def race(point: str) -> None:
        if point == "load.gathered" and racing:
            racing.pop()()

    monkeypatch.setattr(pipeline, "reach", race)

    og.import_data(root, path, new_rows=new_rows)

    assert not racing
    assert len(rows(root, "Log")) == (14 if new_rows else 6)


def test_ids_are_made_of_the_texts_of_the_columns_alone(tmp_path: Path) -> None:
    first = og.import_data(str(tmp_path / "g"), write(tmp_path, LINES))
    ids = [row["id"] for row in rows(str(tmp_path / "g"), "Log")]
    turned = write_csv(
        tmp_path / "logs.csv",
        "more,code,text,level\n"
        + "\n".join(f"{n},{','.join(line.split(',')[::-1])}" for n, line in enumerate(LINES)),
    )
    mapping = first.mapping.replace('"error"', '"ignore"').replace(
        'text = "text"', 'text = { column = "text", null = ["b", ""], default = "?" }'
    )

    og.import_data(str(tmp_path / "h"), turned, mapping=mapping, schema=first.schema)

    assert [row["id"] for row in rows(str(tmp_path / "h"), "Log")] == ids


def test_a_mapping_with_digests_of_before_is_refused(tmp_path: Path) -> None:
    report = og.import_data(str(tmp_path / "g"), write(tmp_path, LINES))
    kept = [line for line in report.mapping.splitlines() if not line.startswith("digest")]

    with pytest.raises(og.InvalidInputError, match=r"Infer the mapping again with .*--dry-run"):
        og.import_data(str(tmp_path / "g"), write(tmp_path, LINES), mapping="\n".join(kept))


def test_equal_edges_in_a_list_are_items_of_their_own(tmp_path: Path) -> None:
    call = {"from": "a", "to": "b", "minutes": 1}
    days = [{"calls": [call, call]}, {"calls": [call]}, {"calls": [call, call]}]
    path, root = write_lines(tmp_path / "days.jsonl", days), str(tmp_path / "g")

    for _ in range(2):
        og.import_data(root, path)

    assert content(root, "Calls") == [("b", 1, "a")] * 5
