"""The process that is killed while it rebuilds a manifest.

python -m tests.crash.rebuild_victim rebuild ROOT
"""

from __future__ import annotations

import json

import omnigraph_lake
import omnigraph_lake.maintenance.rebuild.rebuild  # every victim finds it loaded


def main(_verb: str, root: str) -> None:
    said = omnigraph_lake.rebuild_manifest(root, dry_run=False).commit_id
    print(json.dumps({"said": said}), flush=True)
