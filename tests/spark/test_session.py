"""Where Spark comes from: what is started is quiet, what is missing is said with the way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while, spark_session
from tests.spark.conftest import TEST_TARGET

pytestmark = pytest.mark.spark


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def test_a_session_handed_in_is_used_as_it_is(spark: SparkSession) -> None:
    assert spark_session(spark, target=SparkTarget(remote="sc://elsewhere")) is spark


def test_the_session_of_the_process_is_found_and_not_stopped(spark: SparkSession) -> None:
    with spark_for_a_while() as borrowed:
        assert borrowed is spark

    assert spark.range(3).count() == 3
    assert spark_session(target=TEST_TARGET) is spark
    assert spark_session(target=SparkTarget(settings={"spark.driver.memory": "4g"})) is spark


def test_another_target_than_the_running_session_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match=r"already has a session on 'local\[2\]'"):
        spark_session(target=SparkTarget(master="local[1]"))


def test_a_target_is_a_master_or_a_remote_but_not_both() -> None:
    with pytest.raises(InvalidInputError, match=r"and as remote 'sc://h/'") as caught:
        SparkTarget(master="spark://h:7077", remote="sc://h/;token=abc")

    assert "abc" not in str(caught.value)


MISSING = """
import os, socket, sys
from omnigraph_lake.errors import SparkUnavailableError
from omnigraph_lake.runner.session import SparkTarget, spark_session

without_java, broken_java = sys.argv[1:]


def told(target=SparkTarget()):
    try:
        spark_session(target=target)
    except SparkUnavailableError as error:
        print(" ".join(str(error).split()))
    else:
        print("started")


sys.modules["pyspark"] = None
told()
del sys.modules["pyspark"]
os.environ |= {"PATH": without_java, "JAVA_HOME": ""}
told()
os.environ |= {"PATH": "/usr/bin:/bin", "JAVA_HOME": broken_java}
told()
with socket.socket() as unused:
    unused.bind(("127.0.0.1", 0))
    port = unused.getsockname()[1]
told(SparkTarget(remote=f"sc://127.0.0.1:{port}/;token=abc"))
"""


def test_what_is_missing_is_said_with_the_way_out(tmp_path: Path) -> None:
    java = tmp_path / "broken" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'this Java is from 1996' >&2\nexit 1\n")
    java.chmod(0o755)

    tried = python(MISSING, str(tmp_path), str(tmp_path / "broken"))

    no_pyspark, no_java, bad_java, no_server = tried.stdout.splitlines()
    assert "this needs Spark, and pyspark is not installed" in no_pyspark
    assert "pip install 'omnigraph-lake[spark]'" in no_pyspark
    assert "this needs Spark, and there is no Java" in no_java
    assert "install Java 17 or newer" in no_java
    assert "Spark did not start on 'local[*]'" in bad_java
    assert "this Java is from 1996" in bad_java
    assert "no Spark Connect server responds at sc://127.0.0.1:" in no_server
    assert "abc" not in no_server


@pytest.mark.nightly(
    "starts a session of its own; every test of this folder that compares what a command or a "
    "query prints would show noise"
)
def test_a_session_started_here_says_nothing_and_leaves_no_trace(
    people_schema: str, graph_root: str, tmp_path: Path
) -> None:
    script = f"""
import os, lance, omnigraph_lake as og
from omnigraph_lake.runner.session import spark_for_a_while, SparkTarget
before = dict(os.environ)
os.chdir({str(tmp_path)!r})
graph = og.init({graph_root!r}, schema={people_schema!r})
target = SparkTarget(master="local[1]", settings={dict(TEST_TARGET.settings)!r})
with spark_for_a_while(target=target) as spark:
    on_spark = graph.spark()
    assert on_spark.spark is spark
    print(len(on_spark.views()), spark.conf.get("spark.sql.session.timeZone"))
    print(spark.sql("SELECT count(*) FROM Person").first()[0], spark.catalog.tableExists("x"))
for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
    assert os.environ.get(name) == before.get(name)
"""  # noqa: S608 - a program, with a query in it

    ran = python(script)

    assert ran.stderr == ""
    assert ran.stdout.splitlines()[0].endswith("UTC")
    assert ran.stdout.splitlines()[1] == "0 False"
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
