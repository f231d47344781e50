"""Search indexes find what a look at every row finds."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.engine.access import access_path, index_access
from omnigraph_lake.engine.access.index_access import (
    nearest_candidates,
    text_candidates,
    word_candidates,
)
from omnigraph_lake.engine.search import tokens
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.expressions import TextSearchKind
from omnigraph_lake.schema.catalog import VectorMetric
from omnigraph_lake.storage.indexes import segments, vector_search
from omnigraph_lake.storage.indexes.vector_search import Calibration, VectorQuestion
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.snapshot import TableEntry
from tests.gate.seeds import case_seeds, examples
from tests.query import text_search

pytestmark = pytest.mark.unit

SCHEMA = """
node Note {
    key: String @key
    text: String? @index
    place: Vector(4)? @index(metric=METRIC)
}
"""
WORDS = [
    *("graph", "Graphs", "GRAPH", "grpah", "tables", "table", "naïve", "Straße", "STRASSE", "x1"),
    *("\u212aelvin", "kelvin", "İstanbul", "istanbul", "ΟΔΟΣ", "οδος", "日本語", "the", "running"),
    *("3", "14", "e\u0301t", "état", "ß", "ẞ", "²", "½"),
]
GAPS = [" ", " ", " ", "-", "_", ", ", "'", ".", "\n", " 日本 ", "é"]


def random_text(generator: random.Random) -> str:
    count = generator.randrange(9)
    pieces = [generator.choice(WORDS) + generator.choice(GAPS) for _ in range(count)]
    return "".join(pieces) + (f" w{generator.randrange(300)}" if count else "")


def note(key: int, text: str | None, place: Any = None) -> dict[str, Any]:
    return {"key": f"n{key}", "text": text, "place": place}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_access, "_TEXT_ROWS_MIN", 0)
    monkeypatch.setattr(index_access, "_TEXT_SHARE", 1)
    monkeypatch.setattr(index_access, "_VECTOR_NUMBERS_MIN", 0)


def graph_of(root: str, notes: list[dict[str, Any]], metric: str = "l2") -> Graph:
    graph = og.init(root, schema=SCHEMA.replace("METRIC", metric))
    graph.write({"Note": notes})
    graph.maintenance.optimize()
    return graph


def root_of(graph: Graph) -> Root:
    return parse_root(graph.root)


def entry_of(graph: Graph) -> TableEntry:
    return graph.snapshot().tables["node:Note"]


@pytest.fixture
def edited(graph_root: str) -> tuple[Graph, dict[str, str | None]]:
    """Texts of which some came, went or changed after they were indexed."""
    generator = random.Random(5)
    texts: dict[str, str | None] = {
        f"n{number}": None if number % 50 == 0 else random_text(generator) for number in range(600)
    }
    graph = graph_of(graph_root, [note(int(k[1:]), text) for k, text in texts.items()])
    graph.delete({"Note": ["n1", "n2"]})
    later = {f"n{number}": random_text(generator) for number in (*range(3, 20), *range(600, 640))}
    graph.write({"Note": [note(int(k[1:]), text) for k, text in later.items()]}, mode="merge")
    return graph, {**{k: v for k, v in texts.items() if k not in ("n1", "n2")}, **later}


def expected(kind: TextSearchKind, text: str | None, query: str, edits: int) -> bool:
    if text is None:
        return False
    tests = {
        TextSearchKind.ANY_TOKEN: lambda: text_search.any_token(text, query),
        TextSearchKind.PHRASE: lambda: text_search.has_phrase(text, query),
        TextSearchKind.FUZZY: lambda: text_search.is_fuzzy(text, query, edits),
    }
    return tests[kind]()


def random_question(generator: random.Random, texts: list[str]) -> str:
    tokens = text_search.tokens(generator.choice(texts)) or ["none"]
    at = generator.randrange(len(tokens))
    word = generator.choice([*tokens, "graph", "tabel", f"w{generator.randrange(300)}"])
    return generator.choice([word, " ".join(tokens[at : at + generator.randrange(1, 4)])])


@pytest.mark.random
def test_text_candidates_hold_every_text_that_matches(
    edited: tuple[Graph, dict[str, str | None]],
) -> None:
    graph, texts = edited
    held = [each for each in texts.values() if each]
    root, entry, asked = root_of(graph), entry_of(graph), 0
    questions = case_seeds("text-candidates", examples(30))
    for seed in questions:
        generator = random.Random(seed)
        kind, edits = generator.choice(list(TextSearchKind)), generator.randrange(3)
        query = random_question(generator, held)

        found = text_candidates(root, entry, "text", kind, query, edits)

        if found is not None:
            asked += 1
            wanted = {k for k, text in texts.items() if expected(kind, text, query, edits)}
            assert wanted <= set(found.to_pylist()), (kind, query, edits)
            assert set(found.to_pylist()) <= set(texts)
    assert asked > len(questions) // 3


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("日本語", TextSearchKind.ANY_TOKEN),
        ("graph οδος", TextSearchKind.ANY_TOKEN),
        ("İstanbul", TextSearchKind.PHRASE),
        ("ab", TextSearchKind.FUZZY),
        ("a" * 40, TextSearchKind.FUZZY),
    ],
)
def test_an_index_is_not_asked_what_it_may_not_know(
    edited: tuple[Graph, dict[str, str | None]], query: str, kind: TextSearchKind
) -> None:
    graph, _ = edited

    assert text_candidates(root_of(graph), entry_of(graph), "text", kind, query, 2) is None


def test_a_token_is_looked_for_as_it_is(graph_root: str) -> None:
    graph = graph_of(graph_root, [note(1, "İstanbul"), note(2, "i stanbul"), note(3, "graph")])
    (dotted,) = tokens("İstanbul")

    found = word_candidates(root_of(graph), entry_of(graph), "text", "graph")

    assert found is not None
    assert found.to_pylist() == ["n3"]
    assert word_candidates(root_of(graph), entry_of(graph), "text", dotted) is None


def test_a_query_without_tokens_finds_nothing(
    edited: tuple[Graph, dict[str, str | None]],
) -> None:
    graph, _ = edited

    for kind in TextSearchKind:
        found = text_candidates(root_of(graph), entry_of(graph), "text", kind, " _-", 1)
        assert found is not None
        assert len(found) == 0


def test_a_word_of_most_texts_is_not_worth_an_index(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(graph_root, [note(n, f"all w{n}") for n in range(200)])
    monkeypatch.setattr(index_access, "_TEXT_SHARE", 10)

    common = text_candidates(
        root_of(graph), entry_of(graph), "text", TextSearchKind.ANY_TOKEN, "all"
    )
    rare = text_candidates(root_of(graph), entry_of(graph), "text", TextSearchKind.ANY_TOKEN, "w7")

    assert common is None
    assert rare is not None
    assert rare.to_pylist() == ["n7"]


def test_without_an_index_every_row_is_looked_at(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA.replace("METRIC", "l2"))
    graph.write({"Note": [note(n, f"w{n}", [float(n), 0, 0, 0]) for n in range(50)]})

    entry = entry_of(graph)

    assert text_candidates(root_of(graph), entry, "text", TextSearchKind.ANY_TOKEN, "w7") is None
    assert nearest_candidates(root_of(graph), entry, question((0.0, 0, 0, 0), "l2", 3)) is None


# Vectors


def question(
    query: tuple[float, ...], metric: str, count: int, where: str | None = None
) -> VectorQuestion:
    return VectorQuestion(
        column="place", query=query, metric=metric, count=count, where=where, columns=("id",)
    )


@pytest.mark.parametrize("metric", [each.value for each in VectorMetric])
def test_near_rows_are_those_by_the_metric(graph_root: str, metric: str) -> None:
    generator = np.random.default_rng(1)
    places = {f"n{n}": generator.normal(size=4).astype("f4").tolist() for n in range(400)}
    places["n7"] = [0.0] * 4
    notes = [note(int(k[1:]), None, place) for k, place in places.items()]
    graph = graph_of(graph_root, [*notes, note(400, None)], metric)
    graph.delete({"Note": ["n3"]})
    del places["n3"]
    places["n500"] = [1.0, 0.9, 0.8, 0.7]
    graph.write({"Note": [note(500, None, places["n500"])]})
    query = (1.0, 1.0, 1.0, 0.5)

    found = nearest_candidates(root_of(graph), entry_of(graph), question(query, metric, 20))

    assert found is not None
    measured = {
        key: text_search.distance(VectorMetric(metric), place, query)
        for key, place in places.items()
    }
    wanted = sorted((far, key) for key, far in measured.items() if far is not None)
    ids = found["id"].to_pylist()
    assert {key for _, key in wanted[:20]} <= set(ids)
    assert all(measured[key] is not None for key in ids)
    assert "n500" in found["id"].to_pylist()


def test_a_filter_that_few_rows_pass_does_not_starve_the_search(graph_root: str) -> None:
    generator = np.random.default_rng(1)
    notes = [note(n, None, generator.normal(size=4).astype("f4").tolist()) for n in range(2000)]
    graph = graph_of(graph_root, notes)

    found = nearest_candidates(
        root_of(graph),
        entry_of(graph),
        question((0.0, 0.0, 0.0, 0.0), "l2", 5, "id in ('n1', 'n50', 'n400', 'n999', 'n1500')"),
    )

    assert found is not None
    assert set(found["id"].to_pylist()) == {"n1", "n50", "n400", "n999", "n1500"}


@pytest.mark.parametrize("share", [1.0, 0.1, 0.01])
def test_an_index_is_searched_as_far_as_answers_need(
    graph_root: str, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(segments, "_ROWS_PER_PARTITION", 100)
    monkeypatch.setattr(vector_search, "_QUESTIONS_MIN", 20)
    places = np.random.default_rng(1).random((4000, 4)).astype("f4")
    notes = [note(n, f"{n % 100:02}", place.tolist()) for n, place in enumerate(places)]
    graph = graph_of(graph_root, notes)
    root, entry = root_of(graph), entry_of(graph)
    kept = np.flatnonzero(np.arange(4000) % 100 < 100 * share)

    hits = 0
    for query in np.random.default_rng(2).random((60, 4)):
        near = question(tuple(map(float, query)), "l2", 10, f"text < '{100 * share:02.0f}'")
        found = nearest_candidates(
            root, entry, near if share < 1 else question(near.query, "l2", 10)
        )
        far = ((places[kept] - query) ** 2).sum(axis=1)
        wanted = {f"n{each}" for each in kept[np.argsort(far)[:10]]}
        assert found is not None
        hits += len(wanted & set(found["id"].to_pylist()[:10]))

    assert hits >= 0.98 * 600


def line_of(count: int) -> Calibration:
    """That of an index whose parts are around 0, 1, 2 and so on."""
    return Calibration(np.arange(count, dtype=np.float32).reshape(-1, 1), "l2")


def neighbours_at(*places: float) -> pa.ChunkedArray:
    numbers = pa.array(places, pa.float32())
    return pa.chunked_array([pa.FixedSizeListArray.from_arrays(numbers, 1)])


def test_as_many_parts_are_searched_as_hold_the_neighbours_of_earlier_questions() -> None:
    calibration = line_of(20)
    near = VectorQuestion(column="place", query=(4.4,), metric="l2", count=4)

    for _ in range(vector_search._QUESTIONS_MIN):
        extent = calibration.begin()
        assert extent.is_recorded
        assert extent.probes == segments.PARTITIONS_MAX
        # The parts around 4, 5, 3 and 6 are the nearest ones, in this order.
        calibration.record(near, neighbours_at(4.1, 4.3, 3.4, 4.6))
    asked = [calibration.begin() for _ in range(vector_search._AUDIT_EVERY)]

    assert {extent.probes for extent in asked} == {3, segments.PARTITIONS_MAX}
    assert sum(extent.is_recorded for extent in asked) == 1, "one of many is recorded still"
    for _ in range(50):
        calibration.record(near, neighbours_at(4.1, 9.1, 9.2, 9.3))
    assert {calibration.begin().probes for _ in range(2)} == {10}


def test_neighbours_in_all_parts_need_all_of_them() -> None:
    calibration = line_of(4)
    near = VectorQuestion(column="place", query=(0.0,), metric="l2", count=4)

    for _ in range(vector_search._QUESTIONS_MIN):
        calibration.record(near, neighbours_at(0, 1, 2, 3))

    assert calibration.begin().probes == segments.PARTITIONS_MAX


@pytest.mark.parametrize("metric", [each.value for each in VectorMetric])
def test_few_parts_find_what_their_centroids_promise(
    graph_root: str, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    """The parts of neighbours are computed from centroids; Lance must search the same parts."""
    monkeypatch.setattr(segments, "_ROWS_PER_PARTITION", 50)
    monkeypatch.setattr(vector_search, "_QUESTIONS_MIN", 1)
    places = np.random.default_rng(1).normal(size=(1500, 4)).astype("f4")
    graph = graph_of(
        graph_root, [note(n, None, place.tolist()) for n, place in enumerate(places)], metric
    )
    root, entry = root_of(graph), entry_of(graph)
    few = 0
    for query in np.random.default_rng(2).normal(size=(12, 4)):
        vector_search._CALIBRATIONS.clear()
        near = question(tuple(map(float, query)), metric, 10)
        best, again = (nearest_candidates(root, entry, near) for _ in range(2))
        assert best is not None
        assert again is not None
        assert set(best["id"].to_pylist()[:10]) <= set(again["id"].to_pylist())
        ((calibration, _),) = vector_search._CALIBRATIONS._values.values()
        few += calibration._probes < segments.PARTITIONS_MAX
    assert few > 6


def test_a_condition_that_leaves_too_few_rows_in_few_parts_raises_their_number(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few parts are enough for one query, and hold too few rows of the condition for another."""
    monkeypatch.setattr(segments, "_ROWS_PER_PARTITION", 100)
    monkeypatch.setattr(vector_search, "_QUESTIONS_MIN", 4)
    # Two groups so far from each other that no part of the index has vectors of both.
    places = np.random.default_rng(1).random((2000, 4)).astype("f4") / 10
    places[200:, 0] += 0.9
    notes = [
        note(n, "in" if place[0] < 0.1 else "out", place.tolist()) for n, place in enumerate(places)
    ]
    graph = graph_of(graph_root, notes)
    kept = np.flatnonzero(places[:, 0] < 0.1)

    for first in [0.05] * 6 + [0.95] * 3:
        query = (first, 0.05, 0.05, 0.05)
        found = nearest_candidates(
            root_of(graph), entry_of(graph), question(query, "l2", 10, "text = 'in'")
        )
        far = ((places[kept] - np.array(query)) ** 2).sum(axis=1)
        assert found is not None
        assert {f"n{each}" for each in kept[np.argsort(far)[:10]]} <= set(found["id"].to_pylist())


def test_an_exact_search_asks_no_index(graph_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = [note(n, None, [float(n), 1, 1, 1]) for n in range(100)]
    graph = graph_of(graph_root, notes)
    asked: list[VectorQuestion] = []

    def recorded(root: Root, entry: TableEntry, near: VectorQuestion) -> Any:
        asked.append(near)
        return nearest_candidates(root, entry, near)

    monkeypatch.setattr(index_access, "nearest_candidates", recorded)
    monkeypatch.setattr(access_path, "_SMALL_ROWS", 0)
    for exact, count in ((", exact", 0), ("", 1)):
        text = (
            'query q() { match { $d: Note  $d.key != "n3" } return { $d.id as id, $d.key as key }'
            f" order {{ nearest($d.place, [3.2, 1, 1, 1]{exact}) }} limit 3 }}"
        ).replace('  $d.key != "n3"', "" if count else '  $d.key != "n3"')

        rows = graph.query(text).to_pylist()

        assert [row["id"] for row in rows] == (["n3", "n4", "n2"] if count else ["n4", "n2", "n5"])
        assert len(asked) == count


def test_fewer_rows_than_asked_for_are_left_to_a_look_at_every_row(graph_root: str) -> None:
    notes = [note(n, None, [float(n), 1, 1, 1] if n < 5 else None) for n in range(100)]
    graph = graph_of(graph_root, notes)

    found = nearest_candidates(root_of(graph), entry_of(graph), question((0.0, 0, 0, 0), "l2", 6))

    assert found is None


def test_another_metric_than_that_of_the_index_is_not_asked(graph_root: str) -> None:
    notes = [note(n, None, [float(n), 1, 1, 1]) for n in range(100)]
    graph = graph_of(graph_root, notes, "l2")

    found = nearest_candidates(root_of(graph), entry_of(graph), question((0.0, 0, 0, 1), "dot", 6))

    assert found is None
