"""Links of README.md are absolute, as a package index needs them, and lead to what exists."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.unit

HOME: Final = Path(__file__).parent.parent.parent
FENCED: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK: Final = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
LINKED_TEXT: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")


def repository() -> str:
    """The address of the repository, as the package index shows it."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    return str(project["urls"]["Repository"])


def links() -> list[str]:
    return [link["target"] for link in LINK.finditer(_prose(HOME / "README.md"))]


def test_every_link_of_the_readme_is_absolute() -> None:
    assert [link for link in links() if not link.startswith("https://")] == []
    assert len(links()) > 20


def test_links_of_the_readme_into_the_repository_name_files_and_headings() -> None:
    pages = f"{repository()}/blob/main/"
    files = pages.replace("://github.com/", "://raw.githubusercontent.com/").replace("/blob/", "/")
    inside = [link for link in links() if link.startswith((pages, files))]

    assert [link for link in inside if not _leads_somewhere(link, (pages, files))] == []
    assert any(link.startswith(files) for link in inside), "the picture"
    assert any("#" in link for link in inside)


def test_links_of_the_readme_to_the_host_of_the_repository_are_into_the_repository() -> None:
    host = repository().rpartition("/")[0]

    assert [link for link in links() if link.startswith(host) and repository() not in link] == []


def test_a_missing_file_and_a_missing_heading_are_noticed() -> None:
    assert _leads_somewhere("x/README.md#install", ("x/",))
    assert not _leads_somewhere("x/README.md#nothing-here", ("x/",))
    assert not _leads_somewhere("x/docs/nothing.md", ("x/",))


def _leads_somewhere(link: str, bases: tuple[str, ...]) -> bool:
    for base in bases:
        link = link.removeprefix(base)
    path, _, anchor = link.partition("#")
    page = HOME / path
    return page.exists() and (not anchor or anchor in _anchors(page))


def _anchors(page: Path) -> Iterator[str]:
    """What the host of the repository calls the headings of a page."""
    seen: Counter[str] = Counter()
    for heading in HEADING.finditer(_prose(page)):
        text = LINKED_TEXT.sub(r"\1", heading["text"]).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
        seen[anchor] += 1


def _prose(page: Path) -> str:
    return FENCED.sub("", page.read_text())
