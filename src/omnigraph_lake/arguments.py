"""Validation of arguments that are not data: words, ids and names.

Invariant: everything below may rely on validated arguments; an error names the argument and what
was expected.

Durations in text form: `30m`, `12h`, `7d`.
"""

from __future__ import annotations

import getpass
import io
import os
import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import IO, Final, TypeVar, cast

from omnigraph_lake import names
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.ulids import canonical_ulid, ulid_time

_ACTOR_BYTES_MAX: Final = 1024
_COUNT_MAX: Final = 2**31 - 1
_FUTURE_MAX: Final = timedelta(days=1)
_KEY_MAX: Final = 1024

Word = TypeVar("Word", bound=StrEnum)


def one_of(words: type[Word], value: object, *, argument: str, next_step: str = "") -> Word:
    """The member of an enum that a caller names by its value."""
    for word in words:
        if word == value:
            return word
    *others, last = (f'"{word.value}"' for word in words)
    raise InvalidInputError(
        f"{argument} is {shown(value)}, expected {', '.join(others)} or {last}",
        next_step=next_step,
    )


def parse_operation_id(
    operation_id: object, *, now: datetime
) -> names.OperationId | names.OperationKey:
    """What a caller means by an operation id: a ULID or an id from a result, else any text.

    A ULID must not be dated in the future: later operations would sort before it.
    """
    if not isinstance(operation_id, str) or not 0 < len(operation_id) <= _KEY_MAX:
        raise InvalidInputError(
            f"operation id is {shown(operation_id)}, expected a text of 1 to {_KEY_MAX} characters",
            next_step="Name the run or the batch that writes, or omit the operation id.",
        )
    if names.OperationKey.of_operation(operation_id) is not None:
        return names.OperationId(operation_id)
    ulid = canonical_ulid(operation_id)
    if ulid is None:
        return _key_of(operation_id)
    try:
        is_future = ulid_time(ulid) - now >= _FUTURE_MAX
    except (ValueError, OverflowError):
        is_future = True  # beyond the years that Python counts
    if is_future:
        raise InvalidInputError(
            f"operation id {operation_id} is a ULID that is dated in the future",
            next_step="Make one of the current time, or use a text that is no ULID.",
        )
    return names.OperationId(ulid)


def _key_of(text: str) -> names.OperationKey:
    try:
        return names.OperationKey.of_text(text)
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"operation id is {shown(text)}, which is not valid Unicode"
        ) from error


def acting(actor: str | None) -> str:
    """The author of a commit: the name given, else the user of this process."""
    return checked_actor(_user() if actor is None else actor)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a number that has no name.
        return f"uid:{os.getuid()}"


def checked_actor(actor: object) -> str:
    """The author of a commit: printable, not too long, and not a reserved name.

    Recovery, maintenance and migrations have reserved actor names.
    """
    if isinstance(actor, str) and actor.strip().casefold().startswith(names.SYSTEM_ACTOR_PREFIX):
        raise InvalidInputError(
            f"actor is {actor!r:.80}: names that start with {names.SYSTEM_ACTOR_PREFIX!r} are "
            "reserved for Omnigraph",
            next_step="Name the person or the program that writes.",
        )
    return _checked_name(actor, argument="actor", who="that writes")


def checked_owner(owner: object) -> str:
    """The owner of a branch, checked in the same way."""
    return _checked_name(owner, argument="owner", who="that the branch is for")


def _checked_name(name: object, *, argument: str, who: str) -> str:
    if (
        isinstance(name, str)
        and name.strip()
        and name.isprintable()
        and len(name.encode(errors="replace")) <= _ACTOR_BYTES_MAX
    ):
        return name
    raise InvalidInputError(
        f"{argument} is {shown(name)}, expected a printable name of at most "
        f"{_ACTOR_BYTES_MAX} bytes",
        next_step=f"Name the person or the program {who}.",
    )


def flag(value: object, *, argument: str) -> bool:
    """A Boolean argument. A text such as "no" is refused: Python would treat it as true."""
    if isinstance(value, bool):
        return value
    raise InvalidInputError(f"{argument} is {shown(value)}, expected True or False")


def text_or_none(value: object, *, argument: str) -> str | None:
    """An optional text."""
    return None if value is None else plain_text(value, argument=argument)


def plain_text(value: object, *, argument: str) -> str:
    if isinstance(value, str):
        return value
    raise InvalidInputError(f"{argument} is {shown(value)}, expected a text")


def count_from(least: int, value: object, *, argument: str) -> int:
    """A whole number of at least `least`, in the range of a row count."""
    if type(value) is int and least <= value <= _COUNT_MAX:
        return value
    raise InvalidInputError(f"{argument} is {shown(value)}, expected a number from {least} on")


def count_or_none(value: object, *, argument: str) -> int | None:
    """A number of things that may be left out."""
    return None if value is None else count_from(0, value, argument=argument)


def binary_stream(stream: object, *, argument: str) -> IO[bytes]:
    """An open stream to write bytes to."""
    if (
        isinstance(stream, io.RawIOBase | io.BufferedIOBase)
        and not stream.closed
        and stream.writable()
    ):
        return cast("IO[bytes]", stream)
    raise InvalidInputError(f"{argument} is {shown(stream)}, expected an open binary stream")


_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def parse_age(text: str) -> timedelta:
    """A number and its unit: s, m, h, d or w."""
    matched = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if matched is None:
        raise InvalidInputError(
            f"{shown(text, 40)} is not a duration", next_step="Write it as 45s, 30m, 12h, 7d or 4w."
        )
    number, unit = matched.groups()
    return int(number) * _UNITS[unit]
