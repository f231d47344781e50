"""The three-way merge of one table: two streams of changes since one base become one change.

Invariant: every id that either side changed is handled once, with exactly one outcome: kept as in
the target, written, deleted, or reported as an open conflict. Memory use depends on the
size of the batches, not on the number of changes.

Both streams have the shape of a table's diff (`op`, `id`, `changed`, `before`, `after`), ascending
by the bytes of `id`. What only the source changed is passed on as it is; what both changed is
compared column by column. A row with an open conflict is not written at all, not even those of its
columns that are decided.

Two values are the same if both are null, both are NaN, or their content is equal, bit by bit; an
empty text or list is not null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.errors import DamagedGraphError, InvalidInputError
from omnigraph_lake.merge.conflicts import (
    CONFLICT_SCHEMA,
    ConflictKind,
    MergeCounts,
    MergePolicy,
    Side,
    row_texts,
    value_texts,
)
from omnigraph_lake.names import END_TYPE_COLUMNS, ID_COLUMN
from omnigraph_lake.schema.arrow import concatenate, end_names
from omnigraph_lake.schema.catalog import EdgeEnd

_Mask: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]

DELETE_SCHEMA: Final = pa.schema([pa.field(ID_COLUMN, pa.string(), nullable=False)])
_KINDS: Final = {
    "delete": ConflictKind.DELETE_VS_UPDATE,
    "insert": ConflictKind.DIVERGENT_INSERT,
    "update": ConflictKind.DIVERGENT_UPDATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableToMerge:
    """Which table is merged, the columns its target has, and what the caller decided.

    A side has not set columns that it `lacks`, not even of rows that it inserted. With
    `writes_kept` also rows that only the target changed are upserts: to be checked by rules that
    the target did not have, and to be written by the columns that it did not have.
    """

    table_key: str
    schema: pa.Schema
    policy: MergePolicy
    theirs_lacks: frozenset[str] = frozenset()
    ours_lacks: frozenset[str] = frozenset()
    writes_kept: bool = False
    ends: Mapping[str, EdgeEnd] = field(default_factory=dict)
    """Polymorphic ends by the column of their ids: the id and its type are one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep:
    """A range of ids, decided; steps ascend by id, and so does everything inside them."""

    upserts: pa.RecordBatch
    """Whole rows that differ from what the target has."""
    deletes: pa.RecordBatch
    """Ids of rows that the target has and must lose."""
    conflicts: pa.RecordBatch
    """Open and resolved ones; those of a row in the order of its columns."""
    counts: MergeCounts


def merge_changes(
    source: Iterable[pa.RecordBatch], target: Iterable[pa.RecordBatch], table: TableToMerge
) -> Iterator[MergeStep]:
    """Decide every id that either side changed since the base both streams were made from.

    A column that a stream does not have counts as null there. A column that only a stream has is
    refused, because the table has no column for its values.

    Raises:
        InvalidInputError: the columns of a stream do not fit the table.
        DamagedGraphError: ids do not ascend, or the streams cannot have one base.
    """
    theirs = _Stream(source, table, side="source")
    ours = _Stream(target, table, side="target")
    while True:
        ends = [end for end in (theirs.end(), ours.end()) if end is not None]
        if not ends:
            return
        # Both streams ascend by id, so neither can still deliver an id up to the smaller of the
        # two ends: this range is complete on both sides.
        yield _step(theirs.cut(min(ends)), ours.cut(min(ends)), table)


class _Stream:
    """The changes of one side, checked as they come and cut at ids."""

    def __init__(
        self, batches: Iterable[pa.RecordBatch], table: TableToMerge, *, side: str
    ) -> None:
        self._batches = iter(batches)
        self._table = table
        self._side = side
        self._head: pa.RecordBatch | None = None
        self._last: str | None = None

    def end(self) -> str | None:
        """The last id that has been read; None when all changes are consumed."""
        while self._head is None or not self._head.num_rows:
            self._head = next(self._batches, None)
            if self._head is None:
                return None
            self._check(self._head)
        return self._last

    def cut(self, last: str) -> pa.RecordBatch | None:
        """The changes up to this id; None if there are none."""
        if self._head is None:
            return None
        # `end` ran before, so the head has a row: the sum of no values would be null.
        count = pc.sum(pc.less_equal(self._head.column("id"), last)).as_py()
        part, self._head = self._head.slice(0, count), self._head.slice(count)
        return part if count else None

    def _check(self, batch: pa.RecordBatch) -> None:
        # Before the return: a stream whose columns do not fit is refused even if it has no changes.
        for name in ("before", "after"):
            _require_fit(batch.schema.field(name).type, self._table, self._side)
        if not batch.num_rows:
            return
        ids = batch.column("id")
        first, last = ids[0].as_py(), ids[-1].as_py()
        # A single row has no pair to compare, hence `min_count`; `all` skips nulls, hence the check
        # of `null_count`. `cut` takes a prefix, so ids out of order would be in a wrong range.
        ascending = pc.all(pc.less(ids[:-1], ids[1:]), min_count=0).as_py()
        if ids.null_count or not ascending or (self._last is not None and first <= self._last):
            raise _contradiction(
                self._table,
                f"the {self._side} names an id twice, out of order or not at all, "
                f"between {first!r:.80} and {last!r:.80}",
            )
        self._last = last


def _step(
    theirs: pa.RecordBatch | None, ours: pa.RecordBatch | None, table: TableToMerge
) -> MergeStep:
    if theirs is None:
        return _keep(ours, table)
    if ours is None:
        return _taken(theirs, table)
    # What only the target changed is in the target already: it is counted, not written.
    in_ours = pc.is_in(theirs.column("id"), value_set=ours.column("id"))
    in_theirs = pc.is_in(ours.column("id"), value_set=theirs.column("id"))
    alone = theirs.select(["op", "id", "after"]).filter(pc.invert(in_ours))
    kept = _keep(ours.filter(pc.invert(in_theirs)), table)
    both = _both(theirs.filter(in_ours), ours.filter(in_theirs), table)
    return _join([kept, _taken(alone, table), *both])


def _keep(ours: pa.RecordBatch | None, table: TableToMerge) -> MergeStep:
    """What only the target changed."""
    step = _nothing(table, MergeCounts(kept=ours.num_rows if ours else 0))
    if ours is None or not table.writes_kept:
        return step
    after = ours.column("after").filter(pa.array(~_is(ours, "delete")))
    return replace(step, upserts=_rows(after, table.schema))


def _taken(theirs: pa.RecordBatch, table: TableToMerge) -> MergeStep:
    """The changes of the source, applied to a target that has the base's rows."""
    is_deleted = _is(theirs, "delete")
    inserted, deleted = int(_is(theirs, "insert").sum()), int(is_deleted.sum())
    after = theirs.column("after")
    updated = theirs.num_rows - inserted - deleted
    ids = theirs.column("id").filter(pa.array(is_deleted))
    return replace(
        _nothing(table, MergeCounts(inserted=inserted, updated=updated, deleted=deleted)),
        upserts=_rows(after.filter(pa.array(~is_deleted)) if deleted else after, table.schema),
        deletes=pa.RecordBatch.from_arrays([ids], schema=DELETE_SCHEMA),
    )


def _both(theirs: pa.RecordBatch, ours: pa.RecordBatch, table: TableToMerge) -> Iterator[MergeStep]:
    """Rows that both sides changed; the two batches hold the same ids."""
    # A row is in the base or not, for both sides: an insert cannot meet an update or a delete.
    if (_is(theirs, "insert") != _is(ours, "insert")).any():
        raise _contradiction(table, "one side inserts a row that the other side finds in the base")
    # A row that one side deleted has no columns to combine; if both did, they agree.
    by_row = _is(theirs, "delete") != _is(ours, "delete")
    by_column = ~_is(theirs, "delete") & ~_is(ours, "delete")
    if not table.policy.column_level:
        new, old = (_rows(changes.column("after"), table.schema) for changes in (theirs, ours))
        by_row |= by_column & _any(~_same(*pair) for pair in zip(new, old, strict=True))
        by_column[:] = False
    agreed = ~by_row & ~by_column
    counts = MergeCounts(agreed=int(agreed.sum()))
    yield replace(_keep(ours.filter(pa.array(agreed)), table), counts=counts)
    for mask, decide in ((by_row, _by_row), (by_column, _by_column)):
        if mask.any():
            chosen = pa.array(mask)
            yield decide(theirs.filter(chosen), ours.filter(chosen), table)


def _by_row(theirs: pa.RecordBatch, ours: pa.RecordBatch, table: TableToMerge) -> MergeStep:
    """Rows in conflict as a whole."""
    count = theirs.num_rows
    side = table.policy.side(table.table_key, None)
    images = (theirs.column("before"), ours.column("after"), theirs.column("after"))
    conflicts = _conflicts(
        theirs.column("id"),
        _kinds(theirs, ours),
        [row_texts(image.is_valid(), _rows(image, table.schema)) for image in images],
        column=None,
        table=table,
    )
    if side is not Side.THEIRS:
        kept = _keep(ours if side is Side.OURS else None, table)
        return replace(kept, conflicts=conflicts, counts=MergeCounts())
    step = _taken(theirs, table)
    # Counts describe the effect on the target: a row that it had deleted is inserted again.
    inserted, deleted = int(_is(ours, "delete").sum()), step.counts.deleted
    effect = MergeCounts(inserted=inserted, updated=count - inserted - deleted, deleted=deleted)
    return replace(step, conflicts=conflicts, counts=effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnMerge:
    """One column of rows that both sides inserted or updated; each mask has a place per row."""

    values: pa.Array
    theirs: _Mask
    """Where the source's value replaces the target's."""
    ours: _Mask
    """Where a change of the target stays that the source does not have."""
    open: _Mask
    conflicts: pa.RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Images:
    """The same rows before and after the changes of the target (ours) and the source (theirs)."""

    theirs_base: pa.RecordBatch
    ours_base: pa.RecordBatch
    old: pa.RecordBatch
    new: pa.RecordBatch


def _by_column(theirs: pa.RecordBatch, ours: pa.RecordBatch, table: TableToMerge) -> MergeStep:
    """Rows that both sides inserted or updated: each column from the side that changed it."""
    types = {END_TYPE_COLUMNS[column] for column in table.ends}
    images = _Images(
        theirs_base=_rows(theirs.column("before"), table.schema),
        ours_base=_rows(ours.column("before"), table.schema),
        old=_rows(ours.column("after"), table.schema),
        new=_rows(theirs.column("after"), table.schema),
    )
    merges: dict[str, _ColumnMerge] = {}
    for column in table.schema:
        if column.name in table.ends:
            merges |= _end_merge(theirs, images, column.name, table)
        elif column.name not in types:
            merges[column.name] = _column_merge(theirs, ours, images, column.name, table)
    return _step_of(theirs, [merges[name] for name in table.schema.names], table)


def _step_of(
    theirs: pa.RecordBatch, merges: Sequence[_ColumnMerge], table: TableToMerge
) -> MergeStep:
    taken = _any(merge.theirs for merge in merges)
    # One open conflict keeps the whole row from being written: no row is half merged.
    written = taken & ~_any(merge.open for merge in merges)
    combined = written & _any(merge.ours for merge in merges)
    conflicts = concatenate([merge.conflicts for merge in merges])
    # A row whose conflicts all went to the target is not written, but it did not agree either.
    contested = _mask(pc.is_in(theirs.column("id"), value_set=conflicts.column("id")))
    counts = MergeCounts(
        updated=int(written.sum()),
        combined=int(combined.sum()),
        agreed=int((~taken & ~contested).sum()),
    )
    if table.writes_kept:
        written = ~_any(merge.open for merge in merges)
    rows = pa.RecordBatch.from_arrays([merge.values for merge in merges], schema=table.schema)
    upserts = rows.filter(pa.array(written))
    return replace(_nothing(table, counts), upserts=upserts, conflicts=conflicts)


def _column_merge(
    theirs: pa.RecordBatch,
    ours: pa.RecordBatch,
    images: _Images,
    column: str,
    table: TableToMerge,
) -> _ColumnMerge:
    base, old, new = (
        image.column(column) for image in (images.theirs_base, images.old, images.new)
    )
    # An insert has no base to compare with, so both sides count as having set every column.
    fresh = _is(theirs, "insert")
    by_theirs = (fresh & (column not in table.theirs_lacks)) | _changed(theirs, column)
    by_ours = (fresh & (column not in table.ours_lacks)) | _changed(ours, column)
    clash = by_theirs & by_ours
    if clash.any():
        # The same change on both sides is no conflict.
        clash &= ~_same(new, old)
    changes = _Sides(by_theirs=by_theirs, by_ours=by_ours, clash=clash)
    rows = pa.array(clash)
    texts = [value_texts(values.filter(rows)) for values in (base, old, new)]
    return _decide_column(theirs, column, (old, new), changes, texts, table)


def _end_merge(
    theirs: pa.RecordBatch, images: _Images, column: str, table: TableToMerge
) -> dict[str, _ColumnMerge]:
    """The id and the type of a polymorphic end, always of one side."""
    type_column = END_TYPE_COLUMNS[column]
    theirs_base, ours_base, old, new = (
        _Ends(rows=image.select([column, type_column]), end=table.ends[column])
        for image in (images.theirs_base, images.ours_base, images.old, images.new)
    )
    fresh = _is(theirs, "insert")
    by_theirs, by_ours = fresh | ~theirs_base.same(new), fresh | ~ours_base.same(old)
    clash = by_theirs & by_ours & ~old.same(new)
    changes = _Sides(by_theirs=by_theirs, by_ours=by_ours, clash=clash)
    texts = [ends.texts(clash) for ends in (theirs_base, old, new)]
    nothing: list[list[str | None]] = [[], [], []]
    silent = _Sides(by_theirs=by_theirs, by_ours=by_ours, clash=np.zeros_like(clash))
    merged = _decide_column(theirs, column, (old.ids, new.ids), changes, texts, table)
    places = np.arange(len(clash)) + np.where(merged.theirs, 0, len(clash))
    types = pa.concat_arrays([new.rows.column(1), old.rows.column(1)]).take(pa.array(places))
    conflicts = _decide_column(theirs, column, (old.ids, new.ids), silent, nothing, table).conflicts
    return {column: merged, type_column: replace(merged, values=types, conflicts=conflicts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """The ids and types at an end, of the rows of one side."""

    rows: pa.RecordBatch
    end: EdgeEnd

    @property
    def ids(self) -> pa.Array:
        return self.rows.column(0)

    @property
    def types(self) -> pa.Array:
        return end_names(self.end, self.rows.column(1))

    def same(self, other: _Ends) -> _Mask:
        return _same(self.ids, other.ids) & _same(self.types, other.types)

    def texts(self, chosen: _Mask) -> list[str | None]:
        rows = pa.array(chosen)
        pairs = pa.RecordBatch.from_arrays(
            [self.types.filter(rows), self.ids.filter(rows)], names=["type", "id"]
        )
        return row_texts(pa.repeat(pa.scalar(value=True), len(pairs)), pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """Which side changed a column, and where both did so differently."""

    by_theirs: _Mask
    by_ours: _Mask
    clash: _Mask


def _decide_column(
    theirs: pa.RecordBatch,
    column: str,
    values: tuple[pa.Array, pa.Array],
    changes: _Sides,
    texts: list[list[str | None]],
    table: TableToMerge,
) -> _ColumnMerge:
    """The value of each row, of the target or of the source, and the conflicts.

    `values` are those of the target and of the source; `texts` those of base, target and source,
    where they clash.
    """
    old, new = values
    fresh, clash = _is(theirs, "insert"), changes.clash
    by_theirs, by_ours = changes.by_theirs, changes.by_ours
    side = table.policy.side(table.table_key, column)
    taken = (by_theirs & ~by_ours) | (clash & (side is Side.THEIRS))
    # Positions in [new, old], so that one `take` builds the merged column.
    places = np.arange(len(fresh)) + np.where(taken, 0, len(fresh))
    rows = pa.array(clash)
    # An inserted row has no base; the text of null would say that null was stored.
    texts[0] = [
        None if absent else text for text, absent in zip(texts[0], fresh[clash], strict=True)
    ]
    # The op of one side is that of both: neither deletes, and an insert only meets an insert.
    conflicting_changes = theirs.select(["op", "id"]).filter(rows)
    return _ColumnMerge(
        values=pa.concat_arrays([new, old]).take(pa.array(places)) if taken.any() else old,
        theirs=taken,
        ours=(by_ours & ~by_theirs) | (clash & (side is Side.OURS)),
        open=clash & (side is None),
        conflicts=_conflicts(
            conflicting_changes.column("id"),
            _kinds(conflicting_changes, conflicting_changes),
            texts,
            column=column,
            table=table,
        ),
    )


def _conflicts(
    ids: pa.StringArray,
    kinds: Sequence[ConflictKind],
    texts: Sequence[Sequence[str | None]],
    *,
    column: str | None,
    table: TableToMerge,
) -> pa.RecordBatch:
    """Conflicts of one column, or of whole rows; `texts` are those of base, ours and theirs."""
    count, side = len(ids), table.policy.side(table.table_key, column)
    base, ours, theirs = (pa.array(text, pa.string()) for text in texts)
    constant = [pa.array([value] * count, pa.string()) for value in (table.table_key, column, side)]
    return pa.RecordBatch.from_arrays(
        [constant[0], ids, constant[1], base, ours, theirs, pa.array(kinds), constant[2]],
        schema=CONFLICT_SCHEMA,
    )


def _kinds(theirs: pa.RecordBatch, ours: pa.RecordBatch) -> list[ConflictKind]:
    ops = zip(theirs.column("op").to_pylist(), ours.column("op").to_pylist(), strict=True)
    return [_KINDS[min(pair)] for pair in ops]  # "delete" is the first in the alphabet


def _join(steps: Sequence[MergeStep]) -> MergeStep:
    """Steps over the same range of ids as one, with its conflicts counted."""
    conflicts = _sort([step.conflicts for step in steps])
    unsettled = conflicts.column("resolution").null_count
    met = MergeCounts(open=unsettled, resolved=conflicts.num_rows - unsettled)
    return MergeStep(
        upserts=_sort([step.upserts for step in steps]),
        deletes=_sort([step.deletes for step in steps]),
        conflicts=conflicts,
        counts=sum((step.counts for step in steps), met),
    )


def _sort(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return batches[0]
    rows = concatenate(filled) if len(filled) > 1 else filled[0]
    ids = rows.column(ID_COLUMN)
    # Conflicts of one row share its id, hence "or equal"; the sort is stable and keeps them in the
    # order of the columns.
    if pc.all(pc.less_equal(ids[:-1], ids[1:]), min_count=0).as_py():
        return rows
    return rows.take(pc.sort_indices(ids))


def _nothing(table: TableToMerge, counts: MergeCounts) -> MergeStep:
    return MergeStep(
        upserts=_none_of(table.schema),
        deletes=_none_of(DELETE_SCHEMA),
        conflicts=_none_of(CONFLICT_SCHEMA),
        counts=counts,
    )


def _none_of(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _is(changes: pa.RecordBatch, op: str) -> _Mask:
    return _mask(pc.equal(changes.column("op"), op))


def _changed(changes: pa.RecordBatch, column: str) -> _Mask:
    """Where an update names the column among those it changed."""
    named = changes.column("changed")
    mask = np.zeros(len(named), np.bool_)
    mask[pc.list_parent_indices(named).filter(pc.equal(pc.list_flatten(named), column))] = True
    return mask


def _rows(images: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    """Whole rows as the table has them; columns that the images lack are null."""
    names = [field.name for field in images.type]
    columns_by_name = dict(zip(names, images.flatten(), strict=True))
    columns = [
        columns_by_name[field.name]
        if field.name in columns_by_name
        else pa.nulls(len(images), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _same(left: pa.Array, right: pa.Array) -> _Mask:
    if pat.is_nested(left.type):
        return _same_lists(left, right)
    same = pc.equal(left, right)
    if pat.is_floating(left.type):
        # `equal` takes 0.0 and -0.0 for the same, and NaN for different from itself.
        bits = pa.int64() if left.type == pa.float64() else pa.int32()
        nans = pc.and_(pc.is_nan(left), pc.is_nan(right))
        same = pc.or_(pc.equal(left.view(bits), right.view(bits)), nans)
    return _mask(same) | _mask(pc.and_(left.is_null(), right.is_null()))


def _same_lists(left: pa.Array, right: pa.Array) -> _Mask:
    same = _mask(pc.and_(left.is_null(), right.is_null()))
    alike = _mask(pc.equal(pc.list_value_length(left), pc.list_value_length(right)))
    # Items pair up only in lists of equal length; a null list has none, so it is filtered out.
    left, right = left.filter(pa.array(alike)), right.filter(pa.array(alike))
    items = np.ones(len(left), np.bool_)
    differing = ~_same(pc.list_flatten(left), pc.list_flatten(right))
    items[pc.list_parent_indices(left).to_numpy()[differing]] = False
    same[alike] = items
    return same


def _any(masks: Iterable[_Mask]) -> _Mask:
    mask: _Mask = np.logical_or.reduce(list(masks))
    return mask


def _mask(values: pa.BooleanArray) -> _Mask:
    """Null counts as false."""
    mask: _Mask = values.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return mask


def _require_fit(row: pa.StructType, table: TableToMerge, side: str) -> None:
    types = {field.name: field.type for field in row}
    expected = dict(zip(table.schema.names, table.schema.types, strict=True))
    for name in (ID_COLUMN, *types):
        if name not in types or types[name] != expected.get(name):
            raise InvalidInputError(
                f"{table.table_key}.{name} is {types.get(name)} in the changes of the {side}, "
                f"expected {expected.get(name, 'no such column')} as in the target of the merge",
                next_step="Apply the same schema to both branches and merge again.",
            )


def _contradiction(table: TableToMerge, what: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"the changes of {table.table_key} contradict each other: {what}",
        next_step="Run `omnigraph check` on the graph.",
    )
