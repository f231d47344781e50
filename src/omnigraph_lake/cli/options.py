"""Defines the arguments and options that several commands share.

This includes texts that are read from files or standard input, and the options that choose the
Spark session of a command.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from omnigraph_lake.errors import InvalidInputError

if TYPE_CHECKING:
    from omnigraph_lake.runner.session import SparkTarget


GraphArgument = Annotated[
    str, typer.Argument(metavar="GRAPH", help="Local path, file://, s3://, az:// or abfss:// URL.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]
BranchOption = Annotated[str, typer.Option("--branch", help="Branch to use.")]
ActorOption = Annotated[str | None, typer.Option("--actor", help="Author of the commit.")]
DivergedFlag = Annotated[
    bool,
    typer.Option(
        "--allow-diverged", help="Change main although the schemas of branches would conflict."
    ),
]
MessageOption = Annotated[
    str | None, typer.Option("-m", "--message", help="Message of the commit.")
]
MetadataOption = Annotated[
    list[str] | None,
    typer.Option("--metadata", metavar="KEY=VALUE", help="Text to store with the commit."),
]
SchemaFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Schema file (.pg), or - for stdin.")
]


STDIN: Final = "-"
QUERIES_VARIABLE: Final = "OMNIGRAPH_QUERIES"


def metadata_of(pairs: list[str] | None) -> dict[str, str] | None:
    """The metadata that options give; None without any."""
    return values_of(pairs, option="--metadata", form="KEY=VALUE")


def values_of(pairs: list[str] | None, *, option: str, form: str) -> dict[str, str] | None:
    """The values that a repeated option gives by name; None without any."""
    if not pairs:
        return None
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{pair!r}: write {form}", param_hint=option)
        if key in values:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint=option)
        values[key] = text
    return values


def text_of(path: Path) -> str:
    """The content of a file; `-` is standard input."""
    try:
        if str(path) == STDIN:
            return sys.stdin.read()
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}", next_step="Give the path of a UTF-8 text file."
        ) from error


SparkFlag = Annotated[
    bool,
    typer.Option("--spark", help="Run on Spark, locally unless --master or --remote is given."),
]
MasterOption = Annotated[str | None, typer.Option("--master", help="Spark master URL.")]
RemoteOption = Annotated[str | None, typer.Option("--remote", help="Spark Connect URL.")]


def spark_target(
    master: str | None, remote: str | None, *, wanted: bool = False
) -> SparkTarget | None:
    """The Spark that the options name; None if they name none."""
    if not wanted and master is None and remote is None:
        return None
    from omnigraph_lake.runner.session import SparkTarget  # needs pyspark

    return SparkTarget(master=master, remote=remote)
