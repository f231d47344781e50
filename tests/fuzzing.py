"""Throwing texts at a language: whatever escapes, or takes too long, is a failure."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.corpus.lines import Line, Suite

_FILES = {
    Suite.QUERY_TEXT: "tests/corpus/query_texts.jsonl",
    Suite.SCHEMA_TEXT: "tests/corpus/schema_texts.jsonl",
}
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    suite: Suite
    text: str
    reason: str

    def __str__(self) -> str:
        line = Line(suite=self.suite, found=self.reason, case={"text": self.text})
        keep = f"to keep it, append this to {_FILES[self.suite]}:"
        return "\n".join([self.reason, f"  {self.text[:600]!r}", keep, line.encoded()])


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzReport:
    count: int
    without_errors: int
    slowest_seconds: float
    failures: tuple[Failure, ...]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"inputs {self.count}, without errors {self.without_errors}",
                *map(str, self.failures[:_SHOWN]),
                f"slowest {self.slowest_seconds:.3f} s, failures {len(self.failures)}",
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """What texts are made for a language, and what is done with each."""

    suite: Suite
    generators: Sequence[Callable[[random.Random], str]]
    exercise: Callable[[str], bool]
    """Whether a text has no errors."""
    seconds_max: float
    """Of processor time, so that a busy machine does not count."""


def fuzz(language: Language, count: int, seed: int | str) -> FuzzReport:
    """Exercise so many generated texts."""
    generator = random.Random(seed)
    failures: list[Failure] = []
    slowest, clean = 0.0, 0

    def failed(text: str, reason: str) -> None:
        failures.append(Failure(suite=language.suite, text=text, reason=reason))

    for _ in range(count):
        text = generator.choice(language.generators)(generator)
        started = time.process_time()
        try:
            clean += language.exercise(text)
        except Exception as error:  # noqa: BLE001 - whatever escapes is what we are looking for
            failed(text, repr(error)[:300])
        elapsed = time.process_time() - started
        slowest = max(slowest, elapsed)
        if elapsed > language.seconds_max:
            failed(text, f"took {elapsed:.2f} s")
    return FuzzReport(
        count=count, without_errors=clean, slowest_seconds=slowest, failures=tuple(failures)
    )


def main(language: Language) -> int:
    """The command of a language: so many texts from a seed."""
    parser = argparse.ArgumentParser(description=f"random texts: {language.suite}")
    parser.add_argument("count", type=int, nargs="?", default=20_000)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    options = parser.parse_args()
    report = fuzz(language, options.count, options.seed)
    print(report)
    return 1 if report.failures else 0
