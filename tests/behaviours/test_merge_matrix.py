"""Every kind of change on one side of a merge against every kind on the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from omnigraph_lake.errors import MergeConflictError
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import Content, content, kinds, knows, person, put, small_graph
from tests.gate.selection import for_gate

pytestmark = [pytest.mark.behaviour, pytest.mark.sampled(2)]

UP_TO_DATE, FAST_FORWARD, MERGED = "up_to_date", "fast_forward", "merged"
INSERT, UPDATE, DELETE = "divergent_insert", "divergent_update", "delete_vs_update"
ORPHAN = "missing_endpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One commit on one side, and the same done to a plain copy of the graph."""

    act: Callable[[Graph], object]
    expect: Callable[[Content], None]


def put_person(name: str, **values: Any) -> Step:
    def expect(graph: Content) -> None:
        graph["Person"][name] = {"id": name, "name": name, **values}

    return Step(act=lambda graph: put(graph, Person=[person(name, **values)]), expect=expect)


def remove_person(name: str) -> Step:
    def expect(graph: Content) -> None:
        del graph["Person"][name]
        for edges in (graph["Knows"], graph["Owns"]):
            for edge in [*edges.values()]:
                if name in (edge["src"], edge["dst"]):
                    del edges[edge["id"]]

    return Step(act=lambda graph: graph.delete({"Person": [name]}), expect=expect)


def put_edge(name: str, source: str, target: str, **values: Any) -> Step:
    row = knows(name, source, target, **values)

    def expect(graph: Content) -> None:
        graph["Knows"][name] = dict(row)

    return Step(act=lambda graph: put(graph, Knows=[row]), expect=expect)


def remove_edge(name: str) -> Step:
    def expect(graph: Content) -> None:
        graph["Knows"].pop(name, None)

    return Step(act=lambda graph: graph.delete({"Knows": [name]}), expect=expect)


NOTHING = Step(act=lambda _: None, expect=lambda _: None)
SOURCE = {
    "none": NOTHING,
    "add node": put_person("new", age=10),
    "remove node": remove_person("bob"),
    "add edge": put_edge("theirs", "cyd", "bob"),
    "remove edge": remove_edge("ann-bob"),
    "set property": put_person("bob", age=11),
}
TARGET = {
    **SOURCE,
    "add node": put_person("new", age=20),
    "add edge": put_edge("ours", "cyd", "bob"),
    "set property": put_person("bob", age=22),
}
OPS = tuple(SOURCE)

BOB = ("node:Person", "bob", None)
CONFLICTS: dict[tuple[str, str], set[Any]] = {
    ("add node", "add node"): {("node:Person", "new", "age", INSERT)},
    ("remove node", "add edge"): {("edge:Knows", "ours", "dst", ORPHAN)},
    ("remove node", "set property"): {(*BOB, DELETE)},
    ("add edge", "remove node"): {("edge:Knows", "theirs", "dst", ORPHAN)},
    ("set property", "remove node"): {(*BOB, DELETE)},
    ("set property", "set property"): {("node:Person", "bob", "age", UPDATE)},
}


def expected_outcome(source: str, target: str) -> str:
    return UP_TO_DATE if source == "none" else FAST_FORWARD if target == "none" else MERGED


def assert_merge(graph: Graph, ours: Step, theirs: Step, conflicts: set[Any], outcome: str) -> None:
    """Do one step on each side and merge; the target ends as both steps say, or as its own does."""
    dev = graph.branches.create("dev")
    expected = content(graph)
    ours.expect(expected)
    theirs.act(dev)
    ours.act(graph)
    if conflicts:
        with pytest.raises(MergeConflictError) as caught:
            graph.merge("dev")
        assert kinds(caught.value.conflicts.to_pylist()) == conflicts  # type: ignore[attr-defined]
    else:
        assert graph.merge("dev").outcome.value == outcome
        theirs.expect(expected)
    assert content(graph) == expected


TABLES = {
    "none": (),
    "add node": ("Person",),
    "remove node": ("Person", "Knows"),
    "add edge": ("Knows",),
    "remove edge": ("Knows",),
    "set property": ("Person",),
}
"""The tables that an operation writes."""


def first_of_their_kind() -> Callable[[tuple[str, str]], bool]:
    """Pick one pair for each way in which tables meet, and for each kind of conflict.

    What becomes of one row, whichever operations met in it, is proven by the three-way table below.
    """
    seen: set[object] = set()

    def is_first(pair: tuple[str, str]) -> bool:
        source, target = pair
        kind = TABLES[source], TABLES[target], frozenset(CONFLICTS.get(pair, ()))
        is_new = kind not in seen
        seen.add(kind)
        return is_new

    return is_first


PAIRS = for_gate(itertools.product(OPS, OPS), first_of_their_kind())


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_pair_of_operations(graph_root: str, source: str, target: str) -> None:
    theirs, ours = SOURCE[source], TARGET[target]
    if source == target == "remove node":
        theirs = Step(act=theirs.act, expect=NOTHING.expect)

    assert_merge(
        small_graph(graph_root),
        ours,
        theirs,
        CONFLICTS.get((source, target), set()),
        expected_outcome(source, target),
    )


MORE_PAIRS: list[ParameterSet] = [
    pytest.param(put_person("dan", age=4), put_person("eve", age=5), set(), id="two new nodes"),
    pytest.param(
        put_person("dan", age=4), put_person("dan", age=4), set(), id="one new node, twice"
    ),
    pytest.param(
        put_edge("k", "cyd", "bob"), put_edge("k", "cyd", "bob"), set(), id="one edge, twice"
    ),
    pytest.param(
        put_edge("k", "cyd", "bob"),
        put_edge("k", "cyd", "ann"),
        {("edge:Knows", "k", "dst", INSERT)},
        id="an edge with two ends",
    ),
    pytest.param(
        put_edge("ann-bob", "ann", "bob", since=1),
        remove_edge("ann-bob"),
        {("edge:Knows", "ann-bob", None, DELETE)},
        id="an edge changed and removed",
    ),
    pytest.param(
        remove_edge("ann-bob"),
        put_edge("ann-bob", "ann", "cyd"),
        {("edge:Knows", "ann-bob", None, DELETE)},
        id="an edge removed and moved",
    ),
    pytest.param(
        put_edge("ann-bob", "ann", "bob", since=1),
        remove_person("bob"),
        {
            ("edge:Knows", "ann-bob", None, DELETE),
        },
        id="an edge changed, and removed with its node",
    ),
    pytest.param(
        remove_person("ann"), put_person("bob", age=9), set(), id="other nodes of one edge"
    ),
    pytest.param(
        remove_person("bob"),
        put_edge("k", "bob", "cyd"),
        {("edge:Knows", "k", "src", ORPHAN)},
        id="a new edge from a removed node",
    ),
    pytest.param(
        put_edge("k", "bob", "cyd"),
        remove_person("bob"),
        {("edge:Knows", "k", "src", ORPHAN)},
        id="a removed node with a new edge",
    ),
    pytest.param(
        put_edge("k", "bob", "bob"),
        remove_person("bob"),
        {("edge:Knows", "k", "src", ORPHAN)},
        id="a loop at a removed node",
    ),
    pytest.param(
        put_person("bob", age=9), put_person("bob", age=9), set(), id="the same new value"
    ),
    pytest.param(
        put_person("bob", age=9), put_person("cyd", age=9), set(), id="values of other nodes"
    ),
]
PROVEN_BY_OTHERS = {
    "two new nodes": "a target and a source that inserted, in the three-way table",
    "one edge, twice": "one new node, twice",
    "an edge removed and moved": "an edge changed and removed",
    "other nodes of one edge": "remove node and set property meet other rows in the pairs above",
    "a removed node with a new edge": "add edge and remove node, in the pairs above",
    "values of other nodes": "updates of one side, in the three-way table",
}
"""Pairs that the gate leaves out, and what it runs that shows the same."""


CHOSEN_PAIRS = for_gate(MORE_PAIRS, lambda case: case.id not in PROVEN_BY_OTHERS)


@pytest.mark.parametrize(("theirs", "ours", "conflicts"), CHOSEN_PAIRS)
def test_pairs_that_meet_elsewhere_or_agree(
    graph_root: str, theirs: Step, ours: Step, conflicts: set[Any]
) -> None:
    assert_merge(small_graph(graph_root), ours, theirs, conflicts, MERGED)


@pytest.mark.parametrize(
    ("column_level", "conflicts", "merged"),
    [
        (True, set(), {"id": "bob", "name": "bob", "age": 9, "city": "Bonn"}),
        (False, {("node:Person", "bob", None, UPDATE)}, None),
    ],
)
def test_other_properties_of_one_row_go_together_unless_rows_are_merged_whole(
    graph_root: str, column_level: bool, conflicts: set[Any], merged: dict[str, Any] | None
) -> None:
    graph = small_graph(graph_root)
    dev = graph.branches.create("dev")
    put(dev, Person=[person("bob", age=9)])
    put(graph, Person=[person("bob", age=2, city="Bonn")])

    if merged is None:
        with pytest.raises(MergeConflictError) as caught:
            graph.merge("dev", column_level=column_level)
        assert kinds(caught.value.conflicts.to_pylist()) == conflicts  # type: ignore[attr-defined]
        merged = {"id": "bob", "name": "bob", "age": 2, "city": "Bonn"}
    else:
        graph.merge("dev", column_level=column_level)

    assert content(graph)["Person"]["bob"] == merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table: what a row was, what both sides made of it, what a merge makes of it.

    None is no row; `after` is a kind of conflict where the sides do not go together.
    """

    before: str | None
    theirs: str | None
    ours: str | None
    after: str | None


TABLE = {
    "nobody changed it": Line(before="a", theirs="a", ours="a", after="a"),
    "target updated": Line(before="a", theirs="a", ours="b", after="b"),
    "target deleted": Line(before="a", theirs="a", ours=None, after=None),
    "source updated": Line(before="a", theirs="b", ours="a", after="b"),
    "source deleted": Line(before="a", theirs=None, ours="a", after=None),
    "both updated alike": Line(before="a", theirs="b", ours="b", after="b"),
    "both deleted": Line(before="a", theirs=None, ours=None, after=None),
    "target inserted": Line(before=None, theirs=None, ours="b", after="b"),
    "source inserted": Line(before=None, theirs="b", ours=None, after="b"),
    "both inserted alike": Line(before=None, theirs="b", ours="b", after="b"),
    "both updated": Line(before="a", theirs="b", ours="c", after=UPDATE),
    "deleted and updated": Line(before="a", theirs=None, ours="c", after=DELETE),
    "updated and deleted": Line(before="a", theirs="b", ours=None, after=DELETE),
    "both inserted": Line(before=None, theirs="b", ours="c", after=INSERT),
}
CLASHES = {INSERT, UPDATE, DELETE}


def do_to_pets(graph: Graph, before: dict[str, str | None], after: dict[str, str | None]) -> None:
    """Bring pets from one state to the next in two commits; None is no pet."""
    new = {name: kind for name, kind in after.items() if kind not in (None, before.get(name))}
    gone = [name for name, kind in after.items() if kind is None and before.get(name) is not None]
    put(graph, Pet=[{"name": f"of {graph.branch}"}])  # no side stands still
    if new:
        put(graph, Pet=[{"name": name, "kind": kind} for name, kind in new.items()])
    if gone:
        graph.delete({"Pet": gone})


# Rows that are merged whole are a case above; tests/merge has every line of it.
@pytest.mark.parametrize("column_level", for_gate([True, False], bool))
@pytest.mark.parametrize("clashing", [False, True], ids=["going together", "in conflict"])
def test_the_three_way_table(graph_root: str, clashing: bool, column_level: bool) -> None:
    lines = {name: line for name, line in TABLE.items() if (line.after in CLASHES) == clashing}
    graph = small_graph(graph_root)
    before = {name: line.before for name, line in lines.items()}
    do_to_pets(graph, {}, before)
    dev = graph.branches.create("dev")
    do_to_pets(dev, before, {name: line.theirs for name, line in lines.items()})
    do_to_pets(graph, before, {name: line.ours for name, line in lines.items()})

    if clashing:
        with pytest.raises(MergeConflictError) as caught:
            graph.merge("dev", column_level=column_level)
        assert kinds(caught.value.conflicts.to_pylist()) == {  # type: ignore[attr-defined]
            (
                "node:Pet",
                name,
                "kind" if column_level and line.after != DELETE else None,
                line.after,
            )
            for name, line in lines.items()
        }
    else:
        assert graph.merge("dev", column_level=column_level).outcome.value == MERGED

    found = content(graph)["Pet"]
    assert {name: found.get(name, {}).get("kind") for name in lines} == {
        name: line.ours if clashing else line.after for name, line in lines.items()
    }
    assert ("of dev" in found) != clashing
