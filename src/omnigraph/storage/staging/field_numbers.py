"""Columns with the field numbers by which Lance finds their values in data files.

Invariant: a number that the table or one of its data files knows is never given to anything new.

Lance makes schemas with numbers of its own choosing only; the one form of a schema that carries
numbers in is the one it pickles to: a protobuf record per field, parents before children. Records
are edited here entry by entry, so what is not known here stays as Lance wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lance.blob import BlobType
from lance.fragment import write_fragments
from lance.schema import LanceSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_Record: TypeAlias = tuple[tuple[int, "int | bytes"], ...]

_NAME: Final = 2
_NUMBER: Final = 3
_PARENT: Final = 4
_NULLABLE: Final = 6
_EXTENSION: Final = 9
_METADATA: Final = 10
_KEY: Final = 12
_KEY_POSITION: Final = 13
_FREE_AT_THE_TOP: Final = frozenset(
    {_NAME, _NUMBER, _PARENT, _NULLABLE, _METADATA, _KEY, _KEY_POSITION}
)
_FREE_INSIDE: Final = frozenset({_NUMBER, _PARENT})
_NO_PARENT: Final = (1 << 64) - 1
_BLOBS: Final = BlobType().extension_name.encode()
_VARINT: Final = 0
_BYTES: Final = 2
_NOWHERE: Final = "memory://columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedColumn:
    """A column and the fields inside it, parents before children."""

    records: tuple[_Record, ...]

    @property
    def name(self) -> str:
        name = dict(self.records[0])[_NAME]
        assert isinstance(name, bytes)
        return name.decode()

    @property
    def nullable(self) -> bool:
        return bool(dict(self.records[0]).get(_NULLABLE, 0))

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(_number(record, _NUMBER) for record in self.records)

    @property
    def holds_blobs(self) -> bool:
        return bool(dict(self.records[0]).get(_EXTENSION) == _BLOBS)

    @property
    def shape(self) -> object:
        """What two columns share if both can read the same stored values, nulls aside."""
        first = self.numbers[0]
        return tuple(
            (
                _number(record, _PARENT) - first if depth else None,
                sorted(
                    (entry, value)
                    for entry, value in record
                    if entry not in (_FREE_INSIDE if depth else _FREE_AT_THE_TOP)
                ),
            )
            for depth, record in enumerate(self.records)
        )

    def numbered(self, numbers: Sequence[int]) -> NumberedColumn:
        """The same column under other numbers."""
        known = dict(zip(self.numbers, numbers, strict=True))
        return replace(self, records=tuple(_renumbered(each, known) for each in self.records))


def columns_of(schema: LanceSchema) -> dict[str, NumberedColumn]:
    """The columns of a schema by name, in order."""
    columns: list[list[_Record]] = []
    _, (_, *fields) = _pickled(schema)
    for record in map(_parsed, fields):
        if _number(record, _PARENT) == _NO_PARENT:
            columns.append([record])
        else:
            columns[-1].append(record)
    found = (NumberedColumn(records=tuple(each)) for each in columns)
    return {column.name: column for column in found}


def as_lance_writes(schema: pa.Schema, *, storage_version: str) -> dict[str, NumberedColumn]:
    """What Lance makes of a schema in a new table, by name; nothing is written anywhere."""
    transaction = write_fragments(
        schema.empty_table(),
        _NOWHERE,
        mode="create",
        return_transaction=True,
        data_storage_version=storage_version,
    )
    operation: Any = transaction.operation
    return columns_of(operation.new_schema)


def with_columns(schema: LanceSchema, columns: Iterable[NumberedColumn]) -> LanceSchema:
    """The schema with exactly these columns; its own metadata stays."""
    unpickle, (metadata, *_) = _pickled(schema)
    records = chain.from_iterable(column.records for column in columns)
    made = unpickle(metadata, *map(_written, records))
    assert isinstance(made, LanceSchema)
    return made


def first_free_number(dataset: LanceDataset) -> int:
    """The lowest number above all that the table's schema and data files know."""
    stored = (each.numbers for each in columns_of(dataset.lance_schema).values())
    files = (
        file.fields for fragment in dataset.get_fragments() for file in fragment.metadata.files
    )
    return max(chain(chain.from_iterable(stored), chain.from_iterable(files)), default=-1) + 1


def _pickled(schema: LanceSchema) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What makes the schema again, and out of what: its metadata, then its fields."""
    pickled = schema.__reduce__()
    assert isinstance(pickled, tuple)
    unpickle, arguments = pickled
    assert callable(unpickle)
    assert isinstance(arguments, tuple)
    return unpickle, arguments


def _number(record: _Record, entry: int) -> int:
    value = dict(record).get(entry, 0)
    assert isinstance(value, int)
    return value


def _renumbered(record: _Record, known: Mapping[int, int]) -> _Record:
    parent = _number(record, _PARENT)
    entries = [each for each in record if each[0] not in _FREE_INSIDE]
    entries.append((_NUMBER, known[_number(record, _NUMBER)]))
    entries.append((_PARENT, parent if parent == _NO_PARENT else known[parent]))
    return tuple(sorted(entries, key=lambda each: each[0]))


def _parsed(record: bytes) -> _Record:
    rest = iter(record)
    return tuple(_entries(rest))


def _entries(rest: Iterator[int]) -> Iterator[tuple[int, int | bytes]]:
    for first in rest:
        key = _varint(first, rest)
        value = _varint(next(rest), rest)
        match key & 7:
            case 0:
                yield key >> 3, value
            case 2:
                yield key >> 3, bytes(next(rest) for _ in range(value))
            case kind:
                raise AssertionError(f"a field of Lance's has an entry of the unknown kind {kind}")


def _varint(first: int, rest: Iterator[int]) -> int:
    value, shift, byte = first & 0x7F, 7, first
    while byte & 0x80:
        byte = next(rest)
        value |= (byte & 0x7F) << shift
        shift += 7
    return value


def _written(record: _Record) -> bytes:
    parts = []
    for entry, value in record:
        if isinstance(value, int):
            parts.append(_as_varint(entry << 3 | _VARINT) + _as_varint(value))
        else:
            parts.append(_as_varint(entry << 3 | _BYTES) + _as_varint(len(value)) + value)
    return b"".join(parts)


def _as_varint(value: int) -> bytes:
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
