"""The digest that detects damaged content.

XXH3 with 128 bits: as fast as memory; it detects accidents, not forgery.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import xxhash

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
