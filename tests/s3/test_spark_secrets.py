"""Tasks of Spark reach the store by options that travel inside them and can be seen nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.s3.server import WRITER, S3Server

pytestmark = [
    pytest.mark.s3,
    pytest.mark.nightly(
        "starts Spark with its pages and logs; tests/spark/test_scan.py proves in the "
        "gate that options travel inside tasks and that no plan or setting shows them"
    ),
]


def test_a_load_on_spark_reads_and_writes_s3_and_shows_no_secret(
    served: S3Server, writer: Mapping[str, str], s3_root: str, tmp_path: Path
) -> None:
    names = [f"p{number}" for number in range(50)]
    records = [json.dumps({"type": "Person", "data": {"name": name}}) for name in names]
    people = served.folder_of(s3_root).with_name("people.jsonl")
    people.parent.mkdir(parents=True)
    people.write_text("\n".join(records))
    shown = tmp_path / "shown"
    shown.mkdir()
    told = {
        "root": s3_root,
        "options": dict(writer),
        "input": f"{s3_root.removesuffix('/graph')}/people.jsonl",
        "shown": str(shown),
    }

    done = subprocess.run(
        [sys.executable, "-m", "tests.s3.spark_load"],
        input=json.dumps(told),
        env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads((shown / "answer.json").read_text())
    assert answer == {"written": {"Person": 50}, "names": sorted(names), "stored": 50}
    seen = {str(path): path.read_bytes() for path in shown.rglob("*") if path.is_file()}
    assert len(seen) > 9
    seen |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    assert [name for name, text in seen.items() if WRITER[1].encode() in text] == []
