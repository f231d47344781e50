"""Format a plan as readable text and as JSON, and write the messages of a refused schema change.

Invariants:
- The text is plain, without control codes, one line per step, and the same for equal plans. It is
  not meant to be parsed.
- Properties, constraints, fills and checks always have a description on one line, whatever the
  strings of a schema contain.
- A refusal, because of an unsupported change or of rows that violate it, names its code, the
  object, what was found, and the remedy.
- Equal plans give equal JSON. Names and meanings of fields do not change within one format number;
  docs/reference/schema-evolution.md describes them.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias, assert_never

from omnigraph_lake.evolution.plan import columns as ec
from omnigraph_lake.evolution.plan import data_checks
from omnigraph_lake.evolution.plan import plan as ep
from omnigraph_lake.evolution.plan.hints import shown
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.show import (
    show_cardinality,
    show_literal,
    show_property_type,
    show_type,
)


def property_words(prop: ct.Property) -> str:
    return f"{prop.name}: {show_property_type(prop)}"


def constraint_words(constraint: ep.Constraint) -> str:
    """A constraint as it would be written in a body."""
    match constraint:
        case ct.Key():
            return f"@key({', '.join(constraint.properties)})"
        case ct.Unique():
            return f"@unique({', '.join(constraint.properties)})"
        case ct.Index():
            metric = f", metric={constraint.metric}" if constraint.metric is not None else ""
            return f"@index({', '.join(constraint.properties)}{metric})"
        case ct.Range():
            return f"@range({constraint.property}, {_range(constraint.low, constraint.high)})"
        case ct.Check():
            return f"@check({constraint.property}, {_literal(constraint.pattern)})"
        case _:
            assert_never(constraint)


def fill_words(fill: ec.Fill | None) -> str:
    match fill:
        case None:
            return ""
        case ec.LiteralFill():
            return f", filled with {_literal(fill.value)}"
        case ec.CopyFill():
            return f", filled from {fill.source.name}"
        case _:
            assert_never(fill)


def embed_words(embed: ct.Embed | None) -> str:
    if embed is None:
        return "nothing"
    return embed.source if embed.model is None else f"{embed.source} by {_literal(embed.model)}"


def check_words(check: data_checks.DataCheck) -> str:  # noqa: PLR0911 - one per kind
    """What must be true, in the names that the table has now."""
    match check:
        case data_checks.TableIsEmpty():
            return f"no row in {check.table}"
        case data_checks.NoNulls():
            unless = f" or in {_column(check.unless_present)}" if check.unless_present else ""
            return f"a value in {_column(check.column)}{unless} in every row of {check.table}"
        case data_checks.ValuesInRange():
            wanted = _range(check.low, check.high)
            return f"{_column(check.column)} within {wanted} in every row of {check.table}"
        case data_checks.ValuesMatch():
            wanted = _literal(check.pattern)
            return f"{_column(check.column)} matches {wanted} in every row of {check.table}"
        case data_checks.ValuesInSet():
            wanted = ", ".join(check.values)
            return f"{_column(check.column)} one of {wanted} in every row of {check.table}"
        case data_checks.ValuesAreJson():
            return f"{_column(check.column)} JSON in every row of {check.table}"
        case data_checks.TupleIsUnique():
            members = ", ".join(map(_column, check.columns))
            return f"({members}) unique in {check.table}"
        case data_checks.EdgesPerSource():
            wanted = show_cardinality(ct.Cardinality(minimum=check.minimum, maximum=check.maximum))
            return f"{wanted} edges for every source in {check.table}"
        case data_checks.NoEndsOf():
            return f"no {check.column} of {' or '.join(check.types)} in {check.table}"
        case _:
            assert_never(check)


def _column(column: ec.FutureColumn) -> str:
    name = column.name if column.stored is None else column.stored.name
    mapped = " after its mapping" if column.mapping else ""
    filled = "" if column.fill is None else f" ({fill_words(column.fill).removeprefix(', ')})"
    return f"{name}{mapped}{filled}"


def _range(low: ct.Number | None, high: ct.Number | None) -> str:
    return f"{_bound(low)}..{_bound(high)}"


def _bound(value: ct.Number | None) -> str:
    return "" if value is None else _literal(value)


def _literal(value: ct.Literal) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case _:
            return json.dumps(value, ensure_ascii=False)


_INDENT: Final = "      "


def plan_text(plan: ep.Plan) -> str:
    """Steps and refusals under their types, then warnings, then a summary."""
    if not (plan.steps or plan.refusals or plan.warnings):
        return "no changes\n"
    blocks = ["\n".join(_block(subject, plan)) for subject in _subjects(plan)]
    if plan.warnings:
        blocks.append("\n".join(["warnings", *map(_warning, plan.warnings)]))
    blocks.append(_summary(plan))
    return "\n\n".join(blocks) + "\n"


def _subjects(plan: ep.Plan) -> Iterable[ec.Subject]:
    """Every type that changes, in the order of the plan: interfaces, nodes, edges."""
    touched_subjects = dict.fromkeys(outcome.subject for outcome in (*plan.steps, *plan.refusals))
    kinds = list(ec.TypeKind)
    return sorted(touched_subjects, key=lambda subject: kinds.index(subject.kind))


def _block(subject: ec.Subject, plan: ep.Plan) -> Iterator[str]:
    was = f" (was {subject.was})" if subject.was not in (None, subject.name) else ""
    yield f"{subject.words}{was}"
    for step in plan.steps:
        if step.subject == subject:
            yield from _step_lines(step)
    for refusal in plan.refusals:
        if refusal.subject == subject:
            yield from _refusal_lines(refusal)


def _step_lines(step: ep.Step) -> Iterator[str]:
    sign, words = step_words(step)
    cost = f"{step.cost}, values written" if step.writes_values else str(step.cost)
    yield f"  {sign} {words}  [{cost}]"
    if isinstance(step, ep.AddType):
        for prop in step.declared.properties.values():
            yield f"{_INDENT}{property_words(prop)}"
    for check in step.needs:
        yield f"{_INDENT}needs: {check_words(check)} [{check.code}]"
        yield f"{_INDENT}  else: {check.remedy}"


def _refusal_lines(refusal: ep.Refusal) -> Iterator[str]:
    yield f"  ! {refusal.element}: {refusal.reason}  [{refusal.code}]"
    yield f"{_INDENT}instead: {refusal.remedy}"


def _warning(warning: ep.PlanWarning) -> str:
    place = "" if warning.line is None else f"line {warning.line}: "
    return f"  {place}{warning.message}  [{warning.code}]"


def _summary(plan: ep.Plan) -> str:
    costs = [
        f"{count} {cost}"
        for cost in ep.CostClass
        if (count := sum(step.cost is cost for step in plan.steps))
    ]
    parts = [_count(len(plan.steps), "step") + (f" ({', '.join(costs)})" if costs else "")]
    if plan.needs:
        parts.append(f"{_count(len(plan.needs), 'check')} of existing rows")
    if plan.warnings:
        parts.append(_count(len(plan.warnings), "warning"))
    if plan.refusals:
        parts.append(f"{_count(len(plan.refusals), 'refusal')}: nothing can be applied")
    return ", ".join(parts)


def _count(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def step_words(  # noqa: C901, PLR0911, PLR0912 - one per kind
    step: ep.Step,
) -> tuple[str, str]:
    """The sign of a step and what it does, without its type."""
    match step:
        case ep.AddType():
            return "+", f"new {step.subject.kind}"
        case ep.RenameType():
            return "~", f"renamed from {step.old}"
        case ep.UpdateTypeMetadata():
            return "~", "description, instruction or annotations"
        case ep.ChangeInterfaces():
            return "~", f"implements {_names(step.old)} -> {_names(step.new)}"
        case ep.AddConstraint():
            return "+", constraint_words(step.constraint)
        case ep.RemoveConstraint():
            return "-", constraint_words(step.constraint)
        case ep.RespellConstraint():
            old, new = constraint_words(step.old), constraint_words(step.new)
            moved = f"now written {_place(step)}"
            return "~", f"{old}: {moved}" if old == new else f"{old} -> {new}"
        case ep.ChangeCardinality():
            old, new = show_cardinality(step.old), show_cardinality(step.new)
            return "~", f"@card({old}) -> @card({new})"
        case ep.ChangeEnds():
            old, new = (f"{source} -> {target}" for source, target in (step.old, step.new))
            return "~", f"{old} becomes {new}"
        case ep.ChangeClustering():
            return "+" if step.new else "-", "@cluster"
        case ep.DropType():
            return "-", f"dropped ({step.mode})"
        case _:
            return _property_step_words(step)


def _property_step_words(  # noqa: C901, PLR0911, PLR0912 - one per kind
    step: ep.PropertyStep,
) -> tuple[str, str]:
    match step:
        case ep.AddProperty():
            return "+", property_words(step.added) + fill_words(step.fill)
        case ep.RenameProperty():
            return "~", f"{step.new}: renamed from {step.old}"
        case ep.WidenProperty():
            return "~", f"{step.name}: {show_type(step.old)} -> {show_type(step.new)}"
        case ep.ExtendEnum():
            return "~", f"{step.name}: also {', '.join(step.added)}"
        case ep.MapValues():
            pairs = ", ".join(f"{shown(mapping.old)} -> {mapping.new}" for mapping in step.mapping)
            return "~", f"{step.name}: values {pairs}"
        case ep.NarrowEnum():
            return "~", f"{step.name}: no longer {', '.join(step.removed)}"
        case ep.EnumToString():
            return "~", f"{step.name}: enum -> String"
        case ep.StringToEnum():
            return "~", f"{step.name}: String -> enum({', '.join(step.values)})"
        case ep.StringToJson():
            return "~", f"{step.name}: String -> Json"
        case ep.JsonToString():
            return "~", f"{step.name}: Json -> String"
        case ep.RetypePromise():
            null = "?" if step.nullable else ""
            return "~", f"{step.name}: now {show_type(step.type)}{null}"
        case ep.MakeNullable():
            return "~", f"{step.name}: may be null"
        case ep.MakeRequired():
            return "~", f"{step.name}: required{fill_words(step.fill)}"
        case ep.ChangeEmbed():
            return "~", f"{step.name}: embeds {embed_words(step.old)} -> {embed_words(step.new)}"
        case ep.ChangeDefault():
            old, new = map(_default_words, (step.old, step.new))
            return "~", f"{step.name}: default {old} -> {new}"
        case ep.UpdatePropertyMetadata():
            return "~", f"{step.name}: description or annotations"
        case ep.ChangeOrigin():
            source = "declared here" if step.declared else "inherited"
            return "~", f"{step.name}: {source}, for {_names(step.interfaces)}"
        case ep.DropProperty():
            return "-", f"{step.name}: dropped ({step.mode})"
        case _:
            assert_never(step)


def _default_words(default: ct.Literal | None) -> str:
    return "none" if default is None else show_literal(default)


def _place(step: ep.RespellConstraint) -> str:
    return "in the body" if step.new.spelling.value == "body" else "after its property"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


def refusal_of_plan(filename: str, plan: ep.Plan) -> tuple[str, str]:
    """The sentence and the details of a plan with refusals."""
    count = len(plan.refusals)
    lines = [
        f"  [{refusal.code}] {refusal.subject.words} {refusal.element}: {refusal.reason}\n"
        f"    {refusal.remedy}"
        for refusal in plan.refusals
    ]
    return (
        f"{filename} contains {count} change{'s' if count != 1 else ''} that cannot be made",
        "\n".join(lines),
    )


def refusal_of_rows(
    filename: str, failures: Sequence[tuple[data_checks.DataCheck, int, tuple[str, ...]]]
) -> tuple[str, str]:
    """The sentence and the details of checks that rows do not pass."""
    lines = []
    for check, rows, examples in failures:
        more = ", ..." if rows > len(examples) else ""
        shown = f": {', '.join(examples)}{more}" if examples else ""
        thing = "source" if isinstance(check, data_checks.EdgesPerSource) else "row"
        lines.append(
            f"  [{check.code}] expected {check_words(check)}; found {rows:,} "
            f"{thing}{'' if rows == 1 else 's'} in violation{shown}\n    {check.remedy}"
        )
    return f"rows of this graph violate {filename}", "\n".join(lines)


PLAN_FORMAT: Final = 1

Document: TypeAlias = dict[str, Any]

_CONSTRAINT_WORDS: Final = {
    ct.Key: "key",
    ct.Unique: "unique",
    ct.Index: "index",
    ct.Range: "range",
    ct.Check: "check",
}


def plan_json(plan: ep.Plan) -> str:
    """The plan as indented JSON with a final newline."""
    return json.dumps(plan_document(plan), indent=2, ensure_ascii=False) + "\n"


def plan_document(plan: ep.Plan) -> Document:
    """The plan as values that JSON knows."""
    return {
        "format": PLAN_FORMAT,
        "supported": plan.supported,
        "steps": [_step(step) for step in plan.steps],
        "refusals": [_refusal(refusal) for refusal in plan.refusals],
        "warnings": [_value(warning) for warning in plan.warnings],
    }


def _step(step: ep.Step) -> Document:
    return {
        "kind": step.kind.value,
        "cost": step.cost.value,
        "writes_values": step.writes_values,
        "type": _subject(step.subject),
        **_fields(step, without=("subject", "needs")),
        "needs": [_check(need) for need in step.needs],
    }


def _subject(subject: ec.Subject) -> Document:
    return {
        "kind": subject.kind.value,
        "number": subject.number,
        "name": subject.name,
        "was": subject.was,
        "table": subject.table,
    }


def _check(check: data_checks.DataCheck) -> Document:
    return {
        "check": check.kind.value,
        "code": check.code,
        "remedy": check.remedy,
        **_fields(check, without=_omit(check)),
    }


def _omit(check: data_checks.DataCheck) -> tuple[str, ...]:
    """Fields of edges whose sources have several types."""
    is_single = isinstance(check, data_checks.EdgesPerSource) and check.source_type is None
    return ("source_type",) if is_single else ()


def _refusal(refusal: ep.Refusal) -> Document:
    return {
        "code": refusal.code,
        "type": _subject(refusal.subject),
        **_fields(refusal, without=("code", "subject")),
    }


def _fields(value: Any, *, without: tuple[str, ...] = ()) -> Document:
    return {
        field.name: _value(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.name not in without
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
            return [_value(item) for item in value]
        case ct.ByName():
            return [_value(item) for item in value.values()]
        case ct.EdgeEnd():
            return list(value.declared) if value.is_polymorphic else value.only
        case ct.ScalarType() | ct.DecimalType() | ct.ListType() | ct.EnumType() | ct.VectorType():
            return show_type(value)
        case ec.CopyFill(source=source):
            return {"source": _value(source)}  # a plan has no other part of it
        case ct.Key() | ct.Unique() | ct.Index() | ct.Range() | ct.Check():
            return {"constraint": _CONSTRAINT_WORDS[type(value)], **_fields(value)}
        case _:
            return _fields(value)
