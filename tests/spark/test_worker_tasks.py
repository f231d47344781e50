"""Workers of Spark between the tasks of a job."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.worker_tasks import tidy

pytestmark = pytest.mark.spark


def test_modules_that_are_loaded_are_not_collected_after_every_task(spark: SparkSession) -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import lance  # noqa: F401 - what a task loads

        for batch in batches:
            began = time.process_time()
            gc.collect()
            spent = int((time.process_time() - began) * 1e6)
            frozen = pa.array([gc.get_freeze_count()] * len(batch), pa.int64())
            yield pa.record_batch({"frozen": frozen, "spent": pa.array([spent] * len(batch))})

    with without_noise():
        job = spark.range(0, 8, 1, 8).mapInArrow(tidy(task), "frozen long, spent long")
    job.collect()
    measured = job.collect()

    assert all(row.frozen > 50_000 for row in measured)
    assert min(row.spent for row in measured) < 20_000, "microseconds"
