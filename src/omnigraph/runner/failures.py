"""Errors of executors, translated to the errors of this process.

Invariant: an `OmnigraphError` of a task is raised as the same class with the same message; any
other failure of a job names the line that caused it. A failed job has published nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from omnigraph.errors import (
    DamagedGraphError,
    InvalidInputError,
    NotFoundError,
    NothingWrittenError,
    QueryFailedError,
    SparkJobFailedError,
    StorageUnavailableError,
)

_CARRIED: Final[dict[str, type[NothingWrittenError]]] = {
    each.__name__: each
    for each in (
        DamagedGraphError,
        InvalidInputError,
        NotFoundError,
        QueryFailedError,
        StorageUnavailableError,
    )
}
_OURS: Final = re.compile(
    r"^omnigraph\.errors\.(?P<name>\w+): (?P<what>.*?)(?:; nothing was written)?\.?$"
    r"(?:\n(?P<next>[A-Z].*)$)?",
    re.MULTILINE,
)
_RAISED: Final = re.compile(r"^(?:[\w.]+(?:Error|Exception)): .*$", re.MULTILINE)
_SHOWN_MAX: Final = 300


@contextmanager
def job_errors() -> Iterator[None]:
    """Translate failures of Spark jobs to errors of this package."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _translated(str(error)) from error


def _translated(text: str) -> NothingWrittenError:
    ours = list(_OURS.finditer(text))
    if ours and ours[-1]["name"] in _CARRIED:
        last = ours[-1]
        return _CARRIED[last["name"]](last["what"], next_step=last["next"] or "")
    raised = _RAISED.findall(text) or [
        text.strip().splitlines()[0] if text.strip() else "no reason"
    ]
    return SparkJobFailedError(
        f"a Spark job failed: {raised[-1][:_SHOWN_MAX]}",
        next_step="Look at the executors' logs; if they were lost or out of memory, run it again.",
    )
