"""What handles each difference of the published programs' graphs is needed: without it, it shows.

Every mutant takes one piece of the handling away; the same look at a graph then fails or differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit import legacy_sidecar
from omnigraph_lake.errors import DamagedGraphError, OmnigraphError
from omnigraph_lake.schema import legacy_model
from omnigraph_lake.storage.lance import legacy_types
from omnigraph_lake.storage.manifest import legacy_history
from tests.legacy.legacy_graphs import exports, place_graph
from tests.legacy.rows import Row, exported_rows

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("looks at one graph")]

Mutate = Callable[[pytest.MonkeyPatch], None]


def _model(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(names, "LEGACY_SCHEMA_HASH", "no such field")


def _text_against_model(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(legacy_model, "find_difference", lambda *_: None)


def _times(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(legacy_types, "_is_legacy_date", lambda _: False)


def _blobs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(legacy_types, "_is_legacy_blob", lambda _: False)


def _commits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(legacy_history, "is_legacy", lambda _: False)


def _branches(patch: pytest.MonkeyPatch) -> None:
    def keep(rows: Sequence[object], _: str | None) -> tuple[object, ...]:
        return tuple(rows)

    patch.setattr(legacy_history, "fold_rows", keep)


def _sidecars(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(legacy_sidecar, "FORMAT_FIELD", "no such field")


@dataclass(frozen=True, kw_only=True)
class Look:
    """What two graphs show of the differences."""

    time: pa.DataType
    rows: dict[str, list[Row]]
    commits_with_tables: bool
    refuses_another_text: bool
    recovered: list[Row]
    is_audited: bool


def _look(folder: Path) -> Look:
    root = str(folder / "read")
    reading = og.open(root, read_only=True)
    time = reading.scan("Thing").schema.field("at").type
    views = {"main": reading, "dev": reading.checkout("dev")}
    rows = {branch: exported_rows(view, folder) for branch, view in views.items()}
    commits_with_tables = all(commit.tables for commit in reading.commits())
    text = Path(root, "_schema.pg").read_text()
    Path(root, "_schema.pg").write_text(text.replace("i32: I32?", "i32: I64?"))
    killed = og.open(str(folder / "killed"))
    return Look(
        time=time,
        rows=rows,
        commits_with_tables=commits_with_tables,
        refuses_another_text=_is_refused(root),
        recovered=exported_rows(killed, folder),
        is_audited=bool(killed.maintenance.recoveries()),
    )


def _is_refused(root: str) -> bool:
    try:
        og.open(root, read_only=True)
    except DamagedGraphError:
        return True
    return False


@pytest.mark.parametrize(
    "mutate",
    [None, _model, _text_against_model, _times, _blobs, _commits, _branches, _sidecars],
    ids=lambda mutate: "none" if mutate is None else mutate.__name__.strip("_"),
)
def test_without_the_handling_of_a_difference_it_shows(
    mutate: Mutate | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_graph("0.7.1/branches", str(tmp_path / "read"))
    place_graph("0.7.1/killed-2-load", str(tmp_path / "killed"))
    published = exports("0.7.1/branches")
    right = Look(
        time=pa.timestamp("us", tz="UTC"),
        rows={branch: published[branch] for branch in ("main", "dev")},
        commits_with_tables=True,
        refuses_another_text=True,
        recovered=exports("0.7.1/killed-2-load")["main"],
        is_audited=True,
    )
    if mutate is not None:
        mutate(monkeypatch)

    try:
        looked: Look | None = _look(tmp_path)
    except (OmnigraphError, TypeError, ValueError, LookupError):
        looked = None

    assert (looked == right) == (mutate is None)
