"""Provide the interfaces for Spark users: the data source, the change source and analytics.

This package exports `OmnigraphDataSource` for `spark.dataSource.register`, `foreach_batch` for
streams on any version of Spark, and the types `SparkGraph` and `SparkTarget`.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from omnigraph_lake.api.spark_graph import SparkGraph
    from omnigraph_lake.runner.session import SparkTarget
    from omnigraph_lake.spark.batches import foreach_batch
    from omnigraph_lake.spark.datasource import OmnigraphDataSource

__all__ = ["OmnigraphDataSource", "SparkGraph", "SparkTarget", "foreach_batch"]

_HOMES = {
    "OmnigraphDataSource": "omnigraph_lake.spark.datasource",
    "SparkGraph": "omnigraph_lake.api.spark_graph",
    "SparkTarget": "omnigraph_lake.runner.session",
    "foreach_batch": "omnigraph_lake.spark.batches",
}
"""Imported when they are first used: most of them need pyspark."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'omnigraph_lake.spark' has no attribute {name!r}")
    if name == "OmnigraphDataSource":
        from omnigraph_lake.runner.session import require_installed

        require_installed()
        from omnigraph_lake.runner.spark_versions import require_data_sources

        require_data_sources()
    return getattr(_importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
