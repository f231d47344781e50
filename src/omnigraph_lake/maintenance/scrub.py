"""Scrubbing: every stored file is read and compared with its checksum, a little at a time.

Invariant: scrubbing changes nothing that is stored, unless `record` is given. It may be stopped at
any moment: the next run continues after the last file that was recorded. A pass covers the files
that its versions named when it began; files that come later belong to the next pass.

Recording trusts what is there: versions without checksums, or whose list is damaged, get new ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.maintenance import MAINTENANCE_ACTOR
from omnigraph_lake.commit.phases import Author, Prepared, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.sidecar import PointedTable, WriterKind
from omnigraph_lake.display.cells import Cell, counted, file_size
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.objects.documents import MALFORMED, digest_of_values, parsed, typed
from omnigraph_lake.storage.refs.stored_files import (
    StoredFile,
    StoredFiles,
    manifest_states,
    pinned_entries,
    stored_files,
)
from omnigraph_lake.storage.staging.checksum_recording import record_version
from omnigraph_lake.validation.check import Finding, file_findings, list_findings

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.maintenance.workers import Workers
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry

_DIGEST: Final = "digest"
_CHUNK_BYTES: Final = 256 << 20
_CHUNK_FILES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubOptions:
    """How a pass is made; a rate is in bytes per second."""

    rate: float | None = None
    restart: bool = False
    record: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubReport(Displayed):
    """What a pass came to; `resumed_files` were left out, as earlier runs of it compared them."""

    root: str
    files: int
    bytes: int
    resumed_files: int
    unrecorded_files: int
    recorded_tables: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    def _page(self) -> Page:
        verdict = "ok" if self.ok else f"{counted(len(self.findings), 'file')} damaged"
        compared = f"{counted(self.files, 'file')}, {file_size(self.bytes)}"
        facts: list[tuple[str, Cell]] = [("compared", compared)]
        if self.resumed_files:
            facts.append(
                ("before", f"{counted(self.resumed_files, 'file')}, by the pass that was resumed")
            )
        if self.recorded_tables:
            facts.append(("recorded", f"checksums of {counted(self.recorded_tables, 'table')}"))
        if self.unrecorded_files:
            count = counted(self.unrecorded_files, "file")
            facts.append(("without", f"{count} without a checksum: scrub --record"))
        damaged = [f"DAMAGED   {finding.message}" for finding in self.findings]
        return Page(summary=f"{verdict}: {compared}", facts=facts, lines=[*damaged, verdict])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """How far a pass has come, as it is stored between runs."""

    path: str = ""
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> bytes:
        fields = asdict(self)
        return json.dumps({**fields, _DIGEST: digest_of_values(fields)}).encode()

    @classmethod
    def from_json(cls, content: bytes) -> _Progress:
        fields = dict(parsed(content))
        if fields.pop(_DIGEST) != digest_of_values(fields):
            raise ValueError("it was changed")
        return typed(cls, fields)


def scrub_graph(
    objects: Objects, workers: Workers, clock: Clock, options: ScrubOptions
) -> ScrubReport:
    """Compare every file of every branch, tag and retained version."""
    recorded = _record(objects, clock) if options.record else 0
    stored = stored_files(objects, manifest_states(objects))
    begun = _Progress() if options.restart else _read_progress(objects)
    rest = [file for path, file in sorted(stored.files.items()) if path > begun.path]
    if not rest:  # a pass never ends without having compared anything
        begun, rest = _Progress(), [file for _, file in sorted(stored.files.items())]
    progress, compared = begun, 0
    total = sum(file.checksum.size for file in rest)
    started = clock.now()
    for chunk in _chunks(rest):
        differences = workers.compare(chunk, pass_bytes=total)
        findings = file_findings(objects, zip(chunk, differences, strict=True))
        compared += sum(file.checksum.size for file in chunk)
        progress = _Progress(path=chunk[-1].path, findings=(*progress.findings, *findings))
        objects.replace(names.SCRUB_PROGRESS, progress.to_json())
        if options.rate is not None:
            taken = (clock.now() - started).total_seconds()
            clock.sleep(max(0.0, compared / options.rate - taken))
    objects.delete(names.SCRUB_PROGRESS)
    return ScrubReport(
        root=objects.root.uri,
        files=len(rest),
        bytes=compared,
        resumed_files=len(stored.files) - len(rest),
        unrecorded_files=len(stored.unrecorded),
        recorded_tables=recorded,
        findings=(*list_findings(objects, stored), *progress.findings),
    )


def _read_progress(objects: Objects) -> _Progress:
    content = objects.read(names.SCRUB_PROGRESS)
    with suppress(*MALFORMED):
        if content is not None:
            return _Progress.from_json(content)
    return _Progress()  # a pass that cannot be resumed starts over


def _chunks(files: Sequence[StoredFile]) -> Iterator[list[StoredFile]]:
    chunk: list[StoredFile] = []
    size = 0
    for file in files:
        chunk.append(file)
        size += file.checksum.size
        if size >= _CHUNK_BYTES or len(chunk) >= _CHUNK_FILES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _record(objects: Objects, clock: Clock) -> int:
    """Give checksums to what is pinned and has none; returns the number of tables."""
    states = manifest_states(objects)
    stored = stored_files(objects, states)
    lacking = _lacking(stored)
    for entry in pinned_entries(objects, ()):
        if _identity(entry) in lacking:
            record_version(objects.root, replace(entry, checksums=None), entry.version)
    recorded = 0
    for state in states:
        tables = [
            entry for entry in state.snapshot().tables.values() if _identity(entry) in lacking
        ]
        if tables:
            recorded += len(tables)
            _publish(objects, state, lacking, clock)
    return recorded


def _lacking(stored: StoredFiles) -> set[tuple[str, str | None, int]]:
    damaged = (entry for entry, _ in stored.damaged_lists)
    return {_identity(entry) for entry in (*stored.unrecorded.values(), *damaged)}


def _identity(entry: TableEntry) -> tuple[str, str | None, int]:
    return entry.location, entry.fork, entry.version


def _publish(
    objects: Objects,
    state: ManifestState,
    lacking: set[tuple[str, str | None, int]],
    clock: Clock,
) -> None:
    """Point tables at the versions they are at, now with checksums."""

    def prepare(current: ManifestState) -> Prepared:
        tables = current.snapshot().tables.values()
        pointed = tuple(
            _pointed(objects.root, entry) for entry in tables if _identity(entry) in lacking
        )
        return Prepared(changes=(), read_set=frozenset(), pointed=pointed)

    author = Author(operation_id=clock.new_id(), actor=MAINTENANCE_ACTOR, branch=state.ref)
    commit_write(
        WriteRequest.of(objects, clock, WriterKind.REPAIR, author, schema_hash=None),
        Verb(prepare=prepare),
    )


def _pointed(root: Root, entry: TableEntry) -> PointedTable:
    checksums = record_version(root, replace(entry, checksums=None), entry.version)
    if checksums is None:
        raise DamagedGraphError(
            f"{entry.table_key} is published at version {entry.version}, but that version is gone",
            next_step=f"Run `omnigraph check {root}`.",
        )
    return PointedTable(
        table_key=entry.table_key,
        version=entry.version,
        fork=entry.fork,
        row_count=entry.row_count,
        expected=entry.pin,
        made_at=checksums.made_at,
        checksums=checksums.digest,
    )
