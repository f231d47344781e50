"""Earlier releases, in processes of their own, beside a graph that was upgraded."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import omnigraph
from omnigraph import names
from omnigraph.errors import DamagedGraphError
from tests.adversary.verbs import COMMANDS, Desk, arguments_of, command_of, lay_out
from tests.forking.programs import run_code
from tests.maintenance import earlier_handles, open_handles
from tests.maintenance.earlier_handles import ANSWERED
from tests.maintenance.released import Release, from_source, from_wheel, require_commit
from tests.stores import files_of

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("compares files byte by byte")]

FIRST = "7dd56a2"
RELEASES = {FIRST: 5, "3e35cf1": 7, "0a2c613": 8}
"""Commits of earlier releases, and the format that each writes."""
REFUSALS = frozenset({"DamagedGraphError", "FormatTooNewError", "RecoveryRequiredError"})
"""The last one is about a sidecar that the release cannot read."""
HANDLES: Final[Mapping[str, ModuleType]] = {"0a2c613": open_handles}
"""What calls the verbs of releases that have the names of this one."""
NOTHING_TO_DO = frozenset({"recover", "maintenance.recover"})
"""What looks for sidecars first, and reads nothing else if there are none."""


@pytest.mark.nightly("earlier releases; the gate has this one's handles beside the next format")
@pytest.mark.parametrize("commit", RELEASES)
def test_handles_of_an_earlier_release_are_refused_and_write_nothing(
    tmp_path: Path, commit: str
) -> None:
    require_commit(commit)
    release = from_source(commit, tmp_path)
    verbs = HANDLES.get(commit, earlier_handles)
    root = tmp_path / "g"

    with _handles(release, tmp_path, root, verbs) as endings_of_verbs:
        assert _stamp(root) == RELEASES[commit]
        omnigraph.open(str(root))
        before = _contents(root)
        endings = endings_of_verbs()

    assert _answered(endings, verbs) <= NOTHING_TO_DO, endings
    _require_sound(root, before)


@pytest.mark.nightly("builds and installs a wheel; the gate has the handles of this release")
@pytest.mark.parametrize("dying", [False, True], ids=["at rest", "with a write that died"])
def test_the_wheel_of_an_earlier_release_is_refused_and_writes_nothing(
    tmp_path: Path, dying: bool
) -> None:
    require_commit(FIRST)
    release = from_wheel(FIRST)
    root = tmp_path / "g"

    with _handles(release, tmp_path, root) as endings_of_verbs:
        assert _stamp(root) == RELEASES[FIRST]
        omnigraph.open(str(root))
        if dying:
            _die_while_writing(root)
        before = _contents(root)
        endings = endings_of_verbs()

    assert _verbs(release, tmp_path) <= {verb.partition(" ")[0] for verb in endings} | ANSWERED
    answered = _answered(endings)
    assert answered <= (frozenset() if dying else NOTHING_TO_DO), {
        verb: endings[verb] for verb in answered
    }
    _require_sound(root, before)


_MARKERS: Final = tuple(map(names.format_marker, range(names.STAMP_OF_MARKERS, names.STAMP + 1)))
_EARLIER: Final = {("recovery run", "--force"): "--also-living"}
"""Words of commands that were renamed since."""


@pytest.mark.nightly("builds and installs a wheel; the gate has the commands of this release")
def test_no_command_of_an_earlier_release_opens_an_upgraded_graph(tmp_path: Path) -> None:
    require_commit(FIRST)
    release = from_wheel(FIRST)
    root = tmp_path / "g"
    _build(release, tmp_path, root)
    omnigraph.open(str(root))
    _die_while_writing(root)
    desk = Desk(root=str(root), folder=tmp_path / "desk")
    lay_out(desk.folder)
    before = _contents(root)

    commands = _commands(release, tmp_path)
    script = str(release.python.with_name("omnigraph"))
    entries = [entry for entry in COMMANDS if command_of(entry) in commands]
    refused: set[tuple[str, ...]] = set()
    for entry in entries:
        arguments = [_EARLIER.get((entry, word), word) for word in arguments_of(entry, desk)]
        ended = release.run(script, *arguments, folder=tmp_path)
        assert "Traceback" not in ended.stderr, (entry, ended.stderr)
        if any(marker in ended.stderr for marker in _MARKERS):
            assert ended.returncode == DamagedGraphError.exit_code, (entry, ended.stderr)
            refused.add(command_of(entry))
        else:
            usage = ended.returncode == 2
            assert usage or entry in ("fmt", "init"), (entry, ended)
    opened = release.run("-c", OPENING, str(root), folder=tmp_path)

    # They decode the rows of a manifest before they look at its stamp.
    assert refused == commands - {("fmt",), ("init",)}
    assert opened.stdout.split() == ["DamagedGraphError"] * 2 + ["AlreadyInitialisedError"] * 2
    _require_sound(root, before)


HANDLES_FILE: Final = "handles.py"
OPENING = """
import sys, omnigraph
from omnigraph.errors import OmnigraphError
schema = "node Person { name: String @key }"
for act in (
    lambda root: omnigraph.open(root),
    lambda root: omnigraph.open(root, mode="r"),
    lambda root: omnigraph.init(root, schema=schema),
    lambda root: omnigraph.init(root, schema=schema, force=True),
):
    try:
        print(act(sys.argv[1]))
    except OmnigraphError as error:
        print(type(error).__name__)
"""
WRITING = """
import sys, omnigraph
omnigraph.open(sys.argv[1]).write({"Person": [{"name": "died"}]})
"""
VERBS = "from omnigraph.graph import Graph; print(*(v for v in dir(Graph) if v[0] != '_'))"
LEAVES = """
import typer
from omnigraph.cli.main import app

def show(command, words):
    for name, below in getattr(command, "commands", {}).items():
        show(below, (*words, name))
    if not getattr(command, "commands", {}):
        print(*words)

show(typer.main.get_command(app), ())
"""


@contextmanager
def _handles(
    release: Release, folder: Path, root: Path, verbs: ModuleType = earlier_handles
) -> Iterator[Callable[[], Mapping[str, str]]]:
    """A graph of a release and a process that has it open; gives what calls every verb there."""
    _build(release, folder, root, verbs)
    with release.start(
        HANDLES_FILE, str(root), str(folder / "rows.jsonl"), folder=folder
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"

        def endings() -> Mapping[str, str]:
            said, _ = holder.communicate("go on\n", timeout=300)
            return dict(json.loads(line) for line in said.splitlines())

        try:
            yield endings
        finally:
            holder.kill()


def _build(release: Release, folder: Path, root: Path, verbs: ModuleType = earlier_handles) -> None:
    assert verbs.__file__ is not None
    shutil.copy(verbs.__file__, folder / HANDLES_FILE)
    build = "import sys, handles; handles.build(sys.argv[1])"
    ended = release.run("-c", build, str(root), folder=folder)
    assert ended.returncode == 0, ended.stderr


def _die_while_writing(root: Path) -> None:
    """Leave a sidecar of today's release, and a table whose newest version nobody published."""
    kill = {"OMNIGRAPH_FAILPOINTS": "publish.pre_manifest=kill"}
    ended = run_code(WRITING, str(root), env=kill, new_process=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert any((root / names.RECOVERY_DIR).iterdir())


def _answered(endings: Mapping[str, str], verbs: ModuleType = earlier_handles) -> set[str]:
    assert endings.keys() == {*verbs.WRITES, *verbs.READS}
    return {verb for verb, ending in endings.items() if ending not in (*REFUSALS, "absent")}


def _verbs(release: Release, folder: Path) -> set[str]:
    return set(release.run("-c", VERBS, folder=folder).stdout.split())


def _commands(release: Release, folder: Path) -> set[tuple[str, ...]]:
    listed = release.run("-c", LEAVES, folder=folder).stdout.splitlines()
    return {tuple(line.split()) for line in listed}


def _require_sound(root: Path, before: Mapping[Path, bytes]) -> None:
    """Not a byte was changed, removed or added, and the graph goes on."""
    assert _contents(root) == before
    assert _stamp(root) == names.STAMP
    graph = omnigraph.open(str(root))
    graph.write({"Person": [{"name": "eve"}]})
    assert graph.at(earlier_handles.EARLY).scan("Person").read_all().num_rows == 2
    assert graph.maintenance.check(deep=True).ok


def _contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in files_of(str(root))}


def _stamp(root: Path) -> int:
    return omnigraph.open(str(root), read_only=True).maintenance.status().format_stamp
