"""Triangles: for each node, how many pairs of its neighbours are neighbours of each other.

Edges count without direction, parallel ones once, and edges from a node to itself not at all.

Each edge is directed to the end with more neighbours, of equals to the larger number; then a node
has at most about the square root of twice the number of edges as successors, whatever the degrees
are. A triangle is found once, at its node with the fewest neighbours: as a successor of a successor
that is a successor, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph_lake.algorithms.blocks import Block, EdgeForm
from omnigraph_lake.algorithms.files import put_arrays, read_arrays
from omnigraph_lake.algorithms.runs import (
    BlockAnswer,
    BlockFiles,
    ResultFile,
    State,
    ValueColumn,
    Work,
)
from omnigraph_lake.runner.protocol import Sent, Task

if TYPE_CHECKING:
    from omnigraph_lake.runner.shuffle import Scratch

_PATHS_AT_ONCE: Final = 1 << 21
_STEPS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TriangleCount:
    """The number of triangles at each node."""

    name = "triangle_count"
    form = EdgeForm.NEIGHBOURS
    value = ValueColumn(name="triangles", kind=pa.int64())

    def arguments(self) -> dict[str, object]:
        return {}

    def start(self, work: Work) -> State:
        counting = partial(_put_degrees, work.scratch)
        return work.map_blocks("count neighbours", counting, state=State(round=-1))

    def advance(self, work: Work, state: State) -> State:
        size = work.layout.block_nodes
        if not state.round:
            directing = partial(_direct_edges, work.blocks_of(state, "degree"), size)
            return work.map_blocks("direct edges", directing, state=state)
        return work.exchange_blocks(
            "count triangles",
            partial(_find_triangles, work.blocks_of(state, "successors"), work.layout.nodes, size),
            partial(_add_up, work.scratch, tuple(work.layout.pieces())),
            state=state,
        )

    def is_complete(self, work: Work, state: State) -> bool:
        del work
        return state.round == _STEPS

    def result(self, work: Work, state: State) -> list[ResultFile]:
        triangles = partial(_triangles_of, work.blocks_of(state, "triangles"))
        return work.write_result(triangles, self.value)


def _put_degrees(scratch: Scratch, block: Block, task: Task) -> BlockAnswer:
    degree = np.zeros(block.nodes, np.int64)
    for run in block.read_edges(scratch):
        task.advance(rows=len(run.near))
        degree += np.bincount(run.near, minlength=block.nodes)
    path = put_arrays(scratch, f"degree-{block.number:05}", {"degree": degree})
    return BlockAnswer(files={"degree": path})


def _direct_edges(degrees: BlockFiles, size: int, block: Block, task: Task) -> BlockAnswer:
    """The successors of every node of a block, sorted."""
    own = degrees.read(block.number, "degree")
    tails: list[np.ndarray] = []
    heads: list[np.ndarray] = []
    for run in block.read_edges(degrees.scratch):
        task.advance(rows=len(run.near))
        head = run.far.astype(np.int64) + run.other * size
        tail_degree, head_degree = own[run.near], degrees.read(run.other, "degree")[run.far]
        is_later = head > run.near.astype(np.int64) + block.first
        directed = (head_degree > tail_degree) | ((head_degree == tail_degree) & is_later)
        tails.append(run.near[directed])
        heads.append(head[directed])
    tail = np.concatenate([np.empty(0, np.int32), *tails])
    head = np.concatenate([np.empty(0, np.int64), *heads])
    order = np.argsort(tail, kind="stable")  # heads ascend already, run by run
    ends = np.cumsum(np.bincount(tail, minlength=block.nodes))
    arrays = {"head": head[order], "end": ends}
    path = put_arrays(degrees.scratch, f"successors-{block.number:05}", arrays)
    return BlockAnswer(files={"successors": path})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Successors:
    """The sorted successors of the nodes of one block."""

    first: int
    head: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)
    count: np.ndarray = field(repr=False)

    @classmethod
    def read(cls, files: BlockFiles, block: int, size: int) -> _Successors:
        arrays = read_arrays(files.scratch, files.paths[block])
        count = np.diff(arrays["end"], prepend=0)
        return cls(
            first=block * size, head=arrays["head"], start=arrays["end"] - count, count=count
        )

    def tails(self) -> np.ndarray:
        """The place of the node that each edge starts from."""
        return np.repeat(np.arange(len(self.count)), self.count)


def _find_triangles(
    successors: BlockFiles, nodes: int, size: int, block: Block, task: Task
) -> Iterator[Sent]:
    """Send counts of triangles at nodes of any block, found at the nodes of one."""
    own = _Successors.read(successors, block.number, size)
    tails = own.tails()
    pairs = tails * nodes + own.head
    owners = own.head // size
    for owner in np.unique(owners).tolist():
        beyond = own
        if owner != block.number:
            beyond = _Successors.read(successors, owner, size)
        chosen = np.flatnonzero(owners == owner)
        tail, middle = tails[chosen], own.head[chosen]
        for edges in _portions(beyond.count[middle - beyond.first]):
            task.advance(rows=edges.stop - edges.start)
            yield from _count_at(
                _close_paths(pairs, nodes, tail[edges], middle[edges], beyond), own.first, size
            )


def _portions(counts: np.ndarray) -> Iterator[slice]:
    """Edges with about equally many paths over them."""
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(total[start - 1]) if start else 0
        end = int(np.searchsorted(total, before + _PATHS_AT_ONCE, side="right"))
        yield slice(start, max(end, start + 1))
        start = max(end, start + 1)


def _close_paths(
    pairs: np.ndarray, nodes: int, tail: np.ndarray, middle: np.ndarray, beyond: _Successors
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three nodes of each triangle: paths of two edges whose ends are a pair, too."""
    place = middle - beyond.first
    count = beyond.count[place]
    edge = np.repeat(np.arange(len(tail)), count)
    within = np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count)
    last = beyond.head[beyond.start[place][edge] + within]
    wanted = tail[edge] * nodes + last
    at = np.searchsorted(pairs, wanted)
    is_closed = pairs[np.minimum(at, len(pairs) - 1)] == wanted
    edge = edge[is_closed]
    return tail[edge], middle[edge], last[is_closed]


def _count_at(
    triangles: tuple[np.ndarray, np.ndarray, np.ndarray], first: int, size: int
) -> Iterator[Sent]:
    tail, middle, last = triangles
    numbers, counts = np.unique(np.concatenate([tail + first, middle, last]), return_counts=True)
    bounds = np.flatnonzero(np.diff(numbers // size, prepend=-1, append=-1))
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        content = np.stack([numbers[start:end], counts[start:end]])
        yield int(numbers[start] // size), content.astype(np.int64).tobytes()


def _add_up(
    scratch: Scratch, blocks: tuple[Block, ...], contents: Iterator[bytes], task: Task
) -> Iterator[Sent]:
    block = blocks[task.number]
    triangles = np.zeros(block.nodes, np.int64)
    for content in contents:
        numbers, counts = np.frombuffer(content, np.int64).reshape(2, -1)
        triangles[numbers - block.first] += counts  # each once in a message
    path = put_arrays(scratch, f"triangles-{block.number:05}", {"triangles": triangles})
    answer = BlockAnswer(files={"triangles": path})
    yield block.number, msgspec.msgpack.encode(answer)


def _triangles_of(triangles: BlockFiles, block: Block) -> pa.Array:
    return pa.array(triangles.read(block.number, "triangles"))
