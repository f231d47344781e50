"""Calls of the public surface with arguments of wrong types and absurd values.

    python -m tests.api.wrong_calls COUNT SEED    so many, drawn from a seed
    python -m tests.api.wrong_calls every         every argument with every value, once

Every verb is called as its signature says, with valid arguments, of which one or two are replaced.
Such a call ends with a result or with an error of ours. Optional packages are hidden, so nothing
starts Spark. Prints a line of JSON for each failure, and a summary.
"""

from __future__ import annotations

import faulthandler
import inspect
import io
import itertools
import json
import os
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import omnigraph_lake as og
from omnigraph_lake import Branches, Holds, LoadOptions, Maintenance, Schema, Tags
from omnigraph_lake.diff.diff import GraphDiff
from omnigraph_lake.engine.query_result import QueryResult
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph, GraphView
from tests.adversary.plain_process import hide_optional_packages

SECONDS_EACH: Final = 60.0
SCHEMA: Final = """
node Person {
    name: String @key
    age: I32?
    size: F32?
    big: U64?
    is_new: Bool?
    seen: DateTime?
    born: Date?
    words: [String]?
    place: Vector(3)?
    face: Blob?
    mood: enum(good, bad)?
}
edge Knows: Person -> Person { since: I64? }
"""
ASK: Final = """
query ask($s: String?, $i: I32?, $u: U64?, $f: F32?, $d: F64?, $b: Bool?, $t: DateTime?, $w: Date?,
          $l: [String]?, $v: Vector(3)?) {
    match { $p: Person  $p.name = $s }
    return { $p.name, $p.age }
}
"""
INSERT: Final = """
query add($s: String, $i: I32?, $f: F32?, $l: [String]?) {
    upsert Person { name: $s, age: $i, size: $f, words: $l }
}
"""
OPERATION: Final = "01J00000000000000000000000"


def _deep(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def _closed() -> io.BytesIO:
    stream = io.BytesIO()
    stream.close()
    return stream


class Odd:
    """An object of a class that nobody expects."""


VALUES: Final[Mapping[str, Callable[[], Any]]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "2**31": lambda: 2**31,
    "2**63": lambda: 2**63,
    "10**400": lambda: 10**400,
    "-10**400": lambda: -(10**400),
    "0.5": lambda: 0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "1e308": lambda: 1e308,
    "complex": lambda: 1j,
    "Decimal": lambda: Decimal("1e999"),
    "empty text": lambda: "",
    "blank": lambda: "  ",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "a\ud800b",
    "long": lambda: "x" * 5000,
    "long path": lambda: "/".join(["x" * 200] * 30),
    "new lines": lambda: "a\n\x1b[31mb",
    "dots": lambda: "../../x",
    "url": lambda: "http://x/y",
    "s3 without bucket": lambda: "s3://",
    "a word": lambda: "Person",
    "main": lambda: "main",
    "bytes": lambda: b"\xff\x00",
    "bytearray": lambda: bytearray(b"x"),
    "memoryview": lambda: memoryview(b"x"),
    "list": list,
    "list of None": lambda: [None],
    "list of lists": lambda: [[1], "x", b"y"],
    "deep list": lambda: _deep(3000),
    "tuple": lambda: (1, "x"),
    "set": lambda: {1, "x"},
    "dict": dict,
    "dict of int": lambda: {1: 2},
    "dict of None": lambda: {None: None},
    "dict of surrogate": lambda: {"\ud800": "\ud800"},
    "dict of types": lambda: {"Person": 5},
    "dict of rows": lambda: {"Person": [5, None, "x"]},
    "dict of deep": lambda: {"Person": _deep(3000)},
    "object": Odd,
    "class": lambda: Odd,
    "lambda": lambda: lambda: None,
    "generator": lambda: (n for n in range(3)),
    "range": lambda: range(5),
    "module": lambda: json,
    "path": lambda: Path("/nowhere/at/all"),
    "path with NUL": lambda: Path("a\0b"),
    "long path object": lambda: Path("x" * 5000),
    "datetime": lambda: datetime(2024, 1, 1, tzinfo=UTC),
    "first datetime": lambda: datetime.min.replace(tzinfo=UTC),
    "last datetime": lambda: datetime.max.replace(tzinfo=UTC),
    "date": lambda: date.max,
    "timedelta": lambda: timedelta.max,
    "negative timedelta": lambda: timedelta(days=-1),
    "stream": lambda: io.StringIO("x"),
    "closed stream": _closed,
    "Ellipsis": lambda: ...,
}


class Desk:
    """A graph and what was made of it; everything is made again when calls have used it up."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._number = itertools.count()
        self._root = str(place / "graph")
        (place / "queries").mkdir()
        (place / "queries" / "ask.gq").write_text(ASK)
        (place / "rows.jsonl").write_text('{"type": "Person", "data": {"name": "eve"}}\n')
        self.graph = og.init(self._root, schema=SCHEMA)
        self.graph.write({"Person": [{"name": "ann", "age": 1}, {"name": "bob"}]})
        self.graph.branches.create("dev")

    def fresh(self, name: str) -> str:
        return str(self.place / f"{name}-{next(self._number)}")

    @property
    def past(self) -> GraphView:
        return self.graph.at("main")

    @property
    def result(self) -> QueryResult:
        return self.graph.query("query all() { match { $p: Person } return { $p.name, $p.age } }")

    @property
    def diff(self) -> GraphDiff:
        return self.graph.diff(self.graph.commits()[-1].commit_id)


PARAMETERS: Final = dict.fromkeys(("s", "i", "u", "f", "d", "b", "t", "w", "l", "v"))
Verbs = Mapping[str, Callable[[Desk], dict[str, Any]]]
READS: Final[Verbs] = {
    "blob": lambda _: {"type": "Person", "key": "ann", "property": "photo"},
    "count": lambda _: {"type": "Person"},
    "explain": lambda _: {"text": ASK, "params": {**PARAMETERS}, "physical": True},
    "export": lambda desk: {"path": desk.fresh("export")},
    "get": lambda _: {"type": "Person", "key": "ann"},
    "queries": lambda desk: {"directory": desk.place / "queries"},
    "query": lambda _: {"text": ASK, "params": {**PARAMETERS}},
    "scan": lambda _: {"type": "Person", "filter": "age > 0", "limit": 2},
    "snapshot": lambda _: {},
    "spark": lambda _: {},
    "view": lambda _: {"around": ("Person", "ann"), "hops": 1, "limit": 5},
    "view_types": lambda _: {},
}
GRAPH: Final[Verbs] = {
    **READS,
    "at": lambda _: {"reference": "main"},
    "baseline": lambda _: {},
    "changes": lambda _: {"start": "beginning"},
    "checkout": lambda _: {"branch": "dev"},
    "blame": lambda _: {"type": "Person", "key": "ann", "limit": 2},
    "commit": lambda _: {"reference": "HEAD"},
    "commits": lambda _: {"limit": 3},
    "delete": lambda _: {"ids": {"Person": ["nobody"]}},
    "diff": lambda _: {"before": "main"},
    "log": lambda _: {"limit": 3},
    "load": lambda desk: {"source": desk.place / "rows.jsonl", "mode": "merge"},
    "merge": lambda _: {"source": "dev"},
    "mutate": lambda _: {"text": INSERT, "params": {"s": "ann", "i": 1, "f": 0.5, "l": ["x"]}},
    "restore": lambda _: {"reference": "main"},
    "revert": lambda _: {"commit": "HEAD"},
    "outcome": lambda _: {"operation_id": OPERATION},
    "view_commits": lambda _: {"limit": 3},
    "write": lambda _: {"tables": {"Person": [{"name": "ann", "age": 2}]}, "mode": "merge"},
}
VIEW: Final[Verbs] = {**READS, "release": lambda _: {}}
BRANCHES: Final[Verbs] = {
    "create": lambda desk: {"name": Path(desk.fresh("branch")).name},
    "delete": lambda _: {"name": "nobody"},
    "diverged": lambda _: {},
    "list": lambda _: {},
}
TAGS: Final[Verbs] = {
    "create": lambda desk: {"name": Path(desk.fresh("tag")).name},
    "delete": lambda _: {"name": "nobody"},
    "list": lambda _: {},
}
HOLDS: Final[Verbs] = {"list": lambda _: {}, "release": lambda _: {"hold_id": OPERATION}}
SCHEMA_VERBS: Final[Verbs] = {
    "apply": lambda _: {"text": SCHEMA},
    "plan": lambda _: {"text": SCHEMA},
}
MAINTENANCE: Final[Verbs] = {
    "check": lambda _: {},
    "cleanup": lambda _: {"keep_versions": 5},
    "optimize": lambda _: {},
    "reconcile": lambda _: {},
    "recover": lambda _: {},
    "recoveries": lambda _: {},
    "repair": lambda _: {},
    "report": lambda _: {},
    "run": lambda _: {},
    "scrub": lambda _: {},
    "status": lambda _: {},
}
PACKAGE: Final[Verbs] = {
    "backup": lambda desk: {"root": desk.graph.root, "target": desk.fresh("backup")},
    "clone": lambda desk: {"root": desk.graph.root, "target": desk.fresh("clone")},
    "import_data": lambda desk: {
        "root": desk.fresh("imported"),
        "sources": {"people": [{"id": 1, "name": "Ann"}]},
    },
    "init": lambda desk: {"root": desk.fresh("new"), "schema": SCHEMA},
    "open": lambda desk: {"root": desk.graph.root, "read_only": True},
    "parse_policy": lambda _: {"text": "[cleanup]\nkeep_versions = 5"},
    "rebuild_manifest": lambda desk: {"root": desk.graph.root},
    "recover": lambda desk: {"root": desk.graph.root},
    "restore": lambda desk: {"backup": desk.graph.root, "root": desk.fresh("restored")},
    "verify": lambda desk: {"root": desk.graph.root},
}
RESULT: Final[Verbs] = {
    "cancel": lambda _: {},
    "first": lambda _: {"count": 1},
    "reader": lambda _: {},
    "scalar": lambda _: {},
    "to_arrow": lambda _: {},
    "to_networkx": lambda _: {},
    "to_pandas": lambda _: {},
    "to_polars": lambda _: {},
    "to_pylist": lambda _: {},
    "view": lambda _: {"limit": 5},
}
DIFF: Final[Verbs] = {
    "rows": lambda _: {"table_key": "node:Person"},
    "to_json_lines": lambda _: {"stream": io.BytesIO()},
    "to_parquet": lambda desk: {"directory": desk.fresh("diff")},
    "view": lambda _: {"limit": 5},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """An object of the public surface, and valid arguments for each of its verbs."""

    name: str
    of: Callable[[Desk], Any]
    kind: Any
    verbs: Verbs

    def callables(self) -> set[str]:
        """The verbs there are."""
        if self.kind is og:
            return {name for name in dir(og) if name.islower()}
        return {
            name
            for name, member in inspect.getmembers(self.kind)
            if not name.startswith("_") and inspect.isfunction(member)
        }


SURFACES: Final = (
    Surface(name="og", of=lambda _: og, kind=og, verbs=PACKAGE),
    Surface(name="Graph", of=lambda desk: desk.graph, kind=Graph, verbs=GRAPH),
    Surface(name="branches", of=lambda desk: desk.graph.branches, kind=Branches, verbs=BRANCHES),
    Surface(name="tags", of=lambda desk: desk.graph.tags, kind=Tags, verbs=TAGS),
    Surface(name="holds", of=lambda desk: desk.graph.holds, kind=Holds, verbs=HOLDS),
    Surface(name="schema", of=lambda desk: desk.graph.schema, kind=Schema, verbs=SCHEMA_VERBS),
    Surface(
        name="maintenance",
        of=lambda desk: desk.graph.maintenance,
        kind=Maintenance,
        verbs=MAINTENANCE,
    ),
    Surface(name="GraphView", of=lambda desk: desk.past, kind=GraphView, verbs=VIEW),
    Surface(name="QueryResult", of=lambda desk: desk.result, kind=QueryResult, verbs=RESULT),
    Surface(name="GraphDiff", of=lambda desk: desk.diff, kind=GraphDiff, verbs=DIFF),
)
_WEIGHTS: Final = {
    "og": 3,
    "Graph": 8,
    "branches": 1,
    "tags": 1,
    "holds": 1,
    "schema": 1,
    "maintenance": 3,
    "GraphView": 4,
    "QueryResult": 1,
    "GraphDiff": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: what is replaced by which value."""

    surface: Surface
    verb: str
    replaced: Mapping[str, str]

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}=<{value}>" for name, value in self.replaced.items())
        return f"{self.surface.name}.{self.verb}({arguments})"


def drawn(chance: random.Random) -> Call:
    (surface,) = chance.choices(SURFACES, weights=[_WEIGHTS[each.name] for each in SURFACES])
    verb = chance.choice(sorted(surface.verbs))
    places = sorted(places_of(surface, verb))
    count = min(len(places), 1 if chance.random() < 0.8 else 2)
    replaced = {place: chance.choice(list(VALUES)) for place in chance.sample(places, count)}
    return Call(surface=surface, verb=verb, replaced=replaced)


def places_of(surface: Surface, verb: str) -> Iterator[str]:
    """Its arguments; `params.x` is a parameter of its query, `rows.x` a value of a row.

    `options.x` is a field of the options of a load.
    """
    for name, parameter in inspect.signature(getattr(surface.kind, verb)).parameters.items():
        if name != "self" and parameter.kind is not parameter.VAR_KEYWORD:
            yield name
    if verb in ("query", "explain"):
        yield from (f"params.{name}" for name in PARAMETERS)
    if verb == "mutate":
        yield from (f"params.{name}" for name in ("s", "i", "f", "l"))
    if verb == "load":
        yield from (f"options.{field.name}" for field in fields(LoadOptions))
    if verb == "write":
        columns = ("name", "age", "size", "big", "is_new", "seen", "born", "words", "place", "face")
        yield from (f"rows.{name}" for name in (*columns, "mood"))


def arguments_of(call: Call, desk: Desk) -> dict[str, Any]:
    given = call.surface.verbs[call.verb](desk)
    for place, value in call.replaced.items():
        whole, _, part = place.partition(".")
        if not part:
            given[place] = VALUES[value]()
        elif whole == "params" and isinstance(given.get("params"), dict):
            given["params"] = {**given["params"], part: VALUES[value]()}
        elif whole == "options":
            given["options"] = LoadOptions(**{part: VALUES[value]()})
        elif whole == "rows":
            given["tables"] = {"Person": [{"name": "ann", part: VALUES[value]()}]}
    return given


def perform(call: Call, desk: Desk) -> str | None:
    """What escaped; empty if the call was refused, None if it had a result."""
    try:
        made = getattr(call.surface.of(desk), call.verb)(**arguments_of(call, desk))
        if call.verb in ("scan", "rows", "reader"):
            made.read_all()
        elif call.verb in ("changes", "baseline"):
            list(itertools.islice(made, 3))
        elif call.verb == "query":
            made.to_pylist()
    except OmnigraphError as error:
        return _unprintable(error)
    except Exception:  # noqa: BLE001 - whatever escapes is what we are looking for
        return traceback.format_exc()
    return None


def _unprintable(error: OmnigraphError) -> str:
    try:
        str(error).encode()
    except UnicodeEncodeError:
        return traceback.format_exc()
    return ""


def every() -> Iterator[Call]:
    for surface in SURFACES:
        for verb in sorted(surface.verbs):
            for place, value in itertools.product(places_of(surface, verb), VALUES):
                yield Call(surface=surface, verb=verb, replaced={place: value})


def run(calls: Iterable[Call]) -> Iterator[tuple[Call, str | None]]:
    """Perform calls in a folder of their own; what escaped from each, as `perform` says."""
    with tempfile.TemporaryDirectory() as place:
        before = Path.cwd()
        os.chdir(place)
        try:
            desk = Desk(Path(place))
            for call in calls:
                faulthandler.dump_traceback_later(SECONDS_EACH, exit=True)
                escaped = perform(call, desk)
                faulthandler.cancel_dump_traceback_later()
                yield call, escaped
        finally:
            os.chdir(before)


def main(count: str = "5000", seed: str = "1") -> None:
    hide_optional_packages()
    calls = (
        every()
        if count == "every"
        else (drawn(random.Random(f"{seed}-{number}")) for number in range(int(count)))
    )
    ends: Counter[str] = Counter()
    for call, escaped in run(calls):
        ends["results" if escaped is None else "escaped" if escaped else "refusals"] += 1
        if escaped:
            print(json.dumps({"call": str(call), "escaped": escaped}), flush=True)
    print(json.dumps(dict(ends)))
    sys.exit(1 if ends["escaped"] else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
