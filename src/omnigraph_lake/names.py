"""Every name Omnigraph writes to disk, the numbers of its formats, and the types of its ids.

Invariant: no other module spells one of these names (tests/tidy looks for them).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NewType

from omnigraph_lake.ulids import DIGITS, base32, number_of

OperationId = NewType("OperationId", str)
"""One attempt to write: a ULID, or an attempt with the idempotency key of a caller."""
CommitId = NewType("CommitId", str)
"""The ULID of a commit; an operation has that of its own from its start."""

MANIFEST: Final = "__manifest"
RECOVERY_DIR: Final = "__recovery"
QUARANTINE_DIR: Final = "_quarantine"
STAGING_DIR: Final = "_staging"
DERIVED_DIR: Final = "_derived"
"""What was computed from the tables and can be deleted at any time."""
DISK_RESERVE: Final = f"{DERIVED_DIR}/reserve"
"""Space that is given back when the disk is full."""
BOOTS_DIR: Final = "_boots"
BACKUPS_DIR: Final = "_backups"
PROBES_DIR: Final = "_probes"
"""Objects that `doctor` creates and deletes again."""
SCRUB_PROGRESS: Final = "_scrub.json"
BOOT_LOCK: Final = "guard"
_CHECKSUMS_DIR: Final = "_checksums"
REFS_DIR: Final = "_refs"
BRANCH_REFS_DIR: Final = f"{REFS_DIR}/branches"
TAG_REFS_DIR: Final = f"{REFS_DIR}/tags"
HOLDS_DIR: Final = f"{REFS_DIR}/holds"
RETENTION_DIR: Final = f"{REFS_DIR}/retention"
REBUILDS_DIR: Final = f"{REFS_DIR}/rebuilds"
COMMITS: Final = "_graph_commits.lance"
COMMIT_ACTORS: Final = "_graph_commit_actors.lance"
RECOVERIES: Final = "_graph_commit_recoveries.lance"
SCHEMA_SOURCE: Final = "_schema.pg"
SCHEMA_MODEL: Final = "_schema.ir.json"
SCHEMA_STATE: Final = "__schema_state.json"
SCHEMAS_DIR: Final = "_schemas"
LEGACY_STAGED: Final = ".staging"
"""What Omnigraph 0.7 puts behind the names of schema files that are not in force yet."""
LEGACY_SCHEMA_HASH: Final = "schema_ir_hash"
"""The field of the state of a schema by which one that Omnigraph 0.3 to 0.7 wrote is told."""

MAIN: Final = "main"
HEAD: Final = "HEAD"
"""In references: the newest commit of the branch that is asked."""
SYSTEM_PREFIX: Final = "__"
SYSTEM_ACTOR_PREFIX: Final = "omnigraph:"
MIGRATION_ACTOR: Final = f"{SYSTEM_ACTOR_PREFIX}migration"
LEGACY_RUN_PREFIX: Final = "__run__"
SCHEMA_APPLY_LOCK: Final = "__schema_apply_lock__"

LANCE_VERSION_MOST: Final = 2**64 - 1
"""Lance counts the names of version files down from here, so that the newest is listed first."""
STAMP_KEY: Final = "omnigraph:internal_schema_version"
STAMP: Final = 9
STAMP_WITHOUT_RUNS: Final = 3
"""Before it, branches that begin with `__run__` are left over from a scheme that is gone."""
STAMP_OF_HEADS: Final = 4
"""From here on a manifest has a row for the head of its branch."""
DURABILITY_KEY: Final = "omnigraph:durability"
DIGEST_KEY: Final = "omnigraph:digest"
STAMP_OF_DIGESTS: Final = 7
"""From here on a manifest without the digest of its rows is damaged."""
STAMP_OF_MARKERS: Final = 8
"""From here on each format adds a row of a kind of its own, which earlier programs refuse."""
UNSYNCED_KEY: Final = "omnigraph:unsynced_boot"
CHANGES_KEY: Final = "omnigraph:changes"
"""What a version of the manifest changed in the rows of the one before it: a shortcut."""
MANIFEST_VERSIONS_KEPT: Final = 100
"""How many of its newest versions `__manifest` always keeps: part of the format, never a setting.

A reader trusts a version only while it is among these, so all processes must agree on the number.
"""

PROPERTY_ID_KEY: Final = "omnigraph:property_id"
PRIMARY_KEY_KEY: Final = "lance-schema:unenforced-primary-key"
BLOB_KEY: Final = "lance-encoding:blob"
JSON_KEY: Final = "omnigraph:json"
REWRITTEN_KEY: Final = "omnigraph:rewritten"
"""On a column of blobs that Omnigraph 0.3 to 0.7 made: its nulls are stored as those of others."""
OPERATION_PROPERTY: Final = "omnigraph:operation"
ROLE_PROPERTY: Final = "omnigraph:role"
PIN_PROPERTY: Final = "omnigraph:pin"
ATTEMPT_PROPERTY: Final = "omnigraph:attempt"
CHECKSUMS_PROPERTY: Final = "omnigraph:checksums"

LANCE_AUTO_CLEANUP: Final = "lance.auto_cleanup."
"""How the settings of a table begin by which Lance deletes old versions after commits."""

INDEX_KINDS: Final = ("btree", "inverted", "vector")

TABLE_DIRS: Final = ("nodes", "edges")
NODE_PREFIX: Final = "node:"
EDGE_PREFIX: Final = "edge:"

ID_COLUMN: Final = "id"
SOURCE_COLUMN: Final = "src"
TARGET_COLUMN: Final = "dst"
SYSTEM_COLUMNS: Final = (ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN)
SOURCE_TYPE_COLUMN: Final = "src_type"
TARGET_TYPE_COLUMN: Final = "dst_type"
END_TYPE_COLUMNS: Final = {SOURCE_COLUMN: SOURCE_TYPE_COLUMN, TARGET_COLUMN: TARGET_TYPE_COLUMN}
"""By the column of a polymorphic end, the column with the number of its node type."""
END_TYPE_WORDS: Final = {SOURCE_TYPE_COLUMN: "from_type", TARGET_TYPE_COLUMN: "to_type"}
"""What these columns are called in inputs and mutations."""
ROW_ADDRESS: Final = "_rowaddr"
ADDRESS_BITS: Final = 32
"""The bits of a row address that are the offset in a fragment; the fragment is in the others."""
LANCE_COLUMNS: Final = (
    "_rowid",
    ROW_ADDRESS,
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
)

_SLUG_MAX: Final = 60
_FORKS: Final = "tree"
_ULID: Final = "[0-9A-HJKMNP-TV-Z]{26}"
_SIDECAR: Final = re.compile(rf"{RECOVERY_DIR}/{_ULID}(@[^/]+)?\.json")
_CHECKSUM_LIST: Final = re.compile(r"([0-9]{1,20})-([0-9]+)-([0-9a-f]+)\.json")
_FORK: Final = re.compile(rf"[A-Za-z0-9_-]*\.{_ULID}(\.{_ULID}(-[0-9]+)?)?")
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_U64: Final = 0xFFFFFFFFFFFFFFFF


def fnv1a64_hex(text: str) -> str:
    """FNV-1a over the UTF-8 bytes, as 16 hexadecimal digits."""
    digest = _FNV_OFFSET
    for byte in text.encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & _U64
    return f"{digest:016x}"


_KEY_MARK: Final = "K"
"""No ULID starts with it: their first digit is at most 7."""
_KEY_DIGITS: Final = 23
_ATTEMPT_DIGITS: Final = 2
_KEYED_OPERATION: Final = re.compile(
    rf"{_KEY_MARK}[{DIGITS}]{{{_KEY_DIGITS}}}[{DIGITS}]{{{_ATTEMPT_DIGITS}}}"
)


@dataclass(frozen=True, slots=True)
class OperationKey:
    """The idempotency key of a caller: what all operations that were attempted with it start with.

    An operation that was rolled back stays so; the next call with the key is another attempt. The
    operations of a key sort by attempt, all of them after every ULID, and encode no time.
    """

    prefix: str

    @classmethod
    def of_text(cls, text: str) -> OperationKey:
        """The key that any text stands for: 115 bits of its digest."""
        digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest())
        return cls(_KEY_MARK + base32(digest, _KEY_DIGITS))

    @classmethod
    def of_operation(cls, operation_id: str) -> OperationKey | None:
        """The key that an operation was attempted with, None for a ULID."""
        if _KEYED_OPERATION.fullmatch(operation_id) is None:
            return None
        return cls(operation_id[:-_ATTEMPT_DIGITS])

    def first_attempt(self) -> OperationId:
        return OperationId(self.prefix + base32(0, _ATTEMPT_DIGITS))

    def attempt_after(self, operation_id: str) -> OperationId | None:
        """The attempt after one of this key; None after the last possible one."""
        number = number_of(operation_id[-_ATTEMPT_DIGITS:])
        if number + 1 == len(DIGITS) ** _ATTEMPT_DIGITS:
            return None
        return OperationId(self.prefix + base32(number + 1, _ATTEMPT_DIGITS))


def is_system_name(name: str) -> bool:
    """Whether a name of a branch or a tag is Omnigraph's own.

    `__run__` was, before stamp 3, whose migration removed such branches; since then it is not
    reserved.
    """
    return name.startswith(SYSTEM_PREFIX) and not name.startswith(LEGACY_RUN_PREFIX)


def format_marker(stamp: int) -> str:
    """The kind of the row that a format adds to every manifest."""
    return f"format_{stamp}"


def node_table_key(type_name: str) -> str:
    return f"{NODE_PREFIX}{type_name}"


def edge_table_key(type_name: str) -> str:
    return f"{EDGE_PREFIX}{type_name}"


def table_location(table_key: str, operation_id: str | None = None) -> str:
    """Where a table is created; afterwards the manifest is the truth.

    A table that comes with a schema change carries the operation: types may come and go under one
    name, and what an operation left that was undone is never met by another.
    """
    kind, _, type_name = table_key.partition(":")
    place = f"{kind}s/{fnv1a64_hex(type_name)}"
    return place if operation_id is None else f"{place}-{operation_id.lower()}"


def table_maker(location: str) -> str | None:
    """The operation whose schema change made the table at a location, if one did."""
    _, dash, operation_id = location.rpartition("-")
    return operation_id.upper() if dash else None


def schema_lock() -> str:
    """Exists while a schema change is under way."""
    return f"{REFS_DIR}/{SCHEMA_APPLY_LOCK}.json"


def accepted_schema(model_hash: str) -> str:
    """Where an accepted schema is kept for good."""
    return f"{SCHEMAS_DIR}/{model_hash}.json"


def accepted_schema_at(path: str) -> str:
    """The hash of the accepted schema at a path; the inverse of `accepted_schema`."""
    return path.removeprefix(f"{SCHEMAS_DIR}/").removesuffix(".json")


def index_name(column: str, kind: str) -> str:
    """The name of an index in its table; no kind has an underscore, so no two share one."""
    return f"{column}_{kind}"


def is_index_name(name: str) -> bool:
    """Whether an index may be one of ours; others are left alone."""
    return name.rpartition("_")[2] in INDEX_KINDS


def ref_entry(directory: str, name: str, entry: int = 1) -> str:
    """An entry of the log of a name: the first beside the others' first, later ones in a folder.

    No branch or tag has `@` in its name, so the folder cannot be taken for one.
    """
    return f"{directory}/{name}.json" if entry == 1 else f"{directory}/{name}@/{entry:08}.json"


def later_ref_entries(directory: str, name: str) -> str:
    return f"{directory}/{name}@"


def ref_entry_at(directory: str, path: str) -> tuple[str, int] | None:
    """The name and the number of the log entry at a path; None if it is none."""
    name, is_later, _ = path.removeprefix(f"{directory}/").partition("@/")
    if is_later:
        number = _number_at(path, lambda number: ref_entry(directory, name, number))
        return None if number is None else (name, number)
    name = name.removesuffix(".json")
    return (name, 1) if ref_entry(directory, name) == path else None


def branch_ref(branch: str, entry: int = 1) -> str:
    return ref_entry(BRANCH_REFS_DIR, branch, entry)


def tag_ref(tag: str, entry: int = 1) -> str:
    return ref_entry(TAG_REFS_DIR, tag, entry)


def manifest_fork(branch: str, incarnation: str) -> str:
    """The Lance branch of the manifest that one incarnation of a graph branch writes."""
    return f"{_slug(branch)}.{incarnation}"


def table_fork(branch: str, incarnation: str, operation_id: str, *, attempt: int = 1) -> str:
    """The Lance branch of a table that an operation makes for its first write on a branch."""
    again = "" if attempt == 1 else f"-{attempt}"
    return f"{_slug(branch)}.{incarnation}.{operation_id}{again}"


def forks_folder(location: str) -> str:
    """Where Lance keeps the forks of a dataset."""
    return f"{location}/{_FORKS}"


def boot_marker(boot: str) -> str:
    """Says that the graph was looked at since the machine was started."""
    return f"{BOOTS_DIR}/{boot}"


def lance_version(version: int) -> str:
    """The file that makes a version of a dataset."""
    return f"_versions/{LANCE_VERSION_MOST - version:020}.manifest"


def lance_versions(place: str) -> str:
    """The folder of the files that make versions of a dataset."""
    return f"{place}/_versions"


def lance_version_at(path: str) -> int | None:
    """The version that a file in `lance_versions` makes; None if it makes none."""
    folder = path.rpartition("/")[0].removesuffix("_versions")
    down = _number_at(path, lambda down: f"{folder}{lance_version(LANCE_VERSION_MOST - down)}")
    return None if down is None or down > LANCE_VERSION_MOST else LANCE_VERSION_MOST - down


def place_of_version(path: str) -> str:
    """The folder of the line that a file in `lance_versions` belongs to."""
    return path.rpartition("/")[0].rpartition("/")[0]


def lance_transactions(place: str, read_version: int | None = None) -> str:
    """The folder of a dataset's transactions, or how those begin that were made on a version."""
    return f"{place}/_transactions/" + ("" if read_version is None else f"{read_version}-")


def lance_branch_ref(location: str, fork: str) -> str:
    """Where Lance says what a fork of a dataset was forked from."""
    return f"{location}/_refs/branches/{fork.replace('/', '%2F')}.json"


def lance_data(place: str, file: str) -> str:
    return f"{place}/data/{file}"


def holds_rows(path: str) -> bool:
    """Whether a file of a dataset holds rows."""
    return "/data/" in path


def checksum_list(place: str, version: int, made_at: str, digest: str) -> str:
    """Where the checksums of one version of a table are, in the folder of its line.

    A writer and a recovery may both list a version, in different words: each list has its own name.
    """
    return f"{place}/{_CHECKSUMS_DIR}/{version}-{checksum_moment(made_at)}-{digest}.json"


def checksum_moment(made_at: str) -> str:
    return "".join(character for character in made_at if character.isdigit())


def checksum_list_at(path: str) -> tuple[int, str, str] | None:
    """The version, moment and digest in the name of a list; None if it is none."""
    named = _CHECKSUM_LIST.fullmatch(path.rpartition("/")[2])
    return None if named is None else (int(named[1]), named[2], named[3])


def checksum_lists(place: str) -> str:
    return f"{place}/{_CHECKSUMS_DIR}"


def fork_location(location: str, fork: str) -> str:
    return f"{forks_folder(location)}/{fork}"


def dataset_of_place(place: str) -> str:
    """The location of the dataset that a place belongs to, which is the dataset's or a fork's."""
    return place.partition(f"/{_FORKS}/")[0]


def fork_at(location: str, path: str) -> str:
    """The fork that a path below `forks_folder` belongs to."""
    return path.removeprefix(f"{forks_folder(location)}/").partition("/")[0]


def fork_owner(fork: str) -> tuple[str, str]:
    """The incarnation of a graph branch, and its operation, that a table's fork is named after.

    Forks of the manifest, and all that are older than these names, have neither.
    """
    _, _, rest = fork.partition(".")
    incarnation, _, operation = rest.rpartition(".")
    return incarnation, operation.partition("-")[0]


def is_fork(name: str) -> bool:
    """Whether a Lance branch has a name that only Omnigraph gives, or gave to its runs."""
    return _FORK.fullmatch(name) is not None or name.startswith(LEGACY_RUN_PREFIX)


def _slug(branch: str) -> str:
    """A branch's name as far as Lance sees it: the rest of a fork's name makes it unique.

    No slash, because with a branch Lance deletes folders above it, even the dataset's own; and
    nothing that Lance would spell longer than a file name may be.
    """
    return re.sub(r"[^A-Za-z0-9_-]", "-", branch)[:_SLUG_MAX]


def retention_entry(number: int) -> str:
    """An entry of the log of floors; the one with the highest number counts."""
    return f"{RETENTION_DIR}/{number:08}.json"


def retention_number(path: str) -> int | None:
    """The number of the entry at a path; None if it is none."""
    return _number_at(path, retention_entry)


def hold(hold_id: str) -> str:
    """What a reader holds; exists until it is released, or removed when its time is over."""
    return f"{HOLDS_DIR}/{hold_id}.json"


def hold_at(path: str) -> str | None:
    """The id of the hold at a path; None if it is none."""
    hold_id = path.rpartition("/")[2].removesuffix(".json")
    return hold_id if hold(hold_id) == path else None


def rebuild_entry(number: int) -> str:
    """An entry of the log of rebuilds of the manifest; the one with the highest number counts."""
    return f"{REBUILDS_DIR}/{number:08}.json"


def rebuild_number(path: str) -> int | None:
    """The number of the entry at a path; None if it is none."""
    return _number_at(path, rebuild_entry)


def is_ref(path: str) -> bool:
    """Whether a file below `REFS_DIR` has a name that Omnigraph gives; others are not ours."""
    return (
        path == schema_lock()
        or any(ref_entry_at(folder, path) for folder in (BRANCH_REFS_DIR, TAG_REFS_DIR))
        or hold_at(path) is not None
        or retention_number(path) is not None
        or rebuild_number(path) is not None
    )


def copy_intent() -> str:
    """Says which graph a root is a copy of, from before its first file arrives."""
    return f"{BACKUPS_DIR}/source.json"


def copy_record(number: int) -> str:
    """Decides one backup: what makes it visible, put at once before it is put in its places."""
    return f"{BACKUPS_DIR}/{number:08}.json"


def copy_record_number(path: str) -> int | None:
    """The number of the record at a path; None if it is no record."""
    return _number_at(path, copy_record)


def _number_at(path: str, named: Callable[[int], str]) -> int | None:
    """The number in the name at a path, if just this name is given to the number."""
    stem = path.rpartition("/")[2].partition(".")[0]
    number = int(stem) if stem.isascii() and stem.isdecimal() else None
    return number if number is not None and named(number) == path else None


def sidecar(operation_id: str, incarnation: str | None = None) -> str:
    """The record of a write in progress; on a branch it belongs to one incarnation of it."""
    name = operation_id if incarnation is None else f"{operation_id}@{incarnation}"
    return f"{RECOVERY_DIR}/{name}.json"


def sidecar_owner(path: str) -> tuple[str, str | None]:
    """The operation and the incarnation of the sidecar at a path; the inverse of `sidecar`."""
    name = path.removeprefix(f"{RECOVERY_DIR}/").removesuffix(".json")
    operation_id, _, incarnation = name.partition("@")
    return operation_id, incarnation or None


def is_sidecar(path: str) -> bool:
    """Whether a file of the recovery folder has the name of a sidecar; others are not ours."""
    return _SIDECAR.fullmatch(path) is not None


def quarantine(operation_id: str) -> str:
    return f"{QUARANTINE_DIR}/{operation_id}"


def manifest_quarantine(operation_id: str) -> str:
    """Where a rebuild of the manifest puts what it takes out of the way."""
    return f"{QUARANTINE_DIR}/manifest-{operation_id}"


def quarantine_part(operation_id: str, number: int) -> str:
    return f"{operation_id}-{number:05}.parquet"


def staging(operation_id: str) -> str:
    return f"{STAGING_DIR}/{operation_id}"


def staging_owner(path: str) -> str:
    """The operation whose part or claim lies at a path."""
    return path.removeprefix(f"{STAGING_DIR}/").partition("/")[0]


def export_part(number: int) -> str:
    return f"part-{number:05}.parquet"


def staging_claim(operation_id: str) -> str:
    """Exists while the tasks of an operation may leave parts; a task that finds none stops."""
    return f"{staging(operation_id)}/open"


def is_staging_claim(path: str) -> bool:
    """Whether a path of the staging area is that of a claim."""
    return path.endswith("/open")


def run_folder(operation_id: str) -> str:
    """The part of the staging area where a run of an algorithm works; a load is beside it."""
    return f"{operation_id}/run"


def run_record(operation_id: str) -> str:
    """How far a run of an algorithm is; its files are beside it."""
    return f"{staging(run_folder(operation_id))}/run.json"


def staged_part(operation_id: str, part: str) -> str:
    return f"{staging(operation_id)}/{part}.arrow"
