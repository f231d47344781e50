"""Damages one file after the other of a copy of a graph, asks everything of it, and counts.

    python -m tests.damage.storm --damages 500 --seed 1

Every trial is asked in a process of its own, with both levels of verification, and by a deep check.
A trial is silent if an answer differs from that of the undamaged graph and no error said so.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.damage import world
from tests.forking.programs import run_module

LEVELS = ("metadata", "first-read")
CHECK = "check"


class Kind(StrEnum):
    """What a file is for."""

    DATA = "table data"
    BLOB = "blobs"
    DELETION = "deletion files"
    VERSION = "table versions"
    KEY_INDEX = "key indexes"
    OTHER_INDEX = "other indexes"
    CHECKSUMS = "lists of checksums"
    MANIFEST = "__manifest"
    HISTORY = "history tables"
    LOG = "branch and tag logs"
    SCHEMA = "schema objects"
    LANCE_REF = "Lance branch refs"
    TRANSACTION = "transactions"
    OTHER = "others"


class Damage(StrEnum):
    """What happens to a file."""

    BIT = "one bit"
    HOLE = "a hole of 64 bytes"
    HALF = "half of it"
    EMPTY = "empty"
    REMOVED = "removed"
    EXCHANGED = "exchanged"


class Verdict(StrEnum):
    """What came of one level of verification in one trial."""

    HARMLESS = "harmless"
    DAMAGED = "typed"
    OTHER_ERROR = "other typed"
    SILENT = "silent"
    EARLIER = "earlier"
    """The end of `__manifest` or of a log was removed: what was before it is answered.

    No digest can show that; a deep check must.
    """
    RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One damaged file; `other` is the file it was exchanged with."""

    path: str
    kind: Kind
    damage: Damage
    at: float
    other: str = ""

    @property
    def removes_an_end(self) -> bool:
        return self.damage is Damage.REMOVED and self.kind in (Kind.MANIFEST, Kind.LOG)


@dataclass(slots=True, kw_only=True)
class Tally:
    """Verdicts by level, and what deserves a look."""

    trials: int = 0
    verdicts: dict[str, Counter[tuple[Kind, Verdict]]] = field(default_factory=dict)
    missed: Counter[Kind] = field(default_factory=Counter)
    """Answers were wrong or refused, and a deep check found nothing."""
    examples: dict[str, list[str]] = field(default_factory=dict)

    def count(self, level: str, verdict: Verdict, kind: Kind | None = None) -> int:
        verdicts = self.verdicts.get(level, Counter())
        return sum(
            number
            for (of, what), number in verdicts.items()
            if what is verdict and kind in (None, of)
        )

    @property
    def is_good(self) -> bool:
        silent = self.count("first-read", Verdict.SILENT)
        raw = sum(self.count(level, Verdict.RAW) for level in LEVELS)
        return not silent and not raw and not self.missed

    def note(self, why: str, trial: Trial, detail: str) -> None:
        self.examples.setdefault(why, []).append(
            f"{trial.damage} {trial.path} {trial.other}: {detail}"
        )


def kind_of(path: str) -> Kind:
    """The kind of a file by its path below the root."""
    rules: tuple[tuple[Kind, Callable[[str], bool]], ...] = (
        (Kind.LANCE_REF, lambda p: "/_refs/" in p),
        (Kind.LOG, lambda p: p.startswith(("_refs/", "_retention/"))),
        (Kind.MANIFEST, lambda p: p.startswith("__manifest/") and "_transactions" not in p),
        (Kind.HISTORY, lambda p: p.startswith("_graph_") and "_transactions" not in p),
        (Kind.TRANSACTION, lambda p: "_transactions/" in p),
        (Kind.SCHEMA, lambda p: "schema" in p.lower()),
        (Kind.CHECKSUMS, lambda p: "/_checksums/" in p),
        (Kind.BLOB, lambda p: p.endswith(".blob")),
        (Kind.DELETION, lambda p: "/_deletions/" in p),
        (Kind.VERSION, lambda p: "/_versions/" in p),
        (Kind.KEY_INDEX, lambda p: "/_indices/" in p and "/page_" in p),
        (Kind.OTHER_INDEX, lambda p: "/_indices/" in p),
        (Kind.DATA, lambda p: "/data/" in p),
    )
    return next((kind for kind, matches in rules if matches(path)), Kind.OTHER)


def choose(root: Path, count: int, seed: int) -> list[Trial]:
    """Trials spread over kinds first, then over files."""
    chance = random.Random(seed)
    by_kind: dict[Kind, list[str]] = {}
    for path in sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()):
        by_kind.setdefault(kind_of(path), []).append(path)
    by_kind.pop(Kind.OTHER, None)  # markers without content
    kinds = [*by_kind, Kind.DATA, Kind.KEY_INDEX]
    trials: list[Trial] = []
    while len(trials) < count:
        kind = kinds[len(trials) % len(kinds)]
        path = chance.choice(by_kind[kind])
        damage = chance.choices(list(Damage), weights=(6, 4, 2, 1, 2, 2))[0]
        others = [other for other in by_kind[kind] if other != path]
        if damage is Damage.EXCHANGED and not others:
            damage = Damage.BIT
        other = chance.choice(others) if damage is Damage.EXCHANGED else ""
        trials.append(Trial(path=path, kind=kind, damage=damage, at=chance.random(), other=other))
    return trials


def inflict(root: Path, trial: Trial) -> bool:
    """Damage a file of a copy made of hard links; False if it is what it was."""
    path = root / trial.path
    content = path.read_bytes()
    damaged = _damaged(content, trial)
    if trial.damage is Damage.EXCHANGED:
        other = root / trial.other
        damaged, content_of_other = other.read_bytes(), content
        _replace(other, content_of_other)
    if damaged is None:
        path.unlink()
        return True
    _replace(path, damaged)
    return damaged != content


def _damaged(content: bytes, trial: Trial) -> bytes | None:
    place = int(trial.at * len(content))
    match trial.damage:
        case Damage.BIT if content:
            flipped = content[place] ^ (1 << (place % 8))
            return content[:place] + bytes([flipped]) + content[place + 1 :]
        case Damage.HOLE:
            end = min(len(content), place + 64)
            return content[:place] + bytes(end - place) + content[end:]
        case Damage.HALF:
            return content[: len(content) // 2]
        case Damage.EMPTY:
            return b""
        case Damage.REMOVED:
            return None
        case _:
            return content


def _replace(path: Path, content: bytes) -> None:
    """Give the name to a new file: the old one is linked from the undamaged graph."""
    path.unlink()
    path.write_bytes(content)


def judge(expected: Mapping[str, str], answers: Mapping[str, str]) -> tuple[Verdict, Sequence[str]]:
    """What a level came to, and the questions that say so."""
    errors = {name: answer for name, answer in answers.items() if answer.startswith("!")}
    wrong = [
        name
        for name, answer in answers.items()
        if name not in errors and answer != expected.get(name)
    ]
    if wrong:
        return Verdict.SILENT, wrong
    if not errors:
        return Verdict.HARMLESS, ()
    others = [f"{n} {a[:300]}" for n, a in errors.items() if not a.startswith("!DamagedGraphError")]
    if others:
        return Verdict.OTHER_ERROR, others
    return Verdict.DAMAGED, [f"{name} {answer[:160]}" for name, answer in errors.items()]


def run(place: Path, damages: int, seed: int, people: int = world.PEOPLE) -> Tally:
    origin = place / "origin"
    world.build(str(origin), people)
    expected = json.loads(_asked(origin, *LEVELS))
    assert len({json.dumps(answers) for answers in expected.values()}) == 1, expected
    tally = Tally(verdicts={level: Counter() for level in LEVELS})
    for number, trial in enumerate(choose(origin, damages, seed)):
        copy = place / f"copy{number}"
        subprocess.run(["cp", "-al", str(origin), str(copy)], check=True)
        if inflict(copy, trial):
            _judge_trial(tally, trial, expected[LEVELS[0]], _asked(copy, *LEVELS, CHECK))
        shutil.rmtree(copy)
    return tally


def _judge_trial(tally: Tally, trial: Trial, expected: Mapping[str, str], output: str) -> None:
    tally.trials += 1
    try:
        told = json.loads(output)
    except ValueError:
        for level in LEVELS:
            tally.verdicts[level][trial.kind, Verdict.RAW] += 1
        tally.note("raw", trial, output[-600:])
        return
    verdicts: list[Verdict] = []
    for level in LEVELS:
        verdict, details = judge(expected, told[level])
        if verdict is Verdict.SILENT and trial.removes_an_end:
            verdict = Verdict.EARLIER
        verdicts.append(verdict)
        tally.verdicts[level][trial.kind, verdict] += 1
        if verdict in (Verdict.SILENT, Verdict.OTHER_ERROR):
            tally.note(f"{verdict} ({level})", trial, " | ".join(details)[:400])
    if told[CHECK] == "ok" and any(verdict is not Verdict.HARMLESS for verdict in verdicts):
        tally.missed[trial.kind] += 1
        tally.note("missed by a deep check", trial, str(verdicts))


def _asked(root: Path, *levels: str) -> str:
    ended = run_module("tests.damage.world", str(root), *levels)
    return ended.stdout if ended.returncode == 0 else f"exit {ended.returncode}: {ended.stderr}"


def print_tally(tally: Tally) -> None:
    for level in LEVELS:
        print(f"\nverify={level}")
        print(f"{'':<22}" + "".join(f"{verdict.value:>12}" for verdict in Verdict))
        for kind in Kind:
            counts = [tally.count(level, verdict, kind) for verdict in Verdict]
            if any(counts):
                print(f"{kind.value:<22}" + "".join(f"{count:>12}" for count in counts))
        counts = [tally.count(level, verdict) for verdict in Verdict]
        print(f"{'all ' + str(tally.trials):<22}" + "".join(f"{count:>12}" for count in counts))
    for why, examples in tally.examples.items():
        print(f"\n{why}: {len(examples)}")
        for example in examples[:12]:
            print(f"  {example}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--damages", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    os.environ["OMNIGRAPH_DURABILITY"] = "os"
    with tempfile.TemporaryDirectory(prefix="omnigraph-damage-") as place:
        tally = run(Path(place), given.damages, given.seed)
    print_tally(tally)
    silent = {level: tally.count(level, Verdict.SILENT) for level in LEVELS}
    raw = sum(tally.count(level, Verdict.RAW) for level in LEVELS)
    earlier = tally.count("first-read", Verdict.EARLIER)
    print(
        f"{tally.trials} damages, silent {silent}, removed ends {earlier}, raw {raw}, "
        f"missed {tally.missed.total()}"
    )
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
