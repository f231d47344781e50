"""A published program on its command line, for making the graphs that the tests keep."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omnigraph_lake import names

GRAPH = "graph"


@dataclass(frozen=True, kw_only=True)
class Program:
    """The program, and the folder in which it works on `graph`."""

    path: str
    place: Path

    def run(self, *command: str) -> str:
        """What a command prints; one that is refused prints nothing."""
        said = subprocess.run(
            [self.path, *command], cwd=self.place, capture_output=True, text=True, check=False
        )
        return said.stdout

    @cached_property
    def store(self) -> tuple[str, str]:
        """The option that names the graph to most commands: 0.7 gave it another name."""
        listed = self.run("branch", "list", "--help")
        return ("--store" if "--store <" in listed else "--uri", GRAPH)

    def init(self, schema: str) -> None:
        (self.place / "schema.pg").write_text(schema)
        self.run("init", "--schema", "schema.pg", GRAPH)

    def load(
        self, records: Iterable[Mapping[str, Any]], *options: str, mode: str = "append"
    ) -> None:
        self.write("rows.jsonl", records)
        self.run("load", "--data", "rows.jsonl", "--mode", mode, *options, GRAPH)

    def write(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        (self.place / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def keep(self, out: Path) -> None:
        """Pack the graph as it is."""
        out.mkdir(parents=True)
        with tarfile.open(out / "graph.tar.gz", "w:gz") as archive:
            archive.add(self.place / GRAPH, GRAPH)

    def keep_exports(self, out: Path, *, without: str = "") -> None:
        """Write what it exports of every branch, but for the node of a slug."""
        listed = self.run("branch", "list", *self.store).split() or [names.MAIN]
        for branch in listed:
            of_branch = [] if branch == names.MAIN else ["--branch", branch]
            lines = self.run("export", GRAPH, *of_branch).splitlines()
            rows = [line for line in lines if json.loads(line)["data"].get("slug") != without]
            with (
                (out / f"{branch}.jsonl.gz").open("wb") as file,
                gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
            ):
                packed.write("".join(f"{row}\n" for row in rows).encode())

    def copied_to(self, place: Path) -> Program:
        """The same program in a copy of its folder."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.place, place)
        return Program(path=self.path, place=place)
