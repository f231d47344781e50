"""Damages the indexes that decide keys, then looks keys up and writes them again.

    python -m tests.damage.keys --trials 200 --seed 1

Nothing may go unfound without an error, and no key that exists may be acknowledged as a new one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import lance

import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError
from tests.damage.storm import Damage, Kind, Trial, inflict
from tests.damage.world import FIND_PERSON, build
from tests.forking.programs import run_module

INDEXES = ("id_btree", "email_btree")
KEYS = 12
PEOPLE = 150_000


def probe(root: str, *keys: str) -> dict[str, int]:
    """What looking keys up and appending them again came to."""
    outcome: Counter[str] = Counter()
    reader = og.open(root, read_only=True)
    for key in keys:
        try:
            rows = reader.query(FIND_PERSON, k=key).to_pylist()
            outcome["found" if len(rows) == 1 else "unfound"] += 1
        except OmnigraphError as error:
            outcome[type(error).__name__] += 1
    for key in keys:
        try:
            og.open(root).write({"Person": [{"email": key, "name": "again", "age": 1}]})
            outcome["duplicate"] += 1
        except OmnigraphError as error:
            outcome[f"write {type(error).__name__}"] += 1
    return outcome


def main(root: str, *keys: str) -> None:
    print(json.dumps(probe(root, *keys)))


def run(place: Path, trials: int, seed: int, people: int = PEOPLE) -> dict[str, Counter[str]]:
    """Outcomes by index."""
    origin = place / "origin"
    build(str(origin), people)
    chance = random.Random(seed)
    files = {name: list(_files(origin, name)) for name in INDEXES}
    outcomes: dict[str, Counter[str]] = {}
    for name in INDEXES:
        outcomes[name] = Counter()
        for number in range(trials):
            copy = place / f"{name}-{number}"
            subprocess.run(["cp", "-al", str(origin), str(copy)], check=True)
            trial = Trial(
                path=chance.choice(files[name]),
                kind=Kind.KEY_INDEX,
                damage=chance.choice((Damage.BIT, Damage.HOLE)),
                at=chance.random(),
            )
            if inflict(copy, trial):
                keys = [f"p{chance.randrange(3000, people)}@x" for _ in range(KEYS)]
                ended = run_module("tests.damage.keys", str(copy), *keys)
                if ended.returncode:
                    outcomes[name]["raw"] += 1
                    print(ended.stderr[-500:], file=sys.stderr)
                else:
                    outcomes[name].update(json.loads(ended.stdout))
                outcomes[name]["trials"] += 1
            shutil.rmtree(copy)
    return outcomes


def _files(root: Path, index: str) -> Iterator[str]:
    """The files of an index of people, below the root."""
    for table in (root / "nodes").iterdir():
        dataset = lance.dataset(str(table))
        for description in dataset.describe_indices():
            if description.name == index and "email" in dataset.schema.names:
                for segment in description.segments:
                    folder = table / "_indices" / str(segment.uuid)
                    yield from (str(file.relative_to(root)) for file in folder.iterdir())


def is_good(outcomes: dict[str, Counter[str]]) -> bool:
    wrong = ("unfound", "duplicate", "raw")
    return all(not outcome[word] for outcome in outcomes.values() for word in wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    os.environ["OMNIGRAPH_DURABILITY"] = "os"
    with tempfile.TemporaryDirectory(prefix="omnigraph-keys-") as folder:
        result = run(Path(folder), given.trials, given.seed)
    for name, outcome in result.items():
        print(f"{name}: {dict(sorted(outcome.items()))}")
    sys.exit(0 if is_good(result) else 1)
