"""The position of a consumer of changes, as a text that the consumer stores.

Invariant: a cursor is a position after a whole commit, or before the first one. A text that was
changed on its way is refused; one that is sound says for which graph, incarnation of a branch and
choice of types it was made. Nothing about a consumer is stored in the graph.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from omnigraph.errors import InvalidInputError
from omnigraph.language.diagnostics import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT_MAX: Final = 4_096
_FORMAT: Final = 1
_CHECK_BYTES: Final = 8
_TYPES_DIGITS: Final = 32
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A position in the commits of one branch.

    `graph` is the graph's first commit. `types` is what `mark_of` makes of the chosen types.
    `commit_id` is the last commit that was consumed; None is the place before the first.
    """

    graph: str
    branch: str
    incarnation: str
    types: str
    commit_id: str | None


def mark_of(table_keys: Iterable[str] | None) -> str:
    """A short text for a choice of types; choosing none of them by name, which is all, is empty."""
    if table_keys is None:
        return ""
    listed = "\n".join(sorted(table_keys))
    return hashlib.sha256(listed.encode()).hexdigest()[:_TYPES_DIGITS]


def encode(cursor: Cursor) -> str:
    """The cursor as letters, digits, `-` and `_`."""
    content = json.dumps([_FORMAT, *astuple(cursor)], separators=(",", ":")).encode()
    text = base64.urlsafe_b64encode(_check(content) + content).decode().rstrip("=")
    assert len(text) <= TEXT_MAX, "ids and names of branches are short"
    return text


def decode(text: object) -> Cursor:
    """The cursor that a text encodes.

    Raises:
        InvalidInputError: it is not a cursor, or was modified.
    """
    if not isinstance(text, str):
        raise _refused(f"the cursor is {shown(text)}, expected a text")
    given = text.strip()
    if len(given) > TEXT_MAX or not _ALPHABET.fullmatch(given):
        raise _refused(f"{shown(given)} is not a cursor")
    try:
        sealed = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))
    except binascii.Error:
        raise _refused("the cursor is truncated") from None
    check, content = sealed[:_CHECK_BYTES], sealed[_CHECK_BYTES:]
    if check != _check(content):
        raise _refused("the cursor is corrupted or truncated")
    number, *fields = json.loads(content)
    if number != _FORMAT:
        raise _refused(f"the cursor has format {number}, this Omnigraph knows {_FORMAT}")
    graph, branch, incarnation, types, commit_id = fields
    return Cursor(
        graph=graph, branch=branch, incarnation=incarnation, types=types, commit_id=commit_id
    )


def require_same_choice(cursor: Cursor, *, branch: str, types: str) -> None:
    """A cursor is valid only for the branch and the types that it was created for."""
    if cursor.branch != branch:
        raise InvalidInputError(
            f"the cursor is for branch {shown(cursor.branch)}, not for {shown(branch)}",
            next_step=f"Continue with {shown(cursor.branch)}, or start over.",
        )
    if cursor.types != types:
        raise InvalidInputError(
            "the cursor was created for other types",
            next_step="Choose the same types as before, or start over.",
        )


def _check(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:_CHECK_BYTES]


def _refused(what: str) -> InvalidInputError:
    return InvalidInputError(
        what, next_step="Use the cursor exactly as it was returned, or start over."
    )
