"""Creates the tables of node and edge types, reads them at a pin, and reports their health.

A table is read fragment by fragment, so that many workers can share one scan. Blobs are read as the
bytes they hold. Batches stay small in bytes however wide a row is.

Invariants:

- Data is read only at the version that a snapshot pins; HEAD is looked at for reports alone.
- A planned scan fails later only if the store does. Unknown columns and filters that make no sense
  are refused while planning, before any row is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake import names
from omnigraph_lake.errors import ConflictError, DamagedGraphError, InvalidInputError, NotFoundError
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.storage.lance import datasets
from omnigraph_lake.storage.lance.checksums import verify_table
from omnigraph_lake.storage.lance.legacy_types import as_declared
from omnigraph_lake.storage.objects.containment import require_tree_inside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance import BlobFile, LanceDataset, LanceFragment
    from lance.dataset import LanceScanner

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCoverage:
    """How much of a table one index knows."""

    name: str
    columns: tuple[str, ...]
    kind: str
    indexed_rows: int
    unindexed_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """Physical facts about one table at its pin, and its HEAD."""

    fragments: int
    deleted_rows: int
    data_bytes: int
    head_version: int
    indexes: tuple[IndexCoverage, ...]


def create_table(
    root: Root,
    location: str,
    schema: pa.Schema,
    *,
    operation_id: str,
    rows: pa.RecordBatchReader | None = None,
) -> int:
    """Create a table, empty or with rows, as its first version, which must be ours."""
    content = schema.empty_table() if rows is None else rows
    datasets.create_dataset(root, location, content, operation_id=operation_id)
    dataset = datasets.open_dataset(root, location)
    if dataset is None or dataset.version != 1 or datasets.creator_of(dataset) != operation_id:
        raise ConflictError(
            f"{root.child(location)} was created concurrently by another process",
            next_step="Run it again when the other writer has finished.",
        )
    return int(dataset.version)


def adopt_or_create_table(
    root: Root,
    location: str,
    schema: pa.Schema,
    *,
    operation_id: str,
    rows: pa.RecordBatchReader | None = None,
) -> None:
    """The same at a path of the operation's own, where an earlier attempt of it may have been."""
    dataset = datasets.open_dataset(root, location)
    if dataset is None:
        create_table(root, location, schema, operation_id=operation_id, rows=rows)


def open_pinned(root: Root, entry: TableEntry, *, with_indexes: bool = False) -> LanceDataset:
    """The table exactly as the snapshot pins it, once it is verified.

    A damaged index does not matter to a scan without a filter, so the indexes are verified only for
    others.
    """
    verify_table(root, entry, with_indexes=with_indexes)
    return open_unverified(root, entry)


def open_unverified(root: Root, entry: TableEntry) -> LanceDataset:
    """The same for reports, which must not fail because of a file that they do not read."""
    dataset = datasets.open_dataset(
        root,
        entry.location,
        fork=entry.fork,
        version=entry.version,
        caches=datasets.Caches.OF_ITS_OWN,
    )
    if dataset is None or (
        entry.made_at is not None and datasets.made_at(dataset) != entry.made_at
    ):
        raise DamagedGraphError(
            f"{entry.table_key} is published at version {entry.version} of {entry.location}, "
            "but that version is gone",
            next_step="Read it again: a cleanup may have removed it meanwhile. If the error "
            f"persists, run `omnigraph check {root}`.",
        )
    return as_declared(dataset)


def find_entry(root: Root, snapshot: Snapshot, table_key: str) -> TableEntry:
    """The snapshot's entry of a type that a caller named."""
    entry = snapshot.tables.get(table_key)
    if entry is not None:
        return entry
    kind, _, type_name = table_key.partition(":")
    known = [key.partition(":")[2] for key in snapshot.tables if key.startswith(f"{kind}:")]
    hint = did_you_mean(type_name, known)
    raise NotFoundError(
        f"{root} has no {kind} type {type_name!r}" + (f" ({hint})" if hint else ""),
        next_step=f"Run `omnigraph schema show {root}` to see the types.",
    )


def known_columns(
    root: Root, entry: TableEntry, columns: Sequence[str] | None
) -> tuple[str, ...] | None:
    """The columns a caller asked for, each of which the table has; None asks for all."""
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise InvalidInputError(f"columns are {shown(columns)}, expected a list of column names")
    known = open_pinned(root, entry).schema.names
    for column in columns:
        if column not in known:
            hint = did_you_mean(shown(column).strip("'"), known)
            raise InvalidInputError(
                f"{entry.table_key} has no column {shown(column)}" + (f" ({hint})" if hint else ""),
                next_step=f"Its columns are {', '.join(known)}.",
            )
    if not columns:
        raise InvalidInputError("no columns were asked for", next_step="Leave `columns` out.")
    return tuple(columns)


def scan(
    root: Root, entry: TableEntry, *, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Stream a table's rows at its pin, batch by batch."""
    dataset = open_pinned(root, entry)
    return streamed(root, entry, dataset, columns=list(columns) if columns else None)


def streamed(  # noqa: PLR0913 - what a scan can be asked for
    root: Root,
    entry: TableEntry,
    dataset: LanceDataset,
    *,
    columns: list[str] | None,
    where: str | None = None,
    limit: int | None = None,
    blob_bytes: bool = False,
) -> pa.RecordBatchReader:
    """A scan whose errors are ours, also those that come while its rows are read."""
    action = f"read {entry.table_key}"
    with datasets.translated(root, action):
        reader = dataset.scanner(
            columns=columns,
            filter=where,
            limit=limit,
            blob_handling="all_binary" if blob_bytes else None,
        ).to_reader()

    def batches() -> Iterator[pa.RecordBatch]:
        with datasets.translated(root, action):
            yield from reader

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def whole_rows(root: Root, entry: TableEntry, *, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Stream a table's rows at its pin with everything in them: blobs come as their bytes."""
    dataset = open_pinned(root, entry)
    with datasets.translated(root, f"read {entry.table_key}"):
        scanner = dataset.scanner(
            blob_handling="all_binary", batch_size=batch_rows, batch_readahead=1
        )
        yield from scanner.to_batches()


_TAKEN_ROWS: Final = 4_096
_TAKEN_ROWS_WITH_BLOBS: Final = 32
_TAKEN_BYTES: Final = 8 << 20
# From this share of a table on, reading all of it costs less than taking some rows.
_SCAN_SHARE: Final = 1 / 8


def take_rows(
    root: Root,
    entry: TableEntry,
    dataset: LanceDataset,
    addresses: np.ndarray,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Stream these columns of the rows at some addresses, in any order; blobs as their bytes."""
    rows_read = 0
    if len(addresses) >= entry.row_count * _SCAN_SHARE:
        for batch in _addressed(root, entry, dataset, None, columns):
            here = batch.column(names.ROW_ADDRESS).to_numpy()
            rows = batch.filter(pa.array(np.isin(here, addresses)))
            rows_read += rows.num_rows
            yield rows.select(list(columns))
    else:
        for start in range(0, len(addresses), _TAKEN_ROWS):
            listed = ", ".join(map(str, addresses[start : start + _TAKEN_ROWS].tolist()))
            where = f"{names.ROW_ADDRESS} IN ({listed})"
            for batch in _addressed(root, entry, dataset, where, columns):
                rows_read += batch.num_rows
                yield batch.select(list(columns))
    if rows_read != len(addresses):
        raise DamagedGraphError(
            f"{entry.table_key} lists {len(addresses)} rows, of which {rows_read} can be read",
            next_step=f"Run `omnigraph check {root}`.",
        )


def _addressed(
    root: Root,
    entry: TableEntry,
    dataset: LanceDataset,
    where: str | None,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    blobs = names.BLOB_KEY.encode()
    schema = dataset.schema  # converted whole by every call
    has_blobs = any(blobs in (schema.field(name).metadata or {}) for name in columns)
    with datasets.translated(root, f"read {entry.table_key}"):
        yield from dataset.scanner(
            columns=[*columns, names.ROW_ADDRESS],
            filter=where,
            blob_handling="all_binary",
            batch_size=_TAKEN_ROWS_WITH_BLOBS if has_blobs else _TAKEN_ROWS,
            batch_size_bytes=_TAKEN_BYTES,
            batch_readahead=2,
            fragment_readahead=2,
        ).to_batches()


def orphan_files(root: Root, entry: TableEntry) -> tuple[tuple[str, int], ...]:
    """Data files that no version of the table names, with their sizes."""
    dataset = open_pinned(root, entry)
    require_tree_inside(root, entry.location)  # Lance lists the forks as well
    with datasets.translated(root, f"list the files of {entry.table_key}"):
        known: set[str] = set()
        for batch in dataset.tracked_files():
            known.update(batch.column("path").to_pylist())
        return tuple(
            (file["path"], int(file["size_bytes"]))
            for batch in dataset.all_files()
            for file in batch.to_pylist()
            if file["path"].startswith("data/") and file["path"] not in known
        )


def table_health(root: Root, entry: TableEntry) -> TableHealth:
    dataset = open_unverified(root, entry)
    with datasets.translated(root, f"inspect {entry.table_key}"):
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        return TableHealth(
            fragments=len(fragments),
            deleted_rows=sum(fragment.num_deletions for fragment in fragments),
            data_bytes=sum(
                file.file_size_bytes or 0 for fragment in fragments for file in fragment.files
            ),
            head_version=dataset.latest_version,
            indexes=tuple(_coverage(dataset, index) for index in dataset.describe_indices()),
        )


def _coverage(dataset: LanceDataset, index: object) -> IndexCoverage:
    name: str = index.name  # type: ignore[attr-defined]
    statistics = dataset.stats.index_stats(name)
    return IndexCoverage(
        name=name,
        columns=tuple(index.field_names),  # type: ignore[attr-defined]
        kind=str(index.index_type),  # type: ignore[attr-defined]
        indexed_rows=int(statistics["num_indexed_rows"]),
        unindexed_rows=int(statistics["num_unindexed_rows"]),
    )


_BATCH_BYTES: Final = 16 << 20
_BATCH_ROWS_MAX: Final = 1 << 16
_VARIABLE_BYTES: Final = 64
# Opening a fragment costs about as much as reading this many short rows.
_FRAGMENT_ROWS: Final = 1000
_USER_INPUT: Final = "Invalid user input: "


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentSize:
    """One fragment of a table at its pin, and the rows it holds that are not deleted."""

    fragment_id: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScan:
    """What a scan returns, and the fragments it reads.

    `file_bytes` is the size of their data files with all columns, as far as it was recorded.
    """

    schema: pa.Schema
    fragments: tuple[FragmentSize, ...]
    file_bytes: int


def plan_scan(
    root: Root, entry: TableEntry, *, columns: Sequence[str], where: str | None
) -> PlannedScan:
    """Have Lance plan the scan without running it.

    Raises:
        InvalidInputError: the filter or a column means nothing for this table.
    """
    dataset = open_pinned(root, entry)
    with datasets.translated(root, f"plan a scan of {entry.table_key}"):
        fragments = dataset.get_fragments()
        described = [fragment.metadata for fragment in fragments]
        try:
            # One fragment is enough to plan for; with many, planning would cost as many times more.
            scanner = _scanner(dataset, fragments[:1], columns=columns, where=where)
            scanner.explain_plan()
        except ValueError as error:
            if _USER_INPUT not in str(error):
                raise
            raise _refused(entry, where, error) from error
        return PlannedScan(
            schema=scanner.projected_schema,
            fragments=tuple(
                FragmentSize(fragment_id=fragment.id, rows=fragment.num_rows)
                for fragment in described
            ),
            file_bytes=sum(
                file.file_size_bytes or 0 for fragment in described for file in fragment.files
            ),
        )


def sample_column_bytes(
    root: Root, entry: TableEntry, columns: Sequence[str], *, rows: int
) -> dict[str, float]:
    """The mean size in memory of the values of some columns, in the first rows of a table."""
    dataset = open_pinned(root, entry)
    with datasets.translated(root, f"sample {entry.table_key}"):
        sample = dataset.to_table(columns=list(columns), limit=rows)
    return {name: sample.column(name).nbytes / max(1, len(sample)) for name in columns}


def row_parts(
    batches: Iterable[pa.RecordBatch],
    *,
    rows_max: int | None = None,
    bytes_max: int | None = None,
) -> Iterator[pa.Table]:
    """The batches in tables that end at a limit of rows or bytes; empty batches are left out."""
    part: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        part.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if (rows_max is not None and rows >= rows_max) or (
            bytes_max is not None and size >= bytes_max
        ):
            yield pa.Table.from_batches(part)
            part, rows, size = [], 0, 0
    if part:
        yield pa.Table.from_batches(part)


def grouped(fragments: Iterable[FragmentSize], *, rows_max: int) -> tuple[tuple[int, ...], ...]:
    """Fragment ids in groups of about equal work.

    A fragment of `rows_max` rows or more is a group of its own. The others are dealt out, largest
    first, each to the group that has the least, so no group is twice as large as `rows_max`.
    """
    sizes = [(fragment.rows + _FRAGMENT_ROWS, fragment.fragment_id) for fragment in fragments]
    large = [fragment_id for work, fragment_id in sizes if work >= rows_max]
    small = sorted((size for size in sizes if size[0] < rows_max), reverse=True)
    count = -(-sum(work for work, _ in small) // rows_max)
    loads = [(0, number) for number in range(count)]
    heapify(loads)
    groups: list[list[int]] = [[] for _ in range(count)]
    for work, fragment_id in small:
        load, number = loads[0]
        groups[number].append(fragment_id)
        heapreplace(loads, (load + work, number))
    return tuple(
        sorted(
            [
                *((fragment_id,) for fragment_id in large),
                *(tuple(sorted(group)) for group in groups if group),
            ]
        )
    )


def scan_fragments(
    root: Root,
    entry: TableEntry,
    fragment_ids: Sequence[int],
    *,
    columns: Sequence[str],
    where: str | None,
) -> Iterator[pa.RecordBatch]:
    """Stream the rows of some fragments of a table at its pin."""
    dataset = open_pinned(root, entry, with_indexes=where is not None)
    with datasets.translated(root, f"read {entry.table_key}"):
        fragments = [_fragment(dataset, fragment_id) for fragment_id in fragment_ids]
        yield from _scanner(dataset, fragments, columns=columns, where=where).to_batches()


def rows_at(
    root: Root, entry: TableEntry, addresses: np.ndarray, *, columns: Sequence[str]
) -> pa.Table:
    """A few rows by their addresses, in ascending order of these."""
    dataset = open_pinned(root, entry)
    wanted = np.unique(addresses).tolist()
    is_wanted = f"{names.ROW_ADDRESS} IN ({', '.join(map(str, wanted))})" if wanted else "false"
    chosen = list(dict.fromkeys(columns))
    with datasets.translated(root, f"read {entry.table_key}"):
        # Lance knows where an address is, so it reads little else.
        rows = _scanner(
            dataset, (), columns=[*chosen, names.ROW_ADDRESS], where=is_wanted
        ).to_table()
    assert len(rows) == len(wanted), "a pinned version keeps its rows"
    return rows.sort_by(names.ROW_ADDRESS).select(chosen)


def open_blob(
    root: Root, entry: TableEntry, where: str, column: str
) -> tuple[bool, BlobFile | None]:
    """Whether one row satisfies a filter, and its blob; None if that is null."""
    dataset = open_pinned(root, entry, with_indexes=True)
    with datasets.translated(root, f"read {entry.table_key}"):
        rows = dataset.scanner(columns=[names.ROW_ADDRESS], filter=where).to_table()
        addresses = rows.column(names.ROW_ADDRESS).to_pylist()
        if not addresses:
            return False, None
        (content,) = dataset.take_blobs(column, addresses=addresses)
        return True, content


_BLOBS_OPENED: Final = 4_096


def blob_sizes(
    root: Root, entry: TableEntry, ids: Sequence[str], column: str
) -> Mapping[str, int | None]:
    """The size of the blob of every row that has one of these ids; None if it is null."""
    dataset = open_pinned(root, entry, with_indexes=True)
    sizes: dict[str, int | None] = {}
    with datasets.translated(root, f"read {entry.table_key}"):
        for start in range(0, len(ids), _BLOBS_OPENED):
            doubled = [text.replace("'", "''") for text in ids[start : start + _BLOBS_OPENED]]
            listed = ", ".join(f"'{text}'" for text in doubled)
            rows = dataset.scanner(
                columns=[names.ID_COLUMN, names.ROW_ADDRESS],
                filter=f"`{names.ID_COLUMN}` IN ({listed})",
            ).to_table()
            addresses = rows.column(names.ROW_ADDRESS).to_pylist()
            contents = dataset.take_blobs(column, addresses=addresses) if addresses else []
            for row_id, content in zip(
                rows.column(names.ID_COLUMN).to_pylist(), contents, strict=True
            ):
                sizes[row_id] = None if content is None else content.size()
    return sizes


def _scanner(
    dataset: LanceDataset,
    fragments: Sequence[LanceFragment],
    *,
    columns: Sequence[str],
    where: str | None,
) -> LanceScanner:
    wanted = set(columns)
    widths = [_width(field.type) for field in dataset.schema if field.name in wanted]
    return dataset.scanner(
        columns=list(columns),
        filter=where,
        # Without fragments Lance would read them all.
        fragments=list(fragments) or None,
        blob_handling="all_binary",
        batch_size=max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES // max(1, sum(widths)))),
        batch_size_bytes=_BATCH_BYTES,
    )


def _fragment(dataset: LanceDataset, fragment_id: int) -> LanceFragment:
    fragment = dataset.get_fragment(fragment_id)
    assert fragment is not None, "a pinned version keeps its fragments"
    return fragment


def _width(kind: pa.DataType) -> int:
    if pat.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    return kind.bit_width // 8 + 1 if pat.is_primitive(kind) else _VARIABLE_BYTES


def _refused(entry: TableEntry, where: str | None, error: ValueError) -> InvalidInputError:
    kind, _, name = entry.table_key.partition(":")
    # Lance ends its messages with the place in its own source.
    reason = str(error).replace(_USER_INPUT, "").partition(", /")[0].rstrip(".")
    if where is None:
        return InvalidInputError(f"cannot scan {kind} type {name}: {reason}")
    return InvalidInputError(
        f"cannot filter {kind} type {name} by {where!r:.200}: {reason}",
        next_step="Give a condition in SQL over its columns, such as \"age > 3 AND name = 'Ann'\".",
    )
