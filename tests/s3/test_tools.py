"""Servers that are missing say what to run, and those that are down keep their address."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.s3.server import S3Server
from tests.s3.tools import address_of, reserve_port
from tests.s3.toxiproxy import Toxiproxy

pytestmark = pytest.mark.s3


@pytest.mark.parametrize(
    "start", [S3Server, lambda _: Toxiproxy("http://127.0.0.1:1")], ids=["server", "proxy"]
)
def test_a_missing_server_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[[Path], object]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CI_CACHE", str(tmp_path))

    with pytest.raises(FileNotFoundError, match="run `just s3-tools` once"):
        start(tmp_path)


def test_a_server_that_is_down_keeps_its_address(tmp_path: Path) -> None:
    server = S3Server(tmp_path)
    host, _, port = server.endpoint.removeprefix("http://").partition(":")
    try:
        for _ in range(2):
            server.start()
            server.kill()
            with socket.socket() as other, pytest.raises(OSError, match="already in use"):
                other.bind((host, int(port)))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)))
    finally:
        server.stop()


def test_two_ports_that_are_reserved_differ() -> None:
    with reserve_port() as first, reserve_port() as second:
        assert address_of(first) != address_of(second)
