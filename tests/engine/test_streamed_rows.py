"""Queries that read one large table row by row without keeping it."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_lake.engine import query
from omnigraph_lake.engine.access.column_cache import shared_cache
from omnigraph_lake.engine.access.streamed_rows import row_scan
from tests.engine.small_graphs import as_bag, asked, numbered_graph, rows_of

pytestmark = pytest.mark.behaviour

STREAMED = (
    "match { $p: P } return { $p.k, $p.n }",
    "match { $p: P  $p.n > 3  $p.n * 2 < 30 } return { $p.n + 1 as more }",
    "match { $p: P } return distinct { $p.id, $p.n }",
    "match { $p: P } return { $p.id, max($p.n) as most }",
    "match { $p: P } return { 1 as one }",
)
KEPT = (
    "match { $p: P } return { $p.n } order { $p.n }",
    "match { $p: P } return { $p.n } limit 3",
    "match { $p: P } return distinct { $p.n }",
    "match { $p: P } return { count(distinct $p.n) as n }",
    "match { $p: P  $p knows $q } return { $p.k }",
    "match { $p: P  $q: P } return { $p.k as a, $q.k as b }",
    "match { $p: P  not { $p knows $q } } return { $p.k }",
    "match { $p: P } return { $p }",
)


@pytest.mark.parametrize("text", [*STREAMED, *KEPT])
def test_rows_are_the_same_and_only_rows_on_their_own_are_streamed(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = numbered_graph(tmp_path, 20, [(0, 1), (1, 2)])
    expected = rows_of(asked(graph, text))
    monkeypatch.setattr(query, "STREAMED_LEAST", 0)
    cache = shared_cache()
    cache.clear()

    answer = asked(graph, text, keeps_tables=False)

    assert as_bag(rows_of(answer)) == as_bag(expected)
    assert (row_scan(answer.plan) is not None) == (text in STREAMED)
    assert (cache.memory_bytes == 0) == (text in STREAMED)


def test_a_small_table_is_kept(tmp_path: Path) -> None:
    graph = numbered_graph(tmp_path, 20, [])
    shared_cache().clear()

    assert len(rows_of(asked(graph, STREAMED[0], keeps_tables=False))) == 20
    assert shared_cache().memory_bytes > 0
