"""Carry errors of Spark tasks to the driver, and translate failures of Spark jobs.

Invariant: an `OmnigraphError` of a task is raised on the driver as the same class with the same
attributes; any other failure of a job names the line that caused it. A failed job has published
nothing.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from omnigraph_lake import errors

_MARK: Final = "omnigraph-error:"
_CARRIED: Final = re.compile(rf"{_MARK}([A-Za-z0-9+/=]+):")
_RAISED: Final = re.compile(r"^(?:[\w.]+(?:Error|Exception)): .*$", re.MULTILINE)
_SHOWN_MAX: Final = 300


class TaskFailed(Exception):  # noqa: N818 - it carries an error
    """An error of this package in a task, spelled so that it survives the way through the JVM."""

    def __init__(self, error: errors.OmnigraphError) -> None:
        text = base64.b64encode(encode_error(error)).decode("ascii")
        super().__init__(f"{error}\n{_MARK}{text}:")


def encode_error(error: errors.OmnigraphError) -> bytes:
    """The class and the attributes of an error; attributes that cannot be sent are dropped."""
    name = type(error).__name__
    try:
        return pickle.dumps((name, error.__dict__))
    except (pickle.PicklingError, TypeError, AttributeError):
        return pickle.dumps((name, {"what": error.what, "next_step": error.next_step}))


def decode_error(content: bytes) -> errors.OmnigraphError:
    """The error that `encode_error` described."""
    # From a task of ours, which Spark brought there in the same way.
    name, attributes = pickle.loads(content)  # noqa: S301
    error_class = getattr(errors, name)
    assert issubclass(error_class, errors.OmnigraphError)
    error: errors.OmnigraphError = error_class.__new__(error_class)
    Exception.__init__(error, attributes["what"])
    error.__dict__.update(attributes)
    return error


@contextmanager
def task_errors() -> Iterator[None]:
    """Raise errors of this package in a task so that `job_errors` understands them."""
    try:
        yield
    except errors.OmnigraphError as error:
        raise TaskFailed(error) from error


@contextmanager
def job_errors() -> Iterator[None]:
    """Translate failures of Spark jobs to errors of this package."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _translate(str(error)) from error


def _translate(text: str) -> errors.OmnigraphError:
    carried = _CARRIED.findall(text)
    if carried:
        return decode_error(base64.b64decode(carried[-1]))
    raised = _RAISED.findall(text) or [
        text.strip().splitlines()[0] if text.strip() else "no reason"
    ]
    return errors.SparkJobFailedError(
        f"a Spark job failed: {raised[-1][:_SHOWN_MAX]}",
        next_step="Look at the executors' logs; if they were lost or out of memory, run it again.",
    )
