"""A store that cannot be used says so at once, by a typed error that names what to set."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from socket import socket

import pytest

import omnigraph_lake as og
from omnigraph_lake.cli.main import main
from omnigraph_lake.errors import OmnigraphError, StorageUnavailableError
from tests.s3.server import WRITER, S3Server
from tests.s3.test_faults_timeouts import LISTED_TIMES
from tests.s3.tools import address_of, reserve_port

pytestmark = pytest.mark.s3

SCHEMA = "node Person { name: String @key }"
WRONG_SECRET = "wrong-secret-0815"  # noqa: S105


def changed(options: Mapping[str, str], **by: str | None) -> dict[str, str]:
    merged = {**options, **by}
    return {name: value for name, value in merged.items() if value is not None}


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address at which no server listens."""
    with closing(reserve_port()) as reservation:
        yield f"http://{address_of(reservation)}"


@pytest.fixture
def black_hole() -> Iterator[socket]:
    """A socket whose clients are connected and never answered."""
    with closing(reserve_port()) as hole:
        hole.listen(100)
        hole.setblocking(False)
        yield hole


def connections_to(hole: socket) -> int:
    """How many clients are waiting."""
    connections = 0
    while True:
        try:
            hole.accept()[0].close()
        except BlockingIOError:
            return connections
        connections += 1


def problem(root: str, options: Mapping[str, str]) -> str:
    """What a reader, a writer and a creator are told; the same for all, and without secrets."""
    calls: list[Callable[[], object]] = [
        lambda: og.open(root, read_only=True, storage_options=options),
        lambda: og.open(root, storage_options=options),
        lambda: og.init(root, schema=SCHEMA, storage_options=options),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:  # most of it is pauses between attempts
        errors = list(pool.map(error_of, calls))
    for error in errors:
        assert_no_secret("".join(traceback.format_exception(error)), options)
        assert root in error.what
    (step,) = {error.next_step for error in errors}
    return step


def error_of(call: Callable[[], object]) -> StorageUnavailableError:
    with pytest.raises(StorageUnavailableError) as caught:
        call()
    return caught.value


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
    writer: Mapping[str, str], s3_root: str, refusing: str
) -> None:
    options = changed(writer, aws_endpoint=refusing, timeout="6s")

    assert "AWS_ENDPOINT_URL" in problem(s3_root, options)


def test_a_server_that_never_answers_is_given_up(
    writer: Mapping[str, str], s3_root: str, black_hole: socket
) -> None:
    endpoint = f"http://{address_of(black_hole)}"
    options = changed(writer, aws_endpoint=endpoint, timeout="6s")

    with pytest.raises(StorageUnavailableError, match="OMNIGRAPH_S3_TIMEOUT"):
        og.open(s3_root, read_only=True, storage_options=options)

    assert 0 < connections_to(black_hole) <= LISTED_TIMES


class Commands:
    """Runs the command line in this process, which takes a tenth of the CPU of another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def run(self, *arguments: str) -> tuple[int, str]:
        """The exit code and everything that was shown, by libraries as well."""
        self._monkeypatch.setattr(sys, "argv", ["omnigraph", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = self._capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, shown.out + shown.err


@pytest.fixture
def commands(
    served: S3Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Commands:
    """Commands that learn of the store from variables only."""
    for name, value in served.environment().items():
        monkeypatch.setenv(name, value)
    return Commands(monkeypatch, capfd)


def test_a_command_tells_the_same_and_shows_no_secret(
    commands: Commands, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", WRONG_SECRET)

    code, shown = commands.run("status", s3_root)

    assert code == StorageUnavailableError.exit_code
    assert "AWS_SECRET_ACCESS_KEY" in shown
    assert WRONG_SECRET not in shown


def test_a_command_works_with_nothing_but_variables(
    commands: Commands, s3_root: str, tmp_path: Path
) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "p.jsonl").write_text('{"type": "Person", "data": {"name": "ann"}}\n')
    for arguments in (
        ("init", s3_root, "--schema", str(tmp_path / "s.pg")),
        ("load", s3_root, str(tmp_path / "p.jsonl")),
        ("check", s3_root),
    ):
        code, shown = commands.run(*arguments)
        assert code == 0, shown
        assert WRITER[1] not in shown


def test_a_graph_never_shows_the_options_it_was_opened_with(
    writer: Mapping[str, str], s3_root: str
) -> None:
    graph = og.init(s3_root, schema=SCHEMA, storage_options=writer)
    shown = [repr(graph), str(graph), graph._repr_html_(), repr(graph._objects)]
    shown += [
        repr(graph._objects.root),
        repr(graph._handle.manifest()),
        repr(graph.maintenance.status()),
    ]
    try:
        graph.write({"Person": [{"nam": "x"}]})
    except OmnigraphError as error:
        shown.append("".join(traceback.format_exception(error)))

    assert_no_secret("\n".join(shown), writer)
