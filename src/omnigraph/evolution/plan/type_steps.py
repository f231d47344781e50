"""Steps about a type as a whole, and about the constraints of its properties.

Invariant: none of them changes a table that has rows; their checks may read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from omnigraph.evolution.plan.columns import Declared
from omnigraph.evolution.plan.data_checks import DataCheck
from omnigraph.evolution.plan.step_kinds import DropMode, StepKind, StepOfType
from omnigraph.schema.catalog import Cardinality, Check, Index, Key, Metadata, Range, Unique

Constraint: TypeAlias = Key | Unique | Index | Range | Check


@dataclass(frozen=True, slots=True, kw_only=True)
class AddType(StepOfType):
    """A new declaration; nodes and edges get an empty table."""

    kind: ClassVar[StepKind] = StepKind.ADD_TYPE

    declared: Declared


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameType(StepOfType):
    """Another name for the same number and the same table."""

    kind: ClassVar[StepKind] = StepKind.RENAME_TYPE

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTypeMetadata(StepOfType):
    """Description, instruction and stored annotations of a type as they will be."""

    kind: ClassVar[StepKind] = StepKind.UPDATE_TYPE_METADATA

    description: str | None
    instruction: str | None
    metadata: tuple[Metadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInterfaces(StepOfType):
    """The interfaces a node implements; what its columns gain or lose are steps of their own."""

    kind: ClassVar[StepKind] = StepKind.CHANGE_INTERFACES

    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveConstraint(StepOfType):
    """A rule or an index that is no longer wanted."""

    kind: ClassVar[StepKind] = StepKind.REMOVE_CONSTRAINT

    constraint: Constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class RespellConstraint(StepOfType):
    """The same constraint written elsewhere, or with its members in another order."""

    kind: ClassVar[StepKind] = StepKind.RESPELL_CONSTRAINT

    old: Constraint
    new: Constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConstraint(StepOfType):
    """A new rule or index; maintenance builds the index."""

    kind: ClassVar[StepKind] = StepKind.ADD_CONSTRAINT

    constraint: Constraint
    needs: tuple[DataCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCardinality(StepOfType):
    """Other bounds for the edges of one source."""

    kind: ClassVar[StepKind] = StepKind.CHANGE_CARDINALITY

    old: Cardinality
    new: Cardinality
    needs: tuple[DataCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropType(StepOfType):
    """A type is dropped with its table; its number is never used again."""

    kind: ClassVar[StepKind] = StepKind.DROP_TYPE

    mode: DropMode
