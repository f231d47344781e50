"""A load on a Spark session that shows all it has to show: its pages, settings and event logs.

Reads what to do as JSON from standard input, so that no secret is on a command line.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pyarrow.compute as pc

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while
from omnigraph_lake.spark.datasource import OmnigraphDataSource

_PAGES = ("environment/", "jobs/", "stages/", "executors/", "SQL/", "storage/")


def main() -> None:
    """Load, read and check; leave whatever could be seen of it in a folder."""
    told = json.load(sys.stdin)
    shown = Path(told["shown"])
    (shown / "events").mkdir()
    target = SparkTarget(
        master="local[2]",
        settings={
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.log.level": "INFO",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{shown}/events",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    with spark_for_a_while(target=target) as spark:
        schema, options = "node Person { name: String @key }", told["options"]
        graph = og.init(told["root"], schema=schema, storage_options=options)
        report = graph.load(told["input"], spark=spark, options=LoadOptions(engine="spark"))
        frame = graph.spark(spark).nodes("Person")
        frame.explain(extended=True)
        names = sorted(row["name"] for row in frame.collect())
        given = {f"storage.{name}": value for name, value in options.items()}
        spark.dataSource.register(OmnigraphDataSource)
        source = spark.read.format("omnigraph").options(**given).option("type", "node:Person")
        source.load(told["root"]).explain(extended=True)
        assert source.load(told["root"]).count() == len(names)
        assert graph.maintenance.check(spark=spark).ok
        _look(spark, shown)
    ids = pc.count(graph.scan("Person").read_all().column("id")).as_py()
    answer = {"written": dict(report.written), "names": names, "stored": ids}
    (shown / "answer.json").write_text(json.dumps(answer))


def _look(spark: Any, shown: Path) -> None:
    address = spark.sparkContext.uiWebUrl
    for number, page in enumerate(_PAGES):
        with urlopen(f"{address}/{page}", timeout=30) as answer:  # noqa: S310
            (shown / f"page-{number}.html").write_bytes(answer.read())
    application = spark.sparkContext.applicationId
    with urlopen(f"{address}/api/v1/applications/{application}/environment", timeout=30) as answer:  # noqa: S310
        (shown / "environment.json").write_bytes(answer.read())
    settings = [*spark.sparkContext.getConf().getAll(), *spark.conf.getAll.items()]
    (shown / "settings.txt").write_text(repr(settings))
    commands = [" ".join(sys.orig_argv)]
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # a worker may end meanwhile
            commands.append(" ".join(each.cmdline()))
    assert any("java" in command for command in commands)
    (shown / "commands.txt").write_text("\n".join(commands))


if __name__ == "__main__":
    main()
