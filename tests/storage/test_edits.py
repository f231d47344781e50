"""Edits of single rows: what comes, what gets new contents, what goes, and who keeps a row id."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging import edits
from omnigraph_lake.storage.staging.changes import Change, StagedChange
from omnigraph_lake.storage.staging.edits import (
    Located,
    by_fragment,
    can_locate_changed,
    locate,
    locate_changed,
    stage_edits,
)
from omnigraph_lake.storage.staging.row_changes import plan_row_changes
from omnigraph_lake.storage.staging.table_versions import commit_staged
from tests.drawing import drawn

pytestmark = pytest.mark.unit

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("v", pa.int64()),
    ]
)


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """A table of three fragments: a b c, d e, f; e is deleted."""
    graph = og.init(graph_root, schema="node T { name: String @key  v: I64? }")
    for letters in ("abc", "de", "f"):
        graph.write({"T": [{"name": name, "v": 0} for name in letters]})
    graph.delete({"T": ["e"]})
    return graph


def entry_of(graph: Graph) -> TableEntry:
    return graph.snapshot().tables["node:T"]


def batch(*names: str, v: int = 1) -> pa.RecordBatch:
    columns = [pa.array(names, pa.string())] * 2 + [pa.array([v] * len(names), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def ids(names: Iterable[str]) -> pa.StringArray:
    return pa.array(list(names), pa.string())


def staged(graph: Graph, *upserts: pa.RecordBatch, deleted: Iterable[str] = ()) -> StagedChange:
    come = [name for each in upserts for name in each.column("id").to_pylist()]
    return stage_edits(
        graph._objects, entry_of(graph), upserts, upserted=ids(come), deleted=ids(deleted)
    )


def committed(graph: Graph, change: StagedChange) -> TableEntry:
    made = commit_staged(
        graph._objects.root, change, on_version=change.entry.version, operation_id="op"
    )
    assert made is not None
    return replace(
        change.entry, version=made.version, made_at=made.made_at, row_count=change.row_count
    )


def contents(graph: Graph, entry: TableEntry) -> dict[str, tuple[int, int]]:
    """Value and row id by name; the table must be sound."""
    dataset = open_pinned(graph._objects.root, entry)
    dataset.validate()  # type: ignore[no-untyped-call]
    rows = dataset.to_table(columns=["id", "name", "v", "_rowid"]).to_pylist()
    assert len(rows) == entry.row_count == dataset.count_rows()
    assert all(row["id"] == row["name"] for row in rows)
    assert len({row["_rowid"] for row in rows}) == len(rows)
    return {row["id"]: (row["v"], row["_rowid"]) for row in rows}


def counts(change: StagedChange) -> tuple[int, int, int]:
    return change.rows_inserted, change.rows_updated, change.rows_deleted


def test_new_rows_alone_are_an_append(graph: Graph) -> None:
    before = contents(graph, entry_of(graph))

    change = staged(graph, batch("g"), batch("h"))

    assert change.change is Change.APPEND
    assert counts(change) == (2, 0, 0)
    after = contents(graph, committed(graph, change))
    assert {name: after[name] for name in before} == before
    assert {name: after[name][0] for name in after if name not in before} == {"g": 1, "h": 1}


def test_rows_come_change_and_go_at_once_and_keep_their_row_ids(graph: Graph) -> None:
    before = contents(graph, entry_of(graph))

    change = staged(graph, batch("a", "g", "f"), batch("d"), deleted=["b"])

    assert counts(change) == (1, 3, 1)
    after = contents(graph, committed(graph, change))
    assert set(after) == {"a", "c", "d", "f", "g"}
    assert {name: after[name][1] for name in "acdf"} == {name: before[name][1] for name in "acdf"}
    values = {name: value for name, (value, _) in after.items()}
    assert values == {"a": 1, "c": 0, "d": 1, "f": 1, "g": 1}


def test_a_fragment_that_loses_all_its_rows_goes(graph: Graph) -> None:
    change = staged(graph, deleted=["a", "b", "c", "f"])

    assert counts(change) == (0, 0, 4)
    entry = committed(graph, change)
    assert set(contents(graph, entry)) == {"d"}
    assert len(open_pinned(graph._objects.root, entry).get_fragments()) == 1


def test_ids_that_no_row_has_are_not_deleted(graph: Graph) -> None:
    change = staged(graph, deleted=["x", "e", "a"])

    assert counts(change) == (0, 0, 1)
    assert set(contents(graph, committed(graph, change))) == {"b", "c", "d", "f"}


def test_no_edits_alter_nothing(graph: Graph) -> None:
    assert counts(staged(graph)) == (0, 0, 0)
    assert counts(staged(graph, deleted=["x"])) == (0, 0, 0)


def test_the_pinned_version_is_left_alone(graph: Graph) -> None:
    before = contents(graph, entry_of(graph))

    committed(graph, staged(graph, batch("a", "g"), deleted=["b"]))

    assert contents(graph, entry_of(graph)) == before


@pytest.mark.parametrize("probe_ids_max", [0, 500], ids=["scan", "filter"])
def test_rows_are_located_by_a_scan_or_a_filter_alike(
    graph: Graph, probe_ids_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "PROBE_IDS_MAX", probe_ids_max)
    graph.write({"T": [{"name": "it's"}, {"name": 'a"b'}, {"name": "é\\"}]})
    expected = contents(graph, entry_of(graph))
    wanted = ["it's", 'a"b', "é\\", "d", "e", "nobody", "a", "f"]

    found = locate(graph._objects.root, entry_of(graph), ids(wanted))

    assert dict(zip(found.ids.to_pylist(), found.lineage.row_ids.tolist(), strict=True)) == {
        name: expected[name][1] for name in wanted if name in expected
    }
    fragments = {number: offsets.tolist() for number, offsets in by_fragment(found.addresses)}
    assert sum(map(len, fragments.values())) == len(found.ids)
    assert fragments[0] == [0]


def test_many_rows_are_written_in_parts(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "_FRAGMENT_ROWS", 2)
    before = contents(graph, entry_of(graph))
    upserts = [batch(*letters) for letters in ("ag", "bh", "i", "cj", "k")]

    change = staged(graph, *upserts)

    assert counts(change) == (5, 3, 0)
    after = contents(graph, committed(graph, change))
    assert set(after) == set("abcdfghijk")
    assert {name: after[name][1] for name in before} == {name: before[name][1] for name in before}
    assert {name for name, (value, _) in after.items() if value == 1} == set("abcghijk")


def test_edits_of_an_empty_table(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node T { name: String @key  v: I64? }")

    assert counts(staged(graph, deleted=["a"])) == (0, 0, 0)
    change = staged(graph, batch("a", "b"), deleted=["c"])

    assert counts(change) == (2, 0, 0)
    assert set(contents(graph, committed(graph, change))) == {"a", "b"}


LETTERS = st.sets(st.sampled_from("abcdefgh"))


@pytest.mark.random
def test_random_edits_on_top_of_each_other(graph_root: str) -> None:
    roots = (f"{graph_root}-{number}" for number in itertools.count())

    @drawn(3)
    @given(st.lists(st.tuples(LETTERS, LETTERS), min_size=1, max_size=4))
    def agree(rounds: list[tuple[set[str], set[str]]]) -> None:
        graph = og.init(next(roots), schema="node T { name: String @key  v: I64? }")
        for letters in ("abc", "de"):
            graph.write({"T": [{"name": name, "v": 0} for name in letters]})
        entry = entry_of(graph)
        model = contents(graph, entry)
        for number, (come, gone) in enumerate(rounds, start=1):
            deleted = gone - come
            change = stage_edits(
                graph._objects,
                entry,
                [batch(*sorted(come), v=number)] if come else [],
                upserted=ids(sorted(come)),
                deleted=ids(sorted(deleted)),
            )
            known = set(model)
            expected = (len(come - known), len(come & known), len(deleted & known))
            assert counts(change) == expected
            if any(expected):
                entry = committed(graph, change)
            found = contents(graph, entry)
            kept = {name: row for name, row in model.items() if name not in deleted}
            new = {name: (number, (model.get(name) or found[name])[1]) for name in come}
            model = kept | new
            assert found == model

    agree()


@pytest.mark.random
def test_rows_that_another_side_changed_are_located_without_a_scan(graph_root: str) -> None:
    roots = (f"{graph_root}-{number}" for number in itertools.count())

    @drawn(2)
    @given(st.tuples(LETTERS, LETTERS), st.tuples(LETTERS, LETTERS), st.booleans())
    def agree(
        theirs: tuple[set[str], set[str]], ours: tuple[set[str], set[str]], compacts: bool
    ) -> None:
        graph = og.init(next(roots), schema="node T { name: String @key  v: I64? }")
        for letters in ("abcxy", "dez"):
            graph.write({"T": [{"name": name, "v": 0} for name in letters]})
        graph.delete({"T": ["x", "z"]})
        base, dev = entry_of(graph), graph.branches.create("dev")
        for number, (side, (come, gone)) in enumerate(((dev, theirs), (graph, ours)), start=1):
            if come:
                rows = [{"name": name, "v": number} for name in sorted(come)]
                side.write({"T": rows}, mode="merge")
            known = gone & {row["name"] for row in side.scan("T").read_all().to_pylist()}
            if known:
                side.delete({"T": sorted(known)})
        if compacts:
            graph.maintenance.optimize()
        root, entry = graph._objects.root, entry_of(graph)
        by_theirs, by_ours = (
            plan_row_changes(root, base, after) for after in (entry_of(dev), entry)
        )
        wanted = ids(sorted(theirs[0] | theirs[1]))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(edits, "_LOCATED_SHARE", 100)
            if can_locate_changed(root, entry, by_theirs, by_ours):
                located = locate_changed(root, entry, by_theirs, by_ours, wanted)
                assert places(located) == places(locate(root, entry, wanted))

    agree()


def places(located: Located) -> dict[str, tuple[int, int, int]]:
    columns = (located.lineage.row_ids, located.lineage.created_at, located.addresses)
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(located.ids.to_pylist(), numbers, strict=True))
