"""DuckDB sees what it is given: no files, no network, no other settings; it spills in private."""

from __future__ import annotations

import re
import signal
import stat
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.runner.databases import open_database
from tests.forking.programs import run_code

pytestmark = pytest.mark.unit

FORBIDDEN: Final = (
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('{folder}/*')",
    "COPY (SELECT 1) TO '{folder}/copied'",
    "EXPORT DATABASE '{folder}/exported'",
    "ATTACH '{folder}/attached'",
    "INSTALL httpfs",
    "LOAD '{file}'",
    "SET temp_directory = '{folder}'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET allowed_configs = []",
    "RESET threads",
)


@pytest.fixture(params=["memory", "file"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> duckdb.DuckDBPyConnection:
    return open_database(None if request.param == "memory" else tmp_path / "ids")


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_nothing_but_the_tables_that_were_given_can_be_reached(
    database: duckdb.DuckDBPyConnection, tmp_path: Path, statement: str
) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("secret\n1\n")
    before = sorted(tmp_path.iterdir())

    with pytest.raises(duckdb.Error):
        database.cursor().execute(statement.format(file=file, folder=tmp_path)).fetchall()
    assert sorted(tmp_path.iterdir()) == before


def test_arrow_tables_and_streams_are_read(database: duckdb.DuckDBPyConnection) -> None:
    given = pa.table({"n": [1, 2]})
    cursor = database.cursor()
    cursor.register("given", given)
    cursor.register("streamed", given.to_reader())

    assert cursor.sql("SELECT n FROM given JOIN streamed USING (n) ORDER BY n").fetchall() == [
        (1,),
        (2,),
    ]
    with pytest.raises(duckdb.Error):
        cursor.sql("SELECT * FROM variable_of_python").fetchall()


def test_every_cursor_counts_in_utc_and_prints_no_progress(
    database: duckdb.DuckDBPyConnection,
) -> None:
    asked = "SELECT current_setting('TimeZone'), current_setting('enable_progress_bar')"

    for connection in (database, database.cursor(), database.cursor().cursor()):
        assert connection.sql(asked).fetchall() == [("UTC", False)]
        with pytest.raises(duckdb.Error, match="configuration has been locked"):
            connection.sql("SET TimeZone = 'Asia/Tokyo'")


SPILLING: Final = """
import os, signal, stat, sys, tempfile
import numpy as np, pyarrow as pa
from omnigraph_lake.runner.databases import open_database

tempfile.tempdir = sys.argv[1]
database = open_database(settings={"memory_limit": "40MB", "threads": "1"})
numbers = np.random.default_rng(1).permutation(400_000)
database.register("given", pa.table({"n": numbers}))
rows = database.sql("SELECT n, md5(n::VARCHAR) || repeat('x', 60) AS t FROM given ORDER BY t")
first = rows.to_arrow_reader(1000).read_next_batch()
(home,) = os.listdir(sys.argv[1])
files = [name for _, _, names in os.walk(os.path.join(sys.argv[1], home)) for name in names]
spilled = [name for name in files if name.startswith("duckdb_temp")]
mode = stat.S_IMODE(os.stat(os.path.join(sys.argv[1], home)).st_mode)
print(home, oct(mode), len(spilled), flush=True)
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_is_too_large_is_spilled_to_a_private_folder_that_goes_with_the_process(
    tmp_path: Path,
) -> None:
    ended = run_code(SPILLING, str(tmp_path), new_process=True)

    home, mode, spilled = ended.stdout.split()
    assert (home.startswith("omnigraph-"), mode) == (True, "0o700")
    assert int(spilled) > 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_spilled_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed = run_code(SPILLING, str(tmp_path), "killed")
    home, _, spilled = killed.stdout.split()
    assert (killed.returncode, int(spilled) > 0) == (-signal.SIGKILL, True)

    run_code(
        "from omnigraph_lake.runner.databases import open_database; open_database()",
        env={"TMPDIR": str(tmp_path), "OMNIGRAPH_BACKGROUND": "off"},
    )

    assert not Path(tmp_path, home).exists()


def test_databases_of_one_process_spill_into_folders_of_their_own() -> None:
    folders = {
        open_database().sql("SELECT current_setting('temp_directory')").fetchall()[0][0]
        for _ in range(2)
    }

    assert len(folders) == 2
    for folder in folders:
        assert stat.S_IMODE(Path(folder).parent.stat().st_mode) == 0o700


def test_a_database_that_spills_beside_its_file_is_exact(tmp_path: Path) -> None:
    database = open_database(tmp_path / "ids", {"memory_limit": "40MB", "threads": "1"})
    numbers = pa.table({"n": np.arange(200_000)[::-1]})
    database.register("given", numbers)

    database.execute("CREATE TABLE kept AS SELECT n, repeat('x', 90) AS t FROM given")
    answer = database.execute(
        "SELECT count(*), sum(n)::BIGINT FROM (SELECT n FROM kept ORDER BY t, n)"
    )

    assert answer.fetchall() == [(200_000, 200_000 * 199_999 // 2)]


def test_duckdb_is_opened_in_one_place() -> None:
    source = Path(og.__file__).parent
    places = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"duckdb\.connect\(|duckdb\.sql\(|import connect\b", path.read_text())
    ]

    assert places == ["runner/databases.py"]
