"""Seeded random inputs for the schema front end: `python -m tests.schema.fuzz 200000 [seed]`.

Every input must give a tuple of diagnostics, quickly, and each must be printable; when it has
no error, it must compile and format.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

from omnigraph_lake.language.diagnostics import Severity, render
from omnigraph_lake.schema.compile import compile_schema, lint_schema
from omnigraph_lake.schema.format import format_schema
from tests.corpus.lines import Suite
from tests.fuzzing import Language, main

SECONDS_MAX = 1.0

SEED_TEXT = """
// people
interface Named { name: String @index @description("a \\"name\\"") }
node Person @description("x") implements Named {
    email: String @key /* c */
    age: I32? status: enum(a, b-c, 9) tags: [String]? v: Vector(8) @embed("email", model="m")
    w: Vector(3)? @index(metric=l2) @index(v, metric=dot) @index(age, status)
    @range(age, -5..150.5) @check(email, "^[^@]+@\\\\w+$") @unique(email, age)
}
edge Knows: Person -> Person @card(0..1) @instruction("i") { since: Date @unique(src, dst) }
edge Likes: Person -> Person
"""
WORDS = [
    *("node", "edge", "interface", "implements", "enum", "Vector", "String", "Blob", "I64"),
    *("{", "}", "(", ")", "[", "]", ":", ",", "->", "-", "..", ".", "=", "?", "*", "@", ";"),
    *("@key", "@unique", "@index", "@range", "@check", "@card", "@cluster"),
    *("@embed", "@description"),
    *("metric", "cosine", "l2", "@index(metric=", "@index(metric=dot)", "metric=dot"),
    *("@rename_from", "@instruction", "@zz", "Person", "Named", "name", "id", "src", "true"),
    *('"text"', '""', '"', "\\", "//", "/*", "*/", "\n", "\r\n", "\t", " ", "0", "-1", "1.5"),
    *("\x00", "\x1b", "\ufeff", "\ud800", "\u202e", "é", "😀", "\u2028", "Å", "\uff10"),
]


def exercise(text: str) -> bool:
    findings = lint_schema(text)
    for each in findings[:5]:
        assert 0 <= each.span.offset <= each.span.end <= len(text) + 1
        assert render(each, text=text, filename="fuzz.pg").count("\n") in (2, 3)
    if any(each.severity is Severity.ERROR for each in findings):
        return False
    compile_schema(text, filename="fuzz.pg", identity_domain="D")
    formatted = format_schema(text)
    assert format_schema(formatted) == formatted
    return True


def _token_soup(generator: random.Random) -> str:
    words = generator.choices(WORDS, k=generator.randrange(60))
    return generator.choice(["", " "]).join(words)


def _shuffled(generator: random.Random) -> str:
    parts = SEED_TEXT.split()
    for _ in range(generator.randrange(1, 6)):
        i, j = generator.randrange(len(parts)), generator.randrange(len(parts))
        parts[i], parts[j] = parts[j], parts[i]
    return " ".join(parts)


def _mutated(generator: random.Random) -> str:
    text = SEED_TEXT
    for _ in range(generator.randrange(1, 4)):
        at = generator.randrange(len(text))
        cut = at + generator.randrange(4)
        text = text[:at] + generator.choice([*WORDS, ""]) + text[cut:]
    return text


def _byte_flipped(generator: random.Random) -> str:
    content = bytearray(SEED_TEXT.encode())
    for _ in range(generator.randrange(1, 5)):
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return content.decode("utf-8", "surrogateescape")


def _truncated(generator: random.Random) -> str:
    return SEED_TEXT[: generator.randrange(len(SEED_TEXT))]


def _random_characters(generator: random.Random) -> str:
    top = generator.choice([0x80, 0x800, 0x110000])
    return "".join(chr(generator.randrange(top)) for _ in range(generator.randrange(80)))


def _nested(generator: random.Random) -> str:
    depth = generator.randrange(1, 3000)
    opener = generator.choice(["[", "(", "{", "/*", "@x(", "node A {", "a: [", '"', "enum(", "-"])
    return generator.choice(["", "node A { a: ", "node A "]) + opener * depth


def _huge(generator: random.Random) -> str:
    size = generator.choice([256, 400, 401, 5000, 50_000])
    long = generator.choice("0a9_") * size
    return generator.choice(
        [
            f"node A{long} {{}}",
            f"node A {{ a{long}: String }}",
            f"node A {{ a: Vector(1{long}) }}",
            f"node A {{ a: I64 @range(a, 0..1{long}) }}",
            f"node A {{}} edge E: A -> A @card(1{long}..)",
            f'node A {{ a: String @check(a, "{"(" * (size % 997)}{long}") }}',
            f"node A {{ a: enum({long}) }}",
            f"node A @zz(1.{long}) {{}}",
            f"node A {{ a: {long} }}",
            f"@{long}",
        ]
    )


def _unterminated(generator: random.Random) -> str:
    cut = generator.randrange(len(SEED_TEXT))
    ending = generator.choice(['"', '"\\', "/*", "/* *", "//", "@", "0.", "..", "-", "'", '"\\"'])
    return SEED_TEXT[:cut] + ending


GENERATORS: list[Callable[[random.Random], str]] = [
    *(_token_soup, _shuffled, _mutated, _byte_flipped, _truncated),
    *(_random_characters, _nested, _huge, _unterminated),
]


LANGUAGE = Language(
    suite=Suite.SCHEMA_TEXT,
    generators=GENERATORS,
    exercise=exercise,
    seconds_max=SECONDS_MAX,
)

if __name__ == "__main__":
    sys.exit(main(LANGUAGE))
