"""Everything that a load leaves behind as one text, to compare runners byte for byte."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import LoadRefusedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.load.report import LoadReport
from tests.load.oracle import TABLES, Case
from tests.load.test_load_random import spelt
from tests.stores import place_copy, root_at

Load = Callable[..., LoadReport]
_BY_NATURE = ("commit_id", "engine", "operation_id", "quarantine", "seconds", "stages")
"""What differs between two loads of the same input."""


def outcome_of(graph: Graph, load: Load) -> str:
    """The report, the rejected records, the message of a refusal, the rows and the check."""
    try:
        report = load(graph)
        refusal = None
    except LoadRefusedError as error:
        report, refusal = cast("LoadReport", error.report), str(error)
    account = {
        name: value
        for name, value in json.loads(report.to_json()).items()
        if name not in _BY_NATURE
    }
    rejected = pq.read_table(report.quarantine).to_pylist() if report.quarantine else []
    left: dict[str, Any] = {
        "report": account,
        "summary": report.summary(),
        "refusal": refusal,
        "rejected": sorted(rejected, key=lambda row: (row["file"], row["line"])),
        "rows": {
            table: sorted(graph.scan(table).read_all().to_pylist(), key=lambda row: str(row["id"]))
            for table in TABLES
        },
        "check": [str(finding) for finding in graph.maintenance.check().findings],
    }
    return json.dumps(left, indent=1, sort_keys=True, default=repr)


def outcomes_of(
    case: Case, home: Path, template: Path, loads: Mapping[str, Callable[[Graph], Any]]
) -> dict[str, str]:
    """What each way to load leaves of a case; a way prepares for a graph, or gives a session."""
    home.mkdir()
    middle = len(case.records) // 2
    for number, part in enumerate((case.records[:middle], case.records[middle:])):
        (home / f"{number}.jsonl").write_text("".join(f"{spelt(record)}\n" for record in part))
    outcomes = {}
    for name, prepare in loads.items():
        root = root_at(home / name)
        place_copy(template, root)
        graph = og.open(root)
        published = {key: list(rows.values()) for key, rows in case.published.items() if rows}
        if published:
            graph.write(published)
        session = prepare(graph)
        options = LoadOptions(
            order_by=case.order_by,
            max_rejected="100%",
            engine="local" if session is None else "spark",
        )

        def load(target: Graph, session: Any = session, options: Any = options) -> LoadReport:
            return target.load(
                [str(home / "0.jsonl"), str(home / "1.jsonl")],
                mode=case.mode,
                on_error="quarantine",
                spark=session,
                options=options,
            )

        outcomes[name] = outcome_of(graph, load)
    shutil.rmtree(home)
    return outcomes
