"""CPU of commits, queries and loads in this checkout and in another one: `just bench compare DIR`.

Both run in turns, each in processes of its own, so that a busy machine slows them alike. Prints the
medians of the rounds and their ratio. The programs use only calls that both checkouts have.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent.parent
SCHEMA: Final = """
node Person { name: String @key  age: I32  city: String @index }
edge Follows: Person -> Person { since: I32 }
"""
PREPARE: Final = """
import json, random, sys
import omnigraph_lake as og
folder, persons, follows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(7)
with open(f"{folder}/rows.jsonl", "w") as lines:
    for n in range(persons):
        row = {"name": f"p{n}", "age": n % 90, "city": f"c{n % 500}"}
        lines.write(json.dumps({"type": "Person", "data": row}) + "\\n")
    for n in range(follows):
        ends = {"src": f"p{draw.randrange(persons)}", "dst": f"p{draw.randrange(persons)}"}
        row = {"edge": "Follows", "from": ends["src"], "to": ends["dst"], "data": {"since": n % 30}}
        lines.write(json.dumps(row) + "\\n")
graph = og.init(f"{folder}/graph", schema=sys.argv[4])
graph.load(f"{folder}/rows.jsonl")
"""
MEASURE: Final = """
import json, os, shutil, sys, time
import omnigraph_lake as og
folder, task, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
place = f"{folder}/{os.getpid()}"
QUERIES = (
    'query q() { match { $a: Person { name: "p7" }  $a follows{1,2} $b } return { count($b) } }',
    'query q() { match { $a: Person  $a.city = "c3" } return { $a.name, $a.age } }',
    'query q() { match { $a: Person  $a follows $b } return { $a.name, count($b) as n } '
    'order { n desc, $a.name } limit 5 }',
)
if task == "commit":
    graph = og.init(place, schema=sys.argv[4])
    def run(n):
        graph.write({"Person": [{"name": f"p{n}", "age": 1, "city": "c"}]})
elif task == "query":
    graph = og.open(f"{folder}/graph")
    def run(n):
        graph.query(QUERIES[n % len(QUERIES)]).to_pylist()
else:
    def run(n):
        og.init(f"{place}/{n}", schema=sys.argv[4]).load(f"{folder}/rows.jsonl")
run(10**6)
started = time.process_time()
for n in range(count):
    run(n)
print(json.dumps((time.process_time() - started) / count))
shutil.rmtree(place, ignore_errors=True)
"""
COUNTS: Final = {"commit": 30, "query": 15, "load": 1}


def main() -> None:
    options = _options()
    checkouts = {"other": Path(options.other), "this": HERE}
    taken: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as scratch:
        folders = {name: Path(scratch, name) for name in checkouts}
        for name, folder in folders.items():
            folder.mkdir()
            _run(checkouts[name], PREPARE, folder, options.persons, options.follows, SCHEMA)
        for _ in range(options.rounds):
            for task, count in COUNTS.items():
                for name, checkout in checkouts.items():
                    seconds = _run(checkout, MEASURE, folders[name], task, count, SCHEMA)
                    taken.setdefault((task, name), []).append(float(json.loads(seconds)))
    print(f"CPU ms of one, medians of {options.rounds}")
    for task in COUNTS:
        other, this = (1000 * statistics.median(taken[task, name]) for name in checkouts)
        print(f"{task:<8} other {other:9.2f}  this {this:9.2f}  ratio {this / other:.3f}")


def _run(checkout: Path, program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", help="the other checkout")
    parser.add_argument("--persons", type=int, default=20_000)
    parser.add_argument("--follows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
