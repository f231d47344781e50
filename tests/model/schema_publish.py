"""Publishing where schemas change: what a publish expects of the manifest, and what it puts.

The applier, the writer and the sweep share these rules; a mutant takes a rule from one of them.
"""

from __future__ import annotations

from typing import Literal, assert_never

from tests.model.schema_edits import SCHEMAS, plan_of, schema_after
from tests.model.schema_scope import SchemaScope
from tests.model.schema_state import (
    Entry,
    Pin,
    SchemaState,
    Table,
    Version,
    Work,
    contract_of,
    exact_version,
    table_at,
    type_in,
    with_table,
    with_version,
)
from tests.model.state import Verdict

Publisher = Literal["own", "sweep"]
Refusal = Literal["schema", "pins"]


def target_of(scope: SchemaScope, work: Work) -> int:
    """The schema after the operation: for a write the one that it expects."""
    if scope.kind_of(work.op) != "apply":
        return work.expects
    return schema_after(work.expects, scope.change_of(work.op))


def moved_pins(scope: SchemaScope, state: SchemaState, work: Work) -> tuple[Pin, ...]:
    """The pins that the operation moves its tables from."""
    base = state.manifest[work.base]
    if scope.kind_of(work.op) == "apply":
        keys = [each.key for each in plan_of(work.expects, target_of(scope, work)).moved]
    else:
        written = type_in(base.schema, scope.type_of(work.op))
        keys = [] if written is None else [written.key]
    return tuple(pin for pin in base.pins if pin.key in keys)


def checked_pins(scope: SchemaScope, state: SchemaState, work: Work) -> tuple[Pin, ...]:
    """The pins whose rows a new constraint was checked on."""
    if scope.kind_of(work.op) != "apply":
        return ()
    keys = [each.key for each in plan_of(work.expects, target_of(scope, work)).checked]
    return tuple(pin for pin in state.manifest[work.base].pins if pin.key in keys)


def created_by(scope: SchemaScope, work: Work) -> bool:
    """Whether an apply makes a new table."""
    if scope.kind_of(work.op) != "apply":
        return False
    return bool(plan_of(work.expects, target_of(scope, work)).created)


def moved(scope: SchemaScope, state: SchemaState, work: Work, pin: Pin) -> SchemaState:
    """One table moves: its pinned content and the operation's change."""
    base = state.manifest[work.base]
    number = next(each.number for each in SCHEMAS[base.schema].types if each.key == pin.key)
    match scope.kind_of(work.op):
        case "apply":
            shape, breaks = _shape(target_of(scope, work), number), False
        case "write":
            shape = _shape(work.validated, number)
            breaks = number == 1 and not SCHEMAS[work.validated].checked
            newest = _newest(state, pin)
            if scope.mutant == "heal_on_columns" and newest.bare:
                shape = newest.shape
        case "maintenance":
            table = table_at(state, pin.place)
            assert table is not None, "a published table is never removed"
            shape, breaks = table.versions[pin.version - 1].shape, False
        case never:
            assert_never(never)
    return with_version(state, pin.place, Version(work.op, pin.version, shape, breaks))


def is_with_rows(scope: SchemaScope, work: Work, pin: Pin) -> bool:
    """Whether the operation brings columns and rows for this table: a version for each."""
    return scope.writes_rows(work.op) and SCHEMAS[work.expects].first.key == pin.key


def with_columns(scope: SchemaScope, state: SchemaState, work: Work, pin: Pin) -> SchemaState:
    """The table gets its new columns, in a version that rows are put on."""
    shape = _shape(target_of(scope, work), SCHEMAS[work.expects].first.number)
    return with_version(state, pin.place, Version(work.op, pin.version, shape, bare=True))


def with_rows(scope: SchemaScope, state: SchemaState, work: Work, pin: Pin) -> SchemaState | None:
    """The rows land on HEAD; None if that is not the version with the operation's new columns."""
    newest = _newest(state, pin)
    rows = Version(work.op, pin.version, newest.shape)
    if newest == rows._replace(bare=True) or scope.mutant == "rows_on_any_head":
        return with_version(state, pin.place, rows)
    return None


def _newest(state: SchemaState, pin: Pin) -> Version:
    table = table_at(state, pin.place)
    assert table is not None, "a published table is never removed"
    return table.versions[-1]


def _shape(schema: int, number: int) -> int:
    of_type = type_in(schema, number)
    return -1 if of_type is None else of_type.shape


def created(scope: SchemaScope, state: SchemaState, work: Work) -> SchemaState:
    """The new table is there; one that an earlier run of the operation left is taken as it is."""
    place = scope.place_of(work.op)
    if table_at(state, place) is not None:
        return state
    shape = plan_of(work.expects, target_of(scope, work)).created[0].shape
    return with_table(state, Table(place, (Version(work.op, 0, shape),)))


def is_whole(scope: SchemaScope, state: SchemaState, work: Work) -> bool:
    """Every planned version, new table and contract is there."""
    every = moved_pins(scope, state, work)
    bare = scope.mutant == "forward_columns"
    if scope.mutant != "forward_unmoved" and any(
        exact_version(state, pin, work.op, takes_bare=bare) is None for pin in every
    ):
        return False
    new_table = table_at(state, scope.place_of(work.op))
    if created_by(scope, work) and new_table is None and scope.mutant != "forward_uncreated":
        return False
    is_apply = scope.kind_of(work.op) == "apply"
    return not is_apply or contract_of(state, target_of(scope, work)) is not None


def refusal(scope: SchemaScope, state: SchemaState, work: Work, by: Publisher) -> Refusal | None:
    """Why the operation cannot follow the manifest as it is now."""
    if state.head.schema != work.expects and not _is_blind(scope, state, work, by):
        return "schema"
    expected = list[Pin]()
    is_apply = scope.kind_of(work.op) == "apply"
    if not is_apply or scope.mutant != ("apply_no_pins" if by == "own" else "forward_no_pins"):
        expected += moved_pins(scope, state, work)
    if scope.mutant != ("apply_no_reads" if by == "own" else "forward_no_reads"):
        expected += checked_pins(scope, state, work)
    for pin in expected:
        found = state.head.pin(pin.key)
        if found is None or found.version != pin.version:
            return "pins"
    return None


def _is_blind(scope: SchemaScope, state: SchemaState, work: Work, by: Publisher) -> bool:
    kind = scope.kind_of(work.op)
    if scope.mutant == "lock_trusted":
        return kind == "apply" and by == "own" and state.lock == work.op
    return scope.mutant == (f"{kind}_blind" if by == "own" else f"forward_{kind}_blind")


def following(scope: SchemaScope, state: SchemaState, work: Work, verdict: Verdict) -> Entry:
    """The next version of the manifest."""
    head = state.head
    if verdict != "committed":
        return Entry(work.op, verdict, head.schema, head.pins)
    pins = {pin.key: pin for pin in head.pins}
    bare = scope.mutant in ("schema_without_rows", "forward_columns")
    for pin in moved_pins(scope, state, work):
        there = pins.get(pin.key, pin)
        version = exact_version(state, pin, work.op, takes_bare=bare) or there.version
        pins[pin.key] = there._replace(version=version)
    validated = work.validated
    schema = head.schema
    match scope.kind_of(work.op):
        case "apply":
            if scope.mutant != "rows_without_schema":
                schema = target_of(scope, work)
            pins = _with_schema(scope, state, work, pins)
        case "maintenance":
            validated = -1
        case "write":
            pass
    return Entry(work.op, verdict, schema, tuple(sorted(pins.values())), validated)


def _with_schema(
    scope: SchemaScope, state: SchemaState, work: Work, pins: dict[str, Pin]
) -> dict[str, Pin]:
    """The tables after an apply: renamed, dropped, created."""
    plan = plan_of(work.expects, target_of(scope, work))
    renamed = dict(plan.renamed)
    if scope.mutant == "rename_stale_pin":
        pins = pins | {p.key: p for p in state.manifest[work.base].pins if p.key in renamed}
    after = dict[str, Pin]()
    for key, pin in pins.items():
        if key not in plan.dropped:
            new_key = renamed.get(key, key)
            after[new_key] = pin._replace(key=new_key)
    for each in plan.created:
        after[each.key] = Pin(each.key, scope.place_of(work.op), 1)
    return after


def swapped(state: SchemaState, held: int, entry: Entry) -> SchemaState | None:
    """The strict swap: puts the version after the one held; None if that number is taken."""
    if len(state.manifest) != held:
        return None
    return state._replace(manifest=(*state.manifest, entry))
