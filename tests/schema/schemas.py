"""Hypothesis strategies: valid schema texts with comments and white space in odd places.

A schema is drawn as a list of tokens that passes every check; `texts` then joins the tokens
with gaps that the language allows.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from omnigraph_lake.schema.catalog import WITHOUT_ORDER, Scalar

SCALARS = [each.value for each in Scalar if each is not Scalar.BLOB]
LISTED = [each.value for each in Scalar if each not in WITHOUT_ORDER]
KEYABLE = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime"]
# Every keyword of the language is also a legal property name.
ODD_NAMES = ["node", "edge", "interface", "implements", "enum", "true", "false", "key", "card"]
RESERVED = {"id", "src", "dst", "_rowid", "_rowaddr", "_rowoffset"}

names = st.one_of(
    st.sampled_from(ODD_NAMES),
    st.text("abz_XY09", min_size=1, max_size=6).map(
        lambda text: f"_{text}" if text[0] in "XY09" or text in RESERVED else text
    ),
)
type_names = st.text("abzXY09_", max_size=6).map(lambda text: f"T{text}")
enum_values = st.text("abXY09_-", min_size=1, max_size=6)
characters = st.characters(
    codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters='"\\\ufeff'
)
strings = st.lists(
    st.one_of(characters, st.sampled_from(['\\"', "\\\\", "\\n", "\\r", "\\t"])),
    min_size=1,
    max_size=8,
).map(lambda parts: '"x' + "".join(parts) + '"')
numbers = st.one_of(
    st.integers(0, 10**30).map(str),
    st.tuples(st.integers(0, 999), st.integers(0, 999)).map(lambda two: f"{two[0]}.{two[1]}"),
)
literals = st.one_of(strings, numbers, st.sampled_from(["true", "false"]))

comments = st.one_of(
    st.text(characters, max_size=10).map(lambda text: f"//{text.replace(chr(10), ' ')}\n"),
    st.text(characters, max_size=10)
    .filter(lambda text: "*/" not in text and not text.endswith("*"))
    .map(lambda text: f"/*{text}*/"),
    st.just("/* two\n   lines */"),
    st.just("/**/"),
)
spaces = st.sampled_from([" ", "\n", "\t", "\r\n", "\n\n\n", "  \n  "])
gaps = st.lists(st.one_of(spaces, spaces, comments), min_size=1, max_size=3).map("".join)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A property under construction; `tokens` is its type without `?`."""

    name: str
    tokens: tuple[str, ...]
    nullable: bool
    default: str | None = None


DEFAULTS = {
    "String": ['"unknown"', '""'],
    "Bool": ["true", "false"],
    "I32": ["0", "-7"],
    "F64": ["1.50", "2"],
    "Date": ['"2026-01-31"'],
    "DateTime": ['"2026-01-31T12:00:00+01:00"'],
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[Column, ...]:
    chosen = draw(st.lists(names, max_size=5, unique_by=str.casefold))
    return tuple(
        Column(
            name=name,
            tokens=(tokens := draw(column_types())),
            nullable=draw(st.booleans()),
            default=draw(st.sampled_from([None, None, *DEFAULTS.get(tokens[0], ())])),
        )
        for name in chosen
    )


@st.composite
def column_types(draw: st.DrawFn) -> tuple[str, ...]:
    kind = draw(st.sampled_from(["scalar", "scalar", "list", "enum", "vector", "blob"]))
    if kind == "list":
        return "[", draw(st.sampled_from(LISTED)), "]"
    if kind == "enum":
        values = draw(st.lists(enum_values, min_size=1, max_size=4, unique=True))
        return "enum", "(", *separated(values), ")"
    if kind == "vector":
        return "Vector", "(", str(draw(st.integers(1, 4096))), ")"
    return ("Blob",) if kind == "blob" else (draw(st.sampled_from(SCALARS)),)


def separated(words: list[str]) -> list[str]:
    return [part for word in words for part in (",", word)][1:]


@st.composite
def notes(draw: st.DrawFn, *, header: bool) -> list[str]:
    """Annotations that any element of the kind may carry."""
    tokens: list[str] = []
    if draw(st.booleans()):
        tokens += ["@description", "(", draw(strings), ")"]
    if header and draw(st.booleans()):
        tokens += ["@instruction", "(", draw(strings), ")"]
    if draw(st.integers(0, 3)) == 0:
        tokens += ["@meta", "(", "unit", "=", draw(literals), ",", "zz", "=", draw(literals), ")"]
    return tokens


def comparable(column: Column) -> bool:
    return column.tokens[0] not in ("[", "Vector", "Blob", "Json")


def is_vector(column: Column) -> bool:
    return column.tokens[0] == "Vector"


metrics = st.sampled_from(["cosine", "l2", "dot"]).map(lambda word: ["metric", "=", word])


@st.composite
def bodies(draw: st.DrawFn, kind: str) -> list[str]:
    held = draw(columns())
    tokens: list[str] = []
    indexed: set[str] = set()
    for column in held:
        tokens += [column.name, ":", *column.tokens, *(["?"] if column.nullable else [])]
        if column.default is not None:
            tokens += ["=", column.default]
        tokens += draw(notes(header=False))
        if draw(st.integers(0, 3)) == 0 and (comparable(column) or is_vector(column)):
            tokens += ["@index"]
            tokens += (
                ["(", *draw(metrics), ")"] if is_vector(column) and draw(st.booleans()) else []
            )
            indexed.add(column.name)
    if kind != "interface":
        tokens += draw(constraints(held, indexed, kind))
    return tokens


@st.composite
def constraints(
    draw: st.DrawFn, held: tuple[Column, ...], indexed: set[str], kind: str
) -> list[str]:
    tokens: list[str] = []
    usable = [each for each in held if comparable(each) and each.name not in ("true", "false")]
    plain = [each.name for each in usable]
    keyable = [each.name for each in usable if not each.nullable and each.default is None]
    if kind == "node" and len(keyable) > 0 and draw(st.booleans()):
        members = draw(st.lists(st.sampled_from(keyable), min_size=1, max_size=3, unique=True))
        tokens += ["@key", "(", *separated(members), ")"]
    if len(plain) > 0 and draw(st.booleans()):
        members = draw(st.lists(st.sampled_from(plain), min_size=1, max_size=3, unique=True))
        tokens += ["@unique", "(", *separated(members), ")"]
    tokens += draw(body_indexes(held, plain, indexed))
    free = [each for each in usable if each.default is None]
    numeric = [each.name for each in free if each.tokens[0] in ("I32", "I64", "U64", "F64")]
    if kind == "node" and len(numeric) > 0 and draw(st.booleans()):
        bounds = draw(st.sampled_from([["-5", "..", "7.5"], ["0", ".."], ["..", "10"]]))
        tokens += ["@range", "(", draw(st.sampled_from(numeric)), ",", *bounds, ")"]
    texts_ = [each.name for each in free if each.tokens == ("String",)]
    if kind == "node" and len(texts_) > 0 and draw(st.booleans()):
        tokens += ["@check", "(", draw(st.sampled_from(texts_)), ",", '"^[a-z]*$"', ")"]
    return tokens


@st.composite
def body_indexes(
    draw: st.DrawFn, held: tuple[Column, ...], plain: list[str], indexed: set[str]
) -> list[str]:
    tokens: list[str] = []
    free = [name for name in plain if name not in indexed]
    if len(free) > 0 and draw(st.booleans()):
        tokens += ["@index", "(", draw(st.sampled_from(free)), ")"]
    if len(plain) > 1 and draw(st.booleans()):
        members = draw(st.lists(st.sampled_from(plain), min_size=2, max_size=3, unique=True))
        tokens += ["@index", "(", *separated(members), ")"]
    for column in held:
        if is_vector(column) and column.name not in {*indexed, "true", "false"}:
            metric = draw(st.one_of(st.just([]), metrics.map(lambda words: [",", *words])))
            tokens += ["@index", "(", column.name, *metric, ")"] if draw(st.booleans()) else []
    return tokens


def edge_ends(nodes: list[str]) -> st.SearchStrategy[list[str]]:
    """One node type in most cases."""
    several = st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True)
    return st.one_of(
        st.sampled_from(nodes).map(lambda name: [name]),
        several.map(lambda names: [token for name in names for token in ("|", name)][1:]),
    )


@st.composite
def token_lists(draw: st.DrawFn) -> list[str]:
    """The tokens of a schema without any error."""
    nodes = draw(st.lists(type_names, min_size=1, max_size=3, unique_by=str.casefold))
    tokens: list[str] = []
    interfaces = draw(st.lists(type_names, max_size=1))
    for name in interfaces:
        # One name that no node body can draw keeps interface and node free of conflicts.
        tokens += ["interface", name, "{", "zzz_from_interface", ":", "String", "@index", "}"]
    for name in nodes:
        tokens += ["node", name, *draw(notes(header=True))]
        if len(interfaces) > 0 and draw(st.booleans()):
            tokens += ["implements", interfaces[0]]
        tokens += ["{", *draw(bodies("node")), "}"]
    for name in draw(st.lists(type_names, max_size=3, unique_by=str.casefold)):
        tokens += ["edge", name, ":", *draw(edge_ends(nodes)), "->", *draw(edge_ends(nodes))]
        if draw(st.booleans()):
            tokens += ["@card", "(", "0", "..", *draw(st.sampled_from([[], ["3"]])), ")"]
        if draw(st.booleans()):
            tokens += ["@cluster"]
        tokens += draw(notes(header=True))
        if draw(st.booleans()):
            tokens += ["{", *draw(bodies("edge")), "}"]
    return tokens


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A valid schema as somebody careless would type it."""
    tokens = draw(token_lists())
    fill = draw(st.lists(gaps, min_size=1, max_size=12))
    parts = [part for i, token in enumerate(tokens) for part in (fill[i % len(fill)], token)]
    return "".join([*parts, draw(gaps)])
