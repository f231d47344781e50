"""Rows of a pattern as a DataFrame: which columns hold each variable.

Invariant: every column has a unique name in its run, so that frames can be joined without
conflicts, and no name of a schema or a query is used in Spark. A variable is null in a row if and
only if the column of its id, or of the nodes of its path, is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, assert_never

from pyspark.sql import functions as sql

from omnigraph.names import ID_COLUMN
from omnigraph.query.binding import BoundParameters
from omnigraph.query.expressions import Ranking
from omnigraph.schema.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from omnigraph.runner.scan import SparkTables


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntity:
    """The columns of a node or an edge; `src` and `dst` of an edge are among its properties.

    `types` are the possible ones; `type_column` is set if there are several.
    """

    id_column: str
    types: tuple[str, ...]
    type_column: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPath:
    """The columns of a path: the ids of its nodes and of its edges."""

    nodes: str
    edges: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A variable that is null in every row; it has no columns."""


Held: TypeAlias = HeldEntity | HeldPath | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows that carry variables, and ranks once they have them.

    `bytes_most` is how large they can be at most, where that is known.
    """

    frame: DataFrame
    held: Mapping[str, Held]
    scores: Mapping[Ranking, str] = field(default_factory=dict)
    bytes_most: int | None = None


class Names:
    """Unique names of columns."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def fresh(self) -> str:
        return f"c{next(self._numbers)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The context of all steps of one run."""

    graph: SparkTables
    catalog: Catalog
    parameters: BoundParameters
    names: Names = field(default_factory=Names)


def columns_of(held: Held) -> tuple[str, ...]:
    """All columns of a variable."""
    match held:
        case HeldEntity():
            return tuple(dict.fromkeys((*identity_of(held), *held.properties.values())))
        case HeldPath() | Absent():
            return identity_of(held)
        case _:
            assert_never(held)


def identity_of(held: Held) -> tuple[str, ...]:
    """The columns that distinguish values of a variable."""
    match held:
        case HeldEntity():
            typed = () if held.type_column is None else (held.type_column,)
            return held.id_column, *typed
        case HeldPath():
            return held.nodes, held.edges
        case Absent():
            return ()
        case _:
            assert_never(held)


def property_column(held: HeldEntity, name: str) -> str:
    """The column of a property, or of the id."""
    return held.id_column if name == ID_COLUMN else held.properties[name]


def type_of(held: HeldEntity) -> Column:
    """The name of the type of an entity, null where there is none."""
    if held.type_column is not None:
        return sql.col(held.type_column)
    (only,) = held.types
    return sql.when(sql.col(held.id_column).isNotNull(), sql.lit(only))


def nothing(run: Run, variables: Iterable[str]) -> Rows:
    """No rows."""
    frame = run.graph.spark.range(0).toDF(run.names.fresh())
    return Rows(frame=frame, held=dict.fromkeys(variables, Absent()), bytes_most=0)


def copied(rows: Rows, variables: Iterable[str], names: Names) -> Rows:
    """Some variables of rows under new names, each combination of them once.

    The properties of an entity follow from its identity, so that identities are compared alone.
    """
    held = {each: rows.held[each] for each in variables}
    identity = list(dict.fromkeys(name for each in held.values() for name in identity_of(each)))
    columns = dict.fromkeys(name for each in held.values() for name in columns_of(each))
    renamed = {name: names.fresh() for name in columns}
    moved = {name: _moved(each, renamed) for name, each in held.items()}
    if identity:
        once = rows.frame.select(*columns).dropDuplicates(identity)
        frame = once.select(*(sql.col(old).alias(new) for old, new in renamed.items()))
    else:
        frame = rows.frame.select(sql.lit(1).alias(names.fresh())).limit(1)
    return Rows(frame=frame, held=moved, bytes_most=rows.bytes_most)


def _moved(held: Held, renamed: Mapping[str, str]) -> Held:
    match held:
        case HeldEntity():
            type_column = held.type_column
            return replace(
                held,
                id_column=renamed[held.id_column],
                type_column=None if type_column is None else renamed[type_column],
                properties={name: renamed[column] for name, column in held.properties.items()},
            )
        case HeldPath():
            return HeldPath(nodes=renamed[held.nodes], edges=renamed[held.edges])
        case Absent():
            return held
        case _:
            assert_never(held)
