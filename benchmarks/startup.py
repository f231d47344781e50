"""What a cold `omnigraph` costs beside importing Lance alone: `just bench startup`.

Every command runs in a new process, in turns with the others, after one round that fills the page
cache. Printed are medians: wall and CPU seconds of the whole process and its peak memory. The graph
is tiny, so this is what a command costs before it reads rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from benchmarks.processes import ProcessCost, median_cost, run_process

COMMAND: Final = str(Path(sys.executable).parent / "omnigraph")
SCHEMA: Final = Path(__file__).parent.parent / "examples" / "people.pg"
PERSON: Final = (
    '{"type": "Person", "data": {"email": "EMAIL", "name": "Ann", "status": "active"}}\n'
)
PERSONS: Final = ("ann@example.com", "ben@example.com")
ONE_HOP: Final = """
query friends($email: String) {
    match { $p: Person { email: $email }  $p knows $f }
    return { $f.name }
}
"""
BARE: Final = "import lance"


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        runs = commands(Path(folder))
        starts: dict[str, list[ProcessCost]] = {name: [] for name in runs}
        for _ in range(options.rounds + 1):
            for name, command in runs.items():
                starts[name].append(run_process(command))
    medians = {name: median_cost(measured[1:]) for name, measured in starts.items()}
    bare = medians[BARE]
    print(f"{'':24}     wall      CPU  RSS MB  wall ratio  CPU ratio")
    for name, start in medians.items():
        print(
            f"{name:24}  {start.wall:7.3f}  {start.cpu:7.3f}  {start.rss_mb:6.0f}  "
            f"{start.wall / bare.wall:10.2f}  {start.cpu / bare.cpu:9.2f}"
        )
    print(json.dumps(_record(medians)))


def commands(folder: Path) -> dict[str, list[str]]:
    """What is run, by what it is called."""
    root = f"{folder}/graph"
    graph = og.init(root, schema=SCHEMA.read_text())
    records = folder / "persons.jsonl"
    records.write_text("".join(PERSON.replace("EMAIL", email) for email in PERSONS))
    graph.load(records)
    graph.write({"Knows": [{"src": PERSONS[0], "dst": PERSONS[1]}]})
    return {
        BARE: [sys.executable, "-c", BARE],
        "omnigraph --help": [COMMAND, "--help"],
        "omnigraph lint": [COMMAND, "lint", str(SCHEMA)],
        "omnigraph status": [COMMAND, "status", root],
        "omnigraph query, 1 hop": [
            *(COMMAND, "query", root, "-e", ONE_HOP, "--param", f"email={PERSONS[0]}"),
        ],
        "omnigraph load": [COMMAND, "load", root, str(records), "--mode", "merge"],
    }


def _record(medians: Mapping[str, ProcessCost]) -> Mapping[str, object]:
    bare = medians[BARE]

    def ratios(name: str) -> dict[str, float]:
        start = medians[name]
        return {
            "wall": round(start.wall / bare.wall, 2),
            "cpu": round(start.cpu / bare.cpu, 2),
        }

    return {
        "name": "startup",
        "ratio_help": ratios("omnigraph --help"),
        "ratio_status": ratios("omnigraph status"),
        "ratio_query": ratios("omnigraph query, 1 hop"),
        "starts": {name: start.record() for name, start in medians.items()},
        "versions": {"omnigraph": og.__version__, "python": sys.version.split()[0]},
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
