"""Load an input in this process: read it, resolve keys, decide, quarantine, stage and commit.

All rows are held in memory, which takes about five times the size of JSON lines. An input that does
not fit is refused while it is read; such inputs are loaded on Spark.

Invariants:
- Files are read once, before anything is staged. After a lost race, the same rows are settled again
  on the new pins.
- Nothing is staged before the account of every record has been accepted.
- The input holds every record once, in input order, so that a row's position gives its place.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.fork_on_write import writable_entry
from omnigraph.commit.phases import Prepared, Unchanged, Verb, WriteRequest
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import InputTooLargeError
from omnigraph.failpoints import reach
from omnigraph.ids import FreshIds
from omnigraph.load import report as load_report
from omnigraph.load.formats.frames import parse_batches
from omnigraph.load.formats.parse import parse_split, raw_records, shown_at
from omnigraph.load.formats.records import (
    REFUSED_SCHEMA,
    FileFormat,
    Parsed,
    ParsedRows,
    RefusedRecords,
    SplitEnd,
)
from omnigraph.runner.memory import COPIES_OF_A_LOAD, rows_bytes_max
from omnigraph.schema.arrow import table_schema
from omnigraph.schema.model import model_hash
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.staging.changes import (
    StagedChange,
    restage_append,
    stage_append,
    stage_merge,
    stage_overwrite,
)
from omnigraph.validation.constraints import WriteMode, rules_of, table_rules
from omnigraph.validation.input.columns import read_table, without_views
from omnigraph.validation.input.intake import NewIds, declared_types
from omnigraph.validation.lookups import SnapshotTables
from omnigraph.validation.resolve_keys import KeyResolution, ProposedLoad, resolve_keys
from omnigraph.validation.violations import Reason, report_of

if TYPE_CHECKING:
    from omnigraph.load.formats.records import Split
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.snapshot import Snapshot, TableEntry


_PARSERS: Final = min(4, os.cpu_count() or 1)
_PARTS_LEAST: Final = 4
"""Fewer parts of files are parsed one after the other, without threads."""
_LISTED: Final = pa.schema([pa.field("part", pa.int32(), nullable=False), *REFUSED_SCHEMA])


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of the input: a split of a file, or a frame."""

    file: str
    size: int
    source: Split | pa.Table

    @property
    def is_small(self) -> bool:
        """Whether it was cut to a few MiB: rows of frames and Parquet and packed text are not."""
        if isinstance(self.source, pa.Table):
            return False
        file = self.source.file
        return file.format is FileFormat.JSONL and not file.gzipped

    def raw(self, places: Iterable[int]) -> list[bytes]:
        """The records at these places, as they came."""
        if not isinstance(self.source, pa.Table):
            return raw_records(self.source, list(places))
        return [shown_at(self.source, place) for place in places]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRows:
    """An input as it was read; each row of a table has its part and its place beside it."""

    parts: tuple[Part, ...]
    lines_before: tuple[int, ...]
    tables: Mapping[str, pa.Table]
    row_parts: Mapping[str, npt.NDArray[np.int32]]
    row_places: Mapping[str, npt.NDArray[np.uint32]]
    refused: pa.Table
    records: int

    def listed(
        self, refused: Mapping[str, pa.Table], labels: Mapping[str, str], *, with_raw: bool
    ) -> pa.Table:
        """All refused records in the shape of the quarantine table, in input order.

        `refused` are rows of the tables that keyed rules refused, each with reason and message.
        Without `raw` the input is not looked at again.
        """
        keyed = [
            self._keyed(key, rows, labels[key], with_raw=with_raw) for key, rows in refused.items()
        ]
        order = [("part", "ascending"), ("place", "ascending")]
        rows = pa.concat_tables([self.refused, *keyed]).sort_by(order)
        parts = rows.column("part").to_numpy()
        files = pa.array([part.file for part in self.parts], pa.string())
        lines = np.array(self.lines_before, np.int64)[parts] + rows.column("place").to_numpy() + 1
        columns = [rows.column(name) for name in ("type", "reason", "message", "raw")]
        return pa.Table.from_arrays(
            [files.take(pa.array(parts)), pa.array(lines, pa.int64()), *columns],
            schema=load_report.QUARANTINE_SCHEMA,
        )

    def _keyed(self, key: str, rows: pa.Table, label: str, *, with_raw: bool) -> pa.Table:
        positions = rows.column("row").to_numpy()
        parts, places = self.row_parts[key][positions], self.row_places[key][positions]
        raw = self._raw(parts, places) if with_raw else [b""] * len(rows)
        return pa.Table.from_arrays(
            [
                pa.array(parts, pa.int32()),
                pa.array(places, pa.uint32()),
                pa.repeat(label, len(rows)),
                rows.column("reason"),
                rows.column("message"),
                pa.array(raw, pa.binary()),
            ],
            schema=_LISTED,
        )

    def _raw(self, parts: npt.NDArray[np.int32], places: npt.NDArray[np.uint32]) -> list[bytes]:
        raw_rows = [b""] * len(parts)
        for number in np.unique(parts).tolist():
            here = np.flatnonzero(parts == number).tolist()
            for position, raw in zip(
                here, self.parts[number].raw(places[here].tolist()), strict=True
            ):
                raw_rows[position] = raw
        return raw_rows


def read_input(job: load_report.LoadJob) -> InputRows:
    """Read the whole input, part by part."""
    collector = _Collector()
    parts = tuple(_parts(job))
    job.progress.phase("reading", total_bytes=sum(part.size for part in parts))
    with closing(_parse_ahead(job, parts)) as parsed_parts:
        for part, parsed in zip(parts, parsed_parts, strict=True):
            collector.begin(part)
            for piece in parsed:
                job.progress.advance(records=collector.take(piece))
            job.progress.advance(bytes_read=part.size)
    return collector.gathered()


def _parse_ahead(
    job: load_report.LoadJob, parts: Sequence[Part]
) -> Generator[Iterable[Parsed], None, None]:
    """What each part holds, in order; a few are parsed ahead by threads if all are small.

    Parsing frees the interpreter half of the time: Arrow checks values and files are read. Parts of
    any size, such as packed files, are parsed as they are taken, so that an input that does not fit
    is refused before it is in memory.
    """
    at_milliseconds = int(job.clock.now().timestamp() * 1000)

    def parse(number: int) -> Iterable[Parsed]:
        new_ids = FreshIds.of_task(at_milliseconds=at_milliseconds, lot=number)
        return _parse(job, parts[number].source, number, new_ids)

    def parse_whole(number: int) -> list[Parsed]:
        return list(parse(number))

    if len(parts) < _PARTS_LEAST or not all(part.is_small for part in parts):
        yield from map(parse, range(len(parts)))
        return
    with ThreadPoolExecutor(_PARSERS) as parsers:
        ahead: deque[Future[list[Parsed]]] = deque()
        try:
            for number in range(len(parts)):
                ahead.append(parsers.submit(parse_whole, number))
                if len(ahead) > _PARSERS:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            parsers.shutdown(wait=True, cancel_futures=True)


class _Collector:
    """What has been read so far."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._lines_before: list[int] = []
        self._lines: Counter[str] = Counter()
        self._rows: dict[str, list[pa.Table]] = {}
        self._row_parts: dict[str, list[npt.NDArray[np.int32]]] = {}
        self._row_places: dict[str, list[npt.NDArray[np.uint32]]] = {}
        self._refused: list[pa.Table] = [_LISTED.empty_table()]
        self._records = 0
        self._bytes = 0
        self._bytes_max = rows_bytes_max(copies=COPIES_OF_A_LOAD)

    def begin(self, part: Part) -> None:
        self._parts.append(part)
        self._lines_before.append(self._lines[part.file])

    def take(self, parsed: Parsed) -> int:
        """Keep a piece of the present part; returns how many records it holds."""
        number = len(self._parts) - 1
        count = 0
        match parsed:
            case ParsedRows():
                key = parsed.table_key
                count = len(parsed.places)
                self._require_room(parsed.rows.nbytes)
                self._rows.setdefault(key, []).append(parsed.rows)
                self._row_parts.setdefault(key, []).append(np.full(count, number, np.int32))
                self._row_places.setdefault(key, []).append(parsed.places.to_numpy())
            case RefusedRecords():
                count = len(parsed.table)
                numbers = pa.array(np.full(count, number, np.int32))
                self._require_room(parsed.table.nbytes)
                columns = [numbers, *parsed.table.columns]
                self._refused.append(pa.Table.from_arrays(columns, schema=_LISTED))
            case SplitEnd():
                self._lines[self._parts[-1].file] += parsed.lines
                self._records += parsed.records
            case _:
                assert_never(parsed)
        return count

    def _require_room(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._bytes_max:
            raise InputTooLargeError(
                f"the records of {self._parts[-1].file} and of what was read before it",
                needed=self._bytes,
                allowed=self._bytes_max,
            )

    def gathered(self) -> InputRows:
        rows = {
            key: [table for table in tables if len(table)] for key, tables in self._rows.items()
        }
        return InputRows(
            parts=tuple(self._parts),
            lines_before=tuple(self._lines_before),
            tables={key: pa.concat_tables(tables) for key, tables in rows.items() if tables},
            row_parts={
                key: np.concatenate(part_arrays) for key, part_arrays in self._row_parts.items()
            },
            row_places={
                key: np.concatenate(place_arrays) for key, place_arrays in self._row_places.items()
            },
            refused=pa.concat_tables(self._refused),
            records=self._records,
        )


def _parts(job: load_report.LoadJob) -> Iterator[Part]:
    shares = Counter(split.file.path for split in job.splits)
    for split in job.splits:
        size = split.file.size // shares[split.file.path]
        yield Part(file=split.file.path, size=size, source=split)
    declared = declared_types(job.catalog)
    for key, frame in job.frames.items():
        name = declared[key].name
        rows = without_views(read_table(frame, type_name=name))
        yield Part(file=load_report.frame_name(name), size=rows.nbytes, source=rows)


def _parse(
    job: load_report.LoadJob, source: Split | pa.Table, number: int, new_ids: NewIds
) -> Iterable[Parsed]:
    if not isinstance(source, pa.Table):
        return parse_split(source, job.catalog, new_ids=new_ids)
    table_key = tuple(job.frames)[number - len(job.splits)]
    declared = declared_types(job.catalog)[table_key]
    return parse_batches(source.to_batches(), declared, rules_of(declared), new_ids=new_ids)


def load_in_process(job: load_report.LoadJob) -> load_report.LoadReport:
    """Carry out one load in this process."""
    loading = _Loading(job, read_input(job))
    if job.dry_run:
        return loading.tried(read_manifest(job.objects.root, branch=job.branch).snapshot())
    schema_hash = model_hash(job.catalog)
    finished = commit_write(
        WriteRequest.of(job.objects, job.clock, WriterKind.LOAD, job, schema_hash=schema_hash),
        Verb(prepare=loading.prepare),
    )
    if isinstance(finished, Unchanged):
        return loading.report()
    return loading.report(commit=finished.commit_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A preparation that was accepted: its account, and what it staged."""

    report: load_report.LoadReport
    changes: tuple[StagedChange, ...]
    kept: Mapping[str, pa.Int64Array]


class _Loading:
    """Settles and stages one input, again and again while other writers win."""

    def __init__(self, job: load_report.LoadJob, gathered: InputRows) -> None:
        self._job = job
        self._gathered = gathered
        self._rules = table_rules(job.catalog)
        self._labels = load_report.type_labels(job.catalog)
        self._accepted: _Attempt | None = None

    def tried(self, snapshot: Snapshot) -> load_report.LoadReport:
        """The account of a dry run."""
        _, report = self._judged(snapshot)
        return report

    def prepare(self, state: ManifestState) -> Prepared:
        snapshot = state.snapshot()
        settled, report = self._judged(snapshot)
        reach("load.settled")
        report = self._set_aside(settled, report)
        self._job.progress.phase("writing")
        changes = tuple(
            self._staged(self._writable(snapshot, key), rows)
            for key, rows in settled.kept.items()
            if len(rows) or (key in self._overwritten and snapshot.tables[key].row_count)
        )
        reach("load.gathered")
        self._accepted = _Attempt(report=report, changes=changes, kept=settled.kept)
        return Prepared(changes=changes, read_set=settled.read_set)

    def report(self, *, commit: str | None = None) -> load_report.LoadReport:
        """The account of the preparation that was published, or that had nothing to write."""
        if self._accepted is None:
            assert commit is not None
            return load_report.repeated_report(self._job, commit, engine=load_report.Engine.LOCAL)
        if commit is None:
            return self._accepted.report
        changes = self._accepted.changes
        return replace(
            self._accepted.report,
            commit_id=commit,
            inserted={self._labels[change.table_key]: change.rows_inserted for change in changes},
            updated={self._labels[change.table_key]: change.rows_updated for change in changes},
        )

    @property
    def _overwritten(self) -> frozenset[str]:
        if self._job.mode is not WriteMode.OVERWRITE:
            return frozenset()
        return frozenset(self._gathered.tables) | self._job.named

    def _judged(self, snapshot: Snapshot) -> tuple[KeyResolution, load_report.LoadReport]:
        self._job.progress.phase("checking")
        settled = resolve_keys(
            ProposedLoad(
                tables=self._gathered.tables,
                mode=self._job.mode,
                overwritten=self._overwritten,
                order_by=self._job.order_by,
            ),
            self._rules,
            SnapshotTables(root=self._job.objects.root, snapshot=snapshot),
        )
        report = self._account(settled)
        load_report.require_acceptable(
            report, on_error=self._job.on_error, ceiling=self._job.ceiling
        )
        return settled, report

    def _account(self, settled: KeyResolution) -> load_report.LoadReport:
        listed = self._gathered.listed(settled.refused, self._labels, with_raw=False)
        reasons = Counter(listed.column("reason").to_pylist())
        faults = pc.invert(
            pc.is_in(listed.column("reason"), pa.array(sorted(load_report.NO_FAULTS)))
        )
        columns = [field.name for field in fields(load_report.RejectedRecord)]
        shown = listed.filter(faults).slice(0, load_report.OFFENDERS_MAX).select(columns)
        report = load_report.LoadReport(
            read=self._gathered.records,
            written={
                self._labels[key]: len(rows) for key, rows in settled.kept.items() if len(rows)
            },
            quarantined={reason.value: reasons[reason] for reason in Reason if reason in reasons},
            operation_id=self._job.operation_id,
            engine=load_report.Engine.LOCAL,
            mode=self._job.mode,
            rejected=tuple(load_report.RejectedRecord(**record) for record in shown.to_pylist()),
            broken=tuple(
                map(str, report_of(settled.broken, kept_max=load_report.OFFENDERS_MAX).kept)
            ),
            dry_run=self._job.dry_run,
        )
        assert report.read == sum(report.written.values()) + len(listed)
        return report

    def _set_aside(
        self, settled: KeyResolution, report: load_report.LoadReport
    ) -> load_report.LoadReport:
        """The records that are not written go to the quarantine table first."""
        if not report.quarantined:
            if self._accepted is not None and self._accepted.report.quarantine:
                load_report.remove_parts(self._job.quarantine)
            return report
        listed = self._gathered.listed(settled.refused, self._labels, with_raw=True)
        load_report.put_part(self._job.quarantine, 0, listed)
        return replace(report, quarantine=self._job.quarantine.uri)

    def _writable(self, snapshot: Snapshot, key: str) -> TableEntry:
        return writable_entry(
            self._job.objects.root,
            snapshot.tables[key],
            branch=self._job.branch,
            operation_id=self._job.operation_id,
        )

    def _staged(self, entry: TableEntry, kept: pa.Int64Array) -> StagedChange:
        root, key = self._job.objects.root, entry.table_key
        match self._job.mode:
            case WriteMode.APPEND:
                earlier = self._earlier(entry, kept)
                if earlier is not None:
                    return restage_append(root, earlier, entry)
                return stage_append(root, entry, self._rows(key, kept))
            case WriteMode.MERGE:
                return stage_merge(root, entry, self._rows(key, kept))
            case WriteMode.OVERWRITE:
                return stage_overwrite(root, entry, self._rows(key, kept))
            case _:
                assert_never(self._job.mode)

    def _earlier(self, entry: TableEntry, kept: pa.Int64Array) -> StagedChange | None:
        """What a lost race staged, if the same rows are left for the same line of versions."""
        key = entry.table_key
        if self._accepted is None or not self._accepted.kept[key].equals(kept):
            return None
        staged = {change.table_key: change for change in self._accepted.changes}.get(key)
        return staged if staged is not None and staged.entry.fork == entry.fork else None

    def _rows(self, key: str, kept: pa.Int64Array) -> pa.Table:
        rows = self._gathered.tables.get(key)
        if rows is None:
            return table_schema(declared_types(self._job.catalog)[key]).empty_table()
        if len(kept) == len(rows):
            return rows
        # Arrow cannot take more than 2 GiB of text at once; it can leave rows out.
        mask = np.zeros(len(rows), np.bool_)
        mask[kept.to_numpy()] = True
        return rows.filter(pa.array(mask))
