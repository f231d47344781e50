"""Messages of commits: what CONTRIBUTING asks for, since the day on which it is checked."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.tidy.sources import HOME

pytestmark = pytest.mark.unit

SINCE = "2026-11-19T14:00:00+00:00"
LONGEST_SUBJECT = 72
LINES_THAT_NEED_A_BODY = 200
"""A change of so many lines of src has a reason that its diff does not show."""
_NOT_IMPERATIVE = re.compile(r"(?!Bring|Embed|Feed|Need|Seed|Speed|String)\w+(ed|ing)\b")
_FIELD, _RECORD = "\x1f", "\x1e"


def problems(subject: str, body: str, lines_of_src: int) -> Iterator[str]:
    if len(subject) > LONGEST_SUBJECT:
        yield f"the subject has {len(subject)} characters"
    if not subject[:1].isupper() or subject.endswith("."):
        yield "the subject begins with a capital letter and has no full stop"
    if _NOT_IMPERATIVE.match(subject):
        yield "the subject is imperative"
    if lines_of_src >= LINES_THAT_NEED_A_BODY and not body.strip():
        yield f"it changes {lines_of_src} lines of src and has no body that says why"


def test_commits_have_the_messages_that_contributing_asks_for() -> None:
    log = subprocess.run(
        [
            *("git", "log", "--no-merges", f"--since={SINCE}", "--numstat", "-M"),
            f"--format={_RECORD}%h{_FIELD}%s{_FIELD}%b{_FIELD}",
        ],
        cwd=HOME,
        capture_output=True,
        text=True,
        check=False,  # a source distribution has no history
    ).stdout

    refused = {}
    for record in log.split(_RECORD)[1:]:
        commit, subject, body, numbers = record.split(_FIELD)
        reasons = list(problems(subject, body, _lines_of_src(numbers)))
        if reasons:
            refused[f"{commit} {subject}"] = reasons

    assert refused == {}


@pytest.mark.parametrize(
    ("subject", "body", "lines_of_src", "refused"),
    [
        ("Refuse a merge into a deleted branch", "", 30, 0),
        ("Refuse a merge into a deleted branch", "", 200, 1),
        ("Refuse a merge into a deleted branch", "Its log is gone.", 200, 0),
        (
            "Refuse a merge into a branch that was deleted while the merge was still at work",
            "",
            1,
            1,
        ),
        ("Refused a merge.", "", 1, 2),
        ("Refusing a merge", "", 1, 1),
        ("Need a key", "", 1, 0),
    ],
)
def test_messages_are_judged(subject: str, body: str, lines_of_src: int, refused: int) -> None:
    assert len(list(problems(subject, body, lines_of_src))) == refused


def _lines_of_src(numbers: str) -> int:
    total = 0
    for line in filter(None, numbers.splitlines()):
        added, removed, path = line.split("\t", 2)
        if path.startswith("src/") and added != "-":
            total += int(added) + int(removed)
    return total
