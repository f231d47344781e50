"""What a task leaves behind in the Python worker of Spark that ran it, for the tasks after it.

A worker lives through tasks of many stages and jobs. Spark collects garbage after every task, which
takes 50 ms with Arrow and Lance loaded, longer than many tasks. What Arrow's pool and the arenas of
the C library keep for reuse after one stage is of little use to the next, and adds up.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa

from omnigraph_lake.runner.memory import release_unused_memory

ArrowTask: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def tidy(task: ArrowTask) -> ArrowTask:
    """A task that gives unused memory back, and exempts modules from garbage collection."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(batches)
        finally:
            release_unused_memory()
            _exempt_modules()

    return run


_modules_exempt = 0


def _exempt_modules() -> None:
    """Exempt all objects that are there from collection, if modules were loaded."""
    global _modules_exempt  # noqa: PLW0603 - of this process
    if len(sys.modules) > _modules_exempt:
        gc.collect()
        gc.freeze()
        _modules_exempt = len(sys.modules)
