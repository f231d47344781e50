"""Every snippet of the documentation runs, in order, as a new user would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent.parent
PAGES = [
    HOME / "README.md",
    HOME / "docs/reference/python.md",
    HOME / "docs/reference/load.md",
    HOME / "docs/reference/branches.md",
    HOME / "docs/reference/maintenance.md",
    *sorted(HOME.glob("docs/tutorials/*.md")),
]
FENCE = re.compile(r"```(?P<language>\w+)\n(?P<code>.*?)```", re.DOTALL)
FILE_NAME = re.compile(r"`(?P<name>[\w./-]+\.(?:pg|gq))`")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.name,
            marks=pytest.mark.spark if "with-spark" in page.name else pytest.mark.unit,
        )
        for page in PAGES
    ],
)
def test_the_snippets_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    ran = 0
    for block in FENCE.finditer(text):
        ran += _run_block(block["language"], block["code"], text[: block.start()], tmp_path)

    assert ran >= 1


def _run_block(language: str, code: str, before: str, folder: Path) -> int:
    match language:
        case "pg" | "gq":
            name = FILE_NAME.findall(before)[-1]
            (folder / name).write_text(code)
        case "bash":
            for command in code.strip().splitlines():
                if not command.startswith("pip "):
                    _succeeds(["bash", "-c", command], folder)
        case "python":
            _succeeds([sys.executable, "-c", code], folder)
        case _:
            return 0
    return 1


def _succeeds(command: list[str], folder: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )

    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


@pytest.mark.unit
def test_the_diagnostic_in_the_readme_is_what_lint_prints(tmp_path: Path) -> None:
    (shown,) = [
        block["code"]
        for block in FENCE.finditer((HOME / "README.md").read_text())
        if block["language"] == "text"
    ]
    (tmp_path / "people.pg").write_text("node Person {\n    email: Strng @key\n}\n")

    done = subprocess.run(
        [Path(sys.executable).parent / "omnigraph", "lint", "people.pg"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == shown
