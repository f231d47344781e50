"""Accepted schemas, each kept for good under its hash, and the copy of main's at the root.

Invariant: an accepted schema never changes and is stored before a manifest names it. The three
objects at the root are a copy for people and for a quick start. They are written one by one, by
anybody, early or late: whoever reads them compares them with the hash in the manifest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.failpoints import reach
from omnigraph.storage.objects import read_all

if TYPE_CHECKING:
    from omnigraph.storage.objects import Objects

_AT_ROOT: Final = (names.SCHEMA_SOURCE, names.SCHEMA_MODEL, names.SCHEMA_STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """An accepted schema as it is stored: its text, its model, and the hashes of both."""

    text: str
    model: str
    state: str

    def at_root(self) -> dict[str, bytes]:
        """The three objects at the root by path, in the order they are written."""
        contents = (self.text, self.model, self.state)
        return {path: content.encode() for path, content in zip(_AT_ROOT, contents, strict=True)}


def keep_schema(objects: Objects, model_hash: str, stored: StoredSchema) -> None:
    """Store an accepted schema for good; one of the same hash means the same and stays."""
    content = json.dumps(asdict(stored), sort_keys=True, indent=1).encode()
    objects.put_if_absent(names.accepted_schema(model_hash), content)


def kept_schema(objects: Objects, model_hash: str) -> StoredSchema | None:
    """The accepted schema of a hash, if it was ever kept; the first of a graph may not be."""
    path = names.accepted_schema(model_hash)
    content = objects.read(path)
    if content is None:
        return None
    try:
        return StoredSchema(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise DamagedGraphError(
            f"{path} in {objects.root} cannot be understood: {error!r:.200}",
            next_step="Restore it from a backup of the root.",
        ) from error


def schema_at_root(objects: Objects) -> StoredSchema | str:
    """The three objects at the root, as they are; the path of one that is missing."""
    contents = read_all(objects, _AT_ROOT)
    texts: list[str] = []
    for path in _AT_ROOT:
        content = contents[path]
        if content is None:
            return path
        texts.append(content.decode(errors="replace"))
    return StoredSchema(text=texts[0], model=texts[1], state=texts[2])


def promote_schema(objects: Objects, model_hash: str) -> None:
    """Copy an accepted schema to the root."""
    stored = kept_schema(objects, model_hash)
    if stored is None:
        return
    for path, content in stored.at_root().items():
        objects.replace(path, content)
        reach("schema.post_promote_file")
