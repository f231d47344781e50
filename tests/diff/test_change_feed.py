"""The change feed: whole commits in order, exact images, cursors that resume and refuse."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import lance
import pyarrow as pa
import pytest
from ulid import ULID

import omnigraph_lake as og
from benchmarks.open_cost import synthesise_commits, wide_schema
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.commit.publish import Decision, publish
from omnigraph_lake.diff.branch_line import BranchLine, decode, encode
from omnigraph_lake.diff.change_feed import (
    BaselineEnd,
    BaselineTable,
    ChangeFeed,
    CommitChanges,
    baseline,
    changes,
)
from omnigraph_lake.diff.table_diff import ChangeCounts
from omnigraph_lake.errors import (
    DamagedGraphError,
    InvalidInputError,
    NotFoundError,
    OmnigraphError,
)
from omnigraph_lake.failpoints import Action, Armed, FailpointReached, arm, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.datasets import create_dataset
from omnigraph_lake.storage.manifest.swap import SwapAnswer, read_manifest, swap_manifest
from omnigraph_lake.storage.manifest_rows import (
    GraphCommit,
    Operation,
    Outcome,
    Table,
    TableVersion,
)
from omnigraph_lake.storage.objects.location import parse_root
from tests.drawing import seeds
from tests.maintenance.old_graphs import old_graph

pytestmark = pytest.mark.behaviour

SCHEMA = """
node Person { name: String @key  age: I32? }
node Note { text: String @key }
edge Knows: Person -> Person { since: I32? }
"""
Tables = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


def feed(graph: Graph, **options: Any) -> ChangeFeed:
    return changes(graph._objects, graph.schema.catalog, graph.branch, **options)


def rows_of(commit: CommitChanges) -> dict[str, list[dict[str, Any]]]:
    return {table.table_key: table.reader().read_all().to_pylist() for table in commit.tables}


def spelt(commit: CommitChanges) -> list[str]:
    return [
        f"{row['op']} {key} {row['id']}" for key, rows in rows_of(commit).items() for row in rows
    ]


def people(*names: str, age: int | None = None) -> dict[str, og.Rows]:
    return {"Person": [{"name": name, "age": age} for name in names]}


def as_read(graph: Graph) -> Tables:
    """All rows of the graph, by table and id."""
    readers = {"node:Person": graph.scan("Person"), "node:Note": graph.scan("Note")}
    readers["edge:Knows"] = graph.scan("Knows")
    return {
        key: {row["id"]: row for row in reader.read_all().to_pylist()}
        for key, reader in readers.items()
    }


def apply(commit: CommitChanges, tables: Tables) -> None:
    """Carry a commit's changes out on a copy, which must be what the commit found."""
    for key, rows in rows_of(commit).items():
        assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
        for row in rows:
            assert tables[key].get(row["id"]) == row["before"]
            if row["after"] is None:
                del tables[key][row["id"]]
            else:
                tables[key][row["id"]] = row["after"]
            if row["op"] == "update":
                changed = [n for n in row["after"] if row["before"][n] != row["after"][n]]
                assert row["changed"] == changed != []


def publish_versions(graph: Graph, versions: Mapping[str, int]) -> str:
    """Publish versions of tables that something else made, as one commit."""
    commit_id = str(ULID())
    operation = Operation(
        operation_id=str(ULID()),
        branch=None,
        outcome=Outcome.PUBLISHED,
        decided_by="test",
        decided_at="2026-11-15T00:00:00+00:00",
        commit_id=commit_id,
    )
    moved = tuple(
        TableVersion(table_key=key, version=version, row_count=0)
        for key, version in versions.items()
    )
    commit = GraphCommit(
        commit_id=commit_id,
        branch=None,
        operation_id=operation.operation_id,
        actor="test",
        created_at=operation.decided_at,
        tables=tuple((each.table_key, each.version, None) for each in moved),
    )
    decision = Decision(operation=operation, expected={}, moved=moved, commit=commit)
    publish(parse_root(graph.root), decision, branch=None)
    return commit_id


def table_of(graph: Graph, table_key: str) -> lance.LanceDataset:
    entry = graph.snapshot().tables[table_key]
    return lance.dataset(f"{graph.root}/{entry.location}", version=entry.version)


def forget(graph: Graph, table_key: str, *versions: int) -> None:
    table_of(graph, table_key).cleanup_old_versions(versions=list(versions))


def test_every_commit_comes_whole_and_in_order_with_what_it_changed(graph: Graph) -> None:
    graph.write({**people("b", "a"), "Note": [{"text": "n"}], "Knows": [{"src": "a", "dst": "b"}]})
    graph.write(people("a", "c", age=7), mode="merge", actor="ann")
    graph.delete({"Person": ["b"]})

    init, first, second, third = feed(graph, start="beginning")

    assert [init.commit_id, first.commit_id, second.commit_id, third.commit_id] == [
        each.commit_id for each in reversed(graph.commits())
    ]
    edge = next(iter(graph.at(first.commit_id).scan("Knows").read_all()["id"].to_pylist()))
    assert spelt(init) == []
    assert spelt(first) == [
        "insert node:Note n",
        "insert node:Person a",
        "insert node:Person b",
        f"insert edge:Knows {edge}",
    ]
    assert rows_of(second) == {
        "node:Person": [
            {
                "op": "update",
                "id": "a",
                "changed": ["age"],
                "before": {"id": "a", "name": "a", "age": None},
                "after": {"id": "a", "name": "a", "age": 7},
            },
            {
                "op": "insert",
                "id": "c",
                "changed": None,
                "before": None,
                "after": {"id": "c", "name": "c", "age": 7},
            },
        ]
    }
    assert [table.counts for table in second.tables] == [ChangeCounts(inserted=1, updated=1)]
    assert spelt(third) == ["delete node:Person b", f"delete edge:Knows {edge}"]
    assert (second.actor, second.parent_id, second.merged_parent_id, second.branch) == (
        "ann",
        first.commit_id,
        None,
        "main",
    )
    assert second.created_at == graph.commits()[1].created_at


def random_write(graph: Graph, chance: random.Random) -> None:
    """Any write; some change nothing, some many rows of several types."""
    some = [f"p{n}" for n in sorted(chance.sample(range(12), chance.randint(1, 6)))]
    known = sorted(graph.scan("Person", columns=["id"]).read_all()["id"].to_pylist())
    match chance.choice(["merge", "merge", "merge", "edges", "notes", "delete", "overwrite"]):
        case "merge":
            graph.write(people(*some, age=chance.randint(1, 2)), mode="merge")
        case "edges" if known:
            ends = [{"src": chance.choice(known), "dst": chance.choice(known)} for _ in some]
            graph.write({"Knows": ends, "Note": [{"text": f"{chance.getrandbits(64):x}"}]})
        case "notes":
            graph.write({"Note": [{"text": f"{chance.getrandbits(64):x}"} for _ in some]})
        case "delete" if known:
            graph.delete({"Person": chance.sample(known, 1)})
        case "overwrite":
            notes = [{"text": text} for text in chance.sample(["one", "two", "three"], 2)]
            graph.write({"Note": notes}, mode="overwrite")
        case _:
            graph.write(people(*some), mode="merge")


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("feed", 1))
def test_a_copy_that_follows_the_feed_is_the_graph(graph: Graph, seed: str) -> None:
    chance = random.Random(seed)
    copy: Tables = {key: {} for key in graph.snapshot().tables}
    cursor = feed(graph, start="beginning").cursor
    states: dict[str, Tables] = {}
    delivered: list[str] = []
    for _ in range(6):
        for _ in range(chance.randint(0, 4)):
            random_write(graph, chance)
            head = graph.commits()[0].commit_id
            states[head] = as_read(graph)
            if chance.random() < 0.1:
                root = parse_root(graph.root)
                compact_commits(root, read_manifest(root))
        poll = feed(graph, cursor=cursor, limit_commits=chance.choice([1, 2, None]))
        for commit in poll:
            apply(commit, copy)
            delivered.append(commit.commit_id)
            if commit.commit_id in states:
                assert copy == states[commit.commit_id]
        cursor = poll.cursor
    for commit in feed(graph, cursor=cursor):
        apply(commit, copy)
        delivered.append(commit.commit_id)

    assert copy == as_read(graph)
    assert delivered == [each.commit_id for each in reversed(graph.commits())]


def test_now_is_where_the_head_is(graph: Graph) -> None:
    graph.write(people("a"))
    poll = feed(graph)

    assert list(poll) == []
    assert poll.caught_up
    graph.write(people("b"))
    assert [spelt(each) for each in feed(graph, cursor=poll.cursor)] == [["insert node:Person b"]]


def test_a_start_at_a_commit_begins_after_it(graph: Graph) -> None:
    commits = [graph.write(people(name)).commit_id for name in "abc"]
    assert commits[0] is not None

    assert [each.commit_id for each in feed(graph, start=commits[0])] == commits[1:]
    assert [each.commit_id for each in feed(graph, start=commits[0].lower())] == commits[1:]


def test_a_commit_of_another_line_is_no_start(graph: Graph) -> None:
    other = graph.branches.create("dev").write(people("x")).commit_id

    with pytest.raises(NotFoundError, match=f"commit {other} is not on the line of main"):
        feed(graph, start=other)


@pytest.mark.parametrize("start", ["yesterday", "", None, 7, "v3"])
def test_a_start_that_means_nothing_is_refused(graph: Graph, start: Any) -> None:
    with pytest.raises(InvalidInputError, match="start is"):
        feed(graph, start=start)


def test_what_is_published_while_a_feed_is_read_waits_for_the_next_call(graph: Graph) -> None:
    graph.write(people("a"))
    poll = feed(graph, start="beginning")
    next(poll)
    graph.write(people("b"))

    assert [spelt(each) for each in poll] == [["insert node:Person a"]]
    assert poll.caught_up
    assert poll.head == graph.commits()[1].commit_id
    assert [spelt(each) for each in feed(graph, cursor=poll.cursor)] == [["insert node:Person b"]]


def test_a_limit_ends_a_call_after_whole_commits(graph: Graph) -> None:
    for name in "abcd":
        graph.write(people(name))
    first = feed(graph, start="beginning", limit_commits=3)
    seen = [each.commit_id for each in first]
    second = feed(graph, cursor=first.cursor, limit_commits=3)
    seen += [each.commit_id for each in second]

    assert (first.caught_up, second.caught_up) == (False, True)
    assert seen == [each.commit_id for each in reversed(graph.commits())]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "3"])
def test_a_limit_that_is_no_number_of_commits_is_refused(graph: Graph, limit: Any) -> None:
    with pytest.raises(InvalidInputError, match="limit_commits is"):
        feed(graph, limit_commits=limit)


def test_the_cursor_moves_when_a_commit_is_left_behind(graph: Graph) -> None:
    graph.write(people("a"))
    graph.write(people("b"))
    poll = feed(graph, start=graph.commits()[2].commit_id)
    start = poll.cursor

    first = next(poll)
    assert poll.cursor == start, "who stops here has not finished the commit"
    second = next(poll)
    assert poll.cursor == first.cursor
    assert list(poll) == []
    assert poll.cursor == second.cursor
    again = feed(graph, cursor=first.cursor)
    assert [each.commit_id for each in again] == [second.commit_id]


def test_a_commit_that_changes_no_row_is_an_empty_block(graph: Graph) -> None:
    graph.write(people("a", age=1))
    graph.write(people("b", age=1))
    start = feed(graph).cursor
    same = graph.write(people("a", "b", age=1), mode="merge").commit_id
    table = table_of(graph, "node:Person")
    table.optimize.compact_files()
    compacted = publish_versions(graph, {"node:Person": table.version})
    graph.write(people("c"))

    blocks = [(each.commit_id, spelt(each)) for each in feed(graph, cursor=start)]

    assert blocks == [
        (same, []),
        (compacted, []),
        (graph.commits()[0].commit_id, ["insert node:Person c"]),
    ]


@pytest.mark.parametrize(
    "point", ["mutation.post_stage", "mutation.post_direct_commit", "publish.pre_manifest"]
)
def test_a_write_that_others_settled_appears_as_it_was_settled(graph: Graph, point: str) -> None:
    graph.write(people("a"))
    start = feed(graph).cursor
    arm(point, Armed(action=Action.ERROR))
    try:
        with pytest.raises(FailpointReached):
            graph.write({**people("b"), "Note": [{"text": "m"}]})
    finally:
        disarm_all()
    reopened = og.open(graph.root)
    brought = ["insert node:Note m", "insert node:Person b"]
    settled = [brought] if as_read(reopened)["node:Note"] else []
    reopened.write(people("c"))

    found = [spelt(each) for each in feed(reopened, cursor=start)]

    assert [each for each in found if each] == [*settled, ["insert node:Person c"]]


def test_only_chosen_types_are_reported_but_every_commit_appears(graph: Graph) -> None:
    graph.write(people("a", "b"))
    graph.write({"Note": [{"text": "n"}], "Knows": [{"src": "a", "dst": "b"}]})

    notes = feed(graph, start="beginning", types=["Note"])
    both = feed(graph, start="beginning", types=["edge:Knows", "node:Note"])

    assert [spelt(each) for each in notes] == [[], [], ["insert node:Note n"]]
    assert [[table.table_key for table in each.tables] for each in both][2] == [
        "node:Note",
        "edge:Knows",
    ]


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ("Person", "types is 'Person', expected a list"),
        ([], "expected a list"),
        (["Persn"], "no type 'Persn'"),
        ([7], "names a type 7"),
    ],
)
def test_types_that_mean_nothing_are_refused(graph: Graph, types: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        feed(graph, types=types)


def test_the_line_of_a_branch_goes_through_its_fork(graph: Graph) -> None:
    graph.write(people("a"))
    dev = graph.branches.create("dev")
    graph.write(people("only main"))
    dev.write(people("b"))

    _, before, after = feed(dev, start="beginning")

    assert (spelt(before), before.branch) == (["insert node:Person a"], "main")
    assert (spelt(after), after.branch) == (["insert node:Person b"], "dev")
    assert after.parent_id == before.commit_id


def test_a_merge_is_one_commit_of_the_line_with_all_it_brought(graph: Graph) -> None:
    graph.write(people("a", age=1))
    start = feed(graph).cursor
    dev = graph.branches.create("dev")
    dev.write(people("b"))
    dev.write(people("a", age=2), mode="merge")
    graph.write({"Note": [{"text": "n"}]})
    merged = graph.merge("dev")

    note, merge = feed(graph, cursor=start)

    assert spelt(note) == ["insert node:Note n"]
    assert spelt(merge) == ["update node:Person a", "insert node:Person b"]
    assert (merge.commit_id, merge.merged_parent_id) == (merged.commit_id, merged.source_commit_id)


def test_a_feed_goes_on_on_a_branch_that_was_merged_into(graph: Graph) -> None:
    graph.write(people("a", age=1))
    dev = graph.branches.create("dev")
    start = feed(dev).cursor
    graph.write(people("b"))
    dev.merge("main")
    dev.write(people("b", age=5), mode="merge")

    assert [spelt(each) for each in feed(dev, cursor=start)] == [
        ["insert node:Person b"],
        ["update node:Person b"],
    ]


def refused_cursors(
    graph: Graph, cursor: str
) -> list[tuple[str, dict[str, Any], type[OmnigraphError], str]]:
    """Cursors that are not for this feed: what is asked, and what is said."""
    elsewhere = og.init(f"{graph.root}-other", schema=SCHEMA)
    graph.branches.create("dev")
    dev = graph.checkout("dev")
    dev.write(people("x"))
    sibling = feed(dev).cursor
    graph.branches.delete("dev")
    graph.branches.create("dev")
    unknown = encode(replace(decode(cursor), commit_id=str(ULID())))
    another = encode(replace(decode(cursor), incarnation=str(ULID()), graph=str(ULID())))
    return [
        ("main", {"cursor": cursor[:-5] + "AAAAA"}, InvalidInputError, "corrupted or truncated"),
        ("main", {"cursor": "x"}, InvalidInputError, "cursor"),
        ("main", {"cursor": feed(elsewhere).cursor}, InvalidInputError, "for another graph"),
        ("main", {"cursor": another}, InvalidInputError, "for another graph"),
        ("main", {"cursor": cursor, "types": ["Note"]}, InvalidInputError, "other types"),
        ("main", {"cursor": sibling}, InvalidInputError, "for branch 'dev', not for 'main'"),
        ("dev", {"cursor": cursor}, InvalidInputError, "for branch 'main', not for 'dev'"),
        ("dev", {"cursor": sibling}, NotFoundError, "was deleted; the branch of that name"),
        ("main", {"cursor": unknown}, NotFoundError, "is no longer in the history of main"),
        ("main", {"cursor": cursor, "start": "beginning"}, InvalidInputError, "and start"),
    ]


def test_a_cursor_for_something_else_is_refused(graph: Graph) -> None:
    graph.write(people("a"))
    for branch, options, kind, said in refused_cursors(graph, feed(graph).cursor):
        with pytest.raises(kind, match=said) as caught:
            feed(graph.checkout(branch), **options)

        assert caught.value.next_step, said


def test_an_unknown_branch_has_no_feed(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="has no branch 'dev'"):
        changes(graph._objects, graph.schema.catalog, "dev")


def test_the_history_is_followed_however_often_commits_were_folded(graph: Graph) -> None:
    root = parse_root(graph.root)
    cursors = []
    for number in range(8):
        graph.write(people(f"p{number:02}"))
        cursors.append(feed(graph).cursor)
        if number % 3 == 0:
            assert compact_commits(root, read_manifest(root))

    for number, cursor in enumerate(cursors):
        found = [spelt(each) for each in feed(graph, cursor=cursor)]

        assert found == [[f"insert node:Person p{n:02}"] for n in range(number + 1, 8)]


def test_a_table_that_moved_last_before_a_fold_is_compared_with_that(graph: Graph) -> None:
    root = parse_root(graph.root)
    graph.write(people("a", age=1))
    for number in range(3):
        graph.write({"Note": [{"text": f"n{number}"}]})
    assert compact_commits(root, read_manifest(root))
    start = feed(graph).cursor
    graph.write(people("a", age=2), mode="merge")

    (commit,) = feed(graph, cursor=start)

    assert rows_of(commit)["node:Person"][0]["before"]["age"] == 1


def reads(act: Any) -> int:
    before = lance.iops_counter()
    act()
    return lance.iops_counter() - before


def test_a_call_without_news_costs_the_same_whatever_the_history(graph_root: str) -> None:
    graph = og.init(graph_root, schema=wide_schema(20))
    root = parse_root(graph_root)
    costs = []
    for made, total in ((0, 110), (110, 310)):
        synthesise_commits(root, made, total)
        cursor = encode(BranchLine(graph._objects, None, None).cursor(graph_head(graph), graph="x"))
        costs.append(reads(lambda cursor=cursor: list(feed(graph, cursor=cursor))))

    assert costs[0] == costs[1] <= 5


def graph_head(graph: Graph) -> str:
    return read_manifest(parse_root(graph.root)).head.commit_id


def test_following_commits_reads_no_manifest_version_per_commit(graph: Graph) -> None:
    graph.write({**people("a"), "Note": [{"text": "n"}]})
    start = decode(feed(graph).cursor)
    costs = []
    for size in (3, 30):
        for number in range(size):
            graph.write(people(f"p{size}-{number}"))
        line = BranchLine(graph._objects, None, None)
        commits = line.after(start)
        costs.append(reads(lambda line=line, commits=commits: list(line.moves(commits))))

    assert costs[1] <= max(costs[0], 3)


def test_a_gap_names_the_first_commit_that_cannot_be_read(graph: Graph) -> None:
    for number in range(5):
        graph.write(people(f"p{number}"))
    commits = [each.commit_id for each in reversed(graph.commits())]
    table = table_of(graph, "node:Person")
    assert table.version == 6
    forget(graph, "node:Person", 3)

    poll = feed(graph, start="beginning")
    assert [next(poll).commit_id, next(poll).commit_id] == commits[:2]
    with pytest.raises(NotFoundError) as caught:
        next(poll)

    assert caught.value.what == (
        f"the changes of commit {commits[2]} on main can no longer be read: "
        "version 3 of node:Person is not kept"
    )
    assert "baseline" in caught.value.next_step
    with pytest.raises(NotFoundError, match=commits[3]):
        list(feed(graph, start=commits[2]))
    assert len(list(feed(graph, start=commits[3]))) == 2
    assert len(list(feed(graph, start="beginning", types=["Note"]))) == 6


def test_a_version_that_goes_while_it_is_read_is_a_gap_too(graph: Graph) -> None:
    many = [f"p{number}" for number in range(3_000)]
    for number in range(3):
        graph.write(people(*many, age=number), mode="merge")
    *_, middle, _ = feed(graph, start="beginning")
    forget(graph, "node:Person", 2, 3)

    with pytest.raises(NotFoundError, match=f"the changes of commit {middle.commit_id} on main"):
        middle.tables[0].reader().read_all()


def test_commits_older_than_their_record_are_a_gap(graph_root: str) -> None:
    old_graph(graph_root, stamp=3)
    graph = og.open(graph_root)
    graph.write({"Person": [{"name": "a"}]})

    with pytest.raises(NotFoundError, match="older than the recorded changes"):
        list(feed(graph, start="beginning"))
    (commit,) = feed(graph, start=graph.commits()[1].commit_id)
    assert spelt(commit) == ["insert node:Person a"]


def test_commits_that_do_not_lead_to_the_head_are_damage(graph: Graph) -> None:
    graph.write(people("a"))
    start = feed(graph).cursor
    graph.write(people("b"))
    root = parse_root(graph.root)
    state = read_manifest(root)
    moved = [
        replace(row, version=2)
        if isinstance(row, TableVersion) and row.table_key == "node:Person"
        else row
        for row in state.rows
    ]
    assert swap_manifest(state, moved, operation_id="wrong") is SwapAnswer.ACCEPTED

    with pytest.raises(DamagedGraphError, match="lead to version 3 of node:Person"):
        list(feed(graph, cursor=start))


def test_a_column_of_one_side_only_is_an_event_of_its_commit(graph: Graph) -> None:
    graph.write(people("a", age=1))
    start = feed(graph).cursor
    table = table_of(graph, "node:Person")
    table.add_columns({"nick": "'none'"})
    widened = publish_versions(graph, {"node:Person": table.version})
    table.drop_columns(["age"])
    table.update({"nick": "'al'"})
    publish_versions(graph, {"node:Person": table.version})

    wide, narrow = feed(graph, cursor=start)

    assert wide.commit_id == widened
    assert [table.schema_changed for table in (*wide.tables, *narrow.tables)] == [True, True]
    columns = {each.name: (each.before, each.after) for each in wide.tables[0].columns}
    assert columns["nick"] == (None, pa.string())
    assert columns["age"] == (pa.int32(), pa.int32())
    (row,) = rows_of(narrow)["node:Person"]
    assert row["changed"] == ["nick", "age"]
    assert row["before"] == {"id": "a", "name": "a", "nick": "none", "age": 1}
    assert row["after"] == {"id": "a", "name": "a", "nick": "al", "age": None}


def test_a_column_that_stays_empty_is_an_event_without_rows(graph: Graph) -> None:
    graph.write(people("a", age=1))
    start = feed(graph).cursor
    table = table_of(graph, "node:Person")
    table.add_columns(pa.schema([pa.field("nick", pa.string())]))
    publish_versions(graph, {"node:Person": table.version})

    (commit,) = feed(graph, cursor=start)

    assert [table.schema_changed for table in commit.tables] == [True]
    assert commit.tables[0].counts == ChangeCounts()
    assert rows_of(commit) == {"node:Person": []}


def test_a_type_that_is_new_is_an_event_with_its_rows(graph: Graph) -> None:
    graph.write(people("a"))
    start = feed(graph).cursor
    root = parse_root(graph.root)
    schema = pa.schema([pa.field("id", pa.string(), nullable=False)])
    create_dataset(root, "nodes/new", pa.table({"id": ["x"]}, schema=schema), operation_id="new")
    state = read_manifest(root)
    known = (*state.rows, Table(table_key="node:New", location="nodes/new"))
    assert swap_manifest(state, known, operation_id="new") is SwapAnswer.ACCEPTED
    publish_versions(graph, {"node:New": 1})

    (commit,) = feed(graph, cursor=start)

    assert spelt(commit) == ["insert node:New x"]
    assert commit.tables[0].schema_changed
    assert [each.before for each in commit.tables[0].columns] == [None]


def taken(graph: Graph, **options: Any) -> tuple[dict[str, list[dict[str, Any]]], BaselineEnd]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for element in baseline(graph._objects, graph.schema.catalog, graph.branch, **options):
        if isinstance(element, BaselineEnd):
            return rows, element
        assert element.table_key not in rows
        rows[element.table_key] = element.reader().read_all().to_pylist()
        assert len(rows[element.table_key]) == element.row_count
    raise AssertionError("a baseline ends with its cursor")


def test_a_baseline_is_every_row_as_an_insert_and_then_the_cursor(graph: Graph) -> None:
    graph.write({**people("a", "b", age=1), "Knows": [{"src": "a", "dst": "b"}]})
    graph.delete({"Person": ["b"]})
    graph.write(people("a", age=2), mode="merge")
    forget(graph, "node:Person", 2)

    rows, end = taken(graph)
    graph.write(people("c"))

    assert list(rows) == ["node:Note", "node:Person", "edge:Knows"]
    assert rows["node:Person"] == [
        {
            "op": "insert",
            "id": "a",
            "changed": None,
            "before": None,
            "after": {"id": "a", "name": "a", "age": 2},
        }
    ]
    assert end.commit_id == graph.commits()[1].commit_id
    assert [spelt(each) for each in feed(graph, cursor=end.cursor)] == [["insert node:Person c"]]


def test_a_baseline_shows_one_state_whatever_is_written_meanwhile(graph: Graph) -> None:
    graph.write({**people("a"), "Note": [{"text": "n"}]})
    elements = baseline(graph._objects, graph.schema.catalog, None)
    first = next(elements)
    graph.write({**people("b"), "Note": [{"text": "m"}]})

    assert isinstance(first, BaselineTable)
    assert first.reader().read_all()["id"].to_pylist() == ["n"]
    second = next(elements)
    assert isinstance(second, BaselineTable)
    assert second.reader().read_all()["id"].to_pylist() == ["a"]


def test_the_cursor_of_a_baseline_waits_until_all_rows_were_read(graph: Graph) -> None:
    graph.write(people("a", "b"))
    elements = baseline(graph._objects, graph.schema.catalog, None)
    tables = [next(elements) for _ in range(3)]

    with pytest.raises(InvalidInputError, match="node:Person was not read completely"):
        next(elements)
    half = tables[1]
    assert isinstance(half, BaselineTable)
    half.reader().read_next_batch()
    with pytest.raises(InvalidInputError, match="node:Person was not read completely"):
        next(elements)
    half.reader().read_all()

    assert isinstance(next(elements), BaselineEnd)
    assert list(elements) == []


def test_a_baseline_of_some_types_goes_on_with_those_types(graph: Graph) -> None:
    graph.write({**people("a"), "Note": [{"text": "n"}]})

    rows, end = taken(graph, types=["Person"])

    assert list(rows) == ["node:Person"]
    assert list(feed(graph, cursor=end.cursor, types=["Person"])) == []
    with pytest.raises(InvalidInputError, match="other types"):
        feed(graph, cursor=end.cursor)


def test_rows_are_streamed_in_batches_of_the_size_asked_for(graph: Graph) -> None:
    graph.write(people(*(f"p{n:04}" for n in range(9_000))))
    graph.write(people(*(f"p{n:04}" for n in range(0, 9_000, 2)), age=1), mode="merge")
    graph.write(people("p0000", "p0001", "p0003", age=7), mode="merge")

    *_, many, few = feed(graph, start="beginning")
    sizes = [
        [len(batch) for batch in each.tables[0].reader(batch_rows=500)] for each in (many, few)
    ]

    assert [sum(each) for each in sizes] == [4_500, 3]
    assert max(map(max, sizes)) <= 500
    assert [len(each) for each in few.tables[0].reader(batch_rows=2)] == [2, 1]
    assert [each.tables[0].counts.updated for each in (many, few)] == [4_500, 3]


def blobs(graph: Graph, rows: Sequence[Mapping[str, object]]) -> None:
    graph.write({"Doc": list(rows)}, mode="merge")


def test_blobs_are_their_bytes_in_a_feed_and_in_a_baseline(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node Doc { slug: String @key  scan: Blob? }")
    blobs(graph, [{"slug": "a", "scan": b"x" * 70_000}, {"slug": "b", "scan": None}])
    blobs(graph, [{"slug": "a", "scan": b"y" * 70_000}])

    *_, commit = feed(graph, start="beginning")
    rows, _ = taken(graph)

    (row,) = rows_of(commit)["node:Doc"]
    assert (row["before"]["scan"], row["after"]["scan"]) == (b"x" * 70_000, b"y" * 70_000)
    assert {each["id"]: each["after"]["scan"] for each in rows["node:Doc"]} == {
        "a": b"y" * 70_000,
        "b": None,
    }


ANYTHING = """
node Any {
    slug: String @key  scan: Blob?  vector: Vector(3)?  tags: [String]?  day: Date?
    at: DateTime?  f64: F64?  u64: U64?
}
"""


@pytest.mark.parametrize("mode", ["append", "merge", "delete"])
def test_few_rows_that_are_held_are_those_that_would_be_read(graph_root: str, mode: str) -> None:
    graph = og.init(graph_root, schema=ANYTHING)
    full = {
        "scan": b"x",
        "vector": [1.0, float("nan"), -0.0],
        "tags": ["b", None],
        "day": date(2026, 11, 15),
        "at": datetime(2026, 11, 15, 12, tzinfo=UTC),
        "f64": float("inf"),
        "u64": 2**64 - 1,
    }
    graph.write({"Any": [{"slug": "b", **full}, {"slug": "c"}, {"slug": "a", **full}]})
    if mode == "merge":
        graph.write({"Any": [{"slug": "d"}, {"slug": "b", **full, "tags": []}]}, mode="merge")
    if mode == "delete":
        graph.delete({"Any": ["c", "b"]})

    *_, commit = feed(graph, start="beginning")
    (table,) = commit.tables

    held, read = table.reader().read_all(), table._diff.reader().read_all()
    held.validate(full=True)
    assert table._held is not None
    assert held.schema == read.schema
    assert repr(held.to_pylist()) == repr(read.to_pylist())
    assert len(held) == {"append": 3, "merge": 2, "delete": 2}[mode]
