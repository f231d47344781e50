"""The process that is killed or stopped: one verb on one graph, its answer as a line of JSON.

python -m tests.crash.victim write ROOT JOB
"""

from __future__ import annotations

import json
import os
import sys
from unittest.mock import patch

import omnigraph_lake
import omnigraph_lake.maintenance.cleanup
import omnigraph_lake.maintenance.optimize
import omnigraph_lake.maintenance.repair  # all three: every victim finds them loaded
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.errors import NothingWrittenError, OmnigraphError, OutcomeUnknownError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.swap import read_manifest
from tests.crash.maintenance_world import Maintenance, keep_up
from tests.crash.small_world import SCHEMA, Job, carry_out


def main(verb: str, root: str, job: str = "") -> None:
    os.environ["OMNIGRAPH_BACKGROUND"] = "off"  # every step is one of the verb, not behind it
    try:
        answer = _do(verb, root, job)
    except OutcomeUnknownError as error:
        answer = _refusal("unknown", error)
    except (NothingWrittenError, KeyboardInterrupt) as error:
        answer = _refusal("failed", error)
    except OmnigraphError as error:
        answer = _refusal("unknown", error)
    print(json.dumps(answer), flush=True)


def _do(verb: str, root: str, job: str) -> dict[str, object]:  # noqa: PLR0911 - one per verb
    match verb:
        case "init":
            omnigraph_lake.init(root, schema=SCHEMA)
        case "force_init":
            omnigraph_lake.init(root, schema=SCHEMA, force=True)
        case "open":
            omnigraph_lake.open(root)
        case "sweep":
            settled = omnigraph_lake.open(root).maintenance.recover(force=True).settled
            return {"said": "acknowledged", "settled": [each.kind for each in settled]}
        case "fold":
            graph = omnigraph_lake.open(root)
            return {"said": "acknowledged", "folded": _fold(graph)}
        case "write":
            result = carry_out(omnigraph_lake.open(root), Job.decoded(job))
            return {"said": "acknowledged", "commit_id": result.commit_id}
        case "write_and_fold":
            with patch("omnigraph_lake.commit.history_compaction.FOLD_EVERY", 1):
                return _do("write", root, job)
        case "maintenance":
            return {"said": "acknowledged", **keep_up(omnigraph_lake.open(root), Maintenance(job))}
        case _:
            return _go_back(verb, root, job)
    return {"said": "acknowledged"}


def _go_back(verb: str, root: str, operation_id: str) -> dict[str, object]:
    reference = {"revert": "HEAD", "restore": "HEAD~1"}[verb]
    go_back = getattr(omnigraph_lake.open(root), verb)
    result = go_back(reference, operation_id=operation_id, message=verb)
    return {"said": "acknowledged", "commit_id": result.commit_id}


def _refusal(said: str, error: BaseException) -> dict[str, object]:
    return {"said": said, "error": type(error).__name__, "message": str(error)}


def _fold(graph: Graph) -> bool:
    root = graph._objects.root
    return compact_commits(root, read_manifest(root))


if __name__ == "__main__":
    main(*sys.argv[1:])
