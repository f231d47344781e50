"""CSV files as rows of one type and refusals.

Invariant: every record comes out once; a refused one is shown as a JSON object of its cells, or as
it has in the file if these do not match its header.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.load.formats.cells import cell_column, cell_row
from omnigraph.load.formats.csv_records import CsvBatch, Ragged, read_csv
from omnigraph.load.formats.input_names import choose_columns
from omnigraph.load.formats.json_record import Claim
from omnigraph.load.formats.records import Parsed, Split, SplitEnd
from omnigraph.load.formats.refusals import Refusal, shown_row
from omnigraph.load.formats.row_validator import Judge, Judged, Places, in_input_order, together
from omnigraph.names import ID_COLUMN
from omnigraph.schema.catalog import Scalar, ScalarType
from omnigraph.validation.reasons import Reason

_TEXT: Final = ScalarType(scalar=Scalar.STRING)


def parse_csv(split: Split, judge: Judge) -> Iterator[Parsed]:
    """Read a whole file.

    Raises:
        InvalidInputError: the file is not CSV, or has different columns than the type.
    """
    lines = records = 0
    for batch in read_csv(split.file):
        chosen = choose_columns(
            batch.cells.schema.names,
            judge.declared,
            columns=split.file.columns,
            where=split.file.path,
        )
        held = _held(batch.cells)
        lines = batch.lines
        records += int(held.sum()) + len(batch.ragged)
        yield from in_input_order(_judged(batch, held, chosen, judge))
    yield SplitEnd(lines=lines, records=records)


def _held(cells: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """The records that have a value; the others are blank lines."""
    held = np.zeros(cells.num_rows, np.bool_)
    for column in cells.columns:
        held |= column.is_valid().to_numpy(zero_copy_only=False)
    return held


def _judged(
    batch: CsvBatch, held: npt.NDArray[np.bool_], chosen: dict[str, str], judge: Judge
) -> Judged:
    garbled = _garbled(batch.cells)
    refusals = [_ragged(each, judge) for each in batch.ragged]
    refusals += [
        _refused(
            int(batch.places[row]),
            judge,
            "found bytes that are not UTF-8, expected text",
            raw=_shown(batch.cells, row),
        )
        for row in np.flatnonzero(garbled).tolist()
    ]
    read = held & ~garbled
    cells = batch.cells if read.all() else batch.cells.filter(pa.array(read))
    judged = _judged_cells(cells, batch.places[read], chosen, judge)
    return together([Judged(refusals=tuple(refusals)), judged])


def _judged_cells(
    cells: pa.RecordBatch, places: Places, chosen: dict[str, str], judge: Judge
) -> Judged:
    # The id is always there, because a table without columns has no rows.
    columns = {ID_COLUMN: pa.nulls(cells.num_rows, pa.string())}
    doubted = np.zeros(cells.num_rows, np.bool_)
    properties = judge.declared.properties
    for name, own in chosen.items():
        kind = properties[name].type if name in properties else _TEXT
        column = cell_column(cells.column(own), kind)
        columns[name] = column.values
        if column.doubted is not None:
            doubted |= column.doubted
    sure = np.flatnonzero(~doubted)
    mask = pa.array(~doubted)
    kept = {name: column.filter(mask) for name, column in columns.items()}
    passed, bad = judge.passed(kept, places[sure])
    doubted[sure[bad]] = True
    claims = [
        _claim(cells, row, int(places[row]), chosen, judge)
        for row in np.flatnonzero(doubted).tolist()
    ]
    return together([Judged(rows=(passed,)), judge.claims(claims)])


def _claim(
    cells: pa.RecordBatch, row: int, place: int, chosen: dict[str, str], judge: Judge
) -> Claim:
    texts = {name: cells.column(own)[row].as_py() for name, own in chosen.items()}
    return Claim(
        place=place,
        claimed=judge.declared.name,
        raw=_shown(cells, row),
        declared=judge.declared,
        row=cell_row(judge.declared, texts),
    )


def _ragged(record: Ragged, judge: Judge) -> Refusal:
    message = f"found {record.found} cells, expected {record.expected}"
    return _refused(record.place, judge, message, raw=record.raw)


def _refused(place: int, judge: Judge, message: str, *, raw: bytes) -> Refusal:
    return Refusal(
        place=place,
        type_name=judge.declared.name,
        reason=Reason.MALFORMED,
        message=message,
        raw=raw,
    )


def _shown(cells: pa.RecordBatch, row: int) -> bytes:
    return shown_row(cells.schema.names, [column[row] for column in cells.columns])


def _garbled(cells: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """The records with a cell that is not UTF-8."""
    garbled = np.zeros(cells.num_rows, np.bool_)
    for column in cells.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            garbled |= [not _is_text(each) for each in column.cast(pa.binary()).to_pylist()]
    return garbled


def _is_text(cell: bytes | None) -> bool:
    try:
        return cell is None or isinstance(cell.decode(), str)
    except UnicodeDecodeError:
        return False
