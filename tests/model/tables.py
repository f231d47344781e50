"""Tables as Lance keeps them: how a commit lands, and what can be told from a table's versions.

What the real engine does, and the guards in `tests/guards` hold it to:

- A commit of rows that read version r, arriving at HEAD h, conflicts if a kept version in (r, h]
  is a restore or an overwrite (or, for an update, another commit of rows). Otherwise it is
  *rebased*: the new version h+1 holds the content of h plus the new files, and still names r as
  its read version.
- The conflict check silently skips versions that cleanup has removed.
- Restore(v) always lands: h+1 has the content of v. An overwrite lands only if h is still r.
- A compaction makes two untagged versions, a reservation and a rewrite; an index makes one. All
  keep the content.
- A commit does not look whether its data files still exist.

A strict commit is made of its base alone: it puts base + 1 if that number is free, and looks at no
other version.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from tests.model.scope import Kind, Scope
from tests.model.state import (
    COMPACTED,
    INDEXED,
    MERGED,
    FileName,
    Pins,
    State,
    Version,
    replaced,
)

Versions = tuple[Version, ...]


def version_at(versions: Versions, number: int) -> Version | None:
    for version in versions:
        if version.number == number:
            return version
    return None


def above(versions: Versions, number: int) -> list[Version]:
    return [version for version in versions if version.number > number]


def has_foreign(versions: Versions, pin: int) -> bool:
    """Somebody outside the protocol has written above the pin."""
    return any(version.origin == "foreign" and version.number > pin for version in versions)


@cache
def writers_in(files: frozenset[FileName]) -> frozenset[int]:
    """Whose rows a version shows; compacted files have no rows of their own."""
    return frozenset(writer for file in files for writer in rows_in(file))


def rows_in(file: FileName) -> frozenset[int]:
    """Whose rows a file has."""
    writer, part = file
    if writer >= MERGED:
        return frozenset(bit for bit in range(part.bit_length()) if part >> bit & 1)
    return frozenset({writer} if writer < COMPACTED else ())


class TailMerge(NamedTuple):
    """Files that a commit removes, and the one that it puts in their place."""

    removed: frozenset[FileName]
    file: FileName


def merged_tail(
    scope: Scope, versions: Versions, op: int, attempt: int, pin: int, first_pin: int
) -> TailMerge | None:
    """What a write merges: on its first pin all files that no index knows, on later ones nothing.

    `first_pin` is the pin of the first attempt.
    """
    if not scope.tail_merge or scope.is_maintenance(op):
        return None
    if attempt and scope.mutant not in ("merge_kept", "merge_unread"):
        return None
    read = _tail(scope, versions, first_pin)
    removed = _tail(scope, versions, pin) if scope.mutant == "merge_unread" else read
    bits = sum(1 << writer for writer in writers_in(read))
    return TailMerge(removed, (MERGED + op, bits)) if read else None


def _tail(scope: Scope, versions: Versions, pin: int) -> frozenset[FileName]:
    pinned = version_at(versions, pin)
    files = frozenset[FileName]() if pinned is None else pinned.files
    if scope.mutant == "merge_indexed":
        return files
    return frozenset(file for file in files if file[0] != INDEXED)


def own_file(scope: Scope, writer: int, attempt: int) -> FileName:
    return (writer, 0 if scope.reuse_files else attempt)


def with_version(state: State, table: int, version: Version) -> State:
    """The state after a version was put into a table."""
    others = (other for other in state.tables[table] if other.number != version.number)
    versions = tuple(sorted((*others, version)))
    return state._replace(tables=replaced(state.tables, table, versions))


def restore(versions: Versions, op: int, number: int) -> Version | None:
    """The version a restore of `number` would put; None if that version is gone."""
    restored = version_at(versions, number)
    if restored is None:
        return None
    head = versions[-1].number
    return Version(head + 1, "restore", op, head, number, restored.files)


def reserve(versions: Versions, base: int) -> Version:
    """The first version of a compaction; it keeps the content and never conflicts."""
    head = versions[-1]
    return Version(head.number + 1, "maintenance", -1, base, 0, head.files)


def commit(
    scope: Scope,
    versions: Versions,
    op: int,
    kind: Kind | Literal["rewrite"],
    base: int,
    file: FileName,
    *,
    merge: TailMerge | None = None,
) -> Version | None:
    """The version a commit that read `base` would put; None if it conflicts."""
    head, later = versions[-1], above(versions, base)
    if scope.strict_commit and kind != "rewrite":
        return _right_above(scope, versions, op, kind, base, file, merge=merge)
    if kind == "overwrite":
        return None if later else Version(base + 1, "own", op, base, 0, frozenset({file}))
    updated = kind == "update" and any(version.origin == "own" for version in later)
    if updated or any(_replaces_content(scope, version) for version in later):
        return None
    if kind == "rewrite":
        files = head.files | {file} if scope.optimize_forward else head.files
        return Version(head.number + 1, "maintenance", -1, base, 0, files)
    if merge is not None and any(not merge.removed <= version.files for version in later):
        return None
    kept = head.files if merge is None else (head.files - merge.removed) | {merge.file}
    return Version(head.number + 1, "own", op, base, 0, kept | {file})


def _right_above(
    scope: Scope,
    versions: Versions,
    op: int,
    kind: Kind,
    base: int,
    file: FileName,
    *,
    merge: TailMerge | None,
) -> Version | None:
    """The version that a strict commit puts; None if its number is taken."""
    pinned = version_at(versions, base)
    is_taken = version_at(versions, base + 1) is not None
    if pinned is None or (is_taken and scope.mutant != "strict_put_over"):
        return None
    if kind == "overwrite":
        return Version(base + 1, "own", op, base, 0, frozenset({file}))
    kept = pinned.files if merge is None else (pinned.files - merge.removed) | {merge.file}
    return Version(base + 1, "own", op, base, 0, kept | {file})


def _replaces_content(scope: Scope, version: Version) -> bool:
    if version.origin == "own":
        return scope.kinds[version.op] == "overwrite"
    return version.origin == "restore"


def exact_effect(scope: Scope, versions: Versions, op: int, pin: int, *, attempt: int) -> int:
    """The newest version that is the pin's content plus the effect of `op` alone, or 0.

    If attempts have different rows, those of another attempt are not the effect.
    """
    is_told_apart = scope.recomputes and scope.mutant != "fwd_any_attempt"
    for version in reversed(above(versions, pin)):
        if version.origin != "own" or version.op != op:
            continue
        if is_told_apart and own_file(scope, op, attempt) not in version.files:
            continue
        if scope.mutant == "fwd_inexact" or _is_exact(versions, version, pin):
            return version.number
    return 0


def _is_exact(versions: Versions, version: Version, pin: int) -> bool:
    below = version_at(versions, version.number - 1)
    if below is None or version.read_version != below.number:
        return False
    if below.number != pin and not (below.origin == "restore" and below.restored_from == pin):
        return False
    return not any(v.origin == "foreign" and pin < v.number < version.number for v in versions)


def optimize_effect(scope: Scope, versions: Versions, op: int, pin: int) -> int:
    """The newest version c that may be published for the maintenance `op`, or 0.

    Every version in (pin, c] is there and keeps the content, and every file of c is named by the
    pinned version or written by this operation.
    """
    if scope.mutant == "opt_any_chain":
        return max((v.number for v in above(versions, pin) if v.origin == "maintenance"), default=0)
    pinned, candidate = version_at(versions, pin), 0
    if pinned is None:
        return 0
    for version in above(versions, pin):
        gap = version.number != (candidate or pin) + 1
        if version.origin != "maintenance" or (gap and scope.mutant != "opt_gap"):
            break
        known = all(f in pinned.files or f[0] == COMPACTED + op for f in version.files)
        if not known and scope.mutant != "opt_any_file":
            break
        candidate = version.number
    return candidate


def visible_writers(state: State) -> frozenset[int]:
    """Whose rows the published versions show."""
    shown: frozenset[int] = frozenset()
    for table, pin in enumerate(state.manifest.pins):
        if version := version_at(state.tables[table], pin):
            shown |= writers_in(version.files)
    return shown


def violates_constraint(scope: Scope, state: State, op: int) -> bool:
    """The published rows already include a writer that `op` must not join."""
    pairs = scope.forbidden_pairs
    if not pairs:
        return False
    return any((op, other) in pairs or (other, op) in pairs for other in visible_writers(state))


def new_pins(pins: Pins, write_set: tuple[int, ...], versions: tuple[int, ...]) -> Pins:
    """The pins after the tables of a write set have moved to these versions."""
    moved = dict(zip(write_set, versions, strict=True))
    return tuple(moved.get(table, pin) for table, pin in enumerate(pins))


def moved_where_held(
    pins: Pins, held: Pins, write_set: tuple[int, ...], versions: tuple[int, ...]
) -> Pins:
    """The pins after those tables have moved that have a version and are where they were."""
    moved = {
        table: version
        for table, version in zip(write_set, versions, strict=True)
        if version and pins[table] == held[table]
    }
    return tuple(moved.get(table, pin) for table, pin in enumerate(pins))
