"""A schema is merged like rows: developed on a branch, taken over by one that is behind."""

from __future__ import annotations

import pyarrow as pa
import pytest

import omnigraph_lake as og

pytestmark = pytest.mark.behaviour

FIRST = "node N {\n  k: String @key\n  v: I32?\n}\n"
WIDER = "node N {\n  k: String @key\n  v: I32?\n  b: I32?\n}\n"
FILLED = "node N {\n  k: String @key\n  v: I64?\n  b: I32 @backfill(7)\n}\n"


def _rows(graph: og.Graph) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = graph.scan("N").read_all().sort_by("k").to_pylist()
    return [{name: value for name, value in row.items() if name != "id"} for row in rows]


def _graph(root: str) -> tuple[og.Graph, og.Graph]:
    graph = og.init(root, schema=FIRST)
    graph.write({"N": [{"k": f"k{number}", "v": number} for number in range(3)]})
    return graph, graph.branches.create("dev")


def test_a_schema_developed_on_a_branch_is_merged_by_fast_forward(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    dev.schema.apply(FILLED)
    dev.write({"N": [{"k": "k1", "v": 10, "b": 1}, {"k": "new", "v": 5, "b": 2}]}, mode="merge")

    merged = graph.merge("dev")

    assert merged.outcome == "fast_forward"
    assert _rows(graph) == _rows(dev)
    assert [row["b"] for row in _rows(graph)] == [7, 1, 7, 2]
    assert graph.schema.text == dev.schema.text
    assert graph.maintenance.check().ok
    assert graph.merge("dev").outcome == "up_to_date"


def test_rows_of_main_are_brought_to_the_schema_of_a_branch(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    dev.schema.apply(FILLED)
    dev.write({"N": [{"k": "k1", "v": 10, "b": 1}, {"k": "theirs", "v": 5, "b": 2}]}, mode="merge")
    graph.write({"N": [{"k": "k2", "v": 20}, {"k": "ours", "v": 6}]}, mode="merge")
    graph.delete({"N": ["k0"]})

    merged = graph.merge("dev")

    assert merged.outcome == "merged"
    assert _rows(graph) == [
        {"k": "k1", "v": 10, "b": 1},
        {"k": "k2", "v": 20, "b": 7},
        {"k": "ours", "v": 6, "b": 7},
        {"k": "theirs", "v": 5, "b": 2},
    ]
    assert merged.tables["node:N"].inserted == 1
    assert merged.tables["node:N"].updated == 1
    assert graph.maintenance.check().ok


@pytest.mark.parametrize("edited", [False, True])
def test_a_branch_that_is_behind_takes_the_schema_of_main(graph_root: str, edited: bool) -> None:
    graph, dev = _graph(graph_root)
    graph.schema.apply(FILLED, allow_diverged=True)
    graph.write({"N": [{"k": "main", "v": 5, "b": 2}]}, mode="merge")
    if edited:
        dev.write({"N": [{"k": "k1", "v": 10}, {"k": "dev", "v": 9}]}, mode="merge")

    into_dev = dev.merge("main")
    back = graph.merge("dev")

    assert into_dev.outcome == ("merged" if edited else "fast_forward")
    assert back.outcome == "fast_forward"
    assert _rows(graph) == _rows(dev)
    assert {row["k"]: row["b"] for row in _rows(dev)} == {
        "k0": 7,
        "k1": 7,
        "k2": 7,
        "main": 2,
    } | ({"dev": 7} if edited else {})
    assert dev.schema.text == graph.schema.text
    for side in (graph, dev):
        assert side.maintenance.check().ok


def test_rows_of_a_branch_are_merged_into_a_main_with_another_schema(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    dev.write({"N": [{"k": "k1", "v": 10}, {"k": "dev", "v": 9}]}, mode="merge")
    graph.schema.apply(FILLED, allow_diverged=True)
    graph.write({"N": [{"k": "k2", "v": 2, "b": 3}]}, mode="merge")

    assert graph.merge("dev").outcome == "merged"

    assert {row["k"]: (row["v"], row["b"]) for row in _rows(graph)} == {
        "k0": (0, 7),
        "k1": (10, 7),
        "k2": (2, 3),
        "dev": (9, 7),
    }
    assert graph.maintenance.check().ok


@pytest.mark.parametrize("text", [WIDER, FILLED])
def test_the_same_text_on_both_sides_is_one_schema(graph_root: str, text: str) -> None:
    graph, dev = _graph(graph_root)
    graph.schema.apply(text, allow_diverged=True)
    dev.schema.apply(text)
    graph.write({"N": [{"k": "k0", "v": 1, "b": 1}]}, mode="merge")
    dev.write({"N": [{"k": "k1", "v": 2, "b": 2}]}, mode="merge")

    assert graph.merge("dev").outcome == "merged"
    assert dev.merge("main").outcome == "fast_forward"

    assert _rows(graph) == _rows(dev)
    assert [row["v"] for row in _rows(graph)] == [1, 2, 2]
    assert graph.maintenance.check().ok


def test_different_changes_of_both_sides_are_combined(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    graph.schema.apply("node N {\n k: String @key\n v: I64?\n b: I32 @backfill(7)\n}")
    dev.schema.apply(
        'node N {\n k: String @key\n w: I32? @rename_from("v")\n c: String? @backfill("x")\n}'
        "\nnode M {\n m: String @key\n}\nedge E: N -> M"
    )
    graph.write(
        {"N": [{"k": "k1", "v": 2**40, "b": 1}, {"k": "ours", "v": 5, "b": 5}]}, mode="merge"
    )
    dev.write(
        {
            "N": [{"k": "k1", "c": "y"}, {"k": "k2", "c": None}, {"k": "theirs", "w": 6, "c": "z"}],
            "M": [{"m": "m1"}],
            "E": [{"src": "k0", "dst": "m1"}],
        },
        mode="merge",
    )

    graph.merge("dev")

    expected = [
        {"k": "k0", "w": 0, "b": 7, "c": "x"},
        {"k": "k1", "w": 2**40, "b": 1, "c": "y"},
        {"k": "k2", "w": 2, "b": 7, "c": None},
        {"k": "ours", "w": 5, "b": 5, "c": "x"},
        {"k": "theirs", "w": 6, "b": 7, "c": "z"},
    ]
    assert _rows(graph) == expected
    assert graph.count("E") == 1
    assert graph.maintenance.check().ok
    dev.write({"N": [{"k": "k0", "c": "again"}]}, mode="merge")
    graph.write({"N": [{"k": "k2", "b": 70}]}, mode="merge")
    assert graph.merge("dev").outcome == "merged"
    expected[0]["c"], expected[2]["b"] = "again", 70
    assert _rows(graph) == expected
    assert dev.merge("main").outcome == "fast_forward"
    assert _rows(dev) == expected
    assert dev.maintenance.check().ok


def test_the_same_property_of_two_changes_is_one(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    graph.schema.apply("node N {\n k: String @key\n v: I32?\n b: I32?\n o: I32?\n}")
    dev.schema.apply("node N {\n k: String @key\n v: I32?\n b: I32?\n t: I32?\n}")
    graph.write({"N": [{"k": "k0", "b": 10}]}, mode="merge")
    dev.write({"N": [{"k": "k1", "b": 11}]}, mode="merge")

    graph.merge("dev")
    dev.write({"N": [{"k": "k2", "b": 12}]}, mode="merge")
    graph.merge("dev")
    dev.merge("main")

    assert [row["b"] for row in _rows(graph)] == [10, 11, 12]
    assert _rows(dev) == _rows(graph)
    assert graph.maintenance.check().ok


def test_changes_that_do_not_go_together_are_conflicts(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    graph.schema.apply('node N {\n k: String @key\n a: I32? @rename_from("v")\n}')
    dev.schema.apply('node N {\n k: String @key\n b: I32? @rename_from("v")\n}')

    with pytest.raises(og.errors.MergeConflictError) as met:
        graph.merge("dev")

    assert "ours renames N.v to a, theirs to b [SM-101]" in str(met.value)
    conflicts = met.value.conflicts
    assert isinstance(conflicts, pa.Table)
    assert conflicts.column("kind").to_pylist() == ["SM-101"]


def test_what_one_side_drops_and_the_other_changes_is_a_conflict(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    dev.schema.apply("node N {\n k: String @key\n}")
    graph.write({"N": [{"k": "k1", "v": 10}]}, mode="merge")

    with pytest.raises(og.errors.MergeConflictError, match=r"theirs drops N\.v; ours changed"):
        graph.merge("dev")

    graph.write({"N": [{"k": "k1", "v": 1}]}, mode="merge")
    graph.merge("dev")
    assert _rows(graph) == [{"k": "k0"}, {"k": "k1"}, {"k": "k2"}]


BEFORE = """
node Person {
  name: String @key
  age: I32?
  state: enum(new, left)
}
node Pet {
  name: String @key
}
edge Knows: Person -> Person {
  since: I32?
}
"""
AFTER = """
node Human @rename_from("Person") {
  name: String @key
  years: I64? @rename_from("age")
  state: enum(new, gone) @rename_value(left="gone")
  copied: I64? @backfill(from="age")
  @unique(copied)
}
node Company {
  name: String @key
}
edge Knows: Human -> Human {
}
edge WorksAt: Human -> Company
"""


def test_names_types_values_and_new_types_are_merged_with_rows(graph_root: str) -> None:
    graph = og.init(graph_root, schema=BEFORE)
    people = [{"name": f"p{number}", "age": number, "state": "left"} for number in range(5)]
    graph.write({"Person": people, "Pet": [{"name": "rex"}]})
    dev = graph.branches.create("dev")
    dev.schema.apply(AFTER)
    dev.write(
        {
            "Human": [{"name": "p1", "years": 1, "state": "gone", "copied": 100}],
            "Company": [{"name": "acme"}],
            "WorksAt": [{"src": "p1", "dst": "acme"}],
        },
        mode="merge",
    )
    graph.write(
        {
            "Person": [
                {"name": "p2", "age": 22, "state": "new"},
                {"name": "p9", "age": 9, "state": "left"},
            ]
        },
        mode="merge",
    )

    cursor = graph.changes().cursor
    graph.merge("dev")

    (commit,) = graph.changes(cursor=cursor)
    assert commit.schema_hash is not None
    told = {
        table.table_key: table.reader().read_all().column("id").to_pylist()
        for table in commit.tables
    }
    assert told["node:Company"] == ["acme"]
    assert "p1" in told["node:Human"]
    assert "p0" not in told["node:Human"]
    rows = graph.scan("Human").read_all().sort_by("name").to_pylist()
    assert [(row["name"], row["years"], row["state"], row["copied"]) for row in rows] == [
        ("p0", 0, "gone", 0),
        ("p1", 1, "gone", 100),
        ("p2", 22, "new", 2),
        ("p3", 3, "gone", 3),
        ("p4", 4, "gone", 4),
        ("p9", 9, "gone", 9),
    ]
    assert graph.count("Company") == 1
    assert graph.count("WorksAt") == 1
    assert "Pet" not in graph.schema.catalog.nodes
    assert graph.maintenance.check().ok
    graph.write({"Company": [{"name": "other"}]})
    dev.write({"Company": [{"name": "third"}]})
    assert graph.merge("dev").outcome == "merged"
    assert graph.count("Company") == 3
    late = graph.branches.create("late", source="main")
    assert late.count("Company") == 3


def _described(text: str, words: str) -> str:
    return text.replace("node N {", f'node N @description("{words}") {{')


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_resolution_decides_what_both_sides_say_about_an_element(
    graph_root: str, side: str
) -> None:
    graph, dev = _graph(graph_root)
    graph.schema.apply(
        _described(FIRST.replace("v:", "w:"), "ours").replace("?", '? @rename_from("v")')
    )
    dev.schema.apply(
        _described(FIRST.replace("v:", "x:"), "theirs").replace("?", '? @rename_from("v")')
    )
    dev.write({"N": [{"k": "k1", "x": 10}]}, mode="merge")

    for refused in (None, "theirs"):
        with pytest.raises(og.errors.MergeConflictError, match="SM-104"):
            graph.merge("dev", resolve=refused)
    with pytest.raises(og.errors.MergeConflictError, match="SM-101") as error:
        graph.merge("dev", resolve={"schema": {"N": side}})
    assert '--resolve \'{"schema": {"N.v": "theirs"}}\'' in str(error.value)
    merged = graph.merge("dev", resolve={"schema": {"N": side, "N.v": side}})

    node = graph.schema.catalog.nodes["N"]
    assert node.description == side
    assert [*node.properties] == ["k", "w" if side == "ours" else "x"]
    assert [row["k"] for row in _rows(graph)] == ["k0", "k1", "k2"]
    assert 10 in _rows(graph)[1].values()
    assert {(row["kind"], row["resolution"]) for row in merged.resolved.to_pylist()} == {
        ("SM-101", side),
        ("SM-104", side),
    }
    assert graph.maintenance.check().ok
    assert graph.merge("dev").outcome == "up_to_date"


def test_rows_keep_the_rules_that_a_resolution_chose(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    base = FIRST.replace("}", "  @range(v, 0..100)\n}")
    graph.schema.apply(base)
    dev.merge("main")
    graph.schema.apply(base.replace("100", "200"))
    dev.schema.apply(base.replace("100", "150"))
    graph.write({"N": [{"k": "k1", "v": 180}]}, mode="merge")

    with pytest.raises(og.errors.MergeConflictError, match="out_of_range"):
        graph.merge("dev", resolve={"schema": {"N": "theirs"}})
    graph.merge("dev", resolve={"schema": {"N": "ours"}})

    assert graph.schema.catalog.nodes["N"].ranges[0].high == 200


def test_a_resolution_does_not_decide_what_would_lose_values(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    graph.schema.apply(FIRST.replace("I32", "I64"))
    dev.schema.apply(FIRST.replace("I32", "F64"))

    with pytest.raises(og.errors.MergeConflictError, match="SM-105"):
        graph.merge("dev", resolve={"schema": {"N.v": "theirs"}})
    with pytest.raises(og.errors.InvalidInputError, match="which no schema of the merge has"):
        graph.merge("dev", resolve={"schema": {"N.w": "theirs"}})
    with pytest.raises(og.errors.InvalidInputError, match="expected one of ours, theirs"):
        graph.merge("dev", resolve={"schema": {"N.v": "newest"}})


def test_ends_that_both_sides_add_are_united(graph_root: str) -> None:
    nodes = "".join(f"node {name} {{\n  k: String @key\n}}\n" for name in "ABCD")
    graph = og.init(graph_root, schema=f"{nodes}edge E: A -> B\n")
    graph.write({name: [{"k": name.lower()}] for name in "ABCD"})
    graph.write({"E": [{"id": "first", "src": "a", "dst": "b"}]})
    dev = graph.branches.create("dev")
    graph.schema.apply(f"{nodes}edge E: A -> B | C\n")
    graph.write({"E": [{"id": "ours", "src": "a", "dst": "c", "dst_type": "C"}]})
    dev.schema.apply(f"{nodes}edge E: A | C -> B | D\n")
    dev.write({"E": [{"id": "theirs", "src": "c", "src_type": "C", "dst": "d", "dst_type": "D"}]})

    graph.merge("dev")

    edge = graph.schema.catalog.edges["E"]
    assert (edge.source.declared, edge.target.declared) == (("A", "C"), ("B", "C", "D"))
    edges = {row["id"]: row for row in graph.scan("E").read_all().to_pylist()}
    assert {name: (row["src_type"], row["dst_type"]) for name, row in edges.items()} == {
        "first": ("A", "B"),
        "ours": ("A", "C"),
        "theirs": ("C", "D"),
    }
    assert graph.maintenance.check().ok
    assert dev.merge("main").outcome == "fast_forward"


def test_a_property_that_became_required_is_filled_where_a_copy_is_null(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    graph.schema.apply(FIRST.replace("v: I32?", "v: I64?"))
    graph.write({"N": [{"k": "ours", "v": None}, {"k": "valued", "v": 4}]})
    dev.schema.apply(FIRST.replace("v: I32?", "v: I32?\n  b: I32? @backfill(from=v)"))
    dev.schema.apply(FIRST.replace("v: I32?", "v: I32?\n  b: I32 @backfill(9)"))

    graph.merge("dev")

    assert {row["k"]: row["b"] for row in _rows(graph)} == {
        "k0": 0,
        "k1": 1,
        "k2": 2,
        "ours": 9,
        "valued": 4,
    }
    assert graph.maintenance.check().ok


def test_a_property_that_only_one_of_both_sides_fills_is_a_conflict(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    graph.schema.apply(FIRST.replace("v: I32?", "v: I64?\n  b: I32?"))
    dev.schema.apply(FIRST.replace("v: I32?", "v: I32?\n  b: I32? @backfill(9)"))

    with pytest.raises(og.errors.MergeConflictError, match="only one of them fills it"):
        graph.merge("dev")


def test_the_same_changes_in_another_order_are_one_schema(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    renamed, widened = 'w: {} @rename_from("v")', "v: I64?"
    graph.schema.apply(FIRST.replace("v: I32?", renamed.format("I32?")))
    graph.schema.apply(FIRST.replace("v: I32?", "w: I64?"))
    dev.schema.apply(FIRST.replace("v: I32?", widened))
    dev.schema.apply(FIRST.replace("v: I32?", renamed.format("I64?")))
    dev.write({"N": [{"k": "k1", "w": 10}]}, mode="merge")

    graph.merge("dev")

    assert [row["w"] for row in _rows(graph)] == [0, 10, 2]


@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize(
    ("converted", "ruled", "reason"),
    [
        ('v: String @backfill("z")', "v: String? @unique", "not_unique"),
        ('v: String @backfill("z")', 'v: String?\n  @check(v, "^a")', "pattern_mismatch"),
        ('e: enum(b)? @rename_value(a="b")', "e: enum(a, b)? @unique", "not_unique"),
    ],
)
def test_rules_of_one_side_are_asked_of_values_that_the_other_converted(
    graph_root: str, converted: str, ruled: str, reason: str, is_swapped: bool
) -> None:
    text = "node N {\n  k: String @key\n  v: String?\n  e: enum(a, b)?\n}\n"
    graph = og.init(graph_root, schema=text)
    graph.write({"N": [{"k": "1", "e": "a"}, {"k": "2", "e": "b"}]})
    dev = graph.branches.create("dev")
    for target, line in zip(
        (graph, dev), (ruled, converted) if is_swapped else (converted, ruled), strict=True
    ):
        old = "v: String?" if line.startswith("v") else "e: enum(a, b)?"
        target.schema.apply(text.replace(old, line))

    with pytest.raises(og.errors.MergeConflictError, match=reason):
        graph.merge("dev")


def test_types_that_both_sides_remove_from_an_end_are_removed(graph_root: str) -> None:
    nodes = "".join(f"node {name} {{\n  k: String @key\n}}\n" for name in "ABCDE")
    graph = og.init(graph_root, schema=f"{nodes}edge R: A -> B | C | D | E\n")
    dev = graph.branches.create("dev")
    graph.schema.apply(f"{nodes}edge R: A -> B | C | D\n")
    dev.schema.apply(f"{nodes}edge R: A -> B | C | E\n")

    graph.merge("dev")

    assert graph.schema.catalog.edges["R"].target.declared == ("B", "C")


def test_a_required_property_without_a_fill_comes_if_the_merge_gives_every_row_a_value(
    graph_root: str,
) -> None:
    graph = og.init(graph_root, schema=FIRST)
    dev = graph.branches.create("dev")
    dev.schema.apply(FIRST.replace("v: I32?", "v: I32?\n  r: U32"))
    dev.write({"N": [{"k": "both", "v": 2, "r": 7}]})
    graph.write({"N": [{"k": "both", "v": 1}]})

    graph.merge("dev", resolve="theirs")

    assert _rows(graph) == [{"k": "both", "v": 2, "r": 7}]


def test_a_required_property_without_a_fill_is_a_conflict_of_rows_without_a_value(
    graph_root: str,
) -> None:
    graph = og.init(graph_root, schema=FIRST)
    dev = graph.branches.create("dev")
    dev.schema.apply(FIRST.replace("v: I32?", "v: I32?\n  r: U32"))
    dev.write({"N": [{"k": "both", "v": 2, "r": 7}]})
    graph.write({"N": [{"k": "both", "v": 1}, {"k": "ours", "v": 3}]})

    with pytest.raises(og.errors.MergeConflictError, match="missing_required"):
        graph.merge("dev", resolve="theirs")

    assert [row["k"] for row in _rows(graph)] == ["both", "ours"]


def test_the_feed_matches_columns_by_property_and_not_by_name(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node N { k: String @key  a: I32?  b: I32? }")
    graph.write({"N": [{"k": name, "a": 1, "b": 2} for name in "xyz"]})
    dev = graph.branches.create("dev")
    dev.schema.apply("node N { k: String @key  b: I32? }")
    dev.schema.apply('node N { k: String @key  a: I32? @rename_from("b") }')
    dev.write({"N": [{"k": "x", "a": 20}]}, mode="merge")
    cursor = graph.changes().cursor
    graph.merge("dev")

    (commit,) = graph.changes(cursor=cursor)

    (table,) = commit.tables
    (row,) = table.reader().read_all().to_pylist()
    assert {
        column.name: column.renamed_from for column in table.columns if column.renamed_from
    } == {
        "a": "b",
        "a (before)": "a",
    }
    assert row["changed"] == ["a", "a (before)"]
    assert (row["before"]["a"], row["after"]["a"]) == (2, 20)
    assert (row["before"]["a (before)"], row["after"]["a (before)"]) == (1, None)
    assert table.schema_changed


ENDS = "node A { k: String @key }\nnode B { k: String @key }\nedge E: A -> B { w: I32? }\n"


@pytest.mark.parametrize("name", ["E", "F"])
def test_an_edge_that_gets_another_end_may_lose_its_node(graph_root: str, name: str) -> None:
    graph = og.init(graph_root, schema=ENDS)
    graph.write({"A": [{"k": "a0"}, {"k": "a1"}], "B": [{"k": "b0"}, {"k": "b1"}]})
    dev = graph.branches.create("dev")
    graph.write({"E": [{"id": "e", "src": "a0", "dst": "b0"}]})
    dev.delete({"A": ["a0"]})
    dev.write({"E": [{"id": "e", "src": "a1", "dst": "b1"}]})
    if name != "E":
        dev.schema.apply(ENDS.replace("E: A -> B", f'{name}: A -> B @rename_from("E")'))

    with pytest.raises(og.errors.MergeConflictError, match=rf"edge:{name}.src a0 -> b0"):
        graph.merge("dev", resolve="ours")
    graph.merge("dev", resolve="theirs")

    assert graph.scan(name).read_all().to_pylist() == [
        {"id": "e", "src": "a1", "dst": "b1", "w": None}
    ]
    assert graph.maintenance.check().ok


@pytest.mark.parametrize("maps_in_main", [False, True])
def test_a_copy_of_values_that_the_other_side_mapped_is_a_conflict(
    graph_root: str, maps_in_main: bool
) -> None:
    graph = og.init(graph_root, schema="node N { k: String @key  e: enum(a, b) }")
    graph.write({"N": [{"k": "k0", "e": "b"}]})
    dev = graph.branches.create("dev")
    mapping, copying = (graph, dev) if maps_in_main else (dev, graph)
    mapped = 'node N { k: String @key  e: enum(a, c) @rename_value(b="c") }'
    mapping.schema.apply(mapped, allow_diverged=True)
    copied = "node N { k: String @key  e: enum(a, b)  q: enum(a, b) @backfill(from=e) }"
    copying.schema.apply(copied, allow_diverged=True)

    with pytest.raises(og.errors.MergeConflictError) as caught:
        graph.merge("dev")

    assert "fills N.q from N.e" in str(caught.value)
    assert "maps b of N.e to c [SM-108]" in str(caught.value)


@pytest.mark.parametrize(
    ("property_of_main", "change"),
    [("  v: I32 @backfill(7)\n", "fills"), ("", "drops")],
)
def test_a_copy_of_what_the_other_side_filled_or_dropped_is_a_conflict(
    graph_root: str, property_of_main: str, change: str
) -> None:
    graph, dev = _graph(graph_root)
    dev.schema.apply("node N {\n  k: String @key\n  v: I32?\n  w: I32? @backfill(from=v)\n}\n")
    changed = f"node N {{\n  k: String @key\n{property_of_main}}}\n"
    graph.schema.apply(changed, allow_diverged=True)

    with pytest.raises(og.errors.MergeConflictError, match=rf"N\.v, ours {change} N\.v"):
        graph.merge("dev")


def test_a_default_that_the_other_side_removed_is_gone(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node N { k: String @key  v: I32? = 7 }")
    dev = graph.branches.create("dev")
    dev.schema.apply("node N { k: String @key  v: I32? }")
    graph.schema.apply("node N { k: String @key  v: I32? = 7  w: I32? }", allow_diverged=True)

    graph.merge("dev")

    graph.write({"N": [{"k": "k0"}]})
    assert graph.scan("N").read_all().select(["k", "v", "w"]).to_pylist() == [
        {"k": "k0", "v": None, "w": None}
    ]


def test_fills_since_a_merge_count_although_the_schema_was_the_same_before(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    dev.schema.apply(FIRST.replace("v: I32?", 'v: I32? @description("a number")'))
    graph.merge("dev")
    graph.revert("HEAD")
    dev.merge("main")
    dev.schema.apply("node N {\n  k: String @key\n  v: I32?\n  p: I32 @backfill(9)\n}\n")
    graph.delete({"N": ["k0"]})
    graph.schema.apply("node N {\n  k: String @key\n  v: I64?\n}\n", allow_diverged=True)

    graph.merge("dev")

    assert _rows(graph) == [{"k": "k1", "v": 1, "p": 9}, {"k": "k2", "v": 2, "p": 9}]


def test_rows_that_come_with_columns_to_an_emptied_table_are_looked_up(graph_root: str) -> None:
    graph, _ = _graph(graph_root)
    graph.delete({"N": ["k0"]})
    graph.maintenance.optimize()  # the fragment without the deleted row is indexed
    side = graph.branches.create("side")
    side.schema.apply(FILLED)
    side.write({"N": [{"k": "new", "v": 5, "b": 2}]})
    graph.delete({"N": ["k1", "k2"]})

    graph.merge("side")

    assert [row["k"] for row in _rows(graph)] == ["new"]
    assert graph.get("N", "new") == {"id": "new", "k": "new", "v": 5, "b": 2}
    assert graph.maintenance.check().ok


@pytest.mark.parametrize("is_edited", [False, True])
def test_rows_that_a_branch_deleted_need_no_value_in_what_it_made_required(
    graph_root: str, is_edited: bool
) -> None:
    graph, dev = _graph(graph_root)
    graph.write({"N": [{"k": "k1", "v": None}, {"k": "k2", "v": None}]}, mode="merge")
    dev = graph.branches.create("late")
    dev.delete({"N": ["k1"]})
    dev.write({"N": [{"k": "k2", "v": 20}]}, mode="merge")
    dev.schema.apply("node N {\n  k: String @key\n  v: I64\n}\n")
    if is_edited:
        graph.write({"N": [{"k": "k3", "v": 3}]})

    graph.merge("late")

    expected = {"k0": 0, "k2": 20} | ({"k3": 3} if is_edited else {})
    assert {row["k"]: row["v"] for row in _rows(graph)} == expected
    assert graph.maintenance.check().ok
    graph.maintenance.optimize()
    assert {row["k"]: row["v"] for row in _rows(graph)} == expected


def test_fills_count_that_came_to_main_by_a_branch_of_the_other_one(graph_root: str) -> None:
    graph, dev = _graph(graph_root)
    side = dev.branches.create("side")
    side.schema.apply("node N {\n  k: String @key\n  v: I32?\n  w: I32?\n}\n")
    dev.write({"N": [{"k": "k3", "v": 3}]})
    side.merge("dev")
    graph.write({"N": [{"k": "k4", "v": 4}]})
    graph.schema.apply(
        "node N {\n  k: String @key\n  v: I32?\n  q: I32? @backfill(9)\n}\n", allow_diverged=True
    )
    side.merge("main")
    graph.merge("side")
    graph.schema.apply(graph.schema.text.replace("q: I32?", 'r: I32? @rename_from("q")'))
    dev.write({"N": [{"k": "k5", "v": 5}]})

    dev.merge("main")

    assert {row["k"]: row["r"] for row in _rows(dev)} == {f"k{n}": 9 for n in range(6)}
