from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from omnigraph_lake.load.load import BREAK_EVEN_BYTES
from omnigraph_lake.load.report import (
    QUARANTINE_SCHEMA,
    Engine,
    FaultPolicy,
    LoadReport,
    RejectedRecord,
)
from omnigraph_lake.runner.protocol import StageMetrics
from omnigraph_lake.validation.constraints import WriteMode
from omnigraph_lake.validation.violations import Reason

pytestmark = pytest.mark.unit

PAGE = (Path(__file__).parent.parent.parent / "docs/reference/load.md").read_text()
WORDS = [*Reason, *WriteMode, *Engine, *FaultPolicy]
KEYS = [
    *(each.name for each in (*fields(LoadReport), *fields(RejectedRecord), *fields(StageMetrics))),
    *QUARANTINE_SCHEMA.names,
]


@pytest.mark.parametrize("word", sorted({*(each.value for each in WORDS), *KEYS}))
def test_every_word_of_a_report_is_explained(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_the_limit_of_the_engine_of_this_process_is_said() -> None:
    assert f"{BREAK_EVEN_BYTES >> 20} MiB" in PAGE
