"""Graphs that name things outside their root: each forgery is a graph with one such path in it.

Rows, logs and lists are forged with the digests they must have, so that nothing but the look at
their paths can refuse them. The victim is a graph of the same shape beside the forged one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import lance
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from omnigraph_lake import names
from omnigraph_lake.commit.schema_move import CreatedTable, SchemaMove
from omnigraph_lake.commit.sidecar import (
    PlannedTable,
    PointedTable,
    Sidecar,
    SidecarState,
    WriterKind,
    put_sidecar,
    this_host,
)
from omnigraph_lake.storage.lance.checksums import ChecksumList, FileChecksum
from omnigraph_lake.storage.manifest.history import record_commits
from omnigraph_lake.storage.manifest_rows import (
    GraphCommit,
    GraphHead,
    ManifestRow,
    Operation,
    Outcome,
    SchemaChange,
    Table,
    TableVersion,
    Tombstone,
    decode,
    encode,
    facts_of,
)
from omnigraph_lake.storage.objects.documents import digest_of, digest_of_values
from omnigraph_lake.storage.objects.durability import boot_id
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.snapshot import ChecksumRef, Pin
from tests.adversary.world import DEV, EARLY
from tests.hostile.documents import COPY_RECORD, DOCUMENTS, HOLD, changes, place_file
from tests.hostile.play import ONTO
from tests.hostile.versions import (
    newest_version,
    rewrite,
    with_address,
    with_data_path,
    with_files_at,
    with_transaction,
)

VICTIM: Final = "victim"
"""The name of the folder beside every forged graph."""
PERSON, COMPANY, JOB = "node:Person", "node:Company", "edge:WorksAt"
OPERATION: Final = "01K00000000000000000000000"
COMMIT: Final = "01K00000000000000000000001"
MOMENT: Final = "2026-01-01T00:00:00.000000+00:00"

Lay = Callable[[Path], None]
Spelling = Callable[[Path, int, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgery:
    """What is done to a copy of the graph."""

    name: str
    lay: Lay
    of_a_backup: bool = False
    entries: tuple[str, ...] | None = None
    """Those that could follow it; all if not given."""


SPELLINGS: Final[Mapping[str, Spelling]] = {
    "dots": lambda _, depth, path: f"{'../' * depth}{VICTIM}/{path}",
    "dots after a name": lambda _, depth, path: f"x/{'../' * (depth + 1)}{VICTIM}/{path}",
    "a dot": lambda _, depth, path: f"./{'../' * depth}{VICTIM}/{path}",
    "absolute": lambda root, _, path: f"{root.parent}/{VICTIM}/{path}",
    "doubled slash": lambda _, depth, path: f"{'../' * depth}/{VICTIM}//{path}",
    "address": lambda root, _, path: f"file://{root.parent}/{VICTIM}/{path}",
    "escaped": lambda _, depth, path: f"{'%2e%2e/' * depth}{VICTIM}/{path}",
    "escaped slash": lambda _, depth, path: f"{'..%2f' * depth}{VICTIM}/{path}",
    "line end": lambda _, depth, path: f"{'../' * depth}{VICTIM}/{path}\n",
    "backslash": lambda _, depth, path: "..\\" * depth + f"{VICTIM}\\" + path.replace("/", "\\"),
    "bucket": lambda _, __, path: f"s3://{VICTIM}/{path}",
    "parent": lambda _, depth, __: "/".join([".."] * depth),
}


def forgeries() -> list[Forgery]:
    """All of them, always in the same order."""
    made = [
        *_rows(),
        *_rows_of_a_branch(),
        *_sidecars(),
        *_logs(),
        *_floors(),
        *_checksums(),
        *_history(),
        *_links(),
        *_base_paths(),
        *_documents(),
        *_copies(),
    ]
    assert len({forgery.name for forgery in made}) == len(made)
    return made


def _spelt(
    about: str, depth: int, path: str, lay: Callable[[Path, str], None], *, less: int = 1
) -> Iterator[Forgery]:
    """One forgery for each spelling, or for every so-many-th of them."""
    for name, spelling in list(SPELLINGS.items())[::less]:
        yield Forgery(name=f"{about}: {name}", lay=partial(_lay_spelt, lay, spelling, depth, path))


def _lay_spelt(
    lay: Callable[[Path, str], None], spelling: Spelling, depth: int, path: str, root: Path
) -> None:
    lay(root, spelling(root, depth, path))


# The manifest.


Change = Callable[[ManifestRow, str], ManifestRow]


def put_rows(
    root: Path, change: Callable[[list[ManifestRow]], list[ManifestRow]], *, fork: str | None = None
) -> None:
    """Publish other rows, in a version that is all that it must be."""
    place = names.fork_location(names.MANIFEST, fork) if fork else names.MANIFEST
    dataset = lance.dataset(str(root / place))
    table = dataset.to_table()
    content = encode(change(list(decode(table))), facts_of(table.schema))
    fragments = write_fragments(content, dataset, mode="overwrite")
    operation = LanceOperation.Overwrite(content.schema, fragments)
    LanceDataset.commit(dataset, operation, read_version=dataset.version, max_retries=0)


def _is_of(row: ManifestRow, kind: type, key: str | None) -> bool:
    return isinstance(row, kind) and (key is None or getattr(row, "table_key", None) == key)


def _changed(
    kind: type, key: str | None, change: Change, root: Path, path: str, *, fork: str | None = None
) -> None:
    put_rows(
        root,
        lambda rows: [change(row, path) if _is_of(row, kind, key) else row for row in rows],
        fork=fork,
    )


def _added(make: Callable[[str], ManifestRow], root: Path, path: str) -> None:
    put_rows(root, lambda rows: [*rows, make(path)])


def _commit(path: str | None, **fields: Any) -> GraphCommit:
    return GraphCommit(
        commit_id=COMMIT,
        branch=path,
        operation_id=OPERATION,
        actor="x",
        created_at=MOMENT,
        **fields,
    )


def _location(row: ManifestRow, path: str) -> ManifestRow:
    assert isinstance(row, Table | TableVersion)
    return replace(row, location=path)


def _unverified(row: ManifestRow, path: str) -> ManifestRow:
    """The same, without what would tell the victim's version from the one that was published."""
    assert isinstance(row, TableVersion)
    return replace(row, location=path, made_at=None, checksums=None)


def _fork(row: ManifestRow, path: str) -> ManifestRow:
    assert isinstance(row, TableVersion)
    return replace(row, fork=path, made_at=None, checksums=None)


def _head(name: str, row: ManifestRow, path: str) -> ManifestRow:
    assert isinstance(row, GraphHead)
    changed: dict[str, Any] = {name: path}
    return replace(row, **changed)


def _moved_to(location: str, fork: str | None = None, before: str = "a") -> SchemaChange:
    return SchemaChange(before=before, after="b", tables=((PERSON, location, 1, fork),))


def _rows() -> Iterator[Forgery]:
    for key in (PERSON, COMPANY, JOB):
        place = names.table_location(key)
        yield from _spelt(f"table {key}", 1, place, partial(_changed, Table, key, _location))
        unverified = partial(_changed, TableVersion, key, _unverified)
        yield from _spelt(f"version of {key}", 1, place, unverified)
    place = names.table_location(PERSON)
    yield from _spelt(
        "version and checksums", 1, place, partial(_changed, TableVersion, PERSON, _location)
    )
    yield from _spelt("fork", 4, place, partial(_changed, TableVersion, PERSON, _fork))
    for name in ("incarnation", "schema_hash", "parent_branch", "initial_schema"):
        change = partial(_changed, GraphHead, None, partial(_head, name))
        yield from _spelt(f"head, {name}", 2, "_schema", change, less=2)
    made: Mapping[str, Callable[[str], ManifestRow]] = {
        "commit": lambda path: _commit(None, tables=((PERSON, 1, path),)),
        "commit of a branch": _commit,
        "schema change": lambda path: _commit(None, schema_change=_moved_to(path)),
        "schema change, fork": lambda path: _commit(None, schema_change=_moved_to(place, path)),
        "schema change, hash": lambda path: _commit(
            None, schema_change=_moved_to(place, before=path)
        ),
        "operation": lambda path: Operation(
            operation_id=OPERATION,
            branch=path,
            outcome=Outcome.ABORTED,
            decided_by="x",
            decided_at=MOMENT,
        ),
        "tombstone": lambda path: Tombstone(table_key=PERSON, version=1, branch=path),
        "another table": lambda path: Table(table_key="node:X", location=path, made_by=OPERATION),
        "maker": lambda path: Table(table_key="node:X", location=place, made_by=path),
    }
    for name, make in made.items():
        depth = 4 if "fork" in name or name == "commit" else 1
        yield from _spelt(name, depth, place, partial(_added, make), less=3)


def _rows_of_a_branch() -> Iterator[Forgery]:
    place = names.table_location(PERSON)

    def lay(kind: type, change: Change, root: Path, path: str) -> None:
        _changed(kind, PERSON, change, root, path, fork=_fork_of_dev(root))

    yield from _spelt("branch, table", 1, place, partial(lay, Table, _location), less=2)
    yield from _spelt("branch, version", 1, place, partial(lay, TableVersion, _unverified), less=2)
    yield from _spelt("branch, fork", 4, place, partial(lay, TableVersion, _fork), less=2)


def _fork_of_dev(root: Path) -> str:
    fields = json.loads((root / names.branch_ref(DEV, 2)).read_bytes())
    return names.manifest_fork(DEV, fields["incarnation"])


# Writes in progress.


def _sidecar(root: Path, **fields: Any) -> None:
    """The sidecar of a writer that is dead, so that opening for writing settles it."""
    table = PlannedTable(
        table_key=PERSON,
        location=names.table_location(PERSON),
        fork=None,
        pin=1,
        expected=Pin(1, None),
    )
    sidecar = Sidecar(
        operation_id=names.OperationId(OPERATION),
        nonce="nonce",
        kind=fields.pop("kind", WriterKind.WRITE),
        actor="x",
        branch=fields.pop("branch", None),
        incarnation=fields.pop("incarnation", None),
        commit_id=names.CommitId(COMMIT),
        state=SidecarState.ARMED,
        floor=fields.pop("floor", {}),
        read_set=fields.pop("read_set", {}),
        tables=(replace(table, **fields.pop("table", {})),),
        pointed=fields.pop("pointed", ()),
        merged=None,
        schema_hash=fields.pop("schema_hash", None),
        schema_move=fields.pop("schema_move", None),
        started_at=MOMENT,
        beat_at=MOMENT,
        host=this_host(),
        pid=1 << 23,
        process_started="never",
    )
    assert not fields
    put_sidecar(StoredObjects(parse_root(root)), sidecar)


def _pointed(**fields: Any) -> tuple[PointedTable, ...]:
    made = PointedTable(
        table_key=PERSON, version=1, fork=None, row_count=0, expected=Pin(1, None), made_at=MOMENT
    )
    return (replace(made, **fields),)


def _creating(path: str) -> SchemaMove:
    created = CreatedTable(table_key="node:X", location=path, type_number=9)
    return SchemaMove(before="a", after="b", created=(created,))


def _sidecars() -> Iterator[Forgery]:
    made: Mapping[str, Callable[[Path, str], None]] = {
        "location": lambda root, path: _sidecar(root, table={"location": path}),
        "location of maintenance": lambda root, path: _sidecar(
            root, table={"location": path, "files": ("x.lance",)}, kind=WriterKind.OPTIMIZE
        ),
        "fork": lambda root, path: _sidecar(root, table={"fork": path}),
        "expected fork": lambda root, path: _sidecar(root, table={"expected": Pin(1, path)}),
        "files": lambda root, path: _sidecar(
            root, table={"files": (path,)}, kind=WriterKind.OPTIMIZE
        ),
        "floor": lambda root, path: _sidecar(root, floor={PERSON: Pin(1, path)}),
        "read set": lambda root, path: _sidecar(root, read_set={PERSON: Pin(1, path)}),
        "pointed fork": lambda root, path: _sidecar(root, pointed=_pointed(fork=path)),
        "pointed checksums": lambda root, path: _sidecar(root, pointed=_pointed(checksums=path)),
        "schema": lambda root, path: _sidecar(root, schema_hash=path),
        "created table": lambda root, path: _sidecar(
            root, schema_move=_creating(path), kind=WriterKind.SCHEMA
        ),
        "branch": lambda root, path: _sidecar(root, branch=path, incarnation="x"),
    }
    for name, lay in made.items():
        depth = 1 if name.startswith(("location", "created")) else 4
        place = names.table_location(PERSON)
        yield from _spelt(f"sidecar, {name}", depth, place, lay, less=2)


# Logs, floors, lists of checksums, the history.


def _log(
    path_of_log: str, change: Callable[[dict[str, Any], str], None], root: Path, path: str
) -> None:
    """Change the last entry of a log, under a digest that is right."""
    file = root / path_of_log
    fields = json.loads(file.read_bytes())
    fields.pop("digest", None)
    change(fields, path)
    digest = digest_of_values([path_of_log, fields])
    file.unlink()
    file.write_text(json.dumps({**fields, "digest": digest}))


def _set(*keys: str | int) -> Callable[[dict[str, Any], str], None]:
    def change(fields: dict[str, Any], path: str) -> None:
        place: Any = fields
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = path

    return change


def _pin_tables(fields: dict[str, Any], path: str) -> None:
    """A branch that was forked from an old commit has its tables written down."""
    fields["forked_from"]["tables"] = [[PERSON, path, 1, None, 1, None, None]]


def _logs() -> Iterator[Forgery]:
    place = names.table_location(PERSON)
    branch, tag, main = names.branch_ref(DEV, 2), names.tag_ref(EARLY, 2), names.branch_ref("main")
    made: Mapping[str, tuple[str, Callable[[dict[str, Any], str], None], int]] = {
        "branch, name": (branch, _set("branch"), 3),
        "branch, incarnation": (branch, _set("incarnation"), 3),
        "branch, origin": (branch, _set("forked_from", "lance_branch"), 3),
        "branch, origin's name": (branch, _set("forked_from", "branch"), 3),
        "branch, schema": (branch, _set("forked_from", "schema_hash"), 2),
        "branch, tables": (branch, _pin_tables, 1),
        "main, creates": (main, lambda fields, path: fields.update(creates=[path]), 1),
        "tag, table": (tag, _set("tables", 0, 1), 1),
        "tag, fork": (tag, _set("tables", 0, 3), 4),
        "tag, checksums": (tag, _set("tables", 0, 6), 4),
        "tag, schema": (tag, _set("schema_hash"), 2),
        "tag, branch": (tag, _set("branch"), 3),
    }
    for name, (log, change, depth) in made.items():
        yield from _spelt(f"log of {name}", depth, place, partial(_log, log, change), less=2)


def _floors() -> Iterator[Forgery]:
    def lay(is_fork: bool, root: Path, path: str) -> None:
        line = [names.table_location(PERSON), path] if is_fork else [path, None]
        rows = [[*line, 1000]]
        file = root / names.retention_entry(1)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"floors": rows, "digest": digest_of_values(rows)}))

    place = names.table_location(PERSON)
    yield from _spelt("floor", 1, place, partial(lay, False), less=2)
    yield from _spelt("floor of a fork", 4, place, partial(lay, True), less=2)


def _checksums() -> Iterator[Forgery]:
    def lay(made: Callable[[str], ChecksumList], root: Path, path: str) -> None:
        content = made(path).to_bytes()
        place = names.table_location(PERSON)

        def change(rows: list[ManifestRow]) -> list[ManifestRow]:
            return [
                replace(row, checksums=digest_of(content))
                if isinstance(row, TableVersion) and row.table_key == PERSON
                else row
                for row in rows
            ]

        put_rows(root, change)
        for row in decode(lance.dataset(str(root / names.MANIFEST)).to_table()):
            if isinstance(row, TableVersion) and row.table_key == PERSON and row.made_at:
                name = names.checksum_list(place, row.version, row.made_at, digest_of(content))
                (root / name).write_bytes(content)

    def of_file(path: str) -> ChecksumList:
        return ChecksumList(previous=None, added={path: FileChecksum(None, 1, "0")})

    def of_fork(path: str) -> ChecksumList:
        return ChecksumList(previous=None, added={"_versions/x": FileChecksum(path, 1, "0")})

    def after(path: str) -> ChecksumList:
        return ChecksumList(previous=ChecksumRef(path, 1, MOMENT, "0"), added={})

    secret = f"{names.table_location(PERSON)}/_versions/1.manifest"
    yield from _spelt("checksums, file", 2, secret, partial(lay, of_file), less=3)
    yield from _spelt("checksums, fork", 4, secret, partial(lay, of_fork), less=3)
    yield from _spelt("checksums, list before", 4, secret, partial(lay, after), less=3)


def _history() -> Iterator[Forgery]:
    def lay(made: Callable[[str], GraphCommit], root: Path, path: str) -> None:
        record_commits(parse_root(root), [made(path)])

    place = names.table_location(PERSON)
    changes: Mapping[str, Callable[[str], GraphCommit]] = {
        "tables": lambda path: _commit(None, tables=((PERSON, 1, path),)),
        "schema change": lambda path: _commit(None, schema_change=_moved_to(path)),
    }
    for name, made in changes.items():
        yield from _spelt(f"history, {name}", 1, place, partial(lay, made), less=3)


# Links.


def _table_folders(table_key: str) -> tuple[str, ...]:
    place = names.table_location(table_key)
    return tuple(
        f"{place}{below}"
        for below in (
            *("", "/_versions", "/data", "/_transactions", "/_checksums"),
            *("/_versions/*", "/data/*", "/_checksums/*", "/_transactions/*"),
        )
    )


LINKED: Final = (
    *_table_folders(PERSON),
    *_table_folders(JOB)[:3],
    *(
        f"{names.table_location(PERSON)}/{below}"
        for below in (
            *("_deletions", "_deletions/*", "_indices", "_indices/*", "_indices/*/*"),
            *("_refs", "_refs/branches", "_refs/branches/*", "tree", "tree/*"),
            *("tree/*/_versions", "tree/*/_versions/*", "tree/*/data", "tree/*/data/*"),
            "tree/*/_transactions",
        )
    ),
    *(
        f"{names.MANIFEST}{below}"
        for below in (
            *("", "/_versions", "/_versions/*", "/data", "/data/*", "/_transactions"),
            *("/tree", "/tree/*", "/tree/*/_versions", "/tree/*/data", "/_refs"),
        )
    ),
    *names.TABLE_DIRS,
    *(names.COMMITS, f"{names.COMMITS}/data", f"{names.COMMITS}/_versions", names.RECOVERIES),
    *(names.HOLDS_DIR, names.hold(HOLD), names.BACKUPS_DIR, names.copy_intent()),
    *("_refs", names.BRANCH_REFS_DIR, names.TAG_REFS_DIR, names.RETENTION_DIR, names.REBUILDS_DIR),
    *(names.branch_ref(DEV), names.later_ref_entries(names.BRANCH_REFS_DIR, DEV)),
    *(names.branch_ref(DEV, 2), names.tag_ref(EARLY, 2), names.retention_entry(1)),
    *(names.RECOVERY_DIR, names.sidecar(OPERATION), names.STAGING_DIR, names.staging(OPERATION)),
    *(names.QUARANTINE_DIR, names.quarantine(OPERATION), names.BOOTS_DIR),
    *(names.boot_marker(names.BOOT_LOCK), names.boot_marker(boot_id()), names.SCRUB_PROGRESS),
    *(names.SCHEMAS_DIR, names.SCHEMA_SOURCE, names.SCHEMA_MODEL, names.SCHEMA_STATE),
    names.schema_lock(),
)
"""What is replaced by a link; where a pattern fits several things, the first."""


def _emptied(pattern: str, root: Path) -> Path:
    """The place of something that is taken away."""
    found = sorted(root.glob(pattern)) if "*" in pattern else [root / pattern]
    place = found[0]
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    return place


def _pipe(pattern: str, root: Path) -> None:
    """Whoever opens it waits for ever."""
    os.mkfifo(_emptied(pattern, root))


def _link(pattern: str, to: str, root: Path) -> None:
    """Put a link in the place of something; it leads to the same thing of the victim, if any."""
    place = _emptied(pattern, root)
    victim = root.parent / VICTIM
    there = sorted(victim.glob(pattern)) if "*" in pattern else [victim / pattern]
    target = there[0] if there and there[0].exists() else victim
    match to:
        case "absolute":
            place.symlink_to(target)
        case "relative":
            place.symlink_to(
                "../" * len(place.relative_to(root.parent).parts[1:])
                + str(target.relative_to(root.parent))
            )
        case _:
            (root / "_through").symlink_to(victim)
            place.symlink_to(root / "_through" / target.relative_to(victim))


def _links() -> Iterator[Forgery]:
    for pattern, to in product(LINKED, ("absolute", "relative")):
        yield Forgery(name=f"link at {pattern}: {to}", lay=partial(_link, pattern, to))
    for pattern in LINKED[::6]:
        yield Forgery(name=f"link at {pattern}: twice", lay=partial(_link, pattern, "twice"))
    for pattern in LINKED[::3]:
        yield Forgery(name=f"pipe at {pattern}", lay=partial(_pipe, pattern))


# Versions of Lance.


def _forget_checksums(table_key: str, root: Path, *, fork: str | None = None) -> None:
    def change(rows: list[ManifestRow]) -> list[ManifestRow]:
        return [
            replace(row, checksums=None, made_at=None)
            if isinstance(row, TableVersion) and row.table_key == table_key
            else row
            for row in rows
        ]

    put_rows(root, change, fork=fork)


def in_version(make: Callable[[str], Any], root: Path, address: str) -> None:
    rewrite(newest_version(root / names.table_location(COMPANY)), make(address))
    _forget_checksums(COMPANY, root)


def in_fork(place: str, root: Path, address: str) -> None:
    """What a fork of a table, or of the manifest, says that it shares."""
    if place == names.MANIFEST:
        folder = root / names.fork_location(place, _fork_of_dev(root))
        for version in (folder / "_versions").glob("*.manifest"):
            rewrite(version, with_address(address))
        return
    (folder,) = (root / names.forks_folder(place)).iterdir()
    rewrite(newest_version(folder), with_address(address))
    _forget_checksums(PERSON, root, fork=_fork_of_dev(root))


def _base_paths() -> Iterator[Forgery]:
    company, person = names.table_location(COMPANY), names.table_location(PERSON)
    yield from _spelt("files elsewhere", 2, company, partial(in_version, with_files_at))
    yield from _spelt("data path", 3, f"{company}/data/x", partial(in_version, with_data_path))
    yield from _spelt("transaction", 3, company, partial(in_version, with_transaction), less=2)
    yield from _spelt("fork of a table", 4, person, partial(in_fork, person))
    yield from _spelt("fork of a table, another", 4, company, partial(in_fork, person), less=2)
    yield from _spelt("fork of the manifest", 3, names.MANIFEST, partial(in_fork, names.MANIFEST))
    yield from _spelt(
        "fork of the manifest, another", 3, person, partial(in_fork, names.MANIFEST), less=2
    )


# Documents that say what they could not, and copies.


CHECKED: Final = ("maintenance.check deeply", "maintenance.status")
CLEANED: Final = "maintenance.cleanup confirmed"
COPYING: Final = (*ONTO, "backup", "restore", "clone", "verify", "holds.list", *CHECKED)
READERS: Final[Mapping[str, tuple[str, ...]]] = {
    "copy record": COPYING,
    "copy intent": COPYING,
    "hold": (
        "holds.list",
        "$ hold list",
        "holds.release",
        "maintenance.cleanup",
        CLEANED,
        *CHECKED,
    ),
    "rebuild": ("rebuild_manifest", "rebuild_manifest confirmed", "backup", *CHECKED),
    "schema lock": ("schema.apply", "write", "$ schema apply", *CHECKED),
    "scrub": ("maintenance.scrub", "$ scrub", "$ scrub recorded", *CHECKED),
    "floors": (CLEANED, "at", "tags.create", "branches.create", "backup", *CHECKED),
    "branch log": (
        *("branches.list", "write on a branch", "branches.delete", "$ branch list", CLEANED),
        *("merge", "clone", "maintenance.run", *CHECKED),
    ),
    "tag log": ("tags.list", "$ tag list", "at", CLEANED, "diff", "backup", *CHECKED),
    "sidecar": ("open", "write", "maintenance.recover", "$ recovery list", CLEANED, *CHECKED),
    "schema state": ("open", "$ schema show", "schema.apply", "clone", *CHECKED),
}
"""The entries that read a document."""


OTHERWISE_RIGHT: Final = ("tag log, commit_id", "branch log, incarnation")
TEXTS: Final = (": text", ": far", ": naive")
"""Another commit, and a branch whose manifest is gone: nothing says that they were different."""


def _documents() -> Iterator[Forgery]:
    for document in DOCUMENTS:
        for name, lay in changes(document):
            if name.startswith(OTHERWISE_RIGHT) and name.endswith(TEXTS):
                continue
            yield Forgery(
                name=name,
                lay=lay,
                of_a_backup=document.of_a_backup,
                entries=READERS[document.name],
            )


COPIED_ONTO: Final = (
    *(names.BACKUPS_DIR, names.copy_intent(), names.copy_record(1), names.MANIFEST),
    *(f"{names.MANIFEST}/_versions", f"{names.MANIFEST}/data", *names.TABLE_DIRS),
    *_table_folders(PERSON)[:5],
    *("_refs", names.BRANCH_REFS_DIR, names.TAG_REFS_DIR, names.SCHEMAS_DIR, names.SCHEMA_SOURCE),
    *(names.COMMITS, f"{names.COMMITS}/_versions", names.forks_folder(names.MANIFEST)),
)


def _copies() -> Iterator[Forgery]:
    def file(root: Path, path: str) -> None:
        COPY_RECORD.lay(partial(place_file, path), root)

    def line(root: Path, path: str) -> None:
        COPY_RECORD.lay(lambda fields: fields["newest"].update({path: 1}), root)

    place = names.table_location(PERSON)
    of_backup = partial(replace, of_a_backup=True, entries=COPYING)
    for forgery in _spelt("copy, file", 1, f"{place}/data/x", file):
        yield of_backup(forgery)
    for forgery in _spelt("copy, line", 1, place, line, less=3):
        yield of_backup(forgery)
    for pattern, to in product(COPIED_ONTO, ("absolute", "relative")):
        lay = partial(_link, pattern, to)
        yield Forgery(
            name=f"copy, link at {pattern}: {to}", lay=lay, of_a_backup=True, entries=COPYING
        )
