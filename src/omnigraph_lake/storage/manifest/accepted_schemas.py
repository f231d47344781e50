"""Accepted schemas, each kept for good under its hash, and the copy of main's at the root.

Invariant: an accepted schema never changes and is stored before a manifest names it. The three
objects at the root are a copy for people and for a quick start. They are written one by one, by any
process, early or late: readers compare them with the hash in the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.objects.documents import parsed
from omnigraph_lake.storage.objects.durability import sync
from omnigraph_lake.storage.objects.location import Scheme
from omnigraph_lake.storage.objects.store import Objects, Put, read_all

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
    """Store an accepted schema for good; one of the same hash means the same and stays.

    One that a power cut tore is written again: the hash says what it was.
    """
    path = names.accepted_schema(model_hash)
    content = json.dumps(asdict(stored), sort_keys=True, indent=1).encode()
    is_new = objects.put_if_absent(path, content) is Put.CREATED
    if is_new or objects.root.scheme is not Scheme.LOCAL:
        return
    try:
        kept_schema(objects, model_hash)
    except DamagedGraphError:
        objects.replace(path, content)


def kept_schema(objects: Objects, model_hash: str) -> StoredSchema | None:
    """The accepted schema of a hash, if it was ever kept; the first of a graph may not be."""
    path = names.accepted_schema(model_hash)
    content = objects.read(path)
    if content is None:
        return None
    try:
        return StoredSchema(**parsed(content))
    except (ValueError, TypeError) as error:
        raise DamagedGraphError(
            f"{path} in {objects.root} cannot be parsed: {error!r:.200}",
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


def read_staged_files(objects: Objects) -> dict[str, bytes]:
    """The schema files that a schema change of Omnigraph 0.7 left beside those at the root."""
    contents = read_all(objects, [path + names.LEGACY_STAGED for path in _AT_ROOT])
    return {
        path.removesuffix(names.LEGACY_STAGED): content
        for path, content in contents.items()
        if content is not None
    }


def drop_staged(objects: Objects, staged: Mapping[str, bytes], *, accepted: bool) -> None:
    """Delete such files, once they are in place if the schema is accepted."""
    for path, content in staged.items():
        if accepted:
            objects.replace(path, content)
        reach("schema.post_promote_file")
    for path in staged:
        objects.delete(path + names.LEGACY_STAGED)


def is_schema_there(objects: Objects, model_hash: str) -> bool:
    """Whether an accepted schema survived a power cut, under its hash or as the copy at the root.

    The copy is replaced only when the schema that it had is safe under its hash.
    """
    try:
        if kept_schema(objects, model_hash) is not None:
            return True
    except DamagedGraphError:
        return False
    try:
        state = parsed(objects.read(names.SCHEMA_STATE) or b"")
    except ValueError:
        return False
    return isinstance(state, dict) and state.get("model_hash") == model_hash


def promote_schema(objects: Objects, model_hash: str) -> None:
    """Copy an accepted schema to the root.

    The copy that it replaces may be the only synced one of the schema before: so whatever a graph
    promises of its commits, the manifest and the schemas are synced first.
    """
    stored = kept_schema(objects, model_hash)
    if stored is None:
        return
    sync(objects.root)
    for path, content in stored.at_root().items():
        objects.replace(path, content)
        reach("schema.post_promote_file")
