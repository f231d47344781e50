"""Lance deletes old versions after a commit if the new version has the settings for it.

Relied on in: `storage/lance/datasets.py`, `storage/staging/table_versions.py`,
`storage/staging/drift.py`, `storage/manifest/swap.py`, `storage/manifest/history.py`, `names.py`.
"""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph_lake import names

pytestmark = pytest.mark.unit

ROWS = pa.table({"a": [1]})
SETTINGS = ("interval", "older_than")


@pytest.fixture
def table(tmp_path: Path) -> LanceDataset:
    """A table of two versions, of which the second has the settings."""
    dataset = lance.write_dataset(ROWS, str(tmp_path / "t"), enable_stable_row_ids=True)
    dataset.update_config(dict(zip(_keys(), ("1", "0s"), strict=True)))
    return lance.dataset(dataset.uri)


def test_a_new_table_has_no_such_settings(tmp_path: Path) -> None:
    assert lance.write_dataset(ROWS, str(tmp_path / "t")).config() == {}


def test_any_commit_deletes_older_versions_and_none_can_be_told_not_to(table: LanceDataset) -> None:
    assert versions(table) == [1, 2]

    committed = append(table)

    assert 1 not in versions(committed)
    assert "cleanup" not in str(signature(LanceDataset.commit))


def test_taking_the_settings_away_deletes_nothing(table: LanceDataset) -> None:
    operation = LanceOperation.UpdateConfig(
        config_updates=LanceOperation.UpdateMap(updates=dict.fromkeys(_keys()), replace=False)
    )

    without = commit(table, operation)

    assert without.config() == {}
    assert versions(append(without)) == [1, 2, 3, 4]


def test_restoring_a_version_brings_its_settings_back_and_deletes(table: LanceDataset) -> None:
    table.delete_config_keys(_keys())
    without = append(lance.dataset(table.uri))
    assert versions(without) == [1, 2, 3, 4]

    restored = commit(without, LanceOperation.Restore(2))

    assert restored.config().keys() == set(_keys())
    assert not {1, 2} & set(versions(restored))


def test_nothing_is_deleted_while_the_oldest_version_has_a_tag(table: LanceDataset) -> None:
    table.tags.create("oldest", 1)

    assert versions(append(append(table))) == [1, 2, 3, 4]


def test_a_fork_has_the_settings_of_the_version_it_was_made_from(table: LanceDataset) -> None:
    fork = table.create_branch("fork", table.version)

    assert fork.config() == table.config()


def _keys() -> list[str]:
    return [f"{names.LANCE_AUTO_CLEANUP}{setting}" for setting in SETTINGS]


def append(table: LanceDataset) -> LanceDataset:
    return commit(table, LanceOperation.Append(write_fragments(ROWS, table, mode="append")))


def commit(table: LanceDataset, operation: LanceOperation.BaseOperation) -> LanceDataset:
    transaction = Transaction(read_version=table.version, operation=operation)
    return LanceDataset.commit(table, transaction, max_retries=0)


def versions(table: LanceDataset) -> list[int]:
    return [each["version"] for each in lance.dataset(table.uri).versions()]
