"""Decide what the tables of an inference are: their keys, their references, their roles.

    keys         declared ones, or columns that are unique, never null, and named or placed like one
    references   columns whose values are keys of another table, and that are named after it, or
                 cannot be meant otherwise; ids that no table has are those of a new one
    roles        a table of two references is an edge type, as is one with a source and a target

Invariants:
- A decision follows from every record that was read, and its reason is kept with it.
- What is ambiguous is not decided: it is a hint with the option that decides it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.draft import Hint
from omnigraph_lake.importer.foreign_keys import ReferenceFinder, containment, refer_to_new
from omnigraph_lake.importer.keys import (
    choose_keys,
    choose_pair,
    choose_referred_pairs,
    drop_names_of_joins,
    find_pair_references,
)
from omnigraph_lake.importer.tables import Reference, Table, find_row_numbers, is_key_type
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.load.formats.mapping import UnknownColumns
from omnigraph_lake.load.formats.raw_batches import POSITION
from omnigraph_lake.schema import catalog as ct

Ends = tuple[str, str]
"""The columns of a list of edges that name the nodes at their ends."""
_ENDS: Final = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("start", "end"),
    ("head", "tail"),
    ("subject", "object"),
    ("follower", "followee"),
)
_RANGES: Final = frozenset({"from", "start", "head"})
"""First columns of pairs that are often ranges: integers there are ends only if they are keys."""
_JOIN_COLUMNS_MAX: Final = 8
_UNMATCHED_MAX: Final = 0.05
"""Of 17,350 records of who went to which school, 10 name one that is missing."""
_MISSING_SHARE_MAX: Final = 0.5
_NODE: Final = "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceOptions:
    """What the caller decides about inferred mappings."""

    unknown: UnknownColumns = UnknownColumns.ERROR
    create_endpoints: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    """The column of the key, by type or source."""
    edges: Mapping[str, str] = field(default_factory=dict)
    """The type or source that a column refers to, by `TYPE.COLUMN` or `SOURCE.COLUMN`."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The type of a column of texts, likewise."""
    null_words: tuple[str, ...] = ()
    """Texts that mean no value, in every column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The tables, with those of nodes that no source has; what is probable and was not decided."""

    tables: Sequence[Table]
    hints: Sequence[Hint]
    new_type: str
    """The type of nodes that only lists of edges name."""


def decide(tables: Sequence[Table], options: InferenceOptions) -> Decided:
    """Choose keys, references and roles of tables, each on the ground of those before it."""
    parents = {table.parent for table in tables}
    with_choices = {table for table in tables if _is_told(table, options)}
    possible: dict[Table, Ends] = {}
    for table in tables:
        table.row_numbers = find_row_numbers(table)
        ends = _find_ends(table)
        # An edge cannot have edges to nested objects.
        if ends is not None and table not in parents | with_choices:
            possible[table] = ends
            table.ends = None if _is_range(table, ends) else ends
    new_type = _name_types(tables)
    _require_known(tables, options)
    choose_keys(tables, options.keys)
    hints = [
        hint for table in possible for hint in _identify_ends(table, possible, tables, with_choices)
    ]
    for table, ends in possible.items():
        is_open = table.ends is None and not table.key
        if is_open and None not in find_end_tables(table, ends, tables):
            table.ends = ends
    drop_names_of_joins(tables)
    finder = ReferenceFinder(tables, options.edges)
    for table in tables:
        result = finder.find(table)
        table.references = list(result.references)
        hints += result.hints
    new, more = refer_to_new(tables)
    known = (*tables, *finder.new, *new)
    _choose_roles(known, parents)
    return Decided(tables=known, hints=(*hints, *more), new_type=new_type)


def _choose_roles(tables: Sequence[Table], parents: Collection[Table | None]) -> None:
    """Find joins, and keys of two columns: what names a row by these may be a join, too."""
    _find_joins(tables, parents)
    targets = choose_referred_pairs(tables)
    for table in tables:
        table.references += find_pair_references(table, targets)
    _find_joins(tables, {*parents, *targets})
    for table in tables:
        if not table.is_edge:
            choose_pair(table)


def _find_joins(tables: Sequence[Table], nodes: Collection[Table | None]) -> None:
    for table in tables:
        table.is_join = table.ends is None and table not in nodes and _is_join(table)


def _is_told(table: Table, options: InferenceOptions) -> bool:
    """Whether the caller chose a key or references of a table: it is no list of edges then."""
    names = {table.name, naming.type_name(table.name), naming.edge_name(table.name)}
    chosen = {*options.keys, *(name.partition(".")[0] for name in options.edges)}
    return not names.isdisjoint(chosen)


def _name_types(tables: Sequence[Table]) -> str:
    """Name the types of all tables, and the one of nodes that only lists of edges name."""
    taken: set[str] = set()
    for table in tables:
        name = naming.edge_name(table.name) if table.ends else naming.type_name(table.name)
        table.type = _unique_name(name, taken)
    return _unique_name(_NODE, taken)


def _unique_name(name: str, taken: set[str]) -> str:
    """A name that differs from others, and becomes one of these, in more than its capitals."""
    unique, number = name, 2
    while unique.casefold() in taken:
        unique, number = f"{name}{number}", number + 1
    taken.add(unique.casefold())
    return unique


def _require_known(tables: Sequence[Table], options: InferenceOptions) -> None:
    """Refuse choices for types and columns that do not exist."""
    names = {name for table in tables for name in (table.type, table.name)}
    columns = {
        f"{name}.{path}"
        for table in tables
        for name in (table.type, table.name)
        for path in table.columns
    }
    for given, known in (
        (options.keys, names),
        (options.edges, columns),
        (options.types, columns),
    ):
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known)
                raise InvalidInputError(
                    f"no source has {shown(name)}" + (f"; {hint}" if hint else ""),
                    next_step="`--dry-run` prints the types and their columns.",
                )


def _find_ends(table: Table) -> tuple[str, str] | None:
    if table.is_object or table.declared is not None:
        return None
    by_name = {naming.stem(table.local(path)): path for path in table.columns}
    by_name |= {naming.snake(table.local(path)): path for path in table.columns}
    for first, second in _ENDS:
        if first in by_name and second in by_name:
            ends = (by_name[first], by_name[second])
            profiles = [table.columns[path] for path in ends]
            if all(is_key_type(profile) and not profile.is_list for profile in profiles):
                return ends
    return None


def _is_range(table: Table, ends: tuple[str, str]) -> bool:
    """Whether two columns may be the bounds of a range instead of the ends of an edge."""
    first = naming.stem(table.local(ends[0]))
    is_text = all(table.columns[path].scalar() is ct.Scalar.STRING for path in ends)
    return first in _RANGES and not is_text


def find_end_tables(table: Table, ends: Ends, tables: Sequence[Table]) -> list[Table | None]:
    """The tables whose keys are at the ends of an edge list."""
    candidates = [
        target
        for target in tables
        if target is not table and len(target.key) == 1 and not target.is_edge
    ]
    chosen: list[Table | None] = []
    for path in ends:
        ranked: list[tuple[float, int, Table]] = []
        for number, target in enumerate(candidates):
            if target.has_positions:
                if _numbers_records(table, path, target):
                    ranked.append((0.0, number, target))
                continue
            values = containment(table, path, target, target.key[0])
            if values is not None and values.shares[0] >= 1 - _MISSING_SHARE_MAX:
                ranked.append((1 - values.shares[0], number, target))
        chosen.append(min(ranked, key=lambda entry: entry[:2])[2] if ranked else None)
    return chosen


def _identify_ends(
    table: Table,
    possible: Mapping[Table, Ends],
    tables: Sequence[Table],
    with_choices: Collection[Table],
) -> Iterator[Hint]:
    """Choose another key for the records that the ends of a list of edges name.

    Ends may be the values of a column that would be no key by its name, or the numbers of the
    records of the same document, from zero, as in node-link documents of D3.
    """
    ends = possible[table]
    if table.document is None or any(find_end_tables(table, ends, tables)):
        return
    nodes = [
        target
        for target in tables
        if target is not table and target.document == table.document
        if not (target.is_edge or target.path or target in with_choices)
    ]
    named = f"which {ends[0]} and {ends[1]} of {table.name} name"
    for target in nodes:
        for path in target.columns:
            if _holds_ends(target, path, table, ends):
                target.key, target.key_why = (path,), f"key: unique, {named}"
                return
    nodes = [t for t in nodes if all(_numbers_records(table, path, t) for path in ends)]
    if len(nodes) != 1:
        return
    (target,) = nodes
    if any(table.columns[path].integer_min == 0 for path in ends):
        target.key, target.key_why = (POSITION,), f"key: number of the record, {named}"
    else:
        text = f"{table.columns[ends[0]].integer_min:,} and above may be numbers of the "
        text += f"records of {target.name}, from zero"
        option = f"--key {target.type}={POSITION}"
        yield Hint(source=table.source, column=ends[0], text=text, option=option)


def _numbers_records(table: Table, path: str, target: Table) -> bool:
    """Whether the integers of a column can be numbers of the records of a document, from zero."""
    profile = table.columns[path]
    if target.document is None or target.document != table.document:
        return False
    if profile.scalar() not in ct.INTEGERS or profile.missing:
        return False
    low, high = profile.integer_min, profile.integer_max
    return low is not None and high is not None and 0 <= low <= high < target.profile.records


def _holds_ends(target: Table, path: str, table: Table, ends: tuple[str, str]) -> bool:
    """Whether a column identifies records, and has all values of the ends of edges."""
    held = (containment(table, end, target, path) for end in ends)
    return target.is_unique(path) and all(values is not None and values.is_all for values in held)


def _is_join(table: Table) -> bool:
    """Whether a table has two references and nothing that identifies its rows otherwise."""
    if len(table.references) != 2 or table.is_object or table.parent is not None:
        return False
    if not all(_is_end(table, reference) for reference in table.references):
        return False
    columns = {column for reference in table.references for column in reference.columns}
    if len(table.key) == 1 or not set(table.key) <= columns:
        return False
    return len(table.columns) - len(columns) <= _JOIN_COLUMNS_MAX


def _is_end(table: Table, reference: Reference) -> bool:
    """Whether nearly every record has the row that a reference names.

    A record without an end would be no edge, and lost with its other values.
    """
    is_missing = any(table.columns[column].missing for column in reference.columns)
    is_sure = not (is_missing or reference.null or reference.is_list)
    return is_sure and reference.unmatched <= _UNMATCHED_MAX


def find_edge_identity(
    table: Table, ends: tuple[str, ...], rest: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    """What the ids of edges are made of beside their ends, and why."""
    if table.profile.distinct(*ends) is None or table.is_unique(*ends):
        return (), ""
    for path in rest:
        if table.is_unique(path):
            return (path,), f"; several edges between two nodes differ in {path}"
    hashed = [
        path
        for path in rest
        if table.columns[path].hashes is not None and not table.columns[path].missing
    ]
    if hashed and table.is_unique(*ends, *hashed):
        return tuple(hashed), f"; several edges between two nodes differ in {hashed}"
    return (table.digest,), "; the same edge occurs more than once: equal ones are numbered"
