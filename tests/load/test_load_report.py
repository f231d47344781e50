"""Inputs with a known number of every kind of bad record: the ledger tells exactly the truth."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import LoadRefusedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.load.report import LoadReport

pytestmark = pytest.mark.unit

SCHEMA = """
node Person {
    name: String @key
    nick: String? @unique
    age: I32?
    mood: enum(good, bad)?
    code: String?
    born: Date?
    vector: Vector(2)?
    small: U32?
    @range(age, 0..150)
    @check(code, "^[a-z]+$")
}
node City { title: String }
edge Knows: Person -> Person { @unique(src, dst) }
edge LivesIn: Person -> City @card(0..1)
edge Rates: Person -> City @card(2..) { stars: I32 }
"""
PEOPLE = 40


def person(name: str, **more: object) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **more}}


def edge(kind: str, source: str, target: str, **more: object) -> dict[str, Any]:
    return {"edge": kind, "from": source, "to": target, "data": more}


ROW_FAULTS: dict[str, list[Any]] = {
    "malformed": ["oops", "[1]", '{"type": "Person"', '{"type": "City"} {"type": "City"}'],
    "unknown_type": [{"type": "Parson", "data": {}}, {"edge": "Hates", "from": "a", "to": "b"}],
    "duplicate_member": ['{"type": "Person", "data": {"name": "x1", "name": "x2"}}'],
    "unknown_column": [person("x3", height=3)],
    "wrong_type": [person("x4", age="old"), person("x5", born="soon")],
    "does_not_fit": [person("x6", small=-1)],
    "vector_size": [person("x7", vector=[1.0])],
    "vector_item": [person("x8", vector=[1.0, None])],
    "missing_required": [{"type": "City", "data": {}}, person("x9") | {"data": {}}],
    "not_in_enum": [person("x10", mood="odd")],
    "out_of_range": [person("x11", age=151), person("x12", age=-1)],
    "pattern_mismatch": [person("x13", code="A1")],
    "bad_id": [person("x14", id="other"), person("")],
}
"""Records that are bad by themselves."""


def good_records() -> list[Any]:
    people = [person(f"p{number}", nick=f"n{number}") for number in range(PEOPLE)]
    cities = [{"type": "City", "data": {"id": f"c{n}", "title": "T"}} for n in range(3)]
    friends = [edge("Knows", f"p{n}", f"p{n + 1}") for n in range(PEOPLE - 1)]
    homes = [edge("LivesIn", f"p{n}", "c0", id=f"home{n}") for n in range(10)]
    rates = [
        edge("Rates", f"p{n}", f"c{c}", stars=3, id=f"r{n}-{c}") for n in range(5) for c in range(2)
    ]
    return [*people, *cities, *friends, *homes, *rates]


def keyed_faults(mode: str) -> dict[str, list[Any]]:
    """Records that others make bad, to stand behind the good ones."""
    faults = {
        "not_unique": [person("q1", nick="n1"), person("q2", nick="n2"), edge("Knows", "p0", "p1")],
        "missing_endpoint": [
            edge("Knows", "p0", "nobody"),
            edge("Knows", "nobody", "p0"),
            edge("LivesIn", "q1", "c0"),
        ],
        "too_many_edges": [edge("LivesIn", "p0", "c1"), edge("LivesIn", "p1", "c2")],
        "too_few_edges": [edge("Rates", "p9", "c0", stars=1)],
    }
    if mode == "append":
        faults["id_exists"] = [person("old1"), person("old2")]
    if mode not in {"merge", "replace"}:
        faults["duplicate_id"] = [person("p0"), person("p1"), person("p1")]
    return faults


def superseded(mode: str) -> list[Any]:
    """Records of an upsert that a later one replaces, to stand before the good ones."""
    if mode not in {"merge", "replace"}:
        return []
    return [person("p3", age=1), person("p3", age=2), person("p4", age=1)]


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "old1"}, {"name": "old2"}]})
    return graph


@pytest.mark.parametrize("mode", ["append", "merge", "replace", "overwrite"])
def test_the_ledger_tells_the_truth_about_every_kind_of_bad_record(
    graph: Graph, tmp_path: Path, mode: og.Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_operation, "_LOCAL_SPLIT_BYTES", 1000)
    labelled: list[tuple[str | None, Any]] = [
        *(("superseded", record) for record in superseded(mode)),
        *((None, record) for record in good_records()),
        *((why, record) for why, records in keyed_faults(mode).items() for record in records),
    ]
    randomness = random.Random(mode)
    for why, records in ROW_FAULTS.items():
        for record in records:
            labelled.insert(randomness.randrange(len(labelled) + 1), (why, record))
    files, truth = written_as_files(tmp_path, labelled)

    report = graph.load(
        files, mode=mode, on_error="quarantine", options=LoadOptions(max_rejected="50%")
    )

    expected = Counter(why for why, _ in labelled if why is not None)
    assert len(expected) >= 12
    assert report.quarantined == expected
    assert report.read == len(labelled)
    assert report.read == sum(report.written.values()) + sum(report.quarantined.values())
    assert report.faults == expected.total() - expected["superseded"]
    assert report.quarantine is not None
    rows = pq.read_table(report.quarantine).to_pylist()
    assert [(row["file"], row["line"], row["reason"], row["raw"]) for row in rows] == truth
    assert all(row["message"] for row in rows)
    assert rows_in(graph, "Person") == PEOPLE + (0 if mode == "overwrite" else 2)
    assert graph.maintenance.check().ok


def written_as_files(
    folder: Path, labelled: list[tuple[str | None, Any]]
) -> tuple[list[str], list[tuple[str, int, str, bytes]]]:
    """Two files with blank lines in between, and where each bad record stands."""
    half = len(labelled) // 2
    files, truth = [], []
    for name, part in (("b.jsonl", labelled[:half]), ("a.jsonl", labelled[half:])):
        path = str(folder / name)
        lines: list[bytes] = []
        for number, (why, record) in enumerate(part):
            if number % 7 == 3:
                lines.append(b"")
            text = record if isinstance(record, str) else json.dumps(record)
            lines.append(text.encode())
            if why is not None:
                truth.append((path, len(lines), why, lines[-1]))
        Path(path).write_bytes(b"\n".join(lines))
        files.append(path)
    return files, truth


def rows_in(graph: Graph, type_name: str) -> int:
    return int(graph.scan(type_name, columns=["id"]).read_all().num_rows)


def test_the_stages_of_a_load_account_for_its_rows(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    source = tmp_path / "people.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in good_records()))

    report = graph.load(str(source), options=LoadOptions(engine="local"))

    stages = {(stage.name, stage.type): stage for stage in report.stages}
    assert stages["parse and stage", None].rows == report.read
    assert stages["parse and stage", None].read_bytes == source.stat().st_size
    assert stages["check keys", None].shuffled_bytes > 0
    for name, count in report.written.items():
        assert stages["write rows", name].rows == count
        assert stages["write rows", name].written_bytes > 0
    assert all(stage.seconds >= stage.longest_task_seconds for stage in report.stages)
    assert json.loads(report.to_json())["stages"][0]["name"] == "parse and stage"
    assert max(map(len, report.stage_table().lines(width=80))) <= 80


def test_a_load_that_is_refused_has_stages(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    source = tmp_path / "people.jsonl"
    source.write_text(json.dumps(person("ada", age=-1)))

    with pytest.raises(LoadRefusedError) as refused:
        graph.load(str(source), options=LoadOptions(engine="local"))

    report = cast("LoadReport", refused.value.report)
    assert [stage.name for stage in report.stages] == ["parse and stage", "check keys"]
