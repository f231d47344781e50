"""Builds the indexes of one table as segments that are not used until they are committed.

Lance never compacts fragments of different segments into one, so a new segment for new rows is
merged with the old one before it is committed.

A text condition means tokens as Python cuts and lower-cases them: runs of letters and digits,
nothing stemmed, folded or omitted. Lance cuts almost alike. Below `TRUSTED_MAX` both agree about a
token, unless a character next to it counts as a letter only in Lance: marks of some scripts,
letters in circles, and what Unicode has named since.

Invariants:

- Building moves nothing.
- Each index of a table is one segment over all fragments it knows.
- All indexes of a table are committed at once, as an ordinary change that carries its operation.
- No inverted index is built over a text with such a character next to a token, and none is asked
  for tokens with characters above `TRUSTED_MAX`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation
from lance.dataset import Index

from omnigraph_lake import names
from omnigraph_lake.errors import IndexPendingError
from omnigraph_lake.storage.lance.checksums import damaged_indexes
from omnigraph_lake.storage.lance.compaction import dead_entries, overfull_indexes
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.staging.changes import Change, StagedChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance import LanceDataset
    from lance.lance.indices import IndexDescription

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry


TRUSTED_MAX: Final = "\u024f"

PARAMETERS: Final[Mapping[str, Any]] = {
    "base_tokenizer": "simple",
    "lower_case": True,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": None,
    "with_position": True,
}
"""How every inverted index is built; one that was built otherwise is rebuilt."""

_AGREED: Final = (
    *((0x0, 0x344), (0x346, 0x362), (0x370, 0x52F), (0x1E00, 0x24B5), (0x24EA, 0x2DDF)),
    *((0x2E00, 0xA66F), (0xAC00, 0xFAFF), (0xFE00, 0xFE0F)),
    *((0xFE30, 0xFFFD), (0x1F000, 0x1F12F), (0x1F18A, 0x1FFFF)),
)
"""Characters about which both agree whether they are letters or digits."""
_DOUBTED: Final = "".join(
    f"{chr(last + 1)}-{chr(first - 1)}"
    for (_, last), (first, _) in zip(_AGREED, (*_AGREED[1:], (0x110000, 0)), strict=True)
)
"""The inside of a character class of all others, for Python and RE2 alike."""
_DOUBTED_CHARACTER: Final = re.compile(f"[{_DOUBTED}]")
_GAP: Final = re.compile(r"[\W_]+")


def is_built_for_tokens(details: Mapping[str, Any]) -> bool:
    """Whether an index, as Lance describes it, was built with our parameters."""
    return all(details.get(name, value is None) == value for name, value in PARAMETERS.items())


def are_trusted(words: Iterable[str]) -> bool:
    """Whether an index finds every text that has these tokens."""
    return all(max(word) <= TRUSTED_MAX for word in words)


def first_doubtful(texts: pa.Array | pa.ChunkedArray) -> str | None:
    """A text in which Lance could miss a trusted token; None if there is none."""
    suspects = texts.filter(pc.match_substring_regex(texts, f"[{_DOUBTED}]"))
    return next((text for text in suspects.to_pylist() if _is_doubtful(text)), None)


def has_doubted(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Whether Lance could cut one of these texts into other tokens than we do."""
    others = texts.filter(pc.invert(pc.string_is_ascii(texts)))
    return bool(pc.any(pc.match_substring_regex(others, f"[{_DOUBTED}]")).as_py())


def _is_doubtful(text: str) -> bool:
    """Whether Lance could join such a character to a trusted token, or put it between two."""
    for gap in _GAP.finditer(text):
        start, end = gap.span()
        inside = gap.group()
        if not _DOUBTED_CHARACTER.search(inside):
            continue
        before = start > 0 and text[start - 1] <= TRUSTED_MAX
        behind = end < len(text) and text[end] <= TRUSTED_MAX
        touched = (inside[0] if before else "") + (inside[-1] if behind else "")
        if (before and behind) or _DOUBTED_CHARACTER.search(touched):
            return True
    return False


Segment: TypeAlias = Index
"""An index over some fragments that is not in service yet; it crosses processes."""

_ROWS_PER_PARTITION: Final = 4096
PARTITIONS_MAX: Final = 1024
_REBUILD_SHARE: Final = 0.5
"""Merging two segments costs half of building both; with more new rows than this, one is built."""
_RETRAIN_SHARE: Final = 0.25
"""A vector index is retrained once this share of its rows was added after training."""


class Organisation(StrEnum):
    """How an index is laid out, in Lance's words."""

    BTREE = "BTREE"
    INVERTED = "INVERTED"
    IVF_FLAT = "IVF_FLAT"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWish:
    """An index a table should have."""

    name: str
    column: str
    organisation: Organisation
    metric: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTask:
    """One index to build over some fragments of a pinned table; any process can do it."""

    entry: TableEntry
    wish: IndexWish
    fragments: tuple[int, ...]
    centroids: pa.FixedSizeListArray | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan:
    """What the indexes of one table need; `untrainable` have no vector to learn from yet.

    `unwanted` names indexes that are not declared any more, or whose column has another name now.
    `waiting` wishes want such a name for themselves: Lance gives it to them once it is free.
    """

    entry: TableEntry
    tasks: tuple[IndexTask, ...] = ()
    untrainable: tuple[IndexWish, ...] = ()
    unwanted: tuple[str, ...] = ()
    waiting: tuple[IndexWish, ...] = ()

    @property
    def is_idle(self) -> bool:
        return not self.tasks and not self.unwanted


def plan_indexes(root: Root, entry: TableEntry, index_wishes: Iterable[IndexWish]) -> IndexPlan:
    """The tasks that bring every wished index up to date at the pin; an empty table needs none."""
    if entry.row_count == 0:
        return IndexPlan(entry=entry)
    dataset = open_pinned(root, entry)
    damaged = damaged_indexes(root, entry)
    index_wishes = tuple(index_wishes)
    tasks: list[IndexTask] = []
    untrainable: list[IndexWish] = []
    with translated(root, f"look at the indexes of {entry.table_key}"):
        present = {fragment.fragment_id for fragment in dataset.get_fragments()}
        built = {index.name: index for index in dataset.describe_indices()}
        unsound = dead_entries(dataset).keys() | overfull_indexes(dataset)
        unsound |= {name for name, index in built.items() if _is_damaged(index, damaged)}
        wished = {wish.name: wish.column for wish in index_wishes}
        unwanted = [
            name
            for name, index in sorted(built.items())
            if names.is_index_name(name) and list(index.field_names) != [wished.get(name)]
        ]
        waiting = tuple(wish for wish in index_wishes if wish.name in unwanted)
        for wish in (wish for wish in index_wishes if wish not in waiting):
            task = _task(
                dataset,
                entry,
                wish,
                built.get(wish.name),
                present,
                is_unsound=wish.name in unsound,
            )
            if task is None:
                continue
            if len(task.fragments) == len(present) and _is_untrainable(dataset, wish):
                untrainable.append(wish)
            else:
                tasks.append(task)
    return IndexPlan(
        entry=entry,
        tasks=tuple(tasks),
        untrainable=tuple(untrainable),
        unwanted=tuple(unwanted),
        waiting=waiting,
    )


def build_segment(root: Root, task: IndexTask) -> Segment:
    """Build what a task asks for; HEAD does not move.

    Raises:
        IndexPendingError: it cannot be trained on these rows, such as vectors that are all null.
    """
    part = build_part(root, task)
    if task.wish.organisation is Organisation.INVERTED:
        # A segment of this kind can be read only after it was merged, even with nothing else.
        return merge_segments(root, task.entry, [part])
    return part


def build_part(root: Root, task: IndexTask) -> Segment:
    """Build a segment that is merged with others before it is read."""
    dataset = open_pinned(root, task.entry)
    with translated(root, f"build index {task.wish.name} of {task.entry.table_key}"):
        _refuse_doubtful_texts(dataset, task)
        try:
            return dataset.create_index_uncommitted(
                task.wish.column,
                task.wish.organisation.value,
                name=task.wish.name,
                replace=True,
                fragment_ids=list(task.fragments),
                **_parameters(task),
            )
        except RuntimeError as error:
            # Lance's way of saying that an index cannot be built from these rows.
            reason = str(error).splitlines()[0].partition(", /")[0]
            raise IndexPendingError(f"{task.wish.name}: {reason}") from error


def _refuse_doubtful_texts(dataset: LanceDataset, task: IndexTask) -> None:
    """Rows that no index knows are searched as they are, so nothing is lost without one."""
    if task.wish.organisation is not Organisation.INVERTED:
        return
    column = task.wish.column
    wanted = set(task.fragments)
    fragments = [fragment for fragment in dataset.get_fragments() if fragment.fragment_id in wanted]
    for batch in dataset.scanner(columns=[column], fragments=fragments).to_batches():
        text = first_doubtful(batch.column(column))
        if text is not None:
            raise IndexPendingError(
                f"{task.wish.name}: {text!r:.80} has a letter beside a sign that an index would "
                "take for one"
            )


def merge_segments(root: Root, entry: TableEntry, segments: Sequence[Segment]) -> Segment:
    """One segment instead of several of one index; HEAD does not move."""
    dataset = open_pinned(root, entry)
    with translated(root, f"merge index {segments[0].name} of {entry.table_key}"):
        return dataset.merge_existing_index_segments(list(segments))


def stage_indexes(
    root: Root, entry: TableEntry, segments: Sequence[Segment], unwanted: Sequence[str] = ()
) -> StagedChange:
    """One change that puts the segments into service, merged by index with what they continue.

    Indexes that are unwanted leave service with it.
    """
    base = open_pinned(root, entry)
    by_name: dict[str, list[Segment]] = {}
    for segment in segments:
        by_name.setdefault(segment.name, []).append(segment)
    added: list[Segment] = []
    removed: list[Segment] = []
    with translated(root, f"stage the indexes of {entry.table_key}"):
        present = {fragment.fragment_id for fragment in base.get_fragments()}
        built = {index.name: index for index in base.describe_indices()}
        for name in unwanted:
            removed += _older_segments(built.get(name), details=None)
        for name, new_segments in by_name.items():
            older = _older_segments(built.get(name), details=new_segments[0].index_details)
            covered = set[int]().union(*(set(segment.fragment_ids) for segment in new_segments))
            joined_segments = [
                old for old in older if (set(old.fragment_ids) & present) - covered
            ] + new_segments
            added.append(
                joined_segments[0] if len(joined_segments) == 1 else _merge(base, joined_segments)
            )
            removed += older
    return StagedChange(
        entry=entry,
        change=Change.INDEX,
        rows_inserted=0,
        rows_updated=0,
        rows_deleted=0,
        make_operation=lambda: LanceOperation.CreateIndex(added, removed),
        base=base,
    )


def _merge(base: LanceDataset, segments: list[Segment]) -> Segment:
    return base.merge_existing_index_segments(segments)


def _task(
    dataset: LanceDataset,
    entry: TableEntry,
    wish: IndexWish,
    built: IndexDescription | None,
    present: set[int],
    *,
    is_unsound: bool,
) -> IndexTask | None:
    """What one index needs: all of it, the fragments it does not know, or nothing.

    What is merged keeps its dead entries and its damage, so an index with some is rebuilt.
    """
    full_task = IndexTask(entry=entry, wish=wish, fragments=tuple(sorted(present)))
    if built is None or len(built.segments) != 1 or not _is_as_wished(built, wish):
        return full_task
    if is_unsound:
        return full_task
    missing_ids = present - set(built.segments[0].fragment_ids)
    if not missing_ids:
        return None
    match wish.organisation:
        case Organisation.BTREE | Organisation.INVERTED:
            if _rows_in(dataset, missing_ids) > _REBUILD_SHARE * entry.row_count:
                return full_task
            return replace(full_task, fragments=tuple(sorted(missing_ids)))
        case Organisation.IVF_FLAT:
            return _vector_task(dataset, full_task, missing_ids)
        case _:
            assert_never(wish.organisation)


def _is_damaged(index: IndexDescription, damaged: frozenset[str]) -> bool:
    return any(str(segment.uuid) in damaged for segment in index.segments)


def _rows_in(dataset: LanceDataset, fragments: set[int]) -> int:
    return sum(
        int(fragment.metadata.num_rows)
        for fragment in dataset.get_fragments()
        if fragment.fragment_id in fragments
    )


def _is_as_wished(built: IndexDescription, wish: IndexWish) -> bool:
    """Whether an index was built with the settings that one built now would have."""
    match wish.organisation:
        case Organisation.BTREE:
            return True
        case Organisation.INVERTED:
            return is_built_for_tokens(built.details)
        case Organisation.IVF_FLAT:
            return str(built.details.get("metric_type", "")).lower() == wish.metric
        case _:
            assert_never(wish.organisation)


def _is_untrainable(dataset: LanceDataset, wish: IndexWish) -> bool:
    if wish.organisation is not Organisation.IVF_FLAT:
        return False
    return not has_values(dataset, wish.column)


def has_values(dataset: LanceDataset, column: str) -> bool:
    """Whether a column has a value: an index of vectors cannot be built without one."""
    scanner = dataset.scanner(columns=[column], filter=f"{column} IS NOT NULL", limit=1)
    return bool(scanner.to_table().num_rows)


def _vector_task(dataset: LanceDataset, full_task: IndexTask, missing_ids: set[int]) -> IndexTask:
    """New vectors join the partitions that exist, until they are too many to be represented."""
    statistics: dict[str, Any] = dataset.stats.index_stats(full_task.wish.name)
    share = int(statistics["num_unindexed_rows"]) / max(1, full_task.entry.row_count)
    if share > _RETRAIN_SHARE:
        return full_task
    centroids = statistics["indices"][0]["centroids"]
    flat = pa.array([value for centroid in centroids for value in centroid], pa.float32())
    return replace(
        full_task,
        fragments=tuple(sorted(missing_ids)),
        centroids=pa.FixedSizeListArray.from_arrays(flat, len(centroids[0])),
    )


def _parameters(task: IndexTask) -> dict[str, Any]:
    match task.wish.organisation:
        case Organisation.BTREE:
            return {}
        case Organisation.INVERTED:
            return dict(PARAMETERS)
        case Organisation.IVF_FLAT if task.centroids is not None:
            return {
                "metric": task.wish.metric,
                "num_partitions": len(task.centroids),
                "ivf_centroids": task.centroids,
            }
        case Organisation.IVF_FLAT:
            partitions = partitions_of(task.entry.row_count)
            return {"metric": task.wish.metric, "num_partitions": partitions}
        case _:
            assert_never(task.wish.organisation)


def partitions_of(rows: int) -> int:
    """How many parts a vector index over so many rows has."""
    return max(1, min(PARTITIONS_MAX, rows // _ROWS_PER_PARTITION))


def _older_segments(
    built: IndexDescription | None, *, details: tuple[str, bytes] | None
) -> list[Segment]:
    """The segments in service, as Lance wants them named; their details are those of new ones."""
    if built is None:
        return []
    return [
        Segment(
            uuid=str(segment.uuid),
            name=built.name,
            fields=list(built.fields),
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=segment.fragment_ids,
            index_version=segment.index_version,
            created_at=segment.created_at,
            base_id=segment.base_id,
            index_details=details,
        )
        for segment in built.segments
    ]
