"""Whether old versions may be relied on although somebody may be cleaning up.

Invariant: asked after the claim that relies on them is visible. A version at or above its floor
stays for everybody who claimed it before; one below stays while a branch or a tag names it, and
then that claim does too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import NotFoundError
from omnigraph.failpoints import left_out, reach
from omnigraph.storage.branch_refs import is_living, living_branches
from omnigraph.storage.manifest import read_manifest
from omnigraph.storage.retention import line_of, read_retention
from omnigraph.storage.tags import all_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.storage.objects import Objects
    from omnigraph.storage.retention import Line
    from omnigraph.storage.snapshot import Snapshot, TableEntry


def require_retained(objects: Objects, snapshot: Snapshot, *, thing: str) -> None:
    """Refuse what a cleanup may have removed, or may be about to.

    Raises:
        NotFoundError: a version is below its floor, and no branch or tag names it.
    """
    if left_out("no_retention_check"):
        return
    retention = read_retention(objects)
    reach("retention.check")
    below = [entry for entry in snapshot.tables.values() if retention.is_below(entry)]
    if not below:
        return
    named = set(_named(objects))
    gone = sorted(e.table_key for e in below if (line_of(e), e.version) not in named)
    if gone:
        raise NotFoundError(
            f"what {thing} left of {', '.join(gone[:3])} is not kept any more",
            next_step="Choose a newer commit; tags keep the commits they name.",
        )


def _named(objects: Objects) -> Iterator[tuple[Line, int]]:
    """What main, living branches and tags name now."""
    yield from _pins(read_manifest(objects.root).snapshot())
    for ref in living_branches(objects).values():
        try:
            state = read_manifest(objects.root, branch=ref)
        except NotFoundError:
            continue
        if is_living(objects, ref):
            yield from _pins(state.snapshot())
    for tag in all_tags(objects):
        yield from _pins(tag.snapshot())


def _pins(snapshot: Snapshot) -> Iterator[tuple[Line, int]]:
    entries: list[TableEntry] = list(snapshot.tables.values())
    for entry in entries:
        yield line_of(entry), entry.version
