"""Every snippet of the documentation runs, in order, as a new user would run it.

`omnigraph` commands and Python programs are forks; what needs a shell, or Spark, is a new process.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.forking.programs import environment_of, run_code, run_command

HOME = Path(__file__).parent.parent.parent
README = HOME / "README.md"
PAGES = [
    README,
    HOME / "docs/reference/python.md",
    HOME / "docs/reference/load.md",
    HOME / "docs/reference/branches.md",
    HOME / "docs/reference/maintenance.md",
    *sorted(HOME.glob("docs/tutorials/*.md")),
    HOME / "docs/how-to/import.md",
    HOME / "docs/how-to/stream.md",
    HOME / "docs/how-to/view.md",
]
FENCE = re.compile(r"```(?P<language>\w+)\n(?P<code>.*?)```", re.DOTALL)
FILE_NAME = re.compile(r"`(?P<name>[\w./-]+\.(?:pg|gq))`")
OF_THE_SHELL = "();<>|&"


def needs_spark(page: Path) -> bool:
    return "with-spark" in page.name or page.name == "stream.md"


ON_SPARK = (
    pytest.mark.spark,
    pytest.mark.nightly(
        "a JVM for each snippet on Spark; in the gate, tests/spark loads, reads and "
        "merges in one session"
    ),
)


@pytest.mark.cost("the snippets of a page build on each other, so a page is one test", 6)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=ON_SPARK if needs_spark(page) else pytest.mark.unit)
        for page in PAGES
    ],
)
def test_the_snippets_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    ran = 0
    for block in FENCE.finditer(text):
        before = text[: block.start()]
        ran += run_block(
            block["language"], block["code"], before, tmp_path, new_process=needs_spark(page)
        )

    assert ran >= 1


@pytest.mark.unit
@pytest.mark.cost("a new process, which imports everything", 6)
def test_the_first_program_of_the_readme_runs_in_a_new_process(tmp_path: Path) -> None:
    """Only a Python that has imported nothing shows that the imports of a snippet are enough."""
    blocks = list(FENCE.finditer(README.read_text()))
    schema, program = (
        next(block["code"] for block in blocks if block["language"] == language)
        for language in ("pg", "python")
    )
    (tmp_path / "people.pg").write_text(schema)
    run_command("init", "./g", "--schema", "people.pg", cwd=tmp_path)

    finished = run_code(program, cwd=tmp_path, new_process=True)

    assert finished.returncode == 0, finished.stderr


def run_block(language: str, code: str, before: str, folder: Path, *, new_process: bool) -> int:
    """Run a block of a page; the text before it names the file of a schema or of queries."""
    match language:
        case "pg" | "gq":
            name = FILE_NAME.findall(before)[-1]
            (folder / name).write_text(code)
        case "bash":
            for command in code.strip().splitlines():
                run_line(command, folder, new_process=new_process)
        case "python":
            finished = run_code(code, cwd=folder, new_process=new_process)
            assert finished.returncode == 0, f"{code}\n{finished.stdout}\n{finished.stderr}"
        case _:
            return 0
    return 1


def run_line(line: str, folder: Path, *, new_process: bool) -> None:
    words = shell_words(line)
    if words[0] == "pip":
        return
    if words[0] != "omnigraph" or any(word[0] in OF_THE_SHELL for word in words):
        run_in_shell(line, folder)
        return
    finished = run_command(*words[1:], cwd=folder, new_process=new_process)
    assert finished.returncode == 0, f"{line}\n{finished.stdout}\n{finished.stderr}"


def shell_words(line: str) -> list[str]:
    """Words as a shell splits them; redirections and pipes are words of their own."""
    words = shlex.shlex(line, posix=True, punctuation_chars=OF_THE_SHELL)
    words.whitespace_split = True
    return list(words)


def run_in_shell(line: str, folder: Path) -> None:
    finished = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment_of({}),
    )
    assert finished.returncode == 0, f"{line}\n{finished.stdout}\n{finished.stderr}"


@pytest.mark.unit
def test_the_diagnostic_in_the_readme_is_what_lint_prints(tmp_path: Path) -> None:
    (shown,) = [
        block["code"] for block in FENCE.finditer(README.read_text()) if block["language"] == "text"
    ]
    (tmp_path / "people.pg").write_text("node Person {\n    email: Strng @key\n}\n")

    assert run_command("lint", "people.pg", cwd=tmp_path).stdout == shown
