"""Creates, lists and deletes branches, and creates and deletes tags.

The creator of a branch looks at the parent after the branch's manifest exists, and only then makes
the branch live, because the parent may be deleted meanwhile.

Invariants:

- One put-if-absent decides each step of a creation and each deletion.
- No process finishes a creation for another: it takes the place of one that does not end.
- The data of a deleted branch is removed by the process that deleted it, or later by `cleanup`,
  once nothing names it.
- A tag protects what it names once it is claimed; only then are the versions verified, and the tag
  exists once they are. So a tag that was reported as created stays until it is deleted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.arguments import checked_owner, parse_age
from omnigraph_lake.commit.fork_on_write import belongs_to
from omnigraph_lake.commit.orphans import reconcile_if_few
from omnigraph_lake.display.cells import Cell, Moment, short_id
from omnigraph_lake.display.pages import Displayed, Listing, Page, page_of
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import ConflictError, InvalidInputError, NotFoundError, OmnigraphError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph, commit_graph
from omnigraph_lake.storage.manifest.history import record_commits
from omnigraph_lake.storage.manifest.state import BranchRef, ForkPoint, ManifestState
from omnigraph_lake.storage.manifest.swap import fork_manifest, read_manifest
from omnigraph_lake.storage.manifest_rows import GraphCommit
from omnigraph_lake.storage.refs.branches import (
    BranchState,
    append_entry,
    find_branch,
    free_branch_log,
    living_branches,
    read_branch_log,
)
from omnigraph_lake.storage.refs.holds import CLOCK_MARGIN
from omnigraph_lake.storage.refs.kept import require_retained
from omnigraph_lake.storage.refs.logs import RefState
from omnigraph_lake.storage.refs.references import (
    Resolved,
    branch_ref,
    branch_state,
    checked_branch,
    checked_tag,
    require_not_head,
    require_source_lives,
)
from omnigraph_lake.storage.refs.tags import (
    Tag,
    all_tags,
    append_tag_entry,
    free_tag_log,
    read_tag,
    read_tag_log,
)
from omnigraph_lake.storage.snapshot import lineage_of, written_down

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.objects.store import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchInfo(Displayed):
    """An existing branch, as listed."""

    name: str
    parent: str | None
    created_at: str | None
    commit_id: str
    tables_written: int
    owner: str | None = None
    expires_at: str | None = None
    abandoned: bool = False
    """Whether it has expired and was not written to since."""
    ahead: int = 0
    """Commits that main does not have."""
    behind: int = 0
    """Commits of main that it does not have."""
    actor: str | None = None
    """Author of its newest commit."""
    committed_at: str | None = None
    message: str | None = None

    def _page(self) -> Page:
        summary = f"branch {self.name} at commit {short_id(self.commit_id)}"
        return replace(page_of(BranchListing([self])), summary=summary)


class BranchListing(Listing[BranchInfo]):
    """Branches, as a table."""

    __slots__ = ()

    def _page(self) -> Page:
        columns: dict[str, list[Cell]] = {
            "branch": [info.name for info in self],
            "commit": [short_id(info.commit_id) for info in self],
            "ahead": [str(info.ahead) for info in self],
            "behind": [str(info.behind) for info in self],
            "changed": [Moment(info.committed_at) for info in self],
            "author": [info.actor or "" for info in self],
        }
        optional: dict[str, list[Cell]] = {
            "message": [(info.message or "").partition("\n")[0] for info in self],
            "made from": [info.parent or "" for info in self],
            "owner": [info.owner or "" for info in self],
            "expires": [
                "abandoned" if info.abandoned else Moment(info.expires_at) for info in self
            ],
        }
        columns |= {name: cells for name, cells in optional.items() if any(map(_has_text, cells))}
        rows = list(zip(*columns.values(), strict=True))
        return Page(
            tables=[TableView(header=tuple(columns), rows=rows, numbers=(2, 3), whole=(0, 1))]
        )


def _has_text(cell: Cell) -> bool:
    return bool(cell.at) if isinstance(cell, Moment) else bool(cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """The owner and the expiry of a branch; None if not given."""

    owner: str | None = None
    time: timedelta | None = None

    def ends_at(self, clock: Clock) -> str | None:
        if self.time is None:
            return None
        return (clock.now() + self.time).isoformat(timespec="microseconds")


FOR_EVER: Final = Lifetime()
LIFETIME_MAX: Final = timedelta(weeks=5_000)


def checked_lifetime(owner: str | None, expires: object) -> Lifetime:
    """The validated owner and expiry of a branch."""
    time = parse_age(expires) if isinstance(expires, str) else expires
    if time is not None and not (
        isinstance(time, timedelta) and timedelta(0) < time <= LIFETIME_MAX
    ):
        raise InvalidInputError(
            f"expires is {shown(expires)}, expected a time such as 12h, 7d or 4w, at most "
            f"{LIFETIME_MAX.days // 7}w",
            next_step="Leave it out for a branch without expiry.",
        )
    return Lifetime(owner=None if owner is None else checked_owner(owner), time=time)


def create_branch(
    objects: Objects, name: str, source: Resolved, clock: Clock, lifetime: Lifetime = FOR_EVER
) -> BranchRef:
    """Create a branch from the current state of the source.

    Raises:
        ConflictError: the name is taken, or its source was deleted concurrently.
        NotFoundError: its starting point is no longer kept.
    """
    branch = checked_branch(name)
    require_not_head(branch)
    if branch in lineage_of(source.state.rows, source.state.branch):
        raise ConflictError(
            f"{source.name} descends from an earlier branch {branch!r}",
            next_step="Choose another name.",
        )
    if "/" not in branch and read_tag(objects, branch) is not None:
        raise _tag_has_it(objects, branch)
    reach("branch.begin")
    log = free_branch_log(objects, branch)
    ref = BranchRef(
        branch=branch,
        incarnation=clock.new_id(),
        claimed_at=clock.timestamp(),
        forked_from=_fork_point(source),
        owner=lifetime.owner,
        expires_at=lifetime.ends_at(clock),
    )
    if log is None or not append_entry(objects, log, ref, BranchState.CREATING):
        raise _taken(objects, branch)
    reach("branch.post_claim")
    claimed = replace(log, last=log.last + 1)
    try:
        fork_manifest(objects.root, ref)
        reach("branch.post_manifest")
        _require_source(objects, source)
        reach("branch.post_parent")
        # A tag looks for branches after its claim was put, so one of the two sees the other.
        if "/" not in branch and free_tag_log(objects, branch) is None:
            raise _tag_has_it(objects, branch)
    except OmnigraphError:
        with suppress(OmnigraphError):
            append_entry(objects, claimed, ref, BranchState.ABANDONED)
        require_source_lives(objects, source)
        raise
    if not append_entry(objects, claimed, ref, BranchState.READY):
        raise _taken(objects, branch)
    reach("branch.post_ready")
    return ref


def list_branches(objects: Objects, clock: Clock) -> Listing[BranchInfo]:
    """Main, then every living branch by name.

    Raises:
        DamagedGraphError: the manifest of a branch is missing, or damaged.
    """
    now = clock.now()
    states = [branch_state(objects, None)]
    for ref in living_branches(objects).values():
        if names.is_system_name(ref.branch):
            continue
        with suppress(NotFoundError):
            # Deleted concurrently. A manifest that is missing or damaged is an error.
            states.append(branch_state(objects, ref))
    graph = commit_graph(objects.root, *states)
    main = _reachable(graph, states[0])
    return BranchListing(_compare(_info(state, now), graph, state, main) for state in states)


def _compare(
    info: BranchInfo, graph: CommitGraph, state: ManifestState, main: frozenset[str]
) -> BranchInfo:
    """What is listed of a branch, with its newest commit, and how far it is from main."""
    own, newest = _reachable(graph, state), graph.get(state.head.commit_id)
    if newest is None:
        return info
    return replace(
        info,
        ahead=len(own - main),
        behind=len(main - own),
        actor=newest.actor,
        committed_at=newest.created_at,
        message=newest.message,
    )


def _reachable(graph: CommitGraph, state: ManifestState) -> frozenset[str]:
    return frozenset(commit.commit_id for commit in graph.reachable(state.head.commit_id))


def abandoned_branches(objects: Objects, clock: Clock) -> tuple[tuple[BranchRef, BranchInfo], ...]:
    """The branches that have expired and were not written to since."""
    candidates: list[tuple[BranchRef, BranchInfo]] = []
    for ref in living_branches(objects).values():
        if ref.expires_at is not None:
            with suppress(NotFoundError):
                candidates.append((ref, _info(branch_state(objects, ref), clock.now())))
    return tuple((ref, info) for ref, info in candidates if info.abandoned)


def delete_branch(objects: Objects, name: str, *, incarnation: str | None = None) -> None:
    """Delete a branch and what only it uses; commits that merged it are unaffected.

    With an incarnation only that one: a later branch of the same name is another.

    Raises:
        NotFoundError: there is no such branch.
        ConflictError: branches that were created from it still exist.
    """
    branch = checked_branch(name)
    ref = branch_ref(objects, branch)
    assert ref is not None
    if incarnation not in (None, ref.incarnation):
        raise NotFoundError(f"branch {branch!r} was deleted concurrently, and created again")
    children = _children(objects, ref)
    if children:
        raise ConflictError(
            f"branch {branch!r} cannot be deleted: {', '.join(children)} were created from it",
            next_step=f"Delete {children[0]!r} first.",
        )
    _keep_commits(objects, ref)
    reach("branch.pre_delete")
    log = read_branch_log(objects, branch)
    if log.living is not None and log.living.incarnation == ref.incarnation:
        append_entry(objects, log, ref, BranchState.DELETED)
    reach("branch.post_delete")
    with suppress(OmnigraphError):
        # It is deleted; its remaining data is unreferenced and is removed by `cleanup`.
        reconcile_if_few(objects)


def _taken(objects: Objects, branch: str) -> ConflictError:
    return ConflictError(
        f"{objects.root} already has a branch {branch!r} or is creating one",
        next_step=f"Choose another name, or `omnigraph branch delete {objects.root} {branch}`.",
    )


def _fork_point(source: Resolved) -> ForkPoint:
    state, snapshot = source.state, source.snapshot
    commit_id = snapshot.commit_id or state.head.commit_id
    # One swap may publish several commits: only the last of them left this version.
    at_head = snapshot.manifest_version == state.version and snapshot.branch == state.branch
    at_head = at_head and commit_id == state.head.commit_id
    # A branch that has not written yet is in no manifest: a fork of it could not find what it was
    # itself forked from.
    at_head = at_head and state.head.sequence > 0
    return ForkPoint(
        branch=state.branch,
        lance_branch=None if state.ref is None else state.ref.lance_branch,
        manifest_version=state.version,
        commit_id=commit_id,
        tables=None if at_head else written_down(snapshot),
        schema_hash=None if at_head else snapshot.schema_hash or state.head.first_schema,
    )


def _tag_has_it(objects: Objects, branch: str) -> ConflictError:
    return ConflictError(f"{objects.root} has a tag {branch!r}", next_step="Choose another name.")


def _require_source(objects: Objects, source: Resolved) -> None:
    """The starting point must not have been removed before the branch protected it."""
    require_source_lives(objects, source)
    require_retained(objects, source.snapshot, thing=source.name)
    if source.snapshot.commit_id != source.state.head.commit_id:
        for entry in source.snapshot.tables.values():
            open_pinned(objects.root, entry)


def _children(objects: Objects, ref: BranchRef) -> tuple[str, ...]:
    return tuple(
        living_branch.branch
        for living_branch in living_branches(objects).values()
        if living_branch.forked_from is not None
        and living_branch.forked_from.lance_branch == ref.lance_branch
    )


def _keep_commits(objects: Objects, ref: BranchRef) -> None:
    """Keep the commits of a branch to be deleted, for branches that merged it."""
    with suppress(NotFoundError):
        # Without its manifest, too: deleting the branch is what the error about that advises.
        state = read_manifest(objects.root, branch=ref)
        commits = [
            row for row in state.rows if isinstance(row, GraphCommit) and row.branch == ref.branch
        ]
        if commits:
            record_commits(objects.root, commits)


def _is_abandoned(state: ManifestState, now: datetime) -> bool:
    """Whether it has expired, with a margin for clock differences, and has no later commit."""
    if state.ref is None or state.ref.expires_at is None:
        return False
    ends = datetime.fromisoformat(state.ref.expires_at)
    written = [
        datetime.fromisoformat(row.created_at)
        for row in state.rows
        if isinstance(row, GraphCommit) and row.branch == state.branch
    ]
    return now - CLOCK_MARGIN > ends and all(moment <= ends for moment in written)


def _info(state: ManifestState, now: datetime) -> BranchInfo:
    snapshot = state.snapshot()
    own = [entry for entry in snapshot.tables.values() if belongs_to(entry, state.ref)]
    origin = None if state.ref is None else state.ref.forked_from
    parent = None if state.ref is None else names.MAIN
    return BranchInfo(
        name=snapshot.branch_name,
        parent=origin.branch or names.MAIN if origin is not None else parent,
        created_at=None if state.ref is None else state.ref.claimed_at,
        commit_id=state.head.commit_id,
        tables_written=len(own),
        owner=None if state.ref is None else state.ref.owner,
        expires_at=None if state.ref is None else state.ref.expires_at,
        abandoned=_is_abandoned(state, now),
    )


def create_tag(objects: Objects, name: str, source: Resolved, *, actor: str, clock: Clock) -> Tag:
    """Tag the current meaning of a reference; a tag that already names it is returned.

    Raises:
        ConflictError: the name is taken, or what it was found through was deleted concurrently.
        NotFoundError: a version is no longer kept.
        DamagedGraphError: a version is gone.
    """
    checked = checked_tag(name)
    require_not_head(checked)
    reach("tag.begin")
    if find_branch(objects, checked) is not None:
        raise _branch_has_it(objects, checked)
    tag = Tag(
        tag=checked,
        commit_id=source.snapshot.commit_id or source.state.head.commit_id,
        branch=source.snapshot.branch,
        manifest_version=source.snapshot.manifest_version,
        actor=actor,
        created_at=clock.timestamp(),
        tables=written_down(source.snapshot),
        incarnation=clock.new_id(),
        schema_hash=source.snapshot.schema_hash or source.state.head.first_schema,
    )
    log = free_tag_log(objects, checked)
    if log is None or not append_tag_entry(objects, log, tag, RefState.CREATING):
        return _made_by_another(objects, tag)
    reach("tag.post_put")
    claimed = replace(log, last=log.last + 1)
    try:
        _require_sound(objects, tag, source)
    except BaseException:
        with suppress(OmnigraphError):
            append_tag_entry(objects, claimed, tag, RefState.ABANDONED)
        raise
    if not append_tag_entry(objects, claimed, tag, RefState.READY):
        return _made_by_another(objects, tag)
    reach("tag.verify")
    return tag


def remove_tag(objects: Objects, name: str) -> None:
    """Delete a tag; what only it kept may be cleaned up from now on.

    Raises:
        NotFoundError: there is no such tag.
    """
    checked = checked_tag(name)
    branch_state(objects, None)  # a graph of a newer format is left alone
    log = read_tag_log(objects, checked)
    doomed = log.living
    if doomed is None:
        hint = did_you_mean(checked, [tag.tag for tag in all_tags(objects)])
        raise NotFoundError(
            f"{objects.root} has no tag {checked!r}" + (f" ({hint})" if hint else ""),
            next_step=f"Run `omnigraph tag list {objects.root}`.",
        )
    # A concurrent next entry deleted this tag, too, or an upgrade repeated that it is ready.
    while log.living == doomed and not append_tag_entry(objects, log, doomed, RefState.DELETED):
        log = read_tag_log(objects, checked)
    reach("tag.post_delete")


def _require_sound(objects: Objects, tag: Tag, source: Resolved) -> None:
    """Verify all that the tag needs, while its claim protects it."""
    # A new branch looks for tags after its claim was put: one of the two sees the other.
    if free_branch_log(objects, tag.tag) is None:
        raise _branch_has_it(objects, tag.tag)
    require_source_lives(objects, source)
    require_retained(objects, source.snapshot, thing=source.name)
    for entry in source.snapshot.tables.values():
        open_pinned(objects.root, entry)


def _made_by_another(objects: Objects, wanted: Tag) -> Tag:
    """The tag of that name if it is ready and names the same commit; no other will do."""
    existing_tag = read_tag(objects, wanted.tag)
    if existing_tag is not None and existing_tag.commit_id == wanted.commit_id:
        return existing_tag
    raise ConflictError(
        f"{objects.root} already has a tag {wanted.tag!r} or is creating one",
        next_step="Choose another name, or delete that tag first.",
    )


def _branch_has_it(objects: Objects, name: str) -> ConflictError:
    return ConflictError(f"{objects.root} has a branch {name!r}", next_step="Choose another name.")
