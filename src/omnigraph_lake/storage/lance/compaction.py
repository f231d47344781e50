"""Compacts one table in three steps: plan, execute the tasks anywhere, commit.

A vector or full-text index keeps entries of rows that were deleted or updated since it was built.
They do no harm while the deletion is still noted in the row's fragment, and take places in results
once a compaction has forgotten it. Every deletion notes the version it was made from, and every
segment the version it was built from.

Invariants:

- Planning and executing move nothing; a task and its result are texts that cross processes.
- A commit counts only if it lands right above the pin: Lance puts a rewrite on top of whatever HEAD
  is by then.
- Content and row ids stay the same; only files and addresses change.
- The dead entries named here are all that an index can have. A fragment with such rows must not be
  compacted before these indexes were rebuilt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from lance.blob import BlobType
from lance.optimize import Compaction, CompactionTask, RewriteResult

from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance import datasets
from omnigraph_lake.storage.lance.checksums import damaged_indexes
from omnigraph_lake.storage.lance.next_version import head_of
from omnigraph_lake.storage.lance.row_lineage import has_long_sequences, hide_rewritten
from omnigraph_lake.storage.lance.tables import open_pinned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lance import LanceDataset
    from lance.lance.indices import IndexDescription
    from lance.optimize import CompactionOptions

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry


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
    dead_fragments = {
        index.name: _dead(index, present, deleted_from)
        for index in dataset.describe_indices()
        if _forgets(index)
    }
    return {name: fragments for name, fragments in dead_fragments.items() if fragments}


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
        int(part.get("num_docs", 0))
        + sum(int(partition["size"]) for partition in part.get("partitions", ()))
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
        dead |= {
            fragment_id
            for fragment_id in covered
            if deleted_from.get(fragment_id, -1) >= built_from
        }
    return frozenset(dead)


SUPPORTS_BLOBS: Final = True
"""Whether this Lance can rewrite blob columns; `tests/guards/test_blobs.py` turns red if not."""
VERSIONS_OF_A_REWRITE: Final = 2
"""A reservation of fragment numbers, and the rewrite itself."""

_IO_BUFFER_BYTES: Final = 32 << 20
_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS_MAX: Final = 8192
# What blobs weigh is written nowhere but in their rows.
_BLOB_BATCH_ROWS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """The tasks that make one table compact; each is a text that any process can execute.

    `is_held_up` says that more could be done once indexes were rebuilt: those that are damaged or
    have dead entries.
    """

    entry: TableEntry
    tasks: tuple[str, ...] = field(repr=False)
    is_held_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionWork:
    """One task of one table's compaction."""

    entry: TableEntry
    task: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRewrite:
    """Rewritten files of one table, made from exactly the pinned version, not committed yet."""

    entry: TableEntry
    results: tuple[str, ...] = field(repr=False)

    @property
    def table_key(self) -> str:
        return self.entry.table_key

    @property
    def files(self) -> tuple[str, ...]:
        """The new data files."""
        return tuple(
            file["path"]
            for result in map(json.loads, self.results)
            for fragment in result["new_fragments"]
            for file in fragment["files"]
        )

    @property
    def fragments_removed(self) -> int:
        return sum(self._metric("fragments_removed"))

    @property
    def fragments_added(self) -> int:
        return sum(self._metric("fragments_added"))

    def _metric(self, name: str) -> list[int]:
        return [json.loads(result)["metrics"][name] for result in self.results]


def plan_compaction(
    root: Root,
    entry: TableEntry,
    *,
    options: dict[str, Any] | None = None,
    excluded: frozenset[int] = frozenset(),
    erasing: bool = False,
) -> CompactionPlan:
    """What compaction of the fragments that are not excluded would do at the pin.

    No task means that there is nothing to do.

    With `erasing` fragments whose files hold values of dropped columns are rewritten, too.

    Lance also counts rows that are only marked as deleted, so one fragment can be work. Tasks carry
    along how much they read at once, so that one needs as little memory as another.
    """
    dataset = open_pinned(root, entry)
    with datasets.translated(root, f"plan the compaction of {entry.table_key}"):
        if damaged_indexes(root, entry):
            return CompactionPlan(entry=entry, tasks=(), is_held_up=True)
        chosen = options or {}
        tasks = _tasks(
            dataset, {**chosen, "excluded_fragment_ids": sorted(excluded)}, erasing=erasing
        )
        spared = frozenset().union(*dead_entries(dataset).values())
        touched = {
            fragment["id"] for task in tasks for fragment in json.loads(task)["task"]["fragments"]
        }
        if not touched & spared:
            return CompactionPlan(entry=entry, tasks=tasks)
        without = {**chosen, "excluded_fragment_ids": sorted(spared | excluded)}
        rest = _tasks(dataset, without, erasing=erasing)
        return CompactionPlan(entry=entry, tasks=rest, is_held_up=True)


def holds_dropped_values(root: Root, entry: TableEntry) -> bool:
    """Whether files of a version hold values of columns that it does not have."""
    dataset = open_pinned(root, entry)
    with datasets.translated(root, f"look at the files of {entry.table_key}"):
        present = _field_ids(dataset)
        return any(
            _has_dropped(fragment.metadata.to_json(), present)
            for fragment in dataset.get_fragments()
        )


def _field_ids(dataset: LanceDataset) -> frozenset[int]:
    """The ids of the columns, and of what is inside of them."""
    fields = [field for top in dataset.lance_schema.fields() for field in _with_inner(top)]
    return frozenset(field.id() for field in fields)


def _with_inner(field: Any) -> Iterator[Any]:
    yield field
    for inner in field.children():
        yield from _with_inner(inner)


def _has_dropped(fragment: Mapping[str, Any], present: frozenset[int]) -> bool:
    # A number below zero is a column that another file of the fragment replaces.
    return any(
        number >= 0 and number not in present
        for file in fragment["files"]
        for number in file["fields"]
    )


def _tasks(dataset: LanceDataset, options: dict[str, Any], *, erasing: bool) -> tuple[str, ...]:
    bounded = {"io_buffer_size": _IO_BUFFER_BYTES, "batch_size": _batch_rows(dataset)}
    # Lance's own description of these classes does not mention their texts.
    plan: Any = Compaction.plan(dataset, cast("CompactionOptions", bounded | options))
    return (
        *(task.json() for task in plan.tasks),
        *_further_tasks(dataset, json.loads(plan.json()), erasing=erasing),
    )


def _further_tasks(
    dataset: LanceDataset, plan: Mapping[str, Any], *, erasing: bool
) -> Iterator[str]:
    """Tasks for fragments that need nothing else, but keep long sequences in the manifest.

    Compactions that were made by hand leave them. With `erasing` also those with dropped columns.
    """
    present = _field_ids(dataset) if erasing else frozenset()
    others = {fragment["id"] for task in plan["tasks"] for fragment in task["fragments"]}
    others |= set(plan["options"]["excluded_fragment_ids"])
    for fragment in dataset.get_fragments():
        if fragment.fragment_id in others:
            continue
        described = fragment.metadata.to_json()
        is_long = dataset.has_stable_row_ids and has_long_sequences(described)
        if is_long or (erasing and _has_dropped(described, present)):
            task = {"task": {"fragments": [described]}}
            yield json.dumps({**task, **{key: plan[key] for key in ("read_version", "options")}})


def execute_task(root: Root, work: CompactionWork) -> str:
    """Write the new files of one task; returns its result."""
    dataset = open_pinned(root, work.entry)
    with datasets.translated(root, f"compact {work.entry.table_key}"):
        restored: Any = cast("Any", CompactionTask).from_json(work.task)
        return hide_rewritten(root, work.entry, dataset, str(restored.execute(dataset).json()))


def commit_rewrite(root: Root, staged: StagedRewrite) -> datasets.NewVersion | None:
    """Commit on top of the pin; the version made, None if it landed elsewhere or was refused."""
    entry = staged.entry
    handle = datasets.open_dataset(root, entry.location, fork=entry.fork, version=entry.version)
    if handle is None or head_of(root, entry, handle) != entry.version:
        return None
    reach("optimize.pre_reserve")
    with datasets.translated(root, f"commit the compaction of {entry.table_key}"):
        try:
            read = cast("Any", RewriteResult).from_json
            Compaction.commit(handle, [read(result) for result in staged.results])
        except OSError as error:
            if datasets.is_lost_or_unknown(error):
                return None
            raise
    new_version = datasets.NewVersion(int(handle.version), datasets.made_at(handle))
    reach("mutation.post_table_commit")
    return new_version if new_version.version == entry.version + VERSIONS_OF_A_REWRITE else None


def _batch_rows(dataset: LanceDataset) -> int:
    """Rows that are read at once: few where they are wide."""
    if any(isinstance(column.type, BlobType) for column in dataset.schema):
        return _BLOB_BATCH_ROWS
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    rows = sum(fragment.physical_rows for fragment in fragments)
    size = sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.files)
    return max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES * rows // max(1, size)))
