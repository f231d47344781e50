"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GraphArgument = Annotated[
    str, typer.Argument(metavar="GRAPH", help="Local path, file:// or s3:// URL.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
BranchOption = Annotated[str, typer.Option("--branch", help="Branch to use.")]
ActorOption = Annotated[str | None, typer.Option("--actor", help="Author of the commit.")]
SchemaFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Schema file (.pg), or - for stdin.")
]
