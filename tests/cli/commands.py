"""`omnigraph` as the tests of this folder call it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.forking.programs import Finished, run_command
from tests.stores import on_s3

__all__ = ["answer", "run"]


def run(
    *arguments: str,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    new_process: bool = False,
) -> Finished:
    """Run a command; on a remote store, whoever removes something says that it is meant."""
    meant = ("--yes",) if on_s3() and _removes(arguments) else ()
    return run_command(*arguments, *meant, stdin=stdin, cwd=cwd, env=env, new_process=new_process)


def answer(*arguments: str, code: int = 0, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The JSON object that a command prints with `--json`."""
    finished = run(*arguments, "--json", env=env)
    assert finished.returncode == code, finished.stderr
    printed = json.loads(finished.stdout)
    assert isinstance(printed, dict)
    return printed


def _removes(arguments: Sequence[str]) -> bool:
    return arguments[:2] in {("branch", "delete"), ("tag", "delete")} or bool(
        {"--confirm", "--hard", "overwrite"} & set(arguments)
    )
