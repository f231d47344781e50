"""The page of screens shows what commands show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parent.parent.parent / "docs/reference/screens.md"


@pytest.mark.local_disk("about what is shown, not where it is stored")
def test_the_page_of_screens_is_what_commands_show(tmp_path: Path) -> None:
    target = tmp_path / "screens.md"

    subprocess.run(
        [sys.executable, "-m", "tests.docs.screens", str(target)],
        cwd=PAGE.parent.parent.parent,
        check=True,
        capture_output=True,
    )

    assert target.read_text() == PAGE.read_text(), "run `just screens`"


def test_no_line_of_a_narrow_screen_is_wider_than_80_columns() -> None:
    page = PAGE.read_text().split("\n## a failure")[0]
    narrow = [block.split("\n```")[0] for block in page.split("80 columns")[1:]]

    assert len(narrow) >= 8
    assert [line for block in narrow for line in block.splitlines() if len(line) > 80] == []
