"""The process that is killed or stopped: one verb on one graph, its answer as a line of JSON.

python -m tests.crash.victim write ROOT JOB
"""

from __future__ import annotations

import json
import sys

import omnigraph
from omnigraph.commit.fold import fold
from omnigraph.errors import NothingWrittenError, OmnigraphError, OutcomeUnknownError
from omnigraph.graph import Graph
from omnigraph.storage.manifest import read_manifest
from tests.crash.small_world import SCHEMA, Job, carry_out


def main(verb: str, root: str, job: str = "") -> None:
    try:
        answer = _do(verb, root, job)
    except OutcomeUnknownError as error:
        answer = {"said": "unknown", "error": type(error).__name__}
    except (NothingWrittenError, KeyboardInterrupt) as error:
        answer = {"said": "failed", "error": type(error).__name__}
    except OmnigraphError as error:
        answer = {"said": "unknown", "error": type(error).__name__}
    print(json.dumps(answer), flush=True)


def _do(verb: str, root: str, job: str) -> dict[str, object]:
    match verb:
        case "init":
            omnigraph.init(root, schema=SCHEMA)
        case "force_init":
            omnigraph.init(root, schema=SCHEMA, force=True)
        case "open":
            omnigraph.open(root)
        case "sweep":
            settled = omnigraph.open(root).recover(also_living=True).settled
            return {"said": "acknowledged", "settled": [each.kind for each in settled]}
        case "fold":
            graph = omnigraph.open(root)
            return {"said": "acknowledged", "folded": _fold(graph)}
        case "write":
            result = carry_out(omnigraph.open(root), Job.decoded(job))
            return {"said": "acknowledged", "commit_id": result.commit_id}
        case _:
            raise ValueError(verb)
    return {"said": "acknowledged"}


def _fold(graph: Graph) -> bool:
    root = graph._objects.root
    return fold(root, read_manifest(root))


if __name__ == "__main__":
    main(*sys.argv[1:])
