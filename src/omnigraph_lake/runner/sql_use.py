"""What a query in Spark SQL needs of its tables, learned from the plan of Spark's own optimizer.

Spark tells a Python scan nothing about the query above it. So a query is planned twice. The first
time, which runs nothing, every table is a *probe*: a range of numbers with one expression per
column, marked by a number that was drawn for this query. Marks that are missing from the optimized
plan belong to columns that do not matter, and a filter directly above a probe selects its rows.

Invariants:

- Any doubt means all columns and all rows: a plan that Spark shortened, a subquery that it may show
  elsewhere, a table that it does not show, a condition of an unknown form.
- A probe is opaque: its columns can be null, and it has more rows than any table. What the
  optimizer omits for a probe does not matter for any values, so the query may be given nulls there.
- The query keeps its own filters. What is pushed down here only spares it rows that these remove.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake.runner.types import carried_type, spark_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A table as the optimizer sees it: the start of its range, and a mark for every column."""

    start: int
    stored: pa.Schema
    marks: Mapping[str, int]

    @property
    def end(self) -> int:
        return self.start + _PROBE_ROWS

    def expressions(self) -> list[str]:
        """The columns in SQL over the `id` of the range."""
        return [
            f"from_json(CAST(id + {self.marks[column.name]} AS STRING), "
            f"'c {spark_type(carried_type(column.type)).simpleString()}').c AS `{column.name}`"
            for column in self.stored
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """The columns that a query needs, in the order of the table, and a condition of its rows."""

    columns: tuple[str, ...]
    where: str | None = None


_PROBE_ROWS: Final = 1 << 53
_MARKS: Final = 100_000
"""So many tables and columns a query may have."""


def make_probes(schemas: Mapping[str, pa.Schema]) -> Mapping[str, Probe]:
    """Probes of the tables with these schemas, whose marks occur in no query."""
    mark = (10**11 + secrets.randbelow(9 * 10**11)) * _MARKS
    probes: dict[str, Probe] = {}
    for key, stored in schemas.items():
        marks = {name: mark + 1 + position for position, name in enumerate(stored.names)}
        probes[key] = Probe(start=mark, stored=stored, marks=marks)
        mark += 1 + len(marks)
    return probes


_DOUBTS: Final = re.compile(
    r"more fields|more characters|truncated|redacted|subquery", re.IGNORECASE
)
_STATISTICS: Final = re.compile(r", Statistics\(sizeInBytes=[^()]*\)$", re.MULTILINE)
_FILTER: Final = re.compile(r"[ :]*(?:[:+]- )?Filter (.*)")
_COLUMN: Final = re.compile(
    r"from_json\(StructField\(c,[^#]*?\), cast\(\(id#\d+L \+ (\d+)\) as string\), "
    r"Some\([^()]*\)(?:, \w+)?\)\.c"
)


def read_use(explained: str, probes: Mapping[str, Probe]) -> Mapping[str, TableUse]:
    """What a query needs of each table; `explained` is its plan over probes, in the mode "cost"."""
    optimized = explained.rpartition("== Physical Plan ==")[0]
    if not optimized or _DOUBTS.search(optimized):
        return {key: TableUse(columns=tuple(probe.marks)) for key, probe in probes.items()}
    lines = _STATISTICS.sub("", optimized).splitlines()
    return {key: _read_table_use(lines, probe) for key, probe in probes.items()}


def _read_table_use(lines: list[str], probe: Probe) -> TableUse:
    ranges = [at for at, line in enumerate(lines) if f"Range ({probe.start}, {probe.end}," in line]
    if not ranges:
        return TableUse(columns=tuple(probe.marks))
    shown = {int(number) for line in lines for number in re.findall(r"\d{17,18}", line)}
    columns = tuple(name for name, mark in probe.marks.items() if mark in shown)
    if len(ranges) > 1:
        return TableUse(columns=columns)
    above = _FILTER.match(lines[ranges[0] - 1])
    if above is None:
        return TableUse(columns=columns)
    by_mark = {str(mark): probe.stored.field(name) for name, mark in probe.marks.items()}
    terms = _Condition(_COLUMN.sub(r"<\1>", above[1]), by_mark).terms()
    return TableUse(columns=columns, where=" AND ".join(terms) if terms else None)


class _Condition:
    """A conjunction of simple comparisons, as Spark prints it.

    Spark prints texts without quotes. The whole condition is therefore read by a strict grammar: a
    text that looks like a part of it cannot contain the marks, without which nothing is read.
    """

    def __init__(self, text: str, columns: Mapping[str, pa.Field]) -> None:
        self._text = text
        self._columns = columns
        self._at = 0

    def terms(self) -> list[str]:
        """The comparisons in the SQL of Lance; none if there is anything else."""
        terms = self._conjunction()
        return [] if terms is None or self._at < len(self._text) else terms

    def _conjunction(self) -> list[str] | None:
        """The comparisons from here on, in brackets if there are several; None if unknown."""
        for pattern, translate in _FORMS.items():
            if match := pattern.match(self._text, self._at):
                self._at = match.end()
                column = self._columns.get(match[1])
                return None if column is None else translate(column, *match.groups()[1:])
        if not self._take("("):
            return None
        left = self._conjunction()
        if left is None or not self._take(" AND "):
            return None
        right = self._conjunction()
        return None if right is None or not self._take(")") else left + right

    def _take(self, token: str) -> bool:
        is_next = self._text.startswith(token, self._at)
        self._at += len(token) if is_next else 0
        return is_next


def _compare(column: pa.Field, operator: str, value: str) -> list[str] | None:
    literal = _lance_literal(column.type, value)
    return None if literal is None else [f"`{column.name}` {operator} {literal}"]


def _differ(column: pa.Field, value: str) -> list[str] | None:
    return _compare(column, "!=", value)


def _contain(column: pa.Field, values: str) -> list[str] | None:
    literals = [_lance_literal(column.type, value) for value in re.split(", ?", values)]
    known = [literal for literal in literals if literal is not None]
    return [f"`{column.name}` IN ({', '.join(known)})"] if known == literals else None


def _ignore(_: pa.Field) -> list[str]:
    """A condition that Spark evaluates alone."""
    return []


_SAFE_TEXT: Final = r"[A-Za-z0-9_.:@/+-]+"
_FORMS: Final[Mapping[re.Pattern[str], Callable[..., list[str] | None]]] = {
    re.compile(rf"\(<(\d+)> (=|<|<=|>|>=) ({_SAFE_TEXT})\)"): _compare,
    re.compile(rf"NOT \(<(\d+)> = ({_SAFE_TEXT})\)"): _differ,
    re.compile(rf"<(\d+)> IN \(({_SAFE_TEXT}(?:, ?{_SAFE_TEXT})*)\)"): _contain,
    re.compile(r"isnotnull\(<(\d+)>\)"): _ignore,
    re.compile(rf"(?:StartsWith|EndsWith|Contains)\(<(\d+)>, {_SAFE_TEXT}\)"): _ignore,
}


def _lance_literal(kind: pa.DataType, value: str) -> str | None:
    """A value in the SQL of Lance, if the column compares there as it does in Spark.

    Floats do not: Spark takes NaN to be the largest number. Timestamps are printed in the time
    zone of the session, and null is printed like a text.
    """
    if value == "null":
        return None
    if pat.is_string(kind):
        return f"'{value}'"
    if (pat.is_signed_integer(kind) or kind == pa.uint32()) and re.fullmatch(r"-?\d+", value):
        return value
    if pat.is_date32(kind) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return f"date '{value}'"
    return None
