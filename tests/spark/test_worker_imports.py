"""What tasks need is less than what a driver needs: executors can do without the other packages.

The page about platforms lists what to install on executors; its list is what this test allows.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.spark.datasource import OmnigraphDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.local_disk("about what tasks import, not about where the files are"),
]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-platforms.md"
MISSING = ("duckdb", "typer", "rich", "lark", "polars")
MODULES_OF = {"pylance": "lance", "python-ulid": "ulid"}
OF_SPARK = frozenset({"pyspark", "py4j", "pandas", "dateutil", "org", "omnigraph_lake", "__main__"})
SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"


@pytest.fixture
def slim(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """The session with Python workers of its own, for which some packages do not exist."""
    for name in MISSING:
        (tmp_path / "missing").mkdir(exist_ok=True)
        text = f"raise ModuleNotFoundError('no {name} on this executor')\n"
        (tmp_path / "missing" / f"{name}.py").write_text(text)
    environment: dict[str, Any] = spark.sparkContext.environment
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = str(tmp_path / "missing")
    yield spark
    if before is None:
        del environment["PYTHONPATH"]
    else:
        environment["PYTHONPATH"] = before


def listed() -> set[str]:
    """The modules of the packages that the page has executors install."""
    words = re.search(r"\^\(([^)]+)\)==", PAGE.read_text())
    assert words is not None
    return {MODULES_OF.get(name, name) for name in words[1].split("|")}


def test_tasks_import_only_what_the_page_has_executors_install(
    slim: SparkSession, tmp_path: Path
) -> None:
    def imported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The packages of this worker but Python's own; nested, so that it brings none along."""
        for _ in batches:
            names = {name.partition(".")[0] for name in sys.modules}
            with suppress(ModuleNotFoundError):
                importlib.import_module("duckdb")
                names.add("duckdb")
            yield pa.RecordBatch.from_pydict({"name": sorted(names - sys.stdlib_module_names)})

    nodes = [{"type": "Person", "data": {"name": f"p{number}"}} for number in range(20)]
    edges = [{"edge": "Knows", "from": "p0", "to": f"p{number}"} for number in range(20)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, [*nodes, *edges])))
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)

    graph.load(str(tmp_path / "in.jsonl"), spark=slim, options=LoadOptions(engine="spark"))

    assert graph.spark(slim).edges("Knows").count() == 20
    assert graph.maintenance.check(spark=slim).ok
    with without_noise():
        names = slim.range(0, 4, 1, 4).mapInArrow(imported, "name string").toArrow()
    packages = set(names.column("name").to_pylist())
    assert "lance" in packages, "the tasks ran in these workers"
    assert not packages & set(MISSING)
    direct = {name for name in packages - OF_SPARK if not name.startswith("_")}
    # Before Spark 4.1 its workers import psutil if it is there.
    assert direct - listed() <= {"cython_runtime", "psutil", "typing_extensions"}


@pytest.mark.nightly("four jobs and a stream; the gate has the tasks of loads, scans and checks")
def test_source_sink_and_stream_need_no_other_packages_on_executors(
    slim: SparkSession, tmp_path: Path
) -> None:
    slim.dataSource.register(OmnigraphDataSource)
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    rows = slim.range(20).selectExpr("concat('p', id) AS name")
    reader = {"type": "Person"}

    rows.write.format("omnigraph").options(**reader).mode("append").save(graph.root)
    assert slim.read.format("omnigraph").options(**reader).load(graph.root).count() == 20

    changes = slim.readStream.format("omnigraph").options(**reader, startingCommit="beginning")
    copy = og.init(str(tmp_path / "copy"), schema=SCHEMA)
    query = (
        changes.load(graph.root)
        .selectExpr("after.name AS name")
        .writeStream.format("omnigraph")
        .options(**reader, path=copy.root, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert query.exception() is None
    assert copy.count("Person") == 20
