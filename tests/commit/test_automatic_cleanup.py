"""Lance's own cleanup after commits, which knows nothing of what tags and branches name."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
from lance.fragment import write_fragments

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.failpoints import Action, Armed, FailpointReached, arm, disarm_all
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.maintenance.maintain import Step, StepOutcome
from omnigraph_lake.storage.manifest.history import HISTORY
from omnigraph_lake.storage.staging.table_versions import Role
from omnigraph_lake.validation.check import Problem
from tests.gate.selection import for_gate
from tests.maintenance.old_graphs import AUTO_CLEANUP, SCHEMA, old_graph

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("makes tables with bare Lance")]

PERSON = names.table_location("node:Person")


def test_a_graph_of_tables_with_automatic_cleanup_keeps_what_tags_and_branches_name(
    graph_root: str,
) -> None:
    old_graph(graph_root, stamp=3, auto_cleanup=True)
    assert lance.dataset(f"{graph_root}/{PERSON}").config() == AUTO_CLEANUP
    before = versions(graph_root)
    graph = og.open(graph_root)
    early = graph.branches.create("early")  # forks versions that have the settings
    first = early.write({"Person": [{"name": "zoe"}]})
    assert first.commit_id is not None
    early.write({"Person": [{"name": "yan"}]})
    graph.write({"Person": [{"name": "ann"}]})
    graph.tags.create("t1")
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "eve"}]})

    for name in ("bob", "cid"):
        graph.write({"Person": [{"name": name}]})
        dev.write({"Person": [{"name": f"dev {name}"}]})

    assert people(graph.at("t1")) == ["ann"]
    assert people(early) == ["yan", "zoe"]
    assert people(early.at(first.commit_id)) == ["zoe"]
    assert set(before) <= set(versions(graph_root))
    assert people(graph) == ["ann", "bob", "cid"]
    assert len(people(dev)) == 4
    assert lance.dataset(f"{graph_root}/{PERSON}").config() == {}
    for location in (names.MANIFEST, *HISTORY):
        assert lance.dataset(f"{graph_root}/{location}").config() == {}
    assert people(graph.at(graph.commits()[-4].commit_id)) == ["ann"]


@pytest.mark.parametrize("verb", ["write", "optimize", "delete", "apply_schema"])
def test_automatic_cleanup_that_something_else_switched_on_never_runs(
    graph_root: str, verb: str
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    graph.write({"Person": [{"name": "bob"}]})
    switch_on(graph_root)
    before = versions(graph_root)

    match verb:
        case "write":
            graph.write({"Person": [{"name": "cid"}]})
        case "optimize":
            graph.maintenance.optimize()
        case "delete":
            graph.delete({"Person": ["ann"]})
        case _:
            graph.schema.apply(SCHEMA.replace("Person {", "Person { note: String? "))

    assert set(before) <= set(versions(graph_root))


@pytest.mark.parametrize("point", ["mutation.pre_table_commit", "publish.pre_manifest"])
def test_a_write_that_died_on_such_a_table_is_settled_without_a_cleanup(
    graph_root: str, point: str
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}], "Company": [{"name": "acme"}]})
    switch_on(graph_root)
    graph.maintenance.repair(dry_run=False)
    assert graph.maintenance.check().findings
    before = versions(graph_root)
    arm(point, Armed(action=Action.ERROR))
    with pytest.raises(FailpointReached):
        graph.write({"Person": [{"name": "bob"}], "Company": [{"name": "bert"}]})
    disarm_all()

    (recovery,) = graph.maintenance.recover(force=True).settled
    graph.write({"Person": [{"name": "cid"}]})

    assert recovery.kind == ("rolled_forward" if point.startswith("publish") else "rolled_back")
    assert set(before) <= set(versions(graph_root))
    assert graph.maintenance.check().ok


def test_what_an_earlier_release_left_on_such_a_table_is_undone_without_a_cleanup(
    graph_root: str,
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    switch_on(graph_root)
    graph.maintenance.repair(dry_run=False)
    table = lance.dataset(f"{graph_root}/{PERSON}")
    table.tags.create("theirs", min(versions(graph_root)))
    appended = lance.LanceOperation.Append(write_fragments(table.to_table(), table, mode="append"))
    properties = {
        names.OPERATION_PROPERTY: "01J00000000000000000000000",
        names.ROLE_PROPERTY: Role.OWN,
        names.PIN_PROPERTY: str(table.version),
    }
    transaction = lance.Transaction(table.version, appended, transaction_properties=properties)
    lance.LanceDataset.commit(table, transaction)
    table.tags.delete("theirs")
    before = versions(graph_root)

    graph.write({"Person": [{"name": "bob"}]})

    assert set(before) <= set(versions(graph_root))
    assert table.tags.list() == {}
    assert people(graph) == ["ann", "bob"]
    assert graph.maintenance.check().ok


def test_check_tells_of_automatic_cleanup(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    switch_on(graph_root)
    (drifted,) = graph.maintenance.check().findings
    graph.maintenance.repair(dry_run=False)

    (finding,) = graph.maintenance.check().findings

    assert (finding.problem, finding.thing) == (Problem.AUTOMATIC_CLEANUP, "node:Person")
    assert "interval=1" in finding.message
    assert drifted == finding
    before = versions(graph_root)
    graph.write({"Company": [{"name": "acme"}]})
    graph.maintenance.optimize()
    assert graph.maintenance.check().ok
    assert set(before) <= set(versions(graph_root))


def test_check_tells_of_automatic_cleanup_on_every_branch(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "bob"}]})
    graph.branches.create("idle")
    (fork,) = Path(f"{graph_root}/{PERSON}/tree").iterdir()
    lance.dataset(str(fork)).update_config(AUTO_CLEANUP)

    for branch in ("main", "dev", "idle"):
        (finding,) = graph.checkout(branch).maintenance.check().findings
        assert (finding.problem, finding.thing) == (Problem.AUTOMATIC_CLEANUP, "node:Person")
        assert "on branch 'dev'" in finding.message
    dev.write({"Person": [{"name": "cyd"}]})
    assert graph.maintenance.check().ok


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_maintenance_goes_on_beside_automatic_cleanup(graph_root: str, branch: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    if branch == "main":
        switch_on(graph_root)
        graph.maintenance.repair(dry_run=False)
    else:
        graph.branches.create("dev").write({"Person": [{"name": "bob"}]})
        (fork,) = Path(f"{graph_root}/{PERSON}/tree").iterdir()
        lance.dataset(str(fork)).update_config(AUTO_CLEANUP)

    report = graph.maintenance.run()

    outcomes = {step.step: step.outcome for step in report.steps}
    assert outcomes.pop(Step.CHECK) is StepOutcome.ATTENTION
    assert set(outcomes.values()) == {StepOutcome.DONE}
    assert "automatically" in report.steps[0].messages[0]
    assert graph.maintenance.check().ok == (branch == "main")
    assert people(graph) == ["ann"]


@pytest.mark.parametrize("nights", for_gate([4, 40], lambda nights: nights == 4))
@pytest.mark.parametrize("handle", ["opened every night", "opened before"])
def test_nights_of_an_empty_table_keep_what_a_tag_and_a_branch_name(
    graph_root: str, handle: str, nights: int
) -> None:
    """Opening a graph for writing takes the settings away; a handle of before finds them."""
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    graph.write({"Person": [{"name": "bob"}]})
    graph.tags.create("kept")
    graph.branches.create("side")
    graph.delete({"Person": ["ann", "bob"]})
    table = lance.dataset(f"{graph_root}/{PERSON}")
    table.tags.create("theirs", min(versions(graph_root)))  # or Lance deletes as it is switched on
    switch_on(graph_root)
    table.tags.delete("theirs")
    graph.maintenance.repair(dry_run=False)
    assert lance.dataset(f"{graph_root}/{PERSON}").config() == AUTO_CLEANUP
    before = versions(graph_root)

    heads = []
    for _ in range(nights):
        (graph if handle == "opened before" else og.open(graph_root)).maintenance.optimize()
        heads.append(versions(graph_root)[-1])

    assert lance.dataset(f"{graph_root}/{PERSON}").config() == {}
    assert len(set(heads)) == 1
    assert set(before) <= set(versions(graph_root))
    graph = og.open(graph_root)
    assert graph.count("Person") == 0
    assert people(graph.at("kept")) == people(graph.checkout("side")) == ["ann", "bob"]
    assert graph.maintenance.check(deep=True).ok


def switch_on(root: str) -> None:
    lance.dataset(f"{root}/{PERSON}").update_config(AUTO_CLEANUP)


def versions(root: str) -> list[int]:
    return [each["version"] for each in lance.dataset(f"{root}/{PERSON}").versions()]


def people(graph: Graph | GraphView) -> list[str]:
    return sorted(graph.scan("Person").read_all()["name"].to_pylist())
