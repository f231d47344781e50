"""The result of a merge as DataFrames, before a table is written.

Invariant: a table that the merge changes has its pinned rows, without those that are deleted or
replaced, and the decided rows; nothing is committed. So a violation is found before the merge can
be published, even by a recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph import names
from omnigraph.diff.spark_diff import Place, StagedFile, read_files
from omnigraph.merge.spark_tasks import minimum_of, removed
from omnigraph.runner.scan import SparkTables
from omnigraph.runner.session import without_noise
from omnigraph.runner.types import carried_schema, spark_schema, to_spark
from omnigraph.storage.lance.fragments import plan_scan, scan_fragments
from omnigraph.storage.lance.tables import find_entry
from omnigraph.validation.constraints import EndpointExists, TypeRules
from omnigraph.validation.integrity import BrokenRule
from omnigraph.validation.integrity_job import broken_rules_on_spark
from omnigraph.validation.reasons import Reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.storage.snapshot import Snapshot, TableEntry

_EXAMPLES_MAX: Final = 5
_ADDRESS: Final = names.LANCE_COLUMNS[1]
_Read = Callable[[Place, int], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """The effect of a merge on one table, in files: addresses by group, and decided rows."""

    groups: tuple[tuple[int, ...], ...] = field(repr=False)
    gone: Mapping[int, tuple[str, ...]] = field(repr=False)
    keyed: tuple[tuple[str, ...], ...] = field(repr=False)


class WouldBeGraph(SparkTables):
    """A snapshot with the changed tables; only columns that rules read can be read."""

    def __init__(
        self, spark: SparkSession, place: Place, snapshot: Snapshot, altered: Mapping[str, Altered]
    ) -> None:
        super().__init__(spark, place.root, snapshot)
        self._place = place
        self._altered = altered

    def table(
        self, table_key: str, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> DataFrame:
        altered = self._altered.get(table_key)
        if altered is None:
            return super().table(table_key, columns=columns, where=where)
        assert columns is not None
        assert where is None
        entry = find_entry(self.root, self.snapshot, table_key)
        stored = plan_scan(self.root, entry, columns=columns, where=None).schema.remove_metadata()
        count = len(altered.groups) + len(altered.keyed)
        return self._frame(count, _altered_rows(entry, altered, stored), stored)

    def sources(self, files: Sequence[str]) -> DataFrame:
        """Nodes that lose an edge, from the files that name them."""

        def rows(place: Place, number: int) -> Iterator[pa.RecordBatch]:
            return read_files(place, [files[number]])

        stored = pa.schema([pa.field(names.SOURCE_COLUMN, pa.string())])
        return self._frame(len(files), rows, stored).distinct()

    def _frame(self, count: int, read: _Read, stored: pa.Schema) -> DataFrame:
        place, carried = self._place, carried_schema(stored)

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for rows in read(place, number):
                        yield to_spark(rows, carried)

        with without_noise():
            numbers = self.spark.range(0, count, 1, max(1, count))
            return numbers.mapInArrow(task, spark_schema(stored))


def _altered_rows(entry: TableEntry, altered: Altered, stored: pa.Schema) -> _Read:
    """Remaining pinned rows, by group of fragments; then decided rows, by bucket."""

    def rows(place: Place, number: int) -> Iterator[pa.RecordBatch]:
        if number >= len(altered.groups):
            for batch in read_files(place, altered.keyed[number - len(altered.groups)]):
                yield batch.select(stored.names)
            return
        gone = removed(place, altered.gone.get(number, ()))
        columns = [*stored.names, _ADDRESS]
        group = altered.groups[number]
        for batch in scan_fragments(place.root, entry, group, columns=columns, where=None):
            stays = ~np.isin(batch.column(_ADDRESS).to_numpy(), gone)
            yield batch.select(stored.names).filter(pa.array(stays))

    return rows


def broken_by_merge(
    graph: WouldBeGraph,
    rules: Mapping[str, TypeRules],
    touched: frozenset[str],
    sources: Mapping[str, Sequence[StagedFile]],
) -> Iterator[BrokenRule]:
    """Keyed rules that the result violates, of changed tables and of edges to changed nodes."""
    asked = {
        key: each for key, each in rules.items() if key in touched or _nodes_of(each) & touched
    }
    nodes = {node for each in asked.values() for node in _nodes_of(each)}
    tables = {
        key: entry for key, entry in graph.snapshot.tables.items() if key in asked or key in nodes
    }
    whole = graph.snapshot
    graph.snapshot = replace(whole, tables=tables)
    try:
        yield from broken_rules_on_spark(graph, asked)
        for key, files in sources.items():
            yield from _abandoned(graph, rules[key], [each.path for each in files])
    finally:
        graph.snapshot = whole


def _nodes_of(rules: TypeRules) -> frozenset[str]:
    ends = [rule for rule in rules.keyed_rules if isinstance(rule, EndpointExists)]
    return frozenset(rule.node_key for rule in ends)


def _abandoned(graph: WouldBeGraph, rules: TypeRules, files: Sequence[str]) -> Iterator[BrokenRule]:
    """Remaining nodes that lose their last edge, although they need one."""
    rule = minimum_of(rules)
    if rule is None or not files:
        return
    source = names.SOURCE_COLUMN
    edges = graph.table(rules.table_key, columns=(source,))
    nodes = graph.table(rule.source_key, columns=(names.ID_COLUMN,))
    nodes = nodes.withColumnRenamed(names.ID_COLUMN, source)
    left = graph.sources(files).join(edges, source, "left_anti").join(nodes, source, "left_semi")
    count = left.count()
    if count:
        first = left.orderBy(source).limit(_EXAMPLES_MAX).collect()
        yield BrokenRule(
            table_key=rules.table_key,
            reason=Reason.TOO_FEW_EDGES,
            count=count,
            examples=tuple(str(row[0]) for row in first),
        )
