"""Writes docs/llms.txt: every page of the navigation with one line, for language models.

    python -m tests.docs.llms docs/llms.txt

The line of a page is the first sentence of its first paragraph.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).parent.parent.parent
HEADER: Final = """# Omnigraph

> A typed property graph that lives as open Lance files on a disk or an object store, with commits
> over all types, branches, diffs, three-way merges, time travel, full text and vector search, in a
> Python process or on Spark. No server.

Schemas are `.pg` texts, queries and mutations are `.gq` texts; both languages are Omnigraph's own,
not Cypher, Gremlin or SQL. Install: `pip install omnigraph-lake`. Start:
`import omnigraph_lake as og`, `graph = og.init(root, schema=text)`, then `og.open(root)`.
"""
ENTRY: Final = re.compile(r'^ {6}- "?(?P<title>[^":]+)"?: (?P<path>\S+\.md)$')
SECTION: Final = re.compile(r"^ {2}- (?P<name>[^:]+):$")


def main(target: str) -> None:
    Path(target).write_text(text())


def text() -> str:
    return HEADER + "".join(f"{line}\n" for line in _lines())


def pages() -> Iterator[tuple[str, str, str]]:
    """Section, title and path of every page of the navigation, in its order."""
    navigation = (HOME / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    section = ""
    for line in navigation.splitlines():
        if heading := SECTION.match(line):
            section = heading["name"]
        elif entry := ENTRY.match(line):
            yield section, entry["title"], entry["path"]
        elif not line.startswith(" "):
            return


def _lines() -> Iterator[str]:
    last = ""
    for section, title, path in pages():
        if path.startswith("adr/") and path != "adr/index.md":
            continue
        if section != last:
            yield f"\n## {section}\n"
            last = section
        yield f"- [{title}]({_address(path)}): {_first_sentence(HOME / 'docs' / path)}"


def _address(path: str) -> str:
    """Where the page is on the site, relative to this file."""
    return f"./{path.removesuffix('index.md').removesuffix('.md')}".rstrip("/") + "/"


def _first_sentence(page: Path) -> str:
    """The first sentence of a page in plain text."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for paragraph in text.split("\n\n")[1:]:
        plain = re.sub(r"<[^>]+>|[*_]{2}", "", paragraph)
        plain = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", plain)
        plain = " ".join(plain.split())
        if plain and (plain[0].isalnum() or plain[0] == "`"):
            return re.split(r"(?<=\.)\s", plain, maxsplit=1)[0]
    raise ValueError(f"{page} has no first sentence")


if __name__ == "__main__":
    main(sys.argv[1])
