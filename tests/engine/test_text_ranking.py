"""The best texts through an index are those of the evaluator, whatever was written since."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import pytest

import omnigraph_lake as og
from omnigraph_lake.engine.access import index_access, text_ranking
from omnigraph_lake.engine.query import run_query
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.storage.objects.location import parse_root
from tests.drawing import seeds
from tests.query.differential import LIMITS
from tests.query.evaluator import EPOCH, evaluate
from tests.query.random_graphs import plain_graph
from tests.stores import root_at

pytestmark = pytest.mark.unit

SCHEMA = "node Note { key: String @key  n: I32  text: String? @index }"
WORDS: Final = ["a", "b", "B", "c", "d", "e", "é", "f1", "rare"]
GAPS: Final = [" ", " ", ", ", "-", "\n"]
CONDITIONS: Final = [
    *("", "", "", "$d.n < 40", "$d.n in [1, 5, 9, 70]", '$d.key = "n7"'),
    *('match_text($d.text, "a b")', 'match_text($d.text, "b a")  $d.n < 60'),
    *("match_text($d.text, $w)", "match_text($d.text, $w)  $d.n < 60"),
    *('search($d.text, "c")', 'fuzzy($d.text, "rarer", 1)', "$d.n % 2 = 0", "$d.text is not null"),
]


class Asked:
    """How often the index gave the best texts."""

    def __init__(self) -> None:
        self.by_index = 0
        self.asked = 0

    def best_texts(self, *question: Any) -> text_ranking.BestTexts | None:
        found = text_ranking.best_texts(*question)
        self.asked += 1
        self.by_index += found is not None
        return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    recorder = Asked()
    monkeypatch.setattr(index_access, "_TEXT_ROWS_MIN", 0)
    monkeypatch.setattr(index_access, "best_texts", recorder.best_texts)
    return recorder


def random_text(generator: random.Random) -> str | None:
    if generator.random() < 0.08:
        return generator.choice([None, "", " - "])
    words = [WORDS[int(len(WORDS) * generator.random() ** 2)] for _ in range(1, 8)]
    return "".join(
        word + generator.choice(GAPS) for word in words[: generator.choice([1, 2, 2, 3, 5, 7])]
    )


def notes(generator: random.Random, numbers: range | list[int]) -> list[dict[str, Any]]:
    return [
        {"key": f"n{number}", "n": number, "text": random_text(generator)} for number in numbers
    ]


def written(folder: Path, generator: random.Random) -> Graph:
    """A graph whose index is older than some of its texts, and knows some that are gone."""
    graph = og.init(root_at(folder / "graph"), schema=SCHEMA)
    count = generator.choice([30, 50, 80])
    graph.write({"Note": notes(generator, range(count))})
    if generator.random() < 0.5:
        graph.delete({"Note": [f"n{number}" for number in range(0, count, 9)]})
    graph.maintenance.optimize()
    for step in range(generator.randrange(4)):
        match generator.randrange(3):
            case 0:
                graph.write({"Note": notes(generator, range(1000 + step * 10, 1005 + step * 10))})
            case 1:
                changed = [number for number in generator.sample(range(count), 4) if number % 9]
                graph.write({"Note": notes(generator, changed)}, mode="merge")
            case _:
                gone = generator.sample(range(1, count, 9), 2)
                graph.delete({"Note": [f"n{number}" for number in gone]})
                graph.write({"Note": notes(generator, gone)})
    return graph


def random_question(generator: random.Random) -> tuple[str, dict[str, Any]]:
    words = " ".join(generator.choice([*WORDS, "none"]) for _ in range(generator.randrange(1, 4)))
    limit, offset = generator.choice([1, 2, 3, 10, 200]), generator.choice([0, 0, 0, 2])
    text = (
        f"query best($w: String) {{ match {{ $d: Note  {generator.choice(CONDITIONS)} }}"
        " return { $d.id as id, $d.n as n, bm25($d.text, $w) as score }"
        f" order {{ score, $d.n desc }} limit {limit} offset {offset} }}"
    )
    return text, {"w": words}


def assert_answered_as_defined(graph: Graph, text: str, given: dict[str, Any]) -> None:
    catalog = graph.schema.catalog
    (typed,) = compile_queries(text, catalog=catalog, filename="best.gq").values()
    plan = plan_query(typed, catalog)
    assert not isinstance(plan, Mutation)
    parameters = bind(typed, given, now=EPOCH)
    expected = evaluate(typed, catalog, plain_graph(graph), parameters.values).rows
    answer = run_query(
        plan,
        root=parse_root(graph.root),
        snapshot=graph.snapshot().pinned,
        catalog=catalog,
        parameters=parameters,
        limits=LIMITS,
        access="probe",
    )
    found = [row for batch in answer.batches() for row in batch.to_pylist()]
    assert found == [dict(row) for row in expected], (text, given)


@pytest.mark.random
@pytest.mark.parametrize("spare", [0, 6])
@pytest.mark.parametrize("seed", seeds("ranked texts", 2))
def test_the_best_texts_are_those_of_the_evaluator(
    seed: str, spare: int, tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_ranking, "_SPARE", spare)
    monkeypatch.setattr(text_ranking, "_FETCHED_MAX", 32)
    monkeypatch.setattr(text_ranking, "_PHRASE_ROWS_MAX", 4 if spare else 256)
    generator = random.Random(f"{seed} {spare}")
    graph = written(tmp_path, generator)

    for _ in range(15):
        assert_answered_as_defined(graph, *random_question(generator))

    assert asked.by_index > asked.asked // 2


def test_counts_follow_every_write(tmp_path: Path, asked: Asked) -> None:
    """The same question after every kind of write, in one process."""
    graph = og.init(root_at(tmp_path / "graph"), schema=SCHEMA)
    graph.write({"Note": [{"key": f"n{n}", "n": n, "text": f"a w{n % 7} b"} for n in range(90)]})
    graph.maintenance.optimize()
    question = (
        'query q() { match { $d: Note } return { $d.id as id, bm25($d.text, "a w3 z") as score }'
        " order { score } limit 5 }"
    )

    assert_answered_as_defined(graph, question, {})
    graph.write({"Note": [{"key": "x1", "n": 1, "text": "z z"}]})
    assert_answered_as_defined(graph, question, {})
    graph.delete({"Note": ["n3", "n10"]})
    assert_answered_as_defined(graph, question, {})
    graph.write({"Note": [{"key": "n17", "text": "w3 w3"}]}, mode="merge")
    assert_answered_as_defined(graph, question, {})
    graph.write({"Note": [{"key": "x2", "n": 1, "text": None}]})
    assert_answered_as_defined(graph, question, {})
    side = graph.branches.create("side")
    side.write({"Note": [{"key": "x3", "n": 1, "text": "w3 z"}]})
    assert_answered_as_defined(side, question, {})
    assert_answered_as_defined(graph, question, {})
    graph.maintenance.optimize()
    assert_answered_as_defined(graph, question, {})

    assert asked.by_index == asked.asked == 8


def test_counts_do_not_need_versions_that_a_cleanup_removed(tmp_path: Path, asked: Asked) -> None:
    """Deleted texts are read in the version that was counted first, as long as it exists."""
    graph = og.init(root_at(tmp_path / "graph"), schema=SCHEMA)
    graph.write({"Note": [{"key": f"n{n}", "n": n, "text": f"a w{n % 7} b"} for n in range(90)]})
    graph.maintenance.optimize()
    question = (
        "query q($w: String) { match { $d: Note }"
        " return { $d.id as id, bm25($d.text, $w) as score } order { score } limit 5 }"
    )
    assert_answered_as_defined(graph, question, {"w": "w3"})
    graph.delete({"Note": ["n3", "n4", "n10"]})
    assert_answered_as_defined(graph, question, {"w": "w3"})
    for n in range(5):
        graph.delete({"Note": [f"n{40 + n}"]})
    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)

    assert_answered_as_defined(graph, question, {"w": "w4 w3"})
    assert_answered_as_defined(graph, question, {"w": "w5"})

    assert asked.by_index == asked.asked == 4


def test_an_index_that_cuts_a_text_otherwise_is_not_asked(tmp_path: Path, asked: Asked) -> None:
    """A sign that Lance takes for a letter makes a text longer for Lance than for us."""
    graph = og.init(root_at(tmp_path / "graph"), schema=SCHEMA)
    texts = ["a ⓑ ⓒ ⓓ ⓔ", "a b b", "a c d"]
    graph.write({"Note": [{"key": f"n{n}", "n": n, "text": text} for n, text in enumerate(texts)]})
    graph.maintenance.optimize()
    question = (
        "query q() { match { $d: Note } return { $d.id as id }"
        ' order { bm25($d.text, "a") } limit 1 }'
    )

    assert_answered_as_defined(graph, question, {})

    assert (asked.asked, asked.by_index) == (1, 0)
