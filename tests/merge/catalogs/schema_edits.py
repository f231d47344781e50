"""One edit of a schema for every kind of step, most of them about the same few elements."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TypeVar

from omnigraph_lake.evolution.plan import plan as ep
from omnigraph_lake.evolution.plan.columns import Fill, ValueMapping
from omnigraph_lake.evolution.plan.planning import Evolution, evolve
from omnigraph_lake.merge.catalogs import SchemaSide
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.catalog import FIRST_UNIQUE_NUMBER
from tests.schema.compiling import compiled

BASE = """\
interface Named { name: String }
interface Aged { age: I32? }
node Person implements Named, Aged {
    key: String @key
    name: String
    age: I32?
    state: enum(here, left, gone)
    mood: String?
    facts: Json?
    note: String
    body: String
    meaning: Vector(2)? @embed(note, model="m")
    @range(age, 0..100)
}
node Town { key: String @key  since: I32? }
edge Knows: Person -> Person @card(0..5) { weight: I32? }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of the base as replacements of texts."""

    name: str
    replacements: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        text = BASE
        for old, new in self.replacements:
            assert text.count(old) == 1, (self.name, old)
            text = text.replace(old, new)
        return text


def _edit(name: str, *replacements: tuple[str, str]) -> Edit:
    return Edit(name=name, replacements=replacements)


AGE = "    age: I32?\n"
RANGE = "    @range(age, 0..100)\n"
BODY = "    body: String\n"
MOOD = "    mood: String?\n"
STATE = "    state: enum(here, left, gone)\n"
EDITS = [
    _edit("add_type", ("node Town", "node Firm { key: String @key }\nnode Town")),
    _edit("add_type otherwise", ("node Town", "node Firm { code: I32 @key }\nnode Town")),
    _edit(
        "add_type that inherits", ("node Town", "node Pet implements Named { tag: I32 }\nnode Town")
    ),
    _edit("add_edge to Town", ("edge Knows", "edge LivesIn: Person -> Town\nedge Knows")),
    _edit("add_property", (AGE, f"{AGE}    b: I32?\n")),
    _edit("add_property otherwise", (AGE, f"{AGE}    b: String?\n")),
    _edit("add_property filled", (AGE, f"{AGE}    b: I32 @backfill(1)\n")),
    _edit("add_property filled otherwise", (AGE, f"{AGE}    b: I32 @backfill(2)\n")),
    _edit("rename_type", ("node Town", 'node City @rename_from("Town")')),
    _edit("rename_type otherwise", ("node Town", 'node Place @rename_from("Town")')),
    _edit("drop_type", ("node Town { key: String @key  since: I32? }\n", "")),
    _edit("update_type_metadata", ("node Town", 'node Town @description("one")')),
    _edit("update_type_metadata otherwise", ("node Town", 'node Town @description("two")')),
    _edit("widen_since", ("since: I32?", "since: I64?")),
    _edit("widen_since to decimal", ("since: I32?", "since: Decimal(11, 1)?")),
    _edit(
        "rename_property",
        (AGE, '    years: I32? @rename_from("age")\n'),
        ("age: I32? }", "years: I32? }"),
        ("@range(age", "@range(years"),
    ),
    _edit("rename_property to b", (BODY, '    b: String @rename_from("body")\n')),
    _edit("rename_mood", (MOOD, '    temper: String? @rename_from("mood")\n')),
    _edit("widen_property", (AGE, "    age: I64?\n"), ("age: I32? }", "age: I64? }")),
    _edit("widen_property otherwise", (AGE, "    age: F64?\n"), ("age: I32? }", "age: F64? }")),
    _edit(
        "widen_property to decimal",
        (AGE, "    age: Decimal(12, 2)?\n"),
        ("age: I32? }", "age: Decimal(12, 2)? }"),
    ),
    _edit("extend_enum", (STATE, "    state: enum(here, left, gone, new)\n")),
    _edit("extend_enum otherwise", (STATE, "    state: enum(here, left, gone, old)\n")),
    _edit("map_values", (STATE, "    state: enum(here, gone) @rename_value(left=gone)\n")),
    _edit(
        "map_values otherwise", (STATE, "    state: enum(here, left) @rename_value(gone=left)\n")
    ),
    _edit(
        "map_values to another", (STATE, "    state: enum(here, gone) @rename_value(left=here)\n")
    ),
    _edit("narrow_enum", (STATE, "    state: enum(here, left)\n")),
    _edit("enum_to_string", (STATE, "    state: String\n")),
    _edit("string_to_enum", (MOOD, "    mood: enum(good, bad)?\n")),
    _edit("string_to_enum otherwise", (MOOD, "    mood: enum(fine)?\n")),
    _edit("json_to_string", ("    facts: Json?\n", "    facts: String?\n")),
    _edit("string_to_json", (MOOD, "    mood: Json?\n")),
    _edit("make_required", (AGE, "    age: I32 @backfill(1)\n"), ("age: I32? }", "age: I32 }")),
    _edit("make_nullable", (BODY, "    body: String?\n")),
    _edit("change_embed", ('@embed(note, model="m")', '@embed(body, model="m")')),
    _edit("change_embed otherwise", ('@embed(note, model="m")', '@embed(note, model="n")')),
    _edit("update_property_metadata", (BODY, '    body: String @description("one")\n')),
    _edit(
        "update_property_metadata otherwise",
        (BODY, '    body: String @description("two")\n'),
    ),
    _edit("change_default", (BODY, '    body: String = "x"\n')),
    _edit("change_default otherwise", (BODY, '    body: String = "y"\n')),
    _edit("change_interfaces", ("implements Named, Aged", "implements Named")),
    _edit(
        "retype_promise",
        ("interface Named { name: String }", "interface Named { name: String  b: I32? }"),
    ),
    _edit("add_constraint", (RANGE, f"{RANGE}    @unique(body, mood)\n")),
    _edit("add_index", (RANGE, f"{RANGE}    @index(body)\n")),
    _edit("add_check", (RANGE, f'{RANGE}    @check(body, "a")\n')),
    _edit("change_range", (RANGE, "    @range(age, 0..200)\n")),
    _edit("change_range otherwise", (RANGE, "    @range(age, 0..150)\n")),
    _edit("remove_constraint", (RANGE, "")),
    _edit("change_cardinality", ("@card(0..5)", "@card(0..7)")),
    _edit("change_cardinality otherwise", ("@card(0..5)", "@card(0..9)")),
    _edit("change_clustering", ("@card(0..5)", "@card(0..5) @cluster")),
    _edit("change_ends", ("edge Knows: Person -> Person", "edge Knows: Person -> Person | Town")),
    _edit("drop_property", (AGE, ""), (RANGE, ""), ("implements Named, Aged", "implements Named")),
    _edit("drop_body", (BODY, "")),
    _edit("drop_mood", (MOOD, "")),
]


D = TypeVar("D", ct.InterfaceType, ct.NodeType, ct.EdgeType)


@functools.cache
def base() -> ct.Catalog:
    return compiled(BASE)


@functools.cache
def evolution(edit: Edit) -> Evolution:
    change = evolve(base(), edit.text)
    assert change.plan.supported, (edit.name, change.plan.refusals)
    return change


@functools.cache
def side(edit: Edit, first: int = FIRST_UNIQUE_NUMBER) -> SchemaSide:
    """The schema after an edit, with numbers that no other side has."""
    change = evolution(edit)
    fills: dict[int, Fill] = {}
    mappings: dict[int, tuple[ValueMapping, ...]] = {}
    for step in change.plan.steps:
        match step:
            case ep.AddProperty(added=added, fill=fill) if fill is not None:
                fills[_unique(added.number, first)] = fill
            case ep.MakeRequired(number=number, fill=fill) if fill is not None:
                fills[number] = fill
            case ep.MapValues(number=number, mapping=mapping):
                mappings[number] = mapping
            case _:
                pass
    return SchemaSide(catalog=_renumbered(change.target, first), fills=fills, mappings=mappings)


def counted(edit: Edit) -> ct.Catalog:
    """The schema after an edit as earlier releases numbered it: by the count of its branch."""
    target = evolution(edit).target
    types: list[ct.InterfaceType | ct.NodeType | ct.EdgeType] = [
        *target.interfaces.values(),
        *target.nodes.values(),
        *target.edges.values(),
    ]
    first = min(
        number
        for declared in types
        for number in (declared.number, *(prop.number for prop in declared.properties.values()))
        if number >= FIRST_UNIQUE_NUMBER
    )
    return _renumbered(target, base().next_number - first)


def _unique(number: int, first: int) -> int:
    return number if number < base().next_number else first + number


def _renumbered(catalog: ct.Catalog, first: int) -> ct.Catalog:
    def renumber(declared: D) -> D:
        return replace(
            declared,
            number=_unique(declared.number, first),
            properties=ct.ByName(
                replace(prop, number=_unique(prop.number, first))
                for prop in declared.properties.values()
            ),
        )

    return replace(
        catalog,
        interfaces=ct.ByName(map(renumber, catalog.interfaces.values())),
        nodes=ct.ByName(map(renumber, catalog.nodes.values())),
        edges=ct.ByName(map(renumber, catalog.edges.values())),
    )
