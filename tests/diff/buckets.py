"""Small buckets, so that few rows fill several of them."""

from __future__ import annotations

import pytest

from omnigraph_lake.diff import bucketed


def set_rows_per_bucket(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Divide the candidates of every diff and merge in buckets of so many rows."""
    monkeypatch.setattr(bucketed, "ROWS_PER_BUCKET", rows)
    monkeypatch.setattr(bucketed, "UNDIVIDED_BUCKETS", 1)
