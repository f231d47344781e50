"""PageRank: how much of a random walk along edges is spent at each node.

Each node receives an equal share of the rank of every source of its incoming edges. From a node
without outgoing edges the walk continues at any node.
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
)
from omnigraph_lake.arguments import count_from
from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import InvalidInputError, NotConvergedError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.runner.protocol import Sent, Task

if TYPE_CHECKING:
    from omnigraph_lake.runner.shuffle import Scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRank:
    """PageRank with a damping factor, until ranks change by less than a tolerance per node."""

    damping: float = 0.85
    tolerance: float = 1e-6
    rounds_max: int = 100

    name = "page_rank"
    form = EdgeForm.AT_TARGET
    value = ValueColumn(name="rank", kind=pa.float64())

    def __post_init__(self) -> None:
        count_from(1, self.rounds_max, argument="rounds_max")
        if not _is_number(self.damping) or not 0 <= self.damping < 1:
            raise InvalidInputError(
                f"damping is {shown(self.damping)}, expected a number from 0 to below 1"
            )
        if not _is_number(self.tolerance) or not self.tolerance >= 0:
            raise InvalidInputError(
                f"tolerance is {shown(self.tolerance)}, expected a number from 0 on"
            )

    def arguments(self) -> dict[str, object]:
        return {"damping": self.damping}

    def start(self, work: Work) -> State:
        count = partial(_count_outgoing, work.scratch, work.layout.block_nodes)
        first = partial(_first_ranks, work.scratch, tuple(work.layout.pieces()), work.layout.nodes)
        return work.exchange_blocks("count outgoing edges", count, first, state=State(round=-1))

    def advance(self, work: Work, state: State) -> State:
        nodes = work.layout.nodes
        base = (1 - self.damping) / nodes + self.damping * state.total("idle") / nodes
        ranking = partial(
            _next_ranks,
            work.blocks_of(state, "share"),
            work.blocks_of(state, "degree"),
            base,
            self.damping,
        )
        return work.map_blocks(f"round {state.round + 1}", ranking, state=state)

    def is_complete(self, work: Work, state: State) -> bool:
        if not work.layout.nodes:
            return True
        change = state.total("change")
        if state.round and change < self.tolerance * work.layout.nodes:
            return True
        if state.round >= self.rounds_max:
            raise NotConvergedError(
                f"PageRank did not converge in {counted(state.round, 'round')} (the ranks changed "
                f"by {change:.2g} in all, the tolerance is {self.tolerance:.2g} per node)",
                next_step="Allow more rounds (`rounds_max`), or a larger `tolerance`; a run with "
                "an operation id then continues.",
            )
        return False

    def result(self, work: Work, state: State) -> list[ResultFile]:
        ranks = partial(_ranks_of, work.blocks_of(state, "share"), work.blocks_of(state, "degree"))
        return work.write_result(ranks, self.value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count_outgoing(scratch: Scratch, block_nodes: int, block: Block, task: Task) -> Iterator[Sent]:
    for run in block.read_edges(scratch):
        task.advance(rows=len(run.far))
        yield run.other, np.bincount(run.far, minlength=block_nodes).astype(np.int64).tobytes()


def _first_ranks(
    scratch: Scratch, blocks: tuple[Block, ...], nodes: int, contents: Iterator[bytes], task: Task
) -> Iterator[Sent]:
    block = blocks[task.number]
    degree = np.zeros(block.nodes, np.int64)
    for content in contents:
        degree += np.frombuffer(content, np.int64)[: block.nodes]
    rank = np.full(block.nodes, 1 / nodes)
    files = {
        "degree": put_arrays(scratch, f"degree-{block.number:05}", {"degree": degree}),
        "share": _put_shares(scratch, block, rank, degree),
    }
    answer = BlockAnswer(files=files, numbers={"change": 0.0, "idle": _idle(rank, degree)})
    yield block.number, msgspec.msgpack.encode(answer)


def _next_ranks(
    shares: BlockFiles, degrees: BlockFiles, base: float, damping: float, block: Block, task: Task
) -> BlockAnswer:
    received = np.zeros(block.nodes)
    for run in block.read_edges(shares.scratch):
        task.advance(rows=len(run.far))
        share = shares.read(run.other, "share")
        received += np.bincount(run.near, weights=share[run.far], minlength=block.nodes)
    degree = degrees.read(block.number, "degree")
    former = shares.read(block.number, "share") * np.maximum(degree, 1)
    rank = base + damping * received
    files = {
        "degree": degrees.paths[block.number],
        "share": _put_shares(shares.scratch, block, rank, degree),
    }
    change = float(np.abs(rank - former).sum())
    return BlockAnswer(files=files, numbers={"change": change, "idle": _idle(rank, degree)})


def _put_shares(scratch: Scratch, block: Block, rank: np.ndarray, degree: np.ndarray) -> str:
    """What each outgoing edge carries; all of the rank where there is none, which is not read."""
    share = rank / np.maximum(degree, 1)
    return put_arrays(scratch, f"share-{block.number:05}", {"share": share})


def _idle(rank: np.ndarray, degree: np.ndarray) -> float:
    """The rank of nodes without outgoing edges."""
    return float(rank[degree == 0].sum())


def _ranks_of(shares: BlockFiles, degrees: BlockFiles, block: Block) -> pa.Array:
    degree = degrees.read(block.number, "degree")
    return pa.array(shares.read(block.number, "share") * np.maximum(degree, 1))
