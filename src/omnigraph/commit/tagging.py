"""Creating and deleting tags.

Invariant: one put-if-absent decides each step. A tag protects what it names once it is claimed;
only then are the versions verified, and the tag exists once they are. So a tag that was reported as
created stays until it is deleted. No process finishes a creation for another: it takes the place of
one that does not end.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import ConflictError, NotFoundError, OmnigraphError
from omnigraph.failpoints import reach
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.storage.lance.tables import open_pinned
from omnigraph.storage.pinned_tables import written_down
from omnigraph.storage.refs.branches import find_branch, free_branch_log
from omnigraph.storage.refs.logs import RefState
from omnigraph.storage.refs.reference_names import checked_tag
from omnigraph.storage.refs.references import branch_state, require_source_lives
from omnigraph.storage.refs.retained import require_retained
from omnigraph.storage.refs.tags import (
    Tag,
    all_tags,
    append_tag_entry,
    free_tag_log,
    read_tag,
    read_tag_log,
)

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.refs.references import Resolved


def create_tag(objects: Objects, name: str, source: Resolved, *, actor: str, clock: Clock) -> Tag:
    """Tag the current meaning of a reference; a tag that already names it is returned.

    Raises:
        ConflictError: the name is taken, or what it was found through was deleted concurrently.
        NotFoundError: a version is no longer kept.
        DamagedGraphError: a version is gone.
    """
    checked = checked_tag(name)
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
    held = read_tag(objects, wanted.tag)
    if held is not None and held.commit_id == wanted.commit_id:
        return held
    raise ConflictError(
        f"{objects.root} already has a tag {wanted.tag!r} or is creating one",
        next_step="Choose another name, or delete that tag first.",
    )


def _branch_has_it(objects: Objects, name: str) -> ConflictError:
    return ConflictError(f"{objects.root} has a branch {name!r}", next_step="Choose another name.")
