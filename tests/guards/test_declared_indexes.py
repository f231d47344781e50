"""What a schema asks for: a tree and full text on one text column, one index for each of several.

A String that is indexed has both. They have names of ours, and a name is how they are found again.

Relied on in: `schema/indexes.py`, `storage/indexes/segments.py`, `storage/indexes/search.py`,
`names.py`.
"""

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance.query import MatchQuery

pytestmark = pytest.mark.unit

TREE, WORDS = "name_btree", "name_inverted"


def _rows(start: int, count: int) -> pa.Table:
    ids = list(range(start, start + count))
    return pa.table({"id": ids, "name": [f"word{each % 10} number{each}" for each in ids]})


def _build(dataset: LanceDataset, name: str) -> None:
    dataset.create_scalar_index("name", "BTREE" if name == TREE else "INVERTED", name=name)


def _used(dataset: LanceDataset, condition: str) -> bool:
    return f"@{TREE}(BTree)" in dataset.scanner(filter=condition).explain_plan()


def _answers(dataset: LanceDataset) -> tuple[int, int, int]:
    words = dataset.to_table(columns=["id", "_score"], full_text_query=MatchQuery("word3", "name"))
    return (
        len(dataset.to_table(filter="name = 'word3 number13'")),
        len(dataset.to_table(filter="starts_with(name, 'word3')")),
        len(words),
    )


@pytest.mark.parametrize("order", [(TREE, WORDS), (WORDS, TREE)])
def test_each_of_two_indexes_on_a_column_serves_its_own_questions(
    uri: str, order: tuple[str, str]
) -> None:
    """Relied on by: an indexed String has a tree beside its full-text index."""
    dataset = lance.write_dataset(_rows(0, 100), uri, enable_stable_row_ids=True)
    for name in order:
        _build(dataset, name)
    dataset.insert(_rows(100, 10))
    dataset.optimize.optimize_indices()

    described = {each.name: list(each.field_names) for each in dataset.describe_indices()}
    assert described == {TREE: ["name"], WORDS: ["name"]}
    covered = [dataset.stats.index_stats(each)["num_indexed_rows"] for each in order]
    assert covered == [110, 110]
    assert _used(dataset, "name = 'word3 number13'")
    assert _used(dataset, "starts_with(name, 'word3')")
    assert _answers(dataset) == (1, 11, 11)


def test_both_indexes_serve_a_branch_of_a_branch(uri: str) -> None:
    """Relied on by: branches read and extend the indexes they inherit."""
    dataset = lance.write_dataset(_rows(0, 100), uri, enable_stable_row_ids=True)
    _build(dataset, TREE)
    _build(dataset, WORDS)
    child = dataset.create_branch("child")
    child.insert(_rows(100, 10))
    child.optimize.optimize_indices()
    grandchild = child.create_branch("grandchild", ("child", None))
    grandchild.insert(_rows(110, 10))
    grandchild.optimize.optimize_indices()

    assert _used(grandchild, "name = 'word3 number13'")
    assert _answers(grandchild) == (1, 12, 12)
    assert _answers(child) == (1, 11, 11)
    assert _answers(dataset) == (1, 10, 10)


def test_a_condition_on_two_columns_intersects_their_indexes(uri: str) -> None:
    """Relied on by: an `@index` over several columns is one index on each."""
    dataset = lance.write_dataset(_rows(0, 100), uri, enable_stable_row_ids=True)
    dataset.create_scalar_index("id", "BTREE", name="id_btree")
    _build(dataset, TREE)
    condition = "starts_with(name, 'word3') AND id > 50"

    plan = dataset.scanner(filter=condition).explain_plan()

    assert "AND(" in plan
    assert f"@{TREE}(BTree)" in plan
    assert "@id_btree(BTree)" in plan
    assert sorted(dataset.to_table(filter=condition)["id"].to_pylist()) == [53, 63, 73, 83, 93]


def test_the_name_of_an_index_can_be_longer_than_a_file_name(uri: str) -> None:
    """Relied on by: a column of the longest name can be indexed under its own name."""
    column = "x" * 255
    dataset = lance.write_dataset(pa.table({column: ["a"]}), uri)
    dataset.create_scalar_index(column, "BTREE", name=f"{column}_btree")

    assert [each.name for each in lance.dataset(uri).describe_indices()] == [f"{column}_btree"]
