"""Compute the new values of a table's columns, as pieces of work of a runner.

Invariant: nothing here commits, and every runner writes the same values.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.runner.protocol import Stage, require_answers
from omnigraph_lake.storage.lance.tables import grouped, plan_scan
from omnigraph_lake.storage.objects.durability import make_durable
from omnigraph_lake.storage.staging.column_changes import ColumnFiles, column_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph_lake.runner.protocol import Runner, Task
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry
    from omnigraph_lake.storage.staging.bulk import Shrunk
    from omnigraph_lake.storage.staging.column_changes import Compute
    from omnigraph_lake.storage.staging.column_layout import ColumnChange

VERB: Final = "schema apply"
ROWS_PER_PIECE: Final = 1 << 18


def fragment_groups(root: Root, entry: TableEntry) -> tuple[tuple[int, ...], ...]:
    """The fragments of a table, in pieces of about equal work."""
    planned = plan_scan(root, entry, columns=(ID_COLUMN,), where=None)
    return grouped(planned.fragments, rows_max=ROWS_PER_PIECE)


def write_columns(
    runner: Runner,
    root: Root,
    entry: TableEntry,
    columns: ColumnChange,
    compute: Compute,
    fragments: Mapping[int, Shrunk | None],
) -> tuple[ColumnFiles, ...]:
    """Compute and write the new values of some fragments.

    Each comes with what it loses by the same change, if anything.

    A piece that runs twice writes files of its own each time; what no answer names is named by no
    version, and cleanup removes it.

    Raises:
        InvalidInputError: a column becomes required, and rows have no value in it; or blobs would
            have to be written again.
    """
    if not fragments:
        return ()
    groups = (
        tuple((fragment, fragments[fragment]) for fragment in group if fragment in fragments)
        for group in fragment_groups(root, entry)
    )
    answers = runner.map(
        Stage(verb=VERB, name="compute columns", type=entry.table_key.partition(":")[2]),
        [group for group in groups if group],
        partial(_write_piece, root, entry, columns, compute),
        list[ColumnFiles],
    )
    return tuple(file for files in require_answers(answers) for file in files)


def _write_piece(
    root: Root,
    entry: TableEntry,
    columns: ColumnChange,
    compute: Compute,
    fragments: tuple[tuple[int, Shrunk | None], ...],
    task: Task,
) -> list[ColumnFiles]:
    files: list[ColumnFiles] = []
    for fragment, shrunk in fragments:
        task.advance()
        files.append(column_files(root, entry, fragment, columns, compute, shrunk))
    make_durable(root)
    return files
