"""The checklist of maintenance: every promise has a number and a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"\| ([0-9]+) \| (\S.*\S) \| `(tests/[\w/]+\.py)::(test_\w+)` \|")
HEADINGS = {"| No. | Behaviour | Test |", "|---|---|---|"}


def lines() -> list[str]:
    text = (ROOT / "tests/maintenance/checklist.md").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.startswith("|") and line not in HEADINGS]


@cache
def defined_in(path: str) -> frozenset[str]:
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(each.name for each in ast.walk(module) if isinstance(each, ast.FunctionDef))


def test_every_line_is_a_number_a_behaviour_and_a_test() -> None:
    assert [line for line in lines() if not LINE.fullmatch(line)] == []


def test_the_numbers_are_complete() -> None:
    numbers = [int(found[1]) for line in lines() if (found := LINE.fullmatch(line))]

    assert numbers == list(range(1, len(lines()) + 1))
    assert len(numbers) > 100


def test_every_named_test_exists() -> None:
    named = [(found[3], found[4]) for line in lines() if (found := LINE.fullmatch(line))]

    assert [(path, name) for path, name in named if name not in defined_in(path)] == []


def test_every_test_of_maintenance_through_its_verbs_is_listed_or_helps_one_that_is() -> None:
    """No module of maintenance is left out of the list as a whole."""
    listed = {found[3] for line in lines() if (found := LINE.fullmatch(line))}
    modules = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests/maintenance").glob("test_*.py")
        if path != Path(__file__)
    }

    assert modules <= listed
