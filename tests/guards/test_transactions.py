"""What the recorded transaction of a version says.

Versions above a pin that no write of ours made are found by reading their transactions: the class
of the operation tells whether it changed content, the properties tell whose it was.

Relied on in: `storage/staging/table_versions.py`, `storage/staging/drift.py`.
"""

from collections.abc import Callable

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]
Recorded = Callable[[LanceDataset, int], Transaction]
Change = Callable[[LanceDataset, pa.Table], object]

CHANGES: dict[str, tuple[Change, type[LanceOperation.BaseOperation]]] = {
    "append": (
        lambda ds, rows: lance.write_dataset(rows, ds, mode="append"),
        LanceOperation.Append,
    ),
    "overwrite": (
        lambda ds, rows: lance.write_dataset(rows, ds, mode="overwrite"),
        LanceOperation.Overwrite,
    ),
    "delete": (lambda ds, _: ds.delete("id = 0"), LanceOperation.Delete),
    "truncate": (lambda ds, _: ds.truncate_table(), LanceOperation.Delete),
    "update": (lambda ds, _: ds.update({"s": "'new'"}), LanceOperation.Update),
    "merge insert": (
        lambda ds, rows: ds.merge_insert("id").when_not_matched_insert_all().execute(rows),
        LanceOperation.Update,
    ),
    "create index": (
        lambda ds, _: ds.create_scalar_index("id", "BTREE", name="other"),
        LanceOperation.CreateIndex,
    ),
    "drop index": (lambda ds, _: ds.drop_index("id_idx"), LanceOperation.CreateIndex),
    "add column": (lambda ds, _: ds.add_columns({"y": "id * 2"}), LanceOperation.Merge),
    "rename column": (
        lambda ds, _: ds.alter_columns({"path": "x", "name": "y"}),  # type: ignore[dict-item]
        LanceOperation.Project,
    ),
    "drop column": (lambda ds, _: ds.drop_columns(["x"]), LanceOperation.Project),
    "configure": (lambda ds, _: ds.update_config({"k": "v"}), LanceOperation.UpdateConfig),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_every_plain_write_is_one_version_with_a_known_operation_and_no_properties(
    uri: str, table: Rows, recorded: Recorded, change: str
) -> None:
    """Relied on by: a version without our property is foreign, its class says what it did."""
    lance.write_dataset(table(3), uri).create_scalar_index("id", "BTREE")
    act, operation = CHANGES[change]
    act(lance.dataset(uri), table(1, 50))
    after = lance.dataset(uri)
    assert after.version == 3
    assert type(recorded(after, 3).operation) is operation
    assert recorded(after, 3).transaction_properties == {}


def test_optimizing_indices_is_recorded_as_creating_an_index(
    uri: str, table: Rows, recorded: Recorded
) -> None:
    """Relied on by: index maintenance by other tools counts as preserving content."""
    lance.write_dataset(table(3), uri).create_scalar_index("id", "BTREE")
    lance.write_dataset(table(1, 50), uri, mode="append").optimize.optimize_indices()
    after = lance.dataset(uri)
    assert type(recorded(after, after.version).operation) is LanceOperation.CreateIndex


def test_tags_and_branches_make_no_version_on_main(uri: str, table: Rows) -> None:
    """Relied on by: forking and tagging by hand do not look like drift."""
    dataset = lance.write_dataset(table(3), uri)
    dataset.tags.create("t", 1)
    dataset.create_branch("dev", 1)
    assert lance.dataset(uri).version == 1


def test_properties_given_to_an_append_are_recorded(
    uri: str, table: Rows, recorded: Recorded
) -> None:
    """Relied on by: every commit of ours names its operation."""
    lance.write_dataset(table(1), uri)
    after = lance.write_dataset(
        table(1, 1), uri, mode="append", transaction_properties={"op": "a", "role": "own"}
    )
    assert recorded(after, 2).transaction_properties == {"op": "a", "role": "own"}
