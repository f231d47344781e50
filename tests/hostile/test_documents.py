"""Documents that say what they could not: whoever reads one is told that it is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.schema_commit import schema_change_under_way
from omnigraph_lake.commit.sidecar import is_abandoned, read_sidecar
from omnigraph_lake.creation.copying import finish_decided, is_claimed, last_record
from omnigraph_lake.creation.lost_manifest import rebuilding
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.maintenance.scrub import _read_progress
from omnigraph_lake.storage.manifest.retention import read_retention
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.refs.branches import branch_logs
from omnigraph_lake.storage.refs.holds import readable_holds, stored_holds
from omnigraph_lake.storage.refs.tags import all_tags
from omnigraph_lake.validation.schema_contract import read_contract
from tests.adversary.world import DEV, EARLY
from tests.hostile.documents import DOCUMENTS, HOLD, Document, changes

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("documents are forged as files")]

NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)


def _hold(objects: StoredObjects) -> object:
    told = [hold and hold.is_over(NOW) for _, hold in readable_holds(objects)]
    return told, [hold.is_over(NOW) for hold in stored_holds(objects)]


def _rebuild(objects: StoredObjects) -> object:
    with rebuilding(objects, HOLD, SYSTEM_CLOCK, damaged=()):
        return None


def _sidecar(objects: StoredObjects) -> object:
    sidecar = read_sidecar(objects, names.sidecar(HOLD))
    return sidecar is not None and is_abandoned(sidecar, now=NOW)


def _record(objects: StoredObjects) -> object:
    record = last_record(objects)
    return finish_decided(objects), record and record.main_path


READ: Final[Mapping[str, Callable[[StoredObjects], object]]] = {
    "copy record": _record,
    "copy intent": is_claimed,
    "hold": _hold,
    "rebuild": _rebuild,
    "schema lock": lambda objects: schema_change_under_way(objects, now=NOW),
    "scrub": _read_progress,
    "floors": read_retention,
    "branch log": branch_logs,
    "tag log": lambda objects: [tag.snapshot() for tag in all_tags(objects)],
    "sidecar": _sidecar,
    "schema state": read_contract,
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    graph = og.init(str(folder / "graph"), schema="node Person { name: String @key }")
    graph.write({"Person": [{"name": "ann"}]})
    graph.tags.create(EARLY)
    graph.branches.create(DEV, owner="ann", expires="7d")
    og.backup(graph.root, str(folder / "backup"))
    return folder


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_whatever_a_document_says_is_understood_or_damage(
    origin: Path, tmp_path: Path, document: Document
) -> None:
    read = READ[document.name]
    template = origin / ("backup" if document.of_a_backup else "graph")
    objects = StoredObjects(parse_root(tmp_path))
    refused = 0
    told = list(changes(document))

    for _, lay in told:
        for name in ("_refs", names.BACKUPS_DIR):
            if (template / name).exists():
                shutil.copytree(template / name, tmp_path / name, dirs_exist_ok=True)
        for name in (names.SCHEMA_STATE, names.SCHEMA_SOURCE, names.SCHEMA_MODEL):
            shutil.copy(template / name, tmp_path / name)
        lay(tmp_path)
        try:
            read(objects)
        except OmnigraphError:
            refused += 1
        shutil.rmtree(tmp_path / "_refs")

    assert document.name in {"copy intent", "rebuild", "scrub", "schema lock"} or refused > 10
