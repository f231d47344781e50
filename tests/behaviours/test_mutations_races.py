"""Mutations among other writers: nothing is computed from what has changed since."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import ConflictError, ValidationFailedError
from omnigraph_lake.graph import Graph
from tests.behaviours.copies import made_once
from tests.behind import after_mutation_computed
from tests.commit.small_graphs import accounts, small_graph
from tests.forking.programs import start_code
from tests.gate.selection import is_nightly

pytestmark = pytest.mark.behaviour

INCREMENT = 'query q() { update Account set { balance: balance + 1 } where name = "a" }'
COUNTER = """
import omnigraph_lake as og
graph = og.open({root!r})
for _ in range({times}):
    graph.mutate({query!r})
"""


TIMES = 40 if is_nightly() else 6


@made_once
def two_accounts(root: str) -> None:
    rows = [{"name": "a", "balance": 0}, {"name": "b", "balance": 0}]
    small_graph(root).write({"Account": rows})


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return two_accounts(graph_root)


def test_processes_that_count_up_one_value_lose_nothing(graph: Graph) -> None:
    program = COUNTER.format(root=graph.root, times=TIMES, query=INCREMENT)
    for writer in [start_code(program) for _ in range(2)]:
        ended = writer.finish()
        assert ended.returncode == 0, ended.stderr

    assert accounts(graph) == {"a": 2 * TIMES, "b": 0}
    assert len(graph.commits()) == 1 + 1 + 2 * TIMES
    assert graph.maintenance.check().ok


@pytest.mark.parametrize("other", ["mutate", "write", "delete"])
def test_an_update_is_computed_again_from_newer_values(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: graph.write({"Account": [{"name": "a", "balance": 9}]}, mode="merge"),
        "delete": lambda: graph.delete({"Account": ["a"]}),
        "mutate": lambda: graph.mutate(INCREMENT),
    }
    computed = after_mutation_computed(monkeypatch, acts[other])

    result = graph.mutate(INCREMENT)

    assert len(computed) >= 2
    if other == "delete":
        assert (result.commit_id, accounts(graph)) == (None, {"b": 0})
    else:
        assert accounts(graph)["a"] == (10 if other == "write" else 2)


def test_a_condition_over_a_table_that_is_not_written_is_asked_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second statement does nothing at first, so only the read set knows of its table."""
    graph.write({"Note": [{"id": "n", "text": "old"}]})
    text = """query q() {
        update Account set { balance: 5 } where name = "a"
        delete Note where text = "new"
    }"""
    after_mutation_computed(
        monkeypatch,
        lambda: graph.write({"Note": [{"id": "n", "text": "new"}]}, mode="merge"),
    )

    result = graph.mutate(text)

    assert [each.nodes for each in result.statements] == [1, 1]
    assert graph.scan("Note").read_all().num_rows == 0


def test_the_edge_that_came_meanwhile_goes_with_its_node(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_mutation_computed(
        monkeypatch, lambda: graph.write({"Paid": [{"src": "b", "dst": "a", "amount": 1}]})
    )

    graph.mutate('query q() { delete Account where name = "a" }')

    assert graph.scan("Paid").read_all().num_rows == 0
    assert graph.maintenance.check().ok


def test_the_key_that_was_taken_meanwhile_is_a_conflict(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_mutation_computed(
        monkeypatch, lambda: graph.write({"Account": [{"name": "c", "balance": 1}]})
    )

    with pytest.raises(ValidationFailedError, match="id_exists"):
        graph.mutate('query q() { insert Account { name: "c", balance: 2 } }')

    assert accounts(graph)["c"] == 1


def test_new_ids_stay_the_same_when_a_mutation_is_prepared_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = after_mutation_computed(
        monkeypatch, lambda: graph.write({"Note": [{"text": "other"}]})
    )

    graph.mutate('query q() { insert Note { text: "mine" } }')

    assert len(computed) >= 2
    assert computed[0] == computed[-1]
    assert len(computed[0]["node:Note"]) == 1


def test_the_expected_head_lets_a_mutation_pass(graph: Graph) -> None:
    head = graph.snapshot().commit_id

    first = graph.mutate(INCREMENT, expect_head=head)
    second = graph.mutate(INCREMENT, expect_head=first.commit_id)

    assert accounts(graph)["a"] == 2
    assert second.commit_id == graph.snapshot().commit_id


@pytest.mark.parametrize("body", [INCREMENT, "query q() { delete Account where false }"])
def test_another_head_is_a_conflict_that_names_both(graph: Graph, body: str) -> None:
    old = graph.snapshot().commit_id
    new = graph.mutate(INCREMENT).commit_id

    with pytest.raises(ConflictError) as error:
        graph.mutate(body, expect_head=old)

    assert str(old) in str(error.value)
    assert str(new) in str(error.value)
    assert graph.snapshot().commit_id == new
    assert graph.maintenance.status().pending_sidecars == ()


def test_a_commit_to_any_table_in_the_middle_is_a_conflict_with_the_expected_head(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = graph.snapshot().commit_id
    after_mutation_computed(monkeypatch, lambda: graph.write({"Note": [{"text": "unrelated"}]}))

    with pytest.raises(ConflictError, match="is at commit"):
        graph.mutate(INCREMENT, expect_head=head)

    assert accounts(graph)["a"] == 0


def test_without_an_expected_head_an_unrelated_commit_is_no_obstacle(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = after_mutation_computed(
        monkeypatch, lambda: graph.write({"Note": [{"text": "unrelated"}]})
    )

    graph.mutate(INCREMENT)

    assert (len(computed), accounts(graph)["a"]) == (1, 1)


def test_the_head_is_expected_on_the_branch_that_is_changed(graph: Graph) -> None:
    branch = graph.branches.create("dev")
    head = branch.snapshot().commit_id
    graph.mutate(INCREMENT)

    branch.mutate(INCREMENT, expect_head=head)

    assert accounts(og.open(graph.root).checkout("dev"))["a"] == 1
