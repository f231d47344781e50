"""Errors of a query that a row raises while Spark runs.

Invariant: with any settings of a session, an integer that does not fit fails the job, and the
failure is recognised by its message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from omnigraph.errors import QueryFailedError
from omnigraph.runner.failures import job_errors

if TYPE_CHECKING:
    from pyspark.sql import Column

OUT_OF_RANGE: Final = "an integer or a sum does not fit into 64 bits"
_NEXT_STEP: Final = "Use smaller numbers, or floats."
# On separate lines, like an `OmnigraphError` of a task.
_RAISED: Final = f"\nomnigraph.errors.{QueryFailedError.__name__}: {OUT_OF_RANGE}.\n{_NEXT_STEP}\n"


def out_of_range() -> Column:
    """A value that fails the job when a row evaluates it."""
    return sql.raise_error(sql.lit(_RAISED))


def is_refusal(error: BaseException) -> bool:
    """Whether a failure of Spark was raised by the query itself."""
    return isinstance(error, PySparkException | Py4JError) and OUT_OF_RANGE in str(error)


@contextmanager
def query_errors() -> Iterator[None]:
    """Translate failures of jobs that run a query to errors of this package."""
    with job_errors():
        try:
            yield
        except (PySparkException, Py4JError) as error:
            if is_refusal(error):
                raise QueryFailedError(OUT_OF_RANGE, next_step=_NEXT_STEP) from error
            raise
