"""A load leaves the same on every runner, byte for byte, whatever is wrong with its input."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.load import pipeline
from omnigraph_lake.runner.protocol import Runner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.validation import keyed_findings
from tests.drawing import drawn
from tests.load.oracle import SCHEMA, Case
from tests.load.outcomes import outcomes_of
from tests.load.random_loads import loads
from tests.load.test_load_random import any_records
from tests.runner.random_runner import RandomRunner

pytestmark = [pytest.mark.random, pytest.mark.timeout(0)]


def test_random_loads_end_alike_on_every_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    og.init(str(tmp_path / "template"), schema=SCHEMA)
    monkeypatch.setattr(pipeline, "_EDITED_ROWS_MAX", 3)
    numbers = itertools.count()

    def on(make: Callable[[Graph], Runner], *, sent_max: int = 256) -> Callable[[Graph], None]:
        def prepare(graph: Graph) -> None:
            runner = make(graph)
            monkeypatch.setattr(keyed_findings, "FINDINGS_SENT_MAX", sent_max)
            monkeypatch.setattr(load_operation, "ThreadRunner", lambda _: runner)

        return prepare

    @drawn(6)
    @given(case=loads(records=any_records()), seed=st.integers(0, 10_000))
    def check(case: Case, seed: int) -> None:
        ways = {
            "threads": on(lambda _: ThreadRunner(parallel=2, held_bytes=seed % 64)),
            "random": on(lambda _: RandomRunner(seed), sent_max=seed % 2),
            "fragments": on(
                lambda graph: RandomRunner(seed, root=parse_root(graph.root)), sent_max=seed % 3
            ),
        }
        first, *others = outcomes_of(
            case, tmp_path / str(next(numbers)), tmp_path / "template", ways
        ).values()

        for other in others:
            assert other == first

    check()
