"""The tables of the grammars in the package: what was built, and never more than a shortcut."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys
from pathlib import Path

import pytest
from lark import Lark

from omnigraph_lake.language.grammars import Grammar, refused_at
from omnigraph_lake.query.parser import GRAMMAR as QUERY
from omnigraph_lake.query.parser import TreeBuilder
from omnigraph_lake.query.tokens import WordSorter
from tests.query import fuzz
from tests.query.grammar_tables import GRAMMARS, tables_file

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.package)
def test_the_package_contains_the_tables_of_its_grammars(grammar: Grammar) -> None:
    """Otherwise: `python -m tests.query.grammar_tables`."""
    assert tables_file(grammar).read_text("utf-8") == grammar.tables()


def test_a_parser_from_tables_is_the_one_that_is_built(copied: Grammar) -> None:
    from_tables = query_parser(copied)
    tables_file(copied).unlink()
    built = query_parser(copied)

    generator = random.Random(5)
    # Trees of nested texts are too deep to be compared.
    makers = [make for make in fuzz.GENERATORS if make not in (fuzz._nested, fuzz._huge)]
    drawn = [make(generator) for make in makers for _ in range(3)]
    texts = [fuzz.SEED_TEXT, "", "query", *drawn]

    assert is_from_tables(from_tables)
    assert not is_from_tables(built)
    for text in texts:
        assert outcome(from_tables, text) == outcome(built, text), text


@pytest.mark.parametrize("damage", ["changed grammar", "other Lark", "cut off"])
def test_tables_of_something_else_are_not_used(copied: Grammar, damage: str) -> None:
    tables = tables_file(copied)
    match damage:
        case "changed grammar":
            grammar = tables.parent / "grammar.lark"
            grammar.write_text(grammar.read_text("utf-8") + "\n// changed\n", "utf-8")
        case "other Lark":
            content = json.loads(tables.read_bytes())
            tables.write_text(json.dumps({**content, "built_from": "0.0.0"}), "utf-8")
        case _:
            tables.write_bytes(tables.read_bytes()[:1000])

    assert not is_from_tables(query_parser(copied))


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grammar:
    """The grammar of queries in a package of its own, whose tables are valid."""
    name = "copied_grammar"
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(str(QUERY.folder.joinpath("grammar.lark")), package)
    spec = importlib.util.spec_from_file_location(name, package / "__init__.py")
    assert spec is not None
    monkeypatch.setitem(sys.modules, name, importlib.util.module_from_spec(spec))
    grammar = Grammar(package=name, lexer=QUERY.lexer, maybe_placeholders=QUERY.maybe_placeholders)
    shutil.copy(tables_file(QUERY), package)
    return grammar


def query_parser(grammar: Grammar) -> Lark:
    return grammar.parser(TreeBuilder(), WordSorter())


def is_from_tables(parser: Lark) -> bool:
    return parser.source_path == "<deserialized>"


def outcome(parser: Lark, text: str) -> object:
    """The tree, or where the text is refused and what could have followed."""
    try:
        return parser.parse(text)
    except Exception as error:  # noqa: BLE001 - compared below
        offset, expected = refused_at(parser, text)
        return type(error).__name__, offset, sorted(expected)
