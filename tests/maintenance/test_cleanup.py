"""Cleanup: what goes, what is kept for whom, and that one table's trouble is its own."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import lance
import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit import phases
from omnigraph_lake.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
)
from omnigraph_lake.failpoints import FailpointReached, disarm_all
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.cleanup import (
    CleanupPolicy,
    CleanupReport,
    TableCleanupStats,
    cleanup_graph,
)
from omnigraph_lake.storage.refs.branches import BranchState, read_branch_log
from tests.behaviours.histories import content, put
from tests.maintenance.maintenance_graphs import (
    CITES,
    DOC,
    QUIET,
    TABLES,
    TAG,
    act_at,
    armed,
    data_files,
    doc,
    fragments,
    head,
    heads_equal_pins,
    scattered_graph,
    uri,
    versions,
)
from tests.stores import folder_of

pytestmark = pytest.mark.unit

SYSTEM = (names.MANIFEST, names.COMMITS, names.COMMIT_ACTORS, names.RECOVERIES)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    disarm_all()
    yield
    disarm_all()


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """Documents have versions 1 to 4, citations 1 to 3, tags 1 and 2, what is quiet only 1."""
    return scattered_graph(graph_root)


def clean(graph: Graph, keep: int = 1, **policy: Any) -> CleanupReport:
    return graph.maintenance.cleanup(
        keep_versions=keep, dry_run=False, allow_unsafe_keep=True, **policy
    )


def removed(report: CleanupReport) -> dict[str, int]:
    return {each.table_key: each.old_versions_removed for each in report.tables}


def clean_later(graph: Graph, later: timedelta, **policy: Any) -> CleanupReport:
    """A cleanup as it will be some time from now."""
    clock = dataclasses.replace(SYSTEM_CLOCK, now=lambda: datetime.now(UTC) + later)
    checked = CleanupPolicy(**policy).checked(allow_unsafe_keep=True)
    return cleanup_graph(graph._objects, checked, clock)


def test_every_table_is_told_about_with_exactly_these_fields(graph: Graph) -> None:
    report = clean(graph)

    assert [each.name for each in dataclasses.fields(TableCleanupStats)] == [
        "table_key",
        "bytes_removed",
        "old_versions_removed",
        "files_removed",
        "error",
    ]
    assert [each.table_key for each in report.tables] == [*TABLES, *SYSTEM]
    assert report.bytes_removed == sum(each.bytes_removed for each in report.tables)
    assert report.failed == ()


@pytest.mark.parametrize(
    ("keep", "left"),
    [(1, [4]), (2, [3, 4]), (3, [2, 3, 4]), (4, [1, 2, 3, 4]), (100, [1, 2, 3, 4])],
)
def test_so_many_of_the_newest_versions_are_kept(graph: Graph, keep: int, left: list[int]) -> None:
    before = content(graph)

    report = clean(graph, keep)

    assert versions(graph, DOC) == left
    assert removed(report)[DOC] == 4 - len(left)
    assert content(graph) == before
    assert graph.maintenance.check().ok


def test_the_published_version_is_kept_whatever_is_said(graph: Graph) -> None:
    before = content(graph)

    clean(graph, 1, older_than=timedelta(0))
    clean(graph, 1)

    assert {key: versions(graph, key) for key in TABLES} == {
        CITES: [3],
        DOC: [4],
        QUIET: [1],
        TAG: [2],
    }
    assert content(graph) == before


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ({"older_than": timedelta(0)}, [4]),
        ({"older_than": timedelta(hours=1)}, [1, 2, 3, 4]),
        ({"older_than": timedelta(0), "keep_versions": 3}, [2, 3, 4]),
        ({"older_than": timedelta(hours=1), "keep_versions": 3}, [1, 2, 3, 4]),
    ],
)
def test_a_version_goes_only_if_it_is_neither_young_nor_among_the_newest(
    graph: Graph, policy: dict[str, Any], left: list[int]
) -> None:
    graph.maintenance.cleanup(dry_run=False, **policy)

    assert versions(graph, DOC) == left


def test_age_is_measured_from_when_a_version_was_made(graph: Graph) -> None:
    time.sleep(0.01)
    put(graph, Doc=[doc(20)])
    put(graph, Doc=[doc(21)])
    day = timedelta(days=1)
    then = made_at(graph, 5) + day
    clock = dataclasses.replace(SYSTEM_CLOCK, now=lambda: then)

    cleanup_graph(graph._objects, CleanupPolicy(older_than=day), clock)

    assert versions(graph, DOC) == [5, 6]


def made_at(graph: Graph, version: int) -> datetime:
    made = lance.dataset(uri(graph, DOC), version=version).get_version()["timestamp"]
    assert isinstance(made, datetime)
    return made.astimezone(UTC)


def test_at_least_one_of_both_is_wanted(graph: Graph) -> None:
    with pytest.raises(
        InvalidInputError, match="cleanup requires at least one of keep_versions or older_than"
    ):
        graph.maintenance.cleanup(dry_run=False)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"keep_versions": 0}, "cannot keep 0 versions, expected a number from 1"),
        ({"keep_versions": -3}, "cannot keep -3 versions"),
        ({"keep_versions": "3"}, "cannot keep '3' versions"),
        ({"keep_versions": 3.5}, "cannot keep 3.5 versions"),
        ({"older_than": timedelta(seconds=-1)}, "is not the age of a version"),
        ({"older_than": "7d"}, "is not the age of a version"),
        ({"older_than": 7}, "is not the age of a version"),
        (
            {"keep_versions": 1},
            "keeping 1 versions may remove the versions that interrupted writes",
        ),
        (
            {"keep_versions": 2},
            r"Keep 3 or more.*`allow_unsafe_keep=True` in Python",
        ),
        ({"keep_versions": 2, "older_than": timedelta(days=1)}, "interrupted writes"),
    ],
)
@pytest.mark.parametrize("confirm", [False, True])
def test_a_policy_that_makes_no_sense_or_is_unsafe_is_refused(
    graph: Graph, policy: dict[str, Any], message: str, confirm: bool
) -> None:
    with pytest.raises(InvalidInputError, match=f"(?s){message}"):
        graph.maintenance.cleanup(dry_run=not confirm, **policy)
    assert versions(graph, DOC) == [1, 2, 3, 4]


def test_three_versions_may_be_kept_without_more_words(graph: Graph) -> None:
    graph.maintenance.cleanup(keep_versions=3, dry_run=False)

    assert versions(graph, DOC) == [2, 3, 4]


def test_without_confirmation_nothing_goes_and_the_preview_is_what_would(graph: Graph) -> None:
    graph.maintenance.optimize()
    put(graph, Doc=[doc(20)])
    files = {key: data_files(graph, key) for key in TABLES}

    preview = og.open(graph.root, read_only=True).maintenance.cleanup(keep_versions=3)

    assert preview.dry_run
    assert {key: data_files(graph, key) for key in TABLES} == files
    done = graph.maintenance.cleanup(keep_versions=3, dry_run=False)
    assert not done.dry_run
    told = {each.table_key: each for each in preview.tables}
    for each in done.tables:
        if each.table_key in told:
            assert told[each.table_key] == each
    assert removed(done)[DOC] > 0


def test_a_reading_handle_may_look_but_not_clean(graph: Graph) -> None:
    reader = og.open(graph.root, read_only=True)

    assert reader.maintenance.cleanup(keep_versions=3).tables
    with pytest.raises(ReadOnlyError, match="cannot cleanup"):
        reader.maintenance.cleanup(keep_versions=3, dry_run=False)


def test_files_that_only_removed_versions_need_go_with_them(graph: Graph) -> None:
    scattered = data_files(graph, DOC)
    graph.maintenance.optimize()
    assert set(scattered) < set(data_files(graph, DOC))

    report = clean(graph)

    (stats,) = (each for each in report.tables if each.table_key == DOC)
    assert set(data_files(graph, DOC)).isdisjoint(scattered)
    assert stats.files_removed >= len(scattered)
    assert stats.bytes_removed > 0
    assert len(content(graph)["Doc"]) == 9


def test_a_commit_that_is_not_kept_is_not_found_and_never_wrong(graph: Graph) -> None:
    oracle: dict[str, Any] = {}
    for number in range(4):
        commit = put(graph, Doc=[doc(number, 100 + number)])
        oracle[commit] = content(graph)

    clean(graph, 2)

    *gone, older, newest = oracle
    assert len(gone) == 2
    for commit in gone:
        with pytest.raises(NotFoundError, match="no longer kept"):
            graph.at(commit)
    assert [content(graph.at(commit)) for commit in (older, newest)] == [
        oracle[older],
        oracle[newest],
    ]


def test_what_tags_name_is_kept_until_they_are_deleted(graph: Graph) -> None:
    before = content(graph)
    graph.tags.create("first")
    put(graph, Doc=[doc(1, 100)])
    put(graph, Doc=[doc(1, 101)])

    clean(graph)
    assert versions(graph, DOC) == [4, 6]
    assert content(graph.at("first")) == before

    graph.tags.delete("first")
    clean(graph)
    assert versions(graph, DOC) == [6]


def test_what_branches_read_is_kept_until_they_are_deleted(graph: Graph) -> None:
    branch, before = graph.branches.create("side"), content(graph)
    put(graph, Doc=[doc(1, 100)])
    put(graph, Doc=[doc(1, 101)])

    clean(graph)
    assert content(branch) == before

    graph.branches.delete("side")
    clean(graph)
    assert versions(graph, DOC) == [6]


def test_a_branch_keeps_its_own_versions_by_the_same_policy(graph: Graph) -> None:
    branch = graph.branches.create("side")
    for number in range(4):
        put(branch, Doc=[doc(1, 100 + number)])
    before = content(branch)
    kept = versions(branch, DOC)

    clean(graph, 2)

    assert len(kept) > 2
    assert len(versions(branch, DOC)) <= 3
    assert head(branch, DOC) in versions(branch, DOC)
    assert content(branch) == before
    assert branch.maintenance.check().ok


def test_where_two_branches_parted_is_kept_for_their_merge(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 100)])
    for number in range(3):
        put(graph, Doc=[doc(2, 200 + number)])
    put(graph, Doc=[doc(3, 300)])

    clean(graph)
    graph.merge("side")

    numbers = {key: row["n"] for key, row in content(graph)["Doc"].items()}
    assert (numbers["d1"], numbers["d2"], numbers["d3"]) == (100, 202, 300)


def test_what_a_living_writer_began_with_is_kept(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rivals() -> None:
        for number in range(3):
            put(graph, Doc=[doc(1, 100 + number)])
        clean(graph)
        kept.extend(versions(graph, DOC))

    kept: list[int] = []
    began = graph.snapshot().tables[DOC].version
    act_at(monkeypatch, phases, "mutation.post_sidecar", rivals)
    put(graph, Doc=[doc(8, 800)])

    assert min(kept) == began
    numbers = {key: row["n"] for key, row in content(graph)["Doc"].items()}
    assert (numbers["d1"], numbers["d8"]) == (102, 800)
    assert graph.maintenance.check().ok


def test_a_writer_of_many_days_stops_a_cleanup(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rival() -> None:
        with pytest.raises(ConflictError, match=f"operation {old} has been writing since"):
            clean(graph)
        stopped.append(old)

    stopped: list[str] = []
    old = str(ULID.from_datetime(datetime.now(UTC) - timedelta(days=6)))
    act_at(monkeypatch, phases, "mutation.post_sidecar", rival)
    graph.write({"Doc": [doc(30)]}, operation_id=old)

    assert stopped == [old]
    assert versions(graph, DOC) == [1, 2, 3, 4, 5]


def test_one_table_that_fails_is_told_and_harms_no_other(graph: Graph) -> None:
    with armed("cleanup.table_gc", visit=2):
        report = clean(graph)

    (failed,) = report.failed
    (row,) = (each for each in report.tables if each.table_key == failed)
    assert row.error == "cleanup.table_gc"
    assert (row.old_versions_removed, row.bytes_removed) == (0, 0)
    others = {CITES: 2, DOC: 3, TAG: 1, QUIET: 0}
    assert removed(report) == {**others, failed: 0, **dict.fromkeys(SYSTEM, 0)}

    again = clean(graph)
    assert again.failed == ()
    assert versions(graph, DOC) == [4]


def test_a_damaged_old_version_is_told_and_harms_no_other(graph: Graph) -> None:
    folder_of(uri(graph, DOC), "_versions", f"{2**64 - 1 - 2}.manifest").write_bytes(b"junk" * 10)

    report = clean(graph)

    assert report.failed == (DOC,)
    assert versions(graph, CITES) == [3]
    assert len(content(graph)["Doc"]) == 9


def test_a_damaged_head_is_told_and_harms_no_other(graph: Graph) -> None:
    folder_of(uri(graph, TAG), "_versions", f"{2**64 - 1 - 2}.manifest").write_bytes(b"junk" * 10)

    report = clean(graph)

    assert report.failed == (TAG,)
    assert versions(graph, DOC) == [4]


@pytest.mark.parametrize(
    "point", ["cleanup.post_list", "retention.post_floor", "cleanup.post_pins"]
)
def test_a_cleanup_that_dies_is_taken_up_by_the_next(graph: Graph, point: str) -> None:
    before = content(graph)
    with armed(point), pytest.raises(FailpointReached):
        clean(graph)

    assert content(graph) == before
    clean(graph)
    assert versions(graph, DOC) == [4]
    assert graph.maintenance.check().ok


def test_orphaned_forks_go_before_versions_do(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 100)])
    put(graph, Doc=[doc(1, 101)])
    with armed("branch.post_delete"), pytest.raises(FailpointReached):
        graph.branches.delete("side")

    report = clean(graph)

    assert {each.location for each in report.reconciled.reclaimed} == {
        graph.snapshot().tables[DOC].location,
        names.MANIFEST,
    }
    assert versions(graph, DOC) == [5]


def test_commits_and_operations_are_known_for_ever(graph: Graph) -> None:
    known = [(commit.commit_id, commit.operation_id) for commit in graph.commits()]

    clean(graph)

    assert [(commit.commit_id, commit.operation_id) for commit in graph.commits()] == known
    assert {graph.outcome(operation).value for _, operation in known} == {"published"}


def test_a_table_that_came_with_a_branch_goes_when_the_branch_is_gone(graph: Graph) -> None:
    old = str(ULID.from_datetime(datetime.now(UTC) - timedelta(days=2)))
    side = graph.branches.create("side")
    side.schema.apply(side.schema.text + "node New { name: String @key }\n", operation_id=old)
    put(side, New=[{"name": "n"}])
    location = side.snapshot().tables["node:New"].location

    assert not any(path.startswith(location) for path in clean(graph).leftovers.paths)
    assert side.scan("New").read_all().num_rows == 1
    graph.branches.delete("side")
    gone = clean(graph).leftovers.paths

    assert gone
    assert all(path.startswith(location) for path in gone)
    assert graph._objects.list(location) == ()
    assert graph.maintenance.check().ok


def test_old_parts_of_dead_loads_go_and_young_ones_stay(graph: Graph) -> None:
    old = str(ULID.from_datetime(datetime.now(UTC) - timedelta(days=2)))
    young = str(ULID())
    for owner in (old, young):
        part = folder_of(graph.root, names.STAGING_DIR, owner, "part")
        part.parent.mkdir(parents=True)
        part.write_bytes(b"12345")

    preview = graph.maintenance.cleanup(keep_versions=3)
    assert folder_of(graph.root, names.STAGING_DIR, old, "part").exists()
    report = clean(graph)

    assert preview.leftovers == report.leftovers
    assert report.leftovers.paths == (f"{names.STAGING_DIR}/{old}/part",)
    assert report.leftovers.bytes == 5
    assert not folder_of(graph.root, names.STAGING_DIR, old, "part").exists()
    assert folder_of(graph.root, names.STAGING_DIR, young, "part").exists()


@pytest.mark.local_disk("a store has no folders")
def test_folders_of_the_staging_area_in_which_nothing_was_for_a_day_are_removed(
    graph: Graph,
) -> None:
    area = folder_of(graph.root, names.STAGING_DIR)
    for name in ("empty", "lately", "used"):
        (area / name).mkdir(parents=True)
    (area / "used" / "part").write_text("")
    for name in ("empty", "used"):
        os.utime(area / name, (0, 0))

    clean(graph)

    left = {str(path.relative_to(area)) for path in area.rglob("*")}
    assert left == {"lately", "used", "used/part"}


def test_parts_of_abandoned_attempts_with_a_key_are_removed(graph: Graph) -> None:
    """A key does not tell how old an attempt is; the claim that its tasks worked under does."""
    now = datetime.now(UTC)
    claims = {
        "at work": str(ULID()).encode(),
        "dead": str(ULID.from_datetime(now - timedelta(hours=30))).encode(),
        "closing": None,
        "of an older release": b"",
    }
    owners = {name: names.OperationKey.of_text(name).first_attempt() for name in claims}
    for name, claim in claims.items():
        folder = folder_of(graph.root, names.STAGING_DIR, owners[name])
        folder.mkdir(parents=True)
        (folder / "findings-1.arrow").write_bytes(b"12345")
        if claim is not None:
            (folder / "open").write_bytes(claim)

    removed = clean(graph).leftovers.paths

    assert set(removed) == {
        f"{names.STAGING_DIR}/{owners[name]}/findings-1.arrow" for name in ("dead", "closing")
    }


@pytest.mark.parametrize("has_key", [False, True], ids=["ULID", "key"])
def test_runs_that_made_a_round_lately_stay_whatever_their_age(graph: Graph, has_key: bool) -> None:
    now = datetime.now(UTC)
    moments = {"lately": now - timedelta(hours=3), "long ago": now - timedelta(hours=30)}
    owners = {
        name: names.OperationKey.of_text(name).first_attempt()
        if has_key
        else str(ULID.from_datetime(now - timedelta(days=5, minutes=number)))
        for number, name in enumerate([*moments, "unreadable"])
    }
    for name, owner in owners.items():
        folder = folder_of(graph.root, names.run_record(owner)).parent
        folder.mkdir(parents=True)
        (folder / "edges.arrow").write_bytes(b"12345")
        record = {"touched_at": moments[name].isoformat()} if name in moments else None
        (folder / "run.json").write_text("{" if record is None else json.dumps(record))

    removed = {names.staging_owner(path) for path in clean(graph).leftovers.paths}

    assert removed == {owners["long ago"], owners["unreadable"]}
    assert folder_of(graph.root, names.run_record(owners["lately"])).exists()


def test_a_branch_whose_creator_never_came_back_is_given_up_after_an_hour(graph: Graph) -> None:
    with armed("branch.post_claim"), pytest.raises(FailpointReached):
        graph.branches.create("side")
    put(graph, Doc=[doc(1, 100)])

    clean(graph)
    assert read_branch_log(graph._objects, "side").state is BranchState.CREATING
    assert 4 in versions(graph, DOC)

    clean_later(graph, timedelta(hours=2), keep_versions=1)
    assert read_branch_log(graph._objects, "side").state is BranchState.ABANDONED
    assert versions(graph, DOC) == [5]


def test_writes_and_maintenance_go_on_after_a_cleanup(graph: Graph) -> None:
    clean(graph)
    put(graph, Doc=[doc(1, 100), doc(20)])
    graph.maintenance.optimize()
    clean(graph)

    assert fragments(graph, DOC) <= 2
    assert content(graph)["Doc"]["d1"]["n"] == 100
    assert heads_equal_pins(graph)
    assert graph.maintenance.check().ok
