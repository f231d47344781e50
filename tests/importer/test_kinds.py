"""Files of one kind become one type, and ends of edges may be numbers of records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError
from tests.importer.shapes import write_csv

pytestmark = pytest.mark.unit

MARCH = "id,sold,amount\n3,2024-03-01,1.5"


def two_months(folder: Path) -> list[str]:
    january = write_csv(folder / "sales-2024-jan.csv", "id,sold,amount\n1,2024-01-09,2")
    february = write_csv(folder / "sales-2024-feb.csv", "id,sold,amount\n2,2024-02-09,3.25")
    return [january, february]


def test_files_of_months_are_one_type_and_a_later_month_joins_them(tmp_path: Path) -> None:
    root = str(tmp_path / "g")

    first = og.import_data(root, two_months(tmp_path))
    again = og.import_data(root, write_csv(tmp_path / "sales-2024-mar.csv", MARCH))

    assert "// sales: sales-2024-jan, sales-2024-feb have the same columns" in first.schema
    assert first.load is not None
    assert dict(first.load.written) == {"Sale": 2}
    assert again.load is not None
    assert dict(again.load.written) == {"Sale": 1}
    assert og.open(root).count("Sale") == 3


def test_files_with_other_columns_are_joined_only_if_the_caller_says_so(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", "id,age,fare,died\n1,22,7.25,0\n2,38,71.3,1")
    test = write_csv(tmp_path / "test.csv", "id,age,fare\n3,34,7.8")
    root = str(tmp_path / "g")

    (hint,) = og.import_data(root, [train, test], dry_run=True).hints
    report = og.import_data(root, [train, test], options=og.ImportOptions(types={"test": "train"}))
    again = og.import_data(root, test)

    assert str(hint) == (
        "hint: test: 3 of 4 columns are those of train, too\n  to change it: --type test=train"
    )
    assert report.load is not None
    assert dict(report.load.written) == {"Train": 3}
    assert again.load is not None
    assert dict(again.load.already_there) == {"Train": 1}


def test_an_unknown_source_is_no_type_of_another_one(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "people.csv", "id,name\n1,Ann")
    options = og.ImportOptions(types={"pets": "people"})

    with pytest.raises(InvalidInputError, match="no source of files has the name 'pets'"):
        og.import_data(str(tmp_path / "g"), source, options=options, dry_run=True)


def write_graph(path: Path, nodes: list[dict[str, object]], links: list[tuple[int, int]]) -> str:
    listed = [{"source": source, "target": target} for source, target in links]
    path.write_text(json.dumps({"nodes": nodes, "links": listed}))
    return str(path)


@pytest.mark.parametrize(
    ("nodes", "links", "key"),
    [
        ([{"id": 1}, {"id": 2}, {"id": 3}], [(1, 2), (2, 2)], "node_id: I64 @key"),
        ([{"name": "a", "at": 2}, {"name": "b", "at": 0}], [(0, 2), (2, 0)], "at: I64 @key"),
        ([{"name": "a"}, {"name": "b"}], [(0, 1), (1, 0)], "position: I64 @key"),
        ([{"name": "a"}, {"name": "b"}], [(0, 2), (2, 0)], "name: String @key"),
        ([{"name": "a", "#": 5}, {"name": "b", "#": 6}], [(0, 1)], "name: String @key"),
    ],
)
def test_ends_are_ids_and_only_otherwise_numbers_of_records(
    nodes: list[dict[str, object]], links: list[tuple[int, int]], key: str, tmp_path: Path
) -> None:
    source = write_graph(tmp_path / "graph.json", nodes, links)

    report = og.import_data(str(tmp_path / "g"), source, on_error="fail")

    assert key in report.schema


def test_links_that_may_begin_at_one_are_left_to_the_caller(tmp_path: Path) -> None:
    nodes: list[dict[str, object]] = [{"name": name} for name in "abc"]
    source = write_graph(tmp_path / "graph.json", nodes, [(1, 2), (2, 1)])
    root = str(tmp_path / "g")

    (hint,) = og.import_data(root, source, dry_run=True).hints
    report = og.import_data(root, source, options=og.ImportOptions(keys={"nodes": "#"}))

    assert hint.option == "--key Node=#"
    assert report.load is not None
    assert dict(report.load.written) == {"Node": 3, "Links": 2}
    query = "match { $a: Node $a links $b } return { $a.name as a, $b.name as b } order { a asc }"
    assert og.open(root).query(query).to_pylist() == [{"a": "b", "b": "c"}, {"a": "c", "b": "b"}]


def test_a_member_of_the_name_of_the_position_column_is_refused(tmp_path: Path) -> None:
    nodes: list[dict[str, object]] = [{"name": "a"}, {"name": "b"}]
    root = str(tmp_path / "g")
    og.import_data(root, write_graph(tmp_path / "graph.json", nodes, [(0, 1)]))
    later = write_graph(tmp_path / "later.json", [{"name": "a", "#": 1}], [(0, 0)])

    with pytest.raises(InvalidInputError, match="#nodes has a member '#'"):
        og.import_data(root, later)


def rate_and_tag(folder: Path) -> list[str]:
    rated = "".join(f"\n{user},{user % 3 + 1},4.5" for user in range(1, 31) for _ in range(2))
    tagged = "".join(f"\n{user},{user % 3 + 1},fun{user}" for user in (*range(1, 25), 1))
    return [
        write_csv(folder / "movies.csv", "movieId,title\n1,Heat\n2,Alien\n3,Brazil"),
        write_csv(folder / "ratings.csv", f"userId,movieId,rating{rated}"),
        write_csv(folder / "tags.csv", f"userId,movieId,tag{tagged}"),
    ]


def test_ids_that_two_files_share_and_no_file_has_are_nodes(tmp_path: Path) -> None:
    report = og.import_data(str(tmp_path / "g"), rate_and_tag(tmp_path))

    assert "edge Rating: User -> Movie" in report.schema
    assert report.load is not None
    written = {"Movie": 3, "User": 30, "Rating": 60, "Tag": 25}
    assert dict(report.load.written) == written


def test_ids_that_one_file_has_are_nodes_only_if_the_caller_says_so(tmp_path: Path) -> None:
    movies, ratings, _ = rate_and_tag(tmp_path)

    (hint,) = og.import_data(str(tmp_path / "g"), [movies, ratings], dry_run=True).hints
    option, _, choice = hint.option.partition(" ")
    column, _, target = choice.partition("=")
    chosen = og.ImportOptions(edges={column: target})
    report = og.import_data(str(tmp_path / "g"), [movies, ratings], options=chosen)

    assert option == "--edge"
    assert report.load is not None
    assert report.load.written["User"] == 30


def test_a_thing_is_named_by_its_first_column_or_by_the_time_it_is_called_after(
    tmp_path: Path,
) -> None:
    buses = write_csv(tmp_path / "buses.csv", "name,volt\n1,220\n2,380\n2_220kV,220")
    lines = "name,bus0,bus1\nL1,1,2\nL2,2,2_220kV\nL3,1,2"
    moments = ",snapshot,weight\n0,2011-01-01 00:00,1\n1,2011-01-01 01:00,1"
    sources = [
        buses,
        write_csv(tmp_path / "lines.csv", lines),
        write_csv(tmp_path / "snapshots.csv", moments),
    ]

    schema = og.import_data(str(tmp_path / "g"), sources, dry_run=True).schema

    assert "node Line {\n    name: String @key" in schema
    assert "snapshot: DateTime @key" in schema
