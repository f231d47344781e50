"""Properties of all steps: a kind, a cost, and conditions on rows.

Invariant: the names here are part of the JSON form of a plan and never change their meaning.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from omnigraph.evolution.plan.columns import Subject, TypeKind
from omnigraph.evolution.plan.data_checks import DataCheck


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
    RETYPE_PROMISE = "retype_promise"
    MAKE_NULLABLE = "make_nullable"
    MAKE_REQUIRED = "make_required"
    CHANGE_EMBED = "change_embed"
    UPDATE_PROPERTY_METADATA = "update_property_metadata"
    CHANGE_ORIGIN = "change_origin"
    ADD_PROPERTY = "add_property"
    REMOVE_CONSTRAINT = "remove_constraint"
    RESPELL_CONSTRAINT = "respell_constraint"
    ADD_CONSTRAINT = "add_constraint"
    CHANGE_CARDINALITY = "change_cardinality"
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
