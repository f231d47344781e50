"""The processes of a storm: writers that log before and after, a wrong sweeper, a folder.

python -m tests.crash.storm_roles writer ROOT LOG NUMBER

A process is on the host that a variable names, or else on this one. Whether a writer on another
host is dead cannot be looked up: only its silence tells.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.errors import NothingWrittenError, OmnigraphError
from omnigraph_lake.storage.manifest.swap import forget_old_versions, read_manifest
from tests.crash.bank import any_transfer, carry_out
from tests.gate.seeds import run_seed

HOST: Final = "OMNIGRAPH_STORM_HOST"
_IMPATIENCE_SECONDS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What writers said about their operations, as far as they lived to say it."""

    begun: frozenset[str]
    acknowledged: frozenset[str]
    failed: frozenset[str]

    @property
    def unknown(self) -> frozenset[str]:
        return self.begun - self.acknowledged - self.failed


def write(root: str, log: str, number: str) -> None:
    chance = random.Random(f"{run_seed()} {number}")
    graph = og.open(root)
    with Path(log).open("a") as file:

        def note(word: str, operation_id: str) -> None:
            file.write(f"{word} {operation_id}\n")
            file.flush()
            os.fsync(file.fileno())

        while True:
            transfer = any_transfer(chance, int(number))
            note("begun", transfer.operation_id)
            try:
                carry_out(graph, transfer)
            except NothingWrittenError:
                note("failed", transfer.operation_id)
            except OmnigraphError:
                note("unknown", transfer.operation_id)
            else:
                note("acknowledged", transfer.operation_id)


def sweep(root: str) -> None:
    """Take everybody for dead, again and again."""
    while True:
        time.sleep(random.uniform(0, _IMPATIENCE_SECONDS))
        _undisturbed(lambda: og.open(root).maintenance.recover(force=True))


def maintain(root: str) -> None:
    while True:
        time.sleep(random.uniform(0, 2 * _IMPATIENCE_SECONDS))
        _undisturbed(lambda: _fold_and_clean(root))


def read_claims(logs: Path) -> Claims:
    said: Mapping[str, set[str]] = {word: set() for word in ("begun", "acknowledged", "failed")}
    for log in logs.glob("*.log"):
        for line in log.read_text().splitlines():
            word, _, operation_id = line.partition(" ")
            # A writer that was killed may leave half a line, about an operation it has begun.
            if word in said and len(operation_id) == 26:
                said[word].add(operation_id)
    return Claims(
        begun=frozenset(said["begun"]),
        acknowledged=frozenset(said["acknowledged"]),
        failed=frozenset(said["failed"]),
    )


def _fold_and_clean(root: str) -> None:
    location = og.open(root, read_only=True)._objects.root
    compact_commits(location, read_manifest(location))
    forget_old_versions(location)


def _undisturbed(act: Callable[[], object]) -> None:
    try:
        act()
    except OmnigraphError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)


def main(role: str, root: str, *rest: str) -> None:
    host = os.environ.get(HOST)
    if host:
        socket.gethostname = lambda: host
    match role:
        case "writer":
            write(root, *rest)
        case "sweeper":
            sweep(root)
        case "folder":
            maintain(root)
        case _:
            raise ValueError(role)


if __name__ == "__main__":
    main(*sys.argv[1:])
