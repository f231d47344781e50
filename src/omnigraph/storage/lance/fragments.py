"""Reading one table fragment by fragment, so that many workers can share one scan.

Invariant: everything is read at the entry's pin. A scan that was planned here fails later only if
the store does; unknown columns and filters that make no sense are refused while planning, before
any row is read.

Blobs are read as the bytes they hold. Batches stay small in bytes however wide a row is.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.types as pat

from omnigraph.errors import InvalidInputError
from omnigraph.storage.lance.datasets import translated
from omnigraph.storage.lance.tables import open_pinned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance import LanceDataset, LanceFragment
    from lance.dataset import LanceScanner

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

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
    """What a scan returns, and the fragments it reads."""

    schema: pa.Schema
    fragments: tuple[FragmentSize, ...]


def plan_scan(
    root: Root, entry: TableEntry, *, columns: Sequence[str], where: str | None
) -> PlannedScan:
    """Have Lance plan the scan without running it.

    Raises:
        InvalidInputError: the filter or a column means nothing for this table.
    """
    dataset = open_pinned(root, entry)
    with translated(root, f"plan a scan of {entry.table_key}"):
        fragments = dataset.get_fragments()
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
                FragmentSize(fragment_id=each.fragment_id, rows=each.metadata.num_rows)
                for each in fragments
            ),
        )


def grouped(fragments: Iterable[FragmentSize], *, rows_max: int) -> tuple[tuple[int, ...], ...]:
    """Fragment ids in groups of about equal work.

    A fragment of `rows_max` rows or more is a group of its own. The others are dealt out, largest
    first, each to the group that has the least, so no group is twice as large as `rows_max`.
    """
    sizes = [(each.rows + _FRAGMENT_ROWS, each.fragment_id) for each in fragments]
    large = [fragment_id for work, fragment_id in sizes if work >= rows_max]
    small = sorted((each for each in sizes if each[0] < rows_max), reverse=True)
    count = -(-sum(work for work, _ in small) // rows_max)
    loads = [(0, number) for number in range(count)]
    heapify(loads)
    groups: list[list[int]] = [[] for _ in range(count)]
    for work, fragment_id in small:
        load, number = loads[0]
        groups[number].append(fragment_id)
        heapreplace(loads, (load + work, number))
    return tuple(
        sorted([*((each,) for each in large), *(tuple(sorted(each)) for each in groups if each)])
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
    with translated(root, f"read {entry.table_key}"):
        fragments = [_fragment(dataset, each) for each in fragment_ids]
        yield from _scanner(dataset, fragments, columns=columns, where=where).to_batches()


def _scanner(
    dataset: LanceDataset,
    fragments: Sequence[LanceFragment],
    *,
    columns: Sequence[str],
    where: str | None,
) -> LanceScanner:
    widths = [_width(field.type) for field in dataset.schema if field.name in set(columns)]
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
