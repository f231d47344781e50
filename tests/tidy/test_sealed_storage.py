"""Nothing moves a table behind the protocol's back: calls that commit at once are fenced in."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.sources import SOURCE, SOURCES, nodes_of

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("_parsed_sources")]

COMMITTING_METHODS = {
    "add_columns",
    "alter_columns",
    "cleanup_old_versions",
    "commit",
    "commit_batch",
    "compact_files",
    "create_branch",
    "create_index",
    "create_scalar_index",
    "drop_columns",
    "drop_index",
    "execute",
    "optimize_indices",
    "replace_field_metadata",
    "replace_schema_metadata",
    "restore",
    "truncate_table",
    "update_config",
    "update_field_metadata",
    "update_metadata",
    "update_schema_metadata",
    "write_dataset",
}

ALLOWED = {
    ("storage/lance/datasets.py", "write_dataset"): "creates a dataset as its one first version",
    ("storage/manifest/swap.py", "commit"): "the swap: a strict overwrite, decided by one put",
    ("storage/manifest/swap.py", "create_branch"): "the manifest of a graph branch",
    ("cli/load_commands.py", "restore"): "a copy of a backup, not a Lance call",
    ("storage/lance/forks.py", "create_branch"): "a table's fork, named after its operation",
    (
        "storage/manifest/retention.py",
        "cleanup_old_versions",
    ): "versions by number, none above a pin",
    ("storage/lance/compaction.py", "execute"): "writes the files of a task; HEAD does not move",
    (
        "storage/lance/compaction.py",
        "commit",
    ): "a rewrite: right above its pin, or it does not count",
    (
        "storage/manifest/history.py",
        "compact_files",
    ): "history is derived; nobody pins a version of it",
    (
        "storage/staging/table_versions.py",
        "commit",
    ): "turns a staged change or a restore into a version",
    (
        "storage/manifest/history.py",
        "commit",
    ): "adds rows, or switches off Lance's automatic cleanup; history is derived",
    (
        "storage/lance/next_version.py",
        "commit",
    ): "a staged change right above its base; where Lance may rebase, numbers are compared",
    ("storage/manifest/history.py", "add_columns"): "gives older history tables today's columns",
    (
        "cli/history_commands.py",
        "restore",
    ): "an ordinary commit with earlier rows, not a Lance call",
    ("graph.py", "commit"): "finds a commit of the graph",
    ("api/commit_log.py", "commit"): "finds a commit of the graph",
    ("validation/lookups.py", "execute"): "a DuckDB query, not a Lance call",
    ("load/formats/table_files.py", "execute"): "a query of a user's database, opened for reading",
    (
        "importer/postgres.py",
        "execute",
    ): "a query of a user's database; read-only",
}


def committing_calls() -> set[tuple[str, str]]:
    found = set()
    for path in SOURCES:
        for node in nodes_of(path):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in COMMITTING_METHODS
            ):
                found.add((str(path.relative_to(SOURCE)), node.func.attr))
    return found


def test_calls_that_commit_at_once_are_made_where_listed_and_nowhere_else() -> None:
    assert committing_calls() - set(ALLOWED) == set()


def test_the_list_of_exceptions_has_no_dead_entries() -> None:
    used = committing_calls()

    assert {entry for entry in ALLOWED if entry not in used} <= {
        ("validation/lookups.py", "execute")
    }


def test_no_commit_passes_a_lock_of_its_own() -> None:
    passing = [path for path in SOURCES if "commit_lock" in path.read_text()]

    assert passing == []
