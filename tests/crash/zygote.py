"""A process that has imported everything and used nothing; every victim is a fork of it.

Invariant: no call of Lance, Arrow or DuckDB is made here, so a fork misses no thread and finds no
lock held. What a victim does, and the way it dies, is that of a process of its own.

One request per line on stdin, one answer per line on stdout, both JSON:

    {"module": M, "arguments": [...], "failpoints": F, "guards": G, "out": O}  ->  {"pid": N}
    {"wait": N}  ->  {"code": C}
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from omnigraph import failpoints

VICTIMS = (
    "tests.crash.victim",
    "tests.crash.branch_victim",
    "tests.crash.branch_storm_roles",
    "tests.crash.schema_victim",
)
_USED_BY_VICTIMS = (
    "omnigraph.operations.check",
    "omnigraph.operations.merge",
    "omnigraph.operations.write",
    "omnigraph.schema.compile",
)


def serve(requests: Iterable[str]) -> None:
    living: set[int] = set()
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            living.discard(request["wait"])
            answer = {"code": os.waitstatus_to_exitcode(status)}
        else:
            pid = os.fork()
            if not pid:
                _live_and_exit(request)
            living.add(pid)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)
    for pid in living:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _live_and_exit(request: dict[str, Any]) -> None:
    """Be the victim; never returns to the loop of the zygote."""
    code = 1
    try:
        # A shell starts background jobs with SIGINT ignored, and Python keeps that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _redirect(request["out"])
        failpoints.arm_from(request["failpoints"])
        failpoints.leave_out(request["guards"])
        sys.modules[request["module"]].main(*request["arguments"])
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the fork ends here and says so
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(out: str) -> None:
    for name, flags, number in (
        (os.devnull, os.O_RDONLY, 0),
        (out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 1),
        (f"{out}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 2),
    ):
        opened = os.open(name, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    for module in (*_USED_BY_VICTIMS, *VICTIMS):
        importlib.import_module(module)
    serve(sys.stdin)
