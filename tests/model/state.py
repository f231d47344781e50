"""The state of the modelled world: the store, the requests under way, and every process.

Tables, files and the manifest are what a store would hold; the rest is what a process remembers
between two steps. All values are immutable and hashable, because the checker keeps every state it
has seen.

There is no crash in the model and no pause: a process that is never scheduled again is dead, and
one that is scheduled late is a zombie. A breadth-first search visits all such schedules.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeVar

from tests.model.labels import Name

Pins = tuple[int, ...]
"""The published version of every table."""

FileName = tuple[int, int]
"""A data file inside its table: the writer that wrote it, and in which attempt."""

StoredFile = tuple[int, int, int]
"""A data file in the store: table, writer, attempt."""

COMPACTED: Final = 100
"""Added to a writer's number in the name of a file that its compaction wrote."""

MERGED: Final = 200
"""The same for a file that its write merged from others; then the second part is a set of bits, of
the writers whose rows it has."""

EARLIER: Final = 20
INDEXED: Final = 21
"""Stand for the writers of rows that the tables have at first, if writes merge files."""

Origin = Literal["initial", "own", "restore", "maintenance", "foreign"]

Verdict = Literal["committed", "aborted", "rolled_back"]

Decision = tuple[int, Verdict]
"""An operation row: at most one per operation, and whoever writes it first has decided."""


class Version(NamedTuple):
    """One version of a table; its content is its set of files."""

    number: int
    origin: Origin
    op: int  # the operation it is tagged with, -1 if untagged
    read_version: int  # stays as it was when a commit is rebased
    restored_from: int  # 0 unless the origin is a restore
    files: frozenset[FileName]


class Manifest(NamedTuple):
    """One version of the manifest: the only authority about what is committed."""

    version: int
    pins: Pins
    decisions: tuple[Decision, ...]
    min_op: int  # an operation at or below it without a committed row counts as rolled back

    def successor(self, *, pins: Pins | None = None, decision: Decision | None = None) -> Manifest:
        """The next version: these rows with new pins, or one more decision, or both."""
        return self.deciding((), pins) if decision is None else self.deciding((decision,), pins)

    def deciding(self, decisions: tuple[Decision, ...], pins: Pins | None) -> Manifest:
        """The next version: these rows with some more decisions, and perhaps new pins."""
        return Manifest(
            self.version + 1,
            self.pins if pins is None else pins,
            (*self.decisions, *decisions),
            self.min_op,
        )


class Sidecar(NamedTuple):
    """A writer's note to recovery, written before its first data file."""

    op: int
    pins: Pins  # of the current attempt
    floor: Pins  # of the first attempt: what cleanup must leave alone
    versions: tuple[int, ...] = ()  # that its tables were moved to, once it says so
    attempt: int = 0  # the current one, if attempts are told apart


class Swap(NamedTuple):
    """A publish under way that changes single rows if the manifest is still at `expected`."""

    op: int
    expected: int
    pins: Pins
    others: tuple[Decision, ...] = ()  # of the writers that are taken along


Purpose = Literal["commit", "abort", "decide", "restore", "fold", "watermark"]


class Put(NamedTuple):
    """A publish under way that puts all manifest rows into one slot if the slot is free."""

    purpose: Purpose
    sender: int  # number of the writer, sweeper or folder
    op: int  # the operation it decides, -1 if none
    manifest: Manifest


TablePhase = Literal[
    "start", "look", "heal", "commit", "rewrite", "done", "retry", "abort", "dropped"
]


class TableStep(NamedTuple):
    """How far a writer is with one table."""

    phase: TablePhase
    version: int = 0  # the base to commit on; when done, the version to publish
    pending: Version | None = None  # HEAD was listed, this version will be put next


UNTOUCHED: Final = TableStep("start")

WriterPhase = Literal[
    "idle",
    "sidecar",
    "stage",
    "tables",
    "joined",
    "publish",
    "waiting",
    "answered",
    "retry",
    "abort",
    "abort_waiting",
    "abort_answered",
    "acknowledge",
    "report_failure",
    "done",
    "failed",
]


class Move(NamedTuple):
    """A table of a member, the version below its rows, and the one with them."""

    table: int
    base: int
    version: int


class Member(NamedTuple):
    """Another writer whose rows a leader publishes as well."""

    op: int
    pins: Pins  # of its sidecar when that was read
    moves: tuple[Move, ...]  # made by itself or by the leader; none: not yet


class Writer(NamedTuple):
    """A writer; `tables` holds the table under way, or with parallel tables all of them."""

    phase: WriterPhase
    pins: Pins = ()
    versions: tuple[int, ...] = ()  # to publish, in the order of the write set; 0: dropped
    tables: tuple[TableStep, ...] = ()
    attempt: int = 0
    history_read: tuple[int, ...] | None = None  # only with a mutant that reads history first
    members: tuple[Member, ...] = ()  # taken along, in the order of their versions
    is_alone: bool = False  # it takes nobody along any more


SweeperPhase = Literal[
    "idle",
    "classify",
    "decide",
    "waiting",
    "answered",
    "heal",
    "restore",
    "publish_restored",
    "restored_waiting",
    "delete",
]


class Sweeper(NamedTuple):
    """A sweep at work on the sidecar of `op`; it may be wrong about who is dead."""

    phase: SweeperPhase
    runs_left: int
    op: int = -1
    pins: Pins = ()
    effects: tuple[int, ...] = ()  # versions that could be rolled forward; none: roll back
    sent: bool = False  # this sweep has sent a decision
    position: int = 0  # in the write set, while healing
    pin: int = 0  # the pin it restores
    restored: int = 0  # the version it restored it as
    attempt: int = 0  # that the sidecar names


CleanerPhase = Literal["idle", "list", "sides", "pins", "scan", "delete"]


class Cleaner(NamedTuple):
    """Cleanup of table versions: what it has read so far, then what it will delete."""

    phase: CleanerPhase
    runs_left: int
    versions: tuple[tuple[int, ...], ...] = ()
    files: frozenset[StoredFile] = frozenset()
    floors: tuple[tuple[int, Pins], ...] = ()  # per sidecar: its operation and its floor
    pins: Pins = ()
    victims: tuple[tuple[int, int], ...] = ()  # table and version
    doomed: tuple[StoredFile, ...] = ()


class Folder(NamedTuple):
    """Moves rows of committed operations into the history table."""

    phase: Literal["idle", "insert", "drop"]
    runs_left: int
    ops: tuple[int, ...] = ()


class ManifestSlots(NamedTuple):
    """What cleanup and late puts did to old manifest versions, and what readers have listed."""

    freed_up_to: int
    late_puts: frozenset[Manifest]  # they landed in freed slots
    listed: tuple[Manifest | None, ...]  # per reader: listed as the latest, but not read yet


class Outside(NamedTuple):
    """How often the world may still interfere."""

    foreign_writes: int
    manifest_cleanups: int
    prunes: int
    unrelated_publishes: int


class State(NamedTuple):
    """Everything that the next step can depend on."""

    tables: tuple[tuple[Version, ...], ...]  # per table, sorted by number
    files: frozenset[StoredFile]
    manifest: Manifest
    slots: ManifestSlots
    history: tuple[int, ...]  # operations in the history table
    sidecars: frozenset[Sidecar]
    swaps: frozenset[Swap]
    puts: frozenset[Put]
    writers: tuple[Writer, ...]
    sweepers: tuple[Sweeper, ...]
    cleaner: Cleaner
    folders: tuple[Folder, ...]
    outside: Outside
    log: tuple[Decision, ...]  # a ghost: every decision ever applied, if there are folders


class Step(NamedTuple):
    """One thing that can happen next, and the state it leads to."""

    label: str
    state: State


def step(name: Name, detail: str, actor: str, state: State) -> Step:
    return Step(f"{name}: {detail} [{actor}]", state)


ItemT = TypeVar("ItemT")


def replaced(items: tuple[ItemT, ...], index: int, item: ItemT) -> tuple[ItemT, ...]:
    """The same tuple with one item exchanged."""
    return (*items[:index], item, *items[index + 1 :])


def without_sidecar(sidecars: frozenset[Sidecar], op: int) -> frozenset[Sidecar]:
    return frozenset(sidecar for sidecar in sidecars if sidecar.op != op)
