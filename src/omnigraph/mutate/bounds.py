"""How much one mutation may change, since all of it is held until it is published.

Invariant: a mutation that is too large is refused before anything is written, with its size.
"""

from __future__ import annotations

from typing import Final

from omnigraph.errors import InvalidInputError

ROWS_MAX: Final = 100_000
"""Rows that one mutation may insert, update and delete, edges of deleted nodes included."""
BYTES_MAX: Final = 64 << 20
"""Memory that the new contents of these rows may take."""

_NEXT_STEP: Final = (
    "Narrow its conditions, or change that much with `omnigraph load --mode merge` or "
    "`graph.delete`."
)


def require_rows(count: int, *, what: str) -> None:
    """Refuse a mutation that changes too many rows; `what` says in which step it does."""
    if count > ROWS_MAX:
        raise InvalidInputError(
            f"{what} makes the mutation change {count:,} rows, expected at most {ROWS_MAX:,}",
            next_step=_NEXT_STEP,
        )


def require_bytes(size: int, *, rows: int, what: str) -> None:
    """Refuse a mutation whose new rows take too much memory."""
    if size > BYTES_MAX:
        raise InvalidInputError(
            f"{what} makes the mutation hold {size:,} bytes of {rows:,} rows or more, "
            f"expected at most {BYTES_MAX:,}",
            next_step=_NEXT_STEP,
        )
