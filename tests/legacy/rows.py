"""Rows as the published program and as Omnigraph export them, made comparable to the last digit."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omnigraph_lake.graph import Graph, GraphView

DAYS = {"day", "since"}
TIMES = {"at"}
SINGLE_FLOATS = {"f32", "vec"}
_EPOCH = dt.date(1970, 1, 1)

Row = tuple[tuple[str, object], ...]


def published_rows(lines: Iterable[str]) -> list[Row]:
    """What the published program exported: days as numbers, times without a zone, null members."""
    rows = []
    for line in lines:
        record = json.loads(line)
        values = {name: value for name, value in record["data"].items() if value is not None}
        for name in DAYS & values.keys():
            values[name] = _EPOCH + dt.timedelta(days=values[name])
        for name in TIMES & values.keys():
            values[name] = dt.datetime.fromisoformat(values[name]).replace(tzinfo=dt.UTC)
        if "type" in record:
            assert values.pop("id") == values["slug"]
        rows.append(_row(record, values))
    return sorted(rows, key=repr)


def exported_rows(graph: Graph | GraphView, folder: Path) -> list[Row]:
    """What Omnigraph exports."""
    path = folder / "rows.jsonl"
    graph.export(path)
    rows = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        values = dict(record["data"])
        for name in DAYS & values.keys():
            values[name] = dt.date.fromisoformat(values[name])
        for name in TIMES & values.keys():
            values[name] = dt.datetime.fromisoformat(values[name])
        rows.append(_row(record, values))
    path.unlink()
    return sorted(rows, key=repr)


def stored_rows(rows: Iterable[dict[str, Any]], **head: str) -> list[Row]:
    """Rows with Python values, as `get`, `scan` and queries give them."""
    comparable = []
    for row in rows:
        values = {name: value for name, value in row.items() if value is not None}
        ends = {"from": values.pop("src", None), "to": values.pop("dst", None)}
        if "slug" in values:
            assert values.pop("id", values["slug"]) == values["slug"]
        comparable.append(_row({**head, **ends}, values))
    return sorted(comparable, key=repr)


def of_type(rows: Iterable[Row], name: str) -> list[Row]:
    """The rows of one node or edge type."""
    return [row for row in rows if name in {dict(row).get("type"), dict(row).get("edge")}]


def _row(record: dict[str, Any], values: dict[str, Any]) -> Row:
    head = {name: record.get(name) for name in ("type", "edge", "from", "to")}
    for name in SINGLE_FLOATS & values.keys():
        given = values[name]
        values[name] = tuple(map(_single, given)) if isinstance(given, list) else _single(given)
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
        if isinstance(value, bytes):
            values[name] = value.hex()
        if isinstance(value, str) and value.startswith("base64:"):
            values[name] = __import__("base64").b64decode(value.removeprefix("base64:")).hex()
    return tuple(
        sorted((name, value) for name, value in {**head, **values}.items() if value is not None)
    )


def _single(value: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded
