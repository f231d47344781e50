"""Random schemas as texts, and random changes of them; everything follows from one seed."""

from __future__ import annotations

import copy
import datetime as dt
import math
import random
import re
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.schema.catalog import (
    Catalog,
    DecimalType,
    EnumType,
    ListType,
    PropertyType,
    ScalarType,
    VectorType,
)
from tests import behind
from tests.behind import shape_hash


def single(value: float) -> float:
    """The number that a column of single precision holds instead."""
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


NAMES = ("p", "q", "r", "s", "t", "u", "w")
NODES, EDGES, INTERFACES = ("A", "B", "C", "D", "N"), ("E", "F", "G", "H"), ("I", "J", "K")
ENUMS = ("enum(a, b)", "enum(b, c)", "enum(a, b, c)", "enum(c)")
TYPES = (
    *("I32", "I64", "U32", "U64", "F32", "F64", "String", "String", "Bool", "Date", "DateTime"),
    *(*ENUMS[:3], *ENUMS[:3], "[I32]", "[String]", "Vector(2)", "Blob"),
)
WIDER = {
    "I32": ("I64", "F64"),
    "U32": ("U64", "I64", "F64"),
    "F32": ("F64",),
}
NUMBERS = ("I32", "I64", "U32", "U64", "F32", "F64")
RANGES = ("0..10", "0..", "..0.1", "-5..7", "0.0..10", "..9", "-9000000000000000000..")
PATTERNS = ("a", "^a", "b|x", "x$", "^[a-c]*$")
CARDS = ("", "", "0..1", "1..", "0..3", "1..2", "2..3")
KEYS = ("", "String", "String", "U32", "enum(a, b, c)", "F32", "String I32")
VALUES: dict[str, tuple[Any, ...]] = {
    "I32": (-(2**31), -5, -1, 0, 1, 7, 10, 2**31 - 1),
    "I64": (-(2**63), -(2**63) + 1, -5, -1, 0, 1, 7, 2**53 + 1, 2**63 - 1),
    "U32": (0, 1, 7, 10, 2**32 - 1),
    "U64": (0, 1, 7, 10, 2**53 + 1, 2**64 - 1),
    "F32": (-5.0, 0.0, -0.0, single(0.1), 0.5, 7.0, 10.0, math.nan, math.inf),
    "F64": (-5.0, 0.0, -0.0, 0.1, 0.5, 7.0, 1e300, 5e-324, math.nan, -math.inf),
    "String": ("", "a", "b", "c", "ab", "x", "ax", "\N{SNOWMAN}"),
    "Bool": (False, True),
    "Date": (dt.date(2026, 1, 31), dt.date(1970, 1, 1), dt.date(1912, 6, 23)),
    "DateTime": (
        dt.datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=dt.UTC),
        dt.datetime(1912, 6, 23, tzinfo=dt.UTC),
    ),
    "[I32]": ([], [1, None], [-(2**31), 7]),
    "[String]": ([], [""], ["a", None, "b"]),
    "Vector(2)": ([0.5, -1.0], [0.0, single(0.1)]),
    "Blob": (b"", b"x", b"blob" * 40),
}
LITERALS: dict[str, dict[str, Any]] = {
    **{each: {"0": 0, "7": 7, "-1": -1} for each in ("I32", "I64")},
    **{each: {"0": 0, "7": 7} for each in ("U32", "U64")},
    "F32": {"0": 0.0, "-1.5": -1.5, "0.1": single(0.1)},
    "F64": {"0": 0.0, "-1.5": -1.5, "0.1": 0.1},
    "String": {'"a"': "a", '"x"': "x", '""': ""},
    "Bool": {"true": True, "false": False},
    "Date": {'"2026-01-31"': dt.date(2026, 1, 31)},
    "DateTime": {
        '"2026-01-31T14:00:00+02:00"': dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
    },
    **{each: {word: word for word in re.findall(r"\b[a-c]\b", each)} for each in ENUMS},
}


@dataclass
class Column:
    """A property with its hints: the name it had, and what fills or maps its values."""

    name: str
    type: str
    nullable: bool
    words: set[str] = field(default_factory=set)
    description: str = ""
    embed: str = ""
    default: str = ""
    was: str = ""
    literal: str = ""
    source: str = ""
    mapping: dict[str, str] = field(default_factory=dict)

    @property
    def comparable(self) -> bool:
        return self.type not in ("[I32]", "[String]", "Vector(2)", "Blob")

    @property
    def text(self) -> str:
        parts = [f"{self.name}: {self.type}{'?' if self.nullable else ''}"]
        parts += [f"= {self.default}"] if self.default else []
        parts += sorted(self.words)
        parts += [f'@description("{self.description}")'] if self.description else []
        parts += [f"@embed({self.embed})"] if self.embed else []
        parts += [f'@rename_from("{self.was}")'] if self.was else []
        parts += [f"@backfill({self.literal})"] if self.literal else []
        parts += [f"@backfill(from={self.source})"] if self.source else []
        pairs = ", ".join(f'{old}="{new}"' for old, new in self.mapping.items())
        return " ".join([*parts, *([f"@rename_value({pairs})"] if pairs else [])])


@dataclass
class Declared:
    """A type as it is written; `groups` holds constraints as a word, members and the rest."""

    kind: str
    name: str
    columns: list[Column] = field(default_factory=list)
    key: tuple[str, ...] = ()
    groups: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)
    ends: tuple[str, str] = ("", "")
    card: str = ""
    is_clustered: bool = False
    implements: list[str] = field(default_factory=list)
    description: str = ""
    was: str = ""

    @property
    def table_key(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def text(self) -> str:
        header = [f"{self.kind} {self.name}"]
        if self.kind == "edge":
            header = [f"edge {self.name}: {self.ends[0]} -> {self.ends[1]}"]
        header += [f"@card({self.card})"] if self.card else []
        header += ["@cluster"] if self.is_clustered else []
        header += [f'@description("{self.description}")'] if self.description else []
        header += [f'@rename_from("{self.was}")'] if self.was else []
        header += [f"implements {', '.join(self.implements)}"] if self.implements else []
        body = [each.text for each in self.columns]
        body += [f"@key({', '.join(self.key)})"] if self.key else []
        body += [
            f"@{word}({', '.join([*members, *([rest] if rest else [])])})"
            for word, members, rest in self.groups
        ]
        return " ".join(header) + " {\n    " + "\n    ".join(body) + "\n}"


Schema = list[Declared]


@cache
def compiled(text: str) -> Catalog:
    return behind.compiled(text)


def text_of(schema: Schema) -> str:
    return "\n".join(each.text for each in schema)


def without_hints(schema: Schema) -> Schema:
    """The same schema, as if it had always been so."""
    plain = copy.deepcopy(schema)
    for owner in plain:
        owner.was = ""
        for each in owner.columns:
            each.was = each.literal = each.source = ""
            each.mapping = {}
    return plain


def drawn_schema(rng: random.Random) -> Schema:
    """Two or three node types, one or two edge types, and interfaces."""
    while True:
        schema = [_interface(rng, name) for name in INTERFACES[: rng.randrange(3)]]
        promised = [each.name for each in schema]
        nodes = [_node(rng, name, promised) for name in NODES[: rng.randint(2, 3)]]
        edges = [_edge(rng, name, nodes) for name in EDGES[: rng.randint(1, 2)]]
        schema += [*nodes, *edges]
        _tidy(schema, compiled(""))
        if _compiles(schema):
            return schema


def changed(rng: random.Random, accepted: Schema) -> Schema:
    """A schema that a few edits make of an accepted one, with the hints that go with them."""
    catalog = compiled(text_of(accepted))
    for _ in range(50):
        schema = copy.deepcopy(accepted)
        for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
            _edit(rng, schema, catalog)
        rng.shuffle(schema)
        _tidy(schema, catalog)
        if not _compiles(schema) or not any(each.kind == "node" for each in schema):
            continue
        says_the_same = shape_hash(compiled(text_of(schema))) == shape_hash(catalog)
        if not says_the_same or rng.random() < 0.2:
            return schema
    return copy.deepcopy(accepted)


def _compiles(schema: Schema) -> bool:
    try:
        compiled(text_of(schema))
    except SchemaInvalidError:
        return False
    return True


def _column(rng: random.Random, name: str) -> Column:
    column = Column(name=name, type=rng.choice(TYPES), nullable=rng.random() < 0.6)
    column.description = rng.choice(["", "", "d"])
    if rng.random() < 0.15:
        column.default = _default(rng, column)
    if column.comparable:
        column.words = {each for each in ("@unique", "@index") if rng.random() < 0.15}
    return column


def _default(rng: random.Random, column: Column) -> str:
    return rng.choice(["", *LITERALS.get(column.type, {})])


def _interface(rng: random.Random, name: str) -> Declared:
    columns = [_column(rng, f"{name.lower()}{number}") for number in range(rng.randint(1, 2))]
    return Declared(kind="interface", name=name, columns=columns)


def _node(rng: random.Random, name: str, promised: Collection[str]) -> Declared:
    columns = [_column(rng, each) for each in NAMES if rng.random() < 0.5]
    node = Declared(kind="node", name=name, columns=columns)
    for number, kind in enumerate(rng.choice(KEYS).split()):
        node.columns.insert(0, Column(name=f"k{number}", type=kind, nullable=False))
        node.key = (*node.key, f"k{number}")
    node.implements = [each for each in promised if rng.random() < 0.5]
    for each in node.columns:
        each.embed = rng.choice(["", *(one.name for one in node.columns if one.type == "String")])
    node.groups = [_group(rng, node) for _ in range(rng.randrange(3))]
    return node


def _edge(rng: random.Random, name: str, nodes: Collection[Declared]) -> Declared:
    columns = [_column(rng, each) for each in NAMES[:4] if rng.random() < 0.4]
    ends = [each.name for each in nodes]
    edge = Declared(kind="edge", name=name, columns=columns, card=rng.choice(CARDS))
    edge.ends = (rng.choice(ends), rng.choice(ends))
    edge.groups = [_group(rng, edge) for _ in range(rng.randrange(2))]
    return edge


def _group(rng: random.Random, owner: Declared) -> tuple[str, tuple[str, ...], str]:
    names = [each.name for each in owner.columns] or ["p"]
    if owner.kind == "edge":
        names += ["src", "dst"]
    numbers = [each.name for each in owner.columns if each.type in NUMBERS]
    texts = [each.name for each in owner.columns if each.type == "String"]
    match rng.choice(["unique", "index", "range", "range", "check"]):
        case "range" if numbers:
            return "range", (rng.choice(numbers),), rng.choice(RANGES)
        case "check" if texts:
            return "check", (rng.choice(texts),), f'"{rng.choice(PATTERNS)}"'
        case "index":
            return "index", (rng.choice(names),), ""
        case _:
            return "unique", tuple(rng.sample(names, rng.randint(1, min(2, len(names))))), ""


def _edit(rng: random.Random, schema: Schema, accepted: Catalog) -> None:
    rng.choice(_EDITS)(rng, schema, rng.choice(schema), accepted)


def _drop_type(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    if len(schema) > 2:
        schema.remove(owner)


def _change_card(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    if owner.kind == "edge":
        owner.card = rng.choice(CARDS)
        owner.is_clustered = rng.random() < 0.5


def _add_group(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    if owner.kind != "interface":
        owner.groups.append(_group(rng, owner))


def _remove_group(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    if owner.groups:
        owner.groups.remove(rng.choice(owner.groups))


def _describe(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    if owner.kind != "interface":
        owner.description = rng.choice(["", "d", "e"])


def _respell(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    """The same constraints in another form."""
    owner.key = owner.key[::-1]
    owner.groups = [(word, members[::-1], rest) for word, members, rest in owner.groups]
    for column in owner.columns:
        if "@index" in column.words and owner.kind != "interface":
            column.words.remove("@index")
            owner.groups.append(("index", (column.name,), ""))


def _change_embed(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    # Few types have a vector and a text, so that all are changed.
    for declared in schema:
        texts = [each.name for each in declared.columns if each.type == "String"]
        for column in declared.columns:
            column.embed = rng.choice(["", *texts])


def _edit_some_column(
    rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog
) -> None:
    if owner.columns:
        _edit_column(rng, schema, owner, rng.choice(owner.columns), accepted)


def _fresh(rng: random.Random, pool: Iterable[str], *taken: Collection[str]) -> str | None:
    free = [name for name in pool if not any(name in each for each in taken)]
    return rng.choice(free) if free else None


def types(catalog: Catalog, kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(catalog, f"{kind}s")
    return found


def _rename_type(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    if owner.kind == "interface":
        _rename_interface(rng, schema, owner, accepted)
        return
    known = types(accepted, owner.kind)
    pool = NODES if owner.kind == "node" else EDGES
    name = _fresh(rng, pool, known, [each.name for each in schema])
    if name is None:
        return
    old, owner.name = owner.name, name
    owner.was = owner.was or (old if old in known else "")
    for each in schema:
        if owner.kind == "node":
            source, target = each.ends
            each.ends = (name if source == old else source, name if target == old else target)


def _add_type(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    kind = rng.choice(["node", "edge", "interface"])
    pool = {"node": NODES, "edge": EDGES, "interface": INTERFACES}[kind]
    name = _fresh(rng, pool, types(accepted, kind), [each.name for each in schema])
    nodes = [each for each in schema if each.kind == "node"]
    if name is None:
        return
    if kind == "node":
        schema.append(_node(rng, name, [each.name for each in schema if each.kind == "interface"]))
    elif kind == "edge" and nodes:
        schema.append(_edge(rng, name, nodes))
    elif kind == "interface":
        schema.append(_interface(rng, name))


def _change_interfaces(
    rng: random.Random, schema: Schema, node: Declared, accepted: Catalog
) -> None:
    if node.kind != "node":
        return
    promised = {each.name: each for each in schema if each.kind == "interface"}
    left = node.implements
    node.implements = [each for each in promised if rng.random() < 0.5]
    if rng.random() < 0.5:
        # What was inherited stays as a property of the node's own.
        own = {each.name for each in node.columns}
        for name in (name for name in left if name not in node.implements):
            columns = promised[name].columns if name in promised else []
            node.columns += [
                Column(name=each.name, type=each.type, nullable=each.nullable)
                for each in columns
                if each.name not in own
            ]


def _rename_interface(
    rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog
) -> None:
    name = _fresh(rng, INTERFACES, accepted.interfaces, [each.name for each in schema])
    if name is None or any(each.was for each in owner.columns):
        return
    for each in schema:
        each.implements = [name if one == owner.name else one for one in each.implements]
    owner.name = name


def _add_column(rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog) -> None:
    name = _fresh(rng, *_column_names(owner, accepted))
    if name is not None:
        column = _column(rng, name)
        _hint(rng, column, owner)
        owner.columns.insert(rng.randint(0, len(owner.columns)), column)


def _column_names(
    owner: Declared, accepted: Catalog
) -> tuple[Iterable[str], Collection[str], Collection[str]]:
    """Names to choose from, those of the accepted type, and those of the new one."""
    pool = NAMES if owner.kind != "interface" else [f"{owner.name.lower()}{n}" for n in range(5)]
    known = types(accepted, owner.kind).get(owner.was or owner.name)
    names = [each.name for each in owner.columns]
    return pool, (() if known is None else known.properties), names


def _ask_for_too_much(
    rng: random.Random, schema: Schema, owner: Declared, accepted: Catalog
) -> None:
    """Another key, or other ends: both are refused."""
    if rng.random() < 0.7:
        return
    if owner.kind == "node":
        fit = [each.name for each in owner.columns if each.comparable and not each.nullable]
        owner.key = tuple(rng.sample(fit, 1)) if fit and rng.random() < 0.5 else ()
    elif owner.kind == "edge":
        ends = [each.name for each in schema if each.kind == "node"]
        owner.ends = (rng.choice(ends), rng.choice(ends)) if ends else owner.ends


def _edit_column(
    rng: random.Random, schema: Schema, owner: Declared, column: Column, accepted: Catalog
) -> None:
    action = rng.randrange(10)
    if action == 0 and column.name not in owner.key:
        owner.columns.remove(column)
    elif action in (1, 2):
        _rename_column(rng, schema, owner, column, accepted)
    elif action in (3, 4, 5):
        _retype(rng, column)
    elif action in (6, 7) and column.name not in owner.key:
        column.nullable = not column.nullable
        _hint(rng, column, owner)
    elif action == 8:
        column.description = rng.choice(["", "e", "f"])
        column.words ^= {rng.choice(["@unique", "@index", "@index"])}
    elif action == 9:
        column.default = _default(rng, column)


def _rename_column(
    rng: random.Random, schema: Schema, owner: Declared, column: Column, accepted: Catalog
) -> None:
    pool, known, names = _column_names(owner, accepted)
    own = {each.name for node in schema if node.kind == "node" for each in node.columns}
    name = _fresh(rng, pool, known, names, own if owner.kind == "interface" else ())
    is_promise = owner.kind == "interface"
    if name is None or (
        is_promise and (column.name in own or owner.name not in accepted.interfaces)
    ):
        return
    old, column.name = column.name, name
    column.was = column.was or (old if old in known else "")
    owner.key = tuple(name if each == old else each for each in owner.key)
    owner.groups = [
        (word, tuple(name if each == old else each for each in members), rest)
        for word, members, rest in owner.groups
    ]
    for each in owner.columns:
        each.embed = name if each.embed == old else each.embed


_EDITS = (
    _rename_type,
    _drop_type,
    _add_type,
    *(_change_interfaces,) * 2,
    *(_change_card,) * 3,
    _add_group,
    _remove_group,
    _describe,
    _respell,
    *(_change_embed,) * 3,
    *(_add_column,) * 2,
    _ask_for_too_much,
    *(_edit_some_column,) * 14,
)


def _retype(rng: random.Random, column: Column) -> None:
    texts = [each for each in (*ENUMS, "String") if each != column.type]
    if column.type in WIDER:
        column.type = rng.choice(WIDER[column.type])
    elif column.type in ENUMS or (column.type == "String" and rng.random() < 0.7):
        column.type = rng.choice(texts)
        left = re.findall(r"\b[a-c]\b", column.type)
        if left and rng.random() < 0.8:
            column.mapping = {
                old: rng.choice(left) for old in ("a", "b", "c", "x") if rng.random() < 0.7
            }
    elif rng.random() < 0.2:
        column.type = rng.choice(TYPES)


def _hint(rng: random.Random, column: Column, owner: Declared) -> None:
    column.literal = column.source = ""
    others = [each.name for each in owner.columns if each is not column]
    if rng.random() < 0.25:
        return
    if others and rng.random() < 0.4:
        column.source = rng.choice(others)
    elif column.type in LITERALS:
        column.literal = rng.choice([*LITERALS[column.type]])


def _tidy(schema: Schema, accepted: Catalog) -> None:
    """Leave out what no longer fits: constraints, edges without ends, hints that would be wrong."""
    nodes = {each.name for each in schema if each.kind == "node"}
    promised = {each.name: each for each in schema if each.kind == "interface"}
    schema[:] = [each for each in schema if each.kind != "edge" or nodes.issuperset(each.ends)]
    for owner in schema:
        owner.implements = [each for each in owner.implements if each in promised]
        inherited = [column for each in owner.implements for column in promised[each].columns]
        for column in owner.columns:
            column.words = {each for each in column.words if column.comparable}
            texts = [each.name for each in owner.columns if each.type == "String"]
            if column.type != "Vector(2)" or column.embed not in texts or owner.kind != "node":
                column.embed = ""
            # Members of a key have no default; those of interfaces are not drawn.
            is_free = owner.kind != "interface" and column.name not in owner.key
            if not is_free or column.default not in LITERALS.get(column.type, {}):
                column.default = ""
            _tidy_hints(column, owner, types(accepted, owner.kind).get(owner.was or owner.name))
        owner.groups = _fitting(owner, [*owner.columns, *inherited])


def _fitting(owner: Declared, columns: list[Column]) -> list[tuple[str, tuple[str, ...], str]]:
    known = {each.name: each for each in columns}
    fit: dict[object, tuple[str, tuple[str, ...], str]] = {}
    for word, members, rest in owner.groups:
        if owner.kind == "edge" and word in ("range", "check"):
            continue
        said = any(f"@{word}" in known[each].words for each in members if each in known)
        if said or not all(_member_fits(word, known.get(each), each, owner) for each in members):
            continue
        fit.setdefault((word, frozenset(members), rest), (word, members, rest))
    return [*fit.values()]


def _member_fits(word: str, column: Column | None, name: str, owner: Declared) -> bool:
    if column is None:
        return owner.kind == "edge" and name in ("src", "dst")
    match word:
        case "range":
            return column.type in NUMBERS
        case "check":
            return column.type == "String"
        case _:
            return column.comparable


def _tidy_hints(column: Column, owner: Declared, known: Any) -> None:
    values = re.findall(r"\b[a-c]\b", column.type) if column.type in ENUMS else []
    column.mapping = {
        old: new
        for old, new in column.mapping.items()
        if new in values and old not in values and owner.kind != "interface"
    }
    if column.literal not in LITERALS.get(column.type, {}):
        column.literal = ""
    if column.source and (known is None or owner.kind == "interface"):
        column.source = ""
    if column.source:
        source = source_of(column, owner, known)
        mine = column.was or column.name
        wanted = shown(known.properties[source].type) if source in known.properties else ""
        if source == mine or not wanted or not _copies(wanted, column.type):
            column.source = ""


def source_of(column: Column, owner: Declared, known: Any) -> str:
    """The accepted name of what is copied; names of the new text come first."""
    for each in owner.columns:
        if each.name == column.source and each.name not in known.properties:
            return each.was
    return column.source


def _copies(old: str, new: str) -> bool:
    if "Blob" in (old, new):
        return False
    if old.startswith("enum"):
        mine = set(re.findall(r"\w+", old)[1:])
        return new == "String" or (new.startswith("enum") and mine <= {*re.findall(r"\w+", new)})
    return old == new or new in WIDER.get(old, ())


def shown(kind: PropertyType) -> str:
    """A type as it is written."""
    match kind:
        case ScalarType(scalar=scalar):
            return scalar.value
        case DecimalType():
            return f"Decimal({kind.precision}, {kind.scale})"
        case EnumType(values=values):
            return f"enum({', '.join(values)})"
        case ListType(item=item):
            return f"[{item.value}]"
        case VectorType(size=size):
            return f"Vector({size})"
