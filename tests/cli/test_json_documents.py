"""With `--json` every command prints exactly one JSON document, also if it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer

import omnigraph_lake as og
from omnigraph_lake.cli.main import app
from tests.cli.commands import run

pytestmark = pytest.mark.unit

SCHEMA: Final = """
node Person { email: String @key  age: I32?  photo: Blob? }
node Company { name: String @key }
edge WorksAt: Person -> Company
"""
ASK: Final = "query people() { match { $p: Person } return { $p.email } }"
HIRE: Final = 'query hire() { insert Person { email: "eve@x" } }'

SUCCEEDS: Final = {
    "init": "init NEW --schema people.pg",
    "status": "status G",
    "lint": "lint people.pg",
    "fmt": "fmt people.pg",
    "check": "check G",
    "backup": "backup G BACKUP",
    "verify": "verify BACKUP",
    "restore": "restore BACKUP RESTORED",
    "clone": "clone G CLONED",
    "import": "import RAW people.csv",
    "load": "load G people.jsonl --mode merge",
    "export": "export G -o out.jsonl",
    "query": "query G ask.gq",
    "mutate": "mutate G hire.gq",
    "queries": "queries G good",
    "view": "view G -o view.html",
    "merge": "merge G dev",
    "diff": "diff G main dev",
    "changes": "changes G",
    "optimize": "optimize G",
    "scrub": "scrub G --record",
    "cleanup": "cleanup G --keep 3",
    "reconcile": "reconcile G",
    "repair": "repair G",
    "maintain": "maintain G",
    "schema show": "schema show G",
    "schema plan": "schema plan G people.pg",
    "schema apply": "schema apply G people.pg",
    "commit list": "commit list G",
    "commit show": "commit show G HEAD~1",
    "log": "log G --graph",
    "blame": "blame G Person ann@x",
    "recovery list": "recovery list G",
    "recovery run": "recovery run G",
    "branch create": "branch create G more",
    "branch list": "branch list G",
    "revert": "revert G HEAD",
    "branch restore": "branch restore G HEAD~1",
    "branch delete": "branch delete G more",
    "blob get": "blob get G Person ann@x",
    "hold list": "hold list G",
    "hold release": "hold release G HOLD",
    "tag create": "tag create G release-1",
    "tag list": "tag list G",
    "tag delete": "tag delete G release-1",
    "demo small": "demo small SOLAR",
    "demo debian": "demo debian DEBIAN --sample",
    "doctor": "doctor G",
}
"""By command, in an order in which each finds what it needs."""

FAILS: Final = {
    "init": ("init G --schema people.pg", 4),
    "lint": ("lint bad.pg", 5),
    "fmt": ("fmt broken.pg", 5),
    "import": ("import OTHER people.pg", 5),
    "load": ("load G bad.jsonl", 5),
    "query": ("query G bad.gq", 5),
    "mutate": ("mutate G again.gq", 5),
    "merge": ("merge G clash", 4),
    "schema plan": ("schema plan G other.pg", 5),
    "schema apply": ("schema apply G other.pg", 5),
    "branch create": ("branch create G dev", 4),
    "branch delete": ("branch delete G nope", 3),
    "hold release": ("hold release G nope", 3),
    "tag delete": ("tag delete G nope", 3),
    "export": ("export G", 2),
    "commit list": ("commit list G --limit many", 2),
    "commit show": ("commit show G nope", 3),
    "blame": ("blame G Person nope", 3),
    "revert": ("revert G nope", 3),
    "branch restore": ("branch restore G nope", 3),
    "changes": ("changes G --lines", 2),
    "diff": ("diff G main nope", 3),
    "demo small": ("demo small G", 4),
    "demo debian": ("demo debian OTHER --sample --suite nope", 5),
    "doctor": ("doctor people.pg", 1),
    "blob get": ("blob get G Person nope", 3),
}
"""By command, with the exit code; others are asked about a graph that is not there."""
ERROR_KEYS: Final = {"type", "message", "next_step", "written", "exit_code"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("documents")
    files = {
        "people.pg": SCHEMA,
        "bad.pg": "node Person { email: Strin @key }",
        "broken.pg": "node {",
        "other.pg": SCHEMA.replace("age: I32?", "age: String?"),
        "people.jsonl": '{"type": "Person", "data": {"email": "dan@x"}}\n',
        "bad.jsonl": '{"type": "Person", "data": {"email": "dan@x", "age": "old"}}\n',
        "people.csv": "id,name\n1,Ann\n2,Bob\n",
        "ask.gq": ASK,
        "bad.gq": ASK.replace("Person", "Persn"),
        "hire.gq": HIRE,
        "again.gq": HIRE.replace("eve@x", "ann@x"),
    }
    for name, text in files.items():
        (home / name).write_text(text)
    (home / "good").mkdir()
    (home / "good" / "ask.gq").write_text(ASK)
    graph = og.init(str(home / "G"), schema=SCHEMA)
    graph.write({"Person": [{"email": "ann@x", "age": 1, "photo": b"jpeg"}]}, actor="ann")
    dev = graph.branches.create("dev")
    dev.write({"Company": [{"name": "Acme"}], "WorksAt": [{"src": "ann@x", "dst": "Acme"}]})
    clash = graph.branches.create("clash")
    for branch, age in ((clash, 2), (graph, 3)):
        branch.write({"Person": [{"email": "ann@x", "age": age, "photo": b"jpeg"}]}, mode="merge")
    hold = graph.snapshot(hold="1h").hold
    assert hold is not None
    (home / "hold").write_text(hold.hold.hold_id)
    return home


def commands() -> Iterator[str]:
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        below = getattr(command, "commands", {})
        yield from (f"{name} {inner}" for inner in below) if below else (name,)


def run_line(folder: Path, line: str) -> tuple[int, dict[str, Any]]:
    words = line.replace("HOLD", (folder / "hold").read_text()).split()
    finished = run(*words, "--json", cwd=folder)
    document = json.loads(finished.stdout)
    assert isinstance(document, dict), finished.stdout
    return finished.returncode, document


def texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


def bare_rows(value: object) -> Iterator[list[Any]]:
    """Arrays within arrays: rows whose columns have no names."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        if isinstance(value, list) and isinstance(part, list):
            yield part
        yield from bare_rows(part)


WITHOUT_DOCUMENT: Final = frozenset({"lsp", "shell"})
"""A protocol of its own, and a dialogue; `query` and `mutate` run single statements."""


def test_every_command_is_asked_for_json() -> None:
    assert sorted(SUCCEEDS) == sorted(set(commands()) - WITHOUT_DOCUMENT)
    assert FAILS.keys() <= SUCCEEDS.keys()


def test_a_success_is_one_document_without_json_inside_texts(folder: Path) -> None:
    for line in SUCCEEDS.values():
        code, document = run_line(folder, line)

        assert (code, "error" in document) == (0, False), line
        assert list(bare_rows(document)) == [], line
        assert [text for text in texts(document) if text.startswith(('{"', "[{", '["'))] == [], line


def test_a_failure_is_one_document_with_the_error(folder: Path) -> None:
    for name in SUCCEEDS:
        line, expected = FAILS.get(name, (f"{name} NOWHERE{' X' * (name in TWO)}", 3))
        code, document = run_line(folder, line)

        assert "error" in document, line
        error = document["error"]
        assert (code, error["exit_code"], error.keys()) == (expected, expected, ERROR_KEYS), line
        assert error["written"] is False, line
        assert error["message"], line


TWO: Final = {"backup", "restore", "clone", "queries", "tag create"}
"""Commands with two arguments."""


def test_an_error_carries_its_details_as_objects(folder: Path) -> None:
    _, conflicts = run_line(folder, "merge G clash")
    _, rejected = run_line(folder, "load G bad.jsonl")
    _, findings = run_line(folder, "query G bad.gq")

    assert [(row["base"], row["ours"], row["theirs"]) for row in conflicts["conflicts"]] == [
        (1, 3, 2)
    ]
    assert [record["line"] for record in rejected["rejected"]] == [1]
    assert [found["line"] for found in findings["findings"]] == [1]


def test_a_query_that_fails_after_its_first_rows_still_ends_its_document(folder: Path) -> None:
    from io import BytesIO

    import pyarrow as pa

    from omnigraph_lake.engine.output_formats import OutputFormat, write_rows
    from omnigraph_lake.errors import QueryBudgetError

    class Failing:
        schema = pa.schema([pa.field("n", pa.int64())])

        def __iter__(self) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch([[1, 2]], schema=self.schema)
            raise QueryBudgetError("too slow")

    stream = BytesIO()
    with pytest.raises(QueryBudgetError):
        write_rows(
            Failing(),
            stream,
            OutputFormat.JSON,
            about={"query": "q"},
            on_error=lambda _: {"type": "X"},
        )

    document = json.loads(stream.getvalue())
    assert (document["row_count"], document["error"]) == (2, {"type": "X"})
