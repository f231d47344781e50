"""The real `spark-pipelines` of the Spark that is imported writes every row of every flow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest

import omnigraph_lake as og
from tests.gate.environment import CHECKOUT

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(find_spec("pyspark.pipelines") is None, reason="from Spark 4.1"),
    pytest.mark.nightly(
        "three runs with a session each; in the gate tests/spark/test_sink.py gives one sink "
        "batches of two queries"
    ),
]

SPECIFICATION = """
name: people
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""
FLOWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
options = {{"path": "{root}", "type": "Person", "mode": "merge", "stream": "shared"}}
dp.create_sink("people", "omnigraph", options)


@dp.append_flow(target="people", name="one")
def one():
    return spark.readStream.schema("name string, city string").json("{folder}/one")


@dp.append_flow(target="people", name="two")
def two():
    return spark.readStream.schema("name string, city string").json("{folder}/two")
"""


def run(folder: Path, *arguments: str) -> None:
    home = Path(pyspark.__file__).parent
    inherited = os.environ.get("PYTHONPATH", "")
    done = subprocess.run(
        [home / "bin" / "spark-pipelines", "run", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_TESTING": "1",  # a free port for its server
            # Spark asks every package `pyspark_*` for a source.
            "PYTHONPATH": os.pathsep.join([str(folder), str(CHECKOUT / "src"), inherited]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


def put(folder: Path, flow: str, number: int) -> None:
    row = {"name": f"{flow} {number}", "city": "Ulm"}
    (folder / flow / f"{number}.json").write_text(json.dumps(row))


def test_pipelines_write_every_row(tmp_path: Path, graph_root: str) -> None:
    graph = og.init(graph_root, schema="node Person { name: String @key  city: String? }")
    for name in ("one", "two", "transformations", "pyspark_omnigraph"):
        (tmp_path / name).mkdir()
    (tmp_path / "pyspark_omnigraph" / "__init__.py").write_text(
        "from omnigraph_lake.spark import OmnigraphDataSource as DefaultSource\n"
    )
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(folder=tmp_path))
    flows = FLOWS.format(root=graph_root, folder=tmp_path)
    (tmp_path / "transformations" / "flows.py").write_text(flows)

    def names() -> set[str]:
        return {row["name"] for row in graph.scan("Person").read_all().to_pylist()}

    put(tmp_path, "one", 0)
    put(tmp_path, "two", 0)
    run(tmp_path)
    assert names() == {"one 0", "two 0"}

    put(tmp_path, "one", 1)
    run(tmp_path, "--full-refresh-all")
    assert names() == {"one 0", "two 0", "one 1"}

    shutil.rmtree(tmp_path / "storage")
    put(tmp_path, "two", 1)
    run(tmp_path)
    assert names() == {"one 0", "two 0", "one 1", "two 1"}
    assert graph.maintenance.check().ok
