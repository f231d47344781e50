"""Texts with a mark where the cursor is."""

from __future__ import annotations

from typing import Final

from omnigraph_lake.editor.content import LanguageDocument, TextRange
from omnigraph_lake.editor.query_document import QueryDocument
from omnigraph_lake.editor.schema_document import SchemaDocument
from tests.schema.compiling import compiled

CURSOR: Final = "¦"
SCHEMA: Final = """
interface Named {
    name: String @description("What it is called")
}
node Person implements Named {
    email: String @key
    age: I32? @index
    status: enum(active, away)
    @range(age, 0..150)
}
node Company implements Named { code: String @key  meaning: Vector(4)? @embed("name") }
edge WorksAt: Person -> Company @card(0..1) { role: String  since: Date? }
edge Knows: Person -> Person
"""
CATALOG: Final = compiled(SCHEMA)


def query(marked: str) -> tuple[QueryDocument, int]:
    return QueryDocument(marked.replace(CURSOR, ""), CATALOG), marked.index(CURSOR)


def schema(marked: str) -> tuple[SchemaDocument, int]:
    return SchemaDocument(marked.replace(CURSOR, "")), marked.index(CURSOR)


def offered(text: LanguageDocument, offset: int) -> list[str]:
    return [item.text for item in text.completions(offset).items]


def shown(text: LanguageDocument, offset: int) -> str:
    hover = text.hover(offset)
    return "" if hover is None else f"{hover.code}\n{hover.description}"


def at(text: LanguageDocument, place: object) -> str:
    assert isinstance(place, TextRange)
    return text.text[place.start : place.end]


def renamed(text: LanguageDocument, offset: int, name: str) -> str:
    parts, end = [], 0
    for place in sorted(text.rename(offset, name), key=lambda place: place.start):
        parts += [text.text[end : place.start], name]
        end = place.end
    return "".join([*parts, text.text[end:]])
