"""How findings of buckets become final: which to accept after a pass, and whether to pass again.

Invariant: the accepted findings are those of the rules applied stage by stage, each to the rows
that the previous stages accepted. A pass evaluates all stages at once, so a finding is final only
if no row that was refused in the same pass could be part of it.

Most loads need one pass. Only refused rows lead to another, and only if a later rule reads their
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np

from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.validation import constraints
from omnigraph.validation.constraints import EndpointExists, TypeRules
from omnigraph.validation.hashed_keys import SPLIT_BITS
from omnigraph.validation.keyed_bucket import Finding, KeyPlan, RoleKind, Stage, is_node
from omnigraph.validation.violations import Reason

if TYPE_CHECKING:
    import pyarrow as pa

_NONE: Final = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why some rows of a table were refused."""

    reason: Reason
    columns: tuple[str, ...]

    @property
    def quoted(self) -> tuple[str, ...]:
        """The columns whose values a message quotes."""
        match self.reason:
            case Reason.DUPLICATE_ID | Reason.SUPERSEDED | Reason.ID_EXISTS:
                return (ID_COLUMN,)
            case _:
                return self.columns

    def message(self, rules: TypeRules, values: Sequence[pa.Scalar]) -> str:
        """What is wrong with a row that has these values in the quoted columns."""
        return constraints.keyed_message(self.reason, self._rule(rules), values)

    def text(self, rules: TypeRules, values: Sequence[pa.Scalar]) -> str:
        """The message without the columns that it begins with."""
        return self.message(rules, values).partition(": ")[2]

    def _rule(self, rules: TypeRules) -> constraints.KeyedRule | None:
        """The rule that was broken; ids have none."""
        return next((rule for rule in rules.keyed_rules if self._is_of(rule)), None)

    def _is_of(self, rule: constraints.KeyedRule) -> bool:
        match rule:
            case constraints.UniqueTuple():
                return self.reason is Reason.NOT_UNIQUE and rule.columns == self.columns
            case EndpointExists():
                return self.reason is Reason.MISSING_ENDPOINT and self.columns == (rule.column,)
            case constraints.EdgeCount():
                return self.reason in {Reason.TOO_FEW_EDGES, Reason.TOO_MANY_EDGES}
            case _:
                assert_never(rule)


def rows_of_piece(rows: np.ndarray, piece: int) -> slice:
    """Where the rows of one piece are among row numbers, which ascend."""
    bounds = np.array([piece << SPLIT_BITS, (piece + 1) << SPLIT_BITS], np.uint64)
    start, end = np.searchsorted(rows, bounds)
    return slice(int(start), int(end))


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRows:
    """The refused rows of one table, ascending, each with the number of its verdict."""

    rows: np.ndarray
    verdicts: np.ndarray

    def of_split(self, split: int) -> RefusedRows:
        inside = rows_of_piece(self.rows, split)
        return RefusedRows(rows=self.rows[inside], verdicts=self.verdicts[inside])


NO_ROWS: Final = RefusedRows(rows=_NONE, verdicts=np.empty(0, np.uint16))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassState:
    """The final results so far: refused rows by table, and what a merge replaces."""

    verdicts: tuple[Verdict, ...] = ()
    refused: Mapping[str, RefusedRows] = field(default_factory=dict)
    replaced: Mapping[str, np.ndarray] = field(default_factory=dict)
    broken: tuple[Finding, ...] = ()
    is_final: bool = False

    def rows_refused(self, table_key: str) -> RefusedRows:
        return self.refused.get(table_key, NO_ROWS)

    def refused_in(self, piece: int) -> dict[str, np.ndarray]:
        """The refused rows of one piece, by table."""
        parts = {key: rows.of_split(piece).rows for key, rows in self.refused.items()}
        return {key: rows for key, rows in parts.items() if len(rows)}


def after_pass(
    state: PassState,
    findings: Sequence[Finding],
    replaced: Mapping[str, np.ndarray],
    *,
    keys: KeyPlan,
    rules: Mapping[str, TypeRules],
    given_ids: frozenset[str],
) -> PassState:
    """Accept the findings that are final after one more pass.

    `given_ids` names the tables whose input has ids.
    """
    disturbed = _Disturbed(keys, rules, given_ids)
    for table_key in keys.tracked:
        before = state.replaced.get(table_key, _NONE)
        if not np.array_equal(before, replaced.get(table_key, _NONE)):
            disturbed.replaced(table_key)
    accepted: list[Finding] = []
    provisional = False
    for stage in Stage:
        if disturbed.touches(stage):
            provisional = True
            break
        current = [finding for finding in findings if finding.stage is stage]
        accepted += current
        for finding in current:
            if len(finding.rows):
                disturbed.refused(stage, finding.table_key)
    again = provisional or disturbed.again
    grown_state = _with(state, [finding for finding in accepted if len(finding.rows)])
    return replace(
        grown_state,
        replaced=replaced,
        broken=() if again else tuple(finding for finding in accepted if len(finding.broken)),
        is_final=not again,
    )


class _Disturbed:
    """The rules that read rows which were refused."""

    def __init__(
        self, keys: KeyPlan, rules: Mapping[str, TypeRules], given_ids: frozenset[str]
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._given_ids = given_ids
        self._marks: set[Stage] = set()
        self.again = False

    def touches(self, stage: Stage) -> bool:
        return stage in self._marks

    def replaced(self, table_key: str) -> None:
        """The pass did not know what a merge replaces there."""
        if self._has_tuples(table_key):
            self._marks.add(Stage.NODE_TUPLES if is_node(table_key) else Stage.EDGE_TUPLES)
        if table_key in self._keys.counts:
            self._marks.add(Stage.COUNTS)

    def refused(self, stage: Stage, table_key: str) -> None:
        """Rows of a table were refused at a stage."""
        later = {
            Stage.NODE_IDS: self._after_node_ids,
            Stage.NODE_TUPLES: self._after_node_tuples,
            Stage.ENDPOINTS: self._after_endpoints,
            Stage.EDGE_IDS: self._after_edge_ids,
            Stage.EDGE_TUPLES: self._after_edge_tuples,
            Stage.COUNTS: self._after_counts,
        }
        later[stage](table_key)

    def _after_node_ids(self, table_key: str) -> None:
        if self._has_tuples(table_key):
            self._marks.add(Stage.NODE_TUPLES)

    def _after_node_tuples(self, table_key: str) -> None:
        self.again |= self._may_uncover(table_key)
        for rules in self._rules.values():
            for rule in rules.keyed_rules:
                if isinstance(rule, EndpointExists) and rule.node_key == table_key:
                    self._marks.add(Stage.ENDPOINTS)

    def _after_endpoints(self, table_key: str) -> None:
        if table_key in self._given_ids:
            self._marks.add(Stage.EDGE_IDS)
        self._after_edge_ids(table_key)

    def _after_edge_ids(self, table_key: str) -> None:
        if self._has_tuples(table_key):
            self._marks.add(Stage.EDGE_TUPLES)
        self._after_edge_tuples(table_key)

    def _after_edge_tuples(self, table_key: str) -> None:
        self.again |= self._may_uncover(table_key)
        if table_key in self._keys.counts:
            self._marks.add(Stage.COUNTS)

    def _after_counts(self, table_key: str) -> None:
        # A source that loses pinned edges may be left with none.
        loses_edges = table_key in self._keys.overwritten | self._keys.deleted
        self.again |= loses_edges or self._may_uncover(table_key)

    def _may_uncover(self, table_key: str) -> bool:
        """The pinned row of a refused merge row is kept, and may conflict with others."""
        return self._keys.mode.upserts and table_key in self._keys.tracked

    def _has_tuples(self, table_key: str) -> bool:
        return any(
            role.kind is RoleKind.TUPLE and role.table_key == table_key for role in self._keys.roles
        )


def _with(state: PassState, findings: Iterable[Finding]) -> PassState:
    """One more verdict for every finding; a row keeps the first it got."""
    verdicts = list(state.verdicts)
    refused_parts: dict[str, list[RefusedRows]] = {
        key: [rows] for key, rows in state.refused.items()
    }
    for finding in sorted(findings, key=_order):
        verdict = Verdict(reason=finding.reason, columns=finding.columns)
        if verdict not in verdicts:
            verdicts.append(verdict)
        number = np.full(len(finding.rows), verdicts.index(verdict), np.uint16)
        refused_parts.setdefault(finding.table_key, []).append(
            RefusedRows(rows=finding.rows, verdicts=number)
        )
    return replace(
        state,
        verdicts=tuple(verdicts),
        refused={key: _merge(parts) for key, parts in refused_parts.items()},
    )


def _merge(parts: list[RefusedRows]) -> RefusedRows:
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    verdicts = np.concatenate([part.verdicts for part in parts])[order]
    first = np.ones(len(rows), np.bool_)
    first[1:] = rows[1:] != rows[:-1]
    return RefusedRows(rows=rows[first], verdicts=verdicts[first])


def _order(finding: Finding) -> tuple[int, int, tuple[str, ...]]:
    """Stages first; among endpoints, the source before the target."""
    order = {SOURCE_COLUMN: 0, TARGET_COLUMN: 1}
    return finding.stage, order.get(finding.columns[0], 2), finding.columns
