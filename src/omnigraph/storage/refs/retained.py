"""Whether old versions may be used although a cleanup may be running.

Invariant: asked after the claim that relies on them is visible. A version at or above its floor is
kept for every process that claimed it before; one below stays while a branch or a tag names it, and
then that claim does too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.storage.refs.kept import no_longer_kept, not_kept

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import Snapshot, TableEntry


def require_retained(objects: Objects, snapshot: Snapshot, *, thing: str) -> None:
    """Refuse what a cleanup may have removed, or may be about to.

    Raises:
        NoLongerKeptError: a version is below its floor, and no branch or tag names it.
    """
    require_versions_retained(objects, snapshot.tables.values(), thing=thing)


def require_versions_retained(
    objects: Objects, entries: Iterable[TableEntry], *, thing: str
) -> None:
    """The same for any versions."""
    gone = not_kept(objects, entries)
    if gone:
        raise no_longer_kept(gone, thing=thing)
