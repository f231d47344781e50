"""Moving the tables of one operation: each to exactly one version past the pin it was staged on.

Where rows come with new columns there is one more version, with the columns alone, below theirs.

Invariant: a move is reported only if the new version holds the pinned content plus our change and
nothing else. Most moves need one commit on the pinned handle; what is between the pin and HEAD
otherwise is either our own kind's unpublished work, which is healed by putting the pin's content
back on top, or foreign, and then nothing is touched. HEAD is looked at first, so that a refused
move leaves no version behind; what comes in between the look and the commit is found afterwards.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnigraph_lake import errors
from omnigraph_lake.commit.publish import pins_of
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance.datasets import NewVersion, cleans_by_itself, open_dataset
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import TableVersion
from omnigraph_lake.storage.objects.documents import MALFORMED
from omnigraph_lake.storage.snapshot import ChecksumRef
from omnigraph_lake.storage.staging import table_versions
from omnigraph_lake.storage.staging.changes import adopt_append
from omnigraph_lake.storage.staging.checksum_recording import record_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from omnigraph_lake.commit.sidecar import Sidecar
    from omnigraph_lake.names import OperationId
    from omnigraph_lake.storage.manifest.state import BranchRef
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Pin, TableEntry
    from omnigraph_lake.storage.staging.changes import StagedChange

_TABLES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Contended:
    """A concurrent writer changed the table; staging again on new pins may succeed."""

    table_key: str


def move_tables(
    root: Root,
    staged: Sequence[StagedChange],
    *,
    branch: BranchRef | None,
    sidecar: Sidecar,
    heads: Mapping[str, int],
) -> tuple[TableVersion, ...] | Contended:
    """Move every table, several at a time; all threads have ended when this returns.

    The sidecar tells what was published of each table when the changes were staged, `heads` where
    its HEAD was seen since.
    """
    expected = sidecar.pins

    def move(change: StagedChange) -> TableVersion | Contended:
        new_version = _Move(
            root=root,
            change=change,
            branch=branch,
            expected=expected[change.table_key],
            operation_id=sidecar.operation_id,
            attempt=sidecar.nonce,
        ).run(head=heads[change.table_key])
        if isinstance(new_version, Contended):
            return new_version
        return _row(root, change, new_version, branch=None if branch is None else branch.branch)

    if len(staged) == 1:
        versions = [move(staged[0])]
    else:
        with ThreadPoolExecutor(min(_TABLES_AT_ONCE, max(1, len(staged)))) as pool:
            versions = list(pool.map(move, staged))
    moved_versions: list[TableVersion] = []
    for version in versions:
        if isinstance(version, Contended):
            return version
        moved_versions.append(version)
    return tuple(moved_versions)


def move_companions(
    root: Root, change: StagedChange, moved: TableVersion, companions: Iterable[Sidecar]
) -> Iterator[tuple[Sidecar, TableVersion]]:
    """Commit what others offer right above a version that was just made, one above the other.

    It ends at the first that does not end up exactly above the one before it. What fails here is
    left to the writers that made the offers.
    """
    below = moved
    for companion in companions:
        try:
            version = _move_companion(root, _entry_at(change.entry, below), companion)
        except (errors.OmnigraphError, *MALFORMED):
            return
        reach("combine.post_commit")
        if version is None or version.version != below.version + 1:
            return
        yield companion, version
        below = version


def _move_companion(root: Root, entry: TableEntry, companion: Sidecar) -> TableVersion | None:
    offer = companion.offer
    assert offer is not None
    change = adopt_append(root, entry, fragments=offer.fragments, rows=offer.rows)
    new_version = table_versions.commit_staged(
        root,
        change,
        on_version=entry.version,
        operation_id=companion.operation_id,
        attempt=companion.nonce,
    )
    if new_version is None:
        return None
    return _row(root, change, new_version, branch=companion.branch)


def _entry_at(entry: TableEntry, row: TableVersion) -> TableEntry:
    """The entry of a table as it is once a version is published."""
    assert row.made_at is not None
    return replace(
        entry,
        version=row.version,
        row_count=row.row_count,
        made_at=row.made_at,
        checksums=None
        if row.checksums is None
        else ChecksumRef(row.fork, row.version, row.made_at, row.checksums),
    )


def _row(
    root: Root, change: StagedChange, new_version: NewVersion, *, branch: str | None
) -> TableVersion:
    checksums = record_change(root, change, new_version)
    return TableVersion(
        table_key=change.table_key,
        version=new_version.version,
        branch=branch,
        row_count=change.row_count,
        fork=change.entry.fork,
        made_at=new_version.made_at,
        checksums=None if checksums is None else checksums.digest,
    )


def see_heads(root: Root, staged: Sequence[StagedChange]) -> Mapping[str, int]:
    """HEAD of every table that changes were staged for, several at a time."""
    with ThreadPoolExecutor(min(_TABLES_AT_ONCE, max(1, len(staged)))) as pool:
        heads = pool.map(lambda change: table_versions.latest_version(root, change), staged)
        return dict(zip((change.table_key for change in staged), heads, strict=True))


def require_no_foreign(
    root: Root,
    entry: TableEntry,
    *,
    below: int,
    point: str,
    is_ours: Callable[[table_versions.VersionRecord], bool] | None = None,
) -> None:
    """Refuse at a point if a version between the pin and `below` is foreign."""
    for record in table_versions.version_records(root, entry, above=entry.version, below=below):
        if record.is_foreign and not (is_ours is not None and is_ours(record)):
            reach(point)
            raise errors.DriftNeedsRepairError(
                entry.table_key,
                published=entry.version,
                foreign=record.version,
                root=root.uri,
                branch=entry.branch,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """The move of one table."""

    root: Root
    change: StagedChange
    branch: BranchRef | None
    expected: Pin
    operation_id: OperationId
    attempt: str

    def run(self, *, head: int) -> NewVersion | Contended:
        pin = self.change.entry.version
        if head != pin or cleans_by_itself(self.change.base):
            return self._run_after_healing()
        reach("mutation.pre_direct_commit")
        new_version = self._commit(on_version=pin)
        reach("mutation.post_direct_commit")
        if new_version is not None and new_version.version == pin + self.change.versions_made:
            return new_version
        return self._run_after_healing()

    def _run_after_healing(self) -> NewVersion | Contended:
        contended = Contended(table_key=self.change.table_key)
        reach("mutation.open_head")
        state = read_manifest(self.root, branch=self.branch)
        if pins_of(state).get(self.change.table_key) != self.expected:
            return contended
        stand = _standing(self.root, self.change.entry, self.operation_id)
        if stand is None:
            return contended
        reach("mutation.pre_table_commit")
        new_version = self._commit(on_version=stand)
        reach("mutation.post_table_commit")
        if new_version is not None and new_version.version == stand + self.change.versions_made:
            return new_version
        return contended

    def _commit(self, *, on_version: int) -> NewVersion | None:
        return table_versions.commit_staged(
            self.root,
            self.change,
            on_version=on_version,
            operation_id=self.operation_id,
            attempt=self.attempt,
        )


def _standing(root: Root, entry: TableEntry, operation_id: OperationId) -> int | None:
    """A version at HEAD with exactly the pinned content, made now if need be."""
    head = table_versions.head_version(root, entry)
    if head is None:
        return None
    if head == entry.version:
        return _without_cleanup(root, entry, head, operation_id)
    require_no_foreign(root, entry, below=head + 1, point="mutation.drift")
    records = table_versions.version_records(root, entry, above=head - 1)
    if records and records[-1].version == head and records[-1].restores == entry.version:
        return _without_cleanup(root, entry, head, operation_id)
    reach("mutation.pre_heal")
    healed = table_versions.restore_pin(root, entry, head=head, operation_id=operation_id)
    reach("mutation.post_heal")
    if healed is None:
        return None
    require_no_foreign(root, entry, below=healed.version, point="mutation.drift")
    return _without_cleanup(root, entry, healed.version, operation_id)


def _without_cleanup(
    root: Root, entry: TableEntry, stand: int, operation_id: OperationId
) -> int | None:
    """The version to commit on, or an equal one if Lance would clean up after a commit on it."""
    dataset = open_dataset(root, entry.location, fork=entry.fork, version=stand)
    if dataset is None or not cleans_by_itself(dataset):
        return stand
    new_version = table_versions.switch_off_cleanup(
        root, entry, head=stand, operation_id=operation_id
    )
    return None if new_version is None else new_version.version
