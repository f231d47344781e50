"""What the tables must show: the committed operations, applied in the order of their decisions."""

from __future__ import annotations

from tests.model.scope import TABLES, Scope
from tests.model.state import EARLIER, INDEXED, Decision

Content = tuple[frozenset[int], ...]
"""Per table, the writers whose rows are visible."""


class Replay:
    """Replays decisions; remembers every replay."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._known: dict[tuple[Decision, ...], Content] = {}

    def content_after(self, decisions: tuple[Decision, ...]) -> Content:
        content = self._known.get(decisions)
        if content is None:
            content = self._known[decisions] = self._replay(decisions)
        return content

    def _replay(self, decisions: tuple[Decision, ...]) -> Content:
        scope = self._scope
        first = frozenset({EARLIER, INDEXED} if scope.tail_merge else ())
        content = [first for _ in TABLES]
        for op, verdict in decisions:
            if verdict != "committed" or scope.is_maintenance(op):
                continue
            for table in scope.write_sets[op]:
                before = frozenset[int]() if scope.kinds[op] == "overwrite" else content[table]
                content[table] = before | {op}
        return tuple(content)
