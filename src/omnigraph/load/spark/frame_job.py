"""DataFrames as input of a load: each partition is staged where it is computed.

Invariant: a partition is a split; frames follow each other in the order given, so the numbers of
splits follow the order of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark import TaskContext

from omnigraph.errors import InvalidInputError
from omnigraph.load.formats.frames import parse_batches
from omnigraph.load.report import frame_name, type_labels
from omnigraph.load.spark.key_job import SENT, batches_of
from omnigraph.load.spark.stage_task import SplitStager
from omnigraph.validation.input.named_types import declared_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.load.spark.load_plan import LoadPlan
    from omnigraph.validation.keyed_bucket import KeyPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameInput:
    """DataFrames by table key."""

    frames: Mapping[str, DataFrame]

    @classmethod
    def of(cls, frames: Mapping[str, object]) -> Self:
        for key, frame in frames.items():
            if not hasattr(frame, "mapInArrow"):
                raise InvalidInputError(
                    f"the input for {key} is {type(frame).__name__}, expected a Spark DataFrame"
                )
        return cls(frames=dict(frames))  # type: ignore[arg-type]

    def sent(self, plan: LoadPlan, keys: KeyPlan) -> DataFrame:
        """Stage every partition of every frame, and send their keys."""
        parts = [
            frame.mapInArrow(_stage(plan, keys, table_key), SENT)
            for table_key, frame in self.frames.items()
        ]
        return reduce(lambda one, other: one.unionAll(other), parts)


def _stage(
    plan: LoadPlan, keys: KeyPlan, table_key: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    source = frame_name(type_labels(plan.catalog)[table_key])
    declared = declared_types(plan.catalog)[table_key]

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        stager = SplitStager(plan, keys, context.partitionId(), source=source)
        parsed = parse_batches(batches, declared, plan.rules[table_key], new_ids=stager.fresh_ids)
        yield from batches_of(stager.run(parsed))

    return task
