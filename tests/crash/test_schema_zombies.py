"""Whoever sleeps through a change of the schema: it tells the truth, and nobody sees a mixture.

What the gate leaves out of the matrices, and why, is in `tests/crash/schema_sleeps.py`. Besides, it
makes branches only before and after their manifest is forked, which is what their schema hangs on,
and lets an optimize end in one way per test: that it wakes up to swapped names is also shown where
its guard is shown to be needed.
"""

from __future__ import annotations

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.errors import ConflictError
from omnigraph_lake.graph import Graph
from tests.crash.processes import Victim
from tests.crash.schema_processes import start
from tests.crash.schema_sleeps import (
    APPLIERS,
    RIVAL_ID,
    SWEEP_SLEEPS,
    WRITERS,
    ApplierSleep,
    Ending,
    Meanwhile,
    SweepSleep,
    WriterSleep,
    pass_time,
    replayed,
)
from tests.crash.schema_verdict import (
    assert_no_table_of_nobody,
    assert_published_once,
    assert_settled,
    assert_sound,
    assert_still_sound,
    seen_afresh,
    seen_by_another,
)
from tests.crash.schema_world import (
    CHANGES,
    SIDE,
    Apply,
    Change,
    apply,
    changed,
    look,
    swap_names,
    with_city,
)
from tests.crash.schema_worlds import FORWARD, TOWNS, SchemaWorlds
from tests.crash.schema_writers import WriterVerb, Writing, write
from tests.crash.test_schema_crashes import DONE_BEFORE
from tests.crash.verdict import NOT_DONE
from tests.crash.worlds import earlier_id
from tests.gate.selection import for_gate

pytestmark = [pytest.mark.crash, pytest.mark.sampled(3)]


@pytest.mark.parametrize("case", APPLIERS.selected, ids=str)
def test_an_applier_that_wakes_up_tells_the_truth(
    case: ApplierSleep, schema_worlds: SchemaWorlds
) -> None:
    before, commit = schema_worlds.lay_out(case.change)
    root = schema_worlds.root
    job = Apply(change=case.change, operation_id=str(ULID()))
    armed = f"{case.point}=stop@{case.visit}"
    sleeper = start("apply", root, job.encoded(), failpoints=armed)
    sleeper.wait_until_stopped()
    pass_time(case.meanwhile, root, job.branch)
    sleeper.wake()

    ended = sleeper.end()

    graph = schema_worlds.graph(case.change)
    outcome = graph.outcome(job.operation_id)
    if ended.said == "acknowledged":
        assert outcome is OperationStatus.PUBLISHED
    else:
        assert ended.said == "failed", ended.answer
        assert outcome in NOT_DONE
        assert case.point not in DONE_BEFORE
    assert_settled(graph)
    assert_published_once(graph, job.operation_id, RIVAL_ID)
    expected = replayed(graph, before, job, case.meanwhile)
    assert look(graph) == expected
    assert seen_afresh(root, job.branch) == expected
    assert_sound(graph)
    assert_no_table_of_nobody(graph)
    assert look(graph.at(commit)) == before
    graph.schema.apply(CHANGES[case.change].text)
    assert look(graph) == changed(expected, case.change)
    assert_still_sound(graph)


@pytest.mark.parametrize("case", SWEEP_SLEEPS.selected, ids=str)
def test_a_sweep_of_a_schema_change_that_wakes_up_does_no_harm(
    case: SweepSleep, schema_worlds: SchemaWorlds
) -> None:
    job, before, commit = schema_worlds.lay_out_dead(case.stage)
    root, meanwhile = schema_worlds.root, Meanwhile.SWEPT_AND_APPLIED
    sleeper = start("sweep", root, failpoints=f"{case.point}=stop@{case.visit}")
    sleeper.wait_until_stopped()
    pass_time(meanwhile, root, job.branch)
    decided = og.open(root, read_only=True).outcome(job.operation_id)
    sleeper.wake()

    said = sleeper.end().said

    assert said == "acknowledged"
    graph = schema_worlds.graph(job.change)
    forward = case.stage in FORWARD
    assert decided is (OperationStatus.PUBLISHED if forward else OperationStatus.ROLLED_BACK)
    assert graph.outcome(job.operation_id) is decided
    assert_settled(graph)
    assert_published_once(graph, job.operation_id, RIVAL_ID)
    expected = replayed(graph, before, job, meanwhile)
    assert look(graph) == expected
    assert seen_afresh(root, job.branch) == expected
    assert_sound(graph)
    assert_no_table_of_nobody(graph)
    assert look(graph.at(commit)) == before


@pytest.mark.parametrize("case", WRITERS.selected, ids=str)
def test_a_write_prepared_for_another_schema_never_lands(
    case: WriterSleep, schema_worlds: SchemaWorlds
) -> None:
    before, commit = schema_worlds.lay_out(case.change, case.verb)
    root = schema_worlds.root
    writing = Writing(verb=case.verb, operation_id=str(ULID()))
    sleeper = start("write", root, writing.encoded(), failpoints=f"{case.point}=stop")
    sleeper.wait_until_stopped()
    graph = og.open(root)
    text = CHANGES[case.change].text
    graph.schema.apply(text, operation_id=earlier_id(), allow_diverged=True)
    match case.ending:
        case Ending.WAKES:
            sleeper.wake()
            ended = sleeper.end()
            assert ended.said != "acknowledged" or case.verb is WriterVerb.OPTIMIZE
        case Ending.DIES:
            sleeper.kill()
            assert sleeper.end().was_killed
            graph = og.open(root)

    assert graph.outcome(writing.operation_id) in NOT_DONE
    assert_settled(graph)
    after = changed(before, case.change)
    assert look(graph) == after
    assert seen_afresh(root) == after
    assert_sound(graph)
    assert look(graph.at(commit)) == before
    write(graph, Writing(verb=case.verb, operation_id=str(ULID())))
    if case.verb in (WriterVerb.WRITE, WriterVerb.LOAD, WriterVerb.MUTATE):
        assert look(graph) == with_city(after, writing.city)
    if case.verb is WriterVerb.MERGE:
        # A merge that begins now lifts the rows of the branch to the schema in force.
        assert look(graph) == changed(with_city(before, writing.city), case.change)
        assert_sound(graph)
    assert_still_sound(graph)
    assert_settled(graph)


@pytest.mark.parametrize(
    "point",
    for_gate(
        ("branch.begin", "branch.post_claim", "branch.post_manifest", "branch.post_parent"),
        {"branch.post_claim", "branch.post_manifest"}.__contains__,
    ),
)
def test_a_branch_made_while_the_schema_changes_has_the_schema_of_its_rows(
    point: str, schema_worlds: SchemaWorlds
) -> None:
    before, _ = schema_worlds.lay_out(Change.MANY)
    root = schema_worlds.root
    sleeper = start("branch", root, SIDE, failpoints=f"{point}=stop")
    sleeper.wait_until_stopped()
    graph = og.open(root)
    graph.schema.apply(CHANGES[Change.MANY].text, allow_diverged=True)
    sleeper.wake()

    said = sleeper.end().said

    assert said == "acknowledged"
    assert seen_by_another(root, SIDE) == before
    assert look(graph.checkout(SIDE)) == before
    assert graph.checkout(SIDE).maintenance.check().findings == ()
    assert look(graph) == changed(before, Change.MANY)


def test_a_second_applier_is_refused_while_the_first_is_at_work(
    schema_worlds: SchemaWorlds,
) -> None:
    before, _ = schema_worlds.lay_out(Change.MANY)
    first = Apply(change=Change.MANY, operation_id=str(ULID()))
    sleeper = start(
        "apply", schema_worlds.root, first.encoded(), failpoints="schema.post_lock=stop"
    )
    sleeper.wait_until_stopped()
    graph = og.open(schema_worlds.root)

    with pytest.raises(ConflictError, match="already changing"):
        apply(graph, Apply(change=Change.COLUMN, operation_id=earlier_id()))

    sleeper.wake()
    assert sleeper.end().said == "acknowledged"
    assert look(graph) == changed(before, Change.MANY)
    assert_settled(graph)


def test_a_dead_applier_on_a_branch_is_in_nobodys_way_on_main(schema_worlds: SchemaWorlds) -> None:
    schema_worlds.lay_out(Change.BRANCH)
    graph = og.open(schema_worlds.root)
    dead = Apply(change=Change.BRANCH, operation_id=str(ULID()))
    victim = start("apply", schema_worlds.root, dead.encoded(), failpoints="schema.post_lock=stop")
    victim.wait_until_stopped()
    victim.kill()
    assert victim.end().was_killed

    result = graph.schema.apply(CHANGES[Change.COLUMN].text, allow_diverged=True)

    assert result.applied


def test_an_applier_that_lost_to_another_leaves_no_table_behind(
    schema_worlds: SchemaWorlds,
) -> None:
    before, _ = schema_worlds.lay_out(Change.MANY)
    job = Apply(change=Change.MANY, operation_id=str(ULID()))
    sleeper = start(
        "apply", schema_worlds.root, job.encoded(), failpoints="publish.pre_manifest=stop"
    )
    sleeper.wait_until_stopped()
    graph = og.open(schema_worlds.root)
    graph._objects.delete(names.schema_lock())
    club = f"{before.text}\nnode Club {{ name: String @key }}"
    graph.schema.apply(club, operation_id=earlier_id())
    sleeper.wake()

    ended = sleeper.end()

    assert ended.answer["error"] == "SchemaChangedError"
    assert graph.schema.text == club
    assert_no_table_of_nobody(graph)
    graph.schema.apply(CHANGES[Change.MANY].text)
    assert look(graph) == changed(before, Change.MANY)
    assert graph.maintenance.check().findings == ()


@pytest.mark.parametrize("ending", for_gate(Ending, Ending.DIES.__eq__))
def test_an_optimize_that_sleeps_while_types_swap_names_damages_neither(
    ending: Ending, schema_worlds: SchemaWorlds
) -> None:
    schema_worlds.lay_out_towns()
    root = schema_worlds.root
    graph, sleeper = _asleep_in_optimize(root)
    cities, towns = graph.scan("City").read_all(), graph.scan("Town").read_all()
    swap_names(graph)
    _end(sleeper, ending)

    graph = og.open(root)

    assert graph.maintenance.check().findings == ()
    assert graph.scan("City").read_all().equals(towns)
    assert graph.scan("Town").read_all().equals(cities)


@pytest.mark.parametrize("ending", for_gate(Ending, Ending.WAKES.__eq__))
def test_an_optimize_that_sleeps_while_a_type_is_renamed_leaves_nothing_to_repair(
    ending: Ending, schema_worlds: SchemaWorlds
) -> None:
    schema_worlds.lay_out_towns()
    root = schema_worlds.root
    graph, sleeper = _asleep_in_optimize(root)
    towns = graph.scan("Town").read_all()
    graph.schema.apply(TOWNS.replace("node Town", 'node Village @rename_from("Town")'))
    _end(sleeper, ending)

    graph = og.open(root)

    assert graph.maintenance.check().findings == ()
    assert graph.scan("Village").read_all().equals(towns)
    graph.write({"Village": [{"name": "new"}]})
    graph.maintenance.optimize()
    assert graph.maintenance.check().findings == ()


def _asleep_in_optimize(root: str) -> tuple[Graph, Victim]:
    """A graph, and a process that has compacted it and is about to publish."""
    writing = Writing(verb=WriterVerb.OPTIMIZE, operation_id=str(ULID()))
    sleeper = start("write", root, writing.encoded(), failpoints="publish.pre_manifest=stop")
    sleeper.wait_until_stopped()
    return og.open(root), sleeper


def _end(sleeper: Victim, ending: Ending) -> None:
    if ending is Ending.WAKES:
        sleeper.wake()
        assert sleeper.end().said is not None
    else:
        sleeper.kill()
        assert sleeper.end().was_killed
