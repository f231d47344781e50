"""`omnigraph import` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import answer, run
from tests.importer.shapes import write_csv

pytestmark = pytest.mark.unit


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [
        write_csv(tmp_path / "people.csv", "id,name,company_id\n1,Ann,1\n2,Bob,2\n3,Cyd,"),
        write_csv(tmp_path / "companies.csv", "id,name\n1,Acme\n2,Beta"),
    ]


def test_import_creates_a_graph_that_answers_queries(files: list[str], tmp_path: Path) -> None:
    done = run("import", "./g", *files, cwd=tmp_path)
    query = "query q() { match { $p: Person $p hasCompany $c } return { $p.name, $c.name } }"
    asked = run("query", "./g", "-e", query, "--format", "csv", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "HasCompany" in done.stdout
    assert "g.map.toml" in done.stdout
    assert asked.stdout.replace('"', "").split() == ["p.name,c.name", "Ann,Acme", "Bob,Beta"]


@pytest.mark.nightly("one more process; the options are those of the Python interface")
def test_a_dry_run_prints_schema_and_mapping_and_writes_nothing(
    files: list[str], tmp_path: Path
) -> None:
    done = run("import", "./g", *files, "--dry-run", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "node Person {" in done.stdout
    assert "[[source.node]]" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["companies.csv", "people.csv"]


@pytest.mark.nightly("one more process; the options are those of the Python interface")
def test_standard_input_has_the_format_that_is_named(tmp_path: Path) -> None:
    done = run(
        "import", "./g", "-", "--format", "jsonl", stdin='{"id": 1, "name": "Ann"}\n', cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert "Record" in done.stdout


def test_json_has_the_causes_of_rejected_records(files: list[str], tmp_path: Path) -> None:
    answer("import", str(tmp_path / "g"), *files)
    write_csv(tmp_path / "people.csv", "id,name,company_id\nx,Ann,1\n2,Bob,2")

    report = answer("import", str(tmp_path / "g"), files[0], "--max-rejected", "100%")

    (cause,) = [cause for cause in report["causes"] if cause["reason"] == "wrong_type"]
    assert (cause["count"], cause["column"]) == (1, "person_id")
    load = report["load"]
    outcomes = (load["written"], load["already_there"], load["quarantined"])
    assert load["read"] == sum(sum(outcome.values()) for outcome in outcomes)
    assert json.dumps(report)


@pytest.mark.nightly("one more process; the options are those of the Python interface")
def test_outputs_go_where_they_are_told_to(files: list[str], tmp_path: Path) -> None:
    outputs = [str(tmp_path / "out" / name) for name in ("s.pg", "m.toml")]

    done = run(
        "import", "./g", *files, "--schema-out", outputs[0], "--map-out", outputs[1], cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert all(Path(output).exists() for output in outputs)
    assert not (tmp_path / "g.pg").exists()
