"""What a random test found once stays found: every line of the corpus goes through its suite."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph_lake.errors import QueryFailedError
from tests.corpus.lines import FOLDER, Line, Suite, decode, encode, read_lines
from tests.corpus.replay import replay, replay_query
from tests.query import differential
from tests.query.differential import Asked, Variant, run

pytestmark = pytest.mark.unit

LINES = read_lines()


@pytest.mark.parametrize("line", LINES, ids=[line.place for line in LINES])
def test_a_case_that_failed_once_does_not_fail_again(line: Line) -> None:
    replay(line)


def test_every_line_says_what_was_wrong_and_is_spelt_in_one_way() -> None:
    texts = [text for path in FOLDER.glob("*.jsonl") for text in path.read_text().splitlines()]

    assert all(line.found.endswith(".") for line in LINES)
    assert sorted(line.encoded() for line in LINES) == sorted(texts)
    assert len(set(texts)) == len(texts)


def test_every_kind_of_value_survives_a_line() -> None:
    value = {
        "floats": [math.nan, math.inf, -0.0, 0.1, None],
        "times": [dt.datetime(2024, 5, 31, 12, tzinfo=dt.UTC), dt.date(1, 1, 1)],
        "others": [b"\x00", -(2**63), 2**64 - 1, "\ud800", True, {"a": [1.5]}, Decimal("-0.10")],
    }

    assert repr(decode(encode(value))) == repr(value)


def test_a_wrong_answer_prints_the_line_that_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Asked) -> pa.Table:
        raise QueryFailedError("no", next_step="")

    monkeypatch.setattr(differential, "SHRINK_TRIES", 0)
    report = run(["wrong"], queries=5, choose=lambda _: [Variant()], executor=failing)

    failure = report.failures[0]
    assert failure.line().encoded() in str(failure)
    (tmp_path / "queries.jsonl").write_text(failure.line().encoded() + "\n")
    monkeypatch.setattr("tests.corpus.lines.FOLDER", tmp_path)
    (line,) = read_lines(Suite.QUERY)
    replay(line)
    with pytest.raises(AssertionError, match="one side failed"):
        replay_query(line, tmp_path / "again", executor=failing)
