"""The schemas of a merge: which one results, and how rows of every side are brought to it.

| Changed the schema since the base | The merged schema |
|---|---|
| neither side | as it is |
| the source | that of the source |
| the target | that of the target |
| both, to the same schema | that schema |
| both, to different schemas | both changes together, if they go together |

Invariants:
- Decided from commits and catalogs alone; no row is read.
- Where commits recorded what they wrote into rows, lifted rows of the base equal the rows that a
  side converted and did not edit. Where they did not, rows are compared.
- Nothing that a side changed is dropped without a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omnigraph_lake.errors import ConflictError, InvalidInputError
from omnigraph_lake.evolution.lifting import (
    RecordedStep,
    SchemaStep,
    TableLift,
    decode_steps,
    decode_values,
    encode_steps,
    encode_values,
    missing_properties,
    table_lift,
)
from omnigraph_lake.evolution.table_changes import WrittenValues
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.merge.both_changed import (
    SameNumbers,
    SideValues,
    ValuesToLift,
    collect_values,
    conflict_of_schemas,
    conflict_rows,
    fills_by_column,
    merge_values,
    renumber,
    step_to,
)
from omnigraph_lake.merge.conflicts import CONFLICT_SCHEMA
from omnigraph_lake.validation.schema_contract import contract_for

if TYPE_CHECKING:
    from omnigraph_lake.merge.catalog_conflicts import SchemaConflict
    from omnigraph_lake.merge.catalogs import MergedSchema
    from omnigraph_lake.merge.conflicts import Side
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.commit_graph import CommitGraph
    from omnigraph_lake.storage.manifest_rows import GraphCommit, SchemaChange
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
    from omnigraph_lake.validation.schema_contract import Contracts, SchemaContract


@dataclass(frozen=True, slots=True, kw_only=True)
class SideOfMerge:
    """One side, or the base: its commit and the hash of its schema."""

    name: str
    commit_id: str
    schema_hash: str
    is_past: bool = False
    """Whether it is a state of the past, which gets no other schema."""


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
    same: SameNumbers = field(default_factory=dict, repr=False)
    resolved: pa.Table = field(default_factory=CONFLICT_SCHEMA.empty_table, repr=False)
    """The conflicts that the resolution decided."""

    def with_common_numbers(self, contract: SchemaContract) -> Catalog:
        """The catalog of one of them by the numbers that all have in common."""
        return renumber(contract.catalog, self.same)

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
    resolution: Mapping[str, Side],
) -> MergedSchemas | None:
    """The schemas of a merge; None if no side changed the schema.

    `resolution` says which side counts for elements that both changed differently.

    Raises:
        InvalidInputError: the resolution names an element that no side has.
        MergeConflictError: both sides changed it, and their changes do not go together.
        ConflictError: both came to one schema by different values.
    """
    require_elements(resolution, (contracts.of(side.schema_hash) for side in (base, ours, theirs)))
    if base.schema_hash == ours.schema_hash == theirs.schema_hash:
        return None
    same = _same_numbers(graph, ours, theirs)
    paths = _Paths(contracts, graph, base, same)
    if ours.schema_hash == theirs.schema_hash:
        _require_same_values(paths, ours, theirs)
        merged = ours
    elif ours.schema_hash == base.schema_hash:
        merged = theirs
    elif theirs.schema_hash == base.schema_hash:
        merged = ours
    else:
        return _merge_both(contracts, paths, (base, ours, theirs), resolution)
    path = _without_detours(paths.to(merged))
    return MergedSchemas(
        base=contracts.of(base.schema_hash),
        ours=contracts.of(ours.schema_hash),
        theirs=contracts.of(theirs.schema_hash),
        merged=contracts.of(merged.schema_hash),
        from_base=path,
        from_ours=path if ours.schema_hash == base.schema_hash else SchemaPath(),
        from_theirs=path if theirs.schema_hash == base.schema_hash else SchemaPath(),
        same=same,
    )


def _without_detours(path: SchemaPath) -> SchemaPath:
    """The path in one step if a type or property was dropped on it and came back.

    Rows that never took the path keep what they have of it.
    """
    if not path.steps:
        return path
    before, after = path.steps[0].before, path.steps[-1].after
    lasting = _numbers(before) & _numbers(after)
    if all(lasting <= _numbers(step.after) for step in path.steps):
        return path
    values = collect_values(path.steps)
    to_lift = ValuesToLift(
        fills=values.fills, null_fills=values.null_fills, mappings=values.mappings
    )
    return replace(path, steps=(step_to(after, before, to_lift, is_known=values.is_known),))


def _numbers(catalog: Catalog) -> frozenset[int]:
    """The numbers of all types and properties."""
    return frozenset(
        number
        for declared in catalog.tables().values()
        for number in (declared.number, *(prop.number for prop in declared.properties.values()))
    )


def _same_numbers(graph: CommitGraph, *sides: SideOfMerge) -> SameNumbers:
    """What merges on the lines of both sides took for one, with the number that it has since."""
    pairs: dict[int, int] = {}
    for side in sides:
        for commit in graph.line(side.commit_id):
            change = commit.schema_change
            if change is not None and change.values is not None:
                pairs |= {
                    one: other for step in decode_steps(change.values) for one, other in step.same
                }
    same: dict[int, int] = {}
    for number in pairs:
        last, passed = number, set[int]()
        while last in pairs and last not in passed:
            passed.add(last)
            last = pairs[last]
        same[number] = last
    return same


def require_elements(resolution: Mapping[str, Side], contracts: Iterable[SchemaContract]) -> None:
    """Refuse a resolution with a type or property that no schema of the merge has."""
    if not resolution:
        return
    known = {
        element
        for contract in contracts
        for declared in (*contract.catalog.tables().values(), *contract.catalog.interfaces.values())
        for element in (declared.name, *(f"{declared.name}.{name}" for name in declared.properties))
    }
    for element in resolution:
        if element not in known:
            hint = did_you_mean(element, known)
            raise InvalidInputError(
                f"the resolution names {shown(element)}, which no schema of the merge has"
                + (f"; {hint}" if hint else ""),
                next_step="Name a type, as `Person`, or a property, as `Person.age`.",
            )


def _merge_both(
    contracts: Contracts,
    paths: _Paths,
    sides: tuple[SideOfMerge, SideOfMerge, SideOfMerge],
    resolution: Mapping[str, Side],
) -> MergedSchemas:
    from omnigraph_lake.schema.printing import print_schema

    same = paths.same
    base, ours, theirs = sides
    before, our_catalog, their_catalog = (
        renumber(contracts.of(side.schema_hash).catalog, same) for side in (base, ours, theirs)
    )
    our_values, their_values = (collect_values(paths.to(side).steps) for side in (ours, theirs))
    result, resolved = _merge_catalogs(
        before, (our_catalog, our_values), (their_catalog, their_values), resolution
    )
    if result.catalog is None:
        raise conflict_of_schemas(
            theirs.name, ours.name, result.conflicts, can_change_source=not theirs.is_past
        )
    same = {**same, **result.same_numbers}
    values = merge_values(result, our_values, their_values)
    is_known = our_values.is_known and their_values.is_known
    from_base, from_ours, from_theirs = (
        step_to(result.catalog, catalog, values_to_lift, is_known=is_known)
        for catalog, values_to_lift in (
            (before, values.base),
            (our_catalog, values.ours),
            (renumber(their_catalog, same), values.theirs),
        )
    )
    merged = contract_for(print_schema(result.catalog), result.catalog)
    recorded, recorded_of_theirs = (
        RecordedStep(
            before=side.schema_hash,
            after=merged.model_hash,
            values=tuple(encode_values(step.values, step.before)) if step.is_known else None,
            same=tuple(sorted(same.items())),
            is_of_source=side is theirs,
        )
        for side, step in ((ours, from_ours), (theirs, from_theirs))
    )
    return MergedSchemas(
        base=contracts.of(base.schema_hash),
        ours=contracts.of(ours.schema_hash),
        theirs=contracts.of(theirs.schema_hash),
        merged=merged,
        from_base=SchemaPath(steps=(from_base,)),
        from_ours=SchemaPath(recorded=(recorded, recorded_of_theirs), steps=(from_ours,)),
        from_theirs=SchemaPath(steps=(from_theirs,)),
        same=same,
        resolved=conflict_rows(resolved, resolution),
    )


def _merge_catalogs(
    before: Catalog,
    ours: tuple[Catalog, SideValues],
    theirs: tuple[Catalog, SideValues],
    resolution: Mapping[str, Side],
) -> tuple[MergedSchema, list[SchemaConflict]]:
    """Merge catalogs, and the conflicts that the resolution decided.

    It counts for elements whose conflicts a side can decide.
    """
    from omnigraph_lake.merge.catalogs import SchemaSide, merge_catalogs  # the compiler

    our_side, their_side = (
        SchemaSide(catalog=catalog, fills=fills_by_column(values, before), mappings=values.mappings)
        for catalog, values in (ours, theirs)
    )
    merged = merge_catalogs(before, our_side, their_side)
    undecided = {one.element for one in merged.conflicts if not one.is_decided_by_a_side}
    decided = {element: side for element, side in resolution.items() if element not in undecided}
    resolved = [one for one in merged.conflicts if one.element in decided]
    if resolved:
        merged = merge_catalogs(before, our_side, their_side, decided)
    return merged, resolved


def conflicts_after(
    contracts: Contracts,
    graph: CommitGraph,
    *,
    base: SideOfMerge,
    ours: SideOfMerge,
    theirs: SideOfMerge,
    step: SchemaStep,
) -> tuple[SchemaConflict, ...]:
    """The conflicts that a further change of ours would have with the schema of theirs."""
    if theirs.schema_hash == base.schema_hash:
        return ()
    same = _same_numbers(graph, ours, theirs)
    paths = _Paths(contracts, graph, base, same)
    our_steps = (*paths.to(ours).steps, _renumber_step(step, same))
    result, _ = _merge_catalogs(
        renumber(contracts.of(base.schema_hash).catalog, same),
        (our_steps[-1].after, collect_values(our_steps)),
        (
            renumber(contracts.of(theirs.schema_hash).catalog, same),
            collect_values(paths.to(theirs).steps),
        ),
        {},
    )
    return result.conflicts


_MERGED_LINES_MAX: Final = 100
"""Of a history with more merges, the newest ones are looked at."""


class _Paths:
    """Looks up what commits recorded of changes of the schema."""

    def __init__(
        self, contracts: Contracts, graph: CommitGraph, base: SideOfMerge, same: SameNumbers
    ) -> None:
        self.same = same
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
        """The changes from the schema of the base to that of a side; None if they are not recorded.

        The line of the side counts if it leads to the base. If not, the base came to the side by a
        merge, and the line of the merged branch counts up to it.
        """
        waiting: list[tuple[str, str, tuple[RecordedStep, ...]]] = [
            (side.commit_id, side.schema_hash, ())
        ]
        passed: set[str] = set()
        for commit_id, schema_hash, later_steps in waiting:
            steps = self._find_on_line(commit_id, schema_hash)
            if steps is not None:
                return (*steps, *later_steps)
            for commit, steps in self._walk(commit_id, schema_hash):
                parent_id = commit.merged_parent_id
                if parent_id is None or parent_id in passed or len(passed) == _MERGED_LINES_MAX:
                    continue
                passed.add(parent_id)
                expected = steps[0].before if steps else schema_hash
                of_source = _step_of_source(commit, after=expected)
                waiting.append(
                    (parent_id, expected, (*steps, *later_steps))
                    if of_source is None
                    else (parent_id, of_source.before, (of_source, *steps, *later_steps))
                )
        return None

    def _walk(
        self, commit_id: str, schema_hash: str
    ) -> Iterator[tuple[GraphCommit, tuple[RecordedStep, ...]]]:
        """The commits of a line, with the changes since each; no more if they lead elsewhere."""
        steps: tuple[RecordedStep, ...] = ()
        for commit in self._graph.line(commit_id):
            yield commit, steps
            if commit.schema_change is not None:
                if not steps and commit.schema_change.after != schema_hash:
                    return
                steps = (*_steps_of(commit.schema_change), *steps)

    def _find_on_line(self, commit_id: str, schema_hash: str) -> tuple[RecordedStep, ...] | None:
        """The changes along a line from the schema of the base on.

        The line has to lead to the base, or to a merge of it: then rows of the base were brought to
        the schema of that moment, by changes that are older than the merge. None if the line had
        the schema of the base more than once: what was written in between is not known.
        """
        known_steps: tuple[RecordedStep, ...] | None = None
        has_base = False
        for commit, steps in self._walk(commit_id, schema_hash):
            is_base = self._base.commit_id in (commit.commit_id, commit.merged_parent_id)
            has_base |= is_base
            expected = steps[0].before if steps else schema_hash
            if known_steps is None and has_base:
                # The merge may be an earlier one: of a commit that had this schema already.
                from_base = _step_of_source(commit, after=expected)
                if from_base is not None and from_base.before == self._base.schema_hash:
                    return (from_base, *steps)
                if expected == self._base.schema_hash:
                    known_steps = steps
            if is_base and (known_steps is not None or commit.commit_id == self._base.commit_id):
                return known_steps
            if (
                known_steps is not None
                and commit.schema_change is not None
                and commit.schema_change.before == self._base.schema_hash
            ):
                return None
        return known_steps

    def _step(self, step: RecordedStep) -> SchemaStep:
        hashes = (step.before, step.after)
        before, after = (self._contracts.of(schema_hash).catalog for schema_hash in hashes)
        values, is_known = WrittenValues(), step.values is not None
        try:
            values = decode_values(step.values or (), before)
        except KeyError:  # by a number that a merge has replaced since
            is_known = False
        known_step = SchemaStep(before=before, after=after, values=values, is_known=is_known)
        return _renumber_step(known_step, self.same)


def _renumber_step(step: SchemaStep, same: SameNumbers) -> SchemaStep:
    return replace(
        step,
        before=renumber(step.before, same),
        after=renumber(step.after, same),
        values=_renumber_values(step.values, same),
    )


def _renumber_values(values: WrittenValues, same: SameNumbers) -> WrittenValues:
    def place(numbers: tuple[int, int]) -> tuple[int, int]:
        return same.get(numbers[0], numbers[0]), same.get(numbers[1], numbers[1])

    return WrittenValues(
        fills={place(numbers): fill for numbers, fill in values.fills.items()},
        mappings={place(numbers): pairs for numbers, pairs in values.mappings.items()},
    )


def _steps_of(change: SchemaChange) -> tuple[RecordedStep, ...]:
    if change.values is None:
        return (RecordedStep(before=change.before, after=change.after, values=None),)
    return tuple(step for step in decode_steps(change.values) if not step.is_of_source)


def _step_of_source(commit: GraphCommit, *, after: str) -> RecordedStep | None:
    """The step that a merge recorded from the schema of its source, as one of its own line.

    A commit that takes a path over records it so.
    """
    change = commit.schema_change
    if change is None or change.values is None:
        return None
    for step in decode_steps(change.values):
        if step.is_of_source and step.after == after:
            return replace(step, is_of_source=False)
    return None


def _require_same_values(paths: _Paths, ours: SideOfMerge, theirs: SideOfMerge) -> None:
    """Refuse sides that came to one schema by different values for the rows of the base."""
    our_steps, their_steps = paths.to(ours).steps, paths.to(theirs).steps
    if not our_steps or not their_steps:
        return
    our_values, their_values = collect_values(our_steps), collect_values(their_steps)
    for key, declared in our_steps[-1].after.tables().items():
        lifts = [table_lift(steps, declared.number) for steps in (our_steps, their_steps)]
        if not all(lift is not None and lift.is_known for lift in lifts):
            continue
        for prop in declared.properties.values():
            if our_values.of(prop.number) != their_values.of(prop.number):
                raise ConflictError(
                    f"{theirs.name} cannot be merged into {ours.name}: both changed the schema of "
                    f"{key} to the same one, and gave different values to the rows [SM-108]",
                    next_step="Merge a commit from before the change of one side, and then apply "
                    "it.",
                )


def sides_of(
    schemas: MergedSchemas, before: Snapshot, ours: Snapshot, theirs: Snapshot
) -> Iterator[TableSides]:
    """Every type of the merged schema, by its number on all sides."""
    our_catalog, their_catalog = (
        schemas.with_common_numbers(contract) for contract in (schemas.ours, schemas.theirs)
    )
    base_keys, our_keys, their_keys = map(
        _keys, (schemas.with_common_numbers(schemas.base), our_catalog, their_catalog)
    )
    merged = schemas.with_common_numbers(schemas.merged)
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
            else missing_properties(our_catalog, merged, number),
            theirs_lacks=frozenset()
            if their_key is None
            else missing_properties(their_catalog, merged, number),
        )


def _entry(snapshot: Snapshot, key: str | None) -> TableEntry | None:
    return None if key is None else snapshot.tables.get(key)


def _keys(catalog: Catalog) -> Mapping[int, str]:
    return {declared.number: key for key, declared in catalog.tables().items()}
