"""Random pairs of schemas out of few names, so that most of one is found again in the other.

Everything follows from one seed. A drawn schema compiles; what constraints name and no longer fits
is left out when the text is made.
"""

from __future__ import annotations

import copy
import itertools
import random
from dataclasses import dataclass, field

TYPES = [
    *("I32", "I64", "U32", "U64", "F32", "F64", "String", "String", "Bool", "Date"),
    *("enum(a, b)", "enum(b, c)", "enum(a, b, c)", "[I32]", "Vector(2)", "Vector(2)", "Blob"),
]
NUMBERS = {"I32", "I64", "U32", "U64", "F32", "F64"}
NAMES = ["p", "q", "r", "s", "t"]
ANY_TEXT = "*"
RANGES = ["0..10", "0..", "..0.1", "-5..7", "1..10", "0.0..10", "..9"]
PATTERNS = ["a", "^a", "b|x", "x$"]
METADATA = [
    "",
    "",
    "@meta(unit=1)",
    "@meta(unit=true)",
    "@meta(unit=1.0)",
    '@meta(unit="x", a=1, b=2)',
]
ENUMS = ["enum(a, b)", "enum(b, c)", "enum(a, b, c)"]
LIKELY = {
    "I32": ["I64", "F64"],
    "U32": ["U64", "I64", "F64"],
    "F32": ["F64"],
    "String": [*ENUMS, "I32"],
    **{each: [*ENUMS, "String"] for each in ENUMS},
}
LITERALS = {
    **dict.fromkeys(("I32", "I64", "F32", "F64"), ("0", "7", "-1")),
    **dict.fromkeys(("U32", "U64"), ("0", "7")),
    "String": ('"a"', '"x"'),
    "Bool": ("true",),
    "Date": ('"2026-01-31"',),
    **dict.fromkeys(("enum(a, b)", "enum(b, c)", "enum(a, b, c)"), ("b",)),
}


@dataclass
class Column:
    name: str
    type: str
    nullable: bool
    description: str = ""
    metadata: str = ""
    embed: str = ""
    default: int | None = None
    words: set[str] = field(default_factory=set)
    hints: list[str] = field(default_factory=list)

    @property
    def comparable(self) -> bool:
        return self.type not in ("[I32]", "Vector(2)", "Blob")


@dataclass
class Drawn:
    """A declaration; `groups` holds constraints as a word, members and the rest."""

    kind: str
    name: str
    columns: list[Column]
    groups: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)
    ends: tuple[str, str] = ("", "")
    card: str = ""
    implements: list[str] = field(default_factory=list)
    description: str = ""
    hints: list[str] = field(default_factory=list)


def pair(seed: int) -> tuple[str, str]:
    """An accepted text, and one that is related to it."""
    rng = random.Random(seed)
    accepted = _schema(rng)
    if rng.random() < 0.15:
        return _text(accepted), _text(_schema(rng))
    return _text(accepted), _text(_mutated(rng, accepted))


def shuffled(seed: int) -> tuple[str, str]:
    """One schema in two orders of declarations, properties, values and constraints."""
    rng = random.Random(seed)
    schema = _schema(rng)
    other = copy.deepcopy(schema)
    rng.shuffle(other)
    for each in other:
        rng.shuffle(each.columns)
        rng.shuffle(each.groups)
    return _text(schema), _text(other)


def _column(rng: random.Random, name: str) -> Column:
    kind = rng.choice(TYPES)
    column = Column(
        name=name,
        type=kind,
        nullable=rng.random() < 0.5,
        description=rng.choice(["", "", "d", "e"]),
        metadata=rng.choice(METADATA),
        default=rng.choice([None, None, None, 0, 1]),
    )
    if column.comparable:
        column.words = {each for each in ("@unique", "@index") if rng.random() < 0.2}
    if kind == "Vector(2)":
        words = [each for each in ("@index", "@index(metric=l2)") if rng.random() < 0.2]
        column.words = set(words[:1])
        column.embed = rng.choice(["", ANY_TEXT])
    return column


def _columns(rng: random.Random, names: list[str]) -> list[Column]:
    return [_column(rng, name) for name in names if rng.random() < 0.7]


def _schema(rng: random.Random) -> list[Drawn]:
    drawn: list[Drawn] = []
    for name, column in (("I", "i"), ("J", "j")):
        if rng.random() < 0.5:
            drawn.append(Drawn(kind="interface", name=name, columns=_columns(rng, [column, "x"])))
            if name == "J":
                drawn[-1].columns = [each for each in drawn[-1].columns if each.name != "x"]
    known = [each.name for each in drawn]
    nodes = [each for each in ("A", "B", "C") if rng.random() < 0.8] or ["A"]
    for name in nodes:
        node = Drawn(kind="node", name=name, columns=_columns(rng, NAMES))
        node.implements = [each for each in known if rng.random() < 0.5]
        node.description = rng.choice(["", "", "d"])
        node.groups = _drawn_groups(rng, node, rng.randrange(4))
        drawn.append(node)
    for name in ("E", "F"):
        if rng.random() < 0.6:
            edge = Drawn(kind="edge", name=name, columns=_columns(rng, NAMES[:3]))
            edge.ends = (rng.choice(nodes), rng.choice(nodes))
            edge.card = rng.choice(["", "0..1", "1..", "0..3", "2..3"])
            edge.groups = _drawn_groups(rng, edge, rng.randrange(2))
            drawn.append(edge)
    return drawn


def _drawn_groups(
    rng: random.Random, owner: Drawn, count: int
) -> list[tuple[str, tuple[str, ...], str]]:
    """Constraints that can stand beside each other in any order; a type has one key."""
    drawn = [_group(rng, owner, owner.columns) for _ in range(count)]
    return list({_sameness(*each): each for each in drawn}.values())


def _sameness(word: str, members: tuple[str, ...], rest: str) -> object:
    return "key" if word == "key" else (word, frozenset(members), rest)


def _group(
    rng: random.Random, owner: Drawn, columns: list[Column]
) -> tuple[str, tuple[str, ...], str]:
    names = [each.name for each in columns] or ["p"]
    if owner.kind == "edge":
        names += ["src", "dst"]
    word = rng.choice(["unique", "index", "range", "range", "check", "key"])
    if word == "range":
        numbers = [each.name for each in columns if each.type in NUMBERS] or names
        return word, (rng.choice(numbers),), rng.choice(RANGES)
    if word == "check":
        texts = [each.name for each in columns if each.type == "String"] or names
        return word, (rng.choice(texts),), f'"{rng.choice(PATTERNS)}"'
    return word, tuple(rng.sample(names, rng.randint(1, min(2, len(names))))), ""


def _mutated(rng: random.Random, accepted: list[Drawn]) -> list[Drawn]:
    schema = copy.deepcopy(accepted)
    fresh = itertools.count(1)
    for _ in range(rng.randint(1, 6)):
        owner = rng.choice(schema)
        _mutate(rng, schema, owner, f"n{next(fresh)}")
    rng.shuffle(schema)
    return schema


def _mutate(rng: random.Random, schema: list[Drawn], owner: Drawn, name: str) -> None:
    action = rng.randrange(12)
    if action == 0 and owner.kind != "interface":
        _rename_type(schema, owner, name.upper())
    elif action == 1 and len(schema) > 1:
        schema.remove(owner)
    elif action == 2 and owner.kind == "node":
        owner.implements = [each.name for each in schema if each.kind == "interface"]
        owner.description = rng.choice(["", "d", "e"])
    elif action == 3 and owner.kind == "edge":
        owner.card = rng.choice(["", "0..1", "1..", "0..3", "2..3"])
    elif action == 4:
        owner.groups.append(_group(rng, owner, owner.columns))
    elif action == 5 and owner.groups:
        owner.groups.remove(rng.choice(owner.groups))
    elif action == 6:
        added = _column(rng, name)
        _hint(rng, added, owner)
        owner.columns.insert(rng.randint(0, len(owner.columns)), added)
    elif owner.columns:
        _mutate_column(rng, owner, rng.choice(owner.columns), name)


def _mutate_column(rng: random.Random, owner: Drawn, column: Column, name: str) -> None:
    action = rng.randrange(9)
    if action == 0:
        owner.columns.remove(column)
    elif action == 8:
        column.default = rng.choice([None, 0, 1])
    elif action == 1 and not column.hints:
        old, column.name = column.name, name
        column.hints.append(f'@rename_from("{old}")')
        owner.groups = [
            (word, tuple(name if each == old else each for each in members), rest)
            for word, members, rest in owner.groups
        ]
        for each in owner.columns:
            each.embed = name if each.embed == old else each.embed
    elif action in (2, 6, 7):
        column.type = rng.choice(LIKELY.get(column.type, TYPES))
        if column.type.startswith("enum") and rng.random() < 0.5:
            column.hints.append('@rename_value(a="b", c="b")')
    elif action == 3:
        column.nullable = not column.nullable
        _hint(rng, column, owner)
    elif action == 4:
        column.embed = rng.choice(["", ANY_TEXT, *(each.name for each in owner.columns)])
    else:
        column.description, column.metadata = rng.choice(["", "f"]), rng.choice(METADATA)
        column.words ^= {rng.choice(["@unique", "@index"])}


def _hint(rng: random.Random, column: Column, owner: Drawn) -> None:
    if any("backfill" in each for each in column.hints) or rng.random() < 0.3:
        return
    literals = LITERALS.get(column.type, ())
    sources = [each.name for each in owner.columns if each.type == column.type != "Blob"]
    sources = [each for each in sources if each != column.name and not each.startswith("n")]
    if sources and rng.random() < 0.4:
        column.hints.append(f"@backfill(from={rng.choice(sources)})")
    elif literals:
        column.hints.append(f"@backfill({rng.choice(literals)})")


def _rename_type(schema: list[Drawn], owner: Drawn, name: str) -> None:
    if owner.hints:
        return
    old, owner.name = owner.name, name
    owner.hints.append(f'@rename_from("{old}")')
    for each in schema:
        if owner.kind == "node":
            source, target = each.ends
            each.ends = (name if source == old else source, name if target == old else target)


def _text(schema: list[Drawn]) -> str:
    nodes = {each.name for each in schema if each.kind == "node"}
    interfaces = {each.name: each for each in schema if each.kind == "interface"}
    return "\n".join(
        _declaration(each, interfaces)
        for each in schema
        if each.kind != "edge" or nodes.issuperset(each.ends)
    )


def _declaration(drawn: Drawn, interfaces: dict[str, Drawn]) -> str:
    header = f"{drawn.kind} {drawn.name}"
    notes = [f'@description("{drawn.description}")'] if drawn.description else []
    implements = [each for each in drawn.implements if each in interfaces]
    if drawn.kind == "edge":
        header += f": {drawn.ends[0]} -> {drawn.ends[1]}"
        notes += [f"@card({drawn.card})"] if drawn.card else []
    if drawn.kind != "interface":
        header = " ".join([header, *notes, *drawn.hints])
    if implements:
        header += f" implements {', '.join(implements)}"
    body = [_column_text(each, drawn) for each in drawn.columns]
    inherited = [column for each in implements for column in interfaces[each].columns]
    body += _groups(drawn, [*drawn.columns, *inherited])
    return f"{header} {{\n    " + "\n    ".join(body) + "\n}"


def _column_text(column: Column, owner: Drawn) -> str:
    parts = [f"{column.name}: {column.type}{'?' if column.nullable else ''}"]
    literals = LITERALS.get(column.type, ())
    # No key and no rule of values may be about it, also not in a type that inherits it.
    is_plain = owner.kind == "edge" or not any(
        word in ("key", "range", "check") and column.name in members
        for word, members, _ in owner.groups
    )
    if column.default is not None and literals and is_plain and owner.kind != "interface":
        parts.append(f"= {literals[column.default % len(literals)]}")
    parts += [f'@description("{column.description}")'] if column.description else []
    parts += [column.metadata] if column.metadata else []
    parts += [each for each in sorted(column.words) if _fits(each, column)][:2]
    texts = [each.name for each in owner.columns if each.type == "String"]
    embed = min(texts) if column.embed == ANY_TEXT and texts else column.embed
    if column.type == "Vector(2)" and embed in texts and owner.kind != "edge":
        parts.append(f"@embed({embed})")
    return " ".join([*parts, *column.hints])


def _fits(word: str, column: Column) -> bool:
    if column.type == "Vector(2)":
        return word != "@unique"
    return column.comparable and "metric" not in word


def _groups(drawn: Drawn, columns: list[Column]) -> list[str]:
    known = {each.name: each for each in columns}
    seen: set[object] = set()
    lines: list[str] = []
    for each in columns:
        for word in each.words:
            seen.add(_sameness(word.split("(")[0].lstrip("@"), (each.name,), ""))
    for word, members, rest in drawn.groups:
        mine = [known.get(each) for each in members]
        if not _group_fits(drawn.kind, word, members, mine):
            continue
        same = _sameness(word, members, rest)
        if same not in seen:
            seen.add(same)
            lines.append(f"@{word}({', '.join([*members, *([rest] if rest else [])])})")
    return lines


def _group_fits(
    kind: str, word: str, members: tuple[str, ...], columns: list[Column | None]
) -> bool:
    if kind == "interface":
        return False
    if kind == "edge" and word not in ("unique", "index"):
        return False
    return all(
        (kind == "edge" and name in ("src", "dst"))
        if column is None
        else _member_fits(word, column)
        for name, column in zip(members, columns, strict=True)
    )


def _member_fits(word: str, column: Column) -> bool:
    match word:
        case "key":
            return column.comparable and not column.nullable
        case "range":
            return column.type in NUMBERS
        case "check":
            return column.type == "String"
        case _:
            return column.comparable
