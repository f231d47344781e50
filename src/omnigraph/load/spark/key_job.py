"""Run one pass of a load as one Spark job, and merge staged rows with the pinned rows of their ids.

In a pass, executors do the work, keys go through one shuffle, and findings return to the driver.

A merge uses two shuffles: staged and pinned rows are joined by id, then the matches are sent to
their owner, which is a staged split that is written again or a pinned fragment from which rows are
removed.

Invariants:
- The driver receives descriptions, counts and refused row numbers, never rows.
- A task that runs twice sends the same keys, and the results of a split are one record, so they are
  of one attempt.
- A replaced row keeps its stable row id. Rows with a known id and new rows are written to separate
  fragments, because only the former keep their row ids. A split without known rows stays as it was
  staged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph.load.formats.parse import parse_split
from omnigraph.load.spark.load_plan import LoadPlan, SplitReport
from omnigraph.load.spark.stage_task import KEYS_TAG, SPLIT_TAG, SplitStager, send_again
from omnigraph.storage.lance.tables import grouped, plan_scan, scan_fragments
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.staging import bulk
from omnigraph.validation.keyed_bucket import (
    Finding,
    KeyBuckets,
    KeyPlan,
    Replaced,
    Role,
    Stage,
    check_bucket,
    decode_keys,
    match_rows,
    split_and_position,
)
from omnigraph.validation.violations import Reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SENT: Final = "bucket int, tag string, blob binary"
_SENT_SCHEMA: Final = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("tag", pa.string()),
        pa.field("blob", pa.binary()),
    ]
)
_FINDING_TAG: Final = "finding"
_REPLACED_TAG: Final = "replaced"
_PINNED_ROWS_PER_TASK: Final = 4_000_000
ROW_ADDRESS: Final = "_rowaddr"
ROW_ID: Final = "_rowid"

Sent: TypeAlias = tuple[int, str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseSplit:
    """Read, check and stage one split of the input."""

    split: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAgain:
    """Send the keys of a staged split without the rows refused since."""

    report: SplitReport
    removed: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPinned:
    """Send keys of some pinned fragments; `gone` has addresses of rows that a merge replaces."""

    table_key: str
    fragments: tuple[int, ...]
    gone: np.ndarray = field(repr=False, compare=False)


Work: TypeAlias = ParseSplit | SendAgain | SendPinned


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """The findings of one job."""

    reports: Mapping[int, SplitReport]
    findings: tuple[Finding, ...]
    replaced: Mapping[str, np.ndarray]


class _FindingMessage(msgspec.Struct, frozen=True, array_like=True):
    stage: int
    table_key: str
    reason: str
    columns: tuple[str, ...]
    rows: bytes
    broken: int


class _ReplacedMessage(msgspec.Struct, frozen=True, array_like=True):
    table_key: str
    rows: bytes


def pinned_work(
    plan: LoadPlan, keys: KeyPlan, replaced: Mapping[str, np.ndarray]
) -> tuple[SendPinned, ...]:
    """Scans of every pinned table that a rule reads, in tasks of about equal size."""
    work: list[SendPinned] = []
    for table_key in dict.fromkeys(role.table_key for role in keys.roles if role.pinned):
        entry = plan.entries[table_key]
        scan = plan_scan(plan.root, entry, columns=["id"], where=None)
        replaced_addresses = replaced.get(table_key, np.empty(0, np.uint64))
        work += [
            SendPinned(table_key=table_key, fragments=group, gone=replaced_addresses)
            for group in grouped(scan.fragments, rows_max=_PINNED_ROWS_PER_TASK)
        ]
    return tuple(work)


def run_pass(
    spark: SparkSession, plan: LoadPlan, keys: KeyPlan, work: Sequence[Work]
) -> PassResult:
    """Run the work, check the keys that it sends, and return the findings."""
    return check_sent(sent_by(spark, plan, keys, work), plan, keys)


def sent_by(spark: SparkSession, plan: LoadPlan, keys: KeyPlan, work: Sequence[Work]) -> DataFrame:
    """The records that some work sends, one task for each piece of it."""
    pieces = tuple(work)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from batches_of(carry_out(plan, keys, pieces[number]))

    return spark.range(0, len(pieces), 1, max(1, len(pieces))).mapInArrow(task, SENT)


def check_sent(sent: DataFrame, plan: LoadPlan, keys: KeyPlan) -> PassResult:
    """Group equal keys, check each bucket, and collect the findings."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches_of(_check(batches, keys))

    buckets = plan.hashing.buckets
    rows = sent.repartitionById(buckets, "bucket").mapInArrow(check, SENT).collect()
    return _result((row.tag, bytes(row.blob)) for row in rows)


def carry_out(plan: LoadPlan, keys: KeyPlan, work: Work) -> Iterator[Sent]:
    match work:
        case ParseSplit():
            split = plan.splits[work.split]
            stager = SplitStager(plan, keys, work.split, source=split.file.path)
            yield from stager.run(parse_split(split, plan.catalog, new_ids=stager.fresh_ids))
        case SendAgain():
            yield from send_again(plan, keys, work.report, work.removed)
        case SendPinned():
            yield from _send_pinned(plan, keys, work)
        case _:
            assert_never(work)


def batches_of(sent: Iterable[Sent]) -> Iterator[pa.RecordBatch]:
    """One batch per record: blobs may be large."""
    for bucket, tag, blob in sent:
        yield pa.RecordBatch.from_pydict(
            {"bucket": [bucket], "tag": [tag], "blob": [blob]}, schema=_SENT_SCHEMA
        )


def collected(
    batches: Iterable[pa.RecordBatch],
) -> tuple[dict[int, list[bytes]], list[tuple[int, str, bytes]]]:
    """The keys of the buckets in one partition, and its other records."""
    keys: dict[int, list[bytes]] = {}
    others: list[tuple[int, str, bytes]] = []
    for batch in batches:
        for bucket, tag, blob in zip(*(batch.column(n).to_pylist() for n in range(3)), strict=True):
            if tag == KEYS_TAG:
                keys.setdefault(bucket, []).append(blob)
            else:
                others.append((bucket, tag, blob))
    return keys, others


def pinned_keys(
    plan: LoadPlan,
    roles: Sequence[tuple[int, Role]],
    work: SendPinned,
    extras: Callable[[pa.RecordBatch, Role], tuple[np.ndarray, ...]],
) -> Iterator[Sent]:
    """Send the keys of pinned fragments, role by role, with the other columns of a role."""
    entry = plan.entries[work.table_key]
    columns = list(dict.fromkeys(name for _, role in roles for name in role.columns))
    buckets = KeyBuckets(plan.hashing)
    for batch in scan_fragments(
        plan.root, entry, work.fragments, columns=[*columns, ROW_ID, ROW_ADDRESS], where=None
    ):
        addresses = batch.column(ROW_ADDRESS).to_numpy()
        for number, role in roles:
            buckets.add(
                number,
                [batch.column(name) for name in role.columns],
                addresses,
                extras=extras(batch, role),
            )
    for bucket, blob in buckets.buckets():
        yield bucket, KEYS_TAG, blob


def _send_pinned(plan: LoadPlan, keys: KeyPlan, work: SendPinned) -> Iterator[Sent]:
    roles = [
        (number, role)
        for number, role in enumerate(keys.roles)
        if role.pinned and role.table_key == work.table_key
    ]

    def whether_gone(batch: pa.RecordBatch, _: Role) -> tuple[np.ndarray, ...]:
        if work.table_key not in keys.tracked:
            return ()
        return (np.isin(batch.column(ROW_ADDRESS).to_numpy(), work.gone).astype(np.uint64),)

    yield from pinned_keys(plan, roles, work, whether_gone)


def _check(batches: Iterable[pa.RecordBatch], keys: KeyPlan) -> Iterator[Sent]:
    by_bucket, others = collected(batches)
    yield from others
    for bucket, blobs in by_bucket.items():
        for outcome in check_bucket(decode_keys(blobs), keys):
            match outcome:
                case Finding():
                    finding = _FindingMessage(
                        outcome.stage,
                        outcome.table_key,
                        outcome.reason.value,
                        outcome.columns,
                        outcome.rows.tobytes(),
                        outcome.broken,
                    )
                    yield bucket, _FINDING_TAG, msgspec.msgpack.encode(finding)
                case Replaced():
                    replacement = _ReplacedMessage(outcome.table_key, outcome.rows.tobytes())
                    yield bucket, _REPLACED_TAG, msgspec.msgpack.encode(replacement)
                case _:
                    assert_never(outcome)


def _result(rows: Iterable[tuple[str, bytes]]) -> PassResult:
    reports: dict[int, SplitReport] = {}
    findings: list[Finding] = []
    replaced: dict[str, list[np.ndarray]] = {}
    for tag, blob in rows:
        if tag == SPLIT_TAG:
            report = msgspec.msgpack.decode(blob, type=SplitReport)
            reports[report.split] = report
        elif tag == _FINDING_TAG:
            findings.append(_finding(msgspec.msgpack.decode(blob, type=_FindingMessage)))
        else:
            replacement = msgspec.msgpack.decode(blob, type=_ReplacedMessage)
            replaced.setdefault(replacement.table_key, []).append(
                np.frombuffer(replacement.rows, np.uint64)
            )
    return PassResult(
        reports=reports,
        findings=tuple(findings),
        replaced={key: np.sort(np.concatenate(parts)) for key, parts in replaced.items()},
    )


def _finding(_found: _FindingMessage) -> Finding:
    return Finding(
        stage=Stage(_found.stage),
        table_key=_found.table_key,
        reason=Reason(_found.reason),
        columns=tuple(_found.columns),
        rows=np.frombuffer(_found.rows, np.uint64),
        broken=_found.broken,
    )


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

    inserted: tuple[bulk.StagedFragment, ...]
    replacing: tuple[bulk.StagedFragment, ...]
    shrunk: tuple[bulk.Shrunk, ...]


class _Match(msgspec.Struct, frozen=True, array_like=True):
    """Positions in a split with the row ids that they keep, or offsets in a fragment."""

    positions: bytes
    row_ids: bytes = b""


class _UpsertMessage(msgspec.Struct, frozen=True):
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
    fragments_by_split: Mapping[int, Sequence[bulk.StagedFragment]],
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
        yield from batches_of(_write(batches, plan, owners, fragments_by_split))

    rows = (
        spark.range(0, len(work), 1, len(work))
        .mapInArrow(send, SENT)
        .repartitionById(plan.hashing.buckets, "bucket")
        .mapInArrow(match, SENT)
        .repartitionById(len(owners), "bucket")
        .mapInArrow(write, SENT)
        .collect()
    )
    results = [msgspec.msgpack.decode(bytes(row.blob), type=_UpsertMessage) for row in rows]
    return _gather(results, tuple(owners), fragments_by_split)


def _owners(
    table_key: str, staged: Sequence[SendAgain], pinned: Sequence[SendPinned]
) -> dict[Owner, int]:
    owners = [Owner(table_key=table_key, split=work.report.split) for work in staged]
    owners += [
        Owner(table_key=table_key, fragment=fragment)
        for work in pinned
        for fragment in work.fragments
    ]
    return {owner: number for number, owner in enumerate(owners)}


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
        keys = decode_keys(blobs)
        if len(keys) < 2:
            continue
        staged, pinned = keys[0], keys[1]
        staged_matches, pinned_matches = match_rows(staged, pinned)
        rows, addresses = staged.rows[staged_matches], pinned.rows[pinned_matches]
        row_ids = pinned.extras[0][pinned_matches]
        splits, positions = split_and_position(rows)
        for split in np.unique(splits).tolist():
            in_split = splits == split
            match = _Match(positions[in_split].tobytes(), row_ids[in_split].tobytes())
            owner = owners[Owner(table_key=table_key, split=split)]
            yield owner, _MATCH_TAG, msgspec.msgpack.encode(match)
        fragments, offsets = split_and_position(addresses)
        for fragment in np.unique(fragments).tolist():
            match = _Match(offsets[fragments == fragment].tobytes())
            owner = owners[Owner(table_key=table_key, fragment=fragment)]
            yield owner, _MATCH_TAG, msgspec.msgpack.encode(match)


def _write(
    batches: Iterable[pa.RecordBatch],
    plan: LoadPlan,
    owners: Mapping[Owner, int],
    fragments_by_split: Mapping[int, Sequence[bulk.StagedFragment]],
) -> Iterator[Sent]:
    _, records = collected(batches)
    by_owner: dict[int, list[_Match]] = {}
    for number, _, blob in records:
        by_owner.setdefault(number, []).append(msgspec.msgpack.decode(blob, type=_Match))
    listed = tuple(owners)
    for number, matches in by_owner.items():
        owner = listed[number]
        positions = np.concatenate([np.frombuffer(match.positions, np.uint32) for match in matches])
        entry = plan.entries[owner.table_key]
        if owner.fragment is not None:
            lost = bulk.shrink(plan.root, entry, owner.fragment, np.sort(positions))
            result = _UpsertMessage(owner=number, shrunk=lost.description, rows_lost=lost.rows_lost)
        else:
            assert owner.split is not None
            ids = np.concatenate([np.frombuffer(match.row_ids, np.uint64) for match in matches])
            result = _rewrite(
                plan, owner.table_key, number, fragments_by_split[owner.split], positions, ids
            )
        make_durable(plan.root)
        yield number, _DONE_TAG, msgspec.msgpack.encode(result)


def _rewrite(
    plan: LoadPlan,
    table_key: str,
    owner: int,
    fragments: Sequence[bulk.StagedFragment],
    positions: np.ndarray,
    row_ids: np.ndarray,
) -> _UpsertMessage:
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
        for batch in bulk.read_staged(plan.root, entry, fragment, columns):
            numbers = np.arange(first, first + len(batch))
            is_known = np.isin(numbers, positions)
            is_new = ~is_known & ~np.isin(numbers - start, fragment.excluded)
            known.append(batch.filter(pa.array(is_known)))
            new.append(batch.filter(pa.array(is_new)))
            first += len(batch)
    schema = plan.schema(table_key)
    replacing = bulk.write_replacements(
        plan.root, entry, pa.Table.from_batches(known).cast(schema), row_ids
    )
    fresh = pa.Table.from_batches(new).cast(schema)
    inserted = bulk.write_rows(plan.root, entry, fresh) if len(fresh) else ()
    return _UpsertMessage(
        owner=owner,
        inserted=[(fragment.description, fragment.rows) for fragment in inserted],
        replacing=[(fragment.description, fragment.rows) for fragment in replacing],
    )


def _gather(
    results: Sequence[_UpsertMessage],
    owners: tuple[Owner, ...],
    fragments_by_split: Mapping[int, Sequence[bulk.StagedFragment]],
) -> Upsert:
    results_by_owner = {owners[result.owner]: result for result in results}
    rewritten = {owner.split for owner in results_by_owner if owner.split is not None}
    untouched = [
        fragment
        for split, fragments in fragments_by_split.items()
        if split not in rewritten
        for fragment in fragments
    ]
    return Upsert(
        inserted=(*untouched, *_fragments(result.inserted for result in results_by_owner.values())),
        replacing=tuple(_fragments(result.replacing for result in results_by_owner.values())),
        shrunk=tuple(
            bulk.Shrunk(
                fragment_id=owner.fragment, description=result.shrunk, rows_lost=result.rows_lost
            )
            for owner, result in results_by_owner.items()
            if owner.fragment is not None
        ),
    )


def _fragments(described: Iterable[list[tuple[str, int]]]) -> Iterator[bulk.StagedFragment]:
    for descriptions in described:
        for description, rows in descriptions:
            yield bulk.StagedFragment(description=description, rows=rows)
