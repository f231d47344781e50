"""What changed between two snapshots of a graph, table by table and row by row.

Invariant: the order is deterministic: nodes before edges, by the name of the type, then by id. A
table that both snapshots pin alike is not opened. Rows are streamed, never held.

In a picture of a difference, a node that did not change is only there as the end of an edge that
did, and a limit never prefers it to one that changed.

A table is the same table if it lies in the same place, so a type that was renamed shows only what
else changed in it. A type that was dropped and created again is compared by the ids of its rows. A
property is the same if it has the same number, so a renamed one is no change of its rows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake import errors, names
from omnigraph_lake.arguments import binary_stream, count_from, plain_text
from omnigraph_lake.diff.bucketed import count_tables, write_tables
from omnigraph_lake.diff.column_names import renamed_columns
from omnigraph_lake.diff.table_diff import (
    BATCH_ROWS,
    ChangeCounts,
    DiffColumn,
    Op,
    TableDiff,
    diff_table,
    with_end_types,
    with_renamed_columns,
)
from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Displayed, Page, change_table, change_words
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.storage.objects.paths import cannot_write, checked_path
from omnigraph_lake.storage.refs.kept import gone_if_removed, streamed_unless_removed
from omnigraph_lake.validation.json_encoding import json_values
from omnigraph_lake.view.scene import (
    Mark,
    NodeKey,
    Scene,
    SceneEdge,
    SceneKind,
    SceneNode,
    label_of,
    texts_of,
)

if TYPE_CHECKING:
    from omnigraph_lake.runner.protocol import Runner
    from omnigraph_lake.schema.catalog import Catalog, EdgeType
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Pin, Snapshot, TableEntry
    from omnigraph_lake.view.drawing import View
    from omnigraph_lake.view.elements import SnapshotElements

Sides: TypeAlias = Callable[[], tuple["SnapshotElements", "SnapshotElements"]]
"""The elements before and after."""
_ENCODER: Final = msgspec.json.Encoder()
_MARKS: Final = {Op.INSERT: Mark.ADDED, Op.DELETE: Mark.REMOVED, Op.UPDATE: Mark.CHANGED}
_DRAWN_EDGES_PER_NODE: Final = 10


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
    def end_type_columns(self) -> tuple[str, ...]:
        """The columns of edges with the names of the node types at their ends."""
        return self._diff.end_type_columns

    @property
    def columns_changed(self) -> bool:
        """Whether the type is new or gone, or a column came, went, was renamed or widened."""
        return any(
            column.before != column.after or column.renamed_from is not None
            for column in self.columns
        )

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
    _elements: Sides | None = field(repr=False, default=None)

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

    def view(self, *, limit: int = 500) -> View:
        """Draw what was added, removed and changed, with the nodes that changed edges connect.

        Args:
            limit: The maximum number of changed nodes, and of nodes that are only connected.
        """
        from omnigraph_lake.view.drawing import View, node_limit  # most differences are never drawn

        shown_nodes = node_limit(limit)
        if self._elements is None:
            raise errors.InvalidInputError(
                "this difference has no schemas to draw it with",
                next_step="Compare with `graph.diff`.",
            )
        return View(_diff_scene(self.tables, self._elements(), limit=shown_nodes))

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


def diff_snapshots(  # noqa: PLR0913 - two states, and how they are compared and shown
    root: Root,
    before: Snapshot,
    after: Snapshot,
    *,
    comparison: Comparison,
    catalogs: Callable[[], tuple[Catalog, Catalog]],
    types: Sequence[str] | None = None,
    elements: Sides | None = None,
) -> GraphDiff:
    """Find the types that changed and count their rows; the rows themselves are read on demand.

    Args:
        root: Where the graph lives.
        before: The snapshot to start from.
        after: The snapshot to arrive at, of the same branch or another.
        comparison: What compares the rows.
        catalogs: The schemas before and after, for the numbers of properties and the names of node
            types at ends of edges.
        types: Types to look at, by name or table key; all if left out.
        elements: Readers of either side, for pictures.

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
    has_one_schema = before.schema_hash == after.schema_hash
    with gone_if_removed(root, *entries), comparison.runner() as runner:
        diffs = {
            key: with_renamed_columns(
                with_end_types(diff_table(root, *pair), partial(_edge_types, catalogs, pair)),
                {} if has_one_schema else _names_that_changed(catalogs, pair),
            )
            for key, pair in pairs.items()
        }
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
        _elements=elements,
    )


def _names_that_changed(
    catalogs: Callable[[], tuple[Catalog, Catalog]],
    pair: tuple[TableEntry | None, TableEntry | None],
) -> Mapping[str, str]:
    """The columns of a table that have another name after, if it is there on both sides."""
    before, after = (
        None if entry is None else catalog.tables().get(entry.table_key)
        for catalog, entry in zip(catalogs(), pair, strict=True)
    )
    return renamed_columns(before, after)


def _edge_types(
    catalogs: Callable[[], tuple[Catalog, Catalog]],
    pair: tuple[TableEntry | None, TableEntry | None],
) -> tuple[EdgeType | None, EdgeType | None]:
    """The edge type of a table before and after."""
    before, after = (
        None if entry is None else catalog.edges[entry.table_key.removeprefix(names.EDGE_PREFIX)]
        for catalog, entry in zip(catalogs(), pair, strict=True)
    )
    return before, after


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


def _diff_scene(
    tables: Mapping[str, TypeDiff],
    sides: tuple[SnapshotElements, SnapshotElements],
    *,
    limit: int,
) -> Scene:
    """What changed, up to a limit of changed nodes and the same number of others."""
    before, after = sides
    changed: dict[NodeKey, SceneNode] = {}
    changed_edges: list[SceneEdge] = []
    for table_key, table in tables.items():
        type_name = table_key.partition(":")[2]
        if table_key.startswith(names.NODE_PREFIX):
            changed |= {node.key: node for node in _nodes(type_name, table, limit - len(changed))}
        else:
            changed_edges += _edges(
                type_name, table, sides, limit * _DRAWN_EDGES_PER_NODE - len(changed_edges)
            )
    ends = dict.fromkeys(end for edge in changed_edges for end in (edge.source, edge.target))
    others = [key for key in ends if key not in changed][:limit]
    nodes_total = _total(tables, names.NODE_PREFIX)
    edges_total = _total(tables, names.EDGE_PREFIX)
    # An end beyond the limit of changed nodes has changed all the same.
    marks = _marks_of(tables, others) if len(changed) < nodes_total else {}
    texts = {**before.nodes(others), **after.nodes(others)}
    context = [
        SceneNode(
            key=key,
            label=label_of(texts.get(key, {}), key[1]),
            properties=texts.get(key, {}),
            mark=marks.get(key, Mark.PLAIN),
        )
        for key in others
    ]
    present = changed.keys() | set(others)
    edges = [edge for edge in changed_edges if edge.source in present and edge.target in present]
    cut = [
        f"{shown:,} of {counted(total, noun)}"
        for shown, total, noun in (
            (len(changed) + len(marks), nodes_total, "changed node"),
            (len(edges), edges_total, "changed edge"),
        )
        if shown < total
    ]
    return Scene(
        kind=SceneKind.DIFF,
        title=_title(before, after),
        facts=[after.facts[0], ("before", _name(before)), ("after", _name(after))],
        nodes=[*changed.values(), *context],
        edges=edges,
        nodes_total=nodes_total + len(context) - len(marks),
        edges_total=edges_total,
        notes=[f"This page shows {' and '.join(cut)}."] if cut else [],
    )


def _title(before: SnapshotElements, after: SnapshotElements) -> str:
    """By branches; two states of one branch by their commits."""
    branches = before.facts[1][1], after.facts[1][1]
    if branches[0] != branches[1]:
        return f"Changes from {branches[0]} to {branches[1]}"
    return f"Changes of {branches[0]}"


def _name(elements: SnapshotElements) -> str:
    _, (_, branch), (_, commit) = elements.facts
    return f"{branch} at {commit[:12]}"


def _total(tables: Mapping[str, TypeDiff], prefix: str) -> int:
    return sum(table.counts.total for key, table in tables.items() if key.startswith(prefix))


def _marks_of(tables: Mapping[str, TypeDiff], keys: Iterable[NodeKey]) -> dict[NodeKey, Mark]:
    """What happened to those of some nodes that changed."""
    ids_by_type: dict[str, list[str]] = {}
    for type_name, node_id in keys:
        ids_by_type.setdefault(type_name, []).append(node_id)
    marks: dict[NodeKey, Mark] = {}
    for type_name, ids in ids_by_type.items():
        table = tables.get(names.node_table_key(type_name))
        wanted = pa.array(ids, pa.string())
        for batch in table.rows() if table is not None else ():
            changes = batch.select(["id", "op"]).filter(pc.is_in(batch["id"], value_set=wanted))
            for change in changes.to_pylist():
                marks[type_name, change["id"]] = _MARKS[Op(change["op"])]
    return marks


def _nodes(type_name: str, table: TypeDiff, room: int) -> Iterator[SceneNode]:
    for change in _changes(table, room):
        properties, former = _texts(change)
        newest = change["after"] or change["before"]
        yield SceneNode(
            key=(type_name, str(change["id"])),
            label=label_of(newest, str(change["id"])),
            properties=properties,
            before=former,
            mark=_MARKS[Op(change["op"])],
        )


def _edges(
    type_name: str,
    table: TypeDiff,
    sides: tuple[SnapshotElements, SnapshotElements],
    room: int,
) -> Iterator[SceneEdge]:
    for change in _changes(table, room):
        is_removed = change["op"] == Op.DELETE
        row = change["before"] if is_removed else change["after"]
        source, target = sides[0 if is_removed else 1].ends_of(
            (table.renamed_from or table.table_key).partition(":")[2] if is_removed else type_name,
            row,
        )
        properties, former = _texts(change)
        yield SceneEdge(
            type=type_name,
            id=str(change["id"]),
            source=source,
            target=target,
            properties=properties,
            before=former,
            mark=_MARKS[Op(change["op"])],
        )


def _changes(table: TypeDiff, room: int) -> Iterator[dict[str, Any]]:
    """The first changes of a type, without blobs."""
    blobs = {
        column.name
        for column in table.columns
        if any(kind is not None and pat.is_large_binary(kind) for kind in column.types)
    }
    if room <= 0 or not table.counts.total:
        return
    for batch in table.rows(batch_rows=min(room, BATCH_ROWS)):
        for change in json_values(batch.slice(0, room).to_struct_array()):
            change_row = cast("dict[str, Any]", change)
            for side in ("before", "after"):
                row = change_row[side] or {}
                change_row[side] = {
                    name: value for name, value in row.items() if name not in blobs
                } or None
            yield change_row
        room -= batch.num_rows
        if room <= 0:
            return


def _texts(change: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The properties as they are, and what those that changed were."""
    row = change["after"] or change["before"]
    properties = {name: value for name, value in row.items() if name not in names.SYSTEM_COLUMNS}
    changed = change["changed"] or ()
    former = {name: change["before"].get(name) for name in changed if name in properties}
    return texts_of(properties), {
        name: "null" if value is None else texts_of({name: value})[name]
        for name, value in former.items()
    }
