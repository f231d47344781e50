"""The process that is killed or stopped while it works with branches; answers in one line of JSON.

python -m tests.crash.branch_victim run ROOT ERRAND
"""

from __future__ import annotations

import json
import sys

import omnigraph_lake as og
from tests.crash.branch_world import Errand, Verb, told


def main(_: str, root: str, errand: str) -> None:
    wanted = Errand.decoded(errand)
    graph = og.open(root, read_only=wanted.verb is Verb.READ)
    print(json.dumps(told(graph, wanted)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
