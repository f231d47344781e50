"""What a disk refuses: each failure has a next step of its own, and says that nothing was written.

Real failures: a file system that is full, one that may only be read, permissions that are obeyed,
a limit of open files, names that are too long. Each program runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError
from tests.behaviours.histories import SCHEMA, small_graph
from tests.forking.programs import run_code, run_command
from tests.gate.selection import for_gate

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.local_disk("about what an operating system says of a disk"),
]

PROGRAM: Final = """
import json, os, resource, sys
from tests.adversary.plain_process import obey_permissions
root, beside, case = sys.argv[1:]
if case == "permissions":
    obey_permissions()
import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError
verbs = {
    "open": lambda: og.open(root),
    "init": lambda: og.init(beside + "/new", schema="node P { name: String @key }"),
    "export": lambda: og.open(root, read_only=True).export(beside + "/people.jsonl"),
    "export as Parquet": lambda: og.open(root, read_only=True).export(beside + "/people",
        format="parquet"),
    "read": lambda: og.open(root, read_only=True).scan("Person").read_all().num_rows,
}
if case in ("full", "read-only", "files"):
    graph = og.open(root) if case != "read-only" else None
    if graph is not None:
        verbs["write"] = lambda: graph.write({"Person": [{"name": "eve"}]})
        verbs["merge"] = lambda: graph.branches.create("dev")
if case == "full":
    filler = os.open(beside + "/filler", os.O_CREAT | os.O_WRONLY)
    try:
        while os.write(filler, bytes(4096)):
            pass
    except OSError:
        pass
if case == "files":
    verbs = {"read": verbs["read"]}  # Lance tries for five seconds
    for call in verbs.values():
        call()  # imports what it needs
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
said = {}
for verb, call in verbs.items():
    try:
        said[verb] = ["result", repr(call())]
    except OmnigraphError as error:
        said[verb] = [type(error).__name__, str(error)]
if case == "files":
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
print(json.dumps(said))
"""


def said_by(case: str, root: Path, beside: Path) -> dict[str, tuple[str, str]]:
    finished = run_code(PROGRAM, str(root), str(beside), case)
    assert finished.returncode == 0, finished.stderr
    return {verb: (kind, text) for verb, (kind, text) in json.loads(finished.stdout).items()}


def refusals(said: dict[str, tuple[str, str]], *results: str) -> list[str]:
    """What was said by all verbs but those that have a result."""
    assert {verb for verb, (kind, _) in said.items() if kind == "result"} == set(results), said
    kinds = {kind for kind, _ in said.values()} - {"result"}
    assert kinds == {"StorageUnavailableError"}, said
    return [text for kind, text in said.values() if kind != "result"]


def people(root: Path) -> int:
    return int(og.open(str(root), read_only=True).scan("Person").read_all().num_rows)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mounted)],
        check=False,
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("needs the right to mount")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


def test_a_full_disk_is_called_full_and_space_is_asked_for(place: Path) -> None:
    root = place / "g"
    small_graph(str(root))

    refused = refusals(said_by("full", root, place), "open", "read")

    assert all("the disk is full" in text for text in refused), refused
    assert all("nothing was written" in text for text in refused)
    assert all("Free space on that disk (`df -h " in text for text in refused)
    (place / "filler").unlink()
    assert people(root) == 3
    og.open(str(root)).write({"Person": [{"name": "eve"}]})
    assert people(root) == 4


FILL: Final = """
import os, sys
import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError
root, beside, rows = sys.argv[1:]
graph = og.init(root, schema="node A { k: String @key  t: String? }")
try:
    while True:
        texts = [{"k": str(n), "t": os.urandom(20).hex()} for n in range(int(rows))]
        graph.write({"A": texts}, mode="merge")
except OmnigraphError as error:
    print(error)
filler = os.open(beside + "/filler", os.O_CREAT | os.O_WRONLY)
try:
    while os.write(filler, bytes(512)):
        pass
except OSError:
    pass
"""


@pytest.mark.parametrize("rows", for_gate([50, 200, 700, 1500], lambda rows: rows == 200))
@pytest.mark.parametrize("settles", for_gate([False, True], lambda settles: not settles))
def test_a_full_disk_is_freed_by_the_commands_of_the_page(
    place: Path, rows: int, settles: bool
) -> None:
    root = str(place / "g")
    filled = run_code(FILL, root, str(place), str(rows))
    assert filled.returncode == 0, filled.stderr
    assert "the disk is full" in filled.stdout

    if settles:
        settled = run_command("recovery", "run", root)
        assert settled.returncode == 0, settled.stderr
    freed = run_command("cleanup", root, "--keep", "3", "--confirm")

    assert freed.returncode == 0, freed.stderr
    graph = og.open(root)
    assert graph.count("A") == rows
    graph.write({"A": [{"k": "again"}]})
    assert graph.maintenance.check().ok


def test_a_disk_mounted_for_reading_is_called_so(place: Path) -> None:
    root = place / "g"
    small_graph(str(root))
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)

    refused = refusals(said_by("read-only", root, place), "read")

    assert all("mounted for reading only" in text for text in refused), refused
    assert all("Mount it for writing" in text for text in refused)


def test_missing_permissions_are_called_so(tmp_path: Path) -> None:
    root, beside = tmp_path / "g", tmp_path / "beside"
    beside.mkdir()
    small_graph(str(root))
    subprocess.run(["chmod", "-R", "a-w", str(root), str(beside)], check=True)

    refused = refusals(said_by("permissions", root, beside), "read")

    subprocess.run(["chmod", "-R", "u+w", str(root), str(beside)], check=True)
    assert all("this user lacks permission" in text for text in refused), refused
    assert all("Run it as a user with permission (`ls -ld " in text for text in refused)


def test_too_many_open_files_are_called_so_and_are_no_damage(tmp_path: Path) -> None:
    root = tmp_path / "g"
    small_graph(str(root))

    refused = refusals(said_by("files", root, tmp_path))

    assert all("too many files are open" in text for text in refused), refused
    assert all("Raise the limit of open files (`ulimit -n 4096`" in text for text in refused)
    assert people(root) == 3


LONG: Final = {"a name": "x" * 300, "a path": "x/" * 2500}


@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
def test_a_path_that_is_too_long_is_refused_before_it_is_looked_for(
    tmp_path: Path, long: str
) -> None:
    graph = small_graph(str(tmp_path / "g"))
    path = f"{tmp_path}/{long}"
    calls: dict[str, Callable[[], object]] = {
        "init": lambda: og.init(path, schema=SCHEMA),
        "open": lambda: og.open(path),
        "load": lambda: graph.load(f"{path}.jsonl"),
        "export": lambda: graph.export(f"{path}.jsonl"),
        "diff": lambda: graph.diff("main").to_parquet(path),
        "queries": lambda: graph.queries(path),
        "query": lambda: graph.query(Path(f"{path}.gq")),
        "mutate": lambda: graph.mutate(Path(f"{path}.gq")),
    }
    for name, call in calls.items():
        with pytest.raises(OmnigraphError) as refused:
            call()
        assert refused.value.exit_code == 5, name
        assert "Choose a shorter path" in str(refused.value)
        assert "nothing was written" in str(refused.value)


@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
def test_a_command_with_a_path_that_is_too_long_says_so(tmp_path: Path, long: str) -> None:
    root = str(tmp_path / "g")
    small_graph(root)
    path = f"{tmp_path}/{long}"

    for arguments in (
        ("load", root, f"{path}.jsonl"),
        ("export", root, "-o", f"{path}.jsonl"),
        ("status", path),
        ("query", root, f"{path}.gq"),
        ("schema", "plan", root, f"{path}.pg"),
    ):
        done = run_command(*arguments)
        assert done.returncode == 5, (arguments[0], done.stderr[-300:])
        assert "Traceback" not in done.stderr


NAMELESS: Final = """
import os, sys
for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
    os.environ.pop(name, None)
import omnigraph_lake as og
os.umask(0)
og.open(sys.argv[1]).write({"Person": [{"name": "eva"}]}, actor="eva")
os.setuid(54321)  # not before: the interpreter may be where only its owner reads modules
graph = og.open(sys.argv[1])
graph.write({"Person": [{"name": "eve"}]})
print(graph.commits()[0].actor)
"""


def test_a_user_without_a_name_may_write() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs the right to become another user")
    with TemporaryDirectory() as place:  # pytest keeps others out of its own
        root = Path(place) / "g"
        small_graph(str(root))
        subprocess.run(["chmod", "-R", "a+rwX", place], check=True)

        finished = run_code(NAMELESS, str(root))

    assert finished.stdout == "uid:54321\n", finished.stderr
