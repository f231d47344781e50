"""Tests that are about S3 itself always use the server, by options: no variable helps them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.s3.server import READER, S3Server
from tests.stores import BUCKET, SERVED_FOLDER


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "OMNIGRAPH_S3_")):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


@pytest.fixture
def served(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, its files known to `folder_of`."""
    monkeypatch.setenv(SERVED_FOLDER, str(s3_server.data))
    return s3_server


@pytest.fixture
def s3_root(tmp_path: Path) -> str:
    """A root in the bucket that was never used before."""
    return f"s3://{BUCKET}{tmp_path}/graph"


@pytest.fixture(scope="session")
def writer(s3_server: S3Server) -> Mapping[str, str]:
    return s3_server.options()


@pytest.fixture(scope="session")
def reader(s3_server: S3Server) -> Mapping[str, str]:
    return s3_server.options(READER)
