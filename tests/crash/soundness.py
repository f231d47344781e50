"""What a check finds, without judging the same rows by the same rules twice.

Rules look at rows alone, and most cases of a matrix end with the same rows. Rows that kept the
rules of their schema once are remembered; pins, heads and the chain of commits are checked always.
The nightly judges all rows every time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from omnigraph_lake.graph import Graph
from omnigraph_lake.validation import check
from omnigraph_lake.validation.check import Finding
from tests.gate.selection import is_nightly

_judged: set[str] = set()


def findings(graph: Graph, content: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The findings of a check of a graph that holds these rows by id by table."""
    rows = json.dumps([graph.schema.text, content], sort_keys=True, default=str)
    with pytest.MonkeyPatch.context() as patch:
        if rows in _judged and not is_nightly():
            patch.setattr(check, "broken_rules", lambda *_: iter(()))
        report = graph.maintenance.check()
    if report.ok:
        _judged.add(rows)
    return report.findings
