"""Calls of Spark that only newer versions have, for tests that run on every supported one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

HAS_DATA_SOURCES = find_spec("pyspark.sql.datasource") is not None
HAS_READ_LIMITS = HAS_DATA_SOURCES and find_spec("pyspark.sql.streaming.datasource") is not None

needs_read_limits = pytest.mark.skipif(
    not HAS_READ_LIMITS, reason="before Spark 4.2 no stream bounds its batches"
)


def arrow_table(frame: DataFrame) -> pa.Table:
    """All rows of a frame as Arrow; Spark 3.5 has no public call for it."""
    if hasattr(DataFrame, "toArrow"):
        return frame.toArrow()
    classic: Any = frame
    return pa.Table.from_batches(classic._collect_as_arrow())
