"""Decimals are exact: from every input to every output, and in keys, rules and defaults."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake import LoadOptions
from omnigraph_lake.engine.output_formats import OutputFormat, write_rows
from omnigraph_lake.errors import ValidationFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.schema.catalog import DecimalType
from omnigraph_lake.schema.values import as_decimal, decimal_of_text, fits_decimal

pytestmark = pytest.mark.behaviour

SCHEMA = """
node Item {
    sku: String @key
    price: Decimal(12, 2) = 0
    weight: Decimal(38, 10)?
    @range(price, -5.5..100000)
}

node Rate {
    share: Decimal(6, 3) @key
    code: Decimal(9, 4)? @unique @index
}
"""
LONG = "1234567890123456789012345678.0123456789"
MONEY = DecimalType(precision=12, scale=2)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(str(tmp_path / "graph"), schema=SCHEMA)


def load_lines(graph: Graph, folder: Path, *lines: str) -> og.LoadReport:
    path = folder / "records.jsonl"
    path.write_text("\n".join(lines) + "\n")
    options = LoadOptions(max_rejected="100%")
    return graph.load(str(path), on_error="quarantine", options=options)


def prices(graph: Graph) -> dict[str, Any]:
    query = "match { $i: Item } return { $i.sku as sku, $i.price as price }"
    return {row["sku"]: row["price"] for row in graph.query(query).to_pylist()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5", "1.50"),
        ('"2.5"', "2.50"),
        ("1e2", "100.00"),
        ("-0.0", "0.00"),
        ("100000", "100000.00"),
        ('"1\\u0030"', "10.00"),
        ("1.5000000000000000000000000000000000000000000000000", "1.50"),
    ],
)
def test_a_number_or_a_text_is_read_digit_by_digit(
    graph: Graph, tmp_path: Path, text: str, value: str
) -> None:
    report = load_lines(graph, tmp_path, f'{{"type":"Item","data":{{"sku":"a","price":{text}}}}}')

    assert not report.rejected
    assert prices(graph) == {"a": Decimal(value)}
    assert str(prices(graph)["a"]) == value


def test_whatever_does_not_fit_is_rejected_and_never_rounded(graph: Graph, tmp_path: Path) -> None:
    given = {
        "1.505": "does_not_fit",
        "99999999999": "does_not_fit",
        "1e400": "does_not_fit",
        "123456789012345678901234567890": "does_not_fit",
        '"1e-3"': "does_not_fit",
        '"abc"': "wrong_type",
        '" 1"': "wrong_type",
        '"NaN"': "wrong_type",
        "true": "wrong_type",
        "[1]": "wrong_type",
        "-6": "out_of_range",
        "null": "missing_required",
    }
    lines = [
        f'{{"type":"Item","data":{{"sku":"{number}","price":{text}}}}}'
        for number, text in enumerate(given)
    ]

    report = load_lines(graph, tmp_path, *lines)

    found = [str(rejected.reason) for rejected in sorted(report.rejected, key=lambda one: one.line)]
    assert found == list(given.values())
    assert prices(graph) == {}


def test_all_digits_survive_a_load_an_export_and_every_output(graph: Graph, tmp_path: Path) -> None:
    quoted = f'{{"type":"Item","data":{{"sku":"b","price":"1","weight":"-{LONG}"}}}}'
    load_lines(
        graph, tmp_path, f'{{"type":"Item","data":{{"sku":"a","price":1,"weight":{LONG}}}}}', quoted
    )
    query = "match { $i: Item } return { $i.sku as sku, $i.weight as weight } order { $i.sku }"

    assert [row["weight"] for row in graph.query(query).to_pylist()] == [
        Decimal(LONG),
        Decimal(f"-{LONG}"),
    ]
    for chosen, expected in (
        (OutputFormat.JSONL, f'{{"sku":"a","weight":{LONG}}}'),
        (OutputFormat.CSV, f'"a","{LONG}"'),
        (OutputFormat.TABLE, LONG),
        (OutputFormat.CARD, LONG),
    ):
        stream = io.BytesIO()
        write_rows(graph.query(query), stream, chosen, about={})
        assert expected in stream.getvalue().decode()
    stream = io.BytesIO()
    write_rows(graph.query(query), stream, OutputFormat.JSONL, about={}, safe_integers=True)
    assert json.loads(stream.getvalue().splitlines()[0]) == {"sku": "a", "weight": LONG}

    exported = tmp_path / "all.jsonl"
    graph.export(str(exported))
    other = og.init(str(tmp_path / "other"), schema=SCHEMA)
    other.load(str(exported))
    assert (
        other.scan("Item")
        .read_all()
        .sort_by("id")
        .equals(graph.scan("Item").read_all().sort_by("id"))
    )


def test_python_values_arrow_columns_and_csv_cells_mean_the_same(
    graph: Graph, tmp_path: Path
) -> None:
    graph.write(
        {
            "Item": [
                {"sku": "decimal", "price": Decimal("3.10")},
                {"sku": "integer", "price": 12},
                {"sku": "float", "price": 0.1},
                {"sku": "text", "price": "7.5"},
                {"sku": "default"},
            ]
        }
    )
    columns = {
        "f64": pa.array([0.1]),
        "f32": pa.array([0.1], pa.float32()),
        "i64": pa.array([7]),
        "u64": pa.array([7], pa.uint64()),
        "wide": pa.array([Decimal("1.500000")], pa.decimal256(50, 6)),
        "words": pa.array(["2.25"]).dictionary_encode(),
    }
    for name, column in columns.items():
        graph.write({"Item": pa.table({"sku": [name], "price": column})})
    (tmp_path / "cells.csv").write_text("sku,price,weight\ncell,2.50,\nodd,1e1,-0.0000000001\n")
    graph.load(str(tmp_path / "cells.csv"), type="Item")

    assert prices(graph) == {
        "decimal": Decimal("3.10"),
        "integer": Decimal(12),
        "float": Decimal("0.10"),
        "text": Decimal("7.50"),
        "default": Decimal(0),
        "f64": Decimal("0.1"),
        "f32": Decimal("0.1"),
        "i64": Decimal(7),
        "u64": Decimal(7),
        "wide": Decimal("1.5"),
        "words": Decimal("2.25"),
        "cell": Decimal("2.5"),
        "odd": Decimal(10),
    }


@pytest.mark.parametrize(
    "value", [Decimal("1.234"), Decimal("NaN"), float("nan"), 1 / 3, True, 10**40, 1e300]
)
def test_a_python_value_that_does_not_fit_is_refused(graph: Graph, value: object) -> None:
    with pytest.raises(ValidationFailedError, match=r"expected Decimal\(12, 2\)"):
        graph.write({"Item": [{"sku": "a", "price": value}]})


def test_keys_are_spelt_without_zeros_and_unique_values_are_compared(graph: Graph) -> None:
    graph.write({"Rate": [{"share": "1.500", "code": 1}, {"share": 20}]})

    ids = sorted(row["id"] for row in graph.scan("Rate").read_all().to_pylist())
    assert ids == ["1.5", "20"]
    found = graph.get("Rate", Decimal("1.5"))
    assert found is not None
    assert found["code"] == 1
    with pytest.raises(ValidationFailedError, match="id_exists"):
        graph.write({"Rate": [{"share": "1.5"}]})
    with pytest.raises(ValidationFailedError, match="not_unique"):
        graph.write({"Rate": [{"share": "3", "code": "1.0000"}]})


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("9" * 10 + ".99", MONEY, "9" * 10 + ".99"),
        ("1" + "0" * 10, MONEY, None),
        ("0e999999999", MONEY, "0.00"),
        ("1e999999999", MONEY, None),
        ("1e99999999999999999999", MONEY, None),
        ("-0", MONEY, "0.00"),
        ("0.05", DecimalType(precision=2, scale=2), "0.05"),
        ("1", DecimalType(precision=2, scale=2), None),
        ("9" * 38, DecimalType(precision=38, scale=0), "9" * 38),
    ],
)
def test_texts_that_fit_keep_all_their_digits(
    text: str, kind: DecimalType, expected: str | None
) -> None:
    number = decimal_of_text(text, kind)

    assert (None if number is None else f"{number:f}") == expected


def test_integers_fit_by_their_digits() -> None:
    assert fits_decimal(10**10 - 1, MONEY)
    assert not fits_decimal(10**10, MONEY)
    assert str(as_decimal(-7, MONEY)) == "-7.00"


def test_a_mapping_reads_numbers_of_json_digit_by_digit(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(
        f'{{"sku": "a", "amount": 1234567890123456789.12, "mass": {LONG}}}\n'
        '{"sku": "b", "amount": 0.10000000000000000, "mass": 1}\n'
    )
    (tmp_path / "map.toml").write_text(
        """
version = 1
[[source]]
name = "items"
[[source.node]]
type = "Item"
[source.node.properties]
sku = "sku"
price = "amount"
weight = "mass"
"""
    )
    wide = SCHEMA.replace("price: Decimal(12, 2)", "price: Decimal(22, 2)").replace("100000", "")
    root = str(tmp_path / "graph")

    og.import_data(root, str(tmp_path / "items.jsonl"), mapping=tmp_path / "map.toml", schema=wide)

    rows = og.open(root).scan("Item").read_all().sort_by("sku").to_pylist()
    assert [(row["price"], row["weight"]) for row in rows] == [
        (Decimal("1234567890123456789.12"), Decimal(LONG)),
        (Decimal("0.1"), Decimal(1)),
    ]
