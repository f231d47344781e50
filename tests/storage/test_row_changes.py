"""Which rows two versions of a table may differ in, over random histories of real tables."""

from __future__ import annotations

import math
import pickle
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance import LanceDataset, LanceOperation, Transaction

from omnigraph_lake.names import BLOB_KEY, OPERATION_PROPERTY, PRIMARY_KEY_KEY, PROPERTY_ID_KEY
from omnigraph_lake.storage.lance.tables import create_table
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging.changes import (
    stage_append,
    stage_delete,
    stage_overwrite,
)
from omnigraph_lake.storage.staging.edits import stage_upserts
from omnigraph_lake.storage.staging.row_changes import (
    RowChanges,
    plan_row_changes,
    read_gone,
    read_new,
)
from omnigraph_lake.storage.staging.table_versions import commit_staged, restore_pin
from tests.drawing import drawn

pytestmark = pytest.mark.behaviour

Row = dict[str, Any]
Rows = dict[str, Row]

LOCATION = "nodes/things"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={PRIMARY_KEY_KEY: "true"}),
        pa.field("s", pa.string()),
        pa.field("x", pa.float64()),
        pa.field("b", pa.large_binary(), metadata={BLOB_KEY: "true", PROPERTY_ID_KEY: "1"}),
        pa.field("v", pa.list_(pa.field("item", pa.float32()), 2)),
    ]
)
VALUES: list[Row] = [
    {"s": None, "x": None, "b": None, "v": None},
    {"s": "", "x": 0.0, "b": b"", "v": [0.0, 1.5]},
    {"s": "a", "x": -0.0, "b": b"\x00", "v": [math.nan, 1.5]},
    {"s": "a", "x": math.nan, "b": b"\x01", "v": [-0.0, 1.5]},
    {"s": "é", "x": math.nan, "b": b"\x01", "v": None},
]
KINDS = ["append", "merge", "delete", "overwrite", "compact", "restore", "fork", "foreign", "patch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of the table, and what it holds."""

    entry: TableEntry
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something done to one of the forks; numbers count modulo what there is."""

    kind: str
    fork: int
    ids: tuple[str, ...]
    value: int
    target: int


steps = st.builds(
    Step,
    kind=st.sampled_from(KINDS),
    fork=st.integers(0, 3),
    ids=st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=4, unique=True).map(tuple),
    value=st.integers(0, len(VALUES) - 1),
    target=st.integers(0, 9),
)
histories = st.lists(steps, min_size=2, max_size=9)


class History:
    """A table, its forks, and every version so far; a step that cannot be taken is left out."""

    def __init__(self, home: Path) -> None:
        self.root: Root = parse_root(str(home))
        create_table(self.root, LOCATION, SCHEMA, operation_id="init")
        entry = TableEntry(
            table_key="node:Thing",
            location=LOCATION,
            version=1,
            fork=None,
            branch=None,
            row_count=0,
        )
        self.versions = [Version(entry=entry, rows={})]
        self.heads: dict[str | None, Version] = {None: self.versions[0]}

    def play(self, played: list[Step]) -> None:
        self.rows("append", {each: {"id": each, **VALUES[1]} for each in "abcd"})
        for step in played:
            self.take(step)

    def take(self, step: Step, fork: str | None = None) -> None:
        fork = fork or list(self.heads)[step.fork % len(self.heads)]
        held = self.heads[fork].rows
        rows = {each: {"id": each, **VALUES[step.value]} for each in step.ids}
        known = {each: row for each, row in rows.items() if each in held}
        match step.kind:
            case "append":
                rows = {each: row for each, row in rows.items() if each not in held}
                self.rows("append", rows, fork)
            case "merge" | "overwrite" | "foreign":
                self.rows(step.kind, rows, fork)
            case "delete" | "patch":
                self.rows(step.kind, known, fork)
            case "compact":
                self.compact(fork)
            case "restore":
                past = [each for each in self.versions if each.entry.fork == fork]
                self.restore(past[step.target % len(past)])
            case _:
                self.fork(self.versions[step.target % len(self.versions)])

    def dataset(self, fork: str | None = None) -> LanceDataset:
        uri = self.root.child(LOCATION)
        return lance.dataset(f"{uri}/tree/{fork}" if fork else uri)

    def rows(self, kind: str, rows: Rows, fork: str | None = None) -> Version:
        head = self.heads[fork]
        if not rows:
            return head
        table = pa.Table.from_pylist(list(rows.values()), schema=SCHEMA)
        result = {**head.rows, **rows}
        match kind:
            case "append":
                staged = stage_append(self.root, head.entry, table)
            case "merge":
                staged = stage_upserts(StoredObjects(self.root), head.entry, table)
            case "overwrite":
                staged = stage_overwrite(self.root, head.entry, table)
                result = rows
            case "delete":
                staged = stage_delete(self.root, head.entry, table.select(["id"]))
                result = {each: row for each, row in head.rows.items() if each not in rows}
            case "foreign":
                merge = self.dataset(fork).merge_insert("id")
                merge.when_matched_update_all().when_not_matched_insert_all().execute(table)
                return self._added(fork, result)
            case _:
                return self.patch(next(iter(rows.values())), fork)
        made = commit_staged(
            self.root, staged, on_version=head.entry.version, operation_id="01J9ZQ6Z"
        )
        assert made is not None
        assert made.version == head.entry.version + 1
        return self._added(fork, result)

    def patch(self, row: Row, fork: str | None = None) -> Version:
        """Change one value in place, behind the back of the row's stamp."""
        dataset = self.dataset(fork)
        rows = dataset.to_table(columns=["id", "_rowid", "_rowaddr"]).to_pylist()
        [found] = [each for each in rows if each["id"] == row["id"]]
        fragment = dataset.get_fragment(found["_rowaddr"] >> 32)
        assert fragment is not None
        values = pa.table({"_rowid": pa.array([found["_rowid"]], pa.uint64()), "s": [row["s"]]})
        metadata, fields = fragment.update_columns(values.cast(_patching(values.schema)))
        operation = LanceOperation.Update(updated_fragments=[metadata], fields_modified=fields)
        LanceDataset.commit(dataset, operation, read_version=dataset.version)
        held = self.heads[fork].rows
        return self._added(fork, {**held, row["id"]: {**held[row["id"]], "s": row["s"]}})

    def compact(self, fork: str | None = None) -> Version:
        self.dataset(fork).optimize.compact_files()
        return self._added(fork, self.heads[fork].rows)

    def restore(self, past: Version) -> Version:
        fork = past.entry.fork
        head = self.heads[fork].entry.version
        restore_pin(self.root, past.entry, head=head, operation_id="01J9ZQ6Z")
        return self._added(fork, past.rows)

    def fork(self, parent: Version) -> Version:
        name = f"dev.{len(self.heads)}"
        at = parent.entry.version
        self.dataset().create_branch(name, (parent.entry.fork, at) if parent.entry.fork else at)
        forked = replace(parent, entry=replace(parent.entry, fork=name))
        self.versions.append(forked)
        self.heads[name] = forked
        return forked

    def _added(self, fork: str | None, rows: Rows) -> Version:
        dataset = self.dataset(fork)
        assert dataset.count_rows() == len(rows)
        entry = replace(
            self.heads[fork].entry, version=dataset.version, fork=fork, row_count=len(rows)
        )
        self.heads[fork] = Version(entry=entry, rows=dict(rows))
        self.versions.append(self.heads[fork])
        return self.heads[fork]


def _patching(schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field("_rowid"), pa.field("s", pa.string())])


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def row(name: str, value: int = 1, **more: object) -> Rows:
    return {name: {"id": name, **VALUES[value], **more}}


def read(
    root: Root, plan: RowChanges, parts: str, columns: list[str] | None = None
) -> Iterator[Row]:
    reading: Callable[..., Iterator[pa.RecordBatch]]
    reading = {"gone": read_gone, "new": read_new}[parts]
    for part in getattr(plan, parts):
        for batch in reading(root, plan, part, columns=columns):
            yield from batch.to_pylist()


def candidates(history: History, before: Version, after: Version) -> tuple[Rows, Rows]:
    """The candidates of both versions by id; no row may come twice."""
    plan = plan_row_changes(history.root, before.entry, after.entry)
    found = []
    for parts in ("gone", "new"):
        rows = list(read(history.root, plan, parts))
        by_id = {each["id"]: each for each in rows}
        assert len(by_id) == len(rows)
        assert len(rows) <= (plan.gone_rows if parts == "gone" else plan.new_rows)
        found.append(by_id)
    return found[0], found[1]


def expected(before: Rows, after: Rows) -> dict[str, tuple[str, str]]:
    """By id, a row before and after, where they differ; NaN is spelt like NaN."""
    pairs = {each: (repr(before.get(each)), repr(after.get(each))) for each in before | after}
    return {each: pair for each, pair in pairs.items() if pair[0] != pair[1]}


@pytest.mark.random
@drawn(5)
@given(histories)
def test_candidates_hold_every_difference_over_random_histories(played: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as home:
        history = History(Path(home))
        history.play(played)
        for before in history.versions[-4:]:
            for after in history.versions[-4:]:
                gone, new = candidates(history, before, after)

                assert expected(gone, new) == expected(before.rows, after.rows)
                assert all(repr(each) == repr(before.rows[name]) for name, each in gone.items())
                assert all(repr(each) == repr(after.rows[name]) for name, each in new.items())


def test_one_version_compared_with_itself_has_no_candidates(history: History) -> None:
    version = history.rows("append", row("a"))

    plan = plan_row_changes(history.root, version.entry, version.entry)

    assert plan.unchanged
    assert (plan.gone_rows, plan.new_rows) == (0, 0)


def test_a_version_that_holds_the_same_fragments_has_no_candidates(history: History) -> None:
    first = history.rows("append", row("a"))
    history.rows("merge", row("a", 2))
    restored = history.restore(first)
    history.dataset().create_scalar_index("id", "BTREE")
    indexed = replace(restored.entry, version=restored.entry.version + 1)
    forked = history.fork(restored)

    for entry in (restored.entry, indexed, forked.entry):
        assert plan_row_changes(history.root, first.entry, entry).unchanged


def test_a_table_that_appears_or_goes_is_a_candidate_as_a_whole(history: History) -> None:
    version = history.rows("append", row("a") | row("b"))

    come = plan_row_changes(history.root, None, version.entry)
    gone = plan_row_changes(history.root, version.entry, None)

    assert (come.gone_rows, come.new_rows, len(come.stored_before)) == (0, 2, 0)
    assert (gone.gone_rows, gone.new_rows, len(gone.stored_after)) == (2, 0, 0)
    assert {each["id"] for each in read(history.root, come, "new")} == {"a", "b"}
    assert {each["id"] for each in read(history.root, gone, "gone")} == {"a", "b"}
    assert plan_row_changes(history.root, None, None).unchanged


def test_a_restore_brings_deleted_rows_back_as_candidates(history: History) -> None:
    first = history.rows("append", row("a") | row("b"))
    deleted = history.rows("delete", row("b"))

    gone, new = candidates(history, deleted, history.restore(first))

    assert (list(gone), list(new)) == ([], ["b"])


def test_rows_that_compaction_moved_are_not_read(history: History) -> None:
    before = [history.rows("append", row(name)) for name in "abcdefgh"][-1]
    history.rows("merge", row("c", 2))
    history.rows("delete", row("d"))
    history.rows("append", row("z"))
    after = history.compact()
    assert len(history.dataset().get_fragments()) == 1

    gone, new = candidates(history, before, after)

    assert (set(gone), set(new)) == ({"c", "d"}, {"c", "z"})


def test_rows_that_compaction_moved_on_one_of_two_forks_are_not_read(history: History) -> None:
    base = [history.rows("append", row(name)) for name in "abcd"][-1]
    fork = history.fork(base).entry.fork
    history.rows("merge", row("a", 2), fork)
    theirs = history.compact(fork)
    ours = history.rows("merge", row("b", 2))

    gone, new = candidates(history, ours, theirs)

    assert (set(gone), set(new)) == ({"a", "b"}, {"a", "b"})


def test_equal_row_ids_and_stamps_of_two_forks_are_different_rows(history: History) -> None:
    base = history.rows("append", row("a") | row("b"))
    made = []
    for value in (2, 3):
        fork = history.fork(base).entry.fork
        history.rows("append", row("c", value), fork)
        history.rows("append", row(f"d{value}", value), fork)
        made.append(history.compact(fork))
    stamps = [
        history.dataset(each.entry.fork)
        .to_table(columns=["_rowid", "_row_last_updated_at_version"], filter="id = 'c'")
        .to_pylist()
        for each in made
    ]
    assert stamps[0] == stamps[1]

    gone, new = candidates(history, *made)

    assert (set(gone), set(new)) == ({"c", "d2"}, {"c", "d3"})


def test_values_changed_behind_the_stamps_are_candidates_after_compaction(history: History) -> None:
    history.rows("append", row("a"))
    before = history.rows("append", row("b"))
    history.patch(row("a", 4)["a"])
    history.rows("append", row("c"))
    after = history.compact()

    gone, new = candidates(history, before, after)

    assert (gone["a"]["s"], new["a"]["s"]) == ("", "é")


def test_values_changed_behind_the_stamps_and_then_undone_are_candidates(history: History) -> None:
    history.rows("append", row("a"))
    first = history.rows("append", row("b"))
    before = history.patch(row("a", 4)["a"])
    history.restore(first)
    after = history.compact()

    gone, new = candidates(history, before, after)

    assert (gone["a"]["s"], new["a"]["s"]) == ("é", "")


def test_an_update_undone_by_a_restore_is_seen_after_compaction(history: History) -> None:
    history.rows("append", row("a"))
    first = history.rows("append", row("b"))
    before = history.rows("merge", row("a", 2))
    history.restore(first)
    after = history.compact()

    gone, new = candidates(history, before, after)

    assert (gone["a"]["s"], new["a"]["s"]) == ("a", "")


def test_stamps_prove_nothing_once_a_version_in_between_is_gone(history: History) -> None:
    history.rows("append", row("a"))
    before = history.rows("append", row("b"))
    middle = history.rows("append", row("c"))
    after = history.compact()
    assert plan_row_changes(history.root, before.entry, after.entry).stamps is not None

    history.dataset().cleanup_old_versions(versions=[middle.entry.version])

    assert plan_row_changes(history.root, before.entry, after.entry).stamps is None
    gone, new = candidates(history, before, after)
    assert (set(gone), set(new)) == ({"a", "b"}, {"a", "b", "c"})


def test_a_column_that_we_dropped_is_missed_in_rows_that_compaction_moved(history: History) -> None:
    history.rows("append", row("a"))
    before = history.rows("append", row("b"))
    fork = history.fork(before).entry.fork
    history.dataset(fork).drop_columns(["s"])
    dropping = Transaction(
        read_version=before.entry.version,
        operation=LanceOperation.Project(history.dataset(fork).lance_schema),
        transaction_properties={OPERATION_PROPERTY: "01J9ZQ6Z"},
    )
    LanceDataset.commit(history.dataset(), dropping)
    history.dataset().optimize.compact_files()
    after = replace(before.entry, version=history.dataset().version)

    plan = plan_row_changes(history.root, before.entry, after)

    assert plan.stamps is None
    assert (plan.gone_rows, plan.new_rows) == (2, 2)


def test_a_plan_can_be_pickled_and_its_parts_stay_small(history: History) -> None:
    after = [history.rows("append", row(name)) for name in "abcdef"][-1]
    plan = plan_row_changes(history.root, None, after.entry, rows_per_part=2)

    copy = pickle.loads(pickle.dumps(plan))  # noqa: S301 - our own

    assert copy == plan
    assert [part.rows for part in copy.new] == [2, 2, 2]
    assert {each["id"] for each in read(history.root, copy, "new")} == set("abcdef")


def test_only_the_columns_asked_for_count_and_are_read(history: History) -> None:
    before = history.rows("append", row("a"))
    after = history.rows("merge", row("a", 2))

    plan = plan_row_changes(history.root, before.entry, after.entry, columns=["x"])

    assert list(read(history.root, plan, "new")) == [{"id": "a", "x": -0.0}]
    assert list(read(history.root, plan, "gone", ["x"])) == [{"x": 0.0}]


def test_a_new_column_without_values_makes_no_candidates(history: History) -> None:
    before = history.rows("append", row("a"))
    history.dataset().add_columns(pa.schema([pa.field("n", pa.int64())]))
    after = replace(before.entry, version=history.dataset().version)

    plan = plan_row_changes(history.root, before.entry, after)

    assert plan.unchanged
    assert "n" in plan.stored_after.names


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.add_columns({"n": "1"}),
        lambda dataset: dataset.drop_columns(["s"]),
        lambda dataset: dataset.alter_columns({"path": "s", "name": "t"}),
        lambda dataset: dataset.alter_columns({"path": "x", "data_type": pa.float32()}),
    ],
    ids=["added", "dropped", "renamed", "cast"],
)
def test_a_column_that_changes_makes_all_rows_candidates(
    history: History, change: Callable[[LanceDataset], None]
) -> None:
    before = history.rows("append", row("a") | row("b"))
    change(history.dataset())
    after = replace(before.entry, version=history.dataset().version)

    plan = plan_row_changes(history.root, before.entry, after)

    assert (plan.gone_rows, plan.new_rows, plan.stamps) == (2, 2, None)


@pytest.mark.parametrize("fragments", [1, 20])
def test_ten_changed_rows_of_many_cost_ten_rows(history: History, fragments: int) -> None:
    count = 200_000 // fragments
    for number in range(fragments):
        ids = [f"n{each:06}" for each in range(number * count, (number + 1) * count)]
        some = pa.table(
            {"id": ids, "s": ids, "x": [0.5] * count, "b": [b"blob"] * count, "v": [None] * count},
            schema=SCHEMA,
        )
        head = history.heads[None].entry
        commit_staged(
            history.root,
            stage_append(history.root, head, some),
            on_version=head.version,
            operation_id="01J9ZQ6Z",
        )
        entry = replace(head, version=head.version + 1, row_count=head.row_count + count)
        history.heads[None] = Version(entry=entry, rows={})
    before = history.heads[None].entry
    changed = pa.table({"id": [f"n{each:06}" for each in range(5, 200_000, 20_000)]})
    rows = [{"id": each, **VALUES[2]} for each in changed["id"].to_pylist()]
    staged = stage_upserts(
        StoredObjects(history.root), before, pa.Table.from_pylist(rows, schema=SCHEMA)
    )
    made = commit_staged(history.root, staged, on_version=before.version, operation_id="01J9ZQ6Z")
    assert made is not None
    after = replace(before, version=made.version, made_at=made.made_at)

    started = lance.bytes_read_counter()
    plan = plan_row_changes(history.root, before, after)
    found = [len(list(read(history.root, plan, parts))) for parts in ("gone", "new")]
    cost = lance.bytes_read_counter() - started

    assert (plan.gone_rows, plan.new_rows, found) == (10, 10, [10, 10])
    started = lance.bytes_read_counter()
    history.dataset().scanner(blob_handling="all_binary").to_table()
    assert cost < (lance.bytes_read_counter() - started) / 10
