"""What a person expects of an import of public data, and how an inferred graph differs from it.

The expectations were written from the data alone, by somebody who had not seen the importer. Node
types are named by the source of their records, edges by the columns that name a row of a target.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph_lake.ids import key_properties
from omnigraph_lake.importer.import_report import ImportReport
from omnigraph_lake.importer.mapping_file import read_mapping
from omnigraph_lake.load.formats.mapping import EdgeMapping, Endpoint, NodeMapping, SourceMapping
from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.schema.compile import compile_schema

EXPECTED = Path(__file__).parent / "expected"
Link = tuple[str, tuple[str, ...], str]
"""A source, its columns, and the source that they refer to; empty if only edges name its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """`required` links must be found, `allowed` ones may be; any other one is wrong."""

    required: Mapping[Link, int | None]
    """With the number of records that have a target, if it is known."""
    allowed: frozenset[Link] = frozenset()
    keys: Mapping[str, frozenset[tuple[str, ...]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """The keys and links of an inferred graph, with the edge type of each."""

    keys: Mapping[str, tuple[str, ...]]
    links: Mapping[Link, str]


def read_expectation(name: str) -> Expectation:
    text = (EXPECTED / f"{name}.toml").read_text()
    content = tomllib.loads(text)
    required: dict[Link, int | None] = {}
    allowed: set[Link] = set()
    for edge in content.get("edge", ()):
        columns = tuple(edge["columns"]) if "columns" in edge else (edge["column"],)
        link = (_stem(edge["source"]), columns, _stem(edge["target"]))
        if edge["required"]:
            required[link] = edge["matched"]
        else:
            allowed.add(link)
    for relation in content.get("relation", ()):
        for end in ("from", "to"):
            link = (_stem(relation["source"]), (relation[end],), _stem(relation[f"{end}_target"]))
            required[link] = None
    keys = {
        _stem(node["source"]): frozenset(
            tuple(sorted(key)) for key in (node["key"], *node.get("also_ok", ()))
        )
        for node in content.get("node", ())
    }
    return Expectation(required=required, allowed=frozenset(allowed), keys=keys)


def read_references(name: str) -> dict[Link, int | None]:
    """A list of columns and targets."""
    with (EXPECTED / f"{name}-references.csv").open() as file:
        return {
            (row["file"], (row["column"],), row["target"]): None for row in csv.DictReader(file)
        }


def _stem(source: str) -> str:
    return source.rpartition(":")[2].rpartition("/")[2].partition(".")[0]


def inferred(report: ImportReport) -> Inferred:
    """The graph of an import, by sources and columns."""
    catalog = compile_schema(report.schema, filename="schema", identity_domain="test")
    mappings = read_mapping(report.mapping, name="mapping").mappings
    sources = {rule.type: mapping.name for mapping in mappings for rule in mapping.nodes}
    keys = {
        mapping.name: _key_columns(mapping.nodes[0], catalog)
        for mapping in mappings
        if mapping.nodes
    }
    links: dict[Link, str] = {}
    for mapping in mappings:
        for rule in (rule for rule in mapping.edges if rule.each is None):
            for end in _references(rule, mapping, catalog):
                columns = tuple(value.column for value in end.key.values())
                links[(mapping.name, columns, sources.get(end.type, ""))] = rule.type
    return Inferred(keys=keys, links=links)


def _key_columns(rule: NodeMapping, catalog: Catalog) -> tuple[str, ...]:
    node = catalog.nodes[rule.type]
    if not node.key:
        return ()
    return tuple(rule.properties[prop.name].column for prop in key_properties(node))


def _references(rule: EdgeMapping, mapping: SourceMapping, catalog: Catalog) -> Iterator[Endpoint]:
    """The ends of an edge that are rows of other records than that of the edge."""
    own = next((node for node in mapping.nodes if node.type == rule.source.type), None)
    starts_here = own is not None and (
        not catalog.nodes[own.type].key
        or tuple(value.column for value in rule.source.key.values()) == _key_columns(own, catalog)
    )
    yield from (rule.target,) if starts_here else (rule.source, rule.target)


def differences(expected: Expectation, got: Inferred) -> Sequence[str]:
    """What is missing and what is wrong, one line each."""
    lines = [f"missing: {_shown(link)}" for link in expected.required if link not in got.links]
    known = {*expected.required, *expected.allowed}
    lines += [f"wrong: {_shown(link)}" for link in got.links if link not in known]
    for source, accepted in expected.keys.items():
        key = tuple(sorted(got.keys.get(source, ())))
        if key not in accepted and source in got.keys:
            lines.append(f"key of {source}: {', '.join(key) or 'none'}")
    return lines


def _shown(link: Link) -> str:
    source, columns, target = link
    return f"{source}.{', '.join(columns)} -> {target or 'new nodes'}"


def written(report: ImportReport, names: Mapping[Link, str]) -> Mapping[Link, Any]:
    """How many edges were written for each link of a record to a row of another source."""
    assert report.load is not None
    return {link: report.load.written.get(name, 0) for link, name in names.items()}
