"""Annotations: where each is allowed, how often, and with which arguments.

Invariant: an annotation Omnigraph interprets is used correctly; any other is stored untouched,
with a warning if its name looks like a typing error.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final

from omnigraph.language.diagnostics import Diagnostic, Suggestions, did_you_mean
from omnigraph.schema import ast, resolve
from omnigraph.schema.catalog import Scalar, ScalarType, VectorType
from omnigraph.schema.checks.constraints import KnownProperty
from omnigraph.schema.diagnostics import Rule, error, warning
from omnigraph.schema.parser import CONSTRAINT_WORDS, INDEX_WORD

CARDINALITY_MAX: Final = 2**63 - 1
# With a lower value, valid names such as `@unit` would be taken for mistakes.
_SLIP_SIMILARITY_MIN: Final = 0.85
INTERPRETED: Final = (
    *("description", "instruction", "embed", "card", "cluster"),
    *("rename_from", "backfill", "rename_value"),
)
_FAMILIAR: Final = frozenset(INTERPRETED) | CONSTRAINT_WORDS


class AnnotationTarget(enum.Enum):
    """What an annotation is attached to."""

    NODE = "node"
    EDGE = "edge"
    INTERFACE_PROPERTY = "interface property"
    NODE_PROPERTY = "node property"
    EDGE_PROPERTY = "edge property"


_HEADERS: Final = frozenset({AnnotationTarget.NODE, AnnotationTarget.EDGE})


def check_annotations(
    annotations: tuple[ast.Annotation, ...], place: AnnotationTarget
) -> Iterator[Diagnostic]:
    """All findings about the annotations of one element, except the target of `@embed`."""
    seen: set[str] = set()
    for annotation in annotations:
        if annotation.name in seen:
            yield error(
                Rule.DUPLICATE_ANNOTATION,
                annotation.span,
                f"`@{annotation.name}` is given twice",
                "remove one",
            )
        seen.add(annotation.name)
        yield from check_literals(annotation)
        yield from _check_one(annotation, place)


def check_literals(annotation: ast.Annotation) -> Iterator[Diagnostic]:
    """Escapes and numbers inside the arguments."""
    for argument in annotation.arguments or ():
        value = argument.value if isinstance(argument, ast.Keyword) else argument
        if isinstance(value, ast.StringLiteral):
            for span in resolve.unknown_escapes(value):
                yield error(
                    Rule.UNKNOWN_ESCAPE,
                    span,
                    "this escape does not exist",
                    'the escapes are `\\"`, `\\\\`, `\\n`, `\\r` and `\\t`',
                )
        elif isinstance(value, ast.RangeLiteral):
            yield from _number_length(value.low)
            yield from _number_length(value.high)
        elif isinstance(value, ast.NumberLiteral):
            yield from _number_length(value)


def _number_length(literal: ast.NumberLiteral | None) -> Iterator[Diagnostic]:
    if literal is not None and len(literal.raw) > resolve.NUMBER_CHARACTERS_MAX:
        yield error(
            Rule.NUMBER_TOO_LONG,
            literal.span,
            f"this number has {len(literal.raw)} characters, "
            f"at most {resolve.NUMBER_CHARACTERS_MAX} are read",
        )


def _check_one(annotation: ast.Annotation, place: AnnotationTarget) -> Iterator[Diagnostic]:
    match annotation.name:
        case "description" | "rename_from":
            yield from _one_text(annotation)
        case "instruction" if place in _HEADERS:
            yield from _one_text(annotation)
        case "instruction":
            yield error(
                Rule.INSTRUCTION_ON_PROPERTY,
                annotation.span,
                "`@instruction` belongs to a node or an edge, not to a property",
                "use `@description` here, or move it to the header",
            )
        case "embed":
            yield from _embed_form(annotation, place)
        case "backfill" | "rename_value":
            yield from _value_hint_form(annotation, place)
        case "card":
            yield from _cardinality(annotation, place)
        case "cluster":
            yield from _cluster_form(annotation, place)
        case word if word in CONSTRAINT_WORDS:
            yield from _constraint_word(annotation, place)
        case _:
            yield from _stored_form(annotation)


def _constraint_word(annotation: ast.Annotation, place: AnnotationTarget) -> Iterator[Diagnostic]:
    if place in _HEADERS:
        yield error(
            Rule.CONSTRAINT_ON_HEADER,
            annotation.span,
            f"`@{annotation.name}` is not allowed in the header of a type",
            "move it into the body, between `{` and `}`",
        )
    elif annotation.name in ("range", "check"):
        example = "0..150" if annotation.name == "range" else '"^[a-z]+$"'
        yield error(
            Rule.CONSTRAINT_ARGUMENTS,
            annotation.span,
            f"`@{annotation.name}` needs arguments",
            f"write `@{annotation.name}(property, {example})` in the body of a node",
        )
    elif annotation.name == INDEX_WORD:
        metric = resolve.written_metric(annotation.arguments or ())
        if isinstance(metric, Diagnostic):
            yield metric


def _one_text(annotation: ast.Annotation) -> Iterator[Diagnostic]:
    arguments = annotation.arguments or ()
    if len(arguments) != 1 or not isinstance(arguments[0], ast.StringLiteral):
        yield error(
            Rule.ANNOTATION_ARGUMENTS,
            annotation.span,
            f"`@{annotation.name}` takes exactly one string",
            f'write `@{annotation.name}("...")`',
        )
    elif not resolve.string_value(arguments[0]).strip():
        yield error(
            Rule.EMPTY_ANNOTATION,
            arguments[0].span,
            f"`@{annotation.name}` is empty",
            "add a text, or remove the annotation",
        )


def _value_hint_form(annotation: ast.Annotation, place: AnnotationTarget) -> Iterator[Diagnostic]:
    if place in _HEADERS:
        yield error(
            Rule.MISPLACED_ANNOTATION,
            annotation.span,
            f"`@{annotation.name}` belongs to a property, not to a type",
            "move it after the property it describes",
        )
    elif annotation.name == "backfill":
        yield from _backfill_form(annotation)
    else:
        yield from _rename_value_form(annotation)


def _backfill_form(annotation: ast.Annotation) -> Iterator[Diagnostic]:
    match annotation.arguments:
        case (ast.StringLiteral() | ast.NumberLiteral() | ast.Word(),):
            return
        case (ast.Keyword(name=ast.Name(text="from"), value=ast.StringLiteral() | ast.Word()),):
            return
        case _:
            yield error(
                Rule.ANNOTATION_ARGUMENTS,
                annotation.span,
                "`@backfill` takes one value, or the property to copy from",
                'write `@backfill(0)`, `@backfill("text")` or `@backfill(from="property")`',
            )


def _rename_value_form(annotation: ast.Annotation) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for argument in annotation.arguments or (annotation,):
        pair = resolve.renamed_value(argument) if not isinstance(argument, ast.Annotation) else None
        if pair is None:
            yield error(
                Rule.ANNOTATION_ARGUMENTS,
                argument.span,
                "`@rename_value` takes pairs of an old and a new value",
                'write `@rename_value(old="new")`, or `@rename_value("OLD=new")`',
            )
        elif pair[0] in seen:
            yield error(
                Rule.ANNOTATION_ARGUMENTS,
                argument.span,
                f"`{pair[0][:80]}` is given two new values",
                "remove one",
            )
        else:
            seen.add(pair[0])


def _cardinality(annotation: ast.Annotation, place: AnnotationTarget) -> Iterator[Diagnostic]:
    if place is not AnnotationTarget.EDGE:
        yield error(
            Rule.MISPLACED_CARDINALITY,
            annotation.span,
            "`@card` belongs to the header of an edge",
            "write `edge Name: Source -> Target @card(0..1)`",
        )
        return
    arguments = annotation.arguments or ()
    bounds = arguments[0] if len(arguments) == 1 else None
    if not isinstance(bounds, ast.RangeLiteral) or bounds.low is None:
        yield error(
            Rule.CARDINALITY,
            annotation.span,
            "`@card` takes one range that starts with a number",
            "write `@card(0..1)`, or `@card(1..)` without an upper bound",
        )
        return
    low = resolve.number_value(bounds.low)
    high = low if bounds.high is None else resolve.number_value(bounds.high)
    if low is None or high is None:
        return
    if not (_countable(low) and _countable(high)):
        yield error(
            Rule.CARDINALITY,
            bounds.span,
            f"cardinalities are whole numbers from 0 to {CARDINALITY_MAX}",
        )
    elif low > high:
        yield error(
            Rule.CARDINALITY,
            bounds.span,
            f"the minimum {low} is above the maximum {high}",
            f"write `@card({high}..{low})`",
        )


def _cluster_form(annotation: ast.Annotation, place: AnnotationTarget) -> Iterator[Diagnostic]:
    if place is not AnnotationTarget.EDGE:
        yield error(
            Rule.MISPLACED_CLUSTER,
            annotation.span,
            "`@cluster` belongs to the header of an edge",
            "write `edge Name: Source -> Target @cluster`; only edges are clustered",
        )
    elif annotation.arguments is not None:
        yield error(
            Rule.ANNOTATION_ARGUMENTS,
            annotation.span,
            "`@cluster` takes no arguments",
            "write `@cluster`; edges are stored in the order of `src`, then `dst`",
        )


def _countable(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= CARDINALITY_MAX


def _embed_form(annotation: ast.Annotation, place: AnnotationTarget) -> Iterator[Diagnostic]:
    if place in _HEADERS or place is AnnotationTarget.EDGE_PROPERTY:
        yield error(
            Rule.EMBED_PLACE,
            annotation.span,
            "`@embed` belongs to a Vector property of a node",
            "move it after such a property",
        )
        return
    arguments = annotation.arguments or ()
    if not arguments or not isinstance(arguments[0], ast.StringLiteral | ast.Word):
        yield error(
            Rule.EMBED_SOURCE,
            annotation.span,
            "`@embed` needs the name of the String property it was made from",
            'write `@embed("title")` or `@embed("title", model="...")`',
        )
    seen: set[str] = set()
    for argument in arguments[1:]:
        yield from _embed_keyword(argument, seen)


def _embed_keyword(argument: ast.Argument, seen: set[str]) -> Iterator[Diagnostic]:
    if not isinstance(argument, ast.Keyword) or argument.name.text != "model":
        yield error(
            Rule.EMBED_KEYWORD,
            argument.span,
            "the only other argument of `@embed` is `model`",
            'write `@embed("title", model="...")`',
        )
    elif "model" in seen:
        yield error(Rule.EMBED_KEYWORD, argument.span, "`model` is given twice", "remove one")
    elif (
        not isinstance(argument.value, ast.StringLiteral)
        or not resolve.string_value(argument.value).strip()
    ):
        yield error(Rule.EMBED_KEYWORD, argument.span, "`model` is a string that is not empty")
    else:
        seen.add("model")


def check_embed_target(
    declaration: ast.PropertyDeclaration,
    *,
    holder: str,
    properties: Mapping[str, KnownProperty],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    """That `@embed` is on a vector and names a String property of the same type."""
    for annotation in declaration.annotations:
        if annotation.name != "embed":
            continue
        target = properties[declaration.name.text].type
        if target is not None and not isinstance(target, VectorType):
            yield error(
                Rule.EMBED_PLACE,
                annotation.span,
                f"`@embed` belongs to a Vector, `{declaration.name.text}` is not one",
                "move it after the Vector property that holds the embedding",
            )
        arguments = annotation.arguments or ()
        if arguments and isinstance(arguments[0], ast.StringLiteral | ast.Word):
            yield from _embed_source(arguments[0], holder, properties, suggestions)


def _embed_source(
    argument: ast.StringLiteral | ast.Word,
    holder: str,
    properties: Mapping[str, KnownProperty],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    source = str(
        resolve.literal_value(argument)
        if isinstance(argument, ast.StringLiteral)
        else argument.text
    )
    known = properties.get(source)
    if known is None:
        yield error(
            Rule.EMBED_SOURCE,
            argument.span,
            f"`{holder}` has no property `{source[:80]}` to embed",
            suggestions.closest(source, properties),
        )
    elif known.type not in (None, ScalarType(scalar=Scalar.STRING)):
        yield error(
            Rule.EMBED_SOURCE,
            argument.span,
            f"`@embed` reads text, and `{source}` is not of type String",
        )


def _stored_form(annotation: ast.Annotation) -> Iterator[Diagnostic]:
    hint = did_you_mean(annotation.name, _FAMILIAR, similarity_min=_SLIP_SIMILARITY_MIN)
    if hint:
        yield warning(
            Rule.SIMILAR_ANNOTATION,
            annotation.span,
            f"`@{annotation.name}` is unknown; it is stored but has no effect",
            hint,
        )
    seen: set[str] = set()
    for position, argument in enumerate(annotation.arguments or ()):
        problem = _stored_argument(argument, position, seen)
        if problem:
            yield error(
                Rule.ANNOTATION_ARGUMENTS,
                argument.span,
                problem,
                f'the form is `@{annotation.name}("value", name="value")`',
            )


def _stored_argument(argument: ast.Argument, position: int, seen: set[str]) -> str:
    if isinstance(argument, ast.RangeLiteral):
        return "a range is only an argument of `@range` and `@card`"
    value = argument.value if isinstance(argument, ast.Keyword) else argument
    if isinstance(value, ast.NumberLiteral) and value.raw.startswith("-"):
        return "a sign is only allowed inside a range"
    if isinstance(argument, ast.Keyword):
        return _stored_keyword(argument, position, seen)
    return "" if position == 0 else "every argument after the first is `name=value`"


def _stored_keyword(keyword: ast.Keyword, position: int, seen: set[str]) -> str:
    name = keyword.name.text
    if position == 0:
        return "the first argument is a value without a name"
    if isinstance(keyword.value, ast.Word) and keyword.value.text not in ("true", "false"):
        return f"`{name}` takes a string, a number, `true` or `false`"
    if name in seen:
        return f"`{name}` is given twice"
    seen.add(name)
    return ""
