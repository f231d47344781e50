"""Graphs in the shapes that earlier internal formats left on disk, written with bare Lance.

Each starts as a graph of today whose manifest is then replaced by one in the old shape: other
spellings of `object_id`, no head or commit rows, and for the first format neither the key
annotation nor a stamp.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import lance
import pyarrow as pa
from lance.fragment import write_fragments

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.history import HISTORY
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import ManifestFacts, TableVersion, encode
from omnigraph_lake.storage.objects.documents import digest_of_values
from tests.stores import folder_of

SCHEMA = """
node Person { name: String @key }
node Company { name: String @key }
edge WorksAt: Person -> Company
"""
TABLE_KEYS = ("node:Person", "node:Company", "edge:WorksAt")
AUTO_CLEANUP: dict[str, str | None] = {
    f"{names.LANCE_AUTO_CLEANUP}interval": "1",
    f"{names.LANCE_AUTO_CLEANUP}older_than": "0s",
}
OLD_COMMIT = "01HZZZZZZZZZZZZZZZZZZZZZZZ"


def old_graph(
    root: str,
    *,
    stamp: int,
    annotated: bool | None = None,
    branches: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
    people: tuple[str, ...] = (),
    auto_cleanup: bool = False,
    history: bool = True,
    stable_row_ids: bool = True,
) -> None:
    """A graph whose manifest has the shape of `stamp`; stamp 1 carries none.

    With `auto_cleanup` its tables are such as Lance once made unless it was told otherwise: it
    deletes their old versions by itself. Without `stable_row_ids` they are older still. There are
    `tags` since stamp 4.
    """
    graph = og.init(root, schema=SCHEMA)
    if people:
        graph.write({"Person": [{"name": name} for name in people]})
    if stamp >= names.STAMP_OF_HEADS:
        for tag in tags:
            graph.tags.create(tag)
        _write_tags_as(stamp, root)
        _stamped(graph, branches, stamp)
        return
    shutil.rmtree(folder_of(root, names.MANIFEST))
    folder_of(root, names.branch_ref(names.MAIN)).unlink()
    if auto_cleanup or not stable_row_ids:
        _make_tables_again(root, AUTO_CLEANUP if auto_cleanup else {}, stable_row_ids)
    is_annotated = stamp >= 2 if annotated is None else annotated
    manifest = lance.write_dataset(
        _old_rows(root, annotated=is_annotated, stamp=stamp),
        f"{root}/{names.MANIFEST}",
        mode="create",
        enable_stable_row_ids=True,
    )
    for lists in folder_of(root).glob("*/*/_checksums"):
        shutil.rmtree(lists)
    for branch in branches:
        parent, _, _ = branch.rpartition("/")
        manifest.create_branch(branch, (parent, None) if parent in branches else manifest.version)
    if history:
        _write_history(root)
    if auto_cleanup:
        for location in (names.MANIFEST, *HISTORY):
            lance.dataset(f"{root}/{location}").update_config(AUTO_CLEANUP)


def _stamped(graph: Graph, branches: tuple[str, ...], stamp: int) -> None:
    """Everything is as today but for what a later stamp brought.

    That is the rows of stamps 8 and 9, the checksums of stamp 7, the sync of stamp 6, and the
    record of changes of the schema of stamp 5.
    """
    root = graph._objects.root
    refs = [graph.branches.create(branch)._handle.ref() for branch in branches]
    for ref in (*refs, None):
        state = read_manifest(root, branch=ref)
        rows = [
            replace(row, checksums=None)
            if isinstance(row, TableVersion) and stamp < names.STAMP_OF_DIGESTS
            else row
            for row in state.rows
        ]
        content = encode(rows, ManifestFacts(stamp=stamp))
        lance.LanceDataset.commit(
            state.handle,
            lance.LanceOperation.Overwrite(
                content.schema, write_fragments(content, state.handle, mode="overwrite")
            ),
            read_version=state.version,
        )
    if stamp >= names.STAMP_OF_DIGESTS:
        return
    for lists in folder_of(root.uri).glob("*/*/_checksums"):
        shutil.rmtree(lists)
    for location in HISTORY:
        lance.dataset(f"{root}/{location}").drop_columns(["digest"])
    if stamp == 4:
        lance.dataset(f"{root}/{names.COMMITS}").drop_columns(["schema_change"])


def _write_tags_as(stamp: int, root: str) -> None:
    """Entries of tags say their format since stamp 8, and have a digest since stamp 7."""
    for path in folder_of(root, names.TAG_REFS_DIR).rglob("*.json"):
        fields = json.loads(path.read_bytes())
        for name in ("format", "digest"):
            fields.pop(name, None)
        if stamp >= names.STAMP_OF_DIGESTS:
            place = str(path.relative_to(folder_of(root)))
            fields["digest"] = digest_of_values([place, fields])
        path.write_text(json.dumps(fields))


def _old_rows(root: str, *, annotated: bool, stamp: int) -> pa.Table:
    key = {names.PRIMARY_KEY_KEY: "true"} if annotated else None
    schema = pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False, metadata=key),
            pa.field("object_type", pa.string(), nullable=False),
            pa.field("location", pa.string()),
            pa.field("metadata", pa.string()),
            pa.field("base_objects", pa.list_(pa.string())),
            pa.field("table_key", pa.string()),
            pa.field("table_version", pa.uint64()),
            pa.field("table_branch", pa.string()),
            pa.field("row_count", pa.uint64()),
        ],
        metadata={names.STAMP_KEY: str(stamp)} if stamp > 1 else None,
    )
    records: list[dict[str, object]] = []
    for table_key in TABLE_KEYS:
        table = lance.dataset(f"{root}/{names.table_location(table_key)}")
        records.append(
            {
                "object_id": table_key,
                "object_type": "table",
                "location": names.table_location(table_key),
                "table_key": table_key,
            }
        )
        records.append(
            {
                "object_id": f"{table_key}$00000001",
                "object_type": "table_version",
                "table_key": table_key,
                "table_version": table.version,
                "row_count": table.count_rows(),
            }
        )
    records.append(
        {
            "object_id": "node:Gone$tombstone$00000004",
            "object_type": "table_tombstone",
            "table_key": "node:Gone",
            "table_version": 4,
        }
    )
    return pa.Table.from_pylist(records, schema=schema)


def _make_tables_again(root: str, settings: dict[str, str | None], stable_row_ids: bool) -> None:
    for table_key in TABLE_KEYS:
        location = f"{root}/{names.table_location(table_key)}"
        schema = lance.dataset(location).schema
        shutil.rmtree(location)
        table = lance.write_dataset(
            schema.empty_table(), location, enable_stable_row_ids=stable_row_ids
        )
        if settings:
            table.update_config(settings)


def _write_history(root: str) -> None:
    commits = lance.dataset(f"{root}/{names.COMMITS}")
    row = {
        "graph_commit_id": OLD_COMMIT,
        "manifest_version": 1,
        "created_at": datetime(2026, 5, 15, tzinfo=UTC),
    }
    lance.write_dataset(
        pa.Table.from_pylist([row], schema=commits.schema), commits.uri, mode="append"
    )
