"""Read a profile of the AWS configuration files: static keys, `credential_process`, a region.

Neither obstore nor Lance resolves profiles in the same way, so it is done once, here, and both are
told the same keys. Profiles that need requests to AWS (single sign-on, roles to assume) are refused
with the command that turns them into keys.

Invariants:

- Nothing that a process prints, and no value of a file, appears in a message.
- Credentials are not used beyond their expiration, and a process is asked again before it.
"""

from __future__ import annotations

import configparser
import json
import shlex
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from omnigraph_lake.errors import StorageUnavailableError

DEFAULT_PROFILE: Final = "default"
_PROCESS_SECONDS: Final = 60
_REFRESH_BEFORE: Final = timedelta(minutes=5)
_KEPT_WITHOUT_EXPIRATION: Final = timedelta(minutes=5)
_KEY, _SECRET, _TOKEN = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"
_PROCESS: Final = "credential_process"
_NEEDS_REQUESTS: Final = (
    "role_arn",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
    "credential_source",
    "login_session",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Credentials of AWS; `expires` is None if they do not say."""

    access_key: str
    secret: str = field(repr=False)
    token: str | None = field(repr=False, default=None)
    expires: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A section of the configuration files, whose values are not shown."""

    name: str
    settings: Mapping[str, str] = field(repr=False)

    @property
    def region(self) -> str | None:
        return self.settings.get("region") or None

    @property
    def endpoint(self) -> str | None:
        return self.settings.get("endpoint_url") or None

    def keys(self, *, root: str) -> Keys | None:
        """The credentials of the profile; None if it has none.

        Raises:
            StorageUnavailableError: they cannot be had.
        """
        settings = self.settings
        if settings.get(_KEY) and settings.get(_SECRET):
            token = settings.get(_TOKEN) or None
            return Keys(access_key=settings[_KEY], secret=settings[_SECRET], token=token)
        if settings.get(_PROCESS):
            return _keys_of_process(self.name, settings[_PROCESS], root=root)
        setting = next((name for name in _NEEDS_REQUESTS if settings.get(name)), None)
        if setting is None:
            return None
        raise StorageUnavailableError(
            f"the AWS profile {self.name!r:.80} for {root} has {setting}, which Omnigraph does not "
            "resolve",
            next_step=f"Run `aws configure export-credentials --profile {self.name} --format env` "
            "and export what it prints, or make that command the credential_process of another "
            "profile.",
        )


def read_profile(name: str | None, environment: Mapping[str, str], *, root: str) -> Profile | None:
    """The named profile, or the default one if there is any.

    Raises:
        StorageUnavailableError: the named profile does not exist, or a file cannot be read.
    """
    wanted = name or DEFAULT_PROFILE
    home = Path(environment.get("HOME") or "/nonexistent", ".aws")
    config = _sections(environment.get("AWS_CONFIG_FILE") or home / "config", environment)
    shared = _sections(
        environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", environment
    )
    section = wanted if wanted == DEFAULT_PROFILE else f"profile {wanted}"
    settings = {**config.get(section, {}), **shared.get(wanted, {})}
    if not settings and name is not None:
        raise StorageUnavailableError(
            f"there is no AWS profile {name!r:.80} for {root}",
            next_step="Check AWS_PROFILE, and the files ~/.aws/config and ~/.aws/credentials.",
        )
    return Profile(name=wanted, settings=settings) if settings else None


def _sections(file: str | Path, environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    text = str(file)
    if text.startswith("~/"):
        text = f"{environment.get('HOME', '')}{text[1:]}"
    parser = configparser.RawConfigParser(default_section="\0", strict=False)
    try:
        with Path(text).open(encoding="utf-8") as lines:
            parser.read_file(lines)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, configparser.Error, UnicodeDecodeError) as error:
        # The text of a parser's error quotes lines of the file.
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise StorageUnavailableError(
            f"the AWS configuration file {text} cannot be read: {reason}",
            next_step="Check the file, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        ) from None
    return {section: dict(parser[section]) for section in parser.sections()}


class _ProcessKeys:
    """Keys that processes printed, until they should be asked again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[datetime, Keys]] = {}

    def get(self, command: str, now: datetime) -> Keys | None:
        with self._lock:
            until, keys = self._keys.get(command, (now, None))
            return keys if now < until else None

    def keep(self, command: str, keys: Keys, now: datetime) -> None:
        until = now + _KEPT_WITHOUT_EXPIRATION
        if keys.expires is not None:
            until = keys.expires - _REFRESH_BEFORE
        with self._lock:
            self._keys[command] = (until, keys)


_PRINTED: Final = _ProcessKeys()


def _keys_of_process(profile: str, command: str, *, root: str) -> Keys:
    now = datetime.now(UTC)
    keys = _PRINTED.get(command, now)
    if keys is None:
        keys = _parse(_run(command, profile, root), profile, root)
        if keys.expires is not None and keys.expires <= now:
            raise _process_error(profile, root, "returned credentials that have expired")
        _PRINTED.keep(command, keys, now)
    return keys


def _run(command: str, profile: str, root: str) -> bytes:
    try:
        process = subprocess.run(  # noqa: S603 - the user's own configuration names it
            shlex.split(command), capture_output=True, timeout=_PROCESS_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise _process_error(
            profile, root, f"did not end within {_PROCESS_SECONDS} seconds"
        ) from None
    except (OSError, ValueError):
        raise _process_error(profile, root, "cannot be run") from None
    if process.returncode:
        raise _process_error(profile, root, f"failed with exit code {process.returncode}")
    return process.stdout


def _parse(printed: bytes, profile: str, root: str) -> Keys:
    try:
        members = json.loads(printed)
        if members["Version"] != 1:
            raise _process_error(profile, root, "returned a version that is not 1")
        expiration = members.get("Expiration")
        expires = datetime.fromisoformat(expiration) if expiration else None
        access_key, secret = members["AccessKeyId"], members["SecretAccessKey"]
        token = members.get("SessionToken")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _process_error(profile, root, "returned something other than credentials") from None
    if not (isinstance(access_key, str) and isinstance(secret, str) and access_key and secret):
        raise _process_error(profile, root, "returned something other than credentials")
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    return Keys(
        access_key=access_key,
        secret=secret,
        token=token if isinstance(token, str) and token else None,
        expires=expires,
    )


def _process_error(profile: str, root: str, what: str) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"the credential_process of the AWS profile {profile!r:.80} for {root} {what}",
        next_step="Run the command of credential_process in ~/.aws/config by hand; it must print "
        "credentials as JSON, with Version 1.",
    )
