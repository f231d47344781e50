"""Define a schema change as one value: its steps, refusals and warnings.

Every step has a kind, a cost and conditions on rows. A step is about one property of a type, or
about a type as a whole and its constraints.

Invariants:
- Steps are in the order of their execution, and each uses the names that earlier steps introduced.
- Everything that differs between two catalogs is in a step or in a refusal.
- The names of kinds, costs and drop modes are part of the JSON form of a plan and never change
  their meaning.
- A step about a type as a whole or about constraints does not change a table that has rows; its
  checks may read the table.
- A step about a property names it by number and by the name it has when the step is executed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from omnigraph_lake.evolution.plan.columns import Declared, Fill, Subject, TypeKind, ValueMapping
from omnigraph_lake.evolution.plan.data_checks import DataCheck
from omnigraph_lake.schema import catalog as ct


class StepKind(enum.StrEnum):
    """The name of every step, as in JSON."""

    ADD_TYPE = "add_type"
    RENAME_TYPE = "rename_type"
    UPDATE_TYPE_METADATA = "update_type_metadata"
    CHANGE_INTERFACES = "change_interfaces"
    RENAME_PROPERTY = "rename_property"
    WIDEN_PROPERTY = "widen_property"
    EXTEND_ENUM = "extend_enum"
    MAP_VALUES = "map_values"
    NARROW_ENUM = "narrow_enum"
    ENUM_TO_STRING = "enum_to_string"
    STRING_TO_ENUM = "string_to_enum"
    STRING_TO_JSON = "string_to_json"
    JSON_TO_STRING = "json_to_string"
    RETYPE_PROMISE = "retype_promise"
    MAKE_NULLABLE = "make_nullable"
    MAKE_REQUIRED = "make_required"
    CHANGE_EMBED = "change_embed"
    CHANGE_DEFAULT = "change_default"
    UPDATE_PROPERTY_METADATA = "update_property_metadata"
    CHANGE_ORIGIN = "change_origin"
    ADD_PROPERTY = "add_property"
    REMOVE_CONSTRAINT = "remove_constraint"
    RESPELL_CONSTRAINT = "respell_constraint"
    ADD_CONSTRAINT = "add_constraint"
    CHANGE_CARDINALITY = "change_cardinality"
    CHANGE_CLUSTERING = "change_clustering"
    CHANGE_ENDS = "change_ends"
    DROP_PROPERTY = "drop_property"
    DROP_TYPE = "drop_type"


class CostClass(enum.StrEnum):
    """What a step does to a table that has rows.

    `METADATA`: no column comes, goes or is written; at most it may or may not be null from now on.
    `COLUMN`: the columns of one table change; at most one is written, and all data files stay.
    `REWRITE`: every row is written again; no step needs it yet.
    """

    METADATA = "metadata"
    COLUMN = "column"
    REWRITE = "rewrite"


class DropMode(enum.StrEnum):
    """Whether older versions keep what is dropped until cleanup, or lose it immediately."""

    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOfType:
    """The interface of every step; most change no table and have no conditions on rows."""

    subject: Subject

    @property
    def cost(self) -> CostClass:
        return CostClass.METADATA

    @property
    def writes_values(self) -> bool:
        """Whether values of existing rows are written."""
        return False

    @property
    def needs(self) -> tuple[DataCheck, ...]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStep(StepOfType):
    """A step about a column of a table; an interface has no table."""

    @property
    def cost(self) -> CostClass:
        interface = self.subject.kind is TypeKind.INTERFACE
        return CostClass.METADATA if interface else CostClass.COLUMN


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
    old: ct.PropertyType
    new: ct.PropertyType
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
class StringToJson(ColumnStep):
    """Texts become the values they spell; their canonical texts are written."""

    kind: ClassVar[StepKind] = StepKind.STRING_TO_JSON

    number: int
    name: str
    needs: tuple[DataCheck, ...] = ()

    @property
    def writes_values(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonToString(StepOfType):
    """Values become their canonical texts, which is how they are stored."""

    kind: ClassVar[StepKind] = StepKind.JSON_TO_STRING

    number: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetypePromise(StepOfType):
    """Another type or nullability of an interface property; nodes change by their own steps."""

    kind: ClassVar[StepKind] = StepKind.RETYPE_PROMISE

    number: int
    name: str
    type: ct.PropertyType
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
    old: ct.Embed | None
    new: ct.Embed | None
    needs: tuple[DataCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDefault(StepOfType):
    """The value of new rows that do not mention a property; existing rows keep theirs."""

    kind: ClassVar[StepKind] = StepKind.CHANGE_DEFAULT

    number: int
    name: str
    old: ct.Literal | None
    new: ct.Literal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePropertyMetadata(StepOfType):
    """Description and stored annotations of a property as they will be."""

    kind: ClassVar[StepKind] = StepKind.UPDATE_PROPERTY_METADATA

    number: int
    name: str
    description: str | None
    metadata: tuple[ct.Metadata, ...]


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

    added: ct.Property
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


Constraint: TypeAlias = ct.Key | ct.Unique | ct.Index | ct.Range | ct.Check


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
    metadata: tuple[ct.Metadata, ...]


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

    old: ct.Cardinality
    new: ct.Cardinality
    needs: tuple[DataCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeClustering(StepOfType):
    """Whether maintenance stores the edges in the order of their sources."""

    kind: ClassVar[StepKind] = StepKind.CHANGE_CLUSTERING

    old: bool
    new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEnds(StepOfType):
    """Other node types at the ends of an edge; source and target before and after.

    No row is written: null means the type that an end had alone, and no edge has a type that is
    removed.
    """

    kind: ClassVar[StepKind] = StepKind.CHANGE_ENDS

    old: tuple[ct.EdgeEnd, ct.EdgeEnd]
    new: tuple[ct.EdgeEnd, ct.EdgeEnd]
    needs: tuple[DataCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropType(StepOfType):
    """A type is dropped with its table; its number is never used again."""

    kind: ClassVar[StepKind] = StepKind.DROP_TYPE

    mode: DropMode


PropertyStep: TypeAlias = (
    RenameProperty
    | WidenProperty
    | ExtendEnum
    | MapValues
    | NarrowEnum
    | EnumToString
    | StringToEnum
    | StringToJson
    | JsonToString
    | RetypePromise
    | MakeNullable
    | MakeRequired
    | ChangeEmbed
    | ChangeDefault
    | UpdatePropertyMetadata
    | ChangeOrigin
    | AddProperty
    | DropProperty
)
TypeStep: TypeAlias = (
    AddType
    | RenameType
    | UpdateTypeMetadata
    | ChangeInterfaces
    | RemoveConstraint
    | RespellConstraint
    | AddConstraint
    | ChangeCardinality
    | ChangeClustering
    | ChangeEnds
    | DropType
)
Step: TypeAlias = TypeStep | PropertyStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A change that is not made, why not, and what to do instead."""

    code: str
    subject: Subject
    element: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What still holds values that a change of the schema dropped, and in how many versions."""

    holder: str
    """Such as `tag t0`, `branch dev`, `hold 01K...` or `the current files of node:Person`."""
    versions: int = 0

    def __str__(self) -> str:
        if not self.versions:
            return self.holder
        return f"{self.holder} ({self.versions:,} version{'s'[: self.versions != 1]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWarning:
    """Something to know before the plan is applied; `line` and `column` point into the text."""

    code: str
    message: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All of a change; a plan with a refusal is not applied at all."""

    steps: tuple[Step, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()

    @property
    def supported(self) -> bool:
        return not self.refusals

    @property
    def needs(self) -> tuple[DataCheck, ...]:
        """Every check of every step, each once."""
        return tuple(dict.fromkeys(check for step in self.steps for check in step.needs))
