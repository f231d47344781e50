"""Each guard of a schema change, left out on purpose: a script in which a promise then breaks.

Every script runs twice on real tables, with the guard and without it. There is no chance in them:
processes stand still at named points while others act.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import failpoints, names
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.failpoints import Action, Armed, FailpointReached
from omnigraph_lake.graph import Graph
from omnigraph_lake.validation.check import Problem
from tests.crash.mutants import without_guards
from tests.crash.processes import Victim
from tests.crash.schema_processes import start
from tests.crash.schema_world import (
    BASE,
    CHANGES,
    Apply,
    Change,
    add_rival_type,
    swap_names,
    write_city,
)
from tests.crash.schema_worlds import SchemaWorlds, Stage
from tests.crash.schema_writers import WriterVerb, Writing
from tests.crash.worlds import earlier_id
from tests.stores import folder_of

pytestmark = pytest.mark.crash

ON = ""
OF_DIFFERENT_SIZES = BASE.replace("size: I32?", "size: I32? @unique")
"""What all cities are until the sleeping writer brings its own. No table moves for it."""


def test_a_publish_demands_the_schema_its_rows_were_judged_by(schema_worlds: SchemaWorlds) -> None:
    def told_and_found(guard: str) -> tuple[str | None, set[Problem]]:
        graph, writer = _writer_overtaken_by_a_rule(schema_worlds, guard)
        writer.wake()
        return writer.end().said, _problems(graph)

    assert told_and_found(ON) == ("failed", set())
    assert told_and_found("no_schema_check") == ("acknowledged", {Problem.BROKEN_RULE})


def test_a_roll_forward_demands_the_schema_the_dead_writer_judged_by(
    schema_worlds: SchemaWorlds,
) -> None:
    def problems(guard: str) -> set[Problem]:
        graph, writer = _writer_overtaken_by_a_rule(schema_worlds, ON)
        writer.kill()
        assert writer.end().was_killed
        with without_guards(guard):
            graph.maintenance.recover()
        return _problems(graph)

    assert problems(ON) == set()
    assert problems("fwd_no_schema_check") == {Problem.BROKEN_RULE}


def test_a_roll_forward_demands_that_every_new_table_is_there(schema_worlds: SchemaWorlds) -> None:
    def done_and_found(guard: str) -> tuple[OperationStatus, set[Problem]]:
        job, _, _ = schema_worlds.lay_out_dead(Stage.ONE_MADE)
        with without_guards(guard):
            graph = og.open(schema_worlds.root)
        return graph.outcome(job.operation_id), _problems(graph)

    assert done_and_found(ON) == (OperationStatus.ROLLED_BACK, set())
    assert done_and_found("fwd_no_created") == (
        OperationStatus.PUBLISHED,
        {Problem.UNREADABLE_PIN},
    )


def test_a_roll_forward_demands_the_rows_that_columns_were_added_for(tmp_path: Path) -> None:
    def columns_and_rows(guard: str) -> tuple[list[str], int]:
        root = str(tmp_path / f"graph{guard}")
        graph = og.init(root, schema="node City { name: String @key }")
        failpoints.arm("schema.post_columns", Armed(action=Action.ERROR))
        with pytest.raises(FailpointReached):
            graph.load(
                {"City": pa.table({"name": ["Ulm"], "size": [5]})},
                options=LoadOptions(merge_schema=True),
            )
        failpoints.disarm_all()
        with without_guards(guard):
            recovered = og.open(root)
        return recovered.scan("City").schema.names, recovered.count("City")

    assert columns_and_rows(ON) == (["id", "name"], 0)
    assert columns_and_rows("fwd_columns") == (["id", "name", "size"], 0)


def test_the_copy_at_the_root_is_not_believed(schema_worlds: SchemaWorlds) -> None:
    def read_as(guard: str) -> tuple[str, set[str]]:
        schema_worlds.lay_out_dead(Stage.PUBLISHED)
        with without_guards(guard):
            snapshot, contract = og.open(schema_worlds.root, read_only=True)._view()
        return contract.text, set(snapshot.tables) ^ set(contract.catalog.tables())

    assert read_as(ON) == (CHANGES[Change.MANY].text, set())
    assert read_as("copy_believed") == (BASE, {"edge:Visited", "node:Club", "edge:MemberOf"})


def test_a_late_applier_does_not_copy_its_schema_over_a_newer_one(
    schema_worlds: SchemaWorlds,
) -> None:
    def is_newest_at_the_root(guard: str) -> bool:
        schema_worlds.lay_out(Change.COLUMN)
        root = schema_worlds.root
        job = Apply(change=Change.COLUMN, operation_id=str(ULID()))
        applier = start(
            "apply",
            root,
            job.encoded(),
            failpoints="schema.pre_promote=stop",
            without_guard=guard,
        )
        applier.wait_until_stopped()
        graph = og.open(root)
        graph.maintenance.recover(force=True)
        add_rival_type(graph, operation_id=earlier_id())
        applier.wake()
        assert applier.end().said == "acknowledged"
        assert og.open(root).schema.text == graph.schema.text
        return folder_of(root, names.SCHEMA_SOURCE).read_text() == graph.schema.text

    assert is_newest_at_the_root(ON)
    assert not is_newest_at_the_root("promote_blindly")


def test_maintenance_is_published_only_under_the_schema_it_began_with(
    schema_worlds: SchemaWorlds,
) -> None:
    def problems(guard: str) -> set[Problem]:
        schema_worlds.lay_out_towns()
        writing = Writing(verb=WriterVerb.OPTIMIZE, operation_id=str(ULID()))
        optimize = start(
            "write",
            schema_worlds.root,
            writing.encoded(),
            failpoints="publish.pre_manifest=stop",
            without_guard=guard,
        )
        optimize.wait_until_stopped()
        graph = og.open(schema_worlds.root)
        swap_names(graph)
        optimize.wake()
        optimize.end()
        return _problems(graph)

    assert problems(ON) == set()
    assert problems("maintenance_blind") == {Problem.UNREADABLE_PIN}


def _writer_overtaken_by_a_rule(worlds: SchemaWorlds, guard: str) -> tuple[Graph, Victim]:
    """A writer that stands still before its publish while a rule against its row is accepted."""
    worlds.lay_out(Change.COLUMN)
    graph = og.open(worlds.root)
    write_city(graph, "first")
    writing = Writing(verb=WriterVerb.WRITE, operation_id=str(ULID()))
    writer = start(
        "write",
        worlds.root,
        writing.encoded(),
        failpoints="publish.pre_manifest=stop",
        without_guard=guard,
    )
    writer.wait_until_stopped()
    graph.schema.apply(OF_DIFFERENT_SIZES, operation_id=earlier_id())
    return graph, writer


def _problems(graph: Graph) -> set[Problem]:
    return {finding.problem for finding in graph.maintenance.check().findings}
