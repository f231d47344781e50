"""Makes `graphs/unfinished`: kills a published program at its writes, and keeps what differs.

    python -m tests.legacy.unfinished PATH-OF-THE-PROGRAM FOLDER

Every state of sidecar, tables, schema files and manifest is kept once, with what the program itself
exports after it has recovered from it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from omnigraph_lake import names
from tests.legacy.legacy_graphs import GRAPHS
from tests.legacy.programs import GRAPH, Program

ROWS, FURTHER, TRIES = 120, 4, 60
AFTER = "after"
WAITS = (0, 0.003, 0.006, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4)
SCHEMA = """interface Named {
    name: String @index
}

node Thing implements Named {
    slug: String @key
    name: String @index
    i32: I32?
    at: DateTime?
    data: Blob?
}

node Plain {
    slug: String @key
    name: String
}

edge Links: Thing -> Thing {
    weight: F64?
}

edge Owns: Plain -> Thing
"""
MORE_PROPERTIES = SCHEMA.replace("    data: Blob?\n", "    data: Blob?\n    extra: I64?\n")
MORE_TYPES = f"{MORE_PROPERTIES}\nnode Fresh {{ slug: String @key }}\nedge Holds: Fresh -> Thing\n"
FEWER_TYPES = MORE_TYPES.replace("edge Owns: Plain -> Thing\n", "").replace(
    "edge Holds: Fresh -> Thing\n", ""
)


def main(path: str, name_of_folder: str) -> None:
    draw = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        base = Program(path=path, place=Path(folder, "base"))
        _make_base(base)
        forked = base.copied_to(Path(folder, "forked"))
        _fork(forked)
        for name, (start, command) in _writes(base, forked).items():
            kept: set[str] = set()
            for _ in range(TRIES):
                tried = start.copied_to(Path(folder, "try"))
                state = _killed(tried, command, draw)
                if state is not None and state not in kept:
                    kept.add(state)
                    _keep(tried, GRAPHS / name_of_folder / f"{name}-{len(kept)}")
                    sys.stdout.write(f"{name}-{len(kept)} {state}\n")


def _writes(base: Program, forked: Program) -> Mapping[str, tuple[Program, list[str]]]:
    update = "query m() { update Thing set { i32: 7 } where i32 < 900 }"
    delete = "query m() { delete Thing where i32 < 60 }"
    load = ["load", "--data", "more.jsonl", "--mode"]
    return {
        "load": (base, [*load, "merge", GRAPH]),
        "load-branch": (forked, [*load, "append", "--branch", "idle", GRAPH]),
        "update": (base, ["mutate", "-e", update, *base.store]),
        "delete": (base, ["mutate", "-e", delete, *base.store]),
        "merge": (forked, ["branch", "merge", "dev", "--into", "main", *base.store]),
        "optimize": (base, ["optimize", GRAPH]),
        "properties": (base, ["schema", "apply", "--schema", "properties.pg", GRAPH]),
        "types": (base, ["schema", "apply", "--schema", "types.pg", GRAPH]),
        "drop": (base, ["schema", "apply", "--schema", "fewer.pg", GRAPH]),
    }


def _killed(program: Program, command: list[str], draw: random.Random) -> str | None:
    """Kill a command after its sidecar has appeared; what it left, None if it left no sidecar."""
    graph = program.place / GRAPH
    folder = graph / names.RECOVERY_DIR
    writer = subprocess.Popen(
        [program.path, *command],
        cwd=program.place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while writer.poll() is None and not (folder.exists() and any(folder.iterdir())):
        pass
    time.sleep(draw.choice(WAITS))
    writer.kill()
    writer.wait()
    left = sorted(folder.iterdir()) if folder.exists() else []
    if not left:
        return None
    said = [json.loads(path.read_bytes()) for path in left]
    moved = sorted(
        _newest(graph, table) - table["expected_version"]
        for sidecar in said
        for table in sidecar["tables"]
    )
    staged = sorted(path.name for path in graph.iterdir() if path.suffix == names.LEGACY_STAGED)
    manifest = _newest(graph, {"table_path": f"graph/{names.MANIFEST}"})
    return json.dumps([said[0]["writer_kind"], moved, staged, manifest])


def _newest(graph: Path, table: Mapping[str, Any]) -> int:
    place = graph.parent / table["table_path"]
    if not place.exists():
        place = graph / Path(*Path(table["table_path"]).parts[-2:])
    if table.get("table_branch"):
        place = place / "tree" / table["table_branch"]
    versions = (names.lance_version_at(str(path)) for path in place.glob("_versions/*.manifest"))
    return max((version for version in versions if version is not None), default=0)


def _keep(program: Program, out: Path) -> None:
    program.keep(out)
    # Opening for writing recovers, whether or not the row is taken after that.
    program.load([{"type": "Plain", "data": {"slug": AFTER, "name": AFTER}}])
    program.keep_exports(out, without=AFTER)


def _make_base(base: Program) -> None:
    base.place.mkdir()
    base.init(SCHEMA)
    for name, text in (
        ("properties.pg", MORE_PROPERTIES),
        ("types.pg", MORE_TYPES),
        ("fewer.pg", FEWER_TYPES),
    ):
        (base.place / name).write_text(text)
    base.write("more.jsonl", _records(10_000, 10_000 + ROWS))
    for number in range(FURTHER + 1):
        start = 1000 * number
        base.load(_records(start, start + (10 if number else ROWS)))


def _fork(forked: Program) -> None:
    for branch in ("dev", "idle"):
        forked.run("branch", "create", branch, *forked.store)
    forked.load(_records(20_000, 20_020), "--branch", "dev")
    forked.load(_records(0, 20), "--branch", "dev", mode="merge")
    forked.load(_records(30_000, 30_020))


def _records(start: int, stop: int) -> Iterable[dict[str, Any]]:
    for number in range(start, stop):
        values: dict[str, Any] = {"slug": f"t{number}", "name": f"Thing {number}", "i32": number}
        if number % 2:
            values["at"] = f"2024-04-04T10:11:{number % 60:02}Z"
        if number % 3:
            values["data"] = "base64:AAEC"
        yield {"type": "Thing", "data": values}
        yield {"type": "Plain", "data": {"slug": f"p{number}", "name": f"Plain {number}"}}
        yield {"edge": "Links", "from": f"t{number}", "to": f"t{start}", "data": {"weight": 0.5}}


if __name__ == "__main__":
    main(*sys.argv[1:])
