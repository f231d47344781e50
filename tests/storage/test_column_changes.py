"""A change of columns is one version, writes only what is new, and leaves rows what they are."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset, LanceOperation

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.names import BLOB_KEY, PRIMARY_KEY_KEY, PROPERTY_ID_KEY
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.storage.lance.compaction import (
    CompactionWork,
    StagedRewrite,
    commit_rewrite,
    execute_task,
    plan_compaction,
)
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset, look_up
from omnigraph_lake.storage.lance.datasets import NewVersion
from omnigraph_lake.storage.lance.forks import fork_table
from omnigraph_lake.storage.lance.tables import create_table, open_pinned
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging.changes import (
    StagedChange,
    stage_append,
    stage_delete,
)
from omnigraph_lake.storage.staging.column_changes import (
    ColumnFiles,
    Compute,
    column_files,
    fragments_to_compute,
    staged_from,
)
from omnigraph_lake.storage.staging.column_layout import (
    ColumnChange,
    ComputedColumn,
    KeptColumn,
    NullColumn,
    WantedColumn,
)
from omnigraph_lake.storage.staging.edits import stage_upserts
from omnigraph_lake.storage.staging.table_versions import commit_staged, head_version, restore_pin
from tests.forking.programs import run_code
from tests.storage.whole_changes import stage_columns

pytestmark = pytest.mark.unit

LARGE = b"large" * 50_000
TAGS = pa.list_(pa.field("item", pa.string()))
VECTOR = pa.list_(pa.field("item", pa.float32()), 2)


def numbered(name: str, kind: pa.DataType, number: int, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={PROPERTY_ID_KEY: str(number)})


def blob(name: str, number: int, *, nullable: bool = True) -> pa.Field:
    metadata = {PROPERTY_ID_KEY: str(number), BLOB_KEY: "true"}
    return pa.field(name, pa.large_binary(), nullable=nullable, metadata=metadata)


ID = pa.field("id", pa.string(), nullable=False, metadata={PRIMARY_KEY_KEY: "true"})
NAME = numbered("name", pa.string(), 1, nullable=False)
AGE = numbered("age", pa.int32(), 2)
SCAN = blob("scan", 3)
TAGGED = numbered("tags", TAGS, 4)
AT = numbered("at", VECTOR, 5)
MOOD = numbered("mood", pa.string(), 6)
SCHEMA = pa.schema([ID, NAME, AGE, SCAN, TAGGED, AT, MOOD])


@dataclass
class Table:
    """A table and the pin that tests move along."""

    root: Root
    entry: TableEntry

    def commit(self, change: StagedChange) -> None:
        made = commit_staged(
            self.root, change, on_version=self.entry.version, operation_id="operation"
        )
        assert made is not None
        assert made.version == self.entry.version + 1
        assert head_version(self.root, self.entry) == made.version
        self.move(made, change.row_count)

    def move(self, made: NewVersion, row_count: int | None = None) -> None:
        rows = self.entry.row_count if row_count is None else row_count
        self.entry = replace(self.entry, version=made.version, made_at=made.made_at, row_count=rows)

    def change(
        self, *columns: WantedColumn, reads: Sequence[str] = (), compute: Compute | None = None
    ) -> StagedChange:
        change = ColumnChange(columns=columns, reads=tuple(reads))
        staged = stage_columns(self.root, self.entry, change, compute)
        self.commit(staged)
        return staged

    def dataset(self) -> LanceDataset:
        dataset = open_pinned(self.root, self.entry)
        dataset.validate()  # type: ignore[no-untyped-call]
        return dataset

    def rows(self, *columns: str, where: str | None = None) -> list[dict[str, Any]]:
        scanner = self.dataset().scanner(
            columns=list(columns) or None, filter=where, blob_handling="all_binary"
        )
        found: list[dict[str, Any]] = scanner.to_table().to_pylist()
        return found

    def column(self, name: str) -> dict[str, Any]:
        return {row["id"]: row[name] for row in self.rows("id", name)}

    def identities(self) -> list[dict[str, Any]]:
        return self.rows("id", "_rowid", "_row_created_at_version")

    def updated_at(self) -> dict[str, int]:
        return self.column("_row_last_updated_at_version")

    def data_files(self) -> set[tuple[str, int]]:
        return {
            (file["path"], file["size_bytes"])
            for batch in self.dataset().all_files()
            for file in batch.to_pylist()
            if file["path"].startswith("data/")
        }

    def indexed(self) -> list[str]:
        return sorted(each.field_names[0] for each in self.dataset().describe_indices())


def people(*names: str, start: int = 1) -> pa.Table:
    count = len(names)
    ages = [None if name == "cid" else start + n for n, name in enumerate(names)]
    return pa.table(
        {
            "id": names,
            "name": names,
            "age": ages,
            "scan": [LARGE if n == 0 else None if n == 1 else b"small" for n in range(count)],
            "tags": [[name, "x"] for name in names],
            "at": [[n, n] for n in range(count)],
            "mood": ["glad" if n % 2 else "sad" for n in range(count)],
        },
        schema=SCHEMA,
    )


def created(root: str, schema: pa.Schema = SCHEMA) -> Table:
    where = parse_root(root)
    version = create_table(where, "nodes/t", schema, operation_id="made")
    entry = TableEntry(
        table_key="node:T", location="nodes/t", version=version, fork=None, branch=None, row_count=0
    )
    return Table(where, entry)


@pytest.fixture
def empty(graph_root: str) -> Table:
    return created(graph_root)


@pytest.fixture
def table(empty: Table) -> Table:
    """Two fragments, one of which lost a row, with indexes on two columns."""
    empty.commit(stage_append(empty.root, empty.entry, people("ann", "bob", "cid")))
    empty.commit(stage_append(empty.root, empty.entry, people("dan", "eve", "fay", start=4)))
    empty.commit(stage_delete(empty.root, empty.entry, pa.table({"id": ["eve"]})))
    for column in ("name", "age"):
        dataset = open_pinned(empty.root, empty.entry)
        dataset.create_scalar_index(column, "BTREE")
        empty.entry = replace(empty.entry, version=dataset.version, made_at=None)
    return empty


def kept(*fields: pa.Field) -> list[KeptColumn]:
    return [KeptColumn(field=each, stored=each.name) for each in fields]


def renamed(field: pa.Field, name: str) -> KeptColumn:
    return KeptColumn(field=field.with_name(name), stored=field.name)


def cast(source: str, target: pa.Field) -> Compute:
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([batch[source].cast(target.type)], names=[target.name])

    return compute


def constant(value: object, target: pa.Field) -> Compute:
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch(
            [pa.array([value] * batch.num_rows, target.type)], names=[target.name]
        )

    return compute


WIDE_AGE = numbered("age", pa.int64(), 2)
OTHERS = (ID, NAME, SCAN, TAGGED, AT, MOOD)

WITHOUT_FILES = {
    "add": [*kept(*SCHEMA), NullColumn(field=numbered("size", pa.float64(), 7))],
    "add every kind": [
        *kept(*SCHEMA),
        NullColumn(field=numbered("names", TAGS, 7)),
        NullColumn(field=numbered("there", VECTOR, 8)),
        NullColumn(field=blob("film", 9)),
        NullColumn(field=numbered("when", pa.timestamp("us", tz="UTC"), 10)),
        NullColumn(field=numbered("yes", pa.bool_(), 11)),
    ],
    "drop": kept(ID, NAME, SCAN, AT),
    "drop blobs": kept(ID, NAME, AGE),
    "rename": [*kept(ID, NAME, AGE), renamed(SCAN, "picture"), renamed(TAGGED, "labels")],
    "swap names": [*kept(ID, NAME, AGE), renamed(TAGGED, "at"), renamed(AT, "tags")],
    "order": kept(*reversed(SCHEMA)),
    "relax": [*kept(ID, AGE), KeptColumn(field=NAME.with_nullable(True), stored="name")],
    "require": [*kept(ID, NAME), KeptColumn(field=MOOD.with_nullable(False), stored="mood")],
    "drop and add under one name": [*kept(ID), NullColumn(field=numbered("age", TAGS, 9))],
    "rename onto a dropped name": [*kept(ID, NAME), renamed(MOOD, "age")],
    "everything": [
        *kept(ID),
        KeptColumn(field=SCAN.with_name("picture"), stored="scan"),
        NullColumn(field=numbered("size", pa.float64(), 7)),
        KeptColumn(field=MOOD.with_name("name").with_nullable(False), stored="mood"),
        renamed(NAME, "mood"),
    ],
}


@pytest.mark.parametrize("columns", WITHOUT_FILES.values(), ids=WITHOUT_FILES.keys())
def test_without_computed_values_no_data_file_is_written(
    table: Table, columns: list[WantedColumn]
) -> None:
    before, files, rows = table.entry, table.data_files(), table.identities()
    old, updated = {row["id"]: row for row in table.rows()}, table.updated_at()

    staged = table.change(*columns)

    assert isinstance(staged.operation, LanceOperation.Project)
    assert (staged.row_count, table.entry.version) == (5, before.version + 1)
    assert table.data_files() == files
    assert (table.identities(), table.updated_at()) == (rows, updated)
    assert staged.rows_updated == 0
    expected = [
        {
            each.field.name: old[name][each.stored] if isinstance(each, KeptColumn) else None
            for each in columns
        }
        for name in old
    ]
    assert table.rows() == expected
    assert_schema(table, [each.field for each in columns])
    assert {row["id"]: row for row in replace(table, entry=before).rows()} == old


def assert_schema(table: Table, fields: Sequence[pa.Field]) -> None:
    found = table.dataset().schema
    assert found.names == [each.name for each in fields]
    for each in fields:
        stored = found.field(each.name)
        metadata = {k: v for k, v in (each.metadata or {}).items() if k != BLOB_KEY.encode()}
        assert (stored.nullable, stored.metadata or {}) == (each.nullable, metadata)
        if BLOB_KEY.encode() not in (each.metadata or {}):
            assert stored.type == each.type


def test_new_columns_of_every_kind_hold_what_is_written_later(table: Table) -> None:
    new = {
        "names": (numbered("names", TAGS, 7), ["n"]),
        "film": (blob("film", 8), LARGE),
        "there": (numbered("there", VECTOR, 9), [1.0, 2.0]),
        "more": (numbered("more", TAGS, 10), ["m", None]),
        "yes": (numbered("yes", pa.bool_(), 11), True),
    }
    table.change(*kept(*SCHEMA), *(NullColumn(field=each) for each, _ in new.values()))
    rows = people("gil")
    for each, value in new.values():
        rows = rows.append_column(each, pa.array([value], each.type))

    table.commit(stage_append(table.root, table.entry, rows))
    compacted(table)

    nobody = dict.fromkeys(["ann", "bob", "cid", "dan", "fay"])
    for name, (_, value) in new.items():
        assert table.column(name) == nobody | {"gil": value}


WIDER = [
    (pa.int32(), pa.int64(), [1, None, -(2**31)]),
    (pa.uint32(), pa.uint64(), [1, None, 2**32 - 1]),
    (pa.uint32(), pa.int64(), [1, None, 2**32 - 1]),
    (pa.float32(), pa.float64(), [0.5, None, -0.25]),
    (pa.int32(), pa.float64(), [1, None, 2**31 - 1]),
    (pa.uint32(), pa.float64(), [1, None, 2**32 - 1]),
]


@pytest.mark.parametrize(("narrow", "wide", "values"), WIDER, ids=[f"{a}-{b}" for a, b, _ in WIDER])
def test_a_column_is_widened_in_its_place(
    graph_root: str, narrow: pa.DataType, wide: pa.DataType, values: list[float | None]
) -> None:
    old, new = numbered("n", narrow, 1), numbered("n", wide, 1)
    table = created(graph_root, pa.schema([ID, old, MOOD]))
    rows = pa.table(
        {"id": list("abc"), "n": values, "mood": list("xyz")}, schema=pa.schema([ID, old, MOOD])
    )
    table.commit(stage_append(table.root, table.entry, rows))

    table.change(
        *kept(ID), ComputedColumn(field=new), *kept(MOOD), reads=["n"], compute=cast("n", new)
    )

    assert [row["n"] for row in table.rows()] == values
    assert [row["mood"] for row in table.rows()] == list("xyz")
    assert_schema(table, [ID, new, MOOD])


def test_computed_columns_add_one_file_to_each_fragment_and_rewrite_none(table: Table) -> None:
    before, files, rows = table.entry, table.data_files(), table.identities()
    blobs = table.column("scan")

    staged = table.change(
        *kept(*OTHERS), ComputedColumn(field=WIDE_AGE), reads=["age"], compute=cast("age", WIDE_AGE)
    )

    assert files < table.data_files()
    assert len(table.data_files() - files) == 2
    assert table.identities() == rows
    assert set(table.updated_at().values()) == {table.entry.version}
    assert (staged.rows_updated, staged.row_count) == (5, 5)
    assert table.column("age") == {"ann": 1, "bob": 2, "cid": None, "dan": 4, "fay": 6}
    assert table.column("scan") == blobs
    assert blobs["ann"] == LARGE
    assert_schema(table, [*OTHERS, WIDE_AGE])
    assert replace(table, entry=before).dataset().schema.field("age").type == pa.int32()


def test_indexes_of_kept_columns_answer_and_those_of_gone_values_are_gone(table: Table) -> None:
    table.change(*kept(ID), renamed(NAME, "title"), *kept(AGE))
    assert table.indexed() == ["age", "title"]

    table.change(
        *kept(ID, NAME.with_name("title")),
        ComputedColumn(field=WIDE_AGE),
        reads=["age"],
        compute=cast("age", WIDE_AGE),
    )

    assert table.indexed() == ["title"]
    plan = table.dataset().scanner(filter="title = 'dan'").explain_plan()
    assert "ScalarIndexQuery" in plan
    assert [row["id"] for row in table.rows("id", where="title = 'dan'")] == ["dan"]
    assert table.rows("id", where="title = 'eve'") == []
    assert [row["id"] for row in table.rows("id", where="age = 4")] == ["dan"]


def test_constants_copies_and_mappings_are_computed_together(table: Table) -> None:
    kind, twice = numbered("kind", pa.string(), 7, nullable=False), numbered("twice", TAGS, 8)
    mood = numbered("mood", pa.string(), 6, nullable=False)
    changed = {"sad": "blue", "glad": "glad"}
    old = table.column("mood")

    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.names == ["mood", "tags"]
        moods = [changed[each] for each in batch["mood"].to_pylist()]
        kinds = pa.array(["person"] * batch.num_rows, pa.string())
        return pa.record_batch(
            [kinds, pa.array(moods, pa.string()), batch["tags"]], names=["kind", "mood", "twice"]
        )

    table.change(
        *kept(ID, TAGGED),
        *(ComputedColumn(field=each) for each in (mood, kind, twice)),
        reads=["mood", "tags"],
        compute=compute,
    )

    assert table.column("mood") == dict.fromkeys(old, "blue") | {"bob": "glad"}
    assert set(table.column("kind").values()) == {"person"}
    assert table.column("twice") == table.column("tags")
    assert_schema(table, [ID, TAGGED, mood, kind, twice])


def test_one_transaction_does_every_kind_of_step(table: Table) -> None:
    files, rows = table.data_files(), table.identities()
    old = {row["id"]: row for row in table.rows()}
    fields = [
        ID,
        NAME.with_name("age").with_nullable(True),
        numbered("name", pa.int64(), 2),
        SCAN.with_name("picture"),
        TAGGED.with_name("at"),
        MOOD.with_nullable(False),
        numbered("tags", pa.bool_(), 7),
        numbered("size", pa.float64(), 8),
    ]

    table.change(
        *kept(ID),
        KeptColumn(field=fields[1], stored="name"),
        ComputedColumn(field=fields[2]),
        KeptColumn(field=fields[3], stored="scan"),
        KeptColumn(field=fields[4], stored="tags"),
        KeptColumn(field=fields[5], stored="mood"),
        NullColumn(field=fields[6]),
        NullColumn(field=fields[7]),
        reads=["age"],
        compute=cast("age", fields[2]),
    )

    assert len(table.data_files() - files) == 2
    assert table.identities() == rows
    assert_schema(table, fields)
    assert table.rows() == [
        {
            "id": name,
            "age": row["name"],
            "name": row["age"],
            "picture": row["scan"],
            "at": row["tags"],
            "mood": row["mood"],
            "tags": None,
            "size": None,
        }
        for name, row in old.items()
    ]
    assert table.indexed() == []


def test_a_moved_column_that_some_fragments_never_stored_stays_null_there(table: Table) -> None:
    late, other = numbered("late", pa.string(), 7), numbered("other", TAGS, 8)
    table.change(*kept(*SCHEMA), NullColumn(field=late), NullColumn(field=other))
    rows = (
        people("gil")
        .append_column(late, pa.array(["l"]))
        .append_column(other, pa.array([["o"]], TAGS))
    )
    table.commit(stage_append(table.root, table.entry, rows))

    table.change(
        *kept(*OTHERS),
        ComputedColumn(field=WIDE_AGE),
        KeptColumn(field=late.with_name("other"), stored="late"),
        KeptColumn(field=other.with_name("late"), stored="other"),
        reads=["age"],
        compute=cast("age", WIDE_AGE),
    )

    nobody = dict.fromkeys(["ann", "bob", "cid", "dan", "fay"])
    assert table.column("other") == nobody | {"gil": "l"}
    assert table.column("late") == nobody | {"gil": ["o"]}
    assert table.column("age")["gil"] == 1


REQUIRED = [
    (pa.int64(), 5),
    (pa.string(), "s"),
    (pa.bool_(), True),
    (TAGS, ["t"]),
    (VECTOR, [1.0, 2.0]),
    (pa.date32(), 3),
]


@pytest.mark.parametrize(("kind", "value"), REQUIRED, ids=[str(kind) for kind, _ in REQUIRED])
def test_a_required_column_can_be_read_although_deleted_rows_have_no_value(
    table: Table, kind: pa.DataType, value: object
) -> None:
    needed = numbered("needed", kind, 7, nullable=False)
    table.commit(stage_delete(table.root, table.entry, pa.table({"id": ["dan", "ann"]})))

    table.change(*kept(*SCHEMA), ComputedColumn(field=needed), compute=constant(value, needed))

    assert table.dataset().count_rows() == 3
    assert len({str(each) for each in table.column("needed").values()}) == 1
    compacted(table)
    assert set(table.column("needed")) == {"bob", "cid", "fay"}


def compacted(table: Table) -> None:
    rows = {row["id"]: row for row in table.rows()}
    plan = plan_compaction(table.root, table.entry)
    work = [CompactionWork(entry=table.entry, task=task) for task in plan.tasks]
    results = tuple(execute_task(table.root, each) for each in work)
    made = commit_rewrite(table.root, StagedRewrite(entry=table.entry, results=results))
    assert made is not None
    table.move(made)
    assert {row["id"]: row for row in table.rows()} == rows


@pytest.mark.parametrize("computes", [False, True])
def test_writes_deletes_and_compaction_go_on_after_a_change(table: Table, computes: bool) -> None:
    size = numbered("size", pa.float64(), 7)
    new = ComputedColumn(field=size) if computes else NullColumn(field=size)
    table.change(
        *kept(ID), renamed(NAME, "title"), *kept(SCAN, TAGGED), new, compute=constant(1.5, size)
    )
    schema = pa.schema([ID, NAME.with_name("title"), SCAN, TAGGED, size])
    known = {row["id"]: row["_rowid"] for row in table.identities()}
    rows = pa.table(
        {
            "id": ["ann", "gil"],
            "title": ["Ann", "Gil"],
            "scan": [b"A", LARGE],
            "tags": [["a"], None],
            "size": [2.5, None],
        },
        schema=schema,
    )

    table.commit(stage_upserts(StoredObjects(table.root), table.entry, rows))
    table.commit(
        stage_append(table.root, table.entry, rows.slice(1).set_column(0, ID, pa.array(["hal"])))
    )
    table.commit(stage_delete(table.root, table.entry, pa.table({"id": ["bob"]})))
    compacted(table)

    first = 1.5 if computes else None
    assert table.column("size") == {
        **dict.fromkeys(["cid", "dan", "fay"], first),
        "ann": 2.5,
        "gil": None,
        "hal": None,
    }
    assert table.column("scan")["gil"] == LARGE
    after = {row["id"]: row["_rowid"] for row in table.identities()}
    assert {name: after[name] for name in ("ann", "cid", "fay")} == {
        name: known[name] for name in ("ann", "cid", "fay")
    }
    assert [row["id"] for row in table.rows("id", where="title = 'Ann'")] == ["ann"]


def test_a_second_change_stands_on_the_first_and_forgets_files_nobody_needs(table: Table) -> None:
    table.change(
        *kept(*OTHERS), ComputedColumn(field=WIDE_AGE), reads=["age"], compute=cast("age", WIDE_AGE)
    )
    double = numbered("age", pa.float64(), 2)
    table.change(
        *kept(*OTHERS), ComputedColumn(field=double), reads=["age"], compute=cast("age", double)
    )

    assert table.column("age") == {"ann": 1.0, "bob": 2.0, "cid": None, "dan": 4.0, "fay": 6.0}
    assert {len(each.metadata.files) for each in table.dataset().get_fragments()} == {2}

    table.change(*kept(ID, NAME))
    table.change(*kept(ID, NAME), NullColumn(field=numbered("age", TAGS, 9)))

    assert set(table.column("age").values()) == {None}
    assert {len(each.metadata.files) for each in table.dataset().get_fragments()} == {1}


def test_an_empty_table_takes_any_change_without_a_file(empty: Table) -> None:
    needed = numbered("needed", pa.string(), 7, nullable=False)
    later = numbered("later", pa.int64(), 8, nullable=False)

    empty.change(
        *kept(ID),
        ComputedColumn(field=WIDE_AGE),
        NullColumn(field=needed),
        KeptColumn(field=MOOD.with_nullable(False), stored="mood"),
        ComputedColumn(field=later),
        KeptColumn(field=SCAN.with_name("name").with_nullable(False), stored="scan"),
        reads=["age"],
    )

    assert empty.data_files() == set()
    scan = SCAN.with_name("name").with_nullable(False)
    schema = pa.schema([ID, WIDE_AGE, needed, MOOD.with_nullable(False), later, scan])
    assert_schema(empty, list(schema))
    values = {"id": "a", "age": 1, "needed": "n", "mood": "m", "later": 2, "name": b"s"}
    rows = pa.Table.from_pylist([values], schema=schema)
    empty.commit(stage_append(empty.root, empty.entry, rows))
    assert empty.rows() == [values]


@pytest.mark.parametrize("computes", [False, True])
def test_a_change_is_made_from_the_pin_when_head_has_moved_on(table: Table, computes: bool) -> None:
    pin = table.entry
    orphan = Table(table.root, pin)
    orphan.change(*kept(ID), NullColumn(field=numbered("orphan", pa.string(), 9)))
    orphan.commit(stage_delete(orphan.root, orphan.entry, pa.table({"id": ["ann"]})))
    new = ComputedColumn(field=WIDE_AGE) if computes else KeptColumn(field=AGE, stored="age")
    change = ColumnChange(columns=(*kept(ID), new), reads=("age",))

    staged = stage_columns(table.root, pin, change, cast("age", WIDE_AGE))
    head = orphan.entry.version
    assert commit_staged(table.root, staged, on_version=pin.version, operation_id="o") is None
    restored = restore_pin(table.root, pin, head=head, operation_id="o")
    assert restored is not None
    made = commit_staged(table.root, staged, on_version=restored.version, operation_id="o")

    assert made is not None
    assert made.version == head + 2
    table.move(made)
    assert table.column("age") == {"ann": 1, "bob": 2, "cid": None, "dan": 4, "fay": 6}
    assert table.dataset().schema.names == ["id", "age"]


@pytest.mark.parametrize("computes", [False, True])
def test_a_change_on_a_fork_leaves_its_origin_alone(table: Table, computes: bool) -> None:
    before = table.rows()
    forked = fork_table(table.root, table.entry, fork="dev", branch="dev")
    assert forked is not None
    fork = Table(table.root, forked)
    fork.commit(stage_append(fork.root, fork.entry, people("gil")))
    fork.commit(stage_delete(fork.root, fork.entry, pa.table({"id": ["ann"]})))
    new = ComputedColumn(field=WIDE_AGE) if computes else KeptColumn(field=AGE, stored="age")
    identities = fork.identities()

    fork.change(
        *kept(ID, SCAN), renamed(NAME, "title"), new, reads=["age"], compute=cast("age", WIDE_AGE)
    )

    assert fork.identities() == identities
    assert fork.column("age") == {"bob": 2, "cid": None, "dan": 4, "fay": 6, "gil": 1}
    assert fork.column("scan")["dan"] == LARGE
    assert [row["id"] for row in fork.rows("id", where="title = 'dan'")] == ["dan"]
    fork.commit(stage_delete(fork.root, fork.entry, pa.table({"id": ["dan"]})))
    assert table.rows() == before
    assert head_version(table.root, table.entry) == table.entry.version


def test_what_is_staged_but_not_committed_changes_nothing(table: Table) -> None:
    before, head = table.rows(), table.entry.version
    change = ColumnChange(columns=(*kept(ID), ComputedColumn(field=WIDE_AGE)), reads=("age",))

    stage_columns(table.root, table.entry, change, cast("age", WIDE_AGE))

    assert head_version(table.root, table.entry) == head
    assert table.rows() == before
    assert_schema(table, list(SCHEMA))
    table.commit(stage_append(table.root, table.entry, people("gil")))
    assert len(table.rows()) == 6


def test_of_two_changes_from_one_pin_the_second_is_refused(table: Table) -> None:
    change = ColumnChange(columns=tuple(kept(ID, NAME)))
    first, second = (stage_columns(table.root, table.entry, change) for _ in range(2))
    pin = table.entry.version

    table.commit(first)

    assert commit_staged(table.root, second, on_version=pin, operation_id="two") is None


def test_a_table_that_stays_open_shows_the_new_columns(table: Table) -> None:
    table.commit(stage_append(table.root, table.entry, people("gil")))
    assert len(look_up(table.root, table.entry, ["name"], "name = 'dan'").read_all()) == 1
    opened = cached_dataset(table.root, table.entry)

    table.change(*kept(ID), renamed(NAME, "mood"), renamed(MOOD, "name"))

    found = look_up(table.root, table.entry, ["id", "name"], "mood = 'dan'").read_all()
    assert cached_dataset(table.root, table.entry) is not opened
    assert found.to_pylist() == [{"id": "dan", "name": "sad"}]


@pytest.mark.parametrize("name", ["age", "scan"])
def test_a_column_with_nulls_cannot_become_required(table: Table, name: str) -> None:
    required = SCHEMA.field(name).with_nullable(False)
    change = ColumnChange(columns=(*kept(ID), KeptColumn(field=required, stored=name)))

    with pytest.raises(InvalidInputError, match=f"column {name} of node:T cannot become required"):
        stage_columns(table.root, table.entry, change)


def test_a_null_that_was_deleted_does_not_count(table: Table) -> None:
    table.commit(stage_delete(table.root, table.entry, pa.table({"id": ["cid"]})))

    table.change(*kept(ID), KeptColumn(field=AGE.with_nullable(False), stored="age"))

    assert table.column("age") == {"ann": 1, "bob": 2, "dan": 4, "fay": 6}
    wide = WIDE_AGE.with_nullable(False)
    table.change(*kept(ID), ComputedColumn(field=wide), reads=["age"], compute=cast("age", wide))
    assert table.column("age") == {"ann": 1, "bob": 2, "dan": 4, "fay": 6}
    compacted(table)


def test_a_required_column_refuses_a_computed_null(table: Table) -> None:
    required = WIDE_AGE.with_nullable(False)
    change = ColumnChange(columns=(*kept(ID), ComputedColumn(field=required)), reads=("age",))

    with pytest.raises(InvalidInputError, match="column age of node:T is required"):
        stage_columns(table.root, table.entry, change, cast("age", required))


def test_the_error_of_a_computation_comes_out_as_it_is(table: Table) -> None:
    change = ColumnChange(columns=(*kept(ID), ComputedColumn(field=WIDE_AGE)), reads=("name",))

    with pytest.raises(pa.ArrowInvalid, match="Failed to parse string"):
        stage_columns(table.root, table.entry, change, cast("name", WIDE_AGE))


def test_stored_values_are_not_read_as_another_type(table: Table) -> None:
    change = ColumnChange(columns=(*kept(ID), KeptColumn(field=WIDE_AGE, stored="age")))

    with pytest.raises(InvalidInputError, match="is not stored as int64"):
        stage_columns(table.root, table.entry, change)


BLOB_STEPS = {
    "nullability": KeptColumn(field=SCAN.with_nullable(False), stored="scan"),
    "a taken name": KeptColumn(field=SCAN.with_name("mood"), stored="scan"),
    "a new one under a taken name": NullColumn(field=blob("mood", 9)),
    "computing": ComputedColumn(field=blob("mood", 9)),
}


@pytest.mark.parametrize("step", BLOB_STEPS.values(), ids=BLOB_STEPS.keys())
def test_blobs_that_would_have_to_be_written_again_are_refused(
    table: Table, step: WantedColumn
) -> None:
    change = ColumnChange(columns=(*kept(ID), ComputedColumn(field=WIDE_AGE), step), reads=("age",))

    with pytest.raises(InvalidInputError, match="holds blobs"):
        stage_columns(table.root, table.entry, change, cast("age", WIDE_AGE))


def test_a_fragment_is_computed_batch_by_batch(
    empty: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph_lake.storage.staging.column_changes._BATCH_ROWS_MAX", 7)
    monkeypatch.setattr("omnigraph_lake.storage.staging.column_changes._WAITING_BYTES", 100)
    names = [f"p{number:03}" for number in range(60)]
    empty.commit(stage_append(empty.root, empty.entry, people(*names)))
    empty.commit(stage_delete(empty.root, empty.entry, pa.table({"id": names[:30]})))
    batches: list[int] = []

    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        batches.append(batch.num_rows)
        return cast("age", WIDE_AGE)(batch)

    empty.change(*kept(ID), ComputedColumn(field=WIDE_AGE), reads=["age"], compute=compute)

    assert batches == [7, 7, 7, 7, 2]
    assert empty.column("age") == {name: n + 1 for n, name in enumerate(names) if n >= 30}


def files_of(table: Table, change: ColumnChange) -> list[ColumnFiles]:
    return [
        column_files(table.root, table.entry, each, change, cast("age", WIDE_AGE))
        for each in fragments_to_compute(table.root, table.entry, change)
    ]


def test_fragments_may_be_computed_in_other_processes_and_in_any_order(
    table: Table, tmp_path: Path
) -> None:
    change = ColumnChange(columns=(*kept(*OTHERS), ComputedColumn(field=WIDE_AGE)), reads=("age",))
    task = tmp_path / "task"
    pending = fragments_to_compute(table.root, table.entry, change)
    task.write_bytes(pickle.dumps((table.root, table.entry, pending, change)))
    code = (
        "import pickle, sys, pyarrow as pa\n"
        "from omnigraph_lake.storage.staging.column_changes import column_files\n"
        "root, entry, pending, change = pickle.load(open(sys.argv[1], 'rb'))\n"
        "wide = lambda b: pa.record_batch([b['age'].cast('int64')], names=['age'])\n"
        "done = [column_files(root, entry, each, change, wide) for each in reversed(pending)]\n"
        "pickle.dump(done, open(sys.argv[1], 'wb'))\n"
    )
    assert run_code(code, str(task)).returncode == 0
    done = pickle.loads(task.read_bytes())  # noqa: S301 - written by the process above

    table.commit(staged_from(table.root, table.entry, change, done))

    assert table.column("age") == {"ann": 1, "bob": 2, "cid": None, "dan": 4, "fay": 6}


def test_files_of_some_fragments_or_of_another_pin_are_not_taken(table: Table) -> None:
    change = ColumnChange(columns=(*kept(*OTHERS), ComputedColumn(field=WIDE_AGE)), reads=("age",))
    files = files_of(table, change)

    with pytest.raises(AssertionError, match="every fragment"):
        staged_from(table.root, table.entry, change, files[:1])
    with pytest.raises(AssertionError, match="every fragment"):
        staged_from(table.root, table.entry, change, [*files, files[0]])
    table.commit(stage_delete(table.root, table.entry, pa.table({"id": ["ann"]})))
    with pytest.raises(AssertionError, match="made from the pin"):
        staged_from(table.root, table.entry, change, files)


def test_staged_files_name_what_the_pin_had_and_one_file_more(table: Table) -> None:
    change = ColumnChange(columns=(*kept(*OTHERS), ComputedColumn(field=WIDE_AGE)), reads=("age",))
    before = {
        each.fragment_id: [file.path for file in each.metadata.files]
        for each in table.dataset().get_fragments()
    }

    for each in files_of(table, change):
        paths = [file["path"] for file in json.loads(each.description)["files"]]
        assert paths[:-1] == before[each.fragment_id]
        assert len(paths) == 2


EVERY_TYPE = """
node T {
    name: String @key
    text: String?
    yes: Bool?
    i32: I32?
    i64: I64?
    u32: U32?
    u64: U64?
    f32: F32?
    f64: F64?
    day: Date?
    moment: DateTime?
    scan: Blob?
    mood: enum(sad, glad)?
    words: [String]?
    counts: [I64]?
    at: Vector(3)?
}
"""


def test_columns_as_the_catalog_declares_them_are_those_that_are_stored(graph_root: str) -> None:
    graph = og.init(graph_root, schema=EVERY_TYPE)
    graph.write({"node:T": [{"name": "a", "i32": 1, "words": ["w"], "at": [1, 2, 3]}]})
    table = Table(parse_root(graph.root), graph.snapshot().tables["node:T"])
    declared = table_schema(graph.schema.catalog.nodes["T"])
    before = table.rows()
    wide = declared.field("i32").with_type(pa.int64())

    table.change(*kept(*declared))
    assert table.rows() == before

    table.change(
        *(ComputedColumn(field=wide) if each.name == "i32" else kept(each)[0] for each in declared),
        reads=["i32"],
        compute=cast("i32", wide),
    )

    assert table.rows() == before
    assert_schema(table, [wide if each.name == "i32" else each for each in declared])


def test_values_that_were_computed_can_be_aggregated(table: Table) -> None:
    table.change(
        *kept(*OTHERS), ComputedColumn(field=WIDE_AGE), reads=["age"], compute=cast("age", WIDE_AGE)
    )

    assert pc.sum(table.dataset().to_table(columns=["age"])["age"]).as_py() == 13
