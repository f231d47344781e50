"""Processes that rebuild a manifest on a disk whose power is cut, and that look at what is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import omnigraph_lake
import omnigraph_lake.maintenance.rebuild.rebuild  # every process finds it loaded
from omnigraph_lake.errors import ConflictError, DamagedGraphError
from tests.power.boots import pretend_boot


def rebuild(root: str, boot: str) -> None:
    pretend_boot(Path(boot).name, Path(boot))
    omnigraph_lake.rebuild_manifest(root, dry_run=False)


def look(root: str, boot: str) -> None:
    """Print the names that readers and writers see, None for damage; rebuild, and look again."""
    pretend_boot(Path(boot).name, Path(boot))
    before = [_names(root, read_only=read_only) for read_only in (True, False)]
    with suppress(ConflictError):  # it is whole
        omnigraph_lake.rebuild_manifest(root, dry_run=False)
    after = _names(root)
    is_sound = omnigraph_lake.open(root).maintenance.check(deep=True).ok
    print(json.dumps({"before": before, "after": after, "sound": is_sound}))


def _names(root: str, *, read_only: bool = False) -> list[str] | None:
    try:
        graph = omnigraph_lake.open(root, read_only=read_only)
    except DamagedGraphError as error:
        if "--rebuild-manifest" not in error.next_step:
            raise
        return None
    return sorted(graph.scan("Person", columns=["name"]).read_all()["name"].to_pylist())


def main(role: str, *arguments: str) -> None:
    roles: dict[str, Callable[..., None]] = {"rebuild": rebuild, "look": look}
    roles[role](*arguments)
