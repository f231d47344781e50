"""A graph on one of its branches, and its history.

Invariant: every call reads the latest state of the branch, and that state to its end. Nothing here
writes but holds, and those only where the graph was opened for writing.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from omnigraph import names
from omnigraph.errors import NoLongerKeptError
from omnigraph.operations.arguments import acting, checked_id, plain_text
from omnigraph.operations.branches import BranchInfo, list_branches
from omnigraph.operations.commits import list_commits
from omnigraph.operations.holding import (
    Holding,
    LiveHold,
    checked_time,
    hold_versions,
    list_holds,
    release_hold,
)
from omnigraph.operations.outcome import OperationStatus, operation_status
from omnigraph.operations.parting import Parting, partings
from omnigraph.operations.references import Reference, branch_ref, branch_state
from omnigraph.operations.references import resolve as found_reference
from omnigraph.reading import PastGraph, Readable
from omnigraph.storage.history import Recovery, recorded_recoveries
from omnigraph.storage.tags import Tag, all_tags
from omnigraph.system_clock import SYSTEM_CLOCK, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta
    from os import PathLike
    from pathlib import Path
    from typing import IO

    from pyspark.sql import SparkSession

    from omnigraph.local.table_diff import ChangeCounts
    from omnigraph.operations.changes import Baseline, ChangeFeed
    from omnigraph.operations.diff import GraphDiff, OnSpark, Pairs
    from omnigraph.operations.export import ExportReport
    from omnigraph.operations.schema_contract import Contracts, SchemaContract
    from omnigraph.spark.scan import SparkGraph
    from omnigraph.storage.branch_identity import BranchRef
    from omnigraph.storage.holds import Hold
    from omnigraph.storage.manifest_rows import GraphCommit
    from omnigraph.storage.manifest_state import ManifestState
    from omnigraph.storage.objects import Objects
    from omnigraph.storage.snapshot import Snapshot

_T = TypeVar("_T")
_SNAPSHOTS_TRIED_MAX: Final = 5


class Versioned(Readable):
    """A graph on one of its branches, with its history."""

    def __init__(
        self,
        objects: Objects,
        contracts: Contracts,
        contract: SchemaContract,
        branch: str | None,
    ) -> None:
        super().__init__(objects, contracts, contract)
        self._branch = branch

    @property
    def branch_name(self) -> str:
        return self._branch or names.MAIN

    def branches(self) -> tuple[BranchInfo, ...]:
        """Main, then every other branch by name."""
        return list_branches(self._objects, SYSTEM_CLOCK)

    def partings(self) -> tuple[Parting, ...]:
        """The other branches, and the number of their unmerged commits.

        Once its schema changes, these can no longer be merged with it.
        """
        return partings(self._objects, self._manifest())

    def tags(self) -> tuple[Tag, ...]:
        return all_tags(self._objects)

    def at(self, reference: Reference, *, hold: str | timedelta | None = None) -> PastGraph:
        """The graph at a branch, tag, commit, manifest version or point in time, pinned.

        Args:
            reference: The state to read.
            hold: How long to keep it although a cleanup may run, such as `"1h"`; until
                `release()` is called, or a `with` block over it ends, if that is earlier.

        Raises:
            NoLongerKeptError: its data has been cleaned up.
            ReadOnlyError: a hold was requested, and the graph was opened for reading.
        """
        found = found_reference(self._objects, reference, branch=self._branch)
        schema = found.snapshot.schema_hash or found.state.head.first_schema
        snapshot = replace(found.snapshot, schema_hash=schema)
        return PastGraph(
            self._objects,
            self._contracts,
            self._contracts.of(schema),
            found.name,
            snapshot,
            self._held(snapshot, hold, thing=found.name),
        )

    def snapshot(self, *, hold: str | timedelta | None = None) -> PastGraph:
        """The current state, pinned: several reads through it see the same commit.

        Args:
            hold: How long to keep it, as in `at`.
        """
        return _of_something_newer(lambda: self._snapshot_now(hold))

    def _snapshot_now(self, hold: str | timedelta | None) -> PastGraph:
        view = super().snapshot()
        name = view.commit_id or view.branch_name
        held = self._held(view.pinned, hold, thing=name)
        return PastGraph(self._objects, self._contracts, view.contract, name, view.pinned, held)

    def holds(self) -> tuple[Hold, ...]:
        """The holds of all readers, oldest first."""
        return list_holds(self._objects)

    def release_hold(self, hold_id: str) -> None:
        """Release any hold: its reader may then find its data no longer kept."""
        self._require_writable("release a hold")
        self._manifest()  # a graph of a newer format is left alone
        release_hold(self._objects, plain_text(hold_id, argument="hold_id"))

    def _held(
        self, snapshot: Snapshot, hold: str | timedelta | None, *, thing: str
    ) -> LiveHold | None:
        if hold is None:
            return None
        time = checked_time(hold)
        self._require_writable("hold what is read")
        return hold_versions(
            self._objects,
            tuple(snapshot.tables.values()),
            SYSTEM_CLOCK,
            time=time,
            thing=thing,
            actor=acting(None),
            purpose="view",
            commit_id=snapshot.commit_id,
        )

    def _require_writable(self, verb: str) -> None:
        raise NotImplementedError

    @property
    def _is_writable(self) -> bool:
        raise NotImplementedError

    def diff(
        self,
        before: Reference,
        after: Reference | None = None,
        *,
        types: Sequence[str] | None = None,
        spark: SparkSession | None = None,
    ) -> GraphDiff:
        """What changed from one reference to another, this branch's newest state by default.

        Counts are available immediately; rows with their images before and after are streamed on
        demand. With a Spark session its tasks compare, and write the files of `to_parquet`.
        """
        from omnigraph.operations.diff import diff_snapshots  # DuckDB, as in `check`

        sides = [
            found_reference(self._objects, each, branch=self._branch).snapshot
            for each in (before, self.branch_name if after is None else after)
        ]
        if spark is None:
            return diff_snapshots(self._objects.root, *sides, types=types)
        with self._held_while(*sides, purpose="diff"):
            tasks = self._tasks(spark)
            return diff_snapshots(self._objects.root, *sides, types=types, on_spark=tasks)

    def _tasks(self, spark: SparkSession) -> OnSpark:
        from omnigraph.spark.session import require_session  # few diffs run on Spark

        session = require_session(spark)
        from omnigraph.spark.diff_job import diff_on_spark  # needs pyspark

        def compare(pairs: Pairs, directory: Path | None) -> dict[str, ChangeCounts]:
            found = diff_on_spark(
                session, self._objects.root, pairs, operation_id=new_id(), directory=directory
            )
            return {key: each.counts for key, each in found.items()}

        return compare

    def changes(
        self,
        *,
        start: str = "now",
        cursor: str | None = None,
        types: Sequence[str] | None = None,
        limit_commits: int | None = None,
    ) -> ChangeFeed:
        """The commits of this branch after a cursor, or after `start`, with their changes.

        `start` is `"now"`, `"beginning"` or a commit. Store the cursor of a commit when its changes
        are processed; otherwise that commit is delivered again. Where the graph was opened for
        writing, what the feed still has to read is held while it is in use, until its end or
        `close()`.
        """
        from omnigraph.operations.changes import changes  # DuckDB, as in `check`

        return changes(
            self._objects,
            self._view()[1].catalog,
            self._branch,
            start=start,
            cursor=cursor,
            types=types,
            limit_commits=limit_commits,
            holding=self._holding(),
        )

    def baseline(self, *, types: Sequence[str] | None = None) -> Baseline:
        """All rows of this branch as inserts, table by table; its last element has the cursor.

        They are held until then, as what a feed reads is.
        """
        from omnigraph.operations.changes import baseline  # DuckDB, as in `check`

        catalog, holding = self._view()[1].catalog, self._holding()
        return _of_something_newer(
            lambda: baseline(self._objects, catalog, self._branch, types=types, holding=holding)
        )

    def spark(self, spark: SparkSession | None = None) -> SparkGraph:
        """The graph as DataFrames and views, pinned to the current state.

        Where the graph was opened for writing, what is read is held while the result is in use.

        Args:
            spark: The session to use; by default that of this process, or a new one on this
                machine.

        Raises:
            SparkUnavailableError: Spark or Java is not installed.
        """
        return _of_something_newer(lambda: self._on_spark(spark, self._view()[0]))

    def _on_spark(self, spark: SparkSession | None, snapshot: Snapshot) -> SparkGraph:
        """Also for queries: what they read is held while their frames are in use."""
        reading = _Reading(self._holding())
        try:
            reading.hold(snapshot, purpose="spark")
            return super()._on_spark(spark, snapshot).keep(reading)
        except BaseException:
            reading.release()
            raise

    def export(
        self,
        path: str | PathLike[str] | IO[bytes],
        *,
        type_name: str | None = None,
        format: str = "jsonl",  # noqa: A002 - the conventional name
    ) -> ExportReport:
        """Export the rows to files that `load` can read, nodes before edges.

        `jsonl` goes to a file or an open binary stream; `parquet`, which also supports values that
        JSON cannot represent, to a directory. Where the graph was opened for writing, they are held
        meanwhile.
        """
        view, reading = _of_something_newer(lambda: self._held_now(purpose="export"))
        try:
            return view.export(path, type_name=type_name, format=format)
        finally:
            reading.release()

    @contextmanager
    def _held_while(self, *snapshots: Snapshot, purpose: str) -> Iterator[None]:
        """Hold the current state while the body runs, if the graph was opened for writing."""
        reading = _Reading(self._holding())
        try:
            for snapshot in snapshots:
                reading.hold(snapshot, purpose=purpose)
            yield
        finally:
            reading.release()

    def _held_now(self, *, purpose: str) -> tuple[PastGraph, _Reading]:
        """The current state, held if the graph was opened for writing."""
        view, reading = super().snapshot(), _Reading(self._holding())
        reading.hold(view.pinned, purpose=purpose)
        return view, reading

    def _holding(self) -> Holding | None:
        """How long reads hold their state; None if the graph was opened for reading."""
        if not self._is_writable:
            return None
        return Holding(objects=self._objects, clock=SYSTEM_CLOCK, actor=acting(None))

    def commits(
        self, *, actor: str | None = None, limit: int | None = None
    ) -> tuple[GraphCommit, ...]:
        """The commits of the graph, newest first."""
        return list_commits(self._objects, self._manifest(), actor=actor, limit=limit)

    def outcome(self, operation_id: str) -> OperationStatus:
        """The outcome of an operation: published, rolled back, pending, or unknown."""
        return operation_status(self._objects, checked_id(operation_id, now=SYSTEM_CLOCK.now()))

    def recoveries(self) -> tuple[Recovery, ...]:
        """Writes that were finished or rolled back after their writers died, oldest first."""
        return recorded_recoveries(self._objects.root)

    def _view(self) -> tuple[Snapshot, SchemaContract]:
        state = self._manifest()
        return state.snapshot(), self._contract_of(state)

    def _contract_of(self, state: ManifestState) -> SchemaContract:
        if state.schema_hash is not None:
            self._contract = self._contracts.of(state.schema_hash)
        return self._contract

    def _ref(self) -> BranchRef | None:
        return branch_ref(self._objects, self._branch)

    def _manifest(self) -> ManifestState:
        return branch_state(self._objects, self._ref())


class _Reading:
    """A reader whose state is held while it is referenced, and until it is released."""

    def __init__(self, holding: Holding | None) -> None:
        self._holding = holding
        self._holds: list[LiveHold] = []

    def hold(self, snapshot: Snapshot, *, purpose: str) -> None:
        if self._holding is None:
            return
        entries = tuple(snapshot.tables.values())
        live = self._holding.for_reader(
            self, entries, purpose=purpose, commit_id=snapshot.commit_id
        )
        self._holds += [] if live is None else [live]

    def release(self) -> None:
        for live in self._holds:
            live.release()


def _of_something_newer(hold: Callable[[], _T]) -> _T:
    """Hold the newest state; if a cleanup removes that meanwhile, it has left a newer one."""
    for _ in range(_SNAPSHOTS_TRIED_MAX):
        with suppress(NoLongerKeptError):
            return hold()
    return hold()
