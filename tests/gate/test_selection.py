"""The gate chooses tests by what a commit changed, and by what its budgets pay for."""

from __future__ import annotations

import pytest

from tests.gate import import_graph, selection
from tests.gate.selection import Choice, choice_of, pay

pytestmark = pytest.mark.unit

TABLES = "src/omnigraph_lake/storage/lance/tables.py"


@pytest.mark.parametrize(
    ("file", "changed", "choice"),
    [
        ("tests/storage/test_row_changes.py", TABLES, Choice.DIRECT),
        ("tests/behaviours/test_merge.py", TABLES, Choice.REACHED),
        ("tests/forking/test_programs.py", TABLES, Choice.REACHED),
        ("tests/schema/test_parser.py", TABLES, Choice.OUTSIDE),
        ("tests/schema/test_parser.py", "src/omnigraph_lake/schema/grammar.lark", Choice.DIRECT),
        ("tests/view/test_pages.py", "src/omnigraph_lake/view/assets/view.js", Choice.DIRECT),
        ("tests/behaviours/test_merge.py", "examples/people.pg", Choice.REACHED),
        ("tests/guards/test_blobs.py", TABLES, Choice.OUTSIDE),
        ("tests/guards/test_blobs.py", "constraints.txt", Choice.REACHED),
        ("tests/behaviours/test_merge.py", "tests/stores.py", Choice.REACHED),
        ("tests/behaviours/test_merge.py", "tests/behaviours/test_merge.py", Choice.DIRECT),
        ("tests/behaviours/test_merge.py", "docs/reference/load.md", Choice.OUTSIDE),
        ("tests/docs/test_snippets.py", "docs/reference/load.md", Choice.DIRECT),
        ("tests/tidy/test_house_rules.py", "LICENSE", Choice.DIRECT),
    ],
)
def test_tests_are_as_near_as_their_imports(file: str, changed: str, choice: Choice) -> None:
    assert choice_of(file, (changed,)) is choice


def test_every_test_may_be_drawn_where_the_commit_before_is_not_known() -> None:
    assert choice_of("tests/schema/test_parser.py", None) is Choice.REACHED


def test_imports_for_type_checkers_count_no_more_than_comments() -> None:
    reached = import_graph.reached_by("tests/schema/test_parser.py")

    assert "src/omnigraph_lake/schema/parser.py" in reached
    assert TABLES not in reached
    assert import_graph.reached_by(import_graph.PACKAGE) >= import_graph.sources()


def test_the_nearest_tests_are_paid_first_and_the_seed_draws_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = "tests/storage/test_row_changes.py", "tests/behaviours/test_merge.py"
    costs = {"tests": {near: 1.0, far: 1.0}, "besides": {}}
    monkeypatch.setattr(selection, "read_costs", lambda: costs)
    tests = [*(f"{far}::test[{number}]" for number in range(30)), f"{near}::test"]

    drawn = [pay(tests, (TABLES,), 6.0, seed) for seed in range(40)]

    assert all(paid[0] == f"{near}::test" and len(paid) == 6 for paid in drawn)
    assert {test for paid in drawn for test in paid} == set(tests)
    assert pay(tests, (TABLES,), 6.0, 1) == pay(list(reversed(tests)), (TABLES,), 6.0, 1)
    assert pay(tests, (TABLES,), 0.5, 1) == [f"{near}::test"]
