"""Converts rows of any origin to a table with exactly the columns of their type, ids included.

A caller names a type by its name in the schema, or by its table key. Ids of nodes without a key and
of edges are the caller's, or new ones where there is none.

Invariants:

- Every input row is in the table at its own position; a value that cannot be converted is null and
  has a finding.
- A property that a new row does not mention has its default, if there is one. Rows that may be
  published keep what they have, and get a default only where they are completed.
- Keyed nodes get the id that their key gives, whatever id the caller gave. Only a partial record
  that does not mention its whole key is named by the caller's id.
- An ambiguous type name is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.ids import FreshIds, key_properties, node_ids
from omnigraph_lake.language.diagnostics import did_you_mean
from omnigraph_lake.language.diagnostics import shown as quoted
from omnigraph_lake.names import (
    END_TYPE_COLUMNS,
    ID_COLUMN,
    SOURCE_COLUMN,
    TARGET_COLUMN,
    edge_table_key,
    node_table_key,
)
from omnigraph_lake.runner.memory import require_room
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import edge_schema, find_true, literal_scalar, node_schema
from omnigraph_lake.schema.ends import end_type_columns
from omnigraph_lake.schema.json_text import InvalidJson, canonical_value
from omnigraph_lake.validation.constraints import type_text
from omnigraph_lake.validation.input.casts import Fault, json_values_of, unwrapped
from omnigraph_lake.validation.input.columns import RawColumn, RawRows, cast_column, read_source
from omnigraph_lake.validation.input.mentions import Mentions, RowMask, mentions_of
from omnigraph_lake.validation.violations import (
    BadRows,
    Reason,
    Violation,
    bad_rows,
    shown,
    shown_scalar,
    unplaced,
)

NewIds: TypeAlias = Callable[[int], pa.StringArray]
_DRAWN_MAX: Final = 1_000
"""Drawing an id takes 2 microseconds, more than everything else that is done with a row."""
"""Generates that many unused ids."""

_JSON: Final = ct.ScalarType(scalar=ct.Scalar.JSON)
_ID: Final = ct.ScalarType(scalar=ct.Scalar.STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """An input in the shape of its table, and what was wrong with it.

    `unreadable` lists, per column, the positions whose cell is null because of a finding.
    `mentions` says what partial records mention; rows that got a new id mention everything.
    """

    table_key: str
    table: pa.Table
    findings: tuple[BadRows, ...]
    unreadable: Mapping[str, pa.Int64Array]
    mentions: Mentions | None = None
    has_given_ids: bool = True
    """Whether any id comes from the input; all others are new by construction."""


def take_in(
    declared: ct.NodeType | ct.EdgeType,
    source: object,
    *,
    new_ids: NewIds,
    partial: bool = False,
    present: Mapping[str, RowMask] | None = None,
    end_types: Mapping[str, str] | None = None,
) -> TakenIn:
    """Read the rows of one type: columns by name, safe casts only, ids derived or completed.

    Args:
        declared: The type.
        source: The rows.
        new_ids: Makes ids for rows that need one and have none.
        partial: Rows may be records of published rows that do not mention every property. A node
            with a key can then be named by its id instead.
        present: The rows of a table that mention a column, for columns that not all do.
        end_types: Node types of ends that rows do not name, by the column of types.
    """
    key = table_key_of(declared)
    raw = read_source(source, type_name=declared.name)
    schema = node_schema(declared) if isinstance(declared, ct.NodeType) else edge_schema(declared)
    wanted = _wanted(declared)
    require_room(raw.row_count, wanted.values(), type_name=declared.name)
    ends = _polymorphic_ends(declared, end_types or {})
    columns, faults = _cast_columns(raw, wanted, ends, schema)
    given_ids = columns[ID_COLUMN]
    mentioned = _mentions(wanted, ends, raw, present or raw.present)
    mentions = mentioned if partial else None
    ids = _ids(declared, columns, new_ids, faults.get(ID_COLUMN, []), mentions)
    columns[ID_COLUMN] = ids.values
    if mentions is not None and ids.generated is not None:
        mentions = mentions.completed(ids.generated)
    if mentions is None or ids.generated is not None:
        is_new = None if mentions is None else ids.generated
        columns |= default_columns(declared, columns, mentioned, where=is_new)
    # The schema says "not null"; a table with findings may break that and is never written.
    table = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
    return TakenIn(
        table_key=key,
        table=table,
        findings=(
            *_column_findings(key, raw, tuple(wanted)),
            *_cast_findings(key, raw, wanted, faults, table.column(ID_COLUMN), ends),
            *_id_findings(key, given_ids, table.column(ID_COLUMN)),
        ),
        unreadable={
            name: _positions(column_faults)
            for name, column_faults in faults.items()
            if column_faults
        },
        mentions=mentions,
        has_given_ids=ids.generated is None or ids.generated.true_count < raw.row_count,
    )


def _cast_columns(
    raw: RawRows,
    wanted: Mapping[str, ct.PropertyType],
    ends: Mapping[str, _PolymorphicEnd],
    schema: pa.Schema,
) -> tuple[dict[str, pa.ChunkedArray], dict[str, list[Fault]]]:
    """Every column of the type, null where the input has none, and the faults by column."""
    columns: dict[str, pa.ChunkedArray] = {}
    faults: dict[str, list[Fault]] = {}
    for name, kind in wanted.items():
        if name in ends:
            columns[name], faults[name] = _type_numbers(ends[name].end, raw.columns.get(name), raw)
        elif name in raw.columns:
            columns[name], faults[name] = cast_column(raw.columns[name], kind)
        else:
            columns[name] = pa.chunked_array([pa.nulls(raw.row_count, schema.field(name).type)])
    for name, polymorphic in ends.items():
        columns[name] = _with_assumed(columns[polymorphic.column], columns[name], polymorphic)
        faults[name] += _without_type(columns[polymorphic.column], columns[name], faults[name])
    return columns, faults


def default_columns(
    declared: ct.NodeType | ct.EdgeType,
    columns: Mapping[str, pa.ChunkedArray],
    mentions: Mentions | None,
    *,
    where: RowMask | pa.ChunkedArray | None,
) -> dict[str, pa.ChunkedArray]:
    """The columns that get their default in the rows that do not mention them.

    Args:
        declared: The type.
        columns: Its columns.
        mentions: What the rows mention; None if each mentions every column.
        where: The rows that are new; None if all are. Others keep what is published.
    """
    changed: dict[str, pa.ChunkedArray] = {}
    for prop in declared.properties.values():
        if mentions is None or prop.default is None or prop.name not in mentions.open_columns:
            continue
        column = columns[prop.name]
        absent = pc.invert(mentions.mask(prop.name, len(column)))
        if where is not None:
            absent = pc.and_(absent, where)
        default = literal_scalar(prop.default, prop.type)
        changed[prop.name] = pc.if_else(_as_column(absent), default, column)
    return changed


def _mentions(
    wanted: Mapping[str, ct.PropertyType],
    ends: Mapping[str, _PolymorphicEnd],
    raw: RawRows,
    present: Mapping[str, RowMask],
) -> Mentions | None:
    """What the rows mention; an input without rows mentions everything.

    The type and the id of an end are mentioned together: a row never keeps one of them.
    """
    if not raw.row_count:
        return None
    properties = wanted.keys() - {ID_COLUMN}
    masks = {name: mask for name, mask in present.items() if name in properties}
    absent = set(properties - raw.columns.keys())
    for name, polymorphic in ends.items():
        pair = (name, polymorphic.column)
        present_names = [one for one in pair if one not in absent]
        absent -= set(pair) if present_names else set()
        known = [masks.pop(one) for one in pair if one in masks]
        if present_names and len(known) == len(present_names):
            masks |= dict.fromkeys(pair, reduce(pc.or_, known))
    return mentions_of(absent, masks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PolymorphicEnd:
    """An end whose rows say its type; `column` has the ids.

    `assumed` is the number of the type of rows that do not.
    """

    column: str
    end: ct.EdgeEnd
    assumed: int | None


def _polymorphic_ends(
    declared: ct.NodeType | ct.EdgeType, end_types: Mapping[str, str]
) -> dict[str, _PolymorphicEnd]:
    """The polymorphic ends of a type by the column with their types."""
    if isinstance(declared, ct.NodeType):
        return {}
    ends = {SOURCE_COLUMN: declared.source, TARGET_COLUMN: declared.target}
    return {
        END_TYPE_COLUMNS[column]: _PolymorphicEnd(
            column=column,
            end=end,
            assumed=end.numbers().get(end_types.get(END_TYPE_COLUMNS[column], "")),
        )
        for column, end in ends.items()
        if end.is_polymorphic
    }


def _type_numbers(
    end: ct.EdgeEnd, column: RawColumn | None, raw: RawRows
) -> tuple[pa.ChunkedArray, list[Fault]]:
    """The numbers of types that an input gives by name, or by number in a column of integers."""
    if column is None:
        return pa.chunked_array([pa.nulls(raw.row_count, pa.int64())]), []
    known = end.numbers()
    if isinstance(column, pa.ChunkedArray) and pa.types.is_integer(column.type):
        given, faults = cast_column(column, ct.ScalarType(scalar=ct.Scalar.I64))
        values = pa.array(known.values(), pa.int64())
    else:
        given, faults = cast_column(column, _ID)
        values = pa.array(known, pa.string())
    numbers = pa.array(known.values(), pa.int64()).take(
        _contiguous(pc.index_in(given, value_set=values))
    )
    unknown = find_true(pc.and_(given.is_valid(), _contiguous(numbers).is_null()))
    if len(unknown):
        faults.append(Fault(reason=Reason.ENDPOINT_TYPE, rows=tuple(unknown.to_pylist())))
    return pa.chunked_array([numbers]), faults


def _with_assumed(
    ids: pa.ChunkedArray, numbers: pa.ChunkedArray, polymorphic: _PolymorphicEnd
) -> pa.ChunkedArray:
    """The types of ends, with the assumed one where a row has an id alone."""
    if polymorphic.assumed is None:
        return numbers
    is_open = pc.and_(ids.is_valid(), numbers.is_null())
    return pc.if_else(is_open, pa.scalar(polymorphic.assumed, pa.int64()), numbers)


def _without_type(
    ends: pa.ChunkedArray, numbers: pa.ChunkedArray, faults: list[Fault]
) -> list[Fault]:
    """A fault of the rows that have an end and do not say its type."""
    known_rows = {row for fault in faults for row in fault.rows}
    rows = find_true(pc.and_(ends.is_valid(), numbers.is_null())).to_pylist()
    missing = tuple(row for row in rows if row not in known_rows)
    return [Fault(reason=Reason.ENDPOINT_TYPE, rows=missing)] if missing else []


def key_findings(declared: ct.NodeType | ct.EdgeType, rows: pa.Table) -> list[BadRows]:
    """The nodes whose id is not the one that their key gives."""
    if not isinstance(declared, ct.NodeType) or declared.key is None:
        return []
    columns = {name: rows.column(name) for name in declared.key.properties}
    derived_ids = _derived_ids(declared, columns)
    return _id_findings(table_key_of(declared), rows.column(ID_COLUMN), derived_ids)


def id_source(new_id: Callable[[], str]) -> NewIds:
    """A new id for every row; many share the time and 45 random bits of one, and are counted."""

    def new_ids(count: int) -> pa.StringArray:
        if count > _DRAWN_MAX:
            return FreshIds(new_id())(count)
        return pa.array([new_id() for _ in range(count)], pa.string())

    return new_ids


def table_key_of(declared: ct.NodeType | ct.EdgeType) -> str:
    match declared:
        case ct.NodeType():
            return node_table_key(declared.name)
        case ct.EdgeType():
            return edge_table_key(declared.name)


def _wanted(declared: ct.NodeType | ct.EdgeType) -> dict[str, ct.PropertyType]:
    system = (ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN)
    fixed = system[:1] if isinstance(declared, ct.NodeType) else system
    kinds = {prop.name: prop.type for prop in declared.properties.values()}
    return {**dict.fromkeys((*fixed, *end_type_columns(declared)), _ID), **kinds}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ids:
    """An id per row, and which rows were given a new one, if any type of row is."""

    values: pa.ChunkedArray
    generated: RowMask | None = None


def _ids(
    declared: ct.NodeType | ct.EdgeType,
    columns: Mapping[str, pa.ChunkedArray],
    new_ids: NewIds,
    unreadable: list[Fault],
    mentions: Mentions | None,
) -> _Ids:
    if isinstance(declared, ct.NodeType) and declared.key is not None:
        ids = _derived_ids(declared, columns)
        return _Ids(values=_named_by_id(ids, columns[ID_COLUMN], declared.key, mentions))
    given_ids = _contiguous(columns[ID_COLUMN])
    absent = given_ids.is_null()
    if unreadable:
        absent = pc.and_(absent, pc.invert(_mask(len(given_ids), _positions(unreadable))))
    fresh = new_ids(pc.sum(absent).as_py() or 0)
    completed_ids = pa.chunked_array([pc.replace_with_mask(given_ids, absent, fresh)])
    return _Ids(values=completed_ids, generated=absent)


def _named_by_id(
    derived_ids: pa.ChunkedArray,
    given_ids: pa.ChunkedArray,
    key: ct.Key,
    mentions: Mentions | None,
) -> pa.ChunkedArray:
    """The given ids of records that do not mention their whole key, and derived ids elsewhere."""
    if mentions is None or mentions.open_columns.isdisjoint(key.properties):
        return derived_ids
    has_key = pa.repeat(pa.scalar(value=True), len(derived_ids))
    for name in key.properties:
        has_key = pc.and_(has_key, mentions.mask(name, len(derived_ids)))
    return pc.if_else(has_key, derived_ids, given_ids)


def _derived_ids(node: ct.NodeType, columns: Mapping[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    members = key_properties(node)
    rows = pa.table({member.name: columns[member.name] for member in members})
    usable = _usable(members, rows)
    if pc.all(usable).as_py():
        return node_ids(node, rows)
    ids = _contiguous(node_ids(node, rows.filter(usable)))
    empty = pa.nulls(len(rows), pa.string())
    return pa.chunked_array([pc.replace_with_mask(empty, _contiguous(usable), ids)])


def _usable(members: tuple[ct.Property, ...], rows: pa.Table) -> pa.ChunkedArray:
    """Which rows have an id: every member present, every float finite."""
    usable = pa.chunked_array([pa.repeat(True, len(rows))])  # noqa: FBT003 - an Arrow value
    for member in members:
        column = rows.column(member.name)
        present = column.is_valid()
        if isinstance(member.type, ct.ScalarType) and member.type.scalar in ct.FLOATS:
            present = pc.and_(present, pc.is_finite(column).fill_null(fill_value=False))
        usable = pc.and_(usable, present)
    return usable


def _column_findings(key: str, raw: RawRows, known: tuple[str, ...]) -> list[BadRows]:
    findings = []
    for name in raw.columns:
        if name not in known:
            hint = did_you_mean(name, known)
            message = f"there is no column {shown(name)}" + (f"; {hint}" if hint else "")
            findings.append(_whole_input(key, Reason.UNKNOWN_COLUMN, name, message))
    for name in raw.repeated:
        message = f"the column {shown(name)} occurs more than once"
        findings.append(_whole_input(key, Reason.DUPLICATE_COLUMN, name, message))
    return findings


def _whole_input(key: str, reason: Reason, column: str, message: str) -> BadRows:
    violation = Violation(
        table_key=key, reason=reason, columns=(column,), row=None, id=None, message=message
    )
    return unplaced([violation], count=1)


def _cast_findings(
    key: str,
    raw: RawRows,
    wanted: Mapping[str, ct.PropertyType],
    faults: Mapping[str, list[Fault]],
    ids: pa.ChunkedArray,
    ends: Mapping[str, _PolymorphicEnd],
) -> list[BadRows]:
    findings = []
    for name, column_faults in faults.items():
        by_reason: dict[Reason, list[Fault]] = {}
        for fault in column_faults:
            by_reason.setdefault(fault.reason, []).append(fault)
        for reason, same in by_reason.items():
            findings.append(
                bad_rows(
                    key,
                    reason,
                    (name,),
                    _positions(same),
                    ids=ids,
                    message=_end_message(ends[name], raw.columns.get(name))
                    if reason is Reason.ENDPOINT_TYPE
                    else _cast_message(raw.columns[name], wanted[name]),
                )
            )
    return findings


def _cast_message(column: RawColumn, wanted: ct.PropertyType) -> Callable[[int], str]:
    def message(row: int) -> str:
        why = _why_no_json(column, row) if wanted == _JSON else ""
        return f"found {_value_text(column, row)}, expected {type_text(wanted)}{why}"

    return message


def _why_no_json(column: RawColumn, row: int) -> str:
    value: object = column[row]
    if isinstance(column, pa.ChunkedArray):
        value = json_values_of(unwrapped(_contiguous(column.slice(row, 1))))[0]
    try:
        canonical_value(value)
    except InvalidJson as error:
        return f": it has {error}"
    return ""


def _end_message(polymorphic: _PolymorphicEnd, column: RawColumn | None) -> Callable[[int], str]:
    def message(row: int) -> str:
        value_text = "None" if column is None else _value_text(column, row)
        value_text = "nothing" if value_text in {"None", "null"} else value_text
        return (
            f"found {value_text}, expected the type of {polymorphic.column}: "
            f"one of {', '.join(polymorphic.end.names)}"
        )

    return message


def _value_text(column: RawColumn, row: int) -> str:
    is_arrow = isinstance(column, pa.ChunkedArray)
    return shown_scalar(column[row]) if is_arrow else shown(column[row])


def _id_findings(key: str, given_ids: pa.ChunkedArray, ids: pa.ChunkedArray) -> list[BadRows]:
    other = pc.fill_null(pc.not_equal(given_ids, ids), fill_value=False)
    rows = find_true(other).cast(pa.int64())
    if not len(rows):
        return []
    return [
        bad_rows(
            key,
            Reason.BAD_ID,
            (ID_COLUMN,),
            rows,
            ids=ids,
            message=lambda row: (
                f"found {shown(given_ids[row].as_py())}, expected {shown(ids[row].as_py())}, "
                "which is derived from the key"
            ),
        )
    ]


def _positions(faults: list[Fault]) -> pa.Int64Array:
    return pa.array(sorted({row for fault in faults for row in fault.rows}), pa.int64())


def _mask(length: int, rows: pa.Int64Array) -> pa.BooleanArray:
    return pc.is_in(pa.array(np.arange(length)), rows)


def _as_column(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _contiguous(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def resolved_types(
    by_name: object, catalog: ct.Catalog
) -> list[tuple[ct.NodeType | ct.EdgeType, object]]:
    """The types behind the names, in the order of the catalog."""
    known = declared_types(catalog)
    if not isinstance(by_name, Mapping):
        raise InvalidInputError(
            f"the input is {type(by_name).__name__}, expected a mapping",
            next_step='Give rows or ids by type, as in {"Person": rows}.',
        )
    values_by_key = {}
    for name, value in by_name.items():
        key = table_key_named(name, catalog)
        if key in values_by_key:
            raise InvalidInputError(f"the input names {key} twice")
        values_by_key[key] = value
    return [
        (declared, values_by_key[key]) for key, declared in known.items() if key in values_by_key
    ]


def table_key_named(name: object, catalog: ct.Catalog) -> str:
    """The table that a caller means by a name of the schema, or by its key."""
    keys = declared_types(catalog)
    if not isinstance(name, str):
        raise InvalidInputError(f"the input names a type {quoted(name)}, expected a string")
    if name in keys:
        return name
    matches = [key for key in (node_table_key(name), edge_table_key(name)) if key in keys]
    if len(matches) > 1:
        raise InvalidInputError(
            f"{name} is a node type and an edge type",
            next_step=f"Name it {matches[0]!r} or {matches[1]!r}.",
        )
    if not matches:
        hint = did_you_mean(name, [*catalog.nodes, *catalog.edges])
        raise InvalidInputError(
            f"the schema has no type {name!r}" + (f"; {hint}" if hint else ""),
            next_step="Name a node type or an edge type of the schema.",
        )
    return matches[0]


def type_named(name: object, catalog: ct.Catalog) -> ct.NodeType | ct.EdgeType:
    """The type that a caller means by a name of the schema, or by its table key."""
    return declared_types(catalog)[table_key_named(name, catalog)]


def declared_types(catalog: ct.Catalog) -> dict[str, ct.NodeType | ct.EdgeType]:
    """Every type by its table key: nodes, then edges, in the order of the catalog."""
    return catalog.tables()
