from __future__ import annotations

import itertools
import math

import pyarrow as pa
import pytest
from hypothesis import given

from omnigraph.load.spark.stage_task import rank_arrays
from omnigraph.schema.arrow import edge_schema, node_schema
from omnigraph.validation import lookups
from omnigraph.validation.constraints import WriteMode, table_rules
from omnigraph.validation.resolve_keys import KeyResolution, ProposedLoad, resolve_keys
from tests.drawing import drawn
from tests.load.oracle import NODES, SCHEMA, TABLES, Case, Record, expect
from tests.load.random_loads import EMPTY, loads
from tests.schema.compiling import compiled
from tests.validation.graphs import published

pytestmark = pytest.mark.unit

CATALOG = compiled(SCHEMA)
RULES = table_rules(CATALOG)
SCHEMAS = {
    table: node_schema(CATALOG.nodes[table[5:]])
    if table in NODES
    else edge_schema(CATALOG.edges[table[5:]])
    for table in TABLES
}


def settled(case: Case) -> KeyResolution:
    rows: dict[str, list[dict[str, object]]] = {}
    for record in case.records:
        rows.setdefault(record.table, []).append(record.row)
    overwritten = set(rows) | case.named if case.mode == "overwrite" else set()
    load = ProposedLoad(
        tables={
            key: pa.Table.from_pylist(content, schema=SCHEMAS[key]) for key, content in rows.items()
        },
        mode=WriteMode(case.mode),
        overwritten=frozenset(overwritten),
        order_by=case.order_by,
    )
    content = {key: list(table.values()) for key, table in case.published.items()}
    return resolve_keys(load, RULES, published(CATALOG, content))


def refusals(case: Case, found: KeyResolution) -> dict[int, str]:
    """The reason of every refused record, by its position in the whole input."""
    positions: dict[str, list[int]] = {}
    for number, record in enumerate(case.records):
        positions.setdefault(record.table, []).append(number)
    refused: dict[int, str] = {}
    for key, table in found.refused.items():
        for each in table.to_pylist():
            number = positions[key][each["row"]]
            assert number not in refused, "one reason per record"
            refused[number] = each["reason"]
    kept = {positions[key][row] for key, rows in found.kept.items() for row in rows.to_pylist()}
    assert kept | set(refused) == set(range(len(case.records)))
    assert not kept & set(refused)
    return refused


WEIGHED = compiled("node W { name: String @key  weight: F64? }")
WEIGHTS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, -math.nan, None]


def test_tasks_order_records_as_this_process_does() -> None:
    for weights in itertools.permutations(WEIGHTS, 2):
        rows = [{"id": "w", "name": "w", "weight": weight} for weight in weights]
        table = pa.Table.from_pylist(rows, schema=node_schema(WEIGHED.nodes["W"]))
        load = ProposedLoad(
            tables={"node:W": table},
            mode=WriteMode.MERGE,
            overwritten=frozenset(),
            order_by="weight",
        )
        pinned = published(WEIGHED, {"node:W": []})

        (winner,) = resolve_keys(load, table_rules(WEIGHED), pinned).kept["node:W"].to_pylist()

        present, ranks = rank_arrays(table, "weight")
        last = max((present[row], ranks[row], row) for row in range(2))
        assert winner == last[2], weights


@pytest.mark.random
@pytest.mark.parametrize("probe_values_max", [0, 2000], ids=["scans", "filters"])
def test_fates_agree_with_plain_python_over_random_loads(
    probe_values_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "PROBE_VALUES_MAX", probe_values_max)

    @drawn(3)
    @given(loads())
    def agree(case: Case) -> None:
        expected = expect(case)

        found = settled(case)

        assert refusals(case, found) == expected.refused
        assert bool(found.broken) == expected.broken

    agree()


def a(name: str, **more: object) -> Record:
    return Record(table="node:A", row={"id": name, "name": name, **more})


def r(name: str, src: str, dst: str, **more: object) -> Record:
    return Record(table="edge:R", row={"id": name, "src": src, "dst": dst, **more})


def test_a_row_that_is_refused_no_longer_replaces_the_published_one() -> None:
    here = {**EMPTY, "node:A": {"a": a("a", tag="t").row, "c": a("c", tag="u").row}}
    records = (a("b", tag="t"), a("a", tag="u"))
    case = Case(published=here, mode="merge", records=records)

    found = settled(case)

    assert refusals(case, found) == {0: "not_unique", 1: "not_unique"}
    assert expect(case).refused == {0: "not_unique", 1: "not_unique"}


def test_an_edge_that_leaves_a_source_short_fails_the_load_and_blames_no_record() -> None:
    here = {
        **EMPTY,
        "node:A": {"a": a("a").row, "b": a("b").row},
        "node:B": {"b1": {"id": "b1"}},
        "edge:R": {"e1": r("e1", "a", "b1").row},
    }
    case = Case(published=here, mode="merge", records=(r("e1", "b", "b1"),))

    found = settled(case)

    assert refusals(case, found) == {}
    (broken,) = found.broken
    assert (broken.table_key, broken.reason.value, broken.count) == ("edge:R", "too_few_edges", 1)


def test_messages_say_what_the_row_holds_and_what_the_rule_wants() -> None:
    here = {**EMPTY, "node:A": {"a": a("a", tag="t").row}, "node:B": {"b1": {"id": "b1"}}}
    records = (
        a("a"),
        a("x"),
        a("x"),
        a("y", tag="t"),
        r("e1", "nobody", "b9"),
        r("e2", "a", "b9"),
        r("e3", "a", "b1"),
        r("e4", "a", "b1"),
        r("e5", "a", "b1"),
        Record(table="edge:T", row={"id": "t1", "src": "b1", "dst": "a"}),
    )
    case = Case(published=here, mode="append", records=records)

    found = settled(case)

    nodes = {each["row"]: each["message"] for each in found.refused["node:A"].to_pylist()}
    assert nodes == {
        0: "id: found 'a', which the graph has already, expected a new one",
        2: "id: found 'x', which an earlier record of the input has too",
        3: "tag: found 't', which another row has too, expected a unique value",
    }
    edges = {each["row"]: each["message"] for each in found.refused["edge:R"].to_pylist()}
    assert edges == {
        0: "src: found 'nobody', expected the id of a A that exists after the write",
        1: "dst: found 'b9', expected the id of a B that exists after the write",
        4: "src: found too many edges of 'a', expected 1..2",
    }
    (short,) = found.refused["edge:T"].to_pylist()
    assert short["message"] == "src: found too few edges of 'b1', expected 2.."
