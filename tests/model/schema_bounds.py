"""The searches of schema changes, and for every mutant one that catches it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from tests.model.bounds import Counts
from tests.model.schema_edits import NOTE, Change
from tests.model.schema_scope import SCHEMA_NOT_A_GUARD, SchemaMutant, SchemaScope

COLUMNS: Final[Change] = ("columns",)
COLUMNS_AND_ROWS: Final[Change] = ("columns", "rows")
CHECK: Final[Change] = ("check",)
UNCHECK: Final[Change] = ("uncheck",)
CREATE: Final[Change] = ("create",)
RENAME: Final[Change] = ("rename",)
SWAP: Final[Change] = ("swap",)
DROP: Final[Change] = ("drop",)
MUCH: Final[Change] = ("columns", "check", "create", "rename")


class SchemaBound(NamedTuple):
    """A search and what it must find: nothing, in exactly this many states."""

    name: str
    scope: SchemaScope
    counts: Counts


class CaughtSchema(NamedTuple):
    """A search that ends at a violation after this many steps."""

    scope: SchemaScope
    steps: int


QUICK_SCHEMAS: Final[tuple[SchemaBound, ...]] = (
    SchemaBound(
        "schema: columns, reader, sweep, of a graph without a stored contract",
        SchemaScope(appliers=(COLUMNS,), readers=1, sweeps=1, stored=False),
        Counts(states=1_910, transitions=4_879, depth=25),
    ),
    SchemaBound(
        "schema: check, writer of the checked table, sweep",
        SchemaScope(appliers=(CHECK,), writers=(1,), sweeps=1),
        Counts(states=5_405, transitions=14_025, depth=28),
    ),
    SchemaBound(
        "schema: columns, writer of that table, sweep",
        SchemaScope(appliers=(COLUMNS,), writers=(0,), sweeps=1),
        Counts(states=11_480, transitions=29_548, depth=34),
    ),
    SchemaBound(
        "schema: columns with rows, writer of that table, sweep",
        SchemaScope(appliers=(COLUMNS_AND_ROWS,), writers=(0,), sweeps=1),
        Counts(states=16_946, transitions=43_339, depth=36),
    ),
    SchemaBound(
        "schema: columns with rows, one operation twice, may fail, sweep",
        SchemaScope(
            appliers=(COLUMNS_AND_ROWS, COLUMNS_AND_ROWS),
            sweeps=1,
            same_operation=True,
            gives_up=True,
        ),
        Counts(states=3_925, transitions=8_850, depth=35),
    ),
    SchemaBound(
        "schema: 2 loads that bring the same columns, with rows",
        SchemaScope(appliers=(COLUMNS_AND_ROWS, COLUMNS_AND_ROWS)),
        Counts(states=2_002, transitions=3_456, depth=35),
    ),
    SchemaBound(
        "schema: columns and check, writer of the checked table, sweep",
        SchemaScope(appliers=((*COLUMNS, *CHECK),), writers=(1,), sweeps=1),
        Counts(states=6_014, transitions=15_663, depth=29),
    ),
    SchemaBound(
        "schema: much at once, writer, sweep",
        SchemaScope(appliers=(MUCH,), writers=(0,), sweeps=1),
        Counts(states=13_109, transitions=33_775, depth=35),
    ),
    SchemaBound(
        "schema: columns and a new table, may fail, 2 sweeps",
        SchemaScope(appliers=((*CREATE, *COLUMNS),), sweeps=2, gives_up=True),
        Counts(states=401, transitions=758, depth=22),
    ),
    SchemaBound(
        "schema: the same, the table made before it is named",
        SchemaScope(appliers=((*CREATE, *COLUMNS),), sweeps=2, gives_up=True, create_first=True),
        Counts(states=405, transitions=769, depth=22),
    ),
    SchemaBound(
        "schema: 2 applies that make one table, sweep",
        SchemaScope(appliers=(CREATE, CREATE), sweeps=1),
        Counts(states=15_274, transitions=40_304, depth=31),
    ),
    SchemaBound(
        "schema: 2 applies with the lock, sweep",
        SchemaScope(appliers=(CREATE, COLUMNS), sweeps=1, lock=True),
        Counts(states=31_978, transitions=83_009, depth=39),
    ),
    SchemaBound(
        "schema: one operation twice, may fail, sweep",
        SchemaScope(appliers=(CREATE, CREATE), sweeps=1, same_operation=True, gives_up=True),
        Counts(states=4_481, transitions=10_261, depth=32),
    ),
    SchemaBound(
        "schema: the same, the table made before it is named, twice",
        SchemaScope(
            appliers=(CREATE, CREATE),
            sweeps=1,
            same_operation=True,
            gives_up=True,
            create_first=True,
        ),
        Counts(states=4_104, transitions=9_302, depth=32),
    ),
    SchemaBound(
        "schema: keys exchanged, compaction, sweep",
        SchemaScope(appliers=(SWAP,), maintenance_runs=(0,), sweeps=1),
        Counts(states=6_689, transitions=17_362, depth=28),
    ),
    SchemaBound(
        "schema: type dropped, writer of it, sweep",
        SchemaScope(appliers=(DROP,), writers=(1,), sweeps=1),
        Counts(states=5_081, transitions=12_963, depth=28),
    ),
    SchemaBound(
        "schema: check and its removal, so that a hash comes back, writer",
        SchemaScope(appliers=(CHECK, UNCHECK), writers=(1,)),
        Counts(states=5_382, transitions=12_884, depth=34),
    ),
    SchemaBound(
        "schema: 2 applies, reader",
        SchemaScope(appliers=(COLUMNS, RENAME), readers=1),
        Counts(states=5_848, transitions=14_058, depth=30),
    ),
)

FULL_SCHEMAS: Final[tuple[SchemaBound, ...]] = (
    SchemaBound(
        "schema: columns with rows, writer, compaction",
        SchemaScope(appliers=(COLUMNS_AND_ROWS,), writers=(0,), maintenance_runs=(0,)),
        Counts(states=60_025, transitions=142_526, depth=40),
    ),
    SchemaBound(
        "schema: 2 applies with the lock, writer",
        SchemaScope(appliers=(COLUMNS, CREATE), writers=(0,), lock=True),
        Counts(states=33_796, transitions=83_741, depth=45),
    ),
    SchemaBound(
        "schema: much at once, 2 writers",
        SchemaScope(appliers=(MUCH,), writers=(0, 1)),
        Counts(states=8_824, transitions=22_318, depth=36),
    ),
    SchemaBound(
        "schema: much at once, writer, reader, sweep",
        SchemaScope(appliers=(MUCH,), writers=(0,), readers=1, sweeps=1, attempts=1),
        Counts(states=116_912, transitions=386_981, depth=33),
    ),
    SchemaBound(
        "schema: 2 applies, reader, sweep, of a graph without a stored contract",
        SchemaScope(appliers=(COLUMNS, CREATE), readers=1, sweeps=1, attempts=1, stored=False),
        Counts(states=271_044, transitions=899_746, depth=39),
    ),
    SchemaBound(
        "schema: one operation twice, may fail, writer",
        SchemaScope(
            appliers=((*CREATE, *COLUMNS), (*CREATE, *COLUMNS)),
            writers=(0,),
            same_operation=True,
            gives_up=True,
        ),
        Counts(states=8_700, transitions=18_783, depth=41),
    ),
    SchemaBound(
        "schema: 3 applies",
        SchemaScope(appliers=(COLUMNS, CREATE, RENAME), attempts=1),
        Counts(states=38_435, transitions=92_846, depth=41),
    ),
    SchemaBound(
        "schema: keys exchanged, writer, compaction",
        SchemaScope(appliers=(SWAP,), writers=(0,), maintenance_runs=(1,)),
        Counts(states=7_198, transitions=18_382, depth=29),
    ),
    SchemaBound(
        "schema: check and its removal, writer, sweep",
        SchemaScope(appliers=(CHECK, UNCHECK), writers=(1,), sweeps=1),
        Counts(states=290_707, transitions=957_824, depth=41),
    ),
)

_CHECKED: Final = SchemaScope(appliers=(CHECK,), writers=(1,))
_CHECKED_SWEPT: Final = replace(_CHECKED, sweeps=1)
_MOVED: Final = SchemaScope(appliers=(COLUMNS,), writers=(0,))
_WITH_ROWS: Final = SchemaScope(appliers=(COLUMNS_AND_ROWS,))
_NEW: Final = SchemaScope(appliers=(CREATE,), sweeps=1)
_TWO: Final = SchemaScope(appliers=(COLUMNS, RENAME))
_READ: Final = SchemaScope(appliers=(COLUMNS,), readers=1)
_AGAIN: Final = SchemaScope(
    appliers=(CREATE, CREATE), same_operation=True, gives_up=True, create_first=True
)

SCHEMA_MUTANT_BOUNDS: Final[dict[SchemaMutant, CaughtSchema]] = {
    "contract_late": CaughtSchema(SchemaScope(appliers=(NOTE,)), steps=7),
    "before_unstored": CaughtSchema(SchemaScope(appliers=(NOTE,), stored=False), steps=5),
    "promote_own_text": CaughtSchema(SchemaScope(appliers=(NOTE, NOTE), readers=1), steps=9),
    "apply_blind": CaughtSchema(_TWO, steps=15),
    "lock_trusted": CaughtSchema(replace(_TWO, lock=True), steps=17),
    "lock_sticks": CaughtSchema(SchemaScope(appliers=(NOTE,), lock=True), steps=3),
    "apply_no_reads": CaughtSchema(_CHECKED, steps=13),
    "apply_no_pins": CaughtSchema(_MOVED, steps=15),
    "apply_replans": CaughtSchema(SchemaScope(appliers=(CREATE, COLUMNS)), steps=18),
    "apply_early_fail": CaughtSchema(
        SchemaScope(appliers=(COLUMNS,), sweeps=1, gives_up=True), steps=10
    ),
    "rename_stale_pin": CaughtSchema(SchemaScope(appliers=(RENAME,), writers=(0,)), steps=14),
    "place_by_key": CaughtSchema(SchemaScope(appliers=(CREATE, CREATE), sweeps=1), steps=8),
    "discard_before_abort": CaughtSchema(replace(_NEW, gives_up=True), steps=10),
    "discard_unread": CaughtSchema(_AGAIN, steps=21),
    "discard_after_sidecar": CaughtSchema(_AGAIN, steps=16),
    "discard_never": CaughtSchema(SchemaScope(appliers=(CREATE,), gives_up=True), steps=9),
    "rows_without_schema": CaughtSchema(_WITH_ROWS, steps=7),
    "schema_without_rows": CaughtSchema(_WITH_ROWS, steps=8),
    "rows_on_any_head": CaughtSchema(replace(_WITH_ROWS, writers=(0,)), steps=11),
    "heal_on_columns": CaughtSchema(replace(_WITH_ROWS, writers=(0,)), steps=10),
    "files_believed": CaughtSchema(_READ, steps=12),
    "state_file_believed": CaughtSchema(_READ, steps=15),
    "read_twice": CaughtSchema(_READ, steps=13),
    "write_blind": CaughtSchema(_CHECKED, steps=13),
    "retry_old_contract": CaughtSchema(_CHECKED, steps=13),
    "restart_in_place": CaughtSchema(_CHECKED_SWEPT, steps=13),
    "maintenance_blind": CaughtSchema(
        SchemaScope(appliers=(SWAP,), maintenance_runs=(0,)), steps=13
    ),
    "forward_write_blind": CaughtSchema(_CHECKED_SWEPT, steps=9),
    "forward_maintenance_blind": CaughtSchema(
        SchemaScope(appliers=(SWAP,), maintenance_runs=(0,), sweeps=1), steps=9
    ),
    "forward_apply_blind": CaughtSchema(replace(_TWO, sweeps=1), steps=11),
    "forward_no_reads": CaughtSchema(_CHECKED_SWEPT, steps=11),
    "forward_no_pins": CaughtSchema(replace(_MOVED, sweeps=1), steps=17),
    "forward_unmoved": CaughtSchema(SchemaScope(appliers=(COLUMNS,), sweeps=1), steps=5),
    "forward_uncreated": CaughtSchema(_NEW, steps=5),
    "forward_columns": CaughtSchema(replace(_WITH_ROWS, sweeps=1), steps=10),
    "discard_unfenced": CaughtSchema(_NEW, steps=8),
    "discard_published": CaughtSchema(_NEW, steps=6),
    "discard_armed_only": CaughtSchema(SchemaScope(appliers=(CREATE,), create_first=True), steps=5),
    "follow_up_bare": CaughtSchema(SchemaScope(appliers=(CREATE, COLUMNS)), steps=16),
}

NO_GUARDS_OF_SCHEMAS: Final[tuple[SchemaBound, ...]] = (
    SchemaBound(
        "not a guard: whoever promotes looks what is in force",
        SchemaScope(appliers=(COLUMNS, RENAME), readers=1, mutant=SCHEMA_NOT_A_GUARD),
        Counts(states=5_608, transitions=13_518, depth=30),
    ),
    SchemaBound(
        "not a guard, if new tables are made before they are named: the sweep looks for them",
        SchemaScope(
            appliers=((*CREATE, *COLUMNS),),
            sweeps=2,
            gives_up=True,
            create_first=True,
            mutant="forward_uncreated",
        ),
        Counts(states=408, transitions=776, depth=22),
    ),
)
