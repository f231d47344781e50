"""Label propagation: communities of nodes that took the label most of their neighbours have.

All nodes choose at once. A node counts its own label once and that of the other end of each edge,
whatever its direction, parallel edges as often as they occur; edges to itself do not count. Of
labels that are equally frequent it takes the smallest, so results do not depend on chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph_lake.algorithms.blocks import Block, EdgeForm
from omnigraph_lake.algorithms.components import numbers_of, start_with_own_numbers
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
from omnigraph_lake.runner.protocol import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPropagation:
    """So many rounds of label propagation, or fewer if labels no longer change."""

    rounds: int = 10

    name = "label_propagation"
    form = EdgeForm.BOTH_ENDS
    value = ValueColumn(name="label", kind=pa.string(), is_node=True)

    def __post_init__(self) -> None:
        count_from(1, self.rounds, argument="rounds")

    def arguments(self) -> dict[str, object]:
        return {"rounds": self.rounds}

    def start(self, work: Work) -> State:
        return start_with_own_numbers(work, "label")

    def advance(self, work: Work, state: State) -> State:
        choosing = partial(_choose_labels, work.blocks_of(state, "label"), work.layout.nodes)
        return work.map_blocks(f"round {state.round + 1}", choosing, state=state)

    def is_complete(self, work: Work, state: State) -> bool:
        is_stable = not work.layout.edges or not state.total("changed")
        return is_stable or state.round >= self.rounds

    def result(self, work: Work, state: State) -> list[ResultFile]:
        labels = partial(numbers_of, work.blocks_of(state, "label"), "label")
        return work.write_result(labels, self.value)


def _choose_labels(labels: BlockFiles, nodes: int, block: Block, task: Task) -> BlockAnswer:
    own = labels.read(block.number, "label")
    votes = [np.arange(block.nodes, dtype=np.int64) * nodes + own]
    for run in block.read_edges(labels.scratch):
        task.advance(rows=len(run.far))
        votes.append(run.near.astype(np.int64) * nodes + labels.read(run.other, "label")[run.far])
    chosen = _most_frequent(np.concatenate(votes), nodes)
    path = put_arrays(labels.scratch, f"label-{block.number:05}", {"label": chosen})
    changed = float(np.count_nonzero(chosen != own))
    return BlockAnswer(files={"label": path}, numbers={"changed": changed})


def _most_frequent(votes: np.ndarray, nodes: int) -> np.ndarray:
    """For each node its most frequent label, the smallest of several; every node has a vote."""
    votes.sort()
    starts = np.flatnonzero(np.diff(votes, prepend=-1))
    counts = np.diff(starts, append=len(votes))
    voters, candidates = np.divmod(votes[starts], nodes)
    first = np.flatnonzero(np.diff(voters, prepend=-1))
    is_most = counts == np.maximum.reduceat(counts, first)[voters]
    winners = np.flatnonzero(is_most)
    smallest = winners[np.diff(voters[winners], prepend=-1) != 0]
    chosen: np.ndarray = candidates[smallest]
    return chosen
