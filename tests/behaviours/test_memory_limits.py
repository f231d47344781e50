"""What does not fit into memory is refused before it is allocated; the process lives on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InputTooLargeError, InvalidInputError, SchemaInvalidError
from omnigraph_lake.graph import Graph
from tests.forking.programs import run_code

pytestmark = pytest.mark.behaviour

SIZE = 65_536
SCHEMA = f"node Doc {{ name: String @key  place: Vector({SIZE})? }}"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


@pytest.mark.parametrize("size", [65_537, 2_000_000_000, 2**31 - 1])
def test_a_vector_longer_than_the_limit_is_refused_by_the_schema(
    graph_root: str, graph: Graph, size: int
) -> None:
    text = SCHEMA.replace(str(SIZE), str(size))

    with pytest.raises(SchemaInvalidError, match="between 1 and 65536 numbers") as refused:
        og.init(f"{graph_root}-2", schema=text)

    assert [each.rule for each in refused.value.diagnostics] == ["vector-size"]
    with pytest.raises(SchemaInvalidError, match="vector-size"):
        graph.schema.plan(text)


def test_the_longest_vector_can_be_written_null_and_read(graph: Graph) -> None:
    graph.write({"Doc": [{"name": "a"}, {"name": "b", "place": [0.5] * SIZE}]})

    rows = {row["name"]: row["place"] for row in graph.scan("Doc").read_all().to_pylist()}
    assert rows == {"a": None, "b": [0.5] * SIZE}


def test_rows_whose_nulls_would_not_fit_are_refused_before_they_are_made(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_ROWS_MEMORY", "8MiB")
    names = [{"name": f"d{number}"} for number in range(33)]
    source = tmp_path / "docs.jsonl"
    source.write_text("".join(json.dumps({"type": "Doc", "data": row}) + "\n" for row in names))

    for write in (lambda: graph.write({"Doc": names}), lambda: graph.load(source)):
        with pytest.raises(InputTooLargeError, match="33 rows of Doc with vectors of 65,536") as no:
            write()
        assert "need at least 8,650,752 bytes" in no.value.what
    assert graph.scan("Doc").read_all().num_rows == 0
    graph.write({"Doc": names[:30]})
    assert graph.scan("Doc").read_all().num_rows == 30


def test_a_nonsensical_limit_is_told(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_ROWS_MEMORY", "much")

    with pytest.raises(InvalidInputError, match="OMNIGRAPH_ROWS_MEMORY is 'much'"):
        graph.write({"Doc": [{"name": "a"}]})


BOMB = """
import resource, sys
import pyarrow as pa
import pyarrow.parquet as pq
import omnigraph_lake as og
root, file = sys.argv[1:]
rows = 8_000
words = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 100_000]))
names = pa.array([f"d{number}" for number in range(rows)])
pq.write_table(pa.table({"name": names, "words": words}), file)
graph = og.init(root, schema="node Doc { name: String @key  words: String? }")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = graph.load(file, type="Doc", options=og.LoadOptions(engine="local"))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(report.read, grown < 600_000, grown)
"""


@pytest.mark.local_disk("about memory, not about where the files are")
def test_a_small_file_of_800_megabytes_is_loaded_in_bounded_memory(tmp_path: Path) -> None:
    file = tmp_path / "Doc.parquet"

    finished = run_code(BOMB, str(tmp_path / "g"), str(file))

    assert finished.stdout.startswith("8000 True "), finished.stderr + finished.stdout
    assert file.stat().st_size < 2_000_000


FULL = """
import json, resource, sys
import omnigraph_lake as og
from omnigraph_lake.errors import StorageUnavailableError
root, file = sys.argv[1:]
with open(file, "w") as lines:
    for number in range(40_000):
        row = {"name": f"d{number}", "words": "x" * 200}
        lines.write(json.dumps({"type": "Doc", "data": row}) + "\\n")
graph = og.init(root, schema="node Doc { name: String @key  words: String? }")
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
try:
    graph.load(file)
except StorageUnavailableError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(graph.count("Doc"), graph.load(file).read)
"""


@pytest.mark.local_disk("about temporary files")
def test_a_full_folder_for_temporary_files_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()

    finished = run_code(
        FULL, str(tmp_path / "g"), str(tmp_path / "in.jsonl"), env={"TMPDIR": str(folder)}
    )

    refused, counts = finished.stdout.rsplit("\n", 2)[0:2]
    assert f"rows cannot be kept in the folder {folder}" in refused, finished.stderr
    assert "nothing was written" in refused
    assert "TMPDIR" in refused
    assert counts == "0 40000"
    assert not [path for path in folder.glob("*/*") if path.is_dir()]
