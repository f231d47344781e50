"""Full text, vectors and keys, beside the bare call of Lance: `just bench search`.

Texts have few common and many rare words. Each question is asked as a query and as a bare call of
Lance, in turns; some answers are compared with those of a look at every text, and some questions
are asked right after a commit of one row. Vectors are in
clusters, and spread evenly, which no index likes; Lance is asked with its defaults, and with the
fewest probes that find as much as we did. Last, a node and its neighbours are found by key and by
id in a graph that is in memory. Medians of wall and CPU milliseconds after the first questions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any, Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceDataset
from lance.query import MatchQuery, PhraseQuery

import omnigraph_lake as og
from omnigraph_lake.engine.query_result import QueryResult
from omnigraph_lake.engine.search import Corpus, count_holders, count_texts, scores
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.datasets import dataset_uri
from omnigraph_lake.storage.objects.location import parse_root

Vectors = npt.NDArray[np.float32]
Ids = list[str]

BEST: Final = 10
VOCABULARY: Final = 20_000
WORDS_LEAST: Final = 4
WORDS_MOST: Final = 40
PROBES: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256, 512, 1024)
WARM_UP: Final = 110
"""Questions before the clock: the first ones of an index search all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Medians of one side, in milliseconds, and the share of the true answers that it gave."""

    wall_ms: float
    cpu_ms: float
    right: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One kind of question: we and Lance."""

    question: str
    ours: Side
    lance: Side

    @property
    def ratio(self) -> float:
        return self.ours.wall_ms / self.lance.wall_ms

    @property
    def cpu_ratio(self) -> float:
        return self.ours.cpu_ms / self.lance.cpu_ms


def main() -> None:
    options = _options()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    found: list[Measured] = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        if "text" in options.parts:
            found += measure_texts(f"{folder}/texts", options)
        if "vector" in options.parts:
            for name, make in (("clustered", clustered), ("uniform", uniform)):
                found += measure_vectors(f"{folder}/{name}", name, make, options)
        keys = measure_keys(f"{folder}/keys", options) if "key" in options.parts else {}
    print(
        json.dumps(
            {
                "name": "search",
                "rows": options.rows,
                "size": options.size,
                "measured": [
                    {
                        **asdict(each),
                        "ratio": round(each.ratio, 2),
                        "cpu_ratio": round(each.cpu_ratio, 2),
                    }
                    for each in found
                ],
                "keys_ms": keys,
                "load": round(os.getloadavg()[0], 1),
                "versions": {name: version(name) for name in ("duckdb", "pylance", "numpy")},
            }
        )
    )


def show(each: Measured) -> None:
    print(
        f"{each.question:34}"
        f"omnigraph {each.ours.wall_ms:8.2f} ms, CPU {each.ours.cpu_ms:8.2f}, {each.ours.right:.3f}"
        f"   Lance {each.lance.wall_ms:8.2f} ms, CPU {each.lance.cpu_ms:8.2f},"
        f" {each.lance.right:.3f}   ratio {each.ratio:5.2f}, CPU {each.cpu_ratio:5.2f}",
        flush=True,
    )


def in_turns(
    sides: Sequence[Callable[[Any], Ids]], questions: Sequence[Any], *, warm_up: int
) -> list[tuple[list[Ids], float, float]]:
    """The answers of each side, and its median wall and CPU milliseconds."""
    answers: list[list[Ids]] = [[] for _ in sides]
    times: list[list[tuple[float, float]]] = [[] for _ in sides]
    for number, question in enumerate(questions):
        for turn in range(len(sides)):
            # Who asks first reads what the others find in memory.
            at = (number + turn) % len(sides)
            ask = sides[at]
            wall, cpu = time.perf_counter(), time.process_time()
            ids = ask(question)
            took = (time.perf_counter() - wall, time.process_time() - cpu)
            if number >= warm_up:
                answers[at].append(ids)
                times[at].append(took)
    return [
        (
            answers[at],
            round(1000 * statistics.median(wall for wall, _ in times[at]), 3),
            round(1000 * statistics.median(cpu for _, cpu in times[at]), 3),
        )
        for at in range(len(sides))
    ]


def ids_of(graph: Graph, text: str, parameters: dict[str, object]) -> Ids:
    result = graph.query(text, params=parameters)
    assert isinstance(result, QueryResult)
    return [each for batch in result for each in batch.column("id").to_pylist()]


def share(answers: Sequence[Ids], truths: Sequence[Ids]) -> float:
    expected = sum(map(len, truths))
    hits = sum(len(set(a) & set(b)) for a, b in zip(answers, truths, strict=True))
    return round(hits / expected, 4) if expected else 1.0


# Texts


TEXTS: Final = "node Doc { key: String @key  n: I64  text: String @index }"


def random_texts(generator: np.random.Generator, rows: int) -> list[str]:
    drawn = np.minimum(generator.zipf(1.3, (rows, WORDS_MOST)) - 1, VOCABULARY - 1)
    lengths = generator.integers(WORDS_LEAST, WORDS_MOST + 1, rows)
    words = np.array([f"w{number}" for number in range(VOCABULARY)])
    return [
        " ".join(row[:length])
        for row, length in zip(words[drawn].tolist(), lengths.tolist(), strict=True)
    ]


def docs(generator: np.random.Generator, start: int, rows: int) -> pa.Table:
    return pa.table(
        {
            "key": [f"d{number}" for number in range(start, start + rows)],
            "n": pa.array(range(start, start + rows), pa.int64()),
            "text": random_texts(generator, rows),
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextKind:
    """Two words drawn from two ranges, the most frequent ones first; `most` filters rows."""

    name: str
    first: tuple[int, int]
    second: tuple[int, int]
    most: int | None = None
    is_phrase: bool = False


COMMON: Final = (0, 20)
RARE: Final = (200, 5_000)


def measure_texts(root: str, options: argparse.Namespace) -> list[Measured]:
    generator = np.random.default_rng(options.seed)
    graph = og.init(root, schema=TEXTS)
    graph.write({"Doc": docs(generator, 0, options.rows)})
    graph.maintenance.optimize()
    narrow = options.rows // 100
    common = TextKind(name="common words", first=COMMON, second=COMMON)
    rare = TextKind(name="rare words", first=RARE, second=RARE)
    kinds = [
        common,
        rare,
        TextKind(name="a common and a rare word", first=COMMON, second=RARE),
        replace(common, name="common words, filter 1 %", most=narrow),
        replace(rare, name="rare words, filter 1 %", most=narrow),
        replace(common, name="phrase of common words", is_phrase=True),
    ]
    found = [ask_texts(graph, kind, generator, options) for kind in kinds]
    graph.write({"Doc": docs(generator, options.rows, 300)})
    newer = [replace(kind, name=f"{kind.name}, 300 newer") for kind in (common, rare)]
    found += [ask_texts(graph, kind, generator, options) for kind in newer]
    graph.write({"Doc": docs(generator, 0, 100).drop(["n"])}, mode="merge")
    updated = [replace(kind, name=f"{kind.name}, 100 updated") for kind in (common, rare)]
    found += [ask_texts(graph, kind, generator, options) for kind in updated]
    return found + ask_after_commits(graph, (common, rare), generator, options)


COMMITS: Final = 100


def ask_after_commits(
    graph: Graph,
    kinds: Sequence[TextKind],
    generator: np.random.Generator,
    options: argparse.Namespace,
) -> list[Measured]:
    """The first and the second question after each of many commits of one row."""
    root, entry = parse_root(graph.root), graph.snapshot().tables["node:Doc"]
    dataset = lance.dataset(dataset_uri(root, entry.location, entry.fork), version=entry.version)
    text = _best_query("")
    times: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for number in range(COMMITS):
        graph.write({"Doc": docs(generator, options.rows + 1_000 + number, 1)})
        for place in ("first", "second"):
            for kind in kinds:
                words = " ".join(f"w{generator.integers(*kind.first)}" for _ in range(2))

                def by_lance(words: str = words) -> Ids:
                    nonlocal dataset
                    version = graph.snapshot().tables["node:Doc"].version
                    if dataset.version != version:
                        dataset = dataset.checkout_version(version)
                    return best_by_lance(dataset, MatchQuery(words, "text"), None)

                def by_query(words: str = words) -> Ids:
                    return ids_of(graph, text, {"w": words})

                for side, ask in (("ours", by_query), ("lance", by_lance)):
                    wall, cpu = time.perf_counter(), time.process_time()
                    ask()
                    took = (time.perf_counter() - wall, time.process_time() - cpu)
                    times.setdefault((kind.name, place, side), []).append(took)
    measured: list[Measured] = []
    for kind in kinds:
        for place in ("first", "second"):
            ours, bare = (_side(times[kind.name, place, side]) for side in ("ours", "lance"))
            question = f"{kind.name}, {place} after a commit"
            measured.append(Measured(question=question, ours=ours, lance=bare))
            show(measured[-1])
    return measured


def _side(times: Sequence[tuple[float, float]]) -> Side:
    wall, cpu = (round(1000 * statistics.median(part), 3) for part in zip(*times, strict=True))
    return Side(wall_ms=wall, cpu_ms=cpu, right=1.0)


def _best_query(conditions: str) -> str:
    return (
        f"query best($w: String) {{ match {{ $d: Doc {conditions} }} return {{ $d.id as id }}"
        f" order {{ bm25($d.text, $w) }} limit {BEST} }}"
    )


def best_by_lance(dataset: LanceDataset, query: MatchQuery | PhraseQuery, where: str | None) -> Ids:
    scanner = dataset.scanner(
        columns=["id", "_score"],
        full_text_query=query,
        limit=BEST,
        filter=where,
        prefilter=True,
    )
    return list(scanner.to_table().column("id").to_pylist())


def ask_texts(
    graph: Graph, kind: TextKind, generator: np.random.Generator, options: argparse.Namespace
) -> Measured:
    count = options.questions + WARM_UP
    firsts, seconds = (generator.integers(*words, count) for words in (kind.first, kind.second))
    questions = [f"w{one} w{other}" for one, other in zip(firsts, seconds, strict=True)]
    where = None if kind.most is None else f"n < {kind.most}"
    conditions = "" if kind.most is None else f"$d.n < {kind.most}"
    conditions += " match_text($d.text, $w)" if kind.is_phrase else ""
    text = _best_query(conditions)
    root, entry = parse_root(graph.root), graph.snapshot().tables["node:Doc"]
    dataset = cached_dataset(root, entry)
    query = PhraseQuery if kind.is_phrase else MatchQuery

    def by_lance(words: str) -> Ids:
        return best_by_lance(dataset, query(words, "text"), where)

    sides = in_turns(
        [lambda words: ids_of(graph, text, {"w": words}), by_lance], questions, warm_up=WARM_UP
    )
    truths = true_texts(dataset, questions[WARM_UP:], kind)
    ours, bare = (
        Side(wall_ms=wall, cpu_ms=cpu, right=share(answers[: len(truths)], truths))
        for answers, wall, cpu in sides
    )
    assert ours.right == 1.0, f"{kind.name}: an answer is not that of a look at every text"
    measured = Measured(question=kind.name, ours=ours, lance=bare)
    show(measured)
    return measured


def true_texts(dataset: LanceDataset, questions: Sequence[str], kind: TextKind) -> list[Ids]:
    """The best texts of a few questions, by a look at every text."""
    content = dataset.to_table(columns=["id", "n", "text"])
    texts, counts = content.column("text"), count_texts(content.column("text").chunks)
    truths: list[Ids] = []
    for words in questions[:2]:
        corpus = Corpus(counts=counts, holders=count_holders(texts.chunks, words))
        relevance = scores(texts, words, corpus).to_pylist()
        rows = zip(
            relevance,
            content.column("id").to_pylist(),
            content.column("n").to_pylist(),
            texts.to_pylist(),
            strict=True,
        )
        ranked = sorted(
            (-score, entity_id)
            for score, entity_id, n, text in rows
            if score is not None
            and (kind.most is None or n < kind.most)
            and (not kind.is_phrase or f" {words} " in f" {text} ")
        )
        truths.append([entity_id for _, entity_id in ranked[:BEST]])
    return truths


# Vectors


def clustered(generator: np.random.Generator, rows: int, size: int) -> Vectors:
    centres = generator.normal(size=(100, size))
    chosen = centres[generator.integers(0, len(centres), rows)]
    return (chosen + 0.3 * generator.normal(size=(rows, size))).astype(np.float32)


def uniform(generator: np.random.Generator, rows: int, size: int) -> Vectors:
    return generator.random((rows, size)).astype(np.float32)


def measure_vectors(
    root: str,
    name: str,
    make: Callable[[np.random.Generator, int, int], Vectors],
    options: argparse.Namespace,
) -> list[Measured]:
    generator = np.random.default_rng(options.seed)
    rows, size = options.rows, options.size
    vectors = make(generator, rows, size)
    graph = og.init(
        root,
        schema="node Doc { key: String @key  n: I64 "
        f" place: Vector({size}) @index(metric={options.metric}) }}",
    )
    table = pa.table(
        {
            "key": [f"d{number}" for number in range(rows)],
            "n": pa.array(range(rows), pa.int64()),
            "place": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), size),
        }
    )
    for start in range(0, rows, 50_000):
        graph.write({"Doc": table.slice(start, 50_000)})
    graph.maintenance.optimize()
    chosen = vectors[generator.integers(0, rows, options.questions + WARM_UP)]
    queries = (chosen + 0.05 * generator.normal(size=chosen.shape)).astype(np.float32)
    found: list[Measured] = []
    for label, most in (("no filter", rows), ("filter 10 %", rows // 10), ("1 %", rows // 100)):
        found += ask_vectors(graph, f"{name}, {label}", vectors[:most], queries, options)
    return found


def ask_vectors(
    graph: Graph, name: str, vectors: Vectors, queries: Vectors, options: argparse.Namespace
) -> list[Measured]:
    most, size = vectors.shape
    is_filtered = most < options.rows
    condition = f"$d.n < {most}" if is_filtered else ""
    text = (
        f"query near($v: Vector({size})) {{ match {{ $d: Doc {condition} }}"
        f" return {{ $d.id as id }} order {{ nearest($d.place, $v) }} limit {BEST} }}"
    )
    dataset = cached_dataset(parse_root(graph.root), graph.snapshot().tables["node:Doc"])

    def by_lance(query: npt.NDArray[np.float32], **probes: int) -> Ids:
        nearest = {"column": "place", "q": query, "k": BEST, "metric": options.metric, **probes}
        scanner = dataset.scanner(
            columns=["id", "_distance"],
            nearest=nearest,
            filter=f"n < {most}" if is_filtered else None,
            prefilter=True,
        )
        return list(scanner.to_table().column("id").to_pylist())

    def by_query(query: npt.NDArray[np.float32]) -> Ids:
        return ids_of(graph, text, {"v": query.tolist()})

    truths = [true_vectors(vectors, query, options.metric) for query in queries[WARM_UP:]]
    for query in queries[:WARM_UP]:
        by_query(query)
    reached = share([by_query(query) for query in queries[WARM_UP:]], truths)
    enough = next(
        (
            probes
            for probes in PROBES
            if share([by_lance(query, nprobes=probes) for query in queries[WARM_UP:]], truths)
            >= reached
        ),
        PROBES[-1],
    )
    sides = in_turns(
        [by_query, by_lance, lambda query: by_lance(query, nprobes=enough)],
        list(queries[WARM_UP:]),
        warm_up=2,
    )
    ours, default, equal = (
        Side(wall_ms=wall, cpu_ms=cpu, right=share(answers, truths[2:]))
        for answers, wall, cpu in sides
    )
    found = [
        Measured(question=f"{name}, defaults", ours=ours, lance=default),
        Measured(question=f"{name}, {enough} probes", ours=ours, lance=equal),
    ]
    for each in found:
        show(each)
    return found


def true_vectors(vectors: Vectors, query: npt.NDArray[np.float32], metric: str) -> Ids:
    """The nearest in plain numpy, which shares no code with what is measured."""
    wanted = query.astype(np.float64)
    match metric:
        case "l2":
            far = ((vectors - wanted) ** 2).sum(axis=1)
        case "dot":
            far = -(vectors @ wanted)
        case _:
            far = -(vectors @ wanted) / np.linalg.norm(vectors, axis=1)
    return [f"d{number}" for number in np.argsort(far, kind="stable")[:BEST].tolist()]


# Keys


PEOPLE: Final = """
node Person { name: String @key  number: I64 }
edge Follows: Person -> Person
"""
_STARTS: Final = {"key": "name: $k", "id": "id: $k"}


def measure_keys(root: str, options: argparse.Namespace) -> dict[str, float]:
    """A node and its neighbours by key and by id, with the tables in memory."""
    generator = np.random.default_rng(options.seed)
    nodes = options.nodes
    graph = og.init(root, schema=PEOPLE)
    names = np.array([f"p{number}" for number in range(nodes)])
    graph.write({"Person": pa.table({"name": names, "number": pa.array(range(nodes), pa.int64())})})
    starts, ends = (names[generator.integers(0, nodes, nodes)] for _ in range(2))
    ids = [f"f{number}" for number in range(nodes)]
    graph.write({"Follows": pa.table({"id": ids, "src": starts, "dst": ends})})
    graph.maintenance.optimize()
    everything = "query q() { match { $a: Person  $a follows $b } return { count(*) as id } }"
    ids_of(graph, everything, {})
    taken: dict[str, float] = {}
    for start, named in _STARTS.items():
        patterns = {
            f"point by {start}": f"$a: Person {{ {named} }}",
            f"1 hop by {start}": f"$a: Person {{ {named} }}  $a follows $b",
        }
        for name, pattern in patterns.items():
            text = f"query q($k: String) {{ match {{ {pattern} }} return {{ $a.id as id }} }}"
            asked = [str(each) for each in names[generator.integers(0, nodes, 700)]]

            def ask(key: str, text: str = text) -> Ids:
                return ids_of(graph, text, {"k": key})

            ((_, wall, cpu),) = in_turns([ask], asked, warm_up=200)
            taken[name] = wall
            print(f"{name:34}omnigraph {wall:8.3f} ms, CPU {cpu:8.3f}", flush=True)
    return taken


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="texts and vectors")
    parser.add_argument("--size", type=int, default=128, help="numbers of a vector")
    parser.add_argument("--metric", default="l2", choices=["l2", "cosine", "dot"])
    parser.add_argument("--nodes", type=int, default=1_000_000, help="nodes looked up by key")
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--scratch", default=None, help="where graphs are made")
    parser.add_argument("--parts", nargs="+", default=["text", "vector", "key"])
    return parser.parse_args()


if __name__ == "__main__":
    main()
