"""Merges that bring a schema, a model of its own: are schema, columns and rows published together?

There are two lines, main and a branch that parted from it, each with a manifest, a schema and one
table. A schema is the set of columns that it has; a change adds one. A version of the table has
columns and rows. Changes of the branch are one step each: what matters there is when they come.
On main, a merge takes the columns and the rows of the branch over, beside an apply, a writer and a
sweep; the branch may be changed, deleted and cleaned up at any time. A process may die or sleep at
every step.

- **X1** The sidecar is put before the source is read, and claims what is read. Then the log of the
  source is read again: only what is still there is relied on.
- **X2** The merged schema is kept under its hash before a manifest can name it.
- **X3** Columns and rows are one version of the table. A version with the columns alone is never
  published, not by a sweep either.
- **X4** The publish expects the schema and the pin of main that the merge was planned on. So does
  that of every other writer.
- **X5** A new table has a path of the operation's own. It is removed only once the operation is
  decided not to be published.
- **X6** The number of a new column is made from the schema that is changed and from the change, not
  from a counter: two lines that add different columns never give them one number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, get_args

from tests.model.checker import Model
from tests.model.process_steps import ProcessSteps

MergeMutant = Literal[
    "source_unclaimed",
    "source_unverified",
    "schema_kept_late",
    "forward_columns_alone",
    "merge_expects_no_schema",
    "merge_expects_no_pin",
    "writer_expects_no_schema",
    "forward_expects_no_schema",
    "discard_undecided",
    "discard_never",
    "forward_without_table",
    "numbers_counted",
]
MERGE_MUTANTS: Final[dict[MergeMutant, str]] = {
    "source_unclaimed": "X1: the sidecar does not claim what is read of the source",
    "source_unverified": "X1: the log of the source is not read again",
    "schema_kept_late": "X2: the merged schema is kept after the publish",
    "forward_columns_alone": "X3: a sweep takes a version with the columns for the whole change",
    "merge_expects_no_schema": "X4: a merge publishes on any schema",
    "merge_expects_no_pin": "X4: a merge publishes on any pin",
    "writer_expects_no_schema": "X4: a writer publishes on any schema",
    "forward_expects_no_schema": "X4: a sweep publishes a merge on any schema",
    "discard_undecided": "X5: a sweep removes the new table before it has decided",
    "discard_never": "X5: the new table of an operation that was rolled back stays",
    "forward_without_table": "X5: a sweep publishes a merge whose new table is missing",
    "numbers_counted": "X6: the next number of a line is its greatest one and one",
}
assert set(get_args(MergeMutant)) == set(MERGE_MUTANTS)

Columns = frozenset[tuple[int, str]]
"""Number and meaning of every column; the first one is there from the start. A rule is told apart
by its meaning, and no table has it."""
RULE: Final = "rule"
FIRST: Final[Columns] = frozenset({(0, "key")})
MERGE, APPLY, WRITE = "merge", "apply", "write"
_WIDE: Final = {"b": 101, "c": 102, RULE: 103}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeScope:
    """Who takes part besides the merge; each once."""

    branch_applies: bool = True
    main_applies: Literal["nothing", "column", "rule"] = "nothing"
    """A rule moves no table: nothing but the schema tells that it was applied."""
    writes: bool = False
    sweeps: int = 0
    ends_source: bool = False
    """The branch is deleted, and what it had is cleaned up unless it is claimed."""
    creates: bool = False
    """The schema of the branch has a new type, whose table the merge makes on main."""
    mutant: MergeMutant | None = None


class Version(NamedTuple):
    """A version of main's table; a bare one has new columns without the rows of the merge."""

    op: str
    base: int
    columns: Columns
    rows: frozenset[str]
    bare: bool = False


class Entry(NamedTuple):
    """A version of main's manifest."""

    op: str
    schema: Columns
    pin: int
    judged_by: Columns
    """A ghost: the schema that its rows were validated against, or that it was planned on."""
    has_table: bool = False


class Sidecar(NamedTuple):
    armed: bool = False
    base: int = 0  # the manifest version that it was planned on
    after: Columns = FIRST
    claims: bool = False


MergerPhase = Literal[
    "idle", "sidecar", "verify", "keep", "arm", "columns", "rows", "table", "publish",
    "late_keep", "close", "done", "failed", "refused",
]  # fmt: skip


class Merger(NamedTuple):
    phase: MergerPhase = "idle"
    base: int = 0
    source: tuple[Columns, frozenset[str]] = (FIRST, frozenset())


class Writer(NamedTuple):
    """An apply of main or a writer of rows: plans on one manifest version, publishes later."""

    phase: Literal["idle", "staged", "moved", "done", "failed"] = "idle"
    base: int = 0
    version: int = 0


class Sweeper(NamedTuple):
    phase: Literal["idle", "classify", "decide", "discard", "delete"] = "idle"
    runs_left: int = 0
    forward: int = 0  # the version to publish; 0 rolls back


class MergeState(NamedTuple):
    manifest: tuple[Entry, ...]
    table: tuple[Version, ...]
    kept: frozenset[Columns]
    new_table: bool
    rolled_back: bool
    sidecar: Sidecar | None
    branch: tuple[Columns, frozenset[str]]
    branch_lives: bool
    branch_gone: bool
    mergers: tuple[Merger, ...]
    writers: tuple[Writer, ...]
    sweepers: tuple[Sweeper, ...]

    @property
    def head(self) -> Entry:
        return self.manifest[-1]

    @property
    def is_merged(self) -> bool:
        return any(entry.op == MERGE for entry in self.manifest)


MergeStep = tuple[str, MergeState]


def merge_protocol(scope: MergeScope) -> Model[MergeState]:
    """The model of one search."""
    initial = MergeState(
        manifest=(Entry("", FIRST, 1, FIRST),),
        table=(Version("", 0, FIRST, frozenset()),),
        kept=frozenset({FIRST}),
        new_table=False,
        rolled_back=False,
        sidecar=None,
        branch=(FIRST, frozenset()),
        branch_lives=True,
        branch_gone=False,
        mergers=(Merger(),),
        writers=(Writer(), Writer()),
        sweepers=(Sweeper(runs_left=scope.sweeps),),
    )
    return Model(
        initial=initial, steps=partial(_all_steps, scope), violation=partial(_violation, scope)
    )


def _number(scope: MergeScope, schema: Columns, meaning: str) -> int:
    if scope.mutant == "numbers_counted":
        return max(number for number, _ in schema) + 1
    return _WIDE[meaning]


def _with_column(scope: MergeScope, schema: Columns, meaning: str) -> Columns:
    return schema | {(_number(scope, schema, meaning), meaning)}


def _merged(ours: Columns, theirs: Columns) -> Columns:
    """By number alone: a number that both have is one column, with the meaning of ours."""
    known = {number for number, _ in ours}
    return ours | {column for column in theirs if column[0] not in known}


def _stored(schema: Columns) -> Columns:
    return frozenset(column for column in schema if column[1] != RULE)


def _all_steps(scope: MergeScope, state: MergeState) -> Iterator[MergeStep]:
    yield from _branch_steps(scope, state)
    yield from _merger_steps(scope, state)
    if scope.main_applies != "nothing":
        yield from _writer_steps(scope, state, 0)
    if scope.writes:
        yield from _writer_steps(scope, state, 1)
    yield from _sweeper_steps(scope, state)


def _branch_steps(scope: MergeScope, state: MergeState) -> Iterator[MergeStep]:
    columns, rows = state.branch
    if state.branch_lives:
        if scope.branch_applies and len(columns) == 1:
            applied = _with_column(scope, columns, "b")
            kept = state.kept | {applied}
            yield "apply on the branch", state._replace(branch=(applied, rows), kept=kept)
        if not rows and len(columns) > 1:
            yield "write on the branch", state._replace(branch=(columns, frozenset({"theirs"})))
        if scope.ends_source and len(columns) > 1:
            yield "delete the branch", state._replace(branch_lives=False)
    elif not state.branch_gone and not (state.sidecar and state.sidecar.claims):
        yield "clean up what the branch had", state._replace(branch_gone=True)


_To = ProcessSteps[MergeState, MergerPhase]


def _merger_steps(scope: MergeScope, state: MergeState) -> Iterator[MergeStep]:
    merger, to = state.mergers[0], _To(state, "mergers", 0)
    match merger.phase:
        case "idle" | "sidecar" | "verify":
            yield from _begin_steps(scope, state, merger, to)
        case "keep":
            late = scope.mutant == "schema_kept_late"
            yield to("keep the merged schema", "arm", state if late else _kept(state, merger))
        case "arm":
            yield from _arm_steps(state, merger, to)
        case "columns" | "rows":
            yield _move_step(state, merger, to)
        case "table":
            made = state._replace(new_table=True) if scope.creates else state
            yield to("make the new table", "publish", made)
        case "publish":
            yield from _publish_steps(scope, state, merger, to)
        case "late_keep":
            yield to("keep the merged schema late", "close", _kept(state, merger))
        case "close":
            yield to("delete the sidecar", "done", state._replace(sidecar=None))
        case "done" | "failed" | "refused":
            return


def _begin_steps(
    scope: MergeScope, state: MergeState, merger: Merger, to: _To
) -> Iterator[MergeStep]:
    if merger.phase == "idle":
        if len(state.branch[0]) > 1 and state.branch_lives:
            base = len(state.manifest)
            yield to("find the source", "sidecar", source=state.branch, base=base)
    elif merger.phase == "sidecar":
        put = state._replace(sidecar=Sidecar(claims=scope.mutant != "source_unclaimed"))
        after: MergerPhase = "keep" if scope.mutant == "source_unverified" else "verify"
        yield to("put the sidecar", after, put)
    elif state.branch_lives:
        yield to("the source is still there", "keep")
    else:
        yield to("the source is gone", "refused", state._replace(sidecar=None))


def _arm_steps(state: MergeState, merger: Merger, to: _To) -> Iterator[MergeStep]:
    sidecar = state.sidecar
    if sidecar is None:
        yield to("a sweep has settled it", "failed")
        return
    armed = sidecar._replace(armed=True, base=merger.base, after=_after(state, merger))
    yield to("arm", "rows", state._replace(sidecar=armed))
    # Lance may also be given columns and rows in two commits.
    yield to("arm, columns first", "columns", state._replace(sidecar=armed))


def _after(state: MergeState, merger: Merger) -> Columns:
    """The merged schema."""
    return _merged(state.manifest[merger.base - 1].schema, merger.source[0])


def _kept(state: MergeState, merger: Merger) -> MergeState:
    return state._replace(kept=state.kept | {_after(state, merger)})


def _move_step(state: MergeState, merger: Merger, to: _To) -> MergeStep:
    """Commit to the table: on HEAD, which may be another's unpublished work."""
    planned = state.manifest[merger.base - 1]
    pinned = state.table[planned.pin - 1]
    merged = _after(state, merger)
    bare = merger.phase == "columns"
    rows = pinned.rows if bare else pinned.rows | merger.source[1] | {"merged"}
    version = Version(MERGE, planned.pin, _stored(merged), rows, bare)
    moved = state._replace(table=(*state.table, version))
    return to("move the columns", "rows", moved) if bare else to("move", "table", moved)


def _publish_steps(
    scope: MergeScope, state: MergeState, merger: Merger, to: _To
) -> Iterator[MergeStep]:
    planned = state.manifest[merger.base - 1]
    if state.is_merged:
        yield to("read the decision", "close")
        return
    if state.rolled_back:
        yield to("a sweep has rolled it back", "failed", _discard(scope, state))
        return
    if not _holds(scope, state, planned, by=MERGE):
        # A retry begins with the same phases; here the operation ends.
        undone = _discard(scope, state._replace(rolled_back=True))
        yield to("abort", "failed", undone._replace(sidecar=None))
        return
    number = max(n for n, made in enumerate(state.table, 1) if made.op == MERGE and not made.bare)
    merged = _after(state, merger)
    entry = Entry(MERGE, merged, number, planned.schema, scope.creates)
    after: MergerPhase = "late_keep" if scope.mutant == "schema_kept_late" else "close"
    yield to("publish", after, state._replace(manifest=(*state.manifest, entry)))


def _discard(scope: MergeScope, state: MergeState) -> MergeState:
    return state if scope.mutant == "discard_never" else state._replace(new_table=False)


def _holds(scope: MergeScope, state: MergeState, planned: Entry, *, by: str) -> bool:
    """Whether main still has the schema and the pin that an operation was planned on."""
    blind_schema: dict[str, MergeMutant] = {
        MERGE: "merge_expects_no_schema",
        WRITE: "writer_expects_no_schema",
        "sweep": "forward_expects_no_schema",
    }
    same_schema = scope.mutant == blind_schema.get(by) or state.head.schema == planned.schema
    blind_pin = by == MERGE and scope.mutant == "merge_expects_no_pin"
    return same_schema and (blind_pin or state.head.pin == planned.pin)


def _writer_steps(scope: MergeScope, state: MergeState, number: int) -> Iterator[MergeStep]:
    op = (APPLY, WRITE)[number]
    writer, to = state.writers[number], ProcessSteps[MergeState, str](state, "writers", number)
    planned = state.manifest[writer.base - 1] if writer.base else state.head
    added = RULE if scope.main_applies == "rule" else "c"
    after = _with_column(scope, planned.schema, added) if op == APPLY else planned.schema
    match writer.phase:
        case "idle":
            yield to(f"plan the {op}", "staged", base=len(state.manifest))
        case "staged":
            pinned = state.table[planned.pin - 1]
            if op == APPLY and added == RULE:
                kept = state.kept | {after}
                yield to("keep the rule", "moved", state._replace(kept=kept), version=planned.pin)
                return
            rows = pinned.rows | ({"ours"} if op == WRITE else set())
            version = Version(op, planned.pin, _stored(after), rows)
            moved = state._replace(table=(*state.table, version), kept=state.kept | {after})
            yield to(f"move for the {op}", "moved", moved, version=len(moved.table))
        case "moved":
            if not _holds(scope, state, planned, by=op):
                yield to(f"the {op} lost a race", "failed")
                return
            entry = Entry(op, after, writer.version, planned.schema, state.head.has_table)
            if op == WRITE:
                entry = entry._replace(schema=state.head.schema)
            published = state._replace(manifest=(*state.manifest, entry))
            yield to(f"publish the {op}", "done", published)
        case "done" | "failed":
            return


def _sweeper_steps(scope: MergeScope, state: MergeState) -> Iterator[MergeStep]:
    sweeper, to = state.sweepers[0], ProcessSteps[MergeState, str](state, "sweepers", 0)
    sidecar = state.sidecar
    match sweeper.phase:
        case "idle":
            if sweeper.runs_left and sidecar is not None:
                left = sweeper.runs_left - 1
                yield to("find the sidecar", "classify", runs_left=left, forward=0)
        case "classify":
            yield to("classify", "decide", forward=_exact(scope, state))
        case "decide":
            yield from _sweep_decisions(scope, state, sweeper, to)
        case "discard":
            yield to("remove the new table", "delete", _discard(scope, state))
        case "delete":
            yield to("delete the sidecar", "idle", state._replace(sidecar=None))


def _exact(scope: MergeScope, state: MergeState) -> int:
    """The version that a sweep may publish; 0 if a part of the merge is missing."""
    sidecar = state.sidecar
    if sidecar is None or not sidecar.armed:
        return 0
    is_missing = scope.creates and not state.new_table
    if is_missing and scope.mutant != "forward_without_table":
        return 0
    takes_bare = scope.mutant == "forward_columns_alone"
    pin = state.manifest[sidecar.base - 1].pin
    return max(
        (
            number
            for number, made in enumerate(state.table, 1)
            if made.op == MERGE and made.base == pin and (takes_bare or not made.bare)
        ),
        default=0,
    )


def _sweep_decisions(
    scope: MergeScope, state: MergeState, sweeper: Sweeper, to: ProcessSteps[MergeState, str]
) -> Iterator[MergeStep]:
    sidecar = state.sidecar
    if state.is_merged or sidecar is None:
        yield to("it is decided", "delete")
        return
    if scope.mutant == "discard_undecided" and not sweeper.forward and state.new_table:
        yield to("remove the new table early", "decide", state._replace(new_table=False))
        return
    planned = state.manifest[sidecar.base - 1]
    if sweeper.forward and not state.rolled_back and _holds(scope, state, planned, by="sweep"):
        entry = Entry(MERGE, sidecar.after, sweeper.forward, planned.schema, scope.creates)
        yield to("roll forward", "delete", state._replace(manifest=(*state.manifest, entry)))
        return
    yield to("roll back", "discard", state._replace(rolled_back=True))


def _violation(scope: MergeScope, state: MergeState) -> str | None:
    for before, entry in zip(state.manifest, state.manifest[1:], strict=False):
        if entry.judged_by != before.schema:
            return f"JUDGED: {entry.op} by {sorted(entry.judged_by)}, not {sorted(before.schema)}"
    ops = [entry.op for entry in state.manifest]
    if len(set(ops)) < len(ops):
        return f"TWO DECISIONS: {ops}"
    return next(
        filter(None, (_entry_violation(state, entry) for entry in state.manifest)), None
    ) or _end_violation(scope, state)


def _entry_violation(state: MergeState, entry: Entry) -> str | None:
    pinned = state.table[entry.pin - 1]
    if pinned.columns != _stored(entry.schema):
        return f"FIT: {sorted(entry.schema)} is published with the columns {sorted(pinned.columns)}"
    if entry.schema not in state.kept:
        return f"NO CONTRACT of {sorted(entry.schema)}"
    if entry.op == MERGE and "merged" not in pinned.rows:
        return "HALF: the merge shows columns and no rows"
    if entry.has_table and not state.new_table:
        return "LOST TABLE: the manifest names the new table"
    if entry.op == MERGE and not {m for _, m in state.branch[0]} <= {m for _, m in entry.schema}:
        return f"MIXED: a column of the source is {sorted(entry.schema)} after the merge"
    return None


def _end_violation(scope: MergeScope, state: MergeState) -> str | None:
    shown = state.table[state.head.pin - 1].rows
    for number, (op, row) in enumerate(((APPLY, None), (WRITE, "ours"))):
        if row is not None and state.writers[number].phase == "done" and row not in shown:
            return f"DURABILITY: the {op} was acknowledged and does not show"
    merger = state.mergers[0]
    if state.is_merged and "merged" not in shown:
        return "DURABILITY: what was merged does not show"
    reads = merger.phase in ("keep", "arm", "columns", "rows", "table", "publish")
    if reads and state.branch_gone and state.sidecar is not None:
        return "UNREADABLE: the merge relies on versions of the source that are gone"
    ended = merger.phase == "failed" and state.sidecar is None
    if ended and state.is_merged:
        return "PHANTOM: the merge was reported as failed and is published"
    is_idle = state.sweepers[0].phase == "idle"
    if ended and is_idle and scope.creates and state.new_table:
        return "LEFT OVER: the new table of a merge that failed"
    return None
