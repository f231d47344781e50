"""Find the sources of an import: files, standard input, tables of databases, frames, networkx.

A source has a name, from which the name of its type is made: that of a file without its ending, of
a table, of a member of a JSON document, or of a frame. Files whose names differ in a number only,
and parts in a folder, are one source. So are files of a folder with the same columns whose names
differ in a date or in the name of a split, as `train` and `test` do.

Invariants:
- What is not a file is spooled into one, in a folder of the import, so that memory does not grow
  with it. Frames are the exception: they are in memory already, or on Spark.
- The format of a file follows from its name, or else from its first bytes; it is never guessed
  differently for two parts of one source.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa

from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.column_profile import ColumnProfile
from omnigraph_lake.importer.draft import Hint
from omnigraph_lake.importer.postgres import SCHEMES, spool_tables
from omnigraph_lake.importer.profile import SourceProfile, profile_source
from omnigraph_lake.importer.text_forms import (
    PACKED,
    TEXTS,
    find_delimiter,
    names_of_arrays,
    number_columns,
    read_head,
    with_form,
)
from omnigraph_lake.importer.workbooks import ENDINGS as WORKBOOKS
from omnigraph_lake.importer.workbooks import spool_sheets
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.load.formats.document_files import EDGES, NODES, json_document
from omnigraph_lake.load.formats.mapping import TextForm
from omnigraph_lake.load.formats.parse import raw_frame, read_raw
from omnigraph_lake.load.formats.raw_batches import RawRecords
from omnigraph_lake.load.formats.records import FileFormat, SourceFile
from omnigraph_lake.load.formats.splits import plan_splits
from omnigraph_lake.load.formats.table_files import DeclaredTable, list_tables
from omnigraph_lake.load.input_files import InputFile, list_files
from omnigraph_lake.load.load import is_spark_frame
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.validation.input.columns import read_table, without_views

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root

SAMPLED_ROWS: Final = 100_000
"""Of a Spark DataFrame so many rows are profiled, in this process."""
STDIN: Final = "-"
_STDIN_NAME: Final = "records"
_ENDINGS: Final = {
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.CSV,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSON,
    ".parquet": FileFormat.PARQUET,
    ".arrow": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".ipc": FileFormat.ARROW,
    ".sqlite": FileFormat.SQLITE,
    ".sqlite3": FileFormat.SQLITE,
    ".duckdb": FileFormat.DUCKDB,
    ".graphml": FileFormat.GRAPHML,
}
_MAGIC: Final = (
    (0, b"SQLite format 3\0", FileFormat.SQLITE),
    (8, b"DUCK", FileFormat.DUCKDB),
    (0, b"PAR1", FileFormat.PARQUET),
    (0, b"ARROW1", FileFormat.ARROW),
    (0, b"\xff\xff\xff\xff", FileFormat.ARROW),
)
_DATABASES: Final = frozenset({FileFormat.SQLITE, FileFormat.DUCKDB})
_UNPACKED: Final = frozenset({FileFormat.PARQUET, FileFormat.ARROW, *_DATABASES})
_PART: Final = re.compile(r"^(part|chunk|split|shard|data)?[-_.]?\d+(\D.*)?$", re.IGNORECASE)
_NUMBERED: Final = re.compile(r"^(.*?\D)[-_.]\d+$")
_SPLITS: Final = (
    *("train", "training", "validation", "valid", "val", "dev"),
    *("test", "testing", "eval", "evaluation"),
)
"""Names of splits in names of files, as Hugging Face Datasets recognises them."""
_MONTHS: Final = (
    *("jan(uary)?", "feb(ruary)?", "mar(ch)?", "apr(il)?", "may", "june?", "july?"),
    *("aug(ust)?", "sept?(ember)?", "oct(ober)?", "nov(ember)?", "dec(ember)?"),
)
_TURN: Final = re.compile("|".join((r"\d+", r"(\d{4})?q[1-4]", *_MONTHS, *_SPLITS)), re.IGNORECASE)
"""A part of the name of a file that tells it from others of its kind."""
_MOST_COLUMNS: Final = 0.7
"""Files with such a share of their columns in common may be of one kind: newer ones have more."""
_OTHER_SERVERS: Final = ("mysql://", "mariadb://", "mssql://", "oracle://", "mongodb://")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """Files with the same kind of records, or a frame."""

    name: str
    files: tuple[SourceFile, ...] = ()
    frame: object = None
    declared: DeclaredTable | None = None
    beside: tuple[str, ...] = ()
    """Members of the document beside the records, which are not imported."""
    family: str = ""
    """The name that files of one kind share, if there can be others."""
    joined: tuple[str, ...] = ()
    """The names of the sources that were joined to this one."""
    units: Mapping[str, str] = field(default_factory=dict)
    """The units in which a sheet shows the numbers of its columns."""
    warnings: tuple[str, ...] = ()
    """What was left out of the records, or may mean something else."""

    @property
    def is_frame(self) -> bool:
        return self.frame is not None

    @property
    def records_max(self) -> int | None:
        """How many records can be profiled; None if all."""
        return SAMPLED_ROWS if is_spark_frame(self.frame) else None

    @property
    def document(self) -> str | None:
        """The file of JSON that alone has the records."""
        is_one = len(self.files) == 1 and self.files[0].format is FileFormat.JSON
        return self.files[0].path if is_one else None

    def records(self) -> Iterator[RawRecords]:
        """All records, in order."""
        if self.is_frame:
            yield from raw_frame(_arrow_table(self.frame, self.name).to_batches(), self.name)
            return
        for split in plan_splits(self.files):
            yield from read_raw(split)

    def form(self, given: TextForm) -> TextForm:
        """What a mapping has to say, so that the files of a later import are read alike.

        What was recognised and would be recognised again is omitted, so that the next file may
        have another delimiter or encoding.
        """
        if not self.files or self.files[0].format not in TEXTS:
            return TextForm()
        file = self.files[0]
        names = file.column_names
        return TextForm(
            header=None if not names else False if names == number_columns(len(names)) else names,
            delimiter=file.delimiter if names or given.delimiter else None,
            encoding=given.encoding,
            key_column=file.key_column or None,
        )

    def notes(self) -> Iterator[str]:
        """What was found out about how the files are written, and what is not imported."""
        encodings = {file.encoding for file in self.files} - {""}
        if encodings:
            yield f"{self.name}: read as {', '.join(sorted(encodings))}"
        if self.files and self.files[0].column_names:
            yield f"{self.name}: the first record is data, there are no names of columns"
        if self.joined:
            yield f"{self.name}: {', '.join(self.joined)} have the same columns and are one source"
        if self.beside:
            yield f"{self.name}: not imported, beside the records: {', '.join(self.beside)}"

    def describe(self) -> str:
        """Where the records are."""
        if self.is_frame:
            return "frame"
        table = f" ({self.files[0].table})" if self.files[0].table else ""
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{self.files[0].origin or self.files[0].path}{table}{more}"


def find_import_sources(
    named: object,
    *,
    folder: Path,
    format_name: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    graph: Root | None = None,
    form: TextForm | None = None,
) -> tuple[ImportSource, ...]:
    """The sources behind paths, patterns, folders, `-`, frames by name, or a networkx graph.

    Args:
        named: What the caller names.
        folder: Where standard input, networkx graphs, sheets and tables of servers are spooled.
        format_name: The format of all files, instead of what their names say.
        storage_options: Options of the object store of the files.
        graph: The root of the graph that the files are for.
        form: What the caller says about texts.

    Raises:
        NotFoundError: a name matches nothing.
        InvalidInputError: a file has no known format, or a server was named.
    """
    if isinstance(named, Mapping):
        return tuple(_frame_source(name, frame, folder) for name, frame in named.items())
    if _is_networkx(named):
        return tuple(_spool_networkx(named, folder, prefix=""))
    names = [named] if isinstance(named, str | PathLike) else _require_names(named)
    wanted = None if format_name is None else _format_named(format_name)
    servers = [str(name) for name in names if "://" in str(name)]
    for server in servers:
        if server.startswith(_OTHER_SERVERS):
            raise _server(server)
    databases = [server for server in servers if server.startswith(SCHEMES)]
    files = [
        file
        for name in names
        if str(name) not in databases
        for file in (
            [_spool_stdin(folder)]
            if str(name) == STDIN
            else list_files([name], storage_options=storage_options, graph=graph)
        )
    ]
    if not files and not databases:
        raise InvalidInputError(
            "no input was named", next_step="Name a file, a folder, a pattern, or - for stdin."
        )
    given = form or TextForm()
    sources = [source for file in files for source in _sources_of(file, wanted, given, folder)]
    for database in databases:
        sources += _database_sources(database, folder)
    return group_sources(sources)


def _database_sources(address: str, folder: Path) -> Iterator[ImportSource]:
    for table in spool_tables(address, folder):
        source = _file_source(table.declared.name, table.path, FileFormat.ARROW)
        yield replace(source, declared=table.declared)


def _require_names(named: object) -> list[str | PathLike[str]]:
    if isinstance(named, list | tuple) and all(isinstance(item, str | PathLike) for item in named):
        return list(named)
    raise InvalidInputError(
        f"the sources are {type(named).__name__}, expected paths, frames by name, or a networkx "
        "graph",
        next_step='Give a path, a list of paths, or frames as in {"people": frame}.',
    )


def _format_named(name: str) -> FileFormat:
    known = {"tsv": FileFormat.CSV, "feather": FileFormat.ARROW}
    known |= {file_format.value: file_format for file_format in FileFormat}
    if name not in known:
        hint = did_you_mean(name, known)
        raise InvalidInputError(
            f"format is {shown(name)}, expected one of {', '.join(sorted(known))}"
            + (f"; {hint}" if hint else ""),
        )
    return known[name]


def _server(name: str) -> InvalidInputError:
    scheme = name.partition("://")[0]
    return InvalidInputError(
        f"{scheme}:// names a database server, expected files or a Postgres database",
        next_step="Export its tables to CSV or Parquet first, or read them into data frames and "
        "import these.",
    )


def _arrow_table(frame: object, name: str) -> Any:
    if is_spark_frame(frame):
        return _sample(frame)
    return without_views(read_table(frame, type_name=name))


def _sample(frame: Any) -> pa.Table:
    """The first rows of a Spark DataFrame."""
    from omnigraph_lake.runner.spark_versions import arrow_schema  # needs pyspark

    rows = [row.asDict(recursive=True) for row in frame.limit(SAMPLED_ROWS).toLocalIterator()]
    return pa.Table.from_pylist(rows, schema=arrow_schema(frame.schema))


def _frame_source(name: object, frame: object, folder: Path) -> ImportSource:
    if not isinstance(name, str) or not name:
        raise InvalidInputError(f"a frame is named {shown(name)}, expected a text")
    if _is_networkx(frame):
        raise InvalidInputError(
            f"{name} is a networkx graph, expected a frame",
            next_step="Import the graph alone: import_data(root, graph).",
        )
    if isinstance(frame, list):
        path = folder / f"{quote(name, safe='')}.jsonl"
        _write_lines(path, frame)
        return _file_source(name, path, FileFormat.JSONL)
    return ImportSource(name=name, frame=frame)


def _is_networkx(value: object) -> bool:
    return any(f"{kind.__module__}.".startswith("networkx.") for kind in type(value).__mro__)


def _spool_networkx(graph: Any, folder: Path, prefix: str) -> Iterator[ImportSource]:
    nodes, edges = folder / f"{prefix}nodes.jsonl", folder / f"{prefix}edges.jsonl"
    _write_lines(nodes, ({"id": node, **data} for node, data in graph.nodes(data=True)))
    if graph.is_multigraph():
        rows: Iterable[dict[str, Any]] = (
            {"source": source, "target": target, "key": key, **data}
            for source, target, key, data in graph.edges(keys=True, data=True)
        )
    else:
        rows = (
            {"source": source, "target": target, **data}
            for source, target, data in graph.edges(data=True)
        )
    _write_lines(edges, rows)
    yield _file_source(NODES, nodes, FileFormat.JSONL)
    yield _file_source(EDGES, edges, FileFormat.JSONL)


def _file_source(name: str, path: Path, file_format: FileFormat) -> ImportSource:
    size = path.stat().st_size
    file = SourceFile(path=str(path), format=file_format, size=size)
    return ImportSource(name=name, files=(file,))


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, default=str) + "\n")


def _spool_stdin(folder: Path) -> InputFile:
    path = folder / _STDIN_NAME
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return InputFile(path=str(path), size=path.stat().st_size)


def _sources_of(
    file: InputFile, wanted: FileFormat | None, form: TextForm, folder: Path
) -> list[ImportSource]:
    """A file as a source, or a source for each of its tables."""
    lowered = file.path.lower()
    gzipped = lowered.endswith(PACKED)
    plain = SourceFile(
        path=file.path,
        format=FileFormat.JSONL,
        size=file.size,
        gzipped=gzipped,
        bucket=file.bucket,
        tag=file.tag,
    )
    if wanted is None and lowered.endswith(WORKBOOKS):
        return _sheet_sources(plain, folder, form)
    head = read_head(plain)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        head = head.decode("utf-16", errors="ignore").encode()
    ending = Path(lowered.removesuffix(PACKED)).suffix
    file_format = wanted or _ENDINGS.get(ending) or _sniff(head)
    if file_format is None or (gzipped and file_format in _UNPACKED):
        raise InvalidInputError(
            f"{file.path} has no known format; known endings are "
            f"{', '.join([*_ENDINGS, *WORKBOOKS])}, and .gz after those of texts",
            next_step="Name the format with `--format`, or leave the file out.",
        )
    if file_format is FileFormat.JSON and wanted is None and _is_lines(head):
        file_format = FileFormat.JSONL
    source_file = with_form(replace(plain, format=file_format), form)
    return _with_tables(_source_name(file.path), source_file, form)


def _sheet_sources(file: SourceFile, folder: Path, form: TextForm) -> list[ImportSource]:
    """A source for each sheet of a workbook that has records."""
    sheets = spool_sheets(file, folder, form)
    filled = [(sheet, sheet.path) for sheet in sheets if sheet.path is not None]
    warnings = tuple(warning for sheet in sheets for warning in sheet.warnings)
    return [
        ImportSource(
            name=_source_name(file.path) if len(filled) == 1 else sheet.name,
            files=(
                SourceFile(
                    path=str(path),
                    format=FileFormat.JSONL,
                    size=path.stat().st_size,
                    table=sheet.name,
                    origin=file.path,
                ),
            ),
            units=sheet.units,
            warnings=warnings if number == 0 else (),
        )
        for number, (sheet, path) in enumerate(filled)
    ]


def _with_tables(name: str, file: SourceFile, form: TextForm) -> list[ImportSource]:
    if file.format in _DATABASES:
        tables = list_tables(file)
        if not tables:
            raise InvalidInputError(f"{file.path} has no tables")
        return [
            ImportSource(name=table.name, files=(replace(file, table=table.name),), declared=table)
            for table in tables
        ]
    if file.format is FileFormat.GRAPHML:
        return [
            ImportSource(name=table, files=(replace(file, table=table),))
            for table in (NODES, EDGES)
        ]
    if file.format is FileFormat.JSON:
        document = json_document(file)
        return [
            ImportSource(
                name=table.name or name,
                files=(
                    replace(
                        file,
                        table=table.name,
                        key_column=table.key_column,
                        column_names=names_of_arrays(table.arrays, form),
                    ),
                ),
                beside=document.beside if number == 0 else (),
            )
            for number, table in enumerate(document.tables)
        ]
    return [ImportSource(name=name, files=(file,), family=_family_name(file.path))]


def _family_name(path: str) -> str:
    """The name of a file without a date or a split; that of its folder if nothing else is left."""
    *folders, name = [part for part in path.split("/") if part]
    words = re.split(r"[-_ ]+", name.partition(".")[0])
    rest = [word for word in words if not _TURN.fullmatch(word)]
    if len(rest) == len(words):
        return ""
    return "_".join(rest) or (folders[-1].partition(".")[0] if folders else "")


def join_sources(
    sources: Sequence[ImportSource], folder: Path, given: Mapping[str, str]
) -> tuple[ImportSource, ...]:
    """Make one source of files of one kind.

    Args:
        sources: The sources of an import.
        folder: Where hashes of values are kept.
        given: The names of sources that are one with others, and of these.

    Raises:
        InvalidInputError: there is no source with such a name.
    """
    names: dict[str, str] = {}
    by_name = {source.name: source for source in sources}
    families: dict[tuple[str, str], list[ImportSource]] = {}
    for source in sources:
        if source.family:
            place = source.files[0].path.rpartition("/")[0]
            families.setdefault((place, source.family), []).append(source)
    for (_, family), members in families.items():
        if len(members) == 1:
            continue
        named = _name_alike(members)
        first, *heads = (_read_head(m, folder / f"head-{quote(m.name)}") for m in named)
        alike = [first.name, *(head.name for head in heads if _are_alike(first, head))]
        is_free = family not in {source.name for source in sources if source not in members}
        if len(alike) > 1:
            names |= dict.fromkeys(alike, family if is_free else first.name)
            by_name |= {source.name: source for source in named if source.name in alike}
    for name, other in given.items():
        whole = _require_source(other, sources)
        names[_require_source(name, sources)] = names.setdefault(whole, whole)
    renamed = (
        replace(source, name=names[source.name], joined=(source.name,))
        if source.name in names
        else source
        for source in by_name.values()
    )
    return group_sources(tuple(renamed))


def _name_alike(members: Sequence[ImportSource]) -> Sequence[ImportSource]:
    """Files without a header with the names of columns that the values of one of them tell."""
    given = [names for source in members if (names := source.files[0].column_names)]
    telling = [names for names in given if names != number_columns(len(names))]
    if not telling or len(given) < len(members):
        return members
    return [
        replace(source, files=tuple(replace(f, column_names=telling[0]) for f in source.files))
        if len(source.files[0].column_names) == len(telling[0])
        else source
        for source in members
    ]


def _require_source(name: str, sources: Iterable[ImportSource]) -> str:
    """The name of the source of files with a name, or whose records have a type."""
    known = {source.name for source in sources if source.files and not source.declared}
    for one in known:
        if name in (one, naming.type_name(one), naming.edge_name(one)):
            return one
    hint = did_you_mean(name, known)
    raise InvalidInputError(
        f"no source of files has the name {shown(name)}" + (f"; {hint}" if hint else ""),
        next_step="`--dry-run` prints the types and their columns.",
    )


def _read_head(source: ImportSource, folder: Path) -> SourceProfile:
    folder.mkdir()
    return profile_source(source.name, itertools.islice(source.records(), 1), folder)


def _are_alike(one: SourceProfile, other: SourceProfile) -> bool:
    """Whether records have the same columns with the same kinds of values."""
    if one.columns.keys() != other.columns.keys():
        return False
    kinds = ((_kind(one.columns[path]), _kind(other.columns[path])) for path in one.columns)
    return all(own == its or None in (own, its) for own, its in kinds)


def _kind(column: ColumnProfile) -> ct.Scalar | None:
    """The type of the values, one for all numbers; None if there are none."""
    scalar = column.scalar() if column.has_values else None
    return ct.Scalar.F64 if scalar in ct.INTEGERS | ct.FLOATS else scalar


def hint_at_kinds(
    sources: Sequence[ImportSource], profiles: Mapping[str, SourceProfile]
) -> Iterator[Hint]:
    """Find sources that may be of one kind, by their columns and by a word of their names."""
    for number, source in enumerate(sources):
        own, words = profiles[source.name], naming.words(source.name)
        for other in sources[:number]:
            known, known_words = profiles[other.name], naming.words(other.name)
            common = len(own.columns.keys() & known.columns)
            either = len(own.columns.keys() | known.columns)
            if not source.files or source.declared or common < max(3, _MOST_COLUMNS * either):
                continue
            is_family = source.family != "" and source.family == other.family
            is_named = words[:1] == known_words[:1] or words[-1:] == known_words[-1:]
            if is_family or (is_named and _are_alike(own, known)):
                text = f"{common} of {counted(either, 'column')} are those of {other.name}, too"
                option = f"--type {source.name}={other.name}"
                yield Hint(source=source.name, column="", text=text, option=option)
                break


def _sniff(head: bytes) -> FileFormat | None:
    """The format that the first bytes of a file tell."""
    for start, magic, file_format in _MAGIC:
        if head[start:].startswith(magic):
            return file_format
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<") and b"<graphml" in text:
        return FileFormat.GRAPHML
    if text.startswith((b"{", b"[")):
        return FileFormat.JSON
    first = text.partition(b"\n")[0]
    if b"\0" not in first and find_delimiter(head.decode(errors="replace"), is_table=False):
        return FileFormat.CSV
    return None


def _is_lines(head: bytes) -> bool:
    """Whether JSON has an object per line."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first, newline, rest = text.partition(b"\n")
    if not first.startswith(b"{"):
        return False
    try:
        json.loads(first)
    except ValueError:
        return False
    return bool(newline) and rest.lstrip().startswith(b"{")  # one line may be a document


def _source_name(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    stem = parts[-1].partition(".")[0] or parts[-1].lstrip(".")
    if _PART.match(stem):
        folders = [part for part in parts[:-1] if "=" not in part]
        if folders:
            return folders[-1].partition(".")[0]
    numbered = _NUMBERED.match(stem)
    return numbered[1] if numbered else stem


def group_sources(sources: Sequence[ImportSource]) -> tuple[ImportSource, ...]:
    """Sources of one name are one; files of different formats are refused."""
    by_name: dict[str, ImportSource] = {}
    for source in sources:
        known = by_name.get(source.name)
        if known is None:
            by_name[source.name] = source
            continue
        formats = {file.format.value for file in (*known.files, *source.files)}
        if len(formats) > 1:
            raise InvalidInputError(
                f"{known.describe()} and {source.describe()} have the same name and the formats "
                f"{', '.join(sorted(formats))}",
                next_step="Rename one of them, or import them one after the other.",
            )
        # The parts of a source have headers, or none has.
        names = known.files[0].column_names
        files = (replace(file, column_names=names) for file in source.files)
        by_name[source.name] = replace(
            known,
            files=(*known.files, *files),
            joined=(*known.joined, *source.joined),
            units=dict(known.units.items() & source.units.items()),
            warnings=(*known.warnings, *source.warnings),
        )
    return tuple(by_name.values())
