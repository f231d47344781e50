"""An environment with only what tasks need is sent to executors that have nothing installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cluster.servers import EXECUTOR_SETTINGS, connect_server, standalone_cluster
from tests.spark.class_archive import java_options
from tests.spark.test_worker_imports import PAGE

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.nightly(
        "installs packages from the registry; tests/spark/test_worker_imports.py proves in the "
        "gate that tasks import no others"
    ),
]

HOME = Path(__file__).parents[2]
SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
DRIVER = r"""
import json, sys, omnigraph_lake as og, pyarrow as pa
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while, without_noise

folder, schema, target, archive = sys.argv[1:]
spark_only = og.LoadOptions(engine="spark")

def look(batches):
    import importlib.util, sys, omnigraph_lake as og, lance
    for _ in batches:
        missing = [name for name in ("duckdb", "typer", "rich", "lark", "pandas", "polars")
                   if importlib.util.find_spec(name) is None]
        seen = [sys.executable, og.__file__, lance.__file__, *missing]
        yield pa.RecordBatch.from_pydict({"seen": seen})

with spark_for_a_while(target=SparkTarget(**json.loads(target))) as spark:
    if archive:
        spark.addArtifacts(f"{archive}#environment", archive=True)
        spark.conf.set("spark.sql.execution.pyspark.python", "environment/bin/python")
    with without_noise():
        seen = spark.range(0, 1, 1, 1).mapInArrow(look, "seen string").toArrow()
    graph = og.init(f"{folder}/graph", schema=schema)
    loaded = [
        dict(graph.load(f"{folder}/in.jsonl", mode=mode, spark=spark, options=spark_only).written)
        for mode in ("append", "merge")
    ]
    query = "query q() { match { $a: Person\n $a knows $b } return { $b.name } }"
    answers = [graph.spark(spark).edges("Knows").count(),
               graph.spark(spark).query(query).count(),
               graph.maintenance.check(spark=spark).ok]
    graph.maintenance.optimize(spark=spark)
print(json.dumps({"seen": seen["seen"].to_pylist(), "loaded": loaded, "answers": answers}))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page has users pack, in the versions of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    words = re.search(r"\^\(([^)]+)\)==", PAGE.read_text())
    assert words is not None
    pins = [f"{name}=={version(name)}" for name in words[1].split("|")]
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pip = [str(folder / "env" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *pins], check=True)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    shutil.copytree(HOME / "src" / "omnigraph_lake", packages / "omnigraph_lake")
    packed = folder / "environment.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as tar:
        tar.add(folder / "env", ".")
    return packed


def run_driver(
    folder: Path, target: Mapping[str, object], *, archive: str = "", **variables: str
) -> Mapping[str, object]:
    nodes = [{"type": "Person", "data": {"name": f"p{number}"}} for number in range(50)]
    edges = [{"edge": "Knows", "from": f"p{n}", "to": f"p{n + 1}"} for n in range(49)]
    (folder / "in.jsonl").write_text("\n".join(map(json.dumps, [*nodes, *edges])))
    finished = subprocess.run(
        [sys.executable, "-c", DRIVER, folder, SCHEMA, json.dumps(target), archive],
        env={**os.environ, "PYTHONPATH": str(HOME / "src"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    answer: Mapping[str, object] = json.loads(finished.stdout.splitlines()[-1])
    return answer


def require_shipped(answer: Mapping[str, object]) -> None:
    seen = answer["seen"]
    assert isinstance(seen, list)
    assert all("/environment/" in place for place in seen[:3]), "not what is installed here"
    assert seen[3:] == ["duckdb", "typer", "rich", "lark", "pandas", "polars"]
    assert answer["loaded"] == [{"Person": 50, "Knows": 49}] * 2
    assert answer["answers"] == [98, 49, True]


@pytest.mark.parametrize("way", ["archives", "artifacts"])
def test_an_environment_is_sent_to_executors(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    settings = {
        **EXECUTOR_SETTINGS,
        "spark.driver.extraJavaOptions": java_options(),
        "spark.sql.shuffle.partitions": "2",
    }
    with standalone_cluster(tmp_path) as address:
        if way == "artifacts":
            with connect_server(tmp_path, master=address, settings=settings) as remote:
                require_shipped(run_driver(tmp_path, {"remote": remote}, archive=str(archive)))
            return
        settings["spark.archives"] = f"{archive}#environment"
        answer = run_driver(
            tmp_path,
            {"master": address, "settings": settings},
            PYSPARK_PYTHON="./environment/bin/python",
            PYSPARK_DRIVER_PYTHON=sys.executable,
        )
        require_shipped(answer)
