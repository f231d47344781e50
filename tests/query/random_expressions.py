"""Random expressions of a wanted type over the variables in scope, as text.

Values come from the pools of random graphs, as literals or as parameters, so that many conditions
are true of some rows and not of others.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from omnigraph_lake.query.columns import struct_properties
from omnigraph_lake.query.decimals import exact_type
from omnigraph_lake.query.expressions import PropertyOf
from omnigraph_lake.query.functions import (
    DATE_UNITS,
    DECLARATIONS,
    TIME_UNITS,
    Accepts,
    ScalarFunction,
    Signature,
)
from omnigraph_lake.query.types import EdgeOf, ExpressionType, NodeOf, is_number, scalar_of
from omnigraph_lake.schema.catalog import (
    DECIMAL_DIGITS_MAX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    WITHOUT_ORDER,
    Catalog,
    DecimalType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    exact_decimal,
    join_decimals,
)
from tests.query.random_graphs import from_pool, random_decimal

WORDS: Final = (
    "a",
    "b",
    "ab",
    "straße",
    "école",
    "a b",
    "b a",
    "日本",
    "abc",
    "",
    "x",
    "7",
    "d İZ",
)
LIKE_PATTERNS: Final = (
    "a%",
    "%a",
    "%a%",
    "_",
    "__%",
    "",
    "%",
    "\\%\\_",
    "%\t%",
    "É%",
    "a_c",
    "%b%c%",
)
REGEXES: Final = (
    "a",
    "^a",
    "a$",
    "^$",
    "[a-c]+ ",
    "^.$",
    "a.*c",
    "(a|é)b?",
    "\\d",
    "^\\W",
    "b{1,2}",
)
SEPARATORS: Final = ("a", " ", "ab", "é", ".", "|", "\t", "日", "\\")
CAST_SOURCES: Final[Mapping[Scalar, tuple[Scalar, ...]]] = {
    Scalar.STRING: tuple(each for each in Scalar if each is not Scalar.BLOB),
    **{each: (*sorted(NUMBERS), Scalar.JSON) for each in NUMBERS},
    Scalar.BOOL: (Scalar.JSON,),
    Scalar.DATE: (Scalar.DATETIME, Scalar.JSON),
    Scalar.DATETIME: (Scalar.DATE, Scalar.JSON),
}
JSON_PATHS: Final = (
    *("a", "b", "a.b", "b[0]", "b[1]", "b[2]", "b.c", "[0]", "[1]", "[0][0]", "[0][1]"),
    '[0][1]["a.b"]',
)
CAST_TEXTS: Final = (
    *("1", "-7", "007", "2.5", "1e3", "-0", "18446744073709551615", "3000000000", " 1", "", "abc"),
    *("true", "false", "NaN", "-Infinity", "2024-02-29", "2023-02-29", "0001-01-01"),
    *("2024-05-31T12:00:00Z", "2024-05-31 12:00:00.000001+00:00", "0.1", "1e39"),
)
COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
_NUMBERS: Final = sorted(NUMBERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A variable that can be read: a node or an edge of some type, or a path."""

    name: str
    type: NodeOf | EdgeOf | None
    weighted: bool = False

    @property
    def is_path(self) -> bool:
        return self.type is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A property of a variable, as text, with its type."""

    text: str
    type: PropertyType


@dataclass(slots=True, kw_only=True)
class Expressions:
    """Makes texts of expressions, and remembers the parameters it used."""

    generator: random.Random
    catalog: Catalog
    declared: dict[str, str] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)

    # What is in scope

    def fields(self, scope: Sequence[Seen]) -> list[Field]:
        """Every property that can be read, ids and ends included."""
        found: list[Field] = []
        for each in scope:
            if each.type is None:
                continue
            system = ("id", "src", "dst") if isinstance(each.type, EdgeOf) else ("id",)
            text = ScalarType(scalar=Scalar.STRING)
            found += [Field(text=f"${each.name}.{name}", type=text) for name in system]
            found += [
                Field(text=f"${each.name}.{one.name}", type=one.type)
                for one in struct_properties(each.type, self.catalog)
            ]
        return found

    def scalars(self, scope: Sequence[Seen], wanted: frozenset[Scalar]) -> list[Field]:
        return [
            each
            for each in self.fields(scope)
            if isinstance(each.type, ScalarType) and each.type.scalar in wanted
        ]

    # Values

    def parameter(self, kind: str, value: Any) -> str:
        name = f"given{len(self.declared)}"
        if self.generator.random() < 0.15:
            kind += "?"
            value = None if self.generator.random() < 0.5 else value
        self.declared[name] = kind
        self.given[name] = value
        return f"${name}"

    def literal(self, scalar: Scalar) -> str:
        """A value of a pool, as a literal or as a parameter."""
        value = from_pool(self.generator, scalar)
        while isinstance(value, float) and not math.isfinite(value):
            value = from_pool(self.generator, scalar)
        if self.generator.random() < 0.3:
            return self.parameter(scalar.value, value)
        if scalar is Scalar.JSON:
            return f"json({spelt(json.dumps(value, default=float))})"
        return spelt(value)

    def enum_value(self, kind: EnumType) -> str:
        value = self.generator.choice(kind.values)
        return self.parameter("String", value) if self.generator.random() < 0.2 else spelt(value)

    def value(self, scalar: Scalar, scope: Sequence[Seen], *, depth: int = 0) -> str:
        """Anything of this type; of numbers, any number."""
        wanted = NUMBERS if scalar in NUMBERS else frozenset({scalar})
        choice = self.generator.random()
        fields = self.scalars(scope, wanted)
        if choice < 0.35 and (computed := self._computed(scalar, scope, depth=depth + 1)):
            return computed
        if fields and choice < 0.65:
            return self.generator.choice(fields).text
        if scalar is Scalar.STRING and choice < 0.75:
            return self._type_name(scope)
        if scalar is Scalar.DATETIME and choice < 0.75:
            return "now()"
        if scalar in INTEGERS and choice < 0.75 and (way := self._path(scope)):
            return f"length(${way})"
        return self.literal(scalar)

    def _computed(  # noqa: C901, PLR0911 - one per kind
        self, scalar: Scalar, scope: Sequence[Seen], *, depth: int
    ) -> str | None:
        """An operation or a function that gives this type, if there is one."""
        if depth < 4 and self.generator.random() < 0.25 and (called := self.call(scalar, scope)):
            return called
        if depth < 4 and self.generator.random() < 0.15:
            return self._choice(scalar, scope, depth=depth)
        if scalar is Scalar.JSON:
            return self._json_call(scope, depth=depth) if depth < 4 else None
        if depth < 4 and self.generator.random() < 0.15:
            return self._cast(scalar, scope, depth=depth)
        if scalar in NUMBERS and depth < 3 and self.generator.random() < 0.7:
            return self.arithmetic(scope, depth=depth)
        if scalar is Scalar.STRING and depth < 4 and self.generator.random() < 0.6:
            return self.text_call(scope, depth=depth)
        if scalar in NUMBERS and depth < 4 and self.generator.random() < 0.4:
            return self._number_call(scope, depth=depth)
        if scalar in (Scalar.DATE, Scalar.DATETIME) and depth < 4:
            return self._time_call(scalar, scope, depth=depth)
        if scalar in INTEGERS and depth < 4 and self.generator.random() < 0.6:
            return self._number_of(scope, depth=depth)
        if scalar in INTEGERS and depth < 4:
            return f"length({self.value(Scalar.STRING, scope, depth=depth)})"
        return None

    def call(self, scalar: Scalar, scope: Sequence[Seen]) -> str | None:
        """Any function that gives this type; of numbers, any number."""
        fitting = [
            (function, signature)
            for function, declaration in DECLARATIONS.items()
            for signature in declaration.signatures
            if _gives(signature, scalar)
        ]
        return self.call_of(*self.generator.choice(fitting), scope) if fitting else None

    def call_of(self, function: ScalarFunction, signature: Signature, scope: Sequence[Seen]) -> str:
        count = self.generator.randrange(signature.fewest, min(signature.most, 3) + 1)
        arguments = [
            self._argument(signature.parameter(position), scope) for position in range(count)
        ]
        return f"{function.value}({', '.join(arguments)})"

    def _argument(  # noqa: C901, PLR0911, PLR0912 - one per kind
        self, accepts: Accepts, scope: Sequence[Seen]
    ) -> str:
        match accepts:
            case Accepts.TEXT:
                return self.value(Scalar.STRING, scope, depth=2)
            case Accepts.INTEGER:
                return self._field_or_literal(INTEGERS, scope)
            case Accepts.FLOAT:
                return self._field_or_literal(FLOATS, scope)
            case Accepts.DECIMAL:
                raise AssertionError("decimals are drawn by themselves")
            case Accepts.NUMBER:
                return self.value(self.generator.choice(_NUMBERS), scope, depth=2)
            case Accepts.INDEX:
                return self._index(scope)
            case Accepts.SEPARATOR:
                return self._known_text(SEPARATORS)
            case Accepts.LIKE_PATTERN:
                return self._known_text(LIKE_PATTERNS)
            case Accepts.REGEX:
                return self._known_text(REGEXES)
            case Accepts.DATE_UNIT | Accepts.TIME_UNIT:
                units = DATE_UNITS if accepts is Accepts.DATE_UNIT else TIME_UNITS
                return self._known_text(units)
            case Accepts.DATE:
                return self.value(Scalar.DATE, scope, depth=2)
            case Accepts.DATETIME:
                return self.value(Scalar.DATETIME, scope, depth=2)
            case Accepts.TIME:
                kind = self.generator.choice([Scalar.DATE, Scalar.DATETIME])
                return self.value(kind, scope, depth=2)
            case Accepts.LIST:
                return self.part_of_list(scope) or self._flags(scope)
            case Accepts.BOOLS:
                return self._flags(scope)
            case Accepts.JSON:
                return self.value(Scalar.JSON, scope, depth=2)
            case Accepts.JSON_PATH:
                return self._known_text(JSON_PATHS)
            case Accepts.JSON_TEXT:
                value = from_pool(self.generator, Scalar.JSON)
                return spelt(json.dumps(value, default=float))

    def _field_or_literal(self, scalars: frozenset[Scalar], scope: Sequence[Seen]) -> str:
        fields = self.scalars(scope, scalars)
        if fields and self.generator.random() < 0.6:
            return self.generator.choice(fields).text
        return self.literal(self.generator.choice(sorted(scalars)))

    def _index(self, scope: Sequence[Seen]) -> str:
        small = self.scalars(scope, INTEGERS)
        if small and self.generator.random() < 0.5:
            return self.generator.choice(small).text
        return str(self.generator.choice([0, 0, 1, 2, 5, 2**63 - 1]))

    def texts_in_a_list(self, scope: Sequence[Seen]) -> str:
        """A list of texts: stored, split, or one of several."""
        lists = [
            each.text for each in self.fields(scope) if each.type == ListType(item=Scalar.STRING)
        ]
        text = self.value(Scalar.STRING, scope, depth=2)
        made = f"split({text}, {self._known_text(SEPARATORS)})"
        if not lists:
            return made
        stored = self.generator.choice(lists)
        return self.generator.choice(
            [
                *(stored, made, f"coalesce({stored}, {made})"),
                f"if({self.condition(scope, depth=2)}, {stored}, {made})",
                f"case when {self.condition(scope, depth=2)} then {made} else {stored} end",
            ]
        )

    def _json_call(self, scope: Sequence[Seen], *, depth: int) -> str:
        value = self.value(Scalar.JSON, scope, depth=depth + 1)
        return f"json({value}, {self._known_text(JSON_PATHS)})"

    def _number_call(self, scope: Sequence[Seen], *, depth: int) -> str:
        one = self.generator.choice
        number = self.value(one(_NUMBERS), scope, depth=depth + 1)
        match one(["one", "one", "round", "div"]):
            case "one":
                return f"{one(['abs', 'round', 'floor', 'ceil', 'sqrt'])}({number})"
            case "round":
                return f"round({number}, {one([0, 1, 2, -1, -3, 17])})"
            case _:
                whole = self.value(
                    one([Scalar.I32, Scalar.I64, Scalar.U32]), scope, depth=depth + 1
                )
                return f"div({whole}, {one([2, 3, 10, '(-1)', whole])})"

    def _time_call(self, scalar: Scalar, scope: Sequence[Seen], *, depth: int) -> str:
        """A function that gives a time, most likely one that does not fail."""
        time = self.value(scalar, scope, depth=depth + 1)
        unit = self._known_text(DATE_UNITS if scalar is Scalar.DATE else TIME_UNITS)
        one = self.generator.choice
        step = one(["1", "1", "0", "11", "25", "-1", "if(year({}) < 5000, {}, -{})", "steps"])
        if step == "steps" and (small := self.scalars(scope, INTEGERS)):
            step = one(small).text
        elif not step.lstrip("-").isdigit() or one([True, False, False]):
            count = one([1, 2, 3, 12, 13, 31])
            step = f"if(year({time}) < 5000, {count}, -{count})"
        match one(["truncate", "truncate", "add", "add", "plus"]):
            case "truncate":
                return f"truncate({time}, {unit})"
            case "plus" if scalar is Scalar.DATETIME:
                span = spelt(one(["P1D", "PT0.000001S", "P1WT23H59M59S", "-PT36H"]))
                return f"({time} {one('+-')} duration({span}) * {step})"
            case _:
                return f"add({time}, {step}, {unit})"

    def _flags(self, scope: Sequence[Seen]) -> str:
        kind = ListType(item=Scalar.BOOL)
        lists = [each.text for each in self.fields(scope) if each.type == kind]
        flags = [self.generator.choice([True, False, None]) for _ in range(3)]
        text = self.generator.choice([*lists, self.parameter("[Bool]", flags)])
        if self.generator.random() < 0.5:
            text = f"slice({text}, {self.generator.randrange(3)})"
        return text

    def _number_of(self, scope: Sequence[Seen], *, depth: int) -> str:
        """A number that a function makes from times or from a list."""
        one = self.generator.choice
        listed = self.part_of_list(scope)
        if listed is not None and self.generator.random() < 0.4:
            return f"length({listed})"
        scalar = one([Scalar.DATE, Scalar.DATETIME])
        time = self.value(scalar, scope, depth=depth + 1)
        if self.generator.random() < 0.4:
            other = self.value(one([Scalar.DATE, Scalar.DATETIME]), scope, depth=depth + 1)
            return one([f"between_days({time}, {other})", f"({other} - {time})"])
        parts = ["year", "month", "day", "weekday", "week"]
        parts += ["hour", "minute", "second"] if scalar is Scalar.DATETIME else []
        return f"{one(parts)}({time})"

    def part_of_list(self, scope: Sequence[Seen]) -> str | None:
        """Some items of a list that can be read, if there is one."""
        lists = [each.text for each in self.fields(scope) if isinstance(each.type, ListType)]
        if not lists:
            return None
        text = self.generator.choice(lists)
        small = [each.text for each in self.scalars(scope, INTEGERS)]
        bounds = [self.generator.choice([0, 1, 2, *small]) for _ in range(2)]
        match self.generator.randrange(3):
            case 0:
                return text
            case 1:
                return f"slice({text}, {bounds[0]})"
            case _:
                return f"slice({text}, {bounds[0]}, {bounds[1]})"

    def _choice(self, scalar: Scalar, scope: Sequence[Seen], *, depth: int) -> str:
        """One of several values, of which not all are computed."""

        def value() -> str:
            return self.value(scalar, scope, depth=depth + 1)

        match self.generator.choice(["coalesce", "if", "case", "cases"]):
            case "coalesce":
                return f"coalesce({value()}, {value()})"
            case "if":
                return f"if({self.condition(scope, depth=2)}, {value()}, {value()})"
            case "case":
                return f"case when {self.condition(scope, depth=2)} then {value()} end"
            case _:
                whens = [
                    f"when {self.condition(scope, depth=2)} then {value()}"
                    for _ in range(self.generator.randrange(1, 4))
                ]
                return f"case {' '.join(whens)} else {value()} end"

    def _cast(self, scalar: Scalar, scope: Sequence[Seen], *, depth: int) -> str:
        """A conversion, most likely one that does not fail."""
        sources = CAST_SOURCES.get(scalar, (Scalar.STRING,))
        source = self.generator.choice([*sources, scalar, Scalar.STRING])
        if source is Scalar.STRING and self.generator.random() < 0.7:
            operand = self._known_text(CAST_TEXTS)
        else:
            operand = self.value(source, scope, depth=depth + 1)
        total = source not in (Scalar.STRING, Scalar.JSON)
        is_safe = scalar in (Scalar.STRING, Scalar.F64, Scalar.DATETIME) and total
        word = "cast" if is_safe or self.generator.random() < 0.1 else "try_cast"
        return f"{word}({operand} as {scalar.value})"

    def text_call(self, scope: Sequence[Seen], *, depth: int) -> str:
        """A function of text that gives text."""

        def text() -> str:
            return self.value(Scalar.STRING, scope, depth=depth + 1)

        match self.generator.choice(["one", "one", "concat", "part", "part", "replace"]):
            case "one":
                return f"{self.generator.choice(['lower', 'upper', 'trim'])}({text()})"
            case "concat":
                space = self.generator.choice(["", '" ", '])
                return f"concat({space}{text()}, {text()})"
            case "part":
                count = self.generator.choice(["", f", {self._index(scope)}"])
                return f"substring({text()}, {self._index(scope)}{count})"
            case _:
                return f"replace({text()}, {text()}, {text()})"

    def _pattern_test(self, scope: Sequence[Seen]) -> str:
        text = self.value(Scalar.STRING, scope, depth=1)
        choice = self.generator.random()
        if choice < 0.4:
            return f"like({text}, {self._known_text(LIKE_PATTERNS)})"
        if choice < 0.8:
            return f"matches({text}, {self._known_text(REGEXES)})"
        return f"{self.texts_in_a_list(scope)} contains {self.text_query()}"

    def _known_text(self, pool: Sequence[str]) -> str:
        text = self.generator.choice(pool)
        return self.parameter("String", text) if self.generator.random() < 0.3 else spelt(text)

    def _type_name(self, scope: Sequence[Seen]) -> str:
        entities = [each.name for each in scope if not each.is_path]
        return f"type(${self.generator.choice(entities)})" if entities else '"Ant"'

    def _path(self, scope: Sequence[Seen]) -> str | None:
        ways = [each.name for each in scope if each.is_path]
        return self.generator.choice(ways) if ways else None

    def arithmetic(self, scope: Sequence[Seen], *, depth: int) -> str:
        one = self.generator.choice
        whole = one([Scalar.I32, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64])
        scalar = one([whole, whole, Scalar.F64, Scalar.F32])
        left = self.value(scalar, scope, depth=depth + 1)
        if one([True, False, False, False, False]):
            return f"(-({left}))"
        if one([True, False, False, False]):
            small = self.scalars(scope, INTEGERS)
            left = one(small).text if small else self.literal(Scalar.I32)
            return f"({left} % {self.literal(one([Scalar.I32, Scalar.U64]))})"
        right = self.value(scalar, scope, depth=depth + 1)
        return f"({left} {one(['+', '-', '*', '/'])} {right})"

    # Conditions

    def condition(self, scope: Sequence[Seen], *, depth: int = 0) -> str:
        if not scope:
            return self._known_condition()
        choice = self.generator.random()
        if depth < 2 and choice < 0.3:
            left = self.condition(scope, depth=depth + 1)
            if choice < 0.1:
                return f"not ({left})"
            right = self.condition(scope, depth=depth + 1)
            return f"({left} {self.generator.choice(['and', 'or'])} {right})"
        kinds = [
            *(self._compared, self._compared, self._compared, self._null_test, self._member),
            *(self._string_test, self._text_search, self._truth, self._of_path),
            self._pattern_test,
        ]
        return self.generator.choice(kinds)(scope)

    def _known_condition(self) -> str:
        """Of values that read no row."""
        one = self.generator.choice
        scalar = one([Scalar.STRING, Scalar.STRING, Scalar.DATE, Scalar.DATETIME, *_NUMBERS])
        others = _NUMBERS if scalar in NUMBERS else [scalar]
        left, right = self.value(scalar, (), depth=2), self.value(one(others), (), depth=2)
        return f"({left}) {self._operator()} ({right})"

    def _compared(self, scope: Sequence[Seen]) -> str:
        fields = [
            each
            for each in self.fields(scope)
            if isinstance(each.type, ScalarType | EnumType | DecimalType)
        ]
        if not fields:
            return self._truth(scope)
        left = self.generator.choice(fields)
        if isinstance(left.type, EnumType):
            return f"{left.text} {self._operator('=', '!=')} {self.enum_value(left.type)}"
        if isinstance(left.type, DecimalType):
            return self._compared_decimal(left.text, left.type, scope)
        assert isinstance(left.type, ScalarType)
        scalar = left.type.scalar
        unordered = scalar in (Scalar.BOOL, Scalar.JSON)
        operator = self._operator("=", "!=") if unordered else self._operator()
        other = self.generator.choice(_NUMBERS) if scalar in NUMBERS else scalar
        text = left.text
        if scalar in NUMBERS and self.generator.random() < 0.15:
            text = self.arithmetic(scope, depth=1)
        # Of what reads no row, so that it is computed before the run.
        right = self.value(other, () if self.generator.random() < 0.3 else scope)
        return f"{text} {operator} {right}" if self._likely() else f"({right}) {operator} {text}"

    def _compared_decimal(self, text: str, kind: DecimalType, scope: Sequence[Seen]) -> str:
        """Beside another exact number, if a type holds both."""
        others = [
            each.text
            for each in self.fields(scope)
            if (held := exact_field(each)) is not None and join_decimals((kind, held)) is not None
        ]
        if self.generator.random() < 0.3 and (made := self.decimal_operation(scope)):
            return f"{made} {self.generator.choice(['is null', 'is not null'])}"
        right = self.decimal_literal(kind)
        if others and self.generator.random() < 0.4:
            right = self.generator.choice(others)
        operator = self._operator()
        return f"{text} {operator} {right}" if self._likely() else f"({right}) {operator} {text}"

    def decimal_operation(  # noqa: PLR0911 - one per kind
        self, scope: Sequence[Seen]
    ) -> str | None:
        """A computed decimal, or a number that is made from one."""
        one = self.generator.choice
        fields = [each for each in self.fields(scope) if isinstance(each.type, DecimalType)]
        if not fields:
            return None
        left = one(fields)
        assert isinstance(left.type, DecimalType)
        sign = one(["+", "-", "*"])
        rights = [*fields, *(each for each in self.fields(scope) if exact_field(each) is not None)]
        right = one(rights)
        other = exact_field(right)
        assert other is not None
        choice = self.generator.random()
        joins = join_decimals((left.type, other)) is not None
        if sign == "*":
            joins = left.type.scale + other.scale <= DECIMAL_DIGITS_MAX
        if choice < 0.3:
            made = f"({left.text} {sign} {right.text})" if joins else left.text
            return self._decimal_call(one([made, left.text]), left, right, scope)
        if choice < 0.4 and joins:
            return f"({left.text} {sign} {right.text})"
        if choice < 0.5 and left.type.integer_digits and left.type.scale < 30:
            return f"({left.text} {sign} {one(['1', '2.5', '(-3)', '0.01'])})"
        if choice < 0.6:
            return f"(-{left.text})"
        if choice < 0.7:
            return f"({left.text} / {one(['3', '0', left.text])})"
        kind = one(["F64", "String", "Decimal(38, 10)", "Decimal(12, 2)", "I64", "U32", "F32"])
        word = "cast" if kind in ("F64", "String") else "try_cast"
        if choice < 0.85:
            return f"{word}({left.text} as {kind})"
        source = one([self._known_text((*CAST_TEXTS, "1.50", "-0.005")), self.literal(Scalar.F64)])
        return f"try_cast({source} as {one(['Decimal(12, 2)', 'Decimal(38, 10)'])})"

    def _decimal_call(self, text: str, left: Field, right: Field, scope: Sequence[Seen]) -> str:
        """A function of a decimal; of two operands if a type holds both."""
        one = self.generator.choice
        kind, other = left.type, exact_field(right)
        assert isinstance(kind, DecimalType)
        assert other is not None
        divisors = [right.text] if join_decimals((kind, other)) is not None else [left.text]
        if kind.integer_digits and kind.scale < 30:
            divisors += ["3", "0.7", "(-2.5)"]
        match one(["one", "one", "round", "div", "remainder"]):
            case "one":
                return f"{one(['abs', 'round', 'floor', 'ceil'])}({text})"
            case "round":
                digits = [each.text for each in self.scalars(scope, frozenset({Scalar.I32}))]
                return f"round({text}, {one([0, 1, 2, 3, -1, -2, 17, *digits[:2]])})"
            case "div":
                return f"div({text}, {one(['3', '0.7', '(-0.01)', right.text])})"
            case _:
                return f"({left.text} % {one(divisors)})"

    def decimal_literal(self, kind: DecimalType) -> str:
        """A value of the type, or one between two of them, as a literal or as a parameter."""
        value = random_decimal(self.generator, kind)
        if self.generator.random() < 0.3:
            return self.parameter(f"Decimal({kind.precision}, {kind.scale})", value)
        text = f"{value:f}"
        if kind.precision < DECIMAL_DIGITS_MAX and self.generator.random() < 0.3:
            text = f"{text}5" if "." in text else f"{text}.5"
        if "." not in text and abs(int(text)) >= 2**63:
            text = f"{text}.0"
        return f"({text})" if text.startswith("-") else text

    def _operator(self, *allowed: str) -> str:
        return self.generator.choice(allowed or COMPARISONS)

    def _likely(self) -> bool:
        return self.generator.random() < 0.8

    def _null_test(self, scope: Sequence[Seen]) -> str:
        entities = [f"${each.name}" for each in scope if not each.is_path]
        texts = [each.text for each in self.fields(scope)] + entities + entities
        text = self.generator.choice(texts)
        return f"{text} is null" if self.generator.random() < 0.5 else f"{text} is not null"

    def _member(self, scope: Sequence[Seen]) -> str:
        lists = [each for each in self.fields(scope) if isinstance(each.type, ListType)]
        if lists and self.generator.random() < 0.6:
            held = self.generator.choice(lists)
            assert isinstance(held.type, ListType)
            item = self.value(held.type.item, scope, depth=1)
            text = held.text if self._likely() else f"slice({held.text}, 0, 1)"
            return f"{text} contains {item}" if self._likely() else f"({item}) in {text}"
        decimals = [each for each in self.fields(scope) if isinstance(each.type, DecimalType)]
        if decimals and self.generator.random() < 0.4:
            return self._decimal_member(self.generator.choice(decimals), lists)
        scalars = self.scalars(scope, frozenset(Scalar) - WITHOUT_ORDER)
        one = self.generator.choice(scalars)
        assert isinstance(one.type, ScalarType)
        if one.type.scalar is Scalar.STRING and self.generator.random() < 0.2:
            return f"{one.text} in {self.texts_in_a_list(())}"
        return f"{one.text} in {self._list(one.type.scalar)}"

    def _decimal_member(self, item: Field, lists: Sequence[Field]) -> str:
        """A decimal in a list of literals, of decimals that are given, or of stored integers."""
        kind = item.type
        assert isinstance(kind, DecimalType)
        whole = [
            each.text
            for each in lists
            if isinstance(each.type, ListType)
            and (held := exact_decimal(ScalarType(scalar=each.type.item))) is not None
            and join_decimals((kind, held)) is not None
        ]
        if whole and self.generator.random() < 0.3:
            return f"{item.text} in {self.generator.choice(whole)}"
        drawn = [random_decimal(self.generator, kind) for _ in range(self.generator.randrange(4))]
        if self.generator.random() < 0.4:
            given = [None if self.generator.random() < 0.3 else each for each in drawn]
            listed = self.parameter(f"[Decimal({kind.precision}, {kind.scale})]", given)
            return (
                f"{item.text} in {listed}" if self._likely() else f"{listed} contains {item.text}"
            )
        texts = [f"{each:f}" if "." in f"{each:f}" else f"{each:f}.0" for each in drawn]
        return f"{item.text} in [{', '.join([*texts, '0.05'])}]"

    def _list(self, scalar: Scalar) -> str:
        drawn = [from_pool(self.generator, scalar) for _ in range(self.generator.randrange(4))]
        values = [each for each in drawn if not isinstance(each, float) or math.isfinite(each)]
        if self.generator.random() < 0.3:
            with_null = [None if self.generator.random() < 0.3 else each for each in values]
            return self.parameter(f"[{scalar.value}]", with_null)
        texts = [spelt(each) for each in values]
        plain = [each[1:-1] if each.startswith("(") else each for each in texts]
        return f"[{', '.join(plain)}]"

    def _string_test(self, scope: Sequence[Seen]) -> str:
        fields = self.scalars(scope, frozenset({Scalar.STRING}))
        if not fields:
            return self._truth(scope)
        word = self.generator.choice(["contains", "starts_with", "ends_with"])
        part = self.value(Scalar.STRING, scope, depth=1)
        return f"{self.generator.choice(fields).text} {word} {part}"

    def text_query(self) -> str:
        word = self.generator.choice(WORDS)
        return self.parameter("String", word) if self.generator.random() < 0.3 else spelt(word)

    def _text_search(self, scope: Sequence[Seen]) -> str:
        found = self.texts(scope)
        if not found:
            return self._truth(scope)
        text = self.generator.choice(found)
        word = self.generator.choice(["search", "match_text", "fuzzy", "edits"])
        if word == "edits":
            return f"fuzzy({text}, {self.text_query()}, {self.generator.randrange(3)})"
        return f"{word}({text}, {self.text_query()})"

    def _truth(self, scope: Sequence[Seen]) -> str:
        fields = self.scalars(scope, frozenset({Scalar.BOOL}))
        if fields:
            return self.generator.choice(fields).text
        return self.generator.choice(["1 = 1", "1 = 2", self._null_test(scope)])

    def _of_path(self, scope: Sequence[Seen]) -> str:
        way = self._path(scope)
        if way is None:
            return self._compared(scope)
        number = self.generator.randrange(1, 4)
        return self.generator.choice(
            [
                f"length(${way}) = {number}",
                f"length(${way}) <= {number}",
                f'nodes(${way}) contains "a"',
                f"{self.value(Scalar.STRING, scope, depth=2)} in edges(${way})",
            ]
        )

    # Rankings

    def texts(self, scope: Sequence[Seen]) -> list[str]:
        """The String properties that can be searched; ids are among them."""
        return [
            each.text
            for each in self.scalars(scope, frozenset({Scalar.STRING}))
            if not each.text.endswith((".src", ".dst"))
        ]

    def nearest(self, scope: Sequence[Seen], variable: str | None = None) -> str | None:
        fields = [
            each
            for each in self.fields(scope)
            if isinstance(each.type, VectorType)
            and (variable is None or each.text.startswith(f"${variable}."))
        ]
        if not fields:
            return None
        chosen = self.generator.choice(fields)
        assert isinstance(chosen.type, VectorType)
        numbers = [self.generator.choice([0, 1, -1, 2]) for _ in range(chosen.type.size)]
        if self.generator.random() < 0.3:
            query = self.parameter(f"Vector({chosen.type.size})", [float(each) for each in numbers])
        else:
            query = f"[{', '.join(map(str, numbers))}]"
        return f"nearest({chosen.text}, {query})"

    def bm25(self, scope: Sequence[Seen], variable: str | None = None) -> str | None:
        found = [
            each
            for each in self.texts(scope)
            if variable is None or each.startswith(f"${variable}.")
        ]
        return f"bm25({self.generator.choice(found)}, {self.text_query()})" if found else None

    def fusion(self, scope: Sequence[Seen]) -> str | None:
        entities = [each for each in scope if not each.is_path]
        self.generator.shuffle(entities)
        for each in entities:
            arms = [self.nearest([each]), self.bm25([each])]
            self.generator.shuffle(arms)
            if None not in arms:
                k = self.generator.choice(["", ", 1", ", 10"])
                return f"rrf({arms[0]}, {arms[1]}{k})"
        return None


def _gives(signature: Signature, scalar: Scalar) -> bool:
    if scalar in NUMBERS:
        return signature.identity or _is_number(signature.result)
    return signature.result is not None and scalar_of(signature.result) is scalar


def _is_number(result: ExpressionType | None) -> bool:
    return result is not None and is_number(result)


def spelt(value: Any) -> str:
    """A value as a literal; negative ones in parentheses, because a minus sign continues."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            escapes: Mapping[str, str] = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\n": "\\n"}
            return '"' + "".join(escapes.get(each, each) for each in value) + '"'
        case dt.datetime():
            return f'datetime("{value.isoformat()}")'
        case dt.date():
            return f'date("{value.isoformat()}")'
        case float():
            text = f"{value:.9f}".rstrip("0")
            text = text + "0" if text.endswith(".") else text
            return f"({text})" if text.startswith("-") else text
        case _:
            return f"({value})" if value < 0 else str(value)


def exact_field(each: Field) -> DecimalType | None:
    """The decimals that hold a property, if it is an exact number."""
    return exact_type(PropertyOf(variable="x", name="y", type=each.type, nullable=True))


def is_float_field(each: Field) -> bool:
    return isinstance(each.type, ScalarType) and each.type.scalar in FLOATS
