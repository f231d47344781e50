from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from omnigraph_lake.validation.violations import (
    KEPT_MAX,
    BadRows,
    Reason,
    Violation,
    bad_rows,
    report_of,
    shown,
)

pytestmark = pytest.mark.unit


def finding(table_key: str, reason: Reason, count: int) -> BadRows:
    return bad_rows(
        table_key,
        reason,
        ("age",),
        pa.array(range(count), pa.int64()),
        ids=pa.array([f"p{number}" for number in range(count)]),
        message=lambda row: f"found {row}, expected I32",
    )


def test_counts_are_exact_and_texts_are_bounded() -> None:
    report = report_of(
        [
            finding("node:A", Reason.WRONG_TYPE, 250),
            finding("node:A", Reason.WRONG_TYPE, 3),
            finding("edge:B", Reason.BAD_ID, 2),
        ]
    )

    assert report.total == 255
    assert report.counts == {("node:A", Reason.WRONG_TYPE): 253, ("edge:B", Reason.BAD_ID): 2}
    assert len(report.kept) == KEPT_MAX
    assert report.summary().endswith("... and 155 more")
    assert not report.ok


def test_a_violation_names_type_column_row_id_and_what_was_found() -> None:
    report = report_of([finding("node:Person", Reason.WRONG_TYPE, 1)])

    assert report.summary().splitlines() == [
        "1 violation",
        "  node Person: 1 wrong_type",
        "node Person.age, row 0, id 'p0': found 0, expected I32 [wrong_type]",
    ]


def test_a_violation_of_several_columns_names_them_all() -> None:
    violation = Violation(
        table_key="edge:Knows",
        reason=Reason.NOT_UNIQUE,
        columns=("src", "dst"),
        row=None,
        id=None,
        message="taken",
    )

    assert str(violation) == "edge Knows(src, dst): taken [not_unique]"


def test_nothing_wrong_is_said_plainly() -> None:
    report = report_of([finding("node:A", Reason.BAD_ID, 0)])

    assert report.ok
    assert report.total == 0
    assert report.summary() == "no violations"


def test_reports_and_findings_travel_between_processes() -> None:
    found = finding("node:A", Reason.BAD_ID, 3)

    again = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own bytes

    assert again == found
    assert again.rows.to_pylist() == [0, 1, 2]


def test_a_long_value_is_cut_and_stays_on_one_line() -> None:
    assert shown([10**5000]) == "[an integer of 16,610 bits]"
    assert len(shown("x" * 500)) == 80
    assert "\n" not in shown("a\nb")


def test_tokens_are_lower_case_words() -> None:
    assert all(each.value == each.name.lower() for each in Reason)


def test_times_are_quoted_as_in_iso_8601() -> None:
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)

    assert shown(noon) == "'2024-05-01T12:00:00+00:00'"
    assert shown(noon.date()) == "'2024-05-01'"
