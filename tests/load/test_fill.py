"""Folding and filling records of a merge, against records applied one after the other to dicts."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph_lake.load import fill as filling
from omnigraph_lake.load.fill import fill, fold
from omnigraph_lake.schema.arrow import node_schema
from omnigraph_lake.validation.input.intake import take_in
from omnigraph_lake.validation.input.mentions import Mentions, concat_mentions, mask_of, mentions_of
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

CATALOG = compiled(
    """
    node Thing {
        text: String?
        number: I64? = 7
        words: [String]?
        vector: Vector(2)?
        blob: Blob?
        at: DateTime?
    }
    """
)
THING = CATALOG.nodes["Thing"]
SCHEMA = node_schema(THING)
COLUMNS = tuple(THING.properties)

Row = dict[str, Any]


def a_value(chance: random.Random, column: str) -> object:
    if chance.random() < 0.25:
        return None
    number = chance.randrange(100)
    values = {
        "text": f"text {number}",
        "number": number,
        "words": [str(word) for word in range(number % 3)],
        "vector": [float(number), 0.5],
        "blob": bytes([number]) * (number % 4),
        "at": dt.datetime(2020, 1, 1 + number % 28, tzinfo=dt.UTC),
    }
    return values[column]


def a_record(chance: random.Random, ids: list[str]) -> Row:
    style = chance.choice(["all", "some", "few"])
    share = {"all": 1.0, "some": 0.6, "few": 0.2}[style]
    mentioned = [column for column in COLUMNS if chance.random() < share]
    return {
        "id": chance.choice(ids),
        **{column: a_value(chance, column) for column in mentioned},
    }


def taken(records: list[Row]) -> tuple[pa.Table, Mentions | None]:
    """Records as a write reads them."""
    rows = take_in(THING, records, new_ids=lambda count: pa.nulls(count, pa.string()), partial=True)
    assert not rows.findings
    return rows.table, rows.mentions


def in_chunks(chance: random.Random, rows: pa.Table) -> pa.Table:
    cuts = sorted(chance.randrange(len(rows) + 1) for _ in range(2))
    parts = [rows.slice(0, cuts[0]), rows.slice(cuts[0], cuts[1] - cuts[0]), rows.slice(cuts[1])]
    return pa.concat_tables(parts)


def applied(records: list[Row], published: dict[str, Row], order: list[int]) -> dict[str, Row]:
    """The oracle: every record updates the row of its id, or a new row of defaults."""
    result: dict[str, Row] = {}
    for position in order:
        record = records[position]
        known = result.get(record["id"]) or published.get(record["id"])
        result[record["id"]] = {**(known or {**dict.fromkeys(COLUMNS), "number": 7}), **record}
    return result


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_records_are_applied_one_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(400):
        ids = [f"t{number}" for number in range(chance.randint(1, 12))]
        records = [a_record(chance, ids) for _ in range(chance.randint(1, 16))]
        published = {
            name: {"id": name, **{column: a_value(chance, column) for column in COLUMNS}}
            for name in ids
            if chance.random() < 0.6
        }
        ranks = [chance.randrange(3) for _ in records]
        ordered = chance.random() < 0.5
        order = sorted(range(len(records)), key=lambda at: (ranks[at] if ordered else 0, at))
        rows, mentions = taken(records)

        folded = fold(in_chunks(chance, rows), mentions, (np.array(ranks),) if ordered else ())
        stored = pa.Table.from_pylist(list(published.values()), schema=SCHEMA)
        complete = fill(THING, folded.rows, folded.mentions, in_chunks(chance, stored))

        complete.validate(full=True)
        expected = applied(records, published, order)
        assert {row["id"]: row for row in complete.to_pylist()} == expected
        last = {records[at]["id"]: at for at in order}
        assert folded.positions.to_pylist() == sorted(last.values())
        assert complete.column("id").to_pylist() == [
            records[at]["id"] for at in folded.positions.to_pylist()
        ]


def test_texts_beyond_one_array_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "_CONTIGUOUS_MAX", 0)
    monkeypatch.setattr(filling, "_ROWS_AT_ONCE", 2)
    rows, mentions = taken([{"id": str(number), "number": 1} for number in range(5)])
    stored = pa.Table.from_pylist(
        [
            {"id": str(number), "text": f"kept {number}", "words": ["a", str(number)]}
            for number in reversed(range(4))
        ],
        schema=SCHEMA,
    )

    complete = fill(THING, rows, mentions, stored)

    texts = ["kept 0", "kept 1", "kept 2", "kept 3", None]
    assert complete.column("text").to_pylist() == texts
    assert complete.column("words").to_pylist()[3:] == [["a", "3"], None]
    assert complete.column("text").type == pa.string()


def test_records_that_mention_everything_are_left_as_they_are() -> None:
    record = {"id": "a", **dict.fromkeys(COLUMNS)}
    rows, mentions = taken([record, {**record, "id": "b"}])

    assert mentions is None
    assert fold(rows, None).rows is rows
    assert fill(THING, rows, None, rows) is rows


def test_mentions_have_a_smallest_form() -> None:
    yes, no, some = mask_of([True, True]), mask_of([False, False]), mask_of([True, False])

    assert mentions_of((), {"a": yes}) is None
    assert mentions_of((), {"a": no}) == Mentions(absent=frozenset({"a"}))
    assert mentions_of(("b",), {"a": some}) == Mentions(absent=frozenset({"b"}), partly={"a": some})
    mentions = mentions_of(("b",), {"a": some})
    assert mentions is not None
    assert mentions.filter(some) == Mentions(absent=frozenset({"b"}))
    assert mentions.completed(yes) is None
    assert mentions.incomplete(2).to_pylist() == [True, True]
    both = concat_mentions([(mentions, 2), (None, 1)])
    assert both is not None
    assert both.absent == frozenset()
    assert {name: mask.to_pylist() for name, mask in both.partly.items()} == {
        "a": [True, False, True],
        "b": [False, False, True],
    }
