"""Finds near vectors of one pinned table through its vector index, with few of its parts.

An index has its vectors in parts, each around a centroid, and searches the parts whose centroids
are nearest to the query. How many are enough depends on the vectors, on the number of neighbours
and on the condition. The first questions search all parts; which parts their neighbours were in
tells what any smaller number of parts would have found.

Invariants:
- Rows that are found are living, meet the condition, and have a distance. Rows that the index does
  not know are among them.
- Fewer parts are searched once enough questions show that these find `_RECALL_MIN` of the
  neighbours, with a margin for the number of questions. Some questions search all parts still, and
  change the number.
- A number of parts is known of one index, told by its segments, and never used for another.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from omnigraph_lake.storage.indexes import segments
from omnigraph_lake.storage.indexes.search import find_index, fragments_known_to
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.objects.lru_cache import LruCache

if TYPE_CHECKING:
    import numpy.typing as npt
    from lance import LanceDataset
    from lance.lance.indices import IndexDescription

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

    Vectors = npt.NDArray[np.float32]

_VECTOR_KIND: Final = "IVF_FLAT"
_DISTANCE: Final = "_distance"
_RECALL_MIN: Final = 0.99
_QUESTIONS_MIN: Final = 100
"""If none of them misses a neighbour, at most 3 % of all questions do, with 95 % confidence."""
_QUESTIONS_MAX: Final = 1_000
_DEVIATIONS: Final = 2.0
_AUDIT_EVERY: Final = 64
_DEPTHS: Final = (10, 100, 1_000)
_CONDITION_LETTERS_MAX: Final = 1_000
_SLACK: Final = 16
"""More neighbours than asked for: Lance compares in 32 bits, and ties are decided elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorQuestion:
    """The `count` vectors nearest to a query, among the rows that meet a condition in SQL."""

    column: str
    query: tuple[float, ...]
    metric: str
    count: int
    where: str | None = None
    columns: tuple[str, ...] = ()
    is_index_alone: bool = False
    """Whether rows that the index does not know are not looked at."""


def nearest(root: Root, entry: TableEntry, question: VectorQuestion) -> pa.Table | None:
    """The vector and columns of near rows, some more than asked for, nearest first.

    None without an index, and if fewer than asked for were found, which only a look at every row
    can explain.
    """
    dataset = cached_dataset(root, entry)
    with translated(root, f"search {question.column} of {entry.table_key}"):
        index = _describe_index(root, entry, dataset, question.column)
        if index is None or index.metric != question.metric:
            return None
        # Without a condition and newer rows a search of the index alone finds the same, faster.
        question = replace(question, is_index_alone=index.is_whole and question.where is None)
        calibration = _calibration(dataset, index, question)
        extent = calibration.begin()
        if extent.probes < segments.PARTITIONS_MAX:
            neighbours = _neighbours(dataset, question, extent.probes)
            if len(neighbours) >= question.count:
                return neighbours
        neighbours = _neighbours(dataset, question, segments.PARTITIONS_MAX)
        if len(neighbours) < question.count:
            return None
        if extent.is_recorded:
            calibration.record(question, neighbours.column(question.column))
        return neighbours


def _neighbours(dataset: LanceDataset, question: VectorQuestion, probes: int) -> pa.Table:
    columns = dict.fromkeys((*question.columns, question.column, _DISTANCE))
    scanner = dataset.scanner(
        columns=list(columns),
        nearest={
            "column": question.column,
            "q": pa.array(question.query, pa.float32()),
            "k": question.count + _SLACK,
            "metric": question.metric,
            # With room for more probes Lance prepares for them, which costs more than the search.
            "minimum_nprobes": probes,
            "maximum_nprobes": probes,
        },
        filter=question.where,
        prefilter=True,
        fast_search=question.is_index_alone,
    )
    neighbours = scanner.to_table()
    is_missing = np.isnan(neighbours.column(_DISTANCE).to_numpy())
    if is_missing.any():
        neighbours = neighbours.filter(pa.array(~is_missing))
    return neighbours.drop([_DISTANCE])


@dataclass(frozen=True, slots=True, kw_only=True)
class _VectorIndex:
    """An index of one version of a table; a `whole` one knows all rows."""

    name: str
    segments: tuple[str, ...]
    metric: str
    is_whole: bool


_DESCRIBED: Final[LruCache[tuple[_VectorIndex | None]]] = LruCache(64)


def _describe_index(
    root: Root, entry: TableEntry, dataset: LanceDataset, column: str
) -> _VectorIndex | None:
    """The vector index of a column of a version, looked up once."""
    key = (root.uri, entry.location, entry.fork, entry.version, entry.made_at, column)
    kept = None if entry.made_at is None else _DESCRIBED.get(key)
    if kept is None:
        index = find_index(dataset, column, _VECTOR_KIND)
        kept = (None if index is None else _describe(dataset, index),)
        _DESCRIBED.keep(key, kept)
    return kept[0]


def _describe(dataset: LanceDataset, index: IndexDescription) -> _VectorIndex:
    present = {fragment.fragment_id for fragment in dataset.get_fragments()}
    return _VectorIndex(
        name=index.name,
        segments=tuple(str(segment.uuid) for segment in index.segments),
        metric=str(index.details.get("metric_type", "")).lower(),
        is_whole=present <= fragments_known_to(index),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How many parts a question searches, `PARTITIONS_MAX` for all, and whether it is recorded."""

    probes: int
    is_recorded: bool


class Calibration:
    """How many parts of an index to search, by the parts that hold the neighbours of questions."""

    def __init__(self, centroids: Vectors | None, metric: str) -> None:
        self._centroids = centroids
        self._metric = metric
        self._lock = threading.Lock()
        self._asked = 0
        self._probes = segments.PARTITIONS_MAX
        parts = 0 if centroids is None else len(centroids)
        self._questions = 0
        self._shares = np.zeros(parts)
        self._squares = np.zeros(parts)

    def begin(self) -> Extent:
        """What the next question searches."""
        with self._lock:
            self._asked += 1
            is_recorded = self._centroids is not None and (
                self._questions < _QUESTIONS_MIN or self._asked % _AUDIT_EVERY == 0
            )
            probes = segments.PARTITIONS_MAX if is_recorded else self._probes
            return Extent(probes=probes, is_recorded=is_recorded)

    def record(self, question: VectorQuestion, neighbours: pa.ChunkedArray) -> None:
        """Learn from a question that searched all parts."""
        assert self._centroids is not None
        vectors = _numbers(neighbours.slice(0, question.count), len(question.query))
        query = np.asarray([question.query], dtype=np.float32)
        homes = self._far(vectors).argmin(axis=1)
        ranks = self._far(query)[0].argsort(kind="stable").argsort(kind="stable")
        # The share of the neighbours in the nearest part, in the two nearest parts, and so on.
        parts = np.arange(len(self._centroids))
        shares = np.searchsorted(np.sort(ranks[homes]), parts, side="right") / len(homes)
        with self._lock:
            self._questions += 1
            self._shares += shares
            self._squares += shares**2
            if self._questions >= _QUESTIONS_MIN:
                self._probes = self._enough()
            if self._questions >= _QUESTIONS_MAX:
                self._questions //= 2
                self._shares /= 2
                self._squares /= 2

    def _enough(self) -> int:
        """The fewest parts that find enough of the neighbours of the questions."""
        means = self._shares / self._questions
        variances = np.maximum(0, self._squares / self._questions - means**2)
        margins = _DEVIATIONS * np.sqrt(variances / self._questions)
        is_enough = means - margins >= (1 + _RECALL_MIN) / 2
        probes = int(is_enough.argmax()) + 1
        is_part = bool(is_enough.any()) and probes < len(means)
        return probes if is_part else segments.PARTITIONS_MAX

    def _far(self, vectors: Vectors) -> Vectors:
        """How far vectors are from every centroid, in the order by which Lance takes the parts.

        For cosine that is the order of L2 between unit vectors and centroids, which are shorter.
        """
        assert self._centroids is not None
        directed = _unit(vectors) if self._metric == "cosine" else vectors
        far: Vectors = -(directed @ self._centroids.T)
        if self._metric != "dot":
            far = 2 * far + (self._centroids**2).sum(axis=1)
        return far


def _unit(vectors: Vectors) -> Vectors:
    lengths: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True).astype(np.float32)
    lengths[lengths == 0] = 1
    return vectors / lengths


def _numbers(vectors: pa.ChunkedArray, size: int) -> Vectors:
    flat: Any = np.concatenate(
        [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in vectors.chunks]
    )
    return np.asarray(flat, dtype=np.float32).reshape(-1, size)


_CALIBRATIONS: Final[LruCache[Calibration]] = LruCache(256)
_CENTROIDS: Final[LruCache[tuple[Any]]] = LruCache(16)


def _calibration(
    dataset: LanceDataset, index: _VectorIndex, question: VectorQuestion
) -> Calibration:
    """That of an index, a number of neighbours and a condition."""
    where = question.where
    if where is not None and len(where) > _CONDITION_LETTERS_MAX:
        return Calibration(None, question.metric)
    depth = next((depth for depth in _DEPTHS if question.count <= depth), question.count)
    key = (index.segments, depth, where)
    calibration = _CALIBRATIONS.get(key)
    if calibration is None:
        calibration = Calibration(_read_centroids(dataset, index), question.metric)
        _CALIBRATIONS.keep(key, calibration)
    return calibration


def _read_centroids(dataset: LanceDataset, index: _VectorIndex) -> Vectors | None:
    """The middles of the parts of an index; None if it does not have one list of them."""
    kept = _CENTROIDS.get(index.segments)
    if kept is None:
        parts: list[dict[str, Any]] = dataset.stats.index_stats(index.name)["indices"]
        centroids = parts[0].get("centroids") if len(parts) == 1 else None
        kept = (None if not centroids else np.array(centroids, dtype=np.float32),)
        _CENTROIDS.keep(index.segments, kept)
    vectors: Vectors | None = kept[0]
    return vectors
