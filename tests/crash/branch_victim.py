"""The process that is killed or stopped while it works with branches; answers in one line of JSON.

python -m tests.crash.branch_victim run ROOT ERRAND
"""

from __future__ import annotations

import json
import sys

import omnigraph
from omnigraph.errors import BranchGoneError, NothingWrittenError, OmnigraphError
from tests.crash.branch_world import Errand, Verb, run_errand


def main(_: str, root: str, errand: str) -> None:
    """Say `acknowledged`, `failed` (nothing was written), `gone` (with its branch) or `unknown`."""
    answer: dict[str, object]
    try:
        wanted = Errand.decoded(errand)
        graph = omnigraph.open(root, mode="r" if wanted.verb is Verb.READ else "rw")
        answer = {"said": "acknowledged", **run_errand(graph, wanted)}
    except (NothingWrittenError, KeyboardInterrupt) as error:
        answer = {"said": "failed", "error": type(error).__name__, "message": str(error)}
    except BranchGoneError as error:
        answer = {"said": "gone", "error": type(error).__name__, "message": str(error)}
    except OmnigraphError as error:
        answer = {"said": "unknown", "error": type(error).__name__, "message": str(error)}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
