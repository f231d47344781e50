"""An editor: a client of the language server over the standard streams of a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

LANGUAGES: Final = {".pg": "omnigraph-schema", ".gq": "omnigraph-query"}


class Editor:
    """A server that was started in a folder, and what it said."""

    def __init__(
        self, folder: Path, *arguments: str, encodings: list[str] | None = None, **options: str
    ) -> None:
        self.folder = folder
        self.diagnostics: dict[str, list[dict[str, Any]]] = {}
        self._versions: dict[str, int] = {}
        self._requests = 0
        self._server = subprocess.Popen(
            [sys.executable, "-m", "omnigraph_lake", "lsp", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
        )
        capabilities: dict[str, Any] = {"textDocument": {"rename": {"prepareSupport": True}}}
        if encodings is not None:
            capabilities["general"] = {"positionEncodings": encodings}
        self.initialized = self.ask(
            "initialize",
            processId=None,
            rootUri=folder.as_uri(),
            workspaceFolders=[{"uri": folder.as_uri(), "name": folder.name}],
            capabilities=capabilities,
            initializationOptions=options or None,
        )["result"]
        self.tell("initialized")

    def uri(self, name: str) -> str:
        return (self.folder / name).resolve().as_uri()

    def open(self, name: str, text: str) -> list[dict[str, Any]]:
        language = LANGUAGES[Path(name).suffix]
        document = {"uri": self.uri(name), "languageId": language, "version": 1, "text": text}
        self._versions[name] = 1
        self.tell("textDocument/didOpen", textDocument=document)
        return self.findings(name)

    def type(self, name: str, text: str) -> None:
        """Replace the text of a document, as typing does."""
        self._versions[name] += 1
        document = {"uri": self.uri(name), "version": self._versions[name]}
        self.tell("textDocument/didChange", textDocument=document, contentChanges=[{"text": text}])

    def findings(self, name: str) -> list[dict[str, Any]]:
        """The findings about the current version of a document."""
        while True:
            message = self._receive()
            if message.get("method") == "textDocument/publishDiagnostics":
                params = message["params"]
                if params["uri"] == self.uri(name):
                    assert params["version"] == self._versions[name]
                    found: list[dict[str, Any]] = params["diagnostics"]
                    return found

    def at(self, method: str, name: str, line: int, character: int, **more: Any) -> dict[str, Any]:
        """The response to a request about a place of a document."""
        return self.ask(
            f"textDocument/{method}",
            textDocument={"uri": self.uri(name)},
            position={"line": line, "character": character},
            **more,
        )

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._requests += 1
        self._send({"id": self._requests, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == self._requests and "method" not in message:
                return message

    def tell(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def mapped_files(self) -> str:
        """The libraries, and other files, in the memory of the server."""
        return Path(f"/proc/{self._server.pid}/maps").read_text()

    def close(self) -> int:
        """Say goodbye; the exit code of the server."""
        self._send({"id": 0, "method": "shutdown"})
        while self._receive().get("id") != 0:
            pass
        self._send({"method": "exit"})
        return self._server.wait(timeout=20)

    def hang_up(self) -> int:
        """End without a goodbye, as an editor that was killed."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        return self._server.wait(timeout=20)

    def __enter__(self) -> Editor:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait()
        for stream in (self._server.stdin, self._server.stdout):
            assert stream is not None
            stream.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._server.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        length = 0
        while (header := self._server.stdout.readline().strip()) or not length:
            assert header, "the server has ended"
            name, _, value = header.partition(b": ")
            length = int(value) if name == b"Content-Length" else length
        message: dict[str, Any] = json.loads(self._server.stdout.read(length))
        return message


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    """A text after edits, whose positions count UTF-16 units."""
    lines = text.split("\n")

    def offset(position: dict[str, int]) -> int:
        start = sum(len(line) + 1 for line in lines[: position["line"]])
        units = lines[position["line"]].encode("utf-16-le")[: 2 * position["character"]]
        return start + len(units.decode("utf-16-le"))

    for edit in sorted(edits, key=lambda edit: offset(edit["range"]["start"]), reverse=True):
        start, end = offset(edit["range"]["start"]), offset(edit["range"]["end"])
        text = text[:start] + edit["newText"] + text[end:]
    return text
