"""Annotations: where each is allowed, how often, and with which arguments.

Invariant: every annotation is one that Omnigraph knows, and is used correctly. Texts that were
accepted before unknown ones became errors may hold them: there they are warnings, and are stored
as they are.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from omnigraph_lake.language.diagnostics import Diagnostic, Suggestions, did_you_mean
from omnigraph_lake.schema import ast, resolve
from omnigraph_lake.schema.catalog import Scalar, ScalarType, VectorType
from omnigraph_lake.schema.checks.constraints import KnownProperty
from omnigraph_lake.schema.diagnostics import Rule, error, warning
from omnigraph_lake.schema.parser import CONSTRAINT_WORDS, INDEX_WORD

CARDINALITY_MAX: Final = 2**63 - 1
_SHOWN_MAX: Final = 60
# With a lower value, names of metadata such as `@unit` would be taken for mistakes.
_SLIP_SIMILARITY_MIN: Final = 0.75
META: Final = "meta"
INTERPRETED: Final = (
    *("description", "instruction", "embed", "card", "cluster"),
    *("rename_from", "backfill", "rename_value"),
)
_FAMILIAR: Final = frozenset({*INTERPRETED, META}) | CONSTRAINT_WORDS
_SPELLINGS: Final = tuple(f"@{word}" for word in sorted(_FAMILIAR))
_CARDINALITY_FORM: Final = "write `@card(0..1)` in the header of an edge"
_KEY_FORM: Final = "write `@key` after the property, or `@key(first, second)` in the body"
_RANGE_FORM: Final = "write `@range(property, 0..150)` in the body of a node"
_CHECK_FORM: Final = 'write `@check(property, "^[a-z]+$")` in the body of a node'
_DESCRIPTION_FORM: Final = 'write `@description("...")`'
_NULLABLE_FORM: Final = "write `?` after the type, such as `String?`"
_OTHER_WORDS: Final = {
    "default": 'write the default after the type: `country: String = "unknown"`',
    "required": "a property without `?` after its type is required: remove `@required`",
    **dict.fromkeys(("notnull", "not_null", "nonnull"), "a property without `?` is never null"),
    **dict.fromkeys(("nullable", "optional"), _NULLABLE_FORM),
    **dict.fromkeys(("cardinality", "multiplicity"), _CARDINALITY_FORM),
    **dict.fromkeys(("id", "pk", "primary", "primary_key", "primarykey"), _KEY_FORM),
    **dict.fromkeys(("min", "max", "minimum", "maximum", "between"), _RANGE_FORM),
    **dict.fromkeys(("regex", "pattern", "matches"), _CHECK_FORM),
    **dict.fromkeys(("desc", "doc", "comment"), _DESCRIPTION_FORM),
    **dict.fromkeys(("renamed_from", "was"), 'write `@rename_from("Old")`'),
}
"""What other languages call it, and how it is written here."""


class AnnotationTarget(enum.Enum):
    """What an annotation is attached to."""

    NODE = "node"
    EDGE = "edge"
    INTERFACE_PROPERTY = "interface property"
    NODE_PROPERTY = "node property"
    EDGE_PROPERTY = "edge property"


_HEADERS: Final = frozenset({AnnotationTarget.NODE, AnnotationTarget.EDGE})


def check_annotations(
    annotations: tuple[ast.Annotation, ...], place: AnnotationTarget, *, was_accepted: bool
) -> Iterator[Diagnostic]:
    """All findings about the annotations of one element, except the target of `@embed`.

    `was_accepted` says that a graph has this text already.
    """
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
        yield from check_literals(annotation.arguments or ())
        if annotation.name in _FAMILIAR:
            yield from _check_one(annotation, place)
        else:
            yield _unknown(annotation, was_accepted=was_accepted)


def check_literals(arguments: Iterable[ast.Argument]) -> Iterator[Diagnostic]:
    """Escapes and numbers inside the arguments."""
    for argument in arguments:
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
            assert annotation.name == META
            yield from _meta_form(annotation)


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


def _meta_form(annotation: ast.Annotation) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for argument in annotation.arguments or (annotation,):
        problem = _meta_problem(argument, seen)
        if problem:
            yield error(
                Rule.ANNOTATION_ARGUMENTS,
                argument.span,
                problem,
                'the form is `@meta(unit="words", rounded=true)`',
            )


def _meta_problem(argument: ast.Argument | ast.Annotation, seen: set[str]) -> str:
    if not isinstance(argument, ast.Keyword):
        return "`@meta` takes one or more `name=value`"
    name = argument.name.text
    if isinstance(argument.value, ast.Word) and argument.value.text not in ("true", "false"):
        return f"`{name[:80]}` takes a string, a number, `true` or `false`"
    if name in seen:
        return f"`{name[:80]}` is given twice"
    seen.add(name)
    return ""


def _unknown(annotation: ast.Annotation, *, was_accepted: bool) -> Diagnostic:
    name = annotation.name
    hint = (
        _OTHER_WORDS.get(name)
        or did_you_mean(f"@{name}", _SPELLINGS, similarity_min=_SLIP_SIMILARITY_MIN)
        or f"metadata of your own is written `{_as_meta(annotation)}`"
    )
    if was_accepted:
        return warning(
            Rule.UNKNOWN_ANNOTATION,
            annotation.span,
            f"`@{name[:80]}` is unknown and has no effect; a changed schema cannot have it",
            hint,
        )
    message = f"`@{name[:80]}` is not an annotation"
    return error(Rule.UNKNOWN_ANNOTATION, annotation.span, message, hint)


def _as_meta(annotation: ast.Annotation) -> str:
    """The same values as an argument of `@meta`, or an example if it cannot hold them."""
    name, arguments = annotation.name, annotation.arguments
    match arguments:
        case None:
            value = "true"
        case (ast.StringLiteral() | ast.NumberLiteral() as literal,):
            value = literal.raw
        case (ast.Word(text="true" | "false") as word,):
            value = word.text
        case (ast.Word() as word,):
            value = f'"{word.text}"'
        case _:
            value = '"..."'
    return f"@meta({name}={value})" if len(name) + len(value) <= _SHOWN_MAX else "@meta(name=value)"
