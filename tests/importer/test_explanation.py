"""An import explains what it saw and what every key and reference was chosen from."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from tests.cli.commands import run
from tests.importer.shapes import write_csv

pytestmark = pytest.mark.unit


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    codes = ("EWR", "JFK", "LGA", "BOS")
    ports = "\n".join(f"{code},{code} Field" for code in codes)
    days = "\n".join(f"{n},{codes[n % 4]},{'NA' if n == 1 else n}" for n in range(12))
    return [
        write_csv(tmp_path / "airports.csv", f"faa,name\n{ports}"),
        write_csv(tmp_path / "flights.csv", f"flight_id,origin,delay\n{days}"),
    ]


def test_keys_and_references_have_the_scores_they_were_chosen_by(
    files: list[str], tmp_path: Path
) -> None:
    report = og.import_data(str(tmp_path / "g"), files, dry_run=True)

    airport, flight = report.explanation
    assert [(one.name, one.is_chosen) for one in airport.keys_compared] == [
        ("faa", True),
        ("name", False),
    ]
    assert airport.keys_compared[0].scores["held by"] == 1
    (compared,) = flight.references["origin"]
    assert (compared.name, compared.is_chosen) == ("Airport.faa", True)
    assert compared.scores == {"named": "none", "values": 1.0, "records": 1.0}
    delay = flight.columns[2]
    assert (delay.name, delay.type, delay.distinct, round(delay.nulls * 12)) == (
        "delay",
        "I64",
        12,
        1,
    )


def test_a_reference_that_was_not_made_shows_what_it_lacked(tmp_path: Path) -> None:
    people = "\n".join(f"p{n},Ann {n}" for n in range(8))
    cars = "\n".join(f"{n},{'p' if n < 3 else 'x'}{n}" for n in range(8))
    files = [
        write_csv(tmp_path / "people.csv", f"id,name\n{people}"),
        write_csv(tmp_path / "cars.csv", f"id,person\n{cars}"),
    ]

    report = og.import_data(str(tmp_path / "g"), files, dry_run=True)

    (compared,) = report.explanation[1].references["person"]
    assert not compared.is_chosen
    assert (compared.scores["named"], compared.scores["values"]) == ("full", 3 / 8)


def test_the_command_prints_the_explanation_before_the_report(
    files: list[str], tmp_path: Path
) -> None:
    done = run("import", "./g", *files, "--explain", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "Airport: key could be" in done.stdout
    assert "could refer to  named  values  records  chosen" in done.stdout
    assert "origin -> Airport.faa   none   100.0%   100.0%  yes" in done.stdout
    assert done.stdout.index("Airport: key could be") < done.stdout.index("imported 28 rows")
