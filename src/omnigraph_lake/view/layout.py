"""Positions of nodes: forces between them, or lanes of commits.

Invariants:
- No randomness: the same nodes and edges in the same order get the same positions.
- The cost of a round of forces grows linearly: up to `_EXACT_MAX` nodes every pair repels each
  other, beyond that the repulsion is that of a density on a grid, convolved by an FFT.
- Nodes without edges are placed in a block of their own, so they do not push others apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from omnigraph_lake import names
from omnigraph_lake.view.scene import NodeKey, Scene, SceneKind, SceneNode

Points: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_EXACT_MAX: Final = 600
_GRID: Final = 128
_ROUNDS: Final = (220, 160)
"""Of forces: for few nodes, and for many."""
_GOLDEN_ANGLE: Final = math.pi * (3 - math.sqrt(5))
_GRAVITY: Final = 0.06
_STRETCH: Final = 1.4
"""Screens and pages are wider than high."""


def lay_out(scene: Scene) -> Points:
    """The position of every node, x to the right and y upwards.

    What is shown at first is laid out alone; other nodes are placed around their neighbours.
    """
    if scene.kind is SceneKind.COMMITS:
        return _lanes(scene)
    places = {node.key: place for place, node in enumerate(scene.nodes)}
    pairs = np.array(
        [(places[edge.source], places[edge.target]) for edge in scene.edges], dtype=np.int64
    ).reshape(-1, 2)
    shown = np.flatnonzero([node.shown for node in scene.nodes])
    points = np.zeros((len(scene.nodes), 2))
    points[shown] = _place_nodes(len(scene.nodes), shown, pairs)
    _fan_out(points, shown, pairs)
    return points


def _place_nodes(count: int, chosen: Places, pairs: Places) -> Points:
    """Positions of some nodes, by the edges between them."""
    index = np.full(count, -1)
    index[chosen] = np.arange(len(chosen))
    inner = index[pairs]
    inner = inner[(inner >= 0).all(axis=1) & (inner[:, 0] != inner[:, 1])]
    degrees = np.bincount(inner.ravel(), minlength=len(chosen))
    connected = np.flatnonzero(degrees)
    points = np.zeros((len(chosen), 2))
    if len(connected):
        index = np.full(len(chosen), -1)
        index[connected] = np.arange(len(connected))
        points[connected] = _forces(len(connected), index[inner])
    _block(points, connected, np.flatnonzero(degrees == 0))
    return points


def _forces(count: int, pairs: Places) -> Points:
    """A force-directed layout: edges attract, nodes repel, all of them fall to the middle."""
    degrees = np.bincount(pairs.ravel(), minlength=count).astype(float)
    mass = 1 + degrees
    points = _start(count, pairs)
    ideal = 1.0
    rounds = _ROUNDS[0] if count <= _EXACT_MAX else _ROUNDS[1]
    gravity = _GRAVITY * (8 if count < 50 else 1)
    first, second = pairs[:, 0], pairs[:, 1]
    # An edge pulls the less connected end more, so that hubs do not collapse onto each other.
    weight = 1 / np.sqrt(np.minimum(degrees[first], degrees[second]))
    for number in range(rounds):
        force = _repulsion(points, mass, ideal)
        pull = (points[second] - points[first]) * (weight / ideal)[:, None]
        for axis in (0, 1):
            force[:, axis] += np.bincount(first, pull[:, axis], count)
            force[:, axis] -= np.bincount(second, pull[:, axis], count)
        force -= gravity * mass[:, None] * points / ideal
        step = np.hypot(force[:, 0], force[:, 1])
        reach = math.sqrt(count) * ideal * 0.12 * (1 - number / rounds) ** 1.5 + 0.002
        points += force * (np.minimum(step, reach) / np.maximum(step, 1e-9))[:, None]
    centred: Points = (points - points.mean(axis=0)) * (_STRETCH, 1)
    return centred


def _repulsion(points: Points, mass: Points, ideal: float) -> Points:
    if len(points) <= _EXACT_MAX:
        root = np.sqrt(mass)
        square = points @ (-2 * points.T)  # of distances, in one matrix: memory is what costs
        lengths = (points**2).sum(axis=1)
        square += lengths + 0.01 * ideal**2
        square += lengths[:, None]
        scale = np.divide(ideal**2, square, out=square)
        exact: Points = points * (scale @ root)[:, None] - scale @ (points * root[:, None])
        return exact * root[:, None]
    return _repulsion_of_density(points, mass, ideal)


def _repulsion_of_density(points: Points, mass: Points, ideal: float) -> Points:
    """The same, read from the field of a density on a grid."""
    low = points.min(axis=0)
    cell = max(float((points.max(axis=0) - low).max()) / (_GRID - 2), 1e-9)
    scaled = (points - low) / cell
    corner = np.minimum(scaled.astype(np.int64), _GRID - 2)
    part = scaled - corner
    corners = [(0, 0), (1, 0), (0, 1), (1, 1)]
    shares = [np.abs(1 - right - part[:, 0]) * np.abs(1 - up - part[:, 1]) for right, up in corners]
    cells = [(corner[:, 0] + right) * _GRID + corner[:, 1] + up for right, up in corners]
    root = np.sqrt(mass)
    density = np.zeros(_GRID * _GRID)
    for place, share in zip(cells, shares, strict=True):
        density += np.bincount(place, root * share, _GRID * _GRID)
    size = 2 * _GRID
    spectrum = np.fft.rfft2(density.reshape(_GRID, _GRID), (size, size))
    steps = np.fft.fftfreq(size, 1 / size) * cell
    square = steps[:, None] ** 2 + steps[None, :] ** 2 + 0.35 * cell**2
    force = np.zeros_like(points)
    for axis, along in enumerate((steps[:, None], steps[None, :])):
        kernel = np.fft.rfft2(np.broadcast_to(along, (size, size)) * ideal**2 / square)
        field = np.fft.irfft2(spectrum * kernel, (size, size))[:_GRID, :_GRID].ravel()
        for place, share in zip(cells, shares, strict=True):
            force[:, axis] += field[place] * share
    return force * root[:, None]


def _start(count: int, pairs: Places) -> Points:
    """A spiral in the order of a walk over the edges, so that neighbours start near each other."""
    order = _walk(count, pairs)
    rank = np.empty(count)
    rank[order] = np.arange(count)
    radius, angle = np.sqrt(rank + 0.5), rank * _GOLDEN_ANGLE
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _walk(count: int, pairs: Places) -> list[int]:
    """All nodes, breadth first from the most connected one of every part."""
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for first, second in pairs.tolist():
        neighbours[first].append(second)
        neighbours[second].append(first)
    order: dict[int, None] = {}
    for start in sorted(range(count), key=lambda node: (-len(neighbours[node]), node)):
        reached = [start]  # grows while it is read
        for node in reached:
            if node not in order:
                order[node] = None
                reached += neighbours[node]
    return list(order)


def _block(points: Points, connected: Places, others: Places) -> None:
    """Place nodes without edges in a grid below the rest, or alone as a disc."""
    if not len(others):
        return
    if not len(connected):
        radius, angle = np.sqrt(np.arange(len(others)) + 0.5), np.arange(len(others)) * 2.399963
        points[others] = 1.6 * np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return
    low, high = points[connected].min(axis=0), points[connected].max(axis=0)
    width = max(float(high[0] - low[0]), 4.0)
    gap = min(max(width / math.sqrt(len(others)) / 2, 0.8), max(3.5, width / 60))
    columns = max(int(width / gap), 1)
    numbers = np.arange(len(others))
    in_row = np.minimum(len(others) - numbers // columns * columns, columns)
    points[others, 0] = (low[0] + high[0]) / 2 + (numbers % columns - (in_row - 1) / 2) * gap
    points[others, 1] = low[1] - 1.5 * gap - numbers // columns * gap


def _fan_out(points: Points, shown: Places, pairs: Places) -> None:
    """Place the nodes that are not shown around a neighbour, away from the middle, layer by layer.

    In a ring around a node they keep a distance of about one edge from each other.
    """
    placed = np.zeros(len(points), dtype=bool)
    placed[shown] = True
    while True:
        anchors: dict[int, list[int]] = {}
        taken: set[int] = set()
        for first, second in pairs.tolist():
            for anchor, node in ((first, second), (second, first)):
                if placed[anchor] and not placed[node] and node not in taken:
                    taken.add(node)
                    anchors.setdefault(anchor, []).append(node)
        if not taken:
            break
        for anchor, nodes in anchors.items():
            outward = math.atan2(points[anchor, 1], points[anchor, 0])
            numbers = np.arange(len(nodes))
            turn = outward + (numbers - (len(nodes) - 1) / 2) * min(0.5, 5.5 / len(nodes))
            distance = 2.0 + 0.12 * len(nodes) ** 0.75 + 0.5 * (numbers % 2)
            points[nodes, 0] = points[anchor, 0] + distance * np.cos(turn)
            points[nodes, 1] = points[anchor, 1] + distance * np.sin(turn)
        placed[list(taken)] = True


def _lanes(scene: Scene) -> Points:
    """Commits from the newest at the top down, branches side by side.

    A branch has a lane of its own from its newest commit down to where it began; below that,
    another branch can have the lane.
    """
    rows = {node.key: row for row, node in enumerate(scene.nodes)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for row, node in enumerate(scene.nodes):
        first.setdefault(node.key[0], row)
        last[node.key[0]] = row
    for edge in scene.edges:
        for branch in (edge.source[0], edge.target[0]):
            first[branch] = min(first[branch], rows[edge.source])
        last[edge.source[0]] = max(last[edge.source[0]], rows[edge.target])
    ends, lanes = [len(rows)], {names.MAIN: 0}
    for branch in sorted(first.keys() - {names.MAIN}, key=lambda name: (first[name], name)):
        free = (lane for lane in range(1, len(ends)) if ends[lane] < first[branch])
        lanes[branch] = next(free, len(ends))
        ends[lanes[branch] :] = [last[branch], *ends[lanes[branch] + 1 :]]
    points = np.zeros((len(rows), 2))
    for row, node in enumerate(scene.nodes):
        points[row] = lanes[node.key[0]], -row
    return points


def degrees_of(scene: Scene, nodes: Sequence[SceneNode]) -> Mapping[NodeKey, int]:
    """How many edges of the scene each of these nodes has."""
    degrees = Counter(end for edge in scene.edges for end in (edge.source, edge.target))
    return {node.key: degrees[node.key] for node in nodes}
