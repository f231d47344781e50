"""Earlier states: whatever names one, the rows are those of the moment it was made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import (
    Content,
    content,
    forks,
    knows,
    people,
    person,
    pins,
    put,
    small_graph,
)
from tests.behind import small_limits
from tests.gate.selection import for_gate

pytestmark = pytest.mark.behaviour


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A state of a graph, written down when it was the latest."""

    commit_id: str
    version: int
    created_at: datetime
    content: Content


def record(graph: Graph) -> Recorded:
    commit = graph.commits(limit=1)[0]
    return Recorded(
        commit_id=commit.commit_id,
        version=graph.snapshot().manifest_version,
        created_at=datetime.fromisoformat(commit.created_at),
        content=content(graph),
    )


def varied_commits(graph: Graph) -> list[Recorded]:
    """Commits of all kinds; every state on the way, the first included."""
    states = [record(graph)]
    for act in (
        lambda: put(graph, Person=[person("dan", age=4)]),
        lambda: put(graph, Person=[person("ann", age=10)], Pet=[{"name": "kit"}]),
        lambda: graph.delete({"Person": ["bob"]}),
        lambda: put(graph, Knows=[knows("k", "ann", "dan", since=7)]),
        lambda: graph.write({"Pet": [{"name": "only"}], "Owns": []}, mode="overwrite"),
    ):
        act()
        states.append(record(graph))
    return states


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests keep 4 versions and are folded after 4 commits, so little is old already."""
    small_limits(monkeypatch, manifest_versions=4, commits_in_manifest=4)


# A branch has all that main has: references to commits of its own, and to those of its parent.
@pytest.mark.parametrize("branch", for_gate(["main", "dev"], lambda branch: branch == "dev"))
def test_every_reference_gives_the_rows_of_its_moment(graph: Graph, branch: str) -> None:
    if branch != "main":
        put(graph.branches.create(branch), Person=[person("own", age=0)])
    graph = graph.checkout(branch)
    states = varied_commits(graph)

    for number, state in enumerate(states):
        graph.tags.create(f"state-{number}", at=state.commit_id)
        references: list[str | int | datetime] = [
            state.commit_id,
            state.commit_id.lower(),
            f" {state.commit_id} ",
            state.version,
            str(state.version),
            f"v{state.version}",
            state.created_at,
            state.created_at.isoformat(),
            state.created_at.replace(tzinfo=None),
            state.created_at.astimezone(timezone(timedelta(hours=5))),
            state.created_at + timedelta(microseconds=1),
            f"state-{number}",
        ]
        snapshots = [graph.at(each).snapshot() for each in references]

        assert content(graph.at(state.commit_id)) == state.content
        assert {each.commit_id for each in snapshots} == {state.commit_id}
        assert all(
            each.tables[key].pin == snapshots[0].tables[key].pin
            for each in snapshots
            for key in each.tables
        )
    assert content(graph.at(branch)) == states[-1].content


def test_a_moment_between_two_commits_is_the_earlier_one(graph: Graph) -> None:
    states = varied_commits(graph)

    for earlier, later in pairwise(states):
        middle = earlier.created_at + (later.created_at - earlier.created_at) / 2
        assert graph.at(middle).commit_id == earlier.commit_id
        just_before = later.created_at - timedelta(microseconds=1)
        assert graph.at(just_before).commit_id == earlier.commit_id
    assert graph.at(datetime(9999, 1, 1, tzinfo=UTC)).commit_id == states[-1].commit_id


def test_a_past_graph_stays_what_it_is_and_cannot_be_written(graph: Graph) -> None:
    past = graph.at("main")
    before = content(past)
    put(graph, Person=[person("dan", age=4)])

    assert content(past) == before
    assert past.commit_id != graph.commits(limit=1)[0].commit_id
    assert not hasattr(past, "write")
    assert not hasattr(past, "merge")


def test_states_whose_manifest_versions_are_gone_are_put_together_again(
    graph: Graph, short_memory: None
) -> None:
    states = varied_commits(graph)
    for number in range(8):
        put(graph, Pet=[{"name": f"later{number}"}])

    for state in states:
        with pytest.raises(NotFoundError, match="no longer kept") as caught:
            graph.at(state.version)
        assert "can be read" in caught.value.next_step
        past = graph.at(state.commit_id)
        assert content(past) == state.content
        at_its_time = graph.at(state.created_at)
        assert (at_its_time.commit_id, pins(at_its_time)) == (state.commit_id, pins(past))
    assert graph.maintenance.check().ok


def test_states_of_a_branch_stay_readable_through_folds_and_merges(
    graph: Graph, short_memory: None
) -> None:
    dev = graph.branches.create("dev")
    states = varied_commits(dev)
    put(graph, Person=[person("eve", age=5)])
    dev.merge("main")
    states.append(record(dev))
    for number in range(5):
        put(dev, Pet=[{"name": f"later{number}"}])
    graph.merge("dev")
    for number in range(5):
        put(graph, Pet=[{"name": f"main{number}"}])

    for state in states:
        past = dev.at(state.commit_id)
        assert content(past) == state.content
        assert pins(graph.at(state.commit_id)) == pins(past)
        assert pins(dev.at(state.created_at)) == pins(past)
    assert dev.maintenance.check().ok
    assert graph.maintenance.check().ok


def test_time_on_a_branch_before_the_fork_is_that_of_its_parent(graph: Graph) -> None:
    states = varied_commits(graph)
    dev = graph.branches.create("dev", source=states[2].commit_id)
    put(dev, Pet=[{"name": "own"}])

    assert dev.at(states[1].created_at).commit_id == states[1].commit_id
    assert content(dev.at(states[1].created_at)) == states[1].content
    assert dev.at(states[4].created_at).commit_id == states[2].commit_id


def test_a_version_of_a_branch_counts_on_from_the_fork(graph: Graph) -> None:
    forked = record(graph)
    dev = graph.branches.create("dev")
    put(dev, Pet=[{"name": "kit"}])
    first = record(dev)

    assert first.version == forked.version + 1
    assert content(dev.at(forked.version)) == forked.content
    assert content(dev.at(first.version)) == first.content
    with pytest.raises(NotFoundError) as caught:
        dev.at(forked.version - 1)
    assert f"Versions {forked.version} to {first.version}" in caught.value.next_step


def test_a_tag_outlives_its_branch(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    tag = dev.tags.create("release", actor="mia")
    expected = content(dev)
    put(dev, Person=[person("eve", age=5)])
    dev.delete({"Person": ["dan"]})

    graph.branches.delete("dev")

    assert content(graph.at("release")) == expected
    assert [(each.tag, each.branch, each.actor) for each in graph.tags.list()] == [
        ("release", "dev", "mia")
    ]
    assert tag.commit_id == graph.at("release").commit_id
    again = graph.branches.create("dev")
    put(again, Person=[person("gus", age=7)])
    assert content(graph.at("release")) == expected


def test_a_tag_outlives_the_manifest_versions_around_it(graph: Graph, short_memory: None) -> None:
    put(graph, Person=[person("dan", age=4)])
    graph.tags.create("release")
    expected = content(graph)
    for number in range(8):
        put(graph, Pet=[{"name": f"later{number}"}])

    assert content(graph.at("release")) == expected
    made = graph.branches.create("hotfix", source="release")
    assert content(made) == expected
    assert forks(made) == set()


def test_a_tag_is_made_once_and_gone_when_deleted(graph: Graph) -> None:
    first = put(graph, Person=[person("dan", age=4)])
    made = graph.tags.create("release")

    assert graph.tags.create("release") == made
    put(graph, Person=[person("eve", age=5)])
    with pytest.raises(ConflictError, match="already has a tag 'release'"):
        graph.tags.create("release")
    assert graph.at("release").commit_id == first
    graph.tags.delete("release")
    assert graph.tags.list() == ()
    with pytest.raises(NotFoundError):
        graph.at("release")
    with pytest.raises(NotFoundError, match="has no tag 'release'"):
        graph.tags.delete("release")
    graph.tags.create("release")
    assert people(graph.at("release"))["eve"] == 5


@pytest.mark.parametrize("name", ["main", "a/b", "__t", "2026-01-01", "v17", "", "a b", "x" * 161])
def test_a_tag_has_a_name_of_its_own(graph: Graph, name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        graph.tags.create(name)

    assert caught.value.next_step
    assert graph.tags.list() == ()


UNKNOWN: tuple[str | int, ...] = (
    *("nope", "mian", "01M7FMJP2JQ64ACNXDJ6GSS1KF", "2001-01-01", "0001-01-01", "v99", 99),
    *("v99999999999999999999999999", "99999999999999999999999999", -1, 0, "__x", "a b"),
    *("gone", "gone@/00000002", "made@/00000003", "..", "../x", "/a", "a/", "a//b", "*"),
    *("http://x", "a\0b", "日本", "x" * 5000, "main/", "2026-13-01", "a.json", "\ud800"),
)


@pytest.fixture
def remade(graph_root: str) -> Graph:
    """A graph with two branches more than it had: made was made twice, gone is gone."""
    graph = og.init(graph_root, schema="node N { name: String @key }")
    put(graph, N=[{"name": "n"}])
    for name in ("made", "gone"):
        graph.branches.create(name)
        graph.branches.delete(name)
    graph.branches.create("made")
    return graph


def test_what_does_not_exist_is_not_found_with_a_next_step(remade: Graph) -> None:
    before = remade.snapshot()
    uses: list[Callable[[str | int], object]] = [
        remade.at,
        remade.merge,
        lambda it: remade.branches.create("more", source=it),
        lambda it: remade.tags.create("more", at=it),
        lambda it: remade.checkout(it) if isinstance(it, str) else remade.at(it),
    ]

    for reference in UNKNOWN:
        for use in uses:
            if use is uses[-1] and reference in {"2001-01-01", "0001-01-01", "v99"}:
                continue
            with pytest.raises(NotFoundError) as caught:
                pytest.fail(f"{reference!r:.40} is {use(reference)}")
            assert caught.value.next_step, reference
            assert len(str(caught.value)) < 1000

    assert remade.snapshot() == before
    assert remade.tags.list() == ()
    assert [branch.name for branch in remade.branches.list()] == ["main", "made"]


def test_what_names_nothing_is_refused(remade: Graph) -> None:
    nothing: tuple[object, ...] = ("", "  ", None, True, 1.5, b"main", ["main"])

    for reference in nothing:
        with pytest.raises(InvalidInputError) as caught:
            remade.at(reference)  # type: ignore[arg-type]
        assert "a branch, a tag, a commit" in caught.value.next_step
