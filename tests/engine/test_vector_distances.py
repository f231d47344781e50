"""Distances of vectors against their definition."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.engine import search
from omnigraph_lake.engine.search import distances
from omnigraph_lake.schema.catalog import VectorMetric
from tests.drawing import drawn
from tests.query import text_search

pytestmark = pytest.mark.unit

FLOAT = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-100, max_value=100)
VECTOR = st.tuples(FLOAT, FLOAT, FLOAT)
KIND = pa.list_(pa.field("item", pa.float32()), 3)


@pytest.mark.random
@pytest.mark.parametrize("metric", VectorMetric)
@drawn(15)
@given(
    vectors=st.lists(st.none() | st.just((0.0, 0.0, 0.0)) | VECTOR, max_size=8),
    query=VECTOR,
    cut=st.integers(0, 8),
)
def test_distances_are_those_of_the_metric(
    metric: VectorMetric,
    vectors: list[tuple[float, ...] | None],
    query: tuple[float, ...],
    cut: int,
) -> None:
    chunks = [pa.array(part, KIND) for part in (vectors[:cut], vectors[cut:])]

    found = distances(pa.chunked_array(chunks, KIND), query, metric).to_pylist()

    wanted = [
        None if each is None else text_search.distance(metric, each, query) for each in vectors
    ]
    assert [each is None for each in found] == [each is None for each in wanted]
    assert [each for each in found if each is not None] == pytest.approx(
        [each for each in wanted if each is not None], rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("metric", VectorMetric)
def test_equal_vectors_are_equally_far_wherever_they_stand(
    metric: VectorMetric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_NUMBERS_AT_ONCE", 37 * 10)
    vector = [0.1 * number for number in range(37)]
    vectors = pa.array([vector] * 100, pa.list_(pa.float32(), 37)).slice(3)

    found = distances(vectors, [0.3] * 37, metric)

    assert len(found) == 97
    assert len(found.unique()) == 1
