"""The process that is killed or stopped while it holds a commit; answers in one line of JSON.

python -m tests.crash.hold_victim hold ROOT COMMIT
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta

import omnigraph_lake as og
from omnigraph_lake.errors import NoLongerKeptError
from tests.crash.small_world import content_of


def main(_: str, root: str, commit: str) -> None:
    graph = og.open(root)
    try:
        with graph.at(commit, hold="1h") as view:
            assert view.hold is not None
            renewed = view.hold.renew(timedelta(hours=2))
            rows = sum(map(len, content_of(graph, view.pinned).values()))
        told = {"said": "acknowledged", "renewed": renewed, "rows": rows}
    except NoLongerKeptError:
        told = {"said": "failed"}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
