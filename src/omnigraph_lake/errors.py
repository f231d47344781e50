"""The error tree, grouped by effect, because that decides whether a caller may retry.

    OmnigraphError
    ├── NothingWrittenError          the call changed nothing; fix the cause and call again
    │   ├── InvalidInputError            exit 5
    │   │   ├── TextInvalidError             carries every diagnostic
    │   │   │   ├── SchemaInvalidError
    │   │   │   └── QueryInvalidError
    │   │   ├── SchemaRefusedError           carries the plan of a change that is not made
    │   │   └── ValidationFailedError        carries the report of violations
    │   │       └── LoadRefusedError             carries the report of a whole load
    │   │   └── InputTooLargeError           more rows than this process has memory for
    │   ├── NotFoundError                exit 3
    │   │   ├── NoLongerKeptError            it existed, and a cleanup removed it
    │   │   └── GraphReplacedError           another graph is at its root
    │   ├── ConflictError                exit 4
    │   │   ├── AlreadyInitialisedError
    │   │   ├── InitialisationClaimedError
    │   │   ├── HeadMovedError               the branch is at another commit
    │   │   ├── ExpectedVersionMismatchError a table changed concurrently
    │   │   ├── SchemaChangedError           the rows were validated against an older schema
    │   │   ├── ContentionError              lost every race it was allowed to run
    │   │   ├── OperationRunningError        the same operation id is in use
    │   │   ├── OperationRolledBackError     another process rolled it back
    │   │   └── MergeConflictError           carries every conflict as a table
    │   ├── ReadOnlyError                exit 6
    │   ├── ForkedProcessError           exit 1   a fork of a process that has used a graph
    │   ├── WrongClockError              exit 1   the system clock is before 1970
    │   ├── StorageUnavailableError      exit 7
    │   │   └── UnsafeStoreError             the store ignores put-if-absent
    │   ├── SparkUnavailableError        exit 1   no Spark to run on: what to install or start
    │   ├── SparkJobFailedError          exit 1   Spark gave up on a job
    │   ├── RunInterruptedError          exit 1   an algorithm stopped; it can be resumed
    │   ├── NotConvergedError            exit 1   an algorithm needs more rounds than allowed
    │   ├── FormatTooNewError            exit 1   upgrade omnigraph first
    │   ├── OtherFormatError             exit 1   written by another program of this name
    │   ├── IndexPendingError            exit 1   the rows do not allow an index yet
    │   ├── QueryFailedError             exit 1   a value could not be computed
    │   ├── QueryBudgetError             exit 1   the run needed more memory or time than it has
    │   ├── QueryCancelledError          exit 130 the query was cancelled
    │   ├── DamagedGraphError            exit 8   stored state is inconsistent
    │   └── DriftNeedsRepairError        exit 8   foreign rows above a pin
    ├── BranchGoneError              exit 4   what was written was deleted with its branch
    ├── MaintenanceIncompleteError   exit 1   a table failed, the others were kept
    ├── RecoveryRequiredError        exit 8   an unfinished write cannot be recovered automatically
    └── OutcomeUnknownError          exit 1   may or may not have been written

Every message names the thing, what was expected and found, the effect and the next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from omnigraph_lake.language.diagnostics import Diagnostic, render_all, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class OmnigraphError(Exception):
    """The base class of all errors of Omnigraph."""

    exit_code: ClassVar[int] = 1
    effect: ClassVar[str] = ""
    written: bool | None = None
    """Whether the call changed the graph; None if that is not known."""

    def __init__(self, what: str, *, next_step: str = "") -> None:
        self.what = _encodable(what)
        self.next_step = _encodable(next_step)
        super().__init__(self.what)

    def __str__(self) -> str:
        sentence = f"{self.what}; {self.effect}." if self.effect else f"{self.what}."
        return f"{sentence}\n{self.next_step}" if self.next_step else sentence


def _encodable(text: str) -> str:
    """A message that any file or terminal takes, though it names half a character."""
    return text.encode("utf-8", "backslashreplace").decode()


class NothingWrittenError(OmnigraphError):
    """The call changed nothing in the graph."""

    effect = "nothing was written"
    written = False


class InvalidInputError(NothingWrittenError):
    """The input is invalid."""

    exit_code = 5


class TextInvalidError(InvalidInputError):
    """A text with at least one error; `diagnostics` holds all findings in source order."""

    def __init__(self, filename: str, diagnostics: Sequence[Diagnostic], *, text: str) -> None:
        count = len(diagnostics)
        super().__init__(f"{filename} has {count} problem{'s' if count != 1 else ''}")
        self.filename = filename
        self.diagnostics = tuple(diagnostics)
        self.text = text

    def __str__(self) -> str:
        findings = render_all(self.diagnostics, text=self.text, filename=self.filename)
        return f"{super().__str__()}\n\n{findings}"


class SchemaInvalidError(TextInvalidError):
    """A schema text with at least one error."""


class QueryInvalidError(TextInvalidError):
    """A query text with at least one error."""


class SchemaRefusedError(InvalidInputError):
    """A schema change that is not supported, or that rows violate; `plan` is the whole plan."""

    def __init__(self, what: str, details: str, *, plan: object) -> None:
        super().__init__(what)
        self.details = details
        self.plan = plan

    def __str__(self) -> str:
        return f"{self.what}; {self.effect}.\n{self.details}"


class ValidationFailedError(InvalidInputError):
    """Rows that violate the schema; `report` counts all violations and lists the first."""

    def __init__(
        self, summary: str, *, report: object, next_step: str = "Fix these rows and retry."
    ) -> None:
        super().__init__(summary, next_step=next_step)
        self.report = report


class LoadRefusedError(ValidationFailedError):
    """A load that rejected more records than allowed; `report` counts them and lists the first."""

    def __init__(self, what: str, *, report: object, details: str, next_step: str) -> None:
        super().__init__(what, report=report, next_step=next_step)
        self.details = details

    def __str__(self) -> str:
        return f"{self.what}; {self.effect}.\n{self.details}\n{self.next_step}"


class InputTooLargeError(InvalidInputError):
    """More rows at once than this process has memory for."""

    def __init__(self, what: str, *, needed: int, allowed: int) -> None:
        super().__init__(
            f"{what} need at least {needed:,} bytes of memory at once, and {allowed:,} are allowed",
            next_step="Write in smaller parts, load the rows from files, which may have any size, "
            "or allow more with OMNIGRAPH_ROWS_MEMORY=8GB.",
        )


class NotFoundError(NothingWrittenError):
    """A graph, type, branch or version that does not exist."""

    exit_code = 3


class NoLongerKeptError(NotFoundError):
    """The data existed once, and a cleanup has removed it."""


class GraphReplacedError(NotFoundError):
    """Another graph was created where the graph that was opened had been."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"the graph that was opened at {root} is gone; another one was created there since",
            next_step=f"Open the new one with `og.open({root!r})`.",
        )


class ConflictError(NothingWrittenError):
    """A concurrent writer was faster."""

    exit_code = 4


class AlreadyInitialisedError(ConflictError):
    """The root already contains a graph."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"{root} already contains a graph",
            next_step=f"Run `omnigraph status {root}` to look at it, or choose another root.",
        )
        self.root = root


class InitialisationClaimedError(ConflictError):
    """Another initialisation claimed the root and has not finished."""

    def __init__(self, root: str, *, claimed_at: str) -> None:
        super().__init__(
            f"{root} was claimed by an initialisation that started at {claimed_at} "
            "and has not finished",
            next_step=f"If that process is dead, run `omnigraph init {root} --force`.",
        )
        self.root = root
        self.claimed_at = claimed_at


class ExpectedVersionMismatchError(ConflictError):
    """A table that the write depends on was published by a concurrent writer."""

    def __init__(self, table_key: str, *, expected: object, actual: object | None) -> None:
        super().__init__(
            f"{table_key} changed concurrently: expected version {expected}, found "
            f"{'no published version' if actual is None else f'version {actual}'}",
            next_step="Read the graph again and repeat the write.",
        )
        self.table_key = table_key
        self.expected = expected
        self.actual = actual


class HeadMovedError(ConflictError):
    """The branch is not at the commit that the caller expects."""

    def __init__(self, branch: str, *, expected: str, found: str) -> None:
        super().__init__(
            f"branch {branch!r} is at commit {found}, expected {shown(expected)}",
            next_step="Read the graph again and retry with the commit that was read.",
        )
        self.found = found


class SchemaChangedError(ConflictError):
    """The branch has another schema than the one the work was prepared for."""

    def __init__(self, branch: str, *, expected: str, found: str, is_early: bool = False) -> None:
        super().__init__(
            f"the schema of {branch} was changed concurrently: this was prepared for "
            f"{expected[:12]}, and {found[:12]} is in force",
            next_step="Run it again; it then uses the new schema.",
        )
        self.found = found
        self.is_early = is_early  # nothing had begun: the same operation may be tried again


class ContentionError(ConflictError):
    """Other writers won every race this operation was allowed to run."""

    def __init__(self, operation_id: str, attempts: int) -> None:
        super().__init__(
            f"operation {operation_id} lost {attempts} races against other writers",
            next_step="Retry the write, in larger commits or on a separate branch.",
        )
        self.operation_id = operation_id
        self.attempts = attempts


class OperationRunningError(ConflictError):
    """Another process is writing with the same operation id."""

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            f"operation {operation_id} is already running",
            next_step=f"Ask `graph.outcome({operation_id!r})` for its result.",
        )
        self.operation_id = operation_id


class OperationRolledBackError(ConflictError):
    """Another process rolled back the operation, because its writer seemed dead."""

    def __init__(self, operation_id: str, *, by: str) -> None:
        super().__init__(
            f"operation {operation_id} was rolled back by {by}",
            next_step="Repeat the write under a new operation id.",
        )
        self.operation_id = operation_id
        self.by = by


class MergeConflictError(ConflictError):
    """Both sides changed the same rows, or the merged rows violate the schema.

    `conflicts` is an Arrow table, one row per conflict.
    """

    def __init__(self, what: str, *, conflicts: object, details: str, next_step: str) -> None:
        super().__init__(what, next_step=next_step)
        self.conflicts = conflicts
        self.details = details

    def __str__(self) -> str:
        return f"{self.what}; {self.effect}.\n{self.details}\n{self.next_step}"


class ReadOnlyError(NothingWrittenError):
    """A write through a handle that was opened for reading."""

    exit_code = 6


class ForkedProcessError(NothingWrittenError):
    """The process is a fork of one that has used a graph, whose threads it did not inherit."""

    def __init__(self, pid: int) -> None:
        super().__init__(
            f"process {pid} is a fork of a process that had used a graph, and Lance does not work "
            "in a fork: a read or write could hang",
            next_step="Start processes with the `spawn` method: "
            '`multiprocessing.get_context("spawn")`; or fork before the first graph is opened.',
        )


class WrongClockError(NothingWrittenError):
    """The system clock is set to a time before 1970, which Lance does not support."""

    def __init__(self) -> None:
        super().__init__(
            "the system clock is set to a time before 1970",
            next_step="Set the clock (`date -u` shows it), then run it again.",
        )


class StorageUnavailableError(NothingWrittenError):
    """The store did not respond, or refused."""

    exit_code = 7


class UnsafeStoreError(StorageUnavailableError):
    """The store overwrites an object that put-if-absent must protect."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"the store under {root} ignores put-if-absent, so two writers could both win",
            next_step="Open it for reading (`read_only=True`), or move the graph to another store.",
        )
        self.root = root


class SparkUnavailableError(NothingWrittenError):
    """The work needs Spark, and there is none: not installed, without Java, silent, or too old."""


class SparkJobFailedError(NothingWrittenError):
    """Spark gave up on a job after its own retries."""


class RunInterruptedError(NothingWrittenError):
    """A run of an algorithm stopped between two rounds, and can be resumed."""

    def __init__(self, algorithm: str, *, operation_id: str, rounds: int, cause: str) -> None:
        super().__init__(
            f"operation {operation_id} ({algorithm}) stopped after {rounds} complete rounds: "
            f"{cause}",
            next_step=f"Call it again with the same arguments and operation_id={operation_id!r} to "
            "continue after these rounds, or with a new id to start over.",
        )
        self.operation_id = operation_id
        self.rounds = rounds


class NotConvergedError(NothingWrittenError):
    """An algorithm did not converge in the rounds that it was allowed."""


class FormatTooNewError(NothingWrittenError):
    """The graph was written by a newer Omnigraph."""

    def __init__(self, root: str, *, found: int, supported: int) -> None:
        super().__init__(
            f"{root} has internal format {found}, this Omnigraph supports up to {supported}",
            next_step="Upgrade omnigraph first: `pip install --upgrade omnigraph-lake`.",
        )
        self.root = root
        self.found = found
        self.supported = supported


class OtherFormatError(NothingWrittenError):
    """The graph has the format of another program that goes by the name Omnigraph."""

    def __init__(self, what: str, *, writer: str) -> None:
        super().__init__(
            f"{what} is in the format of {writer}, which is not read here",
            next_step="Export the rows with that program, and load them into a new graph in the "
            "dialect 0.7.",
        )
        self.writer = writer


class IndexPendingError(NothingWrittenError):
    """An index cannot be built from the existing rows yet; reported, never fatal."""


class QueryFailedError(NothingWrittenError):
    """A value could not be computed, such as a sum that overflows 64 bits."""


class QueryBudgetError(NothingWrittenError):
    """The run needed more memory or time than it was allowed."""


class QueryCancelledError(NothingWrittenError):
    """The query was cancelled before its end."""

    exit_code = 130


class DamagedGraphError(NothingWrittenError):
    """The stored state is inconsistent."""

    exit_code = 8


class DriftNeedsRepairError(NothingWrittenError):
    """A table's HEAD holds rows that were never published and were not made by Omnigraph."""

    exit_code = 8

    def __init__(
        self, table_key: str, *, published: int, foreign: int, root: str, branch: str | None
    ) -> None:
        on_branch = "" if branch is None else f" --branch {branch}"
        super().__init__(
            f"{table_key} is published at version {published}, but version {foreign} was not "
            "written by Omnigraph",
            next_step=f"Run `omnigraph repair {root}{on_branch}` to inspect it.",
        )
        self.table_key = table_key
        self.published = published
        self.foreign = foreign


class BranchGoneError(OmnigraphError):
    """The branch was deleted, and perhaps created again, during a write to it."""

    exit_code = 4
    effect = "what was written was deleted with it, though others may have read it before"

    def __init__(self, branch: str, *, root: str) -> None:
        super().__init__(
            f"branch {branch!r} of {root} was deleted concurrently",
            next_step=f"Run `omnigraph branch list {root}`; a branch created since with that "
            "name is a different one.",
        )
        self.branch = branch


class MaintenanceIncompleteError(OmnigraphError):
    """Maintenance failed for some tables; `report` covers all."""

    effect = "the work on the other tables is kept"

    def __init__(
        self,
        verb: str,
        errors: Mapping[str, OmnigraphError],
        *,
        report: object,
        root: str,
        written: bool,
    ) -> None:
        table_key, first = next(iter(sorted(errors.items())))
        others = f" and {len(errors) - 1} more tables" if len(errors) > 1 else ""
        super().__init__(
            f"{verb} failed for {table_key}{others}: {first.what}",
            next_step=f"Fix the cause, then run `omnigraph {verb} {root}` again.",
        )
        self.errors = dict(errors)
        self.report = report
        self.written = written


class RecoveryRequiredError(OmnigraphError):
    """An unfinished write that cannot be finished or rolled back automatically."""

    exit_code = 8
    effect = "nothing was changed"
    written = False


class OutcomeUnknownError(OmnigraphError):
    """The store stopped responding during the deciding write."""

    effect = "it may or may not have been written"

    def __init__(self, what: str, *, next_step: str = "", operation_id: str = "") -> None:
        super().__init__(what, next_step=next_step)
        self.operation_id = operation_id

    @classmethod
    def of(
        cls, operation_id: str, root: str, *, upgraded: bool = False, disk_full: bool = False
    ) -> OutcomeUnknownError:
        """A publish whose answer could not be read back; `upgraded` if the format was changed."""
        if upgraded:
            return cls(
                f"{root} was upgraded to a newer internal format while operation {operation_id} "
                "was in progress; the newer Omnigraph finishes it or rolls it back",
                next_step="Upgrade omnigraph (`pip install --upgrade omnigraph-lake`), "
                f"open the graph, and ask `graph.outcome({operation_id!r})`.",
                operation_id=operation_id,
            )
        if disk_full:
            return cls(
                f"the disk is full, so that operation {operation_id} on {root} is neither "
                "committed nor undone",
                next_step=f"Free space on that disk (`df -h {root}` shows it), then ask "
                f"`graph.outcome({operation_id!r})`.",
                operation_id=operation_id,
            )
        return cls(
            f"the store stopped responding while operation {operation_id} on {root} was committed",
            next_step=f"Ask `graph.outcome({operation_id!r})` when the store responds again.",
            operation_id=operation_id,
        )
