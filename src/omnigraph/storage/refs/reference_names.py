"""Names of branches and tags.

Invariant: a name that passes cannot be mistaken for a commit id, a manifest version or a point in
time, and names the same object on every store.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from omnigraph import names
from omnigraph.errors import InvalidInputError
from omnigraph.language.diagnostics import shown

_BYTES_MAX: Final = 160
_SEGMENT: Final = re.compile(r"[\w\-][\w.\-]*")
_ULID: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}", re.IGNORECASE)
_PREFIX: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{7,24}", re.IGNORECASE)
_VERSION: Final = re.compile(r"v?[0-9]{1,18}")


def checked_branch(name: object) -> str:
    """A name for a branch that may be created, written or deleted."""
    text = _checked(name, what="branch")
    if text.split("/")[0] == names.MAIN:
        raise InvalidInputError(
            f"{shown(text)} is reserved: the branch {names.MAIN!r} always exists and cannot be "
            "deleted",
            next_step="Choose another name.",
        )
    return text


def checked_tag(name: object) -> str:
    text = _checked(name, what="tag")
    if text == names.MAIN or "/" in text:
        raise InvalidInputError(
            f"{shown(text)} cannot name a tag: it is a branch or holds a slash",
            next_step="Choose another name.",
        )
    return text


def is_commit_id(text: str) -> bool:
    return _ULID.fullmatch(text) is not None


def is_commit_prefix(text: str) -> bool:
    """Whether a text may be the beginning of a commit id; branches and tags come first."""
    return _PREFIX.fullmatch(text) is not None


def manifest_version(text: str) -> int | None:
    """The number in `v17` or `17`."""
    return int(text.removeprefix("v")) if _VERSION.fullmatch(text) else None


def could_be_name(text: str) -> bool:
    """Whether a branch or a tag may have such a name; nothing else is asked of the store."""
    return (
        0 < len(text.encode(errors="replace")) <= _BYTES_MAX
        and ".." not in text
        and not text.endswith((".lock", "."))
        and all(_SEGMENT.fullmatch(part) for part in text.split("/"))
    )


def is_point_in_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _checked(name: object, *, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(f"{what} is {shown(name)}, expected a name")
    text = name.strip()
    if names.is_system_name(text):
        raise InvalidInputError(
            f"{what} {shown(text)} is reserved for Omnigraph",
            next_step=f"Choose a name that does not start with {names.SYSTEM_PREFIX!r}.",
        )
    if is_commit_id(text) or manifest_version(text) is not None or is_point_in_time(text):
        raise InvalidInputError(
            f"{what} {shown(text)} could be mistaken for a commit, a version or a point in time",
            next_step="Choose a name that contains a word.",
        )
    if not could_be_name(text):
        raise InvalidInputError(
            f"{shown(text)} cannot name a {what}",
            next_step="Use letters, digits, '-', '_', '.' and '/' between parts, up to "
            f"{_BYTES_MAX} bytes.",
        )
    return text
