"""A typed property graph over Lance datasets, with branches, merges and a Spark pipeline.

    import omnigraph

    graph = omnigraph.init("./g", schema=Path("people.pg"))
    graph.write({"Person": [{"email": "ann@example.org", "name": "Ann"}]})
    graph.get("Person", "ann@example.org")

    with omnigraph.open("./g", read_only=True) as graph:
        graph.query("query people() { match { $p: Person } return { $p.name } }")

`Graph` and its namespaces (`branches`, `tags`, `schema`, `maintenance`, `holds`) are the whole
interface; every type of a result or an error is importable from here. `omnigraph.spark` has what
users of Spark need. Importing this package is cheap: Lance and Arrow are loaded with the first
graph.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from omnigraph.api.branches import Branches
    from omnigraph.api.holds import Holds
    from omnigraph.api.maintenance import Maintenance
    from omnigraph.api.options import (
        ArrowStream,
        Durability,
        Key,
        LoadOptions,
        Mode,
        Resolve,
        Rows,
        Source,
        Spark,
        Verify,
    )
    from omnigraph.api.schema import Schema, SchemaView
    from omnigraph.api.tags import Tags
    from omnigraph.commit.orphans import Fate, ListedFork, Reconciled
    from omnigraph.commit.recover import Swept
    from omnigraph.copies import VerifyReport, backup, clone, restore, verify
    from omnigraph.display.pages import Listing
    from omnigraph.errors import (
        AlreadyInitialisedError,
        BranchGoneError,
        ConflictError,
        ContentionError,
        DamagedGraphError,
        DriftNeedsRepairError,
        ExpectedVersionMismatchError,
        ForkedProcessError,
        FormatTooNewError,
        HeadMovedError,
        IndexPendingError,
        InitialisationClaimedError,
        InputTooLargeError,
        InvalidInputError,
        LoadRefusedError,
        MaintenanceIncompleteError,
        MergeConflictError,
        NoLongerKeptError,
        NotFoundError,
        NothingWrittenError,
        OmnigraphError,
        OperationRolledBackError,
        OperationRunningError,
        OutcomeUnknownError,
        QueryBudgetError,
        QueryCancelledError,
        QueryFailedError,
        QueryInvalidError,
        ReadOnlyError,
        RecoveryRequiredError,
        SchemaChangedError,
        SchemaInvalidError,
        SchemaRefusedError,
        SparkJobFailedError,
        SparkUnavailableError,
        StorageUnavailableError,
        TextInvalidError,
        UnsafeStoreError,
        ValidationFailedError,
        WrongClockError,
    )
    from omnigraph.graph import Graph, GraphView
    from omnigraph.load.ledger import Engine, LoadReport, RejectedRecord
    from omnigraph.load.progress import Progress
    from omnigraph.maintenance.cleanup import CleanupReport, TableCleanupStats
    from omnigraph.maintenance.copying import CopyKind, CopyReport
    from omnigraph.maintenance.indexing import PendingIndex
    from omnigraph.maintenance.maintain import MaintainReport, Step, StepOutcome, StepReport
    from omnigraph.maintenance.optimize import SkipReason, TableOptimizeStats
    from omnigraph.maintenance.policy import Policy, parse_policy
    from omnigraph.maintenance.rebuild import RebuildReport
    from omnigraph.maintenance.rebuild_tables import RebuiltTable, SkippedVersion
    from omnigraph.maintenance.repair import Remedy, RepairAction, RepairReport, TableRepair
    from omnigraph.maintenance.scrub import ScrubReport
    from omnigraph.opening import init, open, rebuild_manifest, recover  # noqa: A004 - as in open(path)
    from omnigraph.operations.apply_schema import SchemaResult
    from omnigraph.operations.branches import BranchInfo
    from omnigraph.operations.changes import (
        Baseline,
        BaselineEnd,
        BaselineTable,
        ChangeFeed,
        CommitChanges,
        TableChanges,
    )
    from omnigraph.operations.check import CheckReport, Finding, Problem
    from omnigraph.operations.diff import GraphDiff, TypeDiff
    from omnigraph.operations.export import ExportReport
    from omnigraph.operations.holding import LiveHold
    from omnigraph.operations.merge import MergeResult
    from omnigraph.operations.merge_plan import MergeOutcome
    from omnigraph.operations.mutate import MutationResult
    from omnigraph.operations.outcome import OperationStatus
    from omnigraph.operations.parting import Parting
    from omnigraph.operations.query_result import QueryResult
    from omnigraph.operations.references import Reference
    from omnigraph.operations.schema_contract import SchemaContract
    from omnigraph.operations.status import GraphStatus, TableStatus
    from omnigraph.operations.stored_queries import StoredQueries, StoredQuery
    from omnigraph.operations.write import TableCounts, WriteResult
    from omnigraph.rules.merging import ConflictKind
    from omnigraph.rules.modes import WriteMode
    from omnigraph.rules.violations import Violation, ViolationReport
    from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
    from omnigraph.schema.evolution.planning import Evolution
    from omnigraph.spark.session import SparkTarget
    from omnigraph.storage.history import Recovery
    from omnigraph.storage.holds import Hold
    from omnigraph.storage.manifest_rows import GraphCommit, GraphHead
    from omnigraph.storage.snapshot import Snapshot, TableEntry
    from omnigraph.storage.tags import Tag
    from omnigraph.syntax import Diagnostic

__version__ = "0.1.0"

__all__ = [
    "AlreadyInitialisedError",
    "ArrowStream",
    "Baseline",
    "BaselineEnd",
    "BaselineTable",
    "BranchGoneError",
    "BranchInfo",
    "Branches",
    "Catalog",
    "ChangeFeed",
    "CheckReport",
    "CleanupReport",
    "CommitChanges",
    "ConflictError",
    "ConflictKind",
    "ContentionError",
    "CopyKind",
    "CopyReport",
    "DamagedGraphError",
    "Diagnostic",
    "DriftNeedsRepairError",
    "Durability",
    "EdgeType",
    "Engine",
    "Evolution",
    "ExpectedVersionMismatchError",
    "ExportReport",
    "Fate",
    "Finding",
    "ForkedProcessError",
    "FormatTooNewError",
    "Graph",
    "GraphCommit",
    "GraphDiff",
    "GraphHead",
    "GraphStatus",
    "GraphView",
    "HeadMovedError",
    "Hold",
    "Holds",
    "IndexPendingError",
    "InitialisationClaimedError",
    "InputTooLargeError",
    "InvalidInputError",
    "Key",
    "ListedFork",
    "Listing",
    "LiveHold",
    "LoadOptions",
    "LoadRefusedError",
    "LoadReport",
    "MaintainReport",
    "Maintenance",
    "MaintenanceIncompleteError",
    "MergeConflictError",
    "MergeOutcome",
    "MergeResult",
    "Mode",
    "MutationResult",
    "NoLongerKeptError",
    "NodeType",
    "NotFoundError",
    "NothingWrittenError",
    "OmnigraphError",
    "OperationRolledBackError",
    "OperationRunningError",
    "OperationStatus",
    "OutcomeUnknownError",
    "Parting",
    "PendingIndex",
    "Policy",
    "Problem",
    "Progress",
    "QueryBudgetError",
    "QueryCancelledError",
    "QueryFailedError",
    "QueryInvalidError",
    "QueryResult",
    "ReadOnlyError",
    "RebuildReport",
    "RebuiltTable",
    "Reconciled",
    "Recovery",
    "RecoveryRequiredError",
    "Reference",
    "RejectedRecord",
    "Remedy",
    "RepairAction",
    "RepairReport",
    "Resolve",
    "Rows",
    "Schema",
    "SchemaChangedError",
    "SchemaContract",
    "SchemaInvalidError",
    "SchemaRefusedError",
    "SchemaResult",
    "SchemaView",
    "ScrubReport",
    "SkipReason",
    "SkippedVersion",
    "Snapshot",
    "Source",
    "Spark",
    "SparkJobFailedError",
    "SparkTarget",
    "SparkUnavailableError",
    "Step",
    "StepOutcome",
    "StepReport",
    "StorageUnavailableError",
    "StoredQueries",
    "StoredQuery",
    "Swept",
    "TableChanges",
    "TableCleanupStats",
    "TableCounts",
    "TableEntry",
    "TableOptimizeStats",
    "TableRepair",
    "TableStatus",
    "Tag",
    "Tags",
    "TextInvalidError",
    "TypeDiff",
    "UnsafeStoreError",
    "ValidationFailedError",
    "Verify",
    "VerifyReport",
    "Violation",
    "ViolationReport",
    "WriteMode",
    "WriteResult",
    "WrongClockError",
    "backup",
    "clone",
    "init",
    "open",
    "parse_policy",
    "rebuild_manifest",
    "recover",
    "restore",
    "verify",
]

_HOMES = {
    "omnigraph.api.branches": ("Branches",),
    "omnigraph.api.holds": ("Holds",),
    "omnigraph.api.maintenance": ("Maintenance",),
    "omnigraph.api.options": (
        "ArrowStream",
        "Durability",
        "Key",
        "LoadOptions",
        "Mode",
        "Resolve",
        "Rows",
        "Source",
        "Spark",
        "Verify",
    ),
    "omnigraph.api.schema": ("Schema", "SchemaView"),
    "omnigraph.api.tags": ("Tags",),
    "omnigraph.commit.orphans": ("Fate", "ListedFork", "Reconciled"),
    "omnigraph.commit.recover": ("Swept",),
    "omnigraph.copies": ("VerifyReport", "backup", "clone", "restore", "verify"),
    "omnigraph.display.pages": ("Listing",),
    "omnigraph.errors": (
        "AlreadyInitialisedError",
        "BranchGoneError",
        "ConflictError",
        "ContentionError",
        "DamagedGraphError",
        "DriftNeedsRepairError",
        "ExpectedVersionMismatchError",
        "ForkedProcessError",
        "FormatTooNewError",
        "HeadMovedError",
        "IndexPendingError",
        "InitialisationClaimedError",
        "InputTooLargeError",
        "InvalidInputError",
        "LoadRefusedError",
        "MaintenanceIncompleteError",
        "MergeConflictError",
        "NoLongerKeptError",
        "NotFoundError",
        "NothingWrittenError",
        "OmnigraphError",
        "OperationRolledBackError",
        "OperationRunningError",
        "OutcomeUnknownError",
        "QueryBudgetError",
        "QueryCancelledError",
        "QueryFailedError",
        "QueryInvalidError",
        "ReadOnlyError",
        "RecoveryRequiredError",
        "SchemaChangedError",
        "SchemaInvalidError",
        "SchemaRefusedError",
        "SparkJobFailedError",
        "SparkUnavailableError",
        "StorageUnavailableError",
        "TextInvalidError",
        "UnsafeStoreError",
        "ValidationFailedError",
        "WrongClockError",
    ),
    "omnigraph.graph": ("Graph", "GraphView"),
    "omnigraph.load.ledger": ("Engine", "LoadReport", "RejectedRecord"),
    "omnigraph.load.progress": ("Progress",),
    "omnigraph.maintenance.cleanup": ("CleanupReport", "TableCleanupStats"),
    "omnigraph.maintenance.copying": ("CopyKind", "CopyReport"),
    "omnigraph.maintenance.indexing": ("PendingIndex",),
    "omnigraph.maintenance.maintain": ("MaintainReport", "Step", "StepOutcome", "StepReport"),
    "omnigraph.maintenance.optimize": ("SkipReason", "TableOptimizeStats"),
    "omnigraph.maintenance.policy": ("Policy", "parse_policy"),
    "omnigraph.maintenance.rebuild": ("RebuildReport",),
    "omnigraph.maintenance.rebuild_tables": ("RebuiltTable", "SkippedVersion"),
    "omnigraph.maintenance.repair": ("Remedy", "RepairAction", "RepairReport", "TableRepair"),
    "omnigraph.maintenance.scrub": ("ScrubReport",),
    "omnigraph.opening": ("init", "open", "rebuild_manifest", "recover"),
    "omnigraph.operations.apply_schema": ("SchemaResult",),
    "omnigraph.operations.branches": ("BranchInfo",),
    "omnigraph.operations.changes": (
        "Baseline",
        "BaselineEnd",
        "BaselineTable",
        "ChangeFeed",
        "CommitChanges",
        "TableChanges",
    ),
    "omnigraph.operations.check": ("CheckReport", "Finding", "Problem"),
    "omnigraph.operations.diff": ("GraphDiff", "TypeDiff"),
    "omnigraph.operations.export": ("ExportReport",),
    "omnigraph.operations.holding": ("LiveHold",),
    "omnigraph.operations.merge": ("MergeResult",),
    "omnigraph.operations.merge_plan": ("MergeOutcome",),
    "omnigraph.operations.mutate": ("MutationResult",),
    "omnigraph.operations.outcome": ("OperationStatus",),
    "omnigraph.operations.parting": ("Parting",),
    "omnigraph.operations.query_result": ("QueryResult",),
    "omnigraph.operations.references": ("Reference",),
    "omnigraph.operations.schema_contract": ("SchemaContract",),
    "omnigraph.operations.status": ("GraphStatus", "TableStatus"),
    "omnigraph.operations.stored_queries": ("StoredQueries", "StoredQuery"),
    "omnigraph.operations.write": ("TableCounts", "WriteResult"),
    "omnigraph.rules.merging": ("ConflictKind",),
    "omnigraph.rules.modes": ("WriteMode",),
    "omnigraph.rules.violations": ("Violation", "ViolationReport"),
    "omnigraph.schema.catalog": ("Catalog", "EdgeType", "NodeType"),
    "omnigraph.schema.evolution.planning": ("Evolution",),
    "omnigraph.spark.session": ("SparkTarget",),
    "omnigraph.storage.history": ("Recovery",),
    "omnigraph.storage.holds": ("Hold",),
    "omnigraph.storage.manifest_rows": ("GraphCommit", "GraphHead"),
    "omnigraph.storage.snapshot": ("Snapshot", "TableEntry"),
    "omnigraph.storage.tags": ("Tag",),
    "omnigraph.syntax": ("Diagnostic",),
}
"""Where the public names are, by module; they are imported when they are first used."""

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


_MODULES = ("errors", "spark")
"""Modules that users name through the package: `omnigraph.spark.OmnigraphDataSource`."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _importlib.import_module(f"omnigraph.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    value = getattr(_importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
