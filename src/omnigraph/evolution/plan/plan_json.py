"""A plan as JSON.

Invariant: equal plans give equal text. Names and meanings of fields stay within one format number;
docs/reference/schema-evolution.md describes them.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from decimal import Decimal
from typing import Any, Final, TypeAlias

from omnigraph.evolution.plan.columns import Subject
from omnigraph.evolution.plan.data_checks import DataCheck
from omnigraph.evolution.plan.plan import Plan, Refusal, Step
from omnigraph.schema.catalog import (
    ByName,
    Check,
    EnumType,
    Index,
    Key,
    ListType,
    Range,
    ScalarType,
    Unique,
    VectorType,
)
from omnigraph.schema.show import show_type

PLAN_FORMAT: Final = 1

Document: TypeAlias = dict[str, Any]

_CONSTRAINT_WORDS: Final = {
    Key: "key",
    Unique: "unique",
    Index: "index",
    Range: "range",
    Check: "check",
}


def plan_json(plan: Plan) -> str:
    """The plan as indented JSON with a final newline."""
    return json.dumps(plan_document(plan), indent=2, ensure_ascii=False) + "\n"


def plan_document(plan: Plan) -> Document:
    """The plan as values that JSON knows."""
    return {
        "format": PLAN_FORMAT,
        "supported": plan.supported,
        "steps": [_step(each) for each in plan.steps],
        "refusals": [_refusal(each) for each in plan.refusals],
        "warnings": [_value(each) for each in plan.warnings],
    }


def _step(step: Step) -> Document:
    return {
        "kind": step.kind.value,
        "cost": step.cost.value,
        "writes_values": step.writes_values,
        "type": _subject(step.subject),
        **_fields(step, without=("subject", "needs")),
        "needs": [_check(each) for each in step.needs],
    }


def _subject(subject: Subject) -> Document:
    return {
        "kind": subject.kind.value,
        "number": subject.number,
        "name": subject.name,
        "was": subject.was,
        "table": subject.table,
    }


def _check(check: DataCheck) -> Document:
    return {
        "check": check.kind.value,
        "code": check.code,
        "remedy": check.remedy,
        **_fields(check),
    }


def _refusal(refusal: Refusal) -> Document:
    return {
        "code": refusal.code,
        "type": _subject(refusal.subject),
        **_fields(refusal, without=("code", "subject")),
    }


def _fields(value: Any, *, without: tuple[str, ...] = ()) -> Document:
    return {
        each.name: _value(getattr(value, each.name))
        for each in dataclasses.fields(value)
        if each.name not in without
    }


def _value(value: Any) -> Any:  # noqa: PLR0911 - one per kind
    match value:
        case enum.Enum():
            return value.value
        case None | bool() | int() | str():
            return value
        case Decimal():
            # A JSON number with a point would come back as a double.
            return {"decimal": f"{value:f}"}
        case tuple():
            return [_value(each) for each in value]
        case ByName():
            return [_value(each) for each in value.values()]
        case ScalarType() | ListType() | EnumType() | VectorType():
            return show_type(value)
        case Key() | Unique() | Index() | Range() | Check():
            return {"constraint": _CONSTRAINT_WORDS[type(value)], **_fields(value)}
        case _:
            return _fields(value)
