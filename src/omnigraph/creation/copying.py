"""Copying a consistent state of a graph while it is in use: backup, restore and clone.

Invariant: a graph is only read. The target is the copy that it was, or the new one, whenever this
process ends: everything that the new one needs is there and durable before a record decides on it,
and the next process that adds to it or restores it puts a decided copy in place. What a killed
process copied is not copied again.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import xxhash

from omnigraph import names
from omnigraph.creation.copy_moment import Moment, take_moment
from omnigraph.creation.copy_plan import CopyPlan, Vanished, plan_copy
from omnigraph.creation.copy_records import (
    CopyRecord,
    claim_target,
    decide,
    finish_decided,
    is_claimed,
    put_in_place,
    release_target,
    require_untouched,
)
from omnigraph.creation.initialise import existing_graph
from omnigraph.display.cells import Cell, counted, file_size
from omnigraph.display.pages import Displayed, Page
from omnigraph.errors import ConflictError, DamagedGraphError, InvalidInputError
from omnigraph.failpoints import reach
from omnigraph.storage.lance.checksums import place_of
from omnigraph.storage.objects.digests import digest_of
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.objects.location import Scheme

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from omnigraph.clock import Clock
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.objects.store import StoredObjects

_MOMENTS_MAX: Final = 20
_COPIES_AT_ONCE: Final = 8


class CopyKind(StrEnum):
    """What a copy is for."""

    BACKUP = "backup"
    """It stays the copy of its source, and the next one adds what is new."""
    RESTORE = "restore"
    """It becomes an independent graph."""
    CLONE = "clone"
    """The same, of a graph that is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport(Displayed):
    """A copy of a graph as it was at one moment."""

    kind: CopyKind
    source: str
    target: str
    taken_at: str
    commit_id: str
    """The newest commit of main."""
    branches: tuple[str, ...]
    tags: tuple[str, ...]
    files_copied: int
    bytes_copied: int
    files_compared: int
    """Files whose content was compared with a recorded checksum while it was copied."""
    is_changed: bool
    """Whether the target was brought forward; a backup of what it has already changes nothing."""

    def _page(self) -> Page:
        copied = f"{counted(self.files_copied, 'file')}, {file_size(self.bytes_copied)}"
        facts: list[tuple[str, Cell]] = [
            ("source", self.source),
            ("target", self.target),
            ("taken at", f"{self.taken_at}, commit {self.commit_id}"),
            ("branches", ", ".join(self.branches)),
        ]
        if self.tags:
            facts.append(("tags", ", ".join(self.tags)))
        told = "nothing: the target is up to date"
        if self.is_changed:
            told = f"{copied}; {self.files_compared:,} compared with their checksums"
        return Page(
            summary=f"{self.kind.value} of {self.source} in {self.target}: copied {told}",
            facts=[*facts, ("copied", told)],
        )


def copy_graph(
    source: StoredObjects,
    target: StoredObjects,
    clock: Clock,
    kind: CopyKind,
    *,
    branches: frozenset[str] | None = None,
) -> CopyReport:
    """Make the target a copy of the source at one moment.

    Raises:
        ConflictError: the target holds something else, was written to, or is newer.
        DamagedGraphError: a file of the source is not what was published; the target stays as it
            was.
    """
    if is_claimed(source):
        finish_decided(source)
    existing_graph(source.root)
    copied = _Copied()
    vanished = ""
    for _ in range(_MOMENTS_MAX):
        taken_at = clock.timestamp()
        moment = take_moment(source, branches=branches)
        last = _ready_target(source, target, moment)
        known = {} if last is None else last.newest
        try:
            plan = plan_copy(source, target, moment, known, of_all_lines=branches is None)
            copied += _copy_content(source, target, plan)
        except Vanished as error:
            vanished = str(error)
            continue
        _publish(source, target, plan, moment, last, taken_at)
        copied += _copy_older(source, target, plan)
        _settle(target, kind)
        return CopyReport(
            kind=kind,
            source=source.root.uri,
            target=target.root.uri,
            taken_at=taken_at,
            commit_id=moment.main.head.commit_id,
            branches=tuple(state.branch or names.MAIN for state in moment.states),
            tags=tuple(tag.tag for tag in moment.tags),
            files_copied=copied.files + len(plan.visible),
            bytes_copied=copied.bytes + sum(len(content) for _, content in plan.visible),
            files_compared=copied.compared,
            is_changed=bool(plan.visible),
        )
    raise ConflictError(
        f"{_MOMENTS_MAX} times something of {source.root} was not there when it was to be copied, "
        f"the last time {vanished}",
        next_step=f"Run `omnigraph check {source.root} --deep`. If no damage is found, a "
        "concurrent cleanup removes versions too early: keep more versions and run this again; "
        "files that were copied are reused.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copied:
    """What was copied."""

    files: int = 0
    bytes: int = 0
    compared: int = 0

    def __add__(self, other: _Copied) -> _Copied:
        return _Copied(
            files=self.files + other.files,
            bytes=self.bytes + other.bytes,
            compared=self.compared + other.compared,
        )


def require_apart(source: Root, target: Root) -> None:
    """Refuse to copy a graph into itself, before anything is made there.

    Raises:
        InvalidInputError: one lies in the other.
    """
    one, other = _resolved(source), _resolved(target)
    if one.startswith(other) or other.startswith(one):
        raise InvalidInputError(
            f"{target} and {source} must not contain one another",
            next_step="Use a location outside the graph.",
        )


def _resolved(root: Root) -> str:
    """Where a root really is; on a disk it may be a link."""
    return f"{os.path.realpath(root.uri) if root.scheme is Scheme.LOCAL else root.uri}/"


def _ready_target(
    source: StoredObjects, target: StoredObjects, moment: Moment
) -> CopyRecord | None:
    """What the target is a copy of so far, if that comes before this moment of the source."""
    claim_target(target, moment.graph)
    reach("copy.post_claim")
    last = finish_decided(target)
    if last is None:
        return None
    require_untouched(target, last)
    content = source.read(last.main_path)
    is_newer = any(
        last.newest.get(place_of(line.location, line.fork), 0) > version
        for line, version in moment.manifest_versions.items()
    )
    if is_newer or (content is not None and digest_of(content) != last.manifest_digest):
        raise ConflictError(
            f"{target.root} is a backup of another or a later state than {source.root} has",
            next_step="Use another location for the backup.",
        )
    return last


def _copy_content(source: StoredObjects, target: StoredObjects, plan: CopyPlan) -> _Copied:
    """Copy what the moment names; it is not visible before the versions that name it exist."""
    copied = sum(_copy_all(source, target, plan, plan.content).values(), _Copied())
    reach("copy.post_content")
    return copied + sum(_copy_all(source, target, plan, plan.lists).values(), _Copied())


def _publish(
    source: StoredObjects,
    target: StoredObjects,
    plan: CopyPlan,
    moment: Moment,
    last: CopyRecord | None,
    taken_at: str,
) -> None:
    if not plan.visible and last is not None:
        return
    path = f"{names.MANIFEST}/{names.lance_version(moment.main.version)}"
    content = dict(plan.visible).get(path) or target.read(path) or b""
    record = CopyRecord(
        number=1 if last is None else last.number + 1,
        graph=moment.graph,
        source=source.root.uri,
        taken_at=taken_at,
        commit_id=moment.main.head.commit_id,
        manifest_digest=digest_of(content),
        newest=plan.newest,
        files=tuple(plan.visible),
    )
    reach("copy.pre_record")
    decide(target, record)
    reach("copy.post_record")
    put_in_place(target, record)
    reach("copy.post_publish")


def _copy_older(source: StoredObjects, target: StoredObjects, plan: CopyPlan) -> _Copied:
    """Copy versions for time travel; those that are removed meanwhile are left out."""
    wanted = {file for files in plan.older.values() for file in files} - plan.content.keys()
    arrived = _copy_all(source, target, plan, wanted, is_needed=False)
    copied = sum(arrived.values(), _Copied())
    missing = wanted - arrived.keys()
    make_durable(target.root)
    for path, files in plan.older.items():
        if missing.isdisjoint(files):
            copied += sum(
                _copy_all(source, target, plan, [path], is_needed=False).values(), _Copied()
            )
            reach("copy.post_version")
    make_durable(target.root)
    return copied


def _settle(target: StoredObjects, kind: CopyKind) -> None:
    """Make what is not a backup an independent graph."""
    if kind is not CopyKind.BACKUP:
        release_target(target)
        make_durable(target.root)
    reach("copy.post_end")


def _copy_all(
    source: StoredObjects,
    target: StoredObjects,
    plan: CopyPlan,
    paths: Iterable[str],
    *,
    is_needed: bool = True,
) -> Mapping[str, _Copied]:
    """Copy files in parallel; what was copied of each, without those that are gone.

    Raises:
        Vanished: one is gone that is needed.
    """
    copied: dict[str, _Copied] = {}
    with ThreadPoolExecutor(_COPIES_AT_ONCE) as beside:
        copies = {path: beside.submit(_copy, source, target, plan, path) for path in paths}
        try:
            for path, copy in copies.items():
                try:
                    copied[path] = copy.result()
                except Vanished:
                    if is_needed:
                        raise
        finally:
            beside.shutdown(cancel_futures=True)
    return copied


def _copy(source: StoredObjects, target: StoredObjects, plan: CopyPlan, path: str) -> _Copied:
    """Copy one file, and require that it is what was published.

    Raises:
        Vanished: it is gone.
    """
    digest = xxhash.xxh3_128()
    size = 0

    def compared(pieces: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal size
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            yield piece
        if size != plan.content.get(path, size):
            raise _damaged(source, path, f"it has {size} bytes, not {plan.content[path]}")
        expected = plan.digests.get(path)
        if expected is not None and digest.hexdigest() != expected:
            raise _damaged(source, path, f"its digest is {digest.hexdigest()}, not {expected}")

    try:
        target.put_stream(path, compared(source.stream(path)))
    except FileNotFoundError:
        raise Vanished(path) from None
    reach("copy.post_file")
    return _Copied(files=1, bytes=size, compared=int(path in plan.digests))


def _damaged(source: StoredObjects, path: str, found: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"{path} of {source.root} is damaged: {found}. The copy was not made visible",
        next_step=f"Run `omnigraph check {source.root} --deep` to see what else is damaged.",
    )
