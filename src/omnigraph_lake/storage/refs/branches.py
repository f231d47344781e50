"""Which branches there are: a log per name says which incarnation of it lives, if any does.

Invariant: an incarnation names the Lance branch of the manifest that holds the branch's state, so a
writer of an earlier one writes where no reader looks. It is made by its creator alone: Lance makes
a folder first and lists it afterwards, and the files of a torn one are not protected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError, NotFoundError
from omnigraph_lake.storage.manifest.state import BranchRef, ForkPoint, ManifestState
from omnigraph_lake.storage.manifest.swap import manifest_branches, read_manifest
from omnigraph_lake.storage.objects.documents import moment
from omnigraph_lake.storage.objects.store import Objects, claim
from omnigraph_lake.storage.refs import logs as ref_logs
from omnigraph_lake.storage.snapshot import decoded as pinned
from omnigraph_lake.storage.snapshot import paths_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


BranchState = ref_logs.RefState
BranchLog = ref_logs.RefLog[BranchRef]


def claim_branch(objects: Objects, ref: BranchRef) -> BranchRef:
    """Claim the first entry of a name; returns the claim that holds it, ours or an earlier one."""
    path = names.branch_ref(ref.branch)
    return ref_logs.decoded(
        _BRANCHES,
        path,
        claim(objects, path, ref_logs.encoded(_BRANCHES, ref, ref_logs.RefState.READY, path)),
    )[1]


def read_branch_log(objects: Objects, branch: str) -> BranchLog:
    return ref_logs.read_log(objects, _BRANCHES, branch)


def free_branch_log(objects: Objects, branch: str) -> BranchLog | None:
    """The log of a name that no branch has; a creation that has not ended is abandoned."""
    return ref_logs.free_log(objects, _BRANCHES, branch)


def find_branch(objects: Objects, branch: str) -> BranchRef | None:
    """The living incarnation of a branch."""
    log = read_branch_log(objects, branch)
    if log.last or branch == names.MAIN:
        return log.living
    main = read_branch_ref(objects, names.MAIN)
    return _branches_before_logs(objects, main).get(branch)


def is_living(objects: Objects, ref: BranchRef) -> bool:
    """Whether this very incarnation is still the branch."""
    living = find_branch(objects, ref.branch)
    return living is not None and living.incarnation == ref.incarnation


def read_branch_manifest(objects: Objects, ref: BranchRef | None) -> ManifestState:
    """The latest manifest of a branch; None is main.

    A branch becomes ready after its manifest was made, and loses it after it was deleted, so one
    that is living has a manifest.

    Raises:
        NotFoundError: the branch was deleted concurrently.
        DamagedGraphError: the manifest of the branch is missing, or damaged.
    """
    try:
        return read_manifest(objects.root, branch=ref)
    except NotFoundError as error:
        if ref is None:
            raise
        require_living(objects, ref)
        raise missing_manifest(objects, ref) from error


def missing_manifest(objects: Objects, ref: BranchRef) -> DamagedGraphError:
    """The error of a living branch that has no manifest."""
    folder = names.fork_location(names.MANIFEST, ref.lance_branch)
    return DamagedGraphError(
        f"branch {ref.branch!r} of {objects.root} is damaged: its manifest {folder} is missing",
        next_step="Restore that folder from a backup of the root, or delete the branch with "
        f"`omnigraph branch delete {objects.root} {ref.branch}`.",
    )


def require_living(objects: Objects, ref: BranchRef | None) -> None:
    """Raise NotFoundError if a branch was deleted; main never is."""
    if ref is not None and not is_living(objects, ref):
        raise NotFoundError(
            f"branch {ref.branch!r} of {objects.root} was deleted concurrently",
            next_step=f"Run `omnigraph branch list {objects.root}`.",
        )


def append_entry(
    objects: Objects, log: BranchLog, ref: BranchRef, state: ref_logs.RefState
) -> bool:
    """Put the next entry of a log; False if another process put another one there."""
    return ref_logs.append_to(objects, _BRANCHES, log, ref, state)


def branch_logs(objects: Objects) -> Mapping[str, BranchLog]:
    """The end of every name's log but main's."""
    logs = ref_logs.read_logs(objects, _BRANCHES)
    return {branch: log for branch, log in logs.items() if branch != names.MAIN}


def broken_branch_entries(objects: Objects) -> Iterator[tuple[str, str]]:
    """Entries of the logs of branches that are damaged or missing, and why."""
    return ref_logs.broken_entries(objects, _BRANCHES)


def living_branches(objects: Objects) -> Mapping[str, BranchRef]:
    """Every living branch but main, by name."""
    logs = ref_logs.read_logs(objects, _BRANCHES)
    living = {branch: log.living for branch, log in logs.items() if log.living is not None}
    unlogged = {
        branch: ref
        for branch, ref in _branches_before_logs(objects, living.pop(names.MAIN, None)).items()
        if branch not in logs
    }
    return dict(sorted((living | unlogged).items()))


def _branches_before_logs(objects: Objects, main: BranchRef | None) -> Mapping[str, BranchRef]:
    """The branches of a graph that is older than their logs: those that Lance lists.

    Who made the graph with a log of main wrote down which tables it creates; all others have to be
    asked for their format.
    """
    if main is not None and main.creates:
        return {}
    try:
        stamp = read_manifest(objects.root).stamp
    except (DamagedGraphError, NotFoundError):
        return {}  # a reader of the manifest reports it; the logs can be read without it
    if stamp >= names.STAMP_OF_HEADS:
        return {}
    return {
        branch: BranchRef(branch=branch, incarnation="", claimed_at="")
        for branch in manifest_branches(objects.root)
        if branch != names.SCHEMA_APPLY_LOCK
    }


def read_branch_ref(objects: Objects, branch: str) -> BranchRef | None:
    """The first entry of a name, which for main is the only one."""
    path = names.branch_ref(branch)
    content = objects.read(path)
    return None if content is None else ref_logs.decoded(_BRANCHES, path, content)[1]


def replace_branch_ref(objects: Objects, ref: BranchRef) -> None:
    """Take the name from its owner; only a forced initialisation may."""
    path = names.branch_ref(ref.branch)
    objects.replace(path, ref_logs.encoded(_BRANCHES, ref, ref_logs.RefState.READY, path))


def release_branch(objects: Objects, branch: str) -> None:
    """Give the first entry of a name up; only an initialisation that failed may."""
    objects.delete(names.branch_ref(branch))


def _fork_point(fields: Mapping[str, Any]) -> ForkPoint:
    tables = fields.get("tables")
    return ForkPoint(**{**fields, "tables": None if tables is None else pinned(tables)})


def _branch_ref(fields: Mapping[str, Any]) -> BranchRef:
    origin, owner, expires_at = map(fields.get, ("forked_from", "owner", "expires_at"))
    for time in (fields["claimed_at"], *([] if expires_at is None else [expires_at])):
        moment(time)
    for text in (fields["branch"], fields["incarnation"], *([] if owner is None else [owner])):
        if not isinstance(text, str):
            raise TypeError(f"{text!r:.80} is no text")
    return BranchRef(
        branch=fields["branch"],
        incarnation=fields["incarnation"],
        claimed_at=fields["claimed_at"],
        creates=tuple(str(location) for location in fields.get("creates", ())),
        forked_from=None if origin is None else _fork_point(origin),
        owner=owner,
        expires_at=expires_at,
    )


def _paths(ref: BranchRef) -> Iterator[str]:
    yield ref.branch
    yield from ref.creates
    yield from (ref.incarnation,) if ref.incarnation else ()
    origin = ref.forked_from
    if origin is not None:
        named = (origin.branch, origin.lance_branch, origin.schema_hash)
        yield from (part for part in named if part)
        yield from paths_in(origin.tables or ())


_BRANCHES: Final = ref_logs.RefKind(
    thing="branch",
    directory=names.BRANCH_REFS_DIR,
    post_abandon="branch.post_abandon",
    decoded=_branch_ref,
    named=lambda ref: ref.branch,
    paths=_paths,
)
