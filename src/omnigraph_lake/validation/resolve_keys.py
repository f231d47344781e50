"""Decide which incoming rows keep the keyed rules: hash keys, exchange them, check them in buckets.

A pass reads the keys of incoming rows and of the pinned rows that a rule refers to, sends their
hashes to buckets, and checks every bucket. Only rows that a pass refuses lead to another one; see
`keyed_passes`.

Which pinned keys are read, and how, is decided by `pinned_access`. If nodes are few beside the
edges that refer to them, every task gets the ids of the nodes, and sends only the endpoints that
are not among them. Rows of a key that very many share are sent together, and listed by their piece
if they are refused.

Invariants:
- A refused row has exactly one reason, that of the first stage it failed; every other row keeps
  every rule against the rows that are kept and the remaining pinned rows.
- Values do not travel. A task holds the keys of one part of a piece, or of one bucket, whatever
  share of the rows has one key.
- The result does not depend on the runner, on the pieces or on the number of buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.names import ID_COLUMN, ROW_ADDRESS, SOURCE_COLUMN
from omnigraph_lake.packed import Joined, Mapped
from omnigraph_lake.runner.key_hash import KeyHashes, hash_keys
from omnigraph_lake.runner.protocol import Hop, Runner, Sent, Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import Scratch
from omnigraph_lake.validation import keyed_bucket
from omnigraph_lake.validation.hashed_keys import (
    Chosen,
    Hashing,
    KeyBuckets,
    incoming_rows,
    read_buckets,
    split_and_position,
)
from omnigraph_lake.validation.key_sets import KeySet, StoredKeySet, collect_keys
from omnigraph_lake.validation.keyed_bucket import (
    NO_GROUPS,
    Finding,
    KeyPlan,
    Replaced,
    Role,
    RoleKind,
    Space,
    space_of,
)
from omnigraph_lake.validation.keyed_findings import (
    ListRows,
    ParcelPlan,
    StoredFindings,
    by_piece,
    collect_parcels,
    decode_outcome,
    encode_outcomes,
    numbers_refused,
    partitions_for,
    settle_findings,
    without_refused,
)
from omnigraph_lake.validation.keyed_passes import (
    FindingKind,
    PassState,
    PieceRefusals,
    Refusals,
    decide_pass,
    number_verdicts,
)
from omnigraph_lake.validation.keyed_write import IncomingPiece, KeyedWrite
from omnigraph_lake.validation.lookups import PinnedTables
from omnigraph_lake.validation.pinned_access import (
    Access,
    IncomingKeys,
    PinnedRead,
    collect_incoming,
    plan_reads,
)

_PASSES_MAX: Final = 50
_KEYS_SENT_TOGETHER: Final = 1_000_000
_PINNED_ROWS_PER_PIECE: Final = 2_000_000
ENDPOINTS_LEAST: Final = 1_000_000
_NODES_MAX: Final = 4_000_000
NODES_SHARE: Final = 2
"""Every task gets the ids of nodes, if they are few and half as many as the endpoints or fewer."""
_SIGN: Final = np.uint64(1 << 63)
_NO_ADDRESSES: Final = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SendIncoming:
    """Send the keys of a piece without the rows refused since."""

    piece: IncomingPiece
    refused: tuple[PieceRefusals, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SendPinned:
    """Send pinned keys, of some fragments or of the whole table.

    `removed` has the addresses of rows that are removed, by their fate; `has_fates` says whether
    rules ask for these.
    """

    read: PinnedRead
    fragments: tuple[int, ...] | None
    removed: Mapping[int, np.ndarray] = field(repr=False)
    has_fates: bool


_Work: TypeAlias = _SendIncoming | _SendPinned


def resolve_keys(
    runner: Runner,
    write: KeyedWrite,
    *,
    verb: str,
    refused: PassState | None = None,
    scratch: Scratch | None = None,
) -> PassState:
    """Apply the keyed rules to all rows of a write, except those that were refused before.

    Args:
        runner: runs the passes.
        write: the rows.
        verb: of the operation, for its progress.
        refused: the rows that were refused before.
        scratch: a place for what all tasks need, if that may be large.

    Returns:
        The refused rows with their reasons, and what the write would leave broken among pinned
        rows.
    """
    passes = _Passes(runner, write, verb, scratch)
    state = refused or PassState()
    for _ in range(_PASSES_MAX):
        state = passes.run(state)
        if state.is_final:
            return state
    raise AssertionError(f"refused rows still changed findings after {_PASSES_MAX} passes")


class _Passes:
    """The passes of one write; each is over the rows that were not refused before."""

    def __init__(
        self, runner: Runner, write: KeyedWrite, verb: str, scratch: Scratch | None
    ) -> None:
        self._runner = runner
        self._write = write
        self._verb = verb
        self._scratch = scratch
        self._keys = write.keys()
        self._reads = tuple(plan_reads(write, self._keys))
        self._groups = {
            read.table_key: self._fragment_groups(read.table_key)
            for read in self._reads
            if read.access is not Access.PROBE
        }
        hashing = Hashing.for_keys(self._count_keys())
        filtered = [
            self._keys.roles[number]
            for read in self._reads
            if read.access is Access.FILTERED_SCAN
            for number in read.roles
        ]
        incoming = (
            collect_incoming(runner, write, filtered, hashing, verb=verb, scratch=scratch)
            if filtered
            else None
        )
        self._hashing = hashing
        self._incoming_keys = incoming
        self._small_spaces = tuple(self._find_small_spaces())

    def run(self, state: PassState) -> PassState:
        incoming, pinned = self._incoming(state), list(self._read_pinned(state))
        nodes = self._collect_nodes(incoming, pinned) if self._small_spaces else {}
        sender = _Sender(self._write, self._keys, self._hashing, self._incoming_keys, nodes)
        answers = self._runner.exchange(
            Stage(verb=self._verb, name="check keys"),
            Joined[_Work](incoming, pinned),
            sender.send,
            Hop(
                partitions=self._hashing.partitions,
                receive=_Checker(self._keys, self._hashing, self._scratch).receive,
            ),
        )
        findings: list[Finding] = []
        stored: list[StoredFindings] = []
        replaced_parts: dict[str, list[np.ndarray]] = {}
        for _, content in answers:
            outcome = decode_outcome(content)
            match outcome:
                case Finding():
                    findings.append(outcome)
                case StoredFindings():
                    stored.append(outcome)
                case Replaced():
                    replaced_parts.setdefault(outcome.table_key, []).append(outcome.rows)
                case _:
                    assert_never(outcome)
        replaced = {key: np.sort(np.concatenate(parts)) for key, parts in replaced_parts.items()}
        refusing = [finding for finding in findings if not len(finding.broken)]
        kinds = {FindingKind.of(finding) for finding in refusing}
        kinds.update(kind for bucket in stored for kind in bucket.kinds)
        decision = decide_pass(
            state,
            kinds,
            replaced,
            keys=self._keys,
            rules=self._write.rules,
            given_ids=self._write.given_ids,
        )
        verdicts, numbers = number_verdicts(
            state, (kind for kind in kinds if kind.stage in decision.stages)
        )
        return PassState(
            verdicts=verdicts,
            refused=self._with_refused(state, refusing, stored, numbers),
            replaced=replaced,
            broken=()
            if decision.again
            else tuple(finding for finding in findings if len(finding.broken)),
            is_final=not decision.again,
        )

    def _with_refused(
        self,
        state: PassState,
        findings: Sequence[Finding],
        stored: Sequence[StoredFindings],
        verdicts: Mapping[FindingKind, int],
    ) -> Refusals:
        """What was refused before, and the rows of findings that have a verdict."""
        accepted = [finding for finding in findings if FindingKind.of(finding) in verdicts]
        accepted_files = [
            bucket for bucket in stored if any(kind in verdicts for kind in bucket.kinds)
        ]
        has_groups = any(len(finding.groups) for finding in accepted)
        scratch = self._scratch
        if scratch is None or not (accepted_files or has_groups):
            listed = settle_findings(self._list_groups(accepted, state), verdicts)
            return state.refused.with_rows({key: [rows] for key, rows in listed.items()})
        incoming = self._incoming(state)
        rows = sum(len(finding.rows) for finding in accepted)
        rows += sum(bucket.rows for bucket in accepted_files)
        plan = ParcelPlan(
            verdicts=verdicts, scratch=scratch, partitions=partitions_for(rows, len(incoming))
        )
        parcels = collect_parcels(
            self._runner, self._verb, plan, accepted, accepted_files, _look_up_in(incoming)
        )
        return state.refused.with_parcels(parcels, scratch)

    def _list_groups(self, findings: Sequence[Finding], state: PassState) -> list[Finding]:
        """The findings with the rows of their groups, which the pieces list."""
        listed = [finding for finding in findings if not len(finding.groups)]
        grouped = [finding for finding in findings if len(finding.groups)]
        if not grouped:
            return listed
        look_up = _look_up_in(self._incoming(state))
        work: list[ListRows] = []
        for finding in grouped:
            for number, part in by_piece(finding):
                piece, refused = look_up(number)
                work.append(ListRows(piece=piece, refused=refused, finding=part))
        stage = Stage(verb=self._verb, name="list rows of frequent keys")
        answers = require_answers(self._runner.map(stage, work, ListRows.run, bytes))
        for listing, rows in zip(work, answers, strict=True):
            more_rows = np.frombuffer(rows, np.uint64)
            finding = listing.finding
            listed.append(
                replace(finding, rows=np.concatenate([finding.rows, more_rows]), groups=NO_GROUPS)
            )
        return listed

    def _incoming(self, state: PassState) -> Sequence[_SendIncoming]:
        def send(piece: IncomingPiece) -> _SendIncoming:
            refusals = (state.refused, self._write.excluded)
            of_piece = tuple(refused.in_piece(piece.number) for refused in refusals)
            return _SendIncoming(piece=piece, refused=of_piece)

        return Mapped(self._write.pieces, send)

    def _read_pinned(self, state: PassState) -> Iterator[_SendPinned]:
        for read in self._reads:
            table_key = read.table_key
            deleted = self._write.deleted.get(table_key)
            removed = {
                keyed_bucket.REPLACED: state.replaced.get(table_key, _NO_ADDRESSES),
                keyed_bucket.DELETED: _NO_ADDRESSES if deleted is None else deleted.addresses,
            }
            for fragments in self._groups[table_key] if read.where is None else (None,):
                yield _SendPinned(
                    read=read,
                    fragments=fragments,
                    removed={
                        fate: _in_fragments(addresses, fragments)
                        for fate, addresses in removed.items()
                        if len(addresses)
                    },
                    has_fates=table_key in self._keys.tracked or deleted is not None,
                )

    def _find_small_spaces(self) -> Iterator[Space]:
        """The ids that are so few, beside the endpoints that refer to them, that tasks get all."""
        endpoints: Counter[Space] = Counter()
        ids: Counter[Space] = Counter()
        for role in self._keys.roles:
            rows = self._write.pinned.row_count if role.pinned else self._write.rows_of
            if role.kind is RoleKind.ID:
                ids[space_of(role)] += rows(role.table_key)
            elif _is_only_asked_for(role, self._keys):
                endpoints[space_of(role)] += rows(role.table_key)
        for space, count in endpoints.items():
            if count >= ENDPOINTS_LEAST and ids[space] <= min(_NODES_MAX, count // NODES_SHARE):
                yield space

    def _collect_nodes(
        self, incoming: Sequence[_SendIncoming], pinned: Sequence[_SendPinned]
    ) -> Mapping[Space, StoredKeySet]:
        """The ids of the nodes that remain or come, in small spaces."""
        tables = {table_key for _, table_key, _ in self._small_spaces}
        work: list[_Work] = [work for work in incoming if tables & work.piece.rows.keys()]
        work += [work for work in pinned if work.read.table_key in tables]
        sets = collect_keys(
            self._runner,
            Stage(verb=self._verb, name="collect ids of nodes"),
            work,
            _NodeIds(self._write.pinned, self._keys, self._small_spaces, self._hashing.seed).send,
            sets=len(self._small_spaces),
            scratch=self._scratch,
        )
        return dict(zip(self._small_spaces, sets, strict=True))

    def _fragment_groups(self, table_key: str) -> tuple[tuple[int, ...] | None, ...]:
        """The parts in which a table is scanned; a table of one part is not even planned."""
        pinned = self._write.pinned
        if pinned.row_count(table_key) <= _PINNED_ROWS_PER_PIECE:
            return (None,)
        return pinned.groups(table_key, rows_max=_PINNED_ROWS_PER_PIECE)

    def _count_keys(self) -> int:
        """The keys of incoming rows, and of all pinned rows that are sent."""
        incoming = sum(
            self._write.rows_of(role.table_key) for role in self._keys.roles if not role.pinned
        )
        # Of other reads only the keys that match are sent: at most about as many as come in.
        scans = [read for read in self._reads if read.access is Access.SCAN]
        return incoming + sum(
            self._write.pinned.row_count(read.table_key) * len(read.roles) for read in scans
        )


def _look_up_in(
    incoming: Sequence[_SendIncoming],
) -> Callable[[int], tuple[IncomingPiece, tuple[PieceRefusals, ...]]]:
    """A function from the number of a piece to the piece and what was refused of it."""
    indexes: dict[int, int] = {}

    def look_up(number: int) -> tuple[IncomingPiece, tuple[PieceRefusals, ...]]:
        if not indexes:
            indexes.update({work.piece.number: index for index, work in enumerate(incoming)})
        work = incoming[indexes[number]]
        return work.piece, work.refused

    return look_up


def _in_fragments(addresses: np.ndarray, fragments: tuple[int, ...] | None) -> np.ndarray:
    if fragments is None:
        return addresses
    owners, _ = split_and_position(addresses)
    return addresses[np.isin(owners, fragments)]


def _is_only_asked_for(role: Role, keys: KeyPlan) -> bool:
    """Whether the keys of a role are incoming endpoints, and no rule counts them."""
    is_counted = role.table_key in keys.counts and role.columns == (SOURCE_COLUMN,)
    return role.kind is RoleKind.ENDPOINT and not role.pinned and not is_counted


@dataclass(frozen=True, slots=True)
class _NodeIds:
    """Hashes the ids of nodes that remain or come, in some spaces."""

    pinned: PinnedTables
    keys: KeyPlan
    spaces: tuple[Space, ...]
    seed: bytes = field(repr=False)

    def send(self, work: _Work, task: Task) -> Iterator[tuple[int, KeyHashes]]:
        match work:
            case _SendIncoming():
                yield from self._incoming(work, task)
            case _SendPinned():
                yield from self._remaining(work, task)
            case _:
                assert_never(work)

    def _incoming(self, work: _SendIncoming, task: Task) -> Iterator[tuple[int, KeyHashes]]:
        refused = numbers_refused(work.refused)
        for number, (_, table_key, columns) in enumerate(self.spaces):
            if table_key in work.piece.rows:
                rows = refused.get(table_key)
                for batch, _ in _read_kept(work.piece, rows, table_key, columns, task):
                    yield number, hash_keys(batch.columns, self.seed)

    def _remaining(self, work: _SendPinned, task: Task) -> Iterator[tuple[int, KeyHashes]]:
        for role in (self.keys.roles[number] for number in work.read.roles):
            if role.kind is not RoleKind.ID:
                continue
            deleted = work.removed.get(keyed_bucket.DELETED, _NO_ADDRESSES)
            columns = [ID_COLUMN, ROW_ADDRESS] if len(deleted) else [ID_COLUMN]
            for batch in _read_pinned_rows(self.pinned, work, columns, task):
                ids = batch.column(ID_COLUMN)
                if len(deleted):
                    is_deleted = np.isin(batch.column(ROW_ADDRESS).to_numpy(), deleted)
                    ids = ids.filter(pa.array(~is_deleted))
                yield self.spaces.index(space_of(role)), hash_keys([ids], self.seed)


def _read_kept(
    piece: IncomingPiece,
    refused: np.ndarray | None,
    table_key: str,
    columns: Sequence[str],
    task: Task,
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Some columns of the rows that were not refused, with the numbers of the rows."""
    first = 0
    for batch in piece.read(table_key, columns):
        numbers = incoming_rows(piece.number, first, len(batch))
        first += len(batch)
        task.advance(rows=len(batch))
        yield without_refused(batch, numbers, refused)


def _read_pinned_rows(
    pinned: PinnedTables, work: _SendPinned, columns: Sequence[str], task: Task
) -> Iterator[pa.RecordBatch]:
    table_key = work.read.table_key
    batches: Iterable[pa.RecordBatch]
    if work.fragments is None:
        batches = pinned.scan(table_key, columns, work.read.where)
    else:
        batches = pinned.scan_group(table_key, work.fragments, columns)
    for batch in batches:
        task.advance(rows=len(batch))
        yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roles:
    """The roles of one table by number, and the columns that they need."""

    numbered: tuple[tuple[int, Role], ...]
    columns: tuple[str, ...]


class _Sender:
    """Hashes the keys of pieces, role by role."""

    def __init__(
        self,
        write: KeyedWrite,
        keys: KeyPlan,
        hashing: Hashing,
        incoming: IncomingKeys | None,
        nodes: Mapping[Space, StoredKeySet],
    ) -> None:
        """`nodes` are all ids of some spaces: endpoints among them need no check."""
        # The pieces travel with the work: a task needs its own only.
        self._pinned = write.pinned
        self._incoming = incoming
        self._order_by = write.order_by
        self._ordered = write.ordered
        self._keys = keys
        self._hashing = hashing
        self._nodes = nodes
        self._chosen = {
            number: Chosen.LAST if role.kind is RoleKind.ID and keys.supersedes else Chosen.FIRST
            for number, role in enumerate(keys.roles)
            if not role.pinned
        }

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
        refused = numbers_refused(work.refused)
        buckets = KeyBuckets(self._hashing, self._chosen)
        for table_key in piece.rows:
            roles = self._incoming_roles(table_key, with_ids=bool(piece.given_ids.get(table_key)))
            if not roles.numbered:
                continue
            for rows, numbers in _read_kept(
                piece, refused.get(table_key), table_key, roles.columns, task
            ):
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
        columns = dict.fromkeys(name for _, role in numbered for name in role.read_columns)
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
                values = role.keys(batch)
                buckets.add(number, values, numbers, unless=self._satisfying(role))
                continue
            rows, row_numbers = _with_given_ids(batch, numbers, generated)
            extras: tuple[np.ndarray, ...] = ()
            if self._order_by is not None and self._order_by in rows.schema.names:
                extras = rank_arrays(rows.column(self._order_by))
            buckets.add(number, [rows.column(ID_COLUMN)], row_numbers, extras=extras)

    def _send_pinned(self, work: _SendPinned, task: Task) -> Iterator[Sent]:
        read = work.read
        roles = [(number, self._keys.roles[number]) for number in read.roles]
        columns = list(dict.fromkeys(name for _, role in roles for name in role.read_columns))
        needs_addresses = work.has_fates or any(role.kind is RoleKind.ENDPOINT for _, role in roles)
        needed = [*columns, ROW_ADDRESS] if needs_addresses else columns
        only = self._matching(read)
        buckets = KeyBuckets(self._hashing)
        for batch in _read_pinned_rows(self._pinned, work, needed, task):
            # Where rows are matters only if they may be removed, or shown.
            addresses = (
                batch.column(ROW_ADDRESS).to_numpy()
                if needs_addresses
                else np.zeros(len(batch), np.uint64)
            )
            extras = _fates(work, addresses)
            for number, role in roles:
                values = role.keys(batch)
                buckets.add(number, values, addresses, extras=extras, only=only.get(number))
            if buckets.count > _KEYS_SENT_TOGETHER:
                yield from buckets.buckets()
        yield from buckets.buckets()

    def _satisfying(self, role: Role) -> KeySet | None:
        """The keys of a role that satisfy every rule."""
        if not _is_only_asked_for(role, self._keys) or space_of(role) not in self._nodes:
            return None
        return self._nodes[space_of(role)].read()

    def _matching(self, read: PinnedRead) -> Mapping[int, KeySet]:
        """By role, the keys that are sent; all if a role is missing."""
        if read.access is not Access.FILTERED_SCAN:
            return {}
        assert self._incoming is not None
        return {
            number: self._incoming[space_of(self._keys.roles[number])].read()
            for number in read.roles
        }


def _fates(work: _SendPinned, addresses: np.ndarray) -> tuple[np.ndarray, ...]:
    """What becomes of pinned rows, if rules depend on that."""
    if not work.has_fates:
        return ()
    fates = np.zeros(len(addresses), np.uint64)
    for fate, removed in work.removed.items():
        fates[np.isin(addresses, removed)] = fate
    return (fates,)


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
    """Checks the keys of one partition, bucket by bucket."""

    keys: KeyPlan
    hashing: Hashing
    scratch: Scratch | None

    def receive(self, messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
        for keys in read_buckets(messages, self.hashing, task):
            task.advance()
            outcomes = keyed_bucket.check_bucket(keys, self.keys)
            for message in encode_outcomes(outcomes, self.scratch):
                yield task.number, message


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
