"""Prepares queries from a text or a directory: compiles, chooses by name, binds and plans them.

Invariants:
- A text is compiled once per schema, however often it runs; a mistake in it is found again every
  time.
- A query is chosen or refused, never guessed.
- In a directory of query files a name means one query. Two files that use the same name, and a file
  that does not compile, are refused before anything runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.language.diagnostics import Diagnostic, did_you_mean, shown
from omnigraph_lake.language.diagnostics import shown as shown_value
from omnigraph_lake.names import node_table_key
from omnigraph_lake.query.ast import QueryFile
from omnigraph_lake.query.binding import BoundParameters, bind
from omnigraph_lake.query.checks.adhoc import names_without_declaration, parameters_of_values
from omnigraph_lake.query.compile import compile_parsed
from omnigraph_lake.query.lint import find_newly_refused
from omnigraph_lake.query.parser import QUERY_BYTES_MAX, parse_queries
from omnigraph_lake.query.plan import PLANS_KNOWN
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.query.types import show_with_null
from omnigraph_lake.storage.objects.paths import checked_path

if TYPE_CHECKING:
    from datetime import datetime
    from os import PathLike

    from omnigraph_lake.query.lint import QueryDescriptor
    from omnigraph_lake.query.plan import Mutation, Plan
    from omnigraph_lake.query.typed import Column, TypedParameter, TypedQuery
    from omnigraph_lake.schema.catalog import ByName, Catalog
    from omnigraph_lake.storage.snapshot import Snapshot
    from omnigraph_lake.validation.schema_contract import SchemaContract


QUERY_SUFFIX: Final = ".gq"
_TEXTS_KEPT: Final = 128

_NAME: Final = "name"
_NAMES_SHOWN: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryText:
    """A text and the schema it is about; two that are equal compile to the same queries."""

    text: str
    schema_hash: str
    filename: str = field(compare=False)
    catalog: Catalog = field(compare=False, repr=False)
    undeclared: tuple[TypedParameter, ...] = ()
    """The parameters of an ad-hoc text that have a value and no declaration."""

    def with_values(self, parameter_values: Mapping[str, object]) -> QueryText:
        """The text as it means with these values.

        Raises:
            InvalidInputError: a value of an undeclared parameter has no type.
        """
        undeclared = parameters_of_values(_parse(self.text), parameter_values)
        return replace(self, undeclared=undeclared) if undeclared else self


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenQuery:
    """The query that a caller means, and the values given for its parameters, not yet checked."""

    source: QueryText
    typed: TypedQuery
    given: Mapping[str, object]

    def bound(self, now: datetime) -> BoundParameters:
        return bind(self.typed, self.given, now=now)

    def plan(self, snapshot: Snapshot | None = None) -> Plan | Mutation:
        """What the query does; a plan made for the size of one graph is right for every other."""
        known = {} if snapshot is None else snapshot.tables
        sizes = tuple(
            (name, _magnitude(entry.row_count))
            for name in self.source.catalog.nodes
            if (entry := known.get(node_table_key(name))) is not None
        )
        return _plan(self.source, self.typed.name, sizes)


def query_text(query: object, contract: SchemaContract) -> QueryText:
    """A text as it is, or what the file holds that a path names."""
    text, filename = _read(query)
    return QueryText(
        text=text,
        schema_hash=contract.model_hash,
        filename=filename,
        catalog=contract.catalog,
    )


@lru_cache(maxsize=_TEXTS_KEPT)
def _parse(text: str) -> QueryFile | Diagnostic:
    return parse_queries(text)


@lru_cache(maxsize=_TEXTS_KEPT)
def compiled(source: QueryText) -> ByName[TypedQuery]:
    """All queries of a text.

    Raises:
        QueryInvalidError: with every finding, if one of them is an error.
    """
    return compile_parsed(
        _parse(source.text),
        text=source.text,
        catalog=source.catalog,
        filename=source.filename,
        given=source.undeclared,
    )


@lru_cache(maxsize=PLANS_KNOWN)
def _plan(source: QueryText, name: str, sizes: tuple[tuple[str, int], ...]) -> Plan | Mutation:
    return plan_query(compiled(source)[name], source.catalog, sizes=dict(sizes) or None)


def _magnitude(rows: int) -> int:
    """A number of rows to its power of two: a plan need not change with every row."""
    return 1 << rows.bit_length()


def choose_query(
    source: QueryText, parameter_values: Mapping[str, object], *, name: object = None
) -> ChosenQuery:
    """The query of that name, or the only one.

    `name` is the parameter `$name` instead if the only query has one that is not given otherwise.

    Raises:
        QueryInvalidError: the text has errors.
        InvalidInputError: there are several queries and none was named, or there is no such query.
    """
    if name is not None and _NAME in names_without_declaration(_parse(source.text)):
        parameter_values = {_NAME: name, **parameter_values}
        name = None
    source = source.with_values(parameter_values)
    queries = compiled(source)
    if name is not None and _NAME not in parameter_values and len(queries) == 1:
        (only,) = queries.values()
        if any(parameter.name == _NAME for parameter in only.parameters):
            return ChosenQuery(source=source, typed=only, given={**parameter_values, _NAME: name})
    return ChosenQuery(source=source, typed=find_query(source, name), given=parameter_values)


def for_schema(chosen: ChosenQuery, contract: SchemaContract) -> ChosenQuery:
    """The same query of the same text under another schema, if that is another one.

    Raises:
        QueryInvalidError: the text does not fit the schema any more.
    """
    if chosen.source.schema_hash == contract.model_hash:
        return chosen
    source = replace(chosen.source, schema_hash=contract.model_hash, catalog=contract.catalog)
    return replace(chosen, source=source, typed=find_query(source, chosen.typed.name))


def find_query(source: QueryText, name: object) -> TypedQuery:
    """The query of that name, or the only one if the name is None."""
    queries = compiled(source)
    if name is None and len(queries) == 1:
        return next(iter(queries.values()))
    if isinstance(name, str) and name in queries:
        return queries[name]
    raise _not_found(source, tuple(queries), name)


def all_parameters(params: object, keywords: Mapping[str, object]) -> dict[str, object]:
    """The values of a mapping and of keyword arguments together; none may be given twice."""
    if params is not None and not isinstance(params, Mapping):
        raise InvalidInputError(
            f"params is {type(params).__name__}, expected a mapping from names to values",
            next_step='Give params={"name": value}, without the $.',
        )
    values = dict(params or {})
    for name, value in keywords.items():
        if name in values:
            raise InvalidInputError(
                f"parameter ${name} is given twice, in params and as a keyword argument"
            )
        values[name] = value
    return values


def _not_found(source: QueryText, known: tuple[str, ...], name: object) -> InvalidInputError:
    if not known:
        return InvalidInputError(
            f"{source.filename} contains no query",
            next_step="Write one: `match { $p: Person } return { $p.id }`.",
        )
    shown = ", ".join(known[:_NAMES_SHOWN])
    if len(known) > _NAMES_SHOWN:
        shown = f"{shown} and {len(known) - _NAMES_SHOWN} more"
    if name is None:
        return InvalidInputError(
            f"{source.filename} contains {len(known)} queries, and none was named",
            next_step=f"Name one of them: {shown}.",
        )
    hint = did_you_mean(name, known) if isinstance(name, str) else ""
    return InvalidInputError(
        f"{source.filename} contains no query {shown_value(name)}" + (f"; {hint}" if hint else ""),
        next_step=f"It holds {shown}.",
    )


def _read(query: object) -> tuple[str, str]:
    if isinstance(query, str):
        if query.endswith(QUERY_SUFFIX):
            raise InvalidInputError(
                f"the query is {shown_value(query)}, the path of a file, expected a text",
                next_step=f"Give `pathlib.Path({shown_value(query)})`.",
            )
        return query, "query"
    if isinstance(query, os.PathLike):
        path = checked_path(query, argument="the query")
        return read_query_file(path), str(path)
    raise InvalidInputError(
        f"the query is {type(query).__name__}, expected its text or the path of a file",
        next_step='Give the text, or `pathlib.Path("people.gq")`.',
    )


def read_query_file(path: Path) -> str:
    """The text of a file; one that no query text can be is not read to its end."""
    try:
        with path.open("rb") as stream:
            content = stream.read(QUERY_BYTES_MAX + 1)
        if len(content) > QUERY_BYTES_MAX:
            raise InvalidInputError(
                f"{path} has more than {QUERY_BYTES_MAX:,} bytes",
                next_step="Spread its queries over several files.",
            )
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}", next_step="Give the path of a UTF-8 text file."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQuery:
    """One query of a directory."""

    source: QueryText
    typed: TypedQuery

    @property
    def name(self) -> str:
        return self.typed.name

    @property
    def file(self) -> str:
        return self.source.filename

    @property
    def description(self) -> str | None:
        return self.typed.description

    @property
    def is_mutation(self) -> bool:
        return self.typed.is_mutation

    @property
    def parameters(self) -> tuple[str, ...]:
        """As they are declared: `$limit: I32`."""
        return tuple(f"${signature(parameter)}" for parameter in self.typed.parameters)

    @property
    def columns(self) -> tuple[str, ...]:
        """With their types: `name: String?`."""
        return tuple(map(signature, self.typed.columns))

    def describe(self) -> QueryDescriptor:
        """Everything that a tool needs to offer the query."""
        from omnigraph_lake.query.lint import describe  # only tools ask

        return describe(self.typed)


RunStored: TypeAlias = Callable[[StoredQuery, object, Mapping[str, Any]], Any]


class StoredQueries(Displayed, Mapping[str, StoredQuery]):
    """The queries of a directory by name, for one graph.

    The files are read when it is made; make it again to see changes.
    """

    def __init__(self, directory: Path, queries: Mapping[str, StoredQuery], run: RunStored) -> None:
        self.directory = directory
        self._queries = queries
        self._run = run

    def __getitem__(self, name: str) -> StoredQuery:
        return self._queries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)

    def run(
        self, name: str, /, params: Mapping[str, object] | None = None, **arguments: Any
    ) -> Any:
        """Run a query by name; parameters and options are those of `graph.query`.

        Raises:
            NotFoundError: there is no query of this name.
            InvalidInputError: it is a mutation.
        """
        return self._run(self.find(name), params, arguments)

    def find(self, name: str) -> StoredQuery:
        """The query of this name.

        Raises:
            NotFoundError: there is none; says which name comes close.
        """
        query = self._queries.get(name)
        if query is None:
            hint = did_you_mean(str(name), self._queries)
            raise NotFoundError(
                f"{self.directory} has no query {shown(name)}" + (f"; {hint}" if hint else ""),
                next_step="Run `omnigraph queries GRAPH DIR` to list them.",
            )
        return query

    def _page(self) -> Page:
        rows = [
            (
                query.name,
                "mutation" if query.is_mutation else "query",
                ", ".join(query.parameters),
                ", ".join(query.columns),
                query.description or "",
            )
            for query in self.values()
        ]
        header = ("name", "kind", "parameters", "returns", "description")
        return Page(
            summary=f"{counted(len(self), 'query', 'queries')} in {self.directory}",
            tables=[TableView(header=header, rows=rows, empty="no queries")],
        )

    def __repr__(self) -> str:
        return f"<StoredQueries {self.directory}: {', '.join(self._queries) or 'none'}>"


def stored_queries(
    directory: str | PathLike[str], contract: SchemaContract
) -> Mapping[str, StoredQuery]:
    """Every query of the `.gq` files of a directory, by name in the order of names.

    Raises:
        NotFoundError: there is no such directory.
        QueryInvalidError: a file has errors.
        InvalidInputError: two files have a query of the same name, or one has no name.
    """
    queries: dict[str, StoredQuery] = {}
    for path in _query_files(directory):
        source = query_text(path, contract)
        for typed in compiled(source).values():
            if typed.is_adhoc:
                raise InvalidInputError(
                    f"the query in {path} has no name",
                    next_step="Write `query NAME() { ... }` around it.",
                )
            earlier = queries.get(typed.name)
            if earlier is not None:
                raise InvalidInputError(
                    f"query {typed.name} is in {earlier.file} and in {path}",
                    next_step="Rename one of them: names of stored queries are unique.",
                )
            queries[typed.name] = StoredQuery(source=source, typed=typed)
    return dict(sorted(queries.items()))


def find_refused_queries(
    directory: str | PathLike[str], *, accepted: Catalog, target: Catalog
) -> Iterator[tuple[str, str, Diagnostic]]:
    """The queries of a directory that compile with one schema and not with another.

    Yields:
        The file, the name of the query and its first error.

    Raises:
        NotFoundError: there is no such directory.
    """
    for path in _query_files(directory):
        text = read_query_file(path)
        for name, error in find_newly_refused(text, accepted=accepted, target=target):
            yield path.name, name, error


def _query_files(directory: str | PathLike[str]) -> list[Path]:
    folder = checked_path(directory, argument="directory")
    if not folder.is_dir():
        raise NotFoundError(
            f"there is no directory {folder}",
            next_step=f"Name a directory that holds {QUERY_SUFFIX} files.",
        )
    return sorted(folder.glob(f"*{QUERY_SUFFIX}"))


def signature(declaration: TypedParameter | Column) -> str:
    """The name and the type of a parameter or a column."""
    return f"{declaration.name}: {show_with_null(declaration.type, nullable=declaration.nullable)}"
