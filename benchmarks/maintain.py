"""What `maintain` does for a graph of many small commits: `just bench maintain`.

A thousand commits of a few rows each; then opening the graph, a point read, a filtered read and one
small write are measured, and all files counted, before and after one run of `maintain` that keeps
ten versions. Every look is a process of its own, so that nothing is warm; times are medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final
from unittest.mock import patch

import lance

import omnigraph_lake
import omnigraph_lake.load.write  # imports are no part of a look
from benchmarks.open_cost import CountedObjects
from omnigraph_lake.maintenance.cleanup import CleanupPolicy
from omnigraph_lake.maintenance.maintain import Policy
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import Put

SCHEMA: Final = """
node Person { name: String @key  age: I32 @index  city: String }
node City { name: String @key  size: I32? }
edge LivesIn: Person -> City
edge Knows: Person -> Person { since: I32? }
"""
CITIES: Final = 20
PEOPLE_PER_COMMIT: Final = 5
POLICY: Final = Policy(
    cleanup_policy=CleanupPolicy(keep_versions=10, older_than=timedelta(0)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one deed cost: requests are calls to the store, files written included."""

    milliseconds: float
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A graph on disk and what it costs to use."""

    open: Look
    point_read: Look
    filtered_read: Look
    publish: Look
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One line of the table and of the picture."""

    name: str
    unit: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.before / self.after


class TouchedObjects(CountedObjects):
    """Plain objects that count every call."""

    def put_if_absent(self, path: str, content: bytes) -> Put:
        self.touched["put"] += 1
        return super().put_if_absent(path, content)

    def replace(self, path: str, content: bytes) -> None:
        self.touched["replace"] += 1
        super().replace(path, content)

    def list(self, prefix: str) -> tuple[str, ...]:
        self.touched["list"] += 1
        return super().list(prefix)

    def delete(self, path: str) -> None:
        self.touched["delete"] += 1
        super().delete(path)


def main() -> None:
    options = _options()
    if options.look:
        print(json.dumps({name: asdict(each) for name, each in look(options.look).items()}))
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        root = Path(folder, "graph")
        build(root, options.commits)
        before = measure(root, rounds=options.rounds)
        began = time.perf_counter()
        report = omnigraph_lake.open(str(root)).maintenance.run(POLICY)
        seconds = time.perf_counter() - began
        assert report.exit_code == 0, report
        after = measure(root, rounds=options.rounds)
    bars = compare(before, after)
    print(f"{'':24}{'before':>12}{'after':>12}{'factor':>9}")
    for bar in bars:
        told = f"{_spelt(bar, bar.before):>12}{_spelt(bar, bar.after):>12}{bar.ratio:>8.1f}x"
        print(f"{bar.name:24}{told}")
    print(f"maintain took {seconds:.1f} s after {options.commits:,} commits")
    if options.plot:
        Path(options.plot).write_text(picture(bars, commits=options.commits))
    print(
        json.dumps(
            {
                "name": "maintain",
                "ratio": round(before.objects / after.objects, 2),
                "commits": options.commits,
                "maintain_seconds": round(seconds, 2),
                "before": asdict(before),
                "after": asdict(after),
                "versions": {"pylance": version("pylance"), "python": sys.version.split()[0]},
            }
        )
    )


def build(root: Path, commits: int) -> None:
    """Commits that bring people and their edges, and now and then change older ones."""
    graph = omnigraph_lake.init(str(root), schema=SCHEMA)
    graph.write({"City": [{"name": f"city-{number}", "size": number} for number in range(CITIES)]})
    for commit in range(commits - 1):
        numbers = range(commit * PEOPLE_PER_COMMIT, (commit + 1) * PEOPLE_PER_COMMIT)
        changed = [commit * PEOPLE_PER_COMMIT // 2] if commit % 4 == 3 else []
        rows: dict[str, omnigraph_lake.Rows] = {
            "Person": [_person(each) for each in (*numbers, *changed)]
        }
        if commit % 2:
            rows["LivesIn"] = [
                {"id": f"l-{n}", "src": f"person-{n}", "dst": f"city-{n % CITIES}"} for n in numbers
            ]
        if commit % 3 == 2:
            rows["Knows"] = [
                {"id": f"k-{n}", "src": f"person-{n}", "dst": f"person-{n // 2}", "since": n}
                for n in numbers
            ]
        graph.write(rows, mode="merge")


def _person(number: int) -> dict[str, object]:
    return {"name": f"person-{number}", "age": number % 90, "city": f"city-{number % CITIES}"}


def measure(root: Path, *, rounds: int) -> Shape:
    """Look several times; requests are those of the first look."""
    files = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    looks = [_look_elsewhere(root) for _ in range(rounds)]

    def middle(name: str) -> Look:
        return Look(
            milliseconds=statistics.median(each[name].milliseconds for each in looks),
            requests=looks[0][name].requests,
        )

    return Shape(
        open=middle("open"),
        point_read=middle("point_read"),
        filtered_read=middle("filtered_read"),
        publish=middle("publish"),
        objects=len(files),
        bytes=sum(files),
    )


def _look_elsewhere(root: Path) -> dict[str, Look]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.maintain", "--look", str(root)],
        check=True,
        capture_output=True,
        text=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    return {name: Look(**each) for name, each in said.items()}


def look(uri: str) -> dict[str, Look]:
    """Open, read a person, read an age group, change a person; each as it comes."""
    root = parse_root(uri)
    with patch("omnigraph_lake.opening.StoredObjects", TouchedObjects):
        opened = _cost(root.uri, lambda: omnigraph_lake.open(uri, read_only=True).snapshot())
        graph = omnigraph_lake.open(uri)
    entry = graph.snapshot().tables["node:Person"]

    def read(where: str) -> Callable[[], object]:
        return lambda: open_pinned(root, entry).to_table(filter=where)

    return {
        "open": opened,
        "point_read": _cost(uri, read("id = 'person-77'")),
        "filtered_read": _cost(uri, read("age = 33")),
        "publish": _cost(uri, lambda: graph.write({"Person": [_person(77)]}, mode="merge")),
    }


def _cost(uri: str, do: Callable[[], object]) -> Look:
    CountedObjects.touched.clear()
    reads, files = lance.iops_counter(), _files(uri)
    began = time.perf_counter()
    do()
    elapsed = time.perf_counter() - began
    touched: Counter[str] = CountedObjects.touched
    written = len(_files(uri) - files)
    return Look(
        milliseconds=elapsed * 1_000,
        requests=lance.iops_counter() - reads + touched.total() + written,
    )


def _files(uri: str) -> set[Path]:
    return {path for path in Path(uri).rglob("*") if path.is_file()}


def compare(before: Shape, after: Shape) -> list[Bar]:
    deeds: Mapping[str, tuple[Look, Look]] = {
        "open": (before.open, after.open),
        "point read": (before.point_read, after.point_read),
        "filtered read": (before.filtered_read, after.filtered_read),
        "publish": (before.publish, after.publish),
    }
    return [
        *(
            Bar(name=name, unit="ms", before=one.milliseconds, after=other.milliseconds)
            for name, (one, other) in deeds.items()
        ),
        *(
            Bar(name=f"{name}, requests", unit="", before=one.requests, after=other.requests)
            for name, (one, other) in deeds.items()
        ),
        Bar(name="objects", unit="", before=before.objects, after=after.objects),
        Bar(name="bytes", unit="MB", before=before.bytes / 1e6, after=after.bytes / 1e6),
    ]


def _spelt(bar: Bar, value: float) -> str:
    number = f"{value:,.1f}" if bar.unit and value < 100 else f"{value:,.0f}"
    return f"{number} {bar.unit}".strip()


_STYLE: Final = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px }
  .quiet { fill: #57606a }
  .before { fill: #afb8c1 }
  .after { fill: #0a7f78 }
  .factor { font-weight: 600; fill: #0a7f78 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 } .before { fill: #57606a }
    .after { fill: #2dd4bf } .factor { fill: #2dd4bf }
  }
"""
_LEFT, _WIDE, _ROW, _TOP = 176, 400, 38, 66


def picture(bars: Sequence[Bar], *, commits: int) -> str:
    """Two bars per line: before is the full width, after its share of that."""
    height = _TOP + _ROW * len(bars) + 6
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" '
        f'aria-label="What maintain changes after {commits:,} small commits">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="0" y="18">One run of maintain after {commits:,} small commits'
        "</text>",
        '<rect class="before" x="0" y="31" width="12" height="12" rx="2"/>'
        '<text class="quiet" x="18" y="42">before</text>'
        '<rect class="after" x="76" y="31" width="12" height="12" rx="2"/>'
        '<text class="quiet" x="94" y="42">after, as a share of before</text>',
    ]
    for number, bar in enumerate(bars):
        top = _TOP + _ROW * number
        share = max(2.0, min(bar.after / bar.before, 1.15) * _WIDE)
        said = f"{_spelt(bar, bar.before)} → {_spelt(bar, bar.after)}"
        lines.append(
            f'<text x="0" y="{top + 18}">{bar.name}</text>'
            f'<rect class="before" x="{_LEFT}" y="{top}" width="{_WIDE}" height="12" rx="2"/>'
            f'<rect class="after" x="{_LEFT}" y="{top + 14}" width="{share:.0f}" height="12" '
            'rx="2"/>'
            f'<text class="quiet" x="{_LEFT + _WIDE + 12}" y="{top + 11}">{said}</text>'
            f'<text class="factor" x="{_LEFT + _WIDE + 12}" y="{top + 26}">'
            f"{_factor(bar)}</text>"
        )
    return "\n".join([*lines, "</svg>", ""])


def _factor(bar: Bar) -> str:
    if 0.95 < bar.ratio < 1.05:
        return "the same"
    times, word = (bar.ratio, "less") if bar.ratio > 1 else (1 / bar.ratio, "more")
    return f"{times:.0f} times {word}" if times >= 10 else f"{times:.1f} times {word}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", help="where to write the picture, as SVG")
    parser.add_argument("--look", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", help="where to put the data")
    return parser.parse_args()


if __name__ == "__main__":
    main()
