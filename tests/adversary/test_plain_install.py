"""A plain install: every command runs without what extras bring, or says what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import omnigraph_lake as og
from omnigraph_lake.cli.main import app
from omnigraph_lake.load.load import BREAK_EVEN_BYTES
from tests.adversary.plain_install import LARGE_BYTES, SCHEMA, STEPS
from tests.adversary.test_every_verb import leaves
from tests.adversary.verbs import WORDS_OF_GROUPS
from tests.forking.programs import run_code, run_module

pytestmark = [
    pytest.mark.crash,
    pytest.mark.local_disk("about what is installed, not about where the files are"),
]

CHECKOUT = Path(__file__).parent.parent.parent


def test_every_command_is_among_the_steps() -> None:
    words = (command.split() for command, _ in STEPS)
    run = {tuple(step[: 2 if step[0] in WORDS_OF_GROUPS else 1]) for step in words}

    assert run == set(leaves(typer.main.get_command(app), ()))
    assert LARGE_BYTES > BREAK_EVEN_BYTES


def test_every_command_runs_without_extras_or_says_what_to_install(tmp_path: Path) -> None:
    finished = run_module("tests.adversary.plain_install", str(tmp_path / "desk"), "hide")

    steps = [json.loads(line) for line in finished.stdout.splitlines()]
    assert len(steps) == len(STEPS), finished.stderr
    assert not [step["fault"] for step in steps if step["fault"]]
    assert finished.returncode == 0


CHOICE = """
import sys
from tests.adversary.plain_process import hide_optional_packages
if "packages" in sys.argv[2]:
    hide_optional_packages()
from omnigraph_lake.load.report import Engine
from omnigraph_lake.load.formats.records import FileFormat, SourceFile
from omnigraph_lake.load.load import engine_for
file = SourceFile(path="x.jsonl", format=FileFormat.JSONL, size=int(sys.argv[1]), gzipped=False,
    type_name=None, columns={})
print(engine_for(Engine.AUTO, [file], spark=None).value)
"""


@pytest.mark.parametrize(
    ("size", "missing", "engine"),
    [
        (65 << 20, "nothing", "local"),
        (1 << 40, "nothing", "local"),
        (1 << 40, "packages", "local"),
        (1 << 40, "Java", "local"),
    ],
)
def test_auto_never_chooses_an_engine_that_is_not_there(
    tmp_path: Path, size: int, missing: str, engine: str
) -> None:
    java = tmp_path / "bin" / "java"
    if missing != "Java":
        java.parent.mkdir()
        java.touch(0o755)

    finished = run_code(CHOICE, str(size), missing, env={"JAVA_HOME": str(tmp_path)})

    assert finished.stdout == f"{engine}\n", finished.stderr


def test_a_load_needs_no_memory_for_all_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(str(tmp_path / "g"), schema=SCHEMA)
    source = tmp_path / "people.jsonl"
    rows = ({"type": "Person", "data": {"name": f"{n:0100}"}} for n in range(2_000))
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("OMNIGRAPH_ROWS_MEMORY", "100kB")

    assert graph.load(source).read == 2_000


@pytest.mark.nightly("builds and installs a wheel; the gate hides the packages instead")
def test_the_wheel_alone_runs_every_command(tmp_path: Path) -> None:
    wheels = tmp_path / "dist"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(wheels)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    script = str(CHECKOUT / ".github/scripts/test_wheel.py")
    constraints = ("--constraint", str(CHECKOUT / "constraints.txt"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    finished = subprocess.run(
        [sys.executable, script, str(wheel), *constraints],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )

    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
