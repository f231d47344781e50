"""What merging two branches with changed schemas should lead to, in plain Python.

Facets of elements are merged three ways by token. Rows of every side get the changes that they lack
and are then merged by the oracle for rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from tests.behaviours.schema_lines import (
    WIDER,
    Change,
    Content,
    Effect,
    Element,
    Fill,
    Renaming,
    Row,
    Schema,
    State,
    as_number,
    brought,
    constraints_of,
    digits_of,
    going_back,
    has_wrong_default,
    is_number,
    offences,
    properties_of,
    types_of,
)
from tests.merge.oracle import Rules, merge_graphs, spelt

Aliases = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit with what its branch was at it."""

    commit_id: str
    parents: tuple[str, ...]
    state: State


@dataclass(slots=True)
class Lines:
    """Every commit, and the head of every branch."""

    commits: dict[str, Commit] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def head(self, branch: str) -> Commit:
        return self.commits[self.heads[branch]]

    def record(self, branch: str, commit_id: str, parents: Sequence[str], state: State) -> None:
        commit = Commit(commit_id=commit_id, parents=tuple(parents), state=state)
        self.commits[commit_id] = commit
        self.heads[branch] = commit_id

    def first_parents(self, branch: str) -> list[str]:
        """The commits of a branch and of where it came from, newest first."""
        line = [self.heads[branch]]
        while parents := self.commits[line[-1]].parents:
            line.append(parents[0])
        return line

    def ancestors(self, commit_id: str) -> set[str]:
        ancestors, waiting = set[str](), [commit_id]
        while waiting:
            one = waiting.pop()
            if one not in ancestors:
                ancestors.add(one)
                waiting += self.commits[one].parents
        return ancestors

    def bases(self, one: str, other: str) -> set[str]:
        """Common ancestors that no other common ancestor descends from."""
        common = self.ancestors(one) & self.ancestors(other)
        return {
            base
            for base in common
            if not any(base in self.ancestors(other) for other in common - {base})
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The state after a merge, or the reasons why there is none."""

    state: State | None
    reasons: frozenset[str] = frozenset()
    aliases: Aliases = field(default_factory=dict)
    may_be_refused: bool = False
    """Whether rows of the target, as they are before the merge, break a rule of the new schema."""
    otherwise: Expected | None = None
    """The same if rows do not get values of changes that were taken back since, which is open."""

    @property
    def alternatives(self) -> list[Expected]:
        return [self] if self.otherwise is None else [self, self.otherwise]

    @property
    def allows_refusal(self) -> bool:
        return any(one.reasons or one.may_be_refused for one in self.alternatives)


def expect_revert(
    left: State, earlier: State, head: State, resolve: str | None, aliases: Aliases
) -> Expected:
    """Taking back a commit: what it left is the base, what was before it is the other side."""
    back = going_back(left, earlier)
    theirs = replace(earlier, changes=(*left.changes, back))
    return expect_merge(left, head, theirs, resolve, aliases, may_drop=True)


def expect_merge(
    base: State,
    ours: State,
    theirs: State,
    resolve: str | None,
    aliases: Aliases,
    *,
    may_drop: bool = False,
) -> Expected:
    base, ours, theirs = states = [renamed(state, aliases) for state in (base, ours, theirs)]
    expected = _expect_merge(base, ours, theirs, resolve, aliases, may_drop=may_drop)
    if not any(change.goes_back for state in states for change in state.changes):
        return expected
    base, changed, other = (_without_values_taken_back(state, states) for state in states)
    otherwise = _expect_merge(base, changed, other, resolve, aliases, may_drop=may_drop)
    if otherwise.state is not None:
        state = replace(otherwise.state, changes=_changes(ours, theirs))
        otherwise = replace(otherwise, state=state)
    return replace(expected, otherwise=otherwise)


def _changes(ours: State, theirs: State) -> tuple[Change, ...]:
    return (*ours.changes, *(one for one in theirs.changes if one not in ours.changes))


def _without_values_taken_back(state: State, states: Sequence[State]) -> State:
    """Changes that a later one takes back give other rows no value for a null, and rename none."""
    undone: set[Change] = set()
    for one in states:
        for place, change in enumerate(one.changes):
            undone |= {*one.changes[:place]} if change.goes_back else set()
    return replace(
        state,
        changes=tuple(
            replace(change, effects=tuple(filter(_is_of_new_column, change.effects)))
            if change in undone
            else change
            for change in state.changes
        ),
    )


def _is_of_new_column(effect: Effect) -> bool:
    return isinstance(effect, Fill) and not effect.is_for_null


def _expect_merge(
    base: State,
    ours: State,
    theirs: State,
    resolve: str | None,
    aliases: Aliases,
    *,
    may_drop: bool,
) -> Expected:
    same = added_alike(base.schema, ours.schema, theirs.schema)
    theirs = renamed(theirs, same)
    changes = _changes(ours, theirs)
    ours, theirs = (_without_detours(base, side) for side in (ours, theirs))
    schema, reasons = merge_schemas(base.schema, ours.schema, theirs.schema)
    reasons |= different_fills(base, ours, theirs, schema)
    renamings = {
        token: _renamings(token, base, ours, theirs)
        for token, one in schema.items()
        if isinstance(one.get("type"), tuple)
    }
    for token, both in renamings.items():
        before = base.schema.get(token, {}).get("type", ())
        reasons |= different_renamings(both, before, schema[token]["type"])
    reasons |= narrowed_values(base, ours, schema) | narrowed_values(base, theirs, schema)
    reasons |= lost_values(base, theirs, schema)
    if not may_drop:
        reasons |= lost_values(base, ours, schema)
    if reasons:
        return Expected(state=None, reasons=frozenset(reasons))
    lift = _Lift(schema, renamings)
    rows, conflicts = merge_rows(lift, base, ours, theirs, resolve)
    reasons = conflicts | offences(schema, rows)
    state = State(
        schema=schema,
        rows=rows,
        changes=changes,
        ever=ours.ever + max(theirs.ever - base.ever, 0),
    )
    return Expected(
        state=None if reasons else state,
        reasons=frozenset(reasons),
        aliases={**aliases, **same},
        may_be_refused=bool(offences(schema, lift.rows(ours, _missing(ours, theirs)))),
    )


def _without_detours(base: State, side: State) -> State:
    """A side that came back to the schema of the base has changed nothing of it."""
    if (side.schema, side.ever) != (base.schema, base.ever):
        return side
    return replace(side, changes=base.changes)


def renamed(thing: Any, aliases: Aliases) -> Any:
    """The same thing with other tokens."""
    if not aliases:
        return thing
    match thing:
        case str():
            return aliases.get(thing, thing)
        case dict():
            return {renamed(key, aliases): renamed(value, aliases) for key, value in thing.items()}
        case tuple() | frozenset():
            return type(thing)(renamed(one, aliases) for one in thing)
        case _ if is_dataclass(thing) and not isinstance(thing, type):
            values = {one.name: renamed(getattr(thing, one.name), aliases) for one in fields(thing)}
            return replace(thing, **values)
        case _:
            return thing


def added_alike(base: Schema, ours: Schema, theirs: Schema) -> dict[str, str]:
    """What both sides added under one name in the same place: token of theirs, token of ours."""
    same: dict[str, str] = {}
    for token, element in theirs.items():  # types come before their properties
        if token in base:
            continue
        owner = element.get("owner")
        place = same.get(owner, owner) if owner is not None else None
        for our_token, our_element in ours.items():
            if (
                our_token not in base
                and our_element.get("owner") == place
                and our_element["name"] == element["name"]
                and our_token != token
                and our_token not in theirs
                and token not in ours
            ):
                same[token] = our_token
    return same


# Schemas


def merge_schemas(base: Schema, ours: Schema, theirs: Schema) -> tuple[Schema, set[str]]:
    schema: Schema = {}
    reasons: set[str] = set()
    for token in dict.fromkeys([*ours, *theirs]):
        one, other, old = ours.get(token), theirs.get(token), base.get(token)
        owner = (one or other or {}).get("owner")
        if owner is not None and owner not in schema:
            continue
        if one is not None and other is not None:
            schema[token] = _merge_element(old, one, other, reasons)
        elif old is None:
            schema[token] = dict(one or other or {})
        elif _is_changed(base, ours if one is not None else theirs, token):
            reasons.add("SM-103")
    reasons |= set(_broken_references(schema))
    if not reasons and has_wrong_default(schema):
        reasons.add("SM-110")
    ordered = sorted(schema.items(), key=lambda pair: "owner" in pair[1])
    return dict(ordered), reasons


def _is_changed(base: Schema, side: Schema, token: str) -> bool:
    owned = {token, *properties_of(base, token), *properties_of(side, token)}
    return any(_unnoted(base.get(one)) != _unnoted(side.get(one)) for one in owned)


def _unnoted(element: Element | None) -> Element | None:
    if element is None:
        return None
    return {facet: value for facet, value in element.items() if facet != "description"}


def _merge_element(
    old: Element | None, ours: Element, theirs: Element, reasons: set[str]
) -> Element:
    if old is None and _unnoted(ours) != _unnoted(theirs):
        reasons.add("SM-111")
        return ours
    merged: Element = {}
    for facet in dict.fromkeys([*ours, *theirs]):
        before: Any = (old or {}).get(facet)
        one: Any = ours.get(facet)
        other: Any = theirs.get(facet)
        if other in (one, before):
            taken = one
        elif one == before:
            taken = other
        elif facet == "type":
            taken = _common_type(before, one, other)
            if taken is None:
                enums = any(isinstance(kind, tuple) for kind in (before, one, other))
                reasons.add("SM-106" if enums else "SM-105")
                taken = one
        elif facet == "ends":
            taken = tuple(
                _merge_ends(*ends) for ends in zip(before or ((), ()), one, other, strict=True)
            )
        else:
            codes = {"name": "SM-101", "description": "SM-104", "default": "SM-108"}
            reasons.add(codes.get(str(facet), "SM-112"))
            taken = one
        if taken is not None:
            merged[facet] = taken
    return merged


def _merge_ends(
    before: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> tuple[str, ...]:
    removed = {one for one in before if one not in theirs}
    added = [one for one in theirs if one not in ours and one not in before]
    return (*(one for one in ours if one not in removed), *added)


def _common_type(old: Any, ours: Any, theirs: Any) -> Any:
    if isinstance(old, tuple):
        if "String" in (ours, theirs):
            other = theirs if ours == "String" else ours
            return "String" if {*old} <= {*other} else None
        removed = ({*old} - {*ours}) | ({*old} - {*theirs})
        return tuple(sorted({*old, *ours, *theirs} - removed)) or None
    if theirs in WIDER.get(ours, ()):
        return theirs
    if ours in WIDER.get(theirs, ()):
        return ours
    is_decimal = "Decimal" in f"{ours} {theirs}"
    if not is_decimal or not all(is_number(one) and one != "F64" for one in (ours, theirs)):
        return None
    digits, scales = zip(*map(digits_of, (ours, theirs)), strict=True)
    precision = max(digits) + max(scales)
    return f"Decimal({precision}, {max(scales)})" if precision <= 38 else None


def _broken_references(schema: Schema) -> Iterator[str]:
    for token in types_of(schema):
        names = [schema[one]["name"] for one in properties_of(schema, token)]
        if len({*names}) < len(names):
            yield "SM-102"
        for _, members, _ in constraints_of(schema[token]):
            if not {*members} <= {*properties_of(schema, token)}:
                yield "SM-107"
            elif any(schema[one]["type"] == "Json" for one in members):
                yield "SM-110"
        if not all(one in schema for end in schema[token].get("ends", ()) for one in end):
            yield "SM-114"
    names = [schema[token]["name"] for token in types_of(schema)]
    if len({*names}) < len(names):
        yield "SM-102"


# Values


def _new_changes(base: State, side: State) -> list[Change]:
    return [change for change in side.changes if change not in base.changes]


def _fills(base: State, side: State) -> dict[str, Any]:
    """What a side gives to rows of the base that lack a value, the first fill first."""
    fills: dict[str, Any] = {}
    for change in _new_changes(base, side):
        for effect in change.effects:
            if isinstance(effect, Renaming):
                if fills.get(effect.element) == effect.old:
                    fills[effect.element] = effect.new
            elif isinstance(effect, Fill) and (effect.value, effect.source) != (None, None):
                value = effect.value
                if effect.source is not None:
                    copied = ("copy", effect.source) if effect.source in base.schema else None
                    value = fills.get(effect.source, copied)
                if value is not None:
                    fills.setdefault(effect.element, value)
    return fills


def different_fills(base: State, ours: State, theirs: State, schema: Schema) -> set[str]:
    one, other = _fills(base, ours), _fills(base, theirs)
    for token in schema:
        both = token in ours.schema and token in theirs.schema and token not in base.schema
        if token in one and token in other and one[token] != other[token]:
            return {"SM-108"}
        if both and (token in one) != (token in other) and schema[token]["nullable"]:
            return {"SM-108"}
        for fills, other_fills, side in ((one, other, theirs), (other, one, ours)):
            match fills.get(token):
                case ("copy", source) if token not in other_fills:
                    is_lost = source in other_fills or source not in side.schema
                    if is_lost or _maps_values(base, side, source):
                        return {"SM-108"}
    return set()


def _maps_values(base: State, side: State, token: str) -> bool:
    """Whether a side renamed values that rows of the base may have."""
    values = base.schema[token]["type"]
    renamings = _renamings(token, base, side, side)[0]
    return isinstance(values, tuple) and any(_through(one, renamings) != one for one in values)


def _renamings(
    token: str, base: State, ours: State, theirs: State
) -> tuple[list[Renaming], list[Renaming]]:
    lists = [
        [
            effect
            for change in _new_changes(base, side)
            for effect in change.effects
            if isinstance(effect, Renaming) and effect.element == token
        ]
        for side in (ours, theirs)
    ]
    return lists[0], lists[1]


def _through(value: str, *renamings: Sequence[Renaming]) -> str:
    for group in renamings:
        for one in group:
            value = one.new if value == one.old else value
    return value


def _last(value: str, both: Sequence[Sequence[Renaming]], values: Sequence[str]) -> str:
    """A value that the merged enum has no more goes on to what it became."""
    passed = set[str]()
    while value not in values and value not in passed:
        passed.add(value)
        value = _through(value, *both)
    return value


def different_renamings(
    both: tuple[list[Renaming], list[Renaming]], before: Sequence[str], values: Sequence[str]
) -> set[str]:
    ours, theirs = both
    for value in before:
        results = {
            _last(_through(value, *order), both, values)
            for order in ((ours, theirs), (theirs, ours))
        }
        is_renamed = _through(value, ours) != value or _through(value, theirs) != value
        if is_renamed and (len(results) > 1 or not results <= {*values}):
            return {"SM-106"}
    return set()


def lost_values(base: State, side: State, schema: Schema) -> set[str]:
    """Whether the merged schema lacks what a side changed in rows."""
    changes = _new_changes(base, side)
    for owner, table in side.rows.items():
        old_rows = base.rows.get(owner, {})
        lifted = {name: brought(row, owner, side.schema, changes) for name, row in old_rows.items()}
        if owner not in schema:
            if spelt(lifted) != spelt(table):
                return {"SM-113"}
            continue
        for token in set(properties_of(side.schema, owner)) - {*schema}:
            for name, row in table.items():
                old = lifted.get(name, {}).get(token)
                if spelt(row[token]) != spelt(old):
                    return {"SM-113"}
    return set()


def narrowed_values(base: State, side: State, schema: Schema) -> set[str]:
    """Whether a side changed numbers to values that the merged type does not hold."""
    for owner, table in side.rows.items():
        for token in properties_of(side.schema, owner):
            kind = schema.get(token, {}).get("type")
            own_kind = side.schema[token]["type"]
            if not is_number(kind) or not is_number(own_kind) or kind == own_kind:
                continue
            for name, row in table.items():
                old = base.rows.get(owner, {}).get(name, {}).get(token)
                value = row[token]
                if value not in (None, old) and as_number(str(kind), value) is None:
                    return {"SM-113"}
    return set()


# Rows


@dataclass(frozen=True, slots=True)
class _Lift:
    """Brings rows to the merged schema."""

    schema: Schema
    renamings: Mapping[str, tuple[list[Renaming], list[Renaming]]]

    def rows(self, state: State, missing: Sequence[Change]) -> Content:
        return {
            token: {
                # A property whose addition was taken back has no value.
                name: dict.fromkeys(properties_of(self.schema, token))
                | self._last(brought(row, token, self.schema, missing))
                for name, row in state.rows.get(token, {}).items()
            }
            for token in types_of(self.schema)
        }

    def _last(self, row: Row) -> Row:
        for token, both in self.renamings.items():
            if row.get(token) is not None:
                row[token] = _last(row[token], both, self.schema[token]["type"])
        return row


def _missing(state: State, other: State) -> list[Change]:
    return [change for change in other.changes if change not in state.changes]


def merge_rows(
    lift: _Lift, base: State, ours: State, theirs: State, resolve: str | None
) -> tuple[Content, set[str]]:
    schema = lift.schema
    all_changes = [*_new_changes(base, ours), *_missing(ours, theirs)]
    before = lift.rows(base, [one for one in all_changes if one not in base.changes])
    mine = lift.rows(ours, _missing(ours, theirs))
    other = lift.rows(theirs, _missing(theirs, ours))
    for token in types_of(schema):
        for state, rows, counterpart in ((ours, mine, other), (theirs, other, mine)):
            lacking = [one for one in properties_of(schema, token) if one not in state.schema]
            if token not in state.schema:
                continue
            for name, row in rows[token].items():
                source = before[token].get(name) or counterpart[token].get(name)
                if source is not None:
                    row |= {one: source[one] for one in lacking}
    merged = merge_graphs(before, other, mine, Rules(resolution=resolve))
    conflicts = {f"row {one.kind}" for one in merged.conflicts if one.resolution is None}
    return merged.graph, conflicts
