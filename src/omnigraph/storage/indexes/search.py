"""Queries the search indexes of one pinned table, and counts the rows that its indexes do not find.

Invariant: a search returns candidates. Of a text search they are at least all rows that match, or
the answer is that the index cannot be asked; rows that the index does not know are named as such.
Of a vector search they are near, probably the nearest, never deleted and never outside of the
filter, and rows that the index does not know are among them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np
import pyarrow as pa
from lance.query import FullTextOperator, MatchQuery, PhraseQuery

from omnigraph.names import ID_COLUMN
from omnigraph.storage.indexes import segments
from omnigraph.storage.lance.dataset_cache import cached_dataset
from omnigraph.storage.lance.datasets import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lance import LanceDataset
    from lance.lance.indices import IndexDescription

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry


ROW_ID: Final = "_rowid"

_TEXT_KIND: Final = "Inverted"
_VECTOR_KIND: Final = "IVF_FLAT"
_WORDS_MAX: Final = 100
_FUZZY_LETTERS_MIN: Final = 3
_FUZZY_LETTERS_MAX: Final = 32
"""Per edit, and in all: with fewer letters almost every word is near, more are refused by Lance."""
_ALL_EXPANSIONS: Final = 2**31
_NUMBERS_AT_ONCE: Final = 32_000_000
"""A smaller index is searched whole: that is exact, and faster than finding out what suffices."""
_FIRST_SHARE: Final = 8
_COMPARED_MIN: Final = 100
_CHANGED_SHARE: Final = 100
_SLACK: Final = 16
"""More neighbours than asked for: Lance compares in 32 bits, and ties are decided elsewhere."""


class WordOrder(StrEnum):
    """How the words of a query must be held."""

    ANY = "any"
    ALL_IN_ORDER = "all in order"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextQuestion:
    """Words to look for; with `edits`, words that differ in so many letters count as well."""

    column: str
    words: tuple[str, ...]
    wanted: WordOrder
    edits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHits:
    """Rows that may match, as `id` and `_rowid`, and the fragments that the index does not know."""

    rows: pa.Table
    unseen: tuple[int, ...]
    unseen_rows: int


def text_hits(
    root: Root, entry: TableEntry, question: TextQuestion, *, most: int
) -> TextHits | None:
    """What the index of a text column finds; None if it cannot be asked, or knows too many.

    Too many are more than `most` rows, found or unknown to the index.
    """
    if not _can_be_asked(question):
        return None
    dataset = cached_dataset(root, entry)
    with translated(root, f"search {question.column} of {entry.table_key}"):
        index = _index_of(dataset, question.column, _TEXT_KIND)
        if index is None or not segments.is_built_for_tokens(index.details):
            return None
        known = {fragment_id for segment in index.segments for fragment_id in segment.fragment_ids}
        unseen_fragments = [
            fragment for fragment in dataset.get_fragments() if fragment.fragment_id not in known
        ]
        unseen_rows = sum(int(fragment.metadata.num_rows) for fragment in unseen_fragments)
        if unseen_rows > most:
            return None
        rows = _found(dataset, question, most)
        if rows is None:
            return None
        return TextHits(
            rows=rows,
            unseen=tuple(fragment.fragment_id for fragment in unseen_fragments),
            unseen_rows=unseen_rows,
        )


def _can_be_asked(question: TextQuestion) -> bool:
    if not 0 < len(question.words) <= _WORDS_MAX or not segments.are_trusted(question.words):
        return False
    least = _FUZZY_LETTERS_MIN * question.edits
    return question.edits == 0 or all(
        least <= len(word) <= _FUZZY_LETTERS_MAX for word in question.words
    )


def _found(dataset: LanceDataset, question: TextQuestion, most: int) -> pa.Table | None:
    scanner = dataset.scanner(
        columns=[ID_COLUMN, "_score"],
        full_text_query=_query(question),
        with_row_id=True,
        # Rows that the index does not know are cut into tokens by Lance, so we look ourselves.
        fast_search=True,
    )
    batches, count = [], 0
    for batch in scanner.to_batches():
        count += len(batch)
        if count > most:
            return None
        batches.append(batch.select([ID_COLUMN, ROW_ID]))
    schema = pa.schema([pa.field(ID_COLUMN, pa.string()), pa.field(ROW_ID, pa.uint64())])
    return pa.Table.from_batches(batches) if batches else schema.empty_table()


def _query(question: TextQuestion) -> MatchQuery | PhraseQuery:
    text = " ".join(question.words)
    match question.wanted:
        case WordOrder.ALL_IN_ORDER if len(question.words) > 1:
            return PhraseQuery(text, question.column)
        case WordOrder.ANY | WordOrder.ALL_IN_ORDER:
            return MatchQuery(
                text,
                question.column,
                fuzziness=question.edits,
                max_expansions=_ALL_EXPANSIONS,
                operator=FullTextOperator.OR,
            )
        case _:
            assert_never(question.wanted)


def rows_of_fragments(
    root: Root, entry: TableEntry, columns: Sequence[str], fragments: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Stream rows of some fragments, with `_rowid`."""
    if not fragments:
        return
    dataset = cached_dataset(root, entry)
    wanted = set(fragments)
    with translated(root, f"read {entry.table_key}"):
        chosen_fragments = [
            fragment for fragment in dataset.get_fragments() if fragment.fragment_id in wanted
        ]
        scanner = dataset.scanner(
            columns=list(columns), fragments=chosen_fragments, with_row_id=True
        )
        yield from scanner.to_batches()


def _index_of(dataset: LanceDataset, column: str, kind: str) -> IndexDescription | None:
    for index in dataset.describe_indices():
        if index.index_type == kind and index.field_names == [column]:
            return index
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorQuestion:
    """The `count` vectors nearest to a query, among the rows that meet a condition in SQL."""

    column: str
    query: tuple[float, ...]
    metric: str
    count: int
    where: str | None = None


def nearest(root: Root, entry: TableEntry, question: VectorQuestion) -> pa.Table | None:
    """`id`, `_rowid` and the vector of near rows, some more than asked for; None without an index.

    Also None if fewer than asked for were found, which only a look at every row can explain.
    """
    dataset = cached_dataset(root, entry)
    with translated(root, f"search {question.column} of {entry.table_key}"):
        index = _index_of(dataset, question.column, _VECTOR_KIND)
        if index is None or str(index.details.get("metric_type", "")).lower() != question.metric:
            return None
        probes = _probes(dataset, question, entry.row_count)
        neighbours = _neighbours(dataset, question, probes, columns=(ID_COLUMN, question.column))
        return neighbours if len(neighbours) >= question.count else None


def _probes(dataset: LanceDataset, question: VectorQuestion, rows: int) -> int:
    """How many parts of the index to look into: so many that twice as many change little."""
    partitions = segments.partitions_of(rows)
    if rows * len(question.query) <= _NUMBERS_AT_ONCE:
        return segments.PARTITIONS_MAX
    # Few neighbours can stay the same by chance, many cannot.
    wide = replace(question, count=max(question.count, _COMPARED_MIN))
    probes, before = max(1, partitions // _FIRST_SHARE), set[int]()
    while probes < partitions:
        row_ids = set(_neighbours(dataset, wide, probes, most=probes).column(ROW_ID).to_pylist())
        if before and len(row_ids - before) <= len(row_ids) // _CHANGED_SHARE:
            return probes
        before, probes = row_ids, probes * 2
    return segments.PARTITIONS_MAX


def _neighbours(
    dataset: LanceDataset,
    question: VectorQuestion,
    probes: int,
    *,
    most: int = segments.PARTITIONS_MAX,
    columns: Sequence[str] = (),
) -> pa.Table:
    scanner = dataset.scanner(
        columns=[*columns, "_distance"],
        nearest={
            "column": question.column,
            "q": pa.array(question.query, pa.float32()),
            "k": question.count + _SLACK,
            "metric": question.metric,
            # With room above, a filter that few rows pass makes Lance look further.
            "minimum_nprobes": probes,
            "maximum_nprobes": most,
        },
        filter=question.where,
        prefilter=True,
        with_row_id=True,
    )
    return scanner.to_table().select([*columns, ROW_ID])


_VALUES_AT_ONCE: Final = 500
_BTREE: Final = "btree"
_ROW_ID: Final = "_rowid"


def unfound_rows(root: Root, entry: TableEntry, *, rows: int) -> Mapping[str, int]:
    """How many of some rows, spread over the table, each index that finds values does not find."""
    dataset = cached_dataset(root, entry)
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
        sample = batch.take(pa.array(np.arange(first, batch.num_rows, step)))
        for start in range(0, sample.num_rows, _VALUES_AT_ONCE):
            missing += _missing(dataset, column, sample.slice(start, _VALUES_AT_ONCE))
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
