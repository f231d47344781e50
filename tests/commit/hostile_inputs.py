"""Inputs nobody sends on purpose: what they are called, and what they are.

Every family is a mapping from a label to the input, so that a failing case has a readable name.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

SCHEMA = """
node Thing {
    text: String?
    yes: Bool?
    i32: I32?
    i64: I64?
    u64: U64?
    f32: F32?
    f64: F64?
    day: Date?
    at: DateTime?
    kind: enum(active, away)?
    words: [String]?
    numbers: [I32]?
    vector: Vector(2)?
    blob: Blob?
}
node Text { k: String @key  note: String? }
node Long { k: I64 @key }
node Huge { k: U64 @key }
node Half { k: F32 @key }
node Full { k: F64 @key }
node Day { k: Date @key }
node At { k: DateTime @key }
node Flag { k: Bool @key }
node Pair { a: String  b: String  @key(a, b) }
edge Link: Thing -> Thing { note: String? }
"""

TYPE_NAMES: Mapping[str, str] = {
    "parent": "../x",
    "grandparent": "../../../../tmp/evil",
    "absolute": "/etc/passwd",
    "nul": "Thing\0",
    "encoded dots": "%2e%2e",
    "encoded slash": "..%2fx",
    "backslash": "..\\x",
    "long": "x" * 4096,
    "cyrillic": "\u0422hing",
    "full width": "\uff34hing",
    "right to left": "\u202eThing",
    "zero width": "Thing\u200b",
    "empty": "",
    "blank": " ",
    "dot": ".",
    "dots": "..",
    "trailing blank": "Thing ",
    "trailing newline": "Thing\n",
    "upper case": "THING",
    "quote": "Thing'",
    "double quote": 'Thing"',
    "backtick": "`Thing`",
    "sql": "Thing; DROP TABLE Thing",
    "bare node key": "node:",
    "bare edge key": "edge:",
    "node key of a parent": "node:../x",
    "double node key": "node:node:Thing",
    "edge key of a node": "edge:Thing",
    "file uri": "file:///tmp/x",
    "surrogate": "\ud800",
}

NOT_TEXT: Mapping[str, object] = {
    "none": None,
    "int": 5,
    "float": 1.5,
    "bool": True,
    "bytes": b"Thing",
    "tuple": ("Thing",),
}

VALID_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

OPERATION_IDS: Mapping[str, object] = {
    "parent": "../x",
    "parents, as long as an id": "../../../../../../../tmp/x",
    "absolute": "/etc/passwd",
    "too short": VALID_ID[:-1],
    "too long": VALID_ID + "V",
    "trailing slash": VALID_ID[:-1] + "/",
    "trailing nul": VALID_ID[:-1] + "\0",
    "trailing newline": VALID_ID + "\n",
    "leading blank": " " + VALID_ID[1:],
    "letter i": VALID_ID[:-1] + "I",
    "letter l": VALID_ID[:-1] + "L",
    "letter o": VALID_ID[:-1] + "O",
    "letter u": VALID_ID[:-1] + "U",
    "above 128 bits": "8" + "0" * 25,
    "arabic digits": "\u0660" * 26,
    "full width digits": "\uff18" * 26,
    "long s": VALID_ID[:-1] + "\u017f",
    "kelvin sign": VALID_ID[:-1] + "\u212a",
    "dotted capital i": "\u0130" * 26,
    "encoded": "%2e" * 8 + "ab",
    "newlines": "\n" * 26,
    "surrogates": "\ud800" * 26,
    "long": "x" * 4096,
    "sql": "' OR '1'='1",
    "empty": "",
    "zero": 0,
    "int": 5,
    "bytes": VALID_ID.encode(),
    "bool": True,
    "list": [VALID_ID],
}

ACTORS: Mapping[str, object] = {
    "nul": "a\0b",
    "newline": "a\nb",
    "escape sequence": "\x1b[31mroot",
    "a megabyte": "x" * 2**20,
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "right to left": "\u202eada",
    "emoji": "\U0001f600" * 100,
    "blank": "  ",
    "sql": "'); DROP TABLE commits; --",
    "json": '{"actor": "root"}',
    "surrogate": "\ud800",
    "int": 5,
    "list": ["ada"],
    "mapping": {"ada": 1},
    "bytes": b"ada",
    "object": object(),
}

ROOTS_REFUSED: Mapping[str, object] = {
    "empty": "",
    "blank": "  ",
    "nul": "\0",
    "nul inside": "{base}/a\0b",
    "encoded nul": "file://{base}/%00",
    "foreign host": "file://evil/x",
    "file system root": "/",
    "file system root twice": "//",
    "file system root as uri": "file:///",
    "parents beyond the root": "../" * 200,
    "http": "http://example.invalid/x",
    "unknown scheme": "gs://bucket/x",
    "no scheme": "://x",
    "s3 without bucket": "s3://",
    "s3 without bucket but prefix": "s3:///x",
    "s3 with dots": "s3://bucket/../x",
    "long segment": "{base}/" + "n" * 300,
    "long path": "{base}/" + "n/" * 3000,
    "below a file": "{base}/file/x",
    "a file": "{base}/file",
    "newline": "{base}/new\nline",
    "right to left": "{base}/\u202ex",
    "encoded newline": "file://{base}/new%0Aline",
    "surrogate": "{base}/\ud800",
    "surrogate escape": "{base}/\udcff",
    "unknown user": "~nobody-of-that-name/x",
    "open bracket": "file://[::1",
    "open bracket in s3": "s3://[x",
    "uri without path": "file://",
    "query": "file://{base}/a?b=c",
    "fragment": "file://{base}/a#b",
    "none": None,
    "int": 5,
    "bytes": b"/tmp/x",
}

ROOTS_ACCEPTED: Mapping[str, tuple[str, str]] = {
    "encoded slash": ("file://{base}/a%2Fb", "a/b"),
    "encoded dots": ("file://{base}/a/%2e%2e/b", "b"),
    "dots in a uri": ("file://{base}/a/../b", "b"),
    "dots in a path": ("{base}/a/../b", "b"),
    "single dots": ("{base}/a/./b//c", "a/b/c"),
    "encoded dots in a path": ("{base}/%2e%2e", "%2e%2e"),
    "encoded slash in a path": ("{base}/%2fetc", "%2fetc"),
    "backslash": ("{base}/..\\x", "..\\x"),
    "quotes": ("{base}/a'\"b", "a'\"b"),
    "blank inside": ("{base}/a b ", "a b "),
    "composed": ("{base}/\u00e9", "\u00e9"),
    "decomposed": ("{base}/e\u0301", "e\u0301"),
    "encoded question mark": ("file://{base}/a%3Fb%23c", "a?b#c"),
    "question mark": ("{base}/a?b=c", "a?b=c"),
    "number sign": ("{base}/a#b", "a#b"),
    "brackets": ("{base}/*[x]", "*[x]"),
    "tilde inside": ("{base}/~", "~"),
    "upper case scheme": ("FILE://{base}/x", "x"),
}

IDS_REFUSED: Mapping[str, object] = {
    "empty": "",
    "nul": "a\0",
    "newline": "a\nb",
    "tab": "\t",
    "delete": "\x7f",
    "next line": "\x85",
    "4,097 bytes": "x" * 4097,
    "4,097 bytes in two-byte letters": "\u00e9" * 2048 + "a",
    "surrogate": "\ud800",
    "low surrogate": "a\udfff",
    "int": 5,
    "float": 1.5,
    "bool": True,
    "bytes": b"a",
    "invalid bytes": b"\xff",
    "list": ["a"],
    "mapping": {"a": 1},
}

IDS_ACCEPTED: Mapping[str, str] = {
    "4,096 bytes": "x" * 4096,
    "4,096 bytes in two-byte letters": "\u00e9" * 2048,
    "quote": "a'b",
    "two quotes": "a''b",
    "double quote": 'a"b',
    "sql": "'); DROP TABLE Thing; --",
    "always true": "' OR '1'='1",
    "backslash": "a\\b",
    "backslash quote": "\\'",
    "backtick": "`id`",
    "percent": "%",
    "underscore": "_",
    "glob": "*",
    "placeholder": "$1",
    "question mark": "?",
    "braces": "{id}",
    "comment": "a--b",
    "null by name": "NULL",
    "number": "1e5",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "ligature": "\ufb01",
    "right to left": "\u202ea",
    "zero width": "a\u200b",
    "byte order mark": "\ufeff",
    "noncharacter": "\uffff",
    "last code point": "\U0010ffff",
    "line separator": "\u2028",
    "blank": " ",
    "path": "../../x",
}

DECOYS = ("a", "id", "x", "\u00e9\u00e9", "fi", "1", "%%", "__", "'", "\\", "null", "aXb")
"""Ids that a careless comparison would take for one of these."""

NAN, INFINITY = math.nan, math.inf
UTC = dt.UTC

KEYS_REFUSED: Mapping[str, tuple[str, object]] = {
    "I64 2**63": ("Long", 2**63),
    "I64 -2**63-1": ("Long", -(2**63) - 1),
    "I64 10**400": ("Long", 10**400),
    "I64 from bool": ("Long", True),
    "I64 from text": ("Long", "1"),
    "I64 from bytes": ("Long", b"1"),
    "I64 one half": ("Long", 0.5),
    "I64 NaN": ("Long", NAN),
    "I64 infinity": ("Long", INFINITY),
    "I64 null": ("Long", None),
    "I64 complex": ("Long", 1j),
    "I64 list": ("Long", [1]),
    "I64 decimal fraction": ("Long", Decimal("1.5")),
    "U64 2**64": ("Huge", 2**64),
    "U64 -1": ("Huge", -1),
    "F64 NaN": ("Full", NAN),
    "F64 infinity": ("Full", INFINITY),
    "F64 minus infinity": ("Full", -INFINITY),
    "F64 10**400": ("Full", 10**400),
    "F64 2**53+1": ("Full", 2**53 + 1),
    "F64 from text": ("Full", "1"),
    "F64 from bool": ("Full", True),
    "F32 NaN": ("Half", NAN),
    "F32 infinity": ("Half", INFINITY),
    "F32 above the greatest": ("Half", 3.4028236e38),
    "F32 2**24+1": ("Half", 2**24 + 1),
    "Date year 10,000": ("Day", "10000-01-01"),
    "Date year 0": ("Day", "0000-12-31"),
    "Date year -1": ("Day", "-0001-01-01"),
    "Date 30 February": ("Day", "2024-02-30"),
    "Date arabic digits": ("Day", "\u0662\u0660\u0662\u0664-01-01"),
    "Date with nul": ("Day", "2024-01-01\0"),
    "Date with blank": ("Day", " 2024-01-01"),
    "Date empty": ("Day", ""),
    "Date from int": ("Day", 5),
    "Date from time of day": ("Day", dt.datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC)),
    "Date from midnight elsewhere": (
        "Day",
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),
    ),
    "DateTime before the first": (
        "At",
        dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
    ),
    "DateTime after the last": (
        "At",
        dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=14))),
    ),
    "DateTime nanoseconds": ("At", "2024-01-01T00:00:00.0000001Z"),
    "DateTime impossible zone": ("At", "2024-01-01T00:00:00+99:99"),
    "DateTime hour 24": ("At", "2024-01-01T24:00:01"),
    "DateTime leap second": ("At", "2024-01-01T23:59:60Z"),
    "DateTime year 10,000": ("At", "10000-01-01T00:00:00Z"),
    "DateTime named zone": ("At", "2024-01-01T00:00:00 Europe/Berlin"),
    "DateTime now": ("At", "now"),
    "DateTime empty": ("At", ""),
    "DateTime from int": ("At", 5),
    "DateTime from time": ("At", dt.time(1, 2)),
    "DateTime from duration": ("At", dt.timedelta(1)),
    "DateTime numpy nanoseconds": ("At", np.datetime64("2024-01-01T00:00:00.000000001")),
    "Bool 0": ("Flag", 0),
    "Bool 1": ("Flag", 1),
    "Bool text": ("Flag", "true"),
    "String from bytes": ("Text", b"a"),
    "String surrogate": ("Text", "\ud800"),
    "String empty": ("Text", ""),
    "String control": ("Text", "a\0"),
    "String 4,097 bytes": ("Text", "x" * 4097),
}

KEYS_ACCEPTED: Mapping[str, tuple[str, object, str]] = {
    "I64 greatest": ("Long", 2**63 - 1, "9223372036854775807"),
    "I64 least": ("Long", -(2**63), "-9223372036854775808"),
    "I64 whole float": ("Long", 1.0, "1"),
    "I64 whole decimal": ("Long", Decimal("7.00"), "7"),
    "I64 numpy": ("Long", np.int64(5), "5"),
    "U64 greatest": ("Huge", 2**64 - 1, "18446744073709551615"),
    "U64 above I64": ("Huge", 2**63, "9223372036854775808"),
    "U64 minus zero": ("Huge", -0.0, "0"),
    "F64 minus zero": ("Full", -0.0, "0"),
    "F64 zero": ("Full", 0.0, "0"),
    "F64 least": ("Full", 5e-324, "5e-324"),
    "F64 greatest": ("Full", 1.7976931348623157e308, "1.7976931348623157e+308"),
    "F64 even integer above 2**53": ("Full", 2**53 + 2, "9007199254740994"),
    "F32 greatest": ("Half", 3.4028235e38, "3.4028235e+38"),
    "F32 least": ("Half", 1e-45, "1e-45"),
    "F32 below the least": ("Half", 1e-46, "0"),
    "F32 one tenth": ("Half", 0.1, "0.1"),
    "F32 minus zero": ("Half", -0.0, "0"),
    "Date first": ("Day", dt.date.min, "-719162"),
    "Date last": ("Day", dt.date.max, "2932896"),
    "Date leap day": ("Day", "2024-02-29", "19782"),
    "Date from midnight": ("Day", dt.datetime(2024, 1, 1, tzinfo=UTC), "19723"),
    "DateTime first": ("At", dt.datetime.min.replace(tzinfo=UTC), "-62135596800000000"),
    "DateTime last": ("At", dt.datetime.max.replace(tzinfo=UTC), "253402300799999999"),
    "DateTime odd zone": (
        "At",
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=17))),
        "1704066180000000",
    ),
    "DateTime in a skipped hour": (
        "At",
        dt.datetime(2024, 3, 31, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        "1711848600000000",
    ),
    "DateTime naive": ("At", dt.datetime(2024, 1, 1, microsecond=999999), "1704067200999999"),  # noqa: DTZ001
    "DateTime before the epoch": ("At", "1969-12-31T23:59:59.999999Z", "-1"),
    "Bool": ("Flag", False, "false"),
    "String quotes": ("Text", "'); DROP --", "'); DROP --"),
    "String 4,096 bytes": ("Text", "x" * 4096, "x" * 4096),
}

VALUES_REFUSED: Mapping[str, tuple[str, object]] = {
    "vector empty": ("vector", []),
    "vector short": ("vector", [1.0]),
    "vector long": ("vector", [1.0, 2.0, 3.0]),
    "vector null item": ("vector", [1.0, None]),
    "vector too great": ("vector", [1e39, 1.0]),
    "vector inexact": ("vector", [1, 2**24 + 1]),
    "vector of text": ("vector", ["1", "2"]),
    "vector of bools": ("vector", [True, False]),
    "vector of vectors": ("vector", [[1.0], [2.0]]),
    "vector of complex": ("vector", [1, 2j]),
    "vector from text": ("vector", "12"),
    "vector from bytes": ("vector", b"12"),
    "vector from a matrix": ("vector", np.array([[1.0, 2.0]])),
    "blob from text": ("blob", "abc"),
    "blob from int": ("blob", 5),
    "blob from ints": ("blob", [1, 2]),
    "enum capital": ("kind", "Active"),
    "enum upper case": ("kind", "ACTIVE"),
    "enum blank": ("kind", "active "),
    "enum newline": ("kind", "away\n"),
    "enum nul": ("kind", "active\0"),
    "enum cyrillic": ("kind", "\u0430ctive"),
    "enum full width": ("kind", "\uff41ctive"),
    "enum zero width": ("kind", "active\u200b"),
    "enum empty": ("kind", ""),
    "enum number": ("kind", 0),
    "enum bytes": ("kind", b"active"),
    "bool 1": ("yes", 1),
    "bool 0.0": ("yes", 0.0),
    "bool text": ("yes", "true"),
    "bool empty text": ("yes", ""),
    "text from bytes": ("text", b"abc"),
    "text from invalid bytes": ("text", b"\xff\xfe"),
    "text from bytearray": ("text", bytearray(b"abc")),
    "text surrogate": ("text", "a\ud800"),
    "text from int": ("text", 5),
    "text from bool": ("text", True),
    "text from date": ("text", dt.date(2024, 1, 1)),
    "text from object": ("text", object()),
    "text from ellipsis": ("text", ...),
    "text from error": ("text", ValueError("x")),
    "i32 2**31": ("i32", 2**31),
    "i32 text": ("i32", "1"),
    "i64 from mapping": ("i64", {"a": 1}),
    "f32 text": ("f32", "nan"),
    "words of ints": ("words", [1]),
    "words of words": ("words", [["a"]]),
    "words with bytes": ("words", [b"a"]),
    "words with a surrogate": ("words", ["\ud800"]),
    "words from text": ("words", "abc"),
    "numbers too great": ("numbers", [2**31]),
    "numbers with bool": ("numbers", [True]),
    "numbers of fractions": ("numbers", [0.5]),
}

VALUES_ACCEPTED: Mapping[str, tuple[str, object, object]] = {
    "vector NaN": ("vector", [NAN, 1.0], [NAN, 1.0]),
    "vector infinity": ("vector", [INFINITY, -INFINITY], [INFINITY, -INFINITY]),
    "vector tuple": ("vector", (1, 2), [1.0, 2.0]),
    "vector numpy": ("vector", np.array([1.0, 2.0]), [1.0, 2.0]),
    "vector null": ("vector", None, None),
    "enum": ("kind", "active", "active"),
    "enum null": ("kind", None, None),
    "bool numpy": ("yes", np.bool_(True), True),
    "text nul": ("text", "a\0b", "a\0b"),
    "text empty": ("text", "", ""),
    "text composed": ("text", "\u00e9", "\u00e9"),
    "text decomposed": ("text", "e\u0301", "e\u0301"),
    "text numpy": ("text", np.str_("a"), "a"),
    "text of 16 MiB": ("text", "x" * 2**24, "x" * 2**24),
    "f32 NaN": ("f32", NAN, NAN),
    "f64 minus zero": ("f64", -0.0, -0.0),
    "f64 infinity": ("f64", -INFINITY, -INFINITY),
    "i32 greatest": ("i32", 2**31 - 1, 2**31 - 1),
    "words empty": ("words", [], []),
    "words null item": ("words", [None, ""], [None, ""]),
    "words null": ("words", None, None),
    "numbers of whole floats": ("numbers", [1.0, None], [1, None]),
}

BLOBS: Mapping[str, bytes | None] = {
    "null": None,
    "empty": b"",
    "nul": b"\0",
    "invalid UTF-8": b"\xff\xfe",
    "one MiB": b"x" * 2**20,
}

COLUMN_NAMES: Mapping[str, str] = {
    "quote": "text'",
    "sql": "text; DROP",
    "source of a node": "src",
    "empty": "",
    "nul": "text\0",
    "upper case": "TEXT",
    "blank": "text ",
    "dotted": "text.x",
    "backtick": "`text`",
    "cyrillic": "t\u0435xt",
    "right to left": "\u202etext",
    "row id": "_rowid",
    "long": "x" * 100_000,
}


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def _nested_mappings(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def _ring() -> object:
    ring: list[object] = []
    ring.append(ring)
    return ring


DEEP: Mapping[str, Callable[[], object]] = {
    "lists, 100 deep": lambda: _nested(100),
    "mappings, 100 deep": lambda: _nested_mappings(100),
    "lists, 1,000 deep": lambda: _nested(1000),
    "mappings, 1,000 deep": lambda: _nested_mappings(1000),
}

ODD_ARRAYS: Mapping[str, Callable[[], pa.Array]] = {
    "struct": lambda: pa.array([{"a": 1}]),
    "map": lambda: pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "sparse union": lambda: pa.UnionArray.from_sparse(
        pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])]
    ),
    "dense union": lambda: pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    ),
    "interval": lambda: pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "duration": lambda: pa.array([1], pa.duration("s")),
    "time of day": lambda: pa.array([1], pa.time64("us")),
    "list of structs": lambda: pa.array([[{"a": 1}]]),
    "lists in lists": lambda: pa.array([[[[["a"]]]]]),
}


def invalid_utf8() -> pa.StringArray:
    return pa.Array.from_buffers(
        pa.string(),
        1,
        [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")],
    )


def _dictionary(index: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(
        pa.array([index], pa.int32()), pa.array(["a"]), safe=False
    )


BROKEN_ARRAYS: Mapping[str, tuple[str, Callable[[], pa.Array]]] = {
    "text that is not UTF-8": ("text", invalid_utf8),
    "enum that is not UTF-8": ("kind", invalid_utf8),
    "id that is not UTF-8": ("id", invalid_utf8),
    "word that is not UTF-8": ("words", lambda: pa.ListArray.from_arrays([0, 1], invalid_utf8())),
    "date that is not UTF-8": ("day", invalid_utf8),
    "dictionary index too great": ("text", lambda: _dictionary(5)),
    "dictionary index negative": ("text", lambda: _dictionary(-1)),
}

_FOUR = pa.table(
    {
        "text": ["a", "b", "c", "d"],
        "words": [["a"], None, ["b", "c"], []],
        "vector": pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
        "yes": [True, None, False, True],
        "i64": [1, None, 3, 4],
    }
)

ARROW_ACCEPTED: Mapping[str, tuple[str, Callable[[], pa.Array | pa.ChunkedArray], list[object]]] = {
    "null type": ("text", lambda: pa.nulls(2), [None, None]),
    "null type for a vector": ("vector", lambda: pa.nulls(1), [None]),
    "null type for a blob": ("blob", lambda: pa.nulls(1), [None]),
    "dictionary": ("kind", lambda: pa.array(["active"] * 2).dictionary_encode(), ["active"] * 2),
    "dictionary with null": (
        "text",
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([None, "a"])),
        [None, "a", None],
    ),
    "runs": ("text", lambda: pa.RunEndEncodedArray.from_arrays([2], ["a"]), ["a", "a"]),
    "string view": ("text", lambda: pa.array(["a"], pa.string_view()), ["a"]),
    "large string": ("text", lambda: pa.array(["a"], pa.large_string()), ["a"]),
    "json extension": (
        "text",
        lambda: pa.ExtensionArray.from_storage(pa.json_(pa.utf8()), pa.array(["{}"])),
        ["{}"],
    ),
    "tensor extension": (
        "vector",
        lambda: pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float32(), (2,)), pa.array([[1, 2]], pa.list_(pa.float32(), 2))
        ),
        [[1.0, 2.0]],
    ),
    "list view": ("words", lambda: pa.array([["a"]], pa.list_view(pa.string())), [["a"]]),
    "list of nulls": ("words", lambda: pa.array([None, []], pa.list_(pa.null())), [None, []]),
    "decimal": ("i64", lambda: pa.array([Decimal(1)], pa.decimal256(76, 0)), [1]),
    "sliced texts": ("text", lambda: _FOUR["text"].slice(1, 2), ["b", "c"]),
    "sliced bools": ("yes", lambda: _FOUR["yes"].slice(1, 2), [None, False]),
    "sliced numbers": ("i64", lambda: _FOUR["i64"].slice(1, 2), [None, 3]),
    "sliced words": ("words", lambda: _FOUR["words"].slice(1, 2), [None, ["b", "c"]]),
    "sliced vectors": ("vector", lambda: _FOUR["vector"].slice(1, 2), [None, [3.0, 4.0]]),
    "slice of empty lists": ("words", lambda: _FOUR["words"].slice(3), [[]]),
    "chunks, one of them empty": (
        "words",
        lambda: pa.chunked_array(
            [_FOUR["words"].chunk(0).slice(0, 1), _FOUR["words"].chunk(0).slice(2, 0)]
        ),
        [["a"]],
    ),
}


def _raising_reader() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"text": ["a"]})
        raise RuntimeError("midway")

    return pa.RecordBatchReader.from_batches(pa.schema([("text", pa.string())]), batches())


class _Raising:
    def __arrow_c_stream__(self, requested: object = None) -> object:
        raise RuntimeError("no stream")


class _Lying:
    def __arrow_c_stream__(self, requested: object = None) -> object:
        return 5


class _Endless:
    def to_arrow(self) -> object:
        return self


class _Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no text")


class _Unreadable(dict[str, object]):
    def get(self, *_: object) -> object:
        raise ValueError("no value")


SOURCES_REFUSED: Mapping[str, Callable[[], object]] = {
    "none": lambda: None,
    "int": lambda: 5,
    "text": lambda: "rows",
    "bytes": lambda: b"rows",
    "mapping of columns": lambda: {"text": ["a"]},
    "set": lambda: {"a"},
    "generator": lambda: (row for row in [{"text": "a"}]),
    "range": lambda: range(3),
    "numpy array": lambda: np.array([1]),
    "schema": lambda: pa.schema([("text", pa.string())]),
    "array": lambda: pa.array([1]),
    "chunked array": lambda: pa.chunked_array([[1]]),
    "object": object,
    "list of ints": lambda: [5],
    "list of nulls": lambda: [None],
    "list of lists": lambda: [["a"]],
    "list of texts": lambda: ["text"],
    "one row of another kind": lambda: [{"text": "a"}, 5],
    "extra key": lambda: [{"text": "a"}, {"txt": "b"}],
    "int as a key": lambda: [{5: "a"}],
    "null as a key": lambda: [{None: "a"}],
    "bytes as a key": lambda: [{b"text": "a"}],
    "surrogate as a key": lambda: [{"\ud800": "a"}],
    "tuple as a key": lambda: [{("text",): "a"}],
    "unprintable key": lambda: [{_Unprintable(): "a"}],
    "unprintable value": lambda: [{"text": _Unprintable()}],
    "unreadable row": lambda: [_Unreadable(text="a")],
    "reader that raises": _raising_reader,
    "stream that raises": _Raising,
    "stream that is none": _Lying,
    "conversion that never ends": _Endless,
    "ring": lambda: [{"text": _ring()}],
    "column twice": lambda: pa.table([["a"], ["b"]], names=["text", "text"]),
    "id twice": lambda: pa.table([["a"], ["b"]], names=["id", "id"]),
    "10,000 columns": lambda: pa.table({f"c{number}": [1] for number in range(10_000)}),
}

SOURCES_ACCEPTED: Mapping[str, tuple[Callable[[], object], int]] = {
    "no rows": (list, 0),
    "no columns": (lambda: pa.table({}), 0),
    "rows without columns": (lambda: _FOUR.select([]), 4),
    "empty rows": (lambda: [{}, {}], 2),
    "missing keys": (lambda: [{"text": "a"}, {"i64": 1}, {}], 3),
    "tuple of rows": (lambda: ({"text": "a"},), 1),
    "struct array": (lambda: pa.array([{"text": "a"}]), 1),
    "batch": (lambda: pa.record_batch({"text": ["a"]}), 1),
    "empty slice": (lambda: _FOUR.slice(4), 0),
}


def _raising_ids() -> Iterator[str]:
    yield "a"
    raise RuntimeError("midway")


DELETES_REFUSED: Mapping[str, Callable[[], object]] = {
    "text": lambda: "abc",
    "bytes": lambda: b"abc",
    "int": lambda: 5,
    "none": lambda: None,
    "list of ints": lambda: [5],
    "list of bools": lambda: [True],
    "list of lists": lambda: [["a"]],
    "list of dates": lambda: [dt.date(2024, 1, 1)],
    "list of objects": lambda: [object()],
    "surrogate": lambda: ["\ud800"],
    "invalid bytes": lambda: [b"\xff"],
    "valid bytes": lambda: [b"a"],
    "mapping": lambda: {"a": 1},
    "arrow ints": lambda: pa.array([1]),
    "arrow bools": lambda: pa.array([True]),
    "arrow dates": lambda: pa.array([dt.date(2024, 1, 1)]),
    "arrow bytes": lambda: pa.array([b"\xff"]),
    "structs": lambda: pa.array([{"a": 1}]),
    "lists": lambda: pa.array([["a"]]),
    "table": lambda: pa.table({"id": ["a"]}),
    "ids that raise": _raising_ids,
    "not UTF-8": invalid_utf8,
}
