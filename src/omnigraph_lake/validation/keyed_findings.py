"""Carry what buckets found to the pieces whose rows are refused, past the driver.

A bucket answers with its findings if they are few, and otherwise puts them into a file. If a pass
has such files, a second exchange brings the refused rows of every piece together, and writes one
parcel per piece; see `keyed_passes`.

Invariants:
- The driver holds at most a fixed number of refused rows per bucket, if there is a place for files.
- Findings are settled by piece as they would be all together: a row that several findings refuse
  has the verdict of the first in the order of the rules.
- A task holds the findings of one bucket or of one partition of pieces, or the keys of one piece.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, assert_never

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph_lake.runner.key_hash import SEED_BYTES, hash_keys
from omnigraph_lake.runner.protocol import Hop, Runner, Sent, Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import Scratch
from omnigraph_lake.validation import keyed_bucket
from omnigraph_lake.validation.hashed_keys import (
    KEYS_PER_BUCKET,
    PARTITIONS_MAX,
    incoming_rows,
    split_and_position,
)
from omnigraph_lake.validation.keyed_bucket import NO_GROUPS, Finding, RefusedGroups, Replaced
from omnigraph_lake.validation.keyed_passes import (
    FindingKind,
    Parcel,
    PieceRefusals,
    RefusedRows,
    write_parcel,
)
from omnigraph_lake.validation.keyed_write import IncomingPiece
from omnigraph_lake.validation.violations import KEPT_MAX, Reason

FINDINGS_SENT_MAX: Final = 256
"""So many refused rows of a bucket are sent to the driver; more are put into a file."""
_ROWS_PER_WORK: Final = 65_536
_SIDES: Final[tuple[Literal["left"], Literal["right"]]] = ("left", "right")


class _FindingMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    stage: int
    table_key: str
    reason: str
    columns: tuple[str, ...]
    rows: bytes
    groups: bytes
    broken: bytes
    more_broken: int
    end_types: tuple[tuple[str, int | None], ...] = ()


class _ReplacedMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    table_key: str
    rows: bytes


class _StoredMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A file with findings of a bucket; `kinds` are the findings without rows."""

    path: str
    rows: int
    kinds: list[_FindingMessage]


_ANSWER: Final = msgspec.msgpack.Decoder(_FindingMessage | _ReplacedMessage | _StoredMessage)
_FINDINGS: Final = list[_FindingMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFindings:
    """A file with findings of one bucket."""

    path: str
    rows: int
    """About so many are refused."""
    kinds: tuple[FindingKind, ...]


Answered: TypeAlias = Finding | Replaced | StoredFindings


def encode_outcomes(
    outcomes: Iterable[Finding | Replaced], scratch: Scratch | None
) -> Iterator[bytes]:
    """What a bucket answers to the driver."""
    refusing: list[_FindingMessage] = []
    rows = 0
    for outcome in outcomes:
        match outcome:
            case Replaced():
                message = _ReplacedMessage(outcome.table_key, outcome.rows.tobytes())
                yield msgspec.msgpack.encode(message)
            case Finding():
                if len(outcome.broken):
                    yield msgspec.msgpack.encode(_message(_first_broken(outcome)))
                else:
                    refusing.append(_message(outcome))
                    rows += _weight(outcome)
            case _:
                assert_never(outcome)
    if scratch is None or rows <= FINDINGS_SENT_MAX:
        yield from map(msgspec.msgpack.encode, refusing)
        return
    path = scratch.put(f"findings-{secrets.token_hex(8)}", msgspec.msgpack.encode(refusing))
    scratch.require_open([path])
    kinds = [
        msgspec.structs.replace(finding, rows=b"", groups=b"", broken=b"") for finding in refusing
    ]
    yield msgspec.msgpack.encode(_StoredMessage(path, rows, kinds))


def _first_broken(finding: Finding) -> Finding:
    """The finding with as many pinned rows as are shown, and the number of the others."""
    shown = np.sort(finding.broken)[:KEPT_MAX]
    return replace(finding, broken=shown, more_broken=len(finding.broken) - len(shown))


def _weight(finding: Finding) -> int:
    """About how much of a task's memory a finding takes, in rows; groups are listed later."""
    return len(finding.rows) + 4 * len(finding.groups)


def decode_outcome(content: bytes) -> Answered:
    message = _ANSWER.decode(content)
    match message:
        case _FindingMessage():
            return _finding(message)
        case _ReplacedMessage():
            rows = np.frombuffer(message.rows, np.uint64)
            return Replaced(table_key=message.table_key, rows=rows)
        case _StoredMessage():
            kinds = (FindingKind.of(_finding(kind)) for kind in message.kinds)
            return StoredFindings(path=message.path, rows=message.rows, kinds=tuple(kinds))
        case _:
            assert_never(message)


def _message(finding: Finding) -> _FindingMessage:
    return _FindingMessage(
        finding.stage,
        finding.table_key,
        finding.reason.value,
        finding.columns,
        finding.rows.tobytes(),
        finding.groups.encode(),
        finding.broken.tobytes(),
        finding.more_broken,
        finding.end_types,
    )


def _finding(message: _FindingMessage) -> Finding:
    return Finding(
        stage=keyed_bucket.Stage(message.stage),
        table_key=message.table_key,
        reason=Reason(message.reason),
        columns=tuple(message.columns),
        rows=np.frombuffer(message.rows, np.uint64),
        groups=RefusedGroups.decode(message.groups),
        broken=np.frombuffer(message.broken, np.uint64),
        more_broken=message.more_broken,
        end_types=tuple(message.end_types),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRows:
    """List the refused rows of groups in a piece, without rows that were refused before."""

    piece: IncomingPiece
    refused: tuple[PieceRefusals, ...]
    finding: Finding = field(repr=False)

    def run(self, task: Task) -> bytes:
        return self.rows(task).tobytes()

    def rows(self, task: Task) -> np.ndarray:
        """The numbers of the rows."""
        table_key, end_types = self.finding.table_key, dict(self.finding.end_types)
        columns = (*self.finding.columns, *end_types)
        refused = numbers_refused(self.refused).get(table_key)
        seed = secrets.token_bytes(SEED_BYTES)
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        first = 0
        for batch in self.piece.read(table_key, columns):
            task.advance(rows=len(batch))
            numbers = incoming_rows(self.piece.number, first, len(batch))
            first += len(batch)
            rows, numbers = without_refused(batch, numbers, refused)
            keys = [
                rows.column(name)
                if end_types.get(name) is None
                else rows.column(name).fill_null(end_types[name])
                for name in columns
            ]
            hashes = hash_keys(keys, seed)
            is_present = slice(None) if hashes.present is None else hashes.present
            parts.append((numbers[is_present], hashes.first[is_present], hashes.second[is_present]))
        numbers, firsts, seconds = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return _members(self.finding.groups, numbers, firsts, seconds)


def _members(
    groups: RefusedGroups, numbers: np.ndarray, firsts: np.ndarray, seconds: np.ndarray
) -> np.ndarray:
    """The refused rows of groups, among rows with their hashed keys."""
    order = np.argsort(firsts, kind="stable")
    numbers, firsts, seconds = numbers[order], firsts[order], seconds[order]
    by_number = np.argsort(numbers)
    refused: list[np.ndarray] = []
    positions = by_number[np.searchsorted(numbers, groups.first, sorter=by_number)]
    for group, position in enumerate(positions.tolist()):
        start = int(np.searchsorted(firsts, firsts[position], "left"))
        end = int(np.searchsorted(firsts, firsts[position], "right"))
        rows_of_key = numbers[start:end][seconds[start:end] == seconds[position]]
        inside = (rows_of_key >= groups.first[group]) & (rows_of_key <= groups.last[group])
        rows_of_group = rows_of_key[inside][int(groups.kept[group]) :]
        refused.append(rows_of_group[rows_of_group != groups.spared[group]])
    return np.concatenate(refused)


def numbers_refused(refusals: Iterable[PieceRefusals]) -> dict[str, np.ndarray]:
    """The numbers of refused rows by table."""
    parts: dict[str, list[np.ndarray]] = {}
    for refused in refusals:
        for table_key, rows in refused.read().items():
            parts.setdefault(table_key, []).append(rows.rows)
    return {table_key: np.concatenate(numbers) for table_key, numbers in parts.items()}


def without_refused(
    batch: pa.RecordBatch, numbers: np.ndarray, refused: np.ndarray | None
) -> tuple[pa.RecordBatch, np.ndarray]:
    if refused is None:
        return batch, numbers
    is_kept = ~np.isin(numbers, refused)
    return batch.filter(pa.array(is_kept)), numbers[is_kept]


def by_piece(finding: Finding) -> Iterator[tuple[int, Finding]]:
    """The parts of a finding that belong to one piece each."""
    rows = np.sort(finding.rows)
    groups = finding.groups.filter(np.argsort(finding.groups.first))
    row_pieces, _ = split_and_position(rows)
    group_pieces, _ = split_and_position(groups.first)
    pieces = np.union1d(row_pieces, group_pieces)
    row_bounds, group_bounds = (
        zip(*(np.searchsorted(owners, pieces, side).tolist() for side in _SIDES), strict=True)
        for owners in (row_pieces, group_pieces)
    )
    for piece, of_rows, of_groups in zip(pieces.tolist(), row_bounds, group_bounds, strict=True):
        yield (
            piece,
            replace(finding, rows=rows[slice(*of_rows)], groups=groups.filter(slice(*of_groups))),
        )


class _PieceFindings(msgspec.Struct, frozen=True, array_like=True):
    """Findings about the rows of one piece."""

    piece: int
    findings: list[_FindingMessage]


class _Collected(msgspec.Struct, frozen=True, array_like=True):
    """The parcel of a piece, or a file with findings whose groups have to be listed first."""

    piece: int
    parcel: Parcel | None
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settle:
    """List the groups of the findings about a piece, and write its parcel."""

    piece: IncomingPiece
    refused: tuple[PieceRefusals, ...]
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParcelPlan:
    """Which findings of a pass are accepted: their kinds in order, with the numbers of verdicts."""

    verdicts: Mapping[FindingKind, int]
    scratch: Scratch
    partitions: int

    def send(self, work: str | tuple[Finding, ...], task: Task) -> Iterator[Sent]:
        """Send the accepted findings of a bucket to the partitions of their pieces."""
        task.advance()
        findings: Iterable[Finding] = work if isinstance(work, tuple) else self._read(work)
        messages: dict[int, dict[int, list[_FindingMessage]]] = {}
        for finding in findings:
            if FindingKind.of(finding) in self.verdicts:
                for piece, part in by_piece(finding):
                    of_partition = messages.setdefault(piece % self.partitions, {})
                    of_partition.setdefault(piece, []).append(_message(part))
        for partition, pieces in messages.items():
            content = [_PieceFindings(piece, of_piece) for piece, of_piece in pieces.items()]
            yield partition, msgspec.msgpack.encode(content)

    def receive(self, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
        """Write the parcels of some pieces."""
        pieces: dict[int, list[_FindingMessage]] = {}
        for message in messages:
            task.advance()
            for part in msgspec.msgpack.decode(message, type=list[_PieceFindings]):
                pieces.setdefault(part.piece, []).extend(part.findings)
        paths: list[str] = []
        answers: list[bytes] = []
        for piece, findings in sorted(pieces.items()):
            task.advance()
            collected = self._collect(piece, findings)
            paths.append(collected.path or (collected.parcel.path if collected.parcel else ""))
            answers.append(msgspec.msgpack.encode(collected))
        self.scratch.require_open(paths)
        for answer in answers:
            yield task.number, answer

    def _collect(self, piece: int, messages: list[_FindingMessage]) -> _Collected:
        if any(message.groups for message in messages):
            name = f"findings-{piece:06}-{secrets.token_hex(4)}"
            return _Collected(piece, None, self.scratch.put(name, msgspec.msgpack.encode(messages)))
        return _Collected(piece, self._settle(piece, map(_finding, messages)))

    def settle(self, work: _Settle, task: Task) -> Parcel:
        """The parcel of a piece that had groups."""
        findings: list[Finding] = []
        for finding in _join_by_kind(self._read(work.path)):
            rows = [finding.rows]
            if len(finding.groups):
                listing = ListRows(piece=work.piece, refused=work.refused, finding=finding)
                rows.append(listing.rows(task))
            findings.append(replace(finding, rows=np.concatenate(rows), groups=NO_GROUPS))
        parcel = self._settle(work.piece.number, findings)
        self.scratch.require_open([parcel.path])
        return parcel

    def _settle(self, piece: int, findings: Iterable[Finding]) -> Parcel:
        return write_parcel(self.scratch, piece, settle_findings(findings, self.verdicts))

    def _read(self, path: str) -> list[Finding]:
        content = msgspec.msgpack.decode(self.scratch.read(path), type=_FINDINGS)
        return [_finding(message) for message in content]


def _join_by_kind(findings: Iterable[Finding]) -> Iterator[Finding]:
    """One finding of every kind, so that its columns are read once."""
    by_kind: dict[FindingKind, list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault(FindingKind.of(finding), []).append(finding)
    for alike in by_kind.values():
        yield replace(
            alike[0],
            rows=np.concatenate([finding.rows for finding in alike]),
            groups=RefusedGroups.join([finding.groups for finding in alike]),
        )


def settle_findings(
    findings: Iterable[Finding], verdicts: Mapping[FindingKind, int]
) -> dict[str, RefusedRows]:
    """The refused rows of accepted findings by table; `verdicts` are in the order of the rules."""
    parts: dict[FindingKind, list[np.ndarray]] = {}
    for finding in findings:
        if len(finding.rows):
            parts.setdefault(FindingKind.of(finding), []).append(finding.rows)
    refused: dict[str, list[RefusedRows]] = {}
    for kind, verdict in verdicts.items():
        if kind in parts:
            rows = np.sort(np.concatenate(parts[kind]))
            refused.setdefault(kind.table_key, []).append(
                RefusedRows.with_one_verdict(rows, verdict)
            )
    return {key: RefusedRows.join(of_table) for key, of_table in refused.items()}


def collect_parcels(
    runner: Runner,
    verb: str,
    plan: ParcelPlan,
    held: Sequence[Finding],
    stored: Sequence[StoredFindings],
    look_up: Callable[[int], tuple[IncomingPiece, tuple[PieceRefusals, ...]]],
) -> list[Parcel]:
    """The refused rows of a pass by piece.

    `look_up` returns a piece and what was refused of it before; it is called if groups of its rows
    have to be listed.
    """
    work: list[str | tuple[Finding, ...]] = [findings.path for findings in stored]
    work += _lots(held)
    answers = runner.exchange(
        Stage(verb=verb, name="collect refused rows"),
        work,
        plan.send,
        Hop(partitions=plan.partitions, receive=plan.receive),
    )
    collected = [msgspec.msgpack.decode(content, type=_Collected) for _, content in answers]
    parcels = [answer.parcel for answer in collected if answer.parcel is not None]
    grouped: list[_Settle] = []
    for answer in collected:
        if answer.parcel is None:
            piece, refused = look_up(answer.piece)
            grouped.append(_Settle(piece=piece, refused=refused, path=answer.path))
    stage = Stage(verb=verb, name="list rows of frequent keys")
    if grouped:
        parcels += require_answers(runner.map(stage, grouped, plan.settle, Parcel))
    return parcels


def partitions_for(rows: int, pieces: int) -> int:
    """Into how many partitions refused rows are collected: a task holds those of one."""
    return max(1, min(-(-rows // KEYS_PER_BUCKET), pieces, PARTITIONS_MAX))


def _lots(findings: Iterable[Finding]) -> Iterator[tuple[Finding, ...]]:
    lot: list[Finding] = []
    rows = 0
    for finding in findings:
        lot.append(finding)
        rows += _weight(finding)
        if rows >= _ROWS_PER_WORK:
            yield tuple(lot)
            lot, rows = [], 0
    if lot:
        yield tuple(lot)
