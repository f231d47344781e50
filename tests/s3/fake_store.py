"""A tiny store that speaks S3 and ignores the condition of a put, as some do.

It knows what Lance and obstore need to read a graph: whole and partial objects, their sizes and
listings. It checks no signature.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "forgetful"


class ForgetfulStore(ThreadingHTTPServer):
    """Every put is accepted and answered with 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content: dict[str, bytes] = {}
        self.connections = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def options(self) -> dict[str, str]:
        return {
            "aws_access_key_id": "anybody",
            "aws_secret_access_key": "anything",
            "aws_region": "us-east-1",
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
            "timeout": "5s",
        }

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)


@contextmanager
def forgetful_store() -> Iterator[ForgetfulStore]:
    """The store, for a while."""
    store = ForgetfulStore()
    thread = threading.Thread(
        target=store.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield store
    finally:
        store.shutdown()
        store.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ForgetfulStore

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.content[self._key()] = body
        self._answer(200, b"", ETag='"e"')

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if "list-type" in asked.query:
            self._answer(200, self._listing(parse_qs(asked.query)))
            return
        content = self.server.content.get(self._key())
        if content is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>")
            return
        first, last = self._range(len(content))
        part, whole = content[first : last + 1], len(content)
        if len(part) == whole:
            self._answer(200, content, ETag='"e"')
        else:
            place = {"Content-Range": f"bytes {first}-{last}/{whole}"}
            self._answer(206, part, ETag='"e"', **place)

    do_HEAD = do_GET  # noqa: N815 - as the base calls it

    def do_DELETE(self) -> None:
        self.server.content.pop(self._key(), None)
        self._answer(204, b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base has it
        """Nothing: tests read their own output."""

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")

    def _range(self, size: int) -> tuple[int, int]:
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            return 0, size - 1
        if not asked[1]:
            return size - int(asked[2]), size - 1
        return int(asked[1]), min(int(asked[2] or size - 1), size - 1)

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("start-after", [""])[0]
        objects, folders = [], set()
        for key, content in sorted(self.server.content.items()):
            if not key.startswith(prefix) or key <= after:
                continue
            inside, cut, _ = key.removeprefix(prefix).partition(delimiter or "\0")
            if delimiter and cut:
                folders.add(f"{prefix}{inside}{delimiter}")
            else:
                objects.append((key, len(content)))
        return (
            "<ListBucketResult><IsTruncated>false</IsTruncated>"
            + "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><ETag>e</ETag>"
                "<LastModified>2026-11-15T00:00:00.000Z</LastModified></Contents>"
                for key, size in objects
            )
            + "".join(
                f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>"
                for each in sorted(folders)
            )
            + "</ListBucketResult>"
        ).encode()

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Last-Modified", "Sun, 15 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
