"""Input whose outcome is known, in several files so that several tasks share it."""

from __future__ import annotations

import json
from pathlib import Path

from omnigraph_lake.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: Date? }
"""
FILES = 6
PEOPLE = 500
WRITTEN = {"Person": FILES * PEOPLE, "Knows": FILES * PEOPLE}
QUARANTINED = {"malformed": FILES, "missing_endpoint": FILES, "duplicate_id": FILES - 1}

DRIVER_POINTS = (
    "mutation.post_sidecar",
    "load.staged",
    "load.settled",
    "load.gathered",
    "mutation.validate",
    "mutation.post_stage",
    "mutation.post_direct_commit",
    "publish.pre_manifest",
    "publish.post_manifest",
    "mutation.post_sidecar_delete",
)
"""Where drivers of loads are killed, in the order of their phases."""
GATE_POINT = "publish.pre_manifest"
"""Where the gate kills a driver: all rows are stored, and no reader sees them yet."""
TASK_POINT = "load.split_staged"
"""Where tasks on executors are killed."""


def write_files(folder: Path) -> str:
    """Six files with a few bad records each; returns a pattern that names them."""
    folder.mkdir()
    for number in range(FILES):
        names = [f"p{number}-{each}" for each in range(PEOPLE)]
        records = [{"type": "Person", "data": {"name": name, "age": 7}} for name in names]
        records += [
            {"edge": "Knows", "from": name, "to": f"p0-{each}"} for each, name in enumerate(names)
        ]
        records.append({"edge": "Knows", "from": "p0-0", "to": "nobody"})
        if number:
            records.append({"type": "Person", "data": {"name": "p0-1"}})
        lines = [json.dumps(record) for record in records]
        (folder / f"{number}.jsonl").write_text("\n".join([*lines, "not json"]) + "\n")
    return str(folder / "*.jsonl")


def require_loaded(graph: Graph) -> None:
    """Exactly the good records are there, once."""
    ids = graph.scan("Person", columns=["id"]).read_all().column("id").to_pylist()
    assert len(ids) == len(set(ids)) == WRITTEN["Person"]
    assert graph.scan("Knows").read_all().num_rows == WRITTEN["Knows"]
    report = graph.maintenance.check()
    assert report.ok, report.findings
    assert not report.pending_operations
