"""Golden cases: a schema text beside the diagnostics it must give, as a user sees them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from omnigraph_lake.language.diagnostics import render_all
from omnigraph_lake.schema.compile import lint_schema

GOLDEN = Path(__file__).parent / "golden"
UPDATING = "OMNIGRAPH_UPDATE_GOLDEN" in os.environ


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCase:
    name: str
    source: Path
    expected: Path

    def text(self) -> str:
        return self.source.read_bytes().decode()

    def rendered(self) -> str:
        text = self.text()
        return render_all(lint_schema(text), text=text, filename=self.source.name) + "\n"


def golden_cases() -> list[GoldenCase]:
    return [
        GoldenCase(name=source.stem, source=source, expected=source.with_suffix(".txt"))
        for source in sorted(GOLDEN.glob("*.pg"))
    ]
