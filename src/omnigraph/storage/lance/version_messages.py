"""The message of a version, as Lance stores it and sends it to other processes.

Invariant: what is not exchanged stays byte for byte. A handle that is made of a message reads the
store no earlier than it is asked for rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance import LanceDataset

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION: Final = 3
"""The field with the number of the version."""
_NUMBER, _BYTES = 0, 2
"""Kinds of fields."""


def message_of(handle: LanceDataset) -> bytes:
    """The version as Lance sends it to another process."""
    return bytes(handle._ds.serialized_manifest())  # noqa: SLF001


def handle_of(
    like: LanceDataset, version: int, message: bytes, *, session: Any = None
) -> LanceDataset:
    """A handle at the address of another one, on the version that a message tells."""
    return LanceDataset(
        like.uri,
        version=version,
        storage_options=like._storage_options,  # noqa: SLF001
        serialized_manifest=message,
        session=session,
    )


def renumbered(message: bytes, version: int) -> bytes:
    """The message of a version with another number."""
    number = as_varint(_VERSION << 3 | _NUMBER) + as_varint(version)
    return b"".join(number if at == _VERSION else whole for at, whole, _ in fields_of(message))


def fields_of(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The number, all bytes and the content of every field of a protobuf message."""
    position = 0
    while position < len(message):
        start = position
        tag, position = number_at(message, position)
        content_at = position
        match tag & 7:
            case 0:
                _, position = number_at(message, position)
            case 1:
                position += 8
            case 2:
                length, content_at = number_at(message, position)
                position = content_at + length
            case 5:
                position += 4
            case kind:
                raise ValueError(f"a version has a field of kind {kind}")
        yield tag >> 3, message[start:position], message[content_at:position]


def field(number: int, content: bytes) -> bytes:
    return as_varint(number << 3 | _BYTES) + as_varint(len(content)) + content


def number_at(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def as_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
