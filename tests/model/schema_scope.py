"""What one search of schema changes covers: who takes part, and which guard is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tests.model.schema_edits import Change

SchemaMutant = Literal[
    "contract_late",
    "before_unstored",
    "promote_own_text",
    "promote_unchecked",
    "apply_blind",
    "lock_trusted",
    "lock_sticks",
    "apply_no_reads",
    "apply_no_pins",
    "apply_replans",
    "apply_early_fail",
    "rename_stale_pin",
    "place_by_key",
    "discard_before_abort",
    "discard_unread",
    "discard_after_sidecar",
    "discard_never",
    "files_believed",
    "state_file_believed",
    "read_twice",
    "write_blind",
    "retry_old_contract",
    "restart_in_place",
    "maintenance_blind",
    "forward_write_blind",
    "forward_maintenance_blind",
    "forward_apply_blind",
    "forward_no_reads",
    "forward_no_pins",
    "forward_unmoved",
    "forward_uncreated",
    "discard_unfenced",
    "discard_published",
    "discard_armed_only",
    "follow_up_bare",
    "rows_without_schema",
    "schema_without_rows",
    "rows_on_any_head",
    "forward_columns",
    "heal_on_columns",
]

SCHEMA_MUTANTS: Final[dict[SchemaMutant, str]] = {
    # the contract and its copy
    "contract_late": "the contract object is put after the publish that names it",
    "before_unstored": "the first apply does not store the contract that was in force before",
    "promote_own_text": "the root files get the applier's text, not that of the stored contract",
    # an apply
    "apply_blind": "the publish of an apply does not expect the schema it was planned on",
    "lock_trusted": "the same, because the applier holds the lock",
    "lock_sticks": "a lock is never taken over",
    "apply_no_reads": "the publish does not expect the pins of tables that were only checked",
    "apply_no_pins": "the publish does not expect the pins of tables that the apply moves",
    "apply_replans": "an apply that finds another schema plans anew instead of failing",
    "apply_early_fail": "an armed apply is reported as failed without a row that says so",
    "rename_stale_pin": "a renamed table keeps the pin of the plan, not that of the publish",
    "place_by_key": "the place of a new table is named after its key only",
    "discard_before_abort": "a failing apply removes its new tables before it is decided",
    "discard_unread": "an apply that fails unarmed removes its new tables without reading its row",
    "discard_after_sidecar": "a failing apply removes its new tables after its sidecar",
    "discard_never": "a failing apply leaves its new tables behind",
    # an apply that also writes rows
    "rows_without_schema": "the publish pins the rows and leaves the schema as it was",
    "schema_without_rows": "the publish takes the version with the columns, before there are rows",
    "rows_on_any_head": "rows that landed on anything but the new columns are published",
    "heal_on_columns": "a writer takes another operation's new columns for the pinned content",
    # readers and writers
    "files_believed": "a reader takes the root files for the schema of the manifest it read",
    "state_file_believed": "a reader compares the hash in the state file and no other file",
    "read_twice": "a reader takes the schema from one manifest state and the pins from a later one",
    "write_blind": "the publish of a write does not expect the schema it was validated with",
    "retry_old_contract": "a retry takes new pins and the new hash, but validates as before",
    "restart_in_place": "a write that finds another schema validates anew, as the same operation",
    "maintenance_blind": "the publish of a compaction does not expect the schema",
    # the sweep
    "forward_write_blind": "the sweep rolls a write forward without comparing the schema",
    "forward_maintenance_blind": "the sweep rolls a compaction forward whatever the schema is",
    "forward_apply_blind": "the sweep rolls an apply forward without comparing the schema",
    "forward_no_reads": "the sweep rolls an apply forward without the pins of checked tables",
    "forward_no_pins": "the sweep rolls an apply forward without the pins of moved tables",
    "forward_unmoved": "the sweep rolls an apply forward though a table has not moved",
    "forward_uncreated": "the sweep rolls an apply forward though a new table is missing",
    "forward_columns": "the sweep takes the version with the columns for the operation's",
    "discard_unfenced": "the sweep removes new tables before it decides",
    "discard_published": "the sweep removes new tables though the apply was published",
    "discard_armed_only": "the sweep removes only new tables that the sidecar names",
    "follow_up_bare": "of an apply that its applier decided, the sweep removes only the sidecar",
}
"""Every guard of schema changes, by the mutant that removes it. Each one must be caught."""

SCHEMA_NOT_A_GUARD: Final[SchemaMutant] = "promote_unchecked"
"""Whoever promotes does not look whether its schema is still in force: nobody believes the copy."""

OpKind = Literal["apply", "write", "maintenance"]

WRITES: Final = 100
MAINTENANCE_RUNS: Final = 200
"""Where the numbers of operations begin; those of applies begin with 0."""

NEW_PLACES: Final = 10
"""Where the places of new tables begin; the first tables lie at their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaScope:
    """Bounds of one search."""

    appliers: tuple[Change, ...] = ()
    writers: tuple[int, ...] = ()  # per writer: the number of the type it writes
    maintenance_runs: tuple[int, ...] = ()  # per compaction: the number of the type
    readers: int = 0
    sweeps: int = 0
    attempts: int = 2  # of a writer or an applier that finds pins moved
    same_operation: bool = False  # all appliers carry out one operation of one caller, again
    lock: bool = False  # appliers take the lock
    stored: bool = True  # the first contract has an object; otherwise only root files
    create_first: bool = False  # new tables are made before the sidecar names them
    gives_up: bool = False  # an applier may fail after it made its new tables
    mutant: SchemaMutant | None = None

    def apply_of(self, number: int) -> int:
        """The operation of an applier."""
        return 0 if self.same_operation else number

    def kind_of(self, op: int) -> OpKind:
        if op < WRITES:
            return "apply"
        return "write" if op < MAINTENANCE_RUNS else "maintenance"

    def change_of(self, op: int) -> Change:
        return self.appliers[op]

    def writes_rows(self, op: int) -> bool:
        """Whether an apply also writes rows, into the table of type 0."""
        return self.kind_of(op) == "apply" and "rows" in self.change_of(op)

    def type_of(self, op: int) -> int:
        """The number of the type that a write or a compaction works on."""
        return (
            self.writers[op - WRITES]
            if op < MAINTENANCE_RUNS
            else self.maintenance_runs[op - MAINTENANCE_RUNS]
        )

    def place_of(self, op: int) -> int:
        """Where an apply makes a new table."""
        return NEW_PLACES if self.mutant == "place_by_key" else NEW_PLACES + op
