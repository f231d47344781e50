"""Cheap JVMs for tests: a quick compiler, a simple collector, and an archive of loaded classes.

Much of the CPU of a short Spark program goes into loading some twenty thousand classes. The JVM can
map them from an archive instead (class data sharing); that saves more than half of what a session
costs until its first result. `python -m tests.spark.class_archive` makes the archive, once for each
Java and installed PySpark, in the cache that the gate uses. Tests use it if it is there and run
without it. The JVM ignores an archive that doesn't fit, so a stale one does no harm.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.gate.cpu import adopt_orphans

_CHEAP: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_WARM_UP: Final = """
import json, sys
import omnigraph_lake as og
from omnigraph_lake.spark.datasource import OmnigraphDataSource
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while

folder, settings = sys.argv[1], json.loads(sys.argv[2])
schema = "node Person { name: String @key  age: I64? } edge Knows: Person -> Person"
query = '''query reach() {
    match { $p: Person  $p knows{1,2} $q  optional { $q knows $r }  not { $q knows $p } }
    return { $q.name as name, count($r) as n, sum($q.age) as ages } order { n desc, name } limit 9
}'''
graph = og.init(folder + "/graph", schema=schema)
with open(folder + "/people.jsonl", "w") as lines:
    for number in range(20):
        record = {"type": "Person", "data": {"name": f"p{number}", "age": number}}
        print(json.dumps(record), file=lines)
with spark_for_a_while(target=SparkTarget(remote="local[2]", settings=settings)) as spark:
    graph.load(folder + "/people.jsonl", spark=spark, options=og.LoadOptions(engine="spark"))
    graph.write({"Knows": [{"src": f"p{n}", "dst": f"p{n + 1}"} for n in range(19)]})
    graph.query(query, spark=spark).collect()
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "p1", "age": 7}]}, mode="merge")
    graph.write({"Person": [{"name": "p2", "age": 8}]}, mode="merge")
    graph.merge("dev", spark=spark)
    graph.maintenance.optimize(spark=spark)
    graph.maintenance.check(spark=spark)
    spark.dataSource.register(OmnigraphDataSource)
    rows = spark.read.format("omnigraph").option("type", "Person").load(graph.root)
    rows.groupBy("age").count().write.parquet(folder + "/ages")
    changes = spark.readStream.format("omnigraph").option("type", "Person")
    changes = changes.option("startingCommit", "beginning").load(graph.root)
    sink = changes.writeStream.format("parquet").option("path", folder + "/out")
    sink = sink.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True)
    sink.start().awaitTermination()
    spark.read.parquet(folder + "/out").orderBy("id").collect()
"""


def java_options() -> str:
    """Options for a JVM of Spark in a test."""
    archive = _archive()
    # Without its log the JVM says nothing about an archive that it can't use.
    return f"{_CHEAP} -XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else _CHEAP


def _archive() -> Path:
    asked = os.environ.get("OMNIGRAPH_CI_CACHE")
    cache = Path(asked) if asked else Path.home() / ".cache" / "omnigraph"
    return cache / "spark-classes" / f"{_key()}.jsa"


def _key() -> str:
    """What an archive is for: this Java, and the jars of this installation of PySpark."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    jars = _spark_home() / "jars"
    # A Python worker of Spark has PySpark in an archive, without the jars.
    names = sorted(path.name for path in jars.iterdir()) if jars.is_dir() else []
    parts = [str(Path(java).resolve()) if java else "", str(jars), *names]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _spark_home() -> Path:
    # Importing PySpark takes longer than all of this.
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def make() -> str:
    """Make the archive unless it is there; returns where it is."""
    archive = _archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (
        archive.with_suffix(".lock").open("w") as lock,
        tempfile.TemporaryDirectory(dir=archive.parent) as folder,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            made = Path(folder, "classes.jsa")
            _dump(made, folder)
            made.rename(archive)
    return str(archive)


def _dump(target: Path, folder: str) -> None:
    """Let a JVM work a little and write down its classes when it ends, after its Python program."""
    adopt_orphans()
    options = f"{_CHEAP} -Xlog:disable -XX:ArchiveClassesAtExit={target}"
    settings = json.dumps({"spark.driver.extraJavaOptions": options})
    subprocess.run([sys.executable, "-c", _WARM_UP, folder, settings], check=True)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    if not target.exists():
        raise RuntimeError(f"the JVM wrote no archive to {target}")


if __name__ == "__main__":
    print(make())
