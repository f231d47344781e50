"""How near `nearest` and `rrf` come to brute force, and how fast: `just bench search`.

Vectors in clusters, and vectors spread evenly, which no index likes. For each, the ten nearest by
the index, without a filter and with filters that keep a tenth, a hundredth and a thousandth of the
rows, beside a look at every row; the time of each beside the bare call of Lance; and `rrf` of
vectors and words, its two arms through the indexes, beside both arms by brute force. Last, the same
questions as queries, whichever way the executor answers them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Final, TypeVar, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import omnigraph
from omnigraph.engine.access.index_access import nearest_candidates, text_candidates
from omnigraph.engine.query_result import QueryResult
from omnigraph.engine.search import (
    Corpus,
    TextCounts,
    count_holders,
    count_texts,
    distances,
    scores,
)
from omnigraph.graph import Graph
from omnigraph.query.expressions import TextSearchKind
from omnigraph.query.plan import vector_arm_depth
from omnigraph.schema.catalog import VectorMetric
from omnigraph.storage.indexes.search import VectorQuestion
from omnigraph.storage.lance.tables import open_pinned
from omnigraph.storage.objects.location import Root, parse_root
from omnigraph.storage.snapshot import TableEntry

Vectors = npt.NDArray[np.float32]
T = TypeVar("T")

NEAREST: Final = 10
FUSION_K: Final = 60
FILTERS: Final = {"no filter": 1.0, "10 %": 0.1, "1 %": 0.01, "0.1 %": 0.001}
VOCABULARY: Final = 20_000
WORDS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One kind of search: recall and median milliseconds by each way to do it."""

    data: str
    metric: str
    search: str
    recall: float
    recall_without_index: float
    recall_of_query: float
    index_ms: float
    query_ms: float
    every_row_ms: float
    lance_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A graph with indexes, its columns in memory, and the questions."""

    graph: Graph
    root: Root
    entry: TableEntry
    metric: VectorMetric
    ids: pa.ChunkedArray
    places: pa.ChunkedArray
    chances: npt.NDArray[np.float64]
    texts: pa.ChunkedArray
    queries: Vectors
    words: list[str]


def main() -> None:
    options = _options()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    found: list[Measured] = []
    for data, vectors in (("clustered", clustered), ("uniform", uniform)):
        for metric in options.metrics:
            with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
                generator = np.random.default_rng(options.seed)
                bench = build(f"{folder}/graph", metric, vectors, generator, options)
                for label, share in FILTERS.items():
                    found.append(measure_nearest(bench, data, label, share))
                    show(found[-1])
                found.append(measure_fusion(bench, data))
                show(found[-1])
    print(
        json.dumps(
            {
                "name": "search",
                "recall": round(min(each.recall for each in found), 4),
                "recall_without_index": min(each.recall_without_index for each in found),
                "recall_of_query": min(each.recall_of_query for each in found),
                "rows": options.rows,
                "size": options.size,
                "measured": [asdict(each) for each in found],
                "load": round(os.getloadavg()[0], 1),
                "versions": {name: version(name) for name in ("duckdb", "pylance", "numpy")},
            }
        )
    )


def show(each: Measured) -> None:
    lance_ms = "" if each.lance_ms is None else f"{each.lance_ms:8.1f} ms Lance alone"
    print(
        f"{each.data:10}{each.metric:8}{each.search:19}"
        f"recall {each.recall:.3f}{each.index_ms:8.1f} ms index"
        f"{each.every_row_ms:8.1f} ms every row"
        f"   recall {each.recall_of_query:.3f}{each.query_ms:8.1f} ms query{lance_ms}",
        flush=True,
    )


def clustered(generator: np.random.Generator, rows: int, size: int) -> Vectors:
    centres = generator.normal(size=(100, size))
    chosen = centres[generator.integers(0, len(centres), rows)]
    return (chosen + 0.3 * generator.normal(size=(rows, size))).astype(np.float32)


def uniform(generator: np.random.Generator, rows: int, size: int) -> Vectors:
    return generator.random((rows, size)).astype(np.float32)


def build(
    root: str,
    metric: str,
    make: Callable[[np.random.Generator, int, int], Vectors],
    generator: np.random.Generator,
    options: argparse.Namespace,
) -> Bench:
    rows, size = options.rows, options.size
    schema = (
        f"node Doc {{ key: String @key  chance: F64  text: String @index"
        f"  place: Vector({size}) @index(metric={metric}) }}"
    )
    vectors = make(generator, rows, size)
    vocabulary = [f"w{number}" for number in range(VOCABULARY)]
    # Few words are common and most are rare, as in texts.
    drawn = np.minimum(generator.zipf(1.3, (rows, WORDS)) - 1, VOCABULARY - 1)
    table = pa.table(
        {
            "key": [f"d{number}" for number in range(rows)],
            "chance": generator.random(rows),
            "text": [" ".join(vocabulary[each] for each in row) for row in drawn],
            "place": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), size),
        }
    )
    graph = omnigraph.init(root, schema=schema)
    for start in range(0, rows, 50_000):
        graph.write({"Doc": table.slice(start, 50_000)})
    graph.maintenance.optimize()
    chosen = vectors[generator.integers(0, rows, options.questions)]
    noise = 0.05 * generator.normal(size=chosen.shape)
    pairs = generator.integers(20, 2_000, (options.questions, 2))
    entry = graph.snapshot().tables["node:Doc"]
    content = open_pinned(parse_root(graph.root), entry).to_table()
    return Bench(
        graph=graph,
        root=parse_root(graph.root),
        entry=entry,
        metric=VectorMetric(metric),
        ids=content.column("id"),
        places=content.column("place"),
        chances=content.column("chance").to_numpy(),
        texts=content.column("text"),
        queries=(chosen + noise).astype(np.float32),
        words=[f"w{one} w{other}" for one, other in pairs],
    )


def measure_nearest(bench: Bench, data: str, label: str, share: float) -> Measured:
    where = None if share == 1.0 else f"chance < {share}"
    kept = np.flatnonzero(bench.chances < share)
    truths = [truth(bench, query, kept)[:NEAREST] for query in bench.queries]

    def by_index(query: npt.NDArray[np.float32]) -> list[str]:
        found = nearest_candidates(bench.root, bench.entry, question(bench, query, NEAREST, where))
        if found is None:
            return by_hand(bench, query, kept)[:NEAREST]
        return list(found.column("id").to_pylist()[:NEAREST])

    dataset = open_pinned(bench.root, bench.entry)

    def by_lance(query: npt.NDArray[np.float32]) -> list[str]:
        table = dataset.scanner(
            columns=["id", "_distance"],
            nearest={
                "column": "place",
                "q": query,
                "k": NEAREST,
                "metric": bench.metric.value,
                "minimum_nprobes": 1024,
            },
            filter=where,
            prefilter=True,
        ).to_table()
        return list(table.column("id").to_pylist())

    indexed, index_ms = timed(by_index, bench.queries)
    exact, every_ms = timed(lambda query: by_hand(bench, query, kept)[:NEAREST], bench.queries)
    _, lance_ms = timed(by_lance, bench.queries)
    text = nearest_query(bench, share)
    answered, query_ms = timed(
        lambda query: ids_of(bench.graph, text, {"v": query.tolist()}), bench.queries
    )
    return Measured(
        data=data,
        metric=bench.metric.value,
        search=f"nearest {label}",
        recall=recall(indexed, truths),
        recall_without_index=recall(exact, truths),
        recall_of_query=recall(answered, truths),
        index_ms=index_ms,
        query_ms=query_ms,
        every_row_ms=every_ms,
        lance_ms=lance_ms,
    )


def nearest_query(bench: Bench, share: float) -> str:
    size = bench.places.type.list_size
    condition = "" if share == 1.0 else f"$d.chance < {share}"
    return (
        f"query near($v: Vector({size})) {{ match {{ $d: Doc {condition} }}"
        f" return {{ $d.id as id }} order {{ nearest($d.place, $v) }} limit {NEAREST} }}"
    )


def ids_of(graph: Graph, text: str, parameters: dict[str, object]) -> list[str]:
    result = graph.query(text, params=parameters)
    assert isinstance(result, QueryResult)
    return [each for batch in result for each in batch.column("id").to_pylist()]


def question(
    bench: Bench, query: npt.NDArray[np.float32], count: int, where: str | None
) -> VectorQuestion:
    return VectorQuestion(
        column="place",
        query=tuple(map(float, query)),
        metric=bench.metric.value,
        count=count,
        where=where,
    )


def truth(bench: Bench, query: npt.NDArray[np.float32], kept: npt.NDArray[np.int64]) -> list[str]:
    """The nearest in plain numpy, which shares no code with what is measured."""
    flat = bench.places.combine_chunks().flatten().to_numpy()
    vectors = flat.reshape(len(bench.places), -1)[kept].astype(np.float64)
    wanted = query.astype(np.float64)
    match bench.metric:
        case VectorMetric.L2:
            far = np.linalg.norm(vectors - wanted, axis=1)
        case VectorMetric.DOT:
            far = 1 - vectors @ wanted
        case VectorMetric.COSINE:
            far = 1 - vectors @ wanted / np.linalg.norm(vectors, axis=1) / np.linalg.norm(wanted)
        case _:
            assert_never(bench.metric)
    first = kept[np.argsort(far, kind="stable")[: vector_arm_depth(NEAREST)]]
    return list(bench.ids.take(pa.array(first)).to_pylist())


def by_hand(bench: Bench, query: npt.NDArray[np.float32], kept: npt.NDArray[np.int64]) -> list[str]:
    places = bench.places if len(kept) == len(bench.ids) else bench.places.take(pa.array(kept))
    far = distances(places, tuple(map(float, query)), bench.metric).to_numpy()
    first = kept[np.argsort(far, kind="stable")[: vector_arm_depth(NEAREST)]]
    return list(bench.ids.take(pa.array(first)).to_pylist())


def measure_fusion(bench: Bench, data: str) -> Measured:
    """Both arms through indexes beside both by a look at every row."""
    counts = count_texts(bench.texts.chunks)
    everything = np.arange(len(bench.ids))
    depth = vector_arm_depth(NEAREST)
    places = {each: at for at, each in enumerate(bench.ids.to_pylist())}

    def words_arm(words: str, *, with_index: bool) -> list[str]:
        if not with_index:
            return by_words(bench, words, counts, everything)
        kind = TextSearchKind.ANY_TOKEN
        candidates = text_candidates(bench.root, bench.entry, "text", kind, words)
        if candidates is None:
            return by_words(bench, words, counts, everything)
        return by_words(
            bench, words, counts, np.array([places[each] for each in candidates.to_pylist()])
        )

    def fused(pair: tuple[npt.NDArray[np.float32], str], *, with_index: bool) -> list[str]:
        query, words = pair
        near: list[str] | None = None
        if with_index:
            found = nearest_candidates(bench.root, bench.entry, question(bench, query, depth, None))
            near = None if found is None else found.column("id").to_pylist()
        near = by_hand(bench, query, everything) if near is None else near
        return fuse(near[:depth], words_arm(words, with_index=with_index))

    pairs = list(zip(bench.queries, bench.words, strict=True))
    indexed, index_ms = timed(lambda pair: fused(pair, with_index=True)[:NEAREST], pairs)
    exact, every_ms = timed(lambda pair: fused(pair, with_index=False)[:NEAREST], pairs)
    truths = [plain_fusion(bench, query, words) for query, words in pairs]
    text = (
        f"query both($v: Vector({bench.places.type.list_size}), $w: String) {{ match {{ $d: Doc }}"
        " return { $d.id as id }"
        f" order {{ rrf(nearest($d.place, $v), bm25($d.text, $w)) }} limit {NEAREST} }}"
    )
    answered, query_ms = timed(
        lambda pair: ids_of(bench.graph, text, {"v": pair[0].tolist(), "w": pair[1]}), pairs
    )
    return Measured(
        data=data,
        metric=bench.metric.value,
        search="rrf",
        recall=recall(indexed, truths),
        recall_without_index=recall(exact, truths),
        recall_of_query=recall(answered, truths),
        index_ms=index_ms,
        query_ms=query_ms,
        every_row_ms=every_ms,
        lance_ms=None,
    )


def by_words(
    bench: Bench, words: str, counts: TextCounts, rows: npt.NDArray[np.int64]
) -> list[str]:
    """The rows that hold a word, the most relevant ones first."""
    texts = bench.texts if len(rows) == len(bench.texts) else bench.texts.take(pa.array(rows))
    corpus = Corpus(counts=counts, holders=count_holders(texts.chunks, words))
    relevance = scores(texts, words, corpus)
    there = relevance.is_valid().to_numpy(zero_copy_only=False)
    ids = bench.ids.take(pa.array(rows[there])).to_pylist()
    best = sorted(zip((-relevance.drop_null().to_numpy()).tolist(), ids, strict=True))
    return [each for _, each in best]


def plain_fusion(bench: Bench, query: npt.NDArray[np.float32], words: str) -> list[str]:
    """The first of a fusion by brute force: all distances in numpy, all texts."""
    everything = np.arange(len(bench.ids))
    texts = by_words(bench, words, count_texts(bench.texts.chunks), everything)
    return fuse(truth(bench, query, everything), texts)[:NEAREST]


def fuse(*arms: list[str]) -> list[str]:
    ranks: dict[str, float] = {}
    for arm in arms:
        for rank, each in enumerate(arm, start=1):
            ranks[each] = ranks.get(each, 0.0) + 1 / (FUSION_K + rank)
    return [each for each, _ in sorted(ranks.items(), key=lambda one: (-one[1], one[0]))]


def timed(
    search: Callable[[T], list[str]], questions: list[T] | npt.NDArray[np.float32]
) -> tuple[list[list[str]], float]:
    """The answers, and the median milliseconds of one after the first."""
    answers, taken = [], []
    for each in questions:
        began = time.perf_counter()
        answers.append(search(each))
        taken.append(1000 * (time.perf_counter() - began))
    return answers, round(statistics.median(taken[1:]), 2)


def recall(answers: list[list[str]], truths: list[list[str]]) -> float:
    """The share of the true answers that were given; 1 if there are none."""
    expected = sum(map(len, truths))
    matching = sum(len(set(a) & set(b)) for a, b in zip(answers, truths, strict=True))
    return round(matching / expected, 4) if expected else 1.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--metrics", nargs="+", default=["l2", "cosine", "dot"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
