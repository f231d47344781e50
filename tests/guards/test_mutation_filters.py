"""Filters of mutations: what Lance finds by them, with an index and without.

Relied on in: `engine/access/conditions.py`, `mutate/statements.py`,
`storage/lance/value_lookups.py`.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

pytestmark = pytest.mark.unit

ROWS = pa.table(
    {
        "wide": pa.array([0, 7, 2**63 - 1, 2**63, 2**64 - 1, None], pa.uint64()),
        "narrow": pa.array([0, 7, 2**31, 2**32 - 1, 5, None], pa.uint32()),
        "text": pa.array(["a", "é", "it's", "\\n", "%", None], pa.string()),
    }
)


@pytest.mark.parametrize("indexed", [False, True], ids=["scan", "index"])
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("`wide` > 9223372036854775807", 2),
        ("`wide` >= 9223372036854775807", 3),
        ("`wide` < 9223372036854775807", 2),
        ("`wide` IN (7, 0)", 2),
        ("`narrow` > 2147483648", 1),
        ("`narrow` = 4294967295", 1),
        ("`text` = 'it''s'", 1),
        (r"`text` = '\n'", 1),
        ("`text` >= '%'", 5),
        ("(`wide` = 7 OR `text` IS NULL)", 2),
    ],
)
def test_an_integer_or_a_text_is_compared_as_the_column_holds_it(
    tmp_path: Path, where: str, expected: int, *, indexed: bool
) -> None:
    table = lance.write_dataset(ROWS, tmp_path / "table")
    if indexed:
        for column in ROWS.column_names:
            table.create_scalar_index(column, "BTREE")

    assert table.count_rows(filter=where) == expected
