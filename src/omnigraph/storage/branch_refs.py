"""Which branches there are: a log of small objects per name, each decided by one put-if-absent.

Invariant: an entry never changes and never disappears while it is the last one, but for a forced
initialisation that deposes a dead claim of `main` before any graph exists. A branch lives while the
last entry of its log says `ready`, so processes that create and delete at once are put in order by
the store.

    creating    an incarnation was drawn; its manifest is being made by this creator and nobody else
    ready       the manifest exists: the branch lives
    abandoned   takes the place of `ready` if the creator seems dead; it can never be ready then
    deleted     the branch is gone

An incarnation names the Lance branch of the manifest that holds the branch's state, so whoever
still writes for an earlier one writes where nobody looks. Nobody finishes what another began: Lance
makes a folder first and lists it afterwards, and the files of a torn one are not protected.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.objects import Objects, Put, claim
from omnigraph.storage.pinned_tables import PinnedTables, decoded

if TYPE_CHECKING:
    from collections.abc import Mapping


class BranchState(StrEnum):
    """What an entry of a log says."""

    CREATING = "creating"
    READY = "ready"
    ABANDONED = "abandoned"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """What a branch was forked from: a version of a branch's manifest, and a commit.

    `tables` is what the commit left, unless it is the one that made the manifest version.
    """

    branch: str | None
    lance_branch: str | None
    manifest_version: int
    commit_id: str
    tables: PinnedTables | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRef:
    """One incarnation of a branch: who it is, and where its manifest lives.

    `creates` lists the tables an initialisation is about to create, so that a later one may remove
    what a dead one left; it is empty for every branch but main. Branches older than the log share
    their name with their Lance branch and have no `forked_from`.
    """

    branch: str
    incarnation: str
    claimed_at: str
    creates: tuple[str, ...] = ()
    forked_from: ForkPoint | None = None

    @property
    def lance_branch(self) -> str:
        if self.forked_from is None:
            return self.branch
        return names.manifest_fork(self.branch, self.incarnation)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchLog:
    """The end of a name's log: how many entries there are, and what the last one says."""

    last: int
    state: BranchState | None
    ref: BranchRef | None

    @property
    def living(self) -> BranchRef | None:
        return self.ref if self.state is BranchState.READY else None


def claim_branch(objects: Objects, ref: BranchRef) -> BranchRef:
    """Claim the first entry of a name; returns the claim that holds it, ours or an earlier one."""
    content = _encoded(ref, BranchState.READY)
    return _decoded(claim(objects, names.branch_ref(ref.branch), content), ref.branch)[1]


def read_branch_log(objects: Objects, branch: str) -> BranchLog:
    later = objects.list(names.later_branch_refs(branch))
    last = max((names.branch_entry(path)[1] for path in later), default=1)
    return _log(objects, branch, last)


def find_branch(objects: Objects, branch: str) -> BranchRef | None:
    """The living incarnation of a branch."""
    return read_branch_log(objects, branch).living


def is_living(objects: Objects, ref: BranchRef) -> bool:
    """Whether this very incarnation is still the branch."""
    living = find_branch(objects, ref.branch)
    return living is not None and living.incarnation == ref.incarnation


def append_entry(objects: Objects, log: BranchLog, ref: BranchRef, state: BranchState) -> bool:
    """Put the next entry of a log; False if somebody else put another one there."""
    path = names.branch_ref(ref.branch, log.last + 1)
    content = _encoded(ref, state)
    # A store may repeat a put whose answer was lost, and then find our own object.
    return objects.put_if_absent(path, content) is Put.CREATED or objects.read(path) == content


def branch_logs(objects: Objects) -> Mapping[str, BranchLog]:
    """The end of every name's log but main's."""
    last: dict[str, int] = {}
    for path in objects.list(names.BRANCH_REFS_DIR):
        branch, entry = names.branch_entry(path)
        last[branch] = max(entry, last.get(branch, 0))
    return {
        branch: _log(objects, branch, entry)
        for branch, entry in sorted(last.items())
        if branch != names.MAIN
    }


def living_branches(objects: Objects) -> Mapping[str, BranchRef]:
    """Every living branch but main, by name."""
    logs = branch_logs(objects)
    return {branch: log.living for branch, log in logs.items() if log.living is not None}


def read_branch_ref(objects: Objects, branch: str) -> BranchRef | None:
    """The first entry of a name, which for main is the only one."""
    content = objects.read(names.branch_ref(branch))
    return None if content is None else _decoded(content, branch)[1]


def replace_branch_ref(objects: Objects, ref: BranchRef) -> None:
    """Depose whoever holds the name; only a forced initialisation may."""
    objects.replace(names.branch_ref(ref.branch), _encoded(ref, BranchState.READY))


def release_branch(objects: Objects, branch: str) -> None:
    """Give the first entry of a name up; only an initialisation that failed may."""
    objects.delete(names.branch_ref(branch))


def _fork_point(fields: Mapping[str, Any]) -> ForkPoint:
    tables = fields.get("tables")
    return ForkPoint(**{**fields, "tables": None if tables is None else decoded(tables)})


def _log(objects: Objects, branch: str, last: int) -> BranchLog:
    content = objects.read(names.branch_ref(branch, last))
    if content is None:
        return BranchLog(last=0, state=None, ref=None)
    state, ref = _decoded(content, branch)
    return BranchLog(last=last, state=state, ref=ref)


def _encoded(ref: BranchRef, state: BranchState) -> bytes:
    return json.dumps({**asdict(ref), "state": state.value}, sort_keys=True).encode()


def _decoded(content: bytes, branch: str) -> tuple[BranchState, BranchRef]:
    try:
        fields = json.loads(content)
        origin = fields.get("forked_from")
        return BranchState(fields.get("state", BranchState.READY)), BranchRef(
            branch=str(fields["branch"]),
            incarnation=str(fields["incarnation"]),
            claimed_at=str(fields["claimed_at"]),
            creates=tuple(str(location) for location in fields.get("creates", ())),
            forked_from=None if origin is None else _fork_point(origin),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedGraphError(
            f"the claim of branch {branch!r} cannot be understood: {error!r}",
            next_step=f"Restore {names.branch_ref(branch)} from a backup of the graph's root.",
        ) from error
