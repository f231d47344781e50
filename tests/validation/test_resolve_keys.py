from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.runner.protocol import Runner
from omnigraph_lake.runner.shuffle import LocalScratch, Scratch
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.schema.arrow import edge_schema, node_schema
from omnigraph_lake.validation import keyed_findings
from omnigraph_lake.validation.constraints import WriteMode, table_rules
from omnigraph_lake.validation.hashed_keys import split_and_position
from omnigraph_lake.validation.keyed_checks import broken_rows
from omnigraph_lake.validation.keyed_passes import PassState
from omnigraph_lake.validation.keyed_write import HeldPiece, KeyedWrite
from omnigraph_lake.validation.pinned_access import Access
from omnigraph_lake.validation.resolve_keys import resolve_keys
from omnigraph_lake.validation.violations import KEPT_MAX
from tests.drawing import drawn
from tests.load.oracle import NODES, SCHEMA, TABLES, Case, Record, expect
from tests.load.random_loads import EMPTY, loads
from tests.runner.random_runner import RandomRunner
from tests.schema.compiling import compiled
from tests.validation.exchanges import prefer, share_ids, small_exchange
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


RUNNERS: dict[str, Callable[[int], Runner]] = {
    "threads": lambda _: ThreadRunner(parallel=3),
    "spilling": lambda _: ThreadRunner(parallel=1, held_bytes=10),
    "random": RandomRunner,
}


def pieces_of(case: Case, count: int) -> tuple[HeldPiece, ...]:
    """The records of a case in some pieces, cut anywhere."""
    bounds = [len(case.records) * number // count for number in range(count + 1)]
    pieces = []
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        rows: dict[str, list[dict[str, object]]] = {}
        for record in case.records[start:end]:
            rows.setdefault(record.table, []).append(record.row)
        tables = {
            key: pa.Table.from_pylist(content, schema=SCHEMAS[key]) for key, content in rows.items()
        }
        pieces.append(HeldPiece(number=number, tables=tables))
    return tuple(piece for piece in pieces if piece.tables)


def resolved(
    case: Case, *, pieces: int = 1, runner: Runner | None = None, scratch: Scratch | None = None
) -> PassState:
    with_rows = {record.table for record in case.records}
    overwritten = with_rows | case.named if case.mode == "overwrite" else set()
    content = {key: list(table.values()) for key, table in case.published.items()}
    write = KeyedWrite(
        pinned=published(CATALOG, content),
        rules=RULES,
        mode=WriteMode(case.mode),
        overwritten=frozenset(overwritten),
        order_by=case.order_by,
        ordered=frozenset(key for key in RULES if case.order_by in SCHEMAS[key].names),
        pieces=pieces_of(case, pieces),
    )
    return resolve_keys(runner or ThreadRunner(parallel=1), write, verb="test", scratch=scratch)


def refusals(case: Case, state: PassState, *, pieces: int = 1) -> dict[int, str]:
    """The reason of every refused record, by its position in the whole input."""
    bounds = [len(case.records) * number // pieces for number in range(pieces + 1)]
    positions: dict[tuple[int, str], list[int]] = {}
    for piece, (start, end) in enumerate(itertools.pairwise(bounds)):
        for number in range(start, end):
            positions.setdefault((piece, case.records[number].table), []).append(number)
    refused: dict[int, str] = {}
    for piece in range(pieces):
        of_piece = state.refused.in_piece(piece)
        for key, rows in of_piece.read().items():
            assert of_piece.count(key) == len(rows.rows)
            for _, position, verdict in zip(
                *split_and_position(rows.rows), rows.verdicts, strict=True
            ):
                number = positions[piece, key][position]
                assert number not in refused, "one reason per record"
                refused[number] = state.verdicts[verdict].reason.value
    assert sum(state.refused.counts().values()) == len(refused)
    return refused


WEIGHED = compiled("node W { name: String @key  weight: F64? }")
WEIGHTS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, -math.nan, None]


def test_the_later_of_equal_ordering_values_wins_and_nan_is_the_greatest() -> None:
    def rank(weight: float | None) -> tuple[bool, bool, float]:
        if weight is None:
            return False, False, 0.0
        return True, math.isnan(weight), 0.0 if math.isnan(weight) else weight

    for weights in itertools.permutations(WEIGHTS, 2):
        rows = [{"id": "w", "name": "w", "weight": weight} for weight in weights]
        table = pa.Table.from_pylist(rows, schema=node_schema(WEIGHED.nodes["W"]))
        write = KeyedWrite(
            pinned=published(WEIGHED, {"node:W": []}),
            rules=table_rules(WEIGHED),
            mode=WriteMode.MERGE,
            order_by="weight",
            ordered=frozenset({"node:W"}),
            pieces=(HeldPiece(tables={"node:W": table}),),
        )

        state = resolve_keys(ThreadRunner(), write, verb="test")

        (refused,) = state.refused.held["node:W"].rows.tolist()
        winner = max((rank(weight), row) for row, weight in enumerate(weights))[1]
        assert refused == 1 - winner, weights


@pytest.mark.random
@pytest.mark.parametrize("access", Access)
@pytest.mark.parametrize("kind", RUNNERS)
def test_fates_agree_with_plain_python_over_random_loads(
    kind: str, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(access, monkeypatch)
    small_exchange(monkeypatch)

    @drawn(3)
    @given(loads(), st.integers(1, 5), st.integers(0, 1000))
    def agree(case: Case, pieces: int, seed: int) -> None:
        expected = expect(case, completes=False)
        share_ids(shared=seed % 2 == 0, monkeypatch=monkeypatch)

        state = resolved(case, pieces=pieces, runner=RUNNERS[kind](seed))

        assert refusals(case, state, pieces=pieces) == expected.refused
        assert bool(state.broken) == expected.broken

    agree()


@pytest.mark.random
@pytest.mark.parametrize("kind", RUNNERS)
def test_fates_are_the_same_if_refused_rows_travel_by_files(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small_exchange(monkeypatch)
    scratch = LocalScratch(folder=str(tmp_path))

    @drawn(5)
    @given(loads(), st.integers(1, 5), st.integers(0, 1000), st.integers(0, 4))
    def agree(case: Case, pieces: int, seed: int, sent_max: int) -> None:
        monkeypatch.setattr(keyed_findings, "FINDINGS_SENT_MAX", sent_max)
        monkeypatch.setattr(keyed_findings, "KEYS_PER_BUCKET", 3)
        expected = expect(case, completes=False)

        state = resolved(case, pieces=pieces, runner=RUNNERS[kind](seed), scratch=scratch)

        assert refusals(case, state, pieces=pieces) == expected.refused
        assert bool(state.broken) == expected.broken

    agree()


def a(name: str, **more: object) -> Record:
    return Record(table="node:A", row={"id": name, "name": name, **more})


def r(name: str, src: str, dst: str, **more: object) -> Record:
    return Record(table="edge:R", row={"id": name, "src": src, "dst": dst, **more})


def test_a_row_that_is_refused_no_longer_replaces_the_published_one() -> None:
    here = {**EMPTY, "node:A": {"a": a("a", tag="t").row, "c": a("c", tag="u").row}}
    records = (a("b", tag="t"), a("a", tag="u"))
    case = Case(published=here, mode="merge", records=records)

    state = resolved(case)

    assert refusals(case, state) == {0: "not_unique", 1: "not_unique"}
    assert expect(case, completes=False).refused == {0: "not_unique", 1: "not_unique"}


def test_an_edge_that_leaves_a_source_short_fails_the_load_and_blames_no_record() -> None:
    here = {
        **EMPTY,
        "node:A": {"a": a("a").row, "b": a("b").row},
        "node:B": {"b1": {"id": "b1"}},
        "edge:R": {"e1": r("e1", "a", "b1").row},
    }
    case = Case(published=here, mode="merge", records=(r("e1", "b", "b1"),))

    state = resolved(case)

    assert refusals(case, state) == {}
    (broken,) = state.broken
    assert (broken.table_key, broken.reason.value) == ("edge:R", "too_few_edges")
    assert broken.broken.tolist() == [0], "the edge that the source lost"


def test_all_published_rows_that_would_break_are_counted_and_the_first_are_listed() -> None:
    linked = compiled("node W { name: String @key }\nedge E: W -> W")
    names_of_nodes = [f"w{number:03}" for number in range(300)]
    content = {
        "node:W": [{"id": name, "name": name} for name in names_of_nodes],
        "edge:E": [{"id": f"e-{name}", "src": name, "dst": name} for name in names_of_nodes],
    }
    pinned = published(linked, content)
    rules = table_rules(linked)
    write = KeyedWrite(
        pinned=pinned,
        rules=rules,
        mode=WriteMode.OVERWRITE,
        overwritten=frozenset({"node:W"}),
        pieces=(),
    )

    state = resolve_keys(ThreadRunner(), write, verb="test")

    assert {len(finding.broken) for finding in state.broken} == {KEPT_MAX}
    by_target, by_source = broken_rows(state, rules, pinned)
    assert (by_target.count, by_source.count) == (300, 300)
    assert [violation.id for violation in by_source.kept] == [
        f"e-{name}" for name in names_of_nodes[:KEPT_MAX]
    ]


def test_a_refused_edge_does_not_hide_that_its_source_lost_its_last_published_one() -> None:
    here = {
        **EMPTY,
        "node:A": {"a": a("a").row},
        "node:B": {"b1": {"id": "b1"}},
        "edge:T": {name: {"id": name, "src": "b1", "dst": "a"} for name in ("t1", "t2")},
    }
    records = (Record(table="edge:T", row={"id": "t3", "src": "b1", "dst": "a"}),)
    case = Case(published=here, mode="overwrite", records=records)

    state = resolved(case)

    assert refusals(case, state) == {0: "too_few_edges"}
    assert expect(case).broken
    assert [finding.reason.value for finding in state.broken] == ["too_few_edges"]


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

    state = resolved(case)

    assert messages(case, state, "node:A") == {
        0: "id: found 'a', which the graph has already, expected a new one",
        2: "id: found 'x', which an earlier row has too, expected a unique id",
        3: "tag: found 't', which another row has too, expected a unique value",
    }
    assert messages(case, state, "edge:R") == {
        0: "src: found 'nobody', expected the id of a A that exists",
        1: "dst: found 'b9', expected the id of a B that exists",
        4: "src: found too many edges of 'a', expected 1..2",
    }
    assert messages(case, state, "edge:T") == {0: "src: found too few edges of 'b1', expected 2.."}


def messages(case: Case, state: PassState, table_key: str) -> dict[int, str]:
    (piece,) = pieces_of(case, 1)
    refused = state.refused.held[table_key]
    texts = {}
    for row, number in zip(refused.rows.tolist(), refused.verdicts, strict=True):
        verdict = state.verdicts[number]
        values = [
            piece.tables[table_key].column(name)[row]
            for name in verdict.columns_quoted(RULES[table_key])
        ]
        texts[row] = verdict.message(RULES[table_key], values)
    return texts
