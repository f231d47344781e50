"""Takes a line of the corpus through the comparison of its random suite."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import ValidationFailedError
from tests.behaviours import test_mutations_random
from tests.corpus.lines import Line, Suite
from tests.gate.selection import is_nightly
from tests.query import fuzz as query_fuzz
from tests.query import people
from tests.query.differential import VARIANTS, Executor, Laboratory, Variant, locally
from tests.query.random_graphs import RandomGraph
from tests.query.random_texts import compiled
from tests.schema import fuzz as schema_fuzz


def replay(line: Line) -> None:
    """Fails as the random suite would."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-corpus-") as folder:
        REPLAYS[line.suite](line, Path(folder))


def replay_query(line: Line, folder: Path, executor: Executor = locally) -> None:
    """The answers are those of the evaluator: in the variant that was wrong, or in all of them."""
    case = line.case
    parts = {name: case.get(name, {}) for name in ("first", "second", "replacing", "aside")}
    graph = RandomGraph(schema=case["schema"], **parts)
    query = compiled(case["query"], case.get("parameters", {}), graph.catalog())
    assert query is not None, "the query does not compile"
    laboratory = Laboratory(folder=folder, case=graph, executor=executor)
    for variant in _variants(case):
        problem = laboratory.problem(query, variant)
        assert problem is None, f"{variant}: {problem}"


def _variants(case: Mapping[str, Any]) -> Sequence[Variant]:
    named = case.get("variants", [str(VARIANTS[0])])
    assert set(named) <= set(map(str, VARIANTS)), named
    return [each for each in VARIANTS if is_nightly() or str(each) in named]


def _replay_query_text(line: Line, _: Path) -> None:
    query_fuzz.exercise(line.case["text"])


def _replay_schema_text(line: Line, _: Path) -> None:
    schema_fuzz.exercise(line.case["text"])


def _replay_write(line: Line, folder: Path) -> None:
    """A write onto published rows is refused for the reasons of the line, or accepted."""
    case = line.case
    graph = og.init(str(folder / "graph"), schema=case["schema"])
    graph.write(case["published"])
    if not case["refused"]:
        graph.write(case["rows"], mode=case["mode"])
        return
    with pytest.raises(ValidationFailedError) as caught:
        graph.write(case["rows"], mode=case["mode"])
    for reason in case["refused"]:
        assert reason in str(caught.value)


def _replay_mutation(line: Line, folder: Path) -> None:
    """Mutations of the small graph of people leave what their definition says."""
    before: Any = {
        kind: {name: [*map(_row, rows)] for name, rows in tables.items()}
        for kind, tables in line.case["graph"].items()
    }
    graph = og.init(str(folder / "graph"), schema=people.SCHEMA)
    graph.write({key: rows for kind in before.values() for key, rows in kind.items() if rows})
    for body in line.case["mutations"]:
        before = test_mutations_random.compared(graph, before, body)


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """As the evaluator reads rows: a list is a tuple."""
    return {name: tuple(each) if isinstance(each, list) else each for name, each in row.items()}


REPLAYS: Final[Mapping[Suite, Callable[[Line, Path], None]]] = {
    Suite.QUERY: replay_query,
    Suite.QUERY_TEXT: _replay_query_text,
    Suite.SCHEMA_TEXT: _replay_schema_text,
    Suite.WRITE: _replay_write,
    Suite.MUTATION: _replay_mutation,
}
