"""Read records of documents: JSON that is no file of lines, and GraphML.

A JSON document is an array of objects, an object with such arrays as members, or objects one after
the other. The members of an object are tables, named by `SourceFile.table`. A GraphML document has
the tables `nodes` and `edges`.

Invariants:
- A document is read in order and in pieces: memory is bounded by one record, which may have
  `RECORD_BYTES_MAX` bytes.
- XML with a document type is refused, so that no entity is expanded and nothing else is opened.
- The place of a record is its number in its table.
"""

from __future__ import annotations

import codecs
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final
from xml.parsers import expat

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats.raw_batches import RawRecords, Record, objects_as_batch
from omnigraph_lake.load.formats.records import Refusal, SourceFile
from omnigraph_lake.load.formats.splits import opened
from omnigraph_lake.validation.violations import Reason, shown

RECORD_BYTES_MAX: Final = 32 << 20
NODES, EDGES = "nodes", "edges"
WRAPPERS: Final = frozenset(
    {"data", "items", "results", "records", "rows", "elements", "values", "entries"}
    | {NODES, EDGES, "links", "relationships", "vertices"}
)
"""Members that hold the records of a document, whatever is beside them."""
_PIECE: Final = 1 << 20
_BATCH: Final = 4096
_SPACE: Final = " \t\r\n"


def json_records(file: SourceFile) -> Iterator[RawRecords]:
    """The records of one table of a JSON document."""
    with opened(file, until=file.size) as stream:
        yield from _batches(_JsonStream(stream, file).records(file.table))


def json_tables(file: SourceFile) -> tuple[str, ...]:
    """The tables of a JSON document; one without a name if it is one list of records."""
    with opened(file, until=file.size) as stream:
        return _JsonStream(stream, file).tables()


def graphml_records(file: SourceFile) -> Iterator[RawRecords]:
    """The nodes or the edges of a GraphML document."""
    with opened(file, until=file.size) as stream:
        yield from _batches(_graphml(stream, file))


def _batches(values: Iterable[Any]) -> Iterator[RawRecords]:
    counter = itertools.count()
    iterator = iter(values)
    while chunk := list(itertools.islice(iterator, _BATCH)):
        places = [next(counter) for _ in chunk]
        records: list[Record] = []
        record_places: list[int] = []
        refusals: list[Refusal] = []
        for place, value in zip(places, chunk, strict=True):
            if isinstance(value, dict):
                records.append(value)
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

    def records(self, table: str) -> Iterator[Any]:
        if table:
            yield from self._of_member(table)
        elif self._peek() == "[":
            yield from self._items()
        else:
            while self._peek():
                yield self._value()

    def tables(self) -> tuple[str, ...]:
        if self._peek() != "{":
            return ("",)
        members: dict[str, bool] = {}
        for name in self._members():
            members[name] = self._skip_list_of_objects()
        if self._peek():
            return ("",)  # another value follows: objects one after the other
        lists = tuple(name for name, is_list in members.items() if is_list)
        if lists and (len(lists) == len(members) or WRAPPERS.intersection(lists)):
            return lists
        return ("",)

    def _of_member(self, table: str) -> Iterator[Any]:
        for name in self._members():
            if name == table:
                yield from self._items()
                return
            if self._peek() == "[":
                for _ in self._items():
                    pass
            else:
                self._value()

    def _skip_list_of_objects(self) -> bool:
        if self._peek() != "[":
            self._value()
            return False
        first = True
        holds_objects = False
        for item in self._items():
            if first:
                holds_objects = isinstance(item, dict)
            first = False
        return holds_objects

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
            raise self._invalid("it has bytes that are not UTF-8") from error
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
