"""Keeps adjacency between processes: beside a graph, and in a cache directory of the user.

A base is a folder with a description and one file per group of arrays, memory-mapped when it is
used. The description lists the fragments of the tables it was built from, with the files their rows
are in and their deletion files; its hash is the name of the folder. The arrays are numbers of
rows: no id and no property is written.

Invariants:
- Names are made of names of files, which Lance never uses twice, so a folder means the same for
  ever and cannot be stale. It is never authority: without it the same arrays are built again.
- A file is written under another name and renamed. Every array has a digest, compared before the
  array is first used in a process; what is damaged, incomplete or of another format is ignored.
- Only maintenance writes beside a graph, on a local disk, and keeps two bases per edge table.
  Queries write into the cache directory, whose bytes are bounded: folders that were not used for
  the longest time are removed first.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np
import pyarrow as pa
import xxhash

from omnigraph_lake import names
from omnigraph_lake.engine.frames import whole
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.lance.fragments import Fragment
from omnigraph_lake.storage.objects.containment import require_inside, require_tree_inside
from omnigraph_lake.storage.objects.location import Root, Scheme

if TYPE_CHECKING:
    from omnigraph_lake.engine.access.column_cache import Arrays
    from omnigraph_lake.storage.lance.fragments import Offsets

CACHE_DIRECTORY_VARIABLE: Final = "OMNIGRAPH_CACHE"
CACHE_BYTES_VARIABLE: Final = "OMNIGRAPH_CACHE_BYTES"
_DEFAULT_BYTES: Final = 10 << 30
_FREE_SHARE: Final = 10
_FORMAT: Final = 1
_MAGIC: Final = b"OGADJ\x00\x00\x01"
_HEAD: Final = struct.Struct("<8sI16s")
_PAGE: Final = 4096
_CHUNK: Final = 1 << 20
_DESCRIPTION: Final = "description.json"
_ADJACENCY: Final = "adjacency"
_GENERATIONS: Final = 2
_KINDS: Final = {"int32": pa.int32(), "int64": pa.int64(), "bool": pa.bool_()}


class Place(StrEnum):
    """Where a base is kept."""

    GRAPH = "graph"
    CACHE = "cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """The fragments of one version of a table, in the order of their places."""

    location: str
    fragments: tuple[Fragment, ...]
    deleted: Mapping[tuple[Hashable, ...], Offsets]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseDescription:
    """What the arrays of a base were built from."""

    edges: TableDescription
    sources: TableDescription
    targets: TableDescription
    has_dangling: bool


def cache_directory() -> Path | None:
    """Where bases are kept; None if `OMNIGRAPH_CACHE` is empty or there is no home."""
    named = os.environ.get(CACHE_DIRECTORY_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    with suppress(RuntimeError):
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "omnigraph"
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "omnigraph"
    return None


class StoredBase:
    """A folder of arrays; nothing is written to one that `is_read_only`."""

    def __init__(
        self,
        folder: Path,
        description: BaseDescription,
        *,
        place: Place,
        is_read_only: bool = False,
    ) -> None:
        self.folder = folder
        self.description = description
        self._place = place
        self._is_read_only = is_read_only

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, group: str) -> Arrays | None:
        """The arrays of a group, mapped and compared with their digests; None if there are none."""
        with suppress(OSError, ValueError, KeyError, TypeError, struct.error, pa.ArrowException):
            arrays = _read(self.folder / f"{group}.arrays")
            if self._place is Place.CACHE:
                os.utime(self.folder / _DESCRIPTION)
            return arrays
        return None

    def write(self, group: str, arrays: Arrays) -> None:
        """Keep the arrays of a group; a disk that does not take them is no error."""
        if self._is_read_only:
            return
        with suppress(OSError):
            _write(self.folder / f"{group}.arrays", arrays)
            if self._place is Place.CACHE:
                _remove_oldest(self.folder.parent.parent)


def read_bases(root: Root) -> Iterator[StoredBase]:
    """The bases of a graph, beside it and in the cache directory, the newest first."""
    for place in Place:
        with suppress(OSError, DamagedGraphError):
            yield from _read_directory(root, place)


def store(description: BaseDescription, root: Root, place: Place) -> StoredBase | None:
    """The folder for a base, made if necessary; None where nothing can be written."""
    try:
        directory = _directory_of(root, place)
    except DamagedGraphError:
        return None
    if directory is None:
        return None
    text = json.dumps(_encode(description), sort_keys=True)
    folder = directory / xxhash.xxh3_128_hexdigest(text.encode())
    try:
        folder.mkdir(mode=0o700 if place is Place.CACHE else 0o777, parents=True, exist_ok=True)
        if not (folder / _DESCRIPTION).exists():
            _put(folder / _DESCRIPTION, [text.encode()])
    except OSError:
        return None
    return StoredBase(folder, description, place=place)


def forget_older(root: Root, location: str) -> None:
    """Remove all but the newest bases of an edge table beside the graph."""
    with suppress(OSError, DamagedGraphError):
        stored = _read_directory(root, Place.GRAPH)
        same = [base for base in stored if base.description.edges.location == location]
        for base in same[_GENERATIONS:]:
            base.remove()


def _read_directory(root: Root, place: Place) -> Iterator[StoredBase]:
    directory = _directory_of(root, place)
    if directory is None or not directory.is_dir():
        return
    if place is Place.GRAPH:
        require_tree_inside(root, names.DERIVED_DIR)
    for folder in sorted(directory.iterdir(), key=_used_at, reverse=True):
        with suppress(OSError, ValueError, KeyError, TypeError):
            text = (folder / _DESCRIPTION).read_text()
            if folder.name == xxhash.xxh3_128_hexdigest(text.encode()):
                description = _decode(json.loads(text))
                is_beside = place is Place.GRAPH
                yield StoredBase(folder, description, place=place, is_read_only=is_beside)


def _directory_of(root: Root, place: Place) -> Path | None:
    match place:
        case Place.GRAPH:
            return _beside(root)
        case Place.CACHE:
            return _in_cache(root)
        case _:
            assert_never(place)


def _beside(root: Root) -> Path | None:
    if root.scheme is not Scheme.LOCAL:
        return None
    require_inside(root, f"{names.DERIVED_DIR}/{_ADJACENCY}")
    return Path(root.uri) / names.DERIVED_DIR / _ADJACENCY


def _in_cache(root: Root) -> Path | None:
    directory = cache_directory()
    if directory is None:
        return None
    return directory / _ADJACENCY / xxhash.xxh3_128_hexdigest(root.uri.encode())


def _used_at(folder: Path) -> float:
    with suppress(OSError):
        return (folder / _DESCRIPTION).stat().st_mtime
    return 0.0


# Descriptions as JSON


def _encode(description: BaseDescription) -> dict[str, Any]:
    tables = {
        "edges": description.edges,
        "sources": description.sources,
        "targets": description.targets,
    }
    return {
        "format": _FORMAT,
        "has_dangling": description.has_dangling,
        "tables": {name: _encode_table(table) for name, table in tables.items()},
    }


def _encode_table(table: TableDescription) -> dict[str, Any]:
    return {
        "location": table.location,
        "fragments": [
            {
                "id": fragment.fragment_id,
                "rows": fragment.rows,
                "files": fragment.files,
                "deletions": fragment.deletions,
                "deleted": table.deleted[fragment.files].tolist() if fragment.deletions else [],
            }
            for fragment in table.fragments
        ],
    }


def _decode(values: Mapping[str, Any]) -> BaseDescription:
    if values["format"] != _FORMAT:
        raise ValueError("another format")
    tables = values["tables"]
    return BaseDescription(
        edges=_decode_table(tables["edges"]),
        sources=_decode_table(tables["sources"]),
        targets=_decode_table(tables["targets"]),
        has_dangling=bool(values["has_dangling"]),
    )


def _decode_table(values: Mapping[str, Any]) -> TableDescription:
    fragments = tuple(
        Fragment(
            fragment_id=int(fragment["id"]),
            rows=int(fragment["rows"]),
            files=_as_tuple(fragment["files"]),
            deletions=None if fragment["deletions"] is None else _as_tuple(fragment["deletions"]),
            deleted_rows=len(fragment["deleted"]),
        )
        for fragment in values["fragments"]
    )
    return TableDescription(
        location=str(values["location"]),
        fragments=fragments,
        deleted={
            fragment.files: np.array(described["deleted"], dtype=np.int64)
            for fragment, described in zip(fragments, values["fragments"], strict=True)
        },
    )


def _as_tuple(values: Sequence[Any]) -> tuple[Hashable, ...]:
    return tuple(_as_tuple(value) if isinstance(value, list) else value for value in values)


# Files of arrays


def _write(path: Path, arrays: Arrays) -> None:
    header: dict[str, Any] = {}
    parts: list[Any] = []
    offset = 0
    for name, array in arrays.items():
        numbers = np.ascontiguousarray(whole(array).to_numpy(zero_copy_only=False))
        data = numbers.view(np.uint8).data
        header[name] = {
            "kind": str(numbers.dtype),
            "count": len(numbers),
            "offset": offset,
            "digest": xxhash.xxh3_128_hexdigest(data),
        }
        padding = -len(data) % _PAGE
        parts += [data, bytes(padding)]
        offset += len(data) + padding
    text = json.dumps({"name": _name(path), "arrays": header, "bytes": offset}).encode()
    head = _HEAD.pack(_MAGIC, len(text), xxhash.xxh3_128_digest(text)) + text
    _put(path, [head, bytes(-len(head) % _PAGE), *parts])


def _name(path: Path) -> str:
    """What a file of arrays belongs to, wherever the directory is."""
    return f"{path.parent.name}/{path.name}"


def _put(path: Path, parts: Sequence[Any]) -> None:
    """Write a file whole or not at all."""
    descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(path: Path) -> Arrays:
    with path.open("rb") as file:
        magic, length, digest = _HEAD.unpack(file.read(_HEAD.size))
        text = file.read(length)
        if magic != _MAGIC or xxhash.xxh3_128_digest(text) != digest:
            raise ValueError("no arrays")
        header = json.loads(text)
        start = -(-(_HEAD.size + length) // _PAGE) * _PAGE
        if header["name"] != _name(path):
            raise ValueError("arrays of something else")
        if os.fstat(file.fileno()).st_size != start + header["bytes"]:
            raise ValueError("not whole")
        for described in header["arrays"].values():
            _verify(file, start, described)
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if header["bytes"] else None
    arrays: Arrays = {}
    for name, described in header["arrays"].items():
        dtype, count = np.dtype(described["kind"]), described["count"]
        if mapped is None or not count:
            arrays[name] = pa.array([], _KINDS[described["kind"]])
            continue
        numbers = np.frombuffer(mapped, dtype, count, start + described["offset"])
        arrays[name] = pa.array(numbers)
    return arrays


def _verify(file: Any, start: int, described: Mapping[str, Any]) -> None:
    """Compare an array with its digest; read, not mapped, so that it takes no memory."""
    file.seek(start + described["offset"])
    left = described["count"] * np.dtype(described["kind"]).itemsize
    digest = xxhash.xxh3_128()
    while left:
        chunk = file.read(min(left, _CHUNK))
        if not chunk:
            raise ValueError("not whole")
        digest.update(chunk)
        left -= len(chunk)
    if digest.hexdigest() != described["digest"]:
        raise ValueError("damaged")


def _remove_oldest(directory: Path) -> None:
    """Remove the folders that were not used for the longest time until the rest fits."""
    folders = [folder for graph in directory.iterdir() for folder in graph.iterdir()]
    sizes = {folder: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders}
    limit_text = os.environ.get(CACHE_BYTES_VARIABLE, "")
    limit = int(limit_text) if limit_text.isdecimal() else _DEFAULT_BYTES
    free = shutil.disk_usage(directory).free
    limit = min(limit, (free + sum(sizes.values())) // _FREE_SHARE)
    total = sum(sizes.values())
    for folder in sorted(folders, key=_used_at)[:-1]:
        if total <= limit:
            return
        shutil.rmtree(folder, ignore_errors=True)
        total -= sizes[folder]
