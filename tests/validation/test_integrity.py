"""A check finds every broken keyed rule of published rows, in the same words on every runner."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.protocol import Runner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.validation import hashed_keys, integrity
from omnigraph_lake.validation.check import Problem, check_graph
from omnigraph_lake.validation.constraints import (
    EdgeCount,
    EndpointExists,
    UniqueTuple,
    table_rules,
)
from tests.gate.seeds import case_seeds
from tests.runner.random_runner import RandomRunner
from tests.spark.behind_the_back import publish_unchecked
from tests.stores import folder_of

pytestmark = pytest.mark.unit

RUNNERS: Mapping[str, Callable[[], Runner]] = {
    "threads": ThreadRunner,
    "one thread": lambda: ThreadRunner(parallel=1),
    "spilling": lambda: ThreadRunner(parallel=4, held_bytes=0),
    **{f"random {seed}": partial(RandomRunner, seed) for seed in range(3)},
}

SCHEMA = """
node Person {
    name: String  nick: String? @unique  first: String?  last: String?  rank: U64? @unique
    weight: F64? @unique  born: DateTime? @unique  day: Date? @unique
    @unique(first, last)
}
node Pet { count: I64? @unique }
edge Owns: Person -> Pet @card(2..3)
edge Knows: Person -> Person @card(0..2) { @unique(src, dst) }
"""
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def person(name: str, **more: object) -> dict[str, Any]:
    return {"id": name, "name": name, **more}


def edge(name: str, src: str, dst: str) -> dict[str, Any]:
    return {"id": name, "src": src, "dst": dst}


BROKEN: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "node:Person": [
        person("ann", nick="a", rank=2**64 - 1, weight=0.0, born=NOON, day=NOON.date()),
        person("ann", nick="a", rank=2**64 - 1, weight=-0.0, born=NOON, day=NOON.date()),
        person("bob", nick=None, first="Bob", last="Ray", weight=math.nan),
        person("cid", nick=None, first="Bob", last="Ray", weight=math.nan),
        person("dan", first="Bob"),
        person("eve", first="Bob"),
    ],
    "node:Pet": [{"id": "rex", "count": 7}, {"id": "tom", "count": 7}],
    "edge:Owns": [
        edge("o1", "ann", "rex"),
        edge("o2", "bob", "ghost"),
        edge("o3", "nobody", "rex"),
        *(edge(f"o{number}", "cid", "tom") for number in range(4, 8)),
    ],
    "edge:Knows": [
        edge("k1", "ann", "bob"),
        edge("k1", "ann", "bob"),
        edge("k2", "ann", "cid"),
        edge("k3", "cid", "ghost"),
        edge("k4", "nobody", "ghost"),
    ],
}
TAKEN = "which another row has too, expected a unique value"
EXPECTED = [
    "edge:Knows: 1 row with duplicate_id: "
    "row 'k1': id: found 'k1', which an earlier row has too, expected a unique id",
    f"edge:Knows: 1 row with not_unique: row 'k1': src, dst: found 'ann', 'bob', {TAKEN}",
    "edge:Knows: 1 row with missing_endpoint: "
    "row 'k4': src: found 'nobody', expected the id of a Person that exists",
    "edge:Knows: 2 rows with missing_endpoint: "
    "row 'k3': dst: found 'ghost', expected the id of a Person that exists; "
    "row 'k4': dst: found 'ghost', expected the id of a Person that exists",
    "edge:Knows: 1 row with too_many_edges: "
    "row 'k2': src: found too many edges of 'ann', expected 0..2",
    "edge:Owns: 1 row with missing_endpoint: "
    "row 'o3': src: found 'nobody', expected the id of a Person that exists",
    "edge:Owns: 1 row with missing_endpoint: "
    "row 'o2': dst: found 'ghost', expected the id of a Pet that exists",
    "edge:Owns: 1 row with too_many_edges: "
    "row 'o7': src: found too many edges of 'cid', expected 2..3",
    "edge:Owns: 2 rows with too_few_edges: "
    "row 'o1': src: found too few edges of 'ann', expected 2..3; "
    "row 'o2': src: found too few edges of 'bob', expected 2..3",
    "node:Person: 1 row with duplicate_id: "
    "row 'ann': id: found 'ann', which an earlier row has too, expected a unique id",
    f"node:Person: 1 row with not_unique: row 'ann': nick: found 'a', {TAKEN}",
    f"node:Person: 1 row with not_unique: row 'ann': rank: found 18446744073709551615, {TAKEN}",
    "node:Person: 2 rows with not_unique: "
    f"row 'ann': weight: found -0.0, {TAKEN}; row 'cid': weight: found nan, {TAKEN}",
    "node:Person: 1 row with not_unique: row 'ann': born: found "
    f"'2024-05-01T12:00:00+00:00', {TAKEN}",
    f"node:Person: 1 row with not_unique: row 'ann': day: found '2024-05-01', {TAKEN}",
    f"node:Person: 1 row with not_unique: row 'cid': first, last: found 'Bob', 'Ray', {TAKEN}",
    f"node:Pet: 1 row with not_unique: row 'tom': count: found 7, {TAKEN}",
]


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> Runner:
    return RUNNERS[request.param]()


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fragment is a piece, and a bucket has a few keys."""
    monkeypatch.setattr(integrity, "_ROWS_PER_PIECE", 1)
    monkeypatch.setattr(hashed_keys, "KEYS_PER_BUCKET", 7)
    monkeypatch.setattr(integrity, "_KEYS_HELD_LEAST", 1)


def findings(graph: Graph, runner: Runner) -> list[str]:
    root = parse_root(graph.root)
    report = check_graph(StoredObjects(root), graph.schema.catalog, read_manifest(root), runner)
    assert {finding.problem for finding in report.findings} <= {Problem.BROKEN_RULE}
    return [f"{finding.thing}: {finding.message}" for finding in report.findings]


def test_every_kind_of_broken_rule_is_described(graph: Graph, runner: Runner) -> None:
    publish_unchecked(graph, BROKEN)

    assert findings(graph, runner) == EXPECTED


@pytest.mark.usefixtures("_small_pieces")
def test_the_description_does_not_depend_on_fragments_and_buckets(
    graph: Graph, runner: Runner
) -> None:
    for number in range(max(map(len, BROKEN.values()))):
        rows = {key: rows[number : number + 1] for key, rows in BROKEN.items()}
        publish_unchecked(graph, {key: row for key, row in rows.items() if row})

    assert findings(graph, runner) == EXPECTED


@pytest.mark.usefixtures("_small_pieces")
def test_the_first_rows_are_shown_and_all_are_counted(graph: Graph, runner: Runner) -> None:
    names = [f"p{number % 9}" for number in range(27)]
    random.Random(0).shuffle(names)
    repeated = [name for number, name in enumerate(names) if name in names[:number]]
    for start in range(0, len(names), 10):
        publish_unchecked(graph, {"node:Person": [person(n) for n in names[start : start + 10]]})

    (message,) = findings(graph, runner)

    shown = "; ".join(
        f"row '{name}': id: found '{name}', which an earlier row has too, expected a unique id"
        for name in repeated[:5]
    )
    assert message == f"node:Person: 18 rows with duplicate_id: {shown}; and 13 more"


@pytest.mark.usefixtures("_small_pieces")
def test_the_row_is_shown_whose_address_follows_deleted_rows(graph: Graph, runner: Runner) -> None:
    names = [*(f"p{number}" for number in range(10)), "p5"]
    publish_unchecked(graph, {"node:Person": [person(name) for name in names]})
    graph.delete({"Person": ["p0", "p1", "p7"]})

    assert findings(graph, runner) == [
        "node:Person: 1 row with duplicate_id: "
        "row 'p5': id: found 'p5', which an earlier row has too, expected a unique id"
    ]


RANDOM_SCHEMA = """
node Person { rank: I64? @unique }
node Pet { count: I64?  size: I64?  @unique(count, size) }
edge Owns: Person -> Pet @card(2..3)
edge Knows: Person -> Person @card(0..2) { @unique(src, dst) }
"""


def random_rows(rng: random.Random) -> dict[str, list[dict[str, Any]]]:
    size = rng.choice((5, 30, 100))

    def name(letter: str) -> str:
        return f"{letter}{rng.randrange(size)}"

    def number() -> int | None:
        return rng.choice((None, rng.randrange(size)))

    return {
        "node:Person": [{"id": name("p"), "rank": number()} for _ in range(size)],
        "node:Pet": [{"id": name("t"), "count": number(), "size": number()} for _ in range(size)],
        "edge:Owns": [edge(name("o"), name("p"), name("t")) for _ in range(size)],
        "edge:Knows": [edge(name("k"), name("p"), name("p")) for _ in range(size)],
    }


def repeated(keys: Iterable[Hashable]) -> list[int]:
    """Positions of keys that an earlier position has too; None is no key."""
    seen: set[Hashable] = set()
    positions = []
    for position, key in enumerate(keys):
        if key is not None and key in seen:
            positions.append(position)
        seen.add(key)
    return positions


def broken_rows(
    graph: Graph, rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[tuple[str, str, list[str]]]:
    """By table and reason the rows that break a rule, found by comparing all of them."""
    ids = {key: {row["id"] for row in table} for key, table in rows.items()}
    broken: list[tuple[str, str, list[int]]] = []
    rules = table_rules(graph.schema.catalog)
    for key in graph.snapshot().tables:
        table = rows[key]
        broken.append((key, "duplicate_id", repeated(row["id"] for row in table)))
        for rule in rules[key].keyed_rules:
            match rule:
                case UniqueTuple():
                    tuples = [tuple(row[column] for column in rule.columns) for row in table]
                    positions = repeated(None if None in values else values for values in tuples)
                    broken.append((key, "not_unique", positions))
                case EndpointExists():
                    missing = [
                        position
                        for position, row in enumerate(table)
                        if row[rule.column] not in ids[rule.node_key]
                    ]
                    broken.append((key, "missing_endpoint", missing))
                case EdgeCount():
                    broken += _miscounted(key, rule, table, ids[rule.source_keys[0]])
    return [
        (key, reason, [rows[key][position]["id"] for position in positions])
        for key, reason, positions in broken
        if positions
    ]


def _miscounted(
    key: str, rule: EdgeCount, table: Sequence[Mapping[str, Any]], nodes: set[str]
) -> list[tuple[str, str, list[int]]]:
    edges: defaultdict[str, list[int]] = defaultdict(list)
    for position, row in enumerate(table):
        if row["src"] in nodes:
            edges[row["src"]].append(position)
    assert rule.maximum is not None
    many = [position for positions in edges.values() for position in positions[rule.maximum :]]
    few = [
        position
        for positions in edges.values()
        if len(positions) < rule.minimum
        for position in positions
    ]
    return [(key, "too_many_edges", sorted(many)), (key, "too_few_edges", sorted(few))]


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.random
@pytest.mark.parametrize("seed", case_seeds("broken-graphs", 3))
def test_random_graphs_are_judged_as_by_comparing_all_rows(graph_root: str, seed: str) -> None:
    rng = random.Random(seed)
    graph = og.init(graph_root, schema=RANDOM_SCHEMA)
    rows = random_rows(rng)
    half = {key: len(table) // 2 for key, table in rows.items()}
    publish_unchecked(graph, {key: table[: half[key]] for key, table in rows.items()})
    publish_unchecked(graph, {key: table[half[key] :] for key, table in rows.items()})

    messages = findings(graph, ThreadRunner())

    assert findings(graph, RUNNERS["spilling"]()) == messages
    assert findings(graph, RandomRunner(rng.randrange(1000))) == messages
    for message, (key, reason, ids) in zip(messages, broken_rows(graph, rows), strict=True):
        noun = "row" if len(ids) == 1 else "rows"
        assert message.startswith(f"{key}: {len(ids)} {noun} with {reason}: ")
        assert re.findall(r"row '(\w+)':", message) == ids[:5]


def test_a_sound_graph_has_no_findings(graph: Graph, runner: Runner) -> None:
    graph.write(
        {
            "Person": [person("ann", rank=1), person("bob")],
            "Pet": [{"id": "rex"}, {"id": "tom"}],
            "Owns": [{"src": "ann", "dst": "rex"}, {"src": "ann", "dst": "tom"}],
        }
    )

    assert findings(graph, runner) == []


@pytest.mark.local_disk("cuts a file short")
def test_a_damaged_file_is_a_finding_of_its_table(
    graph: Graph, graph_root: str, runner: Runner
) -> None:
    graph.write({"Person": [person(f"p{number}") for number in range(1000)], "Pet": [{"count": 1}]})
    location = graph.snapshot().tables["node:Person"].location
    (file,) = folder_of(graph_root, location, "data").glob("*.lance")
    file.write_bytes(file.read_bytes()[:100])
    root = parse_root(graph.root)

    report = check_graph(StoredObjects(root), graph.schema.catalog, read_manifest(root), runner)

    (finding,) = report.findings
    assert (finding.problem, finding.thing) == (Problem.UNREADABLE_PIN, "node:Person")
    assert finding.message.startswith("version 2 cannot be read: ")


def test_a_check_needs_neither_spark_nor_duckdb(graph: Graph) -> None:
    graph.write({"Person": [person("ann")]})
    program = (
        "import sys, omnigraph_lake as og\n"
        f"assert og.open({graph.root!r}, read_only=True).maintenance.check().ok\n"
        "print([name for name in ('pyspark', 'py4j', 'duckdb') if name in sys.modules])"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert run.stdout.decode().strip() == "[]"


MEASURED = """
import re, sys
from pathlib import Path
import omnigraph_lake as og
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.validation import hashed_keys, integrity
from omnigraph_lake.validation.check import check_graph

hashed_keys.KEYS_PER_BUCKET = 100_000
integrity._KEYS_HELD_LEAST = 1 << 16
integrity._ROWS_PER_PIECE = 1 << 16
root = parse_root(sys.argv[1])
catalog = og.open(sys.argv[1], read_only=True).schema.catalog
runner = ThreadRunner(parallel=1, held_bytes=1 << 20)
assert check_graph(StoredObjects(root), catalog, read_manifest(root), runner).ok
# Not that of `getrusage`, which a process inherits from the one that started it.
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
PEOPLE = "node Person { name: String }  edge Knows: Person -> Person @card(0..30)"


@pytest.mark.local_disk("about memory, not about where the files are")
@pytest.mark.nightly("takes many rows; a runner that spills is in the gate")
def test_memory_is_bounded_by_a_bucket_however_many_rows_there_are(tmp_path: Path) -> None:
    peaks = []
    for people in (20_000, 200_000):
        graph = og.init(str(tmp_path / str(people)), schema=PEOPLE)
        names = pa.array([f"p{number}" for number in range(people)])
        ends = [pa.concat_arrays([names[step:], names[:step]]) for step in range(1, 11)]
        graph.write({"Person": pa.table({"id": names, "name": names})})
        for targets in ends:
            graph.write({"Knows": pa.table({"src": names, "dst": targets})})
        run = [sys.executable, "-c", MEASURED, graph.root]
        peaks.append(int(subprocess.run(run, capture_output=True, check=True).stdout))

    few, many = peaks
    assert many < 1.4 * few, f"{few:,} KiB for 200,000 edges, {many:,} KiB for 2,000,000"
