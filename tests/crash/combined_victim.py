"""A writer of a table whose writers may publish each other.

python -m tests.crash.combined_victim write ROOT OPERATION NAME [TYPE]
python -m tests.crash.combined_victim storm ROOT NAME LOG

The first writes one row and answers in one line of JSON. The second writes until it is killed, and
logs what it began and what it was told; some of its rows have the id of a row of another writer,
and some are in another table.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError, OutcomeUnknownError
from tests.commit.small_graphs import account


def main(verb: str, root: str, *arguments: str) -> None:
    if verb == "storm":
        name, log = arguments
        storm(root, name, Path(log))
        return
    operation_id, name, *types = arguments
    rows = {"Note": [{"text": name}]} if types == ["Note"] else {"Account": [account(name, 1)]}
    graph = og.open(root)
    try:
        graph.write(rows, operation_id=operation_id, actor=name)
        told = {"said": "acknowledged"}
    except OmnigraphError as error:
        told = {"said": "failed", "error": type(error).__name__}
    print(json.dumps(told), flush=True)


def storm(root: str, name: str, log: Path) -> None:
    graph = og.open(root)
    chance = random.Random(name)
    notes = chance.choice([0.0, 0.5, 1.0])
    with log.open("a", buffering=1) as lines:
        while True:
            operation_id = str(ULID())
            is_shared = chance.random() < 0.3
            row = f"shared-{chance.randrange(200)}" if is_shared else f"{name}-{operation_id}"
            is_note = not is_shared and chance.random() < notes
            rows = {"Note": [{"text": row}]} if is_note else {"Account": [account(row, 1)]}
            lines.write(f"begun {operation_id} {row}\n")
            try:
                graph.write(rows, operation_id=operation_id, actor=name)
                lines.write(f"acknowledged {operation_id} {row}\n")
            except OutcomeUnknownError:
                lines.write(f"unknown {operation_id} {row}\n")
            except OmnigraphError:
                lines.write(f"failed {operation_id} {row}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
