"""Draws how commits descend from each other, as lanes of characters beside a list.

A lane is a line of commits that is still to come. A commit ends the lanes of all its children but
one, and continues in that of its first parent; a merged parent gets a lane of its own.

Invariant: every commit has one line with one `●`, in the order given; lines between them only join
and divide lanes. Commits are given after all their children.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_GAP: Final = " "


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLine:
    """One line of a drawing; `commit_id` is None where lanes only join or divide."""

    drawing: str
    commit_id: str | None


def draw_lanes(commits: Iterable[tuple[str, Sequence[str]]]) -> list[LaneLine]:
    """The lines of commits, each given with its parents; parents that do not follow end a lane."""
    ordered = list(commits)
    listed = {commit_id for commit_id, _ in ordered}
    lanes: list[str | None] = []
    lines: list[LaneLine] = []
    for commit_id, named_parents in ordered:
        parents = [parent for parent in named_parents if parent in listed]
        waiting = [position for position, lane in enumerate(lanes) if lane == commit_id]
        position = waiting[0] if waiting else _free_lane(lanes)
        for ended in waiting[1:]:
            lines.append(LaneLine(drawing=_connect(lanes, position, ended, "╯"), commit_id=None))
            lanes[ended] = None
        lanes[position] = commit_id
        lines.append(LaneLine(drawing=_row(lanes, position), commit_id=commit_id))
        lanes[position] = parents[0] if parents else None
        for parent in parents[1:]:
            if parent in lanes:
                target, end = lanes.index(parent), "┤"
            else:
                target, end = _free_lane(lanes), "╮"
            lanes[target] = parent
            lines.append(LaneLine(drawing=_connect(lanes, position, target, end), commit_id=None))
        while lanes and lanes[-1] is None:
            lanes.pop()
    return lines


def _free_lane(lanes: list[str | None]) -> int:
    """The first lane that is free, a new one if there is none."""
    if None in lanes:
        return lanes.index(None)
    lanes.append(None)
    return len(lanes) - 1


def _row(lanes: Sequence[str | None], position: int) -> str:
    marks = ["●" if place == position else _mark(lane) for place, lane in enumerate(lanes)]
    return _GAP.join(marks).rstrip()


def _connect(lanes: Sequence[str | None], position: int, other: int, end: str) -> str:
    """A line from the lane of a commit to another lane, which starts, ends or goes on there."""
    left, right = sorted((position, other))
    text = ""
    for place, lane in enumerate(lanes):
        if place == position:
            mark = "├" if position < other else "┤"
        elif place == other:
            mark = end if position < other else {"╯": "╰", "╮": "╭", "┤": "├"}[end]
        elif left < place < right:
            mark = "─" if lane is None else "┼"
        else:
            mark = _mark(lane)
        text += mark + ("─" if left <= place < right else _GAP)
    return text.rstrip()


def _mark(lane: str | None) -> str:
    return " " if lane is None else "│"
