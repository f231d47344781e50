from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from omnigraph_lake import failpoints
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.failpoints import POINTS, Action, Armed, FailpointReached, arm, arm_from, reach
from tests.forking.programs import run_command
from tests.model.labels import (
    BranchStepName,
    RebuildStepName,
    RetentionStepName,
    SchemaStepName,
    StepName,
)

pytestmark = pytest.mark.unit

SOURCE = Path(__file__).parent.parent.parent / "src" / "omnigraph_lake"

ABSTRACT_IN_THE_MODEL = {
    "manifest.post_checkpoint": "a publish replaces the manifest whole, so there is no checkpoint",
    "manifest.pre_prune": "pruning is part of the fold's own swap",
    "manifest.post_prune": "pruning is part of the fold's own swap",
    "mutation.deadline": "callers have no deadline yet; giving up has its own point",
    "fork.post_ref": "the same step as branch.post_fork, in the older model of forks",
    "branch.clone": "lies inside one call of Lance",
    "branch.fork_clone": "lies inside one call of Lance",
    "merge.begin": "a merge points at main's line or the target's own forks, which nobody deletes",
    "merge.verify": "a merge points at main's line or the target's own forks, which nobody deletes",
    "recovery.post_source": "as above: no source has to be looked at again",
    "recovery.ambiguous": "the sweep publishes through the same loop as a writer",
    "fold.read.list": "the fold works on the state its writer has just read back",
    "fold.read.verify": "the fold works on the state its writer has just read back",
    "optimize.post_reserve": "lies inside one call of Lance",
    "cleanup.read.list": "reading the manifest has the points of its caller",
    "cleanup.read.verify": "reading the manifest has the points of its caller",
    "cleanup.post_scan": "lies inside one call of Lance",
}
OUTSIDE_THE_MODEL = re.compile(
    r"(init|migration|load|copy|algorithm)\.|merge\.staged|rebuild\.(pre_manifest|post_audit)"
    r"|cleanup\.(reconcile_fork|resolve_branch_snapshot)"
)


@pytest.fixture(autouse=True)
def _disarmed() -> object:
    failpoints.disarm_all()
    yield
    failpoints.disarm_all()


def test_the_models_steps_and_the_codes_failpoints_are_the_same_set() -> None:
    models = (StepName, BranchStepName, RetentionStepName, SchemaStepName, RebuildStepName)
    steps = {name for model in models for name in get_args(model)}
    points = {point for point in POINTS if not OUTSIDE_THE_MODEL.match(point)}

    assert steps - points == set(ABSTRACT_IN_THE_MODEL)
    assert points - steps == set()


def test_every_listed_point_is_reached_somewhere_in_the_code() -> None:
    text = "\n".join(
        path.read_text() for path in SOURCE.rglob("*.py") if path.name != "failpoints.py"
    )
    named = set(
        re.findall(
            r'"((?:mutation|publish|recovery|fold|manifest|init|migration|load|branch|tag|read|reconcile|merge|optimize|cleanup|retention|schema|hold|copy|rebuild|algorithm|combine)\.[a-z_.]+)"',
            text,
        )
    )
    for prefix in re.findall(r'point="([a-z.]+)"', text):
        named |= {f"{prefix}.{suffix}" for suffix in ("drift", "list", "verify")}

    assert POINTS - named == set()
    assert set(re.findall(r'\breach\("([^"]+)"\)', text)) <= POINTS


def test_an_unarmed_point_does_nothing_and_an_armed_one_acts_on_its_visit() -> None:
    reach("mutation.begin")
    arm("mutation.begin", Armed(action=Action.ERROR, visit=2))

    reach("mutation.begin")
    with pytest.raises(FailpointReached, match=r"mutation\.begin"):
        reach("mutation.begin")
    reach("mutation.begin")


def test_points_are_armed_by_text() -> None:
    arm_from("mutation.begin=pause:0.01, publish.refused=error@3")

    reach("mutation.begin")
    for _ in range(2):
        reach("publish.refused")
    with pytest.raises(FailpointReached):
        reach("publish.refused")


@pytest.mark.parametrize(
    "act",
    [
        lambda: arm("mutation.beginn", Armed(action=Action.ERROR)),
        lambda: arm_from("mutation.begin=error,mutation.beginn=error"),
    ],
    ids=["call", "text"],
)
def test_an_unknown_point_is_refused_with_the_known_ones_and_nothing_is_armed(
    act: Callable[[], None],
) -> None:
    with pytest.raises(InvalidInputError, match=r"no failpoint 'mutation\.beginn'") as refused:
        act()

    assert "did you mean `mutation.begin`?" in refused.value.what
    assert all(f" {point}" in refused.value.next_step for point in POINTS)
    reach("mutation.begin")


@pytest.mark.parametrize(
    "wish", ["", "=", "=explode", "=kill:1", "=pause", "=pause:soon", "=error@", "=error@0"]
)
def test_what_is_no_action_is_refused(wish: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'mutation.begin{wish}'") as refused:
        arm_from(f"mutation.begin{wish}")

    assert "error, kill, stop or pause:SECONDS" in refused.value.next_step


def test_a_command_with_an_unknown_point_ends_with_the_error_and_does_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "s.pg").write_text("node Person { name: String @key }\n")

    finished = run_command(
        *("init", "graph", "--schema", "s.pg"),
        cwd=tmp_path,
        env={"OMNIGRAPH_FAILPOINTS": "init.begin=kill"},
        new_process=True,
    )

    assert finished.returncode == InvalidInputError.exit_code
    assert "there is no failpoint 'init.begin'" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert not (tmp_path / "graph").exists()


def test_kill_ends_the_process_at_once() -> None:
    script = "from omnigraph_lake.failpoints import reach; reach('mutation.begin'); print('alive')"

    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"OMNIGRAPH_FAILPOINTS": "mutation.begin=kill"},
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (-9, b"")


@pytest.mark.nightly("builds a wheel")
def test_an_installed_package_obeys_no_variable_of_the_tests(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path)]
    subprocess.run(build, cwd=SOURCE.parent.parent, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    script = (
        "from omnigraph_lake import failpoints; failpoints.reach('mutation.begin'); "
        "print(failpoints.__file__)"
    )
    variables = {"PYTHONPATH": str(wheel), "OMNIGRAPH_FAILPOINTS": "mutation.begin=kill"}

    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.strip() == f"{wheel}/omnigraph/failpoints.py", done.stderr
