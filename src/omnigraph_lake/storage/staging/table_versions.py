"""Versions of one table: commit a staged change, put a pin's content back, read who made what.

Invariant: every version made here carries the operation that made it, its role and the pin it was
made for, so that our unpublished versions can be distinguished from foreign ones.

Lance rebases most commits in silence and for some kinds even records the version it rebased onto,
so a commit proves nothing by itself: the caller compares version numbers, and a reader of history
compares the recorded pin.

After a commit Lance deletes old versions by itself if the new version has the settings for that.
What tags and branches of the graph name is nothing to it. So no version with these settings is ever
made here: they are taken away first, and a pin that has them is put back from a version without.

Lance takes new columns and rows that have them in two commits. The version with the columns is made
as a heal that restores nothing: programs that do not know better put the pin back on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError

from omnigraph_lake import names
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance import datasets
from omnigraph_lake.storage.lance.dataset_cache import keep_next
from omnigraph_lake.storage.lance.legacy_types import must_be_rewritten
from omnigraph_lake.storage.lance.next_version import commit_next, head_of

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry
    from omnigraph_lake.storage.staging.changes import StagedChange

_PRESERVING: Final = (LanceOperation.Rewrite, LanceOperation.CreateIndex)


_OLDEST: Final = "omnigraph-oldest"
"""The Lance tag on a line's oldest version while a version with automatic cleanup is restored."""


class Role(StrEnum):
    """Why an operation made a version."""

    OWN = "own"
    HEAL = "heal"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """What a version is: its rows, and when it was made.

    A table that must be rewritten before it is written to does not say when, here and in what is
    published: that is how writers find it.
    """

    rows: int
    made_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """Who made a version of a table, and from what."""

    version: int
    operation_id: str | None
    role: Role | None
    made_for_pin: int | None
    restores: int | None
    preserves_content: bool
    attempt: str | None = None
    """Which attempt of the operation made it; older programs do not tell."""
    adds_columns: bool = False
    """It has the pinned rows, and columns for the rows that the same operation puts on top."""

    @property
    def is_maintenance(self) -> bool:
        """Made by a compaction or an index build that carries no operation, ours or another's."""
        return self.operation_id is None and self.preserves_content

    @property
    def is_foreign(self) -> bool:
        """Foreign and not only maintenance: its rows must not be buried."""
        return self.operation_id is None and not self.preserves_content


def head_version(root: Root, entry: TableEntry) -> int | None:
    dataset = datasets.open_dataset(root, entry.location, fork=entry.fork)
    return None if dataset is None else int(dataset.version)


def latest_version(root: Root, staged: StagedChange) -> int:
    """HEAD of the line that a change was staged on, asked of the handle it was staged with."""
    with datasets.translated(root, f"look at {staged.table_key}"):
        return head_of(root, staged.entry, staged.base)


def automatic_cleanup_at(root: Root, entry: TableEntry) -> Mapping[str, str]:
    """The settings by which Lance deletes old versions by itself, at HEAD and at a pin."""
    settings: dict[str, str] = {}
    for version in (entry.version, None):
        dataset = datasets.open_dataset(root, entry.location, fork=entry.fork, version=version)
        settings |= {} if dataset is None else dataset.config()
    return {
        key: settings[key] for key in sorted(settings) if key.startswith(names.LANCE_AUTO_CLEANUP)
    }


def switch_off_cleanup(
    root: Root, entry: TableEntry, *, head: int, operation_id: str
) -> datasets.NewVersion | None:
    """Make a version like HEAD, without automatic cleanup; None if it does not follow HEAD."""
    handle = datasets.open_dataset(root, entry.location, fork=entry.fork, version=head)
    if handle is None:
        return None
    with datasets.translated(root, f"switch off the automatic cleanup of {entry.table_key}"):
        dataset = _commit(
            handle,
            Transaction(
                read_version=head,
                operation=datasets.without_cleanup(handle),
                transaction_properties=_properties(operation_id, Role.HEAL, entry.version),
            ),
        )
    return None if dataset is None or dataset.version != head + 1 else _make(dataset)


def commit_staged(
    root: Root,
    staged: StagedChange,
    *,
    on_version: int,
    operation_id: str,
    attempt: str | None = None,
) -> datasets.NewVersion | None:
    """Commit on top of a version; returns the last version made, None if refused or not known.

    HEAD is scratch space, so a commit whose answer was lost may simply be made again.
    """
    pin = staged.entry.version
    handle = staged.base
    if on_version != pin:
        opened = datasets.open_dataset(
            root, staged.entry.location, fork=staged.entry.fork, version=on_version
        )
        if opened is None:
            return None
        handle = opened
    with datasets.translated(root, f"commit to {staged.table_key}"):
        if staged.columns is not None:
            widened = _commit_next(
                root,
                staged.entry,
                handle,
                Transaction(
                    read_version=on_version,
                    operation=staged.columns,
                    transaction_properties=_properties(operation_id, Role.HEAL, pin),
                ),
            )
            if widened is None or widened.version != on_version + 1:
                return None
            reach("schema.post_columns")
            handle, on_version = widened, on_version + 1
        dataset = _commit_next(
            root,
            staged.entry,
            handle,
            Transaction(
                read_version=on_version,
                operation=staged.operation,
                transaction_properties=_properties(operation_id, Role.OWN, pin, attempt),
            ),
        )
    if dataset is not None and handle is staged.base and dataset.version == pin + 1:
        keep_next(root, staged.entry, dataset)
    return None if dataset is None else _make(dataset)


def restore_pin(
    root: Root, entry: TableEntry, *, head: int, operation_id: str
) -> datasets.NewVersion | None:
    """Make a new version with exactly the pinned content; None if refused or not known."""
    handle = datasets.open_dataset(root, entry.location, fork=entry.fork, version=head)
    pinned = datasets.open_dataset(root, entry.location, fork=entry.fork, version=entry.version)
    if handle is None or pinned is None:
        return None
    restored = (
        pinned
        if not datasets.cleans_by_itself(pinned)
        else _same_without_cleanup(root, entry, head)
    )
    with (
        datasets.translated(root, f"restore {entry.table_key}"),
        nullcontext() if restored is not None else _keeping_versions(root, entry),
    ):
        dataset = _commit(
            handle,
            Transaction(
                read_version=head,
                # A dataset without rows is false.
                operation=LanceOperation.Restore(
                    (pinned if restored is None else restored).version
                ),
                transaction_properties=_properties(operation_id, Role.HEAL, entry.version),
            ),
        )
    return None if dataset is None else _make(dataset)


def _same_without_cleanup(root: Root, entry: TableEntry, head: int) -> LanceDataset | None:
    """A version with the pinned content that has no automatic cleanup, if one was made."""
    for record in version_records(root, entry, above=entry.version, below=head + 1):
        if record.restores == entry.version:
            dataset = datasets.open_dataset(
                root, entry.location, fork=entry.fork, version=record.version
            )
            if dataset is not None and not datasets.cleans_by_itself(dataset):
                return dataset
    return None


@contextmanager
def _keeping_versions(root: Root, entry: TableEntry) -> Iterator[None]:
    """Keep Lance from its automatic cleanup, which the version that is restored would start.

    Lance refuses to clean a table at all while it would delete a version that has a tag. A tag that
    a death leaves behind keeps that one version, nothing else.
    """
    table = datasets.open_dataset(root, entry.location)
    line = datasets.open_dataset(root, entry.location, fork=entry.fork)
    if table is None or line is None:
        yield  # the restore reports it
        return
    oldest = min(int(version_ref["version"]) for version_ref in line.version_refs())
    with suppress(OSError, ValueError):  # one that another process, or a dead one, left will do
        table.tags.create(_OLDEST, oldest if entry.fork is None else (entry.fork, oldest))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            table.tags.delete(_OLDEST)


def version_records(
    root: Root, entry: TableEntry, *, above: int, below: int | None = None
) -> tuple[VersionRecord, ...]:
    """What is known of the versions between two numbers, both excluded; cleaned ones are absent."""
    head = datasets.open_dataset(root, entry.location, fork=entry.fork)
    if head is None:
        return ()
    stop = head.version + 1 if below is None else min(below, head.version + 1)
    records = (_record(root, entry, head, version) for version in range(above + 1, stop))
    return tuple(record for record in records if record is not None)


def version_record(root: Root, entry: TableEntry, version: int) -> VersionRecord | None:
    """What is known of one version, whatever is above it; None if it is gone."""
    dataset = datasets.open_dataset(root, entry.location, fork=entry.fork, version=version)
    return None if dataset is None else _record(root, entry, dataset, version)


def facts_at(root: Root, entry: TableEntry, version: int) -> VersionFacts | None:
    """What a version is, None if it is gone."""
    dataset = datasets.open_dataset(root, entry.location, fork=entry.fork, version=version)
    if dataset is None:
        return None
    made_at = None if must_be_rewritten(dataset) else datasets.made_at(dataset)
    return VersionFacts(rows=int(dataset.count_rows()), made_at=made_at)


def columns_at(root: Root, entry: TableEntry, version: int) -> pa.Schema | None:
    """The columns of a version; None if it is gone, or has none because its file is all zeros."""
    dataset = datasets.open_dataset(root, entry.location, fork=entry.fork, version=version)
    return None if dataset is None or not dataset.schema.names else dataset.schema


def data_files_at(root: Root, entry: TableEntry, version: int) -> frozenset[str] | None:
    """The data files a version names, None if it is gone."""
    dataset = datasets.open_dataset(root, entry.location, fork=entry.fork, version=version)
    if dataset is None:
        return None
    fragments = dataset.get_fragments()
    return frozenset(file.path for fragment in fragments for file in fragment.metadata.files)


def _make(handle: LanceDataset) -> datasets.NewVersion:
    return datasets.NewVersion(int(handle.version), datasets.made_at(handle))


def _commit(handle: LanceDataset, transaction: Transaction) -> LanceDataset | None:
    return _answer(lambda: LanceDataset.commit(handle, transaction, max_retries=0))


def _commit_next(
    root: Root, entry: TableEntry, handle: LanceDataset, transaction: Transaction
) -> LanceDataset | None:
    return _answer(lambda: commit_next(root, entry, handle, transaction))


def _answer(commit: Callable[[], LanceDataset | None]) -> LanceDataset | None:
    """What a commit made; None if it was refused, or if that is not known."""
    try:
        return commit()
    except CommitConflictError:
        return None
    except OSError as error:
        if datasets.is_lost_or_unknown(error):
            return None
        raise


def _properties(
    operation_id: str, role: Role, pin: int, attempt: str | None = None
) -> dict[str, str]:
    of_attempt = {} if attempt is None else {names.ATTEMPT_PROPERTY: attempt}
    return {
        **of_attempt,
        names.OPERATION_PROPERTY: operation_id,
        names.ROLE_PROPERTY: role.value,
        names.PIN_PROPERTY: str(pin),
    }


def _record(
    root: Root, entry: TableEntry, head: LanceDataset, version: int
) -> VersionRecord | None:
    with datasets.translated(root, f"read version {version} of {entry.table_key}"):
        try:
            transaction = head.read_transaction(version)
        except TypeError as error:
            # Lance cannot describe a compaction that moved an index.
            if "RewrittenIndex" not in str(error):
                raise
            return _maintenance(version)
        except (OSError, ValueError) as error:
            if datasets.is_not_found(error):
                return None
            raise
    if transaction is None:
        return _unknown(version)
    properties = transaction.transaction_properties or {}
    operation = transaction.operation
    role = Role(properties[names.ROLE_PROPERTY]) if names.ROLE_PROPERTY in properties else None
    pin = _number(properties.get(names.PIN_PROPERTY))
    return VersionRecord(
        version=version,
        operation_id=properties.get(names.OPERATION_PROPERTY),
        attempt=properties.get(names.ATTEMPT_PROPERTY),
        role=role,
        made_for_pin=pin,
        restores=_restored_by(root, entry, operation, version, pin if role is Role.HEAL else None),
        preserves_content=isinstance(operation, _PRESERVING)
        or _only_settings(operation)
        or _deletes_nothing(operation)
        or _only_reserves(root, entry, operation, version),
        adds_columns=role is Role.HEAL and isinstance(operation, LanceOperation.Project),
    )


def _restored_by(
    root: Root, entry: TableEntry, operation: object, version: int, healed_pin: int | None
) -> int | None:
    """The version whose content a version was given; for our own ones the pin they were made for.

    One that only removed settings counts as the pin if it has the columns and files of the pin:
    Lance may have put it on top of something else.
    """
    if isinstance(operation, LanceOperation.Restore):
        return operation.version if healed_pin is None else healed_pin
    if healed_pin is None or not _only_settings(operation):
        return None
    return healed_pin if _same_content(root, entry, healed_pin, version) else None


def _only_settings(operation: object) -> bool:
    """Whether rows and columns are as they were: only settings of the table are others."""
    return (
        isinstance(operation, LanceOperation.UpdateConfig)
        and operation.schema_metadata_updates is None
        and not operation.field_metadata_updates
    )


def _deletes_nothing(operation: object) -> bool:
    """Omnigraph 0.7 commits a deletion to every table of edges that might have some, at once."""
    return isinstance(operation, LanceOperation.Delete) and not [
        *operation.updated_fragments,
        *operation.deleted_fragment_ids,
    ]


def _same_content(root: Root, entry: TableEntry, version: int, other_version: int) -> bool:
    """Whether two versions have the same columns and fragments, deletions included."""
    before = datasets.open_dataset(root, entry.location, fork=entry.fork, version=version)
    after = datasets.open_dataset(root, entry.location, fork=entry.fork, version=other_version)
    if before is None or after is None:
        return False
    return before.schema.equals(after.schema, check_metadata=True) and [
        fragment.metadata for fragment in before.get_fragments()
    ] == [fragment.metadata for fragment in after.get_fragments()]


def _only_reserves(root: Root, entry: TableEntry, operation: object, version: int) -> bool:
    """The first half of a compaction: a bare operation that leaves the fragments as they were."""
    if type(operation) is not LanceOperation.BaseOperation:
        return False
    return _same_content(root, entry, version - 1, version)


def _maintenance(version: int) -> VersionRecord:
    return VersionRecord(
        version=version,
        operation_id=None,
        role=None,
        made_for_pin=None,
        restores=None,
        preserves_content=True,
    )


def _unknown(version: int) -> VersionRecord:
    return VersionRecord(
        version=version,
        operation_id=None,
        role=None,
        made_for_pin=None,
        restores=None,
        preserves_content=False,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
