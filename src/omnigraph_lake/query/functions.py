"""The scalar functions of the language: one declaration each, and what their arguments may be.

To add a function, add a member of `ScalarFunction` and its row in `DECLARATIONS`, and its value in
one place of every evaluator: for a native function `engine/expressions/function_sql.py` and
`engine/spark/function_columns.py`, for a kernel `engine/expressions/kernels.py`. The definition
that tests compare them with is `tests/query/function_values.py`.

Invariants:
- A value depends on the arguments alone: no locale, no time zone, no setting of a session.
- A null argument gives null. A function that gives null for other arguments too declares it.
- A native function is written in the SQL of each engine. A kernel is one function over Arrow
  arrays, which every engine calls.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from omnigraph_lake.query import types as qt
from omnigraph_lake.schema import catalog as ct

ARGUMENTS_MAX: Final = 100
NODE: Final = "node"
"""The function that names a node as an end of an edge; it has no value."""


class ScalarFunction(enum.StrEnum):
    """The scalar functions, by their name."""

    LOWER = "lower"
    UPPER = "upper"
    TRIM = "trim"
    LENGTH = "length"
    CONCAT = "concat"
    SUBSTRING = "substring"
    REPLACE = "replace"
    SPLIT = "split"
    LIKE = "like"
    MATCHES = "matches"
    ABS = "abs"
    ROUND = "round"
    FLOOR = "floor"
    CEIL = "ceil"
    SQRT = "sqrt"
    DIV = "div"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    MINUTE = "minute"
    SECOND = "second"
    WEEKDAY = "weekday"
    WEEK = "week"
    TRUNCATE = "truncate"
    ADD = "add"
    BETWEEN_DAYS = "between_days"
    BETWEEN_MICROSECONDS = "between_microseconds"
    SLICE = "slice"
    ANY = "any"
    ALL = "all"
    JSON = "json"
    JSON_TYPE = "json_type"


class Evaluation(enum.Enum):
    """How engines compute a function."""

    NATIVE = "native"
    KERNEL = "kernel"


class Accepts(enum.Enum):
    """What an argument may be; the value is its name in messages."""

    TEXT = "a String"
    INTEGER = "an integer"
    FLOAT = "a float"
    DECIMAL = "a decimal"
    NUMBER = "a number"
    INDEX = "an integer, 0 or more"
    SEPARATOR = "a String that is not empty, as a literal or a parameter"
    LIKE_PATTERN = "a pattern, as a literal or a parameter"
    REGEX = "a regular expression, as a literal or a parameter"
    DATE = "a Date"
    DATETIME = "a DateTime"
    TIME = "a Date or a DateTime"
    DATE_UNIT = "a unit of dates, as a literal or a parameter"
    TIME_UNIT = "a unit of time, as a literal or a parameter"
    LIST = "a list"
    BOOLS = "a list of Bool"
    JSON = "a Json"
    JSON_TEXT = "a JSON text"
    JSON_PATH = 'a path such as "a.b[0]", as a literal or a parameter'


KNOWN: Final = frozenset(
    {
        Accepts.SEPARATOR,
        Accepts.LIKE_PATTERN,
        Accepts.REGEX,
        Accepts.DATE_UNIT,
        Accepts.TIME_UNIT,
        Accepts.JSON_PATH,
    }
)
"""Arguments whose value is known before anything is read, and checked then."""
DATE_UNITS: Final = ("year", "quarter", "month", "week", "day")
TIME_UNITS: Final = (*DATE_UNITS, "hour", "minute", "second")
MICROSECOND: Final = "microsecond"
"""The unit of durations, which texts of queries do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The types of arguments, and of the value; without `result` it is that of the first argument.

    The digits of a value that is a decimal follow from its arguments, see `query/decimals.py`.
    The last `optional` parameters may be omitted. If `repeated`, more arguments like the last may
    follow. Numbers are converted to the type of `converts`. The value of an `identity` is its
    argument.
    """

    parameters: tuple[Accepts, ...]
    result: qt.ExpressionType | None
    optional: int = 0
    repeated: bool = False
    gives_null: bool = False
    converts: ct.Scalar | None = None
    identity: bool = False

    @property
    def fewest(self) -> int:
        return len(self.parameters) - self.optional

    @property
    def most(self) -> int:
        return ARGUMENTS_MAX if self.repeated else len(self.parameters)

    def parameter(self, position: int) -> Accepts:
        return self.parameters[min(position, len(self.parameters) - 1)]

    def fits(self, types: Sequence[qt.ExpressionType]) -> bool:
        return self.fewest <= len(types) <= self.most and all(
            accepts_type(self.parameter(position), argument)
            for position, argument in enumerate(types)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDeclaration:
    """A function; of several signatures the first that fits the arguments counts."""

    signatures: tuple[Signature, ...]
    evaluation: Evaluation
    usage: str
    shown: str
    meaning: str
    can_fail: bool = False

    @property
    def fewest(self) -> int:
        return min(signature.fewest for signature in self.signatures)

    @property
    def most(self) -> int:
        return max(signature.most for signature in self.signatures)


def accepts_type(  # noqa: C901, PLR0911, PLR0912 - one per kind
    accepts: Accepts, argument: qt.ExpressionType
) -> bool:
    """Whether a parameter takes arguments of a type."""
    match accepts:
        case (
            Accepts.TEXT
            | Accepts.SEPARATOR
            | Accepts.LIKE_PATTERN
            | Accepts.REGEX
            | Accepts.JSON_PATH
            | Accepts.JSON_TEXT
        ):
            return qt.is_text(argument)
        case Accepts.JSON:
            return argument == qt.JSON
        case Accepts.INDEX | Accepts.INTEGER:
            return qt.is_integer(argument)
        case Accepts.FLOAT:
            return qt.is_float(argument)
        case Accepts.DECIMAL:
            return isinstance(argument, ct.DecimalType)
        case Accepts.NUMBER:
            return qt.is_number(argument)
        case Accepts.DATE_UNIT | Accepts.TIME_UNIT:
            return argument == qt.STRING
        case Accepts.DATE:
            return argument == qt.DATE
        case Accepts.DATETIME:
            return argument == qt.DATETIME
        case Accepts.TIME:
            return qt.is_time(argument)
        case Accepts.LIST:
            return isinstance(argument, ct.ListType)
        case Accepts.BOOLS:
            return argument == qt.BOOLS
        case _:
            assert_never(accepts)


def _part_of_time(
    function: ScalarFunction, takes: Accepts, meaning: str
) -> Mapping[ScalarFunction, FunctionDeclaration]:
    """A function that gives a number for a date or a point in time."""
    kinds = "Date | DateTime" if takes is Accepts.TIME else "DateTime"
    return {
        function: FunctionDeclaration(
            signatures=(Signature(parameters=(takes,), result=qt.I64),),
            evaluation=Evaluation.NATIVE,
            usage=f"{function.value}($p.joined)",
            shown=f"{function.value}(time: {kinds}) -> I64",
            meaning=meaning,
        )
    }


_TEXT: Final = (Accepts.TEXT,)
_IDENTITY: Final = Signature(parameters=(Accepts.INTEGER,), result=None, identity=True)
_OF_FLOAT: Final = Signature(parameters=(Accepts.FLOAT,), result=qt.F64, converts=ct.Scalar.F64)
_OF_DECIMAL: Final = Signature(parameters=(Accepts.DECIMAL,), result=None)

DECLARATIONS: Final[Mapping[ScalarFunction, FunctionDeclaration]] = {
    ScalarFunction.LOWER: FunctionDeclaration(
        signatures=(Signature(parameters=_TEXT, result=qt.STRING),),
        evaluation=Evaluation.KERNEL,
        usage="lower($p.name)",
        shown="lower(text: String) -> String",
        meaning="Every character in lower case, one for one; the same in every locale.",
    ),
    ScalarFunction.UPPER: FunctionDeclaration(
        signatures=(Signature(parameters=_TEXT, result=qt.STRING),),
        evaluation=Evaluation.KERNEL,
        usage="upper($p.name)",
        shown="upper(text: String) -> String",
        meaning="Every character in upper case, one for one; the same in every locale.",
    ),
    ScalarFunction.TRIM: FunctionDeclaration(
        signatures=(Signature(parameters=_TEXT, result=qt.STRING),),
        evaluation=Evaluation.NATIVE,
        usage="trim($p.name)",
        shown="trim(text: String) -> String",
        meaning="The text without white space at both ends.",
    ),
    ScalarFunction.LENGTH: FunctionDeclaration(
        signatures=(
            Signature(parameters=_TEXT, result=qt.I64),
            Signature(parameters=(Accepts.LIST,), result=qt.I64),
        ),
        evaluation=Evaluation.NATIVE,
        usage="length($p.name)",
        shown="length($path) -> I32 | length(text: String) -> I64 | length(list) -> I64",
        meaning="The number of edges of a path, of code points of a text, or of items of a list.",
    ),
    ScalarFunction.CONCAT: FunctionDeclaration(
        signatures=(
            Signature(parameters=(Accepts.TEXT, Accepts.TEXT), result=qt.STRING, repeated=True),
        ),
        evaluation=Evaluation.NATIVE,
        usage='concat($p.name, " ", $p.email)',
        shown="concat(text: String, text: String, ...) -> String",
        meaning="The texts one after another; null if one of them is.",
    ),
    ScalarFunction.SUBSTRING: FunctionDeclaration(
        signatures=(
            Signature(
                parameters=(Accepts.TEXT, Accepts.INDEX, Accepts.INDEX),
                result=qt.STRING,
                optional=1,
                gives_null=True,
            ),
        ),
        evaluation=Evaluation.NATIVE,
        usage="substring($p.name, 0, 3)",
        shown="substring(text: String, start: I64 [, count: I64]) -> String",
        meaning="`count` code points after the first `start`, or all; null if one is negative.",
    ),
    ScalarFunction.REPLACE: FunctionDeclaration(
        signatures=(
            Signature(parameters=(Accepts.TEXT, Accepts.TEXT, Accepts.TEXT), result=qt.STRING),
        ),
        evaluation=Evaluation.NATIVE,
        usage='replace($p.name, "-", " ")',
        shown="replace(text: String, part: String, by: String) -> String",
        meaning="The text with every `part` replaced; unchanged if `part` is empty.",
    ),
    ScalarFunction.SPLIT: FunctionDeclaration(
        signatures=(Signature(parameters=(Accepts.TEXT, Accepts.SEPARATOR), result=qt.STRINGS),),
        evaluation=Evaluation.NATIVE,
        usage='split($p.name, " ")',
        shown="split(text: String, separator: String) -> [String]",
        meaning="The parts between separators, empty ones included.",
    ),
    ScalarFunction.LIKE: FunctionDeclaration(
        signatures=(Signature(parameters=(Accepts.TEXT, Accepts.LIKE_PATTERN), result=qt.BOOL),),
        evaluation=Evaluation.KERNEL,
        usage='like($p.name, "A%")',
        shown="like(text: String, pattern: String) -> Bool",
        meaning=r"Whether the whole text fits: `%` is any text, `_` one code point, `\` escapes.",
    ),
    ScalarFunction.MATCHES: FunctionDeclaration(
        signatures=(Signature(parameters=(Accepts.TEXT, Accepts.REGEX), result=qt.BOOL),),
        evaluation=Evaluation.KERNEL,
        usage='matches($p.name, "^[A-Z]")',
        shown="matches(text: String, pattern: String) -> Bool",
        meaning="Whether an RE2 regular expression occurs in the text; `^` and `$` anchor it.",
    ),
    ScalarFunction.ABS: FunctionDeclaration(
        signatures=(
            Signature(parameters=(Accepts.INTEGER,), result=qt.I64, converts=ct.Scalar.I64),
            _OF_FLOAT,
            _OF_DECIMAL,
        ),
        evaluation=Evaluation.NATIVE,
        usage="abs($p.balance)",
        shown="abs(x) -> I64 | F64 | Decimal",
        meaning="The number without its sign.",
        can_fail=True,
    ),
    ScalarFunction.ROUND: FunctionDeclaration(
        signatures=(
            _IDENTITY,
            _OF_FLOAT,
            Signature(
                parameters=(Accepts.INTEGER, Accepts.INTEGER),
                result=qt.I64,
                converts=ct.Scalar.I64,
            ),
            Signature(
                parameters=(Accepts.FLOAT, Accepts.INTEGER), result=qt.F64, converts=ct.Scalar.F64
            ),
            Signature(parameters=(Accepts.DECIMAL, Accepts.INTEGER), result=None, optional=1),
        ),
        evaluation=Evaluation.KERNEL,
        usage="round($p.height, 1)",
        shown="round(x [, digits: I64]) -> I64 | F64 | Decimal",
        meaning="The nearest number with so many digits behind the point; halves away from zero.",
        can_fail=True,
    ),
    ScalarFunction.FLOOR: FunctionDeclaration(
        signatures=(_IDENTITY, _OF_FLOAT, _OF_DECIMAL),
        evaluation=Evaluation.KERNEL,
        usage="floor($p.height)",
        shown="floor(x) -> F64 | Decimal",
        meaning="The greatest integral number that is not above; an integer is its own.",
    ),
    ScalarFunction.CEIL: FunctionDeclaration(
        signatures=(_IDENTITY, _OF_FLOAT, _OF_DECIMAL),
        evaluation=Evaluation.KERNEL,
        usage="ceil($p.height)",
        shown="ceil(x) -> F64 | Decimal",
        meaning="The smallest integral number that is not below; an integer is its own.",
    ),
    ScalarFunction.SQRT: FunctionDeclaration(
        signatures=(
            Signature(
                parameters=(Accepts.NUMBER,),
                result=qt.F64,
                gives_null=True,
                converts=ct.Scalar.F64,
            ),
        ),
        evaluation=Evaluation.NATIVE,
        usage="sqrt($p.area)",
        shown="sqrt(x) -> F64",
        meaning="The square root; null of a negative number.",
    ),
    ScalarFunction.DIV: FunctionDeclaration(
        signatures=(
            Signature(
                parameters=(Accepts.INTEGER, Accepts.INTEGER),
                result=qt.I64,
                gives_null=True,
                converts=ct.Scalar.I64,
            ),
            Signature(parameters=(Accepts.DECIMAL, Accepts.DECIMAL), result=None, gives_null=True),
        ),
        evaluation=Evaluation.NATIVE,
        usage="div($p.age, 10)",
        shown="div(dividend, divisor) -> I64 | Decimal",
        meaning="The quotient of exact numbers, cut toward zero; null if the divisor is 0.",
        can_fail=True,
    ),
    **_part_of_time(ScalarFunction.YEAR, Accepts.TIME, "The year, in UTC."),
    **_part_of_time(ScalarFunction.MONTH, Accepts.TIME, "The month, 1 to 12, in UTC."),
    **_part_of_time(ScalarFunction.DAY, Accepts.TIME, "The day of the month, in UTC."),
    **_part_of_time(ScalarFunction.HOUR, Accepts.DATETIME, "The hour, 0 to 23, in UTC."),
    **_part_of_time(ScalarFunction.MINUTE, Accepts.DATETIME, "The minute, 0 to 59, in UTC."),
    **_part_of_time(ScalarFunction.SECOND, Accepts.DATETIME, "The whole second, 0 to 59."),
    **_part_of_time(ScalarFunction.WEEKDAY, Accepts.TIME, "1 for Monday to 7 for Sunday, in UTC."),
    **_part_of_time(ScalarFunction.WEEK, Accepts.TIME, "The week of ISO 8601, 1 to 53, in UTC."),
    ScalarFunction.TRUNCATE: FunctionDeclaration(
        signatures=(
            Signature(parameters=(Accepts.DATE, Accepts.DATE_UNIT), result=None),
            Signature(parameters=(Accepts.DATETIME, Accepts.TIME_UNIT), result=None),
        ),
        evaluation=Evaluation.NATIVE,
        usage='truncate($p.joined, "month")',
        shown="truncate(time: Date | DateTime, unit: String) -> Date | DateTime",
        meaning="The start, in UTC, of the year, quarter, month, week, day, hour, minute or second "
        "of the time; weeks start on Monday.",
    ),
    ScalarFunction.ADD: FunctionDeclaration(
        signatures=(
            Signature(
                parameters=(Accepts.DATE, Accepts.INTEGER, Accepts.DATE_UNIT),
                result=None,
                converts=ct.Scalar.I64,
            ),
            Signature(
                parameters=(Accepts.DATETIME, Accepts.INTEGER, Accepts.TIME_UNIT),
                result=None,
                converts=ct.Scalar.I64,
            ),
        ),
        evaluation=Evaluation.KERNEL,
        usage='add($p.joined, 1, "month")',
        shown="add(time: Date | DateTime, count: I64, unit: String) -> Date | DateTime",
        meaning="The time so many units later, or earlier if the count is negative; a day that the "
        "month does not have becomes its last one.",
        can_fail=True,
    ),
    ScalarFunction.BETWEEN_DAYS: FunctionDeclaration(
        signatures=(Signature(parameters=(Accepts.TIME, Accepts.TIME), result=qt.I64),),
        evaluation=Evaluation.NATIVE,
        usage="between_days($p.joined, now())",
        shown="between_days(start: Date | DateTime, end: Date | DateTime) -> I64",
        meaning="The whole days from the first time to the second; negative if that is earlier.",
    ),
    ScalarFunction.BETWEEN_MICROSECONDS: FunctionDeclaration(
        signatures=(Signature(parameters=(Accepts.TIME, Accepts.TIME), result=qt.I64),),
        evaluation=Evaluation.NATIVE,
        usage="between_microseconds($p.joined, now())",
        shown="between_microseconds(start: Date | DateTime, end: Date | DateTime) -> I64",
        meaning="The microseconds from the first time to the second, which is `end - start`.",
    ),
    ScalarFunction.SLICE: FunctionDeclaration(
        signatures=(
            Signature(
                parameters=(Accepts.LIST, Accepts.INDEX, Accepts.INDEX),
                result=None,
                optional=1,
                gives_null=True,
            ),
        ),
        evaluation=Evaluation.NATIVE,
        usage="slice($p.tags, 0, 3)",
        shown="slice(list, start: I64 [, end: I64]) -> list",
        meaning="The items from `start`, counted from 0, to the one in front of `end`, or all; "
        "null if one is negative.",
    ),
    ScalarFunction.ANY: FunctionDeclaration(
        signatures=(Signature(parameters=(Accepts.BOOLS,), result=qt.BOOL, gives_null=True),),
        evaluation=Evaluation.NATIVE,
        usage="any($p.flags)",
        shown="any(list: [Bool]) -> Bool",
        meaning="Whether an item is true; null if none is and one is null.",
    ),
    ScalarFunction.ALL: FunctionDeclaration(
        signatures=(Signature(parameters=(Accepts.BOOLS,), result=qt.BOOL, gives_null=True),),
        evaluation=Evaluation.NATIVE,
        usage="all($p.flags)",
        shown="all(list: [Bool]) -> Bool",
        meaning="Whether every item is true; null if none is false and one is null.",
    ),
    ScalarFunction.JSON: FunctionDeclaration(
        signatures=(
            Signature(
                parameters=(Accepts.JSON, Accepts.JSON_PATH), result=qt.JSON, gives_null=True
            ),
            Signature(parameters=(Accepts.JSON_TEXT,), result=qt.JSON),
        ),
        evaluation=Evaluation.KERNEL,
        usage='json($p.payload, "address.lines[0]")',
        shown="json(value: Json, path: String) -> Json | json(text: String) -> Json",
        meaning="What is at a path of a value, null if it is absent; or the value of a JSON text.",
        can_fail=True,
    ),
    ScalarFunction.JSON_TYPE: FunctionDeclaration(
        signatures=(
            Signature(
                parameters=(Accepts.JSON, Accepts.JSON_PATH),
                result=qt.STRING,
                optional=1,
                gives_null=True,
            ),
        ),
        evaluation=Evaluation.KERNEL,
        usage='json_type($p.payload, "address")',
        shown="json_type(value: Json [, path: String]) -> String",
        meaning="`object`, `array`, `string`, `number`, `boolean` or `null`; null if it is absent.",
    ),
}


def signature_of(function: ScalarFunction, types: Sequence[qt.ExpressionType]) -> Signature | None:
    """The signature that arguments of these types fit."""
    return next((one for one in DECLARATIONS[function].signatures if one.fits(types)), None)
