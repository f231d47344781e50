"""Checks the environment of Omnigraph: Python, libraries, Java, Spark, memory, disk, a store.

Invariants:
- A check never raises: what it finds is ok, a warning or a failure, and all but ok have a fix.
- A failure keeps Omnigraph from working here; a warning keeps a part of it, or is a risk.
- The probe of a store writes one small object and deletes it; it changes nothing of a graph.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from omnigraph_lake import names
from omnigraph_lake.creation.initialise import existing_graph
from omnigraph_lake.display.cells import counted, file_size
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import NotFoundError, OmnigraphError, UnsafeStoreError
from omnigraph_lake.maintenance.legacy_upgrade import PROGRAMS, foresee
from omnigraph_lake.runner.memory import half_of_this_machine
from omnigraph_lake.runner.session import find_java
from omnigraph_lake.storage.objects.location import Root, Scheme, parse_root
from omnigraph_lake.storage.objects.processes import use_storage
from omnigraph_lake.storage.objects.store import Put, StoredObjects, remove_empty_folder
from omnigraph_lake.storage.objects.temporary_folders import leftover_folders

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.manifest.state import ManifestState

DISTRIBUTION: Final = "omnigraph-lake"
_PYTHON_MIN: Final = (3, 11)
_LIBRARIES: Final = ("pyarrow", "pylance", "duckdb", "obstore", "numpy")
_SPARK_VERSIONS: Final = ((3, 5), (4, 4))
"""The first version that works, and the first that is not tested."""
_JAVA_MIN: Final = 17
_MEMORY_MIN: Final = 2 << 30
_DISK_MIN: Final = 1 << 30
_ANSWER_SECONDS: Final = 20
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_MOUNTS: Final = Path("/proc/mounts")
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(?P<major>\d+)')


class Level(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; `fix` says what to do unless it is ok."""

    name: str
    level: Level
    finding: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Displayed):
    """All checks, in a fixed order."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; there may be warnings."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.level is Level.FAIL)

    def _page(self) -> Page:
        rows = [(check.level.value, check.name, check.finding) for check in self.checks]
        warnings = sum(check.level is Level.WARN for check in self.checks)
        summary = f"{counted(len(self.failures), 'failure')}, {counted(warnings, 'warning')}"
        fixes = [
            f"{check.level.value}  {check.name}: {check.finding}\n      {check.fix}"
            for check in self.checks
            if check.level is not Level.OK
        ]
        table = TableView(header=("state", "check", "found"), rows=rows, whole=(0, 1))
        return Page(summary=summary, tables=[table], lines=[*fixes, summary])


def examine(root: str | None, clock: Clock) -> Diagnosis:
    """Check this process and machine, and the store of a root if one is given."""
    checks = [
        _python(),
        _platform(),
        *_libraries(),
        _java(),
        _spark(),
        _memory(),
        _cores(),
        _disk("temporary files", Path(tempfile.gettempdir())),
        _leftover(),
    ]
    if root is not None:
        checks += _store(root, clock)
    return Diagnosis(checks=tuple(checks))


def _python() -> Check:
    finding = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= _PYTHON_MIN:
        return Check(name="python", level=Level.OK, finding=finding)
    return Check(
        name="python", level=Level.FAIL, finding=finding, fix="Install Python 3.11 or newer."
    )


def _platform() -> Check:
    finding = f"{platform.system()} {platform.machine()}"
    if platform.system() == "Linux":
        return Check(name="platform", level=Level.OK, finding=finding)
    return Check(
        name="platform",
        level=Level.WARN,
        finding=finding,
        fix="Omnigraph is tested on Linux only: use a container or a virtual machine for "
        "production.",
    )


def _libraries() -> Iterator[Check]:
    ranges = _version_ranges()
    for name in _LIBRARIES:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Check(
                name=name,
                level=Level.FAIL,
                finding="not installed",
                fix=f"Run `pip install --force-reinstall {DISTRIBUTION}`.",
            )
            continue
        wanted = ranges.get(name, SpecifierSet())
        if wanted.contains(version, prereleases=True):
            yield Check(name=name, level=Level.OK, finding=version)
        else:
            yield Check(
                name=name,
                level=Level.FAIL,
                finding=f"{version}, expected {wanted}",
                fix=f"Run `pip install '{name}{wanted}'`.",
            )


def _version_ranges() -> Mapping[str, SpecifierSet]:
    """The versions that the installed package asks for; none if it runs from its source."""
    try:
        requirements = map(Requirement, metadata.requires(DISTRIBUTION) or ())
    except metadata.PackageNotFoundError:
        return {}
    return {
        requirement.name: requirement.specifier
        for requirement in requirements
        if requirement.marker is None
    }


def _java() -> Check:
    java = find_java()
    fix = f"Install Java {_JAVA_MIN} or newer, or set JAVA_HOME; only Spark needs it."
    if java is None:
        return Check(name="java", level=Level.WARN, finding="not found", fix=fix)
    try:
        said = subprocess.run(  # noqa: S603 - the Java that Spark would start
            [java, "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name="java", level=Level.WARN, finding=f"{java}: {error}", fix=fix)
    version = _JAVA_VERSION.search(said.stderr + said.stdout)
    if version is None:
        return Check(name="java", level=Level.WARN, finding=f"{java} has no version", fix=fix)
    finding = f"{version['major']} ({java})"
    if int(version["major"]) < _JAVA_MIN:
        return Check(name="java", level=Level.WARN, finding=finding, fix=fix)
    return Check(name="java", level=Level.OK, finding=finding)


def _spark() -> Check:
    fix = (
        "Run `pip install 'omnigraph-lake[spark]'`; loads and queries run in this process "
        "without it."
    )
    try:
        importlib.import_module("pyspark")
        version = metadata.version("pyspark")
    except (ImportError, metadata.PackageNotFoundError) as error:
        return Check(name="spark", level=Level.WARN, finding=f"not importable: {error}", fix=fix)
    first, beyond = _SPARK_VERSIONS
    if first <= Version(version).release[:2] < beyond:
        return Check(name="spark", level=Level.OK, finding=version)
    return Check(
        name="spark",
        level=Level.WARN,
        finding=f"{version} is not tested",
        fix="Use Spark 3.5 to 4.3.",
    )


def _memory() -> Check:
    total = half_of_this_machine() * 2
    finding = f"{file_size(total)} of this machine or container"
    if total >= _MEMORY_MIN:
        return Check(name="memory", level=Level.OK, finding=finding)
    return Check(
        name="memory",
        level=Level.WARN,
        finding=finding,
        fix=f"Give it {file_size(_MEMORY_MIN)} or more, or run on Spark.",
    )


def _cores() -> Check:
    return Check(name="cores", level=Level.OK, finding=str(os.cpu_count() or 1))


def _disk(name: str, folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(
            name=name,
            level=Level.FAIL,
            finding=f"{folder}: {error.strerror}",
            fix="Set TMPDIR to a directory that exists.",
        )
    finding = f"{file_size(free)} free in {folder}"
    if free < _DISK_MIN:
        fix = f"Free {file_size(_DISK_MIN)} or more."
        return Check(name=name, level=Level.WARN, finding=finding, fix=fix)
    if _filesystem(folder) in _IN_MEMORY:
        return Check(
            name=name,
            level=Level.WARN,
            finding=f"{finding}, which is kept in memory",
            fix="Set TMPDIR to a directory on a disk: loads keep their rows there.",
        )
    return Check(name=name, level=Level.OK, finding=finding)


def _leftover() -> Check:
    sizes = [_size(folder) for folder in leftover_folders()]
    if not sizes:
        return Check(name="leftover files", level=Level.OK, finding="none")
    folders = counted(len(sizes), "folder")
    return Check(
        name="leftover files",
        level=Level.WARN,
        finding=f"{file_size(sum(sizes))} in {folders} of killed processes in "
        f"{tempfile.gettempdir()}",
        fix="The next process of this user that writes temporary files there removes them.",
    )


def _size(folder: Path) -> int:
    """The bytes of all files; links are not followed."""
    size = 0
    for at, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                size += Path(at, name).lstat().st_size
    return size


def _filesystem(folder: Path) -> str:
    """The kind of file system that a folder is on, empty where the system does not say."""
    try:
        mounts = [line.split()[1:3] for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return ""
    place = folder.resolve()
    within = [(len(at), kind) for at, kind in mounts if place.is_relative_to(at)]
    return max(within)[1] if within else ""


def _store(root: str, clock: Clock) -> Iterable[Check]:
    use_storage()
    try:
        location = parse_root(root)
    except OmnigraphError as error:
        return [_failure("store", error)]
    if location.scheme is not Scheme.LOCAL:
        return [_probe(location, clock), *_graph(location)]
    folder = _existing(Path(location.uri))
    if not folder.is_dir():
        return [
            Check(
                name="store",
                level=Level.FAIL,
                finding=f"{folder} is a file, expected a directory",
                fix="Give the directory of a graph, or one that does not exist yet.",
            )
        ]
    checks = [_disk("disk", folder), _probe(replace(location, uri=str(folder)), clock)]
    return [*checks, *_graph(location)]


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def _failure(name: str, error: OmnigraphError) -> Check:
    return Check(
        name=name,
        level=Level.FAIL,
        finding=error.what,
        fix=error.next_step or "Check the address, the permissions and the credentials.",
    )


def _probe(location: Root, clock: Clock) -> Check:
    """Create an object, create it again, read, list and delete it."""
    path = f"{names.PROBES_DIR}/{clock.new_id()}"
    began = clock.now()
    try:
        objects = StoredObjects(location)
    except OmnigraphError as error:
        return _failure("store", error)
    # What happened first explains what follows; the object is deleted in any case.
    failures = [_try(step, objects, path) for step in (_write_and_read, _delete)]
    failure = next(filter(None, failures), None)
    if failure is not None:
        return failure
    milliseconds = (clock.now() - began).total_seconds() * 1000
    done = "create, create if absent, read, list and delete"
    return Check(
        name="store", level=Level.OK, finding=f"{location}: {done} in {milliseconds:,.0f} ms"
    )


def _try(
    step: Callable[[StoredObjects, str], str], objects: StoredObjects, path: str
) -> Check | None:
    try:
        fault = step(objects, path)
    except OmnigraphError as error:
        return _failure("store", error)
    if not fault:
        return None
    return Check(
        name="store",
        level=Level.FAIL,
        finding=f"{objects.root}: {fault}",
        fix=UnsafeStoreError(objects.root.uri).next_step,
    )


def _write_and_read(objects: StoredObjects, path: str) -> str:
    """What the store does wrong with a new object, empty if nothing."""
    content = path.encode()
    if objects.put_if_absent(path, content) is not Put.CREATED:
        return "it refused to create an object that does not exist"
    if objects.put_if_absent(path, b"second") is not Put.EXISTED:
        return "it ignores put-if-absent, so that two writers could overwrite each other"
    if objects.read(path) != content:
        return "an object that was just written is not read as it was written"
    if path not in objects.list(names.PROBES_DIR):
        return "an object that was just written is not listed"
    return ""


def _delete(objects: StoredObjects, path: str) -> str:
    """What the store does wrong with an object that is deleted, empty if nothing."""
    objects.delete(path)
    remove_empty_folder(objects.root, names.PROBES_DIR)
    return "" if objects.read(path) is None else "an object that was deleted is still read"


def _graph(location: Root) -> Iterator[Check]:
    try:
        state = existing_graph(location)
    except NotFoundError:
        finding = "none yet; `omnigraph init` creates it"
        yield Check(name="graph", level=Level.OK, finding=finding)
        return
    except OmnigraphError as error:
        yield _failure("graph", error)
        return
    tables = counted(len(state.snapshot().tables), "table")
    writer = PROGRAMS.get(state.stamp)
    by = "" if writer is None else f", written by {writer}"
    yield Check(name="graph", level=Level.OK, finding=f"{tables}, format {state.stamp}{by}")
    if writer is not None:
        yield _upgrade(location, state, writer)


def _upgrade(location: Root, state: ManifestState, writer: str) -> Check:
    """What opening a graph of an earlier program for writing changes, and what it does not keep."""
    try:
        foreseen = foresee(StoredObjects(location), state)
    except OmnigraphError as error:
        return replace(_failure("upgrade", error), level=Level.WARN)
    changes = [f"the first opening for writing makes it format {names.STAMP}"]
    if foreseen.rewritten:
        changes.append(f"rewrites {', '.join(foreseen.rewritten)}")
    if foreseen.cleaning:
        changes.append(f"ends Lance's automatic cleanup of {', '.join(foreseen.cleaning)}")
    if foreseen.unfinished:
        changes.append(f"settles {counted(foreseen.unfinished, 'unfinished write')}")
    if foreseen.runs:
        runs = ", ".join(foreseen.runs)
        changes.append(f"drops {runs} with all rows that were not published from there")
    return Check(
        name="upgrade",
        level=Level.WARN,
        finding=", ".join(changes),
        fix=f"Stop every writer of {writer} first: that program refuses the graph afterwards.",
    )
