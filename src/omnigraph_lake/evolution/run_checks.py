"""Which checks of a schema change existing rows fail, how many rows, and the first of them.

Pieces are groups of fragments. Checks of single rows are answered by the pieces that read them.
Checks that compare rows exchange hashed keys: a piece sends every key of its rows once with the
number of rows that have it, the bucket of a key adds these numbers up, and a piece that has rows in
violation of a check reads its keys again to name them.

Invariants:
- A row is validated as in a write: by the same kernels where a row is checked alone, by the same
  hashes where rows are compared.
- The answer depends on the pinned rows alone, and not on fragments, pieces, buckets or the runner.
- Memory is bounded by a part of a piece and by one bucket. A value that all rows share is one key
  of every piece. The driver receives counts and a few ids.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import nsmallest
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.evolution.column_work import VERB, fragment_groups
from omnigraph_lake.evolution.plan import data_checks
from omnigraph_lake.evolution.plan.columns import FutureColumn, LiteralFill
from omnigraph_lake.evolution.table_changes import columns_read, future_values, sources_of
from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN
from omnigraph_lake.runner.key_hash import SEED_BYTES, hash_keys
from omnigraph_lake.runner.protocol import Hop, Runner, Sent, Stage, Task, require_answers
from omnigraph_lake.storage.lance.tables import find_entry, scan_fragments
from omnigraph_lake.validation.constraints import (
    CanonicalJson,
    InEnum,
    InRange,
    Matches,
    RowRule,
    TypeRules,
)
from omnigraph_lake.validation.hashed_keys import RoleKeys, group_keys, match_rows
from omnigraph_lake.validation.keyed_bucket import is_first
from omnigraph_lake.validation.row_checks import check_rows

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry

EXAMPLES_MAX: Final = 10
"""How many offenders are named; the others are only counted."""

KEYS_PER_BUCKET: Final = 2_000_000
# The number of a bucket has 16 bits.
_BUCKETS_MAX: Final = 1 << 16
_KEYS_HELD: Final = 1 << 20
# 12 to 16 bytes each: the JVM handles records of some hundred kB well, and larger ones badly.
_KEYS_PER_MESSAGE: Final = 8192
_PIECE_BITS: Final = 32
_SECOND_BYTES: Final = 4

ValueCheck: TypeAlias = (
    data_checks.ValuesInRange
    | data_checks.ValuesMatch
    | data_checks.ValuesInSet
    | data_checks.ValuesAreJson
)
FoundCheck: TypeAlias = data_checks.NoNulls | data_checks.NoEndsOf
"""A check whose violations Lance finds by a condition while it reads."""
RowCheck: TypeAlias = data_checks.TableIsEmpty | FoundCheck | ValueCheck
"""A check that looks at one row at a time, so that any part of a table can be checked alone."""

GroupCheck: TypeAlias = data_checks.TupleIsUnique | data_checks.EdgesPerSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Offenders:
    """The rows that fail a check: how many, and the smallest of their ids, ascending.

    Of `TupleIsUnique` they are all rows whose values another row has too. Of `EdgesPerSource` they
    are sources, not edges.
    """

    check: data_checks.DataCheck
    rows: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowPiece:
    """Some fragments of a table, and the checks of their single rows."""

    entry: TableEntry
    checks: tuple[RowCheck, ...]
    fragments: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyPiece:
    """Some fragments of a table whose rows are compared, and the number of the check."""

    entry: TableEntry
    check: int
    fragments: tuple[int, ...] = field(repr=False)


class _Tally(msgspec.Struct, array_like=True):
    """The number of ids, and the smallest of them."""

    rows: int = 0
    examples: list[str] = []

    def add(self, ids: pa.StringArray) -> None:
        self.rows += len(ids)
        if len(ids):
            first = ids.take(pc.bottom_k_unstable(ids, min(EXAMPLES_MAX, len(ids))))
            self.examples = nsmallest(EXAMPLES_MAX, [*self.examples, *first.to_pylist()])


def failed_checks(
    runner: Runner, root: Root, snapshot: Snapshot, checks: Sequence[data_checks.DataCheck]
) -> tuple[Offenders, ...]:
    """The checks that the rows of a snapshot fail, in the order given; none if all hold.

    All checks of single rows are one step of the runner, and all that compare rows another.

    Raises:
        NotFoundError: the snapshot has no table that a check names.
        StorageUnavailableError: rows could not be read, or there is no room to compare them.
    """
    results = [
        *_row_offenders(runner, root, snapshot, checks),
        *_group_offenders(runner, root, snapshot, checks),
    ]
    by_check: dict[data_checks.DataCheck, list[_Tally]] = {check: [] for check in checks}
    for check, tally in results:
        by_check[check].append(tally)
    combined = (_combine(check, tallies) for check, tallies in by_check.items())
    return tuple(offenders for offenders in combined if offenders.rows)


def _combine(check: data_checks.DataCheck, tallies: Sequence[_Tally]) -> Offenders:
    examples = (example for tally in tallies for example in tally.examples)
    return Offenders(
        check=check,
        rows=sum(tally.rows for tally in tallies),
        examples=tuple(nsmallest(EXAMPLES_MAX, examples)),
    )


def _is_group_check(check: data_checks.DataCheck) -> TypeGuard[GroupCheck]:
    """Whether a check compares rows with each other."""
    return isinstance(check, GroupCheck)


def _row_offenders(
    runner: Runner, root: Root, snapshot: Snapshot, checks: Sequence[data_checks.DataCheck]
) -> Iterator[tuple[RowCheck, _Tally]]:
    by_table: dict[str, dict[RowCheck, None]] = {}
    for check in checks:
        if not isinstance(check, GroupCheck):
            by_table.setdefault(check.table, {})[check] = None
    pieces = [
        _RowPiece(entry=entry, checks=tuple(table_checks), fragments=group)
        for table, table_checks in by_table.items()
        for entry in [find_entry(root, snapshot, table)]
        for group in fragment_groups(root, entry)
    ]
    stage = Stage(verb=VERB, name="check rows")
    answers = runner.map(stage, pieces, partial(_check_piece, root), list[_Tally])
    for piece, tallies in zip(pieces, require_answers(answers), strict=True):
        yield from zip(piece.checks, tallies, strict=True)


def _check_piece(root: Root, piece: _RowPiece, task: Task) -> list[_Tally]:
    """Check the rows of some fragments; one answer per check, also where it holds.

    Nulls and types of ends are found by Lance while it reads, one pass per check; all other checks
    share one pass.
    """
    tallies = {check: _Tally() for check in piece.checks}
    found_checks = [check for check in piece.checks if isinstance(check, FoundCheck)]
    other_checks = [check for check in piece.checks if not isinstance(check, FoundCheck)]
    if other_checks:
        read_columns = columns_read(
            column for other_check in other_checks for column in _columns(other_check)
        )
        for batch in _scan(root, piece, (ID_COLUMN, *read_columns), task):
            for other_check in other_checks:
                tallies[other_check].add(_broken(other_check, batch))
    for check in found_checks:
        if isinstance(check, data_checks.NoEndsOf) or not _is_never_null(check):
            where = _condition(check)
            for batch in _scan(root, piece, (ID_COLUMN,), task, where=where):
                tallies[check].add(batch.column(ID_COLUMN))
    return list(tallies.values())


def _scan(
    root: Root,
    piece: _RowPiece | _KeyPiece,
    columns: Iterable[str],
    task: Task,
    *,
    where: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Some columns, each once, of the rows of a piece."""
    wanted = tuple(dict.fromkeys(columns))
    for batch in scan_fragments(root, piece.entry, piece.fragments, columns=wanted, where=where):
        task.advance(rows=batch.num_rows)
        yield batch


def _columns(check: data_checks.TableIsEmpty | ValueCheck) -> tuple[FutureColumn, ...]:
    return () if isinstance(check, data_checks.TableIsEmpty) else (check.column,)


def _broken(check: data_checks.TableIsEmpty | ValueCheck, batch: pa.RecordBatch) -> pa.StringArray:
    """The ids of rows that fail a check."""
    ids = batch.column(ID_COLUMN)
    if isinstance(check, data_checks.TableIsEmpty):
        return ids
    rows = future_values(batch, (check.column,)).add_column(0, ID_COLUMN, ids)
    rules = TypeRules(table_key=check.table, row_rules=(_rule(check),), keyed_rules=())
    bad = check_rows(rows, rules)
    return ids.take(bad[0].rows) if bad else ids.slice(0, 0)


def _rule(check: ValueCheck) -> RowRule:
    """The rule by which a write validates the same values."""
    name = check.column.name
    match check:
        case data_checks.ValuesInRange():
            return InRange(column=name, low=check.low, high=check.high)
        case data_checks.ValuesMatch():
            return Matches(column=name, pattern=check.pattern)
        case data_checks.ValuesInSet():
            return InEnum(column=name, values=check.values)
        case data_checks.ValuesAreJson():
            return CanonicalJson(column=name)
        case _:
            assert_never(check)


def _is_never_null(check: data_checks.NoNulls) -> bool:
    return any(isinstance(null_column.fill, LiteralFill) for null_column in _null_columns(check))


def _condition(check: FoundCheck) -> str | None:
    """True for a row that violates a check; None if that is every row."""
    if isinstance(check, data_checks.NoEndsOf):
        return f"`{check.column}` IN ({', '.join(map(str, check.numbers))})"
    sources = dict.fromkeys(
        name for null_column in _null_columns(check) for name in sources_of(null_column)
    )
    return " AND ".join(f"`{name}` IS NULL" for name in sources) or None


def _null_columns(check: data_checks.NoNulls) -> tuple[FutureColumn, ...]:
    if check.unless_present is None:
        return (check.column,)
    return (check.column, check.unless_present)


class _Keys(msgspec.Struct, frozen=True, array_like=True):
    """Hashes of different keys, of one piece or for one piece, as bytes of the arrays they are."""

    piece: int
    first: bytes
    second: bytes
    counts: bytes = b""
    """The number of rows by key; empty if each has one."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Keys)


def _group_offenders(
    runner: Runner, root: Root, snapshot: Snapshot, checks: Sequence[data_checks.DataCheck]
) -> Iterator[tuple[GroupCheck, _Tally]]:
    group_checks = tuple(dict.fromkeys(filter(_is_group_check, checks)))
    entries = {check.table: find_entry(root, snapshot, check.table) for check in group_checks}
    groups = {table: fragment_groups(root, entry) for table, entry in entries.items()}
    pieces = tuple(
        _KeyPiece(entry=entries[check.table], check=number, fragments=group)
        for number, check in enumerate(group_checks)
        if _has_keys(check)
        for group in groups[check.table]
    )
    if not pieces:
        return
    keys = sum(entries[check.table].row_count for check in group_checks)
    comparison = _Comparison(
        root=root,
        checks=group_checks,
        pieces=pieces,
        buckets=min(_BUCKETS_MAX, max(1, -(-keys // KEYS_PER_BUCKET))),
        seed=secrets.token_bytes(SEED_BYTES),
    )
    answers = runner.exchange(
        Stage(verb=VERB, name="compare rows"),
        pieces,
        comparison.send_keys,
        Hop(partitions=comparison.buckets, receive=comparison.find_violations),
        Hop(partitions=len(pieces), receive=comparison.name_rows),
    )
    for number, tally in answers:
        check = group_checks[pieces[number].check]
        yield check, msgspec.msgpack.decode(tally, type=_Tally)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """The exchange of keys of all checks that compare rows."""

    root: Root
    checks: tuple[GroupCheck, ...]
    pieces: tuple[_KeyPiece, ...] = field(repr=False)
    buckets: int
    seed: bytes = field(repr=False)

    def send_keys(self, piece: _KeyPiece, task: Task) -> Iterator[Sent]:
        """The keys of a piece to their buckets, each once for every part of the piece."""
        for keys, _ in self._read(piece, task, with_names=False):
            different_keys, counts = _count_keys(keys)
            buckets = (different_keys.first % np.uint64(self.buckets)).astype(np.uint16)
            for bucket, positions in _divide(buckets):
                chosen_counts = None if counts is None else counts[positions]
                yield bucket, _encode(task.number, different_keys.filter(positions), chosen_counts)

    def find_violations(self, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
        """The keys of a bucket that violate their check, to the pieces that have them."""
        by_check: dict[int, list[_Keys]] = {}
        for message in messages:
            sent = _DECODER.decode(message)
            by_check.setdefault(self.pieces[sent.piece].check, []).append(sent)
        for number in sorted(by_check):
            task.advance()
            yield from _violations(self.checks[number], by_check.pop(number))

    def name_rows(self, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
        """The rows of a piece whose keys violate its check, or the sources that do."""
        sent = [_DECODER.decode(message) for message in messages]
        if not sent:
            return
        violations = _decode(sent)
        piece = self.pieces[task.number]
        tally = _Tally()
        is_named = np.zeros(len(violations), np.bool_)
        for keys, names in self._read(piece, task, with_names=True):
            positions, rows = match_rows(violations, keys)
            match self.checks[piece.check]:
                case data_checks.TupleIsUnique():
                    pass
                case data_checks.EdgesPerSource():
                    rows = rows[is_first(positions, len(violations)) & ~is_named[positions]]
                    is_named[positions] = True
                case check:
                    assert_never(check)
            tally.add(names.take(pa.array(rows)))
        yield task.number, _ENCODER.encode(tally)

    def _read(
        self, piece: _KeyPiece, task: Task, *, with_names: bool
    ) -> Iterator[tuple[RoleKeys, pa.StringArray]]:
        """Keys of the rows that are not exempt, in parts, with the ids that name them if wanted."""
        check = self.checks[piece.check]
        hashes: list[tuple[np.ndarray, np.ndarray]] = []
        names: list[pa.StringArray] = []
        for batch in _scan(self.root, piece, _columns_read(check, with_names=with_names), task):
            batch_hashes = hash_keys(_key_columns(check, batch), self.seed)
            first, second, present = batch_hashes.first, batch_hashes.second, batch_hashes.present
            ids = batch.column(_name_column(check)) if with_names else _NO_NAMES
            if present is not None:
                first, second = first[present], second[present]
                ids = ids.filter(pa.array(present)) if with_names else ids
            hashes.append((first, second))
            names.append(ids)
            if sum(len(part) for part, _ in hashes) >= _KEYS_HELD:
                yield _join_hashes(task.number, hashes), pa.concat_arrays(names)
                hashes, names = [], []
        if hashes:
            yield _join_hashes(task.number, hashes), pa.concat_arrays(names)


_NO_NAMES: Final = pa.array([], pa.string())


def _columns_read(check: GroupCheck, *, with_names: bool) -> tuple[str, ...]:
    match check:
        case data_checks.TupleIsUnique():
            columns = columns_read(check.columns)
            return (ID_COLUMN, *columns) if with_names or not columns else columns
        case data_checks.EdgesPerSource():
            types = () if check.source_type is None else (check.source_type,)
            return (SOURCE_COLUMN, *columns_read(types))
        case _:
            assert_never(check)


def _key_columns(check: GroupCheck, batch: pa.RecordBatch) -> list[pa.Array]:
    match check:
        case data_checks.TupleIsUnique():
            columns: list[pa.Array] = future_values(batch, check.columns).columns
            return columns
        case data_checks.EdgesPerSource():
            types = () if check.source_type is None else (check.source_type,)
            return [batch.column(SOURCE_COLUMN), *future_values(batch, types).columns]
        case _:
            assert_never(check)


def _name_column(check: GroupCheck) -> str:
    return SOURCE_COLUMN if isinstance(check, data_checks.EdgesPerSource) else ID_COLUMN


def _has_keys(check: GroupCheck) -> bool:
    """Whether any row has a key: a null exempts it."""
    return isinstance(check, data_checks.EdgesPerSource) or not any(
        column.is_null for column in check.columns
    )


def _is_violation(check: GroupCheck, rows: np.ndarray) -> np.ndarray:
    """Whether a key violates a check, by the number of rows that have it."""
    violates: np.ndarray
    match check:
        case data_checks.TupleIsUnique():
            violates = rows > 1
        case data_checks.EdgesPerSource():
            violates = rows < check.minimum
            if check.maximum is not None:
                violates |= rows > check.maximum
        case _:
            assert_never(check)
    return violates


def _violations(check: GroupCheck, sent: Sequence[_Keys]) -> Iterator[Sent]:
    """The keys of one bucket that violate a check, to pieces that have them.

    Every piece is sent its repeated tuples, since it has some of the rows; only one piece is sent a
    source, because it is named once.
    """
    keys, counts = _decode(sent), _decode_counts(sent)
    is_unique = isinstance(check, data_checks.TupleIsUnique)
    if is_unique and counts is None and not _has_repeats(keys.first):
        return
    count, (numbers,) = group_keys((keys,))
    rows = np.bincount(numbers, counts, minlength=count)
    chosen = np.flatnonzero(_is_violation(check, rows)[numbers])
    # By key, then by piece.
    pairs = (numbers[chosen].astype(np.uint64) << np.uint64(_PIECE_BITS)) | keys.rows[chosen]
    order = np.argsort(pairs)
    pairs, chosen = pairs[order], chosen[order]
    named = pairs if is_unique else pairs >> np.uint64(_PIECE_BITS)
    is_first = np.ones(len(named), np.bool_)
    is_first[1:] = named[1:] != named[:-1]
    violations = keys.filter(chosen[is_first])
    for piece, positions in _divide(violations.rows):
        yield piece, _encode(piece, violations.filter(positions))


def _count_keys(keys: RoleKeys) -> tuple[RoleKeys, np.ndarray | None]:
    """The different keys, and the number of rows that have each; None if all are different."""
    if not _has_repeats(keys.first):
        return keys, None
    count, (numbers,) = group_keys((keys,))
    positions = np.empty(count, np.intp)
    positions[numbers] = np.arange(len(numbers))
    return keys.filter(positions), np.bincount(numbers, minlength=count)


def _has_repeats(hashes: np.ndarray) -> bool:
    """A sort of plain numbers costs a fraction of what grouping does, and usually decides."""
    ordered = np.sort(hashes)
    return bool((ordered[1:] == ordered[:-1]).any())


def _divide(targets: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """By target, the positions that have it, in parts of the size of a message."""
    order = np.argsort(targets, kind="stable")
    ordered = targets[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)])
    for start, end in pairwise([*starts.tolist(), len(ordered)]):
        for part in range(start, end, _KEYS_PER_MESSAGE):
            yield int(ordered[start]), order[part : min(part + _KEYS_PER_MESSAGE, end)]


def _encode(piece: int, keys: RoleKeys, counts: np.ndarray | None = None) -> bytes:
    sizes = b"" if counts is None else counts.astype(np.uint32).tobytes()
    return _ENCODER.encode(_Keys(piece, keys.first.tobytes(), keys.second.tobytes(), sizes))


def _decode(sent: Sequence[_Keys]) -> RoleKeys:
    """All keys, each with the number of its piece."""
    firsts = [np.frombuffer(keys.first, np.uint64) for keys in sent]
    pieces = np.array([keys.piece for keys in sent], np.uint64)
    return RoleKeys(
        first=np.concatenate(firsts),
        second=np.concatenate([np.frombuffer(keys.second, np.uint32) for keys in sent]),
        rows=np.repeat(pieces, [len(first) for first in firsts]),
    )


def _decode_counts(sent: Sequence[_Keys]) -> np.ndarray | None:
    """The number of rows of every key; None if each has one."""
    if not any(keys.counts for keys in sent):
        return None
    return np.concatenate(
        [
            np.frombuffer(keys.counts, np.uint32)
            if keys.counts
            else np.ones(len(keys.second) // _SECOND_BYTES, np.uint32)
            for keys in sent
        ]
    )


def _join_hashes(piece: int, hashes: Sequence[tuple[np.ndarray, np.ndarray]]) -> RoleKeys:
    """The keys of some batches, all with the number of their piece."""
    first, second = (np.concatenate(halves) for halves in zip(*hashes, strict=True))
    return RoleKeys(first=first, second=second, rows=np.broadcast_to(np.uint64(piece), len(first)))
