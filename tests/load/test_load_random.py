"""Random small loads through the whole engine, against the oracle."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import LoadRefusedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.load.report import LoadReport
from tests.drawing import drawn
from tests.load.oracle import SCHEMA, TABLES, Case, Expected, Record, expect
from tests.load.random_loads import good_records, loads
from tests.stores import place_copy, root_at

pytestmark = pytest.mark.random

BAD = (
    ("malformed", "oops"),
    ("malformed", '{"type": "A"'),
    ("unknown_type", '{"type": "Z"}'),
    ("wrong_type", '{"type": "A", "data": {"name": 7}}'),
    ("missing_required", '{"type": "A"}'),
    ("unknown_column", '{"edge": "S", "from": "a", "to": "a", "data": {"x": 1}}'),
)


@st.composite
def any_records(draw: st.DrawFn) -> Record:
    if draw(st.integers(0, 9)):
        return draw(good_records())
    reason, text = draw(st.sampled_from(BAD))
    return Record(table="", row={"text": text}, reason=reason)


def spelt(record: Record) -> str:
    if record.reason is not None:
        return str(record.row["text"])
    kind, _, name = record.table.partition(":")
    data = {key: value for key, value in record.row.items() if key not in {"src", "dst"}}
    if record.table == "node:A":
        del data["id"]
    if kind == "node":
        return json.dumps({"type": name, "data": data})
    return json.dumps(
        {"edge": name, "from": record.row["src"], "to": record.row["dst"], "data": data}
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "graph"
    og.init(str(root), schema=SCHEMA)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_random_loads_end_as_plain_python_says(
    template: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_operation, "_LOCAL_SPLIT_BYTES", 300)

    @drawn(3)
    @given(
        loads(any_records()),
        st.sampled_from(["fail", "quarantine"]),
        st.sampled_from(["0%", "30%", "100%"]),
    )
    def agree(case: Case, policy: Any, max_bad: str) -> None:
        graph = published(template, folder, case)
        expected = expect(case)
        source = folder / "input.jsonl"
        source.write_text("".join(f"{spelt(record)}\n" for record in case.records))
        ceiling = max_bad if policy == "quarantine" else "0%"
        accepted = not expected.broken and 100 * expected.faults <= int(
            ceiling.removesuffix("%")
        ) * len(case.records)

        report = loaded(graph, source, case, policy, max_bad)

        assert (report.commit_id is not None) == (accepted and bool(expected.written(case)))
        assert report.read == len(case.records)
        assert report.written == {
            key.partition(":")[2]: count for key, count in expected.written(case).items()
        }
        assert report.quarantined == expected.quarantined()
        assert bool(report.broken) == expected.broken
        assert_quarantine(report, expected, source, accepted=accepted)
        content = expected.graph if report.commit_id else case.published
        assert rows_of(graph) == {key: sorted_rows(content[key].values()) for key in TABLES}

    agree()


def published(template: Path, folder: Path, case: Case) -> Graph:
    root = root_at(Path(tempfile.mkdtemp(dir=folder), "graph"))
    place_copy(template, root)
    graph = og.open(root)
    content = {key: list(rows.values()) for key, rows in case.published.items() if rows}
    if content:
        graph.write(content)
    return graph


def loaded(graph: Graph, source: Path, case: Case, policy: Any, max_bad: str) -> LoadReport:
    max_rejected = max_bad if policy == "quarantine" else None
    try:
        return graph.load(
            source,
            mode=case.mode,
            on_error=policy,
            options=LoadOptions(order_by=case.order_by, max_rejected=max_rejected),
        )
    except LoadRefusedError as error:
        return cast("LoadReport", error.report)


def assert_quarantine(
    report: LoadReport, expected: Expected, source: Path, *, accepted: bool
) -> None:
    assert (report.quarantine is not None) == (accepted and bool(expected.refused))
    if report.quarantine is None:
        return
    lines = source.read_bytes().splitlines()
    rows = pq.read_table(report.quarantine).to_pylist()
    assert [(row["line"], row["reason"], row["raw"]) for row in rows] == [
        (number + 1, reason, lines[number]) for number, reason in sorted(expected.refused.items())
    ]


def rows_of(graph: Graph) -> dict[str, list[Any]]:
    found = {}
    for key in TABLES:
        found[key] = sorted_rows(graph.scan(key).read_all().to_pylist())
    return found


def sorted_rows(rows: Any) -> list[Any]:
    """Rows without their nulls, in a fixed order."""
    present = [{key: value for key, value in row.items() if value is not None} for row in rows]
    return sorted(present, key=lambda row: str(row["id"]))
