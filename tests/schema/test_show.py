"""What `schema show` prints."""

from __future__ import annotations

import pytest

from omnigraph_lake.schema.show import show_catalog
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit


def test_a_catalog_reads_like_a_summary_of_its_schema() -> None:
    catalog = compiled("""
        interface Named { name: String @index }
        node Person @description("A human\\nbeing") @instruction("ask") implements Named {
            email: String @key @description("where to write")
            age: I32? @meta(unit="year", round=true)
            v: Vector(2)? @embed("email", model="m") @index
            w: Vector(2)? @index(metric=dot)
            @range(age, 0..1.5) @range(age, ..7) @check(email, "@") @unique(email, age)
        }
        edge Knows: Person -> Person @card(0..3) @cluster {
            since: Date? @unique(src, dst) @index(src)
        }
        edge Likes: Named -> Named | Person
    """)

    assert show_catalog(catalog) == (
        "interface Named\n"
        "    name  String  index\n"
        "\n"
        "node Person implements Named\n"
        "    A human being\n"
        "    instruction: ask\n"
        '    email  String      key, matches "@", "where to write"\n'
        '    age    I32?        range 0..1.5, range ..7, @meta(unit="year", round=true)\n'
        "    v      Vector(2)?  index by cosine, embeds email by m\n"
        "    w      Vector(2)?  index by dot\n"
        "    name   String      index, from Named\n"
        "    unique (email, age)\n"
        "\n"
        "edge Knows: Person -> Person, 0..3 per Person, clustered\n"
        "    since  Date?\n"
        "    unique (src, dst)\n"
        "    index (src)\n"
        "\n"
        "edge Likes: Named -> Named | Person, 0.. per Named\n"
    )


def test_a_schema_without_types_says_so() -> None:
    assert show_catalog(compiled("")) == "no types\n"


def test_a_long_enum_does_not_push_other_lines_away() -> None:
    values = ", ".join(f"value{i:02}" for i in range(20))
    lines = show_catalog(compiled(f"node A {{ x: enum({values}) y: I32 @key }}")).split("\n")

    assert len(lines[2]) < 50
