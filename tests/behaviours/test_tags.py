"""Tags: nobody is told of one before it is safe; whoever was told finds it until it is deleted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import omnigraph
from omnigraph.errors import ConflictError, NotFoundError
from omnigraph.graph import Graph
from omnigraph.storage.tags import Tag
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
    put(graph.create_branch("dev"), Person=[person("dan", age=4)])
    return graph


def half_made(graph: Graph, name: str, at: str = "main") -> None:
    """A tag whose creator died after the claim."""
    with failing_at("tag.post_put"), pytest.raises(FailpointReached):
        graph.tag(name, at=at)


def make(graph: Graph, kind: str, name: str, source: str) -> None:
    if kind == "branch":
        graph.create_branch(name, from_=source)
    else:
        graph.tag(name, at=source)


CLAIMED = {"branch": "branch.post_claim", "tag": "tag.post_put"}
"""The point at which a name is claimed and nothing else is done."""


def tags_of(graph: Graph) -> dict[str, str]:
    return {tag.tag: tag.commit_id for tag in graph.tags()}


def test_a_name_can_be_used_again_and_means_the_new_commit(graph: Graph) -> None:
    for number in range(3):
        commit_id = put(graph, Person=[person("dan", age=number)])
        graph.tag("release")
        put(graph, Person=[person("dan", age=-1)])

        assert tags_of(graph) == {"release": commit_id}
        assert people(graph.at("release"))["dan"] == number
        assert people(graph.create_branch(f"from-{number}", from_="release"))["dan"] == number
        graph.delete_tag("release")
        assert graph.tags() == ()

    assert tag_log_length(graph, "release") == 9


def test_a_tag_that_is_not_ready_is_seen_by_nobody(graph: Graph) -> None:
    half_made(graph, "early")

    assert graph.tags() == ()
    for use in (
        lambda: graph.at("early"),
        lambda: graph.create_branch("more", from_="early"),
        lambda: graph.tag("more", at="early"),
        lambda: graph.merge("early"),
        lambda: graph.delete_tag("early"),
    ):
        with pytest.raises(NotFoundError):
            use()
    assert [branch.name for branch in graph.branches()] == ["main"]
    assert [tag.tag for tag in claimed_tags(graph)] == ["early"]


def test_a_tag_that_is_not_ready_protects_what_it_names(branched: Graph) -> None:
    half_made(branched, "early", at="dev")
    branched.delete_branch("dev")

    branched.reconcile(confirm=True)
    assert fork_fates(branched) == ["legitimate"]

    branched.tag("early")
    branched.reconcile(confirm=True)
    assert fork_fates(branched) == []


def test_whoever_finds_a_tag_that_does_not_get_ready_takes_its_place(graph: Graph) -> None:
    half_made(graph, "release")
    commit_id = put(graph, Person=[person("dan", age=4)])

    made = graph.tag("release", actor="mia")

    assert made.commit_id == commit_id
    assert graph.tags() == (made,)
    assert tag_log_length(graph, "release") == 4


def test_whoever_tags_the_same_commit_gets_the_tag_that_is_ready(graph: Graph) -> None:
    with meanwhile("tag.post_put", lambda: graph.tag("release", actor="first")) as done:
        made = graph.tag("release", actor="slow")

    assert made.actor == "first"
    assert done == [made]
    assert graph.tags() == (made,)
    assert graph.tag("release", actor="later") == made


def other_commit(graph: Graph) -> Tag:
    put(graph, Person=[person("eve", age=5)])
    return graph.tag("release", at="main")


def deleted_and_other_commit(graph: Graph) -> Tag:
    graph.tag("release", at="dev")
    graph.delete_tag("release")
    return other_commit(graph)


@pytest.mark.parametrize("act", [other_commit, deleted_and_other_commit])
def test_a_creator_that_lost_its_name_fails_and_leaves_the_tag_of_another_alone(
    branched: Graph, act: Callable[[Graph], Tag]
) -> None:
    with (
        meanwhile("tag.post_put", lambda: act(branched)) as done,
        pytest.raises(ConflictError, match="already has a tag 'release' or is creating one"),
    ):
        branched.tag("release", at="dev")

    assert branched.tags() == tuple(done)
    assert people(branched.at("release"))["eve"] == 5


@pytest.mark.parametrize(
    ("source", "act", "gone"),
    [
        pytest.param("dev", lambda g: g.delete_branch("dev"), "branch 'dev'", id="branch"),
        pytest.param("held", lambda g: g.delete_tag("held"), "tag 'held'", id="tag"),
        pytest.param(
            "held",
            lambda g: (g.delete_tag("held"), g.tag("held", at="dev")),
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
    branched.tag("held", at="dev")

    with (
        meanwhile(CLAIMED[kind], lambda: act(branched)),
        pytest.raises(ConflictError, match=f"{gone} was deleted concurrently"),
    ):
        make(branched, kind, "made", source)

    assert "made" not in tags_of(branched)
    assert "made" not in [branch.name for branch in branched.branches()]
    assert branched.tag("made").commit_id == branched.commits(limit=1)[0].commit_id


@pytest.mark.parametrize("point", ["branch.post_claim", "branch.post_parent", "ready"])
def test_a_name_never_gets_a_tag_while_a_branch_of_it_is_made(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    if point == "ready":
        before_ready(monkeypatch, "branch", lambda: graph.tag("both"))
        with pytest.raises(ConflictError):
            graph.create_branch("both")
    else:
        with meanwhile(point, lambda: graph.tag("both")), pytest.raises(ConflictError):
            graph.create_branch("both")

    assert list(tags_of(graph)) == ["both"]
    assert [branch.name for branch in graph.branches()] == ["main"]
    assert content(graph.at("both")) == content(graph)


@pytest.mark.parametrize("point", ["tag.post_put", "ready"])
def test_a_name_never_gets_a_branch_while_a_tag_of_it_is_made(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    if point == "ready":
        before_ready(monkeypatch, "tag", lambda: graph.create_branch("both"))
        with pytest.raises(ConflictError):
            graph.tag("both")
    else:
        with (
            meanwhile(point, lambda: graph.create_branch("both")),
            pytest.raises(ConflictError, match="has a branch 'both'"),
        ):
            graph.tag("both")

    assert graph.tags() == ()
    assert [branch.name for branch in graph.branches()] == ["main", "both"]


def test_whoever_was_told_of_a_tag_finds_it_among_many_who_want_the_name(graph: Graph) -> None:
    commits = [put(graph, Pet=[{"name": f"pet{number}"}]) for number in range(2)]

    def try_to_tag(name: str, number: int) -> str | None:
        try:
            return omnigraph.open(graph.root).tag(name, at=commits[number % 2]).commit_id
        except ConflictError:
            return None

    for name in ("a", "b", "c"):
        with ThreadPoolExecutor(6) as pool:
            told = set(pool.map(lambda n, name=name: try_to_tag(name, n), range(6))) - {None}

        assert len(told) <= 1
        assert told <= {tags_of(graph).get(name)}


def test_a_tag_that_is_older_than_the_states_is_read_deleted_and_made_again(graph: Graph) -> None:
    tag = graph.tag("other")
    put_tag_of_first_release(graph, tag, "old")
    before = content(graph)
    put(graph, Person=[person("dan", age=4)])

    assert content(graph.at("old")) == before
    assert tags_of(graph) == {"old": tag.commit_id, "other": tag.commit_id}
    assert graph.tag("old", at=tag.commit_id).tag == "old"
    with pytest.raises(ConflictError):
        graph.tag("old")
    assert content(graph.create_branch("made", from_="old")) == before
    graph.delete_tag("old")
    assert list(tags_of(graph)) == ["other"]
    graph.tag("old")
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
            lambda it: graph.tag("late", at=it),
            lambda it: graph.create_branch("late", from_=it),
            lambda it: graph.diff(it, "main"),
        ):
            with pytest.raises(NotFoundError, match=r"data of node:Person.* is no longer kept"):
                use(reference)
    assert people(graph.at("main"))["eve"] == 5
    assert graph.tags() == ()
    put_tag_of_first_release(graph, claimed_tags(graph)[0], "held")
    for reference in (commit_id, version, moment, "held"):
        assert content(graph.at(reference)) == expected
    assert graph.tag("late", at=commit_id).commit_id == commit_id
    assert content(graph.create_branch("more", from_=commit_id)) == expected


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

    assert graph.tags() == ()
    assert claimed_tags(graph) == ()
    assert [branch.name for branch in graph.branches()] == ["main"]


def test_a_tag_below_the_floor_can_be_tagged_again_and_branched_from(graph: Graph) -> None:
    commit_id = put(graph, Person=[person("dan", age=4)])
    graph.tag("held")
    then = graph.at("held")
    put(graph, Person=[person("eve", age=5)])
    raise_floors_above(graph, then)

    graph.tag("again", at="held")
    made = graph.create_branch("made", from_="again")
    graph.delete_tag("held")

    assert tags_of(graph) == {"again": commit_id}
    assert content(made) == content(graph.at("again")) == content(then)
    assert made.check().ok
