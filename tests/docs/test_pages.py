"""The reference pages name every command, error, file and decision."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from omnigraph import errors
from omnigraph.cli.main import app

pytestmark = pytest.mark.unit

HOME = Path(__file__).parent.parent.parent


def commands() -> list[str]:
    root = typer.main.get_command(app)
    found: list[str] = []
    pending = [("omnigraph", root)]
    while pending:
        name, command = pending.pop()
        children = getattr(command, "commands", {})
        pending += [(f"{name} {child}", sub) for child, sub in children.items()]
        if not children:
            found.append(name)
    return sorted(found)


def test_there_are_commands_to_document() -> None:
    assert "omnigraph schema show" in commands()


@pytest.mark.parametrize("command", commands())
def test_every_command_has_a_section_and_help(command: str) -> None:
    page = (HOME / "docs/reference/cli.md").read_text()

    assert f"\n## {command}\n" in page


def test_every_error_is_in_the_reference_with_its_exit_code() -> None:
    page = (HOME / "docs/reference/errors.md").read_text()
    for kind in vars(errors).values():
        if not (isinstance(kind, type) and issubclass(kind, errors.OmnigraphError)):
            continue
        if kind in {errors.OmnigraphError, errors.NothingWrittenError}:
            continue
        row = next(line for line in page.splitlines() if f"`{kind.__name__}`" in line)
        assert f"| {kind.exit_code} |" in row


def test_every_on_disk_name_is_in_the_layout_page() -> None:
    page = (HOME / "docs/reference/layout.md").read_text()
    from omnigraph import names

    for name in (
        names.MANIFEST,
        names.RECOVERY_DIR,
        names.BRANCH_REFS_DIR,
        names.COMMITS,
        names.COMMIT_ACTORS,
        names.RECOVERIES,
        names.SCHEMA_SOURCE,
        names.SCHEMA_MODEL,
        names.SCHEMA_STATE,
        names.STAMP_KEY,
    ):
        assert name in page
    assert f"| {names.STAMP} |" in page


def test_every_decision_is_listed_and_in_the_navigation() -> None:
    listed = (HOME / "docs/adr/index.md").read_text()
    navigation = (HOME / "mkdocs.yml").read_text()
    for record in HOME.glob("docs/adr/[0-9]*.md"):
        assert f"({record.name})" in listed
        assert f"adr/{record.name}" in navigation
