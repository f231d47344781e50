"""The process that is killed while it copies a graph.

python -m tests.crash.copy_victim backup SOURCE TARGET
"""

from __future__ import annotations

import json

import omnigraph_lake
import omnigraph_lake.opening  # every victim finds it loaded


def main(verb: str, source: str, target: str) -> None:
    copy = {"backup": omnigraph_lake.backup, "restore": omnigraph_lake.restore}[verb]
    print(json.dumps({"said": copy(source, target).commit_id}), flush=True)
