"""Writers of different tables report their versions while another one has the turn to publish.

The one that gets the turn publishes what is reported with its own swap. Whatever happens to it, or
to the one that reported, each row is there exactly if its writer was told so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from ulid import ULID

from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit import phases
from omnigraph_lake.commit.phases import Author, Prepared, Verb, WriteRequest, abort
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import (
    Sidecar,
    Touched,
    WriterKind,
    active_operation,
    delete_sidecar,
    read_sidecar,
)
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.swap import open_next_version, read_manifest
from tests.commit.small_graphs import account, accounts, small_graph
from tests.crash.processes import Victim, start

pytestmark = pytest.mark.crash

REPORTED, COLLECTED = "combine.post_report", "combine.post_collect"
SWAPPED = "publish.post_manifest"
LATER = pytest.mark.nightly("the gate kills at the points where something new is left")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Writers of two tables that both have reported their versions, and stand still."""

    graph: Graph
    helper: Victim
    reporter: Victim
    reporter_id: str

    def report(self) -> Sidecar:
        sidecar = read_sidecar(self.graph._objects, names.sidecar(self.reporter_id))
        assert sidecar is not None
        assert sidecar.made
        return sidecar


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


@contextmanager
def other_writer(graph: Graph) -> Iterator[None]:
    """A living writer of a third table, so that no other one is alone."""
    author = Author(operation_id=str(ULID()), actor="third", branch=None)
    write = WriteRequest.of(
        graph._objects, SYSTEM_CLOCK, WriterKind.WRITE, author, schema_hash=None
    )
    touched = Touched(written=frozenset({"edge:Paid"}), read=frozenset())
    verb = Verb(prepare=lambda _: Prepared(changes=(), read_set=frozenset()), touched=touched)
    started = phases.start(write, verb, read_manifest(graph._objects.root))
    with active_operation(started.sidecar.operation_id):
        yield
    delete_sidecar(graph._objects, started.sidecar.path)


@contextmanager
def reported_pair(graph: Graph, failpoint: str) -> Iterator[Pair]:
    """Both report while this process has the turn; the failpoint is of the helper."""
    reporter_id = str(ULID())
    with other_writer(graph):
        with open_next_version(read_manifest(graph._objects.root)) as handover:
            assert handover is not None
            assert handover.take()
            reporter = _start(graph, reporter_id, "reporter", "Note", f"{REPORTED}=stop")
            reporter.wait_until_stopped()
            failpoints = f"{REPORTED}=stop,{failpoint}"
            helper = _start(graph, str(ULID()), "helper", "Account", failpoints)
            helper.wait_until_stopped()
        yield Pair(graph=graph, helper=helper, reporter=reporter, reporter_id=reporter_id)


def _start(graph: Graph, operation_id: str, name: str, kind: str, failpoints: str) -> Victim:
    return start(
        *("write", graph.root, operation_id, name, kind),
        failpoints=failpoints,
        module="tests.crash.combined_victim",
    )


def assert_books(graph: Graph, *, helper: bool, reporter: bool) -> None:
    graph.maintenance.recover(force=True)
    graph.write({"Account": [account("last", 1)], "Note": [{"text": "last"}]})
    notes = graph.scan("Note", columns=["text"]).read_all().column("text").to_pylist()
    assert sorted(accounts(graph)) == (["helper", "last"] if helper else ["last"])
    assert sorted(notes) == (["last", "reporter"] if reporter else ["last"])
    assert graph.maintenance.check().ok
    assert graph.maintenance.status().pending_sidecars == ()


def test_the_versions_that_a_writer_reports_are_published_with_those_of_another(
    graph: Graph,
) -> None:
    with reported_pair(graph, "mutation.begin=pause:0") as pair:
        pair.helper.wake()
        assert pair.helper.end().said == "acknowledged"
        assert graph.outcome(pair.reporter_id) is OperationStatus.PUBLISHED
        pair.reporter.wake()
        assert pair.reporter.end().said == "acknowledged"

    commits = graph.commits()[:2]
    assert [commit.actor for commit in commits] == ["reporter", "helper"]
    assert commits[0].manifest_version == commits[1].manifest_version
    assert commits[0].parent_id == commits[1].commit_id
    assert_books(graph, helper=True, reporter=True)


@pytest.mark.parametrize("point", [COLLECTED, pytest.param(SWAPPED, marks=LATER)])
def test_a_helper_that_dies_leaves_the_reporter_to_itself(graph: Graph, point: str) -> None:
    with reported_pair(graph, f"{point}=kill") as pair:
        pair.helper.wake()
        assert pair.helper.end().was_killed
        is_published = graph.outcome(pair.reporter_id) is OperationStatus.PUBLISHED
        pair.reporter.wake()
        assert pair.reporter.end().said == "acknowledged"

    assert is_published == (point == SWAPPED)
    assert_books(graph, helper=True, reporter=True)


def test_a_reporter_that_was_given_up_is_not_published(graph: Graph) -> None:
    with reported_pair(graph, f"{COLLECTED}=stop") as pair:
        pair.helper.wake()
        pair.helper.wait_until_stopped()
        abort(graph._objects, pair.report(), None, SYSTEM_CLOCK)
        pair.helper.wake()
        assert pair.helper.end().said == "acknowledged"
        pair.reporter.wake()
        answer = pair.reporter.end().answer

    assert answer == {"said": "failed", "error": "OperationRolledBackError"}
    assert_books(graph, helper=True, reporter=False)


def test_a_reporter_that_was_overtaken_is_not_published_over_the_rows_of_another(
    graph: Graph,
) -> None:
    with reported_pair(graph, f"{COLLECTED}=stop") as pair:
        pair.helper.wake()
        pair.helper.wait_until_stopped()
        graph.maintenance.recover(force=True)
        assert graph.outcome(pair.reporter_id) is OperationStatus.PUBLISHED
        graph.write({"Note": [{"text": "between"}]})
        pair.helper.wake()
        pair.helper.end()
        pair.reporter.wake()
        assert pair.reporter.end().said == "acknowledged"

    notes = graph.scan("Note", columns=["text"]).read_all().column("text").to_pylist()
    assert sorted(notes) == ["between", "reporter"]


def test_a_change_of_the_schema_is_published_alone_beside_a_reporter(graph: Graph) -> None:
    with other_writer(graph):
        with open_next_version(read_manifest(graph._objects.root)) as handover:
            assert handover is not None
            assert handover.take()
            reporter = _start(graph, str(ULID()), "reporter", "Note", f"{REPORTED}=stop")
            reporter.wait_until_stopped()
        changed = graph.schema.text + "\nnode Added { name: String @key }"
        graph.schema.apply(changed)
        reporter.wake()
        answer = reporter.end().answer

    assert answer == {"said": "failed", "error": "SchemaChangedError"}
    assert_books(graph, helper=False, reporter=False)


@LATER
def test_a_reporter_that_dies_is_published_by_the_helper(graph: Graph) -> None:
    with reported_pair(graph, f"{COLLECTED}=pause:0") as pair:
        pair.reporter.kill()
        assert pair.reporter.end().was_killed
        pair.helper.wake()
        assert pair.helper.end().said == "acknowledged"

    assert_books(graph, helper=True, reporter=True)
