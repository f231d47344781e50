"""The process that is killed or stopped while the schema changes; answers in one line of JSON.

python -m tests.crash.schema_victim VERB ROOT ARGUMENT
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import omnigraph_lake
import omnigraph_lake.api.audited_load
import omnigraph_lake.engine.query_text  # all five: every victim finds them loaded
import omnigraph_lake.evolution.apply_schema
import omnigraph_lake.maintenance.optimize
import omnigraph_lake.mutate.mutate
from omnigraph_lake.errors import NothingWrittenError, OmnigraphError
from omnigraph_lake.graph import Graph
from tests.crash.schema_world import Apply, apply, look
from tests.crash.schema_writers import Writing, write


def main(verb: str, root: str, argument: str = "") -> None:
    try:
        answer = {"said": "acknowledged", **_do(verb, root, argument)}
    except (NothingWrittenError, KeyboardInterrupt) as error:
        answer = _refusal("failed", error)
    except OmnigraphError as error:
        answer = _refusal("unknown", error)
    print(json.dumps(answer), flush=True)


def _do(verb: str, root: str, argument: str) -> dict[str, object]:
    match verb:
        case "look":
            graph = omnigraph_lake.open(root, read_only=True)
            return asdict(look(graph.checkout(argument) if argument else graph))
        case "apply":
            return _applied(omnigraph_lake.open(root), Apply.decoded(argument))
        case "sweep":
            settled = omnigraph_lake.open(root).maintenance.recover(force=True).settled
            return {"settled": [each.kind for each in settled]}
        case "branch":
            omnigraph_lake.open(root).branches.create(argument)
            return {}
        case "write":
            write(omnigraph_lake.open(root), Writing.decoded(argument))
            return {}
        case _:
            raise ValueError(verb)


def _applied(graph: Graph, job: Apply) -> dict[str, object]:
    result = apply(graph, job)
    return {"commit_id": result.commit_id, "schema_hash": result.schema_hash}


def _refusal(said: str, error: BaseException) -> dict[str, object]:
    return {"said": said, "error": type(error).__name__, "message": str(error)}


if __name__ == "__main__":
    main(*sys.argv[1:])
