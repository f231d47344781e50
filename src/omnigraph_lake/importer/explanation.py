"""The explanation of an inference: what was seen of every type, and what each choice was between.

Invariant: nothing is decided here. The scores are those that the choice was made by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from omnigraph_lake.display.pages import Displayed, Listing, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.importer.column_profile import ColumnProfile
from omnigraph_lake.importer.tables import Compared, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedColumn:
    """A column as it was found; `distinct` is None if its values cannot be keys."""

    name: str
    type: str
    why: str
    nulls: float
    """The share of records without a value."""
    distinct: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedType(Displayed):
    """What a type was inferred from, and what its key and references were chosen from."""

    type: str
    source: str
    records: int
    columns: tuple[ExplainedColumn, ...]
    key: tuple[str, ...]
    key_why: str
    keys_compared: tuple[Compared, ...]
    references: Mapping[str, tuple[Compared, ...]]
    """By column what it could refer to, the best first."""

    def _page(self) -> Page:
        key = (
            f"{', '.join(self.key)} ({self.key_why.removeprefix('key: ')})" if self.key else "none"
        )
        facts = [("type", self.type), ("source", self.source), ("records", f"{self.records:,}")]
        return Page(facts=[*facts, ("key", key)], tables=[*self.tables()], lines=[""])

    def tables(self) -> Iterator[TableView]:
        """The profile, the candidates for the key, and those for references."""
        yield TableView(
            header=(f"{self.type}: column", "no value", "distinct", "read as", "because"),
            rows=[
                (
                    column.name,
                    f"{column.nulls:.1%}",
                    "" if column.distinct is None else f"{column.distinct:,}",
                    column.type,
                    column.why,
                )
                for column in self.columns
            ],
            numbers=(1, 2),
        )
        if self.keys_compared:
            yield _tabulate(f"{self.type}: key could be", [("", one) for one in self.keys_compared])
        rows = [(column, one) for column, seen in self.references.items() for one in seen]
        if rows:
            yield _tabulate(f"{self.type}: could refer to", rows)


class Explanation(Listing[ExplainedType]):
    """The explanations of all types."""

    __slots__ = ()

    def _page(self) -> Page:
        return Page(tables=[table for one in self for table in one.tables()])


NO_EXPLANATION: Final = Explanation()
_TypeOf: TypeAlias = Callable[[ColumnProfile], tuple[str, object, str]]


def explain(tables: Sequence[Table], type_of: _TypeOf) -> Explanation:
    """What an inference saw and compared.

    `type_of` is the type of a column that became no property, and why.
    """
    return Explanation(
        ExplainedType(
            type=table.type,
            source=table.source,
            records=table.profile.records,
            columns=tuple(_explain_columns(table, type_of)),
            key=table.key,
            key_why=table.key_why,
            keys_compared=tuple(
                replace(one, is_chosen=table.key == (one.name,)) for one in table.keys_compared
            ),
            references={**_other_references(table), **table.references_compared},
        )
        for table in tables
        if not table.is_new
    )


def _explain_columns(table: Table, type_of: _TypeOf) -> Iterator[ExplainedColumn]:
    for path, profile in table.columns.items():
        kind, why = table.read_as.get(path) or type_of(profile)[::2]
        distinct = table.profile.distinct(path)
        yield ExplainedColumn(
            name=path,
            type=kind,
            why=why,
            nulls=profile.missing / max(1, profile.records),
            distinct=None if distinct is None else distinct.count,
        )


def _other_references(table: Table) -> dict[str, tuple[Compared, ...]]:
    """References that were not compared with others: declared, given, or of several columns."""
    return {
        ", ".join(one.columns): (Compared(name=one.target.type, scores={}, is_chosen=True),)
        for one in table.references
    }


def _tabulate(title: str, rows: Sequence[tuple[str, Compared]]) -> TableView:
    scores = {name: score for _, one in rows for name, score in one.scores.items()}
    return TableView(
        header=(title, *scores, "chosen"),
        rows=[
            (
                f"{column} -> {one.name}" if column else one.name,
                *(_spell(one.scores.get(name, "")) for name in scores),
                "yes" if one.is_chosen else "",
            )
            for column, one in rows
        ],
        numbers=[n for n, score in enumerate(scores.values(), 1) if not isinstance(score, str)],
    )


def _spell(score: str | float) -> str:
    if isinstance(score, str):
        return score
    return f"{score:,}" if isinstance(score, int) else f"{score:.1%}"
