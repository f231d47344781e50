"""A typed property graph over Lance datasets, with branches, merges and a Spark pipeline.

    import omnigraph_lake as og

    graph = og.init("./g", schema=Path("people.pg"))
    graph.write({"Person": [{"email": "ann@example.org", "name": "Ann"}]})
    graph.get("Person", "ann@example.org")

    with og.open("./g", read_only=True) as graph:
        graph.query("match { $p: Person } return { $p.name }")

`Graph` and its namespaces (`branches`, `tags`, `schema`, `maintenance`, `holds`) are the whole
interface; every type of a result or an error is importable from here. `og.spark` has what
users of Spark need. Importing this package is cheap: Lance and Arrow are loaded with the first
graph.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from omnigraph_lake.api.algorithms import AlgorithmResult, Algorithms
    from omnigraph_lake.api.blame import RowChange, RowHistory
    from omnigraph_lake.api.branches import Branches
    from omnigraph_lake.api.commit_log import CommitLog
    from omnigraph_lake.api.holds import Holds
    from omnigraph_lake.api.maintenance import Maintenance
    from omnigraph_lake.api.options import (
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
    from omnigraph_lake.api.schema import Schema, SchemaView
    from omnigraph_lake.api.tags import Tags
    from omnigraph_lake.commit.diverged_branches import DivergedBranch
    from omnigraph_lake.commit.orphans import Fate, ListedFork, ReconcileReport
    from omnigraph_lake.commit.publish import OperationStatus
    from omnigraph_lake.commit.recovery import RecoveryReport
    from omnigraph_lake.commit.refs import BranchInfo
    from omnigraph_lake.creation.copying import CopyKind, CopyReport
    from omnigraph_lake.diff.change_feed import (
        Baseline,
        BaselineEnd,
        BaselineTable,
        ChangeFeed,
        CommitChanges,
        TableChanges,
    )
    from omnigraph_lake.diff.diff import GraphDiff, TypeDiff
    from omnigraph_lake.display.pages import Listing
    from omnigraph_lake.engine.blobs import Blob
    from omnigraph_lake.engine.query_result import QueryResult
    from omnigraph_lake.engine.query_text import StoredQueries, StoredQuery
    from omnigraph_lake.errors import (
        AlreadyInitialisedError,
        BranchGoneError,
        ConflictError,
        ContentionError,
        DamagedGraphError,
        DriftNeedsRepairError,
        ExpectedVersionMismatchError,
        ForkedProcessError,
        FormatTooNewError,
        GraphReplacedError,
        HeadMovedError,
        IndexPendingError,
        InitialisationClaimedError,
        InputTooLargeError,
        InvalidInputError,
        LoadRefusedError,
        MaintenanceIncompleteError,
        MergeConflictError,
        NoLongerKeptError,
        NotConvergedError,
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
    from omnigraph_lake.evolution.apply_schema import SchemaResult
    from omnigraph_lake.evolution.plan.plan import Remains
    from omnigraph_lake.evolution.plan.planning import Evolution, RefusedQuery
    from omnigraph_lake.graph import Graph, GraphView
    from omnigraph_lake.importer.import_report import ImportedSource, ImportReport, RejectedCause
    from omnigraph_lake.language.diagnostics import Diagnostic
    from omnigraph_lake.load.export import ExportReport
    from omnigraph_lake.load.report import (
        Engine,
        LoadReport,
        RejectedRecord,
        RejectedRecords,
        ReplacedRecord,
        TypeAccount,
    )
    from omnigraph_lake.load.write import TableCounts, WriteResult
    from omnigraph_lake.maintenance.cleanup import CleanupReport, TableCleanupStats
    from omnigraph_lake.maintenance.maintain import (
        MaintainReport,
        Policy,
        Step,
        StepOutcome,
        StepReport,
        parse_policy,
    )
    from omnigraph_lake.maintenance.optimize import PendingIndex, SkipReason, TableOptimizeStats
    from omnigraph_lake.maintenance.rebuild.rebuild import RebuildReport
    from omnigraph_lake.maintenance.rebuild.tables import RebuiltTable, SkippedVersion
    from omnigraph_lake.maintenance.repair import Remedy, RepairAction, RepairReport, TableRepair
    from omnigraph_lake.maintenance.scrub import ScrubReport
    from omnigraph_lake.maintenance.status import GraphStatus, TableStatus
    from omnigraph_lake.maintenance.status_report import StatusReport
    from omnigraph_lake.merge.conflicts import ConflictKind
    from omnigraph_lake.merge.merge import MergeResult
    from omnigraph_lake.merge.plan import MergeOutcome
    from omnigraph_lake.merge.undo import UndoResult
    from omnigraph_lake.mutate.mutate import MutationResult
    from omnigraph_lake.opening import (
        VerifyReport,
        backup,
        clone,
        import_data,
        init,
        rebuild_manifest,
        recover,
        restore,
        verify,
    )
    from omnigraph_lake.opening import open as open  # noqa: A004 - public as og.open
    from omnigraph_lake.runner.progress import Progress
    from omnigraph_lake.runner.protocol import StageMetrics
    from omnigraph_lake.runner.session import SparkTarget
    from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
    from omnigraph_lake.storage.manifest.history import Recovery
    from omnigraph_lake.storage.manifest_rows import GraphCommit, GraphHead
    from omnigraph_lake.storage.refs.holds import Hold, LiveHold
    from omnigraph_lake.storage.refs.references import Reference
    from omnigraph_lake.storage.refs.tags import Tag
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
    from omnigraph_lake.validation.check import CheckReport, Finding, Problem
    from omnigraph_lake.validation.constraints import WriteMode
    from omnigraph_lake.validation.schema_contract import SchemaContract
    from omnigraph_lake.validation.violations import Violation, ViolationReport
    from omnigraph_lake.view.drawing import View

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
    "GraphReplacedError",
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
    "NotConvergedError",
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
    "RefusedQuery",
    "RejectedCause",
    "RejectedRecord",
    "RejectedRecords",
    "Remains",
    "Remedy",
    "RepairAction",
    "RepairReport",
    "ReplacedRecord",
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
    "TypeAccount",
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
    "parse_policy",
    "rebuild_manifest",
    "recover",
    "restore",
    "verify",
]

_HOMES = {
    "omnigraph_lake.api.algorithms": ("AlgorithmResult", "Algorithms"),
    "omnigraph_lake.api.branches": ("Branches",),
    "omnigraph_lake.api.holds": ("Holds",),
    "omnigraph_lake.api.maintenance": ("Maintenance",),
    "omnigraph_lake.api.options": (
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
    "omnigraph_lake.engine.blobs": ("Blob",),
    "omnigraph_lake.api.schema": ("Schema", "SchemaView"),
    "omnigraph_lake.api.tags": ("Tags",),
    "omnigraph_lake.commit.orphans": ("Fate", "ListedFork", "ReconcileReport"),
    "omnigraph_lake.commit.publish": ("OperationStatus",),
    "omnigraph_lake.commit.recovery": ("RecoveryReport",),
    "omnigraph_lake.commit.refs": ("BranchInfo",),
    "omnigraph_lake.creation.copying": ("CopyKind", "CopyReport"),
    "omnigraph_lake.diff.change_feed": (
        "Baseline",
        "BaselineEnd",
        "BaselineTable",
        "ChangeFeed",
        "CommitChanges",
        "TableChanges",
    ),
    "omnigraph_lake.diff.diff": ("GraphDiff", "TypeDiff"),
    "omnigraph_lake.display.pages": ("Listing",),
    "omnigraph_lake.engine.query_result": ("QueryResult",),
    "omnigraph_lake.engine.query_text": ("StoredQueries", "StoredQuery"),
    "omnigraph_lake.errors": (
        "AlreadyInitialisedError",
        "BranchGoneError",
        "ConflictError",
        "ContentionError",
        "DamagedGraphError",
        "DriftNeedsRepairError",
        "ExpectedVersionMismatchError",
        "ForkedProcessError",
        "FormatTooNewError",
        "GraphReplacedError",
        "HeadMovedError",
        "IndexPendingError",
        "InitialisationClaimedError",
        "InputTooLargeError",
        "InvalidInputError",
        "LoadRefusedError",
        "MaintenanceIncompleteError",
        "MergeConflictError",
        "NoLongerKeptError",
        "NotConvergedError",
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
    "omnigraph_lake.evolution.apply_schema": ("SchemaResult",),
    "omnigraph_lake.commit.diverged_branches": ("DivergedBranch",),
    "omnigraph_lake.evolution.plan.plan": ("Remains",),
    "omnigraph_lake.evolution.plan.planning": ("Evolution", "RefusedQuery"),
    "omnigraph_lake.api.commit_log": ("CommitLog",),
    "omnigraph_lake.api.blame": (
        "RowHistory",
        "RowChange",
    ),
    "omnigraph_lake.merge.undo": ("UndoResult",),
    "omnigraph_lake.graph": ("Graph", "GraphView"),
    "omnigraph_lake.importer.import_report": ("ImportReport", "ImportedSource", "RejectedCause"),
    "omnigraph_lake.language.diagnostics": ("Diagnostic",),
    "omnigraph_lake.load.export": ("ExportReport",),
    "omnigraph_lake.load.report": (
        "Engine",
        "LoadReport",
        "RejectedRecord",
        "RejectedRecords",
        "ReplacedRecord",
        "TypeAccount",
    ),
    "omnigraph_lake.load.write": ("TableCounts", "WriteResult"),
    "omnigraph_lake.maintenance.cleanup": ("CleanupReport", "TableCleanupStats"),
    "omnigraph_lake.maintenance.maintain": (
        "MaintainReport",
        "Policy",
        "Step",
        "StepOutcome",
        "StepReport",
        "parse_policy",
    ),
    "omnigraph_lake.maintenance.optimize": ("PendingIndex", "SkipReason", "TableOptimizeStats"),
    "omnigraph_lake.maintenance.rebuild.rebuild": ("RebuildReport",),
    "omnigraph_lake.maintenance.rebuild.tables": ("RebuiltTable", "SkippedVersion"),
    "omnigraph_lake.maintenance.repair": ("Remedy", "RepairAction", "RepairReport", "TableRepair"),
    "omnigraph_lake.maintenance.scrub": ("ScrubReport",),
    "omnigraph_lake.maintenance.status": ("GraphStatus", "TableStatus"),
    "omnigraph_lake.maintenance.status_report": ("StatusReport",),
    "omnigraph_lake.merge.conflicts": ("ConflictKind",),
    "omnigraph_lake.merge.merge": ("MergeResult",),
    "omnigraph_lake.merge.plan": ("MergeOutcome",),
    "omnigraph_lake.mutate.mutate": ("MutationResult",),
    "omnigraph_lake.opening": (
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
    "omnigraph_lake.runner.protocol": ("StageMetrics",),
    "omnigraph_lake.runner.progress": ("Progress",),
    "omnigraph_lake.runner.session": ("SparkTarget",),
    "omnigraph_lake.schema.catalog": ("Catalog", "EdgeType", "NodeType"),
    "omnigraph_lake.storage.manifest.history": ("Recovery",),
    "omnigraph_lake.storage.manifest_rows": ("GraphCommit", "GraphHead"),
    "omnigraph_lake.storage.refs.holds": ("Hold", "LiveHold"),
    "omnigraph_lake.storage.refs.references": ("Reference",),
    "omnigraph_lake.storage.refs.tags": ("Tag",),
    "omnigraph_lake.storage.snapshot": ("Snapshot", "TableEntry"),
    "omnigraph_lake.validation.check": ("CheckReport", "Finding", "Problem"),
    "omnigraph_lake.validation.constraints": ("WriteMode",),
    "omnigraph_lake.validation.schema_contract": ("SchemaContract",),
    "omnigraph_lake.validation.violations": ("Violation", "ViolationReport"),
    "omnigraph_lake.view.drawing": ("View",),
}
"""Where the public names are, by module; they are imported when they are first used."""

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


_MODULES = ("errors", "spark")
"""Modules that users name through the package: `omnigraph_lake.spark.OmnigraphDataSource`."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _importlib.import_module(f"omnigraph_lake.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'omnigraph_lake' has no attribute {name!r}")
    value = getattr(_importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # `import *` leaves the `open` of Python alone.
    return sorted([*__all__, "open"])
