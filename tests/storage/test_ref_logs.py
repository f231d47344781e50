"""Logs of names: one entry after the other, each decided once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.manifest.state import BranchRef
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import Objects, Put, StoredObjects
from omnigraph_lake.storage.refs.branches import (
    BranchLog,
    BranchState,
    append_entry,
    branch_logs,
    free_branch_log,
    living_branches,
    read_branch_log,
)
from omnigraph_lake.storage.refs.logs import RefState
from omnigraph_lake.storage.refs.tags import (
    Tag,
    all_tags,
    append_tag_entry,
    claimed_tags,
    free_tag_log,
    read_tag,
    read_tag_log,
)

pytestmark = pytest.mark.unit

CREATING, READY = RefState.CREATING, RefState.READY
ABANDONED, DELETED = RefState.ABANDONED, RefState.DELETED


@pytest.fixture
def objects(graph_root: str) -> Objects:
    return StoredObjects(parse_root(graph_root), create=True)


def tag(name: str = "t", *, incarnation: str = "i1") -> Tag:
    return Tag(
        tag=name,
        commit_id="c1",
        branch="dev",
        manifest_version=7,
        actor="mia",
        created_at="2026-01-01T00:00:00+00:00",
        tables=(
            ("node:N", "nodes/1", 3, "dev.i.o", 5, "2026-01-01T00:00:00.000001+00:00", "d1"),
            ("edge:E", "edges/2", 4, None, 6, None, None),
        ),
        incarnation=incarnation,
    )


def branch(name: str = "b", *, incarnation: str = "i1") -> BranchRef:
    return BranchRef(branch=name, incarnation=incarnation, claimed_at="2026-01-01T00:00:00+00:00")


def write_log(objects: Objects, *states: RefState, of: Tag) -> None:
    for state in states:
        assert append_tag_entry(objects, read_tag_log(objects, of.tag), of, state)


@pytest.mark.parametrize(
    ("states", "lives", "is_claimed"),
    [
        ((), False, False),
        ((CREATING,), False, True),
        ((CREATING, READY), True, True),
        ((CREATING, ABANDONED), False, False),
        ((CREATING, READY, DELETED), False, False),
        ((CREATING, READY, DELETED, CREATING), False, True),
        ((CREATING, ABANDONED, CREATING, READY), True, True),
    ],
)
def test_the_last_entry_of_a_log_counts(
    objects: Objects, states: tuple[RefState, ...], lives: bool, is_claimed: bool
) -> None:
    for number, state in enumerate(states):
        log = read_branch_log(objects, "b")
        assert append_entry(objects, log, branch(incarnation=f"i{number // 2}"), state)
        write_log(objects, state, of=tag(incarnation=f"i{number // 2}"))

    found = read_tag(objects, "t")

    assert (found is not None) == lives
    assert found is None or found == tag(incarnation=f"i{(len(states) - 1) // 2}")
    assert [each.tag for each in all_tags(objects)] == ["t"] * lives
    assert [each.tag for each in claimed_tags(objects)] == ["t"] * is_claimed
    assert list(living_branches(objects)) == ["b"] * lives
    log = read_branch_log(objects, "b")
    assert (log.last, log.claimed is not None) == (len(states), is_claimed)
    assert branch_logs(objects) == ({"b": log} if states else {})


def test_the_entries_are_where_the_layout_says(objects: Objects) -> None:
    write_log(objects, CREATING, READY, DELETED, of=tag("v1.0"))

    assert objects.list("_refs") == (
        "_refs/tags/v1.0.json",
        "_refs/tags/v1.0@/00000002.json",
        "_refs/tags/v1.0@/00000003.json",
    )
    for entry in (1, 2, 3, 12345678):
        path = names.tag_ref("v1.0", entry)
        assert names.ref_entry_at(names.TAG_REFS_DIR, path) == ("v1.0", entry)


def test_one_of_many_puts_the_next_entry(objects: Objects) -> None:
    write_log(objects, CREATING, of=tag())
    log = read_tag_log(objects, "t")

    with ThreadPoolExecutor(8) as pool:
        puts = [
            pool.submit(append_tag_entry, objects, log, tag(incarnation=f"i{n}"), READY)
            for n in range(8)
        ]
        won = [number for number, put in enumerate(puts) if put.result()]

    assert len(won) == 1
    assert read_tag(objects, "t") == tag(incarnation=f"i{won[0]}")


class LostAnswers(StoredObjects):
    """A store that repeats every put, because it takes the answers for lost."""

    def put_if_absent(self, path: str, content: bytes) -> Put:
        super().put_if_absent(path, content)
        return super().put_if_absent(path, content)


def test_an_entry_whose_answer_was_lost_is_ours_and_not_that_of_a_namesake(
    graph_root: str,
) -> None:
    objects = LostAnswers(parse_root(graph_root), create=True)
    log = read_tag_log(objects, "t")

    assert append_tag_entry(objects, log, tag(), CREATING)
    assert not append_tag_entry(objects, log, tag(incarnation="i2"), CREATING)
    assert not append_tag_entry(objects, log, tag(), READY)


def test_a_creation_that_does_not_end_is_abandoned_and_its_creator_learns_of_it(
    objects: Objects,
) -> None:
    write_log(objects, CREATING, of=tag())
    creators = read_tag_log(objects, "t")
    first = read_branch_log(objects, "b")
    append_entry(objects, first, branch(), BranchState.CREATING)

    free, free_branch = free_tag_log(objects, "t"), free_branch_log(objects, "b")

    assert free is not None
    assert (free.state, free.last) == (ABANDONED, 2)
    assert free_branch is not None
    assert (free_branch.state, free_branch.last) == (ABANDONED, 2)
    assert not append_tag_entry(objects, creators, tag(), READY)
    assert not append_entry(objects, replace(first, last=1), branch(), BranchState.READY)


def test_a_name_that_lives_is_not_free_and_stays_as_it_is(objects: Objects) -> None:
    write_log(objects, CREATING, READY, of=tag())

    assert free_tag_log(objects, "t") is None
    assert read_tag(objects, "t") == tag()


@pytest.mark.parametrize("ends", [(DELETED,), (DELETED, CREATING, READY)])
def test_a_tag_that_is_older_than_the_log_is_its_first_entry(
    objects: Objects, ends: tuple[RefState, ...]
) -> None:
    fields = asdict(tag())
    del fields["incarnation"]
    objects.put_if_absent(names.tag_ref("t"), json.dumps(fields, sort_keys=True).encode())
    old = tag(incarnation="")

    assert read_tag(objects, "t") == old
    assert all_tags(objects) == claimed_tags(objects) == (old,)
    assert free_tag_log(objects, "t") is None
    write_log(objects, *ends, of=tag())
    assert read_tag_log(objects, "t").last == 1 + len(ends)
    assert read_tag(objects, "t") == (tag() if ends[-1] is READY else None)


class SlowListing(StoredObjects):
    """A store whose first listing missed a new log, and saw an older one end afterwards."""

    missed = names.tag_ref("new")

    def list(self, prefix: str) -> tuple[str, ...]:
        found = super().list(prefix)
        if prefix == names.TAG_REFS_DIR and self.missed:
            found = tuple(path for path in found if path != self.missed)
            self.missed = ""
        return found


def test_a_tag_that_takes_over_from_another_is_never_missed_by_whoever_removes_versions(
    graph_root: str,
) -> None:
    objects = SlowListing(parse_root(graph_root), create=True)
    write_log(objects, CREATING, READY, of=tag("old"))
    write_log(objects, CREATING, of=tag("new"))
    write_log(objects, DELETED, of=tag("old"))

    assert [each.tag for each in claimed_tags(objects)] == ["new"]
    assert objects.missed == ""


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"{}", b'{"state": "odd"}'])
@pytest.mark.parametrize("entry", [1, 2])
def test_an_entry_that_cannot_be_understood_is_named(
    objects: Objects, entry: int, content: bytes
) -> None:
    if entry == 2:
        write_log(objects, CREATING, of=tag())
    objects.put_if_absent(names.tag_ref("t", entry), content)

    for use in (
        lambda: read_tag(objects, "t"),
        lambda: all_tags(objects),
        lambda: claimed_tags(objects),
    ):
        with pytest.raises(DamagedGraphError, match="the claim of tag 't'") as caught:
            use()
        assert names.tag_ref("t", entry) in caught.value.next_step


def test_the_log_of_main_is_not_among_the_branches(objects: Objects) -> None:
    log = BranchLog(name="main", last=0, state=None, ref=None)
    append_entry(objects, log, branch("main"), BranchState.READY)
    append_entry(objects, read_branch_log(objects, "b"), branch(), BranchState.READY)

    assert list(branch_logs(objects)) == ["b"]
