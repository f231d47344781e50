"""The reference pages name every command, error, file and decision."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import omnigraph_lake as og
from omnigraph_lake import errors
from omnigraph_lake.cli.main import app
from tests.behind import FailpointReached, failing_at
from tests.stores import files_of

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
    from omnigraph_lake import names

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


def test_every_file_of_a_graph_is_in_the_layout_page(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    graph = og.init(root, schema="node P { name: String @key }")
    graph.write({"P": [{"name": "ann"}]})
    graph.tags.create("early")
    dev = graph.branches.create("dev")
    with failing_at("publish.pre_manifest"), pytest.raises(FailpointReached):
        dev.write({"P": [{"name": "bob"}]})
    graph.snapshot(hold="1h")
    patterns = [re.compile(_pattern(line)) for line in _drawn_files()]

    paths = [str(path.relative_to(root)) for path in files_of(root)]

    assert [path for path in paths if not any(one.fullmatch(path) for one in patterns)] == []
    assert any(path.startswith("__recovery/") and "@" in path for path in paths)


def _drawn_files() -> list[str]:
    """The first column of the tree, without the root."""
    page = (HOME / "docs/reference/layout.md").read_text()
    tree = page.partition("{root}/\n")[2].partition("```")[0]
    spelled = [line.split()[0] for line in tree.splitlines()]
    also = re.findall(r"On a branch (\S+\.json)", tree)
    later = [f"_refs/{kind}/{{name}}@/*" for kind in ("branches", "tags") if "{name}@/" in tree]
    return [*spelled, *(f"__recovery/{name}" for name in also), *later]


def _pattern(path: str) -> str:
    """What a drawn path stands for; a folder stands for everything in it."""
    parts = re.split(r"(\{[^}]+\}|\*)", path)
    spelled = "".join(
        _PARTS.get(part, "[^/]+" if part[:1] == "{" else re.escape(part)) for part in parts
    )
    return spelled + (".*" if path.endswith("/") else "")


_PARTS = {
    "*": ".*",
    "{ulid}": "[0-9A-Z]{26}",
    "{incarnation}": "[0-9A-Z]{26}",
    "{fnv1a64-hex(TypeName)}": "[0-9a-f]{16}",
}
