"""Numbers that earlier releases counted on each branch: a merge refuses, a copy gets its own."""

from __future__ import annotations

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import MergeConflictError
from omnigraph_lake.evolution.plan import matching

pytestmark = pytest.mark.unit

FIRST = "node N {\n  k: String @key\n  v: I32?\n}\n"


def test_numbers_that_two_branches_counted_are_given_again_by_copies(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(graph_root, schema=FIRST)
    graph.write({"N": [{"k": f"k{number}", "v": number} for number in range(3)]})
    dev = graph.branches.create("dev")
    with monkeypatch.context() as earlier_release:
        # It counted the items of each branch, so different ones got one number.
        earlier_release.setattr(matching, "_first_number", lambda _, accepted: accepted.next_number)
        graph.schema.apply(FIRST.replace("v: I32?", "v: I32?  c: String?"))
        dev.schema.apply(FIRST.replace("v: I32?", "v: I32?  b: I32?"))
    dev.write({"N": [{"k": "k1", "b": 5}]}, mode="merge")

    with pytest.raises(MergeConflictError, match="SM-115") as refused:
        graph.merge("dev")
    assert "@backfill(from=...)" in str(refused.value)
    dev.schema.apply(FIRST.replace("v: I32?", "v: I32?  b_copy: I32? @backfill(from=b)"))
    dev.schema.apply(FIRST.replace("v: I32?", 'v: I32?  b: I32? @rename_from("b_copy")'))
    graph.merge("dev")

    rows = graph.scan("N").read_all().to_pylist()
    assert {row["k"]: (row["v"], row["b"], row["c"]) for row in rows} == {
        "k0": (0, None, None),
        "k1": (1, 5, None),
        "k2": (2, None, None),
    }
    assert graph.maintenance.check().ok
