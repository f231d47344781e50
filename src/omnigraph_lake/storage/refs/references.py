"""Resolves references: a branch, a tag, a commit, a manifest version or a point in time.

Branches and tags come first. Their names cannot look like the other references, but for the
beginning of a commit id, which is looked for last. `HEAD` is the newest commit of the branch that
is asked, and `~3` after any reference means the third commit before it, by first parents.

Invariants:

- One text means one thing.
- Nothing is read twice: the result is pinned.
- A valid name cannot be mistaken for a commit id, a manifest version or a point in time, and names
  the same object on every store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import ConflictError, DamagedGraphError, InvalidInputError, NotFoundError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.storage.manifest.commit_graph import commit_graph
from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
from omnigraph_lake.storage.manifest.swap import read_manifest_version
from omnigraph_lake.storage.manifest.time_travel import (
    all_commits,
    branch_commits,
    moment_of,
    snapshot_at_commit,
    snapshot_at_time,
)
from omnigraph_lake.storage.refs.branches import (
    find_branch,
    is_living,
    living_branches,
    read_branch_manifest,
    require_living,
)
from omnigraph_lake.storage.refs.kept import require_retained
from omnigraph_lake.storage.refs.tags import Tag, all_tags, read_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import Snapshot


_BYTES_MAX: Final = 160
_SEGMENT: Final = re.compile(r"[\w\-][\w.\-]*")
_ULID: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}", re.IGNORECASE)
_PREFIX: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{3,24}", re.IGNORECASE)
_BEFORE: Final = re.compile(r"(?P<reference>.+)~(?P<steps>[0-9]{0,9})", re.DOTALL)
_CANDIDATES_SHOWN: Final = 8
_VERSION: Final = re.compile(r"v?[0-9]{1,18}")


def checked_branch(name: object) -> str:
    """A name for a branch that may be created, written or deleted."""
    text = _check(name, what="branch")
    if text.split("/")[0] == names.MAIN:
        raise InvalidInputError(
            f"{shown(text)} is reserved: the branch {names.MAIN!r} always exists and cannot be "
            "deleted",
            next_step="Choose another name.",
        )
    return text


def checked_tag(name: object) -> str:
    text = _check(name, what="tag")
    if text == names.MAIN or "/" in text:
        raise InvalidInputError(
            f"{shown(text)} cannot name a tag: it is a branch or holds a slash",
            next_step="Choose another name.",
        )
    return text


def require_not_head(name: str) -> None:
    """Refuse a new branch or tag that no reference could name; an older one can be deleted."""
    if name == names.HEAD:
        raise InvalidInputError(
            f"{shown(name)} is reserved: it is the newest commit of the branch that is asked",
            next_step="Choose another name.",
        )


def is_commit_id(text: str) -> bool:
    return _ULID.fullmatch(text) is not None


def is_commit_prefix(text: str) -> bool:
    """Whether a text may be the beginning of a commit id; branches and tags come first."""
    return _PREFIX.fullmatch(text) is not None


def manifest_version(text: str) -> int | None:
    """The number in `v17` or `17`."""
    return int(text.removeprefix("v")) if _VERSION.fullmatch(text) else None


def could_be_name(text: str) -> bool:
    """Whether a branch or a tag may have such a name; nothing else is asked of the store."""
    return (
        0 < len(text.encode(errors="replace")) <= _BYTES_MAX
        and ".." not in text
        and not text.endswith((".lock", "."))
        and all(_SEGMENT.fullmatch(part) for part in text.split("/"))
    )


def is_point_in_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check(name: object, *, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(f"{what} is {shown(name)}, expected a name")
    text = name.strip()
    if names.is_system_name(text):
        raise InvalidInputError(
            f"{what} {shown(text)} is reserved for Omnigraph",
            next_step=f"Choose another name: those that start with {names.SYSTEM_PREFIX!r} are "
            f"reserved, except for those that start with {names.LEGACY_RUN_PREFIX!r}.",
        )
    if is_commit_id(text) or manifest_version(text) is not None or is_point_in_time(text):
        raise InvalidInputError(
            f"{what} {shown(text)} could be mistaken for a commit, a version or a point in time",
            next_step="Choose a name that contains a word.",
        )
    if not could_be_name(text):
        raise InvalidInputError(
            f"{shown(text)} cannot name a {what}",
            next_step="Use letters, digits, '-', '_', '.' and '/' between parts, up to "
            f"{_BYTES_MAX} bytes.",
        )
    return text


Reference = str | int | datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a reference means: rows to read, and the branch state they were found through.

    `tag` is the tag that the reference names, if it names one.
    """

    name: str
    state: ManifestState
    snapshot: Snapshot
    tag: Tag | None = None

    @property
    def commit_id(self) -> str:
        """The newest commit of what is read."""
        return self.snapshot.commit_id or self.state.head.commit_id


def branch_ref(objects: Objects, name: str | None) -> BranchRef | None:
    """The living incarnation of a branch that a caller named; None is main."""
    value: object = name
    if value is None or value == names.MAIN:
        return None
    if not isinstance(value, str):
        raise InvalidInputError(f"branch is {shown(value)}, expected a name")
    text = value.strip()
    if text == names.MAIN:
        return None
    public = could_be_name(text) and not names.is_system_name(text)
    ref = find_branch(objects, text) if public else None
    if ref is None:
        hint = did_you_mean(text, [names.MAIN, *living_branches(objects)])
        raise NotFoundError(
            f"{objects.root} has no branch {shown(text)}" + (f" ({hint})" if hint else ""),
            next_step=f"Run `omnigraph branch list {objects.root}`.",
        )
    return ref


def branch_state(objects: Objects, ref: BranchRef | None) -> ManifestState:
    """The published state of a branch.

    Raises:
        NotFoundError: the branch was deleted concurrently.
        DamagedGraphError: its manifest is missing, or damaged.

    A late write can bring the manifest of a deleted branch back to life, so the log is looked at
    again after the manifest was read.
    """
    reach("read.begin")
    try:
        state = read_branch_manifest(objects, ref)
    except DamagedGraphError:
        require_living(objects, ref)  # the files of a branch go one after the other
        raise
    reach("read.post_manifest")
    require_living(objects, ref)
    reach("read.verify")
    return state


def require_source_lives(objects: Objects, source: Resolved) -> None:
    """Asked once a claim was put: a cleanup may have looked for claims before.

    What the source holds was kept until then if the branch and the tag it was found through are
    still there.

    Raises:
        ConflictError: one of the two was deleted.
    """
    parent, tag = source.state.ref, source.tag
    if parent is not None and not is_living(objects, parent):
        deleted_source = f"branch {parent.branch!r}"
    elif tag is not None and read_tag(objects, tag.tag) != tag:
        deleted_source = f"tag {tag.tag!r}"
    else:
        return
    raise ConflictError(
        f"{deleted_source} was deleted concurrently", next_step="Choose another source."
    )


def resolve(objects: Objects, reference: Reference, *, branch: str | None = None) -> Resolved:
    """What a reference means, as of now; versions and times are those of `branch`.

    Raises:
        NotFoundError: nothing of that name, or it is no longer kept.
    """
    text = _text(reference)
    if text == names.MAIN:
        return _head(objects, None)
    if text == names.HEAD:
        return _head(objects, branch_ref(objects, branch))
    before = _BEFORE.fullmatch(text)
    if before is not None:
        later = resolve(objects, before["reference"], branch=branch)
        return _ancestor(objects, later, int(before["steps"] or 1), text)
    version = manifest_version(text)
    if is_commit_id(text):
        resolved = _commit(objects, text.upper(), branch)
    elif version is not None:
        ref = branch_ref(objects, branch)
        state = read_manifest_version(objects.root, version, branch=ref)
        resolved = Resolved(name=text, state=state, snapshot=state.snapshot())
    elif is_point_in_time(text):
        state = branch_state(objects, branch_ref(objects, branch))
        snapshot = snapshot_at_time(objects.root, state, moment_of(text))
        resolved = Resolved(name=text, state=state, snapshot=snapshot)
    else:
        resolved = _named(objects, text, branch)
        if resolved.tag is not None or not is_commit_id(resolved.name):
            return resolved
    require_retained(objects, resolved.snapshot, thing=resolved.name)
    return resolved


def _named(objects: Objects, text: str, branch: str | None) -> Resolved:
    tag = read_tag(objects, text) if could_be_name(text) and "/" not in text else None
    if tag is not None:
        state = _home(objects, tag.branch, tag.commit_id)
        return Resolved(name=text, state=state, snapshot=tag.snapshot(), tag=tag)
    public = could_be_name(text) and not names.is_system_name(text)
    ref = find_branch(objects, text) if public else None
    if ref is not None:
        return _head(objects, ref)
    commit_id = _commit_of_prefix(objects, text.upper()) if is_commit_prefix(text) else None
    if commit_id is None:
        raise _nothing_named(objects, text)
    return _commit(objects, commit_id, branch)


def _nothing_named(objects: Objects, text: str) -> NotFoundError:
    root = objects.root
    tags = [tag.tag for tag in all_tags(objects)]
    hint = did_you_mean(text, [names.MAIN, *living_branches(objects), *tags])
    return NotFoundError(
        f"{root} has no branch, tag or commit {shown(text)}" + (f" ({hint})" if hint else ""),
        next_step=f"Run `omnigraph log {root} --graph`, which lists commits with the branches and "
        "tags on them; a commit can be given by the first four characters of its id or more.",
    )


def _commit_of_prefix(objects: Objects, prefix: str) -> str | None:
    """The one commit of any branch whose id starts like that."""
    states = [branch_state(objects, ref) for ref in (None, *living_branches(objects).values())]
    matching = sorted(
        {
            commit.commit_id
            for state in states
            for commit in branch_commits(objects.root, state)
            if commit.commit_id.startswith(prefix)
        }
    )
    if len(matching) > 1:
        raise ambiguous_commit(prefix, matching)
    return matching[0] if matching else None


def ambiguous_commit(prefix: str, candidates: Sequence[str]) -> InvalidInputError:
    """The error about a prefix that several commits have."""
    listed = ", ".join(candidates[:_CANDIDATES_SHOWN])
    others = len(candidates) - _CANDIDATES_SHOWN
    return InvalidInputError(
        f"{prefix} is the start of {len(candidates)} commits: {listed}"
        + (f" and {others:,} more" if others > 0 else ""),
        next_step="Give more letters of it.",
    )


def _ancestor(objects: Objects, later: Resolved, steps: int, text: str) -> Resolved:
    """The commit that is so many first parents before another."""
    commit_id = later.commit_id
    root = objects.root
    line = list(islice(commit_graph(root, later.state).line(commit_id), steps + 1))
    if len(line) <= steps and line and line[-1].parent_id is not None:
        known = commit_graph(root, later.state, also=all_commits(root))
        line = list(islice(known.line(commit_id), steps + 1))
    if len(line) <= steps:
        raise NotFoundError(
            f"{shown(text)} is before the first commit: {later.name} has "
            f"{counted(max(len(line) - 1, 0), 'commit')} before it",
            next_step=f"Run `omnigraph commit list {root}`.",
        )
    resolved = _commit(objects, line[steps].commit_id, later.state.branch)
    require_retained(objects, resolved.snapshot, thing=text)
    return resolved


def _home(objects: Objects, branch: str | None, commit_id: str) -> ManifestState:
    """The state of the branch that made a commit if it still lives and knows it, else of main."""
    ref = None if branch is None else find_branch(objects, branch)
    if ref is not None:
        state = branch_state(objects, ref)
        if any(
            commit_id == branch_commit.commit_id
            for branch_commit in branch_commits(objects.root, state)
        ):
            return state
    return branch_state(objects, None)


def _head(objects: Objects, ref: BranchRef | None) -> Resolved:
    state = branch_state(objects, ref)
    return Resolved(name=state.branch or names.MAIN, state=state, snapshot=state.snapshot())


def _commit(objects: Objects, commit_id: str, branch: str | None) -> Resolved:
    """A commit, looked for on the branch first and then wherever else it may be known."""
    first = branch_ref(objects, branch)
    others = [None, *living_branches(objects).values()]
    for ref in [first, *(other for other in others if other != first)]:
        state = branch_state(objects, ref)
        snapshot = snapshot_at_commit(objects.root, state, commit_id)
        if snapshot is not None and snapshot.branch != state.branch:
            state = _home(objects, snapshot.branch, commit_id)
        if snapshot is not None:
            return Resolved(name=commit_id, state=state, snapshot=snapshot)
    raise NotFoundError(
        f"{objects.root} has no commit {commit_id}",
        next_step=f"Run `omnigraph commit list {objects.root}`.",
    )


def _text(reference: object) -> str:
    if isinstance(reference, datetime):
        moment = reference if reference.tzinfo else reference.replace(tzinfo=UTC)
        return moment.isoformat()
    if isinstance(reference, int) and not isinstance(reference, bool):
        return str(reference)
    if isinstance(reference, str) and reference.strip():
        return reference.strip()
    raise InvalidInputError(
        f"{shown(reference)} does not name a state of the graph",
        next_step="Name a branch, a tag, a commit, a manifest version or a point in time.",
    )
