"""Everything that is proven outside the gate, cut into shards of about ten minutes.

Suites are cut by a hash of a test's id (`--shard`), so every test of a folder is in exactly one of
its shards; random runs are cut by seed. Order matters only for shards that have never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.gate.environment import OLDER_SPARK

EVERYTHING = {"OMNIGRAPH_NIGHTLY": "1"}
ON_S3 = {**EVERYTHING, "OMNIGRAPH_TEST_STORE": "s3"}

SUITES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "crash": (
        6,
        ("tests/adversary", "tests/crash", "tests/power", "tests/damage", "tests/hostile"),
    ),
    "model": (6, ("tests/model",)),
    "behaviours": (2, ("tests/behaviours",)),
    "legacy": (2, ("tests/legacy",)),
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
    "cluster": (2, ("tests/cluster",)),
    "s3": (2, ("tests/s3", "--ignore-glob=*/test_faults*.py")),
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
    "commit": ("--commits", "2000"),
    "durability": (),
    "load": ("--nodes", "200000", "--edges", "1000000", "--no-memory"),
    "local_load": ("--rounds", "1"),
    "maintain": ("--commits", "500"),
    "merge": ("--nodes", "200000", "--edges", "1000000"),
    "open_cost": (),
    "optimize": ("--tables", "10", "--wide-mb", "200"),
    "query": ("--rounds", "3", "--cold-keys", "3"),
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
class Shard:
    """One command, whose exit code is its verdict."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    minutes: int = 40
    """It is killed, and red, after so long."""

    @property
    def family(self) -> str:
        return self.name.partition(" ")[0]


def all_shards() -> list[Shard]:
    return [
        *_suite("crash"),
        *_suite("model"),
        *_power_cuts(),
        _life(),
        *_damages(),
        *_hostile(),
        *_differential(),
        *_random_histories(),
        *_random_units(),
        *_suite("cluster"),
        *_suite("spark"),
        *_spark_versions(),
        *_suite("s3"),
        *_suite("faults"),
        *_engines(),
        *_storms(),
        *_held_storms(),
        *_fuzzing(),
        *_suite("behaviours"),
        *_suite("units"),
        *_on_s3(),
        *_benchmarks(),
        _coverage(),
    ]


def _suite(name: str) -> Iterator[Shard]:
    count, arguments = SUITES[name]
    workers = ("-n", "0") if name in ("spark", "cluster") else ("-n", "2")
    for number in range(count):
        yield Shard(
            name=f"{name} {number}/{count}",
            command=_pytest(*workers, "--shard", f"{number}/{count}", *arguments),
            environment=EVERYTHING,
        )


def _differential() -> Iterator[Shard]:
    """20,000 queries here and 1,000 on Spark; a part is 500 queries."""
    test = "tests/query/test_differential.py::test_random_queries_are_answered_as_defined"
    for number in range(20):
        parts = (f"{test}[{2 * number}]", f"{test}[{2 * number + 1}]")
        yield Shard(
            name=f"differential {number}/20",
            command=_pytest("-n", "2", *parts),
            environment={**EVERYTHING, "OMNIGRAPH_EXAMPLES": "20000"},
        )
    for number in range(10):
        yield Shard(
            name=f"differential-spark {number}/10",
            command=_pytest("tests/spark/test_query_differential.py"),
            environment={**EVERYTHING, "OMNIGRAPH_EXAMPLES": "100"},
        )


def _random_histories() -> Iterator[Shard]:
    yield from _drawn("histories", 12, 250, "tests/behaviours/test_merge_random.py")
    yield from _drawn("three-way", 1, 3000, "tests/merge/test_three_way.py")
    yield from _drawn("cleanups", 5, 100, "tests/behaviours/test_cleanup_random.py", workers=2)
    yield from _drawn("schemas", 5, 200, "tests/behaviours/test_schema_random.py")
    yield from _drawn("merged-schemas", 12, 250, "tests/behaviours/test_merged_schemas_random.py")
    yield from _drawn("mutations", 2, 1500, "tests/behaviours/test_mutations_random.py")
    yield from _drawn("upserts", 1, 120, "tests/maintenance/test_upserts_random.py")
    yield Shard(
        name="schema-readers 0/1",
        command=_pytest("tests/behaviours/test_schema_readers.py"),
        environment={**EVERYTHING, "OMNIGRAPH_APPLIES": "200"},
    )


def _random_units() -> Iterator[Shard]:
    """Random tests that only need a process, each at a size of five to ten CPU minutes."""
    for name, (examples, arguments) in RANDOM_UNITS.items():
        yield Shard(
            name=f"random {name}",
            command=_pytest("-m", "random", *arguments),
            environment={**EVERYTHING, "OMNIGRAPH_EXAMPLES": str(examples)},
        )


def _engines() -> Iterator[Shard]:
    yield from _drawn("engines", 4, 75, "tests/spark/test_load_engines.py")
    yield from _drawn("load-rules", 2, 500, "tests/spark/test_load_rules.py")
    # Eight tests with so many kills each: 208 in all.
    yield from _drawn("stream-kills", 2, 13, "tests/cluster/test_stream_kills.py")


def _spark_versions() -> Iterator[Shard]:
    """What works on older versions of Spark."""
    for version in OLDER_SPARK:
        yield Shard(
            name=f"spark-{version} 0/1",
            command=("python", "-m", "tests.spark_matrix", version, "--suite"),
        )


def _storms() -> Iterator[Shard]:
    blows = ("--kills", "200", "--pauses", "100", "--writers", "8")
    for number in range(5):
        yield Shard(
            name=f"storm {number}/5",
            command=(
                *("python", "-m", "benchmarks.storm", *blows),
                *("--rounds", "2", "--between-seconds", "0.1"),
            ),
        )
    yield Shard(
        name="storm-s3 0/1",
        command=(
            *("python", "-m", "benchmarks.storm", "--store", "s3", *blows),
            *("--between-seconds", "1.2"),
        ),
    )


def _held_storms() -> Iterator[Shard]:
    """Readers that hold views, and feeds, beside writers and cleanups."""
    for number in range(2):
        yield Shard(
            name=f"held-storm {number}/2",
            command=(
                *("python", "-m", "tests.crash.held_storm"),
                *("--seconds", "480", "--seed", "{seed}"),
            ),
        )


def _power_cuts() -> Iterator[Shard]:
    """200 cuts of a real file system with each promise; needs root."""
    for durability in ("commit", "os"):
        for number in range(4):
            cuts = ("--cuts", "50", "--seed", "{seed}", "--durability", durability)
            yield Shard(
                name=f"power-{durability} {number}/4",
                command=("python", "-m", "tests.power.storm", *cuts),
            )
    yield Shard(
        name="power-spark 0/1",
        command=(
            "python",
            "-m",
            "tests.power.storm",
            "--cuts",
            "16",
            "--seed",
            "{seed}",
            "--spark",
        ),
    )


def _life() -> Shard:
    """Writers, maintenance, schema changes, Spark, readers, kills and cuts together; needs root."""
    return Shard(
        name="life 0/1",
        command=("python", "-m", "tests.power.life", "--minutes", "30", "--seed", "{seed}"),
        minutes=60,
    )


def _damages() -> Iterator[Shard]:
    """1,000 damaged files."""
    for number in range(4):
        yield Shard(
            name=f"damage {number}/4",
            command=("python", "-m", "tests.damage.storm", "--damages", "250", "--seed", "{seed}"),
        )
    yield Shard(
        name="damage-keys 0/1",
        command=("python", "-m", "tests.damage.keys", "--trials", "200", "--seed", "{seed}"),
    )


def _hostile() -> Iterator[Shard]:
    """Every forgery with every verb and command."""
    for number in range(10):
        yield Shard(
            name=f"hostile {number}/10",
            command=("python", "-m", "tests.hostile.storm", "--part", f"{number}/10"),
        )


def _fuzzing() -> Iterator[Shard]:
    for number, calls in enumerate((("5000", "{seed}"), ("every",))):
        yield Shard(
            name=f"fuzz-calls {number}/2",
            command=("python", "-m", "tests.api.wrong_calls", *calls),
        )
    yield from _drawn("schema-texts", 1, 10_000, "tests/schema/test_roundtrip.py")
    for number in range(4):
        for language in ("schema", "query"):
            yield Shard(
                name=f"fuzz-{language} {number}/4",
                command=("python", "-m", f"tests.{language}.fuzz", "50000", "{seed}"),
            )


def _on_s3() -> Iterator[Shard]:
    for number in range(8):
        yield Shard(
            name=f"suites-on-s3 {number}/8",
            command=_pytest("-n", "2", "--shard", f"{number}/8", *SUITES_ON_S3),
            environment=ON_S3,
        )
    for number in range(4):
        yield Shard(
            name=f"spark-on-s3 {number}/4",
            command=_pytest("-m", "not s3", "--shard", f"{number}/4", "tests/spark"),
            environment=ON_S3,
        )


def _benchmarks() -> Iterator[Shard]:
    for name, sizes in BENCHMARKS.items():
        yield Shard(
            name=f"benchmark {name}", command=("python", "-m", f"benchmarks.{name}", *sizes)
        )


def _coverage() -> Shard:
    """How much of src the tests of this process reach; victims and executors are not counted."""
    run = "coverage run --source src -m pytest -q -n 0 --timeout 600 -m 'unit or behaviour'"
    return Shard(
        name="coverage 0/1",
        command=("bash", "-c", f"{run} && coverage report --format=total"),
        environment={"COVERAGE_FILE": "/tmp/omnigraph-coverage"},  # noqa: S108 - read at once
    )


def _drawn(family: str, count: int, examples: int, test: str, workers: int = 0) -> Iterator[Shard]:
    """A random test with new seeds in every shard and every run of it."""
    for number in range(count):
        yield Shard(
            name=f"{family} {number}/{count}",
            command=_pytest("-n", str(workers), test),
            environment={**EVERYTHING, "OMNIGRAPH_EXAMPLES": str(examples)},
        )


def _pytest(*arguments: str) -> tuple[str, ...]:
    return (
        *("pytest", "-q", "-p", "no:cacheprovider", "--timeout", "3600"),
        *("--cost-file", "{costs}", *arguments),
    )
