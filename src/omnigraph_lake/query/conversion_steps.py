"""Conversions between base types, as chains of single steps that every engine has.

Invariant: a step that cannot fail is exact, or rounds an integer or a float to the nearest float.
One that can fail refuses every value that the target cannot hold exactly, floats excepted.
"""

from __future__ import annotations

from omnigraph_lake.query.types import INTEGER_LIMITS
from omnigraph_lake.schema.catalog import FLOATS, INTEGERS, Scalar

_FROM_TEXT = frozenset(
    {Scalar.I64, Scalar.U64, Scalar.F64, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME}
)


_FROM_JSON = {
    Scalar.I32: (Scalar.I64, Scalar.I32),
    Scalar.U32: (Scalar.I64, Scalar.U32),
    Scalar.F32: (Scalar.F64, Scalar.F32),
    Scalar.DATE: (Scalar.STRING, Scalar.DATE),
    Scalar.DATETIME: (Scalar.STRING, Scalar.DATETIME),
}
"""The targets that a JSON number or string reaches through a type with a kernel of its own."""


def cast_steps(source: Scalar, target: Scalar) -> tuple[Scalar, ...] | None:  # noqa: PLR0911 - one per kind of step
    """The types on the way, the target included; None if there is no conversion."""
    if source is target:
        return ()
    if Scalar.BLOB in (source, target) or target is Scalar.JSON:
        return None
    if source is Scalar.JSON:
        return _FROM_JSON.get(target, (target,))
    if target is Scalar.STRING or {source, target} == {Scalar.DATE, Scalar.DATETIME}:
        return (target,)
    if source is Scalar.STRING:
        between = Scalar.F64 if target is Scalar.F32 else Scalar.I64
        return (target,) if target in _FROM_TEXT else (between, target)
    if source in INTEGERS and target in INTEGERS:
        return (target,)
    if source in INTEGERS and target in FLOATS:
        return (Scalar.F64,) if target is Scalar.F64 else (Scalar.F64, Scalar.F32)
    if source in FLOATS and target in FLOATS:
        return (target,)
    if source in FLOATS and target in INTEGERS:
        first = () if source is Scalar.F64 else (Scalar.F64,)
        wide = () if target in (Scalar.I64, Scalar.U64) else (Scalar.I64,)
        return (*first, *wide, target)
    return None


def can_fail(source: Scalar, target: Scalar) -> bool:
    """Whether a step refuses some values."""
    if source in INTEGERS and target in INTEGERS:
        (low, high), (least, greatest) = INTEGER_LIMITS[source], INTEGER_LIMITS[target]
        return low < least or high > greatest
    if target is Scalar.F32:
        return source is Scalar.F64
    return source in (Scalar.STRING, Scalar.JSON) or (source is Scalar.F64 and target in INTEGERS)
