"""Stored queries: a directory of query files, known and run by the names of their queries.

Invariant: a name means one query. Two files that use the same name, and a file that does not
compile, are refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.display.cells import counted
from omnigraph.display.pages import Displayed, Page
from omnigraph.display.tables import TableView
from omnigraph.engine.query_text import QUERY_SUFFIX, QueryText, compiled, query_text
from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.language.diagnostics import did_you_mean, shown
from omnigraph.query.lint import QueryDescriptor, describe
from omnigraph.query.types import show_with_null
from omnigraph.storage.objects.paths import checked_path

if TYPE_CHECKING:
    from os import PathLike

    from omnigraph.query.typed import Column, TypedParameter, TypedQuery
    from omnigraph.validation.schema_contract import SchemaContract


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
        return tuple(f"${signature(each)}" for each in self.typed.parameters)

    @property
    def columns(self) -> tuple[str, ...]:
        """With their types: `name: String?`."""
        return tuple(map(signature, self.typed.columns))

    def describe(self) -> QueryDescriptor:
        """Everything that a tool needs to offer the query."""
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
        found = self._queries.get(name)
        if found is None:
            hint = did_you_mean(str(name), self._queries)
            raise NotFoundError(
                f"{self.directory} has no query {shown(name)}" + (f"; {hint}" if hint else ""),
                next_step="Run `omnigraph queries GRAPH DIR` to list them.",
            )
        return found

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
        InvalidInputError: two files have a query of the same name.
    """
    folder = checked_path(directory, argument="directory")
    if not folder.is_dir():
        raise NotFoundError(
            f"there is no directory {folder}",
            next_step=f"Name a directory that holds {QUERY_SUFFIX} files.",
        )
    found: dict[str, StoredQuery] = {}
    for path in sorted(folder.glob(f"*{QUERY_SUFFIX}")):
        source = query_text(path, contract)
        for typed in compiled(source).values():
            earlier = found.get(typed.name)
            if earlier is not None:
                raise InvalidInputError(
                    f"query {typed.name} is in {earlier.file} and in {path}",
                    next_step="Rename one of them: names of stored queries are unique.",
                )
            found[typed.name] = StoredQuery(source=source, typed=typed)
    return dict(sorted(found.items()))


def signature(each: TypedParameter | Column) -> str:
    """The name and the type of a parameter or a column."""
    return f"{each.name}: {show_with_null(each.type, nullable=each.nullable)}"
