"""Schemas and rows of branches by identity, and random changes of both, in plain Python.

A type or a property is an element with a token that no rename changes. Rows have their values by
token, so they are read by the names of any schema. A change keeps what it did to rows: whatever
lacks the change can be given the same values later.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

Element = dict[Hashable, Any]
"""What a schema says about a type or a property, by facet; constraints are facets of a type."""
Schema = dict[str, Element]
Row = dict[str, Any]
Content = dict[str, dict[str, Row]]
"""Every row by the token of its type and by id."""

WIDER: Final = {
    "I32": ("I64", "F64", "Decimal(12, 2)"),
    "U32": ("I64", "U64", "F64"),
    "Decimal(6, 2)": ("Decimal(12, 2)", "Decimal(7, 3)"),
}
NUMBERS: Final = ("I32", "U32", "I64", "U64", "F64")
NODES, EDGES, PROPERTIES = ("A", "B", "C", "D"), ("E", "F", "G"), ("p", "q", "r", "s", "t", "u")
VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("I32", "U32", "I64", "U64"), (0, 1, 2, 7, 9)),
    "F64": (0.0, 1.0, 2.0, 7.0, 0.5),
    "String": ("a", "b", "x", "xy"),
    "Json": ('{"a":1}', "[1,null]", '"t"', "true"),
}
DECIMALS: Final = ("0", "1", "2.5", "7")
RANGES: Final = ((0, 5), (0, 8), (1, None))
PATTERNS: Final = ("^[a-e]", "x|a")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """The value of a property that rows lack, or that is null and must not be any more."""

    owner: str
    element: str
    value: Any = None
    source: str | None = None
    is_for_null: bool = False

    def apply(self, row: Row) -> None:
        if self.element not in row or (self.is_for_null and row[self.element] is None):
            row[self.element] = self.value if self.source is None else row.get(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """A value of an enum that becomes another one."""

    owner: str
    element: str
    old: str
    new: str

    def apply(self, row: Row) -> None:
        if row.get(self.element) == self.old:
            row[self.element] = self.new


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Integers that become floats."""

    owner: str
    element: str

    def apply(self, row: Row) -> None:
        if row.get(self.element) is not None:
            row[self.element] = float(row[self.element])


Effect = Fill | Renaming | Conversion


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One accepted change; the same change of the same schema is one, on whatever branch."""

    identity: str
    effects: tuple[Effect, ...] = field(compare=False)
    goes_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A branch at a commit. `ever` counts all elements that the schema ever had."""

    schema: Schema
    rows: Content
    changes: tuple[Change, ...] = ()
    ever: int = 0


@dataclass(slots=True)
class Draft:
    """A change of a schema that is being drawn, with the hints of its text."""

    before: State
    schema: Schema
    hints: dict[str, str] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    added: int = 0

    def new_token(self, *shape: object) -> str:
        self.added += 1
        return _digest([*self.before.schema.items()], self.before.ever, shape, self.added)

    def accepted(self) -> State:
        """The state after the change."""
        before = self.before
        change = Change(
            identity=_digest([*before.schema.items()], before.ever, text_of(self)),
            effects=tuple(self.effects),
        )
        rows = {token: before.rows.get(token, {}) for token in types_of(self.schema)}
        return State(
            schema=self.schema,
            rows={
                token: {
                    name: brought(row, token, self.schema, [change]) for name, row in table.items()
                }
                for token, table in rows.items()
            },
            changes=(*before.changes, change),
            ever=before.ever + self.added,
        )


def _digest(*things: object) -> str:
    words = [sorted(map(str, one)) if isinstance(one, frozenset) else str(one) for one in things]
    words = [re.sub(r"frozenset\(\{([^}]*)\}\)", _in_order, str(word)) for word in words]
    return hashlib.sha256(repr(words).encode()).hexdigest()[:10]


def _in_order(found: re.Match[str]) -> str:
    return str(sorted(found[1].split(", ")))


def types_of(schema: Schema) -> list[str]:
    return [token for token, element in schema.items() if "owner" not in element]


def nodes_of(schema: Schema) -> list[str]:
    return [token for token in types_of(schema) if "ends" not in schema[token]]


def edges_of(schema: Schema) -> list[str]:
    return [token for token in types_of(schema) if "ends" in schema[token]]


def properties_of(schema: Schema, owner: str) -> list[str]:
    return [token for token, element in schema.items() if element.get("owner") == owner]


def constraints_of(element: Element) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Constraints of a type: word, members, and the rest."""
    for facet, value in element.items():
        if isinstance(facet, tuple):
            yield facet[0], tuple(sorted(facet[1])), facet[2] if facet[0] == "check" else value


def brought(row: Row, owner: str, schema: Schema, changes: Sequence[Change]) -> Row:
    """A row with the values that some changes give it, and the columns of a schema."""
    row = dict(row)
    for change in changes:
        for effect in change.effects:
            if effect.owner == owner:
                effect.apply(row)
    known = {*properties_of(schema, owner), "src", "dst"}
    return {token: _typed(schema, token, value) for token, value in row.items() if token in known}


def _typed(schema: Schema, token: str, value: Any) -> Any:
    """A value as its type holds it; None if a narrower type does not."""
    kind = schema[token]["type"] if token in schema else None
    return value if value is None or not is_number(kind) else as_number(str(kind), value)


def is_number(kind: Any) -> bool:
    return kind in NUMBERS or str(kind).startswith("Decimal")


def as_number(kind: str, value: Any) -> Any:
    if kind == "F64":
        return float(value)
    if kind.startswith("Decimal"):
        digits, scale = digits_of(kind)
        exact = Decimal(str(value)).quantize(Decimal(1).scaleb(-scale))
        return exact if exact == value and abs(exact) < 10**digits else None
    return int(value) if int(value) == value else None


def digits_of(kind: str) -> tuple[int, int]:
    """How many digits a type has before and behind the point."""
    if kind.startswith("Decimal"):
        precision, scale = map(int, re.findall(r"\d+", kind))
        return precision - scale, scale
    return {"I32": 10, "U32": 10, "I64": 19, "U64": 20}[kind], 0


def going_back(head: State, earlier: State) -> Change:
    """The change of a schema that leads back to an earlier one; it fills nothing."""
    effects = tuple(
        Fill(owner=element["owner"], element=token)
        for token, element in earlier.schema.items()
        if token not in head.schema and element.get("owner") in head.schema
    )
    identity = _digest([*head.schema.items()], head.ever, "back", [*earlier.schema.items()])
    return Change(identity=identity, effects=effects, goes_back=True)


# Texts


def text_of(draft: Draft) -> str:
    schema, hints = draft.schema, draft.hints
    return "\n".join(_type_text(schema, token, hints) for token in types_of(schema)) + "\n"


def _type_text(schema: Schema, token: str, hints: Mapping[str, str]) -> str:
    element = schema[token]
    names = {one: str(schema[one]["name"]) for one in schema}
    head = f"node {names[token]}"
    if "ends" in element:
        source, target = (" | ".join(names[one] for one in end) for end in element["ends"])
        head = f"edge {names[token]}: {source} -> {target}"
    lines = [f"{head}{_note(element)}{hints.get(token, '')} {{"]
    for one in properties_of(schema, token):
        prop = schema[one]
        words = [f"  {prop['name']}: {shown(prop['type'])}{'?' if prop['nullable'] else ''}"]
        words += [f"= {literal(prop['type'], prop['default'])}"] if "default" in prop else []
        words += ["@key"] if element.get("key") == one else []
        lines.append(" ".join(words) + _note(prop) + hints.get(one, ""))
    for word, members, rest in constraints_of(element):
        inner = ", ".join(names[one] for one in members)
        if word == "range":
            inner += f", {rest[0]}..{'' if rest[1] is None else rest[1]}"
        elif word == "check":
            inner += f', "{rest}"'
        lines.append(f"  @{word}({inner})")
    return "\n".join([*lines, "}"])


def _note(element: Element) -> str:
    return f' @description("{element["description"]}")' if element.get("description") else ""


def shown(kind: Any) -> str:
    return str(kind) if isinstance(kind, str) else f"enum({', '.join(kind)})"


def literal(kind: Any, value: Any) -> str:
    return f'"{value}"' if kind == "String" else str(value)


# Rules


def offences(schema: Schema, rows: Content) -> set[str]:
    """Rules that rows break, as words with the name of the type."""
    broken: set[str] = set()
    for token in types_of(schema):
        element, table = schema[token], rows[token]
        for one in properties_of(schema, token):
            prop = schema[one]
            values = [row[one] for row in table.values()]
            if not prop["nullable"] and None in values:
                broken.add(f"{element['name']} missing_required")
            if isinstance(prop["type"], tuple) and {*values} - {*prop["type"], None}:
                broken.add(f"{element['name']} not_in_enum")
            if prop["type"] == "Json" and not all(map(is_json, values)):
                broken.add(f"{element['name']} bad_json")
        broken |= {f"{element['name']} {word}" for word in _broken(element, table)}
        for row in table.values() if "ends" in element else ():
            for side, end in zip(("src", "dst"), element["ends"], strict=True):
                kind, name = row[side]
                if kind not in end or name not in rows[kind]:
                    broken.add(f"{element['name']} missing_endpoint")
    return broken


def _broken(element: Element, table: Mapping[str, Row]) -> Iterator[str]:
    for word, members, rest in constraints_of(element):
        tuples = [tuple(row[one] for one in members) for row in table.values()]
        tuples = [values for values in tuples if None not in values]
        match word:
            case "unique" if max(Counter(tuples).values(), default=0) > 1:
                yield "not_unique"
            case "range" if not all(in_range(value, rest) for (value,) in tuples):
                yield "out_of_range"
            case "check" if not all(re.search(rest, value) for (value,) in tuples):
                yield "pattern_mismatch"


def is_json(text: str | None) -> bool:
    try:
        json.loads(text or "null")
    except ValueError:
        return False
    return True


def in_range(value: float, bounds: tuple[int, int | None]) -> bool:
    return value >= bounds[0] and (bounds[1] is None or value <= bounds[1])


def has_wrong_default(schema: Schema) -> bool:
    """Whether a default is no value of its type, or one that a constraint refuses."""
    for token, prop in schema.items():
        value = prop.get("default")
        if value is None:
            continue
        if prop["type"] == "Json" or (
            isinstance(prop["type"], tuple) and value not in prop["type"]
        ):
            return True
        for word, members, rest in constraints_of(schema[prop["owner"]]):
            if token not in members:
                continue
            if word == "range" and not in_range(value, rest):
                return True
            if word == "check" and not re.search(rest, value):
                return True
    return False


# Changes


def drawn_change(rng: random.Random, before: State) -> Draft | None:
    draft = Draft(before=before, schema=copy.deepcopy(before.schema))
    kinds, weights = zip(*KINDS.items(), strict=True)
    [change] = rng.choices(kinds, weights)
    change(rng, draft)
    return None if draft.schema == before.schema or has_wrong_default(draft.schema) else draft


def drawn_value(rng: random.Random, prop: Element) -> Any:
    if prop["nullable"] and rng.random() < 0.3:
        return None
    kind = prop["type"]
    if str(kind).startswith("Decimal"):
        return as_number(str(kind), Decimal(rng.choice(DECIMALS)))
    return rng.choice(VALUES[kind] if isinstance(kind, str) else kind)


def _free(rng: random.Random, schema: Schema, pool: Sequence[str], owner: str | None) -> str | None:
    taken = {one["name"] for one in schema.values() if one.get("owner") == owner}
    names = [name for name in pool if name not in taken]
    return rng.choice(names[:2]) if names else None


def _any_property(rng: random.Random, draft: Draft, *, keys: bool = False) -> str | None:
    schema = draft.schema
    tokens = [
        token
        for token, one in schema.items()
        if "owner" in one and (keys or schema[one["owner"]].get("key") != token)
    ]
    return rng.choice(tokens) if tokens else None


def _of_type(rng: random.Random, draft: Draft, kinds: Sequence[str]) -> str | None:
    """A property of some type; `enum` is any enum."""
    tokens = [
        token
        for token, one in draft.schema.items()
        if "owner" in one
        and draft.schema[one["owner"]].get("key") != token
        and (one["type"] in kinds or (isinstance(one["type"], tuple) and "enum" in kinds))
    ]
    return rng.choice(tokens) if tokens else None


def add_property(rng: random.Random, draft: Draft) -> None:
    schema = draft.schema
    owner = rng.choice(types_of(schema))
    name = _free(rng, schema, PROPERTIES, owner)
    if name is None:
        return
    prop: Element = {
        "owner": owner,
        "name": name,
        "type": rng.choice(
            ["I32", "I32", "U32", "String", ("a", "b"), ("a", "b", "c"), "Decimal(6, 2)", "Json"]
        ),
        "nullable": rng.random() < 0.7,
    }
    is_json = prop["type"] == "Json"
    if rng.random() < 0.2 and not is_json:
        prop["default"] = drawn_value(rng, {**prop, "nullable": False})
    token = draft.new_token(sorted((str(facet), prop[facet]) for facet in prop))
    sources = [
        one
        for one in properties_of(schema, owner)
        if schema[one]["type"] == prop["type"]
        or prop["type"] in WIDER.get(str(schema[one]["type"]), ())
    ]
    value, source = prop.get("default"), None
    if sources and rng.random() < 0.4:
        source = rng.choice(sources)
        draft.hints[token] = f" @backfill(from={schema[source]['name']})"
    elif rng.random() < 0.5 and not is_json:
        value = drawn_value(rng, {**prop, "nullable": False})
        draft.hints[token] = f" @backfill({literal(prop['type'], value)})"
    schema[token] = prop
    draft.effects.append(Fill(owner=owner, element=token, value=value, source=source))
    if source is not None and prop["type"] == "F64":
        draft.effects.append(Conversion(owner=owner, element=token))


def drop_property(rng: random.Random, draft: Draft) -> None:
    token = _any_property(rng, draft)
    if token is None:
        return
    element = draft.schema[draft.schema[token]["owner"]]
    for facet in [one for one in element if isinstance(one, tuple) and token in one[1]]:
        del element[facet]
    del draft.schema[token]


def rename_property(rng: random.Random, draft: Draft) -> None:
    token = _any_property(rng, draft, keys=True)
    if token is None:
        return
    prop = draft.schema[token]
    name = _free(rng, draft.schema, PROPERTIES, prop["owner"])
    if name is not None:
        draft.hints[token] = f' @rename_from("{prop["name"]}")'
        prop["name"] = name


def rename_type(rng: random.Random, draft: Draft) -> None:
    element = draft.schema[rng.choice(types_of(draft.schema))]
    name = _free(rng, draft.schema, EDGES if "ends" in element else NODES, None)
    if name is not None:
        token = next(one for one, other in draft.schema.items() if other is element)
        draft.hints[token] = f' @rename_from("{element["name"]}")'
        element["name"] = name


def widen(rng: random.Random, draft: Draft) -> None:
    token = _of_type(rng, draft, tuple(WIDER))
    if token is None:
        return
    prop = draft.schema[token]
    prop["type"] = rng.choice(WIDER[prop["type"]])
    if "default" in prop:
        prop["default"] = as_number(prop["type"], prop["default"])
    if prop["type"] == "F64":
        draft.effects.append(Conversion(owner=prop["owner"], element=token))


def change_enum(rng: random.Random, draft: Draft) -> None:
    token = _of_type(rng, draft, ("enum",))
    if token is None:
        return
    prop = draft.schema[token]
    values = prop["type"]
    kind = rng.choice(["extend", "extend", "map", "map", "narrow", "string"])
    if kind == "string":
        prop["type"] = "String"
    elif kind == "extend":
        prop["type"] = tuple(sorted({*values, rng.choice("abcde")}))
    elif len(values) > 1:
        old = rng.choice(values)
        prop["type"] = tuple(one for one in values if one != old)
        if kind == "map":
            new = rng.choice(prop["type"])
            draft.hints[token] = f' @rename_value({old}="{new}")'
            draft.effects.append(Renaming(owner=prop["owner"], element=token, old=old, new=new))


def change_null(rng: random.Random, draft: Draft) -> None:
    token = _any_property(rng, draft)
    if token is None:
        return
    prop = draft.schema[token]
    prop["nullable"] = not prop["nullable"]
    if prop["nullable"]:
        return
    value = prop.get("default")
    if rng.random() < 0.7 and prop["type"] != "Json":
        value = drawn_value(rng, prop)
        draft.hints[token] = f" @backfill({literal(prop['type'], value)})"
    if value is not None:
        draft.effects.append(
            Fill(owner=prop["owner"], element=token, value=value, is_for_null=True)
        )


def change_default(rng: random.Random, draft: Draft) -> None:
    token = _any_property(rng, draft)
    if token is None:
        return
    prop = draft.schema[token]
    if prop["type"] == "Json":
        return
    if "default" in prop and rng.random() < 0.4:
        del prop["default"]
    else:
        prop["default"] = drawn_value(rng, {**prop, "nullable": False})


def change_constraint(rng: random.Random, draft: Draft) -> None:
    schema = draft.schema
    token = _any_property(rng, draft)
    if token is None:
        return
    element, kind = schema[schema[token]["owner"]], schema[token]["type"]
    if kind == "Json":
        return
    is_node = "ends" not in element
    words = ["unique", "unique", "index", "pair"]
    words += ["range", "range"] if kind in NUMBERS and is_node else []
    words += ["check"] if kind == "String" and is_node else []
    word = rng.choice(words)
    facet: tuple[Hashable, ...] = (word, frozenset({token}))
    value: Any = True
    if word == "pair":
        others = properties_of(schema, schema[token]["owner"])
        other = rng.choice([one for one in others if schema[one]["type"] != "Json"])
        facet = ("unique", frozenset({token, other}))
    elif word == "check":
        facet = (*facet, rng.choice(PATTERNS))
    elif word == "range":
        value = rng.choice(RANGES)
    if facet in element and (word != "range" or rng.random() < 0.3):
        del element[facet]
    else:
        element[facet] = value


def describe(rng: random.Random, draft: Draft) -> None:
    element = draft.schema[rng.choice([*draft.schema])]
    element.pop("description", None)
    if rng.random() < 0.8:
        element["description"] = rng.choice(["one", "two"])


def add_type(rng: random.Random, draft: Draft) -> None:
    schema = draft.schema
    is_node = rng.random() < 0.5
    name = _free(rng, schema, NODES if is_node else EDGES, None)
    if name is None:
        return
    if is_node:
        token = draft.new_token(name)
        key = draft.new_token(name, "k")
        schema[token] = {"name": name, "key": key}
        schema[key] = {"owner": token, "name": "k", "type": "String", "nullable": False}
        return
    nodes = nodes_of(schema)
    ends = tuple((rng.choice(nodes),) for _ in range(2))
    token = draft.new_token(name, ends)
    schema[token] = {"name": name, "ends": ends}


def drop_type(rng: random.Random, draft: Draft) -> None:
    schema = draft.schema
    used = {one for token in edges_of(schema) for end in schema[token]["ends"] for one in end}
    tokens = [token for token in types_of(schema) if token not in used]
    if len(nodes_of(schema)) < 2:
        tokens = [token for token in tokens if "ends" in schema[token]]
    if tokens:
        dropped = rng.choice(tokens)
        for token in [dropped, *properties_of(schema, dropped)]:
            del schema[token]


def add_end(rng: random.Random, draft: Draft) -> None:
    schema = draft.schema
    edges = edges_of(schema)
    if not edges:
        return
    element = schema[rng.choice(edges)]
    ends, number = list(element["ends"]), rng.randrange(2)
    others = [token for token in nodes_of(schema) if token not in ends[number]]
    if others:
        ends[number] = (*ends[number], rng.choice(others))
        element["ends"] = tuple(ends)


def remove_end(rng: random.Random, draft: Draft) -> None:
    """Remove a type of an end with several; the first one stays."""
    ends = [
        (token, number)
        for token in edges_of(draft.schema)
        for number, end in enumerate(draft.schema[token]["ends"])
        if len(end) > 2
    ]
    if ends:
        token, number = rng.choice(ends)
        changed = list(draft.schema[token]["ends"])
        removed = rng.choice(changed[number][1:])
        changed[number] = tuple(one for one in changed[number] if one != removed)
        draft.schema[token]["ends"] = tuple(changed)


def change_json(rng: random.Random, draft: Draft) -> None:
    token = _of_type(rng, draft, ("Json", "String"))
    if token is None or "default" in draft.schema[token]:
        return
    prop = draft.schema[token]
    members = [one for _, one, _ in constraints_of(draft.schema[prop["owner"]])]
    if not any(token in one for one in members):
        prop["type"] = "String" if prop["type"] == "Json" else "Json"


KINDS: Final[Mapping[Callable[[random.Random, Draft], None], int]] = {
    add_property: 6,
    drop_property: 2,
    rename_property: 3,
    rename_type: 2,
    widen: 3,
    change_enum: 4,
    change_null: 3,
    change_default: 2,
    change_constraint: 4,
    describe: 2,
    add_type: 2,
    drop_type: 1,
    add_end: 3,
    remove_end: 1,
    change_json: 1,
}


def first_state() -> State:
    """Two node types and an edge between them."""
    schema: Schema = {
        "N": {"name": "A", "key": "N.k"},
        "N.k": {"owner": "N", "name": "k", "type": "String", "nullable": False},
        "N.n": {"owner": "N", "name": "n", "type": "I32", "nullable": True},
        "N.e": {"owner": "N", "name": "e", "type": ("a", "b", "c"), "nullable": False},
        "N.x": {"owner": "N", "name": "x", "type": "String", "nullable": True},
        "M": {"name": "B", "key": "M.k"},
        "M.k": {"owner": "M", "name": "k", "type": "String", "nullable": False},
        "M.n": {"owner": "M", "name": "n", "type": "U32", "nullable": True},
        "R": {"name": "E", "ends": (("N",), ("M",))},
        "R.w": {"owner": "R", "name": "w", "type": "I32", "nullable": True},
    }
    return State(schema=schema, rows={token: {} for token in types_of(schema)})


# Rows


def drawn_rows(rng: random.Random, before: State) -> tuple[State, dict[str, list[str]]] | None:
    """Some rows written, or deleted with the edges at them, and which ids by type."""
    schema = before.schema
    rows = {token: dict(table) for token, table in before.rows.items()}
    touched: dict[str, list[str]] = {}
    is_deletion = rng.random() < 0.25
    for _ in range(rng.randint(1, 3)):
        token = rng.choice(types_of(schema))
        prefix = "e" if "ends" in schema[token] else "k"
        name = f"{prefix}{rng.randrange(6)}"
        if is_deletion:
            if rows[token].pop(name, None) is None:
                continue
            _cascade(schema, rows, token, name)
        else:
            row = _drawn_row(rng, schema, rows, token, name)
            if row is None or offences(schema, {**rows, token: {**rows[token], name: row}}):
                continue
            rows[token][name] = row
        touched.setdefault(token, []).append(name)
    return (replace(before, rows=rows), touched) if touched and rows != before.rows else None


def _cascade(schema: Schema, rows: Content, node: str, name: str) -> None:
    for token in edges_of(schema):
        rows[token] = {
            edge: row
            for edge, row in rows[token].items()
            if (node, name) not in (row["src"], row["dst"])
        }


def _drawn_row(
    rng: random.Random, schema: Schema, rows: Content, token: str, name: str
) -> Row | None:
    element, old = schema[token], rows[token].get(name)
    row: Row = {}
    for one in properties_of(schema, token):
        is_kept = old is not None and rng.random() < 0.5
        row[one] = old[one] if old is not None and is_kept else drawn_value(rng, schema[one])
    if "key" in element:
        row[element["key"]] = name
    for side, end in zip(("src", "dst"), element.get("ends", ((), ())), strict=True):
        if end:
            ends = [(kind, node) for kind in end for node in rows[kind]]
            if not ends:
                return None
            is_kept = old is not None and old[side] in ends and rng.random() < 0.7
            row[side] = old[side] if old is not None and is_kept else rng.choice(ends)
    return row


def named(schema: Schema, token: str, name: str, row: Row) -> Row:
    """A row by names, as it is written and read."""
    element = schema[token]
    shown_row = {schema[one]["name"]: row[one] for one in properties_of(schema, token)}
    if "ends" not in element:
        return shown_row
    shown_row["id"] = name
    for side, end in zip(("src", "dst"), element["ends"], strict=True):
        shown_row[side] = row[side][1]
        if len(end) > 1:
            shown_row[f"{side}_type"] = schema[row[side][0]]["name"]
    return shown_row
