"""How fast a cold `omnigraph` answers, beside importing Lance alone: `just bench startup`."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import omnigraph

COMMAND = str(Path(sys.executable).parent / "omnigraph")
SCHEMA = Path(__file__).parent.parent / "examples" / "people.pg"
RECORD = (
    '{"type": "Person", "data": {"email": "ann@example.com", "name": "Ann", "status": "active"}}\n'
)


def main(rounds: int = 7) -> None:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = f"{folder}/graph"
        omnigraph.init(root, schema=SCHEMA.read_text())
        records = Path(folder, "one.jsonl")
        records.write_text(RECORD)
        runs = {
            "import lance": [sys.executable, "-c", "import lance"],
            "omnigraph --help": [COMMAND, "--help"],
            "omnigraph lint": [COMMAND, "lint", str(SCHEMA)],
            "omnigraph status": [COMMAND, "status", root],
            "omnigraph load": [COMMAND, "load", root, str(records), "--mode", "merge"],
        }
        seconds = {name: median_seconds(command, rounds) for name, command in runs.items()}
    bare = seconds["import lance"]
    print(f"{'':18}  seconds  / import lance")
    for name, taken in seconds.items():
        print(f"{name:18}  {taken:7.3f}  {taken / bare:6.2f}")
    print(
        json.dumps(
            {
                "name": "startup",
                "ratio_help": seconds["omnigraph --help"] / bare,
                "ratio_status": seconds["omnigraph status"] / bare,
                "seconds": seconds,
                "versions": {"omnigraph": omnigraph.__version__, "python": sys.version.split()[0]},
            }
        )
    )


def median_seconds(command: list[str], rounds: int) -> float:
    """The median over several cold processes, after one to warm the page cache."""
    times = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
