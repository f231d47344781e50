"""Profile sources: their columns, nested objects, lists, types of records; unique columns.

A source is read once, batch by batch. Values of columns that can be keys are hashed into files, so
that uniqueness and containment of a column are exact for inputs of any size.

Invariants:
- Memory is bounded by a batch; see `hashed_values`.
- What a profile says holds for every record that was read; `records` says how many that were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.importer.column_profile import ColumnProfile
from omnigraph_lake.importer.hashed_values import DistinctHashes, HashedColumn, find_distinct
from omnigraph_lake.importer.readings import NULL_TEXTS
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

_HASHED_MAX: Final = 64
"""Columns of a source that are hashed: candidates for keys and references."""
COLUMNS_MAX: Final = 1000
"""A source with more is most likely no table; a column of 200 records costs 2 ms of CPU."""
_MAPS_MIN: Final = 20
_MAP_NAMES_MIN: Final = 100
_MAP_REPEATS_MAX: Final = 4
"""Nested objects, at least so many, are maps if they have so many names, each less often."""
_KEY_TEXT_MAX: Final = 512
_TYPES_MAX: Final = 64
_DEPTH_MAX: Final = 6
VARIANT_SEPARATOR: Final = "\x1f"
"""Between the parts of the name of a variant of an export of Neo4j."""
DISCRIMINATORS: Final = ("type", "kind", "_type", "@type", "label", "__typename", "entity")


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
    null_words: tuple[str, ...] = ()
    """Texts that mean no value in every column."""
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
        self._require_columns(len(batch.names()))
        for name in batch.names():
            self._add_column(name, batch.column(name), batch)

    def _require_columns(self, count: int) -> None:
        """Refuse a source that is too wide before its columns are read.

        Raises:
            InvalidInputError: it has more columns than a type should have properties.
        """
        if count > COLUMNS_MAX:
            raise InvalidInputError(
                f"{self.name} has {count:,} columns or more, and {COLUMNS_MAX:,} are the most that "
                "a schema is inferred from; an object of JSON may be used as a map, or a table "
                "may have a column per item",
                next_step="Write a record per entry, with its name as a value; or import with a "
                "mapping of the columns you need (`--map`, `--unknown-columns ignore`).",
            )

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
            name=path,
            folder=self._subfolder(f"each-{len(self.children)}"),
            each=path,
            null_words=self.null_words,
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
                variant = self.variants[value] = SourceProfile(
                    name=value, folder=folder, null_words=self.null_words
                )
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
        paths = [f"{prefix}.{name}" if prefix else name for name in names]
        self._require_columns(len(self.columns.keys() | paths))
        for path in paths:
            values = [value_at(record, path) for record in batch.records]
            present = [value for value in values if value is not None]
            is_object = bool(present) and all(isinstance(value, dict) for value in present)
            if is_object and path not in self.objects and _are_maps(present):
                self._profile(path, batch.column(path), quoted=True)
                self.columns[path].make_text()
            elif is_object and depth < _DEPTH_MAX:
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
        quoted = any(isinstance(value, str) and value not in NULL_TEXTS for value in present)
        self._profile(path, batch.column(path), quoted=quoted)
        lists = [value for value in present if isinstance(value, list)]
        self.columns[path].add_lists(lists)

    def _profile(self, path: str, column: pa.Array, *, quoted: bool, exact: bool = False) -> None:
        profile = self.columns.get(path)
        if profile is None:
            profile = self.columns[path] = ColumnProfile(path=path)
            profile.declared_nulls.update(dict.fromkeys(self.null_words, 0))
            profile.nulls = profile.records = self.records
            if len(self.columns) <= _HASHED_MAX:
                file = self.folder / f"column-{len(self.columns)}"
                profile.hashes = HashedColumn(path=file)
        elif profile.records < self.records:
            # A path that some records do not have.
            profile.nulls += self.records - profile.records
            profile.records = self.records
        if self.null_words and pat.is_string(column.type):
            column = profile.without_declared_nulls(column)
        encoded = profile.encode(column)
        profile.add(column, encoded, quoted=quoted, exact=exact)
        if profile.hashes is not None:
            _hash(profile, encoded, self.records)

    def finish(self) -> None:
        """Count the records that lack a path as nulls, and settle what is nested in some only."""
        nested = Counter([*self.children, *self.objects])
        mixed = [path for path in nested if nested[path] > 1 or self._has_plain(path)]
        for path in [*mixed, *filter(self._is_empty, self.objects)]:
            self._keep_as_text(path)
        for profile in self.columns.values():
            profile.nulls += self.records - profile.records
            profile.records = self.records
        for inner in (*self.children.values(), *self.variants.values()):
            inner.finish()

    def _has_plain(self, path: str) -> bool:
        """Whether values at the path of an object or a list of objects are neither."""
        return path in self.columns and self.columns[path].nulls < self.columns[path].records

    def _is_empty(self, path: str) -> bool:
        """Whether the objects at a path have no members."""
        paths = (*self.columns, *self.children, *self.objects)
        return not any(other.startswith(f"{path}.") for other in paths)

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


def _are_maps(objects: Sequence[Mapping[str, Any]]) -> bool:
    """Whether objects have many members, and each of them names of its own: values, not columns."""
    names = Counter(name for members in objects for name in members)
    is_many = len(objects) >= _MAPS_MIN and len(names) >= _MAP_NAMES_MIN
    return is_many and names.total() < _MAP_REPEATS_MAX * len(names)


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


def _as_texts(column: pa.Array) -> pa.Array | None:
    if pat.is_string(column.type) or pat.is_dictionary(column.type):
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        return None


def profile_source(
    name: str,
    records: Iterable[RawRecords],
    folder: Path,
    *,
    records_max: int | None = None,
    null_words: Sequence[str] = (),
) -> SourceProfile:
    """Profile all records of a source, or the first ones.

    Args:
        name: The name of the source.
        records: All its records.
        folder: Where hashes of values are kept.
        records_max: Where to stop.
        null_words: Texts that mean no value in every column, also among texts.
    """
    profile = SourceProfile(name=name, folder=folder, null_words=tuple(null_words))
    for raw in records:
        profile.add(raw.batch)
        if records_max is not None and profile.records >= records_max:
            profile.is_complete = False
            break
    profile.finish()
    return profile
