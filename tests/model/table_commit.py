"""A writer moves the HEAD of its tables, one after the other or in parallel.

A version may be published only if it is exactly the pinned content plus the writer's own effect.
So the commit must land right above its base, and the base is the pin itself or a fresh restore of
it (a *heal*, needed when HEAD has moved past the pin by operations that were never published).
Versions that nobody in the protocol wrote are not healed over; the writer refuses. HEAD itself is
scratch space.

With direct commit the writer does not look at HEAD first: it commits on the pin, and any answer
other than pin + 1 sends it the long way. Parallel tables are joined before a retry, an abort or
the publish.

Independent maintenance commits on the pin as it planned, with files that its sidecar names. A table
where that does not land exactly is dropped, and the others go on.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.labels import Name, StepName
from tests.model.scope import Scope
from tests.model.state import (
    COMPACTED,
    UNTOUCHED,
    State,
    Step,
    TableStep,
    Version,
    Writer,
    WriterPhase,
    replaced,
    step,
)
from tests.model.tables import (
    TailMerge,
    Versions,
    commit,
    has_foreign,
    merged_tail,
    own_file,
    reserve,
    restore,
    version_at,
    with_version,
)

ENDED = ("done", "retry", "abort", "dropped")


class WriterTurn(NamedTuple):
    """One writer about to take a step."""

    scope: Scope
    state: State
    op: int
    writer: Writer

    @property
    def actor(self) -> str:
        return f"W{self.op}"

    @property
    def is_parallel(self) -> bool:
        several = self.scope.parallel_tables and len(self.scope.write_sets[self.op]) > 1
        return several or self.scope.is_independent(self.op)

    @property
    def parallel_tables(self) -> tuple[TableStep, ...]:
        """How far each of the parallel tables is."""
        return self.writer.tables or (UNTOUCHED,) * len(self.scope.write_sets[self.op])

    def merge(self, table: int) -> TailMerge | None:
        """What the write merges in one of its tables."""
        floors = [sidecar.floor for sidecar in self.state.sidecars if sidecar.op == self.op]
        return merged_tail(
            self.scope,
            self.state.tables[table],
            self.op,
            self.writer.attempt,
            self.writer.pins[table],
            (*floors, self.writer.pins)[0][table],
        )

    def entering(self, phase: WriterPhase) -> Writer:
        """This writer in its next phase, with what it has committed so far."""
        return self.writer._replace(phase=phase, history_read=None)

    def step(self, name: Name, detail: str, writer: Writer, state: State | None = None) -> Step:
        changed = self.state if state is None else state
        writers = replaced(changed.writers, self.op, writer)
        return step(name, detail, f"W{self.op}", changed._replace(writers=writers))


class _TableTurn(NamedTuple):
    """One table of a writer about to take a step."""

    writer_turn: WriterTurn
    position: int  # in the write set
    table: int
    now: TableStep
    pin: int
    versions: Versions

    def step(
        self, name: StepName, detail: str, following: TableStep, state: State | None = None
    ) -> list[Step]:
        turn = self.writer_turn
        join = _join if turn.is_parallel else _advance
        writer = join(turn, self.position, following)
        return [turn.step(name, f"table{self.table} {detail}", writer, state)]

    def lands(self, version: Version) -> State:
        return with_version(self.writer_turn.state, self.table, version)


def at_table_start(turn: WriterTurn) -> bool:
    """No table is half done, as far as the caller's deadline is concerned."""
    tables = turn.writer.tables
    return turn.is_parallel or not tables or tables[0].phase == "start"


def commit_tables(turn: WriterTurn) -> list[Step]:
    """The next step of the table under way, or with parallel tables of every unfinished one."""
    writer = turn.writer
    if not turn.is_parallel:
        now = writer.tables[0] if writer.tables else UNTOUCHED
        return _table_steps(turn, len(writer.versions), now)
    steps = []
    for position, now in enumerate(turn.parallel_tables):
        if now.phase not in ENDED:
            steps += _table_steps(turn, position, now)
    return steps


def _table_steps(turn: WriterTurn, position: int, now: TableStep) -> list[Step]:
    scope, state, op, writer = turn
    table = scope.write_sets[op][position]
    table_turn = _TableTurn(turn, position, table, now, writer.pins[table], state.tables[table])
    compacts = scope.kinds[op] == "compact"
    if now.phase == "start" and scope.is_independent(op):
        now = TableStep("commit", table_turn.pin)
        table_turn = table_turn._replace(now=now)
    if now.phase == "start" and scope.direct_commit and not compacts:
        return _commit_on_pin(table_turn)
    if now.phase in ("start", "look"):
        return _look_at_head(table_turn)
    if now.phase == "heal":
        return _heal(table_turn)
    if compacts and now.phase == "commit":
        return _reserve(table_turn)
    return _commit_on_base(table_turn)


def _advance(turn: WriterTurn, _position: int, following: TableStep) -> Writer:
    """Tables one after the other: the next one starts when this one is done."""
    writer = turn.writer
    if following.phase == "done":
        versions = (*writer.versions, following.version)
        ready = len(versions) == len(turn.scope.write_sets[turn.op])
        return writer._replace(phase="publish" if ready else "tables", versions=versions, tables=())
    if following.phase in ("retry", "abort"):
        return writer._replace(phase=following.phase, tables=())
    return writer._replace(tables=() if following == UNTOUCHED else (following,))


def _join(turn: WriterTurn, position: int, following: TableStep) -> Writer:
    """Parallel tables: the writer goes on when the last one has ended."""
    scope, _, op, writer = turn
    write_set = scope.write_sets[op]
    tables = replaced(turn.parallel_tables, position, following)
    if scope.mutant == "par_first" and following.phase == "done":
        versions = tuple(
            now.version if now.phase == "done" else writer.pins[table]
            for now, table in zip(tables, write_set, strict=True)
        )
        return writer._replace(phase="publish", versions=versions, tables=())
    phases = {now.phase for now in tables}
    if not phases.issubset(ENDED):
        return writer._replace(tables=tables)
    if "abort" in phases or "retry" in phases:
        return writer._replace(phase="abort" if "abort" in phases else "retry", tables=())
    versions = tuple(now.version for now in tables)
    ended: WriterPhase = "joined" if scope.is_independent(op) else "publish"
    return writer._replace(phase=ended, versions=versions, tables=())


def _put_version(
    turn: _TableTurn, prepared: Version | None, name: StepName
) -> Version | list[Step] | None:
    """The version that lands now; None after a conflict; or a step of a commit in two requests.

    With freed slots a commit lists HEAD, then puts the number it chose if that number is free. A
    number that cleanup has freed in between can be taken by a late put.
    """
    pending = turn.now.pending
    if pending is None:
        if prepared is None or not turn.writer_turn.scope.freed_slots:
            return prepared
        detail = f"listed HEAD, will put v{prepared.number}"
        return turn.step(name, detail, turn.now._replace(pending=prepared))
    if version_at(turn.versions, pending.number) is None:
        return pending
    detail = f"slot v{pending.number} taken, list again"
    return turn.step(name, detail, turn.now._replace(pending=None))


def _commit_on_pin(turn: _TableTurn) -> list[Step]:
    """Direct commit: pin + 1 as the answer proves that HEAD was the pin."""
    scope, _, op, writer = turn.writer_turn
    file = own_file(scope, op, writer.attempt)
    merge = turn.writer_turn.merge(turn.table)
    prepared = commit(scope, turn.versions, op, scope.kinds[op], turn.pin, file, merge=merge)
    landed = _put_version(turn, prepared, "mutation.pre_direct_commit")
    if isinstance(landed, list):
        return landed
    if landed is None:
        return turn.step("mutation.post_direct_commit", "conflict", TableStep("look"))
    exact = landed.number == turn.pin + 1 or scope.mutant == "l1_any"
    detail = f"v{landed.number} on pin v{turn.pin}" + ("" if exact else " NOT EXACT")
    following = TableStep("done", landed.number) if exact else TableStep("look")
    return turn.step("mutation.post_direct_commit", detail, following, turn.lands(landed))


def _look_at_head(turn: _TableTurn) -> list[Step]:
    """Find the base: HEAD if it is the pin, else a restore of the pin, else refuse."""
    scope, pin, head = turn.writer_turn.scope, turn.pin, turn.versions[-1]
    if version_at(turn.versions, pin) is None:
        return turn.step("mutation.open_head", "base expired", TableStep("retry"))
    if head.number == pin or scope.mutant in ("no_heal", "l1_no_heal"):
        detail = f"HEAD v{head.number} is the base"
        return turn.step("mutation.open_head", detail, TableStep("commit", head.number))
    foreign = has_foreign(turn.versions, pin)
    restored = head.origin == "restore" and head.restored_from == pin
    if scope.skip_heal and restored and not foreign:
        detail = f"HEAD v{head.number} already is Restore(v{pin})"
        return turn.step("mutation.open_head", detail, TableStep("commit", head.number))
    if foreign and scope.mutant != "ignore_foreign":
        return turn.step("mutation.drift", "has a foreign version, refuse", TableStep("abort"))
    detail = f"HEAD v{head.number} != pin v{pin}, only protocol versions: heal"
    return turn.step("mutation.open_head", detail, TableStep("heal", head.number))


def _heal(turn: _TableTurn) -> list[Step]:
    """Restore the pin, then look again: a foreign version may have come in between."""
    scope, _, op, _ = turn.writer_turn
    prepared = restore(turn.versions, op, turn.pin)
    landed = _put_version(turn, prepared, "mutation.pre_heal")
    if isinstance(landed, list):
        return landed
    if landed is None:
        return turn.step("mutation.post_heal", "base expired", TableStep("retry"))
    buried = any(
        version.origin == "foreign" and turn.pin < version.number < landed.number
        for version in turn.versions
    )
    refused = buried and scope.mutant != "ignore_foreign"
    following = TableStep("abort") if refused else TableStep("commit", landed.number)
    detail = f"v{landed.number} = Restore(v{turn.pin})"
    return turn.step("mutation.post_heal", detail, following, turn.lands(landed))


def _reserve(turn: _TableTurn) -> list[Step]:
    """A compaction writes its file on the base, then reserves; the rewrite follows."""
    scope, _, op, writer = turn.writer_turn
    prepared = reserve(turn.versions, turn.now.version)
    landed = _put_version(turn, prepared, "optimize.pre_reserve")
    if isinstance(landed, list):
        return landed
    assert landed is not None, "a reservation never conflicts"
    state = turn.lands(landed)
    if scope.optimize_forward and not scope.independent_maintenance:
        state = state._replace(files=state.files | {(turn.table, COMPACTED + op, writer.attempt)})
    following = TableStep("rewrite", turn.now.version)
    return turn.step("optimize.post_reserve", f"v{landed.number}", following, state)


def _commit_on_base(turn: _TableTurn) -> list[Step]:
    """Commit the staged rows, or a compaction's rewrite; only an exact version may be published."""
    scope, _, op, writer = turn.writer_turn
    base = turn.now.version
    if scope.is_maintenance(op):
        file = own_file(scope, COMPACTED + op, writer.attempt)
        expected = base + (2 if scope.kinds[op] == "compact" else 1)
        prepared = commit(scope, turn.versions, op, "rewrite", base, file)
    else:
        file = own_file(scope, op, writer.attempt)
        merge = turn.writer_turn.merge(turn.table)
        expected = base + 1
        prepared = commit(scope, turn.versions, op, scope.kinds[op], base, file, merge=merge)
    landed = _put_version(turn, prepared, "mutation.pre_table_commit")
    if isinstance(landed, list):
        return landed
    failed = TableStep("dropped" if scope.is_independent(op) else "retry")
    if landed is None:
        return turn.step("mutation.post_table_commit", "conflict", failed)
    exact = landed.number == expected or scope.mutant in ("no_exact", "maintenance_inexact")
    detail = f"v{landed.number} on v{base}" + ("" if exact else " NOT EXACT")
    following = TableStep("done", landed.number) if exact else failed
    return turn.step("mutation.post_table_commit", detail, following, turn.lands(landed))
