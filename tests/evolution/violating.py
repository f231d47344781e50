"""A schema, one that asks something of every kind of its rows, and random rows that violate it."""

from __future__ import annotations

import datetime as dt
import math
import random
from typing import Any

from tests.evolution.plan.rows import Row
from tests.schema.compiling import compiled

NAN = math.nan
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
CHECKED = """
node A {
    x: I32? s: String? e: enum(a, b, c)? f: F64? g: F32? u: U64? d: DateTime? q: I32? r: I32?
    b: Blob? v: Vector(2)? day: Date? yes: Bool? j: String?
}
node B {}
node C {}
edge E: A -> A { w: I32? }
edge R: A -> A | B | C
"""
ASKING = """
node A {
    x: I32  s: String? e: enum(a)? @rename_value(b=a)  f: F64? @unique  g: F64? @unique
    u: U64? @unique  d: DateTime? @unique  q: I32 @backfill(from=r)  r: I32?  b: Blob
    v: Vector(2) @embed(s)  day: Date? @unique  yes: Bool?  new: String  j: Json?
    @range(x, 0..3) @check(s, "^a") @unique(s, e) @range(f, ..0.5) @unique(q, yes)
}
node B {}
node C {}
edge E: A -> A @card(2..3) { w: I64? @unique(src, dst) }
edge R: A -> A | B
"""


def random_rows(rng: random.Random, count: int) -> dict[str, list[Row]]:
    def drawn(*values: Any) -> Any:
        return rng.choice([None, *values])

    nodes = [
        {
            "x": drawn(0, 3, 4, -1),
            "s": drawn("a", "b", "ab", ""),
            "e": drawn("a", "b", "c"),
            "f": drawn(0.0, -0.0, NAN, 0.5, 0.75, math.inf),
            "g": drawn(0.0, -0.0, NAN, 0.1),
            "u": drawn(2**64 - 1, 2**64 - 2, *range(40)),
            "q": drawn(*range(20)),
            "r": drawn(*range(20)),
            "d": drawn(*(NOON + dt.timedelta(microseconds=n) for n in range(30))),
            "day": drawn(*(NOON.date() + dt.timedelta(days=n) for n in range(30))),
            "b": drawn(b"", b"x"),
            "v": drawn([1.0, 2.0]),
            "yes": drawn(True, False),
            "j": drawn("1.0", '{"a": 1}', "no json", "null", ""),
        }
        for _ in range(count)
    ]
    ids = [f"r{n:04}" for n in range(max(1, count))]
    edges = [{"src": rng.choice(ids), "dst": rng.choice(ids[:2])} for _ in range(count * 2)]
    numbers = [compiled(CHECKED).nodes[name].number for name in "AC"]
    ends = [
        {"src": rng.choice(ids), "dst": rng.choice(ids), "dst_type": rng.choice(numbers)}
        for _ in range(count)
    ]
    return {"node:A": nodes, "edge:E": edges, "edge:R": ends}
