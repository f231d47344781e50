"""Nothing outside the root: where links and Lance's base paths really lead.

Invariant: nothing is read, written or listed on a local disk before every link on the way to it
was resolved and seen to end below the root; the root itself may be a link. A line of a dataset is
looked at once per process, with all its files, before Lance opens it for the first time.

So a folder of another party is safe to open. Against a user who replaces files between the look and
the use only the permissions of the folder help.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from omnigraph_lake import names
from omnigraph_lake.storage.objects.location import Root, Scheme, outside, require_relative
from omnigraph_lake.storage.objects.lru_cache import LruCache

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph_lake.errors import DamagedGraphError

_LINES_KEPT: Final = 4096
_LINES: Final[LruCache[bool]] = LruCache(_LINES_KEPT)
"""Lines of datasets all of whose files were seen to be below the root."""
_LOCAL_ADDRESS: Final = "file://"


def require_inside(root: Root, path: str) -> None:
    """Refuse a path below the root that leaves it, by its spelling or through a link.

    Raises:
        DamagedGraphError: it leads somewhere else.
    """
    require_relative(root, path)
    if root.scheme is not Scheme.LOCAL:
        return
    place = root.uri
    for segment in path.split("/"):
        place = f"{place}/{segment}"
        try:
            mode = os.lstat(place).st_mode
        except OSError:
            return  # nothing is there, or its use raises an error
        if stat.S_ISLNK(mode):
            _require_target_inside(root, place)
        elif not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise _special(root, place)


def require_tree_inside(root: Root, path: str, *, but: frozenset[str] = frozenset()) -> bool:
    """Refuse a folder with something in it that leads out of the root; whether there is a folder.

    An empty path is the root itself. Folders whose names are in `but` are not entered.
    """
    if path:
        require_inside(root, path)
    if root.scheme is not Scheme.LOCAL or not os.path.isdir(f"{root.uri}/{path}"):  # noqa: PTH112
        return False
    folders = [f"{root.uri}/{path}"]
    followed: set[str] = set()
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    target = _require_target_inside(root, entry.path)
                    if target not in followed:
                        followed.add(target)
                        folders.append(target)
                elif entry.is_dir(follow_symlinks=False):
                    folders += [] if entry.name in but else [entry.path]
                elif not entry.is_file(follow_symlinks=False):
                    raise _special(root, entry.path)
    return True


def require_line_inside(root: Root, place: str) -> None:
    """Refuse one line of a dataset whose folder, or anything in it, leads out of the root.

    Forks are lines of their own. What was looked at once is not looked at again.
    """
    key = (root.uri, place)
    if not _LINES.get(key) and require_tree_inside(root, place, but=_FORKS):
        _LINES.keep(key, value=True)


def require_bases_inside(root: Root, dataset: LanceDataset) -> None:
    """Refuse a version that names files of other datasets by an address outside the root.

    A fork names what it was forked from by its full address, as spelled by its creator.
    """
    for base in dataset.base_paths().values():
        require_line_inside(root, _below(root, dataset.uri, base.path))


def _below(root: Root, said_by: str, address: str) -> str:
    """The path below the root of what an address names."""
    if root.scheme is not Scheme.LOCAL:
        relative = address.removeprefix(f"{root.uri}/")
        if relative == address:
            raise outside(said_by, address, f"it is not below {root}")
        return relative.rstrip("/")
    local = address
    if address.startswith(_LOCAL_ADDRESS):
        local = unquote(address.removeprefix(_LOCAL_ADDRESS))
    relative = os.path.relpath(os.path.realpath(local), os.path.realpath(root.uri))
    if not local.startswith("/") or relative.split("/")[0] in {".", ".."}:
        raise outside(said_by, address, f"it is not below {root}")
    return relative


def _require_target_inside(root: Root, link: str) -> str:
    target = os.path.realpath(link)
    if not target.startswith(os.path.realpath(root.uri) + "/"):
        raise outside(link, target, "it is a link that leads out of it")
    return target


def _special(root: Root, place: str) -> DamagedGraphError:
    return outside(str(root), place, "it is neither a file nor a folder")


_FORKS: Final = frozenset({names.forks_folder("").removeprefix("/")})
