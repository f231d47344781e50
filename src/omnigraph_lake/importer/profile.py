"""Profile sources: for every column how its texts can be read, nulls, distinct values, uniqueness.

A source is read once, batch by batch. Values of columns that can be keys are hashed into files, so
that uniqueness and containment of a column are exact for inputs of any size.

Invariants:
- Memory is bounded by a batch and one of `PARTS` ranges of the hashes of a column.
- What a profile says holds for every record that was read; `records` says how many that were.
- Two different values have equal hashes with a probability of 2^-64: then a column that is a key is
  not recognised as one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.importer.readings import QUOTED, READINGS, TEXT, Reading, best, fitting
from omnigraph_lake.load.formats.raw_batches import (
    ObjectBatch,
    RawBatch,
    RawRecords,
    Record,
    TabularBatch,
    cell_text,
    is_list,
    value_at,
)
from omnigraph_lake.runner.key_hash import SEED_BYTES, hash_keys
from omnigraph_lake.schema import catalog as ct

_ROOMY_DIGITS: Final = 28
"""The digits of numbers whose source declares none; sums of so many digits are exact."""
_DIGITS: Final = r"^-?0*(?P<whole>[0-9]*?)(?:\.(?P<fraction>[0-9]*?)0*)?$"
VALUES_MAX: Final = 64
"""Of a column with more distinct values the values are not remembered."""
_HASHED_MAX: Final = 32
"""Columns of a source that are hashed: candidates for keys and references."""
_KEY_TEXT_MAX: Final = 512
_TYPES_MAX: Final = 64
_SAMPLE: Final = 200
_DEPTH_MAX: Final = 6
VARIANT_SEPARATOR: Final = "\x1f"
"""Between the parts of the name of a variant of an export of Neo4j."""
DISCRIMINATORS: Final = ("type", "kind", "_type", "@type", "label", "__typename", "entity")

_ARROW_SCALARS: Final = (
    (pat.is_boolean, ct.Scalar.BOOL),
    (pat.is_int8, ct.Scalar.I32),
    (pat.is_int16, ct.Scalar.I32),
    (pat.is_int32, ct.Scalar.I32),
    (pat.is_int64, ct.Scalar.I64),
    (pat.is_uint8, ct.Scalar.U32),
    (pat.is_uint16, ct.Scalar.U32),
    (pat.is_uint32, ct.Scalar.U32),
    (pat.is_uint64, ct.Scalar.U64),
    (pat.is_float16, ct.Scalar.F32),
    (pat.is_float32, ct.Scalar.F32),
    (pat.is_float64, ct.Scalar.F64),
    (pat.is_date, ct.Scalar.DATE),
    (pat.is_timestamp, ct.Scalar.DATETIME),
    (pat.is_string, ct.Scalar.STRING),
    (pat.is_large_string, ct.Scalar.STRING),
    (pat.is_string_view, ct.Scalar.STRING),
)


PARTS: Final = 64
"""Ranges of hashes, by their upper bits, that are sorted one after the other."""
BLOCK: Final = 1 << 18
"""Hashes that are read at once."""
_SEED: Final = bytes(range(SEED_BYTES))
_NULL: Final = np.uint64(0)
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
_WIDTH: Final = 8
_BOUNDS: Final = np.arange(1, PARTS, dtype=np.uint64) << np.uint64(64 - 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedColumn:
    """The hashes of the values of a column, in the order of the records; 0 for null."""

    path: Path

    def append(self, texts: pa.StringArray, *, before: int) -> None:
        """Add the values of a batch; `before` counts the records of earlier batches."""
        keys = hash_keys([texts], _SEED)
        hashes = keys.first if keys.present is None else np.where(keys.present, keys.first, _NULL)
        with self.path.open("ab") as file:
            file.write(bytes(max(0, _WIDTH * before - file.tell())))
            file.write(hashes.tobytes())

    def blocks(self, records: int) -> Iterator[np.ndarray]:
        """The hashes of all records; those that the file does not reach have no value."""
        for first in range(0, records, BLOCK):
            size = min(BLOCK, records - first)
            hashes = np.fromfile(self.path, np.uint64, count=size, offset=_WIDTH * first)
            yield np.pad(hashes, (0, size - len(hashes)))

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctHashes:
    """The distinct values of one or more columns: sorted hashes in a file, without that of null.

    `ends` has where the ranges of hashes end.
    """

    path: Path
    ends: tuple[int, ...]

    @property
    def count(self) -> int:
        return self.ends[-1]

    def count_missing(self, others: DistinctHashes) -> int:
        """How many values the others do not have."""
        return sum(self._count_missing_of_part(number, others) for number in range(PARTS))

    def _count_missing_of_part(self, number: int, others: DistinctHashes) -> int:
        own, theirs = self._part(number), others._part(number)
        # By sorting: the table that numpy 2.0 tries first fails on numbers above 2**63.
        present = np.isin(own, theirs, assume_unique=True, kind="sort")
        return len(own) - int(np.count_nonzero(present))

    def _part(self, number: int) -> np.ndarray:
        start = self.ends[number - 1] if number else 0
        size = self.ends[number] - start
        return np.fromfile(self.path, np.uint64, count=size, offset=_WIDTH * start)


def find_distinct(columns: Sequence[HashedColumn], records: int, path: Path) -> DistinctHashes:
    """Sort the hashes of columns together into a file."""
    blocks = _mix([column.blocks(records) for column in columns])
    if records <= BLOCK:
        parts: Iterable[np.ndarray] = _split(next(blocks, np.array([], np.uint64)))
        return _write(parts, path)
    scattered = [path.with_name(f"{path.name}-{number}") for number in range(PARTS)]
    with ExitStack() as stack:
        files = [stack.enter_context(file.open("wb")) for file in scattered]
        for block in blocks:
            for file, part in zip(files, _split(block), strict=True):
                file.write(part.tobytes())
    distinct = _write((np.unique(np.fromfile(file, np.uint64)) for file in scattered), path)
    for scattered_file in scattered:
        scattered_file.unlink()
    return distinct


def _mix(columns: Sequence[Iterator[np.ndarray]]) -> Iterator[np.ndarray]:
    """The hashes of several columns together; 0 where one of them is null."""
    if len(columns) == 1:
        yield from columns[0]
        return
    for blocks in zip(*columns, strict=True):
        combined = np.zeros(len(blocks[0]), np.uint64)
        is_null = np.zeros(len(blocks[0]), np.bool_)
        for number, block in enumerate(blocks):
            is_null |= block == _NULL
            combined = (combined ^ block) * _MIXER + np.uint64(number)
        combined[is_null] = _NULL
        yield combined


def _split(block: np.ndarray) -> list[np.ndarray]:
    """The distinct hashes of a block by range."""
    unique = np.unique(block[block != _NULL])
    return np.split(unique, np.searchsorted(unique, _BOUNDS))


def _write(parts: Iterable[np.ndarray], path: Path) -> DistinctHashes:
    sizes: list[int] = []
    with path.open("wb") as file:
        for part in parts:
            sizes.append(len(part))
            file.write(part.tobytes())
    return DistinctHashes(path=path, ends=tuple(itertools.accumulate(sizes)))


@dataclass(slots=True)
class ColumnProfile:
    """What is known about one column."""

    path: str
    records: int = 0
    nulls: int = 0
    empties: int = 0
    """Texts without a character."""
    readings: tuple[Reading, ...] = READINGS
    filled_readings: tuple[Reading, ...] = READINGS
    """The readings of the texts that are not empty."""
    values: Counter[str] | None = field(default_factory=Counter)
    sample: list[str] = field(default_factory=list)
    """The first texts."""
    text_max: int = 0
    integer_max: int = 0
    arrow_type: pa.DataType | None = None
    """The type of values that are not texts."""
    item_kinds: set[str] = field(default_factory=set)
    lengths: set[int] = field(default_factory=set)
    digits: tuple[int, int] | None = None
    """The most digits in front of the point and behind it, of texts that are exact numbers."""
    lists: int = 0
    """Values that are lists of scalars."""
    is_mixed: bool = False
    """Whether some values are nested and others are not."""
    hashes: HashedColumn | None = None

    @property
    def has_values(self) -> bool:
        return self.nulls < self.records

    @property
    def is_list(self) -> bool:
        if self.arrow_type is not None:
            return is_list(self.arrow_type)
        return self.lists > 0 and self.lists == self.records - self.nulls

    def reading(self) -> tuple[Reading, str]:
        """How the texts are read, and why not more specifically."""
        reading, why = best(self.readings)
        if reading is TEXT and self.empties and self.empties < self.records - self.nulls:
            filled, filled_why = best(self.filled_readings)
            if filled is not TEXT:
                return filled, filled_why
        return reading, why

    @property
    def empty_is_null(self) -> bool:
        """Whether texts without a character stand for a missing value."""
        return bool(self.empties) and self.reading()[0] is not TEXT

    @property
    def missing(self) -> int:
        return self.nulls + (self.empties if self.empty_is_null else 0)

    @property
    def can_identify(self) -> bool:
        """Whether every record has a value that an id can be made of: a list or `""` is none."""
        return not (self.is_list or self.is_mixed or self.nulls or self.empties)

    def decimals(self) -> ct.DecimalType | None:
        """The decimals that hold all values, if they are exact numbers beyond those of 64 bits."""
        if self.arrow_type is not None:
            kind = self.arrow_type
            return ct.decimal_type(kind.precision, kind.scale) if pat.is_decimal(kind) else None
        if self.digits is None:
            return None
        whole, scale = self.digits
        roomy = _ROOMY_DIGITS if whole + scale <= _ROOMY_DIGITS else ct.DECIMAL_DIGITS_MAX
        return ct.decimal_type(roomy, scale) if whole + scale <= roomy else None

    def scalar(self) -> ct.Scalar | None:
        """The type of the values, unless they are decimals, lists or nested."""
        if self.decimals() is not None:
            return None
        if self.arrow_type is not None:
            return next((s for test, s in _ARROW_SCALARS if test(self.arrow_type)), None)
        return self.reading()[0].scalar

    def add(self, column: pa.Array, *, quoted: bool, exact: bool = False) -> None:
        """Take in the values of a batch.

        `quoted` tells that texts were quoted in JSON, `exact` that they have all digits of numbers.
        """
        self.records += len(column)
        self.nulls += column.null_count
        if not pat.is_string(column.type):
            self._add_typed(column)
            return
        texts = column.drop_null()
        if not len(texts):
            return
        filled = texts.filter(pc.not_equal(texts, ""))
        self.empties += len(texts) - len(filled)
        if exact:
            self._add_digits(texts)
        if quoted or exact:
            self.readings = tuple(reading for reading in self.readings if reading in QUOTED)
            self.filled_readings = tuple(r for r in self.filled_readings if r in QUOTED)
        self.filled_readings = fitting(self.filled_readings, filled)
        self.readings = self.filled_readings if not self.empties else (TEXT,)
        self.text_max = max(self.text_max, pc.max(pc.utf8_length(texts)).as_py())
        if any(reading.name == "integer" for reading in self.filled_readings) and len(filled):
            widest = pc.max(pc.abs(filled.cast(pa.int64()))).as_py()
            self.integer_max = max(self.integer_max, widest)
        if len(self.sample) < _SAMPLE:
            self.sample += filled.slice(0, _SAMPLE - len(self.sample)).to_pylist()
        self._add_values(texts)

    def _add_digits(self, texts: pa.StringArray) -> None:
        """Count the digits that numbers need; other texts, such as NaN, need too many."""
        parts = pc.extract_regex(texts, pattern=_DIGITS)
        if parts.null_count:
            self.digits = (ct.DECIMAL_DIGITS_MAX + 1, 0)
            return
        whole, scale = self.digits or (0, 0)
        lengths = [
            pc.max(pc.binary_length(pc.struct_field(parts, part))).as_py()
            for part in ("whole", "fraction")
        ]
        self.digits = max(whole, lengths[0]), max(scale, lengths[1])

    def _add_typed(self, column: pa.Array) -> None:
        self.arrow_type = _join_exact(self.arrow_type, column.type)
        if is_list(column.type):
            present = column.drop_null()
            self.lists += len(present)
            if len(self.lengths) < 2:
                self.lengths.update(pc.unique(pc.list_value_length(present)).to_pylist()[:2])
            return
        if pat.is_integer(column.type) and len(column) > column.null_count:
            low, high = pc.min_max(column).as_py().values()
            self.integer_max = max(self.integer_max, abs(low), abs(high))

    def _add_values(self, texts: pa.StringArray) -> None:
        if self.values is None:
            return
        counts = pc.value_counts(texts)
        if len(counts) + len(self.values) > 2 * VALUES_MAX:
            self.values = None
            return
        for row in counts.to_pylist():
            self.values[row["values"]] += row["counts"]
        if len(self.values) > VALUES_MAX:
            self.values = None

    def make_text(self) -> None:
        """Keep all values as JSON, because some are nested and others are not."""
        self.is_mixed = True
        self.readings = self.filled_readings = (TEXT,)
        self.arrow_type = self.values = self.hashes = None
        self.lists = 0

    def add_lists(self, lists: Iterable[Sequence[Any]]) -> None:
        """Take in lists of scalars."""
        for items in lists:
            self.lists += 1
            if len(self.lengths) < 2:
                self.lengths.add(len(items))
            self.item_kinds.update(
                "float" if isinstance(item, float) else type(item).__name__ for item in items
            )


@dataclass(slots=True)
class SourceProfile:
    """What is known about the records of one source, or of the items of a list in them.

    `children` are lists of objects by path. `objects` are the paths of nested objects. `variants`
    are the profiles of the records by the value of `discriminator`, if they have one.
    """

    name: str
    folder: Path = field(repr=False)
    each: str | None = None
    records: int = 0
    columns: dict[str, ColumnProfile] = field(default_factory=dict)
    children: dict[str, SourceProfile] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)
    discriminator: str | None = None
    variants: dict[str, SourceProfile] = field(default_factory=dict)
    is_complete: bool = True
    """Whether all records were read."""
    _distinct: dict[tuple[str, ...], DistinctHashes] = field(default_factory=dict, repr=False)

    def add(self, batch: RawBatch) -> None:
        if isinstance(batch, ObjectBatch):
            self._add_variants(batch)
            self._add_objects(batch)
        else:
            assert isinstance(batch, TabularBatch)
            self._add_table(batch)
        self.records += len(batch)

    def _add_table(self, batch: TabularBatch) -> None:
        for name in batch.names():
            self._add_column(name, batch.column(name), batch)

    def _add_column(self, path: str, column: pa.Array, batch: TabularBatch) -> None:
        if pat.is_struct(column.type):
            self.objects.add(path)
            for member in column.type:
                inner = f"{path}.{member.name}"
                self._add_column(inner, batch.column(inner), batch)
            return
        if is_list(column.type) and pat.is_struct(column.type.value_type):
            child = self.children.get(path)
            if child is None:
                child = self.children[path] = self._child(path)
            if len(batch):
                unnested = batch.unnest(path, None)
                for member in column.type.value_type:
                    inner = f"{path}.{member.name}"
                    child._add_column(inner, unnested.column(inner), unnested)  # noqa: SLF001
                child.records += len(unnested)
            return
        self._profile(path, column, quoted=False, exact=batch.has_exact_numbers(path))

    def _child(self, path: str) -> SourceProfile:
        return SourceProfile(
            name=path, folder=self._subfolder(f"each-{len(self.children)}"), each=path
        )

    def _subfolder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _add_variants(self, batch: ObjectBatch) -> None:
        """Profile records apart by the value that names their type."""
        if self.each is not None or not len(batch):
            return
        if not self.records and self.discriminator is None:
            self.discriminator = next(
                (
                    name
                    for name in DISCRIMINATORS
                    if all(isinstance(record.get(name), str) for record in batch.records)
                ),
                None,
            )
        if self.discriminator is None:
            return
        by_value: dict[str, list[int]] = {}
        for row, record in enumerate(batch.records):
            value = _variant(record, self.discriminator)
            if value is None:
                self.discriminator, self.variants = None, {}
                return
            by_value.setdefault(value, []).append(row)
        if len({*by_value, *self.variants}) > _TYPES_MAX:
            self.discriminator, self.variants = None, {}
            return
        for value, rows in by_value.items():
            variant = self.variants.get(value)
            if variant is None:
                folder = self._subfolder(f"type-{len(self.variants)}")
                variant = self.variants[value] = SourceProfile(name=value, folder=folder)
            part = batch.take(np.array(rows, np.int64))
            variant._add_objects(part)
            variant.records += len(part)

    def _add_objects(self, batch: ObjectBatch, prefix: str = "", depth: int = 0) -> None:
        """Profile the members of objects; nested objects by their paths."""
        names: dict[str, None] = {}
        for record in batch.records:
            inner = value_at(record, prefix) if prefix else record
            if isinstance(inner, dict):
                names |= dict.fromkeys(inner)
        for name in names:
            path = f"{prefix}.{name}" if prefix else name
            values = [value_at(record, path) for record in batch.records]
            present = [value for value in values if value is not None]
            if present and depth < _DEPTH_MAX and all(isinstance(v, dict) for v in present):
                self.objects.add(path)
                self._add_objects(batch, path, depth + 1)
            elif present and _lists_objects(present):
                child = self.children.get(path)
                if child is None:
                    child = self.children[path] = self._child(path)
                unnested = batch.unnest(path, None)
                child._add_objects(unnested, path)  # noqa: SLF001 - the same class
                child.records += len(unnested)
            else:
                self._add_values(path, batch, present)

    def _add_values(self, path: str, batch: ObjectBatch, present: Sequence[Any]) -> None:
        quoted = any(isinstance(value, str) for value in present)
        self._profile(path, batch.column(path), quoted=quoted)
        lists = [value for value in present if isinstance(value, list)]
        self.columns[path].add_lists(lists)

    def _profile(self, path: str, column: pa.Array, *, quoted: bool, exact: bool = False) -> None:
        profile = self.columns.get(path)
        if profile is None:
            profile = self.columns[path] = ColumnProfile(path=path)
            profile.nulls = profile.records = self.records
            if len(self.columns) <= _HASHED_MAX:
                file = self.folder / f"column-{len(self.columns)}"
                profile.hashes = HashedColumn(path=file)
        elif profile.records < self.records:
            # A path that some records do not have.
            profile.nulls += self.records - profile.records
            profile.records = self.records
        profile.add(column, quoted=quoted, exact=exact)
        if profile.hashes is not None:
            _hash(profile, column, self.records)

    def finish(self) -> None:
        """Count the records that lack a path as nulls, and settle what is nested in some only."""
        nested = Counter([*self.children, *self.objects])
        for path in [path for path in nested if nested[path] > 1 or self._has_plain(path)]:
            self._keep_as_text(path)
        for profile in self.columns.values():
            profile.nulls += self.records - profile.records
            profile.records = self.records
        for inner in (*self.children.values(), *self.variants.values()):
            inner.finish()

    def _has_plain(self, path: str) -> bool:
        """Whether values at the path of an object or a list of objects are neither."""
        return path in self.columns and self.columns[path].nulls < self.columns[path].records

    def _keep_as_text(self, path: str) -> None:
        """Make one text of all values at a path, instead of properties or nodes of nested ones."""
        inner = f"{path}."
        self.children = {
            name: child
            for name, child in self.children.items()
            if name != path and not name.startswith(inner)
        }
        self.objects = {
            name for name in self.objects if name != path and not name.startswith(inner)
        }
        self.columns = {
            name: column for name, column in self.columns.items() if not name.startswith(inner)
        }
        self.columns.setdefault(path, ColumnProfile(path=path)).make_text()

    def distinct(self, *paths: str) -> DistinctHashes | None:
        """The distinct values of columns together; None if one can be no key or reference."""
        columns = [hashes for path in paths if (hashes := self.columns[path].hashes) is not None]
        if len(columns) < len(paths) or not columns:
            return None
        if paths not in self._distinct:
            path = self.folder / f"distinct-{len(self._distinct)}"
            self._distinct[paths] = find_distinct(columns, self.records, path)
        return self._distinct[paths]


def _join_exact(known: pa.DataType | None, kind: pa.DataType) -> pa.DataType:
    """The type of batches whose decimals or integers differ in their digits; else the last one."""
    if known is None or known == kind or not (pat.is_decimal(known) or pat.is_decimal(kind)):
        return kind
    one, other = _exact_digits(known), _exact_digits(kind)
    if one is None or other is None:
        return kind
    common = ct.join_decimals((one, other))
    return pa.string() if common is None else pa.decimal128(common.precision, common.scale)


def _exact_digits(kind: pa.DataType) -> ct.DecimalType | None:
    if pat.is_decimal(kind):
        return ct.decimal_type(kind.precision, kind.scale)
    scalar = next((scalar for test, scalar in _ARROW_SCALARS if test(kind)), None)
    return None if scalar is None else ct.exact_decimal(ct.ScalarType(scalar=scalar))


def _variant(record: Record, discriminator: str) -> str | None:
    """What names the type of a record; for exports of Neo4j together with its labels."""
    value = record.get(discriminator)
    if value == "node" and isinstance(record.get("labels"), list):
        return VARIANT_SEPARATOR.join((value, str(cell_text(record["labels"]))))
    ends = [record.get(side) for side in ("start", "end")]
    if value == "relationship" and all(isinstance(end, dict) for end in ends):
        labels = [str(cell_text(value_at(record, f"{side}.labels"))) for side in ("start", "end")]
        return VARIANT_SEPARATOR.join((value, str(record.get("label")), *labels))
    return value if isinstance(value, str) else None


def _lists_objects(values: Sequence[Any]) -> bool:
    lists = [value for value in values if isinstance(value, list)]
    if len(lists) != len(values):
        return False
    items = [item for value in lists for item in value]
    return bool(items) and all(isinstance(item, dict) for item in items)


def _hash(profile: ColumnProfile, column: pa.Array, before: int) -> None:
    """Append the hashes of a batch; a column that can be no key is forgotten."""
    assert profile.hashes is not None
    decimals = profile.decimals()
    is_fraction = pat.is_floating(column.type) or (decimals is not None and decimals.scale > 0)
    is_scalar = not (pat.is_nested(column.type) or is_fraction or profile.lists)
    texts = _as_texts(column) if is_scalar and profile.text_max <= _KEY_TEXT_MAX else None
    if texts is None:
        profile.hashes.discard()
        profile.hashes = None
        return
    profile.hashes.append(texts, before=before)


def _as_texts(column: pa.Array) -> pa.StringArray | None:
    if pat.is_string(column.type):
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        return None


def profile_source(
    name: str, records: Iterable[RawRecords], folder: Path, *, records_max: int | None = None
) -> SourceProfile:
    """Profile all records of a source, or the first ones."""
    profile = SourceProfile(name=name, folder=folder)
    for raw in records:
        profile.add(raw.batch)
        if records_max is not None and profile.records >= records_max:
            profile.is_complete = False
            break
    profile.finish()
    return profile
