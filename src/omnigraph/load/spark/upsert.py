"""Merging at any size: staged rows replace the pinned rows with their ids.

Invariant: a replaced row keeps its stable row id. Rows with a known id and new rows are written to
separate fragments, because only the former bring their row ids along; a split none of whose rows
is known stays as it was staged.

Two shuffles: staged and pinned rows are joined by id, then the matches are sent to their owner: a
staged split that is written again, or a pinned fragment from which rows are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph.load.spark.key_job import (
    ROW_ID,
    SENT,
    SendAgain,
    SendPinned,
    Sent,
    batches_of,
    collected,
    pinned_keys,
)
from omnigraph.load.spark.load_plan import LoadPlan
from omnigraph.load.spark.stage_task import send_again
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.staging.bulk import (
    Shrunk,
    StagedFragment,
    read_staged,
    shrink,
    write_replacements,
    write_rows,
)
from omnigraph.validation.keyed_bucket import KeyPlan
from omnigraph.validation.keys import Role, frames_of, split_and_position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MATCH_TAG: Final = "match"
_DONE_TAG: Final = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of a match: a staged split, or a pinned fragment, of one table."""

    table_key: str
    split: int | None = None
    fragment: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """The effect of a merge on one table."""

    inserted: tuple[StagedFragment, ...]
    replacing: tuple[StagedFragment, ...]
    shrunk: tuple[Shrunk, ...]


class _Match(msgspec.Struct, frozen=True, array_like=True):
    """Positions in a split with the row ids that they keep, or offsets in a fragment."""

    positions: bytes
    row_ids: bytes = b""


class _Done(msgspec.Struct, frozen=True):
    owner: int
    inserted: list[tuple[str, int]] = []
    replacing: list[tuple[str, int]] = []
    shrunk: str | None = None
    rows_lost: int = 0


def upsert(
    spark: SparkSession,
    plan: LoadPlan,
    table_key: str,
    staged: Sequence[SendAgain],
    pinned: Sequence[SendPinned],
    *,
    fragments_by_split: Mapping[int, Sequence[StagedFragment]],
) -> Upsert:
    """Match one table's staged rows with its pinned ones, and write what has to be written.

    `fragments_by_split` has the fragments of every split, with refused rows excluded.
    """
    keys = plan.id_keys(table_key)
    owners = _owners(table_key, staged, pinned)
    work = (*staged, *pinned)

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from batches_of(_send(plan, keys, work[number]))

    def match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches_of(_matched(batches, table_key, owners))

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches_of(_written(batches, plan, owners, fragments_by_split))

    rows = (
        spark.range(0, len(work), 1, len(work))
        .mapInArrow(send, SENT)
        .repartitionById(plan.hashing.buckets, "bucket")
        .mapInArrow(match, SENT)
        .repartitionById(len(owners), "bucket")
        .mapInArrow(write, SENT)
        .collect()
    )
    done = [msgspec.msgpack.decode(bytes(row.blob), type=_Done) for row in rows]
    return _gathered(done, tuple(owners), fragments_by_split)


def _owners(
    table_key: str, staged: Sequence[SendAgain], pinned: Sequence[SendPinned]
) -> dict[Owner, int]:
    found = [Owner(table_key=table_key, split=each.report.split) for each in staged]
    found += [
        Owner(table_key=table_key, fragment=fragment)
        for each in pinned
        for fragment in each.fragments
    ]
    return {owner: number for number, owner in enumerate(found)}


def _send(plan: LoadPlan, keys: KeyPlan, work: SendAgain | SendPinned) -> Iterator[Sent]:
    if isinstance(work, SendAgain):
        yield from send_again(plan, keys, work.report, work.removed)
        return

    def row_ids(batch: pa.RecordBatch, _: Role) -> tuple[np.ndarray, ...]:
        return (batch.column(ROW_ID).to_numpy(),)

    yield from pinned_keys(plan, [(1, keys.roles[1])], work, row_ids)


def _matched(
    batches: Iterable[pa.RecordBatch], table_key: str, owners: Mapping[Owner, int]
) -> Iterator[Sent]:
    by_bucket, _ = collected(batches)
    for blobs in by_bucket.values():
        frames = frames_of(blobs)
        if len(frames) < 2:
            continue
        met = (
            frames[0]
            .select("h1", "h2", "row")
            .join(frames[1].rename({"row": "address"}), on=["h1", "h2"])
        )
        rows, addresses = met["row"].to_numpy(), met["address"].to_numpy()
        row_ids = met["extra0"].to_numpy()
        splits, positions = split_and_position(rows)
        for split in np.unique(splits).tolist():
            mine = splits == split
            match = _Match(positions[mine].tobytes(), row_ids[mine].tobytes())
            owner = owners[Owner(table_key=table_key, split=split)]
            yield owner, _MATCH_TAG, msgspec.msgpack.encode(match)
        fragments, offsets = split_and_position(addresses)
        for fragment in np.unique(fragments).tolist():
            match = _Match(offsets[fragments == fragment].tobytes())
            owner = owners[Owner(table_key=table_key, fragment=fragment)]
            yield owner, _MATCH_TAG, msgspec.msgpack.encode(match)


def _written(
    batches: Iterable[pa.RecordBatch],
    plan: LoadPlan,
    owners: Mapping[Owner, int],
    fragments_by_split: Mapping[int, Sequence[StagedFragment]],
) -> Iterator[Sent]:
    _, records = collected(batches)
    by_owner: dict[int, list[_Match]] = {}
    for number, _, blob in records:
        by_owner.setdefault(number, []).append(msgspec.msgpack.decode(blob, type=_Match))
    listed = tuple(owners)
    for number, matches in by_owner.items():
        owner = listed[number]
        positions = np.concatenate([np.frombuffer(each.positions, np.uint32) for each in matches])
        entry = plan.entries[owner.table_key]
        if owner.fragment is not None:
            lost = shrink(plan.root, entry, owner.fragment, np.sort(positions))
            done = _Done(owner=number, shrunk=lost.description, rows_lost=lost.rows_lost)
        else:
            assert owner.split is not None
            ids = np.concatenate([np.frombuffer(each.row_ids, np.uint64) for each in matches])
            done = _rewritten(
                plan, owner.table_key, number, fragments_by_split[owner.split], positions, ids
            )
        make_durable(plan.root)
        yield number, _DONE_TAG, msgspec.msgpack.encode(done)


def _rewritten(
    plan: LoadPlan,
    table_key: str,
    owner: int,
    fragments: Sequence[StagedFragment],
    positions: np.ndarray,
    row_ids: np.ndarray,
) -> _Done:
    """Write a split's rows again, known ones apart from new ones."""
    entry = plan.entries[table_key]
    order = np.argsort(positions)
    positions, row_ids = positions[order], row_ids[order]
    columns = [field.name for field in plan.schema(table_key)]
    known: list[pa.RecordBatch] = []
    new: list[pa.RecordBatch] = []
    first = 0
    for fragment in fragments:
        start = first
        for batch in read_staged(plan.root, entry, fragment, columns):
            numbers = np.arange(first, first + len(batch))
            is_known = np.isin(numbers, positions)
            is_new = ~is_known & ~np.isin(numbers - start, fragment.excluded)
            known.append(batch.filter(pa.array(is_known)))
            new.append(batch.filter(pa.array(is_new)))
            first += len(batch)
    schema = plan.schema(table_key)
    replacing = write_replacements(
        plan.root, entry, pa.Table.from_batches(known).cast(schema), row_ids
    )
    fresh = pa.Table.from_batches(new).cast(schema)
    inserted = write_rows(plan.root, entry, fresh) if len(fresh) else ()
    return _Done(
        owner=owner,
        inserted=[(each.description, each.rows) for each in inserted],
        replacing=[(each.description, each.rows) for each in replacing],
    )


def _gathered(
    done: Sequence[_Done],
    owners: tuple[Owner, ...],
    fragments_by_split: Mapping[int, Sequence[StagedFragment]],
) -> Upsert:
    written = {owners[each.owner]: each for each in done}
    rewritten = {owner.split for owner in written if owner.split is not None}
    untouched = [
        fragment
        for split, fragments in fragments_by_split.items()
        if split not in rewritten
        for fragment in fragments
    ]
    return Upsert(
        inserted=(*untouched, *_fragments(each.inserted for each in written.values())),
        replacing=tuple(_fragments(each.replacing for each in written.values())),
        shrunk=tuple(
            Shrunk(fragment_id=owner.fragment, description=each.shrunk, rows_lost=each.rows_lost)
            for owner, each in written.items()
            if owner.fragment is not None
        ),
    )


def _fragments(described: Iterable[list[tuple[str, int]]]) -> Iterator[StagedFragment]:
    for each in described:
        for description, rows in each:
            yield StagedFragment(description=description, rows=rows)
