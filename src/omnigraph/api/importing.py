"""Import raw data: plan, create or open the graph, load as one commit, write schema and mapping.

Invariants:
- A file that exists is overwritten only if an import wrote it and its digest tells that it was not
  edited since.
- Schema and mapping are written before the load, so that they can be edited if it is refused. A
  graph on a local disk that was created for a load that is refused is removed again.
- A dry run writes nothing.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from omnigraph.api.options import ImportOptions, LoadOptions
from omnigraph.arguments import one_of
from omnigraph.creation.initialise import existing_graph
from omnigraph.errors import InvalidInputError, LoadRefusedError, NotFoundError
from omnigraph.importer.import_report import ImportReport, causes_of
from omnigraph.importer.inference import InferenceOptions
from omnigraph.importer.mapping_file import SUFFIX, read_mapping
from omnigraph.importer.plan import (
    ImportPlan,
    default_files,
    find_sources,
    infer_plan,
    read_plan,
    temporary_folder,
)
from omnigraph.language.diagnostics import shown
from omnigraph.load.formats.mapping import UnknownColumns
from omnigraph.load.report import LoadReport, quarantine_place
from omnigraph.names import MAIN
from omnigraph.storage.objects.location import Root, Scheme

if TYPE_CHECKING:
    from omnigraph.importer.import_sources import ImportSource

_SIGNATURE: Final = "Written by omnigraph import; digest "


class ImportTarget(Protocol):
    """The graph that an import loads into."""

    @property
    def schema(self) -> Any: ...

    @property
    def commits(self) -> Callable[..., Sequence[object]]: ...

    @property
    def load(self) -> Callable[..., LoadReport]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """A request to import; `create` makes the graph from a schema, `reopen` opens it."""

    root: Root
    sources: object
    mapping: str | PathLike[str] | None
    schema: str | PathLike[str] | None
    on_error: Literal["fail", "quarantine"]
    spark: object
    dry_run: bool
    actor: str | None
    options: ImportOptions
    create: Callable[[str], ImportTarget]
    reopen: Callable[[], ImportTarget]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutputFiles:
    schema: Path
    mapping: Path


def run_import(request: ImportRequest) -> ImportReport:
    """Carry out one import."""
    options, root = request.options, request.root
    outputs = _output_files(root, options)
    exists = _exists(root)
    with temporary_folder() as folder:
        sources = find_sources(
            request.sources,
            folder=folder,
            format_name=options.format,
            storage_options=options.storage_options,
            graph=root,
        )
        plan = _plan(request, sources, folder, outputs, exists=exists)
        if request.dry_run and not exists:
            return ImportReport(
                graph=root.uri,
                created=False,
                dry_run=True,
                schema=plan.schema or "",
                mapping=plan.mapping,
                sources=plan.describe_sources(),
            )
        written = _write_files(request, plan, outputs, exists=exists)
        target = request.reopen() if exists else request.create(plan.schema or "")
        try:
            plan.check(target.schema.catalog)
            load = _load(request, target, plan, outputs)
        except (InvalidInputError, LoadRefusedError):
            if not exists:
                _withdraw(root, target)
            raise
        return ImportReport(
            graph=root.uri,
            created=not exists,
            dry_run=request.dry_run,
            schema=target.schema.text,
            mapping=plan.mapping,
            schema_file=str(outputs.schema) if written else None,
            mapping_file=str(outputs.mapping) if written else None,
            sources=plan.describe_sources(),
            causes=causes_of(load, _quarantine(request, load)),
            load=load,
        )


def _withdraw(root: Root, target: ImportTarget) -> None:
    """Remove a graph that was created for this import and has nothing but its first commit."""
    if root.scheme is Scheme.LOCAL and len(target.commits(limit=2)) == 1:
        shutil.rmtree(root.uri, ignore_errors=True)


def _load(
    request: ImportRequest, target: ImportTarget, plan: ImportPlan, outputs: _OutputFiles
) -> LoadReport:
    options = request.options
    try:
        return target.load(
            plan.load_input(),
            mode="merge",
            on_error=request.on_error,
            spark=request.spark,
            dry_run=request.dry_run,
            actor=request.actor,
            options=LoadOptions(
                max_rejected=options.max_rejected,
                engine=options.engine,
                branch=options.branch,
                source=None if options.branch in {None, MAIN} else MAIN,
                quarantine=options.quarantine,
                progress=options.progress,
            ),
        )
    except LoadRefusedError as error:
        raise _with_causes(error, outputs) from error


def _with_causes(error: LoadRefusedError, outputs: _OutputFiles) -> LoadRefusedError:
    """The refusal with rejected records by cause."""
    report = error.report
    assert isinstance(report, LoadReport)
    return LoadRefusedError(
        error.args[0] if error.args else str(error),
        report=report,
        details="\n".join(map(str, causes_of(report, None))),
        next_step=f"Fix the data or the mapping {outputs.mapping} and import again with `--map`, "
        "or raise the limit with `--max-rejected`.",
    )


def _quarantine(request: ImportRequest, load: LoadReport) -> Any:
    if load.quarantine is None:
        return None
    return quarantine_place(request.root, load.operation_id, request.options.quarantine)


def _plan(
    request: ImportRequest,
    sources: tuple[ImportSource, ...],
    folder: Path,
    outputs: _OutputFiles,
    *,
    exists: bool,
) -> ImportPlan:
    options = request.options
    unknown = (
        None
        if options.unknown_columns is None
        else one_of(UnknownColumns, options.unknown_columns, argument="unknown_columns")
    )
    mapping = request.mapping
    if mapping is None and exists:
        mapping = _mapping_beside(request.root, outputs)
    if mapping is not None:
        text, name, base = _mapping_text(mapping)
        schema = None if exists else _schema_for(request, text, name, base)
        return read_plan(sources, text, name=name, unknown=unknown, schema=schema)
    if request.schema is not None:
        raise InvalidInputError(
            "a schema was given without a mapping",
            next_step="Give the mapping too (`--map`), or leave the schema out to infer both.",
        )
    if options.missing_endpoints not in {"reject", "create"}:
        raise InvalidInputError(
            f"missing_endpoints is {shown(options.missing_endpoints)}, expected reject or create"
        )
    return infer_plan(
        sources,
        InferenceOptions(
            unknown=unknown or UnknownColumns.ERROR,
            create_endpoints=options.missing_endpoints == "create",
        ),
        folder=folder,
        schema_name=outputs.schema.name,
        records_max=options.sample,
    )


def _exists(root: Root) -> bool:
    try:
        existing_graph(root)
    except NotFoundError:
        return False
    return True


def _output_files(root: Root, options: ImportOptions) -> _OutputFiles:
    schema, mapping = default_files(root)
    return _OutputFiles(
        schema=schema if options.schema_out is None else Path(options.schema_out),
        mapping=mapping if options.map_out is None else Path(options.map_out),
    )


def _mapping_beside(root: Root, outputs: _OutputFiles) -> Path:
    if outputs.mapping.exists():
        return outputs.mapping
    raise InvalidInputError(
        f"{root} exists, and its mapping {outputs.mapping} does not",
        next_step="Name a mapping with `--map`. `omnigraph import NEW FILE... --dry-run` infers "
        "one for a graph that does not exist.",
    )


def _mapping_text(mapping: str | PathLike[str]) -> tuple[str, str, Path]:
    """The text of a mapping, its name in messages, and the folder of the files that it names."""
    if isinstance(mapping, str) and "\n" in mapping:
        return mapping, "mapping", Path()
    path = Path(mapping)
    return _read(path, f"a mapping file ({SUFFIX})"), str(path), path.parent


def _schema_for(request: ImportRequest, text: str, name: str, base: Path) -> str:
    """The schema of a graph that is created for a given mapping."""
    schema = request.schema
    if isinstance(schema, str) and not schema.endswith(".pg"):
        return schema
    if schema is None:
        named = read_mapping(text, name=name).schema
        if named is None:
            raise InvalidInputError(
                f"{request.root} does not exist, and {name} names no schema",
                next_step='Add `schema = "FILE.pg"` to the mapping, or give one with `--schema`.',
            )
        schema = base / named
    return _read(Path(schema), "a schema file (.pg)")


def _read(path: Path, expected: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}", next_step=f"Give the path of {expected}."
        ) from error


def _write_files(
    request: ImportRequest, plan: ImportPlan, outputs: _OutputFiles, *, exists: bool
) -> bool:
    """Write what was inferred; whether it was."""
    if exists or request.dry_run or request.mapping is not None or plan.schema is None:
        return False
    contents = (
        (outputs.schema, _sign(plan.schema, "//")),
        (outputs.mapping, _sign(plan.mapping, "#")),
    )
    for path, _ in contents:
        if path.exists() and _is_edited(_read(path, "a text file")):
            raise InvalidInputError(
                f"{path} exists, and it was edited or not written by an import",
                next_step=f"Use it with `--map {outputs.mapping}`, remove it, or write elsewhere "
                "with `--schema-out` and `--map-out`.",
            )
    for path, content in contents:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(
                f"cannot write {path}: {error}",
                next_step="Name other files with `--schema-out` and `--map-out`.",
            ) from error
    return True


def _sign(text: str, mark: str) -> str:
    """A text below a comment with its digest."""
    return f"{mark} {_SIGNATURE}{_digest(text)}\n{text}"


def _is_edited(content: str) -> bool:
    """Whether a file is anything else than what an import wrote."""
    first, _, text = content.partition("\n")
    return first.partition(_SIGNATURE)[2] != _digest(text)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
