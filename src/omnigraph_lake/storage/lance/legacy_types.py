"""What the columns of Omnigraph 0.3 to 0.7 mean, in tables that were not rewritten since.

It stored a `DateTime` as Arrow's date in milliseconds, with the time of day, and a null `Blob` as a
description of nothing that counts as valid. Every handle on a table is made by `as_declared`, so
what reads rows finds the types and the nulls of today. `schema_to_write` tells what the table has
once it is rewritten; until then nothing is written to it.

Filters need no translation: Lance compares such a date with a timestamp at full precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from lance import LanceDataset
from lance.blob import BlobType
from lance.dataset import LanceScanner

from omnigraph_lake import names
from omnigraph_lake.storage.lance.datasets import cleans_by_itself

if TYPE_CHECKING:
    from lance import BlobFile

_STAGES: Final = (pa.int64(), pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC"))
"""What a date in milliseconds is cast to, one after the other: no digit is lost."""
_ALL_BINARY: Final = "all_binary"


def as_declared(dataset: LanceDataset) -> LanceDataset:
    """The same handle, or one that gives the types of today if the table has others."""
    if not is_legacy(dataset.schema):
        return dataset
    declared = _LegacyTable.__new__(_LegacyTable)
    declared.__dict__.update(dataset.__dict__)
    return declared


def is_legacy_table(dataset: LanceDataset) -> bool:
    """Whether a handle is on a table that has to be rewritten before it is written to."""
    return isinstance(dataset, _LegacyTable)


def must_be_rewritten(dataset: LanceDataset) -> bool:
    """Whether nothing may be written to a table as it is: Lance would delete what others name."""
    return cleans_by_itself(dataset) or is_legacy(dataset._ds.schema)  # noqa: SLF001


def is_legacy(schema: pa.Schema) -> bool:
    """Whether a stored schema has columns that do not mean what they say."""
    return any(_is_legacy_date(field.type) or _is_legacy_blob(field) for field in schema)


def schema_to_write(dataset: LanceDataset) -> pa.Schema:
    """What a table is rewritten as: blobs as bytes, marked as what Lance stores apart."""
    return pa.schema([_field_to_write(field) for field in dataset.schema])


def _field_to_write(field: pa.Field) -> pa.Field:
    if not isinstance(field.type, BlobType):
        return field
    metadata = {**(field.metadata or {}), names.BLOB_KEY: "true", names.REWRITTEN_KEY: "true"}
    return field.with_type(pa.large_binary()).with_metadata(metadata)


def _is_legacy_date(kind: pa.DataType) -> bool:
    return bool(pat.is_date64(kind) or (pat.is_list(kind) and pat.is_date64(kind.value_type)))


def _is_legacy_blob(field: pa.Field) -> bool:
    """Every later program names the property, or says that it has rewritten the column."""
    known = field.metadata or {}
    marks = (names.PROPERTY_ID_KEY.encode(), names.REWRITTEN_KEY.encode())
    return isinstance(field.type, BlobType) and not any(mark in known for mark in marks)


def _declare_field(field: pa.Field) -> pa.Field:
    if not _is_legacy_date(field.type):
        return field
    return field.with_type(_at_stage(field.type, _STAGES[-1]))


def _at_stage(kind: pa.DataType, stage: pa.DataType) -> pa.DataType:
    return pa.list_(kind.value_field.with_type(stage)) if pat.is_list(kind) else stage


def _declare_column(column: pa.Array) -> pa.Array:
    if not _is_legacy_date(column.type):
        return column
    kind = column.type
    for stage in _STAGES:
        column = column.cast(_at_stage(kind, stage))
    return column


def _declare_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*map(_declare_column, batch.columns)], schema=schema)


def _declare_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*map(_declare_field, schema)], metadata=schema.metadata)


class _LegacyTable(LanceDataset):
    """A handle on a table that Omnigraph 0.3 to 0.7 wrote."""

    @property
    def schema(self) -> pa.Schema:
        return _declare_schema(self._ds.schema)

    @cached_property
    def legacy_blobs(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._ds.schema if _is_legacy_blob(field))

    def scanner(  # type: ignore[override]
        self, columns: Sequence[str] | None = None, **options: Any
    ) -> LanceScanner:
        chosen = self._ds.schema.names if columns is None else columns
        blobs = [name for name in self.legacy_blobs if name in chosen]
        added = bool(blobs) and names.ROW_ADDRESS not in chosen
        if added and not options.get("with_row_address"):
            options["with_row_address"] = True
        else:
            added = False
        scanner = super().scanner(None if columns is None else list(columns), **options)
        return _LegacyScanner(scanner, self, blobs, drops_addresses=added)

    def take(self, indices: Any, columns: Any = None) -> pa.Table:
        taken = super().take(indices, columns)
        batches = taken.to_batches()
        schema = _declare_schema(taken.schema)
        return pa.Table.from_batches([_declare_batch(batch, schema) for batch in batches], schema)

    def take_blobs(  # type: ignore[override]
        self, blob_column: str, *, addresses: Sequence[int], **options: Any
    ) -> list[BlobFile | None]:
        contents = super().take_blobs(blob_column, addresses=addresses, **options)
        empty = [
            address
            for address, content in zip(addresses, contents, strict=True)
            if content is not None and not content.size()
        ]
        null = set(self.null_blobs(blob_column, np.array(empty, np.uint64)).tolist())
        return [
            None if address in null else content
            for address, content in zip(addresses, contents, strict=True)
        ]

    def null_blobs(self, column: str, addresses: np.ndarray) -> np.ndarray:
        """Those of some addresses of empty blobs where the blob is null."""
        if not len(addresses):
            return addresses
        listed = ", ".join(map(str, addresses.tolist()))
        rows = super().scanner(
            columns=[column, names.ROW_ADDRESS], filter=f"{names.ROW_ADDRESS} IN ({listed})"
        )
        nulls = [addresses[:0]]
        for batch in rows.to_batches():
            is_null = _is_null_description(batch.column(column))
            nulls.append(batch.column(names.ROW_ADDRESS).filter(is_null).to_numpy())
        return np.concatenate(nulls)


def _is_null_description(described: pa.StructArray) -> pa.BooleanArray:
    """An empty blob has its place among others, a null is at the place of nothing."""
    is_null = pc.is_null(described)
    nothing = pc.and_(
        pc.equal(described.field("size"), 0), pc.equal(described.field("position"), 0)
    )
    inline = pc.and_(
        pc.equal(described.field("kind"), 0),
        pc.equal(pc.fill_null(described.field("blob_uri"), ""), ""),
    )
    described_as_nothing = pc.fill_null(pc.and_(nothing, inline), fill_value=False)
    return pc.or_(is_null, described_as_nothing)


class _LegacyScanner(LanceScanner):
    """A scan of such a table."""

    def __init__(
        self,
        scanner: LanceScanner,
        table: _LegacyTable,
        blobs: Sequence[str],
        *,
        drops_addresses: bool,
    ) -> None:
        super().__init__(scanner._scanner, table)  # noqa: SLF001
        self._table = table
        self._blobs = blobs
        self._drops_addresses = drops_addresses

    @property
    def projected_schema(self) -> pa.Schema:
        schema = _declare_schema(super().projected_schema)
        if self._drops_addresses:
            schema = schema.remove(schema.get_field_index(names.ROW_ADDRESS))
        return schema

    def to_reader(self) -> pa.RecordBatchReader:
        schema = self.projected_schema
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in super().to_reader():
            nulled = reduce(self._with_nulls, self._blobs, batch)
            yield _declare_batch(nulled.select(schema.names), schema)

    def _with_nulls(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        column = batch.column(name)
        addresses = batch.column(names.ROW_ADDRESS)
        if pat.is_struct(column.type):
            is_null = _is_null_description(column)
        else:
            is_empty = pc.fill_null(pc.equal(pc.binary_length(column), 0), fill_value=False)
            null = self._table.null_blobs(name, addresses.filter(is_empty).to_numpy())
            is_null = pc.is_in(addresses, pa.array(null, addresses.type))
        nulled = pc.if_else(is_null, pa.scalar(None, column.type), column)
        place = batch.schema.get_field_index(name)
        return batch.set_column(place, batch.schema.field(name), nulled)
