"""Commands about graphs and schemas: what they print, where, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph_lake import __version__
from tests.cli.commands import run
from tests.stores import folder_of

pytestmark = pytest.mark.unit

GOOD = "node Person { name: String @key }\n"
BAD = "node Person { name: Strng @key }\n"


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "schema.pg"
    path.write_text(GOOD)
    return str(path)


def test_version_and_help() -> None:
    assert run("--version").stdout == f"omnigraph {__version__}\n"
    assert "omnigraph status ./g" in run("--help").stdout


def test_wrong_usage_exits_with_2() -> None:
    assert run("status").returncode == 2
    assert run("nope").returncode == 2


def test_init_then_status_as_a_table_and_as_json(graph_root: str, schema: str) -> None:
    created = run("init", graph_root, "--schema", schema)
    table = run("status", graph_root)
    report = json.loads(run("status", graph_root, "--json").stdout)

    assert created.returncode == table.returncode == 0
    assert created.stdout.startswith(f"created {graph_root} with 1 table,")
    assert "Person" in table.stdout
    assert set(report) == {
        "branch",
        "commit_id",
        "durability",
        "format_stamp",
        "holds",
        "manifest_version",
        "pending_sidecars",
        "root",
        "stray_files",
        "tables",
        "without_checksums",
    }
    assert set(report["tables"][0]) == {
        "data_bytes",
        "deleted_rows",
        "fragments",
        "head_version",
        "indexes",
        "kind",
        "missing_indexes",
        "rows",
        "table_key",
        "type",
        "version",
        "waiting_indexes",
    }


def test_init_as_json_prints_one_object(graph_root: str, schema: str) -> None:
    done = run("init", graph_root, "--schema", schema, "--actor", "ada", "--json")

    created = json.loads(done.stdout)
    assert created["root"] == graph_root
    assert created["tables"] == ["node:Person"]


def test_init_twice_is_a_conflict(graph_root: str, schema: str) -> None:
    run("init", graph_root, "--schema", schema)
    again = run("init", graph_root, "--schema", schema)

    assert again.returncode == 4
    assert again.stdout == ""
    assert "nothing was written" in again.stderr
    assert "omnigraph status" in again.stderr


def test_init_with_a_bad_schema_shows_it_in_place(graph_root: str, tmp_path: Path) -> None:
    (tmp_path / "bad.pg").write_text(BAD)
    done = run("init", graph_root, "--schema", "bad.pg", cwd=tmp_path)

    assert done.returncode == 5
    assert "bad.pg:1:21: error[unknown-type]" in done.stderr
    assert "^^^^^" in done.stderr
    assert not folder_of(graph_root).exists()


def test_the_durability_of_a_graph_is_chosen_when_it_is_created(
    graph_root: str, schema: str
) -> None:
    run("init", graph_root, "--schema", schema, "--durability", "os")
    unset = {"OMNIGRAPH_DURABILITY": ""}
    refused = run("init", f"{graph_root}-2", "--schema", schema, "--durability", "no")

    assert "durability os" in run("status", graph_root, env=unset).stdout
    assert refused.returncode == 5
    assert "expected 'commit' or 'os'" in refused.stderr


def test_status_of_nothing_is_not_found(graph_root: str) -> None:
    done = run("status", graph_root)

    assert done.returncode == 3
    assert f"omnigraph init {graph_root}" in done.stderr


def test_lint_prints_findings_and_its_verdict_is_the_exit_code(tmp_path: Path) -> None:
    good = run("lint", "-", stdin=GOOD)
    bad = run("lint", "-", stdin=BAD)
    as_json = json.loads(run("lint", "-", "--json", stdin=BAD).stdout)

    assert (good.returncode, good.stdout) == (0, "")
    assert bad.returncode == 5
    assert "did you mean `String`?" in bad.stdout
    assert as_json["ok"] is False
    assert as_json["findings"][0]["rule"] == "unknown-type"
    assert (as_json["findings"][0]["line"], as_json["findings"][0]["column"]) == (1, 21)


def test_lint_of_a_missing_file_names_it() -> None:
    done = run("lint", "nowhere.pg")

    assert done.returncode == 5
    assert "cannot read nowhere.pg" in done.stderr


def test_fmt_rewrites_in_place_and_check_only_tells(tmp_path: Path) -> None:
    path = tmp_path / "s.pg"
    path.write_text("// people\nnode   Person{name:String@key}")

    would = run("fmt", str(path), "--check")
    assert (would.returncode, path.read_text().count("\n")) == (1, 1)
    run("fmt", str(path))
    clean = run("fmt", str(path), "--check")

    assert path.read_text() == "// people\nnode Person {\n    name: String @key\n}\n"
    assert (clean.returncode, clean.stderr) == (0, "")
    assert run("fmt", "-", stdin=GOOD).stdout == path.read_text().removeprefix("// people\n")


def test_fmt_formats_query_files_and_knows_their_language_on_stdin(tmp_path: Path) -> None:
    text = "// names\nquery all(){match{$p:Person}return{$p.name}}"
    formatted = "// names\nquery all() {\n    match { $p: Person }\n    return { $p.name }\n}\n"
    path = tmp_path / "q.gq"
    path.write_text(text)

    assert run("fmt", str(path), "--check").returncode == 1
    assert run("fmt", str(path)).returncode == 0

    assert path.read_text() == formatted
    assert run("fmt", str(path), "--check").returncode == 0
    assert run("fmt", "-", stdin=text).stdout == formatted


def test_fmt_leaves_a_file_with_syntax_errors_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.pg"
    path.write_text("node {")

    done = run("fmt", str(path))

    assert done.returncode == 5
    assert path.read_text() == "node {"


def test_schema_show_as_listing_source_and_json(graph_root: str, schema: str) -> None:
    run("init", graph_root, "--schema", schema)

    assert "node Person" in run("schema", "show", graph_root).stdout
    assert run("schema", "show", graph_root, "--source").stdout == GOOD
    assert json.loads(run("schema", "show", graph_root, "--json").stdout)["nodes"]


def test_a_schema_change_is_planned_and_changes_nothing(graph_root: str, schema: str) -> None:
    run("init", graph_root, "--schema", schema)
    wider = "node Person { name: String @key  age: I32? }\n"

    planned = run("schema", "plan", graph_root, "-", stdin=wider)
    as_json = json.loads(run("schema", "plan", graph_root, "-", "--json", stdin=wider).stdout)

    assert planned.returncode == 0
    assert "+ age: I32?  [column]" in planned.stdout
    assert planned.stderr == "node:Person has 0 rows\n"
    assert [each["kind"] for each in as_json["steps"]] == ["add_property"]
    assert as_json["rows"] == {"node:Person": 0}
    assert run("schema", "show", graph_root, "--source").stdout == GOOD


def test_a_plan_names_the_queries_that_a_wider_edge_would_refuse(
    graph_root: str, tmp_path: Path
) -> None:
    schema = "node Person { name: String @key } node Company { name: String @key } edge WorksAt: "
    narrow, wide = tmp_path / "narrow.pg", tmp_path / "wide.pg"
    narrow.write_text(f"{schema}Person -> Company")
    wide.write_text(f"{schema}Person | Company -> Company")
    (tmp_path / "staff.gq").write_text(
        "query staff() { match { $c: Company $c worksAt $other } return { $other.id } }\n"
        "query firms() { match { $p: Person $p worksAt $c } return { $c.id } }\n"
        "query wrong() { match { $p: Nobody } return { $p.id } }\n"
    )
    run("init", graph_root, "--schema", str(narrow))

    planned = run("schema", "plan", graph_root, str(wide), "--queries", str(tmp_path))
    as_json = run("schema", "plan", graph_root, str(wide), "--queries", str(tmp_path), "--json")

    assert planned.returncode == 0
    assert "staff.gq: query staff is refused afterwards: WorksAt joins" in planned.stderr
    assert "write `worksAt>` for forward, or `<worksAt` for backward" in planned.stderr
    refused = json.loads(as_json.stdout)["refused_queries"]
    assert [(each["file"], each["name"]) for each in refused] == [("staff.gq", "staff")]


def test_a_refused_schema_change_exits_with_5(graph_root: str, schema: str) -> None:
    run("init", graph_root, "--schema", schema)

    refused = run("schema", "plan", graph_root, "-", stdin="node Person { name: I32 @key }")

    assert refused.returncode == 5
    assert "nothing can be applied" in refused.stdout
