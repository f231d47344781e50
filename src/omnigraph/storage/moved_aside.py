"""Taking objects out of the way without losing them.

Invariant: an object is at its old path, at its new path, or at both; never at neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.storage.containment import require_inside
from omnigraph.storage.durability import sync
from omnigraph.storage.failures import unavailable
from omnigraph.storage.location import Scheme

if TYPE_CHECKING:
    from omnigraph.storage.objects import Objects


def move_aside(objects: Objects, paths: Iterable[str], where: str) -> tuple[str, ...]:
    """Move objects below another path, where nothing is yet; returns the paths they have there."""
    moved = tuple(_moved(objects, path, f"{where}/{path}") for path in paths)
    sync(objects.root)
    return moved


def _moved(objects: Objects, path: str, target: str) -> str:
    root = objects.root
    require_inside(root, path)
    require_inside(root, target)
    if root.scheme is Scheme.LOCAL:
        try:
            Path(root.child(target)).parent.mkdir(parents=True, exist_ok=True)
            Path(root.child(path)).rename(root.child(target))
        except FileNotFoundError:
            return target  # moved before
        except OSError as error:
            raise unavailable(root, f"move {path} to {target}", error) from error
        return target
    content = objects.read(path)
    if content is not None:
        objects.replace(target, content)
        objects.delete(path)
    return target
