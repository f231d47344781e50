"""The nightly run: its steps, how it ends, that it can be repeated, and what it leaves to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lance
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import DriftNeedsRepairError, ReadOnlyError
from omnigraph_lake.failpoints import FailpointReached, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.cleanup import CleanupPolicy
from omnigraph_lake.maintenance.maintain import (
    MaintainReport,
    Policy,
    Step,
    StepOutcome,
    StepReport,
    metric_lines,
    write_metrics,
)
from tests.behaviours.histories import content, put
from tests.maintenance.maintenance_graphs import (
    DOC,
    TABLES,
    TAG,
    armed,
    coverage,
    data_files,
    doc,
    fragments,
    head,
    heads_equal_pins,
    scattered_graph,
    uri,
    versions,
)
from tests.stores import folder_of

pytestmark = pytest.mark.unit

ALL = Policy(cleanup_policy=CleanupPolicy(keep_versions=3))


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    disarm_all()
    yield
    disarm_all()


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


def outcomes(report: MaintainReport) -> dict[str, str]:
    return {each.step.value: each.outcome.value for each in report.steps}


def counts(report: MaintainReport, step: Step) -> dict[str, int]:
    (found,) = (each for each in report.steps if each.step is step)
    return dict(found.counts)


def test_a_run_checks_reconciles_optimizes_and_cleans_in_this_order(graph: Graph) -> None:
    before = content(graph)

    report = graph.maintenance.run(ALL)

    assert [each.step.value for each in report.steps] == [
        "check",
        "branches",
        "reconcile",
        "optimize",
        "cleanup",
    ]
    assert set(outcomes(report).values()) == {"done"}
    assert (report.root, report.exit_code) == (graph.root, 0)
    assert counts(report, Step.CHECK) == {"tables": 4, "rows": 12, "findings": 0}
    assert counts(report, Step.RECONCILE) == {"reclaimed": 0, "failures": 0}
    assert counts(report, Step.OPTIMIZE) == {
        "tables_committed": 3,
        "fragments_removed": 5,
        "fragments_added": 2,
        "tables_skipped": 0,
        "indexes_pending": 0,
    }
    cleaned = counts(report, Step.CLEANUP)
    assert cleaned.keys() == {
        "old_versions_removed",
        "files_removed",
        "bytes_removed",
        "tables_failed",
    }
    assert cleaned["old_versions_removed"] > 0
    assert content(graph) == before
    assert fragments(graph, DOC) == 1
    assert len(versions(graph, DOC)) == 3


def test_by_default_a_week_of_history_is_kept(graph: Graph) -> None:
    report = graph.maintenance.run()

    assert counts(report, Step.CLEANUP)["old_versions_removed"] == 0
    assert versions(graph, DOC)[0] == 1


def test_a_run_that_is_repeated_comes_to_rest(graph: Graph) -> None:
    for _ in range(3):
        graph.maintenance.run(ALL)
    version = graph.snapshot().manifest_version
    heads = {key: head(graph, key) for key in TABLES}

    report = graph.maintenance.run(ALL)

    assert graph.snapshot().manifest_version == version
    assert {key: head(graph, key) for key in TABLES} == heads
    assert counts(report, Step.OPTIMIZE)["tables_committed"] == 0
    assert counts(report, Step.CLEANUP)["old_versions_removed"] == 0
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("policy", "off"),
    [
        (replace(ALL, check=False), "check"),
        (replace(ALL, optimize=False), "optimize"),
        (replace(ALL, cleanup=False), "cleanup"),
    ],
)
def test_a_step_can_be_left_out(graph: Graph, policy: Policy, off: str) -> None:
    report = graph.maintenance.run(policy)

    assert outcomes(report) == {
        **dict.fromkeys(("check", "branches", "reconcile", "optimize", "cleanup"), "done"),
        off: "off",
    }
    assert report.exit_code == 0


@pytest.mark.parametrize(
    "point",
    ["reconcile.post_refs", "optimize.post_phase_b_pre_manifest_commit", "retention.post_floor"],
)
def test_a_run_that_was_interrupted_is_resumed_by_running_again(graph: Graph, point: str) -> None:
    before = content(graph)
    with armed(point), pytest.raises(FailpointReached):
        graph.maintenance.run(ALL)

    report = og.open(graph.root).maintenance.run(ALL)

    assert (set(outcomes(report).values()), report.exit_code) == ({"done"}, 0)
    assert content(graph) == before
    assert fragments(graph, DOC) == 1
    assert coverage(graph, DOC)["id_btree"] == (9, 0)
    assert heads_equal_pins(graph)
    assert graph.maintenance.check().ok


def test_what_something_else_wrote_to_a_branch_is_told_with_the_command_that_shows_it(
    graph: Graph,
) -> None:
    dev = graph.branches.create("dev")
    dev.write({"Doc": [doc(9)]})
    lance.dataset(uri(dev, DOC)).delete("true")

    report = graph.maintenance.run(ALL)

    assert outcomes(report)["check"] == "attention"
    assert report.exit_code == 8
    (message,) = report.steps[0].messages
    assert message.startswith("branch 'dev', node:Doc: version ")
    assert f"Run `omnigraph repair {graph.root} --branch dev`." in message
    with pytest.raises(DriftNeedsRepairError, match=f"omnigraph repair {graph.root} --branch dev`"):
        dev.write({"Doc": [doc(10)]})
    dev.maintenance.repair(dry_run=False, force=True)
    assert outcomes(graph.maintenance.run(ALL))["check"] == "done"


def test_drift_on_a_branch_does_not_keep_the_rest_from_being_maintained(graph: Graph) -> None:
    before = content(graph)
    dev, other = graph.branches.create("dev"), graph.branches.create("other")
    for n in range(3):
        dev.write({"Doc": [doc(9 + n)]})
        other.write({"Doc": [doc(9 + n)]})
    foreign = lance.dataset(uri(dev, DOC))
    foreign.delete("n = 10")
    foreign.optimize.compact_files()

    report = graph.maintenance.run(replace(ALL, cleanup_policy=CleanupPolicy(keep_versions=1)))

    assert outcomes(report) == {
        "check": "attention",
        "branches": "done",
        "reconcile": "done",
        "optimize": "done",
        "cleanup": "done",
    }
    assert report.exit_code == 8
    assert fragments(graph, DOC) == 1
    assert counts(report, Step.CLEANUP)["old_versions_removed"] > 0
    assert content(graph) == before
    assert len(content(other)["Doc"]) == len(content(dev)["Doc"]) == 12
    dev.maintenance.repair(dry_run=False, force=True)
    assert content(dev)["Doc"].keys() == content(other)["Doc"].keys() - {"d10"}
    assert outcomes(graph.maintenance.run(ALL))["check"] == "done"


def test_other_damage_beside_drift_on_a_branch_ends_the_run(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.write({"Doc": [doc(9)]})
    lance.dataset(uri(dev, DOC)).delete("true")
    data_files(graph, TAG)[0].unlink()

    report = graph.maintenance.run(ALL)

    assert outcomes(report)["cleanup"] == "not_reached"
    assert report.exit_code == 8


@pytest.mark.parametrize("pinned_by", ["branch 'dev'", "tag 'kept'"])
def test_versions_that_only_a_branch_or_a_tag_needs_are_looked_for(
    graph: Graph, pinned_by: str
) -> None:
    if pinned_by.startswith("branch"):
        graph.branches.create("dev")
    else:
        graph.tags.create("kept")
    entry = graph.snapshot().tables[DOC]
    graph.write({"Doc": [doc(9)]})
    file = f"{2**64 - 1 - entry.version}.manifest"
    folder_of(graph.root, entry.location, "_versions", file).unlink()

    report = graph.maintenance.run(ALL)

    assert outcomes(report)["check"] == "attention"
    assert [message.split(":")[0] for message in report.steps[0].messages] == [
        f"{pinned_by}, {DOC.split(':')[0]}"
    ]


def test_a_damaged_graph_is_not_touched(graph: Graph) -> None:
    data_files(graph, TAG)[0].unlink()
    heads = {key: head(graph, key) for key in TABLES}

    report = graph.maintenance.run(ALL)

    assert outcomes(report) == {
        "check": "attention",
        "branches": "not_reached",
        "reconcile": "not_reached",
        "optimize": "not_reached",
        "cleanup": "not_reached",
    }
    assert report.exit_code == 8
    assert any("Tag" in message for message in report.steps[0].messages)
    assert {key: head(graph, key) for key in TABLES} == heads
    assert versions(graph, DOC) == [1, 2, 3, 4]


def test_drift_needs_attention_and_the_others_are_done(graph: Graph) -> None:
    policy = replace(ALL, check=False)
    lance.dataset(uri(graph, DOC)).optimize.compact_files()

    report = graph.maintenance.run(policy)

    assert outcomes(report)["optimize"] == "attention"
    assert outcomes(report)["cleanup"] == "done"
    assert report.exit_code == 8
    assert counts(report, Step.OPTIMIZE)["tables_skipped"] == 1
    (message,) = report.steps[3].messages
    assert message == "node:Doc: HEAD differs from the manifest: run omnigraph repair"


def test_a_step_that_fails_does_not_keep_the_next_from_running(graph: Graph) -> None:
    data_files(graph, DOC)[0].unlink()
    policy = replace(ALL, check=False)

    report = graph.maintenance.run(policy)

    assert outcomes(report)["optimize"] == "failed"
    assert outcomes(report)["cleanup"] == "done"
    assert report.exit_code == 1
    assert "optimize failed for node:Doc" in report.steps[3].messages[0]


def test_a_table_that_cannot_be_cleaned_is_counted_and_named(graph: Graph) -> None:
    with armed("cleanup.table_gc"):
        report = graph.maintenance.run(ALL)

    assert counts(report, Step.CLEANUP)["tables_failed"] == 1
    assert report.steps[4].messages[0].endswith(": cleanup.table_gc")
    assert report.exit_code == 1


def test_pending_indexes_are_counted_and_are_no_failure(graph: Graph) -> None:
    graph.write({"Cites": []}, mode="overwrite")
    graph.write({"Doc": [doc(1, place=None)]}, mode="overwrite")

    report = graph.maintenance.run(ALL)

    assert counts(report, Step.OPTIMIZE)["indexes_pending"] == 1
    assert report.steps[3].messages == ("node:Doc.place: no vectors to train on yet",)
    assert report.exit_code == 0


def test_a_reading_handle_may_not_maintain(graph: Graph) -> None:
    with pytest.raises(ReadOnlyError, match="cannot maintain"):
        og.open(graph.root, read_only=True).maintenance.run()


def test_writes_between_runs_are_taken_in(graph: Graph) -> None:
    graph.maintenance.run(ALL)
    put(graph, Doc=[doc(1, 100), doc(20)])

    graph.maintenance.run(ALL)

    assert coverage(graph, DOC)["n_btree"] == (10, 0)
    assert content(graph)["Doc"]["d1"]["n"] == 100


SAMPLE = re.compile(r"(\w+)\{([^}]*)\} (-?[0-9.]+)")


def metrics(report: MaintainReport) -> dict[str, float]:
    """What Prometheus would take from the lines, by name and labels; it reads nothing else."""
    found: dict[str, float] = {}
    described: set[str] = set()
    for line in metric_lines(report):
        if line.startswith("#"):
            described.add(line.split()[2])
            assert re.fullmatch(r"# (HELP \w+ [A-Z].*\.|TYPE \w+ gauge)", line)
            continue
        matched = SAMPLE.fullmatch(line)
        assert matched, line
        name, labels, value = matched.groups()
        assert name in described
        key = f"{name}{{{labels}}}"
        assert key not in found
        found[key] = float(value)
    return found


def test_the_metrics_hold_every_number_of_a_run(graph: Graph, tmp_path: Path) -> None:
    report = graph.maintenance.run(replace(ALL, cleanup=False))
    path = tmp_path / "omnigraph.prom"
    path.write_text("old")

    write_metrics(report, path)

    assert path.read_text().splitlines() == list(metric_lines(report))
    assert [each.name for each in tmp_path.glob("*omnigraph*")] == ["omnigraph.prom"]
    graph_label = f'graph="{graph.root}"'
    found = metrics(report)
    prefix = "omnigraph_maintain_"
    assert found[f"{prefix}exit_code{{{graph_label}}}"] == 0
    assert found[f'{prefix}step_ok{{{graph_label},step="cleanup"}}'] == 1
    assert found[f'{prefix}count{{{graph_label},step="optimize",what="fragments_removed"}}'] == 5
    assert found[f'{prefix}count{{{graph_label},step="check",what="rows"}}'] == 12
    seconds = [value for key, value in found.items() if "step_seconds" in key]
    assert len(seconds) == 5
    assert all(value >= 0 for value in seconds)


def test_the_metrics_of_a_failed_run_say_so() -> None:
    report = MaintainReport(
        root='/odd"root\\',
        started_at="2026-11-15T00:00:00.000000+00:00",
        steps=(
            StepReport(step=Step.CHECK, outcome=StepOutcome.ATTENTION, seconds=1.5),
            StepReport(step=Step.OPTIMIZE, outcome=StepOutcome.NOT_REACHED),
        ),
    )

    found = {line for line in metric_lines(report) if not line.startswith("#")}

    label = 'graph="/odd\\"root\\\\"'
    assert found == {
        f"omnigraph_maintain_last_run_timestamp_seconds{{{label}}} 1794700800.000",
        f"omnigraph_maintain_exit_code{{{label}}} 8",
        f'omnigraph_maintain_step_seconds{{{label},step="check"}} 1.500',
        f'omnigraph_maintain_step_seconds{{{label},step="optimize"}} 0.000',
        f'omnigraph_maintain_step_ok{{{label},step="check"}} 0',
        f'omnigraph_maintain_step_ok{{{label},step="optimize"}} 0',
    }


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((StepOutcome.DONE, StepOutcome.OFF), 0),
        ((StepOutcome.DONE, StepOutcome.FAILED), 1),
        ((StepOutcome.FAILED, StepOutcome.ATTENTION), 8),
        ((StepOutcome.FAILED, StepOutcome.NOT_REACHED), 1),
    ],
)
def test_the_exit_code_tells_what_is_worst(outcomes: tuple[StepOutcome, ...], code: int) -> None:
    steps = tuple(StepReport(step=Step.CHECK, outcome=outcome) for outcome in outcomes)

    assert MaintainReport(root="r", started_at="2026-11-15", steps=steps).exit_code == code
