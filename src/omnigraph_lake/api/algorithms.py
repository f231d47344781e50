"""`graph.algorithms`: PageRank, components, label propagation, triangles and distances.

Invariant: a run reads one state of the graph, and its result does not depend on what runs it:
threads of this process or tasks of Spark give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.algorithms.blocks import ChosenTables, EdgeTable, NodeTable, Sizes
from omnigraph_lake.algorithms.components import Components
from omnigraph_lake.algorithms.distances import Distances, Landmark
from omnigraph_lake.algorithms.files import decode_rows, read_checked
from omnigraph_lake.algorithms.labels import LabelPropagation
from omnigraph_lake.algorithms.page_rank import PageRank
from omnigraph_lake.algorithms.runs import TYPE_COLUMN, Algorithm, Run, RunRecord
from omnigraph_lake.algorithms.triangles import TriangleCount
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import parse_operation_id, text_or_none
from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.errors import InvalidInputError, ReadOnlyError
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.notes import CommitNote, commit_note
from omnigraph_lake.runner.choose import chosen_runner
from omnigraph_lake.runner.session import given_spark
from omnigraph_lake.runner.shuffle import Scratch, StoredScratch
from omnigraph_lake.storage.lance.tables import find_entry
from omnigraph_lake.ulids import new_ulid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph_lake.api.handle import Reading
    from omnigraph_lake.api.options import Spark
    from omnigraph_lake.load.report import LoadReport
    from omnigraph_lake.runner.protocol import Runner
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
    from omnigraph_lake.validation.schema_contract import SchemaContract


NodeTypes: TypeAlias = str | Sequence[str]
"""A node type, or several: then results say which one a node has."""
_PAIR: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmResult(Displayed):
    """The result of a run: one row per node, in the order of types and ids.

    Attributes:
        algorithm: Its name, as that of the method.
        operation_id: The same call with this id returns the same result, while its files are kept.
        commit_id: The commit that was read.
        rounds: How many rounds it took.
        rows: The number of nodes.
        schema: Names and types of the columns.
        report: The report of the load that wrote the values to the graph, if they were.
    """

    algorithm: str
    operation_id: str
    commit_id: str | None
    rounds: int
    rows: int
    schema: pa.Schema = field(repr=False)
    report: LoadReport | None = None
    _parts: Parts = field(repr=False)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows as Arrow record batches."""
        for number in range(self._parts.count):
            yield from self._parts.read(number)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for consumers of Arrow streams: polars, DuckDB, pyarrow, Lance."""
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return pa.Table.from_batches(iter(self), self.schema)

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dicts."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame, whose tasks read the files of the run.

        Raises:
            InvalidInputError: the run was in this process, without an operation id.
        """
        if self._parts.scratch is None:
            raise InvalidInputError(
                f"the result of {self.algorithm} is in this process only",
                next_step="Run it with `spark=` or with an operation id, or use `to_arrow()`.",
            )
        from omnigraph_lake.runner.scan import rows_on_spark  # needs pyspark

        return rows_on_spark(spark, self._parts.count, self._parts.read, self.schema)

    def _page(self) -> Page:
        rounds = counted(self.rounds, "round")
        summary = f"{self.algorithm} of {counted(self.rows, 'node')} in {rounds}"
        if self.report is not None:
            summary += f", written as commit {self.report.commit_id}"
        return Page(summary=summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The rows of a result: in memory, or as files of a stored run; tasks receive it."""

    paths: tuple[str, ...] = ()
    scratch: Scratch | None = None
    batches: tuple[pa.RecordBatch, ...] = ()

    @property
    def count(self) -> int:
        return len(self.batches) if self.scratch is None else len(self.paths)

    def read(self, number: int) -> list[pa.RecordBatch]:
        if self.scratch is None:
            return [self.batches[number]]
        return decode_rows(read_checked(self.scratch, self.paths[number]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTarget:
    """The state that a run reads; `is_pinned` if a resumed run must have begun with the same."""

    root: Root
    snapshot: Snapshot
    catalog: Catalog
    is_pinned: bool

    def choose(self, node_type: object, edge_types: object) -> ChosenTables:
        """The tables of the types that a caller named.

        Raises:
            InvalidInputError: an edge type joins nodes of types that were not named.
        """
        node_types = parse_node_types(node_type)
        if isinstance(edge_types, str) or not isinstance(edge_types, Sequence) or not edge_types:
            raise InvalidInputError(
                f"edge_types is {shown(edge_types)}, expected a list of edge types"
            )
        nodes = tuple(
            NodeTable(type_name=name, entry=self._entry(names.node_table_key(name)))
            for name in node_types
        )
        edges = tuple(
            self._edge_table(name, node_types) for name in sorted(set(map(str, edge_types)))
        )
        with_types = not isinstance(node_type, str)
        return ChosenTables(root=self.root, nodes=nodes, edges=edges, with_types=with_types)

    def _edge_table(self, edge_type: str, node_types: Sequence[str]) -> EdgeTable:
        entry = self._entry(names.edge_table_key(edge_type))
        declared = self.catalog.edges[edge_type]
        ends = {names.SOURCE_COLUMN: declared.source, names.TARGET_COLUMN: declared.target}
        joined = dict.fromkeys(name for end in ends.values() for name in end.names)
        others = [name for name in joined if name not in node_types]
        if others:
            raise InvalidInputError(
                f"edges of {edge_type} join nodes of {' and '.join(others)}, too, expected only "
                f"those of {' and '.join(node_types)}",
                next_step=f"Name all their node types: {sorted({*node_types, *others})}.",
            )
        return EdgeTable(type_name=edge_type, entry=entry, ends=ends)

    def _entry(self, table_key: str) -> TableEntry:
        return find_entry(self.root, self.snapshot, table_key)

    def run(
        self,
        algorithm: Algorithm,
        tables: ChosenTables,
        runner: Runner,
        *,
        operation_id: str | None,
        is_stored: bool,
        sizes: Sizes | None = None,
    ) -> tuple[AlgorithmResult, RunRecord]:
        """Run or resume it.

        Raises:
            RunInterruptedError: a job failed; it can be resumed.
        """
        run = Run(
            operation_id=_run_id(operation_id),
            write_id=new_ulid(),
            algorithm=algorithm,
            tables=tables,
            commit_id=self.snapshot.commit_id,
            is_pinned=self.is_pinned,
            sizes=sizes or Sizes(),
            clock=SYSTEM_CLOCK,
        )
        if is_stored:
            stored = StoredScratch(root=self.root, operation_id=names.run_folder(run.operation_id))
            stored.open()
            record = run.finish(runner, stored)
            return _result(run, record, Parts(paths=_paths(record), scratch=stored)), record
        with runner.scratch(run.operation_id) as scratch:
            record = run.finish(runner, scratch)
            files = Parts(paths=_paths(record), scratch=scratch)
            batches = tuple(batch for number in range(files.count) for batch in files.read(number))
        return _result(run, record, Parts(batches=batches)), record


def parse_node_types(node_type: object) -> tuple[str, ...]:
    """The node types that a caller named, sorted: one as a text, or a list."""
    if isinstance(node_type, str):
        return (node_type,)
    named = list(node_type) if isinstance(node_type, Sequence) else []
    if not named or not all(isinstance(name, str) for name in named):
        raise InvalidInputError(
            f"node_type is {shown(node_type)}, expected a node type or a list of node types"
        )
    return tuple(sorted(set(named)))


def _run_id(operation_id: str | None) -> str:
    """The id of a run; with a key of the caller always the same one, so that it is resumed."""
    if operation_id is None:
        return new_ulid()
    named = parse_operation_id(operation_id, now=SYSTEM_CLOCK.now())
    return named.first_attempt() if isinstance(named, names.OperationKey) else named


def _paths(record: RunRecord) -> tuple[str, ...]:
    assert record.result is not None, "a finished run has a result"
    return tuple(file.path for file in record.result)


def _result(run: Run, record: RunRecord, parts: Parts) -> AlgorithmResult:
    assert record.result is not None, "a finished run has a result"
    return AlgorithmResult(
        algorithm=record.algorithm,
        operation_id=run.operation_id,
        commit_id=record.commit_id,
        rounds=record.state.round,
        rows=sum(file.rows for file in record.result),
        schema=run.schema,
        _parts=parts,
    )


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments that all methods share."""

    node_type: NodeTypes
    edge_types: Sequence[str]
    spark: Spark | None
    operation_id: str | None
    write_to: str | None
    actor: str | None
    note: CommitNote


def parse_landmarks(landmarks: Iterable[str | tuple[str, str]]) -> tuple[Landmark, ...]:
    """Landmarks as a run takes them: ids, or pairs of a type and an id."""
    taken: list[Landmark] = []
    for landmark in landmarks:
        if isinstance(landmark, tuple | list):
            if len(landmark) != _PAIR:
                raise InvalidInputError(
                    f"the landmark {shown(landmark)} is no pair of a type and an id"
                )
            taken.append((str(landmark[0]), str(landmark[1])))
        else:
            taken.append(str(landmark))
    return tuple(taken)


def _rows_to_load(result: AlgorithmResult, node_type: NodeTypes, name: str) -> dict[str, pa.Table]:
    """The values of a result under the name of a property, by node type."""
    rows, columns = result.to_arrow(), [names.ID_COLUMN, result.schema.names[-1]]
    parts = {node_type: rows} if isinstance(node_type, str) else _parts_by_type(rows, node_type)
    return {
        kind: part.select(columns).rename_columns([names.ID_COLUMN, name])
        for kind, part in parts.items()
    }


def _parts_by_type(rows: pa.Table, node_types: Sequence[str]) -> dict[str, pa.Table]:
    types = rows.column(TYPE_COLUMN)
    return {kind: rows.filter(pc.equal(types, kind)) for kind in parse_node_types(node_types)}


def _frames_to_load(
    result: AlgorithmResult, node_type: NodeTypes, name: str, spark: SparkSession
) -> dict[str, DataFrame]:
    """The same as frames of a session."""
    rows, value = result.to_spark(spark), result.schema.names[-1]
    parts = (
        {node_type: rows}
        if isinstance(node_type, str)
        else {kind: rows.where(rows[TYPE_COLUMN] == kind) for kind in parse_node_types(node_type)}
    )
    return {
        kind: part.select(names.ID_COLUMN, value).toDF(names.ID_COLUMN, name)
        for kind, part in parts.items()
    }


class Algorithms:
    """Algorithms over nodes and the edges between them, on one state of a graph.

    All methods share these arguments:

    - `node_type`: the type of the nodes. With a list of types, the columns `type` and `id` name a
      node, and a value that is a node has a column of its type, too: `component_type`,
      `label_type`. Edges may join nodes of the named types only.
    - `spark`: a Spark session or target whose tasks compute it. Without one, threads of this
      process do. The result is the same, to the last bit.
    - `operation_id`: any text. A call with the id of one that was interrupted continues after its
      last complete round; one with the id of a complete run returns its result. Runs on Spark and
      those with an id keep their files in the graph, until a day after they were last continued.
    - `write_to`: a property of the node type, or of each of several. The values are written there
      as one commit, as by `load(..., mode="merge")`.
    - `actor`, `message` and `metadata`: the author of that commit, and what is stored with it.
    """

    def __init__(
        self,
        root: Root,
        view: Callable[[], tuple[Snapshot, SchemaContract]],
        hold: Callable[[Snapshot], Reading],
        load: Callable[..., LoadReport] | None,
    ) -> None:
        self._root = root
        self._view = view
        self._hold = hold
        self._load = load

    def page_rank(  # noqa: PLR0913 - every word of a run is one
        self,
        node_type: NodeTypes,
        edge_types: Sequence[str],
        *,
        damping: float = 0.85,
        tolerance: float = 1e-6,
        rounds_max: int = 100,
        spark: Spark | None = None,
        operation_id: str | None = None,
        write_to: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AlgorithmResult:
        """How much of a random walk is spent at each node: `id`, `rank`; ranks add up to one.

        Parallel edges count as often as they occur. From a node without outgoing edges the walk
        continues at any node.

        Args:
            node_type: The type of the nodes, or a list of types.
            edge_types: Types of edges between them.
            damping: The probability of following an edge.
            tolerance: It ends when the ranks change by less than this per node.
            rounds_max: The most rounds that are allowed.
            spark: See `Algorithms`, as for the other arguments.
            operation_id: Of an earlier call, to resume it.
            write_to: A property to write the values to.
            actor: The author of the commit.
            message: Message of the commit.
            metadata: Further texts by name to store with the commit.

        Raises:
            NotConvergedError: ranks still changed by more after `rounds_max`.
            RunInterruptedError: a job failed; it can be resumed.
        """
        algorithm = PageRank(damping=damping, tolerance=tolerance, rounds_max=rounds_max)
        note = commit_note(message, metadata)
        call = _Call(node_type, edge_types, spark, operation_id, write_to, actor, note)
        return self._run(algorithm, call)

    def components(  # noqa: PLR0913 - every word of a run is one
        self,
        node_type: NodeTypes,
        edge_types: Sequence[str],
        *,
        spark: Spark | None = None,
        operation_id: str | None = None,
        write_to: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AlgorithmResult:
        """Weakly connected components: `id`, `component`, which is its smallest id.

        The number of rounds is about the logarithm of the longest path.
        """
        note = commit_note(message, metadata)
        call = _Call(node_type, edge_types, spark, operation_id, write_to, actor, note)
        return self._run(Components(), call)

    def label_propagation(  # noqa: PLR0913 - every word of a run is one
        self,
        node_type: NodeTypes,
        edge_types: Sequence[str],
        *,
        rounds: int = 10,
        spark: Spark | None = None,
        operation_id: str | None = None,
        write_to: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AlgorithmResult:
        """Communities: `id`, `label`, which is the id of a node of the community.

        In each round all nodes at once take the most frequent label among themselves and the other
        ends of their edges, the smallest of several. It ends after `rounds`, or when no label
        changes.
        """
        algorithm = LabelPropagation(rounds=rounds)
        note = commit_note(message, metadata)
        call = _Call(node_type, edge_types, spark, operation_id, write_to, actor, note)
        return self._run(algorithm, call)

    def triangle_count(  # noqa: PLR0913 - every word of a run is one
        self,
        node_type: NodeTypes,
        edge_types: Sequence[str],
        *,
        spark: Spark | None = None,
        operation_id: str | None = None,
        write_to: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AlgorithmResult:
        """The triangles that each node is part of: `id`, `triangles`.

        Edges count without direction, parallel ones once, edges from a node to itself not at all.
        """
        note = commit_note(message, metadata)
        call = _Call(node_type, edge_types, spark, operation_id, write_to, actor, note)
        return self._run(TriangleCount(), call)

    def distances(  # noqa: PLR0913 - every word of a run is one
        self,
        node_type: NodeTypes,
        edge_types: Sequence[str],
        landmarks: Iterable[str | tuple[str, str]],
        *,
        per_landmark: bool = False,
        hops_max: int | None = None,
        spark: Spark | None = None,
        operation_id: str | None = None,
        write_to: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AlgorithmResult:
        """The smallest number of edges from the nearest landmark, along their direction.

        The columns are `id` and `distance`, which is null for nodes that cannot be reached. With
        `per_landmark` they are `id` and `distances`, a list in the order of the landmarks. With
        several node types a landmark is a pair of a type and an id.
        """
        algorithm = Distances(
            landmarks=parse_landmarks(landmarks),
            per_landmark=per_landmark,
            hops_max=hops_max,
        )
        note = commit_note(message, metadata)
        call = _Call(node_type, edge_types, spark, operation_id, write_to, actor, note)
        return self._run(algorithm, call)

    def _run(self, algorithm: Algorithm, call: _Call) -> AlgorithmResult:
        snapshot, contract = self._view()
        target = RunTarget(
            root=self._root,
            snapshot=snapshot,
            catalog=contract.catalog,
            is_pinned=self._load is None,
        )
        tables = target.choose(call.node_type, call.edge_types)
        self._require_property(contract.catalog, algorithm, call)
        is_stored = call.spark is not None or call.operation_id is not None
        with ExitStack() as opened:
            if is_stored:
                opened.callback(self._hold(snapshot).release)
            session = None if call.spark is None else opened.enter_context(given_spark(call.spark))
            runner = opened.enter_context(chosen_runner(self._root, session))
            result, record = target.run(
                algorithm, tables, runner, operation_id=call.operation_id, is_stored=is_stored
            )
            if call.write_to is None:
                return result
            assert self._load is not None, "checked before the run"
            report = self._load(
                _rows_to_load(result, call.node_type, call.write_to)
                if session is None
                else _frames_to_load(result, call.node_type, call.write_to, session),
                mode="merge",
                spark=session,
                actor=call.actor,
                message=call.note.message,
                metadata=call.note.metadata,
                operation_id=record.write_id,
            )
        return replace(result, report=report)

    def _require_property(self, catalog: Catalog, algorithm: Algorithm, call: _Call) -> None:
        """Refuse what could not be written before anything is computed."""
        name = text_or_none(call.write_to, argument="write_to")
        if name is None:
            return
        if self._load is None:
            raise ReadOnlyError(
                f"cannot write to {name}: this is a view of {self._root} at a commit",
                next_step="Call the method of the graph, or load the result yourself.",
            )
        if algorithm.value.is_node and not isinstance(call.node_type, str):
            raise InvalidInputError(
                f"cannot write to {name}: a {algorithm.value.name} is a node of one of several "
                "types, which one property does not hold",
                next_step="Load the result yourself, with both of its columns.",
            )
        for node_type in parse_node_types(call.node_type):
            known = catalog.nodes[node_type].properties
            if name not in known:
                hint = did_you_mean(name, known)
                raise InvalidInputError(
                    f"{node_type} has no property {name!r}" + (f" ({hint})" if hint else ""),
                    next_step="Add it to the schema, as optional, and apply that.",
                )
