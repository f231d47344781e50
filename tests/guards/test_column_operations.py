"""What a staged change of columns relies on: numbers of fields, and what two operations accept.

`Project` takes a schema alone; `Merge` takes a schema and fragments with new data files, and is
stricter about fields that stay. A schema with numbers of our own can be made only from the form
that Lance pickles to.

Relied on in: `storage/staging/column_layout.py`, `storage/staging/column_changes.py`,
`storage/staging/bulk.py`, `storage/staging/table_versions.py`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments
from lance.schema import LanceSchema

from omnigraph_lake.storage.staging.column_layout import (
    NumberedColumn,
    as_lance_writes,
    columns_of,
    with_columns,
)

pytestmark = pytest.mark.unit

BLOB = {"lance-encoding:blob": "true"}
TAGS = pa.list_(pa.field("item", pa.string()))
VECTOR = pa.list_(pa.field("item", pa.float32()), 2)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"n": "1"}),
        pa.field("age", pa.int32()),
        pa.field("tags", TAGS, nullable=False),
        pa.field("at", VECTOR),
        pa.field("scan", pa.large_binary(), nullable=False, metadata=BLOB),
        pa.field("mood", pa.string()),
    ],
    metadata={"k": "v"},
)
ROWS = pa.table(
    {
        "id": ["a", "b"],
        "age": [1, None],
        "tags": [["x"], ["y", "z"]],
        "at": [[1, 2], None],
        "scan": [b"s", b"large" * 50_000],
        "mood": ["sad", "glad"],
    },
    schema=SCHEMA,
)
NEW = 20


@pytest.fixture
def table(uri: str) -> LanceDataset:
    lance.write_dataset(ROWS, uri, enable_stable_row_ids=True)
    return lance.dataset(uri)


def wanted(
    dataset: LanceDataset, fields: Sequence[pa.Field], numbers: Mapping[str, Sequence[int]]
) -> LanceSchema:
    """The fields as a schema, under the numbers that their names have, or under the given ones."""
    stored = columns_of(dataset.lance_schema)
    made = as_lance_writes(pa.schema(fields), storage_version=dataset.data_storage_version)
    columns: list[NumberedColumn] = [
        made[each.name].numbered(
            numbers[each.name] if each.name in numbers else stored[each.name].numbers
        )
        for each in fields
    ]
    return with_columns(dataset.lance_schema, columns)


def numbers_of(dataset: LanceDataset, name: str) -> tuple[int, ...]:
    return columns_of(dataset.lance_schema)[name].numbers


def committed(dataset: LanceDataset, operation: LanceOperation.BaseOperation) -> LanceDataset:
    transaction = Transaction(read_version=dataset.version, operation=operation)
    LanceDataset.commit(dataset, transaction, max_retries=0)
    return lance.dataset(dataset.uri)


def fragments(dataset: LanceDataset, moves: dict[int, int] | None = None) -> list[FragmentMetadata]:
    found = []
    for each in dataset.get_fragments():
        described = each.metadata.to_json()
        for file in described["files"]:
            file["fields"] = [(moves or {}).get(number, number) for number in file["fields"]]
        found.append(FragmentMetadata.from_json(json.dumps(described)))
    return found


def rows(dataset: LanceDataset, *columns: str) -> list[dict[str, Any]]:
    dataset.validate()  # type: ignore[no-untyped-call]
    scanner = dataset.scanner(columns=list(columns) or None, blob_handling="all_binary")
    found: list[dict[str, Any]] = scanner.to_table().to_pylist()
    return found


def replaced(name: str, field: pa.Field) -> list[pa.Field]:
    return [field if each.name == name else each for each in SCHEMA]


def reader(field: pa.Field, *batches: list[Any]) -> pa.RecordBatchReader:
    schema = pa.schema([field])
    made = [pa.record_batch([pa.array(each, field.type)], schema=schema) for each in batches]
    return pa.RecordBatchReader.from_batches(schema, made)


def with_file(dataset: LanceDataset, field: pa.Field) -> tuple[list[FragmentMetadata], LanceSchema]:
    """Every fragment with one more file, which holds a constant column."""
    made = [
        each.merge_columns(reader(field, [7] * each.count_rows()))
        for each in dataset.get_fragments()
    ]
    return [metadata for metadata, _ in made], made[0][1]


def test_a_schema_is_pickled_with_the_numbers_of_its_fields(table: LanceDataset) -> None:
    """Relied on by: the pickled form is taken apart and put together with other numbers."""
    schema = table.lance_schema

    again = with_columns(schema, columns_of(schema).values())

    assert again.__reduce__() == schema.__reduce__()
    assert pickle.loads(pickle.dumps(again)).__reduce__() == schema.__reduce__()  # noqa: S301 - ours
    assert {name: each.numbers for name, each in columns_of(schema).items()} == {
        "id": (0,),
        "age": (1,),
        "tags": (2, 3),
        "at": (4,),
        "scan": (5, 6, 7),
        "mood": (8,),
    }
    assert [(each.name(), each.id()) for each in schema.fields()][-1] == ("mood", 8)


def test_what_lance_makes_of_a_schema_is_known_without_a_table(
    table: LanceDataset, capfd: pytest.CaptureFixture[str]
) -> None:
    """Relied on by: a new field, blobs included, is stored as in a table made with it."""
    made = as_lance_writes(SCHEMA, storage_version=table.data_storage_version)

    assert made == columns_of(table.lance_schema)
    assert capfd.readouterr() == ("", "")


def test_a_schema_made_from_arrow_is_numbered_anew_and_spoils_the_table(
    table: LanceDataset,
) -> None:
    """Relied on by: no schema is handed to Lance without the numbers of the stored fields."""
    schema = LanceSchema.from_pyarrow(pa.schema([SCHEMA.field("id"), SCHEMA.field("mood")]))

    after = committed(table, LanceOperation.Project(schema))

    assert numbers_of(after, "mood") == numbers_of(table, "age")
    with pytest.raises(ValueError, match="buffers in array of type Utf8"):
        after.to_table()


def test_data_files_name_no_field_inside_a_blob_and_no_parent_of_a_list(
    table: LanceDataset,
) -> None:
    """Relied on by: numbers above all that schema and files know are free."""
    (file,) = table.get_fragments()[0].metadata.files

    assert file.fields == [0, 1, 3, 4, 5, 8]


@pytest.mark.parametrize("call", ["add_columns", "drop_columns", "alter_columns"])
def test_the_calls_for_columns_commit_at_once(table: LanceDataset, call: str) -> None:
    """Relied on by: none of them is used on a table."""
    arguments: dict[str, Any] = {
        "add_columns": pa.field("x", pa.string()),
        "drop_columns": ["age"],
        "alter_columns": {"path": "age", "name": "years"},
    }

    getattr(table, call)(arguments[call])

    assert lance.dataset(table.uri).version == 2


def test_a_schema_alone_may_drop_rename_swap_add_and_change_nullability(
    table: LanceDataset,
) -> None:
    """Relied on by: a change without computed values is one operation without a file."""
    fields = [
        SCHEMA.field("id"),
        pa.field("mood", TAGS, metadata={"n": "3"}),
        pa.field("tags", pa.string(), nullable=False),
        pa.field("film", pa.large_binary(), metadata=BLOB),
        pa.field("age", pa.float64()),
        SCHEMA.field("scan").with_nullable(True),
    ]
    numbers = {
        "mood": numbers_of(table, "tags"),
        "tags": numbers_of(table, "mood"),
        "film": (NEW, NEW + 1, NEW + 2),
        "age": (NEW + 3,),
    }
    before = fragments(table)

    after = committed(table, LanceOperation.Project(wanted(table, fields, numbers)))

    assert rows(after) == [
        {"id": "a", "mood": ["x"], "tags": "sad", "film": None, "age": None, "scan": b"s"},
        {
            "id": "b",
            "mood": ["y", "z"],
            "tags": "glad",
            "film": None,
            "age": None,
            "scan": b"large" * 50_000,
        },
    ]
    assert [each.files for each in fragments(after)] == [each.files for each in before]
    assert after.schema.metadata == {b"k": b"v"}
    assert after.schema.field("mood").metadata == {b"n": b"3"}
    assert lance.dataset(table.uri, version=1).schema.names == SCHEMA.names


def test_a_schema_alone_may_require_what_is_null_and_spoils_the_table(table: LanceDataset) -> None:
    """Relied on by: nulls are looked for before a stored column becomes required."""
    fields = replaced("age", pa.field("age", pa.int32(), nullable=False))

    after = committed(table, LanceOperation.Project(wanted(table, fields, {})))

    with pytest.raises(ValueError, match="nulls for non-nullable"):
        rows(after)


def test_nulls_of_deleted_rows_do_not_hinder_a_required_column(table: LanceDataset) -> None:
    """Relied on by: only rows that are there are looked at."""
    table.delete("id = 'b'")
    table = lance.dataset(table.uri)
    fields = replaced("age", pa.field("age", pa.int32(), nullable=False))

    after = committed(table, LanceOperation.Project(wanted(table, fields, {})))

    assert rows(after, "age") == [{"age": 1}]
    assert after.to_table(filter="age > 0").num_rows == 1
    after.optimize.compact_files()
    assert rows(lance.dataset(table.uri), "age") == [{"age": 1}]


def test_a_required_field_without_a_file_cannot_be_read(table: LanceDataset) -> None:
    """Relied on by: a required column gets a file in every fragment."""
    fields = [*SCHEMA, pa.field("x", pa.int64(), nullable=False)]

    after = committed(table, LanceOperation.Project(wanted(table, fields, {"x": (NEW,)})))

    with pytest.raises(ValueError, match="nulls for non-nullable"):
        rows(after)


def test_a_schema_with_fragments_may_rename_reorder_drop_and_add(table: LanceDataset) -> None:
    """Relied on by: a change with computed values does the rest in the same operation."""
    made, _ = with_file(table, pa.field("age_", pa.int64(), nullable=False))
    (number,) = made[0].files[-1].fields
    fields = [
        pa.field("age", pa.int64(), nullable=False),
        SCHEMA.field("scan").with_name("picture").with_metadata({**BLOB, "n": "9"}),
        SCHEMA.field("id"),
        SCHEMA.field("tags").with_name("labels"),
        pa.field("none", TAGS),
    ]
    numbers = {
        "age": (number,),
        "picture": numbers_of(table, "scan"),
        "labels": numbers_of(table, "tags"),
        "none": (NEW, NEW + 1),
    }

    after = committed(table, LanceOperation.Merge(made, wanted(table, fields, numbers)))

    assert after.schema.names == ["age", "picture", "id", "labels", "none"]
    assert rows(after, "id", "age", "labels", "none") == [
        {"id": "a", "age": 7, "labels": ["x"], "none": None},
        {"id": "b", "age": 7, "labels": ["y", "z"], "none": None},
    ]
    assert rows(after, "picture")[1]["picture"] == b"large" * 50_000


REFUSED: dict[str, tuple[list[pa.Field], dict[str, Sequence[int]], str]] = {
    "stricter": (replaced("mood", pa.field("mood", pa.string(), nullable=False)), {}, "nullable"),
    "laxer": (replaced("tags", pa.field("tags", TAGS)), {}, "nullable"),
    "swapped": (
        [SCHEMA.field("id"), pa.field("mood", pa.int32()), pa.field("age", pa.string())],
        {"mood": (1,), "age": (8,)},
        "remaps field id",
    ),
    "onto a dropped name": (
        [SCHEMA.field("id"), pa.field("age", pa.string())],
        {"age": (8,)},
        "remaps field id",
    ),
    "null under a stored name": (
        replaced("age", pa.field("age", pa.string())),
        {"age": (NEW,)},
        "remaps existing field",
    ),
}


@pytest.mark.parametrize(("fields", "numbers", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_schema_with_fragments_must_leave_stored_fields_what_they_are(
    table: LanceDataset, fields: list[pa.Field], numbers: dict[str, Sequence[int]], reason: str
) -> None:
    """Relied on by: such columns are moved to new numbers, or written; if green, need not be."""
    operation = LanceOperation.Merge(fragments(table), wanted(table, fields, numbers))

    with pytest.raises(OSError, match=reason):
        committed(table, operation)
    assert lance.dataset(table.uri).version == 1


@pytest.mark.parametrize(
    ("name", "numbers"), [("mood", (NEW,)), ("at", (NEW,)), ("tags", (NEW, NEW + 1))]
)
def test_a_stored_field_may_get_a_new_number_in_its_old_file(
    table: LanceDataset, name: str, numbers: tuple[int, ...]
) -> None:
    """Relied on by: a column that Merge refuses as it is goes on without being written again."""
    before = rows(table, name)
    field = SCHEMA.field(name).with_nullable(name in {"tags", "at"})
    moves = dict(zip(numbers_of(table, name), numbers, strict=True))

    after = committed(
        table,
        LanceOperation.Merge(
            fragments(table, moves), wanted(table, replaced(name, field), {name: numbers})
        ),
    )

    assert rows(after, name) == before
    assert [each.files[0].path for each in fragments(after)] == [
        each.files[0].path for each in fragments(table)
    ]
    after.delete("id = 'a'")
    lance.dataset(table.uri).optimize.compact_files()
    assert rows(lance.dataset(table.uri), name) == before[1:]


@pytest.mark.parametrize("numbers", [(NEW, 6, 7), (NEW, NEW + 1, NEW + 2)])
def test_blobs_cannot_get_a_new_number(table: LanceDataset, numbers: tuple[int, ...]) -> None:
    """Relied on by: a change of blobs beside computed values is refused; if green, allow it."""
    fields = replaced("scan", SCHEMA.field("scan").with_nullable(True))
    moved = fragments(table, {5: NEW})

    with pytest.raises(OSError, match="remaps"):
        committed(table, LanceOperation.Merge(moved, wanted(table, fields, {"scan": numbers})))


def test_only_a_schema_alone_forgets_files_that_no_field_needs(table: LanceDataset) -> None:
    """Relied on by: fragments that go with a schema are rid of such files before."""
    made, schema = with_file(table, pa.field("x", pa.int64()))
    with_x = committed(table, LanceOperation.Merge(made, schema))
    without = wanted(with_x, list(SCHEMA), {})

    projected = committed(with_x, LanceOperation.Project(without))
    assert [len(each.files) for each in fragments(projected)] == [1]

    with_x.restore()  # type: ignore[no-untyped-call]
    with_x = lance.dataset(table.uri)
    with pytest.raises(OSError, match="any fields in common"):
        rows(committed(with_x, LanceOperation.Merge(fragments(with_x), without)))


def test_new_values_are_laid_beside_the_rows_that_are_there(table: LanceDataset) -> None:
    """Relied on by: values are computed for rows that are not deleted, in any batches."""
    for start in ("c", "e"):
        more = pa.array([start, chr(ord(start) + 1)])
        rows_of_it = ROWS.set_column(0, SCHEMA.field("id"), more)
        lance.write_dataset(rows_of_it, table.uri, mode="append")
    lance.dataset(table.uri).optimize.compact_files()
    lance.dataset(table.uri).delete("id IN ('a', 'd')")
    dataset = lance.dataset(table.uri)
    (fragment,) = dataset.get_fragments()
    field = pa.field("x", pa.string(), nullable=False)

    metadata, schema = fragment.merge_columns(
        reader(field, ["b", "c", "e"], [], ["f"]), batch_size=1
    )

    assert lance.dataset(table.uri).version == dataset.version
    after = committed(dataset, LanceOperation.Merge([metadata], schema))
    assert rows(after, "id", "x") == [{"id": each, "x": each} for each in "bcef"]
    after.optimize.compact_files()
    assert rows(lance.dataset(table.uri), "id", "x") == rows(after, "id", "x")


@pytest.mark.parametrize("count", [1, 3])
def test_too_few_or_too_many_new_values_are_refused(table: LanceDataset, count: int) -> None:
    """Relied on by: values never slip to other rows."""
    (fragment,) = table.get_fragments()

    with pytest.raises(ValueError, match="Stream"):
        fragment.merge_columns(reader(pa.field("x", pa.int64()), [1] * count))


def test_lance_reads_deleted_rows_when_it_has_values_computed(table: LanceDataset) -> None:
    """Relied on by: rows are read before their new values are written; if green, together."""
    table.delete("id = 'b'")
    table = lance.dataset(table.uri)
    fields = replaced("age", pa.field("age", pa.int32(), nullable=False))
    after = committed(table, LanceOperation.Project(wanted(table, fields, {})))
    (fragment,) = after.get_fragments()

    with pytest.raises(ValueError, match="nulls for non-nullable"):
        fragment.merge_columns({"x": "age + 1"}, columns=["age"])
    assert rows(after, "age") == [{"age": 1}]


def test_new_values_cost_one_write_and_no_read(table: LanceDataset) -> None:
    """Relied on by: a constant column costs one request per fragment."""
    table.io_stats_incremental()

    with_file(table, pa.field("x", pa.int64()))

    counted = table.io_stats_incremental()
    assert (counted.read_iops, counted.write_iops) == (0, 1)


def test_rows_count_as_updated_only_where_their_fragment_got_a_file(table: LanceDataset) -> None:
    """Relied on by: computed values show in the changes of a table, other steps do not.

    Relied on in `storage/staging/row_changes.py`.
    """
    columns = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    schema = wanted(table, replaced("mood", SCHEMA.field("mood").with_nullable(False)), {})
    after = committed(table, LanceOperation.Project(schema))
    assert rows(after, *columns) == rows(table, *columns)

    made, schema = with_file(after, pa.field("x", pa.int64()))
    after = committed(after, LanceOperation.Merge(made, schema))

    assert rows(after, *columns[:2]) == rows(table, *columns[:2])
    assert {row[columns[2]] for row in rows(after, columns[2])} == {3}


@pytest.mark.parametrize("with_fragments", [False, True])
def test_an_index_follows_the_number_of_its_field_and_keeps_its_name(
    table: LanceDataset, with_fragments: bool
) -> None:
    """Relied on by: renamed columns stay indexed; dropped and computed ones do not.

    Relied on in `storage/indexes/segments.py`.
    """
    for name in ("mood", "age"):
        table.create_scalar_index(name, "BTREE")
    table = lance.dataset(table.uri)
    fields = [SCHEMA.field("id"), pa.field("feeling", pa.string())]
    schema = wanted(table, fields, {"feeling": numbers_of(table, "mood")})

    after = committed(
        table,
        LanceOperation.Merge(fragments(table), schema)
        if with_fragments
        else LanceOperation.Project(schema),
    )

    assert [(each.name, each.field_names) for each in after.describe_indices()] == [
        ("mood_idx", ["feeling"])
    ]
    scanner = after.scanner(filter="feeling = 'glad'", columns=["id"])
    assert "ScalarIndexQuery" in scanner.explain_plan()
    assert scanner.to_table().to_pylist() == [{"id": "b"}]


def _append(dataset: LanceDataset) -> Transaction:
    transaction: Transaction = write_fragments(ROWS, dataset, return_transaction=True)
    return transaction


def _upsert(dataset: LanceDataset) -> Transaction:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return builder.execute_uncommitted(ROWS)[0]


@pytest.mark.parametrize("write", [_append, _upsert])
@pytest.mark.parametrize("columns_first", [False, True])
def test_a_schema_alone_and_a_write_from_one_version_exclude_each_other(
    table: LanceDataset, write: Callable[[LanceDataset], Transaction], columns_first: bool
) -> None:
    """Relied on by: neither lands on top of the other unseen."""
    operation = LanceOperation.Project(wanted(table, [SCHEMA.field("id")], {}))
    pair = [write(table), Transaction(read_version=1, operation=operation)]
    first, second = reversed(pair) if columns_first else pair
    LanceDataset.commit(table, first, max_retries=0)

    with pytest.raises(OSError, match="onflict"):
        LanceDataset.commit(table, second, max_retries=0)


def test_a_schema_alone_lands_on_top_of_a_deletion_unseen(table: LanceDataset) -> None:
    """Relied on by: the version that a commit made is compared with the pin, always."""
    operation = LanceOperation.Project(wanted(table, [SCHEMA.field("id")], {}))
    lance.dataset(table.uri).delete("id = 'a'")

    made = LanceDataset.commit(table, Transaction(1, operation), max_retries=0)

    assert (made.version, rows(made)) == (3, [{"id": "b"}])


def test_files_of_a_branch_do_not_serve_its_origin(table: LanceDataset) -> None:
    """Relied on by: new values are written where they are used, not on a branch to try things."""
    branch = table.create_branch("try", 1)
    branch.add_columns({"x": "age + 1"})
    recorded = branch.read_transaction(branch.version)
    assert recorded is not None

    after = committed(table, recorded.operation)

    with pytest.raises(ValueError, match="base_path id 0 not found"):
        after.to_table()
