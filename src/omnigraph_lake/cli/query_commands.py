"""Defines the commands that ask a graph: `query`, `mutate` and `queries`, and `view`, which draws.

Parameters are given as `--param name=value` or as JSON.

Invariants:
- Rows are streamed to stdout; an interrupted query is cancelled.
- One call of `view` draws one thing; options that name several are refused before anything is read.
- The declaration of a parameter decides how its value is read, never the value: `--param age=30` is
  a number for `$age: I32` and a text for `$age: String`. Without a declaration, 30 is a number.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, assert_never, cast

import typer

import omnigraph_lake as og
from omnigraph_lake.cli import options, output
from omnigraph_lake.display.pages import page_of
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.names import MAIN
from omnigraph_lake.query.types import DecimalList, ParameterType
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.json_text import JsonText
from omnigraph_lake.schema.values import SpeltFloat

_JSON: Final = ct.ScalarType(scalar=ct.Scalar.JSON)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from omnigraph_lake.engine.output_formats import OutputFormat, Rows
    from omnigraph_lake.engine.query_result import QueryResult
    from omnigraph_lake.engine.query_text import StoredQuery
    from omnigraph_lake.graph import Graph, GraphView
    from omnigraph_lake.mutate.mutate import MutationResult
    from omnigraph_lake.query.typed import TypedQuery
    from omnigraph_lake.view.drawing import View


_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")

QueryFile = Annotated[
    str | None, typer.Argument(metavar="FILE", help="Query file (.gq), query text, or - for stdin.")
]
QueryTextOption = Annotated[
    str | None, typer.Option("-e", "--text", metavar="TEXT", help="Query text.")
]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="QUERY", help="Query to run, if there are several.")
]
StoredOption = Annotated[
    str | None,
    typer.Option(
        "--queries",
        metavar="DIR",
        envvar=options.QUERIES_VARIABLE,
        help="Directory of query files, for --name.",
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="Value of the parameter $NAME."),
]
ParamsOption = Annotated[
    str | None, typer.Option("--params", metavar="JSON|FILE", help="Parameter values by name.")
]
AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="REF", help="Tag, commit, version or time to read."),
]
EngineOption = Annotated[
    str,
    typer.Option("--engine", help="auto, local or spark. auto: local without --master/--remote."),
]
FormatOption = Annotated[
    str, typer.Option("--format", help="table, card, json, jsonl, csv or arrow (an IPC stream).")
]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Memory limit, such as 2GB.")
]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="Time limit.")
]
SafeIntegersFlag = Annotated[
    bool,
    typer.Option("--safe-integers", help="In JSON, integers beyond 2^53 and decimals are strings."),
]
ExplainFlag = Annotated[bool, typer.Option("--explain", help="Show the plan without running it.")]
AnalyzeFlag = Annotated[
    bool,
    typer.Option("--analyze", help="Run locally; show rows and time per step."),
]
PropertyArgument = Annotated[
    str | None,
    typer.Argument(metavar="PROPERTY", help="Property; not needed if the type has one Blob."),
]
RangeOption = Annotated[
    str | None,
    typer.Option("--range", metavar="FROM..TO", help="Bytes to read; TO is not included."),
]
BlobFileOption = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to write to.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Page (.html) or picture (.svg); by default GRAPH.html.",
    ),
]
AroundOption = Annotated[
    str | None,
    typer.Option("--around", metavar="TYPE/ID", help="Show this node and its neighbourhood."),
]
QueryOption = Annotated[
    str | None,
    typer.Option("--query", metavar="FILE|TEXT", help="Show the result of a query."),
]
DiffOption = Annotated[
    tuple[str, str] | None,
    typer.Option("--diff", metavar="A B", help="Show what changed from A to B."),
]
StoredDirectory = Annotated[
    str,
    typer.Argument(
        metavar="DIR", envvar=options.QUERIES_VARIABLE, help="Directory of query files (.gq)."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChosenQuery:
    """The query that the options name, and its parameters."""

    text: str
    typed: TypedQuery
    name: str | None
    given: Mapping[str, object]


def query(  # noqa: PLR0913 - one parameter per option
    graph: options.GraphArgument,
    file: QueryFile = None,
    *,
    text: QueryTextOption = None,
    name: NameOption = None,
    stored: StoredOption = None,
    param: ParamOption = None,
    params: ParamsOption = None,
    branch: options.BranchOption = "main",
    at: AtOption = None,
    engine: EngineOption = "auto",
    master: options.MasterOption = None,
    remote: options.RemoteOption = None,
    memory: MemoryOption = None,
    timeout: TimeoutOption = None,
    format_name: FormatOption = "table",
    safe_integers: SafeIntegersFlag = False,
    explain: ExplainFlag = False,
    analyze: AnalyzeFlag = False,
    as_json: options.JsonFlag = False,
) -> None:
    """Run a query and stream its rows."""
    # Commands that do not need it start without it.
    from omnigraph_lake.engine.output_formats import OutputFormat, about_query, write_rows

    chosen_format = _format("json" if as_json else format_name)
    opened = og.open(graph, read_only=True).checkout(branch)
    pinned = opened.at(opened.branch if at is None else at)
    chosen_query = _choose_query(pinned, (file, text, stored, name), (param, params))
    if explain or analyze:
        _show_plan(
            pinned, chosen_query, analyze=analyze, as_json=chosen_format is OutputFormat.JSON
        )
        return
    with output.rows_to_stdout() as stream:
        result = pinned.query(
            chosen_query.text,
            chosen_query.given,
            name=chosen_query.name,
            engine=cast("Literal['auto', 'local', 'spark']", engine),  # `query` refuses others
            spark=_session(engine, master, remote),
            memory=memory,
            timeout=timeout,
        )
        about = about_query(chosen_query.typed, commit_id=pinned.commit_id, branch=branch)
        rows = _rows(result, chosen_query.typed, pinned)
        count = write_rows(
            rows,
            stream,
            chosen_format,
            about=about,
            width=output.terminal_width(),
            on_error=output.streamed_error,
            safe_integers=safe_integers,
        )
    if chosen_format in (OutputFormat.TABLE, OutputFormat.CARD):
        output.note(f"{count:,} row{'s'[: count != 1]}")


def _show_plan(
    pinned: GraphView, chosen_query: _ChosenQuery, *, analyze: bool, as_json: bool
) -> None:
    # Without a declaration, values say what the text means.
    values = chosen_query.given if analyze or chosen_query.typed.is_adhoc else None
    plan = pinned.explain(chosen_query.text, values, name=chosen_query.name, analyze=analyze)
    if as_json:
        output.json_object({"query": chosen_query.typed.name, "plan": plan.splitlines()})
    else:
        output.text(plan)


def mutate(  # noqa: PLR0913 - one parameter per option
    graph: options.GraphArgument,
    file: QueryFile = None,
    *,
    text: QueryTextOption = None,
    name: NameOption = None,
    stored: StoredOption = None,
    param: ParamOption = None,
    params: ParamsOption = None,
    branch: options.BranchOption = "main",
    expect_head: Annotated[
        str | None,
        typer.Option(
            "--expect-head", metavar="COMMIT", help="Fail unless COMMIT is the head of the branch."
        ),
    ] = None,
    spark: options.SparkFlag = False,
    master: options.MasterOption = None,
    remote: options.RemoteOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; write nothing.")
    ] = False,
    actor: options.ActorOption = None,
    message: options.MessageOption = None,
    metadata: options.MetadataOption = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Run a mutation. All its statements are one commit."""
    opened = og.open(graph, read_only=dry_run).checkout(branch)
    chosen_query = _choose_query(opened, (file, text, stored, name), (param, params))
    result = opened.mutate(
        chosen_query.text,
        chosen_query.given,
        name=chosen_query.name,
        expect_head=expect_head,
        spark=options.spark_target(master, remote, wanted=spark),
        dry_run=dry_run,
        actor=actor,
        message=message,
        metadata=options.metadata_of(metadata),
    )
    _show_mutation(chosen_query.typed.name, result, as_json=as_json)


def queries(
    graph: options.GraphArgument, directory: StoredDirectory, *, as_json: options.JsonFlag = False
) -> None:
    """List the queries of a directory, their parameters and columns."""
    stored_queries = og.open(graph, read_only=True).queries(directory)
    if as_json:
        output.json_object(
            {"queries": [_describe(stored_query) for stored_query in stored_queries.values()]}
        )
        return
    for stored_query in stored_queries.values():
        kind = "mutation" if stored_query.is_mutation else "query"
        output.line(f"{kind} {stored_query.name}({', '.join(stored_query.parameters)})")
        if stored_query.description:
            output.line(f"    {stored_query.description}")
        if stored_query.columns:
            output.line(f"    returns {', '.join(stored_query.columns)}")
        output.line(f"    in {stored_query.file}")
    output.note(f"{len(stored_queries)} quer{'y' if len(stored_queries) == 1 else 'ies'}")


def view(  # noqa: PLR0913 - one parameter per option
    graph: options.GraphArgument,
    *,
    target: OutputOption = None,
    around: AroundOption = None,
    hops: Annotated[int, typer.Option("--hops", min=0, help="How far from that node to go.")] = 1,
    query: QueryOption = None,
    name: NameOption = None,
    param: ParamOption = None,
    diff: DiffOption = None,
    commits: Annotated[
        bool, typer.Option("--commits", help="Show the history of all branches.")
    ] = False,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Show only this node type.")
    ] = None,
    graph_of_types: Annotated[
        bool, typer.Option("--types", help="Show the types, with how many there are of each.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum nodes to show.")] = 500,
    branch: options.BranchOption = "main",
    at: AtOption = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Draw a graph as one self-contained page or picture."""
    subjects = {
        "--around": around,
        "--query": query,
        "--diff": diff,
        "--commits": commits or None,
        "--types": graph_of_types or None,
    }
    given = [option for option, value in subjects.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter("show one thing at a time", param_hint=" and ".join(given))
    _refuse_unused(given, at=at, types=types)
    opened = og.open(graph, read_only=True).checkout(branch)
    if diff is not None:
        drawn = opened.diff(*diff, types=types).view(limit=limit)
    elif commits:
        drawn = opened.view_commits(limit=limit)
    elif query is not None:
        drawn = _result(opened, at, (query, name, param), limit)
    else:
        pinned = opened.at(opened.branch if at is None else at)
        drawn = (
            pinned.view_types()
            if graph_of_types
            else pinned.view(around=around, hops=hops, types=types, limit=limit)
        )
    written = drawn.save(target or _default_target(graph))
    _show(drawn, written, as_json=as_json)


def _refuse_unused(given: list[str], *, at: str | None, types: list[str] | None) -> None:
    """Options that what is drawn does not have."""
    if at is not None and given in (["--diff"], ["--commits"]):
        raise typer.BadParameter(f"{given[0]} shows more than one state", param_hint="--at")
    if types and given not in ([], ["--diff"]):
        raise typer.BadParameter(f"{given[0]} decides what is shown", param_hint="--type")


def _result(
    opened: Graph,
    at: str | None,
    question: tuple[str, str | None, list[str] | None],
    limit: int,
) -> View:
    query, name, param = question
    pinned = opened.at(opened.branch if at is None else at)
    chosen = _choose_query(pinned, (query, None, None, name), (param, None))
    return pinned.query(chosen.text, chosen.given, name=chosen.name).view(limit=limit)


def _default_target(graph: str) -> Path:
    last = graph.rstrip("/").rpartition("/")[2]
    return Path(f"{last if last not in ('', '.', '..') else 'graph'}.html")


def _show(drawn: View, written: Path, *, as_json: bool) -> None:
    from omnigraph_lake.view.drawing import count_text  # most commands draw nothing

    scene = drawn.scene
    nodes, edges = scene.visible()
    if as_json:
        output.json_object(
            {
                "file": str(written),
                "kind": scene.kind.value,
                "nodes": len(nodes),
                "nodes_total": scene.nodes_total,
                "edges": len(edges),
                "edges_total": scene.edges_total,
                "is_sample": scene.is_sample,
                "notes": list(scene.notes),
            }
        )
        return
    output.line(f"wrote {written}: {page_of(drawn).summary}")
    if scene.other is not None and written.suffix != ".svg":
        output.note(f"The page also shows {count_text(scene.other)}.")
    for text in scene.notes:
        output.note(text)


def _choose_query(
    readable: Graph | GraphView,
    place: tuple[str | None, str | None, str | None, str | None],
    values: tuple[list[str] | None, str | None],
) -> _ChosenQuery:
    # Commands that do not need it start without it.
    from omnigraph_lake.engine.query_text import compiled, find_query, query_text
    from omnigraph_lake.validation.schema_contract import contract_for

    file, text, stored, name = place
    if file is not None and text is None and _is_text(file):
        file, text = None, file
    if file is not None and text is not None:
        raise typer.BadParameter("give a file or -e TEXT, not both", param_hint="FILE")
    if file is None and text is None:
        source = _stored(readable, stored, name).source
    else:
        contract = contract_for(readable.schema.text, readable.schema.catalog)
        path = None if file in (None, "-") else Path(file or "")
        source = query_text(path or (sys.stdin.read() if file == "-" else text), contract)
    source = source.with_values(values_as_written(*values))
    typed = find_query(source, name)
    return _ChosenQuery(
        text=source.text,
        typed=typed,
        name=typed.name if len(compiled(source)) > 1 else None,
        given=given_parameters(typed, *values),
    )


def _is_text(argument: str) -> bool:
    """Whether an argument is a query, or meant as one, and not the path of a file."""
    from omnigraph_lake.query.tokens import is_sql_or_cypher  # help needs no grammar

    is_meant = "{" in argument or (" " in argument and is_sql_or_cypher(argument))
    return is_meant and not argument.endswith(".gq")


def _stored(readable: Graph | GraphView, directory: str | None, name: str | None) -> StoredQuery:
    if directory is None or name is None:
        raise typer.BadParameter(
            f"give a file, -e TEXT, or --name with --queries DIR (or {options.QUERIES_VARIABLE})",
            param_hint="FILE",
        )
    return readable.queries(directory).find(name)


def _format(format_name: str) -> OutputFormat:
    # Commands that do not need it start without it.
    from omnigraph_lake.arguments import one_of
    from omnigraph_lake.engine.output_formats import OutputFormat

    return one_of(OutputFormat, format_name, argument="format")


def _session(engine: str, master: str | None, remote: str | None) -> SparkSession | None:
    # Commands that do not need it start without it.
    from omnigraph_lake.engine.query import QueryEngine, chosen_engine

    target = options.spark_target(master, remote, wanted=engine == QueryEngine.SPARK)
    if chosen_engine(engine, spark=target) is QueryEngine.LOCAL:
        return None
    # needs pyspark
    from omnigraph_lake.runner.session import SparkTarget, spark_session

    assert isinstance(target, SparkTarget)
    return spark_session(target=target)


def _rows(result: QueryResult | DataFrame, typed: TypedQuery, readable: Graph | GraphView) -> Rows:
    # Commands that do not need it start without it.
    from omnigraph_lake.engine.query_result import QueryResult

    if isinstance(result, QueryResult):
        return result
    # The query compiler and PySpark: only what Spark answered needs them here.
    from omnigraph_lake.engine.spark.rows import query_errors
    from omnigraph_lake.query.columns import arrow_schema
    from omnigraph_lake.runner.scan import FrameRows

    schema = arrow_schema(typed.columns, readable.schema.catalog)
    return FrameRows(result, schema, errors=query_errors)


def _show_mutation(name: str, result: MutationResult, *, as_json: bool) -> None:
    if as_json:
        output.json_object({"query": name, **asdict(result)})
        return
    page = page_of(result)
    output.show(replace(page, lines=[f"{name}: {line}" for line in page.lines or [page.summary]]))


def _describe(stored_query: StoredQuery) -> dict[str, object]:
    return {"file": stored_query.file, **asdict(stored_query.describe())}


def given_parameters(
    query: TypedQuery, pairs: list[str] | None, params: str | None
) -> dict[str, object]:
    """What the options give, as values for the declared types; not yet checked against them."""
    parameter_values = _from_json(params)
    declared = {parameter.name: parameter.type for parameter in query.parameters}
    if params is not None:
        parameter_values |= _json_texts(params, declared)
    for name, text in _pairs(pairs, parameter_values):
        parameter_values[name] = _value(declared[name], name, text) if name in declared else text
    return parameter_values


def _json_texts(params: str, declared: Mapping[str, ParameterType]) -> dict[str, object]:
    """The JSON texts of the parameters of type Json, whose numbers keep their digits."""
    names = [name for name, kind in declared.items() if kind == _JSON]
    if not names:
        return {}
    import msgspec  # few queries have such parameters

    texts = msgspec.json.decode(_params_text(params), type=dict[str, msgspec.Raw])
    return {
        name: _scalar(ct.Scalar.JSON, bytes(texts[name]).decode())
        for name in names
        if name in texts
    }


def values_as_written(pairs: list[str] | None, params: str | None) -> dict[str, object]:
    """What the options give, as values whose types parameters without a declaration take.

    A text is read as a query reads a literal: a number, a Boolean or a list; otherwise it is text.
    """
    parameter_values = _from_json(params)
    for name, text in _pairs(pairs, parameter_values):
        parameter_values[name] = _literal(text)
    return parameter_values


def _literal(text: str) -> Any:
    if _NUMBER.fullmatch(text) or text in ("true", "false") or text.startswith("["):
        with suppress(ValueError):
            return json.loads(text)
    return text


def _pairs(
    pairs: list[str] | None, parameter_values: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    for pair in pairs or ():
        name, equals, text = pair.removeprefix("$").partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r}: write NAME=VALUE", param_hint="--param")
        if name in parameter_values:
            raise typer.BadParameter(f"${name} is given twice", param_hint="--param")
        yield name, text


def _from_json(params: str | None) -> dict[str, object]:
    if params is None:
        return {}
    try:
        values = json.loads(_params_text(params), parse_float=SpeltFloat)
    except ValueError as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint="--params") from None
    if not isinstance(values, dict):
        raise typer.BadParameter("expected an object: names and values", param_hint="--params")
    return values


def _params_text(params: str) -> str:
    return params if params.lstrip().startswith("{") else _file(params)


def _file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}",
            next_step="Give --params a JSON object, or the path of a file with one.",
        ) from error


def _value(declared: ParameterType, name: str, text: str) -> object:
    match declared:
        case ct.ListType() | ct.VectorType() | DecimalList():
            return _list(name, text)
        case ct.ScalarType():
            return _scalar(declared.scalar, text)
        case ct.DecimalType() | ct.EnumType():
            return text
        case _:
            assert_never(declared)


def _list(name: str, text: str) -> Any:
    try:
        return json.loads(text, parse_float=SpeltFloat)
    except ValueError:
        raise typer.BadParameter(
            f"${name} is a list: write it as JSON, {name}='[1, 2]'", param_hint="--param"
        ) from None


def _scalar(scalar: ct.Scalar, text: str) -> object:
    """Dates and blobs are read from their text when the query is bound; Json is a JSON text."""
    if scalar is ct.Scalar.JSON:
        return None if text.strip() == "null" else JsonText(text)
    if scalar is ct.Scalar.BOOL:
        return {"true": True, "false": False}.get(text, text)
    if scalar in ct.INTEGERS:
        return int(text) if _INTEGER.fullmatch(text) else text
    if scalar in ct.FLOATS:
        try:
            return float(text)
        except ValueError:
            return text
    return text


blob_app = typer.Typer(no_args_is_help=True)


@blob_app.command("get")
def blob_get(  # noqa: PLR0913 - each is an option
    graph: options.GraphArgument,
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="Node or edge type.")],
    entity_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the node or edge.")],
    property_name: PropertyArgument = None,
    *,
    branch: options.BranchOption = MAIN,
    at: AtOption = None,
    byte_range: RangeOption = None,
    to_file: BlobFileOption = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Write a Blob to standard output or a file; --json shows its size only."""
    opened = og.open(graph, read_only=True).checkout(branch)
    pinned = opened.at(opened.branch if at is None else at)
    blob = pinned.blob(type_name, property=property_name, id=entity_id)
    if blob is None:
        raise NotFoundError(f"this Blob of {type_name} {entity_id} is null")
    start, end = _byte_range(byte_range, blob.size)
    if as_json:
        facts = {"type": blob.type, "id": blob.id, "property": blob.property, "size": blob.size}
        output.json_object({**facts, "commit_id": pinned.commit_id})
    elif to_file is not None and byte_range is None:
        output.note(f"{blob.size:,} bytes written to {blob.save(to_file)}")
    elif to_file is not None:
        to_file.write_bytes(blob.read_range(start, end - start))
        output.note(f"{end - start:,} bytes written to {to_file}")
    else:
        with output.rows_to_stdout() as stream:
            for offset in range(start, end, _BLOB_PIECE):
                stream.write(blob.read_range(offset, min(_BLOB_PIECE, end - offset)))


_BLOB_PIECE: Final = 1 << 20


def _byte_range(text: str | None, size: int) -> tuple[int, int]:
    """The first byte and the one after the last."""
    if text is None:
        return 0, size
    first, dots, last = text.partition("..")
    bounds = (first or "0", last or str(size))
    if not dots or not all(bound.isascii() and bound.isdigit() for bound in bounds):
        raise InvalidInputError(
            f"--range is {text[:80]!r}, expected FROM..TO",
            next_step="Such as `--range 0..1000`, or `--range 1000..`.",
        )
    start = min(int(bounds[0]), size)
    return start, max(start, min(int(bounds[1]), size))
