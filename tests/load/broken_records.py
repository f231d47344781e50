"""Random records of every type, whole and broken in every way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.schema.compiling import compiled

CATALOG = compiled(
    """
    node All {
        text: String?  blob: Blob?  yes: Bool?  i32: I32?  i64: I64?  u32: U32?  u64: U64?
        f32: F32?  f64: F64?  day: Date?  at: DateTime?  kind: enum(a, b)?
        words: [String]?  numbers: [I32]?  bigs: [U64]?  floats: [F32]?  days: [Date]?
        vector: Vector(2)?  json: Json?
        @range(i32, -5..1000)
        @check(text, "^[^!]*$")
    }
    node Keyed { a: String  b: F64  class: String?  type: String?  @key(a, b) }
    node Bare { }
    edge Link: All -> Keyed { note: String  weight: F32? }
    edge Plain: Bare -> Bare
    """
)


texts = st.one_of(
    st.sampled_from(
        ["a", "b", "", '":', ' : "', "\\", 'x":1,"y', "a!b", "\u0000", "é", "😀", "null"]
    ),
    st.text(max_size=5),
)
integers = st.one_of(
    st.integers(-10, 1100),
    st.sampled_from(
        [2**24 + 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**53 + 2, 2**63, -(2**63), 2**64, -(2**64)]
    ),
    st.integers(-(2**70), 2**70),
)
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 1.5, 1e300, 16777217.0, 3.4028235e38, 1e-320]),
    st.floats(allow_nan=False, allow_infinity=False),
)
dates = st.sampled_from(
    [
        "2024-02-29",
        "2023-02-29",
        "20240131",
        "2024-W05-1",
        "0000-01-01",
        "0001-01-01",
        "2024-13-01",
        "2024-1-1",
        "2024-01-31T10:00:00Z",
        "2024-01-31 10:00",
        "2024-01-31T10:00:00.123456+02:00",
        "2024-01-31T10:00:00.1234567",
        "2024-01-31T24:00:00",
        "2024-01-31T10:00:00+0200",
        "99999-01-01",
        "",
    ]
)
blobs = st.sampled_from(["base64:", "base64:AAEC", "base64:AAE", "base64:A*==", "http://x", "AAEC"])
scalars = st.one_of(st.none(), st.booleans(), integers, floats, texts, dates, blobs)
lists = st.lists(scalars, max_size=3)
anything = st.one_of(
    scalars,
    lists,
    st.dictionaries(texts, scalars, max_size=2),
    st.just([[1]]),
    st.just([[[[[1]]]]]),
)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)
FITTING = {
    "id": st.sampled_from(["k1", "é", '["a","1.5"]', "", "tab\t"]),
    "text": texts,
    "blob": blobs,
    "yes": st.booleans(),
    "i32": integers,
    "i64": integers,
    "u32": integers,
    "u64": integers,
    "f32": st.one_of(floats, integers),
    "f64": st.one_of(floats, integers),
    "day": dates,
    "at": dates,
    "kind": st.sampled_from(["a", "b", "c"]),
    "words": st.lists(st.one_of(st.none(), texts), max_size=3),
    "numbers": st.lists(st.one_of(st.none(), integers), max_size=3),
    "bigs": st.lists(integers, max_size=2),
    "floats": st.lists(st.one_of(st.none(), floats, integers), max_size=3),
    "days": st.lists(st.one_of(st.none(), dates), max_size=2),
    "vector": st.lists(st.one_of(floats, integers), min_size=1, max_size=3),
    "json": json_values,
    "a": texts,
    "b": st.one_of(floats, integers),
    "class": texts,
    "type": texts,
    "note": texts,
    "weight": floats,
}
COLUMNS = {
    "All": [name for name in FITTING if name in CATALOG.nodes["All"].properties],
    "Keyed": ["a", "b", "class", "type"],
    "Bare": [],
    "Link": ["note", "weight"],
    "Plain": [],
}


@st.composite
def members(draw: st.DrawFn, type_name: str) -> list[tuple[str, Any]]:
    """The data of a record: mostly what belongs there, now and then anything."""
    names = ["id", *COLUMNS.get(type_name, [])]
    chosen = draw(st.lists(st.sampled_from(names), unique=draw(st.integers(0, 9)) > 0, max_size=6))
    if type_name == "Keyed" and draw(st.integers(0, 3)):
        chosen = [*dict.fromkeys((*chosen, "a", "b"))]
    if type_name == "Link" and draw(st.integers(0, 3)):
        chosen = [*dict.fromkeys((*chosen, "note"))]
    if draw(st.integers(0, 14)) == 0:
        chosen.append(draw(st.sampled_from(["nope", "src", "from", "Text"])))
    odd = draw(st.integers(0, 3)) == 0
    return [
        (
            name,
            draw(anything if odd or name not in FITTING else st.one_of(st.none(), FITTING[name])),
        )
        for name in chosen
    ]


@st.composite
def records(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Members of a record, as pairs, because a name may come twice."""
    is_node = draw(st.booleans())
    names = ["All", "Keyed", "Bare"] if is_node else ["Link", "Plain", "link", "LINK", "lInK"]
    if draw(st.integers(0, 14)) == 0:
        names = ["Nope", "Link", "All"]
    name = draw(st.sampled_from(names))
    form: list[tuple[str, Any]] = [("type" if is_node else "edge", name)]
    if not is_node:
        ends = [("from", draw(st.sampled_from(["n1", "é"]))), ("to", "n2")]
        form += (
            ends if draw(st.integers(0, 9)) else draw(st.lists(st.sampled_from(ends), max_size=3))
        )
    if draw(st.integers(0, 7)):
        inside = draw(members(name if name in COLUMNS else name.title()))
        form.append(("data", Pairs(inside) if draw(st.integers(0, 19)) else draw(anything)))
    if draw(st.integers(0, 19)) == 0:
        form.append(
            draw(st.sampled_from([("type", "All"), ("edge", "Link"), ("id", "x"), form[0]]))
        )
    return draw(st.permutations(form)) if draw(st.booleans()) else form


class Pairs(list[tuple[str, Any]]):
    """Members of an object in order, names more than once."""


def spelt(value: Any, space: Callable[[], str]) -> str:
    """A value as JSON, with white space wherever it may stand."""
    if isinstance(value, Pairs):
        inside = ",".join(
            f"{space()}{json.dumps(name)}{space()}:{space()}{spelt(each, space)}"
            for name, each in value
        )
        return f"{{{inside}{space()}}}"
    return json.dumps(value, ensure_ascii=len(str(value)) % 2 == 0)


BREAKS: list[Callable[[str], str]] = [
    lambda text: text[:-1],
    lambda text: text + text,
    lambda text: f"[{text}]",
    lambda text: text + ",",
    lambda text: text.replace(":", ": NaN,", 1),
    lambda text: text.replace("null", "Infinity"),
    lambda text: text.replace("1", "1e400", 1),
    lambda text: text.replace("1", "1" * 5000, 1),
    lambda text: text.replace("1", "01", 1),
    lambda text: text.replace('"a', '"\\ud800a', 1),
    lambda text: text.replace('"a', '"\\ud83d\\ude00a', 1),
    lambda text: text.replace('"a', '"\x01a', 1),
    lambda text: text.replace('"a', '"\\u0061', 1),
    lambda text: text.replace('"data"', '"d\\u0061ta"', 1),
    lambda text: text.replace("{", '{"type":"All",', 1),
    lambda text: text.replace("'", '"'),
    lambda text: "\ufeff" + text,
    lambda text: text + "\x00",
    lambda text: text.replace("}", '"}', 1),
    *(lambda _, whole=whole: whole for whole in ("5", "null", '"text"', "{}", "[" * 3000)),
]


@st.composite
def line_texts(draw: st.DrawFn) -> bytes:
    """One line without its end."""
    spaces = draw(st.sampled_from([[""], ["", " "], ["", " ", "\t", "  ", "\r"]]))
    text = spelt(Pairs(draw(records())), lambda: draw(st.sampled_from(spaces)))
    kind = draw(st.integers(0, 9))
    if kind == 0:
        text = draw(st.sampled_from(BREAKS))(text)
    if kind == 1:
        text = draw(st.sampled_from([" ", "\t", "\r"])) + text + draw(st.sampled_from(["", " "]))
    line = text.encode(errors="surrogatepass").replace(b"\n", b" ")
    if kind == 2:
        at = draw(st.integers(0, len(line)))
        line = (
            line[:at]
            + draw(st.sampled_from([b"\xff", b"\x00", b"\xc0\x80", b"", b'"', b":"]))
            + line[at:]
        )
    return line
