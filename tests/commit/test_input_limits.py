"""Hostile input ends in an error of ours with nothing written, or in exactly what was given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import OmnigraphError
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import pending_operations
from omnigraph_lake.errors import InvalidInputError, NotFoundError, ValidationFailedError
from omnigraph_lake.graph import Graph
from tests.commit import hostile_inputs as hostile
from tests.stores import folder_of, root_at

pytestmark = [pytest.mark.unit, pytest.mark.sampled(4)]

TINY = "node Thing { text: String? }"
VERBS = ("write", "delete")


def cases(family: Mapping[str, Any], *, spread: bool = False) -> list[Any]:
    """One parameter, or a spread tuple of them, per input, named by its label."""
    return [
        pytest.param(*(value if spread else (value,)), id=label) for label, value in family.items()
    ]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    place = tmp_path_factory.mktemp("limits") / "deep" / "inside" / "graph"
    return og.init(root_at(place), schema=hostile.SCHEMA)


@pytest.fixture(scope="module")
def home(shared: Graph) -> Path:
    return folder_of(shared.root).parents[2]


@pytest.fixture
def graph(shared: Graph) -> Iterator[Graph]:
    yield shared
    if pending_operations(shared._objects):
        shared.maintenance.recover()


@pytest.fixture
def tiny(graph_root: str) -> Graph:
    return og.init(graph_root, schema=TINY)


def outside(root: str, home: Path) -> set[str]:
    """Everything below a folder that is not part of a graph there."""
    found: set[str] = set()
    graph = folder_of(root)
    for folder, folders, files in os.walk(home):
        found.update(str(Path(folder, name)) for name in (*folders, *files))
        folders[:] = [name for name in folders if Path(folder, name) != graph]
    return found


def refusal(graph: Graph, home: Path, call: Callable[[], object]) -> OmnigraphError:
    """The error of a call that must fail and leave no trace at all."""
    before, around = graph.snapshot(), outside(graph.root, home)
    with pytest.raises(OmnigraphError) as caught:
        call()
    assert graph.snapshot() == before
    assert pending_operations(graph._objects) == ()
    assert outside(graph.root, home) == around
    assert len(str(caught.value)) < 40_000
    return caught.value


def call_of(graph: Graph, verb: str, type_name: Any, **options: Any) -> Callable[[], object]:
    """A call that would do something if its type name and options were fine."""
    if verb == "write":
        return lambda: graph.write({type_name: [{"text": "x"}]}, **options)
    return lambda: graph.delete({type_name: ["x"]}, **options)


def rows_of(graph: Graph, type_name: str, column: str) -> list[Any]:
    rows = graph.scan(type_name, columns=[column]).read_all().column(column)
    values: list[Any] = rows.to_pylist()
    return values


def emptied(graph: Graph, type_name: str) -> None:
    ids = graph.scan(type_name, columns=["id"]).read_all().column("id")
    if len(ids):
        graph.delete({type_name: ids})


def same(found: object, expected: object) -> bool:
    """Equality in which NaN equals itself and both zeros differ."""
    return repr(found) == repr(expected)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", cases(hostile.TYPE_NAMES))
def test_a_type_name_that_is_none_is_refused(
    graph: Graph, home: Path, name: str, verb: str
) -> None:
    error = refusal(graph, home, call_of(graph, verb, name))

    assert isinstance(error, InvalidInputError)
    assert "no type" in str(error)


@pytest.mark.parametrize("name", cases(hostile.TYPE_NAMES))
def test_nothing_is_read_for_a_type_name_that_is_none(graph: Graph, home: Path, name: str) -> None:
    assert isinstance(refusal(graph, home, lambda: graph.scan(name)), NotFoundError)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", cases(hostile.NOT_TEXT))
def test_a_type_name_that_is_no_text_is_refused(
    graph: Graph, home: Path, name: object, verb: str
) -> None:
    refusal(graph, home, call_of(graph, verb, name))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("tables", [5, "Thing", ["Thing"], [("Thing", [])]], ids=repr)
def test_tables_that_are_no_mapping_are_refused(
    graph: Graph, home: Path, tables: Any, verb: str
) -> None:
    call = graph.write if verb == "write" else graph.delete

    refusal(graph, home, lambda: call(tables))


@pytest.mark.parametrize("verb", VERBS)
def test_a_type_named_twice_is_refused(graph: Graph, home: Path, verb: str) -> None:
    tables: dict[str, Any] = {"Thing": [], "node:Thing": []}
    call = graph.write if verb == "write" else graph.delete

    assert "twice" in str(refusal(graph, home, lambda: call(tables)))


@pytest.mark.parametrize("operation_id", cases(hostile.OPERATION_IDS))
def test_any_text_is_an_operation_id_that_writes_once_or_is_refused(
    tiny: Graph, tmp_path: Path, operation_id: Any
) -> None:
    before = tiny.snapshot()

    def write() -> str | None:
        return tiny.write({"Thing": [{"text": "a"}]}, operation_id=operation_id).commit_id

    try:
        first = write()
    except InvalidInputError:
        assert tiny.snapshot() == before
        return
    assert 0 < len(operation_id) <= 1024
    assert operation_id.encode()
    assert write() == first
    compact_commits(tiny._objects.root, tiny._handle.manifest())
    assert write() == first
    assert tiny.outcome(operation_id) is OperationStatus.PUBLISHED
    assert rows_of(tiny, "Thing", "text") == ["a"]
    assert pending_operations(tiny._objects) == ()


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph that has to look for old operations in its history."""
    graph = og.init(root_at(tmp_path_factory.mktemp("folded")), schema=TINY)
    for text in "ab":
        graph.write({"Thing": [{"text": text}]})
    assert compact_commits(graph._objects.root, graph._handle.manifest())
    return graph


@pytest.mark.parametrize("operation_id", cases(hostile.OPERATION_IDS))
def test_the_outcome_of_an_operation_that_cannot_be_is_unknown_or_refused(
    folded: Graph, operation_id: Any
) -> None:
    try:
        found = folded.outcome(operation_id)
    except InvalidInputError:
        return
    assert found is OperationStatus.UNKNOWN


@pytest.mark.parametrize("spelling", [str.upper, str.lower, str.title])
def test_an_operation_is_found_by_the_spelling_it_was_written_with(
    tiny: Graph, spelling: Callable[[str], str]
) -> None:
    operation_id = spelling(str(ULID()))
    first = tiny.write({"Thing": [{"text": "a"}]}, operation_id=operation_id)
    again = tiny.write({"Thing": [{"text": "a"}]}, operation_id=operation_id)

    assert again.commit_id == first.commit_id
    assert tiny.outcome(operation_id) is OperationStatus.PUBLISHED
    assert rows_of(tiny, "Thing", "text") == ["a"]


def test_the_first_ulid_is_an_operation_id(tiny: Graph) -> None:
    tiny.write({"Thing": [{"text": "a"}]}, operation_id="0" * 26)
    tiny.write({"Thing": [{"text": "b"}]})

    assert tiny.outcome("0" * 26) is OperationStatus.PUBLISHED
    assert sorted(rows_of(tiny, "Thing", "text")) == ["a", "b"]


@pytest.mark.parametrize("operation_id", ["7" + "Z" * 25, "02" + "0" * 24])
def test_an_operation_id_from_the_far_future_is_refused(tiny: Graph, operation_id: str) -> None:
    """One such id in the history would make every later one look old."""
    with pytest.raises(InvalidInputError):
        tiny.write({"Thing": [{"text": "a"}]}, operation_id=operation_id)


@pytest.mark.parametrize("actor", cases(hostile.ACTORS))
def test_an_actor_is_refused_or_kept_exactly_for_ever(
    tiny: Graph, tmp_path: Path, actor: Any
) -> None:
    before = tiny.snapshot()
    try:
        tiny.write({"Thing": [{"text": "a"}]}, actor=actor)
    except OmnigraphError:
        assert tiny.snapshot() == before
        assert pending_operations(tiny._objects) == ()
        return
    tiny.write({"Thing": [{"text": "b"}]}, actor="ada")
    compact_commits(tiny._objects.root, tiny._handle.manifest())

    assert isinstance(actor, str)
    assert [commit.actor for commit in tiny.commits(limit=2)] == ["ada", actor]
    assert len(tiny.commits(actor=actor)) == 1


@pytest.mark.parametrize("actor", cases(hostile.ACTORS))
def test_an_initialisation_by_anybody_succeeds_or_leaves_the_root_free(
    graph_root: str, actor: Any
) -> None:
    try:
        graph = og.init(graph_root, schema=TINY, actor=actor)
    except OmnigraphError:
        graph = og.init(graph_root, schema=TINY)
    else:
        assert isinstance(actor, str)
        graph.write({"Thing": [{"text": "a"}]})
        compact_commits(graph._objects.root, graph._handle.manifest())
        assert graph.commits()[-1].actor == actor


@pytest.mark.parametrize("schema", cases({"none": None, "int": 5, "bytes": b"node A", "nul": "\0"}))
def test_a_schema_that_is_no_text_is_refused(graph_root: str, schema: Any) -> None:
    with pytest.raises(OmnigraphError):
        og.init(graph_root, schema=schema)
    assert not folder_of(graph_root).exists()


@pytest.mark.parametrize("text", cases(hostile.ROOTS_REFUSED))
def test_a_root_that_cannot_be_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Any
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    Path(base, "file").touch()
    monkeypatch.chdir(base)
    root = text.replace("{base}", str(base)) if isinstance(text, str) else text

    with pytest.raises(OmnigraphError):
        og.init(root, schema=TINY)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["base", "file"]


@pytest.mark.local_disk("its roots are spellings of paths on a disk")
@pytest.mark.parametrize(("text", "place"), cases(hostile.ROOTS_ACCEPTED, spread=True))
def test_a_root_with_an_odd_name_holds_all_its_files(tmp_path: Path, text: str, place: str) -> None:
    base = tmp_path / "base"
    root = text.replace("{base}", str(base))
    og.init(root, schema=TINY).write({"Thing": [{"text": "a"}]})

    graph = og.open(root)

    assert graph.root == f"{base}/{place}"
    assert rows_of(graph, "Thing", "text") == ["a"]
    folders = {str(base / parent) for parent in Path(place).parents} | {str(base), graph.root}
    assert outside(graph.root, tmp_path) == folders


@pytest.mark.parametrize("value", cases(hostile.IDS_REFUSED))
def test_a_bad_id_of_a_node_is_refused(graph: Graph, home: Path, value: object) -> None:
    error = refusal(graph, home, lambda: graph.write({"Thing": [{"id": value}]}))

    assert isinstance(error, ValidationFailedError)


@pytest.mark.parametrize("value", cases(hostile.IDS_REFUSED))
def test_a_bad_id_of_an_edge_or_its_end_is_refused(graph: Graph, home: Path, value: object) -> None:
    nodes = [{"id": "p"}]
    for edge in (
        {"id": value, "src": "p", "dst": "p"},
        {"src": value, "dst": "p"},
        {"src": "p", "dst": value},
    ):
        tables = {"Thing": nodes, "Link": [edge]}
        assert isinstance(
            refusal(graph, home, lambda tables=tables: graph.write(tables)),  # type: ignore[misc]
            ValidationFailedError,
        )


@pytest.fixture(scope="module")
def crowd(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Graph, dict[str, str], set[str]]:
    """A graph of odd ids, the text of each of its nodes, and the ids of its edges."""
    graph = og.init(root_at(tmp_path_factory.mktemp("crowd") / "graph"), schema=hostile.SCHEMA)
    nodes = dict.fromkeys([*hostile.IDS_ACCEPTED.values(), *hostile.DECOYS], "old")
    edges = {name: {"id": name, "src": "a", "dst": "x"} for name in nodes}
    edges |= {f"{name[:1000]} out": {"src": name, "dst": "a"} for name in nodes}
    edges |= {f"{name[:1000]} in": {"src": "a", "dst": name} for name in nodes}
    graph.write(
        {
            "Thing": [{"id": name, "text": text} for name, text in nodes.items()],
            "Link": [{"id": name, **edge} for name, edge in edges.items()],
        }
    )
    return graph, nodes, set(edges)


@pytest.mark.parametrize("value", cases(hostile.IDS_ACCEPTED))
def test_an_odd_id_names_exactly_its_row_and_its_edges(
    crowd: tuple[Graph, dict[str, str], set[str]], value: str
) -> None:
    graph, nodes, edges = crowd
    home = folder_of(graph.root).parent
    taken = refusal(graph, home, lambda: graph.write({"Thing": [{"id": value}]}))
    assert "id_exists" in str(taken)

    graph.write({"Thing": [{"id": value, "text": "new"}]}, mode="merge")
    nodes[value] = "new"
    assert _texts(graph) == nodes

    graph.delete({"Link": [value]})
    edges.remove(value)
    assert _edges(graph) == edges

    graph.delete({"Thing": [value]})
    del nodes[value]
    edges -= {f"{value[:1000]} out", f"{value[:1000]} in"}
    assert _texts(graph) == nodes
    assert _edges(graph) == edges


def _texts(graph: Graph) -> dict[str, str]:
    rows = graph.scan("Thing", columns=["id", "text"]).read_all().to_pylist()
    found = {row["id"]: row["text"] for row in rows}
    assert len(found) == len(rows)
    return found


def _edges(graph: Graph) -> set[str]:
    ids = graph.scan("Link", columns=["id"]).read_all().column("id").to_pylist()
    assert len(set(ids)) == len(ids)
    return set(ids)


@pytest.mark.parametrize(
    ("one", "other"),
    [("\u00e9", "e\u0301"), ("\ufb01", "fi"), ("\u212a", "K"), ("\u00c5", "\u212b"), ("a", "A")],
)
def test_keys_that_only_look_alike_are_two(graph: Graph, one: str, other: str) -> None:
    emptied(graph, "Text")
    graph.write({"Text": [{"k": one, "note": "one"}, {"k": other, "note": "other"}]})
    graph.delete({"Text": [one]})

    assert rows_of(graph, "Text", "note") == ["other"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", 'b","c'), ('a","b', "c")),
        (("a\\", "b"), ("a", "\\b")),
        (("", "ab"), ("a", "b")),
        (('"', '"'), ('","', "")),
        (("[", "]"), ("[]", "")),
    ],
)
def test_composite_keys_cannot_be_confused(
    graph: Graph, one: tuple[str, str], other: tuple[str, str]
) -> None:
    emptied(graph, "Pair")
    graph.write({"Pair": [{"a": pair[0], "b": pair[1]} for pair in (one, other)]})
    stored = graph.scan("Pair").read_all().to_pylist()

    assert {(row["a"], row["b"]) for row in stored} == {one, other}
    graph.delete({"Pair": [row["id"] for row in stored if (row["a"], row["b"]) == one]})
    assert rows_of(graph, "Pair", "a") == [other[0]]


@pytest.mark.parametrize(("type_name", "value"), cases(hostile.KEYS_REFUSED, spread=True))
def test_a_key_that_has_no_spelling_is_refused(
    graph: Graph, home: Path, type_name: str, value: object
) -> None:
    error = refusal(graph, home, lambda: graph.write({type_name: [{"k": value}]}))

    assert isinstance(error, ValidationFailedError)
    assert "row 0" in str(error)


@pytest.mark.parametrize(("type_name", "value", "spelt"), cases(hostile.KEYS_ACCEPTED, spread=True))
def test_a_key_at_the_edge_gets_one_id(
    graph: Graph, home: Path, type_name: str, value: object, spelt: str
) -> None:
    emptied(graph, type_name)
    graph.write({type_name: [{"k": value}]})

    assert rows_of(graph, type_name, "id") == [spelt]
    taken = refusal(graph, home, lambda: graph.write({type_name: [{"k": value}]}))
    assert "id_exists" in str(taken)
    graph.delete({type_name: [spelt]})
    assert graph.scan(type_name).read_all().num_rows == 0


@pytest.mark.parametrize("type_name", ["Full", "Half"])
def test_both_zeros_are_one_key(graph: Graph, home: Path, type_name: str) -> None:
    rows = [{"k": 0.0}, {"k": -0.0}]

    assert "duplicate_id" in str(refusal(graph, home, lambda: graph.write({type_name: rows})))


@pytest.mark.parametrize(("column", "value"), cases(hostile.VALUES_REFUSED, spread=True))
def test_a_value_of_another_kind_is_refused_with_its_row(
    graph: Graph, home: Path, column: str, value: Any
) -> None:
    rows = [{"text": "fine"}, {column: value}]
    error = refusal(graph, home, lambda: graph.write({"Thing": rows}))

    assert isinstance(error, ValidationFailedError)
    assert f"Thing.{column}, row 1" in str(error)


@pytest.mark.parametrize(
    ("column", "value", "expected"), cases(hostile.VALUES_ACCEPTED, spread=True)
)
def test_a_value_comes_back_as_it_went_in(
    graph: Graph, column: str, value: object, expected: object
) -> None:
    emptied(graph, "Thing")
    graph.write({"Thing": [{column: value}]})

    (found,) = rows_of(graph, "Thing", column)
    assert same(found, expected)


@pytest.mark.parametrize("mode", ["append", "merge", "replace", "overwrite"])
@pytest.mark.parametrize("content", cases(hostile.BLOBS))
def test_a_blob_comes_back_as_it_went_in(
    tmp_path: Path, content: bytes | None, mode: og.Mode
) -> None:
    graph = og.init(root_at(tmp_path / "g"), schema="node Thing { text: String?  blob: Blob? }")
    graph.write({"Thing": [{"text": "a", "blob": content}]}, mode=mode)

    assert rows_of(graph, "Thing", "text") == ["a"]
    dataset = lance.dataset(f"{graph.root}/{graph.snapshot().tables['node:Thing'].location}")
    if content is None:
        assert dataset.to_table(columns=["blob"]).column("blob").to_pylist() == [None]
    else:
        (blob,) = dataset.take_blobs("blob", indices=[0])
        assert blob is not None
        assert blob.readall() == content


@pytest.mark.parametrize("mode", ["append", "merge", "replace", "overwrite"])
@pytest.mark.parametrize(
    ("properties", "row"),
    [
        ("n: I64?  text: String?  m: I64?", {"n": 1, "text": "x", "m": 2}),
        ("words: [String]?  vector: Vector(2)?", {"words": ["a"], "vector": [1.0, 2.0]}),
    ],
    ids=["scalars", "lists"],
)
def test_columns_behind_a_blob_keep_their_values(
    tmp_path: Path, properties: str, row: dict[str, object], mode: og.Mode
) -> None:
    schema = f"node Thing {{ blob: Blob?  {properties} }}"
    graph = og.init(root_at(tmp_path / "g"), schema=schema)
    graph.write({"Thing": [{"blob": b"abc", **row}]}, mode=mode)

    assert graph.scan("Thing", columns=list(row)).read_all().to_pylist() == [row]


@pytest.mark.parametrize("shape", ["rows", "arrow", "nulls"])
@pytest.mark.parametrize("name", cases(hostile.COLUMN_NAMES))
def test_a_column_name_that_is_none_is_refused(
    graph: Graph, home: Path, name: str, shape: str
) -> None:
    sources = {
        "rows": [{name: "a"}],
        "arrow": pa.table({name: ["a"]}),
        "nulls": pa.table({name: pa.nulls(1)}),
    }
    error = refusal(graph, home, lambda: graph.write({"Thing": sources[shape]}))

    assert "unknown_column" in str(error)


@pytest.mark.parametrize(
    "columns",
    [["nope"], ["id'"], [""], ["\0"], ["ID"], ["id", "id"], ["\ud800"], [5], [None], [], "id", 5],
    ids=repr,
)
def test_columns_that_cannot_be_read_are_refused(graph: Graph, home: Path, columns: Any) -> None:
    refusal(graph, home, lambda: graph.scan("Thing", columns=columns).read_all())


@pytest.mark.parametrize("column", ["text", "words", "vector"])
@pytest.mark.parametrize("build", cases(hostile.DEEP))
def test_a_deeply_nested_value_is_refused(
    graph: Graph, home: Path, build: Callable[[], Any], column: str
) -> None:
    rows = [{column: build()}]

    refusal(graph, home, lambda: graph.write({"Thing": rows}))


@pytest.mark.parametrize("column", ["id", "text", "i64", "words", "vector", "blob"])
@pytest.mark.parametrize("build", cases(hostile.ODD_ARRAYS))
def test_an_arrow_type_of_another_kind_is_refused(
    graph: Graph, home: Path, build: Callable[[], pa.Array], column: str
) -> None:
    table = pa.table({column: build()})
    error = refusal(graph, home, lambda: graph.write({"Thing": table}))

    assert isinstance(error, ValidationFailedError)
    assert f"Thing.{column}, row 0" in str(error)


@pytest.mark.parametrize(
    ("column", "build", "expected"),
    cases(hostile.ARROW_ACCEPTED, spread=True),
)
def test_an_arrow_type_of_the_same_kind_is_taken_over(
    graph: Graph,
    column: str,
    build: Callable[[], pa.Array],
    expected: list[object],
) -> None:
    emptied(graph, "Thing")
    graph.write({"Thing": pa.table({column: build()})})

    assert rows_of(graph, "Thing", column) == expected


@pytest.mark.parametrize(
    ("column", "build"),
    cases(
        hostile.BROKEN_ARRAYS,
        spread=True,
    ),
)
def test_a_broken_array_is_refused(
    tmp_path: Path, column: str, build: Callable[[], pa.Array]
) -> None:
    schema = "node Thing { text: String?  kind: enum(a, b)?  words: [String]?  day: Date? }"
    graph = og.init(root_at(tmp_path / "g"), schema=schema)
    table = pa.table({column: build()})

    refusal(graph, tmp_path, lambda: graph.write({"Thing": table}))
    assert graph.scan("Thing").read_all().num_rows == 0


@pytest.mark.parametrize("build", cases(hostile.SOURCES_REFUSED))
def test_a_source_that_cannot_be_read_is_refused(
    graph: Graph, home: Path, build: Callable[[], Any]
) -> None:
    error = refusal(graph, home, lambda: graph.write({"Thing": build()}))

    assert isinstance(error, InvalidInputError)


@pytest.mark.parametrize(("build", "count"), cases(hostile.SOURCES_ACCEPTED, spread=True))
def test_a_source_of_an_odd_shape_gives_every_row(
    graph: Graph, build: Callable[[], Any], count: int
) -> None:
    emptied(graph, "Thing")
    graph.write({"Thing": build()})

    assert graph.scan("Thing").read_all().num_rows == count


@pytest.mark.parametrize("build", cases(hostile.DELETES_REFUSED))
def test_ids_to_delete_that_cannot_be_read_are_refused(
    graph: Graph, home: Path, build: Callable[[], Any]
) -> None:
    error = refusal(graph, home, lambda: graph.delete({"Thing": build()}))

    assert isinstance(error, InvalidInputError)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["b", "a", "b"]).slice(1, 1),
        pa.array(["a"]).dictionary_encode(),
        pa.array(["a"], pa.string_view()),
        pa.chunked_array([["a"], ["a", None]]),
        {"a"},
        iter(["a", "a", None]),
    ],
    ids=["slice", "dictionary", "view", "chunks", "set", "iterator"],
)
def test_ids_to_delete_of_an_odd_shape_delete_exactly_these(graph: Graph, ids: Any) -> None:
    emptied(graph, "Text")
    graph.write({"Text": [{"k": "a"}, {"k": "b"}]})
    graph.delete({"Text": ids})

    assert rows_of(graph, "Text", "id") == ["b"]


@pytest.mark.parametrize("value", cases({**hostile.IDS_REFUSED, **hostile.IDS_ACCEPTED}))
def test_deleting_an_odd_id_that_is_not_there_changes_nothing(graph: Graph, value: Any) -> None:
    emptied(graph, "Text")
    before = graph.snapshot()
    try:
        result = graph.delete({"Text": [value]})
    except InvalidInputError:
        assert not isinstance(value, str) or not value.isprintable()
    else:
        assert result.commit_id is None
    assert graph.snapshot() == before
    assert pending_operations(graph._objects) == ()


@pytest.mark.parametrize("limit", [-1, "x", 1.5, b"1"], ids=repr)
def test_a_number_of_commits_that_is_none_is_refused(graph: Graph, home: Path, limit: Any) -> None:
    refusal(graph, home, lambda: graph.commits(limit=limit))


@pytest.mark.parametrize("bad", [0, 77_777, 99_999])
def test_one_bad_row_of_many_is_named_exactly(graph: Graph, home: Path, bad: int) -> None:
    keys: list[object] = list(range(100_000))
    keys[bad] = "x"
    rows = [{"k": key} for key in keys]
    error = refusal(graph, home, lambda: graph.write({"Long": rows}))

    assert isinstance(error, ValidationFailedError)
    report: Any = error.report
    assert report.total == 1
    assert report.kept[0].row == bad


def test_one_bad_row_in_many_chunks_is_named_exactly(graph: Graph, home: Path) -> None:
    keys = pa.chunked_array([[float(number)] * 100 for number in range(1000)])
    keys = pa.chunked_array([*keys.chunks[:500], [0.5], *keys.chunks[500:]], pa.float64())
    error = refusal(graph, home, lambda: graph.write({"Long": pa.table({"k": keys})}))

    assert isinstance(error, ValidationFailedError)
    report: Any = error.report
    assert [each.row for each in report.kept if each.reason.value == "does_not_fit"] == [50_000]


def test_the_graph_is_sound_after_all_of_this(graph: Graph) -> None:
    assert graph.maintenance.check().ok
    assert graph.maintenance.status().pending_sidecars == ()
