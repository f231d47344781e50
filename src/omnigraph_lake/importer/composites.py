"""Find keys of two columns, and what refers to them.

Tables of the same things share the names of their columns: `yearID, teamID` of the statistics of a
team are those of the team. Two columns that are unique together are a key if others hold their
values; otherwise one of them must be a reference, as the order of a line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from omnigraph_lake.importer import naming
from omnigraph_lake.importer.foreign_keys import containment, explain
from omnigraph_lake.importer.tables import Reference, Table, is_key_type
from omnigraph_lake.schema import catalog as ct

_TRIED_MAX: Final = 6
"""Columns of a table that are paired; every pair is a sort of the rows."""
_ORDINALS: Final = frozenset(
    {
        *("line", "number", "no", "nr", "num", "position", "pos", "sequence", "seq", "index"),
        *("order", "rank", "level", "slot", "step", "item", "row", "part", "stint", "version"),
    }
)
"""What counts rows of one thing. Other columns make pairs by chance: an award had one
manager a year, and a park one first day."""
_TIMES: Final = frozenset({ct.Scalar.DATE, ct.Scalar.DATETIME})


def choose_referred_pairs(tables: Sequence[Table]) -> list[Table]:
    """Choose two columns as the key of tables without one, if other tables hold their values.

    Returns:
        The tables that have such a key now.
    """
    chosen: list[Table] = []
    for table in tables:
        if table.is_join or not _may_have_pair(table):
            continue
        scored = [(_count_holding(pair, table, tables), pair) for pair in _pairs(table, tables)]
        holding, pair = max(scored, key=lambda entry: entry[0], default=(0, ()))
        if holding:
            table.key, table.key_why = pair, "key: unique together, and named by other tables"
            chosen.append(table)
    return chosen


def choose_pair(table: Table) -> None:
    """Choose a reference and a number of its row, if they are unique together: `order_id, line`."""
    if not _may_have_pair(table):
        return
    first = [ref.columns[0] for ref in table.references if not ref.is_list]
    numbers = [path for path in _usable(table) if _ORDINALS.intersection(naming.words(path)[-1:])]
    for one, other in itertools.product(first[:_TRIED_MAX], numbers[:_TRIED_MAX]):
        if one != other and table.is_unique(one, other):
            table.key, table.key_why = (one, other), "key: unique together"
            return


def find_pair_references(table: Table, targets: Sequence[Table]) -> Iterator[Reference]:
    """The references of a table to tables with keys of two columns."""
    if table.ends is not None or (table.declared is not None and table.declared.foreign_keys):
        return
    for target in targets:
        if target is table:
            continue
        for paths in itertools.product(*(_columns_like(table, target, key) for key in target.key)):
            if len(set(paths)) < 2 or not _is_some_same(table, paths, target):
                continue
            values = containment(table, paths, target, target.key)
            if values is not None and values.is_surely_contained:
                why = explain(", ".join(paths), target.name, values)
                yield Reference(columns=paths, target=target, why=why, is_whole=False)


def _may_have_pair(table: Table) -> bool:
    is_plain = table.each is None and not table.is_object and table.ends is None
    return is_plain and not table.key and table.declared is None


def _usable(table: Table) -> list[str]:
    return [
        path
        for path, profile in table.columns.items()
        if path != table.row_numbers
        and profile.can_identify
        and (is_key_type(profile) or profile.scalar() in _TIMES)
        and not table.is_unique(path)  # or any column would make a pair with it
    ]


def _pairs(table: Table, tables: Sequence[Table]) -> Iterator[tuple[str, str]]:
    """Pairs of columns that are unique together, whose names some other table has."""
    names = [
        {naming.snake(path) for path in other.columns} for other in tables if other is not table
    ]
    shared = {
        path: sum(naming.snake(path) in others for others in names) for path in _usable(table)
    }
    tried = sorted((path for path in shared if shared[path]), key=lambda path: -shared[path])
    for one, other in itertools.combinations(tried[:_TRIED_MAX], 2):
        is_named = any(
            naming.has_key_suffix(path) or path in _referring(table) for path in (one, other)
        )
        if is_named and table.is_unique(one, other):
            yield one, other


def _referring(table: Table) -> set[str]:
    return {column for reference in table.references for column in reference.columns}


def _count_holding(pair: tuple[str, str], table: Table, tables: Sequence[Table]) -> int:
    """How many other tables hold the values of two columns in columns of the same names."""
    count = 0
    for other in tables:
        if other is table or other.is_object:
            continue
        by_name = {naming.snake(path): path for path in other.columns}
        paths = tuple(by_name.get(naming.snake(path), "") for path in pair)
        if all(paths) and not other.is_unique(*paths):
            values = containment(other, paths, table, pair)
            count += values is not None and values.is_surely_contained
    return count


def _columns_like(table: Table, target: Table, key: str) -> list[str]:
    """The columns named as a part of a key, or with words around its name: `teamIDwinner`."""
    name = target.local(key).casefold()
    same, around = [], []
    for path in table.columns:
        own = table.local(path).casefold()
        if naming.snake(own) == naming.snake(name):
            same.append(path)
        elif naming.has_key_suffix(target.local(key)) and (
            own.startswith(name) or own.endswith(name)
        ):
            around.append(path)
    return same or around


def _is_some_same(table: Table, paths: tuple[str, ...], target: Table) -> bool:
    return any(
        naming.snake(table.local(path)) == naming.snake(target.local(key))
        for path, key in zip(paths, target.key, strict=True)
    )
