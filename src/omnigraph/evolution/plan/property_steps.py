"""Steps about one property of one type.

Invariant: a step names its property by number and by the name it has when the step is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from omnigraph.evolution.plan.columns import Fill, ValueMapping
from omnigraph.evolution.plan.data_checks import DataCheck
from omnigraph.evolution.plan.step_kinds import (
    ColumnStep,
    CostClass,
    DropMode,
    StepKind,
    StepOfType,
)
from omnigraph.schema.catalog import Embed, Metadata, Property, PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameProperty(ColumnStep):
    """Another name for the same column; no value is written."""

    kind: ClassVar[StepKind] = StepKind.RENAME_PROPERTY

    number: int
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenProperty(ColumnStep):
    """A number type that holds every value of the old one."""

    kind: ClassVar[StepKind] = StepKind.WIDEN_PROPERTY

    number: int
    name: str
    old: PropertyType
    new: PropertyType
    needs: tuple[DataCheck, ...] = ()

    @property
    def writes_values(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendEnum(StepOfType):
    """More values are allowed."""

    kind: ClassVar[StepKind] = StepKind.EXTEND_ENUM

    number: int
    name: str
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValues(ColumnStep):
    """Stored values are replaced by others, all at once."""

    kind: ClassVar[StepKind] = StepKind.MAP_VALUES

    number: int
    name: str
    mapping: tuple[ValueMapping, ...]
    needs: tuple[DataCheck, ...] = ()

    @property
    def writes_values(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowEnum(StepOfType):
    """Fewer values are allowed."""

    kind: ClassVar[StepKind] = StepKind.NARROW_ENUM

    number: int
    name: str
    removed: tuple[str, ...]
    needs: tuple[DataCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumToString(StepOfType):
    """Any text is allowed."""

    kind: ClassVar[StepKind] = StepKind.ENUM_TO_STRING

    number: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StringToEnum(StepOfType):
    """Only these texts are allowed."""

    kind: ClassVar[StepKind] = StepKind.STRING_TO_ENUM

    number: int
    name: str
    values: tuple[str, ...]
    needs: tuple[DataCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetypePromise(StepOfType):
    """Another type or nullability of an interface property; nodes change by their own steps."""

    kind: ClassVar[StepKind] = StepKind.RETYPE_PROMISE

    number: int
    name: str
    type: PropertyType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeNullable(StepOfType):
    """Null is allowed."""

    kind: ClassVar[StepKind] = StepKind.MAKE_NULLABLE

    number: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeRequired(StepOfType):
    """Null is no longer allowed; a fill takes its place in existing rows."""

    kind: ClassVar[StepKind] = StepKind.MAKE_REQUIRED

    number: int
    name: str
    fill: Fill | None
    needs: tuple[DataCheck, ...] = ()

    @property
    def cost(self) -> CostClass:
        return CostClass.METADATA if self.fill is None else CostClass.COLUMN

    @property
    def writes_values(self) -> bool:
        return self.fill is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEmbed(StepOfType):
    """Another text or model that a vector is made from; stored vectors stay as they are."""

    kind: ClassVar[StepKind] = StepKind.CHANGE_EMBED

    number: int
    name: str
    old: Embed | None
    new: Embed | None
    needs: tuple[DataCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePropertyMetadata(StepOfType):
    """Description and stored annotations of a property as they will be."""

    kind: ClassVar[StepKind] = StepKind.UPDATE_PROPERTY_METADATA

    number: int
    name: str
    description: str | None
    metadata: tuple[Metadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOrigin(StepOfType):
    """Whether a node declares a property itself, and which interfaces it implements."""

    kind: ClassVar[StepKind] = StepKind.CHANGE_ORIGIN

    number: int
    name: str
    declared: bool
    interfaces: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddProperty(ColumnStep):
    """A new column after the others; null in existing rows unless it is filled."""

    kind: ClassVar[StepKind] = StepKind.ADD_PROPERTY

    added: Property
    fill: Fill | None = None
    needs: tuple[DataCheck, ...] = ()

    @property
    def writes_values(self) -> bool:
        return self.fill is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropProperty(ColumnStep):
    """A column leaves the table; its values are not rewritten."""

    kind: ClassVar[StepKind] = StepKind.DROP_PROPERTY

    number: int
    name: str
    mode: DropMode
