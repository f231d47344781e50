"""What every suite shares: where a graph's root lives, and a schema to put there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from omnigraph.graph import Graph

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def graph_root(tmp_path: Path) -> str:
    """An empty root. OMNIGRAPH_TEST_STORE chooses the kind of store for the whole run."""
    store = os.environ.get("OMNIGRAPH_TEST_STORE", "local")
    assert store == "local", f"OMNIGRAPH_TEST_STORE={store!r}: only local disk is wired so far"
    return str(tmp_path / "graph")


@pytest.fixture(scope="session")
def people_schema() -> str:
    return (EXAMPLES / "people.pg").read_text()


@pytest.fixture
def people_graph(graph_root: str, people_schema: str) -> Graph:
    import omnigraph

    return omnigraph.init(graph_root, schema=people_schema, schema_name="people.pg")
