"""What others do to the graph while a victim stands still."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.storage.manifest.swap import read_manifest
from tests.crash.cases import Rival
from tests.crash.small_world import Content, Job, Kind, carry_out, content_of
from tests.crash.worlds import earlier_id
from tests.stores import folder_of


def act(rival: Rival, root: str, job: Job) -> Content:
    """Do it, and return what the graph holds then without the victim's job."""
    graph = og.open(root)
    match rival:
        case Rival.WRITES_THE_SAME_TABLES:
            carry_out(graph, Job(kind=Kind.MERGE, operation_id=earlier_id(), mark="rival"))
        case Rival.TAKES_THE_ROWS:
            carry_out(graph, Job(kind=job.kind, operation_id=earlier_id(), mark=job.mark))
        case Rival.FOLDS:
            location = graph._objects.root
            assert compact_commits(location, read_manifest(location))
        case Rival.BREAKS_THE_STORE:
            content = content_of(graph)
            _data(root).rename(_data(root).with_name("away"))
            _data(root).write_text("not a directory")
            return content
        case _:
            assert_never(rival)
    return content_of(graph)


def mend(rival: Rival, root: str) -> None:
    if rival is Rival.BREAKS_THE_STORE:
        _data(root).unlink()
        _data(root).with_name("away").rename(_data(root))


def _data(root: str) -> Path:
    return folder_of(root, names.MANIFEST, "data")
