"""Arrow values as JSON.

Invariant: nothing is rounded and nothing is lost: integers are written in all their digits, and
what JSON lacks is a text: dates, instants, blobs, `"NaN"`, `"Infinity"` and `"-Infinity"`.
"""

from __future__ import annotations

import base64
import math

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph.validation.json_encoding import BLOB_PREFIX


def json_values(values: pa.Array) -> list[object]:
    """Values that `msgspec` and `json` can write."""
    kind = values.type
    if pat.is_struct(kind):
        return _objects(values)
    if pat.is_list(kind) or pat.is_fixed_size_list(kind):
        items = iter(json_values(pc.list_flatten(values)))
        lengths = pc.list_value_length(values).to_pylist()
        return [None if each is None else [next(items) for _ in range(each)] for each in lengths]
    if pat.is_floating(kind):
        return [_number(each) for each in values.to_pylist()]
    if pat.is_temporal(kind):
        texts = pc.replace_substring(values.cast(pa.string()), pattern=" ", replacement="T")
        return list(texts.to_pylist())
    if pat.is_large_binary(kind):
        return [None if each is None else _blob(each) for each in values.to_pylist()]
    return list(values.to_pylist())


def _objects(values: pa.StructArray) -> list[object]:
    names = values.type.names
    there = values.is_valid().to_pylist()
    columns = [json_values(each) for each in values.flatten()]
    return [
        {name: column[row] for name, column in zip(names, columns, strict=True)}
        if present
        else None
        for row, present in enumerate(there)
    ]


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _blob(content: bytes) -> str:
    return BLOB_PREFIX + base64.b64encode(content).decode()
