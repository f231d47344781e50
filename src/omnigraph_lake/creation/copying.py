"""Copy a consistent state of a graph while it is in use: backup, restore and clone.

Records at the target name the source of the copy and the last copy that was decided.

Invariants:
- The source graph is only read.
- Whenever this process ends, the target is either the previous copy or the new one. Everything that
  the new copy needs is durable before a record decides on it.
- A copy is decided by one put-if-absent of a record that holds everything that makes it visible.
  From then on the target is the new copy, as soon as the record's files are in place. The next
  process that adds to the target or restores it puts missing files in place.
- Content that a killed process copied is not copied again.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import xxhash

from omnigraph_lake import names
from omnigraph_lake.creation.copy_plan import CopyPlan, Moment, Vanished, plan_copy, take_moment
from omnigraph_lake.creation.initialise import existing_graph
from omnigraph_lake.display.cells import Cell, counted, file_size
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.errors import ConflictError, DamagedGraphError, InvalidInputError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance.checksums import place_of
from omnigraph_lake.storage.objects.documents import (
    MALFORMED,
    digest_of,
    digest_of_values,
    parsed,
    typed,
)
from omnigraph_lake.storage.objects.durability import make_durable
from omnigraph_lake.storage.objects.location import Root, Scheme, stored_path
from omnigraph_lake.storage.objects.store import Put, StoredObjects, claim

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph_lake.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRecord:
    """One copy: of which graph, when, up to which manifest, and what is to be put in its place."""

    number: int
    graph: str
    source: str
    taken_at: str
    commit_id: str
    manifest_digest: str
    """Of the file of main's version."""
    newest: Mapping[str, int]
    """The newest version of every line, by its folder."""
    files: tuple[tuple[str, bytes], ...]
    """Empty once all are in their places."""

    @property
    def main_version(self) -> int:
        return self.newest[names.MANIFEST]

    @property
    def main_path(self) -> str:
        """The file of main's version."""
        return f"{names.MANIFEST}/{names.lance_version(self.main_version)}"

    def to_bytes(self) -> bytes:
        fields: dict[str, Any] = {
            "graph": self.graph,
            "source": self.source,
            "taken_at": self.taken_at,
            "commit_id": self.commit_id,
            "manifest_digest": self.manifest_digest,
            "newest": dict(self.newest),
            "files": [[path, b64encode(content).decode()] for path, content in self.files],
        }
        return json.dumps({**fields, "digest": digest_of_values(fields)}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, number: int, content: bytes) -> CopyRecord:
        try:
            fields = dict(parsed(content))
            _require_digest(fields.pop("digest"), fields)
            record = typed(cls, {**fields, "number": number})
            is_of_main = 0 < record.newest[names.MANIFEST] <= names.LANCE_VERSION_MOST
        except MALFORMED as error:
            raise _damaged_record(number, repr(error)) from error
        if not is_of_main:
            raise _damaged_record(number, f"version {record.main_version} of {names.MANIFEST}")
        for path in (*record.newest, *(path for path, _ in record.files)):
            stored_path(path, said_by=names.copy_record(number))
        return record


def _damaged_record(number: int, problem: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"{names.copy_record(number)}, the record of a backup, is damaged: {problem:.200}",
        next_step="Make a backup at another location.",
    )


def _require_digest(expected: object, fields: dict[str, Any]) -> None:
    digest = digest_of_values(fields)
    if digest != expected:
        raise ValueError(f"its digest is {digest}, expected {expected!r:.80}")


def claim_target(target: StoredObjects, graph: str) -> None:
    """Claim the target for copies of this graph, unless it contains something else.

    Raises:
        ConflictError: it does.
        UnsafeStoreError: its store cannot decide between two who copy at once.
    """
    path = names.copy_intent()
    intent = json.dumps({"graph": graph}, sort_keys=True).encode()
    if not is_claimed(target) and not target.is_empty():
        raise ConflictError(
            f"{target.root} is not empty and not a backup of this graph",
            next_step="Use an empty location.",
        )
    if claim(target, path, intent) != intent:
        raise ConflictError(
            f"{target.root} is a backup of another graph", next_step="Give another place."
        )


def is_claimed(target: StoredObjects) -> bool:
    return target.read(names.copy_intent()) is not None


def last_record(target: StoredObjects) -> CopyRecord | None:
    number = _newest_number(target)
    content = None if number is None else target.read(names.copy_record(number))
    return None if number is None or content is None else CopyRecord.from_bytes(number, content)


def _newest_number(target: StoredObjects) -> int | None:
    numbers = map(names.copy_record_number, target.list(names.BACKUPS_DIR))
    return max((number for number in numbers if number is not None), default=None)


def decide(target: StoredObjects, record: CopyRecord) -> None:
    """Make a copy the current one of the target.

    Raises:
        ConflictError: another process decided on one meanwhile.
    """
    make_durable(target.root)  # everything that it names
    path, content = names.copy_record(record.number), record.to_bytes()
    is_ours = target.put_if_absent(path, content) is not Put.EXISTED or target.read(path) == content
    # Records that were followed are deleted. So the number of a process that slept meanwhile may be
    # free although others have used it; only the highest number counts.
    if is_ours and _newest_number(target) != record.number:
        target.delete(path)
        is_ours = False
    if not is_ours:
        raise ConflictError(
            f"another process made a backup at {target.root} concurrently",
            next_step="Run it again to update that backup.",
        )
    make_durable(target.root)


def put_in_place(target: StoredObjects, record: CopyRecord) -> None:
    """Put what makes a decided copy visible where it belongs; idempotent, in any process."""
    for path, content in record.files:
        target.replace(path, content)
        reach("copy.post_put")
    make_durable(target.root)
    if record.files:
        target.replace(names.copy_record(record.number), replace(record, files=()).to_bytes())
    for number in map(names.copy_record_number, target.list(names.BACKUPS_DIR)):
        if number is not None and number < record.number:
            target.delete(names.copy_record(number))


def finish_decided(target: StoredObjects) -> CopyRecord | None:
    """Finish the last decided copy of a process that died."""
    record = last_record(target)
    if record is not None and record.files:
        put_in_place(target, record)
    return record


def require_untouched(target: StoredObjects, record: CopyRecord) -> None:
    """Refuse a target that was written to: it is an independent graph by now.

    Raises:
        ConflictError: it was written to.
    """
    newest: dict[str, int] = {}
    for path in target.list(names.MANIFEST):
        version = names.lance_version_at(path)
        if version is not None:
            place = names.place_of_version(path)
            newest[place] = max(version, newest.get(place, 0))
    expected = {
        place: version
        for place, version in record.newest.items()
        if names.dataset_of_place(place) == names.MANIFEST
    }
    content = target.read(record.main_path)
    if newest != expected or content is None or digest_of(content) != record.manifest_digest:
        raise ConflictError(
            f"{target.root} was written to since its last backup",
            next_step="Use another location for the backup, and keep this one if it is needed.",
        )


def release_target(target: StoredObjects) -> None:
    """Make a finished copy an independent graph."""
    for path in target.list(names.BACKUPS_DIR):
        if names.copy_record_number(path) is not None:
            target.delete(path)
    target.delete(names.copy_intent())


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
        copied_text = "nothing: the target is up to date"
        if self.is_changed:
            copied_text = f"{copied}; {self.files_compared:,} compared with their checksums"
        return Page(
            summary=f"{self.kind.value} of {self.source} in {self.target}: copied {copied_text}",
            facts=[*facts, ("copied", copied_text)],
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
    source_path, target_path = _resolve(source), _resolve(target)
    if source_path.startswith(target_path) or target_path.startswith(source_path):
        raise InvalidInputError(
            f"{target} and {source} must not contain one another",
            next_step="Use a location outside the graph.",
        )


def _resolve(root: Root) -> str:
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


def _damaged(source: StoredObjects, path: str, problem: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"{path} of {source.root} is damaged: {problem}. The copy was not made visible",
        next_step=f"Run `omnigraph check {source.root} --deep` to see what else is damaged.",
    )
