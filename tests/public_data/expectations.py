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
    records: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """The keys and links of an inferred graph, with the edge type of each."""

    keys: Mapping[str, tuple[str, ...]]
    links: Mapping[Link, str]


def read_expectation(name: str, *, folder: str = "") -> Expectation:
    """What is expected of a set, or of the files of one of its folders."""
    content = tomllib.loads((EXPECTED / f"{name}.toml").read_text())
    for part in ("node", "edge", "relation"):
        entries = (entry for entry in content.get(part, ()) if entry["source"].startswith(folder))
        content[part] = [entry for entry in entries if "literals" not in entry["source"]]
    required: dict[Link, int | None] = {}
    allowed: set[Link] = set()
    for edge in content["edge"]:
        columns = tuple(edge["columns"]) if "columns" in edge else (edge["column"],)
        link = (_stem(edge["source"]), columns, _stem(edge["target"]))
        if edge["required"]:
            required[link] = edge["matched"]
        else:
            allowed.add(link)
    for relation in content["relation"]:
        for end in ("from", "to"):
            link = (_stem(relation["source"]), (relation[end],), _stem(relation[f"{end}_target"]))
            # A record is an edge if both ends are found.
            required[link] = min(relation.get(f"{one}_matched", 0) for one in ("from", "to"))
    keys = {
        _stem(node["source"]): frozenset(
            tuple(sorted(key)) for key in (node["key"], *node.get("also_ok", ()))
        )
        for node in content["node"]
    }
    records = {
        _stem(source): count
        for source, count in content["records"].items()
        if source.startswith(folder) and "literals" not in source
    }
    return Expectation(required=required, allowed=frozenset(allowed), keys=keys, records=records)


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
        name: tuple(_as_read(c, mapping) for c in _key_columns(mapping.nodes[0], catalog))
        for mapping in mappings
        for name in mapping.also or (mapping.name,)
        if mapping.nodes
    }
    links: dict[Link, str] = {}
    for mapping in mappings:
        for rule in (rule for rule in mapping.edges if rule.each is None):
            for end in _references(rule, mapping, catalog):
                columns = tuple(_as_read(value.column, mapping) for value in end.key.values())
                for name in mapping.also or (mapping.name,):
                    links[(name, columns, sources.get(end.type, ""))] = rule.type
    return Inferred(keys=keys, links=links)


def _as_read(column: str, mapping: SourceMapping) -> str:
    """A column as a reader calls it who sees only the data."""
    form = mapping.form
    if isinstance(form.header, tuple):
        return str(form.header.index(column))
    if column == form.position_column:
        return "(position)"
    if form.key_column == "key" and column in {"key", "value"}:
        return f"({column})"
    return column


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


def account_faults(expected: Expectation, report: ImportReport) -> Sequence[str]:
    """The lines of the account that do not add up, and the sources of which records are missing."""
    assert report.load is not None
    lines = [
        f"{line.source} {line.type}: {line.records} records"
        for line in report.load.accounts
        if line.records
        != line.written
        + line.already_there
        + line.replaced
        + sum(line.rejected.values())
        + line.skipped
    ]
    mappings = read_mapping(report.mapping, name="mapping").mappings
    counted: dict[str, int] = {}
    for mapping in mappings:
        own = {rule.type for rule in mapping.rules if rule.each is None}
        counted[mapping.name] = max(
            (
                line.records
                for line in report.load.accounts
                if line.source == mapping.name and line.type in own and not line.distinct
            ),
            default=0,
        )
        wanted = sum(expected.records[name] for name in mapping.also or (mapping.name,))
        if counted[mapping.name] != wanted:
            lines.append(f"{mapping.name}: {counted[mapping.name]} of {wanted} records")
    return lines


def written(report: ImportReport, names: Mapping[Link, str]) -> Mapping[Link, Any]:
    """How many edges were written for each link of a record to a row of another source."""
    assert report.load is not None
    return {link: report.load.written.get(name, 0) for link, name in names.items()}
