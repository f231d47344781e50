"""Report a root whose graph has no readable manifest, and admit one rebuild of it at a time.

Rebuilds are recorded in a log of small objects, each put only if it is absent. An entry also names
the damaged versions and is durable before anything is changed, so that after a power cut they are
not mistaken for versions that the power cut damaged (`storage/objects/power_cuts.py`).

Invariants:
- A root is reported as damaged only after its manifest was looked for again. A graph that is being
  created, or whose creation failed before it held anything, is not damaged.
- Of two rebuilds that begin at once, one is refused. A rebuild whose process is gone, or that has
  been silent for an hour on another host, does not block others.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.sidecar import started_at, this_host, this_process
from omnigraph_lake.errors import ConflictError, DamagedGraphError, NotFoundError, OmnigraphError
from omnigraph_lake.storage.manifest.survey import ManifestSurvey, is_damage, survey_manifest
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.objects.documents import moment, parsed, typed
from omnigraph_lake.storage.objects.durability import sync
from omnigraph_lake.storage.objects.location import Scheme
from omnigraph_lake.storage.objects.store import Objects, Put
from omnigraph_lake.storage.refs.branches import branch_logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.manifest.state import ManifestState


_MADE_FIRST: Final = 1


def holds_data(objects: Objects) -> bool:
    """Whether a graph at the root has, or had, more than what its creation begins with.

    Tables alone are no graph: they may be another program's, so a log, a history or a manifest has
    to be there as well.
    """
    folders = set(objects.folders(""))
    if names.MANIFEST in folders and objects.list(names.lance_versions(names.MANIFEST)):
        return True
    if not folders & _SIGNS:
        return False
    if objects.list(names.TAG_REFS_DIR) or branch_logs(objects):
        return True
    places = [place for place in (*names.TABLE_DIRS, names.COMMITS) if place in folders]
    return any(_is_written(path) for place in places for path in objects.list(place))


def require_manifest(objects: Objects) -> None:
    """Refuse a root that holds data, which a new graph there would replace.

    Raises:
        DamagedGraphError: it holds data and no manifest that can be read.
    """
    if not holds_data(objects):
        return
    survey = survey_manifest(objects)
    if survey.whole is None or survey.damaged:
        raise damaged(objects, survey)


def manifest_after_all(objects: Objects) -> ManifestState:
    """The manifest of a root that had none a moment ago: it may have been created since.

    Raises:
        DamagedGraphError: the root holds data, and the manifest is gone.
        NotFoundError: there is no graph.
    """
    has_data = holds_data(objects)
    try:
        return read_manifest(objects.root)
    except NotFoundError:
        if has_data:
            raise damaged(objects, survey_manifest(objects)) from None
        raise


def refuse_damage(objects: Objects, error: OmnigraphError) -> None:
    """Raise an error that names the damage, if that is why the manifest could not be read.

    Raises:
        DamagedGraphError: its newest version is.
    """
    if is_damage(error):
        survey = survey_manifest(objects)
        if survey.damaged:
            raise damaged(objects, survey) from error


def require_newest(objects: Objects, state: ManifestState) -> None:
    """Refuse to write on an older state because the newest one is damaged.

    Readers skip a version that a power failure damaged. Such versions are quarantined before a
    write starts, so one that still exists was damaged in another way.

    Raises:
        DamagedGraphError: a newer version of the manifest is there and cannot be read.
    """
    if objects.root.scheme is Scheme.LOCAL and state.handle.latest_version > state.version:
        survey = survey_manifest(objects)
        if survey.damaged:
            raise damaged(objects, survey)


def damaged(objects: Objects, survey: ManifestSurvey) -> DamagedGraphError:
    """The error that names what is left, and how to recover it."""
    root = objects.root
    if not survey.damaged and objects.list(names.BACKUPS_DIR):
        return DamagedGraphError(
            f"{root} is an unfinished copy of a graph",
            next_step="Run the same backup, restore or clone again: it continues where it stopped.",
        )
    if not survey.damaged:
        what = (
            f"{root} contains tables, but {names.MANIFEST}, which names the published versions, "
            "is gone"
        )
    else:
        newest = survey.damaged[0]
        intact_version = (
            "no version of it" if survey.whole is None else f"version {survey.whole.version}"
        )
        what = (
            f"{names.MANIFEST} of {root} is damaged: version {newest.version} cannot be read "
            f"({newest.reason}), {intact_version} is intact"
        )
    return DamagedGraphError(
        what,
        next_step=f"Run `omnigraph repair {root} --rebuild-manifest` to see what can be "
        "recovered; nothing changes without --confirm.",
    )


_SIGNS: Final = frozenset(
    {names.COMMITS, names.SCHEMAS_DIR, names.BRANCH_REFS_DIR.partition("/")[0]}
)


def _is_written(path: str) -> bool:
    version = names.lance_version_at(path)
    return names.holds_rows(path) or (version is not None and version > _MADE_FIRST)


_SILENT_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildEntry:
    """A rebuild that has begun, or ended."""

    operation_id: str
    begun_at: str
    host: str
    pid: int
    process_started: str
    damaged: tuple[int, ...] = ()
    ended: bool = False


@contextmanager
def rebuilding(
    objects: Objects, operation_id: str, clock: Clock, *, damaged: tuple[int, ...]
) -> Iterator[None]:
    """Be the only one that rebuilds; `damaged` are the versions that were found so.

    Raises:
        ConflictError: another process does.
    """
    own_entry = RebuildEntry(
        operation_id=operation_id,
        begun_at=clock.timestamp(),
        host=this_host(),
        pid=this_process(),
        process_started=started_at(this_process()),
        damaged=damaged,
    )
    number, last = _last(objects)
    if last is not None and _is_working(last, clock):
        raise _refused(objects, last)
    if not _put(objects, number + 1, own_entry):
        raise _refused(objects, _last(objects)[1] or own_entry)
    sync(objects.root)
    try:
        yield
    finally:
        _put(objects, number + 2, replace(own_entry, ended=True))


def _last(objects: Objects) -> tuple[int, RebuildEntry | None]:
    numbers = map(names.rebuild_number, objects.list(names.REBUILDS_DIR))
    last = max((number for number in numbers if number is not None), default=None)
    if last is None:
        return 0, None
    content = objects.read(names.rebuild_entry(last)) or b""
    try:
        entry = typed(RebuildEntry, parsed(content))
        moment(entry.begun_at)
    except ValueError:
        return last, None  # torn by a power cut: its process is gone
    return last, entry


def _put(objects: Objects, number: int, entry: RebuildEntry) -> bool:
    path, content = names.rebuild_entry(number), json.dumps(asdict(entry)).encode()
    # A store may repeat a put whose answer was lost, and then find our own object.
    return objects.put_if_absent(path, content) is Put.CREATED or objects.read(path) == content


def _is_working(entry: RebuildEntry, clock: Clock) -> bool:
    if entry.ended:
        return False
    if entry.host == this_host():
        return started_at(entry.pid) == entry.process_started
    silence = clock.now() - moment(entry.begun_at)
    return silence.total_seconds() < _SILENT_SECONDS


def _refused(objects: Objects, entry: RebuildEntry) -> ConflictError:
    return ConflictError(
        f"process {entry.pid} on {entry.host} has been rebuilding {names.MANIFEST} of "
        f"{objects.root} since {entry.begun_at}",
        next_step=f"Run `omnigraph status {objects.root}` when it has ended.",
    )
