"""Committing above a version that cannot be read.

A handle that is made of a message reads no version. These facts decide how a rebuilt manifest is
put above damaged ones.

Relied on in: `storage/manifest/survey.py`, `storage/lance/base_paths.py`,
`storage/lance/next_version.py`, `names.py`.
"""

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from omnigraph_lake.names import LANCE_VERSION_MOST
from omnigraph_lake.storage.lance.base_paths import handle_of, message_of, renumbered

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]
DAMAGED = 300
"""A number that takes two bytes in a message; the whole version below it takes one."""


@pytest.fixture
def whole(tmp_path: Path, table: Rows) -> LanceDataset:
    return lance.write_dataset(table(3), str(tmp_path / "dataset"), enable_stable_row_ids=True)


def _file(dataset: LanceDataset, version: int) -> Path:
    return Path(dataset.uri, "_versions", f"{LANCE_VERSION_MOST - version:020}.manifest")


def _above(whole: LanceDataset) -> LanceDataset:
    return handle_of(whole, DAMAGED, renumbered(message_of(whole), DAMAGED))


def _overwrite(handle: LanceDataset, rows: pa.Table) -> int:
    operation = LanceOperation.Overwrite(rows.schema, write_fragments(rows, handle, "overwrite"))
    transaction = Transaction(read_version=handle.version, operation=operation)
    return int(LanceDataset.commit(handle, transaction, max_retries=0).version)


@pytest.mark.parametrize("content", [b"", b"\xa5" * 900, bytes(900)])
def test_an_overwrite_lands_above_a_version_that_cannot_be_read(
    whole: LanceDataset, table: Rows, content: bytes
) -> None:
    """Relied on by: a rebuilt manifest is newer than the damaged one, which stays meanwhile."""
    _file(whole, DAMAGED).write_bytes(content)

    assert _overwrite(_above(whole), table(5)) == DAMAGED + 1

    assert _file(whole, DAMAGED + 1).exists()
    assert _file(whole, DAMAGED).read_bytes() == content
    newest = lance.dataset(whole.uri)
    assert (newest.version, newest.count_rows()) == (DAMAGED + 1, 5)
    with pytest.raises(CommitConflictError):
        _overwrite(_above(whole), table(7))
    assert lance.dataset(whole.uri).count_rows() == 5


def test_a_file_is_named_by_another_rule_if_the_version_before_it_is_gone(
    whole: LanceDataset, table: Rows
) -> None:
    """Relied on by: a handle is used only if that version is there after it was made."""
    _overwrite(_above(whole), table(5))

    assert not _file(whole, DAMAGED + 1).exists()
    assert Path(whole.uri, "_versions", f"{DAMAGED + 1}.manifest").exists()
    with pytest.raises(ValueError, match="naming schemes"):
        lance.dataset(whole.uri)


def test_a_handle_keeps_the_rule_that_it_found(whole: LanceDataset, table: Rows) -> None:
    """Relied on by: the version may be moved away after that."""
    _file(whole, DAMAGED).write_bytes(b"\xa5" * 900)
    above = _above(whole)
    _file(whole, DAMAGED).unlink()

    assert _overwrite(above, table(5)) == DAMAGED + 1
    assert _file(whole, DAMAGED + 1).exists()


@pytest.mark.parametrize("content", [b"", b"\xa5" * 900, bytes(900)])
def test_the_time_of_the_open_version_is_read_beside_versions_that_cannot_be(
    whole: LanceDataset, content: bytes
) -> None:
    """Relied on by: a version is known by its time, also while another one is damaged.

    `versions()` would read all of them. Relied on in `storage/lance/datasets.py` (`made_at`).
    """
    _file(whole, DAMAGED).write_bytes(content)

    opened = lance.dataset(whole.uri, version=whole.version)

    assert opened.get_version()["timestamp"] == whole.get_version()["timestamp"]
