"""Values of Json through the public interface: in by every way, and out again with all digits."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake import (
    Graph,
    InvalidInputError,
    LoadOptions,
    OmnigraphError,
    QueryInvalidError,
    SchemaInvalidError,
    SchemaRefusedError,
    ValidationFailedError,
)

pytestmark = pytest.mark.behaviour

SCHEMA = """
node Event { name: String @key  payload: Json?  size: I64? }
edge Caused: Event -> Event { why: Json }
"""
EXACT = Decimal("12345678901234567890.10")
VALUES: dict[str, Any] = {
    "object": {"b": [1.5, None, {"x.y": "é\u0000"}], "a": EXACT, "big": 2**70},
    "array": [],
    "text": '{"no": "object"}',
    "number": 0.1,
    "yes": True,
    "null": None,
}
PAYLOADS = "match { $e: Event } return { $e.name as name, $e.payload as payload } order { $e.name }"


def payloads(graph: Graph) -> dict[str, Any]:
    return {row["name"]: row["payload"] for row in graph.query(PAYLOADS).to_pylist()}


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write(
        {
            "Event": [{"name": name, "payload": value} for name, value in VALUES.items()],
            "Caused": [{"id": "c", "src": "object", "dst": "text", "why": [1, {"a": None}]}],
        }
    )
    return graph


def test_python_values_come_back_equal_from_queries_reads_and_frames(graph: Graph) -> None:
    assert payloads(graph) == VALUES
    assert graph.get("Event", "object") == {
        "id": "object",
        "name": "object",
        "payload": VALUES["object"],
        "size": None,
    }
    whole = graph.query("match { $e: Event { name: $n } } return { $e }", {"n": "object"})
    assert whole.scalar()["properties"]["payload"] == VALUES["object"]
    assert graph.query("match { $a: Event  $a $c:caused $b } return { $c.why }").scalar() == [
        1,
        {"a": None},
    ]
    frame = graph.query(PAYLOADS).to_pandas()
    assert dict(zip(frame["name"], frame["payload"], strict=True)) == VALUES


def test_an_export_loads_back_into_the_same_values(graph: Graph, tmp_path: Path) -> None:
    graph.export(tmp_path / "all.jsonl")

    copy = og.init(str(tmp_path / "copy"), schema=SCHEMA)
    copy.load(tmp_path / "all.jsonl")

    assert payloads(copy) == VALUES
    (edge,) = copy.scan("Caused").read_all().to_pylist()
    assert edge["why"] == '[1,{"a":null}]'


def test_files_of_every_format_mean_the_same(graph_root: str, tmp_path: Path) -> None:
    texts = ['{"b": 1.0, "a": [12345678901234567890.10]}', '"x"', "null", None, "15e-1"]
    meant = [{"a": [EXACT], "b": 1}, "x", None, None, 1.5]
    names = [f"n{number}" for number in range(len(texts))]
    lines = [
        f'{{"type": "Event", "data": {{"name": "{name}", "payload": {text or "null"}}}}}'
        for name, text in zip(names, texts, strict=True)
    ]
    cells = ["" if text is None else '"' + text.replace('"', '""') + '"' for text in texts]
    rows = [f"{name},{cell}" for name, cell in zip(names, cells, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "Event.csv").write_text("\n".join(["name,payload", *rows]))
    table = pa.table({"name": names, "payload": pa.array(texts, pa.string())})
    pq.write_table(table, tmp_path / "Event.parquet")
    graph = og.init(graph_root, schema=SCHEMA)

    for file in ("a.jsonl", "Event.csv", "Event.parquet"):
        graph.load(tmp_path / file, mode="overwrite")
        assert list(payloads(graph).values()) == meant, file


def test_nested_columns_are_values(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    kinds: dict[str, tuple[pa.DataType, Any, Any]] = {
        "struct": (pa.struct([("b", pa.int64()), ("a", pa.list_(pa.float64()))]), None, None),
        "map": (pa.map_(pa.string(), pa.int32()), [("k", 1)], {"k": 1}),
        "list": (pa.list_(pa.string()), ["x", None], ["x", None]),
        "float": (pa.float64(), 2.5, 2.5),
        "bool": (pa.bool_(), True, True),
        "decimal": (pa.decimal128(30, 2), Decimal("1.50"), Decimal("1.5")),
    }
    kinds["struct"] = (kinds["struct"][0], {"b": 1, "a": [0.5]}, {"a": [0.5], "b": 1})

    for name, (kind, value, meant) in kinds.items():
        column = pa.array([value, None], kind)
        table = pa.table({"name": [name, f"no {name}"], "payload": column})
        graph.write({"Event": table}, mode="merge")
        assert payloads(graph)[name] == meant
        assert payloads(graph)[f"no {name}"] is None


@pytest.mark.parametrize(
    "cells",
    [
        [{"a": 1}, {"b": 2}],
        [[{"a": 1}, {"a": 1, "b": 2}], []],
        [{"x": {"a": 1}}, {"x": {"b": 2}}],
    ],
)
def test_pandas_dicts_with_different_names_are_refused(
    graph_root: str, cells: list[object]
) -> None:
    pandas = pytest.importorskip("pandas")
    graph = og.init(graph_root, schema=SCHEMA)
    frame = pandas.DataFrame({"name": ["a", "b"], "payload": cells})

    with pytest.raises(InvalidInputError, match="dicts with different names"):
        graph.write({"Event": frame})

    frame["payload"] = frame["payload"].map(json.dumps)
    graph.write({"Event": frame})
    assert [row["payload"] for row in graph.query(PAYLOADS).to_pylist()] == cells


def test_bad_values_are_rejected_and_counted(graph: Graph, tmp_path: Path) -> None:
    bad = ["1e400", "1" * 400, "[" * 65 + "]" * 65, '"\\ud800"', f'"{"a" * (1 << 20)}"']
    lines = [
        f'{{"type": "Event", "data": {{"name": "{n}", "payload": {text}}}}}'
        for n, text in enumerate([*bad, "1"])
    ]
    lines += [
        '{"type": "Event", "data": {"name": "d", "payload": {"a": 1, "a": 2}}}',
        '{"type": "Event", "data": {"name": "e", "payload": NaN}}',
    ]
    (tmp_path / "bad.jsonl").write_text("\n".join(lines))

    report = graph.load(
        tmp_path / "bad.jsonl",
        mode="merge",
        on_error="quarantine",
        options=LoadOptions(max_rejected=100),
    )

    assert report.quarantined == {"bad_json": 5, "duplicate_member": 1, "malformed": 1}
    assert payloads(graph)["5"] == 1
    with pytest.raises(ValidationFailedError, match=r"2 bad_json"):
        graph.write(
            {"Event": [{"name": "x", "payload": float("nan")}, {"name": "y", "payload": {1: 2}}]},
            mode="merge",
        )


def test_parameters_and_mutations_take_json_values(graph: Graph) -> None:
    graph.mutate(
        "query add($n: String, $p: Json) { insert Event { name: $n, payload: $p } }",
        {"n": "new", "p": "text"},
    )
    graph.mutate(
        'query change($p: Json?) { update Event set { payload: $p } where name = "new" }',
        {"p": {"a": EXACT}},
    )
    found = graph.query(
        "query q($p: Json) { match { $e: Event  $e.payload = $p } return { $e.name } }",
        {"p": {"a": EXACT}},
    )
    assert found.scalar() == "new"
    graph.mutate(
        'query part() { match { $e: Event  $e.name = "object" }'
        ' update $e set { payload: json($e.payload, "b") } }'
    )

    assert payloads(graph)["object"] == VALUES["object"]["b"]
    assert payloads(graph)["new"] == {"a": EXACT}
    with pytest.raises(InvalidInputError, match=r"\$p of"):
        graph.query(
            "query q($p: Json) { match { $e: Event  $e.payload = $p } return { $e.name } }",
            {"p": {"a": object()}},
        )


def test_groups_and_distinct_rows_compare_whole_values(graph: Graph) -> None:
    graph.write({"Event": [{"name": "again", "payload": Decimal("0.10")}]}, mode="merge")

    groups = graph.query(
        "match { $e: Event } return { $e.payload as payload, count(*) as n }"
    ).to_pylist()
    assert {json.dumps(row["payload"], default=str): row["n"] for row in groups}["0.1"] == 2
    assert graph.query("match { $e: Event } return { count(distinct $e.payload) }").scalar() == 5


@pytest.mark.parametrize(
    "text",
    [
        "return { $e.name } order { $e.payload }",
        "return { min($e.payload) as m }",
        "return { collect($e.payload) as m }",
        "return { $e.payload < $e.payload as m }",
        'return { $e.payload = "text" as m }',
        "return { lower($e.payload) as m }",
        "return { cast($e.name as Json) as m }",
        'return { json($e.name, "a") as m }',
        'return { json($e.payload, "a..b") as m }',
        "return { json($e.payload, $e.name) as m }",
        'return { json("[1,]") as m }',
        "return { $e.payload in [1] as m }",
    ],
)
def test_what_json_does_not_have_is_a_compile_error(graph: Graph, text: str) -> None:
    with pytest.raises(QueryInvalidError):
        graph.query(f"match {{ $e: Event }} {text}")


@pytest.mark.parametrize(
    "text",
    [
        "node A { a: Json @key }",
        "node A { a: Json @unique }",
        "node A { a: Json @index }",
        'node A { a: Json = "x" }',
        "node A { a: [Json] }",
    ],
)
def test_what_json_cannot_be_in_a_schema_is_an_error(graph_root: str, text: str) -> None:
    with pytest.raises(SchemaInvalidError):
        og.init(graph_root, schema=text)


def test_a_merge_takes_a_value_as_a_whole(graph: Graph) -> None:
    graph.branches.create("dev")
    dev = graph.checkout("dev")
    dev.write({"Event": [{"name": "array", "payload": {"a": 1, "b": 2}}]}, mode="merge")
    graph.write({"Event": [{"name": "text", "payload": 5}]}, mode="merge")

    graph.merge("dev", into="main")

    assert (payloads(graph)["array"], payloads(graph)["text"]) == ({"a": 1, "b": 2}, 5)


def test_texts_become_json_if_all_of_them_are_and_back(graph_root: str) -> None:
    texts = SCHEMA.replace("payload: Json?", "payload: String?")
    graph = og.init(graph_root, schema=texts)
    spelled = {"a": ' {"b": 1.50, "a": 1} ', "b": '"x"', "c": None, "d": "nul"}
    graph.write({"Event": [{"name": name, "payload": text} for name, text in spelled.items()]})

    with pytest.raises(SchemaRefusedError, match=r"OG-CS-106"):
        graph.schema.apply(SCHEMA)
    graph.write({"Event": [{"name": "d", "payload": "null"}]}, mode="merge")
    with pytest.raises(SchemaRefusedError, match=r"OG-CS-106"):
        graph.schema.apply(SCHEMA)
    graph.write({"Event": [{"name": "d", "payload": "5"}]}, mode="merge")
    graph.schema.apply(SCHEMA)
    assert payloads(graph) == {"a": {"a": 1, "b": 1.5}, "b": "x", "c": None, "d": 5}

    graph.schema.apply(texts)
    assert payloads(graph) == {"a": '{"a":1,"b":1.5}', "b": '"x"', "c": None, "d": "5"}


@pytest.mark.parametrize(("text", "is_json"), [('{"b": 1.0,"a":2}', True), ("no json", False)])
def test_texts_of_the_other_side_become_json_in_a_merge(
    graph_root: str, text: str, is_json: bool
) -> None:
    graph = og.init(graph_root, schema=SCHEMA.replace("payload: Json?", "payload: String?"))
    graph.write({"Event": [{"name": "a", "payload": "1"}]})
    graph.branches.create("dev")
    graph.checkout("dev").schema.apply(SCHEMA)
    graph.write({"Event": [{"name": "b", "payload": text}]}, mode="merge")

    if is_json:
        graph.merge("dev", into="main")
        assert payloads(graph) == {"a": 1, "b": {"a": 2, "b": 1}}
    else:
        with pytest.raises(OmnigraphError, match="bad_json"):
            graph.merge("dev", into="main")
        assert payloads(graph) == {"a": "1", "b": text}
