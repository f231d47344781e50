"""Schema changes, a model of its own: one branch whose tables and schema never come apart.

The head of the manifest names a schema by its hash, and that is the only authority. Contracts are
objects by hash, put once. Three files at the root are a copy of the one in force, as far as anybody
can tell. Appliers, writers, compactions, readers and the sweep meet in these; the lock of appliers
is politeness. The main model searches how one manifest and its tables move; this one searches what
happens when the schema moves with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.model.checker import Model
from tests.model.schema_applier import applier_steps
from tests.model.schema_invariants import schema_violation
from tests.model.schema_liveness import SchemaLiveness
from tests.model.schema_reader import reader_steps
from tests.model.schema_scope import SchemaScope
from tests.model.schema_state import SchemaState, SchemaStep, initial_schemas
from tests.model.schema_sweep import sweeper_steps
from tests.model.schema_writer import writer_steps


def schema_protocol(scope: SchemaScope) -> Model[SchemaState]:
    """The model of one scope, ready to be searched."""
    liveness = SchemaLiveness(scope)

    def violation(state: SchemaState) -> str | None:
        return schema_violation(scope, state) or liveness.violation(state)

    return Model(
        initial=initial_schemas(scope), steps=partial(_all_steps, scope), violation=violation
    )


def _all_steps(scope: SchemaScope, state: SchemaState) -> Iterator[SchemaStep]:
    for number in range(len(state.appliers)):
        yield from applier_steps(scope, state, number)
    for number in range(len(state.writers)):
        yield from writer_steps(scope, state, number)
    for number in range(len(state.readers)):
        yield from reader_steps(scope, state, number)
    yield from sweeper_steps(scope, state)
