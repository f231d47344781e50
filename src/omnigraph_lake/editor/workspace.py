"""Where things are: places of a text in the units of an editor, and the schema of a query file.

A query file is checked against the schema file or the graph that the server was started with. If it
was started with neither, that is the nearest schema file: in the folder of the query file, or in
the closest one above it within the folder that is open in the editor. Of several files in that
folder, it is the one with the name of the query file.

Invariants:

- A place survives the way to the editor and back, whatever characters the text has.
- A schema is read again when its file has changed. While it has an error, the last valid one is
  used.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omnigraph_lake.editor.schema_document import SchemaDocument
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.schema.catalog import Catalog

SCHEMA_SUFFIX: Final = ".pg"
QUERY_SUFFIX: Final = ".gq"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class Encoding(enum.StrEnum):
    """The units in which an editor counts characters of a line, by their name in the protocol."""

    UTF_8 = "utf-8"
    UTF_16 = "utf-16"
    UTF_32 = "utf-32"

    def units(self, text: str) -> int:
        match self:
            case Encoding.UTF_8:
                return len(text.encode("utf-8", "surrogatepass"))
            case Encoding.UTF_16:
                return len(text) + sum(character > "\uffff" for character in text)
            case Encoding.UTF_32:
                return len(text)


class Positions:
    """The lines of a text; both lines and characters count from zero."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self._text = text
        self._encoding = encoding
        ends = list(_LINE_END.finditer(text))
        self._starts = [0, *(end.end() for end in ends)]
        self._ends = [*(end.start() for end in ends), len(text)]

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the character of an offset."""
        line = bisect_right(self._starts, offset) - 1
        end = min(offset, self._ends[line])
        return line, self._encoding.units(self._text[self._starts[line] : end])

    def offset(self, line: int, character: int) -> int:
        """The offset of a character; beyond its line it is the end of the line."""
        if line >= len(self._starts):
            return len(self._text)
        units = 0
        for offset in range(self._starts[line], self._ends[line]):
            units += self._encoding.units(self._text[offset])
            if units > character:
                return offset
        return self._ends[line]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSource:
    """The schema of a query file; `problem` says why there is none, or that it is not current."""

    catalog: Catalog | None
    file: Path | None = None
    text: SchemaDocument | None = None
    problem: str = ""


class Schemas:
    """The schemas of query files.

    `read_open` returns the text of a file that is open in the editor, which may not be saved yet.
    """

    def __init__(
        self,
        *,
        schema: Path | None,
        graph: str | None,
        read_graph: Callable[[str], Catalog],
        read_open: Callable[[Path], str | None],
    ) -> None:
        self.schema = schema
        self.graph = graph
        self.folders: tuple[Path, ...] = ()
        self._read_graph = read_graph
        self._read_open = read_open
        self._of_graph: SchemaSource | None = None
        self._texts: dict[Path, SchemaDocument] = {}
        self._valid: dict[Path, Catalog] = {}

    def forget_graph(self) -> None:
        """Read the schema of the graph again when it is needed next."""
        self._of_graph = None

    def find(self, query_file: Path) -> SchemaSource:
        if self.schema is not None:
            return self._read(self.schema)
        if self.graph is not None:
            if self._of_graph is None:
                self._of_graph = self._graph_source(self.graph)
            return self._of_graph
        nearest = nearest_schema(query_file, self.folders)
        if isinstance(nearest, Path):
            return self._read(nearest)
        return SchemaSource(catalog=None, problem=nearest)

    def _graph_source(self, graph: str) -> SchemaSource:
        try:
            return SchemaSource(catalog=self._read_graph(graph))
        except OmnigraphError as error:
            return SchemaSource(catalog=None, problem=f"cannot read the schema of {graph}: {error}")

    def _read(self, file: Path) -> SchemaSource:
        source = self._read_open(file)
        try:
            current = file.read_text(encoding="utf-8") if source is None else source
        except (OSError, UnicodeDecodeError) as error:
            return SchemaSource(catalog=None, file=file, problem=f"cannot read {file}: {error}")
        text = self._texts.get(file)
        if text is None or text.text != current:
            text = self._texts[file] = SchemaDocument(current)
        if text.catalog is not None:
            self._valid[file] = text.catalog
            return SchemaSource(catalog=text.catalog, file=file, text=text)
        return SchemaSource(
            catalog=self._valid.get(file),
            file=file,
            text=text,
            problem=f"{file.name} has errors; they are listed there",
        )


def nearest_schema(query_file: Path, folders: Sequence[Path]) -> Path | str:
    """The schema file of a query file, or why there is none."""
    parents = list(query_file.parents)
    roots = [parents.index(folder) for folder in folders if folder in parents]
    for folder in parents[: max(roots, default=0) + 1]:
        files = sorted(folder.glob(f"*{SCHEMA_SUFFIX}"))
        same_name = [file for file in files if file.stem == query_file.stem]
        if len(files) == 1 or same_name:
            return (same_name or files)[0]
        if files:
            return (
                f"{folder} has several schema files ({', '.join(file.name for file in files)}); "
                f"start the server with `omnigraph lsp --schema FILE`"
            )
    return (
        f"no schema file (*{SCHEMA_SUFFIX}) in {query_file.parent} or above; add one, or start the "
        "server with `omnigraph lsp --schema FILE` or `--graph GRAPH`"
    )
