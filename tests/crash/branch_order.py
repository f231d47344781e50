"""What may be true after people ran errands at once: some order of them explains every answer.

Invariant: an errand takes effect at one moment between its start and its end, or never. What it
brings from a source, and which life of a branch it means, it has seen at an earlier such moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from tests.crash.branch_world import MAIN, Errand, Marks, Picture, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One incarnation of a branch: its number, that of its parent, and what it holds."""

    number: int
    parent: int | None
    marks: Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The living branches and the tags at one moment."""

    lives: Mapping[str, Life]
    tags: Mapping[str, Marks] = field(default_factory=dict)
    born: int = 0

    @property
    def picture(self) -> Picture:
        return {
            **{name: life.marks for name, life in self.lives.items()},
            **{f"tag:{name}": marks for name, marks in self.tags.items()},
        }

    def is_living(self, life: Life | None) -> bool:
        return life is not None and any(life.number == each.number for each in self.lives.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An errand, and what its caller was told."""

    errand: Errand
    said: str


def moment_of(picture: Picture) -> Moment:
    """A graph that looks like this, all branches made from main."""
    branches = [name for name in picture if not name.startswith("tag:")]
    return Moment(
        lives={
            name: Life(number=number, parent=None if name == MAIN else 0, marks=picture[name])
            for number, name in enumerate(sorted(branches, key=lambda name: name != MAIN))
        },
        tags={
            name.removeprefix("tag:"): marks
            for name, marks in picture.items()
            if name not in branches
        },
        born=len(branches),
    )


def explained(before: Moment, slow: Told, rivals: Sequence[Told]) -> tuple[Picture, ...]:
    """Every look that the graph may have after a slow errand, beside which rivals ran in turn."""
    found = [] if slow.said == "acknowledged" else list(_without(before, rivals))
    if slow.said == "failed":
        return tuple(moment.picture for moment in found)
    for seen_at in range(len(rivals) + 1):
        for done_at in range(seen_at, len(rivals) + 1):
            found += _with(before, slow.errand, rivals, seen_at=seen_at, done_at=done_at)
    if slow.said == "gone":
        meant = before.lives.get(slow.errand.name)
        found = [moment for moment in found if not moment.is_living(meant)]
    return tuple(moment.picture for moment in found)


def _without(moment: Moment, rivals: Sequence[Told]) -> Iterator[Moment]:
    """The moment after these rivals, if it explains what they were told."""
    for rival in rivals:
        after = _after(moment, rival.errand, seen=moment)
        if (after is not None) != (rival.said == "acknowledged"):
            return
        moment = after or moment
    yield moment


def _with(
    before: Moment, errand: Errand, rivals: Sequence[Told], *, seen_at: int, done_at: int
) -> Iterator[Moment]:
    for seen in _without(before, rivals[:seen_at]):
        for reached in _without(seen, rivals[seen_at:done_at]):
            after = _after(reached, errand, seen=seen)
            if after is not None:
                yield from _without(after, rivals[done_at:])


def _after(moment: Moment, errand: Errand, *, seen: Moment) -> Moment | None:
    """What an errand makes of a moment if it saw `seen` before; None if it must be refused."""
    match errand.verb:
        case Verb.CREATE | Verb.TAG:
            return _with_name(moment, errand, seen)
        case Verb.UNTAG:
            tags = {name: marks for name, marks in moment.tags.items() if name != errand.name}
            return replace(moment, tags=tags) if tags != moment.tags else None
        case Verb.DELETE:
            return _with_branch_gone(moment, errand, seen)
        case Verb.WRITE | Verb.MERGE:
            return _with_rows(moment, errand, seen)
        case Verb.READ | Verb.RECONCILE | Verb.SWEEP:
            return moment
        case _:
            assert_never(errand.verb)


def _with_name(moment: Moment, errand: Errand, seen: Moment) -> Moment | None:
    name, brought = errand.name, _brought(errand, seen)
    if brought is None or name in moment.lives:
        return None
    if errand.verb is Verb.TAG:
        is_free = moment.tags.get(name, brought) == brought
        return replace(moment, tags={**moment.tags, name: brought}) if is_free else None
    if name in moment.tags:
        return None
    origin = seen.lives.get(errand.source)
    life = Life(number=moment.born, parent=0 if origin is None else origin.number, marks=brought)
    return replace(moment, lives={**moment.lives, name: life}, born=moment.born + 1)


def _with_branch_gone(moment: Moment, errand: Errand, seen: Moment) -> Moment | None:
    """The life that was meant is gone, by this or by an earlier deletion."""
    meant = seen.lives.get(errand.name)
    if meant is None or any(life.parent == meant.number for life in seen.lives.values()):
        return None
    lives = {name: life for name, life in moment.lives.items() if life.number != meant.number}
    return replace(moment, lives=lives)


def _with_rows(moment: Moment, errand: Errand, seen: Moment) -> Moment | None:
    meant = seen.lives.get(errand.name)
    new = frozenset({errand.mark}) if errand.verb is Verb.WRITE else _brought(errand, seen)
    if new is None or not moment.is_living(meant):
        return None
    life = moment.lives[errand.name]
    marked = replace(life, marks=life.marks | new)
    return replace(moment, lives={**moment.lives, errand.name: marked})


def _brought(errand: Errand, seen: Moment) -> Marks | None:
    origin = seen.lives.get(errand.source)
    return seen.tags.get(errand.source) if origin is None else origin.marks
