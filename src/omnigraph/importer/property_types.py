"""Choose the type of a property for a profiled column, and how its values are read.

Invariant: every value of the profiled records fits the chosen type.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pyarrow.types as pat

from omnigraph.importer import naming
from omnigraph.importer.profile import ColumnProfile
from omnigraph.importer.readings import TEXT
from omnigraph.load.formats.mapping import ValueMapping
from omnigraph.schema import catalog as ct

_ENUM_VALUES_MAX: Final = 16
_ENUM_RECORDS_MIN: Final = 12
_ENUM_REPEATS_MIN: Final = 4
_ENUM_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_VECTOR_MIN: Final = 8
_VECTOR_MAX: Final = 65_536
_SEPARATORS: Final = ("|", ";")
_LIST_SHARE_MIN: Final = 0.3
_ITEM_MAX: Final = 60


def property_type(profile: ColumnProfile, *, enums: bool = True) -> tuple[str, ValueMapping, str]:
    """The type without `?`, where the value comes from, and why."""
    plain = ValueMapping(column=profile.path)
    if profile.is_list:
        return _list_type(profile, plain)
    if profile.arrow_type is not None:
        return _arrow_type(profile, plain)
    if not profile.has_values:
        return "String", plain, "no record has a value"
    if enums and is_enum(profile):
        assert profile.values is not None
        values = sorted(value for value in profile.values if value)
        return f"enum({', '.join(values)})", _nullable(plain, profile), _enum_why(profile, values)
    return _text_type(profile, plain)


def _text_type(profile: ColumnProfile, plain: ValueMapping) -> tuple[str, ValueMapping, str]:
    reading, why = profile.reading()
    value = _nullable(replace(reading.value, column=profile.path), profile)
    if reading is TEXT:
        separator = _separator(profile)
        if separator is not None:
            split = replace(plain, split=separator)
            return "[String]", split, f"texts are split at {separator!r}"
        return "String", value, why
    if reading.scalar is ct.Scalar.F64 and _is_whole(profile):
        return "I64", value, f"read as {reading.name}"
    return reading.scalar.value, value, "" if reading.value.is_plain else f"read as {reading.name}"


def is_enum(profile: ColumnProfile) -> bool:
    """Whether few values, which could be written in a schema, are repeated often."""
    if profile.arrow_type is not None or profile.values is None or profile.is_list:
        return False
    if profile.reading()[0] is not TEXT:
        return False
    values = [value for value in profile.values if value]
    filled = profile.records - profile.nulls - profile.empties
    return (
        2 <= len(values) <= _ENUM_VALUES_MAX
        and filled >= _ENUM_RECORDS_MIN
        and filled >= _ENUM_REPEATS_MIN * len(values)
        and all(_ENUM_VALUE.fullmatch(value) for value in values)
        and all(re.search("[A-Za-z]", value) for value in values)
    )


def _enum_why(profile: ColumnProfile, values: list[str]) -> str:
    return f"{len(values)} values in {profile.records:,} records"


def _nullable(value: ValueMapping, profile: ColumnProfile) -> ValueMapping:
    is_enum_with_empties = bool(profile.empties) and is_enum(profile)
    if profile.empty_is_null or is_enum_with_empties:
        return replace(value, null=("",))
    return value


def _is_whole(profile: ColumnProfile) -> bool:
    """Whether numbers with separators have no decimals."""
    reading, _ = profile.reading()
    decimal = reading.value.decimal
    if decimal is None or not profile.sample or profile.values is None:
        return False
    return all(decimal not in text for text in profile.values)


def _list_type(profile: ColumnProfile, plain: ValueMapping) -> tuple[str, ValueMapping, str]:
    if profile.arrow_type is not None:
        item = ColumnProfile(path=profile.path, arrow_type=profile.arrow_type.value_type).scalar()
        is_float = item in ct.FLOATS
    else:
        kinds = profile.item_kinds - {"NoneType"}
        is_float = "float" in kinds and kinds <= {"float", "int"}
        item = _item_scalar(kinds)
    if is_float and len(profile.lengths) == 1:
        (length,) = profile.lengths
        if _VECTOR_MIN <= length <= _VECTOR_MAX:
            return f"Vector({length})", plain, f"all lists have {length} numbers"
    if item is None:
        return "String", plain, "lists of mixed values, kept as JSON"
    return f"[{item.value}]", plain, ""


def _item_scalar(kinds: set[str]) -> ct.Scalar | None:
    if kinds <= {"str"}:
        return ct.Scalar.STRING
    if kinds == {"int"}:
        return ct.Scalar.I64
    if kinds == {"bool"}:
        return ct.Scalar.BOOL
    return ct.Scalar.F64 if kinds <= {"int", "float"} else None


def _arrow_type(profile: ColumnProfile, plain: ValueMapping) -> tuple[str, ValueMapping, str]:
    assert profile.arrow_type is not None
    scalar = profile.scalar()
    if scalar is not None:
        return scalar.value, plain, ""
    if pat.is_binary(profile.arrow_type) or pat.is_large_binary(profile.arrow_type):
        return "Blob", plain, ""
    return "String", plain, f"values of type {profile.arrow_type}, kept as text"


def _separator(profile: ColumnProfile) -> str | None:
    """The separator of lists in texts, in a column whose name is a plural."""
    words = naming.words(profile.path)
    if not words or naming.singular(words[-1]) == words[-1] or not profile.sample:
        return None
    for separator in _SEPARATORS:
        split = [text.split(separator) for text in profile.sample if separator in text]
        if len(split) >= _LIST_SHARE_MIN * len(profile.sample) and all(
            len(item) <= _ITEM_MAX for items in split for item in items
        ):
            return separator
    return None
