"""Small real datasets for the guards: no mocks, one temporary directory per test."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from lance import LanceDataset, Transaction


def _table(n: int, start: int = 0) -> pa.Table:
    ids = range(start, start + n)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "s": pa.array([f"s{i}" for i in ids], pa.string()),
            "x": pa.array([float(i) for i in ids], pa.float64()),
        }
    )


@pytest.fixture
def table() -> Callable[..., pa.Table]:
    """Make a table of `n` rows whose ids count up from `start`."""
    return _table


def _recorded(dataset: LanceDataset, version: int) -> Transaction:
    transaction = dataset.read_transaction(version)
    assert transaction is not None
    return transaction


@pytest.fixture
def recorded() -> Callable[[LanceDataset, int], Transaction]:
    """Read the transaction that made a version."""
    return _recorded


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Name a dataset that does not exist yet."""
    return str(tmp_path / "dataset")
