"""An open graph: its root, its branch, the schemas it has read, and whether it may be written.

Invariant: `Graph` and its namespaces share one handle per branch. Every call reads the latest state
of the branch through it; clocks and ids come from here and nowhere below.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from omnigraph_lake import errors, names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import acting, parse_operation_id, plain_text
from omnigraph_lake.storage.objects.durability import keep_reserve
from omnigraph_lake.storage.objects.processes import use_storage
from omnigraph_lake.storage.refs.holds import Holding, LiveHold, checked_time, hold_versions
from omnigraph_lake.storage.refs.references import (
    Reference,
    Resolved,
    branch_ref,
    branch_state,
    is_commit_id,
    resolve,
)
from omnigraph_lake.ulids import new_ulid
from omnigraph_lake.validation.schema_contract import Contracts, SchemaContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import Snapshot

_T = TypeVar("_T")
_SCHEMAS_TRIED_MAX: Final = 5
_SNAPSHOTS_TRIED_MAX: Final = 5


class OpenMode(StrEnum):
    """What a graph may do. Opening it for reading writes nothing, not even repairs."""

    READ_WRITE = "rw"
    READ_ONLY = "r"


class Handle:
    """One branch of a graph at a root, opened for reading or for writing."""

    def __init__(
        self,
        objects: Objects,
        contracts: Contracts,
        contract: SchemaContract,
        *,
        mode: OpenMode,
        branch: str | None = None,
    ) -> None:
        self._objects = objects
        self.contracts = contracts
        self._contract = contract
        self.mode = mode
        self.branch = branch

    @property
    def objects(self) -> Objects:
        """Every operation uses this, so none starts in a forked process, where it would hang."""
        use_storage()
        return self._objects

    @property
    def root(self) -> str:
        return self._objects.root.uri

    @property
    def branch_name(self) -> str:
        return self.branch or names.MAIN

    @property
    def contract(self) -> SchemaContract:
        """The schema as it was last seen."""
        return self._contract

    def on_branch(self, branch: str | None) -> Handle:
        return Handle(self._objects, self.contracts, self._contract, mode=self.mode, branch=branch)

    def ref(self) -> BranchRef | None:
        return branch_ref(self.objects, self.branch)

    def manifest(self) -> ManifestState:
        return branch_state(self.objects, self.ref())

    def contract_of(self, state: ManifestState) -> SchemaContract:
        if state.schema_hash is not None:
            self._contract = self.contracts.of(state.schema_hash)
        return self._contract

    def view(self) -> tuple[Snapshot, SchemaContract]:
        """The current state and its schema, read together."""
        state = self.manifest()
        return state.snapshot(), self.contract_of(state)

    def resolve(self, reference: Reference) -> Resolved:
        """The state that a reference names, from the point of view of this branch."""
        return resolve(self.objects, reference, branch=self.branch)

    def resolve_commit(self, reference: str) -> str:
        """The id of the commit that a reference names; a whole id need not be known."""
        text = plain_text(reference, argument="commit").strip()
        return text.upper() if is_commit_id(text) else self.resolve(text).commit_id

    def resolve_or_head(self, reference: Reference | None) -> Resolved:
        """As `resolve`; the head of this branch by default."""
        return self.resolve(self.branch_name if reference is None else reference)

    def resolve_here(self, reference: Reference | None) -> Resolved:
        """As `resolve_or_head`, for a write that keeps what it names.

        Raises:
            GraphReplacedError: another graph is at its root.
        """
        resolved = self.resolve_or_head(reference)
        if resolved.snapshot.schema_hash is not None:
            self.contracts.of(resolved.snapshot.schema_hash)
        return resolved

    def operation(self, operation_id: str | None, *, branch: BranchRef | None) -> str:
        """The operation that a call is: a new one, or what the caller names.

        A caller's key names the operation that was published with it on the branch. As long as
        there is none, it names the next attempt: a sweep ends what a dead process left first.
        """
        if operation_id is None:
            return new_ulid()
        # Only a write whose caller names it.
        from omnigraph_lake.commit.publish import operation_with_key
        from omnigraph_lake.commit.recovery import sweep
        from omnigraph_lake.commit.sidecar import pending_operations

        named = parse_operation_id(operation_id, now=SYSTEM_CLOCK.now())
        if not isinstance(named, names.OperationKey):
            return named
        pending = pending_operations(self.objects)
        if self.is_writable and any(running.startswith(named.prefix) for running in pending):
            sweep(self.objects, SYSTEM_CLOCK)
        state = branch_state(self.objects, branch)
        return operation_with_key(self.objects.root, state, named)

    @property
    def is_writable(self) -> bool:
        return self.mode is not OpenMode.READ_ONLY

    def require_writable(self, verb: str) -> None:
        """Require that the graph is open for writing, and still the one that was opened.

        Raises:
            GraphReplacedError: another graph is at its root.
        """
        self.require_mode(verb)
        self.contract_of(branch_state(self.objects, None))

    def require_mode(self, verb: str) -> None:
        """As `require_writable`, for writes whose schema is looked at, which tells the graph."""
        if not self.is_writable:
            raise errors.ReadOnlyError(
                f"cannot {verb}: {self.root} was opened for reading",
                next_step=f"Open it with `og.open({self.root!r})`.",
            )
        keep_reserve(self._objects.root)

    def under_schema(self, run: Callable[[SchemaContract], _T]) -> _T:
        """Run a write with the cached schema, and again if that is no longer current."""
        contract = self._contract
        for _ in range(_SCHEMAS_TRIED_MAX):
            try:
                return run(contract)
            except errors.SchemaChangedError as changed:
                if not changed.is_early:
                    raise
                contract = self.contracts.of(changed.found)
            except errors.InvalidInputError:
                _, in_force = self.view()
                if in_force == contract:
                    raise
                contract = in_force
        return run(contract)

    def hold(
        self, snapshot: Snapshot, time: str | timedelta | None, *, thing: str
    ) -> LiveHold | None:
        """Keep a snapshot readable for the time a caller requested."""
        if time is None:
            return None
        checked = checked_time(time)
        self.require_writable("hold what is read")
        return hold_versions(
            self.objects,
            tuple(snapshot.tables.values()),
            SYSTEM_CLOCK,
            time=checked,
            thing=thing,
            actor=acting(None),
            purpose="view",
            commit_id=snapshot.commit_id,
        )

    def holding(self) -> Holding | None:
        """How long reads hold their state; None if the graph was opened for reading."""
        if not self.is_writable:
            return None
        return Holding(objects=self.objects, clock=SYSTEM_CLOCK, actor=acting(None))

    @contextmanager
    def held_while(self, *snapshots: Snapshot, purpose: str) -> Iterator[None]:
        """Hold these states while the body runs, if the graph was opened for writing."""
        holding = self.holding() if snapshots else None
        with ExitStack() as holds:
            if holding is not None:
                for snapshot in snapshots:
                    holds.enter_context(holding.during(snapshot, purpose=purpose))
            yield

    def held_now(self, *, purpose: str) -> tuple[Snapshot, SchemaContract, Reading]:
        """The current state, held if the graph was opened for writing."""

        def hold_newest() -> tuple[Snapshot, SchemaContract, Reading]:
            (snapshot, contract), reading = self.view(), Reading(self.holding())
            reading.hold(snapshot, purpose=purpose)
            return snapshot, contract, reading

        return newest_kept(hold_newest)


class Reading:
    """A reader whose state is held while it is referenced, and until it is released."""

    def __init__(self, holding: Holding | None) -> None:
        self._holding = holding
        self._holds: list[LiveHold] = []

    def hold(self, snapshot: Snapshot, *, purpose: str) -> None:
        if self._holding is None:
            return
        entries = tuple(snapshot.tables.values())
        live = self._holding.for_reader(
            self, entries, purpose=purpose, commit_id=snapshot.commit_id
        )
        self._holds += [] if live is None else [live]

    def release(self) -> None:
        for live in self._holds:
            live.release()


def newest_kept(hold: Callable[[], _T]) -> _T:
    """Hold the newest state; a cleanup that removes it meanwhile has left a newer one."""
    for _ in range(_SNAPSHOTS_TRIED_MAX):
        with suppress(errors.NoLongerKeptError):
            return hold()
    return hold()
