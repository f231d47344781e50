"""Makes the graphs of one more published program, such as `graphs/0.6.0`.

    python -m tests.legacy.states PATH-OF-THE-PROGRAM VERSION

Schema and rows are those of `graphs/0.7.1`. Each state is kept with what the program says of it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import omnigraph_lake as og
from tests.legacy.legacy_graphs import GRAPHS, place_graph
from tests.legacy.programs import GRAPH, Program

MORE = (
    {"type": "Thing", "data": {"slug": "m0", "name": "More 0", "kind": "beta"}},
    {"type": "Thing", "data": {"slug": "m1", "name": "Möre", "kind": "beta", "day": "2025-01-02"}},
    {"type": "Plain", "data": {"slug": "n0", "name": "Plain more"}},
    {"edge": "Links", "from": "m0", "to": "m1", "data": {"weight": 0.5, "since": "2025-01-02"}},
)
SMALL_LOADS = 6
LAST_PROPERTY = "    link: String? @unique\n"


def main(path: str, version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program, out = Program(path=path, place=Path(folder, "straight")), GRAPHS / version
        program.place.mkdir()
        plain = og.open(place_graph("0.7.1/plain", f"{folder}/from"), read_only=True)
        program.init(plain.schema.text)
        plain.export(program.place / "plain.jsonl")
        exported = (program.place / "plain.jsonl").read_text().splitlines()
        program.load(map(json.loads, exported))
        _keep(program, out / "plain")

        program.load(MORE, "--as", "ann")
        for change in (
            "update Thing set { i32: 7 } where i32 < 5",
            'delete Thing where slug = "t5"',
        ):
            program.run("mutate", "-e", f"query m() {{ {change} }}", *program.store, "--as", "bob")
        for number in range(SMALL_LOADS):
            program.load([_plain(f"small{number}")])
        _keep(program, out / "history")

        aside = program.copied_to(Path(folder, "aside"))
        aside.run("optimize", GRAPH)
        _keep(aside, out / "optimized")

        for branch in ("dev", "feature"):
            program.run("branch", "create", branch, *program.store)
            program.load([_plain(branch)], "--branch", branch)
        program.run("branch", "merge", "feature", "--into", "main", *program.store)
        program.load([_plain("moved")])
        _keep(program, out / "branches")

        for branch in ("dev", "feature"):
            program.run("branch", "delete", branch, *program.store)
        further = f"{LAST_PROPERTY}    extra: I64?\n    note: String? @index\n"
        evolved = plain.schema.text.replace(LAST_PROPERTY, further)
        (program.place / "evolved.pg").write_text(evolved)
        program.run("schema", "apply", "--schema", "evolved.pg", GRAPH)
        program.load(
            [{"type": "Thing", "data": {"slug": "e0", "name": "E", "kind": "beta", "extra": 5}}]
        )
        _keep(program, out / "evolved")


def _plain(slug: str) -> dict[str, Any]:
    return {"type": "Plain", "data": {"slug": slug, "name": f"Plain {slug}"}}


def _keep(program: Program, out: Path) -> None:
    program.keep(out)
    program.keep_exports(out)
    (out / "commits.json").write_text(program.run("commit", "list", GRAPH, "--json"))


if __name__ == "__main__":
    main(*sys.argv[1:])
