"""Makes `graphs/unfinished`: kills the published program at its writes, and keeps what differs.

    python -m tests.legacy.unfinished PATH-OF-THE-PROGRAM

Every state of sidecar, tables, schema files and manifest is kept once, with what the program itself
exports after it has recovered from it.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from omnigraph import names
from tests.legacy.legacy_graphs import GRAPHS

OUT = GRAPHS / "unfinished"
ROWS, FURTHER, TRIES = 120, 4, 60
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


def main(program: str) -> None:
    draw = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        base, forked = Path(folder, "base"), Path(folder, "forked")
        _make_base(program, base)
        _make_forked(program, base, forked)
        shutil.rmtree(OUT, ignore_errors=True)
        for name, (start, command) in _writes(base, forked).items():
            kept: set[str] = set()
            for _ in range(TRIES):
                place = Path(folder, "try")
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(start, place)
                state = _killed(program, command, place, draw)
                if state is not None and state not in kept:
                    kept.add(state)
                    _keep(program, place, OUT / f"{name}-{len(kept)}")
                    sys.stdout.write(f"{name}-{len(kept)} {state}\n")


def _writes(base: Path, forked: Path) -> Mapping[str, tuple[Path, list[str]]]:
    update = "query m() { update Thing set { i32: 7 } where i32 < 900 }"
    delete = "query m() { delete Thing where i32 < 60 }"
    return {
        "load": (base, ["load", "--data", "more.jsonl", "--mode", "merge", "graph"]),
        "load-branch": (
            forked,
            ["load", "--data", "more.jsonl", "--mode", "append", "--branch", "idle", "graph"],
        ),
        "update": (base, ["mutate", "-e", update, "--store", "graph"]),
        "delete": (base, ["mutate", "-e", delete, "--store", "graph"]),
        "merge": (forked, ["branch", "merge", "dev", "--into", "main", "--store", "graph"]),
        "optimize": (base, ["optimize", "graph"]),
        "properties": (base, ["schema", "apply", "--schema", "properties.pg", "graph"]),
        "types": (base, ["schema", "apply", "--schema", "types.pg", "graph"]),
        "drop": (base, ["schema", "apply", "--schema", "fewer.pg", "graph"]),
    }


def _killed(program: str, command: list[str], place: Path, draw: random.Random) -> str | None:
    """Kill a command after its sidecar has appeared; what it left, None if it left no sidecar."""
    folder = place / "graph" / names.RECOVERY_DIR
    # The program is given by the caller.
    writer = subprocess.Popen(
        [program, *command], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while writer.poll() is None and not (folder.exists() and any(folder.iterdir())):
        pass
    time.sleep(draw.choice(WAITS))
    writer.kill()
    writer.wait()
    left = sorted(folder.iterdir()) if folder.exists() else []
    if not left:
        return None
    graph = place / "graph"
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


def _keep(program: str, place: Path, out: Path) -> None:
    out.mkdir(parents=True)
    with tarfile.open(out / "graph.tar.gz", "w:gz") as archive:
        archive.add(place / "graph", "graph")
    # Opening for writing recovers, whether or not the row is taken after that.
    _run(program, place, "load", "--data", "after.jsonl", "--mode", "append", "graph")
    listed = _run(program, place, "branch", "list", "--store", "graph").split() or [names.MAIN]
    for branch in listed:
        of_branch = [] if branch == names.MAIN else ["--branch", branch]
        lines = _run(program, place, "export", "graph", *of_branch).splitlines()
        rows = [line for line in lines if json.loads(line)["data"].get("slug") != "after"]
        with (
            (out / f"{branch}.jsonl.gz").open("wb") as file,
            gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
        ):
            packed.write("".join(f"{row}\n" for row in rows).encode())


def _make_base(program: str, base: Path) -> None:
    base.mkdir()
    for name, text in (
        ("schema.pg", SCHEMA),
        ("properties.pg", MORE_PROPERTIES),
        ("types.pg", MORE_TYPES),
        ("fewer.pg", FEWER_TYPES),
    ):
        (base / name).write_text(text)
    _run(program, base, "init", "--schema", "schema.pg", "graph")
    _write(base / "more.jsonl", _records(10_000, 10_000 + ROWS))
    _write(base / "after.jsonl", [{"type": "Plain", "data": {"slug": "after", "name": "after"}}])
    for number in range(FURTHER + 1):
        start = 1000 * number
        _write(base / "rows.jsonl", _records(start, start + (10 if number else ROWS)))
        _run(program, base, "load", "--data", "rows.jsonl", "--mode", "append", "graph")


def _make_forked(program: str, base: Path, forked: Path) -> None:
    shutil.copytree(base, forked)
    for branch in ("dev", "idle"):
        _run(program, forked, "branch", "create", branch, "--store", "graph")
    for start, mode, branch in (
        (20_000, "append", "dev"),
        (0, "merge", "dev"),
        (30_000, "append", ""),
    ):
        _write(forked / "rows.jsonl", _records(start, start + 20))
        on = ["--branch", branch] if branch else []
        _run(program, forked, "load", "--data", "rows.jsonl", "--mode", mode, *on, "graph")


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


def _write(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def _run(program: str, place: Path, *command: str) -> str:
    said = subprocess.run(
        [program, *command], cwd=place, capture_output=True, text=True, check=False
    )
    return said.stdout


if __name__ == "__main__":
    main(sys.argv[1])
