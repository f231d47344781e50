"""Find the columns whose values are keys of other tables, by one scored table of evidence.

Every pair of a column and a possible key is a candidate. Its name says how much it is meant
(`NameMatch`), its values how much of it is so (`Containment`). A column refers to the best
candidate that its rule accepts; what is probable but not sure is a hint with the option that does
it.

The thresholds were read off public data. Shares of distinct values and of rows that are keys of the
target: flights.dest to airports .962/.977, flights.tailnum to planes .822/.850, counties.state to
states .911/.972, Debian's depends_on to package .919/.955; and of columns that do not refer to
it: requires of Python packages .155/.181, parent regions of ISO codes .030/.153.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.draft import Hint
from omnigraph_lake.importer.hashed_values import count_rows
from omnigraph_lake.importer.tables import (
    ID_NAMES,
    Compared,
    Reference,
    Table,
    is_key_type,
    new_table,
)
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.schema import catalog as ct

GENERAL_NAMES: Final = frozenset(
    {
        *ID_NAMES,
        *("key", "code", "slug", "sku", "isbn", "email", "iri", "uri", "number", "no", "nr"),
        *("name", "username", "login", "handle", "title", "label", "index", "position", "order"),
    }
)
"""Names that keys of any table have: two columns of such a name need not mean the same."""
_SELF_WORDS: Final = frozenset(
    {"parent", "manager", "boss", "supervisor", "reports_to", "mentor", "predecessor", "reply_to"}
)
_VALUES_MIN: Final = 3
"""Fewer distinct values are contained in a column of codes by chance."""
_BY_VALUE: Final = (0.9, 0.95)
_HINTED: Final = (0.5, 0.5)
_SAME_KEYS: Final = 2
_NEW_MIN: Final = 20
"""Fewer distinct values of an id that no source has are a category, as the seven leagues of
baseball: 61 users tag movies that 671 users rate."""
_REPEATED_MIN: Final = 2
"""Ids of which most records have their own name these records in another catalogue."""
_ID_WORDS: Final = frozenset({"id", "uuid", "guid"})
_TIME_WORDS: Final = frozenset({"year", "season", "month", "week", "day", "date", "time"})
"""`yearID` is a year."""
_SAME_ROWS_MAX: Final = 0.5
"""A column that mostly repeats the key of its own row names no other row."""


class NameMatch(IntEnum):
    """How a column is named after a table or its key; more is stronger."""

    NONE = 0
    TAIL = 1
    """`evolves_from_species_id` and pokemon_species end with the same word."""
    PART = 2
    """`species_id` is the end of pokemon_species."""
    END = 3
    """`home_company_id` ends with companies."""
    KEY = 4
    """`carrier` is the key of airlines, and no name that any key has."""
    FULL = 5
    """`company_id` is companies."""


_WHOLE_NAMES: Final = frozenset({NameMatch.FULL, NameMatch.END})
_DISTINCT_MIN: Final = {
    NameMatch.FULL: 0.5,
    NameMatch.KEY: 0.5,
    NameMatch.END: 0.5,
    NameMatch.PART: 0.8,
    NameMatch.TAIL: 0.95,
}
"""The least share of distinct values that are keys. A strong name needs little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """How many values of a column, and of its rows, are keys of a table; without words for null."""

    values: int
    missing_values: int
    rows: int
    missing_rows: int
    null: tuple[str, ...] = ()
    """Words that mean that a record refers to nothing."""

    @property
    def shares(self) -> tuple[float, float]:
        return (
            1 - self.missing_values / max(1, self.values),
            1 - self.missing_rows / max(1, self.rows),
        )

    @property
    def is_all(self) -> bool:
        return self.values > 1 and not self.missing_values

    @property
    def is_surely_contained(self) -> bool:
        return self._reaches(_BY_VALUE)

    @property
    def is_probably_contained(self) -> bool:
        return self._reaches(_HINTED)

    def _reaches(self, shares: tuple[float, float]) -> bool:
        is_more = all(own >= least for own, least in zip(self.shares, shares, strict=True))
        return self.values >= _VALUES_MIN and is_more


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A column that may refer to a table by one of its columns."""

    table: Table
    path: str
    target: Table
    key: str
    match: NameMatch
    common: int
    """Words that the names have in common at their ends."""
    is_scoped: bool
    """Whether all other words of the target are those that its own table begins with, as those of
    `move_targets` for `target_id` of `moves`."""

    @property
    def rank(self) -> tuple[bool, bool, int, bool, int]:
        """The order of candidates: the longest name that both have, of the same family first."""
        is_whole, is_key = self.match is NameMatch.FULL, self.match is NameMatch.KEY
        return is_whole, is_key, self.common, self.is_scoped, self.match


Evidence: TypeAlias = tuple[Candidate, Containment]


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The references of a table, and what might be one."""

    references: tuple[Reference, ...]
    hints: tuple[Hint, ...] = ()


def candidate(table: Table, path: str, target: Table, key: str) -> Candidate:
    """Compare the name of a column with the names of a table and of its key."""
    column = table.local(path)
    words = naming.singular_words(naming.stem(column).rstrip("0123456789"))  # bus0 and bus1
    own, other = naming.singular_words(table.name), naming.singular_words(target.name)
    common = _common(words[::-1], other[::-1])
    match = NameMatch.NONE
    if common and common == len(words) == len(other):
        match = NameMatch.FULL
    elif _is_telling(target.local(key)) and naming.snake(column) == naming.snake(target.local(key)):
        match = NameMatch.KEY
    elif common and common == len(other):
        match = NameMatch.END
    elif common and common == len(words):
        match = NameMatch.PART
    elif common and naming.has_key_suffix(column):
        match = NameMatch.TAIL
    return Candidate(
        table=table,
        path=path,
        target=target,
        key=key,
        match=match,
        common=common,
        is_scoped=0 < len(other) - common <= _common(own, other),
    )


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words two lists begin with."""
    count = 0
    for word, another in zip(one, other, strict=False):
        if word != another:
            break
        count += 1
    return count


def _is_telling(key: str) -> bool:
    return naming.snake(key) not in GENERAL_NAMES


def containment(
    table: Table, path: str | tuple[str, ...], target: Table, key: str | tuple[str, ...]
) -> Containment | None:
    """Compare the values of columns with a key; None if most are none, or some were not hashed."""
    paths = (path,) if isinstance(path, str) else path
    own = table.profile.distinct(*paths)
    keys = target.profile.distinct(*((key,) if isinstance(key, str) else key))
    hashed = [hashes for one in paths if (hashes := table.profile.columns[one].hashes) is not None]
    if own is None or keys is None or not keys.count or not own.may_be_in(keys, _HINTED[0]):
        return None
    rows, missing_rows = count_rows(hashed, table.profile.records, keys)
    values, missing_values = own.count, own.count_missing(keys)
    # A word for null is a value as any other, if it is a key: NA is the code of Namibia.
    words = table.columns[paths[0]].null_words if len(paths) == 1 else {}
    absent = {word: count for word, count in words.items() if not keys.has(word)}
    return Containment(
        values=values - len(absent),
        missing_values=missing_values - len(absent),
        rows=rows - sum(absent.values()),
        missing_rows=missing_rows - sum(absent.values()),
        null=tuple(absent),
    )


def may_refer(table: Table, path: str) -> bool:
    """Whether a column holds values that keys can have."""
    profile = table.columns[path]
    return profile.has_values and not profile.is_list and is_key_type(profile)


def is_named_reference(pair: Candidate) -> bool:
    """Whether a name alone, with values that fit, makes a reference."""
    if pair.match is NameMatch.NONE:
        return False
    is_number = pair.table.columns[pair.path].scalar() is not ct.Scalar.STRING
    column = pair.table.local(pair.path)
    if is_number and pair.match not in {NameMatch.FULL, NameMatch.KEY}:
        # `score` and `home_score` are numbers of a table `scores` by chance.
        return naming.has_key_suffix(column)
    if pair.target is pair.table:
        # A column that is named after its own table says what its row is.
        return pair.match is not NameMatch.FULL
    return True


def _is_self_word(table: Table, path: str) -> bool:
    column = table.local(path)
    named = {naming.snake(column), naming.stem(column), *naming.words(column)[:1]}
    return bool(named & _SELF_WORDS)


def _can_refer_by_value(table: Table, path: str) -> bool:
    """Whether values tell what they are: texts, and ids that are no small numbers."""
    is_text = table.columns[path].scalar() is ct.Scalar.STRING
    column = naming.snake(table.local(path))
    is_id = naming.has_key_suffix(column) or column in ID_NAMES
    return is_text or (is_id and not _is_dense(table, path))


def _is_alike(table: Table, path: str, target: Table, key: str) -> bool:
    """Whether values of two columns can be the same by more than chance."""
    is_text = table.columns[path].scalar() is ct.Scalar.STRING
    is_text_key = target.columns[key].scalar() is ct.Scalar.STRING
    return is_text is is_text_key and (is_text or not _is_dense(target, key))


def _is_dense(table: Table, path: str) -> bool:
    """Whether a column has most integers of its range: any small number is one of them."""
    distinct = table.profile.distinct(path)
    return distinct is None or table.columns[path].is_dense_range(distinct.count)


def accepts(pair: Candidate, values: Containment) -> bool:
    """Whether enough values of a column that is named after a table are keys of it."""
    share, _ = values.shares
    if not values.values:
        return False
    if pair.target is pair.table and repeats_key(pair):
        return False
    return share >= _DISTINCT_MIN[pair.match]


def repeats_key(pair: Candidate) -> bool:
    """Whether a column has the key of its own row in most rows."""
    columns = pair.table.profile.columns
    own, key = columns[pair.path].hashes, columns[pair.key].hashes
    records = pair.table.profile.records
    if own is None or key is None:
        return False
    return own.count_equal(key, records) > _SAME_ROWS_MAX * records


def find_named(
    table: Table, path: str, targets: Iterable[Table], details: Collection[Table] = ()
) -> Reference | None:
    """The table that a column is named after and whose keys it holds.

    `details` are tables whose key names the row of another one.
    """
    named = find_all_named(table, path, targets, details)
    return _reference(*named[0]) if named and accepts(*named[0]) else None


def find_all_named(
    table: Table, path: str, targets: Iterable[Table], details: Collection[Table] = ()
) -> list[Evidence]:
    """The tables that a column is named after and some of whose keys it holds, the best first."""
    if not may_refer(table, path):
        return []
    ranked: list[tuple[tuple[float, ...], Evidence]] = []
    is_key = table.key == (path,)
    is_later = False
    for number, target in enumerate(targets):
        is_later |= target is table
        pair = candidate(table, path, target, target.key[0])
        if (target is table and is_key) or not is_named_reference(pair):
            continue
        if target in details and pair.match in {NameMatch.KEY, NameMatch.TAIL}:
            continue
        if is_key and pair.match is NameMatch.KEY:
            # Two tables with one key: the larger one, or the first one, is what both tell of.
            own, other = table.profile.records, target.profile.records
            if other < own or (other == own and is_later):
                continue
        values = containment(table, path, target, target.key[0])
        if values is not None:
            rank = (accepts(pair, values), *pair.rank, values.shares[0], -number)
            ranked.append((rank, (pair, values)))
    return [evidence for _, evidence in sorted(ranked, key=lambda entry: entry[0], reverse=True)]


class ReferenceFinder:
    """Finds the references of tables whose keys are chosen."""

    def __init__(self, tables: Sequence[Table], given: Mapping[str, str]) -> None:
        """`given` has the targets of columns, by types or sources."""
        self._given = given
        self._targets = [table for table in tables if table.has_key_column and table.ends is None]
        self._tables = tables
        self.new: list[Table] = []
        """The tables that the caller names and no source has."""
        self._detail = frozenset(
            target
            for target in self._targets
            if find_named(target, target.key[0], self._targets) is not None
        )
        """Tables whose key names the row of another one: what has their key means that one."""

    def find(self, table: Table) -> References:
        """The references of one table, in the order of its columns."""
        if table.ends is not None:
            return References(references=())
        references = list(self._find_declared(table))
        hints: list[Hint] = []
        known = {column for reference in references for column in reference.columns}
        # The key comes last: it tells of the same things only if no other column refers to them.
        for path in sorted(table.columns, key=lambda path: table.key == (path,)):
            if path in known or path == table.row_numbers:
                continue
            result, seen = self._reference(table, path, {ref.target for ref in references})
            if seen:
                table.references_compared[path] = tuple(_compare(seen, result))
            if isinstance(result, Reference):
                references.append(result)
            elif result is not None:
                hints.append(result)
        return References(references=tuple(references), hints=tuple(hints))

    def _find_declared(self, table: Table) -> Iterator[Reference]:
        if table.declared is None:
            return
        for foreign in table.declared.foreign_keys:
            if any(self._find_given(table, path) for path in foreign.columns):
                continue
            target = next((t for t in self._tables if t.name == foreign.table), None)
            targets = foreign.target_columns or (target.key if target else ())
            if target is not None and targets == target.key and not target.is_edge:
                why = f"declared foreign key to {foreign.table}"
                yield Reference(columns=foreign.columns, target=target, why=why)

    def _reference(
        self, table: Table, path: str, known: Collection[Table]
    ) -> tuple[Reference | Hint | None, list[Evidence]]:
        """What a column refers to, and what it was compared with.

        `known` are targets of other columns.
        """
        given = self._find_given(table, path)
        if given is not None:
            return self._refer_to(table, path, given), []
        if table.columns[path].is_list:
            return self._list_reference(table, path), []
        is_declared = table.declared is not None and table.declared.foreign_keys
        if is_declared or not table.columns[path].has_values:
            return None, []
        named = find_all_named(table, path, self._targets, self._detail)
        if named and accepts(*named[0]):
            return _reference(*named[0]), named
        if table.key != (path,):
            possible = list(self._holding(table, path))
            return self._by_value(table, path, possible), [*possible, *named]
        same = self._same_key(table, path)
        return same if same is None or same.target not in known else None, named

    def _find_given(self, table: Table, path: str) -> str | None:
        return self._given.get(f"{table.type}.{path}", self._given.get(f"{table.name}.{path}"))

    def _refer_to(self, table: Table, path: str, name: str) -> Reference:
        target = next(
            (target for target in self._targets if name in (target.type, target.name)), None
        )
        names = {one for other in self._tables for one in (other.type, other.name)}
        is_new = naming.camel(name) == name and name not in names and not did_you_mean(name, names)
        if target is None and is_new:
            target = new_table(name, table, path)
            self._targets.append(target)
            self.new.append(target)
        if target is None:
            known = ", ".join(target.type for target in self._targets)
            raise InvalidInputError(
                f"{table.type}.{path} cannot refer to {shown(name)}, which is no type with a key "
                "of one column",
                next_step=f"Name one of {known}, or give its key with `--key`.",
            )
        values = containment(table, path, target, target.key[0])
        pair = candidate(table, path, target, target.key[0])
        if values is None:
            return Reference(columns=(path,), target=target, why="given")
        return _reference(pair, values)

    def _by_value(
        self, table: Table, path: str, possible: Sequence[Evidence]
    ) -> Reference | Hint | None:
        """A column that is not named after the table whose keys it holds."""
        if _is_self_word(table, path) and table in self._targets:
            # Such a name says which table is meant, so that few values are enough.
            pair = candidate(table, path, table, table.key[0])
            values = containment(table, path, table, pair.key)
            if values is not None and values.is_all and not repeats_key(pair):
                return _reference(pair, values)
        sure = [entry for entry in possible if entry[1].is_surely_contained]
        if len(sure) == 1:
            return _reference(*sure[0])
        return _hint(sure or possible) if possible else None

    def _holding(self, table: Table, path: str) -> Iterator[Evidence]:
        """The tables that have many of the values of a column as keys."""
        if not may_refer(table, path) or not _can_refer_by_value(table, path):
            return
        for target in self._targets:
            pair = candidate(table, path, target, target.key[0])
            if target in self._detail or not _is_alike(table, path, target, pair.key):
                continue
            values = containment(table, path, target, pair.key)
            if values is None or not values.is_probably_contained:
                continue
            if target is not table or not repeats_key(pair):
                yield pair, values

    def _same_key(self, table: Table, path: str) -> Reference | None:
        """An earlier table with a key of the same name and values: both tell of the same things."""
        earlier = self._targets[: self._targets.index(table)] if table in self._targets else []
        for target in earlier:
            pair = candidate(table, path, target, target.key[0])
            names = {naming.snake(one.local(one.key[0])) for one in (table, target)}
            if len(names) > 1 or not _can_refer_by_value(table, path):
                continue
            values = containment(table, path, target, pair.key)
            # Small numbers are among any others, but not the other way round.
            is_same = target.profile.records <= _SAME_KEYS * table.profile.records
            is_same &= _is_alike(table, path, target, pair.key) and target not in self._detail
            if is_same and values is not None and values.is_surely_contained:
                return _reference(pair, values)
        return None

    def _list_reference(self, table: Table, path: str) -> Reference | None:
        name = table.local(path)
        if not naming.snake(name).endswith("_ids"):
            return None
        for target in self._targets:
            if candidate(table, path, target, target.key[0]).match in _WHOLE_NAMES:
                why = f"{path} is a list of keys of {target.name}"
                return Reference(columns=(path,), target=target, why=why, is_list=True)
        return None


def refer_to_new(tables: Sequence[Table]) -> tuple[Sequence[Table], Sequence[Hint]]:
    """Make references of ids of things that no source has, to tables of these.

    Two tables that have the ids of the same name and the same values mean the same things. What
    only one table has may be a thing, too: then it is a hint.
    """
    columns: dict[str, list[tuple[int, Table, str]]] = {}
    named = {naming.singular_words(table.name) for table in tables}
    for table in tables:
        for path in table.columns:
            words = naming.words(table.local(path))
            if naming.singular_words(naming.stem(table.local(path))) in named:
                continue
            is_id = words[-1:] and words[-1] in _ID_WORDS and words[0] not in _TIME_WORDS
            if is_id and _is_free(table, path):
                distinct = table.profile.distinct(path)
                if distinct is not None and distinct.count >= _NEW_MIN:
                    columns.setdefault("_".join(words), []).append((distinct.count, table, path))
    new: list[Table] = []
    hints: list[Hint] = []
    for name, holding in columns.items():
        count, holder, key = max(holding, key=lambda entry: entry[0])
        target = new_table(naming.camel(naming.stem(name)), holder, key)
        contained = [
            (table, path, containment(table, path, target, key)) for _, table, path in holding
        ]
        kinds = {table.columns[path].scalar() for table, path, _ in contained}
        is_whole = all(values is not None and values.is_all for *_, values in contained)
        if len(contained) > 1 and len(kinds) == 1 and is_whole:
            new.append(target)
            for table, path, _ in contained:
                why = f"{path}: the same ids as in {counted(len(contained) - 1, 'other source')}"
                _add_in_order(table, Reference(columns=(path,), target=target, why=why))
        elif _REPEATED_MIN * count <= holder.profile.records:
            text = f"{count:,} values may be ids of nodes that no source has"
            option = f"--edge {holder.type}.{key}={target.type}"
            hints.append(Hint(source=holder.source, column=key, text=text, option=option))
    return new, hints


def _add_in_order(table: Table, reference: Reference) -> None:
    """Add a reference where its column is: what joins two tables leads from the first one."""
    places = list(table.columns)
    table.references.append(reference)
    table.references.sort(key=lambda one: places.index(one.columns[0]))


def _is_free(table: Table, path: str) -> bool:
    """Whether an id names neither its own record nor that of a source."""
    own = {*table.key, table.row_numbers, *(table.ends or ())}
    known = {column for reference in table.references for column in reference.columns}
    if table.declared is not None or table.path is not None or path in own | known:
        return False
    return may_refer(table, path) and not table.is_unique(path)


def _reference(pair: Candidate, values: Containment) -> Reference:
    return Reference(
        columns=(pair.path,),
        target=pair.target,
        why=explain(pair.path, pair.target.name, values),
        null=values.null,
        is_whole=not values.missing_values,
        unmatched=1 - values.shares[1],
    )


def _compare(seen: Sequence[Evidence], result: Reference | Hint | None) -> Iterator[Compared]:
    """What was compared for one column, each table once; the chosen one first."""
    chosen = result.target if isinstance(result, Reference) else None
    by_target: dict[Table, Evidence] = {}
    for evidence in seen:
        by_target.setdefault(evidence[0].target, evidence)
    for pair, values in sorted(by_target.values(), key=lambda e: e[0].target is not chosen):
        yield Compared(
            name=f"{pair.target.type}.{pair.target.local(pair.key)}",
            scores={
                "named": pair.match.name.lower(),
                "values": values.shares[0],
                "records": values.shares[1],
            },
            is_chosen=pair.target is chosen,
        )


def explain(path: str, target: str, values: Containment) -> str:
    """Why columns refer to a table."""
    if values.missing_values:
        return (
            f"{path}: {values.missing_values:,} of {counted(values.values, 'value')} are "
            f"not keys of {target}, in {values.missing_rows:,} of {counted(values.rows, 'record')}"
        )
    if values.values == 1:
        return f"{path}: its one value is a key of {target}"
    return f"{path}: all {values.values:,} values are keys of {target}"


def _hint(possible: Sequence[Evidence]) -> Hint:
    """What a column may refer to, and the option that makes it so."""
    pair, values = max(possible, key=lambda entry: entry[1].shares)
    count = values.values - values.missing_values
    others = "" if len(possible) == 1 else f" (and {len(possible) - 1} other tables have them)"
    return Hint(
        source=pair.table.source,
        column=pair.path,
        text=f"{count:,} of {counted(values.values, 'value')} are keys of "
        f"{pair.target.name}{others}",
        option=f"--edge {pair.table.type}.{pair.path}={pair.target.type}",
    )
