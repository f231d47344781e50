"""Add the columns of an input that types do not have to the schema, as nullable properties.

The text of the schema gets the properties at the ends of the bodies of their types, and is then
planned like any other new text. So a widening is what a person could have applied before the load.

Invariants:
- Nothing but nullable properties of existing types is added. No stored row gets another value, and
  no row has to be checked.
- A widening depends on the accepted schema and on the columns alone: every process that looks at
  both comes to the same schema, with the same numbers.
- A column that differs from another one in case only is refused: a typing error would else become a
  property for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake import names
from omnigraph_lake.errors import InvalidInputError, SchemaInvalidError
from omnigraph_lake.evolution.lifting import describe_change
from omnigraph_lake.evolution.plan.plan import AddProperty
from omnigraph_lake.evolution.plan.planning import evolve
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.language.grammars import Lexeme
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.ends import end_type_columns
from omnigraph_lake.schema.parser import lexemes
from omnigraph_lake.schema.show import show_type
from omnigraph_lake.validation.schema_contract import SchemaContract, Widening, contract_for

_NAME: Final = re.compile(r"[a-z_][A-Za-z0-9_]*")
_DECLARATIONS: Final = frozenset({"INTERFACE", "NODE", "EDGE"})
_U64_DIGITS: Final = 20


def widen(accepted: SchemaContract, columns: Mapping[str, pa.Schema]) -> Widening | None:
    """The schema that has a property for every column, by table key; None if it has all of them.

    Raises:
        InvalidInputError: a column cannot be a property of its type.
    """
    tables = accepted.catalog.tables()
    added = {
        key: missing
        for key, schema in columns.items()
        if (missing := tuple(_missing(tables[key], schema)))
    }
    if not added:
        return None
    text = accepted.text
    for key, properties in added.items():
        text = _with_properties(text, tables[key], properties)
    try:
        evolution = evolve(accepted.catalog, text, extends_accepted=True)
    except SchemaInvalidError as error:
        raise InvalidInputError(
            "the columns of the frame cannot become properties: "
            + "; ".join(diagnostic.message for diagnostic in error.diagnostics),
            next_step="Rename the columns, or leave them out.",
        ) from error
    assert all(isinstance(step, AddProperty) for step in evolution.plan.steps)
    return Widening(
        accepted=accepted,
        target=contract_for(text, evolution.target),
        added={key: tuple(name for name, _ in missing) for key, missing in added.items()},
        values=describe_change(accepted.catalog, evolution.target, evolution.plan.steps),
    )


def _missing(
    declared: ct.NodeType | ct.EdgeType, schema: pa.Schema
) -> Iterator[tuple[str, ct.PropertyType]]:
    known = {*names.SYSTEM_COLUMNS, *end_type_columns(declared), *declared.properties}
    folded = {name.casefold(): name for name in known}
    for field in schema:
        if field.name in known:
            continue
        where = f"the frame of {declared.name} has a column {shown(field.name)}, which"
        twin = folded.setdefault(field.name.casefold(), field.name)
        if twin != field.name:
            raise InvalidInputError(
                f"{where} differs from {twin} in case only",
                next_step=f"Rename it to {twin}, or to another name.",
            )
        if not _NAME.fullmatch(field.name):
            raise InvalidInputError(
                f"{where} cannot be the name of a property",
                next_step="Rename it: a small letter or _, then letters, digits and _.",
            )
        kind = property_type(field.type)
        if kind is None:
            raise InvalidInputError(
                f"{where} is {field.type}, and no property has this type",
                next_step="Cast the column, leave it out, or declare a property for it: "
                "`omnigraph schema apply`.",
            )
        yield field.name, kind


_SCALARS: Final[Mapping[pa.DataType, ct.Scalar]] = {
    pa.string(): ct.Scalar.STRING,
    pa.large_string(): ct.Scalar.STRING,
    pa.string_view(): ct.Scalar.STRING,
    pa.bool_(): ct.Scalar.BOOL,
    pa.int8(): ct.Scalar.I32,
    pa.int16(): ct.Scalar.I32,
    pa.int32(): ct.Scalar.I32,
    pa.int64(): ct.Scalar.I64,
    pa.uint8(): ct.Scalar.U32,
    pa.uint16(): ct.Scalar.U32,
    pa.uint32(): ct.Scalar.U32,
    pa.uint64(): ct.Scalar.U64,
    # Spark has no unsigned numbers, and reads U64 as this.
    pa.decimal128(_U64_DIGITS, 0): ct.Scalar.U64,
    pa.float32(): ct.Scalar.F32,
    pa.float64(): ct.Scalar.F64,
    pa.date32(): ct.Scalar.DATE,
}


def property_type(kind: pa.DataType) -> ct.PropertyType | None:
    """The type of a property that holds every value of an Arrow type; None if there is none.

    Blobs are stored apart from their rows and are declared by people only.
    """
    if pat.is_dictionary(kind):
        return property_type(kind.value_type)
    if pat.is_fixed_size_list(kind) and kind.value_type == pa.float32():
        return ct.VectorType(size=kind.list_size)
    if pat.is_list(kind) or pat.is_large_list(kind):
        item = _scalar(kind.value_type)
        return None if item is None else ct.ListType(item=item)
    scalar = _scalar(kind)
    if scalar is None and pat.is_decimal(kind):
        return ct.decimal_type(kind.precision, kind.scale)
    return None if scalar is None else ct.ScalarType(scalar=scalar)


def _scalar(kind: pa.DataType) -> ct.Scalar | None:
    if pat.is_timestamp(kind) and kind.tz is not None and kind.unit != "ns":
        return ct.Scalar.DATETIME
    return _SCALARS.get(kind)


def _with_properties(
    text: str,
    declared: ct.NodeType | ct.EdgeType,
    properties: Sequence[tuple[str, ct.PropertyType]],
) -> str:
    """The text with properties at the end of the body of a type."""
    lines = "".join(f"  {name}: {show_type(kind)}?\n" for name, kind in properties)
    tokens = lexemes(text)
    assert isinstance(tokens, tuple), "an accepted text has no errors"
    word = "NODE" if isinstance(declared, ct.NodeType) else "EDGE"
    first = next(
        number
        for number, token in enumerate(tokens)
        if token.kind == word and tokens[number + 1].text == declared.name
    )
    end = _body_end(tokens[first + 1 :])
    if end is None:
        header = _header_end(tokens[first + 1 :])
        return f"{text[:header]} {{\n{lines}}}{text[header:]}"
    head = text[:end].rstrip(" \t").removesuffix("\n")
    return f"{head}\n{lines}{text[end:]}"


def _body_end(tokens: Sequence[Lexeme]) -> int | None:
    """Where the body of a declaration ends; None if it has none."""
    is_inside = False
    for token in tokens:
        if token.kind == "RBRACE":
            return token.offset
        is_inside = is_inside or token.text == "{"
        if token.kind in _DECLARATIONS and not is_inside:
            return None
    return None


def _header_end(tokens: Sequence[Lexeme]) -> int:
    """Where a declaration without a body ends."""
    end = tokens[0].end
    for token in tokens:
        if token.kind in _DECLARATIONS:
            break
        end = token.end
    return end
