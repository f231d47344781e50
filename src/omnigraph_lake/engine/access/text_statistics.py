"""The counts of texts that BM25 needs, by a text index and the rows that it does not know.

An index scores texts by counts of its own: it counts texts that were deleted since, and does not
know newer ones. Both counts are known here, so that its scores can be compared with ours.

Invariants:
- Counts are those of the living texts of the version read. Those of indexed texts come from the
  index; texts in fragments that it does not know are cut into tokens once and kept by data file.
- All indexed texts are counted once. In later versions the texts deleted since are subtracted; they
  are read in the version that was counted.
- An index that cuts a text otherwise than we do is not used: None is returned.
- What is kept in memory is named by the files it was computed from, so it is never stale.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph_lake.engine.access.resident_tables import version_of
from omnigraph_lake.engine.search import K1, B, Corpus, TextCounts, tokens
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.names import ADDRESS_BITS, ID_COLUMN, ROW_ADDRESS
from omnigraph_lake.storage.indexes.index_files import TokenHolders, document_lengths, token_holders
from omnigraph_lake.storage.indexes.search import (
    FragmentState,
    IndexedTexts,
    RankedTexts,
    TextQuestion,
    WordOrder,
    look_up_index,
    rank_texts,
    read_deleted_rows,
    row_ids_of,
    rows_of_fragments,
    values_at,
)
from omnigraph_lake.storage.indexes.segments import has_doubted
from omnigraph_lake.storage.lance.dataset_cache import look_up
from omnigraph_lake.storage.objects.lru_cache import LruCache

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy.typing as npt

    from omnigraph_lake.engine.run import Run
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

_TAIL_ROWS_MAX: Final = 1 << 15
_LOST_MAX: Final = 1 << 13
_WORDS_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedTable:
    """A pinned table that a run searches."""

    root: Root
    entry: TableEntry
    run: Run

    def column(self, name: str) -> Iterator[pa.Array]:
        """Stream a column."""
        for batch in look_up(self.root, self.entry, (name,), None):
            self.run.check()
            yield batch.column(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedWord:
    """A word in the indexed texts: how many living ones hold it, and its rarity by the index."""

    holders: int
    rarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedTexts:
    """The living indexed texts of one version, and the counts that the index scores by."""

    entry: TableEntry
    fragments: tuple[FragmentState, ...]
    deleted: npt.NDArray[np.uint64] | None = field(repr=False)
    """The addresses of deleted rows; None if they cannot be read."""
    counts: TextCounts
    indexed: int
    average: float
    has_dead: bool
    holders: TokenHolders
    words: dict[str, IndexedWord] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LostTexts:
    """The indexed texts that were deleted after a version."""

    counts: TextCounts
    holders: Mapping[str, int] = field(repr=False)


_NOTHING_LOST: Final = _LostTexts(counts=TextCounts(documents=0, tokens=0), holders={})


@dataclass(frozen=True, slots=True, kw_only=True)
class TailTexts:
    """The texts of a fragment that an index does not know, cut into tokens."""

    ids: tuple[str, ...]
    lengths: tuple[int, ...]
    holders: Mapping[str, tuple[tuple[int, int], ...]]
    """For every token the places of its texts, with the number of times they hold it."""
    counts: TextCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStatistics:
    """The counts of all texts of a column in one version, and those that its index scores by."""

    field: str
    counts: TextCounts
    tail: tuple[TailTexts, ...]
    unseen: tuple[FragmentState, ...]
    takes_conditions: bool
    """Whether the index finds all rows that it knows and that meet a condition."""
    _counted: _CountedTexts
    _lost: _LostTexts

    @property
    def index_average(self) -> float:
        """The mean number of tokens of a text by the index."""
        return self._counted.average

    def word(self, table: SearchedTable, word: str) -> IndexedWord:
        """A word by the index; looked up once."""
        counted, lost = self._counted, self._lost.holders.get(word, 0)
        kept = counted.words.get(word)
        if kept is None:
            kept = self._look_up(table, word, lost)
            if len(counted.words) >= _WORDS_KEPT:
                counted.words.clear()
            counted.words[word] = kept
        return IndexedWord(holders=kept.holders - lost, rarity=kept.rarity) if lost else kept

    def _look_up(self, table: SearchedTable, word: str, lost: int) -> IndexedWord:
        """A word in the version that was counted; `lost` texts that held it are gone since."""
        counted = self._counted
        indexed = counted.holders.count(word)
        rarity = math.log(1 + (counted.indexed - indexed + 0.5) / (indexed + 0.5))
        if not counted.has_dead or not indexed:
            return IndexedWord(holders=indexed, rarity=rarity)
        question = TextQuestion(column=self.field, words=(word,), wanted=WordOrder.ANY)
        living = rank_texts(table.root, table.entry, RankedTexts(question=question, count=None))
        return IndexedWord(holders=len(living) + lost, rarity=rarity)

    def corpus(self, table: SearchedTable, words: Sequence[str]) -> Corpus:
        """The counts of a query."""
        holders = {
            word: self.word(table, word).holders
            + sum(len(texts.holders.get(word, ())) for texts in self.tail)
            for word in words
        }
        return Corpus(counts=self.counts, holders=holders)


_STATISTICS: Final[LruCache[tuple[TextStatistics | None]]] = LruCache(32)
_COUNTED: Final[LruCache[_CountedTexts]] = LruCache(16)
_AGREED: Final[LruCache[tuple[bool]]] = LruCache(4096)
_TAILS: Final[LruCache[TailTexts]] = LruCache(2048)


def weight(count: int, length: int, average: float) -> float:
    """What BM25 multiplies the rarity of a word with."""
    return count * (K1 + 1) / (count + K1 * (1 - B + B * length / average))


def text_statistics(table: SearchedTable, field: str) -> TextStatistics | None:
    """The counts of a column by its index; None if every text must be read."""
    if table.entry.made_at is None:
        return _count(table, field)
    key = (table.root.uri, table.root.verify, *version_of(table.entry), field)
    kept = _STATISTICS.get(key)
    if kept is None:
        kept = (_count(table, field),)
        _STATISTICS.keep(key, kept)
    return kept[0]


def _count(table: SearchedTable, field: str) -> TextStatistics | None:
    indexed = look_up_index(table.root, table.entry, field)
    if indexed is None or sum(part.rows for part in indexed.unseen) > _TAIL_ROWS_MAX:
        return None
    place = (*_place(table, indexed), indexed.segments)
    counted = _COUNTED.get(place)
    lost = None if counted is None else _read_lost(table, field, counted, indexed)
    if counted is None or lost is None:
        counted, lost = _count_indexed(table, field, indexed), _NOTHING_LOST
        if counted is None:
            return None
        _COUNTED.keep(place, counted)
    tail = _tail(table, field, indexed)
    parts = [counted.counts, *(texts.counts for texts in tail)]
    return TextStatistics(
        field=field,
        counts=TextCounts(
            documents=sum(part.documents for part in parts) - lost.counts.documents,
            tokens=sum(part.tokens for part in parts) - lost.counts.tokens,
        ),
        tail=tail,
        unseen=indexed.unseen,
        takes_conditions=indexed.is_known_to_others,
        _counted=counted,
        _lost=lost,
    )


def _place(table: SearchedTable, indexed: IndexedTexts) -> tuple[Hashable, ...]:
    entry = table.entry
    return table.root.uri, table.root.verify, entry.location, entry.fork, indexed.field_id


def _count_indexed(table: SearchedTable, field: str, indexed: IndexedTexts) -> _CountedTexts | None:
    lengths = document_lengths(table.root, indexed.folders)
    holders = token_holders(table.root, indexed.folders)
    if lengths is None or holders is None or not len(lengths.row_ids):
        return None
    if len(np.unique(lengths.row_ids)) < len(lengths.row_ids):
        return None
    if not _is_agreed(table, field, indexed):
        return None
    living = row_ids_of(table.root, table.entry, indexed.known)
    is_living = np.isin(lengths.row_ids, living)
    return _CountedTexts(
        entry=table.entry,
        fragments=indexed.known,
        deleted=read_deleted_rows(table.root, table.entry, indexed.known),
        counts=TextCounts(
            documents=len(living) - _null_count(table, field, indexed),
            tokens=int(lengths.lengths[is_living].sum()),
        ),
        indexed=len(lengths.row_ids),
        average=int(lengths.lengths.sum()) / len(lengths.row_ids),
        has_dead=not bool(is_living.all()),
        holders=holders,
    )


def _null_count(table: SearchedTable, field: str, indexed: IndexedTexts) -> int:
    numbers = [fragment.number for fragment in indexed.known]
    where = f"`{field}` IS NULL"
    batches = rows_of_fragments(table.root, table.entry, [], numbers, where)
    return sum(batch.num_rows for batch in batches)


def _read_lost(
    table: SearchedTable, field: str, counted: _CountedTexts, indexed: IndexedTexts
) -> _LostTexts | None:
    """The texts deleted since the version that was counted.

    None if it is not an earlier one of the same rows, if they are many, or cannot be read.
    """
    if indexed.known == counted.fragments:
        return _NOTHING_LOST
    if [(part.number, part.files) for part in indexed.known] != [
        (part.number, part.files) for part in counted.fragments
    ]:
        return None
    deleted = read_deleted_rows(table.root, table.entry, indexed.known)
    if deleted is None or counted.deleted is None:
        return None
    lost = np.setdiff1d(deleted, counted.deleted, assume_unique=True)
    if len(counted.deleted) + len(lost) != len(deleted) or len(lost) > _LOST_MAX:
        return None
    try:
        values = values_at(table.root, counted.entry, field, lost, deleted=counted.deleted)
    except OmnigraphError:
        return None  # a cleanup removed the version
    cut = [tokens(text) for text in values.to_pylist() if text is not None]
    return _LostTexts(
        counts=TextCounts(documents=len(cut), tokens=sum(map(len, cut))),
        holders=Counter(word for text_tokens in cut for word in set(text_tokens)),
    )


def _is_agreed(table: SearchedTable, field: str, indexed: IndexedTexts) -> bool:
    """Whether Lance cuts every indexed text as we do; looked up once for each data file."""
    for fragment in indexed.known:
        key = (*_place(table, indexed), fragment.files)
        kept = _AGREED.get(key)
        if kept is None:
            batches = rows_of_fragments(table.root, table.entry, [field], [fragment.number])
            kept = (not any(has_doubted(batch.column(field)) for batch in batches),)
            _AGREED.keep(key, kept)
        if not kept[0]:
            return False
    return True


def _tail(table: SearchedTable, field: str, indexed: IndexedTexts) -> tuple[TailTexts, ...]:
    place = _place(table, indexed)
    keys = {part.number: (*place, part.files, part.deletions) for part in indexed.unseen}
    tails = {number: _TAILS.get(key) for number, key in keys.items()}
    missing = [number for number, texts in tails.items() if texts is None]
    rows: dict[int, list[tuple[str, str | None]]] = {number: [] for number in missing}
    columns = [ID_COLUMN, field, ROW_ADDRESS]
    for batch in rows_of_fragments(table.root, table.entry, columns, missing):
        table.run.check()
        numbers = (batch.column(ROW_ADDRESS).to_numpy() >> ADDRESS_BITS).tolist()
        ids, texts = batch.column(ID_COLUMN).to_pylist(), batch.column(field).to_pylist()
        for number, entity_id, text in zip(numbers, ids, texts, strict=True):
            rows[number].append((entity_id, text))
    for number in missing:
        read_texts = _cut(rows[number])
        _TAILS.keep(keys[number], read_texts)
        tails[number] = read_texts
    return tuple(texts for texts in tails.values() if texts is not None)


def _cut(rows: Sequence[tuple[str, str | None]]) -> TailTexts:
    ids: list[str] = []
    lengths: list[int] = []
    holders: dict[str, list[tuple[int, int]]] = {}
    for entity_id, text in rows:
        if text is None:
            continue
        text_tokens = tokens(text)
        for word, count in Counter(text_tokens).items():
            holders.setdefault(word, []).append((len(ids), count))
        ids.append(entity_id)
        lengths.append(len(text_tokens))
    return TailTexts(
        ids=tuple(ids),
        lengths=tuple(lengths),
        holders={word: tuple(places) for word, places in holders.items()},
        counts=TextCounts(documents=len(ids), tokens=sum(lengths)),
    )
