"""Decide which incoming rows keep the keyed rules: hash keys, exchange them, check them in buckets.

A pass reads the keys of incoming rows and of the pinned rows that a rule refers to, sends their
hashes to buckets, and checks every bucket. Only rows that a pass refuses lead to another one; see
`keyed_passes`.

Pinned keys are read in one of two ways: by filters, which an index serves, if the incoming rows are
few, and otherwise by scans of the key columns. `choose_access` decides by counts alone.

Invariants:
- A refused row has exactly one reason, that of the first stage it failed; every other row keeps
  every rule against the rows that are kept and the remaining pinned rows.
- Values do not travel. A task holds the keys of one part of a piece, or of one bucket.
- The result does not depend on the runner, on the pieces or on the number of buckets.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Final, TypeAlias, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph.names import ID_COLUMN, ROW_ADDRESS, SOURCE_COLUMN
from omnigraph.runner.key_hash import SEED_BYTES
from omnigraph.runner.protocol import Hop, Runner, Sent, Stage, Task
from omnigraph.validation import keyed_bucket, lookups
from omnigraph.validation.keyed_bucket import (
    Finding,
    Hashing,
    KeyBuckets,
    KeyPlan,
    Replaced,
    Role,
    RoleKind,
    incoming_rows,
    roles_of,
)
from omnigraph.validation.keyed_passes import PassState, after_pass
from omnigraph.validation.keyed_write import IncomingPiece, KeyedWrite
from omnigraph.validation.lookups import Within, can_probe, filter_text
from omnigraph.validation.violations import Reason

_PASSES_MAX: Final = 50
_KEYS_PER_BUCKET: Final = 2_000_000
_BUCKETS_MAX: Final = 16_384
_KEYS_SENT_TOGETHER: Final = 1_000_000
_PINNED_ROWS_PER_PIECE: Final = 2_000_000
_ROWS_PER_PROBE: Final = 8
"""So many rows are scanned in the time in which one value is looked up."""
_SIGN: Final = np.uint64(1 << 63)
# No column can have this name.
_FORMER: Final = "former sources"
_NO_ADDRESSES: Final = np.empty(0, np.uint64)


class Access(Enum):
    """How pinned keys are read."""

    PROBE = auto()
    SCAN = auto()


def choose_access(*, incoming: int, pinned: int) -> Access:
    """How the pinned keys of a table are read, by the rows of the write and of the table."""
    few = 0 < incoming <= lookups.PROBE_VALUES_MAX and incoming * _ROWS_PER_PROBE <= pinned
    return Access.PROBE if few else Access.SCAN


@dataclass(frozen=True, slots=True, kw_only=True)
class _SendIncoming:
    """Send the keys of a piece without the rows refused since."""

    piece: IncomingPiece
    refused: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SendPinned:
    """Send pinned keys of some roles: of the rows of some fragments, of a filter, or of all rows.

    `replaced` and `deleted` have the addresses of rows that are removed.
    """

    table_key: str
    roles: tuple[int, ...]
    fragments: tuple[int, ...] | None = None
    where: str | None = None
    replaced: np.ndarray = field(repr=False, compare=False)
    deleted: np.ndarray = field(repr=False, compare=False)


_Work: TypeAlias = _SendIncoming | _SendPinned


class _FindingMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    stage: int
    table_key: str
    reason: str
    columns: tuple[str, ...]
    rows: bytes
    broken: bytes


class _ReplacedMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    table_key: str
    rows: bytes


_DECODER: Final = msgspec.msgpack.Decoder(_FindingMessage | _ReplacedMessage)


def resolve_keys(
    runner: Runner, write: KeyedWrite, *, verb: str, refused: PassState | None = None
) -> PassState:
    """Apply the keyed rules to all rows of a write, except those that were refused before.

    Returns:
        The refused rows with their reasons, and what the write would leave broken among pinned
        rows.
    """
    state = refused or PassState()
    for _ in range(_PASSES_MAX):
        state = _Pass(runner, write, state, verb).run()
        if state.is_final:
            return state
    raise AssertionError(f"refused rows still changed findings after {_PASSES_MAX} passes")


class _Pass:
    """One pass over the rows that were not refused before."""

    def __init__(self, runner: Runner, write: KeyedWrite, state: PassState, verb: str) -> None:
        self._runner = runner
        self._write = write
        self._state = state
        self._verb = verb
        self._keys = write.keys()

    def run(self) -> PassState:
        work: list[_Work] = [*self._incoming(), *self._pinned()]
        hashing = Hashing(seed=secrets.token_bytes(SEED_BYTES), buckets=self._buckets())
        sender = _Sender(self._write, self._keys, hashing)
        answers = self._runner.exchange(
            Stage(verb=self._verb, name="check keys"),
            work,
            sender.send,
            Hop(partitions=hashing.buckets, receive=_Checker(self._keys).receive),
        )
        findings: list[Finding] = []
        replaced: dict[str, list[np.ndarray]] = {}
        for _, content in answers:
            message = _DECODER.decode(content)
            if isinstance(message, _FindingMessage):
                findings.append(_finding(message))
            else:
                addresses = np.frombuffer(message.rows, np.uint64)
                replaced.setdefault(message.table_key, []).append(addresses)
        return after_pass(
            self._state,
            findings,
            {key: np.sort(np.concatenate(parts)) for key, parts in replaced.items()},
            keys=self._keys,
            rules=self._write.rules,
            given_ids=self._write.given_ids,
        )

    def _incoming(self) -> Iterator[_SendIncoming]:
        for piece in self._write.pieces:
            refused = self._state.refused_in(piece.number)
            for table_key, rows in self._write.excluded.items():
                refused[table_key] = np.concatenate([rows, refused.get(table_key, _NO_ADDRESSES)])
            yield _SendIncoming(piece=piece, refused=refused)

    def _pinned(self) -> Iterator[_SendPinned]:
        roles_by_table: dict[str, list[tuple[int, Role]]] = {}
        for number, role in enumerate(self._keys.roles):
            if role.pinned:
                roles_by_table.setdefault(role.table_key, []).append((number, role))
        if not roles_by_table:
            return
        probes = _Probes(self._write, self._keys.tracked)
        for table_key, roles in roles_by_table.items():
            deleted = self._write.deleted.get(table_key)
            send = partial(
                _SendPinned,
                table_key=table_key,
                replaced=self._state.replaced.get(table_key, _NO_ADDRESSES),
                deleted=_NO_ADDRESSES if deleted is None else deleted.addresses,
            )
            scanned: list[int] = []
            for number, role in roles:
                where = probes.filter(role)
                if where is None:
                    scanned.append(number)
                elif where:
                    yield send(roles=(number,), where=where)
            for fragments in self._groups(table_key) if scanned else ():
                yield send(roles=tuple(scanned), fragments=fragments)

    def _groups(self, table_key: str) -> tuple[tuple[int, ...] | None, ...]:
        """The parts in which a table is scanned; a table of one part is not even planned."""
        pinned = self._write.pinned
        if pinned.row_count(table_key) <= _PINNED_ROWS_PER_PIECE:
            return (None,)
        return pinned.groups(table_key, rows_max=_PINNED_ROWS_PER_PIECE)

    def _buckets(self) -> int:
        """Enough for the keys of incoming rows, and of all pinned rows that may be read."""
        keys = 0
        for role in self._keys.roles:
            if role.pinned:
                keys += self._write.pinned.row_count(role.table_key)
            else:
                keys += self._write.rows_of(role.table_key)
        return min(_BUCKETS_MAX, max(1, -(-keys // _KEYS_PER_BUCKET)))


class _Probes:
    """Filters for the pinned keys that incoming rows are compared with, if these are few."""

    def __init__(self, write: KeyedWrite, tracked: frozenset[str]) -> None:
        self._write = write
        self._tracked = tracked
        self._rows = sum(map(write.rows_of, write.rules)) + sum(
            len(deleted.ids) for deleted in write.deleted.values()
        )
        self._read: dict[tuple[str, str], pa.ChunkedArray] = {}

    def filter(self, role: Role) -> str | None:
        """The filter for a role; an empty one if no row is asked for, None to scan the table."""
        write = self._write
        pinned = write.pinned.row_count(role.table_key)
        if choose_access(incoming=self._rows, pinned=pinned) is Access.SCAN:
            return None
        if role.kind is RoleKind.ENDPOINT:
            if role.node_key in write.overwritten or role.table_key in write.overwritten:
                return None  # edges that no incoming row names
            column = role.columns[0]
            values = [*self._ends(role.table_key, column), *self._deleted(role.node_key)]
        elif role.kind is RoleKind.ID:
            if any(self._abandons(role.table_key, edge_key) for edge_key in write.overwritten):
                return None
            column, values = ID_COLUMN, self._ids(role.table_key)
        else:
            probed = [name for name in role.columns if self._can_probe(role.table_key, name)]
            if not probed:
                return None
            column, values = probed[0], [self._values(role.table_key, probed[0])]
        return self._text(column, values)

    def _abandons(self, node_key: str, edge_key: str) -> bool:
        """Whether nodes that no incoming row names may be left with too few edges."""
        rule = self._write.count_rule(edge_key)
        return rule is not None and rule.source_key == node_key

    def _text(self, column: str, values: Sequence[pa.ChunkedArray]) -> str | None:
        chunks = [chunk for array in values for chunk in array.chunks]
        if not chunks:
            return ""
        distinct = pc.unique(pa.chunked_array(chunks)).drop_null()
        if len(distinct) > lookups.PROBE_VALUES_MAX:
            return None
        return filter_text(Within(column=column, values=distinct)) if len(distinct) else ""

    def _ids(self, table_key: str) -> list[pa.ChunkedArray]:
        """Ids of incoming rows, and of the nodes that incoming edges refer to."""
        ids = [self._values(table_key, ID_COLUMN), *self._deleted(table_key)]
        for rules in self._write.rules.values():
            for role in roles_of(rules, pinned=False):
                if role.kind is RoleKind.ENDPOINT and role.node_key == table_key:
                    ids += self._ends(role.table_key, role.columns[0])
        return ids

    def _deleted(self, table_key: str | None) -> list[pa.ChunkedArray]:
        rows = self._write.deleted.get(table_key or "")
        return [] if rows is None else [pa.chunked_array([rows.ids])]

    def _ends(self, table_key: str, column: str) -> list[pa.ChunkedArray]:
        """One end of incoming edges; the source also of the pinned edges that they replace."""
        if column == SOURCE_COLUMN:
            return self._sources(table_key)
        return [self._values(table_key, column)]

    def _sources(self, table_key: str) -> list[pa.ChunkedArray]:
        """Sources of incoming edges, and of the pinned ones that are removed."""
        sources = [self._values(table_key, SOURCE_COLUMN)]
        if table_key in self._tracked or table_key in self._write.deleted:
            sources.append(self._former_sources(table_key))
        return sources

    def _former_sources(self, table_key: str) -> pa.ChunkedArray:
        if (table_key, _FORMER) not in self._read:
            gone_ids = [self._values(table_key, ID_COLUMN), *self._deleted(table_key)]
            where = self._text(ID_COLUMN, gone_ids)
            former = pa.chunked_array([], pa.string())
            if where:
                rows = self._write.pinned.scan(table_key, [SOURCE_COLUMN], where).read_all()
                former = rows.column(SOURCE_COLUMN)
            self._read[table_key, _FORMER] = former
        return self._read[table_key, _FORMER]

    def _can_probe(self, table_key: str, column: str) -> bool:
        values = self._values(table_key, column)
        return bool(values.num_chunks) and can_probe(values.type)

    def _values(self, table_key: str, column: str) -> pa.ChunkedArray:
        """The values of a column in all incoming rows of a table."""
        if (table_key, column) not in self._read:
            chunks = [
                batch.column(0)
                for piece in self._write.pieces
                if piece.rows.get(table_key)
                for batch in piece.read(table_key, [column])
            ]
            kind = chunks[0].type if chunks else pa.string()
            self._read[table_key, column] = pa.chunked_array(chunks, kind)
        return self._read[table_key, column]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roles:
    """The roles of one table by number, and the columns that they need."""

    numbered: tuple[tuple[int, Role], ...]
    columns: tuple[str, ...]


class _Sender:
    """Hashes the keys of pieces, role by role."""

    def __init__(self, write: KeyedWrite, keys: KeyPlan, hashing: Hashing) -> None:
        # The pieces travel with the work: a task needs its own only.
        self._pinned = write.pinned
        self._order_by = write.order_by
        self._ordered = write.ordered
        self._keys = keys
        self._hashing = hashing

    def send(self, work: _Work, task: Task) -> Iterator[Sent]:
        match work:
            case _SendIncoming():
                yield from self._send_incoming(work, task)
            case _SendPinned():
                yield from self._send_pinned(work, task)
            case _:
                assert_never(work)

    def _send_incoming(self, work: _SendIncoming, task: Task) -> Iterator[Sent]:
        piece = work.piece
        buckets = KeyBuckets(self._hashing)
        for table_key in piece.rows:
            roles = self._incoming_roles(table_key, with_ids=bool(piece.given_ids.get(table_key)))
            if not roles.numbered:
                continue
            first = 0
            for batch in piece.read(table_key, roles.columns):
                numbers = incoming_rows(piece.number, first, len(batch))
                first += len(batch)
                task.advance(rows=len(batch))
                rows, numbers = _without_refused(batch, numbers, work.refused.get(table_key))
                self._add(buckets, roles, rows, numbers, piece.generated)
                if buckets.count > _KEYS_SENT_TOGETHER:
                    yield from buckets.buckets()
        yield from buckets.buckets()

    def _incoming_roles(self, table_key: str, *, with_ids: bool) -> _Roles:
        """The keys of a table; ids that were generated are new and need no comparison."""
        numbered = tuple(
            (number, role)
            for number, role in enumerate(self._keys.roles)
            if not role.pinned
            and role.table_key == table_key
            and (role.kind is not RoleKind.ID or with_ids)
        )
        columns = dict.fromkeys(name for _, role in numbered for name in role.columns)
        if with_ids and self._order_by is not None and table_key in self._ordered:
            columns |= {self._order_by: None}
        return _Roles(numbered=numbered, columns=tuple(columns))

    def _add(
        self,
        buckets: KeyBuckets,
        roles: _Roles,
        batch: pa.RecordBatch,
        numbers: np.ndarray,
        generated: str | None,
    ) -> None:
        for number, role in roles.numbered:
            if role.kind is not RoleKind.ID:
                buckets.add(number, [batch.column(name) for name in role.columns], numbers)
                continue
            rows, row_numbers = _with_given_ids(batch, numbers, generated)
            extras: tuple[np.ndarray, ...] = ()
            if self._order_by is not None and self._order_by in rows.schema.names:
                extras = rank_arrays(rows.column(self._order_by))
            buckets.add(number, [rows.column(ID_COLUMN)], row_numbers, extras=extras)

    def _send_pinned(self, work: _SendPinned, task: Task) -> Iterator[Sent]:
        roles = [(number, self._keys.roles[number]) for number in work.roles]
        columns = list(dict.fromkeys(name for _, role in roles for name in role.columns))
        needs_addresses = (
            work.table_key in self._keys.tracked
            or len(work.deleted) > 0
            or any(role.kind is RoleKind.ENDPOINT for _, role in roles)
        )
        read = [*columns, ROW_ADDRESS] if needs_addresses else columns
        batches: Iterable[pa.RecordBatch]
        if work.fragments is None:
            batches = self._pinned.scan(work.table_key, read, work.where)
        else:
            batches = self._pinned.scan_group(work.table_key, work.fragments, read)
        buckets = KeyBuckets(self._hashing)
        for batch in batches:
            task.advance(rows=len(batch))
            # Where rows are matters only if they may be removed, or shown.
            addresses = (
                batch.column(ROW_ADDRESS).to_numpy()
                if needs_addresses
                else np.zeros(len(batch), np.uint64)
            )
            extras = self._fates(work, addresses)
            for number, role in roles:
                values = [batch.column(name) for name in role.columns]
                buckets.add(number, values, addresses, extras=extras)
            if buckets.count > _KEYS_SENT_TOGETHER:
                yield from buckets.buckets()
        yield from buckets.buckets()

    def _fates(self, work: _SendPinned, addresses: np.ndarray) -> tuple[np.ndarray, ...]:
        """What becomes of pinned rows, if rules depend on that."""
        if work.table_key not in self._keys.tracked and not len(work.deleted):
            return ()
        fates = np.zeros(len(addresses), np.uint64)
        fates[np.isin(addresses, work.replaced)] = keyed_bucket.REPLACED
        fates[np.isin(addresses, work.deleted)] = keyed_bucket.DELETED
        return (fates,)


def _without_refused(
    batch: pa.RecordBatch, numbers: np.ndarray, refused: np.ndarray | None
) -> tuple[pa.RecordBatch, np.ndarray]:
    if refused is None:
        return batch, numbers
    is_kept = ~np.isin(numbers, refused)
    return batch.filter(pa.array(is_kept)), numbers[is_kept]


def _with_given_ids(
    batch: pa.RecordBatch, numbers: np.ndarray, generated: str | None
) -> tuple[pa.RecordBatch, np.ndarray]:
    if generated is None:
        return batch, numbers
    is_given = pc.invert(pc.starts_with(batch.column(ID_COLUMN), generated))
    if pc.all(is_given).as_py():
        return batch, numbers
    return batch.filter(is_given), numbers[is_given.to_numpy(zero_copy_only=False)]


@dataclass(frozen=True, slots=True)
class _Checker:
    """Checks the keys of one bucket."""

    keys: KeyPlan

    def receive(self, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
        task.advance()
        keys = keyed_bucket.decode_keys(messages)
        for outcome in keyed_bucket.check_bucket(keys, self.keys):
            yield task.number, msgspec.msgpack.encode(_message(outcome))


def _message(outcome: Finding | Replaced) -> _FindingMessage | _ReplacedMessage:
    match outcome:
        case Finding():
            return _FindingMessage(
                outcome.stage,
                outcome.table_key,
                outcome.reason.value,
                outcome.columns,
                outcome.rows.tobytes(),
                outcome.broken.tobytes(),
            )
        case Replaced():
            return _ReplacedMessage(outcome.table_key, outcome.rows.tobytes())
        case _:
            assert_never(outcome)


def _finding(message: _FindingMessage) -> Finding:
    return Finding(
        stage=keyed_bucket.Stage(message.stage),
        table_key=message.table_key,
        reason=Reason(message.reason),
        columns=tuple(message.columns),
        rows=np.frombuffer(message.rows, np.uint64),
        broken=np.frombuffer(message.broken, np.uint64),
    )


def rank_arrays(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers per row: whether there is a value, and its rank among all values.

    A row with the greater value has the greater pair; a missing value is the smallest. Both zeros
    are equal, and every NaN is the greatest, whatever its sign bit says.
    """
    present = values.is_valid().to_numpy(zero_copy_only=False).astype(np.uint64)
    return present, _ranks(values)


def _ranks(values: pa.Array) -> np.ndarray:
    kind = values.type
    if pat.is_floating(kind):
        numbers = _plain(values.cast(pa.float64()), 0.0)
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
