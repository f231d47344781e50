"""The parameters of every task of a load, and what it leaves for later ones.

Invariants:
- A plan is picklable and read-only; two tasks with the same plan and the same input stage the same
  rows at the same positions, so a task may run twice and either result may be used.
- Refused records, and the origins of staged rows, are one file per split and kind, replaced with
  the same content when the split is run again; all of them are below the load's own folder, which
  is removed when the load ends.
"""

from __future__ import annotations

import io
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import names
from omnigraph.load.report import FaultPolicy, SparkLoad
from omnigraph.names import EDGE_PREFIX, ID_COLUMN, SOURCE_COLUMN
from omnigraph.runner.key_hash import SEED_BYTES
from omnigraph.schema.arrow import table_schema
from omnigraph.storage.objects.store import StoredObjects
from omnigraph.storage.staging.bulk import StagedFragment
from omnigraph.validation.constraints import EdgeCount, TypeRules, WriteMode, table_rules
from omnigraph.validation.input.intake import declared_types
from omnigraph.validation.keyed_bucket import Hashing, KeyPlan, Role, RoleKind, roles_of

if TYPE_CHECKING:
    from omnigraph.load.formats.records import Split
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry

_BUCKET_BYTES: Final = 64 << 20
_BUCKETS_MIN: Final = 8
_BUCKETS_MAX: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One load, as its tasks see it."""

    operation_id: str
    root: Root
    catalog: Catalog
    rules: Mapping[str, TypeRules]
    entries: Mapping[str, TableEntry]
    splits: tuple[Split, ...]
    mode: WriteMode
    order_by: str | None
    keep_refused: bool
    hashing: Hashing
    ids_at: int
    """Milliseconds since 1970 that generated ids carry."""

    def on(self, snapshot: Snapshot) -> LoadPlan:
        """The same load on other pins."""
        return replace(self, entries=snapshot.tables)

    def schema(self, table_key: str) -> pa.Schema:
        return table_schema(declared_types(self.catalog)[table_key])

    def relies_on(self, overwritten: frozenset[str], touched: frozenset[str]) -> frozenset[str]:
        """The tables whose pinned rows the checks of a pass depend on, empty ones included."""
        asked_keys = {
            role.table_key
            for rules in self.rules.values()
            for role in roles_of(rules, pinned=True)
            if self._is_asked(role, overwritten)
        }
        nodes = {
            role.node_key
            for key in touched
            for role in roles_of(self.rules[key], pinned=False)
            if role.node_key is not None
        }
        edges = {key for key in asked_keys if key.startswith(EDGE_PREFIX)}
        return frozenset(touched | (nodes & asked_keys) | (edges if overwritten else set()))

    def keys(self, *, overwritten: frozenset[str]) -> KeyPlan:
        """The roles of a pass: all incoming keys, and the pinned keys that a rule reads."""
        incoming = [role for rules in self.rules.values() for role in roles_of(rules, pinned=False)]
        return KeyPlan(
            roles=(*incoming, *self._pinned_roles(overwritten)),
            mode=self.mode,
            counts={key: rule for key in self.rules if (rule := self.count_rule(key))},
            overwritten=overwritten,
            tracked=self.tracked(),
        )

    def id_keys(self, table_key: str) -> KeyPlan:
        """The pass that joins staged and pinned rows of a table by their ids."""
        roles = tuple(
            Role(kind=RoleKind.ID, table_key=table_key, columns=(ID_COLUMN,), pinned=pinned)
            for pinned in (False, True)
        )
        return KeyPlan(
            roles=roles,
            mode=self.mode,
            counts={},
            overwritten=frozenset(),
            tracked=frozenset(),
        )

    def count_rule(self, table_key: str) -> EdgeCount | None:
        rules = self.rules[table_key].keyed_rules
        return next((rule for rule in rules if isinstance(rule, EdgeCount)), None)

    def tracked(self) -> frozenset[str]:
        """Tables whose replaced rows must be known, because a rule depends on them."""
        if self.mode is not WriteMode.MERGE:
            return frozenset()
        return frozenset(
            key
            for key, rules in self.rules.items()
            if self.entries[key].row_count
            and (
                self.count_rule(key)
                or any(role.kind is RoleKind.TUPLE for role in roles_of(rules, pinned=False))
            )
        )

    def _pinned_roles(self, overwritten: frozenset[str]) -> Iterable[Role]:
        for key, rules in self.rules.items():
            if not self.entries[key].row_count:
                continue
            for role in roles_of(rules, pinned=True):
                if self._is_asked(role, overwritten):
                    yield role

    def _is_asked(self, role: Role, overwritten: frozenset[str]) -> bool:
        is_overwritten = role.table_key in overwritten
        if role.kind is RoleKind.ENDPOINT:
            counted = self.count_rule(role.table_key) is not None and role.columns == (
                SOURCE_COLUMN,
            )
            return counted or (not is_overwritten and role.node_key in overwritten)
        return not is_overwritten


def plan_load(load: SparkLoad, snapshot: Snapshot) -> LoadPlan:
    size = sum(split.end - split.start for split in load.splits)
    pinned = sum(entry.row_count for entry in snapshot.tables.values()) * 48
    buckets = max(_BUCKETS_MIN, (size + pinned) // _BUCKET_BYTES)
    return LoadPlan(
        operation_id=load.operation_id,
        root=load.objects.root,
        catalog=load.catalog,
        rules=table_rules(load.catalog),
        entries=snapshot.tables,
        splits=load.splits,
        mode=load.mode,
        order_by=load.order_by,
        keep_refused=load.on_error is FaultPolicy.QUARANTINE and not load.dry_run,
        hashing=Hashing(seed=secrets.token_bytes(SEED_BYTES), buckets=min(buckets, _BUCKETS_MAX)),
        ids_at=int(load.clock.now().timestamp() * 1000),
    )


class FirstRefused(msgspec.Struct, frozen=True, array_like=True):
    """The part of a refused record that a report shows."""

    place: int
    type: str | None
    reason: str
    message: str


class SplitReport(msgspec.Struct, frozen=True):
    """The result of one split, in a size that does not grow with it."""

    split: int
    source: str
    lines: int
    records: int
    refused: dict[str, int]
    first_refused: list[FirstRefused]
    fragments: dict[str, list[tuple[str, int]]]
    given_ids: dict[str, int]
    """The number of rows whose id is in the input, by table."""
    generated: str
    """The prefix of generated ids."""

    def staged(self, table_key: str) -> tuple[StagedFragment, ...]:
        return tuple(
            StagedFragment(description=description, rows=rows)
            for description, rows in self.fragments.get(table_key, ())
        )

    def only(self, table_key: str) -> SplitReport:
        """The same split, restricted to the rows of one table."""
        return msgspec.structs.replace(self, fragments={table_key: self.fragments[table_key]})

    def rows(self, table_key: str) -> int:
        return sum(rows for _, rows in self.fragments.get(table_key, ()))


def with_lines_before(reports: Iterable[SplitReport]) -> Iterator[tuple[SplitReport, int]]:
    """Each split, in input order, and the lines of its file that earlier splits own."""
    before: Counter[str] = Counter()
    for report in reports:
        yield report, before[report.source]
        before[report.source] += report.lines


def key_columns(plan: LoadPlan, table_key: str) -> tuple[str, ...]:
    """The columns of a table that any of its roles needs, and what orders its rows."""
    columns = {ID_COLUMN: None}
    for role in roles_of(plan.rules[table_key], pinned=False):
        columns |= dict.fromkeys(role.columns)
    if plan.order_by is not None and plan.order_by in plan.schema(table_key).names:
        columns |= {plan.order_by: None}
    return tuple(columns)


def put_refused(root: Root, operation_id: str, split: int, refused: pa.Table) -> None:
    content = io.BytesIO()
    pq.write_table(refused, content, compression="zstd")
    StoredObjects(root).replace(_path(operation_id, "refused", split), content.getvalue())


def refused_of(root: Root, operation_id: str, split: int) -> pa.Table | None:
    content = StoredObjects(root).read(_path(operation_id, "refused", split))
    return None if content is None else pq.read_table(io.BytesIO(content))


def put_places(root: Root, operation_id: str, split: int, places: Mapping[str, np.ndarray]) -> None:
    """Store, per table, the position of each staged row, as well-compressible differences."""
    steps = {
        key: np.diff(positions, prepend=np.uint32(0)).tobytes() for key, positions in places.items()
    }
    plain = msgspec.msgpack.encode(steps)
    content = len(plain).to_bytes(8, "little") + pa.compress(plain, codec="zstd", asbytes=True)
    StoredObjects(root).replace(_path(operation_id, "places", split), content)


def places_of(root: Root, operation_id: str, split: int) -> Mapping[str, np.ndarray]:
    content = StoredObjects(root).read(_path(operation_id, "places", split))
    assert content is not None, "a split that staged rows wrote their positions"
    size = int.from_bytes(content[:8], "little")
    steps = msgspec.msgpack.decode(pa.decompress(content[8:], size, codec="zstd", asbytes=True))
    return {
        key: np.cumsum(np.frombuffer(differences, np.uint32), dtype=np.uint32)
        for key, differences in steps.items()
    }


def _path(operation_id: str, kind: str, split: int) -> str:
    return f"{names.staging(operation_id)}/{kind}-{split:06}"
