"""A merge publishes schema, columns and rows together or not at all, by the rules of its model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.checker import Size, search
from tests.model.schema_merges import MERGE_MUTANTS, MergeMutant, MergeScope, merge_protocol

pytestmark = pytest.mark.model

LARGE = pytest.mark.nightly("everybody at once; the gate has pairs and triples of them")
_RULE = MergeScope(main_applies="rule")
_SWEPT_RULE = MergeScope(main_applies="rule", sweeps=1)
_WRITTEN_RULE = MergeScope(main_applies="rule", writes=True)
_ENDED = MergeScope(ends_source=True)
_NEW_TYPE = MergeScope(creates=True, sweeps=1)
_ALL = MergeScope(main_applies="column", writes=True, sweeps=2, ends_source=True, creates=True)


@pytest.mark.parametrize(
    ("scope", "size"),
    [
        (_RULE, Size(279, 501)),
        (_SWEPT_RULE, Size(2_142, 5_205)),
        (_WRITTEN_RULE, Size(3_198, 6_721)),
        (MergeScope(writes=True, sweeps=1), Size(2_979, 7_008)),
        (MergeScope(main_applies="column", writes=True), Size(5_190, 10_412)),
        (MergeScope(ends_source=True, sweeps=1), Size(856, 1_809)),
        (_NEW_TYPE, Size(333, 636)),
        (replace(_NEW_TYPE, main_applies="column"), Size(2_850, 6_689)),
        pytest.param(_ALL, Size(108_736, 316_822), marks=LARGE),
    ],
    ids=str,
)
def test_schema_and_rows_are_merged_together(scope: MergeScope, size: Size) -> None:
    result = search(merge_protocol(scope))

    assert result.violation is None, "\n".join((result.violation, *result.trace))
    assert result.exhausted
    assert result.size == size


CAUGHT: dict[MergeMutant, tuple[MergeScope, int]] = {
    "source_unclaimed": (_ENDED, 6),
    "source_unverified": (_ENDED, 5),
    "schema_kept_late": (_RULE, 12),
    "forward_columns_alone": (_SWEPT_RULE, 10),
    "merge_expects_no_schema": (_RULE, 12),
    "merge_expects_no_pin": (_WRITTEN_RULE, 12),
    "writer_expects_no_schema": (_WRITTEN_RULE, 6),
    "forward_expects_no_schema": (_SWEPT_RULE, 13),
    "discard_undecided": (_NEW_TYPE, 12),
    "discard_never": (_NEW_TYPE, 14),
    "forward_without_table": (_NEW_TYPE, 10),
    "numbers_counted": (_RULE, 12),
}


@pytest.mark.parametrize("mutant", MERGE_MUTANTS)
def test_every_rule_of_merged_schemas_is_needed(mutant: MergeMutant) -> None:
    scope, steps = CAUGHT[mutant]

    result = search(merge_protocol(replace(scope, mutant=mutant)))

    assert result.violation is not None
    assert len(result.trace) == steps, "\n".join((result.violation, *result.trace))
