"""A consumer of changes that is killed again and again misses nothing and keeps the order.

In the gate it is killed four times, once at each kind of moment; the nightly kills it 15 and 200
times.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.diff.change_feed import changes
from tests.crash.feed_roles import Line, store
from tests.crash.processes import Victim, start
from tests.gate.seeds import case_seeds

pytestmark = pytest.mark.random

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
AT_NIGHT = pytest.mark.nightly("more of the kills that the gate draws four of")
_PATIENCE_SECONDS = 1_200.0


@contextmanager
def running(role: str, root: str, home: Path, last: str) -> Iterator[Victim]:
    process = start(role, root, str(home), last, module="tests.crash.feed_roles")
    try:
        yield process
    finally:
        if not process.has_ended:
            process.kill()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def kill_somewhere(process: Victim, session: int, chance: random.Random) -> None:
    """Kill it at any moment: after it delivered something, after it began, or before that."""
    awaited = ["ready", "delivered"][: (2, 1, 2, 0)[session % 4]]
    wait_until(lambda: process.has_ended or words_of(process)[: len(awaited)] == awaited)
    time.sleep(chance.uniform(0, 0.2))
    process.kill()
    assert process.end().was_killed, words_of(process)


def ended_well(process: Victim) -> bool:
    wait_until(lambda: process.has_ended)
    return process.end().said == "done"


def words_of(process: Victim) -> list[str]:
    return process.out.read_text().split() if process.out.exists() else []


def story(root: str, home: Path, *, kills: int, seed: str) -> tuple[list[Line], list[Line]]:
    """Let a consumer be killed while a writer writes; what was written, what was delivered."""
    graph = og.init(root, schema=SCHEMA)
    home.mkdir()
    store(home / "cursor", changes(graph._objects, graph.schema.catalog, None).cursor)
    chance = random.Random(seed)
    with running("write", root, home, seed) as writer:
        for session in range(kills):
            with running("consume", root, home, str(session)) as consumer:
                kill_somewhere(consumer, session, chance)
        wait_until(lambda: len(read_lines(home / "book")) > kills)
        (home / "enough").touch()
        assert ended_well(writer)
    (home / "written").touch()
    with running("consume", root, home, "last") as consumer:
        assert ended_well(consumer)
    return read_lines(home / "book"), read_lines(home / "delivered")


def read_lines(path: Path) -> list[Line]:
    """The whole lines of a file that may be written to just now."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


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
    "kills",
    [
        4,
        pytest.param(15, marks=AT_NIGHT),
        pytest.param(200, marks=[AT_NIGHT, pytest.mark.timeout(3_000)]),
    ],
)
def test_a_consumer_that_is_killed_at_any_moment_gets_every_change_in_order(
    graph_root: str, tmp_path: Path, kills: int
) -> None:
    (seed,) = case_seeds(f"feed-consumer-{kills}", 1)
    book, delivered = story(graph_root, tmp_path / "home", kills=kills, seed=seed)

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
