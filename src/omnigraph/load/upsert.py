"""Merge the staged rows of one table with the pinned rows of their ids, in one exchange.

Staged and pinned ids meet in buckets; the matches go to their owners: a piece, whose rows are
written, known ones apart from new ones, or a pinned fragment, which loses its old rows.

Invariants:
- The driver receives descriptions and counts, never rows.
- A replaced row keeps its stable row id. Rows with a known id and new rows are written to separate
  fragments, because only the former keep their row ids. Fragments of a piece without known rows
  stay as they were staged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import ID_COLUMN, LANCE_COLUMNS
from omnigraph.runner.protocol import Hop, Runner, Sent, Stage, Task
from omnigraph.storage.lance.row_lineage import RowLineage
from omnigraph.storage.lance.tables import grouped, plan_scan, scan_fragments
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.staging import bulk
from omnigraph.validation.hashed_keys import (
    Hashing,
    KeyBuckets,
    RoleKeys,
    incoming_rows,
    match_rows,
    read_buckets,
    split_and_position,
)

if TYPE_CHECKING:
    from omnigraph.load.staging import StagedTable
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

_PINNED_ROWS_PER_PIECE: Final = 2_000_000
_IDS_SENT_TOGETHER: Final = 1_000_000
_STAGED, _PINNED = 0, 1
_ROW_ID, _ROW_ADDRESS, _, _CREATED_AT, _ = LANCE_COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceRows:
    """The rows of one table in one piece, and the positions of those that were refused."""

    number: int
    table: StagedTable = field(repr=False)
    refused: np.ndarray = field(repr=False, compare=False)

    @property
    def rows_kept(self) -> int:
        return self.table.rows - len(self.refused)

    def kept(
        self, root: Root, entry: TableEntry, columns: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Positions and rows that were not refused."""
        first = 0
        for batch in self.table.read(root, entry, columns):
            positions = np.arange(first, first + len(batch), dtype=np.uint32)
            first += len(batch)
            if not len(self.refused):
                yield positions, batch
                continue
            is_kept = ~np.isin(positions, self.refused)
            yield positions[is_kept], batch.filter(pa.array(is_kept))

    def fragments(self) -> tuple[bulk.StagedFragment, ...]:
        """The fragments of a piece that was not spooled, without the refused rows."""
        fragments: list[bulk.StagedFragment] = []
        first = 0
        for description, rows in self.table.fragments:
            inside = self.refused[(self.refused >= first) & (self.refused < first + rows)] - first
            fragments.append(
                bulk.StagedFragment(
                    description=description, rows=rows, excluded=inside.astype(np.uint32)
                )
            )
            first += rows
        return tuple(fragments)


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


class _OwnerResult(msgspec.Struct, frozen=True):
    owner: int
    inserted: list[tuple[str, int]] = []
    replacing: list[tuple[str, int]] = []
    shrunk: str | None = None
    rows_lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ids:
    """Ids that a task sends: of a piece, or of some pinned fragments."""

    piece: PieceRows | None = None
    fragments: tuple[int, ...] = ()


class _UpsertTasks:
    """The tasks of one merge; owners are pieces, then pinned fragments."""

    def __init__(
        self,
        root: Root,
        entry: TableEntry,
        schema: pa.Schema,
        pieces: Sequence[PieceRows],
        fragments: Sequence[int],
        hashing: Hashing,
    ) -> None:
        self._root = root
        self._entry = entry
        self._schema = schema
        self._hashing = hashing
        self._pieces = tuple(pieces)
        self._fragments = tuple(fragments)
        self._piece_owners = {piece.number: owner for owner, piece in enumerate(self._pieces)}
        self._fragment_owners = {
            fragment: owner for owner, fragment in enumerate(fragments, len(self._pieces))
        }

    @property
    def owners(self) -> int:
        return len(self._pieces) + len(self._fragments)

    def send(self, ids: _Ids, task: Task) -> Iterator[Sent]:
        buckets = KeyBuckets(self._hashing)
        if ids.piece is not None:
            for positions, batch in ids.piece.kept(self._root, self._entry, [ID_COLUMN]):
                task.advance(rows=len(batch))
                numbers = positions | incoming_rows(ids.piece.number, 0, 1)
                buckets.add(_STAGED, [batch.column(0)], numbers)
                if buckets.count > _IDS_SENT_TOGETHER:
                    yield from buckets.buckets()
        columns = [ID_COLUMN, _ROW_ADDRESS, _ROW_ID, _CREATED_AT]
        for batch in (
            scan_fragments(self._root, self._entry, ids.fragments, columns=columns, where=None)
            if ids.fragments
            else ()
        ):
            task.advance(rows=len(batch))
            addresses, *kept_numbers = (batch.column(name).to_numpy() for name in columns[1:])
            buckets.add(_PINNED, [batch.column(ID_COLUMN)], addresses, extras=tuple(kept_numbers))
            if buckets.count > _IDS_SENT_TOGETHER:
                yield from buckets.buckets()
        yield from buckets.buckets()

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
            match = _Match(offsets[fragments == fragment].tobytes())
            yield self._fragment_owners[fragment], msgspec.msgpack.encode(match)

    def write(self, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
        task.advance()
        owner = task.number
        matches = [msgspec.msgpack.decode(content, type=_Match) for content in messages]
        is_piece = owner < len(self._pieces)
        if not matches and not (is_piece and self._pieces[owner].table.spooled):
            return
        positions = _joined([match.positions for match in matches], np.uint32)
        if is_piece:
            lineage = RowLineage(
                row_ids=_joined([match.row_ids for match in matches], np.uint64),
                created_at=_joined([match.created_at for match in matches], np.uint64),
            )
            result = self._rewrite(owner, positions, lineage)
        else:
            fragment = self._fragments[owner - len(self._pieces)]
            lost = bulk.shrink(self._root, self._entry, fragment, np.sort(positions))
            result = _OwnerResult(owner=owner, shrunk=lost.description, rows_lost=lost.rows_lost)
        make_durable(self._root)
        yield owner, msgspec.msgpack.encode(result)

    def _rewrite(self, owner: int, positions: np.ndarray, lineage: RowLineage) -> _OwnerResult:
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
        return _OwnerResult(
            owner=owner,
            inserted=[(fragment.description, fragment.rows) for fragment in inserted],
            replacing=[(fragment.description, fragment.rows) for fragment in replacing],
        )

    def gather(self, results: Mapping[int, _OwnerResult]) -> Upsert:
        untouched = [
            fragment
            for owner, piece in enumerate(self._pieces)
            if owner not in results
            for fragment in piece.fragments()
        ]
        return Upsert(
            inserted=(*untouched, *_fragments(result.inserted for result in results.values())),
            replacing=tuple(_fragments(result.replacing for result in results.values())),
            shrunk=tuple(
                bulk.Shrunk(
                    fragment_id=fragment,
                    description=results[owner].shrunk,
                    rows_lost=results[owner].rows_lost,
                )
                for fragment, owner in self._fragment_owners.items()
                if owner in results
            ),
        )


def upsert(
    runner: Runner,
    root: Root,
    entry: TableEntry,
    schema: pa.Schema,
    pieces: Sequence[PieceRows],
    *,
    stage: Stage,
) -> Upsert:
    """Match one table's staged rows with its pinned ones, and write what has to be written."""
    scan = plan_scan(root, entry, columns=[ID_COLUMN], where=None)
    groups = grouped(scan.fragments, rows_max=_PINNED_ROWS_PER_PIECE)
    ids = entry.row_count + sum(piece.rows_kept for piece in pieces)
    hashing = Hashing.for_keys(ids)
    tasks = _UpsertTasks(
        root, entry, schema, pieces, [number for group in groups for number in group], hashing
    )
    work = [_Ids(piece=piece) for piece in pieces] + [_Ids(fragments=group) for group in groups]
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
    return tasks.gather(dict(sorted(results.items())))


def _joined(parts: Sequence[bytes], kind: type[np.unsignedinteger]) -> np.ndarray:
    return np.frombuffer(b"".join(parts), kind)


def _fragments(described: Iterable[list[tuple[str, int]]]) -> Iterator[bulk.StagedFragment]:
    for descriptions in described:
        for description, rows in descriptions:
            yield bulk.StagedFragment(description=description, rows=rows)
