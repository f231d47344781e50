"""The account of an import: what was inferred, what was loaded, and why records were rejected.

Invariant: a cause is a reason and a property, so there are few of them whatever the input; each has
its first record as an example, and the fix. Causes are counted over all rejected records; where the
load was refused and has kept only the first of them, the reasons are still counted exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph_lake.display.cells import counted, short_id
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.load import report as load_report
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.validation.violations import Reason

_FIXES: Final[Mapping[Reason, str]] = {
    Reason.MALFORMED: "Fix the record, or name the format with --format.",
    Reason.UNKNOWN_TYPE: "Add a rule with this value under `where`.",
    Reason.UNKNOWN_COLUMN: "Map the column, or use --unknown-columns ignore or keep.",
    Reason.WRONG_TYPE: "Add `parse` or `null` in the mapping, or use String in the schema.",
    Reason.DOES_NOT_FIT: "Use a wider type in the schema.",
    Reason.MISSING_REQUIRED: "Add `default` in the mapping, or `?` in the schema.",
    Reason.NOT_IN_ENUM: "Add the value to the enum in the schema, or use String.",
    Reason.MISSING_ENDPOINT: "Import the missing nodes, fix rejected ones, or use "
    "--missing-endpoints create.",
    Reason.TOO_MANY_EDGES: "Remove `@card` from the edge in the schema.",
    Reason.DUPLICATE_ID: "Choose another key, or remove the duplicate.",
    Reason.BAD_ID: "Give every record a key.",
    Reason.VECTOR_SIZE: "Use a list in the schema, as in [F32].",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedCause(Displayed):
    """Rejected records with the same fault: how many, the first one, and the fix.

    `count` is a minimum unless `is_exact`. `source` and `line` say where the first record is.
    """

    count: int
    is_exact: bool = True
    source: str
    line: int
    type: str | None
    reason: str
    column: str
    example: str
    fix: str

    def __str__(self) -> str:
        subject = ".".join(part for part in (self.type, self.column) if part)
        count = f"{self.count:,}" if self.is_exact else f"{self.count:,} or more"
        fault = ": ".join(part for part in (subject, self.example) if part)
        place = f"\n  first: {short_path(self.source)}:{self.line}" if self.source else ""
        return f"{count} {self.reason}: {fault}{place}\n  fix: {self.fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSource(Displayed):
    """One source of an import, and the types that its records become."""

    name: str
    location: str
    records: int | None
    """As far as it was profiled; None if the mapping was given."""
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(Displayed):
    """The account of one import.

    `load` is that of its one commit; None in a dry run of a graph that does not exist. `schema` and
    `mapping` are the texts that were used, `schema_file` and `mapping_file` where they were
    written. `next_steps` are commands to try on a graph that was created.
    """

    graph: str
    created: bool
    dry_run: bool
    schema: str
    mapping: str
    schema_file: str | None = None
    mapping_file: str | None = None
    sources: tuple[ImportedSource, ...] = ()
    causes: tuple[RejectedCause, ...] = ()
    load: load_report.LoadReport | None = None
    next_steps: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The report as one JSON object; its keys are a contract."""
        return json.dumps(asdict(self), indent=2, sort_keys=True, default=str)

    def _page(self) -> Page:
        lines = [line for cause in self.causes for line in str(cause).splitlines()]
        if self.load is not None and self.load.quarantine is not None:
            lines.append(f"rejected records: {short_path(self.load.quarantine)}")
        lines.append(self._summary())
        for label, entry in (("schema", self.schema_file), ("mapping", self.mapping_file)):
            if entry is not None:
                lines.append(f"{label:9}{short_path(entry)}")
        labels = ("next", *[""] * len(self.next_steps))
        lines += [f"{label:9}{step}" for label, step in zip(labels, self.next_steps, strict=False)]
        return Page(summary=self._summary(), tables=[self._table()], lines=lines)

    def _table(self) -> TableView:
        """Rows by type, and the sources that they come from."""
        sources: dict[str, list[str]] = {}
        for source in self.sources:
            for name in source.types:
                sources.setdefault(name, []).append(source.name)
        if self.load is None:
            rows = [(name, ", ".join(named)) for name, named in sources.items()]
            return TableView(header=("type", "from"), rows=rows)
        counts: dict[str, Mapping[str, int]] = {"rows": self.load.written}
        if self.load.updated and not self.created:
            counts |= {"inserted": self.load.inserted, "updated": self.load.updated}
        types = dict.fromkeys([*self.load.written, *self.load.inserted])
        return TableView(
            header=("type", *counts, "from"),
            rows=[
                (
                    name,
                    *(f"{count.get(name, 0):,}" for count in counts.values()),
                    ", ".join(sources.get(name, ())),
                )
                for name in types
            ],
            numbers=tuple(range(1, len(counts) + 1)),
        )

    def _summary(self) -> str:
        sources = counted(len(self.sources), "source")
        if self.load is None:
            return f"{sources} inferred; dry run, nothing was written"
        load = self.load
        rows = f"{counted(sum(load.written.values()), 'row')} from {sources}"
        rejected = f", {load.faults:,} rejected" if load.faults else ""
        if self.dry_run:
            return f"{rows}{rejected}; dry run, nothing was written"
        if load.commit_id is None:
            return f"{rows}{rejected}; nothing to write"
        return (
            f"imported {rows}{rejected} in {load.seconds:.1f} s, commit {short_id(load.commit_id)}"
        )


def short_path(path: str) -> str:
    """A path for people: relative to the current directory if it is inside of it."""
    with suppress(ValueError, OSError):
        return str(Path(path).relative_to(Path.cwd()))
    return path


def causes_of(
    report: load_report.LoadReport, place: load_report.QuarantinePlace | None
) -> tuple[RejectedCause, ...]:
    """Rejected records by cause, the most frequent first."""
    causes: dict[tuple[str | None, str, str], RejectedCause] = {}
    for file, line, type_name, reason, message in _iterate_rejected(report, place):
        if Reason(reason) in load_report.NO_FAULTS:
            continue
        column, _, text = message.partition(": ")
        if not text or " " in column:
            column, text = "", message
        key = (type_name, reason, column)
        known = causes.get(key)
        if known is None:
            causes[key] = RejectedCause(
                count=1,
                source=file,
                line=line,
                type=type_name,
                reason=reason,
                column=column,
                example=text,
                fix=_fix(reason),
            )
        else:
            causes[key] = replace(known, count=known.count + 1)
    complete = _complete(causes.values(), report)
    return tuple(sorted(complete, key=lambda cause: -cause.count))


def _complete(
    causes: Iterable[RejectedCause], report: load_report.LoadReport
) -> Iterator[RejectedCause]:
    """The causes with the counts of a report that lists only its first rejected records."""
    by_reason: dict[str, list[RejectedCause]] = {}
    for cause in causes:
        by_reason.setdefault(cause.reason, []).append(cause)
    for reason, total in report.quarantined.items():
        known = by_reason.get(reason, [])
        if sum(cause.count for cause in known) == total:
            yield from known
        elif len(known) > 1:
            yield from (replace(cause, is_exact=False) for cause in known)
        elif known:
            yield replace(known[0], count=total)
        elif Reason(reason) not in load_report.NO_FAULTS:
            yield RejectedCause(
                count=total,
                source="",
                line=0,
                type=None,
                reason=reason,
                column="",
                example="",
                fix=_fix(reason),
            )


def _fix(reason: str) -> str:
    return _FIXES.get(Reason(reason), "Fix the records and import them again.")


def _iterate_rejected(
    report: load_report.LoadReport, place: load_report.QuarantinePlace | None
) -> Iterator[tuple[str, int, str | None, str, str]]:
    if place is None:
        for record in report.rejected:
            yield record.file, record.line, record.type, record.reason, record.message
        return
    objects = StoredObjects(place.root)
    for part in load_report.parts(place):
        content = objects.read(part)
        if content is None:
            continue
        reader = pq.ParquetFile(pa.BufferReader(content))
        columns = ["file", "line", "type", "reason", "message"]
        for batch in reader.iter_batches(columns=columns):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
