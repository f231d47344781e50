"""Reads a graph at one snapshot: the current state, a branch, or a past commit.

Rows of one type are read all together, by a condition, or one by its key.

Invariants:
- Every call reads one snapshot from beginning to end.
- Rows are streamed; the driver holds one batch at a time.
- A condition means what it means in `delete T where ...` of the query language.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.api.handle import Reading
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import count_from, count_or_none, plain_text
from omnigraph_lake.display.cells import Cell
from omnigraph_lake.display.pages import Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.schema.arrow import with_end_names
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph_lake.schema.ends import end_type_columns
from omnigraph_lake.schema.python_values import python_rows, with_json_marks
from omnigraph_lake.storage.lance.tables import find_entry, known_columns, open_pinned, streamed
from omnigraph_lake.storage.lance.tables import scan as storage_scan
from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.storage.refs.kept import gone_if_removed, streamed_unless_removed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta
    from os import PathLike
    from typing import IO

    from pyspark.sql import DataFrame, SparkSession

    from omnigraph_lake.api.algorithms import Algorithms
    from omnigraph_lake.api.options import Key
    from omnigraph_lake.api.schema import SchemaView
    from omnigraph_lake.api.spark_graph import SparkGraph
    from omnigraph_lake.engine.blobs import Blob
    from omnigraph_lake.engine.query_result import QueryResult
    from omnigraph_lake.engine.query_text import ChosenQuery, StoredQueries, StoredQuery
    from omnigraph_lake.load.export import ExportReport
    from omnigraph_lake.load.report import LoadReport
    from omnigraph_lake.mutate.row_values import RowValues
    from omnigraph_lake.query.expressions import Expression
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.refs.holds import Holding
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
    from omnigraph_lake.validation.schema_contract import SchemaContract
    from omnigraph_lake.view.drawing import View


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
    from omnigraph_lake.validation.input.intake import declared_types  # queries do not need it

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
    declared = contract.catalog.tables()[scan.table_key]
    if end_type_columns(declared):
        rows = (with_end_names(declared, batch) for batch in rows)
        schema = with_end_names(declared, schema.empty_table()).schema
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
    wanted = _id_from(declared, key, entity_id)
    entry = find_entry(root, snapshot, table_key)
    with gone_if_removed(root, entry):
        rows = streamed(
            root,
            entry,
            open_pinned(root, entry, with_indexes=True),
            columns=None,
            where=OneOf(column=names.ID_COLUMN, values=pa.array([wanted])).text,
            blob_bytes=True,
        ).read_all()
    if not rows.num_rows:
        return None
    named = with_end_names(declared, rows)
    return python_rows(named, with_json_marks(declared, named.schema))[0]


def _id_from(declared: NodeType | EdgeType, key: object, entity_id: object) -> str:
    if (key is None) == (entity_id is None):
        raise InvalidInputError(
            "expected either a key or an id", next_step="Give the key, or `id=`."
        )
    return _id_of_key(declared, key) if entity_id is None else plain_text(entity_id, argument="id")


def _id_of_key(declared: NodeType | EdgeType, key: object) -> str:
    """The id that a write would give to a node with this key."""
    if not isinstance(declared, NodeType) or declared.key is None:
        raise InvalidInputError(f"{declared.name} has no key", next_step="Give `id=`.")
    # What writes need: scans need none of it.
    from omnigraph_lake.schema.show import show_type
    from omnigraph_lake.validation.input.intake import take_in

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
        from omnigraph_lake.engine.access.conditions import lance_filter
        from omnigraph_lake.engine.expressions.known_parts import with_known_condition
        from omnigraph_lake.engine.query_text import choose_query, query_text
        from omnigraph_lake.load.formats.values import blob_bytes
        from omnigraph_lake.mutate.row_values import RowValues
        from omnigraph_lake.query.plan import Mutation
        from omnigraph_lake.query.typed import DeleteStatement

        plain_text(text, argument="filter")
        type_name = table_key.partition(":")[2]
        program = f"query filter() {{ delete {type_name} where\n{text}\n}}"
        chosen = choose_query(query_text(program, contract), {})
        plan = chosen.plan()
        statements = plan.statements if isinstance(plan, Mutation) else ()
        match statements:
            case (DeleteStatement() as statement,) if statement.table_key == table_key:
                bound = chosen.bound(now)
                condition = with_known_condition(statement.condition, bound)
                return cls(
                    expression=condition,
                    type_name=type_name,
                    values=RowValues(bound, blob_bytes=blob_bytes),
                    where=lance_filter(condition, bound),
                )
            case _:
                raise InvalidInputError(
                    f"filter is {shown(text)}, expected one condition on {table_key}"
                )

    def candidates(
        self, root: Root, entry: TableEntry, columns: Sequence[str] | None
    ) -> pa.RecordBatchReader:
        """Rows among which the matching ones are, with the columns that the condition reads."""
        from omnigraph_lake.mutate.row_values import columns_of

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


_OPTIONS: Final = frozenset({"engine", "spark", "memory", "timeout"})


class Reads:
    """Reads of one snapshot of a graph."""

    @property
    def _objects(self) -> Objects:
        raise NotImplementedError

    def _view(self) -> tuple[Snapshot, SchemaContract]:
        """The current state and its schema, read together."""
        raise NotImplementedError

    def _holding(self) -> Holding | None:
        """How long reads on Spark hold their state; None if they do not."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        snapshot, contract = self._view()
        table = TableView(
            header=("type", "kind", "properties", "rows", "version"),
            rows=list(_type_rows(contract.catalog, snapshot)),
            numbers=(3, 4),
        )
        facts = [
            ("graph", self.root),
            ("branch", snapshot.branch_name),
            ("commit", snapshot.commit_id or "no commit yet"),
        ]
        return Page(facts=facts, tables=[table]).html()

    @property
    def root(self) -> str:
        """The URL or path of the graph."""
        raise NotImplementedError

    @property
    def branch(self) -> str:
        """The name of the branch that is read."""
        raise NotImplementedError

    @property
    def schema(self) -> SchemaView:
        """The schema of what is read."""
        raise NotImplementedError

    def get(
        self,
        type: str,  # noqa: A002 - the conventional name
        key: Key | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the conventional name
    ) -> dict[str, Any] | None:
        """Get one node by its key, or one node or edge by its id.

        Args:
            type: The name of a node or edge type.
            key: The value of the key; a tuple if the key has several properties.
            id: The id instead of a key.

        Returns:
            Its properties with `id`, and `src` and `dst` of an edge; None if there is none.

        Raises:
            NotFoundError: there is no such type.
            InvalidInputError: the type has no key, or a key of another type.
        """
        from omnigraph_lake.validation.input.intake import declared_types  # queries do not need it

        snapshot, contract = self._view()
        root = self._objects.root
        table_key = table_key_of(contract.catalog, root, type)
        declared = declared_types(contract.catalog)[table_key]
        return read_entity(root, snapshot, declared, table_key=table_key, key=key, entity_id=id)

    def blob(
        self,
        type: str,  # noqa: A002 - the conventional name
        key: Key | None = None,
        property: str | None = None,  # noqa: A002 - the word of the schema
        *,
        id: str | None = None,  # noqa: A002 - the conventional name
    ) -> Blob | None:
        """Open the Blob of one node or edge: its size, ranges, or a stream.

        Args:
            type: The name of a node or edge type.
            key: The value of the key; a tuple if the key has several properties.
            property: The name of the property; not needed if the type has one Blob.
            id: The id instead of a key.

        Returns:
            The Blob, None if it is null. It stays readable as long as its commit is kept.

        Raises:
            NotFoundError: there is no such type, row or property.
        """
        from omnigraph_lake.engine.blobs import read_blob  # few types have blobs
        from omnigraph_lake.validation.input.intake import declared_types  # queries do not need it

        snapshot, contract = self._view()
        root = self._objects.root
        table_key = table_key_of(contract.catalog, root, type)
        declared = declared_types(contract.catalog)[table_key]
        wanted = _id_from(declared, key, id)
        return read_blob(root, snapshot, table_key, declared, wanted, property)

    def count(self, type: str) -> int:  # noqa: A002 - the conventional name
        """Count the rows of a type; reads no table."""
        snapshot, contract = self._view()
        root = self._objects.root
        return find_entry(root, snapshot, table_key_of(contract.catalog, root, type)).row_count

    def scan(
        self,
        type: str,  # noqa: A002 - the conventional name
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the conventional name
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the rows of a node or edge type, batch by batch.

        Args:
            type: The name of the type.
            columns: The columns to read; all by default.
            filter: A condition of the query language on the properties: `"age > 30"`.
            limit: The maximum number of rows.

        Raises:
            NotFoundError: there is no such type.
            QueryInvalidError: the filter has errors.
        """
        snapshot, contract = self._view()
        root = self._objects.root
        scan = Scan(
            table_key=table_key_of(contract.catalog, root, type),
            columns=columns,
            condition=filter,
            limit=limit,
        )
        return read_rows(root, snapshot, contract, scan, now=SYSTEM_CLOCK.now())

    def view(
        self,
        *,
        around: str | tuple[str, Key] | None = None,
        hops: int = 1,
        types: Sequence[str] | None = None,
        limit: int = 500,
    ) -> View:
        """Draw a part of the graph as a page to explore, or as a picture.

        Args:
            around: A node, as its type and key or as `"TYPE/ID"`; shows what is near to it. Without
                it, the graph is shown, or a sample and its types if it has more than the limit.
            hops: How far to go from that node.
            types: The node types to show, without `around`; all by default.
            limit: The maximum number of nodes to show at first, and to add by expanding.

        Raises:
            NotFoundError: there is no such type or node.
        """
        # Most graphs are never drawn.
        from omnigraph_lake.view.drawing import View, node_limit
        from omnigraph_lake.view.elements import SnapshotElements, neighbourhood, overview

        (snapshot, contract), shown_nodes = self._view(), node_limit(limit)
        elements = SnapshotElements(self._objects.root, snapshot, contract.catalog)
        if around is None:
            chosen = _node_types(contract.catalog, self._objects.root, types)
            return View(overview(elements, chosen, limit=shown_nodes))
        start = _start_of(contract.catalog, self._objects.root, around)
        distance = count_from(0, hops, argument="hops")
        return View(neighbourhood(elements, start, hops=distance, limit=shown_nodes))

    def view_types(self) -> View:
        """Draw the types of the graph: how many there are of each, and what its edges connect."""
        # Most graphs are never drawn.
        from omnigraph_lake.view.drawing import View
        from omnigraph_lake.view.elements import SnapshotElements

        snapshot, contract = self._view()
        return View(SnapshotElements(self._objects.root, snapshot, contract.catalog).types())

    @property
    def algorithms(self) -> Algorithms:
        """PageRank, components, label propagation, triangles and distances."""
        return self._algorithms(load=None)

    def _algorithms(self, load: Callable[..., LoadReport] | None) -> Algorithms:
        from omnigraph_lake.api.algorithms import Algorithms  # few readers compute anything

        return Algorithms(self._objects.root, self._view, self._hold_for_spark, load)

    @overload
    def query(
        self,
        text: str | PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: object = None,
        engine: Literal["auto", "local"] = "auto",
        spark: None = None,
        memory: int | str | None = None,
        timeout: float | timedelta | None = None,
        **parameters: object,
    ) -> QueryResult: ...

    @overload
    def query(
        self,
        text: str | PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: object = None,
        engine: Literal["auto", "local", "spark"] = "auto",
        spark: SparkSession | None = None,
        memory: int | str | None = None,
        timeout: float | timedelta | None = None,
        **parameters: object,
    ) -> QueryResult | DataFrame: ...

    def query(  # noqa: PLR0913 - every word of a query is one
        self,
        text: str | PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: object = None,
        engine: Literal["auto", "local", "spark"] = "auto",
        spark: SparkSession | None = None,
        memory: int | str | None = None,
        timeout: float | timedelta | None = None,
        **parameters: object,
    ) -> QueryResult | DataFrame:
        """Run a query on the current state.

        Args:
            text: The text of a query file, or the path of one.
            params: Values of parameters by name; required for those that share a name with an
                argument of this method.
            name: The query of the text to run, if there are several. If there is one, with a
                parameter `$name`, this is its value.
            engine: `"local"` runs in this process and returns a `QueryResult`, `"spark"`
                returns a DataFrame; `"auto"` is Spark if a session is given, else
                local.
            spark: The session to use.
            memory: Memory limit of a local run: bytes, or a string such as `"2GB"`; by
                default half of the memory of this machine.
            timeout: Time limit of a local run in seconds, including the time of its reader.
            **parameters: Values of parameters.

        Raises:
            QueryInvalidError: the text has errors; `diagnostics` holds all of them.
            InvalidInputError: no query was chosen, or a parameter is invalid.
            QueryFailedError: a value could not be computed.
            QueryBudgetError: it exceeded its memory or time limit.
        """
        view = self._view()
        chosen = _choose(view[1], text, params, parameters, name=name)
        return self._query(view, chosen, engine=engine, spark=spark, memory=memory, timeout=timeout)

    def explain(
        self,
        text: str | PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: object = None,
        physical: bool = False,
        analyze: bool = False,
        **parameters: object,
    ) -> str:
        """The plan of a query as text.

        Args:
            text: The text of a query file, or the path of one.
            params: Values of parameters, needed for `physical` and `analyze`.
            name: The query of the text, as in `query`.
            physical: Show how it would run in this process, with the expected rows.
            analyze: Run it, and show rows and time per step.
            **parameters: Values of parameters.
        """
        snapshot, contract = self._view()
        chosen = _choose(contract, text, params, parameters, name=name)
        if not physical and not analyze:
            from omnigraph_lake.query.plan_text import (
                explain,  # the compiler: 100 ms few readers need
            )

            return explain(chosen.plan(snapshot))
        # DuckDB: a plan as text needs none.
        from omnigraph_lake.engine.query import explain_query, query_limits

        return explain_query(
            self._objects.root,
            snapshot,
            chosen,
            limits=query_limits(None, None),
            now=SYSTEM_CLOCK.now(),
            analyze=analyze,
        )

    def queries(self, directory: str | PathLike[str]) -> StoredQueries:
        """The queries of a directory of `.gq` files, to run by name on this graph.

        Raises:
            QueryInvalidError: a file has errors.
            InvalidInputError: two files have a query of the same name.
        """
        # The query compiler: readers of tables need none.
        from omnigraph_lake.engine.query_text import StoredQueries, stored_queries

        by_name = stored_queries(directory, self._view()[1])
        return StoredQueries(Path(directory), by_name, self._run_stored)

    def _run_stored(self, stored: StoredQuery, params: object, arguments: Mapping[str, Any]) -> Any:
        # The query compiler: readers of tables need none.
        from omnigraph_lake.engine.query_text import ChosenQuery, all_parameters, for_schema

        options = {key: arguments[key] for key in _OPTIONS & set(arguments)}
        keywords = {key: value for key, value in arguments.items() if key not in options}
        parameter_values = all_parameters(params, keywords)
        view = self._view()
        chosen = ChosenQuery(source=stored.source, typed=stored.typed, given=parameter_values)
        return self._query(view, for_schema(chosen, view[1]), **options)

    def _query(
        self,
        view: tuple[Snapshot, SchemaContract],
        chosen: ChosenQuery,
        *,
        engine: Literal["auto", "local", "spark"] = "auto",
        spark: SparkSession | None = None,
        memory: int | str | None = None,
        timeout: float | timedelta | None = None,
    ) -> QueryResult | DataFrame:
        # The query compiler: readers of tables need none.
        from omnigraph_lake.engine.query import (
            QueryEngine,
            chosen_engine,
            query_graph,
            query_limits,
        )

        if chosen_engine(engine, spark=spark) is QueryEngine.LOCAL:
            limits = query_limits(memory, timeout)
            now = SYSTEM_CLOCK.now()
            return query_graph(self._objects.root, view[0], chosen, limits=limits, now=now)
        if memory is not None or timeout is not None:
            raise InvalidInputError(
                "memory and timeout are for queries in this process, and this one runs on Spark",
                next_step="Set limits on the Spark session, or leave them out.",
            )
        from omnigraph_lake.runner.session import spark_session  # few queries run on Spark

        reading = self._hold_for_spark(view[0])
        try:
            session = spark_session(spark)
            # Need pyspark.
            from omnigraph_lake.api.spark_graph import held_frame
            from omnigraph_lake.runner.scan import SparkTables

            snapshot, contract = view
            tables = SparkTables(session, self._objects.root, snapshot, contract.catalog)
            return held_frame(tables, chosen, reading)
        except BaseException:
            reading.release()
            raise

    def spark(self, spark: SparkSession | None = None) -> SparkGraph:
        """The graph as DataFrames and views, pinned to the current state.

        Args:
            spark: The session to use; by default that of this process, or a new one on this
                machine.

        Raises:
            SparkUnavailableError: Spark or Java is not installed.
        """
        return self._on_spark(spark, *self._view())

    def _on_spark(
        self,
        spark: SparkSession | None,
        snapshot: Snapshot,
        contract: SchemaContract,
        load: Callable[..., LoadReport] | None = None,
    ) -> SparkGraph:
        from omnigraph_lake.runner.session import spark_session  # few graphs are read with Spark

        reading = self._hold_for_spark(snapshot)
        try:
            session = spark_session(spark)
            from omnigraph_lake.api.spark_graph import SparkGraph  # needs pyspark

            return SparkGraph(
                session, self._objects.root, snapshot, contract, reading=reading, load=load
            )
        except BaseException:
            reading.release()
            raise

    def _hold_for_spark(self, snapshot: Snapshot) -> Reading:
        reading = Reading(self._holding())
        try:
            reading.hold(snapshot, purpose="spark")
        except BaseException:
            reading.release()
            raise
        return reading

    def export(
        self,
        path: str | PathLike[str] | IO[bytes],
        *,
        type: str | None = None,  # noqa: A002 - the conventional name
        format: Literal["jsonl", "parquet"] = "jsonl",  # noqa: A002 - the conventional name
    ) -> ExportReport:
        """Export the rows to files that `load` can read, nodes before edges.

        Args:
            path: A file or an open binary stream for `jsonl`, a directory for `parquet`.
            type: Export only this type.
            format: `jsonl`, or `parquet`, which also supports values that JSON cannot represent.
        """
        from omnigraph_lake.load.export import export_graph, plan_export  # Parquet

        export = plan_export(path, type_name=type, format=format)
        snapshot, contract = self._view()
        return export_graph(self._objects.root, contract.catalog, snapshot, export)


def _choose(
    contract: SchemaContract,
    text: object,
    params: object,
    keywords: Mapping[str, object],
    *,
    name: object,
) -> ChosenQuery:
    # The query compiler: readers of tables need none.
    from omnigraph_lake.engine.query_text import all_parameters, choose_query, query_text

    return choose_query(query_text(text, contract), all_parameters(params, keywords), name=name)


def _node_types(catalog: Catalog, root: Root, types: object) -> Sequence[str]:
    """Node types by their names; all of them by default."""
    if types is None:
        return tuple(catalog.nodes)
    if isinstance(types, str) or not isinstance(types, Sequence):
        raise InvalidInputError(f"types are {shown(types)}, expected a list of names")
    return [_node_type(catalog, root, name).name for name in types]


def _node_type(catalog: Catalog, root: Root, name: object) -> NodeType:
    node = catalog.nodes.get(name) if isinstance(name, str) else None
    if node is not None:
        return node
    hint = did_you_mean(shown(name).strip("'"), list(catalog.nodes))
    raise NotFoundError(
        f"{root} has no node type {shown(name)}" + (f" ({hint})" if hint else ""),
        next_step=f"Run `omnigraph schema show {root}` to see the types.",
    )


def _start_of(catalog: Catalog, root: Root, around: object) -> tuple[str, str]:
    """The type and the id of the node that a caller names."""
    match around:
        case str() if "/" in around:
            type_name, _, node_id = around.partition("/")
            return _node_type(catalog, root, type_name).name, node_id
        case (str() as type_name, key):
            declared = _node_type(catalog, root, type_name)
            if declared.key is None and isinstance(key, str):
                return declared.name, key
            return declared.name, _id_of_key(declared, key)
        case _:
            raise InvalidInputError(
                f"around is {shown(around)}, expected a type and a key",
                next_step='Write ("Person", "ann"), or "Person/ann" with the id.',
            )


def _type_rows(catalog: Catalog, snapshot: Snapshot) -> Iterator[tuple[Cell, ...]]:
    titles = {names.node_table_key(node.name): node.name for node in catalog.nodes.values()} | {
        names.edge_table_key(edge.name): f"{edge.source} → {edge.name} → {edge.target}"
        for edge in catalog.edges.values()
    }
    declared = catalog.tables()
    for table_key, title in titles.items():
        entry = snapshot.tables.get(table_key)
        yield (
            title,
            table_key.partition(":")[0],
            ", ".join(declared[table_key].properties),
            f"{entry.row_count:,}" if entry else "-",
            str(entry.version) if entry else "-",
        )
