"""What a three-way merge calls a conflict, how it is told, and how a caller wants it decided.

Invariant: a resolution is a plain value that survives JSON unchanged, because the commit of a merge
records it; every type and column in it exists in the catalog it was read with. What it does not
mention stays open.

"Ours" is the target of a merge, "theirs" its source.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeAlias, assert_never

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.names import SOURCE_COLUMN, TARGET_COLUMN, edge_table_key, node_table_key
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph_lake.schema.python_values import time_texts
from omnigraph_lake.validation.json_encoding import decimal_tokens


class ConflictKind(enum.StrEnum):
    """How both sides of a merge changed one row differently. Tokens are added, never changed."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"


class Side(enum.StrEnum):
    """One side of a merge."""

    OURS = "ours"
    THEIRS = "theirs"

    @property
    def other(self) -> Side:
        return Side.THEIRS if self is Side.OURS else Side.OURS


class Choice(enum.StrEnum):
    """How to decide a conflict; `newest` is the side whose head commit is younger."""

    OURS = "ours"
    THEIRS = "theirs"
    NEWEST = "newest"


CONFLICT_SCHEMA: Final = pa.schema(
    [
        pa.field("type", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("column", pa.string()),
        pa.field("base", pa.string()),
        pa.field("ours", pa.string()),
        pa.field("theirs", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("resolution", pa.string()),
    ]
)
"""`type` is a table key; `column` is null when the row as a whole is in conflict.

`base`, `ours` and `theirs` are JSON: of a value, or of the whole row. They are null where there is
no such row, so a value that is null reads `null`. A number that JSON lacks is a text, and a blob
is its size and digest. `resolution` is the side taken, null while open.
"""

_WORDS: Final = tuple(choice.value for choice in Choice)
_SAY: Final = "Use ours, theirs or newest, or a JSON file: a path that ends in .json."
_Declared: TypeAlias = NodeType | EdgeType


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeResolution:
    """How conflicts of one table are decided; columns in the order of the schema."""

    table_key: str
    default: Choice | None = None
    columns: tuple[tuple[str, Choice], ...] = ()

    def choice(self, column: str | None) -> Choice | None:
        return dict(self.columns).get(column, self.default) if column else self.default

    def to_json(self) -> dict[str, Any]:
        columns = {name: choice.value for name, choice in self.columns}
        return {**_default_json(self.default), **({"columns": columns} if columns else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """How conflicts of a merge are decided; the empty one leaves all of them open."""

    default: Choice | None = None
    types: tuple[TypeResolution, ...] = ()
    schema: tuple[tuple[str, Side], ...] = ()
    """Whose change of an element of the schema counts: `Person`, or `Person.age`."""

    def choice(self, table_key: str, column: str | None) -> Choice | None:
        """The column's word, else the type's, else the general one; a whole row has no column."""
        for type_resolution in self.types:
            if type_resolution.table_key == table_key:
                return type_resolution.choice(column) or self.default
        return self.default

    def to_json(self) -> dict[str, Any]:
        """A JSON object that reads back as an equal resolution."""
        types = {
            type_resolution.table_key: type_resolution.to_json() for type_resolution in self.types
        }
        schema = {element: side.value for element, side in self.schema}
        return {
            **_default_json(self.default),
            **({"types": types} if types else {}),
            **({"schema": schema} if schema else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """Everything a caller decides about a merge beforehand."""

    resolution: Resolution = Resolution()
    column_level: bool = True
    """Whether two changes of different columns of one row go together."""
    source_is_newer: bool
    """Whether the head commit of the source is younger than that of the target."""

    def side(self, table_key: str, column: str | None) -> Side | None:
        """Which side wins a conflict; None leaves it open."""
        choice = self.resolution.choice(table_key, column)
        match choice:
            case None:
                return None
            case Choice.OURS:
                return Side.OURS
            case Choice.THEIRS:
                return Side.THEIRS
            case Choice.NEWEST:
                return Side.THEIRS if self.source_is_newer else Side.OURS
            case _:
                assert_never(choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCounts:
    """What a merge does to the target in rows, and how many conflicts it met."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    combined: int = 0
    """Updated rows that hold changes of both sides."""
    kept: int = 0
    """Rows that only the target changed, among those that were compared."""
    agreed: int = 0
    """Rows that both sides changed without a conflict, and that need no write."""
    open: int = 0
    resolved: int = 0

    def __add__(self, other: MergeCounts) -> MergeCounts:
        names = [field.name for field in fields(self)]
        return MergeCounts(**{name: getattr(self, name) + getattr(other, name) for name in names})


def parse_resolution(resolution: object, catalog: Catalog) -> Resolution:
    """Read a resolution: a word, a mapping, the text of a JSON object or the path of a JSON file.

    Raises:
        InvalidInputError: a word, type, column or shape that is not known.
        NotFoundError: the file does not exist.
    """
    match resolution:
        case None:
            return Resolution()
        case str() if resolution in _WORDS:
            return Resolution(default=Choice(resolution))
        case str() if resolution.lstrip().startswith("{"):
            return _read(_decode(resolution, "the resolution"), catalog)
        case str() if not resolution.endswith(".json"):
            raise _unknown(resolution, "resolution", _WORDS, next_step=_SAY)
        case str() | os.PathLike():
            return _read(_decode(_file_text(Path(resolution)), str(resolution)), catalog)
        case Mapping():
            return _read(resolution, catalog)
        case _:
            raise InvalidInputError(
                f"the resolution is {type(resolution).__name__}, expected a word or a mapping",
                next_step=_SAY,
            )


def require_rows_only(resolution: Resolution) -> None:
    """Refuse a resolution that decides about schemas, for what merges none.

    Raises:
        InvalidInputError: it does.
    """
    if resolution.schema:
        raise InvalidInputError(
            "the resolution decides about the schema, which only a merge does",
            next_step="Give `default` and `types`.",
        )


def value_texts(values: pa.Array) -> list[str | None]:
    """Each value as JSON; engines spell conflicts alike by calling this."""
    return [_json(value) for value in _spelt(values)]


def row_texts(present: pa.BooleanArray, rows: pa.RecordBatch) -> list[str | None]:
    """Each row as one JSON object; None for a row that is not present."""
    json_rows = zip(*map(_spelt, rows.columns), strict=True)
    return [
        _json(dict(zip(rows.schema.names, row, strict=True))) if there else None
        for there, row in zip(present.to_pylist(), json_rows, strict=True)
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _spelt(values: pa.Array) -> list[object]:
    kind = values.type
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return list(_spelt_lists(values))
    if pat.is_decimal(kind):
        return decimal_tokens(values)
    if pat.is_floating(kind):
        return [_number(value) for value in values.to_pylist()]
    if pat.is_temporal(kind):
        return list(time_texts(values))
    if pat.is_binary(kind) or pat.is_large_binary(kind):
        return [None if content is None else _digest(content) for content in values.to_pylist()]
    return list(values.to_pylist())


def _spelt_lists(values: pa.Array) -> Iterator[list[object] | None]:
    items = iter(_spelt(pc.list_flatten(values)))
    lengths = pc.list_value_length(values).to_pylist()
    for there, length in zip(values.is_valid().to_pylist(), lengths, strict=True):
        yield [next(items) for _ in range(length)] if there else None


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _digest(content: bytes) -> dict[str, object]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _read(resolution: object, catalog: Catalog) -> Resolution:
    members = _members(resolution, "the resolution", ("default", "types", "schema"))
    declared = catalog.tables()
    named: dict[str, object] = {}
    for name, value in _mapping(members.get("types", {}), "types").items():
        table_key = _table_key(name, declared)
        if table_key in named:
            raise InvalidInputError(f"the resolution names {table_key} twice")
        named[table_key] = value
    return Resolution(
        default=_word(members, "the resolution"),
        types=tuple(
            _type_resolution(table_key, declared_type, named[table_key])
            for table_key, declared_type in declared.items()
            if table_key in named
        ),
        schema=tuple(
            (element, _side(word, element))
            for element, word in sorted(_mapping(members.get("schema", {}), "schema").items())
        ),
    )


def _side(word: object, element: str) -> Side:
    sides = tuple(side.value for side in Side)
    if not isinstance(word, str) or word not in sides:
        raise InvalidInputError(
            f"the schema of {element} is {shown(word)}, expected one of {', '.join(sides)}",
            next_step="Name the side whose change of the schema counts.",
        )
    return Side(word)


def _type_resolution(table_key: str, declared: _Declared, resolution: object) -> TypeResolution:
    members = _members(resolution, table_key, ("default", "columns"))
    columns = _mapping(members.get("columns", {}), f"columns of {table_key}")
    ends = (SOURCE_COLUMN, TARGET_COLUMN) if isinstance(declared, EdgeType) else ()
    known = (*ends, *declared.properties)
    for name in columns:
        if name not in known:
            raise _unknown(
                name,
                f"column of {table_key}",
                known,
                next_step="Name properties of the type; an id is never in conflict.",
            )
    return TypeResolution(
        table_key=table_key,
        default=_word(members, table_key),
        columns=tuple(
            (name, _choice(columns[name], f"{table_key}.{name}"))
            for name in known
            if name in columns
        ),
    )


def _table_key(name: str, declared: Mapping[str, _Declared]) -> str:
    if name in declared:
        return name
    matches = [key for key in (node_table_key(name), edge_table_key(name)) if key in declared]
    if len(matches) > 1:
        raise InvalidInputError(
            f"the resolution names {name}, which is a node type and an edge type",
            next_step=f"Name it {matches[0]!r} or {matches[1]!r}.",
        )
    if not matches:
        known = [declared_type.name for declared_type in declared.values()]
        raise _unknown(
            name, "type", known, next_step="Name a node type or an edge type of the schema."
        )
    return matches[0]


def _word(members: Mapping[str, object], owner: str) -> Choice | None:
    return _choice(members["default"], f"default of {owner}") if "default" in members else None


def _choice(word: object, owner: str) -> Choice:
    if not isinstance(word, str):
        raise InvalidInputError(
            f"{owner} is {shown(word)}, expected one of {', '.join(_WORDS)}", next_step=_SAY
        )
    if word not in _WORDS:
        raise _unknown(word, f"word for {owner}", _WORDS, next_step=_SAY)
    return Choice(word)


def _members(value: object, owner: str, known: tuple[str, ...]) -> Mapping[str, object]:
    members = _mapping(value, owner)
    for name in members:
        if name not in known:
            raise _unknown(
                name, f"member of {owner}", known, next_step=f"It may have {' and '.join(known)}."
            )
    return members


def _mapping(value: object, owner: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidInputError(
            f"{owner} is {shown(value)}, expected a mapping with text as names",
            next_step='Give it as in {"default": "ours", "types": {"Person": {"columns": {}}}}.',
        )
    return value


def _unknown(name: str, what: str, known: Iterable[str], *, next_step: str) -> InvalidInputError:
    hint = did_you_mean(name, known)
    return InvalidInputError(
        f"{shown(name)} is not a known {what}" + (f"; {hint}" if hint else ""), next_step=next_step
    )


def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(
            f"the resolution {path} does not exist", next_step="Check the path."
        ) from error
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"the resolution {path} cannot be read: {error}", next_step="Give a JSON file."
        ) from error


def _decode(text: str, source: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{source} is not valid JSON: {error}", next_step="Fix the JSON and retry."
        ) from error


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """JSON allows a repeated name, which is ambiguous."""
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"{shown(name)} occurs twice")
        members[name] = value
    return members


def _default_json(default: Choice | None) -> dict[str, str]:
    return {} if default is None else {"default": default.value}
