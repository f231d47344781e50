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
    from omnigraph.api.algorithms import AlgorithmResult, Algorithms
    from omnigraph.api.blame import RowChange, RowHistory
    from omnigraph.api.branches import Branches
    from omnigraph.api.commit_log import CommitLog
    from omnigraph.api.holds import Holds
    from omnigraph.api.maintenance import Maintenance
    from omnigraph.api.options import (
        ArrowStream,
        Durability,
        ImportedInput,
        ImportOptions,
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
    from omnigraph.commit.diverged_branches import DivergedBranch
    from omnigraph.commit.orphans import Fate, ListedFork, ReconcileReport
    from omnigraph.commit.publish import OperationStatus
    from omnigraph.commit.recovery import RecoveryReport
    from omnigraph.commit.refs import BranchInfo
    from omnigraph.creation.copying import CopyKind, CopyReport
    from omnigraph.diff.change_feed import (
        Baseline,
        BaselineEnd,
        BaselineTable,
        ChangeFeed,
        CommitChanges,
        TableChanges,
    )
    from omnigraph.diff.diff import GraphDiff, TypeDiff
    from omnigraph.display.pages import Listing
    from omnigraph.engine.blobs import Blob
    from omnigraph.engine.query_result import QueryResult
    from omnigraph.engine.query_text import StoredQueries, StoredQuery
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
        OtherFormatError,
        OutcomeUnknownError,
        QueryBudgetError,
        QueryCancelledError,
        QueryFailedError,
        QueryInvalidError,
        ReadOnlyError,
        RecoveryRequiredError,
        RunInterruptedError,
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
    from omnigraph.evolution.apply_schema import SchemaResult
    from omnigraph.evolution.plan.planning import Evolution
    from omnigraph.graph import Graph, GraphView
    from omnigraph.importer.import_report import ImportedSource, ImportReport, RejectedCause
    from omnigraph.language.diagnostics import Diagnostic
    from omnigraph.load.export import ExportReport
    from omnigraph.load.report import Engine, LoadReport, RejectedRecord
    from omnigraph.load.write import TableCounts, WriteResult
    from omnigraph.maintenance.cleanup import CleanupReport, TableCleanupStats
    from omnigraph.maintenance.maintain import (
        MaintainReport,
        Policy,
        Step,
        StepOutcome,
        StepReport,
        parse_policy,
    )
    from omnigraph.maintenance.optimize import PendingIndex, SkipReason, TableOptimizeStats
    from omnigraph.maintenance.rebuild.rebuild import RebuildReport
    from omnigraph.maintenance.rebuild.tables import RebuiltTable, SkippedVersion
    from omnigraph.maintenance.repair import Remedy, RepairAction, RepairReport, TableRepair
    from omnigraph.maintenance.scrub import ScrubReport
    from omnigraph.maintenance.status import GraphStatus, TableStatus
    from omnigraph.maintenance.status_report import StatusReport
    from omnigraph.merge.conflicts import ConflictKind
    from omnigraph.merge.merge import MergeResult
    from omnigraph.merge.plan import MergeOutcome
    from omnigraph.merge.undo import UndoResult
    from omnigraph.mutate.mutate import MutationResult
    from omnigraph.opening import (
        VerifyReport,
        backup,
        clone,
        import_data,
        init,
        open,  # noqa: A004 - as in open(path)
        rebuild_manifest,
        recover,
        restore,
        verify,
    )
    from omnigraph.runner.progress import Progress
    from omnigraph.runner.protocol import StageMetrics
    from omnigraph.runner.session import SparkTarget
    from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
    from omnigraph.storage.manifest.history import Recovery
    from omnigraph.storage.manifest_rows import GraphCommit, GraphHead
    from omnigraph.storage.refs.holds import Hold, LiveHold
    from omnigraph.storage.refs.references import Reference
    from omnigraph.storage.refs.tags import Tag
    from omnigraph.storage.snapshot import Snapshot, TableEntry
    from omnigraph.validation.check import CheckReport, Finding, Problem
    from omnigraph.validation.constraints import WriteMode
    from omnigraph.validation.schema_contract import SchemaContract
    from omnigraph.validation.violations import Violation, ViolationReport
    from omnigraph.view.drawing import View

__version__ = "0.1.0"

__all__ = [
    "AlgorithmResult",
    "Algorithms",
    "AlreadyInitialisedError",
    "ArrowStream",
    "Baseline",
    "BaselineEnd",
    "BaselineTable",
    "Blob",
    "BranchGoneError",
    "BranchInfo",
    "Branches",
    "Catalog",
    "ChangeFeed",
    "CheckReport",
    "CleanupReport",
    "CommitChanges",
    "CommitLog",
    "ConflictError",
    "ConflictKind",
    "ContentionError",
    "CopyKind",
    "CopyReport",
    "DamagedGraphError",
    "Diagnostic",
    "DivergedBranch",
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
    "ImportOptions",
    "ImportReport",
    "ImportedInput",
    "ImportedSource",
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
    "OtherFormatError",
    "OutcomeUnknownError",
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
    "ReconcileReport",
    "Recovery",
    "RecoveryReport",
    "RecoveryRequiredError",
    "Reference",
    "RejectedCause",
    "RejectedRecord",
    "Remedy",
    "RepairAction",
    "RepairReport",
    "Resolve",
    "RowChange",
    "RowHistory",
    "Rows",
    "RunInterruptedError",
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
    "StageMetrics",
    "StatusReport",
    "Step",
    "StepOutcome",
    "StepReport",
    "StorageUnavailableError",
    "StoredQueries",
    "StoredQuery",
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
    "UndoResult",
    "UnsafeStoreError",
    "ValidationFailedError",
    "Verify",
    "VerifyReport",
    "View",
    "Violation",
    "ViolationReport",
    "WriteMode",
    "WriteResult",
    "WrongClockError",
    "backup",
    "clone",
    "import_data",
    "init",
    "open",
    "parse_policy",
    "rebuild_manifest",
    "recover",
    "restore",
    "verify",
]

_HOMES = {
    "omnigraph.api.algorithms": ("AlgorithmResult", "Algorithms"),
    "omnigraph.api.branches": ("Branches",),
    "omnigraph.api.holds": ("Holds",),
    "omnigraph.api.maintenance": ("Maintenance",),
    "omnigraph.api.options": (
        "ArrowStream",
        "Durability",
        "ImportOptions",
        "ImportedInput",
        "Key",
        "LoadOptions",
        "Mode",
        "Resolve",
        "Rows",
        "Source",
        "Spark",
        "Verify",
    ),
    "omnigraph.engine.blobs": ("Blob",),
    "omnigraph.api.schema": ("Schema", "SchemaView"),
    "omnigraph.api.tags": ("Tags",),
    "omnigraph.commit.orphans": ("Fate", "ListedFork", "ReconcileReport"),
    "omnigraph.commit.publish": ("OperationStatus",),
    "omnigraph.commit.recovery": ("RecoveryReport",),
    "omnigraph.commit.refs": ("BranchInfo",),
    "omnigraph.creation.copying": ("CopyKind", "CopyReport"),
    "omnigraph.diff.change_feed": (
        "Baseline",
        "BaselineEnd",
        "BaselineTable",
        "ChangeFeed",
        "CommitChanges",
        "TableChanges",
    ),
    "omnigraph.diff.diff": ("GraphDiff", "TypeDiff"),
    "omnigraph.display.pages": ("Listing",),
    "omnigraph.engine.query_result": ("QueryResult",),
    "omnigraph.engine.query_text": ("StoredQueries", "StoredQuery"),
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
        "OtherFormatError",
        "OutcomeUnknownError",
        "QueryBudgetError",
        "QueryCancelledError",
        "QueryFailedError",
        "QueryInvalidError",
        "ReadOnlyError",
        "RecoveryRequiredError",
        "RunInterruptedError",
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
    "omnigraph.evolution.apply_schema": ("SchemaResult",),
    "omnigraph.commit.diverged_branches": ("DivergedBranch",),
    "omnigraph.evolution.plan.planning": ("Evolution",),
    "omnigraph.api.commit_log": ("CommitLog",),
    "omnigraph.api.blame": (
        "RowHistory",
        "RowChange",
    ),
    "omnigraph.merge.undo": ("UndoResult",),
    "omnigraph.graph": ("Graph", "GraphView"),
    "omnigraph.importer.import_report": ("ImportReport", "ImportedSource", "RejectedCause"),
    "omnigraph.language.diagnostics": ("Diagnostic",),
    "omnigraph.load.export": ("ExportReport",),
    "omnigraph.load.report": ("Engine", "LoadReport", "RejectedRecord"),
    "omnigraph.load.write": ("TableCounts", "WriteResult"),
    "omnigraph.maintenance.cleanup": ("CleanupReport", "TableCleanupStats"),
    "omnigraph.maintenance.maintain": (
        "MaintainReport",
        "Policy",
        "Step",
        "StepOutcome",
        "StepReport",
        "parse_policy",
    ),
    "omnigraph.maintenance.optimize": ("PendingIndex", "SkipReason", "TableOptimizeStats"),
    "omnigraph.maintenance.rebuild.rebuild": ("RebuildReport",),
    "omnigraph.maintenance.rebuild.tables": ("RebuiltTable", "SkippedVersion"),
    "omnigraph.maintenance.repair": ("Remedy", "RepairAction", "RepairReport", "TableRepair"),
    "omnigraph.maintenance.scrub": ("ScrubReport",),
    "omnigraph.maintenance.status": ("GraphStatus", "TableStatus"),
    "omnigraph.maintenance.status_report": ("StatusReport",),
    "omnigraph.merge.conflicts": ("ConflictKind",),
    "omnigraph.merge.merge": ("MergeResult",),
    "omnigraph.merge.plan": ("MergeOutcome",),
    "omnigraph.mutate.mutate": ("MutationResult",),
    "omnigraph.opening": (
        "VerifyReport",
        "backup",
        "clone",
        "import_data",
        "init",
        "open",
        "rebuild_manifest",
        "recover",
        "restore",
        "verify",
    ),
    "omnigraph.runner.protocol": ("StageMetrics",),
    "omnigraph.runner.progress": ("Progress",),
    "omnigraph.runner.session": ("SparkTarget",),
    "omnigraph.schema.catalog": ("Catalog", "EdgeType", "NodeType"),
    "omnigraph.storage.manifest.history": ("Recovery",),
    "omnigraph.storage.manifest_rows": ("GraphCommit", "GraphHead"),
    "omnigraph.storage.refs.holds": ("Hold", "LiveHold"),
    "omnigraph.storage.refs.references": ("Reference",),
    "omnigraph.storage.refs.tags": ("Tag",),
    "omnigraph.storage.snapshot": ("Snapshot", "TableEntry"),
    "omnigraph.validation.check": ("CheckReport", "Finding", "Problem"),
    "omnigraph.validation.constraints": ("WriteMode",),
    "omnigraph.validation.schema_contract": ("SchemaContract",),
    "omnigraph.validation.violations": ("Violation", "ViolationReport"),
    "omnigraph.view.drawing": ("View",),
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
