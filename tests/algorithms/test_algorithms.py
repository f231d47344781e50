"""Algorithms have the results of other libraries, to the same bits on every runner."""

from __future__ import annotations

import itertools
import random

import pytest

import omnigraph_lake as og
from omnigraph_lake.algorithms.blocks import Sizes
from omnigraph_lake.algorithms.components import Components
from omnigraph_lake.algorithms.distances import Distances
from omnigraph_lake.algorithms.page_rank import PageRank
from omnigraph_lake.api.algorithms import AlgorithmResult
from omnigraph_lake.errors import (
    InvalidInputError,
    LoadRefusedError,
    NotConvergedError,
    NotFoundError,
    ReadOnlyError,
)
from omnigraph_lake.runner.threads import ThreadRunner
from tests.algorithms.random_graphs import (
    EDGE_TYPES,
    NODE_TYPES,
    SCHEMA,
    made_graph,
    random_graph,
    random_graph_of_types,
)
from tests.gate.seeds import case_seeds
from tests.runner.random_runner import RandomRunner
from tests.stores import folder_of

pytestmark = pytest.mark.random

SMALL = Sizes(block_nodes=7, range_nodes=5, piece_rows=1)


def by_id(result: AlgorithmResult) -> dict[str, object]:
    rows = result.to_arrow()
    assert rows.num_rows == result.rows
    ids = rows.column(0).to_pylist()
    assert ids == sorted(ids)
    return dict(zip(ids, rows.column(1).to_pylist(), strict=True))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sizes", [Sizes(), SMALL], ids=["one block", "many blocks"])
@pytest.mark.parametrize(
    ("seed", "people", "edges"),
    [
        pytest.param(seed, 1 + 6 * number, number * (3 + 17 * (number % 3)), id=str(number))
        for number, seed in enumerate(case_seeds("algorithms", 6))
    ],
)
def test_random_graphs_have_the_results_of_other_libraries(
    graph_root: str, seed: str, people: int, edges: int, sizes: Sizes
) -> None:
    made = random_graph(graph_root, seed, people=people, edges=edges)

    for algorithm in made.all_algorithms():
        result = by_id(made.run(algorithm, ThreadRunner(), sizes=sizes))

        expected = made.expected(algorithm)
        if isinstance(algorithm, PageRank):
            assert result == pytest.approx(expected, abs=1e-7)
        else:
            assert result == expected, algorithm


def by_typed_node(result: AlgorithmResult) -> dict[str, object]:
    """Results by `Person p1`; values that are nodes are called like this, too."""
    rows = [tuple(row.values()) for row in result.to_pylist()]
    nodes = [f"{kind} {node_id}" for kind, node_id, *_ in rows]
    assert nodes == sorted(nodes)
    values = [" ".join(value) if len(value) > 1 else value[0] for _, _, *value in rows]
    return dict(zip(nodes, values, strict=True))


@pytest.mark.parametrize("sizes", [Sizes(), SMALL], ids=["one block", "many blocks"])
def test_nodes_of_several_types_are_told_apart_by_type_and_id(
    graph_root: str, sizes: Sizes
) -> None:
    made = random_graph_of_types(graph_root, "types", ids=9, edges=30)

    for algorithm in made.all_algorithms():
        result = by_typed_node(made.run(algorithm, ThreadRunner(), sizes=sizes))

        expected = made.expected(algorithm)
        if isinstance(algorithm, PageRank):
            assert result == pytest.approx(expected, abs=1e-7)
        else:
            assert result == expected, algorithm


def test_values_of_several_types_are_written_as_one_commit(graph_root: str) -> None:
    made = random_graph_of_types(graph_root, "write types", ids=5, edges=20)
    commits = len(made.graph.commits())

    result = made.graph.algorithms.page_rank(NODE_TYPES, EDGE_TYPES, write_to="rank")

    written = {
        f"{kind} {row['id']}": row["rank"]
        for kind in NODE_TYPES
        for row in made.graph.scan(kind).read_all().to_pylist()
    }
    assert written == by_typed_node(result)
    assert len(made.graph.commits()) == commits + 1


def test_what_cannot_be_computed_of_several_types_is_refused(graph_root: str) -> None:
    algorithms = random_graph_of_types(graph_root, "refused", ids=2, edges=4).graph.algorithms

    with pytest.raises(InvalidInputError, match=r"Knows join nodes of Company, too") as refused:
        algorithms.page_rank("Person", ["Knows"])
    assert "['Company', 'Person']" in str(refused.value)
    with pytest.raises(InvalidInputError, match="the landmark 'p1' needs a type"):
        algorithms.distances(NODE_TYPES, EDGE_TYPES, ["p1"])
    with pytest.raises(InvalidInputError, match=r"there is no node \('Person', 'p9'\)"):
        algorithms.distances(NODE_TYPES, EDGE_TYPES, [("Person", "p9")])
    with pytest.raises(InvalidInputError, match="a component is a node of one of several types"):
        algorithms.components(NODE_TYPES, EDGE_TYPES, write_to="rank")
    with pytest.raises(InvalidInputError, match="expected a node type or a list of node types"):
        algorithms.components([], EDGE_TYPES)


def test_results_have_the_same_bits_whatever_runs_them(graph_root: str) -> None:
    """Also if tasks run twice or stop midway, messages arrive in any order, and ids are split."""
    made = random_graph(graph_root, "bits", people=25, edges=80)
    blocks = Sizes(block_nodes=9)

    for seed, algorithm in enumerate(made.all_algorithms()):
        here = made.run(algorithm, ThreadRunner(), sizes=blocks).to_arrow()
        there = made.run(
            algorithm,
            RandomRunner(seed, root=made.root),
            sizes=Sizes(block_nodes=9, range_nodes=6, piece_rows=1),
            is_stored=True,
        ).to_arrow()
        assert here.combine_chunks().equals(there.combine_chunks()), algorithm


def test_results_do_not_depend_on_how_rows_are_stored(graph_root: str) -> None:
    made = random_graph(graph_root, "stored", people=30, edges=90)
    before = made.graph.algorithms.page_rank("Person", EDGE_TYPES)

    made.graph.maintenance.optimize()
    after = made.graph.algorithms.page_rank("Person", EDGE_TYPES)

    assert before.commit_id != after.commit_id or before.rounds == after.rounds
    assert before.to_arrow().combine_chunks().equals(after.to_arrow().combine_chunks())


def test_a_long_path_is_one_component_after_few_rounds(graph_root: str) -> None:
    people = [f"p{number:03}" for number in range(200)]
    shuffled = random.Random(1).sample(people, len(people))
    links = [("Knows", source, target) for source, target in itertools.pairwise(shuffled)]
    made = made_graph(graph_root, people, links)

    result = made.run(Components(), ThreadRunner(), sizes=Sizes(block_nodes=64))

    assert set(by_id(result).values()) == {"p000"}
    assert result.rounds < 20
    hops = by_id(made.run(Distances(landmarks=(shuffled[0],)), ThreadRunner()))
    assert hops == {person: hop for hop, person in enumerate(shuffled)}


def test_hops_end_at_the_number_that_is_allowed(graph_root: str) -> None:
    links = [("Knows", f"p{number}", f"p{number + 1}") for number in range(4)]
    made = made_graph(graph_root, [f"p{number}" for number in range(5)], links)

    near = made.graph.algorithms.distances("Person", ["Knows"], ["p0"], hops_max=2)

    assert by_id(near) == {"p0": 0, "p1": 1, "p2": 2, "p3": None, "p4": None}


def test_a_graph_without_nodes_has_empty_results(graph_root: str) -> None:
    algorithms = og.init(graph_root, schema=SCHEMA).algorithms

    for run in (
        algorithms.page_rank,
        algorithms.components,
        algorithms.label_propagation,
        algorithms.triangle_count,
    ):
        assert run("Person", EDGE_TYPES).to_pylist() == []


def test_values_are_written_as_one_commit_beside_other_properties(graph_root: str) -> None:
    made = random_graph(graph_root, "write", people=12, edges=20)
    commits = len(made.graph.commits())

    result = made.graph.algorithms.components(
        "Person", EDGE_TYPES, write_to="part", operation_id="01M7H0000000000000000000AA"
    )
    again = made.graph.algorithms.components(
        "Person", EDGE_TYPES, write_to="part", operation_id="01M7H0000000000000000000AA"
    )

    rows = made.graph.scan("Person").read_all().to_pylist()
    assert {row["id"]: row["part"] for row in rows} == made.expected(Components())
    assert all(row["note"] == row["name"] for row in rows)
    assert len(made.graph.commits()) == commits + 1
    assert result.report is not None
    assert again.report is not None
    assert (result.report.repeated, again.report.repeated) == (False, True)
    assert "written as commit" in str(result)


def test_the_past_and_branches_are_computed_as_they_are(graph_root: str) -> None:
    made = made_graph(graph_root, ["a", "b", "c"], [("Knows", "a", "b")])
    made.graph.tags.create("before", at="main")
    branch = made.graph.branches.create("dev")
    branch.write({"Knows": [{"src": "b", "dst": "c"}]})

    def parts(graph: og.Graph | og.GraphView) -> dict[str, object]:
        return by_id(graph.algorithms.components("Person", ["Knows"]))

    assert parts(branch) == {"a": "a", "b": "a", "c": "a"}
    made.graph.merge("dev")
    assert parts(made.graph) == {"a": "a", "b": "a", "c": "a"}
    assert parts(made.graph.at("before")) == {"a": "a", "b": "a", "c": "c"}


def test_what_cannot_be_computed_is_refused_by_name(graph_root: str) -> None:
    made = made_graph(graph_root, ["a", "b"], [("Knows", "a", "b")])
    graph = made.graph
    graph.write({"City": [{"name": "c"}], "LivesIn": [{"src": "a", "dst": "c"}]})
    algorithms = graph.algorithms

    with pytest.raises(InvalidInputError, match="LivesIn join nodes of City, too"):
        algorithms.components("Person", ["LivesIn"], operation_id="01M7H0000000000000000000AA")
    assert not list(folder_of(graph.root, "_staging").rglob("*.*")), "nothing to resume is left"
    with pytest.raises(InvalidInputError, match="'nobody'"):
        algorithms.distances("Person", ["Knows"], ["a", "nobody"])
    with pytest.raises(InvalidInputError, match="no landmarks"):
        algorithms.distances("Person", ["Knows"], [])
    with pytest.raises(InvalidInputError, match="expected a list of edge types"):
        algorithms.components("Person", "Knows")
    with pytest.raises(NotFoundError, match="no edge type 'Know'"):
        algorithms.components("Person", ["Know"])
    with pytest.raises(InvalidInputError, match="damping is 1"):
        algorithms.page_rank("Person", ["Knows"], damping=1)
    with pytest.raises(InvalidInputError, match="tolerance is 'a'"):
        algorithms.page_rank("Person", ["Knows"], tolerance="a")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="rounds is 0"):
        algorithms.label_propagation("Person", ["Knows"], rounds=0)
    with pytest.raises(InvalidInputError, match="hops_max is -1"):
        algorithms.distances("Person", ["Knows"], ["a"], hops_max=-1)
    with pytest.raises(NotConvergedError, match=r"did not converge in 1 round \(the ranks changed"):
        algorithms.page_rank("Person", ["Knows"], tolerance=0.0, rounds_max=1)
    with pytest.raises(InvalidInputError, match="no property 'fame'"):
        algorithms.page_rank("Person", ["Knows"], write_to="fame")
    with pytest.raises(LoadRefusedError):
        algorithms.components("Person", ["Knows"], write_to="rank")
    with pytest.raises(ReadOnlyError, match="a view of"):
        graph.at("main").algorithms.page_rank("Person", ["Knows"], write_to="rank")
    with pytest.raises(InvalidInputError, match="in this process only"):
        algorithms.components("Person", ["Knows"]).to_spark(None)  # type: ignore[arg-type]
