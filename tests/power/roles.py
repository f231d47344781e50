"""Processes of a power-cut storm: workers that log what was acknowledged, and a judge.

The log is outside the disk whose power is cut; a line is written after the call returned.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import omnigraph_lake as og
from omnigraph_lake import OmnigraphError
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import NothingWrittenError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.snapshot import Snapshot
from tests.power.boots import BOOT_SUFFIX, pretend_boot
from tests.power.promises import (
    ROWS,
    Content,
    added_columns,
    content_of,
    contradictions,
    given_up,
    lost_anywhere,
    lost_rows,
    read_lines,
)

SCHEMA: Final = """
node Person {
  name: String @key
  age: I64?
}
edge Knows: Person -> Person
"""
PERIOD_SECONDS: Final = 15.0
KEPT: Final = 4
"""Branches, tags and added columns that stay; above that, one more is removed."""
ONE_STEP: Final = frozenset({"write", "load", "spark"})
"""Verbs that are one commit: if they fail, nothing of them is there."""
COUNTS: Final = """
query people() { match { $p: Person } return { count($p) as people } }
query edges() { match { $p: Person $p knows $q } return { count($q) as edges } }
"""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When the next call begins. All processes rest at the same time, at the end of a period."""

    pause_seconds: float
    rest_seconds: float

    def wait(self) -> None:
        time.sleep(self.pause_seconds)
        left = PERIOD_SECONDS - time.time() % PERIOD_SECONDS
        if left < self.rest_seconds:
            time.sleep(left)


class Worker:
    """Does one kind of thing after the other, and logs each that was acknowledged."""

    def __init__(self, root: str, log: Path, name: str, durability: og.Durability) -> None:
        self._root = root
        self._log = log
        self._name = name
        self._durability = durability
        self._chance = random.Random(name)
        self._number = 0
        self._written: list[str] = []
        self._seen: tuple[Snapshot, Content] | None = None

    def run(self, verbs: list[str], rhythm: Rhythm) -> None:
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
            "delete": self._delete,
            "unbranch": self._unbranch,
            "untag": self._untag,
            "drop": self._drop,
            "reconcile": self._reconcile,
            "scrub": self._scrub,
            "check": self._check,
            "read": self._read,
        }
        while True:
            verb = self._chance.choice(verbs)
            self._number += 1
            try:
                graph = og.open(self._root, read_only=verb == "read", durability=self._durability)
                acknowledged = verb_of[verb](graph)
            except OmnigraphError as error:
                self._note_failure(verb, error)
            else:
                self._note({"verb": verb, **acknowledged})
            rhythm.wait()

    def start_spark(self) -> None:
        """Start the session that loads find and use; the storm waits for the line."""
        from omnigraph_lake.runner.session import spark_session

        # A session that is killed leaves its files.
        scratch = self._log.with_suffix(".spark")
        scratch.mkdir()
        os.environ |= {"SPARK_LOCAL_DIRS": str(scratch), "TMPDIR": str(scratch)}
        spark_session()
        self._note({"ready": True})

    def _note(self, line: dict[str, Any]) -> None:
        with self._log.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _note_failure(self, verb: str, error: OmnigraphError) -> None:
        nothing = verb in ONE_STEP and isinstance(error, NothingWrittenError)
        absent = {"absent": self._key()} if nothing else {}
        text = f"{type(error).__name__}: {error}"[:1000]
        self._note({"failed": verb, "error": text, **absent})

    def _key(self) -> str:
        return f"{self._name}-{self._number}"

    def _rows(self, count: int = ROWS) -> list[dict[str, Any]]:
        return [{"name": f"{self._key()}-{n}", "age": n} for n in range(count)]

    def _write(self, graph: Graph) -> dict[str, Any]:
        rows = self._rows()
        edges = [{"src": rows[0]["name"], "dst": row["name"]} for row in rows]
        graph.write({"Person": rows, "Knows": edges})
        self._written.append(self._key())
        return {"prefix": self._key(), "rows": len(rows), "edges": len(edges)}

    def _update(self, graph: Graph) -> dict[str, Any]:
        rows = [{"name": f"{self._name}-shared", "age": self._number}]
        graph.write({"Person": rows}, mode="merge")
        return {"shared": f"{self._name}-shared", "age": self._number}

    def _load(self, graph: Graph) -> dict[str, Any]:
        rows = self._rows()
        graph.load(str(self._source(rows)))
        self._written.append(self._key())
        return {"prefix": self._key(), "rows": len(rows)}

    def _load_on_spark(self, graph: Graph) -> dict[str, Any]:
        rows = self._rows()
        graph.load(str(self._source(rows)), options=LoadOptions(engine="spark"))
        return {"prefix": self._key(), "rows": len(rows)}

    def _source(self, rows: list[dict[str, Any]]) -> Path:
        source = self._log.with_suffix(f".{self._number}.jsonl")
        lines = (json.dumps({"type": "Person", "data": row}) for row in rows)
        source.write_text("\n".join(lines))
        return source

    def _merge(self, graph: Graph) -> dict[str, Any]:
        name = f"b-{self._key()}"
        branch = graph.branches.create(name)
        rows = self._rows()
        branch.write({"Person": rows})
        graph.merge(name)
        self._note({"verb": "merge", "prefix": self._key(), "rows": len(rows)})
        self._give_up(name)
        graph.branches.delete(name)
        return {"gone": name}

    def _branch(self, graph: Graph) -> dict[str, Any]:
        name = f"b-{self._key()}"
        branch = graph.branches.create(name)
        self._note({"verb": "branch", "branch": name})
        rows = self._rows()
        branch.write({"Person": rows})
        return {"branch": name, "prefix": self._key(), "rows": len(rows)}

    def _tag(self, graph: Graph) -> dict[str, Any]:
        name = f"t-{self._key()}"
        graph.tags.create(name)
        return {"tag": name}

    def _schema(self, graph: Graph) -> dict[str, Any]:
        column = f"c{self._key().replace('-', '_')}"
        lines = graph.schema.text.splitlines()
        place = next(n for n, line in enumerate(lines) if "age: I64?" in line)
        lines.insert(place + 1, f"  {column}: String?")
        graph.schema.apply("\n".join(lines), allow_diverged=True)
        return {"column": column}

    def _optimize(self, graph: Graph) -> dict[str, Any]:
        graph.maintenance.optimize()
        return {}

    def _cleanup(self, graph: Graph) -> dict[str, Any]:
        graph.maintenance.cleanup(keep_versions=3, dry_run=False)
        return {}

    def _delete(self, graph: Graph) -> dict[str, Any]:
        if not self._written:
            return self._write(graph)
        prefix = self._written.pop(self._chance.randrange(len(self._written)))
        self._give_up(prefix)
        graph.delete({"Person": [f"{prefix}-{n}" for n in range(ROWS)]})
        return {"gone": prefix}

    def _unbranch(self, graph: Graph) -> dict[str, Any]:
        names = [branch.name for branch in graph.branches.list() if branch.parent is not None]
        if len(names) <= KEPT:
            return self._branch(graph)
        name = self._give_up(self._chance.choice(names))
        graph.branches.delete(name)
        return {"gone": name}

    def _untag(self, graph: Graph) -> dict[str, Any]:
        names = [tag.tag for tag in graph.tags.list()]
        if len(names) <= KEPT:
            return self._tag(graph)
        name = self._give_up(self._chance.choice(names))
        graph.tags.delete(name)
        return {"gone": name}

    def _drop(self, graph: Graph) -> dict[str, Any]:
        text = graph.schema.text
        columns = added_columns(text)
        if len(columns) <= KEPT:
            return self._schema(graph)
        column = self._give_up(self._chance.choice(columns))
        kept = [line for line in text.splitlines() if f"{column}:" not in line]
        graph.schema.apply("\n".join(kept), allow_diverged=True)
        return {"gone": column}

    def _give_up(self, name: str) -> str:
        self._note({"gives_up": name})
        return name

    def _reconcile(self, graph: Graph) -> dict[str, Any]:
        graph.maintenance.reconcile(dry_run=False)
        return {}

    def _scrub(self, graph: Graph) -> dict[str, Any]:
        report = graph.maintenance.scrub()
        return {"wrong": [f"scrub: {finding}" for finding in report.findings]}

    def _check(self, graph: Graph) -> dict[str, Any]:
        report = graph.maintenance.check(deep=self._chance.random() < 0.5)
        return {"wrong": [f"check: {finding}" for finding in report.findings]}

    def _read(self, graph: Graph) -> dict[str, Any]:
        """One state, which agrees with itself, with earlier ones and with what was promised."""
        logs = self._log.parent
        promised = read_lines(logs)
        snapshot = graph.snapshot().pinned
        assert snapshot.commit_id is not None
        pinned = graph.at(snapshot.commit_id)
        content = content_of(pinned)
        counted = {
            name: pinned.query(COUNTS, name=name).to_arrow()[name][0].as_py()
            for name in ("people", "edges")
        }
        without = given_up(read_lines(logs))
        wrong = content.half_done()
        wrong += [f"not seen: {line}" for line in lost_rows(content, promised, without)]
        if counted != {"people": len(content.ages), "edges": content.edges.total()}:
            wrong.append(f"counted {counted} in commit {snapshot.commit_id} with other rows")
        if self._seen is not None:
            wrong += _went_back(graph, *self._seen, snapshot, content, without)
        self._seen = snapshot, content
        return {"wrong": wrong}


def _went_back(
    graph: Graph,
    earlier: Snapshot,
    before: Content,
    later: Snapshot,
    after: Content,
    without: set[str],
) -> list[str]:
    """What a later state of a living machine lacks of an earlier one."""
    texts = []
    if later.manifest_version < earlier.manifest_version:
        texts.append(f"version {earlier.manifest_version}, then {later.manifest_version}")
    if earlier.commit_id not in {commit.commit_id for commit in graph.commits()}:
        texts.append(f"commit {earlier.commit_id} was seen and is not in the history")
    gone = before.people.keys() - after.people.keys() - without
    texts += [f"{operation} was seen and is gone" for operation in gone]
    texts += [
        f"{name} was {age}, then {after.ages.get(name)}"
        for name, age in before.ages.items()
        if name.endswith("-shared") and (after.ages.get(name) or 0) < (age or 0)
    ]
    return texts


def work(  # noqa: PLR0917 - arguments of a process have no names
    root: str,
    log: str,
    name: str,
    durability: og.Durability,
    verbs: str,
    boot: str,
    rhythm: str = "0 0",
) -> None:
    pretend_boot(boot, Path(f"{log}{BOOT_SUFFIX}"))
    worker = Worker(root, Path(log), name, durability)
    if "spark" in verbs.split(","):
        worker.start_spark()
    worker.run(verbs.split(","), Rhythm(*map(float, rhythm.split())))


def probe(file: str) -> None:
    """Fails where no process may pretend that the machine was started again."""
    pretend_boot("probe", Path(file))


def leave(file: str) -> None:
    """End, and leave a process behind whose id is printed, as a session of Spark may."""
    pretend_boot("left", Path(file))
    print(subprocess.Popen(["sleep", "600"]).pid)


def judge(root: str, logs: str, boot: str, depth: str = "") -> None:
    """Print what was lost, as JSON; the last line counts."""
    pretend_boot(boot, Path(f"{logs}/judge{BOOT_SUFFIX}"))
    lines = read_lines(Path(logs))
    seen = content_of(og.open(root, read_only=True))
    graph = og.open(root)
    main = content_of(graph)
    wrong = contradictions(main, lines)
    # A writer may finish what a dead one had not acknowledged.
    only_seen = seen.people.keys() - main.people.keys() - given_up(lines)
    wrong += [f"only a reader sees {name}" for name in sorted(only_seen)[:5]]
    lost = lost_anywhere(graph, main, lines)
    report = graph.maintenance.check(deep=depth == "deep")
    graph.write({"Person": [{"name": f"again-{boot}"}]}, mode="merge")
    reread = og.open(root).scan("Person", columns=["name"]).read_all().num_rows
    failures = (line for line in lines if "failed" in line)
    print(
        json.dumps(
            {
                "lost": lost,
                "wrong": wrong,
                "ok": report.ok,
                "findings": [str(finding) for finding in report.findings][:5],
                "rows": reread,
                "promised": Counter(line["verb"] for line in lines if "verb" in line),
                "failed": Counter(_kind_of_failure(line) for line in failures),
            }
        )
    )


def _kind_of_failure(line: dict[str, Any]) -> str:
    return f"{line['failed']} {line['error'].partition(':')[0]}"


def main(role: str, *arguments: str) -> None:
    roles: dict[str, Callable[..., None]] = {
        "work": work,
        "judge": judge,
        "probe": probe,
        "leave": leave,
    }
    roles[role](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
