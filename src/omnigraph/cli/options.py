"""Arguments and options that several commands share, so that they look the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GraphArgument = Annotated[
    str, typer.Argument(metavar="GRAPH", help="A local path, file:// or s3:// address.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
BranchOption = Annotated[str, typer.Option("--branch", help="The branch to work on.")]
ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Who the commit is attributed to.")
]
SchemaFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A schema file (.pg), or - for standard input.")
]
