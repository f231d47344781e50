"""Draws the layers of imports, and the tree of packages.

    python -m tests.tidy.layers

writes docs/images/layers.svg and the tree in ARCHITECTURE.md. Both follow from the source: layers
from its imports, texts from the docstrings of packages. A test compares both with the source.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from tests.tidy.imports import modules, package_sizes, room_imports, room_of
from tests.tidy.sources import HOME, tree_of

PICTURE = HOME / "docs/images/layers.svg"
PAGE = HOME / "ARCHITECTURE.md"
BEGIN, END = "<!-- tree of packages: begin -->\n", "<!-- tree of packages: end -->\n"
DOOR = "__main__"
"""`python -m omnigraph_lake`: calls the command line and nothing else."""
WIDTH, BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, GAP = 1080, 170, 44, 84, 24


def layers() -> list[list[str]]:
    """Rooms by the longest chain of imports below them, the lowest first."""
    below = {room: targets for room, targets in room_imports().items() if room != DOOR}
    depths: dict[str, int] = {}

    def depth(room: str) -> int:
        if room not in depths:
            depths[room] = 1 + max(map(depth, below.get(room, ())), default=0)
        return depths[room]

    by_depth: defaultdict[int, list[str]] = defaultdict(list)
    for room in sorted({room_of(name) for name in modules()} - {"", DOOR}):
        by_depth[depth(room)].append(room)
    return [by_depth[number] for number in sorted(by_depth)]


def picture() -> str:
    """The layers as SVG: a box per room, and a line for each import that no chain implies."""
    rows = layers()
    height = len(rows) * ROW_HEIGHT + GAP
    places = _places(rows, height)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" text-anchor="middle">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *_bands(len(rows), height),
            *_lines(places),
            *_boxes(places),
            "</svg>\n",
        )
    )


def tree() -> str:
    """Packages, one on each line, with the first sentence of their docstrings."""
    packages = {name: path for name, path in modules().items() if path.name == "__init__.py"}
    sizes = package_sizes()
    lines = ["omnigraph_lake/"]
    for name in sorted(packages):
        if name == "omnigraph_lake":
            continue
        parts = name.split(".")[1:]
        folder = "  " * len(parts) + parts[-1] + "/"
        lines.append(f"{folder:<18}{sizes[name]:>3}  {_first_line(packages[name])}")
    for name, path in sorted(modules().items()):
        if name.count(".") == 1 and name not in packages and room_of(name) != DOOR:
            lines.append(f"  {path.name:<16}     {_first_line(path)}")
    return "```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n"


def page() -> str:
    """ARCHITECTURE.md with the tree as it is now."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + tree() + END + after


def main() -> None:
    """Write the picture and the page."""
    PICTURE.write_text(picture())
    PAGE.write_text(page())
    sys.stdout.write(f"{len(layers())} layers: {PICTURE.relative_to(HOME)}, {PAGE.name}\n")


def _first_line(path: Path) -> str:
    text = ast.get_docstring(tree_of(path)) or ""
    return " ".join(text.split("\n\n")[0].split())


def _places(rows: list[list[str]], height: int) -> Mapping[str, tuple[int, int]]:
    """The middle of the upper edge of each box."""
    return {
        room: (
            WIDTH // 2 + int((number - (len(rooms) - 1) / 2) * (BOX_WIDTH + GAP)),
            height - (level + 1) * ROW_HEIGHT,
        )
        for level, rooms in enumerate(rows)
        for number, room in enumerate(rooms)
    }


def _bands(count: int, height: int) -> Iterator[str]:
    for level in range(count):
        top = height - (level + 1) * ROW_HEIGHT - 10
        if level % 2 == 0:
            yield f'<rect y="{top}" width="{WIDTH}" height="{ROW_HEIGHT}" fill="#f4f6f8"/>'
        yield f'<text x="22" y="{top + 38}" font-size="14" fill="#98a2ad">{level + 1}</text>'


def _lines(places: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for room, targets in sorted(_implied_by_none().items()):
        x, y = places[room]
        for target in sorted(targets):
            end_x, end_y = places[target]
            start = y + BOX_HEIGHT
            bend = max(20, (end_y - start) // 2)
            curve = f"M{x} {start} C{x} {start + bend} {end_x} {end_y - bend} {end_x} {end_y}"
            yield (f'<path d="{curve}" fill="none" stroke="#b5c0cb" stroke-width="1.2"/>')


def _implied_by_none() -> Mapping[str, frozenset[str]]:
    """Imports between rooms, without those that also follow from a chain of others."""
    below = {room: targets for room, targets in room_imports().items() if room != DOOR}

    def reachable(room: str) -> frozenset[str]:
        direct = below.get(room, frozenset())
        return direct.union(*map(reachable, direct)) if direct else direct

    return {
        room: targets.difference(*map(reachable, targets)) if targets else targets
        for room, targets in below.items()
    }


def _boxes(places: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    sizes = {room: sum(room_of(name) == room for name in modules()) for room in places}
    for room, (x, y) in places.items():
        package = f"omnigraph_lake.{room}" in modules() and sizes[room] > 1
        label = f"{room}/" if package else f"{room}.py"
        below = f"{sizes[room]} modules" if package else ""
        yield (
            f'<rect x="{x - BOX_WIDTH // 2}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
            f'rx="6" fill="{"#e8f0fb" if package else "#ffffff"}" stroke="#4a6fa5"/>'
        )
        middle = y + (20 if below else 28)
        yield f'<text x="{x}" y="{middle}" font-size="15" fill="#1c2733">{escape(label)}</text>'
        if below:
            yield f'<text x="{x}" y="{y + 36}" font-size="11" fill="#5b6b7b">{below}</text>'


if __name__ == "__main__":
    main()
