"""The session of the Spark suite, on whichever version of PySpark is imported."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
