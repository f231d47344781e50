"""Writes the page of screens: what commands show at 80 and 200 columns, and a notebook.

    python -m tests.docs.screens docs/reference/screens.md

Time and ids are given, so the page is the same in every run. It runs in a process of its own,
because everything of that process sees this clock.
"""

from __future__ import annotations

import io
import os
import random
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from omnigraph_lake.ulids import DIGITS, base32

WIDTHS: Final = (80, 200)
HEADER: Final = """# Screens

What commands show on a terminal of 80 and of 200 columns, and results in a notebook. The page is
written by `just screens`; a test compares it with what commands show today.
"""
SCHEMA: Final = """
node Person {
    email: String @key
    name: String
    age: I32?
    city: String?
    motto: String?
}
node Company { name: String @key }
edge WorksAt: Person -> Company { since: I32? }
edge Knows: Person -> Person
"""
MOTTO: Final = "A long sentence is cut where the terminal ends, unless it is a pipe"
ASK: Final = """query everyone() {
    match { $p: Person  $p $w: worksAt $c }
    return { $p.name, $p.email, $c.name, $p.city, $p.age, $p.motto, $w }
    order { $p.name }
}"""
REJECTED: Final = """{"type": "Person", "data": {"email": "kim@example.org", "name": "Kim"}}
{"type": "Person", "data": {"email": "lee@example.org", "name": "Lee", "age": "old"}}
{"type": "Persn", "data": {"email": "max@example.org", "name": "Max"}}
{"edge": "WorksAt", "from": "kim@example.org", "to": "Nowhere"}
{"edge": "Knows", "from": "kim@example.org", "to": "ann@example.org"
"""
DRAWN: Final = random.Random(7)


@dataclass
class Now:
    """The time of this process."""

    at: datetime


NOW: Final = Now(datetime(2026, 11, 17, 9, 0, tzinfo=UTC))


def next_id() -> str:
    """A ULID of the given time."""
    milliseconds = int(NOW.at.timestamp() * 1000)
    return base32(milliseconds, 10) + "".join(DRAWN.choices(DIGITS, k=16))


def pass_time(minutes: float) -> None:
    NOW.at += timedelta(minutes=minutes)


def set_clock() -> None:
    """Give this process its clock, before anything takes the one of the machine."""
    for name in [name for name in os.environ if name.startswith("OMNIGRAPH_")]:
        del os.environ[name]
    from omnigraph_lake import ulids

    ids: Any = ulids
    ids.new_ulid = next_id
    from omnigraph_lake.api import system_clock
    from omnigraph_lake.clock import Clock

    clock: Any = system_clock
    clock.SYSTEM_CLOCK = Clock(
        now=lambda: NOW.at, sleep=lambda _: None, jitter=lambda: 0.5, new_id=next_id
    )


def people(root: str) -> Any:
    """A graph with a history, a branch, and a conflict between the two."""
    import omnigraph_lake as og

    graph = og.init(root, schema=SCHEMA, actor="ann")
    pass_time(60 * 26)
    people = [
        ("ann", "Ann Archer", 41, "Amsterdam"),
        ("bob", "Bob Baker", 29, "Berlin"),
        ("cleo", "Cleo Chen", 35, "Copenhagen"),
    ]
    graph.write(
        {
            "Person": [
                {"email": f"{key}@example.org", "name": name, "age": age, "city": city}
                for key, name, age, city in people
            ],
            "Company": [{"name": "Acme"}, {"name": "Birch & Sons"}],
            "WorksAt": [
                {"src": "ann@example.org", "dst": "Acme", "since": 2019},
                {"src": "bob@example.org", "dst": "Birch & Sons"},
            ],
            "Knows": [{"src": "ann@example.org", "dst": "bob@example.org"}],
        },
        actor="ann",
    )
    pass_time(95)
    dev = graph.branches.create("dev", owner="bob")
    pass_time(5)
    dev.write(
        {
            "Person": [
                {"email": "ann@example.org", "name": "Ann Archer", "age": 42, "city": "Antwerp"},
                {"email": "bob@example.org", "name": "Bob Baker", "age": 30, "city": "Berlin"},
                {"email": "dan@example.org", "name": "Dan Diaz", "city": "Dublin"},
            ],
            "WorksAt": [{"src": "dan@example.org", "dst": "Acme"}],
        },
        mode="merge",
        actor="bob",
    )
    pass_time(3)
    graph.write(
        {
            "Person": [
                {
                    "email": "ann@example.org",
                    "name": "Ann Archer",
                    "age": 42,
                    "city": "Aachen",
                    "motto": MOTTO,
                },
                {"email": "bob@example.org", "name": "Bob Baker", "age": 31, "city": "Berlin"},
            ]
        },
        mode="merge",
        actor="cleo@example.org",
    )
    pass_time(4)
    return graph


class Terminal(io.TextIOWrapper):
    """What a command believes to be a terminal."""

    def isatty(self) -> bool:
        return True


def run(line: str, columns: int) -> str:
    """What a command prints, results and messages in their order."""
    from omnigraph_lake.cli.main import main

    content = io.BytesIO()
    stream = Terminal(content, encoding="utf-8", write_through=True)
    os.environ["COLUMNS"] = str(columns)
    sys.argv = ["omnigraph", *shlex.split(line)]
    with redirect_stdout(stream), redirect_stderr(stream):
        with suppress(SystemExit):
            main()
        stream.flush()
    return content.getvalue().decode()


COMMANDS: Final = (
    ("status", "status people"),
    ("commit list", "commit list people"),
    ("branch list", "branch list people"),
    ("diff", "diff people main dev"),
    ("query", "query people everyone.gq"),
    ("merge with conflicts", "merge people dev"),
    ("load with rejected records", "load people more.jsonl --quiet"),
    ("check", "check people"),
    ("a failure with --json", "status nowhere --json"),
)


def screens(shown: Callable[[str], str]) -> Iterator[str]:
    for title, line in COMMANDS:
        yield f"\n## {title}\n"
        outputs = [shown(run(line, columns)) for columns in WIDTHS]
        for columns, output in zip(WIDTHS, outputs, strict=True):
            if columns == WIDTHS[0] or output != outputs[0]:
                same = " and wider" if len(set(outputs)) == 1 else ""
                yield f"{columns} columns{same}:\n"
                yield f"```text\n$ omnigraph {line}\n{output.rstrip()}\n```\n"


def notebook(graph: Any, shown: Callable[[str], str]) -> Iterator[str]:
    yield "\n## A notebook\n"
    cells = {
        "graph": graph,
        "graph.maintenance.status()": graph.maintenance.status(),
        "graph.commits()": graph.commits(),
        'graph.diff("main", "dev")': graph.diff("main", "dev"),
        "graph.query(everyone)": graph.query(ASK),
        "graph.schema.catalog": graph.schema.catalog,
    }
    for code, result in cells.items():
        text = shown(str(result)).rstrip()
        yield f"```python\n{code}\n```\n\n{shown(result._repr_html_())}\n"
        yield f"`print({code})`:\n\n```text\n{text}\n```\n"


@contextmanager
def folder() -> Iterator[Path]:
    """A folder whose path has the same length everywhere."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="screens-", dir="/tmp") as made:
        os.chdir(made)
        try:
            yield Path(made)
        finally:
            os.chdir(before)


def page() -> str:
    set_clock()
    with folder() as home:
        graph = people(str(home / "people"))
        Path("everyone.gq").write_text(ASK)
        Path("more.jsonl").write_text(REJECTED)

        def shown(text: str) -> str:
            text = text.replace(str(home), "/home/ann/graphs")
            return re.sub(r"in \d+\.\d s", "in 0.1 s", text)

        return "\n".join([HEADER.rstrip(), *screens(shown), *notebook(graph, shown)])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
