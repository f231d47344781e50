"""Reads of a graph: the current state, a branch, or a past commit.

Invariant: every call reads one snapshot from beginning to end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from omnigraph import names
from omnigraph.api.handle import Reading
from omnigraph.api.read import Scan, read_entity, read_rows, table_key_of
from omnigraph.api.system_clock import SYSTEM_CLOCK
from omnigraph.display.cells import Cell
from omnigraph.display.pages import Page
from omnigraph.display.tables import TableView
from omnigraph.errors import InvalidInputError
from omnigraph.storage.lance.tables import find_entry
from omnigraph.validation.input.named_types import declared_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from os import PathLike
    from typing import IO

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.api.options import Key
    from omnigraph.api.schema import SchemaView
    from omnigraph.api.spark_graph import SparkGraph
    from omnigraph.engine.query_result import QueryResult
    from omnigraph.engine.query_text import ChosenQuery
    from omnigraph.engine.stored_queries import StoredQueries, StoredQuery
    from omnigraph.load.export import ExportReport
    from omnigraph.load.report import LoadReport
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.refs.holding import Holding
    from omnigraph.storage.snapshot import Snapshot
    from omnigraph.validation.schema_contract import SchemaContract

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
        snapshot, contract = self._view()
        root = self._objects.root
        table_key = table_key_of(contract.catalog, root, type)
        declared = declared_types(contract.catalog)[table_key]
        return read_entity(root, snapshot, declared, table_key=table_key, key=key, entity_id=id)

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
        chosen = _chosen(view[1], text, params, parameters, name=name)
        return self._queried(
            view, chosen, engine=engine, spark=spark, memory=memory, timeout=timeout
        )

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
        chosen = _chosen(contract, text, params, parameters, name=name)
        if not physical and not analyze:
            from omnigraph.query.plan_text import explain  # the compiler: 100 ms few readers need

            return explain(chosen.plan(snapshot))
        # DuckDB: a plan as text needs none.
        from omnigraph.engine.query import explain_query, query_limits

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
        from omnigraph.engine.stored_queries import StoredQueries, stored_queries

        by_name = stored_queries(directory, self._view()[1])
        return StoredQueries(Path(directory), by_name, self._run_stored)

    def _run_stored(self, stored: StoredQuery, params: object, arguments: Mapping[str, Any]) -> Any:
        # The query compiler: readers of tables need none.
        from omnigraph.engine.query_text import ChosenQuery, all_parameters, for_schema

        options = {key: arguments[key] for key in _OPTIONS & set(arguments)}
        keywords = {key: value for key, value in arguments.items() if key not in options}
        given = all_parameters(params, keywords)
        view = self._view()
        chosen = ChosenQuery(source=stored.source, typed=stored.typed, given=given)
        return self._queried(view, for_schema(chosen, view[1]), **options)

    def _queried(
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
        from omnigraph.engine.query import (
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
        from omnigraph.runner.session import spark_session  # few queries run on Spark

        reading = self._hold_for_spark(view[0])
        try:
            session = spark_session(spark)
            # Need pyspark.
            from omnigraph.api.spark_graph import held_frame
            from omnigraph.runner.scan import SparkTables

            return held_frame(SparkTables(session, self._objects.root, view[0]), chosen, reading)
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
        from omnigraph.runner.session import spark_session  # few graphs are read with Spark

        reading = self._hold_for_spark(snapshot)
        try:
            session = spark_session(spark)
            from omnigraph.api.spark_graph import SparkGraph  # needs pyspark

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
        from omnigraph.load.export import export_graph, plan_export  # Parquet

        export = plan_export(path, type_name=type, format=format)
        snapshot, contract = self._view()
        return export_graph(self._objects.root, contract.catalog, snapshot, export)


def _chosen(
    contract: SchemaContract,
    text: object,
    params: object,
    keywords: Mapping[str, object],
    *,
    name: object,
) -> ChosenQuery:
    # The query compiler: readers of tables need none.
    from omnigraph.engine.query_text import all_parameters, choose_query, query_text

    return choose_query(query_text(text, contract), all_parameters(params, keywords), name=name)


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
