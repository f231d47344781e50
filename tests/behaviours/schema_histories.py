"""Random rows that obey a schema, written in several steps, and how rows are compared."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from omnigraph_lake import Mode
from omnigraph_lake.schema.catalog import (
    Catalog,
    EdgeType,
    EnumType,
    NodeType,
    Property,
)
from tests.behaviours.schema_oracle import Content, Row, offences
from tests.behaviours.schema_texts import VALUES, shown
from tests.behind import node_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One write: rows by type name, or ids to delete."""

    mode: Mode = "append"
    rows: dict[str, list[Row]] = field(default_factory=dict)
    gone: dict[str, list[str]] = field(default_factory=dict)


def drawn_history(rng: random.Random, catalog: Catalog) -> tuple[list[Batch], Content]:
    """Writes that leave several fragments and deleted rows, and what is there afterwards."""
    content: Content = {key: {} for key in catalog.tables()}
    first = _appended(rng, catalog, content, nodes=4, edges=5)
    second = _appended(rng, catalog, content, nodes=3, edges=6, counted=True)
    batches = [first, second, *_deleted(rng, catalog, content)]
    for _ in range(rng.randrange(3)):
        batches += _replaced(rng, catalog, content)
    return [each for each in batches if each.rows or each.gone], content


def _appended(
    rng: random.Random,
    catalog: Catalog,
    content: Content,
    *,
    nodes: int,
    edges: int,
    counted: bool = False,
) -> Batch:
    batch = Batch()
    for key, declared in catalog.tables().items():
        if isinstance(declared, NodeType):
            wanted = rng.randint(0, nodes)
        else:
            minimum = declared.cardinality.minimum
            wanted = rng.randint(0, edges) if minimum < 2 and (counted or not minimum) else 0
        for _ in range(wanted):
            row = drawn_row(rng, catalog, declared, content)
            if row is not None:
                content[key][row["id"]] = row
                batch.rows.setdefault(declared.name, []).append(as_input(declared, row))
    return batch


def as_input(declared: NodeType | EdgeType, row: Row) -> Row:
    """A row as it is handed in: an id that is made of the key is left out."""
    keyed = isinstance(declared, NodeType) and declared.key is not None
    return {name: value for name, value in row.items() if not keyed or name != "id"}


def drawn_row(
    rng: random.Random, catalog: Catalog, declared: NodeType | EdgeType, content: Content
) -> Row | None:
    """A new row that keeps every rule; None if none is found."""
    for _ in range(20):
        row: Row = {each.name: drawn_value(rng, each) for each in declared.properties.values()}
        if isinstance(declared, EdgeType):
            ends = [[*content[f"node:{each}"]] for each in (declared.source, declared.target)]
            if not all(ends):
                return None
            row |= {"src": rng.choice(ends[0]), "dst": rng.choice(ends[1])}
        row["id"] = _identified(rng, declared, row)
        if row["id"] and is_allowed(catalog, content, declared, row):
            return row
    return None


def is_allowed(catalog: Catalog, content: Content, declared: NodeType | EdgeType, row: Row) -> bool:
    """Whether a row of a new id keeps every rule beside the others."""
    [key] = [key for key, each in catalog.tables().items() if each is declared]
    if row["id"] in content[key]:
        return False
    return not any(offences(declared, {**content[key], row["id"]: row}, key))


def _identified(rng: random.Random, declared: NodeType | EdgeType, row: Row) -> str:
    if isinstance(declared, EdgeType) or declared.key is None:
        return f"{declared.name.lower()}{rng.randrange(10**6)}"
    values = [row[each] for each in declared.key.properties]
    if any(isinstance(each, float) and not math.isfinite(each) for each in values):
        return ""
    return node_id(declared, row)


def drawn_value(rng: random.Random, each: Property) -> Any:
    if (each.nullable or each.embed is not None) and rng.random() < 0.3:
        return None
    if isinstance(each.type, EnumType):
        return rng.choice(each.type.values)
    return rng.choice(VALUES[shown(each.type)])


def _deleted(rng: random.Random, catalog: Catalog, content: Content) -> Iterator[Batch]:
    """Some nodes and edges, none of which leaves a source with too few edges."""
    held: set[tuple[str, str]] = set()
    for key, declared in catalog.tables().items():
        if isinstance(declared, EdgeType) and declared.cardinality.minimum:
            for row in content[key].values():
                held |= {
                    (declared.source.only, row["src"]),
                    (declared.target.only, row["dst"]),
                    (declared.name, row["id"]),
                }
    gone: dict[str, list[str]] = {}
    for key, declared in catalog.tables().items():
        for name in [*content[key]]:
            if (declared.name, name) not in held and rng.random() < 0.2:
                gone.setdefault(declared.name, []).append(name)
                del content[key][name]
    for key, declared in catalog.tables().items():
        if isinstance(declared, EdgeType):
            ends = content[f"node:{declared.source}"], content[f"node:{declared.target}"]
            content[key] = {
                name: row
                for name, row in content[key].items()
                if row["src"] in ends[0] and row["dst"] in ends[1]
            }
    yield Batch(gone=gone)


def _replaced(rng: random.Random, catalog: Catalog, content: Content) -> Iterator[Batch]:
    """Another row in the place of one of its id, for some types."""
    batch = Batch(mode="replace")
    for key, declared in catalog.tables().items():
        if not content[key] or rng.random() < 0.4:
            continue
        old = content[key][rng.choice([*content[key]])]
        fixed = {"id", "src", "dst"}
        if isinstance(declared, NodeType) and declared.key is not None:
            fixed |= set(declared.key.properties)
        for _ in range(10):
            row = {
                name: old[name] if name in fixed else drawn_value(rng, declared.properties[name])
                for name in old
            }
            if not any(offences(declared, {**content[key], row["id"]: row}, key)):
                content[key][row["id"]] = row
                batch.rows[declared.name] = [as_input(declared, row)]
                break
    yield batch


def spoilt(
    rng: random.Random, declared: NodeType | EdgeType, row: Row, content: Content, key: str
) -> Row | None:
    """The row with one value that breaks a rule of its type; None if no value does."""
    fixed = declared.key.properties if isinstance(declared, NodeType) and declared.key else ()
    names = [each for each in declared.properties if each not in fixed]
    rng.shuffle(names)
    for name in names:
        kind = declared.properties[name].type
        strange = ("zz",) if isinstance(kind, EnumType) else VALUES[shown(kind)]
        for value in (None, *strange):
            bad = {**row, name: value}
            if any(offences(declared, {**content[key], row["id"]: bad}, key)):
                return bad
    return None


def plain(content: Content) -> dict[str, dict[str, dict[str, str]]]:
    """Content that can be compared: NaN is itself, and both zeros differ."""
    return {
        key: {
            name: {column: _spelt(value) for column, value in row.items()}
            for name, row in rows.items()
        }
        for key, rows in content.items()
    }


def _spelt(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    return repr(value)
