"""A clock before 1970: told as what it is, never as damage."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.behaviours.histories import SCHEMA, small_graph
from tests.forking.programs import run_code

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.local_disk("about a clock, not about where the files are"),
]

CLOCK: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec -= 4000000000L;
    return done;
}
"""
"""What a process calls to learn the time, set back by more than a century."""
PROGRAM: Final = """
import json, sys
import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError
root, schema = sys.argv[1:]
said = []
for call in (
    lambda: og.open(root),
    lambda: og.open(root, read_only=True),
    lambda: og.init(root + "-2", schema=schema),
    lambda: og.rebuild_manifest(root),
):
    try:
        said.append(repr(call()))
    except OmnigraphError as error:
        said.append(f"{type(error).__name__}: {error}")
print(json.dumps(said))
"""


@pytest.mark.nightly("needs a C compiler and a new process; the check itself is one comparison")
def test_a_clock_before_1970_is_told_as_what_it_is(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    root = tmp_path / "g"
    small_graph(str(root))
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
    )

    finished = run_code(
        PROGRAM, str(root), SCHEMA, env={"LD_PRELOAD": str(library)}, new_process=True
    )

    assert finished.returncode == 0, finished.stderr
    told = json.loads(finished.stdout)
    assert len(told) == 4
    for message in told:
        assert message.startswith("WrongClockError: the system clock is set to a time before")
        assert "nothing was written.\nSet the clock" in message
