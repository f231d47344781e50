"""A schema changes under its rows: as one commit, for one branch; the past keeps its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.diff.change_feed import CommitChanges
from omnigraph_lake.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    QueryInvalidError,
    ReadOnlyError,
    SchemaInvalidError,
    SchemaRefusedError,
    ValidationFailedError,
)
from omnigraph_lake.graph import Graph, GraphView
from tests.behaviours.copies import made_once
from tests.behaviours.histories import Row, content
from tests.behind import calling_at, data_files, small_limits
from tests.forking.programs import run_command, start_code, wait_until
from tests.stores import files_of

pytestmark = pytest.mark.behaviour

BEFORE = """
node Human {
    email: String @key
    age: I32?
    state: enum(active, away, left)
}
edge Knows: Human -> Human
"""
AFTER = """
node Person @rename_from("Human") {
    email: String @key
    age: I64 @backfill(0)
    state: enum(active, away, gone) @rename_value(left="gone")
    country: String @backfill("unknown")
    @range(age, 0..150)
}
edge Knows: Person -> Person @card(0..500)
"""
WITH_NOTE = BEFORE.replace("age: I32?", "age: I32?  note: String?")
OLD_QUERY = """
query ages() { match { $p: Human } return { $p.email as email, $p.age as age } order { email } }
"""
NEW_QUERY = OLD_QUERY.replace("Human", "Person")


def human(email: str, age: int | None = None, state: str = "active") -> Row:
    return {"email": email, "age": age, "state": state}


@made_once
def humans(root: str) -> None:
    """Ann and Bob, who know each other, and Cyd, who left: in two fragments, one with a hole."""
    graph = og.init(root, schema=BEFORE)
    graph.write(
        {
            "Human": [human("ann", 41), human("bob"), human("eve", 7)],
            "Knows": [{"id": "ab", "src": "ann", "dst": "bob"}],
        }
    )
    graph.write(
        {"Human": [human("cyd", 12, "left")], "Knows": [{"id": "ba", "src": "bob", "dst": "ann"}]}
    )
    graph.delete({"Human": ["eve"]})


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return humans(graph_root)


OLD_ROWS = {
    "ann": {"id": "ann", "email": "ann", "age": 41, "state": "active"},
    "bob": {"id": "bob", "email": "bob", "state": "active"},
    "cyd": {"id": "cyd", "email": "cyd", "age": 12, "state": "left"},
}
NEW_ROWS = {
    "ann": {"id": "ann", "email": "ann", "age": 41, "state": "active", "country": "unknown"},
    "bob": {"id": "bob", "email": "bob", "age": 0, "state": "active", "country": "unknown"},
    "cyd": {"id": "cyd", "email": "cyd", "age": 12, "state": "gone", "country": "unknown"},
}
EDGES = {
    "ab": {"id": "ab", "src": "ann", "dst": "bob"},
    "ba": {"id": "ba", "src": "bob", "dst": "ann"},
}
OLD_CONTENT = {"Human": OLD_ROWS, "Knows": EDGES}
NEW_CONTENT = {"Person": NEW_ROWS, "Knows": EDGES}


def head(graph: Graph | GraphView) -> str:
    commit_id = graph.snapshot().commit_id
    assert commit_id is not None
    return commit_id


def is_old(graph: Graph | GraphView) -> bool:
    return graph.schema.text == BEFORE and content(graph) == OLD_CONTENT


def is_new(graph: Graph | GraphView) -> bool:
    return graph.schema.text == AFTER and content(graph) == NEW_CONTENT


def ages(graph: Graph | GraphView, query: str) -> list[tuple[str, int | None]]:
    return [(row["email"], row["age"]) for row in graph.query(query).to_pylist()]


def test_a_schema_is_planned_applied_and_the_rows_follow(graph: Graph) -> None:
    plan = graph.schema.plan(AFTER).plan
    assert is_old(graph)

    result = graph.schema.apply(AFTER, actor="ada")

    assert result.applied
    assert result.plan == plan
    assert result.rows_written == {"node:Person": 3}
    assert is_new(graph)
    assert set(graph.snapshot().tables) == {"node:Person", "edge:Knows"}
    assert (head(graph), graph.commits(limit=1)[0].actor) == (result.commit_id, "ada")
    assert graph.maintenance.check().ok
    assert is_new(og.open(graph.root, read_only=True))


def test_a_change_is_one_commit_and_leaves_nothing_unfinished(graph: Graph) -> None:
    before = len(graph.commits())

    graph.schema.apply(AFTER)

    assert len(graph.commits()) == before + 1
    assert graph.maintenance.status().pending_sidecars == ()
    assert not [path for path in files_of(graph.root) if "lock" in path.name]


def test_the_new_rules_hold_for_the_next_row(graph: Graph) -> None:
    graph.schema.apply(AFTER)

    with pytest.raises(ValidationFailedError):
        graph.write({"Person": [{"email": "dan", "age": 151, "state": "gone", "country": "x"}]})
    with pytest.raises(ValidationFailedError):
        graph.write({"Person": [{"email": "dan", "age": 1, "state": "left", "country": "x"}]})
    graph.write({"Person": [{"email": "dan", "age": 150, "state": "gone", "country": "x"}]})
    assert len(content(graph)["Person"]) == 4


def test_rows_that_stand_against_a_change_are_counted_and_named(graph: Graph) -> None:
    before = graph.snapshot()

    with pytest.raises(SchemaRefusedError) as refused:
        graph.schema.apply(
            """
            node Human {
                email: String @key
                age: I32
                state: enum(active, away)
                country: String
                @range(age, 18..)
            }
            edge Knows: Human -> Human
            """,
            filename="strict.pg",
        )

    assert str(refused.value) == (
        "rows of this graph violate strict.pg; nothing was written.\n"
        "  [OG-MF-104] expected a value in age in every row of node:Human; "
        "found 1 row in violation: bob\n"
        "    give these rows a value first, or let `@backfill` fill them\n"
        "  [OG-CS-105] expected state one of active, away in every row of node:Human; "
        "found 1 row in violation: cyd\n"
        '    map the old values with `@rename_value(old="new")`, or change these rows first\n'
        "  [OG-MF-103] expected no row in node:Human; found 3 rows in violation: ann, bob, cyd\n"
        "    write `@backfill(value)` or `@backfill(from=property)` after it, "
        "or make it nullable\n"
        "  [OG-CS-102] expected age within 18.. in every row of node:Human; "
        "found 1 row in violation: cyd\n"
        "    fix these rows first, or widen the range"
    )
    assert graph.snapshot() == before
    assert is_old(graph)


def test_only_the_first_ten_of_many_rows_are_named(graph: Graph) -> None:
    graph.write({"Human": [human(f"p{number:02}") for number in range(20)]})

    with pytest.raises(SchemaRefusedError, match="found 21 rows in violation") as refused:
        graph.schema.apply(BEFORE.replace("age: I32?", "age: I32"))

    first = ", ".join(["bob", *(f"p{number:02}" for number in range(9))])
    assert f"in violation: {first}, ...\n" in str(refused.value)


def test_sources_with_too_many_edges_are_named(graph: Graph) -> None:
    graph.write({"Knows": [{"id": "ac", "src": "ann", "dst": "cyd"}]})

    with pytest.raises(SchemaRefusedError) as refused:
        graph.schema.apply(BEFORE.replace("Human -> Human", "Human -> Human @card(0..1)"))

    assert "[OG-CS-104] expected 0..1 edges for every source in edge:Knows" in str(refused.value)
    assert "found 1 source in violation: ann" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (
            BEFORE.replace("email: String @key", "email: String"),
            "OG-KY-101",
            "the key changes from (email) to none",
        ),
        (BEFORE.replace("age: I32?", "age: String?"), "OG-MF-106", "from I32 to String"),
        (
            "node Other { x: I32 }" + BEFORE.replace("-> Human", "-> Other"),
            "OG-ED-101",
            "its edges join Human -> Human",
        ),
    ],
)
def test_what_no_rows_could_allow_is_refused_with_a_remedy(
    graph: Graph, text: str, code: str, words: str
) -> None:
    before = graph.snapshot()

    with pytest.raises(SchemaRefusedError) as refused:
        graph.schema.apply(text, filename="wild.pg")

    message = str(refused.value)
    assert message.startswith("wild.pg contains 1 change that cannot be made; nothing was written.")
    assert f"[{code}]" in message
    assert words in message
    assert message.splitlines()[-1].strip().startswith(("declare", "add"))
    assert graph.snapshot() == before


def test_a_hint_that_is_wrong_is_shown_at_its_place(graph: Graph) -> None:
    with pytest.raises(SchemaInvalidError, match=r"rename-unknown") as invalid:
        graph.schema.apply(BEFORE + 'node Guest @rename_from("Alien") {}')

    assert "nothing was written" in str(invalid.value)
    assert is_old(graph)


def test_a_text_that_means_the_same_makes_no_commit(graph: Graph) -> None:
    graph.schema.apply(AFTER)
    before = graph.snapshot()

    again = graph.schema.apply(AFTER)
    commented = graph.schema.apply(f"// The same in other words.\n{AFTER}")

    assert (again.applied, again.commit_id) == (False, None)
    assert (commented.applied, commented.schema_hash) == (False, again.schema_hash)
    assert graph.snapshot() == before
    assert graph.schema.text == AFTER


def test_an_operation_applies_once(graph: Graph) -> None:
    operation = str(ULID())

    first = graph.schema.apply(AFTER, operation_id=operation)
    again = graph.schema.apply(AFTER, operation_id=operation)

    assert again.commit_id == first.commit_id
    assert again.schema_hash == first.schema_hash
    assert head(graph) == first.commit_id
    assert graph.outcome(operation) is OperationStatus.PUBLISHED
    assert is_new(graph)


def test_a_handle_for_reading_does_not_change_a_schema(graph: Graph) -> None:
    with pytest.raises(ReadOnlyError, match="change the schema"):
        og.open(graph.root, read_only=True).schema.apply(AFTER)

    assert is_old(graph)


@pytest.fixture
def held_up() -> Iterator[tuple[Event, Event]]:
    """The first change stops once it holds the lock; events: it has stopped, and it may go on."""
    stopped, go_on = Event(), Event()

    def stop() -> None:
        stopped.set()
        assert go_on.wait(60)

    with calling_at("schema.post_lock", stop):
        yield stopped, go_on
    go_on.set()


def test_a_second_change_at_the_same_time_is_refused_at_once(
    graph: Graph, held_up: tuple[Event, Event]
) -> None:
    stopped, go_on = held_up
    second = og.open(graph.root)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(graph.schema.apply, AFTER)
        assert stopped.wait(60)

        with pytest.raises(ConflictError, match="already changing the schema"):
            second.schema.apply(WITH_NOTE)

        go_on.set()
        assert first.result().applied
    assert is_new(graph)
    assert second.schema.apply(AFTER + "node Extra { x: I32 }").applied


OTHER_AGE = BEFORE.replace("age: I32?", "age: F64?")
"""A change of `age` that does not go together with the one of AFTER."""


def test_main_is_not_changed_to_a_schema_that_a_branch_conflicts_with(graph: Graph) -> None:
    graph.branches.create("b").schema.apply(OTHER_AGE)
    graph.branches.create("rows").write({"Human": [human("dan")]})
    graph.branches.create("quiet")

    with pytest.raises(ConflictError) as refused:
        graph.schema.apply(AFTER)

    message = str(refused.value)
    assert "cannot be merged into main: b (conflict SM-105: Human.age becomes I64" in message
    assert "rows" not in message
    assert "quiet" not in message
    assert "--allow-diverged" in message
    assert "nothing was written" in message
    assert is_old(graph)
    assert graph.schema.apply(AFTER, allow_diverged=True).applied


def test_a_plan_says_of_every_branch_whether_it_still_merges(graph: Graph) -> None:
    graph.branches.create("b").schema.apply(OTHER_AGE)
    graph.branches.create("rows").write({"Human": [human("dan")]})
    graph.branches.create("noted").schema.apply(WITH_NOTE)

    told = {each.branch: each.outlook for each in graph.branches.diverged(graph.schema.plan(AFTER))}

    assert told["rows"] == told["noted"] == "merges cleanly"
    assert told["b"].startswith("conflict SM-105: Human.age becomes I64 in ours and F64 in theirs")
    assert [each.conflicts for each in graph.branches.diverged()] == [(), (), ()]
    with pytest.raises(InvalidInputError, match="expected a planned change"):
        graph.branches.diverged(AFTER)  # type: ignore[arg-type]


def test_a_branch_that_was_left_behind_lives_on_with_its_own_schema(graph: Graph) -> None:
    branch = graph.branches.create("b")
    branch.write({"Human": [human("dan", 5)]})

    result = graph.schema.apply(AFTER)

    assert [(each.branch, each.commits, each.outlook) for each in result.diverged] == [
        ("b", 1, "merges cleanly")
    ]
    assert is_new(graph)
    assert branch.schema.text == BEFORE
    assert ages(branch, OLD_QUERY)[-1] == ("dan", 5)
    branch.write({"Human": [human("fay", 6)]})
    assert sorted(content(branch)["Human"]) == ["ann", "bob", "cyd", "dan", "fay"]
    assert branch.maintenance.check().ok
    graph.merge("b")
    assert sorted(content(graph)["Person"]) == ["ann", "bob", "cyd", "dan", "fay"]
    assert graph.maintenance.check().ok


def test_a_merged_branch_does_not_hold_main_up(graph: Graph) -> None:
    branch = graph.branches.create("b")
    branch.write({"Human": [human("dan", 5)]})
    graph.merge("b")

    assert graph.schema.apply(AFTER).applied
    assert len(content(graph)["Person"]) == 4


def test_a_change_on_a_branch_leaves_main_alone(graph: Graph) -> None:
    branch = graph.branches.create("b")

    branch.schema.apply(AFTER)

    assert is_new(branch)
    assert is_old(graph)
    assert is_old(og.open(graph.root))
    assert is_new(og.open(graph.root).checkout("b"))
    graph.write({"Human": [human("dan", 5)]})
    branch.write({"Person": [{"email": "fay", "age": 6, "state": "gone", "country": "x"}]})
    assert len(content(graph)["Human"]) == len(content(branch)["Person"]) == 4
    assert graph.maintenance.check().ok
    assert branch.maintenance.check().ok


def test_both_sides_may_go_to_the_same_text_and_merge(graph: Graph) -> None:
    branch = graph.branches.create("b")
    branch.schema.apply(AFTER)

    graph.schema.apply(AFTER, allow_diverged=True)

    assert is_new(graph)
    assert is_new(branch)
    assert graph.merge("b").tables == {}
    assert is_new(graph)


def test_a_branch_made_after_a_change_merges_as_ever(graph: Graph) -> None:
    graph.schema.apply(AFTER)
    branch = graph.branches.create("b")
    branch.write({"Person": [{"email": "dan", "age": 1, "state": "gone", "country": "x"}]})
    graph.write({"Person": [{"email": "fay", "age": 1, "state": "gone", "country": "x"}]})

    graph.merge("b")

    assert sorted(content(graph)["Person"]) == ["ann", "bob", "cyd", "dan", "fay"]
    assert graph.maintenance.check().ok


def test_a_commit_before_the_change_is_read_and_asked_with_its_own_schema(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(AFTER)
    past = graph.at(before)

    assert is_old(past)
    assert set(past.schema.catalog.nodes) == {"Human"}
    assert ages(past, OLD_QUERY) == [("ann", 41), ("bob", None), ("cyd", 12)]
    with pytest.raises(QueryInvalidError):
        past.query(NEW_QUERY)
    with pytest.raises(QueryInvalidError):
        graph.query(OLD_QUERY)
    assert ages(graph, NEW_QUERY) == [("ann", 41), ("bob", 0), ("cyd", 12)]


def test_every_commit_of_a_chain_of_changes_keeps_its_schema(graph: Graph) -> None:
    texts = [
        BEFORE,
        AFTER,
        AFTER.replace('country: String @backfill("unknown")', ""),
        AFTER.replace('@backfill("unknown")', '@backfill("elsewhere")'),
    ]
    commits = [head(graph)]
    for text in texts[1:]:
        graph.schema.apply(text)
        commits.append(head(graph))

    assert [graph.at(each).schema.text for each in commits] == texts
    countries = [
        {row.get("country") for row in content(graph.at(each))["Person"].values()}
        for each in commits[1:]
    ]
    assert countries == [{"unknown"}, {None}, {"elsewhere"}]


def test_a_tag_keeps_its_schema(graph: Graph) -> None:
    graph.tags.create("before")
    graph.schema.apply(AFTER)
    graph.tags.create("after")
    graph.schema.apply(AFTER.replace("state:", "// a comment\n    state:") + "node X { y: I32 }")

    assert is_old(graph.at("before"))
    assert is_new(graph.at("after"))


def test_a_branch_from_an_old_commit_has_the_old_schema_and_can_be_written(graph: Graph) -> None:
    before = head(graph)
    graph.tags.create("before")
    graph.schema.apply(AFTER)

    for name, source in (("old", before), ("tagged", "before")):
        branch = graph.branches.create(name, source=source)

        assert is_old(branch)
        branch.write({"Human": [human("dan", 5)]})
        assert ages(branch, OLD_QUERY)[-1] == ("dan", 5)
        assert is_new(branch.checkout("main"))
        assert branch.maintenance.check().ok
        assert og.open(graph.root).checkout(name).schema.text == BEFORE


def test_a_dropped_type_is_gone_and_its_name_can_be_used_anew(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply("node Human { email: String @key }")

    assert set(content(graph)) == {"Human"}
    with pytest.raises(NotFoundError):
        graph.scan("Knows")
    graph.schema.apply("node Human { email: String @key } edge Knows: Human -> Human { w: I32 }")
    assert content(graph)["Knows"] == {}
    graph.write({"Knows": [{"id": "x", "src": "ann", "dst": "cyd", "w": 1}]})
    assert content(graph)["Knows"] == {"x": {"id": "x", "src": "ann", "dst": "cyd", "w": 1}}
    assert content(graph.at(before)) == OLD_CONTENT
    assert graph.maintenance.check().ok


def test_a_dropped_property_that_comes_again_holds_none_of_the_old_values(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(BEFORE.replace("age: I32?", ""))
    graph.schema.apply(BEFORE)

    assert set(dict(ages(graph, OLD_QUERY)).values()) == {None}
    assert content(graph.at(before)) == OLD_CONTENT


def test_a_diff_across_a_change_speaks_both_schemas(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(AFTER)

    diff = graph.diff(before)

    assert set(diff.tables) == {"node:Person"}
    person = diff.tables["node:Person"]
    assert person.renamed_from == "node:Human"
    assert person.columns_changed
    told = {row["id"]: row for row in person.rows().read_all().to_pylist()}
    assert {row["op"] for row in told.values()} <= {"update"}
    assert told["bob"]["after"]["age"] == 0
    assert told["cyd"]["before"]["state"] == "left"
    assert told["cyd"]["after"]["state"] == "gone"


RENAMED = BEFORE.replace("age: I32?", 'years: I64? @rename_from("age")')


def test_renamed_and_widened_columns_are_no_changes_of_their_rows(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(RENAMED)

    table = graph.diff(before).tables["node:Human"]

    assert table.counts.total == 0
    assert table.columns_changed
    (column,) = (each for each in table.columns if each.renamed_from)
    assert (column.name, column.renamed_from) == ("years", "age")
    graph.write({"Human": [{"email": "ann", "years": 99}]}, mode="merge")
    (row,) = graph.diff(before).tables["node:Human"].rows().read_all().to_pylist()
    assert (row["id"], row["changed"], row["after"]["years"]) == ("ann", ["years"], 99)
    (back,) = graph.diff("main", before).tables["node:Human"].rows().read_all().to_pylist()
    assert (back["id"], back["changed"], back["before"]["age"]) == ("ann", ["age"], 99)


def test_a_diff_tells_a_dropped_column_from_one_that_took_its_name(graph: Graph) -> None:
    graph.schema.apply(WITH_NOTE)
    graph.write({"Human": [{"email": "ann", "note": "hello"}]}, mode="merge")
    before = head(graph)
    graph.schema.apply(BEFORE)
    graph.schema.apply(BEFORE.replace("age: I32?", 'note: I32? @rename_from("age")'))

    table = graph.diff(before).tables["node:Human"]

    (row,) = table.rows().read_all().to_pylist()
    assert (row["id"], row["changed"]) == ("ann", ["note (before)"])
    assert row["before"]["note (before)"] == "hello"
    assert row["before"]["note"] == row["after"]["note"]


def test_the_feed_tells_of_a_change_and_goes_on_behind_it(graph: Graph) -> None:
    before = head(graph)
    graph.write({"Human": [human("dan", 5)]})
    result = graph.schema.apply(AFTER)
    graph.write({"Person": [{"email": "fay", "age": 6, "state": "gone", "country": "x"}]})

    feed = [*graph.changes(start=before)]

    assert [each.schema_hash for each in feed] == [None, result.schema_hash, None]
    assert [each.commit_id for each in feed[1:]] == [result.commit_id, head(graph)]
    assert [told_ids(each) for each in feed] == [["dan"], [], ["fay"]]
    (last,) = graph.changes(cursor=feed[1].cursor)
    assert told_ids(last) == ["fay"]


def test_a_feed_of_some_types_follows_them_through_a_renaming(graph: Graph) -> None:
    before = head(graph)
    graph.write({"Human": [human("dan", 5)]})
    graph.schema.apply(AFTER)
    graph.write({"Person": [{"email": "fay", "age": 6, "state": "gone", "country": "x"}]})

    feed = [*graph.changes(start=before, types=["Person"])]

    assert [told_ids(each) for each in feed] == [["dan"], [], ["fay"]]
    assert [table.table_key for each in feed for table in each.tables] == [
        "node:Human",
        "node:Person",
    ]


def told_ids(commit: CommitChanges) -> list[str]:
    return [row["id"] for table in commit.tables for row in table.reader().read_all().to_pylist()]


THINGS = "node Thing { name: String @key  x: I32? }"
MORE_OF_THINGS = "node Thing { name: String @key  x: I64 @backfill(7)  y: String? }"


@pytest.fixture
def behind(graph_root: str, tmp_path: Path) -> tuple[Graph, Graph]:
    """A handle that was opened before a change and has not looked since, and who changed it."""
    writer = og.init(f"{graph_root}-things", schema=THINGS)
    writer.write({"Thing": [{"name": "a"}]})
    return og.open(writer.root), writer


def test_an_open_handle_reads_with_the_schema_that_is_in_force(
    behind: tuple[Graph, Graph],
) -> None:
    handle, writer = behind
    writer.schema.apply(MORE_OF_THINGS)

    asked = handle.query("query q() { match { $t: Thing } return { $t.x as x, $t.y as y } }")

    assert asked.to_pylist() == [{"x": 7, "y": None}]
    assert handle.schema.text == MORE_OF_THINGS


def test_an_open_handle_runs_stored_queries_with_the_schema_that_is_in_force(
    behind: tuple[Graph, Graph], tmp_path: Path
) -> None:
    handle, writer = behind
    Path(tmp_path, "x.gq").write_text("query x() { match { $t: Thing } return { $t.x as x } }")
    stored = handle.queries(tmp_path)
    assert stored.run("x").to_pylist() == [{"x": None}]

    writer.schema.apply(MORE_OF_THINGS)

    assert stored.run("x").to_pylist() == [{"x": 7}]
    writer.schema.apply("node Thing { name: String @key  y: String? }")
    with pytest.raises(QueryInvalidError):
        stored.run("x")


def _write(handle: Graph, _: Path) -> object:
    return handle.write({"Thing": [{"name": "b", "x": 2**40, "y": "new"}]})


def _mutate(handle: Graph, _: Path) -> object:
    return handle.mutate(f'query m() {{ insert Thing {{ name: "b", x: {2**40}, y: "new" }} }}')


def _load(handle: Graph, place: Path) -> object:
    lines = place / "rows.jsonl"
    row = {"name": "b", "x": 2**40, "y": "new"}
    lines.write_text(json.dumps({"type": "Thing", "data": row}) + "\n")
    return handle.load(str(lines))


@pytest.mark.parametrize("verb", [_write, _mutate, _load])
def test_an_open_handle_writes_with_the_schema_that_is_in_force(
    behind: tuple[Graph, Graph], tmp_path: Path, verb: Callable[[Graph, Path], object]
) -> None:
    handle, writer = behind
    writer.schema.apply(MORE_OF_THINGS)

    verb(handle, tmp_path)

    row = {"id": "b", "name": "b", "x": 2**40, "y": "new"}
    assert content(writer)["Thing"]["b"] == row
    assert writer.maintenance.check().ok


def test_a_row_of_the_old_schema_is_refused_by_a_handle_that_has_not_looked(graph: Graph) -> None:
    behind = og.open(graph.root)
    graph.schema.apply(AFTER)

    with pytest.raises(InvalidInputError):
        behind.write({"Human": [human("dan")]})
    with pytest.raises(InvalidInputError):
        behind.write({"Person": [{"email": "dan", "age": None, "state": "gone", "country": "x"}]})
    assert is_new(behind)


OTHER_PROCESS = """
import time, omnigraph_lake as og
from pathlib import Path
graph = og.open({root!r})
print(sorted(graph.schema.catalog.nodes), flush=True)
while not Path({changed!r}).exists():
    time.sleep(0.005)
graph.write({{"Person": [{{"email": "dan", "age": 100, "state": "gone", "country": "x"}}]}})
print(sorted(graph.schema.catalog.nodes), len(graph.scan("Person").read_all()), flush=True)
"""


def test_a_handle_of_another_process_notices_a_change(graph: Graph, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    other = start_code(OTHER_PROCESS.format(root=graph.root, changed=str(changed)))
    wait_until(lambda: other.stdout.read_text() == "['Human']\n", "the other process")

    graph.schema.apply(AFTER)
    changed.touch()

    ended = other.finish()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "['Human']\n['Person'] 4\n"
    assert sorted(content(graph)["Person"]) == ["ann", "bob", "cyd", "dan"]


INDEXED = """
node Doc { name: String @key  number: I32 @index  title: String @index  state: enum(a, b) @index }
"""


def indexes(graph: Graph) -> dict[tuple[str, ...], tuple[str, int]]:
    """By column: the name of its index and the rows it does not know."""
    (table,) = graph.maintenance.status().tables
    assert table.missing_indexes == (), table
    return {
        (*each.columns, each.name.rpartition("_")[2]): (each.name, each.unindexed_rows)
        for each in table.indexes
    }


@made_once
def indexed_docs(root: str) -> None:
    """Ten documents in two fragments, with every declared index."""
    graph = og.init(root, schema=INDEXED)
    for start in (0, 5):
        graph.write({"Doc": [doc(number) for number in range(start, start + 5)]})
    graph.maintenance.optimize()


@pytest.fixture
def docs(graph_root: str) -> Graph:
    return indexed_docs(f"{graph_root}-docs")


def doc(number: int) -> Row:
    return {
        "name": f"d{number}",
        "number": number,
        "title": f"word{number}",
        "state": "ab"[number % 2],
    }


def test_declared_indexes_are_right_after_renaming_widening_and_mapping(docs: Graph) -> None:
    docs.schema.apply(
        """
        node Page @rename_from("Doc") {
            name: String @key
            count: I64 @index @rename_from("number")
            title: String
            heading: String @index @backfill(from=title)
            state: enum(a, c) @index @rename_value(b="c")
        }
        """
    )
    docs.maintenance.optimize()
    docs.write(
        {"Page": [{"name": "x", "count": 2**40, "title": "", "heading": "new", "state": "c"}]}
    )
    docs.maintenance.optimize()

    found = indexes(docs)
    assert {each[0] for each in found} == {"id", "name", "count", "heading", "state"}
    assert {name.rpartition("_")[0] for name, _ in found.values()} == {each[0] for each in found}
    assert {rows for _, rows in found.values()} == {0}
    asked = "query q() { match { $p: Page { %s } } return { $p.name as name } order { name } }"
    for condition, names in (
        ("count: 3", ["d3"]),
        (f"count: {2**40}", ["x"]),
        ('heading: "word4"', ["d4"]),
        ('state: "c"', ["d1", "d3", "d5", "d7", "d9", "x"]),
    ):
        rows = docs.query(asked % condition).to_pylist()
        assert [row["name"] for row in rows] == names, condition
    assert docs.maintenance.check().ok


def test_an_index_that_is_no_longer_declared_is_gone_after_optimize(docs: Graph) -> None:
    assert any(each[0] == "number" for each in indexes(docs))

    docs.schema.apply(INDEXED.replace("number: I32 @index", "number: I32"))
    docs.maintenance.optimize()

    assert not any(each[0] == "number" for each in indexes(docs))
    rows = docs.query("query q() { match { $d: Doc { number: 3 } } return { $d.name as name } }")
    assert rows.to_pylist() == [{"name": "d3"}]


def test_an_index_that_is_declared_later_is_missing_until_optimize(docs: Graph) -> None:
    docs.schema.apply(INDEXED.replace("title:", "length: I32? @index  title:"))

    (table,) = docs.maintenance.status().tables
    assert table.missing_indexes == ("length",)
    docs.maintenance.optimize()
    assert any(each[0] == "length" for each in indexes(docs))


def test_what_is_exported_after_a_change_loads_into_a_graph_of_the_new_schema(
    graph: Graph, tmp_path: Path
) -> None:
    graph.schema.apply(AFTER)
    graph.export(tmp_path / "rows.jsonl")
    copy = og.init(f"{graph.root}-copy", schema=AFTER)

    copy.load(str(tmp_path / "rows.jsonl"))

    assert is_new(copy)


def test_cleanup_after_a_drop_takes_what_no_tag_holds(graph: Graph) -> None:
    graph.tags.create("kept")
    graph.write({"Human": [human("dan", 5)]})
    unkept = head(graph)
    graph.schema.apply("node Human { email: String @key }")
    for number in range(3):
        graph.write({"Human": [{"email": f"x{number}"}]})

    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)

    assert is_old(graph.at("kept"))
    with pytest.raises(NotFoundError):
        content(graph.at(unkept))
    assert sorted(content(graph)["Human"]) == ["ann", "bob", "cyd", "dan", "x0", "x1", "x2"]
    assert graph.maintenance.check().ok
    graph.tags.delete("kept")
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
    assert not [path for path in data_files(graph) if path.startswith("edges/")]
    assert graph.maintenance.check().ok


def test_a_hard_drop_ends_what_older_commits_held_unless_a_tag_holds_it(graph: Graph) -> None:
    graph.tags.create("kept")
    graph.write({"Human": [human("dan", 5)], "Knows": [{"id": "da", "src": "dan", "dst": "ann"}]})
    unkept = head(graph)

    result = graph.schema.apply("node Human { email: String @key }", hard=True)

    assert result.bytes_removed
    with pytest.raises(NotFoundError):
        content(graph.at(unkept))
    assert is_old(graph.at("kept"))
    assert sorted(content(graph)["Human"]) == ["ann", "bob", "cyd", "dan"]
    assert graph.maintenance.check().ok


def test_a_type_that_one_branch_drops_stays_for_the_other_through_cleanup(graph: Graph) -> None:
    branch = graph.branches.create("b")
    branch.write({"Human": [human("dan", 5)]})
    graph.schema.apply("node Human { email: String @key }", allow_diverged=True)
    for number in range(3):
        graph.write({"Human": [{"email": f"x{number}"}]})

    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
    graph.maintenance.reconcile(dry_run=False)

    assert content(branch)["Knows"] == EDGES
    assert sorted(content(branch)["Human"]) == ["ann", "bob", "cyd", "dan"]
    branch.write({"Knows": [{"id": "da", "src": "dan", "dst": "ann"}]})
    assert branch.maintenance.check().ok
    assert graph.maintenance.check().ok


def test_new_types_of_one_name_on_two_branches_have_nothing_in_common(graph: Graph) -> None:
    text = BEFORE + "node Extra { x: I32 @index }"
    branch = graph.branches.create("b")
    branch.schema.apply(text)
    branch.write({"Extra": [{"id": "theirs", "x": 1}]})
    graph.schema.apply(text, allow_diverged=True)
    graph.write({"Extra": [{"id": "ours", "x": 2}]})

    assert set(content(branch)["Extra"]) == {"theirs"}
    assert set(content(graph)["Extra"]) == {"ours"}
    graph.branches.delete("b")
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
    assert set(content(graph)["Extra"]) == {"ours"}
    assert graph.maintenance.check().ok


def test_the_past_keeps_its_schemas_when_the_manifest_is_folded(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_limits(monkeypatch, commits_in_manifest=5)
    texts = [BEFORE, WITH_NOTE, AFTER.replace("country", "note: String?  country")]
    commits = [head(graph)]
    for text in texts[1:]:
        graph.schema.apply(text)
        commits.append(head(graph))
    for number in range(8):
        row = {"email": f"x{number}", "age": 1, "state": "gone", "country": "x"}
        graph.write({"Person": [row]})

    fresh = og.open(graph.root)

    assert [fresh.at(each).schema.text for each in commits] == texts
    assert content(fresh.at(commits[0])) == OLD_CONTENT
    branch = fresh.branches.create("b", source=commits[1])
    branch.write({"Human": [human("dan") | {"note": "new"}]})
    assert content(branch)["Human"]["dan"]["note"] == "new"
    assert branch.maintenance.check().ok


def test_names_change_places_by_way_of_a_third(graph_root: str) -> None:
    graph = og.init(f"{graph_root}-pairs", schema="node A { x: I32?  y: I32? @index }")
    graph.write({"A": [{"id": "a", "x": 1, "y": 2}]})
    graph.maintenance.optimize()

    graph.schema.apply('node A { x: I32?  z: I32? @rename_from("y") @index }')
    graph.schema.apply('node A { y: I32? @rename_from("x")  z: I32? @index }')
    graph.schema.apply('node A { y: I32?  x: I32? @rename_from("z") @index }')

    assert content(graph)["A"] == {"a": {"id": "a", "x": 2, "y": 1}}
    graph.maintenance.optimize()
    asked = graph.query("query q() { match { $a: A { x: 2 } } return { $a.y as y } }")
    assert asked.to_pylist() == [{"y": 1}]
    assert graph.maintenance.check().ok


def test_the_command_tells_the_plan_the_rows_and_the_commit(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "new.pg"
    file.write_text(AFTER)

    done = run_command("schema", "apply", graph.root, str(file), "--actor", "ada")

    assert done.returncode == 0, done.stderr
    assert "~ renamed from Human  [metadata]" in done.stdout
    assert f"applied the schema, commit {head(graph)}" in done.stdout
    assert "wrote 3 rows of node:Person" in done.stdout + done.stderr
    assert graph.commits(limit=1)[0].actor == "ada"
    assert is_new(graph)
    again = run_command("schema", "apply", graph.root, str(file))
    assert again.returncode == 0
    assert again.stdout == f"the schema already matches {file}; nothing was written\n"


def test_the_command_gives_json(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "new.pg"
    file.write_text(AFTER)
    graph.branches.create("b").schema.apply(OTHER_AGE)

    held = run_command("schema", "apply", graph.root, str(file), "--json")
    done = run_command("schema", "apply", graph.root, str(file), "--json", "--allow-diverged")

    assert held.returncode == ConflictError.exit_code
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["applied"] is True
    assert told["commit_id"] == head(graph)
    assert told["rows_written"] == {"node:Person": 3}
    assert told["plan"]["supported"] is True
    (diverged,) = told["plan"]["diverged"]
    assert (diverged["branch"], diverged["commits"]) == ("b", 1)
    assert diverged["conflicts"][0].startswith("SM-105: Human.age becomes I64")
    nothing = json.loads(run_command("schema", "apply", graph.root, str(file), "--json").stdout)
    assert (nothing["applied"], nothing["commit_id"]) == (False, None)


def test_the_command_refuses_with_the_reasons(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "strict.pg"
    file.write_text(BEFORE.replace("age: I32?", "age: I32"))

    said = run_command("schema", "apply", graph.root, str(file))
    told = run_command("schema", "apply", graph.root, str(file), "--json")

    assert said.returncode == told.returncode == SchemaRefusedError.exit_code
    assert "[OG-MF-104]" in said.stderr
    assert "found 1 row in violation: bob" in said.stderr
    assert json.loads(told.stdout)["applied"] is False
    assert is_old(graph)


def test_the_command_changes_the_branch_it_is_told(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "new.pg"
    file.write_text(AFTER)
    branch = graph.branches.create("b")

    done = run_command("schema", "apply", graph.root, str(file), "--branch", "b")

    assert done.returncode == 0, done.stderr
    assert is_new(branch)
    assert is_old(graph)
    shown = run_command("schema", "show", graph.root, "--source", "--branch", "b")
    assert shown.stdout.strip() == AFTER.strip()
