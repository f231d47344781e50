"""Partial records of a load that are completed in several buckets."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.load import completion
from tests.commit.test_partial_writes import SCHEMA, rows
from tests.drawing import seeds

pytestmark = pytest.mark.random

SET: dict[str, Any] = {
    "title": "new",
    "rank": 7,
    "mood": "bad",
    "tags": ["x"],
    "embedding": [0.0, 1.0],
    "photo": "base64:cGljdHVyZSAy",
    "nick": None,
}


def draw_records(rng: random.Random) -> list[dict[str, Any]]:
    """Some properties of known and new rows, some of them twice."""
    records = []
    for _ in range(rng.randint(6, 14)):
        number = rng.randint(0, 11)
        mentioned = rng.sample(sorted(SET), rng.randint(0, 3))
        record = {"slug": f"d{number}", **{name: SET[name] for name in mentioned}}
        records.append(record if number < 8 else {**record, "title": "inserted"})
    return records


@pytest.mark.parametrize("seed", seeds("completion in buckets", 2))
def test_buckets_complete_records_as_one_does(
    tmp_path: Path, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    known = [
        {
            "slug": f"d{number}",
            "title": "old",
            "rank": number,
            "tags": rng.choice([None, [], ["a", "b"]]),
            "photo": rng.choice([None, b"", b"picture"]),
            "nick": rng.choice([None, f"n{number}"]),
        }
        for number in range(8)
    ]
    lines = [{"type": "Doc", "data": record} for record in draw_records(rng)]
    source = tmp_path / "records.jsonl"
    source.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    contents = []
    for name, rows_per_bucket in (("one", 1_000), ("looked up", 5), ("scattered", 3)):
        graph = og.init(str(tmp_path / name), schema=SCHEMA)
        graph.write({"Doc": known})
        with monkeypatch.context() as patch:
            patch.setattr(completion, "ROWS_PER_BUCKET", rows_per_bucket)
            if name == "looked up":
                patch.setattr(completion, "SCATTERED_SHARE", 1_000)
            report = graph.load(str(source), mode="merge")
        contents.append((rows(graph, "Doc"), report.written, report.inserted, report.updated))

    assert contents[1] == contents[0]
    assert contents[2] == contents[0]
