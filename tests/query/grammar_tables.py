"""Writes the tables of both grammars into the package: `python -m tests.query.grammar_tables`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from omnigraph_lake.language.grammars import TABLES, Grammar
from omnigraph_lake.query.parser import GRAMMAR as QUERY
from omnigraph_lake.schema.parser import GRAMMAR as SCHEMA

GRAMMARS: Final = (QUERY, SCHEMA)


def tables_file(grammar: Grammar) -> Path:
    return Path(str(grammar.folder.joinpath(TABLES)))


if __name__ == "__main__":
    for language in GRAMMARS:
        tables_file(language).write_text(language.tables(), encoding="utf-8")
