"""Merge the staged rows of one table with the pinned rows of their ids, in one exchange.

Staged and pinned ids meet in buckets; the matches go to their owners: a piece, whose rows are
written, known ones apart from new ones, or a pinned fragment, which loses its old rows.

Invariants:
- The driver receives descriptions and counts, never rows. Positions of refused rows are read where
  rows are read or excluded, in tasks.
- Fragments that were staged are published as they are. Refused rows among theirs are excluded by
  deletion files, which tasks write; no data file is written twice.
- A replaced row keeps its stable row id. Rows with a known id and new rows are written to separate
  fragments, because only the former keep their row ids. Fragments of a piece without known rows
  stay as they were staged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.names import ID_COLUMN, LANCE_COLUMNS
from omnigraph_lake.runner.key_hash import KeyHashes, hash_keys
from omnigraph_lake.runner.protocol import Hop, Runner, Sent, Stage, Task, require_answers
from omnigraph_lake.storage.lance.row_lineage import RowLineage
from omnigraph_lake.storage.lance.tables import grouped, plan_scan, scan_fragments
from omnigraph_lake.storage.lance.value_lookups import OneOf, look_up_values
from omnigraph_lake.storage.objects.durability import make_durable
from omnigraph_lake.storage.staging import bulk
from omnigraph_lake.validation.hashed_keys import (
    Hashing,
    KeyBuckets,
    RoleKeys,
    incoming_rows,
    match_rows,
    read_buckets,
    split_and_position,
)
from omnigraph_lake.validation.key_sets import StoredKeySet, collect_keys
from omnigraph_lake.validation.keyed_passes import PieceRefusals
from omnigraph_lake.validation.pinned_access import Access, choose_access

if TYPE_CHECKING:
    from omnigraph_lake.load.staging import StagedTable
    from omnigraph_lake.runner.shuffle import Scratch
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

_PINNED_ROWS_PER_PIECE: Final = 2_000_000
_IDS_SENT_TOGETHER: Final = 1_000_000
_ROWS_PER_OWNER: Final = 10_000
_OWNERS_MAX: Final = 4096
_STAGED, _PINNED = 0, 1
_ROW_ID, _ROW_ADDRESS, _, _CREATED_AT, _ = LANCE_COLUMNS
_SENT: Final = (ID_COLUMN, _ROW_ADDRESS, _ROW_ID, _CREATED_AT)


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceRows:
    """The rows of one table in one piece, and those of them that were refused."""

    number: int
    table_key: str
    table: StagedTable = field(repr=False)
    refused: tuple[PieceRefusals, ...] = field(repr=False, compare=False)

    @property
    def rows_kept(self) -> int:
        return self.table.rows - self.rows_refused

    @property
    def rows_refused(self) -> int:
        return sum(refused.count(self.table_key) for refused in self.refused)

    def positions_refused(self) -> np.ndarray:
        """Ascending."""
        parts = [refused.positions(self.table_key) for refused in self.refused]
        return np.sort(np.concatenate([np.empty(0, np.uint32), *parts]))

    def fingerprint(self) -> bytes:
        """Equal only if the same rows are refused."""
        return b"".join(refused.fingerprint(self.table_key) for refused in self.refused)

    def kept(
        self, root: Root, entry: TableEntry, columns: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Positions and rows that were not refused."""
        refused = self.positions_refused() if self.rows_refused else None
        first = 0
        for batch in self.table.read(root, entry, columns):
            positions = np.arange(first, first + len(batch), dtype=np.uint32)
            first += len(batch)
            if refused is None:
                yield positions, batch
                continue
            is_kept = ~np.isin(positions, refused)
            yield positions[is_kept], batch.filter(pa.array(is_kept))


class _KeptFragments(msgspec.Struct, frozen=True, array_like=True):
    """Descriptions, and how many rows each has and how many of them are excluded."""

    fragments: list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exclude:
    """Exclude the refused rows of a piece; its fragments are numbered from `first` on."""

    piece: PieceRows
    first: int


def gather_fragments(
    runner: Runner, root: Root, entry: TableEntry, pieces: Sequence[PieceRows], *, verb: str
) -> tuple[bulk.StagedFragment, ...]:
    """The fragments of pieces that were not spooled, without the refused rows."""
    work: list[_Exclude] = []
    first = bulk.next_fragment_id(root, entry) if any(piece.rows_refused for piece in pieces) else 0
    for piece in pieces:
        if piece.rows_refused:
            work.append(_Exclude(piece=piece, first=first))
        first += len(piece.table.fragments)
    stage = Stage(verb=verb, type=entry.table_key.partition(":")[2], name="exclude refused rows")
    answers = (
        runner.map(stage, work, partial(_exclude, root, entry), _KeptFragments) if work else ()
    )
    excluding = iter(require_answers(answers))
    fragments: list[bulk.StagedFragment] = []
    for piece in pieces:
        if piece.rows_refused:
            fragments += [
                bulk.StagedFragment(description=description, rows=rows, rows_excluded=excluded)
                for description, rows, excluded in next(excluding).fragments
            ]
        else:
            fragments += piece.table.staged_fragments()
    return tuple(fragments)


def _exclude(root: Root, entry: TableEntry, work: _Exclude, task: Task) -> _KeptFragments:
    refused = work.piece.positions_refused()
    kept: list[tuple[str, int, int]] = []
    first = 0
    for number, fragment in enumerate(work.piece.table.staged_fragments(), work.first):
        start, end = np.searchsorted(refused, [first, first + fragment.rows])
        first += fragment.rows
        excluding = bulk.exclude(
            root, entry, fragment, (refused[start:end] - (first - fragment.rows)), number
        )
        task.advance(rows=excluding.rows_excluded)
        kept.append((excluding.description, excluding.rows, excluding.rows_excluded))
    make_durable(root)
    return _KeptFragments(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertTarget:
    """The table that rows are merged into."""

    root: Root
    entry: TableEntry
    schema: pa.Schema = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """The effect of a merge on one table."""

    inserted: tuple[bulk.StagedFragment, ...]
    replacing: tuple[bulk.StagedFragment, ...]
    shrunk: tuple[bulk.Shrunk, ...]


class _Match(msgspec.Struct, frozen=True, array_like=True):
    """Positions in a piece with what their rows keep, or offsets in a fragment."""

    positions: bytes
    row_ids: bytes = b""
    created_at: bytes = b""
    fragment: int = -1


class _OwnerResult(msgspec.Struct, frozen=True):
    owner: int
    inserted: list[tuple[str, int]] = []
    replacing: list[tuple[str, int]] = []
    shrunk: list[tuple[int, str | None, int]] = []
    """Fragments, what is left of each, and how many rows it loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ids:
    """Ids that a task sends: of a piece, of some pinned fragments, or of those in a filter."""

    piece: PieceRows | None = None
    fragments: tuple[int, ...] = ()
    where: OneOf | None = None


class _UpsertTasks:
    """The tasks of one merge; owners are pieces, then pinned fragments."""

    def __init__(
        self,
        target: UpsertTarget,
        pieces: Sequence[PieceRows],
        fragments: int,
        hashing: Hashing,
        staged: StoredKeySet | None = None,
    ) -> None:
        self._root = target.root
        self._entry = target.entry
        self._schema = target.schema
        self._hashing = hashing
        self._staged = staged
        self._pieces = tuple(pieces)
        self._piece_owners = {piece.number: owner for owner, piece in enumerate(self._pieces)}
        # A small merge touches few of the fragments, so they share owners.
        rows = sum(piece.rows_kept for piece in self._pieces)
        self._fragment_owners = min(fragments, max(1, rows // _ROWS_PER_OWNER), _OWNERS_MAX)

    @property
    def owners(self) -> int:
        return len(self._pieces) + self._fragment_owners

    def send(self, ids: _Ids, task: Task) -> Iterator[Sent]:
        buckets = KeyBuckets(self._hashing)
        if ids.piece is not None:
            for positions, batch in ids.piece.kept(self._root, self._entry, [ID_COLUMN]):
                task.advance(rows=len(batch))
                numbers = positions | incoming_rows(ids.piece.number, 0, 1)
                buckets.add(_STAGED, [batch.column(0)], numbers)
                if buckets.count > _IDS_SENT_TOGETHER:
                    yield from buckets.buckets()
        only = None if self._staged is None else self._staged.read()
        for batch in self._read_pinned(ids):
            task.advance(rows=len(batch))
            addresses, *kept_numbers = (batch.column(name).to_numpy() for name in _SENT[1:])
            buckets.add(
                _PINNED,
                [batch.column(ID_COLUMN)],
                addresses,
                extras=tuple(kept_numbers),
                only=only,
            )
            if buckets.count > _IDS_SENT_TOGETHER:
                yield from buckets.buckets()
        yield from buckets.buckets()

    def _read_pinned(self, ids: _Ids) -> Iterator[pa.RecordBatch]:
        if ids.where is not None:
            yield from look_up_values(self._root, self._entry, _SENT, ids.where)
        elif ids.fragments:
            yield from scan_fragments(
                self._root, self._entry, ids.fragments, columns=_SENT, where=None
            )

    def hashes(self, piece: PieceRows, task: Task) -> Iterator[tuple[int, KeyHashes]]:
        """The hashes of the ids of a piece."""
        for _, batch in piece.kept(self._root, self._entry, [ID_COLUMN]):
            task.advance()
            yield 0, hash_keys([batch.column(0)], self._hashing.seed)

    def match(self, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
        for keys in read_buckets(messages, self._hashing, task):
            task.advance()
            if len(keys) == 2:
                yield from self._match_bucket(keys)

    def _match_bucket(self, keys: Mapping[int, RoleKeys]) -> Iterator[Sent]:
        staged, pinned = keys[_STAGED], keys[_PINNED]
        staged_matches, pinned_matches = match_rows(staged, pinned)
        row_ids, created_at = (numbers[pinned_matches] for numbers in pinned.extras)
        pieces, positions = split_and_position(staged.rows[staged_matches])
        for piece in np.unique(pieces).tolist():
            here = pieces == piece
            match = _Match(
                positions[here].tobytes(), row_ids[here].tobytes(), created_at[here].tobytes()
            )
            yield self._piece_owners[piece], msgspec.msgpack.encode(match)
        fragments, offsets = split_and_position(pinned.rows[pinned_matches])
        for fragment in np.unique(fragments).tolist():
            match = _Match(offsets[fragments == fragment].tobytes(), fragment=fragment)
            owner = len(self._pieces) + fragment % self._fragment_owners
            yield owner, msgspec.msgpack.encode(match)

    def write(self, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
        task.advance()
        owner = task.number
        matches = [msgspec.msgpack.decode(content, type=_Match) for content in messages]
        is_piece = owner < len(self._pieces)
        if not matches and not (is_piece and self._pieces[owner].table.spooled):
            return
        if is_piece:
            lineage = RowLineage(
                row_ids=_joined([match.row_ids for match in matches], np.uint64),
                created_at=_joined([match.created_at for match in matches], np.uint64),
            )
            positions = _joined([match.positions for match in matches], np.uint32)
            result = self._rewrite(owner, positions, lineage, task)
        else:
            result = _OwnerResult(owner=owner, shrunk=list(self._shrink(matches, task)))
        make_durable(self._root)
        yield owner, msgspec.msgpack.encode(result)

    def _shrink(
        self, matches: Sequence[_Match], task: Task
    ) -> Iterator[tuple[int, str | None, int]]:
        """Remove the replaced rows from their fragments."""
        offsets: dict[int, list[bytes]] = {}
        for match in matches:
            offsets.setdefault(match.fragment, []).append(match.positions)
        for fragment, parts in sorted(offsets.items()):
            task.advance()
            lost = bulk.shrink(
                self._root, self._entry, fragment, np.sort(_joined(parts, np.uint32))
            )
            yield fragment, lost.description, lost.rows_lost

    def _rewrite(
        self, owner: int, positions: np.ndarray, lineage: RowLineage, task: Task
    ) -> _OwnerResult:
        """Write a piece's rows, known ones apart from new ones."""
        order = np.argsort(positions)
        positions, lineage = positions[order], lineage.take(order)
        known: list[pa.RecordBatch] = []
        new: list[pa.RecordBatch] = []
        for numbers, batch in self._pieces[owner].kept(self._root, self._entry, self._schema.names):
            is_known = pa.array(np.isin(numbers, positions))
            known.append(batch.filter(is_known))
            new.append(batch.filter(pc.invert(is_known)))
        replacements = pa.Table.from_batches(known).cast(self._schema)
        fresh = pa.Table.from_batches(new).cast(self._schema)
        replacing = (
            bulk.write_replacements(self._root, self._entry, replacements, lineage)
            if len(replacements)
            else ()
        )
        inserted = bulk.write_rows(self._root, self._entry, fresh) if len(fresh) else ()
        task.advance(written=bulk.count_bytes((*inserted, *replacing)))
        return _OwnerResult(
            owner=owner,
            inserted=[(fragment.description, fragment.rows) for fragment in inserted],
            replacing=[(fragment.description, fragment.rows) for fragment in replacing],
        )

    def untouched(self, results: Mapping[int, _OwnerResult]) -> list[PieceRows]:
        """The pieces without known rows, whose fragments stay as they were staged."""
        return [piece for owner, piece in enumerate(self._pieces) if owner not in results]

    def gather(
        self, results: Mapping[int, _OwnerResult], untouched: Iterable[bulk.StagedFragment]
    ) -> Upsert:
        return Upsert(
            inserted=(*untouched, *_fragments(result.inserted for result in results.values())),
            replacing=tuple(_fragments(result.replacing for result in results.values())),
            shrunk=tuple(
                bulk.Shrunk(fragment_id=fragment, description=description, rows_lost=rows_lost)
                for result in results.values()
                for fragment, description, rows_lost in result.shrunk
            ),
        )


def upsert(
    runner: Runner,
    target: UpsertTarget,
    pieces: Sequence[PieceRows],
    *,
    stage: Stage,
    scratch: Scratch | None,
) -> Upsert:
    """Match one table's staged rows with its pinned ones, and write what has to be written."""
    root, entry = target.root, target.entry
    scan = plan_scan(root, entry, columns=[ID_COLUMN], where=None)
    groups = grouped(scan.fragments, rows_max=_PINNED_ROWS_PER_PIECE)
    rows = sum(piece.rows_kept for piece in pieces)
    access = choose_access(rows=rows, keys=rows, pinned=entry.row_count)
    hashing = Hashing.for_keys(rows + (entry.row_count if access is Access.SCAN else 0))
    make_tasks = partial(_UpsertTasks, target, pieces, sum(map(len, groups)), hashing)
    tasks = make_tasks()
    pinned = [_Ids(fragments=group) for group in groups]
    match access:
        case Access.PROBE:
            pinned = [_Ids(where=_filter_of_ids(root, entry, pieces))]
        case Access.FILTERED_SCAN:
            (staged,) = collect_keys(
                runner,
                replace(stage, name="collect ids"),
                pieces,
                tasks.hashes,
                sets=1,
                scratch=scratch,
            )
            tasks = make_tasks(staged)
        case Access.SCAN:
            pass
        case _:
            assert_never(access)
    work = [*(_Ids(piece=piece) for piece in pieces), *pinned]
    answers = runner.exchange(
        stage,
        work,
        tasks.send,
        Hop(partitions=hashing.partitions, receive=tasks.match),
        Hop(partitions=tasks.owners, receive=tasks.write),
    )
    results = {
        owner: msgspec.msgpack.decode(content, type=_OwnerResult) for owner, content in answers
    }
    untouched = tasks.untouched(results)
    fragments = gather_fragments(runner, root, entry, untouched, verb=stage.verb)
    return tasks.gather(dict(sorted(results.items())), fragments)


def _filter_of_ids(root: Root, entry: TableEntry, pieces: Iterable[PieceRows]) -> OneOf:
    """A filter for the ids of a few staged rows."""
    ids = [batch.column(0) for piece in pieces for _, batch in piece.kept(root, entry, [ID_COLUMN])]
    return OneOf(column=ID_COLUMN, values=pa.concat_arrays(ids))


def _joined(parts: Sequence[bytes], kind: type[np.unsignedinteger]) -> np.ndarray:
    return np.frombuffer(b"".join(parts), kind)


def _fragments(described: Iterable[list[tuple[str, int]]]) -> Iterator[bulk.StagedFragment]:
    for descriptions in described:
        for description, rows in descriptions:
            yield bulk.StagedFragment(description=description, rows=rows)
