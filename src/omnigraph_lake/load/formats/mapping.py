"""Define how records of a source become rows of types: the compiled form of a mapping.

A source is a table, a file of records, or a frame. A record yields a row for every rule whose
condition it meets; a rule with `each` yields one for every item of a list.

Columns are named by paths: the name of a column, or the names of nested members with dots between
them. Inside a rule with `each`, the path of the list means the current item, and `#` is the member
of the item that has its number, from zero. The path `*` is a digest of the record: an id for
records that have none. As a member of the list it has the number of the item behind it.

Invariants:
- A mapping is a picklable value: tasks of any runner apply it without other state.
- Which rows a record yields depends on the record alone, so a second import of the same file yields
  the same rows with the same ids, unless an edge asks for new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from omnigraph_lake.names import edge_table_key, node_table_key


class Parse(StrEnum):
    """How the text of a value is written."""

    DATE = "date"
    DATETIME = "datetime"
    NUMBER = "number"
    BOOLEAN = "boolean"


class UnknownColumns(StrEnum):
    """What is done with columns that no rule names."""

    ERROR = "error"
    IGNORE = "ignore"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueMapping:
    """Where a value comes from.

    Texts in `null` mean that there is no value, and `default` is used where there is none. `split`
    cuts a text into a list. `format` is that of a date, `epoch` or `epoch_ms`; `thousands` and
    `decimal` are the separators of a number; `unit` is before or behind all of
    them. `true` and `false` are the words of a boolean.
    """

    column: str
    split: str | None = None
    parse: Parse | None = None
    format: str | None = None
    thousands: str | None = None
    decimal: str | None = None
    unit: str | None = None
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    null: tuple[str, ...] = ()
    default: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the value is that of the column as it is."""
        return self == ValueMapping(column=self.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The records that a rule takes: those with one of these texts in a column."""

    column: str
    equals: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMapping:
    """A node for every record that meets all conditions, or for every item of its list `each`.

    With `distinct`, rows that a task has yielded already are not yielded again. `id` is for types
    without a key. A record without a value in a column of `requires` yields no node.
    """

    type: str
    properties: Mapping[str, ValueMapping]
    id: ValueMapping | None = None
    each: str | None = None
    each_split: str | None = None
    where: tuple[Condition, ...] = ()
    distinct: bool = False
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The node at one end of an edge, by the properties of its key.

    With `create`, the node is created if it does not exist. A type without a key is named by `id`.
    """

    type: str
    key: Mapping[str, ValueMapping]
    create: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeMapping:
    """An edge for every record, or for every item of the list `each`.

    The id of an edge is made of its ends and of the values of the columns in `id`. With `single`, a
    source has one edge of the type: its id is made of the source alone, so that a later import
    moves the edge to another target. With `new_id` it is a new one, and a second import adds the
    edge again. With `optional`, a record in which an end has no value yields no edge; otherwise it
    is rejected.
    """

    type: str
    source: Endpoint
    target: Endpoint
    properties: Mapping[str, ValueMapping] = field(default_factory=dict)
    id: tuple[str, ...] = ()
    single: bool = False
    new_id: bool = False
    each: str | None = None
    each_split: str | None = None
    where: tuple[Condition, ...] = ()
    optional: bool = False


Rule: TypeAlias = NodeMapping | EdgeMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """How the files of a source are written; None is found out.

    `header` says whether the first record names the columns, or has the names of those that no
    record names. `key_column` is the column for the names of the members of an object of JSON that
    are the records, `position_column` that for the numbers of the records of a document, from zero.
    """

    header: bool | tuple[str, ...] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    key_column: str | None = None
    position_column: str | None = None

    def or_else(self, other: TextForm) -> TextForm:
        """This form, where it says something, and otherwise another one."""
        has_names = self.header is not True and isinstance(other.header, tuple)
        return TextForm(
            header=other.header if self.header is None or has_names else self.header,
            delimiter=self.delimiter or other.delimiter,
            encoding=self.encoding or other.encoding,
            key_column=self.key_column or other.key_column,
            position_column=self.position_column or other.position_column,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMapping:
    """The rules of one source; `ignored` names columns that are known and not used.

    Sources whose names are in `also` have the same rules.

    `digest` has the columns that a digest of a record is made of, in order.

    Values of unknown columns go to the property `kept_in` of the first node rule as JSON if
    `unknown` says so. `form` says how files of the source are read.
    """

    name: str
    also: tuple[str, ...] = ()
    form: TextForm = field(default_factory=TextForm)
    nodes: tuple[NodeMapping, ...] = ()
    edges: tuple[EdgeMapping, ...] = ()
    ignored: tuple[str, ...] = ()
    unknown: UnknownColumns = UnknownColumns.ERROR
    kept_in: str | None = None
    digest: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        return (*self.nodes, *self.edges)

    def node_types(self) -> tuple[str, ...]:
        """The node types that get rows, also those whose nodes edges create."""
        names = [rule.type for rule in self.nodes]
        ends = (end for rule in self.edges for end in (rule.source, rule.target))
        return tuple(dict.fromkeys([*names, *(end.type for end in ends if end.create)]))

    def edge_types(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rule.type for rule in self.edges))

    def tables(self) -> frozenset[str]:
        """The keys of the tables that get rows."""
        return frozenset(
            {*map(node_table_key, self.node_types()), *map(edge_table_key, self.edge_types())}
        )

    def with_created_endpoints(self) -> SourceMapping:
        """The mapping that creates missing nodes, except those that its node rules yield."""

        def allow_creation(end: Endpoint) -> Endpoint:
            is_own = any(
                node.type == end.type
                and all(node.properties.get(name) == value for name, value in end.key.items())
                for node in self.nodes
            )
            return end if is_own else replace(end, create=True)

        edges = (
            replace(rule, source=allow_creation(rule.source), target=allow_creation(rule.target))
            for rule in self.edges
        )
        return replace(self, edges=tuple(edges))

    def paths(self) -> frozenset[str]:
        """Every path that a rule reads, and the ignored ones."""
        paths = set(self.ignored)
        for rule in self.rules:
            paths.update(mapping.column for mapping in rule.properties.values())
            paths.update(filter(None, (rule.each,)))
            paths.update(condition.column for condition in rule.where)
            if isinstance(rule, EdgeMapping):
                paths.update(rule.id)
                for end in (rule.source, rule.target):
                    paths.update(mapping.column for mapping in end.key.values())
            else:
                paths.update(rule.requires)
                if rule.id is not None:
                    paths.add(rule.id.column)
        return frozenset(paths)
