"""Stores the record of a write in progress: enough for another process to finish or undo it.

A writer that stages for minutes sends heartbeats, so that other hosts do not consider it dead.

Invariants:

- A sidecar exists before the first data file of its operation and until the operation is decided.
- The `floor` of a sidecar never moves: no version from there on may be cleaned while it exists.
- A sidecar that cannot be read, or was written by a newer program, raises an error and is kept.
- Heartbeats end before the sidecar is armed. A heartbeat that arrives after another process settled
  the operation leaves a sidecar of a decided operation behind, which the next sweep removes.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from omnigraph_lake import names
from omnigraph_lake.commit import legacy_sidecar
from omnigraph_lake.commit.schema_move import SchemaMove
from omnigraph_lake.errors import OmnigraphError, RecoveryRequiredError
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.storage.manifest_rows import TableVersion
from omnigraph_lake.storage.objects.documents import MALFORMED, moment, parsed, typed
from omnigraph_lake.storage.objects.location import stored_path
from omnigraph_lake.storage.objects.store import Objects, Put, read_all
from omnigraph_lake.storage.snapshot import Pin
from omnigraph_lake.ulids import canonical_ulid, ulid_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from omnigraph_lake.clock import Clock


SIDECAR_FORMAT: Final = 6
_FORMAT_OF_OFFERS: Final = 5
"""Of a sidecar without a note, of a kind that older programs know."""
_FORMAT_OF_ONE: Final = 4
"""Of a sidecar that has also nothing in it for other living writers."""
_STALE_AFTER_SECONDS: Final = 60.0
_BEGUN_KEPT: Final = 16


class WriterKind(StrEnum):
    """Which operation is writing."""

    WRITE = "write"
    DELETE = "delete"
    LOAD = "load"
    MERGE = "merge"
    REVERT = "revert"
    RESTORE = "restore"
    OPTIMIZE = "optimize"
    INDEX = "index"
    REPAIR = "repair"
    SCHEMA = "schema"
    MUTATE = "mutate"
    """A mutation of more rows than memory holds; others are writes."""

    @property
    def is_maintenance(self) -> bool:
        """Whether its tables keep their content, each by itself, in versions without a name."""
        return self is WriterKind.OPTIMIZE

    @property
    def is_long(self) -> bool:
        """Whether staging may take minutes, and other hosts need a sign of life meanwhile."""
        return self not in {WriterKind.WRITE, WriterKind.DELETE}


_NEW_KINDS: Final = frozenset({WriterKind.REVERT, WriterKind.RESTORE, WriterKind.MUTATE})
"""Kinds that programs of earlier formats do not know."""


class SidecarState(StrEnum):
    """The state of a writer: while staging no table has moved yet."""

    STAGING = "staging"
    ARMED = "armed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The tables that an operation writes, and those that it relies on."""

    written: frozenset[str]
    read: frozenset[str]

    def meets(self, other: Touched) -> bool:
        """Whether one of the two writes what the other writes or relies on."""
        return bool(
            self.written & other.written or self.written & other.read or self.read & other.written
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """A table the operation moves: from the version `pin` of a fork, published as `expected`.

    The two differ in their forks when the operation made the fork for its first write on a branch.
    `files` are the data files that a compaction has written: its versions carry no operation.
    """

    table_key: str
    location: str
    fork: str | None
    pin: int
    expected: Pin
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PointedTable:
    """A table that the operation moves without writing: to a version that others published."""

    table_key: str
    version: int
    fork: str | None
    row_count: int
    expected: Pin
    made_at: str | None = None
    checksums: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Staged rows of an armed append that an older writer of the table may publish with its own.

    `ids` are digests of the ids of its rows: an append that inserts none of them, and was validated
    on the same pins, is valid together with this one.
    """

    rows: int
    fragments: tuple[str, ...]
    ids: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFrom:
    """What a merge brings in: the commit of the other side, and how conflicts were resolved."""

    commit_id: str
    resolution: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """One write in progress."""

    operation_id: names.OperationId
    nonce: str
    """Tells who put it; drawn again when it is armed, it tells the versions of that attempt."""
    kind: WriterKind
    actor: str
    branch: str | None
    incarnation: str | None
    commit_id: names.CommitId
    state: SidecarState
    floor: Mapping[str, Pin]
    read_set: Mapping[str, Pin]
    """What it relies on but does not write; while staging, what it may touch, if that is known."""
    tables: tuple[PlannedTable, ...]
    pointed: tuple[PointedTable, ...]
    merged: MergedFrom | None
    schema_hash: str | None
    """The schema that it is validated against; not recorded in older formats."""
    schema_move: SchemaMove | None
    started_at: str
    beat_at: str
    host: str
    pid: int
    process_started: str
    offer: Offer | None = None
    made: tuple[TableVersion, ...] = ()
    """The versions that its tables are at, if it waits for another writer to publish them."""
    note: CommitNote = NO_NOTE
    legacy: legacy_sidecar.LegacySidecar | None = None
    """What a writer of Omnigraph 0.7 said; None for those of later programs."""

    @property
    def path(self) -> str:
        return names.sidecar(self.operation_id, self.incarnation)

    @property
    def pins(self) -> dict[str, Pin]:
        """Every pin the decision depends on: what is written and what was read."""
        return {**self.read_set, **{table.table_key: table.expected for table in self.moved}}

    @property
    def touched(self) -> Touched | None:
        """The tables that it writes and relies on; None if these may be any."""
        if self.kind is WriterKind.SCHEMA or self.schema_move is not None:
            return None
        if self.state is SidecarState.ARMED:
            written = frozenset(table.table_key for table in self.moved)
            return Touched(written=written, read=frozenset(self.read_set))
        expected = frozenset(self.read_set)
        return Touched(written=expected, read=expected) if expected else None

    @property
    def moved(self) -> tuple[PlannedTable | PointedTable, ...]:
        """Every table the operation moves."""
        return (*self.tables, *self.pointed)


def put_sidecar(objects: Objects, sidecar: Sidecar) -> bool:
    """Create it; False if another attempt of the same operation already has one.

    A store may repeat a put whose answer was lost and then report our own object as existing, so
    the nonce identifies its owner.
    """
    _begun.append((objects, sidecar.path))
    if objects.put_if_absent(sidecar.path, _encode(sidecar)) is Put.CREATED:
        return True
    existing = read_sidecar(objects, sidecar.path)
    return existing is not None and existing.nonce == sidecar.nonce


def replace_sidecar(objects: Objects, sidecar: Sidecar) -> None:
    objects.replace(sidecar.path, _encode(sidecar))


def read_sidecar(objects: Objects, path: str) -> Sidecar | None:
    """The sidecar, None if it is gone.

    Raises:
        RecoveryRequiredError: it cannot be parsed; it is kept.
    """
    content = objects.read(path)
    return None if content is None else _decode(path, content)


def read_sidecars(objects: Objects, paths: Sequence[str]) -> tuple[Sidecar, ...]:
    """The sidecars at these paths that still exist.

    Raises:
        RecoveryRequiredError: one cannot be parsed; it is kept.
    """
    contents = read_all(objects, paths) if paths else {}
    return tuple(
        _decode(path, content) for path, content in contents.items() if content is not None
    )


def delete_sidecar(objects: Objects, path: str) -> None:
    objects.delete(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryFolder:
    """The sidecars by path, oldest first, and files among them that are not Omnigraph's."""

    sidecars: tuple[str, ...]
    strays: tuple[str, ...]

    @property
    def operations(self) -> tuple[str, ...]:
        return tuple(names.sidecar_owner(path)[0] for path in self.sidecars)


def recovery_folder(objects: Objects) -> RecoveryFolder:
    """Sidecars, and other files among them, which block no writer."""
    paths = objects.list(names.RECOVERY_DIR)
    return RecoveryFolder(
        sidecars=tuple(path for path in paths if names.is_sidecar(path)),
        strays=tuple(path for path in paths if not names.is_sidecar(path)),
    )


def pending_sidecars(objects: Objects) -> tuple[str, ...]:
    """The paths of all sidecars, oldest operation first."""
    return recovery_folder(objects).sidecars


def pending_operations(objects: Objects) -> tuple[str, ...]:
    """The operations that have a sidecar, oldest first."""
    return recovery_folder(objects).operations


_active: set[str] = set()
_begun: deque[tuple[Objects, str]] = deque(maxlen=_BEGUN_KEPT)


def begun_operations() -> tuple[tuple[Objects, str], ...]:
    """The sidecars of the newest operations that this process started."""
    return tuple(_begun)


def has_ended_here(operation_id: str) -> bool:
    """Whether this process began an operation of late and does not run it any more."""
    is_ours = any(names.sidecar_owner(path)[0] == operation_id for _, path in _begun)
    return is_ours and operation_id not in _active


def can_be_published(objects: Objects, path: str) -> bool:
    """Whether the operation of a sidecar may still be published: never one that was not armed."""
    sidecar = read_sidecar(objects, path)
    return sidecar is not None and sidecar.state is not SidecarState.STAGING


@contextmanager
def active_operation(operation_id: names.OperationId) -> Iterator[None]:
    """Mark an operation as running in this process."""
    _active.add(operation_id)
    try:
        yield
    finally:
        _active.discard(operation_id)


def is_abandoned(sidecar: Sidecar, *, now: datetime) -> bool:
    """Whether its writer seems dead. A wrong guess costs that writer a retry, never data."""
    if sidecar.legacy is not None:
        return True
    if sidecar.host == this_host():
        if sidecar.pid == this_process():
            return sidecar.operation_id not in _active
        return started_at(sidecar.pid) != sidecar.process_started
    silence = (now - now.fromisoformat(sidecar.beat_at)).total_seconds()
    return silence > _STALE_AFTER_SECONDS


def began_at(operation_id: str) -> datetime | None:
    """When the id of an operation was created, None if it has an idempotency key instead."""
    ulid = canonical_ulid(operation_id)
    try:
        return None if ulid is None else ulid_time(ulid)
    except (ValueError, OverflowError):
        return None


def this_host() -> str:
    return socket.gethostname()


def this_process() -> int:
    return os.getpid()


def started_at(pid: int) -> str:
    """Distinguishes a process from a later one with the same pid; empty if it is dead.

    Where the system does not say when a process started, every living one answers "running".
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _running(pid)
    state, start_ticks = fields[0], fields[19]
    return "" if state == "Z" else start_ticks


def _running(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return ""
    except PermissionError:
        return "running"
    return "" if Path("/proc/self").exists() else "running"


def _encode(sidecar: Sidecar) -> bytes:
    """The document; one without a note or an offer is of a format that older programs read."""
    values = {name.name: getattr(sidecar, name.name) for name in fields(sidecar)}
    legacy = values.pop("legacy")
    assert legacy is None, "no sidecar of Omnigraph 0.7 is written"
    version = _FORMAT_OF_OFFERS
    note = values.pop("note")
    if note:
        values["note"] = {"message": note.message, "metadata": note.metadata}
    if sidecar.offer is None and not sidecar.made:
        version = _FORMAT_OF_ONE
        del values["offer"], values["made"]
    if note or sidecar.kind in _NEW_KINDS:
        version = SIDECAR_FORMAT
    # A sidecar names every table of the graph, twice per write: encoded without a copy of it.
    content = msgspec.json.encode({"format": version, **values}, order="sorted")
    return msgspec.json.format(content, indent=1)


def _of_today(fields: Mapping[str, Any]) -> Sidecar:
    """A sidecar; the first format knew no branches and wrote a pin as a number."""
    merged = fields.get("merged")
    move = fields.get("schema_move")
    values = {
        "incarnation": None,
        "schema_hash": None,
        **fields,
        "floor": _pins(fields["floor"]),
        "read_set": _pins(fields["read_set"]),
        "tables": tuple(_plan(table) for table in fields["tables"]),
        "pointed": tuple(
            PointedTable(**{**table, "expected": _pin(table["expected"])})
            for table in fields.get("pointed", ())
        ),
        "merged": None if merged is None else MergedFrom(**merged),
        "schema_move": None if move is None else SchemaMove.of_fields(move),
        "offer": _offer(fields.get("offer")),
        "made": tuple(TableVersion(**row) for row in fields.get("made", ())),
        "note": CommitNote.parse(**fields.get("note", {"message": None, "metadata": None})),
        "legacy": None,
    }
    del values["format"]
    return Sidecar(**values)


def _of_legacy(fields: Mapping[str, Any]) -> Sidecar:
    """One of Omnigraph 0.7, which does not say who runs it: its process counts as dead."""
    legacy = legacy_sidecar.parse(fields)
    return Sidecar(
        operation_id=names.OperationId(legacy.operation_id),
        nonce="",
        kind=WriterKind(legacy.kind),
        actor=legacy.actor,
        branch=legacy.branch,
        incarnation=None,
        commit_id=names.CommitId(legacy.operation_id),
        state=SidecarState.ARMED,
        floor={},
        read_set={},
        tables=tuple(
            PlannedTable(
                table_key=table.table_key,
                location=table.location,
                fork=table.fork,
                pin=table.pin,
                expected=Pin(table.pin, table.fork),
            )
            for table in legacy.tables
        ),
        pointed=(),
        merged=None if legacy.merged_commit is None else MergedFrom(commit_id=legacy.merged_commit),
        schema_hash=None,
        schema_move=None,
        started_at=legacy.started_at,
        beat_at=legacy.started_at,
        host="",
        pid=1,
        process_started="",
        legacy=legacy,
    )


def _offer(fields: Mapping[str, Any] | None) -> Offer | None:
    if fields is None:
        return None
    fragments, ids = tuple(fields["fragments"]), frozenset(fields["ids"])
    return Offer(**{**fields, "fragments": fragments, "ids": ids})


def _plan(fields: Mapping[str, Any]) -> PlannedTable:
    expected = fields.get("expected", [fields["pin"], fields["fork"]])
    files = tuple(fields.get("files", ()))
    return PlannedTable(**{**fields, "expected": _pin(expected), "files": files})


def _pins(fields: Mapping[str, Any]) -> dict[str, Pin]:
    return {key: _pin(pin) for key, pin in fields.items()}


def _pin(value: Any) -> Pin:
    return Pin(int(value)) if isinstance(value, int) else Pin(int(value[0]), value[1])


def _decode(path: str, content: bytes) -> Sidecar:
    operation_id, _ = names.sidecar_owner(path)
    look = f"Look at {path}; it is kept until it is repaired."
    try:
        fields: dict[str, Any] = parsed(content)
        is_legacy = legacy_sidecar.FORMAT_FIELD in fields
        newest = legacy_sidecar.FORMAT if is_legacy else SIDECAR_FORMAT
        if int(fields[legacy_sidecar.FORMAT_FIELD if is_legacy else "format"]) > newest:
            raise RecoveryRequiredError(
                f"the sidecar of operation {operation_id} was written by a newer Omnigraph",
                next_step="Upgrade omnigraph, then open the graph again.",
            )
        sidecar = typed(Sidecar, asdict(_of_legacy(fields) if is_legacy else _of_today(fields)))
        moment(sidecar.started_at), moment(sidecar.beat_at)
        if sidecar.pid < 1:
            raise ValueError(f"{sidecar.pid} is no process")
    except MALFORMED as error:
        raise RecoveryRequiredError(
            f"the sidecar of operation {operation_id} cannot be parsed: {error!r}",
            next_step=look,
        ) from error
    if sidecar.path != path:
        raise RecoveryRequiredError(
            f"the sidecar named {operation_id} belongs to operation {sidecar.operation_id}",
            next_step=look,
        )
    for part in _paths_in(sidecar):
        stored_path(part, said_by=path)
    return sidecar


def _paths_in(sidecar: Sidecar) -> Iterator[str]:
    """What a sidecar says that becomes a part of a path."""
    forks = [pin.fork for pin in (*sidecar.floor.values(), *sidecar.pins.values())]
    hashes = [sidecar.schema_hash, *(table.checksums for table in sidecar.pointed)]
    for row in sidecar.made:
        forks.append(row.fork)
        hashes += [row.location, row.checksums]
    for table in sidecar.tables:
        yield table.location
        yield from table.files
    if sidecar.schema_move is not None:
        hashes += [sidecar.schema_move.before, sidecar.schema_move.after]
        yield from (table.location for table in sidecar.schema_move.created)
        for adopted in sidecar.schema_move.adopted:
            yield adopted.location
            hashes.append(adopted.checksums)
    forks += [table.fork for table in sidecar.moved]
    yield from (part for part in (sidecar.branch, *forks, *hashes) if part)


BEAT_SECONDS: Final = 15.0


@contextmanager
def beating(
    objects: Objects, sidecar: Sidecar, clock: Clock, *, every_seconds: float = BEAT_SECONDS
) -> Iterator[None]:
    """Renew the sidecar while the body runs."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every_seconds):
            with suppress(OmnigraphError):
                replace_sidecar(objects, replace(sidecar, beat_at=clock.timestamp()))

    heart = threading.Thread(target=beat, name="omnigraph-heartbeat", daemon=True)
    heart.start()
    try:
        yield
    finally:
        over.set()
        heart.join()
