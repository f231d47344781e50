"""A real S3 server on this machine: one process, one folder, one bucket, two users.

`python -m tests.s3.server FOLDER` starts one by hand and prints what to export.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.s3.signing import REGION, signed_request
from tests.s3.tools import address_of, built, required, reserve_port
from tests.stores import BUCKET as BUCKET
from tests.stores import SERVED_FOLDER

WRITER, READER = ("writer", "writer-secret-4711"), ("reader", "reader-secret-4712")
_ROOT: Final = ("testroot", "testroot-secret-4713")
_START_SECONDS: Final = 60.0


def binary() -> Path:
    """Where `just s3-tools` puts the server."""
    return built("versitygw")


class S3Server:
    """One running server; `kill` and `start` again keep its folder and its address."""

    def __init__(self, home: Path) -> None:
        self._program = required(binary())
        self.data, self._iam = home / "data", home / "iam"
        self._log = home / "log"
        for folder in (self.data, self._iam):
            folder.mkdir(parents=True, exist_ok=True)
        self._reservation = reserve_port()
        self._address = address_of(self._reservation)
        self.endpoint = f"http://{self._address}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it answers."""
        command = [
            self._program,
            *("--port", self._address, "--region", REGION, "--health", "/health"),
            *("--iam-dir", str(self._iam), "--iam-cache-ttl", "1", "--keep-alive", "--quiet"),
            *("posix", str(self.data)),
        ]
        access, secret = _ROOT
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret},
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(f"{self.endpoint}/health"):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def prepare(self) -> None:
        """Make the bucket, a user who may do everything in it and one who may only read."""
        access, secret = _ROOT
        for user, password in (WRITER, READER):
            self._admin("create-user", "--access", user, "--secret", password, "--role", "user")
        signed_request(self.endpoint, "PUT", f"/{BUCKET}", access=access, secret=secret)
        signed_request(
            self.endpoint,
            "PUT",
            f"/{BUCKET}",
            query="policy=",
            body=json.dumps(_policy()).encode(),
            access=access,
            secret=secret,
        )

    def kill(self) -> None:
        """Stop it as a power switch would; it can be started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=60)
            self._process = None

    def stop(self) -> None:
        """Stop it for good. On SIGTERM it would wait ten seconds for idle connections to end."""
        self.kill()
        self._reservation.close()

    def folder_of(self, root: str) -> Path:
        """Where the files of a root are."""
        return self.data / root.removeprefix("s3://")

    def options(self, user: tuple[str, str] = WRITER, /, **more: str) -> dict[str, str]:
        """The storage options of a user."""
        return {
            "aws_access_key_id": user[0],
            "aws_secret_access_key": user[1],
            "aws_region": REGION,
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
            **more,
        }

    def environment(self, user: tuple[str, str] = WRITER) -> dict[str, str]:
        """The same as the variables that every tool knows."""
        return {
            "AWS_ACCESS_KEY_ID": user[0],
            "AWS_SECRET_ACCESS_KEY": user[1],
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            SERVED_FOLDER: str(self.data),
        }

    def _admin(self, *arguments: str) -> None:
        access, secret = _ROOT
        account = ("--access", access, "--secret", secret, "--endpoint-url", self.endpoint)
        subprocess.run(
            [self._program, "admin", *account, *arguments], check=True, capture_output=True
        )


def _policy() -> Mapping[str, object]:
    everything = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]
    return {
        "Statement": [
            _allow(WRITER[0], ["s3:*"], everything),
            _allow(READER[0], ["s3:GetObject"], everything[1:]),
            _allow(READER[0], ["s3:ListBucket"], everything[:1]),
        ]
    }


def _allow(user: str, actions: list[str], resources: list[str]) -> Mapping[str, object]:
    return {
        "Effect": "Allow",
        "Principal": {"AWS": [user]},
        "Action": actions,
        "Resource": resources,
    }


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):  # noqa: S310
            return True
    except OSError:
        return False


def _by_hand(folder: str) -> None:
    server = S3Server(Path(folder))
    fresh = not (server.data / BUCKET).exists()
    server.start()
    if fresh:
        server.prepare()
    for name, value in server.environment().items():
        print(f"export {name}={value}")
    print(f"# the bucket is s3://{BUCKET}; end it with Ctrl-C", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        server.stop()


if __name__ == "__main__":
    _by_hand(sys.argv[1])
