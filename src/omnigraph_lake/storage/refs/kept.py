"""Decides which versions are kept, and reports those that a cleanup removed or may be removing.

A process that relies on old versions asks only after its claim on them is visible, because a
cleanup may be running.

Invariants:

- A version at or above its floor is kept, for every process that claimed it before it asked.
- A version below its floor is kept while a branch or a tag names it, and then the claim names it
  too. Whatever else is found in its place is not what was published there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from omnigraph_lake import errors
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.manifest.retention import Line, line_of, read_retention
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.objects.store import Objects, stored_objects
from omnigraph_lake.storage.refs.branches import is_living, living_branches
from omnigraph_lake.storage.refs.tags import all_tags

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry


MAYBE_GONE: Final = (errors.DamagedGraphError, errors.StorageUnavailableError)
"""How reading a version fails that is removed meanwhile."""


def not_kept(objects: Objects, entries: Iterable[TableEntry]) -> tuple[TableEntry, ...]:
    """Those of some versions that a cleanup may have removed, or may be about to."""
    retention = read_retention(objects)
    reach("retention.check")
    below = [entry for entry in entries if retention.is_below(entry)]
    if not below:
        return ()
    named = set(_named(objects))
    return tuple(entry for entry in below if (line_of(entry), entry.version) not in named)


def no_longer_kept(entries: Iterable[TableEntry], *, thing: str) -> errors.NoLongerKeptError:
    keys = sorted({entry.table_key for entry in entries})
    return errors.NoLongerKeptError(
        f"the data of {', '.join(keys[:3])} at {thing} is no longer kept",
        next_step="Choose a newer commit; tags keep the commits they name, and "
        "`graph.at(commit, hold=...)` keeps one while it is read.",
    )


@contextmanager
def gone_if_removed(root: Root, *entries: TableEntry | None) -> Iterator[None]:
    """Say of a failure to read versions that a cleanup removed them, if that is why."""
    try:
        yield
    except MAYBE_GONE as error:
        removed_entries = not_kept(
            stored_objects(root), (entry for entry in entries if entry is not None)
        )
        if removed_entries:
            raise no_longer_kept(removed_entries, thing="the commit that is read") from error
        raise


def streamed_unless_removed(
    batches: Iterable[pa.RecordBatch], root: Root, *entries: TableEntry | None
) -> Iterator[pa.RecordBatch]:
    """The same for rows that are read as they are asked for."""
    with gone_if_removed(root, *entries):
        yield from batches


def _named(objects: Objects) -> Iterator[tuple[Line, int]]:
    """What main, living branches and tags name now."""
    yield from _pins(read_manifest(objects.root).snapshot())
    for ref in living_branches(objects).values():
        try:
            state = read_manifest(objects.root, branch=ref)
        except errors.NotFoundError:
            continue
        if is_living(objects, ref):
            yield from _pins(state.snapshot())
    for tag in all_tags(objects):
        yield from _pins(tag.snapshot())


def _pins(snapshot: Snapshot) -> Iterator[tuple[Line, int]]:
    for entry in snapshot.tables.values():
        yield line_of(entry), entry.version


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
    removed_entries = not_kept(objects, entries)
    if removed_entries:
        raise no_longer_kept(removed_entries, thing=thing)
