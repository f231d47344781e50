"""The fold: rows of committed operations move from the manifest into the history table.

They are inserted into history first (idempotent by id), then one ordinary publish drops exactly
the rows that were inserted. Rows of failed operations stay until the watermark removes them.
"""

from __future__ import annotations

from typing import Literal

from tests.model.labels import FOLD_READ, StepName
from tests.model.manifest import folder_reader, published, read_manifest
from tests.model.scope import Scope
from tests.model.state import Folder, Put, State, Step, replaced, step


def folder_steps(scope: Scope, state: State, number: int) -> list[Step]:
    """Everything that folder `number` can do next."""
    folder = state.folders[number]
    if folder.phase == "insert":
        return [_insert(scope, state, number)]
    if folder.phase == "drop":
        return [_drop(scope, state, number)]
    return _read(scope, state, number) if folder.runs_left else []


def _order(scope: Scope) -> tuple[Literal["insert", "drop"], Literal["insert", "drop"]]:
    return ("drop", "insert") if scope.mutant == "fold_drop_first" else ("insert", "drop")


def _read(scope: Scope, state: State, number: int) -> list[Step]:
    trusting = scope.mutant == "fold_no_verify"
    reader, actor = folder_reader(scope, number), f"fold{number}"
    view = read_manifest(scope, state, reader, FOLD_READ, actor, trusting=trusting)
    if isinstance(view, Step):
        return [view]
    ops = tuple(op for op, verdict in view.manifest.decisions if verdict == "committed")
    if not ops:
        return []
    following = Folder(_order(scope)[0], state.folders[number].runs_left - 1, ops)
    detail = f"committed rows {ops} of manifest v{view.manifest.version}"
    return [_step(view.state, number, "fold.post_read", detail, following)]


def _insert(scope: Scope, state: State, number: int) -> Step:
    ops = state.folders[number].ops
    history = state.history + tuple(op for op in ops if op not in state.history)
    following = _after(scope, state.folders[number])
    changed = state._replace(history=history)
    return _step(changed, number, "fold.post_history", f"{ops} inserted", following)


def _drop(scope: Scope, state: State, number: int) -> Step:
    """Publish the manifest without the rows that are now in history."""
    ops, manifest = state.folders[number].ops, state.manifest
    drop_all = scope.mutant == "fold_drop_all"
    rows = tuple(
        (op, verdict)
        for op, verdict in manifest.decisions
        if verdict != "committed" or (op not in ops and not drop_all)
    )
    shorter = manifest._replace(version=manifest.version + 1, decisions=rows)
    following = _after(scope, state.folders[number])
    if scope.overwrite_publish:
        sent = state._replace(puts=state.puts | {Put("fold", number, -1, shorter)})
        detail = f"send rows without {ops} for slot v{shorter.version}"
        return _step(sent, number, "fold.pre_drop", detail, following)
    applied = published(scope, state, shorter)
    return _step(applied, number, "fold.post_drop", f"rows {ops} dropped", following)


def _after(scope: Scope, folder: Folder) -> Folder:
    first, second = _order(scope)
    if folder.phase == first:
        return folder._replace(phase=second)
    return Folder("idle", folder.runs_left)


def _step(state: State, number: int, name: StepName, detail: str, folder: Folder) -> Step:
    folders = replaced(state.folders, number, folder)
    return step(name, detail, f"fold{number}", state._replace(folders=folders))
