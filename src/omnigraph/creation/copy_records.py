"""The records of a copy: its source, and the last copy that was decided.

Invariant: a copy is decided by one put-if-absent of a record that holds everything which makes it
visible. Before it the target is the copy that it was; after it the target is the new one, as soon
as the record's files are in their places, and a process that finds them missing puts them there.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omnigraph import names
from omnigraph.errors import ConflictError, DamagedGraphError
from omnigraph.failpoints import reach
from omnigraph.storage.objects.digests import digest_of, digest_of_values
from omnigraph.storage.objects.documents import MALFORMED, parsed, typed
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.objects.location import stored_path
from omnigraph.storage.objects.store import Put, claim

if TYPE_CHECKING:
    from omnigraph.storage.objects.store import StoredObjects


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
            raise _damaged(number, repr(error)) from error
        if not is_of_main:
            raise _damaged(number, f"version {record.main_version} of {names.MANIFEST}")
        for path in (*record.newest, *(path for path, _ in record.files)):
            stored_path(path, said_by=names.copy_record(number))
        return record


def _damaged(number: int, found: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"{names.copy_record(number)}, the record of a backup, is damaged: {found:.200}",
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
