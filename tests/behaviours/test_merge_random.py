"""Random histories: branches, writes, deletes and merges end as plain Python says."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import assert_never

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import omnigraph_lake as og
from omnigraph_lake.errors import MergeConflictError
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.merge.conflicts import ConflictKind
from omnigraph_lake.merge.merge import MergeResult
from omnigraph_lake.merge.plan import MergeOutcome
from tests.behaviours.random_histories import (
    COLUMNS,
    NOTHING,
    SCHEMA,
    Commit,
    Content,
    Expected,
    Fork,
    Merge,
    Model,
    Step,
    Write,
    expect_merge,
    histories,
    same,
    written,
)
from tests.behaviours.repeating import repeatable
from tests.behind import small_limits
from tests.drawing import drawn

pytestmark = pytest.mark.random

KINDS = {each.value for each in ConflictKind}


@pytest.mark.timeout(7200)
def test_random_histories_end_as_plain_python_says(graph_root: str) -> None:
    roots = (f"{graph_root}-{number}" for number in itertools.count())

    @drawn(4)
    @given(histories(), st.booleans(), st.data())
    def agree(steps: list[Step], by_row_ids: bool, data: st.DataObject) -> None:
        with pytest.MonkeyPatch.context() as patched:
            if by_row_ids:
                small_limits(patched, rows_compared=0)
            history = History(next(roots))
            for step in steps:
                if history.take(step):
                    commits = st.sampled_from(sorted(history.model.commits))
                    history.look_back(data.draw(st.sets(commits, min_size=1, max_size=2)))
            history.look_at_every_branch()

    with repeatable():
        agree()


class History:
    """A real graph beside its model; every step is taken in both."""

    def __init__(self, root: str) -> None:
        self.graph = og.init(root, schema=SCHEMA)
        self.model = Model()
        self.model.record(0, self.graph.commits(limit=1)[0].commit_id, (), NOTHING)

    def handle(self, branch: int) -> Graph:
        return self.graph.checkout(name_of(branch))

    def take(self, step: Step) -> bool:
        """Take one step; whether it was a merge worth looking back from."""
        match step:
            case Write():
                self.write(step)
            case Fork():
                self.fork(step)
            case Merge():
                return self.merge(step)
            case _:
                assert_never(step)
        return False

    def write(self, step: Write) -> None:
        if step.branch not in self.model.heads:
            return
        head = self.model.head(step.branch)
        after = written(head.content, step)
        if after is None:
            return
        handle = self.handle(step.branch)
        if step.rows:
            tables: dict[str, list[dict[str, object]]] = {}
            for key, values in step.rows:
                tables.setdefault(key.partition(":")[2], []).append(dict(values))
            mode: og.Mode = "overwrite" if step.overwrites else "merge"
            commit_id = handle.write(tables, mode=mode).commit_id
        else:
            gone: dict[str, list[str]] = {}
            for key, name in step.gone:
                gone.setdefault(key.partition(":")[2], []).append(name)
            commit_id = handle.delete(gone).commit_id
        assert commit_id is not None
        self.model.record(step.branch, commit_id, [head.commit_id], after)

    def fork(self, step: Fork) -> None:
        model = self.model
        if step.branch in (0, step.parent) or step.parent not in model.heads:
            return
        has_children = any(step.branch in model.lineage(each) - {each} for each in model.heads)
        commit = model.back(step.parent, step.back)
        if has_children or step.branch in (commit.branch, *model.lineage(step.parent)):
            return
        if step.branch in model.heads:
            self.graph.branches.delete(name_of(step.branch))
        self.handle(step.parent).branches.create(
            name_of(step.branch), source=commit.commit_id if step.back else None
        )
        model.fork(step.branch, step.parent, commit)

    def merge(self, step: Merge) -> bool:
        model = self.model
        if step.source == step.target or not {step.source, step.target} <= model.heads.keys():
            return False
        source, target = model.back(step.source, step.back), model.head(step.target)
        handle = self.handle(step.target)
        before = handle.snapshot()
        try:
            result = handle.merge(
                source.commit_id if step.back else name_of(step.source),
                resolve=step.resolve,
                column_level=step.column_level,
            )
        except MergeConflictError as error:
            self.assert_must_fail(error, step, source, target)
            assert handle.snapshot() == before
            return False
        self.assert_merged(result, step, source, target)
        if result.commit_id is None:
            assert handle.snapshot() == before
            return False
        assert same(content(handle), model.head(step.target).content)
        report = handle.maintenance.check()
        assert report.ok, report.findings
        return True

    def assert_must_fail(
        self, error: MergeConflictError, step: Merge, source: Commit, target: Commit
    ) -> None:
        rows = error.conflicts.to_pylist()  # type: ignore[attr-defined]
        told = sorted(map(str, (row for row in rows if row["kind"] in KINDS)))
        broken = {(row["type"], row["kind"]) for row in rows if row["kind"] not in KINDS}
        possible: list[Expected] = []
        for base in sorted(self.model.bases(source.commit_id, target.commit_id)):
            expected = expect_merge(self.model, base, source, target, step)
            possible.append(expected)
            conflicts = sorted(str(asdict(each)) for each in expected.open)
            if (told, broken) == (conflicts, expected.broken):
                return
        raise AssertionError(f"{step} told {rows}, expected one of {possible}")

    def assert_merged(
        self, result: MergeResult, step: Merge, source: Commit, target: Commit
    ) -> None:
        base = result.base_commit_id
        assert base in self.model.bases(source.commit_id, target.commit_id)
        assert base is not None
        assert result.source_commit_id == source.commit_id
        if base == source.commit_id:
            assert result.outcome is MergeOutcome.UP_TO_DATE
            assert result.commit_id is None
            return
        ahead = base == target.commit_id
        assert result.outcome is (MergeOutcome.FAST_FORWARD if ahead else MergeOutcome.MERGED)
        expected = expect_merge(self.model, base, source, target, step)
        note(f"{step} from {base}: {expected}")
        assert expected.open == []
        assert expected.broken == set()
        assert result.resolved.num_rows == len(expected.conflicts)
        assert result.commit_id is not None
        parents = [target.commit_id, source.commit_id]
        self.model.record(step.target, result.commit_id, parents, expected.content)

    def look_back(self, commits: set[str]) -> None:
        """Old commits are what they were; those of deleted branches may be gone."""
        reachable = set().union(*(self.model.ancestors(each) for each in self.model.heads.values()))
        first_parents = set().union(
            *(self.first_parents(each) for each in self.model.heads.values())
        )
        for commit_id in commits & reachable & first_parents:
            assert same(content(self.graph.at(commit_id)), self.model.commits[commit_id].content)

    def first_parents(self, commit_id: str) -> set[str]:
        """The line of a living branch, whose versions nobody may remove."""
        found = {commit_id}
        while self.model.commits[commit_id].parents:
            commit_id = self.model.commits[commit_id].parents[0]
            found.add(commit_id)
        return found

    def look_at_every_branch(self) -> None:
        for branch in self.model.heads:
            assert same(content(self.handle(branch)), self.model.head(branch).content)


def name_of(branch: int) -> str:
    return "main" if branch == 0 else f"b{branch}"


def content(graph: Graph | GraphView) -> Content:
    found = {}
    for key, columns in COLUMNS.items():
        rows = graph.scan(key, columns=columns).read_all().to_pylist()
        found[key] = {row["id"]: row for row in rows}
        assert len(found[key]) == len(rows)
    return found
