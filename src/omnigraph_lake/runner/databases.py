"""Opening DuckDB: the one place that does.

Invariant: a database reads only the tables passed to it. It cannot open files, load extensions or
reach the network, and no statement can change that. What does not fit into memory is spilled to a
temporary folder of the process.
"""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph_lake.storage.objects.temporary_folders import make_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

_SETTINGS: Final[Mapping[str, str]] = {
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
}
_NUMBERS: Final = itertools.count(1)
_LOCKED: Final = (
    "SET enable_progress_bar = false; SET GLOBAL TimeZone = 'UTC'; "
    "SET enable_external_access = false; SET lock_configuration = true"
)
"""Cursors have the time zone of the database, and no progress bar, which would go to stdout."""


def open_database(
    file: Path | None = None, settings: Mapping[str, str] | None = None
) -> duckdb.DuckDBPyConnection:
    """A database in memory, or in a file beside which it spills."""
    import duckdb  # processes that open no database start without it

    spill = {"temp_directory": str(_spill_folder() / str(next(_NUMBERS)))}
    opened = duckdb.connect(
        ":memory:" if file is None else file,
        config={**_SETTINGS, **({} if file else spill), **(settings or {})},
    )
    opened.sql(_LOCKED)  # only now: afterwards no folder for spilling can be named
    return opened


def read_database(file: Path) -> duckdb.DuckDBPyConnection:
    """A database of a user, attached as `source` for reading; it reaches nothing else."""
    import duckdb  # as above

    # Two connections of a process to one file would share its settings, which are locked.
    opened = duckdb.connect(":memory:", config={**_SETTINGS, "memory_limit": "256MB"})
    quoted = str(file).replace("'", "''")
    opened.sql(f"ATTACH '{quoted}' AS source (READ_ONLY)")
    opened.sql(_LOCKED)
    return opened


def shared_database() -> duckdb.DuckDBPyConnection:
    """A new connection to the database of this process: starting one costs 30 ms, this nothing."""
    return _shared().cursor()


@functools.cache
def _shared() -> duckdb.DuckDBPyConnection:
    return open_database()


@functools.cache
def _spill_folder() -> Path:
    """The directory in which databases of this process spill."""
    return make_folder("duckdb")


os.register_at_fork(after_in_child=_spill_folder.cache_clear)
