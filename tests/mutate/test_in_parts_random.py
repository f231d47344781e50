"""Random mutations in parts leave what their definition says, or nothing at all."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph_lake as og
from tests.behaviours.random_mutations import GIVEN, PARAMETERS, graphs, matched
from tests.behaviours.repeating import repeatable
from tests.behaviours.test_mutations_random import MUTATIONS, compared
from tests.drawing import drawn
from tests.mutate.in_parts import can_run_in_parts, forced_in_parts
from tests.query.expression_values import Graph as Expected
from tests.query.people import SCHEMA
from tests.stores import root_at

pytestmark = pytest.mark.random


@pytest.mark.timeout(7200)
@pytest.mark.nightly(
    "mutations of a definition; test_large_mutations compares both ways in the gate"
)
@drawn(3, one_in=MUTATIONS)
@given(graphs(), st.lists(matched(), min_size=MUTATIONS, max_size=MUTATIONS))
def test_mutations_in_parts_do_what_their_definition_says(
    before: dict[str, Any], bodies: list[str]
) -> None:
    with repeatable(), tempfile.TemporaryDirectory() as folder:
        graph = og.init(root_at(Path(folder, "graph")), schema=SCHEMA)
        graph.write({key: rows for kind in before.values() for key, rows in kind.items()})
        expected: Expected = before
        for body in bodies:
            text = f"query q({PARAMETERS}) {{ {body} }}"
            way = forced_in_parts() if can_run_in_parts(graph, text, GIVEN) else nullcontext()
            with way:
                expected = compared(graph, expected, body)
        assert graph.maintenance.check().ok
