"""Published versions carry the checksums of their files, whatever made them, and readers compare.

Files are looked at below the root; everything else goes through the public API.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.checksums import BLOCK
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.manifest.retention import Line, raise_floors
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import TableVersion
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.refs.stored_files import compare, manifest_states, stored_files
from omnigraph_lake.storage.staging.checksum_recording import record_version
from omnigraph_lake.validation import check
from omnigraph_lake.validation.check import (
    Problem,
    file_findings,
    index_findings,
    list_findings,
    unexplained,
)
from tests.forking.programs import run_code, start_code
from tests.forking.waiting import wait_for_stop

pytestmark = [
    pytest.mark.unit,
    pytest.mark.local_disk("files are damaged in place; an object store has checksums of its own"),
]

SCHEMA = """
node P { k: String @key  n: I64  t: String @index  b: Blob? }
edge E: P -> P { w: I64 }
"""
FIND = "query q($k: String) { match { $p: P { k: $k } } return { $p.n } }"


def rows(first: int, count: int, **values: object) -> list[dict[str, object]]:
    return [{"k": f"k{n}", "n": n, "t": f"text {n}", **values} for n in range(first, first + count)]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.write({"P": rows(0, 300, b=b"blob" * 20_000), "E": [{"src": "k1", "dst": "k2", "w": 1}]})
    graph.delete({"P": ["k7"]})
    return graph


def files(graph: Graph, pattern: str) -> list[Path]:
    return sorted(Path(graph.root).glob(pattern))


def flip(path: Path, *, at: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 1
    path.write_bytes(content)


def in_new_process(graph: Graph, program: str) -> str:
    """What a program prints, or the error it ends with; `graph` is opened for it."""
    ended = run_code(
        "import sys, omnigraph_lake as og\n"
        "try:\n"
        "    graph = og.open(sys.argv[1], verify=sys.argv[2] if sys.argv[2:] else None)\n"
        f"    print({program})\n"
        "except og.errors.OmnigraphError as error:\n"
        "    print(type(error).__name__, error)\n",
        graph.root,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def require_complete(graph: Graph) -> None:
    """Every version that is pinned anywhere has a list, and no file of it is missing there."""
    root = parse_root(graph.root)
    versions = [row for row in read_manifest(root).rows if isinstance(row, TableVersion)]
    assert versions
    assert all(row.checksums and row.made_at for row in versions)
    report = graph.maintenance.check(deep=True)
    assert report.ok, report.findings
    assert report.files_unrecorded == 0
    assert report.files_compared > len(versions)


def _merge_a_branch(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.checkout("dev").write({"P": rows(1000, 3)})
    graph.checkout("dev").write({"P": rows(1003, 3)})
    graph.merge("dev")


def _point_at_a_branch(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.checkout("dev").write({"E": [{"src": "k3", "dst": "k4", "w": 2}]})
    graph.merge("dev")
    graph.write({"E": [{"src": "k5", "dst": "k4", "w": 2}]})


def _change_the_schema(graph: Graph) -> None:
    changed = SCHEMA.replace("n: I64", "n: I64  m: I64?").replace("t: String", "t: String?")
    graph.schema.apply(changed + "node Q { k: String @key }\n")


VERBS: dict[str, Callable[[Graph], object]] = {
    "append": lambda graph: graph.write({"P": rows(500, 3)}),
    "merge rows": lambda graph: graph.write({"P": rows(5, 10)}, mode="merge"),
    "overwrite": lambda graph: graph.write({"P": rows(0, 20), "E": []}, mode="overwrite"),
    "delete": lambda graph: graph.delete({"P": ["k1"]}),
    "optimize": lambda graph: graph.maintenance.optimize(),
    "optimize twice": lambda graph: (
        graph.maintenance.optimize(),
        graph.delete({"P": ["k9"]}),
        graph.maintenance.optimize(),
    ),
    "merge a branch": _merge_a_branch,
    "point at a branch": _point_at_a_branch,
    "change the schema": _change_the_schema,
    "tag": lambda graph: graph.tags.create("t"),
    "clean up": lambda graph: graph.maintenance.cleanup(
        keep_versions=1, dry_run=False, allow_unsafe_keep=True
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_records_the_files_it_publishes(graph: Graph, verb: str) -> None:
    VERBS[verb](graph)

    require_complete(graph)


def test_lists_are_short_chains_and_go_with_their_versions(graph: Graph) -> None:
    before = len(files(graph, "nodes/*/_checksums/*"))
    for n in range(BLOCK + 3):
        graph.write({"P": rows(1000 + n, 1)})

    assert len(files(graph, "nodes/*/_checksums/*")) == before + BLOCK + 3
    sizes = [path.stat().st_size for path in files(graph, "nodes/*/_checksums/*")]
    assert sorted(sizes)[len(sizes) // 2] < 1000
    require_complete(graph)

    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=3, dry_run=False)

    assert len(files(graph, "nodes/*/_checksums/*")) <= 2 * BLOCK
    require_complete(graph)


@pytest.mark.parametrize("pattern", ["nodes/*/_deletions/*", "nodes/*/_versions/*612.manifest"])
def test_metadata_is_compared_by_default(graph: Graph, pattern: str) -> None:
    (path,) = files(graph, pattern)
    flip(path)

    told = in_new_process(graph, "graph.scan('P').read_all().num_rows")

    assert told.startswith("DamagedGraphError")
    assert str(path.relative_to(graph.root)) in told
    assert "node:P" in told
    assert "Restore the file" in told


@pytest.mark.parametrize("pattern", ["nodes/*/data/*.lance", "nodes/*/data/*/*.blob"])
def test_data_is_compared_on_first_read(graph: Graph, pattern: str) -> None:
    path = files(graph, pattern)[0]
    flip(path, at=0.1)

    with pytest.raises(DamagedGraphError, match=r"up to 300 rows are at risk") as raised:
        og.open(graph.root, verify="first-read").scan("P", columns=["n"]).read_all()
    assert path.name in str(raised.value)
    report = graph.maintenance.check(deep=True)
    assert [finding.problem.value for finding in report.findings] == ["damaged_file"]


def test_what_was_read_with_less_verification_is_compared_on_first_read(graph: Graph) -> None:
    assert graph.query(FIND, k="k99").to_pylist() == [{"p.n": 99}]
    snapshot = read_manifest(parse_root(graph.root)).snapshot()
    cached_dataset(parse_root(graph.root), snapshot.tables["node:P"])
    flip(files(graph, "nodes/*/data/*.lance")[0], at=0.1)

    verified = og.open(graph.root, verify="first-read")
    with pytest.raises(DamagedGraphError, match="rows are at risk"):
        verified.query(FIND, k="k99").to_pylist()
    with pytest.raises(DamagedGraphError, match="rows are at risk"):
        cached_dataset(parse_root(graph.root, verify="first-read"), snapshot.tables["node:P"])


def test_a_file_is_compared_again_when_it_is_another(graph: Graph) -> None:
    first = og.open(graph.root, verify="first-read")
    (path,) = files(graph, "edges/*/data/*.lance")
    content = path.read_bytes()
    assert first.scan("E").read_all().num_rows == 1
    graph.branches.create("dev")
    graph.checkout("dev").write({"E": [{"src": "k3", "dst": "k4", "w": 2}]})  # names it, too

    path.write_bytes(content[::-1])
    with pytest.raises(DamagedGraphError, match=path.name):
        first.checkout("dev").scan("E").read_all()
    path.write_bytes(content)

    assert first.checkout("dev").scan("E").read_all().num_rows == 2


def test_a_version_that_is_listed_twice_stays_readable(graph: Graph) -> None:
    """A recovery and a writer that wakes up list the same version, in different words."""
    root = parse_root(graph.root)
    entry = read_manifest(root).snapshot().tables["node:P"]

    again = record_version(root, replace(entry, checksums=None), entry.version)

    assert again is not None
    assert entry.checksums is not None
    assert again.digest != entry.checksums.digest
    assert in_new_process(graph, "graph.scan('P').read_all().num_rows") == "299"
    require_complete(graph)


def test_a_missing_list_is_damage(graph: Graph) -> None:
    for path in files(graph, "nodes/*/_checksums/*"):
        path.unlink()

    told = in_new_process(graph, "graph.scan('P').read_all().num_rows")

    assert told.startswith("DamagedGraphError")
    assert "list of checksums" in told


def test_a_damaged_index_is_told_and_built_again_by_optimize(graph: Graph) -> None:
    graph.maintenance.optimize()
    for path in files(graph, "nodes/*/_indices/*/page_data.lance"):
        flip(path)

    told = in_new_process(graph, "graph.write({'P': [{'k': 'k5', 'n': 1, 't': ''}]})")
    assert told.startswith("DamagedGraphError")
    assert "no row is lost" in told
    assert f"omnigraph optimize {graph.root}" in told
    assert in_new_process(graph, "graph.scan('P').read_all().num_rows") == "299"

    assert in_new_process(graph, "len(graph.maintenance.optimize())") == "2"
    assert in_new_process(graph, f"graph.query({FIND!r}, k='k5').to_pylist()") == "[{'p.n': 5}]"
    require_complete(og.open(graph.root))


def test_a_damaged_manifest_is_told(graph: Graph) -> None:
    newest = files(graph, f"{names.MANIFEST}/data/*")[-1]
    for path in files(graph, f"{names.MANIFEST}/data/*"):
        newest = max(newest, path, key=lambda file: file.stat().st_mtime_ns)
    content = newest.read_bytes()
    at = content.index(b"row_count") if b"row_count" in content else len(content) // 3
    newest.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])

    told = in_new_process(graph, "graph.scan('P').read_all().num_rows")

    assert told.startswith("DamagedGraphError") or told == "299"


def test_a_removed_newest_manifest_is_found_by_a_deep_check(graph: Graph) -> None:
    graph.write({"P": rows(700, 1)})
    newest = files(graph, f"{names.MANIFEST}/_versions/*.manifest")[0]
    newest.unlink()

    told = in_new_process(
        graph, "[finding.problem.value for finding in graph.maintenance.check(deep=True).findings]"
    )

    assert told == "['unknown_operation']"


def test_an_operation_that_is_decided_during_a_deep_check_is_explained(graph: Graph) -> None:
    before = read_manifest(graph._objects.root)
    graph.write({"P": rows(700, 1)})

    assert list(unexplained(graph._objects, before)) == []


def test_files_of_a_branch_that_is_deleted_during_a_deep_check_are_not_missed(
    graph: Graph,
) -> None:
    objects = graph._objects
    graph.branches.create("dev").write({"P": rows(700, 1)})
    states = manifest_states(objects)
    whole = stored_files(objects, states)
    graph.branches.delete("dev")
    graph.maintenance.reconcile(dry_run=False)

    compared = [(file, compare(objects.root, file)) for file in whole.files.values()]
    halved = stored_files(objects, states)

    assert [differs for _, differs in compared if differs is not None]
    assert halved.damaged_lists
    assert list(file_findings(objects, compared)) == []
    assert list(list_findings(objects, halved)) == []
    assert list(index_findings(objects, states)) == []


def test_files_of_an_operation_that_was_decided_against_are_not_missed(graph: Graph) -> None:
    before = files(graph, "nodes/*/data/*")
    writer = start_code(
        f"import omnigraph_lake as og; graph = og.open({graph.root!r})\n"
        "graph.write({'P': [{'k': 'x', 'n': 1, 't': ''}]})",
        env={"OMNIGRAPH_FAILPOINTS": "publish.pre_manifest=stop"},
    )
    assert wait_for_stop(writer.pid, 60.0)
    added = [path for path in files(graph, "nodes/*/data/*") if path not in before]
    graph.schema.apply(SCHEMA.replace("n: I64 ", "n: I64  m: I64? "))
    os.kill(writer.pid, signal.SIGCONT)
    assert "SchemaChangedError" in writer.finish().stderr
    for path in added:
        path.unlink()

    stored = stored_files(graph._objects, manifest_states(graph._objects)).files.values()

    assert [file.path for file in stored if compare(graph._objects.root, file) is not None]
    assert graph.maintenance.check(deep=True).findings == ()


def test_files_of_a_cleanup_that_died_are_not_missed(graph: Graph) -> None:
    """It gives versions up by a floor, and then removes their files before them."""
    kept = set(files(graph, "nodes/*/data/*"))
    graph.write({"P": rows(900, 1)}, mode="append")
    (written,) = set(files(graph, "nodes/*/data/*")) - kept
    graph.write({"P": rows(0, 300)}, mode="overwrite")
    entry = read_manifest(parse_root(graph.root)).snapshot().tables["node:P"]
    written.unlink()
    assert not graph.maintenance.check(deep=True).ok

    raise_floors(StoredObjects(parse_root(graph.root)), {Line(entry.location, None): entry.version})

    assert graph.maintenance.check(deep=True).ok


def test_a_branch_log_is_compared(graph: Graph) -> None:
    graph.branches.create("dev")
    (entry,) = files(graph, "_refs/branches/dev@/*2.json")
    content = entry.read_text()
    at = content.index("created_at") if "created_at" in content else content.index("claimed_at")
    year = content.index("20", at)
    entry.write_text(content[:year] + "19" + content[year + 2 :])

    told = in_new_process(graph, "graph.checkout('dev').scan('P').read_all().num_rows")

    assert told.startswith("DamagedGraphError")
    assert "its digest is" in told


@pytest.fixture
def folded(graph: Graph) -> Graph:
    """Its commits have moved to the history, in two steps."""
    for number in (800, 801):
        graph.write({"P": rows(number, 1)})
        assert compact_commits(graph._objects.root, read_manifest(graph._objects.root))
    return graph


def history_versions(graph: Graph, location: str) -> list[Path]:
    """Newest first, as Lance names them."""
    return files(graph, f"{location}/_versions/*.manifest")


@pytest.mark.parametrize("location", [names.COMMITS, names.COMMIT_ACTORS])
def test_a_version_of_another_table_of_the_history_is_told(folded: Graph, location: str) -> None:
    other = history_versions(folded, names.RECOVERIES)[-1]
    history_versions(folded, location)[0].write_bytes(other.read_bytes())

    with pytest.raises(DamagedGraphError, match=f"the newest version of {location}"):
        og.open(folded.root, read_only=True).commits()


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize(
    ("location", "lost"), [(names.COMMITS, "commit"), (names.COMMIT_ACTORS, "actor of commit")]
)
def test_a_lost_version_of_the_history_is_told(
    folded: Graph, location: str, lost: str, is_removed: bool
) -> None:
    newest, *_, oldest = history_versions(folded, location)
    if is_removed:
        newest.unlink()
    else:
        newest.write_bytes(oldest.read_bytes())

    with pytest.raises(DamagedGraphError, match=f"the {lost} "):
        og.open(folded.root, read_only=True).commits()


def test_a_lost_end_of_a_log_is_found_by_a_deep_check(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.tags.create("early")
    files(graph, "_refs/tags/early@/*2.json")[0].unlink()

    assert graph.maintenance.check(deep=True).ok  # it may be about to be made
    monkeypatch.setattr(check, "UNFINISHED_AFTER", timedelta(0))
    (finding,) = graph.maintenance.check(deep=True).findings

    assert finding.problem is Problem.UNFINISHED_NAME
    assert "tag 'early'" in finding.message
    graph.tags.create("early")
    assert graph.maintenance.check(deep=True).ok


def test_a_missing_file_of_a_branchs_manifest_is_damage(graph: Graph) -> None:
    graph.branches.create("dev").write({"P": rows(900, 1)})
    for path in files(graph, f"{names.MANIFEST}/tree/*/data/*.lance"):
        path.unlink()

    told = in_new_process(graph, "graph.checkout('dev').scan('P').read_all().num_rows")

    assert told.startswith("DamagedGraphError")
    assert "the newest of branch 'dev'" in told


def test_a_damaged_column_of_the_history_is_told(folded: Graph) -> None:
    newest = history_versions(folded, names.COMMITS)[0]
    newest.write_bytes(newest.read_bytes().replace(b"\x06string", b"\x063tring"))

    with pytest.raises(DamagedGraphError):
        og.open(folded.root, read_only=True).commits()
