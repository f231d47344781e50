"""What a fork does is what a new process does, so that tests may start forks instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forking.programs import Finished, run_code

pytestmark = pytest.mark.unit

PROGRAMS = {
    "ends": "pass",
    "prints": "import sys; sys.stdout.buffer.write(b'\\xff\\r\\n'); print(1, file=sys.stderr)",
    "exits with a code": "import sys; print('before'); sys.exit(7)",
    "exits with nothing": "import sys; sys.exit()",
    "exits with a message": "import sys; sys.exit('no good')",
    "is killed": "import os; os.kill(os.getpid(), 9)",
    "reads stdin": "import sys; print(sys.stdin.read(), sys.stdin.isatty(), sys.stdout.isatty())",
    "has arguments": "import sys; print(sys.argv, repr(sys.path[0]), __name__)",
    "has a folder": "import os; print(os.getcwd())",
    "has an environment": "import os; print(os.environ['GIVEN'], os.environ['SINCE'])",
    "sets variables": "import os, omnigraph_lake.storage\n"
    "print(os.environ['LANCE_USE_VERSION_HINT'])",
    "is interrupted": """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        pass
except KeyboardInterrupt:
    print("interrupted")
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_fork_ends_and_prints_like_a_new_process(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINCE", "the zygote was started")

    def run(*, new_process: bool) -> Finished:
        return run_code(
            PROGRAMS[program],
            stdin="given",
            cwd=tmp_path,
            env={"GIVEN": "1", "LANCE_USE_VERSION_HINT": "1"},
            new_process=new_process,
        )

    assert run(new_process=False) == run(new_process=True)


def test_an_error_that_nothing_handles_is_printed_and_the_exit_code_is_1() -> None:
    finished = run_code("raise ValueError('no good')")

    assert (finished.returncode, finished.stdout) == (1, "")
    assert finished.stderr.endswith("\nValueError: no good\n")
