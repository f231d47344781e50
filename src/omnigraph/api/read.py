"""Reading rows of one type at a snapshot: all of them, those of a condition, or one by its key.

Invariant: rows are streamed; the driver holds one batch at a time. A condition means what it means
in `delete T where ...` of the query language.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph import names
from omnigraph.arguments import count_or_none, plain_text
from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.language.diagnostics import did_you_mean, shown
from omnigraph.schema.catalog import NodeType
from omnigraph.storage.lance.tables import find_entry, known_columns, open_pinned, streamed
from omnigraph.storage.lance.tables import scan as storage_scan
from omnigraph.storage.refs.kept import gone_if_removed, streamed_unless_removed
from omnigraph.validation.input.named_types import declared_types

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph.mutate.row_values import RowValues
    from omnigraph.query.expressions import Expression
    from omnigraph.schema.catalog import Catalog, EdgeType
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry
    from omnigraph.validation.schema_contract import SchemaContract


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Which rows of a type to read, and what of them."""

    table_key: str
    columns: Sequence[str] | None = None
    condition: str | None = None
    limit: int | None = None


def table_key_of(catalog: Catalog, root: Root, type_name: object) -> str:
    """The table of a type by its name; by `node:NAME` or `edge:NAME` where both have that name."""
    if not isinstance(type_name, str):
        raise InvalidInputError(f"type is {shown(type_name)}, expected the name of a type")
    tables = declared_types(catalog)
    if type_name in tables:
        return type_name
    matching = [
        table_key
        for table_key in (names.node_table_key(type_name), names.edge_table_key(type_name))
        if table_key in tables
    ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise InvalidInputError(
            f"{type_name} is a node type and an edge type",
            next_step=f"Name it {matching[0]!r} or {matching[1]!r}.",
        )
    hint = did_you_mean(type_name, [*catalog.nodes, *catalog.edges])
    raise NotFoundError(
        f"{root} has no type {shown(type_name)}" + (f" ({hint})" if hint else ""),
        next_step=f"Run `omnigraph schema show {root}` to see the types.",
    )


def read_rows(
    root: Root, snapshot: Snapshot, contract: SchemaContract, scan: Scan, *, now: datetime
) -> pa.RecordBatchReader:
    """Stream the rows of a type that a scan asks for.

    Raises:
        NoLongerKeptError: a cleanup removed the version, also while its rows are read.
        QueryInvalidError: the condition has errors.
    """
    entry = find_entry(root, snapshot, scan.table_key)
    limit = count_or_none(scan.limit, argument="limit")
    with gone_if_removed(root, entry):
        columns = known_columns(root, entry, scan.columns)
        if scan.condition is None:
            stored = storage_scan(root, entry, columns=columns)
            rows: Iterable[pa.RecordBatch] = stored
            schema = stored.schema
        else:
            condition = _Condition.of(contract, scan.table_key, scan.condition, now=now)
            stored = condition.candidates(root, entry, columns)
            schema = pa.schema(
                [stored.schema.field(name) for name in columns or stored.schema.names]
            )
            rows = (batch.select(schema.names) for batch in condition.matching(stored))
    if limit is not None:
        rows = _first(rows, limit)
    return pa.RecordBatchReader.from_batches(schema, streamed_unless_removed(rows, root, entry))


def read_entity(
    root: Root,
    snapshot: Snapshot,
    declared: NodeType | EdgeType,
    *,
    table_key: str,
    key: object,
    entity_id: object,
) -> dict[str, Any] | None:
    """The node or edge with a key or an id; None if there is none."""
    from omnigraph.engine.access.conditions import one_of  # the query compiler: scans need none

    if (key is None) == (entity_id is None):
        raise InvalidInputError(
            "expected either a key or an id", next_step="Give the key, or `id=`."
        )
    wanted = (
        _id_of_key(declared, key) if entity_id is None else plain_text(entity_id, argument="id")
    )
    entry = find_entry(root, snapshot, table_key)
    with gone_if_removed(root, entry):
        rows = streamed(
            root,
            entry,
            open_pinned(root, entry, with_indexes=True),
            columns=None,
            where=one_of([names.ID_COLUMN], pa.array([wanted])),
            blob_bytes=True,
        ).read_all()
    return dict(rows.to_pylist()[0]) if rows.num_rows else None


def _id_of_key(declared: NodeType | EdgeType, key: object) -> str:
    """The id that a write would give to a node with this key."""
    if not isinstance(declared, NodeType) or declared.key is None:
        raise InvalidInputError(f"{declared.name} has no key", next_step="Give `id=`.")
    # What writes need: scans need none of it.
    from omnigraph.schema.show import show_type
    from omnigraph.validation.input.intake import take_in

    columns = declared.key.properties
    values = key if isinstance(key, tuple) else (key,)
    kinds = ", ".join(f"{name}: {show_type(declared.properties[name].type)}" for name in columns)
    if len(values) == len(columns):
        row = dict(zip(columns, values, strict=True))
        taken = take_in(declared, [row], new_ids=lambda count: pa.nulls(count, pa.string()))
        derived = taken.table.column(names.ID_COLUMN)[0].as_py()
        if derived is not None and not taken.findings:
            return str(derived)
    raise InvalidInputError(f"the key is {shown(key)}, expected {kinds}")


def _first(rows: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in rows:
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    """A condition on rows of one type: what Lance can decide of it, and the rest."""

    expression: Expression
    type_name: str
    values: RowValues
    where: str | None

    @classmethod
    def of(
        cls, contract: SchemaContract, table_key: str, text: object, *, now: datetime
    ) -> _Condition:
        # The query compiler and DuckDB: plain scans need neither.
        from omnigraph.engine.access.conditions import lance_filter
        from omnigraph.engine.query_text import choose_query, query_text
        from omnigraph.load.formats.values import blob_bytes
        from omnigraph.mutate.row_values import RowValues
        from omnigraph.query.plan import Mutation
        from omnigraph.query.typed import DeleteStatement

        plain_text(text, argument="filter")
        type_name = table_key.partition(":")[2]
        program = f"query filter() {{ delete {type_name} where\n{text}\n}}"
        chosen = choose_query(query_text(program, contract), {})
        plan = chosen.plan()
        statements = plan.statements if isinstance(plan, Mutation) else ()
        match statements:
            case (DeleteStatement() as statement,) if statement.table_key == table_key:
                bound = chosen.bound(now)
                return cls(
                    expression=statement.condition,
                    type_name=type_name,
                    values=RowValues(bound, blob_bytes=blob_bytes),
                    where=lance_filter(statement.condition, bound),
                )
            case _:
                raise InvalidInputError(
                    f"filter is {shown(text)}, expected one condition on {table_key}"
                )

    def candidates(
        self, root: Root, entry: TableEntry, columns: Sequence[str] | None
    ) -> pa.RecordBatchReader:
        """Rows among which the matching ones are, with the columns that the condition reads."""
        from omnigraph.mutate.row_values import columns_of

        wanted = None if columns is None else {*columns, *columns_of(self.expression)}
        dataset = open_pinned(root, entry, with_indexes=self.where is not None)
        return streamed(
            root,
            entry,
            dataset,
            columns=None
            if wanted is None
            else [name for name in dataset.schema.names if name in wanted],
            where=self.where,
        )

    def matching(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in rows:
                table = pa.Table.from_batches([batch])
                yield from self.values.matching(table, self.expression, self.type_name).to_batches()
        finally:
            self.values.close()
