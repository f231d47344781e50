"""Count what became of the records of a source, by type and by rule, while they are parsed.

A row is derived if its rule yields distinct values of records instead of a row for each: a node of
a `distinct` rule, or one that an edge creates. Which task yields it depends on how the input was
cut, so derived rows are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

NO_TYPE = ""
"""In the place of a table: records that were refused before a rule took them."""


class TypeCounts(msgspec.Struct):
    """What rules of one type were offered: records, or items of their lists.

    `skipped` are those that no rule of the type takes, and those that lack what a rule requires.
    """

    records: int = 0
    skipped: int = 0
    rejected: dict[str, int] = {}
    rejected_derived: dict[str, int] = {}

    def reject(self, reason: str, *, is_derived: bool) -> None:
        counts = self.rejected_derived if is_derived else self.rejected
        counts[reason] = counts.get(reason, 0) + 1


class RuleCounts(msgspec.Struct):
    """The records that met the conditions of a rule, and the rows that it yielded of them.

    `inner_lists` are records in which the list of the rule is inside another list.
    """

    records: int = 0
    rows: int = 0
    inner_lists: int = 0


class RejectedGroup(msgspec.Struct, frozen=True, array_like=True):
    """Rejected records with one reason and one column, and the first of them."""

    type: str | None
    reason: str
    column: str
    count: int
    place: int
    text: str


def group_rejected(
    groups: Iterable[RejectedGroup], records: Iterable[tuple[int, str | None, str, str]]
) -> list[RejectedGroup]:
    """Groups with more records: places, types, reasons and messages."""
    known = {(group.type, group.reason, group.column): group for group in groups}
    for place, type_name, reason, message in records:
        column, _, text = message.partition(": ")
        if not text or " " in column:
            column, text = "", message
        group = RejectedGroup(type_name, reason, column, 1, place, text)
        before = known.setdefault((type_name, reason, column), group)
        if before is not group:
            first = min(before, group, key=lambda one: one.place)
            known[type_name, reason, column] = msgspec.structs.replace(
                first, count=before.count + 1
            )
    return list(known.values())


class SourceCounts(msgspec.Struct):
    """What was counted in a piece: by table, and by rule in the order of the mapping."""

    source: str
    types: dict[str, TypeCounts] = {}
    rules: list[RuleCounts] = []
    names: list[str] = []
    """Names of columns, if a rule has yielded nothing."""

    def of_type(self, table_key: str) -> TypeCounts:
        return self.types.setdefault(table_key, TypeCounts())
