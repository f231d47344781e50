"""Seeded random inputs for the query compiler: `python -m tests.query.fuzz 200000 [seed]`.

Every input must give diagnostics, quickly, and each must be printable; when it has no error,
it must compile, print to a text with the same tree, be planned and explained.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from omnigraph_lake.language.diagnostics import Span, render
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.functions import DECLARATIONS
from omnigraph_lake.query.lint import lint_queries
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.query.plan_text import explain
from omnigraph_lake.query.planning import plan_query
from tests.corpus.lines import Suite
from tests.fuzzing import Language, main
from tests.query.people import CATALOG
from tests.query.printing import print_queries
from tests.query.random_queries import random_query

SECONDS_MAX = 5.0

SEED_TEXT = """
// all of the language
query everything($s: String, $l: [String]?, $v: Vector(2), $n: I32, $d: Date, $b: Bool)
    @description("a \\"text\\"") @instruction("i")
{
    match {
        $p: Person { name: $s, tags: "x", age: -3, }
        $p $e: knows $q   $q <knows> $r   $r knows{1,3} $t as $way
        $r knows{0,} $u as $light by weight   weight($light) < 4
        $x: Named   $x worksAt> $c   $c contains $o
        $p.age > 3 and not ($q.age in [1, -2] or $r.name is not null)
        $l contains $p.name   "x" in $p.tags   $p.born >= date("2020-01-31")
        $p.joined < now() and $p.joined != datetime("2020-01-31T10:00:00Z")
        $p.age * 2 - 1 + $q.age / 3 >= -($r.age % 4)
        not { $p wrote $_ }   not exists { $p wrote $_ }   count { $p knows $_  $p.age > 3 } < 4
        optional { $p wrote $m  search($m.title, $s) or match_text($m.body, "a b") }
        fuzzy($p.name, "x", 1)   $b = true   type($x) = "Person"
        $note: Note
    }
    return distinct {
        $p.name as name, $e, length($way) nodes($way) edges($way), $p.age + 1, $c.name ends_with "x"
        nearest($note.vector, $v) as far, exists { $p worksAt $c } as employed
    }
    order { far asc, name desc } limit $n offset 10
}
query counted() {
    match { $p: Person }
    return { $p.status, count(*) as n, count(distinct $p.age), sum($p.age), avg($p.age),
        min($p.born), max($p.name), collect($p.id), stddev($p.age) as d, percentile($p.age, 0.5)
        first($p.name by $p.age) as eldest, last($p.name by -$p.age) }
    having n > 1 and not (d is null) or eldest starts_with "A" and count(*) % 2 = 0
    order { n desc } limit 3
}
query computed($s: String?, $n: I64) {
    match {
        $p: Person   $p knows|worksAt $any   $any: Person|Company   $any _>{0,2} $far as $way
        $all: _   $all <_> $_   $p <knows|wrote>{2,} $deep   $all.id != "x"
        like($p.name, "a\\\\%_") or matches($p.name, "^[a-z]+$") and split($p.name, ",") contains $s
        length(trim($p.name)) > 2 or coalesce($p.age, $n, 3) = div($p.age, 2)
        year($p.born) + month($p.born) - day($p.born) > hour($p.joined) * minute($p.joined)
        second($p.joined) = weekday($p.born) or week($p.joined) = 1 and any([true]) or all([])
        truncate($p.joined, "month") < add($p.joined, -3, "day") + duration("P1DT2H")
        between_days($p.born, now()) > 3 or between_microseconds($p.born, $p.joined) > 4
    }
    return {
        $p.* , types($way) edge_types($way), case when $p.age > 3 then "old" when $p.age is null
        then null else lower($p.name) end as kind, if($p.admin, upper($s), concat($p.name, "-", $s))
        cast($p.age as String) as text, try_cast($p.name as DateTime), round($p.height, 1)
        abs(-$p.age) + floor($p.height) - ceil(1.5) * sqrt($n), substring($p.name, 0, 2)
        json_type(json("[1]"), "[0]")
        replace($p.name, "a", $s), round(1250, -2), count { $p wrote $_ } as many
        slice($p.tags, 0, 1), $p.joined - $p.born
    }
    order { if($p.age > 1, $p.name, $s) desc, many, length($way) }
}
query raise_all($n: I32) {
    match { $p: Person  $p $e: knows $q  exists { $q wrote $_ }  $p.age < $n }
    update $p set { age: count($q), name: max($q.name), tags: split($p.name, " ") }
    update $e set { weight: $n }
    delete $q
}
query derive() {
    match { $p: Person  $p worksAt $c }
    insert Note { id: concat($p.id, "-", $c.id), title: lower($p.name) }
    upsert Knows { id: $p.id, from: node(Person, $p.id), to: $p.id }
}
query fused($v: Vector(2)) {
    match { $n: Note }
    return { $n.title, rrf(nearest($n.vector, $v), bm25($n.title, "x"), 10) as s }
    order { s } limit 3
}
query change($k: String, $n: I32?) {
    insert Person { email: $k, name: "x" status: "away", tags: ["a"], joined: now() }
    replace Note { id: $k, title: "t", vector: [0.5, -1] body: null }
    insert Knows { from: $k, to: node(Person, "a"), since: date("2020-01-01") }
    update Person set { age: age + 1, name: $k } where email = $k or age in [1, 2]
    update Knows set { weight: $n } where from = $k and not (to = "b")
    delete Person where age is null
}
"""
ADHOC_TEXT = """
($least: I32, $names: [String]?) match { $p: Person  $p.age > $least $p.name in $names }
return { $p.*, $p.id } order { $p.age desc } limit 3
"""
WORDS = [
    *(
        "query",
        "match",
        "return",
        "distinct",
        "having",
        "by",
        "first(",
        "order",
        "limit",
        "offset",
        "optional",
        "not",
    ),
    *("and", "or", "in", "is", "null", "true", "false", "contains", "starts_with", "ends_with"),
    *(
        "as",
        "asc",
        "desc",
        "insert",
        "upsert",
        "replace",
        "update",
        "delete",
        "set",
        "where",
        "from",
        "to",
    ),
    *("{", "}", "(", ")", "[", "]", ":", ",", ".", "?", "*", "/", "%", "+", "-", "=", "!=", "!"),
    *("<", ">", "<=", ">=", "<knows>", "{1,2}", "{1,}", "{0,0}", "==", "&&", ";", "$", "@", "'"),
    *("$p", "$q", "$_", "$x", "$s", "$e", "$p.name", "$p.age", "$p.photo", "$e.weight", "$x.id"),
    *("knows", "worksAt", "Person", "Named", "Note", "Knows", "String", "Vector(2)", "[I32]"),
    *("count(", "count(*)", "sum(", "collect(", "search(", "fuzzy(", "nearest(", "bm25(", "rrf("),
    *("now()", "date(", "type($x)", "length(", "name", "age", "email", "status", "@description("),
    *('"text"', '""', '"', "\\", "//", "/*", "*/", "\n", "\r\n", "\t", " ", "0", "1", "-1", "1.5"),
    *("\x00", "\x1b", "\ufeff", "\ud800", "\u202e", "é", "😀", "\u2028", "Å", "\uff10"),
    *(f"{function.value}(" for function in DECLARATIONS),
    *("case", "when", "then", "else", "end", "if(", "coalesce(", "cast(", "try_cast(", "as I64)"),
    *("exists {", "count {", "|", "_", "$p.*", "$x: _", "Person|Company", "knows|worksAt", "<_>"),
    *("types(", "edge_types(", "percentile(", "stddev(", "last(", "{0,}", "update $p set {"),
    *("delete $p", "node(", "node(Person,", "{0,2}", "$way", "date_", "%%"),
]


def exercise(text: str) -> bool:
    report = lint_queries(text, catalog=CATALOG)
    for each in report.findings[:5]:
        assert 0 <= each.span.offset <= each.span.end <= len(text) + 1
        assert render(each, text=text, filename="fuzz.gq").count("\n") in (2, 3)
    if report.refusal is None:
        _prints_to_itself(text)
    if report.has_errors:
        return False
    for query in compile_queries(text, catalog=CATALOG, filename="fuzz.gq").values():
        assert explain(plan_query(query, CATALOG)).endswith("\n")
    return True


def _prints_to_itself(text: str) -> None:
    parsed = parse_queries(text)
    if "second=Name" in repr(parsed):
        return
    again = parse_queries(print_queries(parsed))  # type: ignore[arg-type]
    assert without_places(again) == without_places(parsed)


def without_places(node: Any) -> Any:
    """A tree as nested tuples, without the places of its parts."""
    if isinstance(node, tuple):
        return tuple(map(without_places, node))
    if not is_dataclass(node):
        return node
    parts = [getattr(node, field.name) for field in fields(node)]
    return (
        type(node).__name__,
        *(without_places(each) for each in parts if not isinstance(each, Span)),
    )


def _token_soup(generator: random.Random) -> str:
    words = generator.choices(WORDS, k=generator.randrange(60))
    return generator.choice(["", " "]).join(words)


def _clause_soup(generator: random.Random) -> str:
    words = " ".join(generator.choices(WORDS, k=generator.randrange(12)))
    return f"query q($s: String) {{ match {{ $p: Person {words} }} return {{ $p.name }} }}"


def _shuffled(generator: random.Random) -> str:
    parts = _text(generator).split()
    for _ in range(generator.randrange(1, 6)):
        i, j = generator.randrange(len(parts)), generator.randrange(len(parts))
        parts[i], parts[j] = parts[j], parts[i]
    return " ".join(parts)


def _mutated(generator: random.Random) -> str:
    text = generator.choice(_queries())
    for _ in range(generator.randrange(4)):
        at = generator.randrange(len(text))
        cut = at + generator.randrange(4)
        text = text[:at] + generator.choice([*WORDS, ""]) + text[cut:]
    return text


def _replaced_words(generator: random.Random) -> str:
    text = generator.choice(_queries())
    places = [found.span() for found in re.finditer(r"[$@]?\w+|[^\s\w]", text)]
    for _ in range(generator.randrange(1, 3)):
        start, end = generator.choice(places)
        if end <= len(text):
            text = text[:start] + generator.choice(WORDS) + text[end:]
    return text


def _text(generator: random.Random) -> str:
    """Mostly one query, because a long text costs as much as ten and shows its first error."""
    return SEED_TEXT if generator.random() < 0.1 else generator.choice(_queries())


def _queries() -> list[str]:
    return [ADHOC_TEXT, *("query " + each for each in SEED_TEXT.split("\nquery ")[1:])]


def _byte_flipped(generator: random.Random) -> str:
    content = bytearray(_text(generator).encode())
    for _ in range(generator.randrange(1, 5)):
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return content.decode("utf-8", "surrogateescape")


def _truncated(generator: random.Random) -> str:
    text = _text(generator)
    return text[: generator.randrange(len(text))]


def _random_characters(generator: random.Random) -> str:
    top = generator.choice([0x80, 0x800, 0x110000])
    return "".join(chr(generator.randrange(top)) for _ in range(generator.randrange(80)))


def _nested(generator: random.Random) -> str:
    depth = generator.choice([1, 5, 30, 62, 64, 66, 500, 3000])
    opener, closer = generator.choice(
        [
            *(("(", ")"), ("[", "]"), ("not (", ")"), ("-", ""), ("not ", ""), ("1 + ", "")),
            *(("$p.age * ", ""), ("count(", ")"), ("true and (", ")"), ("-(", ")")),
        ]
    )
    inner = opener * depth + generator.choice(["1", "true", "$p.age", ""]) + closer * depth
    block = generator.choice(["not {", "optional {", "{"])
    return generator.choice(
        [
            f"query q() {{ match {{ $p: Person {inner} }} return {{ 1 }} }}",
            f"query q() {{ match {{ $p: Person 1 = {inner} }} return {{ {inner} }} }}",
            f"query q() {{ delete Person where {inner} }}",
            "query q() { match { $p: Person " + block * depth + " $p knows $q " + "}" * depth,
            f"query q() {{ match {{ $p: Person {(block + ' $p knows $q ') * depth}{'}' * depth}"
            " } return { 1 } }",
        ]
    )


def _huge(generator: random.Random) -> str:
    size = generator.choice([255, 256, 400, 401, 5000, 50_000])
    long = generator.choice("a9_") * size
    start = "query q() { match { $p: Person "
    return generator.choice(
        [
            f"query q{long}() {{ match {{ $p: Person }} return {{ 1 }} }}",
            f"query q($a{long}: I32) {{ match {{ $p: Person }} return {{ 1 }} }}",
            f"query q($a: Vector(1{long})) {{ match {{ $p: Person }} return {{ 1 }} }}",
            f"{start} $p.age = 1{long} }} return {{ 1 }} }}",
            f"{start} $p.age = 1.{long} }} return {{ 1 }} }}",
            f"{start} $p knows{{1,1{long}}} $q }} return {{ 1 }} }}",
            f'{start} $p.name = "{long}" }} return {{ "{long}" }} }}',
            f"{start} $p.a{long} = 1 $p a{long} $q $z{long}.b = 1 }} return {{ 1 as a{long} }} }}",
            f"{start} $p.age in [{', '.join(['1'] * (size % 3000))}] }} return {{ 1 }} }}",
            f"{start} {'$p knows $_ ' * (size % 170)} }} return {{ 1 }} }}",
            f"{start} {' or '.join(['$p.age = 1'] * (size % 500 + 1))} }} return {{ 1 }} }}",
            f"{start} }} return {{ 1 }} limit 1{long} }}",
        ]
    )


def _unterminated(generator: random.Random) -> str:
    cut = generator.randrange(len(SEED_TEXT))
    ending = generator.choice(
        ['"', '"\\', "/*", "/* *", "//", "@", "0.", "$", "-", "'", '"\\"', "<"]
    )
    return SEED_TEXT[:cut] + ending


GENERATORS: list[Callable[[random.Random], str]] = [
    *(_token_soup, _clause_soup, _clause_soup, _shuffled, _mutated, _mutated, _replaced_words),
    *(_replaced_words, _byte_flipped, _truncated, _random_characters, _nested, _huge),
    *(_unterminated, random_query, random_query),
]


LANGUAGE = Language(
    suite=Suite.QUERY_TEXT,
    generators=GENERATORS,
    exercise=exercise,
    seconds_max=SECONDS_MAX,
)

if __name__ == "__main__":
    sys.exit(main(LANGUAGE))
