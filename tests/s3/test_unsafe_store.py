"""A store that ignores put-if-absent is found out before it does harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.errors import UnsafeStoreError
from omnigraph_lake.maintenance.doctor import Level, examine
from tests.s3.fake_store import BUCKET, ForgetfulStore, forgetful_store

pytestmark = pytest.mark.s3

ROOT = f"s3://{BUCKET}/g"
SCHEMA = "node Person { name: String @key }"


@pytest.fixture
def store() -> Iterator[ForgetfulStore]:
    with forgetful_store() as store:
        yield store


def test_no_graph_is_made_in_it(store: ForgetfulStore) -> None:
    with pytest.raises(UnsafeStoreError, match="ignores put-if-absent"):
        og.init(ROOT, schema=SCHEMA, storage_options=store.options())

    assert not any(names.MANIFEST in key for key in store.content)


def test_doctor_says_so(store: ForgetfulStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in store.options().items():
        monkeypatch.setenv(name.upper(), value)

    checks = {check.name: check for check in examine(ROOT, SYSTEM_CLOCK).checks}

    assert checks["store"].level is Level.FAIL
    assert "ignores put-if-absent" in checks["store"].finding
    assert checks["store"].fix


def test_a_graph_that_was_copied_there_can_be_read_and_not_written(
    store: ForgetfulStore, tmp_path: Path
) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    for path in (each for each in Path(graph.root).rglob("*") if each.is_file()):
        store.content[f"g/{path.relative_to(graph.root)}"] = path.read_bytes()
    before = dict(store.content)

    with pytest.raises(UnsafeStoreError, match=r"read_only=True"):
        og.open(ROOT, storage_options=store.options())

    assert store.content == before
    copy = og.open(ROOT, read_only=True, storage_options=store.options())
    assert copy.scan("Person").read_all().column("name").to_pylist() == ["ann"]


def test_handles_on_one_bucket_share_its_connections(store: ForgetfulStore, tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    for path in (each for each in Path(graph.root).rglob("*") if each.is_file()):
        store.content[f"g/{path.relative_to(graph.root)}"] = path.read_bytes()
    copy = og.open(ROOT, read_only=True, storage_options=store.options())
    copy.snapshot()

    before = store.connections
    for _ in range(20):
        copy.snapshot()

    # Without sharing there would be one for each; a busy machine may open some before others end.
    assert store.connections - before < 10
