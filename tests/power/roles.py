"""Processes of a power-cut storm: workers that log what was acknowledged, and a judge.

The log is outside the disk whose power is cut; a line is written after the call returned.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import omnigraph
from omnigraph import OmnigraphError
from omnigraph.graph import Graph
from tests.power.boots import pretend_boot

SCHEMA: Final = """
node Person {
  name: String @key
  age: I64?
}
edge Knows: Person -> Person
"""
ROWS: Final = 40


class Worker:
    """Does one kind of thing after the other, and logs each that was acknowledged."""

    def __init__(self, root: str, log: Path, name: str, durability: str) -> None:
        self._root = root
        self._log = log
        self._name = name
        self._durability = durability
        self._chance = random.Random(name)
        self._number = 0

    def run(self, verbs: list[str]) -> None:
        verb_of: dict[str, Callable[[Graph], dict[str, Any]]] = {
            "write": self._write,
            "update": self._update,
            "load": self._load,
            "spark": self._load_on_spark,
            "merge": self._merge,
            "branch": self._branch,
            "tag": self._tag,
            "schema": self._schema,
            "optimize": self._optimize,
            "cleanup": self._cleanup,
        }
        while True:
            verb = self._chance.choice(verbs)
            self._number += 1
            try:
                graph = omnigraph.open(self._root, durability=self._durability)
                acknowledged = verb_of[verb](graph)
            except OmnigraphError as error:
                self._note({"failed": verb, "error": f"{type(error).__name__}: {error}"})
                continue
            self._note({"verb": verb, **acknowledged})

    def start_spark(self) -> None:
        """Start the session that loads find and use; the storm waits for the line."""
        from omnigraph.spark.session import spark_session

        spark_session()
        self._note({"ready": True})

    def _note(self, line: dict[str, Any]) -> None:
        with self._log.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _key(self) -> str:
        return f"{self._name}-{self._number}"

    def _rows(self, count: int = ROWS) -> list[dict[str, Any]]:
        return [{"name": f"{self._key()}-{n}", "age": n} for n in range(count)]

    def _write(self, graph: Graph) -> dict[str, Any]:
        rows = self._rows()
        edges = [{"src": rows[0]["name"], "dst": row["name"]} for row in rows]
        graph.write({"Person": rows, "Knows": edges})
        return {"prefix": self._key(), "rows": len(rows)}

    def _update(self, graph: Graph) -> dict[str, Any]:
        rows = [{"name": f"{self._name}-shared", "age": self._number}]
        graph.write({"Person": rows}, mode="merge")
        return {"shared": f"{self._name}-shared", "age": self._number}

    def _load(self, graph: Graph) -> dict[str, Any]:
        rows = self._rows()
        graph.load(str(self._source(rows)))
        return {"prefix": self._key(), "rows": len(rows)}

    def _load_on_spark(self, graph: Graph) -> dict[str, Any]:
        rows = self._rows()
        graph.load(str(self._source(rows)), engine="spark")
        return {"prefix": self._key(), "rows": len(rows)}

    def _source(self, rows: list[dict[str, Any]]) -> Path:
        source = self._log.with_suffix(f".{self._number}.jsonl")
        lines = (json.dumps({"type": "Person", "data": row}) for row in rows)
        source.write_text("\n".join(lines))
        return source

    def _merge(self, graph: Graph) -> dict[str, Any]:
        name = f"b-{self._key()}"
        branch = graph.create_branch(name)
        rows = self._rows()
        branch.write({"Person": rows})
        graph.merge(name)
        self._note({"verb": "merge", "prefix": self._key(), "rows": len(rows)})
        graph.delete_branch(name)
        return {"no_branch": name}

    def _branch(self, graph: Graph) -> dict[str, Any]:
        name = f"b-{self._key()}"
        branch = graph.create_branch(name)
        self._note({"verb": "branch", "branch": name})
        rows = self._rows()
        branch.write({"Person": rows})
        return {"branch": name, "prefix": self._key(), "rows": len(rows)}

    def _tag(self, graph: Graph) -> dict[str, Any]:
        name = f"t-{self._key()}"
        graph.tag(name)
        return {"tag": name}

    def _schema(self, graph: Graph) -> dict[str, Any]:
        column = f"c{self._key().replace('-', '_')}"
        lines = graph.schema_text.splitlines()
        place = next(n for n, line in enumerate(lines) if "age: I64?" in line)
        lines.insert(place + 1, f"  {column}: String?")
        graph.apply_schema("\n".join(lines))
        return {"column": column}

    def _optimize(self, graph: Graph) -> dict[str, Any]:
        graph.optimize()
        return {}

    def _cleanup(self, graph: Graph) -> dict[str, Any]:
        graph.cleanup(keep_versions=3, confirm=True)
        return {}


def work(root: str, log: str, name: str, durability: str, verbs: str, boot: str) -> None:
    pretend_boot(boot, Path(f"{log}.boot"))
    worker = Worker(root, Path(log), name, durability)
    if "spark" in verbs.split(","):
        worker.start_spark()
    worker.run(verbs.split(","))


def probe(file: str) -> None:
    """Fails where no process may pretend that the machine was started again."""
    pretend_boot("probe", Path(file))


def judge(root: str, logs: str, boot: str) -> None:
    """Print what was lost, as JSON; the last line counts."""
    pretend_boot(boot, Path(f"{logs}/judge.boot"))
    promised = [
        json.loads(line)
        for log in sorted(Path(logs).glob("*.log"))
        for line in log.read_text().splitlines()
    ]
    reader = omnigraph.open(root, mode="r")
    seen = set(_people(reader))
    graph = omnigraph.open(root)
    lost = _lost(graph, promised)
    names = set(_people(graph))
    # A writer may finish what a dead one had not acknowledged.
    wrong = [{"only a reader sees": sorted(seen - names)[:5]}] if not seen <= names else []
    report = graph.check()
    graph.write({"Person": [{"name": f"again-{boot}"}]}, mode="merge")
    reread = omnigraph.open(root).nodes("Person", columns=["name"]).read_all().num_rows
    print(
        json.dumps(
            {
                "lost": lost,
                "wrong": wrong,
                "ok": report.ok,
                "findings": [str(finding) for finding in report.findings][:5],
                "rows": reread,
                "promised": Counter(line["verb"] for line in promised if "verb" in line),
                "failed": [line for line in promised if "failed" in line][:5],
            }
        )
    )


def _lost(graph: Graph, promised: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lost: list[dict[str, Any]] = []
    deleted = {line["no_branch"] for line in promised if "no_branch" in line}
    branches = {branch.name for branch in graph.branches()}
    tags = {tag.tag for tag in graph.tags()}
    found = {None: _people(graph)}
    ages: dict[str, int] = {}
    for line in promised:
        if "shared" in line:
            ages[line["shared"]] = line["age"]
        name = line.get("branch")
        if name is not None and name not in deleted:
            if name not in branches:
                lost.append(line)
                continue
            if name not in found:
                found[name] = _people(graph.branch(name))
        if "prefix" in line and name not in deleted:
            rows = [key for key in found[name] if key.startswith(f"{line['prefix']}-")]
            if len(rows) != line["rows"]:
                lost.append({**line, "found": len(rows)})
        if "tag" in line and line["tag"] not in tags:
            lost.append(line)
        if "column" in line and line["column"] not in graph.schema_text:
            lost.append(line)
    lost += [
        {"shared": name, "age": age, "found": found[None].get(name)}
        for name, age in ages.items()
        if (found[None].get(name) or 0) < age
    ]
    lost += [{"no_branch": name} for name in deleted if name in branches]
    return lost


def _people(graph: Graph) -> dict[str, int | None]:
    rows = graph.nodes("Person", columns=["name", "age"]).read_all().to_pylist()
    return {row["name"]: row["age"] for row in rows}


def main(role: str, *arguments: str) -> None:
    roles: dict[str, Callable[..., None]] = {"work": work, "judge": judge, "probe": probe}
    roles[role](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
