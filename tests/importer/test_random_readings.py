"""Every text that a reading fits is loaded, and with the value that it has for a person."""

from __future__ import annotations

import datetime as dt
import re
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.importer.readings import NULL_TEXTS, READINGS, TEXT, Reading, amounts
from omnigraph_lake.load.formats.mapped import MappedParser
from omnigraph_lake.load.formats.mapping import NodeMapping, Parse, SourceMapping
from omnigraph_lake.load.formats.parse import raw_frame
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.validation.input.intake import id_source
from tests.drawing import drawn
from tests.load.inputs import outcome
from tests.schema.compiling import compiled
from tests.validation.graphs import counting_ids

CATALOG = compiled("node T { bool: Bool? i64: I64? f64: F64? date: Date? datetime: DateTime? }")
READ = [
    *(reading for reading in READINGS if reading.scalar is not ct.Scalar.STRING),
    *(reading for unit in ("$", "%", "CHF") for reading in amounts(unit)),
]
ISO_TIME = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
    r"(Z|[+-]0[0-9](:?[0-9]{2})?)?"
)


@cache
def texts_of(reading: Reading) -> st.SearchStrategy[list[str]]:
    pattern = ISO_TIME if reading.name == "ISO time" else reading.pattern
    alphabet = st.characters(codec="utf-8")
    return st.lists(
        st.from_regex(pattern, fullmatch=True, alphabet=alphabet), min_size=1, max_size=6
    )


@pytest.mark.random
def test_what_a_reading_fits_is_loaded_with_the_same_value() -> None:
    @drawn(40)
    @given(st.data())
    def hold(data: st.DataObject) -> None:
        reading = data.draw(st.sampled_from(READ))
        texts = data.draw(texts_of(reading))
        read = [text for text in texts if reading.fits(pa.array([text]))]
        fits = reading.find_fitting(pa.array(texts)).to_pylist()

        found = loaded(reading, read)

        assert [text for text, fit in zip(texts, fits, strict=True) if fit] == read
        assert not read or reading.fits(pa.array(read))
        assert found == [value_of(reading, text) for text in read]

    hold()


@pytest.mark.unit
def test_no_reading_fits_a_word_for_a_missing_value() -> None:
    words = [pa.array([word]) for word in sorted(NULL_TEXTS)]

    assert not [r.name for r in READINGS if r is not TEXT for word in words if r.fits(word)]


def loaded(reading: Reading, texts: list[str]) -> list[Any]:
    """The values of a property that an import makes of texts, none of which it may refuse."""
    name = reading.scalar.value.lower()
    rule = NodeMapping(type="T", properties={name: reading.value})
    parser = MappedParser(
        SourceMapping(name="s", nodes=(rule,)),
        CATALOG,
        new_ids=id_source(counting_ids()),
        partial=False,
        where="s",
    )
    batch = pa.RecordBatch.from_pydict({reading.value.column: pa.array(texts, pa.string())})
    found = outcome(parser.parse(raw_frame([batch], "s")))
    assert found.messages() == []
    return [row[name] for row in found.rows.get("node:T", {}).values()]


def value_of(reading: Reading, text: str) -> Any:
    """What a person reads, spelt as the graph does."""
    value = reading.value
    if reading.scalar is ct.Scalar.BOOL:
        return text == reading.name.partition("/")[0]
    if reading.scalar in {ct.Scalar.I64, ct.Scalar.F64}:
        plain = text.replace(value.thousands or ",", "").replace(value.decimal or ".", ".")
        number = re.sub(r"[^0-9.eE+-]", "", plain.replace(value.unit or "", "").replace("(", "-"))
        return int(number) if reading.scalar is ct.Scalar.I64 else float(number)
    if reading.name == "ISO date":
        return text
    if value.parse is None:
        time = dt.datetime.fromisoformat(text)
    else:
        short = re.sub("[A-Za-z]{3,}", lambda month: month[0][:3], text)
        time = dt.datetime.strptime(short, value.format or "")  # noqa: DTZ007 - made UTC below
    if value.parse is Parse.DATE:
        return f"{time:%Y-%m-%d}".zfill(10)
    utc = time if time.tzinfo is None else time.astimezone(dt.UTC)
    return utc.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds") + "Z"
