"""Merging whole graphs: what is recorded, what moves, how conflicts are told and decided."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.errors import (
    BranchGoneError,
    InvalidInputError,
    MergeConflictError,
    NotFoundError,
)
from omnigraph_lake.graph import Graph
from omnigraph_lake.merge.merge import MergeResult
from omnigraph_lake.merge.plan import MergeOutcome
from tests.behaviours.copies import made_once
from tests.behaviours.histories import (
    Row,
    conflicts_of,
    content,
    forks,
    kinds,
    knows,
    owns,
    people,
    person,
    pins,
    put,
    small_graph,
)
from tests.behind import data_files, meanwhile, row_ids, rows_with_blobs, small_limits
from tests.gate.selection import for_gate, is_nightly

pytestmark = pytest.mark.behaviour


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


def counts_of(result: MergeResult) -> dict[str, tuple[int, int, int]]:
    """Rows inserted, updated and deleted, by table."""
    return {key: (each.inserted, each.updated, each.deleted) for key, each in result.tables.items()}


def test_a_merge_is_one_commit_with_two_parents_and_an_actor(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    theirs = put(dev, Pet=[{"name": "kit"}])
    ours = put(graph, Person=[person("eve", age=5)])
    count = len(graph.commits())

    result = graph.merge("dev", actor="mia")

    commit = graph.commits(limit=1)[0]
    assert result.outcome is MergeOutcome.MERGED
    assert (commit.parent_id, commit.merged_parent_id, commit.actor) == (ours, theirs, "mia")
    assert (commit.commit_id, result.source_commit_id) == (result.commit_id, theirs)
    assert len([each for each in graph.commits() if each.branch is None]) == count + 1
    assert counts_of(result) == {"node:Person": (1, 0, 0), "node:Pet": (1, 0, 0)}
    assert people(graph) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4, "eve": 5}
    assert set(content(graph)["Pet"]) == {"rex", "kit"}
    assert graph.maintenance.check().ok


def test_a_fast_forward_makes_the_target_what_the_source_is(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4), person("ann", age=10)])
    dev.delete({"Person": ["bob"]})
    theirs = dev.commits(limit=1)[0].commit_id

    result = graph.merge("dev", actor="mia")

    commit = graph.commits(limit=1)[0]
    assert result.outcome is MergeOutcome.FAST_FORWARD
    assert (commit.merged_parent_id, commit.actor) == (theirs, "mia")
    assert content(graph) == content(dev)
    assert counts_of(result) == {"node:Person": (1, 1, 1), "edge:Knows": (0, 0, 1)}
    assert forks(graph) == set()
    assert graph.maintenance.check().ok


def test_merging_again_is_up_to_date_and_adds_no_commit(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    graph.merge("dev")
    before = (graph.snapshot(), graph.commits())

    result = graph.merge("dev")

    assert result.outcome is MergeOutcome.UP_TO_DATE
    assert result.commit_id is None
    assert result.tables == {}
    assert (graph.snapshot(), graph.commits()) == before


def test_a_branch_nobody_wrote_to_is_up_to_date_both_ways(graph: Graph) -> None:
    dev = graph.branches.create("dev")

    assert graph.merge("dev").outcome is MergeOutcome.UP_TO_DATE
    assert dev.merge("main").outcome is MergeOutcome.UP_TO_DATE
    put(graph, Pet=[{"name": "kit"}])
    assert graph.merge("dev").outcome is MergeOutcome.UP_TO_DATE


@pytest.mark.parametrize("diverged", [False, True], ids=["fast forward", "merged"])
def test_edits_that_come_to_nothing_are_recorded_and_move_no_table(
    graph: Graph, diverged: bool
) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("bob", age=20)], Pet=[{"name": "kit"}])
    put(dev, Person=[person("bob", age=2)])
    dev.delete({"Pet": ["kit"]})
    if diverged:
        put(graph, Person=[person("eve", age=5)])
    before, moved = content(graph), pins(graph)

    result = graph.merge("dev")

    assert result.commit_id is not None
    assert result.tables == {}
    assert graph.commits(limit=1)[0].merged_parent_id == result.source_commit_id
    assert content(graph) == before
    assert pins(graph) == moved
    assert graph.merge("dev").outcome is MergeOutcome.UP_TO_DATE


def test_a_type_that_a_branch_never_wrote_is_pointed_at_main_and_no_row_is_written(
    graph: Graph,
) -> None:
    dev = graph.branches.create("dev")
    put(dev, Pet=[{"name": "kit"}])
    put(graph, Person=[person("eve", age=5)], Knows=[knows("k", "eve", "ann")])
    files = data_files(graph)

    result = dev.merge("main")

    assert result.outcome is MergeOutcome.MERGED
    assert data_files(graph) == files
    for key in ("node:Person", "edge:Knows", "edge:Owns"):
        assert dev.snapshot().tables[key].pin == graph.snapshot().tables[key].pin
    assert forks(dev) == {"Pet"}
    assert people(dev)["eve"] == 5
    put(dev, Person=[person("fay", age=6)])
    assert forks(dev) == {"Pet", "Person"}
    assert "fay" not in people(graph)
    assert people(dev) == {"ann": 1, "bob": 2, "cyd": 3, "eve": 5, "fay": 6}
    assert dev.maintenance.check().ok


def test_a_pointed_type_is_checked_against_what_the_branch_deleted(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.delete({"Person": ["cyd"]})
    put(graph, Owns=[owns("cyd-rex", "cyd", "rex")])

    found = conflicts_of(dev, "main")

    assert kinds(found) == {("edge:Owns", "cyd-rex", "src", "missing_endpoint")}


def test_a_branch_merges_into_a_branch(graph: Graph) -> None:
    one, other = graph.branches.create("one"), graph.branches.create("other")
    put(one, Person=[person("dan", age=4)])
    put(other, Person=[person("eve", age=5)], Pet=[{"name": "kit"}])
    main = content(graph)

    result = graph.merge("one", into="other")

    assert result.outcome is MergeOutcome.MERGED
    assert people(other) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4, "eve": 5}
    assert people(one) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    assert content(graph) == main
    assert other.commits(limit=1)[0].branch == "other"
    assert other.maintenance.check().ok
    assert one.merge("other").outcome is MergeOutcome.FAST_FORWARD
    assert content(one) == content(other)


def test_a_branch_of_a_branch_merges_back_into_both(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    inner = dev.branches.create("inner")
    put(inner, Person=[person("dan", age=40), person("eve", age=5)])

    assert dev.merge("inner").outcome is MergeOutcome.FAST_FORWARD
    assert people(dev) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 40, "eve": 5}
    assert graph.merge("inner").outcome is MergeOutcome.FAST_FORWARD
    assert content(graph) == content(inner)
    assert graph.maintenance.check().ok


# How versions and times are understood is proven in test_branches.py and test_time_travel.py.
@pytest.mark.parametrize(
    "how", for_gate(["tag", "commit", "version", "time"], lambda how: how in ("tag", "commit"))
)
def test_a_tag_commit_version_or_time_can_be_merged(graph: Graph, how: str) -> None:
    dev = graph.branches.create("dev")
    commit_id = put(dev, Person=[person("dan", age=4)])
    reference = {
        "tag": dev.tags.create("first").tag,
        "commit": commit_id,
        "version": str(dev.snapshot().manifest_version),
        "time": dev.commits(limit=1)[0].created_at,
    }[how]
    put(dev, Person=[person("dan", age=40), person("eve", age=5)])
    put(graph, Person=[person("fay", age=6)])
    seen_from = graph if how in ("tag", "commit") else dev

    result = seen_from.merge(reference, into="main")

    assert result.outcome is MergeOutcome.MERGED
    assert result.source_commit_id == commit_id
    assert people(graph) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4, "fay": 6}
    assert graph.merge("dev").outcome is MergeOutcome.MERGED
    assert people(graph) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 40, "eve": 5, "fay": 6}


def test_a_tag_of_a_deleted_branch_can_be_merged(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    dev.tags.create("kept")
    put(dev, Person=[person("eve", age=5)])
    graph.branches.delete("dev")
    put(graph, Person=[person("fay", age=6)])

    result = graph.merge("kept")

    assert result.outcome is MergeOutcome.MERGED
    assert people(graph) == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4, "fay": 6}
    assert graph.maintenance.check().ok


def test_merges_both_ways_again_and_again_take_only_what_is_new(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    expected = people(graph)
    for number in range(2 if is_nightly() else 1):
        put(dev, Person=[person(f"d{number}", age=number), person("ann", age=100 + number)])
        put(graph, Person=[person(f"m{number}", age=number), person("bob", age=200 + number)])
        graph.merge("dev")
        expected |= {f"d{number}": number, f"m{number}": number, "ann": 100 + number}
        expected["bob"] = 200 + number
        assert people(graph) == expected
        assert dev.merge("main").outcome is MergeOutcome.FAST_FORWARD
        assert people(dev) == expected
    dev.delete({"Person": ["d0"]})
    put(graph, Person=[person("m0", age=11)])
    dev.merge("main")
    assert graph.merge("dev").outcome is MergeOutcome.FAST_FORWARD
    assert "d0" not in people(graph)
    assert people(graph)["m0"] == 11
    assert graph.maintenance.check().ok
    assert dev.maintenance.check().ok


@pytest.mark.parametrize("is_deleted", for_gate([True, False], bool))
def test_what_came_over_three_branches_and_was_changed_since_stays_as_it_is(
    graph: Graph, is_deleted: bool
) -> None:
    one, two, three = (graph.branches.create(name) for name in ("one", "two", "three"))
    for branch in (one, two, three):
        names = (f"of-{branch.branch}", f"also-{branch.branch}")
        put(branch, Person=[person(name, age=0) for name in names])
    two.merge("one")
    three.merge("two")
    one.delete({"Person": ["of-one"]})
    put(one, Person=[person("also-one", age=1)])
    if is_deleted:
        graph.branches.delete("two")

    one.merge("three")

    others = dict.fromkeys(("of-two", "also-two", "of-three", "also-three"), 0)
    assert people(one) == {"ann": 1, "bob": 2, "cyd": 3, "also-one": 1, **others}


def test_the_base_is_never_older_than_another_that_both_sides_have(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    early = dev.branches.create("early")
    put(early, Person=[person("eve", age=5)])
    for number in range(4):
        put(dev, Pet=[{"name": f"pet{number}"}])
    dev.delete({"Person": ["dan"]})
    put(graph, Person=[person("fay", age=6)])
    graph.merge("dev")

    graph.merge("early")

    assert people(graph) == {"ann": 1, "bob": 2, "cyd": 3, "eve": 5, "fay": 6}


def test_two_branches_that_merged_a_third_can_be_merged_when_that_is_deleted(
    graph: Graph,
) -> None:
    one, two, three = (graph.branches.create(name) for name in ("one", "two", "three"))
    for each in (one, two, three):
        put(each, Person=[person(f"of-{each.branch}", age=0), person("gone", age=0)])
    one.merge("two")
    three.merge("two")
    graph.branches.delete("two")
    one.delete({"Person": ["of-two"]})

    one.merge("three")

    assert set(people(one)) == {"ann", "bob", "cyd", "gone", "of-one", "of-three"}
    assert one.maintenance.check().ok


def test_a_base_whose_commits_were_folded_is_still_found(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_limits(monkeypatch, manifest_versions=4, commits_in_manifest=4)
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    first = graph.merge("dev")
    for number in range(6):
        put(graph, Pet=[{"name": f"main{number}"}])
        put(dev, Pet=[{"name": f"dev{number}"}])
    graph.delete({"Person": ["dan"]})

    result = graph.merge("dev")

    assert result.base_commit_id == first.source_commit_id
    assert people(graph) == {"ann": 1, "bob": 2, "cyd": 3}
    assert len(content(graph)["Pet"]) == 13
    assert graph.maintenance.check().ok


def test_a_branch_cannot_be_merged_into_itself_or_from_nowhere(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Pet=[{"name": "kit"}])
    before = graph.snapshot()

    for handle, source, into in (
        (graph, "main", None),
        (dev, "dev", None),
        (graph, " dev ", "dev"),
    ):
        with pytest.raises(InvalidInputError, match="into itself"):
            handle.merge(source, into=into)
    for source, into in (("nope", None), ("dev", "nope"), ("dev", "__x")):
        with pytest.raises(NotFoundError):
            graph.merge(source, into=into)

    assert graph.snapshot() == before


def test_a_commit_of_the_target_itself_is_up_to_date(graph: Graph) -> None:
    old = put(graph, Pet=[{"name": "kit"}])
    put(graph, Pet=[{"name": "kat"}])

    assert graph.merge(old).outcome is MergeOutcome.UP_TO_DATE


def test_a_merge_with_the_operation_id_of_an_earlier_one_merges_once(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4)])
    operation_id = str(ULID())
    first = graph.merge("dev", operation_id=operation_id)
    put(dev, Person=[person("eve", age=5)])
    before = graph.snapshot()

    again = graph.merge("dev", operation_id=operation_id)

    assert again.commit_id == first.commit_id
    assert graph.snapshot() == before
    assert graph.outcome(operation_id).value == "published"


ROUTES = pytest.mark.parametrize(
    ("diverged", "by_row_ids"),
    [(False, False), (False, True), (True, True)],
    ids=["fast forward by contents", "fast forward by row ids", "merged"],
)


@ROUTES
def test_rows_keep_their_row_ids_through_a_merge(
    graph: Graph, diverged: bool, by_row_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_row_ids:
        small_limits(monkeypatch, rows_compared=0)
    dev = graph.branches.create("dev")
    put(dev, Person=[person("ann", age=10), person("dan", age=4)])
    dev.delete({"Person": ["cyd"]})
    if diverged:
        put(graph, Person=[person("bob", age=20), person("eve", age=5)])
    before = row_ids(graph, "node:Person")

    graph.merge("dev")

    after = row_ids(graph, "node:Person")
    assert set(after) == (set(before) - {"cyd"}) | {"dan"}
    assert {name: after[name] for name in before if name != "cyd"} == {
        name: row_id for name, row_id in before.items() if name != "cyd"
    }
    assert len(set(after.values())) == len(after)


def test_many_rows_changed_on_both_sides_in_turn_go_together(graph: Graph) -> None:
    def row(number: int, *, age: bool = False, city: bool = False) -> Row:
        values = {"age": -1 - number if age else number, "city": "new" if city else "old"}
        return person(f"p{number:05}", **values)

    count = 10_000
    graph.write({"Person": [row(number) for number in range(count)]})
    dev = graph.branches.create("dev")
    put(dev, Person=[row(number, age=True) for number in range(0, count, 3)])
    dev.delete({"Person": [f"p{number:05}" for number in range(1, count, 15)]})
    put(graph, Person=[row(number, city=True) for number in range(0, count, 5)])
    put(graph, Person=[person("zoe", age=26)])

    result = graph.merge("dev")

    changed = (0, len(range(0, count, 3)), len(range(1, count, 15)))
    assert counts_of(result) == {"node:Person": changed}
    found = content(graph)["Person"]
    for number in range(count):
        name = f"p{number:05}"
        if number % 15 == 1:
            assert name not in found
        else:
            expected = row(number, age=number % 3 == 0, city=number % 5 == 0)
            assert found[name] == {"id": name, **expected}
    assert found["zoe"]["age"] == 26


def during_merge(act: Callable[[], object]) -> AbstractContextManager[object]:
    """Act once, when a merge has staged its rows and not published them yet."""
    return meanwhile("merge.staged", act)


def test_a_target_that_moves_meanwhile_is_merged_into_again(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("dan", age=4), person("bob", age=20)])
    older = str(ULID())

    with during_merge(lambda: graph.write({"Person": [person("eve", age=5)]}, operation_id=older)):
        result = graph.merge("dev")

    assert result.outcome is MergeOutcome.MERGED
    assert people(graph) == {"ann": 1, "bob": 20, "cyd": 3, "dan": 4, "eve": 5}
    merged, written, *_ = graph.commits()
    assert merged.commit_id == result.commit_id
    assert merged.parent_id == written.commit_id
    assert written.operation_id == older
    assert graph.maintenance.check().ok


def test_a_target_that_moves_into_a_conflict_is_left_as_it_is(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person("bob", age=20)])
    older = str(ULID())

    def write() -> object:
        rows = {"Person": [person("bob", age=21)]}
        return graph.write(rows, mode="merge", operation_id=older)

    with during_merge(write), pytest.raises(MergeConflictError) as caught:
        graph.merge("dev")

    assert kinds(caught.value.conflicts.to_pylist()) == {  # type: ignore[attr-defined]
        ("node:Person", "bob", "age", "divergent_update")
    }
    assert people(graph)["bob"] == 21
    assert graph.commits(limit=1)[0].operation_id == older
    assert graph.maintenance.check().ok


def test_a_source_that_moves_meanwhile_is_merged_as_it_was(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    captured = put(dev, Person=[person("dan", age=4)])

    with during_merge(lambda: put(dev, Person=[person("dan", age=40)])):
        result = graph.merge("dev")

    assert result.source_commit_id == captured
    assert graph.commits(limit=1)[0].merged_parent_id == captured
    assert people(graph)["dan"] == 4
    assert graph.merge("dev").outcome is MergeOutcome.MERGED
    assert people(graph)["dan"] == 40


def test_a_target_that_is_deleted_and_made_anew_meanwhile_is_not_merged_into(
    graph: Graph,
) -> None:
    dev = graph.branches.create("dev")
    put(dev, Pet=[{"name": "old"}])
    put(graph, Person=[person("eve", age=5)], Pet=[{"name": "kit"}])

    def remake() -> None:
        graph.branches.delete("dev")
        graph.branches.create("dev", source=graph.commits()[1].commit_id)

    with during_merge(remake), pytest.raises((BranchGoneError, NotFoundError)):
        dev.merge("main")

    assert people(dev) == {"ann": 1, "bob": 2, "cyd": 3}
    assert set(content(dev)["Pet"]) == {"rex"}
    assert len(dev.commits()) == len(graph.commits()) - 1
    assert dev.maintenance.check().ok


@made_once
def clashing_graph(root: str) -> None:
    """The branch dev and main changed bob in two columns and cyd in one, and both made dan."""
    graph = small_graph(root)
    dev = graph.branches.create("dev")
    put(
        dev,
        Person=[
            person("bob", age=20, city="Bern"),
            person("cyd", age=30),
            person("dan", age=40, city="Rome"),
        ],
    )
    put(
        graph,
        Person=[
            person("bob", age=21, city="Bonn"),
            person("cyd", age=31, city="Cork"),
            person("dan", age=41, city="Rome"),
        ],
    )


@pytest.fixture
def clashing(graph_root: str) -> Graph:
    return clashing_graph(graph_root)


OURS = {"bob": (21, "Bonn"), "cyd": (31, "Cork"), "dan": (41, "Rome")}
THEIRS = {"bob": (20, "Bern"), "cyd": (30, "Cork"), "dan": (40, "Rome")}
BY_COLUMN = {"bob": (20, "Bonn"), "cyd": (30, "Cork"), "dan": (40, "Rome")}
MAPPING = {"default": "ours", "types": {"Person": {"columns": {"age": "theirs"}}}}
RESOLUTIONS: list[ParameterSet] = [
    pytest.param("ours", OURS, {"default": "ours"}, id="ours"),
    pytest.param("theirs", THEIRS, {"default": "theirs"}, id="theirs"),
    pytest.param("newest", OURS, {"default": "newest"}, id="newest"),
    pytest.param(
        {"types": {"Person": {"default": "theirs"}}},
        THEIRS,
        {"types": {"node:Person": {"default": "theirs"}}},
        id="type",
    ),
    pytest.param(
        MAPPING,
        BY_COLUMN,
        {"default": "ours", "types": {"node:Person": {"columns": {"age": "theirs"}}}},
        id="column",
    ),
    pytest.param(json.dumps({"default": "theirs"}), THEIRS, {"default": "theirs"}, id="text"),
]
"""What the forms of a resolution mean is proven in tests/merge/test_conflicts.py."""


CHOSEN_RESOLUTIONS = for_gate(RESOLUTIONS, lambda case: case.id in ("ours", "newest", "column"))


@pytest.mark.parametrize(("resolve", "expected", "recorded"), CHOSEN_RESOLUTIONS)
def test_a_resolution_decides_and_is_recorded(
    clashing: Graph, resolve: og.Resolve, expected: dict[str, Any], recorded: object
) -> None:
    result = clashing.merge("dev", resolve=resolve)

    rows = content(clashing)["Person"]
    assert {name: (rows[name]["age"], rows[name]["city"]) for name in expected} == expected
    told = clashing.commits(limit=1)[0].resolution
    assert told is not None
    assert json.loads(told) == recorded
    decided = {(row["id"], row["column"]) for row in result.resolved.to_pylist()}
    assert decided == {("bob", "age"), ("bob", "city"), ("cyd", "age"), ("dan", "age")}
    assert set(result.resolved.column("resolution").to_pylist()) <= {"ours", "theirs"}


def test_a_resolution_can_be_a_file(clashing: Graph, tmp_path: Path) -> None:
    file = tmp_path / "decided.json"
    file.write_text(json.dumps(MAPPING))

    clashing.merge("dev", resolve=file)

    rows = content(clashing)["Person"]
    assert {name: (rows[name]["age"], rows[name]["city"]) for name in BY_COLUMN} == BY_COLUMN


def test_newest_is_the_side_whose_head_is_younger(clashing: Graph) -> None:
    dev = clashing.checkout("dev")
    put(dev, Pet=[{"name": "kit"}])

    clashing.merge("dev", resolve="newest")

    rows = content(clashing)["Person"]
    assert {name: (rows[name]["age"], rows[name]["city"]) for name in THEIRS} == THEIRS


@pytest.mark.parametrize(
    ("younger", "living"),
    for_gate(
        itertools.product(("tag", "main"), (True, False)),
        lambda case: case in (("tag", False), ("main", True)),
    ),
)
def test_newest_knows_the_age_of_a_tag(graph: Graph, younger: str, living: bool) -> None:
    dev = graph.branches.create("dev")
    sides = [(dev, 20), (graph, 21)]
    for side, age in reversed(sides) if younger == "tag" else sides:
        put(side, Person=[person("bob", age=age)])
    dev.tags.create("release")
    if not living:
        graph.branches.delete("dev")

    graph.merge("release", resolve="newest")

    assert people(graph)["bob"] == (20 if younger == "tag" else 21)


def test_a_part_resolution_leaves_the_rest_open_and_writes_nothing(clashing: Graph) -> None:
    resolve = {"types": {"Person": {"columns": {"age": "theirs"}}}}

    found = conflicts_of(clashing, "dev", resolve=resolve)

    assert kinds(found) == {("node:Person", "bob", "city", "divergent_update")}
    assert [(row["base"], row["ours"], row["theirs"]) for row in found] == [
        ("null", '"Bonn"', '"Bern"')
    ]


def test_no_open_conflict_is_lost_behind_many_decided_ones(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_limits(monkeypatch, conflicts_kept=2)
    dev = graph.branches.create("dev")
    put(dev, Person=[person(name, age=10) for name in ("ann", "bob")] + [person("cyd", city="x")])
    put(graph, Person=[person(name, age=20) for name in ("ann", "bob")] + [person("cyd", city="y")])
    resolve = {"types": {"Person": {"columns": {"age": "ours"}}}}

    with pytest.raises(MergeConflictError, match="1 conflict"):
        graph.merge("dev", resolve=resolve)

    assert content(graph)["Person"]["cyd"]["city"] == "y"


def test_a_resolution_without_sense_is_refused_beforehand(clashing: Graph) -> None:
    before = clashing.snapshot()

    senseless: tuple[Any, ...] = (
        "mine",
        7,
        {"types": {"Persn": "ours"}},
        {"types": {"Person": {"columns": {"agee": "ours"}}}},
        {"default": "best"},
        "{broken",
    )
    for resolve in senseless:
        with pytest.raises(InvalidInputError):
            pytest.fail(f"{resolve!r} is taken: {clashing.merge('dev', resolve=resolve)}")

    assert clashing.snapshot() == before


def test_a_decided_deletion_takes_effect_either_way(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.delete({"Person": ["cyd"]})
    put(dev, Person=[person("bob", age=20)])
    put(graph, Person=[person("cyd", age=31)])
    graph.delete({"Person": ["bob"]})
    other = graph.branches.create("other")

    graph.merge("dev", resolve="theirs")
    other.merge("dev", resolve="ours")

    assert people(graph) == {"ann": 1, "bob": 20}
    assert people(other) == {"ann": 1, "cyd": 31}
    assert graph.maintenance.check().ok


def test_all_conflicts_and_broken_rules_come_together(graph: Graph) -> None:
    put(graph, Person=[person("dan", age=4), person("eve", age=5)], Pet=[{"name": "kit"}])
    put(graph, Pet=[{"name": "kat"}], Owns=[owns("ann-kit", "ann", "kit")])
    graph.delete({"Owns": ["ann-rex"]})
    dev = graph.branches.create("dev")
    put(
        dev,
        Person=[
            person("ann", age=10),
            person("new", age=1),
            person("gus", nick="red"),
            person("hal", first="H", last="L"),
        ],
        Owns=[owns("dev-own", "ann", "kat")],
        Knows=[knows("dev-edge", "cyd", "dan")],
    )
    dev.delete({"Person": ["bob", "eve"]})
    put(
        graph,
        Person=[
            person("ann", age=11),
            person("new", age=2),
            person("bob", age=22),
            person("ida", nick="red"),
            person("joe", first="H", last="L"),
        ],
        Owns=[owns("main-own", "ann", "rex")],
        Knows=[knows("main-edge", "eve", "cyd")],
    )
    graph.delete({"Person": ["dan"]})

    found = conflicts_of(graph, "dev")

    assert kinds(found) == {
        ("node:Person", "ann", "age", "divergent_update"),
        ("node:Person", "new", "age", "divergent_insert"),
        ("node:Person", "bob", None, "delete_vs_update"),
        ("node:Person", "gus", "nick", "not_unique"),
        ("node:Person", "hal", "first, last", "not_unique"),
        ("edge:Owns", "dev-own", "src", "too_many_edges"),
        ("edge:Knows", "dev-edge", "dst", "missing_endpoint"),
        ("edge:Knows", "main-edge", "src", "missing_endpoint"),
    }
    assert all(row["resolution"] is None for row in found)


def test_the_error_counts_all_conflicts_and_shows_the_first(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(dev, Person=[person(f"p{number:02}", age=1) for number in range(30)])
    put(graph, Person=[person(f"p{number:02}", age=2) for number in range(30)])

    with pytest.raises(MergeConflictError) as caught:
        graph.merge("dev")

    text = str(caught.value)
    assert "merging dev met 30 conflicts" in text
    assert "node:Person.age p00 [divergent_insert]: ours 2, theirs 1" in text
    assert "... and 10 more" in text
    assert "nothing was written" in text
    assert caught.value.conflicts.num_rows == 30  # type: ignore[attr-defined]


def test_conflicts_of_edges_are_shown_by_their_ends(graph: Graph) -> None:
    put(graph, Person=[person("ann"), person("bob")], Knows=[knows("k", "ann", "bob")])
    dev = graph.branches.create("dev")
    put(dev, Knows=[knows("k", "ann", "bob", since=1)])
    put(graph, Knows=[knows("k", "ann", "bob", since=2)])

    with pytest.raises(MergeConflictError, match=r"edge:Knows.since ann -> bob \(k\) \[divergent"):
        graph.merge("dev")


def test_rules_allow_what_is_different_on_both_sides(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    put(
        dev,
        Person=[
            person("nick1", nick="x"),
            person("pair1", first="A", last="B"),
            person("gap1", first="C"),
        ],
        Owns=[owns("cyd-rex", "cyd", "rex")],
    )
    put(
        graph,
        Person=[
            person("nick2", nick="y"),
            person("pair2", first="A", last="C"),
            person("gap2", first="C"),
        ],
        Owns=[owns("bob-rex", "bob", "rex")],
    )

    graph.merge("dev")

    assert len(people(graph)) == 3 + 6
    assert graph.maintenance.check().ok


def test_rules_look_at_what_comes_from_both_sides(graph: Graph) -> None:
    """A nick is given twice, and both sides together make a pair that there is already."""
    dev = graph.branches.create("dev")
    put(dev, Person=[person("ann", age=1, first="A"), person("bob", age=2, nick="x")])
    put(
        graph,
        Person=[
            person("ann", age=1, last="B"),
            person("cyd", age=3, first="A", last="B"),
            person("dan", nick="x"),
        ],
    )

    assert kinds(conflicts_of(graph, "dev")) == {
        ("node:Person", "ann", "first, last", "not_unique"),
        ("node:Person", "bob", "nick", "not_unique"),
    }


def test_a_unique_value_that_one_side_frees_may_be_used_by_the_other(graph: Graph) -> None:
    put(graph, Person=[person("bob", nick="red")])
    dev = graph.branches.create("dev")
    put(dev, Person=[person("bob", nick="blue")])
    put(dev, Person=[person("dan", nick="red")])
    put(graph, Person=[person("cyd", age=3, city="Cork")])

    graph.merge("dev")

    rows = content(graph)["Person"]
    assert (rows["bob"]["nick"], rows["dan"]["nick"]) == ("blue", "red")
    assert graph.maintenance.check().ok


def test_too_few_edges_after_a_merge_are_a_broken_rule(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node N { name: String @key } edge E: N -> N @card(1..)")
    put(graph, N=[{"name": name} for name in "abc"])
    put(graph, E=[owns("ab", "a", "b"), owns("ac", "a", "c")])
    dev = graph.branches.create("dev")
    dev.delete({"E": ["ab"]})
    graph.delete({"E": ["ac"]})

    assert kinds(conflicts_of(graph, "dev")) == {("edge:E", "a", "src", "too_few_edges")}


DOCS = """
node Doc {
    title: String @key
    text: String?
    tags: [String]?
    marks: [F64]?
    place: Vector(2)?
    scan: Blob?
    day: Date?
}
"""


def doc(title: str, **values: Any) -> Row:
    return {"title": title, **values}


def docs(graph: Graph) -> dict[str, Row]:
    """Every document with its nulls, blobs as bytes."""
    return {row["title"]: row for row in rows_with_blobs(graph, "node:Doc")}


SMALL_DIFFERENCES: dict[str, tuple[Row, Row]] = {
    "null to empty text": ({"text": None}, {"text": ""}),
    "empty text to null": ({"text": ""}, {"text": None}),
    "null to empty list": ({"tags": None}, {"tags": []}),
    "inside a list": ({"tags": ["a", "b"]}, {"tags": ["a", ""]}),
    "order of a list": ({"tags": ["a", "b"]}, {"tags": ["b", "a"]}),
    "sign of a zero": ({"marks": [1.0, 0.0]}, {"marks": [1.0, -0.0]}),
    "a vector": ({"place": [1.0, 2.0]}, {"place": [1.0, 2.5]}),
    "a vector to null": ({"place": [1.0, 2.0]}, {"place": None}),
    "a blob of the same size": ({"scan": b"abc"}, {"scan": b"abd"}),
    "null to an empty blob": ({"scan": None}, {"scan": b""}),
    "a large blob": ({"scan": b"x" * 70_000}, {"scan": b"y" * 70_000}),
    "a day": ({"day": date(2026, 1, 1)}, {"day": date(2026, 1, 2)}),
}


@ROUTES
def test_small_differences_of_values_are_merged(
    graph_root: str, diverged: bool, by_row_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_row_ids:
        small_limits(monkeypatch, rows_compared=0)
    graph = og.init(graph_root, schema=DOCS)
    kept = doc("kept", text="", tags=[], place=[0.5, 1.5], scan=b"k" * 70_000)
    put(graph, Doc=[kept, *(doc(name, **old) for name, (old, _) in SMALL_DIFFERENCES.items())])
    dev = graph.branches.create("dev")
    put(dev, Doc=[doc(name, **new) for name, (_, new) in SMALL_DIFFERENCES.items()])
    if diverged:
        put(graph, Doc=[doc("third", scan=b"third")])

    result = graph.merge("dev")

    found = docs(graph)
    for name, (_, after) in SMALL_DIFFERENCES.items():
        [(column, value)] = after.items()
        assert repr(found[name][column]) == repr(value), name
    assert {column: found["kept"][column] for column in kept} == kept
    assert result.tables["node:Doc"].updated == len(SMALL_DIFFERENCES)
    assert ("third" in found) == diverged


def test_values_that_differ_in_a_conflict_are_told_apart(graph_root: str) -> None:
    graph = og.init(graph_root, schema=DOCS)
    put(graph, Doc=[doc("d", text="t", tags=["a"], place=[1.0, 2.0], scan=b"abc")])
    dev = graph.branches.create("dev")
    put(dev, Doc=[doc("d", text="", tags=[], place=[1.0, 3.0], scan=b"abd")])
    put(graph, Doc=[doc("d", text=None, tags=["a", "b"], place=[1.0, 4.0], scan=b"abe")])

    found = {row["column"]: row for row in conflicts_of(graph, "dev")}

    told = {name: (row["base"], row["ours"], row["theirs"]) for name, row in found.items()}
    assert set(told) == {"text", "tags", "place", "scan"}
    assert told["text"] == ('"t"', "null", '""')
    assert told["tags"] == ('["a"]', '["a","b"]', "[]")
    assert told["place"] == ("[1.0,2.0]", "[1.0,4.0]", "[1.0,3.0]")
    assert all(json.loads(text)["bytes"] == 3 for text in told["scan"])
    assert len(set(told["scan"])) == 3


def test_blobs_of_rows_that_are_merged_by_column_stay_whole(graph_root: str) -> None:
    graph = og.init(graph_root, schema=DOCS)
    put(graph, Doc=[doc("d", text="t", scan=b"abc" * 30_000, place=[1.0, 2.0])])
    dev = graph.branches.create("dev")
    put(dev, Doc=[doc("d", text="u", scan=b"abc" * 30_000, place=[1.0, 2.0])])
    put(graph, Doc=[doc("d", text="t", scan=b"abc" * 30_000, place=[1.0, 3.0])])

    graph.merge("dev")

    expected = doc("d", text="u", scan=b"abc" * 30_000, place=[1.0, 3.0])
    assert {column: docs(graph)["d"][column] for column in expected} == expected
