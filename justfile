# Tasks of the project. `just` alone lists them.

set shell := ["bash", "-euo", "pipefail", "-c"]

_list:
    @just --list

# Create or refresh the development environment in .venv
setup:
    python3 -m venv .venv
    .venv/bin/pip install --quiet --upgrade pip
    .venv/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'

# Everything CI checks, in the order of how fast it fails
check: format-check lint types imports test test-spark test-cluster docs

# Rewrite files in the house format
format:
    ruff format .
    ruff check --fix .

format-check:
    ruff format --check .

lint:
    ruff check .

types:
    mypy

imports:
    lint-imports

# The fast tiers: everything but Spark, clusters, S3 and long runs
test *args:
    pytest -n auto -m "not spark and not cluster and not s3 and not slow" {{args}}

# One real Spark session; then a standalone cluster whose executors and drivers are killed, and a Connect server
test-spark *args:
    pytest -m "spark and not cluster and not s3" {{args}}

test-cluster *args:
    pytest -m cluster {{args}}

# Build the servers of the s3 tier into a cache outside of the checkout, once (minutes, needs Go)
s3-tools:
    bash .ci/s3-tools

# Start an S3 server by hand and print what to export; its files are in the folder
s3 folder="/tmp/omnigraph-s3":
    python -m tests.s3.server {{folder}}

# The s3 tier in minutes: what is about S3 itself, and a part of every suite with its graphs on S3
test-s3-smoke:
    pytest -n auto -m "s3 and not slow" tests/s3
    OMNIGRAPH_TEST_STORE=s3 pytest -n auto -m "not slow" {{s3_smoke}}

s3_smoke := "tests/operations/test_initialise.py tests/operations/test_open.py tests/commit/test_writes.py tests/behaviours/test_merge.py tests/maintenance/test_migrations.py tests/storage/test_objects.py tests/storage/test_manifest.py"
s3_suites := "tests/behaviours tests/operations tests/maintenance tests/commit tests/cli tests/local tests/query tests/storage"

# Every kind of writer meets every kind of fault of a store; prints what came of it (long)
faults *args:
    python -m tests.s3.faults_table --seeds 3 {{args}}

# The storm with its graph on S3, every writer as if on a host of its own (long)
storm-s3 *args:
    python -m benchmarks.storm --store s3 --kills 200 --pauses 100 --writers 8 --between-seconds 1.2 {{args}}

# Every suite that makes graphs, with the graphs on S3, in this process and on Spark (long)
test-s3 *args:
    pytest -n auto -m s3 tests/s3 {{args}}
    OMNIGRAPH_TEST_STORE=s3 pytest -n auto --timeout 1200 {{s3_suites}} {{args}}
    OMNIGRAPH_TEST_STORE=s3 pytest --timeout 1200 -m "not s3" tests/spark {{args}}

# Both engines on 300 random loads, and the rules on hashed keys on 1,000, against each other and the oracle (long)
engines:
    OMNIGRAPH_EXAMPLES=300 pytest -q tests/spark/test_load_engines.py --timeout 7200
    OMNIGRAPH_EXAMPLES=1000 pytest -q tests/spark/test_load_rules.py --timeout 7200

# Random histories of branches, merged and compared with an oracle in plain Python (nightly, about an hour)
histories:
    OMNIGRAPH_EXAMPLES=3000 pytest -q tests/behaviours/test_merge_random.py tests/local/test_three_way.py --timeout 14400

# Random histories that are cleaned up while writers sleep and die, against the same oracle (nightly, about half an hour)
cleanups:
    OMNIGRAPH_EXAMPLES=500 pytest -q -n auto tests/behaviours/test_cleanup_random.py --timeout 7200

# Random changes of random schemas against an oracle, readers beside 200 changes, every crash and sleep (long)
schemas:
    OMNIGRAPH_EXAMPLES=1000 pytest -q tests/behaviours/test_schema_random.py --timeout 14400
    OMNIGRAPH_APPLIES=200 pytest -q -s tests/behaviours/test_schema_readers.py --timeout 1200
    pytest -q -n auto tests/crash/test_schema_crashes.py tests/crash/test_schema_zombies.py --timeout 1200

# Random queries on random graphs against the evaluator, in every way they can run, here and on Spark (long)
differential:
    OMNIGRAPH_EXAMPLES=20000 pytest -q -n auto tests/query/test_differential.py
    OMNIGRAPH_EXAMPLES=1000 pytest -q tests/spark/test_query_differential.py

# Shards of everything that is not in the gate, the stalest first; `just nightly status` shows the record
nightly *args="run":
    python -m tests.gate.nightly {{args}}

# Fail unless every shard of the nightly was green recently enough to release
release-check:
    python -m tests.gate.nightly release-check

# Unit tier only
unit *args:
    pytest -n auto -m unit {{args}}

# Build the documentation; a broken link or anchor fails
docs:
    zensical build --strict

# Serve the documentation while writing it
docs-serve:
    zensical serve

# Property tests and fuzzing of the schema language at full size (minutes)
fuzz:
    OMNIGRAPH_EXAMPLES=10000 pytest -q tests/schema/test_roundtrip.py --timeout 3600
    python -m tests.schema.fuzz 200000

# Kill and pause writers at random against a bank whose books must balance (long)
storm *args:
    python -m benchmarks.storm --kills 1000 --pauses 500 --writers 8 --rounds 10 --between-seconds 0.1 {{args}}

# Search the protocol's model at its large bounds (long, several GB)
model-full:
    python -m tests.model.run full

# Print one benchmark: commit | load | maintain | merge | open_cost | optimize | query | s3_cost | s3_load | schema_change | search | skew | startup | supernode
bench name *args:
    python -m benchmarks.{{name}} {{args}}

# Build wheel and source archive into dist/
build:
    python -m build
