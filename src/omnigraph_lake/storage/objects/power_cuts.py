"""What a power cut leaves on a local disk: torn files, and versions that name lost ones.

A file that was not synced may be gone, empty or cut short, while its name is there. Lance gives a
version its name before it can be synced, so a torn newest version is always possible. A program
that lives never shows one: a name is given to a file that is written.

Invariant: a file is set aside, never deleted, while a lock is held that everybody takes who sets
aside, and only after it was looked at under the lock. It happens once per start of the machine,
when a graph is first opened for writing; readers step back over torn versions and write nothing.
A version that a rebuild of the manifest found damaged is not taken for torn, whatever it looks.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.storage.objects.containment import (
    require_inside,
    require_line_inside,
    require_tree_inside,
)
from omnigraph_lake.storage.objects.durability import boot_id, sync
from omnigraph_lake.storage.objects.failures import unavailable
from omnigraph_lake.storage.objects.location import Root, Scheme, stored_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance import LanceDataset


_MAGIC: Final = b"LANC"
_VERSION_SUFFIX: Final = ".manifest"
_SMALL_SUFFIXES: Final = (".json", ".pg")
_NOT_WALKED: Final = frozenset({"data", "_indices", "_deletions", "_transactions"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Files that a power cut tore, and manifest versions whose tables it took."""

    files: tuple[str, ...] = ()
    where: str = ""


def set_aside_torn_files(root: Root, is_whole: Callable[[Root, str | None, int], bool]) -> SetAside:
    """Make a graph writable again that was open when the power went.

    Args:
        root: The graph.
        is_whole: Whether a version of the manifest, on a Lance branch of it, was not torn and names
            nothing that is lost.
    """
    if root.scheme is not Scheme.LOCAL or not Path(root.child(names.MANIFEST)).is_dir():
        return SetAside()
    require_tree_inside(root, names.BOOTS_DIR)
    marker = _marker(root)
    if _is_marked(marker):
        return SetAside()
    require_tree_inside(root, names.QUARANTINE_DIR)
    try:
        with _locked(root):
            return SetAside() if _is_marked(marker) else _settle(root, marker, is_whole)
    except OSError as error:
        raise unavailable(root, "set aside what a power cut tore", error) from error


def mark_boot(root: Root) -> None:
    """Say that a graph that was just made has no torn files."""
    if root.scheme is Scheme.LOCAL and boot_id():
        require_inside(root, names.boot_marker(boot_id()))
        marker = Path(root.child(names.boot_marker(boot_id())))
        marker.parent.mkdir(exist_ok=True)
        marker.touch()


def _marker(root: Root) -> Path:
    return Path(root.child(names.boot_marker(boot_id() or "unknown")))


def _is_marked(marker: Path) -> bool:
    """Whether the graph was checked since the last boot, where that is known."""
    return bool(boot_id()) and marker.exists()


def _settle(
    root: Root, marker: Path, is_whole: Callable[[Root, str | None, int], bool]
) -> SetAside:
    where = f"{names.QUARANTINE_DIR}/power-cut-{boot_id()}"
    damaged = _found_damaged(root)
    kept = {version_file(root, names.MANIFEST, None, version) for version in damaged}
    moved = [_move(root, path, where) for path in _torn_files(Path(root.uri)) if path not in kept]
    for fork in (None, *_forks(Path(root.child(names.MANIFEST)))):
        for version in _versions(root, names.MANIFEST, fork):
            if (fork is None and version in damaged) or is_whole(root, fork, version):
                break
            path = version_file(root, names.MANIFEST, fork, version)
            moved.append(_move(root, path, where))
    for earlier in marker.parent.iterdir():
        if earlier.name != names.BOOT_LOCK:
            earlier.unlink()
    sync(root)
    marker.touch()
    return SetAside(files=tuple(moved), where=where if moved else "")


def newest_whole_version(
    root: Root, fork: str | None, is_whole: Callable[[Root, str | None, int], bool]
) -> int | None:
    """The newest version of the manifest that no power cut tore; None if there is none.

    One that a rebuild found damaged is such a version, too: reading it reports the damage.

    Once the graph was looked at since the machine was started, nothing torn by a power cut is left:
    what cannot be read is damaged in another way, and readers do not step back over it.
    """
    if root.scheme is not Scheme.LOCAL or _is_marked(_marker(root)):
        return None
    try:
        damaged = _found_damaged(root) if fork is None else frozenset()
        versions = _versions(root, names.MANIFEST, fork)
        believed = (
            version for version in versions if version in damaged or is_whole(root, fork, version)
        )
        return next(believed, None)
    except OSError as error:
        raise unavailable(root, f"read {names.MANIFEST}", error) from error


def _found_damaged(root: Root) -> frozenset[int]:
    """The versions of main's manifest that were damaged when a rebuild began."""
    require_tree_inside(root, names.REBUILDS_DIR)
    damaged: set[int] = set()
    for path in Path(root.child(names.REBUILDS_DIR)).glob("*.json"):
        # An entry that cannot be read was torn itself: nothing was done after it.
        with suppress(ValueError, TypeError, AttributeError):
            damaged.update(json.loads(path.read_bytes()).get("damaged", ()))
    return frozenset(damaged)


def is_torn(path: Path) -> bool:
    """Whether a file is not what a living program would have given this name."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if path.name.endswith((_VERSION_SUFFIX, ".lance")):
                file.seek(max(0, size - len(_MAGIC)))
                return file.read() != _MAGIC
            return not file.read(64).strip(b"\0")
    except FileNotFoundError:
        return True


def lost_files(root: Root, location: str, dataset: LanceDataset) -> Iterator[str]:
    """The files that a version names and that are not there, or not whole.

    A fork names files of what it was forked from, in whose folder they stay.
    """
    require_tree_inside(root, location)
    main = Path(root.child(location))
    forks = (Path(names.fork_location(str(main), fork)) for fork in _forks(main))
    folders = [Path(dataset.uri), main, *forks]
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        for file in metadata.files:
            path = stored_path(f"data/{file.path}", said_by=dataset.uri)
            if not _is_there(folders, path, file.file_size_bytes):
                yield path
        if metadata.deletion_file is not None:
            path = metadata.deletion_file.path(metadata.id)
            if not _is_there(folders, path, None):
                yield path
    for index in dataset.describe_indices():
        for segment in index.segments:
            folder = f"_indices/{segment.uuid}"
            if not _has_whole_files(folders, folder):
                yield folder


def version_file(root: Root, location: str, fork: str | None, version: int) -> Path:
    place = names.fork_location(location, fork) if fork else location
    require_line_inside(root, place)
    return Path(root.child(f"{place}/{names.lance_version(version)}"))


def _is_there(folders: list[Path], relative: str, size: int | None) -> bool:
    for folder in folders:
        path = folder / relative
        if path.exists():
            stored_size = path.stat().st_size
            return stored_size > 0 and (size is None or stored_size == size) and not is_torn(path)
    return False


def _has_whole_files(folders: list[Path], relative: str) -> bool:
    for folder in folders:
        if (folder / relative).is_dir():
            files = [path for path in (folder / relative).iterdir() if path.is_file()]
            return bool(files) and not any(is_torn(path) for path in files)
    return False


def _versions(root: Root, location: str, fork: str | None) -> list[int]:
    """The numbers of all versions, newest first."""
    folder = version_file(root, location, fork, 0).parent
    stems = (path.stem for path in folder.glob(f"*{_VERSION_SUFFIX}"))
    counted = (names.LANCE_VERSION_MOST - int(stem) for stem in stems if stem.isdecimal())
    return sorted(counted, reverse=True)


def _forks(dataset: Path) -> list[str]:
    folder = Path(names.forks_folder(str(dataset)))
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _torn_files(root: Path) -> Iterator[Path]:
    """Versions, logs, sidecars and schemas; what they name is found by reading them."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_WALKED]
        if Path(folder) == root:
            own = (names.QUARANTINE_DIR, names.STAGING_DIR, names.BOOTS_DIR, names.DERIVED_DIR)
            folders[:] = [name for name in folders if name not in own]
        for name in files:
            path = Path(folder, name)
            is_looked_at = name.endswith((_VERSION_SUFFIX, *_SMALL_SUFFIXES))
            if is_looked_at and not path.is_symlink() and is_torn(path):
                yield path


def _move(root: Root, path: Path, where: str) -> str:
    relative = str(path.relative_to(root.uri))
    target = Path(root.child(where), relative)
    target.parent.mkdir(parents=True, exist_ok=True)
    number = 0
    while target.exists():
        number += 1
        target = target.with_name(f"{path.name}.{number}")
    path.rename(target)
    return relative


@contextmanager
def _locked(root: Root) -> Iterator[None]:
    path = Path(root.child(names.boot_marker(names.BOOT_LOCK)))
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
