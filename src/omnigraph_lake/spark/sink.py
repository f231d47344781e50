"""Write DataFrames and streams: tasks stage rows, and one commit checks and publishes them.

    writer     on the driver: read the schema and the tables, and open a staging folder
    write      in every task: parse and check rows, stage them as fragments of their tables
    commit     on the driver: check the keys of what was staged, on threads, and publish it

Invariants:
- A write is one commit that went through every check, or nothing. The driver sees descriptions,
  keys and counts, never rows.
- Only what a task reported to the commit counts. What failed, repeated and speculative tasks staged
  is named by no version. Tasks can outlive their write, and Spark does not wait for them: the claim
  of the staging folder is deleted first, so a task that finds it gone removes what it staged.
- A batch of a stream is the operation that is named after the id of its query, which tasks know,
  and the number of the batch: it is published once, however often Spark repeats it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from omnigraph_lake import errors, names
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import one_of, parse_operation_id
from omnigraph_lake.commit.publish import decision_in, last_attempt
from omnigraph_lake.load.formats.input_names import choose_columns, column_names
from omnigraph_lake.load.piece_tasks import stage_frame
from omnigraph_lake.load.report import FaultPolicy
from omnigraph_lake.load.staging import PieceReport, StagedInput, StagingPlan, discard_staged
from omnigraph_lake.notes import commit_note
from omnigraph_lake.opening import open as open_graph
from omnigraph_lake.runner.protocol import FramePart, Task
from omnigraph_lake.runner.shuffle import StoredScratch
from omnigraph_lake.schema.model import model_hash
from omnigraph_lake.spark.batches import QUERY_ID, batch_operation
from omnigraph_lake.storage.manifest_rows import Outcome
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.objects.temporary_folders import temporary_folder
from omnigraph_lake.storage.refs.references import branch_ref, branch_state
from omnigraph_lake.ulids import new_ulid
from omnigraph_lake.validation.constraints import WriteMode
from omnigraph_lake.validation.input.intake import declared_types, table_key_named
from omnigraph_lake.validation.schema_contract import read_contract

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from omnigraph_lake.api.options import Source
    from omnigraph_lake.load.report import LoadReport
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry
    from omnigraph_lake.validation.schema_contract import SchemaContract, Widening

_TAKES_ARROW: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
if TYPE_CHECKING or not _TAKES_ARROW:
    from pyspark.sql.datasource import DataSourceStreamWriter as _StreamWriter
else:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamWriter
_ROWS_CONVERTED: Final = 8192
_FLAGS: Final = {"true": True, "false": False}

WRITE_OPTIONS: Final = (
    "path",
    "type",
    "typeColumn",
    "mode",
    "branch",
    "operationId",
    "onError",
    "maxBad",
    "orderBy",
    "mergeSchema",
    "actor",
    "message",
    "metadata",
)
SINK_OPTIONS: Final = (
    *(name for name in WRITE_OPTIONS if name != "operationId"),
    "stream",
    *("checkpointLocation", "queryName"),  # which Spark adds
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What the options of a write mean. Either `type` or `type_column` says what a row is."""

    root: Root
    branch: str
    type: str | None
    type_column: str | None
    mode: WriteMode
    on_error: FaultPolicy
    max_bad: str | None
    order_by: str | None
    merge_schema: bool
    actor: str | None
    message: str | None
    metadata: Mapping[str, str] | None
    operation_id: str | None
    stream: str | None

    @classmethod
    def of(cls, options: Mapping[str, str], root: Root, *, overwrite: bool) -> SinkOptions:
        type_name, type_column = options.get("type"), options.get("typeColumn")
        if (type_name is None) == (type_column is None):
            raise errors.InvalidInputError(
                f"either a type of {root} or a column that names types is needed",
                next_step='Add `.option("type", NAME)`, or `.option("typeColumn", COLUMN)`.',
            )
        merge_schema = _merges_schema(options.get("mergeSchema", "false"))
        if merge_schema and type_name is None:
            raise errors.InvalidInputError(
                "mergeSchema was given together with typeColumn, and a new column could be a "
                "property of any of the types",
                next_step='Write one type with `.option("type", NAME)`, or apply the schema first.',
            )
        return cls(
            root=root,
            branch=options.get("branch", names.MAIN),
            type=type_name,
            type_column=type_column,
            mode=_mode(options.get("mode"), overwrite=overwrite),
            on_error=one_of(
                FaultPolicy, options.get("onError", FaultPolicy.FAIL), argument="onError"
            ),
            max_bad=options.get("maxBad"),
            order_by=options.get("orderBy"),
            merge_schema=merge_schema,
            actor=options.get("actor"),
            message=options.get("message"),
            metadata=_metadata(options.get("metadata")),
            operation_id=options.get("operationId"),
            stream=options.get("stream"),
        )


def _mode(named: str | None, *, overwrite: bool) -> WriteMode:
    """Spark knows append and overwrite; the other modes are options."""
    if named is None:
        return WriteMode.OVERWRITE if overwrite else WriteMode.APPEND
    mode = one_of(WriteMode, named.lower(), argument="mode")
    if overwrite and mode is not WriteMode.OVERWRITE:
        raise errors.InvalidInputError(
            f'the mode is "overwrite" and the option mode is "{mode.value}"',
            next_step='Use `.mode("append")` together with the option.',
        )
    return mode


def _merges_schema(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise errors.InvalidInputError(
            f"mergeSchema is {text!r:.80}, expected one of {', '.join(_FLAGS)}"
        )
    return _FLAGS[text.lower()]


def _metadata(text: str | None) -> Mapping[str, str] | None:
    """The metadata of commits, which an option gives as JSON."""
    if text is None:
        return None
    try:
        metadata = json.loads(text)
    except ValueError:
        metadata = None
    if not isinstance(metadata, dict):
        raise errors.InvalidInputError(
            f"metadata is {text!r:.80}, expected a JSON object of texts",
            next_step="""Write it as `.option("metadata", '{"ticket": "OPS-7"}')`.""",
        )
    commit_note(None, metadata)
    return metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """What the tasks of one write know; picklable."""

    options: SinkOptions
    staging: StagingPlan
    columns: tuple[str, ...]
    widening: Widening | None
    """The properties that columns of the frame become; the catalog of `staging` has them."""
    scratch: StoredScratch
    is_published: bool
    """Whether the operation was published before: then nothing is written again."""

    @classmethod
    def of(cls, options: SinkOptions, schema: pa.Schema) -> SinkPlan:
        """Against what is published now.

        Raises:
            InvalidInputError: the type or a column does not exist, or cannot become a property.
        """
        objects = StoredObjects(options.root)
        state = branch_state(objects, branch_ref(objects, options.branch))
        contract = read_contract(objects, state.schema_hash)
        widening = _widening(options, contract, schema)
        catalog = contract.catalog if widening is None else widening.target.catalog
        scratch = StoredScratch(root=options.root, operation_id=new_ulid())
        plan = cls(
            options=options,
            columns=tuple(schema.names),
            widening=widening,
            scratch=scratch,
            is_published=_is_published(options, state),
            staging=StagingPlan(
                root=options.root,
                catalog=catalog,
                entries=state.snapshot().tables,
                scratch=scratch,
                spool=None,
                keep_refused=options.on_error is FaultPolicy.QUARANTINE,
                partial=options.mode is WriteMode.MERGE,
                ids_at=int(SYSTEM_CLOCK.now().timestamp() * 1000),
            ),
        )
        plan.require_columns()
        return plan

    def require_columns(self) -> None:
        if self.options.type is not None:
            declared = declared_types(self.staging.catalog)[self.table_key(self.options.type)]
            where = f"the frame of {declared.name}"
            choose_columns(self.columns, declared, columns={}, where=where)
        elif self.options.type_column not in self.columns:
            raise errors.InvalidInputError(
                f"the frame has no column {self.options.type_column!r} that names types",
                next_step=f"Its columns are {', '.join(self.columns):.200}.",
            )

    def table_key(self, type_name: str) -> str:
        return table_key_named(type_name, self.staging.catalog)

    def columns_of(self, table_key: str) -> tuple[str, ...]:
        """The columns of the frame that rows of a type have."""
        known = set(column_names(declared_types(self.staging.catalog)[table_key]))
        return tuple(name for name in self.columns if name in known)


def _widening(options: SinkOptions, contract: SchemaContract, schema: pa.Schema) -> Widening | None:
    if not options.merge_schema or options.type is None:
        return None
    table_key = table_key_named(options.type, contract.catalog)
    # The compiler of schemas needs a package that executors need not have.
    from omnigraph_lake.evolution.widening import widen

    return widen(contract, {table_key: schema})


def _is_published(options: SinkOptions, state: ManifestState) -> bool:
    if options.operation_id is None:
        return False
    named = parse_operation_id(options.operation_id, now=SYSTEM_CLOCK.now())
    if isinstance(named, names.OperationKey):
        decided = last_attempt(options.root, state, named)
    else:
        decided = decision_in(options.root, state, named)
    return decided is not None and decided.outcome is Outcome.PUBLISHED


@dataclass
class StagedPieces(WriterCommitMessage):
    """What one successful task staged: pieces of the load, in the order of their types."""

    staging_id: str
    schema_hash: str
    query_id: str | None = None
    """Spark's id of the streaming query; None of a write that is no stream."""
    entries: dict[str, TableEntry] = field(default_factory=dict)
    reports: tuple[bytes, ...] = ()

    def piece_reports(self) -> tuple[PieceReport, ...]:
        return tuple(msgspec.msgpack.decode(report, type=PieceReport) for report in self.reports)


def stage_partition(
    plan: SinkPlan,
    batches: Iterator[pa.RecordBatch],
    *,
    partition: int,
    query_id: str | None = None,
) -> StagedPieces:
    """Stage the rows that one task is given; runs in any process.

    Raises:
        OperationRolledBackError: the write has ended meanwhile.
    """
    schema_hash = model_hash(plan.staging.catalog)
    if plan.is_published:
        return StagedPieces(staging_id=plan.scratch.operation_id, schema_hash=schema_hash)
    reports: list[PieceReport] = []
    with ExitStack() as stack:
        keys = list(declared_types(plan.staging.catalog))
        for table_key, rows in _rows_by_type(plan, batches, stack):
            number = partition * len(keys) + keys.index(table_key)
            part = FramePart(number=number, frame=table_key, batches=rows)
            reports.append(stage_frame(plan.staging, part, Task(number)))
    with_records = [report for report in reports if report.records]
    _require_open(plan, with_records)
    entries = {key: plan.staging.entries[key] for report in with_records for key in report.tables}
    return StagedPieces(
        staging_id=plan.scratch.operation_id,
        schema_hash=schema_hash,
        query_id=query_id,
        entries=entries,
        reports=tuple(msgspec.msgpack.encode(report) for report in with_records),
    )


def _require_open(plan: SinkPlan, reports: Iterable[PieceReport]) -> None:
    staged = StagedInput(plan=plan.staging, columns={}, reports=tuple(reports))
    try:
        plan.scratch.require_open(
            path
            for report in staged.reports
            for path in (report.refused_file, report.places_file, *report.mentions.values())
            if path is not None
        )
    except errors.OperationRolledBackError:
        discard_staged(StoredObjects(plan.options.root), staged)
        raise


def _rows_by_type(
    plan: SinkPlan, batches: Iterator[pa.RecordBatch], stack: ExitStack
) -> Iterator[tuple[str, Iterable[pa.RecordBatch]]]:
    """The rows of each type; those of several types wait in temporary files for their turn."""
    options = plan.options
    if options.type is not None:
        yield plan.table_key(options.type), batches
        return
    assert options.type_column is not None
    folder = stack.enter_context(temporary_folder("rows"))
    files: dict[str, tuple[Path, pa.ipc.RecordBatchFileWriter]] = {}
    for batch in batches:
        for type_name in pc.unique(batch.column(options.type_column)).to_pylist():
            table_key = plan.table_key(type_name)
            rows = _of_type(plan, batch, type_name, table_key)
            if table_key not in files:
                path = Path(folder, f"{len(files)}.arrow")
                files[table_key] = path, pa.ipc.new_file(str(path), rows.schema)
            files[table_key][1].write_batch(rows)
    for table_key, (path, writer) in files.items():
        writer.close()
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            yield (
                table_key,
                (reader.get_batch(number) for number in range(reader.num_record_batches)),
            )


def _of_type(
    plan: SinkPlan, batch: pa.RecordBatch, type_name: str, table_key: str
) -> pa.RecordBatch:
    """The rows of one type with its columns; the others must be empty there."""
    type_column = plan.options.type_column
    rows = batch.filter(pc.equal(batch.column(type_column), type_name))
    own = plan.columns_of(table_key)
    for name in rows.schema.names:
        column = rows.column(name)
        if name not in own and name != type_column and column.null_count < len(column):
            raise errors.InvalidInputError(
                f"a row of {type_name} has a value in the column {name!r}, which is none of "
                f"{type_name}",
                next_step="Leave it null in rows of this type, or correct the type of the row.",
            )
    return rows.select(list(own))


class _Sink:
    """What writers of frames and of streams have in common.

    Spark sends a writer to its tasks by pickling it: that is when a write begins. The commit of a
    stream runs in another process, with a writer that is never sent.
    """

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def __getstate__(self) -> dict[str, object]:
        self._plan.scratch.open()
        return self.__dict__

    def _publish(
        self, messages: Sequence[WriterCommitMessage | None], operation_id: str | None
    ) -> LoadReport | None:
        """Check and publish what tasks staged, as one commit; None if there was nothing.

        Raises:
            LoadRefusedError: more records are invalid than allowed; nothing was written.
            ConflictError: the schema was changed meanwhile; nothing was written.
        """
        options, pieces = self._plan.options, _pieces(messages)
        try:
            staged = _gather_input(self._plan, pieces)
            self._require_schema(pieces, staged)
            if not staged.columns:
                return None
            graph = open_graph(options.root.uri, storage_options=options.root.storage_options)
            return graph.checkout(options.branch).load(
                cast("Source", staged),
                mode=options.mode.value,
                on_error=options.on_error.value,
                actor=options.actor,
                message=options.message,
                metadata=options.metadata,
                operation_id=operation_id,
                options=LoadOptions(
                    max_rejected=options.max_bad,
                    order_by=options.order_by,
                    merge_schema=options.merge_schema,
                ),
            )
        finally:
            self._close(pieces)

    def _withdraw(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks staged for a write that is not committed."""
        pieces = _pieces(messages)
        self._close(pieces)
        discard_staged(StoredObjects(self._plan.options.root), _gather_input(self._plan, pieces))

    def _require_schema(self, pieces: Sequence[StagedPieces], staged: StagedInput) -> None:
        """Refuse rows of a stream that were staged under another schema than the current one."""
        current = model_hash(self._plan.staging.catalog)
        for message in pieces:
            if message.schema_hash != current:
                discard_staged(StoredObjects(self._plan.options.root), staged)
                raise errors.SchemaChangedError(
                    self._plan.options.branch, expected=message.schema_hash, found=current
                )

    def _close(self, pieces: Sequence[StagedPieces]) -> None:
        staging_ids = {message.staging_id for message in pieces}
        for staging_id in staging_ids | {self._plan.scratch.operation_id}:
            with suppress(errors.OmnigraphError):
                StoredScratch(root=self._plan.options.root, operation_id=staging_id).close()


class GraphWriter(_Sink, DataSourceArrowWriter):
    """Writes a frame as one commit."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage_partition(self._plan, iterator, partition=_task().partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._publish(messages, self._plan.options.operation_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._withdraw(messages)


class GraphStreamWriter(_Sink, _StreamWriter):
    """Writes every batch of a stream as one commit, once."""

    def __init__(self, plan: SinkPlan, schema: StructType) -> None:
        super().__init__(plan)
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        batches = iterator if _TAKES_ARROW else _arrow_batches(iterator, self._schema)
        return stage_partition(
            self._plan,
            batches,
            partition=_task().partitionId(),
            query_id=_task().getLocalProperty(QUERY_ID),
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query_id = next((message.query_id for message in _pieces(messages)), None)
        if not query_id:
            raise errors.InvalidInputError(
                "Spark did not tell its tasks the id of the streaming query, so a batch that is "
                "repeated could not be recognised",
                next_step="Write with `omnigraph_lake.spark.foreach_batch` instead.",
            )
        self._publish(messages, batch_operation(query_id, self._plan.options.stream, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._withdraw(messages)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _arrow_batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Spark 4.0 passes rows of a stream one by one."""
    from pyspark.sql.conversion import LocalDataToArrowConversion

    while chunk := list(islice(rows, _ROWS_CONVERTED)):
        table = LocalDataToArrowConversion.convert(chunk, schema, use_large_var_types=False)
        yield from table.to_batches()


def _pieces(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPieces]:
    return [message for message in messages if isinstance(message, StagedPieces)]


def _gather_input(plan: SinkPlan, pieces: Sequence[StagedPieces]) -> StagedInput:
    entries = {key: entry for message in pieces for key, entry in message.entries.items()}
    if plan.options.type is not None:
        # An overwrite without rows empties its type.
        table_key = plan.table_key(plan.options.type)
        entries.setdefault(table_key, plan.staging.entries[table_key])
    reports = sorted(
        (report for message in pieces for report in message.piece_reports()),
        key=lambda report: report.number,
    )
    scratch = plan.scratch
    if pieces:
        # Tasks of a stream are planned by another process than the commit.
        scratch = replace(scratch, operation_id=pieces[0].staging_id)
    return StagedInput(
        plan=replace(plan.staging, entries=entries, scratch=scratch),
        merges_schema=plan.options.merge_schema,
        widening=plan.widening,
        columns={key: plan.columns_of(key) for key in entries},
        reports=tuple(reports),
    )
