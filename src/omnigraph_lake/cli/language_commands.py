"""Defines the commands for texts of schemas and queries: lint, fmt and lsp."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Annotated, Final

import typer

import omnigraph_lake as og
from omnigraph_lake.cli import output
from omnigraph_lake.cli.options import STDIN, JsonFlag, text_of
from omnigraph_lake.cli.output import error_object
from omnigraph_lake.errors import InvalidInputError

LanguageFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Schema (.pg) or query file (.gq), or - for stdin."),
]


def lint(
    file: LanguageFile,
    *,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Schema (.pg) to check a query file against.")
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option("--graph", help="Graph whose schema to check a query file against."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a schema or query file and show every problem.

    A query file is checked against --schema or the schema of --graph.
    """
    if schema is None and graph is None and file.suffix != ".gq":
        # Commands that do not need it start without it.
        from omnigraph_lake.cli import schema_output

        fine = schema_output.lint(str(file), text_of(file), as_json=as_json)
    else:
        # The query compiler: schema files need none.
        from omnigraph_lake.cli import schema_output

        schema_file = None if schema is None else (str(schema), text_of(schema))
        accepted = schema_output.schema_for(graph, schema_file)
        fine = schema_output.lint_file(str(file), text_of(file), accepted, as_json=as_json)
    if not fine:
        raise output.unsuccessful(InvalidInputError, f"{file} has errors")


_BEGINS_WITH_QUERY: Final = re.compile(
    r"(?:\s|//[^\n]*+|/\*[\s\S]*?\*/)*+(?:(?:query|match|insert|upsert|replace|update|delete)\b|\()"
)
"""No schema does: so the language of standard input is known."""


def fmt(
    file: LanguageFile,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if the file would change.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Format a schema or query file in place. Comments are kept."""
    text = text_of(file)
    if file.suffix == ".gq" or (str(file) == STDIN and _BEGINS_WITH_QUERY.match(text)):
        # Commands that do not need it start without it.
        from omnigraph_lake.query.formatting import format_queries

        formatted = format_queries(text, filename=str(file))
    else:
        # As above.
        from omnigraph_lake.schema.format import format_schema

        formatted = format_schema(text, filename=str(file))
    is_file, is_changed = str(file) != STDIN, formatted != text
    if as_json:
        output.json_object({"file": str(file), "changed": is_changed, "text": formatted})
    elif not is_file:
        output.text(formatted)
    if is_file and is_changed and not check:
        file.write_text(formatted, encoding="utf-8")
        output.note(f"formatted {file}")
    if check and is_changed:
        output.note(f"{file} would be formatted")
        output.failed(error_object("NotFormatted", f"{file} would be formatted", exit_code=1))
        raise typer.Exit(1)


def lsp(
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Schema (.pg) of the query files.")
    ] = None,
    graph: Annotated[
        str | None, typer.Option("--graph", help="Graph whose schema the query files use.")
    ] = None,
) -> None:
    """Serve schema and query files to an editor.

    The editor starts this command and speaks the Language Server Protocol with it. Without
    --schema and --graph, a query file uses the nearest schema file.
    """
    if schema is not None and graph is not None:
        raise typer.BadParameter("give --schema or --graph, not both", param_hint="--schema")
    try:
        # Needs an optional package, and no other command needs it.
        from omnigraph_lake.editor.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise InvalidInputError(
            "the language server needs pygls, which is not installed",
            next_step="Run `pip install 'omnigraph-lake[lsp]'`.",
        ) from None
    # An editor that ends the server does not wait for what it was reading.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    serve(
        version=og.__version__,
        schema=schema,
        graph=graph,
        read_graph=lambda root: og.open(root, read_only=True).schema.catalog,
    )
