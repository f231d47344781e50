"""The sides of the query benchmark, each in a process of its own that answers over a pipe.

`python -m benchmarks.query_sides omnigraph|ladybug|lance PLACE` reads one JSON object per line and
answers with one: rows, the seconds between the question and the last row, and the most memory that
the process ever had. What a side keeps between questions stays warm; a new process is cold.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.query_questions import QUESTIONS, cypher_hops, our_hops

_BY_NUMBER: Final = {each.number: each for each in QUESTIONS}


class Side(Protocol):
    """Answers questions from what it has at one place.

    It imports what it needs itself, so that no side's memory holds the code of another.
    """

    def __init__(self, place: str) -> None: ...

    @staticmethod
    def load_code() -> None:
        """Loading code is no part of a question."""

    def question(self, number: int) -> list[list[Any]]: ...

    def hops(self, hops: int, key: str) -> list[list[Any]]: ...


class OmnigraphSide:
    """The public API: `graph.query`, and every row fetched."""

    def __init__(self, place: str) -> None:
        import omnigraph

        self.graph = omnigraph.open(place, read_only=True)

    @staticmethod
    def load_code() -> None:
        import omnigraph.engine.query
        import omnigraph.opening
        import omnigraph.query.compile
        import omnigraph.query.planning  # noqa: F401 - it is the loading that counts

    def question(self, number: int) -> list[list[Any]]:
        asked = _BY_NUMBER[number]
        rows = self.graph.query(asked.ours).to_pylist()
        return [[row[name] for name in asked.columns] for row in rows]

    def hops(self, hops: int, key: str) -> list[list[Any]]:
        rows = self.graph.query(our_hops(hops), {"id": key}).to_pylist()
        return [list(row.values()) for row in rows]


class LadybugSide:
    """An embedded graph database with its own files."""

    def __init__(self, place: str) -> None:
        import ladybug

        self.connection = ladybug.Connection(ladybug.Database(place, read_only=True))

    @staticmethod
    def load_code() -> None:
        import ladybug  # noqa: F401 - it is the loading that counts

    def question(self, number: int) -> list[list[Any]]:
        return self._rows(_BY_NUMBER[number].cypher, {})

    def hops(self, hops: int, key: str) -> list[list[Any]]:
        return self._rows(cypher_hops(hops), {"id": key})

    def _rows(self, cypher: str, parameters: dict[str, Any]) -> list[list[Any]]:
        result = self.connection.execute(cypher, parameters)
        assert not isinstance(result, list)
        rows = []
        while result.has_next():
            rows.append(list(result.get_next()))
        return rows


class LanceSide:
    """The edge table of the same graph, and one filter on its index per hop."""

    def __init__(self, place: str) -> None:
        import lance

        import omnigraph
        from omnigraph.storage.lance.tables import open_pinned
        from omnigraph.storage.objects.location import parse_root

        entry = omnigraph.open(place, read_only=True).snapshot().tables["edge:Follows"]
        pinned = open_pinned(parse_root(place), entry)
        session = lance.Session()  # type: ignore[attr-defined]
        self.table = lance.dataset(pinned.uri, version=pinned.version, session=session)

    @staticmethod
    def load_code() -> None:
        import lance

        import omnigraph.opening
        import omnigraph.storage.lance.tables  # noqa: F401 - it is the loading that counts

        assert lance.dataset is not None

    def question(self, number: int) -> list[list[Any]]:
        raise NotImplementedError(f"question {number} takes more than probes")

    def hops(self, hops: int, key: str) -> list[list[Any]]:
        frontier: list[str] = [key]
        for _ in range(hops):
            listed = ", ".join(f"'{each}'" for each in frontier)
            found = self.table.to_table(columns=["dst"], filter=f"src IN ({listed})")
            frontier = found.column("dst").unique().to_pylist()
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

    def __init__(self, side: str, place: Path) -> None:
        self.side = side
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.query_sides", side, str(place)],
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


def cold(side: str, place: Path, **question: Any) -> dict[str, Any]:
    """One question to a process that has opened nothing yet; its seconds include opening."""
    asker = Asker(side, place)
    answer = asker.ask(**question)
    asker.close()
    return answer


def serve(side: type[Side], place: str) -> None:
    """Answer until the pipe is closed; the place is opened by the first question."""
    side.load_code()
    print(json.dumps({"ready": True}), flush=True)
    opened: Side | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.perf_counter()
        opened = opened or side(place)
        rows = (
            opened.question(asked["number"])
            if "number" in asked
            else opened.hops(asked["hops"], asked["key"])
        )
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "rows": rows, "peak": _peak()}), flush=True)


def _peak() -> int:
    """The most memory this program had; what `getrusage` says includes its parent's."""
    status = Path("/proc/self/status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def main(arguments: Sequence[str]) -> None:
    name, place = arguments
    serve(SIDES[name], place)


if __name__ == "__main__":
    main(sys.argv[1:])
