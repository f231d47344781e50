"""Derives the rules of a type from the catalog, and words the expectation of each rule.

A row rule needs one row. A keyed rule needs the whole result of a write. Two rules hold for every
table and have no value here: an input names an id once, and `append` meets no published id.
`WriteMode` says what a write does to the rows that are already there.

Invariants:

- Rules follow from the catalog and from nothing else. They say what must hold, never how it is
  checked.
- A rule is hashable and picklable, so a cluster task checks exactly what a laptop checks.
- A rule reads the same whichever engine found it broken.
- Every engine and every operation means the same by a mode.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeAlias, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.derived import remember_derived
from omnigraph_lake.names import (
    END_TYPE_COLUMNS,
    ID_COLUMN,
    SOURCE_COLUMN,
    TARGET_COLUMN,
    edge_table_key,
    node_table_key,
)
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.show import show_type
from omnigraph_lake.validation.violations import Reason, shown_scalar

_NO_ID: Final = "\0"
"""No id has control characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """The column is not null, unless the text it can be made from is present."""

    reason: ClassVar[Reason] = Reason.MISSING_REQUIRED

    column: str
    unless_present: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProperId:
    """An id is not empty, has no control characters and at most 4,096 bytes."""

    reason: ClassVar[Reason] = Reason.BAD_ID

    column: str
    bytes_max: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteKey:
    """A number in a key is neither NaN nor infinite; null is another rule's business."""

    reason: ClassVar[Reason] = Reason.NOT_FINITE_KEY

    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FullVector:
    """No item of a vector is null."""

    reason: ClassVar[Reason] = Reason.VECTOR_ITEM

    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InEnum:
    """The value is one of the set; null is exempt."""

    reason: ClassVar[Reason] = Reason.NOT_IN_ENUM

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InRange:
    """Both bounds included; null is exempt, NaN is refused.

    An integer column compares exactly. A float column compares with the bound rounded to its own
    width, so that the value spelt like the bound is inside.
    """

    reason: ClassVar[Reason] = Reason.OUT_OF_RANGE

    column: str
    low: ct.Number | None
    high: ct.Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The RE2 pattern occurs somewhere in the text; null is exempt."""

    reason: ClassVar[Reason] = Reason.PATTERN_MISMATCH

    column: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalJson:
    """The text is the canonical text of a JSON value; null is exempt.

    Input is made canonical when it is read. The rule holds for values from elsewhere, such as texts
    that a merge brings into a property that has become `Json`.
    """

    reason: ClassVar[Reason] = Reason.BAD_JSON

    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InYears:
    """A time, or each of a list, is in the years 1 to 9999, in UTC; null is exempt.

    Arrow stores more, but neither ISO 8601 nor Python has a common form for it, so that one such
    row makes its type unreadable.
    """

    reason: ClassVar[Reason] = Reason.DOES_NOT_FIT

    column: str


RowRule: TypeAlias = (
    Required
    | ProperId
    | FiniteKey
    | FullVector
    | InEnum
    | InRange
    | InYears
    | Matches
    | CanonicalJson
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueTuple:
    """No two rows share these values; a null among them exempts the row.

    Both zeros are one value, and so is every NaN.
    """

    reason: ClassVar[Reason] = Reason.NOT_UNIQUE

    columns: tuple[str, ...]
    end_types: tuple[EndTypes, ...] = ()
    """Of the polymorphic ends among the columns: an end is a type and an id."""

    @property
    def read_columns(self) -> tuple[str, ...]:
        return (*self.columns, *(end.column for end in self.end_types))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTypes:
    """The column with the node types of a polymorphic end: their numbers, and what null means."""

    column: str
    numbers: tuple[int, ...]
    implicit: int | None

    def of(self, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        """The numbers of the types in some rows; null only where nothing says the type."""
        numbers = rows.column(self.column)
        return numbers if self.implicit is None else numbers.fill_null(self.implicit)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointExists:
    """The column holds the id of a node that exists.

    A polymorphic end has a rule for every type: about the rows whose end has the type `number`.
    """

    reason: ClassVar[Reason] = Reason.MISSING_ENDPOINT

    column: str
    node_key: str
    types: EndTypes | None = None
    number: int | None = None

    @property
    def read_columns(self) -> tuple[str, ...]:
        return (self.column,) if self.types is None else (self.column, self.types.column)

    def concerns(self, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray | None:
        """Which rows have an end of this type; None if all have."""
        if self.types is None:
            return None
        return pc.fill_null(pc.equal(self.types.of(rows), self.number), fill_value=False)

    def endpoints(self, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        """The ends of this type, null in other rows.

        An end of a type that the edge cannot have is an id that no node has, for the first rule.
        """
        ends, concerned = rows.column(self.column), self.concerns(rows)
        if self.types is None or concerned is None:
            return ends
        of_type = pc.if_else(concerned, ends, pa.scalar(None, pa.string()))
        if self.number != self.types.numbers[0]:
            return of_type
        is_known = pc.is_in(self.types.of(rows), value_set=pa.array(self.types.numbers, pa.int64()))
        if pc.all(is_known).as_py() in {True, None}:
            return of_type
        return pc.if_else(is_known, of_type, pc.binary_join_element_wise(_NO_ID, ends, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCount:
    """How many edges of the type one source may have, for every source the write touches."""

    source_keys: tuple[str, ...]
    minimum: int
    maximum: int | None


KeyedRule: TypeAlias = UniqueTuple | EndpointExists | EdgeCount


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRules:
    """Everything the rows of one table must satisfy."""

    table_key: str
    row_rules: tuple[RowRule, ...]
    keyed_rules: tuple[KeyedRule, ...]


def rules_of(declared: ct.NodeType | ct.EdgeType) -> TypeRules:
    """The rules of one type, in the order a person would read the schema."""
    match declared:
        case ct.NodeType():
            return _node_rules(declared)
        case ct.EdgeType():
            return _edge_rules(declared)


def table_rules(catalog: ct.Catalog) -> dict[str, TypeRules]:
    """The rules of every type, by table key: nodes, then edges, in the order of the catalog."""
    return dict(_table_rules(catalog))


@remember_derived(most=ct.CATALOGS_KNOWN)
def _table_rules(catalog: ct.Catalog) -> Mapping[str, TypeRules]:
    declared: list[ct.NodeType | ct.EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
    return {rules.table_key: rules for rules in map(rules_of, declared)}


def _node_rules(node: ct.NodeType) -> TypeRules:
    key = node.key.properties if node.key else ()
    return TypeRules(
        table_key=node_table_key(node.name),
        row_rules=(
            *(rule for prop in node.properties.values() for rule in _property_rules(prop)),
            *(FiniteKey(column=name) for name in key if _is_float(node.properties[name])),
            ProperId(column=ID_COLUMN),
            *(InRange(column=r.property, low=r.low, high=r.high) for r in node.ranges),
            *(Matches(column=check.property, pattern=check.pattern) for check in node.checks),
        ),
        keyed_rules=_unique_rules(node.uniques, key=key),
    )


def _edge_rules(edge: ct.EdgeType) -> TypeRules:
    sources = tuple(_endpoint_rules(SOURCE_COLUMN, edge.source))
    targets = tuple(_endpoint_rules(TARGET_COLUMN, edge.target))
    return TypeRules(
        table_key=edge_table_key(edge.name),
        row_rules=(
            Required(column=SOURCE_COLUMN),
            Required(column=TARGET_COLUMN),
            *(rule for prop in edge.properties.values() for rule in _property_rules(prop)),
            ProperId(column=ID_COLUMN),
        ),
        keyed_rules=(
            *(_with_end_types(rule, edge) for rule in _unique_rules(edge.uniques, key=())),
            *sources,
            *targets,
            *_count_rules(edge.cardinality, tuple(rule.node_key for rule in sources)),
        ),
    )


def _endpoint_rules(column: str, end: ct.EdgeEnd) -> Iterator[EndpointExists]:
    types = end_types(column, end)
    for end_type in end.types:
        yield EndpointExists(
            column=column,
            node_key=node_table_key(end_type.name),
            types=types,
            number=None if types is None else end_type.number,
        )


def end_types(column: str, end: ct.EdgeEnd) -> EndTypes | None:
    """Where the types of the nodes at an end are; None if there is only one."""
    if not end.is_polymorphic:
        return None
    return EndTypes(
        column=END_TYPE_COLUMNS[column],
        numbers=tuple(end_type.number for end_type in end.types),
        implicit=end.implicit_number,
    )


def _with_end_types(rule: UniqueTuple, edge: ct.EdgeType) -> UniqueTuple:
    ends = {SOURCE_COLUMN: edge.source, TARGET_COLUMN: edge.target}
    types = [end_types(column, ends[column]) for column in rule.columns if column in ends]
    return replace(rule, end_types=tuple(one for one in types if one is not None))


def _property_rules(prop: ct.Property) -> tuple[RowRule, ...]:
    rules: list[RowRule] = []
    if not prop.nullable:
        source = prop.embed.source if prop.embed else None
        rules.append(Required(column=prop.name, unless_present=source))
    if isinstance(prop.type, ct.EnumType):
        rules.append(InEnum(column=prop.name, values=prop.type.values))
    if isinstance(prop.type, ct.VectorType):
        rules.append(FullVector(column=prop.name))
    if _is_of_times(prop.type):
        rules.append(InYears(column=prop.name))
    if prop.type == ct.ScalarType(scalar=ct.Scalar.JSON):
        rules.append(CanonicalJson(column=prop.name))
    return tuple(rules)


def _is_of_times(kind: ct.PropertyType) -> bool:
    match kind:
        case ct.ScalarType(scalar=scalar) | ct.ListType(item=scalar):
            return scalar in (ct.Scalar.DATE, ct.Scalar.DATETIME)
        case _:
            return False


def _unique_rules(
    uniques: tuple[ct.Unique, ...], *, key: tuple[str, ...]
) -> tuple[UniqueTuple, ...]:
    """A tuple that contains the whole key is unique because ids are."""
    return tuple(
        UniqueTuple(columns=unique.properties)
        for unique in uniques
        if not key or not set(key) <= set(unique.properties)
    )


def _count_rules(
    cardinality: ct.Cardinality, source_keys: tuple[str, ...]
) -> tuple[EdgeCount, ...]:
    if cardinality == ct.Cardinality():
        return ()
    return (
        EdgeCount(
            source_keys=source_keys, minimum=cardinality.minimum, maximum=cardinality.maximum
        ),
    )


def _is_float(prop: ct.Property) -> bool:
    return isinstance(prop.type, ct.ScalarType) and prop.type.scalar in ct.FLOATS


def expectation(rule: RowRule) -> str:
    """What a row rule expects, to follow the word `expected`."""
    match rule:
        case Required():
            because = f", because {rule.unless_present} is missing too"
            text = "a value" + (because if rule.unless_present else "")
        case ProperId():
            text = f"1 to {rule.bytes_max} bytes without control characters"
        case FiniteKey():
            text = "a finite number, because it is part of the key"
        case FullVector():
            text = "a vector without null items"
        case InEnum():
            text = f"one of {', '.join(rule.values)}"
        case InRange():
            text = _range_text(rule)
        case InYears():
            text = "a time in the years 1 to 9999"
        case Matches():
            text = f"a match of {rule.pattern!r}"
        case CanonicalJson():
            text = "Json"
        case _:
            assert_never(rule)
    return text


def type_text(property_type: ct.PropertyType) -> str:
    """A type as the schema language spells it."""
    match property_type:
        case ct.ScalarType():
            return property_type.scalar.value
        case ct.DecimalType():
            return show_type(property_type)
        case ct.ListType():
            return f"[{property_type.item.value}]"
        case ct.EnumType():
            return "String"
        case ct.VectorType():
            return f"Vector({property_type.size})"
        case _:
            assert_never(property_type)


def count_text(rule: EdgeCount) -> str:
    """The allowed number of edges, as `@card` spells it."""
    return f"{rule.minimum}..{'' if rule.maximum is None else rule.maximum}"


def missing_text(rule: EndpointExists, endpoint: pa.Scalar) -> str:
    """What is wrong with an endpoint that no node has."""
    type_name = rule.node_key.partition(":")[2]
    endpoint_text = shown_scalar(endpoint)
    return f"found {endpoint_text}, expected the id of a {type_name} that exists"


def keyed_message(reason: Reason, rule: KeyedRule | None, values: Sequence[pa.Scalar]) -> str:
    """Why a row that is well-formed alone breaks a rule; the same words for every operation.

    `values` are what the rule looks at in the row itself: its id where there is no rule, the
    members of a unique tuple, the endpoint, or the source whose edges are counted.
    """
    text = ", ".join(map(shown_scalar, values))
    match reason, rule:
        case Reason.DUPLICATE_ID, None:
            return f"id: found {text}, which an earlier row has too, expected a unique id"
        case Reason.SUPERSEDED, None:
            return f"id: found {text}, superseded by another record of the input"
        case Reason.ID_EXISTS, None:
            return f"id: found {text}, which the graph has already, expected a new one"
        case Reason.NOT_UNIQUE, UniqueTuple():
            columns = ", ".join(rule.columns)
            return f"{columns}: found {text}, which another row has too, expected a unique value"
        case Reason.MISSING_ENDPOINT, EndpointExists():
            return f"{rule.column}: {missing_text(rule, values[0])}"
        case ((Reason.TOO_MANY_EDGES | Reason.TOO_FEW_EDGES), EdgeCount()):
            amount = "many" if reason is Reason.TOO_MANY_EDGES else "few"
            return f"src: found too {amount} edges of {text}, expected {count_text(rule)}"
        case _:
            raise ValueError(f"{reason} is not a reason of {rule}")


def _range_text(rule: InRange) -> str:
    if rule.low is None:
        return f"at most {rule.high}"
    if rule.high is None:
        return f"at least {rule.low}"
    return f"{rule.low} to {rule.high}"


class WriteMode(enum.StrEnum):
    """How the rows of one type meet the published ones. Deletes of the same write come first."""

    APPEND = "append"
    """New rows only; an id that exists is refused."""
    MERGE = "merge"
    """A row updates the one with the same id, or is added; what it does not mention is kept."""
    REPLACE = "replace"
    """A row replaces the one with the same id as a whole, or is added."""
    OVERWRITE = "overwrite"
    """The rows become the whole content of their type; types not in the write stay."""

    @property
    def upserts(self) -> bool:
        """Whether a row whose id is published takes the place of the published row."""
        return self in {WriteMode.MERGE, WriteMode.REPLACE}
