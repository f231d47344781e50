"""A consumer of changes that is killed again and again misses nothing and keeps the order.

It appends every change to a file, makes that durable, and stores the cursor after each commit,
while a writer goes on. The writer's own book says what each commit changed.

python -m tests.crash.test_feed_consumer consume ROOT HOME SESSION
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.graph import Graph
from omnigraph.operations.changes import CommitChanges, changes
from tests.crash.processes import HOME

pytestmark = pytest.mark.crash

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
PEOPLE = 12
SIDES = ("before", "after")
Line = dict[str, Any]


def consume(root: str, home: Path, session: str) -> None:
    """Follow the feed until there is nothing left to wait for."""
    graph = omnigraph.open(root, mode="r")
    drop_half_a_line(home / "delivered")
    print("ready", flush=True)
    with (home / "delivered").open("a") as delivered:
        while True:
            is_last = (home / "written").exists()
            cursor = (home / "cursor").read_text()
            for commit in changes(graph._objects, graph.catalog, None, cursor=cursor):
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
    content = path.read_bytes() if path.exists() else b""
    path.write_bytes(content[: content.rfind(b"\n") + 1])


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
    graph = omnigraph.open(root)
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


@contextmanager
def running(role: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.test_feed_consumer", role, *arguments],
        cwd=HOME,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended_well(process: subprocess.Popen[str], seconds: float) -> bool:
    _, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    return True


def kill_somewhere(process: subprocess.Popen[str], session: int, chance: random.Random) -> None:
    """Kill it at any moment: after it delivered something, after it began, or before that."""
    awaited = ["ready\n", "delivered\n"][: (2, 1, 2, 0)[session % 4]]
    assert process.stdout is not None
    for line in awaited:
        assert process.stdout.readline() == line, process.communicate()
    time.sleep(chance.uniform(0, 0.4))
    assert process.poll() is None, process.communicate()
    process.kill()


def story(root: str, home: Path, *, kills: int, seed: int) -> tuple[list[Line], list[Line]]:
    """Let a consumer be killed while a writer writes; what was written, what was delivered."""
    graph = omnigraph.init(root, schema=SCHEMA)
    home.mkdir()
    store(home / "cursor", changes(graph._objects, graph.catalog, None).cursor)
    chance = random.Random(seed)
    with running("write", root, str(home), str(seed)) as writer:
        for session in range(kills):
            with running("consume", root, str(home), str(session)) as consumer:
                kill_somewhere(consumer, session, chance)
        (home / "enough").touch()
        assert ended_well(writer, 60)
    (home / "written").touch()
    with running("consume", root, str(home), "last") as consumer:
        assert ended_well(consumer, 1_200)
    return read_lines(home / "book"), read_lines(home / "delivered")


def read_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def deliveries(lines: Sequence[Line]) -> list[tuple[str, str, list[list[Any]]]]:
    """Who delivered which commit with which changes, one after the other."""
    found: list[tuple[str, str, list[list[Any]]]] = []
    for line in lines:
        if line["change"] is None:
            found.append((line["session"], line["commit"], []))
        else:
            assert found[-1][:2] == (line["session"], line["commit"])
            found[-1][2].append(line["change"])
    return found


def assert_nothing_is_missing(book: Sequence[Line], delivered: Sequence[Line]) -> int:
    """Every commit came whole, in order, and again only where a session was cut off."""
    order = {line["commit"]: number for number, line in enumerate(book)}
    written = {line["commit"]: line["changes"] for line in book}
    found = deliveries(delivered)
    whole: set[str] = set()
    reached = -1
    for number, (session, commit, changed) in enumerate(found):
        following = found[number + 1] if number + 1 < len(found) else None
        was_cut_off = following is not None and following[0] != session
        expected = written[commit]
        assert changed == (expected[: len(changed)] if was_cut_off else expected)
        if changed == expected:
            whole.add(commit)
        place = order[commit]
        if number and found[number - 1][0] == session:
            assert place == order[found[number - 1][1]] + 1, "one after the other"
        else:
            assert place <= reached + 1, "a session goes on where the cursor stands, or before"
        reached = max(reached, place)
    assert whole == set(written)
    return len(found) - len(written)


@pytest.mark.parametrize(
    "kills", [15, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3_000)])]
)
def test_a_consumer_that_is_killed_at_any_moment_gets_every_change_in_order(
    graph_root: str, tmp_path: Path, kills: int
) -> None:
    book, delivered = story(graph_root, tmp_path / "home", kills=kills, seed=kills)

    again = assert_nothing_is_missing(book, delivered)

    print(f"{kills} kills, {len(book)} commits, {again} delivered again")
    assert len(book) > kills
    assert len({line["session"] for line in delivered}) > kills / 3


def test_the_verdict_sees_what_is_missing_or_out_of_order() -> None:
    """The checks above can fail: each of these stories is told wrong."""
    book = [{"commit": c, "changes": [["insert", "node:Person", c, None, 1]]} for c in "abc"]

    def told(*parts: tuple[str, str, int]) -> list[Line]:
        lines: list[Line] = []
        for session, commit, count in parts:
            lines.append({"session": session, "commit": commit, "change": None})
            change = ["insert", "node:Person", commit, None, 1]
            lines += [{"session": session, "commit": commit, "change": change}] * count
        return lines

    right = told(("1", "a", 1), ("1", "b", 0), ("2", "b", 1), ("2", "c", 1))
    assert assert_nothing_is_missing(book, right) == 1
    for wrong in (
        told(("1", "a", 1), ("1", "c", 1)),
        told(("1", "a", 1), ("2", "c", 1)),
        told(("1", "a", 1), ("1", "b", 0), ("1", "c", 1)),
        told(("1", "a", 1), ("1", "b", 1)),
        told(("1", "a", 1), ("1", "b", 0), ("2", "c", 1)),
        told(("1", "a", 1), ("1", "b", 2), ("1", "c", 1)),
        told(("1", "b", 1), ("1", "a", 1), ("1", "c", 1)),
    ):
        with pytest.raises(AssertionError):
            assert_nothing_is_missing(book, wrong)


if __name__ == "__main__":
    role, root, home, last = sys.argv[1:]
    (consume if role == "consume" else write)(root, Path(home), last)
