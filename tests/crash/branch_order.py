"""What may be true after people ran errands at once: some order of them explains every answer.

Invariant: an errand takes effect at one moment between its start and its end, or never. What it
brings from a source, and which life of a branch it means, it has seen at an earlier such moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, assert_never

from tests.crash.branch_world import MAIN, Errand, Marks, Picture, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One incarnation of a branch: its number, that of its parent, and what it holds."""

    number: int
    parent: int | None
    marks: Marks


_GONE: Final = -1
"""The number of a life that ended before."""


class Tagged(NamedTuple):
    """What a tag holds, and the life of the branch that it was put on."""

    marks: Marks
    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The living branches and the tags at one moment."""

    lives: Mapping[str, Life]
    tags: Mapping[str, Tagged] = field(default_factory=dict)
    born: int = 0

    @property
    def picture(self) -> Picture:
        return {
            **{name: life.marks for name, life in self.lives.items()},
            **{f"tag:{name}": tagged.marks for name, tagged in self.tags.items()},
        }

    def is_living(self, life: Life | None) -> bool:
        return life is not None and any(life.number == each.number for each in self.lives.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An errand, and what its caller was told."""

    errand: Errand
    said: str


def moment_of(picture: Picture) -> Moment:
    """A graph that looks like this, all branches made from main.

    A tag was put on a branch that has all that it holds, on main only if there is no other, or on
    one that is gone.
    """
    branches = [name for name in picture if not name.startswith("tag:")]
    lives = {
        name: Life(number=number, parent=None if name == MAIN else 0, marks=picture[name])
        for number, name in enumerate(sorted(branches, key=lambda name: name != MAIN))
    }
    tags = {
        name.removeprefix("tag:"): Tagged(
            marks,
            max((life.number for life in lives.values() if marks <= life.marks), default=_GONE),
        )
        for name, marks in picture.items()
        if name not in branches
    }
    return Moment(lives=lives, tags=tags, born=len(branches))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slow:
    """A slow errand on its way: what it saw, None before it looked, and whether it is done."""

    told: Told
    seen: Moment | None = None
    is_done: bool = False

    @property
    def may_end(self) -> bool:
        return self.is_done or self.told.said != "acknowledged"

    def is_true_at(self, end: Moment) -> bool:
        """Whoever was told that its branch is gone meant one that does not live any more."""
        seen = self.seen
        return self.told.said != "gone" or (
            seen is not None and not end.is_living(seen.lives.get(self.told.errand.name))
        )


def explained(before: Moment, slow: Sequence[Told], rivals: Sequence[Told]) -> list[Picture]:
    """Every look that a graph may have after slow errands beside which rivals ran in turn."""
    started = tuple(_Slow(told=each) for each in slow)
    return [end.picture for end in _ends(before, started, tuple(rivals))]


def _ends(moment: Moment, slow: tuple[_Slow, ...], rivals: tuple[Told, ...]) -> Iterator[Moment]:
    """Go through every order of what is still to happen."""
    if not rivals and all(each.may_end and each.is_true_at(moment) for each in slow):
        yield moment
    if rivals:
        after = _after(moment, rivals[0].errand, seen=moment)
        if (after is not None) == (rivals[0].said == "acknowledged"):
            yield from _ends(after or moment, slow, rivals[1:])
    for number, each in enumerate(slow):
        after, step = _stepped(moment, each)
        if after is not None:
            yield from _ends(after, (*slow[:number], step, *slow[number + 1 :]), rivals)


def _stepped(moment: Moment, slow: _Slow) -> tuple[Moment | None, _Slow]:
    """The next step of a slow errand: it looks, then it acts; None if there is none."""
    if slow.seen is None:
        return moment, replace(slow, seen=moment)
    if slow.is_done or slow.told.said == "failed":
        return None, slow
    return _after(moment, slow.told.errand, seen=slow.seen), replace(slow, is_done=True)


def _after(moment: Moment, errand: Errand, *, seen: Moment) -> Moment | None:
    """What an errand makes of a moment if it saw `seen` before; None if it must be refused."""
    match errand.verb:
        case Verb.CREATE | Verb.TAG:
            return _with_name(moment, errand, seen)
        case Verb.UNTAG:
            tags = {name: tagged for name, tagged in moment.tags.items() if name != errand.name}
            return replace(moment, tags=tags) if tags != moment.tags else None
        case Verb.DELETE:
            return _with_branch_gone(moment, errand, seen)
        case Verb.WRITE | Verb.MERGE:
            return _with_rows(moment, errand, seen)
        case Verb.READ | Verb.FOLD:
            return moment if errand.name in moment.lives else None
        case Verb.RECONCILE | Verb.SWEEP:
            return moment
        case _:
            assert_never(errand.verb)


def _with_name(moment: Moment, errand: Errand, seen: Moment) -> Moment | None:
    name, origin = errand.name, _origin(errand, seen)
    if origin is None or name in moment.lives:
        return None
    if errand.verb is Verb.TAG:
        is_free = moment.tags.get(name, origin).marks == origin.marks
        return replace(moment, tags={**moment.tags, name: origin}) if is_free else None
    if name in moment.tags:
        return None
    life = Life(number=moment.born, parent=origin.life, marks=origin.marks)
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
    origin = _origin(errand, seen)
    return None if origin is None else origin.marks


def _origin(errand: Errand, seen: Moment) -> Tagged | None:
    """What a source holds, and the life that it is of: a branch, or a tag."""
    life = seen.lives.get(errand.source)
    return seen.tags.get(errand.source) if life is None else Tagged(life.marks, life.number)
