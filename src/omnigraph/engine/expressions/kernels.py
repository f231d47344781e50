"""Functions of the language over Arrow arrays, one for every engine that calls them.

DuckDB calls a kernel as a function of its own, Spark in its tasks.

Invariants:
- Arrays are equally long. A null argument gives null, and no kernel raises because of a value.
- A kernel that `can_fail` gives null where a value is refused, and for no other arguments: whether
  that is an error or a null is decided by its caller.
- A kernel imports nothing of a query, so that tasks of Spark start quickly.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.expressions.letter_case import lower_case, upper_case

Compute: TypeAlias = Callable[..., pa.Array]


class Kernel(enum.StrEnum):
    """The kernels; the value is part of their name in SQL."""

    LOWER = "lower"
    UPPER = "upper"
    MATCHES = "matches"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFunction:
    """What a kernel takes and gives, as Arrow types, and how it is computed."""

    takes: tuple[pa.DataType, ...]
    gives: pa.DataType
    compute: Compute
    can_fail: bool = False


def _lower(texts: pa.Array) -> pa.Array:
    return _translate(texts, pc.ascii_lower, lower_case())


def _upper(texts: pa.Array) -> pa.Array:
    return _translate(texts, pc.ascii_upper, upper_case())


def _translate(
    texts: pa.Array, of_ascii: Callable[[pa.Array], pa.Array], table: Mapping[int, int]
) -> pa.Array:
    """ASCII in one go; a text with other characters by the table."""
    is_ascii = pc.string_is_ascii(texts)
    if pc.all(is_ascii, min_count=0).as_py():
        return of_ascii(texts)
    others = pc.filter(texts, pc.invert(is_ascii))
    translated = [text.translate(table) for text in others.to_pylist()]
    return pc.replace_with_mask(
        of_ascii(texts),
        pc.fill_null(pc.invert(is_ascii), False),  # noqa: FBT003 - the value to put
        pa.array(translated, texts.type),
    )


def _matches(texts: pa.Array, patterns: pa.Array) -> pa.Array:
    """The pattern is the same in every row."""
    pattern = patterns[0].as_py() if len(patterns) else None
    if pattern is None:
        return pa.nulls(len(texts), pa.bool_())
    return pc.match_substring_regex(texts, pattern=pattern)


def find_refusals(result: pa.Array, arguments: Sequence[pa.Array]) -> pa.Array:
    """Where a kernel that can fail refused a value."""
    refused = pc.is_null(result)
    for argument in arguments:
        refused = pc.and_(refused, pc.is_valid(argument))
    return refused


KERNELS: Final[Mapping[Kernel, KernelFunction]] = {
    Kernel.LOWER: KernelFunction(takes=(pa.string(),), gives=pa.string(), compute=_lower),
    Kernel.UPPER: KernelFunction(takes=(pa.string(),), gives=pa.string(), compute=_upper),
    Kernel.MATCHES: KernelFunction(
        takes=(pa.string(), pa.string()), gives=pa.bool_(), compute=_matches
    ),
}
