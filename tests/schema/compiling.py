"""Short ways to a catalog, for tests that are not about the compiler."""

from __future__ import annotations

from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.schema.compile import compile_schema, lint_schema

DOMAIN = "01JZZZZZZZZZZZZZZZZZZZZZZZ"


def compiled(text: str) -> Catalog:
    return compile_schema(text, filename="test.pg", identity_domain=DOMAIN)


def rules(text: str) -> list[str]:
    """The rules a text breaks, in source order."""
    return [each.rule for each in lint_schema(text)]
