"""Decodes documents that are stored as JSON, and computes the digests that detect damaged content.

Other programs may have written the files of a graph. The digest is XXH3 with 128 bits, which is as
fast as memory; it detects accidents, not forgery.

Invariant: a decoded document has the members and types of its dataclass, so that no caller meets a
text where a number belongs; anything wrong with a document is a ValueError.
"""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import xxhash

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)


MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError)
"""The errors that decoding a malformed document raises."""


def parsed(content: bytes | str) -> Any:
    """The values of a document.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def typed(kind: type[T], members: object) -> T:
    """The members of a document as what they stand for.

    Raises:
        ValueError: a member is missing, unknown, or has another type.
    """
    import msgspec  # most graphs are opened without it

    if not isinstance(members, dict):
        raise ValueError(f"it is {type(members).__name__}, expected an object")  # noqa: TRY004
    unknown = members.keys() - {field.name for field in fields(kind)}
    if unknown:
        raise ValueError(f"it has unknown members, such as {min(unknown)!r:.80}")
    try:
        return msgspec.convert(members, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from None


def moment(text: object) -> datetime:
    """A time that is stored.

    Raises:
        ValueError: it is none, or does not say of which zone.
    """
    time = datetime.fromisoformat(text) if isinstance(text, str) else None
    if time is None or time.tzinfo is None:
        raise ValueError(f"{text!r:.80} is no time with a zone")
    return time


_CHUNK_BYTES: Final = 1 << 20


def digest_of(content: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(content)


def digest_of_values(values: object) -> str:
    """The digest of plain values: texts, numbers, lists and objects of them."""
    return digest_of(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())


def digest_of_file(path: Path) -> tuple[int, str] | None:
    """The size of a file and its digest; None if there is no such file."""
    digest = xxhash.xxh3_128()
    size = 0
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except FileNotFoundError:
        return None
    return size, digest.hexdigest()
