"""A load whose process dies is there as a whole or not at all, and the next writer goes on.

Where a load does what every writer does, the gate kills it only right before its publish: what it
leaves at the other points is what writers leave there, which are killed at each of them.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from tests.forking.programs import run_code, run_command
from tests.gate.selection import for_gate

pytestmark = pytest.mark.crash

SCHEMA = "node N { k: I64 @key }\nnode M { k: I64 @key }\nedge E: N -> M\n"
POINTS = [
    "load.settled",
    "load.gathered",
    "mutation.post_stage",
    "mutation.post_direct_commit",
    "publish.pre_manifest",
    "publish.post_manifest",
]
COLUMNS_POINT = "schema.post_columns"
IN_THE_GATE = frozenset({"load.settled", "load.gathered", "publish.pre_manifest", COLUMNS_POINT})
WIDENING = """
import sys
import omnigraph_lake as og
import pyarrow as pa

og.open(sys.argv[1]).load(
    {"N": pa.table({"k": [1], "size": [5]})}, options=og.LoadOptions(merge_schema=True)
)
"""


@pytest.mark.parametrize("point", for_gate(POINTS, IN_THE_GATE.__contains__))
def test_a_killed_load_is_there_as_a_whole_or_not_at_all(
    graph_root: str, tmp_path: Path, point: str
) -> None:
    og.init(graph_root, schema=SCHEMA)
    source = tmp_path / "input.jsonl"
    source.write_text(
        '{"type": "N", "data": {"k": 1}}\n'
        '{"type": "M", "data": {"k": 2}}\n'
        '{"edge": "E", "from": "1", "to": "2"}\n'
        "oops\n"
    )

    killed = run_command(
        *("load", graph_root, str(source), "--on-error", "quarantine", "--max-rejected", "1"),
        env={"OMNIGRAPH_FAILPOINTS": f"{point}=kill"},
    )
    graph = og.open(graph_root)
    counts = [
        graph.scan("N").read_all().num_rows,
        graph.scan("M").read_all().num_rows,
        graph.scan("E").read_all().num_rows,
    ]

    assert killed.returncode == -signal.SIGKILL
    assert counts in ([0, 0, 0], [1, 1, 1])
    assert counts == [1, 1, 1] or point != "publish.post_manifest"
    assert graph.maintenance.status().pending_sidecars == ()
    again = graph.load(
        source, mode="merge", on_error="quarantine", options=LoadOptions(max_rejected=1)
    )
    assert again.written == {"N": 1, "M": 1, "E": 1}
    assert graph.maintenance.check().ok


@pytest.mark.parametrize("point", for_gate([*POINTS, COLUMNS_POINT], {COLUMNS_POINT}.__contains__))
def test_a_killed_load_with_new_columns_leaves_both_or_neither(graph_root: str, point: str) -> None:
    og.init(graph_root, schema=SCHEMA)

    killed = run_code(WIDENING, graph_root, env={"OMNIGRAPH_FAILPOINTS": f"{point}=kill"})
    graph = og.open(graph_root)
    columns, rows = graph.scan("N").schema.names, graph.count("N")

    assert killed.returncode == -signal.SIGKILL
    assert (columns, rows) in ((["id", "k"], 0), (["id", "k", "size"], 1))
    assert rows == 1 or point not in {"publish.pre_manifest", "publish.post_manifest"}
    assert graph.maintenance.status().pending_sidecars == ()
    frame = pa.table({"k": [1, 2], "size": [5, 6]})
    graph.load({"N": frame}, mode="merge", options=LoadOptions(merge_schema=True))
    loaded = graph.scan("N", columns=["k", "size"]).read_all()
    assert loaded.sort_by("k").to_pylist() == frame.to_pylist()
    assert graph.maintenance.check().ok
