"""Which rows of a load are written: the keyed rules, applied until the survivors keep all of them.

Invariant: a refused row has exactly one reason, that of the first stage it failed; every survivor
keeps every rule against the survivors and the remaining pinned rows. The stages, each on the rows
that the previous ones accepted: ids of nodes, unique tuples of nodes, endpoints, ids of edges,
unique tuples of edges, counts of edges; the last two in turn until neither finds anything.

A violation that no input row causes, such as pinned edges that lose their node, is in `broken`. It
is checked at the end, because the pinned row of a refused replacement is kept.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import ID_COLUMN, NODE_PREFIX, SOURCE_COLUMN
from omnigraph.runner.key_hash import SEED_BYTES, hash_keys
from omnigraph.validation import constraints
from omnigraph.validation.keyed_checks import (
    check_counts,
    check_retained_edges,
    clashes,
    missing_nodes,
    taken_rows,
)
from omnigraph.validation.lookups import PinnedReads, PinnedTables
from omnigraph.validation.violations import BadRows, Reason
from omnigraph.validation.write_effects import EMPTY_IDS, NO_ROWS, Change

REFUSAL_SCHEMA: Final = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
    ]
)
_NO_POSITIONS: Final = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedLoad:
    """Rows that passed every row rule, by table key and in input order.

    `overwritten` names the tables whose pinned rows are all removed; such a table may have no
    rows. `order_by` decides which of several rows with one id is kept, in tables that have it.
    """

    tables: Mapping[str, pa.Table]
    mode: constraints.WriteMode
    overwritten: frozenset[str] = field(default_factory=frozenset)
    order_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResolution:
    """The outcome of every row, by table key; rows are positions in the tables of the load."""

    kept: Mapping[str, pa.Int64Array]
    refused: Mapping[str, pa.Table]
    """Tables of REFUSAL_SCHEMA, in input order; a table without refusals is not named."""
    broken: tuple[BadRows, ...]
    read_set: frozenset[str]


def resolve_keys(
    load: ProposedLoad, rules: Mapping[str, constraints.TypeRules], pinned: PinnedTables
) -> KeyResolution:
    """Apply the keyed rules to all rows of a load; `rules` has those of every table."""
    reads = PinnedReads(pinned)
    try:
        return _Settlement(load, rules, reads).run()
    finally:
        reads.close()


class _Settlement:
    """The rows accepted so far, and those refused."""

    def __init__(
        self, load: ProposedLoad, rules: Mapping[str, constraints.TypeRules], reads: PinnedReads
    ) -> None:
        self._load = load
        self._rules = rules
        self._reads = reads
        # Tables without input as well: edges of the load may refer to their nodes.
        self._changes = {key: _everything(key, load, rules[key]) for key in rules}
        self._refused: dict[str, list[pa.Table]] = {}

    def run(self) -> KeyResolution:
        touched = [
            key for key in self._rules if key in self._load.tables or key in self._load.overwritten
        ]
        broken: list[BadRows] = []
        # Nodes first: endpoints are checked against the nodes that remain.
        for key in touched:
            self._reads.depend_on(key)
            if key.startswith(NODE_PREFIX):
                self._settle_ids(key)
                self._settle_unique(key)
        for key in touched:
            if not key.startswith(NODE_PREFIX):
                # Before ids, so that an edge without its node does not supersede a valid one.
                self._settle_endpoints(key)
                self._settle_ids(key)
                broken += self._settle_unique_and_counts(key)
        broken += check_retained_edges(self._changes, self._rules, self._reads, cascades=True)
        return KeyResolution(
            kept={key: self._changes[key].rows for key in touched},
            refused={
                key: pa.concat_tables(parts).sort_by("row") for key, parts in self._refused.items()
            },
            broken=tuple(broken),
            read_set=self._reads.read_set,
        )

    def _settle_ids(self, key: str) -> None:
        change = self._changes[key]
        kept_rows = _standing(change, self._load, self._reads)
        if len(kept_rows) < len(change.rows):
            merging = self._load.mode is constraints.WriteMode.MERGE
            self._refuse(
                key,
                _without(change.rows, kept_rows),
                Reason.SUPERSEDED if merging else Reason.DUPLICATE_ID,
            )
        if self._load.mode is constraints.WriteMode.APPEND:
            # The change is looked up again, without the repeated ids: a row is refused only once.
            self._refuse(key, taken_rows(self._changes[key], self._reads), Reason.ID_EXISTS)

    def _settle_unique(self, key: str) -> None:
        """Check all unique tuples on the same survivors, and repeat while rows are refused."""
        rules = [
            keyed_rule
            for keyed_rule in self._rules[key].keyed_rules
            if isinstance(keyed_rule, constraints.UniqueTuple)
        ]
        any_refused = bool(rules)
        while any_refused:
            # A refused row frees its values, and a pinned row that it would have replaced is kept:
            # both can change which rows conflict.
            change = self._changes[key]
            blamed_rows = [
                (rule, clashes(change, rule, self._reads).column("row").combine_chunks())
                for rule in rules
                # A table that is overwritten without new rows may lack the columns of the rule.
                if len(change.incoming)
            ]
            any_refused = self._refuse_by_rule(key, Reason.NOT_UNIQUE, blamed_rows)

    def _settle_endpoints(self, key: str) -> None:
        change = self._changes[key]
        blamed_rows = []
        for rule in self._rules[key].keyed_rules:
            if isinstance(rule, constraints.EndpointExists):
                ends = change.incoming.column(rule.column)
                missing = missing_nodes(ends, self._changes[rule.node_key], self._reads)
                blamed_rows.append((rule, change.rows.filter(_mask(ends, missing))))
        self._refuse_by_rule(key, Reason.MISSING_ENDPOINT, blamed_rows)

    def _settle_unique_and_counts(self, key: str) -> list[BadRows]:
        rules = [
            keyed_rule
            for keyed_rule in self._rules[key].keyed_rules
            if isinstance(keyed_rule, constraints.EdgeCount)
        ]
        # Each of the two rules may refuse edges that the other counted or compared.
        while True:
            self._settle_unique(key)
            findings = [
                (rule, finding)
                for rule in rules
                for finding in check_counts(
                    self._changes[key], self._changes[rule.source_key], rule, self._reads
                )
            ]
            # A finding without rows blames no record. Only those of the last round are reported:
            # refusing a row keeps the pinned row it would have replaced, which changes the counts.
            if not any(len(finding.rows) for _, finding in findings):
                return [finding for _, finding in findings]
            for rule, finding in findings:
                self._refuse(key, finding.rows, finding.reason, rule)

    def _refuse_by_rule(
        self,
        key: str,
        reason: Reason,
        blamed_rows: Sequence[tuple[constraints.KeyedRule, pa.Int64Array]],
    ) -> bool:
        """Refuse each row once, for the first rule it breaks; whether there was any."""
        any_refused = False
        for rule, rows in blamed_rows:
            if not len(rows):
                continue
            # All rules were checked on the same survivors, so an earlier one may have refused it.
            remaining_rows = rows.filter(pc.is_in(rows, self._changes[key].rows))
            any_refused = any_refused or len(remaining_rows) > 0
            self._refuse(key, remaining_rows, reason, rule)
        return any_refused

    def _refuse(
        self,
        key: str,
        rows: pa.Int64Array,
        reason: Reason,
        rule: constraints.KeyedRule | None = None,
    ) -> None:
        if not len(rows):
            return
        change = self._changes[key]
        # Positions are those of the whole input, so they must not be looked up in `incoming`.
        looked_at = [change.given.column(name).take(rows) for name in _looked_at(rule)]
        messages = [
            constraints.keyed_message(reason, rule, values)
            for values in zip(*looked_at, strict=True)
        ]
        self._refused.setdefault(key, []).append(
            pa.table(
                [rows, pa.repeat(reason.value, len(rows)), pa.array(messages, pa.string())],
                schema=REFUSAL_SCHEMA,
            )
        )
        self._changes[key] = change.without(rows)


def _everything(key: str, load: ProposedLoad, rules: constraints.TypeRules) -> Change:
    """All rows of a table, with the columns that some keyed rule looks at and no others."""
    input_rows = load.tables.get(key, NO_ROWS)
    wanted = {ID_COLUMN, load.order_by}
    for rule in rules.keyed_rules:
        wanted.update(_looked_at(rule))
    input_rows = input_rows.select([name for name in input_rows.column_names if name in wanted])
    # All rows, even if several share an id: which of them counts depends on the mode, on
    # `order_by` and on what is refused before ids are settled.
    return Change(
        table_key=key,
        given=input_rows,
        rows=pa.array(np.arange(len(input_rows))),
        incoming=input_rows,
        overwritten=key in load.overwritten,
        deleted=EMPTY_IDS,
    )


def _looked_at(rule: constraints.KeyedRule | None) -> tuple[str, ...]:
    match rule:
        case None:
            return (ID_COLUMN,)
        case constraints.UniqueTuple():
            return rule.columns
        case constraints.EndpointExists():
            return (rule.column,)
        case constraints.EdgeCount():
            return (SOURCE_COLUMN,)


_HASHED_LEAST: Final = 10_000
_SEED: Final = secrets.token_bytes(SEED_BYTES)
# Among equal or missing values the later record wins, as in a merge without an order.
_GREATEST: Final = """
SELECT row FROM (
    SELECT row, row_number() OVER (
        PARTITION BY id ORDER BY value DESC NULLS LAST, row DESC
    ) AS rank
    FROM incoming
)
WHERE rank = 1 ORDER BY row
"""


def _standing(change: Change, load: ProposedLoad, reads: PinnedReads) -> pa.Int64Array:
    """Positions of the one row per id that is kept, in input order."""
    if _are_distinct(change.ids):
        return change.rows
    merging = load.mode is constraints.WriteMode.MERGE
    if merging and load.order_by in change.incoming.column_names:
        value = change.incoming.column(load.order_by)
        incoming = pa.table({"row": change.rows, "id": change.ids, "value": value})
        return reads.query(_GREATEST, incoming=incoming).column("row").combine_chunks()
    # A merge keeps the last record of an id, the other modes keep the first.
    chosen = "max" if merging else "min"
    rows = pa.table({"id": change.ids, "row": change.rows})
    rows_by_id = rows.group_by("id").aggregate([("row", chosen)])
    kept_rows: pa.Int64Array = rows_by_id.column(f"row_{chosen}").combine_chunks()
    return kept_rows.take(pc.sort_indices(kept_rows))


def _are_distinct(ids: pa.ChunkedArray) -> bool:
    """Whether no two ids are equal.

    Different hashes prove it in a quarter of the time; equal ones, even of different ids, do not
    disprove it.
    """
    if len(ids) > _HASHED_LEAST and not ids.null_count:
        hashes = hash_keys([ids], _SEED).first
        hashes.sort()
        if not (hashes[1:] == hashes[:-1]).any():
            return True
    return bool(pc.count_distinct(ids).as_py() == len(ids))


def _without(rows: pa.Int64Array, left: pa.Int64Array) -> pa.Int64Array:
    return rows.filter(pc.invert(pc.is_in(rows, left)))


def _mask(column: pa.ChunkedArray, values: pa.Array) -> pa.BooleanArray:
    return pc.is_in(column, values).combine_chunks()
