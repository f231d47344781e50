"""Queries and mutations at the command line."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.cli.commands import answer, run
from tests.forking.programs import interruptible
from tests.forking.zygote import COMMAND
from tests.stores import root_at

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { email: String @key  name: String  age: I32?  tags: [String]? }
edge Knows: Person -> Person
"""
QUERIES = """
query older($least: I32, $names: [String]?) @description("People of some age")
{
    match { $p: Person  $p.age >= $least }
    return { $p.name as name, $p.age as age }
    order { name }
}

query count_all() { match { $p: Person } return { count(*) as n } }
"""
MUTATIONS = """
query hire($email: String, $name: String) { insert Person { email: $email, name: $name } }
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return graph_of_two(graph_root)


@pytest.fixture(scope="module")
def read_only_graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """The same graph, made once for the tests that change nothing."""
    return graph_of_two(root_at(tmp_path_factory.mktemp("read-only") / "graph"))


def graph_of_two(root: str) -> Graph:
    graph = og.init(root, schema=SCHEMA)
    graph.write(
        {
            "Person": [
                {"email": "ann@x", "name": "Ann", "age": 30, "tags": ["a"]},
                {"email": "bob@x", "name": "Bob", "age": 20},
            ]
        }
    )
    return graph


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "people.gq").write_text(QUERIES)
    (folder / "changes.gq").write_text(MUTATIONS)
    return folder


def test_a_query_of_a_file_prints_a_table(graph: Graph, folder: Path) -> None:
    done = run(
        "query", graph.root, str(folder / "people.gq"), "--name", "older", "--param", "least=25"
    )

    assert done.returncode == 0, done.stderr
    head, _, row = done.stdout.splitlines()
    assert head.split() == ["name", "age"]
    assert row.split() == ["Ann", "30"]
    assert done.stderr == "1 row\n"


def test_the_json_object_says_what_was_read(graph: Graph, folder: Path) -> None:
    file = str(folder / "people.gq")

    found = answer("query", graph.root, file, "--name", "older", "--params", '{"least": 0}')

    assert found == {
        "query": "older",
        "branch": "main",
        "commit_id": graph.snapshot().commit_id,
        "columns": [{"name": "name", "type": "String"}, {"name": "age", "type": "I32?"}],
        "rows": [{"name": "Ann", "age": 30}, {"name": "Bob", "age": 20}],
        "row_count": 2,
    }


def test_every_format_has_the_same_rows(graph: Graph, folder: Path) -> None:
    ask = ("query", graph.root, str(folder / "people.gq"), "--name", "older", "--param", "least=0")
    rows = [{"name": "Ann", "age": 30}, {"name": "Bob", "age": 20}]

    lines = run(*ask, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(each) for each in lines] == rows
    table = list(csv.DictReader(io.StringIO(run(*ask, "--format", "csv").stdout)))
    assert table == [{"name": each["name"], "age": str(each["age"])} for each in rows]
    stream = run(*ask, "--format", "arrow").content
    assert pa.ipc.open_stream(stream).read_all().to_pylist() == rows
    refused = run(*ask, "--format", "xml")
    assert refused.returncode == 5
    assert 'expected "table"' in refused.stderr


def test_the_text_comes_from_an_option_or_from_stdin(graph: Graph) -> None:
    text = "query n() { match { $p: Person } return { count(*) as n } }"

    assert answer("query", graph.root, "-e", text)["rows"] == [{"n": 2}]
    assert answer("query", graph.root, text)["rows"] == [{"n": 2}]
    piped = run("query", graph.root, "-", "--format", "jsonl", stdin=text)
    assert json.loads(piped.stdout) == {"n": 2}
    assert run("query", graph.root, "x.gq", "-e", text).returncode == 2


def test_sql_in_place_of_a_file_is_refused_as_sql(read_only_graph: Graph) -> None:
    refused = run("query", read_only_graph.root, "select name from Person")
    missing = run("query", read_only_graph.root, "select.txt")

    assert (refused.returncode, missing.returncode) == (5, 5)
    assert "SQL and Cypher are not understood: see docs/how-to/from-sql.md" in refused.stderr
    assert "cannot read select.txt" in missing.stderr


def test_a_text_without_a_name_is_asked_and_takes_its_values_as_they_are_written(
    graph: Graph,
) -> None:
    text = "match { $p: Person  $p.age >= $least and $p.name != $other } return { $p.name as name }"
    values = ("--param", "least=25", "--param", "other=Bob")

    assert answer("query", graph.root, text, *values)["rows"] == [{"name": "Ann"}]
    given = ("--params", '{"least": 25, "other": "007"}', "--explain")
    assert answer("query", graph.root, text, *given)["query"] == "query"
    mistyped = run("query", graph.root, text, "--param", "least=x", "--param", "other=007")
    assert mistyped.returncode == 5
    assert "no meaning for I32 and String" in mistyped.stderr
    change = 'insert Person { email: $email, name: "Cy", tags: $tags }'
    tagged = ("--param", "email=cy@x", "--param", 'tags=["a", "b"]')
    assert answer("mutate", graph.root, "-e", change, *tagged)["query"] == "query"
    assert graph.query('match { $p: Person { name: "Cy" } } return { $p.tags }').scalar() == [
        "a",
        "b",
    ]


def test_stored_queries_are_listed_and_run_by_name(graph: Graph, folder: Path) -> None:
    shown = run("queries", graph.root, str(folder)).stdout
    assert "query older($least: I32, $names: [String]?)\n    People of some age" in shown
    assert "returns name: String, age: I32?" in shown
    assert "mutation hire($email: String, $name: String)" in shown
    listed = answer("queries", graph.root, str(folder))["queries"]
    assert [each["name"] for each in listed] == ["count_all", "hire", "older"]
    assert listed[0]["reads"] == ["node:Person"]

    stored = ("--queries", str(folder), "--name")
    assert answer("query", graph.root, *stored, "count_all")["rows"] == [{"n": 2}]
    assert run("query", graph.root, *stored, "count").returncode == 3
    assert run("query", graph.root, "--name", "count_all").returncode == 2


@pytest.mark.parametrize(
    ("declared", "given", "found"),
    [
        ("$v: String", "v=30", "30"),
        ("$v: String", "v=a=b", "a=b"),
        ("$v: I64", "v=-9223372036854775808", -(2**63)),
        ("$v: U64", "v=18446744073709551615", 2**64 - 1),
        ("$v: F64", "v=1.5", 1.5),
        ("$v: Bool", "v=true", True),
        ("$v: Date", "v=2024-05-31", "2024-05-31"),
        ("$v: DateTime", "v=2024-05-31T12:00:00+02:00", "2024-05-31T10:00:00.000000Z"),
        ("$v: [I32]", "v=[1, null]", [1, None]),
        ("$v: String", "$v=x", "x"),
    ],
)
def test_a_parameter_is_read_as_it_is_declared(
    read_only_graph: Graph, declared: str, given: str, found: object
) -> None:
    text = f"""query q({declared}) {{ match {{ $p: Person {{ email: "ann@x" }} }}
        return {{ $v as v }} }}"""

    done = run("query", read_only_graph.root, "-e", text, "--param", given, "--format", "jsonl")

    assert json.loads(done.stdout) == {"v": found}


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--param", "least"), 2, "write NAME=VALUE"),
        (("--param", "least=1", "--param", "least=2"), 2, "given twice"),
        (("--param", "least=x"), 5, "expected an integer"),
        (("--param", "least=1", "--param", "names=x"), 2, "write it as JSON"),
        (("--param", "lest=1"), 5, "is missing $least"),
        (("--params", "{"), 2, "not JSON"),
        (("--params", "none.json"), 5, "cannot read none.json"),
        ((), 5, "is missing $least"),
        (("--param", "least=1", "--memory", "lots"), 5, "memory is 'lots'"),
        (("--param", "least=1", "--timeout", "0"), 5, "timeout is 0"),
        (("--param", "least=1", "--at", "never"), 3, "never"),
        (("--param", "least=1", "--engine", "duckdb"), 5, "engine is 'duckdb'"),
        (("--param", "least=1", "--engine", "local", "--master", "local"), 5, "is given"),
    ],
)
def test_wrong_options_are_refused(
    read_only_graph: Graph, folder: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    file = str(folder / "people.gq")

    done = run("query", read_only_graph.root, file, "--name", "older", *options)

    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_branches_and_the_past_can_be_asked(graph: Graph) -> None:
    text = "query n() { match { $p: Person } return { count(*) as n } }"
    first = str(graph.snapshot().commit_id)
    graph.branches.create("dev").write({"Person": [{"email": "c@x", "name": "Cat"}]})

    dev = answer("query", graph.root, "-e", text, "--branch", "dev")
    assert (dev["rows"], dev["branch"]) == ([{"n": 3}], "dev")
    past = answer("query", graph.root, "-e", text, "--branch", "dev", "--at", first)
    assert (past["rows"], past["commit_id"]) == ([{"n": 2}], first)


def test_a_mistake_is_shown_in_its_place(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "wrong.gq"
    file.write_text("query q() { match { $p: Persn } return { $p.name } }")

    done = run("query", graph.root, str(file))

    assert done.returncode == 5
    assert "wrong.gq:1:25: error[unknown-type]" in done.stderr


def test_a_plan_is_explained_without_parameters(graph: Graph, folder: Path) -> None:
    file = str(folder / "people.gq")

    done = run("query", graph.root, file, "--name", "older", "--explain")

    assert done.returncode == 0
    assert "scan $p: Person where" in done.stdout


def test_a_mutation_is_one_commit(graph: Graph, folder: Path) -> None:
    values = ("--param", "email=c@x", "--param", "name=Cat")
    hire = ("mutate", graph.root, str(folder / "changes.gq"), *values)
    head = str(graph.snapshot().commit_id)

    moved = run(*hire, "--expect-head", "01M7G0Y3DMZ5V3XK8T3WQ4N0RB")
    assert moved.returncode == 4, moved.stderr
    done = answer(*hire, "--expect-head", head, "--actor", "ada")

    assert done["query"] == "hire"
    assert done["commit_id"] == graph.snapshot().commit_id != head
    assert done["tables"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert graph.commits()[0].actor == "ada"
    stored = run("mutate", graph.root, "--queries", str(folder), "--name", "hire", *values)
    assert stored.returncode != 0, "the key exists by now"
    asked = run("query", graph.root, str(folder / "changes.gq"), *values)
    assert asked.returncode == 5
    assert "is a mutation" in asked.stderr


def test_lint_checks_queries_against_a_schema_or_a_graph(
    graph: Graph, folder: Path, tmp_path: Path
) -> None:
    schema = tmp_path / "people.pg"
    schema.write_text(SCHEMA)
    file = folder / "people.gq"

    assert run("lint", str(file)).returncode == 2
    by_schema = answer("lint", str(file), "--schema", str(schema))
    assert by_schema == answer("lint", str(file), "--graph", graph.root)
    assert by_schema["ok"]
    assert [each["rule"] for each in by_schema["findings"]] == ["unused-parameter"]
    assert [each["name"] for each in by_schema["queries"]] == ["older", "count_all"]
    file.write_text(QUERIES.replace("$p.age >=", "$p.ag >="))
    broken = run("lint", str(file), "--graph", graph.root)
    assert broken.returncode == 5
    assert "error[unknown-property]" in broken.stdout


def test_whoever_has_read_enough_may_close_the_pipe(graph: Graph) -> None:
    """A new process: what it does with a lost pipe includes the end of the interpreter."""
    rows = [{"email": f"{n}@x", "name": "n" * 100} for n in range(6_000)]  # two batches
    graph.write({"Person": rows})
    text = "query q() { match { $p: Person } return { $p } }"

    with subprocess.Popen(
        [COMMAND, "query", graph.root, "-e", text, "--format", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert json.loads(reading.stdout.readline())["p"]["type"] == "Person"
        reading.stdout.close()
        assert reading.stderr.read() == ""
    assert reading.returncode == 1


def test_an_interrupted_query_ends_with_130(graph: Graph) -> None:
    """A new process: its handlers are those that Python and the libraries install.

    The query has 27 billion rows, so that it ends at all shows that it was interrupted.
    """
    rows = [{"email": f"{n}@x", "name": "n"} for n in range(3_000)]
    graph.write({"Person": rows})
    text = """query q() { match { $p: Person  $q: Person  $r: Person }
        return { $p.name, $q.name, $r.name } }"""

    with (
        interruptible(),
        subprocess.Popen(
            [COMMAND, "query", graph.root, "-e", text, "--format", "jsonl"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running,
    ):
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        said = running.stderr.read()
    assert running.returncode == 130, said
    assert said == "interrupted; nothing was written\n"


def test_integers_that_javascript_cannot_hold_are_texts_when_asked(graph: Graph) -> None:
    text = (
        "query q() { match { $p: Person } return distinct "
        "{ 9007199254740991 as safe, -9007199254740993 as big, [9007199254740993, 1] as many } }"
    )
    rows = {
        flag: json.loads(run("query", graph.root, "-e", text, "--json", *flag).stdout)["rows"]
        for flag in ((), ("--safe-integers",))
    }

    assert rows[()] == [{"safe": 2**53 - 1, "big": -(2**53) - 1, "many": [2**53 + 1, 1]}]
    assert rows["--safe-integers",] == [
        {"safe": 2**53 - 1, "big": str(-(2**53) - 1), "many": [str(2**53 + 1), 1]}
    ]
