"""Random schemas, and small graphs in them that have every kind of odd value.

The pools are small, so that conditions find rows. Floats in them are sums of few powers of two,
so that a sum is the same in every order. Vectors in them are short and whole, so that equal
distances are equal bit by bit.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import omnigraph_lake as og
from omnigraph_lake.schema.catalog import (
    Catalog,
    DecimalType,
    EdgeType,
    EnumType,
    ListType,
    NodeType,
    Property,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph_lake.schema.compile import compile_schema

if TYPE_CHECKING:
    from omnigraph_lake.graph import Graph, GraphView

Tables: TypeAlias = dict[str, list[dict[str, Any]]]
"""Rows by table key; a row lacks its id where the key spells it."""

COLOURS: Final = ("red", "green", "blue")
METRIC_SIZES: Final = {"cosine": 2, "l2": 3, "dot": 2}

POOLS: Final[Mapping[Scalar, tuple[Any, ...]]] = {
    Scalar.STRING: (
        *("a", "b", "A", "", "ab", "a b c", "b a", "Straße 7", "ÉCOLE école", "%_", 'q"\\'),
        *("İz 日本", "\U0001f600 a", "\ufffd", "e\u0301a", "abc_d", "x\ty"),
    ),
    Scalar.BOOL: (True, False),
    Scalar.I32: (0, 1, 2, 3, -1, -7, 2**31 - 1, -(2**31)),
    Scalar.I64: (0, 1, 2, 3, -2, 10, 2**53 + 1, 2**63 - 1, -(2**63)),
    Scalar.U32: (0, 1, 2, 3, 2**32 - 1),
    Scalar.U64: (0, 1, 2, 5, 2**63, 2**64 - 1),
    Scalar.F32: (0.0, -0.0, 0.5, 1.5, -2.25, 2.0, 16777216.0, math.nan, math.inf, -math.inf),
    Scalar.F64: (0.0, -0.0, 0.5, 1.5, -2.25, 3.0, 2.0**53, math.nan, math.inf, -math.inf),
    Scalar.DATE: (
        *(dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1969, 12, 31)),
        *(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    ),
    Scalar.DATETIME: (
        dt.datetime(2024, 5, 31, 12, tzinfo=dt.UTC),
        dt.datetime(2024, 5, 31, 12, 0, 0, 1, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        dt.datetime(1, 1, 2, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 30, tzinfo=dt.UTC),
    ),
    Scalar.JSON: (
        *({"a": 1, "b": [1.5, None, "x"]}, [1, 2], "a", 1, True, {}, 0.5, "2024-02-29"),
        *({"b": {"c": "é"}, "a": Decimal("12345678901234567890.10")}, 2**64, [], 1e20, "7"),
        *({"a": None}, [[["deep"], {"a.b": -0.0}]], "\u0000\U0001f600", 1.0),
    ),
}
WEIGHTS: Final = (0.0, -0.0, 0.1, 0.1, 0.2, 0.3, 0.7, 1.0, 1e16, math.inf)
"""Of floats on the way; their sums depend on the order in which they are added."""
_WEIGHT_TYPES: Final = ("F64", "F64", "F32", "U32", "I64")
COMMON: Final = 5
"""The first values of a pool are drawn more often than the others, so that some are equal."""
KEYS: Final[Mapping[Scalar, tuple[Any, ...]]] = {
    Scalar.STRING: ("a", "b", "c", "d", "A", "1", "é", "[", "a b", "10", "-2", "\U0001f600", "z"),
    Scalar.I64: (1, 2, 3, 10, -2, 0, 2**63 - 1, -(2**63), 7, 8, 9, 11, 12),
    Scalar.U64: (1, 2, 3, 10, 0, 2**64 - 1, 2**63, 4, 5, 6, 7, 8, 9),
}
_SCALARS: Final = tuple(each for each in Scalar if each is not Scalar.BLOB)
_LISTED: Final = (Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.F64, Scalar.DATE, Scalar.BOOL)
_DECIMALS: Final = (
    *("Decimal(12, 2)", "Decimal(12, 2)", "Decimal(5, 0)", "Decimal(18, 6)", "Decimal(28, 3)"),
    *("Decimal(38, 10)", "Decimal(38, 38)", "Decimal(38, 0)"),
)
_NODES: Final = ("Ant", "Bee", "Cat", "Dog")
_EDGES: Final = ("Likes", "Eats", "SitsOn", "Sees")
_SIZES: Final = (0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 8, 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomGraph:
    """A schema and commits of rows: the first, more of them, and rows that replace some.

    `aside` are rows that replace some on a branch only.
    """

    schema: str
    first: Tables
    second: Tables
    replacing: Tables
    aside: Tables

    def catalog(self) -> Catalog:
        return compile_schema(self.schema, filename="random.pg", identity_domain="random")

    def rows(self) -> Tables:
        """Every row as it was written, for a report."""
        parts = {
            "first": self.first,
            "second": self.second,
            "replacing": self.replacing,
            "aside": self.aside,
        }
        return {
            f"{part} {key}": rows
            for part, tables in parts.items()
            for key, rows in tables.items()
            if rows
        }


# Schemas


def random_schema(generator: random.Random) -> str:
    interfaces = {
        name: _fields(generator, name[0].lower(), generator.randrange(1, 3))
        for name in ("Named", "Owned")[: generator.randrange(3)]
    }
    nodes = _NODES[: generator.choice([1, 2, 2, 3, 3, 4])]
    texts = [
        _declared(f"interface {name}", [f"    {line}" for line in lines])
        for name, lines in interfaces.items()
    ]
    declared = [_node(generator, name, list(interfaces)) for name in nodes]
    implemented = [name for name in interfaces if any(f" {name}" in text for text in declared)]
    weight = generator.choice(_WEIGHT_TYPES)
    edges = [
        _edge(generator, name, nodes, implemented, weight)
        for name in _EDGES[: generator.choice([1, 2, 3, 3, 4])]
    ]
    return "\n".join([*texts, *declared, *edges])


def _declared(head: str, lines: list[str]) -> str:
    return "\n".join([f"{head} {{", *lines, "}", ""])


def _node(generator: random.Random, name: str, interfaces: list[str]) -> str:
    chosen = [each for each in interfaces if generator.random() < 0.6]
    head = f"node {name}" + (f" implements {', '.join(chosen)}" if chosen else "")
    keys = {
        0: [],
        1: ["key: String @key"],
        2: ["key: I64 @key"],
        3: ["key: U64 @key"],
        4: ["part: String", "number: I32", "@key(part, number)"],
    }[generator.choice([0, 0, 1, 1, 1, 2, 3, 4])]
    unique = [f"sole: {generator.choice(['String', 'I32', 'F64'])}? @unique"]
    photo = ["photo: Blob?"]
    lines = [
        *keys,
        *_fields(generator, "p", generator.randrange(1, 7)),
        *(unique if generator.random() < 0.3 else []),
        *(photo if generator.random() < 0.2 else []),
    ]
    return _declared(head, [f"    {line}" for line in lines])


def _edge(
    generator: random.Random, name: str, nodes: tuple[str, ...], interfaces: list[str], weight: str
) -> str:
    """Most weights have one type, so that a path can have several edge types."""
    source = generator.choice(nodes)
    target = source if generator.random() < 0.5 else generator.choice(nodes)
    if generator.random() < 0.25:
        target = _several(generator, [*nodes, *interfaces])
        source = _several(generator, [*nodes, *interfaces]) if generator.random() < 0.4 else source
    lines = _fields(generator, "q", generator.randrange(4))
    if generator.random() < 0.6:
        scalar = weight if generator.random() < 0.8 else generator.choice(_WEIGHT_TYPES)
        lines.append(f"w0: {scalar}{generator.choice(['?', ''])}")
    if generator.random() < 0.15:
        lines.append("@unique(src, dst)")
    return _declared(f"edge {name}: {source} -> {target}", [f"    {line}" for line in lines])


def _several(generator: random.Random, names: list[str]) -> str:
    """An end of several node types, or of an interface."""
    return " | ".join(generator.sample(names, k=min(len(names), generator.choice([1, 2, 2, 3]))))


def _fields(generator: random.Random, prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}: {_field_type(generator)}" for number in range(count)]


def _field_type(generator: random.Random) -> str:
    null = generator.choice(["?", "?", ""])
    kind = generator.random()
    if kind < 0.1:
        return f"enum({', '.join(COLOURS)}){null}" + generator.choice(["", " @index"])
    if kind < 0.2:
        return f"[{generator.choice(_LISTED).value}]{null}"
    if kind < 0.32:
        metric = generator.choice(list(METRIC_SIZES))
        index = (
            "" if metric == "cosine" and generator.random() < 0.3 else f" @index(metric={metric})"
        )
        return f"Vector({METRIC_SIZES[metric]}){null}{index}"
    if kind < 0.4:
        return f"{generator.choice(_DECIMALS)}{null}" + generator.choice(["", " @index"])
    scalar = generator.choice([*_SCALARS, Scalar.STRING, Scalar.STRING])
    index = generator.choice(["", "", " @index"])
    return f"{scalar.value}{null}" + ("" if scalar is Scalar.JSON else index)


# Rows


def random_graph(generator: random.Random) -> RandomGraph:
    schema = random_schema(generator)
    catalog = compile_schema(schema, filename="random.pg", identity_domain="random")
    sizes = {name: generator.choice(_SIZES) for name in catalog.nodes}
    nodes = {
        name: _node_rows(generator, declared, sizes[name])
        for name, declared in catalog.nodes.items()
    }
    edges = {
        name: _edge_rows(generator, declared, nodes) for name, declared in catalog.edges.items()
    }
    first: Tables = {}
    second: Tables = {}
    for key, rows in _by_table(nodes, edges).items():
        middle = generator.randrange(len(rows) + 1) if key.startswith("node") else 0
        first[key], second[key] = rows[:middle], rows[middle:]
    replacing, aside = (
        {
            f"node:{name}": _changed(generator, declared, nodes[name])
            for name, declared in catalog.nodes.items()
        }
        for _ in range(2)
    )
    return RandomGraph(
        schema=schema,
        first=_stored(first),
        second=_stored(second),
        replacing=_stored(replacing),
        aside=_stored(aside),
    )


def _by_table(nodes: Tables, edges: Tables) -> Tables:
    return {
        **{f"node:{name}": rows for name, rows in nodes.items()},
        **{f"edge:{name}": rows for name, rows in edges.items()},
    }


def _stored(tables: Tables) -> Tables:
    """Without what only the generator needs to know: the id that a key spells."""
    return {
        key: [{name: value for name, value in row.items() if name != "_id"} for row in rows]
        for key, rows in tables.items()
        if rows
    }


def _node_rows(generator: random.Random, declared: NodeType, count: int) -> list[dict[str, Any]]:
    identities = _identities(generator, declared, count)
    uniques = {each for unique in declared.uniques for each in unique.properties}
    columns = {
        each.name: _column(generator, each, len(identities), distinct=each.name in uniques)
        for each in declared.properties.values()
        if each.name not in (declared.key.properties if declared.key else ())
    }
    return [
        {**identity, **{name: values[at] for name, values in columns.items()}}
        for at, identity in enumerate(identities)
    ]


def _identities(generator: random.Random, declared: NodeType, count: int) -> list[dict[str, Any]]:
    """The key, or the id of a type without one; `_id` is what edges say."""
    if declared.key is None:
        chosen = generator.sample(KEYS[Scalar.STRING][:-1], k=min(count, 12))
        return [{"id": each, "_id": each} for each in chosen]
    if len(declared.key.properties) > 1:
        pairs = [(text, number) for text in ("a", "b", 'q"', "é") for number in (0, 1, -2)]
        return [
            {"part": text, "number": number, "_id": _pair(text, number)}
            for text, number in generator.sample(pairs, k=min(count, 12))
        ]
    (name,) = declared.key.properties
    kind = declared.properties[name].type
    assert isinstance(kind, ScalarType)
    chosen = generator.sample(KEYS[kind.scalar], k=min(count, 12))
    return [{name: each, "_id": str(each)} for each in chosen]


def _pair(text: str, number: int) -> str:
    spelt = text.replace('"', '\\"')
    return f'["{spelt}","{number}"]'


def _edge_rows(generator: random.Random, declared: EdgeType, nodes: Tables) -> list[dict[str, Any]]:
    sources, targets = (
        [(name, row["_id"]) for name in end.names for row in nodes[name]]
        for end in (declared.source, declared.target)
    )
    if not sources or not targets:
        return []
    pairs = [
        (generator.choice(sources), generator.choice(targets))
        for _ in range(generator.choice([0, 3, 5, 8, 10, 12]))
    ]
    if declared.uniques:
        pairs = list(dict.fromkeys(pairs))
    columns = {
        each.name: _column(generator, each, len(pairs), distinct=False)
        for each in declared.properties.values()
    }
    names = generator.sample([f"{declared.name[0]}{at}" for at in range(20)], k=len(pairs))
    return [
        {
            "id": names[at],
            "src": source,
            "dst": target,
            **({"src_type": source_type} if declared.source.is_polymorphic else {}),
            **({"dst_type": target_type} if declared.target.is_polymorphic else {}),
            **{name: values[at] for name, values in columns.items()},
        }
        for at, ((source_type, source), (target_type, target)) in enumerate(pairs)
    ]


def _changed(
    generator: random.Random, declared: NodeType, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Some rows again under the same identity, so that old ones lie deleted in the files."""
    if declared.uniques or generator.random() < 0.5:
        return []
    again = [row for row in rows if generator.random() < 0.3]
    fixed = {"id", "_id", *(declared.key.properties if declared.key else ())}
    return [
        {
            name: value if name in fixed else random_value(generator, declared.properties[name])
            for name, value in row.items()
        }
        for row in again
    ]


def _column(generator: random.Random, each: Property, count: int, *, distinct: bool) -> list[Any]:
    if not distinct:
        return [random_value(generator, each) for _ in range(count)]
    assert isinstance(each.type, ScalarType)
    unlike = list({repr(value): value for value in POOLS[each.type.scalar]}.values())
    plain = [value for value in unlike if value == value and value != 0]  # noqa: PLR0124 - NaN
    filled = plain[:count] + [None] * (count - len(plain[:count]))
    generator.shuffle(filled)
    return filled


def random_value(generator: random.Random, each: Property) -> Any:
    if each.nullable and generator.random() < 0.25:
        return None
    if each.name == "w0":
        assert isinstance(each.type, ScalarType)
        return _weight(generator, each.type.scalar)
    return value_of_type(generator, each.type)


def _weight(generator: random.Random, scalar: Scalar) -> Any:
    """Few are wrong, because one that is met fails a query."""
    wrong = generator.random() < 0.01
    match scalar:
        case Scalar.F64 | Scalar.F32:
            wrong_ones = (-0.5, math.nan, -math.inf)
            return generator.choice(wrong_ones if wrong else WEIGHTS)
        case Scalar.U32:
            return generator.choice((0, 1, 1, 2, 3, 2**32 - 1))
        case _:
            return -1 if wrong else generator.choice((0, 1, 1, 2, 3, 2**62))


def value_of_type(generator: random.Random, kind: PropertyType) -> Any:
    match kind:
        case ScalarType(scalar=Scalar.BLOB):
            return b"\x00photo"
        case ScalarType():
            return from_pool(generator, kind.scalar)
        case DecimalType():
            return random_decimal(generator, kind)
        case EnumType():
            return generator.choice(kind.values)
        case ListType():
            items = [from_pool(generator, kind.item) for _ in range(generator.randrange(4))]
            return [None if generator.random() < 0.15 else item for item in items]
        case VectorType():
            return [float(generator.choice([0, 1, -1, 2])) for _ in range(kind.size)]


def random_decimal(generator: random.Random, kind: DecimalType) -> Decimal:
    """A value of few digits, or of all of them."""
    most = 10**kind.precision - 1
    units = generator.choice([0, 1, -1, 5, -15, 250, most, -most, generator.randint(-most, most)])
    bounded = max(-most, min(most, units))
    return Decimal((bounded < 0, tuple(map(int, str(abs(bounded)))), -kind.scale))


def from_pool(generator: random.Random, scalar: Scalar) -> Any:
    pool = POOLS[scalar]
    return generator.choice(pool if generator.random() < 0.5 else pool[:COMMON])


# Real graphs


def written(root: str, case: RandomGraph) -> Graph:
    """The graph on disk: fragments of two commits, and deleted rows if any were replaced."""
    graph = og.init(root, schema=case.schema)
    for tables in (case.first, case.second):
        if tables:
            graph.write(tables)
    if case.replacing:
        graph.write(case.replacing, mode="merge")
    return graph


def plain_graph(graph: Graph | GraphView) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """All rows of a graph as the evaluator reads them; blobs are left out."""
    catalog = graph.schema.catalog
    return {
        "nodes": {name: _plain_rows(graph.scan, each) for name, each in catalog.nodes.items()},
        "edges": {name: _plain_rows(graph.scan, each) for name, each in catalog.edges.items()},
    }


def _plain_rows(read: Callable[..., Any], declared: NodeType | EdgeType) -> list[dict[str, Any]]:
    blob = ScalarType(scalar=Scalar.BLOB)
    ends: tuple[str, ...] = ()
    if isinstance(declared, EdgeType):
        ends = ("src", "dst")
        ends += ("src_type",) if declared.source.is_polymorphic else ()
        ends += ("dst_type",) if declared.target.is_polymorphic else ()
    columns = [each.name for each in declared.properties.values() if each.type != blob]
    rows = read(declared.name, columns=["id", *ends, *columns]).read_all().to_pylist()
    return [
        {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
        for row in rows
    ]


def without_rows(case: RandomGraph, part: str, key: str, start: int, count: int) -> RandomGraph:
    """The same graph without some rows of a table, for making a failing case smaller."""
    tables: Tables = dict(getattr(case, part))
    tables[key] = tables[key][:start] + tables[key][start + count :]
    if not tables[key]:
        del tables[key]
    changed: Any = {part: tables}
    return replace(case, **changed)
