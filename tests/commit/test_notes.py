"""What the author of a commit says about it is kept with it, whoever publishes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.commit.sidecar import pending_sidecars
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.failpoints import Action, Armed, FailpointReached, arm, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.notes import MESSAGE_BYTES_MAX, METADATA_BYTES_MAX
from tests.cli.commands import answer, run
from tests.commit.small_graphs import SCHEMA, account

pytestmark = pytest.mark.unit

TICKET = {"ticket": "OPS-7", "by": "Jörg 👩‍💻"}


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA, message="Begin", metadata=TICKET)


@pytest.fixture(autouse=True)
def _disarmed() -> object:
    yield
    disarm_all()


def note_of(graph: Graph) -> tuple[str | None, dict[str, str]]:
    newest = graph.commits()[0]
    return newest.message, dict(newest.metadata)


def test_every_verb_stores_what_its_author_says(graph: Graph, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"type": "Account", "data": {"name": "c", "balance": 3}}\n')
    hire = 'query q() { insert Account { name: "d", balance: 4 } }'
    dev = graph.branches.create("dev")
    dev.write({"Note": [{"text": "on dev"}]})
    schema = SCHEMA.replace("text: String", "text: String  place: String?")
    verbs: dict[str, Callable[[dict[str, str]], object]] = {
        "write": lambda said: graph.write(
            {"Account": [account("a", 1)]}, message="write", metadata=said
        ),
        "load": lambda said: graph.load(rows, message="load", metadata=said),
        "mutate": lambda said: graph.mutate(hire, message="mutate", metadata=said),
        "delete": lambda said: graph.delete({"Account": ["a"]}, message="delete", metadata=said),
        "merge": lambda said: graph.merge("dev", message="merge", metadata=said),
        "schema": lambda said: graph.schema.apply(schema, message="schema", metadata=said),
    }

    notes = {"init": note_of(graph)}
    for name, verb in verbs.items():
        verb({**TICKET, "verb": name})
        notes[name] = note_of(graph)

    assert notes == {
        "init": ("Begin", TICKET),
        **{name: (name, {**TICKET, "verb": name}) for name in verbs},
    }
    expected = [commit.note for commit in graph.commits()]
    compact_commits(graph._objects.root, graph._handle.manifest())
    assert [commit.note for commit in graph.commits()] == expected
    told = [(commit.message, commit.metadata) for commit in graph.changes(start="beginning")]
    assert told[-1] == ("schema", {**TICKET, "verb": "schema"})
    assert graph.maintenance.check().ok


def test_a_recovered_write_keeps_its_note_and_one_without_takes_no_room(graph: Graph) -> None:
    def fail(message: str | None = None) -> None:
        arm("publish.pre_manifest", Armed(action=Action.ERROR))
        with pytest.raises(FailpointReached):
            graph.write({"Note": [{"text": "x"}]}, message=message)
        disarm_all()

    def sidecar() -> dict[str, object]:
        (path,) = pending_sidecars(graph._objects)
        content: dict[str, object] = json.loads(graph._objects.read(path) or b"")
        return content

    fail(message="First line\n\nMore.")
    noted = sidecar()
    og.open(graph.root)
    recovered = graph.commits()[0]
    fail()
    plain = sidecar()
    og.open(graph.root)

    assert recovered.actor == f"{names.SYSTEM_ACTOR_PREFIX}recovery"
    assert (recovered.message, recovered.note.subject) == ("First line\n\nMore.", "First line")
    assert (noted["format"], plain["format"], "note" in plain) == (6, 5, False)
    (row,) = [
        text
        for text in graph._handle.manifest().handle.to_table(["metadata"])["metadata"].to_pylist()
        if text and graph.commits()[0].operation_id in text and "parent_id" in text
    ]
    assert not {"message", "metadata"} & json.loads(row).keys()


@pytest.mark.parametrize(
    ("note", "problem"),
    [
        ({"message": ""}, "message is ''"),
        ({"message": 7}, "message is 7"),
        ({"message": "a\x1b[31m"}, "control characters"),
        ({"message": "\ud800"}, "control characters"),
        ({"message": "ä" * MESSAGE_BYTES_MAX}, "message has 8,192 bytes, expected at most 4,096"),
        ({"metadata": "ticket=1"}, "expected a mapping"),
        ({"metadata": {"": "x"}}, "a key of metadata is ''"),
        ({"metadata": {"run": 17}}, "'run'.* is 17, expected a text"),
        ({"metadata": {"a\nb": "x"}}, "a key of metadata"),
        ({"metadata": {"a": "x" * METADATA_BYTES_MAX}}, "metadata has 4,097 bytes"),
    ],
)
def test_notes_that_cannot_be_stored_are_refused(
    graph: Graph, note: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem) as refused:
        graph.write({"Note": [{"text": "x"}]}, **note)  # type: ignore[arg-type]

    assert str(refused.value).count("nothing was written") == 1
    assert len(graph.commits()) == 1


def test_the_command_line_gives_and_shows_notes(graph: Graph) -> None:
    text = 'query q() { insert Account { name: "d", balance: 4 } }'
    words = ("mutate", graph.root, "-e", text, "-m", "Hire d", "--metadata", "ticket=OPS-7=x")

    finished = run(*words)
    listed = answer("commit", "list", graph.root)["commits"][0]
    table = run("commit", "list", graph.root).stdout
    fed = run("changes", graph.root).stdout
    twice = run(*words, "--metadata", "ticket=8")

    assert finished.returncode == 0, finished.stderr
    assert (listed["message"], listed["metadata"]) == ("Hire d", {"ticket": "OPS-7=x"})
    assert "message" in table
    assert "Hire d" in table
    assert "  Hire d\n  ticket=OPS-7=x\n" in fed
    assert twice.returncode == 2
    assert "'ticket' is given twice" in twice.stderr
