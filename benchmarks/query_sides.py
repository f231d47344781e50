"""The sides of the query benchmark, each in a process of its own that answers over a pipe.

`python -m benchmarks.query_sides omnigraph|ladybug|lance PLACE` reads one JSON object per line and
answers with one: rows, the wall and CPU seconds between the question and the last row, and the most
memory that the process ever had. What a side keeps between questions stays warm. A side that is
started with `--writable` also commits writes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.query_questions import QUESTIONS, Start, cypher_hops, our_hops

_BY_NUMBER: Final = {question.number: question for question in QUESTIONS}

LADYBUG_SHELL: Final = """
import json, sys
import ladybug
place, cypher, parameters = sys.argv[1:]
connection = ladybug.Connection(ladybug.Database(place, read_only=True))
result = connection.execute(cypher, json.loads(parameters))
rows = []
while result.has_next():
    rows.append(list(result.get_next()))
print(json.dumps(rows))
"""
"""What `omnigraph query` is for the other side: it has no command of its own."""


class Side(Protocol):
    """Answers questions from what it has at one place.

    It imports what it needs itself, so that no side's memory holds the code of another.
    """

    def __init__(self, place: str, *, is_writable: bool) -> None: ...

    @staticmethod
    def load_code() -> None:
        """Loading code is no part of a question."""

    def question(self, number: int) -> list[list[Any]]: ...

    def hops(self, hops: int, start: Start, key: str) -> list[list[Any]]: ...

    def add_edge(self, source: str, target: str) -> None:
        """Commit one person following another."""

    def set_age(self, person: str, age: int) -> None:
        """Commit one change of a person."""


class OmnigraphSide:
    """The public API: `graph.query`, and every row fetched."""

    def __init__(self, place: str, *, is_writable: bool) -> None:
        import omnigraph_lake

        self.graph = omnigraph_lake.open(place, read_only=not is_writable)

    @staticmethod
    def load_code() -> None:
        import omnigraph_lake.engine.query
        import omnigraph_lake.load.write
        import omnigraph_lake.opening
        import omnigraph_lake.query.compile
        import omnigraph_lake.query.planning  # noqa: F401 - it is the loading that counts

    def question(self, number: int) -> list[list[Any]]:
        asked = _BY_NUMBER[number]
        rows = self.graph.query(asked.ours).to_pylist()
        return [[row[name] for name in asked.columns] for row in rows]

    def hops(self, hops: int, start: Start, key: str) -> list[list[Any]]:
        rows = self.graph.query(our_hops(hops, start), {"id": key}).to_pylist()
        return [list(row.values()) for row in rows]

    def add_edge(self, source: str, target: str) -> None:
        self.graph.write({"Follows": [{"src": source, "dst": target}]})

    def set_age(self, person: str, age: int) -> None:
        self.graph.write({"Person": [{"name": person, "age": age}]}, mode="merge")


class LadybugSide:
    """An embedded graph database with its own files."""

    def __init__(self, place: str, *, is_writable: bool) -> None:
        import ladybug

        self.connection = ladybug.Connection(ladybug.Database(place, read_only=not is_writable))

    @staticmethod
    def load_code() -> None:
        import ladybug  # noqa: F401 - it is the loading that counts

    def question(self, number: int) -> list[list[Any]]:
        return self._rows(_BY_NUMBER[number].cypher, {})

    def hops(self, hops: int, start: Start, key: str) -> list[list[Any]]:  # noqa: ARG002 - the id is its key
        return self._rows(cypher_hops(hops), {"id": key})

    def add_edge(self, source: str, target: str) -> None:
        self._rows(
            "MATCH (a:Person), (b:Person) WHERE a.id = $source AND b.id = $target "
            "CREATE (a)-[:Follows]->(b)",
            {"source": source, "target": target},
        )

    def set_age(self, person: str, age: int) -> None:
        self._rows(
            "MATCH (p:Person) WHERE p.id = $person SET p.age = $age", {"person": person, "age": age}
        )

    def _rows(self, cypher: str, parameters: dict[str, Any]) -> list[list[Any]]:
        result = self.connection.execute(cypher, parameters)
        assert not isinstance(result, list)
        rows = []
        while result.has_next():
            rows.append(list(result.get_next()))
        return rows


class LanceSide:
    """The edge table of the same graph, and one filter on its index per hop."""

    def __init__(self, place: str, *, is_writable: bool) -> None:
        import lance

        import omnigraph_lake
        from omnigraph_lake.storage.lance.tables import open_pinned
        from omnigraph_lake.storage.objects.location import parse_root

        assert not is_writable
        entry = omnigraph_lake.open(place, read_only=True).snapshot().tables["edge:Follows"]
        pinned = open_pinned(parse_root(place), entry)
        session = lance.Session()  # type: ignore[attr-defined]
        self.table = lance.dataset(pinned.uri, version=pinned.version, session=session)

    @staticmethod
    def load_code() -> None:
        import lance

        import omnigraph_lake.opening
        import omnigraph_lake.storage.lance.tables  # noqa: F401 - it is the loading that counts

        assert lance.dataset is not None

    def question(self, number: int) -> list[list[Any]]:
        raise NotImplementedError(f"question {number} takes more than probes")

    def add_edge(self, source: str, target: str) -> None:
        raise NotImplementedError(f"an edge from {source} to {target} is no row of one table")

    def set_age(self, person: str, age: int) -> None:
        raise NotImplementedError(f"{person} of age {age} is no row of the edge table")

    def hops(self, hops: int, start: Start, key: str) -> list[list[Any]]:
        assert start is Start.ID
        frontier: list[str] = [key]
        for _ in range(hops):
            listed = ", ".join(f"'{person}'" for person in frontier)
            edges = self.table.to_table(columns=["dst"], filter=f"src IN ({listed})")
            frontier = edges.column("dst").unique().to_pylist()
            if not frontier:
                break
        return [[len(frontier)]]


SIDES: Final[dict[str, type[Side]]] = {
    "omnigraph": OmnigraphSide,
    "ladybug": LadybugSide,
    "lance": LanceSide,
}


# The pipe


class Asker:
    """The other end: starts a side, asks it, and ends it."""

    def __init__(self, side: str, place: Path, *, is_writable: bool = False) -> None:
        self.side = side
        program = [sys.executable, "-m", "benchmarks.query_sides", side, str(place)]
        self._process = subprocess.Popen(
            [*program, *(["--writable"] if is_writable else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the side {self.side} died, see above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


def serve(side: Side) -> None:
    """Answer until the pipe is closed."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        began, cpu_began = time.perf_counter(), time.process_time()
        rows = _answer(side, asked)
        answer = {
            "wall": time.perf_counter() - began,
            "cpu": time.process_time() - cpu_began,
            "process_cpu": time.process_time(),
            "rows": rows,
            "peak": _peak(),
        }
        print(json.dumps(answer), flush=True)


def _answer(side: Side, asked: dict[str, Any]) -> list[list[Any]]:
    if "number" in asked:
        return side.question(asked["number"])
    if "hops" in asked:
        return side.hops(asked["hops"], Start(asked["start"]), asked["key"])
    if "edge" in asked:
        side.add_edge(*asked["edge"])
    else:
        side.set_age(*asked["age"])
    return []


def _peak() -> int:
    """The most memory this program had; what `getrusage` says includes its parent's."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("place")
    parser.add_argument("--writable", action="store_true")
    options = parser.parse_args()
    chosen = SIDES[options.side]
    chosen.load_code()
    serve(chosen(options.place, is_writable=options.writable))


if __name__ == "__main__":
    main()
