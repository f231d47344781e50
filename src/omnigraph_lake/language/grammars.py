"""Parsers of the grammars in this package, and where a text stops fitting one.

Building the tables of a parser takes longer than most queries, so the package contains them beside
each grammar. `python -m tests.query.grammar_tables` writes them.

Both languages share this module; it knows neither of them.

Invariants:
- Tables are used only if they name the grammar, its options and the version of Lark they were built
  from. Otherwise the parser is built from the grammar: that takes longer and parses the same.
- Tables are plain JSON: reading them runs no code. A running process never writes them.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import lark
from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.grammar import Rule
from lark.lexer import TerminalDef

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from lark import Token, Transformer

TABLES: Final = "grammar_tables.json"
_SHIFT: Final = 0


class WordSteps(Protocol):
    """What a language does with its tokens between lexer and parser."""

    @property
    def always_accept(self) -> tuple[()]: ...

    def process(self, stream: Iterator[Token]) -> Iterator[Token]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The file `grammar.lark` of a package, and the options that its tables depend on."""

    package: str
    lexer: Literal["basic", "contextual"]
    maybe_placeholders: bool

    @property
    def folder(self) -> Traversable:
        return resources.files(self.package)

    def parser(self, transformer: Transformer[Any, Any], postlex: WordSteps | None = None) -> Lark:
        """From the tables of the package, or built if those are of another grammar."""
        source = self.folder.joinpath("grammar.lark").read_text("utf-8")
        tables = self._read_tables(source)
        if tables is None:
            return self._build(source, transformer=transformer, postlex=postlex)
        lark_class: Any = Lark
        loaded: Lark = lark_class._load_from_dict(  # noqa: SLF001 - `Lark.load` takes only pickles
            tables["data"], tables["memo"], transformer=transformer, postlex=postlex
        )
        return loaded

    def tables(self) -> str:
        """The contents of the file of tables, built from the grammar; equal for equal grammars."""
        source = self.folder.joinpath("grammar.lark").read_text("utf-8")
        data, memo = self._build(source).memo_serialize([TerminalDef, Rule])
        for item in memo.values():
            if "_width" in item.get("pattern", {}):
                item["pattern"]["_width"] = None  # it depends on the version of Python
        data["parser"]["parser"] = _in_order(data["parser"]["parser"])
        content = {"built_from": self._fingerprint(source), "data": data, "memo": memo}
        return json.dumps(content, separators=(",", ":")) + "\n"

    def _build(self, source: str, **applied: Any) -> Lark:
        return Lark(
            source,
            parser="lalr",
            lexer=self.lexer,
            maybe_placeholders=self.maybe_placeholders,
            **applied,
        )

    def _read_tables(self, source: str) -> Mapping[str, Any] | None:
        try:
            tables: dict[str, Any] = json.loads(self.folder.joinpath(TABLES).read_bytes())
            if tables["built_from"] != self._fingerprint(source):
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        tables["memo"] = _by_number(tables["memo"])
        parse_table = tables["data"]["parser"]["parser"]
        parse_table["states"] = _by_number(parse_table["states"])
        return tables

    def _fingerprint(self, source: str) -> str:
        parts = [source, lark.__version__, self.lexer, str(self.maybe_placeholders)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _by_number(items: Mapping[str, Any]) -> dict[int, Any]:
    """JSON has no numbers as keys."""
    return {int(key): item for key, item in items.items()}


def _in_order(table: Mapping[str, Any]) -> dict[str, Any]:
    """A parse table with its states and tokens numbered by the grammar alone, not by hashes."""
    actions = {
        state: sorted((table["tokens"][token], action) for token, action in row.items())
        for state, row in table["states"].items()
    }
    numbers: dict[int, int] = {}
    pending = deque(state for _, state in sorted(table["start_states"].items()))
    while pending:
        state = pending.popleft()
        if state not in numbers:
            numbers[state] = len(numbers)
            pending += [target for _, (kind, target) in actions[state] if kind == _SHIFT]
    tokens = {name: at for at, name in enumerate(sorted(table["tokens"].values()))}
    return {
        "tokens": {at: name for name, at in tokens.items()},
        "states": {
            number: {
                tokens[name]: (kind, numbers[target] if kind == _SHIFT else target)
                for name, (kind, target) in actions[state]
            }
            for state, number in numbers.items()
        },
        "start_states": {name: numbers[state] for name, state in table["start_states"].items()},
        "end_states": {name: numbers[state] for name, state in table["end_states"].items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexeme:
    """One token of a valid text, as the grammar named it."""

    kind: str
    text: str
    offset: int
    end: int


def lexemes_of(grammar: Lark, text: str) -> tuple[Lexeme, ...] | None:
    """Every token but white space and comments, or None if the text does not parse."""
    interactive: Any = grammar.parse_interactive(text)
    try:
        tokens: list[Any] = interactive.exhaust_lexer()
        interactive.feed_eof()
    except UnexpectedInput:
        return None
    return tuple(
        Lexeme(kind=token.type, text=str(token), offset=token.start_pos, end=token.end_pos)
        for token in tokens
    )


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
