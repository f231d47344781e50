"""Looking rows up through an index and comparing what it finds with what the table holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.storage.lance.dataset_cache import kept_open
from omnigraph.storage.lance.datasets import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance import LanceDataset

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

_VALUES_AT_ONCE: Final = 500
_BTREE: Final = "btree"
_ROW_ID: Final = "_rowid"


def unfound_rows(root: Root, entry: TableEntry, *, rows: int) -> Mapping[str, int]:
    """How many of some rows, spread over the table, each index that finds values does not find."""
    dataset = kept_open(root, entry)
    with translated(root, f"compare the indexes of {entry.table_key} with its rows"):
        missing: dict[str, int] = {}
        for index in dataset.describe_indices():
            if _BTREE in str(index.index_type).lower() and len(index.field_names) == 1:
                count = _unfound(dataset, index.field_names[0], rows)
                if count:
                    missing[index.name] = count
        return missing


def _unfound(dataset: LanceDataset, column: str, rows: int) -> int:
    total = dataset.count_rows()
    if not total or not _can_be_spelt(dataset.schema.field(column).type):
        return 0
    step = max(1, total // rows)
    missing = 0
    offset = 0
    scanner = dataset.scanner(columns=[column], with_row_id=True, use_scalar_index=False)
    for batch in scanner.to_batches():
        first = -offset % step
        offset += batch.num_rows
        some = batch.take(pa.array(np.arange(first, batch.num_rows, step)))
        for start in range(0, some.num_rows, _VALUES_AT_ONCE):
            missing += _missing(dataset, column, some.slice(start, _VALUES_AT_ONCE))
    return missing


def _missing(dataset: LanceDataset, column: str, rows: pa.RecordBatch) -> int:
    known = rows.filter(rows.column(column).is_valid())
    if not known.num_rows:
        return 0
    values = ", ".join(_spelt(value) for value in set(known.column(column).to_pylist()))
    hits = dataset.scanner(
        columns=[column], filter=f"`{column}` IN ({values})", with_row_id=True
    ).to_table()
    row_ids = set(hits.column(_ROW_ID).to_pylist())
    return sum(row_id not in row_ids for row_id in known.column(_ROW_ID).to_pylist())


def _can_be_spelt(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def _spelt(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
