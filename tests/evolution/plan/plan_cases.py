"""Golden plans: an accepted schema, a new text, and the plan between them in words and JSON."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from omnigraph_lake.evolution.plan.planning import Evolution, evolve
from tests.schema.compiling import compiled

GOLDEN = Path(__file__).parent / "golden"
UPDATING = "OMNIGRAPH_UPDATE_GOLDEN" in os.environ


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCase:
    name: str
    accepted: str
    new: str
    hard: bool = False

    @property
    def stored_text(self) -> Path:
        return GOLDEN / f"{self.name}.txt"

    @property
    def stored_json(self) -> Path:
        return GOLDEN / f"{self.name}.json"

    def evolution(self) -> Evolution:
        return evolve(compiled(self.accepted), self.new, filename="new.pg", hard=self.hard)


def case(name: str, accepted: str, new: str, *, hard: bool = False) -> PlanCase:
    return PlanCase(name=name, accepted=accepted, new=new, hard=hard)


TYPES = [
    case(
        "add-type",
        "node A { x: String }",
        """
        interface I { at: Date }
        node A { x: String }
        node B implements I { y: I32? @index }
        edge E: A -> B
        """,
    ),
    case(
        "rename-type",
        "node Human { name: String @key } edge Knows: Human -> Human",
        """
        node Person @rename_from("Human") { name: String @key }
        edge Met: Person -> Person @rename_from("Knows")
        """,
    ),
    case(
        "update-type-metadata",
        'node A @description("old") {} node B @meta(unit=1) {} edge E: A -> B @instruction("x")',
        'node A @description("new") {} node B @meta(unit=true) {} edge E: A -> B',
    ),
    case("drop-type", "interface I {} node A {} node B {} edge E: A -> B", "node A {}"),
    case("drop-type-hard", "node A {} node B {} edge E: A -> B", "node A {}", hard=True),
    case(
        "change-interfaces",
        """
        interface Named { name: String @index }
        interface Dated { at: Date? }
        node A implements Named { x: I32 }
        """,
        """
        interface Named { name: String @index }
        interface Dated { at: Date? }
        node A implements Dated { x: I32 name: String }
        """,
    ),
    case(
        "retype-promise",
        "interface I { x: I32? y: String } node A implements I {}",
        "interface I { x: I64? y: String? @unique z: Date? } node A implements I {}",
    ),
    case(
        "rename-promise",
        "interface I { name: String old: I32? } node A implements I { own: String }",
        'interface I { title: String @rename_from("name") } node A implements I { own: String }',
    ),
    case(
        "change-cardinality",
        "node A {} edge E: A -> A @card(1..3) edge F: A -> A @card(0..3) edge G: A -> A",
        "node A {} edge E: A -> A edge F: A -> A @card(1..2) edge G: A -> A @card(1..)",
    ),
    case(
        "change-ends",
        "interface I {} node A implements I {} node B {} "
        "edge E: A -> A @card(0..2) edge F: A -> A | B",
        """
        interface I {}
        node A implements I {}
        node B {}
        node C implements I {}
        edge E: I -> A | B @card(0..1)
        edge F: A -> B | I { x: String? @unique(src, dst) }
        """,
    ),
    case(
        "remove-ends",
        "node A {} node B {} node C {} edge E: A -> A | B | C edge F: A | B | C -> A",
        "node A {} node C {} edge E: A -> A | C edge F: C | A -> A",
    ),
    case(
        "change-clustering",
        "node A {} edge E: A -> A edge F: A -> A @cluster edge G: A -> A @cluster",
        "node A {} edge E: A -> A @cluster edge F: A -> A edge G: A -> A @cluster",
    ),
]

PROPERTIES = [
    case(
        "add-property",
        "node A { x: String } edge E: A -> A",
        "node A { y: I32? x: String } edge E: A -> A { since: Date? }",
    ),
    case(
        "add-property-filled",
        "node A { x: I32 e: enum(a, b) n: String? }",
        """
        node A {
            x: I32 e: enum(a, b) n: String?
            i: I64 @backfill(from=x)
            t: String @backfill(from="e")
            m: String @backfill(from=n)
            s: String @backfill("none")
            b: Bool @backfill(true)
            f: F64 @backfill(-1.50)
            d: Date @backfill("2026-01-31")
            w: DateTime @backfill("2026-01-31T12:00:00+02:00")
            k: enum(on, off) @backfill(off)
        }
        """,
    ),
    case("add-property-required", "node A { x: I32 }", "node A { x: I32 y: String }"),
    case(
        "add-property-embedded",
        "node A { t: String u: String? }",
        """
        node A {
            t: String u: String?
            v: Vector(2) @embed(t)
            w: Vector(2) @embed(u)
        }
        """,
    ),
    case(
        "rename-property",
        """
        node A {
            first: String last: String v: Vector(2) @embed(last)
            @key(first, last) @check(last, "x") @index(last)
        }
        """,
        """
        node A {
            zfirst: String @rename_from("first")
            alast: String @rename_from("last")
            v: Vector(2) @embed(alast)
            @key(zfirst, alast) @check(alast, "x") @index(alast)
        }
        """,
    ),
    case(
        "widen-property",
        """
        node A {
            a: I32 @key  b: U32 c: U32 d: F32 e: F32 f: I32 g: U32
            @range(d, ..0.1) @range(e, 0..10) @unique(d)
        }
        """,
        """
        node A {
            a: I64 @key  b: U64 c: I64 d: F64 e: F64 f: F64 g: F64
            @range(d, ..0.1) @range(e, 0..10) @unique(d)
        }
        """,
    ),
    case("extend-enum", "node A { s: enum(a, b) }", "node A { s: enum(c, b, a) }"),
    case("narrow-enum", "node A { s: enum(a, b, c) }", "node A { s: enum(a) }"),
    case(
        "map-values",
        "node A { s: enum(a, b, C-1) @unique t: String }",
        """
        node A {
            s: enum(a, d) @unique @rename_value(b="d", "C-1=a")
            t: enum(yes, no) @rename_value(y="yes")
        }
        """,
    ),
    case("enum-to-string", "node A { s: enum(a, b) @key }", "node A { s: String @key }"),
    case("string-to-json", "node A { s: String? }", "node A { s: Json? }"),
    case("json-to-string", "node A { s: Json? }", "node A { s: String? }"),
    case("string-to-enum", "node A { s: String @key }", "node A { s: enum(a, b) @key }"),
    case("make-nullable", "node A { x: I32 y: I32 @unique }", "node A { x: I32? y: I32? @unique }"),
    case(
        "make-required",
        """
        node A {
            a: I32? b: String? c: I32? d: I32? e: I32
            @unique(c) @range(c, 0..9) @check(b, "x") @range(d, 0..9)
        }
        """,
        """
        node A {
            a: I32 b: String @backfill("axe") c: I32 @backfill(9) d: I32 @backfill(from=e) e: I32
            @unique(c) @range(c, 0..9) @check(b, "x") @range(d, 0..9)
        }
        """,
    ),
    case(
        "change-embed",
        """
        node A {
            t: String u: String?
            v: Vector(2) @embed(t)
            w: Vector(2) @embed(t, model="m")
            x: Vector(2)? @embed(t)
        }
        """,
        """
        node A {
            t: String u: String?
            v: Vector(2)
            w: Vector(2) @embed(u, model="m")
            x: Vector(2)? @embed(t, model="m")
        }
        """,
    ),
    case(
        "change-default",
        """
        interface I { i: I32 = 1 }
        node A implements I { a: String b: I32 = 1 c: Date? = "2020-01-31" d: F64 = 1 }
        edge E: A -> A { e: enum(x, y) = x }
        """,
        """
        interface I { i: I32 = 2 }
        node A implements I { a: String = "a\\"b" b: I32 = 2 c: Date? d: F64 = 1.0 }
        edge E: A -> A { e: enum(x, y) = "y" }
        """,
    ),
    case(
        "add-property-with-default",
        "node A { x: I32? y: I32? z: I32? }",
        'node A { x: I32 = 5 y: I32 = 5 @backfill(6) z: I32? = 7 n: I64 = 8 m: String? = "m" }',
    ),
    case(
        "update-property-metadata",
        'node A { x: I32 @description("old") @meta(unit="m") }',
        'node A { x: I32 @description("new") @meta(unit="km") }',
    ),
    case(
        "drop-property",
        "node A { x: I32 y: I32? @index @range(y, 0..) } edge E: A -> A { z: Date }",
        "node A { x: I32 } edge E: A -> A",
    ),
    case("drop-property-hard", "node A { x: I32 y: I32? }", "node A { x: I32 }", hard=True),
]

CONSTRAINTS = [
    case(
        "add-constraint",
        "node A { k: String @key x: I32 t: String? u: U64 @unique } edge E: A -> A",
        """
        node A {
            k: String @key x: I32 t: String? u: U64 @unique n: I32?
            @unique(x, t) @unique(x, k) @unique(u, x) @unique(n)
            @index(x, t) @range(x, -1.5..) @range(n, 0..) @check(t, "^[a-z]+$")
        }
        edge E: A -> A { @unique(src, dst) }
        """,
    ),
    case(
        "remove-constraint",
        """
        node A {
            x: I32 t: String v: Vector(2)? @index
            @unique(x) @index(x) @range(x, 0..1) @check(t, "a")
        }
        """,
        "node A { x: I32 t: String v: Vector(2)? @index(metric=dot) }",
    ),
    case(
        "change-range",
        "node A { wider: I32 narrower: I32 shifted: I32 "
        "@range(wider, 0..10) @range(narrower, 0..10) @range(shifted, 0..10) }",
        "node A { wider: I32 narrower: I32 shifted: I32 "
        "@range(wider, -1..10.5) @range(narrower, 1..10) @range(shifted, -5..5) }",
    ),
    case(
        "respell-constraint",
        "node A { a: String b: I32 c: I32 @index @unique @key(a, b) @unique(a, c) }",
        "node A { a: String b: I32 c: I32 @index(c) @unique(c) @key(b, a) @unique(c, a) }",
    ),
]

REFUSALS = [
    case(
        "refused-key",
        "node A { x: String @key y: String } node B { x: String @key } node C { x: String }",
        "node A { x: String y: String @key(x, y) } node B { x: String } node C { x: String @key }",
    ),
    case(
        "refused-key-values",
        "node A { x: F32 @key } node B { s: enum(a, b) @key }",
        'node A { x: F64 @key } node B { s: enum(a) @key @rename_value(b="a") }',
    ),
    case(
        "refused-endpoints",
        "node A {} node B {} edge E: A -> B",
        "node A {} node B {} edge E: B -> A",
    ),
    case(
        "refused-only-end",
        "node A {} node B {} edge E: A -> A | B edge F: A | B -> A",
        "node A {} node B {} edge E: A -> A edge F: B -> A",
    ),
    case(
        "refused-types",
        """
        node A {
            a: I64 b: F64 c: String d: [String] e: Vector(2) f: Blob g: Date h: U64 i: [I32]
            j: enum(a, b) k: I64
        }
        """,
        """
        node A {
            a: I32 b: F32 c: [String] d: String e: Vector(3) f: String g: DateTime h: I64 i: [I64]
            j: I32 k: F64
        }
        """,
    ),
]

NOTHING = [
    case(
        "no-change",
        """
        interface I { x: I32 } interface J { x: I32 }
        node A @meta(p=1, q=2) implements I, J { s: enum(a, b) @unique @index @range(x, 0..) }
        node B {}
        """,
        """
        node B {} interface J { x: I32 } /* moved */ interface I { x: I32 }
        node A @meta(q=2, p=1) implements J, I { s: enum(b, a) @index @unique @range(x, 0..) }
        """,
    ),
    case(
        "kept-hints",
        "node B { y: I32 s: enum(new) } node A {}",
        """
        node B @rename_from("A") {
            y: I32 @rename_from("x") @backfill(0)
            s: enum(new) @rename_value(old="new")
        }
        node A {}
        """,
    ),
    case("kept-hint-and-drop", "node A { x: I32 y: I32 }", 'node A { x: I32 @rename_from("y") }'),
]

CASES = [*TYPES, *PROPERTIES, *CONSTRAINTS, *REFUSALS, *NOTHING]
