"""What a three-way merge should do, in plain Python over dicts: the slow, obvious version.

A graph is `{table key: {id: row}}`, and a row `{column: value}` with all columns of its table.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Table = Mapping[str, Row]
Graph = Mapping[str, Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a caller decided; `resolution` is a word, or the object of a resolution file."""

    resolution: Any = None
    column_level: bool = True
    source_is_newer: bool = False

    def side(self, table_key: str, column: str | None) -> str | None:
        word = self._word(table_key, column)
        if word == "newest":
            return "theirs" if self.source_is_newer else "ours"
        return word

    def _word(self, table_key: str, column: str | None) -> str | None:
        if not isinstance(self.resolution, dict):
            return None if self.resolution is None else str(self.resolution)
        of_type = self.resolution.get("types", {}).get(table_key.split(":")[1], {})
        of_column = of_type.get("columns", {}) if column is not None else {}
        for words, name in ((of_column, column), (of_type, "default")):
            if name in words:
                return str(words[name])
        default: str | None = self.resolution.get("default")
        return default


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One conflict, with the columns of a merge's report."""

    type: str
    id: str
    column: str | None
    base: str | None
    ours: str | None
    theirs: str | None
    kind: str
    resolution: str | None


@dataclass(slots=True)
class Merged:
    """The target after the merge, and every conflict; rows with an open one stay as they were."""

    graph: dict[str, dict[str, Row]] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)


def merge_graphs(base: Graph, source: Graph, target: Graph, rules: Rules) -> Merged:
    merged = Merged()
    for key in sorted({*base, *source, *target}):
        tables = [graph.get(key, {}) for graph in (base, source, target)]
        result: dict[str, Row] = {}
        for name in sorted(set().union(*tables)):
            rows = [table.get(name) for table in tables]
            row = _merged_row(
                _Versions(table_key=key, id=name, base=rows[0], theirs=rows[1], ours=rows[2]),
                rules,
                merged,
            )
            if row is not None:
                result[name] = row
        merged.graph[key] = result
    return merged


def op_of(before: Row | None, after: Row | None) -> str | None:
    """What happened to a row: insert, update, delete or nothing."""
    if spelt(before) == spelt(after):
        return None
    return "insert" if before is None else "delete" if after is None else "update"


def changed_columns(before: Row, after: Row) -> list[str]:
    return [name for name in after if spelt(before[name]) != spelt(after[name])]


def spelt(value: object) -> str:
    """A text that two values share exactly if a merge calls them the same."""
    match value:
        case dict():
            return json.dumps({name: spelt(each) for name, each in value.items()}, sort_keys=True)
        case list() | tuple():
            return f"[{', '.join(map(spelt, value))}]"
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return struct.pack("<d", value).hex()
        case _:
            return repr(value)


def as_json(value: object) -> str:
    """How a conflict tells a value or a row."""
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def _plain(value: object) -> object:
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case _:
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Versions:
    """One row on its way through a merge; None where there is no such row."""

    table_key: str
    id: str
    base: Row | None
    theirs: Row | None
    ours: Row | None


def _merged_row(row: _Versions, rules: Rules, merged: Merged) -> Row | None:
    if op_of(row.base, row.theirs) is None or spelt(row.theirs) == spelt(row.ours):
        return row.ours
    if op_of(row.base, row.ours) is None:
        return row.theirs
    if row.theirs is None or row.ours is None:
        return _whole("delete_vs_update", row, rules, merged)
    if not rules.column_level:
        return _whole(_divergence(row), row, rules, merged)
    return _by_columns(row, row.theirs, row.ours, rules, merged)


def _whole(kind: str, row: _Versions, rules: Rules, merged: Merged) -> Row | None:
    side = rules.side(row.table_key, None)
    texts = [None if each is None else as_json(each) for each in (row.base, row.ours, row.theirs)]
    merged.conflicts.append(_conflict(row, None, kind, side, texts))
    return row.theirs if side == "theirs" else row.ours


def _by_columns(row: _Versions, theirs: Row, ours: Row, rules: Rules, merged: Merged) -> Row:
    result, stopped = dict(ours), False
    for column in ours:
        unchanged = [
            row.base is not None and spelt(row.base[column]) == spelt(side[column])
            for side in (theirs, ours)
        ]
        if spelt(theirs[column]) == spelt(ours[column]) or unchanged[0]:
            continue
        if unchanged[1]:
            result[column] = theirs[column]
            continue
        side = rules.side(row.table_key, column)
        base = None if row.base is None else as_json(row.base[column])
        texts = [base, as_json(ours[column]), as_json(theirs[column])]
        merged.conflicts.append(_conflict(row, column, _divergence(row), side, texts))
        stopped = stopped or side is None
        if side == "theirs":
            result[column] = theirs[column]
    return dict(ours) if stopped else result


def _divergence(row: _Versions) -> str:
    return "divergent_insert" if row.base is None else "divergent_update"


def _conflict(
    row: _Versions, column: str | None, kind: str, side: str | None, texts: list[str | None]
) -> Conflict:
    return Conflict(
        type=row.table_key,
        id=row.id,
        column=column,
        base=texts[0],
        ours=texts[1],
        theirs=texts[2],
        kind=kind,
        resolution=side,
    )
