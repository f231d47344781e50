"""Import raw data: plan, create or open the graph, load as one commit, write schema and mapping.

A plan has the sources and a mapping for them: one that was inferred together with a schema, or one
that was given.

Invariants:
- A plan that was inferred and one that is read from the files of the former load the same rows.
- A file that exists is overwritten only if an import wrote it and its digest tells that it was not
  edited since.
- Schema and mapping are written before the load, so that they can be edited if it is refused. A
  graph on a local disk that was created for a load that is refused is removed again.
- A dry run writes nothing.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from omnigraph_lake.api.options import ImportOptions, LoadOptions
from omnigraph_lake.arguments import one_of
from omnigraph_lake.creation.initialise import existing_graph
from omnigraph_lake.display.cells import cut, printable
from omnigraph_lake.errors import (
    InvalidInputError,
    LoadRefusedError,
    NotFoundError,
    SchemaRefusedError,
)
from omnigraph_lake.evolution.plan.plan_text import refusal_of_plan
from omnigraph_lake.ids import key_properties
from omnigraph_lake.importer.draft import Hint
from omnigraph_lake.importer.explanation import NO_EXPLANATION, Explanation
from omnigraph_lake.importer.import_report import (
    ImportedSource,
    ImportReport,
    causes_of,
    short_path,
)
from omnigraph_lake.importer.import_sources import (
    ImportSource,
    find_import_sources,
    group_sources,
    hint_at_kinds,
    join_sources,
)
from omnigraph_lake.importer.inference import infer
from omnigraph_lake.importer.mapping_edits import MappingEditor, SchemaEdit, edit_text
from omnigraph_lake.importer.mapping_file import (
    SUFFIX,
    MappingFile,
    check_mapping,
    read_mapping,
    write_mapping,
)
from omnigraph_lake.importer.neo4j import infer_neo4j
from omnigraph_lake.importer.profile import SourceProfile, profile_source
from omnigraph_lake.importer.roles import InferenceOptions
from omnigraph_lake.importer.tables import Source
from omnigraph_lake.importer.text_forms import TEXTS, with_form
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.load.formats.digests import uses_digests
from omnigraph_lake.load.formats.mapping import SourceMapping, TextForm, UnknownColumns
from omnigraph_lake.load.formats.raw_batches import RawRecords
from omnigraph_lake.load.load import MappedInput
from omnigraph_lake.load.report import (
    ImportPolicy,
    LoadReport,
)
from omnigraph_lake.names import ID_COLUMN, MAIN
from omnigraph_lake.runner.progress import Progress, require_progress
from omnigraph_lake.runner.protocol import Stage
from omnigraph_lake.storage.objects.location import Root, Scheme
from omnigraph_lake.storage.objects.paths import checked_path
from omnigraph_lake.storage.objects.temporary_folders import temporary_folder

if TYPE_CHECKING:
    from omnigraph_lake.evolution.plan.planning import Evolution
    from omnigraph_lake.notes import CommitNote
    from omnigraph_lake.schema.catalog import Catalog, NodeType

_LABELS: Final = frozenset({"name", "title", "label"})
_INPUTS_NAMED: Final = 3
_INPUT_WIDTH: Final = 80
_SIGNATURE: Final = "Written by omnigraph import; digest "


class ImportTarget(Protocol):
    """The graph that an import loads into."""

    @property
    def schema(self) -> Any: ...

    @property
    def commits(self) -> Callable[..., Sequence[object]]: ...

    @property
    def load(self) -> Callable[..., LoadReport]: ...

    @property
    def checkout(self) -> Callable[[str], ImportTarget]: ...


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
    note: CommitNote
    policy: ImportPolicy
    options: ImportOptions
    create: Callable[[str], ImportTarget]
    reopen: Callable[[], ImportTarget]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutputFiles:
    schema: Path
    mapping: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edits:
    """What choices change of a graph that exists: the text of its mapping, and its schema.

    A mapping that was given as a text has no files.
    """

    before: str
    after: str
    schema: tuple[SchemaEdit, ...]
    mapping_file: Path | None = None
    schema_file: Path | None = None

    def lines(self) -> tuple[str, ...]:
        """The lines of the mapping and of the schema that change, with signs as in a diff."""
        texts = (self.before.splitlines(), self.after.splitlines())
        changed = list(unified_diff(*texts, n=0, lineterm=""))[2:]
        lines = [line for line in changed if not line.startswith("@@") and _SIGNATURE not in line]
        return (*lines, *map(str, self.schema))

    def change_schema(self, text: str) -> str:
        """The text of a schema with the edits."""
        return reduce(lambda changed, edit: edit.apply(changed), self.schema, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What will be loaded: every source with its mapping, for a schema.

    `schema` is None if the mapping was given and names no schema. `records` has the records of the
    sources that were profiled. `is_written` says that a person wrote or edited the mapping.
    """

    sources: tuple[ImportSource, ...]
    mapping_file: MappingFile
    mapping: str
    mapping_name: str
    schema: str | None
    records: Mapping[str, int] = field(default_factory=dict)
    is_written: bool = False
    hints: tuple[Hint, ...] = ()
    explanation: Explanation = NO_EXPLANATION
    edits: _Edits | None = None

    @property
    def mappings(self) -> Mapping[str, SourceMapping]:
        return {mapping.name: mapping for mapping in self.mapping_file.mappings}

    def check(self, catalog: Catalog) -> None:
        """Compare the mapping with the schema of the graph.

        Raises:
            InvalidInputError: it names a type or a property that the schema does not have.
        """
        check_mapping(self.mapping_file, catalog, text=self.mapping, name=self.mapping_name)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was left out while the sources were read."""
        return tuple(warning for source in self.sources for warning in source.warnings)

    @property
    def title(self) -> str:
        """The message of the commit if the caller gives none."""
        inputs: dict[str, None] = {}  # tables of one document are one input
        for source in self.sources:
            files = [Path(file.origin or file.path).name for file in source.files]
            if source.declared is not None and not source.files[0].table:
                files = []  # a copy of a table of a server
            inputs |= dict.fromkeys(files or [source.name])
        first = ", ".join(cut(printable(name), _INPUT_WIDTH) for name in [*inputs][:_INPUTS_NAMED])
        more = len(inputs) - _INPUTS_NAMED
        return f"import {first} and {more} more" if more > 0 else f"import {first}"

    def load_input(self, policy: ImportPolicy) -> MappedInput:
        """The input of the load."""
        mappings = self.mappings
        frames = {source.name: source.frame for source in self.sources if source.is_frame}
        files = tuple(
            replace(file, mapping=mappings[source.name])
            for source in self.sources
            for file in source.files
        )
        if frames and files:
            raise InvalidInputError(
                "frames and lists of records were given together, expected one kind",
                next_step="Import them one after the other, or make frames of the lists.",
            )
        return MappedInput(
            policy=replace(policy, requires_rows=self.is_written),
            files=files,
            frames=frames,
            mappings={name: mappings[name] for name in frames},
        )

    def describe_sources(self) -> tuple[ImportedSource, ...]:
        mappings = self.mappings
        return tuple(
            ImportedSource(
                name=source.name,
                location=source.describe(),
                records=self.records.get(source.name),
                types=(*mappings[source.name].node_types(), *mappings[source.name].edge_types()),
            )
            for source in self.sources
        )


def run_import(request: ImportRequest) -> ImportReport:
    """Carry out one import."""
    options, root = request.options, request.root
    outputs = _output_files(root, options)
    exists = _exists(root)
    with temporary_folder("import") as folder:
        spool = folder / "spool"
        spool.mkdir()
        sources = find_import_sources(
            request.sources,
            folder=spool,
            format_name=options.format,
            storage_options=options.storage_options,
            graph=root,
            form=_form_of_options(options),
        )
        target = request.reopen() if exists else None
        plan = _plan(request, sources, folder, outputs, target)
        catalog = _apply_edits(request, target, plan.edits) if target and plan.edits else None
        written = _write_files(request, plan, outputs, exists=exists)
        load = None
        if catalog is not None:
            plan.check(catalog)
        elif exists or not request.dry_run:
            target = target or request.create(plan.schema or "")
            try:
                plan.check(target.schema.catalog)
                load = _load(request, target, plan)
            except (InvalidInputError, LoadRefusedError):
                if not exists:
                    _withdraw(root, target)
                raise
        report = ImportReport(
            graph=root.uri,
            created=not exists and load is not None,
            dry_run=request.dry_run,
            schema=target.schema.text if target else plan.schema or "",
            mapping=plan.mapping,
            sources=plan.describe_sources(),
            warnings=plan.warnings,
            hints=plan.hints,
            explanation=plan.explanation,
            edits=plan.edits.lines() if plan.edits else (),
        )
        if load is None or target is None:
            return report
        return replace(
            report,
            schema_file=str(outputs.schema) if written else None,
            mapping_file=str(outputs.mapping) if written else None,
            causes=causes_of(load),
            warnings=(*plan.warnings, *load.warnings),
            load=load,
            next_steps=() if exists else _next_steps(root, target.schema.catalog, load.written),
            unconnected=_find_unconnected(target.schema.catalog),
        )


def _form_of_options(options: ImportOptions) -> TextForm:
    """What the caller says about texts."""
    return TextForm(header=options.header, delimiter=options.delimiter, encoding=options.encoding)


def _find_unconnected(catalog: Catalog) -> tuple[str, ...]:
    """The node types that no edge reaches, unless there is only one type."""
    reached = {
        name for edge in catalog.edges.values() for name in (*edge.source.names, *edge.target.names)
    }
    return tuple(n for n in catalog.nodes if n not in reached) if len(catalog.nodes) > 1 else ()


def _next_steps(root: Root, catalog: Catalog, written: Mapping[str, int]) -> tuple[str, ...]:
    """Commands that show what was imported: rows of the largest edge type, or of a node type."""
    graph = shlex.quote(short_path(root.uri))
    if catalog.edges:
        edge = max(catalog.edges.values(), key=lambda edge: written.get(edge.name, 0))
        source, target = edge.source.names[0], edge.target.names[0]
        ends = [("a", catalog.nodes[source]), ("b", catalog.nodes[target])]
        match = f"$a: {source} $a {edge.name[0].lower()}{edge.name[1:]} $b"
    else:
        node = next(iter(catalog.nodes.values()))
        ends = [("a", node)]
        match = f"$a: {node.name}"
    shown_properties = ", ".join(f"${name}.{_label(node)}" for name, node in ends)
    query = f"match {{ {match} }} return {{ {shown_properties} }} limit 10"
    return (
        f"omnigraph view {graph}",
        f"omnigraph query {graph} -e {shlex.quote(query)}",
        f"omnigraph shell {graph}",
    )


def _label(node: NodeType) -> str:
    """A property that says what a node is."""
    names = [name for name in node.properties if name.rpartition("_")[2] in _LABELS]
    key = [prop.name for prop in key_properties(node)] if node.key else []
    return next(iter([*names, *key, *node.properties]), ID_COLUMN)


def _withdraw(root: Root, target: ImportTarget) -> None:
    """Remove a graph that was created for this import and has nothing but its first commit."""
    if root.scheme is Scheme.LOCAL and len(target.commits(limit=2)) == 1:
        shutil.rmtree(root.uri, ignore_errors=True)


def _load(request: ImportRequest, target: ImportTarget, plan: _Plan) -> LoadReport:
    options = request.options
    try:
        return target.load(
            plan.load_input(request.policy),
            mode="merge",
            on_error=request.on_error,
            spark=request.spark,
            dry_run=request.dry_run,
            actor=request.actor,
            message=request.note.message or plan.title,
            metadata=request.note.metadata,
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
        raise _with_causes(error, short_path(plan.mapping_name)) from error


def _with_causes(error: LoadRefusedError, mapping: str) -> LoadRefusedError:
    """The refusal with rejected records by cause."""
    report = error.report
    assert isinstance(report, LoadReport)
    return LoadRefusedError(
        error.what,
        report=report,
        details="\n".join(map(str, causes_of(report))),
        next_step=f"Fix the data, or edit the mapping and import again with `--map {mapping}`, or "
        "raise the limit with `--max-rejected`.",
    )


def _plan(
    request: ImportRequest,
    sources: tuple[ImportSource, ...],
    folder: Path,
    outputs: _OutputFiles,
    target: ImportTarget | None,
) -> _Plan:
    options, exists = request.options, target is not None
    unknown = (
        None
        if options.unknown_columns is None
        else one_of(UnknownColumns, options.unknown_columns, argument="unknown_columns")
    )
    mapping, inference = request.mapping, _inference_options(options, unknown)
    if mapping is not None and not exists:
        _refuse_choices(options)
    if mapping is None and exists:
        mapping = _mapping_beside(request.root, outputs)
    if mapping is not None:
        text, name, base = _mapping_text(mapping)
        schema = None if exists else _schema_for(request, text, name, base)
        edits = None
        if target is not None:
            edits = _edit(
                request, sources, text, inference, name=name, folder=folder, target=target
            )
        return _read_plan(
            sources,
            text if edits is None else edits.after,
            edits=edits,
            name=name,
            unknown=unknown,
            create_endpoints=inference.create_endpoints,
            schema=schema,
            form=_form_of_options(options),
        )
    if request.schema is not None:
        raise InvalidInputError(
            "a schema was given without a mapping",
            next_step="Give the mapping too (`--map`), or leave the schema out to infer both.",
        )
    with require_progress(options.progress) as progress:
        return _infer_plan(
            sources,
            inference,
            folder=folder,
            outputs=outputs,
            progress=progress,
            records_max=options.sample,
            form=_form_of_options(options),
        )


def _inference_options(options: ImportOptions, unknown: UnknownColumns | None) -> InferenceOptions:
    """What the caller chooses; `unknown` is None if it is left to the mapping."""
    if options.missing_endpoints not in {"reject", "create"}:
        raise InvalidInputError(
            f"missing_endpoints is {shown(options.missing_endpoints)}, expected reject or create"
        )
    return InferenceOptions(
        unknown=unknown or UnknownColumns.ERROR,
        create_endpoints=options.missing_endpoints == "create",
        keys=options.keys or {},
        edges=options.edges or {},
        types=options.types or {},
        null_words=tuple(options.null_words),
    )


def _branch_of(target: ImportTarget, options: ImportOptions) -> ImportTarget:
    """The graph at the branch that is imported into."""
    named = options.branch
    return target if named in {None, MAIN} else target.checkout(str(named))


def _edit(  # noqa: PLR0913 - sources, and how they are read
    request: ImportRequest,
    sources: Sequence[ImportSource],
    text: str,
    options: InferenceOptions,
    *,
    name: str,
    folder: Path,
    target: ImportTarget,
) -> _Edits | None:
    """Make the choices part of a mapping; None if they change nothing."""
    is_chosen = options.edges or options.types or options.null_words
    on = _branch_of(target, request.options) if is_chosen else target
    editor = MappingEditor(catalog=on.schema.catalog, options=options)
    form, before = _form_of_options(request.options), read_mapping(text, name=name)
    check_mapping(before, editor.catalog, text=text, name=name)
    if options.keys:
        raise InvalidInputError(
            "keys were given for a graph that exists, and they make the ids of its rows: published "
            "rows would get other ids",
            next_step="Import all files into a new graph with `--key`.",
        )
    mappings: list[SourceMapping] = []
    by_name = {source.name: source for source in _match(sources, before, name)}
    for number, mapping in enumerate(before.mappings):
        source, edited = by_name.get(mapping.name), mapping
        if source is not None and source.files and source.files[0].format in TEXTS:
            edited = replace(mapping, form=form.or_else(mapping.form))
        if source is not None and is_chosen:
            with require_progress(None) as progress:
                known, seen = _read_as(source, edited.form), _Observed()
                hashes = folder / f"source-{number}"
                profile = _profile(known, hashes, options, progress, seen, records_max=None)
            edited = edited if profile is None else editor.edit(edited, profile)
        mappings.append(edited)
    editor.require_used()
    after = replace(before, mappings=tuple(mappings))
    if after == before and not editor.schema:
        return None
    is_edited = _is_edited(text)
    content = text if is_edited else text.partition("\n")[2]
    changed = edit_text(content, before, after)
    changed = changed if is_edited else _sign(changed, "#")
    edits = _Edits(before=text, after=changed, schema=tuple(editor.schema))
    if isinstance(request.mapping, str) and "\n" in request.mapping:
        return edits
    beside = None if before.schema is None else Path(name).parent / before.schema
    return replace(edits, mapping_file=Path(name), schema_file=beside)


def _apply_edits(request: ImportRequest, target: ImportTarget, edits: _Edits) -> Catalog | None:
    """Change schema and mapping; in a dry run nothing, and the schema as it would be.

    Raises:
        SchemaRefusedError: the schema cannot be changed so, or published rows do not fit.
    """
    schema = _branch_of(target, request.options).schema
    text = edits.change_schema(schema.text)
    if edits.schema:
        evolution: Evolution = schema.plan(text)
        if not evolution.plan.supported:
            raise SchemaRefusedError(
                *refusal_of_plan("schema.pg", evolution.plan), plan=evolution.plan
            )
        for edit in edits.schema:
            edit.require_in(evolution.target)
        if request.dry_run:
            return evolution.target
    if request.dry_run:
        return None
    if edits.schema:
        schema.apply(text, actor=request.actor, message="schema for an import")
    if edits.mapping_file is not None:
        edits.mapping_file.write_text(edits.after, encoding="utf-8")
    if edits.schema and edits.schema_file is not None and edits.schema_file.exists():
        own = _read(edits.schema_file, "a schema file (.pg)")
        is_edited = _is_edited(own)
        content = edits.change_schema(own if is_edited else own.partition("\n")[2])
        content = content if is_edited else _sign(content, "//")
        edits.schema_file.write_text(content, encoding="utf-8")
    return None


def _refuse_choices(options: ImportOptions) -> None:
    """Refuse choices of an inference where a mapping has made them."""
    choices = {
        "keys": options.keys,
        "edges": options.edges,
        "types": options.types,
        "null_words": options.null_words,
    }
    for name, choice in choices.items():
        if choice:
            raise InvalidInputError(
                f"{name} were given, and the mapping has them already",
                next_step="Edit the mapping, or import into a new graph.",
            )


def _infer_plan(  # noqa: PLR0913 - sources, and how they are read
    sources: Sequence[ImportSource],
    options: InferenceOptions,
    *,
    folder: Path,
    outputs: _OutputFiles,
    progress: Progress,
    records_max: int | None,
    form: TextForm,
) -> _Plan:
    """Read the sources and infer a schema and a mapping."""
    joins = {name: other for name, other in options.types.items() if "." not in name}
    options = replace(options, types={n: t for n, t in options.types.items() if n not in joins})
    sources = join_sources(sources, folder, joins)
    profiled: dict[str, Source] = {}
    observed: dict[str, _Observed] = {}
    for number, source in enumerate(sources):
        progress.begin(Stage(verb="import", name=f"read {source.name}"), pieces=0)
        observed[source.name] = seen = _Observed()
        hashes = folder / f"source-{number}"
        profile = _profile(source, hashes, options, progress, seen, records_max=records_max)
        if profile is not None:
            profiled[source.name] = Source(
                name=source.name,
                profile=profile,
                declared=source.declared,
                document=source.document,
            )
    if not profiled:
        raise InvalidInputError(
            "the input has no records and no columns: there is nothing to infer a schema from",
            next_step="Name files that have records.",
        )
    sources = tuple(source for source in sources if source.name in profiled)
    forms = {source.name: source.form(form) for source in sources}
    joined = {source.name: source.joined for source in sources}
    tables = list(profiled.values())
    draft = infer_neo4j(tables, options) or infer(tables, options)
    mappings = tuple(
        replace(
            mapping,
            also=joined[mapping.name],
            form=mapping.form.or_else(forms[mapping.name]),
            digest=tuple(sorted(observed[mapping.name].columns)) if uses_digests(mapping) else (),
        )
        for mapping in draft.mappings
    )
    notes = (note for source in sources for note in source.notes())
    draft = replace(draft, notes=(*draft.notes, *notes))
    mapping_file = MappingFile(mappings=mappings, schema=outputs.schema.name)
    return _Plan(
        sources=sources,
        mapping_file=mapping_file,
        mapping=write_mapping(mappings, schema=outputs.schema.name),
        mapping_name=str(outputs.mapping),
        schema=draft.schema_text(),
        records={name: source.profile.records for name, source in profiled.items()},
        hints=(*draft.hints, *hint_at_kinds(sources, {n: s.profile for n, s in profiled.items()})),
        explanation=Explanation(draft.explanation),
    )


@dataclass(slots=True)
class _Observed:
    """What is noticed of the records of a source while they are profiled."""

    columns: set[str] = field(default_factory=set)
    refused: int = 0
    message: str = ""


def _profile(
    source: ImportSource,
    folder: Path,
    options: InferenceOptions,
    progress: Progress,
    seen: _Observed,
    *,
    records_max: int | None,
) -> SourceProfile | None:
    """The profile of one source; None if it is empty."""
    folder.mkdir()
    limits = [limit for limit in (records_max, source.records_max) if limit is not None]
    profile = profile_source(
        source.name,
        _observe(source.records(), progress, seen),
        folder,
        records_max=min(limits, default=None),
        null_words=options.null_words,
    )
    for column in profile.columns.keys() & source.units.keys():
        profile.columns[column].unit = source.units[column]
    if profile.columns or profile.children:
        return profile
    if seen.refused or profile.records:
        raise _without_records(source, seen)
    return None


def _observe(
    records: Iterable[RawRecords], progress: Progress, seen: _Observed
) -> Iterator[RawRecords]:
    """The records as they are read."""
    for raw in records:
        seen.columns.update(raw.batch.names())
        seen.refused += len(raw.refusals)
        if raw.refusals and not seen.message:
            seen.message = raw.refusals[0].message
        progress.advance(rows=len(raw.batch))
        yield raw


def _without_records(source: ImportSource, seen: _Observed) -> InvalidInputError:
    why = seen.message or "found no member, expected one"
    return InvalidInputError(
        f"{source.describe()} has no record that can be imported; of the first: {why}",
        next_step="Name the format with `--format`, or leave the file out.",
    )


def _read_plan(  # noqa: PLR0913 - sources, and how they are read
    sources: Sequence[ImportSource],
    text: str,
    *,
    name: str,
    unknown: UnknownColumns | None,
    create_endpoints: bool,
    schema: str | None,
    form: TextForm,
    edits: _Edits | None,
) -> _Plan:
    """Use a mapping that was written before; sources are matched with it by name.

    Raises:
        InvalidInputError: the mapping has faults, or no rules for a source.
    """
    mapping_file = read_mapping(text, name=name)
    mappings = mapping_file.mappings
    if unknown is UnknownColumns.KEEP:
        _require_kept(mappings, name)
    elif unknown is not None:
        mappings = tuple(replace(mapping, unknown=unknown, kept_in=None) for mapping in mappings)
    if create_endpoints:
        mappings = tuple(mapping.with_created_endpoints() for mapping in mappings)
    mapping_file = replace(mapping_file, mappings=mappings)
    sources = _match(sources, mapping_file, name)
    forms = {mapping.name: mapping.form for mapping in mappings}
    return _Plan(
        sources=tuple(_read_as(source, form.or_else(forms[source.name])) for source in sources),
        mapping_file=mapping_file,
        mapping=text,
        mapping_name=name,
        schema=schema,
        is_written=_is_edited(text),
        edits=edits,
    )


def _match(
    sources: Sequence[ImportSource], mapping_file: MappingFile, name: str
) -> Sequence[ImportSource]:
    """The sources by their names in a mapping: if it has one and there is one, it is that.

    Raises:
        InvalidInputError: the mapping has no rules for a source.
    """
    mappings = mapping_file.mappings
    known = {name: m.name for m in mappings for name in (m.name, *m.also)}
    if len(mappings) == 1 and len(sources) == 1:
        sources = [replace(sources[0], name=mappings[0].name)]
    names = [known.get(s.name, known.get(s.family, s.name)) for s in sources]
    sources = group_sources([replace(s, name=n) for s, n in zip(sources, names, strict=True)])
    for source in sources:
        if source.name not in known:
            hint = did_you_mean(source.name, known)
            raise InvalidInputError(
                f"{name} has no [[source]] with name = {source.name!r} for {source.describe()}"
                + (f"; {hint}" if hint else ""),
                next_step=f"Name the file after a source ({', '.join(sorted(known))}), add a "
                "[[source]] to the mapping (`omnigraph import NEW FILE... --dry-run` prints one, "
                "and the types for `omnigraph schema apply`), or omit the file.",
            )
    return sources


def _read_as(source: ImportSource, form: TextForm) -> ImportSource:
    """A source whose files are read as a mapping says."""
    files = (with_form(file, form, is_mapped=True) for file in source.files)
    return replace(source, files=tuple(files))


def _require_kept(mappings: Iterable[SourceMapping], name: str) -> None:
    for mapping in mappings:
        if mapping.kept_in is None and mapping.nodes:
            raise InvalidInputError(
                f"unknown columns cannot be kept: {name} has no property for those of "
                f"{mapping.name}",
                next_step='Add `unknown_columns = "keep"` and `kept_in = "PROPERTY"` to its '
                "[[source]], where PROPERTY is a String of its first node type.",
            )


def _exists(root: Root) -> bool:
    try:
        existing_graph(root)
    except NotFoundError:
        return False
    return True


def _output_files(root: Root, options: ImportOptions) -> _OutputFiles:
    """Beside a graph on a disk, or in this folder for one on a store."""
    name = root.uri.rstrip("/").rpartition("/")[2] or "graph"
    folder = Path(root.uri.rstrip("/")).parent if root.scheme is Scheme.LOCAL else Path()
    return _OutputFiles(
        schema=Path(options.schema_out or folder / f"{name}.pg"),
        mapping=Path(options.map_out or folder / f"{name}{SUFFIX}"),
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
    path = checked_path(mapping, argument="mapping")
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
    return _read(checked_path(schema, argument="schema"), "a schema file (.pg)")


def _read(path: Path, expected: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}", next_step=f"Give the path of {expected}."
        ) from error


def _write_files(
    request: ImportRequest, plan: _Plan, outputs: _OutputFiles, *, exists: bool
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
