"""Readers that poll while the schema changes see one schema and its rows, never a mixture.

OMNIGRAPH_APPLIES=200 pytest tests/behaviours/test_schema_readers.py -s
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.behaviours import schema_generations
from tests.behaviours.schema_generations import SEEN, TORN, generation
from tests.forking.programs import Running, start_module, wait_until
from tests.gate.selection import is_nightly

pytestmark = pytest.mark.behaviour

APPLIES = int(os.environ.get("OMNIGRAPH_APPLIES", "12" if is_nightly() else "6"))
"""Six changes are of every kind: a renaming, a widening, and what comes and goes."""
READERS = 2 if is_nightly() else 1


@pytest.mark.timeout(300 + 6 * APPLIES)
def test_readers_that_poll_never_see_a_mixture(graph_root: str, tmp_path: Path) -> None:
    graph = og.init(graph_root, schema=generation(0).text)
    graph.write({"Item": generation(0).rows})
    first_commit = graph.snapshot().commit_id
    assert first_commit is not None
    over = tmp_path / "over"
    arguments = (graph_root, first_commit, str(APPLIES), str(over))
    readers = [start_module(schema_generations.__name__, *arguments) for _ in range(READERS)]
    try:
        wait_until_seen(readers, 0)
        for number in range(1, APPLIES + 1):
            change(graph if number % 4 else og.open(graph_root), number)
            if number % 2:
                # Every other generation is over at once.
                wait_until_seen(readers, number)
    finally:
        over.touch()
        ended = [reader.finish() for reader in readers]

    assert [reader.returncode for reader in ended] == [0] * READERS, ended
    reports = [json.loads(reader.stdout.splitlines()[-1]) for reader in ended]
    torn = [read for report in reports for read in report["torn"]]
    reads = sum(report["reads"] for report in reports)
    print(f"applies={APPLIES} reads={reads} torn={len(torn)}", reports)
    assert torn == []
    assert [report["last"] for report in reports] == [APPLIES] * READERS
    assert graph.maintenance.check().findings == ()


def change(graph: Graph, number: int) -> None:
    """Go on to a generation."""
    after = generation(number)
    assert graph.schema.apply(after.text).applied
    if after.extra == number:
        graph.write({"Extra": [{"name": f"e{number}"}]})


def wait_until_seen(readers: list[Running], number: int) -> None:
    """Wait until all readers have read something of a generation, or something torn."""
    wait_until(
        lambda: all(has_seen(reader, number) for reader in readers), f"all readers to see {number}"
    )


def has_seen(reader: Running, number: int) -> bool:
    lines = reader.stdout.read_text().splitlines()
    return f"{SEEN} {number}" in lines or any(line.startswith(TORN) for line in lines)
