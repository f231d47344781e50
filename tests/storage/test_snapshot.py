"""Folding manifest rows into a snapshot, against the definition written down naively."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.manifest_rows import (
    GraphHead,
    ManifestRow,
    Table,
    TableVersion,
    Tombstone,
)
from omnigraph_lake.storage.snapshot import fold_tables, lineage, take_snapshot
from tests.drawing import drawn
from tests.gate.seeds import case_seeds, examples

pytestmark = pytest.mark.unit

KEYS = ("node:A", "node:B", "edge:C")
BRANCHES = (None, "dev", "dev2", "other")
LINEAGES: dict[str | None, tuple[str | None, ...]] = {
    None: (None,),
    "dev": ("dev", None),
    "dev2": ("dev2", "dev", None),
    "other": ("other", None),
}


def table_version(key: str, version: int, branch: str | None) -> TableVersion:
    return TableVersion(
        table_key=key,
        version=version,
        branch=branch,
        row_count=version * 10,
        fork=f"{branch}.{version}" if branch else None,
    )


versions = st.builds(
    table_version, st.sampled_from(KEYS), st.integers(1, 8), st.sampled_from(BRANCHES)
)
tombstones = st.builds(
    Tombstone,
    table_key=st.sampled_from(KEYS),
    version=st.integers(1, 8),
    branch=st.sampled_from(BRANCHES),
)
histories = st.lists(versions | tombstones, max_size=30)


def naive_entry(
    rows: Sequence[ManifestRow], key: str, chain: Sequence[str | None]
) -> tuple[int, str | None] | None:
    """The definition, one sentence a line, without a thought for speed."""
    for branch in chain:
        mine = [
            row
            for row in rows
            if isinstance(row, TableVersion | Tombstone)
            and row.table_key == key
            and row.branch == branch
        ]
        if not mine:
            continue
        published = [row for row in mine if isinstance(row, TableVersion)]
        graves = [row for row in mine if isinstance(row, Tombstone)]
        visible = [
            row for row in published if not any(grave.version >= row.version for grave in graves)
        ]
        latest = max((row.version for row in published), default=None)
        for row in visible:
            if row.version == latest:
                return row.version, row.branch
        return None
    return None


@pytest.mark.random
@drawn(30)
@given(histories, st.sampled_from(BRANCHES))
def test_a_fold_equals_the_naive_definition(history: list[ManifestRow], branch: str | None) -> None:
    assert_fold_is_naive(history, branch)


@pytest.mark.random
def test_a_fold_equals_the_naive_definition_over_seeded_histories() -> None:
    for seed in case_seeds("folds", examples(500)):
        random = Random(seed)
        history = [random_row(random) for _ in range(random.randrange(30))]

        assert_fold_is_naive(history, random.choice(BRANCHES))


def assert_fold_is_naive(history: Sequence[ManifestRow], branch: str | None) -> None:
    rows = [*history, *(Table(table_key=key, location=f"at/{key}") for key in KEYS)]

    tables = fold_tables(rows, lineage=LINEAGES[branch])

    expected = {key: naive_entry(rows, key, LINEAGES[branch]) for key in KEYS}
    assert {key: (entry.version, entry.branch) for key, entry in tables.items()} == {
        key: entry for key, entry in expected.items() if entry is not None
    }
    for key, entry in tables.items():
        assert entry.location == f"at/{key}"
        assert entry.row_count == entry.version * 10


def random_row(random: Random) -> ManifestRow:
    key, branch, version = random.choice(KEYS), random.choice(BRANCHES), random.randint(1, 8)
    if random.random() < 0.25:
        return Tombstone(table_key=key, version=version, branch=branch)
    return table_version(key, version, branch)


def test_the_highest_version_wins() -> None:
    rows: list[ManifestRow] = [
        Table(table_key="node:A", location="x"),
        *(TableVersion(table_key="node:A", version=v, row_count=v) for v in (3, 9, 4)),
    ]

    assert fold_tables(rows, lineage=(None,))["node:A"].version == 9


@pytest.mark.parametrize(("tombstone", "visible"), [(8, True), (9, False), (10, False)])
def test_a_tombstone_hides_versions_up_to_its_own(tombstone: int, visible: bool) -> None:
    rows: list[ManifestRow] = [
        Table(table_key="node:A", location="x"),
        TableVersion(table_key="node:A", version=9, row_count=0),
        Tombstone(table_key="node:A", version=tombstone),
    ]

    assert ("node:A" in fold_tables(rows, lineage=(None,))) is visible


def test_a_branch_reads_its_parents_entry_until_it_writes_its_own() -> None:
    inherited: list[ManifestRow] = [
        Table(table_key="node:A", location="x"),
        TableVersion(table_key="node:A", version=5, row_count=1),
    ]
    written: list[ManifestRow] = [
        *inherited,
        TableVersion(table_key="node:A", version=2, row_count=7, branch="dev", fork="dev.01"),
    ]

    assert fold_tables(inherited, lineage=("dev", None))["node:A"].version == 5
    own = fold_tables(written, lineage=("dev", None))["node:A"]
    assert (own.version, own.fork, own.row_count) == (2, "dev.01", 7)
    assert fold_tables(written, lineage=(None,))["node:A"].version == 5


def test_dropping_a_type_on_a_branch_hides_what_the_branch_would_inherit() -> None:
    rows: list[ManifestRow] = [
        Table(table_key="node:A", location="x"),
        TableVersion(table_key="node:A", version=5, row_count=1),
        Tombstone(table_key="node:A", version=6, branch="dev"),
    ]

    assert "node:A" not in fold_tables(rows, lineage=("dev", None))
    assert "node:A" in fold_tables(rows, lineage=(None,))


def test_lineage_follows_recorded_parents_to_main() -> None:
    heads: dict[str | None, GraphHead] = {"b": _head("b", "a"), "a": _head("a", None)}

    assert lineage(heads, "b") == ("b", "a", None)
    assert lineage(heads, None) == (None,)
    assert lineage({}, "unrecorded") == ("unrecorded", None)


def test_a_branch_that_is_its_own_ancestor_is_damage() -> None:
    heads: dict[str | None, GraphHead] = {"a": _head("a", "b"), "b": _head("b", "a")}

    with pytest.raises(DamagedGraphError, match="own ancestor"):
        lineage(heads, "a")


def test_two_different_rows_for_one_version_are_damage() -> None:
    rows: list[ManifestRow] = [
        Table(table_key="node:A", location="x"),
        TableVersion(table_key="node:A", version=5, row_count=1),
        TableVersion(table_key="node:A", version=5, row_count=2),
    ]

    with pytest.raises(DamagedGraphError, match="two different entries"):
        fold_tables(rows, lineage=(None,))


def test_a_version_without_a_registered_table_is_damage() -> None:
    rows = [TableVersion(table_key="node:A", version=5, row_count=1)]

    with pytest.raises(DamagedGraphError, match="no location"):
        fold_tables(rows, lineage=(None,))


def test_a_snapshot_carries_the_head_of_its_own_branch() -> None:
    rows = [_head(None, None), _head("dev", None)]

    snapshot = take_snapshot(rows, branch="dev", manifest_version=7)

    assert snapshot.head == rows[1]
    assert (snapshot.branch_name, snapshot.manifest_version) == ("dev", 7)


def _head(branch: str | None, parent: str | None) -> GraphHead:
    return GraphHead(
        branch=branch,
        sequence=1,
        commit_id="c",
        incarnation="i",
        schema_hash="h",
        parent_branch=parent,
    )
