"""Run an algorithm in rounds, with a checkpoint after each, and resume it.

A run has an operation id. Its files are in a scratch folder; with a stored one, which is in the
staging area of the graph, a record names the files of the last complete round. A run with the id of
a record continues after that round; one that is complete returns its result.

Invariants:
- A record is replaced as a whole, after all files that it names were written, and before files that
  it no longer names are removed.
- A round is deterministic, so it does not matter which of two processes with the same id wrote a
  record.
- A run reads the tables until the layout is complete, and only its own files afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.algorithms.blocks import (
    Block,
    ChosenTables,
    EdgeForm,
    IdFile,
    Layout,
    NodeKeys,
    Sizes,
    lay_out,
)
from omnigraph_lake.algorithms.files import encode_rows, put_checked, read_arrays, read_texts
from omnigraph_lake.errors import (
    ConflictError,
    InvalidInputError,
    RunInterruptedError,
    SparkJobFailedError,
    StorageUnavailableError,
)
from omnigraph_lake.failpoints import reach
from omnigraph_lake.runner.protocol import Hop, Receive, Runner, Send, Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import StoredScratch
from omnigraph_lake.storage.objects.store import StoredObjects

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.runner.shuffle import Scratch

_FORMAT: Final = 1
_REMOVED_AT_ONCE: Final = 16


class State(msgspec.Struct, frozen=True):
    """What a round leaves: by role, one file per block and one number per block."""

    round: int = 0
    files: dict[str, list[str]] = {}
    numbers: dict[str, list[float]] = {}

    def total(self, name: str) -> float:
        """The sum of a number over all blocks, in their order."""
        return sum(self.numbers.get(name, ()))

    def paths(self) -> set[str]:
        return {path for paths in self.files.values() for path in paths}


class BlockAnswer(msgspec.Struct, frozen=True):
    """What a task leaves of one block: files by role, and numbers."""

    files: dict[str, str]
    numbers: dict[str, float] = {}


class ResultFile(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a result."""

    path: str
    rows: int


class RunRecord(msgspec.Struct, frozen=True):
    """How far a run is."""

    format: int
    algorithm: str
    arguments: dict[str, object]
    commit_id: str | None
    pins: dict[str, str]
    write_id: str
    """The operation id under which the result is written to the graph."""
    touched_at: str
    layout: Layout
    state: State
    result: list[ResultFile] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueColumn:
    """What a result says of each node: a value, or the id of another node."""

    name: str
    kind: pa.DataType
    is_node: bool = False
    """If so, an algorithm gives the number of that node."""


NODE: Final = ValueColumn(name=names.ID_COLUMN, kind=pa.string(), is_node=True)
TYPE_COLUMN: Final = "type"


def result_schema(value: ValueColumn, *, with_types: bool) -> pa.Schema:
    """The columns of a result: the node and its value; in front of a node its type if asked for."""
    fields: list[pa.Field] = []
    for column in (NODE, value):
        if column.is_node and with_types:
            fields.append(pa.field(_type_column(column), pa.string()))
        fields.append(pa.field(column.name, column.kind))
    return pa.schema(fields)


def _type_column(column: ValueColumn) -> str:
    return TYPE_COLUMN if column == NODE else f"{column.name}_{TYPE_COLUMN}"


class Algorithm(Protocol):
    """What is computed, round by round; a value that tasks receive."""

    @property
    def name(self) -> str: ...

    @property
    def form(self) -> EdgeForm: ...

    @property
    def value(self) -> ValueColumn:
        """The column of a result beside the node."""
        ...

    def arguments(self) -> dict[str, object]:
        """The arguments that decide the result; limits of rounds do not."""
        ...

    def start(self, work: Work) -> State: ...

    def advance(self, work: Work, state: State) -> State: ...

    def is_complete(self, work: Work, state: State) -> bool:
        """Whether the state is the result.

        Raises:
            NotConvergedError: it is not, and no more rounds are allowed.
        """
        ...

    def result(self, work: Work, state: State) -> list[ResultFile]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the rounds of a run work with."""

    runner: Runner
    scratch: Scratch
    layout: Layout
    verb: str

    def map_blocks(
        self, name: str, work: Callable[[Block, Task], BlockAnswer], *, state: State
    ) -> State:
        """The next state, from one task per block."""
        stage = Stage(verb=self.verb, name=name, size=self.layout.edge_count)
        answers = self.runner.map(stage, self.layout.pieces(), work, BlockAnswer)
        return _next_state(require_answers(answers), state)

    def exchange_blocks(
        self, name: str, send: Send[Block], receive: Receive, *, state: State
    ) -> State:
        """The next state, from what tasks of all blocks send to the tasks of each."""
        stage = Stage(verb=self.verb, name=name, size=self.layout.edge_count)
        hop = Hop(partitions=self.layout.blocks, receive=receive)
        sent = sorted(self.runner.exchange(stage, self.layout.pieces(), send, hop))
        decoder = msgspec.msgpack.Decoder(BlockAnswer)
        return _next_state([decoder.decode(content) for _, content in sent], state)

    def blocks_of(self, state: State, role: str) -> BlockFiles:
        return BlockFiles(scratch=self.scratch, paths=tuple(state.files.get(role, ())))

    def write_result(
        self, values: Callable[[Block], pa.Array], column: ValueColumn
    ) -> list[ResultFile]:
        """Write the rows of a result, one file per block, in the order of types and ids."""
        stage = Stage(verb=self.verb, name="write the result")
        texts = NodeTexts(
            scratch=self.scratch,
            files=tuple(self.layout.ids),
            node_keys=self.layout.node_keys,
        )
        work = partial(_write_rows, texts, values, column)
        answers = self.runner.map(stage, self.layout.pieces(), work, ResultFile)
        return require_answers(answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFiles:
    """The files of one role, by block; tasks receive it."""

    scratch: Scratch
    paths: tuple[str, ...] = field(repr=False)

    def read(self, block: int, name: str) -> np.ndarray:
        return read_arrays(self.scratch, self.paths[block])[name]


def gather(files: BlockFiles, name: str, numbers: np.ndarray, block_nodes: int) -> np.ndarray:
    """The values of any nodes; one block of them is in memory at a time."""
    values = np.empty(len(numbers), np.int64)
    owners = numbers // block_nodes
    for owner in np.unique(owners).tolist():
        chosen = owners == owner
        values[chosen] = files.read(owner, name)[numbers[chosen] - owner * block_nodes]
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTexts:
    """The types and ids of nodes by their numbers; tasks receive it."""

    scratch: Scratch
    files: tuple[IdFile, ...] = field(repr=False)
    node_keys: NodeKeys

    def columns(self, column: ValueColumn, numbers: np.ndarray) -> dict[str, pa.Array]:
        """A column of nodes, and in front of it one of their types if results have these."""
        keys = self._keys(numbers)
        if not self.node_keys.with_types:
            return {column.name: keys}
        types, ids = self.node_keys.split(keys)
        return {_type_column(column): types, column.name: ids}

    def _keys(self, numbers: np.ndarray) -> pa.Array:
        """The keys of any nodes; one file of them is in memory at a time."""
        unique, inverse = np.unique(numbers, return_inverse=True)
        parts: list[pa.Array] = []
        for file in self.files:
            start, end = np.searchsorted(unique, [file.first, file.end])
            if end > start:
                places = pa.array(unique[start:end] - file.first)
                parts.append(read_texts(self.scratch, file.path).take(places))
        return pa.concat_arrays(parts or [pa.array([], pa.string())]).take(pa.array(inverse))


def _write_rows(
    texts: NodeTexts,
    values: Callable[[Block], pa.Array],
    column: ValueColumn,
    block: Block,
    task: Task,
) -> ResultFile:
    arrays = texts.columns(NODE, np.arange(block.first, block.end))
    computed = values(block)
    if column.is_node:
        arrays |= texts.columns(column, computed.to_numpy())
    else:
        arrays[column.name] = computed
    schema = result_schema(column, with_types=texts.node_keys.with_types)
    rows = pa.RecordBatch.from_pydict(arrays, schema=schema)
    task.advance(rows=rows.num_rows)
    path = put_checked(texts.scratch, f"result-{block.number:05}", encode_rows(rows))
    return ResultFile(path=path, rows=rows.num_rows)


def _next_state(answers: Sequence[BlockAnswer], state: State) -> State:
    roles, named = ({*answers[0].files}, {*answers[0].numbers}) if answers else (set(), set())
    return State(
        round=state.round + 1,
        files={role: [answer.files[role] for answer in answers] for role in sorted(roles)},
        numbers={name: [answer.numbers[name] for answer in answers] for name in sorted(named)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of an algorithm over one snapshot; `tables` are pinned there."""

    operation_id: str
    write_id: str
    algorithm: Algorithm
    tables: ChosenTables
    commit_id: str | None
    is_pinned: bool
    """Whether a record of another state is refused, or continued."""
    sizes: Sizes
    clock: Clock

    @property
    def pins(self) -> dict[str, str]:
        return {
            entry.table_key: f"{entry.location} {entry.fork or ''} {entry.version}"
            for entry in self.tables.entries
        }

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return result_schema(self.algorithm.value, with_types=self.tables.with_types)

    def finish(self, runner: Runner, scratch: Scratch) -> RunRecord:
        """Run it to its end, after the last round of its record if there is one.

        Raises:
            RunInterruptedError: a job failed or the store did not respond; it can be resumed.
        """
        record = self._read_record(scratch)
        try:
            if record is None:
                record = self._begin(runner, scratch)
                self._write_record(scratch, record)
            while record.result is None:
                record = self._continue(runner, scratch, record)
        except InvalidInputError:
            if record is None and isinstance(scratch, StoredScratch):
                scratch.close()
            raise
        except (SparkJobFailedError, StorageUnavailableError) as error:
            if not isinstance(scratch, StoredScratch):
                raise
            raise RunInterruptedError(
                self.algorithm.name,
                operation_id=self.operation_id,
                rounds=0 if record is None else record.state.round,
                cause=error.what,
            ) from error
        return record

    def _begin(self, runner: Runner, scratch: Scratch) -> RunRecord:
        verb = self.algorithm.name
        layout = lay_out(
            runner, scratch, self.tables, self.algorithm.form, verb=verb, sizes=self.sizes
        )
        work = Work(runner=runner, scratch=scratch, layout=layout, verb=verb)
        return RunRecord(
            format=_FORMAT,
            algorithm=verb,
            arguments=self._arguments(),
            commit_id=self.commit_id,
            pins=self.pins,
            write_id=self.write_id,
            touched_at=self.clock.now().isoformat(),
            layout=layout,
            state=self.algorithm.start(work),
        )

    def _continue(self, runner: Runner, scratch: Scratch, record: RunRecord) -> RunRecord:
        """One more round, or the result of the last one; the record of it is stored."""
        layout, state = record.layout, record.state
        work = Work(runner=runner, scratch=scratch, layout=layout, verb=record.algorithm)
        touched_at = self.clock.now().isoformat()
        if self.algorithm.is_complete(work, state):
            result = self.algorithm.result(work, state)
            complete = msgspec.structs.replace(record, result=result, touched_at=touched_at)
            self._write_record(scratch, complete)
            remove_files(scratch, self._files_to_remove(scratch, complete))
            return complete
        following = self.algorithm.advance(work, state)
        advanced = msgspec.structs.replace(record, state=following, touched_at=touched_at)
        self._write_record(scratch, advanced)
        remove_files(scratch, state.paths() - following.paths())
        reach("algorithm.post_round")
        return advanced

    def _files_to_remove(self, scratch: Scratch, record: RunRecord) -> set[str]:
        """All files of a complete run but its result, also those of attempts that did not count."""
        assert record.result is not None, "the run is complete"
        if not isinstance(scratch, StoredScratch):
            return set()
        folder = names.run_folder(self.operation_id)
        needed = {names.run_record(self.operation_id), names.staging_claim(folder)}
        needed |= {file.path for file in record.result}
        return set(StoredObjects(scratch.root).list(names.staging(folder))) - needed

    def _arguments(self) -> dict[str, object]:
        nodes = [table.entry.table_key for table in self.tables.nodes]
        types = {"nodes": nodes if self.tables.with_types else nodes[0]}
        edges = sorted(table.entry.table_key for table in self.tables.edges)
        return {**types, "edges": edges, **self.algorithm.arguments()}

    def _write_record(self, scratch: Scratch, record: RunRecord) -> None:
        if isinstance(scratch, StoredScratch):
            path = names.run_record(self.operation_id)
            StoredObjects(scratch.root).replace(path, msgspec.json.encode(record))

    def _read_record(self, scratch: Scratch) -> RunRecord | None:
        """The record of an earlier call with the same operation id."""
        if not isinstance(scratch, StoredScratch):
            return None
        content = StoredObjects(scratch.root).read(names.run_record(self.operation_id))
        if not content:
            return None
        try:
            record = msgspec.json.decode(content, type=RunRecord)
        except msgspec.DecodeError as error:
            raise ConflictError(
                f"the record of operation {self.operation_id} cannot be read: {error}",
                next_step="Run it again under a new operation id.",
            ) from error
        self._require_same(record)
        return record

    def _require_same(self, record: RunRecord) -> None:
        ours = {"algorithm": self.algorithm.name, **self._arguments()}
        if self.is_pinned:
            ours["snapshot"] = self.pins
        theirs = {"algorithm": record.algorithm, **record.arguments, "snapshot": record.pins}
        # As both are stored: tuples are lists there.
        expected = msgspec.json.decode(msgspec.json.encode(ours))
        different = [name for name, value in expected.items() if theirs.get(name) != value]
        if different or record.format != _FORMAT:
            name = different[0] if different else "format"
            raise InvalidInputError(
                f"operation {self.operation_id} has begun with another {name}: "
                f"{theirs.get(name)!r:.120}, found {expected.get(name)!r:.120}",
                next_step="Give the arguments of the first call, or a new operation id.",
            )


def remove_files(scratch: Scratch, paths: Iterable[str]) -> None:
    """Remove files that no record names any more; what cannot be removed is left to a cleanup."""

    def remove(path: str) -> None:
        with suppress(StorageUnavailableError):
            scratch.remove(path)

    with ThreadPoolExecutor(_REMOVED_AT_ONCE) as pool:
        list(pool.map(remove, sorted(paths)))
