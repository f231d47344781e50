"""What a command needs before it answers; only new processes show that."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from omnigraph_lake import __version__
from omnigraph_lake.graph import Graph
from tests.cli.commands import run
from tests.forking.zygote import COMMAND

pytestmark = pytest.mark.unit

FOR_LANGUAGES = frozenset({"lark"})
NEVER_HERE = (
    frozenset({"lance.namespace", "pandas", "polars", "pygls", "pyspark", "ulid"}) | FOR_LANGUAGES
)
"""For Spark, editors, the languages, and a generated client that takes longer than all of Lance."""
FOR_GRAPHS = frozenset({"lance", "numpy", "obstore", "pyarrow"})
FOR_EXPRESSIONS = frozenset({"duckdb"})
"""A query that only follows edges and returns properties computes nothing."""
FOR_TABLES_OF_TEXT = frozenset({"rich"})
FOR_CONVERSIONS = frozenset({"pydantic"})
"""Texts are taken as they are; the path that `load` is given is converted."""
ONE_HOP = """
query friends() {
    match { $p: Person { email: "p1@x" }  $p knows $f }
    return { $f.name }
}
"""
RUN_COMMANDS = """
import json, sys
from omnigraph_lake.cli.main import main

target, *commands = sys.argv[1:]
imported = []
for command in commands:
    sys.argv = ["omnigraph", *json.loads(command)]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, command
    imported.append(sorted(sys.modules))
with open(target, "w") as file:
    json.dump(imported, file)
"""
"""Runs commands one after the other and writes which modules were imported after each."""


def test_the_console_script_is_installed() -> None:
    finished = run("--version", new_process=True)

    assert (finished.returncode, finished.stdout) == (0, f"omnigraph {__version__}\n")


def test_commands_import_only_what_they_need(
    people_graph: Graph, people: Path, tmp_path: Path
) -> None:
    target = tmp_path / "imported.json"
    commands = (
        ["--help"],
        ["status", people_graph.root, "--json"],
        ["load", people_graph.root, str(people), "--json"],
        ["query", people_graph.root, "-e", ONE_HOP, "--json"],
    )

    subprocess.run(
        [sys.executable, "-c", RUN_COMMANDS, str(target), *map(json.dumps, commands)],
        capture_output=True,
        check=True,
    )
    by_help, by_status, by_load, by_query = map(frozenset, json.loads(target.read_text()))

    unused = NEVER_HERE | FOR_TABLES_OF_TEXT
    assert by_help & (unused | FOR_GRAPHS | FOR_EXPRESSIONS) == set()
    assert by_status & (unused | FOR_EXPRESSIONS | FOR_CONVERSIONS) == set()
    assert by_load & (unused | FOR_EXPRESSIONS) == set()
    assert by_load >= FOR_GRAPHS
    assert by_query & (unused | FOR_EXPRESSIONS) == FOR_LANGUAGES


END = """
import atexit, sys, threading, time
from omnigraph_lake.cli.main import run_and_exit

is_daemon = "daemon" in sys.argv

def work():
    time.sleep(60 if is_daemon else 0.1)
    print("thread", file=sys.stderr)

atexit.register(lambda: print("atexit", file=sys.stderr))
threading.Thread(target=work, daemon=is_daemon).start()
sys.argv = ["omnigraph", sys.argv[1]]
run_and_exit()
"""


@pytest.mark.parametrize(
    ("daemon", "expected"), [("", {"thread", "atexit"}), ("daemon", {"atexit"})]
)
def test_a_process_ends_when_nothing_is_left_to_do(daemon: str, expected: set[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", END, "--version", daemon], capture_output=True, text=True, check=True
    )

    assert ended.stdout == f"omnigraph {__version__}\n"
    assert set(ended.stderr.split()) == expected


def test_a_process_ends_with_the_code_of_its_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", END, "--no-such-option", "daemon"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 2
    assert "--no-such-option" in ended.stderr


def test_output_that_cannot_be_written_is_no_success() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", END, "--version", "daemon"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert ended.returncode != 0


@pytest.fixture
def people(tmp_path: Path) -> Path:
    file = tmp_path / "people.jsonl"
    persons = [
        {"email": f"p{number}@x", "name": "Ann", "status": "active"} for number in range(100)
    ]
    lines = [json.dumps({"type": "Person", "data": person}) for person in persons]
    file.write_text("\n".join(lines))
    return file


@pytest.mark.nightly(
    "about speed alone, and sixteen starts; in the gate test_commands_import_only_what_they_need "
    "keeps what makes a start slow, the imports"
)
@pytest.mark.local_disk("what it measures is the start of a process, without a network")
def test_a_cold_start_costs_little_more_cpu_than_importing_lance(
    people_graph: Graph, people: Path
) -> None:
    import_lance = cpu_seconds([sys.executable, "-c", "import lance"])
    load = [COMMAND, "load", people_graph.root, str(people), "--mode", "merge"]

    assert cpu_seconds([COMMAND, "--help"]) < 0.6 * import_lance
    assert cpu_seconds([COMMAND, "status", people_graph.root]) < 3 * import_lance
    assert cpu_seconds(load) < 4 * import_lance
    query = [COMMAND, "query", people_graph.root, "-e", ONE_HOP]
    assert cpu_seconds(query) < 4 * import_lance


def cpu_seconds(command: Sequence[str]) -> float:
    """The median of three processes, after one that fills the page cache."""
    measured = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        measured.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return statistics.median(measured[1:])
