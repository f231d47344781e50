"""Queries through the public API: choosing, binding, branches, the past, budgets and explaining."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.engine.query import query_limits
from omnigraph_lake.engine.query_text import compiled
from omnigraph_lake.errors import (
    InvalidInputError,
    NotFoundError,
    QueryBudgetError,
    QueryInvalidError,
)
from omnigraph_lake.graph import Graph
from tests.stores import root_at

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { email: String @key  name: String  age: I32? }
edge Knows: Person -> Person { since: Date? }
"""
NAMED = """
query named($name: String) {
    match { $p: Person { name: $name } }
    return { $p.email as email }
}
"""
TWO = """
query ages() { match { $p: Person } return { $p.age as age } order { age } }
query names($least: I32) {
    match { $p: Person  $p.age >= $least }
    return { $p.name as name }
    order { name }
}
"""
COUNT = "query n() { match { $p: Person } return { count(*) as n } }"
MUTATION = "query birthday() { update Person set { age: age + 1 } where true }"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write(
        {
            "Person": [
                {"email": "ann@x", "name": "Ann", "age": 30},
                {"email": "bob@x", "name": "Bob", "age": 20},
                {"email": "cat@x", "name": "Cat", "age": None},
            ],
            "Knows": [{"src": "ann@x", "dst": "bob@x"}],
        }
    )
    return graph


def test_parameters_are_keywords_or_a_mapping(graph: Graph) -> None:
    assert graph.query(TWO, name="names", least=25).to_pylist() == [{"name": "Ann"}]
    assert graph.query(TWO, {"least": 20}, name="names").to_arrow().num_rows == 2
    with pytest.raises(InvalidInputError, match="is given twice"):
        graph.query(TWO, {"least": 20}, name="names", least=25)
    with pytest.raises(InvalidInputError, match="expected a mapping"):
        graph.query(TWO, [20], name="names")  # type: ignore[call-overload]


def test_name_is_a_parameter_of_the_only_query_that_has_one(graph: Graph) -> None:
    assert graph.query(NAMED, name="Ann").scalar() == "ann@x"
    assert graph.query(NAMED, {"name": "Bob"}).scalar() == "bob@x"
    assert graph.query(NAMED, {"name": "Bob"}, name="named").scalar() == "bob@x"
    with pytest.raises(InvalidInputError, match="expected text"):
        graph.query(NAMED, name=7)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (TWO, None, "contains 2 queries.*\n.*ages, names"),
        (TWO, "name", "did you mean `names`"),
        (TWO, 7, "contains no query 7"),
        (COUNT, "m", "contains no query 'm'"),
        ("", None, "contains no query"),
        (7, None, "expected its text or the path"),
        ("people.gq", None, r"pathlib\.Path\('people\.gq'\)"),
    ],
)
def test_a_query_is_chosen_or_refused(graph: Graph, text: str, name: object, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        graph.query(text, name=name)


def test_a_path_is_a_file_of_queries(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "people.gq"
    file.write_text(COUNT)

    assert graph.query(file).scalar() == 3
    file.write_text(COUNT.replace("Person", "Persn"))
    with pytest.raises(QueryInvalidError, match=r"people\.gq:1:25"):
        graph.query(file)
    with pytest.raises(InvalidInputError, match="cannot read"):
        graph.query(tmp_path / "none.gq")
    file.write_text("/" * 300_000)
    with pytest.raises(InvalidInputError, match="more than 262,144 bytes"):
        graph.query(file)


def test_every_mistake_of_a_text_is_reported_at_once(graph: Graph) -> None:
    with pytest.raises(QueryInvalidError) as caught:
        graph.query("query q() { match { $p: Person } return { $p.nam, $p.ag } }")

    assert [each.rule for each in caught.value.diagnostics] == ["unknown-property"] * 2
    assert "did you mean `name`?" in str(caught.value)


def test_a_text_is_compiled_once_for_a_schema(graph: Graph) -> None:
    graph.query(COUNT).scalar()
    before = compiled.cache_info()
    og.open(graph.root, read_only=True).query(COUNT).scalar()

    after = compiled.cache_info()
    assert after.misses == before.misses
    assert after.hits > before.hits


def test_graphs_of_other_schemas_share_no_compiled_text(graph: Graph, tmp_path: Path) -> None:
    other = og.init(root_at(tmp_path / "other"), schema="node Person { age: String? }")
    text = "query q() { match { $p: Person } return { $p.age } }"

    assert graph.query(text).schema != other.query(text).schema


def test_branches_and_the_past_are_queried_alike(graph: Graph) -> None:
    first = graph.snapshot().commit_id
    assert first is not None
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"email": "dan@x", "name": "Dan"}]})

    assert dev.query(COUNT).scalar() == 4
    assert graph.query(COUNT).scalar() == 3
    assert graph.at("dev").query(COUNT).scalar() == 4
    assert dev.at(first).query(COUNT).commit_id == first
    assert dev.at(first).query(COUNT).scalar() == 3


def test_a_result_is_of_the_state_when_it_was_asked_for(graph: Graph) -> None:
    result = graph.query(COUNT)
    graph.write({"Person": [{"email": "dan@x", "name": "Dan"}]})

    assert result.scalar() == 3
    assert graph.query(COUNT).scalar() == 4


def test_whole_entities_come_as_structs(graph: Graph) -> None:
    text = "query q() { match { $p: Person  $p $e: knows $q } return { $p, $e } }"

    (row,) = graph.query(text).to_pylist()

    assert row["p"]["properties"] == {"email": "ann@x", "name": "Ann", "age": 30}
    assert (row["p"]["id"], row["p"]["type"]) == ("ann@x", "Person")
    assert (row["e"]["src"], row["e"]["dst"], row["e"]["type"]) == ("ann@x", "bob@x", "Knows")


def test_a_mutation_is_no_query(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match=r"is a mutation.*\n.*graph\.mutate"):
        graph.query(MUTATION)


@pytest.mark.parametrize(
    ("engine", "spark", "said"),
    [
        ("duckdb", None, 'expected "auto", "local" or "spark"'),
        ("local", object(), "a Spark session is given"),
    ],
)
def test_an_engine_is_chosen_by_what_is_given(
    graph: Graph, engine: str, spark: object, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        graph.query(COUNT, engine=engine, spark=spark)  # type: ignore[call-overload]


def test_limits_of_this_process_are_not_for_spark(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="runs on Spark"):
        graph.query(COUNT, engine="spark", timeout=5)


@pytest.mark.parametrize(
    ("memory", "found"),
    [
        (1 << 30, 1 << 30),
        ("2GB", 2_000_000_000),
        ("1.5 GiB", 3 << 29),
        ("64mib", 64 << 20),
        ("100000000", 100_000_000),
    ],
)
def test_memory_is_bytes_or_a_size(memory: object, found: int) -> None:
    assert query_limits(memory, None).memory_bytes == found


@pytest.mark.parametrize("memory", ["2 apples", "", "-1GB", 0, True, 1.5, "1KB", "GB"])
def test_other_sizes_are_refused(memory: object) -> None:
    with pytest.raises(InvalidInputError, match="memory is"):
        query_limits(memory, None)


@pytest.mark.parametrize("timeout", [0, -1, True, float("nan"), float("inf"), "5"])
def test_a_timeout_is_a_number_of_seconds(timeout: object) -> None:
    assert query_limits(None, timedelta(minutes=1)).seconds == 60
    assert query_limits(None, 0.5).seconds == 0.5
    assert query_limits(None, None).seconds is None
    with pytest.raises(InvalidInputError, match="timeout is"):
        query_limits(None, timeout)


def test_a_query_that_takes_too_long_is_ended(graph: Graph) -> None:
    result = graph.query(COUNT, timeout=1e-6)

    with pytest.raises(QueryBudgetError, match="seconds"):
        result.to_arrow()


def test_explaining_reads_nothing_and_needs_no_parameters(graph: Graph) -> None:
    assert "scan $p: Person" in graph.explain(NAMED)
    assert graph.explain(TWO, name="ages").startswith("project age")
    assert "update node:Person" in graph.explain(MUTATION)


def test_stored_queries_are_found_and_run_by_name(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "a.gq").write_text(NAMED)
    (tmp_path / "b.gq").write_text(TWO + MUTATION)
    (tmp_path / "notes.txt").write_text("no query")

    stored = graph.queries(tmp_path)

    assert list(stored) == ["ages", "birthday", "named", "names"]
    assert stored["names"].parameters == ("$least: I32",)
    assert stored["ages"].columns == ("age: I32?",)
    assert stored["birthday"].is_mutation
    assert stored.run("named", name="Ann").scalar() == "ann@x"
    assert stored.run("names", {"least": 0}, timeout=60).to_arrow().num_rows == 2
    with pytest.raises(NotFoundError, match="did you mean `names`"):
        stored.run("nams")
    with pytest.raises(InvalidInputError, match="is a mutation"):
        stored.run("birthday")
    with pytest.raises(InvalidInputError, match="has no parameter"):
        stored.run("ages", lest=7)


def test_stored_queries_of_one_name_are_refused(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "a.gq").write_text(COUNT)
    (tmp_path / "b.gq").write_text(COUNT)

    with pytest.raises(InvalidInputError, match=r"query n is in .*a\.gq and in .*b\.gq"):
        graph.queries(tmp_path)
    with pytest.raises(NotFoundError, match="there is no directory"):
        graph.queries(tmp_path / "none")
