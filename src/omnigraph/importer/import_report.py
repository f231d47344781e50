"""The account of an import: what was inferred, what was loaded, and why records were rejected.

Invariant: causes are counted over all rejected records, in memory bounded by the number of causes;
each has an example and the fix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.display.cells import counted
from omnigraph.display.pages import Displayed, Page, page_of
from omnigraph.display.tables import TableView
from omnigraph.load import report as load_report
from omnigraph.storage.objects.store import StoredObjects
from omnigraph.validation.violations import Reason

if TYPE_CHECKING:
    from omnigraph.storage.objects.location import Root

CAUSES_MAX: Final = 100
_FIXES: Final[Mapping[Reason, str]] = {
    Reason.MALFORMED: "Fix the record, or name the format with --format.",
    Reason.UNKNOWN_TYPE: "Add a rule with this value under `where`.",
    Reason.UNKNOWN_COLUMN: "Map the column, or use --unknown-columns ignore or keep.",
    Reason.WRONG_TYPE: "Add `parse`, `format` or `null` to the property in the mapping, or make it "
    "a String in the schema.",
    Reason.DOES_NOT_FIT: "Use a wider type in the schema.",
    Reason.MISSING_REQUIRED: "Add `default` to the property in the mapping, or `?` in the schema.",
    Reason.NOT_IN_ENUM: "Add the value to the enum in the schema, or make it a String.",
    Reason.MISSING_ENDPOINT: "Import the missing nodes too, or use --missing-endpoints create.",
    Reason.TOO_MANY_EDGES: "Remove `@card` from the edge in the schema.",
    Reason.DUPLICATE_ID: "Choose another key, or remove the duplicate.",
    Reason.BAD_ID: "Give every record a key.",
    Reason.VECTOR_SIZE: "Make the property a list, as in [F32].",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedCause(Displayed):
    """Rejected records with the same fault: how many, an example, and the fix."""

    count: int
    source: str
    type: str | None
    reason: str
    column: str
    example: str
    fix: str

    def __str__(self) -> str:
        thing = ".".join(part for part in (self.type or "", self.column) if part) or self.source
        return f"{self.count:,} {self.reason}: {thing}: {self.example}. {self.fix}"


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
    written.
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

    def to_json(self) -> str:
        """The report as one JSON object; its keys are a contract."""
        return json.dumps(asdict(self), indent=2, sort_keys=True, default=str)

    def _page(self) -> Page:
        tables: list[TableView] = []
        lines: list[str] = []
        if self.load is not None:
            page = page_of(self.load)
            tables += page.tables
            lines += [line for line in page.lines if not line.startswith("quarantined")]
        else:
            rows = [(source.name, ", ".join(source.types)) for source in self.sources]
            tables.append(TableView(header=("source", "types"), rows=rows))
            lines.append("dry run, nothing was written")
        lines = [*(str(cause) for cause in self.causes), *lines]
        if self.schema_file is not None:
            lines.append(f"schema   {self.schema_file}")
        if self.mapping_file is not None:
            lines.append(f"mapping  {self.mapping_file}")
        return Page(summary=self._summary(), tables=tables, lines=lines)

    def _summary(self) -> str:
        sources = counted(len(self.sources), "source")
        if self.load is None:
            return f"{sources} inferred; dry run, nothing was written"
        written = counted(sum(self.load.written.values()), "row")
        rejected = f", {self.load.faults:,} rejected" if self.load.faults else ""
        if self.dry_run:
            return f"{sources}: {written}{rejected}; dry run, nothing was written"
        return f"imported {written} from {sources}{rejected}"


def causes_of(
    report: load_report.LoadReport, place: load_report.QuarantinePlace | None
) -> tuple[RejectedCause, ...]:
    """Rejected records by cause, the most frequent first."""
    counts: dict[tuple[str, str | None, str, str], tuple[int, str]] = {}
    for file, type_name, reason, message in _iterate_rejected(report, place):
        if Reason(reason) in load_report.NO_FAULTS:
            continue
        column, _, text = message.partition(": ")
        if not text or " " in column:
            column, text = "", message
        key = (file, type_name, reason, column)
        if key in counts or len(counts) < CAUSES_MAX:
            count, example = counts.get(key, (0, text))
            counts[key] = (count + 1, example)
    causes = [
        RejectedCause(
            count=count,
            source=file,
            type=type_name,
            reason=reason,
            column=column,
            example=example,
            fix=_FIXES.get(Reason(reason), "Fix the records and import them again."),
        )
        for (file, type_name, reason, column), (count, example) in counts.items()
    ]
    return tuple(sorted(causes, key=lambda cause: -cause.count))


def _iterate_rejected(
    report: load_report.LoadReport, place: load_report.QuarantinePlace | None
) -> Iterator[tuple[str, str | None, str, str]]:
    if place is None or report.quarantine is None:
        for record in report.rejected:
            yield record.file, record.type, record.reason, record.message
        return
    objects = StoredObjects(place.root)
    for part in load_report.parts(place):
        content = objects.read(part)
        if content is None:
            continue
        reader = pq.ParquetFile(pa.BufferReader(content))
        columns = ["file", "type", "reason", "message"]
        for batch in reader.iter_batches(columns=columns):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def quarantine_of(
    root: Root, report: load_report.LoadReport, directory: str | None
) -> load_report.QuarantinePlace:
    return load_report.quarantine_place(root, report.operation_id, directory)
