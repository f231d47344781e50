"""What an S3 store is told: options of the graph, the variables that every tool knows, a profile.

Invariant: options leave here under one name each, complete: a process with another environment,
such as a Spark task, reaches the same store with them. No value of them appears in a message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from omnigraph_lake.errors import InvalidInputError, StorageUnavailableError

KEY, SECRET, TOKEN = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"
REGION, ENDPOINT, TIMEOUT = "aws_region", "aws_endpoint", "timeout"
ALLOW_HTTP, VIRTUAL_HOSTED = "allow_http", "aws_virtual_hosted_style_request"
RETRY_SECONDS, RETRIES = "client_retry_timeout", "client_max_retries"
PROFILE: Final = "aws_profile"
DEFAULT_TIMEOUT: Final = "60s"
HIDDEN: Final = "***"

_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    KEY: ("AWS_ACCESS_KEY_ID",),
    SECRET: ("AWS_SECRET_ACCESS_KEY",),
    TOKEN: ("AWS_SESSION_TOKEN",),
    REGION: ("AWS_REGION", "AWS_DEFAULT_REGION"),
    ENDPOINT: ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    ALLOW_HTTP: ("AWS_ALLOW_HTTP", "ALLOW_HTTP"),
    VIRTUAL_HOSTED: ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST",),
    TIMEOUT: ("OMNIGRAPH_S3_TIMEOUT",),
}
_PATH_STYLE_VARIABLE: Final = "AWS_S3_FORCE_PATH_STYLE"
_PATH_STYLE: Final = frozenset({"aws_s3_force_path_style", "s3_force_path_style"})
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "access_key_id": KEY,
    "secret_access_key": SECRET,
    "session_token": TOKEN,
    "token": TOKEN,
    "aws_token": TOKEN,
    "region": REGION,
    "default_region": REGION,
    "aws_default_region": REGION,
    "endpoint": ENDPOINT,
    "endpoint_url": ENDPOINT,
    "aws_endpoint_url": ENDPOINT,
    "aws_endpoint_url_s3": ENDPOINT,
    "aws_allow_http": ALLOW_HTTP,
    "virtual_hosted_style_request": VIRTUAL_HOSTED,
    "profile": PROFILE,
}
_CREDENTIALS: Final = (KEY, SECRET, TOKEN)
_OTHER_CREDENTIALS: Final = ("aws_skip_signature", "skip_signature")
_PROFILE_VARIABLES: Final = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_IDENTITY_VARIABLES: Final = ("AWS_WEB_IDENTITY_TOKEN_FILE",)
_FLAGS: Final = frozenset({ALLOW_HTTP, VIRTUAL_HOSTED})
_YES, _NO = frozenset({"1", "true", "on", "yes"}), frozenset({"0", "false", "off", "no"})
_ATTEMPTS: Final = 6
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|)")
_MILLISECONDS: Final[Mapping[str, int]] = {"ms": 1, "s": 1000, "": 1000, "m": 60_000}


def s3_options(
    caller_options: Mapping[str, str], environment: Mapping[str, str], *, root: str
) -> dict[str, str]:
    """Every option that reaching `root` needs, under one name each.

    Credentials are the caller's keys, those of the profile that the caller names, those of the
    environment, or those of the profile that the environment names; the first that there are. If
    there are none, the libraries use the role of the machine.

    Raises:
        StorageUnavailableError: the region is missing, plain http is not allowed, or a profile
            cannot be used.
    """
    options = _one_name_each(caller_options)
    profile = options.pop(PROFILE, None)
    # A pair of keys never meets the token of another one.
    has_own = profile is not None or any(name in options for name in _CREDENTIALS)
    left = _CREDENTIALS if has_own else ()
    for name, value in _from(environment).items():
        if name not in left:
            options.setdefault(name, value)
    _complete_from_profile(options, environment, profile, root)
    set_timeouts(options)
    _refuse_half_a_key(options, root)
    _refuse_no_region(options, root)
    _refuse_endpoint(options, root)
    return options


def _complete_from_profile(
    options: dict[str, str], environment: Mapping[str, str], named: str | None, root: str
) -> None:
    """Take what is missing from the profile that is named, or from the default one."""
    needs_keys = not any(name in options for name in (*_CREDENTIALS, *_OTHER_CREDENTIALS))
    if not needs_keys and options.get(REGION):
        return
    # A local disk has no profiles.
    from omnigraph_lake.storage.objects.aws_profiles import read_profile

    wanted = named or next(
        (environment[name] for name in _PROFILE_VARIABLES if environment.get(name)), None
    )
    profile = read_profile(wanted, environment, root=root)
    if profile is None:
        return
    if profile.region is not None:
        options.setdefault(REGION, profile.region)
    if profile.endpoint is not None:
        options.setdefault(ENDPOINT, profile.endpoint)
    # An identity of the environment comes before a profile that nothing names.
    if not needs_keys or (wanted is None and any(map(environment.get, _IDENTITY_VARIABLES))):
        return
    keys = profile.keys(root=root)
    if keys is not None:
        options |= {KEY: keys.access_key, SECRET: keys.secret}
        if keys.token is not None:
            options[TOKEN] = keys.token


def set_timeouts(options: dict[str, str]) -> None:
    """Complete options by how long a store may be silent, and how long it is asked again."""
    options[TIMEOUT] = _duration(options.get(TIMEOUT, DEFAULT_TIMEOUT))
    # A request that was waited for in full is not made again by the client itself.
    options.setdefault(RETRY_SECONDS, str(math.ceil(seconds(options[TIMEOUT]))))


def for_one_request(options: Mapping[str, str]) -> dict[str, str]:
    """The same options for a client that asks several times: one attempt gets a share of the time.

    Lance asks six times for a listing and up to eight times for a part of a file, whatever it is
    told. A call that finds the store silent still ends before twice the timeout has passed, with
    what it asks afterwards. What was waited for in full is not asked for again by the client.
    """
    if TIMEOUT not in options:
        return dict(options)
    attempt = seconds(options[TIMEOUT]) / _ATTEMPTS
    patience, retry_seconds = max(1, math.floor(attempt)), options.get(RETRY_SECONDS, "")
    if retry_seconds.isdecimal():
        patience = min(patience, int(retry_seconds))
    return {**options, TIMEOUT: f"{round(attempt * 1000)}ms", RETRY_SECONDS: str(patience)}


def seconds(duration: str) -> float:
    """How long an option such as `30s` is."""
    duration_match = _DURATION.fullmatch(duration.strip())
    if duration_match is None or float(duration_match[1]) == 0:
        raise InvalidInputError(
            f"the storage option timeout is {duration!r:.40}, expected a time such as 30s or 500ms"
        )
    return float(duration_match[1]) * _MILLISECONDS[duration_match[2]] / 1000


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    """A text in which no value of a secret option is left."""
    secrets = [value for name, value in options.items() if _is_secret(name) and value]
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _is_secret(name: str) -> bool:
    return name != KEY and any(part in name for part in ("secret", "token", "password", "key"))


def _one_name_each(caller_options: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for spelled_name, text in caller_options.items():
        name, value = _OTHER_NAMES.get(spelled_name.lower(), spelled_name.lower()), text
        if name in _PATH_STYLE:
            name, value = VIRTUAL_HOSTED, parse_flag(spelled_name, text, upside_down=True)
        elif name in _FLAGS:
            value = parse_flag(spelled_name, text)
        if options.setdefault(name, value) != value:
            raise InvalidInputError(
                f"the storage option {name} is given twice, the second time as {spelled_name!r:.80}"
            )
    return options


def _from(environment: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, variables in _VARIABLES.items():
        value = next(
            (environment[variable] for variable in variables if environment.get(variable)), None
        )
        if value is not None:
            options[name] = parse_flag(variables[0], value) if name in _FLAGS else value
    path_style = environment.get(_PATH_STYLE_VARIABLE)
    if path_style and VIRTUAL_HOSTED not in options:
        options[VIRTUAL_HOSTED] = parse_flag(_PATH_STYLE_VARIABLE, path_style, upside_down=True)
    return options


def parse_flag(name: str, text: str, *, upside_down: bool = False) -> str:
    """An option that is on or off as `true` or `false`."""
    if text.strip().lower() not in _YES | _NO:
        raise InvalidInputError(f"{name} is {text!r:.40}, expected true or false")
    return "true" if (text.strip().lower() in _YES) != upside_down else "false"


def _duration(text: str) -> str:
    return f"{round(seconds(text) * 1000)}ms"


def _refuse_half_a_key(options: Mapping[str, str], root: str) -> None:
    if (KEY in options) != (SECRET in options):
        missing = "AWS_SECRET_ACCESS_KEY" if KEY in options else "AWS_ACCESS_KEY_ID"
        raise StorageUnavailableError(
            f"one half of the credentials for {root} is missing: {missing}",
            next_step=f"Set {missing}, or both as storage_options.",
        )


def _refuse_no_region(options: Mapping[str, str], root: str) -> None:
    if not options.get(REGION):
        raise StorageUnavailableError(
            f"no region is known for {root}",
            next_step="Set AWS_REGION, or the storage option aws_region; "
            "stores that have no regions take us-east-1.",
        )


def _refuse_endpoint(options: Mapping[str, str], root: str) -> None:
    endpoint = options.get(ENDPOINT, "")
    if "@" in endpoint:
        raise InvalidInputError(
            f"the endpoint for {root} holds a user or a password",
            next_step="Give credentials as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    if endpoint.lower().startswith("http://") and options.get(ALLOW_HTTP) != "true":
        raise StorageUnavailableError(
            f"the endpoint for {root} speaks plain http, which is not allowed",
            next_step="Set AWS_ALLOW_HTTP=true if unencrypted traffic is acceptable, "
            "or give an https endpoint.",
        )
