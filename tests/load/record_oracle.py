"""What a line of JSON comes to alone, told by a plain parser and the checks of a write.

Nothing of the readers is used.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from omnigraph_lake.schema.catalog import EdgeType, NodeType
from omnigraph_lake.validation.constraints import rules_of
from omnigraph_lake.validation.input.intake import id_source, take_in
from omnigraph_lake.validation.row_checks import check_rows
from tests.load.broken_records import CATALOG
from tests.load.inputs import plain_rows
from tests.validation.graphs import counting_ids


class Beyond:
    """A number no 64 bits hold: nothing takes it."""


def _integer(text: str) -> Any:
    return int(text) if len(text) < 40 else Beyond()


def _float(text: str) -> Any:
    return float(text) if abs(float(text)) < math.inf else Beyond()


@dataclass(frozen=True, slots=True)
class Expected:
    """The row, or the reason why there is none."""

    key: str | None = None
    row: dict[str, Any] | None = None
    reason: str | None = None


def expected(line: bytes) -> Expected:
    """What a line alone comes to."""
    doubles: list[str] = []
    try:
        record = _parsed(line, doubles)
    except (ValueError, RecursionError):
        return Expected(reason="malformed")
    if not _has_form(record):
        return Expected(reason="malformed")
    if doubles:
        return Expected(reason="duplicate_member")
    declared = _declared(record)
    if declared is None:
        return Expected(reason="unknown_type")
    data = dict(record.get("data", {}))
    if not set(data) <= {"id", *declared.properties}:
        return Expected(reason="unknown_column")
    if isinstance(declared, EdgeType):
        data |= {"src": record.get("from"), "dst": record.get("to")}
    if isinstance(data.get("blob"), str):
        data["blob"] = _bytes(data["blob"])
    if data.get("json") is not None:
        exact = json.loads(line.decode(), parse_float=Decimal, parse_int=Decimal)
        data["json"] = exact["data"]["json"]
    return _judged(declared, data)


def _parsed(line: bytes, doubles: list[str]) -> Any:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            doubles.append("")
        return dict(pairs)

    def constant(name: str) -> Any:
        raise ValueError(name)

    return json.loads(
        line.decode(),
        object_pairs_hook=members,
        parse_constant=constant,
        parse_float=_float,
        parse_int=_integer,
    )


def _has_form(record: Any) -> bool:
    if not isinstance(record, dict) or ("type" in record) == ("edge" in record):
        return False
    form = {"type", "data"} if "type" in record else {"edge", "from", "to", "data"}
    claimed = record.get("type", record.get("edge"))
    return (
        set(record) <= form
        and isinstance(claimed, str)
        and isinstance(record.get("data", {}), dict)
    )


def _declared(record: dict[str, Any]) -> NodeType | EdgeType | None:
    if "type" in record:
        return CATALOG.nodes.get(record["type"])
    edges = {name.lower(): edge for name, edge in CATALOG.edges.items()}
    return edges.get(record["edge"].lower())


def _bytes(text: str) -> object:
    if not text.startswith("base64:"):
        return text
    try:
        return base64.b64decode(text[7:], validate=True)
    except (binascii.Error, ValueError):
        return text


def _judged(declared: NodeType | EdgeType, data: dict[str, Any]) -> Expected:
    taken = take_in(declared, [data], new_ids=id_source(counting_ids()))
    broken = check_rows(taken.table, rules_of(declared), unreadable=taken.unreadable)
    for finding in (*taken.findings, *broken):
        return Expected(reason=finding.reason.value)
    return Expected(key=taken.table_key, row=plain_rows(taken.table)[0])
