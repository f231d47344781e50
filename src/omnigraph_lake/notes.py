"""What the author of a commit says about it: a message, and metadata of any kind.

Invariant: a note is bounded, because the manifest holds those of the newest commits and is written
anew by every commit. An empty note is stored nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from unicodedata import category

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import shown

MESSAGE_BYTES_MAX: Final = 4096
METADATA_BYTES_MAX: Final = 4096
"""Of all keys and values together."""
_KEY_BYTES_MAX: Final = 128
_LAYOUT: Final = "\n\t"
_REFUSED: Final = frozenset({"Cc", "Cs"})
"""Control characters, and halves of characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNote:
    """The message of a commit, and its metadata as pairs in the order of the keys."""

    message: str | None = None
    entries: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return self.message is not None or bool(self.entries)

    @property
    def subject(self) -> str:
        """The first line of the message; empty without one."""
        return (self.message or "").partition("\n")[0]

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.entries)

    @property
    def metadata_json(self) -> str | None:
        """The metadata as it is stored; None without any."""
        return json.dumps(self.metadata, sort_keys=True) if self.entries else None

    def facts(self) -> Iterator[tuple[str, str]]:
        """The note as labelled lines; what continues a line has no label."""
        for number, line in enumerate((self.message or "").splitlines()):
            yield "" if number else "message", line
        for number, (key, text) in enumerate(self.entries):
            yield "" if number else "metadata", f"{key}={text}"

    @classmethod
    def parse(cls, message: str | None, metadata: Mapping[str, Any] | None) -> CommitNote:
        """The note that a document holds.

        Raises:
            ValueError: a part of it is no text.
        """
        entries = tuple(sorted((metadata or {}).items()))
        texts = [*(() if message is None else (message,)), *(text for _, text in entries)]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a message or metadata of a commit is no text")
        return cls(message=message, entries=entries)


NO_NOTE: Final = CommitNote()


def commit_note(message: object = None, metadata: object = None) -> CommitNote:
    """The note that a caller gives.

    Raises:
        InvalidInputError: the message or the metadata is no text, holds control characters, or is
            too large.
    """
    if message is None and metadata is None:
        return NO_NOTE
    return CommitNote(
        message=None if message is None else _check_message(message),
        entries=() if metadata is None else _check_entries(metadata),
    )


def _check_message(message: object) -> str:
    if not isinstance(message, str) or not message.strip():
        raise InvalidInputError(
            f"message is {shown(message)}, expected a text",
            next_step="Say what the commit changes, or omit the message.",
        )
    text = message.replace("\r\n", "\n").strip()
    _require_text(text, what="message")
    _require_size(_size(text), MESSAGE_BYTES_MAX, what="message")
    return text


def _check_entries(metadata: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(metadata, Mapping):
        raise InvalidInputError(
            f"metadata is {shown(metadata)}, expected a mapping from names to texts",
            next_step='Write it as `metadata={"ticket": "OPS-7"}`.',
        )
    for key, value in metadata.items():
        is_name = isinstance(key, str) and key.strip() and key.isprintable()
        if not is_name or _size(key) > _KEY_BYTES_MAX:
            raise InvalidInputError(
                f"a key of metadata is {shown(key)}, expected a printable name of at most "
                f"{_KEY_BYTES_MAX} bytes"
            )
        if not isinstance(value, str):
            raise InvalidInputError(
                f"metadata[{shown(key)}] is {shown(value)}, expected a text",
                next_step="Give `str(value)`, or JSON.",
            )
        _require_text(value, what=f"metadata[{shown(key)}]")
    size = sum(_size(key) + _size(value) for key, value in metadata.items())
    _require_size(size, METADATA_BYTES_MAX, what="metadata")
    return tuple(sorted(metadata.items()))


def _require_text(text: str, *, what: str) -> None:
    if all(category(letter) not in _REFUSED or letter in _LAYOUT for letter in text):
        return
    raise InvalidInputError(
        f"{what} is {shown(text)}, which holds control characters",
        next_step="Remove them; line breaks and tabs are allowed.",
    )


def _require_size(size: int, most: int, *, what: str) -> None:
    if size > most:
        raise InvalidInputError(
            f"{what} has {size:,} bytes, expected at most {most:,}",
            next_step="Store longer texts elsewhere, and name their place in the metadata.",
        )


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))
