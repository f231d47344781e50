"""Exports of Omnigraph 0.7 as JSON lines of today.

That program writes days as numbers since 1970 and times without a zone, which are in UTC. Neither
is taken for such a value elsewhere: 2024 is a year to most people, and a time without a zone is not
in UTC to most programs.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from omnigraph_lake.load.formats.splits import BlockLines, LineBlock
from omnigraph_lake.schema.catalog import Catalog, ListType, PropertyType, Scalar, ScalarType

_EPOCH: Final = dt.date(1970, 1, 1).toordinal()


def line_translator(catalog: Catalog) -> Callable[[bytes], bytes]:
    """Makes a line of such an export one of today; other lines stay as they are."""
    times = {
        declared.name: {
            name: scalar
            for name, prop in declared.properties.items()
            if (scalar := _time_in(prop.type)) is not None
        }
        for declared in catalog.tables().values()
    }

    def translate(line: bytes) -> bytes:
        try:
            record = json.loads(line, object_pairs_hook=_distinct)
            data = record["data"]
            for name, scalar in times[record.get("type") or record["edge"]].items():
                if name in data:
                    data[name] = _translate_value(data[name], scalar)
        except (ValueError, LookupError, TypeError, AttributeError):
            return line  # which is refused for what it is
        return json.dumps(record, ensure_ascii=False).encode()

    return translate


def translate_block(block: LineBlock, translate: Callable[[bytes], bytes]) -> LineBlock:
    """A block of such lines."""
    return replace(block, lines=BlockLines(b"\n".join(map(translate, block.lines))))


def _time_in(kind: PropertyType) -> Scalar | None:
    match kind:
        case ScalarType(scalar=scalar) | ListType(item=scalar):
            return scalar if scalar in {Scalar.DATE, Scalar.DATETIME} else None
        case _:
            return None


def _translate_value(value: Any, scalar: Scalar) -> Any:
    if isinstance(value, list):
        return [_translate_value(item, scalar) for item in value]
    if scalar is Scalar.DATE and type(value) is int:
        return dt.date.fromordinal(_EPOCH + value).isoformat()
    if scalar is Scalar.DATETIME and isinstance(value, str):
        time = dt.datetime.fromisoformat(value)
        return value if time.tzinfo else f"{value}Z"
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members
