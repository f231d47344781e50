"""What it means that a store failed: the one place that reads its errors.

Invariant: every failure becomes an error that names the root, what was tried and what to set. Lance
and obstore report the answers of a server as text only, so the codes of S3 are looked for in it.
"""

from __future__ import annotations

import html
import re
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never

from omnigraph_lake.errors import DamagedGraphError, StorageUnavailableError
from omnigraph_lake.storage.objects.location import Root, Scheme
from omnigraph_lake.storage.objects.paths import disk_failure_of, disk_step
from omnigraph_lake.storage.objects.s3_options import ENDPOINT, without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE_IN_THE_LIBRARY: Final = re.compile(r",? ?/\S+\.rs:\d+:\d+$")
_ANSWER: Final = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]+)</Message>")
_LONGEST: Final = 400
_REMEMBERED_SECONDS: Final = 10.0
_SILENT: Final[dict[tuple[str, str], float]] = {}
"""When a store last left a request of this process without an answer, by endpoint and bucket."""


class Failure(StrEnum):
    """The kinds of failure that call for different steps."""

    BUCKET = "the bucket does not exist"
    CREDENTIALS = "the credentials are not known to the store"
    NO_CREDENTIALS = "there are no credentials"
    FORBIDDEN = "the credentials do not allow it"
    REGION = "the region is not the bucket's"
    UNREACHABLE = "the store does not respond"
    OTHER = "it failed"


_SIGNS: Final[Mapping[Failure, tuple[str, ...]]] = {
    Failure.BUCKET: (
        "nosuchbucket",
        "bucket does not exist",
        "containernotfound",
    ),
    Failure.CREDENTIALS: (
        "invalidaccesskeyid",
        "signaturedoesnotmatch",
        "invalidtoken",
        "expiredtoken",
        "requesttimetooskewed",
        "server failed to authenticate the request",
    ),
    Failure.NO_CREDENTIALS: (
        "credential provider was not enabled",
        "failed to get aws credentials",
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
        "internalerror",
        "500 internal server error",
        "502 bad gateway",
        "504 gateway timeout",
    ),
}

_SIGNS_OF_DAMAGE: Final = (
    "corrupt",
    "eof",
    "external error: invalid user input",  # while decoding: callers are checked first
    "invalid argument error",
    "lanceerror(arrow)",
    "decod",
    "does not appear to be a lance",
    "failed to fill whole buffer",
    "failed to get index statistics",
    "file size is too small",
    "invalid magic",
    "invalid range",
    "invalid utf",
    "lance storage version",
    "metadata region",
    "not found: ",
    "out of bounds",
    "panic",
    "protobuf",
    "schema error",
    "task was aborted",  # it panicked
    "unexpected end",
)

_NEXT_STEPS: Final[Mapping[Failure, str]] = {
    Failure.BUCKET: "Create the bucket, or check AWS_ENDPOINT_URL and the root.",
    Failure.CREDENTIALS: (
        "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and the clock; if "
        "credentials of a profile have expired, open the graph again."
    ),
    Failure.NO_CREDENTIALS: (
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give storage_options."
    ),
    Failure.FORBIDDEN: (
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a user who has permission, "
        "or only read: open the graph with read_only=True."
    ),
    Failure.REGION: "Set AWS_REGION to the region of the bucket.",
    Failure.UNREACHABLE: (
        "Check AWS_ENDPOINT_URL and that the store runs; "
        "for a slow store, raise OMNIGRAPH_S3_TIMEOUT."
    ),
    Failure.OTHER: "Check the root, its credentials and that the store responds.",
}
_NEXT_STEPS_ELSEWHERE: Final[Mapping[Failure, str]] = {
    Failure.BUCKET: "Create the bucket or container, or check the address.",
    Failure.CREDENTIALS: "Check the credentials in the environment or in storage_options.",
    Failure.NO_CREDENTIALS: "Set the credentials of the store, or give storage_options.",
    Failure.FORBIDDEN: (
        "Use credentials that have permission, or only read: open the graph with read_only=True."
    ),
    Failure.REGION: "Check the address.",
    Failure.UNREACHABLE: (
        "Check the address and that the store runs; for a slow store, raise OMNIGRAPH_S3_TIMEOUT."
    ),
    Failure.OTHER: "Check the address, its credentials and that the store responds.",
}
"""Of stores that are not S3."""
_NEXT_STEP_LOCALLY: Final = "Check that the root exists and is accessible, then run it again."


def failure_of(error: BaseException) -> Failure:
    """The kind of a failure, by what its text says."""
    text = str(error).lower()
    for failure, signs in _SIGNS.items():
        if any(sign in text for sign in signs):
            return failure
    return Failure.OTHER


def unavailable(root: Root, action: str, error: BaseException) -> StorageUnavailableError:
    """The error of a store that failed at an action, with the step that this failure calls for."""
    if root.scheme is not Scheme.LOCAL and _is_silence(error):
        _SILENT[_store(root)] = time.monotonic()
    return StorageUnavailableError(
        f"could not {action} under {root}: {_shown(root, error)}",
        next_step=_next_step(root, error),
    )


def _next_step(root: Root, error: BaseException) -> str:
    match root.scheme:
        case Scheme.LOCAL:
            return _local_step(root, error)
        case Scheme.S3:
            return _NEXT_STEPS[failure_of(error)]
        case Scheme.AZURE | Scheme.GOOGLE:
            return _NEXT_STEPS_ELSEWHERE[failure_of(error)]
        case _:
            assert_never(root.scheme)


def _local_step(root: Root, error: BaseException) -> str:
    kind = disk_failure_of(error)
    return _NEXT_STEP_LOCALLY if kind is None else disk_step(kind, root.uri)


def is_damage(error: BaseException) -> bool:
    """Whether what was read cannot be what was written: Lance met it while it decoded a file."""
    if disk_failure_of(error) is not None:
        # Nothing was decoded: a file could not even be opened.
        return False
    text = str(error).lower()
    return failure_of(error) is Failure.OTHER and any(sign in text for sign in _SIGNS_OF_DAMAGE)


def damaged(root: Root, action: str, error: BaseException) -> DamagedGraphError:
    """The error of a file that cannot be decoded, or that a version names and is not there."""
    return DamagedGraphError(
        f"could not {action} under {root}: what is stored there is damaged ({_shown(root, error)})",
        next_step=f"Run `omnigraph check {root} --deep` to see which files are damaged, and "
        "restore those from a backup.",
    )


def was_silent(root: Root) -> bool:
    """Whether the store of a root has just failed to respond to this process."""
    last = _SILENT.get(_store(root))
    return last is not None and time.monotonic() - last < _REMEMBERED_SECONDS


def answered(root: Root) -> None:
    """Forget that the store was silent: it answers again."""
    _SILENT.pop(_store(root), None)


def _is_silence(error: BaseException) -> bool:
    """Whether there was no answer at all; one that asks to slow down is an answer."""
    text = str(error).lower()
    return "error sending request" in text or "operation timed out" in text


def _store(root: Root) -> tuple[str, str]:
    endpoint = root.storage_options.get(ENDPOINT, "")
    return endpoint, root.uri if root.scheme is Scheme.LOCAL else root.bucket


def _shown(root: Root, error: BaseException) -> str:
    """The kind of the failure and the server's own words, or else the first line there is."""
    text = str(error) or type(error).__name__
    answered = _ANSWER.search(text)
    first = _PLACE_IN_THE_LIBRARY.sub("", text.splitlines()[0].rstrip())
    said = f"{answered[1]}: {html.unescape(answered[2]).splitlines()[0]}" if answered else first
    said = without_secrets(said, root.storage_options)[:_LONGEST].rstrip(". ")
    failure = failure_of(error)
    if root.scheme is not Scheme.LOCAL:
        return said if failure is Failure.OTHER else f"{failure.value} ({said})"
    kind = disk_failure_of(error)
    return said if kind is None else f"{kind.value} ({said})"
