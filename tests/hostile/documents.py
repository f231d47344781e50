"""Documents of a graph that say something else than they could: wrong types, members and numbers.

Each has the digest that it must have, so that nothing but a look at what it says can refuse it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omnigraph_lake import names
from omnigraph_lake.commit.sidecar import (
    SIDECAR_FORMAT,
    Sidecar,
    SidecarState,
    WriterKind,
    this_host,
)
from omnigraph_lake.creation.copying import CopyRecord
from omnigraph_lake.creation.lost_manifest import RebuildEntry
from omnigraph_lake.storage.manifest.state import BranchRef
from omnigraph_lake.storage.objects.documents import digest_of_values
from omnigraph_lake.storage.refs.holds import HeldVersions, Hold
from omnigraph_lake.storage.refs.tags import Tag
from tests.adversary.world import DEV, EARLY

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

HOLD: Final = "01K00000000000000000000002"
MOMENT: Final = "2026-01-01T00:00:00.000000+00:00"
Digest = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document of a graph, or of a backup of it."""

    name: str
    path: str
    members: tuple[str, ...]
    digest: Digest | None = None
    made: Mapping[str, Any] | None = None
    """What a right one says, if the graph has none."""
    of_a_backup: bool = False

    def lay(self, change: Callable[[dict[str, Any]], object], root: Path) -> None:
        """Put one in which something was changed."""
        said = dict(self.made or json.loads((root / self.path).read_bytes()))
        said.pop("digest", None)
        change(said)
        if self.digest is not None:
            said["digest"] = self.digest(self.path, said)
        self.put(json.dumps(said).encode(), root)

    def put(self, content: bytes, root: Path) -> None:
        file = root / self.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(content)


def _members(kind: type[DataclassInstance], *but: str) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in but)


def _of_path(path: str, fields: Mapping[str, Any]) -> str:
    return digest_of_values([path, fields])


def _of_fields(_: str, fields: Mapping[str, Any]) -> str:
    return digest_of_values(fields)


HELD: Final = asdict(
    Hold(
        hold_id=HOLD,
        commit_id=None,
        versions=(HeldVersions(names.table_location("node:Person"), None, 1, 2),),
        made_at=MOMENT,
        expires_at=MOMENT,
        actor="x",
        purpose="read",
    )
)
REBUILT: Final = asdict(
    RebuildEntry(
        operation_id=HOLD, begun_at=MOMENT, host=this_host(), pid=1 << 23, process_started="never"
    )
)
SIDECAR: Final = asdict(
    Sidecar(
        operation_id=names.OperationId(HOLD),
        nonce="nonce",
        kind=WriterKind.WRITE,
        actor="x",
        branch=None,
        incarnation=None,
        commit_id=names.CommitId(HOLD),
        state=SidecarState.ARMED,
        floor={},
        read_set={},
        tables=(),
        pointed=(),
        merged=None,
        schema_hash=None,
        schema_move=None,
        started_at=MOMENT,
        beat_at=MOMENT,
        host=this_host(),
        pid=1 << 23,
        process_started="never",
    )
)
COPY_RECORD: Final = Document(
    name="copy record",
    path=names.copy_record(1),
    members=_members(CopyRecord, "number"),
    digest=_of_fields,
    of_a_backup=True,
)
DOCUMENTS: Final = (
    COPY_RECORD,
    Document(name="copy intent", path=names.copy_intent(), members=("graph",), of_a_backup=True),
    Document(
        name="hold", path=names.hold(HOLD), members=_members(Hold), digest=_of_path, made=HELD
    ),
    Document(
        name="rebuild", path=names.rebuild_entry(1), members=_members(RebuildEntry), made=REBUILT
    ),
    Document(
        name="schema lock",
        path=names.schema_lock(),
        members=("operation_id", "is_impatient"),
        made={"operation_id": HOLD},
    ),
    Document(
        name="scrub",
        path=names.SCRUB_PROGRESS,
        members=("path", "findings"),
        digest=_of_fields,
        made={"path": "", "findings": []},
    ),
    Document(
        name="floors",
        path=names.retention_entry(1),
        members=("floors",),
        digest=lambda _, fields: digest_of_values(fields.get("floors")),
        made={"floors": [[names.table_location("node:Person"), None, 1]]},
    ),
    Document(
        name="branch log",
        path=names.branch_ref(DEV, 2),
        members=_members(BranchRef),
        digest=_of_path,
    ),
    Document(name="tag log", path=names.tag_ref(EARLY, 2), members=_members(Tag), digest=_of_path),
    Document(
        name="sidecar",
        path=names.sidecar(HOLD),
        members=("format", *_members(Sidecar)),
        made={"format": SIDECAR_FORMAT, **SIDECAR},
    ),
    Document(
        name="schema state",
        path=names.SCHEMA_STATE,
        members=("format", "model_hash", "source_hash", "identity_domain"),
    ),
)
WHOLE: Final[Mapping[str, bytes]] = {
    "empty": b"",
    "null": b"null",
    "number": b"5",
    "list": b"[]",
    "object": b"{}",
    "pairs": b'[["a", "b"]]',
    "text": b"not JSON",
    "bytes": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "deep and closed": b"[" * 900 + b"]" * 900,
}
VALUES: Final[Mapping[str, object]] = {
    "null": None,
    "huge": 10**30,
    "negative": -1,
    "fraction": 0.5,
    "infinite": float("inf"),
    "text": "\u0000../x",
    "far": "9999-12-31T23:59:59+00:00",
    "naive": "2026-01-01T00:00:00",
    "list": [[]],
    "rows": [["x", "y", 1, 2, 3, 4, 5]],
    "object": {"a": "b"},
    "true": True,
}


def changes(document: Document) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Ways to change one document of a graph, each with its name."""
    for name, content in WHOLE.items():
        yield f"{document.name}, whole: {name}", partial(document.put, content)
    values = cycle(VALUES.items())
    for member in document.members:
        yield f"{document.name}, {member}: missing", partial(document.lay, partial(_pop, member))
        for name, value in islice(values, 7):
            changed = partial(_set, member, value)
            yield f"{document.name}, {member}: {name}", partial(document.lay, changed)
    unknown = partial(_set, "unknown", 1)
    yield f"{document.name}, unknown member", partial(document.lay, unknown)


def _pop(member: str, fields: dict[str, Any]) -> None:
    fields.pop(member, None)


def _set(member: str, value: object, fields: dict[str, Any]) -> None:
    fields[member] = value


def place_file(path: object, fields: dict[str, Any]) -> None:
    """Have a record of a copy put a file somewhere."""
    fields["files"] = [[path, b64encode(b"stolen").decode()]]
