from __future__ import annotations

import gc
import weakref

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph_lake.schema.catalog import Scalar
from omnigraph_lake.validation.input.casts import Cast, cast_scalars
from tests.drawing import drawn

pytestmark = pytest.mark.random

digits = st.text("0123456789", min_size=1, max_size=4)
texts = st.one_of(
    st.none(),
    st.text("0123456789-:.TZ+W ", max_size=26),
    st.builds("{:04}-{:02}-{:02}".format, *[st.integers(0, n) for n in (9999, 13, 32)]),
    st.builds(
        "{:04}-{:02}-{:02}{}{}{}{}".format,
        *[st.integers(0, n) for n in (9999, 12, 31)],
        st.sampled_from(["T", " ", "t"]),
        st.sampled_from(["10", "1000", "10:00", "10:00:60", "23:59:59", "24:00", "100000"]),
        st.sampled_from(["", ".1", ".123456", ".1234567", ",5", "."]),
        st.sampled_from(["", "Z", "z", "+01", "+01:30", "-0130", "+25:00"]),
    ),
    st.dates().map(str),
    st.datetimes().map(str),
)


@pytest.mark.parametrize("scalar", [Scalar.DATE, Scalar.DATETIME])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_text_among_many_is_the_date_that_it_is_alone(scalar: Scalar, kind: pa.DataType) -> None:
    @drawn(6)
    @given(st.lists(texts, max_size=20))
    @example(["2024-01-01", "2023-02-29", "0000-01-01", "20240101", "2024-W01-1", "never", None])
    def agree(given_texts: list[str | None]) -> None:
        many = cast_scalars(pa.array(given_texts, kind), scalar)

        alone = [cast_scalars(pa.array([each], kind), scalar) for each in given_texts]
        assert len(many.values) == len(given_texts)
        assert bad(many) == [row for row, each in enumerate(alone) if each.faults]
        assert many.values.cast(pa.int64() if scalar is Scalar.DATETIME else pa.int32()).equals(
            pa.concat_arrays(
                [pa.nulls(0, many.values.type), *(each.values for each in alone)]
            ).cast(pa.int64() if scalar is Scalar.DATETIME else pa.int32())
        )

    agree()


def bad(cast: Cast) -> list[int]:
    return [row for fault in cast.faults for row in fault.rows]


def test_values_are_freed_without_a_garbage_collection() -> None:
    column = pa.array(["2024-01-01", "never"] * 100)
    alive = weakref.ref(column)

    gc.disable()
    try:
        cast_scalars(column, Scalar.DATE)
        del column
        assert alive() is None
    finally:
        gc.enable()
