# Tasks of the project. `just` alone lists them. They use .venv by themselves; `just setup` makes it.

set shell := ["bash", "-euo", "pipefail", "-c"]

export PATH := justfile_directory() / ".venv/bin:" + env("PATH")

_list:
    @just --list

# Create or refresh the development environment in .venv (without just: bash .ci/setup)
setup:
    bash .ci/setup

# What CI runs, in an environment of its own: every phase, or those that are named (static fast spark oldest-spark cluster s3 docs)
check *phases:
    bash .ci/run {{phases}}

# While you write: static checks, and the tests of the languages, rules, formats and storage (under a minute)
quick: format-check lint imports types
    pytest -q -n auto -m "unit and not spark" tests/schema tests/query tests/validation tests/load tests/storage tests/tidy

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

# Draw the layers of imports, and write the tree of packages into ARCHITECTURE.md
layers:
    python -m tests.tidy.layers

# The fast tiers of the gate, or the tests that are named: everything but Spark, clusters and S3
test *args:
    pytest -n auto -m "not spark and not cluster and not s3" {{args}}

# One real Spark session
test-spark *args="tests/spark":
    pytest {{args}}

# What works on each version of Spark, as a table: all versions, or those that are named; --suite runs more tests
spark-matrix *args:
    python -m tests.spark_matrix {{args}}

# A standalone cluster whose executors and drivers are killed, and a Connect server
test-cluster *args="tests/cluster":
    pytest {{args}}

# What is about S3 itself
test-s3 *args="tests/s3":
    pytest -n auto {{args}}

# Tests with their graphs on S3 instead of a disk
on-s3 *args:
    OMNIGRAPH_TEST_STORE=s3 pytest -n auto {{args}}

# Build the servers of the S3 tests into a cache outside of the checkout, once (minutes, needs Go)
s3-tools:
    bash .ci/s3-tools

# Get MinIO and the emulators of Azure's and Google's stores for the nightly, once (needs Go and npm)
emulators:
    bash .ci/emulators

# Start an S3 server by hand and print what to export; its files are in the folder
s3 folder="/tmp/omnigraph-s3":
    python -m tests.s3.server {{folder}}

# Every kind of proof that is not in the gate, the stalest first: `just nightly --background`; `just nightly status`
nightly *args:
    python -m tests.gate.nightly {{args}}

# Run a proof of hours once, and record it: `just proof storm`
proof name:
    python -m tests.gate.nightly proof "{{name}}"

# Measure what the tests of the gate cost, for its choice
costs:
    pytest -q -n 2 -m "not spark and not s3 and not cluster" --cost-file /tmp/omnigraph-costs-fast.json
    pytest -q -m spark --cost-file /tmp/omnigraph-costs-spark.json tests/spark tests/docs tests/guards
    pytest -q -n 2 --cost-file /tmp/omnigraph-costs-s3.json tests/s3 tests/guards/test_s3_sessions.py
    pytest -q --cost-file /tmp/omnigraph-costs-cluster.json tests/cluster
    python -m tests.gate.costs /tmp/omnigraph-costs-{fast,spark,s3,cluster}.json

# Run the guards against the newest Lance, pre-releases included, and exchange graphs with it (docs/dev/lance.md)
newest:
    python -m tests.gate.dependencies lance

# Fail unless every kind of proof was green recently enough to release
release-check:
    python -m tests.gate.nightly release-check

# Every kind of writer meets every kind of fault of a store; prints what came of it (long)
faults *args:
    python -m tests.s3.faults_table --seeds 3 {{args}}

# Kill and pause writers at random against a bank whose books must balance (long)
storm *args:
    python -m benchmarks.storm --kills 1000 --pauses 500 --writers 8 --rounds 10 --between-seconds 0.1 {{args}}

# Search the protocol's model at its large bounds (long, several GB)
model-full:
    python -m tests.model.run full

# Print one benchmark, such as `just bench query`; `ls benchmarks` names them
bench name *args:
    python -m benchmarks.{{name}} {{args}}

# Build the documentation; a broken link or anchor fails
docs:
    zensical build --strict

# Write the page of screens: what commands show at 80 and 200 columns, and results in a notebook
screens:
    python -m tests.docs.screens docs/reference/screens.md

# Run a benchmark and keep what it printed for the page of benchmarks
record name *args:
    python -m benchmarks.record {{name}} {{args}}

# Write the pages of the Python API and of benchmarks, and the index for language models, from the sources
api:
    python -m tests.docs.api_page docs/reference/api.md
    python -m tests.docs.benchmarks_page docs/reference/benchmarks.md
    python -m tests.docs.llms docs/llms.txt

# Serve the documentation while writing it
docs-serve:
    zensical serve

# Build the script and the styles of views into the package, after a change below frontend/ (needs npm)
frontend:
    cd frontend && npm install --no-audit --no-fund && npm run build

# Build wheel and source archive into dist/
build:
    python -m build
