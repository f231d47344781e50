"""Read JSON lines, block by block, as rows of types and refused records.

There are three readings, each for the lines that the one before it returns without a row: lines
that look alike are read by their shape, lines of any look by decoders of records, and lines that
are still in doubt one by one.

The decoders read many lines at once. That is sound only where no record can reach into the next
line: each line begins with `{` and ends with `}`, and no JSON value has `}` before `{`.

Invariants:
- Every line that is not blank is returned once, as a row or as a refusal.
- A row means what the slow reading, of one line by itself, would make of its line. Doubt is not a
  refusal: every doubted line is read again.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, assert_never

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import UNSET

from omnigraph_lake.load.formats import json_record
from omnigraph_lake.load.formats.input_names import type_names
from omnigraph_lake.load.formats.json_record import DecodedRows
from omnigraph_lake.load.formats.json_shapes import Indexes, ShapeReader
from omnigraph_lake.load.formats.legacy_lines import line_translator, translate_block
from omnigraph_lake.load.formats.records import (
    FileFormat,
    Parsed,
    Refusal,
    Split,
    SplitEnd,
    refused_records,
)
from omnigraph_lake.load.formats.row_validator import (
    RowValidator,
    ValidatedRows,
    in_input_order,
    together,
)
from omnigraph_lake.load.formats.splits import LINE_BYTES_MAX, LineBlock, LongLine, read_lines
from omnigraph_lake.load.formats.values import Column, typed_column, unknown_column
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph_lake.validation.constraints import rules_of
from omnigraph_lake.validation.input.intake import NewIds, table_key_of
from omnigraph_lake.validation.input.mentions import RowMask, mask_of
from omnigraph_lake.validation.violations import Reason

# One bad line spoils the lines it is decoded with, so these are few.
_TOGETHER: Final = 256
_NEWLINE, _BRACE = b"\n}"
_PADDING: Final = bytes(8)


def _beginning(form: str) -> np.uint64:
    """The first bytes of a record as most programs write it, as one number."""
    text = f'{{"{form}"'.encode()
    assert len(text) == len(_PADDING) - 1
    return np.uint64(int.from_bytes(text + b"\0", sys.byteorder))


_NODE_START: Final = _beginning(json_record.NODE_FORM)
_EDGE_START: Final = _beginning(json_record.EDGE_FORM)
_BEGINNING: Final = np.uint64(int.from_bytes(b"\xff" * 7 + b"\0", sys.byteorder))
_EDGE_NAME: Final = f'"{json_record.EDGE_FORM}"'.encode()
_BLANK: Final = b" \t\r"
# The name that says the type, and the one that says the data.
_OUTER_NAMES: Final = 2
_REFUSED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecodedLines:
    """What some lines hold; `blank` of them hold no record."""

    rows: tuple[DecodedRows, ...]
    doubted: Indexes
    blank: int


@dataclass(slots=True, kw_only=True)
class _Group:
    """Decoded records of one type on their way to columns."""

    wire: json_record.WireType
    records: list[Any]
    lines: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looks:
    """The lines of a block by what they look like; `texts` are lines without white space around."""

    texts: list[bytes]
    nodes: list[int]
    edges: list[int]
    doubted: list[int]
    blank: int


def _decode_lines(lines: list[bytes], wire: json_record.Wire) -> _DecodedLines:
    """Read lines without a shape by the decoders of their records."""
    if not lines:
        return _DecodedLines(rows=(), doubted=np.array([], np.int64), blank=0)
    data = b"\n".join([*lines, b""])
    looks = _by_looks(data, lines)
    groups: dict[str, _Group] = {}
    doubted = list(looks.doubted)
    for form, chosen in ((wire.nodes, looks.nodes), (wire.edges, looks.edges)):
        if form is None:
            doubted += chosen
        elif chosen:
            doubted += _decode(form, looks.texts, chosen, groups)
    uncertain = np.zeros(len(lines), np.bool_)
    uncertain[doubted] = True
    names = np.zeros(len(lines), np.int64)
    type_columns = {key: _columns(group, names, uncertain) for key, group in groups.items()}
    _doubt_repeated_names(data, lines, names, uncertain)
    return _DecodedLines(
        rows=tuple(_certain(group, type_columns[key], uncertain) for key, group in groups.items()),
        doubted=np.flatnonzero(uncertain),
        blank=looks.blank,
    )


def _by_looks(data: bytes, lines: list[bytes]) -> _Looks:
    codes = np.frombuffer(data + _PADDING, np.uint8)
    ends = np.flatnonzero(codes[: len(data)] == _NEWLINE)
    if len(ends) < len(lines):
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1])
    windows = np.lib.stride_tricks.sliding_window_view(codes, len(_PADDING))
    beginnings = windows[starts].view(np.uint64)[:, 0] & _BEGINNING
    closed = codes[ends - 1] == _BRACE
    is_node = closed & (beginnings == _NODE_START)
    is_edge = closed & (beginnings == _EDGE_START)
    nodes, edges = np.flatnonzero(is_node).tolist(), np.flatnonzero(is_edge).tolist()
    if len(nodes) + len(edges) == len(lines):
        return _Looks(texts=lines, nodes=nodes, edges=edges, doubted=[], blank=0)
    return _closer_looks(lines, nodes, edges, np.flatnonzero(~is_node & ~is_edge).tolist())


def _closer_looks(
    lines: list[bytes], nodes: list[int], edges: list[int], others: list[int]
) -> _Looks:
    """White space around a record, and other orders of its members."""
    texts = list(lines)
    doubted: list[int] = []
    blank = 0
    for at in others:
        bare = lines[at].strip(_BLANK)
        if not bare:
            blank += 1
        elif bare.startswith(b"{") and bare.endswith(b"}"):
            texts[at] = bare
            (edges if _EDGE_NAME in bare else nodes).append(at)
        else:
            doubted.append(at)
    return _Looks(
        texts=texts, nodes=sorted(nodes), edges=sorted(edges), doubted=doubted, blank=blank
    )


def _decode(
    form: json_record.WireForm, texts: list[bytes], chosen: list[int], groups: dict[str, _Group]
) -> list[int]:
    """Put records into the groups of their types; returns the lines that were refused."""
    records: list[Any] = []
    refused: list[int] = []
    read: list[int] = []
    for start in range(0, len(chosen), _TOGETHER):
        lines = chosen[start : start + _TOGETHER]
        decoded_records = _together(form, [texts[at] for at in lines])
        if decoded_records is not None:
            records += decoded_records
            read += lines
            continue
        for at in lines:
            try:
                records.append(form.decoder.decode(texts[at]))
                read.append(at)
            except _REFUSED:
                refused.append(at)
    _group(form, records, read, groups)
    return refused


def _together(form: json_record.WireForm, texts: list[bytes]) -> list[Any] | None:
    try:
        records = form.decoder.decode_lines(b"\n".join(texts))
    except _REFUSED:
        return None
    # Two records on one line are none.
    return records if len(records) == len(texts) else None


def _group(
    form: json_record.WireForm, records: list[Any], lines: list[int], groups: dict[str, _Group]
) -> None:
    classes = set(map(type, records))
    if len(classes) == 1:
        wire = form.types[classes.pop()]
        groups[wire.table_key] = _Group(wire=wire, records=records, lines=lines)
        return
    by_class = {}
    for record_class in classes:
        wire = form.types[record_class]
        by_class[record_class] = groups.setdefault(
            wire.table_key, _Group(wire=wire, records=[], lines=[])
        )
    for record, at in zip(records, lines, strict=True):
        group = by_class[type(record)]
        group.records.append(record)
        group.lines.append(at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The columns of a group, and which rows mention those that not all of them mention."""

    values: dict[str, pa.Array]
    present: dict[str, RowMask]


def _columns(group: _Group, names: Indexes, uncertain: npt.NDArray[np.bool_]) -> _Columns:
    """The columns of a group; says how many names each of its lines has, and which are doubted."""
    lines = np.array(group.lines, np.int64)
    data = [record.data for record in group.records]
    outside = np.full(len(lines), _OUTER_NAMES, np.int64)
    inside = np.zeros(len(lines), np.int64)
    # The id is always there, because a table without columns has no rows.
    columns = {ID_COLUMN: pa.nulls(len(lines), pa.string())}
    mentioned: dict[str, RowMask] = {}
    for wired in group.wire.columns:
        values = list(map(wired.value, data if wired.inside_data else group.records))
        if values[0] is UNSET and values.count(UNSET) == len(values):
            continue
        column, present = _column(wired, values)
        mentioned_rows = 1 if present is None else present
        (inside if wired.inside_data else outside)[:] += wired.names_count * mentioned_rows
        if column.names is not None:
            inside += column.names
        columns[wired.name] = column.values
        if present is not None:
            mentioned[wired.name] = mask_of(present)
        if column.doubted is not None:
            uncertain[lines[column.doubted]] = True
    for at in np.flatnonzero(inside == 0).tolist():
        outside[at] -= data[at] is group.wire.no_data
    names[lines] = outside + inside
    return _Columns(values=columns, present=mentioned)


def _column(
    wired: json_record.WireColumn, values: list[Any]
) -> tuple[Column, npt.NDArray[np.bool_] | None]:
    """The column of these values, and where there are any if that is not everywhere."""
    column = typed_column(values, wired.kind)
    if column is not None:
        return column, None
    present = np.array([value is not UNSET for value in values], np.bool_)
    filled = [None if value is UNSET else value for value in values]
    return typed_column(filled, wired.kind) or unknown_column(len(values), wired.kind), present


def _doubt_repeated_names(
    data: bytes, lines: list[bytes], names: Indexes, uncertain: npt.NDArray[np.bool_]
) -> None:
    """Doubt the lines that may say a name twice."""
    others = sum(lines[at].count(b":") for at in np.flatnonzero(names == 0).tolist())
    if data.count(b":") - others == names.sum():
        # A name costs a colon: where there are no others, there is no second one.
        return
    uncertain |= (names > 0) & (json_record.names_at_most(data) > names)


def _certain(group: _Group, columns: _Columns, uncertain: npt.NDArray[np.bool_]) -> DecodedRows:
    lines = np.array(group.lines, np.int64)
    kept = ~uncertain[lines]
    values, present = columns.values, columns.present
    if not kept.all():
        mask = pa.array(kept)
        values = {name: column.filter(mask) for name, column in values.items()}
        present = {name: rows.filter(mask) for name, rows in present.items()}
    return DecodedRows(wire=group.wire, columns=values, lines=lines[kept], present=present)


def parse_lines(
    split: Split,
    catalog: Catalog,
    *,
    new_ids: NewIds,
    block_bytes: int,
    partial: bool = False,
    end_types: Mapping[str, str] | None = None,
) -> Iterator[Parsed]:
    """Everything the lines of a split hold."""
    reader = _LineReader(catalog, new_ids, partial=partial, end_types=end_types or {})
    is_legacy = split.file.format is FileFormat.JSONL_OF_0_7
    translate = line_translator(catalog) if is_legacy else None
    lines = records = 0
    for line in read_lines(split, block_bytes=block_bytes):
        match line:
            case LineBlock():
                block = line if translate is None else translate_block(line, translate)
                read, blank = yield from reader.block(block)
                lines += read
                records += read - blank
            case LongLine():
                lines += 1
                records += 1
                yield refused_records([_too_long(line)])
            case _:
                assert_never(line)
    yield SplitEnd(lines=lines, records=records)


@lru_cache(maxsize=4)
def _wire(catalog: Catalog) -> json_record.Wire:
    """Made once per schema: every split of a load has the same."""
    return json_record.wire_of(catalog)


class _LineReader:
    """Reads blocks of lines of one schema."""

    def __init__(
        self,
        catalog: Catalog,
        new_ids: NewIds,
        *,
        partial: bool,
        end_types: Mapping[str, str],
    ) -> None:
        self._wire = _wire(catalog)
        self._shapes = ShapeReader(self._wire)
        self._claims = json_record.ClaimReader(type_names(catalog))
        declared: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
        self._judges = {
            table_key_of(declared_type): RowValidator(
                declared=declared_type,
                rules=rules_of(declared_type),
                new_ids=new_ids,
                partial=partial,
                end_types=end_types,
            )
            for declared_type in declared
        }

    def block(self, line_block: LineBlock) -> Generator[Parsed, None, tuple[int, int]]:
        """Yield what the lines hold; returns how many there are, and how many of them are blank."""
        lines = line_block.lines
        rows, others = self._shapes.read(lines)
        decoded = _decode_lines([lines[at] for at in others.tolist()], self._wire)
        rows += tuple(replace(part, lines=others[part.lines]) for part in decoded.rows)
        checked: list[ValidatedRows] = []
        doubted = [others[decoded.doubted]]
        for type_rows in (part for part in rows if len(part.lines)):
            places = (type_rows.lines + line_block.first).astype(np.uint32)
            passed, bad = self._judges[type_rows.wire.table_key].passed(
                type_rows.columns, places, type_rows.present
            )
            checked.append(ValidatedRows(rows=(passed,)))
            doubted.append(type_rows.lines[bad])
        refusals: list[Refusal] = []
        claims: dict[str, list[json_record.Claim]] = defaultdict(list)
        for at in np.sort(np.concatenate(doubted)).tolist():
            claim = self._claims.read(lines[at], line_block.first + at)
            if isinstance(claim, Refusal):
                refusals.append(claim)
            else:
                claims[table_key_of(claim.declared)].append(claim)
        checked.append(ValidatedRows(refusals=tuple(refusals)))
        checked += [self._judges[key].claims(type_claims) for key, type_claims in claims.items()]
        yield from in_input_order(together(checked))
        return len(lines), decoded.blank


def _too_long(line: LongLine) -> Refusal:
    return Refusal(
        place=line.place,
        type_name=None,
        reason=Reason.MALFORMED,
        message=f"found a line of {line.size} bytes, expected at most {LINE_BYTES_MAX}",
        raw=line.head,
    )
