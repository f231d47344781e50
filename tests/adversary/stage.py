"""Copies of a graph with one adversity, the verbs that run on them, and the verdict on each."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omnigraph_lake import errors
from tests.adversary.questions import GROWING, Answer
from tests.adversary.verbs import Ended, Ending, Plan, lay_out
from tests.adversary.world import Adversity, Worlds, ask
from tests.forking.programs import Running, start_module
from tests.forking.waiting import wait_for_stop
from tests.gate.selection import for_gate

EXIT_CODES: Final = frozenset(
    {0, 1, 2}
    | {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.OmnigraphError)
    }
)
"""What docs/reference/errors.md lists."""
PLAYED: Final = for_gate(
    Adversity, lambda one: one not in (Adversity.OLDEST_FORMAT, Adversity.POWER_CUT)
)
"""What this run plays; the gate has another old format, and tests/power cuts the power."""
_STOP_SECONDS: Final = 120.0
_DAMAGED: Final = f"!{errors.DamagedGraphError.__name__}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the graph answers without an adversity, and with it."""

    whole: Mapping[str, Answer]
    before: Mapping[str, Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A copy of a graph with an adversity for each entry."""

    adversity: Adversity
    known: Known
    place: Path
    roots: Mapping[str, Path]

    @property
    def desk(self) -> Path:
        return self.place / "desk"


def survey(worlds: Worlds, place: Path) -> Mapping[Adversity, Known]:
    """Ask about every graph before anything runs on it; one process asks about all of them."""
    pairs = {one: (worlds.undamaged(one), worlds.template(one)) for one in PLAYED}
    roots = sorted({root for pair in pairs.values() for root in pair})
    lines = ask(place, *roots).splitlines()
    answers = {root: json.loads(line) for root, line in zip(roots, lines, strict=True)}
    known = {
        adversity: Known(whole=answers[whole], before=answers[before])
        for adversity, (whole, before) in pairs.items()
    }
    for adversity, one in known.items():
        refused = [answer for answer in one.whole.values() if isinstance(answer, str)]
        assert adversity.is_old or not refused, refused
    return known


def set_up(
    adversity: Adversity, worlds: Worlds, known: Known, place: Path, entries: Sequence[str]
) -> Stage:
    roots = {entry: place / f"graph{number}" for number, entry in enumerate(entries)}
    for root in roots.values():
        worlds.copy(adversity, root)
    stage = Stage(adversity=adversity, known=known, place=place, roots=roots)
    lay_out(stage.desk)
    return stage


def perform(stage: Stage) -> list[str]:
    """Run every entry on its copy, ask about each copy afterwards, and list what is wrong."""
    with _reader(stage) as held:
        endings = _run(stage)
    faults = [fault for ended in endings if (fault := fault_of(ended))]
    faults += missing(stage, endings)
    answers = map(json.loads, ask(stage.place, *stage.roots.values()).splitlines())
    for entry, after in zip(stage.roots, answers, strict=True):
        faults += [f"after {entry}: {loss}" for loss in losses(stage, after)]
    for entry, seen in zip(stage.roots, held, strict=False):
        faults += [f"a reader beside {entry}: {loss}" for loss in losses(stage, seen)]
    assert not stage.adversity.has_reader or len(held) == len(stage.roots)
    return faults


def fault_of(ended: Ended) -> str:
    """What is wrong with the way an entry ended; empty if nothing is."""
    if ended.ending is Ending.RAW:
        return f"{ended.entry} ended with an exception that is not ours: {ended.said}"
    if ended.code not in EXIT_CODES:
        return f"{ended.entry} ended with exit code {ended.code}: {ended.said}"
    return ""


def missing(stage: Stage, endings: Sequence[Ended]) -> list[str]:
    ended = {one.entry for one in endings}
    return [f"{entry} did not end" for entry in stage.roots if entry not in ended]


def losses(stage: Stage, after: Mapping[str, Answer]) -> Iterator[str]:
    """Questions that are answered otherwise than before, or refused for no reason."""
    if "open" in after:
        after = dict.fromkeys(stage.known.whole, after["open"])
    for name, answer in after.items():
        question = "people" if name == "scan" else name
        expected, before = stage.known.whole[question], stage.known.before.get(question)
        if isinstance(expected, str):
            continue
        if isinstance(answer, str):
            if not (stage.adversity.is_damage and answer.startswith(_DAMAGED)):
                yield f"{name} is refused: {answer}"
            elif isinstance(before, list):
                yield f"{name} was answered before, and is refused: {answer}"
        elif not _is_kept(question, expected, answer):
            yield f"{name} is answered {answer}, expected {expected}"


def _is_kept(question: str, expected: Answer, answer: list[str]) -> bool:
    if question in GROWING:
        return set(answer) >= set(expected)
    return answer == expected


def _run(stage: Stage) -> list[Ended]:
    plan = stage.place / "plan.json"
    plan.write_text(
        Plan(
            folder=str(stage.desk),
            is_read_only=stage.adversity.is_read_only,
            roots={entry: str(root) for entry, root in stage.roots.items()},
        ).encoded()
    )
    with _permissions(stage):
        ended = start_module("tests.adversary.verbs", str(plan)).finish()
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, f"{lines[-1:]} hangs, or ended the process: {ended.stderr}"
    return [
        Ended(**{**line, "ending": Ending(line["ending"])}) for line in lines if "ending" in line
    ]


@contextmanager
def _permissions(stage: Stage) -> Iterator[None]:
    """Folders are read-only while the verbs run; files are shared with the template."""
    folders = [
        Path(folder)
        for root in stage.roots.values()
        for folder, _, _ in os.walk(root)
        if stage.adversity.is_read_only
    ]
    for folder in folders:
        folder.chmod(0o555)
    held = {folder: sorted(folder.iterdir()) for folder in folders}
    try:
        yield
        changed = [str(folder) for folder in folders if sorted(folder.iterdir()) != held[folder]]
        assert not changed, f"read-only folders were written: {changed}"
    finally:
        for folder in folders:
            folder.chmod(0o755)


@contextmanager
def _reader(stage: Stage) -> Iterator[list[dict[str, Answer]]]:
    """A process that has opened every copy and begun to read; the list has what it read at last."""
    told: list[dict[str, Answer]] = []
    if not stage.adversity.has_reader:
        yield told
        return
    listing = stage.place / "held.txt"
    listing.write_text("\n".join(map(str, stage.roots.values())))
    reader = start_module("tests.adversary.questions", "--hold", str(listing))
    try:
        assert wait_for_stop(reader.pid, _STOP_SECONDS), reader.stderr.read_text()
        yield told
    finally:
        os.kill(reader.pid, signal.SIGCONT)
        told += _end_of(reader)


def _end_of(reader: Running) -> list[dict[str, Answer]]:
    ended = reader.finish()
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]
