"""The resolved schema: the types of a graph, as used by all other packages.

Invariant: values are immutable, hashable and picklable, and every name inside them resolves.
Numbers are stable for the life of a graph: a rename keeps them, a new lifetime gets new ones.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, NoReturn, Protocol, TypeAlias, TypeVar

from omnigraph_lake.derived import remember_derived
from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.names import edge_table_key, node_table_key


class Scalar(enum.StrEnum):
    """The base types, by their spelling in a schema."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    JSON = "Json"


INTEGERS: Final = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS: Final = frozenset({Scalar.F32, Scalar.F64})
NUMBERS: Final = INTEGERS | FLOATS
DECIMAL_DIGITS_MAX: Final = 38
"""A decimal is stored in 128 bits."""
INTEGER_DIGITS: Final = {Scalar.I32: 10, Scalar.U32: 10, Scalar.I64: 19, Scalar.U64: 20}
"""The number of digits that all values of an integer type fit in."""
WITHOUT_ORDER: Final = frozenset({Scalar.BLOB, Scalar.JSON})
"""Base types whose values are in no key, no index and no order."""
FIRST_UNIQUE_NUMBER: Final = 1 << 32
"""Numbers from here on are given once in all branches of a graph. Smaller ones are those of its
first schema, and those that earlier releases counted in each branch."""
CATALOGS_KNOWN: Final = 16
"""Of so many catalogs it is remembered what was derived from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarType:
    """One value of a base type."""

    scalar: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalType:
    """Exact numbers of at most `precision` digits, `scale` of them behind the point."""

    precision: int
    scale: int

    @property
    def integer_digits(self) -> int:
        """The number of digits in front of the point."""
        return self.precision - self.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class ListType:
    """A list whose items may be null."""

    item: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumType:
    """A string out of a set; `values` is sorted, its order in the source is not significant."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorType:
    """A fixed number of 32-bit floats."""

    size: int


PropertyType: TypeAlias = ScalarType | DecimalType | ListType | EnumType | VectorType
NumberType: TypeAlias = ScalarType | DecimalType
Number: TypeAlias = int | Decimal
Literal: TypeAlias = str | int | Decimal | bool


def decimal_type(precision: int, scale: int) -> DecimalType | None:
    """The decimals of these sizes, or None if there are none."""
    if not (1 <= precision <= DECIMAL_DIGITS_MAX and 0 <= scale <= precision):
        return None
    return DecimalType(precision=precision, scale=scale)


def exact_decimal(kind: PropertyType) -> DecimalType | None:
    """The decimals that hold the values of an exact number type and no more; None for others."""
    match kind:
        case DecimalType():
            return kind
        case ScalarType(scalar=scalar) if scalar in INTEGER_DIGITS:
            return DecimalType(precision=INTEGER_DIGITS[scalar], scale=0)
        case _:
            return None


def join_decimals(kinds: Iterable[DecimalType]) -> DecimalType | None:
    """The smallest type that holds all values of some types; None if it needs too many digits."""
    listed = list(kinds)
    scale = max(kind.scale for kind in listed)
    digits = max(kind.integer_digits for kind in listed)
    return decimal_type(max(digits + scale, 1), scale)


class HasName(Protocol):
    """Anything that can be looked up by its name."""

    @property
    def name(self) -> str: ...


T_co = TypeVar("T_co", bound=HasName, covariant=True)


class ByName(Mapping[str, T_co]):
    """An immutable mapping from name to value that keeps, and compares by, the given order."""

    __slots__ = ("_by_name", "_ordered")

    def __init__(self, ordered: Iterable[T_co] = ()) -> None:
        values = tuple(ordered)
        by_name = {value.name: value for value in values}
        assert len(by_name) == len(values), "names are unique"
        object.__setattr__(self, "_ordered", values)
        object.__setattr__(self, "_by_name", by_name)

    _ordered: tuple[T_co, ...]
    _by_name: dict[str, T_co]

    def __getitem__(self, name: str) -> T_co:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._ordered)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByName) and self._ordered == other._ordered

    def __hash__(self) -> int:
        return hash(self._ordered)

    def __repr__(self) -> str:
        return f"ByName({self._ordered!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ByName, (self._ordered,)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"ByName is immutable: {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataKeyword:
    """`name=value` after the value of an annotation."""

    name: str
    value: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """An annotation that Omnigraph stores but does not interpret."""

    name: str
    value: Literal | None = None
    keywords: tuple[MetadataKeyword, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed:
    """The text that a vector is computed from, and the model."""

    source: str
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One column of a type.

    `default` is the value of new rows that do not mention the property: numbers are exact, a `Date`
    is `YYYY-MM-DD`, a `DateTime` ISO 8601 in UTC with microseconds. `declared` is false when only
    interfaces name it; `interfaces` lists those it satisfies.
    """

    number: int
    name: str
    type: PropertyType
    nullable: bool
    description: str | None = None
    metadata: tuple[Metadata, ...] = ()
    embed: Embed | None = None
    default: Literal | None = None
    declared: bool = True
    interfaces: tuple[str, ...] = ()


class Spelling(enum.Enum):
    """Where a constraint was written: after its property, or in the body."""

    PROPERTY = "property"
    BODY = "body"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The identity tuple of a node, as written; ids order it by property number."""

    properties: tuple[str, ...]
    spelling: Spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """No two entities share this tuple; a null in it exempts the entity."""

    properties: tuple[str, ...]
    spelling: Spelling


class VectorMetric(enum.StrEnum):
    """How the distance of two vectors is measured, by its spelling in a schema."""

    COSINE = "cosine"
    L2 = "l2"
    DOT = "dot"


DEFAULT_METRIC: Final = VectorMetric.COSINE
"""The default metric of a vector index; stored models rely on it, so it never changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Declares an index on each of these properties.

    A vector is indexed alone, and only its index has a metric.
    """

    properties: tuple[str, ...]
    spelling: Spelling
    metric: VectorMetric | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """An inclusive numeric bound; a missing side is open; exact, never a double."""

    property: str
    low: Number | None
    high: Number | None
    spelling: Spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """An unanchored RE2 match."""

    property: str
    pattern: str
    spelling: Spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class Cardinality:
    """How many edges of a type one source node may have; no maximum is None."""

    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceType:
    """Properties that nodes can declare to have."""

    number: int
    name: str
    properties: ByName[Property]
    key: Key | None = None
    uniques: tuple[Unique, ...] = ()
    indexes: tuple[Index, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """A node type; inherited properties come last in `properties`."""

    number: int
    name: str
    implements: tuple[str, ...]
    properties: ByName[Property]
    key: Key | None
    uniques: tuple[Unique, ...]
    indexes: tuple[Index, ...]
    ranges: tuple[Range, ...]
    checks: tuple[Check, ...]
    description: str | None = None
    instruction: str | None = None
    metadata: tuple[Metadata, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndType:
    """A node type that an edge may join."""

    name: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeEnd:
    """One end of an edge type: the node types of the nodes there.

    `declared` has the names of the schema, node types or interfaces, and `types` the node types
    they mean, which a catalog fills in. If more than one type is possible, now or later, the end is
    polymorphic: every edge stores the number of the type. Null there means `implicit`, the only
    type of the end before.
    """

    declared: tuple[str, ...]
    types: tuple[EndType, ...] = ()
    implicit: str | None = None

    @property
    def is_polymorphic(self) -> bool:
        return len(self.declared) > 1 or self.names != self.declared

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the node types."""
        return tuple(end_type.name for end_type in self.types)

    @property
    def only(self) -> str:
        """The node type of an end that is not polymorphic."""
        assert not self.is_polymorphic, "an end with several types"
        return self.declared[0]

    def numbers(self) -> dict[str, int]:
        """The numbers of the node types by name."""
        return {end_type.name: end_type.number for end_type in self.types}

    @property
    def implicit_number(self) -> int | None:
        return None if self.implicit is None else self.numbers()[self.implicit]

    def rename(self, old: str, new: str) -> EdgeEnd:
        """The end after a node type or an interface that it names has another name."""
        declared = tuple(new if name == old else name for name in self.declared)
        implicit = new if self.implicit == old else self.implicit
        return replace(self, declared=declared, implicit=implicit)

    def __str__(self) -> str:
        return " | ".join(self.declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeType:
    """An edge type between node types.

    A clustered one is stored in the order of its sources, as far as maintenance has ordered it.
    """

    number: int
    name: str
    source: EdgeEnd
    target: EdgeEnd
    cardinality: Cardinality
    properties: ByName[Property]
    uniques: tuple[Unique, ...]
    indexes: tuple[Index, ...]
    is_clustered: bool = False
    description: str | None = None
    instruction: str | None = None
    metadata: tuple[Metadata, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog(Displayed):
    """All types of one graph; `next_number` is the number of items that it ever had, and one.

    The types of the ends of edges always follow from the nodes and their interfaces.
    """

    identity_domain: str
    next_number: int
    interfaces: ByName[InterfaceType]
    nodes: ByName[NodeType]
    edges: ByName[EdgeType]

    def __post_init__(self) -> None:
        edges = ByName(_with_end_types(edge, self.nodes) for edge in self.edges.values())
        object.__setattr__(self, "edges", edges)

    def tables(self) -> dict[str, NodeType | EdgeType]:
        """Every type that has a table, by table key: nodes, then edges, in their order here."""
        return dict(_tables(self))

    def _page(self) -> Page:
        nodes = [(node.name, "node", *_declared(node)) for node in self.nodes.values()]
        edges = [
            (f"{edge.name}: {edge.source} -> {edge.target}", "edge", *_declared(edge))
            for edge in self.edges.values()
        ]
        header = ("type", "kind", "key", "properties")
        return Page(
            summary=f"{counted(len(nodes), 'node type')}, {counted(len(edges), 'edge type')}",
            tables=[TableView(header=header, rows=[*nodes, *edges], empty="no types")],
        )


def _with_end_types(edge: EdgeType, nodes: ByName[NodeType]) -> EdgeType:
    ends = [
        replace(end, types=tuple(dict.fromkeys(_end_types(end.declared, nodes))))
        for end in (edge.source, edge.target)
    ]
    return (
        edge
        if ends == [edge.source, edge.target]
        else replace(edge, source=ends[0], target=ends[1])
    )


def _end_types(declared: Iterable[str], nodes: ByName[NodeType]) -> Iterator[EndType]:
    """The node types that some names mean; a node type comes before an interface of its name."""
    for name in declared:
        for node in nodes.values():
            if node.name == name or (name not in nodes and name in node.implements):
                yield EndType(name=node.name, number=node.number)


@remember_derived(most=CATALOGS_KNOWN)
def _tables(catalog: Catalog) -> Mapping[str, NodeType | EdgeType]:
    return {
        **{node_table_key(node.name): node for node in catalog.nodes.values()},
        **{edge_table_key(edge.name): edge for edge in catalog.edges.values()},
    }


def _declared(entity: NodeType | EdgeType) -> tuple[str, str]:
    key = entity.key if isinstance(entity, NodeType) else None
    return "" if key is None else ", ".join(key.properties), ", ".join(entity.properties)
