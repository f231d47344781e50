"""The language server as an editor knows it: a real process, and messages over its streams."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

import omnigraph_lake as og
from tests.cli.commands import run
from tests.editor.client import Editor, applied
from tests.editor.marked import SCHEMA

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("an editor opens files of a disk")]

PAGE: Final = Path(__file__).parent.parent.parent / "docs/how-to/editor.md"
QUERY: Final = """query smiles($email: String) {
    match { $p: Person { name: "🙂🙂", email: $email } }
    return { $p.name, $p.age }
}
"""


def ranges(findings: list[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    return [
        (
            found["code"],
            found["range"]["start"]["line"],
            found["range"]["start"]["character"],
            found["range"]["end"]["character"],
        )
        for found in findings
    ]


def test_an_editor_is_served(tmp_path: Path) -> None:
    folder = tmp_path / "my graphs 🙂"
    folder.mkdir()
    (folder / "people.pg").write_text(SCHEMA)
    with Editor(folder) as editor:
        capabilities = editor.initialized["capabilities"]
        assert editor.initialized["serverInfo"]["name"] == "omnigraph"
        assert capabilities["positionEncoding"] == "utf-16"
        assert capabilities["renameProvider"] == {"prepareProvider": True}

        _findings_follow_what_is_typed(editor)
        _requests_are_answered(editor)
        _a_schema_that_is_typed_counts_at_once(editor)
        _without_a_schema_the_editor_is_told_how_to_name_one(editor)

        libraries = editor.mapped_files()
        assert "lance" not in libraries, "only a graph needs it"
        assert "libarrow" not in libraries, "only patterns of @check need it"
        assert editor.close() == 0


def _findings_follow_what_is_typed(editor: Editor) -> None:
    assert editor.open("q.gq", QUERY) == []
    editor.type("q.gq", QUERY.replace("email: $email", "emial: $email").replace(".age", ".aeg"))
    # Each of the two characters before it is two units of UTF-16.
    assert ranges(editor.findings("q.gq")) == [
        ("unknown-property", 1, 39, 44),
        ("unknown-property", 2, 25, 28),
    ]
    editor.type("q.gq", QUERY.replace("return {", "return"))
    assert ranges(editor.findings("q.gq")) == [("syntax", 2, 11, 13)]
    editor.type("q.gq", QUERY.replace("$p.age", "$p."))
    (finding,) = editor.findings("q.gq")
    assert finding["severity"] == 1
    assert finding["source"] == "omnigraph"
    completions = editor.at("completion", "q.gq", 2, 25)["result"]["items"]
    labels = {item["label"]: item for item in completions}
    assert labels["age"]["detail"] == "I32?"
    assert labels["age"]["textEdit"]["range"]["start"] == {"line": 2, "character": 25}
    editor.type("q.gq", QUERY)
    assert editor.findings("q.gq") == []


def _requests_are_answered(editor: Editor) -> None:
    hover = editor.at("hover", "q.gq", 1, 40)["result"]
    assert hover["contents"]["value"] == "```\nPerson.email: String\n    key\n```"
    assert hover["range"]["start"] == {"line": 1, "character": 39}
    assert editor.at("hover", "q.gq", 0, 0)["result"] is None
    there = editor.at("definition", "q.gq", 1, 16)["result"]
    line = SCHEMA.split("\n").index("node Person implements Named {")
    assert (there["uri"], there["range"]["start"]["line"]) == (editor.uri("people.pg"), line)
    here = editor.at("definition", "q.gq", 1, 48)["result"]
    assert (here["uri"], here["range"]["start"]) == (
        editor.uri("q.gq"),
        {"line": 0, "character": 13},
    )
    prepared = editor.at("prepareRename", "q.gq", 1, 13)["result"]
    assert prepared == {
        "start": {"line": 1, "character": 13},
        "end": {"line": 1, "character": 14},
    }
    edits = editor.at("rename", "q.gq", 1, 13, newName="$human")["result"]["changes"]
    assert applied(QUERY, edits[editor.uri("q.gq")]) == QUERY.replace("$p", "$human")
    refused = editor.at("rename", "q.gq", 1, 13, newName="email")["error"]
    assert "`email` is used in this query already" in refused["message"]
    options = {"tabSize": 4, "insertSpaces": True}
    document = {"uri": editor.uri("q.gq")}
    editor.type("q.gq", QUERY.replace("return {", "return\n\n{").replace("    match", "match"))
    formatted = editor.ask("textDocument/formatting", textDocument=document, options=options)
    (edit,) = formatted["result"]
    assert edit["newText"] == QUERY
    assert edit["range"]["end"] == {"line": 6, "character": 0}
    editor.type("q.gq", QUERY)
    again = editor.ask("textDocument/formatting", textDocument=document, options=options)
    assert again["result"] is None


def _a_schema_that_is_typed_counts_at_once(editor: Editor) -> None:
    assert editor.open("people.pg", SCHEMA) == []
    editor.type("people.pg", SCHEMA.replace("age", "years"))
    assert ranges(editor.findings("q.gq")) == [("unknown-property", 2, 25, 28)]
    editor.type("people.pg", SCHEMA.replace("node Person", "node"))
    broken = editor.findings("people.pg")
    assert [found["code"] for found in broken] == ["syntax"]
    # The last valid schema stays.
    assert ranges(editor.findings("q.gq"))[0] == ("unknown-property", 2, 25, 28)
    edits = editor.at("rename", "people.pg", 0, 0, newName="X")
    assert "does not parse" in edits["error"]["message"]
    editor.tell("textDocument/didClose", textDocument={"uri": editor.uri("people.pg")})
    editor.type("q.gq", QUERY)
    assert editor.findings("q.gq") == []


def _without_a_schema_the_editor_is_told_how_to_name_one(editor: Editor) -> None:
    (finding,) = editor.open("../other.gq", QUERY)
    assert finding["severity"] == 3
    assert "omnigraph lsp --schema FILE" in finding["message"]


def test_the_schema_of_a_graph_is_used_and_the_units_are_those_of_the_editor(
    tmp_path: Path,
) -> None:
    root = str(tmp_path / "g")
    graph = og.init(root, schema=SCHEMA)
    with Editor(tmp_path, encodings=["utf-8", "utf-16"], graph=root) as editor:
        assert editor.initialized["capabilities"]["positionEncoding"] == "utf-8"
        assert ranges(editor.open("q.gq", QUERY.replace("email: $", "emial: $"))) == [
            ("unknown-property", 1, 43, 48)
        ]
        graph.schema.apply(
            SCHEMA.replace("email: String @key", "email: String @key  emial: String?")
        )
        editor.tell("textDocument/didSave", textDocument={"uri": editor.uri("q.gq")})
        assert editor.findings("q.gq") == []

        assert editor.hang_up() == 0


def test_a_schema_file_and_a_graph_cannot_both_be_given() -> None:
    refused = run("lsp", "--schema", "people.pg", "--graph", "g")

    assert refused.returncode == 2
    assert "give --schema or --graph, not both" in refused.stderr


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_configurations_of_the_page_start_the_server() -> None:
    (code,) = map(json.loads, blocks("json"))
    (helix,) = map(tomllib.loads, blocks("toml"))
    (neovim,) = blocks("lua")

    assert [code["glspc.server.command"], *code["glspc.server.commandArguments"]] == [
        "omnigraph",
        "lsp",
    ]
    server = helix["language-server"]["omnigraph"]
    assert [server["command"], *server["args"]] == ["omnigraph", "lsp"]
    assert sorted(kind for each in helix["language"] for kind in each["file-types"]) == ["gq", "pg"]
    assert 'cmd = { "omnigraph", "lsp" }' in neovim
    assert 'extension = { pg = "omnigraph_schema", gq = "omnigraph_query" }' in neovim
