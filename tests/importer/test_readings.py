"""How texts are read: what could be meant otherwise stays a text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph_lake.importer.column_profile import ColumnProfile
from omnigraph_lake.importer.draft import choose_given_type, hints_of, property_type
from omnigraph_lake.importer.hashed_values import HashedColumn, find_distinct
from omnigraph_lake.importer.profile import profile_source
from omnigraph_lake.importer.readings import NULL_TEXTS
from omnigraph_lake.load.formats.mapped import parse_texts
from omnigraph_lake.load.formats.mapping import Parse, ValueMapping
from omnigraph_lake.load.formats.parse import raw_frame
from omnigraph_lake.schema import catalog as ct

pytestmark = pytest.mark.unit


def profiled(
    *texts: str | None, path: str = "values", quoted: bool = False, first: int = 1
) -> ColumnProfile:
    """In two batches: what is inferred does not depend on where they end."""
    profile = ColumnProfile(path=path)
    for part in (texts[:first], texts[first:]):
        column = pa.array(part, pa.string())
        profile.add(column, profile.encode(column), quoted=quoted)
    return profile


@pytest.mark.parametrize("texts", [("1", "2"), ("NA", "1"), ("", "a"), ("1", "x"), ("05", "a")])
def test_texts_that_repeat_are_read_as_those_that_do_not(texts: tuple[str, ...]) -> None:
    repeated, alone = ColumnProfile(path="values"), ColumnProfile(path="values")
    alone.is_repetitive = False
    column = pa.array([None, *texts * 20], pa.string())

    repeated.add(column, repeated.encode(column), quoted=False)
    alone.add(column, column, quoted=False)

    assert repeated.is_repetitive
    assert replace(repeated, is_repetitive=False) == alone


def type_of(*texts: str | None, path: str = "values", quoted: bool = False) -> str:
    return property_type(profiled(*texts, path=path, quoted=quoted))[0]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("1", "-2", "0"), "I64"),
        (("1", "007"), "String"),
        (("1", "2.5", "1e3"), "F64"),
        (("1", ""), "I64"),
        (("1,234.50", "5"), "F64"),
        (("1.234,50", "5"), "F64"),
        (("1,234", "5,678"), "String"),
        (("true", "false"), "Bool"),
        (("yes", "no"), "Bool"),
        (("yes", "maybe"), "String"),
        (("2024-02-29", "2023-01-01"), "Date"),
        (("2023-02-29",), "String"),
        (("2024-02-29T10:00:00Z", "2024-02-29 10:00:00"), "DateTime"),
        (("31/12/2024", "01/02/2024"), "Date"),
        (("12/31/2024", "01/02/2024"), "Date"),
        (("01/02/2024", "03/04/2024"), "String"),
        (("17.05.2024",), "Date"),
        ((None, None), "String"),
        (("", ""), "String"),
        (("99999999999999999999",), "String"),
        (("6.02e23", "1"), "F64"),
        (("1e400", "1"), "String"),
        (("+5", "-3"), "I64"),
        (("+49170123456", "+4917012"), "String"),
        ((".5", "5.", "+1.5e3"), "F64"),
        (("1234,56", "0,5"), "F64"),
        (("1 234,56", "0,5"), "F64"),
        (("1\u00a0234,56", "7"), "F64"),
        (("1\u202f234", "12\u202f345"), "I64"),
        (("1'234.56", "5"), "F64"),
        (("1,234,567", "5"), "I64"),
        (("732 829 320", "552 100 554"), "String"),
        (("(1,234)", "5"), "String"),
        (("on", "off"), "Bool"),
        (("1", "0"), "I64"),
        (("x", None, "x"), "String"),
        (("31.04.2024",), "String"),
        (("Feb 29, 2024", "March 1, 2024"), "Date"),
        (("Feb 29, 2023",), "String"),
        (("1-Jan-99", "30-OCT-09"), "Date"),
        (("1-Jan-45",), "String"),
        (("9/29/11", "9/8/11"), "Date"),
        (("10/11/12",), "String"),
        (("1 January 1999",), "Date"),
        (("1 Dez 1999",), "String"),
        (("2024-1-5",), "Date"),
        (("2001-02", "2002-03"), "String"),
        (("01/31/2019 12:00:00 AM", "02/01/2019 01:30:00 pm"), "DateTime"),
        (("8/14/20 11:33", "8/2/20 4:39"), "DateTime"),
        (("2018/04/17 12:08:24",), "DateTime"),
        (("2024-01-31T10:00:00.123456+02:00",), "DateTime"),
        (("Jan", "FEB"), "String"),
        (("Jan 2019", "Feb 2019"), "String"),
        (("01/2019", "02/2019"), "String"),
        (("(1,234.00)", "99.50"), "F64"),
        (("(5)", "(6)"), "String"),
        (("$5.99", "$1,234.00"), "F64"),
        (("$45,000", "$120,000"), "F64"),
        (("\u20ac45,000", "\u20ac5"), "String"),
        (("1.234 \u20ac", "5 \u20ac"), "String"),
        (("\u20ac 1.234,50", "-5,00 \u20ac"), "F64"),
        (("CHF 1'234.50", "CHF 20"), "F64"),
        (("12,5 %", "3 %"), "F64"),
        (("1.234 %",), "F64"),
        (("5 $ 6",), "String"),
        (("$5", "6"), "String"),
        (("$5", "\u20ac6"), "String"),
    ],
)
def test_texts_are_read_as_the_most_specific_type(texts: tuple[str], expected: str) -> None:
    assert type_of(*texts) == expected


@pytest.mark.parametrize(
    ("form", "texts", "expected"),
    [
        (
            {"thousands": ",", "decimal": ".", "unit": "$"},
            ["-$5", "$ -5.5", "($1,234.00)", "$(7)", "8 $", "(9)$", "5", "$5$", "5$6", "\u20ac5"],
            ["-5", "-5.5", "-1234.00", "-7", "8", "-9", "5", "$5$", "5$6", "\u20ac5"],
        ),
        (
            {"thousands": ".", "decimal": ",", "unit": "%"},
            ["12,5 %", "1.234,5%", "(3\u00a0%)", "1.5 %", "12.34 %"],
            ["12.5", "1234.5", "-3", "1.5 %", "12.34 %"],
        ),
        (
            {"thousands": ","},
            ["(1,234.50)", "(5)", "12,34,567", "1,5", "1,2345", ",123", "(-5)"],
            ["-1234.50", "-5", "1234567", "1,5", "1,2345", ",123", "(-5)"],
        ),
    ],
)
def test_what_is_no_number_of_the_form_is_not_parsed(
    form: dict[str, str], texts: list[str], expected: list[str]
) -> None:
    value = ValueMapping(column="x", parse=Parse.NUMBER, **form)  # type: ignore[arg-type]

    parsed = parse_texts(pa.array(texts), value, ct.ScalarType(scalar=ct.Scalar.F64))

    assert parsed.to_pylist() == expected


def test_units_are_in_the_comment_and_several_of_them_in_a_hint() -> None:
    one, percent = profiled("$5.99", "$1,234.00"), profiled("12,5 %", "3 %")
    two = profiled("$5", "\u20ac6", "$7")

    assert property_type(one)[2] == "in $, read as 1,234.5 $"
    assert property_type(percent)[2] == "in percent, read as 1.234,5 %"
    (hint,) = hints_of(two, "sales", "Sale")
    assert hint.text == "amounts in several units: $ in 2, \u20ac in 1 of the first 3"
    assert hint.option == "--type Sale.values=F64"
    assert choose_given_type(two, ct.Scalar.F64)[1].unit == "$"


def test_digits_are_a_date_where_the_column_is_named_so() -> None:
    assert type_of("20240131", "20231201", path="orderDate") == "Date"
    assert type_of("20240131", "20231301", path="orderDate") == "I64"
    assert type_of("20240131", "20231201", path="date_key") == "I64"
    assert type_of("20240131", "20231201", path="update") == "I64"


@pytest.mark.parametrize(
    ("texts", "expected", "nulls"),
    [
        (("1", "NA", "2"), "I64", ("NA",)),
        (("NaN", "1.5", "#N/A"), "F64", ("NaN", "#N/A")),
        (("1", ".", "", None), "I64", (".", "")),
        (("2024-01-31", "-", "NaT"), "Date", ("-", "NaT")),
        (("TRUE", "NA", "FALSE"), "Bool", ("NA",)),
        (("Y", "?", "N"), "String", ()),
        (("NA", "Namibia"), "String", ()),
        (("NA", "\\N", None), "String", ("NA", "\\N")),
        (("*", None, "*"), "String", ()),
        (("1", "x", "NA"), "String", ()),
    ],
)
def test_words_mean_null_where_all_other_texts_are_of_another_type(
    texts: tuple[str | None, ...], expected: str, nulls: tuple[str, ...]
) -> None:
    profile = profiled(*texts)

    kind, value, _ = property_type(profile)

    assert (kind, value.null) == (expected, nulls)
    assert profile.missing == sum(text is None or text in nulls for text in texts)
    assert profile.null_words.keys() == {text for text in texts if text in NULL_TEXTS}


def test_a_null_word_is_a_value_of_an_enum() -> None:
    leagues = profiled(*["AL", "NL", "NA"] * 8)

    assert property_type(leagues)[0] == "enum(AL, NA, NL)"
    (hint,) = hints_of(leagues, "teams", "Team")
    assert (hint.text, hint.option) == ("'NA' in 8 of 24 records is a value", "--null=NA")


def test_words_that_the_caller_names_mean_null_in_every_column(tmp_path: Path) -> None:
    table = pa.table({"name": ["Ann", "unknown", "Bob"], "born": ["2024-01-31", "unknown", ""]})
    records = raw_frame(table.to_batches(), "people")

    profile = profile_source("people", records, tmp_path, null_words=("unknown", "tbd"))

    name, born = profile.columns["name"], profile.columns["born"]
    assert (property_type(name)[0], name.missing) == ("String", 1)
    assert property_type(name)[1].null == ("unknown", "tbd")
    assert name.missing_why() == "'unknown' in 1 of 3 means no value"
    assert (property_type(born)[0], born.missing) == ("Date", 2)
    assert property_type(born)[1].null == ("unknown", "tbd", "")
    distinct = profile.distinct("name")
    assert distinct is not None
    assert distinct.count == 2


def test_an_empty_text_of_an_enum_is_null() -> None:
    profile = profiled(*["A", "B", ""] * 8)

    kind, value, _ = property_type(profile)

    assert (kind, value.null, profile.missing) == ("enum(A, B)", ("",), 8)


def test_comments_count_the_words_that_mean_null() -> None:
    profile = profiled("1", "NA", "2", "NA", ".", None)

    assert profile.missing_why() == (
        "'.' in 1 and 'NA' in 2 of 6 mean no value; no value in 1 of 6"
    )


@pytest.mark.parametrize("first", [1, 7, 500], ids=["one record", "few", "one batch"])
def test_a_column_that_is_nearly_of_a_type_says_what_is_odd(first: int) -> None:
    dates = [f"2024-01-{number % 28 + 1:02}" for number in range(198)]
    one_word = profiled(*dates[:11], "unknown", *dates, None, "NA", "unknown", first=first)
    several = profiled(*dates[:11], "2024-13-01", "later", *dates, first=first)

    (word,) = hints_of(one_word, "people", "Person")
    (other,) = hints_of(several, "people", "Person")

    assert word.text == "209 of 211 are dates, the first other is 'unknown' (record 12)"
    assert word.option == "--null=unknown"
    assert property_type(one_word)[2] == word.text
    assert other.text == "209 of 211 are dates, the first other is '2024-13-01' (record 12)"
    assert other.option == "--type Person.values=Date"


@pytest.mark.parametrize("odd", ["inf", "5\x1a", "x\x1b[2J", "a,b"])
def test_a_value_or_what_no_option_can_name_is_not_proposed_as_null(odd: str) -> None:
    (hint,) = hints_of(profiled(*["1.5"] * 20, odd), "s", "Item")

    assert hint.option == "--type Item.values=F64"
    assert hint.text.isprintable()


def test_a_share_that_is_too_small_is_no_hint() -> None:
    assert property_type(profiled(*["1"] * 17, "J", "Q"))[2] == ""
    assert property_type(profiled(*["1"] * 19, *"JQKA"))[2] == ""


def test_the_range_of_integers_is_dense_if_they_fill_half_of_it() -> None:
    years = profiled(*map(str, range(1, 21, 2)))

    assert (years.integer_min, years.integer_max) == (1, 19)
    assert years.is_dense_range(10)
    assert not years.is_dense_range(9)
    assert not profiled("1", "2", "x").is_dense_range(3)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ((pa.array([1], pa.int64()), pa.array([2], pa.int8())), "I64"),
        ((pa.array([2**64 - 1], pa.uint64()), pa.array([2], pa.uint8())), "U64"),
        ((pa.array([2**64 - 1], pa.uint64()), pa.array([-1], pa.int8())), "Decimal(20, 0)"),
        ((pa.array([0.5], pa.float64()), pa.array([2.5], pa.float32())), "F64"),
        ((pa.array([5], pa.int64()), pa.array([0.5], pa.float32())), "F64"),
        ((pa.array([2**60], pa.int64()), pa.array([0.5])), "String"),
        ((pa.array(["x"]), pa.array([5])), "String"),
        ((pa.array([5]), pa.array(["x"]), pa.array([5])), "String"),
        ((pa.array([5]), pa.array([None], pa.string())), "I64"),
        ((pa.array([True]), pa.array([5])), "String"),
        ((pa.array([0], pa.date32()), pa.array([0], pa.timestamp("ns"))), "DateTime"),
        ((pa.array([0], pa.date32()), pa.array([10**7], pa.date32())), "String"),
    ],
)
def test_batches_of_several_types_have_one_that_holds_all_values(
    batches: tuple[pa.Array, ...], expected: str
) -> None:
    profile = ColumnProfile(path="value")

    for batch in batches:
        profile.add(batch, batch, quoted=False)

    assert property_type(profile)[0] == expected


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([[1, 2**62]], "[I64]"),
        ([[1, 2**63]], "String"),
        ([[0.5, 2**53 + 1]], "String"),
        ([[0.5] * 8], "Vector(8)"),
        ([[0.5] * 7 + [None]], "[F64]"),
        ([[1e300] * 8], "[F64]"),
    ],
)
def test_lists_have_items_of_a_type_that_holds_them(lists: list[list[Any]], expected: str) -> None:
    profile = ColumnProfile(path="value", records=len(lists))

    profile.add_lists(lists)

    assert property_type(profile)[0] == expected


def test_numbers_in_quotes_are_texts() -> None:
    assert type_of("1", "2", quoted=True) == "String"
    assert type_of("2024-01-01", quoted=True) == "Date"


@pytest.mark.parametrize("block", [7, 1 << 18], ids=["many blocks", "one block"])
def test_distinct_and_missing_values_are_exact(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph_lake.importer.hashed_values.BLOCK", block)
    draw = random.Random(5)
    for number in range(4):
        own = [draw.choice([None, *map(str, range(80))]) for _ in range(draw.randrange(1, 200))]
        known = [str(draw.randrange(60)) for _ in range(draw.randrange(1, 200))]
        folder = tmp_path / str(number)
        folder.mkdir()
        columns = [
            hashed(folder / name, values)
            for name, values in (("own", own), ("known", known), ("reversed", own[::-1]))
        ]
        distinct = {value for value in own if value is not None}
        pairs = {pair for pair in zip(own, own[::-1], strict=True) if None not in pair}

        own_hashes = find_distinct([columns[0]], len(own), folder / "d0")
        known_hashes = find_distinct([columns[1]], len(known), folder / "d1")
        pair_hashes = find_distinct([columns[0], columns[2]], len(own), folder / "d2")

        assert own_hashes.count == len(distinct)
        assert own_hashes.count_missing(known_hashes) == len(distinct - set(known))
        assert pair_hashes.count == len(pairs)


def test_records_that_lack_a_column_have_no_value_in_it(tmp_path: Path) -> None:
    column = HashedColumn(path=tmp_path / "column")
    column.append(pa.array(["a", "b"]), before=3)

    hashes = np.concatenate(list(column.blocks(7)))

    assert (hashes != 0).tolist() == [False, False, False, True, True, False, False]


def hashed(path: Path, values: Sequence[str | None]) -> HashedColumn:
    """In two batches."""
    column = HashedColumn(path=path)
    column.append(pa.array(values[:50], pa.string()), before=0)
    column.append(pa.array(values[50:], pa.string()), before=len(values[:50]))
    return column
