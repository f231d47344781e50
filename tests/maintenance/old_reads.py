"""Everything that can be asked of a graph without writing to it, and what it answers.

    python -m tests.maintenance.old_reads ROOT FOLDER   prints each question and its answer as JSON

What an upgrade changes is left out of the answers: ids and times of commits, versions, formats.
"""

from __future__ import annotations

import io
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final, Literal

import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph, GraphView
from tests.adversary.plain_process import obey_permissions

DEV: Final = "dev"
PEOPLE: Final = ("ann", "bob")
ASK: Final = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"
NEW_SCHEMA: Final = """
node Person { name: String @key  note: String? }
node Company { name: String @key }
edge WorksAt: Person -> Company
"""
OPERATION: Final = "01J00000000000000000000000"
REFUSED: Final = "refused: "


def _people(graph: Graph | GraphView) -> list[str]:
    return sorted(graph.scan("Person").read_all()["name"].to_pylist())


def _asked(graph: Graph | GraphView) -> object:
    return graph.query(ASK).to_pylist()


def _exported(graph: Graph | GraphView, folder: Path, form: Literal["jsonl", "parquet"]) -> object:
    return graph.export(str(folder / f"export.{form}"), format=form).rows


QUESTIONS: Final[Mapping[str, Callable[[Graph, Path], object]]] = {
    "at a branch": lambda graph, _: _people(graph.at(DEV)),
    "at main": lambda graph, _: _people(graph.at("main")),
    "at the newest commit": lambda graph, _: _people(graph.at(graph.commits()[0].commit_id)),
    "at the newest version": lambda graph, _: _people(graph.at(graph.snapshot().manifest_version)),
    "at a time": lambda graph, _: _people(graph.at("2999-01-01")),
    "baseline": lambda graph, _: sorted(
        table.reader().read_all().num_rows for table in graph.baseline() if hasattr(table, "reader")
    ),
    "branch": lambda graph, _: _people(graph.checkout(DEV)),
    "branch of a query": lambda graph, _: _asked(graph.checkout(DEV)),
    "branches": lambda graph, _: [branch.name for branch in graph.branches.list()],
    "catalog": lambda graph, _: sorted(graph.schema.catalog.nodes),
    "changes": lambda graph, _: len(list(graph.changes(start="now"))),
    "check": lambda graph, _: [finding.message for finding in graph.maintenance.check().findings],
    "check deeply": lambda graph, _: graph.maintenance.check(deep=True).ok,
    "check of a branch": lambda graph, _: graph.checkout(DEV).maintenance.check().ok,
    "cleanup preview": lambda graph, _: graph.maintenance.cleanup(keep_versions=3) is not None,
    "commits": lambda graph, _: len(graph.commits()) > 0,
    "commits of a branch": lambda graph, _: len(graph.checkout(DEV).commits()) > 0,
    "diff of branches": lambda graph, _: sorted(graph.diff("main", DEV).tables),
    "edges": lambda graph, _: graph.scan("WorksAt").read_all().num_rows,
    "holds": lambda graph, _: len(graph.holds.list()),
    "explain": lambda graph, _: bool(graph.explain(ASK, analyze=True)),
    "export": lambda graph, folder: _exported(graph, folder, "jsonl"),
    "export as Parquet": lambda graph, folder: _exported(graph, folder, "parquet"),
    "load without writing": lambda graph, folder: bool(
        graph.load(str(folder / "rows.jsonl"), dry_run=True)
    ),
    "nodes": lambda graph, _: _people(graph),
    "outcome": lambda graph, _: graph.outcome(OPERATION).value,
    "partings": lambda graph, _: len(graph.branches.diverged()),
    "plan_schema": lambda graph, _: graph.schema.plan(NEW_SCHEMA) is not None,
    "query": lambda graph, _: _asked(graph),
    "reconcile preview": lambda graph, _: len(graph.maintenance.reconcile().reclaimed),
    "recoveries": lambda graph, _: len(graph.maintenance.recoveries()),
    "repair preview": lambda graph, _: sorted(
        table.classification.value for table in graph.maintenance.repair().tables
    ),
    "repr": lambda graph, _: "Person" in graph._repr_html_(),
    "schema_text": lambda graph, _: graph.schema.text,
    "snapshot": lambda graph, _: sorted(graph.snapshot().tables),
    "status": lambda graph, _: sorted(
        table.table_key for table in graph.maintenance.status().tables
    ),
    "tags": lambda graph, _: len(graph.tags.list()),
}
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "backup": ("FOLDER/backup",),
    "branch list": (),
    "changes": ("--start", "now"),
    "check": (),
    "check --branch": ("--branch", DEV),
    "check --deep": ("--deep",),
    "cleanup": ("--keep", "3"),
    "clone": ("FOLDER/clone",),
    "commit list": (),
    "diff": (f"main..{DEV}",),
    "export": ("-o", "FOLDER/command.jsonl"),
    "hold list": (),
    "query": ("FOLDER/ask.gq",),
    "reconcile": (),
    "recovery list": (),
    "repair": (),
    "schema plan": ("FOLDER/new.pg",),
    "schema show": (),
    "status": (),
    "tag list": (),
    "verify": (),
}
"""Arguments after the graph; the entry is the words of the command."""


def answer(question: str, root: str, folder: Path) -> Any:
    try:
        return QUESTIONS[question](og.open(root, read_only=True), folder)
    except OmnigraphError as error:
        return f"{REFUSED}{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - whatever it is, the test shows it
        return f"{REFUSED}{traceback.format_exc()}"


def run(command: str, root: str, folder: Path) -> str:
    """The empty text, or what a command said that failed."""
    from omnigraph_lake.cli.main import main as run_command

    words = [word for word in command.split() if not word.startswith("--")]
    given = [word.replace("FOLDER", str(folder)) for word in COMMANDS[command]]
    sys.argv = ["omnigraph", *words, root, *given]
    out, said = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    code: object = 0
    with redirect_stdout(out), redirect_stderr(said):
        try:
            run_command()
        except SystemExit as end:
            code = end.code
        except Exception:  # noqa: BLE001 - as above
            code = traceback.format_exc()
    said.seek(0)
    return f"{REFUSED}{code} {said.read()}" if code else ""


def main(root: str, folder: str) -> None:
    obey_permissions()
    place = Path(folder)
    (place / "ask.gq").write_text(ASK)
    (place / "new.pg").write_text(NEW_SCHEMA)
    (place / "rows.jsonl").write_text(json.dumps({"type": "Person", "data": {"name": "new"}}))
    for question in QUESTIONS:
        print(json.dumps([question, answer(question, root, place)]), flush=True)
    for command in COMMANDS:
        print(json.dumps([f"$ {command}", run(command, root, place)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
