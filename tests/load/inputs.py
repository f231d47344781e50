"""Files for tests of reading, and what came out of them in a form that is easy to compare."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake.load.formats.parse import parse_split
from omnigraph_lake.load.formats.records import (
    FileFormat,
    Parsed,
    ParsedRows,
    RefusedRecords,
    SourceFile,
    Split,
    SplitEnd,
)
from omnigraph_lake.load.formats.splits import plan_splits
from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.validation.input.intake import id_source
from tests.validation.graphs import counting_ids


@dataclass(slots=True)
class Outcome:
    """Everything a source says: rows by table key and place, refusals by place."""

    rows: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    refused: dict[int, dict[str, Any]] = field(default_factory=dict)
    lines: int = 0
    records: int = 0

    @property
    def reasons(self) -> dict[int, str]:
        return {place: each["reason"] for place, each in self.refused.items()}

    def messages(self) -> list[str]:
        return [each["message"] for each in self.refused.values()]


def outcome(parsed: Iterable[Parsed]) -> Outcome:
    """Collect what was parsed; checks what every source promises about its parts."""
    found = Outcome()
    ended = False
    for each in parsed:
        assert not ended, "the end comes last"
        if isinstance(each, ParsedRows):
            places = each.places.to_pylist()
            assert places == sorted(places)
            assert len(places) == len(each.rows) > 0
            each.rows.validate(full=True)
            rows = dict(zip(places, plain_rows(each.rows), strict=True))
            found.rows.setdefault(each.table_key, {}).update(rows)
        elif isinstance(each, RefusedRecords):
            found.refused.update({row.pop("place"): row for row in each.table.to_pylist()})
        elif isinstance(each, SplitEnd):
            ended = True
            found.lines, found.records = each.lines, each.records
    assert ended
    assert found.records == sum(map(len, found.rows.values())) + len(found.refused)
    return found


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with dates as texts, because Python has no year 0."""
    columns = {
        name: column.cast(_plain_type(column.type)).to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pat.is_list(kind) and pat.is_temporal(kind.value_type):
        return pa.list_(pa.string())
    return pa.string() if pat.is_temporal(kind) else kind


def written(path: Path, content: bytes, **more: Any) -> SourceFile:
    """A file with this content, as a source."""
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    formats = {".csv": FileFormat.CSV, ".parquet": FileFormat.PARQUET}
    return SourceFile(
        path=str(path),
        format=formats.get(Path(str(path).removesuffix(".gz")).suffix, FileFormat.JSONL),
        size=path.stat().st_size,
        gzipped=path.suffix == ".gz",
        **more,
    )


def whole(file: SourceFile) -> Split:
    """The one split of a small file."""
    (split,) = plan_splits([file])
    return split


def loaded(
    path: Path,
    content: bytes,
    catalog: Catalog,
    *,
    type_name: str | None = None,
    columns: Mapping[str, str] | None = None,
    **more: Any,
) -> Outcome:
    """Write a file and parse it as one split."""
    file = written(path, content, type_name=type_name, columns=columns or {})
    new_ids = id_source(counting_ids())
    return outcome(parse_split(whole(file), catalog, new_ids=new_ids, **more))
