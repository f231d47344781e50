"""Reads earlier states of a branch, by manifest version, commit or point in time; lists commits.

The newest commits of a branch are in the manifests, older ones in the history.

Invariant: what a commit left is read from the manifest version it made while that may be believed,
less what later commits of the same swap moved, and afterwards put together from the commits: of
every table the newest move at or before it. Both give the same snapshot; what neither knows raises
an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from omnigraph_lake import names
from omnigraph_lake.arguments import text_or_none
from omnigraph_lake.display.cells import Moment, short_ids
from omnigraph_lake.display.pages import Listing, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import (
    DamagedGraphError,
    InvalidInputError,
    NoLongerKeptError,
    NotFoundError,
)
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph, commit_graph
from omnigraph_lake.storage.manifest.state import ManifestState
from omnigraph_lake.storage.manifest.swap import (
    commits_of_fork,
    manifest_branches,
    read_manifest_version,
)
from omnigraph_lake.storage.manifest_rows import GraphCommit, SchemaChange, Table, TableVersion
from omnigraph_lake.storage.snapshot import ChecksumRef, Pin, Snapshot, TableEntry, fold_tables
from omnigraph_lake.storage.staging.table_versions import VersionFacts, facts_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects


def branch_commits(
    root: Root, state: ManifestState, *, also: Iterable[GraphCommit] = ()
) -> tuple[GraphCommit, ...]:
    """Every commit the branch descends from, newest first, as far as it is known."""
    return commit_graph(root, state, also=also).reachable(state.head.commit_id)


def snapshot_at_commit(root: Root, state: ManifestState, commit_id: str) -> Snapshot | None:
    """The graph as a commit left it; None if neither this state nor the history knows it.

    The history is not read for a commit that the state itself knows and still has whole.
    """
    for row in state.known_rows:
        if isinstance(row, GraphCommit) and row.commit_id == commit_id:
            left = _kept(root, state, row)
            if left is not None:
                return left
    graph = commit_graph(root, state)
    commit = graph.get(commit_id)
    if commit is None:
        return None
    return _kept(root, state, commit) or _put_together(root, state, graph, commit)


def snapshot_of(
    root: Root, states: Sequence[ManifestState], graph: CommitGraph, commit: GraphCommit
) -> Snapshot:
    """The state after a commit of one of these branches, or as recorded by the commits alone."""
    for state in states:
        left = _kept(root, state, commit)
        if left is not None:
            return left
    known = commit_graph(root, *states).commits
    return _put_together(root, states[0], CommitGraph({**known, **graph.commits}), commit)


def snapshot_at_time(root: Root, state: ManifestState, moment: datetime) -> Snapshot:
    """The branch as its newest commit that is not younger than the moment left it."""
    graph = commit_graph(root, state)
    line = list(graph.line(state.head.commit_id))
    for commit in line:
        if datetime.fromisoformat(commit.created_at) <= moment:
            return _kept(root, state, commit) or _put_together(root, state, graph, commit)
    began = f"; its first commit is of {line[-1].created_at}" if line else ""
    raise NotFoundError(
        f"{root} had no commit at {moment.isoformat()}{began}",
        next_step=f"Run `omnigraph commit list {root}`.",
    )


def moves_up_to(graph: CommitGraph, commit_id: str, tables: int) -> dict[str, Pin]:
    """Where a commit and those before it left every table, until that many are known.

    A schema change knows all of them.
    """
    moves: dict[str, Pin] = {}
    for commit in graph.line(commit_id):
        if commit.schema_change is not None:
            for table_key, _, version, fork in commit.schema_change.tables:
                moves.setdefault(table_key, Pin(version, fork))
            break
        for table_key, version, fork in commit.tables:
            moves.setdefault(table_key, Pin(version, fork))
        if len(moves) >= tables:
            break
    return moves


def last_schema_change(graph: CommitGraph, commit_id: str) -> SchemaChange | None:
    """The newest schema change at or before a commit."""
    changes = (commit.schema_change for commit in graph.line(commit_id))
    return next((change for change in changes if change is not None), None)


def tables_under(state: ManifestState, change: SchemaChange | None) -> tuple[Table, ...]:
    """The tables of every commit after a schema change and before the next, with their paths."""
    if change is None:
        return tuple(row for row in state.rows if isinstance(row, Table) and row.made_by is None)
    return tuple(Table(table_key=key, location=place) for key, place, _, _ in change.tables)


def _with_facts(entry: TableEntry, facts: VersionFacts) -> TableEntry:
    checksums = None
    if facts.made_at is not None:
        checksums = ChecksumRef(entry.fork, entry.version, facts.made_at, None)
    return replace(entry, row_count=facts.rows, made_at=facts.made_at, checksums=checksums)


def moment_of(text: str) -> datetime:
    """A point in time written as ISO 8601; one without a zone is taken as UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(
            f"{text!r:.80} is not a point in time",
            next_step="Write it as 2026-11-01 or 2026-11-01T12:30:00+01:00.",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _kept(root: Root, state: ManifestState, commit: GraphCommit) -> Snapshot | None:
    """What the commit left, from the manifest version it made, if this branch still keeps that."""
    if commit.commit_id == state.head.commit_id:
        return state.snapshot()
    if commit.branch != state.branch:
        return None
    try:
        left = read_manifest_version(root, commit.manifest_version, branch=state.ref)
    except NotFoundError:
        return None
    if left.head.commit_id == commit.commit_id:
        return left.snapshot()
    return _before_others(root, left, commit)


def _before_others(root: Root, left: ManifestState, commit: GraphCommit) -> Snapshot | None:
    """What a commit left that one swap published with later ones; None if that is not known.

    Tables that the later ones moved are where the commit itself left them.
    """
    together = {
        row.commit_id: row
        for row in left.rows
        if isinstance(row, GraphCommit) and row.manifest_version == left.version
    }
    moved_later: set[str] = set()
    current = together.get(left.head.commit_id)
    while current is not None and current.commit_id != commit.commit_id:
        moved_later |= {table_key for table_key, _, _ in current.tables}
        current = together.get(current.parent_id or "")
    moves = {table_key: Pin(version, fork) for table_key, version, fork in commit.tables}
    if current is None or not moved_later <= moves.keys():
        return None
    snapshot = left.snapshot()
    tables = dict(snapshot.tables)
    for table_key in moved_later:
        pin = moves[table_key]
        entry = replace(tables[table_key], version=pin.version, fork=pin.fork)
        facts = facts_at(root, entry, pin.version)
        if facts is None:
            return None
        tables[table_key] = _with_facts(entry, facts)
    return replace(snapshot, head=None, tables=tables, commit_id=commit.commit_id)


def _put_together(
    root: Root, state: ManifestState, graph: CommitGraph, commit: GraphCommit
) -> Snapshot:
    change = last_schema_change(graph, commit.commit_id)
    tables = tables_under(state, change)
    known = {table.table_key for table in tables}
    moves = {
        key: pin
        for key, pin in moves_up_to(graph, commit.commit_id, len(tables)).items()
        if key in known
    }
    versions = [
        TableVersion(table_key=key, version=pin.version, branch=None, row_count=0, fork=pin.fork)
        for key, pin in moves.items()
    ]
    entries = fold_tables((*tables, *versions), lineage=(None,))
    stored_facts = {key: facts_at(root, entry, entry.version) for key, entry in entries.items()}
    facts = {
        key: version_facts
        for key, version_facts in stored_facts.items()
        if version_facts is not None
    }
    missing_keys = sorted(stored_facts.keys() - facts.keys())
    if missing_keys or (len(moves) < len(tables) and not _is_whole(graph, commit.commit_id)):
        unknown_keys = missing_keys or sorted({table.table_key for table in tables} - moves.keys())
        raise NoLongerKeptError(
            f"commit {commit.commit_id} is known, but its data of {', '.join(unknown_keys[:3])} "
            "is no longer kept",
            next_step="Choose a newer commit; tags keep the commits they name.",
        )
    return Snapshot(
        branch=commit.branch,
        manifest_version=commit.manifest_version,
        head=None,
        tables={key: _with_facts(entry, facts[key]) for key, entry in entries.items()},
        commit_id=commit.commit_id,
        schema_hash=_first_schema(state) if change is None else change.after,
    )


def _is_whole(graph: CommitGraph, commit_id: str) -> bool:
    """Whether all moves up to a commit are known: what did not move was not there yet."""
    return graph.gap(commit_id) is None and all(
        commit.tables or commit.operation_id for commit in graph.line(commit_id)
    )


def _first_schema(state: ManifestState) -> str | None:
    """None for manifests that do not say it."""
    return None if state.assumed else state.head.first_schema


def list_commits(
    objects: Objects, state: ManifestState, *, actor: str | None = None, limit: int | None = None
) -> Listing[GraphCommit]:
    """Commits newest first, merged ones too, of one actor if asked.

    Raises:
        DamagedGraphError: a part of the history is lost.
    """
    text_or_none(actor, argument="actor")
    wanted: object = limit
    if wanted is not None and not (isinstance(wanted, int) and wanted >= 0):
        raise InvalidInputError(f"limit is {shown(wanted)}, expected a number of commits")
    commits = branch_commits(objects.root, state)
    if _misses_merged(commits):
        commits = branch_commits(objects.root, state, also=all_commits(objects.root))
    _require_history(objects.root, state, commits)
    listed = [commit for commit in commits if actor is None or commit.actor == actor]
    return CommitListing(listed[:limit])


def find_commit(root: Root, state: ManifestState, commit_id: str) -> GraphCommit:
    """A commit that any branch knows.

    Raises:
        DamagedGraphError: it is lost.
    """
    commit = commit_graph(root, state, also=all_commits(root)).get(commit_id)
    if commit is None:
        raise _lost(root, f"commit {commit_id}")
    return commit


class CommitListing(Listing["GraphCommit"]):
    """Commits, as a table."""

    __slots__ = ()

    def _page(self) -> Page:
        return commit_page(self, [commit.commit_id for commit in self])


def commit_page(commits: Sequence[GraphCommit], known: Collection[str]) -> Page:
    """Commits by prefixes that are unique among all that are known."""
    short, has_messages = short_ids(known), any(commit.message for commit in commits)
    rows = [
        (
            short[commit.commit_id],
            Moment(commit.created_at),
            commit.actor,
            (commit.branch or names.MAIN) + (" (merge)" if commit.merged_parent_id else ""),
            *((commit.note.subject,) if has_messages else ()),
            ", ".join(table_key for table_key, _, _ in commit.tables),
        )
        for commit in commits
    ]
    messages = ("message",) if has_messages else ()
    header = ("commit", "when", "actor", "branch", *messages, "tables")
    return Page(tables=[TableView(header=header, rows=rows, empty="no commits")])


def all_commits(root: Root) -> Iterator[GraphCommit]:
    """The commits in every manifest there is, also of branches that are deleted and not yet gone.

    Before a manifest is dropped, its commits are put into the history.
    """
    for lance_branch in (None, *manifest_branches(root)):
        yield from commits_of_fork(root, lance_branch)


def _require_history(root: Root, state: ManifestState, commits: tuple[GraphCommit, ...]) -> None:
    """Every commit of the branch itself is known, and who made it.

    Commits leave the manifest once they and their actors are in the history.
    """
    graph = CommitGraph({commit.commit_id: commit for commit in commits})
    for commit in graph.line(state.head.commit_id):
        # Commits of the first formats name no operation, and their actors were not always recorded.
        if commit.operation_id and not commit.actor:
            raise _lost(root, f"actor of commit {commit.commit_id}")
    missing = graph.gap(state.head.commit_id)
    if missing is not None:
        raise _lost(root, f"commit {missing}")


def _lost(root: Root, thing: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"the {thing} is neither in the manifest of {root} nor in its history: "
        "a part of the history is lost. No table is at risk",
        next_step=f"Restore {names.COMMITS} and {names.COMMIT_ACTORS} from a backup.",
    )


def _misses_merged(commits: tuple[GraphCommit, ...]) -> bool:
    known = {commit.commit_id for commit in commits}
    return any(commit.merged_parent_id not in {None, *known} for commit in commits)
