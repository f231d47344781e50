"""Maintenance of a graph: compaction, indexes, and the removal of unreferenced data.

Invariant: a thin facade, like the graph itself; every method calls one operation. Operations are
imported when they are called: a process that only reads pays for none of them.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from omnigraph.commit.orphans import Reconciled, preview_reconcile, reconcile_forks
from omnigraph.errors import InvalidInputError
from omnigraph.operations.arguments import acting, flag
from omnigraph.syntax import shown
from omnigraph.system_clock import SYSTEM_CLOCK
from omnigraph.versioned import Versioned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from omnigraph.maintenance.cleanup import CleanupReport
    from omnigraph.maintenance.maintain import MaintainReport
    from omnigraph.maintenance.optimize import TableOptimizeStats
    from omnigraph.maintenance.policy import Policy
    from omnigraph.maintenance.repair import RepairReport
    from omnigraph.maintenance.scrub import ScrubReport
    from omnigraph.maintenance.workers import Workers

_RATE_LEAST: Final = 1000
"""With fewer bytes per second a scrub would never end."""


class Maintained(Versioned):
    """A graph on one of its branches, with its maintenance operations."""

    def optimize(
        self, *, target_rows_per_fragment: int | None = None, spark: object | None = None
    ) -> tuple[TableOptimizeStats, ...]:
        """Compact the tables of main and update their indexes. Deletes nothing.

        Args:
            target_rows_per_fragment: Target number of rows per fragment; by default about one
                million.
            spark: A Spark session or target whose tasks do the heavy part; without one, threads of
                this process.

        Raises:
            RecoveryRequiredError: a write of a dead writer is unfinished; `recover` settles it.
            MaintenanceIncompleteError: some tables failed; `report` covers all.
        """
        # A process that only reads or writes does not pay for the import.
        from omnigraph.maintenance.optimize import OptimizeOptions, optimize_graph

        self._require_writable("optimize")
        options = OptimizeOptions(target_rows_per_fragment=target_rows_per_fragment)
        with self._working(spark) as (workers, _):
            return optimize_graph(self._objects, workers, SYSTEM_CLOCK, options=options)

    def reconcile(self, *, confirm: bool = False, also_foreign: bool = False) -> Reconciled:
        """Delete forks that no branch, tag or writer needs; without `confirm` only list them.

        Args:
            confirm: Whether to delete. Deleted data cannot be restored.
            also_foreign: Whether to also delete Lance branches of other tools.
        """
        flag(also_foreign, argument="also_foreign")
        if not flag(confirm, argument="confirm"):
            return preview_reconcile(self._objects, also_foreign=also_foreign)
        self._require_writable("reconcile")
        return reconcile_forks(self._objects, also_foreign=also_foreign)

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than: timedelta | None = None,
        confirm: bool = False,
        allow_unsafe_keep: bool = False,
    ) -> CleanupReport:
        """Delete old versions and unreferenced files; without `confirm` only list them.

        Args:
            keep_versions: Number of newest versions to keep per table.
            older_than: Delete only versions older than this. With both, a version is deleted
                only if it is neither among the newest nor younger.
            confirm: Whether to delete. Deleted data cannot be restored.
            allow_unsafe_keep: Whether `keep_versions` may be below 3.
        """
        # A process that only reads or writes does not pay for the import.
        from omnigraph.maintenance.cleanup import CleanupPolicy, cleanup_graph, preview_cleanup

        flag(allow_unsafe_keep, argument="allow_unsafe_keep")
        if flag(confirm, argument="confirm"):
            self._require_writable("cleanup")
        policy = CleanupPolicy(keep_versions=keep_versions, older_than=older_than).checked(
            allow_unsafe_keep=allow_unsafe_keep
        )
        clean = cleanup_graph if confirm else preview_cleanup
        return clean(self._objects, policy, SYSTEM_CLOCK)

    def repair(
        self, *, confirm: bool = False, force: bool = False, actor: str | None = None
    ) -> RepairReport:
        """List table versions written by other tools, or publish them.

        Args:
            confirm: Publish maintenance, such as a manual compaction; without it nothing changes.
            force: With `confirm`, also publish versions that may have changed rows. Columns that
                differ from the schema are refused even then.
            actor: Author of the commit.

        Raises:
            RecoveryRequiredError: a write of a dead writer is unfinished; `recover` settles it.
        """
        # A process that only reads or writes does not pay for the import.
        from omnigraph.maintenance.repair import RepairRequest, repair_graph

        flag(force, argument="force")
        if flag(confirm, argument="confirm"):
            self._require_writable("repair")
        request = RepairRequest(confirm=confirm, force=force, actor=acting(actor))
        return repair_graph(self._objects, self._manifest(), request, SYSTEM_CLOCK)

    def scrub(
        self,
        *,
        rate: float | None = None,
        record: bool = False,
        restart: bool = False,
        spark: object | None = None,
    ) -> ScrubReport:
        """Compare every stored file of every branch, tag and retained version with its checksum.

        An interrupted pass is resumed.

        Args:
            rate: Maximum bytes per second.
            record: First record checksums for versions that have none, or whose list is
                damaged. The stored files are trusted.
            restart: Start over instead of resuming an interrupted pass.
            spark: A Spark session or target whose tasks read the files.
        """
        from omnigraph.maintenance.scrub import ScrubOptions, scrub_graph  # few callers need it

        self._require_writable("scrub")
        speed: object = rate
        if speed is not None and not (
            isinstance(speed, int | float) and _RATE_LEAST <= speed < math.inf
        ):
            raise InvalidInputError(
                f"rate is {shown(speed, 40)}, expected {_RATE_LEAST:,} bytes per second or more"
            )
        options = ScrubOptions(rate=rate, restart=restart, record=record)
        with self._working(spark) as (workers, _):
            return scrub_graph(self._objects, workers, SYSTEM_CLOCK, options)

    def maintain(
        self, policy: Policy | None = None, *, spark: object | None = None
    ) -> MaintainReport:
        """Run check, reconcile, optimize and cleanup as a policy says."""
        # A process that only reads or writes does not pay for the import.
        from omnigraph.maintenance.maintain import maintain_graph
        from omnigraph.maintenance.policy import Policy

        self._require_writable("maintain")
        given: object = policy
        if given is not None and not isinstance(given, Policy):
            raise InvalidInputError(
                f"policy is {shown(given)}, expected a Policy",
                next_step="Make one with `omnigraph.maintenance.policy.parse_policy(text)`.",
            )
        with self._working(spark) as (workers, session):
            return maintain_graph(
                self._objects,
                self._view()[1].catalog,
                policy or Policy(),
                workers,
                SYSTEM_CLOCK,
                spark=session,
            )

    @contextmanager
    def _working(self, spark: object | None) -> Iterator[tuple[Workers, SparkSession | None]]:
        """The workers of an operation, and the session if they are on Spark."""
        # A process that only reads or writes does not pay for the import.
        from omnigraph.maintenance.workers import in_process, maintenance_concurrency, on_spark

        root = self._objects.root
        if spark is None:
            yield in_process(root, at_once=maintenance_concurrency()), None
            return
        from omnigraph.spark.session import given_spark  # needs pyspark

        with given_spark(spark) as session:
            yield on_spark(session, root), session
