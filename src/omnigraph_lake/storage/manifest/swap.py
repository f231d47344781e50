"""Reading and replacing `__manifest`, the only authority over what is visible.

Invariant: a swap is one strict overwrite. It writes all rows as the version right after the one
they were made from, or nothing; Lance neither rebases nor retries it. No answer of a swap is
trusted: the caller reads again.

A manifest of a format that this program does not know is never decoded and never replaced.

A read is believed only while its version is among the newest `MANIFEST_VERSIONS_KEPT`: older slots
may have been cleaned and taken by a late write between finding the version and reading it.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.file import LanceFileReader
from lance.fragment import write_fragments

from omnigraph_lake import errors, names
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage import manifest_rows
from omnigraph_lake.storage.lance.datasets import (
    Caches,
    create_dataset,
    is_not_found,
    lance_branches,
    made_at,
    open_dataset,
    translated,
    without_cleanup,
)
from omnigraph_lake.storage.lance.legacy_types import must_be_rewritten
from omnigraph_lake.storage.manifest import legacy_history
from omnigraph_lake.storage.manifest.accepted_schemas import is_schema_there
from omnigraph_lake.storage.manifest.history import OldVersion, assumed_rows, schema_hash_at_root
from omnigraph_lake.storage.manifest.retention import Line, Removal, remove_versions, versions_of
from omnigraph_lake.storage.manifest.state import (
    ManifestState,
    known_at,
    mark_before_opening,
    remember,
    state_before,
    unchanged,
)
from omnigraph_lake.storage.objects.containment import require_tree_inside
from omnigraph_lake.storage.objects.durability import boot_id, make_durable, sync
from omnigraph_lake.storage.objects.handover import Handover, open_handover
from omnigraph_lake.storage.objects.location import Durability, Root, Scheme
from omnigraph_lake.storage.objects.power_cuts import (
    is_torn,
    lost_files,
    newest_whole_version,
    version_file,
)
from omnigraph_lake.storage.objects.store import stored_objects
from omnigraph_lake.storage.snapshot import TableEntry, entries
from omnigraph_lake.storage.staging.checksum_recording import record_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from omnigraph_lake.storage.manifest.state import BranchRef

_READ_ATTEMPTS: Final = 20
_CHANGES_READ_MAX: Final = 2
"""So many versions are read one by one rather than all rows of the last."""


class SwapAnswer(Enum):
    """What the store said; read the manifest again to learn what is true."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOrigin:
    """Where a branch of the manifest was forked (parent None = main)."""

    parent: str | None
    manifest_version: int


def manifest_exists(root: Root) -> bool:
    return _open(root, None) is not None


def read_manifest(
    root: Root, *, branch: BranchRef | None = None, point: str | None = None
) -> ManifestState:
    """The latest version of a branch's manifest.

    Finding a version, reading it and asking again for the latest are separate requests; `point`
    names the failpoints between them.
    """
    versions: set[int] = set()
    for _ in range(_READ_ATTEMPTS):
        latest = unchanged(root, branch) or _latest(root, branch)
        if point is not None:
            reach(f"{point}.list")
        if isinstance(latest, ManifestState):
            if point is not None:
                reach(f"{point}.verify")
            return latest if latest.root == root else replace(latest, root=root)
        try:
            state = _read_whole(root, branch, latest, point, is_newest=True)
        except (errors.DamagedGraphError, errors.StorageUnavailableError):
            older = _step_back(root, branch, latest)
            if older is None:
                raise
            state = _read_whole(root, branch, older, point)
        if state is not None:
            return state
        versions.add(latest.version)
    if len(versions) == 1:
        # Only versions below the latest are ever removed, and this one stayed the latest.
        name = names.MAIN if branch is None else branch.branch
        raise errors.DamagedGraphError(
            f"version {versions.pop()} of {names.MANIFEST} in {root}, the newest of branch "
            f"{name!r}, is damaged: a file of it is missing",
            next_step=f"Run `omnigraph check {root} --deep`, and restore the file from a backup.",
        )
    raise errors.StorageUnavailableError(
        f"the manifest of {root} changed {_READ_ATTEMPTS} times while it was being read",
        next_step=f"Run it again. If the error persists, run `omnigraph check {root}`.",
    )


def read_manifest_version(
    root: Root, version: int, *, branch: BranchRef | None = None
) -> ManifestState:
    """One version of a branch's manifest, while it is among those that a reader may believe."""
    handle = _open(root, _lance_branch(branch), version)
    state = None if handle is None else _read_whole(root, branch, handle, None)
    if state is not None:
        return state
    latest = read_manifest(root, branch=branch).version
    origin = None if branch is None else branch.forked_from
    first = 1 if origin is None else origin.manifest_version
    oldest = max(first, latest - names.MANIFEST_VERSIONS_KEPT + 1)
    next_step = f"Versions {oldest} to {latest} can be read."
    if first <= version <= latest:
        raise errors.NoLongerKeptError(
            f"manifest version {version} of {root} is no longer kept", next_step=next_step
        )
    raise errors.NotFoundError(
        f"manifest version {version} of {root} "
        + ("does not exist yet" if version > latest else "never was"),
        next_step=next_step,
    )


def stored_version(root: Root, version: int, *, branch: BranchRef | None = None) -> ManifestState:
    """One version of a branch's manifest as it is stored, for reports on damage.

    Raises:
        DamagedGraphError, StorageUnavailableError: it cannot be read, or is not what was written.
    """
    # No cache: what is asked is what the store has now.
    handle = open_dataset(root, names.MANIFEST, fork=_lance_branch(branch), version=version)
    if handle is None or manifest_rows.KEY_COLUMN not in handle.schema.names:
        raise errors.DamagedGraphError(
            f"version {version} of {names.MANIFEST} in {root} has no rows"
        )
    facts = _known_facts(root, handle)
    with translated(root, f"read version {version} of {names.MANIFEST}"):
        table = handle.to_table()
    return ManifestState(
        ref=branch,
        version=version,
        facts=facts,
        root=root,
        rows=manifest_rows.decode(table),
        handle=handle,
    )


def create_manifest(
    root: Root,
    rows: Iterable[manifest_rows.ManifestRow],
    *,
    operation_id: str,
    stamp: int = names.STAMP,
) -> None:
    """Make the graph visible: one version that holds every row and the stamp.

    The durability of its creator becomes the default of the graph.
    """
    facts = manifest_rows.ManifestFacts(stamp=stamp, durability=root.durability)
    rows = _with_checksums(root, tuple(rows), None)
    sync(root)
    create_dataset(
        root, names.MANIFEST, manifest_rows.encode(rows, facts), operation_id=operation_id
    )
    sync(root)


def swap_manifest(
    base: ManifestState,
    rows: Iterable[manifest_rows.ManifestRow],
    *,
    operation_id: str,
    stamp: int = names.STAMP,
) -> SwapAnswer:
    """Try to put `rows` as the version right after `base`.

    If commits are durable, everything that the rows name is on stable storage before they are put,
    and the rows are when this returns.

    Raises:
        FormatTooNewError: `base` has a format that this program does not know.
    """
    _refuse_newer(base.root, base.stamp)
    rows = _with_checksums(base.root, tuple(rows), base)
    make_durable(base.root)  # whatever these rows name, whichever process wrote it
    is_synced = base.root.durability is Durability.COMMIT
    facts = replace(base.facts, stamp=stamp, unsynced_boot=None if is_synced else boot_id())
    content = manifest_rows.encode(rows, facts, before=base.rows)
    try:
        fragments = write_fragments(content, base.handle, mode="overwrite")
        dataset = LanceDataset.commit(
            base.handle,
            Transaction(
                read_version=base.version,
                operation=LanceOperation.Overwrite(content.schema, fragments),
                transaction_properties={names.OPERATION_PROPERTY: operation_id},
            ),
            max_retries=0,
        )
    except CommitConflictError:
        return SwapAnswer.REFUSED
    except OSError:
        return SwapAnswer.UNKNOWN
    make_durable(base.root)
    if stamp >= names.STAMP_OF_HEADS:  # for others more is to be read than these rows
        new_state = replace(base, version=int(dataset.version), facts=facts, rows=rows, assumed=())
        remember(replace(new_state, handle=dataset))
    return SwapAnswer.ACCEPTED


@contextmanager
def open_next_version(state: ManifestState) -> Iterator[Handover | None]:
    """The place of the version after the latest, to take turns at it; None if it is not on a disk.

    A writer that has taken it still has to win the swap.
    """
    with ExitStack() as opened:
        handover = None
        if state.root.scheme is Scheme.LOCAL:
            with suppress(OSError):
                folder = names.lance_versions(state.handle.uri)
                handover = opened.enter_context(open_handover(folder, suffix=".manifest"))
        yield handover


def keep_manifest_versions(base: ManifestState) -> None:
    """Try to switch off Lance's automatic cleanup, as the version right after `base`.

    It would take versions that readers believe, and that branches were forked from.
    """
    with translated(base.root, f"switch off the automatic cleanup of {names.MANIFEST}"):
        try:
            LanceDataset.commit(
                base.handle,
                Transaction(read_version=base.version, operation=without_cleanup(base.handle)),
                max_retries=0,
            )
        except CommitConflictError:
            return  # a concurrent writer was faster; a second read shows whether it is needed


def forget_old_versions(root: Root, *, branch: BranchRef | None = None) -> Removal:
    """Delete manifest versions that no reader may believe any more."""
    line = Line(names.MANIFEST, _lance_branch(branch))
    versions = versions_of(root, line)
    latest = max(versions, default=0)
    old = [version for version in versions if version <= latest - names.MANIFEST_VERSIONS_KEPT]
    return remove_versions(root, line, old)


def fork_manifest(root: Root, branch: BranchRef) -> None:
    """Give a branch that is being created its manifest: the rows of what it was forked from."""
    origin = branch.forked_from
    assert origin is not None
    with translated(root, f"make branch {branch.branch}"):
        _open_main(root).create_branch(
            branch.lance_branch, (origin.lance_branch, origin.manifest_version)
        )


def manifest_branches(root: Root) -> Mapping[str, BranchOrigin]:
    """Every Lance branch of the manifest and where it was forked."""
    with translated(root, f"list the branches of {names.MANIFEST}"):
        return {
            name: BranchOrigin(
                parent=branch["parent_branch"], manifest_version=branch["parent_version"]
            )
            for name, branch in lance_branches(_open_main(root)).items()
        }


def commits_of_fork(root: Root, lance_branch: str | None) -> tuple[manifest_rows.GraphCommit, ...]:
    """The commits in a Lance branch of the manifest, of a living branch or not; none if gone."""
    with translated(root, f"read {names.MANIFEST}"):
        try:
            handle = _open(root, lance_branch)
            if handle is None:
                return ()
            _known_facts(root, handle)
            rows = manifest_rows.decode(handle.to_table())
        except (ValueError, OSError) as error:
            if not is_not_found(error):
                raise
            rows = ()
    return tuple(row for row in rows if isinstance(row, manifest_rows.GraphCommit))


def drop_manifest_branch(root: Root, name: str) -> bool:
    """Try to delete a Lance branch of the manifest; False if it has to stay for its forks.

    Lance also fails when a third branch disappears while it looks for such forks, so list again
    to learn whether it is gone.
    """
    handle = _open_main(root)
    require_tree_inside(root, names.MANIFEST)
    with translated(root, f"delete branch {name} of {names.MANIFEST}"):
        try:
            handle.branches.delete(name)
        except (ValueError, OSError) as error:
            if "is referenced by" in str(error):
                return False
            if not is_not_found(error):
                raise
    return True


def _open_main(root: Root) -> LanceDataset:
    handle = _open(root, None)
    if handle is None:
        raise _no_graph(root, None)
    return handle


def _open(root: Root, fork: str | None, version: int | None = None) -> LanceDataset | None:
    return open_dataset(root, names.MANIFEST, fork=fork, version=version, caches=Caches.BY_TAG)


def _with_checksums(
    root: Root, rows: tuple[manifest_rows.ManifestRow, ...], base: ManifestState | None
) -> tuple[manifest_rows.ManifestRow, ...]:
    """The rows, with checksums for new versions of tables whose writer recorded none."""
    lacking = {
        row for row in rows if isinstance(row, manifest_rows.TableVersion) and row.checksums is None
    }
    if not lacking or root.scheme is not Scheme.LOCAL:
        return rows
    lacking.difference_update(() if base is None else base.rows)
    if not lacking:
        return rows
    first = {row.table_key: row.location for row in rows if isinstance(row, manifest_rows.Table)}
    pinned = {} if base is None else base.snapshot().tables

    def recorded(row: manifest_rows.ManifestRow) -> manifest_rows.ManifestRow:
        if not isinstance(row, manifest_rows.TableVersion) or row not in lacking:
            return row
        location = row.location or first[row.table_key]
        before = pinned.get(row.table_key)
        entry = TableEntry(
            table_key=row.table_key,
            location=location,
            version=row.version,
            fork=row.fork,
            branch=row.branch,
            row_count=row.row_count,
            checksums=None if before is None or before.location != location else before.checksums,
        )
        if row.made_at is None:
            table = open_dataset(root, location, fork=row.fork, version=row.version)
            if table is None or must_be_rewritten(table):
                return row
        checksums = record_version(root, entry, row.version)
        if checksums is None or row.made_at not in (None, checksums.made_at):
            return row  # another version of that number: readers will say so
        return replace(row, made_at=checksums.made_at, checksums=checksums.digest)

    return tuple(map(recorded, rows))


def _latest(root: Root, branch: BranchRef | None) -> ManifestState | LanceDataset:
    """The latest version, or the handle to read it with if it is not known."""
    mark = mark_before_opening(root, branch)
    try:
        handle = _open(root, _lance_branch(branch))
        older: LanceDataset | None = None
        if handle is not None and manifest_rows.KEY_COLUMN not in handle.schema.names:
            # Lance takes a version file of zeros for a version without columns.
            older = _step_back(root, branch, None)
        elif handle is not None and _may_name_lost(manifest_rows.facts_of(handle.schema)):
            older = _step_back(root, branch, handle)
        handle = handle if older is None else older
    except (errors.DamagedGraphError, errors.StorageUnavailableError):
        handle = _step_back(root, branch, None)
        if handle is None:
            raise
    if handle is None:
        raise _no_graph(root, branch)
    return known_at(handle, branch, mark) or handle


def _step_back(
    root: Root, branch: BranchRef | None, newest: LanceDataset | None
) -> LanceDataset | None:
    """The newest version that no power cut tore, if that is an older one than was found."""
    fork = _lance_branch(branch)
    version = newest_whole_version(root, fork, is_whole)
    if version is None or (newest is not None and version >= newest.version):
        return None
    return _open(root, fork, version)


def _may_name_lost(facts: manifest_rows.ManifestFacts) -> bool:
    """Whether it was put without a sync before the machine was started."""
    return facts.unsynced_boot is not None and facts.unsynced_boot != boot_id()


def is_whole(root: Root, fork: str | None, version: int) -> bool:
    """Whether a version of the manifest was not torn by a power cut, and names nothing it took.

    What is damaged otherwise counts as whole: readers do not step back over that in silence.
    """
    if is_torn(version_file(root, names.MANIFEST, fork, version)):
        return False
    try:
        handle = _open(root, fork, version)
        if handle is None:  # gone since it was listed, or the file is that of another version
            return version_file(root, names.MANIFEST, fork, version).exists()
        if any(lost_files(root, names.MANIFEST, handle)):
            return False
        if not _may_name_lost(manifest_rows.facts_of(handle.schema)):
            return True
        rows = manifest_rows.decode(handle.to_table())
    except (errors.OmnigraphError, OSError, ValueError):
        return True
    pinned = [row for row in rows if isinstance(row, manifest_rows.TableVersion)]
    heads = [row for row in rows if isinstance(row, manifest_rows.GraphHead)]
    return all(_is_there(root, row) for row in pinned) and all(
        is_schema_there(stored_objects(root), head.schema_hash) for head in heads
    )


def _is_there(root: Root, row: manifest_rows.TableVersion) -> bool:
    location = row.location or names.table_location(row.table_key)
    if is_torn(version_file(root, location, row.fork, row.version)):
        return False
    try:
        table = open_dataset(root, location, fork=row.fork, version=row.version)
    except (errors.DamagedGraphError, errors.StorageUnavailableError):
        return True
    return table is not None and not any(lost_files(root, location, table))


def _read_whole(
    root: Root,
    branch: BranchRef | None,
    handle: LanceDataset,
    point: str | None,
    *,
    is_newest: bool = False,
) -> ManifestState | None:
    facts = _known_facts(root, handle)
    with translated(root, f"read {names.MANIFEST}"):
        try:
            rows = _rows_by_changes(root, branch, handle)
            table = None if rows is not None else _read_rows(root, handle)
            if point is not None:
                reach(f"{point}.verify")
            latest = handle.latest_version
        except (ValueError, OSError) as error:
            if is_not_found(error):
                return None
            raise
    if handle.version <= latest - names.MANIFEST_VERSIONS_KEPT:
        return None
    if is_newest and handle.version < latest:
        _require_own_number(root, branch, latest)
    if rows is None:
        rows = manifest_rows.decode(table)
        if facts.stamp < names.STAMP_OF_HEADS:
            rows = legacy_history.fold_rows(rows, None if branch is None else branch.branch)
        elif branch is not None:
            rows = _with_head(rows, branch)
    state = ManifestState(
        ref=branch,
        version=handle.version,
        facts=facts,
        root=root,
        rows=rows,
        handle=handle,
    )
    if facts.stamp < names.STAMP_OF_HEADS:
        is_newest_of_main = branch is None and handle.version == latest
        state = _with_assumed_rows(state, is_newest_of_main=is_newest_of_main)
    remember(state)
    return state


def _rows_by_changes(
    root: Root, branch: BranchRef | None, handle: LanceDataset
) -> tuple[manifest_rows.ManifestRow, ...] | None:
    """The rows of a version by what changed since the one that is known; None if that is far.

    Nothing but the descriptions of the versions is read, and their digest tells that it is right.
    """
    known = state_before(handle, branch)
    if known is None or known.assumed or handle.version - known.version > _CHANGES_READ_MAX:
        return None
    schemas = []
    for version in range(known.version + 1, handle.version):
        between = _open(root, _lance_branch(branch), version)
        if between is None:
            return None
        schemas.append(between.schema)
    return manifest_rows.rows_by_changes(known.rows, [*schemas, handle.schema])


def _read_rows(root: Root, handle: LanceDataset) -> pa.Table:
    """The rows of a version, which a swap writes as one file: read as such, without a scan."""
    fragments = [fragment.metadata for fragment in handle.get_fragments()]
    files = [file for fragment in fragments for file in fragment.files]
    is_plain = len(files) == 1 and files[0].base_id is None and not fragments[0].deletion_file
    if root.scheme is not Scheme.LOCAL or not is_plain:
        return handle.to_table()
    table = LanceFileReader(f"{handle.uri}/data/{files[0].path}").read_all().to_table()
    schema = handle.schema
    if (table.schema.names, table.schema.types) != (schema.names, schema.types):
        return handle.to_table()  # which says what is wrong
    return pa.Table.from_arrays(table.columns, schema=schema)


def _require_own_number(root: Root, branch: BranchRef | None, version: int) -> None:
    """Require that the file of a version is not that of another one.

    Lance finds the newest version by the names of the files, and takes its number from the content.
    Both differ if two files were exchanged; then an earlier state would be read. While others
    write, the newest version is another one after the read than before, and costs this look.

    Raises:
        DamagedGraphError: the file holds another version.
    """
    fork = _lance_branch(branch)
    try:
        handle = _open(root, fork, version)
    except (errors.DamagedGraphError, errors.StorageUnavailableError):
        return  # it cannot be decoded: a reader who finds it says so, or steps back over it
    if handle is None and _is_complete(root, fork, version):
        raise errors.DamagedGraphError(
            f"version {version} of {names.MANIFEST} in {root} is damaged: its file holds another "
            "version",
            next_step=f"Restore the file from a backup, or run `omnigraph repair {root} "
            "--rebuild-manifest` to see what can be recovered.",
        )


def _is_complete(root: Root, fork: str | None, version: int) -> bool:
    """Whether the file of a version is there, and was not torn by a power cut."""
    if root.scheme is Scheme.LOCAL:
        return not is_torn(version_file(root, names.MANIFEST, fork, version))
    place = names.fork_location(names.MANIFEST, fork) if fork else names.MANIFEST
    return stored_objects(root).read(f"{place}/{names.lance_version(version)}") is not None


def _with_assumed_rows(state: ManifestState, *, is_newest_of_main: bool) -> ManifestState:
    """A substitute for the head of a manifest that has none; see `old_formats`."""
    if is_newest_of_main:
        schema_hash = schema_hash_at_root(state.root)
    else:
        # Since it was brought up to date the graph may have got another schema.
        schema_hash = read_manifest(state.root).head.first_schema
    branches = {} if state.branch is None else manifest_branches(state.root)
    origin = branches.get(state.branch or names.MAIN)
    old = OldVersion(
        branch=state.branch,
        parent_branch=None if origin is None else origin.parent,
        version=state.version,
        made_at=made_at(state.handle),
        schema_hash=schema_hash,
    )
    return replace(state, assumed=assumed_rows(state.root, old))


def _known_facts(root: Root, handle: LanceDataset) -> manifest_rows.ManifestFacts:
    """What a manifest says beside its rows; asked first, because its rows may be of new kinds."""
    facts = manifest_rows.facts_of(handle.schema)
    _refuse_newer(root, facts.stamp)
    return facts


def _refuse_newer(root: Root, stamp: int) -> None:
    if stamp > names.STAMP:
        raise errors.FormatTooNewError(root.uri, found=stamp, supported=names.STAMP)


def _with_head(
    rows: tuple[manifest_rows.ManifestRow, ...], branch: BranchRef
) -> tuple[manifest_rows.ManifestRow, ...]:
    """Until its first publish a branch has its parent's rows and no head of its own."""
    heads = {row.branch: row for row in rows if isinstance(row, manifest_rows.GraphHead)}
    origin = branch.forked_from
    if origin is None or branch.branch in heads:
        return rows
    # A branch that is older than heads has its own, and none of main.
    parent = heads.get(origin.branch) or heads.get(None) or next(iter(heads.values()), None)
    if parent is None:
        return rows
    head = replace(
        parent,
        branch=branch.branch,
        sequence=0,
        commit_id=origin.commit_id,
        incarnation=branch.incarnation,
        parent_branch=origin.branch,
        schema_hash=origin.schema_hash or parent.schema_hash,
    )
    if origin.tables is None:
        return (*rows, head)
    kept = [
        row
        for row in rows
        if not isinstance(row, manifest_rows.TableVersion | manifest_rows.Tombstone)
    ]
    pinned = entries(origin.tables, branch=branch.branch).values()
    return (*kept, *map(_published, pinned), head)


def _published(entry: TableEntry) -> manifest_rows.TableVersion:
    return manifest_rows.TableVersion(
        table_key=entry.table_key,
        version=entry.version,
        branch=entry.branch,
        row_count=entry.row_count,
        fork=entry.fork,
        made_at=entry.made_at,
        checksums=None if entry.checksums is None else entry.checksums.digest,
        location=entry.location,
    )


def _lance_branch(branch: BranchRef | None) -> str | None:
    return None if branch is None else branch.lance_branch


def _no_graph(root: Root, branch: BranchRef | None) -> errors.NotFoundError:
    if branch is None:
        return errors.NotFoundError(
            f"there is no graph at {root}",
            next_step=f"Run `omnigraph init {root} --schema FILE` to create one.",
        )
    return errors.NotFoundError(
        f"branch {branch.branch!r} does not exist in {root}",
        next_step=f"Run `omnigraph branch list {root}`.",
    )
