"""The nightly takes the stalest shard, and its record decides what may be released."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gate import nightly
from tests.gate.nightly import Line, Result, newest_green, read_record, stalest_first
from tests.gate.selection import for_gate, in_shard, parse_shard, sample
from tests.gate.shards import SUITES, Part, Shard, all_shards

pytestmark = pytest.mark.unit

CHECKOUT = Path(__file__).parent.parent.parent


def shard(name: str, *command: str, minutes: int = 40) -> Shard:
    return Shard(name=name, parts=(Part(label="all", command=command),), minutes=minutes)


TRUE = shard("true", "true")
FALSE = shard("false", "bash", "-c", "echo what went wrong; exit 3")
ENDLESS = shard("endless", "sleep", "600", minutes=0)
GREEN = Line(
    at="2026-01-01T00:00:00+00:00",
    commit="0" * 12,
    shard=TRUE.name,
    seed=1,
    result=Result.GREEN,
    cpu_seconds=1,
    wall_seconds=1,
    summary="",
)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(nightly, "RECORD", tmp_path / "record.jsonl")
    monkeypatch.setattr(nightly, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(nightly, "adopt_orphans", lambda: None)
    monkeypatch.setattr(nightly, "current_commit", lambda: "0" * 12)
    return tmp_path / "record.jsonl"


def test_shards_that_never_ran_come_first_and_then_the_stalest() -> None:
    shards = [replace(TRUE, name=name) for name in ("a", "b", "c", "d")]
    lines = [
        replace(GREEN, shard="a", at="2026-01-03"),
        replace(GREEN, shard="b", at="2026-01-01"),
        replace(GREEN, shard="b", at="2026-01-02"),
    ]

    assert [shard.name for shard in stalest_first(shards, lines)] == ["c", "d", "b", "a"]


def test_a_run_records_what_each_shard_did(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "all_shards", lambda: [TRUE, FALSE, ENDLESS])
    monkeypatch.setattr(nightly, "expected_seconds", lambda *_: 0.0)

    code = nightly.run_for(5, None)

    lines = read_record(record)
    assert code == 1
    assert [(line.shard, line.result) for line in lines] == [
        (TRUE.name, Result.GREEN),
        (FALSE.name, Result.RED),
        (ENDLESS.name, Result.TIMEOUT),
    ]
    assert lines[1].summary.startswith("all: what went wrong")
    assert len({line.seed for line in lines}) == 3


def test_a_line_has_the_result_of_pytest_although_something_is_printed_after_it(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = "== 1 failed, 2 passed in 1.20s ==\\nwhat a library says at exit"
    noisy = shard("noisy", "printf", printed)
    monkeypatch.setattr(nightly, "all_shards", lambda: [noisy])

    nightly.run_for(5, None)

    assert [line.summary for line in read_record(record)] == ["all: 1 failed, 2 passed in 1.20s"]


def test_a_run_starts_nothing_that_does_not_fit(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "all_shards", lambda: [TRUE, replace(TRUE, name="second")])

    nightly.run_for(5, None)

    assert [line.shard for line in read_record(record)] == [TRUE.name]


def test_a_release_needs_every_shard_green_and_recent(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    behind = {"old": 31, "recent": 30, "elsewhere": None}
    shards = [replace(TRUE, name=name) for name in ("never", *behind, "red")]
    behind["red"] = 0
    monkeypatch.setattr(nightly, "all_shards", lambda: shards)
    monkeypatch.setattr(nightly, "commits_since", lambda commit, _: behind[commit])
    lines = [replace(GREEN, shard=name, commit=name) for name in behind]
    lines.append(replace(lines[-1], result=Result.RED, at="2026-01-02"))
    record.write_text("".join(nightly.to_json(line) for line in lines))

    code = nightly.check_release()

    assert code == 1
    assert capsys.readouterr().out.splitlines()[1:5] == [
        "  never: never green",
        "  old: green 31 commits ago, at most 30",
        "  elsewhere: green at elsewhere, which is not a commit before this one",
        "  red: red",
    ]


def test_a_commit_with_changes_on_top_proves_no_release() -> None:
    assert nightly.commits_since("HEAD", ["src"]) == 0
    assert nightly.commits_since("0123456789ab-dirty", ["src"]) is None


def test_the_age_of_a_shard_counts_what_its_tests_import() -> None:
    schemas = shard("schemas", "python", "-m", "tests.schema.fuzz", "{seed}")

    files = nightly.files_of(schemas)

    assert {"tests/schema/fuzz.py", "src/omnigraph_lake/schema/parser.py"} <= files
    assert "src/omnigraph_lake/spark/sink.py" not in files
    assert all(nightly.files_of(each) for each in all_shards())


def test_the_seed_draws_the_part_of_a_shard() -> None:
    parts = tuple(Part(label=str(number), command=("true",)) for number in range(3))
    cut = Shard(name="cut", parts=parts)

    assert {cut.part(seed).label for seed in range(9)} == {"0", "1", "2"}


def test_the_committed_record_is_readable_and_names_shards() -> None:
    known = {shard.name for shard in all_shards()}

    assert {*newest_green(read_record())} <= known


def test_every_test_is_in_a_suite_of_the_nightly() -> None:
    folders = {
        (CHECKOUT / argument)
        for _, arguments in SUITES.values()
        for argument in arguments
        if not argument.startswith("-")
    }

    outside = [
        str(path.relative_to(CHECKOUT))
        for path in CHECKOUT.glob("tests/**/test_*.py")
        if not folders & {path, *path.parents}
    ]

    assert outside == []


def test_names_of_shards_are_unique() -> None:
    names = [shard.name for shard in all_shards()]

    assert len(names) == len(set(names))


def test_the_shards_of_a_suite_have_every_test_once() -> None:
    tests = [f"tests/a.py::test[{number}]" for number in range(100)]

    shares = [[test for test in tests if in_shard(test, number, 3)] for number in range(3)]

    assert sorted(itertools.chain.from_iterable(shares)) == sorted(tests)
    assert all(shares)


@pytest.mark.parametrize("text", ["3/3", "-1/3", "1/0"])
def test_a_shard_outside_of_its_count_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="expected N/COUNT"):
        parse_shard(text)


@pytest.mark.parametrize(("nightly_run", "cases"), [("", [0, 2]), ("1", [0, 1, 2])])
def test_cases_that_are_not_for_the_gate_are_left_to_the_nightly(
    nightly_run: str, cases: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_NIGHTLY", nightly_run)

    assert for_gate(range(3), lambda number: number % 2 == 0) == cases


def test_a_sample_changes_with_the_commit_and_reaches_every_case() -> None:
    cases = [f"test_it[{number}]" for number in range(30)]

    samples = [frozenset(sample(cases, 3, seed)) for seed in range(40)]

    assert {len(picked) for picked in samples} == {10}
    assert len(set(samples)) > 30
    assert frozenset().union(*samples) == set(cases)
    assert sample(cases[:2], 3, 1) == sample(reversed(cases[:2]), 3, 1)
    assert len(sample(cases[:2], 3, 1)) == 1
