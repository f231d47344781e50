"""Text indexes keep to the tokens of the language, or are not built."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.indexes import segments
from omnigraph_lake.storage.indexes.segments import first_doubtful, is_built_for_tokens
from tests.maintenance.maintenance_graphs import (
    DOC,
    by_key,
    coverage,
    doc,
    empty_graph,
    indexed_graph,
    pinned,
)

pytestmark = pytest.mark.unit

TEXT_INDEX = "text_inverted"
DOUBTFUL = "word\u0902 beside a mark of another script"


def is_ours(graph: Graph) -> bool:
    (index,) = (e for e in pinned(graph, DOC).describe_indices() if e.name == TEXT_INDEX)
    return is_built_for_tokens(index.details)


def test_an_index_that_cuts_texts_otherwise_is_built_anew(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = empty_graph(graph_root)
    graph.write({"Doc": [doc(number) for number in range(5)]})
    with monkeypatch.context() as older:
        older.setattr(segments, "PARAMETERS", {"with_position": True})
        graph.maintenance.optimize()
    assert not is_ours(graph)

    graph.maintenance.optimize()

    assert is_ours(graph)
    assert coverage(graph, DOC)[TEXT_INDEX] == (5, 0)


def test_new_rows_leave_the_settings_of_an_index_as_they_are(graph_root: str) -> None:
    graph = indexed_graph(graph_root)
    graph.write({"Doc": [doc(50)]})

    graph.maintenance.optimize()

    assert is_ours(graph)


def test_no_index_is_built_over_a_text_that_it_would_cut_otherwise(graph_root: str) -> None:
    graph = empty_graph(graph_root)
    graph.write({"Doc": [doc(1), doc(2, text=DOUBTFUL)]})

    stats = by_key(graph.maintenance.optimize())[DOC]

    assert [each.column for each in stats.pending_indexes] == ["text"]
    assert "would take for one" in stats.pending_indexes[0].reason
    assert TEXT_INDEX not in coverage(graph, DOC)


def test_a_doubtful_text_among_new_rows_leaves_the_index_over_the_others(graph_root: str) -> None:
    graph = indexed_graph(graph_root)
    known = coverage(graph, DOC)[TEXT_INDEX][0]
    graph.write({"Doc": [doc(50, text=DOUBTFUL)]})

    graph.maintenance.optimize()

    assert coverage(graph, DOC)[TEXT_INDEX] == (known, 1)


@pytest.mark.parametrize(
    ("text", "doubtful"),
    [
        ("plain", False),
        ("nai\u0308ve, 1\ufe0f\u20e3 and \U0001f600", False),
        ("iPhone\u3092\u8cb7\u3046", False),
        ("hello \u0939\u093f\u0928\u094d\u0926\u0940 there", False),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", False),
        ("word\u0902", True),
        ("\u24d0word", True),
        ("a \u0902 b", True),
        ("a\u0378b", False),
        ("a\U0003fffeb", True),
    ],
)
def test_a_text_is_doubtful_if_a_letter_stands_beside_what_only_an_index_takes_for_one(
    text: str, doubtful: bool
) -> None:
    found = first_doubtful(pa.array(["before", None, text]))

    assert found == (text if doubtful else None)
