"""MinIO, and emulators of Azure's and Google's object stores: one process and folder each."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from tests.s3.signing import REGION, signed_request
from tests.s3.tools import address_of, built, required, reserve_port

ACCOUNT: Final = "devstoreaccount1"
ACCOUNT_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The account that every Azurite has; documented, no secret."""
CONTAINER: Final = "graphs"
_SCRIPT: Final = Path(__file__).parents[2] / ".ci" / "emulators"
_START_SECONDS: Final = 60.0
_VERSION: Final = "2021-08-06"


class _Server:
    """One process that answers on an address of the loopback interface."""

    def __init__(self) -> None:
        subprocess.run(["bash", _SCRIPT], check=True)
        self._reservation = reserve_port()
        self.host, _, self.port = address_of(self._reservation).partition(":")
        self.endpoint = f"http://{self.host}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._prepare()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _prepare(self) -> None:
        raise NotImplementedError

    def _start(self, command: Sequence[str], log: Path, **variables: str) -> None:
        environment = {**os.environ, **variables}
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(self.endpoint):
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=60)
        self._reservation.close()


class MinIO(_Server):
    """An S3 server of its own making, with one bucket."""

    _USER: Final = ("minio-user", "minio-secret-4714")

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._home = home

    def _prepare(self) -> None:
        user, secret = self._USER
        where = ("--address", f"{self.host}:{self.port}", "--console-address", f"{self.host}:0")
        self._start(
            [required(built("minio")), "server", *where, str(self._home / "data")],
            self._home / "log",
            MINIO_ROOT_USER=user,
            MINIO_ROOT_PASSWORD=secret,
            MINIO_BROWSER="off",
            MINIO_UPDATE="off",
        )
        signed_request(self.endpoint, "PUT", f"/{CONTAINER}", access=user, secret=secret)

    def options(self) -> dict[str, str]:
        user, secret = self._USER
        return {
            "aws_access_key_id": user,
            "aws_secret_access_key": secret,
            "aws_region": REGION,
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }


class Azurite(_Server):
    """Azure's blob storage, with one container."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._home = home

    def _prepare(self) -> None:
        module = built("").parent / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob"
        where = ("--blobHost", self.host, "--blobPort", self.port, "--location", str(self._home))
        quiet = ("--silent", "--disableTelemetry", "--skipApiVersionCheck")
        self._start(["node", str(module / "main.js"), *where, *quiet], self._home / "log")
        self._create_container()

    def options(self, key: str = ACCOUNT_KEY) -> dict[str, str]:
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": key,
            "azure_storage_endpoint": f"{self.endpoint}/{ACCOUNT}",
            "allow_http": "true",
        }

    def _create_container(self) -> None:
        at = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": at, "x-ms-version": _VERSION}
        listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
        resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        text = "PUT" + "\n" * 12 + listed + resource
        signed = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}"
        place = f"{self.endpoint}/{ACCOUNT}/{CONTAINER}?restype=container"
        _request("PUT", place, None, headers)


class FakeGcs(_Server):
    """Google's object storage, with one bucket; this emulator takes no conditional puts."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._home = home

    def _prepare(self) -> None:
        where = ("-scheme", "http", "-host", self.host, "-port", self.port)
        public = ("-public-host", f"{self.host}:{self.port}", "-external-url", self.endpoint)
        program = required(built("fake-gcs-server"))
        self._start([program, *where, *public, "-backend", "memory"], self._home / "log")
        body = json.dumps({"name": CONTAINER}).encode()
        _request("POST", f"{self.endpoint}/storage/v1/b?project=test", body, _JSON)

    def put(self, path: str, content: bytes) -> None:
        query = urllib.parse.urlencode({"uploadType": "media", "name": path})
        place = f"{self.endpoint}/upload/storage/v1/b/{CONTAINER}/o?{query}"
        _request("POST", place, content, {"Content-Type": "application/octet-stream"})

    def options(self) -> dict[str, str]:
        account = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"google_service_account_key": json.dumps(account), "allow_http": "true"}


_JSON: Final = {"Content-Type": "application/json"}


def _request(method: str, address: str, body: bytes | None, headers: Mapping[str, str]) -> None:
    request = urllib.request.Request(address, body, dict(headers), method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310
        pass


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):  # noqa: S310
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def variables(options: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that reaches a store by variables."""
    cloud = "AWS" if "aws_region" in options else "AZURE"
    named = {"allow_http": f"{cloud}_ALLOW_HTTP"}
    return {**os.environ, **{named.get(name, name.upper()): text for name, text in options.items()}}
