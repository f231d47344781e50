"""Arguments of wrong types: whoever calls the public surface gets a result or an error of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError, OmnigraphError
from omnigraph_lake.graph import Graph
from tests.api.wrong_calls import ASK, SCHEMA, SURFACES, VALUES, Surface, places_of
from tests.forking.programs import run_command, run_module
from tests.gate.seeds import examples, run_seed


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(str(tmp_path / "g"), schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    return graph


@pytest.mark.random
@pytest.mark.local_disk("about arguments, not about where the files are")
def test_wrong_arguments_are_refused_by_errors_of_ours() -> None:
    finished = run_module("tests.api.wrong_calls", str(examples(200)), str(run_seed()))

    *escaped, summary = map(json.loads, finished.stdout.splitlines())
    told = "\n".join(f"{each['call']}\n{each['escaped']}" for each in escaped)
    assert finished.returncode == 0, told + finished.stderr
    assert summary["refusals"] > 0
    assert summary["results"] > 0


@pytest.mark.unit
@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.name)
def test_every_verb_of_the_surface_is_called(surface: Surface) -> None:
    assert surface.callables() == set(surface.verbs)
    assert len(VALUES) > 50
    assert sum(len(list(places_of(surface, verb))) for verb in surface.verbs)


@pytest.mark.unit
@pytest.mark.local_disk("about arguments, not about where the files are")
def test_what_was_raw_once_is_refused(graph: Graph, tmp_path: Path) -> None:
    params = dict.fromkeys(("s", "i", "u", "f", "d", "b", "t", "w", "l", "v"))
    calls: dict[str, Callable[[], object]] = {
        "plan_schema(5)": lambda: graph.schema.plan(5),  # type: ignore[arg-type]
        "F32 of 10**400": lambda: graph.query(ASK, {**params, "f": 10**400}),
        "F32 of -10**400": lambda: graph.query(ASK, {**params, "f": -(10**400)}),
        "timeout of 10**400": lambda: graph.query(ASK, params, timeout=10**400),
        "timeout of 1e308": lambda: graph.query(ASK, params, timeout=1e308),
        "memory of 10**400": lambda: graph.query(ASK, params, memory=10**400),
        "export to a NUL": lambda: graph.export("a\0b"),
        "load of a long path": lambda: graph.load("x" * 5000),
        "load of a NUL": lambda: graph.load("a\0b.jsonl"),
        "an expiry beyond the calendar": lambda: graph.branches.create("b", expires=timedelta.max),
        "an expiry of 999999 weeks": lambda: graph.branches.create("b", expires="999999w"),
        "a text for a yes": lambda: graph.maintenance.cleanup(keep_versions=3, dry_run="no"),  # type: ignore[arg-type]
    }
    for name, call in calls.items():
        try:
            call()
        except InvalidInputError:
            continue
        pytest.fail(f"{name} was not refused")


@pytest.mark.unit
@pytest.mark.local_disk("about arguments, not about where the files are")
def test_commands_with_absurd_values_end_with_a_message(graph: Graph, tmp_path: Path) -> None:
    ask = tmp_path / "ask.gq"
    ask.write_text("query ask($f: F32) { match { $p: Person  $p.size > $f } return { $p.name } }")
    huge = "1" + "0" * 400

    for arguments in (
        ("query", graph.root, str(ask), "--params", f'{{"f": {huge}}}'),
        ("query", graph.root, str(ask), "--param", f"f={huge}"),
        ("query", graph.root, str(ask), "--param", "f=1", "--timeout", "1e400"),
        ("query", graph.root, str(ask), "--param", "f=1", "--memory", f"{huge}GB"),
        ("load", graph.root, "x" * 5000 + ".jsonl"),
        ("export", graph.root, "-o", "x" * 5000),
    ):
        done = run_command(*arguments)
        assert done.returncode == 5, (arguments[2][:40], done.stderr[-500:])
        assert "Traceback" not in done.stderr


@pytest.mark.unit
def test_a_message_about_half_a_character_can_be_written_to_a_file(tmp_path: Path) -> None:
    with pytest.raises(OmnigraphError) as refused:
        og.open(str(tmp_path / "a\ud800b"))

    assert str(refused.value).encode()
