"""Decides which edges a traversal can follow, in which direction, and between which node types.

Invariants:

- The result depends on the types of the two ends and on the edges alone, not on their order.
- Every step is part of a chain that leads from a type of the left end to one of the right end, and
  has no more edges than allowed. Types are all that is known here: such a chain may not be stored.
- Without a direction in the text, an edge is followed in the only direction that fits; on the way
  of a longer chain, away from the end that is known. An edge that joins one type to itself is
  followed forward. Any other edge that fits in both directions is ambiguous.
- More types at an end of an edge, or in an interface, never change a direction: the edge is
  followed as before, or becomes ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.typed import EdgeStep
from omnigraph_lake.schema.catalog import EdgeType


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsBetween:
    """The steps from left to right, and the types that the ends of a chain of them can have."""

    steps: tuple[EdgeStep, ...]
    left_types: tuple[str, ...]
    right_types: tuple[str, ...]
    ambiguous: tuple[str, ...] = ()
    """The edges that fit in both directions, which the text does not decide."""


def steps_between(
    edges: Sequence[EdgeType],
    *,
    left: frozenset[str] | None,
    right: frozenset[str] | None,
    hops: tuple[int, int | None],
    direction: EdgeDirection | None,
) -> StepsBetween:
    """The steps of a traversal; an end whose types are None can be of every type.

    `hops` are the smallest and the largest number of edges of a chain. With none, both ends are the
    same node.
    """
    minimum, maximum = hops
    ends = _Ends(left=left, right=right)
    directions = (
        _directions(edges, ends, chained=maximum != 1)
        if direction is None
        else _Directions(by_edge=dict.fromkeys((edge.name for edge in edges), direction))
    )
    steps = [
        step
        for edge in edges
        if edge.name in directions.by_edge
        for step in edge_steps(edge, directions.by_edge[edge.name])
    ]
    # A chain without a maximum passes every type at most once.
    between = _within(steps, ends, 2 * len(steps) + 1 if maximum is None else maximum)
    between = replace(between, ambiguous=directions.ambiguous)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Directions:
    """How each edge is followed, from left to right; an edge that is never followed has none."""

    by_edge: Mapping[str, EdgeDirection]
    ambiguous: tuple[str, ...] = ()


_ONE_WAY: Final = (EdgeDirection.FORWARD, EdgeDirection.BACKWARD)


def _directions(edges: Sequence[EdgeType], ends: _Ends, *, chained: bool) -> _Directions:
    """The directions that the types of the ends leave."""
    fitting = (
        _fitting_in_chains(edges, ends)
        if chained
        else {edge.name: _fitting_between(edge, ends) for edge in edges}
    )
    directions: dict[str, EdgeDirection] = {}
    ambiguous: list[str] = []
    for edge in edges:
        fits = fitting[edge.name]
        if len(fits) == 1 or (fits and _joins_a_type_to_itself(edge)):
            directions[edge.name] = fits[0]
        elif fits:
            directions[edge.name] = EdgeDirection.EITHER
            ambiguous.append(edge.name)
    return _Directions(by_edge=directions, ambiguous=tuple(ambiguous))


def _joins_a_type_to_itself(edge: EdgeType) -> bool:
    """Whether the edge was never declared between other types.

    Types are only added to the ends of an edge. Several types at both ends may have been two
    different types once, between which the edge could be followed backward.
    """
    return edge.source.names == edge.target.names and len(edge.source.names) == 1


def _fitting_between(edge: EdgeType, ends: _Ends) -> tuple[EdgeDirection, ...]:
    return tuple(
        direction
        for direction in _ONE_WAY
        if any(ends.start(step) and ends.end(step) for step in edge_steps(edge, direction))
    )


def _fitting_in_chains(
    edges: Sequence[EdgeType], ends: _Ends
) -> dict[str, tuple[EdgeDirection, ...]]:
    """The directions that continue a chain away from the end that is known.

    An edge leads on from types that other edges reach; those that it reaches itself say nothing.
    """
    known = (ends.right if ends.left is None else ends.left) or frozenset()
    ways: dict[str, list[tuple[str, str]]] = {}
    """By the type that is reached first, the types that edges lead on to, with the edge."""
    fitting: dict[str, tuple[EdgeDirection, ...]] = {edge.name: () for edge in edges}
    reached = known
    while True:
        # All edges of a round are decided by the same types, so that their order does not matter.
        undecided = [edge for edge in edges if not fitting[edge.name]]
        new = {edge.name: _fitting_from(edge, reached, ends) for edge in undecided}
        fitting |= {name: fits[:1] for name, fits in new.items()}
        for edge in undecided:
            for direction in fitting[edge.name]:
                for near, far in (_outward(step, ends) for step in edge_steps(edge, direction)):
                    ways.setdefault(near, []).append((far, edge.name))
        if not any(new.values()):
            break
        reached = _reach(ways, known, without="")
    for edge in edges:
        if len(_fitting_from(edge, reached, ends)) > 1:
            fitting[edge.name] = _fitting_from(edge, _reach(ways, known, without=edge.name), ends)
    return fitting


def _fitting_from(edge: EdgeType, known: frozenset[str], ends: _Ends) -> tuple[EdgeDirection, ...]:
    return tuple(
        direction
        for direction in _ONE_WAY
        if any(_outward(step, ends)[0] in known for step in edge_steps(edge, direction))
    )


def _reach(
    ways: Mapping[str, Sequence[tuple[str, str]]], known: frozenset[str], *, without: str
) -> frozenset[str]:
    """The types that chains from known ones reach without one edge."""
    reached, waiting = set(known), list(known)
    while waiting:
        for far, edge in ways.get(waiting.pop(), ()):
            if edge != without and far not in reached:
                reached.add(far)
                waiting.append(far)
    return frozenset(reached)


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
