"""The account of an import: what was inferred, what was loaded, and why records were rejected.

Invariant: a cause is a reason, a type and a column of one source, so there are few of them whatever
the input; each has its first record as an example, and the fix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from omnigraph_lake.display.cells import counted, short_id
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.importer.draft import Hint
from omnigraph_lake.importer.explanation import NO_EXPLANATION, Explanation
from omnigraph_lake.load import report as load_report
from omnigraph_lake.validation.violations import Reason

_FIXES: Final[Mapping[Reason, str]] = {
    Reason.MALFORMED: "Fix the record, or name the format with --format, or its --encoding.",
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

    `source` and `line` say where the first record is.
    """

    count: int
    source: str
    line: int
    type: str | None
    reason: str
    column: str
    example: str
    fix: str

    def __str__(self) -> str:
        subject = ".".join(part for part in (self.type, self.column) if part)
        fault = ": ".join(part for part in (subject, self.example) if part)
        place = f"\n  first: {short_path(self.source)}:{self.line}" if self.source else ""
        return f"{self.count:,} {self.reason}: {fault}{place}\n  fix: {self.fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSource(Displayed):
    """One source of an import, and the types that its records become."""

    name: str
    location: str
    records: int | None
    """As far as it was profiled; None if the mapping was given."""
    types: tuple[str, ...]


_HINTS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(Displayed):
    """The account of one import.

    `load` is that of its one commit; None in a dry run of a graph that does not exist. Its
    `accounts` have what became of every record. `warnings` say what was left out without being
    rejected, `hints` what is probable and was not inferred, and `unconnected` the node types that
    no edge of the schema reaches. `explanation` has, if a schema was inferred, what was seen of
    every type, and what its key and references were chosen from. `schema` and `mapping` are the
    texts that were used, `schema_file` and `mapping_file` where they were written. `next_steps` are
    commands to try on a graph that was created. `edits` are the lines of the mapping and of the
    schema of a graph that exists that choices change.
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
    warnings: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    unconnected: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    load: load_report.LoadReport | None = None
    explanation: Explanation = NO_EXPLANATION
    next_steps: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The report as one JSON object; its keys are a contract."""
        return json.dumps(asdict(self), indent=2, sort_keys=True, default=str)

    def _page(self) -> Page:
        lines = [line for cause in self.causes for line in str(cause).splitlines()]
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += self.edits
        for name, changed in self.load.changes.items() if self.load is not None else ():
            lines += [name, *(f"  {line}" for line in changed)]
            more = self.load.updated[name] - len(changed) if self.load is not None else 0
            lines += [f"    ... and {counted(more, 'more update')}"] if more else []
        lines += map(str, self.hints[:_HINTS_SHOWN])
        if len(self.hints) > _HINTS_SHOWN:
            lines.append(f"... and {counted(len(self.hints) - _HINTS_SHOWN, 'more hint')}")
        if self.unconnected:
            lines.append(f"no edges: {', '.join(self.unconnected)}")
        if self.load is not None:
            lines += _list_replaced(self.load)
            replaced = sum(line.replaced for line in self.load.accounts)
            if self.load.quarantine is not None and (self.load.faults or replaced):
                records = counted(self.load.faults + replaced, "record")
                lines.append(f"{records} set aside: {short_path(self.load.quarantine)}")
        lines.append(self._summary())
        for label, entry in (("schema", self.schema_file), ("mapping", self.mapping_file)):
            if entry is not None:
                lines.append(f"{label:9}{short_path(entry)}")
        labels = ("next", *[""] * len(self.next_steps))
        lines += [f"{label:9}{step}" for label, step in zip(labels, self.next_steps, strict=False)]
        return Page(summary=self._summary(), tables=[*self._tables()], lines=lines)

    def _tables(self) -> Iterator[TableView]:
        """For every source what became of its records; of a dry run without a load, its types."""
        if self.load is None:
            rows = [(name, source.name) for source in self.sources for name in source.types]
            yield TableView(header=("type", "from"), rows=rows)
            return
        for source in dict.fromkeys(line.source for line in self.load.accounts):
            yield _account_table([line for line in self.load.accounts if line.source == source])
        if (self.load.updated or self.dry_run) and not self.created:
            changed = [
                (name, f"{inserted:,}", f"{self.load.updated.get(name, 0):,}")
                for name, inserted in self.load.inserted.items()
            ]
            yield TableView(header=("type", "inserted", "updated"), rows=changed, numbers=(1, 2))

    def _summary(self) -> str:
        sources = counted(len(self.sources), "source")
        if self.load is None and self.edits:
            return (
                "the schema changes first, so no record was validated; dry run, nothing was written"
            )
        if self.load is None:
            return f"{sources} inferred; dry run, nothing was written"
        load = self.load
        rows = f"{counted(sum(load.written.values()), 'row')} from {sources}"
        known = sum(load.already_there.values())
        rejected = f", {known:,} already there" if known else ""
        rejected += f", {load.faults:,} rejected" if load.faults else ""
        if self.dry_run:
            return f"{rows}{rejected}; dry run, nothing was written"
        if load.commit_id is None:
            return f"{rows}{rejected}; nothing to write"
        return (
            f"imported {rows}{rejected} in {load.seconds:.1f} s, commit {short_id(load.commit_id)}"
        )


def _account_table(lines: Sequence[load_report.TypeAccount]) -> TableView:
    """The account of one source, without columns that are 0 everywhere."""
    counts = {
        "written": [line.written for line in lines],
        "already there": [line.already_there for line in lines],
        "replaced": [line.replaced for line in lines],
        "rejected": [sum(line.rejected.values()) for line in lines],
        "skipped": [line.skipped for line in lines],
    }
    shown = {title: column for title, column in counts.items() if any(column)}
    names = [
        "(no type)" if line.type is None else f"{line.type}{' (distinct)' if line.distinct else ''}"
        for line in lines
    ]
    records = ["" if line.distinct else f"{line.records:,}" for line in lines]
    cells = [[f"{count:,}" for count in column] for column in shown.values()]
    return TableView(
        header=(lines[0].source, "records", *shown),
        rows=list(zip(names, records, *cells, strict=True)),
        numbers=tuple(range(1, len(shown) + 2)),
    )


def _list_replaced(load: load_report.LoadReport) -> list[str]:
    """The first records that were replaced, and by which."""
    lines = [
        str(replace(r, file=short_path(r.file), by_file=short_path(r.by_file)))
        for r in load.replaced
    ]
    more = sum(line.replaced for line in load.accounts) - len(lines)
    return [*lines, f"... and {more:,} more replaced"] if more else lines


def short_path(path: str) -> str:
    """A path for people: relative to the current directory if it is inside of it."""
    with suppress(ValueError, OSError):
        return str(Path(path).relative_to(Path.cwd()))
    return path


def causes_of(report: load_report.LoadReport) -> tuple[RejectedCause, ...]:
    """Rejected records by cause, with the fix: those that follow from other causes last."""
    return tuple(
        RejectedCause(
            count=cause.count,
            source=cause.file,
            line=cause.line,
            type=cause.type,
            reason=cause.reason,
            column=cause.column,
            example=cause.text,
            fix=_FIXES.get(Reason(cause.reason), "Fix the records and import them again."),
        )
        for cause in report.causes
    )
