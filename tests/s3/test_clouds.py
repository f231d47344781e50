"""Graphs on MinIO and on Azure, and inputs on Google's store, as far as their emulators go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake import LoadOptions
from omnigraph_lake.errors import StorageUnavailableError
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import Put, StoredObjects
from tests.s3.emulators import ACCOUNT, CONTAINER, Azurite, FakeGcs, MinIO, variables

pytestmark = [
    pytest.mark.s3,
    pytest.mark.nightly(
        "starts servers that npm and Go fetch; what is not about these stores themselves is "
        "tested on versitygw"
    ),
]

SCHEMA = "node Person { name: String @key\n age: I32? }\nedge Knows: Person -> Person"
LONG_FORM = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"
WRITER = """
import sys, omnigraph_lake as og
graph = og.open(sys.argv[1])
for number in range(12):
    graph.write({"Person": [{"name": f"{sys.argv[2]}-{number}"}]})
"""


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinIO]:
    with MinIO(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with Azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="module")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    with FakeGcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


def people() -> bytes:
    nodes = [{"type": "Person", "data": {"name": f"p{number}"}} for number in range(300)]
    edges = [{"edge": "Knows", "from": f"p{n}", "to": f"p{n + 1}"} for n in range(299)]
    return "\n".join(map(json.dumps, [*nodes, *edges])).encode()


def parquet(tmp_path: Path) -> bytes:
    table = pa.table({"name": [f"q{number}" for number in range(5000)]})
    pq.write_table(table, tmp_path / "q.parquet", row_group_size=1000)
    return (tmp_path / "q.parquet").read_bytes()


def live(place: str, spelled: str, options: Mapping[str, str], parquet: bytes) -> None:
    """A life of a graph in a store: inputs, loads, a branch, a merge and maintenance."""
    inputs = StoredObjects(parse_root(f"{place}/in", storage_options=options))
    inputs.replace("people.jsonl", people())
    inputs.replace("Person/q.parquet", parquet)
    graph = og.init(f"{place}/one/graph", schema=SCHEMA, storage_options=options)

    assert graph.load(f"{spelled}/in/*.jsonl").written == {"Person": 300, "Knows": 299}
    graph.branches.create("dev")
    graph.checkout("dev").load(f"{place}/in/Person")
    graph.write({"Person": [{"name": "on main"}]})
    graph.merge("dev", into="main")
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=10, dry_run=False)

    again = og.open(f"{spelled}/one/graph", storage_options=options)
    assert (again.count("Person"), again.count("Knows")) == (5301, 299)
    assert again.maintenance.check().ok


def write_from_processes(root: str, writers: Sequence[str], options: Mapping[str, str]) -> None:
    """Processes that write twelve people each at once, one per commit; no commit is lost."""
    graph = og.init(root, schema=SCHEMA, storage_options=options)
    before = len(graph.commits(limit=100))

    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, root, name], env=variables(options))
        for name in writers
    ]

    assert [process.wait(timeout=240) for process in processes] == [0] * len(writers)
    graph = og.open(root, read_only=True, storage_options=options)
    assert graph.count("Person") == 12 * len(writers)
    assert len(graph.commits(limit=100)) - before == 12 * len(writers)
    assert graph.maintenance.check().ok


def test_minio_keeps_a_graph_through_loads_branches_and_maintenance(
    minio: MinIO, tmp_path: Path
) -> None:
    place = f"s3://{CONTAINER}"
    live(place, place, minio.options(), parquet(tmp_path))


def test_four_processes_write_to_minio_and_no_commit_is_lost(minio: MinIO) -> None:
    write_from_processes(
        f"s3://{CONTAINER}/two/graph", ("ann", "bob", "cat", "dan"), minio.options()
    )


def test_a_container_keeps_a_graph_through_loads_branches_and_maintenance(
    azurite: Azurite, tmp_path: Path
) -> None:
    live(f"az://{CONTAINER}", LONG_FORM, azurite.options(), parquet(tmp_path))


def test_two_processes_write_to_a_container_and_no_commit_is_lost(azurite: Azurite) -> None:
    write_from_processes(f"az://{CONTAINER}/two/graph", ("ann", "bob"), azurite.options())


def test_a_container_takes_an_object_once(azurite: Azurite) -> None:
    place = parse_root(f"az://{CONTAINER}/three", storage_options=azurite.options())
    objects = StoredObjects(place)

    assert objects.put_if_absent("claim", b"first") is Put.CREATED
    assert objects.put_if_absent("claim", b"second") is Put.EXISTED
    assert objects.read("claim") == b"first"
    assert objects.list("") == ("claim",)


def test_a_container_that_cannot_be_used_is_named(azurite: Azurite) -> None:
    wrong = azurite.options("d3Jvbmcgc2VjcmV0")
    for root, options, message in (
        ("az://missing/graph", azurite.options(), "the bucket does not exist"),
        (f"az://{CONTAINER}/graph", wrong, "the credentials are not known to the store"),
    ):
        with pytest.raises(StorageUnavailableError, match=message) as raised:
            og.init(root, schema=SCHEMA, storage_options=options)
        assert "d3Jvbmcgc2VjcmV0" not in str(raised.value)


def test_inputs_of_googles_store_are_loaded(fake_gcs: FakeGcs, tmp_path: Path) -> None:
    fake_gcs.put("in/people.jsonl", people())
    fake_gcs.put("in/Person/q.parquet", parquet(tmp_path))
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)

    report = graph.load(
        [f"gs://{CONTAINER}/in/*.jsonl", f"gs://{CONTAINER}/in/Person"],
        options=LoadOptions(storage_options=fake_gcs.options()),
    )

    assert report.written == {"Person": 5300, "Knows": 299}
