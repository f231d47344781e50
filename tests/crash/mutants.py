"""The product without a guard: named edits of its source, each of which removes one guard.

Invariant: an edit is made exactly as written or not at all. Its fragment occurs once in the source
of its function, so an edit cannot outlive the code that it was written for.

The edited function is compiled, and its code replaces that of the function object. So every module
that has imported the function runs the mutant, and nothing on disk changes.

    with without_guards("no_look,no_exact"):
        graph.write(...)

Most names are those of mutants of the protocol's model.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final

from omnigraph_lake.commit.coordination.combine import _may_join
from omnigraph_lake.commit.effects import (
    _exact_version,
    _is_own,
    maintenance_version,
    own_versions,
    roll_forward,
)
from omnigraph_lake.commit.history_compaction import _without, move_to_history
from omnigraph_lake.commit.maintenance import _publish as publish_maintenance
from omnigraph_lake.commit.orphans import survey_forks
from omnigraph_lake.commit.phases import _require_living_branch, give_up, stage
from omnigraph_lake.commit.publish import _require_pins, _rows_of_all, publish
from omnigraph_lake.commit.recovery import _decide, _drop_forks
from omnigraph_lake.commit.rollback import _publish as publish_restored
from omnigraph_lake.commit.rollback import roll_back_pins
from omnigraph_lake.commit.schema_commit import follow_up_schema
from omnigraph_lake.commit.table_moves import (
    _Move,
    _standing,
    move_companions,
    require_no_foreign,
)
from omnigraph_lake.maintenance.cleanup import cleanup_graph
from omnigraph_lake.maintenance.protection import _Manifests, read_protection
from omnigraph_lake.storage.lance.next_version import _put_if_absent, commit_next
from omnigraph_lake.storage.manifest.retention import raise_floors
from omnigraph_lake.storage.manifest.swap import _read_whole
from omnigraph_lake.storage.refs.branches import require_living
from omnigraph_lake.storage.refs.holds import LiveHold
from omnigraph_lake.storage.refs.kept import require_versions_retained
from omnigraph_lake.validation.schema_contract import read_contract


@dataclass(frozen=True, slots=True)
class Edit:
    """Text in the source of a function, and what takes its place, indented like it."""

    function: Callable[..., Any]
    fragment: str
    replacement: str


GUARDS: Final[Mapping[str, tuple[Edit, ...]]] = {
    # A writer, and what it publishes.
    # Nobody looks at HEAD, and Lance commits in place: it rebases on what it finds there.
    "no_look": (
        Edit(_Move.run, "head != pin or ", ""),
        Edit(commit_next, 'os.environ.get(_VARIABLE) == "on"', "True"),
    ),
    "strict_put_over": (
        Edit(_put_if_absent, "os.link(unnamed, path)", "os.replace(unnamed, path)"),
    ),
    "no_exact": (
        Edit(_Move.run, " and new_version.version == pin + self.change.versions_made", ""),
        Edit(
            _Move._run_after_healing,
            " and new_version.version == stand + self.change.versions_made",
            "",
        ),
    ),
    "no_heal": (Edit(_standing, "if head is None:", "return head\nif head is None:"),),
    "ignore_foreign": (Edit(require_no_foreign, "if record.is_foreign and", "if False and"),),
    "no_pin_check": (Edit(publish, "_require_pins(pins_of(state), decision)", "pass"),),
    "no_read_set": (
        Edit(
            _require_pins,
            "if actual != expected:",
            "if actual != expected and table_key in {row.table_key for row in decision.moved}:",
        ),
    ),
    "no_schema_check": (
        Edit(publish, "require_schema(state, decision.schema_hash)", "pass"),
        Edit(stage, "require_schema(state, visible.schema_hash)", "pass"),
    ),
    "no_op_row": (Edit(publish, "if decided is not None:", "if decided == operation:"),),
    "ack_on_answer": (
        Edit(
            publish,
            "if answer is SwapAnswer.REFUSED:",
            "if answer is SwapAnswer.ACCEPTED:\n"
            "    return Decided(operation=operation, state=state)\n"
            "if answer is SwapAnswer.REFUSED:",
        ),
    ),
    "early_fail": (Edit(give_up, "if visible.state is SidecarState.STAGING:", "if True:"),),
    "no_incarnation_check": (Edit(_require_living_branch, "if branch is None:", "if True:"),),
    # A writer that publishes others with its own.
    "combine_conflicting": (Edit(_may_join, "and not sidecar.offer.ids & ids", ""),),
    "combine_inexact": (Edit(move_companions, " or version.version != below.version + 1", ""),),
    "combine_undecided": (
        Edit(
            _rows_of_all,
            "if decision_in(root, state, companion.operation.operation_id) is not None:",
            "if False:",
        ),
    ),
    # A sweep: what it finishes, and what it undoes.
    "fwd_no_pins": (Edit(roll_forward, "expected = dict(sidecar.pins)", "expected = {}"),),
    "fwd_no_read_set": (
        Edit(
            roll_forward,
            "expected=expected",
            "expected={table.table_key: table.expected for table in sidecar.tables}",
        ),
    ),
    "fwd_no_schema_check": (
        Edit(roll_forward, "schema_hash=sidecar.schema_hash", "schema_hash=None"),
    ),
    "fwd_no_created": (Edit(own_versions, "if move is None:", "if True:"),),
    "fwd_inexact": (
        Edit(_exact_version, "base = record.version - 1", "return record.version"),
        Edit(_is_own, "and record.made_for_pin == pin", ""),
    ),
    "fwd_any_attempt": (Edit(_is_own, "and record.attempt in {None, sidecar.nonce}", ""),),
    "fwd_columns": (
        Edit(
            _is_own,
            "record.role is table_versions.Role.OWN",
            "(record.role is table_versions.Role.OWN or record.adds_columns)",
        ),
    ),
    "no_fence": (Edit(_decide, "fence = Operation(", "return Operation("),),
    "restore_stale": (
        Edit(
            roll_back_pins,
            "new_version = _restore(",
            "from dataclasses import replace\n"
            "entry = replace(entry, version=pin.version)\n"
            "new_version = _restore(",
        ),
    ),
    "rpub_blind": (Edit(publish_restored, "expected=expected", "expected={}"),),
    "sweep_drops_published": (
        Edit(_drop_forks, "if decided.outcome is Outcome.PUBLISHED:", "if False:"),
    ),
    # Compaction.
    "maintenance_blind_pins": (Edit(publish_maintenance, "expected=expected", "expected={}"),),
    "maintenance_blind": (
        Edit(publish_maintenance, "schema_hash=sidecar.schema_hash", "schema_hash=None"),
    ),
    "opt_any_chain": (Edit(maintenance_version, " or not record.is_maintenance", ""),),
    "opt_any_file": (Edit(maintenance_version, "files != known and is_known", "files != known"),),
    # The manifest and the history.
    "no_verify": (
        Edit(_read_whole, "handle.version <= latest - names.MANIFEST_VERSIONS_KEPT", "False"),
    ),
    "fold_drop_first": (Edit(move_to_history, "record_commits(root, commits)", "pass"),),
    "prune_no_watermark": (Edit(_without, ", *pruned]", "]"),),
    # Schemas.
    "copy_believed": (Edit(read_contract, "if schema_hash in (", "if True or schema_hash in ("),),
    "promote_blindly": (Edit(follow_up_schema, " and in_force == move.after", ""),),
    # Branches.
    "read_unverified": (
        Edit(require_living, "ref is not None and not is_living(objects, ref)", "False"),
    ),
    "reconcile_no_sidecars": (
        Edit(
            survey_forks,
            "{names.sidecar_owner(path) for path in pending_sidecars(objects)}",
            "set()",
        ),
    ),
    "reconcile_logs_once": (Edit(survey_forks, " and branch_logs(objects) == logs", ""),),
    # Cleanup, and what it has to keep.
    "no_floors": (
        Edit(
            cleanup_graph,
            "raise_floors(objects, {line: f for plan in plans for line, f in plan.floors.items()})",
            "pass",
        ),
    ),
    "floors_fall": (Edit(raise_floors, "max(floor, now.floors.get(line, 0))", "floor"),),
    "no_retention_check": (
        Edit(require_versions_retained, "removed_entries = not_kept(objects, entries)", "return"),
    ),
    "cl_no_tags": (Edit(read_protection, "claimed_tags(objects)", "[]"),),
    "cl_no_holds": (Edit(read_protection, "stored_holds(objects)", "()"),),
    "cl_no_sidecars": (
        Edit(read_protection, "_begun(sidecars, ", "_begun((), "),
        Edit(read_protection, "for sidecar in sidecars", "for sidecar in ()"),
    ),
    "cl_no_creating": (
        Edit(_Manifests.read, "elif log.state is BranchState.CREATING:", "elif False:"),
    ),
    "cl_logs_once": (Edit(read_protection, " or branch_logs(objects) != logs", ""),),
    "hold_renewed_late": (Edit(LiveHold.renew, "if self._clock.now() >= old.ends:", "if False:"),),
}


@contextmanager
def without_guards(guards: str) -> Iterator[None]:
    """Run the product without these guards, named with commas in between, in this process."""
    mutants = _mutants(guards)
    before = {function: function.__code__ for function in mutants}
    _run_as(mutants)
    try:
        yield
    finally:
        _run_as(before)


def main(guards: str, module: str, *arguments: str) -> None:
    """Be a process of tests that runs the product without these guards, to its end."""
    _run_as(_mutants(guards))
    importlib.import_module(module).main(*arguments)


def _run_as(codes: Mapping[FunctionType, CodeType]) -> None:
    for function, code in codes.items():
        function.__code__ = code


def _mutants(guards: str) -> dict[FunctionType, CodeType]:
    edits: dict[FunctionType, list[Edit]] = {}
    for guard in filter(None, guards.split(",")):
        assert guard in GUARDS, f"there is no guard {guard!r}; there are {', '.join(GUARDS)}"
        for edit in GUARDS[guard]:
            edits.setdefault(_plain(edit.function), []).append(edit)
    return {function: _edited(function, of_it, guards) for function, of_it in edits.items()}


def _plain(function: Callable[..., Any]) -> FunctionType:
    plain = inspect.unwrap(getattr(function, "__func__", function))
    assert isinstance(plain, FunctionType)
    return plain


def _edited(function: FunctionType, edits: list[Edit], guards: str) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        source = _replaced(source, edit)
    module = compile(source, f"<{function.__qualname__} without {guards}>", "exec")
    (code,) = (constant for constant in module.co_consts if isinstance(constant, CodeType))
    return code


def _replaced(source: str, edit: Edit) -> str:
    times = source.count(edit.fragment)
    assert times == 1, (
        f"{edit.function.__qualname__} has {edit.fragment!r} {times} times instead of once"
    )
    before, after = source.split(edit.fragment)
    line = before.rpartition("\n")[2]
    indent = line[: len(line) - len(line.lstrip())]
    return before + edit.replacement.replace("\n", "\n" + indent) + after
