"""Reading texts from files or standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from omnigraph.errors import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

STDIN: Final = "-"


def text_of(path: Path) -> str:
    """The content of a file; `-` is standard input."""
    try:
        if str(path) == STDIN:
            return sys.stdin.read()
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}", next_step="Give the path of a UTF-8 text file."
        ) from error
