"""Choose the key of every table: the columns whose values identify its records.

A key is declared, or it is a column of texts or integers that no two records share. Of several the
one that other tables refer to is meant; then names decide. A measure that happens to be unique is
no key, so a column that is neither named like a key nor referred to is none.

Tables of the same things share the names of their columns: `yearID, teamID` of the statistics of a
team are those of the team. Two columns that are unique together are a key if others hold their
values; otherwise one of them must be a reference, as the order of a line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.column_profile import ColumnProfile
from omnigraph_lake.importer.foreign_keys import (
    NameMatch,
    accepts,
    candidate,
    containment,
    explain,
    find_named,
    is_named_reference,
    may_refer,
)
from omnigraph_lake.importer.profile import SourceProfile
from omnigraph_lake.importer.tables import ID_NAMES, Compared, Reference, Table, is_key_type
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.load.formats.raw_batches import POSITION
from omnigraph_lake.schema import catalog as ct

_CODE_NAMES: Final = ("key", "code", "slug", "sku", "isbn", "email", "iri", "uri")
_PERSON_NAMES: Final = ("name", "username", "login", "handle")
_ID_RANKS: Final = frozenset({0, 1})
_NAME_RANK: Final = 4
_NO_RANK: Final = 9
_RANKS: Final = ("id", "code", "first id", "codes", "name")
"""How a column is called, by its rank; `codes` also for its values, and for `geonameid`."""
_CODES_MIN: Final = 20
_CODE_MAX: Final = 16
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
"""They are keys only of tables that are named after them: `date` of dates."""
_REPEATED_SHARE_MAX: Final = 0.05
"""So many records may repeat the id of an earlier one: exports have such rows, and panels of
persons and years repeat nearly all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyColumn:
    """A column that may be a key; `repeated` records have the value of an earlier one."""

    path: str
    place: int
    rank: int | None
    repeated: int
    named: int = 0
    """Columns of other tables that are named after it or its table, and hold its values."""
    by_value: int = 0
    """Further columns of texts that hold its values."""

    @property
    def is_referred(self) -> bool:
        return bool(self.named or self.by_value)

    def scores(self) -> dict[str, str | int | float]:
        return {
            "called": "" if self.rank is None else _RANKS[self.rank],
            "repeated": self.repeated,
            "named by": self.named,
            "held by": self.by_value,
        }


def choose_keys(tables: Sequence[Table], given: Mapping[str, str]) -> None:
    """Choose the keys of all tables; `given` names columns by type or source."""
    open_tables: dict[Table, list[_KeyColumn]] = {}
    for table in tables:
        named = given.get(table.type, given.get(table.name))
        declared = table.declared.key if table.declared is not None else ()
        if table.key or table.ends is not None:
            continue
        if named is not None:
            table.key, table.key_why = (_require_column(named, table),), "key: given"
            table.row_numbers = None if table.row_numbers == named else table.row_numbers
        elif declared and all(name in table.columns for name in declared):
            table.key, table.key_why = declared, "declared primary key"
        else:
            open_tables[table] = list(_key_columns(table, tables))
    for table, columns in open_tables.items():
        referred = [_with_referring(table, column, tables) for column in columns]
        ranked = sorted(
            [column for column in referred if column.is_referred or column.rank is not None],
            key=_order,
        )
        table.keys_compared = tuple(
            Compared(name=column.path, scores=column.scores()) for column in ranked
        )
        if ranked:
            table.key, table.key_why = (ranked[0].path,), _why(table, ranked[0])


def _require_column(column: str, table: Table) -> str:
    is_position = column == POSITION and table.document is not None
    if column not in table.columns and not is_position:
        hint = did_you_mean(column, table.columns)
        raise InvalidInputError(
            f"{table.type} has no column {shown(column)} for its key"
            + (f"; {hint}" if hint else "")
        )
    return column


def drop_names_of_joins(tables: Sequence[Table]) -> None:
    """Let tables that name rows of two others and have a unique name be no nodes.

    Texts in several languages are unique by chance: `item_id, language_id, name`. What begins with
    its name is a thing: `name, bus, carrier` of generators.
    """
    targets = [table for table in tables if table.has_key_column]
    joins = [table for table in targets if _is_named_join(table, targets, tables)]
    for table in joins:
        table.key, table.key_why = (), ""


def _is_named_join(table: Table, targets: Sequence[Table], tables: Sequence[Table]) -> bool:
    if table.declared is not None or table.path is not None:
        return False
    (key,) = table.key
    column = _KeyColumn(path=key, place=-1, rank=_rank(table, key, -1), repeated=0)
    if key == next(iter(table.columns)):
        return False
    if column.rank != _NAME_RANK or _with_referring(table, column, tables).is_referred:
        return False
    named = [path for path in table.columns if find_named(table, path, targets) is not None]
    return len(named) >= 2


def _key_columns(table: Table, tables: Sequence[Table]) -> Iterator[_KeyColumn]:
    for place, (path, profile) in enumerate(table.columns.items()):
        if path == table.row_numbers or not profile.can_identify or not table.profile.records:
            continue
        is_own = naming.singular_words(table.local(path)) == naming.singular_words(table.name)
        if not (is_key_type(profile) or (is_own and profile.scalar() in _TIMES)):
            continue
        repeated = table.count_repeated(path)
        rank = _rank(table, path, place)
        if repeated is None or (rank is None and _is_named_after_another(table, path, tables)):
            continue
        if not repeated:
            yield _KeyColumn(path=path, place=place, rank=rank, repeated=0)
        elif rank in _ID_RANKS and repeated <= _REPEATED_SHARE_MAX * table.profile.records:
            yield _KeyColumn(path=path, place=place, rank=rank, repeated=repeated)


def _is_named_after_another(table: Table, path: str, tables: Sequence[Table]) -> bool:
    """Whether a column is called as another table: `bus` of loads names a bus."""
    name = naming.singular_words(table.local(path))
    return any(name == naming.singular_words(other.name) for other in tables if other is not table)


def _rank(table: Table, path: str, place: int) -> int | None:
    """How much a column is named like the key of its table; less is more."""
    name, own = naming.snake(table.local(path)), naming.snake(naming.type_name(table.name))
    plain = name.replace("_", "")
    if name in ID_NAMES or plain == f"{own.replace('_', '')}id":
        return 0
    if name in _CODE_NAMES or (naming.has_key_suffix(name) and naming.stem(name) == own):
        return 1
    if naming.has_key_suffix(name) and place == 0:
        return 2
    is_joined = plain.endswith("id") and len(plain) > len("grid")  # geonameid
    if not naming.has_key_suffix(name) and (is_joined or _has_codes(table.columns[path])):
        return 3
    return _NAME_RANK if name in _PERSON_NAMES or name == own else None


def _has_codes(profile: ColumnProfile) -> bool:
    """Whether texts are of one length and without blanks, as codes of counties and airports are."""
    texts = profile.sample
    if profile.scalar() is not ct.Scalar.STRING or len(texts) < _CODES_MIN:
        return False
    is_plain = all(text.isalnum() for text in texts) and len(texts[0]) <= _CODE_MAX
    return is_plain and len({len(text) for text in texts}) == 1


def _with_referring(table: Table, column: _KeyColumn, tables: Sequence[Table]) -> _KeyColumn:
    """The column with the number of columns of other tables that hold its values."""
    named = by_value = 0
    is_text = table.columns[column.path].scalar() is ct.Scalar.STRING
    for other in tables:
        for path, profile in other.columns.items() if other is not table else ():
            if path == other.row_numbers or not may_refer(other, path):
                continue
            pair = candidate(other, path, table, column.path)
            is_named = is_named_reference(pair) and pair.match >= NameMatch.PART
            if not is_named and not (is_text and profile.scalar() is ct.Scalar.STRING):
                continue
            values = containment(other, path, table, column.path)
            if values is None:
                continue
            if is_named and accepts(pair, values):
                named += 1
            elif values.is_surely_contained and not other.is_unique(path):
                by_value += 1
    return replace(column, named=named, by_value=by_value)


def _order(column: _KeyColumn) -> tuple[int, ...]:
    """What others refer to by name, then what is called an id, then what others have values of."""
    return (
        bool(column.repeated) and not column.named,
        not (column.rank == 0 and column.named),
        -column.named,
        column.rank != 0,
        -column.by_value,
        bool(column.repeated),
        _NO_RANK if column.rank is None else column.rank,
        column.place,
    )


def _why(table: Table, column: _KeyColumn) -> str:
    if not column.repeated:
        return f"key: unique in {extent(table.profile)}"
    return (
        f"key: {column.repeated:,} of {counted(table.profile.records, 'record')} with the value "
        "of an earlier one; the last of them stands"
    )


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


def extent(profile: SourceProfile) -> str:
    """Which records a decision follows from."""
    records = counted(profile.records, "record")
    if not profile.is_complete:
        return f"the first {records}"
    return records if profile.records == 1 else f"all {records}"
