"""Hop distances: the smallest number of edges from landmarks to each node, along their direction.

A round follows one edge. Blocks whose distances did not change are not read in the next round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.algorithms.blocks import Block, EdgeForm, IdFile, NodeKeys
from omnigraph_lake.algorithms.files import put_arrays, read_arrays, read_texts
from omnigraph_lake.algorithms.runs import (
    BlockAnswer,
    BlockFiles,
    ResultFile,
    State,
    ValueColumn,
    Work,
)
from omnigraph_lake.arguments import count_or_none, flag
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.runner.protocol import Stage, Task, require_answers

if TYPE_CHECKING:
    from omnigraph_lake.runner.shuffle import Scratch

Landmark: TypeAlias = str | tuple[str, str]
"""The id of a node, or its type and its id if a run has several types."""
_UNREACHED: Final = np.iinfo(np.int32).max
_ROLE: Final = "distance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """Distances from the nearest of some landmarks, or from each of them."""

    landmarks: tuple[Landmark, ...]
    per_landmark: bool = False
    hops_max: int | None = None

    name = "distances"
    form = EdgeForm.AT_TARGET

    def __post_init__(self) -> None:
        flag(self.per_landmark, argument="per_landmark")
        count_or_none(self.hops_max, argument="hops_max")
        if not self.landmarks:
            raise InvalidInputError("no landmarks were given", next_step="Name ids of nodes.")

    @property
    def value(self) -> ValueColumn:
        if self.per_landmark:
            return ValueColumn(name="distances", kind=pa.list_(pa.int32()))
        return ValueColumn(name="distance", kind=pa.int32())

    def arguments(self) -> dict[str, object]:
        return {
            "landmarks": self.landmarks,
            "per_landmark": self.per_landmark,
            "hops_max": self.hops_max,
        }

    def start(self, work: Work) -> State:
        numbers = self._numbers(work)
        columns = [[number] for number in numbers] if self.per_landmark else [numbers]
        starting = partial(_put_first_distances, work.scratch, columns)
        return work.map_blocks("start", starting, state=State(round=-1))

    def _numbers(self, work: Work) -> list[int]:
        keys = [_key_of(landmark, work.layout.node_keys) for landmark in self.landmarks]
        wanted = pa.array(keys, pa.string())
        stage = Stage(verb=work.verb, name="find landmarks")
        answers = work.runner.map(
            stage, work.layout.ids, partial(_find, work.scratch, wanted), list[int]
        )
        by_file = require_answers(answers)
        numbers = [
            max((numbered[at] for numbered in by_file), default=-1) for at in range(len(wanted))
        ]
        absent = [
            landmark for landmark, number in zip(self.landmarks, numbers, strict=True) if number < 0
        ]
        if absent:
            first = dict.fromkeys(map(repr, absent))
            raise InvalidInputError(f"there is no node {', '.join([*first][:3])} to start from")
        return numbers

    def advance(self, work: Work, state: State) -> State:
        changed = tuple(bool(count) for count in state.numbers["changed"])
        following = partial(_follow_edges, work.blocks_of(state, _ROLE), changed)
        return work.map_blocks(f"hop {state.round + 1}", following, state=state)

    def is_complete(self, work: Work, state: State) -> bool:
        is_last = self.hops_max is not None and state.round >= self.hops_max
        return is_last or not work.layout.edges or not state.total("changed")

    def result(self, work: Work, state: State) -> list[ResultFile]:
        values = partial(_values_of, work.blocks_of(state, _ROLE), per_landmark=self.per_landmark)
        return work.write_result(values, self.value)


def _key_of(landmark: Landmark, node_keys: NodeKeys) -> str:
    if not node_keys.with_types:
        if isinstance(landmark, str):
            return landmark
        raise InvalidInputError(
            f"the landmark {landmark!r:.80} has a type, expected an id: one node type was named",
            next_step="Name node types as a list to have types in the result.",
        )
    if isinstance(landmark, str) or landmark[0] not in node_keys.types:
        raise InvalidInputError(
            f"the landmark {landmark!r:.80} needs a type, one of {', '.join(node_keys.types)}",
            next_step="Give landmarks as pairs of a type and an id.",
        )
    return node_keys.key(*landmark)


def _find(scratch: Scratch, wanted: pa.Array, file: IdFile, _: Task) -> list[int]:
    """The numbers of some ids, -1 for those that are not in a file."""
    places = pc.index_in(wanted, value_set=read_texts(scratch, file.path))
    return [-1 if place is None else place + file.first for place in places.to_pylist()]


def _put_first_distances(
    scratch: Scratch, columns: Sequence[Sequence[int]], block: Block, _: Task
) -> BlockAnswer:
    arrays: dict[str, np.ndarray] = {}
    started = 0
    for number, starts in enumerate(columns):
        distance = np.full(block.nodes, _UNREACHED, np.int32)
        own = [start - block.first for start in starts if block.first <= start < block.end]
        distance[own] = 0
        started += len(own)
        arrays[str(number)] = distance
    path = put_arrays(scratch, f"{_ROLE}-{block.number:05}", arrays)
    return BlockAnswer(files={_ROLE: path}, numbers={"changed": float(started)})


def _follow_edges(
    distances: BlockFiles, changed: tuple[bool, ...], block: Block, task: Task
) -> BlockAnswer:
    path = distances.paths[block.number]
    former = read_arrays(distances.scratch, path)
    nearer: dict[str, np.ndarray] = {}
    for run in block.read_edges(distances.scratch, only=changed):
        task.advance(rows=len(run.far))
        starts = run.starts()
        nodes = run.near[starts]
        for name, values in read_arrays(distances.scratch, distances.paths[run.other]).items():
            least = np.minimum.reduceat(values[run.far], starts)
            reached = least != _UNREACHED
            distance = nearer.setdefault(name, former[name].copy())
            places = nodes[reached]
            distance[places] = np.minimum(distance[places], least[reached] + 1)
    count = sum(np.count_nonzero(nearer[name] != former[name]) for name in nearer)
    if count:
        path = put_arrays(distances.scratch, f"{_ROLE}-{block.number:05}", nearer)
    return BlockAnswer(files={_ROLE: path}, numbers={"changed": float(count)})


def _values_of(distances: BlockFiles, block: Block, *, per_landmark: bool) -> pa.Array:
    arrays = read_arrays(distances.scratch, distances.paths[block.number])
    if not per_landmark:
        return pa.array(arrays["0"], mask=arrays["0"] == _UNREACHED)
    values = np.stack([arrays[str(number)] for number in range(len(arrays))], axis=1).ravel()
    offsets = np.arange(block.nodes + 1, dtype=np.int32) * len(arrays)
    items = pa.array(values, mask=values == _UNREACHED)
    return pa.ListArray.from_arrays(pa.array(offsets), items)
