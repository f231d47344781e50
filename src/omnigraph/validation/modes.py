"""What a write does to the rows that are already there.

Invariant: every engine and every operation means the same by a mode.
"""

from __future__ import annotations

import enum


class WriteMode(enum.StrEnum):
    """How the rows of one type meet the published ones. Deletes of the same write come first."""

    APPEND = "append"
    """New rows only; an id that exists is refused."""
    MERGE = "merge"
    """A row replaces the one with the same id as a whole, or is added."""
    OVERWRITE = "overwrite"
    """The rows become the whole content of their type; types not in the write stay."""
