"""Random dates and moments, of which some are outside of the years that a graph stores."""

from __future__ import annotations

import csv
import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA: Final = "node A { k: String @key  ts: DateTime?  day: Date? }"
ENTRANCES: Final = ("jsonl", "csv", "parquet", "arrow")
TIMES: Final = pa.timestamp("us", tz="UTC")
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LEAST, _MOST = (
    int(np.datetime64(end, "us").astype(np.int64))
    for end in (dt.datetime.min, dt.datetime.max)  # noqa: DTZ901 - as numpy takes them
)
_FIRST, _LAST = ((day - EPOCH.date()).days for day in (dt.date.min, dt.date.max))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A moment in microseconds since 1970 in UTC, and a day in days."""

    moment: int
    day: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Rows by key, and those of them that are in the years 1 to 9999."""

    rows: dict[str, Row]
    inside: dict[str, Row]

    def table(self) -> pa.Table:
        moments = pa.array([row.moment for row in self.rows.values()], pa.int64()).cast(TIMES)
        days = pa.array([row.day for row in self.rows.values()], pa.int32()).cast(pa.date32())
        return pa.table({"k": list(self.rows), "ts": moments, "day": days})

    def source(self, entrance: str, folder: Path) -> Any:
        """What `load` is given."""
        if entrance == "arrow":
            return {"A": self.table()}
        path = folder / f"A.{entrance}"
        if entrance == "parquet":
            pq.write_table(self.table(), path)
            return path
        moments = np.array([row.moment for row in self.rows.values()], "datetime64[us]").astype(str)
        days = np.array([row.day for row in self.rows.values()], "datetime64[D]").astype(str)
        lines = [
            {"k": key, "ts": f"{moment}Z", "day": str(day)}
            for key, moment, day in zip(self.rows, moments, days, strict=True)
        ]
        if entrance == "jsonl":
            path.write_text(
                "".join(json.dumps({"type": "A", "data": line}) + "\n" for line in lines)
            )
            return path
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["k", "ts", "day"])
            writer.writeheader()
            writer.writerows(lines)
        return path


def drawn(count: int, *, seed: int) -> Drawn:
    """So many rows of any size of number, and the rows at both ends of the years."""
    draw = np.random.default_rng(seed)
    moments = _numbers(draw, count, digits=(10, 18.9))
    days = np.clip(_numbers(draw, count, digits=(2, 9.4)), -(2**31), 2**31 - 1)
    at_ends = [(_LEAST, _FIRST), (_MOST, _LAST), (_LEAST - 1, 0), (_MOST + 1, 0)]
    at_ends += [(0, _FIRST - 1), (0, _LAST + 1)]
    pairs = [*zip(moments.tolist(), days.tolist(), strict=True), *at_ends]
    rows = {f"k{place}": Row(moment=pair[0], day=pair[1]) for place, pair in enumerate(pairs)}
    inside = {
        key: row
        for key, row in rows.items()
        if _LEAST <= row.moment <= _MOST and _FIRST <= row.day <= _LAST
    }
    return Drawn(rows=rows, inside=inside)


def _numbers(
    draw: np.random.Generator, count: int, *, digits: tuple[float, float]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    scale = 10.0 ** draw.uniform(*digits, count)
    return (draw.choice([-1, 1], count) * scale).astype(np.int64)


def numbered(table: pa.Table) -> dict[str, Row]:
    """The rows of a table with the columns `k`, `ts` and `day`."""
    moments = table.column("ts").cast(pa.int64()).to_pylist()
    days = table.column("day").cast(pa.date32()).cast(pa.int32()).to_pylist()
    keys = table.column("k").to_pylist()
    return {
        key: Row(moment=moment, day=day)
        for key, moment, day in zip(keys, moments, days, strict=True)
    }


def row_of(moment: Any, day: Any) -> Row:
    """The numbers of values of Python."""
    return Row(
        moment=(moment - EPOCH) // dt.timedelta(microseconds=1),
        day=(day - EPOCH.date()).days,
    )
