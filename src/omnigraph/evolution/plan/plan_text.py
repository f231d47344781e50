"""A plan as readable text: the changes by type.

Invariant: plain text without control codes, one line per step, the same for equal plans; not meant
to be parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from omnigraph.evolution.plan.columns import Subject, TypeKind
from omnigraph.evolution.plan.findings import shown
from omnigraph.evolution.plan.plan import Plan, PlanWarning, PropertyStep, Refusal, Step
from omnigraph.evolution.plan.plan_words import (
    check_words,
    constraint_words,
    embed_words,
    fill_words,
    property_words,
)
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
from omnigraph.evolution.plan.step_kinds import CostClass
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
from omnigraph.schema.show import show_cardinality, show_type

_INDENT: Final = "      "


def plan_text(plan: Plan) -> str:
    """Steps and refusals under their types, then warnings, then a summary."""
    if not (plan.steps or plan.refusals or plan.warnings):
        return "no changes\n"
    blocks = ["\n".join(_block(subject, plan)) for subject in _subjects(plan)]
    if plan.warnings:
        blocks.append("\n".join(["warnings", *map(_warning, plan.warnings)]))
    blocks.append(_summary(plan))
    return "\n\n".join(blocks) + "\n"


def _subjects(plan: Plan) -> Iterable[Subject]:
    """Every type that changes, in the order of the plan: interfaces, nodes, edges."""
    touched = dict.fromkeys(each.subject for each in (*plan.steps, *plan.refusals))
    kinds = list(TypeKind)
    return sorted(touched, key=lambda each: kinds.index(each.kind))


def _block(subject: Subject, plan: Plan) -> Iterator[str]:
    was = f" (was {subject.was})" if subject.was not in (None, subject.name) else ""
    yield f"{subject.words}{was}"
    for step in plan.steps:
        if step.subject == subject:
            yield from _step_lines(step)
    for refusal in plan.refusals:
        if refusal.subject == subject:
            yield from _refusal_lines(refusal)


def _step_lines(step: Step) -> Iterator[str]:
    sign, words = step_words(step)
    cost = f"{step.cost}, values written" if step.writes_values else str(step.cost)
    yield f"  {sign} {words}  [{cost}]"
    if isinstance(step, AddType):
        for each in step.declared.properties.values():
            yield f"{_INDENT}{property_words(each)}"
    for check in step.needs:
        yield f"{_INDENT}needs: {check_words(check)} [{check.code}]"
        yield f"{_INDENT}  else: {check.remedy}"


def _refusal_lines(refusal: Refusal) -> Iterator[str]:
    yield f"  ! {refusal.element}: {refusal.reason}  [{refusal.code}]"
    yield f"{_INDENT}instead: {refusal.remedy}"


def _warning(warning: PlanWarning) -> str:
    place = "" if warning.line is None else f"line {warning.line}: "
    return f"  {place}{warning.message}  [{warning.code}]"


def _summary(plan: Plan) -> str:
    costs = [
        f"{count} {cost}"
        for cost in CostClass
        if (count := sum(each.cost is cost for each in plan.steps))
    ]
    parts = [_counted(len(plan.steps), "step") + (f" ({', '.join(costs)})" if costs else "")]
    if plan.needs:
        parts.append(f"{_counted(len(plan.needs), 'check')} of existing rows")
    if plan.warnings:
        parts.append(_counted(len(plan.warnings), "warning"))
    if plan.refusals:
        parts.append(f"{_counted(len(plan.refusals), 'refusal')}: nothing can be applied")
    return ", ".join(parts)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def step_words(step: Step) -> tuple[str, str]:  # noqa: PLR0911 - one per kind
    """The sign of a step and what it does, without its type."""
    match step:
        case AddType():
            return "+", f"new {step.subject.kind}"
        case RenameType():
            return "~", f"renamed from {step.old}"
        case UpdateTypeMetadata():
            return "~", "description, instruction or annotations"
        case ChangeInterfaces():
            return "~", f"implements {_names(step.old)} -> {_names(step.new)}"
        case AddConstraint():
            return "+", constraint_words(step.constraint)
        case RemoveConstraint():
            return "-", constraint_words(step.constraint)
        case RespellConstraint():
            old, new = constraint_words(step.old), constraint_words(step.new)
            moved = f"now written {_place(step)}"
            return "~", f"{old}: {moved}" if old == new else f"{old} -> {new}"
        case ChangeCardinality():
            old, new = show_cardinality(step.old), show_cardinality(step.new)
            return "~", f"@card({old}) -> @card({new})"
        case DropType():
            return "-", f"dropped ({step.mode})"
        case _:
            return _property_step_words(step)


def _property_step_words(  # noqa: C901, PLR0911, PLR0912 - one per kind
    step: PropertyStep,
) -> tuple[str, str]:
    match step:
        case AddProperty():
            return "+", property_words(step.added) + fill_words(step.fill)
        case RenameProperty():
            return "~", f"{step.new}: renamed from {step.old}"
        case WidenProperty():
            return "~", f"{step.name}: {show_type(step.old)} -> {show_type(step.new)}"
        case ExtendEnum():
            return "~", f"{step.name}: also {', '.join(step.added)}"
        case MapValues():
            pairs = ", ".join(f"{shown(each.old)} -> {each.new}" for each in step.mapping)
            return "~", f"{step.name}: values {pairs}"
        case NarrowEnum():
            return "~", f"{step.name}: no longer {', '.join(step.removed)}"
        case EnumToString():
            return "~", f"{step.name}: enum -> String"
        case StringToEnum():
            return "~", f"{step.name}: String -> enum({', '.join(step.values)})"
        case RetypePromise():
            null = "?" if step.nullable else ""
            return "~", f"{step.name}: now {show_type(step.type)}{null}"
        case MakeNullable():
            return "~", f"{step.name}: may be null"
        case MakeRequired():
            return "~", f"{step.name}: required{fill_words(step.fill)}"
        case ChangeEmbed():
            return "~", f"{step.name}: embeds {embed_words(step.old)} -> {embed_words(step.new)}"
        case UpdatePropertyMetadata():
            return "~", f"{step.name}: description or annotations"
        case ChangeOrigin():
            source = "declared here" if step.declared else "inherited"
            return "~", f"{step.name}: {source}, for {_names(step.interfaces)}"
        case DropProperty():
            return "-", f"{step.name}: dropped ({step.mode})"
        case _:
            assert_never(step)


def _place(step: RespellConstraint) -> str:
    return "in the body" if step.new.spelling.value == "body" else "after its property"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
