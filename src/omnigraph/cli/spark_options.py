"""Options that choose the Spark session of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from omnigraph.runner.session import SparkTarget

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
    from omnigraph.runner.session import SparkTarget  # needs pyspark

    return SparkTarget(master=master, remote=remote)
