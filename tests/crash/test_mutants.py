"""Guards are taken away as the table says, for a while, and wherever they are called from."""

from __future__ import annotations

import pytest

from tests.crash import mutants
from tests.crash.mutants import GUARDS, Edit, without_guards

pytestmark = pytest.mark.unit


def _is_even(number: int) -> bool:
    if number < 0:
        raise ValueError(number)
    return number % 2 == 0


def _even(number: int) -> bool:
    return _is_even(number)


def _with(monkeypatch: pytest.MonkeyPatch, *edits: Edit) -> None:
    monkeypatch.setattr(mutants, "GUARDS", {"sign": edits})


@pytest.mark.parametrize("guard", GUARDS)
def test_every_edit_applies_and_changes_the_function_for_a_while(guard: str) -> None:
    functions = {mutants._plain(edit.function) for edit in GUARDS[guard]}
    before = {function: function.__code__ for function in functions}

    with without_guards(guard):
        assert not any(function.__code__ == before[function] for function in functions)

    assert all(function.__code__ is before[function] for function in functions)
    assert functions


def test_callers_run_the_mutant_and_the_guard_comes_back_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _with(monkeypatch, Edit(_is_even, "raise ValueError(number)", "number = -number\nnumber += 0"))

    def fail_without_the_guard() -> None:
        with without_guards("sign"):
            assert not _even(-3)
            raise KeyError

    with pytest.raises(KeyError):
        fail_without_the_guard()
    with pytest.raises(ValueError, match="-3"):
        _even(-3)


def test_edits_of_one_function_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    _with(
        monkeypatch,
        Edit(_is_even, "number < 0", "False"),
        Edit(_is_even, "== 0", "== 1"),
    )

    with without_guards("sign"):
        assert _even(-3)


@pytest.mark.parametrize("fragment", ["number is None", "number"])
def test_a_fragment_that_is_missing_or_ambiguous_is_an_error(
    fragment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with(monkeypatch, Edit(_is_even, fragment, "0"))

    with pytest.raises(AssertionError, match=r"_is_even has 'number.*' \d times"):
        without_guards("sign").__enter__()


def test_an_unknown_guard_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(AssertionError, match=r"no guard 'no_lock'; there are no_look, "):
        without_guards("no_lock").__enter__()
