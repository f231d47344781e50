"""`graph.maintenance`: compaction, cleanup, verification and repair.

Operations are imported when they are called: a process that only reads or writes pays for none.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import acting, flag
from omnigraph_lake.commit.orphans import ReconcileReport, preview_reconcile, reconcile_forks
from omnigraph_lake.commit.recovery import RecoveryReport, sweep
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.maintenance.status import GraphStatus, graph_status
from omnigraph_lake.notes import commit_note
from omnigraph_lake.storage.manifest.history import Recovery, recorded_recoveries
from omnigraph_lake.storage.manifest.time_travel import list_commits
from omnigraph_lake.storage.objects.durability import with_reserve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from omnigraph_lake.api.handle import Handle
    from omnigraph_lake.api.options import Spark
    from omnigraph_lake.display.pages import Listing
    from omnigraph_lake.maintenance.cleanup import CleanupReport
    from omnigraph_lake.maintenance.maintain import MaintainReport, Policy
    from omnigraph_lake.maintenance.optimize import TableOptimizeStats
    from omnigraph_lake.maintenance.repair import RepairReport
    from omnigraph_lake.maintenance.scrub import ScrubReport
    from omnigraph_lake.maintenance.status_report import StatusReport
    from omnigraph_lake.maintenance.workers import Workers
    from omnigraph_lake.runner.progress import Progress
    from omnigraph_lake.validation.check import CheckReport

_DERIVED_ROWS_LEAST: Final = 100_000
_RATE_LEAST: Final = 1000
"""With fewer bytes per second a scrub would never end."""


class Maintenance:
    """Maintenance of a graph."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def status(self) -> GraphStatus:
        """Tables with versions, rows, fragments and index coverage, and pending writes."""
        state = self._handle.manifest()
        catalog = self._handle.contract_of(state).catalog
        return graph_status(self._handle.objects, catalog, state.snapshot(), stamp=state.stamp)

    def report(self) -> StatusReport:
        """The status with sizes, reclaimable bytes and history, to be saved as a page of plots."""
        # A process that only reads or writes does not pay for the import.
        from omnigraph_lake.maintenance.status_report import KEPT_VERSIONS, StatusReport

        objects = self._handle.objects
        return StatusReport(
            status=self.status(),
            stored_bytes=sum(objects.sizes("").values()),
            reclaimable={
                keep: self.cleanup(keep_versions=keep).bytes_removed for keep in KEPT_VERSIONS
            },
            commits=list_commits(objects, self._handle.manifest()),
        )

    def check(self, *, deep: bool = False, spark: Spark | None = None) -> CheckReport:
        """Verify the integrity of the graph. Reads everything, writes nothing.

        Args:
            deep: Also compare every stored file of every branch, tag and retained version with its
                checksum, and look rows up through every index.
            spark: A Spark session or target whose tasks read the rows; without one, threads of this
                process do. If the graph was opened for writing, what the tasks read is held
                meanwhile.
        """
        # A process that only reads or writes does not pay for the import.
        from omnigraph_lake.runner.choose import chosen_runner
        from omnigraph_lake.validation.check import check_graph

        flag(deep, argument="deep")
        objects, state = self._handle.objects, self._handle.manifest()
        catalog = self._handle.contract_of(state).catalog
        snapshots = () if spark is None else (state.snapshot(),)
        with (
            chosen_runner(objects.root, spark) as runner,
            self._handle.held_while(*snapshots, purpose="check"),
        ):
            report = check_graph(objects, catalog, state, runner)
        if not deep:
            return report
        from omnigraph_lake.validation.check import deep_findings

        stored, findings = deep_findings(objects, SYSTEM_CLOCK.now())
        return replace(
            report,
            findings=(*report.findings, *findings),
            files_compared=len(stored.files),
            files_unrecorded=len(stored.unrecorded),
        )

    def recover(self, *, force: bool = False) -> RecoveryReport:
        """Finish or roll back unfinished writes of dead writers.

        Args:
            force: Also those of writers that may still be running.
        """
        self._handle.require_writable("recover")
        flag(force, argument="force")
        objects = self._handle.objects
        return with_reserve(objects.root, lambda: sweep(objects, SYSTEM_CLOCK, force=force))

    def recoveries(self) -> Listing[Recovery]:
        """List writes finished or rolled back after their writers died, oldest first."""
        return recorded_recoveries(self._handle.objects.root)

    def optimize(
        self,
        *,
        target_rows_per_fragment: int | None = None,
        spark: Spark | None = None,
        progress: Progress | None = None,
    ) -> Listing[TableOptimizeStats]:
        """Compact the tables of main and update their indexes. Deletes nothing.

        Args:
            target_rows_per_fragment: Target number of rows per fragment; by default about one
                million.
            spark: A Spark session or target whose tasks do the heavy part; without one, threads of
                this process.
            progress: Receives the progress of compactions and indexes.

        Raises:
            RecoveryRequiredError: a write of a dead writer is unfinished; `recover` settles it.
            MaintenanceIncompleteError: some tables failed; `report` covers all.
        """
        # A process that only reads or writes does not pay for the import.
        from omnigraph_lake.maintenance.optimize import OptimizeOptions, optimize_graph

        self._handle.require_writable("optimize")
        options = OptimizeOptions(target_rows_per_fragment=target_rows_per_fragment)
        with self._working(spark, progress) as (workers, _):
            report = optimize_graph(self._handle.objects, workers, SYSTEM_CLOCK, options=options)
        self._keep_adjacency()
        return report

    def reconcile(self, *, dry_run: bool = True, also_foreign: bool = False) -> ReconcileReport:
        """Delete unreferenced forks of tables.

        Args:
            dry_run: Only list them. Deleted forks cannot be restored.
            also_foreign: Also delete Lance branches that other tools created.
        """
        flag(also_foreign, argument="also_foreign")
        if flag(dry_run, argument="dry_run"):
            return preview_reconcile(self._handle.objects, also_foreign=also_foreign)
        self._handle.require_writable("reconcile")
        return reconcile_forks(self._handle.objects, also_foreign=also_foreign)

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = True,
        allow_unsafe_keep: bool = False,
    ) -> CleanupReport:
        """Delete old versions and unreferenced files.

        Args:
            keep_versions: Number of newest versions to keep per table.
            older_than: Delete only versions older than this. With both, a version is deleted only
                if it is neither among the newest nor younger.
            dry_run: Only list what would be deleted. Deleted versions cannot be restored.
            allow_unsafe_keep: Whether `keep_versions` may be below 3.
        """
        # A process that only reads or writes does not pay for the import.
        from omnigraph_lake.maintenance.cleanup import CleanupPolicy, cleanup_graph, preview_cleanup

        flag(allow_unsafe_keep, argument="allow_unsafe_keep")
        if not flag(dry_run, argument="dry_run"):
            self._handle.require_writable("cleanup")
        policy = CleanupPolicy(keep_versions=keep_versions, older_than=older_than).checked(
            allow_unsafe_keep=allow_unsafe_keep
        )
        objects = self._handle.objects
        if dry_run:
            return preview_cleanup(objects, policy, SYSTEM_CLOCK)
        return with_reserve(objects.root, lambda: cleanup_graph(objects, policy, SYSTEM_CLOCK))

    def repair(
        self,
        *,
        dry_run: bool = True,
        force: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> RepairReport:
        """List table versions written by other tools, or adopt them.

        Args:
            dry_run: Only list them. Otherwise adopt maintenance, such as a manual compaction.
            force: Also adopt versions that may have changed rows. Versions that do not have the
                columns of the schema are refused in any case.
            actor: Author of the commit.
            message: Message of the commit.
            metadata: Further texts by name to store with the commit.

        Raises:
            RecoveryRequiredError: a write of a dead writer is unfinished; `recover` settles it.
        """
        # A process that only reads or writes does not pay for the import.
        from omnigraph_lake.maintenance.repair import RepairRequest, repair_graph

        flag(force, argument="force")
        if not flag(dry_run, argument="dry_run"):
            self._handle.require_writable("repair")
        request = RepairRequest(
            confirm=not dry_run,
            force=force,
            actor=acting(actor),
            note=commit_note(message, metadata),
        )
        return repair_graph(self._handle.objects, self._handle.manifest(), request, SYSTEM_CLOCK)

    def scrub(
        self,
        *,
        rate: float | None = None,
        record: bool = False,
        restart: bool = False,
        spark: Spark | None = None,
        progress: Progress | None = None,
    ) -> ScrubReport:
        """Compare every stored file of every branch, tag and retained version with its checksum.

        An interrupted pass is resumed.

        Args:
            rate: Maximum bytes per second.
            record: First record checksums for versions that have none, or whose list is
                damaged. The stored files are trusted.
            restart: Start over instead of resuming an interrupted pass.
            spark: A Spark session or target whose tasks read the files.
            progress: Receives the progress of the comparison.
        """
        from omnigraph_lake.maintenance.scrub import (  # few callers need it
            ScrubOptions,
            scrub_graph,
        )

        self._handle.require_writable("scrub")
        speed: object = rate
        if speed is not None and not (
            isinstance(speed, int | float) and _RATE_LEAST <= speed < math.inf
        ):
            raise InvalidInputError(
                f"rate is {shown(speed, 40)}, expected {_RATE_LEAST:,} bytes per second or more"
            )
        options = ScrubOptions(rate=rate, restart=restart, record=record)
        with self._working(spark, progress) as (workers, _):
            return scrub_graph(self._handle.objects, workers, SYSTEM_CLOCK, options)

    def run(
        self,
        policy: Policy | None = None,
        *,
        spark: Spark | None = None,
        progress: Progress | None = None,
    ) -> MaintainReport:
        """Run the maintenance that a policy describes: check, reconcile, optimize and clean up.

        Args:
            policy: What to do and what to keep, as `parse_policy` reads it; the default policy
                without one.
            spark: A Spark session or target whose tasks do the heavy part.
            progress: Receives the progress of compactions and indexes.
        """
        # A process that only reads or writes does not pay for the import.
        from omnigraph_lake.maintenance.maintain import Policy, maintain_graph

        self._handle.require_writable("maintain")
        value: object = policy
        if value is not None and not isinstance(value, Policy):
            raise InvalidInputError(
                f"policy is {shown(value)}, expected a Policy",
                next_step="Make one with `og.parse_policy(text)`.",
            )
        with self._working(spark, progress) as (workers, session):
            report = maintain_graph(
                self._handle.objects,
                self._handle.view()[1].catalog,
                policy or Policy(),
                workers,
                SYSTEM_CLOCK,
                spark=session,
            )
        self._keep_adjacency()
        return report

    def _keep_adjacency(self) -> None:
        """Prepare queries of later processes: compaction moved the rows they would have shared."""
        snapshot, contract = self._handle.view()
        entries = snapshot.tables.values()
        if any(entry.row_count >= _DERIVED_ROWS_LEAST for entry in entries):
            # A process that only reads or writes does not pay for the import.
            from omnigraph_lake.engine.access.in_memory import keep_adjacency

            keep_adjacency(self._handle.objects.root, snapshot, contract.catalog)

    @contextmanager
    def _working(
        self, spark: Spark | None, progress: Progress | None
    ) -> Iterator[tuple[Workers, SparkSession | None]]:
        """The workers of an operation, and the session if they are on Spark."""
        # A process that only reads or writes does not pay for the import.
        from omnigraph_lake.maintenance.workers import Workers, maintenance_concurrency
        from omnigraph_lake.runner.progress import require_progress

        root = self._handle.objects.root
        observer = require_progress(progress)
        if spark is None:
            from omnigraph_lake.runner.threads import ThreadRunner

            with observer:
                threads = ThreadRunner(observer, parallel=maintenance_concurrency())
                yield Workers(root=root, runner=threads), None
            return
        from omnigraph_lake.runner.session import given_spark  # needs pyspark

        with given_spark(spark) as session, observer:
            from omnigraph_lake.runner.spark import SparkRunner

            yield Workers(root=root, runner=SparkRunner(session, root, observer)), session
