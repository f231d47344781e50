"""What it means that a store failed: the one place that reads its errors.

Invariant: every failure becomes an error that names the root, what was tried and what to set. Lance
and obstore report the answers of a server as text only, so the codes of S3 are looked for in it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never

from omnigraph.errors import StorageUnavailableError
from omnigraph.storage.location import Root, Scheme
from omnigraph.storage.s3_options import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE_IN_THE_LIBRARY: Final = re.compile(r",? ?/\S+\.rs:\d+:\d+$")
_LONGEST: Final = 400


class Failure(StrEnum):
    """The kinds of failure that call for different steps."""

    BUCKET = "the bucket does not exist"
    CREDENTIALS = "the credentials are not known to the store"
    NO_CREDENTIALS = "there are no credentials"
    FORBIDDEN = "the credentials do not allow it"
    REGION = "the region is not the bucket's"
    UNREACHABLE = "the store does not answer"
    OTHER = "it failed"


_SIGNS: Final[Mapping[Failure, tuple[str, ...]]] = {
    Failure.BUCKET: ("nosuchbucket", "bucket does not exist"),
    Failure.CREDENTIALS: (
        "invalidaccesskeyid",
        "signaturedoesnotmatch",
        "invalidtoken",
        "expiredtoken",
        "requesttimetooskewed",
    ),
    Failure.NO_CREDENTIALS: (
        "credential provider was not enabled",
        "no providers in chain provided credentials",
        "failed to load credentials",
        "169.254.169.254",
        "the credential provider",
    ),
    Failure.REGION: (
        "authorizationheadermalformed",
        "permanentredirect",
        "received redirect without location",
    ),
    Failure.FORBIDDEN: (
        "accessdenied",
        "access denied",
        "lacked the necessary privileges",
        "403 forbidden",
        "401 unauthorized",
        "permission denied",
    ),
    Failure.UNREACHABLE: (
        "error sending request",
        "connection refused",
        "connection reset",
        "dns error",
        "operation timed out",
        "request or response body error",
        "error decoding response body",
        "slowdown",
        "503 service unavailable",
    ),
}


def failure_of(error: BaseException) -> Failure:
    """The kind of a failure, by what its text says."""
    text = str(error).lower()
    for failure, signs in _SIGNS.items():
        if any(sign in text for sign in signs):
            return failure
    return Failure.OTHER


def unavailable(root: Root, action: str, error: BaseException) -> StorageUnavailableError:
    """The error of a store that failed at an action, with the step that this failure calls for."""
    return StorageUnavailableError(
        f"could not {action} under {root}: {_shown(root, error)}",
        next_step=_next_step(root, failure_of(error)),
    )


def _shown(root: Root, error: BaseException) -> str:
    lines = str(error).splitlines()
    first = _PLACE_IN_THE_LIBRARY.sub("", lines[0].rstrip()) if lines else type(error).__name__
    first = without_secrets(first, root.storage_options)[:_LONGEST].rstrip(". ")
    failure = failure_of(error)
    known = root.scheme is Scheme.S3 and failure is not Failure.OTHER
    return f"{failure.value} ({first})" if known else first


def _next_step(root: Root, failure: Failure) -> str:
    if root.scheme is Scheme.LOCAL:
        return "Check that the root exists, may be used and the store answers, then run it again."
    match failure:
        case Failure.BUCKET:
            bucket = root.uri.removeprefix("s3://").split("/")[0]
            return f"Create the bucket {bucket!r}, or check AWS_ENDPOINT_URL and the root."
        case Failure.CREDENTIALS:
            return "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN."
        case Failure.NO_CREDENTIALS:
            return "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give storage_options."
        case Failure.FORBIDDEN:
            return (
                "Use credentials that may do this (AWS_ACCESS_KEY_ID), or read only: "
                'open the graph with mode="r".'
            )
        case Failure.REGION:
            return "Set AWS_REGION to the region of the bucket."
        case Failure.UNREACHABLE:
            return (
                "Check AWS_ENDPOINT_URL and that the store runs; a slow one needs a longer "
                "OMNIGRAPH_S3_TIMEOUT."
            )
        case Failure.OTHER:
            return "Check the root, its credentials and that the store answers."
        case _:
            assert_never(failure)
