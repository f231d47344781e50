"""Tags: nobody is told of one before it is safe; whoever was told finds it until it is deleted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import ConflictError, NotFoundError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.refs.tags import Tag
from tests.behaviours.histories import content, people, person, put, small_graph
from tests.behind import (
    FailpointReached,
    before_ready,
    claimed_tags,
    failing_at,
    fork_fates,
    meanwhile,
    put_tag_of_first_release,
    raise_floors_above,
    tag_log_length,
)

pytestmark = pytest.mark.behaviour


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


@pytest.fixture
def branched(graph: Graph) -> Graph:
    """On top of `graph`, what a branch wrote: its own line of versions."""
    put(graph.branches.create("dev"), Person=[person("dan", age=4)])
    return graph


def half_made(graph: Graph, name: str, at: str = "main") -> None:
    """A tag whose creator died after the claim."""
    with failing_at("tag.post_put"), pytest.raises(FailpointReached):
        graph.tags.create(name, at=at)


def make(graph: Graph, kind: str, name: str, source: str) -> None:
    if kind == "branch":
        graph.branches.create(name, source=source)
    else:
        graph.tags.create(name, at=source)


CLAIMED = {"branch": "branch.post_claim", "tag": "tag.post_put"}
"""The point at which a name is claimed and nothing else is done."""


def tags_of(graph: Graph) -> dict[str, str]:
    return {tag.tag: tag.commit_id for tag in graph.tags.list()}


def test_a_name_can_be_used_again_and_means_the_new_commit(graph: Graph) -> None:
    for number in range(3):
        commit_id = put(graph, Person=[person("dan", age=number)])
        graph.tags.create("release")
        put(graph, Person=[person("dan", age=-1)])

        assert tags_of(graph) == {"release": commit_id}
        assert people(graph.at("release"))["dan"] == number
        assert people(graph.branches.create(f"from-{number}", source="release"))["dan"] == number
        graph.tags.delete("release")
        assert graph.tags.list() == ()

    assert tag_log_length(graph, "release") == 9


def test_a_tag_that_is_not_ready_is_seen_by_nobody(graph: Graph) -> None:
    half_made(graph, "early")

    assert graph.tags.list() == ()
    for use in (
        lambda: graph.at("early"),
        lambda: graph.branches.create("more", source="early"),
        lambda: graph.tags.create("more", at="early"),
        lambda: graph.merge("early"),
        lambda: graph.tags.delete("early"),
    ):
        with pytest.raises(NotFoundError):
            use()
    assert [branch.name for branch in graph.branches.list()] == ["main"]
    assert [tag.tag for tag in claimed_tags(graph)] == ["early"]


def test_a_tag_that_is_not_ready_protects_what_it_names(branched: Graph) -> None:
    half_made(branched, "early", at="dev")
    branched.branches.delete("dev")

    branched.maintenance.reconcile(dry_run=False)
    assert fork_fates(branched) == ["legitimate"]

    branched.tags.create("early")
    branched.maintenance.reconcile(dry_run=False)
    assert fork_fates(branched) == []


def test_whoever_finds_a_tag_that_does_not_get_ready_takes_its_place(graph: Graph) -> None:
    half_made(graph, "release")
    commit_id = put(graph, Person=[person("dan", age=4)])

    made = graph.tags.create("release", actor="mia")

    assert made.commit_id == commit_id
    assert graph.tags.list() == (made,)
    assert tag_log_length(graph, "release") == 4


def test_whoever_tags_the_same_commit_gets_the_tag_that_is_ready(graph: Graph) -> None:
    with meanwhile("tag.post_put", lambda: graph.tags.create("release", actor="first")) as done:
        made = graph.tags.create("release", actor="slow")

    assert made.actor == "first"
    assert done == [made]
    assert graph.tags.list() == (made,)
    assert graph.tags.create("release", actor="later") == made


def other_commit(graph: Graph) -> Tag:
    put(graph, Person=[person("eve", age=5)])
    return graph.tags.create("release", at="main")


def deleted_and_other_commit(graph: Graph) -> Tag:
    graph.tags.create("release", at="dev")
    graph.tags.delete("release")
    return other_commit(graph)


@pytest.mark.parametrize("act", [other_commit, deleted_and_other_commit])
def test_a_creator_that_lost_its_name_fails_and_leaves_the_tag_of_another_alone(
    branched: Graph, act: Callable[[Graph], Tag]
) -> None:
    with (
        meanwhile("tag.post_put", lambda: act(branched)) as done,
        pytest.raises(ConflictError, match="already has a tag 'release' or is creating one"),
    ):
        branched.tags.create("release", at="dev")

    assert branched.tags.list() == tuple(done)
    assert people(branched.at("release"))["eve"] == 5


@pytest.mark.parametrize(
    ("source", "act", "gone"),
    [
        pytest.param("dev", lambda g: g.branches.delete("dev"), "branch 'dev'", id="branch"),
        pytest.param("held", lambda g: g.tags.delete("held"), "tag 'held'", id="tag"),
        pytest.param(
            "held",
            lambda g: (g.tags.delete("held"), g.tags.create("held", at="dev")),
            "tag 'held'",
            id="tag-made-again",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_nothing_is_made_of_a_source_that_was_deleted_meanwhile(
    branched: Graph,
    source: str,
    act: Callable[[Graph], object],
    gone: str,
    kind: str,
) -> None:
    branched.tags.create("held", at="dev")

    with (
        meanwhile(CLAIMED[kind], lambda: act(branched)),
        pytest.raises(ConflictError, match=f"{gone} was deleted concurrently"),
    ):
        make(branched, kind, "made", source)

    assert "made" not in tags_of(branched)
    assert "made" not in [branch.name for branch in branched.branches.list()]
    assert branched.tags.create("made").commit_id == branched.commits(limit=1)[0].commit_id


@pytest.mark.parametrize("point", ["branch.post_claim", "branch.post_parent", "ready"])
def test_a_name_never_gets_a_tag_while_a_branch_of_it_is_made(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    if point == "ready":
        before_ready(monkeypatch, "branch", lambda: graph.tags.create("both"))
        with pytest.raises(ConflictError):
            graph.branches.create("both")
    else:
        with meanwhile(point, lambda: graph.tags.create("both")), pytest.raises(ConflictError):
            graph.branches.create("both")

    assert list(tags_of(graph)) == ["both"]
    assert [branch.name for branch in graph.branches.list()] == ["main"]
    assert content(graph.at("both")) == content(graph)


@pytest.mark.parametrize("point", ["tag.post_put", "ready"])
def test_a_name_never_gets_a_branch_while_a_tag_of_it_is_made(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    if point == "ready":
        before_ready(monkeypatch, "tag", lambda: graph.branches.create("both"))
        with pytest.raises(ConflictError):
            graph.tags.create("both")
    else:
        with (
            meanwhile(point, lambda: graph.branches.create("both")),
            pytest.raises(ConflictError, match="has a branch 'both'"),
        ):
            graph.tags.create("both")

    assert graph.tags.list() == ()
    assert [branch.name for branch in graph.branches.list()] == ["main", "both"]


def test_whoever_was_told_of_a_tag_finds_it_among_many_who_want_the_name(graph: Graph) -> None:
    commits = [put(graph, Pet=[{"name": f"pet{number}"}]) for number in range(2)]

    def try_to_tag(name: str, number: int) -> str | None:
        try:
            return og.open(graph.root).tags.create(name, at=commits[number % 2]).commit_id
        except ConflictError:
            return None

    for name in ("a", "b", "c"):
        with ThreadPoolExecutor(6) as pool:
            told = set(pool.map(lambda n, name=name: try_to_tag(name, n), range(6))) - {None}

        assert len(told) <= 1
        assert told <= {tags_of(graph).get(name)}


def test_a_tag_that_is_older_than_the_states_is_read_deleted_and_made_again(graph: Graph) -> None:
    tag = graph.tags.create("other")
    put_tag_of_first_release(graph, tag, "old")
    before = content(graph)
    put(graph, Person=[person("dan", age=4)])

    assert content(graph.at("old")) == before
    assert tags_of(graph) == {"old": tag.commit_id, "other": tag.commit_id}
    assert graph.tags.create("old", at=tag.commit_id).tag == "old"
    with pytest.raises(ConflictError):
        graph.tags.create("old")
    assert content(graph.branches.create("made", source="old")) == before
    graph.tags.delete("old")
    assert list(tags_of(graph)) == ["other"]
    graph.tags.create("old")
    assert people(graph.at("old"))["dan"] == 4


def test_what_is_below_the_floor_is_refused_unless_a_branch_or_a_tag_holds_it(
    graph: Graph,
) -> None:
    commit_id = put(graph, Person=[person("dan", age=4)])
    then = graph.at(commit_id)
    expected, version = content(then), then.snapshot().manifest_version
    moment = graph.commits(limit=1)[0].created_at
    put(graph, Person=[person("eve", age=5)])
    half_made(graph, "early", at=commit_id)
    raise_floors_above(graph, then)

    for reference in (commit_id, version, moment):
        for use in (
            graph.at,
            lambda it: graph.tags.create("late", at=it),
            lambda it: graph.branches.create("late", source=it),
            lambda it: graph.diff(it, "main"),
        ):
            with pytest.raises(NotFoundError, match=r"data of node:Person.* is no longer kept"):
                use(reference)
    assert people(graph.at("main"))["eve"] == 5
    assert graph.tags.list() == ()
    put_tag_of_first_release(graph, claimed_tags(graph)[0], "held")
    for reference in (commit_id, version, moment, "held"):
        assert content(graph.at(reference)) == expected
    assert graph.tags.create("late", at=commit_id).commit_id == commit_id
    assert content(graph.branches.create("more", source=commit_id)) == expected


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_floor_that_rises_before_the_claim_was_checked_counts(graph: Graph, kind: str) -> None:
    commit_id = put(graph, Person=[person("dan", age=4)])
    then = graph.at(commit_id)
    put(graph, Person=[person("eve", age=5)])

    with (
        meanwhile(CLAIMED[kind], lambda: raise_floors_above(graph, then)),
        pytest.raises(NotFoundError, match=f"data of node:Person at {commit_id}"),
    ):
        make(graph, kind, "late", commit_id)

    assert graph.tags.list() == ()
    assert claimed_tags(graph) == ()
    assert [branch.name for branch in graph.branches.list()] == ["main"]


def test_a_tag_below_the_floor_can_be_tagged_again_and_branched_from(graph: Graph) -> None:
    commit_id = put(graph, Person=[person("dan", age=4)])
    graph.tags.create("held")
    then = graph.at("held")
    put(graph, Person=[person("eve", age=5)])
    raise_floors_above(graph, then)

    graph.tags.create("again", at="held")
    made = graph.branches.create("made", source="again")
    graph.tags.delete("held")

    assert tags_of(graph) == {"again": commit_id}
    assert content(made) == content(graph.at("again")) == content(then)
    assert made.maintenance.check().ok
