"""How findings of buckets become final: which to accept after a pass, and whether to pass again.

The rows that are refused are in memory if they are few, otherwise in files by piece: parcels, which
the tasks that need them read.

Invariants:
- The accepted findings are those of the rules applied stage by stage, each to the rows that the
  previous stages accepted. A pass evaluates all stages at once, so a finding is final only if no
  row that was refused in the same pass could be part of it.
- Of rows in files the driver holds counts, and one path per piece and pass. The rows of a piece
  ascend, and each has one verdict. Parcels of one piece have no row in common.

Most loads need one pass. Only refused rows lead to another, and only if a later rule reads their
table.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, assert_never

import msgspec
import numpy as np

from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.runner.shuffle import Scratch
from omnigraph_lake.validation import constraints
from omnigraph_lake.validation.constraints import EndpointExists, TypeRules
from omnigraph_lake.validation.hashed_keys import SPLIT_BITS, split_and_position
from omnigraph_lake.validation.keyed_bucket import Finding, KeyPlan, RoleKind, Stage, is_node
from omnigraph_lake.validation.violations import Reason

if TYPE_CHECKING:
    import pyarrow as pa

_NONE: Final = np.empty(0, np.uint64)
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why some rows of a table were refused."""

    reason: Reason
    columns: tuple[str, ...]

    def columns_quoted(self, rules: TypeRules) -> tuple[str, ...]:
        """The columns whose values a message is made of."""
        match self.reason:
            case Reason.DUPLICATE_ID | Reason.SUPERSEDED | Reason.ID_EXISTS:
                return (ID_COLUMN,)
            case Reason.MISSING_ENDPOINT:
                rule = next(rule for rule in rules.keyed_rules if self._is_of(rule))
                assert isinstance(rule, EndpointExists)
                return rule.read_columns
            case _:
                return self.columns

    def message(self, rules: TypeRules, values: Sequence[pa.Scalar]) -> str:
        """What is wrong with a row that has these values in the quoted columns."""
        return constraints.keyed_message(self.reason, self._rule(rules, values), values)

    def text(self, rules: TypeRules, values: Sequence[pa.Scalar]) -> str:
        """The message without the columns that it begins with."""
        return self.message(rules, values).partition(": ")[2]

    def _rule(self, rules: TypeRules, values: Sequence[pa.Scalar]) -> constraints.KeyedRule | None:
        """The rule that was broken; ids have none."""
        broken = [rule for rule in rules.keyed_rules if self._is_of(rule)]
        if len(broken) > 1 and self.reason is Reason.MISSING_ENDPOINT:
            number = values[1].as_py()
            for rule in broken:
                assert isinstance(rule, EndpointExists)
                assert rule.types is not None
                if rule.number == (rule.types.implicit if number is None else number):
                    return rule
        return broken[0] if broken else None

    def _is_of(self, rule: constraints.KeyedRule) -> bool:
        match rule:
            case constraints.UniqueTuple():
                return self.reason is Reason.NOT_UNIQUE and rule.columns == self.columns
            case EndpointExists():
                return self.reason is Reason.MISSING_ENDPOINT and self.columns == (rule.column,)
            case constraints.EdgeCount():
                return self.reason in {Reason.TOO_FEW_EDGES, Reason.TOO_MANY_EDGES}
            case _:
                assert_never(rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingKind:
    """What findings of one rule about one table have in common."""

    stage: Stage
    table_key: str
    reason: Reason
    columns: tuple[str, ...]

    @classmethod
    def of(cls, finding: Finding) -> FindingKind:
        return cls(
            stage=finding.stage,
            table_key=finding.table_key,
            reason=finding.reason,
            columns=finding.columns,
        )

    @property
    def verdict(self) -> Verdict:
        return Verdict(reason=self.reason, columns=self.columns)

    def order(self) -> tuple[int, int, tuple[str, ...]]:
        """Stages first; among endpoints, the source before the target."""
        order = {SOURCE_COLUMN: 0, TARGET_COLUMN: 1}
        return self.stage, order.get(self.columns[0], 2), self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRows:
    """Refused rows of one table, ascending, each with the number of its verdict."""

    rows: np.ndarray
    verdicts: np.ndarray

    @classmethod
    def with_one_verdict(cls, rows: np.ndarray, verdict: int = 0) -> RefusedRows:
        return cls(rows=rows, verdicts=np.full(len(rows), verdict, np.uint16))

    @classmethod
    def join(cls, parts: Sequence[RefusedRows]) -> RefusedRows:
        """All rows in order; of a row that several parts have, the first part decides."""
        if len(parts) == 1:
            return parts[0]
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        verdicts = np.concatenate([part.verdicts for part in parts])[order]
        is_first = np.ones(len(rows), np.bool_)
        is_first[1:] = rows[1:] != rows[:-1]
        return cls(rows=rows[is_first], verdicts=verdicts[is_first])

    def of_piece(self, piece: int) -> RefusedRows:
        bounds = np.array([piece << SPLIT_BITS, (piece + 1) << SPLIT_BITS], np.uint64)
        start, end = np.searchsorted(self.rows, bounds)
        return RefusedRows(rows=self.rows[start:end], verdicts=self.verdicts[start:end])


NO_ROWS: Final = RefusedRows(rows=_NONE, verdicts=np.empty(0, np.uint16))


class Parcel(msgspec.Struct, frozen=True, array_like=True):
    """A file with refused rows of one piece."""

    piece: int
    path: str
    counts: list[tuple[str, int, int]]
    """Tables, verdicts and their numbers of rows."""
    digest: bytes


class _Rows(msgspec.Struct, frozen=True, array_like=True):
    """Refused rows of one table as a parcel has them."""

    positions: bytes
    verdicts: bytes


_PARCEL: Final = dict[str, _Rows]


def write_parcel(scratch: Scratch, piece: int, tables: Mapping[str, RefusedRows]) -> Parcel:
    """Write refused rows of one piece."""
    content = msgspec.msgpack.encode(
        {
            key: _Rows(split_and_position(refused.rows)[1].tobytes(), refused.verdicts.tobytes())
            for key, refused in tables.items()
        }
    )
    # Random, because a second attempt must not overwrite a file that the first has reported.
    path = scratch.put(f"refused-rows-{piece:06}-{secrets.token_hex(4)}", content)
    return Parcel(piece, path, [*_counts(tables)], _digest(content))


def _counts(tables: Mapping[str, RefusedRows]) -> Iterable[tuple[str, int, int]]:
    for table_key, refused in tables.items():
        for verdict, count in enumerate(np.bincount(refused.verdicts).tolist()):
            if count:
                yield table_key, verdict, count


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceRefusals:
    """The refused rows of one piece, or where they are; picklable."""

    piece: int
    held: Mapping[str, RefusedRows] = field(repr=False, compare=False)
    parcels: tuple[Parcel, ...] = field(repr=False)
    scratch: Scratch | None

    @property
    def counts(self) -> Counter[tuple[str, int]]:
        """By table and verdict."""
        counts = Counter({(key, verdict): count for key, verdict, count in _counts(self.held)})
        for parcel in self.parcels:
            counts.update({(key, verdict): count for key, verdict, count in parcel.counts})
        return counts

    def count(self, table_key: str) -> int:
        return sum(count for (key, _), count in self.counts.items() if key == table_key)

    def read(self) -> dict[str, RefusedRows]:
        """By table."""
        parts = {key: [refused] for key, refused in self.held.items() if len(refused.rows)}
        for parcel in self.parcels:
            assert self.scratch is not None
            content = msgspec.msgpack.decode(self.scratch.read(parcel.path), type=_PARCEL)
            for key, rows in content.items():
                positions = np.frombuffer(rows.positions, np.uint32).astype(np.uint64)
                refused = RefusedRows(
                    rows=positions | np.uint64(self.piece << SPLIT_BITS),
                    verdicts=np.frombuffer(rows.verdicts, np.uint16),
                )
                parts.setdefault(key, []).append(refused)
        return {key: RefusedRows.join(of_table) for key, of_table in parts.items()}

    def positions(self, table_key: str) -> np.ndarray:
        """The refused rows of a table by their positions in the piece, ascending."""
        return split_and_position(self.read().get(table_key, NO_ROWS).rows)[1]

    def fingerprint(self, table_key: str) -> bytes:
        """Equal only if the same rows of the table are refused."""
        if not self.parcels:
            return _digest(self.held.get(table_key, NO_ROWS).rows.tobytes())
        held = [] if table_key not in self.held else [_digest(self.held[table_key].rows.tobytes())]
        return b"".join([*held, *(parcel.digest for parcel in self.parcels)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The refused rows of all pieces: rows in memory by table, and parcels by piece and pass."""

    held: Mapping[str, RefusedRows] = field(default_factory=dict, repr=False)
    parcels: tuple[Mapping[int, Parcel], ...] = field(default=(), repr=False)
    scratch: Scratch | None = None

    @classmethod
    def of_rows(cls, rows: Mapping[str, np.ndarray]) -> Refusals:
        """Rows in memory, whose verdict is not asked for."""
        return cls(
            held={
                key: RefusedRows.with_one_verdict(np.sort(numbers))
                for key, numbers in rows.items()
                if len(numbers)
            }
        )

    @classmethod
    def of_parcels(cls, parcels: Iterable[Parcel], scratch: Scratch) -> Refusals:
        return cls(parcels=({parcel.piece: parcel for parcel in parcels},), scratch=scratch)

    def with_rows(self, added: Mapping[str, Sequence[RefusedRows]]) -> Refusals:
        """With more rows in memory; a row keeps the first verdict it got."""
        held = dict(self.held)
        for key, parts in added.items():
            earlier = [held[key]] if key in held else []
            held[key] = RefusedRows.join([*earlier, *parts])
        return replace(self, held=held)

    def with_parcels(self, parcels: Iterable[Parcel], scratch: Scratch) -> Refusals:
        added = {parcel.piece: parcel for parcel in parcels}
        return replace(self, parcels=(*self.parcels, added), scratch=scratch)

    def in_piece(self, piece: int) -> PieceRefusals:
        held = {key: refused.of_piece(piece) for key, refused in self.held.items()}
        return PieceRefusals(
            piece=piece,
            held={key: refused for key, refused in held.items() if len(refused.rows)},
            parcels=tuple(of_pass[piece] for of_pass in self.parcels if piece in of_pass),
            scratch=self.scratch,
        )

    def counts(self) -> Counter[tuple[str, int]]:
        """By table and verdict, of all pieces."""
        counts = Counter({(key, verdict): count for key, verdict, count in _counts(self.held)})
        for of_pass in self.parcels:
            for parcel in of_pass.values():
                counts.update({(key, verdict): count for key, verdict, count in parcel.counts})
        return counts

    def count(self, table_key: str) -> int:
        return sum(count for (key, _), count in self.counts().items() if key == table_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassState:
    """The final results so far: refused rows, and what a merge replaces."""

    verdicts: tuple[Verdict, ...] = ()
    refused: Refusals = field(default_factory=Refusals)
    replaced: Mapping[str, np.ndarray] = field(default_factory=dict)
    broken: tuple[Finding, ...] = ()
    is_final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PassDecision:
    """Which findings of a pass are final, and whether to pass again."""

    stages: frozenset[Stage]
    """Those whose findings are accepted."""
    again: bool


def decide_pass(
    state: PassState,
    refusing: Iterable[FindingKind],
    replaced: Mapping[str, np.ndarray],
    *,
    keys: KeyPlan,
    rules: Mapping[str, TypeRules],
    given_ids: frozenset[str],
) -> PassDecision:
    """Decide about the findings of one more pass.

    Args:
        state: before the pass.
        refusing: the kinds of findings that refuse rows.
        replaced: what the pass found to be replaced by a merge.
        keys: of the pass.
        rules: of all tables.
        given_ids: the tables whose input has ids.
    """
    disturbed = _Disturbed(keys, rules, given_ids)
    for table_key in keys.tracked:
        before = state.replaced.get(table_key, _NONE)
        if not np.array_equal(before, replaced.get(table_key, _NONE)):
            disturbed.replaced(table_key)
    kinds = frozenset(refusing)
    accepted: set[Stage] = set()
    for stage in Stage:
        if disturbed.touches(stage):
            return PassDecision(stages=frozenset(accepted), again=True)
        accepted.add(stage)
        for kind in kinds:
            if kind.stage is stage:
                disturbed.refused(stage, kind.table_key)
    return PassDecision(stages=frozenset(accepted), again=disturbed.again)


def number_verdicts(
    state: PassState, kinds: Iterable[FindingKind]
) -> tuple[tuple[Verdict, ...], dict[FindingKind, int]]:
    """The verdicts of a state with those of more findings, and the number for every kind.

    The kinds are in the order of the rules.
    """
    verdicts = list(state.verdicts)
    numbers: dict[FindingKind, int] = {}
    for kind in sorted(set(kinds), key=FindingKind.order):
        if kind.verdict not in verdicts:
            verdicts.append(kind.verdict)
        numbers[kind] = verdicts.index(kind.verdict)
    return tuple(verdicts), numbers


class _Disturbed:
    """The rules that read rows which were refused."""

    def __init__(
        self, keys: KeyPlan, rules: Mapping[str, TypeRules], given_ids: frozenset[str]
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._given_ids = given_ids
        self._marks: set[Stage] = set()
        self.again = False

    def touches(self, stage: Stage) -> bool:
        return stage in self._marks

    def replaced(self, table_key: str) -> None:
        """The pass did not know what a merge replaces there."""
        if self._has_tuples(table_key):
            self._marks.add(Stage.NODE_TUPLES if is_node(table_key) else Stage.EDGE_TUPLES)
        if table_key in self._keys.counts:
            self._marks.add(Stage.COUNTS)
        if any(
            role.table_key == table_key and role.node_key in self._keys.shrunk
            for role in self._keys.roles
        ):
            self._marks.add(Stage.ENDPOINTS)

    def refused(self, stage: Stage, table_key: str) -> None:
        """Rows of a table were refused at a stage."""
        later = {
            Stage.NODE_IDS: self._after_node_ids,
            Stage.NODE_TUPLES: self._after_node_tuples,
            Stage.ENDPOINTS: self._after_endpoints,
            Stage.EDGE_IDS: self._after_edge_ids,
            Stage.EDGE_TUPLES: self._after_edge_tuples,
            Stage.COUNTS: self._after_counts,
        }
        later[stage](table_key)

    def _after_node_ids(self, table_key: str) -> None:
        if self._has_tuples(table_key):
            self._marks.add(Stage.NODE_TUPLES)

    def _after_node_tuples(self, table_key: str) -> None:
        self.again |= self._may_uncover(table_key)
        for rules in self._rules.values():
            for rule in rules.keyed_rules:
                if isinstance(rule, EndpointExists) and rule.node_key == table_key:
                    self._marks.add(Stage.ENDPOINTS)

    def _after_endpoints(self, table_key: str) -> None:
        if table_key in self._given_ids:
            self._marks.add(Stage.EDGE_IDS)
        self._after_edge_ids(table_key)

    def _after_edge_ids(self, table_key: str) -> None:
        if self._has_tuples(table_key):
            self._marks.add(Stage.EDGE_TUPLES)
        self._after_edge_tuples(table_key)

    def _after_edge_tuples(self, table_key: str) -> None:
        self.again |= self._may_uncover(table_key)
        if table_key in self._keys.counts:
            self._marks.add(Stage.COUNTS)

    def _after_counts(self, table_key: str) -> None:
        # A source that loses pinned edges may be left with none.
        loses_edges = table_key in self._keys.overwritten | self._keys.deleted
        self.again |= loses_edges or self._may_uncover(table_key)

    def _may_uncover(self, table_key: str) -> bool:
        """The pinned row of a refused merge row is kept, and may conflict with others."""
        return self._keys.mode.upserts and table_key in self._keys.tracked

    def _has_tuples(self, table_key: str) -> bool:
        return any(
            role.kind is RoleKind.TUPLE and role.table_key == table_key for role in self._keys.roles
        )
