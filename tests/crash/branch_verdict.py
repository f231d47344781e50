"""What must hold on every branch after any crash: all or nothing, sound, tidy, and life goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from ulid import ULID

import omnigraph
from omnigraph import names
from omnigraph.commit.orphans import Fate, listed_forks, reconcile_forks
from omnigraph.commit.sidecar import pending_operations
from omnigraph.errors import ConflictError, NotFoundError, OperationRolledBackError
from omnigraph.graph import Graph
from omnigraph.operations import check
from omnigraph.operations.outcome import OperationStatus
from tests.crash.branch_world import Errand, Picture, Verb, done, picture_of, run_errand
from tests.crash.small_world import Content, content_of

_contents_that_keep_the_rules: set[str] = set()


def assert_all_or_nothing(root: str, errand: Errand, *, before: Picture, base: Content) -> bool:
    """Recover, and prove that the errand was run or was not; returns which."""
    after = done(before, errand)
    seen = picture_of(omnigraph.open(root, mode="r"), base)
    assert seen in (before, after)

    graph = omnigraph.open(root)
    assert pending_operations(graph._objects) == ()
    settled = picture_of(graph, base)
    assert settled in (before, after)
    assert settled == after or seen == before, "what was seen is gone again"
    if errand.operation_id:
        published = graph.outcome(errand.operation_id) is OperationStatus.PUBLISHED
        assert published == (settled == after)
    assert_sound(graph)
    assert_tidy(graph, base)
    return settled == after


def assert_sound(graph: Graph) -> None:
    """Main and every living branch keep their promises."""
    for branch in graph.branches():
        on_branch = graph.branch(branch.name)
        rows = json.dumps(content_of(on_branch), sort_keys=True)
        with _rules_known_to_hold(rows in _contents_that_keep_the_rules):
            report = on_branch.check()
        assert report.findings == (), branch.name
        _contents_that_keep_the_rules.add(rows)


def assert_tidy(graph: Graph, base: Content) -> None:
    """Reconciling leaves what is read and nothing else, on the first time."""
    picture = picture_of(graph, base)
    reconcile_forks(graph._objects)

    assert picture_of(graph, base) == picture
    assert {each.fate for each in listed_forks(graph._objects)} <= {Fate.LEGITIMATE}
    assert reconcile_forks(graph._objects) == ()
    assert unlisted_folders(graph) == ()


def assert_errand_can_be_run_again(
    graph: Graph, errand: Errand, *, happened: bool, before: Picture, base: Content
) -> None:
    """The same errand succeeds, or says that it was run; either way it has been run then."""
    match errand.verb:
        case Verb.CREATE if happened:
            with pytest.raises(ConflictError):
                run_errand(graph, errand)
        case Verb.DELETE if happened:
            with pytest.raises(NotFoundError):
                run_errand(graph, errand)
        case Verb.WRITE | Verb.MERGE if not happened:
            if graph.outcome(errand.operation_id) is OperationStatus.ROLLED_BACK:
                with pytest.raises(OperationRolledBackError):
                    run_errand(graph, errand)
            run_errand(graph, replace(errand, operation_id=str(ULID())))
        case _:
            run_errand(graph, errand)
    assert picture_of(graph, base) == done(before, errand)
    assert pending_operations(graph._objects) == ()
    assert_tidy(graph, base)


def unlisted_folders(graph: Graph) -> tuple[str, ...]:
    """Folders of Lance branches, of tables and of the manifest, that Lance does not list."""
    entries = graph.snapshot().tables.values()
    places = {entry.location for entry in entries} | {names.MANIFEST}
    listed = {(each.location, each.fork) for each in listed_forks(graph._objects)}
    found = [
        (place, folder.name)
        for place in sorted(places)
        for folder in Path(graph.root, place, "tree").glob("*")
    ]
    return tuple("/".join(each) for each in found if each not in listed)


@contextmanager
def _rules_known_to_hold(known: bool) -> Iterator[None]:
    """The rules of the schema look at rows alone; the same rows need not be looked at twice."""
    with pytest.MonkeyPatch.context() as patch:
        if known:
            patch.setattr(check, "broken_rules", lambda *_: iter(()))
        yield
