"""Start-up time as a ratio to importing Lance, so that a busy machine does not matter."""

from __future__ import annotations

import sys

import pytest

from benchmarks.startup import COMMAND, median_seconds
from omnigraph.graph import Graph

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def import_lance_seconds() -> float:
    return median_seconds([sys.executable, "-c", "import lance"], 3)


def test_help_answers_before_lance_could_be_imported(import_lance_seconds: float) -> None:
    assert median_seconds([COMMAND, "--help"], 3) < 0.6 * import_lance_seconds


def test_status_costs_little_more_than_importing_lance(
    people_graph: Graph, import_lance_seconds: float
) -> None:
    assert median_seconds([COMMAND, "status", people_graph.root], 3) < 3 * import_lance_seconds
