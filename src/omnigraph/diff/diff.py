"""What changed between two snapshots of a graph, table by table and row by row.

Invariant: the order is deterministic: nodes before edges, by the name of the type, then by id. A
table that both snapshots pin alike is not opened. Rows are streamed, never held.

A table is the same table if it lies in the same place, so a type that was renamed shows only what
else changed in it. A type that was dropped and created again is compared by the ids of its rows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from omnigraph import errors, names
from omnigraph.arguments import binary_stream, count_from, plain_text
from omnigraph.diff.bucketed import count_tables, write_tables
from omnigraph.diff.table_diff import (
    BATCH_ROWS,
    ChangeCounts,
    DiffColumn,
    TableDiff,
    diff_table,
)
from omnigraph.display.pages import Displayed, Page, change_table, change_words
from omnigraph.language.diagnostics import did_you_mean, shown
from omnigraph.storage.objects.paths import cannot_write, checked_path
from omnigraph.storage.refs.kept import gone_if_removed, streamed_unless_removed
from omnigraph.validation.json_encoding import json_values

if TYPE_CHECKING:
    from omnigraph.runner.protocol import Runner
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Pin, Snapshot, TableEntry

_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What compares rows, and the source of ids for its temporary files.

    The rows of a type always stream in this process.
    """

    runner: Callable[[], AbstractContextManager[Runner]]
    new_id: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDiff(Displayed):
    """What changed in one type: how many rows, and which columns there are on either side."""

    table_key: str
    renamed_from: str | None
    counts: ChangeCounts
    columns: tuple[DiffColumn, ...]
    _diff: TableDiff = field(repr=False)

    @property
    def columns_changed(self) -> bool:
        """Whether the type is new or gone, or a column came, went or got another type."""
        return any(column.before != column.after for column in self.columns)

    def rows(self, *, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Stream the rows that changed, in the order of ids, as they were and as they are."""
        at_once = count_from(1, batch_rows, argument="batch_rows")
        rows = self._diff.reader(batch_rows=at_once)
        batches = streamed_unless_removed(rows, self._diff.root, *self._diff.entries)
        return pa.RecordBatchReader.from_batches(rows.schema, batches)

    def _page(self) -> Page:
        changes = {self.table_key: self.counts}
        summary = f"{self.table_key}  {change_words(changes, of_types=False)}"
        return Page(summary=summary, tables=[change_table(changes)])


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDiff(Displayed):
    """The types in which something changed, by table key; cheap to hold, read as needed."""

    before: Snapshot = field(repr=False)
    after: Snapshot = field(repr=False)
    tables: Mapping[str, TypeDiff]
    _write: Callable[[Path], tuple[Path, ...]] = field(repr=False)

    @property
    def counts(self) -> ChangeCounts:
        table_counts = [table.counts for table in self.tables.values()]
        return ChangeCounts(
            inserted=sum(counts.inserted for counts in table_counts),
            updated=sum(counts.updated for counts in table_counts),
            deleted=sum(counts.deleted for counts in table_counts),
        )

    def rows(self, table_key: str, *, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Stream the changed rows of one type: op, id, changed, before, after.

        Raises:
            NotFoundError: nothing changed in a type of this key.
        """
        if plain_text(table_key, argument="table_key") not in self.tables:
            raise errors.NotFoundError(
                f"nothing changed in {shown(table_key)}",
                next_step=f"Changed are {', '.join(self.tables) or 'no types'}.",
            )
        return self.tables[table_key].rows(batch_rows=batch_rows)

    def to_json_lines(self, stream: IO[bytes]) -> int:
        """Write one line per row that changed; returns how many.

        Blobs are spelt as a load reads them; floats that JSON lacks, as `"NaN"`, `"Infinity"` and
        `"-Infinity"`.
        """
        target = binary_stream(stream, argument="stream")
        lines = 0
        for key, table in self.tables.items():
            for batch in table.rows():
                target.write(json_lines(key, batch))
                lines += len(batch)
        target.flush()
        return lines

    def to_parquet(self, directory: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write files of changes into a directory: all of them, or the directory is not there.

        A type has one file, or several if more than 2,000,000 of its rows may differ: within a
        file, rows are in the order of ids. Tasks of Spark must all reach the directory.

        Raises:
            ConflictError: the directory exists and is not empty.
        """
        target = checked_path(directory, argument="directory").absolute()
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise errors.ConflictError(
                f"{target} exists and is not an empty directory",
                next_step="Name a directory that does not exist yet.",
            )
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            unfinished.mkdir(parents=True)
            files = self._write(unfinished)
            if target.is_dir():
                target.rmdir()
            unfinished.replace(target)
        except OSError as error:
            raise cannot_write(target, error) from error
        finally:
            with suppress(OSError):
                shutil.rmtree(unfinished)
        return tuple(target / file.relative_to(unfinished) for file in files)

    def _page(self) -> Page:
        if not self.tables:
            return Page(summary="no differences", lines=["no differences"])
        changes = {table_key: table.counts for table_key, table in self.tables.items()}
        return Page(summary=change_words(changes), tables=[change_table(changes)])


def json_lines(table_key: str, batch: pa.RecordBatch) -> bytes:
    """Changes of one type, one line each."""
    kind, _, type_name = table_key.partition(":")
    changes = json_values(batch.to_struct_array())
    return _ENCODER.encode_lines(
        [{"type": type_name, "kind": kind, **_said(change)} for change in changes]
    )


def diff_snapshots(
    root: Root,
    before: Snapshot,
    after: Snapshot,
    *,
    comparison: Comparison,
    types: Sequence[str] | None = None,
) -> GraphDiff:
    """Find the types that changed and count their rows; the rows themselves are read on demand.

    Args:
        root: Where the graph lives.
        before: The snapshot to start from.
        after: The snapshot to arrive at, of the same branch or another.
        comparison: What compares the rows.
        types: Types to look at, by name or table key; all if left out.

    Raises:
        InvalidInputError: a type that neither snapshot has.
    """
    paired = _pairs(before.tables, after.tables)
    pairs = {
        key: paired[key]
        for key in _choose(types, sorted(paired, key=_rank))
        if not _is_pinned_alike(*paired[key])
    }
    entries = [entry for pair in pairs.values() for entry in pair]
    with gone_if_removed(root, *entries), comparison.runner() as runner:
        diffs = {key: diff_table(root, *pair) for key, pair in pairs.items()}
        counts = count_tables(runner, diffs, comparison.new_id)
    changed_tables = {}
    for key, (old, _) in pairs.items():
        table = TypeDiff(
            table_key=key,
            renamed_from=old.table_key if old is not None and old.table_key != key else None,
            counts=counts[key],
            columns=diffs[key].columns,
            _diff=diffs[key],
        )
        if table.counts.total or table.columns_changed or table.renamed_from:
            changed_tables[key] = table
    return GraphDiff(
        before=before,
        after=after,
        tables=MappingProxyType(changed_tables),
        _write=partial(_write_files, root, {key: diffs[key] for key in changed_tables}, comparison),
    )


def _write_files(
    root: Root, diffs: Mapping[str, TableDiff], comparison: Comparison, folder: Path
) -> tuple[Path, ...]:
    entries = [entry for diff in diffs.values() for entry in diff.entries]
    with gone_if_removed(root, *entries), comparison.runner() as runner:
        return write_tables(runner, diffs, folder, comparison.new_id)


def _is_pinned_alike(old: TableEntry | None, new: TableEntry | None) -> bool:
    return old is not None and new is not None and _place(old) == _place(new)


_Pairs = dict[str, tuple["TableEntry | None", "TableEntry | None"]]


def _pairs(before: Mapping[str, TableEntry], after: Mapping[str, TableEntry]) -> _Pairs:
    """The two entries of every table, by its key in `after`, or in `before` if it is gone."""
    entries_by_location = {entry.location: entry for entry in before.values()}
    pairs: _Pairs = {
        key: (entries_by_location.get(entry.location), entry) for key, entry in after.items()
    }
    met_keys = {old.table_key for old, _ in pairs.values() if old is not None}
    for key, entry in before.items():
        if key in met_keys:
            continue
        old, new = pairs.get(key, (None, None))
        if old is not None:
            # Its name went to another table, and it is gone itself: only names tell what is what.
            return {
                table_key: (before.get(table_key), after.get(table_key))
                for table_key in {**before, **after}
            }
        pairs[key] = (entry, new)
    return pairs


def _place(entry: TableEntry) -> tuple[str, str, Pin]:
    return entry.table_key, entry.location, entry.pin


def _rank(table_key: str) -> tuple[bool, str]:
    return not table_key.startswith(names.NODE_PREFIX), table_key


def _choose(types: Sequence[str] | None, keys: Sequence[str]) -> Iterable[str]:
    if types is None:
        return keys
    if isinstance(types, str) or not isinstance(types, Sequence):
        raise errors.InvalidInputError(f"types are {shown(types)}, expected a list of names")
    chosen = set()
    for name in types:
        matches = [key for key in keys if name in (key, key.partition(":")[2])]
        if len(matches) != 1:
            hint = did_you_mean(shown(name).strip("'"), [key.partition(":")[2] for key in keys])
            raise errors.InvalidInputError(
                f"{shown(name)} is {'two types' if matches else 'no type'} of these snapshots"
                + (f" ({hint})" if hint and not matches else ""),
                next_step=f"The types are {', '.join(keys)}.",
            )
        chosen.update(matches)
    return [key for key in keys if key in chosen]


def _said(change: object) -> dict[str, object]:
    """What is null is left out of a change, but never out of a row."""
    assert isinstance(change, dict)
    return {name: value for name, value in change.items() if value is not None}
