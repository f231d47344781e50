"""Put the edges of clustered tables in the order of their sources, on a runner.

A table of more than one bucket is divided by ranges of its keys: tasks read keys at even distances,
then every row once, which they write to the files of its range; other tasks sort one range after
the other and write fragments.

Invariants:
- The memory of a task follows one range, never the table. Ranges are made of source and target, so
  a source with many edges is divided like others.
- Nothing names what is written here before the commit of the maintenance. A task answers once its
  files are on stable storage, and may run twice.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.runner.protocol import Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import (
    BucketWriter,
    Scratch,
    StagedFile,
    files_by_bucket,
    read_files,
)
from omnigraph_lake.storage.lance.clustering import (
    ClusterPlan,
    describe_rewrite,
    in_order,
    read_rows,
    sample_keys,
    write_ordered,
)
from omnigraph_lake.storage.lance.compaction import StagedRewrite
from omnigraph_lake.storage.lance.tables import grouped
from omnigraph_lake.storage.objects.durability import make_durable

if TYPE_CHECKING:
    from omnigraph_lake.maintenance.workers import Workers
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

ROWS_PER_BUCKET: Final = 250_000
"""Rows that a task sorts at once; fewer if they are wide."""
ROWS_PER_FRAGMENT: Final = 1 << 20
"""Of a new fragment, as Lance chooses it; a task keeps row ids and versions of one in memory."""

_ROWS_PER_FRAGMENT_MAX: Final = 4 << 20
_ROWS_PER_PIECE: Final = 1 << 20
_BUCKETS_MAX: Final = 4_096
_STORED_BYTES_PER_BUCKET: Final = 64 << 20
_KEYS_PER_BUCKET: Final = 64
_ROLE: Final = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ordering:
    """One table and how its rows are divided; `bounds` are the first keys of all ranges but one."""

    root: Root
    entry: TableEntry
    rows_per_fragment: int
    bounds: tuple[str, ...] = ()

    def divide(self, scratch: Scratch, fragments: tuple[int, ...], task: Task) -> list[StagedFile]:
        """Write the rows of some fragments to the files of their ranges."""
        writer = BucketWriter(scratch, table=0, role=_ROLE, buckets=len(self.bounds) + 1)
        for batch in read_rows(self.root, self.entry, fragments):
            task.advance(rows=batch.num_rows)
            rows, keys = in_order(pa.Table.from_batches([batch]))
            for bucket, start, stop in _ranges(keys.to_pylist(), self.bounds):
                for part in rows.slice(start, stop - start).combine_chunks().to_batches():
                    writer.add(bucket, part)
        return writer.files()

    def sort_files(self, scratch: Scratch, ranges: Sequence[tuple[str, ...]], task: Task) -> str:
        """Write the rows of consecutive ranges in order."""
        return self._write(
            pa.Table.from_batches(_advancing(read_files(scratch, files), task)) for files in ranges
        )

    def sort_fragments(self, fragments: tuple[int, ...], task: Task) -> str:
        """The same for rows that are few enough to be sorted where they are stored."""
        batches = _advancing(read_rows(self.root, self.entry, fragments), task)
        return self._write(iter([pa.Table.from_batches(batches)]))

    def sample(self, step: int, fragments: tuple[int, ...], task: Task) -> list[str]:
        task.advance()
        return sample_keys(self.root, self.entry, fragments, step=step)

    def _write(self, parts: Iterator[pa.Table]) -> str:
        ordered = (in_order(part)[0] for part in parts)
        fragments = write_ordered(self.root, self.entry, ordered, rows_max=self.rows_per_fragment)
        make_durable(self.root)
        return json.dumps(fragments)


def order_tables(
    workers: Workers,
    plans: Iterable[ClusterPlan],
    *,
    rows_per_fragment: int | None,
    new_id: Callable[[], str],
) -> tuple[dict[str, StagedRewrite], dict[str, OmnigraphError]]:
    """Rewrite tables one after the other: their new files, and failures by table."""
    rewrites: dict[str, StagedRewrite] = {}
    failed: dict[str, OmnigraphError] = {}
    rows = min(rows_per_fragment or ROWS_PER_FRAGMENT, _ROWS_PER_FRAGMENT_MAX)
    for plan in plans:
        ordering = _Ordering(root=workers.root, entry=plan.entry, rows_per_fragment=rows)
        try:
            descriptions = _order(workers, plan, ordering, new_id)
            fragments = [fragment for text in descriptions for fragment in json.loads(text)]
            results = describe_rewrite(workers.root, plan.entry, fragments)
        except OmnigraphError as error:
            failed[plan.entry.table_key] = error
        else:
            rewrites[plan.entry.table_key] = StagedRewrite(entry=plan.entry, results=results)
    return rewrites, failed


def _order(
    workers: Workers, plan: ClusterPlan, ordering: _Ordering, new_id: Callable[[], str]
) -> list[str]:
    """Descriptions of new fragments, in order."""
    runner = workers.runner
    stage = partial(Stage, verb="optimize", type=plan.entry.table_key.partition(":")[2])
    by_rows, by_bytes = plan.rows / ROWS_PER_BUCKET, plan.stored_bytes / _STORED_BYTES_PER_BUCKET
    buckets = min(math.ceil(max(by_rows, by_bytes)), plan.rows, _BUCKETS_MAX)
    if buckets == 1:
        everything = tuple(fragment.fragment_id for fragment in plan.fragments)
        sort = stage(name="sort edges")
        return require_answers(runner.map(sort, [everything], ordering.sort_fragments, str))
    pieces = grouped(plan.fragments, rows_max=_ROWS_PER_PIECE)
    sample = partial(ordering.sample, max(1, plan.rows // (buckets * _KEYS_PER_BUCKET)))
    samples = runner.map(stage(name="read some keys"), pieces, sample, list[str])
    keys = sorted(key for of_piece in require_answers(samples) for key in of_piece)
    divided = _Ordering(
        root=ordering.root,
        entry=ordering.entry,
        rows_per_fragment=ordering.rows_per_fragment,
        bounds=_bounds(keys, buckets),
    )
    with runner.scratch(new_id()) as scratch:
        divide = partial(divided.divide, scratch)
        answers = runner.map(stage(name="divide edges"), pieces, divide, list[StagedFile])
        files = files_by_bucket(file for files in require_answers(answers) for file in files)
        groups = _groups(files, divided.rows_per_fragment)
        sort_files = partial(divided.sort_files, scratch)
        return require_answers(runner.map(stage(name="sort edges"), groups, sort_files, str))


def _bounds(keys: Sequence[str], buckets: int) -> tuple[str, ...]:
    """The first keys of all ranges but the lowest, so that all have about as many sampled keys."""
    chosen = (keys[len(keys) * number // buckets] for number in range(1, buckets))
    return tuple(dict.fromkeys(chosen))


def _ranges(keys: Sequence[str], bounds: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """The ranges that sorted keys fall into: its number, and where it starts and stops in them."""
    start = 0
    for bucket, bound in enumerate(bounds):
        stop = bisect_left(keys, bound, lo=start)
        if stop > start:
            yield bucket, start, stop
        start = stop
    if start < len(keys):
        yield len(bounds), start, len(keys)


def _groups(
    files: Mapping[tuple[int, int], Sequence[StagedFile]], rows_max: int
) -> list[list[tuple[str, ...]]]:
    """Consecutive ranges that fill a fragment together, each with the paths of its files."""
    groups: list[list[tuple[str, ...]]] = []
    rows = rows_max
    for of_range in files.values():
        rows_here = sum(file.rows for file in of_range)
        if rows + rows_here > rows_max:
            groups.append([])
            rows = 0
        groups[-1].append(tuple(file.path for file in of_range))
        rows += rows_here
    return groups


def _advancing(batches: Iterable[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        task.advance(rows=batch.num_rows)
        yield batch
