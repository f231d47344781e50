"""The process that is killed while it writes, or while it creates a branch.

python -m tests.adversary.victim write|branch ROOT
"""

from __future__ import annotations

import sys

import omnigraph_lake as og
from tests.adversary.world import HALF_CREATED, MARK


def main(verb: str, root: str) -> None:
    graph = og.open(root)
    if verb == "branch":
        graph.branches.create(HALF_CREATED)
        return
    name = f"{MARK}-dead"
    graph.write({"Person": [{"name": name}], "Company": [{"name": name}]}, actor=MARK)


if __name__ == "__main__":
    main(*sys.argv[1:])
