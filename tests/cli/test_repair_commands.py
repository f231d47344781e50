"""`omnigraph repair`: what it shows, what it publishes, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.cli.commands import answer, run

pytestmark = pytest.mark.unit

KEY = "node:Person"


def repair(*arguments: str, code: int = 0) -> dict[str, Any]:
    """The only table, as the JSON of a repair has it."""
    (repaired,) = answer("repair", *arguments, code=code)["tables"]
    assert isinstance(repaired, dict)
    return repaired


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema="node Person { name: String @key  age: I32? }")
    graph.write({"Person": [{"name": "Ann", "age": 1}]})
    graph.write({"Person": [{"name": "Bob", "age": 2}]})
    return graph


def table(graph: Graph) -> lance.LanceDataset:
    entry = graph.snapshot().tables[KEY]
    line = f"{entry.location}/tree/{entry.fork}" if entry.fork else entry.location
    return lance.dataset(f"{graph.root}/{line}")


def append(graph: Graph) -> None:
    dataset = table(graph)
    rows = [{"id": "Eve", "name": "Eve", "age": 3}]
    lance.write_dataset(
        pa.Table.from_pylist(rows, schema=dataset.schema), dataset.uri, mode="append"
    )


def test_nothing_to_repair_is_said_in_so_many_words(graph: Graph) -> None:
    done = run("repair", graph.root, "--confirm")

    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing to repair" in done.stdout


def test_maintenance_is_previewed_and_then_published(graph: Graph) -> None:
    table(graph).optimize.compact_files()

    shown = run("repair", graph.root)
    assert shown.returncode == 0
    assert "verified_maintenance" in shown.stdout
    assert "node:Person version 5: Rewrite, 2 -> 2 rows" in shown.stdout
    assert f"`omnigraph repair {graph.root} --confirm` publishes version 5" in shown.stderr
    assert graph.snapshot().tables[KEY].version == 3

    done = run("repair", graph.root, "--confirm", "--actor", "ada")
    commit = graph.commits()[0]
    assert done.returncode == 0
    assert f"published 1 of 1 table, commit {commit.commit_id}" in done.stdout
    assert (commit.actor, graph.snapshot().tables[KEY].version) == ("ada", 5)
    listed = run("recovery", "list", graph.root, "--json")
    (recovery,) = json.loads(listed.stdout)["recoveries"]
    assert (recovery["kind"], recovery["commit_id"]) == ("repaired", commit.commit_id)


def test_changed_rows_are_refused_with_a_code_of_their_own(graph: Graph) -> None:
    append(graph)

    refused = run("repair", graph.root, "--confirm")

    assert refused.returncode == 8
    assert "suspicious" in refused.stdout
    assert "version 4 (Append) was not written by Omnigraph" in refused.stderr
    assert "`--force` version 4 is published as it is" in refused.stderr
    assert graph.snapshot().tables[KEY].version == 3


def test_force_alone_is_a_preview_and_force_with_confirm_advises_a_check(graph: Graph) -> None:
    append(graph)

    assert repair(graph.root, "--force")["action"] == "previewed"
    done = run("repair", graph.root, "--force", "--confirm")

    assert done.returncode == 0
    assert f"run `omnigraph check {graph.root}`" in done.stderr
    assert run("check", graph.root).returncode == 0
    assert graph.snapshot().tables[KEY].row_count == 3


def test_the_json_has_stable_keys(graph: Graph) -> None:
    append(graph)

    found = repair(graph.root, "--confirm", code=8)

    assert found == {
        "table_key": KEY,
        "classification": "suspicious",
        "action": "refused",
        "remedy": "force",
        "reason": "version 4 (Append) was not written by Omnigraph",
        "manifest_version": 3,
        "lance_head_version": 4,
        "version": 4,
        "rows": 3,
        "foreign": [
            {
                "version": 4,
                "operation": "Append",
                "preserves_content": False,
                "rows_before": 2,
                "rows_after": 3,
            }
        ],
        "undone_operations": [],
        "commit_id": None,
    }


def test_a_branch_is_repaired_by_name(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "Dan", "age": 4}]})
    append(dev)

    assert repair(graph.root)["classification"] == "no_drift"
    refused = run("repair", graph.root, "--branch", "dev", "--confirm")

    assert refused.returncode == 8
    assert f"`omnigraph repair {graph.root} --branch dev --confirm` refuses it" in refused.stderr
    done = run("repair", graph.root, "--branch", "dev", "--confirm", "--force")
    assert f"`omnigraph check {graph.root} --branch dev`" in done.stderr
    assert dev.snapshot().tables[KEY].row_count == 4


def test_columns_that_do_not_fit_are_named_and_refused(graph: Graph) -> None:
    table(graph).drop_columns(["age"])

    refused = run("repair", graph.root, "--confirm", "--force")

    assert refused.returncode == 8
    assert "column 'age' is missing in version 4" in refused.stderr
    assert "not even with --force" in refused.stderr
