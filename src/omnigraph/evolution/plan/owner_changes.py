"""One type before and after a change, and what its existing rows will hold.

Invariant: `before` is the accepted type under its new names, so that equal names mean equal
numbers; `accepted` has the names its table has now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omnigraph.evolution.plan.columns import (
    CopyFill,
    Declared,
    FutureColumn,
    LiteralFill,
    StoredColumn,
    Subject,
    stored_column,
)
from omnigraph.evolution.plan.data_checks import DataCheck, NoNulls, TableIsEmpty
from omnigraph.evolution.plan.fills import NewValues
from omnigraph.names import SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.schema.catalog import InterfaceType, Property, Scalar, ScalarType

_ENDPOINT: Final = ScalarType(scalar=Scalar.STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChange:
    """A type that is kept; `values` is what hints set in its rows."""

    subject: Subject
    accepted: Declared
    before: Declared
    after: Declared
    values: NewValues

    @property
    def table(self) -> str:
        """The key of the table whose rows are checked."""
        table = self.subject.stored_table
        assert table is not None, "an interface has no constraints on rows"
        return table

    @property
    def key(self) -> frozenset[str]:
        """The key members that stay the key."""
        before, after = _key(self.before), _key(self.after)
        return after if before == after else frozenset()

    def stored(self, name: str) -> Property | None:
        """The accepted property that a property of the new type continues."""
        number = self.after.properties[name].number
        for each in self.accepted.properties.values():
            if each.number == number:
                return each
        return None

    def column(self, name: str) -> FutureColumn:
        if name in (SOURCE_COLUMN, TARGET_COLUMN):
            # No property has one of these names; they are the ends of an edge.
            return FutureColumn(
                name=name, type=_ENDPOINT, stored=StoredColumn(name=name, type=_ENDPOINT)
            )
        stored = self.stored(name)
        return FutureColumn(
            name=name,
            type=self.after.properties[name].type,
            stored=None if stored is None else stored_column(stored),
            mapping=self.values.mappings.get(name, ()),
            fill=self.values.fills.get(name),
        )

    def is_present(self, name: str) -> bool:
        """Whether every existing row is known to have a value there, without looking."""
        stored = self.stored(name)
        if stored is not None and _is_always_set(stored):
            return True
        match self.values.fills.get(name):
            case LiteralFill():
                return True
            case CopyFill(source=source):
                return _is_always_set(self.accepted.properties[source.name])
            case None:
                return False

    def null_checks(self, name: str) -> tuple[DataCheck, ...]:
        """What ensures a required property for existing rows."""
        after = self.after.properties[name]
        if self.is_present(name):
            return ()
        column = self.column(name)
        if after.embed is None:
            if column.is_null:
                return (TableIsEmpty(table=self.table, column=name),)
            return (NoNulls(table=self.table, column=column),)
        if self.is_present(after.embed.source):
            return ()
        source = self.column(after.embed.source)
        return (NoNulls(table=self.table, column=column, unless_present=source),)


def _is_always_set(accepted: Property) -> bool:
    return not accepted.nullable and accepted.embed is None


def _key(declared: Declared) -> frozenset[str]:
    key = getattr(declared, "key", None)
    return frozenset(key.properties) if key is not None else frozenset()


def is_promise(declared: Declared) -> bool:
    """Whether this is an interface: it has no rows, so nothing about it needs a table."""
    return isinstance(declared, InterfaceType)
