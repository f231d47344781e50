"""Random small loads over the oracle's schema, with published content that keeps every rule."""

from __future__ import annotations

from hypothesis import strategies as st

from omnigraph_lake import Mode
from tests.load.oracle import ENDS, TABLES, Case, Record, Row, Table, expect

EMPTY: dict[str, Table] = {table: {} for table in TABLES}

A_IDS = ("a", "é", "it's", "d")
B_IDS = ("b1", "b2", "b3")
GROUND = (
    *(Record(table="node:A", row={"id": name, "name": name}) for name in A_IDS),
    *(Record(table="node:B", row={"id": name}) for name in B_IDS),
)
"""Every node, so that edges have a place to go; without them hardly an edge survives."""

a_ids = st.sampled_from(A_IDS)
b_ids = st.sampled_from(B_IDS)
edge_ids = st.sampled_from([f"e{number}" for number in range(1, 13)])
moments = st.sampled_from([None, -1, 0, 1, 2])


@st.composite
def a_rows(draw: st.DrawFn) -> Row:
    name = draw(a_ids)
    tag = draw(st.sampled_from([None, "t", "u"]))
    return {"id": name, "name": name, "tag": tag, "at": draw(moments)}


@st.composite
def b_rows(draw: st.DrawFn) -> Row:
    return {
        "id": draw(b_ids),
        "x": draw(st.sampled_from([None, 0.0, -0.0, 1.5])),
        "y": draw(st.sampled_from([None, 1, 2])),
        "z": draw(st.sampled_from([None, None, "p", "q"])),
    }


@st.composite
def edge_rows(draw: st.DrawFn, table: str) -> Row:
    source, target = (a_ids if node == "node:A" else b_ids for node in ENDS[table])
    row: Row = {"id": draw(edge_ids), "src": draw(source), "dst": draw(target)}
    if table != "edge:R":
        return row
    return {**row, "w": draw(st.sampled_from([None, 7, 2**64 - 1])), "at": draw(moments)}


def rows_of(table: str) -> st.SearchStrategy[Row]:
    kinds = {"node:A": a_rows(), "node:B": b_rows()}
    return kinds[table] if table in kinds else edge_rows(table)


@st.composite
def good_records(draw: st.DrawFn) -> Record:
    table = draw(st.sampled_from((*TABLES, "edge:R", "edge:R")))
    return Record(table=table, row=draw(rows_of(table)))


@st.composite
def published_graphs(draw: st.DrawFn) -> dict[str, Table]:
    """Whatever survives a load into an empty graph."""
    ground = GROUND if draw(st.booleans()) else ()
    records = (*ground, *draw(st.lists(good_records(), max_size=12)))
    return expect(Case(published=EMPTY, mode="append", records=records)).graph


@st.composite
def loads(
    draw: st.DrawFn, records: st.SearchStrategy[Record] | None = None, records_max: int = 30
) -> Case:
    modes: list[Mode] = ["append", "merge", "replace", "overwrite"]
    mode = draw(st.sampled_from(modes))
    few = draw(st.sampled_from([0, 0, 15]))
    drawn = st.lists(good_records() if records is None else records, min_size=few)
    ground = GROUND if draw(st.integers(0, 2)) == 0 else ()
    return Case(
        published=draw(published_graphs()),
        mode=mode,
        records=(*ground, *draw(drawn))[:records_max],
        order_by=draw(st.sampled_from([None, "at"])) if mode in {"merge", "replace"} else None,
    )
