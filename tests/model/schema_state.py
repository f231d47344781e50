"""The state of the modelled world of schema changes: the store, then every process.

The manifest is the list of its versions, so that a process that has read one holds its number. A
table is a line of versions, each made by one operation on one version below it, healed if need be:
how a version comes to be exact is searched in the model of single tables. A pin is compared by its
version and not by its place, as keys are.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tests.model.labels import SchemaName
from tests.model.schema_edits import FIRST_SCHEMA, SCHEMAS, TableType
from tests.model.schema_scope import SchemaScope
from tests.model.state import Verdict

NOBODY: Final = -1


class Version(NamedTuple):
    """A version of a table, and the version it was made on."""

    op: int
    base: int
    shape: int
    breaks: bool = False  # it adds a row that the constraint on type 1 forbids
    bare: bool = False  # it has the new columns, and none of the rows that belong to them


class Table(NamedTuple):
    """A dataset."""

    place: int
    versions: tuple[Version, ...]


class Pin(NamedTuple):
    """The published version of a key."""

    key: str
    place: int
    version: int


class Entry(NamedTuple):
    """A version of the manifest, and the operation that it decides."""

    op: int
    verdict: Verdict
    schema: int
    pins: tuple[Pin, ...]
    validated: int = NOBODY  # a ghost: the schema that the operation was planned or judged by

    def pin(self, key: str) -> Pin | None:
        return next((pin for pin in self.pins if pin.key == key), None)


class Work(NamedTuple):
    """An operation as one attempt means to publish it: on which manifest version and schema."""

    op: int
    base: int = 0
    expects: int = NOBODY  # the schema that the publish expects
    validated: int = NOBODY  # the schema that rows were really judged by, or a plan was shown for


class Sidecar(NamedTuple):
    """A note to recovery."""

    work: Work
    armed: bool = False


class Contract(NamedTuple):
    """A schema with the text that somebody wrote for it: two texts may mean the same."""

    schema: int
    text: int = NOBODY


ApplierPhase = Literal[
    "idle",
    "sidecar",
    "lock",
    "checks",
    "contract",
    "create",
    "arm",
    "move",
    "rows",
    "resolve",
    "swap",
    "late_contract",
    "look",
    "promote",
    "abort",
    "undo_look",
    "undo",
    "clean",
    "late_undo",
    "unlock",
    "acked_done",
    "failed_done",
    "refused_done",
]


class Applier(NamedTuple):
    phase: ApplierPhase
    work: Work = Work(NOBODY)
    attempt: int = 0
    moved: int = 0  # tables so far
    files: int = 0  # root files so far
    held: int = 0  # the manifest version that its swap follows
    armed: bool = False
    acked: bool = False


WriterPhase = Literal[
    "idle", "sidecar", "arm", "move", "resolve", "swap", "abort", "acked", "failed",
    "acked_done", "failed_done",
]  # fmt: skip


class SchemaWriter(NamedTuple):
    """Writes rows into one table, or compacts it."""

    phase: WriterPhase
    work: Work = Work(NOBODY)
    attempt: int = 0
    held: int = 0


class SchemaReader(NamedTuple):
    """A query: one manifest version, and the contract that belongs to it."""

    phase: Literal["idle", "again", "files", "object", "answered", "lost"]
    base: int = 0  # the manifest version whose tables it reads
    wanted: int = NOBODY  # the hash in the manifest version that it read
    files: tuple[Contract, ...] = ()
    contract: Contract | None = None


class SchemaSweeper(NamedTuple):
    phase: Literal[
        "idle",
        "classify",
        "decide",
        "swap",
        "look",
        "promote",
        "discard",
        "early_discard",
        "delete",
    ]
    runs_left: int
    sidecar: Sidecar | None = None
    forward: bool = False
    held: int = 0
    files: int = 0


class SchemaState(NamedTuple):
    """Everything that the next step can depend on."""

    manifest: tuple[Entry, ...]
    tables: tuple[Table, ...]
    contracts: tuple[Contract, ...]  # the objects by hash
    files: tuple[Contract, Contract, Contract]  # at the root: text, model, state
    sidecars: tuple[Sidecar, ...]
    lock: int  # the operation that holds it
    appliers: tuple[Applier, ...]
    writers: tuple[SchemaWriter, ...]  # then the compactions
    readers: tuple[SchemaReader, ...]
    sweeper: SchemaSweeper

    @property
    def head(self) -> Entry:
        return self.manifest[-1]

    def verdict(self, op: int) -> Verdict | None:
        return next((entry.verdict for entry in self.manifest if entry.op == op), None)


SchemaStep = tuple[str, SchemaState]


def label(name: SchemaName, detail: str, actor: str) -> str:
    return f"{name}: {detail} [{actor}]"


def initial_schemas(scope: SchemaScope) -> SchemaState:
    """Two tables with one version each, of the first schema; root files that tell it."""
    first = Contract(FIRST_SCHEMA)
    pins = tuple(Pin(each.key, each.number, 1) for each in SCHEMAS[FIRST_SCHEMA].types)
    shapes = (each.shape for each in SCHEMAS[FIRST_SCHEMA].types)
    return SchemaState(
        manifest=(Entry(NOBODY, "committed", FIRST_SCHEMA, pins),),
        tables=tuple(
            Table(place, (Version(NOBODY, 0, shape),)) for place, shape in enumerate(shapes)
        ),
        contracts=(first,) if scope.stored else (),
        files=(first, first, first),
        sidecars=(),
        lock=NOBODY,
        appliers=(Applier("idle"),) * len(scope.appliers),
        writers=(SchemaWriter("idle"),) * (len(scope.writers) + len(scope.maintenance_runs)),
        readers=(SchemaReader("idle"),) * scope.readers,
        sweeper=SchemaSweeper("idle", scope.sweeps),
    )


def table_at(state: SchemaState, place: int) -> Table | None:
    return next((table for table in state.tables if table.place == place), None)


def with_table(state: SchemaState, table: Table) -> SchemaState:
    others = (each for each in state.tables if each.place != table.place)
    return state._replace(tables=tuple(sorted((*others, table), key=_place)))


def _place(table: Table) -> int:
    return table.place


def without_table(state: SchemaState, place: int) -> SchemaState:
    return state._replace(tables=tuple(each for each in state.tables if each.place != place))


def with_version(state: SchemaState, place: int, version: Version) -> SchemaState:
    """One more version; in a dataset that is gone it lands where nobody looks."""
    table = table_at(state, place)
    if table is None or version.base > len(table.versions):
        return state
    return with_table(state, table._replace(versions=(*table.versions, version)))


def exact_version(state: SchemaState, pin: Pin, op: int, *, takes_bare: bool = False) -> int | None:
    """The newest version that is the pinned content and the operation's whole change."""
    table = table_at(state, pin.place)
    if table is None:
        return None
    for number in range(len(table.versions), pin.version, -1):
        made = table.versions[number - 1]
        if made.op == op and made.base == pin.version and (takes_bare or not made.bare):
            return number
    return None


def chain(state: SchemaState, pin: Pin) -> tuple[Version, ...]:
    """The pinned version and those it stands on; empty if it does not exist."""
    table = table_at(state, pin.place)
    number, found = pin.version, list[Version]()
    while table is not None and 0 < number <= len(table.versions):
        found.append(table.versions[number - 1])
        assert found[-1].base < number
        number = found[-1].base
    return tuple(found)


def sidecar_of(state: SchemaState, op: int) -> Sidecar | None:
    return next((each for each in state.sidecars if each.work.op == op), None)


def with_sidecar(state: SchemaState, sidecar: Sidecar) -> SchemaState:
    """Puts it whether or not there is one."""
    rest = without_sidecar(state, sidecar.work.op).sidecars
    return state._replace(sidecars=tuple(sorted((*rest, sidecar))))


def without_sidecar(state: SchemaState, op: int) -> SchemaState:
    return state._replace(sidecars=tuple(each for each in state.sidecars if each.work.op != op))


def contract_of(state: SchemaState, schema: int) -> Contract | None:
    """The object by hash."""
    return next((each for each in state.contracts if each.schema == schema), None)


def with_contract(state: SchemaState, contract: Contract) -> SchemaState:
    """Put-if-absent."""
    if contract_of(state, contract.schema) is not None:
        return state
    return state._replace(contracts=tuple(sorted((*state.contracts, contract))))


def with_file(state: SchemaState, number: int, contract: Contract) -> SchemaState:
    text, model, told = state.files
    match number:
        case 0:
            return state._replace(files=(contract, model, told))
        case 1:
            return state._replace(files=(text, contract, told))
        case _:
            return state._replace(files=(text, model, contract))


def type_in(schema: int, number: int) -> TableType | None:
    return SCHEMAS[schema].of_number(number)
