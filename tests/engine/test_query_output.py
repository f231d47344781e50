from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
from collections.abc import Iterator

import pyarrow as pa
import pytest

from omnigraph_lake.engine.output_formats import OutputFormat, write_rows

pytestmark = pytest.mark.unit

ENTITY = {"id": "a", "type": "P", "properties": {"size": 2**63 - 1}}
VALUES = pa.record_batch(
    {
        "node": pa.array([ENTITY, None]),
        "bare": pa.array([{}, None], pa.struct([])),
        "whole": pa.array([2**64 - 1, None], pa.uint64()),
        "real": pa.array([math.nan, 1.5], pa.float32()),
        "when": pa.array(
            [dt.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")
        ),
        "day": pa.array([dt.date(1, 1, 1), None]),
        "text": ["", 'line\n\x1b[31m"q",日本'],
        "fact": [True, None],
        "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "vector": pa.array([None, [math.inf, -1.0]], pa.list_(pa.float32(), 2)),
    }
)


class GivenRows:
    """Batches that count how many of them are alive at once."""

    def __init__(self, *batches: pa.RecordBatch) -> None:
        self.schema = batches[0].schema
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)


def written(chosen: OutputFormat, *batches: pa.RecordBatch) -> bytes:
    stream = io.BytesIO()
    count = write_rows(GivenRows(*batches), stream, chosen, about={"query": "q", "commit": None})
    assert count == sum(each.num_rows for each in batches)
    return stream.getvalue()


def test_json_spells_every_value_exactly() -> None:
    (first, second) = map(json.loads, written(OutputFormat.JSONL, VALUES).splitlines())

    assert first == {
        "node": ENTITY,
        "bare": {},
        "whole": 2**64 - 1,
        "real": "NaN",
        "when": "2020-01-02T03:04:05.000006Z",
        "day": "0001-01-01",
        "text": "",
        "fact": True,
        "list": [1, None],
        "vector": None,
    }
    assert second == {
        **dict.fromkeys(VALUES.schema.names),
        "real": 1.5,
        "text": 'line\n\x1b[31m"q",日本',
        "vector": ["Infinity", -1.0],
    }


@pytest.mark.parametrize("batches", [[VALUES], [VALUES.slice(0, 0)], [VALUES, VALUES]])
def test_json_is_one_object_with_all_rows(batches: list[pa.RecordBatch]) -> None:
    lines = [json.loads(each) for each in written(OutputFormat.JSONL, *batches).splitlines()]

    found = json.loads(written(OutputFormat.JSON, *batches))

    assert found == {"query": "q", "commit": None, "rows": lines, "row_count": len(lines)}


def test_csv_tells_null_from_empty_text_and_nests_as_json() -> None:
    content = written(OutputFormat.CSV, VALUES).decode()

    head, first, second = csv.reader(io.StringIO(content))
    assert head == VALUES.schema.names
    found = dict(zip(head, first, strict=True))
    assert json.loads(found["node"]) == ENTITY
    assert found["whole"] == str(2**64 - 1)
    assert found["real"] == "nan"
    assert found["when"] == "2020-01-02T03:04:05.000006Z"
    assert second[head.index("text")] == 'line\n\x1b[31m"q",日本'
    assert ',"",true,' in content.splitlines()[1], "an empty text is quoted, a null is not"


def test_arrow_is_a_stream_of_the_same_batches() -> None:
    content = written(OutputFormat.ARROW, VALUES, VALUES)

    table = pa.ipc.open_stream(content).read_all()
    assert table.schema == VALUES.schema
    assert str(table.to_pylist()) == str(2 * VALUES.to_pylist())


def test_a_table_lines_columns_up_and_obeys_no_control_character() -> None:
    content = written(OutputFormat.TABLE, VALUES).decode()

    head, rule, first, second = content.splitlines()
    assert "\x1b" not in content
    assert r'line\n\x1b[31m"q",日本' in second
    assert f"P a {{size: {2**63 - 1}}}" in first
    assert first.index("2020-01-02T03:04:05.000006Z") == head.index("when")
    assert first.index(str(2**64 - 1)) + 20 == head.index("whole") + len("whole")
    assert set(rule) == {"─"}


def test_a_table_of_many_rows_is_written_page_by_page() -> None:
    batch = pa.record_batch({"n": list(range(2_500))})

    lines = written(OutputFormat.TABLE, batch, batch).decode().splitlines()

    assert lines[0].strip() == "n"
    assert [int(each) for each in lines[2:]] == [*range(2_500), *range(2_500)]


def test_a_table_without_rows_has_its_head() -> None:
    lines = written(OutputFormat.TABLE, VALUES.slice(0, 0)).decode().splitlines()

    assert lines[0].split() == VALUES.schema.names


def test_json_embeds_values_of_json_and_other_formats_have_their_text() -> None:
    mark = {"omnigraph:json": "true"}
    inner = pa.struct([pa.field("payload", pa.string(), metadata=mark)])
    schema = pa.schema([pa.field("j", pa.string(), metadata=mark), pa.field("node", inner)])
    text = '{"a":[12345678901234567890.1,"x"],"b":9007199254740993}'
    # Engines do not mark their arrays; the schema of the result alone does.
    columns = [
        pa.array([text, None]),
        pa.array([{"payload": "5"}, None], pa.struct([("payload", pa.string())])),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)

    lines = written(OutputFormat.JSONL, batch).decode().splitlines()
    assert lines == [f'{{"j":{text},"node":{{"payload":5}}}}', '{"j":null,"node":null}']
    csv_row = list(csv.reader(io.StringIO(written(OutputFormat.CSV, batch).decode())))[1]
    assert csv_row == [text, '{"payload":5}']
    stream = io.BytesIO()
    write_rows(GivenRows(batch), stream, OutputFormat.JSONL, about={}, safe_integers=True)
    assert '"b":"9007199254740993"' in stream.getvalue().decode()
    assert "[12345678901234567890.1," in stream.getvalue().decode()
