"""Writes the page of benchmarks from their docstrings and from recorded runs.

python -m tests.docs.benchmarks_page docs/reference/benchmarks.md
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.record import Run, read_runs

BENCHMARKS: Final = Path(__file__).parent.parent.parent / "benchmarks"
HEADER: Final = """# Benchmarks

What every benchmark measures, and what recorded runs printed. The page is written from
`benchmarks/` by `just api`; figures beside other products are in the
[comparison](../concepts/comparison.md), those of Spark in
[what it costs](../explanation/spark.md#what-it-costs), requests in
[requests and latency](cost.md).

`just bench NAME` runs one from a checkout, `just record NAME` also keeps what it printed. Wall
times of a busy machine say little: *busy* is how many processes wanted a core before the run.
*Ratio*, the first column of a recorded table, is the last column divided by that of the first row;
the other columns are as they were printed.
"""
COLUMNS: Final = re.compile(r"\s{2,}")
"""What separates the columns of a table that a benchmark prints; a name has single spaces."""


def main(target: str) -> None:
    Path(target).write_text(page())


def page() -> str:
    return "\n".join([HEADER, *_recorded(), *_listed()]).rstrip("\n") + "\n"


def _recorded() -> Iterator[str]:
    yield "## Recorded runs\n"
    newest = {run.command: run for run in read_runs()}
    for command in sorted(newest):
        yield from _shown(newest[command])


def _shown(run: Run) -> Iterator[str]:
    yield f"{run.at}, commit `{run.commit}`, {run.cores} cores, busy {run.load}:\n"
    lines = [line.rstrip() for line in run.printed.splitlines() if not line.startswith("{")]
    yield "\n".join(["```text", f"$ {run.command}", *with_ratios(lines), "```\n"])


def with_ratios(lines: list[str]) -> list[str]:
    """A table with ratios in front; what is no table that ends in numbers stays as it is."""
    head, *rows = [COLUMNS.split(line.strip()) for line in lines] or [[]]
    if not rows or {len(row) for row in rows} != {len(head)}:
        return lines
    try:
        last = [float(row[-1].replace(",", "")) for row in rows]
    except ValueError:
        return lines
    if not last[0]:
        return lines
    ratios = ["ratio", *(f"{number / last[0]:.2f}" for number in last)]
    return [f"{ratio:>5}  {line}" for ratio, line in zip(ratios, lines, strict=True)]


def _listed() -> Iterator[str]:
    yield "## All benchmarks\n"
    yield "| Name | Measures |\n|---|---|"
    for path in sorted(BENCHMARKS.glob("*.py")):
        source = path.read_text()
        if "__main__" in source and path.stem not in {
            "compared",
            "processes",
            "query_sides",
            "record",
        }:
            yield f"| `{path.stem}` | {_purpose(source)} |"


def _purpose(source: str) -> str:
    """The first sentence of the docstring, without the command."""
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].split())
    return text.partition(": `")[0].rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
    main(sys.argv[1])
