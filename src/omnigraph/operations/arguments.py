"""What callers hand to a graph beside data: words, ids and names, checked once at the door.

Invariant: what passes is what everything below may believe; what does not pass is named, with what
was expected instead.
"""

from __future__ import annotations

import getpass
import os
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

from omnigraph import names
from omnigraph.errors import InvalidInputError

_ACTOR_BYTES_MAX: Final = 1024
_FUTURE_MAX: Final = timedelta(days=1)

Word = TypeVar("Word", bound=StrEnum)


def one_of(words: type[Word], given: object, *, argument: str, next_step: str = "") -> Word:
    """The member of an enum that a caller names by its value."""
    for word in words:
        if word == given:
            return word
    *others, last = (f'"{word.value}"' for word in words)
    raise InvalidInputError(
        f"{argument} is {given!r:.80}, expected {', '.join(others)} or {last}",
        next_step=next_step,
    )


def checked_id(operation_id: str, *, now: datetime) -> str:
    """An operation id of the caller's: a ULID that is not dated in the future."""
    from ulid import ULID  # costs 80 ms that a reader need not pay

    try:
        given = ULID.from_str(operation_id)
        if given.datetime - now < _FUTURE_MAX:
            return str(given)
        raise InvalidInputError(
            f"operation id {operation_id} is dated {given.datetime:%Y-%m-%d}, in the future",
            next_step="Make one with `str(ulid.ULID())`, or leave it out.",
        )
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"operation id {operation_id!r:.80} is not a ULID",
            next_step="Make one with `str(ulid.ULID())`, or leave it out.",
        ) from None


def acting(given: str | None) -> str:
    """Who a commit is attributed to: the name given, else the user of this process."""
    return checked_actor(_user() if given is None else given)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a number that has no name.
        return f"uid:{os.getuid()}"


def checked_actor(actor: object) -> str:
    """Who a commit is attributed to: printable, not too long to be shown, and none of our own.

    Recovery, upkeep and migrations sign with names of their own, and nobody else may.
    """
    if isinstance(actor, str) and actor.strip().casefold().startswith(names.SYSTEM_ACTOR_PREFIX):
        raise InvalidInputError(
            f"actor is {actor!r:.80}: names that begin with {names.SYSTEM_ACTOR_PREFIX!r} are "
            "Omnigraph's own",
            next_step="Name the person or the program that writes.",
        )
    return _checked_name(actor, argument="actor", who="that writes")


def checked_owner(owner: object) -> str:
    """Who a branch is for, in the same way."""
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
        f"{argument} is {name!r:.80}, expected a printable name of at most "
        f"{_ACTOR_BYTES_MAX} bytes",
        next_step=f"Name the person or the program {who}.",
    )
