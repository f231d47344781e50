"""`spark.read.format("omnigraph")` and `df.write.format("omnigraph")`, without a jar.

    spark.dataSource.register(OmnigraphDataSource)
    people = spark.read.format("omnigraph").option("type", "Person").load(root)
    people.write.format("omnigraph").option("type", "Person").mode("append").save(other_root)

Invariant: a DataFrame reads the state that was published when it was loaded, however often it is
evaluated. A write is one commit that went through every check, or nothing.

Spark tells a source of this kind neither which columns nor which rows a query needs, so ask for
them: by `columns` and `filter` here, or better by `graph.spark(...)`, which starts fewer processes.
Filters that Spark offers to push down are not taken: in Spark 4.3 a source that takes them returns
wrong rows for the next query of the same DataFrame.

Changes are read as a stream that says where it starts, see `change_source`:

    changes = spark.readStream.format("omnigraph").option("type", "Person")
    changes.option("startingCommit", "now").load(root)

and batches of a stream are written once, see `sink`:

    query = frame.writeStream.format("omnigraph").option("type", "Person")
    query.option("checkpointLocation", place).start(root)

Options of a read: `type` (a type's name, or `node:Name` and `edge:Name` where both exist),
`columns` (separated by commas), `filter` (a condition in SQL), one of `version` (of the manifest),
`commit` or `timestampAsOf`, and `branch`. Options of a stream of changes: `type`, or `types`
(separated by commas, or `*` for all), `branch`, `startingCommit` ("now", "beginning" or the id of a
commit), `maxCommitsPerBatch` and `hold`. Options of a write, see `sink`: `type` or `typeColumn`,
`mode` ("merge" and "replace", which Spark's own modes are not), `branch`, `operationId`, `onError`,
`maxBad`, `orderBy`, `mergeSchema`, `actor`, `message` and `metadata` (a JSON object of texts); a
stream into a graph has `stream`, a label, instead of `operationId`. All take `storage.NAME` for
each option NAME of the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from omnigraph_lake import errors, names
from omnigraph_lake.creation.initialise import existing_graph
from omnigraph_lake.diff.branch_line import nodes_first
from omnigraph_lake.language.diagnostics import did_you_mean
from omnigraph_lake.names import END_TYPE_COLUMNS
from omnigraph_lake.runner.scan import ScanPlan, read_group, scan_plan
from omnigraph_lake.runner.spark_versions import arrow_schema, require_read_limits
from omnigraph_lake.schema.catalog import EdgeType
from omnigraph_lake.spark.change_source import (
    COMMITS_PER_BATCH,
    ChangeStreamReader,
    StreamPlan,
    checked_commits,
    checked_hold,
    checked_start,
)
from omnigraph_lake.spark.sink import (
    SINK_OPTIONS,
    WRITE_OPTIONS,
    GraphStreamWriter,
    GraphWriter,
    SinkOptions,
    SinkPlan,
)
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.manifest.time_travel import moment_of
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.refs.references import (
    branch_ref,
    branch_state,
    is_commit_id,
    manifest_version,
    resolve,
)
from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
from omnigraph_lake.validation.schema_contract import read_contract

_STORAGE_PREFIX: Final = "storage."
_PAST: Final = ("version", "commit", "timestampAsOf")
_READ_OPTIONS: Final = ("path", "type", "columns", "filter", *_PAST, "branch", "location")
"""Spark adds `location`, the same as `path`, for a table of its catalog."""
_STREAM_ONLY: Final = ("startingCommit", "maxCommitsPerBatch", "hold")
_STREAM_OPTIONS: Final = ("path", "type", "types", "branch", *_STREAM_ONLY)
_ALL_TYPES: Final = "*"


class OmnigraphDataSource(DataSource):
    """One type of one graph as a source and a sink of Spark."""

    _plan: ScanPlan | None = None
    _stream: StreamPlan | None = None

    @classmethod
    def name(cls) -> str:
        return "omnigraph"

    def schema(self) -> StructType:
        """Pin the scan; Spark keeps this object, and with it the pin, for the DataFrame's life.

        Spark does not say whether it is about to read or to stream; only options can tell.
        """
        if _is_stream(self.options):
            self._stream = planned_stream(self.options)
            return self._stream.schema
        self._plan = planned_read(self.options)
        return self._plan.schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if not _is_stream(self.options):
            raise errors.InvalidInputError(
                "a stream of changes needs a starting commit",
                next_step='Add `.option("startingCommit", "now")`, or "beginning", or a commit.',
            )
        plan = planned_stream(self.options) if self._stream is None else self._stream
        if schema != plan.schema:
            raise errors.InvalidInputError(
                f"changes of {plan.name} were to be read as {schema.simpleString()}, expected "
                f"{plan.schema.simpleString()}",
                next_step="Leave `.schema(...)` out.",
            )
        return ChangeStreamReader(plan)

    def reader(self, schema: StructType) -> DataSourceReader:
        if _is_stream(self.options):
            raise errors.InvalidInputError(
                f"{' and '.join(_STREAM_ONLY)} are options of a stream",
                next_step="Use `spark.readStream`, or leave them out.",
            )
        plan = planned_read(self.options) if self._plan is None else self._plan
        if schema != plan.schema:
            raise errors.InvalidInputError(
                f"{plan.entry.table_key} was to be read as {schema.simpleString()}, expected "
                f"{plan.schema.simpleString()}",
                next_step="Leave `.schema(...)` out and choose columns by the option `columns`.",
            )
        return GraphReader(plan)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        plan = planned_write(self.options, arrow_schema(schema), overwrite=overwrite)
        return GraphWriter(plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> GraphStreamWriter:  # noqa: FBT001, N802
        plan = plan_sink(self.options, arrow_schema(schema), overwrite=overwrite)
        return GraphStreamWriter(plan, schema)


class GraphReader(DataSourceReader):
    """Reads a planned scan, one group of fragments per partition."""

    def __init__(self, plan: ScanPlan) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(group) for group in range(len(self._plan.groups))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes up one partition for a source that has none: None, or one without a value.
        group = getattr(partition, "value", None)
        return iter(()) if group is None else read_group(self._plan, group)


def plan_sink(options: Mapping[str, str], schema: pa.Schema, *, overwrite: bool) -> SinkPlan:
    """What a stream into the graph with these options means, against what is published now."""
    _require_known(options, SINK_OPTIONS)
    root = _root(options)
    existing_graph(root)
    return SinkPlan.of(SinkOptions.of(options, root, overwrite=overwrite), schema)


def planned_read(options: Mapping[str, str]) -> ScanPlan:
    """What a read with these options means, against what is published now."""
    _require_known(options, _READ_OPTIONS)
    root = _root(options)
    snapshot = _snapshot(root, options)
    columns = options.get("columns")
    entry = snapshot.tables[_table_key(root, snapshot, options)]
    return scan_plan(
        root,
        entry,
        columns=None if columns is None else [column.strip() for column in columns.split(",")],
        where=options.get("filter"),
        declared=_edge_type(root, snapshot, entry),
    )


def _edge_type(root: Root, snapshot: Snapshot, entry: TableEntry) -> EdgeType | None:
    """The declaration of edges whose rows may store types of their ends; None for other rows."""
    if not entry.table_key.startswith(names.EDGE_PREFIX):
        return None
    type_name = entry.table_key.removeprefix(names.EDGE_PREFIX)
    if {*END_TYPE_COLUMNS.values()}.isdisjoint(open_pinned(root, entry).schema.names):
        return None
    return read_contract(StoredObjects(root), snapshot.schema_hash).catalog.edges[type_name]


def planned_stream(options: Mapping[str, str]) -> StreamPlan:
    """What a stream with these options means; its columns are those of now."""
    _require_known(options, _STREAM_OPTIONS)
    root = _root(options)
    snapshot = _snapshot(root, options)
    table_keys = _table_keys(root, snapshot, options)
    commits_per_batch = checked_commits(options.get("maxCommitsPerBatch", str(COMMITS_PER_BATCH)))
    if "maxCommitsPerBatch" in options:
        require_read_limits()
    return StreamPlan(
        root=root,
        branch=options.get("branch"),
        tables={
            key: scan_plan(root, entry, declared=_edge_type(root, snapshot, entry)).stored
            for key, entry in ((key, snapshot.tables[key]) for key in table_keys)
        },
        labels=_labels(snapshot) if "types" in options else None,
        start=checked_start(options.get("startingCommit", "now")),
        commits_per_batch=commits_per_batch,
        holds=checked_hold(options.get("hold", "false")),
    )


def planned_write(options: Mapping[str, str], schema: pa.Schema, *, overwrite: bool) -> SinkPlan:
    """What a write with these options means, against what is published now."""
    _require_known(options, WRITE_OPTIONS)
    root = _root(options)
    existing_graph(root)
    return SinkPlan.of(SinkOptions.of(options, root, overwrite=overwrite), schema)


def _is_stream(options: Mapping[str, str]) -> bool:
    return any(name in options for name in _STREAM_ONLY)


def _require_known(options: Mapping[str, str], known: Sequence[str]) -> None:
    folded = {name.lower() for name in known}
    for name in options:
        if name.lower() not in folded and not name.lower().startswith(_STORAGE_PREFIX):
            hint = did_you_mean(name, known)
            raise errors.InvalidInputError(
                f"there is no option {name!r:.80}" + (f" ({hint})" if hint else ""),
                next_step=f"The options are {', '.join(known)} and {_STORAGE_PREFIX}NAME.",
            )


def _root(options: Mapping[str, str]) -> Root:
    path = options.get("path")
    if path is None:
        raise errors.InvalidInputError(
            "there is no graph to use",
            next_step="Give its root to `.load(root)` or `.save(root)`.",
        )
    storage_options = {
        name[len(_STORAGE_PREFIX) :]: value
        for name, value in options.items()
        if name.lower().startswith(_STORAGE_PREFIX)
    }
    return parse_root(path, storage_options=storage_options)


def _snapshot(root: Root, options: Mapping[str, str]) -> Snapshot:
    given_options = [name for name in _PAST if name in options]
    if len(given_options) > 1:
        raise errors.InvalidInputError(
            f"a state was chosen twice, by {' and by '.join(given_options)}",
            next_step="Choose one way.",
        )
    existing_graph(root)
    objects = StoredObjects(root)
    branch = options.get("branch")
    match given_options:
        case [way]:
            return resolve(objects, _reference(way, options[way]), branch=branch).snapshot
        case _:
            return branch_state(objects, branch_ref(objects, branch)).snapshot()


def _reference(way: str, text: str) -> str:
    fits = {"version": manifest_version(text), "commit": is_commit_id(text)}
    if way == "timestampAsOf":
        return moment_of(text).isoformat()
    if not fits[way]:
        raise errors.InvalidInputError(f"{way} is {text!r:.80}, expected the number or id of one")
    return text


def _table_keys(root: Root, snapshot: Snapshot, options: Mapping[str, str]) -> tuple[str, ...]:
    """The tables of a stream: of one type, of the named ones, or of all."""
    named = options.get("types")
    if named is None:
        return (_table_key(root, snapshot, options),)
    if "type" in options:
        raise errors.InvalidInputError(
            "types were chosen twice, by type and by types", next_step="Choose one way."
        )
    if named.strip() == _ALL_TYPES:
        return tuple(sorted(snapshot.tables, key=nodes_first))
    keys = {_key_of(root, snapshot, name.strip()) for name in named.split(",")}
    return tuple(sorted(keys, key=nodes_first))


def _labels(snapshot: Snapshot) -> dict[str, str]:
    """How a stream names types: by name, or by key where a node and an edge type share it."""
    type_names = {key: key.partition(":")[2] for key in snapshot.tables}
    uses = Counter(type_names.values())
    return {key: name if uses[name] == 1 else key for key, name in type_names.items()}


def _table_key(root: Root, snapshot: Snapshot, options: Mapping[str, str]) -> str:
    wanted_type = options.get("type")
    if wanted_type is None:
        raise errors.InvalidInputError(
            f"no type of {root} was chosen", next_step='Add `.option("type", NAME)`.'
        )
    return _key_of(root, snapshot, wanted_type)


def _key_of(root: Root, snapshot: Snapshot, wanted_type: str) -> str:
    matching_keys = [key for key in snapshot.tables if wanted_type in (key, key.partition(":")[2])]
    if not matching_keys:
        hint = did_you_mean(wanted_type, [key.partition(":")[2] for key in snapshot.tables])
        raise errors.NotFoundError(
            f"{root} has no type {wanted_type!r:.80}" + (f" ({hint})" if hint else ""),
            next_step=f"Run `omnigraph schema show {root}` to see the types.",
        )
    if len(matching_keys) > 1:
        raise errors.InvalidInputError(
            f"{root} has a node type and an edge type {wanted_type!r}",
            next_step=f"Choose {matching_keys[0]!r} or {matching_keys[1]!r}.",
        )
    return matching_keys[0]
