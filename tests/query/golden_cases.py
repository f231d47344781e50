"""Golden cases: a query text beside the diagnostics, or the plans, it must give."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from omnigraph_lake.language.diagnostics import Diagnostic, render_all
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.lint import lint_queries
from omnigraph_lake.query.plan_text import explain
from omnigraph_lake.query.planning import plan_query
from tests.query.people import CATALOG

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
PLANS = HERE / "plans"
UPDATING = "OMNIGRAPH_UPDATE_GOLDEN" in os.environ


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCase:
    name: str
    source: Path
    expected: Path

    def text(self) -> str:
        return self.source.read_bytes().decode()

    def findings(self) -> tuple[Diagnostic, ...]:
        return lint_queries(self.text(), catalog=CATALOG).findings

    def rendered(self) -> str:
        text = self.text()
        return render_all(self.findings(), text=text, filename=self.source.name) + "\n"

    def explained(self) -> str:
        queries = compile_queries(self.text(), catalog=CATALOG, filename=self.source.name)
        return "\n".join(
            f"{each.name}\n\n{explain(plan_query(each, CATALOG))}" for each in queries.values()
        )


def golden_cases(folder: Path = GOLDEN) -> list[GoldenCase]:
    return [
        GoldenCase(name=source.stem, source=source, expected=source.with_suffix(".txt"))
        for source in sorted(folder.glob("*.gq"))
    ]
