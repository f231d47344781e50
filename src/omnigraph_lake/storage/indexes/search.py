"""Queries the text indexes of one pinned table, and counts the rows that its indexes do not find.

Invariant: a search returns candidates. They are at least all rows that match, or the answer is that
the index cannot be asked; rows that the index does not know are named as such. A ranked search
returns the rows that the index scores highest, by statistics of the index: those of every text that
it was built from, deleted ones included.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np
import pyarrow as pa
from lance.query import FullTextOperator, MatchQuery, PhraseQuery

from omnigraph_lake.names import ADDRESS_BITS, ID_COLUMN
from omnigraph_lake.storage.indexes import segments
from omnigraph_lake.storage.lance.base_paths import places_of_files
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.lance.deletion_files import read_deletions

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    from lance import LanceDataset, LanceFragment
    from lance.lance.indices import IndexDescription

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry


ROW_ID: Final = "_rowid"
SCORE: Final = "_score"

_TEXT_KIND: Final = "Inverted"
_WORDS_MAX: Final = 100
_FUZZY_LETTERS_MIN: Final = 3
_FUZZY_LETTERS_MAX: Final = 32
"""Per edit, and in all: with fewer letters almost every word is near, more are refused by Lance."""
_ALL_EXPANSIONS: Final = 2**31


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
        index = find_index(dataset, question.column, _TEXT_KIND)
        if index is None or not segments.is_built_for_tokens(index.details):
            return None
        known = fragments_known_to(index)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentState:
    """The rows of one fragment: the files that hold them, and those that are deleted in it."""

    number: int
    files: tuple[str, ...]
    deletions: Hashable
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedTexts:
    """The segments of a text index with their folders, and which fragments they know.

    Other indexes may know fewer fragments. Lance looks for conditions in these only if it is to
    look for texts in known fragments only.
    """

    field_id: int
    segments: tuple[str, ...]
    folders: tuple[str, ...]
    known: tuple[FragmentState, ...]
    unseen: tuple[FragmentState, ...]
    is_known_to_others: bool


def look_up_index(root: Root, entry: TableEntry, column: str) -> IndexedTexts | None:
    """What the index of a text column knows; None without an index that finds our tokens."""
    dataset = cached_dataset(root, entry)
    with translated(root, f"look at the index of {column} of {entry.table_key}"):
        index = find_index(dataset, column, _TEXT_KIND)
        if index is None or not segments.is_built_for_tokens(index.details):
            return None
        places = places_of_files(root, dataset)
        known = fragments_known_to(index)
        states = [_state_of(fragment) for fragment in dataset.get_fragments()]
        return IndexedTexts(
            field_id=int(index.fields[0]),
            segments=tuple(str(segment.uuid) for segment in index.segments),
            folders=tuple(
                root.child(f"{places[segment.base_id]}/_indices/{segment.uuid}")
                for segment in index.segments
            ),
            known=tuple(state for state in states if state.number in known),
            unseen=tuple(state for state in states if state.number not in known),
            is_known_to_others=all(
                fragments_known_to(other) >= known for other in dataset.describe_indices()
            ),
        )


def fragments_known_to(index: IndexDescription) -> set[int]:
    """The numbers of the fragments that an index was built over."""
    return {fragment_id for segment in index.segments for fragment_id in segment.fragment_ids}


def _state_of(fragment: LanceFragment) -> FragmentState:
    metadata = fragment.metadata
    deletions = metadata.deletion_file
    return FragmentState(
        number=int(fragment.fragment_id),
        files=tuple(f"{file.base_id}/{file.path}" for file in metadata.files),
        deletions=None if deletions is None else (deletions.base_id, deletions.path(metadata.id)),
        rows=int(metadata.num_rows),
    )


def row_ids_of(
    root: Root, entry: TableEntry, fragments: Sequence[FragmentState]
) -> npt.NDArray[np.uint64]:
    """The row ids of the living rows of some fragments."""
    batches = rows_of_fragments(root, entry, [], [fragment.number for fragment in fragments])
    chunks = [batch.column(ROW_ID).to_numpy() for batch in batches]
    return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.uint64)


def read_deleted_rows(
    root: Root, entry: TableEntry, fragments: Sequence[FragmentState]
) -> npt.NDArray[np.uint64] | None:
    """The addresses of the deleted rows of some fragments, ascending; None if unreadable."""
    dataset = cached_dataset(root, entry)
    with translated(root, f"read the deletions of {entry.table_key}"):
        return read_deletions(root, dataset, [fragment.number for fragment in fragments])


def values_at(
    root: Root,
    entry: TableEntry,
    column: str,
    addresses: npt.NDArray[np.uint64],
    *,
    deleted: npt.NDArray[np.uint64],
) -> pa.ChunkedArray:
    """The values of living rows, in any order; `deleted` are the others of their fragments."""
    dataset = cached_dataset(root, entry)
    with translated(root, f"read {column} of {entry.table_key}"):
        starts, rows = {}, 0
        for fragment in dataset.get_fragments():
            starts[int(fragment.fragment_id)] = rows
            rows += int(fragment.metadata.num_rows)
        numbers = addresses >> np.uint64(ADDRESS_BITS)
        firsts = numbers << np.uint64(ADDRESS_BITS)
        dead_before = np.searchsorted(deleted, addresses) - np.searchsorted(deleted, firsts)
        positions = [
            starts[number] + offset
            for number, offset in zip(
                numbers.tolist(),
                ((addresses - firsts).astype(np.int64) - dead_before).tolist(),
                strict=True,
            )
        ]
        return dataset.take(positions, columns=[column]).column(column)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTexts:
    """The `count` rows that an index scores highest for some words, among those of a condition."""

    question: TextQuestion
    count: int | None
    columns: tuple[str, ...] = ()
    where: str | None = None


def rank_texts(root: Root, entry: TableEntry, ranked: RankedTexts) -> pa.Table:
    """The columns asked for and `_score`, best first; rows that the index does not know are not."""
    dataset = cached_dataset(root, entry)
    column = ranked.question.column
    with translated(root, f"search {column} of {entry.table_key}"):
        scanner = dataset.scanner(
            columns=[*ranked.columns, SCORE],
            full_text_query=_query(ranked.question),
            limit=ranked.count,
            filter=ranked.where,
            prefilter=True,
            fast_search=True,
        )
        return scanner.to_table()


def can_be_ranked(question: TextQuestion) -> bool:
    """Whether an index finds every text with one of these words."""
    return _can_be_asked(question)


def rows_of_fragments(
    root: Root,
    entry: TableEntry,
    columns: Sequence[str],
    fragments: Sequence[int],
    where: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Stream rows of some fragments that satisfy a filter, with `_rowid`."""
    if not fragments:
        return
    dataset = cached_dataset(root, entry)
    wanted = set(fragments)
    with translated(root, f"read {entry.table_key}"):
        chosen_fragments = [
            fragment for fragment in dataset.get_fragments() if fragment.fragment_id in wanted
        ]
        scanner = dataset.scanner(
            columns=list(columns), fragments=chosen_fragments, filter=where, with_row_id=True
        )
        yield from scanner.to_batches()


def find_index(dataset: LanceDataset, column: str, kind: str) -> IndexDescription | None:
    """The index of a column of this kind, in Lance's words."""
    for index in dataset.describe_indices():
        if index.index_type == kind and index.field_names == [column]:
            return index
    return None


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
