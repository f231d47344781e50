"""What the driver of a very large load costs: `just bench horizon`.

Planning, gathering, the commit and the status are the real ones, over an input of the given size in
sparse files. Tasks are stubbed: every split answers at once with the report of a fragment that was
written once, and keys are not exchanged. Prints seconds and memory of the driver by phase.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
import psutil
import pyarrow as pa

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.load.formats.records import Split
from omnigraph_lake.load.pipeline import run_load
from omnigraph_lake.load.report import Engine, LoadJob, LoadReport
from omnigraph_lake.load.staging import PieceReport, StagedTable
from omnigraph_lake.packed import Packed
from omnigraph_lake.runner.protocol import FramePart, Hop, Send, Sent, Stage, StageMetrics, Task
from omnigraph_lake.runner.shuffle import Scratch, StoredScratch
from omnigraph_lake.runner.stored_pieces import store_pieces
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.staging import bulk

BYTES_PER_EDGE: Final = 108
"""As a line of JSON."""


class Phases:
    """Seconds and memory of the driver since the last mark."""

    def __init__(self) -> None:
        gc.collect()
        self._process = psutil.Process()
        self._base = self._process.memory_info().rss
        self._began = time.perf_counter()
        self.marks: list[dict[str, object]] = []

    def mark(self, name: str) -> None:
        now = time.perf_counter()
        held = self._process.memory_info().rss - self._base
        entry = {"phase": name, "seconds": round(now - self._began, 2), "mb": round(held / 1e6, 1)}
        self.marks.append(entry)
        print(f"  {name:34} {entry['seconds']:>8} s  {entry['mb']:>8} MB", flush=True)
        self._began = time.perf_counter()


class StubRunner:
    """Answers for tasks that would run on a cluster."""

    def __init__(
        self, root: Root, template: StagedTable, edges_per_split: int, phases: Phases
    ) -> None:
        self._root = root
        self._template = template
        self._rows = edges_per_split
        self._phases = phases
        self._scratch: StoredScratch | None = None
        self.parallel = 800
        self.stages: tuple[StageMetrics, ...] = ()

    def map(
        self,
        stage: Stage,
        pieces: Sequence[Any],
        work: Callable[[Any, Task], Any],
        answer: type[Any],
    ) -> Sequence[Any | OmnigraphError]:
        assert stage.name == "parse and stage", stage
        del work
        self._phases.mark("plan splits")
        self._hand_over(pieces)
        answers = Packed((msgspec.msgpack.encode(self._report(split)) for split in pieces), answer)
        self._phases.mark("gather reports")
        return answers

    def map_frames(
        self,
        stage: Stage,
        frames: Mapping[str, object],
        work: Callable[[FramePart, Task], Any],
        answer: type[Any],
    ) -> Sequence[Any | OmnigraphError]:
        raise NotImplementedError

    def exchange(
        self, stage: Stage, pieces: Sequence[Any], send: Send[Any], *hops: Hop
    ) -> list[Sent]:
        del stage, send
        self._phases.mark("plan checks of keys")
        self._hand_over(pieces)
        self._phases.mark(f"hand over {len(pieces):,} pieces, {hops[0].partitions:,} partitions")
        return []

    def _hand_over(self, pieces: Sequence[Any]) -> None:
        assert self._scratch is not None
        store_pieces(self._scratch, pieces)

    @contextmanager
    def scratch(self, operation_id: str) -> Iterator[Scratch]:
        place = StoredScratch(root=self._root, operation_id=operation_id)
        place.open()
        self._scratch = place
        yield place
        self._phases.mark("commit")
        place.close()
        self._phases.mark("remove staged objects")

    def _report(self, split: Split) -> PieceReport:
        ((description, _),) = self._template.fragments
        name = f"{secrets.token_hex(16)}.lance"
        fields = json.loads(description)
        former = fields["files"][0]["path"]
        renamed = description.replace(former, name)
        fields = json.loads(renamed)
        fields["physical_rows"] = self._rows
        staged = StagedTable(rows=self._rows, fragments=[(json.dumps(fields), self._rows)])
        table_key = f"edge:{Path(split.file.path).stem}"
        return PieceReport(
            number=split.number,
            source=split.file.path,
            lines=self._rows,
            records=self._rows,
            refused={},
            first_refused=[],
            tables={table_key: staged},
            given_ids={table_key: 0},
            generated=f"{split.number:026}",
            refused_file=None,
            places_file=f"_staging/places-{split.number}",
        )


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        results = [
            simulate(Path(folder, str(edges)), edges, types=options.types // 2)
            for edges in options.edges
        ]
    print(json.dumps({"name": "horizon", "results": results}))


def simulate(home: Path, edges: int, *, types: int) -> dict[str, object]:
    home.mkdir()
    schema = "\n".join(
        f"node N{number} {{ k: String @key }}\nedge E{number}: N{number} -> N{number} {{ w: I32 }}"
        for number in range(types)
    )
    graph = og.init(str(home / "graph"), schema=schema)
    sources = []
    for number in range(types):
        path = home / f"E{number}.jsonl"
        with path.open("wb") as file:
            os.truncate(file.fileno(), edges // types * BYTES_PER_EDGE)
        sources.append(path)
    template = _template(home)
    print(f"{edges:,} edges in {types * 2} tables")
    phases = Phases()
    splits: list[int] = []
    root = parse_root(graph.root)

    def runner(*_: object) -> StubRunner:
        count = sum(len(job.splits) for job in jobs)
        splits.append(count)
        return StubRunner(root, template, edges // count, phases)

    jobs: list[LoadJob] = []

    def run(job: LoadJob, _: object, *, engine: Engine) -> LoadReport:
        jobs.append(job)
        return run_load(job, runner(), engine=engine)

    with patch.object(load_operation, "run_load", run):
        report = graph.load([str(path) for path in sources], options=LoadOptions(engine="local"))
    phases.mark("report")
    assert sum(report.written.values()) == edges // splits[0] * splits[0]
    graph = og.open(graph.root)
    phases.mark("open")
    graph.maintenance.status()
    phases.mark("status")
    bare = _bare_bytes_per_fragment(home / "graph")
    print(f"  bare Lance holds {bare} bytes per fragment of open tables")
    return {"edges": edges, "splits": splits[0], "bare_bytes": bare, "phases": phases.marks}


_OPEN_ALL: Final = """
import gc, sys
import lance, psutil

first, *paths = sys.argv[1:]
lance.dataset(first).get_fragments()
process = psutil.Process()
before = process.memory_info().rss
tables = [lance.dataset(path) for path in paths]
fragments = sum(len(table.get_fragments()) for table in tables)
gc.collect()
print((process.memory_info().rss - before) // max(1, fragments))
"""


def _bare_bytes_per_fragment(root: Path) -> int:
    """What a process needs that only opens the edge tables."""
    paths = sorted(str(path) for path in (root / "edges").iterdir())
    run = subprocess.run(
        [sys.executable, "-c", _OPEN_ALL, *paths], check=True, capture_output=True, text=True
    )
    return int(run.stdout)


def _template(home: Path) -> StagedTable:
    """A fragment of an edge type, really written."""
    schema = "node N0 { k: String @key } edge E0: N0 -> N0 { w: I32 }"
    graph = og.init(str(home / "one"), schema=schema)
    empty = graph.scan("edge:E0").read_all()
    row = {"id": "a", "src": "b", "dst": "c", "w": 1}
    (fragment,) = bulk.write_rows(
        parse_root(graph.root),
        graph.snapshot().pinned.tables["edge:E0"],
        pa.Table.from_pylist([row], schema=empty.schema),
    )
    return StagedTable(rows=1, fragments=[(fragment.description, 1)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[10**9, 10**10, 9 * 10**10])
    parser.add_argument("--types", type=int, default=200)
    parser.add_argument("--scratch", default=None, help="folder for temporary files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
