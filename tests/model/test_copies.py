"""A target of backups is a moment of its source, whoever copies to it and dies, by these rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.checker import Size, search
from tests.model.copies import COPY_MUTANTS, CopyMutant, CopyScope, copy_protocol

pytestmark = pytest.mark.model


LARGE = pytest.mark.nightly("more writes or a third copier; the gate has two copiers and a write")


@pytest.mark.parametrize(
    ("scope", "size"),
    [
        (CopyScope(copiers=1, writes=2, cleanups=2), Size(1_373, 2_565)),
        (CopyScope(copiers=2, writes=1, cleanups=1), Size(5_410, 12_696)),
        pytest.param(
            CopyScope(copiers=2, writes=2, cleanups=2), Size(83_902, 223_526), marks=LARGE
        ),
        pytest.param(CopyScope(copiers=3, writes=1), Size(90_678, 239_312), marks=LARGE),
        pytest.param(
            CopyScope(copiers=3, writes=2, written=(1,)), Size(193_103, 532_549), marks=LARGE
        ),
    ],
    ids=str,
)
def test_a_target_is_a_moment_of_its_source(scope: CopyScope, size: Size) -> None:
    result = search(copy_protocol(scope))

    assert result.violation is None, "\n".join((result.violation, *result.trace))
    assert result.exhausted
    assert result.size == size


CAUGHT: dict[CopyMutant, tuple[CopyScope, int]] = {
    "one_listing": (CopyScope(copiers=1, writes=2), 9),
    "content_late": (CopyScope(copiers=2, writes=1), 12),
    "blind_record": (CopyScope(copiers=2, writes=1), 20),
    "no_record": (CopyScope(copiers=1, writes=1), 10),
    "no_finish": (CopyScope(copiers=2, writes=1), 18),
    "only_main": (CopyScope(copiers=2, writes=1), 26),
    "no_look": (CopyScope(copiers=3, writes=2, written=(1,)), 37),
}


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=LARGE) if mutant == "no_look" else mutant
        for mutant in COPY_MUTANTS
    ],
)
def test_every_rule_is_needed(mutant: CopyMutant) -> None:
    scope, steps = CAUGHT[mutant]

    result = search(copy_protocol(replace(scope, mutant=mutant)))

    assert result.violation is not None
    assert len(result.trace) == steps, "\n".join((result.violation, *result.trace))
