"""What must hold in every reachable state.

- UNREADABLE: every pinned version and its data files exist, and so does the newest manifest.
- FOREIGN: no version from outside the protocol lies silently buried below a pin.
- EXACTNESS: a pinned version shows exactly the committed operations, replayed in order. So nothing
  is lost or there twice, and nothing half done is visible.
- ONE ATTEMPT: all tables show the same attempt of an operation, if a retry computes other
  rows from what it read.
- INDEXED: rows that an index knows stay where they are when a write merges files.
- TWO DECISIONS: there is at most one per operation.
- DURABILITY: an acknowledged operation is committed.
- PHANTOM: an operation that was reported as failed is not committed.
- OUTCOME: whoever asks about an operation hears the truth (checked if there are folders).
- WRITE SKEW: of two operations that exclude each other at most one is committed.
- LIVENESS: if everybody died here, one sweep and one new writer would succeed (`liveness.py`).
"""

from __future__ import annotations

from tests.model.liveness import Liveness
from tests.model.manifest import verdict_on
from tests.model.replay import Content, Replay
from tests.model.scope import TABLES, Scope
from tests.model.state import INDEXED, MERGED, Decision, State, Version
from tests.model.tables import rows_in, version_at, writers_in


class Invariants:
    """Judges states; remembers what it has replayed, because many states share their decisions."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._replay = Replay(scope)
        self._liveness = Liveness(scope, self._replay)

    def violation(self, state: State) -> str | None:
        """The first rule that this state breaks, as a sentence."""
        if state.slots.freed_up_to >= state.manifest.version:
            return "UNREADABLE: the newest manifest version was cleaned"
        decisions = state.log if self._scope.folders else state.manifest.decisions
        content = self._replay.content_after(decisions)
        for table in TABLES:
            if sentence := _table_violation(state, table, content):
                return sentence
        if sentence := _attempt_violation(self._scope, state):
            return sentence
        for op in range(self._scope.writers):
            if sentence := self._writer_violation(state, op, decisions):
                return sentence
        for one, other in self._scope.forbidden_pairs:
            if (one, "committed") in decisions and (other, "committed") in decisions:
                return f"WRITE SKEW: W{one} and W{other} both committed (dangling edge)"
        return self._liveness.violation(state)

    def _writer_violation(
        self, state: State, op: int, decisions: tuple[Decision, ...]
    ) -> str | None:
        truth = [verdict for decided, verdict in decisions if decided == op]
        committed = "committed" in truth
        if len(truth) > 1:
            return f"TWO DECISIONS for W{op}: {truth}"
        phase = state.writers[op].phase
        if phase in ("acknowledge", "done") and not committed:
            return f"DURABILITY: W{op} acknowledged, but it is not committed"
        if phase in ("report_failure", "failed") and committed:
            return f"PHANTOM: W{op} reported a definite failure, but it is committed"
        if self._scope.folders:
            answer = verdict_on(self._scope, op, state.manifest, state.history)
            if committed != (answer == "committed") or (truth and not answer):
                return f"OUTCOME of W{op}: answered {answer}, the truth is {truth}"
        return None


def _table_violation(state: State, table: int, content: Content) -> str | None:
    versions, pin = state.tables[table], state.manifest.pins[table]
    pinned = version_at(versions, pin)
    if pinned is None:
        return f"UNREADABLE: pinned v{pin} of table{table} was cleaned"
    for file in pinned.files:
        if (table, *file) not in state.files:
            return f"UNREADABLE: data file {file} of pinned v{pin} of table{table} was deleted"
    if any(version.origin == "foreign" and version.number < pin for version in versions):
        return f"FOREIGN: a foreign version of table{table} was silently buried below the pin"
    shown, expected = writers_in(pinned.files), content[table]
    if shown != expected:
        return (
            f"EXACTNESS: table{table} pin v{pin} shows {sorted(shown)}, committed is "
            f"{sorted(expected)} (decisions {state.manifest.decisions})"
        )
    return _merge_violation(table, pinned)


def _attempt_violation(scope: Scope, state: State) -> str | None:
    if not scope.recomputes:
        return None
    shown: dict[int, int] = {}
    for table, pin in enumerate(state.manifest.pins):
        pinned = version_at(state.tables[table], pin)
        assert pinned is not None, "it was looked for before"
        for writer, attempt in pinned.files:
            if writer < scope.writers and shown.setdefault(writer, attempt) != attempt:
                return f"ONE ATTEMPT: rows of two attempts of W{writer} are published together"
    return None


def _merge_violation(table: int, pinned: Version) -> str | None:
    if sum(len(rows_in(file)) for file in pinned.files) > len(writers_in(pinned.files)):
        return f"EXACTNESS: table{table} shows a row twice: {sorted(pinned.files)}"
    if any(file[0] >= MERGED and INDEXED in rows_in(file) for file in pinned.files):
        return f"INDEXED: rows of table{table} that an index knows were merged into another file"
    return None
