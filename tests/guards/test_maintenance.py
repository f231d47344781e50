"""What compaction, index segments and cleanup of Lance do that maintenance leans on.

Relied on in: `storage/indexes/segments.py`, `storage/lance/compaction.py`,
`maintenance/workers.py`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.dataset import Index
from lance.optimize import Compaction
from lance.query import MatchQuery

pytestmark = pytest.mark.unit

PROPERTIES = {"omnigraph:operation": "o"}
KINDS = {"n": "BTREE", "words": "INVERTED", "place": "IVF_FLAT"}


def rows(start: int, count: int) -> pa.Table:
    numbers = list(range(start, start + count))
    flat = pa.array([value for each in numbers for value in (float(each), 0.0)], pa.float32())
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "n": pa.array(numbers, pa.int64()),
            "words": [f"common only{each}" for each in numbers],
            "place": pa.FixedSizeListArray.from_arrays(flat, 2),
        }
    )


@pytest.fixture
def dataset(uri: str) -> LanceDataset:
    """Twenty rows in one fragment, without an index."""
    return lance.write_dataset(rows(0, 20), uri, enable_stable_row_ids=True)


def build(dataset: LanceDataset, column: str, fragments: list[int], **more: Any) -> Index:
    """A segment that is not in service yet."""
    if column == "words":
        more["with_position"] = True
    if column == "place":
        more = {"metric": "l2", "num_partitions": 1, **more}
    return dataset.create_index_uncommitted(
        column, KINDS[column], name=column, replace=True, fragment_ids=fragments, **more
    )


def serve(
    dataset: LanceDataset, new: list[Index], removed: list[Index] | None = None
) -> LanceDataset:
    """Put segments into service as one transaction that carries properties."""
    transaction = Transaction(
        read_version=dataset.version,
        operation=LanceOperation.CreateIndex(new, removed or []),
        transaction_properties=PROPERTIES,
    )
    return LanceDataset.commit(dataset.uri, transaction)


def in_service(dataset: LanceDataset, name: str, details: Any) -> list[Index]:
    """The segments of an index as a transaction wants them named."""
    (built,) = (each for each in dataset.describe_indices() if each.name == name)
    return [
        Index(
            uuid=str(each.uuid),
            name=built.name,
            fields=list(built.fields),
            dataset_version=each.dataset_version_at_last_update,
            fragment_ids=each.fragment_ids,
            index_version=each.index_version,
            created_at=each.created_at,
            base_id=each.base_id,
            index_details=details,
        )
        for each in built.segments
    ]


def covered(dataset: LanceDataset, name: str) -> list[list[int]]:
    (built,) = (each for each in dataset.describe_indices() if each.name == name)
    return [sorted(each.fragment_ids) for each in built.segments]


def searched(dataset: LanceDataset, word: str, **more: Any) -> list[int]:
    query = MatchQuery(word, "words")
    found = dataset.to_table(columns=["id", "_score"], full_text_query=query, **more)
    return [int(each) for each in found["id"].to_pylist()]


def nearest(dataset: LanceDataset, place: float, count: int) -> list[int]:
    query = {"column": "place", "q": [place, 0.0], "k": count}
    found = dataset.to_table(columns=["id", "_distance"], nearest=query)
    return [int(each) for each in found["id"].to_pylist()]


def prepared(dataset: LanceDataset, column: str) -> Index:
    """A whole index that can be read once it is in service."""
    present = [each.fragment_id for each in dataset.get_fragments()]
    segment = build(dataset, column, present)
    return dataset.merge_existing_index_segments([segment]) if column == "words" else segment


def test_building_a_segment_does_not_move_head(dataset: LanceDataset, uri: str) -> None:
    """Relied on by: segments are built before the sidecar is armed."""
    build(dataset, "n", [0])

    assert lance.dataset(uri).version == 1
    assert lance.dataset(uri).describe_indices() == []


def test_one_transaction_serves_several_indexes_and_carries_properties(
    dataset: LanceDataset, recorded: Callable[[LanceDataset, int], Transaction]
) -> None:
    """Relied on by: all indexes of a table are one version with its operation."""
    served = serve(dataset, [prepared(dataset, "n"), prepared(dataset, "place")])

    assert served.version == 2
    assert {each.name for each in served.describe_indices()} == {"n", "place"}
    assert recorded(served, 2).transaction_properties == PROPERTIES


def test_a_new_segment_leaves_those_that_are_not_named_in_service(dataset: LanceDataset) -> None:
    """Relied on by: what a segment replaces is named in the transaction, by us."""
    served = serve(dataset, [prepared(dataset, "n")])
    served.insert(rows(20, 5))
    segment = build(served, "n", [1])

    both = serve(served, [segment])

    assert sorted(covered(both, "n")) == [[0], [1]]
    assert both.to_table(filter="n = 3")["id"].to_pylist() == [3]
    assert both.to_table(filter="n = 23")["id"].to_pylist() == [23]


@pytest.mark.parametrize("column", ["n", "place"])
def test_merged_segments_take_the_place_of_those_named(dataset: LanceDataset, column: str) -> None:
    """Relied on by: an index of a table is one segment."""
    served = serve(dataset, [prepared(dataset, column)])
    served.insert(rows(20, 5))
    more = {}
    if column == "place":
        (known,) = served.stats.index_stats("place")["indices"]
        flat = pa.array([v for each in known["centroids"] for v in each], pa.float32())
        more = {"ivf_centroids": pa.FixedSizeListArray.from_arrays(flat, 2)}
    segment = build(served, column, [1], **more)
    older = in_service(served, column, segment.index_details)

    merged = serve(served, [served.merge_existing_index_segments([*older, segment])], older)

    assert covered(merged, column) == [[0, 1]]
    statistics = merged.stats.index_stats(column)
    assert (statistics["num_indexed_rows"], statistics["num_unindexed_rows"]) == (25, 0)


def test_a_text_segment_can_be_read_only_after_it_was_merged(dataset: LanceDataset) -> None:
    """Relied on by: full-text segments are merged, even with nothing else."""
    alone = serve(dataset, [build(dataset, "words", [0])])
    with pytest.raises((OSError, ValueError, RuntimeError)):
        searched(alone, "only3")

    merged = alone.merge_existing_index_segments([build(alone, "words", [0])])
    again = serve(alone, [merged], in_service(alone, "words", merged.index_details))

    assert searched(again, "only3") == [3]


def test_merging_needs_the_details_of_a_segment(dataset: LanceDataset) -> None:
    """Relied on by: older segments get the details of the new one, which a listing lacks."""
    served = serve(dataset, [prepared(dataset, "n")])
    served.insert(rows(20, 5))
    segment = build(served, "n", [1])

    with pytest.raises((OSError, ValueError, RuntimeError, TypeError)):
        served.merge_existing_index_segments([*in_service(served, "n", None), segment])


def test_vector_segments_of_other_partitions_cannot_be_merged(dataset: LanceDataset) -> None:
    """Relied on by: new vectors join the partitions of the index that exists."""
    served = serve(dataset, [prepared(dataset, "place")])
    served.insert(rows(500, 5))
    segment = build(served, "place", [1])
    older = in_service(served, "place", segment.index_details)

    with pytest.raises((OSError, ValueError, RuntimeError)):
        served.merge_existing_index_segments([*older, segment])


def test_statistics_tell_the_centroids_of_a_vector_index(dataset: LanceDataset) -> None:
    """Relied on by: new vectors join the partitions of the index that exists.

    Relied on in `storage/indexes/segments.py`, `storage/indexes/vector_search.py`,
    `storage/__init__.py`.
    """
    served = serve(dataset, [prepared(dataset, "place")])

    (segment,) = served.stats.index_stats("place")["indices"]

    assert segment["metric_type"] == "l2"
    assert segment["centroids"] == [[pytest.approx(9.5), pytest.approx(0.0)]]


def test_fragments_of_different_segments_are_never_compacted_together(
    dataset: LanceDataset,
) -> None:
    """Relied on by: an index of a table is one segment, else its files stay many for ever."""
    for start in (20, 25, 30):
        dataset.insert(rows(start, 5))
    apart = serve(dataset, [build(dataset, "n", [0, 1])])
    apart = serve(apart, [build(apart, "n", [2, 3])])

    tasks: list[Any] = list(Compaction.plan(apart, {}).tasks)

    assert sorted(sorted(each.id for each in task.fragments) for task in tasks) == [[0, 1], [2, 3]]


def test_a_merged_text_index_finds_an_updated_row_by_its_old_words(dataset: LanceDataset) -> None:
    """Relied on by: full-text segments are built anew after updates, not merged."""
    served = serve(dataset, [prepared(dataset, "words")])
    changed = rows(3, 1).set_column(2, "words", pa.array(["other"]))
    served.merge_insert("id").when_matched_update_all().execute(changed)
    served = lance.dataset(served.uri)
    assert searched(served, "only3") == []
    segment = served.merge_existing_index_segments([build(served, "words", [1])])
    older = in_service(served, "words", segment.index_details)

    merged = serve(served, [served.merge_existing_index_segments([*older, segment])], older)

    assert searched(merged, "only3") == [3]


def test_entries_of_deleted_rows_use_up_neighbours_and_limits_after_a_compaction(
    dataset: LanceDataset,
) -> None:
    """Relied on by: vector and text indexes are built anew when compaction drops rows."""
    served = serve(dataset, [prepared(dataset, "place"), prepared(dataset, "words")])
    served.delete("id IN (1, 2, 3)")
    assert nearest(served, 1.0, 4) == [0, 4, 5, 6]

    served.optimize.compact_files()

    compacted = lance.dataset(served.uri)
    assert len(nearest(compacted, 1.0, 4)) < 4
    assert len(searched(compacted, "common", limit=6)) < 6
    (vectors,) = compacted.stats.index_stats("place")["indices"]
    assert sum(each["size"] for each in vectors["partitions"]) == 20
    assert compacted.stats.index_stats("place")["num_indexed_rows"] == 17
    (words,) = compacted.stats.index_stats("words")["indices"]
    assert words["num_docs"] == 20


def test_a_tree_forgets_rows_that_left_its_fragments(dataset: LanceDataset) -> None:
    """Relied on by: trees are merged after updates and kept after deletions."""
    served = serve(dataset, [prepared(dataset, "n")])
    changed = rows(3, 1).set_column(1, "n", pa.array([300], pa.int64()))
    served.merge_insert("id").when_matched_update_all().execute(changed)
    served = lance.dataset(served.uri)
    segment = build(served, "n", [1])
    older = in_service(served, "n", segment.index_details)

    merged = serve(served, [served.merge_existing_index_segments([*older, segment])], older)

    assert merged.count_rows("n = 3") == 0
    assert merged.to_table(filter="n = 300")["id"].to_pylist() == [3]
    assert merged.count_rows("n < 10") == 9


def test_committing_a_compaction_gives_a_tree_new_files(dataset: LanceDataset, uri: str) -> None:
    """Relied on by: the files of a rewrite that are named beforehand are its data files only."""
    dataset.insert(rows(20, 5))
    served = serve(dataset, [prepared(dataset, "n")])
    before = {each.name for each in Path(uri, "_indices").iterdir()}
    plan = Compaction.plan(served, {})
    results = [task.execute(served) for task in plan.tasks]
    assert {each.name for each in Path(uri, "_indices").iterdir()} == before

    Compaction.commit(served, results)

    compacted = lance.dataset(uri)
    assert {each.name for each in Path(uri, "_indices").iterdir()} > before
    assert compacted.stats.index_stats("n")["num_unindexed_rows"] == 0
    assert compacted.to_table(filter="n = 23")["id"].to_pylist() == [23]


def test_cleaning_named_versions_of_a_fork_removes_only_its_own(
    dataset: LanceDataset, uri: str
) -> None:
    """Relied on by: the lines of a table are cleaned one by one.

    Relied on in `storage/manifest/retention.py`.
    """
    dataset.insert(rows(20, 5))
    fork = dataset.create_branch("side", 1)
    for start in (30, 40):
        fork.insert(rows(start, 5))
    assert sorted(each["version"] for each in fork.version_refs()) == [1, 2, 3]

    fork.cleanup_old_versions(versions=[1, 2])

    again = lance.dataset(uri).checkout_version(("side", None))
    assert sorted(each["version"] for each in again.version_refs()) == [3]
    assert sorted(each["version"] for each in lance.dataset(uri).version_refs()) == [1, 2]
    assert (again.count_rows(), lance.dataset(uri).count_rows()) == (30, 25)
    assert lance.dataset(uri, version=1).to_table().num_rows == 20


def test_the_time_of_a_version_is_local_and_does_not_say_so(dataset: LanceDataset) -> None:
    """Relied on by: ages of versions are measured in one zone.

    Relied on in `storage/lance/datasets.py` (`made_at`).
    """
    made = dataset.get_version()["timestamp"]

    assert isinstance(made, dt.datetime)
    assert made.tzinfo is None
    passed = dt.datetime.now(dt.UTC) - made.astimezone(dt.UTC)
    assert dt.timedelta(0) <= passed < dt.timedelta(minutes=5)


def test_an_explained_cleanup_is_what_a_cleanup_does(dataset: LanceDataset, uri: str) -> None:
    """Relied on by: a preview tells what would go, and removes nothing.

    Relied on in `storage/manifest/retention.py`.
    """
    for start in (20, 30):
        dataset.insert(rows(start, 5))
    dataset.optimize.compact_files()
    dataset = lance.dataset(uri)

    said = dataset.explain_cleanup_old_versions(versions=[1, 2, 3]).stats
    assert len(list(dataset.version_refs())) == dataset.version
    done = dataset.cleanup_old_versions(versions=[1, 2, 3])

    assert (said.old_versions, said.data_files_removed) == (3, done.data_files_removed)
    assert said.bytes_removed == done.bytes_removed
