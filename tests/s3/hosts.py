"""Writers, each on a host of its own as far as it can tell.

    python -m tests.s3.hosts '{"host": H, "root": R, "log": L, "failpoints": F}' ...

Every writer writes until one of its failpoints kills it. All are forks of one process that has
imported everything and used nothing, which saves the imports of each. Exits with 0 if every writer
was killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import traceback
import warnings
from typing import Any

from omnigraph_lake import failpoints
from tests.crash import storm_roles

_PR_SET_PDEATHSIG = 1


def main(*writers: str) -> int:
    _die_with_parent()
    pids = [_start(json.loads(writer)) for writer in writers]
    codes = {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
    return 0 if codes == {-signal.SIGKILL} else 1


def _start(writer: dict[str, Any]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lance warns of forks; it has started no thread yet
        pid = os.fork()
    if pid:
        return pid
    try:
        _die_with_parent()
        socket.gethostname = lambda: writer["host"]
        failpoints.arm_from(writer["failpoints"])
        storm_roles.write(writer["root"], writer["log"], "1")
    except BaseException:  # noqa: BLE001 - whatever it is, the fork ends here and says so
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


def _die_with_parent() -> None:
    """A test that is given up leaves no process behind that writes for ever."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
