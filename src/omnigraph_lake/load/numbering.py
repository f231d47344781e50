"""Number equal records that have no key, so that each of them is a row.

    count      records of a digest meet in a bucket; all but the first get a number
    replace    pieces that have numbered records stage their rows again

The ids of the rows of a record, and the ends of its edges, contain its digest; the numbered digest
`DIGEST~1` takes its place there. If records are to be new rows although equal ones are published,
numbers begin behind those.

Invariants:
- The number of a record is that of equal records before it in the input, whatever its pieces are.
- Positions and places of rows do not change. A piece without numbered records stays as it is.
- A task holds one bucket of digests, or one piece. The driver holds names of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph_lake.load.completion import PieceOutputs
from omnigraph_lake.load.formats.digests import DIGEST_BYTES
from omnigraph_lake.load.staging import (
    DIGEST,
    NUMBER,
    PieceReport,
    StagingPlan,
    places_of,
    refuse_blobs,
    stage_rows,
)
from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.runner.protocol import Runner, Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import BucketWriter, StagedFile, files_by_bucket, read_files
from omnigraph_lake.validation.hashed_keys import split_and_position

if TYPE_CHECKING:
    from omnigraph_lake.validation.lookups import PinnedTables

RECORDS_PER_BUCKET: Final = 250_000
"""Their digests and places have 6 MB, and take about 25 MB while they are sorted."""
_START: Final = "first number"
_DIGESTS, _NUMBERED = "digests", "numbered"
_IDENTIFYING: Final = (ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    """The numbered records of a piece: files with their digests, places and numbers."""

    report: PieceReport = field(repr=False)
    paths: tuple[str, ...] = field(repr=False)


def number_records(
    runner: Runner,
    plan: StagingPlan,
    reports: Sequence[PieceReport],
    *,
    published: PinnedTables | None,
) -> Sequence[PieceReport]:
    """The pieces whose equal records have different ids; behind those of `published`, if given."""
    records = sum(file.rows for report in reports for file in report.digests)
    if not records:
        return reports
    stage = partial(Stage, verb="load")
    buckets = -(-records // RECORDS_PER_BUCKET)
    files = [file for report in reports for file in report.digests]
    if buckets > 1 or published is not None:
        scattered = runner.map(
            stage(name="exchange digests"),
            [report for report in reports if report.digests],
            partial(_scatter, plan, published, buckets),
            list[StagedFile],
        )
        files = [file for of_piece in require_answers(scattered) for file in of_piece]
    counted = runner.map(
        stage(name="number equal records"),
        [tuple(file.path for file in of_bucket) for of_bucket in files_by_bucket(files).values()],
        partial(_number, plan),
        list[StagedFile],
    )
    answers = (file for of_bucket in require_answers(counted) for file in of_bucket)
    by_piece = {piece: files for (_, piece), files in files_by_bucket(answers).items()}
    if not by_piece:
        return reports
    work = [
        _Numbered(report=report, paths=tuple(file.path for file in by_piece[report.number]))
        for report in reports
        if report.tables and report.number in by_piece  # all of its records may be rejected
    ]
    staged = runner.map(
        stage(name="stage numbered records"), work, partial(_replace, plan), PieceReport
    )
    replaced = {report.number: report for report in require_answers(staged)}
    return tuple(replaced.get(report.number, report) for report in reports)


def _scatter(
    plan: StagingPlan,
    published: PinnedTables | None,
    buckets: int,
    report: PieceReport,
    task: Task,
) -> list[StagedFile]:
    """Send the digests of a piece to their buckets."""
    paths = [file.path for file in report.digests]
    starts: dict[str, int] = {}
    if published is not None and report.tables:
        starts = _first_free(plan, published, report, paths, task)
    writer = BucketWriter(plan.scratch, table=0, role=_DIGESTS, buckets=buckets)
    for batch in read_files(plan.scratch, paths):
        task.advance(rows=len(batch))
        digests = batch.column(DIGEST)
        if published is not None:
            first = [starts.get(digest.hex(), 0) for digest in digests.to_pylist()]
            batch = batch.append_column(_START, pa.array(first, pa.uint64()))  # noqa: PLW2901
        writer.add_by_hash(batch, _halves(digests)[:, 0])
    return writer.files()


def _number(plan: StagingPlan, paths: Sequence[str], task: Task) -> list[StagedFile]:
    """Number the records of some digests; those with a number go to files of their pieces."""
    records = pa.Table.from_batches(read_files(plan.scratch, paths))
    task.advance(rows=len(records))
    halves = _halves(records.column(DIGEST).combine_chunks())
    places = records.column(NUMBER).to_numpy()
    order = np.lexsort((places, halves[:, 1], halves[:, 0]))
    halves = halves[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (halves[1:] != halves[:-1]).any(axis=1)
    starts = np.flatnonzero(begins)
    group = np.cumsum(begins) - 1
    numbers = (np.arange(len(order)) - starts[group]).astype(np.uint64)
    if _START in records.column_names:
        first = records.column(_START).to_numpy()[order]
        numbers += np.maximum.reduceat(first, starts)[group]
    chosen = np.flatnonzero(numbers)
    outputs = PieceOutputs(plan.scratch, 0)
    rows = records.select([NUMBER, DIGEST]).take(pa.array(order[chosen]))
    outputs.add(_NUMBERED, rows.append_column(_NUMBERED, pa.array(numbers[chosen])))
    return outputs.written()


def _replace(plan: StagingPlan, work: _Numbered, task: Task) -> PieceReport:
    """Stage the rows of numbered records again."""
    report = work.report
    records = pa.Table.from_batches(read_files(plan.scratch, work.paths)).sort_by(NUMBER)
    _, places = split_and_position(records.column(NUMBER).to_numpy())
    digests = [digest.hex() for digest in records.column(DIGEST).to_pylist()]
    numbers = records.column(_NUMBERED).to_pylist()
    tables = dict(report.tables)
    for table_key, places_of_rows in places_of(plan.scratch, report).items():
        task.advance()
        at = np.searchsorted(places, places_of_rows)
        at[at == len(places)] = 0
        rows = np.flatnonzero(places[at] == places_of_rows)
        if not len(rows):
            continue
        schema = plan.schema(table_key)
        if plan.spool is None:
            refuse_blobs(plan.entries[table_key], schema)
        batches = tables[table_key].read(plan.root, plan.entries[table_key], schema.names)
        staged = pa.Table.from_batches(batches)
        of_records = [(digests[index], numbers[index]) for index in at[rows].tolist()]
        changed = _with_numbers(staged, rows, of_records)
        if changed is not staged:
            tables[table_key] = stage_rows(plan, report.number, table_key, changed)
    return msgspec.structs.replace(report, tables=tables)


def _with_numbers(
    rows: pa.Table, positions: np.ndarray, records: Sequence[tuple[str, int]]
) -> pa.Table:
    """The rows with numbered digests at some positions; the same table if none has its digest."""
    for column in _IDENTIFYING:
        at = rows.schema.get_field_index(column)
        if at < 0:
            continue
        values = rows.column(column).combine_chunks()
        texts = values.take(pa.array(positions)).to_pylist()
        numbered = [number_id(text, *record) for text, record in zip(texts, records, strict=True)]
        if numbered != texts:
            source = np.arange(len(rows))
            source[positions] = len(rows) + np.arange(len(positions))
            both = pa.concat_arrays([values, pa.array(numbered, values.type)])
            rows = rows.set_column(at, rows.schema.field(at), both.take(pa.array(source)))
    return rows


def number_id(text: str, digest: str, number: int) -> str:
    """An id that is made of a digest, for the record with this number."""
    return text.replace(digest, f"{digest}~{number}") if number else text


def _first_free(
    plan: StagingPlan,
    published: PinnedTables,
    report: PieceReport,
    paths: Sequence[str],
    task: Task,
) -> dict[str, int]:
    """By digest, the number behind those of published rows; of a digest that has any."""
    batches = list(read_files(plan.scratch, paths))
    records = pa.Table.from_batches(batches).sort_by(NUMBER)
    _, places = split_and_position(records.column(NUMBER).to_numpy())
    digests = records.column(DIGEST)
    free: dict[str, int] = {}
    for table_key, places_of_rows in places_of(plan.scratch, report).items():
        if not published.row_count(table_key):
            continue
        at = np.searchsorted(places, places_of_rows)
        first = 0
        entry = plan.entries[table_key]
        for batch in report.tables[table_key].read(plan.root, entry, [ID_COLUMN]):
            task.advance(rows=len(batch))
            of_rows = digests.take(pa.array(at[first : first + len(batch)])).to_pylist()
            first += len(batch)
            ids = zip(batch.column(0).to_pylist(), of_rows, strict=True)
            named = {(text, digest.hex()) for text, digest in ids if digest.hex() in text}
            for digest, number in _numbers_behind(published, table_key, named):
                free[digest] = max(free.get(digest, 0), number)
    return free


def _numbers_behind(
    published: PinnedTables, table_key: str, ids: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, int]]:
    """Digests with a number behind one that a published id has.

    Numbers are asked for in runs that double, until a run has none: rows that were deleted leave
    gaps.
    """
    pending, first, size = set(ids), 0, 1
    while pending:
        asked = {
            number_id(text, digest, number): (text, digest, number)
            for text, digest in pending
            for number in range(first, first + size)
        }
        batches = published.take(table_key, pa.array(list(asked), pa.string()), [ID_COLUMN])
        hits = [asked[text] for batch in batches for text in batch.column(ID_COLUMN).to_pylist()]
        yield from ((digest, number + 1) for _, digest, number in hits)
        pending = {(text, digest) for text, digest, _ in hits}
        first, size = first + size, 2 * size


def _halves(digests: pa.FixedSizeBinaryArray) -> np.ndarray:
    """Digests as two numbers each."""
    words = np.frombuffer(digests.buffers()[1], np.uint64).reshape(-1, DIGEST_BYTES // 8)
    return words[digests.offset : digests.offset + len(digests)]
