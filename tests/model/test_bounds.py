"""With every guard in place, no schedule breaks a promise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.model.bounds import FORKS, QUICK, QUICK_COMBINED, QUICK_LEAN, Bound, Counts
from tests.model.bounds_full import FULL, FULL_COMBINED, FULL_LEAN
from tests.model.branch_bounds import (
    FULL_BRANCHES,
    QUICK_BRANCHES,
    SWEEP_ON_A_DEAD_BRANCH,
    BranchBound,
)
from tests.model.branches import branch_protocol
from tests.model.checker import SearchResult, search
from tests.model.forks import ForkScope, fork_protocol
from tests.model.maintenance_bounds import FULL_MAINTENANCE, QUICK_MAINTENANCE
from tests.model.protocol import protocol
from tests.model.retention import retention_protocol
from tests.model.retention_bounds import (
    FULL_RETENTION,
    LISTED_LATE,
    QUICK_RETENTION,
    RetentionBound,
)
from tests.model.schema_apply import schema_protocol
from tests.model.schema_bounds import (
    FULL_SCHEMAS,
    NO_GUARDS_OF_SCHEMAS,
    QUICK_SCHEMAS,
    SchemaBound,
)

pytestmark = [pytest.mark.model, pytest.mark.sampled(3)]


STATES_IN_GATE = 15_000
LARGE = pytest.mark.nightly(
    f"more than {STATES_IN_GATE:,} states; the gate searches smaller bounds of the same protocol"
)


def _by_name(bounds: Sequence[Bound | BranchBound | RetentionBound | SchemaBound]) -> list[object]:
    return [
        pytest.param(
            bound, id=bound.name, marks=LARGE if bound.counts.states > STATES_IN_GATE else ()
        )
        for bound in bounds
    ]


def _assert_clean(result: SearchResult, expected: Counts) -> None:
    assert result.violation is None, "\n".join((result.violation, *result.trace))
    assert result.exhausted
    # Another size means another model: change the recorded counts only on purpose.
    assert Counts(result.states, result.transitions, result.depth) == expected


@pytest.mark.parametrize("bound", _by_name(QUICK + QUICK_LEAN + QUICK_MAINTENANCE + QUICK_COMBINED))
def test_no_schedule_breaks_a_promise(bound: Bound) -> None:
    result = search(protocol(bound.scope))

    _assert_clean(result, bound.counts)


def test_no_schedule_deletes_a_fork_that_the_manifest_names() -> None:
    result = search(fork_protocol(ForkScope()))

    _assert_clean(result, FORKS)


@pytest.mark.parametrize("bound", _by_name(QUICK_BRANCHES))
def test_no_schedule_mixes_or_loses_branches(bound: BranchBound) -> None:
    result = search(branch_protocol(bound.scope))

    _assert_clean(result, bound.counts)


@pytest.mark.parametrize("bound", _by_name((*QUICK_RETENTION, LISTED_LATE)))
def test_no_schedule_deletes_a_version_that_somebody_may_read(bound: RetentionBound) -> None:
    result = search(retention_protocol(bound.scope))

    _assert_clean(result, bound.counts)


@pytest.mark.parametrize("bound", _by_name((*QUICK_SCHEMAS, *NO_GUARDS_OF_SCHEMAS)))
def test_no_schedule_parts_tables_from_their_schema(bound: SchemaBound) -> None:
    result = search(schema_protocol(bound.scope))

    _assert_clean(result, bound.counts)


@pytest.mark.nightly("large bounds of the same search; the gate has the small ones")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bound", _by_name(FULL_SCHEMAS))
def test_no_schedule_of_a_large_search_parts_tables_from_their_schema(bound: SchemaBound) -> None:
    result = search(schema_protocol(bound.scope))

    _assert_clean(result, bound.counts)


@pytest.mark.nightly("large bounds of the same search; the gate has the small ones")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bound", _by_name(FULL_RETENTION))
def test_no_schedule_of_a_large_search_deletes_a_version_that_somebody_may_read(
    bound: RetentionBound,
) -> None:
    result = search(retention_protocol(bound.scope))

    _assert_clean(result, bound.counts)


@pytest.mark.nightly("large bounds of the same search; the gate has the small ones")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bound", _by_name((*FULL_BRANCHES, SWEEP_ON_A_DEAD_BRANCH)))
def test_no_schedule_of_a_large_search_mixes_or_loses_branches(bound: BranchBound) -> None:
    result = search(branch_protocol(bound.scope))

    _assert_clean(result, bound.counts)


@pytest.mark.nightly("large bounds of the same search; the gate has the small ones")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bound", _by_name(FULL + FULL_LEAN + FULL_MAINTENANCE + FULL_COMBINED))
def test_no_schedule_of_a_large_search_breaks_a_promise(bound: Bound) -> None:
    result = search(protocol(bound.scope))

    _assert_clean(result, bound.counts)
