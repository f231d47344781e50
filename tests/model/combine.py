"""A writer takes others along: it commits their staged rows above its own, and publishes them too.

A *leader* that has moved its table reads the sidecar of another writer, a *member*, that waits with
its files written and was validated on the same pins. It commits the member's rows right above its
own version, tagged with the member's operation, and one publish decides both, each with a row of
its own. Several members stand on each other, in the order of their rows.

The sidecar of the leader does not tell of its members, and theirs do not tell of it: what becomes
of each is told by its own row. A leader that dies leaves versions that others heal, and members
that go on by themselves.
"""

from __future__ import annotations

from tests.model.manifest import verdict_on
from tests.model.scope import Scope
from tests.model.state import Decision, Manifest, Member, Pins, Sidecar, State, Step, replaced
from tests.model.table_commit import WriterTurn
from tests.model.tables import commit, own_file, with_version


def combine_steps(turn: WriterTurn) -> list[Step]:
    """What a leader may do with the next member before it publishes."""
    members = turn.writer.members
    if members and not members[-1].version:
        return [_commit_member(turn, members[-1])]
    if turn.writer.is_alone:
        return []
    return [
        turn.step(
            "combine.post_collect",
            f"W{sidecar.op} is taken along",
            turn.writer._replace(members=(*members, Member(sidecar.op, sidecar.pins, 0))),
        )
        for sidecar in sorted(turn.state.sidecars)
        if _may_join(turn, sidecar)
    ]


def _may_join(turn: WriterTurn, sidecar: Sidecar) -> bool:
    scope, state, op, writer = turn
    taken = (op, *(member.op for member in writer.members))
    if sidecar.op in taken or not _is_appending(scope, op) or not _is_appending(scope, sidecar.op):
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
    table, base = scope.write_sets[op][0], last_version(writer.versions[0], writer.members[:-1])
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
    members = replaced(
        writer.members, len(writer.members) - 1, member._replace(version=landed.number)
    )
    detail = f"{name} as v{landed.number} on v{base}"
    return turn.step("combine.post_commit", detail, writer._replace(members=members), changed)


def last_version(own: int, members: tuple[Member, ...]) -> int:
    return members[-1].version if members else own


def with_members(
    turn: WriterTurn, manifest: Manifest, pins: Pins
) -> tuple[Pins, tuple[Decision, ...]]:
    """The pins and rows of a publish: the leader's, and of its members up to one that is decided.

    What stands above the rows of a member that is left out holds them, so it is left out as well.
    """
    scope, state, op, writer = turn
    decisions: list[Decision] = [(op, "committed")]
    for member in writer.members:
        if not member.version:
            break
        is_decided = verdict_on(scope, member.op, manifest, state.history) is not None
        has_moved = _has_moved(scope, op, member, manifest)
        if is_decided and scope.mutant == "combine_hole":
            continue
        if is_decided and scope.mutant != "combine_undecided":
            break
        if has_moved and scope.mutant != "combine_no_read_set":
            break
        pins = replaced(pins, scope.write_sets[op][0], member.version)
        if scope.mutant != "combine_no_row":
            decisions.append((member.op, "committed"))
    return pins, tuple(decisions)


def _has_moved(scope: Scope, op: int, member: Member, manifest: Manifest) -> bool:
    """A table that the member has only read was published meanwhile."""
    read = scope.dependencies[member.op] - set(scope.write_sets[op])
    return any(manifest.pins[table] != member.pins[table] for table in read)
