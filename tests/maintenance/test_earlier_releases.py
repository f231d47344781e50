"""Earlier releases, run from their source in processes of their own, beside an upgraded graph."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import omnigraph
from omnigraph import names
from tests.forking.client import CHECKOUT
from tests.maintenance import open_handles
from tests.maintenance.open_handles import READS, WRITES
from tests.stores import files_of

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("compares files byte by byte")]

RELEASES = {"7dd56a2": 5, "3e35cf1": 7}
"""Commits of earlier releases, and the format that each writes."""
ASKS_NO_MANIFEST = frozenset({"delete_tag", "recover", "tag the past", "at", "diff"})
"""Their `delete_tag` asks the log of the tag only, and what follows misses the tag. `recover` finds
nothing to do."""


@pytest.mark.nightly("earlier releases; the gate has this one's handles beside the next format")
@pytest.mark.parametrize("commit", RELEASES)
def test_handles_of_an_earlier_release_are_refused_and_overwrite_nothing(
    tmp_path: Path, commit: str
) -> None:
    root = tmp_path / "g"
    _run(tmp_path, commit, "import sys, open_handles; open_handles.build(sys.argv[1])", str(root))
    holder = subprocess.Popen(
        [sys.executable, "open_handles.py", str(root), str(tmp_path / "rows.jsonl")],
        cwd=tmp_path,
        env=_environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    assert _stamp(root) == RELEASES[commit]

    graph = omnigraph.open(str(root))
    before = {path: path.read_bytes() for path in files_of(str(root))}
    said, _ = holder.communicate("go on\n", timeout=300)

    endings = dict(json.loads(line) for line in said.splitlines())
    assert endings.keys() == {*WRITES, *READS}
    answered = {verb for verb, ending in endings.items() if ending not in _REFUSALS}
    assert answered <= ASKS_NO_MANIFEST, {verb: endings[verb] for verb in answered}
    after = {path: path.read_bytes() for path in files_of(str(root))}
    assert {path: after.get(path) for path in before} == before
    assert {path.parent.name for path in after.keys() - before.keys()} <= {f"{open_handles.EARLY}@"}
    assert _stamp(root) == names.STAMP
    graph.write({"Person": [{"name": "eve"}]})
    assert graph.check(deep=True).ok


_REFUSALS = frozenset({"DamagedGraphError", "FormatTooNewError", "absent"})


def _run(folder: Path, commit: str, code: str, *arguments: str) -> None:
    archive = subprocess.run(
        ["git", "-C", CHECKOUT, "archive", commit, "src"], check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as source:
        source.extractall(folder, filter="data")
    shutil.copy(open_handles.__file__, folder / "open_handles.py")
    subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, cwd=folder, env=_environment(folder)
    )


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder / "src")}


def _stamp(root: Path) -> int:
    return omnigraph.open(str(root), mode="r").status().format_stamp
