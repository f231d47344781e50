from __future__ import annotations

from collections.abc import Mapping

import pytest

from omnigraph_lake.errors import InvalidInputError, OmnigraphError, StorageUnavailableError
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.s3_options import s3_options, seconds, without_secrets
from omnigraph_lake.storage.objects.store import StoredObjects

pytestmark = pytest.mark.unit

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "hush"}
PLACE = {"AWS_REGION": "r1"}


def options(
    given: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    return s3_options(given or {}, environment or {}, root="s3://b/g")


def test_the_variables_that_every_tool_knows_become_options() -> None:
    environment = {
        **KEYS,
        **PLACE,
        "AWS_SESSION_TOKEN": "t",
        "AWS_ENDPOINT_URL": "http://general",
        "AWS_ENDPOINT_URL_S3": "http://special",
        "AWS_ALLOW_HTTP": "TRUE",
        "AWS_S3_FORCE_PATH_STYLE": "true",
        "OMNIGRAPH_S3_TIMEOUT": "5",
    }

    assert options(environment=environment) == {
        "aws_access_key_id": "k",
        "aws_secret_access_key": "hush",
        "aws_session_token": "t",
        "aws_region": "r1",
        "aws_endpoint": "http://special",
        "allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
        "timeout": "5000ms",
        "client_retry_timeout": "5",
    }


def test_options_of_the_graph_win_over_variables() -> None:
    given = {"REGION": "r2", "access_key_id": "mine", "aws_secret_access_key": "own"}

    found = options(given, {**KEYS, **PLACE, "AWS_SESSION_TOKEN": "theirs"})

    assert (found["aws_region"], found["aws_access_key_id"]) == ("r2", "mine")
    assert "aws_session_token" not in found


def test_resolved_options_resolve_to_themselves() -> None:
    once = options(environment={**KEYS, **PLACE, "AWS_S3_FORCE_PATH_STYLE": "1"})

    assert options(once) == once


def test_nothing_waits_for_ever_unless_told() -> None:
    assert options(environment=PLACE)["timeout"] == "60000ms"


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        ({}, "AWS_REGION"),
        ({"region": "r", "endpoint": "http://h"}, "AWS_ALLOW_HTTP"),
        ({"region": "r", "endpoint": "http://h", "allow_http": "false"}, "AWS_ALLOW_HTTP"),
        ({"region": "r", "access_key_id": "k"}, "AWS_SECRET_ACCESS_KEY"),
        ({"region": "r", "secret_access_key": "k"}, "AWS_ACCESS_KEY_ID"),
    ],
)
def test_what_is_missing_is_named_by_its_variable(given: dict[str, str], variable: str) -> None:
    with pytest.raises(StorageUnavailableError, match=variable):
        options(given)


@pytest.mark.parametrize(
    "given",
    [
        {"region": "r", "timeout": "soon"},
        {"region": "r", "timeout": "0"},
        {"region": "r", "allow_http": "perhaps"},
        {"region": "r", "AWS_REGION": "other"},
        {"region": "r", "endpoint": "https://user:pass@host"},
    ],
)
def test_values_that_mean_nothing_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        options(given)


def test_a_name_that_is_no_option_is_refused() -> None:
    root = parse_root("s3://b/g", storage_options={"region": "r", "acess_key": "x"})

    with pytest.raises(InvalidInputError, match="acess_key"):
        StoredObjects(root)


@pytest.mark.parametrize(("text", "expected"), [("2s", 2.0), ("500ms", 0.5), ("1.5", 1.5)])
def test_times_are_seconds_unless_they_say_else(text: str, expected: float) -> None:
    assert seconds(text) == expected


def test_secrets_leave_a_text() -> None:
    given = {"aws_secret_access_key": "hush", "aws_session_token": "hushhush", "aws_region": "r"}

    assert without_secrets("hush! hushhush r", given) == "***! *** r"


def test_no_refusal_shows_a_secret() -> None:
    with pytest.raises(OmnigraphError) as caught:
        options({"secret_access_key": "hush", "aws_secret_access_key": "hush2", "region": "r"})

    assert "hush" not in str(caught.value)
