"""Load files and frames as one commit: validate the request, find the input, choose the engine.

Invariants:
- Both engines produce the same graph, report and quarantine, so cost alone decides between them
  where both can be used.
- A load that is not published leaves no quarantine behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeGuard

import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.arguments import one_of
from omnigraph_lake.commit.publish import OperationStatus, decision_in, operation_status
from omnigraph_lake.errors import ConflictError, InvalidInputError, OmnigraphError
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.load.formats.mapping import SourceMapping
from omnigraph_lake.load.formats.records import FileFormat, SourceFile
from omnigraph_lake.load.formats.splits import SPLIT_BYTES, plan_splits, split_bytes_for
from omnigraph_lake.load.input_files import Named, find_sources
from omnigraph_lake.load.pipeline import run_load
from omnigraph_lake.load.report import (
    DEFAULT_CEILING,
    Ceiling,
    ComputedInput,
    Engine,
    FaultPolicy,
    ImportPolicy,
    LoadJob,
    LoadReport,
    parse_ceiling,
    quarantine_place,
    remove_parts,
    repeated_report,
)
from omnigraph_lake.load.staging import StagedInput, discard_staged
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.schema.catalog import (
    WITHOUT_ORDER,
    Catalog,
    EdgeType,
    NodeType,
    Scalar,
    ScalarType,
)
from omnigraph_lake.schema.ends import polymorphic_ends
from omnigraph_lake.schema.model import model_hash
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import Outcome
from omnigraph_lake.storage.refs.references import branch_ref
from omnigraph_lake.validation.constraints import WriteMode
from omnigraph_lake.validation.input.columns import read_table, without_views
from omnigraph_lake.validation.input.intake import (
    declared_types,
    resolved_types,
    table_key_named,
    table_key_of,
)
from omnigraph_lake.validation.schema_contract import SchemaContract, Widening, read_contract

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.commit.diverged_branches import DivergedBranch
    from omnigraph_lake.load.report import Progress
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedInput:
    """Files that carry mappings, or frames by source name with their mappings; never both."""

    policy: ImportPolicy = field(default_factory=ImportPolicy)
    files: tuple[SourceFile, ...] = ()
    frames: Mapping[str, object] = field(default_factory=dict)
    mappings: Mapping[str, SourceMapping] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaMerging:
    """What merges the columns of frames into a schema, and looks at the branches beside it."""

    widen: Callable[[SchemaContract, Mapping[str, pa.Schema]], Widening | None]
    """Makes the schema that has a property for every column, by table key."""
    diverged: Callable[[ManifestState, Widening], tuple[DivergedBranch, ...]]
    """Finds the other branches, and how their schemas would conflict with the new one."""


BREAK_EVEN_BYTES: Final = 64 << 20
"""Up to this much input a load runs in this process by default, whatever Spark there is."""

_LOCAL_SPLIT_BYTES: Final = 4 << 20
_UNPACKED: Final = 8
_PARQUET_UNPACKED: Final = 4
_SPARK_PACKAGE: Final = "pyspark."


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """A request to load; `source` names files, maps types to frames, or was staged already.

    It can also be a `MappedInput`, whose records have no type yet.
    """

    source: object
    type_name: str | None
    columns: Mapping[str, str] | None
    end_type: Mapping[str, str] | None
    mode: str
    order_by: str | None
    on_error: str
    max_bad: int | str | None
    engine: str
    spark: object | None
    dry_run: bool
    branch: str | None
    actor: str
    operation_id: str
    quarantine: str | None
    progress: Progress
    note: CommitNote = NO_NOTE
    source_options: Mapping[str, str] | None = None
    dialect: str | None = None
    """How JSON lines spell dates and times; None is the spelling of today."""
    schema_merging: SchemaMerging | None = None
    """Adds properties for the columns of frames; without it such columns are refused."""
    computed: ComputedInput | None = None
    """What the input was computed from, if that is the graph itself."""


def load_graph(
    objects: Objects, catalog: Catalog, request: LoadRequest, clock: Clock
) -> LoadReport:
    """Run one load as one commit.

    Raises:
        LoadRefusedError: more rejected records than allowed; nothing was written.
        OutcomeUnknownError: the store stopped responding during the deciding write.
    """
    began = clock.now()
    _require_texts(request)
    mode = one_of(WriteMode, request.mode, argument="mode")
    on_error = one_of(FaultPolicy, request.on_error, argument="on_error")
    wanted = one_of(Engine, request.engine, argument="engine")
    _require_order(request.order_by, mode, catalog)
    load_input = _Input.of(request, catalog, objects.root)
    engine = _engine_of(load_input, wanted, spark=request.spark)
    widening = None
    if request.schema_merging is not None:
        if engine is Engine.LOCAL:
            # A frame may be readable once only.
            load_input = replace(load_input, frames=_tables(load_input.frames, catalog))
        widening = _widening(objects, catalog, load_input, request.schema_merging)
        catalog = catalog if widening is None else widening.target.catalog
    split_bytes = _split_bytes(engine, load_input.files)
    job = LoadJob(
        splits=plan_splits(load_input.files, split_bytes=split_bytes),
        split_bytes=split_bytes,
        frames=load_input.frames,
        mappings=load_input.mappings,
        imports=load_input.imports,
        named=load_input.named,
        catalog=catalog,
        widening=widening,
        diverged=None if request.schema_merging is None else request.schema_merging.diverged,
        mode=mode,
        order_by=request.order_by,
        end_types=_end_types(request.end_type, catalog),
        on_error=on_error,
        ceiling=_ceiling(request.max_bad, on_error),
        dry_run=request.dry_run,
        branch=branch_ref(objects, request.branch),
        actor=request.actor,
        note=request.note,
        operation_id=request.operation_id,
        quarantine=quarantine_place(objects.root, request.operation_id, request.quarantine),
        objects=objects,
        clock=clock,
        progress=request.progress,
        computed=request.computed,
    )
    if request.computed is not None:
        job = replace(job, recompute=partial(_recompute, job, request))
    report = _earlier(job, engine)
    if load_input.staged is not None:
        _require_current(objects, load_input.staged, catalog, is_done=report is not None)
    if report is None:
        with request.progress:
            report = _carry_out(job, engine, request.spark, load_input.staged)
    return replace(report, seconds=round((clock.now() - began).total_seconds(), 3))


def _recompute(job: LoadJob, request: LoadRequest, state: ManifestState) -> LoadJob:
    """The job with the input of a later state."""
    assert request.computed is not None
    source, computed = request.computed.read(state)
    load_input = _Input(frames={}, named=job.named)
    if source != []:
        load_input = _Input.of(replace(request, source=source), job.catalog, job.objects.root)
    return replace(
        job,
        splits=plan_splits(load_input.files, split_bytes=job.split_bytes),
        frames=load_input.frames,
        computed=computed,
    )


def _widening(
    objects: Objects, catalog: Catalog, load_input: _Input, merging: SchemaMerging
) -> Widening | None:
    """The properties that the schema gets for the columns of the input."""
    staged = load_input.staged
    if staged is not None:
        is_planned = staged.widening is not None and (
            staged.widening.accepted.model_hash == model_hash(catalog)
        )
        return staged.widening if is_planned else None
    if not load_input.frames:
        raise InvalidInputError(
            "merge_schema takes frames, whose columns have types, found files",
            next_step="Read the files into frames, or apply the schema first.",
        )
    return merging.widen(
        read_contract(objects, model_hash(catalog)),
        {key: _arrow_schema(frame) for key, frame in load_input.frames.items()},
    )


def _arrow_schema(frame: object) -> pa.Schema:
    if isinstance(frame, pa.Table):
        return frame.schema
    from omnigraph_lake.runner.spark_versions import arrow_schema  # needs pyspark

    return arrow_schema(frame.schema)  # type: ignore[attr-defined]


def _require_current(
    objects: Objects, staged: StagedInput, catalog: Catalog, *, is_done: bool
) -> None:
    """Discard staged rows that this load does not publish, and refuse those of another schema."""
    is_current = model_hash(staged.plan.catalog) == model_hash(catalog)
    if is_done or not is_current:
        discard_staged(objects, staged)
    if not is_current:
        raise _schema_changed(staged)


def _schema_changed(staged: StagedInput) -> ConflictError:
    return ConflictError(
        f"the schema of {staged.plan.root} was changed while rows were staged",
        next_step="Write them again; they are then checked against the new schema.",
    )


def _carry_out(
    job: LoadJob, engine: Engine, spark: object | None, staged: StagedInput | None
) -> LoadReport:
    try:
        if staged is not None:
            return run_load(job, ThreadRunner(job.progress), engine=engine, staged=staged)
        if engine is Engine.SPARK:
            return _load_on_spark(job, spark)
        local_job = replace(job, frames=_tables(job.frames, job.catalog, job.mappings))
        return run_load(local_job, ThreadRunner(job.progress), engine=engine)
    except BaseException:
        _withdraw(job)
        raise


def _load_on_spark(job: LoadJob, spark: object | None) -> LoadReport:
    from omnigraph_lake.runner.session import given_spark, require_installed, without_noise

    require_installed()
    from omnigraph_lake.runner.spark import SparkRunner  # needs pyspark

    with without_noise(), given_spark(spark) as session:
        runner = SparkRunner(session, job.objects.root, job.progress)
        return run_load(job, runner, engine=Engine.SPARK)


def _tables(
    frames: Mapping[str, object],
    catalog: Catalog,
    mappings: Mapping[str, SourceMapping] | None = None,
) -> dict[str, object]:
    """The frames of this process as Arrow tables."""
    declared = declared_types(catalog)
    return {
        key: without_views(read_table(frame, type_name=key if mappings else declared[key].name))
        for key, frame in frames.items()
    }


def _withdraw(job: LoadJob) -> None:
    """Remove the quarantine of a load that will never be published."""
    with suppress(OmnigraphError):
        known = operation_status(job.objects, job.operation_id)
        if known not in {OperationStatus.PUBLISHED, OperationStatus.PENDING}:
            remove_parts(job.quarantine)


def _earlier(job: LoadJob, engine: Engine) -> LoadReport | None:
    """The result of a load that was already published, without reading its input again."""
    if job.dry_run:
        return None
    state = read_manifest(job.objects.root, branch=job.branch)
    decided = decision_in(job.objects.root, state, job.operation_id)
    if decided is None or decided.outcome is not Outcome.PUBLISHED:
        return None
    assert decided.commit_id is not None
    return repeated_report(job, decided.commit_id, engine=engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """Where the records come from, and which tables the source names as a whole."""

    files: tuple[SourceFile, ...] = ()
    frames: Mapping[str, object]
    named: frozenset[str]
    staged: StagedInput | None = None
    mappings: Mapping[str, SourceMapping] = field(default_factory=dict)
    imports: ImportPolicy | None = None

    @classmethod
    def of(cls, request: LoadRequest, catalog: Catalog, graph: Root) -> _Input:
        if isinstance(request.source, StagedInput):
            staged = request.source
            return cls(frames={}, named=frozenset(staged.columns), staged=staged)
        if isinstance(request.source, MappedInput):
            return cls._of_mapped(request.source)
        if not isinstance(request.source, Mapping):
            return cls._of_files(request, catalog, graph)
        if request.type_name is not None or request.columns:
            raise InvalidInputError(
                "a type or a mapping of columns was given together with frames",
                next_step='Name the types in the source, as in {"Person": frame}.',
            )
        resolved = resolved_types(request.source, catalog)
        frames = {table_key_of(declared): frame for declared, frame in resolved}
        return cls(frames=frames, named=frozenset(frames))

    @classmethod
    def _of_mapped(cls, source: MappedInput) -> _Input:
        in_files = (file.mapping for file in source.files if file.mapping is not None)
        named = {
            key for mapping in (*in_files, *source.mappings.values()) for key in mapping.tables()
        }
        return cls(
            files=source.files,
            frames=source.frames,
            named=frozenset(named),
            mappings=source.mappings,
            imports=source.policy,
        )

    @classmethod
    def _of_files(cls, request: LoadRequest, catalog: Catalog, graph: Root) -> _Input:
        if not _names_files(request.source):
            raise InvalidInputError(
                f"the source is {type(request.source).__name__}, expected paths or frames by type",
                next_step='Give a path, a list of paths, or frames as in {"Person": frame}.',
            )
        files = find_sources(
            request.source,
            catalog=catalog,
            type_name=request.type_name,
            columns=request.columns,
            dialect=request.dialect,
            storage_options=request.source_options,
            graph=graph,
        )
        named = {table_key_named(file.type_name, catalog) for file in files if file.type_name}
        return cls(files=files, frames={}, named=frozenset(named))


def _names_files(source: object) -> TypeGuard[Named | Iterable[Named]]:
    if isinstance(source, str | os.PathLike):
        return True
    return isinstance(source, list | tuple) and all(
        isinstance(item, str | os.PathLike) for item in source
    )


def _expansion(file: SourceFile) -> int:
    if file.gzipped:
        return _UNPACKED
    return _PARQUET_UNPACKED if file.format is FileFormat.PARQUET else 1


def engine_for(wanted: Engine, files: Iterable[SourceFile], *, spark: object | None) -> Engine:
    """Where files are loaded: as wanted, or by what they hold once they are unpacked.

    A JVM is never started unasked: on the same machine it loads more slowly than this process.
    """
    if wanted is not Engine.AUTO:
        return wanted
    if spark is not None:
        return Engine.SPARK
    size = sum(file.size * _expansion(file) for file in files)
    if size <= BREAK_EVEN_BYTES:
        return Engine.LOCAL
    from omnigraph_lake.runner.session import is_at_hand  # few loads are that large

    return Engine.SPARK if is_at_hand() else Engine.LOCAL


def _engine_of(load_input: _Input, wanted: Engine, *, spark: object | None) -> Engine:
    if load_input.staged is not None:
        return Engine.SPARK
    if load_input.frames:
        return _engine_of_frames(wanted, load_input.frames)
    return engine_for(wanted, load_input.files, spark=spark)


def _engine_of_frames(wanted: Engine, frames: Mapping[str, object]) -> Engine:
    on_spark = [key for key, frame in frames.items() if is_spark_frame(frame)]
    if on_spark and len(on_spark) < len(frames):
        raise InvalidInputError(
            f"{', '.join(on_spark)} are Spark DataFrames, the other frames are not",
            next_step="Pass all frames of one load as the same kind.",
        )
    if on_spark and wanted is Engine.LOCAL:
        raise InvalidInputError(
            "Spark DataFrames cannot be loaded by the engine local",
            next_step="Leave `engine` out, or collect the frames first.",
        )
    if not on_spark and wanted is Engine.SPARK:
        raise InvalidInputError(
            "the engine spark takes files and Spark DataFrames, found frames of this process",
            next_step="Leave `engine` out, or write the frames to Parquet files first.",
        )
    return Engine.SPARK if on_spark else Engine.LOCAL


def is_spark_frame(frame: object) -> bool:
    """Whether a frame is a DataFrame of Spark; needs no pyspark."""
    return any(
        f"{kind.__module__}.".startswith(_SPARK_PACKAGE) and kind.__name__ == "DataFrame"
        for kind in type(frame).__mro__
    )


def _split_bytes(engine: Engine, files: Iterable[SourceFile]) -> int:
    """On threads of this process small enough to take little memory."""
    least = SPLIT_BYTES if engine is Engine.SPARK else _LOCAL_SPLIT_BYTES
    return split_bytes_for(sum(file.size for file in files), least=least)


def _require_texts(request: LoadRequest) -> None:
    for name in ("type_name", "order_by", "branch", "quarantine"):
        value: object = getattr(request, name)
        if value is not None and not isinstance(value, str):
            raise InvalidInputError(f"{name} is {shown(value)}, expected a text")
    columns: object = request.columns
    if columns is not None and not (
        isinstance(columns, Mapping)
        and all(isinstance(text, str) for pair in columns.items() for text in pair)
    ):
        raise InvalidInputError(
            f"columns is {shown(columns)}, expected a mapping of names",
            next_step='Map properties to columns, as in {"name": "full_name"}.',
        )


_END_COLUMNS: Final = {
    **dict.fromkeys(("from", names.SOURCE_COLUMN), names.SOURCE_TYPE_COLUMN),
    **dict.fromkeys(("to", names.TARGET_COLUMN), names.TARGET_TYPE_COLUMN),
}


def _end_types(given: object, catalog: Catalog) -> dict[str, str]:
    """The node types of ends that the input does not name, by the column of types.

    Raises:
        InvalidInputError: no edge type has a choice at such an end, or none with this type.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"end_type is {shown(given)}, expected a mapping of ends to node types",
            next_step='Say, for example, {"to": "Company"}.',
        )
    types: dict[str, str] = {}
    for end, type_name in given.items():
        column = _END_COLUMNS.get(end) if isinstance(end, str) else None
        if column is None:
            raise InvalidInputError(f"end_type has {shown(end)}, expected from or to")
        known = {
            name
            for edge in catalog.edges.values()
            for id_column, polymorphic in polymorphic_ends(edge).items()
            if names.END_TYPE_COLUMNS[id_column] == column
            for name in polymorphic.names
        }
        if not isinstance(type_name, str) or type_name not in known:
            hint = did_you_mean(str(type_name), known)
            raise InvalidInputError(
                f"no edge has a choice of types with {shown(type_name)} at its end {end!r}"
                + (f" ({hint})" if hint else ""),
                next_step=f"The types are {', '.join(sorted(known))}." if known else "",
            )
        types[column] = type_name
    return types


def _ceiling(max_bad: int | str | None, on_error: FaultPolicy) -> Ceiling:
    if max_bad is None:
        return DEFAULT_CEILING
    if on_error is FaultPolicy.FAIL:
        raise InvalidInputError(
            "a limit for rejected records was given, but any rejected record fails this load",
            next_step='Add `--on-error quarantine` (`on_error="quarantine"` in Python), or leave '
            "the limit out.",
        )
    return parse_ceiling(max_bad)


def _require_order(column: str | None, mode: WriteMode, catalog: Catalog) -> None:
    """An ordering column decides between records of one id, which merge and replace accept."""
    if column is None:
        return
    if not mode.upserts:
        raise InvalidInputError(
            f"an ordering column was given, but {mode.value} keeps the first record of an id",
            next_step="Add `--mode merge` or `--mode replace` (`mode=` in Python), or omit the "
            "column.",
        )
    types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
    ordered_types = [declared for declared in types if column in declared.properties]
    if not ordered_types:
        hint = did_you_mean(column, [name for declared in types for name in declared.properties])
        raise InvalidInputError(
            f"no type has the property {shown(column)}" + (f"; {hint}" if hint else ""),
            next_step="Name a property to order by.",
        )
    for declared in ordered_types:
        kind = declared.properties[column].type
        if not isinstance(kind, ScalarType) or kind.scalar in {Scalar.STRING, *WITHOUT_ORDER}:
            raise InvalidInputError(
                f"{declared.name}.{column} cannot order records: it is neither a number nor a time",
                next_step="Name a property that is a number or a time.",
            )
