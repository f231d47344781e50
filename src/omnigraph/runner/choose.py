"""Choose what runs a verb: what the caller asked for, else threads of this process.

Invariant: Spark is used only if a session or a target was given. Neither the size of the work nor a
session that the process happens to have decides, and no JVM is started unasked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.runner.session import given_spark
from omnigraph.runner.threads import ThreadRunner

if TYPE_CHECKING:
    from omnigraph.runner.protocol import Runner
    from omnigraph.storage.objects.location import Root


@contextmanager
def runner_for(spark: object | None, root: Root) -> Iterator[Runner]:
    """The runner of a caller who gave a Spark session, a `SparkTarget`, or neither.

    Raises:
        InvalidInputError: something else was given.
        SparkUnavailableError: Spark is not installed, or the target does not respond.
    """
    if spark is None:
        yield ThreadRunner()
        return
    with given_spark(spark) as session:
        from omnigraph.runner.spark import SparkRunner  # needs pyspark

        yield SparkRunner(session, root)
