"""Tags: names of commits, each a small object that holds what the commit left.

Invariant: a tag never changes. It says by itself where every table is read, so it stays readable
whatever becomes of the manifest, and whoever removes versions must keep those that tags name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.objects import Objects, Put
from omnigraph.storage.pinned_tables import PinnedTables, decoded, entries
from omnigraph.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A named commit."""

    tag: str
    commit_id: str
    branch: str | None
    manifest_version: int
    actor: str
    created_at: str
    tables: PinnedTables

    def snapshot(self) -> Snapshot:
        return Snapshot(
            branch=self.branch,
            manifest_version=self.manifest_version,
            head=None,
            tables=entries(self.tables, branch=self.branch),
            commit_id=self.commit_id,
        )


def put_tag(objects: Objects, tag: Tag) -> bool:
    """Create it; False if the name is taken by another."""
    path, content = names.tag_ref(tag.tag), json.dumps(asdict(tag), sort_keys=True).encode()
    return objects.put_if_absent(path, content) is Put.CREATED or objects.read(path) == content


def read_tag(objects: Objects, tag: str) -> Tag | None:
    content = objects.read(names.tag_ref(tag))
    return None if content is None else _decoded(tag, content)


def all_tags(objects: Objects) -> tuple[Tag, ...]:
    """Every tag, by name."""
    prefix = f"{names.TAG_REFS_DIR}/"
    found = (
        read_tag(objects, path.removeprefix(prefix).removesuffix(".json"))
        for path in objects.list(names.TAG_REFS_DIR)
    )
    return tuple(tag for tag in found if tag is not None)


def delete_tag(objects: Objects, tag: str) -> None:
    objects.delete(names.tag_ref(tag))


def _decoded(tag: str, content: bytes) -> Tag:
    try:
        fields = json.loads(content)
        return Tag(**{**fields, "tables": decoded(fields["tables"])})
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedGraphError(
            f"tag {tag!r} cannot be understood: {error!r}",
            next_step=f"Restore {names.tag_ref(tag)} from a backup of the graph's root.",
        ) from error
