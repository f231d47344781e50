"""The schemas of a merge: which one results, and how rows of every side are brought to it.

| Changed the schema since the base | The merged schema |
|---|---|
| neither side | as it is |
| the source | that of the source |
| the target | that of the target |
| both, to the same schema | that schema |
| both, to different schemas | refused |

Invariants:
- Decided from commits and catalogs alone; no row is read.
- Where commits recorded what they wrote into rows, lifted rows of the base equal the rows that a
  side converted and did not edit. Where they did not, rows are compared.
- Nothing that a side changed is dropped without a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.errors import ConflictError
from omnigraph.evolution.lifting import (
    RecordedStep,
    SchemaStep,
    TableLift,
    decode_steps,
    decode_values,
    encode_steps,
    missing_properties,
    table_lift,
)

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.commit_graph import CommitGraph
    from omnigraph.storage.manifest_rows import SchemaChange
    from omnigraph.storage.snapshot import Snapshot, TableEntry
    from omnigraph.validation.schema_contract import Contracts, SchemaContract


@dataclass(frozen=True, slots=True, kw_only=True)
class SideOfMerge:
    """One side, or the base: its commit and the hash of its schema."""

    name: str
    commit_id: str
    schema_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPath:
    """The changes from one schema to another, as recorded and as catalogs."""

    recorded: tuple[RecordedStep, ...] = ()
    steps: tuple[SchemaStep, ...] = field(default=(), repr=False)

    def lift(self, number: int) -> TableLift | None:
        """How rows of a type are lifted; None if they are as they should be, or cannot be."""
        lift = table_lift(self.steps, number)
        return lift if lift is not None and lift.is_needed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSchemas:
    """The three schemas of a merge, the result, and the way to it from each of the three."""

    base: SchemaContract = field(repr=False)
    ours: SchemaContract = field(repr=False)
    theirs: SchemaContract = field(repr=False)
    merged: SchemaContract = field(repr=False)
    from_base: SchemaPath = field(repr=False)
    from_ours: SchemaPath = field(repr=False)
    from_theirs: SchemaPath = field(repr=False)

    @property
    def moves_ours(self) -> bool:
        """Whether the schema of the target changes."""
        return self.ours.model_hash != self.merged.model_hash

    @property
    def values(self) -> str:
        """What the commit records of the change of the target's schema."""
        return encode_steps(self.from_ours.recorded)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSides:
    """One type of the merged schema: its versions on all sides, and how their rows are lifted."""

    key: str
    before: TableEntry | None
    ours: TableEntry | None
    theirs: TableEntry | None
    before_lift: TableLift | None = field(default=None, repr=False)
    ours_lift: TableLift | None = field(default=None, repr=False)
    theirs_lift: TableLift | None = field(default=None, repr=False)
    ours_lacks: frozenset[str] = frozenset()
    theirs_lacks: frozenset[str] = frozenset()

    @property
    def unmoved(self) -> bool:
        """Whether the target has what the base had."""
        return _is_same(self.ours, self.before)

    @property
    def is_changed_by_theirs(self) -> bool:
        """Whether the source changed the table, and the target has not the very same already."""
        return not _is_same(self.theirs, self.before) and not _is_same(self.theirs, self.ours)


def _is_same(entry: TableEntry | None, other: TableEntry | None) -> bool:
    if entry is None or other is None:
        return entry is other
    return (entry.location, entry.pin) == (other.location, other.pin)


def merge_schemas(
    contracts: Contracts,
    graph: CommitGraph,
    *,
    base: SideOfMerge,
    ours: SideOfMerge,
    theirs: SideOfMerge,
) -> MergedSchemas | None:
    """The schemas of a merge; None if no side changed the schema.

    Raises:
        ConflictError: both sides changed it, to different schemas.
    """
    if base.schema_hash == ours.schema_hash == theirs.schema_hash:
        return None
    paths = _Paths(contracts, graph, base)
    if ours.schema_hash == theirs.schema_hash:
        merged, changed_side = ours, ours
        _require_same_values(paths, ours, theirs)
    elif ours.schema_hash == base.schema_hash:
        merged = changed_side = theirs
    elif theirs.schema_hash == base.schema_hash:
        merged = changed_side = ours
    else:
        raise _both_changed(ours, theirs)
    path = paths.to(changed_side)
    return MergedSchemas(
        base=contracts.of(base.schema_hash),
        ours=contracts.of(ours.schema_hash),
        theirs=contracts.of(theirs.schema_hash),
        merged=contracts.of(merged.schema_hash),
        from_base=path,
        from_ours=path if ours.schema_hash == base.schema_hash else SchemaPath(),
        from_theirs=path if theirs.schema_hash == base.schema_hash else SchemaPath(),
    )


def _both_changed(ours: SideOfMerge, theirs: SideOfMerge) -> ConflictError:
    return ConflictError(
        f"{theirs.name} cannot be merged into {ours.name}: both changed the schema since they "
        "diverged",
        next_step=f"Apply the schema of {ours.name} to {theirs.name}, or the other way round, and "
        "merge again.",
    )


class _Paths:
    """Looks up what commits recorded of changes of the schema."""

    def __init__(self, contracts: Contracts, graph: CommitGraph, base: SideOfMerge) -> None:
        self._contracts = contracts
        self._graph = graph
        self._base = base

    def to(self, side: SideOfMerge) -> SchemaPath:
        """The changes from the base to a side; one of unknown values if they are not recorded."""
        recorded = self._find_steps(side)
        if recorded is None:
            hashes = self._base.schema_hash, side.schema_hash
            recorded = (RecordedStep(before=hashes[0], after=hashes[1], values=None),)
        return SchemaPath(recorded=recorded, steps=tuple(map(self._step, recorded)))

    def _find_steps(self, side: SideOfMerge) -> tuple[RecordedStep, ...] | None:
        """The changes along the line of a side, if that leads to the base."""
        steps: tuple[RecordedStep, ...] = ()
        for commit in self._graph.line(side.commit_id):
            is_base = self._base.commit_id in (commit.commit_id, commit.merged_parent_id)
            expected = steps[0].before if steps else side.schema_hash
            if is_base and expected == self._base.schema_hash:
                return steps
            if commit.commit_id == self._base.commit_id:
                return None
            if commit.schema_change is not None:
                steps = (*_steps_of(commit.schema_change), *steps)
        return None

    def _step(self, step: RecordedStep) -> SchemaStep:
        hashes = (step.before, step.after)
        before, after = (self._contracts.of(schema_hash).catalog for schema_hash in hashes)
        values = None if step.values is None else decode_values(step.values, before)
        return SchemaStep(before=before, after=after, values=values)


def _steps_of(change: SchemaChange) -> tuple[RecordedStep, ...]:
    if change.values is None:
        return (RecordedStep(before=change.before, after=change.after, values=None),)
    return decode_steps(change.values)


def _require_same_values(paths: _Paths, ours: SideOfMerge, theirs: SideOfMerge) -> None:
    """Refuse sides that came to one schema by different values for the rows of the base."""
    our_path, their_path = paths.to(ours), paths.to(theirs)
    if not our_path.steps or not their_path.steps:
        return
    for key, declared in our_path.steps[-1].after.tables().items():
        lifts = (
            table_lift(our_path.steps, declared.number),
            table_lift(their_path.steps, declared.number),
        )
        our_lift, their_lift = lifts
        if our_lift is None or their_lift is None:
            continue
        if our_lift.is_known and their_lift.is_known and our_lift.steps != their_lift.steps:
            raise ConflictError(
                f"{theirs.name} cannot be merged into {ours.name}: both changed the schema of "
                f"{key} to the same one, and gave different values to the rows [SM-108]",
                next_step="Merge a commit from before the change of one side, and then apply it.",
            )


def sides_of(
    schemas: MergedSchemas, before: Snapshot, ours: Snapshot, theirs: Snapshot
) -> Iterator[TableSides]:
    """Every type of the merged schema, by its number on all sides."""
    base_keys, our_keys, their_keys = (
        _keys(contract.catalog) for contract in (schemas.base, schemas.ours, schemas.theirs)
    )
    merged = schemas.merged.catalog
    for key, declared in merged.tables().items():
        number = declared.number
        base_key, our_key, their_key = (
            keys.get(number) for keys in (base_keys, our_keys, their_keys)
        )
        yield TableSides(
            key=key,
            before=_entry(before, base_key),
            ours=_entry(ours, our_key),
            theirs=_entry(theirs, their_key),
            before_lift=schemas.from_base.lift(number),
            ours_lift=schemas.from_ours.lift(number),
            theirs_lift=schemas.from_theirs.lift(number),
            ours_lacks=frozenset()
            if our_key is None
            else missing_properties(schemas.ours.catalog, merged, number),
            theirs_lacks=frozenset()
            if their_key is None
            else missing_properties(schemas.theirs.catalog, merged, number),
        )


def _entry(snapshot: Snapshot, key: str | None) -> TableEntry | None:
    return None if key is None else snapshot.tables.get(key)


def _keys(catalog: Catalog) -> Mapping[int, str]:
    return {declared.number: key for key, declared in catalog.tables().items()}
