"""Taking objects out of the way without losing them.

Invariant: an object is at its old path, at its new path, or at both; never at neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.storage.objects.containment import require_inside
from omnigraph.storage.objects.durability import sync
from omnigraph.storage.objects.failures import unavailable
from omnigraph.storage.objects.location import Scheme

if TYPE_CHECKING:
    from omnigraph.storage.objects.store import Objects


def move_aside(objects: Objects, paths: Sequence[str], where: str) -> Iterator[str]:
    """Move objects below another path, where nothing is yet; tells each path that it moved.

    They are moved, in this order, as far as this is iterated, and all of it ends with a sync.
    """
    for path in paths:
        _move(objects, path, f"{where}/{path}")
        yield path
    if paths:
        sync(objects.root)


def _move(objects: Objects, path: str, target: str) -> None:
    root = objects.root
    require_inside(root, path)
    require_inside(root, target)
    if root.scheme is Scheme.LOCAL:
        try:
            Path(root.child(target)).parent.mkdir(parents=True, exist_ok=True)
            Path(root.child(path)).rename(root.child(target))
        except FileNotFoundError:
            return  # moved before
        except OSError as error:
            raise unavailable(root, f"move {path} to {target}", error) from error
        return
    content = objects.read(path)
    if content is not None:
        objects.replace(target, content)
        objects.delete(path)
