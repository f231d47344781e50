"""A store that cannot be used says so at once, by a typed error that names what to set."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import OmnigraphError, StorageUnavailableError
from tests.s3.server import WRITER, S3Server

pytestmark = pytest.mark.s3

SCHEMA = "node Person { name: String @key }"
WRONG_SECRET = "wrong-secret-0815"  # noqa: S105
COMMAND = str(Path(sys.executable).parent / "omnigraph")


def changed(options: Mapping[str, str], **by: str | None) -> dict[str, str]:
    merged = {**options, **by}
    return {name: value for name, value in merged.items() if value is not None}


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address where requests are taken and never answered."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(100)
        yield f"http://127.0.0.1:{hole.getsockname()[1]}"


def problem(root: str, options: Mapping[str, str]) -> str:
    """What a reader, a writer and a creator are told; the same for all, and without secrets."""
    steps: set[str] = set()
    calls: list[Callable[[], object]] = [
        lambda: omnigraph.open(root, mode="r", storage_options=options),
        lambda: omnigraph.open(root, storage_options=options),
        lambda: omnigraph.init(root, schema=SCHEMA, storage_options=options),
    ]
    for call in calls:
        with pytest.raises(StorageUnavailableError) as caught:
            call()
        assert_no_secret("".join(traceback.format_exception(caught.value)), options)
        assert root in caught.value.what
        steps.add(caught.value.next_step)
    (step,) = steps
    return step


def assert_no_secret(text: str, options: Mapping[str, str]) -> None:
    for secret in (WRITER[1], WRONG_SECRET, options.get("aws_secret_access_key")):
        assert secret is None or secret not in text


@pytest.mark.parametrize(
    ("change", "variable"),
    [
        ({"aws_region": None}, "AWS_REGION"),
        ({"aws_region": "eu-west-9"}, "AWS_REGION"),
        ({"allow_http": None}, "AWS_ALLOW_HTTP"),
        ({"aws_secret_access_key": WRONG_SECRET}, "AWS_SECRET_ACCESS_KEY"),
        ({"aws_access_key_id": "stranger"}, "AWS_ACCESS_KEY_ID"),
        ({"aws_secret_access_key": None}, "AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_a_wrong_or_missing_setting_is_named(
    writer: Mapping[str, str], s3_root: str, change: Mapping[str, str | None], variable: str
) -> None:
    assert variable in problem(s3_root, changed(writer, **change))


def test_a_bucket_that_does_not_exist_is_not_an_empty_one(writer: Mapping[str, str]) -> None:
    assert "Create the bucket" in problem("s3://no-such-bucket/g", writer)


def test_a_server_that_is_not_there_is_told(
    writer: Mapping[str, str], s3_root: str, nobody: str
) -> None:
    assert "AWS_ENDPOINT_URL" in problem(s3_root, changed(writer, aws_endpoint=nobody))


def test_a_server_that_never_answers_is_given_up(
    writer: Mapping[str, str], s3_root: str, black_hole: str
) -> None:
    options = changed(writer, aws_endpoint=black_hole, timeout="300ms")
    started = time.monotonic()

    with pytest.raises(StorageUnavailableError, match="OMNIGRAPH_S3_TIMEOUT"):
        omnigraph.open(s3_root, mode="r", storage_options=options)

    # A listing is asked for six times, with growing pauses.
    assert time.monotonic() - started < 6 * 0.3 + 10


def test_a_command_tells_the_same_and_shows_no_secret(served: S3Server, s3_root: str) -> None:
    environment = {**os.environ, **served.environment(), "AWS_SECRET_ACCESS_KEY": WRONG_SECRET}

    done = subprocess.run(
        [COMMAND, "status", s3_root], env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == StorageUnavailableError.exit_code
    assert "AWS_SECRET_ACCESS_KEY" in done.stderr
    assert WRONG_SECRET not in done.stdout + done.stderr


def test_a_command_works_with_nothing_but_variables(
    served: S3Server, s3_root: str, tmp_path: Path
) -> None:
    environment = {**os.environ, **served.environment()}
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "p.jsonl").write_text('{"type": "Person", "data": {"name": "ann"}}\n')
    for arguments in (
        ["init", s3_root, "--schema", str(tmp_path / "s.pg")],
        ["load", s3_root, str(tmp_path / "p.jsonl")],
        ["check", s3_root],
    ):
        done = subprocess.run(
            [COMMAND, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert WRITER[1] not in done.stdout + done.stderr


def test_a_graph_never_shows_the_options_it_was_opened_with(
    writer: Mapping[str, str], s3_root: str
) -> None:
    graph = omnigraph.init(s3_root, schema=SCHEMA, storage_options=writer)
    shown = [repr(graph), str(graph), graph._repr_html_(), repr(graph._objects)]
    shown += [repr(graph._objects.root), repr(graph._manifest()), repr(graph.status())]
    try:
        graph.write({"Person": [{"nam": "x"}]})
    except OmnigraphError as error:
        shown.append("".join(traceback.format_exception(error)))

    assert_no_secret("\n".join(shown), writer)
