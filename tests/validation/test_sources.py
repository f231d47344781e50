from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.validation.input.columns import read_source

pytestmark = pytest.mark.unit

TABLE = pa.table({"a": [1, 2], "b": ["x", None]})


class Frame:
    """What polars and others offer: an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


class Relation:
    """What some engines offer instead: a method that returns Arrow."""

    def to_arrow(self) -> object:
        return Frame()


@pytest.mark.parametrize(
    "source",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        Frame(),
        Relation(),
        TABLE.to_pylist(),
        tuple(TABLE.to_pylist()),
    ],
    ids=["table", "batch", "reader", "stream", "to_arrow", "list", "tuple"],
)
def test_rows_are_read_from_anything_that_looks_like_a_table(source: object) -> None:
    raw = read_source(source, type_name="T")

    columns = {
        name: column.to_pylist() if isinstance(column, pa.ChunkedArray) else column
        for name, column in raw.columns.items()
    }
    assert columns == TABLE.to_pydict()
    assert raw.row_count == 2


def test_keys_of_all_mappings_become_columns() -> None:
    raw = read_source([{"a": 1}, {}, {"b": 2}], type_name="T")

    assert raw.columns == {"a": [1, None, None], "b": [None, None, 2]}
    assert raw.row_count == 3


def test_a_table_without_columns_keeps_its_rows() -> None:
    assert read_source(TABLE.select([]), type_name="T").row_count == 2
    assert read_source([{}, {}, {}], type_name="T").row_count == 3
    assert read_source([], type_name="T").row_count == 0


def test_a_repeated_column_is_noticed() -> None:
    raw = read_source(pa.table([[1], [2]], names=["a", "a"]), type_name="T")

    assert raw.repeated == ("a",)


def stream() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("source", [3, "text", {"a": [1]}, stream(), [1], [{1: 2}]])
def test_what_has_no_rows_is_refused_with_the_type_it_was_for(source: object) -> None:
    with pytest.raises(InvalidInputError, match="Person"):
        read_source(source, type_name="Person")
