"""The line editor of `omnigraph shell`: completion, colours, history and several lines.

Invariants:
- Needs prompt_toolkit, which is an extra; nothing else imports it.
- The history is a file that only its owner can read. If it cannot be written, the shell works
  without it.
- Enter runs a statement that is complete, and starts a new line otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from omnigraph_lake.cli import output
from omnigraph_lake.editor.statements import PieceKind, complete_statement, is_complete, pieces
from omnigraph_lake.schema.catalog import Catalog

HISTORY_VARIABLE: Final = "OMNIGRAPH_HISTORY"
_COLORS: Final = {
    "prompt": "bold",
    "continued": "ansibrightblack",
    "command": "bold",
    PieceKind.COMMENT.value: "ansibrightblack italic",
    PieceKind.STRING.value: "ansigreen",
    PieceKind.OPEN.value: "ansigreen",
    PieceKind.NUMBER.value: "ansicyan",
    PieceKind.VARIABLE.value: "ansimagenta",
    PieceKind.ANNOTATION.value: "ansiyellow",
    PieceKind.TYPE.value: "ansiyellow",
    PieceKind.KEYWORD.value: "ansiblue bold",
}
"""Of the terminal's own palette, which suits its background."""


class Surroundings(Protocol):
    """What the words of a statement can mean now."""

    @property
    def prompt(self) -> str: ...
    @property
    def catalog(self) -> Catalog: ...

    def branch_names(self) -> Sequence[str]: ...


class Editor:
    """Reads statements from a terminal; `commands` are those of the shell, with what they do."""

    def __init__(
        self, around: Surroundings, *, commands: Sequence[tuple[str, str]], continued: str
    ) -> None:
        self._around = around
        words = _Words(around, commands)
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            prompt_continuation=[("class:continued", continued)],
            lexer=_Colors(),
            completer=words,
            complete_while_typing=True,
            auto_suggest=AutoSuggestFromHistory(),
            history=_history(),
            key_bindings=_keys(words),
            style=Style.from_dict({} if os.environ.get("NO_COLOR") else _COLORS),
            enable_open_in_editor=True,
            tempfile_suffix=".gq",
        )

    def read(self) -> str | None:
        """What was typed; None at the end of the input."""
        try:
            return self._session.prompt([("class:prompt", output.visible(self._around.prompt))])
        except EOFError:
            return None


class _Colors(Lexer):
    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = list(_color_lines(document.text))
        return lambda number: lines[number] if number < len(lines) else []


def _color_lines(text: str) -> Iterator[StyleAndTextTuples]:
    """The lines of a text, every word with its class."""
    if text.lstrip().startswith("\\"):
        for command in text.split("\n"):
            yield [("class:command", command)]
        return
    line: StyleAndTextTuples = []
    end = 0
    parts: list[tuple[str, str]] = []
    for piece in pieces(text):
        parts += [("", text[end : piece.start]), (f"class:{piece.kind}", piece.text)]
        end = piece.end
    for style, part in [*parts, ("", text[end:])]:
        first, *others = part.split("\n")
        line.append((style, first))
        for other in others:
            yield line
            line = [(style, other)]
    yield line


class _Words(Completer):
    """Suggests commands, types, branches, and what the grammar and the schema allow."""

    def __init__(self, around: Surroundings, commands: Sequence[tuple[str, str]]) -> None:
        self._around = around
        self._usages = commands

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        text = document.text_before_cursor
        if text.lstrip().startswith("\\"):
            yield from self._commands(text.lstrip())
            return
        completions = complete_statement(text, self._around.catalog)
        length = completions.range.end - completions.range.start
        is_asked_for = length or text.endswith(".")
        if not (is_asked_for or complete_event.completion_requested):
            return  # a menu after every space would be in the way
        for item in completions.items:
            yield Completion(item.text, start_position=-length, display_meta=item.detail)

    def _commands(self, text: str) -> Iterator[Completion]:
        name, space, argument = text.partition(" ")
        if not space:
            for usage, about in self._usages:
                command = usage.split()[0]
                if command.startswith(name):
                    yield Completion(
                        command, start_position=-len(name), display=usage, display_meta=about
                    )
            return
        for word in self._arguments(name):
            if word.lower().startswith(argument.lower()):
                yield Completion(word, start_position=-len(argument))

    def _arguments(self, command: str) -> Iterable[str]:
        catalog = self._around.catalog
        match command:
            case "\\d":
                return (*catalog.interfaces, *catalog.nodes, *catalog.edges)
            case "\\use":
                return self._around.branch_names()
            case _:
                return ()


def _keys(words: Completer) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=True)

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_next()
            return
        asked = CompleteEvent(completion_requested=True)
        candidates = list(words.get_completions(buffer.document, asked))
        if len(candidates) == 1:
            buffer.cancel_completion()
            buffer.apply_completion(candidates[0])
        elif candidates:
            buffer.start_completion(select_first=True)

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=True)

    return keys


def _history() -> History:
    path = _history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _history_file() -> Path:
    given = os.environ.get(HISTORY_VARIABLE)
    if given:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "omnigraph" / "history"
