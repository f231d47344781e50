"""Opening costs the same after ten commits and after many."""

from __future__ import annotations

import pytest

import omnigraph_lake as og
from tests.behind import cost_of_opening, wide_schema

pytestmark = pytest.mark.behaviour


def test_the_objects_an_open_touches_do_not_grow_with_commits(graph_root: str) -> None:
    og.init(graph_root, schema=wide_schema(20))

    few = cost_of_opening(graph_root, old_commits=0, commits=10)
    many = cost_of_opening(graph_root, old_commits=10, commits=210)

    assert (many.lance_reads, many.object_reads) == (few.lance_reads, few.object_reads)
    assert many.lance_bytes <= few.lance_bytes * 1.1
    assert many.manifest_versions <= 201
