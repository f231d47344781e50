from __future__ import annotations

import threading

import pytest

from omnigraph_lake import names
from omnigraph_lake.errors import NotFoundError
from omnigraph_lake.storage.lance.datasets import open_dataset
from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
from omnigraph_lake.storage.manifest.swap import (
    SwapAnswer,
    create_manifest,
    drop_manifest_branch,
    forget_old_versions,
    manifest_branches,
    manifest_exists,
    read_manifest,
    swap_manifest,
)
from omnigraph_lake.storage.manifest_rows import GraphHead, ManifestFacts, ManifestRow
from omnigraph_lake.storage.objects.location import Root, parse_root

pytestmark = pytest.mark.unit


@pytest.fixture
def root(graph_root: str) -> Root:
    location = parse_root(graph_root)
    create_manifest(location, [head(1)], operation_id="init")
    return location


def head(sequence: int) -> GraphHead:
    return GraphHead(
        branch=None, sequence=sequence, commit_id="c", incarnation="i", schema_hash="h"
    )


def test_a_created_manifest_is_one_version_with_every_row_and_the_stamp(root: Root) -> None:
    state = read_manifest(root)

    assert (state.version, state.stamp, state.rows) == (1, names.STAMP, (head(1),))
    assert state.handle.has_stable_row_ids


def test_a_missing_manifest_says_how_to_create_a_graph(graph_root: str) -> None:
    nowhere = parse_root(graph_root)

    assert not manifest_exists(nowhere)
    with pytest.raises(NotFoundError, match="omnigraph init"):
        read_manifest(nowhere)


def test_a_missing_branch_is_named(root: Root) -> None:
    with pytest.raises(NotFoundError, match="branch 'dev' does not exist"):
        read_manifest(root, branch=BranchRef(branch="dev", incarnation="i", claimed_at=""))


def test_a_swap_puts_exactly_the_next_version(root: Root) -> None:
    base = read_manifest(root)

    assert swap_manifest(base, [head(2)], operation_id="op") is SwapAnswer.ACCEPTED
    after = read_manifest(root)
    assert (after.version, after.rows) == (base.version + 1, (head(2),))


def test_a_swap_from_an_older_version_is_refused_and_changes_nothing(root: Root) -> None:
    stale = read_manifest(root)
    swap_manifest(stale, [head(2)], operation_id="winner")

    answer = swap_manifest(stale, [head(99)], operation_id="loser")

    assert answer is SwapAnswer.REFUSED
    assert read_manifest(root).rows == (head(2),)


def test_concurrent_swaps_form_one_chain_without_loss(root: Root) -> None:
    def increment(times: int) -> None:
        for _ in range(times):
            while True:
                base = read_manifest(root)
                (current,) = base.rows
                assert isinstance(current, GraphHead)
                rows: list[ManifestRow] = [head(current.sequence + 1)]
                if swap_manifest(base, rows, operation_id="op") is SwapAnswer.ACCEPTED:
                    break

    threads = [threading.Thread(target=increment, args=(20,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    state = read_manifest(root)
    assert (state.version, state.rows) == (81, (head(81),))


def test_old_versions_are_forgotten_but_never_the_newest_ones(root: Root) -> None:
    for sequence in range(2, names.MANIFEST_VERSIONS_KEPT + 21):
        swap_manifest(read_manifest(root), [head(sequence)], operation_id="op")

    forgotten = forget_old_versions(root)

    state = read_manifest(root)
    kept = [ref["version"] for ref in state.handle.version_refs()]
    assert forgotten.versions == 20
    assert kept == list(range(21, names.MANIFEST_VERSIONS_KEPT + 21))
    assert state.rows == (head(names.MANIFEST_VERSIONS_KEPT + 20),)
    assert forget_old_versions(root).versions == 0


def test_a_version_that_falls_out_of_the_kept_ones_while_being_read_is_read_again(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between finding a version and reading it, its slot may be cleaned and taken by a late put."""
    opened: list[int] = []

    def open_then_move_on(*args: object, **kwargs: object) -> object:
        handle = open_dataset(*args, **kwargs)  # type: ignore[arg-type]
        assert handle is not None
        opened.append(handle.version)
        if len(opened) == 1:
            state = ManifestState(
                ref=None,
                version=handle.version,
                facts=ManifestFacts(),
                rows=(head(1),),
                handle=handle,
                root=root,
            )
            for sequence in range(2, names.MANIFEST_VERSIONS_KEPT + 2):
                swap_manifest(state, [head(sequence)], operation_id="op")
                latest = open_dataset(root, names.MANIFEST)
                assert latest is not None
                state = ManifestState(
                    ref=None,
                    version=latest.version,
                    facts=ManifestFacts(),
                    rows=(),
                    handle=latest,
                    root=root,
                )
        return handle

    monkeypatch.setattr("omnigraph_lake.storage.manifest.swap.open_dataset", open_then_move_on)

    state = read_manifest(root)

    assert opened == [1, names.MANIFEST_VERSIONS_KEPT + 1]
    assert state.rows == (head(names.MANIFEST_VERSIONS_KEPT + 1),)


def test_branches_can_be_listed_while_others_delete_some(root: Root) -> None:
    handle = read_manifest(root).handle
    for number in range(40):
        handle.create_branch(f"b{number:02}", 1)

    def drop_all() -> None:
        for number in range(40):
            drop_manifest_branch(root, f"b{number:02}")

    dropping = threading.Thread(target=drop_all)
    dropping.start()
    seen = [len(manifest_branches(root))]
    while dropping.is_alive():
        seen.append(len(manifest_branches(root)))
    dropping.join()

    assert seen == sorted(seen, reverse=True)
    assert manifest_branches(root) == {}
