"""Verbs on hostile folders, in a process of their own that watches the tripwire.

python -m tests.hostile.play PLAN   prints a line of JSON for each run
"""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from tests.adversary.plain_process import hide_optional_packages
from tests.adversary.questions import ask, opened
from tests.adversary.verbs import SECONDS_EACH, VERBS, Desk, Verb, call
from tests.hostile.tripwire import Tripwire

ASKED: Final = "?"
"""The entry that asks every question instead of calling a verb."""
ORIGIN, BACKUP, GROWN = "origin", "backup", "grown"
"""Beside the desk: the graph that is forged, a backup of it, and the same after more writes."""
ONTO: Final[Mapping[str, Verb]] = {
    "> backup": lambda desk: og.backup(str(desk.folder.parent / GROWN), desk.root),
    "> restore": lambda desk: og.restore(str(desk.folder.parent / GROWN), desk.root),
}
"""What is copied onto a hostile folder."""


def main(plan: str) -> None:
    """The plan is the folder of the desk, the victim, and pairs of entries and roots.

    Without a victim nobody watches: to look for what is outside would be seen itself.
    """
    folder, victim, runs = json.loads(Path(plan).read_text())
    hide_optional_packages()
    wire = Tripwire(Path(victim)) if victim else None
    for entry, root in runs:
        print(json.dumps({"begun": [entry, root]}), flush=True)
        faulthandler.dump_traceback_later(SECONDS_EACH, exit=True)
        told: dict[str, object]
        if entry == ASKED:
            told = {"entry": entry, "answers": ask(opened(root))}
        else:
            desk = Desk(root=root, folder=Path(folder))
            told = asdict(call(entry, desk, {**VERBS, **ONTO}))
        faulthandler.cancel_dump_traceback_later()
        tripped = list(wire.tripped()) if wire is not None else []
        if wire is not None and tripped:
            wire.lay()
        print(json.dumps({**told, "root": root, "tripped": tripped[:5]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
