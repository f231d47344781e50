"""A mapped load ends alike on every runner, in one piece or in many."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.graph import Graph
from omnigraph.load import load as load_operation
from omnigraph.load.formats import splits
from omnigraph.runner.protocol import Runner
from omnigraph.runner.threads import ThreadRunner
from omnigraph.storage.objects.location import parse_root
from tests.importer.shapes import write_lines
from tests.runner.random_runner import RandomRunner

pytestmark = pytest.mark.random

SCHEMA = """
node User { name: String @key age: I32? town: String? }
node Tag { word: String @key }
edge Knows: User -> User { since: I64? }
edge Likes: User -> Tag
"""
MAPPING = """
version = 1
[[source]]
name = "users"
unknown_columns = "ignore"
[[source.node]]
type = "User"
where = { kind = "user" }
[source.node.properties]
name = "name"
age = { column = "age", null = "-" }
town = { column = "home.town", default = "Ulm" }
[[source.edge]]
type = "Likes"
where = { kind = "user" }
each = "tags"
from = { type = "User", key = { name = "name" } }
to = { type = "Tag", key = { word = "tags" }, missing = "create" }
[[source.edge]]
type = "Knows"
where = { kind = "knows" }
from = { type = "User", key = { name = "a" } }
to = { type = "User", key = { name = "b" } }
[source.edge.properties]
since = "since"
"""


def record(draw: random.Random) -> Any:
    match draw.randrange(8):
        case 0:
            return draw.choice([5, "x", {"kind": "other"}, {}])
        case 1 | 2 | 3 | 4:
            return {
                "kind": "user",
                "name": draw.choice(["a", "b", "c", "d", "e", None]),
                "age": draw.choice([1, "2", "old", "-", None, 10**10]),
                "home": draw.choice([{"town": "Bonn"}, {}, None]),
                "tags": draw.sample(["x", "y", "z"], draw.randrange(4)),
            }
        case _:
            ends = draw.choices(["a", "b", "c", "z", None], k=2)
            return {"kind": "knows", "a": ends[0], "b": ends[1], "since": draw.choice([1, "?"])}


def random_runner(seed: int, root: str, *, stores: bool = False) -> Runner:
    """One whose scratch folder is on the store of the graph, as on Spark, or not."""
    return RandomRunner(seed, root=parse_root(root) if stores else None)


def outcome(report: omnigraph.ImportReport, graph: Graph) -> Any:
    assert report.load is not None
    load = report.load
    assert load.read == sum(load.written.values()) + sum(load.quarantined.values())
    tables = {
        name: sorted(map(str, graph.scan(name).read_all().to_pylist()))
        for name in ("User", "Tag", "Knows", "Likes")
    }
    faults = {reason: n for reason, n in load.quarantined.items() if reason != "superseded"}
    causes = sorted((cause.reason, cause.column, cause.count) for cause in report.causes)
    return tables, faults, causes, load.read - load.quarantined.get("superseded", 0)


@pytest.mark.cost("8 random inputs, each imported on three runners", 8)
def test_random_imports_end_alike_on_every_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(8):
        draw = random.Random(seed)
        lines = [record(draw) for _ in range(draw.randrange(1, 60))]
        path = write_lines(tmp_path / "users.jsonl", lines)
        ways: dict[str, tuple[int, Callable[[str], Runner]]] = {
            "threads": (splits.SPLIT_BYTES, lambda _: ThreadRunner()),
            "pieces": (97, partial(random_runner, seed)),
            "fragments": (200, partial(random_runner, seed, stores=True)),
        }
        ends: dict[str, Any] = {}
        for way, (size, make) in ways.items():
            root = str(tmp_path / f"{way}-{seed}")
            monkeypatch.setattr(load_operation, "ThreadRunner", lambda _, m=make, r=root: m(r))
            monkeypatch.setattr(load_operation, "_split_bytes", lambda *_, size=size: size)
            report = omnigraph.import_data(
                root,
                path,
                mapping=MAPPING,
                schema=SCHEMA,
                options=omnigraph.ImportOptions(max_rejected="100%"),
            )
            ends[way] = outcome(report, omnigraph.open(root))

        assert ends["pieces"] == ends["threads"], seed
        assert ends["fragments"] == ends["threads"], seed
