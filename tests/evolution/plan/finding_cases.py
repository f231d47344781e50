"""Golden findings: a new text whose hints are wrong, and what its author reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.evolution.plan.planning import evolve
from omnigraph_lake.language.diagnostics import Diagnostic, render_all
from tests.evolution.plan.plan_cases import GOLDEN
from tests.schema.compiling import compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCase:
    """`name` starts with the rule it shows."""

    name: str
    accepted: str
    new: str

    @property
    def stored(self) -> Path:
        return GOLDEN / f"finding-{self.name}.txt"

    def findings(self) -> tuple[Diagnostic, ...]:
        try:
            return evolve(compiled(self.accepted), self.new, filename="new.pg").findings
        except SchemaInvalidError as error:
            return error.diagnostics

    def rendered(self) -> str:
        return render_all(self.findings(), text=self.new, filename="new.pg") + "\n"


def case(name: str, accepted: str, new: str) -> FindingCase:
    return FindingCase(name=name, accepted=accepted, new=new)


CASES = [
    case(
        "rename-unknown",
        "node Human { name: String }",
        """
node Person @rename_from("Humam") {
    name: String
}
node Human {
    title: String @rename_from("nam")
}
""",
    ),
    case(
        "rename-other-kind",
        "node A {} edge Knows: A -> A interface I {}",
        """
node A {}
node Known @rename_from("Knows") {}
edge J: A -> A @rename_from("I")
""",
    ),
    case(
        "rename-other-owner",
        "node A { x: I32 } node B { y: I32 }",
        """
node A {
    z: I32? @rename_from("y")
}
node B {
    w: I32? @rename_from("A.x")
}
""",
    ),
    case(
        "rename-twice",
        "node A { x: I32 y: I32 } node Z {}",
        """
node A {
    a: I32 @rename_from("x")
    b: I32 @rename_from("x")
}
node P @rename_from("Z") {}
node Q @rename_from("Z") {}
""",
    ),
    case(
        "rename-still-declared",
        "node A { x: I32 }",
        """
node A {
    x: I32
    y: I32? @rename_from("x")
}
node B @rename_from("A") {}
""",
    ),
    case(
        "rename-still-declared-in-a-chain",
        "node T { a: I32 b: I32 }",
        """
node T {
    b: I32 @rename_from("a")
    c: I32 @rename_from("b")
}
""",
    ),
    case(
        "rename-in-new-type",
        "node A { x: I32 }",
        """
interface I {
    z: I32 @rename_from("x")
}
node B {
    y: I32 @rename_from("x")
}
""",
    ),
    case(
        "rename-crossed",
        "node T { a: I32 b: I32 }",
        """
node T {
    a: I32 @rename_from("b")
    b: I32 @rename_from("a")
}
""",
    ),
    case(
        "backfill-value",
        "node A { x: I32 o: I32? }",
        """
node A {
    x: I32
    o: I32 @backfill("3")
    a: I32 @backfill(2147483648)
    b: String @backfill(5)
    c: Bool @backfill(1)
    d: Date @backfill("31.1.2026")
    e: DateTime @backfill("2026-01-31T12:00:00")
    f: enum(on, off) @backfill(of)
    g: [String] @backfill("x")
    h: Blob @backfill("x")
    i: F32 @backfill(340282356779733661637539395458142568448)
    j: U32 @backfill(-1)
    k: I32 @backfill(1.5)
    l: I32 @backfill(-1) @range(l, 0..)
    m: String @backfill("1") @check(m, "^[a-z]$")
    n: String @backfill(word)
}
""",
    ),
    case(
        "backfill-source",
        "node A { x: I64 s: String? b: Blob? l: [I32] }",
        """
node A {
    x: I64
    s: String @backfill(from=s)
    a: I32 @backfill(from=x)
    c: String @backfill(from=a)
    d: String @backfill(from=y)
    b: Blob?
    e: Blob @backfill(from=b)
    l: [I32]
    f: [I64] @backfill(from=l)
}
""",
    ),
    case(
        "value-mapping",
        "node A { s: enum(a, b) }",
        """
node A {
    s: enum(a) @rename_value(b="c")
}
""",
    ),
    case("rename-unused", "node B {}", 'node B @rename_from("A") {}'),
    case(
        "rename-unused-but-dropped",
        "node T { a: I32 b: I32 }",
        """
node T {
    a: I32 @rename_from("b")
}
""",
    ),
    case(
        "backfill-unused",
        "node A { x: I32 y: I32? }",
        """
interface I {
    z: I32? @backfill(1)
}
node A {
    x: I32 @backfill(1)
    y: I32? @backfill(1)
}
node B {
    x: I32 @backfill(1)
}
""",
    ),
    case(
        "value-mapping-unused",
        "node A { s: enum(a, b) n: I32 }",
        """
node A {
    s: enum(a, b) @rename_value(a="b", c="b")
    n: I32 @rename_value(a="b")
}
""",
    ),
]
