"""Executes the statements of a mutation, one after another, over one snapshot.

Invariants:
- A statement sees the effects of the earlier ones, and none of its own.
- What insert, upsert and replace statements assign depends on the parameters alone, not on the
  graph, so their rows are made once: an id that was drawn for a row stays the same however often
  the mutation is prepared. What an upsert does not assign is read from the graph.
- All values of an update are computed from the rows before the statement. What is not assigned is
  copied as it is, blobs included.
- Deleting a node deletes every edge that is visible at that moment.
- A violation of a rule of the schema names the entity by its id. Rows of a mutation have no
  position, because the statement that made them may have made many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.engine.access.conditions import lance_filter
from omnigraph_lake.errors import InvalidInputError, ValidationFailedError
from omnigraph_lake.load.fill import fill
from omnigraph_lake.mutate import overlay
from omnigraph_lake.mutate.matched import (
    MATCHED_LIMITS,
    MatchedRows,
    different_values,
    first_repeated,
    list_ids,
    next_step_of,
)
from omnigraph_lake.mutate.overlay import (
    NO_IDS,
    Overlay,
    PinnedRows,
    joined,
    touching,
    without,
)
from omnigraph_lake.mutate.row_values import RowValues, columns_of
from omnigraph_lake.names import ID_COLUMN, edge_table_key
from omnigraph_lake.query import typed as tq
from omnigraph_lake.query.ast import InsertVerb
from omnigraph_lake.query.expressions import Expression, PropertyOf
from omnigraph_lake.query.types import STRING
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType, PropertyType
from omnigraph_lake.validation import constraints
from omnigraph_lake.validation.input.columns import RawColumn, cast_column
from omnigraph_lake.validation.input.intake import TakenIn, id_source, table_key_of, take_in
from omnigraph_lake.validation.input.mentions import Mentions
from omnigraph_lake.validation.row_checks import check_rows
from omnigraph_lake.validation.violations import (
    BadRows,
    Reason,
    Violation,
    bad_rows,
    report_of,
    shown,
    shown_scalar,
    unplaced,
)

if TYPE_CHECKING:
    from omnigraph_lake.query.plan import Plan
    from omnigraph_lake.validation.input.casts import Fault


_ABOUT_VALUES: Final = (
    constraints.Required | constraints.InEnum | constraints.FiniteKey | constraints.ProperId
)


def require_none(findings: Iterable[BadRows]) -> None:
    """Refuse the mutation if there is a finding."""
    report = report_of(findings)
    if report.ok:
        return
    report = replace(report, kept=tuple(replace(violation, row=None) for violation in report.kept))
    raise ValidationFailedError(
        report.summary(),
        report=report,
        next_step="Fix the values or conditions and retry.",
    )


def require_storable(
    rows: pa.Table, rules: constraints.TypeRules, columns: Collection[str]
) -> None:
    """Refuse values that these columns cannot store, even if the row is deleted later."""
    about_values = tuple(
        rule
        for rule in rules.row_rules
        if isinstance(rule, _ABOUT_VALUES) and rule.column in columns
    )
    require_none(check_rows(rows, replace(rules, row_rules=about_values)))


def require_new(table_key: str, row_id: str, *, taken: bool) -> None:
    """Refuse an insert of an existing entity."""
    if taken:
        violation = Violation(
            table_key=table_key,
            reason=Reason.ID_EXISTS,
            columns=(ID_COLUMN,),
            row=None,
            id=row_id,
            message="it already exists in the graph; use `upsert` to update it",
        )
        require_none([unplaced([violation], count=1)])


_NO_ROW = pa.table({ID_COLUMN: pa.array([""])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Inserts:
    """One row per insert statement, by the position of the statement, and their ids by table.

    `mentions` says what the rows of upserts lack, which an entity that exists keeps.
    """

    rows: Mapping[int, pa.Table]
    mentions: Mapping[int, Mentions]
    ids: Mapping[str, pa.StringArray]


def inserted_rows(
    statements: Sequence[tq.TypedStatement],
    catalog: Catalog,
    values: RowValues,
    *,
    new_id: Callable[[], str],
) -> Inserts:
    """Evaluate all inserts.

    Raises:
        ValidationFailedError: a value cannot be stored.
        QueryFailedError: a value cannot be computed.
    """
    together: dict[tuple[str, bool], list[int]] = {}
    for position, statement in enumerate(statements):
        if isinstance(statement, tq.InsertStatement):
            partial = statement.verb is InsertVerb.UPSERT
            together.setdefault((statement.table_key, partial), []).append(position)
    rows: dict[int, pa.Table] = {}
    mentions: dict[int, Mentions] = {}
    ids: dict[str, pa.StringArray] = {}
    declared, rules = catalog.tables(), constraints.table_rules(catalog)
    for (table_key, partial), positions in together.items():
        own = declared[table_key]
        input_rows = [
            _values(statements[position], own, values, partial=partial) for position in positions
        ]
        taken = take_in(own, input_rows, new_ids=id_source(new_id), partial=partial)
        require_none(taken.findings)
        if not partial:
            require_storable(taken.table, rules[table_key], taken.table.column_names)
        made = taken.table.column(ID_COLUMN).combine_chunks()
        ids[table_key] = joined(ids.get(table_key, NO_IDS), made)
        for row, position in enumerate(positions):
            # A copy each: Lance refuses lists that are slices of others.
            rows[position] = taken.table.take([row])
            lacking = taken.mentions and taken.mentions.take(pa.array([row]))
            if lacking:
                mentions[position] = lacking
            if partial:
                require_storable(rows[position], rules[table_key], _columns_of_values(own, lacking))
    return Inserts(rows=rows, mentions=mentions, ids=ids)


def _columns_of_values(declared: NodeType | EdgeType, mentions: Mentions | None) -> frozenset[str]:
    """The columns whose values are given."""
    columns = frozenset(table_schema(declared).names)
    return columns if mentions is None else columns - mentions.open_columns


def _values(
    statement: tq.TypedStatement,
    declared: NodeType | EdgeType,
    values: RowValues,
    *,
    partial: bool,
) -> dict[str, Any]:
    assert isinstance(statement, tq.InsertStatement)
    row: dict[str, Any] = {}
    computed = {}
    for assignment in statement.assignments:
        known = values.known(assignment.value)
        if known is None:
            computed[assignment.property] = assignment.value
        else:
            row[assignment.property] = known[0]
    if computed:
        answers = values.computed(_NO_ROW, list(computed.values()), statement.type)
        row |= {name: answer[0].as_py() for name, answer in zip(computed, answers, strict=True)}
    for name in () if partial else declared.properties:
        require_vector(declared, name, given=row.get(name) is not None)
    return row


def require_vector(declared: NodeType | EdgeType, name: str, *, given: bool) -> None:
    """Refuse a missing vector that would have to be computed from a text."""
    prop = declared.properties[name]
    if given or prop.embed is None or prop.nullable:
        return
    raise InvalidInputError(
        f"{declared.name}.{name} is missing, and this Omnigraph cannot compute it from "
        f"{prop.embed.source} yet",
        next_step=f"Give the vector: `{name}: $vector`, or declare the property with `?`.",
    )


def updated_rows(
    statement: tq.UpdateStatement, declared: NodeType | EdgeType, rows: pa.Table, values: RowValues
) -> pa.Table:
    """The rows with the assigned values in place of the old ones."""
    return _with_columns(declared, rows, _assign(statement, rows, values))


def _with_columns(
    declared: NodeType | EdgeType, rows: pa.Table, assigned: Mapping[str, RawColumn]
) -> pa.Table:
    new = {name: rows.column(name) for name in rows.column_names}
    findings: list[BadRows] = []
    for name, raw in assigned.items():
        column, faults = cast_column(raw, declared.properties[name].type)
        findings += [_unstorable(declared, name, raw, fault, rows) for fault in faults]
        if isinstance(raw, list):
            require_vector(declared, name, given=raw[0] is not None)
            column = column.take(pa.array(np.zeros(rows.num_rows, np.int64)))
        new[name] = column
    require_none(findings)
    table = pa.Table.from_arrays(list(new.values()), schema=rows.schema)
    require_storable(table, constraints.rules_of(declared), assigned)
    return table


def insert_matched(
    statement: tq.MatchedStatement,
    declared: NodeType | EdgeType,
    rows: MatchedRows,
    values: RowValues,
    *,
    new_id: Callable[[], str],
) -> TakenIn:
    """One entity for every row of a match, of an upsert with the columns that it assigns.

    Raises:
        ValidationFailedError: a value cannot be stored, or two rows make the same entity.
    """
    columns: dict[str, pa.ChunkedArray] = dict(rows.values)
    for assignment in statement.assignments:
        known = values.known(assignment.value)
        assert known is not None
        column, faults = cast_column([known[0]], slot_type(declared, assignment.property))
        assert not faults, "the compiler checked the value"
        columns[assignment.property] = column.take(pa.array(np.zeros(rows.count, np.int64)))
    partial = statement.verb is tq.MatchedVerb.UPSERT
    for name in () if partial else declared.properties:
        given = columns.get(name)
        require_vector(declared, name, given=given is not None and not given.null_count)
    if ID_COLUMN in columns and columns[ID_COLUMN].null_count:
        refuse_missing_ids(statement)
    taken = take_in(declared, pa.table(columns), new_ids=id_source(new_id), partial=partial)
    require_none(taken.findings)
    mentioned = _columns_of_values(declared, taken.mentions)
    require_storable(taken.table, constraints.rules_of(declared), mentioned)
    if repeated := first_repeated(taken.table.column(ID_COLUMN)):
        refuse_repeats(statement, repeated)
    return taken


def fill_rows(
    declared: NodeType | EdgeType, rows: pa.Table, mentions: Mentions | None, old: pa.Table
) -> pa.Table:
    """The rows of an upsert with what they do not mention: as it is, or the default of a new one.

    Raises:
        InvalidInputError: a new entity lacks a value that it must have.
    """
    if mentions is None:
        return rows
    filled = fill(declared, rows, mentions, old)
    is_new = pc.invert(pc.is_in(filled.column(ID_COLUMN), old.column(ID_COLUMN)))
    new = filled.filter(is_new)
    for name in declared.properties:
        require_vector(declared, name, given=not new.column(name).null_count)
    require_storable(new, constraints.rules_of(declared), mentions.open_columns)
    return filled


def refuse_missing_ids(statement: tq.MatchedStatement) -> None:
    """Refuse a statement that takes ids from the match where a row has none.

    Raises:
        ValidationFailedError: always.
    """
    _refuse_ids(statement, None, Reason.BAD_ID, "a row of the match gives it no id")


def refuse_repeats(statement: tq.MatchedStatement, ids: Sequence[str]) -> None:
    """Refuse a statement for which several rows of the match give one entity.

    Raises:
        InvalidInputError: always; it names the first of these ids.
    """
    if statement.verb is tq.MatchedVerb.UPDATE:
        raise different_values(statement, ids)
    first_id, *others = ids
    message = "several rows of the match make it"
    if others:
        message += f", and also {list_ids(others)}"
    _refuse_ids(statement, first_id, Reason.DUPLICATE_ID, message)


def _refuse_ids(
    statement: tq.MatchedStatement, row_id: str | None, reason: Reason, message: str
) -> None:
    violation = Violation(
        table_key=statement.table_key,
        reason=reason,
        columns=(ID_COLUMN,),
        row=None,
        id=row_id,
        message=message,
    )
    require_none([unplaced([violation], count=1)])


def slot_type(declared: NodeType | EdgeType, column: str) -> PropertyType:
    """The type of what a statement assigns: a property, or an id."""
    return declared.properties[column].type if column in declared.properties else STRING


def update_matched(
    statement: tq.MatchedStatement,
    declared: NodeType | EdgeType,
    rows: pa.Table,
    matched: MatchedRows,
    values: RowValues,
) -> pa.Table:
    """The rows with the values of the match in place of the old ones."""
    order = pc.index_in(rows.column(ID_COLUMN), value_set=matched.ids).combine_chunks()
    raw_columns: dict[str, RawColumn] = {
        name: column.take(order) for name, column in matched.values.items()
    }
    for assignment in statement.assignments:
        known = values.known(assignment.value)
        assert known is not None
        raw_columns[assignment.property] = [known[0]]
    return _with_columns(declared, rows, raw_columns)


def _assign(
    statement: tq.UpdateStatement, rows: pa.Table, values: RowValues
) -> Mapping[str, RawColumn]:
    """What is assigned: a column, or a list with the one value that all rows get."""
    columns: dict[str, RawColumn] = {}
    computed: dict[str, Expression] = {}
    for assignment in statement.assignments:
        known = values.known(assignment.value)
        if known is not None:
            columns[assignment.property] = [known[0]]
        elif isinstance(assignment.value, PropertyOf):
            columns[assignment.property] = rows.column(assignment.value.name)
        else:
            computed[assignment.property] = assignment.value
    if computed:
        answers = values.computed(rows, list(computed.values()), statement.type)
        columns |= dict(zip(computed, answers, strict=True))
    return columns


def _unstorable(
    declared: NodeType | EdgeType, name: str, raw: RawColumn, fault: Fault, rows: pa.Table
) -> BadRows:
    expected = constraints.type_text(declared.properties[name].type)

    def message(row: int) -> str:
        value = raw[row]
        value_text = shown_scalar(value) if isinstance(value, pa.Scalar) else shown(value)
        return f"found {value_text}, expected {expected}"

    return bad_rows(
        table_key_of(declared),
        fault.reason,
        (name,),
        pa.array(fault.rows, pa.int64()),
        ids=rows.column(ID_COLUMN),
        message=message,
    )


_ADDRESS: Final = "#address"  # no property has this name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyMutation:
    """A mutation and everything about it that does not depend on the graph."""

    catalog: Catalog
    statements: tuple[tq.TypedStatement, ...]
    inserts: Inserts
    values: RowValues
    reads: tuple[Plan | None, ...]
    read_tables: frozenset[str]
    """The tables that matches read."""
    new_id: Callable[[], str]

    @property
    def is_single_match(self) -> bool:
        """Whether it is one statement with a match, whose rows may be any number."""
        return len(self.statements) == 1 and self.has_matches

    @property
    def has_matches(self) -> bool:
        return any(plan is not None for plan in self.reads)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCounts:
    """What one statement did: entities inserted, updated or deleted, cascaded edges included."""

    statement: str
    nodes: int
    edges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matches:
    """Entities that meet a condition: pinned ones by id and address, and changed ones."""

    ids: pa.StringArray
    addresses: np.ndarray
    changed: pa.Table

    @property
    def count(self) -> int:
        return len(self.ids) + int(self.changed.num_rows)

    @property
    def all_ids(self) -> pa.StringArray:
        return joined(self.ids, *self.changed.column(ID_COLUMN).chunks)


class StatementRun:
    """Runs the statements of one mutation on one snapshot."""

    def __init__(
        self,
        mutation: ReadyMutation,
        pinned: PinnedRows,
        matches: Mapping[int, MatchedRows] | None = None,
        limits: overlay.OverlayLimits | None = None,
    ) -> None:
        self._mutation = mutation
        self._catalog = mutation.catalog
        self._values = mutation.values
        self._pinned = pinned
        self._matched = matches or {}
        self._present = {
            key: pinned.existing(key, pc.unique(ids)) for key, ids in mutation.inserts.ids.items()
        }
        if limits is None:
            limits = overlay.LIMITS
            if mutation.has_matches:
                limits = replace(MATCHED_LIMITS, next_step=next_step_of(mutation.statements))
        self.overlay = Overlay(mutation.catalog, limits)

    def run(self) -> tuple[StatementCounts, ...]:
        statement_counts = []
        for position, statement in enumerate(self._mutation.statements):
            match statement:
                case tq.InsertStatement():
                    counts = self._insert(statement, position)
                case tq.UpdateStatement():
                    counts = self._update(statement)
                case tq.DeleteStatement():
                    counts = self._delete(statement)
                case tq.MatchedStatement():
                    counts = self._apply(statement, self._matched[position])
                case _:
                    assert_never(statement)
            self.overlay.require_bounds(counts.statement)
            statement_counts.append(counts)
        return tuple(statement_counts)

    def _insert(self, statement: tq.InsertStatement, position: int) -> StatementCounts:
        table = self.overlay.table(statement.table_key)
        row = self._mutation.inserts.rows[position]
        row_id = row.column(ID_COLUMN)[0].as_py()
        pinned = self._present[statement.table_key]
        pinned = pinned.filter(pc.equal(pinned, row_id))
        if position in self._mutation.inserts.mentions:
            old = self._whole_rows(statement, self._entities(statement, pa.array([row_id])))
            row = fill_rows(table.declared, row, self._mutation.inserts.mentions[position], old)
        if statement.verb is InsertVerb.INSERT:
            free = not len(pinned) or table.takes_charge_of(row_id)
            require_new(statement.table_key, row_id, taken=table.holds(row_id) or not free)
        table.put(row, pinned=pinned)
        return self._counts(statement.verb.value, statement, 1)

    def _update(self, statement: tq.UpdateStatement) -> StatementCounts:
        matches = self._matches(statement, "update")
        if matches.count:
            table = self.overlay.table(statement.table_key)
            rows = self._whole_rows(statement, matches)
            new = updated_rows(statement, table.declared, rows, self._values)
            table.put(new, pinned=matches.ids)
        return self._counts("update", statement, matches.count)

    def _whole_rows(
        self,
        statement: tq.InsertStatement | tq.UpdateStatement | tq.MatchedStatement,
        matches: _Matches,
    ) -> pa.Table:
        """All columns of the entities, changed ones first."""
        table = self.overlay.table(statement.table_key)
        rows, size = [matches.changed], 0
        for batch in self._pinned.whole(statement.table_key, matches.addresses, table.rows.schema):
            size += batch.nbytes
            self.overlay.require_bytes(size, rows=matches.count, what=f"update {statement.type}")
            rows.append(batch)
        return pa.concat_tables(rows)

    def _apply(self, statement: tq.MatchedStatement, rows: MatchedRows) -> StatementCounts:
        """Apply a statement to the rows of its match."""
        match statement.verb:
            case tq.MatchedVerb.INSERT | tq.MatchedVerb.UPSERT | tq.MatchedVerb.REPLACE:
                return self._insert_rows(statement, rows)
            case tq.MatchedVerb.UPDATE:
                return self._update_rows(statement, rows)
            case tq.MatchedVerb.DELETE:
                assert rows.ids is not None
                return self._delete_rows(statement, self._entities(statement, rows.ids))
            case _:
                assert_never(statement.verb)

    def _insert_rows(self, statement: tq.MatchedStatement, rows: MatchedRows) -> StatementCounts:
        table = self.overlay.table(statement.table_key)
        taken = insert_matched(
            statement, table.declared, rows, self._values, new_id=self._mutation.new_id
        )
        ids = joined(*taken.table.column(ID_COLUMN).chunks)
        present = self._pinned.existing(statement.table_key, ids)
        if statement.verb is tq.MatchedVerb.INSERT:
            known = joined(without(present, table.known), ids.filter(pc.is_in(ids, table.ids)))
            for row_id in known[:1].to_pylist():
                require_new(statement.table_key, row_id, taken=True)
        new = taken.table
        if taken.mentions is not None:
            old = self._whole_rows(statement, self._entities(statement, ids))
            new = fill_rows(table.declared, new, taken.mentions, old)
        table.put(new, pinned=present)
        return self._counts(statement.verb.value, statement, new.num_rows)

    def _update_rows(self, statement: tq.MatchedStatement, rows: MatchedRows) -> StatementCounts:
        assert rows.ids is not None
        matches = self._entities(statement, rows.ids)
        if matches.count < rows.count:
            raise InvalidInputError(
                f"update {statement.type}: {rows.count - matches.count:,} of the matched entities "
                "are deleted by an earlier statement of the mutation",
                next_step="Update entities before others are deleted, or leave them out.",
            )
        if matches.count:
            table = self.overlay.table(statement.table_key)
            old = self._whole_rows(statement, matches)
            new = update_matched(statement, table.declared, old, rows, self._values)
            table.put(new, pinned=matches.ids)
        return self._counts("update", statement, matches.count)

    def _entities(
        self, statement: tq.InsertStatement | tq.MatchedStatement, ids: pa.StringArray
    ) -> _Matches:
        """The entities with these ids as earlier statements left them."""
        table = self.overlay.table(statement.table_key)
        pinned_ids: list[pa.StringArray] = [NO_IDS]
        addresses: list[np.ndarray] = [np.empty(0, np.uint64)]
        for rows, places in self._pinned.having_ids(statement.table_key, without(ids, table.known)):
            pinned_ids.append(rows)
            addresses.append(places)
        return _Matches(
            ids=joined(*pinned_ids),
            addresses=np.concatenate(addresses),
            changed=table.rows.filter(pc.is_in(table.rows.column(ID_COLUMN), ids)),
        )

    def _delete(self, statement: tq.DeleteStatement) -> StatementCounts:
        return self._delete_rows(statement, self._matches(statement, "delete"))

    def _delete_rows(
        self, statement: tq.DeleteStatement | tq.MatchedStatement, matches: _Matches
    ) -> StatementCounts:
        table = self.overlay.table(statement.table_key)
        table.remove(matches.all_ids, pinned=matches.ids)
        counts = self._counts("delete", statement, matches.count)
        if not matches.count:
            return counts
        cascaded = sum(
            self._cascade(statement, edge_type, matches) for edge_type in statement.incident
        )
        return replace(counts, edges=counts.edges + cascaded)

    def _cascade(
        self, statement: tq.DeleteStatement | tq.MatchedStatement, edge_type: str, nodes: _Matches
    ) -> int:
        """Delete the edges of one type at deleted nodes; how many there were."""
        edge = self._catalog.edges[edge_type]
        rules = [
            rule
            for rule in constraints.rules_of(edge).keyed_rules
            if isinstance(rule, constraints.EndpointExists) and rule.node_key == statement.table_key
        ]
        key = edge_table_key(edge_type)
        table = self.overlay.table(key)
        deleted_ids = nodes.all_ids
        visible_ids: list[pa.StringArray] = []
        count = 0
        for ids in self._pinned.edges_at(key, rules, deleted_ids):
            visible = without(ids, table.known)
            count += len(visible)
            if count <= self.overlay.limits.rows:
                visible_ids.append(visible)
        self.overlay.require_rows(count, what=f"delete {statement.type} with its {edge_type} edges")
        pinned = joined(*visible_ids)
        changed = table.rows.filter(touching(table.rows, rules, deleted_ids))
        ids = joined(pinned, *changed.column(ID_COLUMN).chunks)
        table.remove(ids, pinned=pinned)
        return len(ids)

    def _matches(self, statement: tq.UpdateStatement | tq.DeleteStatement, verb: str) -> _Matches:
        """All matches of a statement; beyond the limit they are counted only."""
        condition, own = statement.condition, statement.type
        table = self.overlay.table(statement.table_key)
        ids: list[pa.StringArray] = [NO_IDS]
        addresses: list[np.ndarray] = [np.empty(0, np.uint64)]
        count = 0
        for rows, places in self._candidates(statement):
            numbered = rows.append_column(_ADDRESS, pa.array(places))
            if len(table.known):
                # Before the condition: old values must no longer be used.
                taken = pc.is_in(numbered.column(ID_COLUMN), table.known)
                numbered = numbered.filter(pc.invert(taken))
            matching_rows = self._values.matching(numbered, condition, own)
            count += matching_rows.num_rows
            if count <= self.overlay.limits.rows:
                ids.append(joined(*matching_rows.column(ID_COLUMN).chunks))
                addresses.append(matching_rows.column(_ADDRESS).to_numpy())
        self.overlay.require_rows(count, what=f"{verb} {own}")
        return _Matches(
            ids=joined(*ids),
            addresses=np.concatenate(addresses),
            changed=self._values.matching(table.rows, condition, own),
        )

    def _candidates(
        self, statement: tq.UpdateStatement | tq.DeleteStatement
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Pinned rows among which the matches are; none if the condition is known not to hold."""
        condition = statement.condition
        known = self._values.known(condition)
        if known is None or known[0] is True:
            where = lance_filter(condition, self._values.parameters)
            wanted = columns_of(condition)
            yield from self._pinned.candidates(statement.table_key, wanted, where)

    def _counts(self, verb: str, statement: tq.TypedStatement, count: int) -> StatementCounts:
        declared = self._catalog.tables()[statement.table_key]
        is_edge = isinstance(declared, EdgeType)
        return StatementCounts(
            statement=f"{verb} {statement.type}",
            nodes=0 if is_edge else count,
            edges=count if is_edge else 0,
        )
