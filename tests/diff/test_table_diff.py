"""What changed between two versions of a table, against plain Python."""

from __future__ import annotations

import datetime as dt
import math
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.diff import table_diff
from omnigraph_lake.diff.table_diff import ChangeCounts, TableDiff, count_changes, diff_table
from omnigraph_lake.errors import DamagedGraphError, InvalidInputError, StorageUnavailableError
from omnigraph_lake.names import BLOB_KEY, PROPERTY_ID_KEY
from omnigraph_lake.storage.lance.datasets import create_dataset
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging.row_changes import Sought
from tests.drawing import drawn
from tests.storage.test_row_changes import SCHEMA, History, Row, Rows, Step, histories, row

pytestmark = pytest.mark.behaviour


def changes(diff: TableDiff, batch_rows: int = 1000) -> list[Row]:
    batches = list(diff.reader(batch_rows=batch_rows))
    for batch in batches:
        batch.validate(full=True)
    return [each for batch in batches for each in batch.to_pylist()]


def expected(before: Rows, after: Rows) -> list[Row]:
    """The same answer from dictionaries; values are equal if they are spelt alike."""
    found = []
    for name in sorted(before | after):
        was, now = before.get(name), after.get(name)
        if repr(was) == repr(now):
            continue
        changed = None
        if was and now:
            changed = [each for each in now if repr(was[each]) != repr(now[each])]
        op = "insert" if was is None else "delete" if now is None else "update"
        found.append({"op": op, "id": name, "changed": changed, "before": was, "after": now})
    return found


def counted(rows: list[Row]) -> ChangeCounts:
    ops = [each["op"] for each in rows]
    return ChangeCounts(
        inserted=ops.count("insert"), updated=ops.count("update"), deleted=ops.count("delete")
    )


@pytest.mark.random
@drawn(5)
@given(histories, st.integers(0, 9), st.integers(0, 9))
def test_a_diff_agrees_with_plain_python_over_random_histories(
    played: list[Step], first: int, second: int
) -> None:
    with tempfile.TemporaryDirectory() as home:
        history = History(Path(home))
        history.play(played)
        before, after = (
            history.versions[-1 - each % len(history.versions)] for each in (first, second)
        )

        diff = diff_table(history.root, before.entry, after.entry)

        rows = expected(before.rows, after.rows)
        assert repr(changes(diff)) == repr(rows)
        assert count_changes(diff) == counted(rows)
        ids = pa.array([*[each["id"] for each in rows][::2], "nobody"])
        some = [each for each in rows if each["id"] in ids.to_pylist()]
        for rows_held in (table_diff.HELD_ROWS_MAX, 0):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(table_diff, "HELD_ROWS_MAX", rows_held)
                assert repr(changes(diff)) == repr(rows)
                sought = Sought(ids=ids, changes=diff.plan)
                found = [each for batch in diff.reader(only=sought) for each in batch.to_pylist()]
                assert repr(found) == repr(some)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "graph")


MOMENT = dt.datetime(2020, 2, 29, 23, 59, 59, 123456, tzinfo=dt.UTC)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), [None, "", "a", "A", "\x00", "é", "e\u0301", "a" * 100_000]),
    "blob": (
        pa.large_binary(),
        [None, b"", b"\x00", b"\x00\x00", bytes(range(256)), b"z" * 70_000],
    ),
    "bool": (pa.bool_(), [None, False, True]),
    "i32": (pa.int32(), [None, 0, -(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [None, 0, -(2**63), 2**63 - 1]),
    "u32": (pa.uint32(), [None, 0, 2**32 - 1]),
    "u64": (pa.uint64(), [None, 0, 2**63, 2**64 - 1]),
    "f32": (pa.float32(), [None, 0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45]),
    "f64": (pa.float64(), [None, 0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324]),
    "date": (pa.date32(), [None, dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        [None, MOMENT, MOMENT + dt.timedelta(microseconds=1), MOMENT.replace(year=4)],
    ),
    "texts": (pa.list_(pa.string()), [None, [], [None], [""], ["a"], ["a", None], ["a", "b"]]),
    "bools": (pa.list_(pa.bool_()), [None, [], [None], [True], [True, False]]),
    "wide": (pa.list_(pa.uint64()), [None, [], [None], [2**64 - 1], [0, 1], [1, 0]]),
    "floats": (pa.list_(pa.float32()), [None, [], [math.nan], [0.0], [-0.0], [0.0, None]]),
    "dates": (pa.list_(pa.date32()), [None, [], [None], [dt.date(1, 1, 1)]]),
    "moments": (pa.list_(pa.timestamp("us", tz="UTC")), [None, [], [None], [MOMENT]]),
    "vector": (pa.list_(pa.float32(), 2), [None, [0.0, 1.0], [-0.0, 1.0], [math.nan, 1.0]]),
}


def stored(root: Root, rows: pa.Table) -> TableEntry:
    """A table with these rows, as the only version of a location of its own."""
    location = f"nodes/t{len(list(Path(root.uri).glob('nodes/*')))}"
    create_dataset(root, location, rows, operation_id="init")
    return TableEntry(
        table_key="node:T",
        location=location,
        version=1,
        fork=None,
        branch=None,
        row_count=rows.num_rows,
    )


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return parse_root(str(tmp_path / "graph"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KINDS)
def test_every_value_of_every_type_is_told_from_every_other(root: Root, name: str) -> None:
    kind, values = KINDS[name]
    pairs = [(was, now) for was in values for now in values]
    ids = [f"{number:03}" for number in range(len(pairs))]
    metadata = {BLOB_KEY: "true", PROPERTY_ID_KEY: "1"} if name == "blob" else None
    schema = pa.schema([("id", pa.string()), pa.field(name, kind, metadata=metadata)])
    before, after = (
        pa.table([ids, pa.array([pair[side] for pair in pairs], kind)], schema=schema)
        for side in (0, 1)
    )

    diff = diff_table(root, stored(root, before), stored(root, after))

    rows = expected(
        *({each["id"]: each for each in table.to_pylist()} for table in (before, after))
    )
    assert len(rows) == len(values) * (len(values) - 1)
    assert repr(changes(diff)) == repr(rows)
    assert count_changes(diff) == counted(rows)
    assert diff.schema.field("after").type.field(name).type == kind


def test_dates_that_python_cannot_spell_survive(root: Root) -> None:
    days = pa.array([-(2**31), 2**31 - 1], pa.int32()).view(pa.date32())
    moments = pa.array([-(2**63), 2**63 - 1], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    rows = pa.table({"id": ["a", "b"], "day": days, "moment": moments})

    [batch] = diff_table(root, None, stored(root, rows)).reader()

    after = batch.column("after")
    assert after.field("day").view(pa.int32()).to_pylist() == [-(2**31), 2**31 - 1]
    assert after.field("moment").view(pa.int64()).to_pylist() == [-(2**63), 2**63 - 1]


def test_nan_equals_nan_whatever_its_bits(root: Root) -> None:
    bits = [0x7FF8000000000000, 0xFFF8000000000001]
    tables = []
    for each in bits:
        nan = np.array([each], np.uint64).view(np.float64)
        lists = pa.ListArray.from_arrays([0, 1], pa.array(nan))
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(nan.astype(np.float32)), 1)
        tables.append(pa.table({"id": ["a"], "x": pa.array(nan), "l": lists, "v": vectors}))

    diff = diff_table(root, *(stored(root, each) for each in tables))

    assert changes(diff) == []
    assert count_changes(diff) == ChangeCounts()


def test_columns_whose_names_differ_in_case_only_are_kept_apart(root: Root) -> None:
    before = stored(root, pa.table({"id": ["a"], "name": ["x"], "Name": ["y"]}))
    after = stored(root, pa.table({"id": ["a"], "name": ["x"], "Name": ["z"]}))

    [change] = changes(diff_table(root, before, after))

    assert change["changed"] == ["Name"]
    assert change["after"] == {"id": "a", "name": "x", "Name": "z"}


def test_a_column_that_one_version_lacks_is_null_there(root: Root) -> None:
    before = stored(root, pa.table({"id": ["a", "b"], "old": [1, None], "same": [1, 1]}))
    after = stored(root, pa.table({"id": ["a", "b"], "new": ["x", None], "same": [1, 1]}))

    diff = diff_table(root, before, after)

    assert [(each.name, str(each.before), str(each.after)) for each in diff.columns] == [
        ("id", "string", "string"),
        ("new", "None", "string"),
        ("same", "int64", "int64"),
        ("old", "int64", "None"),
    ]
    assert changes(diff) == [
        {
            "op": "update",
            "id": "a",
            "changed": ["new", "old"],
            "before": {"id": "a", "new": None, "same": 1, "old": 1},
            "after": {"id": "a", "new": "x", "same": 1, "old": None},
        }
    ]
    assert count_changes(diff) == ChangeCounts(updated=1)


@pytest.mark.parametrize("wider", [pa.int64(), pa.decimal128(12, 2)])
def test_widened_numbers_are_compared_by_value(root: Root, wider: pa.DataType) -> None:
    ids = ["a", "b", "c"]
    before = stored(root, pa.table({"id": ids, "n": pa.array([1, None, 3], pa.int32())}))
    after = stored(root, pa.table({"id": ids, "n": pa.array([1, None, 4], wider)}))

    for pair in ((before, after), (after, before)):
        diff = diff_table(root, *pair)
        [change] = changes(diff)
        assert (change["id"], change["changed"]) == ("c", ["n"])
        assert count_changes(diff) == ChangeCounts(updated=1)


def test_a_column_of_another_type_differs_unless_it_is_null_in_both(root: Root) -> None:
    before = stored(root, pa.table({"id": ["a", "b"], "n": pa.array([1, None], pa.int32())}))
    after = stored(root, pa.table({"id": ["a", "b"], "n": pa.array(["1", None], pa.string())}))

    [change] = changes(diff_table(root, before, after))

    assert (change["id"], change["changed"]) == ("a", ["n"])


def test_a_table_that_appears_is_inserted_and_one_that_goes_is_deleted(history: History) -> None:
    version = history.rows("append", row("a") | row("b", 2))

    come = diff_table(history.root, None, version.entry)
    gone = diff_table(history.root, version.entry, None)

    assert repr(changes(come)) == repr(expected({}, version.rows))
    assert repr(changes(gone)) == repr(expected(version.rows, {}))
    assert count_changes(come) == ChangeCounts(inserted=2)
    assert count_changes(gone) == ChangeCounts(deleted=2)
    assert diff_table(history.root, None, None).unchanged


def test_ids_come_in_the_order_of_their_bytes(history: History) -> None:
    names = ["", "Z", "a", "aa", "é", "\uffff", "\U0001f600"]
    rows: Rows = {}
    for name in reversed(names):
        rows |= row(name)
    version = history.rows("append", rows)

    found = [each["id"] for each in changes(diff_table(history.root, None, version.entry), 2)]

    assert found == names == sorted(names, key=str.encode)


def test_rows_written_again_with_the_same_content_do_not_appear(history: History) -> None:
    before = history.rows("append", row("a") | row("b", 3))
    after = history.rows("overwrite", row("a") | row("b", 3))

    diff = diff_table(history.root, before.entry, after.entry)

    assert (diff.plan.gone_rows, diff.plan.new_rows) == (2, 2)
    assert changes(diff) == []
    assert count_changes(diff) == ChangeCounts()


@pytest.mark.parametrize("looked_up", [0, 1000], ids=["many", "few"])
def test_counting_tells_rows_of_both_versions_from_others(
    history: History, monkeypatch: pytest.MonkeyPatch, looked_up: int
) -> None:
    monkeypatch.setattr(table_diff, "_LOOKED_UP_MAX", looked_up)
    before = history.rows("overwrite", row("a") | row("b") | row("c"))
    after = history.rows("overwrite", row("b") | row("c", 2) | row("d") | row("e"))

    counts = count_changes(diff_table(history.root, before.entry, after.entry))

    assert counts == ChangeCounts(inserted=2, updated=1, deleted=1)


def test_only_the_columns_asked_for_are_compared(history: History) -> None:
    before = history.rows("append", row("a") | row("b"))
    after = history.rows("merge", row("a", 1, s="new") | row("b", 1, x=7.5))

    diff = diff_table(history.root, before.entry, after.entry, columns=["x"])

    assert [(each["id"], each["after"]) for each in changes(diff)] == [("b", {"id": "b", "x": 7.5})]
    assert count_changes(diff) == ChangeCounts(updated=1)


def test_a_column_that_neither_version_has_is_refused(history: History) -> None:
    version = history.rows("append", row("a"))

    with pytest.raises(InvalidInputError, match="neither version has a column 'age'"):
        diff_table(history.root, None, version.entry, columns=["age"])


def test_batches_hold_no_more_rows_than_asked_for(history: History) -> None:
    rows: Rows = {}
    for number in range(35):
        rows |= row(f"n{number:02}", number % 5)
    version = history.rows("append", rows)

    batches = list(diff_table(history.root, None, version.entry).reader(batch_rows=10))

    assert all(len(batch) <= 10 for batch in batches)
    assert sum(len(batch) for batch in batches) == 35


def test_large_blobs_make_small_batches(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_diff, "_BATCH_BYTES", 10_000)
    monkeypatch.setattr(table_diff, "HELD_BYTES_MAX", 10_000)
    rows: Rows = {}
    for number, size in enumerate([9000, 9000, 50_000, 0, 10, 10]):
        rows |= row(f"n{number}", 1, b=b"z" * size)
    version = history.rows("append", rows)

    batches = list(diff_table(history.root, None, version.entry).reader())

    assert 3 <= len(batches) <= 6
    assert [each["after"]["b"] for batch in batches for each in batch.to_pylist()] == [
        each["b"] for each in rows.values()
    ]


@pytest.mark.parametrize("rows_held", [0, 100], ids=["on disk", "in memory"])
def test_an_id_that_occurs_twice_is_damage_not_a_difference(
    history: History, rows_held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_diff, "HELD_ROWS_MAX", rows_held)
    history.rows("append", row("a"))
    again = pa.Table.from_pylist(list(row("a").values()), schema=SCHEMA)
    lance.write_dataset(again, history.dataset(), mode="append")
    entry = replace(history.heads[None].entry, version=history.dataset().version)

    with pytest.raises(DamagedGraphError, match="node:Thing has 1 rows with duplicate ids"):
        changes(diff_table(history.root, None, entry))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    monkeypatch.setattr(table_diff, "HELD_ROWS_MAX", 0)
    return home


def test_nothing_is_left_behind_also_if_nobody_reads_on(history: History, workspace: Path) -> None:
    version = history.rows("append", row("a") | row("b"))
    diff = diff_table(history.root, None, version.entry)

    reader = diff.reader(batch_rows=1)
    reader.read_next_batch()
    assert list(workspace.glob("*/diff-*"))
    del reader

    assert list(workspace.glob("*/diff-*")) == []
    assert len(changes(diff)) == 2
    assert list(workspace.glob("*/diff-*")) == []


def test_a_workspace_that_cannot_be_made_is_named(history: History, workspace: Path) -> None:
    version = history.rows("append", row("a"))
    shutil.rmtree(workspace)

    with pytest.raises(StorageUnavailableError, match="compare the rows of node:Thing") as caught:
        changes(diff_table(history.root, None, version.entry))

    assert str(workspace) in caught.value.next_step
