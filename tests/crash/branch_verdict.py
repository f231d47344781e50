"""What must hold on every branch after any crash: all or nothing, sound, tidy, and life goes on.

The gate reads all rows of all branches and tags as the nightly does; the rest of a check it leaves
to the branches that somebody worked with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.orphans import Fate, ListedFork, listed_forks, reconcile_forks
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import pending_operations
from omnigraph_lake.errors import ConflictError, NotFoundError, OperationRolledBackError
from omnigraph_lake.graph import Graph
from tests.crash.branch_world import Errand, Picture, Verb, done, look_at, run_errand
from tests.crash.small_world import Content
from tests.crash.soundness import findings
from tests.gate.selection import is_nightly
from tests.stores import folder_of


def assert_all_or_nothing(root: str, errand: Errand, *, before: Picture, base: Content) -> bool:
    """Recover, and prove that the errand was run or was not; returns which."""
    after = done(before, errand)
    touched = {errand.name, errand.source}
    seen = look_at(og.open(root, read_only=True), base, only=touched).picture
    assert seen in (_only(before, touched), _only(after, touched))

    graph = og.open(root)
    assert pending_operations(graph._objects) == ()
    left = {fork.fork for fork in listed_forks(graph._objects) if fork.fate is Fate.ORPHAN}
    assert not {fork for fork in left if names.fork_owner(fork)[1] == errand.operation_id}
    settled = assert_tidy_and_sound(graph, base, torn_by=errand.operation_id, used=touched)
    assert settled in (before, after)
    assert settled == after or seen == _only(before, touched), "what was seen is gone again"
    if errand.operation_id:
        published = graph.outcome(errand.operation_id) is OperationStatus.PUBLISHED
        assert published == (settled == after)
    return settled == after


def assert_tidy_and_sound(
    graph: Graph,
    base: Content,
    *,
    torn_by: str = "",
    after_zombies: bool = False,
    used: Collection[str] | None = None,
) -> Picture:
    """Reconciling leaves what is read and nothing else; living branches keep their promises."""
    assert_tidy(graph, torn_by=torn_by, after_zombies=after_zombies)
    look = look_at(graph, base)
    for name, content in look.contents.items():
        is_checked = used is None or name in used or is_nightly()
        if is_checked and not name.startswith("tag:"):
            _assert_sound(graph.checkout(name), content)
    return look.picture


def assert_tidy(graph: Graph, *, torn_by: str = "", after_zombies: bool = False) -> None:
    """Nothing is left that nobody needs, but for folders that Lance knows nothing of.

    It was making one for `torn_by` when that was killed, or for somebody who woke up too late.
    """
    reconcile_forks(graph._objects)
    left = listed_forks(graph._objects)
    assert {each.fate for each in left} <= {Fate.LEGITIMATE}
    unlisted = _unlisted_folders(graph, left)
    assert after_zombies or {names.fork_owner(folder)[1] for folder in unlisted} <= {torn_by}


def _assert_sound(graph: Graph, content: Content) -> None:
    assert findings(graph, content) == (), graph.branch
    commits = graph.commits()
    merged = {commit.merged_parent_id for commit in commits} - {None}
    assert merged <= {commit.commit_id for commit in commits}, "a merged commit is unknown"


def assert_errand_can_be_run_again(
    graph: Graph, errand: Errand, *, happened: bool, before: Picture, base: Content
) -> None:
    """The same errand succeeds, or says that it was run; either way it has been run then."""
    match errand.verb:
        case Verb.CREATE if happened:
            with pytest.raises(ConflictError):
                run_errand(graph, errand)
        case Verb.DELETE | Verb.UNTAG if happened:
            with pytest.raises(NotFoundError):
                run_errand(graph, errand)
        case Verb.WRITE | Verb.MERGE if not happened:
            if graph.outcome(errand.operation_id) is OperationStatus.ROLLED_BACK:
                with pytest.raises(OperationRolledBackError):
                    run_errand(graph, errand)
            run_errand(graph, replace(errand, operation_id=str(ULID())))
        case _:
            run_errand(graph, errand)
    assert pending_operations(graph._objects) == ()
    assert_tidy(graph, torn_by=errand.operation_id)
    assert look_at(graph, base).picture == done(before, errand)


def _unlisted_folders(graph: Graph, forks: Iterable[ListedFork]) -> tuple[str, ...]:
    """Folders of Lance branches, of tables and of the manifest, that Lance does not list."""
    listed = {(each.location, each.fork) for each in forks}
    places = {entry.location for entry in graph.snapshot().tables.values()} | {names.MANIFEST}
    return tuple(
        folder.name
        for place in sorted(places)
        for folder in folder_of(graph.root, place, "tree").glob("*")
        if (place, folder.name) not in listed
    )


def _only(picture: Picture, names_wanted: Collection[str]) -> Picture:
    return {name: marks for name, marks in picture.items() if name in names_wanted}
