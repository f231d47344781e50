"""Jobs of the Spark runner can be watched, and are interrupted one by one.

Each test starts a process of its own: a session with a UI, and signals that only its main thread
gets.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gate.selection import for_gate
from tests.spark.watched_jobs import PARTITIONS, PIECES

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
]

HOME = Path(__file__).parent.parent.parent
MAP, EXCHANGE = "load Knows: check keys, twice", "load: exchange"


def _watch(*remote: str) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.watched_jobs", *remote],
        capture_output=True,
        text=True,
        cwd=HOME,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "Traceback" not in ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


@pytest.mark.parametrize("remote", for_gate(["", "local[2]"], lambda remote: not remote))
def test_a_job_is_named_and_watched_and_interrupted_alone(remote: str) -> None:
    report = _watch(*([remote] if remote else []))

    assert report["answers"] == [2 * number for number in range(PIECES)]
    assert report["sent"] == [[0, "3"], [1, "3"]]
    assert report["begun"] == [[MAP, PIECES], [EXCHANGE, PIECES + PARTITIONS]]
    assert [sum(advanced) for advanced in report["advanced"]] == [PIECES, PIECES + PARTITIONS]
    assert all(len(advanced) > 1 for advanced in report["advanced"]), "while the job was running"
    assert report["interrupt"] == {
        "outcome": "interrupted",
        "other was running": True,
        "other": ["other 0"],
        "handler is restored": True,
        "afterwards": [1, 3],
    }
    if remote:
        assert report["addresses"] == []
        return
    assert len(report["addresses"]) == 1
    assert report["description of the caller"] == "of the caller"
    status = {job["description"]: job["status"] for job in report["jobs"]}
    assert status == {
        MAP: "SUCCEEDED",
        EXCHANGE: "SUCCEEDED",
        "test: mine": "FAILED",
        "test: other": "SUCCEEDED",
        "test: next": "SUCCEEDED",
    }
    tags = {tag for job in report["jobs"] for tag in job["jobTags"] if "omnigraph-" in tag}
    assert len(tags) == len(status), "every job has a tag of its own"
