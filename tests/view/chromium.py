"""A real Chromium, driven over a pipe: opens a page, runs expressions in it, takes screenshots.

It has a new profile, no sandbox and no services of its own, so whatever request it makes is one of
the page.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_SECONDS_MAX = 60.0
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  violations.push(event.blockedURI + " " + event.violatedDirective));
window.failures = [];
window.addEventListener("error", (event) => failures.push(String(event.message)));
"""


class Tab:
    """One page of a browser."""

    def __init__(self, commands: int, replies: int) -> None:
        self._commands = commands
        self._replies = replies
        self._waiting = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.dialogs: list[str] = []

    def attach(self, width: int, height: int) -> None:
        """Open an empty page of this size."""
        target = self.send("Target.createTarget", url="about:blank")
        session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = session["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.send(f"{domain}.enable")
        self.send("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and wait for its result."""
        self._number += 1
        message: dict[str, object] = {
            "id": self._number,
            "method": method,
            "params": parameters,
        }
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                result: dict[str, Any] = reply["result"]
                return result

    def prefer(self, scheme: str) -> None:
        """Prefer light or dark pages."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def open(self, path: Path, *, ready: str = "document.documentElement?.dataset.painted") -> None:
        """Open a file and wait until it was drawn."""
        self.send("Page.navigate", url=path.absolute().as_uri())
        self.wait_for(ready)

    def wait_for(self, expression: str) -> Any:
        """Wait until an expression is true; its value."""
        deadline = time.monotonic() + _SECONDS_MAX
        while True:
            value = self.value(expression)
            if value:
                return value
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, **({"text": text} if text else {})
            )

    def type(self, text: str) -> None:
        """Enter a text where the focus is."""
        self.send("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        content = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(content))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            piece = os.read(self._replies, 1 << 16)
            assert piece, "the browser ended"
            self._waiting += piece
        message, _, self._waiting = self._waiting.partition(b"\0")
        event: dict[str, Any] = json.loads(message)
        self._note(event.get("method", ""), event.get("params", {}))
        return event

    def _note(self, method: str, parameters: Mapping[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])


@contextmanager
def open_tab(profile: Path, *, width: int = 1280, height: int = 800) -> Iterator[Tab]:
    """A browser with one page."""
    assert EXECUTABLE is not None
    their_commands, commands = os.pipe()
    replies, their_replies = os.pipe()
    browser = subprocess.Popen(
        [
            *("bash", "-c", 'exec "$0" "$@" 3<&"$COMMANDS" 4>&"$REPLIES"', EXECUTABLE, *_FLAGS),
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            "about:blank",
        ],
        pass_fds=(their_commands, their_replies),
        env={**os.environ, "COMMANDS": str(their_commands), "REPLIES": str(their_replies)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_commands)
    os.close(their_replies)
    try:
        tab = Tab(commands, replies)
        tab.attach(width, height)
        yield tab
    finally:
        browser.kill()
        browser.wait()
        os.close(commands)
        os.close(replies)
