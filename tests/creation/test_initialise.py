from __future__ import annotations

import json

import lance
import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.creation import initialise
from omnigraph_lake.errors import (
    AlreadyInitialisedError,
    ConflictError,
    InitialisationClaimedError,
    SchemaInvalidError,
    StorageUnavailableError,
)
from omnigraph_lake.storage.manifest.swap import create_manifest
from omnigraph_lake.storage.manifest_rows import (
    GraphCommit,
    Operation,
    Outcome,
    Table,
    TableVersion,
)
from tests.forking.programs import run_code, start_code
from tests.stores import files_of, folder_of, put_file

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge WorksAt: Person -> Company { since: Date? }
"""


def files(root: str) -> list[str]:
    return [str(path.relative_to(folder_of(root))) for path in files_of(root)]


def test_a_new_graph_has_the_documented_layout(graph_root: str) -> None:
    og.init(graph_root, schema=SCHEMA)

    top = {path.name for path in folder_of(graph_root).iterdir()}
    assert top - {"_boots"} == {
        "__manifest",
        "nodes",
        "edges",
        "_graph_commits.lance",
        "_graph_commit_actors.lance",
        "_graph_commit_recoveries.lance",
        "_refs",
        "_schema.pg",
        "_schema.ir.json",
        "__schema_state.json",
    }
    assert sorted(p.name for p in folder_of(graph_root, "nodes").iterdir()) == sorted(
        [names.fnv1a64_hex("Person"), names.fnv1a64_hex("Company")]
    )
    assert [p.name for p in folder_of(graph_root, "edges").iterdir()] == [
        names.fnv1a64_hex("WorksAt")
    ]
    assert folder_of(graph_root, "_schema.pg").read_text() == SCHEMA


def test_table_directories_are_named_by_the_published_hash() -> None:
    assert names.fnv1a64_hex("") == "cbf29ce484222325"
    assert names.fnv1a64_hex("a") == "af63dc4c8601ec8c"
    assert names.fnv1a64_hex("foobar") == "85944171f73967e8"


def test_every_dataset_has_stable_row_ids_and_one_version(graph_root: str) -> None:
    og.init(graph_root, schema=SCHEMA)

    datasets = [path.parent for path in folder_of(graph_root).rglob("_versions")]
    assert len(datasets) == 3 + 3 + 1
    for path in datasets:
        dataset = lance.dataset(str(path))
        assert dataset.has_stable_row_ids, path
        assert dataset.version == 1


def test_the_first_commit_publishes_every_empty_table_at_once(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA, actor="ada")

    rows = graph._handle.manifest().rows
    (commit,) = [row for row in rows if isinstance(row, GraphCommit)]
    (decision,) = [row for row in rows if isinstance(row, Operation)]
    assert (commit.actor, commit.parent_id) == ("ada", None)
    assert decision.outcome is Outcome.PUBLISHED
    assert {row.table_key for row in rows if isinstance(row, Table)} == {
        "node:Person",
        "node:Company",
        "edge:WorksAt",
    }
    assert {row.version for row in rows if isinstance(row, TableVersion)} == {1}
    assert graph.snapshot().head is not None


def test_a_second_init_is_refused_and_changes_nothing(graph_root: str) -> None:
    og.init(graph_root, schema=SCHEMA)
    before = files(graph_root)

    for force in (False, True):
        with pytest.raises(AlreadyInitialisedError, match="omnigraph status"):
            og.init(graph_root, schema="node Other { x: I32 }", force=force)
    assert files(graph_root) == before


def test_an_invalid_schema_leaves_the_root_untouched(graph_root: str) -> None:
    with pytest.raises(SchemaInvalidError) as caught:
        og.init(graph_root, schema="node Person { name: Strng }")

    assert "schema:1:21" in str(caught.value)
    assert "did you mean `String`?" in str(caught.value)
    assert not folder_of(graph_root).exists()


@pytest.mark.parametrize("after_its_work", [False, True])
@pytest.mark.parametrize("broken", ["_write_contract", "create_table", "create_history"])
def test_a_failure_leaves_the_root_empty_and_the_next_init_succeeds(
    graph_root: str, monkeypatch: pytest.MonkeyPatch, broken: str, after_its_work: bool
) -> None:
    real = getattr(initialise, broken)

    def fails(*args: object, **kwargs: object) -> None:
        if after_its_work:
            real(*args, **kwargs)
        raise StorageUnavailableError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(initialise, broken, fails)
        with pytest.raises(StorageUnavailableError, match="the disk is full"):
            og.init(graph_root, schema=SCHEMA)

    assert files(graph_root) == []
    og.init(graph_root, schema=SCHEMA)


def test_a_manifest_that_could_not_be_created_leaves_the_root_empty(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_kwargs: object) -> None:
        raise StorageUnavailableError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(initialise, "create_manifest", fails)
        with pytest.raises(StorageUnavailableError, match="the disk is full"):
            og.init(graph_root, schema=SCHEMA)

    assert files(graph_root) == []
    og.init(graph_root, schema=SCHEMA)


def test_a_foreign_dataset_in_the_way_is_never_removed(graph_root: str) -> None:
    location = f"{graph_root}/{names.table_location('edge:WorksAt')}"
    lance.write_dataset(pa.table({"x": [1]}), location)

    with pytest.raises(ConflictError, match="already a dataset"):
        og.init(graph_root, schema=SCHEMA)

    assert lance.dataset(location).count_rows() == 1
    assert all(path.startswith("edges/") for path in files(graph_root))


def test_a_lost_answer_of_the_deciding_write_is_settled_by_reading(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer_lost(*args: object, **kwargs: object) -> None:
        create_manifest(*args, **kwargs)  # type: ignore[arg-type]
        raise StorageUnavailableError("connection reset")

    monkeypatch.setattr("omnigraph_lake.creation.initialise.create_manifest", answer_lost)

    graph = og.init(graph_root, schema=SCHEMA)

    assert len(graph.snapshot().tables) == 3


def test_a_dead_initialisation_is_named_and_can_be_taken_over(graph_root: str) -> None:
    script = (
        "import os, sys, omnigraph_lake as og\n"
        "from omnigraph_lake.creation import initialise\n"
        "initialise.create_manifest = lambda *a, **k: os.kill(os.getpid(), 9)\n"
        "og.init(sys.argv[1], schema=sys.argv[2])\n"
    )
    died = run_code(script, graph_root, SCHEMA)
    assert died.returncode == -9

    with pytest.raises(InitialisationClaimedError, match="--force"):
        og.init(graph_root, schema=SCHEMA)
    with pytest.raises(InitialisationClaimedError):
        og.open(graph_root, read_only=True)
    graph = og.init(graph_root, schema="node Only { x: String @key }", force=True)

    assert list(graph.snapshot().tables) == ["node:Only"]
    assert not any("_versions" in f for f in files(graph_root) if f.startswith("edges/"))


def test_one_of_several_concurrent_inits_wins_and_the_graph_is_whole(graph_root: str) -> None:
    script = (
        "import sys, omnigraph_lake as og\n"
        "try:\n"
        "    og.init(sys.argv[1], schema=sys.argv[2], actor=sys.argv[3])\n"
        "    print('won')\n"
        "except og.OmnigraphError as error:\n"
        "    print(type(error).__name__)\n"
    )
    processes = [start_code(script, graph_root, SCHEMA, f"actor-{n}") for n in range(4)]
    answers = [process.finish().stdout.strip() for process in processes]

    assert answers.count("won") == 1, answers
    assert set(answers) <= {"won", "InitialisationClaimedError", "AlreadyInitialisedError"}
    graph = og.open(graph_root)
    rows = graph._handle.manifest().rows
    (commit,) = [row for row in rows if isinstance(row, GraphCommit)]
    assert commit.actor == f"actor-{answers.index('won')}"
    assert len(graph.maintenance.status().tables) == 3


def test_foreign_schema_files_are_not_overwritten(graph_root: str) -> None:
    put_file(graph_root, "_schema.pg", b"node Mine { x: I32 }")

    with pytest.raises(ConflictError, match=r"_schema\.pg"):
        og.init(graph_root, schema=SCHEMA)

    assert files(graph_root) == ["_schema.pg"]
    assert folder_of(graph_root, "_schema.pg").read_text() == "node Mine { x: I32 }"


def test_other_files_at_the_root_are_left_alone(graph_root: str) -> None:
    put_file(graph_root, "notes.txt", b"mine")

    og.init(graph_root, schema=SCHEMA)

    assert folder_of(graph_root, "notes.txt").read_text() == "mine"


def test_the_claim_of_main_lists_what_init_creates(graph_root: str) -> None:
    og.init(graph_root, schema=SCHEMA)

    claim = json.loads(folder_of(graph_root, names.branch_ref(names.MAIN)).read_bytes())
    assert len(claim["creates"]) == 3
    assert claim["branch"] == "main"
