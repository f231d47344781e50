"""What came of all rounds, fault by fault, for a person to look at.

`python -m tests.s3.faults_table` runs every fault against every writer and prints the table.
`--seeds 3` meets three phases of each, `--faults` and `--writers` choose some, separated by commas.
Which phases is drawn from the commit; OMNIGRAPH_SEED repeats those of an earlier run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.gate.seeds import case_seeds
from tests.s3.fault_cases import WRITERS
from tests.s3.faults import FAULTS, World, world_in
from tests.s3.faults_rounds import Ended, Round, Rounds
from tests.stores import SERVED_FOLDER


def table(rounds: Sequence[Round]) -> str:
    """One line per kind of fault, and the sum of all."""
    heads = ["rounds", *(ended.value for ended in Ended), "lost", "duplicate", "longest/timeout"]
    lines = [f"{'fault':24}" + "".join(f"{head:>20}" for head in heads)]
    kinds = list(dict.fromkeys(each.fault for each in rounds))
    lines += [_line(kind, [each for each in rounds if each.fault == kind]) for kind in kinds]
    lines += [_line("all", rounds)]
    broken = [each for each in rounds if each.problems]
    lines += [f"{len(broken)} of {len(rounds)} rounds broke a promise"]
    lines += [each.line() for each in broken]
    return "\n".join(lines)


def _line(name: str, rounds: Sequence[Round]) -> str:
    ends = Counter(each.ended for each in rounds)
    numbers = [
        len(rounds),
        *(ends[ended] for ended in Ended),
        sum(each.lost for each in rounds),
        sum(each.duplicate for each in rounds),
    ]
    longest = max((each.timeouts for each in rounds), default=0.0)
    return f"{name:24}" + "".join(f"{number:>20}" for number in numbers) + f"{longest:>20.2f}"


def every_round(
    world: World, folder: Path, faults: Sequence[str], writers: Sequence[str], seeds: int
) -> Iterator[Round]:
    for writer in writers:
        rounds = Rounds(world, WRITERS[writer], folder)
        for fault in faults:
            for seed in case_seeds("faults", seeds):
                yield rounds.run(FAULTS[fault], seed)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--writers", default=",".join(WRITERS))
    asked = parser.parse_args(arguments)
    done: list[Round] = []
    with tempfile.TemporaryDirectory() as place, world_in(Path(place, "server")) as world:
        os.environ[SERVED_FOLDER] = str(world.server.data)
        folder = Path(place, "rounds")
        folder.mkdir()
        faults, writers = asked.faults.split(","), asked.writers.split(",")
        for each in every_round(world, folder, faults, writers, asked.seeds):
            print("ok " if not each.problems else "BAD", each.line(), flush=True)
            done.append(each)
    print(table(done))
    return 1 if any(each.problems for each in done) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
