"""The processes of a storm among branches: each runs errands at random and logs before and after.

python -m tests.crash.branch_storm_roles run ROOT LOG SEED
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ulid import ULID

import omnigraph_lake as og
from tests.crash.branch_world import (
    MAIN,
    RECONCILE,
    SWEEP,
    Errand,
    Verb,
    create,
    delete,
    merge,
    told,
    write,
)

POOL = ("one", "two", "three")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An errand of the storm, when it began, and what was said of it; None if nobody lived to."""

    errand: Errand
    began: float
    said: str | None
    error: str | None
    outcome: str | None

    @property
    def wrote(self) -> bool:
        """Whether a commit was acknowledged; merging what is there already needs none."""
        is_write = self.errand.verb in {Verb.WRITE, Verb.MERGE}
        return is_write and self.said == "acknowledged" and self.outcome != "up_to_date"


def main(_: str, root: str, log: str, seed: str) -> None:
    chance = random.Random(seed)
    with Path(log).open("a") as file:

        def note(**line: object) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

        graph = og.open(root)
        while True:
            errand = any_errand(chance)
            note(errand=asdict(errand), began=time.time())
            note(operation_id=errand.operation_id, **told(graph, errand))


def any_errand(chance: random.Random) -> Errand:
    """Mostly writes and merges, so that branches have something to lose."""
    name, other = chance.sample(POOL, 2)
    operation_id = str(ULID())
    mark = f"{chance.choice(('link', 'append'))}-{operation_id}"
    wanted = chance.choices(
        (
            create(name, chance.choice((MAIN, MAIN, other))),
            write(chance.choice((MAIN, name, name)), mark),
            merge(name),
            merge(chance.choice((MAIN, other)), name),
            delete(name),
            RECONCILE,
            SWEEP,
        ),
        weights=(4, 6, 4, 2, 2, 1, 0.3),
    )[0]
    return Errand(
        verb=wanted.verb,
        name=wanted.name,
        source=wanted.source,
        mark=wanted.mark,
        operation_id=operation_id,
    )


def read_claims(logs: Path) -> Iterator[Claim]:
    """What every process said, as far as it lived to say it."""
    for log in sorted(logs.glob("*.log")):
        begun: dict[str, tuple[Errand, float]] = {}
        said: dict[str, dict[str, str]] = {}
        for line in log.read_text().splitlines():
            try:
                fields = json.loads(line)
            except ValueError:
                # Half a line of somebody who was killed, about an errand it has begun.
                continue
            if "errand" in fields:
                errand = Errand(**{**fields["errand"], "verb": Verb(fields["errand"]["verb"])})
                begun[errand.operation_id] = errand, fields["began"]
            else:
                said[fields["operation_id"]] = fields
        for operation_id, (errand, began) in begun.items():
            answer = said.get(operation_id, {})
            yield Claim(
                errand=errand,
                began=began,
                said=answer.get("said"),
                error=answer.get("error"),
                outcome=answer.get("outcome"),
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
