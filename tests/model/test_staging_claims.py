"""No cleanup disturbs an attempt with an idempotency key, and none leaves what a dead one wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.checker import Size, search
from tests.model.staging_claims import CLAIM_MUTANTS, ClaimMutant, ClaimScope, claim_protocol

pytestmark = pytest.mark.model

SMALL = ClaimScope(attempts=1, cleaners=1)


@pytest.mark.parametrize(
    ("scope", "size"),
    [
        (SMALL, Size(59, 90)),
        (ClaimScope(attempts=1, cleaners=2, left=None), Size(601, 1_328)),
        (ClaimScope(attempts=2, cleaners=2), Size(1_745, 4_141)),
    ],
    ids=str,
)
def test_live_attempts_keep_what_they_wrote(scope: ClaimScope, size: Size) -> None:
    result = search(claim_protocol(scope))

    assert result.violation is None, "\n".join((result.violation, *result.trace))
    assert result.exhausted
    assert result.size == size


CAUGHT: dict[ClaimMutant, int] = {"claim_first": 7, "no_claim": 7, "claims_too": 7, "late_open": 7}


@pytest.mark.parametrize("mutant", CLAIM_MUTANTS)
def test_every_rule_is_needed(mutant: ClaimMutant) -> None:
    result = search(claim_protocol(replace(SMALL, mutant=mutant)))

    assert result.violation is not None
    assert len(result.trace) == CAUGHT[mutant], "\n".join((result.violation, *result.trace))
