"""Number the nodes of a snapshot, and divide its edges into blocks of files.

A node's number is the rank of its id among all ids in the order of their bytes. Nodes of several
types are known by a key, the type in front of the id: see `NodeKeys`. Numbers are divided into
blocks of equal size, and an edge is kept in the block of the node that it is read from: see
`EdgeForm`. Inside a block, edges are ordered by the block of their other end, then by the node,
then by the other end, so that a task needs the state of one other block at a time.

Invariants:
- Numbers, blocks and the order of edges depend on the rows of the snapshot only, not on the runner,
  on the fragments of its tables or on ranges of ids. Sums of floats in this order have the same
  bits everywhere.
- The keys of nodes and ends are compared as texts, exactly, and once. All after that is integers.
- A task holds the ids of one range, the edges of one piece, or those of one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, Generic, TypeVar, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.algorithms.files import (
    decode_texts,
    encode_texts,
    put_arrays,
    put_texts,
    read_arrays,
    read_texts,
)
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.names import END_TYPE_COLUMNS, ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.runner.protocol import Hop, Sent, Stage, Task, require_answers
from omnigraph_lake.schema.arrow import end_names
from omnigraph_lake.storage.lance.tables import grouped, plan_scan, scan_fragments
from omnigraph_lake.storage.refs.kept import gone_if_removed, streamed_unless_removed

if TYPE_CHECKING:
    from omnigraph_lake.runner.protocol import Runner
    from omnigraph_lake.runner.shuffle import Scratch
    from omnigraph_lake.schema.catalog import EdgeEnd
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

_BLOCK_NODES: Final = 1 << 20
_BLOCK_EDGES: Final = 1 << 22
_BLOCKS_MAX: Final = 256
"""Each block reads the state of all others, so many blocks cost more than they save."""
_BLOCK_NODES_MAX: Final = 1 << 27
"""So that two places within a block and the number of a block fit into 63 bits."""
_FILE_EDGES: Final = 1 << 24
_SAMPLES_PER_RANGE: Final = 64
_LOOKED_UP_BYTES: Final = 32 << 20


class EdgeForm(StrEnum):
    """From which of its ends an edge is read, and which edges there are."""

    AT_TARGET = "at target"
    """A node sees the sources of its incoming edges, parallel ones as often as they occur."""
    BOTH_ENDS = "both ends"
    """A node sees the other ends of all its edges; edges from a node to itself are dropped."""
    NEIGHBOURS = "neighbours"
    """The same, each neighbour once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How the work is divided; only `block_nodes` has an effect on the bits of sums."""

    block_nodes: int | None = None
    """Nodes of a block; by default according to the size of the graph."""
    range_nodes: int = 1 << 20
    piece_rows: int = 1 << 20


class NodeKeys(msgspec.Struct, frozen=True):
    """The texts that nodes are known by inside a run.

    Nodes of one type are known by their ids. If there are several types, which may share ids, a
    key is a character for the place of the type among `types`, and the id. So keys are in the order
    of types, then ids.
    """

    types: list[str] = []
    """Sorted; empty if there is one type, of which results do not speak."""

    @property
    def with_types(self) -> bool:
        return bool(self.types)

    def key(self, type_name: str, node_id: str) -> str:
        return self._mark(type_name) + node_id

    def keys(
        self, type_names: str | pa.Array | pa.ChunkedArray, ids: pa.Array | pa.ChunkedArray
    ) -> pa.Array | pa.ChunkedArray:
        """The keys of nodes of one type, or of a type for each."""
        if not self.with_types:
            return ids
        if isinstance(type_names, str):
            marks: pa.Scalar | pa.Array = pa.scalar(self._mark(type_names))
        else:
            places = pc.index_in(type_names, value_set=pa.array(self.types, pa.string()))
            marks = pa.array(map(self._mark, self.types), pa.string()).take(places)
        return pc.binary_join_element_wise(marks, ids, "")

    def split(self, keys: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The types and the ids of keys with types."""
        marks = pc.utf8_slice_codeunits(keys, 0, 1)
        places = pc.index_in(marks, value_set=pa.array(map(self._mark, self.types), pa.string()))
        return pa.array(self.types, pa.string()).take(places), pc.utf8_slice_codeunits(keys, 1)

    def id_of(self, key: str) -> str:
        return key[1:] if self.with_types else key

    def _mark(self, type_name: str) -> str:
        return chr(1 + self.types.index(type_name)) if self.with_types else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTable:
    """The nodes of a type, at their pin."""

    type_name: str
    entry: TableEntry = field(repr=False)

    @property
    def columns(self) -> list[str]:
        return [ID_COLUMN]

    def keys(self, rows: pa.RecordBatch, node_keys: NodeKeys) -> pa.Array:
        return node_keys.keys(self.type_name, rows.column(ID_COLUMN))


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeTable:
    """The edges of a type, at their pin, and the node types that they join."""

    type_name: str
    entry: TableEntry = field(repr=False)
    ends: Mapping[str, EdgeEnd] = field(repr=False)
    """By the column with the ids of an end."""

    @property
    def columns(self) -> list[str]:
        typed = [END_TYPE_COLUMNS[column] for column in self.ends if self._has_types(column)]
        return [*self.ends, *typed]

    def _has_types(self, column: str) -> bool:
        return self.ends[column].is_polymorphic

    def keys(self, column: str, rows: pa.RecordBatch, node_keys: NodeKeys) -> pa.Array:
        """The keys of the nodes at an end of some edges."""
        end, ids = self.ends[column], rows.column(column)
        if not self._has_types(column):
            return node_keys.keys(end.only, ids)
        types = end_names(end, rows.column(END_TYPE_COLUMNS[column]))
        if types.null_count:
            stray = ids.filter(types.is_null())[0].as_py()
            raise InvalidInputError(
                f"an edge of {self.type_name} has the end {stray!r:.80}, whose type is unknown",
                next_step="Run `omnigraph check` to find all of them.",
            )
        return node_keys.keys(types, ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTables:
    """The tables of node types, in the order of their names, and of edge types between them."""

    root: Root
    nodes: tuple[NodeTable, ...]
    edges: tuple[EdgeTable, ...]
    with_types: bool
    """Whether results say the type of a node; otherwise there is one."""

    @property
    def node_keys(self) -> NodeKeys:
        return NodeKeys([table.type_name for table in self.nodes] if self.with_types else [])

    @property
    def entries(self) -> tuple[TableEntry, ...]:
        nodes, edges = (table.entry for table in self.nodes), (table.entry for table in self.edges)
        return (*nodes, *edges)


class IdFile(msgspec.Struct, frozen=True, array_like=True):
    """The sorted keys of some consecutive numbers, and the least of them."""

    path: str
    first: int
    rows: int
    least: str

    @property
    def end(self) -> int:
        return self.first + self.rows


class EdgeFile(msgspec.Struct, frozen=True, array_like=True):
    """Edges of one block to some blocks; those to `first_other + i` end at `ends[i]`."""

    block: int
    first_other: int
    ends: list[int]
    path: str


class Layout(msgspec.Struct, frozen=True):
    """The numbered nodes and the edges of one snapshot, as files of a run."""

    nodes: int
    block_nodes: int
    ids: list[IdFile]
    edges: list[EdgeFile]
    node_keys: NodeKeys = NodeKeys()

    @property
    def blocks(self) -> int:
        return -(-self.nodes // self.block_nodes)

    @property
    def edge_count(self) -> int:
        return sum(file.ends[-1] for file in self.edges)

    def pieces(self) -> list[Block]:
        files: list[list[EdgeFile]] = [[] for _ in range(self.blocks)]
        for file in sorted(self.edges, key=lambda file: file.first_other):
            files[file.block].append(file)
        return [
            Block(
                number=number,
                first=number * self.block_nodes,
                end=min((number + 1) * self.block_nodes, self.nodes),
                edges=tuple(files[number]),
            )
            for number in range(self.blocks)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive numbers, and the files with the edges of their nodes."""

    number: int
    first: int
    end: int
    edges: tuple[EdgeFile, ...] = field(repr=False)

    @property
    def nodes(self) -> int:
        return self.end - self.first

    def read_edges(
        self, scratch: Scratch, *, only: Sequence[bool] | None = None
    ) -> Iterator[EdgeRun]:
        """The edges by the block of their other ends, in its order; `only` chooses from these."""
        for file in self.edges:
            others = range(file.first_other, file.first_other + len(file.ends))
            if only is not None and not any(only[other] for other in others):
                continue
            arrays = read_arrays(scratch, file.path)
            start = 0
            for other, end in zip(others, file.ends, strict=True):
                if end > start and (only is None or only[other]):
                    near, far = arrays["near"][start:end], arrays["far"][start:end]
                    yield EdgeRun(other=other, near=near, far=far)
                start = end


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRun:
    """The edges of one block to another, as places within both; ordered by `near`, then `far`."""

    other: int
    near: np.ndarray = field(repr=False)
    far: np.ndarray = field(repr=False)

    def starts(self) -> np.ndarray:
        """Where the edges of each node begin that has some."""
        return np.flatnonzero(np.diff(self.near, prepend=-1))


def lay_out(
    runner: Runner,
    scratch: Scratch,
    tables: ChosenTables,
    form: EdgeForm,
    *,
    verb: str,
    sizes: Sizes,
) -> Layout:
    """Number the nodes and divide the edges.

    Raises:
        InvalidInputError: an edge has an end that is no node of the types.
    """
    ids = _number_nodes(runner, scratch, tables, verb=verb, sizes=sizes)
    nodes = ids[-1].end if ids else 0
    edges = sum(table.entry.row_count for table in tables.edges)
    block_nodes = sizes.block_nodes or _block_nodes(nodes, edges)
    assert block_nodes <= _BLOCK_NODES_MAX, "a block has at most 2^27 nodes"
    layout = Layout(
        nodes=nodes, block_nodes=block_nodes, ids=ids, edges=[], node_keys=tables.node_keys
    )
    pieces = _pieces(tables.root, tables.edges, sizes)
    if not nodes or not pieces:
        return layout
    groups = max(1, min(layout.blocks, -(-edges // (layout.blocks * _FILE_EDGES))))
    division = _Division(scratch=scratch, layout=layout, groups=groups, form=form)
    splitters = pa.array([file.least for file in ids[1:]], pa.string())
    ends = _Ends(
        root=tables.root, pieces=tuple(pieces), splitters=splitters, node_keys=tables.node_keys
    )
    sent = runner.exchange(
        Stage(verb=verb, name="number the ends of edges", size=edges),
        pieces,
        partial(_ask, ends),
        Hop(partitions=len(ids), receive=partial(_answer, scratch, tuple(ids))),
        Hop(partitions=len(pieces), receive=partial(_divide, ends, division)),
        Hop(partitions=layout.blocks * groups, receive=division.write),
    )
    files = [msgspec.msgpack.decode(content, type=EdgeFile) for _, content in sent]
    files.sort(key=lambda file: (file.block, file.first_other))
    return msgspec.structs.replace(layout, edges=files)


def _block_nodes(nodes: int, edges: int) -> int:
    blocks = max(-(-nodes // _BLOCK_NODES), -(-edges // _BLOCK_EDGES), 1)
    return max(1, -(-nodes // min(blocks, _BLOCKS_MAX)))


_Table = TypeVar("_Table", NodeTable, EdgeTable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece(Generic[_Table]):
    """Fragments of one table that one task reads."""

    number: int
    table: _Table
    fragments: tuple[int, ...]

    def read(self, root: Root) -> Iterator[pa.RecordBatch]:
        entry, columns = self.table.entry, self.table.columns
        rows = scan_fragments(root, entry, self.fragments, columns=columns, where=None)
        return streamed_unless_removed(rows, root, entry)


def _pieces(root: Root, tables: Sequence[_Table], sizes: Sizes) -> list[_Piece[_Table]]:
    pieces: list[_Piece[_Table]] = []
    for table in tables:
        with gone_if_removed(root, table.entry):
            planned = plan_scan(root, table.entry, columns=table.columns, where=None)
        for fragments in grouped(planned.fragments, rows_max=sizes.piece_rows):
            pieces.append(_Piece(number=len(pieces), table=table, fragments=fragments))
    return pieces


def _number_nodes(
    runner: Runner, scratch: Scratch, tables: ChosenTables, *, verb: str, sizes: Sizes
) -> list[IdFile]:
    pieces = _pieces(tables.root, tables.nodes, sizes)
    rows = sum(table.entry.row_count for table in tables.nodes)
    nodes = _Nodes(root=tables.root, node_keys=tables.node_keys)
    ranges = max(1, -(-rows // sizes.range_nodes))
    splitters = pa.array([], pa.string())
    if ranges > 1:
        step = max(1, rows // (ranges * _SAMPLES_PER_RANGE))
        stage = Stage(verb=verb, name="sample ids", size=rows)
        answers = runner.map(stage, pieces, partial(_sample, nodes, step), list[str])
        samples = sorted(chain.from_iterable(require_answers(answers)))
        chosen = {samples[number * len(samples) // ranges] for number in range(1, ranges)}
        splitters = pa.array(sorted(chosen), pa.string())
    sent = runner.exchange(
        Stage(verb=verb, name="sort ids", size=rows),
        pieces,
        partial(_send_keys, nodes, splitters),
        Hop(partitions=len(splitters) + 1, receive=partial(_sort_ids, scratch)),
    )
    files: list[IdFile] = []
    for _, content in sorted(sent):
        file = msgspec.msgpack.decode(content, type=IdFile)
        first = files[-1].end if files else 0
        files.append(msgspec.structs.replace(file, first=first))
    return files


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nodes:
    """The nodes of all types, piece by piece."""

    root: Root
    node_keys: NodeKeys

    def read(self, piece: _Piece[NodeTable], task: Task) -> Iterator[pa.Array]:
        for batch in piece.read(self.root):
            task.advance(rows=batch.num_rows)
            yield piece.table.keys(batch, self.node_keys)


def _sample(nodes: _Nodes, step: int, piece: _Piece[NodeTable], task: Task) -> list[str]:
    texts: list[str] = []
    for keys in nodes.read(piece, task):
        texts += keys.take(pa.array(np.arange(0, len(keys), step))).to_pylist()
    return texts


def _send_keys(
    nodes: _Nodes, splitters: pa.Array, piece: _Piece[NodeTable], task: Task
) -> Iterator[Sent]:
    for keys in nodes.read(piece, task):
        for number, places in _by_partition(_range_of(keys, splitters)):
            yield number, encode_texts(keys.take(pa.array(places)))


def _sort_ids(scratch: Scratch, contents: Iterator[bytes], task: Task) -> Iterator[Sent]:
    parts = [decode_texts(content) for content in contents]
    if not parts:
        return
    texts = pa.concat_arrays(parts)
    ids = texts.take(pc.sort_indices(texts))
    path = put_texts(scratch, f"ids-{task.number:05}", ids)
    file = IdFile(path=path, first=0, rows=len(ids), least=ids[0].as_py())
    yield task.number, msgspec.msgpack.encode(file)


def _range_of(texts: pa.Array, splitters: pa.Array) -> np.ndarray:
    """The number of splitters that are not after each text, by binary search."""
    low = np.zeros(len(texts), np.int64)
    high = np.full(len(texts), len(splitters), np.int64)
    for _ in range(len(splitters).bit_length()):
        middle = np.minimum((low + high) // 2, len(splitters) - 1)
        is_after = pc.greater_equal(texts, splitters.take(pa.array(middle)))
        is_above = is_after.to_numpy(zero_copy_only=False) & (low < high)
        low = np.where(is_above, middle + 1, low)
        high = np.where(is_above, high, np.minimum(middle, high))
    return low


def _by_partition(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The places of each number, in order."""
    if not len(numbers):
        return
    order = np.argsort(numbers, kind="stable")
    bounds = np.flatnonzero(np.diff(numbers[order], prepend=-1, append=-1))
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield int(numbers[order[start]]), order[start:end]


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """Texts or numbers, and the piece or range that they are from."""

    sender: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """The ends of all edges, piece by piece."""

    root: Root
    pieces: tuple[_Piece[EdgeTable], ...] = field(repr=False)
    splitters: pa.Array = field(repr=False)
    node_keys: NodeKeys

    def read(self, piece: _Piece[EdgeTable], task: Task) -> tuple[pa.Array, np.ndarray]:
        """The distinct keys at ends of a piece, and for every source, then every target, its key.

        Raises:
            InvalidInputError: an end has a type that is not in the schema.
        """
        sources: list[pa.Array] = []
        targets: list[pa.Array] = []
        for batch in piece.read(self.root):
            task.advance(rows=batch.num_rows)
            sources.append(piece.table.keys(SOURCE_COLUMN, batch, self.node_keys))
            targets.append(piece.table.keys(TARGET_COLUMN, batch, self.node_keys))
        texts = pa.chunked_array([*sources, *targets], pa.string())
        encoded = texts.dictionary_encode().combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):  # of an empty column
            encoded = pa.array([], pa.string()).dictionary_encode()
        return encoded.dictionary, encoded.indices.to_numpy()


def _ask(ends: _Ends, piece: _Piece[EdgeTable], task: Task) -> Iterator[Sent]:
    texts, _ = ends.read(piece, task)
    for number, places in _by_partition(_range_of(texts, ends.splitters)):
        asked = encode_texts(texts.take(pa.array(places)))
        yield number, msgspec.msgpack.encode(_Message(piece.number, asked))


def _answer(
    scratch: Scratch, ids: tuple[IdFile, ...], contents: Iterator[bytes], task: Task
) -> Iterator[Sent]:
    """The numbers of the keys that each piece asked for; -1 for a key that no node has."""
    file = ids[task.number]
    known = read_texts(scratch, file.path)
    # A lookup hashes all ids, so pieces are looked up together.
    senders: list[int] = []
    texts: list[pa.Array] = []

    def look_up() -> Iterator[Sent]:
        places = pc.index_in(pa.chunked_array(texts, pa.string()), value_set=known)
        numbers = pc.fill_null(places.cast(pa.int64()), -1 - file.first).to_numpy() + file.first
        end = np.cumsum([len(part) for part in texts])
        for sender, part in zip(senders, np.split(numbers, end[:-1]), strict=True):
            yield sender, msgspec.msgpack.encode(_Message(task.number, part.tobytes()))
        senders.clear()
        texts.clear()

    for content in contents:
        task.advance()
        message = msgspec.msgpack.decode(content, type=_Message)
        senders.append(message.sender)
        texts.append(decode_texts(message.content))
        if sum(part.nbytes for part in texts) >= _LOOKED_UP_BYTES:
            yield from look_up()
    if texts:
        yield from look_up()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Division:
    """Which file an edge belongs to: one per block and group of blocks of the other ends."""

    scratch: Scratch
    layout: Layout
    groups: int
    form: EdgeForm

    def orient(self, sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nodes that edges are read from, and their other ends."""
        match self.form:
            case EdgeForm.AT_TARGET:
                return targets, sources
            case EdgeForm.BOTH_ENDS | EdgeForm.NEIGHBOURS:
                proper = sources != targets
                sources, targets = sources[proper], targets[proper]
                return np.concatenate([sources, targets]), np.concatenate([targets, sources])
            case _:
                assert_never(self.form)

    def partition(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        size, blocks = self.layout.block_nodes, self.layout.blocks
        group = far // size * self.groups // blocks
        number: np.ndarray = near // size * self.groups + group
        return number

    def write(self, contents: Iterator[bytes], task: Task) -> Iterator[Sent]:
        """Sort and store the edges of one file."""
        ends = [np.frombuffer(content, np.int64).reshape(2, -1) for content in contents]
        if not ends:
            return
        near, far = np.concatenate(ends, axis=1)
        size, blocks = self.layout.block_nodes, self.layout.blocks
        keys = (far // size * size + near % size) * size + far % size
        keys.sort()
        if self.form is EdgeForm.NEIGHBOURS:
            keys = keys[np.diff(keys, prepend=-1) != 0]
        block, group = divmod(task.number, self.groups)
        first, end = (-(-number * blocks // self.groups) for number in (group, group + 1))
        bounds = np.arange(first + 1, end + 1, dtype=np.int64) * size * size
        columns = {
            "near": (keys // size % size).astype(np.int32),
            "far": (keys % size).astype(np.int32),
        }
        path = put_arrays(self.scratch, f"edges-{block:05}-{group:05}", columns)
        file = EdgeFile(block, first, np.searchsorted(keys, bounds).tolist(), path)
        yield task.number, msgspec.msgpack.encode(file)


def _divide(
    ends: _Ends, division: _Division, contents: Iterator[bytes], task: Task
) -> Iterator[Sent]:
    """Send the edges of one piece, as numbers, to their files."""
    piece = ends.pieces[task.number]
    texts, places = ends.read(piece, task)
    ranges = _range_of(texts, ends.splitters)
    numbers = np.full(len(texts), -1, np.int64)
    for content in contents:
        message = msgspec.msgpack.decode(content, type=_Message)
        numbers[ranges == message.sender] = np.frombuffer(message.content, np.int64)
    resolved = numbers[places]
    if len(resolved) and resolved.min() < 0:
        stray = ends.node_keys.id_of(texts[int(places[int(resolved.argmin())])].as_py())
        raise InvalidInputError(
            f"an edge of {piece.table.type_name} has the end {stray!r:.80}, which is no node",
            next_step="Run `omnigraph check` to find all of them.",
        )
    near, far = division.orient(*np.split(resolved, 2))
    for number, chosen in _by_partition(division.partition(near, far)):
        task.advance()
        yield number, np.stack([near[chosen], far[chosen]]).tobytes()
