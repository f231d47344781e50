from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from typing import Any

import networkx as nx
import pyarrow as pa
import pytest

from omnigraph_lake.engine import query_result
from omnigraph_lake.engine.query_result import QueryResult
from omnigraph_lake.errors import InvalidInputError, QueryCancelledError, QueryFailedError
from omnigraph_lake.query.columns import arrow_schema
from omnigraph_lake.query.compile import compile_queries
from tests.query.people import CATALOG

pytestmark = pytest.mark.unit

NUMBERS = "query numbers() { match { $p: Person } return { $p.name, $p.age } }"
ENTITIES = """
query entities() {
    match { $p: Person  optional { $p $e: knows $q } }
    return { $p, $e, $q.name }
}
"""


class GivenAnswer:
    """An answer whose batches are known; the last one may be an error."""

    def __init__(self, schema: pa.Schema, batches: list[pa.RecordBatch | Exception]) -> None:
        self.schema = schema
        self.pulled = 0
        self.cancelled = False
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        for each in self._batches:
            self.pulled += 1
            if isinstance(each, Exception):
                raise each
            yield each

    def cancel(self) -> None:
        self.cancelled = True


def given(text: str, *portions: list[dict[str, Any]] | Exception) -> tuple[QueryResult, Any]:
    (query,) = compile_queries(text, catalog=CATALOG, filename="test.gq").values()
    schema = arrow_schema(query.columns, CATALOG)
    batches = [
        each if isinstance(each, Exception) else pa.RecordBatch.from_pylist(each, schema=schema)
        for each in portions
    ]
    answer = GivenAnswer(schema, batches)
    return QueryResult(answer, query=query, catalog=CATALOG, commit_id="c"), answer


def row(name: str, age: int | None = None) -> dict[str, Any]:
    return {"p.name": name, "p.age": age}


def rows(result: QueryResult) -> list[dict[str, Any]]:
    return [each for batch in result for each in batch.to_pylist()]


def test_columns_are_known_before_anything_runs() -> None:
    result, answer = given(NUMBERS, [row("ann", 1)])

    assert result.columns == ("p.name", "p.age")
    assert result.schema.field("p.age").type == pa.int32()
    assert not result.schema.field("p.name").nullable
    assert repr(result) == "<QueryResult of numbers (p.name: string, p.age: int32)>"
    assert answer.pulled == 0


def test_rows_stream_batch_by_batch_and_are_gone_then() -> None:
    result, answer = given(NUMBERS, [row("ann")], [row("bob")])

    stream = iter(result)
    assert next(stream).to_pylist() == [row("ann")]
    assert answer.pulled == 1
    assert next(stream).to_pylist() == [row("bob")]
    with pytest.raises(InvalidInputError, match="were already streamed"):
        result.to_arrow()


def test_kept_rows_can_be_asked_for_again() -> None:
    result, answer = given(NUMBERS, [row("ann", 1)], [], [row("bob")])

    assert result.to_arrow().num_rows == 2
    assert result.to_pylist() == rows(result) == [row("ann", 1), row("bob")]
    assert answer.pulled == 3


def test_an_empty_result_has_its_columns() -> None:
    result, _ = given(NUMBERS)

    assert result.to_arrow().schema == result.schema
    assert result.to_pandas().columns.tolist() == ["p.name", "p.age"]


def test_arrow_takes_the_stream_as_it_is() -> None:
    result, _ = given(NUMBERS, [row("ann", 1)], [row("bob")])

    assert pa.table(result).to_pylist() == [row("ann", 1), row("bob")]
    with pytest.raises(InvalidInputError):
        result.to_pylist()


def test_pandas_rounds_no_integer() -> None:
    text = "query q() { match { $c: Company } return { $c.size, $c } }"
    large = 2**62 + 1
    entity = {"id": "a", "type": "Company", "properties": {"code": "a", "size": large}}
    missing = {"id": "b", "type": "Company", "properties": {"code": "b", "size": None}}
    result, _ = given(text, [{"c.size": large, "c": entity}, {"c.size": None, "c": missing}])

    frame = result.to_pandas()

    assert frame["c.size"][0] == large
    assert frame["c.size"].isna().tolist() == [False, True]
    assert frame["c"][0]["properties"]["size"] == large


def test_polars_has_the_same_rows() -> None:
    result, _ = given(NUMBERS, [row("ann", 1), row("bob")])

    assert result.to_polars().to_dicts() == [row("ann", 1), row("bob")]


@pytest.mark.parametrize(
    ("text", "portions", "found"),
    [
        ("count(*) as n", [[{"n": 7}]], 7),
        ("count(*) as n", [[], [{"n": None}]], None),
    ],
)
def test_one_value_is_a_scalar(
    text: str, portions: list[list[dict[str, Any]]], found: object
) -> None:
    result, _ = given(f"query q() {{ match {{ $p: Person }} return {{ {text} }} }}", *portions)

    assert result.scalar() == found
    assert len(rows(result)) == 1


@pytest.mark.parametrize(
    ("portions", "said"),
    [
        ([], "0 rows of 2 columns"),
        ([[row("ann")]], "1 row of 2 columns"),
        ([[row("ann")], [row("bob")]], "more rows of 2 columns"),
    ],
)
def test_anything_else_is_no_scalar(portions: list[list[dict[str, Any]]], said: str) -> None:
    result, _ = given(NUMBERS, *portions)

    with pytest.raises(InvalidInputError, match=said):
        result.scalar()


def test_a_notebook_shows_the_first_rows_and_keeps_all_of_them() -> None:
    portions = [[row(f"<b>{number}</b>", number)] for number in range(30)]
    result, answer = given(NUMBERS, *portions)

    shown = result._repr_html_()

    assert "the first 20 rows; there are more" in shown
    assert "&lt;b&gt;19&lt;/b&gt;" in shown
    assert "&lt;b&gt;20&lt;/b&gt;" not in shown
    assert answer.pulled == 21
    assert len(rows(result)) == 30
    assert "already streamed" in result._repr_html_()


def test_a_notebook_counts_a_short_result() -> None:
    result, _ = given(NUMBERS, [row("ann")])

    assert "<p>1 row</p>" in result._repr_html_()


def test_a_run_that_failed_never_looks_like_a_shorter_result() -> None:
    result, _ = given(NUMBERS, [row("ann")], QueryFailedError("a sum is too large"))

    with pytest.raises(QueryFailedError):
        result._repr_html_()
    with pytest.raises(QueryFailedError):
        result.to_arrow()


def test_a_failure_reaches_whoever_reads_the_arrow_stream() -> None:
    result, _ = given(NUMBERS, [row("ann")], QueryFailedError("a sum is too large"))

    with pytest.raises(pa.ArrowInvalid, match="a sum is too large"):
        pa.table(result)


def test_a_cancelled_result_gives_no_more_rows() -> None:
    result, answer = given(NUMBERS, [row("ann")], [row("bob")])
    stream = iter(result)
    next(stream)

    result.cancel()

    assert answer.cancelled
    with pytest.raises(QueryCancelledError):
        next(stream)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    result, _ = given(NUMBERS, [row("ann")])

    with pytest.raises(InvalidInputError, match="pip install polars"):
        result.to_polars()


def node(key: str, name: str) -> dict[str, Any]:
    return {"id": key, "type": "Person", "properties": {"email": key, "name": name}}


def knows(key: str, src: str, dst: str) -> dict[str, Any]:
    since = dt.date(2020, 1, 1)
    return {"id": key, "type": "Knows", "src": src, "dst": dst, "properties": {"since": since}}


def elements(result: QueryResult) -> tuple[dict[Any, Any], dict[Any, Any]]:
    columns = query_result.element_columns(result._query, CATALOG)
    nodes: dict[Any, Any] = {}
    edges: dict[Any, Any] = {}
    for each in result.to_pylist():
        for key, properties in query_result.nodes_of(columns, each):
            nodes.setdefault(key, {}).update(properties)
        for start, end, key, properties in query_result.edges_of(columns, each):
            edges.setdefault((start, end, key), {}).update(properties)
    return nodes, edges


ANN, BOB, CAT = (("Person", each) for each in ("ann", "bob", "cat"))


def test_nodes_and_edges_become_elements_once() -> None:
    known = {"p": node("ann", "Ann"), "e": knows("k1", "ann", "bob"), "q.name": "Bob"}
    alone = {"p": node("cat", "Cat"), "e": None, "q.name": None}
    result, _ = given(ENTITIES, [known, known, alone])

    nodes, edges = elements(result)

    assert nodes[ANN]["name"] == "Ann"
    assert set(nodes) == {ANN, CAT}
    assert set(edges) == {(ANN, BOB, ("Knows", "k1"))}
    assert edges[ANN, BOB, ("Knows", "k1")]["since"] == dt.date(2020, 1, 1)


@pytest.mark.parametrize(
    ("match", "types", "swapped"),
    [
        ("$a: Person  $a knows{1,3} $b as $way", ("Person", "Person"), False),
        ("$a: Person  $a <knows>{1,3} $b as $way", ("Person", "Person"), False),
        ("$a: Person  $a worksAt{1,1} $b as $way", ("Person", "Company"), False),
        ("$a: Company  $a worksAt{1,1} $b as $way", ("Company", "Person"), True),
    ],
)
def test_paths_become_nodes_and_the_edges_between_them(
    match: str, types: tuple[str, str], swapped: bool
) -> None:
    text = f"""query q() {{ match {{ {match} }}
        return {{ nodes($way) as through, edges($way) as over }} }}"""
    result, _ = given(text, [{"through": ["1", "2"], "over": ["e"]}])

    nodes, edges = elements(result)

    first, last = (types[0], "1"), (types[1], "2")
    assert set(nodes) == {first, last}
    ((start, end, key),) = edges
    assert (start, end) == ((last, first) if swapped else (first, last))
    assert key[1] == "e"


def test_a_path_without_its_edges_has_edges_without_ids() -> None:
    text = """query q() { match { $a: Person  optional { $a knows{1,3} $b as $way } }
        return { nodes($way) as through } }"""
    result, _ = given(text, [{"through": ["ann", "bob", "cat"]}, {"through": None}])

    nodes, edges = elements(result)

    assert set(nodes) == {ANN, BOB, CAT}
    assert set(edges) == {(ANN, BOB, ("Knows", None)), (BOB, CAT, ("Knows", None))}


def test_networkx_gets_a_graph_with_parallel_edges() -> None:
    known = {"p": node("ann", "Ann"), "e": knows("k1", "ann", "bob"), "q.name": "Bob"}
    again = {**known, "e": knows("k2", "ann", "bob")}
    result, _ = given(ENTITIES, [known, again])

    graph = result.to_networkx()

    assert isinstance(graph, nx.MultiDiGraph)
    assert graph.nodes[ANN]["name"] == "Ann"
    assert graph.number_of_edges(ANN, BOB) == 2
    assert graph.edges[ANN, BOB, ("Knows", "k2")]["since"] == dt.date(2020, 1, 1)


def test_plain_values_are_no_graph() -> None:
    result, _ = given(NUMBERS, [row("ann")])

    with pytest.raises(InvalidInputError, match="returns no nodes, edges or paths"):
        result.to_networkx()
