from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.errors import DamagedGraphError, InvalidInputError
from omnigraph_lake.merge.conflicts import (
    CONFLICT_SCHEMA,
    MergeCounts,
    MergePolicy,
    parse_resolution,
)
from omnigraph_lake.merge.three_way import MergeStep, TableToMerge, merge_changes
from omnigraph_lake.schema.arrow import edge_schema, node_schema
from tests.drawing import drawn
from tests.merge.oracle import (
    Graph,
    Row,
    Rules,
    Table,
    as_json,
    changed_columns,
    merge_graphs,
    op_of,
    spelt,
)
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

CATALOG = compiled(
    """
    node P { a: I32?  b: String?  c: F64?  d: [F64]?  v: Vector(2)?  raw: Blob? }
    edge E: P -> P { w: F32? }
    """
)
SCHEMAS = {
    "node:P": node_schema(CATALOG.nodes["P"]),
    "edge:E": edge_schema(CATALOG.edges["E"]),
}


def person(name: str, **values: Any) -> Row:
    return {"id": name, **dict.fromkeys(["a", "b", "c", "d", "v", "raw"]), **values}


def changes_schema(schema: pa.Schema) -> pa.Schema:
    row = pa.struct(list(schema))
    return pa.schema(
        [
            ("op", pa.string()),
            ("id", pa.string()),
            ("changed", pa.list_(pa.string())),
            ("before", row),
            ("after", row),
        ]
    )


def changes(
    before: Table, after: Table, schema: pa.Schema, *, batch_rows: int = 1000
) -> Iterator[pa.RecordBatch]:
    """The diff of two tables, in the shape that a merge reads."""
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        op = op_of(old, new)
        if op is not None:
            changed = changed_columns(old, new) if old is not None and new is not None else None
            found.append({"op": op, "id": name, "changed": changed, "before": old, "after": new})
    for start in range(0, len(found), batch_rows):
        yield pa.RecordBatch.from_pylist(
            found[start : start + batch_rows], schema=changes_schema(schema)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All steps of a merge, put together."""

    upserts: list[Row]
    deletes: list[str]
    conflicts: list[dict[str, Any]]
    counts: MergeCounts


def outcome(steps: Iterable[MergeStep]) -> Outcome:
    done = list(steps)
    for step in done:
        assert step.conflicts.schema.equals(CONFLICT_SCHEMA)
    return Outcome(
        upserts=[row for step in done for row in step.upserts.to_pylist()],
        deletes=[row["id"] for step in done for row in step.deletes.to_pylist()],
        conflicts=[row for step in done for row in step.conflicts.to_pylist()],
        counts=sum((step.counts for step in done), MergeCounts()),
    )


def table_of(key: str, rules: Rules) -> TableToMerge:
    policy = MergePolicy(
        resolution=parse_resolution(rules.resolution, CATALOG),
        column_level=rules.column_level,
        source_is_newer=rules.source_is_newer,
    )
    return TableToMerge(table_key=key, schema=SCHEMAS[key], policy=policy)


def merged(
    base: Table,
    source: Table,
    target: Table,
    rules: Rules | None = None,
    *,
    key: str = "node:P",
    batch_rows: tuple[int, int] = (1000, 1000),
) -> Outcome:
    schema = SCHEMAS[key]
    return outcome(
        merge_changes(
            changes(base, source, schema, batch_rows=batch_rows[0]),
            changes(base, target, schema, batch_rows=batch_rows[1]),
            table_of(key, rules or Rules()),
        )
    )


def one(row: Row | None) -> Table:
    return {} if row is None else {row["id"]: row}


OLD = person("p", a=1, b="x")
A2, A3, B2 = ({**OLD, "a": 2}, {**OLD, "a": 3}, {**OLD, "b": "y"})
A2B2 = {**OLD, "a": 2, "b": "y"}

UPDATED = MergeCounts(updated=1)
KEPT = MergeCounts(kept=1)
AGREED = MergeCounts(agreed=1)


@pytest.mark.parametrize(
    ("base", "source", "target", "upserts", "deletes", "counts"),
    [
        pytest.param(OLD, OLD, OLD, [], [], MergeCounts(), id="nobody changed it"),
        pytest.param(OLD, OLD, A2, [], [], KEPT, id="target updated"),
        pytest.param(OLD, OLD, None, [], [], KEPT, id="target deleted"),
        pytest.param(None, None, A2, [], [], KEPT, id="target inserted"),
        pytest.param(OLD, A2, OLD, [A2], [], UPDATED, id="source updated"),
        pytest.param(OLD, None, OLD, [], ["p"], MergeCounts(deleted=1), id="source deleted"),
        pytest.param(None, A2, None, [A2], [], MergeCounts(inserted=1), id="source inserted"),
        pytest.param(OLD, A2, A2, [], [], AGREED, id="both updated alike"),
        pytest.param(OLD, None, None, [], [], AGREED, id="both deleted"),
        pytest.param(None, A2, A2, [], [], AGREED, id="both inserted alike"),
        pytest.param(OLD, A2, A2B2, [], [], AGREED, id="target has the change and more"),
        pytest.param(OLD, A2B2, A2, [A2B2], [], UPDATED, id="source has the change and more"),
        pytest.param(
            OLD, A2, B2, [A2B2], [], MergeCounts(updated=1, combined=1), id="other columns"
        ),
    ],
)
def test_without_a_conflict_the_target_gets_what_it_lacks(
    base: Row | None,
    source: Row | None,
    target: Row | None,
    upserts: list[Row],
    deletes: list[str],
    counts: MergeCounts,
) -> None:
    found = merged(one(base), one(source), one(target))

    assert found == Outcome(upserts=upserts, deletes=deletes, conflicts=[], counts=counts)


def conflict(kind: str, column: str | None, *texts: object, side: str | None = None) -> Row:
    """A conflict of p; a text is JSON already, a row or a value becomes JSON, None is absent."""
    base, ours, theirs = (
        each if each is None or isinstance(each, str) else as_json(each) for each in texts
    )
    return {
        "type": "node:P",
        "id": "p",
        "column": column,
        "base": base,
        "ours": ours,
        "theirs": theirs,
        "kind": kind,
        "resolution": side,
    }


INSERT, UPDATE, DELETE = "divergent_insert", "divergent_update", "delete_vs_update"


@pytest.mark.parametrize(
    ("base", "source", "target", "column_level", "conflicts"),
    [
        pytest.param(OLD, A3, A2, True, [conflict(UPDATE, "a", 1, 2, 3)], id="same column"),
        pytest.param(OLD, A3, A2, False, [conflict(UPDATE, None, OLD, A2, A3)], id="same row"),
        pytest.param(OLD, A2, B2, False, [conflict(UPDATE, None, OLD, B2, A2)], id="other columns"),
        pytest.param(
            OLD, {**OLD, "a": None}, A2, True, [conflict(UPDATE, "a", 1, 2, "null")], id="to null"
        ),
        pytest.param(
            None,
            A3,
            A2B2,
            True,
            [conflict(INSERT, "a", None, 2, 3), conflict(INSERT, "b", None, '"y"', '"x"')],
            id="inserts, by column",
        ),
        pytest.param(
            None, A3, A2, False, [conflict(INSERT, None, None, A2, A3)], id="inserts, by row"
        ),
        *(
            pytest.param(OLD, *sides, level, [conflict(DELETE, None, OLD, *texts)], id=name)
            for level in (True, False)
            for sides, texts, name in (
                ((None, A2), (A2, None), "source deleted, target updated"),
                ((A2, None), (None, A2), "source updated, target deleted"),
            )
        ),
    ],
)
def test_an_open_conflict_names_the_place_and_writes_nothing(
    base: Row | None,
    source: Row | None,
    target: Row | None,
    column_level: bool,
    conflicts: list[Row],
) -> None:
    found = merged(one(base), one(source), one(target), Rules(column_level=column_level))

    assert found == Outcome(
        upserts=[], deletes=[], conflicts=conflicts, counts=MergeCounts(open=len(conflicts))
    )


@pytest.mark.parametrize("column_level", [True, False])
def test_rows_changed_alike_never_conflict(column_level: bool) -> None:
    row = person("p", c=math.nan, d=[1.0, math.nan, None], v=[math.nan, 1.0], raw=b"\0", b="")
    other_bits = {**row, "c": -math.nan, "d": [1.0, -math.nan, None], "v": [-math.nan, 1.0]}

    for base in (None, OLD):
        found = merged(one(base), one(row), one(other_bits), Rules(column_level=column_level))
        assert found == Outcome(upserts=[], deletes=[], conflicts=[], counts=AGREED)


@pytest.mark.parametrize(
    ("column", "theirs", "ours"),
    [
        ("b", "", None),
        ("c", 0.0, -0.0),
        ("c", math.nan, None),
        ("d", [], None),
        ("d", [1.0], [1.0, None]),
        ("d", [math.nan, 1.0], [math.nan, 2.0]),
        ("d", [None], [math.nan]),
        ("v", [1.0, 2.0], [2.0, 1.0]),
        ("v", [1.0, 2.0], None),
        ("raw", b"ab", b"ba"),
        ("raw", b"", None),
    ],
)
@pytest.mark.parametrize("column_level", [True, False])
def test_values_that_only_look_alike_conflict(
    column: str, theirs: object, ours: object, column_level: bool
) -> None:
    base = person("p", b="0", c=9.0, d=[9.0], v=[9.0, 9.0], raw=b"9")

    found = merged(
        one(base),
        one({**base, column: theirs}),
        one({**base, column: ours}),
        Rules(column_level=column_level),
    )

    assert found.counts == MergeCounts(open=1)


Decision = tuple[list[Row], list[str], list[Row], MergeCounts]
RESOLVED = MergeCounts(resolved=1)


@pytest.mark.parametrize(
    ("source", "target", "side", "expected"),
    [
        (A3, A2, "ours", ([], [], [conflict(UPDATE, "a", 1, 2, 3, side="ours")], RESOLVED)),
        (
            A3,
            A2,
            "theirs",
            ([A3], [], [conflict(UPDATE, "a", 1, 2, 3, side="theirs")], UPDATED + RESOLVED),
        ),
        (
            None,
            A2,
            "ours",
            ([], [], [conflict(DELETE, None, OLD, A2, None, side="ours")], RESOLVED),
        ),
        (
            None,
            A2,
            "theirs",
            (
                [],
                ["p"],
                [conflict(DELETE, None, OLD, A2, None, side="theirs")],
                MergeCounts(deleted=1, resolved=1),
            ),
        ),
        (
            A2,
            None,
            "ours",
            ([], [], [conflict(DELETE, None, OLD, None, A2, side="ours")], RESOLVED),
        ),
        (
            A2,
            None,
            "theirs",
            (
                [A2],
                [],
                [conflict(DELETE, None, OLD, None, A2, side="theirs")],
                MergeCounts(inserted=1, resolved=1),
            ),
        ),
    ],
)
@pytest.mark.parametrize("newest", [False, True])
def test_a_resolved_conflict_is_applied_and_told(
    source: Row | None, target: Row | None, side: str, expected: Decision, newest: bool
) -> None:
    rules = (
        Rules(resolution="newest", source_is_newer=side == "theirs")
        if newest
        else Rules(resolution=side, source_is_newer=side == "ours")
    )

    found = merged(one(OLD), one(source), one(target), rules)

    upserts, deletes, conflicts, counts = expected
    assert found == Outcome(upserts=upserts, deletes=deletes, conflicts=conflicts, counts=counts)


def test_columns_of_one_row_are_decided_one_by_one() -> None:
    source, target = {**OLD, "a": 3, "b": "s", "c": 1.0}, {**OLD, "a": 2, "b": "t", "d": [1.0]}
    rules = Rules(resolution={"default": "ours", "types": {"P": {"columns": {"a": "theirs"}}}})

    found = merged(one(OLD), one(source), one(target), rules)

    assert found.upserts == [{**OLD, "a": 3, "b": "t", "c": 1.0, "d": [1.0]}]
    assert [(each["column"], each["resolution"]) for each in found.conflicts] == [
        ("a", "theirs"),
        ("b", "ours"),
    ]
    assert found.counts == MergeCounts(updated=1, combined=1, resolved=2)


def test_a_row_made_of_decisions_for_both_sides_is_combined() -> None:
    source, target = {**OLD, "a": 3, "b": "s"}, {**OLD, "a": 2, "b": "t"}
    words = {"default": "ours", "columns": {"a": "theirs"}}

    for base in (None, OLD):
        found = merged(
            one(base), one(source), one(target), Rules(resolution={"types": {"P": words}})
        )
        assert found.upserts == [{**OLD, "a": 3, "b": "t"}]
        assert found.counts == MergeCounts(updated=1, combined=1, resolved=2)


def test_a_row_with_an_open_conflict_is_not_written_in_part() -> None:
    source, target = {**OLD, "a": 3, "b": "s", "c": 1.0}, {**OLD, "a": 2, "b": "t"}
    rules = Rules(resolution={"types": {"P": {"columns": {"a": "theirs"}}}})

    found = merged(one(OLD), one(source), one(target), rules)

    assert found.upserts == []
    assert [each["resolution"] for each in found.conflicts] == ["theirs", None]
    assert found.counts == MergeCounts(open=1, resolved=1)


def test_ends_of_an_edge_are_columns_like_others() -> None:
    edge = {"id": "e", "src": "p", "dst": "q", "w": None}
    base, source = one(edge), one({**edge, "src": "r"})

    found = merged(base, source, one({**edge, "dst": "s"}), key="edge:E")
    clash = merged(base, source, one({**edge, "src": "s"}), key="edge:E")

    assert found.upserts == [{**edge, "src": "r", "dst": "s"}]
    assert [(each["type"], each["column"]) for each in clash.conflicts] == [("edge:E", "src")]


def test_ids_ascend_by_their_bytes_through_all_outputs() -> None:
    names = ["", "Z", "a", "a\0", "é", "\ud7ff", "\ufffd", "\U0001f600"]
    base = {name: person(name, a=1) for name in names}
    source = {name: person(name, a=2) for name in names}
    target = {name: person(name, b="t") if i % 2 else base[name] for i, name in enumerate(names)}

    found = merged(base, source, target, Rules(resolution="theirs"), batch_rows=(3, 2))

    assert [row["id"] for row in found.upserts] == names
    assert found.counts.updated == len(names)


DIFF = changes_schema(SCHEMAS["node:P"])


def batch(*rows: Row, schema: pa.Schema = DIFF) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def inserted(name: str | None) -> Row:
    return {"op": "insert", "id": name, "changed": None, "before": None, "after": person("p")}


@pytest.mark.parametrize(
    "batches",
    [
        [batch(inserted("b"), inserted("a"))],
        [batch(inserted("a"), inserted("a"))],
        [batch(inserted("a")), batch(), batch(inserted("a"))],
        [batch(inserted("b")), batch(inserted("a"))],
        [batch(inserted("a"), inserted(None))],
        [batch(inserted(None))],
    ],
    ids=["unsorted", "twice", "twice in two batches", "unsorted batches", "no id last", "no id"],
)
@pytest.mark.parametrize("is_source", [True, False])
def test_a_stream_that_could_lose_rows_is_refused(
    batches: list[pa.RecordBatch], is_source: bool
) -> None:
    streams = (batches, []) if is_source else ([], batches)

    with pytest.raises(DamagedGraphError, match="names an id twice, out of order or not at all"):
        outcome(merge_changes(*streams, table_of("node:P", Rules())))


def test_streams_with_different_bases_are_refused() -> None:
    schema = SCHEMAS["node:P"]
    source, target = changes({}, one(A2), schema), changes(one(OLD), one(A3), schema)

    with pytest.raises(DamagedGraphError, match="finds in the base"):
        outcome(merge_changes(source, target, table_of("node:P", Rules())))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("id", pa.string()), ("x", pa.int8())], "node:P.x is int8 .* expected no such column"),
        ([("id", pa.string()), ("a", pa.int64())], "node:P.a is int64 .* expected int32"),
        ([("a", pa.int32())], "node:P.id is None .* expected string"),
    ],
)
def test_columns_that_the_target_cannot_hold_are_refused(
    fields: list[tuple[str, pa.DataType]], message: str
) -> None:
    odd = batch(schema=changes_schema(pa.schema(fields)))

    with pytest.raises(InvalidInputError, match=message):
        outcome(merge_changes([odd], [], table_of("node:P", Rules())))


def test_a_column_that_the_source_lacks_is_null_there_and_unchanged() -> None:
    fewer = pa.schema([each for each in SCHEMAS["node:P"] if each.name != "b"])
    base = {name: person(name, a=1) for name in ("p", "q")}
    source = {name: person(name, a=2) for name in ("p", "q")}
    target = {**base, "q": person("q", a=1, b="new")}
    theirs = changes(_without_b(base), _without_b(source), fewer)

    found = outcome(
        merge_changes(theirs, changes(base, target, SCHEMAS["node:P"]), table_of("node:P", Rules()))
    )

    assert found.upserts == [person("p", a=2), person("q", a=2, b="new")]
    assert found.conflicts == []


def _without_b(table: Table) -> Table:
    return {key: {n: value for n, value in row.items() if n != "b"} for key, row in table.items()}


values = {
    "a": st.sampled_from([None, 0, 1]),
    "b": st.sampled_from([None, "", "é"]),
    "c": st.sampled_from([None, 0.0, -0.0, math.nan, -math.nan]),
    "d": st.sampled_from([None, [], [None], [math.nan], [-math.nan], [0.0, 1.0]]),
    "v": st.sampled_from([None, [0.0, 1.0], [math.nan, 1.0]]),
    "raw": st.sampled_from([None, b"", b"\xff"]),
}
words = st.sampled_from(["ours", "theirs", "newest"])
EDGE_VALUES = {
    "src": st.sampled_from(["p", "q"]),
    "dst": st.sampled_from(["p", "q"]),
    "w": st.sampled_from([None, 0.0, -0.0, math.nan, 0.5]),
}
COLUMNS: dict[str, dict[str, st.SearchStrategy[Any]]] = {"node:P": values, "edge:E": EDGE_VALUES}


@st.composite
def edited(draw: st.DrawFn, key: str, base: Table) -> dict[str, Row]:
    """A table after some rows of it were deleted, changed or replaced, and others added."""
    found: dict[str, Row] = {}
    for name in ("", "A", "a", "é", "\U0001f600", "z"):
        fresh = {column: draw(each) for column, each in COLUMNS[key].items()}
        match draw(st.sampled_from(["keep", "keep", "edit", "edit", "replace", "drop"])):
            case "keep" if name in base:
                found[name] = base[name]
            case "edit" if name in base:
                chosen = draw(st.sets(st.sampled_from(sorted(fresh)), max_size=2))
                found[name] = {**base[name], **{column: fresh[column] for column in chosen}}
            case "replace":
                found[name] = {"id": name, **fresh}
            case _:
                pass
    return found


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, Graph, Graph]:
    empty: Graph = {key: {} for key in COLUMNS}
    base = {key: draw(edited(key, empty[key])) for key in COLUMNS}
    source, target = ({key: draw(edited(key, base[key])) for key in COLUMNS} for _ in range(2))
    return base, source, target


@st.composite
def rulings(draw: st.DrawFn) -> Rules:
    def of(key: str) -> dict[str, Any]:
        columns = draw(st.dictionaries(st.sampled_from(sorted(COLUMNS[key])), words, max_size=3))
        return {**maybe_default(), "columns": columns}

    def maybe_default() -> dict[str, str]:
        return {"default": draw(words)} if draw(st.booleans()) else {}

    named = draw(st.sets(st.sampled_from(sorted(COLUMNS))))
    file = {**maybe_default(), "types": {key.split(":")[1]: of(key) for key in sorted(named)}}
    return Rules(
        resolution=draw(st.one_of(st.none(), words, st.just(file))),
        column_level=draw(st.integers(0, 3)) > 0,
        source_is_newer=draw(st.booleans()),
    )


@pytest.mark.random
@drawn(12)
@given(graphs(), rulings(), st.tuples(st.integers(1, 7), st.integers(1, 7)))
def test_merges_agree_with_plain_python(
    versions: tuple[Graph, Graph, Graph], rules: Rules, batch_rows: tuple[int, int]
) -> None:
    expected = merge_graphs(*versions, rules)

    for key in COLUMNS:
        base, source, target = (graph[key] for graph in versions)
        found = merged(base, source, target, rules, key=key, batch_rows=batch_rows)

        assert spelt(applied(found, target)) == spelt(expected.graph[key])
        assert found.conflicts == [asdict(each) for each in expected.conflicts if each.type == key]
        effect = found.counts
        assert effect.inserted + effect.updated == len(found.upserts)
        assert effect.deleted == len(found.deletes)
        assert effect.open + effect.resolved == len(found.conflicts)
        assert effect.inserted - effect.deleted == len(expected.graph[key]) - len(target)
        assert effect.kept == sum(
            op_of(base.get(name), source.get(name)) is None
            and op_of(base.get(name), target.get(name)) is not None
            for name in {*base, *target}
        )


def applied(found: Outcome, target: Table) -> Table:
    """The target after a write of the outcome, which does nothing in vain."""
    result = dict(target)
    for name in found.deletes:
        del result[name]
    for row in found.upserts:
        assert spelt(result.get(row["id"])) != spelt(row)
        result[row["id"]] = row
    touched = [*found.deletes, *(row["id"] for row in found.upserts)]
    assert len(set(touched)) == len(touched)
    return result


BATCH_ROWS = 2_000
WIDE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("v", pa.list_(pa.float32(), 32)),
    ]
)


def many(rows: int, *, op: str, add: int, pulled: list[int]) -> Iterator[pa.RecordBatch]:
    """Changes of rows in order, made one batch at a time; `pulled` counts them."""
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        ids = pa.array([f"{each:08}" for each in range(start, start + count)])

        def image(n: int, ids: pa.Array = ids, count: int = count) -> pa.StructArray:
            vectors = pa.FixedSizeListArray.from_arrays(pa.nulls(count * 32, pa.float32()), 32)
            numbers = pa.array([n] * count, pa.int64())
            return pa.StructArray.from_arrays([ids, numbers, vectors], fields=list(WIDE))

        absent = pa.nulls(count, pa.struct(list(WIDE)))
        pulled.append(count)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([op] * count),
                ids,
                pa.array([["n"] if op == "update" else None] * count, pa.list_(pa.string())),
                absent if op == "insert" else image(0),
                absent if op == "delete" else image(add),
            ],
            schema=changes_schema(WIDE),
        )


@pytest.mark.parametrize(
    ("op", "both"), [("insert", False), ("update", False), ("delete", False), ("update", True)]
)
def test_memory_follows_the_batch_and_not_the_number_of_changes(op: str, both: bool) -> None:
    rows = 20_000 if both else 200_000
    pulled: list[int] = []
    table = TableToMerge(
        table_key="node:W",
        schema=WIDE,
        policy=MergePolicy(source_is_newer=False),
    )
    source = many(rows, op=op, add=1, pulled=pulled)
    target = many(rows, op=op, add=2, pulled=[]) if both else iter(())
    start = pa.total_allocated_bytes()
    counts, peak, seen = MergeCounts(), 0, 0

    for step in merge_changes(source, target, table):
        counts += step.counts
        seen += BATCH_ROWS
        peak = max(peak, pa.total_allocated_bytes() - start)
        assert sum(pulled) - seen <= BATCH_ROWS, "read ahead"

    expected = {"insert": "inserted", "update": "updated", "delete": "deleted"}[op]
    assert counts == MergeCounts(**{"open" if both else expected: rows})
    assert peak < 8 << 20, f"{peak:,} bytes for batches of {BATCH_ROWS} rows"
