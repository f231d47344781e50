"""Escaping of control characters for terminals.

Invariant: whatever a graph, a file or an error holds, no control character of it reaches a
terminal: it is shown as Python spells it in a text. Messages are written like that everywhere. Rows
that go to a file or a pipe keep their exact bytes.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import IO, TYPE_CHECKING, Final

from omnigraph.display.cells import printable

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LINES_AND_TABS: Final = re.compile(r"([\n\t])")


def visible(text: str) -> str:
    """The text with every control character but line ends and tabs as an escape."""
    if text.isprintable():
        return text
    parts = _LINES_AND_TABS.split(text.replace("\r\n", "\n"))
    return "".join(part if part in {"\n", "\t"} else printable(part) for part in parts)


class VisibleBytes(io.RawIOBase):
    """A stream of rows on their way to a terminal."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        content = memoryview(data).cast("B")
        self._stream.write(visible(self._decoder.decode(content)).encode())
        return len(content)

    def flush(self) -> None:
        self._stream.flush()
