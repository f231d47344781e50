"""Choose what runs the pieces of a verb: the Spark that a caller gave, else threads.

Invariant: Spark is used only if a session or a target was given. Neither the size of the work nor a
session that the process happens to have decides, and no JVM is started unasked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph_lake.runner.session import given_spark
from omnigraph_lake.runner.threads import ThreadRunner

if TYPE_CHECKING:
    from omnigraph_lake.runner.protocol import Observer, Runner
    from omnigraph_lake.storage.objects.location import Root


@contextmanager
def chosen_runner(
    root: Root, spark: object | None, observer: Observer | None = None
) -> Iterator[Runner]:
    """Tasks of a session or a `SparkTarget`; threads of this process if there is none.

    Raises:
        InvalidInputError: it is neither.
        SparkUnavailableError: Spark or Java is missing, or the target does not answer.
    """
    if spark is None:
        yield ThreadRunner(observer)
        return
    with given_spark(spark) as session:
        from omnigraph_lake.runner.spark import SparkRunner  # needs pyspark

        yield SparkRunner(session, root, observer)
