"""Every kind of writer, with what it needs before and how to see what it did.

A round of a writer leaves three marks of its own, or, if it only keeps house, none. Rounds follow
each other on one graph, so each one proves that the one before left nothing behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from unittest.mock import patch

import lance
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import InitialisationClaimedError, NotFoundError
from omnigraph_lake.graph import Graph
from tests.maintenance.old_graphs import old_graph
from tests.s3.fault_spot import MARKS, SCHEMA, Handle, Spot, Writer

_INSERT: Final = """
query add($a: String, $b: String, $age: I32) {
    insert Person { name: $a, age: $age }
    insert Person { name: $b, age: $age }
    insert Knows { from: $a, to: $b }
}
"""


def _rows(kind: str, number: int, age: int = 0) -> list[dict[str, object]]:
    return [{"name": f"{kind}-{number}-{each}", "age": age} for each in range(2)]


def _marks_in(graph: Graph, kind: str, number: int, age: int | None = None) -> int:
    """Two people and what connects them."""
    start = f"{kind}-{number}-"
    people = graph.scan("Person").read_all().to_pylist()
    edges = graph.scan("Knows").read_all().to_pylist()
    known = [row for row in people if age is None or row["age"] == age]
    marks = [*(row["name"] for row in known), *(row["src"] for row in edges)]
    return sum(1 for mark in marks if mark.startswith(start))


def _both(kind: str, number: int, age: int = 0) -> dict[str, og.Rows]:
    edge = {"src": f"{kind}-{number}-0", "dst": f"{kind}-{number}-1", "id": f"{kind}-{number}"}
    return {"Person": _rows(kind, number, age), "Knows": [edge]}


def _marks_of(kind: str, spot: Spot, number: int) -> int:
    return _marks_in(spot.stored(), kind, number)


def _append(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    return graph.write(_both("append", number))


def _merge_rows(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    rows = [*_rows("upsert", number, 7), {"name": f"upsert-{number}-2", "age": 7}]
    return graph.write({"Person": rows}, mode="merge")


def _upserted(spot: Spot, number: int) -> int:
    return _marks_in(spot.stored(), "upsert", number, age=7)


def _overwrite(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    return graph.write(
        {"Place": [{"name": f"over-{number}-{each}"} for each in range(MARKS)]}, mode="overwrite"
    )


def _overwritten(spot: Spot, number: int) -> int:
    rows = spot.stored().scan("Place").read_all().to_pylist()
    return sum(row["name"].startswith(f"over-{number}-") for row in rows)


def _delete(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    return graph.delete({"Person": [f"delete-{number}-{each}" for each in range(2)]})


def _deleted(spot: Spot, number: int) -> int:
    return MARKS - _marks_in(spot.stored(), "delete", number)


def _load(spot: Spot, graph: Handle, number: int, *, spark: SparkSession | None = None) -> object:
    assert graph is not None
    people = [{"type": "Person", "data": row} for row in _rows("load", number)]
    ends = {"from": f"load-{number}-0", "to": f"load-{number}-1"}
    path = spot.folder / f"load-{number}.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in [*people, {"edge": "Knows", **ends}]))
    return graph.load(
        str(path), spark=spark, options=LoadOptions(engine="local" if spark is None else "spark")
    )


def _mutate(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    return graph.mutate(_INSERT, a=f"mutate-{number}-0", b=f"mutate-{number}-1", age=number)


def _create_branch(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    return graph.branches.create(f"made-{number}")


def _branch_made(spot: Spot, number: int) -> int:
    """A branch that is there has a history and the rows it was made from."""
    graph = spot.surely()
    try:
        branch = graph.checkout(f"made-{number}")
    except NotFoundError:
        return 0
    if not branch.commits() or branch.scan("Person").read_all().num_rows < MARKS - 1:
        return 1
    return MARKS


def _delete_branch(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    graph.branches.delete(f"old-{number}")
    return None


def _branch_deleted(spot: Spot, number: int) -> int:
    names_there = {branch.name for branch in spot.stored().branches.list()}
    return 0 if f"old-{number}" in names_there else MARKS


def _branch(spot: Spot, kind: str, number: int) -> None:
    graph = spot.surely()
    branch = graph.branches.create(f"{kind}-{number}")
    if kind in {"forward", "threeway", "old"}:
        branch.write(_both(kind, number))
    if kind == "threeway":
        graph.write({"Person": [{"name": f"beside-{number}", "age": 1}]})


def _first_write(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    return graph.checkout(f"first-{number}").write(_both("first", number))


def _first_written(spot: Spot, number: int) -> int:
    return _marks_in(spot.surely().checkout(f"first-{number}"), "first", number)


def _merge(kind: str, _: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    return graph.merge(f"{kind}-{number}")


def _tag(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    return graph.tags.create(f"release-{number}")


def _untag(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    graph.tags.delete(f"old-tag-{number}")
    return None


def _tags_there(name: str, there: int, spot: Spot, number: int) -> int:
    tags = {tag.tag for tag in spot.stored().tags.list()}
    return there if f"{name}-{number}" in tags else MARKS - there


def _apply_schema(_: Spot, graph: Handle, number: int) -> object:
    assert graph is not None
    return graph.schema.apply(f"{graph.schema.text}\nnode {_kind(number)} {{ name: String @key }}")


def _schema_applied(spot: Spot, number: int) -> int:
    """A type that is there can be read, whatever the call told."""
    graph = spot.stored()
    if _kind(number) not in graph.schema.text:
        return 0
    return MARKS if graph.scan(_kind(number)).read_all().num_rows == 0 else 1


def _kind(number: int) -> str:
    return f"Kind{number}x"


def _small_files(spot: Spot, number: int) -> None:
    graph = spot.surely()
    for each in range(3):
        graph.write({"Place": [{"name": f"small-{number}-{each}"}]})


def _optimize(_: Spot, graph: Handle, __: int) -> object:
    assert graph is not None
    return graph.maintenance.optimize()


def _cleanup(_: Spot, graph: Handle, __: int) -> object:
    assert graph is not None
    return graph.maintenance.cleanup(keep_versions=3, dry_run=False)


def _maintain(_: Spot, graph: Handle, __: int) -> object:
    assert graph is not None
    return graph.maintenance.run()


def _reconcile(_: Spot, graph: Handle, __: int) -> object:
    assert graph is not None
    return graph.maintenance.reconcile(dry_run=False)


def _scrub(_: Spot, graph: Handle, __: int) -> object:
    assert graph is not None
    return graph.maintenance.scrub(record=True)


def _compact_by_hand(spot: Spot, number: int) -> None:
    _small_files(spot, number)
    entry = spot.surely().snapshot().tables["node:Place"]
    uri = f"{spot.root}/{entry.location}"
    lance.dataset(uri, storage_options=dict(spot.sure)).optimize.compact_files()


def _repair(_: Spot, graph: Handle, __: int) -> object:
    assert graph is not None
    return graph.maintenance.repair(dry_run=False)


def _old_graph(spot: Spot, _: int) -> None:
    with patch.dict(os.environ, spot.environment):
        old_graph(spot.root, stamp=2)


def _migrate(spot: Spot, _: Handle, __: int) -> object:
    """Like maintenance: as far as it got is as good as the whole, whoever opens next goes on."""
    graph = spot.graph()
    assert graph._handle.manifest().stamp == names.STAMP
    return graph


def _init(spot: Spot, _: Handle, __: int) -> object:
    return og.init(spot.root, schema=SCHEMA, storage_options=spot.options)


def _initialised(spot: Spot, _: int) -> int:
    """A root that holds no graph can become one, whatever a failed attempt left there."""
    try:
        graph = spot.surely()
    except (NotFoundError, InitialisationClaimedError):
        graph = og.init(spot.root, schema=SCHEMA, storage_options=spot.sure, force=True)
        graph.write({"Place": [{"name": "here"}]})
        return 0
    graph.write({"Place": [{"name": "here"}]}, mode="merge")
    return MARKS


def _with(kind: str) -> Callable[[Spot, int], int]:
    return partial(_marks_of, kind)


WRITERS: Final[Mapping[str, Writer]] = {
    writer.name: writer
    for writer in (
        Writer(name="append", verb="write", run=_append, marks=_with("append")),
        Writer(
            name="merge rows",
            verb="write",
            run=_merge_rows,
            marks=_upserted,
            prepare=lambda spot, n: spot.surely().write({"Person": _rows("upsert", n)}),
        ),
        Writer(name="overwrite", verb="write", run=_overwrite, marks=_overwritten),
        Writer(
            name="delete",
            verb="delete",
            run=_delete,
            marks=_deleted,
            prepare=lambda spot, n: spot.surely().write(_both("delete", n)),
        ),
        Writer(name="load", verb="load", run=_load, marks=_with("load")),
        Writer(name="mutate", verb="mutate", run=_mutate, marks=_with("mutate")),
        Writer(
            name="branch create", verb="branches.create", run=_create_branch, marks=_branch_made
        ),
        Writer(
            name="branch delete",
            verb="branches.delete",
            asks=150,
            run=_delete_branch,
            marks=_branch_deleted,
            prepare=lambda spot, n: _branch(spot, "old", n),
        ),
        Writer(
            name="first write",
            verb="write",
            asks=60,
            run=_first_write,
            marks=_first_written,
            prepare=lambda spot, n: _branch(spot, "first", n),
        ),
        Writer(
            name="merge forward",
            verb="merge",
            asks=50,
            run=partial(_merge, "forward"),
            marks=_with("forward"),
            prepare=lambda spot, n: _branch(spot, "forward", n),
        ),
        Writer(
            name="merge three-way",
            verb="merge",
            asks=50,
            run=partial(_merge, "threeway"),
            marks=_with("threeway"),
            prepare=lambda spot, n: _branch(spot, "threeway", n),
        ),
        Writer(
            name="tag create",
            verb="tags.create",
            asks=16,
            run=_tag,
            marks=partial(_tags_there, "release", MARKS),
        ),
        Writer(
            name="tag delete",
            verb="tags.delete",
            asks=3,
            run=_untag,
            marks=partial(_tags_there, "old-tag", 0),
            prepare=lambda spot, n: spot.surely().tags.create(f"old-tag-{n}"),
        ),
        Writer(
            name="apply schema",
            verb="schema.apply",
            asks=30,
            run=_apply_schema,
            marks=_schema_applied,
        ),
        Writer(
            name="optimize",
            verb="maintenance.optimize",
            asks=190,
            run=_optimize,
            marks=None,
            prepare=_small_files,
        ),
        Writer(
            name="cleanup",
            verb="maintenance.cleanup",
            asks=140,
            run=_cleanup,
            marks=None,
            prepare=_small_files,
        ),
        Writer(
            name="maintain",
            verb="maintenance.run",
            asks=420,
            run=_maintain,
            marks=None,
            prepare=_small_files,
            calls=4,
        ),
        Writer(
            name="reconcile",
            verb="maintenance.reconcile",
            asks=34,
            run=_reconcile,
            marks=None,
            prepare=lambda spot, n: _branch(spot, "old", n),
        ),
        Writer(
            name="scrub",
            verb="maintenance.scrub",
            asks=200,
            run=_scrub,
            marks=None,
            prepare=_small_files,
        ),
        Writer(
            name="repair",
            verb="maintenance.repair",
            asks=50,
            run=_repair,
            marks=None,
            prepare=_compact_by_hand,
        ),
        Writer(
            name="migrate",
            verb="open",
            asks=50,
            run=_migrate,
            marks=None,
            prepare=_old_graph,
            has_handle=False,
            on_fresh_root=True,
        ),
        Writer(
            name="init",
            verb="init",
            asks=47,
            run=_init,
            marks=_initialised,
            has_handle=False,
            on_fresh_root=True,
        ),
    )
}


def load_on(spark: SparkSession) -> Writer:
    """A load whose tasks reach the store from processes of their own."""
    return Writer(
        name="load on Spark", verb="load", run=partial(_load, spark=spark), marks=_with("load")
    )
