from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.errors import (
    AlreadyInitialisedError,
    DamagedGraphError,
    FormatTooNewError,
    OutcomeUnknownError,
)
from omnigraph_lake.storage.manifest.swap import read_manifest, swap_manifest
from omnigraph_lake.storage.manifest_rows import ManifestFacts, decode, encode
from omnigraph_lake.storage.objects.documents import digest_of_values
from omnigraph_lake.storage.objects.location import parse_root
from tests.behind import meanwhile
from tests.forking.programs import run_command
from tests.maintenance import open_handles
from tests.maintenance.open_handles import ANSWERED, PERSON, READS, SCHEMA, WRITES, Handles, build
from tests.stores import files_of
from tests.surface import verbs_of_graph

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("compares files byte by byte")]

STAMP = names.STAMP_KEY.encode()
NEXT = str(names.STAMP + 1).encode()


@pytest.fixture(scope="module")
def handles(tmp_path_factory: pytest.TempPathFactory) -> Handles:
    """Handles that were opened before the graph was upgraded to the next format."""
    folder = tmp_path_factory.mktemp("upgraded")
    root = str(folder / "g")
    build(root)
    opened = open_handles.open_handles(root, folder / "rows.jsonl")
    upgrade(root)
    return opened


def test_every_verb_of_a_graph_is_called() -> None:
    verbs = {name.partition(" ")[0] for name in (*WRITES, *READS)}

    assert verbs | ANSWERED == verbs_of_graph()


@pytest.mark.parametrize("verb", [*WRITES, *READS])
def test_a_handle_opened_before_an_upgrade_is_refused_and_writes_nothing(
    handles: Handles, verb: str
) -> None:
    before = contents(handles.main.root)

    with pytest.raises(FormatTooNewError, match="Upgrade omnigraph first"):
        {**WRITES, **READS}[verb](handles)

    assert contents(handles.main.root) == before


def test_a_newer_graph_is_neither_opened_nor_made_again_nor_rebuilt(handles: Handles) -> None:
    root = handles.main.root
    before = contents(root)

    for act in (
        lambda: og.open(root),
        lambda: og.open(root, read_only=True),
        lambda: og.rebuild_manifest(root, dry_run=False),
    ):
        with pytest.raises(FormatTooNewError):
            act()
    with pytest.raises(AlreadyInitialisedError):
        og.init(root, schema=SCHEMA, force=True)

    assert contents(root) == before


def test_a_view_of_the_past_goes_on_reading_what_it_pinned(handles: Handles) -> None:
    assert handles.past.scan("Person").read_all().num_rows == 2


def test_a_manifest_of_an_unknown_format_is_never_replaced(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    og.init(root, schema=SCHEMA)
    state = read_manifest(parse_root(root))
    newer = replace(state, facts=replace(state.facts, stamp=names.STAMP + 1))
    before = contents(root)

    with pytest.raises(FormatTooNewError):
        swap_manifest(newer, newer.rows, operation_id="op")

    assert contents(root) == before


@pytest.mark.parametrize(
    "verb", ["write", "mutate", "delete", "branches.create", "maintenance.optimize"]
)
def test_a_newer_stamp_alone_is_never_written_over(tmp_path: Path, verb: str) -> None:
    root = str(tmp_path / "g")
    build(root)
    opened = open_handles.open_handles(root, tmp_path / "rows.jsonl")
    restamp(root, NEXT.decode())
    before = contents(root)

    with pytest.raises(FormatTooNewError):
        WRITES[verb](opened)

    assert contents(root) == before


def test_an_upgrade_in_the_middle_of_a_write_leaves_it_to_the_newer_program(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    graph = og.init(root, schema=SCHEMA)

    with (
        meanwhile("publish.pre_manifest", lambda: upgrade(root)),
        pytest.raises(
            OutcomeUnknownError, match="the newer Omnigraph finishes it or rolls it back"
        ),
    ):
        graph.write(PERSON)

    assert (tmp_path / "g" / names.RECOVERY_DIR).exists()
    assert lance.dataset(f"{root}/{names.MANIFEST}").schema.metadata[STAMP] == NEXT


@pytest.mark.parametrize("stamp", ["0", "-1", "", "abc", "7.0", "007", "\u0667", "9" * 5000])
def test_a_stamp_that_no_program_wrote_is_damage(tmp_path: Path, stamp: str) -> None:
    root = str(tmp_path / "g")
    og.init(root, schema=SCHEMA)
    restamp(root, stamp)
    before = contents(root)

    for read_only in (True, False):
        with pytest.raises(DamagedGraphError, match="format stamp"):
            og.open(root, read_only=read_only)
    with pytest.raises(AlreadyInitialisedError):
        og.init(root, schema=SCHEMA, force=True)

    assert contents(root) == before


def test_commands_and_open_handles_tell_of_a_stamp_that_no_program_wrote(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    graph = og.init(root, schema=SCHEMA)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"type": "Person", "data": {"name": "ann"}}')
    restamp(root, "0")
    before = contents(root)

    for arguments in (("status", root), ("load", root, str(rows)), ("optimize", root)):
        ended = run_command(*arguments)
        assert (ended.returncode, "format stamp" in ended.stderr) == (8, True), ended.stderr
    for verb in (
        lambda: graph.write(PERSON),
        lambda: graph.scan("Person"),
        graph.maintenance.optimize,
    ):
        with pytest.raises(DamagedGraphError, match=r"(?s)format stamp.*--rebuild-manifest"):
            verb()

    assert contents(root) == before


def test_a_manifest_that_lost_the_row_of_its_format_is_damaged() -> None:
    content = encode((), ManifestFacts(stamp=names.STAMP))
    metadata = {names.STAMP_KEY: str(names.STAMP), names.DIGEST_KEY: digest_of_values("")}

    with pytest.raises(DamagedGraphError):
        decode(content.slice(0, 0).replace_schema_metadata(metadata))


def upgrade(root: str) -> None:
    """What the next release will do: a row of a kind that this one does not know, and the stamp."""
    manifest = lance.dataset(f"{root}/{names.MANIFEST}")
    for lance_branch in (*manifest.branches.list(), None):
        branch = (
            manifest if lance_branch is None else manifest.checkout_version((lance_branch, None))
        )
        kind = names.format_marker(names.STAMP + 1)
        rows = branch.to_table().to_pylist()
        rows.append(dict.fromkeys(branch.schema.names) | {"object_id": kind, "object_type": kind})
        metadata = {**branch.schema.metadata, STAMP: NEXT}
        overwrite(branch, pa.Table.from_pylist(rows, branch.schema.with_metadata(metadata)))


def restamp(root: str, stamp: str) -> None:
    manifest = lance.dataset(f"{root}/{names.MANIFEST}")
    metadata = {**manifest.schema.metadata, STAMP: stamp.encode()}
    overwrite(manifest, manifest.to_table().replace_schema_metadata(metadata))


def overwrite(manifest: lance.LanceDataset, content: pa.Table) -> None:
    fragments = write_fragments(content, manifest, mode="overwrite")
    operation = lance.LanceOperation.Overwrite(content.schema, fragments)
    lance.LanceDataset.commit(manifest, operation, read_version=manifest.version)


def contents(root: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in files_of(root)}
