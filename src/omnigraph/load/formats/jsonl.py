"""JSON lines as rows of types and refusals.

Invariant: block by block, every line that is not blank comes out once, as a row or as a refusal.
The fast reading takes what it is sure of; every other line is read by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator
from functools import lru_cache
from typing import assert_never

import numpy as np

from omnigraph.load.formats.decode import decode_block
from omnigraph.load.formats.json_record import Claim, ClaimReader
from omnigraph.load.formats.lines import LINE_BYTES_MAX, LineBlock, LongLine, read_lines
from omnigraph.load.formats.records import Parsed, Split, SplitEnd
from omnigraph.load.formats.refusals import Refusal, refused_records
from omnigraph.load.formats.row_validator import Judge, Judged, in_input_order, together
from omnigraph.load.formats.type_names import type_names
from omnigraph.load.formats.wire import Wire, wire_of
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.validation.constraints import rules_of
from omnigraph.validation.input.intake import NewIds, table_key_of
from omnigraph.validation.reasons import Reason


def parse_lines(
    split: Split, catalog: Catalog, *, new_ids: NewIds, block_bytes: int
) -> Iterator[Parsed]:
    """Everything the lines of a split hold."""
    reader = _LineReader(catalog, new_ids)
    lines = records = 0
    for found in read_lines(split, block_bytes=block_bytes):
        match found:
            case LineBlock():
                read, blank = yield from reader.block(found)
                lines += read
                records += read - blank
            case LongLine():
                lines += 1
                records += 1
                yield refused_records([_too_long(found)])
            case _:
                assert_never(found)
    yield SplitEnd(lines=lines, records=records)


@lru_cache(maxsize=4)
def _wire(catalog: Catalog) -> Wire:
    """Made once per schema: every split of a load has the same."""
    return wire_of(catalog)


class _LineReader:
    """Reads blocks of lines of one schema."""

    def __init__(self, catalog: Catalog, new_ids: NewIds) -> None:
        self._wire = _wire(catalog)
        self._claims = ClaimReader(type_names(catalog))
        declared: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
        self._judges = {
            table_key_of(each): Judge(declared=each, rules=rules_of(each), new_ids=new_ids)
            for each in declared
        }

    def block(self, found: LineBlock) -> Generator[Parsed, None, tuple[int, int]]:
        """Yield what the lines hold; returns how many there are, and how many of them are blank."""
        decoded = decode_block(found, self._wire)
        judged: list[Judged] = []
        doubted = [decoded.doubted]
        for each in (rows for rows in decoded.rows if len(rows.lines)):
            places = (each.lines + found.first).astype(np.uint32)
            passed, bad = self._judges[each.wire.table_key].passed(each.columns, places)
            judged.append(Judged(rows=(passed,)))
            doubted.append(each.lines[bad])
        refusals: list[Refusal] = []
        claims: dict[str, list[Claim]] = defaultdict(list)
        for at in np.sort(np.concatenate(doubted)).tolist():
            claim = self._claims.read(decoded.lines[at], found.first + at)
            if isinstance(claim, Refusal):
                refusals.append(claim)
            else:
                claims[table_key_of(claim.declared)].append(claim)
        judged.append(Judged(refusals=tuple(refusals)))
        judged += [self._judges[key].claims(some) for key, some in claims.items()]
        yield from in_input_order(together(judged))
        return len(decoded.lines), decoded.blank


def _too_long(line: LongLine) -> Refusal:
    return Refusal(
        place=line.place,
        type_name=None,
        reason=Reason.MALFORMED,
        message=f"found a line of {line.size} bytes, expected at most {LINE_BYTES_MAX}",
        raw=line.head,
    )
