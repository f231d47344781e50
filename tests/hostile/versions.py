"""Versions of Lance datasets with other addresses and paths in them, made byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from omnigraph_lake.storage.lance.base_paths import as_varint, number_at

Field = tuple[int, int, int | bytes]
"""The number of a field, its wire type, and its value."""

FRAGMENTS: Final = 2
TRANSACTION_FILE: Final = 12
BASE_PATHS: Final = 18
_FILES_OF_FRAGMENT: Final = 2
_PATH_OF_FILE, _BASE_OF_FILE = 1, 7
_BASE_ID, _BASE_IS_DATASET, _BASE_ADDRESS = 1, 3, 4
_FOOTER_BYTES: Final = 16
_TEXT, _NUMBER = 2, 0


def newest_version(dataset: Path) -> Path:
    """Lance counts the names of versions down."""
    return min((dataset / "_versions").glob("*.manifest"))


def rewrite(file: Path, change: Callable[[list[Field]], list[Field]]) -> None:
    """Give the name of a version to a file with other fields."""
    content = file.read_bytes()
    start = struct.unpack("<Q", content[-_FOOTER_BYTES:-8])[0]
    size = struct.unpack("<I", content[start : start + 4])[0]
    message = _encoded(change(_decoded(content[start + 4 : start + 4 + size])))
    file.unlink()
    file.write_bytes(
        content[:start]
        + struct.pack("<I", len(message))
        + message
        + struct.pack("<Q", start)
        + content[-8:]
    )


def with_address(address: str) -> Callable[[list[Field]], list[Field]]:
    """What a fork shares is said to be at another address."""

    def change(fields: list[Field]) -> list[Field]:
        return [
            (number, kind, _replaced(value, {_BASE_ADDRESS: address.encode()}))
            if number == BASE_PATHS
            else (number, kind, value)
            for number, kind, value in fields
        ]

    return change


def with_files_at(address: str) -> Callable[[list[Field]], list[Field]]:
    """Every data file is said to be in another dataset."""

    def change(fields: list[Field]) -> list[Field]:
        base: list[Field] = [
            (_BASE_ID, _NUMBER, 9),
            (_BASE_IS_DATASET, _NUMBER, 1),
            (_BASE_ADDRESS, _TEXT, address.encode()),
        ]
        moved = _with_files(fields, {_BASE_OF_FILE: 9})
        return [*moved, (BASE_PATHS, _TEXT, _encoded(base))]

    return change


def with_data_path(path: str) -> Callable[[list[Field]], list[Field]]:
    """Every data file has another name."""
    return lambda fields: _with_files(fields, {_PATH_OF_FILE: path.encode()})


def with_transaction(path: str) -> Callable[[list[Field]], list[Field]]:
    return lambda fields: [
        (number, kind, path.encode() if number == TRANSACTION_FILE else value)
        for number, kind, value in fields
    ]


def _with_files(fields: list[Field], changed: dict[int, int | bytes]) -> list[Field]:
    def fragment(content: int | bytes) -> bytes:
        assert isinstance(content, bytes)
        return _encoded(
            [
                (number, kind, _replaced(value, changed) if number == _FILES_OF_FRAGMENT else value)
                for number, kind, value in _decoded(content)
            ]
        )

    return [
        (number, kind, fragment(value) if number == FRAGMENTS else value)
        for number, kind, value in fields
    ]


def _replaced(message: int | bytes, changed: dict[int, int | bytes]) -> bytes:
    assert isinstance(message, bytes)
    kept = [field for field in _decoded(message) if field[0] not in changed]
    added: list[Field] = [
        (number, _NUMBER if isinstance(value, int) else _TEXT, value)
        for number, value in changed.items()
    ]
    return _encoded([*kept, *added])


def _decoded(message: bytes) -> list[Field]:
    fields: list[Field] = []
    position = 0
    while position < len(message):
        tag, position = number_at(message, position)
        value: int | bytes
        if tag & 7 == _NUMBER:
            value, position = number_at(message, position)
        else:
            size = {1: 8, 5: 4}.get(tag & 7)
            if size is None:
                size, position = number_at(message, position)
            value, position = message[position : position + size], position + size
        fields.append((tag >> 3, tag & 7, value))
    return fields


def _encoded(fields: list[Field]) -> bytes:
    content = b""
    for number, kind, value in fields:
        content += as_varint(number << 3 | kind)
        if isinstance(value, int):
            content += as_varint(value)
        else:
            content += (as_varint(len(value)) if kind == _TEXT else b"") + value
    return content
