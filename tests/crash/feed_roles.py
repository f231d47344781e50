"""The processes of a feed: a consumer that can be killed at any moment, and the writer it follows.

The consumer appends every change to a file, makes that durable, and stores the cursor after each
commit. The writer's own book says what each commit changed.

python -m tests.crash.feed_roles consume ROOT HOME SESSION
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import omnigraph_lake as og
from omnigraph_lake.diff.change_feed import CommitChanges, changes
from omnigraph_lake.graph import Graph

PEOPLE = 12
SIDES = ("before", "after")
Line = dict[str, Any]


def main(role: str, root: str, home: str, last: str) -> None:
    (consume if role == "consume" else write)(root, Path(home), last)
    print(json.dumps({"said": "done"}), flush=True)


def consume(root: str, home: Path, session: str) -> None:
    """Follow the feed until there is nothing left to wait for."""
    graph = og.open(root, read_only=True)
    drop_half_a_line(home / "delivered")
    print("ready", flush=True)
    with (home / "delivered").open("a") as delivered:
        while True:
            is_last = (home / "written").exists()
            cursor = (home / "cursor").read_text()
            for commit in changes(graph._objects, graph.schema.catalog, None, cursor=cursor):
                for line in lines_of(commit):
                    delivered.write(json.dumps({"session": session, **line}) + "\n")
                    delivered.flush()
                    dawdle()
                os.fsync(delivered.fileno())
                dawdle()
                store(home / "cursor", commit.cursor)
                print("delivered", flush=True)
            if is_last:
                return
            time.sleep(0.02)


def lines_of(commit: CommitChanges) -> Iterator[Line]:
    """A line for the commit, then one per change."""
    yield {"commit": commit.commit_id, "change": None}
    for table in commit.tables:
        for batch in table.reader():
            for row in batch.to_pylist():
                ages = [None if row[side] is None else row[side].get("age") for side in SIDES]
                change = [row["op"], table.table_key, row["id"], *ages]
                yield {"commit": commit.commit_id, "change": change}


def dawdle() -> None:
    """Make it likelier to be killed here."""
    time.sleep(random.uniform(0, 0.01))


def drop_half_a_line(path: Path) -> None:
    """Cut the file off in one step: to write it again would lose all of it to a kill in between."""
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def store(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def write(root: str, home: Path, seed: str) -> None:
    """Commit what chance says until told to stop; the book holds what each commit changed."""
    chance = random.Random(seed)
    graph = og.open(root)
    people: dict[str, int] = {}
    print("ready", flush=True)
    with (home / "book").open("a") as book:
        while not (home / "enough").exists():
            commit_id, changed = write_once(graph, people, chance)
            book.write(json.dumps({"commit": commit_id, "changes": changed}) + "\n")
            book.flush()
            time.sleep(chance.uniform(0, 0.3))


def write_once(
    graph: Graph, people: dict[str, int], chance: random.Random
) -> tuple[str | None, list[list[Any]]]:
    known = sorted(people)
    if known and chance.random() < 0.2:
        name = chance.choice(known)
        result = graph.delete({"Person": [name]})
        return result.commit_id, [["delete", "node:Person", name, people.pop(name), None]]
    given = {f"p{n:02}": chance.randint(0, 2) for n in chance.sample(range(PEOPLE), 4)}
    rows = [{"name": name, "age": age} for name, age in given.items()]
    result = graph.write({"Person": rows}, mode="merge")
    changed = [
        ["update" if name in people else "insert", "node:Person", name, people.get(name), age]
        for name, age in sorted(given.items())
        if people.get(name) != age
    ]
    people.update(given)
    return result.commit_id, changed


if __name__ == "__main__":
    main(*sys.argv[1:])
