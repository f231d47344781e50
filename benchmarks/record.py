"""Runs a benchmark and keeps what it printed: `just record open_cost`.

A run is one line of `benchmarks/records.jsonl`: when and at which commit it ran, on how many cores,
how busy they were before it, its command, and what it printed. `just api` writes the page of
benchmarks from these lines; the newest run of a command replaces the ones before on the page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).parent.parent
RECORDS: Final = Path(__file__).parent / "records.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a benchmark. `load` is the number of processes that wanted a core before it."""

    at: str
    commit: str
    cores: int
    load: float
    command: str
    printed: str


def read_runs() -> list[Run]:
    """The recorded runs, oldest first."""
    return [Run(**json.loads(line)) for line in RECORDS.read_text().splitlines()]


def main(name: str, *arguments: str) -> None:
    """Run a benchmark, show what it prints, and append it to the records."""
    load = os.getloadavg()[0]
    finished = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *arguments],
        cwd=HOME,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(finished.stdout, end="")
    run = Run(
        at=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=_commit(),
        cores=os.cpu_count() or 1,
        load=round(load, 1),
        command=" ".join(["python -m", f"benchmarks.{name}", *arguments]),
        printed=finished.stdout,
    )
    with RECORDS.open("a") as records:
        records.write(json.dumps(asdict(run)) + "\n")


def _commit() -> str:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(
        command, cwd=HOME, check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    main(*sys.argv[1:])
