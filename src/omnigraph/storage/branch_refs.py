"""Claims of branch names: one small object per branch, decided by put-if-absent.

Invariant: a claim never changes after it was created, but for a forced initialisation that deposes
a dead one before any graph exists. Its incarnation tells a branch from a later
one of the same name, and the claim of `main` is also what proves, at every read-write open, that
the store honours put-if-absent.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.objects import Objects, claim


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRef:
    """Who claimed a branch name and when.

    `creates` lists the tables an initialisation is about to create, so that a later one may remove
    what a dead one left; it is empty for every branch but main.
    """

    branch: str
    incarnation: str
    claimed_at: str
    creates: tuple[str, ...] = ()


def claim_branch(objects: Objects, ref: BranchRef) -> BranchRef:
    """Claim the name; returns the claim that holds it, ours or an earlier one."""
    return _decoded(claim(objects, names.branch_ref(ref.branch), _encoded(ref)), ref.branch)


def read_branch_ref(objects: Objects, branch: str) -> BranchRef | None:
    content = objects.read(names.branch_ref(branch))
    return None if content is None else _decoded(content, branch)


def replace_branch_ref(objects: Objects, ref: BranchRef) -> None:
    """Depose whoever holds the name; only a forced initialisation may."""
    objects.replace(names.branch_ref(ref.branch), _encoded(ref))


def release_branch(objects: Objects, branch: str) -> None:
    objects.delete(names.branch_ref(branch))


def _encoded(ref: BranchRef) -> bytes:
    return json.dumps(asdict(ref), sort_keys=True).encode()


def _decoded(content: bytes, branch: str) -> BranchRef:
    try:
        fields = json.loads(content)
        return BranchRef(
            branch=str(fields["branch"]),
            incarnation=str(fields["incarnation"]),
            claimed_at=str(fields["claimed_at"]),
            creates=tuple(str(location) for location in fields.get("creates", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedGraphError(
            f"the claim of branch {branch!r} cannot be understood: {error!r}",
            next_step=f"Restore {names.branch_ref(branch)} from a backup of the graph's root.",
        ) from error
