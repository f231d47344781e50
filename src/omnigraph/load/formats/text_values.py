"""Rewrite texts of values in the spelling that CSV cells have: ISO dates, plain numbers, JSON.

Invariant: a text that is not written as its mapping says stays as it is. It is then refused by the
type of its property, with a message that quotes it.
"""

from __future__ import annotations

import json
from typing import Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.load.formats.mapping import Parse, ValueMapping
from omnigraph.schema import catalog as ct

TRUE_WORDS: Final = ("true", "True", "TRUE", "t", "yes", "Yes", "YES", "y", "Y", "1")
FALSE_WORDS: Final = ("false", "False", "FALSE", "f", "no", "No", "NO", "n", "N", "0")
EPOCHS: Final = {"epoch": "s", "epoch_ms": "ms", "epoch_us": "us"}
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_TEXT_ITEMS: Final = frozenset({ct.Scalar.STRING, ct.Scalar.DATE, ct.Scalar.DATETIME})


def parse_texts(texts: pa.StringArray, value: ValueMapping, kind: ct.PropertyType) -> pa.Array:
    """The texts of a column as cells of a property."""
    if value.null:
        is_null = pc.is_in(texts, pa.array(value.null, pa.string()))
        texts = pc.if_else(is_null, None, texts)
    if value.split is not None:
        texts = _split(texts, value, kind)
    elif value.parse is not None:
        texts = _parse(texts, value)
    if value.default is not None:
        texts = texts.fill_null(value.default)
    return texts


def _parse(texts: pa.StringArray, value: ValueMapping) -> pa.StringArray:
    trimmed = pc.utf8_trim_whitespace(texts)
    assert value.parse is not None
    match value.parse:
        case Parse.DATE:
            parsed = _dates(trimmed, value.format or "%Y-%m-%d", "%Y-%m-%d")
        case Parse.DATETIME:
            parsed = _dates(trimmed, value.format or "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ")
        case Parse.NUMBER:
            parsed = _numbers(trimmed, value)
        case Parse.BOOLEAN:
            parsed = _booleans(trimmed, value)
        case _:
            assert_never(value.parse)
    return pc.coalesce(parsed, texts)


def _dates(texts: pa.StringArray, form: str, spelling: str) -> pa.StringArray:
    if form in EPOCHS:
        plain = pc.match_substring_regex(texts, pattern=r"^-?[0-9]{1,17}$")
        times = pc.if_else(plain, texts, None).cast(pa.int64()).cast(pa.timestamp(EPOCHS[form]))
        return pc.strftime(times.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ")
    times = pc.strptime(texts, format=form, unit="s", error_is_null=True)
    return pc.strftime(times, format=spelling)


def _numbers(texts: pa.StringArray, value: ValueMapping) -> pa.StringArray:
    plain = texts
    if value.thousands:
        plain = pc.replace_substring(plain, value.thousands, "")
    if value.decimal and value.decimal != ".":
        plain = pc.replace_substring(plain, value.decimal, ".")
    plain = pc.if_else(pc.match_substring_regex(plain, pattern=_NUMBER), plain, None)
    for pattern, replacement in (
        (r"^\+", ""),
        (r"^(-?)0+([0-9])", r"\1\2"),
        (r"^(-?)\.", r"\10."),
        (r"\.([eE]|$)", r"\1"),
    ):
        plain = pc.replace_substring_regex(plain, pattern, replacement)
    return plain


def _booleans(texts: pa.StringArray, value: ValueMapping) -> pa.StringArray:
    true = pc.is_in(texts, pa.array(value.true or TRUE_WORDS, pa.string()))
    false = pc.is_in(texts, pa.array(value.false or FALSE_WORDS, pa.string()))
    return pc.if_else(true, "true", pc.if_else(false, "false", None))


def _split(texts: pa.StringArray, value: ValueMapping, kind: ct.PropertyType) -> pa.StringArray:
    """Lists as JSON; items of texts are quoted, others are spelt as they are."""
    assert value.split is not None
    is_text = not isinstance(kind, ct.ListType) or kind.item in _TEXT_ITEMS
    lists: list[str | None] = []
    for text in texts.to_pylist():
        if text is None:
            lists.append(None)
            continue
        items = [item.strip() for item in text.split(value.split)]
        shown = [
            json.dumps(item, ensure_ascii=False) if is_text else item for item in items if item
        ]
        lists.append(f"[{','.join(shown)}]")
    return pa.array(lists, pa.string())
