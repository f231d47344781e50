"""Define what tasks of a load do: stage a piece, set its rejected records aside, write rows.

Invariant: what a task needs travels with it; it runs in any process, and may run twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from omnigraph_lake.load import report as load_report
from omnigraph_lake.load.formats.frames import parse_batches
from omnigraph_lake.load.formats.mapped import MappedParser
from omnigraph_lake.load.formats.parse import parse_split, raw_frame
from omnigraph_lake.load.rejected import StagedLoad, set_aside
from omnigraph_lake.load.staging import PieceReport, PieceStager, StagingPlan
from omnigraph_lake.load.upsert import PieceRows
from omnigraph_lake.runner.protocol import FramePart, Task
from omnigraph_lake.storage.staging import bulk
from omnigraph_lake.validation.constraints import rules_of
from omnigraph_lake.validation.input.intake import declared_types
from omnigraph_lake.validation.keyed_passes import PieceRefusals, Verdict

if TYPE_CHECKING:
    from omnigraph_lake.load.formats.records import Split
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

_ROWS_PER_WRITE: Final = 500_000


class WrittenRows(msgspec.Struct, frozen=True, array_like=True):
    """Fragments that one task wrote."""

    fragments: list[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteWork:
    """Kept rows of some pieces that become fragments of one table."""

    entry: TableEntry
    schema: pa.Schema = field(repr=False)
    pieces: tuple[PieceRows, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAsideWork:
    """The rejected records of one piece."""

    report: PieceReport = field(repr=False)
    verdicts: tuple[Verdict, ...]
    refused: PieceRefusals
    lines_before: int


def stage_split(plan: StagingPlan, split: Split, task: Task) -> PieceReport:
    stager = PieceStager(plan, split.number, source=split.file.label)
    parsed = parse_split(
        split,
        plan.catalog,
        new_ids=stager.fresh_ids,
        partial=plan.partial,
        end_types=plan.end_types,
    )
    report = stager.run(parsed, task)
    task.advance(size=_size(split))
    return report


def _size(split: Split) -> int:
    is_cut = split.end - split.start < split.file.size
    return split.end - split.start if is_cut else split.file.size


def stage_frame(plan: StagingPlan, part: FramePart, task: Task) -> PieceReport:
    """Stage the rows of a part of a frame; runs in any process."""
    if part.frame in plan.mappings:
        return _stage_mapped_frame(plan, part, task)
    declared = declared_types(plan.catalog)[part.frame]
    source = load_report.frame_name(load_report.type_labels(plan.catalog)[part.frame])
    stager = PieceStager(plan, part.number, source=source)
    parsed = parse_batches(
        part.batches,
        declared,
        rules_of(declared),
        new_ids=stager.fresh_ids,
        partial=plan.partial,
        end_types=plan.end_types,
    )
    return stager.run(parsed, task)


def _stage_mapped_frame(plan: StagingPlan, part: FramePart, task: Task) -> PieceReport:
    source = load_report.frame_name(part.frame)
    stager = PieceStager(plan, part.number, source=source)
    parser = MappedParser(
        plan.mappings[part.frame],
        plan.catalog,
        new_ids=stager.fresh_ids,
        partial=plan.partial,
        where=source,
    )
    return stager.run(parser.parse(raw_frame(part.batches, source)), task)


def set_piece_aside(
    load: StagedLoad, place: load_report.QuarantinePlace, work: SetAsideWork, task: Task
) -> int:
    task.advance()
    return set_aside(
        load,
        work.report,
        work.refused.read(),
        work.verdicts,
        place=place,
        lines_before=work.lines_before,
    )


def write_pieces(root: Root, work: WriteWork, task: Task) -> WrittenRows:
    def rows() -> Iterator[pa.RecordBatch]:
        for piece in work.pieces:
            for _, batch in piece.kept(root, work.entry, work.schema.names):
                task.advance(rows=len(batch))
                yield batch.cast(work.schema)

    reader = pa.RecordBatchReader.from_batches(work.schema, rows())
    # The commit makes files of this process durable.
    fragments = bulk.write_rows(root, work.entry, reader)
    task.advance(written=bulk.count_bytes(fragments))
    return WrittenRows([(fragment.description, fragment.rows) for fragment in fragments])


def group_pieces(pieces: Sequence[PieceRows]) -> Iterator[tuple[PieceRows, ...]]:
    """Neighbouring pieces with enough rows for a fragment."""
    group: list[PieceRows] = []
    for piece in pieces:
        if piece.rows_kept:
            group.append(piece)
        if sum(member.rows_kept for member in group) >= _ROWS_PER_WRITE:
            yield tuple(group)
            group = []
    if group:
        yield tuple(group)
