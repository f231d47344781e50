"""What an editor shows about a place of a text, and the words of the languages, explained.

Invariant: places are offsets into the text, as Python counts them. Every function of the query
language and every annotation that Omnigraph interprets is explained here.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.query.functions import DECLARATIONS, NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRange:
    """The text from `start` up to, not including, `end`."""

    start: int
    end: int


class CompletionKind(enum.Enum):
    """What a completion is, which decides its symbol in an editor."""

    KEYWORD = "keyword"
    TYPE = "type"
    EDGE = "edge"
    PROPERTY = "property"
    VARIABLE = "variable"
    FUNCTION = "function"
    ANNOTATION = "annotation"
    VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A word that can be written at a place; `detail` is its type or signature."""

    text: str
    kind: CompletionKind
    detail: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """What can be written instead of the text of a range, which the cursor is in."""

    range: TextRange
    items: tuple[Completion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hover:
    """The explanation of a word: a line of code, and text."""

    range: TextRange
    code: str
    description: str = ""


class ElementKind(enum.Enum):
    """The kinds of declarations of a schema; two of different kinds may have the same name."""

    INTERFACE = "interface"
    NODE = "node"
    EDGE = "edge"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaElement:
    """A type of a schema, or one of its properties."""

    kind: ElementKind
    type: str
    property: str | None = None


class LanguageDocument(Protocol):
    """A text of one of the languages, as it is in an editor at this moment."""

    @property
    def text(self) -> str: ...

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Every finding about the text."""

    def completions(self, offset: int) -> Completions:
        """What can be written at a place, whether the text parses or not."""

    def hover(self, offset: int) -> Hover | None:
        """The explanation of the word at a place."""

    def definition(self, offset: int) -> TextRange | SchemaElement | None:
        """Where the name at a place is declared: in this text, or in the schema."""

    def renamable(self, offset: int) -> TextRange | None:
        """The name at a place, if it can be renamed."""

    def rename(self, offset: int, name: str) -> tuple[TextRange, ...]:
        """Every place of the name that is at a place, to be replaced by a new one.

        Raises:
            InvalidInputError: the text does not parse, or it would mean something else.
        """

    def format(self) -> str | None:
        """The text in canonical layout; None if it does not parse."""


class WordKind(enum.Enum):
    """What a place of a text is in."""

    COMMENT = "comment"
    STRING = "string"
    WORD = "word"


@dataclass(frozen=True, slots=True, kw_only=True)
class WordAt:
    """What is being written at a place: up to the cursor, or the whole string it is in."""

    kind: WordKind
    range: TextRange


_COMMENT_OR_STRING: Final = re.compile(
    r"""//[^\n]*+ | /\*[\s\S]*?\*/ | "(?:[^"\\\n]++|\\[^\n])*+"
    | (?P<open>/\*[\s\S]*+ | "[^\n]*+)""",
    re.VERBOSE,
)
_WORD_BEFORE: Final = re.compile(r"[$@]?\w*$")


def word_at(text: str, offset: int) -> WordAt:
    """What is being written at a place."""
    for literal in _COMMENT_OR_STRING.finditer(text):
        if literal.start() >= offset:
            break
        ends_later = literal.end() > offset
        is_open = literal.lastgroup == "open" or literal.group().startswith("//")
        if ends_later or (is_open and literal.end() == offset):
            is_string = literal.group().startswith('"')
            kind = WordKind.STRING if is_string else WordKind.COMMENT
            return WordAt(kind=kind, range=TextRange(start=literal.start(), end=literal.end()))
    line_start = text.rfind("\n", 0, offset) + 1
    word = _WORD_BEFORE.search(text[line_start:offset])
    start = offset if word is None else line_start + word.start()
    return WordAt(kind=WordKind.WORD, range=TextRange(start=start, end=offset))


def replace_places(text: str, places: tuple[TextRange, ...], new_name: str) -> str:
    """The text with a new name at every place."""
    parts: list[str] = []
    end = 0
    for place in sorted(places, key=lambda place: place.start):
        parts += [text[end : place.start], new_name]
        end = place.end
    return "".join([*parts, text[end:]])


FUNCTIONS_EXPLAINED: Final[Mapping[str, tuple[str, str]]] = {
    "now": ("now() -> DateTime", "The time of the run."),
    "date": ('date("2024-05-31") -> Date', "A date, as a literal."),
    "datetime": ('datetime("2024-05-31T12:30:00Z") -> DateTime', "A point in time, as a literal."),
    "duration": (
        'duration("P1DT2H30M") -> I64',
        "A duration of weeks, days, hours, minutes and seconds, in microseconds, as a literal.",
    ),
    "type": ("type($x) -> String", "The name of the type of a node or an edge."),
    "types": ("types($path) -> [String]", "The types of the nodes of a path."),
    "edge_types": ("edge_types($path) -> [String]", "The types of the edges of a path."),
    "nodes": ("nodes($path) -> [String]", "The ids of the nodes of a path, both ends included."),
    "edges": ("edges($path) -> [String]", "The ids of the edges of a path."),
    "weight": (
        "weight($path) -> I64 | F64",
        "The sum of the weights of the edges of a path that is named by `as $path by property`.",
    ),
    **{
        function.value: (declaration.shown, declaration.meaning)
        for function, declaration in DECLARATIONS.items()
    },
    "if": ("if(condition: Bool, x, y)", "`x` if the condition is true, else `y`."),
    "coalesce": ("coalesce(x, y, ...)", "The first value that is not null."),
    "cast": (
        "cast(x as Type) -> Type",
        "The value in another type; an error if it has none there.",
    ),
    "try_cast": (
        "try_cast(x as Type) -> Type",
        "The value in another type; null if it has none there.",
    ),
    NODE: (
        "node(Type, id: String)",
        "A node as an end of an edge that is inserted: `to: node(Company, $id)`.",
    ),
    "search": (
        "search(field: String, words: String) -> Bool",
        "Whether a token of the words is a token of the field.",
    ),
    "match_text": (
        "match_text(field: String, phrase: String) -> Bool",
        "Whether the tokens of the phrase follow each other in the field, in this order.",
    ),
    "fuzzy": (
        "fuzzy(field: String, words: String, edits: I64 = 2) -> Bool",
        "Whether a token of the field differs from a token of the words by at most `edits` letters "
        "inserted, deleted or replaced; 0 to 2.",
    ),
    "nearest": (
        "nearest(field: Vector, query: Vector [, exact]) -> F64",
        "A ranking: the distance of a vector property from a list of numbers or a parameter. "
        "The smallest comes first.",
    ),
    "bm25": (
        "bm25(field: String, words: String) -> F64",
        "A ranking: the relevance of a property among all entities of its type. "
        "The greatest comes first.",
    ),
    "rrf": (
        "rrf(ranking, ranking, k: I64 = 60) -> F64",
        "A ranking: 1 / (k + rank), summed over two rankings of one variable. "
        "The greatest comes first.",
    ),
    "count": (
        "count(*) | count(x) | count(distinct x) -> I64",
        "An aggregate: the rows, those where `x` is not null, or the different values.",
    ),
    "sum": (
        "sum(x) -> I64 | U64 | F64 | Decimal",
        "An aggregate: the sum of numbers; exact for integers and decimals.",
    ),
    "avg": ("avg(x) -> F64", "An aggregate: the mean of numbers."),
    "min": ("min(x)", "An aggregate: the smallest value; of the type of `x`."),
    "max": ("max(x)", "An aggregate: the greatest value; of the type of `x`."),
    "collect": (
        "collect(x) | collect(distinct x)",
        "An aggregate: the values as a list, ordered by value.",
    ),
    "stddev": ("stddev(x) -> F64", "An aggregate: the standard deviation of a sample of numbers."),
    "percentile": (
        "percentile(x, fraction: F64) -> F64",
        "An aggregate: the number at a fraction, 0 to 1, of the sorted ones; 0.5 is the median.",
    ),
    "first": ("first(x by y)", "An aggregate: the `x` of the row with the smallest `y`."),
    "last": ("last(x by y)", "An aggregate: the `x` of the row with the greatest `y`."),
}
"""The signature and the meaning of every function of the query language."""

ANNOTATIONS_EXPLAINED: Final[Mapping[str, tuple[str, str]]] = {
    "key": ("@key, @key(a, b)", "The identity of a node; at most one. Creates indexes."),
    "unique": ("@unique, @unique(a, b)", "No two entities share the values; a null exempts."),
    "index": (
        "@index, @index(a, b), @index(metric=cosine)",
        "An index on each property; of a vector with the metric cosine, l2 or dot.",
    ),
    "range": ("@range(property, low..high)", "Both bounds are included; a null is exempt."),
    "check": ('@check(property, "regex")', "The pattern occurs in the text; a null is exempt."),
    "card": ("@card(low..high)", "How many edges of this type a source node has."),
    "cluster": ("@cluster", "`optimize` keeps the edges in the order of their sources."),
    "description": ('@description("...")', "What it is, for people and tools."),
    "instruction": ('@instruction("...")', "How tools should use it."),
    "embed": ('@embed("source", model="...")', "The String property that the vector was made of."),
    "meta": ('@meta(unit="words", rounded=true)', "Metadata of your own; it has no effect."),
    "rename_from": ('@rename_from("Old")', "The former name, when the schema is applied."),
    "backfill": (
        '@backfill(value), @backfill(from="property")',
        "The value of existing rows, when the schema is applied.",
    ),
    "rename_value": (
        '@rename_value(old="new")',
        "How existing values of an enum are converted, when the schema is applied.",
    ),
}
"""The forms and the meaning of every annotation that Omnigraph interprets."""


def complete_annotation(name: str) -> Completion:
    form, meaning = ANNOTATIONS_EXPLAINED[name]
    return Completion(
        text=f"@{name}", kind=CompletionKind.ANNOTATION, detail=form, description=meaning
    )


TYPES_EXPLAINED: Final[Mapping[str, str]] = {
    "String": "Text, in UTF-8.",
    "Blob": "Bytes, stored apart from the other columns.",
    "Bool": "`true` or `false`.",
    "I32": "A signed integer of 32 bits.",
    "I64": "A signed integer of 64 bits.",
    "U32": "An unsigned integer of 32 bits.",
    "U64": "An unsigned integer of 64 bits.",
    "F32": "A floating-point number of 32 bits.",
    "F64": "A floating-point number of 64 bits.",
    "Date": "A calendar day.",
    "DateTime": "A point in time, in microseconds.",
    "Json": "A JSON value: an object, an array, a string, a number, `true` or `false`.",
    "Decimal": "An exact number: `Decimal(12, 2)` has 12 digits, 2 of them behind the point.",
    "Vector": "A fixed number of 32-bit floats: `Vector(384)`.",
}
"""The meaning of every base type."""
