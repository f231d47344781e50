"""Complete the records of a merge: several records of one id become one, and rows keep the rest.

A merge applies the records of an id one after the other to the published row. `fold` makes one
record of them, and `fill` takes the values that it does not mention from the published row. A
record whose id is not published is an insert: what it does not mention is the default of the
property, or null.

Invariants:
- Pure: both depend on their arguments alone, and on rows of no other id, so that an input can be
  cut by ids in any way.
- An explicit null is a value: it clears what was there.
- Row rules hold for complete rows. `check_filled` judges them after `fill`; before it, only
  mentioned values can be judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema.catalog import EdgeType, NodeType
from omnigraph_lake.validation.constraints import TypeRules
from omnigraph_lake.validation.input.intake import default_columns, key_findings
from omnigraph_lake.validation.input.mentions import Mentions, mask_of, mentions_of
from omnigraph_lake.validation.row_checks import check_rows
from omnigraph_lake.validation.violations import BadRows

_CONTIGUOUS_MAX: Final = 1 << 30
"""Arrow cannot take rows from more than 2 GiB of texts with 32-bit offsets."""
_ROWS_AT_ONCE: Final = 1 << 16

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedRecords:
    """One record per id.

    `positions` are those of the records that were applied last, ascending; a row of `rows` stands
    for the record at its position, and every other record is superseded.
    """

    rows: pa.Table
    mentions: Mentions | None
    positions: pa.Int64Array


def fold(
    rows: pa.Table, mentions: Mentions | None, order: Sequence[np.ndarray] = ()
) -> FoldedRecords:
    """Make one record of all records of an id: of every column the value that was mentioned last.

    Args:
        rows: Records, each with an id.
        mentions: What they mention; None if each mentions every column.
        order: Numbers per record by which they are applied, the most significant first. Records
            with equal numbers, or without any, are applied in input order.
    """
    identities = pc.dictionary_encode(_contiguous(rows.column(ID_COLUMN)))
    codes = identities.indices.to_numpy()
    count = len(identities.dictionary)
    if count == len(rows):
        every = pa.array(np.arange(len(rows)))
        return FoldedRecords(rows=rows, mentions=mentions, positions=every)
    sequence = np.lexsort(tuple(reversed(order))) if order else np.arange(len(rows))
    last = _last(codes, sequence, count)
    positions = np.sort(last)
    at = codes[positions]
    columns = []
    masks = {}
    for name in rows.column_names:
        source = positions
        if mentions is not None and name in mentions.partly:
            is_mentioned = mentions.partly[name].to_numpy(zero_copy_only=False)
            latest = _last(codes, sequence[is_mentioned[sequence]], count)[at]
            masks[name] = mask_of(latest >= 0)
            source = np.where(latest >= 0, latest, positions)
        columns.append(_gather(rows.column(name), pa.array(source)))
    absent = mentions.absent if mentions is not None else ()
    return FoldedRecords(
        rows=pa.Table.from_arrays(columns, schema=rows.schema),
        mentions=mentions_of(absent, masks),
        positions=pa.array(positions),
    )


def fill(
    declared: NodeType | EdgeType,
    rows: pa.Table,
    mentions: Mentions | None,
    published: pa.Table | None,
) -> pa.Table:
    """The same rows with what they do not mention taken from the published rows of their ids.

    Args:
        declared: The type, for the defaults of rows that are inserted.
        rows: Records, at most one per id.
        mentions: What they mention; None if each mentions every column.
        published: At least `id` and `mentions.open_columns` of the published rows that have one of
            the ids, in any order. Blobs are bytes. An id that is not there is inserted.
    """
    if mentions is None:
        return rows
    inserted = pa.chunked_array([pa.repeat(pa.scalar(value=True), len(rows))])
    if published is not None and len(published):
        at = pc.index_in(rows.column(ID_COLUMN), value_set=published.column(ID_COLUMN))
        rows = _keep(rows, mentions, published, at)
        inserted = at.is_null()
    by_name = {name: rows.column(name) for name in rows.column_names}
    by_name |= default_columns(declared, by_name, mentions, where=inserted)
    return pa.Table.from_arrays(list(by_name.values()), schema=rows.schema)


def _keep(rows: pa.Table, mentions: Mentions, published: pa.Table, at: pa.ChunkedArray) -> pa.Table:
    """What rows do not mention from the published rows at these positions."""
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name not in mentions.open_columns:
            columns.append(column)
            continue
        kept = _gather(published.column(name).cast(column.type), _contiguous(at))
        mask = mentions.partly.get(name)
        columns.append(kept if mask is None else pc.if_else(mask, column, kept))
    return pa.Table.from_arrays(columns, schema=rows.schema)


def check_filled(
    declared: NodeType | EdgeType,
    rules: TypeRules,
    rows: pa.Table,
    *,
    unreadable: Mapping[str, pa.Int64Array] | None = None,
) -> tuple[BadRows, ...]:
    """Every completed row that breaks a row rule, or whose id is not that of its key."""
    return (*check_rows(rows, rules, unreadable=unreadable), *key_findings(declared, rows))


def _last(codes: np.ndarray, sequence: np.ndarray, count: int) -> Positions:
    """The last position of the sequence that has each code, -1 where none has."""
    last = np.full(count, -1, np.int64)
    last[codes[sequence]] = sequence
    return last


def _gather(column: pa.ChunkedArray, positions: pa.Array) -> pa.ChunkedArray:
    """The values at these positions, null for null."""
    kind = column.type
    wide = _with_wide_offsets(kind)
    if wide == kind or column.nbytes <= _CONTIGUOUS_MAX:
        return column.take(positions)
    widened = column.cast(wide)
    parts = [
        widened.take(positions.slice(start, _ROWS_AT_ONCE)).cast(kind)
        for start in range(0, len(positions), _ROWS_AT_ONCE)
    ]
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)


def _with_wide_offsets(kind: pa.DataType) -> pa.DataType:
    if pat.is_string(kind):
        return pa.large_string()
    if pat.is_list(kind):
        item = kind.value_field
        return pa.large_list(item.with_type(_with_wide_offsets(item.type)))
    return kind


def _contiguous(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
