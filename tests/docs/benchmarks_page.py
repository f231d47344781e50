"""Writes the page of benchmarks from their docstrings and from recorded runs.

python -m tests.docs.benchmarks_page docs/reference/benchmarks.md
"""

from __future__ import annotations

import ast
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
"""


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
    lines = [line for line in run.printed.splitlines() if not line.startswith("{")]
    yield "\n".join(["```text", f"$ {run.command}", *(line.rstrip() for line in lines), "```\n"])


def _listed() -> Iterator[str]:
    yield "## All benchmarks\n"
    yield "| Name | Measures |\n|---|---|"
    for path in sorted(BENCHMARKS.glob("*.py")):
        source = path.read_text()
        if "__main__" in source and path.stem not in {"processes", "query_sides", "record"}:
            yield f"| `{path.stem}` | {_purpose(source)} |"


def _purpose(source: str) -> str:
    """The first sentence of the docstring, without the command."""
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].split())
    return text.partition(": `")[0].rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
    main(sys.argv[1])
