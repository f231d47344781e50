"""Reads of a graph: the current state, a branch, or a past commit.

Invariant: every call reads one snapshot from beginning to end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, overload

from omnigraph import names
from omnigraph.errors import InvalidInputError
from omnigraph.operations.arguments import flag, plain_text
from omnigraph.operations.read import read_type
from omnigraph.storage.processes import use_storage
from omnigraph.system_clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from os import PathLike
    from typing import IO, Any, Self

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.operations.export import ExportReport
    from omnigraph.operations.holding import LiveHold
    from omnigraph.operations.query_result import QueryResult
    from omnigraph.operations.query_text import ChosenQuery
    from omnigraph.operations.schema_contract import Contracts, SchemaContract
    from omnigraph.operations.stored_queries import StoredQueries, StoredQuery
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.evolution.planning import Evolution
    from omnigraph.spark.scan import SparkGraph
    from omnigraph.storage.manifest_rows import GraphHead
    from omnigraph.storage.objects import Objects
    from omnigraph.storage.snapshot import Snapshot, TableEntry

_OPTIONS: Final = frozenset({"engine", "spark", "memory", "timeout"})


class Readable:
    """Reads of one snapshot of a graph."""

    def __init__(self, objects: Objects, contracts: Contracts, contract: SchemaContract) -> None:
        self._stored = objects
        self._contracts = contracts
        self._contract = contract

    @property
    def _objects(self) -> Objects:
        """Every operation uses this, so none starts in a forked process, where it would hang."""
        use_storage()
        return self._stored

    @property
    def root(self) -> str:
        return self._stored.root.uri

    @property
    def catalog(self) -> Catalog:
        """The types, properties and constraints of the current state."""
        return self._view()[1].catalog

    @property
    def schema_text(self) -> str:
        return self._view()[1].text

    def plan_schema(
        self, text: str, *, filename: str = "schema.pg", hard: bool = False
    ) -> Evolution:
        """Plan the application of a schema. Changes nothing.

        Raises:
            SchemaInvalidError: the text, or a hint in it, is invalid.
        """
        from omnigraph.schema.evolution.planning import evolve  # the compiler: 120 ms

        plain_text(text, argument="text")
        plain_text(filename, argument="filename")
        flag(hard, argument="hard")
        _, contract = self._view()
        return evolve(contract.catalog, text, filename=filename, hard=hard)

    def snapshot(self) -> PastGraph:
        """The current state, pinned: several reads through it see the same commit."""
        snapshot, contract = self._view()
        return PastGraph(self._objects, self._contracts, contract, _name_of(snapshot), snapshot)

    def _view(self) -> tuple[Snapshot, SchemaContract]:
        """The current state and its schema, read together."""
        raise NotImplementedError

    def nodes(
        self, type_name: str, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Stream the nodes of a type, batch by batch."""
        key = names.node_table_key(plain_text(type_name, argument="type_name"))
        return read_type(self._objects.root, self._view()[0], key, columns=columns)

    def edges(
        self, type_name: str, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Stream the edges of a type, batch by batch."""
        key = names.edge_table_key(plain_text(type_name, argument="type_name"))
        return read_type(self._objects.root, self._view()[0], key, columns=columns)

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
        engine: str = "auto",
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
        engine: str = "auto",
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
        snapshot, contract = self._view()
        chosen = _chosen(contract, text, params, parameters, name=name)
        return self._queried(
            snapshot, chosen, engine=engine, spark=spark, memory=memory, timeout=timeout
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
        from omnigraph.operations.query import explain_query, query_limits

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
        from omnigraph.operations.stored_queries import StoredQueries, stored_queries

        found = stored_queries(directory, self._view()[1])
        return StoredQueries(Path(directory), found, self._run_stored)

    def _run_stored(self, stored: StoredQuery, params: object, arguments: Mapping[str, Any]) -> Any:
        # The query compiler: readers of tables need none.
        from omnigraph.operations.query_text import ChosenQuery, all_parameters, for_schema

        options = {key: arguments[key] for key in _OPTIONS & set(arguments)}
        keywords = {key: value for key, value in arguments.items() if key not in options}
        given = all_parameters(params, keywords)
        snapshot, contract = self._view()
        chosen = ChosenQuery(source=stored.source, typed=stored.typed, given=given)
        return self._queried(snapshot, for_schema(chosen, contract), **options)

    def _queried(
        self,
        snapshot: Snapshot,
        chosen: ChosenQuery,
        *,
        engine: str = "auto",
        spark: SparkSession | None = None,
        memory: int | str | None = None,
        timeout: float | timedelta | None = None,
    ) -> QueryResult | DataFrame:
        # The query compiler: readers of tables need none.
        from omnigraph.operations.query import (
            QueryEngine,
            chosen_engine,
            query_graph,
            query_limits,
            query_on_spark,
        )

        now = SYSTEM_CLOCK.now()
        if chosen_engine(engine, spark=spark) is QueryEngine.LOCAL:
            limits = query_limits(memory, timeout)
            return query_graph(self._objects.root, snapshot, chosen, limits=limits, now=now)
        if memory is not None or timeout is not None:
            raise InvalidInputError(
                "memory and timeout are for queries in this process, and this one runs on Spark",
                next_step="Set limits on the Spark session, or leave them out.",
            )
        on_spark = self._on_spark(spark, snapshot)
        try:
            return on_spark.kept_by(query_on_spark(on_spark, chosen, now=now))
        except BaseException:
            on_spark.release()
            raise

    def spark(self, spark: SparkSession | None = None) -> SparkGraph:
        """The graph as DataFrames and views, pinned to the current state.

        Args:
            spark: The session to use; by default that of this process, or a new one on this
                machine.

        Raises:
            SparkUnavailableError: Spark or Java is not installed.
        """
        return self._on_spark(spark, self._view()[0])

    def _on_spark(self, spark: SparkSession | None, snapshot: Snapshot) -> SparkGraph:
        from omnigraph.spark.session import spark_session  # few graphs are read with Spark

        session = spark_session(spark)
        from omnigraph.spark.scan import SparkGraph  # needs pyspark, which a session proves

        return SparkGraph(session, self._objects.root, snapshot)

    def export(
        self,
        path: str | PathLike[str] | IO[bytes],
        *,
        type_name: str | None = None,
        format: str = "jsonl",  # noqa: A002 - the conventional name
    ) -> ExportReport:
        """Export the rows to files that `load` can read, nodes before edges.

        `jsonl` goes to a file or an open binary stream; `parquet`, which also supports values that
        JSON cannot represent, to a directory.
        """
        from omnigraph.operations.export import export_graph, plan_export  # Parquet

        export = plan_export(path, type_name=type_name, format=format)
        snapshot, contract = self._view()
        return export_graph(self._objects.root, contract.catalog, snapshot, export)


class PastGraph(Readable):
    """A read-only graph, pinned to a past state. Two are equal if they pin the same versions.

    With a hold, what it reads is kept until the hold ends, or the `with` block does.
    """

    def __init__(
        self,
        objects: Objects,
        contracts: Contracts,
        contract: SchemaContract,
        name: str,
        snapshot: Snapshot,
        hold: LiveHold | None = None,
    ) -> None:
        super().__init__(objects, contracts, contract)
        self._name = name
        self._snapshot = snapshot
        self._hold = hold

    @property
    def pinned(self) -> Snapshot:
        """The version of every table that is read."""
        return self._snapshot

    @property
    def contract(self) -> SchemaContract:
        """The schema of the pinned state."""
        return self._contract

    @property
    def hold(self) -> LiveHold | None:
        """The hold that keeps it readable; None without a hold."""
        return self._hold

    @property
    def branch_name(self) -> str:
        return self._snapshot.branch_name

    @property
    def head(self) -> GraphHead | None:
        """The head of the branch, if this was its newest state when it was read."""
        return self._snapshot.head

    @property
    def manifest_version(self) -> int:
        return self._snapshot.manifest_version

    @property
    def schema_hash(self) -> str | None:
        return self._snapshot.schema_hash

    @property
    def tables(self) -> Mapping[str, TableEntry]:
        """The entries of the tables that are read, by key."""
        return self._snapshot.tables

    @property
    def commit_id(self) -> str | None:
        """The commit of this state."""
        return self._snapshot.commit_id

    def _view(self) -> tuple[Snapshot, SchemaContract]:
        return self._snapshot, self._contract

    def release(self) -> None:
        """Release the hold; the data may be cleaned up from now on."""
        if self._hold is not None:
            self._hold.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PastGraph):
            return NotImplemented
        return (self.root, self._snapshot) == (other.root, other._snapshot)

    def __hash__(self) -> int:
        return hash((self.root, self._snapshot.branch, self._snapshot.manifest_version))

    def __repr__(self) -> str:
        held = f" until {self._hold.expires_at:%Y-%m-%d %H:%M:%S}" if self._hold else ""
        return f"<PastGraph {self.root} at {self._name!r}{held}>"


def _name_of(snapshot: Snapshot) -> str:
    return snapshot.commit_id or snapshot.branch_name


def _chosen(
    contract: SchemaContract,
    text: object,
    params: object,
    keywords: Mapping[str, object],
    *,
    name: object,
) -> ChosenQuery:
    # The query compiler: readers of tables need none.
    from omnigraph.operations.query_text import all_parameters, choose_query, query_text

    return choose_query(query_text(text, contract), all_parameters(params, keywords), name=name)
