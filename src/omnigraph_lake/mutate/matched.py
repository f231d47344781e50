"""Reads the rows of a match that the statements of a mutation are applied to.

Invariants:
- All matches are read from the pinned snapshot, before any statement changes anything.
- A row whose entity is null, because only an optional pattern binds it, changes nothing.
- Rows that give one entity different values are refused: neither of them is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.engine.query import run_query
from omnigraph_lake.engine.run import Limits
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.report import REPEATED_IDS_MAX
from omnigraph_lake.mutate.overlay import MutationTooLarge, OverlayLimits
from omnigraph_lake.query import typed as tq
from omnigraph_lake.runner.memory import half_of_this_machine
from omnigraph_lake.storage.refs.kept import gone_if_removed

if TYPE_CHECKING:
    from omnigraph_lake.query.binding import BoundParameters
    from omnigraph_lake.query.plan import Plan
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot

MATCHED_LIMITS: Final = OverlayLimits(
    rows=2_000_000,
    bytes=512 << 20,
    next_step="Run each statement as a mutation of its own: one with a single statement and its "
    "match may change any number of rows.",
)
"""What a mutation may hold of matches; the id is all it holds of a row to delete."""
_ONE_TYPE_EACH: Final = (
    "Bind the variable to one type, and run the mutation for each type: a single statement for one "
    "type may change any number of rows."
)


def next_step_of(statements: Iterable[tq.TypedStatement]) -> str:
    """What to do if statements change more rows than memory may hold."""
    if any(isinstance(part, tq.MatchedStatement) and part.of_several for part in statements):
        return _ONE_TYPE_EACH
    return MATCHED_LIMITS.next_step


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedRows:
    """The rows of one statement: the ids of entities if it has any, and values by property."""

    ids: pa.StringArray | None
    values: Mapping[str, pa.ChunkedArray] = field(repr=False)
    count: int
    """How many rows there are."""


def read_matches(
    statements: Iterable[tq.TypedStatement],
    reads: Iterable[Plan | None],
    *,
    root: Root,
    snapshot: Snapshot,
    catalog: Catalog,
    parameters: BoundParameters,
) -> dict[int, MatchedRows]:
    """The rows of every statement that has a match, by the position of the statement.

    Raises:
        InvalidInputError: there are too many rows, or they give one entity different values.
        QueryFailedError: a value cannot be computed.
    """
    matches: dict[int, MatchedRows] = {}
    for position, (statement, plan) in enumerate(zip(statements, reads, strict=True)):
        if plan is None:
            continue
        assert isinstance(statement, tq.MatchedStatement)
        with gone_if_removed(root, *snapshot.tables.values()):
            answer = run_query(
                plan,
                root=root,
                snapshot=snapshot,
                catalog=catalog,
                parameters=parameters,
                limits=Limits(memory_bytes=half_of_this_machine()),
                keeps_tables=False,
            )
            rows = pa.Table.from_batches(_limit(answer.batches(), statement), answer.schema)
        matches[position] = rows_of(statement, rows)
    return matches


def _limit(
    batches: Iterable[pa.RecordBatch], statement: tq.MatchedStatement
) -> Iterable[pa.RecordBatch]:
    rows = size = 0
    for batch in batches:
        rows += batch.num_rows
        size += batch.nbytes
        if rows > MATCHED_LIMITS.rows or size > MATCHED_LIMITS.bytes:
            raise MutationTooLarge(
                f"{statement.verb} {statement.type} matches more than {MATCHED_LIMITS.rows:,} rows "
                f"or {MATCHED_LIMITS.bytes >> 20} MiB of values",
                next_step=next_step_of([statement]),
            )
        yield batch


def rows_of(statement: tq.MatchedStatement, rows: pa.Table) -> MatchedRows:
    """What a table of the columns of a match gives a statement."""
    names = rows.column_names
    if statement.verb in (tq.MatchedVerb.UPDATE, tq.MatchedVerb.DELETE):
        rows = rows.filter(pc.is_valid(rows.column(0)))
        ids = rows.column(0).combine_chunks()
        if repeated := first_repeated(ids):
            raise different_values(statement, repeated)
        values = dict(zip(statement.columns, rows.columns[1:], strict=True))
        return MatchedRows(ids=ids, values=values, count=len(ids))
    given = rows.columns if statement.columns else []
    assert len(given) == len(statement.columns), names
    values = dict(zip(statement.columns, given, strict=True))
    return MatchedRows(ids=None, values=values, count=rows.num_rows)


def first_repeated(ids: pa.Array | pa.ChunkedArray) -> Sequence[str]:
    """The first ids, by their order as texts, that occur several times."""
    counts = pc.value_counts(ids)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    in_order = pc.sort_indices(repeated)[: REPEATED_IDS_MAX + 1]
    return cast("list[str]", repeated.take(in_order).to_pylist())


def list_ids(ids: Sequence[str]) -> str:
    """Ids as a message names them."""
    named = ", ".join(map(repr, ids[:REPEATED_IDS_MAX]))
    return f"{named} and others" if len(ids) > REPEATED_IDS_MAX else named


def different_values(statement: tq.MatchedStatement, ids: Sequence[str]) -> InvalidInputError:
    """The error about entities that a match gives several rows."""
    return InvalidInputError(
        f"update {statement.type}: the match gives different values for {list_ids(ids)}",
        next_step="Give one value for all rows of an entity, for example with `max(...)`.",
    )
