"""Blobs of rows: whole, by ranges, as streams, and from the command line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.graph import Graph
from tests.cli import commands

pytestmark = pytest.mark.unit

SCHEMA = """
node Document { slug: String @key  body: Blob?  title: String? }
node Pair { slug: String @key  one: Blob?  two: Blob? }
"""
CONTENT = bytes(range(256)) * 8192


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    documents: list[dict[str, object]] = [
        {"slug": "it's", "body": CONTENT},
        {"slug": "empty", "body": b""},
        {"slug": "null", "body": None},
    ]
    graph.write({"Document": documents, "Pair": [{"slug": "p", "one": b"1", "two": b"2"}]})
    return graph


def test_a_blob_is_read_whole_by_ranges_and_as_a_stream(graph: Graph, tmp_path: Path) -> None:
    blob = graph.blob("Document", "it's")

    assert blob is not None
    assert (blob.type, blob.id, blob.property, blob.size) == ("Document", "it's", "body", 1 << 21)
    assert blob.read() == CONTENT
    assert blob.read_range(255, 3) == b"\xff\x00\x01"
    assert blob.read_range(blob.size - 2, 100) == CONTENT[-2:]
    assert blob.read_range(blob.size + 5, 1) == b""
    with blob.open() as stream:
        stream.seek(256)
        assert stream.read(4) == CONTENT[:4]
    assert b"".join(blob.chunks(100_000)) == CONTENT
    assert blob.save(tmp_path / "copy").read_bytes() == CONTENT
    assert repr(blob) == 'Blob(Document.body of "it\'s", 2,097,152 bytes)'


def test_empty_and_null_differ(graph: Graph) -> None:
    empty = graph.blob("Document", id="empty")

    assert empty is not None
    assert (empty.size, empty.read(), list(empty.chunks())) == (0, b"", [])
    assert graph.blob("Document", "null", "body") is None


def test_a_blob_stays_that_of_its_commit(graph: Graph) -> None:
    blob = graph.blob("Document", "it's")
    before = graph.commits(limit=1)[0].commit_id
    graph.write({"Document": [{"slug": "it's", "body": b"new"}]}, mode="merge")

    assert blob is not None
    assert hashlib.sha256(blob.read()).digest() == hashlib.sha256(CONTENT).digest()
    newer = graph.blob("Document", "it's")
    assert newer is not None
    assert newer.read() == b"new"
    older = graph.at(before).blob("Document", "it's")
    assert older is not None
    assert older.size == len(CONTENT)


QUERY = "match { $d: Document } return { $d.slug as slug, $d.body as body } order { $d.id }"


def test_a_query_gives_handles_of_its_snapshot(graph: Graph) -> None:
    result = graph.query(QUERY)
    graph.write({"Document": [{"slug": "it's", "body": b"new"}]}, mode="merge")

    rows = {row["slug"]: row["body"] for row in result.to_pylist()}

    assert rows["null"] is None
    assert (rows["empty"].size, rows["empty"].read()) == (0, b"")
    body = rows["it's"]
    assert (body.type, body.id, body.property) == ("Document", "it's", "body")
    assert body.commit_id == result.commit_id != graph.query(QUERY).commit_id
    assert body.read() == CONTENT
    assert body.read_range(65, 5) == b"ABCDE"
    assert graph.query(QUERY).first(3)[1]["body"] is not None
    assert [blob.read() for row in graph.query(QUERY).first(9) if (blob := row["body"])] == [
        b"",
        b"new",
    ]
    newer = graph.query('match { $d: Document { slug: "it\'s" } } return { $d.body }').scalar()
    assert newer.read() == b"new"


def test_a_handle_is_a_small_struct_outside_of_python(graph: Graph) -> None:
    handle = {"type": "Document", "id": "it's", "property": "body", "size": len(CONTENT)}

    table = graph.query(QUERY).to_arrow()
    answer = commands.answer("query", graph.root, "-e", QUERY)
    shown = commands.run("query", graph.root, "-e", QUERY)

    assert table.column("body").to_pylist() == [{**handle, "id": "empty", "size": 0}, handle, None]
    assert table.nbytes < 1000
    assert [row["body"] for row in answer["rows"]] == table.column("body").to_pylist()
    assert answer["columns"][1] == {"name": "body", "type": "Blob?"}
    assert "Document.body of it's, 2,097,152 bytes" in shown.stdout
    assert "2,097,152 bytes" in str(graph.query(QUERY))


def test_an_owner_that_is_missing_has_no_handle(graph: Graph) -> None:
    text = (
        'match { $d: Document { slug: "empty" } optional { $p: Pair  $p.slug = $d.slug } }'
        " return { $p.one as one, $d.body as body }"
    )

    (row,) = graph.query(text).to_pylist()

    assert row["one"] is None
    assert row["body"].read() == b""


def test_what_is_not_there_is_named(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="no Document with the id 'nope'"):
        graph.blob("Document", "nope")
    with pytest.raises(NotFoundError, match=r"no Blob property 'bdy'.*\n?.*`body`"):
        graph.blob("Document", "it's", "bdy")
    with pytest.raises(NotFoundError, match="no Blob property 'title'"):
        graph.blob("Document", "it's", "title")
    with pytest.raises(InvalidInputError, match=r"Pair has 2 Blob properties.*\n?.*one, two"):
        graph.blob("Pair", "p")
    blob = graph.blob("Pair", "p", "two")
    assert blob is not None
    with pytest.raises(InvalidInputError, match="offset"):
        blob.read_range(-1, 1)


def test_the_command_writes_bytes_ranges_and_sizes(graph: Graph, tmp_path: Path) -> None:
    target = tmp_path / "body"
    written = commands.run("blob", "get", graph.root, "Document", "it's", "-o", str(target))
    part = commands.run("blob", "get", graph.root, "Document", "it's", "--range", "65..70")
    null = commands.run("blob", "get", graph.root, "Document", "null")
    wrong = commands.run("blob", "get", graph.root, "Document", "it's", "--range", "5")

    assert written.returncode == 0, written.stderr
    assert target.read_bytes() == CONTENT
    assert part.stdout == "ABCDE"
    assert (null.returncode, wrong.returncode) == (3, 5)
    facts = commands.answer("blob", "get", graph.root, "Document", "it's")
    assert facts["size"] == len(CONTENT)
