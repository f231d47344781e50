"""What processes were promised, and whether a graph keeps it: the oracle of all power-cut runs.

A process writes a line after a call returned, and one before it gives something up: from then on
that thing may be there or not, but never in part. The lines are outside of the disk.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from omnigraph_lake.graph import Graph, GraphView

ROWS: Final = 40
"""The people, and the edges if there are any, that one operation writes."""
NEVER_EXPECTED: Final = ("DamagedGraphError", "DriftNeedsRepairError")
"""Errors that no process may see, whatever was killed or cut beside it."""
_WRITTEN: Final = re.compile(r"(w\d+x\d+-\d+)-\d+")
_ADDED_COLUMN: Final = re.compile(r"^\s*(cw\d+x\d+_\d+):", re.MULTILINE)

Line = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What one state of one branch holds; people and edges are counted by operation."""

    ages: dict[str, int | None]
    people: Counter[str]
    edges: Counter[str]

    def half_done(self) -> list[str]:
        """Operations of which only a part is there."""
        counted = {"people": self.people, "edges": self.edges}
        return [
            f"{operation} left {count} {kind} of {ROWS}"
            for kind, counts in counted.items()
            for operation, count in counts.items()
            if count != ROWS
        ]


def content_of(graph: Graph | GraphView) -> Content:
    rows = graph.scan("Person", columns=["name", "age"]).read_all().to_pylist()
    sources = graph.scan("Knows", columns=["src"]).read_all().column("src").to_pylist()
    return Content(
        ages={row["name"]: row["age"] for row in rows},
        people=Counter(_operations(row["name"] for row in rows)),
        edges=Counter(_operations(sources)),
    )


def _operations(keys: Iterable[str]) -> Iterator[str]:
    matches = (_WRITTEN.fullmatch(key) for key in keys)
    return (match[1] for match in matches if match)


def added_columns(schema_text: str) -> list[str]:
    return _ADDED_COLUMN.findall(schema_text)


def read_lines(logs: Path) -> list[Line]:
    """All lines of all processes so far, without one that is being written."""
    return [
        json.loads(line)
        for log in sorted(logs.glob("*.log"))
        for line in log.read_text().rpartition("\n")[0].splitlines()
    ]


def given_up(lines: Iterable[Line]) -> set[str]:
    """Names of operations, branches, tags and columns whose removal was begun."""
    return {line["gives_up"] for line in lines if "gives_up" in line}


def lost_rows(main: Content, lines: Iterable[Line], without: set[str]) -> list[Line]:
    """The lines about rows of main that are not true of a content, but for what was given up."""
    return [*_lost_operations(main, lines, without), *_lost_ages(main, lines)]


def _lost_operations(main: Content, lines: Iterable[Line], without: set[str]) -> Iterator[Line]:
    for line in lines:
        if "prefix" in line and "branch" not in line and line["prefix"] not in without:
            yield from _differs(main, line)
        if "gone" in line and main.people[line["gone"]]:
            yield line


def _differs(content: Content, line: Line) -> Iterator[Line]:
    people, edges = content.people[line["prefix"]], content.edges[line["prefix"]]
    if people != line["rows"] or edges != line.get("edges", 0):
        yield {**line, "people there": people, "edges there": edges}


def _lost_ages(main: Content, lines: Iterable[Line]) -> Iterator[Line]:
    ages = {line["shared"]: line["age"] for line in lines if "shared" in line}
    for name, age in ages.items():
        if (main.ages.get(name) or 0) < age:
            yield {"shared": name, "age": age, "age there": main.ages.get(name)}


def lost_anywhere(graph: Graph, main: Content, lines: list[Line]) -> list[Line]:
    """As `lost_rows`, with branches, tags and columns; nothing else may change the graph."""
    without = given_up(lines)
    branches = {branch.name for branch in graph.branches.list()}
    there = {*branches, *(tag.tag for tag in graph.tags.list()), *added_columns(graph.schema.text)}
    lost = lost_rows(main, lines, without)
    contents: dict[str, Content] = {}
    for line in lines:
        named = {line[kind] for kind in ("branch", "tag", "column") if kind in line} - without
        if not named <= there or line.get("gone") in there:
            lost.append(line)
        elif "prefix" in line and "branch" in line and line["branch"] in named:
            branch = line["branch"]
            if branch not in contents:
                contents[branch] = content_of(graph.checkout(branch))
            lost += _differs(contents[branch], line)
    return lost


def contradictions(main: Content, lines: Iterable[Line]) -> list[str]:
    """What is half done, what was said to have failed and is there, and what processes noticed."""
    texts = main.half_done()
    for line in lines:
        texts += line.get("wrong", ())
        if main.people[line.get("absent", "")]:
            texts.append(f"{line['absent']} failed and is there: {line['error']}")
        if "failed" in line and line["error"].startswith(NEVER_EXPECTED):
            texts.append(f"{line['failed']}: {line['error']}")
    return texts
