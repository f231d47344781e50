"""Find the files of an input: on a disk and on object stores, by names, folders and patterns.

Inside a folder, names that start with a dot or an underscore belong to other programs and are not
data.

Invariants:
- The order of the input is the order in which the user names paths, then that of the sorted paths.
  A file that is named twice is read once.
- Every file has a known format, and a type where its records do not name theirs. A path that the
  user named is never ignored silently.
- Names, folders and patterns mean the same on a disk and on an object store.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.load.formats.input_names import TypeNames, type_names
from omnigraph_lake.load.formats.records import FileFormat, SourceFile
from omnigraph_lake.names import EDGE_PREFIX, NODE_PREFIX
from omnigraph_lake.storage.objects.input_objects import InputObject, find_object, list_objects
from omnigraph_lake.storage.objects.location import Root, parse_input
from omnigraph_lake.storage.objects.paths import require_path
from omnigraph_lake.validation.input.intake import type_named
from omnigraph_lake.validation.violations import shown as quoted

if TYPE_CHECKING:
    from omnigraph_lake.schema.catalog import Catalog


_ENDINGS: Final = {
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
    ".csv": FileFormat.CSV,
    ".parquet": FileFormat.PARQUET,
}
_PACKED: Final = ".gz"
_KNOWN: Final = f"{', '.join(_ENDINGS)}, and {_PACKED} after all but the last"
# The folders of an export, by the kind of type they hold.
_FOLDERS: Final = {"nodes": NODE_PREFIX, "edges": EDGE_PREFIX}

_ASKED_AT_ONCE: Final = 16

Named = str | os.PathLike[str]


_DIALECTS: Final = {"0.7": FileFormat.JSONL_OF_0_7}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file that a name means; `bucket` is where it is, unless on a disk."""

    path: str
    size: int
    bucket: Root | None = None
    tag: str | None = None


def find_sources(  # noqa: PLR0913 - what a file is, where it is, and how it is read
    named: Named | Iterable[Named],
    *,
    catalog: Catalog,
    type_name: str | None = None,
    columns: Mapping[str, str] | None = None,
    dialect: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    graph: Root | None = None,
) -> tuple[SourceFile, ...]:
    """The files behind paths, addresses, folders and patterns.

    Args:
        named: One name or several. A folder means all files below it; `*`, `?`, `[...]` and
            `**` are patterns, unless a file is really called so.
        catalog: Knows the types that files and folders can be called after.
        type_name: The type of all CSV and Parquet records. Without it, each such file has the type
            it is called after, as in `Person.csv`, or its folder is, as in
            `nodes/Person/part-0.parquet`.
        columns: The file's own name for the column of a property, in CSV and Parquet files.
        dialect: How JSON lines spell dates and times; without it as today.
        storage_options: Options of the object store of the files. Without them, those of the graph
            if it is on a store of the same kind, or else the environment.
        graph: The root of the graph that the files are for.

    Raises:
        NotFoundError: a name matches nothing.
        InvalidInputError: a file has an unknown ending, or no type, or the store is not supported.
        StorageUnavailableError: a store cannot be read.
    """
    names = type_names(catalog)
    input_names = [named] if isinstance(named, str | os.PathLike) else list(named)
    if not input_names:
        raise NotFoundError("no input was named", next_step="Name a file, a folder or a pattern.")
    if type_name is not None:
        type_named(type_name, catalog)
    lines = _format_of_lines(dialect)
    files = list_files(input_names, storage_options=storage_options, graph=graph)
    return tuple(_source(file, names, type_name, columns or {}, lines) for file in files)


def _format_of_lines(dialect: object) -> FileFormat:
    """The format of JSON lines in a dialect that a caller names."""
    if dialect is None:
        return FileFormat.JSONL
    if isinstance(dialect, str) and dialect in _DIALECTS:
        return _DIALECTS[dialect]
    raise InvalidInputError(
        f"dialect is {quoted(dialect)}, expected {' or '.join(map(repr, _DIALECTS))}"
    )


def list_files(
    named: Iterable[Named],
    *,
    storage_options: Mapping[str, str] | None = None,
    graph: Root | None = None,
) -> tuple[InputFile, ...]:
    """The files behind names, in order, each once."""
    find = partial(_find, storage_options=storage_options, graph=graph)
    files_by_path: dict[str, InputFile] = {}
    for files in _each_at_once(find, [os.fspath(input_name) for input_name in named]):
        for file in files:
            files_by_path.setdefault(file.path, file)
    return tuple(files_by_path.values())


def _each_at_once(
    find: Callable[[str], Sequence[InputFile]], names: Sequence[str]
) -> Iterator[Sequence[InputFile]]:
    """The files of every name, in order; a store is asked for several names at the same time."""
    if not any("://" in name for name in names):
        yield from map(find, names)
        return
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as beside:
        yield from beside.map(find, names)


def _find(
    name: str, *, storage_options: Mapping[str, str] | None, graph: Root | None
) -> Sequence[InputFile]:
    """The files that one name means, in order."""
    stored = parse_input(name, storage_options=storage_options, graph=graph)
    if stored is None:
        return [InputFile(path=path, size=_size(path)) for path in _paths(name)]
    bucket, path = stored
    objects = sorted(_objects(bucket, path), key=lambda item: item.path)
    if not objects:
        raise _nothing(name, "matches no file")
    return [
        InputFile(path=f"{bucket}/{item.path}", size=item.size, bucket=bucket, tag=item.tag)
        for item in objects
    ]


def _objects(bucket: Root, path: str) -> list[InputObject]:
    """The objects that a path in a bucket means: one, those that match, or those of a folder."""
    exact = None if not path or path.endswith("/") else find_object(bucket, path)
    if exact is not None and exact.size:
        return [exact]
    segments = [segment for segment in path.split("/") if segment]
    literal = list(itertools.takewhile(lambda segment: not glob.has_magic(segment), segments))
    pattern = segments[len(literal) :]
    below = [
        item
        for item in list_objects(bucket, "/".join(literal))
        if _matches(pattern, item.path.split("/")[len(literal) :])
    ]
    # A folder can be an object of its own, without content.
    return below or ([] if exact is None else [exact])


def _matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a pattern means a path, or a folder in which the path is data; as `glob` has it."""
    if not pattern:
        return all(map(_is_data, path))
    if not path:
        return False
    if pattern[0] == "**":
        enters = not path[0].startswith(".") and _matches(pattern, path[1:])
        return enters or _matches(pattern[1:], path)
    is_hidden = path[0].startswith(".") and not pattern[0].startswith(".")
    return not is_hidden and fnmatchcase(path[0], pattern[0]) and _matches(pattern[1:], path[1:])


def _nothing(name: str, what: str) -> NotFoundError:
    return NotFoundError(
        f"{name} {what}", next_step="Name a file, a folder or a pattern that has data."
    )


def _paths(name: str) -> list[str]:
    """The files on a disk that one name means, in order."""
    path = _local(name)
    require_path(path, argument="the source")
    if Path(path).exists():
        matches = [path]
    elif glob.has_magic(path):
        matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - keeps relative paths
    else:
        matches = []
    files = [file for match in matches for file in _files(match)]
    if not files:
        what = "is an empty folder" if Path(path).is_dir() else "matches no file"
        raise _nothing(name, what)
    return list(dict.fromkeys(files))


def _local(name: str) -> str:
    scheme = urlsplit(name).scheme if "://" in name else ""
    if scheme == "file":
        return url2pathname(urlsplit(name).path)
    if scheme:
        raise InvalidInputError(
            f"{name} is on a store of kind {scheme}, expected a local path, file://, s3://, az://, "
            "abfss:// or gs://",
            next_step="Copy the files to a disk, or read them with Spark and load the DataFrame.",
        )
    return name


def _files(path: str) -> list[str]:
    if not Path(path).is_dir():
        return [path]
    inside: list[str] = []
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if _is_data(name)]
        inside += [str(Path(folder, name)) for name in names if _is_data(name)]
    return sorted(inside)


def _is_data(name: str) -> bool:
    return not name.startswith((".", "_"))


def _source(
    file: InputFile,
    names: TypeNames,
    type_name: str | None,
    columns: Mapping[str, str],
    lines: FileFormat,
) -> SourceFile:
    path = file.path
    lowered = path.lower()
    gzipped = lowered.endswith(_PACKED)
    ending = Path(lowered.removesuffix(_PACKED)).suffix
    file_format = _ENDINGS.get(ending)
    if file_format is None or (gzipped and file_format is FileFormat.PARQUET):
        raise InvalidInputError(
            f"{path} has the ending {quoted(''.join(Path(path).suffixes[-2:]))}, expected {_KNOWN}",
            next_step="Rename the file, or leave it out.",
        )
    if file_format is FileFormat.JSONL:
        if type_name is not None or columns:
            raise InvalidInputError(
                f"a type or a mapping of columns was given for {path}, "
                "whose records name their types and properties themselves",
                next_step="Leave these out, or load CSV and Parquet files separately.",
            )
        file_format, chosen = lines, None
    else:
        chosen = type_name or _called_after(path, names)
    return SourceFile(
        path=path,
        format=file_format,
        size=file.size,
        gzipped=gzipped,
        type_name=chosen,
        columns=dict(columns),
        bucket=file.bucket,
        tag=file.tag,
    )


def _called_after(path: str, names: TypeNames) -> str:
    """The type that the file, or else its folder, is called after."""
    folders = Path(path).absolute().parent
    for word, above in (
        (Path(path).name.partition(".")[0], folders),
        (folders.name, folders.parent),
    ):
        table_keys = names.matches(word)
        if len(table_keys) > 1:
            table_keys = tuple(
                key for key in table_keys if key.startswith(_FOLDERS.get(above.name, " "))
            )
        if len(table_keys) == 1:
            return word if len(names.matches(word)) == 1 else table_keys[0]
    known = ", ".join([*names.nodes, *names.edges])
    raise InvalidInputError(
        f"the records of {path} do not name their type, and neither the file nor its folder "
        f"is named after one of {known:.200}",
        next_step="Give the type (`type=`, or `--type` on the command line).",
    )


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise NotFoundError(
            f"{path} cannot be read: {error.strerror}", next_step="Name a file that can be read."
        ) from error
