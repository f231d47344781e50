"""A change of the schema and writers of the same rows get past each other; nobody loses a row."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError, SchemaChangedError
from omnigraph_lake.graph import Graph
from tests.behind import after_column_files

pytestmark = pytest.mark.behaviour

SCHEMA = "node Doc {\n    name: String @key\n    n: I64\nMORE}\n"
FILLED = '    m: I64 @backfill(from="n")\n'


def schema(more: str = "") -> str:
    return SCHEMA.replace("MORE", more)


def docs(first: int, many: int) -> list[dict[str, object]]:
    return [{"name": f"d{number}", "n": number} for number in range(first, first + many)]


@contextmanager
def writing(graph: Graph) -> Iterator[list[int]]:
    """Another handle that adds a row, again and again; the numbers of those it was told about."""
    written: list[int] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def write() -> None:
        other = og.open(graph.root)
        number = 1_000
        while not done.is_set():
            row: dict[str, object] = {"name": f"d{number}", "n": number}
            if "m" in other.schema.catalog.nodes["Doc"].properties:
                row["m"] = number
            try:
                other.write({"Doc": [row]})
                written.append(number)
            except SchemaChangedError:
                continue
            except OmnigraphError as error:
                # The row was made for the schema of before.
                if "m" not in str(error):
                    failures.append(error)
                    return
                continue
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        done.set()
        thread.join()
    assert not failures


def test_a_backfill_ends_beside_a_steady_writer_and_no_row_is_lost(graph_root: str) -> None:
    graph = og.init(graph_root, schema=schema())
    graph.write({"Doc": docs(0, 50)})

    with writing(graph) as written:
        while not written:
            threading.Event().wait(0.01)
        assert graph.schema.apply(schema(FILLED)).applied
        before = len(written)
        while len(written) < before + 2:
            threading.Event().wait(0.01)

    rows = graph.scan("Doc").read_all().to_pylist()
    assert sorted(row["n"] for row in rows) == [*range(50), *written]
    assert all(row["m"] == row["n"] for row in rows)
    assert graph.maintenance.check().ok


def test_only_what_other_writers_changed_is_computed_again(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(graph_root, schema=schema())
    for part in range(3):
        graph.write({"Doc": docs(part * 10, 10)})

    def write_once(computed: int) -> None:
        # Everything is computed and nothing published: add a row and delete another.
        if computed == 3:
            og.open(graph.root).write({"Doc": [{"name": "late", "n": 99}]})
            og.open(graph.root).delete({"Doc": ["d0"]})

    fragments = after_column_files(monkeypatch, write_once)
    assert graph.schema.apply(schema(FILLED)).applied

    assert fragments == [0, 1, 2, 3]
    rows = {row["name"]: (row["n"], row["m"]) for row in graph.scan("Doc").read_all().to_pylist()}
    assert rows == {**{f"d{n}": (n, n) for n in range(1, 30)}, "late": (99, 99)}


def test_a_writer_lets_a_change_pass_that_has_lost_a_race(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change loses once; the rival that comes then waits until it is through."""
    graph = og.init(graph_root, schema=schema())
    graph.write({"Doc": docs(0, 5)})
    seen: list[bool] = []
    rivals: list[threading.Thread] = []

    def late(number: int) -> None:
        other = og.open(graph.root)
        row = {"name": f"late{number}", "n": number}
        try:
            other.write({"Doc": [row]})
        except OmnigraphError:
            other.write({"Doc": [{**row, "m": number}]})
        seen.append("m" in other.schema.catalog.nodes["Doc"].properties)

    def write_late(computed: int) -> None:
        if computed == 1:
            late(1)
        if computed == 2:
            rivals.append(threading.Thread(target=late, args=(3,)))
            rivals[0].start()
            # The rival has this long to overtake the change, if nothing holds it back.
            threading.Event().wait(0.5)

    after_column_files(monkeypatch, write_late)
    assert graph.schema.apply(schema(FILLED)).applied
    rivals[0].join()

    assert seen == [False, True]
    assert graph.scan("Doc").read_all().num_rows == 7
