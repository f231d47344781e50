"""Validation of single rows of one type.

Invariant: a verdict is what `take_in` and `check_rows` say about the row alone. Many rows are
validated together; only doubtful ones are validated again with messages, a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_lake.load.formats.json_record import Claim
from omnigraph_lake.load.formats.records import (
    Parsed,
    ParsedRows,
    Refusal,
    refusal_of,
    refused_records,
)
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema.catalog import EdgeType, NodeType
from omnigraph_lake.validation.constraints import CanonicalJson, ProperId, TypeRules
from omnigraph_lake.validation.input.intake import NewIds, TakenIn, take_in
from omnigraph_lake.validation.input.mentions import RowMask, concat_mentions
from omnigraph_lake.validation.row_checks import check_rows
from omnigraph_lake.validation.violations import KEPT_MAX, BadRows, Violation

TOGETHER_MAX: Final = KEPT_MAX
"""How many rows are validated with messages at once: as many as a finding lists."""

Places = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]

_NONE: Final = np.array([], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedRows:
    """Rows that passed, and refusals; both may be in any order."""

    rows: tuple[ParsedRows, ...] = ()
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator:
    """Validates the rows of one type; with `partial`, as records that omit what they keep."""

    declared: NodeType | EdgeType
    rules: TypeRules
    new_ids: NewIds
    partial: bool = False
    end_types: Mapping[str, str] = field(default_factory=dict)
    """Node types of ends that rows do not name, by the column of types."""

    def passed(
        self,
        columns: Mapping[str, pa.Array],
        places: Places,
        present: Mapping[str, RowMask] | None = None,
    ) -> tuple[ParsedRows, Positions]:
        """The rows without fault, and the positions of the others.

        `present` has the rows that mention a column, for the columns that not all rows mention.
        """
        given_ids = columns.get(ID_COLUMN)
        ids_are_new = given_ids is None or given_ids.null_count == len(given_ids)
        rules = self._rules_of_new_ids if ids_are_new else self.rules
        taken, findings = self._findings(pa.table(dict(columns)), rules, present)
        bad = np.unique(np.concatenate([_NONE, *(finding.rows.to_numpy() for finding in findings)]))
        good = None
        if len(bad):
            good = np.ones(len(places), np.bool_)
            good[bad] = False
        return self._parse(taken, places, good), bad

    def claims(self, claims: Sequence[Claim]) -> ValidatedRows:
        """Validate records in words."""
        checked = [
            self._in_words(
                [claim.row for claim in group],
                [claim.place for claim in group],
                [claim.raw for claim in group],
                [claim.claimed for claim in group],
            )
            for group in _judged_together(claims)
        ]
        return together(checked)

    def rows(self, rows: pa.Table, places: Sequence[int], raws: Sequence[bytes]) -> ValidatedRows:
        """Validate Arrow rows in words."""
        names = [self.declared.name] * len(places)
        parts = [
            slice(start, start + TOGETHER_MAX) for start in range(0, len(places), TOGETHER_MAX)
        ]
        return together(
            [
                self._in_words(
                    rows.slice(part.start, TOGETHER_MAX), places[part], raws[part], names[part]
                )
                for part in parts
            ]
        )

    def _in_words(
        self,
        rows: Sequence[Mapping[str, object]] | pa.Table,
        places: Sequence[int],
        raws: Sequence[bytes],
        names: Sequence[str],
    ) -> ValidatedRows:
        taken, findings = self._findings(rows, self.rules)
        first: list[Violation | None] = [None] * len(places)
        for violation in (violation for finding in findings for violation in finding.kept):
            assert violation.row is not None, "the names of columns were looked at before"
            first[violation.row] = first[violation.row] or violation
        good = np.array([violation is None for violation in first], np.bool_)
        return ValidatedRows(
            rows=(self._parse(taken, np.array(places, np.uint32), good),),
            refusals=tuple(
                refusal_of(place, name, violation, raw)
                for place, name, violation, raw in zip(places, names, first, raws, strict=True)
                if violation is not None
            ),
        )

    @property
    def _rules_of_new_ids(self) -> TypeRules:
        """Nothing can be wrong with an id that is made here, unless it is made from a key."""
        if isinstance(self.declared, NodeType) and self.declared.key is not None:
            return self.rules
        rules = tuple(rule for rule in self.rules.row_rules if not isinstance(rule, ProperId))
        return replace(self.rules, row_rules=rules)

    def _findings(
        self, source: object, rules: TypeRules, present: Mapping[str, RowMask] | None = None
    ) -> tuple[TakenIn, Sequence[BadRows]]:
        taken = take_in(
            self.declared,
            source,
            new_ids=self.new_ids,
            partial=self.partial,
            present=present,
            end_types=self.end_types,
        )
        broken = check_rows(
            taken.table,
            _without_canonical_json(rules),
            unreadable=taken.unreadable,
            mentions=taken.mentions,
        )
        return taken, (*taken.findings, *broken)

    def _parse(
        self, taken: TakenIn, places: Places, good: npt.NDArray[np.bool_] | None
    ) -> ParsedRows:
        """The rows that a mask selects, or all of them."""
        rows, mentions = taken.table, taken.mentions
        if good is not None:
            mask = pa.array(good)
            rows, places = rows.filter(mask), places[good]
            mentions = None if mentions is None else mentions.filter(mask)
        return ParsedRows(
            table_key=self.rules.table_key,
            rows=rows,
            places=pa.array(places, pa.uint32()),
            mentions=mentions,
        )


def _without_canonical_json(rules: TypeRules) -> TypeRules:
    """The rules that rows can break that were just taken in: their Json is canonical."""
    row_rules = tuple(rule for rule in rules.row_rules if not isinstance(rule, CanonicalJson))
    return rules if len(row_rules) == len(rules.row_rules) else replace(rules, row_rules=row_rules)


def together(parts: Sequence[ValidatedRows]) -> ValidatedRows:
    return ValidatedRows(
        rows=tuple(rows for part in parts for rows in part.rows),
        refusals=tuple(refusal for part in parts for refusal in part.refusals),
    )


def in_input_order(checked: ValidatedRows) -> Iterator[Parsed]:
    """One table per type, by place, and then the refusals; what is empty is left out."""
    by_type: dict[str, list[ParsedRows]] = {}
    for row in checked.rows:
        if len(row.rows):
            by_type.setdefault(row.table_key, []).append(row)
    for parts in by_type.values():
        yield parts[0] if len(parts) == 1 else _merge(parts)
    if checked.refusals:
        yield refused_records(checked.refusals)


def _merge(parts: Sequence[ParsedRows]) -> ParsedRows:
    places = np.concatenate([part.places.to_numpy() for part in parts])
    order = np.argsort(places, kind="stable")
    rows = pa.concat_tables([part.rows for part in parts]).take(pa.array(order))
    mentions = concat_mentions([(part.mentions, len(part.rows)) for part in parts])
    is_derived = None
    if any(part.is_derived is not None for part in parts):
        flags = [
            pa.repeat(pa.scalar(value=False), len(part.rows))
            if part.is_derived is None
            else part.is_derived
            for part in parts
        ]
        is_derived = pa.concat_arrays(flags).take(pa.array(order))
    return ParsedRows(
        table_key=parts[0].table_key,
        rows=rows,
        places=pa.array(places[order], pa.uint32()),
        mentions=None if mentions is None else mentions.take(pa.array(order)),
        is_derived=is_derived,
    )


def _judged_together(claims: Sequence[Claim]) -> Iterator[Sequence[Claim]]:
    """Few at a time, and a row with a list alone: Arrow gives lists one type for all rows."""
    plain = []
    for claim in claims:
        if any(isinstance(value, list) for value in claim.row.values()):
            yield [claim]
        else:
            plain.append(claim)
    for start in range(0, len(plain), TOGETHER_MAX):
        yield plain[start : start + TOGETHER_MAX]
