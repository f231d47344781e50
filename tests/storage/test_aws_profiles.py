"""Profiles of the AWS configuration files, with real files and processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from omnigraph_lake.errors import StorageUnavailableError
from omnigraph_lake.storage.objects.s3_options import s3_options

pytestmark = pytest.mark.unit

SECRET = "secret-of-the-process"  # noqa: S105


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".aws").mkdir()
    return tmp_path


def resolved(
    home: Path, options: Mapping[str, str] | None = None, /, **variables: str
) -> Mapping[str, str]:
    return s3_options(options or {}, {"HOME": str(home), **variables}, root="s3://bucket/g")


def keys(options: Mapping[str, str]) -> tuple[str | None, ...]:
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_region")
    return tuple(options.get(name) for name in names)


def write_process(home: Path, printed: str, *, exit_code: int = 0) -> Path:
    """A program that prints credentials, counts its runs, and has something to hide on stderr."""
    script = home / "give keys.py"
    script.write_text(
        "import sys, pathlib\n"
        f"runs = pathlib.Path({str(home / 'runs')!r})\n"
        "runs.open('a').write('x')\n"
        f"print({printed!r})\n"
        f"print({SECRET!r}, file=sys.stderr)\n"
        f"sys.exit({exit_code})\n"
    )
    (home / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\n"
        f"[profile work]\nregion = eu-central-1\ncredential_process = {sys.executable} "
        f"'{script}' {home.name}\n"
    )
    return home / "runs"


def printed_keys(**more: object) -> str:
    keys = {"Version": 1, "AccessKeyId": "AKIA-P", "SecretAccessKey": SECRET, **more}
    return json.dumps(keys)


def test_a_profile_gives_keys_and_a_region(home: Path) -> None:
    (home / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = a%b\n"
        "[work]\naws_access_key_id = B\naws_secret_access_key = b\naws_session_token = t\n"
    )
    (home / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\n[profile work]\nregion = eu-central-1\n"
        "endpoint_url = https://store.example\n"
    )

    assert keys(resolved(home)) == ("A", "a%b", None, "eu-west-1")
    work = resolved(home, AWS_PROFILE="work")
    assert keys(work) == ("B", "b", "t", "eu-central-1")
    assert work["aws_endpoint"] == "https://store.example"
    assert resolved(home, {"aws_profile": "work"}) == work, "the name itself goes nowhere"


def test_keys_that_are_given_come_before_a_profile(home: Path) -> None:
    (home / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = a\naws_session_token = t\n"
    )
    variables = {"AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "e", "AWS_REGION": "r"}

    assert keys(resolved(home, {}, **variables)) == ("E", "e", None, "r")
    assert keys(resolved(home, {"profile": "default"}, **variables)) == ("A", "a", "t", "r")
    identity = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_REGION": "r"}
    assert keys(resolved(home, {}, **identity)) == (None, None, None, "r")


def test_files_are_found_by_their_variables(home: Path) -> None:
    elsewhere = home / "elsewhere"
    elsewhere.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = a\n")

    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/elsewhere", "AWS_CONFIG_FILE": str(home / "none")}
    assert keys(resolved(home, {}, AWS_REGION="r", **files)) == ("A", "a", None, "r")


def test_a_process_is_asked_once_until_its_keys_expire(home: Path) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    runs = write_process(home, printed_keys(SessionToken="t", Expiration=soon.isoformat()))

    for _ in range(3):
        assert keys(resolved(home, AWS_PROFILE="work")) == ("AKIA-P", SECRET, "t", "eu-central-1")
    assert runs.read_text() == "x"

    almost = (datetime.now(UTC) + timedelta(minutes=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    write_process(home, printed_keys(Expiration=almost))
    config = home / ".aws" / "config"
    config.write_text(config.read_text().replace(home.name + "\n", "again\n"))
    for _ in range(2):
        assert keys(resolved(home, AWS_PROFILE="work"))[:3] == ("AKIA-P", SECRET, None)
    assert runs.read_text() == "xxx"


@pytest.mark.parametrize(
    ("printed", "exit_code", "message"),
    [
        ("", 0, "something other than credentials"),
        (f'["{SECRET}"]', 0, "something other than credentials"),
        (json.dumps({"Version": 1, "SecretAccessKey": SECRET}), 0, "other than credentials"),
        (printed_keys(Version=2), 0, "a version that is not 1"),
        (printed_keys(Expiration="2020-01-01T00:00:00Z"), 0, "have expired"),
        (printed_keys(), 3, "exit code 3"),
    ],
)
def test_a_process_that_fails_is_named_and_shows_no_secret(
    home: Path, printed: str, exit_code: int, message: str
) -> None:
    write_process(home, printed, exit_code=exit_code)

    with pytest.raises(StorageUnavailableError, match=message) as raised:
        resolved(home, AWS_PROFILE="work")

    assert "'work'" in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[default]\nregion = r\n", "there is no AWS profile 'work'"),
        ("[profile work]\nsso_session = s\nregion = r\n", "has sso_session"),
        ("[profile work]\nrole_arn = arn:x\nsource_profile = default\n", "has role_arn"),
        ("[profile work]\ncredential_process = /nonexistent/program\n", "cannot be run"),
        (f"{SECRET} is no section\n", "cannot be read: MissingSectionHeaderError"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused(home: Path, config: str, message: str) -> None:
    (home / ".aws" / "config").write_text(config)

    with pytest.raises(StorageUnavailableError, match=message) as raised:
        resolved(home, AWS_PROFILE="work")

    assert SECRET not in str(raised.value)
