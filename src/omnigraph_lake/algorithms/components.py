"""Weakly connected components, each named by its smallest id.

Every node has a parent in its component, whose number is not larger than its own. In a round a node
and its parent take the smallest grandparent among the neighbours of the node (the algorithm
FastSV of Zhang, Azad and Buluc), so the number of rounds is about the logarithm of the longest
path.

Invariant: parents only decrease. When none does, all nodes of a component have the same parent, and
that is its smallest number: a root is its own parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph_lake.algorithms.blocks import Block, EdgeForm
from omnigraph_lake.algorithms.files import put_arrays
from omnigraph_lake.algorithms.runs import (
    BlockAnswer,
    BlockFiles,
    ResultFile,
    State,
    ValueColumn,
    Work,
    gather,
    remove_files,
)
from omnigraph_lake.runner.protocol import Sent, Task

if TYPE_CHECKING:
    from omnigraph_lake.runner.shuffle import Scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Weakly connected components."""

    name = "components"
    form = EdgeForm.NEIGHBOURS
    value = ValueColumn(name="component", kind=pa.string(), is_node=True)

    def arguments(self) -> dict[str, object]:
        return {}

    def start(self, work: Work) -> State:
        return start_with_own_numbers(work, "parent")

    def advance(self, work: Work, state: State) -> State:
        parents = work.blocks_of(state, "parent")
        size = work.layout.block_nodes
        number = state.round + 1
        finding = partial(_put_grandparents, parents, size)
        grandparents = work.map_blocks(
            f"round {number}: find grandparents", finding, state=state
        ).files["grandparent"]
        files = BlockFiles(scratch=work.scratch, paths=tuple(grandparents))
        following = work.exchange_blocks(
            f"round {number}: take the smallest",
            partial(_propose, parents, files, size),
            partial(_take_smallest, parents, tuple(work.layout.pieces())),
            state=state,
        )
        remove_files(work.scratch, grandparents)
        return following

    def is_complete(self, work: Work, state: State) -> bool:
        return not work.layout.edges or (state.round > 0 and not state.total("changed"))

    def result(self, work: Work, state: State) -> list[ResultFile]:
        parents = partial(numbers_of, work.blocks_of(state, "parent"), "parent")
        return work.write_result(parents, self.value)


def start_with_own_numbers(work: Work, role: str) -> State:
    """The state in which the value of every node is its own number."""
    numbering = partial(_put_own_numbers, work.scratch, role)
    return work.map_blocks("start", numbering, state=State(round=-1))


def _put_own_numbers(scratch: Scratch, role: str, block: Block, _: Task) -> BlockAnswer:
    numbers = np.arange(block.first, block.end, dtype=np.int64)
    path = put_arrays(scratch, f"{role}-{block.number:05}", {role: numbers})
    return BlockAnswer(files={role: path}, numbers={"changed": float(block.nodes)})


def numbers_of(files: BlockFiles, role: str, block: Block) -> pa.Array:
    """The numbers of the nodes that those of a block have as their values."""
    return pa.array(files.read(block.number, role))


def _put_grandparents(parents: BlockFiles, size: int, block: Block, task: Task) -> BlockAnswer:
    values = gather(parents, "parent", parents.read(block.number, "parent"), size)
    task.advance(rows=len(values))
    arrays = {"grandparent": values}
    path = put_arrays(parents.scratch, f"grandparent-{block.number:05}", arrays)
    return BlockAnswer(files={"grandparent": path})


def _propose(
    parents: BlockFiles, grandparents: BlockFiles, size: int, block: Block, task: Task
) -> Iterator[Sent]:
    """Send smaller parents: of the nodes of the block, and of their parents in any block."""
    own = grandparents.read(block.number, "grandparent")
    smallest = own.copy()
    for run in block.read_edges(parents.scratch):
        task.advance(rows=len(run.far))
        starts = run.starts()
        values = grandparents.read(run.other, "grandparent")[run.far]
        nodes = run.near[starts]
        smallest[nodes] = np.minimum(smallest[nodes], np.minimum.reduceat(values, starts))
    yield block.number, _encode(np.arange(block.first, block.end), smallest)
    better = smallest < own
    targets = parents.read(block.number, "parent")[better]
    values = smallest[better]
    order = np.lexsort((values, targets))
    targets, values = targets[order], values[order]
    first = np.flatnonzero(np.diff(targets, prepend=-1))
    targets, values = targets[first], values[first]
    bounds = np.flatnonzero(np.diff(targets // size, prepend=-1, append=-1))
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield int(targets[start] // size), _encode(targets[start:end], values[start:end])


def _encode(targets: np.ndarray, values: np.ndarray) -> bytes:
    return np.stack([targets, values]).astype(np.int64).tobytes()


def _take_smallest(
    parents: BlockFiles, blocks: tuple[Block, ...], contents: Iterator[bytes], task: Task
) -> Iterator[Sent]:
    block = blocks[task.number]
    former = parents.read(block.number, "parent")
    smallest = former.copy()
    for content in contents:
        targets, values = np.frombuffer(content, np.int64).reshape(2, -1)
        places = targets - block.first  # each once in a message
        smallest[places] = np.minimum(smallest[places], values)
    path = put_arrays(parents.scratch, f"parent-{block.number:05}", {"parent": smallest})
    changed = float(np.count_nonzero(smallest != former))
    answer = BlockAnswer(files={"parent": path}, numbers={"changed": changed})
    yield block.number, msgspec.msgpack.encode(answer)
