"""What a user names, as the files to read.

Invariant: the order of the input is the order of the names, then that of the sorted paths, and a
file that is named twice is read once. Every file has a known format, and a type where its records
do not say theirs; nothing that was named is left out without a word.

Inside a folder, names that start with a dot or an underscore are other programs' notes and no data.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.load.formats.records import FileFormat, SourceFile
from omnigraph.load.formats.type_names import TypeNames, type_names
from omnigraph.names import EDGE_PREFIX, NODE_PREFIX
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.objects.paths import require_path
from omnigraph.validation.input.named_types import type_named
from omnigraph.validation.violations import shown

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

Named = str | os.PathLike[str]


def find_sources(
    named: Named | Iterable[Named],
    *,
    catalog: Catalog,
    type_name: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> tuple[SourceFile, ...]:
    """The files behind paths, `file://` addresses, folders and patterns.

    Args:
        named: One name or several. A folder means all files below it; `*`, `?`, `[...]` and
            `**` are patterns, unless a file is really called so.
        catalog: Knows the types that files and folders can be called after.
        type_name: The type of all CSV and Parquet records. Without it, each such file has the type
            it is called after, as in `Person.csv`, or its folder is, as in
            `nodes/Person/part-0.parquet`.
        columns: The file's own name for the column of a property, in CSV and Parquet files.

    Raises:
        NotFoundError: a name matches nothing.
        InvalidInputError: a file has an unknown ending, or no type, or the store is not supported.
    """
    names = type_names(catalog)
    given = [named] if isinstance(named, str | os.PathLike) else list(named)
    if not given:
        raise NotFoundError("no input was named", next_step="Name a file, a folder or a pattern.")
    if type_name is not None:
        type_named(type_name, catalog)
    found: dict[str, SourceFile] = {}
    for each in given:
        for path in _paths(os.fspath(each)):
            if path not in found:
                found[path] = _source(path, names, type_name, columns or {})
    return tuple(found.values())


def _paths(name: str) -> list[str]:
    """The files that one name means, in order."""
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
        raise NotFoundError(
            f"{name} {what}", next_step="Name a file, a folder or a pattern that has data."
        )
    return list(dict.fromkeys(files))


def _local(name: str) -> str:
    scheme = urlsplit(name).scheme if "://" in name else ""
    if scheme == "file":
        return url2pathname(urlsplit(name).path)
    if scheme:
        raise InvalidInputError(
            f"{name} is on a store of kind {scheme}, expected a local path or file://",
            next_step="Copy the files to a disk, or read them with Spark and load the DataFrame.",
        )
    return name


def _files(path: str) -> list[str]:
    if not Path(path).is_dir():
        return [path]
    inside: list[str] = []
    for folder, folders, names in os.walk(path):
        folders[:] = [each for each in folders if _is_data(each)]
        inside += [str(Path(folder, each)) for each in names if _is_data(each)]
    return sorted(inside)


def _is_data(name: str) -> bool:
    return not name.startswith((".", "_"))


def _source(
    path: str, names: TypeNames, type_name: str | None, columns: Mapping[str, str]
) -> SourceFile:
    lowered = path.lower()
    gzipped = lowered.endswith(_PACKED)
    ending = Path(lowered.removesuffix(_PACKED)).suffix
    file_format = _ENDINGS.get(ending)
    if file_format is None or (gzipped and file_format is FileFormat.PARQUET):
        raise InvalidInputError(
            f"{path} has the ending {shown(''.join(Path(path).suffixes[-2:]))}, expected {_KNOWN}",
            next_step="Rename the file, or leave it out.",
        )
    if file_format is FileFormat.JSONL:
        if type_name is not None or columns:
            raise InvalidInputError(
                f"a type or a mapping of columns was given for {path}, "
                "whose records name their types and properties themselves",
                next_step="Leave these out, or load CSV and Parquet files separately.",
            )
        chosen = None
    else:
        chosen = type_name or _called_after(path, names)
    return SourceFile(
        path=path,
        format=file_format,
        size=_size(path),
        gzipped=gzipped,
        type_name=chosen,
        columns=dict(columns),
    )


def _called_after(path: str, names: TypeNames) -> str:
    """The type that the file, or else its folder, is called after."""
    folders = Path(path).absolute().parent
    for word, above in (
        (Path(path).name.partition(".")[0], folders),
        (folders.name, folders.parent),
    ):
        found = names.matches(word)
        if len(found) > 1:
            found = tuple(key for key in found if key.startswith(_FOLDERS.get(above.name, " ")))
        if len(found) == 1:
            return word if len(names.matches(word)) == 1 else found[0]
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
