"""Random mutations of the small schema of people, and the rules that its graph must keep."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tests.query.expression_values import Graph
from tests.query.people import CATALOG
from tests.query.random_queries import random_graph

PARAMETERS = "$none: I32?, $two: I32, $word: String, $keys: [String], $city: String?"
GIVEN: dict[str, Any] = {
    "none": None,
    "two": 2,
    "word": "it's",
    "keys": ("a", "c", None),
    "city": "q",
}
KEYS = ("a", "b", "c", "d", "e", "it's")
ENDS = {
    "Knows": ("Person", "Person"),
    "WorksAt": ("Person", "Company"),
    "Wrote": ("Person", "Note"),
    "Contains": ("Company", "Company"),
}
CONDITIONS = {
    "Person": (
        *('email = "a"', 'id = "b"', "email in $keys", 'id in ["c", "d"]', "$word = email"),
        *("age > 1", "age = $two", "age is null", "2 <= age", "age = $none", "age * 2 = 4"),
        *("age / 2 > 1", "age % 2 = 1", "age = 1.0", 'status = "away"', 'status != "away"'),
        *('tags contains "x"', "name in tags", "height <= 1.5", "admin", "admin = false"),
        *('name starts_with "a"', "points > 9223372036854775807", "points = 7", "true", "1 = 2"),
        *("born is not null", 'born >= date("2000-01-01")', 'search(name, "a")', "joined < now()"),
        *('lower(name) = "a"', 'like(email, "_")', 'matches(name, "^[ab]")', "length(name) > 1"),
        *("coalesce(age, 2) = 2", "case when admin then age > 1 else age is null end"),
        *("try_cast(name as I64) is null", "if(admin, age, 1) = 1", "div(age, 2) = round(1.4)"),
        *('split(name, "\'") contains "s"', "sqrt(age) > 1.2", "cast(age as F64) = abs(-2.0)"),
    ),
    "Company": (
        *('code = "a"', "code in $keys", "size > 1", "size = 2", "city is null", "city = $city"),
        *(
            'city = "o"',
            'name contains "b"',
            "size + 1 >= 3",
            "true",
            "size < -9223372036854775807",
        ),
    ),
    "Note": (
        *('id = "a"', 'title = "a b"', 'title ends_with "c"', "vector is not null", "body is null"),
        *('search(title, "A")', 'match_text(title, "b c")', 'fuzzy(title, "cc", 1)', "id in $keys"),
    ),
    "Knows": (
        *('from = "a"', 'to = "b"', 'from = "a" or to = "a"', "weight > 1", "weight is null"),
        *("from = to", 'id = "k1"', "from in $keys", "weight = $two", "weight != weight", "true"),
    ),
    "WorksAt": ('from = "a"', 'role = "cook"', 'to in ["a", "b"]', 'id = "w0"', "true"),
    "Wrote": ('from = "b"', 'id = "w1"', 'to = "a"', "false"),
    "Contains": ("from = to", 'id = "c0"', 'to = "b"', "true"),
}
ASSIGNED = {
    "Person": (
        *("age: age + 1", "age: $none", "age: $two", "age: age * 1000000000", 'name: "z"'),
        *("name: email", 'status: "left"', "status: $word", 'tags: ["x", "it\'s"]', "tags: null"),
        *("points: 18446744073709551615", "points: age", "admin: age > 1", "height: 2.5"),
        *("height: height + 0.25", "height: age", "born: null", "admin: name = email"),
        *("tags: $keys", 'admin: search(name, "a b")'),
        *("name: upper(name)", 'name: concat(name, "-", email)', "age: coalesce(age, $two)"),
        *('tags: split(name, "t")', "age: if(admin, 1, age)", "height: sqrt(age)"),
        *("age: case when age > 1 then length(name) else age end", "name: cast($two as String)"),
        *('name: trim(replace(name, "a", " "))', "name: substring(email, 0, 1)"),
        *("age: try_cast(name as I32)", "age: cast(name as I32)", "points: abs(age)"),
    ),
    "Company": (
        *('city: "o"', "city: $city", "city: code", "city: null", "size: size * 2", 'name: "b"'),
        *("size: 9223372036854775807", "size: size + size", "size: -size"),
    ),
    "Note": ('title: "a"', "body: title", "vector: null", "vector: [0.5, 1.5]", "body: $word"),
    "Knows": ("weight: weight + 1", 'comment: "c"', "weight: $none", "comment: from"),
    "WorksAt": ('role: "boss"', "role: $word", "role: to"),
}
NODES = ("Person", "Company", "Note")


def one(*choices: str) -> st.SearchStrategy[str]:
    return st.sampled_from(choices)


def quoted(keys: tuple[str, ...] = KEYS) -> st.SearchStrategy[str]:
    return st.sampled_from([f'"{key}"' for key in keys])


@st.composite
def conditions(draw: st.DrawFn, kind: str) -> str:
    first, second = (draw(one(*CONDITIONS[kind])) for _ in range(2))
    return draw(
        one(first, first, f"{first} or {second}", f"({first}) and ({second})", f"not ({first})")
    )


@st.composite
def nodes(draw: st.DrawFn, kind: str) -> str:
    """An end of an edge, with or without its type."""
    end = draw(quoted(KEYS[:4]))
    return draw(one(end, f"node({kind}, {end})"))


@st.composite
def inserts(draw: st.DrawFn) -> str:
    word = draw(one("insert", "upsert", "replace"))
    kind = draw(one(*NODES, *ENDS))
    optional: tuple[str, ...] = {
        "Person": ("age: 3", "age: 1 + $two", 'tags: ["x"]', "age: $none", "points: 7"),
        "Company": ('city: "o"', "city: $city", "size: 4 * 4"),
        "Note": ("vector: [1, 2]", "body: $word"),
        "Knows": ("weight: $two", 'comment: "a b"'),
    }.get(kind, ())
    match kind:
        case "Person":
            status = draw(one('"active"', '"away"', '"left"'))
            given = [f"email: {draw(quoted())}", f"name: {draw(quoted())}", f"status: {status}"]
        case "Company":
            given = [f"code: {draw(quoted(KEYS[:4]))}", f"name: {draw(quoted())}"]
        case "Note":
            title = draw(one('"a b"', '"c"', "$word"))
            given = [f"id: {draw(quoted(KEYS[:3]))}", f"title: {title}"]
        case _:
            number = draw(st.integers(0, 4))
            ends = [f"from: {draw(nodes(ENDS[kind][0]))}", f"to: {draw(nodes(ENDS[kind][1]))}"]
            given = [f'id: "{kind[0].lower()}{number}"', *ends]
            given += ['role: "cook"'] if kind == "WorksAt" else []
    if draw(st.booleans()) and optional:
        given.append(draw(one(*optional)))
    return f"{word} {kind} {{ {', '.join(given)} }}"


@st.composite
def updates(draw: st.DrawFn) -> str:
    kind = draw(one(*ASSIGNED))
    chosen = draw(st.lists(one(*ASSIGNED[kind]), min_size=1, max_size=3))
    by_property = {each.partition(":")[0]: each for each in chosen}
    listed = ", ".join(by_property.values())
    return f"update {kind} set {{ {listed} }} where {draw(conditions(kind))}"  # noqa: S608 - no SQL


@st.composite
def deletes(draw: st.DrawFn) -> str:
    kind = draw(one(*CONDITIONS))
    return f"delete {kind} where {draw(conditions(kind))}"


SEVERAL, EDGES, ANY = "Person or Company", "Knows or WorksAt", "any"
MATCHES = {
    "$p: Person": ("Person", "p"),
    "$p: Person  $p.age > 1": ("Person", "p"),
    "$p: Person  $p $e: knows $q  $p.age < $q.age": ("Knows", "e"),
    "$p: Person  $p knows $q  not { $q knows $p }": ("Person", "q"),
    "$p: Person  $p worksAt $c": ("Company", "c"),
    "$p: Person  optional { $p worksAt $c }": ("Company", "c"),
    "$p: Person  $p $e: worksAt $c  $c.size > 1": ("WorksAt", "e"),
    "$p: Person  $p wrote $n  $p.email in $keys": ("Note", "n"),
    "$c: Company  $c contains{1,2} $d": ("Company", "d"),
    "$c: Company  $c.city = $city": ("Company", "c"),
    "$p: Person  exists { $p wrote $_ }": ("Person", "p"),
    "$p: Person  count { $p knows $_ } > 1": ("Person", "p"),
    "$p: Person  $p knows{1,} $q  lower($q.name) != $p.name": ("Person", "q"),
    "$p: Person  $p knows|worksAt $z  $z.id != $p.id": ("Person", "p"),
    "$p: Person  $p <_>{0,2} $z  $z: Company": ("Company", "z"),
    "$p: Person|Company  $p _ $n  $n: Note": ("Note", "n"),
    "$a: Person|Company  $a.name in $keys": (SEVERAL, "a"),
    "$a: Named  optional { $p knows $a }": (SEVERAL, "a"),
    "$p: Person  $p knows|worksAt $a  $p.age > 1": (SEVERAL, "a"),
    "$p: Person  $p $e: knows|worksAt $_": (EDGES, "e"),
    "$a: _  $a.id in $keys": (ANY, "a"),
}
"""Patterns, and a variable of them with its type."""
MATCHED_VALUES = {
    "Person": (
        *("age: count(*)", "age: 7", "name: $v.email", "age: $v.age + 1", "age: $none"),
        *(
            "name: upper($v.name)",
            "age: coalesce($v.age, 3)",
            "age: if($v.admin, 1, length($v.id))",
        ),
        *("name: first($v.email by $v.age)", "height: stddev($v.age)", "name: last($v.id by 1)"),
        "height: percentile($v.age, 0.5)",
    ),
    "Company": (
        *("size: count(*)", "size: 3", "city: $v.code", "size: $v.size + 1", "city: null"),
        *('name: concat($v.name, "!")', "size: case when $v.size > 1 then 1 else null end"),
    ),
    "Note": ("title: $v.id", "body: $word", "body: max($v.title)", 'body: replace($v.id, "a", "")'),
    "Knows": ("weight: count(*)", "weight: $two", "comment: $v.src"),
    "WorksAt": ("role: $word", "role: $v.dst"),
    SEVERAL: ("name: $v.id", 'name: concat($v.name, "s")', "name: max($v.name)", "name: $word"),
    EDGES: (),
    ANY: (),
}
MATCHED_INSERTS = {
    "Person": "{word} Company {{ code: $v.email, name: $v.name, size: $v.age }}",
    "Company": '{word} Note {{ id: $v.code, title: "of" }}',
    "Note": 'insert Company {{ code: "n", name: $v.title }}',
    "Knows": "{word} Knows {{ id: $v.id, from: $v.dst, to: $v.src, weight: 1 }}",
    SEVERAL: "{word} Note {{ id: $v.id, title: type($v) }}",
    EDGES: "{word} Company {{ code: $v.id, name: type($v) }}",
    ANY: "{word} Note {{ id: $v.id, title: type($v) }}",
    "WorksAt": "insert Knows {{ id: $v.id, from: $v.src, to: $v.src, comment: $v.role }}",
}


@st.composite
def matched(draw: st.DrawFn) -> str:
    """Statements for the rows of a match."""
    pattern = draw(one(*MATCHES))
    kind, variable = MATCHES[pattern]
    statements: list[str] = []
    for _ in range(draw(st.integers(1, 2))):
        values = [value.replace("$v", f"${variable}") for value in MATCHED_VALUES[kind]]
        choices = [f"delete ${variable}"]
        if values:
            chosen = draw(st.lists(one(*values), min_size=1, max_size=2))
            by_property = {each.partition(":")[0]: each for each in chosen}
            listed = ", ".join(by_property.values())
            choices.append(f"update ${variable} set {{ {listed} }}")  # noqa: S608 - no SQL
        insert = MATCHED_INSERTS[kind].format(word=draw(one("insert", "upsert", "replace")))
        choices.append(insert.replace("$v", f"${variable}"))
        statements.append(draw(one(*choices)))
    return f"match {{ {pattern} }} {' '.join(statements)}"


@st.composite
def mutations(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 2)) == 0:
        return draw(matched())
    statements = draw(st.lists(st.one_of(inserts(), updates(), deletes()), min_size=1, max_size=5))
    return "\n".join(statements)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """A random graph that keeps the rules."""
    graph: dict[str, Any] = random_graph(random.Random(draw(st.integers(0, 2**32))))
    cities: set[str] = set()
    for company in graph["nodes"]["Company"]:
        company["city"] = None if company["city"] in cities else company["city"]
        cities.add(company["city"])
    jobs = {edge["src"]: edge for edge in graph["edges"]["WorksAt"]}
    for number, edge in enumerate(jobs.values()):
        edge["role"] = ("cook", "boss")[number % 2]
    graph["edges"]["WorksAt"] = list(jobs.values())
    return graph


def breaks_a_rule(graph: Graph) -> bool:
    """Whether ends are missing, a city is taken twice, or somebody has two jobs."""
    ids = {kind: {row["id"] for row in graph["nodes"].get(kind, ())} for kind in CATALOG.nodes}
    for name, ends in ENDS.items():
        for edge in graph["edges"].get(name, ()):
            if edge["src"] not in ids[ends[0]] or edge["dst"] not in ids[ends[1]]:
                return True
    cities = Counter(row["city"] for row in graph["nodes"]["Company"] if row["city"] is not None)
    jobs = Counter(edge["src"] for edge in graph["edges"]["WorksAt"])
    return any(count > 1 for count in (*cities.values(), *jobs.values()))


def plain(graph: Graph) -> dict[str, dict[str, dict[str, Any]]]:
    """Rows by type and id; lists as tuples, and no blobs."""
    return {
        name: {row["id"]: _plain_row(row) for row in rows}
        for kind in ("nodes", "edges")
        for name, rows in graph[kind].items()
        if rows
    }


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in row.items()
        if name != "photo"
    }
