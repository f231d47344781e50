"""The page "Coming from Omnigraph 0.7" is what a user sees with a graph of that program."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.docs.test_snippets import HOME, run_snippet, snippets_of
from tests.legacy.legacy_graphs import GRAPHS, place_graph

pytestmark = pytest.mark.unit


@pytest.mark.local_disk("the page shows a folder")
def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    place_graph("0.7.1/branches", str(tmp_path / "g"))
    row = {"type": "Plain", "data": {"slug": "new", "name": "New"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    exported = gzip.decompress((GRAPHS / "0.7.1/history/main.jsonl.gz").read_bytes())
    (tmp_path / "export-of-0-7.jsonl").write_bytes(exported)
    (tmp_path / "all.pg").write_bytes((tmp_path / "g" / "_schema.pg").read_bytes())

    for snippet in snippets_of(HOME / "docs/how-to/from-omnigraph-0-7.md"):
        run_snippet(snippet, tmp_path, new_process=False)
