"""Entries of indexes whose rows are gone.

Invariant: what is named here is all that can be there. A vector or full-text index keeps entries of
rows that were deleted or updated since it was built. They do no harm while the deletion is still
noted in the row's fragment, and take places in results once a compaction has forgotten it. So a
fragment with such rows must not be compacted before these indexes were rebuilt.

Every deletion notes the version it was made from, and every segment the version it was built from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance import LanceDataset
    from lance.lance.indices import IndexDescription

_FULL_TEXT: Final = "Inverted"
_VECTOR: Final = "IVF_"


def dead_entries(dataset: LanceDataset) -> dict[str, frozenset[int]]:
    """Per index that has such entries: the fragments that their rows were in, gone ones too."""
    deleted_from = {
        fragment.fragment_id: fragment.metadata.deletion_file.read_version
        for fragment in dataset.get_fragments()
        if fragment.metadata.deletion_file is not None
    }
    present = {fragment.fragment_id for fragment in dataset.get_fragments()}
    found = {
        index.name: _dead(index, present, deleted_from)
        for index in dataset.describe_indices()
        if _forgets(index)
    }
    return {name: fragments for name, fragments in found.items() if fragments}


def overfull_indexes(dataset: LanceDataset) -> set[str]:
    """The indexes that hold more entries than there are rows they could be of.

    That is how a compaction by hand shows, which forgot deletions without asking.
    """
    return {
        index.name
        for index in dataset.describe_indices()
        if _forgets(index) and _is_overfull(dataset.stats.index_stats(index.name))
    }


def _forgets(index: IndexDescription) -> bool:
    """Whether an index keeps entries of rows that are gone."""
    return index.index_type == _FULL_TEXT or index.index_type.startswith(_VECTOR)


def _is_overfull(statistics: Mapping[str, Any]) -> bool:
    entries = sum(
        int(part.get("num_docs", 0)) + sum(int(each["size"]) for each in part.get("partitions", ()))
        for part in statistics["indices"]
    )
    return entries > int(statistics["num_indexed_rows"])


def _dead(
    index: IndexDescription, present: set[int], deleted_from: dict[int, int]
) -> frozenset[int]:
    dead: set[int] = set()
    for segment in index.segments:
        built_from = segment.dataset_version_at_last_update
        covered = set(segment.fragment_ids)
        dead |= covered - present
        dead |= {each for each in covered if deleted_from.get(each, -1) >= built_from}
    return frozenset(dead)
