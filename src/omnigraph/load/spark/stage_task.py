"""Run the tasks that read input: parse a split, stage its rows as fragments, send their keys.

Values of an ordering column are sent as pairs of numbers that compare as the values do.

Invariants:
- A task writes rows only to files of their table. It returns hashes, counts and descriptions of
  files.
- Memory is bounded by the rows of one flush, for any size of a split.
- A row with the greater ordering value has the greater pair; a missing value is the smallest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph.failpoints import reach
from omnigraph.ids import FreshIds
from omnigraph.load.formats.records import Parsed, ParsedRows, RefusedRecords, SplitEnd
from omnigraph.load.report import OFFENDERS_MAX
from omnigraph.load.spark.load_plan import (
    FirstRefused,
    LoadPlan,
    SplitReport,
    key_columns,
    put_places,
    put_refused,
)
from omnigraph.names import ID_COLUMN
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.staging.bulk import StagedFragment, read_staged, write_rows
from omnigraph.validation.keyed_bucket import KeyBuckets, KeyPlan, Role, RoleKind, incoming_rows

_SIGN: Final = np.uint64(1 << 63)


def can_rank(kind: pa.DataType) -> bool:
    """Whether rows can be ordered by a column of this type."""
    return bool(
        pat.is_integer(kind)
        or pat.is_floating(kind)
        or pat.is_temporal(kind)
        or pat.is_boolean(kind)
    )


def rank_arrays(rows: pa.Table, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers per row: whether there is a value, and its rank among all values."""
    values = rows.column(column).combine_chunks()
    present = values.is_valid().to_numpy(zero_copy_only=False).astype(np.uint64)
    return present, _ranks(values)


def _ranks(values: pa.Array) -> np.ndarray:
    kind = values.type
    if pat.is_floating(kind):
        numbers = _plain(values.cast(pa.float64()), 0.0)
        # As the database of this process orders them: both zeros are equal, and every NaN is the
        # greatest, whatever its sign bit says.
        numbers[np.isnan(numbers)] = np.nan
        bits = (numbers + 0.0).view(np.uint64)
        return np.where(bits & _SIGN, ~bits, bits | _SIGN)
    if pat.is_unsigned_integer(kind):
        return _plain(values.cast(pa.uint64()), 0)
    if pat.is_date32(kind):
        values = values.cast(pa.int32())
    return _plain(values.cast(pa.int64()), 0).view(np.uint64) ^ _SIGN


def _plain(values: pa.Array, filler: float) -> np.ndarray:
    filled: np.ndarray = pc.fill_null(values, filler).to_numpy(zero_copy_only=False)
    return filled.copy()


FLUSH_BYTES: Final = 96 << 20
KEYS_TAG: Final = "keys"
SPLIT_TAG: Final = "split"


class KeySender:
    """Hashes the keys of rows of any table, role by role."""

    def __init__(self, plan: LoadPlan, keys: KeyPlan, *, generated: str | None) -> None:
        self._plan = plan
        self._buckets = KeyBuckets(plan.hashing)
        self._generated = generated
        self._roles: dict[str, list[tuple[int, Role]]] = {}
        for number, role in enumerate(keys.roles):
            if not role.pinned:
                self._roles.setdefault(role.table_key, []).append((number, role))

    def add(self, table_key: str, rows: pa.Table, numbers: np.ndarray) -> int:
        """Add rows; returns how many have an id in the input."""
        brought = len(rows)
        for number, role in self._roles[table_key]:
            if role.kind is RoleKind.ID:
                brought = self._add_ids(number, rows, numbers)
            else:
                self._buckets.add(number, [rows.column(name) for name in role.columns], numbers)
        return brought

    def buckets(self) -> Iterator[tuple[int, str, bytes]]:
        for bucket, blob in self._buckets.buckets():
            yield bucket, KEYS_TAG, blob

    def _add_ids(self, number: int, rows: pa.Table, numbers: np.ndarray) -> int:
        """Ids that were generated here are new by construction and need no comparison."""
        if self._generated is not None:
            is_generated = pc.starts_with(rows.column(ID_COLUMN), self._generated)
            if pc.any(is_generated).as_py():
                rows = rows.filter(pc.invert(is_generated))
                numbers = numbers[~is_generated.combine_chunks().to_numpy(zero_copy_only=False)]
        extras: tuple[np.ndarray, ...] = ()
        order_by = self._plan.order_by
        if order_by is not None and order_by in rows.column_names:
            extras = rank_arrays(rows, order_by)
        self._buckets.add(number, [rows.column(ID_COLUMN)], numbers, extras=extras)
        return len(rows)


class SplitStager:
    """Stages one split: from parsed records to fragments."""

    def __init__(self, plan: LoadPlan, keys: KeyPlan, split: int, *, source: str) -> None:
        self._plan = plan
        self._split = split
        self._source = source
        self.fresh_ids = FreshIds.of_task(at_milliseconds=plan.ids_at, lot=split)
        self._sender = KeySender(plan, keys, generated=self.fresh_ids.prefix)
        self._held: dict[str, list[pa.Table]] = {}
        self._held_bytes: Counter[str] = Counter()
        self._places: dict[str, list[np.ndarray]] = {}
        self._staged: dict[str, list[StagedFragment]] = {}
        self._rows: Counter[str] = Counter()
        self._brought: Counter[str] = Counter()
        self._refused: list[pa.Table] = []
        self._reasons: Counter[str] = Counter()
        self._first: list[FirstRefused] = []

    def run(self, parsed: Iterable[Parsed]) -> Iterator[tuple[int, str, bytes]]:
        end = SplitEnd(lines=0, records=0)
        for piece in parsed:
            match piece:
                case ParsedRows():
                    self._hold(piece)
                case RefusedRecords():
                    self._refuse(piece.table)
                case SplitEnd():
                    end = piece
                case _:
                    assert_never(piece)
        for table_key in tuple(self._held):
            self._flush(table_key)
        self._leave_files()
        make_durable(self._plan.root)
        reach("load.split_staged")
        yield from self._sender.buckets()
        yield self._split % self._plan.hashing.buckets, SPLIT_TAG, self._report(end)

    def _hold(self, parsed: ParsedRows) -> None:
        key = parsed.table_key
        self._held.setdefault(key, []).append(parsed.rows)
        self._held_bytes[key] += parsed.rows.nbytes
        self._places.setdefault(key, []).append(parsed.places.to_numpy())
        if self._held_bytes.total() > FLUSH_BYTES:
            (largest, _) = self._held_bytes.most_common(1)[0]
            self._flush(largest)

    def _flush(self, table_key: str) -> None:
        rows = pa.concat_tables(self._held.pop(table_key))
        del self._held_bytes[table_key]
        entry = self._plan.entries[table_key]
        self._staged.setdefault(table_key, []).extend(write_rows(self._plan.root, entry, rows))
        numbers = incoming_rows(self._split, self._rows[table_key], len(rows))
        self._brought[table_key] += self._sender.add(table_key, rows, numbers)
        self._rows[table_key] += len(rows)

    def _refuse(self, refused: pa.Table) -> None:
        self._reasons.update(refused.column("reason").to_pylist())
        if len(self._first) < OFFENDERS_MAX:
            shown = refused.slice(0, OFFENDERS_MAX - len(self._first))
            self._first += [
                FirstRefused(
                    refusal["place"], refusal["type"], refusal["reason"], refusal["message"]
                )
                for refusal in shown.select(["place", "type", "reason", "message"]).to_pylist()
            ]
        if self._plan.keep_refused:
            self._refused.append(refused)

    def _leave_files(self) -> None:
        plan = self._plan
        if self._refused:
            put_refused(plan.root, plan.operation_id, self._split, pa.concat_tables(self._refused))
        if self._places:
            places = {key: np.concatenate(parts) for key, parts in self._places.items()}
            put_places(plan.root, plan.operation_id, self._split, places)

    def _report(self, end: SplitEnd) -> bytes:
        return msgspec.msgpack.encode(
            SplitReport(
                split=self._split,
                source=self._source,
                lines=end.lines,
                records=end.records,
                refused=dict(self._reasons),
                first_refused=self._first,
                fragments={
                    key: [(fragment.description, fragment.rows) for fragment in staged]
                    for key, staged in self._staged.items()
                },
                given_ids=dict(self._brought),
                generated=self.fresh_ids.prefix,
            )
        )


def send_again(
    plan: LoadPlan,
    keys: KeyPlan,
    report: SplitReport,
    removed: Mapping[str, np.ndarray],
) -> Iterator[tuple[int, str, bytes]]:
    """Send the keys of a split that was staged before, without the rows refused since."""
    sender = KeySender(plan, keys, generated=report.generated)
    for table_key in report.fragments:
        columns = list(key_columns(plan, table_key))
        first = 0
        for fragment in report.staged(table_key):
            for batch in read_staged(plan.root, plan.entries[table_key], fragment, columns):
                rows = pa.Table.from_batches([batch])
                numbers = incoming_rows(report.split, first, len(rows))
                first += len(rows)
                is_removed = np.isin(numbers, removed.get(table_key, ()))
                if is_removed.any():
                    rows, numbers = rows.filter(pa.array(~is_removed)), numbers[~is_removed]
                sender.add(table_key, rows, numbers)
    yield from sender.buckets()
