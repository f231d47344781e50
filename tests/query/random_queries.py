"""Random queries over random small graphs: `python -m tests.query.random_queries 5000 [seed]`.

For each one the evaluator, which reads the typed query, and the interpreter, which runs its
plan, must agree, whichever rewrites the plan went through.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
import re
import sys
from dataclasses import dataclass, replace
from typing import Any

from omnigraph_lake.query.compile import compile_queries, diagnose_queries
from omnigraph_lake.query.expressions import PathPart
from omnigraph_lake.query.plan import Limit, Mutation
from omnigraph_lake.query.planning import ALL_STEPS, NO_STEPS, Steps, plan_query
from omnigraph_lake.query.typed import TypedQuery
from tests.query.evaluator import evaluate
from tests.query.expression_values import EvaluationError, Graph, order_key
from tests.query.interpreter import interpret
from tests.query.people import CATALOG, company, edge, note, person

TYPES = {"p": "Person", "q": "Person", "r": "Person", "c": "Company", "d": "Company", "n": "Note"}
EDGES = [
    *(("p", "knows", "q"), ("q", "knows", "r"), ("p", "knows", "r"), ("p", "knows", "p")),
    *(("q", "knows", "p"), ("p", "<knows>", "q"), ("q", "<knows>", "r")),
    *(("p", "knows{1,2}", "q"), ("q", "knows{2,3}", "r"), ("p", "<knows>{1,3}", "r")),
    *(("p", "worksAt", "c"), ("c", "worksAt", "q"), ("r", "worksAt", "d"), ("d", "worksAt", "p")),
    *(
        ("p", "wrote", "n"),
        ("n", "wrote", "q"),
        ("c", "contains", "d"),
        ("d", "contains{1,2}", "c"),
    ),
    *(("x", "worksAt", "c"), ("x", "knows", "p"), ("p", "knows", "x"), ("x", "worksAt", "y")),
    *(("p", "knows{1,}", "r"), ("q", "<knows>{0,}", "p"), ("c", "contains{0,2}", "d")),
    *(("p", "knows", "_"), ("_", "worksAt", "c"), ("p", "worksAt{2,3}", "c")),
    *(("p", "knows>", "q"), ("q", "<knows", "p"), ("p", "<knows{1,2}", "r")),
    *(("p", "worksAt>", "c"), ("c", "<worksAt", "p"), ("p", "knows|worksAt>{1,2}", "z")),
    *(("p", "knows|worksAt", "z"), ("z", "worksAt|wrote", "p"), ("p", "<knows|worksAt>", "q")),
    *(("p", "knows|worksAt{1,2}", "c"), ("p", "<knows|worksAt|contains>{1,3}", "z")),
    *(("c", "worksAt|contains", "z"), ("z", "knows|wrote{1,2}", "n"), ("p", "_", "q")),
    *(("p", "_", "z"), ("z", "<_>", "c"), ("p", "<_>{1,2}", "z"), ("z", "_{1,3}", "n")),
    *(("p", "<_>{2,2}", "q"), ("c", "<_>{1,2}", "d"), ("x", "<_>{1,2}", "y")),
]
BLOCKS = [
    "exists BLOCK",
    "not exists BLOCK",
    "(exists BLOCK or OTHER)",
    "count BLOCK > 1",
    "not (OTHER and count BLOCK = 0)",
]
CONDITIONS = {
    "Person": [
        *(
            "age > 1",
            "age = 2",
            "age is null",
            "age in [1, 3]",
            'name = "a"',
            "admin",
            "age = null_age",
        ),
        *('tags contains "x"', 'status != "away"', 'id = "b"', "height <= 1.5", 'email = "a"'),
        *("age + 1 > 2", 'name starts_with "a"', "1 = 2", "age % 2 = 1", "age = 1.0"),
        *('like($v.name, "a%")', 'matches($v.name, "^[ab]$")', 'upper($v.name) = "A"'),
        *('split($v.name, "a") contains ""', "length($v.name) = div(3, $v.age)"),
        *("coalesce($v.age, 2) = 2", "case when $v.admin then $v.age = 1 else $v.age > 1 end"),
        *("try_cast($v.name as I64) is null", "if($v.admin, $v.height, cast($v.age as F64)) > 1.5"),
        *(
            "round($v.height) + abs(-$v.age) > 3",
            'concat($v.id, "b") = replace($v.name, "a", "bb")',
        ),
        *("sqrt($v.age) > 1 or floor($v.height) = ceil($v.height)", 'substring($v.id, 0, 1) = "a"'),
        *('trim(lower($v.name)) = "a"', "$v.age = 1"),
    ],
    "Company": ["size > 1", "city is null", 'city = "o"', 'code = "a"', 'name contains "b"'],
    "Note": ['search($n.title, "a")', "vector is not null", 'title ends_with "c"'],
    "_": ['id = "a"', 'type($v) = "Company"', 'id != "b"'],
    "Named": ['name != "b"', 'name in ["a", "c"]', 'type($v) = "Person"', 'id = "a"'],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    text: str
    steps: Steps
    expected: list[Any]
    found: list[Any]


def random_graph(generator: random.Random) -> dict[str, dict[str, list[dict[str, Any]]]]:
    letters = "abcd"[: generator.randrange(1, 5)]
    one = generator.choice

    def maybe(*choices: Any) -> Any:
        return one([None, *choices])

    people = [
        person(
            key,
            one(letters),
            age=maybe(1, 2, 3),
            height=maybe(1.5, 2.0),
            tags=maybe((), ("x",), ("y", None), ("x", "y")),
            status=one(["active", "away"]),
            admin=maybe(True, False),
            born=maybe(dt.date(2000, 1, 1)),
        )
        for key in letters
    ]
    companies = [
        company(key, one("abc"), city=maybe("o", "p"), size=maybe(1, 2)) for key in letters[:3]
    ]
    notes = [note(key, one(["a b", "b c", "c a"]), vector=maybe((1.0, 2.0))) for key in letters[:2]]
    nodes = {"Person": people, "Company": companies, "Note": notes}
    edges: dict[str, list[dict[str, Any]]] = {}
    for name, count in (("Knows", 6), ("WorksAt", 4), ("Wrote", 3), ("Contains", 3)):
        declared = CATALOG.edges[name]
        edges[name] = [
            edge(
                name,
                f"{name[0].lower()}{number}",
                one(nodes[declared.source.only])["id"],
                one(nodes[declared.target.only])["id"],
                **({"weight": maybe(1, 2)} if name == "Knows" else {}),
            )
            for number in range(generator.randrange(count))
        ]
    return {"nodes": nodes, "edges": edges}


def _condition(generator: random.Random, variable: str) -> str:
    kind = "_" if variable == "z" else TYPES.get(variable, "Named")
    text = generator.choice(CONDITIONS[kind])
    if "$v" in text or "$n." in text:
        return text.replace("$v.", f"${variable}.").replace("$v)", f"${variable})")
    condition = f"${variable}.{text}" if text[0].isalpha() else text
    return condition.replace("null_age", "$none")


def _bindings(generator: random.Random, known: set[str], *, depth: int) -> list[str]:
    lines: list[str] = []
    wanted = generator.sample(sorted([*TYPES, "x", "y"]), k=generator.randrange(depth == 0, 3))
    if generator.random() < 0.1:
        lines.append(generator.choice(["$z: _", "$z: Person|Company", '$z: _ { id: "a" }']))
        known.add("z")
    for variable in wanted:
        if variable == "n" and generator.random() < 0.5:
            continue
        kind = TYPES.get(variable, "Named")
        braces = generator.choice(["", "", ' { name: "a" }', ' { id: "b" }'])
        lines.append(f"${variable}: {kind}{braces if kind != 'Note' else ''}")
        known.add(variable)
    return lines


def _clauses(generator: random.Random, known: set[str], *, depth: int) -> list[str]:
    lines = _bindings(generator, known, depth=depth)
    for left, name, right in generator.sample(EDGES, k=generator.randrange(3)):
        if depth and not {left, right} & known:
            continue
        variable = generator.choice(["", "", f"$e{len(lines)}{depth}: "]) if "{" not in name else ""
        path = f" as $w{len(lines)}{depth}" if "{" in name and generator.random() < 0.5 else ""
        path += " by weight" if path and ",}" in name else ""
        lines.append(f"${left} {variable}{name} ${right}{path}")
        known |= {left, right} - {"_"}
    filtered = generator.sample(sorted(known), k=min(len(known), generator.randrange(3)))
    lines += [_joined(generator, variable, known) for variable in filtered]
    if depth < 2 and known:
        for _ in range(generator.randrange(2)):
            word = generator.choice(["not", "optional", *BLOCKS])
            seen = set(known)
            inner = "\n".join(_clauses(generator, seen, depth=depth + 1))
            if inner and word in BLOCKS:
                other = _condition(generator, generator.choice(sorted(known)))
                lines.append(word.replace("BLOCK", f"{{ {inner} }}").replace("OTHER", other))
            elif inner:
                lines.append(f"{word} {{ {inner} }}")
                known |= seen if word == "optional" else set()
    if known and generator.random() < 0.3:
        lines.append(_joined(generator, generator.choice(sorted(known)), known))
    return lines


def _joined(generator: random.Random, variable: str, known: set[str]) -> str:
    one = _condition(generator, variable)
    other = _condition(generator, generator.choice(sorted(known)))
    return generator.choice(
        [one, one, f"({one} or {other})", f"not ({one})", f"({one} and {other})"]
    )


def random_query(generator: random.Random) -> str:
    known: set[str] = set()
    lines = _clauses(generator, known, depth=0)
    names = sorted(known)
    columns = [f"${each}.id" for each in names[:3]] or ["1"]
    columns += ["type($z)"] if "z" in known else []
    edges = re.findall(r"^\$\w+ \$(\w+): ", "\n".join(lines), flags=re.MULTILINE)
    columns += [f"type(${edge})" for edge in edges]
    ways = [
        line.split(" as $")[1].partition(" by ")
        for line in lines
        if line[0] == "$" and " as $" in line
    ]
    if names and generator.random() < 0.3:
        inner = " ".join(_clauses(generator, set(known), depth=1))
        columns += [f"count {{ {inner} }} as many", f"exists {{ {inner} }} as any"] if inner else []
    columns += [
        f"{part}(${way})"
        for way, is_weighted, _ in ways
        for part in PathPart
        if is_weighted or part is not PathPart.WEIGHT
    ]
    style = generator.randrange(5)
    tail = ""
    if style == 0 and names:
        columns = [f"${names[0]}.id", "count(*) as n", f"count(distinct ${names[-1]}.id)"]
        computed = [f"count(*) / count(distinct ${names[-1]}.id) as per"]
        computed += [f"concat(${names[0]}.id, cast(max(${names[-1]}.id) as String)) as both"]
        columns += [generator.choice(computed)] if generator.random() < 0.4 else []
        by = f"${names[-1]}.id by type(${names[-1]})"
        columns += [f"first({by}) as one", f"last({by})"] if generator.random() < 0.3 else []
        ages = [f"${each}.age" for each in names if TYPES.get(each) == "Person"]
        columns += [f"stddev({ages[0]}), percentile({ages[0]}, 0.5)"] if ages else []
        tail = generator.choice(["", "", "having n > 1 ", "having not (n = 2) and n < 9 "])
        tail += "order { n desc }"
    elif style == 1 and names:
        columns = [generator.choice([f"${names[-1]}", f"${names[-1]}.*"])]
    elif style == 2 and names:
        tail = f"order {{ ${names[0]}.id desc }} limit 4 offset 1"
    elif style == 3 and "n" in known:
        columns.append("nearest($n.vector, [0, 1]) as far")
        tail = "order { far } limit 3"
    distinct = "distinct " if generator.random() < 0.2 else ""
    body, listed = "\n".join(lines), ", ".join(columns)
    result = f"return {distinct}{{ {listed} }} {tail}"
    if generator.random() < 0.2:
        return f"($none: I32?) match {{ {body} }} {result}"
    return f"query q($none: I32?) {{ match {{ {body} }} {result} }}"


def compiled_or_none(text: str) -> TypedQuery | None:
    if diagnose_queries(text, catalog=CATALOG):
        return None
    (typed,) = compile_queries(text, catalog=CATALOG, filename="random.gq").values()
    return typed


def disagreements(text: str, typed: TypedQuery, graph: Graph) -> list[Disagreement]:
    given = {"none": None}
    try:
        answer = evaluate(typed, CATALOG, graph, given)
    except EvaluationError:
        return []
    found: list[Disagreement] = []
    for steps in all_steps():
        plan = plan_query(typed, CATALOG, steps=steps)
        assert not isinstance(plan, Mutation)
        if isinstance(plan, Limit) and not answer.ordered:
            plan = plan.input
        expected = answer.rows if answer.ordered else answer.all_rows
        rows = interpret(plan, CATALOG, graph, given)
        if _comparable(rows, ordered=answer.ordered) != _comparable(
            expected, ordered=answer.ordered
        ):
            found.append(Disagreement(text=text, steps=steps, expected=expected, found=rows))
    return found


def all_steps() -> list[Steps]:
    names = Steps.__dataclass_fields__
    return [NO_STEPS, ALL_STEPS, *(replace(ALL_STEPS, **{name: False}) for name in names)]


def _comparable(rows: list[dict[str, Any]], *, ordered: bool) -> list[Any]:
    plain = [tuple((name, _plain(value)) for name, value in row.items()) for row in rows]
    return plain if ordered else sorted(plain, key=repr)


def _plain(value: Any) -> Any:
    return repr(value) if isinstance(value, dict) else order_key(value)


def run(count: int, seed: int) -> tuple[int, int, list[Disagreement]]:
    """How many queries compiled, how many gave rows, and where the two disagree."""
    generator = random.Random(seed)
    compiled, fruitful = 0, 0
    found: list[Disagreement] = []
    for _ in itertools.repeat(None, count):
        text = random_query(generator)
        typed = compiled_or_none(text)
        if typed is None:
            continue
        compiled += 1
        graph = random_graph(generator)
        found += disagreements(text, typed, graph)
        fruitful += bool(evaluate(typed, CATALOG, graph, {"none": None}).rows)
    return compiled, fruitful, found


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    compiled, fruitful, found = run(count, seed)
    print(f"queries {count}, compiled {compiled}, with rows {fruitful}, wrong {len(found)}")
    for each in found[:3]:
        print(each.text, each.steps, each.expected[:5], each.found[:5], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
