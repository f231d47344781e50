"""Opening costs the same after ten commits and after many."""

from __future__ import annotations

import pytest

import omnigraph
from benchmarks.open_cost import measure_open, synthesise_commits, wide_schema
from omnigraph.storage.location import parse_root

pytestmark = pytest.mark.unit


def test_the_objects_an_open_touches_do_not_grow_with_commits(graph_root: str) -> None:
    root = parse_root(graph_root)
    omnigraph.init(graph_root, schema=wide_schema(20))

    synthesise_commits(root, 0, 110)
    few = measure_open(root, 110)
    synthesise_commits(root, 110, 610)
    many = measure_open(root, 610)

    assert (many.lance_reads, many.object_reads) == (few.lance_reads, few.object_reads)
    assert many.lance_bytes <= few.lance_bytes * 1.1
    assert many.manifest_versions <= 201
