"""Scans shared by many workers: how fragments are dealt out, and what is refused beforehand."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.storage.lance.tables import (
    FragmentSize,
    grouped,
    plan_scan,
    row_parts,
    scan_fragments,
)
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.snapshot import TableEntry

pytestmark = pytest.mark.unit

SCHEMA = "node Doc { title: String @key  size: U64?  body: Blob?  place: Vector(2)? }"


def sizes(*rows: int) -> list[FragmentSize]:
    return [FragmentSize(fragment_id=number, rows=count) for number, count in enumerate(rows)]


@pytest.fixture
def docs(graph_root: str) -> tuple[Root, TableEntry]:
    """A table of three fragments, one of which has lost a row."""
    graph = og.init(graph_root, schema=SCHEMA)
    for start in (0, 10, 20):
        rows = [{"title": f"d{n}", "size": n, "body": b"x" * n} for n in range(start, start + 10)]
        graph.write({"Doc": rows})
    graph.delete({"Doc": ["d15"]})
    return parse_root(graph_root), graph.snapshot().tables["node:Doc"]


def test_many_small_fragments_share_a_group_and_a_large_one_stands_alone() -> None:
    groups = grouped(sizes(10, 1_000_000, *[20_000] * 10), rows_max=100_000)

    assert (1,) in groups
    assert len(groups) == 4
    assert sorted(each for group in groups for each in group) == list(range(12))


def test_groups_of_random_fragments_differ_little_in_rows() -> None:
    rng = random.Random(3)
    fragments = sizes(*(rng.randrange(1, 50_000) for _ in range(2000)))
    rows = {each.fragment_id: each.rows for each in fragments}

    loads = [sum(rows[each] for each in group) for group in grouped(fragments, rows_max=500_000)]

    assert sum(loads) == sum(rows.values())
    assert max(loads) < 1.1 * min(loads)


def test_thousands_of_nearly_empty_fragments_are_more_than_one_group() -> None:
    assert len(grouped(sizes(*[1] * 5000), rows_max=250_000)) > 10


def test_no_fragments_make_no_groups() -> None:
    assert grouped([], rows_max=100) == ()


def test_each_fragment_is_read_once_at_the_pin(docs: tuple[Root, TableEntry]) -> None:
    root, entry = docs
    planned = plan_scan(root, entry, columns=["title"], where=None)

    titles = [
        title
        for fragment in planned.fragments
        for batch in scan_fragments(
            root, entry, [fragment.fragment_id], columns=["title"], where=None
        )
        for title in batch.column("title").to_pylist()
    ]

    assert [each.rows for each in planned.fragments] == [10, 9, 10]
    assert sorted(titles) == sorted(f"d{n}" for n in range(30) if n != 15)


def test_a_condition_reaches_lance_and_blobs_come_as_bytes(docs: tuple[Root, TableEntry]) -> None:
    root, entry = docs
    batches = scan_fragments(root, entry, [0, 2], columns=["size", "body"], where="size > 27")

    rows = pa.Table.from_batches(batches).to_pylist()

    assert rows == [{"size": 28, "body": b"x" * 28}, {"size": 29, "body": b"x" * 29}]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("age > 3", "No field named age"),
        ("size >", "Expected: an expression"),
        ("size + 1", "does not return a boolean"),
        ("title = 3", "could not convert to literal"),
        ("", "Expected: an expression"),
    ],
)
def test_a_condition_without_sense_is_refused_while_planning(
    docs: tuple[Root, TableEntry], where: str, said: str
) -> None:
    root, entry = docs

    with pytest.raises(InvalidInputError) as caught:
        plan_scan(root, entry, columns=["title"], where=where)

    assert "cannot filter node type Doc by" in caught.value.what
    assert said in caught.value.what
    assert "rust" not in str(caught.value)


def test_a_column_asked_for_twice_is_refused_while_planning(docs: tuple[Root, TableEntry]) -> None:
    root, entry = docs

    with pytest.raises(InvalidInputError, match="Duplicate column name: title"):
        plan_scan(root, entry, columns=["title", "title"], where=None)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, [[1, 2, 3, 4, 5]]),
        ({"rows_max": 3}, [[1, 2, 3], [4, 5]]),
        ({"rows_max": 1}, [[1, 2], [3], [4, 5]]),
        ({"bytes_max": 17}, [[1, 2, 3], [4, 5]]),
        ({"rows_max": 4, "bytes_max": 16}, [[1, 2], [3, 4, 5]]),
    ],
)
def test_rows_are_cut_where_a_limit_is_reached(
    limits: dict[str, int], expected: list[list[int]]
) -> None:
    batches = [pa.record_batch({"n": pa.array(n, pa.int64())}) for n in ([], [1, 2], [3], [4, 5])]

    parts = [part.column("n").to_pylist() for part in row_parts(batches, **limits)]

    assert parts == expected
    assert list(row_parts(batches[:1], **limits)) == []
