"""What can be read of a graph: now, on a branch, or as some commit left it.

Invariant: every call reads one snapshot from beginning to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.operations.read import read_type

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from typing import IO

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from omnigraph.operations.export import ExportReport
    from omnigraph.operations.schema_contract import SchemaContract
    from omnigraph.schema.catalog import Catalog
    from omnigraph.spark.scan import SparkGraph
    from omnigraph.storage.objects import Objects
    from omnigraph.storage.snapshot import Snapshot


class Readable:
    """Reads of one snapshot of a graph."""

    def __init__(self, objects: Objects, contract: SchemaContract) -> None:
        self._objects = objects
        self._contract = contract

    @property
    def root(self) -> str:
        return self._objects.root.uri

    @property
    def catalog(self) -> Catalog:
        """The types, properties and constraints the graph accepts."""
        return self._contract.catalog

    @property
    def schema_text(self) -> str:
        return self._contract.text

    def snapshot(self) -> Snapshot:
        """The version of every table that is read."""
        raise NotImplementedError

    def nodes(
        self, type_name: str, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Stream the nodes of a type, batch by batch."""
        key = names.node_table_key(type_name)
        return read_type(self._objects.root, self.snapshot(), key, columns=columns)

    def edges(
        self, type_name: str, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Stream the edges of a type, batch by batch."""
        key = names.edge_table_key(type_name)
        return read_type(self._objects.root, self.snapshot(), key, columns=columns)

    def spark(self, spark: SparkSession | None = None) -> SparkGraph:
        """The graph as DataFrames and views, pinned to what is read now.

        Args:
            spark: The session to work on; the one this process has, or a new one on this machine,
                if left out.

        Raises:
            SparkUnavailableError: Spark or Java is not installed.
        """
        from omnigraph.spark.session import spark_session  # few graphs are read with Spark

        session = spark_session(spark)
        from omnigraph.spark.scan import SparkGraph  # needs pyspark, which a session proves

        return SparkGraph(session, self._objects.root, self.snapshot())

    def export(
        self,
        path: str | PathLike[str] | IO[bytes],
        *,
        type_name: str | None = None,
        format: str = "jsonl",  # noqa: A002 - what everybody calls it
    ) -> ExportReport:
        """Write the rows as files that `load` reads back, nodes before edges.

        `jsonl` goes to a file or an open binary stream; `parquet`, which also holds what JSON
        cannot spell, to a directory.
        """
        from omnigraph.operations.export import export_graph, plan_export  # Parquet

        export = plan_export(path, type_name=type_name, format=format)
        return export_graph(self._objects.root, self.catalog, self.snapshot(), export)


class PastGraph(Readable):
    """A graph as it was: pinned, and only to be read."""

    def __init__(
        self, objects: Objects, contract: SchemaContract, name: str, snapshot: Snapshot
    ) -> None:
        super().__init__(objects, contract)
        self._name = name
        self._snapshot = snapshot

    @property
    def commit_id(self) -> str | None:
        """The commit that left this state."""
        return self._snapshot.commit_id

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def __repr__(self) -> str:
        return f"<PastGraph {self.root} at {self._name!r}>"
