"""What a whole process costs, from its start to its end, as a shell would run it.

The peak memory that the kernel reports of a process includes that of the one it was forked from. A
benchmark has Arrow and Lance in memory, so a small process starts what is measured: this file, run
as a program.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCost:
    """One process, or the medians of several."""

    wall: float
    cpu: float
    rss_mb: float
    output: str = ""

    def record(self) -> dict[str, float]:
        """The figures, for a line of JSON."""
        return {"wall": round(self.wall, 4), "cpu": round(self.cpu, 4), "rss_mb": self.rss_mb}


def run_process(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> ProcessCost:
    """Run a command that must succeed."""
    starter = [sys.executable, "-S", "-E", str(Path(__file__)), *command]
    done = subprocess.run(starter, check=True, stdout=subprocess.PIPE, text=True, env=env, cwd=cwd)
    return ProcessCost(**json.loads(done.stdout))


def median_cost(costs: Sequence[ProcessCost]) -> ProcessCost:
    return ProcessCost(
        wall=statistics.median(cost.wall for cost in costs),
        cpu=statistics.median(cost.cpu for cost in costs),
        rss_mb=statistics.median(cost.rss_mb for cost in costs),
    )


def _measure(command: Sequence[str]) -> ProcessCost:
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        output, complaint = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: exit code {process.returncode}\n{complaint.decode()}")
    return ProcessCost(
        wall=time.perf_counter() - began,
        cpu=usage.ru_utime + usage.ru_stime,
        rss_mb=usage.ru_maxrss // 1024,
        output=output.decode(),
    )


if __name__ == "__main__":
    print(json.dumps(asdict(_measure(sys.argv[1:]))))
