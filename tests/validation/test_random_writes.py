from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.load.write import ValidatedWrite, validate
from omnigraph_lake.validation import lookups, pinned_access
from omnigraph_lake.validation.constraints import WriteMode
from tests.drawing import drawn
from tests.schema.compiling import compiled
from tests.validation.graphs import MemoryTables, counting_ids, published
from tests.validation.oracle import ENDS, NODES, OPTIONAL, SCHEMA, Case, Row, Table, expect

pytestmark = pytest.mark.random

CATALOG = compiled(SCHEMA)

a_ids = st.sampled_from(["a", "é", "it's", "d"])
b_ids = st.sampled_from(["b1", "b2", "b3"])
edge_ids = st.sampled_from(["e1", "e2", "e3", "e4", "e5"])
floats = st.sampled_from([None, 0.0, -0.0, math.nan, 1.5])


@st.composite
def a_rows(draw: st.DrawFn) -> Row:
    name = draw(a_ids)
    return {"id": name, "name": name, "tag": draw(st.sampled_from([None, "t", "u"]))}


@st.composite
def b_rows(draw: st.DrawFn) -> Row:
    return {"id": draw(b_ids), "x": draw(floats), "y": draw(st.sampled_from([None, 1, 2]))}


@st.composite
def edge_rows(draw: st.DrawFn, key: str) -> Row:
    source, target = (a_ids if node == "node:A" else b_ids for node in ENDS[key])
    row: Row = {"id": draw(edge_ids), "src": draw(source), "dst": draw(target)}
    return {**row, "w": draw(st.sampled_from([None, 7, 2**64 - 1]))} if key == "edge:R" else row


def rows_of(key: str) -> st.SearchStrategy[list[Row]]:
    kinds = {"node:A": a_rows(), "node:B": b_rows()}
    return st.lists(kinds[key] if key in kinds else edge_rows(key), max_size=5)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pinned: dict[str, Table] = {}
    for key in (*NODES, *ENDS):
        rows = {row["id"]: row for row in draw(rows_of(key))}
        pinned[key] = {name: row for name, row in rows.items() if _stands(key, row, pinned)}
    case = Case(
        pinned=pinned,
        mode=draw(st.sampled_from(WriteMode)),
        rows={key: draw(rows_of(key)) for key in (*NODES, *ENDS) if draw(st.booleans())},
        deleted={
            key: draw(st.lists(_ids_of(key), max_size=2))
            for key in (*NODES, *ENDS)
            if draw(st.integers(0, 2)) == 0
        },
    )
    if case.mode is not WriteMode.MERGE:
        return case
    partial_rows = {
        key: [draw(records(key, row, case)) for row in key_rows]
        for key, key_rows in case.rows.items()
    }
    return replace(case, rows=partial_rows)


@st.composite
def records(draw: st.DrawFn, key: str, row: Row, case: Case) -> Row:
    """A row of a merge without some of what its published row has, or of what may be missing."""
    kept = row["id"] in case.pinned[key] and row["id"] not in case.deleted.get(key, [])
    omissible = row.keys() - {"id"} if kept else set(OPTIONAL.get(key, ()))
    omitted = draw(st.sets(st.sampled_from(sorted(omissible)))) if omissible else set()
    return {name: value for name, value in row.items() if name not in omitted}


def _stands(key: str, row: Row, pinned: dict[str, Table]) -> bool:
    """A published edge has both its nodes."""
    return key in NODES or all(
        row[column] in pinned[node] for column, node in zip(("src", "dst"), ENDS[key], strict=True)
    )


def _ids_of(key: str) -> st.SearchStrategy[str]:
    return {"node:A": a_ids, "node:B": b_ids}.get(key, edge_ids)


@pytest.mark.parametrize("probe_values_max", [0, 2000], ids=["scans", "filters"])
def test_checks_agree_with_plain_python_over_random_writes(
    probe_values_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "PROBE_VALUES_MAX", probe_values_max)
    monkeypatch.setattr(pinned_access, "ROWS_PER_PROBE", 0)

    @drawn(6)
    @given(cases())
    def agree(case: Case) -> None:
        tables = published(CATALOG, {key: list(rows.values()) for key, rows in case.pinned.items()})
        expected = expect(case)

        write = validated(case, tables)

        found = Counter(
            (violation.table_key, violation.reason.value, violation.row)
            for violation in write.report.kept
        )
        assert found == expected.found
        assert write.report.total == expected.found.total()
        if write.report.ok:
            assert spelt(applied(case, write)) == spelt(expected.result)

    agree()


def validated(case: Case, tables: MemoryTables) -> ValidatedWrite:
    inputs: dict[str, Any] = dict(case.rows)
    return validate(
        inputs,
        mode=case.mode,
        catalog=CATALOG,
        pinned=tables,
        new_id=counting_ids(),
        deleted=case.deleted,
    )


def applied(case: Case, write: ValidatedWrite) -> dict[str, Table]:
    """The graph after a commit that does what a validated write says."""
    result = {}
    for key in (*NODES, *ENDS):
        replaced = case.mode is WriteMode.OVERWRITE and key in write.tables
        gone = set(write.deletions.get(key, pa.array([], pa.string())).to_pylist())
        rows = {} if replaced else case.pinned[key]
        kept = {name: row for name, row in rows.items() if name not in gone}
        new = write.tables[key].to_pylist() if key in write.tables else []
        if case.mode is WriteMode.APPEND:
            assert not {row["id"] for row in new} & set(kept)
        result[key] = {**kept, **{row["id"]: row for row in new}}
    return result


def spelt(graph: dict[str, Table]) -> str:
    """NaN is not equal to itself, but its text is."""
    return repr(
        {
            key: sorted((name, sorted(row.items())) for name, row in rows.items())
            for key, rows in graph.items()
        }
    )
