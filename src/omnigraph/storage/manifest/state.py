"""What one version of a manifest says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.manifest_rows import GraphHead, ManifestFacts, ManifestRow
from omnigraph.storage.snapshot import Snapshot, take_snapshot

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph.storage.manifest.branch_identity import BranchRef
    from omnigraph.storage.objects.location import Root


@dataclass(frozen=True, kw_only=True)
class ManifestState:
    """One version of a branch's manifest, read whole."""

    ref: BranchRef | None
    """The incarnation of the branch; None is main."""
    version: int
    facts: ManifestFacts
    rows: tuple[ManifestRow, ...] = field(repr=False)
    """What is stored; a swap is made from these."""
    handle: LanceDataset = field(repr=False, compare=False)
    root: Root = field(repr=False, compare=False)
    assumed: tuple[ManifestRow, ...] = field(default=(), repr=False)
    """Substitutes for a head and a commit in a format that has none."""

    @property
    def known_rows(self) -> tuple[ManifestRow, ...]:
        return (*self.rows, *self.assumed) if self.assumed else self.rows

    @property
    def stamp(self) -> int:
        """The internal format."""
        return self.facts.stamp

    @property
    def branch(self) -> str | None:
        return None if self.ref is None else self.ref.branch

    @property
    def head(self) -> GraphHead:
        """The branch's own head.

        Raises:
            DamagedGraphError: it has none.
        """
        for row in self.known_rows:
            if isinstance(row, GraphHead) and row.branch == self.branch:
                return row
        raise DamagedGraphError(
            f"{names.MANIFEST} of {self.root} has no head of branch {self.branch or names.MAIN!r}",
            next_step=f"Run `omnigraph check {self.root} --deep` to see what else is damaged.",
        )

    @property
    def schema_hash(self) -> str | None:
        """The accepted schema; manifests without a head do not say."""
        heads = (row for row in self.rows if isinstance(row, GraphHead))
        return next((head.schema_hash for head in heads if head.branch == self.branch), None)

    def snapshot(self) -> Snapshot:
        """What a reader of the branch sees."""
        return self._snapshot

    @cached_property
    def _snapshot(self) -> Snapshot:
        snapshot = take_snapshot(self.known_rows, branch=self.branch, manifest_version=self.version)
        # A manifest without heads does not say which schema it belongs to.
        return replace(snapshot, schema_hash=None) if self.assumed else snapshot
