"""What the tasks of a merge do: find the target's rows, decide a bucket, write it, drop old rows.

Invariant: a task holds one bucket's ids, never its rows; its results are in files until all buckets
are decided. Tables are written only afterwards, so a merge with conflicts writes to none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.diff.bucketed import BucketDiff
from omnigraph.merge.conflicts import MergeCounts
from omnigraph.merge.table_merge import Spool
from omnigraph.merge.three_way import MergeStep, TableToMerge, merge_changes
from omnigraph.runner.shuffle import BucketWriter, StagedFile, StoredScratch, read_files
from omnigraph.storage.lance.tables import scan_fragments
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.staging.bulk import StagedFragment, shrink, write_replacements, write_rows
from omnigraph.storage.staging.edits import Located, row_parts
from omnigraph.validation.constraints import EdgeCount, TypeRules, UniqueTuple
from omnigraph.validation.row_checks import check_rows
from omnigraph.validation.violations import BadRows, Reason, Violation

if TYPE_CHECKING:
    from omnigraph.diff.table_diff import TableDiff
    from omnigraph.storage.snapshot import TableEntry

THEIRS_ROLES: Final = ("theirs-gone", "theirs-new")
OURS_ROLES: Final = ("ours-gone", "ours-new")
PINNED: Final = "pinned"
UPSERTS: Final = "upserts"
KEYED: Final = "keyed"
GONE: Final = "gone"
SOURCES: Final = "sources"
OPEN: Final = "open"
RESOLVED: Final = "resolved"

CONFLICTS_KEPT: Final = 10_000
"""Open and decided conflicts of one table that are kept, each."""

_ROW_ID, _ADDRESS, *_ = names.LANCE_COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWork:
    """One table of a merge on Spark; `groups` are fragments of the target's version.

    `rules` are None where the result cannot violate one. A table that is not `written` is decided
    only to check its rules.
    """

    number: int
    pinned: TableEntry
    theirs: TableDiff = field(repr=False)
    ours: TableDiff | None = field(repr=False)
    merge: TableToMerge = field(repr=False)
    rules: TypeRules | None = field(repr=False)
    groups: tuple[tuple[int, ...], ...] = field(repr=False)
    buckets: int
    written: bool

    @property
    def table_key(self) -> str:
        return self.merge.table_key

    @property
    def knows_rows(self) -> bool:
        """Whether rows of the target may be replaced or deleted; otherwise all rows are new."""
        return bool(self.theirs.plan.gone) or self.ours is not None

    @property
    def watches_sources(self) -> bool:
        """Whether a source may have too few edges afterwards."""
        return minimum_of(self.rules) is not None

    @property
    def keyed_columns(self) -> tuple[str, ...]:
        columns = set(names.SYSTEM_COLUMNS)
        for rule in self.rules.keyed_rules if self.rules else ():
            if isinstance(rule, UniqueTuple):
                columns |= set(rule.columns)
        return tuple(name for name in self.merge.schema.names if name in columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedIds:
    """Some fragments of the target whose ids are sent to their buckets."""

    table: TableWork
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """All files of one bucket."""

    table: TableWork
    number: int
    files: tuple[StagedFile, ...]


class BrokenRows(msgspec.Struct, frozen=True, array_like=True):
    """A row rule that decided rows violate: how often, and the first by id and message."""

    reason: str
    columns: tuple[str, ...]
    count: int
    first: list[tuple[str | None, str]]


class Decided(msgspec.Struct, frozen=True, array_like=True):
    """The result of one bucket; rows, addresses and conflicts are in the files."""

    files: list[StagedFile]
    counts: dict[str, int]
    deleted: int
    broken: list[BrokenRows]


class Described(msgspec.Struct, frozen=True, array_like=True):
    """A fragment that a task wrote."""

    description: str
    rows: int


class Written(msgspec.Struct, frozen=True, array_like=True):
    """Fragments with new rows, and with new contents of known rows."""

    inserted: list[Described]
    replacing: list[Described]


class Lost(msgspec.Struct, frozen=True, array_like=True):
    """A fragment of the target without the removed rows; no description if none remain."""

    fragment_id: int
    description: str | None
    rows: int


def minimum_of(rules: TypeRules | None) -> EdgeCount | None:
    """The rule by which a source needs edges, if there is one."""
    for rule in rules.keyed_rules if rules else ():
        if isinstance(rule, EdgeCount) and rule.minimum:
            return rule
    return None


def scatter_pinned(place: StoredScratch, work: PinnedIds) -> list[StagedFile]:
    """Send ids of the target and the addresses of their rows to their buckets."""
    table = work.table
    sources = [names.SOURCE_COLUMN] if table.watches_sources else []
    writer = BucketWriter(place, table=table.number, role=PINNED, buckets=table.buckets)
    for batch in scan_fragments(
        place.root,
        table.pinned,
        table.groups[work.group],
        columns=[names.ID_COLUMN, *sources, _ROW_ID, _ADDRESS],
        where=None,
    ):
        writer.add_by_id(batch)
    return writer.files()


def decide(place: StoredScratch, bucket: Bucket) -> Decided:
    """Decide every id of a bucket that the source changed."""
    table = bucket.table
    theirs = BucketDiff.of(table.theirs, place, bucket.files, THEIRS_ROLES).reader()
    ours: Iterable[pa.RecordBatch] = ()
    if table.ours is not None:
        ours = BucketDiff.of(table.ours, place, bucket.files, OURS_ROLES).reader()
    steps = _Steps(place, bucket, merge_changes(theirs, ours, table.merge))
    with tempfile.TemporaryDirectory(prefix="omnigraph-merge-") as scratch:
        # To disk first: which rows of the target they replace is looked up by all ids of the
        # bucket together, and the rows themselves may not fit into memory.
        spool = Spool(Path(scratch, "upserts"), table.merge.schema)
        # This consumes the steps: deletes, conflicts, counts and broken rows are complete only now.
        spool.write(steps.upserts())
        upserted = spool.columns([names.ID_COLUMN]).column(names.ID_COLUMN).combine_chunks()
        deleted = steps.deleted()
        known = _known(place, bucket, pa.concat_arrays([upserted, deleted]))
        # Sources even if the table is not written: pointing it elsewhere can remove edges, too.
        files = [*steps.conflict_files(), *_source_files(place, bucket, known)]
        # Files of these roles mark a table as altered, and the driver stages it.
        if table.written:
            files += [
                *_upsert_files(place, bucket, spool, known),
                *_gone_files(place, table, known),
            ]
    return Decided(
        files=files,
        counts=asdict(steps.counts),
        deleted=int(pc.sum(pc.is_in(known.column(names.ID_COLUMN), deleted)).as_py() or 0),
        broken=steps.broken,
    )


class _Steps:
    """Collects the results of the steps of one bucket's merge other than the rows to write."""

    def __init__(self, place: StoredScratch, bucket: Bucket, steps: Iterator[MergeStep]) -> None:
        self._steps = steps
        self._rules = bucket.table.rules
        self._deletes: list[pa.Array] = [pa.array([], pa.string())]
        self._bucket = bucket.number
        self._conflicts = {
            # `add` gets the number of the bucket; `buckets` only matters where ids are hashed.
            role: BucketWriter(place, table=bucket.table.number, role=role, buckets=1)
            for role in (OPEN, RESOLVED)
        }
        self._kept = dict.fromkeys(self._conflicts, 0)
        self.counts = MergeCounts()
        self.broken: list[BrokenRows] = []

    def upserts(self) -> Iterator[pa.RecordBatch]:
        for step in self._steps:
            self.counts += step.counts
            self._deletes.append(step.deletes.column(names.ID_COLUMN))
            self._keep(step.conflicts)
            if self._rules is not None and step.upserts.num_rows:
                findings = check_rows(pa.Table.from_batches([step.upserts]), self._rules)
                self.broken += map(_broken, findings)
            yield step.upserts

    def deleted(self) -> pa.StringArray:
        return pa.concat_arrays(self._deletes)

    def conflict_files(self) -> Iterator[StagedFile]:
        for writer in self._conflicts.values():
            yield from writer.files()

    def _keep(self, conflicts: pa.RecordBatch) -> None:
        is_open = pc.is_null(conflicts.column("resolution"))
        for role, mask in ((OPEN, is_open), (RESOLVED, pc.invert(is_open))):
            # All are counted; those beyond the limit are not kept. Steps ascend by id, so the kept
            # ones are the first of the bucket, from which the driver takes the first of all.
            kept_conflicts = conflicts.filter(mask).slice(0, CONFLICTS_KEPT - self._kept[role])
            self._conflicts[role].add(self._bucket, kept_conflicts)
            self._kept[role] += kept_conflicts.num_rows


def _broken(bad_rows: BadRows) -> BrokenRows:
    first = [(violation.id, violation.message) for violation in bad_rows.kept]
    return BrokenRows(bad_rows.reason.value, bad_rows.columns, bad_rows.count, first)


def bad_rows_of(table_key: str, broken: BrokenRows) -> BadRows:
    """The finding without the positions of rows."""
    reason = Reason(broken.reason)
    return BadRows(
        table_key=table_key,
        reason=reason,
        columns=broken.columns,
        count=broken.count,
        rows=pa.array([], pa.int64()),
        kept=tuple(
            Violation(
                table_key=table_key,
                reason=reason,
                columns=broken.columns,
                row=None,
                id=violating_id,
                message=message,
            )
            for violating_id, message in broken.first
        ),
    )


def _known(place: StoredScratch, bucket: Bucket, wanted: pa.StringArray) -> pa.Table:
    """The target's rows with these ids: where they are, and their sources if those count."""
    sources = [names.SOURCE_COLUMN] if bucket.table.watches_sources else []
    texts = [pa.field(name, pa.string()) for name in (names.ID_COLUMN, *sources)]
    numbers = [pa.field(name, pa.uint64()) for name in (_ROW_ID, _ADDRESS)]
    parts = [pa.schema([*texts, *numbers]).empty_table()]
    paths = [file.path for file in bucket.files if file.role == PINNED]
    for batch in read_files(place, paths if len(wanted) else ()):
        rows = batch.filter(pc.is_in(batch.column(names.ID_COLUMN), wanted))
        if rows.num_rows:
            parts.append(pa.Table.from_batches([rows]).cast(parts[0].schema))
    return pa.concat_tables(parts).combine_chunks()


def _upsert_files(
    place: StoredScratch, bucket: Bucket, spool: Spool, known: pa.Table
) -> Iterator[StagedFile]:
    """Whole rows with the row ids that they keep, and separately the columns that rules read."""
    table = bucket.table
    rows, keyed = (
        BucketWriter(place, table=table.number, role=role, buckets=1) for role in (UPSERTS, KEYED)
    )
    ids, row_ids = (known.column(name).combine_chunks() for name in (names.ID_COLUMN, _ROW_ID))
    for batch in spool.batches():
        # Null for an id that the target does not have: such a row is inserted.
        kept_row_ids = row_ids.take(pc.index_in(batch.column(names.ID_COLUMN), ids))
        rows.add(bucket.number, batch.append_column(_ROW_ID, kept_row_ids))
        if table.rules is not None:
            keyed.add(bucket.number, batch.select(list(table.keyed_columns)))
    yield from rows.files()
    yield from keyed.files()


def _gone_files(place: StoredScratch, table: TableWork, known: pa.Table) -> list[StagedFile]:
    """Addresses of removed or replaced rows, in files by the group of their fragment."""
    group_of = {fragment: number for number, group in enumerate(table.groups) for fragment in group}
    writer = BucketWriter(place, table=table.number, role=GONE, buckets=len(table.groups))
    addresses = known.column(_ADDRESS).to_numpy()
    # The upper half of a row address is the fragment. Replaced rows are removed, too: their new
    # contents are written elsewhere under the same row ids.
    fragments = addresses >> np.uint64(32)
    # By group and not by bucket: one task has to shrink a fragment, with its rows of all buckets.
    by_group: dict[int, list[np.ndarray]] = {}
    for fragment in np.unique(fragments).tolist():
        by_group.setdefault(group_of[fragment], []).append(addresses[fragments == fragment])
    for group, parts in sorted(by_group.items()):
        rows = pa.array(np.concatenate(parts), pa.uint64())
        writer.add(group, pa.RecordBatch.from_arrays([rows], names=[_ADDRESS]))
    return writer.files()


def _source_files(place: StoredScratch, bucket: Bucket, known: pa.Table) -> list[StagedFile]:
    """The nodes that lose an edge here."""
    writer = BucketWriter(place, table=bucket.table.number, role=SOURCES, buckets=1)
    if bucket.table.watches_sources:
        sources = pc.unique(known.column(names.SOURCE_COLUMN).combine_chunks())
        rows = pa.RecordBatch.from_arrays([sources], names=[names.SOURCE_COLUMN])
        writer.add(bucket.number, rows)
    return writer.files()


def write_bucket(place: StoredScratch, entry: TableEntry, paths: Iterable[str]) -> Written:
    """Write decided rows into their table: new ones, and new contents of known ones."""
    inserted: list[StagedFragment] = []
    replacing: list[StagedFragment] = []
    for part in row_parts(read_files(place, paths)):
        row_ids = part.column(_ROW_ID)
        rows, is_known = part.drop([_ROW_ID]), row_ids.is_valid()
        new, old = rows.filter(pc.invert(is_known)), rows.filter(is_known)
        if new.num_rows:
            inserted += write_rows(place.root, entry, new)
        if old.num_rows:
            # In the order of `old`: replacements get their row ids by position.
            kept_row_ids = row_ids.drop_null().to_numpy()
            replacing += write_replacements(place.root, entry, old, kept_row_ids)
    # Before the task reports: the driver commits these files without reading them.
    make_durable(place.root)
    return Written(_describe(inserted), _describe(replacing))


def shrink_group(place: StoredScratch, entry: TableEntry, paths: Iterable[str]) -> list[Lost]:
    """Remove rows of some fragments from the next version."""
    addresses = removed(place, paths)
    nothing = np.empty(0, np.uint64)
    # `by_fragment` reads the addresses only.
    rows = Located(ids=pa.array([], pa.string()), row_ids=nothing, addresses=addresses)
    shrunk_fragments = [
        shrink(place.root, entry, fragment_id, offsets)
        for fragment_id, offsets in rows.by_fragment()
    ]
    make_durable(place.root)
    return [
        Lost(fragment.fragment_id, fragment.description, fragment.rows_lost)
        for fragment in shrunk_fragments
    ]


def removed(place: StoredScratch, paths: Iterable[str]) -> np.ndarray:
    """The addresses in some files."""
    parts = [file.column(_ADDRESS).to_numpy() for file in read_files(place, paths)]
    # The empty array is for the case without files: `concatenate` refuses an empty list.
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _describe(fragments: Iterable[StagedFragment]) -> list[Described]:
    return [Described(fragment.description, fragment.rows) for fragment in fragments]
