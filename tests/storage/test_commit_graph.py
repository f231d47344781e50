"""How commits descend from each other: lines, what is reachable, the base of two."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping

import pytest

import omnigraph_lake as og
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph, base_of, commit_graph
from omnigraph_lake.storage.manifest.history import record_commits
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import GraphCommit
from omnigraph_lake.storage.objects.location import parse_root
from tests.gate.seeds import case_seeds, examples

pytestmark = pytest.mark.unit

SEEDS = case_seeds("commits", examples(30))


def commits(parents: Mapping[str, str]) -> CommitGraph:
    """Commits in the order they were made, each with the letters of its parents."""
    found = {}
    for number, (name, letters) in enumerate(parents.items(), start=1):
        first, second, *_ = *letters, None, None
        found[name] = GraphCommit(
            commit_id=name,
            branch=None,
            operation_id=name,
            actor="a",
            created_at=f"2026-01-01T00:00:{number:02}.000000+00:00",
            parent_id=first,
            merged_parent_id=second,
            manifest_version=number,
        )
    return CommitGraph(found)


def names(found: tuple[GraphCommit, ...]) -> str:
    return "".join(commit.commit_id for commit in found)


DIAMOND = commits({"a": "", "b": "a", "c": "a", "d": "bc", "e": "c"})


def test_a_line_follows_first_parents_to_the_first_commit() -> None:
    assert names(tuple(DIAMOND.line("d"))) == "dba"
    assert names(tuple(DIAMOND.line("e"))) == "eca"
    assert names(tuple(DIAMOND.line(None))) == ""
    assert names(tuple(DIAMOND.line("x"))) == ""


def test_a_line_ends_at_a_parent_that_is_not_known() -> None:
    graph = CommitGraph({"d": DIAMOND.commits["d"]})

    assert names(tuple(graph.line("d"))) == "d"


def test_a_line_of_a_damaged_history_ends_before_a_commit_that_comes_again() -> None:
    loop = commits({"a": "c", "b": "a", "c": "b"})

    assert names(tuple(itertools.islice(loop.line("c"), 9))) == "cba"


@pytest.mark.parametrize(
    ("parents", "head", "gap"),
    [
        ({"a": "", "b": "a"}, "b", None),
        ({"b": "a", "c": "b"}, "c", "a"),
        ({"a": ""}, "x", "x"),
        ({"a": "b", "b": "a", "c": "b"}, "c", "b"),
        ({"a": "", "b": "ax"}, "b", None),
    ],
    ids=["whole", "unknown parent", "unknown head", "loop", "unknown merged parent"],
)
def test_the_gap_of_a_line(parents: Mapping[str, str], head: str, gap: str | None) -> None:
    assert commits(parents).gap(head) == gap


def test_reachable_commits_come_newest_first_and_after_their_children() -> None:
    assert names(DIAMOND.reachable("d")) == "dcba"
    assert names(DIAMOND.reachable("e")) == "eca"
    assert DIAMOND.reachable("x") == ()


def test_a_child_comes_first_even_if_its_clock_was_late() -> None:
    early, late = DIAMOND.commits["a"], DIAMOND.commits["b"]
    moved = {
        "a": GraphCommit(
            commit_id="a",
            branch=None,
            operation_id="a",
            actor="a",
            created_at="2027-01-01T00:00:00.000000+00:00",
            manifest_version=early.manifest_version,
        ),
        "b": late,
    }

    assert names(CommitGraph(moved).reachable("b")) == "ba"


@pytest.mark.parametrize(
    ("parents", "one", "other", "base"),
    [
        pytest.param({"a": ""}, "a", "a", "a", id="the same commit"),
        pytest.param({"a": "", "b": "a"}, "a", "b", "a", id="one is older"),
        pytest.param({"a": "", "b": "a", "c": "a"}, "b", "c", "a", id="a fork"),
        pytest.param(
            {"a": "", "b": "a", "c": "a", "d": "bc", "e": "c"}, "d", "e", "c", id="a merge before"
        ),
        pytest.param(
            # main is a m n, dev is b c d f, early is e: from n it is nearer to a than to b
            {"a": "", "b": "a", "e": "b", "c": "b", "d": "c", "f": "d", "m": "a", "n": "mf"},
            "n",
            "e",
            "b",
            id="an ancestor that is nearer and too old",
        ),
        pytest.param(
            {"a": "", "b": "a", "c": "a", "d": "bc", "e": "cb"}, "d", "e", "c", id="criss-cross"
        ),
        pytest.param({"a": "", "b": ""}, "a", "b", None, id="nothing in common"),
        pytest.param({"a": ""}, "a", "x", None, id="an unknown commit"),
    ],
)
def test_the_base_of_two_commits(
    parents: Mapping[str, str], one: str, other: str, base: str | None
) -> None:
    graph = commits(parents)

    for pair in ((one, other), (other, one)):
        found = graph.base(*pair)
        assert (None if found is None else found.commit_id) == base


def random_history(seed: str) -> dict[str, str]:
    """Up to twelve commits, each but the first with one or two earlier ones as parents."""
    rng = random.Random(seed)
    letters = "abcdefghijkl"[: rng.randint(2, 12)]
    found = {"a": ""}
    for number, name in enumerate(letters[1:], start=1):
        earlier = letters[max(0, number - 5) : number]
        found[name] = "".join(rng.sample(earlier, min(len(earlier), rng.choice([1, 1, 2]))))
    return found


def ancestors(parents: Mapping[str, str], name: str) -> set[str]:
    """The commit itself and everything it descends from."""
    return {name}.union(*(ancestors(parents, parent) for parent in parents[name]))


def steps(parents: Mapping[str, str], start: str, end: str) -> float:
    if start == end:
        return 0
    return min((1 + steps(parents, each, end) for each in parents[start]), default=math.inf)


def best_bases(parents: Mapping[str, str], one: str, other: str) -> set[str]:
    """Common ancestors that no other common ancestor descends from."""
    common = ancestors(parents, one) & ancestors(parents, other)
    return {
        each
        for each in common
        if not any(each in ancestors(parents, later) for later in common - {each})
    }


@pytest.mark.random
def test_a_base_of_random_histories_is_the_nearest_of_the_best() -> None:
    for seed in SEEDS:
        parents = random_history(seed)
        graph = commits(parents)
        for one, other in itertools.combinations(parents, 2):
            best = best_bases(parents, one, other)

            found = graph.base(one, other)

            assert found is not None
            far = {each: steps(parents, one, each) + steps(parents, other, each) for each in best}
            assert found.commit_id in best, (parents, one, other)
            assert far[found.commit_id] == min(far.values()), (parents, one, other)


@pytest.mark.random
def test_a_base_that_is_sure_stays_the_base_whatever_else_becomes_known() -> None:
    sure = 0
    for seed in SEEDS:
        rng, parents = random.Random(seed), random_history(seed)
        whole = commits(parents)
        for one, other in itertools.combinations(parents, 2):
            hidden = set(rng.sample(sorted(parents), rng.randint(0, len(parents) // 2)))
            hidden -= {one, other}
            known = CommitGraph(
                {name: whole.commits[name] for name in parents if name not in hidden}
            )

            found = known.base(one, other)

            if found is not None and known.is_surely_base(found.commit_id, one, other):
                assert found == whole.base(one, other), (parents, hidden, one, other)
                sure += bool(hidden)
            else:
                assert hidden
    assert sure > len(SEEDS)


@pytest.mark.random
def test_what_is_reachable_in_random_histories_is_complete_and_in_order() -> None:
    for seed in SEEDS:
        parents = random_history(seed)
        graph = commits(parents)
        for start in parents:
            found = names(graph.reachable(start))

            assert sorted(found) == sorted(ancestors(parents, start))
            for name in found:
                assert all(found.index(name) < found.index(parent) for parent in parents[name])


def test_commits_are_found_in_manifests_and_in_the_history(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node Note { text: String @key }")
    graph.write({"Note": [{"text": "a"}]})
    root = parse_root(graph_root)
    state = read_manifest(root)
    extra = commits({"x": ""}).commits["x"]
    record_commits(root, [extra, *graph.commits()])

    found = commit_graph(root, state)

    assert set(found.commits) == {"x", *(commit.commit_id for commit in graph.commits())}
    assert found.get("x") == extra
    assert found.get("y") is None


def test_a_base_in_a_further_branch_is_looked_for_only_if_it_can_matter(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node Note { text: String @key }")
    one, two, three = (graph.branches.create(name) for name in ("one", "two", "three"))
    for each in (one, two, three):
        each.write({"Note": [{"text": each.branch}]})
    shared = one.commits(limit=1)[0]
    two.merge("one")
    three.merge("two")
    root = parse_root(graph_root)
    states = {each.branch: each._handle.manifest() for each in (one, two, three)}
    heads = {name: state.head.commit_id for name, state in states.items()}
    asked: list[str] = []

    def further() -> list[GraphCommit]:
        asked.append("further")
        return [row for row in states["two"].rows if isinstance(row, GraphCommit)]

    _, near = base_of(
        root,
        heads["one"],
        heads["two"],
        states=(states["one"], states["two"]),
        further=further,
    )
    assert asked == []
    _, far = base_of(
        root,
        heads["three"],
        heads["one"],
        states=(states["three"], states["one"]),
        further=further,
    )

    assert near == far == shared
    assert asked == ["further"]
