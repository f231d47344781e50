"""Where a text stops fitting a grammar, and what could have stood there.

Both languages share this module; it knows neither of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from lark.exceptions import UnexpectedCharacters, UnexpectedToken

if TYPE_CHECKING:
    from lark import Lark


def refused_at(grammar: Lark, text: str) -> tuple[int, Collection[str]]:
    """The offset of a text that does not parse, and the tokens that the grammar would have taken.

    This is a second, stepwise parse: only its state knows exactly what could have followed.
    """
    interactive: Any = grammar.parse_interactive(text)
    offset: int | None = len(text)
    try:
        interactive.exhaust_lexer()
        interactive.feed_eof()
    except UnexpectedCharacters as unexpected:
        offset = unexpected.pos_in_stream
    except UnexpectedToken as unexpected:
        offset = len(text) if unexpected.token.type == "$END" else unexpected.token.start_pos
    assert offset is not None
    return offset, interactive.accepts()
