"""Who takes part in a storm of readers: writers, maintenance, readers that hold views, and feeds.

python -m tests.crash.held_storm_roles ROLE ROOT LOG SEED STOP

Every write gives all rows of both types one number, so a view or a commit of a feed in which two
numbers meet is torn. Every event is a line of a log, written at once; a line that begins with WRONG
is a promise that was not kept. A process ends when the file STOP exists.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from omnigraph_lake.diff.change_feed import BaselineTable, ChangeFeed
from omnigraph_lake.errors import ConflictError, NoLongerKeptError, OmnigraphError
from omnigraph_lake.graph import Graph, GraphView

SCHEMA: Final = """
node Left { name: String @key  n: I64 }
node Right { name: String @key  n: I64 }
"""
TYPES: Final = ("Left", "Right")
ROWS: Final = 4
_ASK: Final = "query q() { match { $l: Left } return { $l.n as n } }"

Say = Callable[[str], object]
Over = Callable[[], bool]


def new_graph(root: str) -> Graph:
    graph = og.init(root, schema=SCHEMA, durability="os")
    graph.write(_rows(0))
    return graph


def _rows(number: int) -> dict[str, list[dict[str, object]]]:
    rows: list[dict[str, object]] = [{"name": f"k{at}", "n": number} for at in range(ROWS)]
    return dict.fromkeys(TYPES, rows)


def numbers(view: Graph | GraphView) -> set[int]:
    """The numbers of all rows: more than one is torn, none has vanished."""
    found: list[int] = []
    for name in TYPES:
        found += view.scan(name).read_all()["n"].to_pylist()
    assert len(found) == 2 * ROWS, f"{len(found)} rows"
    return set(found)


def write(root: str, chance: random.Random, say: Say, over: Over) -> None:
    graph = og.open(root)
    while not over():
        try:
            graph.write(_rows(chance.randrange(1, 1 << 40)), mode="merge")
            say("write")
        except ConflictError:
            say("lost a race")
        time.sleep(chance.uniform(0, 1))


def optimize(root: str, chance: random.Random, say: Say, over: Over) -> None:
    graph = og.open(root)
    while not over():
        _tolerated(graph.maintenance.optimize, say, "optimize")
        time.sleep(chance.uniform(0, 0.5))


def clean(root: str, chance: random.Random, say: Say, over: Over) -> None:
    """As aggressively as it goes: one version is kept."""
    graph = og.open(root)
    while not over():
        _tolerated(
            lambda: graph.maintenance.cleanup(
                keep_versions=1, allow_unsafe_keep=True, dry_run=False
            ),
            say,
            "cleanup",
        )
        time.sleep(chance.uniform(0, 0.3))


def read(root: str, chance: random.Random, say: Say, over: Over) -> None:
    graph = og.open(root)
    while not over():
        try:
            view = _view(graph, chance)
        except NoLongerKeptError:
            say("view refused")
            continue
        _read_held(view, chance, say)
        view.release()
        say("view")
        if chance.random() < 0.3:
            time.sleep(chance.uniform(0, 2))
            _read_released(view, say)


def _view(graph: Graph, chance: random.Random) -> GraphView:
    hold = timedelta(seconds=chance.uniform(30, 60))
    if chance.random() < 0.5:
        return graph.snapshot(hold=hold)
    # The first commit has no rows yet.
    written = [commit for commit in graph.commits(limit=4) if commit.parent_id is not None]
    return graph.at(chance.choice(written).commit_id, hold=hold)


def _read_held(view: GraphView, chance: random.Random, say: Say) -> None:
    """Read again and again for a while; nothing may change or be missing."""
    ends = time.monotonic() + chance.uniform(0.1, 3)
    first: set[int] | None = None
    while first is None or time.monotonic() < ends:
        try:
            found = numbers(view)
            found |= set(view.query(_ASK).to_arrow()["n"].to_pylist())
        except (OmnigraphError, AssertionError) as error:
            still = view.hold is not None and view.hold.is_held
            say(f"WRONG vanished while held ({still}): {type(error).__name__} {error}")
            return
        if len(found) != 1 or found != (first or found):
            say(f"WRONG torn: {found}, {first} before")
        first = found
        say("read")
        time.sleep(chance.uniform(0, 0.3))


def _read_released(view: GraphView, say: Say) -> None:
    """What is gone may be gone, but never anything else."""
    try:
        found = numbers(view)
        say("read after release" if len(found) == 1 else f"WRONG torn after release: {found}")
    except NoLongerKeptError:
        say("gone after release")
    except (OmnigraphError, AssertionError) as error:
        say(f"WRONG told as {type(error).__name__} {error}")


def follow(root: str, chance: random.Random, say: Say, over: Over) -> None:
    graph = og.open(root)
    cursor = _baseline(graph, say)
    while True:
        ends = over()
        feed = graph.changes(cursor=cursor)
        try:
            _follow_to_its_end(feed, chance, say)
            cursor = feed.cursor
        except NoLongerKeptError as error:
            if feed.is_held:
                say(f"WRONG vanished from a feed that holds: {error}")
            say("feed starts over")
            cursor = _baseline(graph, say)
        if ends:
            return
        time.sleep(chance.uniform(0, 0.5))


def _follow_to_its_end(feed: ChangeFeed, chance: random.Random, say: Say) -> None:
    for commit in feed:
        found: set[int] = set()
        for table in commit.tables:
            rows = table.reader().read_all().to_pylist()
            found |= {row["after"]["n"] for row in rows}
        if len(found) > 1 or len(commit.tables) not in (0, len(TYPES)):
            say(f"WRONG torn commit {commit.commit_id}: {found}")
        say("feed commit")
        time.sleep(chance.uniform(0, 0.1))


def _baseline(graph: Graph, say: Say) -> str:
    found: set[int] = set()
    for element in graph.baseline():
        if not isinstance(element, BaselineTable):
            if len(found) != 1:
                say(f"WRONG torn baseline: {found}")
            say("baseline")
            return element.cursor
        found |= {row["after"]["n"] for row in element.reader().read_all().to_pylist()}
    raise AssertionError("a baseline ends with its cursor")


def _tolerated(act: Callable[[], object], say: Say, what: str) -> None:
    """Maintenance may be told to come back later; it never fails otherwise."""
    try:
        act()
        say(what)
    except OmnigraphError as error:
        say(f"{what} put off: {type(error).__name__}")


ROLES: Final[dict[str, Callable[[str, random.Random, Say, Over], None]]] = {
    "writer": write,
    "optimizer": optimize,
    "cleaner": clean,
    "reader": read,
    "feed": follow,
}


def main(role: str, root: str, log: str, seed: str, stop: str) -> None:
    with Path(log).open("a") as file:

        def say(line: str) -> None:
            file.write(f"{line}\n".replace("\n", " ").rstrip() + "\n")
            file.flush()

        try:
            ROLES[role](root, random.Random(seed), say, Path(stop).exists)
        except Exception as error:
            say(f"WRONG {role} ended: {type(error).__name__} {error}")
            raise
    print(json.dumps({"said": "ended"}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
