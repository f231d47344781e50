"""Runs the kinds of proofs of a night, the stalest first, and keeps a record that is committed.

    python -m tests.gate.nightly --minutes 60
    python -m tests.gate.nightly --background
    python -m tests.gate.nightly status
    python -m tests.gate.nightly release-check
    python -m tests.gate.nightly proof NAME

The record has one line per finished shard. A shard that was interrupted leaves none, so it is still
the stalest next time. A night in the background runs a clone of the commit at the lowest priority.
Standard library only: no shard can break the tool that records it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from tests.gate import import_graph
from tests.gate.cpu import adopt_orphans, tree_seconds
from tests.gate.shards import Part, Shard, all_proofs, all_shards

CHECKOUT = Path(__file__).parent.parent.parent
RECORD = CHECKOUT / "tests" / "nightly.jsonl"
PROOFS = CHECKOUT / "tests" / "proofs.jsonl"
LOGS = Path(tempfile.gettempdir(), "omnigraph-nightly")
_RESULT_OF_PYTEST = re.compile(r"\d+ (passed|failed|error).* in [\d.]+s.*")
COMMITS_TO_A_RELEASE = 30
"""A release needs every kind green within so many commits that touched what its tests import."""
CPU_SECONDS_OF_A_NIGHT = 6 * 3600


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

    @property
    def is_green(self) -> bool:
        return self.result is Result.GREEN


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
    return newest(line for line in record if line.is_green)


def expected_seconds(shard: Shard, record: Iterable[Line]) -> float:
    """What it took last time; ten minutes for a shard that never ran."""
    line = newest(record).get(shard.name)
    return 600.0 if line is None else line.wall_seconds


def run_for(minutes: float, kind: str | None, path: Path | None = None) -> int:
    """Start shards while the next one should still fit; at least one runs."""
    adopt_orphans()
    deadline = time.monotonic() + minutes * 60
    shards = [shard for shard in all_shards() if kind in (None, shard.name)]
    if not shards:
        return _no_such(kind, all_shards())
    results: list[Line] = []
    for shard in stalest_first(shards, read_record(path)):
        left = deadline - time.monotonic()
        if results and expected_seconds(shard, read_record(path)) > left:
            break
        line = run_shard(shard)
        results.append(line)
        _keep(line, path or RECORD)
    red = [line for line in results if not line.is_green]
    print(f"{len(results) - len(red)} passed, {len(red)} failed")
    return 1 if red else 0


def run_proof(name: str | None) -> int:
    """Run a long proof once; its line goes to a record of its own."""
    adopt_orphans()
    for proof in all_proofs():
        if proof.name == name:
            line = run_shard(proof)
            _keep(line, PROOFS)
            return 0 if line.result is Result.GREEN else 1
    return _no_such(name, all_proofs())


def run_in_background(minutes: float, kind: str | None) -> int:
    """Start a night on a clone of the commit, which writes into the record of this checkout."""
    clone, log = LOGS / "checkout", LOGS / "night.log"
    LOGS.mkdir(exist_ok=True)
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", CHECKOUT, clone], check=True)
    command = [sys.executable, "-m", "tests.gate.nightly", "--minutes", str(minutes)]
    command += [] if kind is None else ["--kind", kind]
    python_path = os.pathsep.join(map(str, (clone / "src", clone)))
    with log.open("wb") as output:
        night = subprocess.Popen(
            ["nice", "-n", "19", *command, "--record", RECORD],
            cwd=clone,
            env={**os.environ, "PYTHONPATH": python_path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    print(f"process {night.pid} runs {current_commit()}; it writes to {log}")
    print(f"stop it:  kill {night.pid}")
    return 0


def _keep(line: Line, path: Path) -> None:
    with path.open("a") as record:
        record.write(to_json(line))
    print(format_line(line), flush=True)


def _no_such(name: str | None, shards: Iterable[Shard]) -> int:
    known = ", ".join(shard.name for shard in shards)
    print(f"there is no {name!r}; there are: {known}", file=sys.stderr)
    return 2


def run_shard(shard: Shard) -> Line:
    commit = current_commit()
    started_at = datetime.now(UTC)
    seed = zlib.crc32(f"{commit} {shard.name} {started_at}".encode())
    part = shard.part(seed)
    log = LOGS / f"{shard.name.replace(' ', '-')}.log"
    LOGS.mkdir(exist_ok=True)
    cpu, wall = tree_seconds(), time.monotonic()
    result = _run_command(part, seed, log, minutes=shard.minutes)
    summary = f"{part.label}: {_summary(log)}"
    return Line(
        at=started_at.isoformat(timespec="seconds"),
        commit=commit,
        shard=shard.name,
        seed=seed,
        result=result,
        cpu_seconds=round(tree_seconds() - cpu),
        wall_seconds=round(time.monotonic() - wall),
        summary=summary if result is Result.GREEN else f"{summary} (see {log.name})",
    )


def _run_command(part: Part, seed: int, log: Path, *, minutes: int) -> Result:
    command = [str(seed) if word == "{seed}" else word for word in part.command]
    environment = {**os.environ, **part.environment, "OMNIGRAPH_SEED": str(seed)}
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
        code = process.wait(minutes * 60)
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


def commits_since(commit: str, files: Iterable[str]) -> int | None:
    """How many commits after this one touched files; None if it is no ancestor, or not clean."""
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
    return int(_git("rev-list", "--count", f"{commit}..HEAD", "--", *files))


def files_of(shard: Shard) -> frozenset[str]:
    """What the tests of a shard import, themselves included."""
    begun = {file for part in shard.parts for word in part.command for file in _files_at(word)}
    return frozenset().union(*map(import_graph.reached_by, begun))


def _files_at(word: str) -> Iterator[str]:
    """The Python files that a word of a command means: a path, a folder or a module."""
    path = word.partition("::")[0].rstrip("/")
    module = word.replace(".", "/")
    for file in import_graph.files():
        if file in (path, f"{module}.py") or file.startswith((f"{path}/", f"{module}/")):
            yield file


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
    shards = all_shards()
    green, last = newest_green(record), newest(record)
    red = [last[s.name] for s in shards if s.name in last and not last[s.name].is_green]
    never = [shard.name for shard in shards if shard.name not in green]
    seconds = sum(last[shard.name].cpu_seconds for shard in shards if shard.name in last)
    print(
        f"{len(shards)} kinds, {len(shards) - len(never)} green once, {len(never)} never, "
        f"{len(red)} red now; a night takes {seconds / 3600:.1f} CPU h, at most "
        f"{CPU_SECONDS_OF_A_NIGHT / 3600:.0f} are allowed\n"
    )
    _print_list("red", map(format_line, red))
    _print_list("never green", never)
    ages = [
        (_age(shard, green[shard.name]), green[shard.name])
        for shard in shards
        if shard.name in green
    ]
    _print_list("green", [f"{age:>4} commits ago  {format_line(line)}" for age, line in ages])
    proofs = newest(read_record(PROOFS)).values()
    _print_list("long proofs", map(format_line, proofs))
    return 0


def _age(shard: Shard, line: Line) -> str:
    behind = commits_since(line.commit, files_of(shard))
    return "?" if behind is None else str(behind)


def check_release() -> int:
    """0 if every kind was green recently enough to release what is checked out, and none is red."""
    record = read_record()
    problems = list(_not_ready(newest_green(record), newest(record)))
    _print_list("not ready for a release", problems)
    print("every kind is green and recent" if not problems else f"{len(problems)} kinds to run")
    return 1 if problems else 0


def _not_ready(green: Mapping[str, Line], last: Mapping[str, Line]) -> Iterator[str]:
    for shard in all_shards():
        line = green.get(shard.name)
        if line is None:
            yield f"{shard.name}: never green"
            continue
        if not last[shard.name].is_green:
            yield f"{shard.name}: red"
            continue
        behind = commits_since(line.commit, files_of(shard))
        if behind is None:
            yield f"{shard.name}: green at {line.commit}, which is not a commit before this one"
        elif behind > COMMITS_TO_A_RELEASE:
            yield f"{shard.name}: green {behind} commits ago, at most {COMMITS_TO_A_RELEASE}"


def _print_list(title: str, lines: Iterable[str]) -> None:
    shown = [f"  {line}" for line in lines]
    if shown:
        print("\n".join((f"{title}:", *shown, "")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    verbs = ["run", "status", "release-check", "proof"]
    parser.add_argument("verb", nargs="?", default="run", choices=verbs)
    parser.add_argument("name", nargs="?", help="the proof to run")
    parser.add_argument("--minutes", type=float, default=360, help="start shards for so long")
    parser.add_argument("--kind", help="run only this kind")
    parser.add_argument("--background", action="store_true", help="run a clone at low priority")
    parser.add_argument("--record", type=Path, default=RECORD, help="the file of the record")
    arguments = parser.parse_args()
    # Ends the shard that runs, too: `finally` does not run when a process is terminated.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    match arguments.verb:
        case "run" if arguments.background:
            return run_in_background(arguments.minutes, arguments.kind)
        case "run":
            return run_for(arguments.minutes, arguments.kind, arguments.record)
        case "status":
            return print_status()
        case "proof":
            return run_proof(arguments.name)
        case _:
            return check_release()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the shard that ran leaves no line")
