"""Random histories that are cleaned up: nothing that counts is lost, nothing wrong is ever read.

Invariant: the model takes the order of commits from the graph and every row from plain Python.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import NotFoundError
from omnigraph_lake.storage.manifest_rows import GraphCommit
from tests.behaviours.cleanup_histories import (
    MAIN,
    PLACES,
    Answer,
    Scene,
    Sleeper,
    SleepingProcess,
    SleepingThread,
    Step,
    Verb,
    answered,
    cleanup_step,
    content,
    drawn,
    first_step,
)
from tests.behaviours.random_histories import (
    NOTHING,
    SCHEMA,
    Content,
    Merge,
    Model,
    expect_merge,
    same,
    written,
)
from tests.behaviours.repeating import repeatable
from tests.behind import (
    Line,
    branch_refs,
    failing_at,
    pinned_versions,
    retention_floors,
    versions_on,
)
from tests.drawing import seeds

pytestmark = pytest.mark.random

MAINTENANCE = "omnigraph:"
IN_PROCESSES_EVERY = 25
"""One case in so many stops processes instead of threads; the gate draws fewer cases than that."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds("cleanup", 2))
def test_cleanup_takes_nothing_that_counts(seed: str, graph_root: str) -> None:
    with repeatable(seed):
        live(graph_root, seed)


def live(root: str, seed: str) -> None:
    """A history of random steps, which ends with a cleanup of everything that may go."""
    chance = random.Random(seed)
    number = int(seed.rpartition("-")[2])
    history = History(
        root, chance, in_processes=number % IN_PROCESSES_EVERY == IN_PROCESSES_EVERY - 1
    )

    with history.nobody_left_asleep():
        for _ in range(chance.randint(10, 18)):
            history.go_on()
        history.take(replace(cleanup_step(chance), days=0))
    history.settle()
    history.take(Step(verb=Verb.CLEANUP, keep=1, days=0))

    history.check(history.branches)
    assert history.graph.maintenance.status().pending_sidecars == ()


@dataclass(slots=True)
class Living:
    """A branch as the model knows it."""

    incarnation: str
    head: str


@dataclass(slots=True)
class Asleep:
    """Somebody at work, and what happened since it fell asleep."""

    sleeper: Sleeper
    since: list[Step] = field(default_factory=list)


class History:
    """A real graph beside its model; every step is taken in both."""

    def __init__(self, root: str, chance: random.Random, *, in_processes: bool) -> None:
        self.graph = og.init(root, schema=SCHEMA)
        self.chance = chance
        self.in_processes = in_processes
        self.model = Model()
        self.made_at: dict[str, datetime] = {}
        self.pins: dict[str, set[tuple[Line, int]]] = {}
        self.gone: set[str] = set()
        self.branches = {MAIN: Living(incarnation="", head="")}
        self.tags: dict[str, str] = {}
        self.operations: dict[str, Step] = {}
        self.asleep: list[Asleep] = []
        self.moved = False
        [first] = self.graph.commits()
        self.know(first, NOTHING)
        self.branches[MAIN].head = first.commit_id
        self.take(first_step())

    def go_on(self) -> None:
        """Wake somebody, or take a step: at once, as somebody who falls asleep, or who dies."""
        if self.asleep and self.chance.random() < 0.2:
            self.wake(self.chance.choice(self.asleep))
            return
        step = self.drawn()
        way = self.chance.random()
        if way < 0.25 and len(self.asleep) < 2:
            self.fall_asleep(step)
        elif way < 0.33:
            self.die(step)
        else:
            self.take(step)

    def drawn(self) -> Step:
        """A step; beside somebody who sleeps, more often one that could take something away."""
        if self.asleep and self.chance.random() < 0.2:
            return Step(verb=Verb.CLEANUP, keep=1, days=0)
        if self.asleep and self.chance.random() < 0.2:
            names = {one.sleeper.step.name for one in self.asleep} & self.branches.keys()
            return drawn(self.chance, self.scene(), only=names or {MAIN})
        return drawn(self.chance, self.scene())

    def take(self, step: Step) -> None:
        """Take a step here and now, whoever sleeps."""
        self.note(str(step))
        source = self.commit_of(step.source)
        if step.verb.commits:
            self.operations[step.operation_id] = step
        promised = self.promised(step) if step.verb is Verb.CLEANUP else set()
        answer = answered(self.graph, step)
        if answer.error == "RecoveryRequiredError":
            assert step.verb in {Verb.CLEANUP, Verb.OPTIMIZE}, answer
            self.settle()
            promised = self.promised(step) if step.verb is Verb.CLEANUP else set()
            answer = answered(self.graph, step)
        self.happened(step)
        self.look(step)
        self.judge(step, answer, source)
        if step.verb is Verb.CLEANUP:
            self.look_at_everything(promised)

    def fall_asleep(self, step: Step) -> None:
        if step.verb.commits:
            self.operations[step.operation_id] = step
        point = self.chance.choice(PLACES[step.verb])
        visit = self.chance.choice([1, 1, 1, 2])
        sleeper = (
            SleepingProcess(self.graph.root, step)
            if self.in_processes and not self.asleep
            else SleepingThread(self.graph, step)
        )
        source = self.commit_of(step.source)
        self.note(f"{step} sleeps at {point}@{visit}")
        is_asleep = sleeper.run_to(point, visit)
        self.happened(step)
        if is_asleep:
            self.asleep.append(Asleep(sleeper=sleeper))
            self.look()
        else:
            answer = sleeper.end()
            self.look(step)
            if answer.error != "RecoveryRequiredError" or not step.verb.is_maintenance:
                self.judge(step, answer, source)
        if step.verb is Verb.CLEANUP:
            self.look_at_everything()

    def wake(self, one: Asleep) -> None:
        self.note(f"wake {one.sleeper.step}")
        self.asleep.remove(one)
        one.sleeper.wake()
        answer = one.sleeper.end()
        step = one.sleeper.step
        self.happened(step)
        self.look(step)
        self.judge_late(one, answer)
        if step.verb is Verb.CLEANUP:
            self.look_at_everything()

    def die(self, step: Step) -> None:
        """Somebody who fails in the middle, and leaves behind what there is."""
        if step.verb.commits:
            self.operations[step.operation_id] = step
        point = self.chance.choice(PLACES[step.verb])
        self.note(f"{step} dies at {point}")
        source = self.commit_of(step.source)
        with failing_at(point):
            answer = answered(self.graph, step)
        self.happened(step)
        self.look(step)
        if not answer.died and not step.verb.is_maintenance:
            self.judge(step, answer, source)
        if step.verb is Verb.CLEANUP:
            self.look_at_everything()

    def settle(self) -> None:
        """What opening the graph does about the dead."""
        self.graph.maintenance.recover()
        self.look()

    @contextmanager
    def nobody_left_asleep(self) -> Iterator[None]:
        try:
            yield
            while self.asleep:
                self.wake(self.chance.choice(self.asleep))
        finally:
            for one in self.asleep:
                one.sleeper.wake()

    def note(self, text: str) -> None:
        print(text)

    def happened(self, step: Step) -> None:
        for one in self.asleep:
            one.since.append(step)

    def scene(self) -> Scene:
        commits = sorted(self.model.commits)
        moments = [self.made_at[each].isoformat() for each in self.line(self.branches[MAIN].head)]
        return Scene(
            branches={
                name: self.model.commits[living.head].content
                for name, living in self.branches.items()
            },
            tags=sorted(self.tags),
            past=[*self.chance.choices(commits, k=3), self.chance.choice(moments)],
        )

    def commit_of(self, source: str) -> str | None:
        """The commit that a reference means now; None if there is nothing of that name."""
        if source in self.branches:
            return self.branches[source].head
        if source in self.tags:
            return self.tags[source]
        if source in self.model.commits:
            return source
        if ":" not in source:
            return None
        moment = datetime.fromisoformat(source)
        line = self.line(self.branches[MAIN].head)
        return next((each for each in line if self.made_at[each] <= moment), None)

    def line(self, commit_id: str) -> list[str]:
        """A commit and its first parents, newest first."""
        found = [commit_id]
        while parents := self.model.commits[found[-1]].parents:
            found.append(parents[0])
        return found

    def look(self, *steps: Step) -> None:
        """Follow what was published; everything new must be the doing of somebody at work."""
        self.moved = False
        at_work = [*steps, *(one.sleeper.step for one in self.asleep)]
        refs = branch_refs(self.graph)
        for name, living in list(self.branches.items()):
            if name != MAIN and (name not in refs or refs[name].incarnation != living.incarnation):
                assert _is_about(at_work, Verb.DROP, name), f"branch {name} is lost"
                del self.branches[name]
        for name in list(self.branches):
            self.follow(name)
        for name, ref in refs.items():
            if name not in self.branches:
                assert _is_about(at_work, Verb.BRANCH, name), f"nobody makes branch {name}"
                assert ref.forked_from is not None
                self.branches[name] = Living(ref.incarnation, ref.forked_from.commit_id)
                self.follow(name)
                self.look_at(name)
        tags = {tag.tag: tag.commit_id for tag in self.graph.tags.list()}
        for name in self.tags.keys() | tags.keys():
            if self.tags.get(name) != tags.get(name):
                verbs = (Verb.TAG, Verb.UNTAG)
                assert any(_is_about(at_work, verb, name) for verb in verbs), f"tag {name} moved"
        self.tags = tags

    def follow(self, name: str) -> None:
        """Add new commits of a branch to the model; its newest is then looked at."""
        handle, living = self.graph.checkout(name), self.branches[name]
        head = handle.snapshot().commit_id
        assert head is not None
        if head == living.head:
            return
        self.moved = True
        commits = {commit.commit_id: commit for commit in handle.commits()}
        new: list[GraphCommit] = []
        each: str | None = head
        while each != living.head:
            assert each is not None, f"{name} lost {living.head}"
            new.append(commits[each])
            each = commits[each].parent_id
        for commit in reversed(new):
            if commit.commit_id not in self.model.commits:
                self.know(commit, self.expected(commit))
        living.head = head
        self.pins[head] = pinned_versions(handle)
        self.look_at(name)

    def know(self, commit: GraphCommit, left: Content) -> None:
        parents = [each for each in (commit.parent_id, commit.merged_parent_id) if each]
        self.model.record(0, commit.commit_id, parents, left)
        self.made_at[commit.commit_id] = datetime.fromisoformat(commit.created_at)

    def expected(self, commit: GraphCommit) -> Content:
        """What a commit should leave: by its step and its parents."""
        assert commit.parent_id is not None
        before = self.model.commits[commit.parent_id]
        step = self.operations.get(commit.operation_id)
        if step is None:
            assert commit.actor.startswith(MAINTENANCE), f"nobody made {commit}"
            return before.content
        if step.verb is not Verb.MERGE:
            return written(before.content, step.written) or before.content
        assert commit.merged_parent_id is not None
        source = self.model.commits[commit.merged_parent_id]
        merge = Merge(source=0, target=0, resolve=step.resolve)
        possible = [
            expect_merge(self.model, base, source, before, merge)
            for base in sorted(self.model.bases(source.commit_id, before.commit_id))
        ]
        left = content(self.graph.at(commit.commit_id))
        for each in possible:
            if same(each.content, left) and not each.open and not each.broken:
                return each.content
        raise AssertionError(f"{step} left {left}, expected one of {possible}")

    def look_at(self, name: str) -> None:
        expected = self.model.commits[self.branches[name].head].content
        assert same(content(self.graph.checkout(name)), expected), f"{name} holds other rows"

    def judge(self, step: Step, answer: Answer, source: str | None) -> None:
        """Whether a step that nobody stopped may end like this."""
        names = {*self.branches, *self.tags, *(one.sleeper.step.name for one in self.asleep)}
        match answer.error:
            case None:
                self.acknowledged(step, answer, source)
                return
            case "MergeConflictError":
                assert self.conflicts(step, source), answer
                return
            case "ValidationFailedError":
                allowed = self.moved
            case "NotFoundError" | "NoLongerKeptError":
                allowed = step.source not in names or (
                    step.verb is Verb.MERGE and step.source not in self.branches
                )
            case "ConflictError":
                taken = step.name in names or "descends from" in answer.message
                allowed = step.verb is Verb.DROP or (step.verb in {Verb.BRANCH, Verb.TAG} and taken)
            case _:
                allowed = False
        assert allowed, (step, answer)

    def acknowledged(self, step: Step, answer: Answer, source: str | None) -> None:
        undisturbed = not _is_named(self.asleep, step.name)
        match step.verb:
            case Verb.WRITE | Verb.DELETE | Verb.MERGE:
                self.assert_committed(step, answer, source)
            case Verb.BRANCH if undisturbed:
                assert source in self.line(self.branches[step.name].head)
            case Verb.DROP if undisturbed:
                assert step.name not in self.branches
            case Verb.TAG if undisturbed:
                assert self.tags[step.name] == source == answer.commit_id
            case Verb.UNTAG if undisturbed:
                assert step.name not in self.tags
            case Verb.READ:
                self.assert_read(answer)
            case Verb.OPTIMIZE | Verb.RECONCILE | Verb.CLEANUP if not self.others_keep_house():
                assert answer.told is not None
                assert not answer.told["failed"], (step, answer)
            case _:
                return

    def assert_committed(self, step: Step, answer: Answer, source: str | None) -> None:
        head = self.branches[step.name].head
        if answer.commit_id is not None:
            assert answer.commit_id in self.line(head), "an acknowledged commit is lost"
        elif step.verb is Verb.MERGE:
            assert source in self.model.ancestors(head)
        else:
            assert written(self.model.commits[head].content, step.written) is None

    def others_keep_house(self) -> bool:
        return any(one.sleeper.step.verb.is_maintenance for one in self.asleep)

    def judge_late(self, one: Asleep, answer: Answer) -> None:
        """Whether a step that others were faster than may end like this."""
        step = one.sleeper.step
        if answer.error is None:
            if step.verb.commits and answer.commit_id is not None:
                assert answer.commit_id in self.model.commits, (step, answer)
            if step.verb is Verb.READ:
                self.assert_read(answer)
            return
        moved = any(each.verb.commits and each.name == step.name for each in one.since)
        swept = any(each.verb is Verb.SWEEP for each in one.since)
        dropped = any(
            each.verb in {Verb.DROP, Verb.UNTAG} and each.name in {step.name, step.source}
            for each in one.since
        )
        cleaned = any(each.verb in {Verb.CLEANUP, Verb.RECONCILE} for each in one.since)
        allowed = {
            "OperationRolledBackError": swept,
            "ValidationFailedError": moved,
            "MergeConflictError": step.verb is Verb.MERGE,
            "BranchGoneError": dropped,
            "NotFoundError": dropped or cleaned or not step.verb.commits,
            "NoLongerKeptError": dropped or cleaned or not step.verb.commits,
            "ConflictError": dropped or not step.verb.commits,
            "RecoveryRequiredError": step.verb.is_maintenance,
            "DamagedGraphError": step.verb is Verb.READ and cleaned,
        }
        assert answer.error in allowed, (step, answer)
        assert allowed[answer.error], (step, answer, one.since)

    def conflicts(self, step: Step, source: str | None) -> bool:
        """Whether merging must fail, from one base at least."""
        assert source is not None
        theirs = self.model.commits[source]
        ours = self.model.commits[self.branches[step.name].head]
        merge = Merge(source=0, target=0, resolve=step.resolve)
        possible = [
            expect_merge(self.model, base, theirs, ours, merge)
            for base in self.model.bases(source, ours.commit_id)
        ]
        return any(each.open or each.broken for each in possible)

    def assert_read(self, answer: Answer) -> None:
        assert answer.commit_id is not None
        assert answer.told is not None
        assert same(answer.told, self.model.commits[answer.commit_id].content), answer

    def promised(self, step: Step) -> set[str]:
        """Commits of living branches that are there now and that the policy keeps."""
        tops: dict[Line, int] = {}
        for name in self.branches:
            for line, version in pinned_versions(self.graph.checkout(name)):
                tops[line] = max(version, tops.get(line, 0))
        floors: dict[Line, int] = {}
        earlier = retention_floors(self.graph)
        for line, top in tops.items():
            below = [version for version in versions_on(self.graph, line) if version <= top]
            kept = below if step.days else below[-(step.keep or 1) :]
            floors[line] = max(kept[0], earlier.get(line, 0))
        return {
            commit_id
            for commit_id in self.on_lines() & self.pins.keys() - self.gone
            if all(v >= floors.get(line, v + 1) for line, v in self.pins[commit_id])
        }

    def on_lines(self) -> set[str]:
        return {each for living in self.branches.values() for each in self.line(living.head)}

    def look_at_everything(self, promised: Collection[str] = ()) -> None:
        """Branches and tags are whole; every other commit is what it was, or is not found."""
        seen: dict[object, dict[str, Any]] = {}
        for name, living in self.branches.items():
            handle = self.graph.checkout(name)
            assert same(content(handle, seen), self.model.commits[living.head].content), name
        for name, commit_id in self.tags.items():
            left = content(self.graph.at(name), seen)
            assert same(left, self.model.commits[commit_id].content), name
        for commit_id, commit in self.model.commits.items():
            try:
                left = content(self.graph.at(commit_id), seen)
            except NotFoundError:
                assert commit_id not in promised, f"{commit_id} should have been kept"
                self.gone.add(commit_id)
                continue
            assert same(left, commit.content), f"{commit_id} holds other rows"
        if self.chance.random() < 0.4:
            self.check([self.chance.choice(sorted(self.branches))])

    def check(self, names: Iterable[str]) -> None:
        for name in names:
            report = self.graph.checkout(name).maintenance.check()
            assert report.ok, (name, report.findings)


def _is_about(steps: Iterable[Step], verb: Verb, name: str) -> bool:
    return any(step.verb is verb and step.name == name for step in steps)


def _is_named(asleep: Iterable[Asleep], name: str) -> bool:
    return any(one.sleeper.step.name == name for one in asleep)
