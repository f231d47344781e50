"""Every command of a plain install, one after another on one graph: nothing optional is needed.

    python -m tests.adversary.plain_install FOLDER    in an environment without extras
    python -m tests.adversary.plain_install FOLDER hide

With `hide` the optional packages are hidden from this process instead. Imports nothing but the
package and the standard library, because a plain install has nothing else.
"""

from __future__ import annotations

import io
import json
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.adversary.plain_process import hide_optional_packages

SCHEMA: Final = """node Person {
    name: String @key
    age: I64?
}
edge Knows: Person -> Person
"""
NEW_SCHEMA: Final = SCHEMA.replace("age: I64?", "age: I64?\n    nick: String?")
ASK: Final = "query all() { match { $p: Person } return { $p.name } order { $p.name } }\n"
INSERT: Final = 'query add() { insert Person { name: "zoe" } }\n'
LARGE_BYTES: Final = 65 << 20
"""More than a load takes in this process where Spark is installed."""
NO_SPARK: Final = 1
NO_EDITOR: Final = 5
INSTALL: Final = {
    NO_SPARK: "pip install 'omnigraph-lake[spark]'",
    NO_EDITOR: "pip install 'omnigraph-lake[lsp]'",
}

STEPS: Final[tuple[tuple[str, int], ...]] = (
    ("lint schema.pg", 0),
    ("fmt schema.pg", 0),
    ("fmt schema.pg --check", 0),
    ("lsp --graph G", NO_EDITOR),
    ("init G --schema schema.pg", 0),
    ("status G", 0),
    ("load G people.jsonl", 0),
    ("load G more.csv --type Person", 0),
    ("load G large.jsonl", 0),
    ("load G people.jsonl --mode merge --engine spark", NO_SPARK),
    ("load G people.jsonl --mode merge --master local[1]", NO_SPARK),
    ("export G -o out.jsonl", 0),
    ("export G -o out --format parquet", 0),
    ("load G out/nodes/Person --type Person --mode merge --dry-run", 0),
    ("lint ask.gq --graph G", 0),
    ("query G ask.gq", 0),
    ("query G ask.gq --json", 0),
    ("query G ask.gq --format csv", 0),
    ("query G ask.gq --format jsonl", 0),
    ("query G ask.gq --explain", 0),
    ("query G ask.gq --engine spark", NO_SPARK),
    ("mutate G insert.gq", 0),
    ("revert G HEAD", 0),
    ("branch restore G HEAD~1", 0),
    ("queries G stored", 0),
    ("branch create G dev", 0),
    ("branch list G", 0),
    ("load G fresh.jsonl --branch dev --stats", 0),
    ("diff G main..dev", 0),
    ("merge G dev", 0),
    ("changes G --start beginning", 0),
    ("tag create G first", 0),
    ("tag list G", 0),
    ("schema show G", 0),
    ("schema plan G new.pg", 0),
    ("tag delete G first", 0),
    ("branch delete G dev", 0),
    ("schema apply G new.pg", 0),
    ("optimize G", 0),
    ("optimize G --spark", NO_SPARK),
    ("scrub G", 0),
    ("scrub G --spark", NO_SPARK),
    ("cleanup G --keep 3", 0),
    ("cleanup G --keep 3 --confirm", 0),
    ("reconcile G", 0),
    ("reconcile G --confirm", 0),
    ("repair G", 0),
    ("repair G --confirm", 0),
    ("repair G --rebuild-manifest", 4),
    ("maintain G", 0),
    ("maintain G --spark", NO_SPARK),
    ("check G", 0),
    ("check G --deep", 0),
    ("commit list G", 0),
    ("commit show G HEAD~1", 0),
    ("log G --graph", 0),
    ("blame G Person nope", 0),
    ("recovery list G", 0),
    ("recovery run G", 0),
    ("blob get G Person p1 photo", 3),
    ("hold list G", 0),
    ("hold release G 01ARZ3NDEKTSV4RRFFQ69G5FAV", 3),
    ("backup G copy", 0),
    ("verify copy", 0),
    ("restore copy restored", 0),
    ("clone G cloned --branch main", 0),
    ("demo small solar", 0),
    ("demo debian deb --sample", 0),
    ("import raw more.csv", 0),
    ("view G -o G.svg", 0),
    ("shell G", 0),
    ("doctor G", 0),
)
"""Commands and their exit codes; G is the graph, and files are those of the folder."""
MADE: Final = frozenset(
    {
        "G",
        "out",
        "out.jsonl",
        "copy",
        "restored",
        "cloned",
        "solar",
        "deb",
        "raw",
        "raw.pg",
        "raw.map.toml",
        "G.svg",
    }
)
"""What commands make in the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How a command ended."""

    command: str
    code: Any
    expected: int
    said: str

    @property
    def fault(self) -> str:
        if self.code != self.expected or "Traceback" in self.said:
            return f"{self.command}: {self.code}, expected {self.expected}\n{self.said}"
        if INSTALL.get(self.expected, "") not in self.said:
            return f"{self.command} does not say what to install\n{self.said}"
        return ""


def lay_out(folder: Path) -> None:
    (folder / "stored").mkdir(parents=True)
    (folder / "stored" / "ask.gq").write_text(ASK)
    (folder / "ask.gq").write_text(ASK)
    (folder / "insert.gq").write_text(INSERT)
    (folder / "schema.pg").write_text(SCHEMA)
    (folder / "new.pg").write_text(NEW_SCHEMA)
    (folder / "people.jsonl").write_text(_person("ann") + _person("bob"))
    (folder / "fresh.jsonl").write_text(_person("cyd"))
    (folder / "more.csv").write_text("name,age\ndan,4\neve,5\n")
    with (folder / "large.jsonl").open("w") as stream:
        # Few records that take long to pass: spaces cost little but their bytes.
        stream.write(_person("fay"))
        while stream.tell() <= LARGE_BYTES:
            stream.write(" " * (8 << 20) + "\n")
        stream.write(_person("gus"))


def _person(name: str) -> str:
    return json.dumps({"type": "Person", "data": {"name": name}}) + "\n"


def run(command: str, expected: int, folder: Path) -> Step:
    from omnigraph_lake.cli.main import main as run

    files = {path.name for path in folder.iterdir()} | MADE
    words = [
        str(folder / word) if word.split("/")[0] in files else word for word in command.split()
    ]
    out, error = _stream(), _stream()
    code: Any = None
    sys.argv = ["omnigraph", *words]
    with redirect_stdout(out), redirect_stderr(error):
        try:
            run()
        except SystemExit as end:
            code = end.code
        except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
            traceback.print_exc()
    error.seek(0)
    return Step(command=command, code=code, expected=expected, said=error.read())


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def main(folder: str, hide: str = "") -> None:
    if hide:
        hide_optional_packages()
    place = Path(folder)
    lay_out(place)
    faults = 0
    for command, expected in STEPS:
        step = run(command, expected, place)
        faults += bool(step.fault)
        print(json.dumps({**asdict(step), "fault": step.fault}), flush=True)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
