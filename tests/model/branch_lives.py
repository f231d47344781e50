"""How branches come and go: creators and deleters, and whoever only reads or tags one.

A creation is three entries' worth of care. `creating` reserves the name and protects the Lance
branch about to be made; `ready` decides that the branch lives. Whoever finds a name `creating` may
put `abandoned` in the place of `ready` and create anew: put-if-absent lets exactly one of the two
in. A creator is ready only after it has read the parent's log again, because until its Lance branch
exists nothing keeps the parent's files from being removed with the parent.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.branch_scope import MAIN_LINE, BranchScope
from tests.model.branch_state import (
    BranchState,
    BranchStep,
    Creator,
    Deleter,
    Entry,
    OpId,
    Reader,
    Tagger,
    appended,
    branch_label,
    content,
    is_alive,
    living_in,
    living_line,
    readable,
    with_line,
)
from tests.model.labels import BranchStepName, UnguardedName
from tests.model.state import replaced

_CreatorStep = tuple[BranchStepName, str, Creator, BranchState]


def creator_steps(scope: BranchScope, state: BranchState, number: int) -> Iterator[BranchStep]:
    """Everything that creator `number` can do next."""
    creator = state.creators[number]
    match creator.phase:
        case "idle":
            taken = _begin_creation(scope, state, number)
        case "abandon":
            taken = _abandon(scope, state, number)
        case "claim":
            taken = _claim(scope, state, number)
        case "clone":
            taken = _clone(scope, state, creator)
        case "ref":
            taken = _make_ref(scope, state, creator)
        case "verify":
            taken = _verify_parent(scope, state, creator)
        case "ready":
            taken = _decide_creation(scope, state, number)
        case _:
            return
    name, detail, following, changed = taken
    creators = replaced(changed.creators, number, following)
    yield branch_label(name, detail, f"C{number}"), changed._replace(creators=creators)


def _abandon(scope: BranchScope, state: BranchState, number: int) -> _CreatorStep:
    """Take the place of the entry that would have made the unfinished creation ready."""
    creator, name = state.creators[number], scope.creators[number]
    entry = Entry("abandoned", state.logs[name][creator.slot - 1].incarnation)
    changed = appended(state, name, creator.slot, entry)
    again = Creator("idle")
    if changed is None:
        return "branch.post_abandon", "taken, look again", again, state
    return "branch.post_abandon", f"{entry.incarnation}", again, changed


def _claim(scope: BranchScope, state: BranchState, number: int) -> _CreatorStep:
    creator, name = state.creators[number], scope.creators[number]
    log, slot = state.logs[name], creator.slot
    if scope.mutant == "ref_object" and living_in(scope, log) is None:
        slot = len(log)
    entry = Entry("creating", creator.incarnation, creator.parent)
    changed = appended(state, name, slot, entry)
    if changed is None:
        return "branch.post_claim", "another was first", Creator("failed"), state
    following = creator._replace(phase="clone", slot=slot + 1)
    if scope.mutant == "manifest_first":
        following = following._replace(phase="verify")
    return "branch.post_claim", f"creating {creator.incarnation}", following, changed


def _make_ref(scope: BranchScope, state: BranchState, creator: Creator) -> _CreatorStep:
    index = scope.line_of(creator.incarnation)
    line = state.lines[index]
    assert line is not None, "a directory without a ref is never deleted"
    listed = with_line(state, index, line._replace(listed=True))
    return "branch.post_manifest", "ref", _cloned(scope, creator), listed


def _verify_parent(scope: BranchScope, state: BranchState, creator: Creator) -> _CreatorStep:
    unverified = scope.mutant == "parent_unverified"
    alive = unverified or is_alive(scope, state, creator.parent)
    following = creator._replace(phase="ready") if alive else Creator("failed")
    return "branch.post_parent", f"the parent lives: {alive}", following, state


def _begin_creation(scope: BranchScope, state: BranchState, number: int) -> _CreatorStep:
    name = scope.creators[number]
    log = state.logs[name]
    last = log[-1] if log else None
    incarnation = scope.incarnation_of_creator(number)
    parent = scope.parents[name]
    if living_in(scope, log) is not None:
        assert last is not None
        line = state.lines[scope.line_of(last.incarnation)]
        if not scope.finishing or (line is not None and line.listed):
            return "branch.begin", "exists", Creator("exists"), state
        held = state.lines[scope.line_of(last.parent)]
        finishing = Creator("clone", last.incarnation, len(log), last.parent, held)
        return "branch.begin", f"finish {last.incarnation}", finishing, state
    if last is not None and last.kind == "creating":
        abandoning = Creator("abandon", slot=len(log))
        return "branch.begin", f"{last.incarnation} is unfinished", abandoning, state
    found = living_line(scope, state, parent)
    if found is None:
        return "branch.begin", "no parent", Creator("failed"), state
    following = Creator("claim", incarnation, len(log), found[0], found[1])
    if scope.mutant == "manifest_first":
        following = following._replace(phase="clone")
    return "branch.begin", f"from {found[0]}", following, state


def _clone(scope: BranchScope, state: BranchState, creator: Creator) -> _CreatorStep:
    """Lance copies a version of the parent's manifest into a new directory; then comes its ref."""
    index = scope.line_of(creator.incarnation)
    existing, parent = state.lines[index], state.lines[scope.line_of(creator.parent)]
    if existing is not None:
        following = _cloned(scope, creator) if existing.listed else Creator("failed")
        return "branch.clone", "exists already", following, state
    if parent is None or creator.held is None:
        return "branch.clone", "the parent is gone", Creator("failed"), state
    made = creator.held._replace(
        parent=creator.parent, listed=not scope.torn_create, own=False, broken=parent.broken
    )
    if scope.torn_create:
        torn = creator._replace(phase="ref")
        return "branch.clone", "directory", torn, with_line(state, index, made)
    return "branch.post_manifest", "made", _cloned(scope, creator), with_line(state, index, made)


def _cloned(scope: BranchScope, creator: Creator) -> Creator:
    made = creator._replace(held=None)
    if scope.mutant == "manifest_first":
        return made._replace(phase="claim")
    if creator.parent == MAIN_LINE:
        return made._replace(phase="ready")
    return made._replace(phase="ready" if scope.finishing else "verify")


def _decide_creation(scope: BranchScope, state: BranchState, number: int) -> _CreatorStep:
    creator, name = state.creators[number], scope.creators[number]
    log, incarnation = state.logs[name], creator.incarnation
    ended = Creator("acked", incarnation)
    if scope.finishing:
        own = incarnation == scope.incarnation_of_creator(number)
        alive = living_in(scope, log) == incarnation
        following = (ended if own else Creator("exists")) if alive else Creator("failed")
        return "branch.post_ready", f"the log ends with it: {alive}", following, state
    changed = appended(state, name, creator.slot, Entry("ready", incarnation))
    if changed is None and scope.mutant != "ready_unread":
        return "branch.post_ready", "abandoned by another", Creator("failed"), state
    after = state if changed is None else changed
    return "branch.post_ready", f"{incarnation} lives", ended, after


def deleter_steps(scope: BranchScope, state: BranchState, number: int) -> Iterator[BranchStep]:
    deleter, name = state.deleters[number], scope.deleters[number]

    def to(
        step: BranchStepName | UnguardedName,
        detail: str,
        following: Deleter,
        changed: BranchState | None = None,
    ) -> BranchStep:
        after = state if changed is None else changed
        deleters = replaced(after.deleters, number, following)
        return branch_label(step, detail, f"D{number}"), after._replace(deleters=deleters)

    log, incarnation = state.logs[name], deleter.incarnation
    match deleter.phase:
        case "idle":
            living = living_in(scope, log)
            if living is None:
                yield to("branch.pre_delete", "does not exist", Deleter("absent"))
            else:
                following = Deleter("put", living, len(log))
                yield to("branch.pre_delete", f"{living} lives", following)
        case "put":
            slot, victim = deleter.slot, incarnation
            current = living_in(scope, log)
            if scope.mutant == "ref_object" and current is not None:
                slot, victim = len(log), current
            entry = Entry("deleted", victim, aimed_at=incarnation)
            changed = appended(state, name, slot, entry)
            drops = scope.mutant == "delete_own_forks"
            ended = deleter._replace(phase="drop" if drops else "acked", slot=-1)
            detail = "somebody else did" if changed is None else f"{victim} is deleted"
            yield to("branch.post_delete", detail, ended, changed)
        case "drop":
            own = (f for f in state.forks if f.owner.incarnation == incarnation)
            doomed = {f.name for f in own} - {f.origin.fork for f in state.forks}
            kept = tuple(f for f in state.forks if f.name not in doomed)
            ended = deleter._replace(phase="acked")
            yield to("branch.post_drop", "its forks", ended, state._replace(forks=kept))
        case "acked" | "absent":
            return


def reader_steps(scope: BranchScope, state: BranchState, number: int) -> Iterator[BranchStep]:
    """Log, manifest, and the log again: only then was the manifest the branch's own."""
    reader, name = state.readers[number], scope.readers[number]

    def to(step: BranchStepName, detail: str, following: Reader) -> BranchStep:
        readers = replaced(state.readers, number, following)
        return branch_label(step, detail, f"Q{number}"), state._replace(readers=readers)

    match reader.phase:
        case "idle":
            living = living_in(scope, state.logs[name])
            if living is not None:
                promised = _acknowledged_on(scope, state, living)
                yield to("read.begin", f"{living} lives", Reader("manifest", living, promised))
        case "manifest":
            line = state.lines[scope.line_of(reader.incarnation)]
            if line is None or not all(readable(state, pin) for pin in line.pins):
                yield to("read.post_manifest", "gone", Reader("gone"))
            else:
                seen = frozenset[OpId]().union(*(content(state, pin) for pin in line.pins))
                unverified = scope.mutant == "read_unverified"
                following = reader._replace(phase="answered" if unverified else "verify", seen=seen)
                yield to("read.post_manifest", f"sees {sorted(seen)}", following)
        case "verify":
            alive = is_alive(scope, state, reader.incarnation)
            following = reader._replace(phase="answered") if alive else Reader("gone")
            yield to("read.verify", f"still lives: {alive}", following)
        case "answered" | "gone":
            return


def _acknowledged_on(scope: BranchScope, state: BranchState, incarnation: int) -> frozenset[OpId]:
    return frozenset(
        OpId(scope.key_of(number), incarnation)
        for number, writer in enumerate(state.writers)
        if writer.phase in ("acked", "acked_done") and writer.incarnation == incarnation
    )


def tagger_steps(scope: BranchScope, state: BranchState, number: int) -> Iterator[BranchStep]:
    """A tag keeps versions readable after its branch: it is a promise only once verified."""
    tagger, name = state.taggers[number], scope.taggers[number]

    def to(
        step: BranchStepName, detail: str, following: Tagger, changed: BranchState = state
    ) -> BranchStep:
        taggers = replaced(changed.taggers, number, following)
        return branch_label(step, detail, f"T{number}"), changed._replace(taggers=taggers)

    match tagger.phase:
        case "idle":
            found = living_line(scope, state, name)
            if found is not None:
                following = Tagger("put", found[0], found[1].pins)
                yield to("tag.begin", f"of {found[0]}", following)
        case "put":
            put = state._replace(tags=replaced(state.tags, number, tagger.pins))
            unverified = scope.mutant == "tag_unverified"
            following = tagger._replace(phase="acked" if unverified else "verify")
            yield to("tag.post_put", "put", following, put)
        case "verify":
            alive = is_alive(scope, state, tagger.incarnation)
            following = tagger._replace(phase="acked" if alive else "failed")
            yield to("tag.verify", f"still lives: {alive}", following)
        case "acked" | "failed":
            return
