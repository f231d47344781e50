"""Random queries over any catalog, as text with parameters: every clause, every kind of result.

A query is made piece by piece from what is in scope, so nearly all of them compile. The few that
do not are thrown away by whoever asks for compiled ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from omnigraph_lake.errors import InvalidInputError, QueryInvalidError
from omnigraph_lake.query.ast import EdgeDirection, write_edges
from omnigraph_lake.query.checks.adhoc import parameters_of_values
from omnigraph_lake.query.checks.steps import steps_between
from omnigraph_lake.query.compile import compile_parsed
from omnigraph_lake.query.decimals import SUMMED_DIGITS_MAX
from omnigraph_lake.query.expressions import PathPart
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.query.typed import Block, TypedQuery, TypedRead, edges_of
from omnigraph_lake.query.types import EdgeOf, NodeOf, is_orderable
from omnigraph_lake.schema.catalog import (
    NUMBERS,
    Catalog,
    DecimalType,
    EdgeType,
    EnumType,
    ListType,
    Scalar,
    ScalarType,
    VectorType,
)
from tests.query.random_expressions import Expressions, Seen, is_float_field, spelt
from tests.query.random_graphs import from_pool

WORK_MAX: Final = 30_000
"""How many combinations of nodes the evaluator may have to look at."""
_WEIGHT: Final = "w0"
_HOPS: Final = (
    "{1,1}",
    "{1,2}",
    "{1,3}",
    "{2,2}",
    "{2,3}",
    "{3,5}",
    "{1,}",
    "{0,}",
    "{2,}",
    "{0,2}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomQuery:
    text: str
    given: Mapping[str, Any]
    typed: TypedQuery


def random_query(
    generator: random.Random, catalog: Catalog, sizes: Mapping[str, int]
) -> RandomQuery:
    """A query that compiles, and that a naive evaluator can answer in a moment."""
    while True:
        text, given = _Writer(generator=generator, catalog=catalog).query()
        query = compiled(text, given, catalog)
        if query is None:
            continue
        assert isinstance(query.typed.body, TypedRead)
        if _work_of(query.typed.body, sizes) <= WORK_MAX:
            return query


def compiled(text: str, given: Mapping[str, Any], catalog: Catalog) -> RandomQuery | None:
    """The query of a text, or None if it is none."""
    parsed = parse_queries(text)
    try:
        (typed,) = compile_parsed(
            parsed,
            text=text,
            catalog=catalog,
            filename="random.gq",
            given=parameters_of_values(parsed, given),
        ).values()
    except (QueryInvalidError, InvalidInputError):
        return None
    names = {parameter.name for parameter in typed.parameters}
    used = {name: value for name, value in given.items() if name in names}
    return RandomQuery(text=text, given=used, typed=typed)


def _work_of(body: TypedRead, sizes: Mapping[str, int]) -> int:
    return math.prod(_work(block, sizes) for block in body.blocks)


def _work(block: Block, sizes: Mapping[str, int]) -> int:
    """The number of combinations of nodes that a pattern ranges over, blocks inside included."""
    types: dict[str, set[str]] = {}
    for binding in block.bindings:
        types.setdefault(binding.variable, set()).update(binding.type.types)
    for each in block.traversals:
        types.setdefault(each.left, set(each.left_type.types))
        types.setdefault(each.right, set(each.right_type.types))
    product = 1
    for variable, names in types.items():
        if variable in block.introduced:
            product *= max(1, sum(sizes[name] for name in names))
    for inner in block.inner_blocks:
        product *= _work(inner, sizes)
    return product


@dataclass(slots=True, kw_only=True)
class _Writer:
    generator: random.Random
    catalog: Catalog
    expressions: Expressions = field(init=False)
    made: int = 0
    known: dict[str, Seen] = field(default_factory=dict)
    unordered: set[str] = field(default_factory=set)
    """Columns of a type without an order."""

    def __post_init__(self) -> None:
        self.expressions = Expressions(generator=self.generator, catalog=self.catalog)

    def query(self) -> tuple[str, dict[str, Any]]:
        clauses = self._pattern(self.known, depth=0)
        result = self._result(list(self.known.values()))
        given = self._handed_over()
        is_adhoc = self._chance(0.25)
        declared = ", ".join(
            f"${name}: {kind}"
            for name, kind in self.expressions.declared.items()
            if not is_adhoc or given.get(name) in (None, [], ()) or self._chance(0.5)
        )
        body = ["match {", *clauses, "}", *result]
        lines = [f"({declared})", *body] if is_adhoc else [f"query q({declared}) {{", *body, "}"]
        return "\n".join([*lines, ""]), given

    def _handed_over(self) -> dict[str, Any]:
        """Null parameters are left out now and then; both mean null."""
        return {
            name: value
            for name, value in self.expressions.given.items()
            if value is not None or self.generator.random() < 0.5
        }

    def _chance(self, likelihood: float) -> bool:
        return self.generator.random() < likelihood

    def _name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    # Patterns

    def _pattern(self, scope: dict[str, Seen], *, depth: int) -> list[str]:
        """Clauses of one block; `scope` gets the variables it brings."""
        outside = set(scope)
        clauses: list[str] = []
        if depth == 0 or self._chance(0.3):
            clauses.append(self._binding(scope))
        if depth == 0 and self._chance(0.15):
            clauses.append(self._binding(scope))
        wanted = self.generator.choice([0, 1, 1, 2, 3] if depth == 0 else [0, 1, 1, 2])
        walkable = dict(scope)
        for _ in range(wanted):
            clauses += self._traversal(scope, walkable)
        clauses += self._conditions(scope, depth=depth)
        if depth < 2:
            clauses += self._blocks(scope, depth=depth)
            if self._chance(0.3):
                clauses += self._conditions(scope, depth=depth)
        if depth > 0 and not any(f"${name}" in each for name in outside for each in clauses):
            clauses.append(f"${self.generator.choice(sorted(outside))} is not null")
        if self._chance(0.3):
            self.generator.shuffle(clauses)
        return clauses

    def _blocks(self, scope: dict[str, Seen], *, depth: int) -> list[str]:
        clauses = []
        for _ in range(self.generator.choice([0, 0, 0, 0, 1, 1, 2])):
            word = self.generator.choice(["not", "optional", "optional"])
            inner = dict(scope)
            body = "\n".join(self._pattern(inner, depth=depth + 1))
            clauses.append(f"{word} {{\n{body}\n}}")
            if word == "optional":
                scope.update(inner)
        return clauses

    def _binding(self, scope: dict[str, Seen]) -> str:
        again = [each.name for each in scope.values() if isinstance(each.type, NodeOf)]
        if again and self._chance(0.2):
            name = self.generator.choice(again)
            held = scope[name].type
            assert isinstance(held, NodeOf)
            return f"${name}: {held.interface or '|'.join(held.types)}"
        interfaces = [
            name
            for name in self.catalog.interfaces
            if any(name in each.implements for each in self.catalog.nodes.values())
        ]
        name = self._name("n")
        if self._chance(0.12):
            several = [*self.catalog.nodes, *interfaces]
            several = self.generator.sample(
                several, k=self.generator.randrange(1, len(several) + 1)
            )
            chosen = "|".join(several) if len(several) > 1 else "_"
            types = _types_of(self.catalog, several if len(several) > 1 else self.catalog.nodes)
            scope[name] = Seen(name=name, type=NodeOf(types=types))
        elif interfaces and self._chance(0.25):
            chosen = self.generator.choice(interfaces)
            scope[name] = Seen(name=name, type=_implementers(self.catalog, chosen))
        else:
            chosen = self.generator.choice(list(self.catalog.nodes))
            scope[name] = Seen(name=name, type=NodeOf(types=(chosen,)))
        return f"${name}: {chosen}{self._matches(scope[name])}"

    def _matches(self, seen: Seen) -> str:
        if not self._chance(0.2):
            return ""
        fields = [
            each
            for each in self.expressions.fields([seen])
            if not isinstance(each.type, VectorType)
        ]
        chosen = self.generator.choice(fields)
        name = chosen.text.partition(".")[2]
        match chosen.type:
            case EnumType():
                return f" {{ {name}: {self.expressions.enum_value(chosen.type)} }}"
            case ListType():
                value = spelt(from_pool(self.generator, chosen.type.item))
                return f" {{ {name}: {value} }}" if "nan" not in value + "inf" else ""
            case DecimalType():
                return f" {{ {name}: {self.expressions.decimal_literal(chosen.type)} }}"
            case ScalarType():
                return f" {{ {name}: {self.expressions.literal(chosen.type.scalar)} }}"
            case _:
                return ""

    def _traversal(self, scope: dict[str, Seen], walkable: dict[str, Seen]) -> list[str]:
        """One edge from a variable that is bound for sure, to a new one or another such one."""
        starts = [each for each in walkable.values() if isinstance(each.type, NodeOf)]
        self.generator.shuffle(starts)
        for start in starts:
            assert isinstance(start.type, NodeOf)
            edges = [
                each
                for each in self.catalog.edges.values()
                if {*each.source.names, *each.target.names} & set(start.type.types)
            ]
            if edges and self._chance(0.7 if any(map(_is_polymorphic, edges)) else 0.3):
                several = self._steps_over_several(start, edges, scope, walkable)
                if several is not None:
                    return [several]
            plain = [each for each in edges if not _is_polymorphic(each)]
            if plain:
                return [self._step(start, self.generator.choice(plain), scope, walkable)]
        return []

    def _steps_over_several(
        self, start: Seen, edges: list[EdgeType], scope: dict[str, Seen], walkable: dict[str, Seen]
    ) -> str | None:
        """Edges of several types, or any edge, from a variable; None if they do not fit."""
        assert isinstance(start.type, NodeOf)
        direction = self.generator.choice((None, None, *EdgeDirection))
        hops = self.generator.choice(("", *_HOPS))
        is_weighted = self._chance(0.3)
        if is_weighted:
            edges = [each for each in self.catalog.edges.values() if _WEIGHT in each.properties]
            hops = self.generator.choice(["{1,}", "{0,}"])
        bounds = hops[1:-1].split(",") if hops else ["1", "1"]
        minimum, maximum = int(bounds[0]), int(bounds[1]) if bounds[1] else None
        near = maximum == 1 or is_weighted
        chosen = self._alternatives(edges, edges if near else list(self.catalog.edges.values()))
        is_any = chosen is None
        chosen = list(self.catalog.edges.values()) if chosen is None else chosen
        if len(chosen) == 1 and not is_any and not _is_polymorphic(chosen[0]):
            return None
        others = [each for each in walkable.values() if isinstance(each.type, NodeOf)]
        end = self.generator.choice(others) if self._chance(0.25) else None
        name = "_" if end is None and self._chance(0.1) else self._name("n")
        name = name if end is None else end.name
        right = frozenset(end.type.types) if end and isinstance(end.type, NodeOf) else None
        left = frozenset(start.type.types)
        turned = self._chance(0.4)
        between = steps_between(
            chosen,
            left=right if turned else left,
            right=left if turned else right,
            hops=(minimum, maximum),
            direction=direction,
        )
        missing = {each.name for each in chosen} - set(edges_of(between.steps))
        if between.ambiguous or not between.steps or (missing and not is_any):
            return None
        if is_weighted and not self._has_weight(edges_of(between.steps)):
            return None
        if name != "_" and end is None:
            types = between.left_types if turned else between.right_types
            scope[name] = walkable[name] = Seen(name=name, type=NodeOf(types=types))
        words = "|".join(each.name[0].lower() + each.name[1:] for each in chosen)
        word = "_" if is_any else words
        word = write_edges(word, direction)
        variable, way = "", ""
        if not hops and self._chance(0.4):
            made = self._name("e")
            variable = f"${made}: "
            scope[made] = Seen(name=made, type=EdgeOf(types=edges_of(between.steps)))
        elif is_weighted or self._chance(0.5):
            way = self._way(scope, is_weighted=is_weighted)
        ends = (name, start.name) if turned else (start.name, name)
        return f"${ends[0]} {variable}{word}{hops} ${ends[1]}{way}"

    def _alternatives(
        self, edges: list[EdgeType], candidates: list[EdgeType]
    ) -> list[EdgeType] | None:
        """Some edges; None is any edge."""
        if any(map(_is_polymorphic, edges)) and self._chance(0.5):
            return [self.generator.choice(edges)]
        if self._chance(0.4):
            return None
        count = min(len(candidates), self.generator.choice([2, 2, 3]))
        return self.generator.sample(candidates, k=count)

    def _way(self, scope: dict[str, Seen], *, is_weighted: bool) -> str:
        """The name of a path."""
        made = self._name("w")
        scope[made] = Seen(name=made, type=None, weighted=is_weighted)
        return f" as ${made}" + (f" by {_WEIGHT}" if is_weighted else "")

    def _has_weight(self, edges: Sequence[str]) -> bool:
        """Whether a path over some edges can be weighted."""
        declared = [self.catalog.edges[edge].properties.get(_WEIGHT) for edge in edges]
        return None not in declared and len({each.type for each in declared if each}) == 1

    def _step(
        self, start: Seen, edge: EdgeType, scope: dict[str, Seen], walkable: dict[str, Seen]
    ) -> str:
        assert isinstance(start.type, NodeOf)
        source, target = edge.source.only, edge.target.only
        forward = source in start.type.types
        if source == target:
            forward = self._chance(0.6)
        near, far = (source, target) if forward else (target, source)
        end = self._end(far, walkable)
        for name, kind in ((start.name, near), (end, far)):
            if name != "_" and name not in walkable:
                scope[name] = walkable[name] = Seen(name=name, type=NodeOf(types=(kind,)))
        word = edge.name[0].lower() + edge.name[1:]
        direction = EdgeDirection.FORWARD if self._chance(0.2) else None
        if source == target and self._chance(0.5):
            direction = self.generator.choice([*EdgeDirection])
        turned = source != target and self._chance(0.3)
        if turned:
            direction = self.generator.choice([EdgeDirection.BACKWARD, None])
        word = write_edges(word, direction)
        variable, way = "", ""
        choice = self.generator.random()
        if choice < 0.3:
            made = self._name("e")
            variable = f"${made}: "
            scope[made] = Seen(name=made, type=EdgeOf(types=(edge.name,)))
        elif choice < 0.65:
            bounds = self.generator.choice(_HOPS)
            is_weighted = _WEIGHT in edge.properties and self._chance(0.6)
            if is_weighted:
                bounds = self.generator.choice(["{1,}", "{0,}"] if source == target else ["{1,}"])
            word += bounds
            if is_weighted or self._chance(0.5):
                way = self._way(scope, is_weighted=is_weighted)
        left, right = (start.name, end) if forward is not turned else (end, start.name)
        return f"${left} {variable}{word} ${right}{way}"

    def _end(self, wanted: str, walkable: Mapping[str, Seen]) -> str:
        others = [
            each.name
            for each in walkable.values()
            if isinstance(each.type, NodeOf) and wanted in each.type.types
        ]
        choice = self.generator.random()
        if others and choice < 0.25:
            return self.generator.choice(others)
        return "_" if choice > 0.92 else self._name("n")

    def _conditions(self, scope: Mapping[str, Seen], *, depth: int) -> list[str]:
        count = self.generator.choice([0, 0, 0, 1, 1, 2])
        seen = list(scope.values())
        return [self._condition(scope, depth=depth) for _ in range(count)] if seen else []

    def _condition(self, scope: Mapping[str, Seen], *, depth: int) -> str:
        condition = self.expressions.condition(list(scope.values()))
        if depth > 1 or not self._chance(0.2):
            return condition
        exists = f"exists {self._sub_pattern(scope, depth=depth)}"
        return self.generator.choice(
            [
                exists,
                f"not {exists}",
                f"({exists} or {condition})",
                f"not ({exists} and {condition})",
                f"{self._count(scope, depth=depth)} {self.generator.choice(['>', '=', '<'])} 1",
            ]
        )

    def _count(self, scope: Mapping[str, Seen], *, depth: int) -> str:
        return f"count {self._sub_pattern(scope, depth=depth)}"

    def _sub_pattern(self, scope: Mapping[str, Seen], *, depth: int) -> str:
        """A block on one line; what it binds stays inside."""
        clauses = self._pattern(dict(scope), depth=depth + 1)
        return f"{{ {'  '.join(clauses)} }}".replace("\n", " ")

    # Results

    def _result(self, scope: list[Seen]) -> list[str]:
        """`return` and what follows it, a line each, so that a failing query can lose lines."""
        style = self.generator.choice(["rows", "rows", "groups", "groups", "distinct", "ranking"])
        if style == "ranking" and (ranked := self._ranked(scope)) is not None:
            return ranked
        if style == "groups":
            return self._groups(scope)
        if style == "distinct":
            columns = [self._plain_column(scope) for _ in range(self.generator.randrange(1, 4))]
            listed = [f"{text} as c{at}" for at, text in enumerate(columns)]
            sortable = [f"c{at}" for at, text in enumerate(columns) if self._has_order(text)]
            order = self._column_order(sortable)
            return _returned("distinct ", listed, order, *self._cut())
        columns = [self._column(scope) for _ in range(self.generator.randrange(1, 5))]
        listed = [
            f"{text} as c{at}" if self._chance(0.8) and not text.endswith(".*") else text
            for at, text in enumerate(columns)
        ]
        return _returned("", listed, self._order(scope), *self._cut())

    def _column(self, scope: list[Seen]) -> str:
        choice = self.generator.random()
        if choice < 0.15:
            entities = [f"${each.name}" for each in scope if not each.is_path]
            return self.generator.choice(entities) + ("" if self._chance(0.7) else ".*")
        if choice < 0.2 and (found := self.expressions.nearest(scope)) is not None:
            return found
        if choice < 0.25 and (found := self.expressions.bm25(scope)) is not None:
            return found
        return self._plain_column(scope)

    def _plain_column(self, scope: list[Seen]) -> str:
        choice = self.generator.random()
        ways = [each for each in scope if each.is_path]
        if ways and choice < 0.4:
            way = self.generator.choice(ways)
            parts = [each for each in PathPart if way.weighted or each is not PathPart.WEIGHT]
            return f"{self.generator.choice(parts)}(${way.name})"
        if choice < 0.6:
            return self.generator.choice(self.expressions.fields(scope)).text
        if choice < 0.65 and (listed := self.expressions.part_of_list(scope)) is not None:
            return listed
        if choice < 0.85:
            return self._computed_column(scope)
        if choice < 0.9:
            entities = [f"${each.name}" for each in scope if not each.is_path]
            return self.generator.choice(entities)
        return self._computed_value(scope)

    def _computed_value(self, scope: list[Seen]) -> str:
        scalar = self.generator.choice([each for each in Scalar if each is not Scalar.BLOB])
        text = self.expressions.value(scalar, scope)
        if scalar is Scalar.JSON:
            self.unordered.add(text)
        return text

    def _computed_column(self, scope: list[Seen]) -> str:
        made = self.expressions.decimal_operation(scope) if self._chance(0.25) else None
        if made is not None:
            return made
        choice = self.generator.random()
        if choice < 0.2:
            seen = {each.name: each for each in scope}
            word = self.generator.choice(["exists", "count"])
            return f"{word} {self._sub_pattern(seen, depth=1)}"
        if choice < 0.5:
            return f"({self.expressions.condition(scope, depth=1)})"
        if choice < 0.6:
            return self.expressions.texts_in_a_list(scope)
        return self.expressions.arithmetic(scope, depth=1)

    def _has_order(self, text: str) -> bool:
        """Whether a column can be ordered by: no whole entity, no list."""
        lists = [*(part for part in PathPart if part is not PathPart.LENGTH), "split", "slice"]
        if text.startswith(tuple(f"{function}(" for function in lists)):
            return False
        if text in self.unordered:
            return False
        return not text.startswith("$") or any(
            each.text == text and is_orderable(each.type)
            for each in self.expressions.fields(list(self.known.values()))
        )

    def _groups(self, scope: list[Seen]) -> list[str]:
        keys = [self._plain_column(scope) for _ in range(self.generator.choice([0, 1, 1, 2]))]
        columns: list[str] = []
        sortable: list[str] = []
        testable: list[str] = []
        for text in keys:
            columns.append(f"{text} as c{len(columns)}")
            if self._has_order(text):
                sortable.append(f"c{len(columns) - 1}")
        for _ in range(self.generator.randrange(1, 4)):
            text, ordered = self._aggregate(scope)
            columns.append(f"{text} as c{len(columns)}")
            if ordered:
                sortable.append(f"c{len(columns) - 1}")
            if text.startswith(("count", "sum")) and ordered:
                testable.append(self.generator.choice([f"c{len(columns) - 1}", text]))
                if self._chance(0.4):
                    computed = self._computed_from(text)
                    columns.append(f"{computed} as c{len(columns)}")
                    testable.append(self.generator.choice([f"c{len(columns) - 1}", computed]))
                    sortable.append(f"c{len(columns) - 1}")
        self.generator.shuffle(columns)
        distinct = "distinct " if self._chance(0.05) else ""
        having = self._having(testable, sortable) if self._chance(0.4) else ""
        order = self._column_order(sortable)
        return _returned(distinct, columns, having, order, *self._cut())

    def _computed_from(self, number: str) -> str:
        """A number that is computed from aggregates."""
        return self.generator.choice(
            [
                f"{number} - count(*)",
                f"count(*) * 2 - {number}",
                f"coalesce({number}, count(*), 0)",
                f"case when count(*) > 1 then {number} else -1 end",
                f"if({number} is null, -{number}, count(*) + 0)",
            ]
        )

    def _having(self, numbers: list[str], columns: list[str]) -> str:
        """A condition on groups, on columns that rounding leaves alone."""
        one = self.generator.choice
        parts = [f"{each} {one(['>', '<=', '='])} {one([0, 1, 2])}" for each in numbers]
        parts += [f"{each} % 2 = 1" for each in numbers[:1]]
        parts += [f"{each} is {one(['', 'not '])}null" for each in columns]
        parts += [f"count(*) {one(['>', '<='])} {one([1, 2])}"] if numbers else []
        if not parts:
            return ""
        first, second = one(parts), one(parts)
        return "having " + one([first, f"not ({first})", f"{first} or {second}"])

    def _aggregate(  # noqa: PLR0911 - one per function
        self, scope: list[Seen]
    ) -> tuple[str, bool]:
        """An aggregate, and whether rounding leaves its order alone."""
        one = self.generator.choice
        distinct = one(["", "", "distinct "])
        numbers = self.expressions.scalars(scope, NUMBERS)
        functions = ["count", "count", "sum", "avg", "min", "max", "collect"]
        function = one([*functions, "stddev", "percentile", "first", "last"])
        if function == "percentile" and numbers:
            return (
                f"percentile({one(numbers).text}, {one(['0', '0.5', '0.9', '1', '0.25'])})",
                False,
            )
        if function in ("first", "last"):
            return self._ordered(function, scope), True
        decimals = [
            each.text
            for each in self.expressions.fields(scope)
            if isinstance(each.type, DecimalType) and each.type.precision <= SUMMED_DIGITS_MAX
        ]
        if function in ("sum", "avg") and decimals and self._chance(0.5):
            return f"{function}({one(decimals)})", function == "sum"
        if function in ("sum", "avg", "stddev") and numbers:
            chosen = one(numbers)
            text = chosen.text
            if self._chance(0.2):
                text = f"{text} * {self.expressions.literal(Scalar.I32)}"
            return f"{function}({text})", function == "sum" and not is_float_field(chosen)
        if function in ("min", "max", "collect"):
            kinds = [
                each
                for each in self.expressions.fields(scope)
                if is_orderable(each.type)
                and not isinstance(each.type, ListType | VectorType)
                and not (function == "collect" and isinstance(each.type, DecimalType))
            ]
            word = "" if function != "collect" else distinct
            text = self._computed_value(scope) if self._chance(0.2) else one(kinds).text
            return f"{function}({word}{text})", function != "collect"
        if self._chance(0.3):
            return "count(*)", True
        entities = [f"${each.name}" for each in scope if not each.is_path]
        return f"count({distinct}{one([*entities, self._plain_column(scope)])})", True

    def _ordered(self, function: str, scope: list[Seen]) -> str:
        """`first` or `last` of a value, often by a key that many rows share."""
        values = [each for each in self.expressions.fields(scope) if is_orderable(each.type)]
        value, key = self.generator.choice(values).text, self.generator.choice(values).text
        value = self._computed_value(scope) if self._chance(0.2) else value
        key = self._computed_value(scope) if self._chance(0.2) else key
        return f"{function}({value} by {self.generator.choice([key, key, '1', f'{key} = {key}'])})"

    def _ranked(self, scope: list[Seen]) -> list[str] | None:
        made = [self.expressions.nearest(scope), self.expressions.bm25(scope)]
        made += [self.expressions.fusion(scope)] * 2
        rankings = [each for each in made if each is not None]
        if not rankings:
            return None
        ranking = self.generator.choice(rankings)
        columns = [
            f"{self._column(scope).removesuffix('.*')} as c{at}"
            for at in range(self.generator.randrange(1, 4))
        ]
        first = ranking
        if self._chance(0.5):
            columns.append(f"{ranking} as score")
            first = "score"
        keys = [first]
        keys += [self._key(scope) for _ in range(self.generator.choice([0, 0, 1]))]
        limit = f"limit {self.generator.choice([0, 1, 3, 10])}"
        if ranking.startswith("bm25") and self._chance(0.4):
            limit = ""
        offset = "offset 1" if self._chance(0.2) else ""
        distinct = "distinct " if first == "score" and self._chance(0.1) else ""
        if distinct:
            keys = keys[:1]
        return _returned(distinct, columns, f"order {{ {', '.join(keys)} }}", limit, offset)

    def _key(self, scope: list[Seen]) -> str:
        fields = [each for each in self.expressions.fields(scope) if is_orderable(each.type)]
        text = self.generator.choice(fields).text
        if self._chance(0.15):
            text = self.expressions.arithmetic(scope, depth=1)
        elif self._chance(0.15):
            text = self._computed_value(scope)
        return text + self.generator.choice(["", " asc", " desc"])

    def _order(self, scope: list[Seen]) -> str:
        count = self.generator.choice([0, 0, 1, 1, 2])
        keys = [self._key(scope) for _ in range(count)]
        return f"order {{ {', '.join(keys)} }}" if keys else ""

    def _column_order(self, columns: list[str]) -> str:
        chosen = self.generator.sample(columns, k=min(len(columns), self.generator.randrange(3)))
        keys = [f"{each}{self.generator.choice(['', ' desc'])}" for each in chosen]
        return f"order {{ {', '.join(keys)} }}" if keys else ""

    def _cut(self) -> tuple[str, str]:
        """`limit` and `offset`, either of them empty."""
        if not self._chance(0.35):
            return "", ""
        limit = str(self.generator.choice([0, 1, 2, 3, 5, 100]))
        if self._chance(0.3):
            self.expressions.declared["wanted"] = "I32"
            self.expressions.given["wanted"] = int(limit)
            limit = "$wanted"
        offset = f"offset {self.generator.choice([0, 1, 2, 7])}" if self._chance(0.4) else ""
        return (f"limit {limit}" if self._chance(0.85) or not offset else ""), offset


def _returned(distinct: str, columns: list[str], *tail: str) -> list[str]:
    lines = [f"return {distinct}{{", *(f"{each}," for each in columns), "}"]
    return [*lines, *(each for each in tail if each)]


def _is_polymorphic(edge: EdgeType) -> bool:
    return edge.source.is_polymorphic or edge.target.is_polymorphic


def _implementers(catalog: Catalog, interface: str) -> NodeOf:
    types = sorted(each.name for each in catalog.nodes.values() if interface in each.implements)
    return NodeOf(types=tuple(types), interface=interface)


def _types_of(catalog: Catalog, names: Iterable[str]) -> tuple[str, ...]:
    """The node types that names of types and of interfaces are."""
    types: set[str] = set()
    for name in names:
        types |= {name} if name in catalog.nodes else set(_implementers(catalog, name).types)
    return tuple(sorted(types))
