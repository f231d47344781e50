from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.manifest_rows import (
    GraphCommit,
    GraphHead,
    ManifestFacts,
    ManifestRow,
    Operation,
    Outcome,
    SchemaChange,
    Table,
    TableVersion,
    Tombstone,
    decode,
    encode,
    facts_of,
    rows_by_changes,
)
from omnigraph_lake.storage.objects.location import Durability
from tests.drawing import drawn

pytestmark = pytest.mark.unit

texts = st.text(min_size=1, max_size=12).filter(lambda text: "\x00" not in text)
paths = st.from_regex(r"[\w-]{1,6}(/[\w-]{1,6})?", fullmatch=True)
keys = st.sampled_from(["node:Person", "node:Company", "edge:Knows"])
branches = st.sampled_from([None, "dev", "feat/x"])
versions = st.integers(1, 2**63)

rows: st.SearchStrategy[ManifestRow] = st.one_of(
    st.builds(Table, table_key=keys, location=paths, type_number=st.none() | st.integers(1, 99)),
    st.builds(
        TableVersion,
        table_key=keys,
        version=versions,
        branch=branches,
        row_count=st.integers(0, 2**63),
        fork=st.none() | paths,
    ),
    st.builds(Tombstone, table_key=keys, version=versions, branch=branches),
    st.builds(
        GraphHead,
        branch=branches,
        sequence=versions,
        commit_id=texts,
        incarnation=paths,
        schema_hash=paths,
        parent_branch=branches,
    ),
    st.builds(
        GraphCommit,
        commit_id=texts,
        branch=branches,
        actor=texts,
        created_at=texts,
        parent_id=st.none() | texts,
        merged_parent_id=st.none() | texts,
    ),
    st.builds(
        Operation,
        operation_id=texts,
        branch=branches,
        outcome=st.sampled_from(Outcome),
        decided_by=texts,
        decided_at=texts,
    ),
)


def object_id_of(row: ManifestRow) -> str:
    (object_id,) = encode([row], ManifestFacts(stamp=7))["object_id"].to_pylist()
    return str(object_id)


@pytest.mark.random
@drawn(15)
@given(st.lists(rows, unique_by=repr), st.integers(1, 9))
def test_rows_survive_encoding(written: list[ManifestRow], stamp: int) -> None:
    facts = ManifestFacts(stamp=stamp, durability=Durability.OS, unsynced_boot="b")
    table = encode(written, facts)

    assert sorted(map(repr, decode(table))) == sorted(map(repr, written))
    assert facts_of(table.schema) == facts
    assert (names.DIGEST_KEY.encode() in table.schema.metadata) == (stamp >= 7)


@pytest.mark.random
@drawn(15)
@given(st.lists(rows, unique_by=repr, min_size=1))
def test_the_digest_is_that_of_the_columns_as_they_are_read(written: list[ManifestRow]) -> None:
    """Writers add up the cells in JSON, of which most are known; readers encode whole columns."""
    table = encode(written, ManifestFacts())
    again = encode([replace(row) for row in written], ManifestFacts())

    assert table.equals(again, check_metadata=True)
    assert len(decode(table)) == len(written)


@pytest.mark.random
@drawn(15)
@given(
    st.lists(rows, unique_by=object_id_of),
    st.lists(rows, unique_by=object_id_of),
    st.lists(rows, unique_by=object_id_of),
    st.integers(0, 5),
)
def test_rows_are_the_same_by_what_changed_and_by_decoding_all_of_them(
    first: list[ManifestRow], second: list[ManifestRow], third: list[ManifestRow], kept: int
) -> None:
    ids = {object_id_of(row) for row in second}
    second += [row for row in first[:kept] if object_id_of(row) not in ids]
    known = decode(encode(first, ManifestFacts()))
    between = encode(second, ManifestFacts(), before=known)
    last = encode(third, ManifestFacts(), before=tuple(second))

    for tables in ([between], [between, last]):
        changed = rows_by_changes(known, [table.schema for table in tables])
        assert changed is not None
        assert sorted(map(repr, changed)) == sorted(map(repr, decode(tables[-1])))
    skipping = rows_by_changes(known, [last.schema])
    assert skipping is None or sorted(map(repr, skipping)) == sorted(map(repr, third))


def test_rows_are_not_told_by_changes_that_are_missing_or_do_not_add_up() -> None:
    before = (TableVersion(table_key="node:A", version=1, row_count=0),)
    after = (TableVersion(table_key="node:A", version=2, row_count=1),)
    schema = encode(after, ManifestFacts(), before=before).schema
    metadata = dict(schema.metadata)
    key = names.CHANGES_KEY.encode()

    assert rows_by_changes(before, [schema]) == after
    assert rows_by_changes(before, [encode(after, ManifestFacts()).schema]) is None
    assert rows_by_changes((*before, *before), [schema]) is None
    assert rows_by_changes((), [schema]) == after
    stranger = TableVersion(table_key="node:B", version=1, row_count=0)
    assert rows_by_changes((*before, stranger), [schema]) is None
    for damaged in (b"[[],[]]", b"{}", b"x", metadata[key].replace(b"1", b"3")):
        torn = schema.with_metadata({**metadata, key: damaged})
        assert rows_by_changes(before, [torn]) is None


OUTSIDE = ["../x", "/x", "nodes/../../x", "nodes//x", "./x", "", "a%2e%2e/x", "x?y", "x#y", "a\nb"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_row_that_names_a_path_outside_the_root_is_refused(path: str) -> None:
    tables = (("node:A", path, 1, None),)
    change = SchemaChange(before="a", after="b", tables=tables)
    commit = GraphCommit(
        commit_id="c", branch=None, operation_id="o", actor="", created_at="", schema_change=change
    )
    hostile: list[ManifestRow] = [Table(table_key="node:A", location=path), commit]
    if path:
        version = TableVersion(table_key="node:A", version=1, row_count=0)
        hostile += [replace(version, location=path), replace(version, fork=path)]
        hostile += [replace(commit, schema_change=None, tables=(("node:A", 1, path),))]

    for row in hostile:
        table = encode([row], ManifestFacts())
        with pytest.raises(DamagedGraphError, match="not below the root") as refused:
            decode(table)
        (named,) = set(table["object_id"].to_pylist()) - set(
            map(names.format_marker, range(names.STAMP_OF_MARKERS, names.STAMP + 1))
        )
        assert named in refused.value.what


def test_object_ids_are_unique_across_kinds_branches_and_versions() -> None:
    written: list[ManifestRow] = [
        Table(table_key="node:A", location="x"),
        TableVersion(table_key="node:A", version=1, row_count=0),
        TableVersion(table_key="node:A", version=2, row_count=0),
        TableVersion(table_key="node:A", version=2, row_count=0, branch="dev"),
        Tombstone(table_key="node:A", version=2),
        Tombstone(table_key="node:A", version=2, branch="dev"),
    ]

    object_ids = encode(written, ManifestFacts())["object_id"].to_pylist()
    assert len(set(object_ids)) == len(object_ids) > len(written)


def test_the_key_column_carries_the_annotation_lance_uses_for_conflicts() -> None:
    field = encode([], ManifestFacts()).schema.field("object_id")

    assert not field.nullable
    assert field.metadata == {names.PRIMARY_KEY_KEY.encode(): b"true"}


def test_a_manifest_without_a_stamp_is_the_first_format() -> None:
    facts = facts_of(pa.schema([pa.field("object_id", pa.string())]))

    assert facts == ManifestFacts(stamp=1)
    assert facts.durability is Durability.COMMIT


def test_a_stamp_that_is_no_number_is_damage() -> None:
    with pytest.raises(DamagedGraphError, match="expected a number"):
        facts_of(pa.schema([], metadata={names.STAMP_KEY: "four"}))


@pytest.mark.parametrize(
    "change",
    [
        {"object_type": "surprise"},
        {"metadata": "{not json"},
        {"metadata": "[1]"},
        {"table_key": None},
        {"table_version": None},
    ],
)
def test_a_row_that_cannot_be_understood_is_damage_and_named(change: dict[str, object]) -> None:
    facts = ManifestFacts(stamp=names.STAMP_OF_DIGESTS - 1)  # a digest would find it first
    good = encode([TableVersion(table_key="node:A", version=1, row_count=0)], facts)
    record = {**good.to_pylist()[0], **change}

    with pytest.raises(DamagedGraphError, match="table_version:main:node:A:1"):
        decode(pa.Table.from_pylist([record], schema=good.schema))


@pytest.mark.parametrize("change", [{"row_count": 3}, {"table_branch": "b"}, {"table_version": 2}])
def test_a_row_that_is_not_what_was_written_is_damage(change: dict[str, object]) -> None:
    good = encode([TableVersion(table_key="node:A", version=1, row_count=2)], ManifestFacts())
    changed = pa.Table.from_pylist([{**good.to_pylist()[0], **change}], schema=good.schema)

    assert decode(good)
    with pytest.raises(DamagedGraphError, match="their digest is"):
        decode(changed)


@pytest.mark.parametrize("key", [names.DURABILITY_KEY, names.UNSYNCED_KEY, names.DIGEST_KEY])
def test_what_a_manifest_says_beside_its_rows_is_covered_by_its_digest(key: str) -> None:
    good = encode([], ManifestFacts(durability=Durability.OS, unsynced_boot="b"))
    metadata = {**good.schema.metadata}
    del metadata[key.encode()]

    with pytest.raises(DamagedGraphError, match="their digest is"):
        decode(good.replace_schema_metadata(metadata))
