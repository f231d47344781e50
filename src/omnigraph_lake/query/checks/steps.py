"""Decides which edges a traversal can follow, in which direction, and between which node types.

Invariants:

- The result depends on the types of the two ends and on the edges alone, not on their order.
- Every step is part of a chain that leads from a type of the left end to one of the right end, and
  has no more edges than allowed. Types are all that is known here: such a chain may not be stored.
- An edge that is followed in one direction is followed forward where that fits both ends, else
  backward where that does; on the way of a longer chain, away from the end that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from omnigraph_lake.query.typed import EdgeDirection, EdgeStep
from omnigraph_lake.schema.catalog import EdgeType


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsBetween:
    """The steps from left to right, and the types that the ends of a chain of them can have."""

    steps: tuple[EdgeStep, ...]
    left_types: tuple[str, ...]
    right_types: tuple[str, ...]


def steps_between(
    edges: Sequence[EdgeType],
    *,
    left: frozenset[str] | None,
    right: frozenset[str] | None,
    hops: tuple[int, int | None],
    undirected: bool,
) -> StepsBetween:
    """The steps of a traversal; an end whose types are None can be of every type.

    `hops` are the smallest and the largest number of edges of a chain. With none, both ends are the
    same node.
    """
    minimum, maximum = hops
    ends = _Ends(left=left, right=right)
    if undirected:
        steps = [step for edge in edges for step in edge_steps(edge, EdgeDirection.EITHER)]
    else:
        directions = _directions(edges, ends, chained=maximum != 1)
        steps = [
            step
            for edge in edges
            if edge.name in directions
            for step in edge_steps(edge, directions[edge.name])
        ]
    # A chain without a maximum passes every type at most once.
    between = _within(steps, ends, 2 * len(steps) + 1 if maximum is None else maximum)
    if minimum > 0:
        return between
    own_types = ends.types_of_both()
    return replace(
        between,
        left_types=tuple(sorted(own_types.union(between.left_types))),
        right_types=tuple(sorted(own_types.union(between.right_types))),
    )


def edge_steps(edge: EdgeType, direction: EdgeDirection) -> tuple[EdgeStep, ...]:
    """The steps that an edge type allows in a direction, for each pair of types at its ends."""
    forward = [
        EdgeStep(
            edge=edge.name,
            direction=EdgeDirection.FORWARD,
            start_type=source,
            end_type=target,
        )
        for source in edge.source.names
        for target in edge.target.names
    ]
    match direction:
        case EdgeDirection.FORWARD:
            return tuple(forward)
        case EdgeDirection.BACKWARD:
            return tuple(step.turn() for step in forward)
        case EdgeDirection.EITHER:
            return tuple(way for step in forward for way in _either_way(step))
        case _:
            assert_never(direction)


def _either_way(step: EdgeStep) -> tuple[EdgeStep, ...]:
    if step.start_type == step.end_type:
        return (replace(step, direction=EdgeDirection.EITHER),)
    return step, step.turn()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """The types of the two ends of a traversal, as far as they are known."""

    left: frozenset[str] | None
    right: frozenset[str] | None

    def start(self, step: EdgeStep) -> bool:
        return self.left is None or step.start_type in self.left

    def end(self, step: EdgeStep) -> bool:
        return self.right is None or step.end_type in self.right

    def types_of_both(self) -> frozenset[str]:
        """The types that a node at both ends can have."""
        if self.left is None or self.right is None:
            return self.left or self.right or frozenset()
        return self.left & self.right


def _directions(
    edges: Sequence[EdgeType], ends: _Ends, *, chained: bool
) -> dict[str, EdgeDirection]:
    """How each edge is followed, from left to right; an edge that is never followed has none."""
    one_way = (EdgeDirection.FORWARD, EdgeDirection.BACKWARD)
    directions: dict[str, EdgeDirection] = {}
    for edge in edges:
        for direction in one_way:
            steps = edge_steps(edge, direction)
            if any(ends.start(step) and ends.end(step) for step in steps):
                directions.setdefault(edge.name, direction)
    known = ends.right if ends.left is None else ends.left
    while chained and known is not None:
        outward = [
            _outward(step, ends)
            for edge in edges
            if edge.name in directions
            for step in edge_steps(edge, directions[edge.name])
        ]
        known = known.union(far for near, far in outward if near in known)
        # All edges of a round are decided by the same types, so that their order does not matter.
        decided = {
            edge.name: direction
            for edge in edges
            if edge.name not in directions
            for direction in reversed(one_way)
            if any(_outward(step, ends)[0] in known for step in edge_steps(edge, direction))
        }
        if not decided and all(far in known for near, far in outward if near in known):
            break
        directions.update(decided)
    return directions


def _outward(step: EdgeStep, ends: _Ends) -> tuple[str, str]:
    """The types of a step, that at the side of the known end first."""
    if ends.left is None:
        return step.end_type, step.start_type
    return step.start_type, step.end_type


def _within(steps: Sequence[EdgeStep], ends: _Ends, maximum: int) -> StepsBetween:
    """The steps that are part of a chain from left to right with at most so many edges."""
    turned = [step.turn() for step in steps]
    from_left = _distances(steps, [step.start_type for step in steps if ends.start(step)])
    from_right = _distances(turned, [step.end_type for step in steps if ends.end(step)])
    far = maximum + 1
    kept_steps = [
        step
        for step in steps
        if from_left.get(step.start_type, far) + 1 + from_right.get(step.end_type, far) <= maximum
    ]
    firsts = [step for step in kept_steps if from_right[step.end_type] < maximum]
    lasts = [step for step in kept_steps if from_left[step.start_type] < maximum]
    return StepsBetween(
        steps=tuple(sorted(kept_steps, key=_order)),
        left_types=tuple(sorted({step.start_type for step in firsts if ends.start(step)})),
        right_types=tuple(sorted({step.end_type for step in lasts if ends.end(step)})),
    )


def _distances(steps: Sequence[EdgeStep], starts: Iterable[str]) -> dict[str, int]:
    """The smallest number of steps from one of some types to each type."""
    distances = dict.fromkeys(starts, 0)
    level = set(distances)
    while level:
        reached = {step.end_type for step in steps if step.start_type in level} - distances.keys()
        distance = max(distances.values()) + 1
        distances.update(dict.fromkeys(reached, distance))
        level = reached
    return distances


def _order(step: EdgeStep) -> tuple[str, str, str, str]:
    return step.edge, step.start_type, step.end_type, step.direction
