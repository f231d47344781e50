"""Thresholds of the keyed rules, lowered so that a few rows reach every way of exchanging keys."""

from __future__ import annotations

import pytest

from omnigraph_lake.validation import hashed_keys, pinned_access, resolve_keys
from omnigraph_lake.validation.pinned_access import Access


def small_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of a few keys, several in each partition; two rows with one key are a group."""
    monkeypatch.setattr(hashed_keys, "KEYS_PER_BUCKET", 5)
    monkeypatch.setattr(hashed_keys, "PARTITIONS_MAX", 3)
    monkeypatch.setattr(hashed_keys, "FREQUENT_LEAST", 2)


def prefer(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read pinned keys in this way, wherever that is possible."""
    monkeypatch.setattr(pinned_access, "ROWS_PER_PROBE", 0 if access is Access.PROBE else 10_000)
    share = 0 if access is Access.FILTERED_SCAN else 10_000
    monkeypatch.setattr(pinned_access, "FILTERED_ROWS_LEAST", 0)
    monkeypatch.setattr(pinned_access, "FILTERED_SHARE", share)


def share_ids(*, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether every task gets the ids of nodes, so that only missing endpoints are exchanged."""
    monkeypatch.setattr(resolve_keys, "ENDPOINTS_LEAST", 0 if shared else 10_000)
    monkeypatch.setattr(resolve_keys, "NODES_SHARE", 0.01)
