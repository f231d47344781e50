"""Loads and exports at the command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from tests.cli.commands import run
from tests.forking.programs import start_command
from tests.forking.zygote import COMMAND

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { name: String @key  age: I32?  @range(age, 0..150) }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(graph_root: str) -> str:
    og.init(graph_root, schema=SCHEMA)
    return graph_root


def people(path: Path, *ages: int) -> str:
    records = [
        {"type": "Person", "data": {"name": f"p{number}", "age": age}}
        for number, age in enumerate(ages)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def names_in(graph: str) -> list[str]:
    rows = og.open(graph, read_only=True).scan("Person", columns=["name"]).read_all()
    return sorted(rows.column("name").to_pylist())


def test_load_shows_what_was_written_and_the_commit(graph: str, tmp_path: Path) -> None:
    done = run("load", graph, people(tmp_path / "p.jsonl", 1, 2), "--actor", "ada")

    assert (done.returncode, done.stderr) == (0, "")
    assert "Person" in done.stdout
    (newest, _) = og.open(graph, read_only=True).commits()
    assert newest.actor == "ada"
    assert "read 2 records in" in done.stdout
    assert f"commit {newest.commit_id[:12]}" in done.stdout


def test_load_shows_its_stages_only_if_asked(graph: str, tmp_path: Path) -> None:
    plain = run("load", graph, people(tmp_path / "p.jsonl", 1))
    counted = run("load", graph, people(tmp_path / "q.jsonl", 2), "--mode", "merge", "--stats")

    assert "parse and stage" not in plain.stdout + plain.stderr
    assert "parse and stage" in counted.stderr
    assert "parse and stage" not in counted.stdout


def test_load_as_json_prints_one_object_and_nothing_else(graph: str, tmp_path: Path) -> None:
    done = run("load", graph, people(tmp_path / "p.jsonl", 1), "--json")

    report = json.loads(done.stdout)
    assert done.stderr == ""
    assert (report["read"], report["written"], report["quarantined"]) == (1, {"Person": 1}, {})
    assert (report["engine"], report["mode"], report["dry_run"]) == ("local", "append", False)


def test_a_fault_fails_with_its_place_and_the_next_step(graph: str, tmp_path: Path) -> None:
    source = people(tmp_path / "p.jsonl", 1, -1)

    done = run("load", graph, source)
    as_json = run("load", graph, source, "--json")

    assert (done.returncode, done.stdout) == (5, "")
    assert f"{source}:2: Person: age: found -1, expected 0 to 150 [out_of_range]" in done.stderr
    assert "nothing was written" in done.stderr
    assert "--on-error quarantine" in done.stderr
    assert as_json.returncode == 5
    assert json.loads(as_json.stdout)["rejected"][0]["line"] == 2
    assert names_in(graph) == []


def test_faults_can_be_set_aside_in_a_directory(graph: str, tmp_path: Path) -> None:
    source = people(tmp_path / "p.jsonl", 1, -1)
    bad = tmp_path / "bad"

    done = run(
        *("load", graph, source, "--on-error", "quarantine"),
        *("--max-rejected", "50%", "--quarantine", str(bad)),
    )

    assert done.returncode == 0
    assert "quarantined  1 out_of_range" in done.stdout
    assert str(bad) in done.stdout
    assert pq.read_table(bad).column("line").to_pylist() == [2]
    assert names_in(graph) == ["p0"]


def test_a_dry_run_says_so_and_writes_nothing(graph: str, tmp_path: Path) -> None:
    done = run("load", graph, people(tmp_path / "p.jsonl", 1), "--dry-run")

    assert done.returncode == 0
    assert "dry run, nothing was written" in done.stdout
    assert names_in(graph) == []


def test_a_type_and_a_mapping_are_given_for_csv(graph: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("full,years\nann,3\n")

    done = run(
        *("load", graph, str(tmp_path / "x.csv"), "--type", "Person"),
        *("--map", "name=full", "--map", "age=years"),
    )

    assert done.returncode == 0
    assert names_in(graph) == ["ann"]


def test_a_merge_with_an_order_keeps_the_greatest(graph: str, tmp_path: Path) -> None:
    source = tmp_path / "p.jsonl"
    source.write_text(
        "".join(f'{{"type": "Person", "data": {{"name": "a", "age": {n}}}}}\n' for n in (7, 3))
    )

    done = run("load", graph, str(source), "--mode", "merge", "--order-by", "age", "--json")

    assert json.loads(done.stdout)["quarantined"] == {"superseded": 1}
    rows = og.open(graph, read_only=True).scan("Person", columns=["age"]).read_all()
    assert rows.to_pylist() == [{"age": 7}]


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (["--mode", "upsert"], 5, 'expected "append", "merge", "replace" or "overwrite"'),
        (["--branch", "dev"], 3, "no branch 'dev'"),
        (["--from", "main"], 5, "Add `--branch NAME`"),
        (["--max-rejected", "3"], 5, "any rejected record fails this load"),
        (["--map", "name"], 2, "PROP=COLUMN"),
        (["--nonsense"], 2, "--nonsense"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    graph: str, tmp_path: Path, options: list[str], code: int, complaint: str
) -> None:
    done = run("load", graph, people(tmp_path / "p.jsonl", 1), *options)

    assert done.returncode == code
    assert complaint in done.stderr
    assert names_in(graph) == []


def test_a_missing_file_is_not_found(graph: str) -> None:
    done = run("load", graph, "nowhere.jsonl")

    assert done.returncode == 3
    assert "nowhere.jsonl" in done.stderr


def test_an_interrupted_load_says_that_nothing_was_written(graph: str, tmp_path: Path) -> None:
    source = people(tmp_path / "p.jsonl", 1)
    loading = start_command(
        "load", graph, source, env={"OMNIGRAPH_FAILPOINTS": "load.settled=stop"}
    )
    loading.interrupt_at_stop()
    finished = loading.finish()

    assert (finished.returncode, finished.stdout) == (130, "")
    assert finished.stderr == "interrupted; nothing was written\n"
    assert names_in(graph) == []
    assert og.open(graph, read_only=True).maintenance.status().pending_sidecars == ()


def test_export_writes_lines_to_stdout_and_says_so_on_stderr(graph: str, tmp_path: Path) -> None:
    run("load", graph, people(tmp_path / "p.jsonl", 1, 2))

    done = run("export", graph)

    assert done.returncode == 0
    assert [json.loads(line)["data"]["name"] for line in done.stdout.splitlines()] == ["p0", "p1"]
    assert done.stderr.startswith("exported 2 rows")


def test_export_and_load_copy_a_graph(graph: str, tmp_path: Path) -> None:
    run("load", graph, people(tmp_path / "p.jsonl", 1, 2))
    copy = str(tmp_path / "copy")
    og.init(copy, schema=SCHEMA)

    done = run(*("export", graph, "--format", "parquet", "-o", str(tmp_path / "files"), "--json"))
    run("load", copy, str(tmp_path / "files"))

    assert json.loads(done.stdout)["rows"] == {"Person": 2, "Knows": 0}
    assert names_in(copy) == ["p0", "p1"]


def test_export_of_one_type_goes_to_a_file(graph: str, tmp_path: Path) -> None:
    run("load", graph, people(tmp_path / "p.jsonl", 1))
    target = tmp_path / "out.jsonl"

    done = run("export", graph, "--type", "Person", "-o", str(target))

    assert f"to {target}" in done.stdout
    assert len(target.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (["--json"], 2, "not available: the rows are written to stdout"),
        (["--format", "parquet"], 5, "directory of files"),
        (["--branch", "dev"], 3, "no branch 'dev'"),
        (["--at", "nowhere"], 3, "no branch, tag or commit 'nowhere'"),
        (["--type", "Parson"], 5, "did you mean"),
    ],
)
def test_exports_that_cannot_be_are_refused(
    graph: str, options: list[str], code: int, complaint: str
) -> None:
    done = run("export", graph, *options)

    assert (done.returncode, '"rows"' in done.stdout) == (code, False)
    assert complaint in done.stderr


def test_a_reader_that_has_enough_ends_an_export_without_a_trace(
    graph: str, tmp_path: Path
) -> None:
    """A new process: what it does with a lost pipe includes the end of the interpreter."""
    run("load", graph, people(tmp_path / "p.jsonl", *[7] * 10_000))  # two batches

    done = subprocess.run(
        ["bash", "-c", f"{COMMAND} export {graph} | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_rows_that_do_not_fit_on_the_disk_are_an_error(
    graph: str, tmp_path: Path, unbuffered: str
) -> None:
    """A new process: without its buffer, standard output may write a part of what it is given."""
    run("load", graph, people(tmp_path / "p.jsonl", *[7] * 3_000))

    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 100; {COMMAND} export {graph} > {tmp_path / 'out'}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )

    assert done.returncode == 7
    assert "could not write the rows to standard output: File too large" in done.stderr
    assert "Traceback" not in done.stderr
