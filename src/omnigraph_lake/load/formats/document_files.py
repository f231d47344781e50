"""Read records of documents: JSON that is no file of lines, and GraphML.

A JSON document is an array of objects, an object with such arrays as members, or objects one after
the other. The members of an object are tables, named by `SourceFile.table`. An object of many alike
values is a table too: its members are the records, with their names in a column. Arrays in an array
are records whose columns the first of them names, or `SourceFile.column_names`. An object of many
lists of alike records is one table, too. A GraphML document has the tables `nodes` and `edges`.

Invariants:
- A document is read in order and in pieces: memory is bounded by one record, which may have
  `RECORD_BYTES_MAX` bytes, and by the first `LOOKED_AT` arrays of a table.
- A value that is part of no table is named in `JsonDocument.beside`; one of a table that is no
  record is refused.
- XML with a document type is refused, so that no entity is expanded and nothing else is opened.
- The place of a record is its number in its table.
"""

from __future__ import annotations

import codecs
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final
from xml.parsers import expat

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats.raw_batches import (
    RawRecords,
    Record,
    objects_as_batch,
    require_distinct,
)
from omnigraph_lake.load.formats.records import Refusal, SourceFile
from omnigraph_lake.load.formats.splits import opened
from omnigraph_lake.validation.violations import Reason, shown

RECORD_BYTES_MAX: Final = 32 << 20
NODES, EDGES = "nodes", "edges"
WRAPPERS: Final = frozenset(
    {"data", "items", "results", "records", "rows", "elements", "values", "entries"}
    | {NODES, EDGES, "links", "relationships", "vertices", "features"}
)
"""Members that hold the records of a document, whatever is beside them."""
_PIECE: Final = 1 << 20
_BATCH: Final = 4096
_SPACE: Final = " \t\r\n"
LOOKED_AT: Final = 1000
_MAP_MIN: Final = 20
"""An object of fewer alike values could be a record with so many members."""
_NAMES_MIN: Final = 100
_NAMES_PER_MEMBER: Final = 4
"""Objects with few of many members are alike, too: abilities of a game have three of 30."""
_SIBLINGS_MIN: Final = 3
"""Beside a table, an object of so many alike objects is another one."""
_SHAPE_MIN: Final = 5
"""Three objects that all have so many members in common are alike, as the continents."""
_RECORD_NAMES: Final = frozenset(
    {"id", "_id", "uuid", "guid", "identifier", "key", "name", "code", "slug"}
)
"""Members by which an object with a list is a record, and not only a wrapper around the list."""
_KINDS: Final = {str: "text", bool: "boolean", int: "number", float: "number", dict: "object"}
_RECORDS, _PLAIN_LIST, _NOTHING = "records", "list", "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTable:
    """A list of records, or an object whose members are records if there is a `key_column`.

    `arrays` has the first records that are arrays.
    """

    name: str = ""
    key_column: str = ""
    arrays: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonDocument:
    """The tables of a document, and the members beside them that belong to none.

    One table without a name is the whole document.
    """

    tables: tuple[JsonTable, ...] = (JsonTable(),)
    beside: tuple[str, ...] = ()


def json_records(file: SourceFile) -> Iterator[RawRecords]:
    """The records of one table of a JSON document."""
    with opened(file, until=file.size) as stream:
        yield from _batches(_JsonStream(stream, file).records(), file)


def json_document(file: SourceFile) -> JsonDocument:
    """What a JSON document holds; it is read to its end unless it is a list."""
    with opened(file, until=file.size) as stream:
        return _JsonStream(stream, file).document()


def graphml_records(file: SourceFile) -> Iterator[RawRecords]:
    """The nodes or the edges of a GraphML document."""
    with opened(file, until=file.size) as stream:
        yield from _batches(_graphml(stream, file), file)


def _batches(values: Iterable[Any], file: SourceFile) -> Iterator[RawRecords]:
    position_column = None if file.mapping is None else file.mapping.form.position_column
    counter = itertools.count()
    iterator = iter(values)
    while chunk := list(itertools.islice(iterator, _BATCH)):
        if any(isinstance(value, dict) and position_column in value for value in chunk):
            raise InvalidInputError(
                f"{file.label} has a member {position_column!r}, which is the `position_column` of "
                "its mapping",
                next_step="Name another column for the numbers of the records in the mapping.",
            )
        places = [next(counter) for _ in chunk]
        records: list[Record] = []
        record_places: list[int] = []
        refusals: list[Refusal] = []
        for place, value in zip(places, chunk, strict=True):
            if isinstance(value, dict):
                records.append({**value, position_column: place} if position_column else value)
                record_places.append(place)
            else:
                refusals.append(not_an_object(place, json.dumps(value).encode(), value))
        yield RawRecords(
            batch=objects_as_batch(records, record_places),
            lines=places[-1] + 1,
            refusals=tuple(refusals),
        )


def not_an_object(place: int, raw: bytes, value: object) -> Refusal:
    return Refusal(
        place=place,
        type_name=None,
        reason=Reason.MALFORMED,
        message=f"found {shown(value)}, expected an object",
        raw=raw,
    )


@dataclass(slots=True, kw_only=True)
class _Looked:
    """A value of a document: its kind, and what the members of an object have in common."""

    kind: str
    count: int = 0
    scalars: Mapping[str, object] = field(default_factory=dict)
    """The members of an object, or of all records of a list; None if nested or different."""
    arrays: Sequence[Sequence[Any]] = ()
    kinds: Counter[str] = field(default_factory=Counter)
    inner: Counter[str] = field(default_factory=Counter)
    """The names of the members of its members."""
    repeating: list[str] | None = None
    """The members of its members that have their names as values."""

    def add(self, name: str, kind: str, scalars: Mapping[str, object]) -> None:
        self.count += 1
        if kind == _NOTHING:
            return
        self.kinds[kind] += 1
        self.inner.update(iter(scalars))
        candidates = scalars if self.repeating is None else self.repeating
        self.repeating = [inner for inner in candidates if str(scalars.get(inner)) == name]

    def is_map(self, at_least: int) -> bool:
        """Whether the values of an object are alike: objects with most members in common.

        Lists of records are alike if one name is in all of them, and most names are in most: each
        table of a database has names of its own.
        """
        if len(self.kinds) != 1:
            return False
        count = self.kinds.total()
        is_large = count >= at_least
        if _RECORDS in self.kinds:
            in_most = sum(2 * times >= count for times in self.inner.values())
            return is_large and count in self.inner.values() and len(self.inner) <= 2 * in_most
        if "object" not in self.kinds:
            return is_large
        if self.count >= _NAMES_MIN and _NAMES_PER_MEMBER * len(self.inner) <= self.count:
            return True
        needed = self.count / 2 if is_large else self.count
        common = [times for times in self.inner.values() if times >= needed]
        are_enough = is_large or (self.count >= _SIBLINGS_MIN and len(common) >= _SHAPE_MIN)
        return are_enough and 0 < self.inner.total() <= 2 * sum(common)

    @property
    def key_column(self) -> str:
        """The column for the names of the members: a member that has them anyway, or a new one."""
        if self.repeating:
            return self.repeating[0]
        others = (f"key_{number}" for number in itertools.count(2))
        names = itertools.chain(["key"], others)
        return next(name for name in names if name not in self.inner)


def _join(members: dict[str, object], record: Mapping[str, object]) -> None:
    """Add the members of a record to those of others; None where one is nested or differs."""
    for name, value in record.items():
        if name not in members:
            members[name] = None if isinstance(value, dict | list) else value
        elif members[name] is not None and members[name] != value:
            members[name] = None


def _kind_of(value: object) -> str:
    if isinstance(value, list):
        has_records = any(isinstance(item, dict) for item in value)
        return _RECORDS if has_records else _PLAIN_LIST if value else _NOTHING
    return _KINDS.get(type(value), _NOTHING)


def _tables_of(members: Mapping[str, _Looked], stem: str) -> JsonDocument:
    """The tables among the members of a document that is neither a map nor a record.

    An object with a list of records is a record itself if it is named or has an id, and otherwise
    if the list is short: an invoice with its lines. What a wrapper says about its list, as when it
    was exported, is no entity, so that it is not made one.
    """
    records = {
        name
        for name, looked in members.items()
        if looked.kind == _RECORDS
        or (not looked.kinds.keys().isdisjoint({"object", _RECORDS}) and looked.is_map(_MAP_MIN))
    }
    others = {name for name in members if name not in records and members[name].kind != _NOTHING}
    is_wrapper = (
        not others
        or not records.isdisjoint(WRAPPERS)
        or any(name.casefold() == stem.casefold() for name in records)
        or (
            others.isdisjoint(_RECORD_NAMES)
            and any(members[name].count >= _MAP_MIN for name in records)
        )
    )
    if not records or not is_wrapper:
        return JsonDocument()
    for name in others:
        at_least = _SIBLINGS_MIN if "object" in members[name].kinds else _MAP_MIN
        if members[name].is_map(at_least):
            records.add(name)
    listed = (
        JsonTable(
            name=name,
            key_column="" if looked.kind == _RECORDS else looked.key_column,
            arrays=looked.arrays,
        )
        for name, looked in members.items()
        if name in records
    )
    beside = tuple(name for name in members if name in others - records)
    return JsonDocument(tables=tuple(listed), beside=beside)


class _JsonStream:
    """Decodes values of a text one after the other."""

    def __init__(self, stream: BinaryIO, file: SourceFile) -> None:
        self._stream = stream
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._json = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._line = 1
        self._line_start = 0  # in the text, which is cut as it is read
        self._is_complete = False

    def records(self) -> Iterator[Any]:
        values = self._of_member(self._file.table) if self._file.table else self._of_document()
        names = self._file.column_names
        if not names and not self._file.key_column:
            first = list(itertools.islice(values, 2))
            # Only arrays have names in the first one: before an object it is no record.
            if first and all(isinstance(value, list) for value in first):
                names = tuple(map(str, first.pop(0)))
                require_distinct(names, self._file.label)
            values = itertools.chain(first, values)
        for value in values:
            is_row = isinstance(value, list) and len(value) == len(names)
            yield dict(zip(names, value, strict=True)) if is_row else value

    def document(self) -> JsonDocument:
        if self._peek() == "[":
            return JsonDocument(tables=(JsonTable(arrays=self._look_at_list(LOOKED_AT).arrays),))
        if self._peek() != "{":
            return JsonDocument()
        members: dict[str, _Looked] = {}
        whole = _Looked(kind="object")
        for name in self._members():
            members[name] = self._look()
            whole.add(name, members[name].kind, members[name].scalars)
            members[name].scalars = {}
        if self._peek():
            return JsonDocument()  # another value follows: objects one after the other
        if whole.is_map(_MAP_MIN):
            return JsonDocument(tables=(JsonTable(key_column=whole.key_column),))
        stem = PurePosixPath(self._file.path).name.partition(".")[0]
        return _tables_of(members, stem)

    def _of_document(self) -> Iterator[Any]:
        while following := self._peek():
            if following == "[":
                yield from self._items()
            elif self._file.key_column:
                yield from self._name_members()
            else:
                yield self._value()

    def _of_member(self, table: str) -> Iterator[Any]:
        for name in self._members():
            if name == table:
                yield from self._name_members() if self._file.key_column else self._items()
                return
            self._look()
        raise self._invalid(f"it has no member {table!r} any more")

    def _name_members(self) -> Iterator[Any]:
        """The members of an object, or the records of its lists, with their names.

        A null or an empty list is a value among values, and no record among lists of records.
        """
        column = self._file.key_column
        empty: list[Any] = []
        has_lists = False
        for name in self._members():
            value = self._value()
            kind = _kind_of(value)
            has_lists = has_lists or kind == _RECORDS
            if kind == _RECORDS:
                empty.clear()
                for item in value:
                    yield {column: name, **item} if isinstance(item, dict) else item
            elif kind != _NOTHING:
                yield from empty
                empty.clear()
                yield {column: name, **(value if isinstance(value, dict) else {"value": value})}
            elif not has_lists:
                empty.append({column: name, "value": value})
        yield from empty

    def _look(self) -> _Looked:
        """What the next value is, which is read piece by piece if it is large."""
        following = self._peek()
        if following == "[":
            return self._look_at_list()
        if following != "{":
            return _Looked(kind=_KINDS.get(type(self._value()), _NOTHING))
        looked = _Looked(kind="object")
        while len(self._text) - self._at < _PIECE and self._read():
            pass
        try:
            members, self._at = self._json.raw_decode(self._text, self._at)
            named = iter(members.items())
        except (json.JSONDecodeError, RecursionError):
            named = ((name, self._value()) for name in self._members())
        scalars: dict[str, object] = {}
        for name, value in named:
            scalars[name] = None if isinstance(value, dict | list) else value
            inner: dict[str, object] = {}
            for item in value if isinstance(value, list) else [value]:
                _join(inner, item if isinstance(item, dict) else {})
            looked.add(name, _kind_of(value), inner)
        looked.scalars = scalars
        if not looked.is_map(_SIBLINGS_MIN):
            looked.kinds.clear()
            looked.inner.clear()
        return looked

    def _look_at_list(self, items_max: int | None = None) -> _Looked:
        """What the items of the next list are; those that are arrays."""
        kinds: Counter[type] = Counter()
        arrays: list[list[Any]] = []
        scalars: dict[str, object] = {}
        for item in itertools.islice(self._items(), items_max):
            kinds[type(item)] += 1
            _join(scalars, item if isinstance(item, dict) else {})
            if isinstance(item, list) and len(arrays) < LOOKED_AT:
                arrays.append(item)
        count = kinds.total()
        is_table = 2 * max(kinds[dict], kinds[list]) > count
        if kinds[list] <= kinds[dict]:
            arrays.clear()
        kind = _RECORDS if is_table else _PLAIN_LIST if count else _NOTHING
        return _Looked(kind=kind, count=count, scalars=scalars, arrays=arrays)

    def _members(self) -> Iterator[str]:
        """The names of an object; the caller reads each value before the next name."""
        self._expect("{")
        while self._peek() != "}":
            name = self._value()
            if not isinstance(name, str):
                raise self._invalid(f"found {shown(name)}, expected the name of a member")
            self._expect(":")
            yield name
            if self._peek() != ",":
                break
            self._expect(",")
        self._expect("}")

    def _items(self) -> Iterator[Any]:
        self._expect("[")
        while self._peek() != "]":
            yield self._value()
            if self._peek() != ",":
                break
            self._expect(",")
        self._expect("]")

    def _peek(self) -> str:
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def _expect(self, character: str) -> None:
        following = self._peek()
        if following != character:
            raise self._invalid(f"found {following or 'the end'!r}, expected {character!r}")
        self._at += 1

    def _value(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._read():
                    continue
                raise self._invalid(error.msg[:1].lower() + error.msg[1:], at=error.pos) from error
            except RecursionError as error:
                raise self._invalid("values are nested too deeply") from error
            # The rest of a number may follow.
            if end == len(self._text) and self._read():
                continue
            self._at = end
            return value

    def _read(self) -> bool:
        """Read more of the text; False at its end."""
        if self._is_complete:
            return False
        rest = self._text[self._at :]
        if len(rest) > RECORD_BYTES_MAX:
            raise self._invalid(f"a record has more than {RECORD_BYTES_MAX >> 20} MiB")
        piece = self._stream.read(max(_PIECE, len(rest)))
        self._is_complete = not piece
        self._line, line_start = self._place(self._at)
        self._line_start = line_start - self._at
        self._text, self._at = rest, 0
        try:
            self._text += self._decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            raise self._invalid(
                "it has bytes that are not UTF-8; name its encoding with `--encoding`"
            ) from error
        return True

    def _place(self, at: int) -> tuple[int, int]:
        """The number of the line of a character, and where this line starts in the text."""
        breaks = self._text.count("\n", 0, at)
        start = self._text.rfind("\n", 0, at) + 1 if breaks else self._line_start
        return self._line + breaks, start

    def _invalid(self, why: str, *, at: int | None = None) -> InvalidInputError:
        at = self._at if at is None else at
        line, start = self._place(at)
        return InvalidInputError(
            f"{self._file.path} is not valid JSON: {why:.200} at line {line}, column "
            f"{at - start + 1}",
            next_step="Check the file with `python -m json.tool`, or write one object per line "
            "(.jsonl).",
        )


class _Refused(Exception):  # noqa: N818 - it ends a parser, users see InvalidInputError
    """A document that declares a type."""


class _GraphmlHandler:
    """Collects nodes and edges while a parser runs."""

    def __init__(self, table: str) -> None:
        self.ready: list[dict[str, Any]] = []
        self._wanted = "node" if table == NODES else "edge"
        self._keys: dict[str, tuple[str, str]] = {}
        self._record: dict[str, Any] | None = None
        self._data: str | None = None
        self._texts: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(":")[2]
        if tag == "key":
            kind = attributes.get("attr.type", "string")
            self._keys[attributes["id"]] = (attributes.get("attr.name", attributes["id"]), kind)
        elif tag == self._wanted:
            self._record = dict(attributes)
        elif tag == "data" and self._record is not None:
            self._data = attributes.get("key")
            self._texts = []

    def text(self, data: str) -> None:
        if self._data is not None:
            self._texts.append(data)

    def end(self, name: str) -> None:
        tag = name.rpartition(":")[2]
        if tag == "data" and self._data is not None and self._record is not None:
            attribute, kind = self._keys.get(self._data, (self._data, "string"))
            self._record[attribute] = _convert("".join(self._texts), kind)
            self._data = None
        elif tag == self._wanted and self._record is not None:
            self.ready.append(self._record)
            self._record = None


def _convert(text: str, kind: str) -> Any:
    try:
        if kind in {"int", "long"}:
            return int(text)
        if kind in {"float", "double"}:
            return float(text)
    except ValueError:
        return text
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    return text


def _graphml(stream: BinaryIO, file: SourceFile) -> Iterator[dict[str, Any]]:
    handler = _GraphmlHandler(file.table)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.text
    parser.StartDoctypeDeclHandler = _refuse_document_type
    parser.EntityDeclHandler = _refuse_document_type
    try:
        while piece := stream.read(_PIECE):
            parser.Parse(piece, False)  # noqa: FBT003 - expat's
            ready, handler.ready = handler.ready, []
            yield from ready
        parser.Parse(b"", True)  # noqa: FBT003 - expat's
    except _Refused:
        raise InvalidInputError(
            f"{file.path} declares a document type, which is refused: entities are not expanded",
            next_step="Remove the DOCTYPE from the file.",
        ) from None
    except (expat.ExpatError, KeyError) as error:
        raise InvalidInputError(
            f"{file.path} cannot be read as GraphML: {error!s:.200}",
            next_step="Check the file with `xmllint --noout`.",
        ) from error
    yield from handler.ready


def _refuse_document_type(*_: object) -> None:
    raise _Refused
