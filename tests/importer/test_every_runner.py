"""An import ends alike on every runner, in one piece or in many."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.load.formats import splits
from omnigraph_lake.load.report import TypeAccount
from omnigraph_lake.runner.protocol import Runner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.objects.location import parse_root
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


def outcome(report: og.ImportReport, graph: Graph) -> Any:
    assert report.load is not None
    load = report.load
    assert load.read == sum(load.written.values()) + sum(load.quarantined.values())
    tables = {
        name: sorted(map(str, graph.scan(name).read_all().to_pylist()))
        for name in ("User", "Tag", "Knows", "Likes")
    }
    faults = {reason: n for reason, n in load.quarantined.items() if reason != "superseded"}
    causes = sorted((cause.reason, cause.column, cause.count) for cause in report.causes)
    assert all(is_balanced(line) for line in load.accounts)
    read = load.read - load.quarantined.get("superseded", 0)
    return tables, faults, causes, read, load.accounts, load.replaced


def is_balanced(line: TypeAccount) -> bool:
    outcomes = (line.written, line.already_there, line.replaced, line.skipped)
    return line.records == sum(outcomes) + sum(line.rejected.values())


def imported(
    root: str,
    path: str,
    runner: Runner,
    split_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    mapping: str = MAPPING,
) -> Any:
    monkeypatch.setattr(load_operation, "ThreadRunner", lambda _: runner)
    monkeypatch.setattr(load_operation, "_split_bytes", lambda *_: split_bytes)
    report = og.import_data(
        root,
        path,
        mapping=mapping,
        schema=SCHEMA,
        options=og.ImportOptions(max_rejected="100%"),
    )
    return outcome(report, og.open(root))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(8))
def test_random_imports_end_alike_on_every_runner(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    lines = [record(draw) for _ in range(draw.randrange(1, 25))]
    path = write_lines(tmp_path / "users.jsonl", lines)
    whole, pieces, fragments = (str(tmp_path / way) for way in ("whole", "pieces", "fragments"))

    expected = imported(whole, path, ThreadRunner(), splits.SPLIT_BYTES, monkeypatch)

    assert imported(pieces, path, random_runner(seed, pieces), 97, monkeypatch) == expected
    stored = random_runner(seed, fragments, stores=True)
    assert imported(fragments, path, stored, 200, monkeypatch) == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("has_header", [True, False])
def test_a_csv_file_ends_alike_in_one_piece_and_in_many(
    has_header: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "users.csv"
    rows = [
        f'user,"name {n % 30}\nof ""{n}""",{"old" if n % 7 == 0 else n},,' for n in range(40)
    ] + ["user,a,1", "knows,,,,", "other,b,,,"]
    names = ["kind", "name", "age", "home", "tags"]
    header = f"header = {str(names).lower() if not has_header else 'true'}"
    mapping = MAPPING.replace("unknown_columns", f"{header}\nunknown_columns")
    path.write_text("\n".join([*([",".join(names)] if has_header else []), *rows]))
    whole, pieces = str(tmp_path / "whole"), str(tmp_path / "pieces")

    expected = imported(whole, str(path), ThreadRunner(), 1 << 20, monkeypatch, mapping=mapping)
    runner = random_runner(1, pieces)
    ended = imported(pieces, str(path), runner, 150, monkeypatch, mapping=mapping)

    assert ended == expected
    assert expected[3] == 43
    assert rejected_lines(pieces) == rejected_lines(whole)


def rejected_lines(root: str) -> list[tuple[int, str]]:
    """The lines and reasons of all rejected records."""
    table = pa.concat_tables(
        pq.read_table(part) for part in Path(root).rglob("*.parquet") if "quarantine" in str(part)
    )
    return sorted(zip(table["line"].to_pylist(), table["reason"].to_pylist(), strict=True))
