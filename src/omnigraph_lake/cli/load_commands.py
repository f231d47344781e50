"""Defines the commands that move data: init, import, load, export, and those of copies.

Invariant: one JSON object, or the exported rows, on stdout; progress and everything else on stderr.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

import typer

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.options import ImportOptions, LoadOptions, Mode
from omnigraph_lake.cli import options, output
from omnigraph_lake.cli.output import YesFlag, require_confirmation
from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import DamagedGraphError, InvalidInputError

if TYPE_CHECKING:
    from omnigraph_lake.api.options import Durability
    from omnigraph_lake.creation.copying import CopyReport
    from omnigraph_lake.importer.import_report import ImportReport
    from omnigraph_lake.load.export import ExportReport
    from omnigraph_lake.load.report import LoadReport


STDOUT: Final = "-"
OVERWRITE: Final = "overwrite"

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Files, glob patterns or directories to load."),
]
ModeOption = Annotated[str, typer.Option("--mode", help="append, merge, replace or overwrite.")]
Branch = Annotated[str | None, typer.Option("--branch", help="Branch to use.")]
Base = Annotated[
    str | None, typer.Option("--from", metavar="REF", help="Create the branch from REF first.")
]
MergeInto = Annotated[
    str | None,
    typer.Option("--into", metavar="BRANCH", help="Merge the checked branch into BRANCH."),
]
Audit = Annotated[
    Path | None,
    typer.Option(
        "--audit", metavar="FILE", help="Queries (.gq) that must return no rows to merge."
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="REF", help="Tag, commit, version or time to read."),
]
Engine = Annotated[
    str,
    typer.Option("--engine", help="auto, local or spark. auto: local without --master/--remote."),
]
OnFault = Annotated[str, typer.Option("--on-error", help="fail, or quarantine rejected records.")]
MaxBad = Annotated[
    str | None,
    typer.Option("--max-rejected", metavar="N|P%", help="Maximum rejected records (default 10%)."),
]
As = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Type of the records in CSV and Parquet files."),
]
Mapped = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="PROP=COLUMN", help="Column of the file that holds a property."),
]
Dialect = Annotated[
    str | None,
    typer.Option("--dialect", help="0.7 for JSON lines that Omnigraph 0.7 exported."),
]
EndType = Annotated[
    list[str] | None,
    typer.Option(
        "--end-type",
        metavar="END=TYPE",
        help="Node type of an end of edges that the input does not name: to=Company.",
    ),
]
OrderBy = Annotated[
    str | None,
    typer.Option(
        "--order-by",
        metavar="PROP",
        help="With merge or replace: on duplicates, keep the highest PROP.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Read and validate everything, write nothing.")
]
Quarantine = Annotated[
    str | None, typer.Option("--quarantine", metavar="DIR", help="Directory for rejected records.")
]
Type = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Export only this type.")]
Format = Annotated[str, typer.Option("--format", help="jsonl or parquet.")]
Target = Annotated[
    str,
    typer.Option("-o", "--output", metavar="PATH", help="Target file, or directory for parquet."),
]


ImportedFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...", help="Files, glob patterns, directories or - for stdin to import."
    ),
]
MappingOption = Annotated[
    Path | None, typer.Option("--map", metavar="FILE", help="Mapping file (.map.toml) to use.")
]
SchemaOption = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE", help="Schema file (.pg) for --map.")
]
SchemaOut = Annotated[
    Path | None,
    typer.Option("--schema-out", metavar="FILE", help="Write the inferred schema to FILE."),
]
MapOut = Annotated[
    Path | None,
    typer.Option("--map-out", metavar="FILE", help="Write the inferred mapping to FILE."),
]
InputFormat = Annotated[
    str | None,
    typer.Option("--format", help="csv, jsonl, json, parquet, arrow, sqlite, duckdb or graphml."),
]
HeaderOption = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether CSV files have a header (default: look)."),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option("--delimiter", metavar="MARK", help="Between the cells of CSV files; or tab."),
]
EncodingOption = Annotated[
    str | None,
    typer.Option("--encoding", metavar="NAME", help="Of CSV and JSON files, as in cp1252."),
]
UnknownOption = Annotated[
    str | None,
    typer.Option("--unknown-columns", help="error, ignore, or keep as JSON (default error)."),
]
MissingOption = Annotated[
    str, typer.Option("--missing-endpoints", help="reject edges, or create the missing nodes.")
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="TYPE=COLUMN", help="Column of the key of a type; repeatable."),
]
EdgeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--edge", metavar="TYPE.COLUMN=TYPE", help="Type that a column refers to; repeatable."
    ),
]
TypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE.COLUMN=KIND",
        help="Type of a column, or of a source (SOURCE=SOURCE); repeatable.",
    ),
]
NullOption = Annotated[
    str | None,
    typer.Option("--null", metavar="A,B", help="Texts that mean no value, in every column."),
]
SampleOption = Annotated[
    int | None,
    typer.Option("--sample", metavar="N", min=1, help="Infer from the first N records only."),
]
InferOnly = Annotated[
    bool, typer.Option("--dry-run", help="Print the inferred schema and mapping, write nothing.")
]
ExplainFlag = Annotated[
    bool,
    typer.Option("--explain", help="Print what was seen, and what each choice was made from."),
]
DuplicateOption = Annotated[
    str,
    typer.Option("--on-duplicate", help="Of records with one key keep the last or first, or fail."),
]
NewRows = Annotated[
    bool,
    typer.Option("--new-rows", help="Add records without a key, also if equal ones are there."),
]
ImportFault = Annotated[
    str, typer.Option("--on-error", help="quarantine rejected records, or fail.")
]


def init(  # noqa: PLR0913 - one parameter per option
    graph: options.GraphArgument,
    schema: Annotated[Path, typer.Option("--schema", help="Schema file (.pg).")],
    *,
    actor: Annotated[
        str | None, typer.Option("--actor", help="Author of the first commit.")
    ] = None,
    message: options.MessageOption = None,
    metadata: options.MetadataOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Take over a root where an earlier init failed."),
    ] = False,
    durability: Annotated[
        str | None,
        typer.Option(
            "--durability",
            metavar="commit|os",
            help="Writes survive a power failure (commit, default) or only a crash (os).",
        ),
    ] = None,
    like: Annotated[str | None, typer.Option("--like", hidden=True)] = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Create a graph with a schema."""
    if like is not None:
        raise InvalidInputError(
            f"no graph is created in the format of Omnigraph {like}: its commits are two writes, "
            "one of tables and one of history, and a process may die between them",
            next_step="Create it with that program: it is read here, and upgraded by the first "
            "write. Rows that are exported here can be loaded there.",
        )
    created = og.init(
        graph,
        schema=options.text_of(schema) if str(schema) == options.STDIN else schema,
        actor=actor,
        message=message,
        metadata=options.metadata_of(metadata),
        force=force,
        durability=cast("Durability | None", durability),  # `init` refuses other words
    )
    output.created(created, as_json=as_json)


def import_(  # noqa: PLR0913 - one parameter per option
    graph: options.GraphArgument,
    files: ImportedFiles,
    *,
    mapping: MappingOption = None,
    schema: SchemaOption = None,
    schema_out: SchemaOut = None,
    map_out: MapOut = None,
    format_name: InputFormat = None,
    header: HeaderOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    unknown_columns: UnknownOption = None,
    missing_endpoints: MissingOption = "reject",
    key: KeyOption = None,
    edge: EdgeOption = None,
    type_: TypeOption = None,
    null: NullOption = None,
    sample: SampleOption = None,
    branch: Branch = None,
    engine: Engine = "auto",
    on_error: ImportFault = "quarantine",
    on_duplicate: DuplicateOption = "last",
    new_rows: NewRows = False,
    max_bad: MaxBad = None,
    quarantine: Quarantine = None,
    dry_run: InferOnly = False,
    explain: ExplainFlag = False,
    master: options.MasterOption = None,
    remote: options.RemoteOption = None,
    actor: options.ActorOption = None,
    message: options.MessageOption = None,
    metadata: options.MetadataOption = None,
    as_json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Create a graph from raw files, with an inferred schema."""
    report = og.import_data(
        graph,
        files,
        mapping=mapping,
        schema=schema,
        on_error=cast("Literal['fail', 'quarantine']", on_error),
        on_duplicate=cast("Literal['last', 'first', 'fail']", on_duplicate),
        new_rows=new_rows,
        spark=options.spark_target(master, remote),
        dry_run=dry_run,
        actor=actor,
        message=message,
        metadata=options.metadata_of(metadata),
        options=replace(
            _choices(key, edge, type_, null),
            format=format_name,
            header=header,
            delimiter=delimiter,
            encoding=encoding,
            unknown_columns=cast("Literal['error', 'ignore', 'keep'] | None", unknown_columns),
            missing_endpoints=cast("Literal['reject', 'create']", missing_endpoints),
            sample=sample,
            schema_out=schema_out,
            map_out=map_out,
            max_rejected=max_bad,
            engine=cast("Literal['auto', 'local', 'spark']", engine),
            branch=branch,
            quarantine=quarantine,
            progress=output.progress(silent=quiet or as_json),
        ),
    )
    _show_import(report, as_json=as_json, explain=explain)


def load(  # noqa: PLR0913 - one parameter per option
    graph: options.GraphArgument,
    files: Files,
    *,
    mode: ModeOption = "append",
    branch: Branch = None,
    base: Base = None,
    merge_into: MergeInto = None,
    audit: Audit = None,
    engine: Engine = "auto",
    on_error: OnFault = "fail",
    max_bad: MaxBad = None,
    type_name: As = None,
    mapped: Mapped = None,
    dialect: Dialect = None,
    end_type: EndType = None,
    order_by: OrderBy = None,
    dry_run: DryRun = False,
    quarantine: Quarantine = None,
    master: options.MasterOption = None,
    remote: options.RemoteOption = None,
    actor: options.ActorOption = None,
    message: options.MessageOption = None,
    metadata: options.MetadataOption = None,
    yes: YesFlag = False,
    as_json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Load files as one commit. Every record is accounted for."""
    if mode == OVERWRITE and not dry_run:
        require_confirmation(graph, "replace all rows of the types that are loaded", yes=yes)
    opened = og.open(graph, read_only=dry_run)
    report = opened.load(
        files,
        mode=cast("Mode", mode),  # `load` refuses other words
        type=type_name,
        on_error=cast("Literal['fail', 'quarantine']", on_error),
        spark=options.spark_target(master, remote),
        dry_run=dry_run,
        actor=actor,
        message=message,
        metadata=options.metadata_of(metadata),
        options=LoadOptions(
            columns=options.values_of(mapped, option="--map", form="PROP=COLUMN"),
            dialect=cast("Literal['0.7'] | None", dialect),
            end_type=options.values_of(end_type, option="--end-type", form="from=TYPE or to=TYPE"),
            order_by=order_by,
            max_rejected=max_bad,
            engine=cast("Literal['auto', 'local', 'spark']", engine),
            branch=branch,
            source=base,
            into=merge_into,
            audit=audit,
            quarantine=quarantine,
            progress=output.progress(silent=quiet or as_json),
        ),
    )
    _show_load(report, as_json=as_json)


def export(  # noqa: PLR0913 - one parameter per option
    graph: options.GraphArgument,
    *,
    branch: Branch = None,
    at: At = None,
    type_name: Type = None,
    format_name: Format = "jsonl",
    target: Target = STDOUT,
    as_json: options.JsonFlag = False,
) -> None:
    """Export rows to files that `omnigraph load` can read."""
    if target == STDOUT and as_json:
        raise typer.BadParameter(
            "not available: the rows are written to stdout", param_hint="--json"
        )
    opened = og.open(graph, read_only=True).checkout(branch or names.MAIN)
    readable = opened if at is None else opened.at(at)
    if target == STDOUT:
        with output.rows_to_stdout() as stream:
            report = readable.export(
                stream, type=type_name, format=cast("Literal['jsonl', 'parquet']", format_name)
            )
    else:
        report = readable.export(
            target, type=type_name, format=cast("Literal['jsonl', 'parquet']", format_name)
        )
    _show_export(report, as_json=as_json)


def _choices(
    key: list[str] | None, edge: list[str] | None, type_: list[str] | None, null: str | None
) -> ImportOptions:
    """What an inference is told."""
    return ImportOptions(
        keys=options.values_of(key, option="--key", form="TYPE=COLUMN"),
        edges=options.values_of(edge, option="--edge", form="TYPE.COLUMN=TYPE"),
        types=options.values_of(type_, option="--type", form="TYPE.COLUMN=KIND or SOURCE=SOURCE"),
        null_words=null.split(",") if null else (),
    )


def _show_import(report: ImportReport, *, as_json: bool, explain: bool) -> None:
    if as_json:
        output.json_object(asdict(report))
        return
    for explained in report.explanation if explain else ():
        output.show(explained)
    if explain and not report.explanation:
        output.note(
            "Nothing was chosen: types are those of the mapping, or the input declares them."
        )
    if report.dry_run and report.load is None and not report.edits:
        output.text(report.schema)
        output.line("")
        output.text(report.mapping)
    output.show(report)


def _show_load(report: LoadReport, *, as_json: bool) -> None:
    if as_json:
        output.json_object(asdict(report))
        return
    output.show(report)
    if report.stages and output.has_beside("stats"):
        output.note_table(report.stage_table())


def _show_export(report: ExportReport, *, as_json: bool) -> None:
    if as_json:
        output.json_object(asdict(report))
        return
    if report.path == STDOUT:
        output.note(str(report))
    else:
        output.line(str(report))


BackupArgument = Annotated[
    str, typer.Argument(metavar="BACKUP", help="Location of the backup: path or s3:// URL.")
]
NewGraphArgument = Annotated[
    str, typer.Argument(metavar="NEW", help="Empty location for the new graph.")
]


def backup(
    graph: options.GraphArgument, target: BackupArgument, *, as_json: options.JsonFlag = False
) -> None:
    """Back up a graph while it is in use. Later backups copy only what is new."""
    _show(og.backup(graph, target), as_json=as_json)


def restore(
    source: BackupArgument, new: NewGraphArgument, *, as_json: options.JsonFlag = False
) -> None:
    """Restore a backup to an empty location."""
    _show(og.restore(source, new), as_json=as_json)


def clone(
    graph: options.GraphArgument,
    new: NewGraphArgument,
    *,
    branch: Annotated[
        str | None, typer.Option("--branch", help="Copy only main and this branch.")
    ] = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Copy a graph, even while it is in use, to an empty location."""
    _show(og.clone(graph, new, branch=branch), as_json=as_json)


def verify(target: BackupArgument, *, as_json: options.JsonFlag = False) -> None:
    """Verify the files and branches of a backup. Writes nothing."""
    report = og.verify(target)
    if as_json:
        output.json_object({**asdict(report), "ok": report.ok})
    else:
        output.show(report)
        if not report.is_published:
            output.note(
                "The last backup was interrupted while it became visible: `omnigraph backup` or "
                "`omnigraph restore` finishes it."
            )
    if not report.ok:
        raise output.unsuccessful(
            DamagedGraphError, counted(len(report.findings), "integrity violation")
        )


def _show(report: CopyReport, *, as_json: bool) -> None:
    if as_json:
        output.json_object(asdict(report))
        return
    output.show(report)
