"""Who merges rows into which branch, and how conflicts are resolved: what merging verbs share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph_lake.commit.phases import Author
from omnigraph_lake.merge.conflicts import MergePolicy
from omnigraph_lake.merge.row_merge import MergeWay
from omnigraph_lake.notes import NO_NOTE, CommitNote

if TYPE_CHECKING:
    from omnigraph_lake.merge.conflicts import Resolution
    from omnigraph_lake.runner.protocol import Runner
    from omnigraph_lake.storage.manifest.state import BranchRef


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTerms:
    """The branch that rows are merged into, by whom, and how to resolve conflicts."""

    target: BranchRef | None
    resolution: Resolution
    column_level: bool
    actor: str
    operation_id: str
    runner: Callable[[], AbstractContextManager[Runner]]
    """Opens what decides and writes rows."""
    note: CommitNote = NO_NOTE

    @property
    def author(self) -> Author:
        return Author(
            operation_id=self.operation_id, actor=self.actor, branch=self.target, note=self.note
        )

    def way(self, source_name: str) -> MergeWay:
        """How the rows of a source, which messages name like that, come to the target."""
        return MergeWay(
            source_name=source_name,
            target=self.target,
            operation_id=self.operation_id,
            runner=self.runner,
        )

    def policy(self, *, source_is_newer: bool) -> MergePolicy:
        return MergePolicy(
            resolution=self.resolution,
            column_level=self.column_level,
            source_is_newer=source_is_newer,
        )
