"""Who rebuilds the manifest right now: a log of small objects, each put only if it is absent.

Invariant: of two rebuilds that begin at once, one is refused. One whose process is gone, or that
has said nothing for an hour on another host, does not block others.

An entry also names the versions that are damaged, and is durable before anything is changed: after
a power cut they are not taken for versions that it tore (`storage/objects/power_cuts.py`).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.commit.sidecar import started_at, this_host, this_process
from omnigraph.errors import ConflictError
from omnigraph.storage.objects.documents import moment, parsed, typed
from omnigraph.storage.objects.durability import sync
from omnigraph.storage.objects.store import Put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.clock import Clock
    from omnigraph.storage.objects.store import Objects

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
    mine = RebuildEntry(
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
    if not _put(objects, number + 1, mine):
        raise _refused(objects, _last(objects)[1] or mine)
    sync(objects.root)
    try:
        yield
    finally:
        _put(objects, number + 2, replace(mine, ended=True))


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
