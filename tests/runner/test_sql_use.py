"""What is read from a plan of Spark: used columns and simple conditions, and nothing in doubt."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph_lake.runner.sql_use import Probe, TableUse, make_probes, read_use

pytestmark = pytest.mark.unit

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("age", pa.int32()),
        pa.field("size", pa.float64()),
        pa.field("born", pa.date32()),
        pa.field("seen", pa.timestamp("us", tz="UTC")),
    ]
)
ALL = tuple(SCHEMA.names)


@pytest.fixture
def probe() -> Probe:
    return make_probes({"node:Person": SCHEMA})["node:Person"]


def column(probe: Probe, name: str) -> str:
    return (
        f"from_json(StructField(c,DecimalType(20,0),true), cast((id#8L + {probe.marks[name]}) as "
        "string), Some(Etc/UTC), false).c"
    )


def use_of(probe: Probe, *lines: str) -> TableUse:
    end = ", Statistics(sizeInBytes=7.8 KiB, rowCount=1.00E+3)\n"
    plan = "".join(f"{'   ' * depth}+- {line}{end}" for depth, line in enumerate(lines))
    text = f"== Optimized Logical Plan ==\n{plan}\n== Physical Plan ==\n{plan}"
    return read_use(text, {"node:Person": probe})["node:Person"]


def range_of(probe: Probe) -> str:
    return f"Range ({probe.start}, {probe.end}, step=1, splits=Some(2))"


def test_columns_without_a_mark_in_the_plan_are_not_used(probe: Probe) -> None:
    project = f"Project [{column(probe, 'age')} AS age#3, {column(probe, 'id')} AS id#4]"

    assert use_of(probe, project, range_of(probe)) == TableUse(columns=("id", "age"))
    assert use_of(probe, "Aggregate [count(1)]", range_of(probe)) == TableUse(columns=())


@pytest.mark.parametrize(
    "doubt",
    [
        "Project [a#1, ... 7 more fields]",
        "Project [scalar-subquery#37 [] AS m#38]",
        "Project [*********(redacted)]",
        "... 12 more characters",
    ],
)
def test_all_columns_are_used_if_the_plan_may_not_show_them(probe: Probe, doubt: str) -> None:
    assert use_of(probe, doubt, range_of(probe)) == TableUse(columns=ALL)


def test_all_columns_are_used_of_a_table_that_the_plan_does_not_show(probe: Probe) -> None:
    assert use_of(probe, "Project [1]", "OneRowRelation") == TableUse(columns=ALL)
    assert read_use("", {"node:Person": probe})["node:Person"] == TableUse(columns=ALL)


@pytest.mark.parametrize(
    ("condition", "where"),
    [
        ("(<id> = ann)", "`id` = 'ann'"),
        ("(<age> >= -3)", "`age` >= -3"),
        ("(<born> < 2020-01-31)", "`born` < date '2020-01-31'"),
        ("<id> IN (a,b)", "`id` IN ('a', 'b')"),
        ("NOT (<age> = 3)", "`age` != 3"),
        (
            "((isnotnull(<id>) AND (<age> > 3)) AND ((<age> <= 9) AND StartsWith(<id>, a)))",
            "`age` > 3 AND `age` <= 9",
        ),
        ("isnotnull(<age>)", None),
        ("(<size> > 3.0)", None),
        ("(<seen> > 2020-01-01)", None),
        ("(<age> = null)", None),
        ("(cast(<age> as double) > 3.5)", None),
        ("((<age> > 3) OR (<id> = a))", None),
        ("((<age> > 3) AND (length(<id>) > 2))", None),
        ("(<id> = it's)", None),
        ("(<id> = a b)", None),
    ],
)
def test_only_comparisons_with_the_same_meaning_in_lance_are_pushed_down(
    probe: Probe, condition: str, where: str | None
) -> None:
    for name in ALL:
        condition = condition.replace(f"<{name}>", column(probe, name))

    assert use_of(probe, f"Filter {condition}", range_of(probe)).where == where


def test_a_text_that_looks_like_a_condition_is_none(probe: Probe) -> None:
    """`id = 'a) AND (b' OR age > 3`, as Spark prints it."""
    printed = f"(({column(probe, 'id')} = a) AND (b) OR ({column(probe, 'age')} > 3))"

    assert use_of(probe, f"Filter {printed}", range_of(probe)).where is None


def test_a_condition_of_one_of_two_occurrences_is_not_pushed_down(probe: Probe) -> None:
    filtered = (f"Filter ({column(probe, 'age')} > 3)", range_of(probe))

    assert use_of(probe, *filtered).where == "`age` > 3"
    assert use_of(probe, *filtered, range_of(probe)) == TableUse(columns=("age",))


def test_marks_differ_from_query_to_query() -> None:
    first, second = (make_probes({"node:Person": SCHEMA})["node:Person"] for _ in range(2))

    assert not {first.start, *first.marks.values()} & {second.start, *second.marks.values()}
