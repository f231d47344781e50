"""Indexes: small tables, partial coverage, distributed builds.

Indexes are built by maintenance and never waited for; queries must be right with any coverage, and
an index build on a table with few or odd rows must be predictable.

Relied on in: `storage/indexes/segments.py`, `storage/lance/value_lookups.py`,
`storage/lance/tables.py`.
"""

from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.dataset import Index
from lance.file import LanceFileReader
from lance.indices import IndexSegment

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]

DIMENSION = 8


def _vectors(n: int, start: int = 0) -> pa.Table:
    ids = list(range(start, start + n))
    flat = [float((i * 7 + j * 3) % 11) for i in ids for j in range(DIMENSION)]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float32()), DIMENSION)
    return pa.table({"id": ids, "v": vectors})


def _nearest(dataset: LanceDataset, k: int) -> list[int]:
    query = pa.array([0.0] * DIMENSION, pa.float32())
    nearest = {"column": "v", "q": query, "k": k}
    return sorted(dataset.to_table(columns=["id", "_distance"], nearest=nearest)["id"].to_pylist())


def _coverage(dataset: LanceDataset, name: str) -> tuple[int, int]:
    stats: dict[str, Any] = dataset.stats.index_stats(name)
    return stats["num_indexed_rows"], stats["num_unindexed_rows"]


# Vectors ------------------------------------------------------------------------------------------


def test_ivf_pq_on_few_rows_indexes_nothing(uri: str) -> None:
    """Relied on by: small tables get IVF_FLAT."""
    dataset = lance.write_dataset(_vectors(10), uri)
    dataset.create_index("v", "IVF_PQ", num_partitions=1, num_sub_vectors=2)
    assert _coverage(dataset, "v_idx") == (0, 10)
    assert _nearest(dataset, 10) == list(range(10))


@pytest.mark.parametrize("n", [1, 2])
def test_ivf_flat_accepts_few_rows(uri: str, n: int) -> None:
    """Relied on by: a vector index is built whatever the size of the table."""
    dataset = lance.write_dataset(_vectors(n), uri)
    dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    assert _coverage(dataset, "v_idx") == (n, 0)


def test_a_vector_index_on_nulls_only_raises_a_runtime_error_naming_kmeans(uri: str) -> None:
    """Relied on by: a column without any vector is skipped, and this error is understood."""
    nulls = pa.array([None, None], pa.list_(pa.float32(), DIMENSION))
    dataset = lance.write_dataset(pa.table({"id": [1, 2], "v": nulls}), uri)
    with pytest.raises(RuntimeError, match="KMeans cannot train"):
        dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    assert lance.dataset(uri).version == 1


# Files of a B-tree --------------------------------------------------------------------------------


def test_a_btree_is_pages_of_values_in_order_with_row_addresses(uri: str) -> None:
    """Relied on by: lookups in tables whose row ids are no ranges read these pages themselves."""
    texts = [f"t{number % 3_000:05}" for number in range(9_000)] + [None, None, "ü"]
    dataset = lance.write_dataset(
        pa.table({"s": texts}), uri, enable_stable_row_ids=True, max_rows_per_file=4_000
    )
    dataset.create_scalar_index("s", "BTREE")
    dataset = lance.dataset(uri)
    (index,) = dataset.describe_indices()
    (segment,) = index.segments
    folder = f"{uri}/_indices/{segment.uuid}"

    lookup = LanceFileReader(f"{folder}/page_lookup.lance")
    data = LanceFileReader(f"{folder}/page_data.lance")
    rows_per_page = int(lookup.metadata().schema.metadata[b"batch_size"])
    listed = lookup.read_all().to_table().select(["min", "max", "page_idx"])
    pages = [page for page in listed.to_pylist() if page["max"] is not None]
    entries = data.read_all().to_table()
    stored = dataset.to_table(columns=["s"], with_row_address=True)

    assert (index.index_type, segment.index_version) == ("BTree", 1)
    assert entries.column_names == ["values", "ids"]
    assert sorted(zip(*entries.to_pydict().values(), strict=True), key=repr) == sorted(
        zip(*stored.to_pydict().values(), strict=True), key=repr
    )
    assert entries["values"].to_pylist()[2:] == sorted(entries["values"].to_pylist()[2:])
    assert pages[0]["min"] is None, "nulls come first"
    for page in pages:
        part = entries.slice(page["page_idx"] * rows_per_page, rows_per_page)["values"].to_pylist()
        assert (part[0], part[-1]) == (page["min"], page["max"])


def test_rows_are_taken_by_their_positions_among_living_ones(uri: str, table: Rows) -> None:
    """Relied on by: the same lookups; taking rows by address compares every row id.

    Relied on in `storage/lance/value_lookups.py`, `storage/indexes/search.py`.
    """
    lance.write_dataset(table(20), uri, enable_stable_row_ids=True, max_rows_per_file=10)
    lance.dataset(uri).delete("id IN (1, 2, 12)")

    rows = lance.dataset(uri).take([0, 1, 8, 16], columns=["id", "_rowid", "_rowaddr"])

    assert rows["id"].to_pylist() == rows["_rowid"].to_pylist() == [0, 3, 10, 19]
    assert rows["_rowaddr"].to_pylist() == [0, 3, 1 << 32, (1 << 32) + 9]


# Rows no index covers -----------------------------------------------------------------------------


def test_a_scalar_filter_finds_rows_the_index_does_not_cover(uri: str, table: Rows) -> None:
    """Relied on by: a query never waits for an index build."""
    lance.write_dataset(table(4), uri).create_scalar_index("id", "BTREE")
    dataset = lance.write_dataset(table(2, 4), uri, mode="append")
    assert _coverage(dataset, "id_idx") == (4, 2)
    assert dataset.to_table(filter="id IN (1, 5)")["id"].to_pylist() == [1, 5]


def test_a_text_search_finds_rows_the_index_does_not_cover(uri: str) -> None:
    """Relied on by: a query never waits for an index build."""
    lance.write_dataset(pa.table({"t": ["red house"]}), uri).create_scalar_index("t", "INVERTED")
    dataset = lance.write_dataset(pa.table({"t": ["red car", "blue"]}), uri, mode="append")
    found = dataset.to_table(columns=["t", "_score"], full_text_query="red")
    assert sorted(found["t"].to_pylist()) == ["red car", "red house"]


def test_a_vector_search_finds_rows_the_index_does_not_cover(uri: str) -> None:
    """Relied on by: a query never waits for an index build.

    Relied on in `storage/indexes/vector_search.py`.
    """
    lance.write_dataset(_vectors(3), uri).create_index("v", "IVF_FLAT", num_partitions=1)
    dataset = lance.write_dataset(_vectors(2, 3), uri, mode="append")
    assert _nearest(dataset, 5) == [0, 1, 2, 3, 4]


def test_optimize_indices_covers_new_rows_in_one_version(uri: str, table: Rows) -> None:
    """Relied on by: maintenance catches up without building the index again."""
    lance.write_dataset(table(4), uri).create_scalar_index("id", "BTREE")
    dataset = lance.write_dataset(table(2, 4), uri, mode="append")
    before = dataset.version
    dataset.optimize.optimize_indices()
    after = lance.dataset(uri)
    assert after.version == before + 1
    assert _coverage(after, "id_idx") == (6, 0)


def test_optimize_indices_makes_no_version_if_nothing_is_to_do(uri: str, table: Rows) -> None:
    """Relied on by: idle maintenance publishes nothing."""
    lance.write_dataset(table(4), uri).create_scalar_index("id", "BTREE")
    dataset = lance.dataset(uri)
    dataset.optimize.optimize_indices()
    assert lance.dataset(uri).version == dataset.version == 2


# Distributed builds -------------------------------------------------------------------------------


@pytest.fixture
def fragmented(uri: str, table: Rows) -> LanceDataset:
    """Twenty rows in four fragments."""
    return lance.write_dataset(table(20), uri, enable_stable_row_ids=True, max_rows_per_file=5)


def test_segments_of_disjoint_fragments_commit_as_one_complete_index(
    fragmented: LanceDataset, uri: str
) -> None:
    """Relied on by: workers build an index in parts, the driver commits it once."""
    segments: list[IndexSegment | Index] = [
        fragmented.create_index_uncommitted("id", "BTREE", name="by_id", fragment_ids=part)
        for part in ([0, 1], [2, 3])
    ]
    assert lance.dataset(uri).version == 1
    dataset = lance.dataset(uri)
    dataset.commit_existing_index_segments("by_id", "id", segments)
    assert lance.dataset(uri).version == 2
    assert _coverage(lance.dataset(uri), "by_id") == (20, 0)


def _stale_segment(fragmented: LanceDataset, uri: str) -> Any:
    segment = fragmented.create_index_uncommitted(
        "id", "BTREE", name="by_id", fragment_ids=[0, 1, 2, 3]
    )
    lance.dataset(uri).optimize.compact_files()
    return segment


def test_committing_segments_after_a_compaction_covers_no_rows(
    fragmented: LanceDataset, uri: str
) -> None:
    """Relied on by: the coverage is looked at after the commit, success alone means nothing."""
    segment = _stale_segment(fragmented, uri)
    dataset = lance.dataset(uri)
    dataset.commit_existing_index_segments("by_id", "id", [segment])
    assert _coverage(lance.dataset(uri), "by_id") == (0, 20)
    assert lance.dataset(uri).to_table(filter="id = 3")["id"].to_pylist() == [3]


def test_committing_an_index_operation_after_a_compaction_is_refused(
    fragmented: LanceDataset, uri: str
) -> None:
    """Relied on by: indexes are committed as an operation with the version they were built on."""
    operation = LanceOperation.CreateIndex([_stale_segment(fragmented, uri)], [])
    with pytest.raises(CommitConflictError):
        LanceDataset.commit(fragmented, operation, read_version=1)


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_a_scalar_index_of_several_segments_can_be_committed_as_an_operation(
    fragmented: LanceDataset, kind: str
) -> None:
    """Relied on by: an index commit names its operation and the version it was built on."""
    segments = [
        fragmented.create_index_uncommitted("s", kind, name="by_s", fragment_ids=part)
        for part in ([0, 1], [2, 3])
    ]
    operation = LanceOperation.CreateIndex(segments, [])
    committed = LanceDataset.commit(fragmented, operation, read_version=1)
    assert _coverage(committed, "by_s") == (20, 0)


def test_a_text_index_committed_as_an_operation_cannot_be_read(fragmented: LanceDataset) -> None:
    """Relied on by: text indexes are committed as existing segments, never as an operation."""
    segment = fragmented.create_index_uncommitted(
        "s", "INVERTED", name="by_s", fragment_ids=[0, 1, 2, 3]
    )
    operation = LanceOperation.CreateIndex([segment], [])
    committed = LanceDataset.commit(fragmented, operation, read_version=1)
    with pytest.raises(pa.ArrowInvalid, match=r"Not found: .*_indices"):
        committed.to_table(columns=["s", "_score"], full_text_query="s3")


def test_a_text_index_committed_as_existing_segments_works(
    fragmented: LanceDataset, uri: str
) -> None:
    """Relied on by: text indexes are committed as existing segments, never as an operation."""
    segment = fragmented.create_index_uncommitted(
        "s", "INVERTED", name="by_s", fragment_ids=[0, 1, 2, 3]
    )
    lance.dataset(uri).commit_existing_index_segments("by_s", "s", [segment])
    found = lance.dataset(uri).to_table(columns=["s", "_score"], full_text_query="s3")
    assert found["s"].to_pylist() == ["s3"]
