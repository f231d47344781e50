"""Maintenance at the command line: tables for people, JSON for programs, codes for schedulers."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph_lake.graph import Graph
from tests.behaviours.histories import content, put
from tests.cli.commands import answer, run
from tests.maintenance.maintenance_graphs import (
    CITES,
    DOC,
    QUIET,
    TABLES,
    TAG,
    data_files,
    doc,
    fragments,
    scattered_graph,
    uri,
    versions,
)

pytestmark = pytest.mark.unit


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


def killed(*arguments: str, at: str) -> bool:
    """Run a command in a process that is killed at a point; whether it was."""
    finished = run(*arguments, env={"OMNIGRAPH_FAILPOINTS": f"{at}=kill"})
    return finished.returncode == -signal.SIGKILL


def test_optimize_shows_every_table(graph: Graph) -> None:
    done = run("optimize", graph.root)

    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "3 -> 1" in lines[DOC]
    assert "compacted" in lines[DOC]
    assert lines.keys() >= set(TABLES)
    assert fragments(graph, DOC) == 1


def test_optimize_as_json_has_stable_keys(graph: Graph) -> None:
    lance.dataset(uri(graph, DOC)).optimize.compact_files()

    found = answer("optimize", graph.root)

    rows = {each["table_key"]: each for each in found["tables"]}
    assert found.keys() == {"tables"}
    assert rows[DOC] == {
        "table_key": DOC,
        "fragments_removed": 0,
        "fragments_added": 0,
        "committed": False,
        "skipped": "drift_needs_repair",
        "manifest_version": 4,
        "lance_head_version": 6,
        "pending_indexes": [],
        "error": None,
    }
    assert rows[CITES]["committed"] is True


def test_a_skipped_table_is_explained_on_stderr(graph: Graph) -> None:
    lance.dataset(uri(graph, DOC)).optimize.compact_files()

    done = run("optimize", graph.root)

    assert done.returncode == 0
    assert "drift_needs_repair" in done.stdout
    assert "HEAD differs from the manifest: run omnigraph repair" in done.stderr
    assert "(published 4, HEAD 6)" in done.stderr


def test_a_pending_index_is_explained_on_stderr(graph: Graph) -> None:
    graph.write({"Cites": []}, mode="overwrite")
    graph.write({"Doc": [doc(1, place=None)]}, mode="overwrite")

    done = run("optimize", graph.root)

    assert done.returncode == 0
    assert "node:Doc.place: index pending, no vectors to train on yet" in done.stderr


def test_a_failing_table_ends_with_1_and_the_others_are_shown(graph: Graph) -> None:
    data_files(graph, DOC)[0].unlink()

    done = run("optimize", graph.root)

    assert done.returncode == 1
    assert "2 -> 1" in done.stdout
    assert "optimize failed for node:Doc" in done.stderr
    assert "the work on the other tables is kept" in done.stderr


def test_the_wished_size_of_fragments_is_obeyed(graph: Graph) -> None:
    assert run("optimize", graph.root, "--target-rows", "3").returncode == 0
    assert run("optimize", graph.root, "--target-rows", "0").returncode == 2

    assert fragments(graph, DOC) == 3


def test_cleanup_without_confirmation_is_a_preview(graph: Graph) -> None:
    done = run("cleanup", graph.root, "--keep", "3")

    assert done.returncode == 0, done.stderr
    assert "would remove" in done.stdout
    assert "Nothing was removed. Add --confirm" in done.stderr
    assert versions(graph, DOC) == [1, 2, 3, 4]


def test_cleanup_with_confirmation_removes_and_says_what(graph: Graph) -> None:
    done = run("cleanup", graph.root, "--keep", "3", "--confirm")

    assert done.returncode == 0, done.stderr
    assert "removed " in done.stdout
    assert "would" not in done.stdout
    assert "Nothing was removed" not in done.stderr
    assert versions(graph, DOC) == [2, 3, 4]


def test_cleanup_as_json_has_stable_keys(graph: Graph) -> None:
    found = answer("cleanup", graph.root, "--older-than", "0s", "--confirm")

    assert found.keys() == {
        "root",
        "dry_run",
        "tables",
        "reconciled",
        "leftovers",
        "holds",
        "held_versions",
        "bytes_removed",
    }
    rows = {each["table_key"]: each for each in found["tables"]}
    assert rows[DOC].keys() == {
        "table_key",
        "bytes_removed",
        "old_versions_removed",
        "files_removed",
        "error",
    }
    assert (rows[DOC]["old_versions_removed"], rows[QUIET]["old_versions_removed"]) == (3, 0)
    assert found["reconciled"] == {
        "dry_run": False,
        "reclaimed": [],
        "failures": [],
        "foreign": [],
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 5, "cleanup requires at least one of keep_versions or older_than"),
        (("--keep", "2"), 5, "--allow-unsafe-keep"),
        (("--older-than", "soon"), 5, "'soon' is not a duration"),
        (("--keep", "0"), 2, "--keep"),
        (("--keep", "many"), 2, "--keep"),
    ],
)
def test_a_cleanup_that_makes_no_sense_is_refused(
    graph: Graph, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = run("cleanup", graph.root, *arguments, "--confirm")

    assert done.returncode == code
    assert message in done.stderr
    assert versions(graph, DOC) == [1, 2, 3, 4]


def test_two_versions_can_be_kept_by_saying_so(graph: Graph) -> None:
    done = run("cleanup", graph.root, "--keep", "2", "--allow-unsafe-keep", "--confirm")

    assert done.returncode == 0, done.stderr
    assert versions(graph, DOC) == [3, 4]


def test_a_table_that_cannot_be_cleaned_is_shown_and_ends_with_1(graph: Graph) -> None:
    found = answer(
        *("cleanup", graph.root, "--keep", "3", "--confirm"),
        code=1,
        env={"OMNIGRAPH_FAILPOINTS": "cleanup.table_gc=error"},
    )

    errors = {each["table_key"]: each["error"] for each in found["tables"] if each["error"]}
    assert list(errors.values()) == ["cleanup.table_gc"]
    assert found["dry_run"] is False


def test_reconcile_counts_what_it_reclaimed(graph: Graph) -> None:
    put(graph.branches.create("gone"), Doc=[doc(1, 100)])
    assert killed("branch", "delete", graph.root, "gone", at="branch.post_delete")

    shown = run("reconcile", graph.root)
    found = answer("reconcile", graph.root, "--confirm")

    assert "would reclaim 2 orphaned forks\n" in shown.stdout
    assert "Nothing was deleted. Add --confirm" in shown.stderr
    assert [each["fate"] for each in found["reclaimed"]] == ["orphan", "orphan"]
    done = run("reconcile", graph.root, "--confirm")
    assert (done.returncode, done.stdout) == (0, "reclaimed 0 orphaned forks\n")


@pytest.mark.parametrize("confirm", [(), ("--confirm",)], ids=["preview", "confirmed"])
def test_reconcile_ends_with_1_if_something_failed(graph: Graph, confirm: tuple[str, ...]) -> None:
    found = answer(
        *("reconcile", graph.root, *confirm),
        code=1,
        env={"OMNIGRAPH_FAILPOINTS": "cleanup.resolve_branch_snapshot=error"},
    )

    assert found["failures"] == [{"owner": "main", "reason": "cleanup.resolve_branch_snapshot"}]


def test_reconcile_names_lance_branches_that_are_not_ours(graph: Graph) -> None:
    lance.dataset(uri(graph, DOC)).create_branch("mine")

    done = run("reconcile", graph.root, "--confirm")

    assert done.returncode == 0
    assert f"{DOC}: kept the Lance branch 'mine'" in done.stderr
    asked = answer("reconcile", graph.root, "--confirm", "--also-foreign")
    assert [each["fork"] for each in asked["reclaimed"]] == ["mine"]


POLICY = """
[optimize]
target_rows_per_fragment = 100000
[cleanup]
keep = 3
"""


def test_maintain_runs_every_step_and_writes_metrics(graph: Graph, tmp_path: Path) -> None:
    policy, metrics = tmp_path / "nightly.toml", tmp_path / "omnigraph.prom"
    policy.write_text(POLICY)
    before = content(graph)

    done = run("maintain", graph.root, "--policy", str(policy), "--metrics", str(metrics))

    assert done.returncode == 0, done.stderr
    for step in ("check", "branches", "reconcile", "optimize", "cleanup"):
        (line,) = (line for line in done.stdout.splitlines() if line.strip().startswith(step))
        assert "done" in line
    assert f'omnigraph_maintain_exit_code{{graph="{graph.root}"}} 0' in metrics.read_text()
    assert content(graph) == before
    assert len(versions(graph, DOC)) == 3


def test_maintain_as_json_has_stable_keys(graph: Graph) -> None:
    found = answer("maintain", graph.root)

    assert found.keys() == {"root", "started_at", "steps", "exit_code"}
    assert [each["step"] for each in found["steps"]] == [
        "check",
        "branches",
        "reconcile",
        "optimize",
        "cleanup",
    ]
    assert {tuple(sorted(each)) for each in found["steps"]} == {
        ("counts", "messages", "outcome", "seconds", "step")
    }


def test_maintain_of_a_damaged_graph_ends_with_8_and_says_why(graph: Graph, tmp_path: Path) -> None:
    metrics = tmp_path / "omnigraph.prom"
    data_files(graph, TAG)[0].unlink()

    done = run("maintain", graph.root, "--metrics", str(metrics))

    assert done.returncode == 8
    assert "attention" in done.stdout
    assert "not_reached" in done.stdout
    assert "check: " in done.stderr
    assert f'omnigraph_maintain_exit_code{{graph="{graph.root}"}} 8' in metrics.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot read"), ("[cleanpu]", "says 'cleanpu'"), ("[", "is not TOML")],
)
def test_a_policy_that_cannot_be_understood_is_refused(
    graph: Graph, tmp_path: Path, text: str | None, message: str
) -> None:
    policy = tmp_path / "nightly.toml"
    if text is not None:
        policy.write_text(text)

    done = run("maintain", graph.root, "--policy", str(policy))

    assert done.returncode == 5
    assert message in done.stderr
    assert versions(graph, DOC) == [1, 2, 3, 4]


def test_a_run_that_was_killed_is_resumed_by_the_next(graph: Graph, tmp_path: Path) -> None:
    policy = tmp_path / "nightly.toml"
    policy.write_text(POLICY)
    before = content(graph)
    assert killed(
        "maintain",
        graph.root,
        "--policy",
        str(policy),
        at="optimize.post_phase_b_pre_manifest_commit",
    )

    found = answer("maintain", graph.root, "--policy", str(policy))

    assert found["exit_code"] == 0
    assert {each["outcome"] for each in found["steps"]} == {"done"}
    assert content(graph) == before
    assert fragments(graph, DOC) == 1
    assert graph.maintenance.check().ok


def document(*arguments: str) -> dict[str, Any]:
    """What a command that fails prints with --json."""
    ended = run(*arguments, "--json")
    assert ended.returncode != 0
    return dict(json.loads(ended.stdout))


def test_a_failed_run_says_whether_the_graph_was_changed(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.write({"Doc": [doc(9)]})
    lance.dataset(uri(dev, DOC)).delete("n = 9")

    first, second = document("maintain", graph.root), document("maintain", graph.root)

    assert first["error"]["written"] is True
    assert second["error"]["written"] is False


def test_the_row_of_a_table_that_could_not_be_optimized_says_so(graph: Graph) -> None:
    newest = max(
        Path(uri(graph, TAG), "_versions").iterdir(), key=lambda path: path.stat().st_mtime
    )
    newest.unlink()

    first, second = document("optimize", graph.root), document("optimize", graph.root)

    rows = {row["table_key"]: row for row in first["tables"]}
    assert "HEAD" in rows[TAG]["error"]
    assert rows[DOC]["error"] is None
    assert rows[DOC]["committed"]
    assert first["error"]["written"] is True
    assert second["error"]["written"] is False
    assert "failed: " in run("optimize", graph.root).stdout


@pytest.mark.parametrize("verb", ["optimize", "cleanup", "reconcile", "maintain"])
def test_maintenance_of_nothing_is_not_found(tmp_path: Path, verb: str) -> None:
    more = ("--keep", "3") if verb == "cleanup" else ()

    assert run(verb, str(tmp_path / "none"), *more).returncode == 3
