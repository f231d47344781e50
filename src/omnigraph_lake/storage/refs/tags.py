"""Tags: names of commits, each a log of small objects that hold what the commit left.

Invariant: what a tag names never changes. It says by itself where every table is read, so it stays
readable whatever becomes of the manifest. Removals of versions must keep those that tags name, the
claimed ones too; readers, and processes that take a version over, may rely only on tags that are
ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from omnigraph_lake import names
from omnigraph_lake.display.cells import Moment, short_id
from omnigraph_lake.display.pages import Displayed, Listing, Page, page_of
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.storage.objects.documents import moment, typed
from omnigraph_lake.storage.objects.store import Objects
from omnigraph_lake.storage.refs import logs as ref_logs
from omnigraph_lake.storage.snapshot import PinnedTables, Snapshot, decoded, entries, paths_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag(Displayed):
    """A named commit; tags older than the log have no incarnation."""

    tag: str
    commit_id: str
    branch: str | None
    manifest_version: int
    actor: str
    created_at: str
    tables: PinnedTables
    incarnation: str = ""
    schema_hash: str | None = None

    def snapshot(self) -> Snapshot:
        return Snapshot(
            branch=self.branch,
            manifest_version=self.manifest_version,
            head=None,
            tables=entries(self.tables, branch=self.branch),
            commit_id=self.commit_id,
            schema_hash=self.schema_hash,
        )

    def _page(self) -> Page:
        listed = page_of(TagListing([self]))
        at = f"commit {short_id(self.commit_id)} of {self.branch or names.MAIN}"
        return replace(listed, summary=f"tag {self.tag} at {at}")


class TagListing(Listing[Tag]):
    """Tags, as a table."""

    __slots__ = ()

    def _page(self) -> Page:
        rows = [
            (
                tag.tag,
                short_id(tag.commit_id),
                tag.branch or names.MAIN,
                tag.actor,
                Moment(tag.created_at),
            )
            for tag in self
        ]
        header = ("tag", "commit", "branch", "actor", "created")
        return Page(tables=[TableView(header=header, rows=rows, whole=(0, 1), empty="no tags")])


TagLog = ref_logs.RefLog[Tag]


def read_tag_log(objects: Objects, tag: str) -> TagLog:
    return ref_logs.read_log(objects, _TAGS, tag)


def free_tag_log(objects: Objects, tag: str) -> TagLog | None:
    """The log of a name that no tag has; a creation that has not ended is abandoned."""
    return ref_logs.free_log(objects, _TAGS, tag)


def append_tag_entry(objects: Objects, log: TagLog, tag: Tag, state: ref_logs.RefState) -> bool:
    """Put the next entry of a log; False if another process put another one there."""
    return ref_logs.append_to(objects, _TAGS, log, tag, state)


def confirm_tags(objects: Objects) -> None:
    """Say again that every tag is ready, in an entry that earlier releases cannot read.

    Their `delete_tag` asks nothing but the log of the tag, and now refuses it. A log that another
    process continues meanwhile is left to it.
    """
    for log in tag_logs(objects).values():
        if log.living is not None:
            append_tag_entry(objects, log, log.living, ref_logs.RefState.READY)


def tag_logs(objects: Objects) -> Mapping[str, TagLog]:
    """The end of every name's log, all as they were at one moment."""
    return ref_logs.steady_logs(objects, _TAGS)


def read_tag(objects: Objects, tag: str) -> Tag | None:
    """The tag, if it is ready."""
    return read_tag_log(objects, tag).living


def all_tags(objects: Objects) -> Listing[Tag]:
    """Every tag that is ready, by name."""
    logs = ref_logs.read_logs(objects, _TAGS).values()
    return TagListing(log.living for log in logs if log.living is not None)


def broken_tag_entries(objects: Objects) -> Iterator[tuple[str, str]]:
    """Entries of the logs of tags that are damaged or missing, and why."""
    return ref_logs.broken_entries(objects, _TAGS)


def claimed_tags(objects: Objects) -> tuple[Tag, ...]:
    """Every tag that is ready or may be soon, by name: for removals of versions."""
    logs = tag_logs(objects).values()
    return tuple(log.claimed for log in logs if log.claimed is not None)


def _tag(fields: Mapping[str, Any]) -> Tag:
    tag = typed(Tag, {**fields, "tables": decoded(fields["tables"])})
    moment(tag.created_at)
    return tag


def _paths(tag: Tag) -> Iterator[str]:
    yield from (part for part in (tag.branch, tag.incarnation, tag.schema_hash) if part)
    yield from paths_in(tag.tables)


_TAGS: Final = ref_logs.RefKind(
    thing="tag",
    directory=names.TAG_REFS_DIR,
    post_abandon="tag.post_abandon",
    decoded=_tag,
    named=lambda tag: tag.tag,
    paths=_paths,
    format=names.STAMP_OF_MARKERS,
)
