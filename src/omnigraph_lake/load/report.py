"""Define the request of a load and its outputs: the report and the quarantine table.

The quarantine table of a load holds every record that was not written, and the reason.

Invariants:
- Every record has one outcome, so `read` is the sum of `written`, `already_there` and
  `quarantined`, in every report of either engine, whether or not the load was published.
- A superseded record is quarantined like the others, but it is not a fault: it neither fails a load
  nor counts against a ceiling.
- A row of the quarantine is one record and has one reason. The names of its parts contain the
  operation id of the load, so that no other file in their folder is changed. The parts exist before
  the load is published and are removed if it is not.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph_lake import names
from omnigraph_lake.display.cells import counted, file_size, short_id
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import InvalidInputError, LoadRefusedError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.names import edge_table_key, node_table_key
from omnigraph_lake.notes import CommitNote
from omnigraph_lake.runner.progress import Progress as Progress  # where it was until now
from omnigraph_lake.runner.protocol import StageMetrics
from omnigraph_lake.storage.objects.location import Root, Scheme, parse_root
from omnigraph_lake.storage.objects.store import Objects, StoredObjects
from omnigraph_lake.validation.violations import Reason

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.commit.diverged_branches import DivergedBranch
    from omnigraph_lake.load.formats.mapping import SourceMapping
    from omnigraph_lake.load.formats.records import Split
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.snapshot import Pin
    from omnigraph_lake.validation.constraints import WriteMode
    from omnigraph_lake.validation.schema_contract import Widening


OFFENDERS_MAX: Final = 20
REPEATED_IDS_MAX: Final = 5
"""So many ids of several records are named."""
NO_FAULTS: Final = frozenset({Reason.SUPERSEDED})
_COUNT: Final = re.compile(r"\d{1,18}")
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*%")


class Engine(StrEnum):
    """Where a load runs; `auto` decides by the size of its input."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class FaultPolicy(StrEnum):
    """What becomes of a load whose input has faults."""

    FAIL = "fail"
    """Nothing is published."""
    QUARANTINE = "quarantine"
    """The rest is published, unless there are more faults than the ceiling allows."""


class OnDuplicate(StrEnum):
    """Which of several records of an import with one key stands."""

    LAST = "last"
    FIRST = "first"
    FAIL = "fail"
    """None but the first, and the others are faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPolicy:
    """What an import does with records that are there already.

    With `new_rows`, records without a key are other rows than published ones that equal them.
    """

    new_rows: bool = False
    on_duplicate: OnDuplicate = OnDuplicate.LAST
    requires_rows: bool = False
    """Whether a rule that reads what no record has is an error: a person wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """How many faults a load may have: a number of records, or a share of all that were read."""

    count: int | None = None
    percent: Decimal | None = None

    def allows(self, faults: int, *, read: int) -> bool:
        if self.percent is not None:
            return faults * 100 <= self.percent * read
        return faults <= (self.count or 0)

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent is not None else str(self.count or 0)


DEFAULT_CEILING: Final = Ceiling(percent=Decimal(10))


def parse_ceiling(text: object) -> Ceiling:
    """Understand `20`, `"20"` or `"0.1%"`."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return Ceiling(count=text)
    if isinstance(text, str):
        share = _PERCENT.fullmatch(text.strip())
        if share and Decimal(share[1]) <= 100:
            return Ceiling(percent=Decimal(share[1]))
        if _COUNT.fullmatch(text.strip()):
            return Ceiling(count=int(text))
    raise InvalidInputError(
        f"max_rejected is {shown(text)}, expected a number of records or a share of them",
        next_step='Write it as 20 or as "0.1%".',
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecord(Displayed):
    """One record that was invalid, as a person finds it again."""

    file: str
    line: int
    type: str | None
    reason: str
    message: str

    def __str__(self) -> str:
        named = f" {self.type}:" if self.type else ""
        return f"{self.file}:{self.line}:{named} {self.message} [{self.reason}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeAccount(Displayed):
    """What became of the records that a source of an import offered to the rules of a type.

    For rules with `each`, these are the items of the lists. `records` is the sum of `written`,
    `already_there`, `replaced`, `skipped` and the counts in `rejected`, which are by reason.
    `replaced` are records whose key another record has; `skipped` those that no rule of the type
    takes, and those that lack what a rule requires. `type` is None for records that were refused
    before any rule took them. With `distinct`, rows are counted that stand for distinct values, as
    nodes that edges create; how many records have such a value is not counted.
    """

    source: str
    type: str | None
    records: int
    written: int = 0
    already_there: int = 0
    replaced: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    skipped: int = 0
    distinct: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecords(Displayed):
    """The rejected records of one source of an import with one fault, and the first of them.

    `column` is empty where the fault is none of a single column.
    """

    source: str
    type: str | None
    reason: str
    column: str
    count: int
    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedRecord(Displayed):
    """One record of an import that was replaced by another one with its key."""

    file: str
    line: int
    type: str
    key: str
    by_file: str
    by_line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key} was replaced by {self.by_file}:{self.by_line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport(Displayed):
    """The account of one load.

    `written` counts the records that the commit holds; in a dry run, and in the report of a load
    that was refused, those that it would have held. `inserted` and `updated` say how they met
    published rows and are known of a commit, and of a dry run of an import; `changes` are the first
    rows by type that the latter would update, as in a diff. Types are named as in the schema, or by
    table key where a node type and an edge type share a name. The operation fills in `seconds`.

    Of an import, `accounts` has what became of the records of every source by type, `causes` the
    rejected ones by fault, those that follow from others last, and `replaced` the first records
    that another one with their key replaced. `warnings` name what a mapping leaves out.

    `rejected` are the first faults in input order. `broken` says what the load would leave broken
    among published rows, which no record can be blamed for. All counts are zero and `repeated` is
    true if an earlier load with the same operation id had been published: nothing was read then.
    `merged` is the commit that brought a load through a branch into another one. `diverged` are the
    branches that stay on the schema before a load that changed it. `stages` says what the steps of
    the load cost; it is empty if nothing was read.
    """

    read: int
    written: Mapping[str, int]
    inserted: Mapping[str, int] = field(default_factory=dict)
    updated: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    already_there: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int]
    quarantine: str | None = None
    commit_id: str | None = None
    operation_id: str
    seconds: float = 0.0
    engine: Engine
    mode: WriteMode
    dry_run: bool = False
    repeated: bool = False
    accounts: tuple[TypeAccount, ...] = ()
    causes: tuple[RejectedRecords, ...] = ()
    warnings: tuple[str, ...] = ()
    replaced: tuple[ReplacedRecord, ...] = ()
    rejected: tuple[RejectedRecord, ...] = ()
    broken: tuple[str, ...] = ()
    merged: str | None = None
    diverged: tuple[DivergedBranch, ...] = ()
    stages: tuple[StageMetrics, ...] = ()

    @property
    def faults(self) -> int:
        """Quarantined records that are errors."""
        return sum(n for reason, n in self.quarantined.items() if Reason(reason) not in NO_FAULTS)

    def to_json(self) -> str:
        """The report as one JSON object; its keys are a contract."""
        return json.dumps(asdict(self), indent=2, sort_keys=True)

    def summary(self) -> str:
        """The report in a few lines of text."""
        lines = [f"read {self.read:,} records"]
        lines += [f"  {count:,} written to {name}" for name, count in self.written.items()]
        return "\n".join([*lines, self.refusals()])

    def refusals(self) -> str:
        """What was not written and why, and the first of it."""
        lines = [f"  {count:,} {reason}" for reason, count in self.quarantined.items()]
        lines += [f"  {record}" for record in self.rejected]
        if self.faults > len(self.rejected):
            lines.append(f"  ... and {self.faults - len(self.rejected):,} more")
        lines += [f"  left broken: {violation}" for violation in self.broken]
        return "\n".join(lines)

    def _page(self) -> Page:
        if self.repeated:
            return Page(summary=f"already loaded as commit {self.commit_id}")
        types = dict.fromkeys([*self.written, *self.inserted])
        counts = (self.written, self.inserted, self.updated)
        rows = [(name, *(f"{count.get(name, 0):,}" for count in counts)) for name in types]
        lines = [f"quarantined  {count:,} {reason}" for reason, count in self.quarantined.items()]
        if self.quarantine:
            lines.append(f"see          {self.quarantine}")
        lines += map(str, self.diverged)
        header = ("type", "written", "inserted", "updated")
        return Page(
            summary=self._outcome(),
            tables=[TableView(header=header, rows=rows, numbers=(1, 2, 3))] if rows else (),
            lines=[*lines, self._outcome()],
        )

    def stage_table(self) -> TableView:
        """What the stages cost, without figures that all of them lack."""
        columns = {
            "tasks": [f"{stage.tasks:,}" for stage in self.stages],
            "rows": [f"{stage.rows:,}" for stage in self.stages],
            "read": [_size(stage.read_bytes) for stage in self.stages],
            "written": [_size(stage.written_bytes) for stage in self.stages],
            "shuffled": [_size(stage.shuffled_bytes) for stage in self.stages],
            "spilled": [_size(stage.spilled_bytes) for stage in self.stages],
            "s": [f"{stage.seconds:.1f}" for stage in self.stages],
            "task s": [f"{stage.longest_task_seconds:.1f}" for stage in self.stages],
        }
        shown_columns = {title: cells for title, cells in columns.items() if any(cells)}
        return TableView(
            header=("stage", *shown_columns),
            rows=list(zip(map(str, self.stages), *shown_columns.values(), strict=True)),
            numbers=tuple(range(1, len(shown_columns) + 1)),
        )

    def _outcome(self) -> str:
        speed = f"read {counted(self.read, 'record')} in {self.seconds:.1f} s ({self.engine.value})"
        if self.dry_run:
            return f"{speed}; dry run, nothing was written"
        if self.commit_id is None:
            return f"{speed}; nothing to write"
        merged = f", merged as commit {short_id(self.merged)}" if self.merged else ""
        return f"{speed}, commit {short_id(self.commit_id)}{merged}"


def _size(count: int | None) -> str:
    return file_size(count) if count else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """Everything an engine needs to carry out one load as one commit.

    At most one of `splits` and `frames` has content; `frames` maps table keys to rows in input
    order: whatever a write takes, or Spark DataFrames for the cluster engine. With `mappings`,
    frames and their mappings have the names of sources instead.
    `named` holds the table keys that the source names as a whole (a frame, a typed file): an
    overwrite replaces them even if no record of theirs arrives. Other types are overwritten if one
    of their records passed the row checks. `catalog` has the properties that a `widening` adds.
    CSV files are cut into splits of about `split_bytes`. With `new_rows`, records without a key are
    other rows than published ones that equal them.
    """

    splits: tuple[Split, ...]
    split_bytes: int
    frames: Mapping[str, object]
    mappings: Mapping[str, SourceMapping]
    named: frozenset[str]
    catalog: Catalog
    widening: Widening | None
    diverged: Callable[[ManifestState, Widening], tuple[DivergedBranch, ...]] | None
    """Finds the other branches, and how their schemas would conflict with the widened one."""
    mode: WriteMode
    order_by: str | None
    end_types: Mapping[str, str]
    on_error: FaultPolicy
    ceiling: Ceiling
    dry_run: bool
    branch: BranchRef | None
    actor: str
    note: CommitNote
    operation_id: str
    quarantine: QuarantinePlace
    objects: Objects
    clock: Clock
    progress: Progress
    imports: ImportPolicy | None = None
    computed: ComputedInput | None = None
    recompute: Callable[[ManifestState], LoadJob] | None = None
    """The job with the input that a later state gives, if it was computed."""


class RepeatedRecords(InvalidInputError):  # noqa: N818 - the caller knows what the records are
    """Several records of a computed input have one id."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(f"several records have the id {shown(ids[0])}")
        self.ids = tuple(ids)
        """The first ids, in order: one more than a message names, if there are so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedInput:
    """What an input was computed from: it is published on these pins alone, one record per id."""

    pins: Mapping[str, Pin]
    read: Callable[[ManifestState], tuple[object, ComputedInput]]
    """Computes the source from a later state; an empty list has no records."""
    commit_id: str | None = None
    """The commit that the branch must be at; None allows any with these pins."""

    def is_current(self, state: ManifestState) -> bool:
        tables = state.snapshot().tables
        moved = any(key not in tables or tables[key].pin != pin for key, pin in self.pins.items())
        return not moved and self.commit_id in (None, state.head.commit_id)


def frame_name(type_name: str) -> str:
    """The file name of a record that came in a frame."""
    return f"<{type_name}>"


def type_labels(catalog: Catalog) -> dict[str, str]:
    """How reports name each table: by its type, or by its key where two types share a name."""
    labels = {node_table_key(name): name for name in catalog.nodes}
    labels |= {edge_table_key(name): name for name in catalog.edges}
    shared = set(catalog.nodes) & set(catalog.edges)
    return {key: key if name in shared else name for key, name in labels.items()}


def repeated_report(job: LoadJob, commit: str, *, engine: Engine) -> LoadReport:
    """The account of a load that an earlier one with the same operation id had published."""
    return LoadReport(
        read=0,
        written={},
        quarantined={},
        commit_id=commit,
        operation_id=job.operation_id,
        engine=engine,
        mode=job.mode,
        repeated=True,
    )


def require_acceptable(report: LoadReport, *, on_error: FaultPolicy, ceiling: Ceiling) -> None:
    """Raise unless a load with this account may be published.

    Raises:
        LoadRefusedError: with the report; nothing was written.
    """
    if report.broken:
        raise LoadRefusedError(
            "the load would make published rows invalid",
            report=report,
            details=report.refusals(),
            next_step="Add the records that these rows need, then load again.",
        )
    summary = f"{report.faults:,} of {report.read:,} records are invalid"
    if on_error is FaultPolicy.FAIL and report.faults:
        raise LoadRefusedError(
            summary,
            report=report,
            details=report.refusals(),
            next_step="Fix them, or set them aside with `--on-error quarantine` "
            '(`on_error="quarantine"` in Python).',
        )
    if on_error is FaultPolicy.QUARANTINE and not ceiling.allows(report.faults, read=report.read):
        raise LoadRefusedError(
            f"{summary}, more than the limit of {ceiling}",
            report=report,
            details=report.refusals(),
            next_step="Fix them, or raise the limit with `--max-rejected` "
            "(`LoadOptions(max_rejected=...)` in Python).",
        )


QUARANTINE_SCHEMA: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("type", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
    ]
)
"""`line` counts from 1; in Parquet files and frames it is the number of the row.

`type` is the name the record claims, null if it claims none. `raw` is the line as it was read, or
the row as one JSON object where there are no lines.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinePlace:
    """Where the parts of one load go; picklable, so that a task can write its own part."""

    root: Root
    folder: str
    operation_id: str

    @property
    def uri(self) -> str:
        return self.root.child(self.folder) if self.folder else self.root.uri

    def part(self, number: int) -> str:
        """The path of a part below the root."""
        name = names.quarantine_part(self.operation_id, number)
        return f"{self.folder}/{name}" if self.folder else name


def quarantine_place(graph: Root, operation_id: str, directory: str | None) -> QuarantinePlace:
    """In the graph's own folder, or in the directory that the caller named."""
    if directory is None:
        return QuarantinePlace(
            root=graph, folder=names.quarantine(operation_id), operation_id=operation_id
        )
    named = parse_root(directory, storage_options=graph.storage_options)
    return QuarantinePlace(root=named, folder="", operation_id=operation_id)


def put_part(place: QuarantinePlace, number: int, rows: pa.Table) -> None:
    """Write one part; a part of the same number is replaced."""
    content = io.BytesIO()
    pq.write_table(rows.cast(QUARANTINE_SCHEMA), content, compression="zstd")
    _objects(place).replace(place.part(number), content.getvalue())


def parts(place: QuarantinePlace) -> tuple[str, ...]:
    """The paths of the parts that exist, in the order of their numbers."""
    if place.root.scheme is Scheme.LOCAL and not Path(place.root.uri).is_dir():
        return ()
    return tuple(path for path in _objects(place).list(place.folder) if _is_part(place, path))


def remove_parts(place: QuarantinePlace, *, kept: Iterable[int] = ()) -> None:
    """Remove what the load wrote, except the parts with these numbers."""
    spared = {place.part(number) for number in kept}
    for path in parts(place):
        if path not in spared:
            _objects(place).delete(path)


def _is_part(place: QuarantinePlace, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == place.folder and name.startswith(place.operation_id)


def _objects(place: QuarantinePlace) -> Objects:
    return StoredObjects(place.root, create=True)
