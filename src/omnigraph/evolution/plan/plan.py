"""A schema change as one value: steps, refusals and warnings.

Invariant: steps are in the order of their execution, and each uses the names that the steps before
it introduced. Everything that differs between two catalogs is in a step or in a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.evolution.plan.columns import Subject
from omnigraph.evolution.plan.data_checks import DataCheck
from omnigraph.evolution.plan.property_steps import (
    AddProperty,
    ChangeEmbed,
    ChangeOrigin,
    DropProperty,
    EnumToString,
    ExtendEnum,
    MakeNullable,
    MakeRequired,
    MapValues,
    NarrowEnum,
    RenameProperty,
    RetypePromise,
    StringToEnum,
    UpdatePropertyMetadata,
    WidenProperty,
)
from omnigraph.evolution.plan.type_steps import (
    AddConstraint,
    AddType,
    ChangeCardinality,
    ChangeInterfaces,
    DropType,
    RemoveConstraint,
    RenameType,
    RespellConstraint,
    UpdateTypeMetadata,
)

PropertyStep: TypeAlias = (
    RenameProperty
    | WidenProperty
    | ExtendEnum
    | MapValues
    | NarrowEnum
    | EnumToString
    | StringToEnum
    | RetypePromise
    | MakeNullable
    | MakeRequired
    | ChangeEmbed
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
