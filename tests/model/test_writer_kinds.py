"""Every kind of writer in the code is one that a model covers, and is recovered accordingly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, get_args

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import failpoints
from omnigraph_lake.commit.sidecar import (
    WriterKind,
    pending_sidecars,
    read_sidecar,
    replace_sidecar,
)
from omnigraph_lake.failpoints import Action, Armed, FailpointReached
from tests.model.schema_scope import OpKind
from tests.model.scope import Kind

pytestmark = pytest.mark.model

IN_THE_MODEL: Final[Mapping[WriterKind, tuple[Kind | OpKind, ...]]] = {
    WriterKind.WRITE: ("append", "update", "overwrite"),
    WriterKind.DELETE: ("update",),
    WriterKind.LOAD: ("append", "update", "overwrite"),
    WriterKind.MUTATE: ("append", "update"),
    WriterKind.MERGE: ("append", "update"),
    WriterKind.REVERT: ("append", "update"),
    WriterKind.RESTORE: ("append", "update"),
    # Segments are put like rows: all tables move together, in versions that name the operation.
    WriterKind.INDEX: ("append",),
    WriterKind.REPAIR: ("append", "update", "overwrite"),
    WriterKind.OPTIMIZE: ("compact", "index"),
    WriterKind.SCHEMA: ("apply",),
}
"""What each kind commits to its tables."""
TOGETHER: Final = tuple(
    kind
    for kind, commits in IN_THE_MODEL.items()
    if set(commits) <= {"append", "update", "overwrite"}
)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm_all()


def test_every_kind_of_writer_is_in_a_model() -> None:
    assert set(IN_THE_MODEL) == set(WriterKind)
    for commits in IN_THE_MODEL.values():
        assert set(commits) <= {*get_args(Kind), *get_args(OpKind)}


def test_a_kind_is_maintenance_in_the_code_if_it_is_in_the_model() -> None:
    for kind, commits in IN_THE_MODEL.items():
        assert kind.is_maintenance == (set(commits) <= {"compact", "index"}), kind


def test_a_mutation_in_parts_commits_what_a_load_commits() -> None:
    load, mutate = WriterKind.LOAD, WriterKind.MUTATE
    assert set(IN_THE_MODEL[mutate]) < set(IN_THE_MODEL[load])
    assert (mutate.is_maintenance, mutate.is_long) == (load.is_maintenance, load.is_long)


@pytest.mark.parametrize(
    ("point", "expected"),
    [("mutation.post_stage", "rolled_back"), ("publish.pre_manifest", "rolled_forward")],
)
def test_kinds_whose_tables_move_together_are_recovered_alike(
    graph_root: str, point: str, expected: str
) -> None:
    graph = og.init(graph_root, schema="node A { k: String @key } node B { k: String @key }")
    rows: list[str] = []
    for kind in TOGETHER:
        failpoints.arm(point, Armed(action=Action.ERROR))
        with pytest.raises(FailpointReached):
            graph.write({name: [{"k": kind.value}] for name in "AB"}, operation_id=str(ULID()))
        failpoints.disarm_all()
        (path,) = pending_sidecars(graph._objects)
        sidecar = read_sidecar(graph._objects, path)
        assert sidecar is not None
        replace_sidecar(graph._objects, replace(sidecar, kind=kind))

        (settled,) = graph.maintenance.recover(force=True).settled
        assert (settled.kind, settled.writer_kind) == (expected, kind.value)
        rows += [kind.value] if expected == "rolled_forward" else []
        for name in "AB":
            assert sorted(graph.scan(name).read_all().column("k").to_pylist()) == sorted(rows)
