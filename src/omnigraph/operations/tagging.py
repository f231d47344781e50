"""Naming a commit, and forgetting the name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import ConflictError, NotFoundError
from omnigraph.failpoints import reach
from omnigraph.operations.reference_names import checked_tag
from omnigraph.storage.branch_refs import find_branch, is_living
from omnigraph.storage.pinned_tables import written_down
from omnigraph.storage.tables import open_pinned
from omnigraph.storage.tags import Tag, all_tags, delete_tag, put_tag, read_tag
from omnigraph.syntax import did_you_mean

if TYPE_CHECKING:
    from omnigraph.commit.clock import Clock
    from omnigraph.operations.references import Resolved
    from omnigraph.storage.objects import Objects


def create_tag(objects: Objects, name: str, source: Resolved, *, actor: str, clock: Clock) -> Tag:
    """Name what a reference stands for now.

    What the tag names is looked at after it was put: whoever removed it meanwhile did not know.

    Raises:
        ConflictError: the name is taken by a tag or a branch.
        DamagedGraphError: a version was removed before the tag could protect it.
    """
    checked = checked_tag(name)
    snapshot = source.snapshot
    reach("tag.begin")
    _require_no_branch(objects, checked)
    tag = Tag(
        tag=checked,
        commit_id=snapshot.commit_id or source.state.head.commit_id,
        branch=snapshot.branch,
        manifest_version=snapshot.manifest_version,
        actor=actor,
        created_at=clock.timestamp(),
        tables=written_down(snapshot),
    )
    if not put_tag(objects, tag):
        held = read_tag(objects, checked)
        if held is None or held.commit_id != tag.commit_id:
            raise ConflictError(
                f"{objects.root} already has a tag {checked!r}",
                next_step="Choose another name, or delete that tag first.",
            )
        return held
    reach("tag.post_put")
    try:
        _require_no_branch(objects, checked)
        _require_living(objects, source)
        for entry in snapshot.tables.values():
            open_pinned(objects.root, entry)
    except BaseException:
        if read_tag(objects, checked) == tag:
            delete_tag(objects, checked)
        raise
    reach("tag.verify")
    return tag


def _require_living(objects: Objects, source: Resolved) -> None:
    """Whoever deletes a branch may have looked for tags before this one was put."""
    branch = source.state.ref
    if branch is not None and not is_living(objects, branch):
        raise ConflictError(
            f"branch {branch.branch!r} was deleted meanwhile", next_step="Tag another commit."
        )


def _require_no_branch(objects: Objects, name: str) -> None:
    if find_branch(objects, name) is not None:
        raise ConflictError(
            f"{objects.root} has a branch {name!r}", next_step="Choose another name."
        )


def remove_tag(objects: Objects, name: str) -> None:
    checked = checked_tag(name)
    if read_tag(objects, checked) is None:
        hint = did_you_mean(checked, [tag.tag for tag in all_tags(objects)])
        raise NotFoundError(
            f"{objects.root} has no tag {checked!r}" + (f" ({hint})" if hint else ""),
            next_step=f"Run `omnigraph tag list {objects.root}`.",
        )
    delete_tag(objects, checked)
