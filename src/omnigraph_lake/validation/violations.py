"""Reports violations in a size that does not grow with the input, with a stable token per reason.

Invariants:

- Counts are exact; only the first violations are kept as text, in the order of the checks.
- Tokens are part of reports and quarantine tables; they are added, never changed.
"""

from __future__ import annotations

import enum
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from typing import Final

import pyarrow as pa

from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.schema.python_values import plain_value


class Reason(enum.StrEnum):
    """Everything that can be wrong with a row, or with a whole input."""

    MALFORMED = "malformed"
    UNKNOWN_TYPE = "unknown_type"
    DUPLICATE_MEMBER = "duplicate_member"
    UNKNOWN_COLUMN = "unknown_column"
    DUPLICATE_COLUMN = "duplicate_column"
    WRONG_TYPE = "wrong_type"
    BAD_JSON = "bad_json"
    DOES_NOT_FIT = "does_not_fit"
    VECTOR_SIZE = "vector_size"
    VECTOR_ITEM = "vector_item"
    MISSING_REQUIRED = "missing_required"
    NOT_IN_ENUM = "not_in_enum"
    OUT_OF_RANGE = "out_of_range"
    PATTERN_MISMATCH = "pattern_mismatch"
    NOT_FINITE_KEY = "not_finite_key"
    ENDPOINT_TYPE = "endpoint_type"
    BAD_ID = "bad_id"
    DUPLICATE_ID = "duplicate_id"
    ID_EXISTS = "id_exists"
    SUPERSEDED = "superseded"
    NOT_UNIQUE = "not_unique"
    MISSING_ENDPOINT = "missing_endpoint"
    TOO_MANY_EDGES = "too_many_edges"
    TOO_FEW_EDGES = "too_few_edges"


KEPT_MAX: Final = 100
"""How many violations one report spells out; the others are only counted."""

SHOWN_VALUE_MAX: Final = 80


class _Quoted(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to spell integers above its limit of digits.
        if x.bit_length() > _SPELLED_BITS_MAX:
            return f"an integer of {x.bit_length():,} bits"
        return super().repr_int(x, level)


_SPELLED_BITS_MAX: Final = 1024
_QUOTED: Final = _Quoted()
_QUOTED.maxlevel = 4
_QUOTED.maxstring = _QUOTED.maxother = _QUOTED.maxlong = SHOWN_VALUE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule at one row.

    `row` is the position in the input, counted from zero. It is None for a fault of the whole
    input and for what the write would leave broken among published rows; then `id` is the id of
    that row, or of the source node whose edges are too many or too few.
    """

    table_key: str
    reason: Reason
    columns: tuple[str, ...]
    row: int | None
    id: str | None
    message: str

    def __str__(self) -> str:
        kind, _, type_name = self.table_key.partition(":")
        columns = [_clip(column) for column in self.columns]
        place = f"{kind} {type_name}" + "".join(f".{column}" for column in columns[:1])
        if len(columns) > 1:
            place = f"{kind} {type_name}({', '.join(columns)})"
        row = "" if self.row is None else f", row {self.row}"
        named = "" if self.id is None else f", id {shown(self.id)}"
        return f"{place}{row}{named}: {self.message} [{self.reason.value}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRows:
    """Every violation of one rule in one table: how many, where, and the first of them in words.

    `rows` are the input rows to leave out, as positions. That can be fewer than `count`, when
    published rows are broken, or more: all edges of a source that has too few of them.
    """

    table_key: str
    reason: Reason
    columns: tuple[str, ...]
    count: int
    rows: pa.Int64Array = field(repr=False, compare=False)
    kept: tuple[Violation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationReport(Displayed):
    """Exact counts per table and reason, and the first violations."""

    counts: Mapping[tuple[str, Reason], int]
    kept: tuple[Violation, ...]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def ok(self) -> bool:
        return not self.counts

    def summary(self) -> str:
        """A text for people: counts first, then what was kept, then what was left out."""
        if self.ok:
            return "no violations"
        lines = [f"{self.total} violation{'s' if self.total != 1 else ''}"]
        for (table_key, reason), count in self.counts.items():
            kind, _, type_name = table_key.partition(":")
            lines.append(f"  {kind} {type_name}: {count} {reason.value}")
        lines += [str(violation) for violation in self.kept]
        if self.total > len(self.kept):
            lines.append(f"... and {self.total - len(self.kept)} more")
        return "\n".join(lines)

    def _page(self) -> Page:
        rows = [
            (table_key, reason.value, f"{count:,}")
            for (table_key, reason), count in self.counts.items()
        ]
        table = TableView(header=("type", "reason", "count"), rows=rows, numbers=(2,))
        return Page(
            summary=counted(self.total, "violation"),
            tables=[table] if rows else (),
            lines=[*map(str, self.kept)] or ["no violations"],
        )


def report_of(findings: Iterable[BadRows], *, kept_max: int = KEPT_MAX) -> ViolationReport:
    """One bounded report over findings of any number of tables, tasks or engines."""
    counts: Counter[tuple[str, Reason]] = Counter()
    kept: list[Violation] = []
    for finding in findings:
        if finding.count:
            counts[finding.table_key, finding.reason] += finding.count
            kept += finding.kept[: kept_max - len(kept)]
    return ViolationReport(counts=dict(counts), kept=tuple(kept))


def bad_rows(
    table_key: str,
    reason: Reason,
    columns: tuple[str, ...],
    rows: pa.Int64Array,
    *,
    ids: pa.Array | pa.ChunkedArray | None,
    message: Callable[[int], str],
) -> BadRows:
    """The finding that these rows of an input break a rule; `ids` is the input's id column."""
    first = rows[:KEPT_MAX].to_pylist()
    return BadRows(
        table_key=table_key,
        reason=reason,
        columns=columns,
        count=len(rows),
        rows=rows,
        kept=tuple(
            Violation(
                table_key=table_key,
                reason=reason,
                columns=columns,
                row=row,
                id=None if ids is None else ids[row].as_py(),
                message=message(row),
            )
            for row in first
        ),
    )


def unplaced(violations: Sequence[Violation], *, count: int) -> BadRows:
    """The finding of one rule about published rows or about a whole input."""
    first = violations[0]
    return BadRows(
        table_key=first.table_key,
        reason=first.reason,
        columns=first.columns,
        count=count,
        rows=pa.array(
            [violation.row for violation in violations if violation.row is not None], pa.int64()
        ),
        kept=tuple(violations[:KEPT_MAX]),
    )


def describe(broken: BadRows) -> str:
    """How many published rows break a rule, and why the first of them do."""
    texts = [
        f"row {shown(violation.id)}: {', '.join(violation.columns)}: {violation.message}"
        for violation in broken.kept
    ]
    if broken.count > len(texts):
        texts.append(f"and {broken.count - len(texts):,} more")
    return f"{counted(broken.count, 'row')} with {broken.reason.value}: {'; '.join(texts)}"


def shown(value: object) -> str:
    """A value as a message quotes it: never long, never on two lines.

    Times are as in ISO 8601, decimals are numbers.
    """
    if isinstance(value, date | time):  # a datetime is a date
        value = value.isoformat()
    if isinstance(value, Decimal):
        return _clip(str(value))
    return _clip(_QUOTED.repr(value))


def _clip(text: str) -> str:
    return text if len(text) <= SHOWN_VALUE_MAX else f"{text[: SHOWN_VALUE_MAX - 3]}..."


def shown_scalar(value: pa.Scalar) -> str:
    """An Arrow value as a message quotes it, also where Python has no such value."""
    try:
        return shown(plain_value(value))
    except UnicodeDecodeError:
        return "text that is not valid UTF-8"
    except (ValueError, pa.ArrowException):
        return f"a value of type {value.type}"
