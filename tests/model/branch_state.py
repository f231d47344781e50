"""The state of the modelled world of graph branches: the store, then every process.

A table has a main line and forks; a pin names a fork and a version in it. A version is made by one
operation on one version below it, healed if need be, so its content is a chain: how a version comes
to be exact is searched in the model of single tables. The manifest of a branch is a Lance branch
of its own, its *line*, made from a version of the parent's.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.model.branch_scope import MAIN_LINE, BranchScope
from tests.model.labels import BranchStepName, Name
from tests.model.state import Verdict


class OpId(NamedTuple):
    """An operation: what the caller calls it, and the incarnation it works on."""

    key: int
    incarnation: int


NO_OP = OpId(-1, -1)


class ForkName(NamedTuple):
    """A fork of a table: the operation that made it, and in which try."""

    table: int
    op: OpId
    attempt: int


class Pin(NamedTuple):
    """A published version: of a fork, or of the main line."""

    fork: ForkName | None
    version: int


class Commit(NamedTuple):
    """A version of a fork, and the version it was made on; 0 is the fork point."""

    op: OpId
    base: int


class Fork(NamedTuple):
    """A Lance branch of a table."""

    name: ForkName
    owner: OpId  # differs from the name's operation only if a mutant shares names
    origin: Pin
    versions: tuple[Commit, ...] = ()
    listed: bool = True  # its ref exists; without it Lance protects nothing
    broken: bool = False  # what it was forked from is gone


class Row(NamedTuple):
    """An operation row; `late` is a ghost: its branch was dead when the row was published."""

    op: OpId
    verdict: Verdict
    late: bool


class Line(NamedTuple):
    """The manifest of one incarnation, as of its newest version."""

    version: int
    pins: tuple[Pin, ...]
    rows: tuple[Row, ...]
    parent: int  # the incarnation whose line it was made from
    listed: bool = True
    own: bool = False  # published at least once: no file of the parent is needed any more
    broken: bool = False

    def verdict(self, op: OpId) -> Verdict | None:
        return next((row.verdict for row in self.rows if row.op == op), None)


EntryKind = Literal["creating", "ready", "abandoned", "deleted"]


class Entry(NamedTuple):
    """One object of a branch's log, decided by put-if-absent."""

    kind: EntryKind
    incarnation: int
    parent: int = -1  # the incarnation it is forked from
    aimed_at: int = -1  # the incarnation that a delete was asked to delete, a ghost


Log = tuple[Entry, ...]


class Sidecar(NamedTuple):
    """A note to recovery; `named` is the operation id in its file name."""

    named: OpId
    op: OpId
    pins: tuple[Pin, ...]  # what the operation expects in the manifest
    source: int = -1  # a merge: the incarnation whose versions it points at
    pointed: tuple[Pin, ...] = ()


class Creator(NamedTuple):
    phase: Literal[
        "idle", "abandon", "claim", "clone", "ref", "verify", "ready", "acked", "exists", "failed"
    ]
    incarnation: int = -1
    slot: int = -1  # the number of the entry it wants to put next
    parent: int = -1
    held: Line | None = None  # the version of the parent's manifest to fork from


class Deleter(NamedTuple):
    phase: Literal["idle", "put", "drop", "acked", "absent"]
    incarnation: int = -1
    slot: int = -1


WriterPhase = Literal[
    "idle",
    "sidecar",
    "fork",
    "fork_ref",
    "commit",
    "resolve",
    "swap",
    "verify",
    "abort",
    "acked",
    "failed",
    "gone",
    "acked_done",
    "failed_done",
    "gone_done",
]


class BranchWriter(NamedTuple):
    phase: WriterPhase
    incarnation: int = -1
    pins: tuple[Pin, ...] = ()  # of the state it works on
    targets: tuple[Pin, ...] = ()  # what it will publish, table by table
    tries: int = 0  # forks that Lance failed to make
    attempt: int = 0
    held: Line | None = None  # the manifest version its swap expects
    late: bool = False
    answer: Literal["acked", "failed"] = "acked"  # what it will say if its branch still lives


class Merger(NamedTuple):
    phase: Literal[
        "idle",
        "sidecar",
        "verify",
        "resolve",
        "swap",
        "abort",
        "acked",
        "failed",
        "acked_done",
        "failed_done",
    ]
    source: int = -1
    pins: tuple[Pin, ...] = ()
    pointed: tuple[Pin, ...] = ()
    held: Line | None = None


class Tagger(NamedTuple):
    phase: Literal["idle", "put", "verify", "acked", "failed"]
    incarnation: int = -1
    pins: tuple[Pin, ...] = ()


class Reader(NamedTuple):
    phase: Literal["idle", "manifest", "verify", "answered", "gone"]
    incarnation: int = -1
    promised: frozenset[OpId] = frozenset()  # acknowledged before it began, a ghost
    seen: frozenset[OpId] = frozenset()


class BranchSweeper(NamedTuple):
    phase: Literal["idle", "log", "source", "decide", "swap", "drop", "delete"]
    runs_left: int
    sidecar: Sidecar | None = None
    held: Line | None = None
    verdict: Verdict | None = None


Listing = Literal["refs", "logs", "sides", "pins", "verify"]


class BranchReconciler(NamedTuple):
    """What has been listed so far, then what to delete."""

    phase: Literal["idle", "check", "delete"] | Listing
    runs_left: int
    forks: frozenset[ForkName] = frozenset()
    lines: tuple[int, ...] = ()
    logs: tuple[Log, ...] = ()  # in the order of reading: the last name first
    verified: int = 0  # how many of them were read again
    claimed: frozenset[OpId] = frozenset()
    pointed: frozenset[ForkName] = frozenset()
    named: frozenset[ForkName] = frozenset()
    doomed_forks: tuple[ForkName, ...] = ()
    doomed_lines: tuple[int, ...] = ()


class BranchState(NamedTuple):
    logs: tuple[Log, ...]  # per name
    lines: tuple[Line | None, ...]  # per incarnation
    forks: tuple[Fork, ...]  # sorted
    sidecars: frozenset[Sidecar]
    tags: tuple[tuple[Pin, ...], ...]  # per tagger, empty if not put
    creators: tuple[Creator, ...]
    deleters: tuple[Deleter, ...]
    writers: tuple[BranchWriter, ...]
    mergers: tuple[Merger, ...]
    taggers: tuple[Tagger, ...]
    readers: tuple[Reader, ...]
    sweeper: BranchSweeper
    reconciler: BranchReconciler


BranchStep = tuple[str, BranchState]


def branch_label(name: Name | BranchStepName, detail: str, actor: str) -> str:
    return f"{name}: {detail} [{actor}]"


def living_in(scope: BranchScope, log: Log) -> int | None:
    """The incarnation that the log says is alive."""
    last = log[-1] if log else None
    if last is None:
        return None
    alive = last.kind == "ready" or (scope.finishing and last.kind == "creating")
    return last.incarnation if alive else None


def is_alive(scope: BranchScope, state: BranchState, incarnation: int) -> bool:
    if incarnation == MAIN_LINE:
        return True
    return living_in(scope, state.logs[scope.name_of[incarnation]]) == incarnation


def living_line(scope: BranchScope, state: BranchState, name: int) -> tuple[int, Line] | None:
    """The living incarnation of a name and its manifest, if it can be read."""
    incarnation = MAIN_LINE if name < 0 else living_in(scope, state.logs[name])
    if incarnation is None:
        return None
    line = state.lines[scope.line_of(incarnation)]
    # A directory opens whether or not Lance has finished its ref, but an unfinished one is no
    # branch yet by the rule of finishing.
    if line is None or (scope.finishing and not line.listed):
        return None
    return incarnation, line


def appended(state: BranchState, name: int, slot: int, entry: Entry) -> BranchState | None:
    """Put-if-absent of the log entry number `slot`; None if it is taken."""
    log = state.logs[name]
    if len(log) != slot:
        return None
    logs = (*state.logs[:name], (*log, entry), *state.logs[name + 1 :])
    return state._replace(logs=logs)


def with_line(state: BranchState, index: int, line: Line | None) -> BranchState:
    return state._replace(lines=(*state.lines[:index], line, *state.lines[index + 1 :]))


def fork_named(state: BranchState, name: ForkName | None) -> Fork | None:
    return next((fork for fork in state.forks if fork.name == name), None)


def with_fork(state: BranchState, fork: Fork) -> BranchState:
    others = (each for each in state.forks if each.name != fork.name)
    return state._replace(forks=tuple(sorted((*others, fork), key=_fork_order)))


def _fork_order(fork: Fork) -> ForkName:
    return fork.name


def without_sidecar_of(state: BranchState, named: OpId) -> BranchState:
    return state._replace(sidecars=frozenset(s for s in state.sidecars if s.named != named))


def readable(state: BranchState, pin: Pin) -> bool:
    """Every version and file below the pin exists."""
    if pin.fork is None:
        return True
    fork = fork_named(state, pin.fork)
    if fork is None or fork.broken or pin.version > len(fork.versions):
        return False
    return readable(state, fork.origin)


def content(state: BranchState, pin: Pin) -> frozenset[OpId]:
    """The operations that a readable pin shows."""
    fork = fork_named(state, pin.fork)
    if fork is None:
        return frozenset()
    ops = set()
    version = pin.version
    while version:
        made = fork.versions[version - 1]
        ops.add(made.op)
        version = made.base
    return frozenset(ops) | content(state, fork.origin)


def swapped(
    scope: BranchScope, state: BranchState, incarnation: int, held: Line, following: Line
) -> BranchState | None:
    """The strict swap: puts the version after `held`; None if that number is taken.

    In the directory of a deleted Lance branch every number is free, and the put makes a directory
    that no ref protects.
    """
    index = scope.line_of(incarnation)
    current = state.lines[index]
    if current is not None and current.version >= following.version:
        return None
    listed = current is not None and current.listed
    row = following.rows[-1]._replace(late=not is_alive(scope, state, incarnation))
    landed = following._replace(listed=listed, own=True, rows=(*following.rows[:-1], row))
    assert landed.version == held.version + 1
    return with_line(state, index, landed)
