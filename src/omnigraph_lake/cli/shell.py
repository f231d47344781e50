"""Runs `omnigraph shell`: reads statements and commands, and shows what they give.

Invariants:
- A statement runs as `omnigraph query` or `omnigraph mutate` would run it: a query at the newest
  commit of the branch, a mutation as one commit.
- On a terminal an error ends its statement only. Without one, statements are a script: the first
  error ends it, with the exit code of that error, and nothing is asked, paged or timed.
- An interrupted query is cancelled, and the shell goes on. An interrupted mutation ends the shell,
  which says what was written.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Annotated, Final, Protocol, cast

import typer

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.cli import options, output
from omnigraph_lake.cli.query_commands import given_parameters, values_as_written
from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Page, page_of
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import (
    InvalidInputError,
    NotFoundError,
    OmnigraphError,
    QueryCancelledError,
)
from omnigraph_lake.language.diagnostics import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    from omnigraph_lake.graph import Graph, GraphView
    from omnigraph_lake.query.typed import TypedQuery
    from omnigraph_lake.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType

PAGER_VARIABLE: Final = "OMNIGRAPH_PAGER"
HELP: Final = (
    (r"\d", "list the types of the graph, with their rows"),
    (r"\d TYPE", "show the properties and constraints of a type"),
    (r"\branches", "list the branches"),
    (r"\commits", "list the newest commits of the branch"),
    (r"\use BRANCH", "work on another branch"),
    (r"\set NAME=VALUE", "give a value to the parameter $NAME of the queries that declare it"),
    (r"\x", "show rows as cards, or as a table again"),
    (r"\timing", "switch the time of statements on or off"),
    (r"\pager", "switch paging of long results on or off"),
    (r"\view FILE", "draw the newest result as a page (.html) or a picture (.svg)"),
    (r"\?", "show this help"),
    (r"\q", "leave, as Ctrl-D does"),
)
CONTINUED: Final = "... "
_COMMITS_LISTED: Final = 20
_LINES_BESIDE_ROWS: Final = 3
"""Of the screen: the count of the rows, the next prompt, and one to spare."""


class Source(Protocol):
    """Where statements come from."""

    def read(self) -> str | None:
        """The next text; None at the end.

        Raises:
            KeyboardInterrupt: what was typed is to be discarded.
        """


def shell(
    graph: options.GraphArgument,
    *,
    branch: options.BranchOption = names.MAIN,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse mutations.")] = False,
    actor: options.ActorOption = None,
) -> None:
    r"""Ask a graph and change it in a dialogue.

    Statements are queries and mutations; they need no `query name() { ... }` around them. Without a
    terminal, they are read from stdin. `\?` lists the commands.
    """
    opened = og.open(graph, read_only=read_only).checkout(branch)
    is_dialogue = sys.stdin.isatty() and sys.stdout.isatty()
    session = Shell(opened, actor=actor, is_dialogue=is_dialogue)
    if is_dialogue:
        output.note(f"{session.graph.root}: {page_of(session.catalog).summary}. \\? shows help.")
        session.converse(_source(session))
    else:
        session.run_script(sys.stdin)


def _source(session: Shell) -> Source:
    """The editor of this terminal; without prompt_toolkit, its lines."""
    try:
        from omnigraph_lake.cli.shell_editor import Editor  # prompt_toolkit, an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prompt_toolkit":
            raise
        output.note(
            "Completion, colours and history need `pip install 'omnigraph-lake[shell]'`. "
            "A statement ends with `;` or an empty line."
        )
        return _Lines(session)
    return Editor(session, commands=HELP, continued=CONTINUED)


class _Lines:
    """Lines as the terminal gives them."""

    def __init__(self, session: Shell) -> None:
        self._session = session

    def read(self) -> str | None:
        from omnigraph_lake.editor.statements import split_statements  # the compiler: 120 ms

        text = ""
        while True:
            try:
                text += f"{input(CONTINUED if text else self._session.prompt)}\n"
            except EOFError:
                output.line("")
                return text or None
            statements, rest = split_statements(text)
            if statements and not rest.strip():
                return text
            text = text if text.strip() else ""


class _Leave(Exception):  # noqa: N818 - no error
    """The shell is to end."""


class Shell:
    """A graph, and how its results are shown."""

    def __init__(self, graph: Graph, *, actor: str | None, is_dialogue: bool) -> None:
        self.graph = graph
        self.catalog: Catalog = graph.schema.catalog
        self._actor = actor
        self._is_dialogue = is_dialogue
        self._is_timed = is_dialogue
        self._is_paged = is_dialogue
        self._as_cards = False
        self._parameters: dict[str, str] = {}
        self._drawable: tuple[GraphView, str, dict[str, object]] | None = None

    @property
    def prompt(self) -> str:
        """Which graph and branch statements are for."""
        return f"{self.graph.root.rstrip('/').rpartition('/')[2]}@{self.graph.branch}> "

    def branch_names(self) -> list[str]:
        """The branches that can be used; none if they cannot be read now."""
        with suppress(OmnigraphError):
            return [branch.name for branch in self.graph.branches.list()]
        return []

    def converse(self, source: Source) -> None:
        """Run what is typed until the end of the input."""
        with suppress(_Leave):
            while True:
                try:
                    text = source.read()
                except KeyboardInterrupt:
                    continue
                if text is None:
                    return
                self._run_all(text)

    def _run_all(self, text: str) -> None:
        from omnigraph_lake.editor.statements import split_statements  # the compiler: 120 ms

        statements, rest = split_statements(text)
        for statement in [*statements, rest.strip()]:
            try:
                self.run(statement)
            except (OmnigraphError, typer.BadParameter) as error:
                output.note(f"error: {error}")
                return

    def run_script(self, lines: IO[str]) -> None:
        """Run statements as they are complete."""
        from omnigraph_lake.editor.statements import split_statements  # the compiler: 120 ms

        rest = ""
        with suppress(_Leave):
            for line in lines:
                statements, rest = split_statements(rest + line)
                for statement in statements:
                    self.run(statement)
                sys.stdout.flush()
            self.run(rest.strip())

    def run(self, statement: str) -> None:
        """Run a statement or a command; nothing if it is empty."""
        if statement.startswith("\\"):
            self._command(statement)
        elif statement:
            self._statement(statement)

    # ------------------------------------------------------------------ statements

    def _statement(self, statement: str) -> None:
        began = time.perf_counter()
        pinned = self.graph.at(self.graph.branch)
        self.catalog = pinned.schema.catalog
        typed = self._compile(pinned, statement)
        declared = {parameter.name for parameter in typed.parameters}
        pairs = [pair for pair in self._pairs() if pair.partition("=")[0] in declared]
        parameters = given_parameters(typed, pairs, None)
        if typed.is_mutation:
            self._mutate(statement, parameters)
            self._note("", began)
        else:
            self._query(pinned, statement, typed, parameters, began)

    def _compile(self, pinned: GraphView, statement: str) -> TypedQuery:
        # Commands that do not need it start without it.
        from omnigraph_lake.engine.query_text import find_query, query_text
        from omnigraph_lake.validation.schema_contract import contract_for

        contract = contract_for(pinned.schema.text, pinned.schema.catalog)
        source = replace(query_text(statement, contract), filename="statement")
        return find_query(source.with_values(values_as_written(self._pairs(), None)), None)

    def _pairs(self) -> list[str]:
        return [f"{name}={text}" for name, text in self._parameters.items()]

    def _mutate(self, text: str, parameters: dict[str, object]) -> None:
        result = self.graph.mutate(text, parameters, actor=self._actor)
        output.show(page_of(result))

    def _query(
        self,
        pinned: GraphView,
        text: str,
        typed: TypedQuery,
        parameters: dict[str, object],
        began: float,
    ) -> None:
        # Commands that do not need it start without it.
        from omnigraph_lake.engine.output_formats import OutputFormat, write_rows

        result = pinned.query(text, parameters)
        self._drawable = pinned, text, parameters
        try:
            with self._stream() as stream:
                count = write_rows(
                    result,
                    stream,
                    OutputFormat.CARD if self._as_cards else OutputFormat.TABLE,
                    about={},
                    width=output.terminal_width(),
                )
        except KeyboardInterrupt:
            if not self._is_dialogue:
                raise
            raise QueryCancelledError(f"{typed.title} was cancelled") from None
        except BrokenPipeError:  # the reader has seen enough
            result.cancel()
        else:
            self._note(counted(count, "row"), began)

    def _note(self, what: str, began: float) -> None:
        milliseconds = (time.perf_counter() - began) * 1000
        duration = f"{milliseconds:,.0f} ms" if self._is_timed else ""
        said = " in ".join(part for part in (what, duration) if part)
        if said:
            output.note(said)

    @contextmanager
    def _stream(self) -> Iterator[IO[bytes]]:
        """Standard output, through a pager if a reader is there."""
        pager = _pager() if self._is_paged else None
        if pager is None:
            with output.rows_to_stdout() as stream:
                yield stream
            return
        paged = _PagedRows(pager, lines=shutil.get_terminal_size().lines - _LINES_BESIDE_ROWS)
        visible = cast("IO[bytes]", output.VisibleBytes(cast("IO[bytes]", paged)))
        try:
            yield visible
        finally:
            paged.finish()

    # ------------------------------------------------------------------ commands

    def _command(self, line: str) -> None:
        name, _, argument = line[1:].strip().partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "d": self._describe,
            "branches": lambda _: output.show(self.graph.branches.list()),
            "commits": self._commits,
            "use": self._use,
            "set": self._set,
            "x": self._switch_cards,
            "timing": self._switch_timing,
            "pager": self._switch_pager,
            "view": self._view,
            "?": lambda _: output.show(Page(tables=[_help()])),
            "q": self._leave,
        }
        command = commands.get(name)
        if command is None:
            known = [f"\\{known_name}" for known_name in commands]
            raise InvalidInputError(
                f"there is no command \\{name}"
                + (f" ({hint})" if (hint := did_you_mean(f"\\{name}", known)) else ""),
                next_step="Run `\\?` to see all commands.",
            )
        command(argument.strip().removesuffix(";").strip())

    def _describe(self, name: str) -> None:
        pinned = self.graph.at(self.graph.branch)
        self.catalog = pinned.schema.catalog
        if not name:
            rows = [_type_row(pinned, declared) for declared in self.catalog.tables().values()]
            header = ("type", "kind", "rows", "key", "properties")
            output.show(
                Page(tables=[TableView(header=header, rows=rows, numbers=(2,), empty="no types")])
            )
            return
        # Commands that do not need it start without it.
        from omnigraph_lake.schema.show import show_declaration

        known: dict[str, InterfaceType | NodeType | EdgeType] = {
            **self.catalog.interfaces,
            **self.catalog.nodes,
            **self.catalog.edges,
        }
        declared = known.get(name)
        if declared is None:
            hint = did_you_mean(name, known)
            raise NotFoundError(
                f"there is no type {name}" + (f" ({hint})" if hint else ""),
                next_step="Run `\\d` to see all types.",
            )
        output.line(show_declaration(declared))

    def _commits(self, _argument: str) -> None:
        # Commands that do not need it start without it.
        from omnigraph_lake.storage.manifest.time_travel import commit_page

        commits = self.graph.commits()
        output.show(
            commit_page(commits[:_COMMITS_LISTED], [commit.commit_id for commit in commits])
        )

    def _use(self, branch: str) -> None:
        if not branch:
            raise InvalidInputError(
                "\\use needs the name of a branch", next_step="Run `\\branches` to see them."
            )
        graph = self.graph.checkout(branch)
        self.catalog = graph.schema.catalog
        self.graph = graph
        output.note(f"on branch {branch}")

    def _set(self, argument: str) -> None:
        if not argument:
            for name, text in self._parameters.items():
                output.line(f"{name}={text}")
            return
        name, equals, text = argument.removeprefix("$").partition("=")
        if not equals or not name.strip():
            raise InvalidInputError(
                f"\\set {argument} has no value", next_step="Write `\\set NAME=VALUE`."
            )
        self._parameters[name.strip()] = text.strip()

    def _switch_cards(self, _argument: str) -> None:
        self._as_cards = not self._as_cards
        output.note(f"rows are shown as {'cards' if self._as_cards else 'a table'}")

    def _switch_timing(self, _argument: str) -> None:
        self._is_timed = not self._is_timed
        output.note(f"timing is {_state(is_on=self._is_timed)}")

    def _switch_pager(self, _argument: str) -> None:
        self._is_paged = not self._is_paged and self._is_dialogue
        output.note(f"paging is {_state(is_on=self._is_paged)}")

    def _view(self, path: str) -> None:
        if not path or self._drawable is None:
            raise InvalidInputError(
                "\\view needs a file" if self._drawable else "there is no result to draw yet",
                next_step="Run a query, then `\\view result.html`.",
            )
        pinned, text, parameters = self._drawable
        drawn = pinned.query(text, parameters).view()
        output.line(f"wrote {drawn.save(path)}: {page_of(drawn).summary}")

    def _leave(self, _argument: str) -> None:
        raise _Leave


class _PagedRows(io.RawIOBase):
    """Standard output for rows that fit the screen; a pager as soon as there are more."""

    def __init__(self, pager: list[str], *, lines: int) -> None:
        self._pager = pager
        self._lines_max = lines
        self._waiting = bytearray()
        self._process: subprocess.Popen[bytes] | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        content = bytes(data)
        if self._process is None:
            self._waiting += content
            if self._waiting.count(b"\n") > self._lines_max:
                self._start()
        else:
            _pipe_of(self._process).write(content)
        return len(content)

    def _start(self) -> None:
        settings = {**os.environ, "LESS": os.environ.get("LESS", "FRX")}
        self._process = subprocess.Popen(  # noqa: S603 - the pager of the user
            self._pager, stdin=subprocess.PIPE, env=settings
        )
        _pipe_of(self._process).write(self._waiting)

    def finish(self) -> None:
        """Show what is left, and wait for the reader."""
        if self._process is None:
            sys.stdout.buffer.write(self._waiting)
            sys.stdout.flush()
            return
        with suppress(BrokenPipeError):
            _pipe_of(self._process).close()
        _wait(self._process)


def _pipe_of(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None
    return process.stdin


def _type_row(pinned: GraphView, declared: NodeType | EdgeType) -> tuple[str, ...]:
    # Commands that do not need it start without it.
    from omnigraph_lake.schema.catalog import NodeType

    if isinstance(declared, NodeType):
        title, kind, key = declared.name, "node", declared.key
    else:
        title = f"{declared.name}: {declared.source} -> {declared.target}"
        kind, key = "edge", None
    return (
        title,
        kind,
        f"{pinned.count(declared.name):,}",
        "" if key is None else ", ".join(key.properties),
        ", ".join(declared.properties),
    )


def _help() -> TableView:
    rows = [(command, about) for command, about in HELP]
    return TableView(header=("command", "does"), rows=rows)


def _state(*, is_on: bool) -> str:
    return "on" if is_on else "off"


def _pager() -> list[str] | None:
    """The program that shows long results; None if there is none."""
    words = shlex.split(os.environ.get(PAGER_VARIABLE) or os.environ.get("PAGER") or "less")
    return words if words and shutil.which(words[0]) else None


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Let the pager end; it takes Ctrl-C for itself."""
    while True:
        try:
            process.wait()
        except KeyboardInterrupt:
            continue
        return
