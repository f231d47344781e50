"""A writer takes others along: one publish decides its own operation and theirs.

A *leader* that has moved its table reads the sidecar of another writer, a *member*. Either the
member waits with its files written, validated on the same pins: then the leader commits the rows of
the member right above its own version, tagged with the member's operation; several members stand on
each other, in the order of their rows. Or the member has moved its tables itself and *reports* the
versions in its sidecar: then there is nothing left to do but the publish. One publish decides all
of them, each with a row of its own.

The sidecar of the leader does not tell of its members, and theirs do not tell of it: what becomes
of each is told by its own row. A leader that dies leaves versions that others heal, and members
that go on by themselves.
"""

from __future__ import annotations

from tests.model.manifest import verdict_on
from tests.model.scope import Scope
from tests.model.state import (
    Decision,
    Manifest,
    Member,
    Move,
    Pins,
    Sidecar,
    State,
    Step,
    replaced,
    without_sidecar,
)
from tests.model.table_commit import WriterTurn
from tests.model.tables import commit, own_file, with_version


def combine_steps(turn: WriterTurn) -> list[Step]:
    """What a leader may do with the next member before it publishes."""
    members = turn.writer.members
    if members and not members[-1].moves:
        return [_commit_member(turn, members[-1])]
    if turn.writer.is_alone:
        return []
    return [
        turn.step(
            "combine.post_collect",
            f"W{member.op} is taken along",
            turn.writer._replace(members=(*members, member)),
        )
        for sidecar in sorted(turn.state.sidecars)
        if (member := _member(turn, sidecar)) is not None
    ]


def report_steps(turn: WriterTurn) -> list[Step]:
    """A writer that has moved all its tables tells others to which versions."""
    _, state, op, writer = turn
    own = next((sidecar for sidecar in state.sidecars if sidecar.op == op), None)
    if own is None or own.versions:
        return []
    reported = own._replace(versions=writer.versions)
    changed = state._replace(sidecars=without_sidecar(state.sidecars, op) | {reported})
    detail = f"tables are at {writer.versions}"
    return [turn.step("combine.post_report", detail, turn.entering("publish"), changed)]


def _member(turn: WriterTurn, sidecar: Sidecar) -> Member | None:
    """What a leader makes of the sidecar of another; None if it leaves it alone."""
    scope = turn.scope
    if sidecar.op in (turn.op, *(member.op for member in turn.writer.members)):
        return None
    if sidecar.versions:
        write_set = scope.write_sets[sidecar.op]
        moves = tuple(
            Move(table, sidecar.pins[table], version)
            for table, version in zip(write_set, sidecar.versions, strict=True)
        )
        return Member(sidecar.op, sidecar.pins, moves)
    return Member(sidecar.op, sidecar.pins, ()) if _may_join(turn, sidecar) else None


def _may_join(turn: WriterTurn, sidecar: Sidecar) -> bool:
    scope, state, op, writer = turn
    taken = (op, *(member.op for member in writer.members))
    if not scope.combine or not _is_appending(scope, op) or not _is_appending(scope, sidecar.op):
        return False
    if scope.write_sets[sidecar.op] != scope.write_sets[op]:
        return False
    if not _is_armed(scope, state, sidecar.op) and scope.mutant != "combine_unarmed":
        return False
    table = scope.write_sets[op][0]
    if sidecar.pins[table] != writer.pins[table] and scope.mutant != "combine_stale":
        return False
    pairs = scope.forbidden_pairs
    excludes = any((one, sidecar.op) in pairs or (sidecar.op, one) in pairs for one in taken)
    return not excludes or scope.mutant == "combine_conflicting"


def _is_appending(scope: Scope, op: int) -> bool:
    return scope.kinds[op] == "append" and len(scope.write_sets[op]) == 1


def _is_armed(scope: Scope, state: State, op: int) -> bool:
    """A sidecar says so once the data files of its operation are written."""
    return all((table, *own_file(scope, op, 0)) in state.files for table in scope.write_sets[op])


def _commit_member(turn: WriterTurn, member: Member) -> Step:
    """Commit the member's rows on what the leader has; whatever lands elsewhere ends the chain."""
    scope, state, op, writer = turn
    table = scope.write_sets[op][0]
    base = _last_version(table, writer.versions[0], writer.members[:-1])
    file = own_file(scope, member.op, 0)
    landed = commit(scope, state.tables[table], member.op, "append", base, file)
    name = f"table{table} W{member.op}'s rows"
    dropped = writer._replace(members=writer.members[:-1], is_alone=True)
    if landed is None:
        return turn.step("combine.post_commit", f"{name} conflict", dropped)
    changed = with_version(state, table, landed)
    if landed.number != base + 1 and scope.mutant != "combine_inexact":
        detail = f"{name} as v{landed.number} on v{base} NOT EXACT"
        return turn.step("combine.post_commit", detail, dropped, changed)
    moved = member._replace(moves=(Move(table, base, landed.number),))
    members = replaced(writer.members, len(writer.members) - 1, moved)
    detail = f"{name} as v{landed.number} on v{base}"
    return turn.step("combine.post_commit", detail, writer._replace(members=members), changed)


def _last_version(table: int, own: int, members: tuple[Member, ...]) -> int:
    """The version that the leader made last: of its own rows, or of those of a member."""
    version = own
    for move in (move for member in members for move in member.moves):
        if (move.table, move.base) == (table, version):
            version = move.version
    return version


def with_members(
    turn: WriterTurn, manifest: Manifest, pins: Pins
) -> tuple[Pins, tuple[Decision, ...]]:
    """The pins and rows of a publish: the leader's, and of the members that hold on top of these.

    A member holds if it is undecided, and if its tables are based on, and what it has read is, what
    the rows before it leave. What is above the rows of a member that is left out holds them, so it
    does not hold either.
    """
    scope, state, op, writer = turn
    decisions: list[Decision] = [(op, "committed")]
    for member in writer.members:
        if not member.moves:
            break
        is_decided = verdict_on(scope, member.op, manifest, state.history) is not None
        if is_decided and scope.mutant != "combine_undecided":
            continue
        if not _is_based_on(scope, member, pins) or not _has_read(scope, member, manifest, pins):
            continue
        for move in member.moves:
            pins = replaced(pins, move.table, move.version)
        if scope.mutant != "combine_no_row":
            decisions.append((member.op, "committed"))
    return pins, tuple(decisions)


def _is_based_on(scope: Scope, member: Member, pins: Pins) -> bool:
    if scope.mutant == "combine_hole":
        return True
    return all(pins[move.table] == move.base for move in member.moves)


def _has_read(scope: Scope, member: Member, manifest: Manifest, pins: Pins) -> bool:
    """No table that the member has only read is published meanwhile, be it by the same publish."""
    if scope.mutant == "combine_no_read_set":
        return True
    current = manifest.pins if scope.mutant == "combine_read_before" else pins
    read = scope.dependencies[member.op] - set(scope.write_sets[member.op])
    return all(current[table] == member.pins[table] for table in read)
