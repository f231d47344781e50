"""A graph with everything in it that can be damaged, and the questions that are asked of it.

Branches, tags, deleted and updated rows, blobs, vectors, text, every kind of index, commits that
have left the manifest. What the undamaged graph answers is what a damaged one may answer.

    python -m tests.damage.world ROOT VERIFY     prints an answer or an error per question, as JSON
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa

import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.validation import check as deep_check

SCHEMA = """
node Person { email: String @key  name: String @index  age: I32 }
node Doc { slug: String @key  title: String @index  look: Vector(4) @index  body: Blob? }
edge Knows: Person -> Person { since: I32 }
"""
PEOPLE = 120_000
KEYS_ASKED = 40
FIND_PERSON = (
    "query q($k: String) { match { $p: Person { email: $k } } return { $p.name, $p.age } }"
)
FIND_NAME = "query q($n: String) { match { $p: Person { name: $n } } return { $p.email } }"
FIND_FRIENDS = (
    "query q($k: String) { match { $p: Person { email: $k } $p knows $q } return { $q.email } }"
)
FIND_TEXT = 'query q() { match { $d: Doc  search($d.title, "word7") } return { $d.slug } }'


def build(root: str, people: int = PEOPLE) -> None:
    graph = og.init(root, schema=SCHEMA)
    persons = [
        {"email": f"p{n}@x", "name": f"name {n % 997}", "age": n % 90} for n in range(people)
    ]
    documents = [
        {
            "slug": f"d{n}",
            "title": f"word{n % 50} of text",
            "look": [n % 7, n % 5, n % 3, 1],
            "body": b"%d" % n * 3000,
        }
        for n in range(60)
    ]
    friends = [{"src": f"p{n}@x", "dst": f"p{n * 7 % people}@x", "since": n} for n in range(2000)]
    graph.write({"Person": persons, "Doc": documents, "Knows": friends})
    graph.maintenance.optimize()
    graph.tags.create("early")
    graph.delete({"Person": [f"p{n}@x" for n in range(2100, 2130)]})
    changed = [{"email": f"p{n}@x", "name": "changed", "age": 1} for n in range(200, 230)]
    graph.write({"Person": changed}, mode="merge")
    graph.branches.create("dev")
    new = [{"email": f"new{n}@x", "name": "new", "age": 2} for n in range(50)]
    graph.checkout("dev").write({"Person": new})
    for n in range(4):
        late = {"slug": f"late{n}", "title": "late text", "look": [1, 2, 3, 4]}
        graph.write({"Doc": [late]})
    graph.branches.create("gone")
    graph.branches.delete("gone")


def questions(graph: Graph) -> Mapping[str, Callable[[], object]]:
    """Each of them reads something else, in the way users read it."""

    def by_key(n: int) -> Callable[[], object]:
        return lambda: graph.query(FIND_PERSON, k=f"p{n}@x").to_pylist()

    lookups = {f"key {n}": by_key(n) for n in range(0, 10_000, 10_000 // KEYS_ASKED)}
    return {
        "people": lambda: graph.scan("Person").read_all(),
        "documents": lambda: graph.scan("Doc", columns=["id", "slug", "title"]).read_all(),
        "friends": lambda: graph.scan("Knows").read_all(),
        "dev": lambda: graph.checkout("dev").scan("Person").read_all(),
        "early": lambda: graph.at("early").scan("Person").read_all(),
        "name": lambda: graph.query(FIND_NAME, n="name 5").to_pylist(),
        "friend": lambda: graph.query(FIND_FRIENDS, k="p9@x").to_pylist(),
        "text": lambda: graph.query(FIND_TEXT).to_pylist(),
        "branches": lambda: [str(branch) for branch in graph.branches.list()],
        "tags": lambda: [str(tag) for tag in graph.tags.list()],
        "commits": lambda: [(c.commit_id, c.actor, c.created_at) for c in graph.commits()],
        "recoveries": lambda: len(graph.maintenance.recoveries()),
        "schema": lambda: graph.schema.text,
        "counts": lambda: [(t.table_key, t.rows) for t in graph.maintenance.status().tables],
        **lookups,
    }


def ask(root: str, verify: og.Verify) -> dict[str, str]:
    """The digest of each answer; `!Error` where there was none."""
    try:
        graph = og.open(root, read_only=True, verify=verify)
    except OmnigraphError as error:
        return {"open": f"!{type(error).__name__}: {error}"}
    answers: dict[str, str] = {}
    for name, question in questions(graph).items():
        try:
            answers[name] = digest(question())
        except OmnigraphError as error:
            answers[name] = f"!{type(error).__name__}: {error}"
    return answers


def digest(answer: object) -> str:
    """The same for the same rows, in whatever order they came."""
    if isinstance(answer, pa.Table):
        sink = pa.BufferOutputStream()
        ordered = answer.sort_by("id").combine_chunks()
        with pa.ipc.new_stream(sink, ordered.schema) as stream:
            stream.write_table(ordered)
        content = sink.getvalue().to_pybytes()
    else:
        rows = sorted(map(repr, answer)) if isinstance(answer, list) else answer
        content = repr(rows).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def check(root: str) -> str:
    """What a deep check says that is made later: `ok`, or what it found."""
    deep_check.UNFINISHED_AFTER = timedelta(0)  # type: ignore[misc]
    try:
        report = og.open(root, read_only=True).maintenance.check(deep=True)
    except OmnigraphError as error:
        return f"!{type(error).__name__}: {error}"
    return "ok" if report.ok else "; ".join(finding.message for finding in report.findings)[:500]


def main(root: str, *levels: Any) -> None:
    answers = {level: ask(root, level) for level in levels if level != "check"}
    print(json.dumps({**answers, "check": check(root)} if "check" in levels else answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
