from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.creation.initialise import apply_initialise, plan_initialise
from omnigraph_lake.errors import (
    DamagedGraphError,
    GraphReplacedError,
    InvalidInputError,
    NotFoundError,
    SchemaInvalidError,
    UnsafeStoreError,
)
from omnigraph_lake.graph import Graph
from omnigraph_lake.schema.compile import compile_schema
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import Put, StoredObjects
from omnigraph_lake.ulids import new_ulid
from omnigraph_lake.validation.schema_contract import contract_for
from tests.forking.programs import run_command
from tests.stores import folder_of

pytestmark = pytest.mark.unit
WIDENING = LoadOptions(merge_schema=True)


def test_opening_a_root_without_a_graph_says_how_to_create_one(graph_root: str) -> None:
    for read_only in (True, False):
        with pytest.raises(NotFoundError, match="omnigraph init"):
            og.open(graph_root, read_only=read_only)
    assert not folder_of(graph_root).exists()


def test_a_word_for_read_only_is_refused(people_graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="read_only is 'r', expected True or False"):
        og.open(people_graph.root, read_only="r")  # type: ignore[arg-type]


def test_a_reopened_graph_knows_its_catalog_and_tables(people_graph: Graph) -> None:
    graph = og.open(people_graph.root, read_only=True)

    assert graph.is_read_only
    assert graph.schema.catalog == people_graph.schema.catalog
    assert graph.schema.text == people_graph.schema.text
    assert graph.snapshot() == people_graph.snapshot()


@pytest.mark.local_disk("file:// addresses name folders of a disk")
def test_file_urls_and_paths_open_the_same_graph(people_graph: Graph) -> None:
    assert og.open(f"file://{people_graph.root}").snapshot() == people_graph.snapshot()


def test_reading_an_empty_type_gives_its_columns(people_graph: Graph) -> None:
    people = people_graph.scan("Person").read_all()
    knows = people_graph.scan("Knows", columns=["src", "dst"]).read_all()

    assert people.num_rows == 0
    assert people.schema.names[0] == "id"
    assert knows.schema.names == ["src", "dst"]


def test_reading_an_unknown_type_suggests_the_right_one(people_graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="did you mean `Person`"):
        people_graph.scan("Persn")


def test_a_store_that_ignores_put_if_absent_is_opened_for_reading_only(
    people_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoredObjects, "put_if_absent", lambda *_: Put.CREATED)

    with pytest.raises(UnsafeStoreError, match="read_only=True"):
        og.open(people_graph.root)
    assert og.open(people_graph.root, read_only=True).snapshot() == people_graph.snapshot()


def _drop(path: Path) -> None:
    path.unlink()


def _rename_a_type(path: Path) -> None:
    path.write_text(path.read_text().replace("Person", "Human"))


def _break_it(path: Path) -> None:
    path.write_text("{")


def _other_domain(path: Path) -> None:
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "identity_domain": "another"}))


def _other_format(path: Path) -> None:
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "format": 99}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (names.SCHEMA_SOURCE, _drop),
        (names.SCHEMA_MODEL, _drop),
        (names.SCHEMA_STATE, _drop),
        (names.SCHEMA_SOURCE, _rename_a_type),
        (names.SCHEMA_SOURCE, _break_it),
        (names.SCHEMA_MODEL, _rename_a_type),
        (names.SCHEMA_MODEL, _break_it),
        (names.SCHEMA_STATE, _break_it),
        (names.SCHEMA_STATE, _other_domain),
        (names.SCHEMA_STATE, _other_format),
    ],
)
def test_a_schema_contract_that_contradicts_itself_is_refused(
    people_graph: Graph, name: str, damage: Callable[[Path], None]
) -> None:
    damage(folder_of(people_graph.root, name))

    for read_only in (True, False):
        with pytest.raises(DamagedGraphError):
            og.open(people_graph.root, read_only=read_only)


def test_comments_and_white_space_of_the_stored_text_may_change(people_graph: Graph) -> None:
    source = folder_of(people_graph.root, names.SCHEMA_SOURCE)
    source.write_text("// reviewed\n" + source.read_text().replace("\n", "\n\n"))

    assert og.open(people_graph.root).schema.catalog == people_graph.schema.catalog


def test_a_pinned_version_that_is_gone_is_damage_and_named(people_graph: Graph) -> None:
    entry = people_graph.snapshot().tables["node:Person"]
    for path in folder_of(people_graph.root, entry.location, "_versions").iterdir():
        path.unlink()

    with pytest.raises(DamagedGraphError, match="node:Person is published at version 1"):
        people_graph.scan("Person")


def test_the_notebook_view_is_escaped_and_complete(graph_root: str) -> None:
    graph = og.init(f"{graph_root}<b>", schema="node A { x: I32 } edge E: A -> A")

    html = graph._repr_html_()

    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert ">A → E → A</td>" in html
    assert repr(graph) == f"<Graph {graph.root} (branch main, 1 node types, 1 edge types)>"


def init_with_unknown_annotations(root: str) -> str:
    """A graph whose schema was accepted when unknown annotations were stored."""
    text = 'node Person @audit {\n  name: String @key @unit("m")\n}\n'
    catalog = compile_schema(
        text, filename="people.pg", identity_domain=new_ulid(), was_accepted=True
    )
    plan = plan_initialise(
        contract_for(text, catalog), actor=None, now=SYSTEM_CLOCK.timestamp(), new_id=new_ulid
    )
    apply_initialise(plan, StoredObjects(parse_root(root), create=True), force=False)
    return text


@pytest.mark.local_disk("its schema file is edited")
def test_a_graph_with_unknown_annotations_in_its_schema_opens_and_is_written(
    graph_root: str,
) -> None:
    text = init_with_unknown_annotations(graph_root)
    (folder_of(graph_root) / names.SCHEMA_SOURCE).write_text(f"// a comment\n{text}")
    graph = og.open(graph_root)

    graph.load({"Person": pa.table({"name": ["ann"], "age": [5]})}, options=WIDENING)

    assert graph.scan("Person").read_all().column("age").to_pylist() == [5]
    assert not graph.schema.apply(graph.schema.text).applied
    with pytest.raises(SchemaInvalidError, match="`@unit` is not an annotation"):
        graph.schema.apply(graph.schema.text.replace("age: I64?", "years: I64?"))
    shown = run_command("schema", "show", graph_root)
    assert "warning[unknown-annotation]: `@audit` is unknown" in shown.stderr
    corrected = graph.schema.text.replace("@audit", "@meta(audit=true)").replace('@unit("m")', "")
    assert graph.schema.apply(corrected).applied
    assert "unknown-annotation" not in run_command("schema", "show", graph_root).stderr


THROUGH_ANOTHER: dict[str, Callable[[Graph], object]] = {
    "write": lambda graph: graph.write({"A": [{"k": "late"}]}),
    "write of a branch": lambda graph: graph.checkout("dev").write({"A": [{"k": "late"}]}),
    "delete": lambda graph: graph.delete({"A": ["new"]}),
    "mutate": lambda graph: graph.mutate('query late() { insert A { k: "late" } }'),
    "load": lambda graph: graph.load({"A": pa.table({"k": ["late"]})}),
    "merge": lambda graph: graph.merge("dev"),
    "restore": lambda graph: graph.restore("main"),
    "revert": lambda graph: graph.revert("HEAD"),
    "schema": lambda graph: graph.schema.apply("node A { k: String @key  more: I64? }"),
    "tag": lambda graph: graph.tags.create("late"),
    "untag": lambda graph: graph.tags.delete("kept"),
    "branch": lambda graph: graph.branches.create("late"),
    "unbranch": lambda graph: graph.branches.delete("dev"),
    "optimize": lambda graph: graph.maintenance.optimize(),
    "cleanup": lambda graph: graph.maintenance.cleanup(keep_versions=3, dry_run=False),
    "reconcile": lambda graph: graph.maintenance.reconcile(dry_run=False),
    "recover": lambda graph: graph.maintenance.recover(),
    "repair": lambda graph: graph.maintenance.repair(dry_run=False),
    "scrub": lambda graph: graph.maintenance.scrub(),
    "maintain": lambda graph: graph.maintenance.run(),
    "get": lambda graph: graph.get("A", "new"),
    "count": lambda graph: graph.count("A"),
    "query": lambda graph: graph.query("query all() { match { $a: A } return { $a.k } }"),
    "past": lambda graph: graph.at("kept"),
}


def test_a_handle_refuses_another_graph_at_its_root(graph_root: str) -> None:
    schema = "node A { k: String @key }"
    first = og.init(graph_root, schema=schema)
    first.write({"A": [{"k": "old"}]})
    shutil.rmtree(folder_of(graph_root))
    second = og.init(graph_root, schema=schema)
    second.write({"A": [{"k": "new"}]})
    second.branches.create("dev")
    second.tags.create("kept")
    before = second.commits()

    for call in THROUGH_ANOTHER.values():
        with pytest.raises(GraphReplacedError, match="another one was created there"):
            call(first)

    assert (second.commits(), second.count("A")) == (before, 1)
    assert [tag.tag for tag in second.tags.list()] == ["kept"]
    assert [branch.name for branch in second.branches.list()] == ["main", "dev"]


def test_a_handle_keeps_a_graph_that_is_restored_at_its_root(
    graph_root: str, tmp_path: Path
) -> None:
    graph = og.init(graph_root, schema="node A { k: String @key }")
    graph.write({"A": [{"k": "old"}]})
    og.backup(graph_root, str(tmp_path / "backup"))
    graph.schema.apply("node A { k: String @key  more: I64? }")
    shutil.rmtree(folder_of(graph_root))
    og.restore(str(tmp_path / "backup"), graph_root)
    graph.write({"A": [{"k": "late"}]})
    assert graph.count("A") == 2
