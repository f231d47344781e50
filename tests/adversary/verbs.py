"""Every verb of a graph and every command, with arguments that suit the graph of world.py.

A verb or a command that is new is added to `VERBS` or `COMMANDS`; a second way to call one is an
entry of its own, with a word after its name (`cleanup confirmed`).

    python -m tests.adversary.verbs PLAN   runs entries on roots, prints a line of JSON for each
"""

from __future__ import annotations

import faulthandler
import io
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph
from tests.adversary.plain_process import hide_optional_packages, obey_permissions
from tests.adversary.questions import ALL, FIND
from tests.adversary.world import DEV, DOOMED, EARLY, KEPT, MARK, SCHEMA, SPARE

SECONDS_EACH: Final = 90.0
"""After so long a verb is taken to hang; its process ends with the stack of every thread."""
OPERATION: Final = "01J00000000000000000000000"
NEW_SCHEMA: Final = SCHEMA.replace("nick: String?", f"{MARK}_note: String?  nick: String?")
INSERT: Final = f'query i() {{ insert Person {{ name: "{MARK}-inserted" }} }}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A graph to work on, and files to work with."""

    root: str
    folder: Path

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def output(self, name: str) -> str:
        """A path beside the graph that is not there yet."""
        return f"{self.root}.{name}"


Verb = Callable[[Desk], object]


def lay_out(folder: Path) -> None:
    """Write the files that verbs read."""
    stored = folder / "queries"
    stored.mkdir(parents=True)
    (stored / "find.gq").write_text(FIND)
    (folder / "ask.gq").write_text(ALL)
    (folder / "insert.gq").write_text(INSERT)
    (folder / "schema.pg").write_text(SCHEMA)
    (folder / "new.pg").write_text(NEW_SCHEMA)
    row = {"type": "Person", "data": {"name": f"{MARK}-loaded"}}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "people.csv").write_text("id,name\n1,Ann\n")


def _reads(ask: Callable[[Graph, Desk], object]) -> Verb:
    return lambda desk: ask(og.open(desk.root, read_only=True), desk)


def _writes(change: Callable[[Graph, Desk], object]) -> Verb:
    return lambda desk: change(og.open(desk.root), desk)


def _diff(graph: Graph) -> object:
    diff = graph.diff(EARLY)
    return [diff.rows(key).read_all() for key in diff.tables]


def _changes(graph: Graph) -> object:
    return [
        [table.reader().read_all() for table in commit.tables]
        for commit in graph.changes(start="beginning")
    ]


def _baseline(graph: Graph) -> object:
    return [getattr(table, "reader", lambda: ())() for table in graph.baseline()]


_LINKED: Final = ("Person", ["WorksAt"])
"""Its ends are of two types, which is refused after both tables were read."""
VERBS: Final[Mapping[str, Verb]] = {
    "open": lambda desk: og.open(desk.root),
    "open to read": lambda desk: og.open(desk.root, read_only=True),
    "init": lambda desk: og.init(desk.root, schema=SCHEMA),
    "init forced": lambda desk: og.init(desk.root, schema=SCHEMA, force=True),
    "backup": lambda desk: og.backup(desk.root, desk.output("backup")),
    "clone": lambda desk: og.clone(desk.root, desk.output("clone"), branch=DEV),
    "restore of a backup": lambda desk: og.restore(desk.root, desk.output("restored")),
    "verify": lambda desk: og.verify(desk.root),
    "import_data": lambda desk: og.import_data(desk.root, desk.file("people.csv"), actor=MARK),
    "parse_policy": lambda _: og.parse_policy("[cleanup]\nkeep_versions = 5"),
    "recover": lambda desk: og.recover(desk.root),
    "rebuild_manifest": lambda desk: og.rebuild_manifest(desk.root),
    "rebuild_manifest confirmed": lambda desk: og.rebuild_manifest(desk.root, dry_run=False),
    "schema.apply": _writes(lambda graph, _: graph.schema.apply(NEW_SCHEMA, actor=MARK)),
    "schema.apply on a branch": _writes(
        lambda graph, _: graph.checkout(SPARE).schema.apply(NEW_SCHEMA, actor=MARK)
    ),
    "algorithms.components": _reads(lambda graph, _: graph.algorithms.components(*_LINKED)),
    "algorithms.distances": _reads(lambda graph, _: graph.algorithms.distances(*_LINKED, ["p1"])),
    "algorithms.label_propagation": _reads(
        lambda graph, _: graph.algorithms.label_propagation(*_LINKED)
    ),
    "algorithms.page_rank": _reads(lambda graph, _: graph.algorithms.page_rank(*_LINKED)),
    "algorithms.page_rank to resume": _writes(
        lambda graph, _: graph.algorithms.page_rank(*_LINKED, operation_id=OPERATION)
    ),
    "algorithms.triangle_count": _reads(lambda graph, _: graph.algorithms.triangle_count(*_LINKED)),
    "at": _reads(lambda graph, _: graph.at(EARLY).scan("Person").read_all()),
    "baseline": _reads(lambda graph, _: _baseline(graph)),
    "checkout": _reads(lambda graph, _: graph.checkout(DEV).scan("Person").read_all()),
    "branch": _reads(lambda graph, _: graph.branch),
    "branches.list": _reads(lambda graph, _: graph.branches.list()),
    "schema.catalog": _reads(lambda graph, _: graph.schema.catalog),
    "changes": _reads(lambda graph, _: _changes(graph)),
    "maintenance.check": _reads(lambda graph, _: graph.maintenance.check()),
    "maintenance.check deeply": _reads(lambda graph, _: graph.maintenance.check(deep=True)),
    "maintenance.cleanup": _reads(lambda graph, _: graph.maintenance.cleanup(keep_versions=3)),
    "maintenance.cleanup confirmed": _writes(
        lambda graph, _: graph.maintenance.cleanup(
            keep_versions=1, dry_run=False, allow_unsafe_keep=True
        )
    ),
    "commit": _reads(lambda graph, _: graph.commit(graph.commits()[0].commit_id[:-1])),
    "blame": _reads(lambda graph, _: graph.blame("Person", "p1")),
    "log": _reads(lambda graph, _: graph.log(all_branches=True)),
    "restore": _writes(lambda graph, _: graph.restore("HEAD~1", actor=MARK)),
    "revert": _writes(lambda graph, _: graph.revert("HEAD", actor=MARK)),
    "commits": _reads(lambda graph, _: graph.commits()),
    "count": _reads(lambda graph, _: graph.count("Person")),
    "branches.create": _writes(lambda graph, _: graph.branches.create(f"{MARK}-new")),
    "branches.create from dev": _writes(
        lambda graph, _: graph.branches.create(f"{MARK}-new", source=DEV)
    ),
    "delete": _writes(lambda graph, _: graph.delete({"Person": [DOOMED]}, actor=MARK)),
    "branches.delete": _writes(lambda graph, _: graph.branches.delete(SPARE)),
    "tags.delete": _writes(lambda graph, _: graph.tags.delete(KEPT)),
    "diff": _reads(lambda graph, _: _diff(graph)),
    "scan of edges": _reads(lambda graph, _: graph.scan("WorksAt").read_all()),
    "explain": _reads(lambda graph, _: graph.explain(FIND, k="p1", analyze=True)),
    "export": _reads(lambda graph, desk: graph.export(desk.output("jsonl"))),
    "export as Parquet": _reads(
        lambda graph, desk: graph.export(desk.output("parquet"), format="parquet")
    ),
    "get": _reads(lambda graph, _: graph.get("Person", "p1")),
    "blob": _reads(lambda graph, _: graph.blob("Person", "p1")),
    "is_read_only": _reads(lambda graph, _: graph.is_read_only),
    "holds.list": _reads(lambda graph, _: graph.holds.list()),
    "load": _writes(lambda graph, desk: graph.load(desk.file("rows.jsonl"), actor=MARK)),
    "load on Spark": _writes(
        lambda graph, desk: graph.load(
            desk.file("rows.jsonl"), actor=MARK, options=LoadOptions(engine="spark")
        )
    ),
    "load through a branch": _writes(
        lambda graph, desk: graph.load(
            desk.file("rows.jsonl"),
            actor=MARK,
            options=LoadOptions(branch=f"{MARK}-load", source="main", into="main"),
        )
    ),
    "maintenance.run": _writes(lambda graph, _: graph.maintenance.run()),
    "merge": _writes(lambda graph, _: graph.merge(SPARE, actor=MARK)),
    "merge from main": _writes(lambda graph, _: graph.merge("main", into=SPARE, actor=MARK)),
    "mutate": _writes(lambda graph, _: graph.mutate(INSERT, actor=MARK)),
    "scan": _reads(lambda graph, _: graph.scan("Person").read_all()),
    "scan with a filter": _reads(
        lambda graph, _: graph.scan("Person", filter='name = "p1"', limit=3).read_all()
    ),
    "maintenance.optimize": _writes(lambda graph, _: graph.maintenance.optimize()),
    "outcome": _reads(lambda graph, _: graph.outcome(OPERATION)),
    "branches.diverged": _reads(lambda graph, _: graph.branches.diverged()),
    "schema.plan": _reads(lambda graph, _: graph.schema.plan(NEW_SCHEMA)),
    "queries": _reads(lambda graph, desk: graph.queries(desk.file("queries"))),
    "query": _reads(lambda graph, _: graph.query(FIND, k="p1").to_pylist()),
    "query all": _reads(lambda graph, _: graph.query(ALL).to_pylist()),
    "query on Spark": _reads(lambda graph, _: graph.query(ALL, engine="spark")),
    "maintenance.reconcile": _reads(lambda graph, _: graph.maintenance.reconcile()),
    "maintenance.reconcile confirmed": _writes(
        lambda graph, _: graph.maintenance.reconcile(dry_run=False)
    ),
    "maintenance.recover": _writes(lambda graph, _: graph.maintenance.recover(force=True)),
    "maintenance.recoveries": _reads(lambda graph, _: graph.maintenance.recoveries()),
    "holds.release": _writes(lambda graph, _: graph.holds.release(OPERATION)),
    "maintenance.repair": _reads(lambda graph, _: graph.maintenance.repair()),
    "maintenance.repair confirmed": _writes(
        lambda graph, _: graph.maintenance.repair(dry_run=False, force=True)
    ),
    "root": _reads(lambda graph, _: graph.root),
    "schema.text": _reads(lambda graph, _: graph.schema.text),
    "maintenance.scrub": _writes(lambda graph, _: graph.maintenance.scrub()),
    "maintenance.scrub on Spark": _writes(
        lambda graph, _: graph.maintenance.scrub(spark=cast("Any", True))
    ),
    "snapshot": _reads(lambda graph, _: graph.snapshot()),
    "snapshot held": _writes(lambda graph, _: graph.snapshot(hold="1h").release()),
    "spark": _reads(lambda graph, _: graph.spark()),
    "maintenance.report": _reads(lambda graph, _: graph.maintenance.report()),
    "maintenance.status": _reads(lambda graph, _: graph.maintenance.status()),
    "view": _reads(lambda graph, _: graph.view(around="Person/p1").html()),
    "view_commits": _reads(lambda graph, _: graph.view_commits()),
    "view_types": _reads(lambda graph, _: graph.view_types()),
    "tags.create": _writes(lambda graph, _: graph.tags.create(f"{MARK}-new", actor=MARK)),
    "tags.list": _reads(lambda graph, _: graph.tags.list()),
    "write": _writes(
        lambda graph, _: graph.write({"Person": [{"name": f"{MARK}-written"}]}, actor=MARK)
    ),
    "write on a branch": _writes(
        lambda graph, _: graph.checkout(DEV).write(
            {"Person": [{"name": f"{MARK}-written"}], "Company": [{"name": f"{MARK}-one"}]},
            actor=MARK,
        )
    ),
}
"""Verbs by name; properties are verbs that take no arguments."""

_ROOT: Final = "ROOT"
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "init": (_ROOT, "--schema", "FILE:schema.pg"),
    "status": (_ROOT,),
    "lint": ("FILE:ask.gq", "--graph", _ROOT),
    "fmt": ("FILE:schema.pg", "--check"),
    "lsp": ("--graph", _ROOT),
    "check": (_ROOT,),
    "check deeply": (_ROOT, "--deep", "--json"),
    "backup": (_ROOT, "OUT:command-backup"),
    "restore": (_ROOT, "OUT:command-restored"),
    "clone": (_ROOT, "OUT:command-clone", "--branch", DEV),
    "verify": (_ROOT, "--json"),
    "import": (_ROOT, "FILE:people.csv", "--actor", MARK),
    "load": (_ROOT, "FILE:rows.jsonl", "--actor", MARK),
    "load on Spark": (_ROOT, "FILE:rows.jsonl", "--engine", "spark", "--actor", MARK),
    "export": (_ROOT, "-o", "OUT:command.jsonl"),
    "query": (_ROOT, "FILE:ask.gq"),
    "query as lines": (_ROOT, "FILE:ask.gq", "--format", "jsonl"),
    "mutate": (_ROOT, "FILE:insert.gq", "--actor", MARK),
    "queries": (_ROOT, "FILE:queries"),
    "shell": (_ROOT,),
    "view": (_ROOT, "-o", "OUT:view.html"),
    "merge": (_ROOT, SPARE, "--actor", MARK),
    "diff": (_ROOT, f"{EARLY}..main"),
    "changes": (_ROOT, "--start", "beginning"),
    "optimize": (_ROOT,),
    "optimize on Spark": (_ROOT, "--spark"),
    "scrub": (_ROOT,),
    "scrub recorded": (_ROOT, "--record"),
    "cleanup": (_ROOT, "--keep", "3"),
    "cleanup confirmed": (_ROOT, "--keep", "3", "--confirm"),
    "reconcile": (_ROOT,),
    "reconcile confirmed": (_ROOT, "--confirm"),
    "repair": (_ROOT,),
    "repair confirmed": (_ROOT, "--confirm", "--force"),
    "repair of the manifest": (_ROOT, "--rebuild-manifest"),
    "repair of the manifest confirmed": (_ROOT, "--rebuild-manifest", "--confirm"),
    "maintain": (_ROOT,),
    "blob get": (_ROOT, "Person", "p1"),
    "hold list": (_ROOT,),
    "hold release": (_ROOT, OPERATION),
    "schema show": (_ROOT,),
    "schema plan": (_ROOT, "FILE:new.pg"),
    "schema apply": (_ROOT, "FILE:new.pg", "--actor", MARK),
    "commit list": (_ROOT,),
    "commit show": (_ROOT, "HEAD~1"),
    "log": (_ROOT, "--graph"),
    "blame": (_ROOT, "Person", "p1"),
    "revert": (_ROOT, "HEAD", "--actor", MARK),
    "branch restore": (_ROOT, "HEAD~1", "--actor", MARK),
    "recovery list": (_ROOT,),
    "recovery run": (_ROOT, "--force"),
    "branch create": (_ROOT, f"{MARK}-new"),
    "branch list": (_ROOT,),
    "branch delete": (_ROOT, SPARE),
    "tag create": (_ROOT, f"{MARK}-new", "--actor", MARK),
    "tag list": (_ROOT,),
    "tag delete": (_ROOT, KEPT),
    "demo small": (_ROOT,),
    "demo debian": (_ROOT, "--sample"),
    "doctor": (_ROOT,),
}
"""Arguments by command: `ROOT` is the graph, `FILE:` and `OUT:` are files of the desk."""
WORDS_OF_GROUPS: Final = frozenset(
    {"schema", "commit", "recovery", "branch", "tag", "hold", "demo", "blob"}
)
PROMPT: Final = "$ "
"""What entries of `COMMANDS` begin with in a plan."""


def verb_of(entry: str) -> str:
    """The verb that an entry of `VERBS` calls."""
    return entry.partition(" ")[0]


def command_of(entry: str) -> tuple[str, ...]:
    """The words of the command that an entry of `COMMANDS` runs."""
    words = entry.split()
    return tuple(words[: 2 if words[0] in WORDS_OF_GROUPS else 1])


def arguments_of(entry: str, desk: Desk) -> tuple[str, ...]:
    def spelled(word: str) -> str:
        kind, is_file, name = word.partition(":")
        if word == _ROOT:
            return desk.root
        if is_file:
            return desk.file(name) if kind == "FILE" else desk.output(name)
        return word

    return (*command_of(entry), *map(spelled, COMMANDS[entry]))


ENTRIES: Final = (*VERBS, *(f"{PROMPT}{entry}" for entry in COMMANDS))


class Ending(StrEnum):
    """How a verb ended."""

    RESULT = "result"
    REFUSED = "refused"
    RAW = "raw"
    """By an exception that is not ours, or by a traceback on stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What one entry came to; `code` is the exit code of a command."""

    entry: str
    ending: Ending
    said: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Entries and the root that each of them works on."""

    folder: str
    is_read_only: bool
    roots: Mapping[str, str]

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decoded(text: str) -> Plan:
        return Plan(**json.loads(text))


def call(entry: str, desk: Desk, verbs: Mapping[str, Verb] = VERBS) -> Ended:
    if entry.startswith(PROMPT):
        return _command(entry, desk)
    try:
        verbs[entry](desk)
    except OmnigraphError as error:
        return Ended(entry=entry, ending=Ending.REFUSED, said=f"{type(error).__name__}: {error}")
    except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
        return Ended(entry=entry, ending=Ending.RAW, said=traceback.format_exc())
    return Ended(entry=entry, ending=Ending.RESULT)


def _command(entry: str, desk: Desk) -> Ended:
    from omnigraph_lake.cli.main import main as run

    arguments = arguments_of(entry.removeprefix(PROMPT), desk)
    out, error = _stream(), _stream()
    code: Any = None
    sys.argv = ["omnigraph", *arguments]
    with redirect_stdout(out), redirect_stderr(error), _without_input():
        try:
            run()
        except SystemExit as end:
            code = end.code
        except BaseException:  # noqa: BLE001 - as above
            traceback.print_exc()
            code = -1
    error.seek(0)
    said = error.read()
    return Ended(entry=entry, ending=ending_of(code, said), said=said, code=code)


def ending_of(code: object, said: str) -> Ending:
    """How a command ended, by its exit code and what it wrote to stderr."""
    if not isinstance(code, int) or code < 0 or "Traceback" in said:
        return Ending.RAW
    return Ending.REFUSED if code else Ending.RESULT


@contextmanager
def _without_input() -> Iterator[None]:
    """Standard input that ends at once; pytest refuses to read from its own."""
    before = sys.stdin
    sys.stdin = _stream()
    try:
        yield
    finally:
        sys.stdin = before


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def main(plan: str) -> None:
    given = Plan.decoded(Path(plan).read_text())
    hide_optional_packages()
    if given.is_read_only:
        obey_permissions()
    for entry, root in given.roots.items():
        print(json.dumps({"begun": entry}), flush=True)
        faulthandler.dump_traceback_later(SECONDS_EACH, exit=True)
        ended = call(entry, Desk(root=root, folder=Path(given.folder)))
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(asdict(ended)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
