"""Runs shards, the stalest first, and keeps a record of them that is committed.

    python -m tests.gate.nightly --minutes 60
    python -m tests.gate.nightly status
    python -m tests.gate.nightly release-check

The record has one line per finished shard. A shard that was interrupted leaves none, so it is still
the stalest next time. Standard library only: no shard can break the tool that records it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from tests.gate.cpu import adopt_orphans, tree_seconds
from tests.gate.shards import Shard, all_shards

CHECKOUT = Path(__file__).parent.parent.parent
RECORD = CHECKOUT / "tests" / "nightly.jsonl"
LOGS = Path(tempfile.gettempdir(), "omnigraph-nightly")
_RESULT_OF_PYTEST = re.compile(r"\d+ (passed|failed|error).* in [\d.]+s.*")
COMMITS_TO_A_RELEASE = 30
"""A release needs every shard green within so many commits that touched src."""


class Result(StrEnum):
    """How a shard ended."""

    GREEN = "green"
    RED = "red"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One finished shard."""

    at: str
    commit: str
    shard: str
    seed: int
    result: Result
    cpu_seconds: int
    wall_seconds: int
    summary: str


def read_record(path: Path | None = None) -> list[Line]:
    path = path or RECORD
    if not path.exists():
        return []
    lines = map(json.loads, path.read_text().splitlines())
    record = [Line(**{**line, "result": Result(line["result"])}) for line in lines]
    return sorted(record, key=lambda line: line.at)  # merges of two records may mix them


def to_json(line: Line) -> str:
    return json.dumps(asdict(line)) + "\n"


def stalest_first(shards: Sequence[Shard], record: Iterable[Line]) -> list[Shard]:
    """Never run first, in their order; then by the time of their last line, oldest first."""
    last_run = {line.shard: line.at for line in record}
    return sorted(shards, key=lambda shard: last_run.get(shard.name, ""))


def newest(record: Iterable[Line]) -> dict[str, Line]:
    return {line.shard: line for line in record}


def newest_green(record: Iterable[Line]) -> dict[str, Line]:
    return newest(line for line in record if line.result is Result.GREEN)


def expected_seconds(shard: Shard, record: Iterable[Line]) -> float:
    """What it took last time; ten minutes for a shard that never ran."""
    line = newest(record).get(shard.name)
    return 600.0 if line is None else line.wall_seconds


def run_for(minutes: float, family: str | None) -> int:
    """Start shards while the next one should still fit; at least one runs."""
    adopt_orphans()
    deadline = time.monotonic() + minutes * 60
    shards = [shard for shard in all_shards() if family in (None, shard.family)]
    if not shards:
        families = ", ".join(dict.fromkeys(shard.family for shard in all_shards()))
        print(f"no shard of family {family!r}; there are: {families}", file=sys.stderr)
        return 2
    results: list[Line] = []
    for shard in stalest_first(shards, read_record()):
        left = deadline - time.monotonic()
        if results and expected_seconds(shard, read_record()) > left:
            break
        line = run_shard(shard)
        results.append(line)
        with RECORD.open("a") as record:
            record.write(to_json(line))
        print(format_line(line), flush=True)
    red = [line for line in results if line.result is not Result.GREEN]
    print(f"{len(results) - len(red)} passed, {len(red)} failed")
    return 1 if red else 0


def run_shard(shard: Shard) -> Line:
    commit = current_commit()
    started_at = datetime.now(UTC)
    seed = zlib.crc32(f"{commit} {shard.name} {started_at}".encode())
    log = LOGS / f"{shard.name.replace(' ', '-').replace('/', '-of-')}.log"
    LOGS.mkdir(exist_ok=True)
    cpu, wall = tree_seconds(), time.monotonic()
    result = _run_command(shard, seed, log)
    return Line(
        at=started_at.isoformat(timespec="seconds"),
        commit=commit,
        shard=shard.name,
        seed=seed,
        result=result,
        cpu_seconds=round(tree_seconds() - cpu),
        wall_seconds=round(time.monotonic() - wall),
        summary=_summary(log) if result is Result.GREEN else f"{_summary(log)} (see {log.name})",
    )


def _run_command(shard: Shard, seed: int, log: Path) -> Result:
    filled = {"{seed}": str(seed), "{costs}": str(log.with_suffix(".costs.json"))}
    command = [filled.get(part, part) for part in shard.command]
    environment = {**os.environ, **shard.environment, "OMNIGRAPH_SEED": str(seed)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = process.wait(shard.minutes * 60)
    except subprocess.TimeoutExpired:
        return Result.TIMEOUT
    finally:
        _end_all(process)
    return Result.GREEN if code == 0 else Result.RED


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Nothing of a shard is left running, and all it used is counted."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while True:
        try:
            reaped, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not reaped:
            return


def _summary(log: Path) -> str:
    """The last line that says something, as the command printed it: that of pytest, if it ran.

    Libraries may complain about leaks after it.
    """
    lines = [line.strip(" =") for line in log.read_text(errors="replace").splitlines()]
    spoken = [line for line in lines if line]
    results = [line for line in spoken if _RESULT_OF_PYTEST.fullmatch(line)]
    return (results or spoken or [""])[-1][:300]


def current_commit() -> str:
    """The commit that is checked out; marked when files differ from it."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", f":!{RECORD.relative_to(CHECKOUT)}")
    return f"{commit}-dirty" if changed else commit


def source_commits_since(commit: str) -> int | None:
    """How many commits touched src after this one; None if it is no ancestor, or not clean."""
    if commit.endswith("-dirty"):
        return None
    known = subprocess.run(
        ["git", "merge-base", "--is-ancestor", commit, "HEAD"],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
    )
    if known.returncode:
        return None
    return int(_git("rev-list", "--count", f"{commit}..HEAD", "--", "src"))


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=CHECKOUT, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def format_line(line: Line) -> str:
    return (
        f"{line.at}  {line.commit:<18} {line.result:<8}{line.shard:<24}"
        f"{line.cpu_seconds:>6} CPU s {line.wall_seconds:>6} s  {line.summary}"
    )


def print_status() -> int:
    record = read_record()
    shards = [shard.name for shard in all_shards()]
    green, last = newest_green(record), newest(record)
    never = [name for name in shards if name not in green]
    red = [last[name] for name in shards if name in last and last[name].result is not Result.GREEN]
    aged = sorted((green[name] for name in shards if name in green), key=lambda line: line.at)
    print(f"{len(shards)} shards, {len(aged)} green once, {len(never)} never, {len(red)} red now\n")
    _print_list("red", [format_line(line) for line in red])
    _print_list("never green", _by_family(never))
    _print_list("oldest green", [format_line(line) for line in aged[:10]])
    return 0


def check_release() -> int:
    """0 if every shard was green recently enough to release what is checked out."""
    green = newest_green(read_record())
    problems = list(_too_old(green))
    _print_list("not ready for a release", problems)
    print("all shards are green and recent" if not problems else f"{len(problems)} shards to run")
    return 1 if problems else 0


def _too_old(green: Mapping[str, Line]) -> Iterable[str]:
    for shard in all_shards():
        line = green.get(shard.name)
        if line is None:
            yield f"{shard.name}: never green"
            continue
        behind = source_commits_since(line.commit)
        if behind is None:
            yield f"{shard.name}: green at {line.commit}, which is not a commit before this one"
        elif behind > COMMITS_TO_A_RELEASE:
            yield f"{shard.name}: green {behind} source commits ago, at most {COMMITS_TO_A_RELEASE}"


def _by_family(names: Sequence[str]) -> list[str]:
    families: dict[str, list[str]] = {}
    for name in names:
        family, _, number = name.partition(" ")
        families.setdefault(family, []).append(number)
    return [f"{family}: {', '.join(numbers)}" for family, numbers in families.items()]


def _print_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        print(f"{title}:")
        for line in lines:
            print(f"  {line}")
        print()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument(
        "verb", nargs="?", default="run", choices=["run", "status", "release-check"]
    )
    parser.add_argument("--minutes", type=float, default=60, help="start shards for so long")
    parser.add_argument("--family", help="run only shards of this family")
    arguments = parser.parse_args()
    # Ends the shard that runs, too: `finally` does not run when a process is terminated.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    match arguments.verb:
        case "run":
            return run_for(arguments.minutes, arguments.family)
        case "status":
            return print_status()
        case _:
            return check_release()


if __name__ == "__main__":
    sys.exit(main())
