"""What must hold in every reachable state of schema changes.

- FIT: the tables that the manifest pins are exactly those of its schema, each with its shape, and
  no row breaks a constraint of it.
- LOST TABLE: a dataset that any version of the manifest names exists.
- JUDGED: what was published was planned or validated with the schema in force right before.
- HALF: what brings columns and rows is published with both, or shows neither.
- NO CONTRACT: the contract of every version of the manifest can be looked up.
- TWO DECISIONS: there is at most one per operation.
- PHANTOM: an apply or a write that was reported as failed was not published.
- LEFT OVER: such an apply leaves no new table behind.
- DURABILITY: an acknowledged apply was published; an acknowledged write shows while its type lives.
- TORN: a reader works by the schema of the very manifest version whose tables it reads.
- TWO TEXTS: all readers of a schema see one text.
- LIVENESS: if everybody died here, a sweep, a reader, a writer of each type and an apply would
  succeed (`schema_liveness.py`).
"""

from __future__ import annotations

from itertools import pairwise

from tests.model.schema_edits import SCHEMAS
from tests.model.schema_scope import NEW_PLACES, SchemaScope
from tests.model.schema_state import (
    NOBODY,
    Entry,
    SchemaReader,
    SchemaState,
    chain,
    contract_of,
    table_at,
    type_in,
)
from tests.model.schema_writer import operation_of


def schema_violation(scope: SchemaScope, state: SchemaState) -> str | None:
    """The first rule that this state breaks, as a sentence."""
    return (
        _manifest_violation(state)
        or _fit_violation(state)
        or _half_violation(scope, state)
        or _contract_violation(state)
        or _appliers_violation(scope, state)
        or _writers_violation(scope, state)
        or next(filter(None, (_reader_violation(state, reader) for reader in state.readers)), None)
    )


def _manifest_violation(state: SchemaState) -> str | None:
    ops = [entry.op for entry in state.manifest]
    if len(set(ops)) < len(ops):
        return f"TWO DECISIONS: {ops}"
    for entry in state.manifest:
        for pin in entry.pins:
            if table_at(state, pin.place) is None:
                return f"LOST TABLE: {pin} was removed"
    for before, entry in pairwise(state.manifest):
        if entry.validated not in (NOBODY, before.schema):
            return (
                f"JUDGED: operation {entry.op} by schema {entry.validated}, "
                f"in force was {before.schema}"
            )
    return None


def _fit_violation(state: SchemaState) -> str | None:
    head = state.head
    schema = SCHEMAS[head.schema]
    keys = tuple(sorted(each.key for each in schema.types))
    pinned = tuple(pin.key for pin in head.pins)
    if pinned != keys:
        return f"FIT: schema {head.schema} has {keys}, the manifest {pinned}"
    for each in schema.types:
        pin = head.pin(each.key)
        assert pin is not None
        made = chain(state, pin)
        is_new = each.number > 1
        if is_new != (pin.place >= NEW_PLACES) or (not is_new and pin.place != each.number):
            return f"FIT: {pin} is not the table of type {each.number}"
        if not made or made[0].shape != each.shape:
            return f"FIT: {pin} is missing, or has not the shape of {each}"
        if schema.checked and each.number == 1 and any(version.breaks for version in made):
            return f"FIT: {pin} holds a row that the schema forbids"
    return None


def _half_violation(scope: SchemaScope, state: SchemaState) -> str | None:
    """In every version of the manifest; type 0 is never dropped, so its rows stay."""
    for op in {scope.apply_of(number) for number in range(len(state.appliers))}:
        if not scope.writes_rows(op):
            continue
        published = False
        for entry in state.manifest:
            published |= entry.op == op and entry.verdict == "committed"
            pin = entry.pin(SCHEMAS[entry.schema].first.key)
            assert pin is not None
            shown = [version for version in chain(state, pin) if version.op == op]
            if published != any(not version.bare for version in shown):
                return f"HALF: apply {op} is published: {published}, and {pin} has {shown}"
    return None


def _contract_violation(state: SchemaState) -> str | None:
    for entry in state.manifest:
        whole = all(file == state.files[0] for file in state.files)
        at_root = whole and state.files[0].schema == entry.schema
        if not at_root and contract_of(state, entry.schema) is None:
            return f"NO CONTRACT of schema {entry.schema}"
    return None


def _committed(state: SchemaState, op: int) -> Entry | None:
    return next((e for e in state.manifest if e.op == op and e.verdict == "committed"), None)


def _appliers_violation(scope: SchemaScope, state: SchemaState) -> str | None:
    for number, applier in enumerate(state.appliers):
        op = scope.apply_of(number)
        published = _committed(state, op)
        if (applier.acked or applier.phase == "acked_done") and published is None:
            return f"DURABILITY: apply {op} was acknowledged"
        if applier.phase != "failed_done" or scope.same_operation:
            continue
        if published:
            return f"PHANTOM: apply {op} was reported as failed"
        if scope.mutant != "place_by_key" and table_at(state, scope.place_of(op)):
            return f"LEFT OVER: the new table of apply {op}"
    return None


def _writers_violation(scope: SchemaScope, state: SchemaState) -> str | None:
    for number, writer in enumerate(state.writers):
        op = operation_of(scope, number)
        if writer.phase in ("failed", "failed_done") and _committed(state, op):
            return f"PHANTOM: operation {op} was reported as failed"
        if writer.phase in ("acked", "acked_done") and not _shows(scope, state, op):
            return f"DURABILITY: operation {op} was acknowledged"
    return None


def _shows(scope: SchemaScope, state: SchemaState, op: int) -> bool:
    """The table shows what the operation wrote, or there is no such type any more."""
    written = type_in(state.head.schema, scope.type_of(op))
    if written is None:
        return True
    pin = state.head.pin(written.key)
    return pin is not None and any(version.op == op for version in chain(state, pin))


def _reader_violation(state: SchemaState, reader: SchemaReader) -> str | None:
    if reader.phase == "lost":
        return f"NO CONTRACT: a reader found none of schema {reader.wanted}"
    contract = reader.contract
    if contract is None:
        return None
    if contract.schema != state.manifest[reader.base].schema:
        return f"TORN: a reader of v{reader.base} works by schema {contract.schema}"
    stored = contract_of(state, contract.schema)
    if stored is not None and stored != contract:
        return f"TWO TEXTS of schema {contract.schema}: {contract.text} and {stored.text}"
    return None
