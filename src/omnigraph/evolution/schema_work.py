"""Checking rows and computing values for a schema change: in this process, or on Spark.

Invariant: either engine finds the same offenders and writes the same values, so the number of rows
alone decides between them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from omnigraph.errors import SparkUnavailableError
from omnigraph.evolution.future_values import future_values
from omnigraph.evolution.run_checks import Offenders, failed_checks
from omnigraph.runner.session import given_spark
from omnigraph.storage.staging.column_changes import (
    ColumnFiles,
    carried_over,
    column_files,
    fragments_to_compute,
    staged_from,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from pyspark.sql import SparkSession

    from omnigraph.evolution.plan.data_checks import DataCheck
    from omnigraph.evolution.table_changes import TableChange
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import Snapshot, TableEntry
    from omnigraph.storage.staging.changes import StagedChange
    from omnigraph.storage.staging.column_layout import ColumnChange

LOCAL_ROWS_MAX: Final = 2_000_000
"""Up to so many rows of a table, its values are computed and checked in this process."""


class SchemaWork:
    """The row work of one schema change; a Spark session is started only when needed."""

    def __init__(
        self, objects: Objects, *, spark: object | None, operation_id: str, engines: ExitStack
    ) -> None:
        self._root = objects.root
        self._given = spark
        self._operation_id = operation_id
        self._engines = engines
        self._session: SparkSession | None = None
        self._computed: dict[str, tuple[ColumnFiles, ...]] = {}

    def failed_checks(
        self, snapshot: Snapshot, checks: Sequence[DataCheck]
    ) -> tuple[Offenders, ...]:
        """The rows that violate the change."""
        if not checks:
            return ()
        most = max(snapshot.tables[check.table].row_count for check in checks)
        spark = self._spark_for(most)
        if spark is None:
            return failed_checks(self._root, snapshot, checks)
        from omnigraph.evolution.spark_values import failed_checks_on_spark  # needs pyspark

        return failed_checks_on_spark(spark, self._root, snapshot, checks)

    def staged(self, entry: TableEntry, change: TableChange) -> StagedChange:
        """All columns of a table as they will be, as one staged change.

        When another writer has won meanwhile, only what that one changed is computed again.
        """
        columns = change.columns
        assert columns is not None
        earlier = self._computed.get(change.stored_key, ())
        carried = carried_over(self._root, entry, columns, earlier) if earlier else ()
        known = {each.fragment_id for each in carried}
        wanted = fragments_to_compute(self._root, entry, columns)
        missing = [each for each in wanted if each not in known]
        made = self._files(entry, change, columns, missing) if missing else ()
        self._computed[change.stored_key] = files = (*carried, *made)
        return staged_from(self._root, entry, columns, files)

    def _files(
        self, entry: TableEntry, change: TableChange, columns: ColumnChange, fragments: list[int]
    ) -> tuple[ColumnFiles, ...]:
        spark = self._spark_for(entry.row_count)
        if spark is None:
            compute = partial(future_values, columns=change.computed)
            return tuple(
                column_files(self._root, entry, each, columns, compute) for each in fragments
            )
        from omnigraph.evolution.spark_values import column_files_on_spark  # needs pyspark

        return column_files_on_spark(
            spark,
            self._root,
            entry,
            columns,
            change.computed,
            fragments,
            operation_id=self._operation_id,
        )

    def _spark_for(self, rows: int) -> SparkSession | None:
        if self._given is None and rows <= LOCAL_ROWS_MAX:
            return None
        if self._session is None:
            try:
                self._session = self._engines.enter_context(given_spark(self._given))
            except SparkUnavailableError:
                if self._given is not None:
                    raise
                return None
        return self._session
