"""`omnigraph shell`: a script from a pipe, and a dialogue on a real terminal."""

from __future__ import annotations

import stat
import sys
import time
from pathlib import Path
from typing import Final

import pytest

import omnigraph_lake as og
from tests.cli.commands import run
from tests.cli.pseudo_terminal import Terminal, on_a_terminal

pytestmark = pytest.mark.unit

SCHEMA: Final = """
node Person { name: String @key  age: I32?  note: String? }
edge Knows: Person -> Person
"""
NAMES: Final = ("Ann", "Bob", "Cy")
DOWN: Final = "\x1b[B"


@pytest.fixture
def root(tmp_path: Path) -> str:
    graph = og.init(str(tmp_path / "people"), schema=SCHEMA)
    graph.write(
        {
            "Person": [{"name": name, "age": 30 + place} for place, name in enumerate(NAMES)],
            "Knows": [{"src": "Ann", "dst": "Bob"}],
        }
    )
    return graph.root


def test_a_script_runs_statements_and_commands_in_order(root: str) -> None:
    script = """
        \\d
        match { $p: Person } return { $p.name, $p.age }
        order { $p.name desc }

        insert Person { name: "Dana" };
        \\set least=32
        match { $p: Person  $p.age >= $least } return { $p.name as elder };
        query older($least: I32) {
            match { $p: Person  $p.age >= $least }

            return { count($p) as people }
        }
        \\x
        match { $p: Person { name: "Dana" } } return { $p.name, $p.note } // the last needs no end
    """

    ended = run("shell", root, stdin=script)

    assert ended.returncode == 0, ended.stderr
    lines = [line.rstrip() for line in ended.stdout.splitlines()]
    assert any(line.startswith("Person") and "node" in line for line in lines)
    assert any(line.startswith("Knows: Person -> Person") for line in lines)
    described = lines.index("p.name  p.age")
    assert lines[described + 2 : described + 5] == [
        "Cy         32",
        "Bob        31",
        "Ann        30",
    ]
    assert any("inserted" in line for line in lines)
    assert lines[lines.index("elder") + 2].strip() == "Cy"
    assert lines[lines.index("people") + 2].strip() == "1"
    assert lines[-3].startswith("── 1 ")
    assert lines[-2:] == ["p.name  Dana", "p.note  null"]
    assert " ms" not in ended.stderr


def test_the_first_error_ends_a_script_with_its_code(root: str) -> None:
    script = """\\branches
match { $p: Person }
return { $p.nme };
insert Person { name: "never" };
"""

    ended = run("shell", root, stdin=script)

    assert ended.returncode == 5
    assert "statement:2:13" in ended.stderr
    assert " 2 | return { $p.nme }" in ended.stderr
    assert "did you mean `name`?" in ended.stderr
    assert og.open(root).count("Person") == len(NAMES)


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("\\brunches\n", 5, "did you mean `\\branches`?"),
        ("\\d Persn\n", 3, "did you mean `Person`?"),
        ("\\use nowhere\n", 3, "nowhere"),
        ("\\use\n", 5, "needs the name of a branch"),
        ("\\set x\n", 5, "has no value"),
        ("\\view out.html\n", 5, "no result to draw"),
        ("match { $p: Person } return { $p } limit", 5, "statement:1:41"),
    ],
)
def test_errors_say_what_to_do(root: str, statement: str, code: int, message: str) -> None:
    ended = run("shell", root, stdin=statement)

    assert ended.returncode == code
    assert message in ended.stderr


def test_a_shell_works_on_a_branch_and_draws_its_result(root: str, tmp_path: Path) -> None:
    og.open(root).branches.create("dev")
    script = f"""\\use dev
insert Person {{ name: "Dana" }};
match {{ $p: Person }} return {{ $p }};
\\view {tmp_path / "out.svg"}
\\use main
\\commits
\\d Person
\\q
insert Person {{ name: "never" }};
"""

    ended = run("shell", root, "--actor", "eve", stdin=script)

    assert ended.returncode == 0, ended.stderr
    assert "4 of 4 nodes" in ended.stdout
    assert (tmp_path / "out.svg").read_text().startswith("<svg")
    assert "node Person" in ended.stdout
    graph = og.open(root)
    assert graph.count("Person") == len(NAMES)
    assert graph.checkout("dev").commits()[0].actor == "eve"


def test_a_read_only_shell_refuses_mutations(root: str) -> None:
    ended = run("shell", root, "--read-only", stdin='insert Person { name: "x" };\n')

    assert ended.returncode != 0
    assert og.open(root).count("Person") == len(NAMES)


def enter(terminal: Terminal, statement: str) -> None:
    terminal.send(f"{statement}\r")


@pytest.mark.local_disk("about a terminal")
def test_a_dialogue_completes_edits_and_shows(root: str, tmp_path: Path) -> None:
    history = tmp_path / "state" / "history"
    with on_a_terminal("shell", root, env={"OMNIGRAPH_HISTORY": str(history)}) as terminal:
        terminal.expect("people@main>")

        enter(terminal, "match { $p: Person }")
        terminal.expect("... ")
        enter(terminal, "return { $p.name }")
        shown = terminal.expect(" ms")
        assert [name for name in NAMES if f"\n{name}" in shown] == list(NAMES)
        assert "3 rows in " in shown

        terminal.expect("people@main>")
        enter(terminal, "match { $p: Person } return { $p.nme }")
        terminal.expect("did you mean `name`?")
        terminal.expect("people@main>")

        terminal.send("match { $p: Pers")
        terminal.expect("Person")
        terminal.send("\t } return { $p.ag\t }")
        terminal.send("\r")
        terminal.expect("3 rows in ")
        terminal.expect("people@main>")

        terminal.send("half a statement")
        terminal.interrupt()
        terminal.expect("people@main>")
        enter(terminal, "\\q")
        assert terminal.finish() == 0
    remembered = history.read_text()
    assert "+match { $p: Person }\n+return { $p.name }" in remembered
    assert "$p.age" in remembered
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


@pytest.mark.nightly("a new process; the gate has a dialogue")
@pytest.mark.local_disk("about a terminal")
def test_long_results_are_paged_and_leaving_the_pager_goes_on(root: str, tmp_path: Path) -> None:
    og.open(root).write({"Person": [{"name": f"p{number:05}"} for number in range(20_000)]})
    environment = {"OMNIGRAPH_HISTORY": str(tmp_path / "history"), "OMNIGRAPH_PAGER": "less"}
    with on_a_terminal("shell", root, env=environment) as terminal:
        terminal.expect("people@main>")
        enter(terminal, "match { $p: Person } return { $p.name } order { $p.name }")
        terminal.expect("p00010")
        terminal.send("G")
        terminal.expect("p19999")
        terminal.send("q")
        terminal.expect("20,003 rows in ")
        terminal.expect("people@main>")

        enter(terminal, "match { $p: Person } return { $p.name } order { $p.name }")
        terminal.expect("p00010")
        terminal.send("q")
        terminal.expect("people@main>")

        enter(terminal, "\\pager")
        terminal.expect("paging is off")
        terminal.expect("people@main>")
        time.sleep(0.5)  # until the editor reads keys
        terminal.send("\x04")
        assert terminal.finish() == 0


@pytest.mark.nightly("a new process; the gate has a dialogue")
@pytest.mark.local_disk("about a terminal")
def test_an_interrupted_query_is_cancelled_and_the_shell_goes_on(root: str, tmp_path: Path) -> None:
    og.open(root).write({"Person": [{"name": f"p{number:05}"} for number in range(5_000)]})
    environment = {"OMNIGRAPH_HISTORY": str(tmp_path / "history")}
    with on_a_terminal("shell", root, env=environment) as terminal:
        terminal.expect("people@main>")
        pairs = 'match { $p: Person  $q: Person  like(concat($p.name, $q.name), "%1%2%3%9%") }'
        enter(terminal, f"{pairs} return {{ count($p) as pairs, max($q.name) as last }}")
        time.sleep(1.0)
        terminal.interrupt()
        terminal.expect("was cancelled")
        terminal.expect("people@main>")
        enter(terminal, 'match { $p: Person { name: "Ann" } } return { $p.age }')
        terminal.expect("1 row in ")
        terminal.expect("people@main>")
        enter(terminal, "\\q")
        assert terminal.finish() == 0


WITHOUT_EDITOR: Final = """
import sys
sys.modules["prompt_toolkit"] = None
from omnigraph_lake.cli.main import run_and_exit
run_and_exit()
"""


@pytest.mark.nightly("a new process; the gate has a dialogue")
@pytest.mark.local_disk("about a terminal")
def test_lines_are_read_without_the_extra(root: str) -> None:
    program = (sys.executable, "-c", WITHOUT_EDITOR)
    with on_a_terminal("shell", root, env={}, program=program) as terminal:
        terminal.expect("pip install 'omnigraph-lake[shell]'")
        terminal.expect("people@main>")
        terminal.send("match { $p: Person }\n")
        terminal.expect("... ")
        terminal.send("return { $p.name };\n")
        terminal.expect("3 rows in ")
        terminal.expect("people@main>")
        terminal.send("\x04")
        assert terminal.finish() == 0
