"""Named points where a write can be made to fail, die or pause; no cost when off.

Invariant: the names are those of the protocol model's steps; reaching a point changes nothing
unless a test armed it, by `OMNIGRAPH_FAILPOINTS` or by `arm`. A name that is not listed here
cannot be armed.

    OMNIGRAPH_FAILPOINTS="publish.pre_manifest=kill,mutation.post_stage=stop@2"

Actions: `error` raises, `kill` and `stop` signal this process, `pause:0.5` sleeps.
`@2` acts on the second time the point is reached.

Only a checkout obeys the variable: a file beside this module says so, and wheels are built without
it.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import did_you_mean

POINTS: Final = frozenset(
    {
        "mutation.begin",
        "mutation.post_sidecar",
        "mutation.post_stage",
        "mutation.validate",
        "mutation.pre_direct_commit",
        "mutation.post_direct_commit",
        "mutation.open_head",
        "mutation.drift",
        "mutation.pre_heal",
        "mutation.post_heal",
        "mutation.pre_table_commit",
        "mutation.post_table_commit",
        "mutation.retry",
        "mutation.give_up",
        "mutation.post_sidecar_delete",
        "optimize.pre_reserve",
        "optimize.post_phase_b_pre_manifest_commit",
        "combine.post_collect",
        "combine.post_commit",
        "combine.post_report",
        "publish.pre_manifest",
        "publish.post_manifest",
        "publish.refused",
        "publish.ambiguous",
        "publish.resolve",
        "publish.resolve.list",
        "publish.resolve.verify",
        "publish.pre_abort",
        "publish.post_abort",
        "recovery.post_list",
        "recovery.post_log",
        "recovery.post_classify",
        "recovery.pre_manifest",
        "recovery.decided",
        "recovery.decided.list",
        "recovery.decided.verify",
        "recovery.post_rollforward",
        "recovery.post_fence",
        "recovery.post_drop",
        "recovery.pre_restore",
        "recovery.post_restore",
        "recovery.drift",
        "recovery.pre_restore_publish",
        "recovery.post_restore_publish",
        "recovery.restore_publish_refused",
        "recovery.healed",
        "recovery.post_sidecar_delete",
        "schema.post_lock",
        "schema.post_checks",
        "schema.post_contract",
        "schema.post_create",
        "schema.post_columns",
        "schema.pre_promote",
        "schema.post_promote_file",
        "schema.post_discard",
        "schema.post_unlock",
        "read.post_contract",
        "manifest.post_clean",
        "fold.post_read",
        "fold.post_history",
        "fold.pre_drop",
        "fold.post_drop",
        "branch.begin",
        "branch.post_abandon",
        "branch.post_claim",
        "branch.post_manifest",
        "branch.post_parent",
        "branch.post_ready",
        "branch.pre_delete",
        "branch.post_delete",
        "branch.post_fork",
        "branch.pre_verify",
        "tag.begin",
        "tag.post_put",
        "tag.verify",
        "tag.post_abandon",
        "tag.post_delete",
        "hold.begin",
        "hold.post_put",
        "hold.verify",
        "hold.post_renew",
        "hold.post_release",
        "hold.post_remove",
        "read.begin",
        "read.post_manifest",
        "read.verify",
        "cleanup.post_list",
        "cleanup.post_sides",
        "cleanup.post_pins",
        "cleanup.post_delete",
        "cleanup.table_gc",
        "cleanup.reconcile_fork",
        "cleanup.resolve_branch_snapshot",
        "retention.post_floor",
        "retention.post_logs",
        "retention.post_tags",
        "retention.post_holds",
        "retention.verify",
        "retention.check",
        "reconcile.post_refs",
        "reconcile.post_logs",
        "reconcile.post_sides",
        "reconcile.post_pins",
        "reconcile.verify",
        "reconcile.check",
        "reconcile.post_delete",
        "merge.staged",
        "load.split_staged",
        "load.staged",
        "load.settled",
        "load.gathered",
        "algorithm.post_round",
        "init.post_claim",
        "init.post_contract",
        "init.post_tables",
        "init.post_history",
        "init.post_manifest",
        "copy.post_claim",
        "copy.post_file",
        "copy.post_content",
        "copy.post_version",
        "copy.pre_record",
        "copy.post_record",
        "copy.post_put",
        "copy.post_publish",
        "copy.post_end",
        "rebuild.begun",
        "rebuild.planned",
        "rebuild.pre_manifest",
        "rebuild.post_manifest",
        "rebuild.synced",
        "rebuild.published",
        "rebuild.post_move",
        "rebuild.post_moves",
        "rebuild.post_audit",
        "migration.post_history",
        "migration.pre_step",
        "migration.post_step",
    }
)


class Action(StrEnum):
    """What happens at an armed point."""

    ERROR = "error"
    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"


class FailpointReached(RuntimeError):  # noqa: N818 - not an error of the product
    """Raised at a point armed with `error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """What to do at a point, and on which of its visits."""

    action: Action
    visit: int = 1
    seconds: float = 0.0


_ENTRY: Final = re.compile(
    r"(?P<point>[^=]+)=(?P<action>error|kill|stop|pause:(?P<seconds>\d+(\.\d+)?))"
    r"(@(?P<visit>[1-9]\d*))?",
    re.ASCII,
)
_lock = threading.RLock()
_armed: dict[str, Armed] = {}
_visits: dict[str, int] = {}


def reach(point: str) -> None:
    """Mark that the protocol is here."""
    if _armed:
        _visit(point)


def arm(point: str, armed: Armed) -> None:
    _require_known(point)
    _armed[point] = armed


def disarm_all() -> None:
    _armed.clear()
    _visits.clear()


def arm_from(text: str) -> None:
    """Arm what an environment variable asks for, all of it or nothing."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    for point, armed in [_parse(entry) for entry in entries]:
        arm(point, armed)


def _parse(entry: str) -> tuple[str, Armed]:
    wish = _ENTRY.fullmatch(entry)
    if wish is None:
        raise InvalidInputError(
            f"{entry!r} does not arm a failpoint",
            next_step="Write POINT=ACTION or POINT=ACTION@VISIT, where ACTION is error, kill, stop "
            "or pause:SECONDS, or unset OMNIGRAPH_FAILPOINTS.",
        )
    _require_known(wish["point"])
    return wish["point"], Armed(
        action=Action(wish["action"].partition(":")[0]),
        visit=int(wish["visit"] or 1),
        seconds=float(wish["seconds"] or 0),
    )


def _require_known(point: str) -> None:
    if point not in POINTS:
        hint = did_you_mean(point, POINTS)
        raise InvalidInputError(
            f"there is no failpoint {point!r}" + (f" ({hint})" if hint else ""),
            next_step=f"The failpoints are: {', '.join(sorted(POINTS))}.",
        )


def _visit(point: str) -> None:
    with _lock:
        _visits[point] = _visits.get(point, 0) + 1
        armed = _armed.get(point)
        if armed is None or _visits[point] != armed.visit:
            return
    match armed.action:
        case Action.ERROR:
            raise FailpointReached(point)
        case Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Action.STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        case Action.PAUSE:
            time.sleep(armed.seconds)
        case _:
            assert_never(armed.action)


if Path(__file__).with_name("failpoints.on").exists():
    arm_from(os.environ.get("OMNIGRAPH_FAILPOINTS", ""))
