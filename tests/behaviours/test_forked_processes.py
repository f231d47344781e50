"""After a fork: a process whose parent had used a graph is told at once; a spawned one works."""

from __future__ import annotations

import json

import pytest

from tests.behaviours.histories import SCHEMA
from tests.forking.programs import run_code

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.local_disk("about processes, not about where the files are"),
]

VERBS = """
    at: graph.at("main")
    baseline: list(graph.baseline())
    branches: graph.branches.list()
    catalog: graph.schema.catalog
    changes: list(graph.changes(start="beginning"))
    check: graph.maintenance.check()
    commits: graph.commits()
    diff: graph.diff("main")
    edges: graph.scan("Knows").read_all()
    explain: graph.explain(ASK, physical=True)
    export: graph.export(root + ".jsonl")
    nodes: graph.scan("Person").read_all()
    outcome: graph.outcome("01J00000000000000000000000")
    past nodes: past.scan("Person").read_all()
    partings: graph.branches.diverged()
    query: graph.query(ASK).to_pylist()
    read of a diff: diff.rows("node:Person").read_all()
    read of a feed: next(iter(feed))
    recoveries: graph.maintenance.recoveries()
    snapshot: graph.snapshot()
    status: graph.maintenance.status()
    tags: graph.tags.list()
    apply_schema: graph.schema.apply(SCHEMA)
    cleanup: graph.maintenance.cleanup(keep_versions=3)
    create_branch: graph.branches.create("dev")
    delete: graph.delete({"Person": ["ann"]})
    delete_branch: graph.branches.delete("dev")
    delete_tag: graph.tags.delete("v1")
    load: graph.load({"Person": [{"name": "eve"}]})
    merge: graph.merge("main", into="main")
    mutate: graph.mutate('query i() { insert Person { name: "eve" } }')
    optimize: graph.maintenance.optimize()
    recover: graph.maintenance.recover()
    repair: graph.maintenance.repair()
    scrub: graph.maintenance.scrub()
    tag: graph.tags.create("v1")
    write: graph.write({"Person": [{"name": "eve"}]})
    open: og.open(root)
    open to read: og.open(root, read_only=True)
    init: og.init(root + "-2", schema=SCHEMA)
    rebuild_manifest: og.rebuild_manifest(root)
"""

PROGRAM = """
import json, os, signal, sys, warnings
import omnigraph_lake as og
root, SCHEMA, verbs = sys.argv[1:]
ASK = "query all() { match { $p: Person } return { $p.name } }"
graph = og.init(root, schema=SCHEMA)
graph.write({"Person": [{"name": "ann"}]})
past = graph.at("main")
feed = graph.changes(start="beginning")
diff = graph.diff(graph.commits()[-1].commit_id)
warnings.simplefilter("ignore")
pid = os.fork()
if not pid:
    signal.alarm(30)
    for line in verbs.strip().splitlines():
        verb, _, code = line.strip().partition(": ")
        try:
            eval(code)
            said = "a result"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        print(json.dumps({"verb": verb, "said": said, "root": graph.root}), flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
print(json.dumps({"child": os.waitstatus_to_exitcode(status)}))
graph.write({"Person": [{"name": "bob"}]})
print(json.dumps({"parent": sorted(graph.scan("Person").read_all()["name"].to_pylist())}))
"""

SPAWNED = """
import multiprocessing, sys
import omnigraph_lake as og
from tests.behaviours.test_forked_processes import add

if __name__ == "__main__":
    root, SCHEMA = sys.argv[1:]
    og.init(root, schema=SCHEMA).write({"Person": [{"name": "ann"}]})
    process = multiprocessing.get_context("spawn").Process(target=add, args=(root,))
    process.start()
    process.join()
    print(sorted(og.open(root).scan("Person").read_all()["name"].to_pylist()))
"""


def add(root: str) -> None:
    """What the spawned process runs."""
    import omnigraph_lake as og

    og.open(root).write({"Person": [{"name": "bob"}]})


def test_every_verb_fails_at_once_in_a_fork_of_a_process_that_used_a_graph(graph_root: str) -> None:
    finished = run_code(PROGRAM, graph_root, SCHEMA, VERBS)

    said = [json.loads(line) for line in finished.stdout.splitlines()]
    verbs = {each["verb"]: each["said"] for each in said if "verb" in each}
    assert finished.returncode == 0, finished.stderr
    assert len(verbs) == len(VERBS.strip().splitlines())
    assert {
        verb: message for verb, message in verbs.items() if "ForkedProcessError: " not in message
    } == {}
    assert all("nothing was written" in message for message in verbs.values())
    assert all("`spawn`" in message for message in verbs.values())
    assert said[-2:] == [{"child": 0}, {"parent": ["ann", "bob"]}]


@pytest.mark.nightly("starts two interpreters; tests/guards has it for Lance alone")
def test_a_spawned_process_may_use_a_graph_that_its_parent_uses(graph_root: str) -> None:
    finished = run_code(SPAWNED, graph_root, SCHEMA, new_process=True)

    assert finished.stdout == "['ann', 'bob']\n", finished.stderr
