"""Everything that is proven outside the gate: one shard for each kind of proof, and long proofs.

A night runs every kind once, in at most six CPU hours. What is too large for a night is cut into
parts, of which the seed draws one: suites by a hash of a test's id (`--shard`), so that every test
of a folder is in exactly one part; random runs by their seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.gate.environment import OLDER_SPARK

EVERYTHING = {"OMNIGRAPH_NIGHTLY": "1"}
ON_S3 = {**EVERYTHING, "OMNIGRAPH_TEST_STORE": "s3"}

OTHER_STORES = "tests/s3/test_clouds.py"
SUITES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "crash": (
        6,
        ("tests/adversary", "tests/crash", "tests/power", "tests/damage", "tests/hostile"),
    ),
    "model": (4, ("tests/model",)),
    "behaviours": (1, ("tests/behaviours",)),
    "legacy": (4, ("tests/legacy",)),
    "public": (1, ("tests/public_data",)),
    "units": (
        3,
        (
            *("tests/algorithms", "tests/api", "tests/cli", "tests/commit", "tests/corpus"),
            *("tests/creation", "tests/demo", "tests/editor", "tests/importer"),
            *("tests/diff", "tests/display", "tests/docs", "tests/engine", "tests/evolution"),
            *("tests/forking", "tests/gate", "tests/guards", "tests/load", "tests/maintenance"),
            *("tests/merge", "tests/mutate", "tests/query", "tests/runner", "tests/schema"),
            *("tests/storage", "tests/tidy", "tests/validation", "tests/view"),
        ),
    ),
    "spark": (6, ("tests/spark", "tests/spark_matrix")),
    "cluster": (4, ("tests/cluster",)),
    "s3": (2, ("tests/s3", "--ignore-glob=*/test_faults*.py", f"--ignore={OTHER_STORES}")),
    "faults": (
        6,
        tuple(f"tests/s3/test_faults{about}.py" for about in ("", "_spark", "_timeouts")),
    ),
}
"""What pytest is given, and the number of shards it is cut into."""

SUITES_ON_S3 = (
    *("tests/algorithms", "tests/api", "tests/behaviours", "tests/cli", "tests/commit"),
    *("tests/creation", "tests/diff", "tests/engine"),
    *(
        "tests/evolution",
        "tests/legacy",
        "tests/load",
        "tests/maintenance",
        "tests/merge",
        "tests/mutate",
    ),
    *("tests/query", "tests/runner", "tests/storage", "tests/validation"),
)
RANDOM_UNITS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "table-diff": (2000, ("tests/diff/test_table_diff.py",)),
    "row-changes": (2500, ("tests/storage/test_row_changes.py",)),
    "settle": (1500, ("tests/validation/test_resolve_keys.py",)),
    "writes": (3000, ("tests/validation/test_random_writes.py",)),
    "casts": (5000, ("tests/validation/test_casts.py",)),
    "keys": (2000, ("tests/validation/test_random_keys.py",)),
    "evolving": (4000, ("tests/evolution", "--ignore=tests/evolution/plan")),
    "sql-expressions": (4000, ("tests/engine/test_sql_expressions.py",)),
    "query-parts": (
        10_000,
        tuple(
            f"tests/engine/test_{about}.py"
            for about in ("text", "vector_distances", "frames", "adjacency", "id_lookup")
        ),
    ),
    "search-indexes": (20_000, ("tests/engine/test_search_indexes.py",)),
    "loads": (1500, ("tests/load/test_load_random.py",)),
    "load-formats": (5000, ("tests/load",)),
    "schema-changes": (5000, ("tests/evolution/plan",)),
    "identity": (20_000, ("tests/schema/test_identity.py",)),
    "edits": (4000, ("tests/storage/test_edits.py",)),
    "manifest": (
        15_000,
        tuple(
            f"tests/storage/test_{about}.py"
            for about in ("manifest_rows", "snapshot", "commit_graph")
        ),
    ),
    "feed": (200, ("tests/diff/test_change_feed.py", "tests/diff/test_cursors.py")),
    "indexing": (200, ("tests/maintenance/test_indexing.py",)),
    "years": (10_000, ("tests/validation/test_years.py",)),
    "widening": (2000, ("tests/query/test_widening.py",)),
    "rewrites": (30_000, ("tests/query/test_rewrites.py",)),
    "plans": (
        10_000,
        (
            "tests/query/test_differential.py"
            "::test_plans_mean_the_same_with_and_without_each_rewrite",
        ),
    ),
}
"""Random tests by what they are about: how many cases a shard draws, and where they are."""
BENCHMARKS: Mapping[str, tuple[str, ...]] = {
    "algorithms": (),
    "backup": ("--nodes", "1000000", "--edges", "5000000", "--writers", "4"),
    "checksums": ("--rounds", "5"),
    "commit": ("--commits", "500", "--appends", "1000"),
    "durability": (),
    "load": ("--nodes", "200000", "--edges", "1000000", "--no-memory"),
    "local_load": ("--rounds", "1"),
    "maintain": ("--commits", "500"),
    "merge": ("--nodes", "200000", "--edges", "1000000"),
    "open_cost": (),
    "optimize": ("--tables", "10", "--wide-mb", "200"),
    "query": ("--rounds", "3"),
    "s3_cost": (),
    "schema_change": ("--rows", "1000000"),
    "search": ("--rows", "20000", "--questions", "10"),
    "skew": ("--nodes", "200000", "--edges", "1000000", "--hub", "200000"),
    "startup": (),
    "supernode": (),
    "upserts": ("--edges", "1000000", "--rounds", "5"),
    "write": ("--rounds", "3"),
    "writers": (),
}
"""Benchmarks with the sizes that end in ten minutes; each prints ratios as its last line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One command, whose exit code is its verdict."""

    label: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A kind of proof; a night runs one of its parts."""

    name: str
    parts: tuple[Part, ...]
    minutes: int = 40
    """It is killed, and red, after so long."""

    def part(self, seed: int) -> Part:
        return self.parts[seed % len(self.parts)]


def all_shards() -> list[Shard]:
    return [
        _shard("published graphs", _suite("legacy")),
        _shard("public data", _suite("public")),
        _shard("crash", _suite("crash")),
        _shard("model", _suite("model")),
        _shard("power", _power_cuts()),
        _shard("life", [_life()]),
        _shard("damage", _damages()),
        _shard("hostile", _hostile()),
        _shard("storm", _storms()),
        _shard("storm on S3", [_storm_on_s3()]),
        _shard("histories", _histories()),
        _shard("schema merges", _drawn(250, "tests/behaviours/test_merged_schemas_random.py")),
        _shard("differential", [_differential()]),
        _shard("differential on Spark", _differential_on_spark()),
        _shard("random", _random_units()),
        _shard("engines", _engines()),
        _shard("Spark", [*_suite("spark"), _lost_shuffles()]),
        _shard("Spark versions", _spark_versions()),
        _shard("Spark on S3", _spark_on_s3()),
        _shard("cluster", _suite("cluster")),
        _shard("stream kills", _drawn(4, "tests/cluster/test_stream_kills.py")),
        _shard("S3", _suite("s3")),
        _shard("other stores", [_other_stores()]),
        _shard("faults", _suite("faults")),
        _shard("suites on S3", _suites_on_s3()),
        _shard("behaviours", _suite("behaviours")),
        _shard("units", _suite("units")),
        _shard("fuzz", _fuzzing()),
        _shard("oldest dependencies", [_dependencies("oldest")]),
        _shard("newest dependencies", [_dependencies("newest")]),
        _shard("benchmarks", _benchmarks()),
    ]


def all_proofs() -> list[Shard]:
    """What takes hours: run once when a capability lands, by `just proof NAME`."""
    blows = ("--kills", "1000", "--pauses", "500", "--writers", "8", "--rounds", "10")
    return [
        _proof("storm", "benchmarks.storm", *blows, "--between-seconds", "0.1"),
        _proof("differential", "pytest", "-q", "-n", "2", DIFFERENTIAL, examples=20_000),
        _proof("faults", "tests.s3.faults_table", "--seeds", "3"),
        _proof("model", "tests.model.run", "full"),
        _proof("published graphs", "pytest", "-q", "-n", "2", "tests/legacy"),
        _proof("crash", "pytest", "-q", "-n", "2", *SUITES["crash"][1]),
        _proof(
            "r-data", "pytest", "-q", "-n", "2", "tests/public_data/test_r_data.py", examples=2293
        ),
        _proof("power", "tests.power.storm", "--cuts", "400", "--seed", "{seed}"),
    ]


DIFFERENTIAL = "tests/query/test_differential.py::test_random_queries_are_answered_as_defined"


def _shard(name: str, parts: Iterator[Part] | list[Part]) -> Shard:
    return Shard(name=name, parts=tuple(parts))


def _proof(name: str, module: str, *arguments: str, examples: int = 0) -> Shard:
    environment = {**EVERYTHING, **({"OMNIGRAPH_EXAMPLES": str(examples)} if examples else {})}
    command = ("python", "-m", module, *arguments)
    part = Part(label="whole", command=command, environment=environment)
    return Shard(name=name, parts=(part,), minutes=600)


def _suite(name: str) -> Iterator[Part]:
    count, arguments = SUITES[name]
    workers = ("-n", "0") if name in ("spark", "cluster") else ("-n", "2")
    yield from _cut(count, EVERYTHING, *workers, *arguments)


def _suites_on_s3() -> Iterator[Part]:
    yield from _cut(16, ON_S3, "-n", "2", *SUITES_ON_S3)


def _other_stores() -> Part:
    return Part(label="whole", command=_pytest(OTHER_STORES), environment=EVERYTHING)


def _lost_shuffles() -> Part:
    """The share of the gate, while Spark 4.3 loses an output of every shuffle that is read."""
    injected = "spark.testing.injectShuffleFetchFailures"
    settings = {injected: "true", f"{injected}ResultStageDelay": "1"}
    return Part(
        label="lost shuffles",
        command=_pytest("-n", "0", "tests/spark"),
        environment={"OMNIGRAPH_SPARK_SETTINGS": json.dumps(settings)},
    )


def _spark_on_s3() -> Iterator[Part]:
    yield from _cut(6, ON_S3, "-m", "not s3", "tests/spark", "tests/spark_matrix")


def _cut(count: int, environment: Mapping[str, str], *arguments: str) -> Iterator[Part]:
    for number in range(count):
        share = f"{number}/{count}"
        yield Part(
            label=share,
            command=_pytest("--shard", share, *arguments),
            environment=environment,
        )


def _differential() -> Part:
    return Part(
        label="2,000 queries",
        command=_pytest("-n", "2", DIFFERENTIAL),
        environment={**EVERYTHING, "OMNIGRAPH_EXAMPLES": "2000"},
    )


def _differential_on_spark() -> Iterator[Part]:
    yield from _drawn(200, "tests/spark/test_query_differential.py")
    yield from _drawn(100, "tests/spark/test_query_widening.py")


def _histories() -> Iterator[Part]:
    yield from _drawn(250, "tests/behaviours/test_merge_random.py")
    yield from _drawn(3000, "tests/merge/test_three_way.py")
    yield from _drawn(100, "tests/behaviours/test_cleanup_random.py")
    yield from _drawn(200, "tests/behaviours/test_schema_random.py")
    yield from _drawn(1500, "tests/behaviours/test_mutations_random.py")
    yield from _drawn(120, "tests/maintenance/test_upserts_random.py")
    yield Part(
        label="readers of schemas",
        command=_pytest("tests/behaviours/test_schema_readers.py"),
        environment={**EVERYTHING, "OMNIGRAPH_APPLIES": "200"},
    )


def _random_units() -> Iterator[Part]:
    """Random tests that only need a process, each at a size of five to ten CPU minutes."""
    for name, (examples, arguments) in RANDOM_UNITS.items():
        yield Part(
            label=name,
            command=_pytest("-m", "random", *arguments),
            environment={**EVERYTHING, "OMNIGRAPH_EXAMPLES": str(examples)},
        )


def _engines() -> Iterator[Part]:
    yield from _drawn(75, "tests/spark/test_load_engines.py")
    yield from _drawn(200, "tests/load/test_load_rules.py")


def _spark_versions() -> Iterator[Part]:
    """What works on older versions of Spark."""
    for version in OLDER_SPARK:
        yield _program(version, "tests.spark_matrix", version, "--suite")


def _storms() -> Iterator[Part]:
    """Writers that are killed and paused; readers that hold views beside writers and cleanups."""
    blows = ("--kills", "200", "--pauses", "100", "--writers", "8", "--rounds", "2")
    yield _program("kills", "benchmarks.storm", *blows, "--between-seconds", "0.1")
    yield _program("held", "tests.crash.held_storm", "--seconds", "480", "--seed", "{seed}")


def _storm_on_s3() -> Part:
    blows = ("--kills", "200", "--pauses", "100", "--writers", "8")
    return _program(
        "kills", "benchmarks.storm", "--store", "s3", *blows, "--between-seconds", "1.2"
    )


def _power_cuts() -> Iterator[Part]:
    """Cuts of a real file system with each promise; needs root."""
    for durability in ("commit", "os"):
        cuts = ("--cuts", "150", "--seed", "{seed}", "--durability", durability)
        yield _program(durability, "tests.power.storm", *cuts)
    yield _program("Spark", "tests.power.storm", "--cuts", "16", "--seed", "{seed}", "--spark")


def _life() -> Part:
    """Writers, maintenance, schema changes, Spark, readers, kills and cuts together; needs root."""
    return _program("20 minutes", "tests.power.life", "--minutes", "20", "--seed", "{seed}")


def _damages() -> Iterator[Part]:
    yield _program("files", "tests.damage.storm", "--damages", "400", "--seed", "{seed}")
    yield _program("keys", "tests.damage.keys", "--trials", "500", "--seed", "{seed}")


def _hostile() -> Iterator[Part]:
    """Every forgery with every verb and command, in parts."""
    for number in range(10):
        yield _program(f"{number}/10", "tests.hostile.storm", "--part", f"{number}/10")


def _fuzzing() -> Iterator[Part]:
    yield _program("calls", "tests.api.wrong_calls", "5000", "{seed}")
    yield _program("every call", "tests.api.wrong_calls", "every")
    yield _program("schemas", "tests.schema.fuzz", "200000", "{seed}")
    yield _program("queries", "tests.query.fuzz", "50000", "{seed}")
    yield from _drawn(10_000, "tests/schema/test_roundtrip.py")


def _dependencies(edge: str) -> Part:
    return _program(edge, "tests.gate.dependencies", edge)


def _benchmarks() -> Iterator[Part]:
    for name, sizes in BENCHMARKS.items():
        yield _program(name, f"benchmarks.{name}", *sizes)


def _program(label: str, module: str, *arguments: str) -> Part:
    return Part(label=label, command=("python", "-m", module, *arguments))


def _drawn(examples: int, test: str) -> Iterator[Part]:
    """A random test with a new seed every night."""
    yield Part(
        label=test.rpartition("/")[2],
        command=_pytest("-n", "0", test),
        environment={**EVERYTHING, "OMNIGRAPH_EXAMPLES": str(examples)},
    )


def _pytest(*arguments: str) -> tuple[str, ...]:
    return ("pytest", "-q", "-p", "no:cacheprovider", "--timeout", "3600", *arguments)
