"""Why a row is refused: one stable token per reason.

Invariant: tokens are part of reports and quarantine tables; they are added, never changed.
"""

from __future__ import annotations

import enum


class Reason(enum.StrEnum):
    """Everything that can be wrong with a row, or with a whole input."""

    MALFORMED = "malformed"
    UNKNOWN_TYPE = "unknown_type"
    DUPLICATE_MEMBER = "duplicate_member"
    UNKNOWN_COLUMN = "unknown_column"
    DUPLICATE_COLUMN = "duplicate_column"
    WRONG_TYPE = "wrong_type"
    DOES_NOT_FIT = "does_not_fit"
    VECTOR_SIZE = "vector_size"
    VECTOR_ITEM = "vector_item"
    MISSING_REQUIRED = "missing_required"
    NOT_IN_ENUM = "not_in_enum"
    OUT_OF_RANGE = "out_of_range"
    PATTERN_MISMATCH = "pattern_mismatch"
    NOT_FINITE_KEY = "not_finite_key"
    BAD_ID = "bad_id"
    DUPLICATE_ID = "duplicate_id"
    ID_EXISTS = "id_exists"
    SUPERSEDED = "superseded"
    NOT_UNIQUE = "not_unique"
    MISSING_ENDPOINT = "missing_endpoint"
    TOO_MANY_EDGES = "too_many_edges"
    TOO_FEW_EDGES = "too_few_edges"
