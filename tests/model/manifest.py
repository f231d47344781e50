"""Reading the manifest: which version to believe, and what it says about an operation.

With torn reads, finding the latest version and getting it are two requests. In between the
version can be cleaned and its slot be taken by a late put, so a reader gets rows that were never
committed. Therefore a reader asks for the latest version once more afterwards, and believes what
it got only if that is still among the newest K. Manifest cleanup never touches those.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.labels import ReadNames
from tests.model.scope import Scope
from tests.model.state import Manifest, State, Step, Verdict, replaced, step


class View(NamedTuple):
    """A finished read: the state without the reader's listing, and the manifest it believes."""

    state: State
    manifest: Manifest


def sweeper_reader(scope: Scope, sweeper: int) -> int:
    """The place of a sweeper among the readers; a writer's place is its own number."""
    return scope.writers + sweeper


def folder_reader(scope: Scope, folder: int) -> int:
    return scope.writers + scope.sweepers + folder


def cleaner_reader(scope: Scope) -> int:
    return scope.writers + scope.sweepers + 2


def readers(scope: Scope) -> int:
    return scope.writers + scope.sweepers + 3


def read_manifest(
    scope: Scope, state: State, reader: int, names: ReadNames, actor: str, *, trusting: bool = False
) -> View | Step:
    """The manifest as `reader` sees it, or the step that its read still needs."""
    if not scope.torn_reads:
        return View(state, state.manifest)
    listed = state.slots.listed[reader]
    if listed is None:
        detail = f"latest is manifest v{state.manifest.version}"
        return step(names.listing, detail, actor, with_listing(state, reader, state.manifest))
    forgotten = with_listing(state, reader, None)
    found = listed if listed.version > state.slots.freed_up_to else late_put(state, listed.version)
    if found is None:
        return step(names.listing, f"v{listed.version} not found, open again", actor, forgotten)
    kept = scope.manifest_versions_kept
    stale = listed.version <= state.manifest.version - kept
    if stale and not trusting and scope.mutant != "no_verify":
        detail = f"v{listed.version} is no longer among the newest {kept}, read again"
        return step(names.verify, detail, actor, forgotten)
    return View(forgotten, found)


def with_listing(state: State, reader: int, listed: Manifest | None) -> State:
    slots = state.slots
    return state._replace(slots=slots._replace(listed=replaced(slots.listed, reader, listed)))


def late_put(state: State, slot: int) -> Manifest | None:
    """What a late put left in a freed slot."""
    for manifest in state.slots.late_puts:
        if manifest.version == slot:
            return manifest
    return None


def verdict_on(
    scope: Scope, op: int, manifest: Manifest, history: tuple[int, ...]
) -> Verdict | None:
    """The decision about an operation: look in the manifest, then in history, then at min_op.

    The order matters, because the fold moves rows from the first to the second, and because the
    third is only true for an operation that neither of the others calls committed.
    """
    for decided, verdict in manifest.decisions:
        if decided == op:
            return verdict
    pruned = op <= manifest.min_op and scope.mutant != "prune_no_watermark"
    if pruned and scope.mutant == "fold_minop_first":
        return "rolled_back"
    if op in history and scope.mutant != "fold_no_lookup":
        return "committed"
    return "rolled_back" if pruned else None


def published(scope: Scope, state: State, manifest: Manifest) -> State:
    """The state after the manifest was replaced; the ghost log remembers what that decided."""
    if not scope.folders:
        return state._replace(manifest=manifest)
    known = state.manifest.decisions
    decided = tuple(decision for decision in manifest.decisions if decision not in known)
    return state._replace(manifest=manifest, log=state.log + decided)
